//! The installed drivers of this host, their devices, and the selection of the served ones.

mod assign;
mod probe;

pub use assign::{assign, Inventory, Origin, Served, Unused};
pub(crate) use probe::program;
pub use probe::Prober;

use baltra_wire::listing::Listing;
use std::io;
use std::path::{Path, PathBuf};

/// Directory in which drivers are registered.
pub const VENDORS: &str = "/etc/OpenCL/vendors";

/// Baltra's own library, which is never used as a driver, because a manager would serve itself.
const OWN: &str = "libbaltra_opencl";

/// A driver that is registered on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    /// The file that registers it.
    pub icd: PathBuf,
    /// The library in that file: a path, or a name for the dynamic linker.
    pub library: PathBuf,
}

/// A driver's library and its devices.
#[derive(Clone, Debug)]
pub struct Probed {
    /// The library, as the configuration or an `.icd` file names it.
    pub library: PathBuf,
    /// Its devices, or why it cannot be used.
    pub listing: Result<Listing, String>,
}

/// Reasons for which no device can be served.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// No driver is registered.
    #[error("no OpenCL driver is registered in {0}: install one (Debian: apt install pocl-opencl-icd), or set the device's 'driver' to its library")]
    None(PathBuf),
    /// The configured library does not exist.
    #[error("the driver library {0} does not exist")]
    Missing(PathBuf),
    /// None of the installed drivers has a device.
    #[error("no installed OpenCL driver has a device: {0}; install one that has (Debian: apt install pocl-opencl-icd)")]
    NoDevices(String),
    /// The selector matches none of the installed drivers' devices.
    #[error("'device[{entry}].select': no device matches '{select}' (available: {have})")]
    NoDevice {
        /// Index of the entry in the configuration.
        entry: usize,
        /// Its selector.
        select: String,
        /// The available devices.
        have: String,
    },
    /// Two entries select the same device.
    #[error("'device[{entry}]' and 'device[{other}]' select the same device, {device}: give each a 'select' of its own (baltra doctor lists ordinals, UUIDs and PCI addresses), or remove one")]
    Twice {
        /// Index of the later entry in the configuration.
        entry: usize,
        /// Index of the earlier entry.
        other: usize,
        /// The device.
        device: String,
    },
    /// Several devices would have the same name.
    #[error("'device[{entry}].name': '{name}' is already the name of another device: choose a different one")]
    Name {
        /// Index of the entry in the configuration.
        entry: usize,
        /// The name.
        name: String,
    },
}

/// The drivers of a directory of `.icd` files, ordered by file name.
pub fn announced(directory: &Path) -> Vec<Announced> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries
        .filter_map(io::Result::ok)
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "icd"))
        .collect();
    files.sort();
    let read = |icd: PathBuf| {
        let text = std::fs::read_to_string(&icd).ok()?;
        let library = text.lines().next()?.trim();
        (!library.is_empty() && !library.contains(OWN)).then(|| Announced {
            library: library.into(),
            icd: icd.clone(),
        })
    };
    files.into_iter().filter_map(read).collect()
}

/// Determines the devices to serve: probes the registered drivers, if an entry needs them, and
/// those that entries name.
pub fn discover(
    entries: &[crate::options::DeviceOptions],
    vendors: &Path,
    prober: &Prober,
) -> Result<Vec<Served>, Error> {
    let mut named: Vec<PathBuf> = Vec::new();
    for entry in entries.iter().filter(|e| e.is_probed()) {
        let library = PathBuf::from(&entry.driver);
        if library.is_absolute() && !library.exists() {
            return Err(Error::Missing(library));
        }
        if !named.contains(&library) {
            named.push(library);
        }
    }
    let installed = if entries.iter().any(|e| e.driver == crate::options::AUTO) {
        announced(vendors)
    } else {
        Vec::new()
    };
    let installed: Vec<_> = installed.into_iter().map(|a| a.library).collect();
    let is_none = installed.is_empty();
    let mut probed = prober.probe(installed.iter().chain(&named));
    let named = probed.split_off(installed.len());
    let inventory = Inventory::new(probed);
    for unused in &inventory.unused {
        tracing::info!(driver = %unused.library.display(), reason = unused.reason, "driver not used");
    }
    assign(entries, &inventory, &named).map_err(|error| match error {
        Error::NoDevices(_) if is_none => Error::None(vendors.to_owned()),
        error => error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_that_are_not_ours_are_announced_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        assert_eq!(announced(dir.path()), []);
        write("a.icd", "/opt/lib/libbaltra_opencl.so\n");
        write("b.txt", "/opt/lib/no.so\n");
        write("c.icd", "");
        write("e.icd", "libother.so\n");
        write("d.icd", "libpocl.so.2\n");
        let libraries: Vec<_> = announced(dir.path())
            .into_iter()
            .map(|a| a.library)
            .collect();
        assert_eq!(
            libraries,
            ["libpocl.so.2", "libother.so"].map(PathBuf::from)
        );
    }
}
