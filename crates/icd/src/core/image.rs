//! Images: memory objects whose bytes are pixels in a layout that only the driver can interpret.

use crate::core::context::{Context, Member};
use crate::core::layout::{ImageLimits, Layout};
use crate::core::lost;
use crate::core::memory::{Memory, MemoryParameters, HOST_FLAGS};
use crate::core::object::{Object, Ref};
use crate::core::pixel::copy_box;
use baltra_opencl::*;
use baltra_wire::{
    Control, Direction, Id, ImageFormat, Operation, Payload, Query, Region, Reply, Request,
};
use std::sync::Arc;

/// The additional properties of a [`Memory`] that is an image.
#[derive(Clone, Copy, Debug)]
pub struct ImageInfo {
    /// Format, shape and pitches.
    pub layout: Layout,
}

/// The checked arguments of `clCreateImage`.
pub struct Plan {
    /// The context.
    pub context: Ref<Context>,
    /// `cl_mem_flags`, complete.
    pub flags: u64,
    /// Format, shape and pitches.
    pub layout: Layout,
    /// The application's memory, or 0.
    pub host_ptr: usize,
    /// The buffer or image below.
    pub parent: Option<Ref<Memory>>,
    /// `CL_MEM_PROPERTIES`
    pub properties: Vec<u64>,
}

impl Plan {
    /// Makes the image, without waiting for the other side.
    pub fn create(self) -> Result<Ref<Memory>, i32> {
        let Plan {
            context,
            flags,
            layout,
            host_ptr,
            parent,
            properties,
        } = self;
        let used = flags & CL_MEM_USE_HOST_PTR as u64 != 0;
        let filled = flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR) as u64 != 0;
        let source = (filled && parent.is_none()).then_some(host_ptr);
        let mut shape = layout.shape;
        if parent.is_some() && !parent.as_ref().is_some_and(|p| p.is_image()) {
            shape.row_pitch = layout.pitch.row as u64;
        }
        let below = parent.clone();
        let make = move |member: &Member, index: usize, id: Id| {
            let parent = match &below {
                Some(below) => below.id_in(index)?,
                None => 0,
            };
            // The application's memory is guaranteed to be valid only during the call, which
            // creates the first member's replica; the others get the pixels from that.
            let contents = match source {
                Some(address) if index == 0 => Some(stage(member, &layout, address)?),
                _ => None,
            };
            let control = Control::Image {
                id,
                context: member.id,
                flags: flags & !HOST_FLAGS,
                format: layout.format,
                shape,
                parent,
                contents: contents.as_ref().map(|block| block.payload()),
            };
            member.client.control(&control).map_err(lost)?;
            if let Some(block) = contents {
                // The device has its copy once the control channel has processed the creation.
                let done = Box::new(move |_| drop(block));
                member.client.call_then(Request::Sync, done).map_err(lost)?;
            }
            Ok(())
        };
        let parameters = MemoryParameters {
            context,
            kind: shape.kind as i32,
            flags,
            size: layout.size(),
            host_ptr: if used { host_ptr } else { 0 },
            parent,
            origin: 0,
            image: Some(ImageInfo { layout }),
            pipe: None,
            properties,
        };
        Memory::create(parameters, make)
    }
}

/// The first contents in a block of the session, tight.
fn stage(
    member: &Member,
    layout: &Layout,
    address: usize,
) -> Result<Arc<baltra_session::client::Block>, i32> {
    let bytes = layout.bytes(layout.extent());
    let block = Arc::new(member.allocate(bytes.len() as u64, 128)?);
    // SAFETY: the application's memory holds the image with its pitches, as it promised to
    // clCreateImage; the block is fresh and as long as the tight box.
    unsafe {
        copy_box(
            address as *const u8,
            layout.rows_pitch(),
            block.ptr(),
            bytes.tight(),
            bytes,
        );
    }
    Ok(block)
}

impl Layout {
    /// `CL_MEM_SIZE`
    pub fn size(&self) -> usize {
        let [_, rows, slices] = self.extent();
        let pitch = self.rows_pitch();
        match slices {
            1 => pitch.row * rows,
            n => pitch.slice * n,
        }
    }
}

/// The wire's form of a region; payloads of images are tight.
pub fn region(origin: [usize; 3], size: [usize; 3]) -> Region {
    Region {
        origin: wide(origin),
        size: wide(size),
        row_pitch: 0,
        slice_pitch: 0,
    }
}

/// The wire's form of three sizes.
pub fn wide(sizes: [usize; 3]) -> [u64; 3] {
    sizes.map(|n| n as u64)
}

/// The transfer of a region between an image and a payload.
pub fn transfer(
    direction: Direction,
    image: Id,
    origin: [usize; 3],
    size: [usize; 3],
    payload: Payload,
) -> Operation<'static> {
    Operation::Image {
        direction,
        image,
        region: region(origin, size),
        payload,
    }
}

/// `clGetSupportedImageFormats`: formats that any of the context's devices supports; on a pool, all
/// of its devices.
pub fn formats(context: &Context, flags: u64, kind: u32) -> Result<Vec<ImageFormat>, i32> {
    let mut all: Vec<ImageFormat> = Vec::new();
    for (at, member) in context.members.iter().enumerate() {
        if context.is_gone(at) {
            continue;
        }
        let device = member.client.device();
        if ImageLimits::of(device).is_none() {
            continue;
        }
        let mut described = device.image_formats.iter();
        let known = described.find(|(k, f, _)| *k == kind && *f == flags);
        let bytes = match known {
            Some((_, _, bytes)) => bytes.clone(),
            None => query_formats(member, flags, kind)?,
        };
        let here: Vec<ImageFormat> = bytes.chunks_exact(8).map(unpack).collect();
        if context.pooled && at != context.home() {
            all.retain(|format| here.contains(format));
            continue;
        }
        for format in here {
            if !all.contains(&format) {
                all.push(format);
            }
        }
    }
    Ok(all)
}

fn query_formats(member: &Member, flags: u64, kind: u32) -> Result<Vec<u8>, i32> {
    let query = Query::ImageFormats {
        context: member.id,
        flags,
        kind,
    };
    match member.client.call(Request::Query(query)).map_err(lost)? {
        Reply::Bytes(bytes) => Ok(bytes),
        Reply::Error(code) => Err(code),
        _ => Err(CL_OUT_OF_RESOURCES),
    }
}

fn unpack(bytes: &[u8]) -> ImageFormat {
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    ImageFormat {
        order: word(0),
        kind: word(4),
    }
}

/// Whether a device supports the format for images of this type and `flags`. A format that is
/// readable and writable is both, so the driver is queried only for formats that are neither.
pub fn supported(
    context: &Context,
    flags: u64,
    kind: u32,
    format: ImageFormat,
) -> Result<bool, i32> {
    let both = CL_MEM_READ_WRITE as u64;
    let access = access(flags);
    for flags in [both, access] {
        if formats(context, flags, kind)?.contains(&format) {
            return Ok(true);
        }
        if access == both {
            break;
        }
    }
    Ok(false)
}

/// The access flags that formats depend on.
pub fn access(flags: u64) -> u64 {
    let all =
        CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY | CL_MEM_KERNEL_READ_AND_WRITE;
    match flags & all as u64 {
        0 => CL_MEM_READ_WRITE as u64,
        access => access,
    }
}

impl Object<Memory> {
    /// The image's description; `CL_INVALID_MEM_OBJECT` if it is not an image.
    pub fn pixels(&self) -> Result<&Layout, i32> {
        let info = self.image.as_ref().ok_or(CL_INVALID_MEM_OBJECT)?;
        Ok(&info.layout)
    }
}
