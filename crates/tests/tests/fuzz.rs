//! Hostile bytes for every decoder, mutated from valid messages; `BALTRA_FUZZ_SECONDS` each
//! (default 1), replayed with `BALTRA_FUZZ_SEED`.

use baltra_ring::{ring_bytes, Consumer, Memory, RING_HEADER_BYTES};
use baltra_wire::{
    decode, encode, event, Arg, Backing, Command, Control, Direction, Hello, Notice, Operation,
    Payload, Query, Reply, Request, Waits, Welcome,
};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The generator xorshift64*, sufficient for choosing bytes.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// Flips bits, overwrites with boundary values, truncates, duplicates.
    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            match self.below(6) {
                0 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
                1 if !bytes.is_empty() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][self.below(5)],
                2 => bytes.truncate(at),
                3 => bytes.insert(at, self.next() as u8),
                4 => {
                    let tail = bytes[at..].to_vec();
                    bytes.extend_from_slice(&tail[..tail.len().min(64)]);
                }
                _ => {
                    // A length of ten times 0xff: the longest varint.
                    for i in 0..10.min(bytes.len() - at) {
                        bytes[at + i] = 0xff;
                    }
                }
            }
        }
    }
}

/// Runs `one` on fresh mutations of the seeds until the time is up.
fn fuzz(name: &str, seeds: &[Vec<u8>], mut one: impl FnMut(&[u8], &mut Random)) {
    let number = |name| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let seconds = number("BALTRA_FUZZ_SECONDS").unwrap_or(1);
    let seed = number("BALTRA_FUZZ_SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.expect("after 1970").as_nanos() as u64 | 1
    });
    println!("{name}: replay with BALTRA_FUZZ_SEED={seed}");
    let mut random = Random(seed);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut rounds = 0u64;
    while Instant::now() < end {
        for _ in 0..100 {
            let mut bytes = seeds[random.below(seeds.len())].clone();
            random.mutate(&mut bytes);
            one(&bytes, &mut random);
            rounds += 1;
        }
    }
    println!("{name}: {rounds} inputs");
}

fn encoded<T: serde::Serialize>(message: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(message, &mut bytes).expect("valid");
    bytes
}

fn commands() -> Vec<Vec<u8>> {
    let waits = [event(1, 1).to_le_bytes(), event(2, 9).to_le_bytes()].concat();
    let args = [encoded(&Arg::Memory(3)), encoded(&Arg::Value(&[1; 8]))].concat();
    let payload = Payload {
        arena: 1,
        offset: 4096,
        len: 1 << 20,
    };
    [
        Operation::Launch {
            kernel: 7,
            dimensions: 3,
            offset: [0; 3],
            global: [64, 64, 1],
            local: [8, 8, 1],
            arg_count: 2,
            args: &args,
            svm_indirect: &[],
        },
        Operation::Buffer {
            direction: Direction::Write,
            buffer: 9,
            offset: 0,
            payload,
        },
        Operation::FillBuffer {
            buffer: 9,
            pattern: &[1, 2, 3, 4],
            offset: 16,
            len: 64,
        },
        Operation::Marker,
    ]
    .into_iter()
    .map(|operation| {
        encoded(&Command {
            event: event(5, 1),
            after_control: 3,
            waits: Waits(&waits),
            operation,
        })
    })
    .collect()
}

#[test]
fn commands_of_any_bytes_decode_or_are_refused() {
    fuzz("commands", &commands(), |bytes, _| {
        if let Ok(command) = decode::<Command>(bytes) {
            assert!(command.waits.iter().len() * 8 <= bytes.len());
        }
    });
}

#[test]
fn control_messages_and_notices_of_any_bytes_decode_or_are_refused() {
    let payload = Payload {
        arena: 0,
        offset: 0,
        len: 64,
    };
    let seeds = [
        encoded(&Control::Buffer {
            id: 1,
            context: 2,
            flags: 1,
            size: 4096,
            backing: Backing::Arena(payload),
        }),
        encoded(&Control::Call {
            call: 4,
            request: Request::ProgramBinary {
                id: 1,
                context: 2,
                devices: &[0; 4],
                binaries: vec![b"abc", b"de"],
            },
        }),
        encoded(&Control::Call {
            call: 4,
            request: Request::Query(Query::Device {
                device: 0,
                param: 0x1000,
            }),
        }),
        encoded(&Notice::Reply {
            call: 1,
            reply: Reply::Bytes(vec![7; 40]),
        }),
        encoded(&Notice::Printed(b"hello")),
    ];
    fuzz("control", &seeds, |bytes, _| {
        let _ = decode::<Control>(bytes);
        let _ = decode::<Notice>(bytes);
        let _ = decode::<Welcome>(bytes);
    });
}

#[test]
fn a_ring_of_any_bytes_gives_bounded_messages_or_an_error() {
    let data_bytes = 1024;
    let bytes = ring_bytes(data_bytes) as u64;
    let memory = Memory::anonymous(bytes).expect("memory");
    let range = memory.slice(0, bytes).expect("inside");
    fuzz("ring", &commands(), |message, random| {
        range.zero();
        let mut consumer = Consumer::new(range.clone()).expect("layout");
        // A plausible ring with one corrupted length, or random contents.
        let mut image = vec![0u8; bytes as usize];
        let len = (message.len() as u32).to_le_bytes();
        image[RING_HEADER_BYTES..RING_HEADER_BYTES + 4].copy_from_slice(&len);
        let room = message.len().min(data_bytes - 8);
        image[RING_HEADER_BYTES + 8..RING_HEADER_BYTES + 8 + room]
            .copy_from_slice(&message[..room]);
        let tail = (8 + message.len().next_multiple_of(8)) as u64;
        image[..8].copy_from_slice(&tail.to_le_bytes());
        if random.below(3) == 0 {
            let at = random.below(RING_HEADER_BYTES + 8);
            image[at] = random.next() as u8;
        }
        // A message with a continuation would block; another test covers those.
        image[RING_HEADER_BYTES + 3] &= 0x7f;
        // SAFETY: the image is as long as the range.
        unsafe { std::ptr::copy_nonoverlapping(image.as_ptr(), range.ptr(), image.len()) };
        let mut out = Vec::new();
        if let Ok(true) = consumer.pop(&mut out) {
            assert!(out.len() <= data_bytes);
            let _ = decode::<Command>(&out);
        }
    });
}

#[test]
fn a_hello_of_any_bytes_is_read_or_refused_in_time() {
    let hello = Hello {
        version: baltra_wire::VERSION,
        tenant: "t".into(),
        instance: "fuzz".into(),
        device: "cpu".into(),
        ..Hello::default()
    };
    let seed = baltra_session::handshake::frame(&hello).expect("frame");
    fuzz("hello", &[seed], |bytes, _| {
        let (mut client, server) = UnixStream::pair().expect("socket pair");
        // At most the socket's buffer, so that the write never blocks.
        let _ = client.write_all(&bytes[..bytes.len().min(4096)]);
        drop(client);
        let _ = baltra_session::handshake::read_hello(&server, Duration::from_secs(1));
    });
}
