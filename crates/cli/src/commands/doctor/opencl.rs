//! Drivers, our library, the ICD loader.

use super::Finding;
use crate::commands::library;
use baltra_manager::drivers;
use std::path::{Path, PathBuf};

/// Where loaders lie.
const LIBRARY_DIRS: [&str; 7] = [
    "/usr/local/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
];

/// All that concerns OpenCL.
pub fn findings() -> Vec<Finding> {
    vec![driver(), own_library(), loader()]
}

fn driver() -> Finding {
    const WHAT: &str = "OpenCL driver";
    let directory = Path::new(drivers::VENDORS);
    let found = drivers::announced(directory);
    if found.is_empty() {
        return Finding::bad(
            WHAT,
            format!("none is announced in {}", directory.display()),
            "install one (Debian, Ubuntu: apt install pocl-opencl-icd), or name its library: baltra up --set device.driver=/path/to/driver.so",
        );
    }
    let names: Vec<_> = found
        .iter()
        .map(|a| a.library.display().to_string())
        .collect();
    let missing = found.iter().find(|a| locate(&a.library).is_none());
    match missing {
        Some(a) => Finding::weak(
            WHAT,
            names.join(", "),
            format!(
                "{} announces {}, which is nowhere to be found: reinstall or remove it",
                a.icd.display(),
                a.library.display()
            ),
        ),
        None => Finding::good(WHAT, names.join(", ")),
    }
}

fn locate(library: &Path) -> Option<PathBuf> {
    if library.is_absolute() {
        return library.exists().then(|| library.to_owned());
    }
    let dirs = LIBRARY_DIRS.iter().map(Path::new);
    dirs.map(|d| d.join(library)).find(|p| p.exists())
}

fn own_library() -> Finding {
    match library::find() {
        Ok(path) => Finding::good("Baltra's library", path.display().to_string()),
        Err(error) => Finding::bad("Baltra's library", "not found", error.to_string()),
    }
}

/// The kind of loader is told by what it has in it.
fn loader() -> Finding {
    const WHAT: &str = "ICD loader";
    let Some(path) = locate(Path::new("libOpenCL.so.1")) else {
        return Finding::weak(
            WHAT,
            "libOpenCL.so.1 is not installed",
            "apt install ocl-icd-libopencl1, or use libbaltra_opencl.so in its place",
        );
    };
    let bytes = std::fs::read(&path).unwrap_or_default();
    let has = |text: &str| bytes.windows(text.len()).any(|w| w == text.as_bytes());
    let kind = match () {
        () if has("OCL_ICD_FILENAMES") => "Khronos",
        () if has("OCL_ICD_VENDORS") => "ocl-icd",
        () => {
            return Finding::weak(
                WHAT,
                format!("{}: of no known kind", path.display()),
                "baltra run sets OCL_ICD_VENDORS, which it may not heed: apt install ocl-icd-libopencl1",
            )
        }
    };
    Finding::good(WHAT, format!("{} ({kind})", path.display()))
}
