//! The devices of a driver's library.

use super::{load, real_path, Device, LoadError};
use baltra_opencl::*;
use baltra_wire::listing::{Listed, Listing, PciAddress, Selector, Uuid};

/// `CL_DEVICE_PCI_BUS_ID_NV`, `CL_DEVICE_PCI_SLOT_ID_NV`, `CL_DEVICE_PCI_DOMAIN_ID_NV`.
const NVIDIA_BUS: u32 = 0x4008;
const NVIDIA_SLOT: u32 = 0x4009;
const NVIDIA_DOMAIN: u32 = 0x400A;

/// The most devices of one library that are considered.
const DEVICES_MAX: usize = 1024;

/// Loads a driver's library and lists its devices.
pub fn list(library: &str) -> Result<Listing, LoadError> {
    let devices = devices(library)?.into_iter().map(|(_, listed)| listed);
    Ok(Listing {
        devices: devices.take(DEVICES_MAX).collect(),
        library: real_path(library),
    })
}

fn devices(library: &str) -> Result<Vec<(Device, Listed)>, LoadError> {
    let mut devices = Vec::new();
    for driver in load(library)? {
        let platform = driver
            .platform_info(CL_PLATFORM_NAME as u32)
            .unwrap_or_default();
        for device in driver.devices() {
            let listed = Listed {
                number: devices.len(),
                platform: clip(super::text(&platform)),
                name: clip(device.text(CL_DEVICE_NAME as u32)),
                version: clip(device.text(CL_DEVICE_VERSION as u32)),
                kind: device.number(CL_DEVICE_TYPE as u32),
                memory_bytes: device.number(CL_DEVICE_GLOBAL_MEM_SIZE as u32),
                uuid: uuid(&device),
                pci: pci(&device),
            };
            devices.push((device, listed));
        }
    }
    Ok(devices)
}

/// A driver's text, truncated to a length that fits a table.
fn clip(text: String) -> String {
    text.chars().take(256).collect()
}

/// The UUID; none if it is all zeros, as reported by drivers without UUIDs.
fn uuid(device: &Device) -> Option<Uuid> {
    let bytes = device.info(CL_DEVICE_UUID_KHR as u32).ok()?;
    let uuid: [u8; 16] = bytes.try_into().ok()?;
    (uuid != [0; 16]).then_some(Uuid(uuid))
}

fn pci(device: &Device) -> Option<PciAddress> {
    let words = |param: u32, count: usize| {
        let bytes = device.info(param).ok()?;
        let words: Vec<u32> = bytes
            .chunks_exact(4)
            .map(|w| super::number(w) as u32)
            .collect();
        (bytes.len() == count * 4).then_some(words)
    };
    if let Some([domain, bus, device, function]) =
        words(CL_DEVICE_PCI_BUS_INFO_KHR as u32, 4).as_deref()
    {
        return Some(PciAddress {
            domain: *domain,
            bus: *bus,
            device: *device,
            function: *function,
        });
    }
    if let (Some(bus), Some(slot)) = (words(NVIDIA_BUS, 1), words(NVIDIA_SLOT, 1)) {
        return Some(PciAddress {
            domain: words(NVIDIA_DOMAIN, 1).map_or(0, |d| d[0]),
            bus: bus[0],
            device: slot[0] >> 3,
            function: slot[0] & 7,
        });
    }
    // Type, 17 unused bytes, bus, device, function.
    let topology = device.info(CL_DEVICE_TOPOLOGY_AMD as u32).ok()?;
    let is_pcie = topology.len() == 24
        && super::number(&topology[..4]) == CL_DEVICE_TOPOLOGY_TYPE_PCIE_AMD as u64;
    is_pcie.then(|| PciAddress {
        domain: 0,
        bus: topology[21].into(),
        device: topology[22].into(),
        function: topology[23].into(),
    })
}

impl Device {
    /// Loads `library` and finds the first device in it that `select` ([`Selector`]) means.
    pub fn open(library: &str, select: &str) -> Result<Device, LoadError> {
        let selector = Selector::parse(select);
        let devices = devices(library)?;
        let found = devices.iter().find(|(_, l)| selector.matches(l.number, l));
        if let Some((device, _)) = found {
            return Ok(*device);
        }
        let names: Vec<_> = devices.into_iter().map(|(_, l)| l.name).collect();
        Err(if names.is_empty() {
            LoadError::NoDevices {
                library: library.into(),
            }
        } else {
            LoadError::NoDevice {
                library: library.into(),
                device: select.into(),
                have: names.join(", "),
            }
        })
    }
}
