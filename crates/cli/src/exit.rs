//! Exit codes. `scripts/reference.py` writes the comments of the variants into
//! `docs/reference/errors.md`.

use std::process::ExitCode;

/// The end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// The command succeeded.
    Success = 0,
    /// The command failed, a check of `baltra doctor` failed, a drained device has instances or
    /// sessions left, or sessions have kept a device's former driver. Remedy: stderr has the reason
    /// and the remedy.
    Failure = 1,
    /// The command line is invalid. Remedy: stderr names the argument; `--help` lists them.
    Usage = 2,
    /// `baltra run`: the program cannot be executed. Remedy: see its mode and interpreter.
    NotExecutable = 126,
    /// `baltra run`: the program does not exist. Remedy: see its path.
    NotFound = 127,
    /// The user interrupted the command (128 plus the number of SIGINT).
    Interrupted = 130,
    /// The reader of the output is gone, such as in `baltra … | head` (128 plus that of SIGPIPE).
    Unread = 141,
    /// The command was asked to end (128 plus that of SIGTERM).
    Terminated = 143,
}

impl Exit {
    /// Success if a condition holds, otherwise failure.
    pub fn of(is_well: bool) -> Exit {
        if is_well {
            Exit::Success
        } else {
            Exit::Failure
        }
    }

    /// Of a command line that is not a command: invalid, or a request for help or the version.
    pub fn of_usage(error: &clap::Error) -> Exit {
        if error.use_stderr() {
            Exit::Usage
        } else {
            Exit::Success
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}
