//! Assigns the configuration's entries to the devices found.

use super::{Error, Probed};
use crate::options::{DeviceOptions, AUTO};
use baltra_wire::listing::{Listed, Selector};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A device of a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The library, as the configuration or an `.icd` file names it.
    pub library: PathBuf,
    /// The library's file, if it is known.
    pub file: Option<PathBuf>,
    /// The device.
    pub device: Listed,
    /// The selector that identifies the device in its library.
    pub selector: String,
}

impl Origin {
    /// Whether both refer to one piece of hardware: the same device of one library or, through
    /// different libraries, the same UUID or position on the PCI bus. A CPU through two drivers
    /// counts as two devices, because programs and results differ.
    fn is_same(&self, other: &Origin) -> bool {
        let file = |origin: &Origin| {
            origin
                .file
                .clone()
                .unwrap_or_else(|| origin.library.clone())
        };
        if file(self) == file(other) {
            return self.device.number == other.device.number;
        }
        if self.device.is_cpu() || other.device.is_cpu() {
            return false;
        }
        let (a, b) = (&self.device, &other.device);
        (a.uuid.is_some() && a.uuid == b.uuid) || (a.pci.is_some() && a.pci == b.pci)
    }

    /// Its name and place, for display.
    pub fn describe(&self) -> String {
        let mut text = self.device.name.clone();
        if let Some(pci) = self.device.pci {
            text += &format!(" (PCI {pci})");
        }
        text
    }
}

/// A driver or device that is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unused {
    /// The driver's library.
    pub library: PathBuf,
    /// The device; `None`: the driver as a whole.
    pub device: Option<String>,
    /// The reason.
    pub reason: String,
}

/// The devices of the installed drivers, each once.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    /// GPUs, then accelerators, then CPUs; each group in the drivers' own order. The index in this
    /// list is the ordinal of a device if no driver is named.
    pub devices: Vec<Origin>,
    /// Drivers that are not used.
    pub unused: Vec<Unused>,
}

impl Inventory {
    /// Gathers the drivers' devices in their order; of two that refer to one piece of hardware,
    /// only the first.
    pub fn new(drivers: Vec<Probed>) -> Inventory {
        let mut inventory = Inventory::default();
        for driver in drivers {
            let reason = match &driver.listing {
                Ok(listing) if listing.devices.is_empty() => "it has no device on this host",
                Ok(_) => "",
                Err(reason) => reason,
            };
            if !reason.is_empty() {
                inventory.leave_out(&driver.library, None, reason.to_owned());
            }
            for origin in origins(&driver) {
                match inventory.devices.iter().find(|d| d.is_same(&origin)) {
                    None => inventory.devices.push(origin),
                    Some(first) => {
                        let first = first.library.display().to_string();
                        let reason = format!("it is served through {first}");
                        let name = origin.describe();
                        inventory.leave_out(&origin.library, Some(name), reason);
                    }
                }
            }
        }
        let rank = |origin: &Origin| match () {
            () if origin.device.is_gpu() => 0,
            () if origin.device.is_cpu() => 2,
            () => 1,
        };
        inventory.devices.sort_by_key(rank);
        inventory
    }

    fn leave_out(&mut self, library: &Path, device: Option<String>, reason: String) {
        self.unused.push(Unused {
            library: library.to_owned(),
            device,
            reason,
        });
    }
}

fn origins(driver: &Probed) -> Vec<Origin> {
    let Ok(listing) = &driver.listing else {
        return Vec::new();
    };
    let origin = |device: &Listed| Origin {
        library: driver.library.clone(),
        file: listing.library.clone(),
        device: device.clone(),
        selector: device.selector(&listing.devices),
    };
    listing.devices.iter().map(origin).collect()
}

/// A device to serve.
#[derive(Clone, Debug, PartialEq)]
pub struct Served {
    /// Its entry, with this device's own name and selector.
    pub options: DeviceOptions,
    /// The library to load, or the board.
    pub driver: PathBuf,
    /// The device found; `None`: the driver was not probed, and its executors open the device.
    pub origin: Option<Origin>,
}

/// Devices that an entry may select from, with ordinals; `None`: executors determine them.
type Choice<'a> = Option<Vec<(usize, Origin)>>;

/// Assigns devices to entries. An entry with a selector gets the devices that it matches; `select =
/// "all"` gets those that no other entry selects. `named` are the libraries named by entries.
pub fn assign(
    entries: &[DeviceOptions],
    installed: &Inventory,
    named: &[Probed],
) -> Result<Vec<Served>, Error> {
    let choices: Vec<Choice<'_>> = entries
        .iter()
        .map(|e| choice(e, installed, named))
        .collect();
    let mut taken: Vec<(usize, Origin)> = Vec::new();
    for (i, entry) in entries.iter().enumerate() {
        let is_one = |e: &DeviceOptions| !e.is_probed() && e.driver != AUTO && !e.is_emulated();
        let is_same = |e: &DeviceOptions| is_one(e) && e.driver == entry.driver;
        if let Some(other) = entries[..i].iter().position(is_same) {
            return Err(twice(i, other, entry.driver.clone()));
        }
    }
    let selectors: Vec<_> = entries.iter().map(|e| Selector::parse(&e.select)).collect();
    for everything in [false, true] {
        for (i, choice) in choices.iter().enumerate() {
            let Some(choice) = choice else { continue };
            if (selectors[i] == Selector::All) != everything {
                continue;
            }
            let matching = choice
                .iter()
                .filter(|(ordinal, origin)| selectors[i].matches(*ordinal, &origin.device));
            let before = taken.len();
            let mut other = None;
            for (_, origin) in matching {
                match taken.iter().find(|(_, t)| t.is_same(origin)) {
                    None => taken.push((i, origin.clone())),
                    Some((owner, _)) if everything => other = Some((*owner, origin.describe())),
                    Some((owner, _)) => return Err(twice(i, *owner, origin.describe())),
                }
            }
            if taken.len() > before {
                continue;
            }
            return Err(match other {
                Some((owner, device)) => twice(i, owner, device),
                None if choice.is_empty() => Error::NoDevices(reasons(installed)),
                None => Error::NoDevice {
                    entry: i,
                    select: entries[i].select.clone(),
                    have: listed(choice),
                },
            });
        }
    }
    name(entries, &choices, taken)
}

fn choice<'a>(entry: &DeviceOptions, installed: &Inventory, named: &[Probed]) -> Choice<'a> {
    if entry.driver == AUTO {
        return Some(installed.devices.iter().cloned().enumerate().collect());
    }
    let library = Path::new(&entry.driver);
    let probed = named.iter().find(|p| p.library == library)?;
    let all = origins(probed);
    let selector = Selector::parse(&entry.select);
    // A driver that fails, or has lost the device, is tried again by the executors.
    let is_there = all
        .iter()
        .any(|o| selector.matches(o.device.number, &o.device));
    is_there.then(|| all.into_iter().map(|o| (o.device.number, o)).collect())
}

fn twice(a: usize, b: usize, device: String) -> Error {
    Error::Twice {
        entry: a.max(b),
        other: a.min(b),
        device,
    }
}

fn reasons(installed: &Inventory) -> String {
    let reason =
        |unused: &super::Unused| format!("{}: {}", unused.library.display(), unused.reason);
    installed
        .unused
        .iter()
        .map(reason)
        .collect::<Vec<_>>()
        .join("; ")
}

fn listed(choice: &[(usize, Origin)]) -> String {
    let one = |(ordinal, origin): &(usize, Origin)| format!("{ordinal}: {}", origin.describe());
    choice.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Names each device uniquely, in the entries' order: the entry's name; `NAME0`, `NAME1`, … if the
/// entry selects several devices; `device0`, `device1`, … for `auto`.
fn name(
    entries: &[DeviceOptions],
    choices: &[Choice<'_>],
    taken: Vec<(usize, Origin)>,
) -> Result<Vec<Served>, Error> {
    let mut names = BTreeSet::new();
    let mut served = Vec::new();
    let own = |i: usize| taken.iter().filter(move |(owner, _)| *owner == i);
    for (i, entry) in entries.iter().enumerate() {
        let is_alone = own(i).count() == 1 || choices[i].is_none();
        if entry.name != AUTO && is_alone && !names.insert(entry.name.clone()) {
            let name = entry.name.clone();
            return Err(Error::Name { entry: i, name });
        }
    }
    for (i, entry) in entries.iter().enumerate() {
        let found: Vec<Option<&Origin>> = match &choices[i] {
            None => vec![None],
            Some(_) => own(i).map(|(_, origin)| Some(origin)).collect(),
        };
        let count = found.len();
        for origin in found {
            let mut options = entry.clone();
            if entry.name == AUTO || count > 1 {
                let stem = match entry.name.as_str() {
                    AUTO => "device",
                    name => name,
                };
                let mut free = (0..).map(|n| format!("{stem}{n}"));
                let free = free.find(|name| !names.contains(name));
                options.name = free.unwrap_or_default();
                names.insert(options.name.clone());
            }
            let driver = origin.map_or_else(|| PathBuf::from(&entry.driver), |o| o.library.clone());
            if let Some(origin) = origin {
                options.select = origin.selector.clone();
            }
            served.push(Served {
                options,
                driver,
                origin: origin.cloned(),
            });
        }
    }
    Ok(served)
}

#[cfg(test)]
mod tests;
