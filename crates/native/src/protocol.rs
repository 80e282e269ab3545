//! Messages between the gateway and a native function's process.
//!
//! On the socket, each framed by its length (four bytes, little endian): one [`Start`], with the
//! rings' memfd, answered by one [`Started`]. From then on a byte from the process signals that
//! answers are available; the end of the stream signals that the peer has exited.
//!
//! In the rings, all little endian:
//!
//! * a request: a postcard-encoded [`Head`], then, at the next multiple of [`ALIGN`] from the
//!   message's start, the bytes of its inputs in the order of its buffers, each padded to
//!   [`ALIGN`];
//! * an answer: the call's number (8 bytes), the nanoseconds that it took (8), the status (4), the
//!   error text's length (4), nothing (8), then that text, or, with status 0 and no text, the
//!   outputs in the order of the buffers, each padded to [`ALIGN`]; a buffer that is both takes the
//!   longer one's room.

use baltra_ring::{ring_bytes, Memory, Range};
use serde::{Deserialize, Serialize};
use std::io;

/// Alignment of buffers: that of C's `max_align_t`.
pub const ALIGN: usize = 16;
/// Bytes of an answer before its outputs.
pub const ANSWER_HEAD_BYTES: usize = 32;
/// Size limit of an error text.
pub const TEXT_BYTES_MAX: usize = 4096;
/// Size limit of a message on the socket.
pub const SOCKET_BYTES_MAX: usize = 1 << 20;

/// The first message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The shared library.
    pub library: String,
    /// Its functions; requests name them by index.
    pub symbols: Vec<String>,
    /// Number of threads, each with a pair of rings.
    pub lanes: u32,
    /// Data bytes of a ring.
    pub ring_bytes: u64,
    /// Time for which a thread spins for the next call before it sleeps, microseconds.
    pub spin_us: u64,
    /// Whether to drop privileges that a function does not need.
    pub sandbox: bool,
    /// A private directory of the process.
    pub work_dir: String,
}

/// The response: an error, or an empty text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Empty: the process is ready.
    pub error: String,
}

/// A request's header; its bytes follow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Head<'a> {
    /// A constant, which later requests of any lane may name. Its bytes follow.
    Constant {
        /// Its index.
        index: u32,
        /// Number of bytes.
        len: u64,
    },
    /// A call.
    Call {
        /// Its number, which the answer repeats.
        id: u64,
        /// Its index in [`Start::symbols`].
        symbol: u32,
        /// Its memory.
        buffers: Vec<Buffer>,
        /// Its arguments.
        #[serde(borrow)]
        args: Vec<Arg<'a>>,
    },
}

/// A block of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Buffer {
    /// This many bytes of the request.
    Input(u64),
    /// This many bytes of the answer.
    Output(u64),
    /// Bytes of the request, and bytes of the answer that return the buffer.
    InOut(u64, u64),
    /// This many bytes of scratch memory for the duration of the call.
    Scratch(u64),
    /// The content of a [`Head::Constant`].
    Constant(u32),
}

impl Buffer {
    /// Bytes in the request.
    pub fn input(self) -> u64 {
        match self {
            Buffer::Input(len) | Buffer::InOut(len, _) => len,
            _ => 0,
        }
    }

    /// Size of the output, and its space in the answer.
    pub fn output(self) -> Option<(u64, u64)> {
        match self {
            Buffer::Output(len) => Some((len, len)),
            Buffer::InOut(from, to) => Some((to, from.max(to))),
            _ => None,
        }
    }
}

/// An argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Arg<'a> {
    /// A buffer, by its index.
    Buffer(u32),
    /// A number, little endian.
    Value(#[serde(borrow)] &'a [u8]),
}

/// Start of the next buffer.
pub fn aligned(at: usize) -> usize {
    at.next_multiple_of(ALIGN)
}

/// Size of the memory for `lanes` pairs of rings.
pub fn memory_bytes(lanes: u32, data_bytes: u64) -> u64 {
    let ring = ring_bytes(data_bytes as usize).next_multiple_of(4096) as u64;
    ring * 2 * u64::from(lanes)
}

/// A lane's rings: requests, answers.
pub fn rings(memory: &Memory, lane: u32, data_bytes: u64) -> Option<(Range, Range)> {
    let bytes = ring_bytes(data_bytes as usize) as u64;
    let each = bytes.next_multiple_of(4096);
    let at = each * 2 * u64::from(lane);
    Some((memory.slice(at, bytes)?, memory.slice(at + each, bytes)?))
}

/// A message for the socket.
pub fn framed<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let body = postcard::to_stdvec(message).map_err(io::Error::other)?;
    if body.len() > SOCKET_BYTES_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok([&(body.len() as u32).to_le_bytes()[..], &body].concat())
}

/// Header of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerHead {
    /// The call's number.
    pub id: u64,
    /// Run time of the call, nanoseconds.
    pub ran_ns: u64,
    /// 0, or an error.
    pub status: i32,
    /// Bytes of the error's text.
    pub text: u32,
}

impl AnswerHead {
    /// Reads the header; `None`: the answer is too short.
    pub fn read(answer: &[u8]) -> Option<AnswerHead> {
        let head: &[u8; ANSWER_HEAD_BYTES] = answer.first_chunk()?;
        let number = |at: usize| u64::from_le_bytes(*head[at..].first_chunk().expect("8 bytes"));
        let last = number(16);
        Some(AnswerHead {
            id: number(0),
            ran_ns: number(8),
            status: last as u32 as i32,
            text: (last >> 32) as u32,
        })
    }

    /// Writes the header at the start of an answer with space for it.
    pub fn write(&self, answer: &mut [u8]) {
        let last = u64::from(self.text) << 32 | u64::from(self.status as u32);
        for (at, number) in [self.id, self.ran_ns, last].into_iter().enumerate() {
            answer[at * 8..][..8].copy_from_slice(&number.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_have_rings_of_their_own() {
        let data = 1 << 16;
        let memory = Memory::anonymous(memory_bytes(3, data)).unwrap();
        let mut starts = Vec::new();
        for lane in 0..3 {
            let (requests, answers) = rings(&memory, lane, data).unwrap();
            assert_eq!(requests.len(), ring_bytes(data as usize));
            starts.extend([requests.ptr() as usize, answers.ptr() as usize]);
        }
        assert!(rings(&memory, 3, data).is_none());
        let apart = starts
            .windows(2)
            .all(|w| w[1] - w[0] >= ring_bytes(data as usize));
        assert!(apart, "{starts:?}");
    }

    #[test]
    fn an_answers_head_is_read_as_written() {
        let mut answer = vec![0; 40];
        let head = AnswerHead {
            id: 7,
            ran_ns: 1 << 40,
            status: -3,
            text: 24,
        };
        head.write(&mut answer);
        assert_eq!(AnswerHead::read(&answer), Some(head));
        assert_eq!(AnswerHead::read(&answer[..ANSWER_HEAD_BYTES - 1]), None);
    }
}
