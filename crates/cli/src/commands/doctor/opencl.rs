//! Checks of Baltra's OpenCL library and the ICD loader.

use super::Finding;
use crate::commands::accelerator::compilers;
use crate::commands::library;
use std::path::{Path, PathBuf};

/// Directories of ICD loaders.
const LIBRARY_DIRS: [&str; 7] = [
    "/usr/local/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
];

/// All findings about OpenCL for programs.
pub fn findings() -> Vec<Finding> {
    vec![own_library(), loader(), hardware_compiler()]
}

/// Emulated accelerators and boards need it; other devices do not.
fn hardware_compiler() -> Finding {
    const WHAT: &str = "OpenCL C to hardware";
    Finding::good(
        WHAT,
        match compilers() {
            Ok(()) => "its compilers are installed".to_owned(),
            Err(error) => format!("{error:#}"),
        },
    )
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

/// Identifies the loader by its contents.
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
        () => return Finding::weak(
            WHAT,
            format!("{}: unknown loader", path.display()),
            "it may ignore OCL_ICD_VENDORS, which baltra run sets: apt install ocl-icd-libopencl1",
        ),
    };
    Finding::good(WHAT, format!("{} ({kind})", path.display()))
}
