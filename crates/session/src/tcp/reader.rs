//! Receives frames. Payloads are received directly from the socket into their place; only bytes
//! read together with a header are copied, which are few if payloads follow each other.

use super::frame::{Head, Violation, HEAD_BYTES};
use super::stream::Stream;
use super::subflows::{fill, Subflows};
use baltra_ring::Range;
use std::io;
use std::sync::Arc;

/// Maximum bytes per read from the socket.
const BUFFER_BYTES: usize = 128 << 10;
/// The same after a payload, because the next frame's payload is received into another place.
const BEHIND_PAYLOAD_BYTES: usize = 1 << 10;

/// Receiver of frames.
pub(crate) trait Receive {
    /// Returns the place of a frame's payload, exactly `head.payload` bytes.
    fn place(&mut self, head: &Head, message: &[u8]) -> Result<Range, Violation>;
    /// Handles a complete frame; `false`: the peer has ended the session.
    fn frame(&mut self, head: &Head, message: &[u8]) -> Result<bool, Violation>;
    /// All received frames have been processed: publish pending messages.
    fn idle(&mut self) -> Result<(), Violation>;
    /// Runs `run`, which fills a place that [`Receive::place`] returned, unless the place may no
    /// longer be written.
    fn fill(&self, run: impl FnOnce() -> io::Result<usize>) -> io::Result<usize> {
        run()
    }
    /// The connection's subflows.
    fn subflows(&self) -> Option<Arc<Subflows>> {
        None
    }
}

/// The reason for which reading ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The peer closed the session.
    Closed,
    /// The connection broke.
    Broken(io::Error),
    /// The peer violated the protocol.
    Violation(Violation),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Ended {
        Ended::Broken(error)
    }
}

impl From<Violation> for Ended {
    fn from(violation: Violation) -> Ended {
        Ended::Violation(violation)
    }
}

/// Bytes received and not yet consumed.
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Whether the last frame had a payload.
    behind_payload: bool,
}

impl Buffer {
    fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    fn consume(&mut self, len: usize) {
        self.start += len;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            self.bytes.truncate(BUFFER_BYTES);
        }
    }

    /// Receives more (`false`: no data is available), so that `wanted` bytes from `start` on will
    /// fit. The buffer grows with the received bytes, not with the announced length.
    fn receive(&mut self, stream: &Stream, wanted: usize) -> io::Result<bool> {
        if self.start > 0 && self.start + wanted > self.bytes.len() {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.bytes.len() {
            self.bytes.resize(2 * self.bytes.len(), 0);
        }
        let mut end = self.bytes.len();
        if self.behind_payload {
            end = end.min(self.end + wanted.max(BEHIND_PAYLOAD_BYTES));
        }
        match stream.recv_now(&mut self.bytes[self.end..end]) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                self.end += n;
                Ok(true)
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(e) => Err(e),
        }
    }
}

/// Reads the frames of one connection, on one thread at a time.
pub(crate) struct Reader {
    buffer: Buffer,
    message: Vec<u8>,
    /// Whether frames were processed since the last [`Receive::idle`].
    busy: bool,
}

impl Reader {
    /// A reader for a connection from which nothing has been read.
    pub fn new() -> Reader {
        Reader {
            buffer: Buffer {
                bytes: vec![0; BUFFER_BYTES],
                start: 0,
                end: 0,
                behind_payload: false,
            },
            message: Vec::new(),
            busy: true,
        }
    }

    /// Processes the frames that have arrived, and waits for the rest of a payload that has begun;
    /// returns whether any data had arrived.
    pub fn read(&mut self, stream: &Stream, receiver: &mut impl Receive) -> Result<bool, Ended> {
        let mut moved = false;
        loop {
            let (head, whole) = match self.frame()? {
                Ok(frame) => frame,
                Err(wanted) => {
                    if std::mem::take(&mut self.busy) {
                        receiver.idle()?;
                    }
                    if !self.buffer.receive(stream, wanted)? {
                        return Ok(moved);
                    }
                    moved = true;
                    continue;
                }
            };
            self.busy = true;
            let more = if head.payload == 0 {
                let message = &self.buffer.filled()[HEAD_BYTES..whole];
                let more = receiver.frame(&head, message)?;
                self.buffer.consume(whole);
                self.buffer.behind_payload = false;
                more
            } else {
                self.message.clear();
                let message = &self.buffer.filled()[HEAD_BYTES..whole];
                self.message.extend_from_slice(message);
                self.buffer.consume(whole);
                let place = receiver.place(&head, &self.message)?;
                if head.subflows > 0 {
                    divided(stream, &mut self.buffer, (&place, &head), receiver)?;
                } else {
                    payload(stream, &mut self.buffer, &place, receiver)?;
                }
                self.buffer.behind_payload = true;
                receiver.frame(&head, &self.message)?
            };
            if !more {
                return Err(Ended::Closed);
            }
        }
    }

    /// The next frame's header, and the length of header and message; the inner error is the number
    /// of bytes needed.
    fn frame(&self) -> Result<Result<(Head, usize), usize>, Violation> {
        let filled = self.buffer.filled();
        let Some(head) = filled.first_chunk::<HEAD_BYTES>() else {
            return Ok(Err(HEAD_BYTES));
        };
        let head = Head::from_bytes(head)?;
        let whole = HEAD_BYTES + head.message as usize;
        Ok(if filled.len() < whole {
            Err(whole)
        } else {
            Ok((head, whole))
        })
    }
}

fn payload(
    stream: &Stream,
    buffer: &mut Buffer,
    place: &Range,
    receiver: &mut impl Receive,
) -> Result<(), Ended> {
    let mut at = buffer.filled().len().min(place.len());
    receiver.fill(|| {
        place.copy_in(0, &buffer.filled()[..at]);
        Ok(at)
    })?;
    buffer.consume(at);
    if at < place.len() {
        receiver.idle()?;
    }
    while at < place.len() {
        let rest = place
            .slice(at as u64, (place.len() - at) as u64)
            .expect("inside the place");
        at += match receiver.fill(|| stream.recv(Some(&rest), &mut []))? {
            0 => return Err(Ended::Broken(io::ErrorKind::UnexpectedEof.into())),
            n => n,
        };
    }
    Ok(())
}

/// Receives a payload that is divided over subflows.
fn divided(
    stream: &Stream,
    buffer: &mut Buffer,
    (place, head): (&Range, &Head),
    receiver: &mut impl Receive,
) -> Result<(), Ended> {
    let subflows = receiver
        .subflows()
        .ok_or_else(|| Violation::new("a divided payload without subflows"))?;
    receiver.idle()?;
    let mut consumed = 0;
    receiver.fill(|| {
        subflows.receive(place, head.subflows.into(), |first| {
            let buffered = buffer.filled();
            consumed = buffered.len().min(first.len());
            first.copy_in(0, &buffered[..consumed]);
            fill(stream, first, consumed)
        })?;
        Ok(place.len())
    })?;
    buffer.consume(consumed);
    Ok(())
}
