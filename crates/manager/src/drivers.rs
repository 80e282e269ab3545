//! Finds the vendor's driver library for a device.

use std::io;
use std::path::{Path, PathBuf};

/// Where drivers announce themselves.
pub const VENDORS: &str = "/etc/OpenCL/vendors";

/// Ours: never a driver to share, or a manager would serve itself.
const OWN: &str = "libbaltra_opencl";

/// A driver that is announced on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    /// The announcing file.
    pub icd: PathBuf,
    /// The library that it names: a path, or a name for the dynamic linker.
    pub library: PathBuf,
}

/// Why there is no driver.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// None announced.
    #[error("no OpenCL driver is announced in {0}: install one (Debian: apt install pocl-opencl-icd), or name its library as the device's 'driver'")]
    None(PathBuf),
    /// The named library is not there.
    #[error("the driver library {0} does not exist")]
    Missing(PathBuf),
}

/// The drivers of a directory of `.icd` files, in the order of their names.
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

/// The library to load for a device's `driver`, or the board (`board:PATH`), which is the executor's to find.
pub fn resolve(driver: &str, directory: &Path) -> Result<PathBuf, Error> {
    if driver != "auto" {
        let path = PathBuf::from(driver);
        if path.is_absolute() && !path.exists() {
            return Err(Error::Missing(path));
        }
        return Ok(path);
    }
    let found = announced(directory).into_iter().next();
    found
        .map(|a| a.library)
        .ok_or_else(|| Error::None(directory.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_the_first_driver_that_is_not_ours_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        assert!(matches!(resolve("auto", dir.path()), Err(Error::None(_))));
        write("a.icd", "/opt/lib/libbaltra_opencl.so\n");
        write("b.txt", "/opt/lib/no.so\n");
        write("c.icd", "");
        write("d.icd", "libpocl.so.2\n");
        write("e.icd", "libother.so\n");
        assert_eq!(
            resolve("auto", dir.path()).unwrap(),
            Path::new("libpocl.so.2")
        );
        assert_eq!(announced(dir.path()).len(), 2);
    }

    #[test]
    fn test_a_library_that_is_not_there_is_named() {
        let error = resolve("/no/such/lib.so", Path::new(VENDORS)).unwrap_err();
        assert!(error.to_string().contains("/no/such/lib.so"));
    }
}
