//! Sessions over TCP with four connections each: their own tests, and those of sessions with one.
//! [`fake::daemon_of`] sets the number of connections.

// Each of the files is a test of its own, too.
#![allow(clippy::duplicate_mod)]

#[path = "direct.rs"]
mod direct;
#[path = "tcp.rs"]
mod tcp;
#[path = "tls.rs"]
mod tls;

use tcp::fake::{connect, daemon, raw_hello, Path};
use tcp::{pattern, round_trip, PATIENCE};

use baltra_wire::Purpose;
use std::io::Read;
use std::sync::atomic::Ordering;
use std::time::Instant;

const LEN: usize = 20_000_003;

/// More bytes than any test sends.
const NEVER: u64 = u64::MAX / 2;

#[test]
fn a_large_transfer_opens_connections_and_uses_them() {
    let daemon = daemon(|_| {});
    let path = Path::ending_after(daemon.port, NEVER);
    let (client, losses) = connect(path.port);
    let queue = client.open_queue(0, 0, 0).unwrap();
    let small = pattern(1, 1000);
    assert!(round_trip(&client, &queue, &small) == small);
    assert_eq!(path.connections(), 1);
    let started = Instant::now();
    let bytes = pattern(2, LEN);
    // The connections are opened during the transfers.
    while path.least_bytes() < LEN as u64 / 8 || path.connections() < 4 {
        assert!(started.elapsed() < PATIENCE);
        assert!(round_trip(&client, &queue, &bytes) == bytes);
    }
    assert_eq!(path.connections(), 4);
    assert!(losses.0.lock().unwrap().is_empty());
}

#[test]
fn a_session_whose_further_connections_fail_continues_without() {
    let daemon = daemon(|_| {});
    // The first connection lasts, all others end in the middle of parts. They carry more than a
    // frame, since a frame that is broken off is sent again from its beginning.
    let path = Path::ending_later_after(daemon.port, 2_300_017);
    let (client, losses) = connect(path.port);
    let queue = client.open_queue(0, 0, 0).unwrap();
    for round in 0..40 {
        let bytes = pattern(round, LEN / 4);
        assert!(round_trip(&client, &queue, &bytes) == bytes, "{round}");
    }
    assert!(path.connections() > 4, "{}", path.connections());
    assert_eq!(daemon.seen.sessions.load(Ordering::SeqCst), 1);
    assert!(losses.0.lock().unwrap().is_empty());
}

#[test]
fn connections_that_nobody_offered_are_closed() {
    let daemon = daemon(|_| {});
    let (client, _) = connect(daemon.port);
    let welcome = client.welcome();
    let mut stranger = raw_hello(
        daemon.port,
        (welcome.session, welcome.key),
        Purpose::Subflow(7),
    );
    // After the answer to its hello nothing comes.
    let mut rest = Vec::new();
    stranger.read_to_end(&mut rest).unwrap();
    let len = u32::from_le_bytes(rest[..4].try_into().unwrap()) as usize;
    assert_eq!(rest.len(), 4 + len);
    let queue = client.open_queue(0, 0, 0).unwrap();
    let bytes = pattern(3, LEN);
    assert!(round_trip(&client, &queue, &bytes) == bytes);
}
