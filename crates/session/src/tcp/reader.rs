//! Frames off a stream. Payloads go straight from the socket to where they belong; only what
//! came along with a head's read is copied, which is little where payloads follow each other.

use super::frame::{Head, Violation, HEAD_BYTES};
use super::stream::Stream;
use baltra_ring::Range;
use std::io;

/// Bytes asked of the socket at once.
const BUFFER_BYTES: usize = 128 << 10;
/// The same behind a payload, where the next head is likely another one's.
const BEHIND_PAYLOAD_BYTES: usize = 1 << 10;

/// What is done with frames.
pub(crate) trait Receive {
    /// A frame with a payload begins: where its bytes go, exactly `head.payload` of them.
    fn place(&mut self, head: &Head, message: &[u8]) -> Result<Range, Violation>;
    /// A frame is whole. False: the peer has ended the session.
    fn frame(&mut self, head: &Head, message: &[u8]) -> Result<bool, Violation>;
    /// Nothing more has arrived: publish what is pending.
    fn idle(&mut self) -> Result<(), Violation>;
    /// Runs what puts bytes into a place that [`Receive::place`] gave, unless nobody may any
    /// more.
    fn fill(&self, run: impl FnOnce() -> io::Result<usize>) -> io::Result<usize> {
        run()
    }
}

/// Why reading ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The peer said so.
    Closed,
    /// The connection broke.
    Broken(io::Error),
    /// The peer cannot be believed any more.
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
    /// The last frame had a payload.
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

    /// Receives more, so that in the end `wanted` bytes from `start` on fit. The buffer grows
    /// with what has really arrived, not with what a head announces.
    fn receive(&mut self, stream: &Stream, wanted: usize) -> io::Result<()> {
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
        match stream.recv(None, &mut self.bytes[self.end..end])? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            n => {
                self.end += n;
                Ok(())
            }
        }
    }
}

/// Receives frames until the stream ends.
pub(crate) fn receive(stream: &Stream, receiver: &mut impl Receive) -> Ended {
    match run(stream, receiver) {
        Ok(()) => Ended::Closed,
        Err(ended) => ended,
    }
}

fn run(stream: &Stream, receiver: &mut impl Receive) -> Result<(), Ended> {
    let mut buffer = Buffer {
        bytes: vec![0; BUFFER_BYTES],
        start: 0,
        end: 0,
        behind_payload: false,
    };
    let mut message = Vec::new();
    loop {
        while buffer.filled().len() < HEAD_BYTES {
            receiver.idle()?;
            buffer.receive(stream, HEAD_BYTES)?;
        }
        let head = buffer.filled()[..HEAD_BYTES].try_into().expect("a head");
        let head = Head::from_bytes(head)?;
        let whole = HEAD_BYTES + head.message as usize;
        while buffer.filled().len() < whole {
            receiver.idle()?;
            buffer.receive(stream, whole)?;
        }
        if head.payload == 0 {
            let more = receiver.frame(&head, &buffer.filled()[HEAD_BYTES..whole])?;
            buffer.consume(whole);
            buffer.behind_payload = false;
            if !more {
                return Ok(());
            }
            continue;
        }
        message.clear();
        message.extend_from_slice(&buffer.filled()[HEAD_BYTES..whole]);
        buffer.consume(whole);
        let place = receiver.place(&head, &message)?;
        payload(stream, &mut buffer, &place, receiver)?;
        buffer.behind_payload = true;
        if !receiver.frame(&head, &message)? {
            return Ok(());
        }
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
