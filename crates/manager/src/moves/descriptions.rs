//! The reports of executors about their sessions.

use super::{Moves, EARLIER_RELEASE};
use crate::node::Node;
use baltra_ring::Locked;
use baltra_wire::executor::{SessionFacts, ToExecutor};
use std::collections::{HashMap, HashSet};
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// Executors describe their sessions within this.
const DESCRIBE_MAX: Duration = Duration::from_secs(2);

/// Why a session is listed without a description.
const MEANWHILE: &str = "it has started, or has moved, while the sessions were listed";

/// A description that is waited for.
pub(super) struct Described {
    pub executor: u64,
    sender: Sender<Vec<SessionFacts>>,
}

/// The reports of executors about their sessions.
#[derive(Default)]
pub(crate) struct Descriptions {
    /// The executor of each session when the descriptions were requested.
    executors: HashMap<u64, u64>,
    /// By session.
    facts: HashMap<u64, SessionFacts>,
    /// Executors that have not answered in time.
    silent: HashSet<u64>,
    /// Executors of a release that cannot describe sessions.
    earlier: HashSet<u64>,
}

/// The known properties of an open session.
pub(crate) enum Description<'a> {
    /// Its executor describes it.
    Described(&'a SessionFacts),
    /// The reason for which it is not described; empty: its executor does not answer.
    Unknown(&'static str),
}

impl Descriptions {
    /// Adds what an executor reports of its own sessions.
    fn add(&mut self, executor: u64, facts: Vec<SessionFacts>) {
        let executors = &self.executors;
        let own = |f: &SessionFacts| executors.get(&f.session) == Some(&executor);
        let own = facts.into_iter().filter(own);
        self.facts.extend(own.map(|f| (f.session, f)));
    }

    /// The description of an executor's session; `None`: the executor has answered, and does not
    /// serve the session any more.
    pub fn of(&self, executor: u64, session: u64) -> Option<Description<'_>> {
        let unknown = |why| Some(Description::Unknown(why));
        match self.facts.get(&session) {
            Some(facts) => Some(Description::Described(facts)),
            None if self.executors.get(&session) != Some(&executor) => unknown(MEANWHILE),
            None if self.earlier.contains(&executor) => unknown(EARLIER_RELEASE),
            None if self.silent.contains(&executor) => unknown(""),
            None => None,
        }
    }
}

impl Moves {
    /// An executor describes its sessions.
    pub fn described(&self, executor: u64, call: u64, facts: Vec<SessionFacts>, is_last: bool) {
        let mut described = self.described.locked();
        let Some(waiting) = described.get(&call).filter(|w| w.executor == executor) else {
            return;
        };
        let _ = waiting.sender.send(facts);
        if is_last {
            described.remove(&call);
        }
    }
}

impl Node {
    /// The reports of the executors about their sessions.
    pub(crate) fn describe_sessions(&self) -> Descriptions {
        let mut waiting = Vec::new();
        let sessions = self.sessions();
        let mut all = Descriptions {
            executors: sessions.iter().map(|(id, s)| (*id, s.executor)).collect(),
            ..Descriptions::default()
        };
        drop(sessions);
        for device in &self.devices {
            for (executor, process) in device.pool.serving() {
                if !process.supports_moves() {
                    all.earlier.insert(executor);
                    continue;
                }
                let call = self.next_number();
                let (sender, facts) = channel();
                let mut described = self.moves.described.locked();
                described.insert(call, Described { executor, sender });
                drop(described);
                // One that does not read answers nothing.
                let _ = process.send(&ToExecutor::Describe { call }, &[]);
                waiting.push((executor, call, facts));
            }
        }
        let until = Instant::now() + DESCRIBE_MAX;
        for (executor, call, facts) in waiting {
            loop {
                let left = until.saturating_duration_since(Instant::now());
                match facts.recv_timeout(left) {
                    Ok(facts) => all.add(executor, facts),
                    Err(RecvTimeoutError::Disconnected) => break,
                    Err(RecvTimeoutError::Timeout) => {
                        all.silent.insert(executor);
                        break;
                    }
                }
            }
            self.moves.described.locked().remove(&call);
        }
        all
    }
}
