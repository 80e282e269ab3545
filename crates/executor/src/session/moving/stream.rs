//! Contents on their way to the target: they are read into the window in batches, which the target
//! writes to its objects while the next one is read ([`Batches`]). While the session runs, each batch
//! is read in a turn of its tenant's, so that copies delay other tenants no longer than commands do
//! ([`Stream`]).

use super::super::objects::ObjectLocation;
use super::super::pinning::Pinning;
use super::super::residence::{Slice, Transfers};
use super::super::Session;
use super::channel::{answer, lost};
use super::export::Root;
use super::window::{transfers, Window, WindowUse};
use crate::account::Account;
use baltra_channel::Channel;
use baltra_ring::lease::monotonic_ns;
use baltra_ring::Range;
use baltra_wire::moves::{Part, ToSource, ToTarget, PARTS_MAX};
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

/// Bytes that one message announces at the most, unless a slice of an image is larger.
const BATCH_BYTES: u64 = 16 << 20;
/// Batches that the target has not taken, at the most: their answers fit into its socket.
const BATCHES_MAX: usize = 8;

/// Parts on their way to the target, of any origin.
pub(crate) struct Batches<'a> {
    channel: &'a Channel,
    window: Window,
    places: WindowUse,
    /// Ends of the batches that the target has not taken yet, oldest first.
    sent: VecDeque<u64>,
    /// Parts in the window that were not announced yet.
    parts: Vec<Part>,
    bytes: u64,
}

impl<'a> Batches<'a> {
    /// Makes a window for contents of that many bytes, with a largest slice, and sends it.
    pub fn open(
        channel: &'a Channel,
        pinning: Option<&Pinning>,
        (contents, slice): (u64, u64),
    ) -> Result<Batches<'a>, String> {
        let (window, fd) = Window::create(pinning, contents, slice)?;
        let message = ToTarget::Window { len: window.len };
        let sent = channel.send(&message, &[fd.as_fd()]);
        sent.map_err(lost)?;
        Ok(Batches {
            channel,
            places: WindowUse::new(window.len),
            window,
            sent: VecDeque::new(),
            parts: Vec::new(),
            bytes: 0,
        })
    }

    /// Whether the batch has to be sent before a part of `len` bytes.
    pub fn is_full(&self, len: u64) -> bool {
        self.parts.len() >= PARTS_MAX || self.bytes + len > BATCH_BYTES
    }

    /// A place in the window for a part; `None`: the target has to take a batch first.
    pub fn place(&mut self, len: u64) -> Result<Option<(u64, Range)>, String> {
        let Some(offset) = self.places.take(len) else {
            return Ok(None);
        };
        let host = self.window.slice(offset, len);
        let host = host.ok_or("a part outside the window")?;
        Ok(Some((offset, host)))
    }

    /// Adds a part that is in its place.
    pub fn add(&mut self, part: Part) {
        self.bytes += part.len;
        self.parts.push(part);
    }

    /// Announces the batch to the target.
    pub fn send(&mut self) -> Result<(), String> {
        if self.parts.is_empty() {
            return Ok(());
        }
        let parts = std::mem::take(&mut self.parts);
        self.bytes = 0;
        self.sent.push_back(self.places.end());
        let sent = self.channel.send(&ToTarget::Parts(parts), &[]);
        sent.map_err(|error| self.refusal().unwrap_or_else(|| lost(error)))?;
        while self.sent.len() >= BATCHES_MAX {
            self.take_answer()?;
        }
        Ok(())
    }

    /// The reason for which the target has closed the connection, if it has sent one.
    fn refusal(&self) -> Option<String> {
        loop {
            match answer(self.channel).ok()? {
                ToSource::Refused(reason) => return Some(reason),
                ToSource::Taken => {}
                ToSource::Prepared | ToSource::Started => return None,
            }
        }
    }

    /// Waits until the target has taken the oldest batch.
    pub fn take_answer(&mut self) -> Result<(), String> {
        let end = self.sent.pop_front();
        let end = end.ok_or("a part that is larger than the window")?;
        match answer(self.channel)? {
            ToSource::Taken => {
                self.places.free(end);
                Ok(())
            }
            ToSource::Refused(reason) => Err(reason),
            ToSource::Prepared | ToSource::Started => {
                Err("the other executor broke the protocol".into())
            }
        }
    }

    /// Sends the rest, and waits until the target has taken everything.
    pub fn finish(&mut self) -> Result<(), String> {
        self.send()?;
        while !self.sent.is_empty() {
            self.take_answer()?;
        }
        Ok(())
    }
}

/// A tenant's turn at the device.
struct Turn(Arc<Account>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.lease.advance(monotonic_ns());
        self.0.lease.release();
    }
}

/// The sending end of an executor.
pub(super) struct Stream<'a> {
    session: &'a Arc<Session>,
    /// Dropped before the turn and the window.
    transfers: Transfers,
    /// Held while a batch is read.
    turn: Option<Turn>,
    /// Whether copies take turns: the session runs.
    pub takes_turns: bool,
    batches: Batches<'a>,
    /// Time at which sending is given up.
    pub until: Instant,
}

impl<'a> Stream<'a> {
    /// Makes a window for contents of that many bytes, with a largest slice, and sends it.
    pub fn open(
        session: &'a Arc<Session>,
        channel: &'a Channel,
        sizes: (u64, u64),
        until: Instant,
    ) -> Result<Stream<'a>, String> {
        let shared = &session.shared;
        Ok(Stream {
            session,
            batches: Batches::open(channel, shared.pinning.as_ref(), sizes)?,
            transfers: transfers(shared)?,
            turn: None,
            takes_turns: false,
            until,
        })
    }

    /// Whether slices of that many bytes fit.
    pub fn takes(&self, slice: u64) -> bool {
        slice <= self.batches.window.len
    }

    /// Sends the contents of an object; returns how many bytes it has. One that was never written
    /// has none.
    pub fn send(&mut self, root: &Root) -> Result<u64, String> {
        if !root.has_contents() {
            return Ok(0);
        }
        let (bytes, unit) = (root.shape.bytes(), root.shape.unit());
        let window = self.batches.window.len;
        let most = (BATCH_BYTES.min(window / 2) / unit).max(1) * unit;
        let mut start = 0;
        while start < bytes {
            let len = most.min(bytes - start);
            if self.batches.is_full(len) {
                self.send_batch()?;
            }
            let (offset, host) = self.place(len)?;
            self.take_turn()?;
            let part = Slice { start, len };
            let read = match &root.memory.place {
                ObjectLocation::Movable(object) => object.export(&mut self.transfers, part, &host),
                ObjectLocation::Fixed(mem) => {
                    self.transfers.add(mem, &root.shape, true, part, &host)
                }
                ObjectLocation::Part(_) => return Ok(0),
            };
            read.map_err(|code| format!("object {} cannot be read (error {code})", root.id))?;
            self.batches.add(Part {
                id: root.id,
                start,
                len,
                offset,
            });
            start += len;
        }
        Ok(bytes)
    }

    /// Waits for the tenant's turn, unless this batch has it.
    fn take_turn(&mut self) -> Result<(), String> {
        if !self.takes_turns || self.turn.is_some() {
            return Ok(());
        }
        let account = &self.session.account;
        let is_over = || self.session.is_closed() || Instant::now() >= self.until;
        if !account.lease.acquire_unless(is_over) {
            return Err("the device was too busy to copy its contents".into());
        }
        self.turn = Some(Turn(account.clone()));
        Ok(())
    }

    /// A place in the window, once the target has taken enough.
    fn place(&mut self, len: u64) -> Result<(u64, Range), String> {
        loop {
            if let Some(place) = self.batches.place(len)? {
                return Ok(place);
            }
            self.send_batch()?;
            self.batches.take_answer()?;
        }
    }

    /// Sends what was read.
    fn send_batch(&mut self) -> Result<(), String> {
        if self.batches.parts.is_empty() {
            return Ok(());
        }
        if self.session.is_closed() {
            return Err("the session has ended".into());
        }
        if Instant::now() >= self.until {
            return Err("copying its contents takes too long".into());
        }
        let read = self.transfers.wait();
        self.turn = None;
        read.map_err(|code| format!("its contents cannot be read (error {code})"))?;
        self.batches.send()
    }

    /// Sends the rest, and waits until the target has taken everything.
    pub fn finish(&mut self) -> Result<(), String> {
        self.send_batch()?;
        self.batches.finish()
    }
}
