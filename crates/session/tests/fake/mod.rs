//! Manager and executor in one process: buffers in private memory or in arenas, transfers and fills
//! only, mirrored notices.
#![allow(dead_code)]

use baltra_ring::{Consumer, EventWriter, Memory, Producer, Progress, Range, Segment};
use baltra_session::client::{Client, Handler};
use baltra_session::fd::recv_with_fds;
use baltra_session::{handshake, relay, Endpoint};
use baltra_wire::*;
use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

pub const TOKEN: &str = "secret";

struct Channel {
    ring: Consumer,
    progress: Progress,
    held: Option<Vec<u8>>,
    done: u64,
}

/// Size in bytes of a buffer whose creation fails.
pub const REFUSED_BYTES: u64 = 77_777;

enum Buffer {
    Private(Vec<u8>),
    Arena(Range),
}

impl Buffer {
    fn len(&self) -> usize {
        match self {
            Buffer::Private(bytes) => bytes.len(),
            Buffer::Arena(range) => range.len(),
        }
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        match self {
            Buffer::Private(all) => all[at..at + bytes.len()].copy_from_slice(bytes),
            Buffer::Arena(range) => range.copy_in(at, bytes),
        }
    }

    fn get(&self, at: usize, bytes: &mut [u8]) {
        match self {
            Buffer::Private(all) => bytes.copy_from_slice(&all[at..at + bytes.len()]),
            Buffer::Arena(range) => range.copy_out(at, bytes),
        }
    }
}

struct Executor {
    socket: UnixStream,
    control: Consumer,
    notices: Producer,
    writer: EventWriter,
    arenas: HashMap<u32, Memory>,
    /// Arenas that arrived before their announcement.
    fds: VecDeque<OwnedFd>,
    buffers: HashMap<Id, Buffer>,
    channels: HashMap<Id, Channel>,
    complete: HashSet<Event>,
    controls: u64,
    host_memory: bool,
    seen: Arc<Seen>,
}

/// State that the tests examine.
#[derive(Default)]
pub struct Seen {
    pub commands: AtomicU64,
    pub longest: AtomicU64,
    pub sessions: AtomicU64,
    pub ended: AtomicU64,
}

impl Executor {
    fn memory(&self, p: Payload) -> Range {
        let memory = &self.arenas[&p.arena];
        memory.slice(p.offset, p.len).expect("a payload inside")
    }

    fn say(&mut self, notice: &Notice<'_>) {
        let mut bytes = Vec::new();
        encode(notice, &mut bytes).unwrap();
        let pause = || {
            thread::sleep(Duration::from_micros(50));
            true
        };
        if self.notices.try_push(&bytes).is_err() {
            self.notices.push_large(&bytes, pause).unwrap();
        }
        self.notices.publish();
    }

    fn control(&mut self, message: &[u8]) {
        self.controls += 1;
        match decode::<Control>(message).unwrap() {
            Control::ArenaAdd { arena, len } => {
                let fd = self.fds.pop_front().unwrap_or_else(|| {
                    let (n, mut fds) = recv_with_fds(&self.socket, &mut [0; 1], true).unwrap();
                    assert_eq!((n, fds.len()), (1, 1));
                    fds.remove(0)
                });
                let memory = Memory::map(&fd, len).unwrap();
                self.arenas.insert(arena, memory);
            }
            Control::ArenaDrop(arena) => {
                self.arenas.remove(&arena);
            }
            Control::EventsAdd { payload, .. } => {
                assert!(self.writer.add(self.memory(payload)).is_some());
            }
            Control::Queue { id, ring, .. } => {
                let range = self.memory(ring);
                let channel = Channel {
                    progress: Progress::new(&range).unwrap(),
                    ring: Consumer::new(range).unwrap(),
                    held: None,
                    done: 0,
                };
                self.channels.insert(id, channel);
            }
            Control::Buffer {
                id, size, backing, ..
            } => {
                if size == REFUSED_BYTES {
                    return;
                }
                let mut bytes = vec![0; size as usize];
                let buffer = match backing {
                    Backing::Device(Some(payload)) => {
                        self.memory(payload).copy_out(0, &mut bytes);
                        Buffer::Private(bytes)
                    }
                    Backing::Device(None) => Buffer::Private(bytes),
                    Backing::Svm(_) => panic!("no shared virtual memory here"),
                    Backing::Arena(payload) => {
                        assert!(self.host_memory, "an arena for a device without");
                        Buffer::Arena(self.memory(payload))
                    }
                };
                self.buffers.insert(id, buffer);
            }
            Control::SubBuffer {
                id,
                parent,
                origin,
                size,
                ..
            } => {
                let Some(Buffer::Arena(range)) = self.buffers.get(&parent) else {
                    panic!("only parts of arenas here");
                };
                let part = Buffer::Arena(range.slice(origin, size).unwrap());
                self.buffers.insert(id, part);
            }
            Control::UserEvent { event, status } => self.finish(event, status),
            Control::Release { id, notify, .. } => {
                self.buffers.remove(&id);
                self.channels.remove(&id);
                if notify {
                    self.say(&Notice::Freed(id));
                }
            }
            Control::Call { call, request } => {
                let reply = match request {
                    Request::ProgramIl { il, .. } => Reply::Bytes(il.to_vec()),
                    Request::Query(Query::Memory { object, .. }) => {
                        match self.buffers.get(&object) {
                            Some(buffer) => Reply::Bytes(buffer.len().to_ne_bytes().to_vec()),
                            None => Reply::Error(-4),
                        }
                    }
                    _ => Reply::Done,
                };
                self.say(&Notice::Reply { call, reply });
            }
            _ => {}
        }
    }

    fn finish(&mut self, event: Event, status: i32) {
        self.writer.set(event, status, [1, 2, 3, 4]);
        self.complete.insert(event);
        self.say(&Notice::Completed(Completion {
            event,
            status,
            times_ns: [1, 2, 3, 4],
        }));
    }

    /// Executes a command if it may run.
    fn command(&mut self, message: &[u8]) -> Option<i32> {
        let command = decode::<Command>(message).unwrap();
        let ready = command.waits.iter().all(|e| self.complete.contains(&e));
        if command.after_control > self.controls || !ready {
            return None;
        }
        self.seen.commands.fetch_add(1, Ordering::SeqCst);
        let mut status = 0;
        if let Operation::Buffer {
            direction,
            buffer,
            offset,
            payload,
        } = command.operation
        {
            self.seen.longest.fetch_max(payload.len, Ordering::SeqCst);
            let memory = self.memory(payload);
            let (from, to) = (offset as usize, (offset + payload.len) as usize);
            let found = self.buffers.get_mut(&buffer).filter(|b| to <= b.len());
            let mut bytes = vec![0; payload.len as usize];
            match (found, direction) {
                (Some(buffer), Direction::Write) => {
                    memory.copy_out(0, &mut bytes);
                    buffer.put(from, &bytes);
                }
                (Some(buffer), Direction::Read) => {
                    buffer.get(from, &mut bytes);
                    memory.copy_in(0, &bytes);
                }
                (None, _) => status = -38,
            }
        }
        if let Operation::FillBuffer {
            buffer,
            pattern,
            offset,
            len,
        } = command.operation
        {
            let bytes: Vec<u8> = pattern.iter().copied().cycle().take(len as usize).collect();
            let buffer = self.buffers.get_mut(&buffer).expect("a buffer to fill");
            buffer.put(offset as usize, &bytes);
        }
        if command.event != 0 {
            self.finish(command.event, status);
            status = 0;
        }
        Some(status)
    }

    fn queue(&mut self, id: Id) -> bool {
        let mut message = Vec::new();
        let channel = self.channels.get_mut(&id).unwrap();
        match channel.held.take() {
            Some(held) => message = held,
            None => {
                if !channel.ring.pop(&mut message).unwrap() {
                    return false;
                }
            }
        }
        let Some(status) = self.command(&message) else {
            self.channels.get_mut(&id).unwrap().held = Some(message);
            return false;
        };
        let channel = self.channels.get_mut(&id).unwrap();
        channel.done += 1;
        let completed = channel.done;
        if status < 0 {
            channel.progress.fail(completed, status);
        }
        channel.progress.publish(completed);
        let failed = channel.progress.failure().unwrap_or((0, 0));
        self.say(&Notice::Progress {
            queue: id,
            completed,
            failed,
        });
        true
    }

    fn run(mut self) {
        let mut message = Vec::new();
        let mut idle = 0;
        self.socket.set_nonblocking(false).unwrap();
        loop {
            let mut moved = false;
            while self.control.pop(&mut message).unwrap() {
                self.control(&message);
                moved = true;
            }
            let ids: Vec<Id> = self.channels.keys().copied().collect();
            for id in ids {
                while self.channels.contains_key(&id) && self.queue(id) {
                    moved = true;
                }
            }
            if moved {
                idle = 0;
                continue;
            }
            idle += 1;
            thread::sleep(Duration::from_micros(50));
            if idle % 100 == 0 {
                match recv_with_fds(&self.socket, &mut [0; 1], false) {
                    Ok((0, _)) => {
                        self.seen.ended.fetch_add(1, Ordering::SeqCst);
                        return;
                    }
                    // The announcement of the arena follows.
                    Ok((_, fds)) => self.fds.extend(fds),
                    Err(_) => {}
                }
            }
        }
    }
}

/// A daemon: the manager's socket, the executor, and a relay for each TCP connection.
pub struct Daemon {
    pub dir: tempfile::TempDir,
    pub port: u16,
    pub seen: Arc<Seen>,
    /// The sockets of the executors, for ending them.
    pub executors: Arc<Mutex<Vec<UnixStream>>>,
    pub results: Arc<Mutex<Vec<Result<(), String>>>>,
}

/// A device whose executor is slow to start.
pub const SLOW: &str = "slow";

/// A daemon with a device that has its own memory.
pub fn daemon(change: impl FnOnce(&mut relay::Options)) -> Daemon {
    daemon_of(false, change)
}

/// A daemon with a device that works in host memory, or not.
pub fn daemon_of(host_memory: bool, change: impl FnOnce(&mut relay::Options)) -> Daemon {
    if module_path!().starts_with("subflows") {
        // Read at each connection, also of tests that run at the same time: all of them use it.
        std::env::set_var("BALTRA_TCP_CONNECTIONS", "4");
    }
    let dir = tempfile::tempdir().unwrap();
    let seen = Arc::new(Seen::default());
    let executors = Arc::new(Mutex::new(Vec::new()));
    let results = Arc::new(Mutex::new(Vec::new()));
    let path = dir.path().join("relay.sock");
    let manager = UnixListener::bind(&path).unwrap();
    let (ours, sockets) = (seen.clone(), executors.clone());
    thread::spawn(move || {
        for stream in manager.incoming() {
            open(stream.unwrap(), host_memory, &ours, &sockets);
        }
    });
    let mut options = relay::Options::new(path);
    change(&mut options);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let failures = results.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (options, failures) = (options.clone(), failures.clone());
            thread::spawn(move || {
                let result = relay::run(stream.unwrap().into(), &options);
                failures
                    .lock()
                    .unwrap()
                    .push(result.map_err(|e| e.to_string()));
            });
        }
    });
    Daemon {
        dir,
        port,
        seen,
        executors,
        results,
    }
}

fn open(stream: UnixStream, host_memory: bool, seen: &Arc<Seen>, sockets: &Mutex<Vec<UnixStream>>) {
    let hello = handshake::read_hello(&stream, Duration::from_secs(5))
        .unwrap()
        .0;
    assert!(hello.mirror);
    if hello.token != TOKEN {
        let refusal = Refusal::NotAllowed("no such token".into());
        return handshake::answer(&stream, &Err(refusal), None).unwrap();
    }
    let session = seen.sessions.fetch_add(1, Ordering::SeqCst) + 1;
    let welcome = Welcome {
        version: VERSION,
        session,
        key: [0; 16],
        tenant: "t".into(),
        node: "n".into(),
        devices: vec![DeviceDescription {
            name: "fake".into(),
            host_memory,
            ..Default::default()
        }],
        limits: Limits::default(),
        flags: SessionFlags { mirror: true },
    };
    if hello.device == SLOW {
        // Longer than the limit for the few bytes before a session.
        thread::sleep(Duration::from_secs(11));
    }
    if hello.device.is_empty() {
        return handshake::answer(&stream, &Ok(welcome), None).unwrap();
    }
    let (segment, fd) = Segment::create().unwrap();
    handshake::answer(&stream, &Ok(welcome), Some(&fd)).unwrap();
    sockets.lock().unwrap().push(stream.try_clone().unwrap());
    let executor = Executor {
        socket: stream,
        control: Consumer::new(segment.control()).unwrap(),
        notices: Producer::new(segment.notices()).unwrap(),
        writer: EventWriter::new(&segment),
        arenas: HashMap::new(),
        fds: VecDeque::new(),
        buffers: HashMap::new(),
        channels: HashMap::new(),
        complete: HashSet::new(),
        controls: 0,
        host_memory,
        seen: seen.clone(),
    };
    thread::spawn(move || executor.run());
}

/// Records why sessions ended.
#[derive(Default)]
pub struct Losses(pub Mutex<Vec<String>>);

impl Handler for Losses {
    fn printed(&self, _: &[u8]) {}
    fn context_error(&self, _: Id, _: &str) {}
    fn lost(&self, _: i32, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
}

pub fn hello(device: &str, token: &str) -> Hello {
    Hello {
        version: VERSION,
        tenant: String::new(),
        token: token.into(),
        instance: "test".into(),
        device: device.into(),
        resume: None,
        mirror: false,
    }
}

pub fn connect(port: u16) -> (Arc<Client>, Arc<Losses>) {
    connect_to(port, "fake")
}

pub fn connect_to(port: u16, device: &str) -> (Arc<Client>, Arc<Losses>) {
    let endpoint: Endpoint = format!("tcp://127.0.0.1:{port}").parse().unwrap();
    let losses = Arc::new(Losses::default());
    let client = Client::connect(&endpoint, hello(device, TOKEN), losses.clone()).unwrap();
    (client, losses)
}

/// A network path between client and daemon that breaks by itself.
pub struct Path {
    pub port: u16,
    /// Bytes that have passed over each connection.
    passed: Arc<Mutex<Vec<Arc<AtomicU64>>>>,
}

impl Path {
    /// Every connection ends, without a reset, once this many bytes have passed in both directions
    /// together: the number of failures depends on the traffic, not on time.
    pub fn ending_after(port: u16, bytes: u64) -> Path {
        Path::new(port, move |_| bytes)
    }

    /// The same for each connection but the first, which lasts.
    pub fn ending_later_after(port: u16, bytes: u64) -> Path {
        Path::new(port, move |at| if at == 0 { u64::MAX } else { bytes })
    }

    /// `bytes_max` returns the bytes after which a connection ends, by its number.
    fn new(port: u16, bytes_max: impl Fn(usize) -> u64 + Send + 'static) -> Path {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = listener.local_addr().unwrap().port();
        let all = Arc::new(Mutex::new(Vec::new()));
        let list = all.clone();
        thread::spawn(move || {
            for (at, near) in listener.incoming().enumerate() {
                let near = near.unwrap();
                let far = TcpStream::connect(("127.0.0.1", port)).unwrap();
                let passed = Arc::new(AtomicU64::new(0));
                list.lock().unwrap().push(passed.clone());
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let (passed, most) = (passed.clone(), bytes_max(at));
                    thread::spawn(move || pass(from, to, &passed, most));
                }
            }
        });
        Path {
            port: ours,
            passed: all,
        }
    }

    /// Number of connections.
    pub fn connections(&self) -> u64 {
        self.passed.lock().unwrap().len() as u64
    }

    /// Bytes that have passed over the connection with the fewest.
    pub fn least_bytes(&self) -> u64 {
        let passed = self.passed.lock().unwrap();
        let bytes = passed.iter().map(|p| p.load(Ordering::SeqCst));
        bytes.min().unwrap_or(0)
    }
}

/// A connection that has sent only a hello for a session that exists.
pub fn raw_hello(port: u16, resume: (u64, [u8; 16]), purpose: Purpose) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let hello = Hello {
        resume: Some(resume),
        ..hello("fake", TOKEN)
    };
    let message = handshake::frame(&(hello, purpose)).unwrap();
    stream.write_all(&message).unwrap();
    stream
}

fn pass(mut from: TcpStream, mut to: TcpStream, passed: &AtomicU64, bytes_max: u64) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        let before = passed.fetch_add(n as u64, Ordering::SeqCst);
        if before >= bytes_max {
            // All data is read, because unread data would cause a reset.
            let _ = to.shutdown(std::net::Shutdown::Write);
        } else if to.write_all(&bytes[..n]).is_err() || before + n as u64 >= bytes_max {
            let _ = to.shutdown(std::net::Shutdown::Write);
            let _ = from.shutdown(std::net::Shutdown::Write);
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}
