//! Sends frames on a stream and keeps them until the peer has acknowledged them.
//!
//! Frames are collected in segments: many small frames, or one frame with its payload, which stays
//! in shared memory and is referred to by its range. A segment is freed when its last frame has
//! been acknowledged. After a broken connection, sending restarts at the first frame that the peer
//! has not received. Before a payload's bytes may change, the caller calls [`Outbox::detach`],
//! which copies those that are still needed. Of a payload that is divided over subflows, this
//! connection has the first part.

use super::frame::{Head, Kind, Violation, HEAD_BYTES};
use super::stream::Stream;
use super::subflows::{part, Subflows};
use crate::client::Block;
use baltra_ring::io::{Part, PARTS_MAX};
use baltra_ring::{Locked, Range};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// A segment of small frames is full from this size on.
const SEGMENT_BYTES: usize = 32 << 10;
/// Emptied segments kept for reuse.
const SPARE_MAX: usize = 8;
/// Above this number of unacknowledged frames or payload bytes an acknowledgement is sent on its
/// own instead of with the next frame.
const ACK_FRAMES: u64 = 256;
const ACK_BYTES: u64 = 1 << 20;
/// Above this number of unacknowledged message bytes the peer counts as faulty.
const KEPT_BYTES_MAX: usize = 512 << 20;

/// The payload of a frame.
pub(crate) enum Payload {
    /// In its owner's memory, which is unchanged until the frame has been acknowledged.
    Lent(Range),
    /// In a staging block, which is freed once it has been acknowledged.
    Staged(Block),
    /// In a buffer, which is unchanged until [`Outbox::detach`] is called.
    InPlace { range: Range, _keep: Arc<Block> },
    /// A copy.
    Own(Vec<u8>),
}

impl Payload {
    pub fn len(&self) -> usize {
        match self {
            Payload::Lent(range) | Payload::InPlace { range, .. } => range.len(),
            Payload::Staged(block) => block.len(),
            Payload::Own(bytes) => bytes.len(),
        }
    }

    /// Its place in shared memory; `None`: it is a copy.
    fn range(&self) -> Option<&Range> {
        match self {
            Payload::Lent(range) | Payload::InPlace { range, .. } => Some(range),
            Payload::Staged(block) => Some(block.range()),
            Payload::Own(_) => None,
        }
    }
}

struct Segment {
    bytes: Vec<u8>,
    payload: Option<Payload>,
    /// The payload's first part, if it is divided over subflows.
    first: Option<Range>,
    /// The number of its last counted frame.
    last: u64,
    /// Place of its last frame's header in `bytes`.
    head_at: usize,
}

impl Segment {
    /// Bytes that are sent on the session's connection.
    fn len(&self) -> usize {
        self.bytes.len() + self.payload_len()
    }

    /// Bytes of the payload that are sent on the session's connection.
    fn payload_len(&self) -> usize {
        match (&self.first, &self.payload) {
            (Some(first), _) => first.len(),
            (None, payload) => payload.as_ref().map_or(0, Payload::len),
        }
    }

    /// The payload's bytes for this connection, from this one on.
    fn payload_part(&self, from: usize) -> Option<Part<'_>> {
        let len = self.payload_len();
        let payload = self.payload.as_ref().filter(|_| from < len)?;
        Some(match (payload, &self.first) {
            (Payload::Own(bytes), _) => Part::Bytes(&bytes[from..len]),
            (_, Some(first)) => Part::Shared(first, from),
            (payload, None) => Part::Shared(payload.range()?, from),
        })
    }

    /// Has the payload follow the frame as a whole.
    fn rejoin(&mut self) {
        if self.first.take().is_some() {
            let head = &mut self.bytes[self.head_at..self.head_at + HEAD_BYTES];
            let bytes: [u8; HEAD_BYTES] = head.try_into().expect("a head");
            let whole = Head::from_bytes(&bytes).map(|h| Head { subflows: 0, ..h });
            head.copy_from_slice(&whole.expect("our own").to_bytes());
        }
    }

    /// Bytes of this process's memory that it uses until it is acknowledged.
    fn kept(&self) -> usize {
        let own = match &self.payload {
            Some(Payload::Own(bytes)) => bytes.len(),
            _ => 0,
        };
        self.bytes.len() + own
    }
}

/// Frames to send.
pub(crate) struct Outbox {
    stream: Option<Arc<Stream>>,
    /// The connection's subflows, once they have been offered.
    subflows: Option<Arc<Subflows>>,
    segments: VecDeque<Segment>,
    /// Index of the first segment that is not completely sent, and the number of its sent bytes.
    next: usize,
    at: usize,
    /// Numbers of frames pushed, and of frames that the peer has.
    pushed: u64,
    acked: u64,
    /// The highest received count that was sent to the peer.
    ack_sent: u64,
    unsent: usize,
    kept: usize,
    /// Total size of the payloads in buffers.
    in_place: usize,
    closed: bool,
    spare: Vec<Vec<u8>>,
    /// Whether sending failed with a reset, which the kernel reports only once, here or to the
    /// reading thread.
    reset: bool,
}

/// The result of flushing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// Everything has been written to the socket.
    All,
    /// The socket's buffer is full.
    Stalled,
    /// There is no connection.
    Down,
}

/// Counts of both directions, and the outgoing frames.
pub(crate) struct Link {
    outbox: Mutex<Outbox>,
    received: AtomicU64,
    /// The outbox's counts, readable without its lock.
    acked: AtomicU64,
    in_place: AtomicUsize,
    kept: AtomicUsize,
    /// Payload bytes received since the last acknowledgement.
    unacked_bytes: AtomicU64,
}

impl Link {
    /// A link for a new session's stream.
    pub fn new(stream: Arc<Stream>) -> Link {
        Link {
            outbox: Mutex::new(Outbox {
                stream: Some(stream),
                subflows: None,
                segments: VecDeque::new(),
                next: 0,
                at: 0,
                pushed: 0,
                acked: 0,
                ack_sent: 0,
                unsent: 0,
                kept: 0,
                in_place: 0,
                closed: false,
                spare: Vec::new(),
                reset: false,
            }),
            received: 0.into(),
            acked: 0.into(),
            in_place: 0.into(),
            kept: 0.into(),
            unacked_bytes: 0.into(),
        }
    }

    /// The outgoing side, for pushing frames and flushing.
    pub fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.locked()
    }

    /// Number of counted frames received and processed.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Acquire)
    }

    /// Counts a frame as processed; its `head.ack` must have been passed to [`Link::acked`] before.
    pub fn count(&self, head: &Head) {
        if head.counts() {
            self.received.fetch_add(1, Ordering::AcqRel);
            let bytes = u64::from(head.payload);
            self.unacked_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Records that the peer has received this number of frames (low half of the count).
    pub fn acked(&self, ack: u32) -> Result<(), Violation> {
        let mut outbox = self.outbox();
        outbox.acked(ack)?;
        self.mirror(&outbox);
        Ok(())
    }

    fn mirror(&self, outbox: &Outbox) {
        self.acked.store(outbox.acked, Ordering::Release);
        self.in_place.store(outbox.in_place, Ordering::Release);
        self.kept.store(outbox.kept, Ordering::Release);
    }

    /// Number of frames that the peer has acknowledged.
    pub fn arrived(&self) -> u64 {
        self.acked.load(Ordering::Acquire)
    }

    /// Number of payload bytes in buffers that have not been acknowledged.
    pub fn in_place(&self) -> usize {
        self.in_place.load(Ordering::Acquire)
    }

    /// Number of message and copied payload bytes that have not been acknowledged.
    pub fn copies(&self) -> usize {
        self.kept.load(Ordering::Acquire)
    }

    /// Allows bytes in buffers to change from now on.
    pub fn detach(&self) {
        if self.in_place() != 0 {
            let mut outbox = self.outbox();
            outbox.detach();
            self.mirror(&outbox);
        }
    }

    /// Pushes a separate acknowledgement if one is due; returns whether it was.
    pub fn acknowledge(&self, outbox: &mut Outbox) -> bool {
        let received = self.received();
        let due = received - outbox.ack_sent >= ACK_FRAMES
            || (received > outbox.ack_sent
                && self.unacked_bytes.load(Ordering::Relaxed) >= ACK_BYTES);
        if due {
            outbox.push(self, Kind::Ack, 0, &[], None);
        }
        due
    }

    /// Whether [`Link::acknowledge`] may have something to do; cheap.
    pub fn may_acknowledge(&self) -> bool {
        self.unacked_bytes.load(Ordering::Relaxed) >= ACK_BYTES
            || self.received() & (ACK_FRAMES / 4 - 1) == 0
    }

    /// Records that the connection broke: frames are only kept from now on.
    pub fn down(&self) {
        let mut outbox = self.outbox();
        outbox.end_subflows();
        if let Some(stream) = outbox.stream.take() {
            stream.shutdown();
        }
    }

    /// The connection's subflows with this tag.
    pub fn subflows(&self, tag: u64) -> Option<Arc<Subflows>> {
        self.any_subflows().filter(|s| s.tag() == tag)
    }

    /// The connection's subflows.
    pub fn any_subflows(&self) -> Option<Arc<Subflows>> {
        self.outbox().subflows.clone()
    }

    /// Like [`Link::down`], permanently: after it returns, payloads are no longer accessed.
    pub fn close(&self) {
        self.outbox().closed = true;
        self.down();
    }

    /// Whether sending found that the peer had reset the last connection.
    pub fn was_reset(&self) -> bool {
        self.outbox().reset
    }

    /// Continues on another connection, whose peer has `received` frames.
    pub fn resume(&self, stream: Arc<Stream>, received: u64) -> Result<(), Violation> {
        let mut outbox = self.outbox();
        if outbox.closed {
            return Err(Violation::new("the session has ended"));
        }
        if received < outbox.acked || received > outbox.pushed {
            return Err(Violation(format!(
                "{received} frames reported as received, but {} were sent",
                outbox.pushed
            )));
        }
        outbox.acked = received;
        outbox.next = 0;
        outbox.at = 0;
        outbox.end_subflows();
        outbox.segments.iter_mut().for_each(Segment::rejoin);
        outbox.drop_acked(true);
        outbox.skip_received(received);
        outbox.unsent = outbox.segments.iter().map(Segment::len).sum::<usize>() - outbox.at;
        // The handshake contained the count.
        outbox.ack_sent = self.received();
        outbox.stream = Some(stream);
        outbox.reset = false;
        self.mirror(&outbox);
        Ok(())
    }
}

impl Outbox {
    /// Appends a frame.
    pub fn push(
        &mut self,
        link: &Link,
        kind: Kind,
        queue: u32,
        message: &[u8],
        payload: Option<Payload>,
    ) {
        let received = link.received();
        self.ack_sent = received;
        link.unacked_bytes.store(0, Ordering::Relaxed);
        let divided = self.division(payload.as_ref());
        let head = Head {
            kind,
            subflows: divided.as_ref().map_or(0, |(_, count)| *count as u16),
            queue,
            ack: received as u32,
            message: message.len() as u32,
            payload: payload.as_ref().map_or(0, |p| p.len() as u32),
        };
        if head.counts() {
            self.pushed += 1;
        }
        let room = |s: &Segment| s.payload.is_none() && s.bytes.len() < SEGMENT_BYTES;
        if !self.segments.back().is_some_and(room) {
            let mut bytes = self.spare.pop().unwrap_or_default();
            bytes.clear();
            self.segments.push_back(Segment {
                bytes,
                payload: None,
                first: None,
                last: 0,
                head_at: 0,
            });
        }
        let segment = self.segments.back_mut().expect("just made");
        segment.head_at = segment.bytes.len();
        segment.bytes.extend_from_slice(&head.to_bytes());
        segment.bytes.extend_from_slice(message);
        segment.last = self.pushed;
        let bytes = HEAD_BYTES + message.len();
        self.kept += bytes;
        self.unsent += bytes;
        if head.payload > 0 {
            match &payload {
                Some(Payload::Own(bytes)) => {
                    self.kept += bytes.len();
                    link.kept.store(self.kept, Ordering::Release);
                }
                Some(Payload::InPlace { range, .. }) => {
                    self.in_place += range.len();
                    link.in_place.store(self.in_place, Ordering::Release);
                }
                _ => {}
            }
            if let (Some((subflows, count)), Some(payload)) = (divided, &payload) {
                let in_place = matches!(payload, Payload::InPlace { .. });
                if let Some(range) = payload.range() {
                    segment.first = Some(part(range, count, 0));
                    subflows.send(self.pushed, range, count, in_place);
                }
            }
            segment.payload = payload;
            self.unsent += segment.payload_len();
        }
    }

    /// The subflows over which a payload is divided, and their number.
    fn division(&self, payload: Option<&Payload>) -> Option<(Arc<Subflows>, usize)> {
        let (subflows, range) = (self.subflows.as_ref()?, payload?.range()?);
        let count = subflows.division(range.len());
        (count > 0).then(|| (subflows.clone(), count))
    }

    /// Sets the subflows of the present connection; those before end. `None`: there is no
    /// connection.
    pub fn set_subflows(&mut self, tag: u64) -> Option<Arc<Subflows>> {
        let stream = self.stream.clone()?;
        self.end_subflows();
        let subflows = Subflows::new(tag, stream);
        self.subflows = Some(subflows.clone());
        Some(subflows)
    }

    fn end_subflows(&mut self) {
        if let Some(subflows) = self.subflows.take() {
            subflows.close();
        }
    }

    /// Whether subflows have been offered for the present connection.
    pub fn has_subflows(&self) -> bool {
        self.subflows.is_some()
    }

    /// Whether parts of frames that subflows carry are not sent.
    pub fn has_parts(&self) -> bool {
        let subflows = self.subflows.as_ref();
        subflows.is_some_and(|s| s.has_unsent(u64::MAX))
    }

    /// Copies the payloads in buffers that have not been acknowledged.
    fn detach(&mut self) {
        for segment in &mut self.segments {
            if let Some(Payload::InPlace { range, .. }) = &segment.payload {
                let mut bytes = vec![0; range.len()];
                range.copy_out(0, &mut bytes);
                self.kept += bytes.len();
                segment.payload = Some(Payload::Own(bytes));
            }
        }
        if let Some(subflows) = &self.subflows {
            subflows.detach();
        }
        self.in_place = 0;
    }

    /// Number of counted frames pushed.
    pub fn pushed(&self) -> u64 {
        self.pushed
    }

    /// Number of bytes pushed and not sent, including payload.
    pub fn unsent(&self) -> usize {
        self.unsent
    }

    /// Whether the peer leaves too much unacknowledged.
    pub fn is_overfull(&self) -> bool {
        self.kept > KEPT_BYTES_MAX
    }

    /// The current connection.
    pub fn stream(&self) -> Option<Arc<Stream>> {
        self.stream.clone()
    }

    /// Sends until the socket's buffer is full.
    pub fn flush(&mut self) -> Flushed {
        let Some(stream) = self.stream.clone() else {
            return Flushed::Down;
        };
        match self.flush_to(&stream) {
            Ok(flushed) => flushed,
            Err(e) => {
                self.reset |= e.kind() == io::ErrorKind::ConnectionReset;
                // The reading thread detects the failure, too, and establishes a new connection.
                stream.shutdown();
                self.stream = None;
                self.end_subflows();
                Flushed::Down
            }
        }
    }

    fn flush_to(&mut self, stream: &Stream) -> io::Result<Flushed> {
        let stalled = |e: &io::Error| e.kind() == io::ErrorKind::WouldBlock;
        while self.unsent > 0 {
            let mut parts = [Part::Bytes(&[]); PARTS_MAX];
            let mut count = 0;
            let mut skip = self.at;
            for segment in self.segments.range(self.next..) {
                if count + 2 > PARTS_MAX {
                    break;
                }
                if skip < segment.bytes.len() {
                    parts[count] = Part::Bytes(&segment.bytes[skip..]);
                    count += 1;
                }
                let from = skip.saturating_sub(segment.bytes.len());
                if let Some(part) = segment.payload_part(from) {
                    parts[count] = part;
                    count += 1;
                }
                skip = 0;
            }
            match stream.send(&parts[..count]) {
                Ok(sent) => self.advance(sent),
                Err(e) if stalled(&e) => return Ok(Flushed::Stalled),
                Err(e) => return Err(e),
            }
        }
        if stream.is_flushed()? {
            Ok(Flushed::All)
        } else {
            Ok(Flushed::Stalled)
        }
    }

    fn advance(&mut self, sent: usize) {
        self.unsent -= sent;
        self.at += sent;
        while let Some(segment) = self.segments.get(self.next) {
            if self.at < segment.len() || self.at == 0 {
                break;
            }
            // A last segment with free space still accepts frames.
            if self.next + 1 == self.segments.len() && self.at == segment.len() {
                break;
            }
            self.at -= segment.len();
            self.next += 1;
        }
    }

    fn acked(&mut self, ack: u32) -> Result<(), Violation> {
        let ahead = ack.wrapping_sub(self.acked as u32);
        // Numbers in the half behind the current count are outdated acknowledgements.
        if ahead == 0 || ahead > 1 << 31 {
            return Ok(());
        }
        let acked = self.acked + u64::from(ahead);
        if acked > self.pushed {
            return Err(Violation(format!(
                "{acked} frames acknowledged, but {} were sent",
                self.pushed
            )));
        }
        let subflows = self.subflows.as_ref();
        if subflows.is_some_and(|s| s.has_unsent(acked)) {
            return Err(Violation::new("an unsent part of a frame was acknowledged"));
        }
        self.acked = acked;
        self.drop_acked(false);
        // The remaining segments are not sent, or only in part. (A payload ends its segment.)
        let mut left = self.segments.iter().take_while(|s| s.last <= acked);
        if left.any(|s| s.payload.is_some()) {
            return Err(Violation::new("an unsent frame was acknowledged"));
        }
        Ok(())
    }

    /// Drops the segments that are acknowledged and sent (`resent`: or need not be sent).
    fn drop_acked(&mut self, resent: bool) {
        while let Some(front) = self.segments.front() {
            let sent = resent || self.next > 0 || self.at == front.len();
            if front.last > self.acked || !sent {
                break;
            }
            if self.next > 0 {
                self.next -= 1;
            } else {
                self.at = 0;
            }
            let segment = self.segments.pop_front().expect("there is a front");
            self.kept -= segment.kept();
            if let Some(Payload::InPlace { range, .. }) = &segment.payload {
                self.in_place -= range.len();
            }
            if self.spare.len() < SPARE_MAX {
                self.spare.push(segment.bytes);
            }
        }
    }

    /// Moves the cursor past frame number `received`, if it is in the first segment.
    fn skip_received(&mut self, received: u64) {
        let Some(front) = self.segments.front() else {
            return;
        };
        let heads = |bytes: &[u8]| {
            let mut at = 0;
            let mut ends = Vec::new();
            while at < bytes.len() {
                let head = bytes[at..at + HEAD_BYTES].try_into().expect("a head");
                let head = Head::from_bytes(head).expect("our own");
                at += HEAD_BYTES + head.message as usize;
                ends.push((head.counts(), at));
            }
            ends
        };
        let ends = heads(&front.bytes);
        let counted = ends.iter().filter(|e| e.0).count() as u64;
        let mut number = front.last - counted;
        for (counts, end) in ends {
            number += u64::from(counts);
            if number > received {
                return;
            }
            self.at = end;
        }
    }
}

#[cfg(test)]
mod tests;
