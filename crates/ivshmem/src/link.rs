//! The transport of a connection's messages: a part of the region, or a stream.

use crate::device::{Bell, Device, Opened};
use crate::error::Error;
use crate::message::{
    Answer, Kind, Reason, Request, State, ANSWER_BYTES, ARENA, INLINE_BYTES_MAX, MESSAGE_BYTES_MAX,
};
use crate::region::Part;
use crate::stream::{Frame, Pipe, Received};
use crate::wait::{self, Guess, Waiter};
use baltra_ring::memory::try_lock_byte;
use baltra_ring::{Consumer, Locked, Memory, Producer, Range};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Time limit for the host to accept a new application.
const CLAIM_PATIENCE: Duration = Duration::from_secs(10);
/// The host counts as dead if its pulse does not change for this long.
const PULSE_PATIENCE: Duration = Duration::from_secs(5);
/// Size of an application's own arena over a stream, which bounds the data in transit.
const ARENA_BYTES: u64 = 16 << 20;
/// Size limit of a Device Manager's answer to a hello, which mostly consists of its devices'
/// descriptions.
const SESSION_ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Timeout of that answer.
const SESSION_PATIENCE: Duration = Duration::from_secs(60);
/// The number of the only call of a link that becomes a session.
const SESSION_CALL: u64 = 1;
/// Alignment of blocks in the arena.
const ALIGN: u64 = 64;
/// Longest wait on a stream before the time limits are checked.
const TURN: Duration = Duration::from_secs(1);

/// A connection to the host.
pub enum Link {
    /// Through a part of the region.
    Rings(Box<Rings>),
    /// Through a virtio-serial port or a TCP connection.
    Stream(Box<Stream>),
}

/// An answer, and the waiting time if it was long.
pub type Next = Result<(Answer, Option<Duration>), Error>;

impl Link {
    /// Claims a free part of the region, or starts on a stream.
    pub fn open(device: &Device) -> Result<Link, Error> {
        match device.stream()? {
            Some(stream) => Ok(Link::Stream(Box::new(Stream::open(stream)?))),
            None => Ok(Link::Rings(Box::new(Rings::open(device.open()?)?))),
        }
    }

    /// The number of the part of the region, from 0; 0 without a region.
    pub fn part(&self) -> u32 {
        match self {
            Link::Rings(rings) => rings.held.number,
            Link::Stream(_) => 0,
        }
    }

    /// Memory of bodies and answers.
    pub fn arena(&self) -> &Range {
        match self {
            Link::Rings(rings) => &rings.held.part.arena,
            Link::Stream(stream) => &stream.arena,
        }
    }

    /// Sends a request; `body`: its body's place in the arena.
    pub fn push(&mut self, message: &[u8], body: Option<(u64, u64)>) -> Result<(), Error> {
        match self {
            Link::Rings(rings) => rings.push(message),
            Link::Stream(stream) => stream.push(message, body),
        }
    }

    /// Receives the next answer into `answer`.
    pub fn next(&mut self, deadline: Option<Instant>, guess: Guess, answer: &mut Vec<u8>) -> Next {
        match self {
            Link::Rings(rings) => rings.next(deadline, guess, answer),
            Link::Stream(stream) => stream.next(deadline, answer),
        }
    }
}

/// Sends a framed hello to the host's Device Manager. Returns its framed answer and, if that opened
/// a session, the part, which becomes the session's memory.
pub fn session(device: &Device, hello: &[u8]) -> Result<(Vec<u8>, Option<Lent>), Error> {
    let mut link = Link::open(device)?;
    if hello.len() > INLINE_BYTES_MAX {
        return Err(Error::Misuse("the hello is longer than 4 KiB"));
    }
    if !matches!(link, Link::Rings(_)) {
        return Err(Error::Misuse(
            "OpenCL over the region needs an ivshmem device",
        ));
    }
    let behind = baltra_ring::SEGMENT_BYTES.next_multiple_of(ALIGN);
    let room = (link.arena().len() as u64).saturating_sub(behind);
    let request = Request {
        answer: (behind, room.min(SESSION_ANSWER_BYTES_MAX)),
        ..Request::new(Kind::Session, 0, SESSION_CALL)
    };
    let mut message = Vec::new();
    request.encode("", hello, &mut message);
    link.push(&message, None)?;
    let deadline = Instant::now() + SESSION_PATIENCE;
    let answer = match link.next(Some(deadline), Guess::default(), &mut message) {
        Ok((answer, _)) if answer.id == request.id => answer,
        Ok(_) => return Err(Error::Protocol),
        Err(Error::NotYet) => return Err(Error::Gone),
        Err(error) => return Err(error),
    };
    let mut data = message.split_off(ANSWER_BYTES);
    if answer.reason.is_some() {
        return Err(refused(answer, &data));
    }
    if answer.place == ARENA {
        if answer.bytes > request.answer.1 {
            return Err(Error::Protocol);
        }
        data.clear();
        let arena = link.arena();
        arena.append_to(behind as usize, answer.bytes as usize, &mut data);
    }
    let lent = match link {
        Link::Rings(rings) if answer.choice == 1 => Some(Lent::new(rings.held)),
        _ => None,
    };
    Ok((data, lent))
}

/// The error of a nack.
pub fn refused(answer: Answer, data: &[u8]) -> Error {
    match answer.reason {
        Some(reason) => Error::Refused {
            reason,
            text: String::from_utf8_lossy(data).into_owned(),
        },
        None => Error::Protocol,
    }
}

/// A claimed part of the region, released when dropped.
struct Held {
    device: Opened,
    /// Rung by the host.
    bell: Option<Bell>,
    part: Part,
    number: u32,
    claim: u32,
    epoch: u32,
}

/// A part of the region, and its rings.
pub struct Rings {
    held: Held,
    requests: Producer,
    responses: Consumer,
    waiter: Waiter,
    pulse: (u32, Instant),
}

/// The error of a connection that is no longer served.
fn ended(trouble: u8) -> Error {
    match Reason::from_number(trouble) {
        Some(reason) => Error::Refused {
            reason,
            text: match reason {
                Reason::TimedOut => "the call exceeded this VM's time limit".into(),
                Reason::Quota => "this VM has reached its limit of applications".into(),
                _ => "the host closed this connection after a malformed request".into(),
            },
        },
        None => Error::Lost,
    }
}

impl Rings {
    fn open(mut device: Opened) -> Result<Rings, Error> {
        let parts = device.region.layout.parts;
        let mut free = None;
        for number in 0..parts {
            if try_lock_byte(&device.file, number.into())? {
                free = Some(number);
                break;
            }
        }
        let number = free.ok_or(Error::Full)?;
        let part = device.region.part(number);
        let bell = device.take_bell(number);
        let peer = if bell.is_some() { device.peer } else { 0 };
        let deadline = Instant::now() + CLAIM_PATIENCE;
        loop {
            let epoch = device.region.epoch().load(Ordering::Acquire);
            if epoch != 0 {
                let claim = fresh(part.claim().load(Ordering::Relaxed));
                part.peer().store(peer, Ordering::Relaxed);
                part.claim().store(claim, Ordering::Release);
                device.ringer.ring(parts);
                while part.served().load(Ordering::Acquire) != claim {
                    if device.region.epoch().load(Ordering::Relaxed) != epoch {
                        break;
                    }
                    if Instant::now() > deadline {
                        return Err(Error::Gone);
                    }
                    std::thread::sleep(Duration::from_micros(100));
                }
                if part.served().load(Ordering::Acquire) == claim {
                    // The host has cleared the rings.
                    return Rings::over(Held {
                        device,
                        bell,
                        part,
                        number,
                        claim,
                        epoch,
                    });
                }
            }
            if Instant::now() > deadline {
                return Err(Error::Gone);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn over(held: Held) -> Result<Rings, Error> {
        let layout = |_| Error::Protocol;
        let (requests, responses) = (held.part.requests.clone(), held.part.responses.clone());
        let responses = Consumer::new(responses).map_err(layout)?;
        Ok(Rings {
            requests: Producer::new(requests).map_err(layout)?,
            responses: responses.limit_messages(MESSAGE_BYTES_MAX),
            waiter: Waiter::new(held.device.in_guest),
            pulse: (0, Instant::now()),
            held,
        })
    }

    /// State of a handle's call, as the host shows it.
    pub fn state(&self, handle: u32) -> Option<State> {
        let shown = self.held.part.state(handle).load(Ordering::Acquire);
        State::from_number(shown as u8)
    }

    fn push(&mut self, message: &[u8]) -> Result<(), Error> {
        let mut since = None;
        while self.requests.try_push(message).is_err() {
            self.check(*since.get_or_insert_with(Instant::now))?;
            std::thread::sleep(Duration::from_micros(50));
        }
        if self.requests.show() {
            self.held.device.ringer.ring(self.held.number);
        }
        Ok(())
    }

    fn next(&mut self, deadline: Option<Instant>, guess: Guess, message: &mut Vec<u8>) -> Next {
        let mut since = None;
        loop {
            match self.responses.pop(message) {
                Ok(true) => {
                    let Some((answer, _)) = Answer::decode(message) else {
                        self.check(Instant::now())?;
                        return Err(Error::Protocol);
                    };
                    return Ok((answer, since.map(|since: Instant| since.elapsed())));
                }
                Ok(false) => {}
                Err(_) => {
                    self.check(Instant::now())?;
                    return Err(Error::Protocol);
                }
            }
            if since.is_none() {
                if wait::looks(&self.responses) {
                    continue;
                }
                since = Some(Instant::now());
                if self.waiter.look(&self.responses, guess) {
                    continue;
                }
            }
            let since = *since.get_or_insert_with(Instant::now);
            self.check(since)?;
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(Error::NotYet);
            }
            let bell = self.held.bell.as_ref();
            self.waiter.sleep(&self.responses, bell, since, guess);
        }
    }

    /// Whether the host is alive and still serves this connection.
    fn check(&mut self, since: Instant) -> Result<(), Error> {
        if !self.held.is_served() {
            return Err(ended(self.held.part.trouble().load(Ordering::Acquire) as u8));
        }
        let pulse = self.held.device.region.pulse().load(Ordering::Relaxed);
        let now = Instant::now();
        if pulse != self.pulse.0 || self.pulse.1 < since {
            self.pulse = (pulse, now);
        }
        if now - self.pulse.1 > PULSE_PATIENCE {
            Err(Error::Gone)
        } else {
            Ok(())
        }
    }
}

/// A stream, and this side's arena.
pub struct Stream {
    pipe: Pipe,
    arena: Range,
}

impl Stream {
    fn open(stream: OwnedFd) -> Result<Stream, Error> {
        let arena = Memory::anonymous(ARENA_BYTES)?;
        let arena = arena.slice(0, ARENA_BYTES).expect("all of it");
        let mut pipe = Pipe::new(stream, ARENA_BYTES);
        let number = rand_number();
        match pipe.greet(number, CLAIM_PATIENCE) {
            Ok(()) => Ok(Stream { pipe, arena }),
            Err(_) => Err(Error::Gone),
        }
    }

    fn push(&mut self, message: &[u8], body: Option<(u64, u64)>) -> Result<(), Error> {
        let (at, bytes) = body.unwrap_or_default();
        let mut rest = Vec::new();
        self.arena.append_to(at as usize, bytes as usize, &mut rest);
        let sent = self.pipe.send(message, at, &rest);
        sent.map_err(|_| Error::Gone)
    }

    fn next(&mut self, deadline: Option<Instant>, message: &mut Vec<u8>) -> Next {
        loop {
            match self.pipe.receive() {
                Ok(Some(Received::Frame(frame))) => {
                    let answer = self.take(frame, message)?;
                    return Ok((answer, None));
                }
                Ok(Some(Received::Trouble(reason))) => return Err(ended(reason)),
                // A new worker begins in the middle of the previous one's stream.
                Ok(Some(Received::Garbage | Received::Hello(_))) => return Err(Error::Lost),
                Ok(None) => {}
                Err(_) => return Err(Error::Gone),
            }
            let left = match deadline {
                Some(deadline) => deadline.saturating_duration_since(Instant::now()),
                None => TURN,
            };
            if left.is_zero() {
                return Err(Error::NotYet);
            }
            self.pipe.wait(left.min(TURN));
        }
    }

    fn take(&self, frame: Frame, message: &mut Vec<u8>) -> Result<Answer, Error> {
        *message = frame.message;
        let (answer, _) = Answer::decode(message).ok_or(Error::Protocol)?;
        let bytes = frame.rest.len() as u64;
        if (answer.place == ARENA) != (bytes > 0) || (bytes > 0 && bytes != answer.bytes) {
            return Err(Error::Protocol);
        }
        let target = self.arena.slice(frame.at, bytes).ok_or(Error::Protocol)?;
        target.copy_in(0, &frame.rest);
        Ok(answer)
    }
}

/// A number that no application before had.
fn rand_number() -> [u8; 16] {
    let mut number = [0; 16];
    // If the kernel has no randomness yet, time and process id suffice.
    if rustix::rand::getrandom(&mut number, rustix::rand::GetRandomFlags::NONBLOCK).is_err() {
        let now = std::time::SystemTime::UNIX_EPOCH
            .elapsed()
            .unwrap_or_default();
        let of = now.as_nanos() ^ u128::from(std::process::id()) << 96;
        number = of.to_le_bytes();
    }
    number
}

/// The next claim of a part: an odd number.
fn fresh(claim: u32) -> u32 {
    (claim | 1).wrapping_add(if claim & 1 == 0 { 0 } else { 2 })
}

impl Held {
    /// Writes an even claim, which releases everything at the host. The lock ends with the file.
    fn end(&self) {
        let none = self.claim.wrapping_add(1);
        self.part.claim().store(none, Ordering::Release);
        self.part.peer().store(0, Ordering::Relaxed);
        self.device.ringer.ring(self.device.region.layout.parts);
    }

    fn is_served(&self) -> bool {
        self.device.region.epoch().load(Ordering::Acquire) == self.epoch
            && self.part.served().load(Ordering::Acquire) == self.claim
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.end();
    }
}

/// A part that is an OpenCL session's memory. Dropping it ends the session.
pub struct Lent {
    held: Held,
    looked: Mutex<(u32, Instant)>,
}

impl Lent {
    fn new(held: Held) -> Lent {
        let looked = Mutex::new((0, Instant::now()));
        Lent { held, looked }
    }

    /// All of the session's memory.
    pub fn memory(&self) -> &Range {
        &self.held.part.arena
    }

    /// Whether the host's processors are not this kernel's.
    pub fn in_guest(&self) -> bool {
        self.held.device.in_guest
    }

    /// Wakes the session's other end.
    pub fn ring(&self) {
        self.held.device.ringer.ring(self.held.number);
    }

    /// Shows the host that this process is alive; returns whether the session is. To be called more
    /// often than once per second.
    pub fn beat(&self) -> bool {
        self.held.part.beat().fetch_add(1, Ordering::Relaxed);
        if !self.held.is_served() {
            return false;
        }
        let pulse = self.held.device.region.pulse().load(Ordering::Relaxed);
        let mut looked = self.looked.locked();
        if looked.0 != pulse {
            *looked = (pulse, Instant::now());
        }
        looked.1.elapsed() < PULSE_PATIENCE
    }

    /// Ends the session; its memory belongs to this process until this is dropped.
    pub fn end(&self) {
        self.held.end();
    }
}
