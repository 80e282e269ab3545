//! A session over TCP or TLS.
//!
//! The library speaks the same rings, event table and arenas as over shared memory, only that
//! they are its own process's. A [`tunnel`] plays the executor towards them: it ships what they
//! hold as [`frame`]s, with the bytes of transfers behind their command, and turns what comes
//! back into notices, events and progress. On the daemon's side [`crate::relay`] is the
//! executor's ordinary shared-memory client and the tunnel's other end.
//!
//! Frames are counted in both directions, and kept by their sender until the other side has
//! said that it has them ([`link`]): a broken connection is dialled anew, the two sides tell
//! each other how far they got, and the rest is sent again. Nothing is carried out twice.
//!
//! A transfer travels in pieces of [`CHUNK_BYTES`] ([`split`]), and of each queue at most
//! [`WINDOW_BYTES`] are on their way: memory stays bounded on both sides, and a large transfer
//! holds up nobody else's commands for long.
//!
//! | module | what |
//! |---|---|
//! | [`frame`] | what travels, and the bounds that a reader checks |
//! | [`reader`] | frames off a stream, payload straight into shared memory |
//! | [`link`] | frames onto a stream, kept until acknowledged |
//! | [`stream`] | a socket, plain or TLS |
//! | [`tls`] | whom to trust |
//! | [`dial`] | connecting, hello, resuming |
//! | [`split`] | large transfers in pieces |
//! | [`tunnel`] | the library's side |

pub(crate) mod dial;
pub(crate) mod frame;
pub(crate) mod link;
pub(crate) mod reader;
pub(crate) mod split;
pub(crate) mod stream;
pub(crate) mod tls;
pub(crate) mod tunnel;

use std::time::Duration;

/// The longest payload of a frame, bytes.
pub(crate) const CHUNK_BYTES: u64 = 1 << 20;
/// Payload of one queue that may be on its way (either direction), bytes.
pub(crate) const WINDOW_BYTES: u64 = 8 << 20;
/// Data bytes of a queue's ring between relay and executor. The tunnel has at most so many
/// bytes of commands in it, so that the relay never waits for a queue.
pub(crate) const RING_BYTES: usize = 512 << 10;
/// How long a relay keeps the session of a broken connection, and a client tries to come back.
pub(crate) const GRACE: Duration = Duration::from_secs(30);
/// How long the few bytes before a session may take.
pub(crate) const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a session may take to open: an executor starts and makes its driver's context, a second
/// on a GPU, and where many open at once each waits for those before it. A peer that has vanished is
/// noticed before by its socket.
pub(crate) const OPEN_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes that a message of `len` takes in a ring.
pub(crate) fn record_bytes(len: usize) -> usize {
    8 + len.next_multiple_of(8)
}
