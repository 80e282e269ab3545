//! The library's own scenarios (`crates/icd/tests`), compared with the driver's answers.

use baltra_testkit::{Daemon, Options};
use baltra_tests::{baltra, built, daemon, root, Mover, Running};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The test programs that run each scenario on the driver, too.
const PROGRAMS: [&str; 4] = ["programs", "images", "svm", "edges"];

/// The library's test programs: those of the build that `BALTRA_TEST_MESSAGES` describes in cargo's
/// JSON, or else of a build of their own.
fn programs() -> Vec<PathBuf> {
    let messages = match std::env::var_os("BALTRA_TEST_MESSAGES") {
        Some(path) => std::fs::read_to_string(path).unwrap(),
        None => {
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let mut command = Command::new(cargo);
            command.current_dir(root()).args(["test", "--locked"]);
            command.args(["-p", "baltra-icd", "--no-run", "--message-format=json"]);
            let patience = Duration::from_secs(900);
            Running::start(command).finish_within(patience).ok().out
        }
    };
    let messages = messages.lines().filter(|line| line.starts_with('{'));
    let program = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).unwrap();
        let manifest = message["manifest_path"].as_str()?;
        let name = message["target"]["name"].as_str()?;
        let wanted = message["profile"]["test"] == true
            && manifest.ends_with("crates/icd/Cargo.toml")
            && PROGRAMS.contains(&name);
        wanted.then(|| message["executable"].as_str().map(PathBuf::from))?
    };
    messages.filter_map(program).collect()
}

/// Runs one of the programs on the daemon's devices; returns how many of its tests were skipped.
fn compare(daemon: &Daemon, program: &Path, pool: &str, skipped: &[&str]) -> u32 {
    let mut command = Command::new(program);
    command
        .current_dir(root().join("crates/icd"))
        .args(["--nocapture", "--test-threads=1"])
        .args(skipped.iter().flat_map(|name| ["--skip", name]))
        .env("BALTRA_TEST_LIBRARY", built("libbaltra_opencl.so"))
        .env("BALTRA_ENDPOINT", daemon.endpoint())
        .env("BALTRA_POOL", pool);
    let patience = Duration::from_secs(300);
    let answer = Running::start(command).finish_within(patience).ok();
    assert!(!answer.err.contains("ran alone"), "{}", answer.err);
    assert!(!answer.err.contains("nothing to compare"), "{}", answer.err);
    let count = |line: &str| line.split("; ").nth(4)?.split(' ').next()?.parse().ok();
    let counts = answer.out.lines().rev().find_map(count);
    counts.expect("the runner's last line")
}

#[test]
fn what_the_library_answers_is_what_the_driver_answers() {
    let daemon = daemon();
    let programs = programs();
    assert_eq!(programs.len(), PROGRAMS.len(), "{programs:?}");
    for program in programs {
        compare(&daemon, &program, "", &[]);
    }
}

fn is_of_svm(program: &Path) -> bool {
    program
        .file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with("svm"))
}

/// Shared virtual memory does not move; the sessions of the other programs do, several times.
#[test]
fn the_answers_are_the_same_while_sessions_move_all_the_time() {
    const MOVES: usize = 3;
    let options = Options {
        // Contents in the program's own memory would stay where they are.
        config: ["a'\nselect = '0'", "b'\nselect = '1'"]
            .map(|device| format!("[[device]]\nhost_memory = false\nname = '{device}\n"))
            .concat(),
        ..Options::default()
    };
    let daemon = Daemon::start_with(baltra(), &options).unwrap();
    let mover = Mover::start(&daemon);
    // A kernel may end within a session's stop, so that nobody sees it run.
    let polls = ["one_who_polls_"];
    let skipped = programs().into_iter().map(|program| {
        let before = mover.moves();
        let skipped = compare(&daemon, &program, "", &polls);
        while !is_of_svm(&program) && mover.moves() < before + MOVES {
            compare(&daemon, &program, "", &polls);
        }
        skipped
    });
    assert_eq!(skipped.sum::<u32>(), 1, "{polls:?} names one test");
}

/// Two devices as one answer as one of them, except for shared virtual memory, which a pool lacks.
#[test]
fn a_pool_answers_as_its_devices_do() {
    let options = Options {
        config: "[[device]]\nname = 'a'\nselect = '0'\n[[device]]\nname = 'b'\nselect = '1'\n"
            .into(),
        ..Options::default()
    };
    let daemon = Daemon::start_with(baltra(), &options).unwrap();
    let svm = ["pointers_that_"];
    let others: Vec<_> = programs().into_iter().filter(|p| !is_of_svm(p)).collect();
    let skipped = others.iter().map(|p| compare(&daemon, p, "2", &svm));
    assert_eq!(skipped.sum::<u32>(), 1, "{svm:?} names one test");
}
