//! Malicious clients: each receives an error or loses its own session, and other sessions are not
//! affected.

use baltra_ring::Segment;
use baltra_session::client::{Client, Handler, Queue};
use baltra_session::handshake;
use baltra_session::Endpoint;
use baltra_testkit::{hello, until, Daemon};
use baltra_tests::{
    compile, daemon, daemon_with, nothing_panicked, session_count, tenants, through, Running,
};
use baltra_wire::{
    decode, Backing, Control, Direction, Hello, Id, Operation, Payload, Refusal, Version, Welcome,
    VERSION,
};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A tenant that works throughout and checks its own results.
struct Neighbor(Running);

impl Neighbor {
    fn beside(daemon: &Daemon) -> Neighbor {
        tenants(daemon, &["neighbor"]);
        let mut command = through(daemon, "neighbor", compile("work"));
        command.arg("0");
        let mut running = Running::start(command);
        running.wait_line("round");
        Neighbor(running)
    }

    fn works(&mut self) {
        self.0.wait_progress();
    }
}

struct Silent;

impl Handler for Silent {
    fn printed(&self, _: &[u8]) {}
    fn context_error(&self, _: Id, _: &str) {}
    fn lost(&self, _: i32, _: &str) {}
}

/// A session whose messages the test writes itself.
struct Session {
    client: Arc<Client>,
    context: Id,
    queue: Queue,
}

impl Session {
    fn open(daemon: &Daemon, tenant: &str) -> Session {
        let endpoint: Endpoint = daemon.endpoint().parse().unwrap();
        let mut hello = hello("device0");
        hello.tenant = tenant.into();
        let client = Client::connect(&endpoint, hello, Arc::new(Silent)).unwrap();
        let context = client.new_id();
        let devices = &[0; 4];
        let message = Control::Context {
            id: context,
            devices,
        };
        client.control(&message).unwrap();
        let queue = client.open_queue(context, 0, 0).unwrap();
        Session {
            client,
            context,
            queue,
        }
    }

    /// A buffer of 4,096 bytes in the device's own memory.
    fn buffer(&self) -> Id {
        let id = self.client.new_id();
        let message = Control::Buffer {
            id,
            context: self.context,
            flags: 1,
            size: 4096,
            backing: Backing::Device(None),
        };
        self.client.control(&message).unwrap();
        id
    }

    /// The status that a command ends with.
    fn outcome(&self, operation: &Operation<'_>) -> i32 {
        let event = self.client.new_event().unwrap();
        if let Err(lost) = self.queue.push(event, &[], operation) {
            return lost.0;
        }
        self.queue.flush();
        self.client.wait_event(event)
    }

    fn fill(&self, buffer: Id, byte: u8) -> i32 {
        self.outcome(&Operation::FillBuffer {
            buffer,
            pattern: &[byte],
            offset: 0,
            len: 4096,
        })
    }

    /// A buffer's contents.
    fn read(&self, buffer: Id) -> Vec<u8> {
        let block = self.client.allocate(4096, 64).unwrap();
        let status = self.outcome(&Operation::Buffer {
            direction: Direction::Read,
            buffer,
            offset: 0,
            payload: block.payload(),
        });
        assert_eq!(status, 0);
        // SAFETY: the test owns the block, and the command that filled it is complete.
        unsafe { std::slice::from_raw_parts(block.ptr(), 4096) }.to_vec()
    }
}

fn answer(stream: &mut UnixStream) -> Result<Welcome, Refusal> {
    let mut len = [0; 4];
    stream.read_exact(&mut len).unwrap();
    let mut bytes = vec![0; u32::from_le_bytes(len) as usize];
    stream.read_exact(&mut bytes).unwrap();
    decode(&bytes).unwrap()
}

#[test]
fn malformed_truncated_and_oversized_hellos_are_refused_with_the_reason() {
    let daemon = daemon_with(&["listen.hello_timeout_ms=300"]);
    let mut neighbor = Neighbor::beside(&daemon);
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for round in 0..50 {
        let mut stream = daemon.connect().unwrap();
        let mut bytes = Vec::new();
        for _ in 0..=round * 7 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            bytes.push(random as u8);
        }
        // The socket of a rejected client may be closed already.
        let _ = stream.write_all(&bytes);
        drop(stream);
    }
    let mut garbage = 64u32.to_le_bytes().to_vec();
    garbage.extend([0xff; 64]);
    let mut truncated = handshake::frame(&hello("device0")).unwrap();
    let len = truncated.len() as u32 - 4 - 3;
    truncated[..4].copy_from_slice(&len.to_le_bytes());
    truncated.truncate(4 + len as usize);
    let oversized = u32::MAX.to_le_bytes().to_vec();
    let empty = 0u32.to_le_bytes().to_vec();
    for bytes in [garbage, truncated, oversized, empty] {
        let mut stream = daemon.connect().unwrap();
        stream.write_all(&bytes).unwrap();
        let refusal = answer(&mut stream).unwrap_err();
        assert!(matches!(refusal, Refusal::Malformed(_)), "{refusal}");
    }
    // A silent connection gets no response and is closed.
    let mut stream = daemon.connect().unwrap();
    stream.write_all(&[40, 0, 0, 0, 1]).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    neighbor.works();
    assert_eq!(session_count(&daemon), 1);
    nothing_panicked(&daemon);
}

#[test]
fn another_major_version_is_refused_with_both_named() {
    let daemon = daemon();
    let mut other = hello("device0");
    other.version = Version {
        major: VERSION.major + 1,
        minor: 0,
    };
    let (refused, _) = handshake::hello(&daemon.connect().unwrap(), &other).unwrap();
    let refusal = refused.unwrap_err().to_string();
    let named = [VERSION, other.version].map(|v| v.to_string());
    assert!(named.iter().all(|v| refusal.contains(v)), "{refusal}");
    assert!(refusal.contains("same release"), "{refusal}");
}

#[test]
fn a_library_of_another_minor_version_works() {
    /// A hello of a later library version: more fields at the end.
    #[derive(serde::Serialize)]
    struct LaterHello {
        hello: Hello,
        invented: u64,
        later: String,
    }
    let daemon = daemon();
    for minor in [0, VERSION.minor, VERSION.minor + 1, VERSION.minor + 40] {
        let mut other = hello("device0");
        other.version.minor = minor;
        let (welcome, segment) = handshake::hello(&daemon.connect().unwrap(), &other).unwrap();
        assert!(welcome.is_ok() && segment.is_some(), "{minor}: {welcome:?}");
    }
    let mut later = LaterHello {
        hello: hello("device0"),
        invented: 7,
        later: "unheard of".into(),
    };
    later.hello.version.minor += 1;
    let mut stream = daemon.connect().unwrap();
    stream
        .write_all(&handshake::frame(&later).unwrap())
        .unwrap();
    answer(&mut stream).unwrap();
}

#[test]
fn random_bytes_over_shared_memory_while_running_end_one_session() {
    let daemon = daemon();
    let mut neighbor = Neighbor::beside(&daemon);
    tenants(&daemon, &["scribbler"]);
    let scribble = compile("scribble");
    for seed in 1..=8 {
        let mut command = through(&daemon, "scribbler", &scribble);
        command.args([seed.to_string(), "400".into()]);
        let mut running = Running::start(command);
        running.wait_line("ready");
        neighbor.works();
        // The client may crash or hang on its own input.
        let deadline = Instant::now() + Duration::from_secs(3);
        while !running.has_ended() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(running);
    }
    neighbor.works();
    until("only the neighbor's session is left", || {
        session_count(&daemon) == 1
    })
    .unwrap();
    // The tenant can open sessions again.
    let mut command = through(&daemon, "scribbler", compile("work"));
    command.arg("5");
    Running::run(command).ok();
    nothing_panicked(&daemon);
}

#[test]
fn random_bytes_over_the_control_ring_reach_nobody_of_the_same_executor() {
    let daemon = daemon_with(&["device.isolation=device"]);
    let mut neighbor = Neighbor::beside(&daemon);
    let mut random = 0x2545_f491_4f6c_dd1du64;
    for _ in 0..20 {
        let stream = daemon.connect().unwrap();
        let (welcome, segment) = handshake::hello(&stream, &hello("device0")).unwrap();
        welcome.unwrap();
        let segment = Segment::map(&segment.unwrap()).unwrap();
        let ring = segment.control();
        for i in 0..4000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let span = if i % 3 == 0 { 256 } else { ring.len() };
            let at = ((random >> 20) as usize % span) & !7;
            // SAFETY: inside the mapping; the race with the executor is intended.
            unsafe {
                ring.ptr()
                    .add(at)
                    .cast::<u64>()
                    .write_volatile(random % 8192)
            };
        }
        // The maximum number of descriptors, which the manager does not expect.
        let none = std::fs::File::open("/dev/null").unwrap();
        let fds = [std::os::fd::AsFd::as_fd(&none); 4];
        let _ = baltra_session::fd::send_with_fds(&stream, &[1, 2, 3], &fds);
    }
    neighbor.works();
    until("only the neighbor's session is left", || {
        session_count(&daemon) == 1
    })
    .unwrap();
    nothing_panicked(&daemon);
}

#[test]
fn ids_of_another_session_name_nothing() {
    for isolation in ["tenant", "device"] {
        let daemon = daemon_with(&[&format!("device.isolation={isolation}")]);
        tenants(&daemon, &["red", "blue"]);
        let red = Session::open(&daemon, "red");
        // Ids that only red uses: blue's own ids stay far below.
        red.client.new_ids(1000);
        let secret = red.buffer();
        assert_eq!(red.fill(secret, 0x77), 0);
        for tenant in ["red", "blue"] {
            let thief = Session::open(&daemon, tenant);
            assert!(
                thief.fill(secret, 0x11) < 0,
                "{isolation}: a stranger's buffer"
            );
            let thief = Session::open(&daemon, tenant);
            let own = thief.buffer();
            let status = thief.outcome(&Operation::CopyBuffer {
                source: secret,
                target: own,
                source_offset: 0,
                target_offset: 0,
                len: 4096,
            });
            assert!(status < 0, "{isolation}: a copy from a stranger's buffer");
            let thief = Session::open(&daemon, tenant);
            let own = thief.buffer();
            let arena = Payload {
                arena: 900,
                offset: 0,
                len: 4096,
            };
            let status = thief.outcome(&Operation::Buffer {
                direction: Direction::Write,
                buffer: own,
                offset: 0,
                payload: arena,
            });
            assert!(status < 0, "{isolation}: an arena that it has not got");
        }
        assert_eq!(red.read(secret), [0x77; 4096], "{isolation}");
        nothing_panicked(&daemon);
    }
}
