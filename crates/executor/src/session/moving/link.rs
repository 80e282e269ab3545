//! Both ends of a move.
//!
//! A session with contents sends a state twice: of the objects that are copied while it runs, with
//! no time of its stop, which the target answers as it answers the plan; and of everything else.

use super::super::freeze::Frozen;
use super::super::residence::Transfers;
use super::super::Session;
use super::ahead::Copies;
use super::channel::{answer, limit, lost};
use super::export::{largest_slice, Root};
use super::import::{Importer, PreparedSession};
use super::stream::Stream;
use super::window::Window;
use super::{bytes_of, file_of};
use crate::account::Account;
use crate::shared::Shared;
use baltra_channel::Channel;
use baltra_ring::lease::monotonic_ns;
use baltra_ring::Unpoisoned;
use baltra_wire::executor::SessionStart;
use baltra_wire::moves::{ArenaState, State, ToSource, ToTarget, FDS_MAX};
use baltra_wire::{decode, encode};
use rustix::net::Shutdown;
use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The target may build programs for this long while the session runs.
pub(crate) const PREPARE_MAX: Duration = Duration::from_secs(25);
/// The first copy may take this long.
const AHEAD_MAX: Duration = Duration::from_secs(40);
/// The target may make the rest for this long, and contents may be copied for as long, while the
/// session is stopped.
pub(crate) const BUILD_MAX: Duration = Duration::from_secs(15);
/// Each of both copies may take this long if the target writes them to a disk.
const DISK_MAX: Duration = Duration::from_secs(240);

/// The limits that the manager sets for a move.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Maximum time of commands in flight.
    pub wait: Duration,
    /// The largest allocation of the other device, bytes.
    pub allocation_bytes_max: u64,
    /// The target writes the session to a disk.
    pub is_to_disk: bool,
    /// The target is asked before the session stops.
    pub asks: bool,
}

/// Moves a session to the executor at the other end; on an error it continues here, or has ended.
pub fn move_out(session: &Arc<Session>, channel: &Channel, terms: Terms) -> Result<(), String> {
    if session.is_moving.swap(true, Ordering::AcqRel) {
        return Err("it is being moved already".into());
    }
    let moved = Source { session, channel }.run(terms);
    session.tracker.stop();
    session.is_moving.store(false, Ordering::Release);
    moved
}

struct Source<'a> {
    session: &'a Arc<Session>,
    channel: &'a Channel,
}

impl Source<'_> {
    fn run(&self, terms: Terms) -> Result<(), String> {
        let Terms {
            wait,
            allocation_bytes_max,
            is_to_disk,
            asks,
        } = terms;
        let (ahead_max, rest_max) = if is_to_disk {
            (DISK_MAX, DISK_MAX)
        } else {
            (AHEAD_MAX, BUILD_MAX)
        };
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
        let mut copies = Copies::default();
        let mut stream = self.copy_ahead((wait, ahead_max), &mut planned, &mut copies)?;
        limit(self.channel, BUILD_MAX)?;
        if asks {
            self.send(&ToTarget::Stopping, &[])?;
            self.prepared()?;
        }
        let stopped_ns = monotonic_ns();
        let frozen = Frozen::stop(self.session, wait)?;
        // An obstacle may have come since the first look.
        if let Some(obstacle) = self.session.obstacle() {
            frozen.resume();
            return Err(obstacle);
        }
        let until = Instant::now() + rest_max;
        let sent = self.send_rest(&frozen, (stopped_ns, until), &planned, &mut stream, copies);
        match sent.and_then(|()| started(self.channel)) {
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

    /// Makes objects at the target, and copies their contents, while the session runs.
    fn copy_ahead(
        &self,
        (wait, most): (Duration, Duration),
        planned: &mut HashSet<u64>,
        copies: &mut Copies,
    ) -> Result<Option<Stream<'_>>, String> {
        let (roots, state) = self.session.begin_ahead()?;
        if roots.is_empty() {
            return Ok(None);
        }
        let mut stream = self.stream(&roots, Instant::now() + most)?;
        stream.takes_turns = true;
        planned.extend(state.steps.iter().map(|step| step.number));
        self.send_part(&state)?;
        self.prepared()?;
        self.session.copy_ahead(&mut stream, &roots, wait, copies)?;
        Ok(Some(stream))
    }

    fn stream(&self, roots: &[Root], until: Instant) -> Result<Stream<'_>, String> {
        let bytes = roots.iter().map(|root| root.shape.bytes());
        let bytes = bytes.fold(0, u64::saturating_add);
        let sizes = (bytes, largest_slice(roots));
        Stream::open(self.session, self.channel, sizes, until)
    }

    /// Waits until the target has made what it can.
    fn prepared(&self) -> Result<(), String> {
        match answer(self.channel)? {
            ToSource::Prepared => Ok(()),
            ToSource::Refused(reason) => Err(reason),
            ToSource::Started | ToSource::Taken => {
                Err("the other executor broke the protocol".into())
            }
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

    /// Sends everything that the target has not received yet.
    fn send_rest(
        &self,
        frozen: &Frozen,
        (stopped_ns, until): (u64, Instant),
        planned: &HashSet<u64>,
        stream: &mut Option<Stream<'_>>,
        mut copies: Copies,
    ) -> Result<(), String> {
        let pending = self.session.inbox.stop().map_err(lost)?;
        let (state, mut roots) = frozen.export(stopped_ns, planned)?;
        self.send_arenas(pending)?;
        self.send_part(&state)?;
        for number in self.session.tracker.take() {
            copies.current.remove(&number);
        }
        roots.retain(|root| !copies.current.contains(&root.memory.number));
        let mut stopped_bytes = 0;
        if !roots.is_empty() {
            let slice = largest_slice(&roots);
            let former = stream.take().filter(|stream| stream.takes(slice));
            let mut stream = match former {
                Some(stream) => stream,
                None => self.stream(&roots, until)?,
            };
            (stream.until, stream.takes_turns) = (until, false);
            for root in &roots {
                stopped_bytes += stream.send(root)?;
            }
            stream.finish()?;
        }
        frozen.check()?;
        let bytes = (copies.bytes + stopped_bytes, stopped_bytes);
        self.send(&ToTarget::Complete { bytes }, &[])
    }

    fn send_arenas(&self, pending: Vec<OwnedFd>) -> Result<(), String> {
        let arenas = self.session.arenas.read();
        let arenas = arenas.unpoisoned().clone();
        let arenas: Vec<_> = arenas.into_iter().collect();
        for part in arenas.chunks(FDS_MAX) {
            let states = part.iter().map(|(id, arena)| ArenaState {
                arena: *id,
                offset: arena.offset,
                len: arena.len(),
            });
            let fds: Vec<_> = part.iter().map(|(_, arena)| arena.fd.as_fd()).collect();
            self.send(&ToTarget::Arenas(states.collect()), &fds)?;
        }
        for part in pending.chunks(FDS_MAX) {
            let fds: Vec<_> = part.iter().map(|fd| fd.as_fd()).collect();
            self.send(&ToTarget::Pending, &fds)?;
        }
        Ok(())
    }

    fn send_part(&self, state: &State) -> Result<(), String> {
        let mut bytes = Vec::new();
        encode(state, &mut bytes).map_err(|e| e.to_string())?;
        let file = file_of(&bytes).map_err(lost)?;
        let len = bytes.len() as u64;
        self.send(&ToTarget::State { len }, &[file.as_fd()])
    }
}

/// Whether the session has started at the target. The decision is final.
pub(crate) fn started(channel: &Channel) -> Result<(), String> {
    let first = answer(channel);
    let decision = match first {
        Err(reason) => {
            // The target cannot send after this; what it has sent before counts.
            let _ = rustix::net::shutdown(channel, Shutdown::Both);
            answer(channel).map_err(|_| reason)
        }
        first => first,
    };
    match decision? {
        ToSource::Started => Ok(()),
        ToSource::Refused(reason) => Err(reason),
        ToSource::Prepared | ToSource::Taken => Err("the other executor broke the protocol".into()),
    }
}

/// The cost of a move.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Bytes of contents that were copied, and those of them that were copied while it is stopped.
    pub bytes: (u64, u64),
    /// Objects that were made or written at the target while it is stopped.
    pub stopped_objects: u64,
}

/// A session that is built and has not started.
pub struct Import {
    frozen: Frozen,
    channel: Channel,
    stopped_ns: u64,
    /// The cost so far.
    pub cost: Cost,
    window: Option<(Transfers, Window)>,
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
        Ok(Complete {
            frozen,
            stopped_ns,
            cost,
            window,
        }) => Ok(Import {
            frozen,
            channel,
            stopped_ns,
            cost,
            window,
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

/// A session that is built.
struct Complete {
    frozen: Frozen,
    stopped_ns: u64,
    cost: Cost,
    window: Option<(Transfers, Window)>,
}

/// The source's next message.
pub(crate) fn receive(channel: &Channel) -> Result<(ToTarget, Vec<OwnedFd>), String> {
    let message = channel.receive().map_err(lost)?;
    message.ok_or_else(|| "the other executor has ended, or changed its mind".into())
}

struct Target<'a> {
    channel: &'a Channel,
}

impl Target<'_> {
    fn build(
        &self,
        shared: Arc<Shared>,
        account: Arc<Account>,
        mut start: SessionStart,
        made: &mut Option<Arc<Session>>,
    ) -> Result<Complete, String> {
        limit(self.channel, PREPARE_MAX)?;
        let (ToTarget::Plan { len }, fds) = receive(self.channel)? else {
            return Err("the other executor sends no plan".into());
        };
        let fds = <[OwnedFd; 3]>::try_from(fds);
        let [plan, socket, segment] = fds.map_err(|_| "plan lacks its descriptors")?;
        let plan = bytes_of(&plan, len).map_err(lost)?;
        let plan = decode(&plan).map_err(|e| e.to_string())?;
        let plan: baltra_wire::moves::Plan = plan;
        start.flags.mirror = plan.mirror;
        let mut importer = Importer::new(shared, account, start, socket, segment)?;
        *made = Some(importer.session.clone());
        importer.prepare(&plan)?;
        self.channel.send(&ToSource::Prepared, &[]).map_err(lost)?;
        self.receive_rest(importer)
    }

    fn receive_rest(&self, mut importer: Importer) -> Result<Complete, String> {
        let mut stopped: Option<(u64, PreparedSession)> = None;
        loop {
            let (message, fds) = receive(self.channel)?;
            match message {
                ToTarget::Arenas(arenas) => importer.arenas(arenas, fds)?,
                ToTarget::Pending => importer.session.inbox.restore(fds),
                ToTarget::Window { len } => {
                    let fd = fds.first().ok_or("window lacks its descriptor")?;
                    importer.window(fd, len)?;
                }
                ToTarget::Parts(parts) => {
                    importer.write(&parts)?;
                    self.channel.send(&ToSource::Taken, &[]).map_err(lost)?;
                }
                ToTarget::State { len } => {
                    let fd = fds.first().ok_or("state lacks its descriptor")?;
                    let state = bytes_of(fd, len).map_err(lost)?;
                    let state = decode(&state).map_err(|e| e.to_string())?;
                    let state: State = state;
                    if stopped.is_some() {
                        return Err("a second state".into());
                    }
                    if state.stopped_ns == 0 {
                        // The session still runs at the source.
                        importer.ahead(&state)?;
                        self.channel.send(&ToSource::Prepared, &[]).map_err(lost)?;
                    } else {
                        stopped = Some((state.stopped_ns, importer.make(state)?));
                    }
                }
                ToTarget::Complete { bytes } => {
                    let (stopped_ns, made) = stopped.ok_or("end of the session lacks its state")?;
                    let cost = Cost {
                        bytes,
                        stopped_objects: importer.stopped_objects(),
                    };
                    let window = importer.window.take();
                    let frozen = importer.finish(made)?;
                    return Ok(Complete {
                        frozen,
                        stopped_ns,
                        cost,
                        window,
                    });
                }
                ToTarget::Plan { .. } => return Err("a second plan".into()),
                ToTarget::Stopping => return Err("a question that only a relay answers".into()),
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
        // Unpinning and unmapping take milliseconds. Without a thread, this one does it.
        let window = self.window;
        let _ = std::thread::Builder::new().spawn(move || drop(window));
        Ok((session, Duration::from_nanos(stopped_ns)))
    }

    /// Drops the session, which the source then continues.
    pub fn drop_it(self) {
        let session = self.frozen.session.clone();
        drop(self.frozen);
        session.drop_unstarted();
    }
}
