//! Malicious clients. They can end their own session at most: a neighbor in the same process is
//! not affected, and all their resources are freed.

mod common;

use baltra_wire::{
    decode, encode, event, Arg, Backing, Command, Control, Direction, ImageFormat, ImageShape,
    Notice, Operation, Payload, Region, Request, Waits,
};
use common::{Peer, PATIENCE};
use std::sync::Arc;

/// Replays from its seed, which a failing test prints.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// A well-behaved client that runs kernels.
struct Neighbor {
    peer: Peer,
    queue: common::Queue,
    kernel: u32,
}

impl Neighbor {
    fn new() -> Neighbor {
        let mut peer = Peer::new();
        let context = peer.context();
        let queue = peer.queue(context, 0);
        let kernel = peer.kernel(context, "kernel void work() {}", "work");
        Neighbor {
            peer,
            queue,
            kernel,
        }
    }

    fn works(&mut self) {
        let event = self.peer.event();
        let Neighbor {
            peer,
            queue,
            kernel,
        } = self;
        peer.launch(queue, event, &[], *kernel, 8, &[]);
        queue.finish();
        assert_eq!(peer.wait(event), 0);
        peer.events.free(event);
    }
}

#[test]
fn random_bytes_in_the_rings_end_one_session() {
    let mut neighbor = Neighbor::new();
    for seed in 1..40u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut peer = Peer::new();
        let context = peer.context();
        let mut queue = peer.queue(context, 0);
        peer.push(&mut queue, 0, &[], &Operation::Marker);
        queue.finish();
        // The control ring, its indices included, or the queue's, the first ring in the arena.
        let target = match seed % 2 {
            0 => peer.segment.control(),
            _ => peer.arena.slice(0, common::RING_BYTES).unwrap(),
        };
        for _ in 0..2000 {
            let at = match random.below(4) {
                0 => random.below(256),
                _ => random.below(2048),
            } & !7;
            // SAFETY: inside the mapping; racing writes are what this is about.
            unsafe {
                target
                    .ptr()
                    .add(at)
                    .cast::<u64>()
                    .write_volatile(random.next() % 4096)
            };
        }
        neighbor.works();
        peer.end();
    }
}

/// Valid messages, of which a few bytes are then changed.
fn commands(peer: &mut Peer, context: u32) -> Vec<Vec<u8>> {
    let source = "kernel void work(global int* a, int n) { if (n == 77) a[get_global_id(0)] = n; }";
    let kernel = peer.kernel(context, source, "work");
    let (a, at) = peer.buffer(context, 4096);
    let b = peer.device_buffer(context, 4096);
    let host = peer.payload(4096);
    let region = Region {
        origin: [4, 1, 0],
        size: [8, 4, 1],
        row_pitch: 64,
        slice_pitch: 0,
    };
    let mut args = Vec::new();
    encode(&Arg::Memory(a), &mut args).unwrap();
    encode(&Arg::Value(&[1, 2, 3, 4]), &mut args).unwrap();
    let operations = [
        Operation::Launch {
            kernel,
            dimensions: 1,
            offset: [0; 3],
            global: [16, 1, 1],
            local: [0; 3],
            arg_count: 2,
            args: &args,
            svm_indirect: &[],
        },
        Operation::Buffer {
            direction: Direction::Write,
            buffer: b,
            offset: 8,
            payload: Payload { len: 64, ..host },
        },
        Operation::Buffer {
            direction: Direction::Read,
            buffer: a,
            offset: 8,
            payload: Payload { len: 64, ..at },
        },
        Operation::BufferRect {
            direction: Direction::Read,
            buffer: b,
            region,
            payload: host,
        },
        Operation::CopyBuffer {
            source: a,
            target: b,
            source_offset: 0,
            target_offset: 128,
            len: 64,
        },
        Operation::CopyBufferRect {
            source: a,
            target: b,
            source_region: region,
            target_region: region,
        },
        Operation::FillBuffer {
            buffer: b,
            pattern: &[1, 2, 3, 4],
            offset: 16,
            len: 64,
        },
        Operation::Migrate {
            objects: &[1, 0, 0, 0],
            flags: 0,
        },
        Operation::Marker,
        Operation::Barrier,
        Operation::SvmFill {
            address: 4096,
            pattern: &[1],
            len: 64,
        },
    ];
    let waits = event(1, 1).to_le_bytes();
    operations
        .into_iter()
        .enumerate()
        .map(|(at, operation)| {
            let mut bytes = Vec::new();
            let command = Command {
                event: if at % 2 == 0 { 0 } else { event(at as u32, 1) },
                after_control: 0,
                waits: Waits(if at % 3 == 0 { &waits } else { &[] }),
                operation,
            };
            encode(&command, &mut bytes).unwrap();
            bytes
        })
        .collect()
}

fn controls(context: u32) -> Vec<Vec<u8>> {
    let payload = Payload {
        arena: 0,
        offset: 8192,
        len: 4096,
    };
    let image = Control::Image {
        id: 205,
        context,
        flags: 1,
        format: ImageFormat {
            order: 0x10B5,
            kind: 0x10D7,
        },
        shape: ImageShape {
            kind: 0x10F1,
            width: 16,
            height: 16,
            depth: 1,
            array_size: 0,
            row_pitch: 0,
        },
        parent: 0,
        contents: Some(payload),
    };
    let messages = [
        Control::Buffer {
            id: 201,
            context,
            flags: 1,
            size: 4096,
            backing: Backing::Arena(payload),
        },
        Control::Buffer {
            id: 202,
            context,
            flags: 1,
            size: 64,
            backing: Backing::Device(Some(payload)),
        },
        Control::SubBuffer {
            id: 203,
            parent: 201,
            flags: 1,
            origin: 0,
            size: 128,
        },
        image,
        Control::Sampler {
            id: 206,
            context,
            properties: &[0; 8],
        },
        Control::Watch(event(1, 1)),
        Control::UserEvent {
            event: event(1, 1),
            status: 0,
        },
        Control::Release {
            id: 201,
            after: &[3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
            notify: true,
        },
        Control::ArenaDrop(0),
        Control::Call {
            call: 9,
            request: Request::SvmMap {
                address: 0x7000_0000_0000,
                payload,
            },
        },
        Control::Call {
            call: 10,
            request: Request::Sync,
        },
    ];
    messages
        .iter()
        .map(|message| {
            let mut bytes = Vec::new();
            encode(message, &mut bytes).unwrap();
            bytes
        })
        .collect()
}

/// Whether the mutated message needs no more memory than the machine has, nor hours to run.
fn is_bearable(bytes: &[u8]) -> bool {
    match decode::<Command>(bytes) {
        Ok(Command {
            operation: Operation::Launch { global, local, .. },
            after_control,
            ..
        }) => {
            after_control == 0
                && local == [0; 3]
                && global.iter().try_fold(1u64, |p, n| p.checked_mul(*n)) <= Some(1 << 16)
        }
        Ok(command) => command.after_control == 0,
        Err(_) => true,
    }
}

#[test]
fn mutated_messages_end_one_session() {
    let mut neighbor = Neighbor::new();
    let from = common::env_us("SEED", 1);
    for seed in from..from + common::env_us("SEEDS", 150) {
        let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let mut peer = Peer::new();
        let context = peer.context();
        let mut queue = peer.queue(context, if seed % 3 == 0 { 1 } else { 0 });
        let pushes = commands(&mut peer, context);
        let messages = controls(context);
        for _ in 0..60 {
            let control = random.below(3) == 0;
            let from = if control { &messages } else { &pushes };
            let mut bytes = from[random.below(from.len())].clone();
            for _ in 0..random.below(3) {
                let at = random.below(bytes.len());
                bytes[at] = match random.below(3) {
                    0 => 0,
                    1 => bytes[at].wrapping_add(1),
                    _ => random.next() as u8,
                };
            }
            if control {
                let _ = peer.control.try_push(&bytes);
                peer.control.publish();
            } else if is_bearable(&bytes) {
                let _ = queue.producer.try_push(&bytes);
                queue.flush();
            }
        }
        if seed % 10 == 0 {
            neighbor.works();
        }
        if common::env_us("SEEDS", 0) > 0 {
            eprintln!("seed {seed}");
        }
        let session = peer.session.clone();
        peer.end();
        assert!(Arc::strong_count(&session) <= 3, "seed {seed} leaks");
    }
    neighbor.works();
}

#[test]
fn violations_of_the_protocol_are_reported_and_end_the_session() {
    let mut peer = Peer::new();
    let context = peer.context();
    peer.control(&Control::Context {
        id: context,
        devices: &[],
    });
    let text = peer.notice(|notice| match notice {
        Notice::Fatal { text, .. } => Some(text.to_owned()),
        _ => None,
    });
    assert!(text.contains("id is null"), "{text}");
    let reason = peer.ended.recv_timeout(PATIENCE).unwrap();
    assert!(reason.starts_with("protocol violation"), "{reason}");
}

#[test]
fn an_announced_arena_that_does_not_come_ends_the_session() {
    let mut peer = Peer::new();
    peer.control(&Control::ArenaAdd {
        arena: 9,
        len: 4096,
    });
    let (socket, _) = std::os::unix::net::UnixStream::pair().unwrap();
    drop(std::mem::replace(&mut peer.socket, socket));
    peer.ended.recv_timeout(PATIENCE).unwrap();
}

#[test]
fn a_file_that_is_no_sealed_memory_is_refused() {
    let mut peer = Peer::new();
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    peer.send_fd(&file);
    peer.control(&Control::ArenaAdd {
        arena: 9,
        len: 4096,
    });
    let reason = peer.ended.recv_timeout(PATIENCE).unwrap();
    assert!(reason.contains("arena"), "{reason}");
}

#[test]
fn a_flood_of_names_stops_at_the_limit() {
    let limits = baltra_wire::Limits {
        objects: 50,
        ..Default::default()
    };
    let mut peer = Peer::with(limits, Default::default());
    let context = peer.context();
    for _ in 0..200 {
        if peer.session.is_closed() {
            break;
        }
        peer.device_buffer(context, 16);
    }
    let reason = peer.ended.recv_timeout(PATIENCE).unwrap();
    assert!(reason.contains("over the limit of objects"), "{reason}");
}
