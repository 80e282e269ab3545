//! A supervised program.

use crate::exit::Exit;
use anyhow::Result;
use rustix::process::{kill_process, Pid, Signal};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};
use tokio::signal::unix::{signal, Signal as Stream, SignalKind};
use tokio::task::JoinHandle;

/// The exit code in a shell's convention: the code, or 128 plus the signal's number.
pub fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().or(status.signal().map(|s| 128 + s));
    ExitCode::from(code.unwrap_or(1) as u8)
}

/// The exit code in a shell's convention: not found, or not executable.
pub fn start_code(error: &std::io::Error) -> ExitCode {
    ExitCode::from(match error.kind() {
        std::io::ErrorKind::NotFound => Exit::NotFound,
        _ => Exit::NotExecutable,
    })
}

/// Whether the program was ended by a signal that asks for its end, so that it is not restarted.
pub fn is_stopped(status: ExitStatus) -> bool {
    matches!(status.signal(), Some(2 | 15))
}

/// Signals received while waiting.
pub struct Signals {
    interrupt: Stream,
    terminate: Stream,
}

impl Signals {
    /// Installs handlers, so that the signals no longer end this process.
    pub fn new() -> Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The next signal for the program. The terminal sends its interrupts to the program itself.
    pub async fn next(&mut self) -> Signal {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => return Signal::TERM,
            }
        }
    }

    /// Waits for any of the signals.
    pub async fn any(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// A running program.
pub struct Program {
    pid: Pid,
    ended: JoinHandle<std::io::Result<ExitStatus>>,
}

impl Program {
    /// Starts it.
    pub fn start(mut command: Command) -> std::io::Result<Program> {
        let mut child = command.spawn()?;
        Ok(Program {
            pid: Pid::from_child(&child),
            ended: tokio::task::spawn_blocking(move || child.wait()),
        })
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let _ = kill_process(self.pid, signal);
    }

    /// Waits for its end. May be called again after a cancelled wait.
    pub async fn end(&mut self) -> Result<ExitStatus> {
        Ok((&mut self.ended).await??)
    }
}
