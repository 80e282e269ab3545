//! The target's end of a move to a keeper.

use super::storage::{FilePart, Storage};
use crate::session::moving::bytes_of;
use crate::session::moving::channel::{limit, lost};
use crate::session::moving::link::{receive, Cost, PREPARE_MAX};
use baltra_channel::Channel;
use baltra_ring::Memory;
use baltra_wire::decode;
use baltra_wire::moves::{ArenaState, Part, Plan, State, ToSource, ToTarget};
use baltra_wire::Id;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;

/// Maximum number of parts. An executor sends parts of 16 MiB, and the rest of each object.
const PARTS_MAX: usize = 4 << 20;

/// A message of that many bytes in a file.
pub struct Blob {
    pub fd: OwnedFd,
    pub len: u64,
}

/// A session that is stored.
pub struct Stored {
    pub socket: OwnedFd,
    pub segment: OwnedFd,
    pub plan: Blob,
    /// The objects that were copied before the stop, and their contents as far as they were not
    /// copied again. The target gets them before the state: objects of these may have ended since,
    /// and their ids name others.
    pub ahead: Option<Blob>,
    pub ahead_contents: Contents,
    pub state: Blob,
    pub arenas: Vec<(Vec<ArenaState>, Vec<OwnedFd>)>,
    pub pending: Vec<Vec<OwnedFd>>,
    /// Contents that were copied after the stop.
    pub contents: Contents,
    pub storage: Storage,
    /// When the session stopped, `CLOCK_MONOTONIC` nanoseconds.
    pub stopped_ns: u64,
    pub cost: Cost,
    /// Number of its queues.
    pub queues: u32,
    /// The facts that its program has read, if it has reported them.
    pub facts: Option<u64>,
}

/// The contents of objects, by the begin of each part.
pub type Contents = BTreeMap<Id, BTreeMap<u64, FilePart>>;

/// Stores the session at the other end. It continues there unless [`ToSource::Started`] follows.
pub fn store(source: &Channel, file: File, bytes_max: u64) -> Result<Stored, String> {
    let stored = receive_all(source, Storage::new(file, bytes_max));
    if let Err(reason) = &stored {
        // The source may have ended.
        let _ = source.send(&ToSource::Refused(reason.clone()), &[]);
    }
    stored
}

fn first(fds: Vec<OwnedFd>) -> Result<OwnedFd, String> {
    let fd = fds.into_iter().next();
    fd.ok_or_else(|| "message lacks its descriptor".into())
}

/// Receives the records after the plan.
struct Receiver {
    storage: Storage,
    window: Option<Memory>,
    ahead: Option<Blob>,
    ahead_contents: Contents,
    /// With the time of the stop, and the number of queues.
    state: Option<(Blob, u64, u32)>,
    arenas: Vec<(Vec<ArenaState>, Vec<OwnedFd>)>,
    pending: Vec<Vec<OwnedFd>>,
    contents: Contents,
    /// Places of an object whose contents are copied again.
    spare: BTreeMap<u64, FilePart>,
    /// Number of all parts.
    parts: usize,
}

fn receive_all(source: &Channel, storage: Storage) -> Result<Stored, String> {
    limit(source, PREPARE_MAX)?;
    let answer = |message| source.send(&message, &[]).map_err(lost);
    let (ToTarget::Plan { len }, fds) = receive(source)? else {
        return Err("the other executor sends no plan".into());
    };
    let fds = <[OwnedFd; 3]>::try_from(fds);
    let [plan, socket, segment] = fds.map_err(|_| "plan lacks its descriptors")?;
    let bytes = bytes_of(&plan, len).map_err(lost)?;
    let facts = decode::<Plan>(&bytes).map_err(|e| e.to_string())?.facts;
    answer(ToSource::Prepared)?;
    let mut receiver = Receiver {
        storage,
        window: None,
        ahead: None,
        ahead_contents: Contents::new(),
        state: None,
        arenas: Vec::new(),
        pending: Vec::new(),
        contents: Contents::new(),
        spare: BTreeMap::new(),
        parts: 0,
    };
    loop {
        let (message, fds) = receive(source)?;
        match message {
            ToTarget::Arenas(arenas) if arenas.len() == fds.len() && !fds.is_empty() => {
                receiver.arenas.push((arenas, fds));
            }
            ToTarget::Pending if !fds.is_empty() => receiver.pending.push(fds),
            ToTarget::Window { len } => {
                let fd = first(fds)?;
                receiver.window = Some(Memory::map(&fd, len).map_err(lost)?);
            }
            ToTarget::Parts(parts) => {
                parts
                    .into_iter()
                    .try_for_each(|part| receiver.write(part))?;
                receiver.storage.write_back()?;
                answer(ToSource::Taken)?;
            }
            ToTarget::State { len } => {
                if receiver.take_state(first(fds)?, len)? {
                    answer(ToSource::Prepared)?;
                }
            }
            ToTarget::Complete { bytes } => {
                receiver.storage.sync()?;
                let state = receiver.state.ok_or("end of the session lacks its state")?;
                let (state, stopped_ns, queues) = state;
                return Ok(Stored {
                    socket,
                    segment,
                    plan: Blob { fd: plan, len },
                    ahead: receiver.ahead,
                    ahead_contents: receiver.ahead_contents,
                    state,
                    arenas: receiver.arenas,
                    pending: receiver.pending,
                    contents: receiver.contents,
                    storage: receiver.storage,
                    stopped_ns,
                    cost: Cost {
                        bytes,
                        stopped_objects: 0,
                    },
                    queues,
                    facts,
                });
            }
            ToTarget::Plan { .. }
            | ToTarget::Arenas(_)
            | ToTarget::Pending
            | ToTarget::Stopping => {
                return Err("the other executor broke the protocol".into());
            }
        }
    }
}

impl Receiver {
    /// Keeps a state; returns whether the session still runs, so that the source waits for an
    /// answer.
    fn take_state(&mut self, fd: OwnedFd, len: u64) -> Result<bool, String> {
        if self.state.is_some() {
            return Err("a second state".into());
        }
        let bytes = bytes_of(&fd, len).map_err(lost)?;
        let state: State = decode(&bytes).map_err(|e| e.to_string())?;
        let blob = Blob { fd, len };
        let runs = state.stopped_ns == 0;
        if !runs {
            self.state = Some((blob, state.stopped_ns, state.queues.len() as u32));
            self.ahead_contents = std::mem::take(&mut self.contents);
        } else if self.ahead.is_none() {
            self.ahead = Some(blob);
        } else {
            return Err("a second state of the running session".into());
        }
        Ok(runs)
    }

    /// Stores a part; an object's parts are sent from its begin, and each time all of them.
    fn write(&mut self, part: Part) -> Result<(), String> {
        let window = self.window.as_ref().ok_or("contents without a window")?;
        let range = window.slice(part.offset, part.len);
        let range = range.filter(|range| !range.is_empty());
        let range = range.ok_or("contents outside the window")?;
        let mut bytes = vec![0; range.len()];
        range.copy_out(0, &mut bytes);
        let is_first = !self.contents.contains_key(&part.id);
        if is_first {
            // Copied before the stop: only what comes now counts.
            self.spare = self.ahead_contents.remove(&part.id).unwrap_or_default();
            self.parts -= self.spare.len();
        }
        let own = self.contents.entry(part.id).or_default();
        if own
            .get(&part.start)
            .is_some_and(|former| former.len != part.len)
        {
            // Divided in another way than before.
            self.parts -= own.len();
            own.clear();
        }
        let former = own.get(&part.start).copied();
        let former = former.or_else(|| self.spare.remove(&part.start));
        if self.parts >= PARTS_MAX {
            return Err(format!("its contents have more than {PARTS_MAX} parts"));
        }
        let place = self.storage.write(&bytes, former)?;
        self.parts += usize::from(own.insert(part.start, place).is_none());
        Ok(())
    }
}
