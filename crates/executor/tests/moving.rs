//! Both ends of a move in one process: contents come through the window with the right bytes, and a
//! stop touches only what is written.

mod common;

use baltra_channel::Channel;
use baltra_executor::account::Account;
use baltra_executor::session::moving::link::{move_in, move_out, Cost, Terms};
use baltra_executor::session::Session;
use baltra_ring::{LeaseGranter, LeaseHolder};
use baltra_wire::{Arg, Direction, Id, Payload};
use common::{shared, Peer, Queue, PATIENCE};
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const SOURCE: &str = "kernel void add(global uint *a, uint n) { a[get_global_id(0)] += n; }";

/// Moves a session to a new one of this process while `meanwhile` runs again and again.
fn moved(
    session: &Arc<Session>,
    mut meanwhile: impl FnMut(),
) -> (Arc<Session>, LeaseGranter, Cost) {
    let (page, bell) = baltra_ring::lease::create().unwrap();
    let granter = LeaseGranter::new(&page, bell.try_clone().unwrap()).unwrap();
    granter.grant();
    let lease = LeaseHolder::new(&page, bell).unwrap();
    let account = Arc::new(Account::new(lease, session.start.limits.memory_bytes));
    let (source, target) = Channel::pair().unwrap();
    let terms = Terms {
        wait: PATIENCE,
        allocation_bytes_max: u64::MAX,
        is_to_disk: false,
        asks: false,
    };
    std::thread::scope(|scope| {
        let out = scope.spawn(|| move_out(session, &source, terms));
        let start = session.start.clone();
        let came = scope.spawn(move || {
            let import = move_in(shared(), account, start, target)?;
            let cost = import.cost;
            let (own, _) = import.start(|_| ())?;
            Ok::<_, String>((own, cost))
        });
        while !out.is_finished() {
            meanwhile();
        }
        out.join().unwrap().unwrap();
        let (own, cost) = came.join().unwrap().unwrap();
        (own, granter, cost)
    })
}

fn fill(peer: &mut Peer, queue: &mut Queue, buffer: Id, payload: Payload, seed: u8) {
    for (at, byte) in peer.bytes(payload).iter_mut().enumerate() {
        *byte = (at as u8).wrapping_mul(31) ^ (at >> 12) as u8 ^ seed;
    }
    peer.transfer(queue, 0, Direction::Write, buffer, payload);
    queue.finish();
}

#[test]
fn a_stop_touches_only_what_is_written() {
    let mut peer = Peer::new();
    let context = peer.context();
    let mut queue = peer.queue(context, 0);
    let add = peer.kernel(context, SOURCE, "add");
    let payload = peer.payload(20 * MIB + 4);
    // More than a part of the window, and no multiple of it.
    let buffers: Vec<_> = (0..12)
        .map(|_| peer.device_buffer(context, payload.len))
        .collect();
    for (seed, buffer) in buffers.iter().enumerate() {
        fill(&mut peer, &mut queue, *buffer, payload, seed as u8);
    }
    let counter = peer.device_buffer(context, MIB);
    let zeros = Payload {
        len: MIB,
        ..payload
    };
    peer.bytes(zeros).fill(0);
    peer.transfer(&mut queue, 0, Direction::Write, counter, zeros);
    queue.finish();
    let mut session = peer.session.clone();
    let (mut added, mut granters) = (0, Vec::new());
    for _ in 0..2 {
        let args = [Arg::Memory(counter), Arg::Value(&1u32.to_le_bytes())];
        let (own, granter, cost) = moved(&session, || {
            peer.launch(&mut queue, 0, &[], add, MIB / 4, &args);
            queue.finish();
            added += 1;
        });
        assert!(cost.bytes.0 >= 12 * payload.len, "{cost:?}");
        // The counter, and the kernel.
        assert!(cost.bytes.1 <= MIB && cost.stopped_objects <= 2, "{cost:?}");
        session = own;
        granters.push(granter);
    }
    for (seed, buffer) in buffers.iter().enumerate() {
        peer.bytes(payload).fill(0);
        peer.transfer(&mut queue, 0, Direction::Read, *buffer, payload);
        queue.finish();
        let wrong = peer.bytes(payload).iter().enumerate().find(|(at, byte)| {
            **byte != (*at as u8).wrapping_mul(31) ^ (*at >> 12) as u8 ^ seed as u8
        });
        assert_eq!(wrong, None, "buffer {seed}");
    }
    peer.transfer(&mut queue, 0, Direction::Read, counter, zeros);
    queue.finish();
    let counted = peer.bytes(zeros).chunks_exact(4);
    assert!(counted
        .into_iter()
        .all(|word| word == u32::to_le_bytes(added)));
    session.close("the test is over");
    drop(peer.end());
}
