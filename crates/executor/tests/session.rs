//! Sessions on the real driver.

mod common;

use baltra_opencl::*;
use baltra_wire::{Arg, Control, Direction, Notice, Operation, Reply, Request};
use common::{Peer, PATIENCE};
use std::time::Instant;

const ADD: &str = "kernel void add(global const float* a, global const float* b,
    global float* c, float scale) { size_t i = get_global_id(0); c[i] = scale * (a[i] + b[i]); }";
const STEP: &str = "kernel void advance(global int* v, int n) { v[get_global_id(0)] = v[get_global_id(0)] * 3 + n; }";
const UNORDERED: u64 = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE as u64;

fn floats(bytes: &mut [u8]) -> &mut [f32] {
    // SAFETY: page-aligned memory, any bits are a float.
    unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len() / 4) }
}

fn ints(bytes: &mut [u8]) -> &mut [i32] {
    // SAFETY: page-aligned memory, any bits are an int.
    unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len() / 4) }
}

#[test]
fn vectors_are_added_in_the_clients_own_memory() {
    let mut peer = Peer::new();
    let context = peer.context();
    let mut queue = peer.queue(context, 0);
    let bytes = 4 * 1000;
    let (a, at_a) = peer.buffer(context, bytes);
    let (b, at_b) = peer.buffer(context, bytes);
    let (c, at_c) = peer.buffer(context, bytes);
    for (i, x) in floats(peer.bytes(at_a)).iter_mut().enumerate() {
        *x = i as f32;
    }
    floats(peer.bytes(at_b)).fill(1.0);
    peer.show(&mut queue, a, at_a);
    peer.show(&mut queue, b, at_b);
    let kernel = peer.kernel(context, ADD, "add");
    let scale = 2.0f32.to_ne_bytes();
    let args = [
        Arg::Memory(a),
        Arg::Memory(b),
        Arg::Memory(c),
        Arg::Value(&scale),
    ];
    peer.launch(&mut queue, 0, &[], kernel, 1000, &args);
    queue.finish();
    assert_eq!(queue.progress.failure(), None);
    peer.look(&mut queue, c, at_c);
    let sums = floats(peer.bytes(at_c));
    assert!(sums
        .iter()
        .enumerate()
        .all(|(i, x)| *x == 2.0 * (i as f32 + 1.0)));
    assert_eq!(peer.end(), "the client disconnected");
}

#[test]
fn device_memory_is_written_computed_and_read_back() {
    let mut peer = Peer::new();
    let context = peer.context();
    let mut queue = peer.queue(context, 0);
    let bytes = 4096;
    let buffer = peer.device_buffer(context, bytes);
    let kernel = peer.kernel(context, STEP, "advance");
    let (host, back) = (peer.payload(bytes), peer.payload(bytes));
    ints(peer.bytes(host)).fill(5);
    let n = 7i32.to_ne_bytes();
    peer.transfer(&mut queue, 0, Direction::Write, buffer, host);
    for _ in 0..3 {
        let args = [Arg::Memory(buffer), Arg::Value(&n)];
        peer.launch(&mut queue, 0, &[], kernel, bytes / 4, &args);
    }
    peer.transfer(&mut queue, 0, Direction::Read, buffer, back);
    queue.finish();
    assert_eq!(queue.progress.failure(), None);
    let expected = ((5 * 3 + 7) * 3 + 7) * 3 + 7;
    assert!(ints(peer.bytes(back)).iter().all(|x| *x == expected));
}

#[test]
fn a_thousand_launches_run_in_order() {
    let mut peer = Peer::new();
    let context = peer.context();
    let mut queue = peer.queue(context, 0);
    let (buffer, at) = peer.buffer(context, 4);
    peer.show(&mut queue, buffer, at);
    let kernel = peer.kernel(context, STEP, "advance");
    let mut expected = 0i32;
    for n in 0..1000i32 {
        let value = n.to_ne_bytes();
        let args = [Arg::Memory(buffer), Arg::Value(&value)];
        peer.launch(&mut queue, 0, &[], kernel, 1, &args);
        expected = expected.wrapping_mul(3).wrapping_add(n);
    }
    queue.finish();
    peer.look(&mut queue, buffer, at);
    assert_eq!(ints(peer.bytes(at))[0], expected);
}

#[test]
fn a_chain_over_queues_keeps_its_order() {
    for properties in [0, UNORDERED, CL_QUEUE_PROFILING_ENABLE as u64] {
        let mut peer = Peer::new();
        let context = peer.context();
        let mut queues: Vec<_> = (0..4).map(|_| peer.queue(context, properties)).collect();
        let (buffer, at) = peer.buffer(context, 4);
        peer.show(&mut queues[0], buffer, at);
        let kernel = peer.kernel(context, STEP, "advance");
        let mut expected = 0i32;
        let mut last = None;
        for n in 0..200i32 {
            let value = n.to_ne_bytes();
            let args = [Arg::Memory(buffer), Arg::Value(&value)];
            let event = peer.event();
            let waits: Vec<_> = last.into_iter().collect();
            let queue = &mut queues[n as usize * 7 % 4];
            peer.launch(queue, event, &waits, kernel, 1, &args);
            expected = expected.wrapping_mul(3).wrapping_add(n);
            last = Some(event);
        }
        // The last queue first: each queue has to wait for work that has not been flushed yet.
        for queue in queues.iter_mut().rev() {
            queue.flush();
        }
        for queue in &mut queues {
            queue.finish();
        }
        let last = last.unwrap();
        assert_eq!(peer.wait(last), 0);
        peer.look(&mut queues[0], buffer, at);
        assert_eq!(ints(peer.bytes(at))[0], expected);
        if properties == CL_QUEUE_PROFILING_ENABLE as u64 {
            let [queued, submitted, started, ended] = peer.events.times(last);
            assert!(queued > 0 && queued <= submitted && submitted <= started);
            assert!(started <= ended);
        }
    }
}

#[test]
fn a_user_event_holds_its_commands_and_not_the_device() {
    for properties in [0, UNORDERED] {
        let mut peer = Peer::new();
        let context = peer.context();
        let mut queue = peer.queue(context, properties);
        let (user, event, failed) = (peer.event(), peer.event(), peer.event());
        peer.push(&mut queue, event, &[user], &Operation::Marker);
        queue.flush();
        assert!(peer.is_pending(event));
        assert_ne!(peer.granter.state(), baltra_ring::LeaseState::Busy);
        peer.control(&Control::UserEvent {
            event: user,
            status: 0,
        });
        assert_eq!(peer.wait(event), 0);
        let user = peer.event();
        peer.push(&mut queue, failed, &[user], &Operation::Marker);
        queue.flush();
        peer.control(&Control::UserEvent {
            event: user,
            status: -999,
        });
        assert_eq!(
            peer.wait(failed),
            CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
        );
        queue.finish();
    }
}

#[test]
fn a_command_that_the_end_of_its_session_drops_does_not_count_as_carried_out() {
    let mut peer = Peer::new();
    let context = peer.context();
    let mut queue = peer.queue(context, 0);
    peer.push(&mut queue, 0, &[], &Operation::Marker);
    queue.finish();
    // Another tenant gets the device, and the session ends while its command waits for it.
    let in_time = |what: &str, condition: &dyn Fn() -> bool| {
        let started = Instant::now();
        while !condition() {
            assert!(started.elapsed() < PATIENCE, "{what}");
            std::thread::yield_now();
        }
    };
    in_time("the lease stays in use", &|| peer.granter.take_idle());
    peer.push(&mut queue, 0, &[], &Operation::Marker);
    queue.flush();
    let waits = || peer.granter.state() == baltra_ring::LeaseState::Waiting;
    in_time("the command does not wait for the device", &waits);
    peer.session.dismiss("the device is needed");
    peer.ended.recv_timeout(PATIENCE).unwrap();
    if queue.progress.completed() == 2 {
        let failure = queue.progress.failure();
        assert_eq!(failure, Some((2, CL_DEVICE_NOT_AVAILABLE)));
    }
}

#[test]
fn an_unordered_queue_overtakes_and_its_barrier_does_not() {
    let mut peer = Peer::new();
    let context = peer.context();
    let mut queue = peer.queue(context, UNORDERED);
    let (user, held, free) = (peer.event(), peer.event(), peer.event());
    let (barrier, behind) = (peer.event(), peer.event());
    let kernel = peer.kernel(context, "kernel void nothing() {}", "nothing");
    peer.launch(&mut queue, held, &[user], kernel, 1, &[]);
    peer.launch(&mut queue, free, &[], kernel, 1, &[]);
    peer.push(&mut queue, barrier, &[], &Operation::Barrier);
    peer.launch(&mut queue, behind, &[], kernel, 1, &[]);
    queue.flush();
    assert_eq!(peer.wait(free), 0);
    assert!(peer.is_pending(held) && peer.is_pending(barrier) && peer.is_pending(behind));
    assert_eq!(queue.progress.completed(), 0);
    peer.control(&Control::UserEvent {
        event: user,
        status: 0,
    });
    for event in [held, barrier, behind] {
        assert_eq!(peer.wait(event), 0);
    }
    queue.finish();
}

#[test]
fn a_failing_build_brings_its_log() {
    let mut peer = Peer::new();
    let context = peer.context();
    let program = peer.program(context, "kernel void broken() { this is not C; }");
    let Reply::Built {
        code,
        devices,
        kernels,
    } = peer.build(program)
    else {
        panic!("another reply");
    };
    assert_eq!(code, CL_BUILD_PROGRAM_FAILURE);
    let (_, status, _, log, _) = &devices[0];
    assert_eq!(*status, CL_BUILD_ERROR);
    assert!(!log.is_empty() && kernels.is_empty());
    // The session lives on.
    assert_eq!(peer.call(Request::Sync), Reply::Done);
}

#[test]
fn kernels_are_described_with_their_argument_sizes() {
    let mut peer = Peer::new();
    let context = peer.context();
    let source = "typedef struct { int x; float4 y; char z; } thing;
        kernel __attribute__((reqd_work_group_size(4, 1, 1)))
        void f(global int* a, constant float* b, local int* c, float d, uchar3 e, double2 g,
               sampler_t s, read_only image2d_t i) { a[0] = 1; }";
    let program = peer.program(context, source);
    let Reply::Built { code, kernels, .. } = peer.build(program) else {
        panic!("another reply");
    };
    assert_eq!((code, kernels.len()), (0, 1));
    let kernel = &kernels[0];
    assert_eq!(kernel.name, "f");
    assert!(kernel.arg_info);
    let sizes: Vec<_> = kernel.args.iter().map(|arg| arg.size).collect();
    assert_eq!(sizes, [8, 8, 0, 4, 4, 16, 8, 8]);
    assert_eq!(kernel.args[3].name, "d");
    let group = kernel
        .work_group
        .iter()
        .find(|(param, _)| *param == CL_KERNEL_COMPILE_WORK_GROUP_SIZE as u32);
    assert_eq!(group.unwrap().1[..8], 4u64.to_ne_bytes());
}

#[test]
fn unknown_names_fail_the_command_and_nothing_else() {
    let mut peer = Peer::new();
    let context = peer.context();
    let mut queue = peer.queue(context, 0);
    let kernel = peer.kernel(context, STEP, "advance");
    let value = 1i32.to_ne_bytes();
    let bad_memory = peer.event();
    let args = [Arg::Memory(12_345), Arg::Value(&value)];
    peer.launch(&mut queue, bad_memory, &[], kernel, 1, &args);
    let bad_kernel = peer.event();
    peer.launch(&mut queue, bad_kernel, &[], 54_321, 1, &args);
    let too_few = peer.event();
    peer.launch(&mut queue, too_few, &[], kernel, 1, &args[..1]);
    queue.finish();
    assert_eq!(peer.wait(bad_memory), CL_INVALID_MEM_OBJECT);
    assert_eq!(peer.wait(bad_kernel), CL_INVALID_KERNEL);
    assert_eq!(peer.wait(too_few), CL_INVALID_KERNEL_ARGS);
    // Without an event the queue's progress shows the completion.
    peer.launch(&mut queue, 0, &[], 54_321, 1, &[]);
    queue.finish();
    assert_eq!(queue.progress.failure(), Some((4, CL_INVALID_KERNEL)));
}

#[test]
fn ranges_outside_a_buffer_or_an_arena_fail_the_command() {
    let mut peer = Peer::new();
    let context = peer.context();
    let mut queue = peer.queue(context, 0);
    let (buffer, payload) = peer.buffer(context, 4096);
    let outside = baltra_wire::Payload {
        offset: common::ARENA_BYTES - 8,
        ..payload
    };
    let events = [peer.event(), peer.event(), peer.event()];
    peer.transfer(&mut queue, events[0], Direction::Write, buffer, outside);
    let mut far = payload;
    far.len = 8;
    peer.push(
        &mut queue,
        events[1],
        &[],
        &Operation::Buffer {
            direction: Direction::Read,
            buffer,
            offset: u64::MAX - 4,
            payload: far,
        },
    );
    far.arena = 77;
    peer.transfer(&mut queue, events[2], Direction::Read, buffer, far);
    queue.finish();
    assert_eq!(peer.wait(events[0]), CL_INVALID_VALUE);
    assert_eq!(peer.wait(events[1]), CL_INVALID_VALUE);
    assert_eq!(peer.wait(events[2]), CL_OUT_OF_RESOURCES);
}

#[test]
fn released_memory_is_freed_after_the_commands_that_use_it() {
    let mut peer = Peer::new();
    let context = peer.context();
    let mut queue = peer.queue(context, 0);
    let kernel = peer.kernel(context, STEP, "advance");
    let (buffer, at) = peer.buffer(context, 4);
    let user = peer.event();
    peer.push(&mut queue, 0, &[user], &Operation::Marker);
    let value = 9i32.to_ne_bytes();
    let args = [Arg::Memory(buffer), Arg::Value(&value)];
    peer.launch(&mut queue, 0, &[], kernel, 1, &args);
    queue.flush();
    let mut after = queue.id.to_le_bytes().to_vec();
    after.extend(2u64.to_le_bytes());
    peer.control(&Control::Release {
        id: buffer,
        after: &after,
        notify: true,
    });
    assert_eq!(peer.call(Request::Sync), Reply::Done);
    peer.control(&Control::UserEvent {
        event: user,
        status: 0,
    });
    queue.finish();
    let freed = peer.notice(|notice| match notice {
        Notice::Freed(id) => Some(id),
        _ => None,
    });
    assert_eq!(freed, buffer);
    if common::shared().description.host_memory {
        assert_eq!(ints(peer.bytes(at))[0], 9);
    }
    // The id is no longer valid.
    let event = peer.event();
    peer.launch(&mut queue, event, &[], kernel, 1, &args);
    queue.finish();
    assert_eq!(peer.wait(event), CL_INVALID_MEM_OBJECT);
}

#[test]
fn limits_are_errors_and_memory_comes_back() {
    let limits = baltra_wire::Limits {
        memory_bytes: common::ARENA_BYTES + (1 << 20),
        ..Default::default()
    };
    let mut peer = Peer::with(limits, Default::default());
    let context = peer.context();
    let mut queue = peer.queue(context, 0);
    let first = peer.device_buffer(context, 1 << 20);
    let second = peer.device_buffer(context, 1);
    let host = peer.payload(1);
    let event = peer.event();
    peer.transfer(&mut queue, event, Direction::Write, second, host);
    queue.finish();
    assert_eq!(peer.wait(event), CL_MEM_OBJECT_ALLOCATION_FAILURE);
    peer.control(&Control::Release {
        id: first,
        after: &[],
        notify: false,
    });
    let third = peer.device_buffer(context, 1 << 20);
    let event = peer.event();
    peer.transfer(&mut queue, event, Direction::Write, third, host);
    queue.finish();
    assert_eq!(peer.wait(event), 0);
}

#[test]
fn a_lost_client_frees_everything() {
    let peers: Vec<_> = (0..3)
        .map(|_| {
            let mut peer = Peer::new();
            let context = peer.context();
            let mut queues = [peer.queue(context, 0), peer.queue(context, UNORDERED)];
            let user = peer.event();
            let kernel = peer.kernel(context, "kernel void nothing() {}", "nothing");
            for queue in &mut queues {
                let event = peer.event();
                peer.launch(queue, 0, &[], kernel, 1, &[]);
                peer.launch(queue, event, &[user], kernel, 1, &[]);
                queue.flush();
            }
            peer
        })
        .collect();
    for peer in peers {
        let session = peer.session.clone();
        peer.end();
        assert!(std::sync::Arc::strong_count(&session) <= 2);
    }
}

#[test]
fn watched_events_are_reported_and_mirrored_sessions_get_all_events() {
    let flags = baltra_wire::SessionFlags { mirror: true };
    let mut peer = Peer::with(Default::default(), flags);
    let context = peer.context();
    let mut queue = peer.queue(context, 0);
    let event = peer.event();
    peer.push(&mut queue, event, &[], &Operation::Marker);
    queue.finish();
    let mut seen = (false, false);
    peer.notice(|notice| {
        match notice {
            Notice::Completed(c) if c.event == event => seen.0 = c.status == 0,
            Notice::Progress { completed: 1, .. } => seen.1 = true,
            _ => {}
        }
        (seen == (true, true)).then_some(())
    });
    let mut peer = Peer::new();
    let user = peer.event();
    peer.control(&Control::Watch(user));
    peer.control(&Control::UserEvent {
        event: user,
        status: -3,
    });
    let status = peer.notice(|notice| match notice {
        Notice::Completed(c) if c.event == user => Some(c.status),
        _ => None,
    });
    assert_eq!(status, -3);
}

#[test]
fn images_boxes_and_fills_carry_the_right_bytes() {
    let mut peer = Peer::new();
    let context = peer.context();
    let mut queue = peer.queue(context, 0);
    let image = peer.id();
    let (width, height) = (16u64, 8u64);
    let contents = peer.payload(width * height * 4);
    for (i, byte) in peer.bytes(contents).iter_mut().enumerate() {
        *byte = i as u8;
    }
    peer.control(&Control::Image {
        id: image,
        context,
        flags: CL_MEM_READ_WRITE as u64,
        format: baltra_wire::ImageFormat {
            order: CL_RGBA as u32,
            kind: CL_UNSIGNED_INT8 as u32,
        },
        shape: baltra_wire::ImageShape {
            kind: CL_MEM_OBJECT_IMAGE2D as u32,
            width,
            height,
            depth: 1,
            array_size: 0,
            row_pitch: 0,
        },
        parent: 0,
        contents: Some(contents),
    });
    let buffer = peer.device_buffer(context, 4096);
    let back = peer.payload(64);
    let region = |origin, size, row_pitch| baltra_wire::Region {
        origin,
        size,
        row_pitch,
        slice_pitch: 0,
    };
    // Image to buffer, then a box of the buffer: rows 2 and 3, columns 4 to 7.
    let operations = [
        Operation::FillBuffer {
            buffer,
            pattern: &[9],
            offset: 0,
            len: 4096,
        },
        Operation::CopyImageToBuffer {
            image,
            buffer,
            origin: [0; 3],
            size: [width, height, 1],
            offset: 0,
        },
        Operation::BufferRect {
            direction: Direction::Read,
            buffer,
            region: region([16, 2, 0], [16, 2, 1], width * 4),
            payload: baltra_wire::Payload { len: 32, ..back },
        },
    ];
    for operation in &operations {
        peer.push(&mut queue, 0, &[], operation);
    }
    queue.finish();
    assert_eq!(queue.progress.failure(), None);
    let row = |y: u64| (0..16).map(move |x| (y * width * 4 + 16 + x) as u8);
    let expected: Vec<u8> = row(2).chain(row(3)).collect();
    assert_eq!(peer.bytes(back)[..32], expected);
    // The same pixels straight from the image.
    let pixels = peer.payload(32);
    let read = Operation::Image {
        direction: Direction::Read,
        image,
        region: region([4, 2, 0], [4, 2, 1], 0),
        payload: pixels,
    };
    peer.push(&mut queue, 0, &[], &read);
    queue.finish();
    assert_eq!(peer.bytes(pixels), expected);
    let Reply::Bytes(size) = peer.call(Request::Query(baltra_wire::Query::Image {
        image,
        param: CL_IMAGE_WIDTH as u32,
    })) else {
        panic!("another reply");
    };
    assert_eq!(size, (width as usize).to_ne_bytes());
}

#[test]
fn programs_are_linked_and_come_back_from_their_binary() {
    let mut peer = Peer::new();
    let context = peer.context();
    let mut queue = peer.queue(context, 0);
    let (buffer, at) = peer.buffer(context, 4);
    peer.show(&mut queue, buffer, at);
    let program = peer.program(context, STEP);
    assert!(matches!(peer.build(program), Reply::Built { code: 0, .. }));
    let Reply::Bytes(binary) = peer.call(Request::Query(baltra_wire::Query::Program {
        program,
        param: CL_PROGRAM_BINARIES as u32,
    })) else {
        panic!("another reply");
    };
    let again = peer.id();
    let reply = peer.call(Request::ProgramBinary {
        id: again,
        context,
        devices: &0u32.to_le_bytes(),
        binaries: vec![&binary],
    });
    assert_eq!(reply, Reply::Binaries(vec![0]));
    let Reply::Built { code, kernels, .. } = peer.build(again) else {
        panic!("another reply");
    };
    assert_eq!((code, kernels.len()), (0, 1));
    let kernel = peer.id();
    peer.control(&Control::Kernel {
        id: kernel,
        program: again,
        name: "advance",
    });
    let value = 5i32.to_ne_bytes();
    let args = [Arg::Memory(buffer), Arg::Value(&value)];
    peer.launch(&mut queue, 0, &[], kernel, 1, &args);
    queue.finish();
    assert_eq!(queue.progress.failure(), None);
    peer.look(&mut queue, buffer, at);
    assert_eq!(ints(peer.bytes(at))[0], 5);

    let parts = [
        "int twice(int x) { return 2 * x; }",
        "int twice(int x); kernel void two(global int* v) { *v = twice(*v); }",
    ];
    let inputs: Vec<u8> = parts
        .iter()
        .flat_map(|source| {
            let program = peer.program(context, source);
            let reply = peer.call(Request::Compile {
                files: Vec::new(),
                program,
                devices: &[],
                options: "",
                headers: &[],
                header_names: vec![],
            });
            assert!(matches!(reply, Reply::Built { code: 0, .. }), "{reply:?}");
            program.to_le_bytes()
        })
        .collect();
    let linked = peer.id();
    let reply = peer.call(Request::Link {
        id: linked,
        context,
        devices: &[],
        options: "",
        inputs: &inputs,
    });
    let Reply::Built { code, kernels, .. } = reply else {
        panic!("another reply");
    };
    assert_eq!((code, kernels.len()), (0, 1));
    let kernel = peer.id();
    peer.control(&Control::Kernel {
        id: kernel,
        program: linked,
        name: "two",
    });
    peer.launch(&mut queue, 0, &[], kernel, 1, &[Arg::Memory(buffer)]);
    queue.finish();
    peer.look(&mut queue, buffer, at);
    assert_eq!(ints(peer.bytes(at))[0], 10);
}

#[test]
fn sub_devices_have_contexts_and_queues_of_their_own() {
    let mut peer = Peer::new();
    let properties: Vec<u8> = [CL_DEVICE_PARTITION_EQUALLY as u64, 1, 0]
        .iter()
        .flat_map(|w| w.to_le_bytes())
        .collect();
    let reply = peer.call(Request::SubDevices {
        parent: 0,
        properties: &properties,
        first: 900,
        count_max: 64,
    });
    let Reply::Count(count) = reply else {
        // A machine of one core cannot be parted.
        return;
    };
    assert!(count >= 1);
    let context = peer.id();
    peer.control(&Control::Context {
        id: context,
        devices: &900u32.to_le_bytes(),
    });
    let id = peer.id();
    let ring = peer.payload(common::RING_BYTES);
    peer.control(&Control::Queue {
        id,
        context,
        device: 900,
        properties: 0,
        ring,
    });
    let range = peer.arena.slice(ring.offset, ring.len).unwrap();
    let mut queue = common::Queue {
        id,
        progress: baltra_ring::Progress::new(&range).unwrap(),
        producer: baltra_ring::Producer::new(range).unwrap(),
    };
    let kernel = peer.kernel(context, "kernel void nothing() {}", "nothing");
    let event = peer.event();
    peer.launch(&mut queue, event, &[], kernel, 4, &[]);
    queue.finish();
    assert_eq!(peer.wait(event), 0);
}

#[test]
fn shared_virtual_memory_has_one_address_on_both_sides() {
    let mut peer = Peer::new();
    let context = peer.context();
    let mut queue = peer.queue(context, 0);
    let len = 1 << 16;
    let (memory, fd) = baltra_ring::Memory::create("test-svm", len).unwrap();
    peer.send_fd(&fd);
    peer.control(&Control::ArenaAdd { arena: 5, len });
    let payload = baltra_wire::Payload {
        arena: 5,
        offset: 0,
        len,
    };
    // In one process the client has the address already: another stands for it.
    let address = memory.base() as u64 - (1 << 40);
    let reply = peer.call(Request::SvmMap { address, payload });
    assert_eq!(reply, Reply::Done);
    let kernel = peer.kernel(context, STEP, "advance");
    let value = 6i32.to_ne_bytes();
    let fill = Operation::SvmFill {
        address,
        pattern: &[1, 0, 0, 0],
        len: 64,
    };
    peer.push(&mut queue, 0, &[], &fill);
    let args = [Arg::Svm(address), Arg::Value(&value)];
    peer.launch(&mut queue, 0, &[], kernel, 16, &args);
    queue.finish();
    assert_eq!(queue.progress.failure(), None);
    // SAFETY: the mapping is 64 KiB, the queue is done with it.
    let seen = unsafe { std::slice::from_raw_parts(memory.base().cast::<i32>(), 17) };
    assert_eq!((seen[0], seen[15], seen[16]), (9, 9, 0));
    let event = peer.event();
    let args = [Arg::Svm(4096), Arg::Value(&value)];
    peer.launch(&mut queue, event, &[], kernel, 1, &args);
    queue.finish();
    assert_eq!(peer.wait(event), CL_INVALID_VALUE);
}
