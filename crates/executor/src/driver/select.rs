//! Which of a driver's devices: selectors, and the identity of a device.

use super::{load, real_path, Device, LoadError};
use baltra_opencl::*;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// `CL_DEVICE_PCI_BUS_ID_NV`, `CL_DEVICE_PCI_SLOT_ID_NV`, `CL_DEVICE_PCI_DOMAIN_ID_NV`.
const NVIDIA_BUS: u32 = 0x4008;
const NVIDIA_SLOT: u32 = 0x4009;
const NVIDIA_DOMAIN: u32 = 0x400A;

/// A position on the PCI bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PciAddress {
    /// Domain (segment).
    pub domain: u32,
    /// Bus.
    pub bus: u32,
    /// Device (slot).
    pub device: u32,
    /// Function.
    pub function: u32,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PciAddress {
            domain,
            bus,
            device,
            function,
        } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

impl PciAddress {
    /// `dddd:bb:dd.f` (domains of up to 32 bits) or `bb:dd.f`, hexadecimal.
    fn parse(text: &str) -> Option<PciAddress> {
        let hex = |digits: &str, most: u32| {
            let is_short = (1..=8).contains(&digits.len());
            let value = u32::from_str_radix(digits, 16).ok()?;
            (is_short && !digits.starts_with('+') && value <= most).then_some(value)
        };
        let (place, function) = text.split_once('.')?;
        let parts: Vec<&str> = place.split(':').collect();
        let (domain, bus, device) = match parts[..] {
            [bus, device] => ("0", bus, device),
            [domain, bus, device] => (domain, bus, device),
            _ => return None,
        };
        Some(PciAddress {
            domain: hex(domain, u32::MAX)?,
            bus: hex(bus, 0xff)?,
            device: hex(device, 0x1f)?,
            function: hex(function, 7)?,
        })
    }
}

/// `cl_khr_device_uuid`'s value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl Uuid {
    /// 32 hexadecimal digits, with dashes and a vendor's prefix (`GPU-`, `MIG-`) or without.
    fn parse(text: &str) -> Option<Uuid> {
        let bare = ["GPU-", "MIG-"].iter().find_map(|p| text.strip_prefix(p));
        let digits: String = bare.unwrap_or(text).split('-').collect();
        let is_hex = digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_hexdigit());
        let value = u128::from_str_radix(&digits, 16).ok()?;
        is_hex.then(|| Uuid(value.to_be_bytes()))
    }
}

/// The value of `select` in the configuration of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// Every device.
    All,
    /// The device with this ordinal.
    Ordinal(usize),
    /// The device with this UUID.
    Uuid(Uuid),
    /// The device at this position.
    Pci(PciAddress),
    /// The devices whose names contain this text.
    Name(String),
}

impl Selector {
    /// Reads a selector. Every text is one: what is not a number, a UUID or a PCI address is a
    /// part of a name.
    pub fn parse(text: &str) -> Selector {
        let text = text.trim();
        if text.is_empty() || text == "all" {
            return Selector::All;
        }
        if let Some(uuid) = Uuid::parse(text) {
            return Selector::Uuid(uuid);
        }
        if text.bytes().all(|b| b.is_ascii_digit()) {
            // Too large for an ordinal: no host has that many devices.
            return Selector::Ordinal(text.parse().unwrap_or(usize::MAX));
        }
        PciAddress::parse(text).map_or_else(|| Selector::Name(text.into()), Selector::Pci)
    }

    /// Whether `device` with this ordinal is selected.
    pub fn matches(&self, ordinal: usize, device: &Listed) -> bool {
        match self {
            Selector::All => true,
            Selector::Ordinal(n) => *n == ordinal,
            Selector::Uuid(uuid) => device.uuid == Some(*uuid),
            Selector::Pci(address) => device.pci == Some(*address),
            Selector::Name(part) => device.name.contains(part),
        }
    }
}

/// A device of a driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Its ordinal: devices are counted over all platforms of the library.
    pub number: usize,
    /// The driver's platform.
    pub platform: String,
    /// The device's name.
    pub name: String,
    /// Its OpenCL version, as the driver prints it.
    pub version: String,
    /// `cl_device_type`
    pub kind: u64,
    /// Bytes of device memory.
    pub memory_bytes: u64,
    /// Its UUID, where the driver reports one.
    pub uuid: Option<Uuid>,
    /// Its position on the PCI bus, where the driver reports one.
    pub pci: Option<PciAddress>,
}

impl Listed {
    /// Whether it is one of the host's processors. A simulator may claim to be every type.
    pub fn is_cpu(&self) -> bool {
        self.kind & CL_DEVICE_TYPE_CPU as u64 != 0
    }

    /// Whether it is a GPU.
    pub fn is_gpu(&self) -> bool {
        self.kind & CL_DEVICE_TYPE_GPU as u64 != 0 && !self.is_cpu()
    }

    /// Text of a selector that keeps naming this device when others of the driver appear or
    /// vanish: its UUID or its PCI address where no other of `all` shares it, else its ordinal.
    pub fn selector(&self, all: &[Listed]) -> String {
        let alone = |same: &dyn Fn(&Listed) -> bool| all.iter().filter(|l| same(l)).count() == 1;
        match (self.uuid, self.pci) {
            (Some(uuid), _) if alone(&|l| l.uuid == self.uuid) => uuid.to_string(),
            (_, Some(pci)) if alone(&|l| l.pci == self.pci) => pci.to_string(),
            _ => self.number.to_string(),
        }
    }
}

/// The devices of a driver's library.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// The library's file; `None`: a board, or not known.
    pub library: Option<PathBuf>,
    /// Its devices, by ordinal.
    pub devices: Vec<Listed>,
}

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

/// A driver's text at a length that a table bears.
fn clip(text: String) -> String {
    text.chars().take(256).collect()
}

/// The UUID; none where it is all zeros, as of drivers that do not know one.
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
        Err(match names.is_empty() {
            true => LoadError::NoDevices {
                library: library.into(),
            },
            false => LoadError::NoDevice {
                library: library.into(),
                device: select.into(),
                have: names.join(", "),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(number: usize, name: &str) -> Listed {
        Listed {
            number,
            platform: String::new(),
            name: name.into(),
            version: String::new(),
            kind: CL_DEVICE_TYPE_GPU as u64,
            memory_bytes: 0,
            uuid: None,
            pci: None,
        }
    }

    #[test]
    fn test_a_number_is_an_ordinal_and_not_a_part_of_a_name() {
        let devices = [listed(0, "H100 1"), listed(1, "H100 0")];
        for n in 0..2 {
            let selector = Selector::parse(&n.to_string());
            let selected: Vec<_> = devices
                .iter()
                .filter(|d| selector.matches(d.number, d))
                .map(|d| d.number)
                .collect();
            assert_eq!(selected, [n]);
        }
        assert!(!Selector::parse("100").matches(0, &devices[0]));
        assert!(Selector::parse("H100").matches(0, &devices[0]));
    }

    #[test]
    fn test_selectors_are_told_apart() {
        let uuid = Uuid(*b"\x0f123456789abcdef");
        let text = uuid.to_string();
        for text in [
            text.clone(),
            format!("GPU-{text}"),
            text.replace('-', ""),
            text.to_uppercase(),
        ] {
            assert_eq!(Selector::parse(&text), Selector::Uuid(uuid), "{text}");
        }
        let pci = PciAddress {
            domain: 0,
            bus: 0xc1,
            device: 0,
            function: 1,
        };
        for text in [
            "c1:00.1",
            "0000:c1:00.1",
            &pci.to_string(),
            "00000000:C1:00.1",
        ] {
            assert_eq!(Selector::parse(text), Selector::Pci(pci), "{text}");
        }
        for name in ["c1:20.1", "1.5", "v1:2", "H100", "c1:00.8", "-1"] {
            assert_eq!(Selector::parse(name), Selector::Name(name.into()), "{name}");
        }
        assert_eq!(Selector::parse(""), Selector::All);
        assert_eq!(Selector::parse("all"), Selector::All);
    }

    #[test]
    fn test_the_lasting_selector_names_one_device() {
        let mut devices = [
            listed(0, "a"),
            listed(1, "a"),
            listed(2, "a"),
            listed(3, "a"),
        ];
        devices[0].uuid = Some(Uuid([1; 16]));
        // Two parts of one GPU share its position and not their UUIDs.
        devices[1].uuid = Some(Uuid([2; 16]));
        devices[1].pci = PciAddress::parse("1:0.0");
        devices[2].pci = PciAddress::parse("1:0.0");
        for device in &devices {
            let selector = Selector::parse(&device.selector(&devices));
            let count = devices.iter().filter(|d| selector.matches(d.number, d));
            assert_eq!(count.count(), 1, "{selector:?}");
            assert!(selector.matches(device.number, device));
        }
        assert_eq!(devices[3].selector(&devices), "3");
    }
}
