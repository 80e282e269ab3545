//! Description of a device for clients.

use super::{Context, Device};
use baltra_opencl::*;
use baltra_wire::{DeviceDescription, Info};

/// Vendors' parameters outside the Khronos range.
const VENDOR_PARAMS: [std::ops::RangeInclusive<u32>; 7] = [
    0x4000..=0x400F, // NVIDIA: compute capability, warp size, topology
    0x4036..=0x404F, // AMD: board, memory channels
    0x40E0..=0x40E0, // Khronos: SPIR versions
    0x4108..=0x4109, // Intel: sub-groups
    0x410F..=0x410F, // PCI bus
    0x4190..=0x4194, // Intel: shared memory capabilities
    0x4250..=0x4256, // Intel: IP version, slices
];

/// The device as its driver describes it; `context`: one over it. (A GPU's context takes a tenth of
/// a second, and those of several processes come one after the other.) `host_memory` false forces
/// the client to copy even where the device could use its memory in place.
pub fn describe(
    device: Device,
    context: &Context,
    name: &str,
    host_memory: bool,
) -> DeviceDescription {
    let handles = [
        CL_DEVICE_PLATFORM as u32,
        CL_DEVICE_PARENT_DEVICE as u32,
        CL_DEVICE_REFERENCE_COUNT as u32,
    ];
    let params = (0x1000..0x1080).chain(VENDOR_PARAMS.into_iter().flatten());
    let answers = params
        .filter(|param| !handles.contains(param))
        .filter_map(|param| {
            let value = device.info(param).ok()?;
            Some(Info { param, value })
        });
    let platform = (0x0900..0x0908)
        .chain([CL_PLATFORM_ICD_SUFFIX_KHR as u32])
        .filter_map(|param| {
            let value = device.driver.platform_info(param).ok()?;
            Some(Info { param, value })
        });
    DeviceDescription {
        name: name.into(),
        platform: platform.collect(),
        device: answers.collect(),
        host_memory: host_memory && works_in_host_memory(device),
        // Sessions report event times by the host's clock.
        clock_offset_ns: 0,
        image_formats: image_formats(context),
    }
}

/// CPUs only: an integrated GPU that reports unified memory may still need its own alignment or
/// caching, which has not been tested.
fn works_in_host_memory(device: Device) -> bool {
    device.number(CL_DEVICE_HOST_UNIFIED_MEMORY as u32) != 0
        && device.number(CL_DEVICE_TYPE as u32) & CL_DEVICE_TYPE_CPU as u64 != 0
}

fn image_formats(context: &Context) -> Vec<(u32, u64, Vec<u8>)> {
    let kinds = [
        CL_MEM_OBJECT_IMAGE2D,
        CL_MEM_OBJECT_IMAGE3D,
        CL_MEM_OBJECT_IMAGE2D_ARRAY,
        CL_MEM_OBJECT_IMAGE1D,
        CL_MEM_OBJECT_IMAGE1D_ARRAY,
        CL_MEM_OBJECT_IMAGE1D_BUFFER,
    ];
    let flags = [
        CL_MEM_READ_WRITE,
        CL_MEM_WRITE_ONLY,
        CL_MEM_READ_ONLY,
        CL_MEM_KERNEL_READ_AND_WRITE,
    ];
    let uses = kinds
        .iter()
        .flat_map(|kind| flags.iter().map(move |flag| (*kind as u32, *flag as u64)));
    uses.filter_map(|(kind, flags)| {
        let formats = context.image_formats(flags, kind).ok()?;
        (!formats.is_empty()).then_some((kind, flags, formats))
    })
    .collect()
}
