//! The library's own scenarios (`crates/icd/tests`), compared with the driver's answers.

use baltra_tests::{built, daemon, root, Running};
use std::process::Command;
use std::time::Duration;

#[test]
fn test_what_the_library_answers_is_what_the_driver_answers() {
    let daemon = daemon();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .current_dir(root())
        // The same selection of packages as for the unit tests, to reuse their build.
        .args(["test", "--release", "--locked", "--workspace"])
        .args(["--no-fail-fast", "--exclude", "baltra-tests"])
        .args([
            "--test", "programs", "--test", "images", "--test", "svm", "--test", "edges",
        ])
        .args(["--", "--nocapture", "--test-threads=1"])
        .env("BALTRA_TEST_LIBRARY", built("libbaltra_opencl.so"))
        .env("BALTRA_ENDPOINT", daemon.endpoint());
    // The test may have to be compiled first.
    let patience = Duration::from_secs(900);
    let answer = Running::start(command).finish_within(patience).ok();
    assert!(!answer.err.contains("ran alone"), "{}", answer.err);
    assert!(!answer.err.contains("nothing to compare"), "{}", answer.err);
}
