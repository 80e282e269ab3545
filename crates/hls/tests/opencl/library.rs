//! The library's functions on floats: compiled for this processor, so that many arguments take
//! little time. The kernels' tests compare some of them in simulation.

use super::launch::must;
use std::path::Path;
use std::process::Command;

/// Whether the functions are within OpenCL's bounds, compiled with this option.
fn check(option: &[&str]) {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tests = crate_folder.join("tests/opencl");
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("library.o");
    let program = folder.path().join("library");
    must(
        Command::new("clang-16")
            .args(["-x", "cl", "-cl-std=CL1.2"])
            .args(option)
            .args(["-O1", "-ffp-contract=off", "-Xclang", "-fno-builtin", "-I"])
            .arg(crate_folder.join("opencl"))
            .args(["-include", "baltra_builtins.h"])
            .args(["-include", "baltra_rounding.h", "-include", "baltra_half.h"])
            .arg("-c")
            .arg(tests.join("library.cl"))
            .arg("-o")
            .arg(&library),
    );
    must(
        Command::new("clang-16")
            .args(["-O1", "-w"])
            .arg(tests.join("library.c"))
            .arg(&library)
            .args(["-lm", "-o"])
            .arg(&program),
    );
    must(&mut Command::new(&program));
}

#[test]
fn functions_are_within_their_bounds() {
    check(&[]);
    // Constants of the library stay doubles.
    check(&["-cl-single-precision-constant"]);
}
