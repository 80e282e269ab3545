//! Transfers without copies: from the application's own memory, and to and from buffers that relay
//! and executor share.

mod fake;

use baltra_ring::Memory;
use baltra_session::client::{Client, Queue};
use baltra_wire::*;
use fake::{connect, daemon, daemon_of, Daemon, Path, REFUSED_BYTES};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

const LARGE: usize = (20 << 20) + 12_345;

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
    // The relay uses objects only after the executor has confirmed them.
    client.call(Request::Sync).unwrap();
    id
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Enqueues a transfer of the vector's own bytes, which stay in place until it is complete.
fn lend(
    client: &Client,
    queue: &Queue,
    event: Event,
    direction: Direction,
    buffer: Id,
    bytes: &mut [u8],
) -> u64 {
    // SAFETY: the tests keep the bytes until the command is complete or the session is lost.
    let memory = unsafe { Memory::borrowed(bytes.as_mut_ptr(), bytes.len()) };
    let loan = client.lend(&memory).expect("a session over TCP");
    let operation = Operation::Buffer {
        direction,
        buffer,
        offset: 0,
        payload: loan.payload(),
    };
    let number = queue.push(event, &[], &operation).unwrap();
    loan.enqueued();
    number
}

fn fill(queue: &Queue, waits: &[Event], buffer: Id, byte: u8, len: u64) -> u64 {
    let operation = Operation::FillBuffer {
        buffer,
        pattern: &[byte],
        offset: 0,
        len,
    };
    queue.push(0, waits, &operation).unwrap()
}

fn round_trip(client: &Client, queue: &Queue, buffer: Id, bytes: &mut [u8]) -> Vec<u8> {
    let mut back = vec![0; bytes.len()];
    let number = lend(client, queue, 0, Direction::Write, buffer, bytes);
    queue.wait(number).unwrap();
    let number = lend(client, queue, 0, Direction::Read, buffer, &mut back);
    queue.wait(number).unwrap();
    back
}

fn commands(daemon: &Daemon) -> u64 {
    daemon.seen.commands.load(Ordering::SeqCst)
}

#[test]
fn lent_memory_travels_whether_the_device_shares_it_or_not() {
    for (host_memory, executor_sees) in [(false, true), (true, false)] {
        let daemon = daemon_of(host_memory, |_| {});
        let (client, _) = connect(daemon.port);
        let queue = client.open_queue(0, 0, 0).unwrap();
        for len in [LARGE, 100_000, 4096, 1] {
            let target = buffer(&client, len as u64);
            let mut bytes = pattern(len as u64, len);
            let back = round_trip(&client, &queue, target, &mut bytes);
            assert!(back == bytes, "{len} bytes");
            client.release(target, None).unwrap();
        }
        assert_eq!(commands(&daemon) > 0, executor_sees);
    }
}

#[test]
fn a_small_write_goes_to_the_executor_unless_the_relay_did_what_was_before() {
    let daemon = daemon_of(true, |_| {});
    let (client, _) = connect(daemon.port);
    let queue = client.open_queue(0, 0, 0).unwrap();
    let target = buffer(&client, 4096);
    for round in 0..3 {
        let mut bytes = pattern(round, 4096);
        let back = round_trip(&client, &queue, target, &mut bytes);
        assert!(back == bytes, "{round}");
    }
    assert_eq!(commands(&daemon), 1, "the first write");
    let number = fill(&queue, &[], target, 7, 4096);
    queue.wait(number).unwrap();
    let mut bytes = pattern(4, 4096);
    assert!(round_trip(&client, &queue, target, &mut bytes) == bytes);
    assert_eq!(commands(&daemon), 3, "the fill, and the write behind it");
}

#[test]
fn a_broken_path_is_resumed_in_the_middle_of_both_directions() {
    for host_memory in [false, true] {
        let daemon = daemon_of(host_memory, |_| {});
        let path = Path::ending_after(daemon.port, 5_300_017);
        let (client, losses) = connect(path.port);
        let queue = client.open_queue(0, 0, 0).unwrap();
        let target = buffer(&client, LARGE as u64);
        for round in 0..6 {
            let mut bytes = pattern(round, LARGE);
            let back = round_trip(&client, &queue, target, &mut bytes);
            assert!(back == bytes, "{round}");
            // A duplicate transmission would contain these bytes.
            bytes.fill(0xee);
        }
        assert!(path.connections() > 6 * 6, "{}", path.connections());
        assert_eq!(daemon.seen.sessions.load(Ordering::SeqCst), 1);
        assert!(losses.0.lock().unwrap().is_empty());
        if host_memory {
            assert_eq!(commands(&daemon), 0, "the relay's alone");
        }
    }
}

#[test]
fn what_changes_a_buffer_behind_a_transfer_changes_no_byte_of_it() {
    let daemon = daemon_of(true, |_| {});
    let path = Path::ending_after(daemon.port, 3_700_003);
    let (client, _) = connect(path.port);
    let queue = client.open_queue(0, 0, 0).unwrap();
    let target = buffer(&client, LARGE as u64);
    for round in 0..6 {
        let mut bytes = pattern(round, LARGE);
        let (mut first, mut second) = (vec![0; LARGE], vec![0; LARGE]);
        // A repeated write must not undo the fill, and a repeated read must not show it.
        let number = lend(&client, &queue, 0, Direction::Write, target, &mut bytes);
        queue.wait(number).unwrap();
        lend(&client, &queue, 0, Direction::Read, target, &mut first);
        fill(&queue, &[], target, round as u8, LARGE as u64 / 2);
        let number = lend(&client, &queue, 0, Direction::Read, target, &mut second);
        queue.wait(number).unwrap();
        assert!(first == bytes, "{round}");
        let (filled, left) = second.split_at(LARGE / 2);
        assert!(filled.iter().all(|&b| b == round as u8), "{round}");
        assert!(left == &bytes[LARGE / 2..], "{round}");
    }
    assert!(path.connections() > 6 * 12, "{}", path.connections());
}

#[test]
fn memory_of_a_lost_session_is_left_alone() {
    for direction in [Direction::Read, Direction::Write] {
        let daemon = daemon_of(true, |_| {});
        for pause_us in [0, 300, 1000, 3000] {
            let (client, _) = connect(daemon.port);
            let queue = client.open_queue(0, 0, 0).unwrap();
            let target = buffer(&client, LARGE as u64);
            fill(&queue, &[], target, 7, LARGE as u64);
            queue.wait(1).unwrap();
            let mut bytes = vec![0; LARGE];
            lend(&client, &queue, 0, direction, target, &mut bytes);
            queue.flush();
            std::thread::sleep(Duration::from_micros(pause_us));
            drop(client);
            let then = bytes.clone();
            std::thread::sleep(Duration::from_millis(20));
            assert!(bytes == then, "somebody still writes here");
        }
    }
}

#[test]
fn failures_are_those_of_the_right_commands() {
    let daemon = daemon_of(true, |_| {});
    let (client, _) = connect(daemon.port);
    let queue = client.open_queue(0, 0, 0).unwrap();
    let target = buffer(&client, 100_000);
    let mut bytes = pattern(1, 100_000);
    let mut nothing = vec![0; 8];
    for _ in 0..5 {
        assert!(round_trip(&client, &queue, target, &mut bytes) == bytes);
        let number = lend(&client, &queue, 0, Direction::Write, 999, &mut nothing);
        assert_eq!(queue.wait(number), Err(-38));
        // A failure is reported once.
        fill(&queue, &[], target, 1, 10);
        let number = lend(&client, &queue, 0, Direction::Write, target, &mut bytes);
        assert_eq!(queue.wait(number), Ok(()));
        let event = client.new_event().unwrap();
        lend(&client, &queue, event, Direction::Read, 999, &mut nothing);
        queue.flush();
        assert_eq!(client.wait_event(event), -38);
    }
}

#[test]
fn other_queues_see_transfers_of_the_relay() {
    let daemon = daemon_of(true, |_| {});
    let (client, _) = connect(daemon.port);
    let (first, second) = (client.open_queue(0, 0, 0), client.open_queue(0, 0, 0));
    let (first, second) = (first.unwrap(), second.unwrap());
    let target = buffer(&client, 200_000);
    for round in 0..20u8 {
        let (early, late) = (client.new_event().unwrap(), client.new_event().unwrap());
        let mut bytes = pattern(round.into(), 200_000);
        let (mut whole, mut after) = (vec![0; 200_000], vec![0; 200_000]);
        // One command waits at the executor before the relay has finished, another one is sent
        // afterwards.
        fill(&second, &[early], target, round, 100_000);
        second.flush();
        lend(&client, &first, early, Direction::Write, target, &mut bytes);
        first.flush();
        second.wait(second.pushed()).unwrap();
        lend(&client, &first, late, Direction::Read, target, &mut whole);
        first.flush();
        assert_eq!(client.wait_event(late), 0);
        let number = fill(&second, &[early, late], target, 0xaa, 200_000);
        second.wait(number).unwrap();
        let number = lend(&client, &first, 0, Direction::Read, target, &mut after);
        first.wait(number).unwrap();
        assert!(whole[..100_000].iter().all(|&b| b == round));
        assert!(whole[100_000..] == bytes[100_000..]);
        assert!(after.iter().all(|&b| b == 0xaa));
    }
}

#[test]
fn parts_and_first_contents_lie_in_place_too() {
    let daemon = daemon_of(true, |_| {});
    let (client, _) = connect(daemon.port);
    let queue = client.open_queue(0, 0, 0).unwrap();
    let contents = pattern(3, 3_000_000);
    let block = client.allocate(3_000_000, 64).unwrap();
    block.range().copy_in(0, &contents);
    let whole = client.new_id();
    let control = Control::Buffer {
        id: whole,
        context: 0,
        flags: 0,
        size: 3_000_000,
        backing: Backing::Device(Some(block.payload())),
    };
    client.control(&control).unwrap();
    let part = client.new_id();
    let control = Control::SubBuffer {
        id: part,
        parent: whole,
        flags: 0,
        origin: 4096,
        size: 100_000,
    };
    client.control(&control).unwrap();
    client.call(Request::Sync).unwrap();
    let mut bytes = vec![0; 100_000];
    let number = lend(&client, &queue, 0, Direction::Read, part, &mut bytes);
    queue.wait(number).unwrap();
    assert!(bytes == contents[4096..104_096]);
    let mut new = pattern(4, 100_000);
    assert!(round_trip(&client, &queue, part, &mut new) == new);
    let mut all = vec![0; 3_000_000];
    let number = lend(&client, &queue, 0, Direction::Read, whole, &mut all);
    queue.wait(number).unwrap();
    assert!(all[..4096] == contents[..4096] && all[4096..104_096] == new);
    assert!(all[104_096..] == contents[104_096..]);
    assert_eq!(commands(&daemon), 0);
}

#[test]
fn a_buffer_that_cannot_be_made_takes_no_bytes() {
    let daemon = daemon_of(true, |_| {});
    let (client, _) = connect(daemon.port);
    let queue = client.open_queue(0, 0, 0).unwrap();
    let target = buffer(&client, REFUSED_BYTES);
    let mut bytes = pattern(1, 1000);
    let number = lend(&client, &queue, 0, Direction::Write, target, &mut bytes);
    assert_eq!(queue.wait(number), Err(-38));
    // Ranges outside a shared buffer are not accessed either.
    let target = buffer(&client, 999);
    let number = lend(&client, &queue, 0, Direction::Read, target, &mut bytes);
    assert_eq!(queue.wait(number), Err(-38));
}

#[test]
fn a_loan_that_is_not_enqueued_leaves_nothing() {
    let daemon = daemon(|_| {});
    let (client, _): (Arc<Client>, _) = connect(daemon.port);
    let queue = client.open_queue(0, 0, 0).unwrap();
    let mut bytes = vec![1; 64];
    // SAFETY: `bytes` outlives its use by the session, which ends at once.
    let memory = unsafe { Memory::borrowed(bytes.as_mut_ptr(), 64) };
    let payload = client.lend(&memory).unwrap().payload();
    let target = buffer(&client, 64);
    let operation = Operation::Buffer {
        direction: Direction::Write,
        buffer: target,
        offset: 0,
        payload,
    };
    // An id that is no longer valid: such a fault of the library ends its session.
    queue.push(0, &[], &operation).unwrap();
    assert!(queue.wait(1).is_err());
    assert!(client.is_lost().is_some());
}
