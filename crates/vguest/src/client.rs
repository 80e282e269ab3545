//! An application's connection, and the functions that it asked for.
//!
//! The four phases: [`Client::request`] negotiates, [`Client::activate`] loads, [`Client::set`] and
//! [`Client::get`] compute, [`Client::release`] ends. One call of a function is on its way at a
//! time; calls of several functions may be, and the host carries them out in their order.
//!
//! A connection is one thread's at a time, and has a part of the region to itself: an application
//! with several threads opens several.

use crate::device::{Device, Opened};
use crate::message::{
    Answer, Codec, Implementation, Kind, Reason, Request, State, Want, ARENA, HERE,
    INLINE_BYTES_MAX, KEPT, MESSAGE_BYTES_MAX, TEXT_BYTES_MAX,
};
use crate::region::{Part, HANDLES_MAX};
use crate::wait;
use baltra_ring::memory::try_lock_byte;
use baltra_ring::{Consumer, Producer, Range, Spin};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long the host may take to take notice of a new application.
const CLAIM_PATIENCE: Duration = Duration::from_secs(10);
/// How long administrative requests may take, loading a library and compiling kernels included.
const ADMINISTRATION_PATIENCE: Duration = Duration::from_secs(60);
/// A host whose pulse stands still so long is gone.
const PULSE_PATIENCE: Duration = Duration::from_secs(5);
/// What a Device Manager answers to a hello: its devices' descriptions, mostly.
const SESSION_ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Blocks of the arena start at a multiple of it.
const ALIGN: u64 = 64;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The region cannot be used.
    #[error(transparent)]
    Device(#[from] io::Error),
    /// All parts are taken by other applications of this VM.
    #[error("every part of the region is taken by another application of this VM")]
    Full,
    /// The host does not answer.
    #[error("the host does not answer (does `baltra vfun` run there?)")]
    Gone,
    /// The host started anew: everything that was asked for is forgotten. Open again.
    #[error("the host has started anew and forgotten this connection: open it again")]
    Lost,
    /// The host said no.
    #[error("{text}")]
    Refused {
        /// Why.
        reason: Reason,
        /// In words.
        text: String,
    },
    /// The wait was over before the answer came. The call goes on.
    #[error("no answer yet")]
    NotYet,
    /// A use that the library does not allow, such as a get without a set.
    #[error("{0}")]
    Misuse(&'static str),
    /// The host's answer makes no sense.
    #[error("the host broke the protocol")]
    Protocol,
}

/// What the host offers for a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Where it will run.
    pub implementation: Implementation,
    /// Names of the inputs that go into a call's arguments, in the manifest's order.
    pub arguments: Vec<String>,
    /// The function's own description.
    pub description: String,
}

/// A function that was asked for. It is its [`Client`]'s alone.
#[derive(Debug, PartialEq, Eq, Clone, Copy, Hash)]
pub struct Function(u32);

impl Function {
    /// Its number, for the C interface.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The function of a number; a wrong one is refused when it is used.
    pub fn from_number(number: u32) -> Function {
        Function(number)
    }
}

/// What a call is given.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    /// `name=value&…`, as in an URL's query.
    pub arguments: &'a str,
    /// The body; empty for none.
    pub body: &'a [u8],
    /// What the body is.
    pub body_codec: Codec,
    /// What the answer shall be.
    pub answer_codec: Codec,
}

impl<'a> Values<'a> {
    /// Arguments alone, with a raw answer.
    pub fn of(arguments: &'a str) -> Values<'a> {
        Values {
            arguments,
            body: &[],
            body_codec: Codec::Raw,
            answer_codec: Codec::Raw,
        }
    }
}

/// A handle's call.
#[derive(Default)]
struct Flight {
    /// Its number; 0: there is none.
    id: u64,
    /// Blocks of the arena: body, answer.
    blocks: [(u64, u64); 2],
    answer: Option<Result<Answer, Error>>,
    data: Vec<u8>,
}

/// A part of the region, claimed. Dropping it gives it back.
struct Held {
    device: Opened,
    part: Part,
    number: u32,
    claim: u32,
    epoch: u32,
}

/// A connection.
pub struct Client {
    held: Held,
    requests: Producer,
    responses: Consumer,
    spin: Spin,
    message: Vec<u8>,
    answer: Vec<u8>,
    next_id: u64,
    /// By handle.
    flights: Vec<Flight>,
    pulse: (u32, Instant),
}

impl Client {
    /// Takes a free part of the region.
    pub fn open(device: &Device) -> Result<Client, Error> {
        let device = device.open()?;
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
        let deadline = Instant::now() + CLAIM_PATIENCE;
        loop {
            let epoch = device.region.epoch().load(Ordering::Acquire);
            if epoch != 0 {
                let claim = fresh(part.claim().load(Ordering::Relaxed));
                part.peer().store(device.peer, Ordering::Relaxed);
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
                    return Client::over(device, part, number, claim, epoch);
                }
            }
            if Instant::now() > deadline {
                return Err(Error::Gone);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn over(
        device: Opened,
        part: Part,
        number: u32,
        claim: u32,
        epoch: u32,
    ) -> Result<Client, Error> {
        let layout = |_| Error::Protocol;
        Ok(Client {
            requests: Producer::new(part.requests.clone()).map_err(layout)?,
            responses: Consumer::new(part.responses.clone())
                .map_err(layout)?
                .limit_messages(MESSAGE_BYTES_MAX),
            spin: Spin::default(),
            message: Vec::new(),
            answer: Vec::new(),
            next_id: 1,
            flights: (0..HANDLES_MAX).map(|_| Flight::default()).collect(),
            pulse: (0, Instant::now()),
            held: Held {
                device,
                part,
                number,
                claim,
                epoch,
            },
        })
    }

    /// The part of the region that this is, from 0.
    pub fn part(&self) -> u32 {
        self.held.number
    }

    /// Hands a framed hello to the host's Device Manager: its framed answer and, where that opened a
    /// session, the part, which is the session's memory from now on.
    pub fn session(mut self, hello: &[u8]) -> Result<(Vec<u8>, Option<Lent>), Error> {
        if hello.len() > INLINE_BYTES_MAX {
            return Err(Error::Misuse("the hello is longer than 4 KiB"));
        }
        let behind = baltra_ring::SEGMENT_BYTES.next_multiple_of(ALIGN);
        let room = (self.held.part.arena.len() as u64).saturating_sub(behind);
        let request = Request {
            answer: (behind, room.min(SESSION_ANSWER_BYTES_MAX)),
            ..Request::new(Kind::Session, 0, self.number_call())
        };
        let mut message = std::mem::take(&mut self.message);
        request.encode("", hello, &mut message);
        self.push(&message)?;
        let (answer, mut data) = self.answer_to(request.id)?;
        if answer.reason.is_some() {
            return Err(refused(answer, &data));
        }
        if answer.place == ARENA {
            if answer.bytes > request.answer.1 {
                return Err(Error::Protocol);
            }
            data.clear();
            let arena = &self.held.part.arena;
            arena.append_to(behind as usize, answer.bytes as usize, &mut data);
        }
        let looked = Mutex::new((0, Instant::now()));
        let held = self.held;
        Ok((data, (answer.choice == 1).then_some(Lent { held, looked })))
    }

    /// The functions that this VM may call.
    pub fn list(&mut self) -> Result<Vec<String>, Error> {
        let (_, text) = self.administer(Request::new(Kind::List, 0, 0), "")?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Asks for a function by its name.
    pub fn request(&mut self, name: &str, want: Want) -> Result<(Function, Offer), Error> {
        let request = Request {
            choice: want as u8,
            ..Request::new(Kind::Negotiate, 0, 0)
        };
        let (answer, text) = self.administer(request, name)?;
        let implementation = Implementation::from_number(answer.choice).ok_or(Error::Protocol)?;
        if answer.handle >= HANDLES_MAX {
            return Err(Error::Protocol);
        }
        let mut lines = text.lines();
        let description = lines.next().unwrap_or_default().to_owned();
        self.flights[answer.handle as usize] = Flight::default();
        let offer = Offer {
            implementation,
            arguments: lines.map(str::to_owned).collect(),
            description,
        };
        Ok((Function(answer.handle), offer))
    }

    fn flight(&mut self, function: Function) -> Result<&mut Flight, Error> {
        let flight = self.flights.get_mut(function.0 as usize);
        flight.ok_or(Error::Misuse("there is no such function"))
    }

    /// Has it loaded.
    pub fn activate(&mut self, function: Function) -> Result<(), Error> {
        self.administer(Request::new(Kind::Activate, function.0, 0), "")?;
        Ok(())
    }

    /// Forgets the function's call and what came of it; its state is then wait. A call that is
    /// being computed is computed to its end.
    pub fn reset(&mut self, function: Function) -> Result<(), Error> {
        self.flight(function)?;
        self.administer(Request::new(Kind::Reset, function.0, 0), "")?;
        *self.flight(function)? = Flight::default();
        Ok(())
    }

    /// Gives the function back.
    pub fn release(&mut self, function: Function) -> Result<(), Error> {
        self.flight(function)?;
        self.administer(Request::new(Kind::Release, function.0, 0), "")?;
        *self.flight(function)? = Flight::default();
        Ok(())
    }

    /// How the function's call stands, as the host shows it.
    pub fn state(&self, function: Function) -> State {
        let number = self.held.part.state(function.0).load(Ordering::Acquire);
        let here = self.flights.get(function.0 as usize);
        match State::from_number(number as u8) {
            // On its way to the host.
            Some(State::Wait) if here.is_some_and(|flight| flight.id != 0) => State::Busy,
            Some(state) => state,
            None => State::Wait,
        }
    }

    /// Starts a call.
    pub fn set(&mut self, function: Function, values: &Values) -> Result<(), Error> {
        if values.arguments.len() > TEXT_BYTES_MAX {
            return Err(Error::Misuse("the arguments are longer than 8 KiB"));
        }
        if self.flight(function)?.id != 0 {
            return Err(Error::Misuse("the function's last call was not got yet"));
        }
        let id = self.number_call();
        let mut request = Request {
            choice: values.answer_codec as u8,
            body_codec: values.body_codec as u8,
            ..Request::new(Kind::Set, function.0, id)
        };
        let mut inline = values.body;
        let mut blocks = [(0, 0); 2];
        if inline.len() > INLINE_BYTES_MAX {
            let bytes = inline.len() as u64;
            let at = self.room(bytes).ok_or(Error::Misuse(
                "the body is larger than what is free of this application's arena",
            ))?;
            self.held.part.arena.copy_in(at as usize, inline);
            blocks[0] = (at, bytes);
            request.body = Some(blocks[0]);
            inline = &[];
        }
        self.flight(function)?.blocks = blocks;
        if !values.body.is_empty() {
            // Functions that are given much mostly give much.
            let (at, free) = self.largest();
            let wanted = (values.body.len() as u64).max(1 << 16);
            request.answer = (at, free.min(wanted.next_multiple_of(ALIGN)));
        }
        let flight = self.flight(function)?;
        flight.blocks[1] = request.answer;
        flight.id = id;
        flight.answer = None;
        let mut message = std::mem::take(&mut self.message);
        request.encode(values.arguments, inline, &mut message);
        let pushed = self.push(&message);
        self.message = message;
        if pushed.is_err() {
            *self.flight(function)? = Flight::default();
        }
        pushed
    }

    /// Waits for the call's end, at most so long, and appends what it gave to `to`; its codec.
    pub fn get(
        &mut self,
        function: Function,
        patience: Option<Duration>,
        to: &mut Vec<u8>,
    ) -> Result<Codec, Error> {
        let deadline = patience.map(|patience| Instant::now() + patience);
        loop {
            let flight = self.flight(function)?;
            if flight.id == 0 {
                return Err(Error::Misuse("there is no call to get: set comes first"));
            }
            if let Some(answer) = flight.answer.take() {
                let (at, bytes) = flight.blocks[1];
                flight.id = 0;
                flight.blocks = [(0, 0); 2];
                let data = std::mem::take(&mut flight.data);
                return self.take(answer?, &data, (at, bytes), to);
            }
            self.hear(deadline)?;
        }
    }

    /// Puts an answer's data together.
    fn take(
        &mut self,
        answer: Answer,
        data: &[u8],
        room: (u64, u64),
        to: &mut Vec<u8>,
    ) -> Result<Codec, Error> {
        let codec = Codec::from_number(answer.choice).ok_or(Error::Protocol)?;
        match answer.place {
            HERE if answer.bytes == data.len() as u64 => to.extend_from_slice(data),
            ARENA if answer.bytes <= room.1 => {
                let arena = &self.held.part.arena;
                arena.append_to(room.0 as usize, answer.bytes as usize, to);
            }
            KEPT => self.fetch(answer, to)?,
            _ => return Err(Error::Protocol),
        }
        Ok(codec)
    }

    /// Gets a large answer piece by piece.
    fn fetch(&mut self, answer: Answer, to: &mut Vec<u8>) -> Result<(), Error> {
        let mut from = 0;
        while from < answer.bytes {
            let (at, free) = self.largest();
            if free == 0 {
                return Err(Error::Misuse(
                    "the answer needs room in the arena, which calls on their way take",
                ));
            }
            let request = Request {
                answer: (at, free),
                from,
                ..Request::new(Kind::Fetch, answer.handle, 0)
            };
            let (piece, _) = self.administer(request, "")?;
            if piece.place != ARENA || piece.bytes == 0 || piece.bytes > free {
                return Err(Error::Protocol);
            }
            let arena = &self.held.part.arena;
            arena.append_to(at as usize, piece.bytes as usize, to);
            from += piece.bytes;
        }
        Ok(())
    }

    /// Blocks of the arena that calls on their way have, in order.
    fn taken(&self) -> Vec<(u64, u64)> {
        let flights = self.flights.iter();
        let mut taken: Vec<_> = flights.flat_map(|flight| flight.blocks).collect();
        taken.retain(|(_, bytes)| *bytes > 0);
        taken.sort_unstable();
        taken
    }

    /// The gaps between them: where, and how many bytes.
    fn gaps(&self) -> impl Iterator<Item = (u64, u64)> {
        let end = self.held.part.arena.len() as u64;
        let mut gaps = Vec::new();
        let mut at = 0;
        for (start, bytes) in self.taken() {
            gaps.push((at, start.saturating_sub(at)));
            at = (start + bytes).next_multiple_of(ALIGN);
        }
        gaps.push((at, end.saturating_sub(at)));
        gaps.into_iter()
    }

    fn room(&self, bytes: u64) -> Option<u64> {
        let mut gaps = self.gaps();
        gaps.find(|(_, free)| *free >= bytes).map(|(at, _)| at)
    }

    fn largest(&self) -> (u64, u64) {
        let largest = self.gaps().max_by_key(|(_, free)| *free);
        largest.unwrap_or_default()
    }

    fn number_call(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Asks, and waits for the answer; what else comes meanwhile is kept.
    fn administer(&mut self, mut request: Request, text: &str) -> Result<(Answer, String), Error> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(Error::Misuse("the name is longer than 8 KiB"));
        }
        request.id = self.number_call();
        let mut message = std::mem::take(&mut self.message);
        request.encode(text, &[], &mut message);
        let pushed = self.push(&message);
        self.message = message;
        pushed?;
        let (answer, data) = self.answer_to(request.id)?;
        match answer.reason {
            Some(_) => Err(refused(answer, &data)),
            None => Ok((answer, String::from_utf8_lossy(&data).into_owned())),
        }
    }

    /// The answer to an administrative request.
    fn answer_to(&mut self, id: u64) -> Result<(Answer, Vec<u8>), Error> {
        let deadline = Instant::now() + ADMINISTRATION_PATIENCE;
        loop {
            match self.next(Some(deadline)) {
                Ok((answer, data)) if answer.id == id => return Ok((answer, data)),
                Ok((answer, data)) => self.keep(answer, data),
                Err(Error::NotYet) => return Err(Error::Gone),
                Err(error) => return Err(error),
            }
        }
    }

    fn keep(&mut self, answer: Answer, data: Vec<u8>) {
        let flight = self.flights.get_mut(answer.handle as usize);
        // A call that was reset meanwhile has none.
        if let Some(flight) = flight.filter(|flight| flight.id == answer.id) {
            flight.answer = Some(match answer.reason {
                Some(_) => Err(refused(answer, &data)),
                None => Ok(answer),
            });
            flight.data = data;
        }
    }

    fn hear(&mut self, deadline: Option<Instant>) -> Result<(), Error> {
        let (answer, data) = self.next(deadline)?;
        self.keep(answer, data);
        Ok(())
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

    /// The next answer.
    fn next(&mut self, deadline: Option<Instant>) -> Result<(Answer, Vec<u8>), Error> {
        let mut since = None;
        loop {
            let mut message = std::mem::take(&mut self.answer);
            let popped = self.responses.pop(&mut message);
            let decoded = match popped {
                Ok(true) => Some(Answer::decode(&message).map(|(a, data)| (a, data.to_vec()))),
                Ok(false) => None,
                Err(_) => Some(None),
            };
            self.answer = message;
            match decoded {
                Some(Some(answer)) => return Ok(answer),
                Some(None) => {
                    self.check(Instant::now())?;
                    return Err(Error::Protocol);
                }
                None => {}
            }
            if wait::look(&self.responses, &self.spin) {
                continue;
            }
            let since = *since.get_or_insert_with(Instant::now);
            self.check(since)?;
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(Error::NotYet);
            }
            wait::sleep(&self.responses, self.held.device.bell.as_ref(), since);
        }
    }

    /// Whether the host still serves this connection, and lives.
    fn check(&mut self, since: Instant) -> Result<(), Error> {
        let region = &self.held.device.region;
        if !self.held.is_served() {
            let trouble = self.held.part.trouble().load(Ordering::Acquire);
            return Err(match Reason::from_number(trouble as u8) {
                Some(reason) => Error::Refused {
                    reason,
                    text: match reason {
                        Reason::TimedOut => "the call took longer than this VM's calls may".into(),
                        _ => "the host closed this connection: what was asked is no request".into(),
                    },
                },
                None => Error::Lost,
            });
        }
        let pulse = region.pulse().load(Ordering::Relaxed);
        let now = Instant::now();
        if pulse != self.pulse.0 || self.pulse.1 < since {
            self.pulse = (pulse, now);
        }
        match now - self.pulse.1 > PULSE_PATIENCE {
            true => Err(Error::Gone),
            false => Ok(()),
        }
    }
}

/// What a nack says.
fn refused(answer: Answer, data: &[u8]) -> Error {
    match answer.reason {
        Some(reason) => Error::Refused {
            reason,
            text: String::from_utf8_lossy(data).into_owned(),
        },
        None => Error::Protocol,
    }
}

/// The next claim of a part: an odd number.
fn fresh(claim: u32) -> u32 {
    (claim | 1).wrapping_add(if claim & 1 == 0 { 0 } else { 2 })
}

impl Held {
    /// An even claim is none: the host forgets everything. The lock ends with the file.
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

    /// Shows the host that this process lives; whether the session does. To be called more often than
    /// once a second.
    pub fn beat(&self) -> bool {
        self.held.part.beat().fetch_add(1, Ordering::Relaxed);
        if !self.held.is_served() {
            return false;
        }
        let pulse = self.held.device.region.pulse().load(Ordering::Relaxed);
        let mut looked = self.looked.lock().expect("no panic under this lock");
        if looked.0 != pulse {
            *looked = (pulse, Instant::now());
        }
        looked.1.elapsed() < PULSE_PATIENCE
    }

    /// Ends the session; its memory stays this process's until this is dropped.
    pub fn end(&self) {
        self.held.end();
    }
}
