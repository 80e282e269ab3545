//! `baltra doctor --bundle`.

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
fn test_a_bundle_has_state_and_logs_without_secrets() {
    let hash = "5".repeat(64);
    let options = Options {
        set: vec!["node.registry_token=spoken-by-the-node".into()],
        config: format!("[[tenant]]\nname = 'red'\ntoken_sha256 = '{hash}'\n"),
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
fn test_without_a_daemon_a_bundle_has_the_errors() {
    let home = tempfile::tempdir().unwrap();
    let archive = home.path().join("report.tar.gz");
    let output = doctor(home.path(), &["--bundle", archive.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let files = files(&archive);
    assert!(files["status.json"].contains("baltra up"), "{files:?}");
    assert!(files["doctor.json"].contains("\"verdict\""), "{files:?}");
}
