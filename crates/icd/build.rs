//! Link arguments of the shared library.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Our own clXxx calls must reach our own functions even where the process also holds an ICD
    // loader that exports the same names.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libbaltra_opencl.so");
    // The unwinder comes along: the library is mounted into images that may have nothing but libc.
    if let Some(folder) = unwinder() {
        println!("cargo:rustc-link-search=native={}", folder.display());
        println!("cargo:rustc-link-lib=static:+whole-archive=gcc_eh");
    }
}

/// The folder of the compiler's libgcc_eh.a; none: it has none, and libgcc_s is needed where the library is used.
fn unwinder() -> Option<PathBuf> {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let output = Command::new(compiler)
        .arg("-print-file-name=libgcc_eh.a")
        .output()
        .ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    path.is_absolute()
        .then(|| path.parent().map(Path::to_owned))?
}
