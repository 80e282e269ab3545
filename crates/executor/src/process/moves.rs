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

/// The progress of a move's thread.
enum News {
    Built(Import),
    /// The session has gone to another executor.
    Left,
    Failed(String),
}

/// Moves in progress.
pub(super) struct Moves {
    /// By move's number.
    news: Arc<Mutex<Vec<(u64, News)>>>,
    /// By number: the sessions of moves whose threads have not ended.
    running: HashMap<u64, Running>,
    last: u64,
    /// Sessions that are built and wait for the manager.
    imports: HashMap<u64, Import>,
    wake: Arc<OwnedFd>,
}

/// A move whose thread has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Running {
    session: u64,
    /// Whether the session comes here.
    is_import: bool,
}

impl Moves {
    pub fn new(wake: Arc<OwnedFd>) -> Moves {
        Moves {
            news: Arc::default(),
            running: HashMap::new(),
            last: 0,
            imports: HashMap::new(),
            wake,
        }
    }

    /// Runs `work` in a thread.
    fn spawn(
        &mut self,
        own: Running,
        work: impl FnOnce() -> News + Send + 'static,
    ) -> anyhow::Result<()> {
        let (news, wake) = (self.news.clone(), self.wake.clone());
        let thread = std::thread::Builder::new().name(format!("move {}", own.session));
        self.last += 1;
        let number = self.last;
        thread.spawn(move || {
            let what = work();
            news.locked().push((number, what));
            // It can only be full, and then it is readable anyway.
            let _ = rustix::io::write(&*wake, &1u64.to_ne_bytes());
        })?;
        self.running.insert(number, own);
        Ok(())
    }

    /// The progress of threads since the last call, with their sessions. The news of moves that
    /// were dropped meanwhile are dropped, too.
    fn take_news(&mut self) -> Vec<(u64, News)> {
        let news = std::mem::take(&mut *self.news.locked());
        let mut kept = Vec::new();
        for (number, what) in news {
            match (self.running.remove(&number), what) {
                (Some(own), what) => kept.push((own.session, what)),
                (None, News::Built(import)) => import.drop_it(),
                (None, News::Failed(_) | News::Left) => {}
            }
        }
        kept
    }

    /// Drops a session that has not started, which its source continues. Another move of it may
    /// follow before the thread of this one has ended.
    pub fn drop_import(&mut self, session: u64) {
        self.running
            .retain(|_, own| own.session != session || !own.is_import);
        if let Some(import) = self.imports.remove(&session) {
            import.drop_it();
        }
    }

    /// Drops all sessions that have not started.
    pub fn drop_all(&mut self) {
        self.running.retain(|_, own| !own.is_import);
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
                let running = Running {
                    session,
                    is_import: false,
                };
                self.moves.spawn(running, move || {
                    let moved = move_out(&own, &Channel::new(fd), terms);
                    moved.map_or_else(News::Failed, |_| News::Left)
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
                let running = Running {
                    session,
                    is_import: true,
                };
                self.moves.spawn(running, move || {
                    let built = move_in(shared, account, start, Channel::new(channel));
                    built.map_or_else(News::Failed, News::Built)
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
        for (session, what) in self.moves.take_news() {
            match what {
                News::Left => {}
                News::Failed(reason) => self.failed(session, reason),
                News::Built(import) if self.channel.is_some() => {
                    self.moves.imports.insert(session, import);
                    self.send(&ToManager::MoveBuilt { session });
                }
                News::Built(import) => import.drop_it(),
            }
        }
    }

    /// Reports the facts that a session's program has read.
    pub(super) fn answer_facts(&mut self, call: u64, session: u64) {
        let own = self.sessions.get(&session);
        let facts = own.and_then(|own| own.facts_read.get());
        self.send(&ToManager::FactsRead { call, facts });
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{eventfd, EventfdFlags};

    fn failing(moves: &mut Moves, session: u64, is_import: bool, reason: &'static str) {
        let running = Running { session, is_import };
        let spawned = moves.spawn(running, move || News::Failed(reason.into()));
        spawned.unwrap();
    }

    /// The reasons of failed moves, after as many threads have ended.
    fn failures(moves: &mut Moves, ended: usize) -> Vec<(u64, String)> {
        while moves.news.locked().len() < ended {
            std::thread::yield_now();
        }
        let news = moves.take_news().into_iter();
        let failed = news.filter_map(|(session, what)| match what {
            News::Failed(reason) => Some((session, reason)),
            _ => None,
        });
        let mut failed: Vec<_> = failed.collect();
        failed.sort();
        failed
    }

    #[test]
    fn a_dropped_move_is_not_reported_and_another_one_of_its_session_is() {
        let mut moves = Moves::new(Arc::new(eventfd(0, EventfdFlags::NONBLOCK).unwrap()));
        failing(&mut moves, 7, true, "first");
        moves.drop_import(7);
        failing(&mut moves, 7, true, "second");
        failing(&mut moves, 8, false, "other");
        let expected = [(7, "second".to_owned()), (8, "other".to_owned())];
        assert_eq!(failures(&mut moves, 3), expected);
        // Its source reports, also if the session comes back at the same time.
        failing(&mut moves, 9, false, "away");
        moves.drop_import(9);
        assert_eq!(failures(&mut moves, 1), [(9, "away".to_owned())]);
        assert!(moves.running.is_empty());
    }
}
