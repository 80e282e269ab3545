//! The reports of executors about their sessions, and the facts that the programs of sessions have
//! read about their devices. The process that has a session keeps its facts: an executor, a keeper
//! or a forwarder, which outlives the manager.

use super::{compatibility, Error, Moves, EARLIER_RELEASE};
use crate::node::{Device, Node, SessionRecord};
use baltra_ring::Locked;
use baltra_wire::executor::{SessionFacts, ToExecutor};
use baltra_wire::{facts, DeviceDescription};
use std::collections::{HashMap, HashSet};
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
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

/// An executor answers within this, or its program counts as having read all facts.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The executor that is to answer, and the way of its answer.
type Request = (u64, Sender<Option<u64>>);

/// FactRequests without an answer.
#[derive(Default)]
pub(super) struct FactRequests(Mutex<HashMap<u64, Request>>);

impl FactRequests {
    /// An executor has ended.
    pub fn forget(&self, executor: u64) {
        self.0.locked().retain(|_, (own, _)| *own != executor);
    }
}

impl Moves {
    /// An executor reports the facts that the program of one of its sessions has read.
    pub fn facts_read(&self, executor: u64, call: u64, facts: Option<u64>) {
        let mut requests = self.facts.0.locked();
        if requests.get(&call).is_some_and(|(own, _)| *own == executor) {
            if let Some((_, sender)) = requests.remove(&call) {
                // Nobody may wait any more.
                let _ = sender.send(facts);
            }
        }
    }
}

impl Node {
    /// The facts that a session's program has read. A program whose library or executor does not
    /// report them counts as having read all.
    fn facts_read(&self, session: u64, record: &SessionRecord) -> u64 {
        let device = self.device(&record.device);
        let process = device.and_then(|d| d.pool.with(record.executor, |e| e.process.clone()));
        let Some(process) = process.filter(|process| process.is_current()) else {
            return facts::ALL;
        };
        let call = self.next_number();
        let (sender, answer) = channel();
        let own = (record.executor, sender);
        self.moves.facts.0.locked().insert(call, own);
        let sent = process.send(&ToExecutor::AskFacts { call, session }, &[]);
        let answer = match sent {
            Ok(()) => answer.recv_timeout(ANSWER_MAX).ok().flatten(),
            Err(_) => None,
        };
        self.moves.facts.0.locked().remove(&call);
        answer.unwrap_or(facts::ALL)
    }

    /// Whether a session's program can use another device, or the same one with another driver.
    pub(super) fn compare(
        &self,
        session: u64,
        record: &SessionRecord,
        (source, target): (&Device, &Device),
        force: bool,
    ) -> Result<(), Error> {
        let to = (target.name(), target.description.get());
        self.compare_with(session, record, source, to, force)
    }

    /// As [`Node::compare`], with the name and the description of the target.
    pub(super) fn compare_with(
        &self,
        session: u64,
        record: &SessionRecord,
        source: &Device,
        (device, to): (&str, Option<Arc<DeviceDescription>>),
        force: bool,
    ) -> Result<(), Error> {
        let device = device.to_owned();
        let from = record.description.clone();
        let from = from.or_else(|| source.description.get());
        let (Some(from), Some(to)) = (from, to) else {
            return Err(Error::Refused {
                session,
                device,
                why: "the device's driver has not been loaded yet".into(),
            });
        };
        let mut differences = compatibility::compare(&from, &to, facts::ALL);
        if !differences.forbidding.is_empty() {
            return Err(Error::Refused {
                session,
                device,
                why: differences.forbidding.join("; "),
            });
        }
        if !force && !differences.facts.is_empty() {
            let read = self.facts_read(session, record);
            differences = compatibility::compare(&from, &to, read);
        }
        if !force && !differences.facts.is_empty() {
            return Err(Error::Facts {
                session,
                device,
                facts: differences.facts.join("; "),
            });
        }
        Ok(())
    }
}
