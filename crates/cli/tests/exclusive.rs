//! Tests of a device that holds one image at a time, from its clients' side; PoCL replaces an FPGA.

#[path = "common/program.rs"]
mod program;

use baltra_testkit::{until, Daemon, Options};
use baltra_wire::Reply;
use program::{source, Tenant, NOT_AVAILABLE};

const BALTRA: &str = env!("CARGO_BIN_EXE_baltra");

const CONFIG: &str = "\
[[device]]
name = 'maker'
select = '0'
[[device]]
name = 'fpga0'
select = '1'
image = 'exclusive'
";

fn prints(daemon: &Daemon, command: &[&str], what: &str) -> bool {
    daemon.text(command).unwrap().contains(what)
}

fn reconfigured(daemon: &Daemon, times: usize) -> bool {
    let count = format!("\"reconfigurations\": {times}");
    prints(daemon, &["devices", "--json"], &count)
}

fn daemon() -> Daemon {
    let options = Options {
        config: CONFIG.into(),
        ..Options::default()
    };
    let daemon = Daemon::start_with(BALTRA, &options).unwrap();
    for tenant in ["red", "blue"] {
        daemon.text(&["tenant", "add", tenant]).unwrap();
    }
    daemon
}

#[test]
fn an_exclusive_device_changes_its_image_when_nobody_uses_it() {
    let daemon = daemon();
    let maker = Tenant::new(&daemon, "red", "maker");
    let (one, other) = (maker.binary(&source("one")), maker.binary(&source("other")));
    assert!(reconfigured(&daemon, 0));
    let red = Tenant::new(&daemon, "red", "fpga0");
    let (reds, made) = red.binary_program(&one);
    assert_eq!(made, Reply::Binaries(vec![0]));
    assert!(reconfigured(&daemon, 1));

    // The second tenant's program finds its image loaded, and the store has one copy.
    let blue = Tenant::new(&daemon, "blue", "fpga0");
    let (blues, made) = blue.binary_program(&one);
    assert_eq!(made, Reply::Binaries(vec![0]));
    let Reply::Built {
        code: 0, kernels, ..
    } = blue.build(blues)
    else {
        panic!("it is not built");
    };
    assert_eq!(kernels[0].name, "one");
    assert!(reconfigured(&daemon, 1));
    let kept = daemon.text(&["accelerator", "ls", "--json"]).unwrap();
    assert_eq!(kept.matches("\"digest\"").count(), 1, "{kept}");
    assert!(kept.contains("\"one\""), "{kept}");
    let digest = kept.split("\"digest\": \"").nth(1).unwrap();
    assert!(prints(&daemon, &["devices"], &digest[..12]));

    // Another image has to wait until both tenants have released theirs.
    let (_, made) = blue.binary_program(&other);
    assert_eq!(made, Reply::Error(NOT_AVAILABLE));
    until("the reason arrives", || {
        blue.messages().contains("tenant red")
    })
    .unwrap();
    assert!(!blue.messages().contains("blue"), "{}", blue.messages());
    assert!(reconfigured(&daemon, 1));
    red.client.release(reds, None).unwrap();
    blue.client.release(blues, None).unwrap();
    until("the other image is loaded", || {
        blue.binary_program(&other).1 == Reply::Binaries(vec![0])
    })
    .unwrap();
    assert!(reconfigured(&daemon, 2));
    let kept = daemon.text(&["accelerator", "ls", "--json"]).unwrap();
    assert_eq!(kept.matches("\"digest\"").count(), 2, "{kept}");

    // A session that ends releases its image. An operator cannot replace the image that blue uses.
    let load = ["accelerator", "load", &digest[..12], "--device", "fpga0"];
    let refused = daemon.text(&load).unwrap_err().to_string();
    assert!(refused.contains("blue"), "{refused}");
    drop(blue);
    until("the operator's image is loaded", || {
        daemon.text(&load).is_ok()
    })
    .unwrap();
    assert!(reconfigured(&daemon, 3));
    assert!(prints(&daemon, &load, "held already"));
    let held = ["accelerator", "rm", &digest[..12]];
    let kept = daemon.text(&held).unwrap_err().to_string();
    assert!(kept.contains("fpga0"), "{kept}");
}

#[test]
fn a_refused_build_says_why_and_its_kernels_do_not_run() {
    let daemon = daemon();
    let red = Tenant::new(&daemon, "red", "fpga0");
    let (_, built) = red.source_program(&source("one"));
    assert!(matches!(built, Reply::Built { code: 0, .. }), "{built:?}");
    let blue = Tenant::new(&daemon, "blue", "fpga0");
    let (refused, built) = blue.source_program(&source("other"));
    let Reply::Built {
        code,
        devices,
        kernels,
    } = built
    else {
        panic!("{built:?}");
    };
    assert_eq!(code, NOT_AVAILABLE);
    let log = String::from_utf8_lossy(&devices[0].3).into_owned();
    assert!(log.contains("tenant red"), "{log}");
    assert!(kernels.is_empty());
    drop(red);
    until("the build is not refused any more", || {
        matches!(blue.build(refused), Reply::Built { code: 0, .. })
    })
    .unwrap();
    assert!(reconfigured(&daemon, 2));
}

#[test]
fn without_a_manager_the_image_that_is_there_is_the_only_one() {
    let mut daemon = daemon();
    let maker = Tenant::new(&daemon, "red", "maker");
    let (one, other) = (maker.binary(&source("one")), maker.binary(&source("other")));
    let red = Tenant::new(&daemon, "red", "fpga0");
    assert_eq!(red.binary_program(&one).1, Reply::Binaries(vec![0]));
    daemon.kill().unwrap();
    assert_eq!(red.binary_program(&one).1, Reply::Binaries(vec![0]));
    assert_eq!(red.binary_program(&other).1, Reply::Error(NOT_AVAILABLE));
    // A restarted manager reads which images are in use, and rejects conflicting loads.
    let options = Options {
        config: CONFIG.into(),
        ..Options::default()
    };
    let daemon = daemon.restart(&options).unwrap();
    until("the image is known again", || {
        !prints(&daemon, &["devices"], "blank")
    })
    .unwrap();
    let blue = Tenant::new(&daemon, "blue", "fpga0");
    until("the image in use stays", || {
        blue.binary_program(&other).1 == Reply::Error(NOT_AVAILABLE)
    })
    .unwrap();
    assert_eq!(blue.binary_program(&one).1, Reply::Binaries(vec![0]));
    assert!(reconfigured(&daemon, 0));
}
