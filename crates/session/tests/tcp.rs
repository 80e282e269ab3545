//! Tests of a session over TCP with a fake executor: data, limits, broken paths.

pub(crate) mod fake;

use baltra_session::client::{Client, ConnectError, Queue};
use baltra_session::Endpoint;
use baltra_wire::*;
use fake::{connect, connect_to, daemon, hello, Path, SLOW, TOKEN};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::sync::{mpsc, Arc};
use std::time::{Duration, Instant};

const LARGE: u64 = (20 << 20) + 12_345;
/// Bounds a test that hangs; no load reaches it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

fn buffer(client: &Client, size: u64) -> Id {
    let id = client.new_id();
    let control = Control::Buffer {
        id,
        context: 0,
        flags: 0,
        size,
        backing: Backing::Device(None),
    };
    client.control(&control).unwrap();
    id
}

pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

fn transfer(direction: Direction, buffer: Id, offset: u64, payload: Payload) -> Operation<'static> {
    Operation::Buffer {
        direction,
        buffer,
        offset,
        payload,
    }
}

/// Writes, reads back, and returns the read bytes.
pub(crate) fn round_trip(client: &Arc<Client>, queue: &Queue, bytes: &[u8]) -> Vec<u8> {
    let len = bytes.len() as u64;
    let buffer = buffer(client, len);
    let (up, down) = (client.allocate(len, 64), client.allocate(len, 64));
    let (up, down) = (up.unwrap(), down.unwrap());
    up.range().copy_in(0, bytes);
    let write = transfer(Direction::Write, buffer, 0, up.payload());
    let read = transfer(Direction::Read, buffer, 0, down.payload());
    queue.push(0, &[], &write).unwrap();
    let number = queue.push(0, &[], &read).unwrap();
    queue.wait(number).unwrap();
    let mut back = vec![0; bytes.len()];
    down.range().copy_out(0, &mut back);
    client.release(buffer, None).unwrap();
    back
}

#[test]
fn small_and_large_transfers_arrive_whole_and_in_pieces() {
    let daemon = daemon(|_| {});
    let (client, _) = connect(daemon.port);
    assert!(!client.host_memory());
    let queue = client.open_queue(0, 0, 0).unwrap();
    for len in [1, 4, 4096, 100_000, LARGE as usize] {
        let bytes = pattern(len as u64, len);
        assert!(round_trip(&client, &queue, &bytes) == bytes, "{len} bytes");
    }
    let longest = daemon.seen.longest.load(Ordering::SeqCst);
    assert!(longest <= 1 << 20, "a piece of {longest} bytes");
}

#[test]
fn many_commands_complete_in_order() {
    let daemon = daemon(|_| {});
    let (client, _) = connect(daemon.port);
    let queue = client.open_queue(0, 0, 0).unwrap();
    // More than any ring can hold.
    for _ in 0..60_000 {
        queue.push(0, &[], &Operation::Marker).unwrap();
    }
    queue.wait(60_000).unwrap();
    assert_eq!(daemon.seen.commands.load(Ordering::SeqCst), 60_000);
}

#[test]
fn events_carry_status_and_times_and_reach_watchers() {
    let daemon = daemon(|_| {});
    let (client, _) = connect(daemon.port);
    let queue = client.open_queue(0, 0, 0).unwrap();
    let user = client.new_event().unwrap();
    let event = client.new_event().unwrap();
    let (sender, completions) = mpsc::channel();
    queue.push(event, &[user], &Operation::Marker).unwrap();
    queue.flush();
    let first = sender.clone();
    let then = Box::new(move |c: Completion| first.send(c).unwrap());
    client.watch(event, then).unwrap();
    assert!(completions.recv_timeout(Duration::from_millis(50)).is_err());
    let done = Control::UserEvent {
        event: user,
        status: 0,
    };
    client.control(&done).unwrap();
    assert_eq!(client.wait_event(event), 0);
    assert_eq!(client.events().times(event), [1, 2, 3, 4]);
    assert_eq!(completions.recv().unwrap().event, event);
    // The executor has reported the event already.
    let then = Box::new(move |c: Completion| sender.send(c).unwrap());
    client.watch(event, then).unwrap();
    assert_eq!(completions.recv().unwrap().times_ns, [1, 2, 3, 4]);
}

#[test]
fn errors_reach_the_event_or_the_waiter_of_the_right_command() {
    let daemon = daemon(|_| {});
    let (client, _) = connect(daemon.port);
    let queue = client.open_queue(0, 0, 0).unwrap();
    let block = client.allocate(3 << 20, 64).unwrap();
    let bad = transfer(Direction::Write, 999, 0, block.payload());
    queue.push(0, &[], &Operation::Marker).unwrap();
    let event = client.new_event().unwrap();
    queue.push(event, &[], &bad).unwrap();
    queue.flush();
    assert!(client.wait_event(event) < 0);
    queue.push(0, &[], &Operation::Marker).unwrap();
    assert_eq!(queue.wait(3), Ok(()));
    let number = queue.push(0, &[], &bad).unwrap();
    assert_eq!(queue.wait(number), Err(-38));
}

#[test]
fn a_blocked_queue_with_much_payload_holds_up_nobody() {
    let daemon = daemon(|_| {});
    let (client, _) = connect(daemon.port);
    let (first, second) = (client.open_queue(0, 0, 0), client.open_queue(0, 0, 0));
    let (first, second) = (first.unwrap(), second.unwrap());
    let user = client.new_event().unwrap();
    let target = buffer(&client, LARGE);
    let block = client.allocate(LARGE, 64).unwrap();
    let bytes = pattern(5, LARGE as usize);
    block.range().copy_in(0, &bytes);
    let write = transfer(Direction::Write, target, 0, block.payload());
    first.push(0, &[user], &write).unwrap();
    first.flush();
    let other = pattern(6, 5 << 20);
    assert!(round_trip(&client, &second, &other) == other);
    assert_eq!(first.completed(), 0);
    let done = Control::UserEvent {
        event: user,
        status: 0,
    };
    client.control(&done).unwrap();
    first.wait(1).unwrap();
}

#[test]
fn out_of_order_transfers_wait_for_what_they_name() {
    let daemon = daemon(|_| {});
    let (client, _) = connect(daemon.port);
    let queue = client.open_queue(0, 0, 1).unwrap();
    let bytes = pattern(9, 5 << 20);
    let target = buffer(&client, bytes.len() as u64);
    let block = client.allocate(bytes.len() as u64, 64).unwrap();
    let back = client.allocate(bytes.len() as u64, 64).unwrap();
    block.range().copy_in(0, &bytes);
    let event = client.new_event().unwrap();
    let write = transfer(Direction::Write, target, 0, block.payload());
    let read = transfer(Direction::Read, target, 0, back.payload());
    for _ in 0..10 {
        queue.push(event, &[], &write).unwrap();
        let number = queue.push(0, &[event], &read).unwrap();
        queue.wait(number).unwrap();
    }
    let mut found = vec![0; bytes.len()];
    back.range().copy_out(0, &mut found);
    assert!(found == bytes);
}

#[test]
fn first_contents_and_large_requests_travel() {
    let daemon = daemon(|_| {});
    let (client, _) = connect(daemon.port);
    let queue = client.open_queue(0, 0, 0).unwrap();
    for len in [10usize, 3_000_000] {
        let bytes = pattern(3, len);
        let block = client.allocate(len as u64, 64).unwrap();
        block.range().copy_in(0, &bytes);
        let id = client.new_id();
        let control = Control::Buffer {
            id,
            context: 0,
            flags: 0,
            size: len as u64,
            backing: Backing::Device(Some(block.payload())),
        };
        client.control(&control).unwrap();
        let back = client.allocate(len as u64, 64).unwrap();
        let read = transfer(Direction::Read, id, 0, back.payload());
        let number = queue.push(0, &[], &read).unwrap();
        queue.wait(number).unwrap();
        let mut found = vec![0; len];
        back.range().copy_out(0, &mut found);
        assert!(found == bytes, "{len} bytes");
    }
    let il = pattern(4, 1 << 20);
    let request = Request::ProgramIl {
        id: client.new_id(),
        context: 0,
        il: &il,
    };
    assert!(client.call(request).unwrap() == Reply::Bytes(il));
}

#[test]
fn a_broken_path_is_resumed_with_every_byte_and_nothing_twice() {
    let daemon = daemon(|_| {});
    let path = Path::ending_after(daemon.port, 5_300_017);
    let (client, losses) = connect(path.port);
    let queue = client.open_queue(0, 0, 0).unwrap();
    for round in 0..6 {
        let bytes = pattern(round, LARGE as usize);
        assert!(round_trip(&client, &queue, &bytes) == bytes, "{round}");
    }
    for _ in 0..20_000 {
        queue.push(0, &[], &Operation::Marker).unwrap();
    }
    queue.wait(queue.pushed()).unwrap();
    assert!(path.connections() > 6 * 6, "{}", path.connections());
    let pieces = LARGE.div_ceil(1 << 20) * 2 * 6;
    let commands = daemon.seen.commands.load(Ordering::SeqCst);
    assert_eq!(commands, pieces + 20_000);
    assert_eq!(daemon.seen.sessions.load(Ordering::SeqCst), 1);
    assert!(losses.0.lock().unwrap().is_empty());
}

#[test]
fn an_executor_that_ends_takes_its_session_along() {
    let daemon = daemon(|_| {});
    let (client, losses) = connect(daemon.port);
    let queue = client.open_queue(0, 0, 0).unwrap();
    let user = client.new_event().unwrap();
    queue.push(0, &[user], &Operation::Marker).unwrap();
    queue.flush();
    client.call(Request::Sync).unwrap();
    // The key of another session is refused.
    let endpoint: Endpoint = format!("tcp://127.0.0.1:{}", daemon.port).parse().unwrap();
    let mut thief = hello("fake", TOKEN);
    thief.resume = Some((client.welcome().session, [7; 16]));
    match Client::list(&endpoint, thief) {
        Err(ConnectError::Refused { refusal, .. }) => {
            assert!(refusal.to_string().contains("has ended"), "{refusal}");
        }
        _ => panic!("resumed by another"),
    }
    daemon.executors.lock().unwrap()[0]
        .shutdown(std::net::Shutdown::Both)
        .unwrap();
    assert_eq!(queue.wait(1), Err(-2));
    assert_eq!(client.is_lost(), Some(-2));
    // Waiting threads wake before the library receives the reason.
    let started = Instant::now();
    while losses.0.lock().unwrap().is_empty() {
        assert!(started.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(
        losses.0.lock().unwrap().as_slice(),
        ["the executor has ended"]
    );
}

#[test]
fn a_session_that_nobody_resumes_ends() {
    let daemon = daemon(|o| o.grace = Duration::from_millis(100));
    let socket = raw(daemon.port);
    // A path that ends without a farewell or a reset of the client.
    socket.shutdown(std::net::Shutdown::Both).unwrap();
    let started = Instant::now();
    while daemon.seen.ended.load(Ordering::SeqCst) == 0 {
        assert!(started.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_client_that_ends_frees_its_session() {
    let daemon = daemon(|_| {});
    let (client, _) = connect(daemon.port);
    drop(client);
    let started = Instant::now();
    while daemon.seen.ended.load(Ordering::SeqCst) == 0 {
        assert!(started.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
    let results = daemon.results.lock().unwrap();
    assert!(results.iter().all(Result::is_ok), "{results:?}");
}

#[test]
fn without_the_right_token_the_refusal_says_why() {
    let daemon = daemon(|_| {});
    let endpoint: Endpoint = format!("tcp://127.0.0.1:{}", daemon.port).parse().unwrap();
    for (token, says) in [("", "BALTRA_TOKEN"), ("wrong", "no such token")] {
        match Client::list(&endpoint, hello("", token)) {
            Err(ConnectError::Refused { refusal, .. }) => {
                assert!(refusal.to_string().contains(says), "{refusal}");
            }
            other => panic!("{:?}", other.map(|w| w.node)),
        }
    }
    let listed = Client::list(&endpoint, hello("", TOKEN)).unwrap();
    assert!(!listed.devices[0].host_memory);
}

#[test]
fn an_executor_that_is_slow_to_start_is_waited_for() {
    let daemon = daemon(|_| {});
    let (client, _) = connect_to(daemon.port, SLOW);
    assert_eq!(client.device().name, "fake");
}

/// A raw connection with an open session.
fn raw(port: u16) -> TcpStream {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let hello = baltra_session::handshake::frame(&hello("fake", TOKEN)).unwrap();
    socket.write_all(&hello).unwrap();
    let mut len = [0; 4];
    socket.read_exact(&mut len).unwrap();
    let mut welcome = vec![0; u32::from_le_bytes(len) as usize];
    socket.read_exact(&mut welcome).unwrap();
    socket
}

fn head<const N: usize>(words: [u32; N]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

#[test]
fn garbage_ends_its_own_session_and_no_other() {
    let daemon = daemon(|_| {});
    let (client, _) = connect(daemon.port);
    let queue = client.open_queue(0, 0, 0).unwrap();
    let noise = pattern(11, 4096);
    let mut control = head([1, 0, 0, 9, 0]);
    control.extend_from_slice(&[0xff; 9]);
    let mut early_payload = head([2, 77, 0, 0, 1 << 20]);
    early_payload.extend_from_slice(&noise);
    let garbage = [
        noise,
        control,
        early_payload,
        head([1, 0, 0, u32::MAX, 0]),
        head([2, 1, 0, 4, u32::MAX]),
        head([3, 0, 0, 8, 0, 1, 0]),
        head([5, 0, 0, 0, 0]),
        head([0, 0, 12345, 0, 0]),
        [head([3, 0, 0, 8, 16]), u64::MAX.to_le_bytes().to_vec()].concat(),
    ];
    for (at, bytes) in garbage.iter().enumerate() {
        let mut socket = raw(daemon.port);
        socket.write_all(bytes).unwrap();
        // Only the end of the connection may follow, possibly after a last notice.
        let mut rest = Vec::new();
        let _ = socket.set_read_timeout(Some(Duration::from_secs(10)));
        let end = socket.read_to_end(&mut rest);
        let waited = end.as_ref().err().map(std::io::Error::kind);
        assert_ne!(waited, Some(std::io::ErrorKind::WouldBlock), "garbage {at}");
    }
    let bytes = pattern(12, 10_000);
    assert!(round_trip(&client, &queue, &bytes) == bytes);
    let results = daemon.results.lock().unwrap();
    let refused = results.iter().filter(|r| r.is_err()).count();
    assert!(refused >= garbage.len() - 1, "{results:?}");
}

#[test]
fn first_words_that_are_no_hello_are_refused() {
    let daemon = daemon(|_| {});
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 64], &[255; 64]] {
        let mut socket = TcpStream::connect(("127.0.0.1", daemon.port)).unwrap();
        socket.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        if answer.len() > 4 {
            let answer: Result<Welcome, Refusal> = decode(&answer[4..]).unwrap();
            assert!(matches!(answer, Err(Refusal::Malformed(_))), "{answer:?}");
        }
    }
}
