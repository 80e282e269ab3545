//! Long launches in slices: the device is given up between two of them, and the kernels compute what
//! they compute in one launch.

mod common;

use baltra_ring::LeaseState;
use baltra_wire::{Arg, Event, Id, Operation};
use common::{Peer, Queue, PATIENCE};
use std::time::{Duration, Instant};

/// Long beside a slice.
const SLICE: Duration = Duration::from_micros(200);

/// Each work-item spends some time, and stores its ids and the sizes of the launch.
const SOURCE: &str = "
uint spin(uint value, uint times) {
    for (uint i = 0; i < times; i++) value = value * 1664525u + 1013904223u;
    return value;
}
kernel void place(global ulong *out, uint dimensions, uint times) {
    size_t width = get_global_size(0), height = get_global_size(1);
    size_t x = get_global_id(0) - get_global_offset(0);
    size_t y = get_global_id(1) - get_global_offset(1);
    size_t z = get_global_id(2) - get_global_offset(2);
    global ulong *to = out + 16 * ((z * height + y) * width + x);
    for (uint d = 0; d < 3; d++) {
        to[d] = get_global_id(d);
        to[3 + d] = get_group_id(d) * get_local_size(d) + get_local_id(d);
        to[6 + d] = get_num_groups(d);
        to[9 + d] = get_global_size(d);
        to[12 + d] = get_global_offset(d);
    }
    to[15] = get_work_dim() + spin((uint)x, times) / 0xffffffffu;
}";

/// The same without what has to be rewritten.
const PLAIN: &str = "
uint spin(uint value, uint times) {
    for (uint i = 0; i < times; i++) value = value * 1664525u + 1013904223u;
    return value;
}
kernel void count(global uint *out, uint times) {
    size_t at = get_global_id(0);
    out[at] += 1 + spin((uint)at, times) / 0xffffffffu;
}";

fn peer() -> Peer {
    common::SLICE.get_or_init(|| SLICE);
    Peer::new()
}

/// Queues a launch with this geometry.
fn launch(
    peer: &mut Peer,
    queue: &mut Queue,
    event: Event,
    kernel: Id,
    (offset, global, local): ([u64; 3], &[u64], [u64; 3]),
    args: &[Arg],
) {
    let mut bytes = Vec::new();
    for arg in args {
        baltra_wire::encode(arg, &mut bytes).unwrap();
    }
    let mut sizes = [1; 3];
    sizes[..global.len()].copy_from_slice(global);
    let operation = Operation::Launch {
        kernel,
        dimensions: global.len() as u8,
        offset,
        global: sizes,
        local,
        arg_count: args.len() as u32,
        args: &bytes,
        svm_indirect: &[],
    };
    peer.push(queue, event, &[], &operation);
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Takes the device away and grants it again until the launch is complete; returns how often it was
/// given up before that.
fn interrupt(peer: &Peer, event: Event) -> u32 {
    let mut given_up = 0;
    while peer.events.status(event) > 0 {
        if peer.granter.state() != LeaseState::Busy || !peer.granter.revoke() {
            std::thread::yield_now();
            continue;
        }
        until("the device is not given up", || {
            peer.granter.state() != LeaseState::Revoked
        });
        given_up += u32::from(peer.events.status(event) > 0);
        until("the device is not requested", || {
            peer.granter.state() == LeaseState::Waiting || peer.events.status(event) <= 0
        });
        if peer.granter.state() == LeaseState::Waiting {
            peer.granter.grant();
        }
    }
    assert_eq!(peer.events.status(event), 0);
    if peer.granter.state() == LeaseState::Free {
        peer.granter.grant();
    }
    given_up
}

#[test]
fn the_device_is_given_up_between_slices_and_each_item_runs_once() {
    let mut peer = peer();
    let context = peer.context();
    let mut queue = peer.queue(context, 0);
    let items = 1 << 16;
    let (buffer, payload) = peer.buffer(context, items * 4);
    let kernel = peer.kernel(context, PLAIN, "count");
    let times = 1000u32.to_le_bytes();
    let mut given_up = 0;
    for round in 1..=3u32 {
        let event = peer.event();
        let geometry = ([0; 3], &[items][..], [64, 0, 0]);
        let args = [Arg::Memory(buffer), Arg::Value(&times)];
        launch(&mut peer, &mut queue, event, kernel, geometry, &args);
        queue.flush();
        given_up += interrupt(&peer, event);
        let counts = peer.bytes(payload).as_chunks::<4>().0;
        assert!(counts.iter().all(|count| *count == round.to_le_bytes()));
    }
    // About 65 ms of work in three launches, in slices of 0.1 ms; at the least one interruption each.
    assert!(given_up >= 3, "given up {given_up} times");
    peer.end();
}

#[test]
fn a_slice_sees_the_whole_launch() {
    let mut peer = peer();
    let context = peer.context();
    let mut queue = peer.queue(context, 0);
    let (buffer, payload) = peer.buffer(context, 16 << 20);
    let kernel = peer.kernel(context, SOURCE, "place");
    let times = 2000u32.to_le_bytes();
    let mut given_up = 0;
    for (offset, global, local) in [
        ([0; 3], &[4096][..], [16, 1, 1]),
        ([7, 0, 0], &[4096], [64, 1, 1]),
        ([5, 3, 0], &[64, 96], [8, 4, 1]),
        ([0, 0, 9], &[16, 8, 32], [4, 2, 2]),
        // The slowest dimension has too few groups.
        ([1, 2, 3], &[16, 256, 2], [4, 2, 2]),
    ] {
        // The first launch is whole, to learn how long it takes; the others are divided.
        for round in 0..3 {
            peer.bytes(payload).fill(0xff);
            let event = peer.event();
            let dimensions = (global.len() as u32).to_le_bytes();
            let args = [
                Arg::Memory(buffer),
                Arg::Value(&dimensions),
                Arg::Value(&times),
            ];
            let geometry = (offset, global, local);
            launch(&mut peer, &mut queue, event, kernel, geometry, &args);
            queue.flush();
            given_up += interrupt(&peer, event);
            let mut sizes = [1; 3];
            sizes[..global.len()].copy_from_slice(global);
            let used = |at: usize| u64::from(at < global.len());
            let offsets: [u64; 3] = std::array::from_fn(|at| offset[at] * used(at));
            let rows = peer.bytes(payload).as_chunks::<8>().0.as_chunks::<16>().0;
            let count = sizes.iter().product::<u64>();
            for (at, row) in rows.iter().take(count as usize).enumerate() {
                let at = at as u64;
                let place = [
                    at % sizes[0],
                    at / sizes[0] % sizes[1],
                    at / sizes[0] / sizes[1],
                ];
                let row = row.map(u64::from_le_bytes);
                let expected: [u64; 16] = std::array::from_fn(|column| {
                    let d = column % 3;
                    match column / 3 {
                        0 => offsets[d] + place[d],
                        1 => place[d],
                        2 => sizes[d] / local[d],
                        3 => sizes[d],
                        4 => offsets[d],
                        _ => global.len() as u64,
                    }
                });
                assert_eq!(row, expected, "{geometry:?}, round {round}, item {at}");
            }
        }
    }
    // Each of the five launches is divided twice.
    assert!(given_up >= 10, "given up {given_up} times");
    peer.end();
}

#[test]
fn a_launch_with_an_error_in_its_slices_ends_with_it() {
    let mut peer = peer();
    let context = peer.context();
    let mut queue = peer.queue(context, 0);
    let (buffer, _) = peer.buffer(context, 1 << 20);
    let kernel = peer.kernel(context, PLAIN, "count");
    let event = peer.event();
    // A group that is larger than any device allows.
    let geometry = ([0; 3], &[1 << 24][..], [1 << 20, 0, 0]);
    let times = 1u32.to_le_bytes();
    let args = [Arg::Memory(buffer), Arg::Value(&times)];
    launch(&mut peer, &mut queue, event, kernel, geometry, &args);
    queue.flush();
    assert_eq!(peer.wait(event), baltra_opencl::CL_INVALID_WORK_GROUP_SIZE);
    peer.end();
}

#[test]
fn a_session_that_ends_in_the_middle_of_a_launch_gives_the_device_up() {
    let mut peer = peer();
    let context = peer.context();
    let mut queue = peer.queue(context, 0);
    let (buffer, _) = peer.buffer(context, 4 << 20);
    let kernel = peer.kernel(context, PLAIN, "count");
    let times = 1_000_000u32.to_le_bytes();
    // Hours of work, in slices.
    let geometry = ([0; 3], &[1 << 20][..], [1, 0, 0]);
    let args = [Arg::Memory(buffer), Arg::Value(&times)];
    launch(&mut peer, &mut queue, 0, kernel, geometry, &args);
    queue.flush();
    until("the launch does not begin", || {
        peer.granter.state() == LeaseState::Busy
    });
    // Ends only if the slices do.
    peer.end();
}
