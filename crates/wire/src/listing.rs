//! Selection and identity of a driver's devices.

use crate::opencl::{DEVICE_TYPE_CPU, DEVICE_TYPE_GPU};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

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
    /// Parses a selector. Every text is valid: one that is not a number, a UUID or a PCI address is
    /// a part of a name.
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
    /// OpenCL version of the device, as the driver prints it.
    pub version: String,
    /// `cl_device_type`
    pub kind: u64,
    /// Bytes of device memory.
    pub memory_bytes: u64,
    /// UUID of the device, if the driver reports one.
    pub uuid: Option<Uuid>,
    /// Position of the device on the PCI bus, if the driver reports one.
    pub pci: Option<PciAddress>,
}

impl Listed {
    /// Whether it is one of the host's processors. A simulator may claim to be every type.
    pub fn is_cpu(&self) -> bool {
        self.kind & DEVICE_TYPE_CPU != 0
    }

    /// Whether it is a GPU.
    pub fn is_gpu(&self) -> bool {
        self.kind & DEVICE_TYPE_GPU != 0 && !self.is_cpu()
    }

    /// Text of a selector that identifies this device even if other devices of the driver appear or
    /// vanish: its UUID or its PCI address if unique among `all`, otherwise its ordinal.
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
    /// The library's file; `None`: a board, or unknown.
    pub library: Option<PathBuf>,
    /// Devices of the driver, by ordinal.
    pub devices: Vec<Listed>,
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
            kind: DEVICE_TYPE_GPU,
            memory_bytes: 0,
            uuid: None,
            pci: None,
        }
    }

    #[test]
    fn a_number_is_an_ordinal_and_not_a_part_of_a_name() {
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
    fn selectors_are_distinguished() {
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
    fn the_lasting_selector_names_one_device() {
        let mut devices = [
            listed(0, "a"),
            listed(1, "a"),
            listed(2, "a"),
            listed(3, "a"),
        ];
        devices[0].uuid = Some(Uuid([1; 16]));
        // Two partitions of one GPU have the same position and different UUIDs.
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
