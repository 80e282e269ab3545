//! Sessions that come from other executors, or go there.

use super::Server;
use crate::session::moving::link::{move_in, move_out, Import, Terms};
use anyhow::Context as _;
use baltra_channel::Channel;
use baltra_ring::Locked;
use baltra_wire::executor::{SessionStart, ToManager};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

/// Sessions described in one packet.
const DESCRIBED_MAX: usize = 256;

/// What a move's thread has achieved.
enum News {
    Built(Import),
    Failed(String),
}

/// Moves in progress.
pub(super) struct Moves {
    news: Arc<Mutex<Vec<(u64, News)>>>,
    /// Sessions that are built and wait for the manager.
    imports: HashMap<u64, Import>,
    wake: Arc<OwnedFd>,
}

impl Moves {
    pub fn new(wake: Arc<OwnedFd>) -> Moves {
        Moves {
            news: Arc::default(),
            imports: HashMap::new(),
            wake,
        }
    }

    /// Runs `work` in a thread.
    fn spawn(
        &self,
        session: u64,
        work: impl FnOnce() -> Option<News> + Send + 'static,
    ) -> anyhow::Result<()> {
        let (news, wake) = (self.news.clone(), self.wake.clone());
        let thread = std::thread::Builder::new().name(format!("move {session}"));
        thread.spawn(move || {
            let what = work();
            news.locked().extend(what.map(|what| (session, what)));
            // It can only be full, and then it is readable anyway.
            let _ = rustix::io::write(&*wake, &1u64.to_ne_bytes());
        })?;
        Ok(())
    }

    /// Drops a session that has not started, which its source continues.
    pub fn drop_import(&mut self, session: u64) {
        if let Some(import) = self.imports.remove(&session) {
            import.drop_it();
        }
    }

    /// Drops all sessions that have not started.
    pub fn drop_all(&mut self) {
        for (_, import) in self.imports.drain() {
            import.drop_it();
        }
    }
}

impl Server {
    fn failed(&mut self, session: u64, reason: String) {
        tracing::info!(session, reason, "session not moved");
        self.send(&ToManager::MoveFailed { session, reason });
    }

    /// Moves a session to another executor.
    pub(super) fn move_out(&mut self, session: u64, terms: Terms, fds: Vec<OwnedFd>) {
        let started = self
            .sessions
            .get(&session)
            .context("it has ended")
            .and_then(|own| {
                let own = own.clone();
                let fd = fds
                    .into_iter()
                    .next()
                    .context("no descriptor came with it")?;
                self.moves.spawn(session, move || {
                    let moved = move_out(&own, &Channel::new(fd), terms);
                    moved.err().map(News::Failed)
                })
            });
        if let Err(error) = started {
            self.failed(session, format!("{error:#}"));
        }
    }

    /// Takes a session over from another executor.
    pub(super) fn move_in(&mut self, start: SessionStart, fds: Vec<OwnedFd>) {
        let session = start.session;
        if self.sessions.contains_key(&session) {
            let reason = "the executor still frees what it had of it: try again".into();
            return self.failed(session, reason);
        }
        let started = <[OwnedFd; 3]>::try_from(fds)
            .map_err(|fds| anyhow::anyhow!("expected 3 descriptors, received {}", fds.len()))
            .and_then(|[channel, page, bell]| {
                let account = self.account(&start, page, bell)?;
                let shared = self.shared.clone();
                self.moves.spawn(session, move || {
                    Some(
                        match move_in(shared, account, start, Channel::new(channel)) {
                            Ok(import) => News::Built(import),
                            Err(reason) => News::Failed(reason),
                        },
                    )
                })
            });
        if let Err(error) = started {
            self.failed(session, format!("{error:#}"));
        }
    }

    /// Starts a session that is built.
    pub(super) fn move_go(&mut self, session: u64) {
        let Some(import) = self.moves.imports.remove(&session) else {
            return;
        };
        let cost = import.cost;
        match import.start(self.ended(session)) {
            Ok((own, stopped)) => {
                self.sessions.insert(session, own);
                let stopped_us = stopped.as_micros() as u64;
                let bytes = cost.bytes;
                tracing::info!(session, stopped_us, bytes = bytes.0, "session moved here");
                self.send(&ToManager::MoveStarted {
                    session,
                    stopped_us,
                    bytes,
                    stopped_objects: cost.stopped_objects,
                });
            }
            Err(reason) => self.failed(session, reason),
        }
    }

    /// Reports what has become of moves.
    pub(super) fn report_moves(&mut self) {
        let news = std::mem::take(&mut *self.moves.news.locked());
        for (session, what) in news {
            match what {
                News::Failed(reason) => self.failed(session, reason),
                News::Built(import) if self.channel.is_some() => {
                    self.moves.imports.insert(session, import);
                    self.send(&ToManager::MoveBuilt { session });
                }
                News::Built(import) => import.drop_it(),
            }
        }
    }

    /// Describes all sessions to the manager.
    pub(super) fn describe(&mut self, call: u64) {
        let facts = self.sessions.values().filter(|own| !own.is_closed());
        let facts: Vec<_> = facts.map(|own| own.facts()).collect();
        let mut parts = facts.chunks(DESCRIBED_MAX).peekable();
        loop {
            let sessions = parts.next().unwrap_or_default().to_vec();
            let is_last = parts.peek().is_none();
            self.send(&ToManager::Described {
                call,
                sessions,
                is_last,
            });
            if is_last {
                return;
            }
        }
    }
}
