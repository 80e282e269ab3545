//! Live moves: a session continues on another device of this node, or of another one ([`nodes`]).
//!
//! The manager gives both executors one end of a socket and lets the target start the session once
//! it is built. It never has two executors serve a session: the source forgets it when the target
//! reports its start over that socket, and continues it otherwise. [`suspension`] has sessions move to
//! the disk and back.

mod compatibility;
mod descriptions;
mod nodes;
mod suspension;

use descriptions::{Described, FactRequests};
pub(crate) use descriptions::{Description, Descriptions};
pub(crate) use nodes::Terms;

use crate::accept::{allows, cache_dir};
use crate::executors::{ExecutorAssignment, Process};
use crate::node::{Device, Node, SessionRecord};
use crate::tenants::Tenant;
use baltra_channel::Channel;
use baltra_ring::Locked;
use baltra_wire::executor::{SessionStart, ToExecutor};
use baltra_wire::{opencl, SessionFlags};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A move ends within this, or is given up. The executors' own limits are shorter.
const MOVE_MAX: Duration = Duration::from_secs(55);

/// The same limit for a session whose state is written to the disk or read from it.
const DISK_MAX: Duration = Duration::from_secs(600);

/// Maximum number of times that another executor is selected.
const TRIES_MAX: usize = 3;

/// Maximum time of a session's commands in flight before its move is given up.
pub(crate) const WAIT: Duration = Duration::from_secs(2);
/// The most that a request may allow.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(10);

/// The source frees what it had of a session that has moved within this.
const FREE_MAX: Duration = Duration::from_secs(5);

/// Why a session of an adopted executor stays.
const EARLIER_RELEASE: &str = "its executor is of a release that cannot move sessions: start the \
                               program again to use the present one";

/// A session that has moved.
#[derive(Clone, Debug)]
pub struct Moved {
    /// The device that it has left.
    pub from: String,
    /// The device that it is on.
    pub to: String,
    /// The whole move.
    pub took: Duration,
    /// The cost of the move.
    pub cost: Cost,
}

/// The cost of a move, as the target reports it.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Time during which none of the session's commands ran.
    pub stopped: Duration,
    /// Bytes of its objects that were copied, and those of them that were copied while it was
    /// stopped.
    pub bytes: (u64, u64),
    /// Objects that were made or written at the target while it was stopped.
    pub stopped_objects: u64,
}

/// Reasons for which a session does not move. It continues where it is, or has ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such session.
    #[error("there is no session {0} (`baltra session ls` lists them)")]
    NoSession(u64),
    /// There is no such device.
    #[error("there is no device '{0}' (`baltra devices` lists them)")]
    NoDevice(String),
    /// The request cannot be carried out.
    #[error("session {session} cannot move to device '{device}': {why}")]
    Refused {
        /// The session.
        session: u64,
        /// The device.
        device: String,
        /// The reason.
        why: String,
    },
    /// Facts differ that the program has read, or may have.
    #[error(
        "the program of session {session} has read facts about its device that differ on \
         '{device}': {facts}; `--force` moves it nevertheless"
    )]
    Facts {
        /// The session.
        session: u64,
        /// The device.
        device: String,
        /// The facts, with both values.
        facts: String,
    },
    /// It stays in its executor.
    #[error("session {session} cannot be suspended: {why}")]
    Fixed {
        /// The session.
        session: u64,
        /// The reason.
        why: String,
    },
    /// It runs.
    #[error("session {0} is not suspended (`baltra session ls` lists those that are)")]
    Running(u64),
    /// It is being moved.
    #[error("session {0} is being moved already: wait until that has ended")]
    Moving(u64),
    /// The move failed.
    #[error("session {session} {}: {why}", kind.failure())]
    Failed {
        /// The session.
        session: u64,
        /// The kind of the refused move.
        kind: Kind,
        /// The reason.
        why: String,
    },
}

/// The effect of a move on a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It continues in another executor.
    Move,
    /// Its state goes to the disk.
    Suspend,
    /// It continues from the disk.
    Resume,
}

impl Kind {
    fn failure(self) -> &'static str {
        match self {
            Kind::Move => "has not moved",
            Kind::Suspend => "was not suspended",
            Kind::Resume => "was not resumed",
        }
    }
}

/// A move in progress.
struct Move {
    source: u64,
    target: u64,
    /// The session's record at the target.
    record: SessionRecord,
    /// The session has ended in the source, or the source itself: it is in the target only.
    is_source_out: bool,
    /// The target has ended.
    is_target_out: bool,
    result: Sender<Outcome>,
    /// The source has freed the session.
    freed: Sender<()>,
}

/// The cost of a move, or the reason why the session has not moved.
type Outcome = Result<Cost, String>;

impl Move {
    /// Reports the session's end, if there is nothing left of it.
    fn give_up(&self) {
        if self.is_source_out && self.is_target_out {
            let _ = self.result.send(Err("its executor has ended".into()));
        }
    }
}

/// A move that is to begin.
struct Order {
    session: u64,
    record: SessionRecord,
    source: Arc<Device>,
    target: Arc<Device>,
    place: ExecutorAssignment,
    /// For the session's state, if it is to be suspended.
    file: Option<OwnedFd>,
    /// The device of another node where it goes; `place` is its forwarder then.
    remote: Option<nodes::Found>,
    wait: Duration,
}

impl Order {
    fn kind(&self) -> Kind {
        if self.file.is_some() {
            Kind::Suspend
        } else if self.record.is_suspended {
            Kind::Resume
        } else {
            Kind::Move
        }
    }
}

/// All moves in progress, by session, and descriptions that are waited for.
#[derive(Default)]
pub(crate) struct Moves {
    moves: Mutex<HashMap<u64, Option<Move>>>,
    described: Mutex<HashMap<u64, Described>>,
    /// Forwarders that look for a device of another node, by session.
    reaching: Mutex<HashMap<u64, nodes::Reaching>>,
    /// Sessions that come from other nodes and have not started here, with their executors.
    arriving: Mutex<HashMap<u64, u64>>,
    /// Requests for the facts that programs have read.
    facts: FactRequests,
}

/// The reservation of a session for one move.
struct Reserved<'a> {
    moves: &'a Moves,
    session: u64,
}

impl Reserved<'_> {
    /// Ends the move; returns whether the session has ended in the source.
    fn end(self) -> bool {
        let own = self.moves.moves.locked().remove(&self.session);
        own.flatten().is_some_and(|own| own.is_source_out)
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.moves.moves.locked().remove(&self.session);
    }
}

impl Moves {
    fn reserve(&self, session: u64) -> Result<Reserved<'_>, Error> {
        let mut moves = self.moves.locked();
        if moves.contains_key(&session) {
            return Err(Error::Moving(session));
        }
        moves.insert(session, None);
        Ok(Reserved {
            moves: self,
            session,
        })
    }

    fn begin(&self, session: u64, began: Move) {
        self.moves.locked().insert(session, Some(began));
    }

    /// The executor has built the session: it starts there, unless the move was given up.
    pub fn built(&self, executor: u64, session: u64, process: &Process) {
        let message = if self.may_start(executor, session) {
            ToExecutor::MoveGo { session }
        } else {
            ToExecutor::MoveDrop { session }
        };
        // If it cannot be sent, the target has ended, and the source continues the session.
        let _ = process.send(&message, &[]);
    }

    /// Whether a session starts in the executor that has built it. A source that has ended has not
    /// given the session up: nothing is left of it.
    fn may_start(&self, executor: u64, session: u64) -> bool {
        let mut moves = self.moves.locked();
        let own = moves.get_mut(&session).and_then(|own| own.as_mut());
        if let Some(own) = own.filter(|own| own.target == executor) {
            if !own.is_source_out {
                // A failure that was reported before was that of an earlier move to this executor.
                own.is_target_out = false;
                return true;
            }
            // It drops the session without a report.
            own.is_target_out = true;
            own.give_up();
        }
        self.arriving.locked().get(&session) == Some(&executor)
    }

    /// The session has started at the target: its record there, and the way to the caller;
    /// `None`: the report is unfounded.
    fn started(&self, executor: u64, session: u64) -> Option<(SessionRecord, Sender<Outcome>)> {
        let moves = self.moves.locked();
        let own = moves.get(&session)?.as_ref()?;
        (own.target == executor).then(|| (own.record.clone(), own.result.clone()))
    }

    /// The executor reports that the session has not moved. The source decides, while there is one.
    pub fn failed(&self, executor: u64, session: u64, reason: &str) {
        let mut moves = self.moves.locked();
        let Some(Some(own)) = moves.get_mut(&session) else {
            return;
        };
        let decides = own.source == executor || own.is_source_out && own.target == executor;
        if decides {
            let _ = own.result.send(Err(reason.to_owned()));
        } else if own.target == executor {
            // The source may have ended already, which another thread is about to report.
            own.is_target_out = true;
        }
    }

    /// A session has ended in an executor, or with it; returns whether it may have moved, so that
    /// the target's report decides.
    pub fn session_ended(&self, executor: u64, session: u64) -> bool {
        let mut moves = self.moves.locked();
        let Some(Some(own)) = moves.get_mut(&session) else {
            return false;
        };
        if own.source != executor {
            return false;
        }
        own.is_source_out = true;
        let _ = own.freed.send(());
        own.give_up();
        true
    }

    /// An executor has ended, after its sessions.
    pub fn executor_ended(&self, executor: u64) {
        let mut moves = self.moves.locked();
        for own in moves.values_mut().flatten() {
            if own.target == executor {
                own.is_target_out = true;
                own.give_up();
            }
        }
        drop(moves);
        self.described
            .locked()
            .retain(|_, waiting| waiting.executor != executor);
        self.facts.forget(executor);
        self.forget_nodes_of(executor);
    }
}

impl Node {
    /// Moves a session to another device. `wait`: how long its commands in flight may take; with
    /// `force`, although facts differ that it may have read.
    pub fn move_session(
        &self,
        session: u64,
        device: &str,
        wait: Duration,
        force: bool,
    ) -> Result<Moved, Error> {
        let began = Instant::now();
        let reserved = self.moves.reserve(session)?;
        let record = self.record(session)?;
        if let Some(why) = cannot(&record) {
            return Err(Error::Refused {
                session,
                device: device.to_owned(),
                why: why.to_owned(),
            });
        }
        self.send_to(reserved, record, device, (wait, force), began)
    }

    /// The record of a session.
    fn record(&self, session: u64) -> Result<SessionRecord, Error> {
        let record = self.sessions().get(&session).cloned();
        record.ok_or(Error::NoSession(session))
    }

    /// Has a session continue on a device.
    fn send_to(
        &self,
        reserved: Reserved<'_>,
        record: SessionRecord,
        device: &str,
        (wait, force): (Duration, bool),
        began: Instant,
    ) -> Result<Moved, Error> {
        let session = reserved.session;
        let missing = |name: &str| Error::NoDevice(name.to_owned());
        let source = self.device(&record.device);
        let source = source.ok_or_else(|| missing(&record.device))?.clone();
        let target = self.device(device).ok_or_else(|| missing(device))?.clone();
        self.check(session, &record, (&source, &target))?;
        if !record.is_suspended {
            self.compare(session, &record, (&source, &target), force)?;
        }
        let refused = |why: String| Error::Refused {
            session,
            device: target.name().to_owned(),
            why,
        };
        let place = target.pool.place(&record.tenant, session);
        let place = place.map_err(|e| refused(e.to_string()))?;
        // The executor may be the first one that has loaded this driver.
        if record.is_suspended {
            if let Err(error) = self.compare(session, &record, (&source, &target), force) {
                target.pool.cancel(&place, session);
                return Err(error);
            }
        }
        let order = Order {
            session,
            record,
            source,
            target,
            place,
            file: None,
            remote: None,
            wait,
        };
        self.carry_out(reserved, order, began)
    }

    /// Has a session move.
    fn carry_out(
        &self,
        reserved: Reserved<'_>,
        mut order: Order,
        began: Instant,
    ) -> Result<Moved, Error> {
        let session = order.session;
        let kind = order.kind();
        let most = match kind {
            Kind::Move => MOVE_MAX,
            Kind::Suspend | Kind::Resume => DISK_MAX,
        };
        let moved = self.send(&mut order).and_then(|(result, freed)| {
            let moved = wait_for(&result, most)?;
            // Until then the source cannot get the session back.
            let _ = freed.recv_timeout(FREE_MAX);
            Ok(moved)
        });
        let is_source_out = reserved.end();
        match moved {
            Ok(cost) => {
                let (here, there) = (&order.record.remote, &order.remote);
                let there = there.as_ref().map(|found| &found.name);
                if kind != Kind::Suspend {
                    let to = there.cloned();
                    let to = to.unwrap_or_else(|| self.pool_name(order.target.name()));
                    let from = self.place_of(&order.record);
                    self.report_place(session, &order.record, &from, &to);
                }
                let named = |remote: Option<&String>, device: &Device| {
                    remote.cloned().unwrap_or_else(|| device.name().to_owned())
                };
                Ok(Moved {
                    from: named(here.as_ref(), &order.source),
                    to: named(there, &order.target),
                    took: began.elapsed(),
                    cost,
                })
            }
            Err(why) => {
                if is_source_out {
                    self.forget_session(order.record.executor, session);
                }
                // Without effect if it has built nothing.
                let place = &order.place;
                let _ = place.process.send(&ToExecutor::MoveDrop { session }, &[]);
                order.target.pool.session_ended(place.executor, session);
                Err(Error::Failed { session, kind, why })
            }
        }
    }

    /// Whether a session may continue on a device.
    fn check(
        &self,
        session: u64,
        record: &SessionRecord,
        (source, target): (&Arc<Device>, &Arc<Device>),
    ) -> Result<(), Error> {
        let device_name = target.name();
        let refused = |why: &str| {
            Err(Error::Refused {
                session,
                device: device_name.to_owned(),
                why: why.to_owned(),
            })
        };
        if Arc::ptr_eq(source, target) && !record.is_suspended && record.remote.is_none() {
            return refused("it is there");
        }
        if self.is_draining() {
            return refused("the manager is shutting down");
        }
        let tenant = self.tenants.get(&record.tenant);
        let tenant = tenant.unwrap_or_else(|| Tenant::named(&record.tenant));
        if !allows(target, &tenant) {
            return refused("its tenant may not use that device");
        }
        let link = self.registry.as_ref();
        let order = link.and_then(|l| l.refusal(device_name, &record.instance, tenant.owner()));
        if order.is_some() {
            return refused("it is cordoned (`baltra device uncordon` ends that)");
        }
        let from = source.pool.with(record.executor, |e| e.process.clone());
        if from.is_some_and(|process| !process.supports_moves()) {
            return refused(EARLIER_RELEASE);
        }
        for device in [source, target] {
            if device.options.image == crate::options::ImageKind::Exclusive {
                return refused("a device that holds one image at a time takes no part in moves");
            }
        }
        Ok(())
    }

    /// Has both executors begin. An executor may die between its selection and its use: then another
    /// one is selected.
    fn send(&self, order: &mut Order) -> Result<(Receiver<Outcome>, Receiver<()>), String> {
        let text = |e: std::io::Error| e.to_string();
        let source = &order.source;
        let from = source
            .pool
            .with(order.record.executor, |e| e.process.clone());
        let from = from.ok_or("its executor has ended")?;
        let mut tries = 0;
        let (theirs, result, freed) = loop {
            let error = match self.offer(order) {
                Ok(offered) => break offered,
                Err(error) => error,
            };
            let is_replaceable = order.file.is_none() && order.remote.is_none();
            if !is_replaceable || tries >= TRIES_MAX {
                return Err(text(error));
            }
            tries += 1;
            let (pool, place) = (&order.target.pool, &order.place);
            tracing::warn!(pid = place.process.pid, %error, "an executor does not accept a session");
            place.process.kill("it does not accept a session");
            pool.forget(place.executor, order.session);
            let place = pool.place(&order.record.tenant, order.session);
            order.place = place.map_err(|e| e.to_string())?;
        };
        let description = match &order.remote {
            Some(found) => Some(found.description.clone()),
            None => order.target.description.get(),
        };
        let allocation_bytes_max =
            description.map_or(0, |d| d.number(opencl::DEVICE_MAX_MEM_ALLOC_SIZE));
        let out = ToExecutor::MoveOut {
            session: order.session,
            wait_ms: u32::try_from(order.wait.as_millis()).unwrap_or(u32::MAX),
            allocation_bytes_max,
            is_to_disk: order.file.is_some(),
        };
        from.send(&out, &[theirs.as_fd()]).map_err(text)?;
        Ok((result, freed))
    }

    /// Has the target begin; returns the source's end of their socket.
    fn offer(&self, order: &Order) -> std::io::Result<(Channel, Receiver<Outcome>, Receiver<()>)> {
        let Order {
            session,
            record,
            source,
            target,
            place,
            file,
            remote,
            ..
        } = order;
        let session = *session;
        let tenant = self.tenants.get(&record.tenant);
        let tenant = tenant.unwrap_or_else(|| Tenant::named(&record.tenant));
        // Neither a keeper nor a forwarder needs turns at the device.
        let lease = match (file, remote) {
            (None, None) => Some(self.lease(target, place.executor, &tenant)?),
            _ => None,
        };
        let lease = lease.as_ref().map(|metered| &metered.lease);
        let start = SessionStart {
            session,
            tenant: tenant.name.clone(),
            limits: tenant.limits.or(self.options.limits).wire(),
            // The source has them.
            flags: SessionFlags::default(),
            lease: lease.map_or(0, |lease| lease.id),
            instance: record.instance.clone(),
        };
        let (ours, theirs) = Channel::pair()?;
        let (sender, result) = channel();
        let (freed, was_freed) = channel();
        self.moves.begin(
            session,
            Move {
                source: record.executor,
                target: place.executor,
                record: SessionRecord {
                    device: target.name().to_owned(),
                    executor: place.executor,
                    executor_pid: place.process.pid,
                    is_suspended: file.is_some(),
                    remote: remote.as_ref().map(|found| found.name.clone()),
                    description: match (file, remote) {
                        (Some(_), _) => source.description.get(),
                        (None, Some(found)) => Some(found.description.clone()),
                        (None, None) => None,
                    },
                    ..record.clone()
                },
                is_source_out: false,
                is_target_out: false,
                result: sender,
                freed,
            },
        );
        let mut fds = vec![ours.as_fd()];
        fds.extend(lease.iter().flat_map(|l| [l.page.as_fd(), l.bell.as_fd()]));
        fds.extend(file.as_ref().map(AsFd::as_fd));
        let cache = cache_dir(target, &tenant);
        let start = ToExecutor::MoveIn(start);
        crate::executors::hand_over(place, &tenant, &cache, &start, &fds)?;
        Ok((theirs, result, was_freed))
    }

    /// Removes a session that has ended in an executor, unless it has moved to another one.
    pub(crate) fn forget_session(&self, executor: u64, session: u64) {
        if self.moves.session_ended(executor, session) {
            return;
        }
        let mut sessions = self.sessions();
        let is_there = |record: &SessionRecord| record.executor == executor;
        if sessions.get(&session).is_some_and(is_there) {
            sessions.remove(&session);
        }
    }

    /// A session has started at its target.
    pub(crate) fn move_started(&self, device: &Device, executor: u64, session: u64, cost: Cost) {
        if self.has_arrived(device, executor, session) {
            return;
        }
        let Some((record, result)) = self.moves.started(executor, session) else {
            return;
        };
        let tenant = record.tenant.clone();
        let is_suspended = record.is_suspended;
        let is_here = record.remote.is_none();
        let former = self.sessions().insert(session, record);
        let was_suspended = former.is_some_and(|former| former.is_suspended);
        if !is_suspended && is_here {
            self.accounts.count_session(&tenant, device.name());
        }
        self.urge_registry();
        tracing::info!(
            session,
            tenant,
            device = device.name(),
            stopped_us = cost.stopped.as_micros() as u64,
            bytes = cost.bytes.0,
            stopped_bytes = cost.bytes.1,
            "session {}",
            match (is_suspended, was_suspended) {
                (true, _) => "suspended",
                (_, true) => "resumed",
                _ if !is_here => "moved to another node",
                _ => "moved",
            }
        );
        // The operator may have given up.
        let _ = result.send(Ok(cost));
    }
}

fn wait_for(result: &Receiver<Outcome>, most: Duration) -> Outcome {
    match result.recv_timeout(most) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => Err("the executors do not answer".into()),
        Err(RecvTimeoutError::Disconnected) => Err("the move was given up".into()),
    }
}

/// The reason for which a session of this kind cannot move.
pub(crate) fn cannot(record: &SessionRecord) -> Option<&'static str> {
    if record.is_suspended {
        return Some("it is suspended (`baltra session resume` continues it)");
    }
    (record.transport == "ivshmem").then_some("its memory is that of a virtual machine")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A move of session 7 from executor 1 to executor 2, and its result.
    fn moving(moves: &Moves) -> Receiver<Outcome> {
        let (sender, result) = channel();
        let record = SessionRecord {
            tenant: "red".into(),
            device: "a".into(),
            executor: 2,
            executor_pid: 0,
            instance: "app".into(),
            pid: 0,
            uid: 0,
            transport: "unix",
            is_suspended: false,
            remote: None,
            description: None,
            since: Instant::now(),
        };
        let began = Move {
            source: 1,
            target: 2,
            record,
            is_source_out: false,
            is_target_out: false,
            result: sender,
            freed: channel().0,
        };
        moves.begin(7, began);
        result
    }

    #[test]
    fn a_built_session_starts_while_there_is_a_source() {
        let moves = Moves::default();
        let result = moving(&moves);
        assert!(moves.may_start(2, 7));
        assert!(!moves.may_start(1, 7) && !moves.may_start(2, 8));
        assert!(result.try_recv().is_err());
    }

    #[test]
    fn a_late_report_of_an_earlier_move_to_the_same_executor_does_not_end_this_one() {
        let moves = Moves::default();
        let result = moving(&moves);
        moves.failed(2, 7, "the source closed its socket");
        assert!(moves.may_start(2, 7));
        assert!(moves.session_ended(1, 7));
        assert!(result.try_recv().is_err());
        assert!(moves.started(2, 7).is_some());
    }

    #[test]
    fn a_move_ends_if_its_source_ends_before_the_session_is_built() {
        let moves = Moves::default();
        let result = moving(&moves);
        assert!(moves.session_ended(1, 7));
        assert!(result.try_recv().is_err());
        assert!(!moves.may_start(2, 7));
        let why = result.try_recv().expect("a result").unwrap_err();
        assert_eq!(why, "its executor has ended");
    }
}
