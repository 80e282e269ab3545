//! Long launches in slices: the device is given up between two of them, and the kernels compute what
//! they compute in one launch.

mod common;

use baltra_opencl::CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
use baltra_ring::LeaseState;
use baltra_wire::{Arg, Control, Event, Id, Operation};
use common::{Peer, Queue, PATIENCE};
use std::time::{Duration, Instant};

const UNORDERED: u64 = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE as u64;

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

/// A work-item that takes long, and those that see whether it has ended.
const FLAG: &str = "
uint spin(uint value, uint times) {
    for (uint i = 0; i < times; i++) value = value * 1664525u + 1013904223u;
    return value;
}
kernel void set(global uint *flag, uint value, uint times) {
    flag[0] = value + spin(value, times) / 0xffffffffu;
}
kernel void see(global const uint *flag, global uint *out, uint times) {
    size_t at = get_global_id(0);
    out[at] = flag[0] + spin((uint)at, times) / 0xffffffffu;
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
    geometry: ([u64; 3], &[u64], [u64; 3]),
    args: &[Arg],
) {
    launch_after(peer, queue, (&[], event), kernel, geometry, args);
}

/// The same with a wait list.
fn launch_after(
    peer: &mut Peer,
    queue: &mut Queue,
    (waits, event): (&[Event], Event),
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
    peer.push(queue, event, waits, &operation);
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Work-items of a launch that is run in several slices, and the `times` of its kernel.
fn long() -> (u64, [u8; 4]) {
    let is_gpu = common::shared().device.is_gpu();
    let (items, times) = if is_gpu {
        (1 << 22, 50_000u32)
    } else {
        (1 << 14, 1000)
    };
    (items, times.to_le_bytes())
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
    see_the_whole_launch(0);
}

#[test]
fn a_slice_in_an_out_of_order_queue_sees_the_whole_launch() {
    see_the_whole_launch(UNORDERED);
}

fn see_the_whole_launch(properties: u64) {
    let mut peer = peer();
    let context = peer.context();
    let mut queue = peer.queue(context, properties);
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
fn each_slice_runs_after_what_the_launch_waits_for() {
    let mut peer = peer();
    let context = peer.context();
    let mut before = peer.queue(context, 0);
    let mut queues = [peer.queue(context, 0), peer.queue(context, UNORDERED)];
    let (flag, _) = peer.buffer(context, 4);
    let (items, times) = long();
    let (out, payload) = peer.buffer(context, items * 4);
    let set = peer.kernel(context, FLAG, "set");
    let see = peer.kernel(context, FLAG, "see");
    for round in 1..=12u32 {
        let (first, second) = (peer.event(), peer.event());
        // One group, which is not divided, for some 20 ms.
        let (value, long) = (round.to_le_bytes(), 20_000_000u32.to_le_bytes());
        let args = [Arg::Memory(flag), Arg::Value(&value), Arg::Value(&long)];
        launch(
            &mut peer,
            &mut before,
            first,
            set,
            ([0; 3], &[1], [1, 0, 0]),
            &args,
        );
        before.flush();
        // In several slices, which are known to take long after the first round.
        let queue = &mut queues[round as usize % 2];
        let args = [Arg::Memory(flag), Arg::Memory(out), Arg::Value(&times)];
        let geometry = ([0; 3], &[items][..], [64, 0, 0]);
        launch_after(&mut peer, queue, (&[first], second), see, geometry, &args);
        queue.flush();
        assert_eq!(peer.wait(second), 0);
        peer.look(queue, out, payload);
        let seen = peer.bytes(payload).as_chunks::<4>().0;
        let wrong = seen.iter().filter(|seen| **seen != value).count();
        assert_eq!(wrong, 0, "of {items} in round {round}");
    }
    peer.end();
}

#[test]
fn launches_of_an_out_of_order_queue_run_when_their_wait_lists_allow() {
    let mut peer = peer();
    let context = peer.context();
    let mut queue = peer.queue(context, UNORDERED);
    let (items, times) = long();
    let (buffer, payload) = peer.buffer(context, items * 4);
    let kernel = peer.kernel(context, PLAIN, "count");
    let args = [Arg::Memory(buffer), Arg::Value(&times)];
    let geometry = ([0; 3], &[items][..], [64, 0, 0]);
    // Each waits for the one that is queued after it, the last one for the client.
    let events: Vec<Event> = (0..=6).map(|_| peer.event()).collect();
    for at in 0..6 {
        let (waits, event) = ([events[at + 1]], events[at]);
        launch_after(
            &mut peer,
            &mut queue,
            (&waits, event),
            kernel,
            geometry,
            &args,
        );
    }
    queue.flush();
    assert!(events.iter().all(|event| peer.is_pending(*event)));
    peer.control(&Control::UserEvent {
        event: events[6],
        status: 0,
    });
    let given_up = interrupt(&peer, events[0]);
    assert!(given_up > 0);
    peer.look(&mut queue, buffer, payload);
    let counts = peer.bytes(payload).as_chunks::<4>().0;
    assert!(counts.iter().all(|count| *count == 6u32.to_le_bytes()));
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
