//! Link arguments of the shared library.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Our own clXxx calls must reach our own functions even where the process also holds an ICD
    // loader that exports the same names.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libbaltra_opencl.so");
}
