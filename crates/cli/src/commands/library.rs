//! Finds Baltra's OpenCL library and makes the ICD loaders use it.

use anyhow::{bail, Context, Result};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The library's file name.
pub const LIBRARY: &str = "libbaltra_opencl.so";

/// Paths relative to the program's directory; the last two are for a build's other profile.
const PLACES: [&str; 7] = [
    "",
    "../lib",
    "../lib/baltra",
    "../lib/x86_64-linux-gnu",
    "../lib/aarch64-linux-gnu",
    "../release",
    "../debug",
];

/// The library's candidate paths: `BALTRA_LIBRARY`, beside the program, and the packages'
/// directories.
pub fn candidates() -> Vec<PathBuf> {
    let mut places = Vec::new();
    places.extend(std::env::var_os("BALTRA_LIBRARY").map(PathBuf::from));
    if let Some(dir) = std::env::current_exe()
        .ok()
        .as_deref()
        .and_then(Path::parent)
    {
        for place in PLACES {
            places.push(dir.join(place).join(LIBRARY));
        }
    }
    places
}

/// The first candidate that exists.
pub fn find() -> Result<PathBuf> {
    let places = candidates();
    match places.iter().find(|p| p.is_file()) {
        Some(path) => Ok(path.canonicalize()?),
        None => {
            let list: Vec<_> = places.iter().map(|p| p.display().to_string()).collect();
            bail!(
                "{LIBRARY} not found in {}: build it (cargo build --release -p baltra-icd), or set BALTRA_LIBRARY to its path",
                list.join(", ")
            )
        }
    }
}

/// The loader's file name, which programs are linked with.
const LOADER: &str = "libOpenCL.so.1";

/// A directory with one `.icd` file, which both loaders take as `OCL_ICD_VENDORS`: programs then
/// see the shared devices and no others. The directory also contains Baltra's library under the
/// loader's name (see [`stand_in`]).
pub fn vendors(library: &Path) -> Result<PathBuf> {
    let root = baltra_session::default_runtime_dir();
    let name: String = library
        .to_string_lossy()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
        .to_string();
    let attempt = |root: &Path| -> std::io::Result<PathBuf> {
        baltra_manager::lock::make_directory(root).map_err(std::io::Error::other)?;
        let dir = root.join(format!("vendors-{name}"));
        std::fs::create_dir_all(&dir)?;
        let file = dir.join("baltra.icd");
        let text = format!("{}\n", library.display());
        if std::fs::read_to_string(&file).ok().as_deref() != Some(&text) {
            let fresh = dir.join(format!(".{}", std::process::id()));
            std::fs::write(&fresh, text)?;
            std::fs::rename(&fresh, &file)?;
        }
        let link = dir.join(LOADER);
        if std::fs::read_link(&link).ok().as_deref() != Some(library) {
            let fresh = dir.join(format!(".{}.so", std::process::id()));
            std::os::unix::fs::symlink(library, &fresh)?;
            std::fs::rename(&fresh, &link)?;
        }
        Ok(dir)
    };
    let user = rustix::process::getuid().as_raw();
    attempt(&root)
        .or_else(|_| attempt(&std::env::temp_dir().join(format!("baltra-{user}"))))
        .context("cannot create a directory for the ICD loader")
}

/// `LD_LIBRARY_PATH` with `vendors` in front, so that Baltra's library replaces the loader; `None`
/// if the loader that a program would use is known to honor `OCL_ICD_VENDORS`. Debian's loader
/// (ocl-icd) and Khronos' loader honor it; older ones lack the variable, and CUDA 13's loader
/// contains its name but ignores it.
pub fn stand_in(vendors: &Path) -> Option<OsString> {
    let path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let mut installed = std::env::split_paths(&path)
        .filter(|dir| !dir.as_os_str().is_empty())
        .map(|dir| dir.join(LOADER))
        .filter(|file| file.is_file());
    let obeys = match installed.next().or_else(cached) {
        Some(loader) => std::fs::read(loader).is_ok_and(|bytes| is_known(&bytes)),
        None => false,
    };
    if obeys {
        return None;
    }
    let dirs = std::env::split_paths(&path).filter(|dir| !dir.as_os_str().is_empty());
    std::env::join_paths(std::iter::once(vendors.to_owned()).chain(dirs)).ok()
}

/// Each of these two loaders also contains another variable's name.
fn is_known(loader: &[u8]) -> bool {
    let names = |name: &str| loader.windows(name.len()).any(|b| b == name.as_bytes());
    names("OCL_ICD_VENDORS") && (names("OCL_ICD_PLATFORM_SORT") || names("OCL_ICD_ENABLE_TRACE"))
}

/// The path of the loader in the linker's cache.
fn cached() -> Option<PathBuf> {
    let list = ["ldconfig", "/sbin/ldconfig", "/usr/sbin/ldconfig"]
        .iter()
        .find_map(|tool| Command::new(tool).arg("-p").output().ok())?;
    let list = String::from_utf8_lossy(&list.stdout);
    let line = list
        .lines()
        .find(|line| line.trim_start().starts_with(LOADER))?;
    let (_, path) = line.split_once("=> ")?;
    Some(PathBuf::from(path.trim()))
}
