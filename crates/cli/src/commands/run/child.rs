//! A program that somebody waits for.

use anyhow::Result;
use rustix::process::{kill_process, Pid, Signal};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};
use tokio::signal::unix::{signal, Signal as Stream, SignalKind};
use tokio::task::JoinHandle;

/// As a shell says it: the code, or 128 and the signal's number.
pub fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().or(status.signal().map(|s| 128 + s));
    ExitCode::from(code.unwrap_or(1) as u8)
}

/// As a shell says it: not there, or not to be run.
pub fn start_code(error: &std::io::Error) -> ExitCode {
    ExitCode::from(match error.kind() {
        std::io::ErrorKind::NotFound => 127,
        _ => 126,
    })
}

/// Whether whoever stopped the program wants it stopped.
pub fn is_stopped(status: ExitStatus) -> bool {
    matches!(status.signal(), Some(2 | 15))
}

/// What comes for whoever waits.
pub struct Signals {
    interrupt: Stream,
    terminate: Stream,
}

impl Signals {
    /// From now on they end nobody by themselves.
    pub fn new() -> Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The next that the program is to be told. The terminal's interrupts it has heard already.
    pub async fn next(&mut self) -> Signal {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => return Signal::TERM,
            }
        }
    }

    /// Either of them.
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

    /// Tells it something.
    pub fn signal(&self, signal: Signal) {
        let _ = kill_process(self.pid, signal);
    }

    /// Its end. May be asked again when it was not waited for to the end.
    pub async fn end(&mut self) -> Result<ExitStatus> {
        Ok((&mut self.ended).await??)
    }
}
