//! The units of `deploy/systemd` start existing daemons.

use baltra_tests::{baltra, root};
use std::path::Path;
use std::process::Command;

#[test]
fn units_are_well_formed_and_start_what_there_is() {
    let scratch = tempfile::tempdir().unwrap();
    let installed = "/usr/local/bin/baltra";
    let mut seen = 0;
    for entry in std::fs::read_dir(root().join("deploy/systemd")).unwrap() {
        let path = entry.unwrap().path();
        // Starts the units of the daemons, and no program.
        if path.ends_with("baltra.service") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let start = text.lines().find_map(|l| l.strip_prefix("ExecStart="));
        let words: Vec<_> = start.unwrap().split(' ').collect();
        assert_eq!(words[0], installed);
        let daemon = Command::new(baltra())
            .args([words[1], "--help"])
            .output()
            .unwrap();
        let help = String::from_utf8_lossy(&daemon.stdout);
        assert!(
            daemon.status.success() && help.contains(words[2]),
            "{start:?}"
        );

        let copy = scratch.path().join(path.file_name().unwrap());
        let text = text.replace(installed, baltra().to_str().unwrap());
        std::fs::write(&copy, text).unwrap();
        match Command::new("systemd-analyze")
            // The manual pages are installed by the package.
            .args(["verify", "--man=no"])
            .arg(&copy)
            .output()
        {
            Ok(output) => {
                let stderr = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{}: {stderr}", path.display());
                hardened(&copy);
            }
            Err(error) => eprintln!("passed over: systemd-analyze: {error}"),
        }
        seen += 1;
    }
    assert_eq!(seen, 3);
}

/// Fails if the unit's exposure level, which `systemd-analyze` multiplies by ten, is above 3.
fn hardened(unit: &Path) {
    let output = Command::new("systemd-analyze")
        .args(["security", "--offline=yes", "--threshold=30"])
        .arg(unit)
        .output()
        .unwrap();
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}: {table}", unit.display());
}
