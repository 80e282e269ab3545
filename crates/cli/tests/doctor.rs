//! `baltra doctor`: archives for reports, and hosts that lack something.

use baltra_testkit::{Daemon, Options};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output};

const BALTRA: &str = env!("CARGO_BIN_EXE_baltra");

fn doctor(runtime: &Path, arguments: &[&str]) -> Output {
    Command::new(BALTRA)
        .arg("doctor")
        .args(arguments)
        .arg("--runtime-dir")
        .arg(runtime)
        .env_remove("BALTRA_ENDPOINT")
        .output()
        .unwrap()
}

/// The archive's files.
fn files(archive: &Path) -> BTreeMap<String, String> {
    let file = std::fs::File::open(archive).unwrap();
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(file));
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        let path = entry.path().unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, text)
    });
    entries.collect()
}

#[test]
fn a_bundle_has_state_and_logs_without_secrets() {
    let hash = "5".repeat(64);
    let options = Options {
        set: vec!["node.registry_token=spoken-by-the-node".into()],
        config: format!("[[tenant]]\nname = 'red'\ntoken_sha256 = '{hash}'\n"),
        ..Options::default()
    };
    let daemon = Daemon::start_with(BALTRA, &options).unwrap();
    let home = tempfile::tempdir().unwrap();
    let archive = home.path().join("report.tar.gz");
    let path = archive.to_str().unwrap();
    let output = doctor(&daemon.runtime_dir(), &["--bundle", path]);
    assert!(output.status.success(), "{output:?}");
    let files = files(&archive);
    for (name, text) in [
        ("version.json", "\"protocols\""),
        ("doctor.json", "\"verdict\""),
        ("status.json", "\"ready\": true"),
        ("devices.json", "\"device0\""),
        ("tenants.json", "\"red\""),
        ("manager.command", "node.registry_token=[removed]"),
        ("manager.toml", "token_sha256 = [removed]"),
        ("system.txt", "MemTotal"),
    ] {
        let found = files.get(name).map(String::as_str).unwrap_or_default();
        assert!(found.contains(text), "{name}: {found}");
    }
    let whole = files.into_values().collect::<String>();
    for secret in ["spoken-by-the-node", &hash] {
        assert!(!whole.contains(secret), "{secret}");
    }
    let again = doctor(&daemon.runtime_dir(), &["--bundle", path]);
    assert_eq!(again.status.code(), Some(1), "an existing file is kept");
}

#[test]
fn without_a_daemon_a_bundle_has_the_errors() {
    let home = tempfile::tempdir().unwrap();
    let archive = home.path().join("report.tar.gz");
    let output = doctor(home.path(), &["--bundle", archive.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let files = files(&archive);
    assert!(files["status.json"].contains("baltra up"), "{files:?}");
    assert!(files["doctor.json"].contains("\"verdict\""), "{files:?}");
}

/// A program that starts another one on a kernel without `memfd_create`.
fn old_kernel(home: &Path) -> std::path::PathBuf {
    let program = home.join("old_kernel");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common/old_kernel.c");
    let made = Command::new("cc")
        .arg("-o")
        .args([&program, &source])
        .status();
    assert!(made.unwrap().success());
    program
}

#[test]
fn an_unsupported_kernel_is_named_with_the_remedy() {
    let home = tempfile::tempdir().unwrap();
    let old = old_kernel(home.path());
    let run = |arguments: &[&str]| {
        Command::new(&old)
            .arg(BALTRA)
            .args(arguments)
            .env("BALTRA_RUNTIME_DIR", home.path().join("run"))
            .env_remove("BALTRA_ENDPOINT")
            .output()
            .unwrap()
    };
    let doctor = run(&["doctor", "--json"]);
    assert_eq!(doctor.status.code(), Some(1), "{doctor:?}");
    let findings: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let mut findings = findings.as_array().unwrap().iter();
    let finding = findings.find(|f| f["what"] == "sealed memfd").unwrap();
    assert_eq!(finding["verdict"], "bad", "{finding}");
    assert!(finding["mend"].as_str().unwrap().contains("Linux 3.17"));
    // A program is refused with the system call, and leaves no daemon.
    let shared = run(&["run", "--standalone", "--", "true"]);
    let error = String::from_utf8_lossy(&shared.stderr);
    assert!(!shared.status.success(), "{error}");
    assert!(
        error.contains("memfd_create") && error.contains("baltra doctor"),
        "{error}"
    );
}

#[test]
fn missing_compilers_of_hardware_are_named_with_their_packages() {
    let home = tempfile::tempdir().unwrap();
    let doctor = Command::new(BALTRA)
        .args(["doctor", "--json"])
        .env("PATH", home.path())
        .env("BALTRA_RUNTIME_DIR", home.path().join("run"))
        .output()
        .unwrap();
    let findings: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let mut findings = findings.as_array().unwrap().iter();
    let finding = findings.find(|f| f["what"] == "OpenCL C to hardware");
    let finding = finding.unwrap();
    // Other devices need no compiler.
    assert_eq!(finding["verdict"], "good", "{finding}");
    let found = finding["found"].as_str().unwrap();
    assert!(found.contains("clang-16, clang++-16"), "{found}");
    assert!(found.contains("apt install clang-16"), "{found}");
}
