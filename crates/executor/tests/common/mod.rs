//! A client made of bare rings, against a session in this process on the real PoCL driver.
#![allow(dead_code, reason = "each test file uses its part")]

use baltra_executor::account::Account;
use baltra_executor::session::{Session, SessionMemory};
use baltra_executor::{Options, Shared};
use baltra_ring::{ring_bytes, Consumer, EventTable, LeaseGranter, LeaseHolder, Memory};
use baltra_ring::{Producer, Progress, Segment};
use baltra_wire::executor::SessionStart;
use baltra_wire::{
    decode, encode, Arg, Backing, Command, Control, Direction, Event, Id, Limits, Notice,
    Operation, Payload, Reply, Request, SessionFlags, Waits,
};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{channel, Receiver};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

pub const POCL: &str = "libpocl.so.2";
pub const ARENA_BYTES: u64 = 64 << 20;
pub const RING_BYTES: u64 = ring_bytes(1 << 20) as u64;
/// Longer than anything here takes; a wait that needs it has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// `EXECUTOR_MEMORY_BYTES` makes the device swap beyond that many bytes.
pub fn options() -> Options {
    let bytes = std::env::var("EXECUTOR_MEMORY_BYTES");
    let room = bytes.ok().map(|bytes| (16, bytes.parse().unwrap()));
    let (memory_overcommit, memory_bytes) = ROOM.get().copied().or(room).unzip();
    Options {
        memory_overcommit,
        memory_bytes,
        peer_patience: Duration::from_secs(5),
        slice: SLICE.get().copied().unwrap_or_default(),
        name: "test".into(),
        spin_us: env_us("EXECUTOR_SPIN", 50),
        ..Options::new(driver())
    }
}

/// The driver under test; another than PoCL suits the tests that copy.
pub fn driver() -> String {
    std::env::var("EXECUTOR_DRIVER").unwrap_or_else(|_| POCL.into())
}

/// The device's memory, for a file that tests overcommitting it: how many times it may be taken, and
/// its bytes.
pub static ROOM: OnceLock<(u32, u64)> = OnceLock::new();

/// The length of slices, for a file that tests those.
pub static SLICE: OnceLock<Duration> = OnceLock::new();

/// The driver, loaded once for all tests of the file.
pub fn shared() -> Arc<Shared> {
    static SHARED: OnceLock<Arc<Shared>> = OnceLock::new();
    SHARED
        .get_or_init(|| {
            let dir = std::env::temp_dir().join(format!("executor-test-{}", std::process::id()));
            std::fs::create_dir_all(&dir).unwrap();
            std::env::set_var("POCL_CACHE_DIR", &dir);
            let capture = CAPTURES
                .load(Ordering::Relaxed)
                .then(|| baltra_executor::capture::Capture::standard_output().unwrap());
            Arc::new(Shared::open(options(), capture).unwrap())
        })
        .clone()
}

/// Whether the process's standard output is taken for what kernels print. The test runner's own
/// lines go there too, so only a file that tests printing sets it.
pub static CAPTURES: AtomicBool = AtomicBool::new(false);

pub struct Queue {
    pub id: Id,
    pub producer: Producer,
    pub progress: Progress,
}

impl Queue {
    pub fn flush(&mut self) {
        self.producer.publish();
    }

    pub fn finish(&mut self) {
        self.flush();
        let stop = AtomicBool::new(false);
        let started = Instant::now();
        while !self.progress.wait(
            self.producer.pushed().min(self.progress.completed() + 1),
            Duration::from_micros(env_us("CLIENT_SPIN", 20)),
            &stop,
            &(),
        ) || self.progress.completed() < self.producer.pushed()
        {
            assert!(started.elapsed() < PATIENCE, "the queue is stuck");
        }
    }
}

/// A client of bare rings.
pub struct Client {
    pub socket: UnixStream,
    pub segment: Segment,
    pub control: Producer,
    pub notices: Consumer,
    pub events: EventTable,
    pub arena: Memory,
    pub granter: LeaseGranter,
    used: u64,
    next_id: Id,
    next_call: u32,
}

/// A client and its session, in this process.
pub struct Peer {
    client: Client,
    pub session: Arc<Session>,
    pub ended: Receiver<String>,
}

impl std::ops::Deref for Peer {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl std::ops::DerefMut for Peer {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.client
    }
}

impl Peer {
    pub fn new() -> Peer {
        Peer::with(Limits::default(), SessionFlags::default())
    }

    pub fn with(limits: Limits, flags: SessionFlags) -> Peer {
        let (page, bell) = baltra_ring::lease::create().unwrap();
        let granter = LeaseGranter::new(&page, bell.try_clone().unwrap()).unwrap();
        granter.grant();
        let lease = LeaseHolder::new(&page, bell).unwrap();
        let account = Arc::new(Account::new(lease, limits.memory_bytes));
        let (socket, theirs) = UnixStream::pair().unwrap();
        let (segment, fd) = Segment::create().unwrap();
        static SESSIONS: AtomicU64 = AtomicU64::new(1);
        let start = SessionStart {
            session: SESSIONS.fetch_add(1, Ordering::Relaxed),
            tenant: "tenant".into(),
            limits,
            flags,
            lease: 1,
            instance: String::new(),
        };
        let (sender, ended) = channel();
        let session = Session::open(
            shared(),
            account,
            start,
            theirs.into(),
            SessionMemory::Segment(fd),
            move |reason| drop(sender.send(reason)),
        )
        .unwrap();
        Peer {
            client: Client::new(socket, segment, granter),
            session,
            ended,
        }
    }

    pub fn end(self) -> String {
        let Peer {
            session,
            client,
            ended,
        } = self;
        drop(client);
        // A compiler that the driver starts just now holds the socket until it runs.
        let started = Instant::now();
        while !session.is_closed() && started.elapsed() < PATIENCE {
            session.receive();
            std::thread::yield_now();
        }
        ended.recv_timeout(PATIENCE).unwrap()
    }
}

impl Client {
    /// Over a connected socket and the session's segment, with one arena.
    pub fn new(socket: UnixStream, segment: Segment, granter: LeaseGranter) -> Client {
        let (arena, arena_fd) = Memory::create("test-arena", ARENA_BYTES).unwrap();
        let mut client = Client {
            socket,
            control: Producer::new(segment.control()).unwrap(),
            notices: Consumer::new(segment.notices()).unwrap(),
            events: EventTable::new(&segment),
            segment,
            arena,
            granter,
            used: 0,
            next_id: 1,
            next_call: 1,
        };
        client.send_fd(&arena_fd);
        client.control(&Control::ArenaAdd {
            arena: 0,
            len: ARENA_BYTES,
        });
        client
    }

    pub fn send_fd(&self, fd: &impl AsFd) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds = [fd.as_fd()];
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
        rustix::net::sendmsg(
            &self.socket,
            &[IoSlice::new(b"a")],
            &mut ancillary,
            SendFlags::empty(),
        )
        .unwrap();
    }

    pub fn control(&mut self, message: &Control) {
        let mut bytes = Vec::new();
        encode(message, &mut bytes).unwrap();
        self.control
            .push_large(&bytes, || {
                std::thread::yield_now();
                true
            })
            .unwrap();
        self.control.publish();
    }

    pub fn id(&mut self) -> Id {
        self.next_id += 1;
        self.next_id - 1
    }

    pub fn payload(&mut self, len: u64) -> Payload {
        let offset = self.used;
        self.used = (offset + len).next_multiple_of(4096);
        assert!(self.used <= ARENA_BYTES, "the test's arena is full");
        Payload {
            arena: 0,
            offset,
            len,
        }
    }

    #[allow(
        clippy::mut_from_ref,
        reason = "shared memory: it is the executor's too"
    )]
    pub fn bytes(&self, payload: Payload) -> &mut [u8] {
        let range = self.arena.slice(payload.offset, payload.len).unwrap();
        // SAFETY: inside the arena, which lives as long as the peer; tests read it only after the
        // executor has finished writing.
        unsafe { std::slice::from_raw_parts_mut(range.ptr(), range.len()) }
    }

    pub fn context(&mut self) -> Id {
        let id = self.id();
        self.control(&Control::Context {
            id,
            devices: &0u32.to_le_bytes(),
        });
        id
    }

    pub fn queue(&mut self, context: Id, properties: u64) -> Queue {
        let id = self.id();
        let ring = self.payload(RING_BYTES);
        self.control(&Control::Queue {
            id,
            context,
            device: 0,
            properties,
            ring,
        });
        let range = self.arena.slice(ring.offset, ring.len).unwrap();
        Queue {
            id,
            progress: Progress::new(&range).unwrap(),
            producer: Producer::new(range).unwrap(),
        }
    }

    pub fn buffer(&mut self, context: Id, bytes: u64) -> (Id, Payload) {
        let id = self.id();
        let payload = self.payload(bytes);
        self.control(&Control::Buffer {
            id,
            context,
            flags: 1,
            size: bytes,
            backing: if shared().description.host_memory {
                Backing::Arena(payload)
            } else {
                Backing::Device(None)
            },
        });
        (id, payload)
    }

    pub fn device_buffer(&mut self, context: Id, bytes: u64) -> Id {
        let id = self.id();
        self.control(&Control::Buffer {
            id,
            context,
            flags: 1,
            size: bytes,
            backing: Backing::Device(None),
        });
        id
    }

    pub fn notice<T>(&mut self, mut wanted: impl FnMut(Notice) -> Option<T>) -> T {
        let started = Instant::now();
        let mut record = Vec::new();
        loop {
            if self.notices.pop(&mut record).unwrap() {
                if let Some(found) = wanted(decode(&record).unwrap()) {
                    return found;
                }
                continue;
            }
            assert!(started.elapsed() < PATIENCE, "no such notice");
            self.notices
                .wait(Duration::ZERO, Some(Duration::from_millis(50)));
        }
    }

    pub fn call(&mut self, request: Request) -> Reply {
        let call = self.next_call;
        self.next_call += 1;
        self.control(&Control::Call { call, request });
        self.notice(|notice| match notice {
            Notice::Reply { call: of, reply } if of == call => Some(reply),
            _ => None,
        })
    }

    pub fn program(&mut self, context: Id, source: &str) -> Id {
        let id = self.id();
        self.control(&Control::ProgramSource {
            id,
            context,
            source: source.as_bytes(),
        });
        id
    }

    pub fn build(&mut self, program: Id) -> Reply {
        self.call(Request::Build {
            files: Vec::new(),
            program,
            devices: &[],
            options: "",
        })
    }

    pub fn kernel(&mut self, context: Id, source: &str, name: &str) -> Id {
        let program = self.program(context, source);
        match self.build(program) {
            Reply::Built { code: 0, .. } => {}
            other => panic!("{other:?}"),
        }
        let id = self.id();
        self.control(&Control::Kernel { id, program, name });
        id
    }

    pub fn push(&mut self, queue: &mut Queue, event: Event, waits: &[Event], op: &Operation) {
        let waits: Vec<u8> = waits.iter().flat_map(|e| e.to_le_bytes()).collect();
        let command = Command {
            event,
            after_control: self.control.pushed(),
            waits: Waits(&waits),
            operation: op.clone(),
        };
        let mut bytes = Vec::new();
        encode(&command, &mut bytes).unwrap();
        while queue.producer.try_push(&bytes).is_err() {
            queue.producer.publish();
            std::thread::yield_now();
        }
    }

    pub fn launch(
        &mut self,
        queue: &mut Queue,
        event: Event,
        waits: &[Event],
        kernel: Id,
        global: u64,
        args: &[Arg],
    ) {
        let mut bytes = Vec::new();
        for arg in args {
            encode(arg, &mut bytes).unwrap();
        }
        let op = Operation::Launch {
            kernel,
            dimensions: 1,
            offset: [0; 3],
            global: [global, 1, 1],
            local: [0; 3],
            arg_count: args.len() as u32,
            args: &bytes,
            svm_indirect: &[],
        };
        self.push(queue, event, waits, &op);
    }

    pub fn transfer(
        &mut self,
        queue: &mut Queue,
        event: Event,
        direction: Direction,
        buffer: Id,
        payload: Payload,
    ) {
        let op = Operation::Buffer {
            direction,
            buffer,
            offset: 0,
            payload,
        };
        self.push(queue, event, &[], &op);
    }

    /// Writes the arena's content to a buffer that is not in the arena.
    pub fn show(&mut self, queue: &mut Queue, buffer: Id, payload: Payload) {
        self.copy(queue, Direction::Write, buffer, payload);
    }

    /// Reads a buffer that is not in the arena into it.
    pub fn look(&mut self, queue: &mut Queue, buffer: Id, payload: Payload) {
        self.copy(queue, Direction::Read, buffer, payload);
    }

    fn copy(&mut self, queue: &mut Queue, direction: Direction, buffer: Id, payload: Payload) {
        if !shared().description.host_memory {
            self.transfer(queue, 0, direction, buffer, payload);
            queue.finish();
        }
    }

    pub fn event(&self) -> Event {
        self.events.alloc().unwrap()
    }

    pub fn wait(&self, event: Event) -> i32 {
        let started = Instant::now();
        loop {
            let status = self.events.status(event);
            if status <= 0 {
                return status;
            }
            assert!(started.elapsed() < PATIENCE, "the event is stuck");
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    pub fn is_pending(&self, event: Event) -> bool {
        std::thread::sleep(Duration::from_millis(30));
        self.events.status(event) > 0
    }
}

/// A number of microseconds from the environment, for measuring.
pub fn env_us(name: &str, or: u64) -> u64 {
    std::env::var(name).map_or(or, |text| text.parse().unwrap())
}
