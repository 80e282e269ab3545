//! `baltra demo` and `baltra version`.

mod common;

use common::{text, BALTRA};
use std::path::Path;
use std::process::{Command, Output};

/// Runs the demonstration with a directory for all of its files.
fn demo(home: &Path, arguments: &[&str]) -> Output {
    Command::new(BALTRA)
        .arg("demo")
        .args(arguments)
        .env("TMPDIR", home)
        .env("HOME", home)
        .env_remove("BALTRA_ENDPOINT")
        .output()
        .unwrap()
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).unwrap().next().is_none()
}

/// Whether a process names the directory on its command line.
fn is_used(directory: &Path) -> bool {
    let name = directory.to_str().unwrap();
    std::fs::read_dir("/proc").unwrap().any(|entry| {
        let line = std::fs::read(entry.unwrap().path().join("cmdline")).unwrap_or_default();
        text(&line).contains(name)
    })
}

#[test]
fn the_demonstration_compares_pictures_and_leaves_nothing_behind() {
    let home = tempfile::tempdir().unwrap();
    let kept = tempfile::tempdir().unwrap();
    let picture = kept.path().join("small.png");
    let color = |x: u32, y: u32| image::Rgb([(x * 3) as u8, (y * 5) as u8, (x * y) as u8]);
    let small = image::RgbImage::from_fn(70, 50, color);
    small.save(&picture).unwrap();
    let (picture, out) = (picture.to_str().unwrap(), kept.path().to_str().unwrap());
    let output = demo(home.path(), &["--picture", picture, "--output", out]);
    let (shown, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{shown}{errors}");
    for part in [
        "identical, byte for byte",
        "all four pictures equal",
        "second call",
        "kernel sobel: II 1",
        "the picture equals the native one",
        "nothing is left running",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    for tenant in ["ada", "bea", "cleo", "dora"] {
        assert!(shown.contains(&format!("\n{tenant} ")), "{shown}");
    }
    assert!(is_empty(home.path()));
    assert!(!is_used(home.path()));
    let open = |name: &str| image::open(kept.path().join(name)).unwrap().into_rgb8();
    assert_eq!(open("photo.png"), small);
    let edges = open("baltra.png");
    assert_eq!(edges, open("native.png"));
    // The red edges of this picture: 3 steps per column, 4 weights, 2 columns.
    assert_eq!(edges.get_pixel(10, 10).0[0], 24);
}

#[test]
fn a_host_without_a_driver_gets_the_remedy() {
    let home = tempfile::tempdir().unwrap();
    let vendors = tempfile::tempdir().unwrap();
    let set = format!("paths.vendors={}", vendors.path().display());
    let output = demo(home.path(), &["--set", &set]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(
        errors.contains("no OpenCL driver is registered"),
        "{errors}"
    );
    assert!(errors.contains("apt install pocl-opencl-icd"), "{errors}");
    assert!(is_empty(home.path()));
    assert!(!is_used(home.path()));
}

#[test]
fn the_version_names_release_and_protocols() {
    let json = Command::new(BALTRA).args(["version", "--json"]).output();
    let json: serde_json::Value = serde_json::from_slice(&json.unwrap().stdout).unwrap();
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        json["protocols"]["session"],
        baltra_wire::VERSION.to_string()
    );
    assert!(json["commit"].is_null() || json["commit"].is_string());
    let plain = Command::new(BALTRA).arg("version").output().unwrap();
    assert!(text(&plain.stdout).contains(env!("CARGO_PKG_VERSION")));
}
