//! A session over TCP or TLS.
//!
//! The library uses the same rings, event table and arenas as over shared memory, but in its own
//! process's memory. A [`tunnel`] takes the executor's place: it sends their content as [`frame`]s,
//! with the bytes of transfers after their command, and converts received frames to notices, events
//! and progress. On the daemon's side [`crate::relay`] is the executor's ordinary shared-memory
//! client and the tunnel's peer.
//!
//! Frames are counted in both directions and kept by their sender until the peer has acknowledged
//! them ([`link`]): after a failure, the library reconnects, both sides exchange their counts, and
//! unacknowledged frames are sent again. No frame is processed twice.
//!
//! A transfer is sent in pieces of [`CHUNK_BYTES`] ([`split`]), and each queue has at most
//! [`WINDOW_BYTES`] in flight: memory stays bounded on both sides, and a large transfer does not
//! delay other queues' commands for long.
//!
//! | module | content |
//! |---|---|
//! | [`frame`] | frames, and the bounds that a reader checks |
//! | [`reader`] | receives frames, payload directly into shared memory |
//! | [`link`] | sends frames and keeps them until acknowledged |
//! | [`stream`] | a socket, plain or TLS |
//! | [`tls`] | certificates and trust |
//! | [`dial`] | connecting, hello, resuming |
//! | [`split`] | large transfers in pieces |
//! | [`subflows`] | further connections, for parts of large payloads |
//! | [`tunnel`] | the library's side |

pub(crate) mod dial;
pub(crate) mod frame;
pub(crate) mod link;
pub(crate) mod reader;
pub(crate) mod split;
pub(crate) mod stream;
pub(crate) mod subflows;
pub(crate) mod tls;
pub(crate) mod tunnel;

use std::time::Duration;

/// Size limit of a frame's payload, bytes.
pub(crate) const CHUNK_BYTES: u64 = 1 << 20;
/// Maximum payload of one queue in flight, in either direction, bytes.
pub(crate) const WINDOW_BYTES: u64 = 8 << 20;
/// Data bytes of a queue's ring between relay and executor. The tunnel has at most that many bytes
/// of commands outstanding, so that the relay never waits for space in a ring.
pub(crate) const RING_BYTES: usize = 512 << 10;
/// Time for which a relay keeps the session of a failed connection, and a client reconnects.
pub(crate) const GRACE: Duration = Duration::from_secs(30);
/// Time limit of the exchange that precedes a session.
pub(crate) const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for opening a session: an executor starts and creates its driver's context, which
/// takes a second on a GPU, and sessions that are opened concurrently wait for each other. A peer
/// that has vanished is detected earlier by its socket.
pub(crate) const OPEN_TIMEOUT: Duration = Duration::from_secs(60);

/// Size of a message of `len` bytes in a ring.
pub(crate) fn record_bytes(len: usize) -> usize {
    8 + len.next_multiple_of(8)
}
