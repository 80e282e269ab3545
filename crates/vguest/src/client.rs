//! An application's connection, and the functions that it has opened.
//!
//! The four phases: [`Client::request`] negotiates, [`Client::activate`] loads, [`Client::set`] and
//! [`Client::get`] compute, [`Client::release`] ends. A function has at most one outstanding call;
//! several functions may have one each, which the host carries out in their order.
//!
//! A connection is used by one thread at a time and has exclusive use of a part of the region: an
//! application with several threads opens several connections.

use baltra_ivshmem::link::{refused, Link};
use baltra_ivshmem::message::{
    Answer, Codec, Implementation, Kind, Preference, Request, State, ANSWER_BYTES, ARENA, HERE,
    INLINE_BYTES_MAX, KEPT, REQUEST_BYTES, TEXT_BYTES_MAX,
};
use baltra_ivshmem::region::HANDLES_MAX;
use baltra_ivshmem::wait::Guess;
use baltra_ivshmem::{Device, Error};
use std::time::{Duration, Instant};

/// Timeout of administrative requests, which may load a library or compile kernels.
const ADMINISTRATION_PATIENCE: Duration = Duration::from_secs(60);
/// Alignment of blocks in the arena.
const ALIGN: u64 = 64;

/// The host's offer for a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The implementation that will run.
    pub implementation: Implementation,
    /// Names of the inputs that go into a call's arguments, in the manifest's order.
    pub arguments: Vec<String>,
    /// The function's own description.
    pub description: String,
}

/// An opened function of this [`Client`].
#[derive(Debug, PartialEq, Eq, Clone, Copy, Hash)]
pub struct Function(u32);

impl Function {
    /// Its number, for the C interface.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The function with this number; an invalid one is refused when it is used.
    pub fn from_number(number: u32) -> Function {
        Function(number)
    }
}

/// The input of a call.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    /// `name=value&…`, as in an URL's query.
    pub arguments: &'a str,
    /// The body; empty for none.
    pub body: &'a [u8],
    /// Form of the body.
    pub body_codec: Codec,
    /// Form of the answer.
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
    /// Number of the outstanding call; 0: none.
    id: u64,
    /// Blocks of the arena: body, answer.
    blocks: [(u64, u64); 2],
    answer: Option<Answer>,
    data: Vec<u8>,
    /// The last request without a body: calls in a loop mostly repeat it.
    last_set: Vec<u8>,
    /// Expected duration of its calls, if waits were long enough to measure it.
    guess: Guess,
}

impl Flight {
    /// Whether `last_set` has these values.
    fn repeats(last_set: &[u8], values: &Values) -> bool {
        last_set
            .split_first_chunk::<REQUEST_BYTES>()
            .is_some_and(|(head, text)| {
                head[1] == values.answer_codec as u8
                    && head[2] == values.body_codec as u8
                    && text == values.arguments.as_bytes()
            })
    }

    /// Ends the call; the function's properties are kept.
    fn clear(&mut self) {
        self.id = 0;
        self.blocks = [(0, 0); 2];
        self.answer = None;
        self.data = Vec::new();
    }
}

/// A connection.
pub struct Client {
    link: Link,
    message: Vec<u8>,
    answer: Vec<u8>,
    next_id: u64,
    /// Calls by handle.
    flights: Vec<Flight>,
}

impl Client {
    /// Claims a free part of the region, or opens a stream.
    pub fn open(device: &Device) -> Result<Client, Error> {
        Ok(Client {
            link: Link::open(device)?,
            message: Vec::new(),
            answer: Vec::new(),
            next_id: 1,
            flights: (0..HANDLES_MAX).map(|_| Flight::default()).collect(),
        })
    }

    /// Index of the part of the region; without a region 0.
    pub fn part(&self) -> u32 {
        self.link.part()
    }

    /// The functions that this VM may call.
    pub fn list(&mut self) -> Result<Vec<String>, Error> {
        let (_, text) = self.administer(Request::new(Kind::List, 0, 0), "")?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Requests a function by its name.
    pub fn request(
        &mut self,
        name: &str,
        preference: Preference,
    ) -> Result<(Function, Offer), Error> {
        let request = Request {
            choice: preference as u8,
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
        flight.ok_or(Error::Misuse("the handle does not name an open function"))
    }

    /// Loads the function.
    pub fn activate(&mut self, function: Function) -> Result<(), Error> {
        self.administer(Request::new(Kind::Activate, function.0, 0), "")?;
        Ok(())
    }

    /// Drops the function's call and its result; the state is then wait. A running call continues
    /// to its end.
    pub fn reset(&mut self, function: Function) -> Result<(), Error> {
        self.flight(function)?;
        self.administer(Request::new(Kind::Reset, function.0, 0), "")?;
        *self.flight(function)? = Flight::default();
        Ok(())
    }

    /// Releases the function.
    pub fn release(&mut self, function: Function) -> Result<(), Error> {
        self.flight(function)?;
        self.administer(Request::new(Kind::Release, function.0, 0), "")?;
        *self.flight(function)? = Flight::default();
        Ok(())
    }

    /// State of the function's call, as the host shows it or, over a stream, as its answers imply.
    pub fn state(&mut self, function: Function) -> State {
        if let Link::Stream(_) = self.link {
            let now = Some(Instant::now());
            while let Ok((answer, _)) = self.link.next(now, Guess::default(), &mut self.answer) {
                self.keep(answer);
            }
        }
        let flight = self.flights.get(function.0 as usize);
        let (busy, answered) = flight.map_or((false, false), |flight| {
            (flight.id != 0, flight.answer.is_some())
        });
        let shown = match &self.link {
            Link::Rings(rings) => rings.state(function.0),
            Link::Stream(_) if answered => Some(State::Done),
            Link::Stream(_) => Some(State::Wait),
        };
        match shown {
            // The request is in transit to the host.
            Some(State::Wait) if busy => State::Busy,
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
            return Err(Error::Misuse(
                "the result of the function's last call has not been read (call get first)",
            ));
        }
        let id = self.number_call();
        let flight = &mut self.flights[function.0 as usize];
        if values.body.is_empty() {
            let mut last_set = std::mem::take(&mut flight.last_set);
            if Flight::repeats(&last_set, values) {
                last_set[8..16].copy_from_slice(&id.to_le_bytes());
            } else {
                let request = Request {
                    choice: values.answer_codec as u8,
                    body_codec: values.body_codec as u8,
                    ..Request::new(Kind::Set, function.0, id)
                };
                request.encode(values.arguments, &[], &mut last_set);
            }
            flight.id = id;
            let pushed = self.link.push(&last_set, None);
            let flight = &mut self.flights[function.0 as usize];
            flight.last_set = last_set;
            if pushed.is_err() {
                flight.clear();
            }
            return pushed;
        }
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
                "the body does not fit into the free part of this application's arena",
            ))?;
            self.link.arena().copy_in(at as usize, inline);
            blocks[0] = (at, bytes);
            request.body = Some(blocks[0]);
            inline = &[];
        }
        self.flight(function)?.blocks = blocks;
        // Functions with large inputs mostly have large outputs.
        let (at, free) = self.largest();
        let wanted = (values.body.len() as u64).max(1 << 16);
        request.answer = (at, free.min(wanted.next_multiple_of(ALIGN)));
        let flight = self.flight(function)?;
        flight.blocks[1] = request.answer;
        flight.id = id;
        flight.answer = None;
        let mut message = std::mem::take(&mut self.message);
        request.encode(values.arguments, inline, &mut message);
        let pushed = self.link.push(&message, request.body);
        self.message = message;
        if pushed.is_err() {
            self.flight(function)?.clear();
        }
        pushed
    }

    /// Waits at most `patience` for the call's end and appends its result to `to`; returns the
    /// result's codec.
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
                return Err(Error::Misuse(
                    "there is no call whose result could be read (call set first)",
                ));
            }
            if let Some(answer) = flight.answer {
                let room = flight.blocks[1];
                let data = std::mem::take(&mut flight.data);
                flight.clear();
                return self.take(answer, &data, room, to);
            }
            let (id, guess) = (flight.id, flight.guess);
            let (answer, waited) = self.link.next(deadline, guess, &mut self.answer)?;
            let flight = &mut self.flights[function.0 as usize];
            if answer.id != id || answer.handle != function.0 {
                self.keep(answer);
                continue;
            }
            match waited {
                Some(waited) => flight.guess.learn(waited),
                None => flight.guess = Guess::default(),
            }
            let room = flight.blocks[1];
            flight.id = 0;
            flight.blocks = [(0, 0); 2];
            let message = std::mem::take(&mut self.answer);
            let taken = self.take(answer, &message[ANSWER_BYTES..], room, to);
            self.answer = message;
            return taken;
        }
    }

    /// Assembles an answer's data.
    fn take(
        &mut self,
        answer: Answer,
        data: &[u8],
        room: (u64, u64),
        to: &mut Vec<u8>,
    ) -> Result<Codec, Error> {
        if answer.reason.is_some() {
            return Err(refused(answer, data));
        }
        let codec = Codec::from_number(answer.choice).ok_or(Error::Protocol)?;
        match answer.place {
            HERE if answer.bytes == data.len() as u64 => to.extend_from_slice(data),
            ARENA if answer.bytes <= room.1 => {
                let arena = self.link.arena();
                arena.append_to(room.0 as usize, answer.bytes as usize, to);
            }
            KEPT => self.fetch(answer, to)?,
            _ => return Err(Error::Protocol),
        }
        Ok(codec)
    }

    /// Fetches a large answer in pieces.
    fn fetch(&mut self, answer: Answer, to: &mut Vec<u8>) -> Result<(), Error> {
        let mut from = 0;
        while from < answer.bytes {
            let (at, free) = self.largest();
            if free == 0 {
                return Err(Error::Misuse(
                    "the result does not fit into the arena until outstanding calls have ended",
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
            let arena = self.link.arena();
            arena.append_to(at as usize, piece.bytes as usize, to);
            from += piece.bytes;
        }
        Ok(())
    }

    /// Blocks of the arena that outstanding calls use, in order.
    fn taken(&self) -> Vec<(u64, u64)> {
        let flights = self.flights.iter();
        let mut taken: Vec<_> = flights.flat_map(|flight| flight.blocks).collect();
        taken.retain(|(_, bytes)| *bytes > 0);
        taken.sort_unstable();
        taken
    }

    /// The free blocks of the arena: offset and size.
    fn gaps(&self) -> impl Iterator<Item = (u64, u64)> {
        let end = self.link.arena().len() as u64;
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

    /// Sends a request and waits for the answer; other messages received meanwhile are kept.
    fn administer(&mut self, mut request: Request, text: &str) -> Result<(Answer, String), Error> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(Error::Misuse("the name is longer than 8 KiB"));
        }
        request.id = self.number_call();
        let mut message = std::mem::take(&mut self.message);
        request.encode(text, &[], &mut message);
        let pushed = self.link.push(&message, None);
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
            match self
                .link
                .next(Some(deadline), Guess::default(), &mut self.answer)
            {
                Ok((answer, _)) if answer.id == id => {
                    return Ok((answer, self.answer[ANSWER_BYTES..].to_vec()));
                }
                Ok((answer, _)) => self.keep(answer),
                Err(Error::NotYet) => return Err(Error::Gone),
                Err(error) => return Err(error),
            }
        }
    }

    /// Stores an answer for its call.
    fn keep(&mut self, answer: Answer) {
        let flight = self.flights.get_mut(answer.handle as usize);
        // A call that was reset meanwhile has no flight.
        if let Some(flight) = flight.filter(|flight| flight.id == answer.id) {
            flight.answer = Some(answer);
            flight.data = self.answer[ANSWER_BYTES..].to_vec();
        }
    }
}
