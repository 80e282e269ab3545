//! The programs that the synthesis starts.

use anyhow::{anyhow, bail, Result};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};

/// Debian's packages of the programs.
pub const PACKAGES: &str = "clang-16 llvm-16 g++ verilator";
/// LLVM's message when an allocation fails.
const NO_MEMORY: &str = "LLVM ERROR: out of memory";
/// LLVM's line before its own state, which is of no use to the author of the source.
const CRASH: &str = "PLEASE submit a bug report";

/// The messages of a program that has failed, with the reason if a signal has ended it or its memory
/// was exhausted.
pub fn failure(name: &str, status: ExitStatus, messages: &str) -> String {
    let shown = messages.split(CRASH).next().unwrap_or_default();
    let reason = if messages.contains(NO_MEMORY) {
        "has exhausted its memory: the source expands to too much".to_owned()
    } else {
        match status.signal() {
            Some(signal::XCPU) => "has exceeded its limit of processor time".to_owned(),
            Some(signal::SEGV) => {
                "has crashed (signal 11): the source may be nested too deeply".to_owned()
            }
            Some(signal) => format!("was ended by signal {signal}"),
            None if shown.is_empty() => format!("has failed ({status})"),
            None => return shown.to_owned(),
        }
    };
    format!("{shown}error: {name} {reason}\n")
}

/// Why a program has not started, with the remedy.
pub fn not_started(name: &str, error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => format!(
            "{name} is not installed (Debian: 'apt install {PACKAGES}'; in a source tree: 'scripts/setup.sh board')"
        ),
        _ => format!("cannot run {name}: {error}"),
    }
}

/// Runs a program without input; returns its output.
pub fn run(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let done = output.map_err(|error| anyhow!(not_started(&name, &error)))?;
    let text = String::from_utf8_lossy(&done.stdout);
    if !done.status.success() {
        let messages = format!("{text}{}", String::from_utf8_lossy(&done.stderr));
        let text = failure(&name, done.status, &messages);
        bail!("{}", text.trim_start_matches("error: ").trim_end());
    }
    Ok(text.into_owned())
}

/// Numbers of signals on Linux.
mod signal {
    pub const SEGV: i32 = 11;
    pub const XCPU: i32 = 24;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_follow_the_messages() {
        let status = ExitStatus::from_raw;
        assert_eq!(
            failure("clang", status(1 << 8), "a.cl:1: x\n"),
            "a.cl:1: x\n"
        );
        let crash = format!("{NO_MEMORY}\n{CRASH} to https://x\nStack dump:\n");
        let text = failure("clang", status(1 << 8), &crash);
        assert!(
            text.contains("exhausted its memory") && !text.contains("Stack"),
            "{text}"
        );
        for (raw, reason) in [(24, "processor time"), (9, "signal 9"), (11, "deeply")] {
            let text = failure("clang", status(raw), "");
            assert!(
                text.starts_with("error: clang ") && text.contains(reason),
                "{text}"
            );
        }
        assert!(failure("clang", status(1 << 8), "").contains("exit status: 1"));
    }
}
