//! Both ends of a move.
//!
//! A session with contents sends a state twice: of the objects that were copied while it runs, with
//! no time of its stop, which the target answers as it answers the plan; and of everything.

use super::super::freeze::Frozen;
use super::super::Session;
use super::ahead::Copies;
use super::export::Room;
use super::import::Importer;
use super::{bytes_of, file_of};
use crate::account::Account;
use crate::shared::Shared;
use baltra_channel::Channel;
use baltra_ring::lease::monotonic_ns;
use baltra_ring::Memory;
use baltra_wire::executor::SessionStart;
use baltra_wire::moves::{ArenaState, State, ToSource, ToTarget, FDS_MAX};
use baltra_wire::{decode, encode};
use rustix::net::sockopt::{set_socket_timeout, Timeout};
use rustix::net::Shutdown;
use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

/// The target may build programs for this long while the session runs.
const PREPARE_MAX: Duration = Duration::from_secs(25);
/// The target may make the rest for this long, while the session is stopped.
const BUILD_MAX: Duration = Duration::from_secs(15);
/// The other end reads its messages within this.
const SEND_MAX: Duration = Duration::from_secs(10);

fn lost(error: std::io::Error) -> String {
    format!("the connection of the two executors failed: {error}")
}

fn limit(channel: &Channel, receive: Duration) -> Result<(), String> {
    let set = |which, time| set_socket_timeout(channel.as_fd(), which, Some(time));
    set(Timeout::Send, SEND_MAX)
        .and_then(|()| set(Timeout::Recv, receive))
        .map_err(|e| lost(e.into()))
}

/// Moves a session to the executor at the other end; on an error it continues here, or has ended.
/// `wait`: how long its commands in flight may take.
pub fn move_out(
    session: &Arc<Session>,
    channel: &Channel,
    wait: Duration,
    allocation_bytes_max: u64,
) -> Result<(), String> {
    if session.is_moving.swap(true, Ordering::AcqRel) {
        return Err("it is being moved already".into());
    }
    let moved = Source { session, channel }.run(wait, allocation_bytes_max);
    session.tracker.stop();
    session.is_moving.store(false, Ordering::Release);
    moved
}

struct Source<'a> {
    session: &'a Arc<Session>,
    channel: &'a Channel,
}

impl Source<'_> {
    fn run(&self, wait: Duration, allocation_bytes_max: u64) -> Result<(), String> {
        if self.session.is_closed() {
            return Err("it has ended".into());
        }
        if let Some(obstacle) = self.session.obstacle() {
            return Err(obstacle);
        }
        let largest = self.session.largest_object();
        if largest > allocation_bytes_max {
            return Err(format!(
                "it has an object of {largest} bytes, and the device allows {allocation_bytes_max}"
            ));
        }
        limit(self.channel, PREPARE_MAX)?;
        let mut planned = self.send_plan()?;
        self.prepared()?;
        let room = match self.session.contents_bytes() {
            0 => None,
            bytes => Some(self.share(Room::new(bytes)?)?),
        };
        let copies = match &room {
            None => Copies::default(),
            Some(room) => {
                let (copies, state) = self.session.copy_ahead(room, wait, &planned);
                planned.extend(state.steps.iter().map(|step| step.number));
                self.send_part(&state)?;
                self.prepared()?;
                copies
            }
        };
        limit(self.channel, BUILD_MAX)?;
        let stopped_ns = monotonic_ns();
        let frozen = Frozen::stop(self.session, wait).map_err(|why| {
            format!(
                "{why} than the {} ms that a move may wait (--wait-ms)",
                wait.as_millis()
            )
        })?;
        // What has come since the first look.
        if let Some(obstacle) = self.session.obstacle() {
            frozen.resume();
            return Err(obstacle);
        }
        let sent = self.send_state(&frozen, (stopped_ns, &planned), room.as_ref(), copies);
        match sent.and_then(|()| self.started()) {
            Ok(()) => {
                frozen.forget();
                Ok(())
            }
            Err(reason) => {
                frozen.resume();
                Err(reason)
            }
        }
    }

    fn send(&self, message: &ToTarget, fds: &[BorrowedFd<'_>]) -> Result<(), String> {
        self.channel.send(message, fds).map_err(lost)
    }

    fn answer(&self) -> Result<ToSource, String> {
        match self.channel.receive() {
            Ok(Some((message, _))) => Ok(message),
            Ok(None) => Err("the other executor has ended, or given the session up".into()),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                Err("the other executor takes too long".into())
            }
            Err(e) => Err(lost(e)),
        }
    }

    /// Waits until the target has made what it can.
    fn prepared(&self) -> Result<(), String> {
        match self.answer()? {
            ToSource::Prepared => Ok(()),
            ToSource::Refused(reason) => Err(reason),
            ToSource::Started => Err("the other executor broke the protocol".into()),
        }
    }

    /// Sends what can be prepared; returns the numbers of its steps.
    fn send_plan(&self) -> Result<HashSet<u64>, String> {
        let plan = self.session.plan()?;
        let memory = self.session.memory.as_ref().ok_or("it has no segment")?;
        let mut bytes = Vec::new();
        encode(&plan, &mut bytes).map_err(|e| e.to_string())?;
        let file = file_of(&bytes).map_err(lost)?;
        let len = bytes.len() as u64;
        let fds = [file.as_fd(), self.session.socket(), memory.as_fd()];
        self.send(&ToTarget::Plan { len }, &fds)?;
        Ok(plan.steps.iter().map(|step| step.number).collect())
    }

    /// Sends room for contents.
    fn share(&self, room: Room) -> Result<Room, String> {
        let message = ToTarget::Contents { len: room.len };
        self.send(&message, &[room.fd.as_fd()])?;
        Ok(room)
    }

    fn send_state(
        &self,
        frozen: &Frozen,
        (stopped_ns, planned): (u64, &HashSet<u64>),
        room: Option<&Room>,
        copies: Copies,
    ) -> Result<(), String> {
        let pending = self.session.inbox.stop().map_err(lost)?;
        let exported = frozen.export(stopped_ns, planned, room, copies)?;
        let arenas = self.session.arenas.read();
        let arenas = arenas.expect("no panic under this lock").clone();
        let arenas: Vec<_> = arenas.into_iter().collect();
        for part in arenas.chunks(FDS_MAX) {
            let states = part.iter().map(|(id, arena)| ArenaState {
                arena: *id,
                offset: arena.offset,
                len: arena.len(),
            });
            let fds = part.iter().filter_map(|(_, arena)| arena.fd.as_ref());
            let fds: Vec<_> = fds.map(|fd| fd.as_fd()).collect();
            self.send(&ToTarget::Arenas(states.collect()), &fds)?;
        }
        for part in pending.chunks(FDS_MAX) {
            let fds: Vec<_> = part.iter().map(|fd| fd.as_fd()).collect();
            self.send(&ToTarget::Pending, &fds)?;
        }
        if let Some(room) = exported.room {
            self.share(room)?;
        }
        frozen.check()?;
        self.send_part(&exported.state)
    }

    fn send_part(&self, state: &State) -> Result<(), String> {
        let mut bytes = Vec::new();
        encode(state, &mut bytes).map_err(|e| e.to_string())?;
        let file = file_of(&bytes).map_err(lost)?;
        let len = bytes.len() as u64;
        self.send(&ToTarget::State { len }, &[file.as_fd()])
    }

    /// Whether the session has started at the target: decided once and for all.
    fn started(&self) -> Result<(), String> {
        let answer = self.answer();
        let answer = match answer {
            Err(reason) => {
                // The target cannot send after this; what it has sent before counts.
                let _ = rustix::net::shutdown(self.channel, Shutdown::Both);
                self.answer().map_err(|_| reason)
            }
            answer => answer,
        };
        match answer? {
            ToSource::Started => Ok(()),
            ToSource::Refused(reason) => Err(reason),
            ToSource::Prepared => Err("the other executor broke the protocol".into()),
        }
    }
}

/// A session that is built and has not started.
pub struct Import {
    frozen: Frozen,
    channel: Channel,
    stopped_ns: u64,
    /// Bytes of contents that were copied, and those of them that were copied while it is stopped.
    pub bytes: (u64, u64),
}

/// Takes a session over from the executor at the other end.
pub fn move_in(
    shared: Arc<Shared>,
    account: Arc<Account>,
    start: SessionStart,
    channel: Channel,
) -> Result<Import, String> {
    let mut made = None;
    let built = Target { channel: &channel }.build(shared, account, start, &mut made);
    match built {
        Ok((frozen, stopped_ns, bytes)) => Ok(Import {
            frozen,
            channel,
            stopped_ns,
            bytes,
        }),
        Err(reason) => {
            if let Some(session) = made {
                session.drop_unstarted();
            }
            // The source may have ended.
            let _ = channel.send(&ToSource::Refused(reason.clone()), &[]);
            Err(reason)
        }
    }
}

struct Target<'a> {
    channel: &'a Channel,
}

impl Target<'_> {
    fn receive(&self) -> Result<(ToTarget, Vec<OwnedFd>), String> {
        let message = self.channel.receive().map_err(lost)?;
        message.ok_or_else(|| "the other executor has ended, or changed its mind".into())
    }

    fn build(
        &self,
        shared: Arc<Shared>,
        account: Arc<Account>,
        mut start: SessionStart,
        made: &mut Option<Arc<Session>>,
    ) -> Result<(Frozen, u64, (u64, u64)), String> {
        limit(self.channel, PREPARE_MAX)?;
        let (ToTarget::Plan { len }, fds) = self.receive()? else {
            return Err("the other executor sends no plan".into());
        };
        let fds = <[OwnedFd; 3]>::try_from(fds);
        let [plan, socket, segment] = fds.map_err(|_| "a plan without its descriptors")?;
        let plan = bytes_of(&plan, len).map_err(lost)?;
        let plan = decode(&plan).map_err(|e| e.to_string())?;
        let plan: baltra_wire::moves::Plan = plan;
        start.flags.mirror = plan.mirror;
        let mut importer = Importer::new(shared, account, start, socket, segment)?;
        *made = Some(importer.session.clone());
        importer.prepare(&plan)?;
        self.channel.send(&ToSource::Prepared, &[]).map_err(lost)?;
        let mut contents = None;
        loop {
            let (message, fds) = self.receive()?;
            match message {
                ToTarget::Arenas(arenas) => importer.arenas(arenas, fds)?,
                ToTarget::Pending => importer.session.inbox.restore(fds),
                ToTarget::Contents { len } => {
                    let fd = fds.first().ok_or("contents without their descriptor")?;
                    let memory = Memory::map(fd, len).map_err(lost)?;
                    memory.populate();
                    contents = Some(memory);
                }
                ToTarget::State { len } => {
                    let fd = fds.first().ok_or("a state without its descriptor")?;
                    let state = bytes_of(fd, len).map_err(lost)?;
                    let state = decode(&state).map_err(|e| e.to_string())?;
                    let state: State = state;
                    if state.stopped_ns == 0 {
                        // The session still runs at the source.
                        importer.ahead(&state, contents.clone())?;
                        self.channel.send(&ToSource::Prepared, &[]).map_err(lost)?;
                        continue;
                    }
                    let (stopped_ns, bytes) = (state.stopped_ns, state.bytes);
                    let frozen = importer.finish(state, contents)?;
                    return Ok((frozen, stopped_ns, bytes));
                }
                ToTarget::Plan { .. } => return Err("a second plan".into()),
            }
        }
    }
}

impl Import {
    /// Starts the session, unless the source has changed its mind; `ended` is called with the reason
    /// once all resources of the session are freed. Returns the time during which it was stopped.
    pub fn start(
        self,
        ended: impl FnOnce(String) + Send + 'static,
    ) -> Result<(Arc<Session>, Duration), String> {
        let session = self.frozen.session.clone();
        if let Err(error) = session.serve(ended) {
            self.drop_it();
            return Err(format!("no thread for the session: {error}"));
        }
        if self.channel.send(&ToSource::Started, &[]).is_err() {
            // Its control thread frees it.
            self.frozen.forget();
            return Err("the other executor has ended, or changed its mind".into());
        }
        self.frozen.resume();
        let stopped_ns = monotonic_ns().saturating_sub(self.stopped_ns);
        Ok((session, Duration::from_nanos(stopped_ns)))
    }

    /// Drops the session, which the source then continues.
    pub fn drop_it(self) {
        let session = self.frozen.session.clone();
        drop(self.frozen);
        session.drop_unstarted();
    }
}
