//! The keeper of a suspended session: a process without a driver that has the session's descriptors
//! and the contents of its objects in a file, until the session continues in an executor.
//!
//! To an executor, the keeper is the other end of a move ([`baltra_wire::moves`]): a session moves to
//! its keeper when it is suspended, and from there when it is resumed, with the same rules. It is
//! never in two places, and a failure leaves it where it was. The client's commands wait in its
//! segment, which no process reads meanwhile.
//!
//! The file has no name, so that it ends with the keeper. The executor at the other end runs a tenant's
//! kernels and is not trusted.

mod sending;
mod storage;
mod storing;

use crate::session::moving::link::Cost;
use anyhow::Context as _;
use baltra_channel::{Channel, Manager};
use baltra_ring::lease::monotonic_ns;
use baltra_wire::executor::{SessionFacts, SessionStart, ToExecutor, ToManager};
use baltra_wire::moves::ToSource;
use rustix::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::PathBuf;
use storing::Stored;

/// Options of a keeper.
#[derive(Clone, Debug)]
pub struct Options {
    /// The control socket, inherited.
    pub control_fd: RawFd,
    /// The device's name in the manager's configuration.
    pub name: String,
    /// Maximum bytes of its file.
    pub bytes_max: u64,
    /// Whether to drop privileges.
    pub sandbox: bool,
    /// Socket for reconnecting to a new manager after the manager has exited.
    pub adopt: Option<PathBuf>,
}

/// Runs the keeper until its session has ended or continues elsewhere.
pub fn run(options: Options) -> anyhow::Result<()> {
    // A write beyond the process's limit of file sizes is an error, not a signal.
    // SAFETY: a disposition without a handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let channel = crate::process::take_channel(options.control_fd);
    let channel = channel.context("invalid control descriptor")?;
    if options.sandbox {
        baltra_sandbox::Sandbox::default().enter()?;
        baltra_sandbox::worker::enter(true)?;
    }
    let mut keeper = Keeper {
        name: options.name,
        bytes_max: options.bytes_max,
        manager: Manager::new(channel, options.adopt),
        kept: None,
    };
    while !keeper.step()? {}
    Ok(())
}

/// A session that is stored.
struct Kept {
    start: SessionStart,
    stored: Stored,
    /// The connection to the source, which has not been answered yet.
    source: Option<Channel>,
}

struct Keeper {
    /// The device's name in the manager's configuration.
    name: String,
    bytes_max: u64,
    manager: Manager,
    kept: Option<Kept>,
}

impl Keeper {
    /// Waits for the next event and handles it; true: nothing is left to do.
    fn step(&mut self) -> anyhow::Result<bool> {
        // Until it is decided, the source watches the client.
        let kept = self.kept.as_ref().filter(|kept| kept.source.is_none());
        let client = kept.map(|kept| kept.stored.socket.as_fd());
        let found = self.manager.wait(client)?;
        if found.client_gone {
            return Ok(self.end("the client disconnected"));
        }
        if found.message {
            return Ok(self.receive());
        }
        if !self.manager.is_there() {
            let is_decided = self.kept.as_ref().is_some_and(|kept| kept.source.is_none());
            if !is_decided {
                // The source continues the session.
                return Ok(true);
            }
            self.call_manager();
        }
        Ok(false)
    }

    /// Ends the session, whose client sees the end of its connection, unless its source continues it.
    fn end(&mut self, reason: &str) -> bool {
        let kept = self.kept.take();
        if let Some(kept) = kept.filter(|kept| kept.source.is_none()) {
            // It may be gone already.
            let _ = rustix::net::shutdown(&kept.stored.socket, Shutdown::Both);
            let (session, reason) = (kept.start.session, reason.to_owned());
            self.manager
                .send(&ToManager::SessionEnded { session, reason });
        }
        true
    }

    /// Carries out the manager's next message; true: nothing is left to do.
    fn receive(&mut self) -> bool {
        let Some((message, fds)) = self.manager.receive() else {
            return false;
        };
        match message {
            ToExecutor::MoveIn(start) if self.kept.is_none() => self.move_in(start, fds),
            ToExecutor::MoveGo { session } if self.has(session) => self.go(),
            // The source continues the session, unless it is suspended already.
            ToExecutor::MoveDrop { .. } => {
                self.kept.as_ref().is_none_or(|kept| kept.source.is_some())
            }
            ToExecutor::MoveOut { session, .. } if self.has(session) => self.move_out(fds),
            ToExecutor::Describe { call } => {
                self.describe(call);
                false
            }
            ToExecutor::AskFacts { call, session } => {
                let kept = self.kept.as_ref().filter(|_| self.has(session));
                let facts = kept.and_then(|kept| kept.stored.facts);
                self.manager.send(&ToManager::FactsRead { call, facts });
                false
            }
            ToExecutor::End { session, reason } if self.has(session) => self.end(&reason),
            ToExecutor::Exit => self.end("the manager is shutting down"),
            _ => false,
        }
    }

    fn has(&self, session: u64) -> bool {
        self.kept
            .as_ref()
            .is_some_and(|kept| kept.start.session == session)
    }

    fn failed(&mut self, session: u64, reason: String) {
        self.manager
            .send(&ToManager::MoveFailed { session, reason });
    }

    /// Stores a session that its executor sends.
    fn move_in(&mut self, start: SessionStart, fds: Vec<OwnedFd>) -> bool {
        let session = start.session;
        let Ok([source, file]) = <[OwnedFd; 2]>::try_from(fds) else {
            self.failed(session, "the manager sent no file".into());
            return true;
        };
        let source = Channel::new(source);
        match storing::store(&source, file.into(), self.bytes_max) {
            Ok(stored) => {
                self.kept = Some(Kept {
                    start,
                    stored,
                    source: Some(source),
                });
                self.manager.send(&ToManager::MoveBuilt { session });
                false
            }
            Err(reason) => {
                self.failed(session, reason);
                true
            }
        }
    }

    /// The session is suspended from now on, unless its source has changed its mind.
    fn go(&mut self) -> bool {
        let Some(kept) = &mut self.kept else {
            return true;
        };
        let session = kept.start.session;
        let Some(source) = kept.source.take() else {
            return false;
        };
        // The report decides; if it cannot be sent, the source continues the session.
        if source.send(&ToSource::Started, &[]).is_err() {
            self.failed(
                session,
                "its executor has ended, or changed its mind".into(),
            );
            return true;
        }
        let stopped_ns = monotonic_ns().saturating_sub(kept.stored.stopped_ns);
        let Cost {
            bytes,
            stopped_objects,
        } = kept.stored.cost;
        self.manager.send(&ToManager::MoveStarted {
            session,
            stopped_us: stopped_ns / 1000,
            bytes,
            stopped_objects,
        });
        false
    }

    /// Sends the session to an executor; it stays here if that fails.
    fn move_out(&mut self, fds: Vec<OwnedFd>) -> bool {
        let (Some(kept), Some(fd)) = (&self.kept, fds.into_iter().next()) else {
            return false;
        };
        let session = kept.start.session;
        match sending::send(&kept.stored, &Channel::new(fd)) {
            Ok(()) => {
                self.kept = None;
                let reason = "resumed".to_owned();
                self.manager
                    .send(&ToManager::SessionEnded { session, reason });
                true
            }
            Err(reason) => {
                self.failed(session, reason);
                false
            }
        }
    }

    fn describe(&mut self, call: u64) {
        let facts = self.kept.as_ref().map(|kept| SessionFacts {
            session: kept.start.session,
            stored_bytes: kept.stored.storage.bytes(),
            queues: kept.stored.queues,
            ..SessionFacts::default()
        });
        self.manager.send(&ToManager::Described {
            call,
            sessions: facts.into_iter().collect(),
            is_last: true,
        });
    }

    /// Looks whether a new manager has come, and reports to it.
    fn call_manager(&mut self) {
        if let Some(kept) = &self.kept {
            self.manager.report(ToManager::AdoptKeeper {
                device: self.name.clone(),
                session: kept.start.clone(),
            });
        }
    }
}
