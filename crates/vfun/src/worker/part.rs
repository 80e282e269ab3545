//! One application: its rings and its handles. Messages are copied, then checked, then used.

use super::bridge::Bridged;
use super::functions::{Loaded, Runner};
use super::native::{Again, Room};
use super::{Link, Refusal, Shared};
use anyhow::Result;
use baltra_functions::{Body, Call, Request as HttpRequest};
use baltra_ivshmem::device::Bell;
use baltra_ivshmem::message::{
    Answer, Codec, Implementation, Kind, Preference, Reason, Request, State, ANSWER_BYTES, ARENA,
    HERE, INLINE_BYTES_MAX, KEPT, MESSAGE_BYTES_MAX, REQUEST_BYTES,
};
use baltra_ivshmem::region::Part;
use baltra_ivshmem::stream::{Pipe, Received};
use baltra_ivshmem::wait::{self, Guess, Waiter};
use baltra_ring::{Consumer, Producer, RING_HEADER_BYTES};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A pause while the application reads answers from a full ring.
const PAUSE: Duration = Duration::from_micros(50);

/// Maximum wait on a stream before other conditions are checked.
const STREAM_TURN: Duration = Duration::from_millis(200);

/// A function that the application has opened.
struct Handle {
    name: String,
    implementation: Implementation,
    loaded: Option<Arc<Loaded>>,
    method: Method,
    /// The last answer, if it was too large to be sent in one piece.
    kept: Vec<Bytes>,
    /// The last arguments without a body, and the resulting call: calls in a loop mostly repeat
    /// their arguments.
    bound: Option<(String, Call)>,
    /// Whether the arguments were repeated.
    twice: bool,
    /// A prepared request that was repeated.
    again: Option<Box<RepeatedRequest>>,
}

/// A repeated request, its prepared call, and the answer with space for the outputs.
struct RepeatedRequest {
    request: Vec<u8>,
    again: Again,
    answer: Vec<u8>,
    /// Keeps the memory that the call uses.
    _loaded: Arc<Loaded>,
}

/// Whether two requests are equal except for their numbers.
fn alike(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one[..8] == other[..8] && one[16..] == other[16..]
}

/// The connection to an application.
enum Transport {
    /// Through the part's rings.
    Rings {
        requests: Consumer,
        answers: Producer,
        waiter: Waiter,
        /// The doorbell that the application rings.
        bell: Option<Arc<Bell>>,
        /// The application's doorbell.
        rings: Option<Arc<OwnedFd>>,
    },
    /// Through a stream; the part is memory of this process.
    Stream(Box<Pipe>),
}

/// An application.
pub(crate) struct Session {
    shared: Arc<Shared>,
    number: u32,
    part: Part,
    link: Arc<Link>,
    began: Instant,
    /// The doorbell that the application rings, for an executor.
    rung: Option<OwnedFd>,
    /// The OpenCL session whose memory the part is.
    bridged: Option<Bridged>,
    transport: Transport,
    handles: Vec<Option<Handle>>,
    room: Room,
    answer: Vec<u8>,
}

/// The content type to request for a codec.
fn accepted(codec: Codec) -> Option<&'static str> {
    (codec != Codec::Default).then(|| codec.content_type())
}

fn refused<T>(reason: Reason, text: impl Into<String>) -> Result<T, Refusal> {
    Err((reason, text.into()))
}

impl Session {
    /// Clears the part for an application that claims it.
    pub fn new(
        shared: Arc<Shared>,
        (number, part): (u32, &Part),
        link: Arc<Link>,
        began: Instant,
        (bell, rung, rings): (Option<Arc<Bell>>, Option<OwnedFd>, Option<Arc<OwnedFd>>),
    ) -> Result<Session> {
        for ring in [&part.requests, &part.responses] {
            let header = ring.slice(0, RING_HEADER_BYTES as u64);
            header.expect("a ring has a header").zero();
        }
        let transport = Transport::Rings {
            requests: Consumer::new(part.requests.clone())?.limit_messages(MESSAGE_BYTES_MAX),
            answers: Producer::new(part.responses.clone())?,
            waiter: Waiter::default(),
            bell,
            rings,
        };
        let mut session = Session::over(shared, number, part.clone(), link, began, transport);
        session.rung = rung;
        Ok(session)
    }

    /// For successive applications over a stream.
    pub fn streamed(
        shared: Arc<Shared>,
        part: Part,
        link: Arc<Link>,
        began: Instant,
        pipe: Pipe,
    ) -> Session {
        Session::over(
            shared,
            0,
            part,
            link,
            began,
            Transport::Stream(Box::new(pipe)),
        )
    }

    fn over(
        shared: Arc<Shared>,
        number: u32,
        part: Part,
        link: Arc<Link>,
        began: Instant,
        transport: Transport,
    ) -> Session {
        let mut session = Session {
            handles: Vec::new(),
            number,
            part,
            bridged: None,
            rung: None,
            transport,
            room: Room::default(),
            answer: Vec::new(),
            shared,
            link,
            began,
        };
        session.forget();
        session
    }

    /// Releases everything that the application has opened.
    fn forget(&mut self) {
        let handles = self.shared.definition.handles_max;
        for handle in 0..handles {
            self.show(handle, State::Wait);
        }
        self.handles = (0..handles).map(|_| None).collect();
    }

    fn stopped(&self) -> bool {
        self.link.stop.load(Ordering::Relaxed)
    }

    /// Serves until the application or the stream has ended, or violates the protocol.
    pub fn run(mut self) {
        match self.transport {
            Transport::Rings { .. } => self.run_rings(),
            Transport::Stream(_) => self.run_stream(),
        }
    }

    fn run_rings(&mut self) {
        let mut message = Vec::new();
        let mut since = None;
        while !self.stopped() {
            let Transport::Rings {
                requests,
                waiter,
                bell,
                ..
            } = &mut self.transport
            else {
                return;
            };
            let stop = || self.link.stop.load(Ordering::Relaxed);
            match requests.pop_unless(&mut message, stop) {
                Ok(true) => {
                    since = None;
                    if self.carry_out(&message).is_none() {
                        return self.broken();
                    }
                    if let Some(bridged) = self.bridged.take() {
                        bridged.watch(&self.part, || self.stopped());
                        drop(bridged);
                        return self.shared.bridge.wait_until_free(self.number);
                    }
                }
                Ok(false) => {
                    let unknown = Guess::default();
                    if wait::looks(requests) || waiter.look(requests, unknown) {
                        continue;
                    }
                    let since = *since.get_or_insert_with(Instant::now);
                    waiter.sleep(requests, bell.as_deref(), since, unknown);
                }
                Err(_) => return self.broken(),
            }
        }
    }

    fn run_stream(&mut self) {
        while !self.stopped() {
            let Transport::Stream(pipe) = &mut self.transport else {
                return;
            };
            let greeted = &self.link.greeted;
            match pipe.receive() {
                Ok(Some(Received::Hello(number))) => {
                    if pipe.welcome(number).is_err() {
                        return;
                    }
                    greeted.store(true, Ordering::Relaxed);
                    self.forget();
                }
                Ok(Some(Received::Frame(frame))) if greeted.load(Ordering::Relaxed) => {
                    let block = self.part.arena.slice(frame.at, frame.rest.len() as u64);
                    if let Some(block) = &block {
                        block.copy_in(0, &frame.rest);
                    }
                    if block.and_then(|_| self.carry_out(&frame.message)).is_none() {
                        if self.link.is_abandoned() {
                            return;
                        }
                        self.broken();
                    }
                }
                // From an application that is no longer served, or before its hello.
                Ok(Some(Received::Frame(_) | Received::Trouble(_))) => {}
                Ok(Some(Received::Garbage)) if greeted.load(Ordering::Relaxed) => self.broken(),
                Ok(Some(Received::Garbage)) => {}
                Ok(None) => pipe.wait(STREAM_TURN),
                Err(_) => return,
            }
        }
    }

    /// Ends a connection that has lost synchronization.
    fn broken(&mut self) {
        if self.stopped() || self.link.is_abandoned() {
            return;
        }
        self.shared.broken.fetch_add(1, Ordering::Relaxed);
        let reason = Reason::Protocol as u8;
        match &mut self.transport {
            Transport::Rings { .. } => self.part.trouble().store(reason.into(), Ordering::Release),
            Transport::Stream(pipe) => {
                self.link.greeted.store(false, Ordering::Relaxed);
                // A stream that cannot be written to has ended.
                let _ = pipe.trouble(reason);
                self.forget();
            }
        }
    }

    /// Executes a request and sends its answer; `None`: the request is malformed, or the answer
    /// cannot be sent.
    fn carry_out(&mut self, message: &[u8]) -> Option<()> {
        let mut again = None;
        if let Some(repeated) = self.take_again(message) {
            match self.call_again(repeated, message) {
                Ok(pushed) => return pushed,
                Err(refusal) => again = Some(refusal),
            }
        }
        let (request, text, body) = Request::decode(message)?;
        let done = match request.kind {
            Kind::Set if again.is_some() => Err(again.expect("looked at just now")),
            Kind::List => Ok((
                Answer::ack(&request, 0),
                self.shared.functions.names().into(),
            )),
            Kind::Negotiate => self.negotiate(&request, text),
            Kind::Activate => self.activate(&request),
            Kind::Set => self.set(&request, text, body),
            Kind::Fetch => self.fetch(&request),
            Kind::Reset => self.reset(&request),
            Kind::Release => self.release(&request),
            Kind::Session => self.session(&request, body),
        };
        if self.link.is_abandoned() {
            return None;
        }
        let (mut answer, data) = match done {
            Ok(done) => done,
            Err((reason, mut text)) => {
                self.shared.refused.fetch_add(1, Ordering::Relaxed);
                let mut cut = text.len().min(INLINE_BYTES_MAX);
                while !text.is_char_boundary(cut) {
                    cut -= 1;
                }
                text.truncate(cut);
                let nack = Answer {
                    reason: Some(reason),
                    ..Answer::ack(&request, text.len())
                };
                (nack, Bytes::from(text))
            }
        };
        if answer.place == HERE {
            answer.bytes = data.len() as u64;
        }
        let mut out = std::mem::take(&mut self.answer);
        answer.encode(&data, &mut out);
        let pushed = self.push(&out, request.answer.0);
        if request.kind == Kind::Set && answer.reason.is_none() && answer.place == HERE {
            self.prepare_again(&request, message, &out);
        }
        self.answer = out;
        pushed
    }

    /// Takes the prepared call of a repeated request.
    fn take_again(&mut self, message: &[u8]) -> Option<Box<RepeatedRequest>> {
        let head: &[u8; REQUEST_BYTES] = message.first_chunk()?;
        let number = u32::from_le_bytes(head[4..8].try_into().expect("four"));
        let handle = self.handles.get_mut(number as usize)?.as_mut()?;
        let known = handle.again.as_ref();
        let same = known.is_some_and(|repeated| alike(&repeated.request, message));
        if !same {
            return None;
        }
        handle.kept.clear();
        handle.again.take()
    }

    /// Runs a prepared call and sends its answer.
    fn call_again(
        &mut self,
        mut repeated: Box<RepeatedRequest>,
        message: &[u8],
    ) -> Result<Option<()>, Refusal> {
        let number = u32::from_le_bytes(message[4..8].try_into().expect("four"));
        let (head, data) = repeated.answer.split_at_mut(ANSWER_BYTES);
        head[8..16].copy_from_slice(&message[8..16]);
        self.computing(number, |_| repeated.again.call(data))?;
        let moved = data.len() as u64;
        self.shared.bytes.fetch_add(moved, Ordering::Relaxed);
        let pushed = self.push(&repeated.answer, 0);
        if let Some(handle) = self
            .handles
            .get_mut(number as usize)
            .and_then(Option::as_mut)
        {
            handle.again = Some(repeated);
        }
        Ok(pushed)
    }

    /// Prepares a repeated request, with its call and the form of its answer.
    fn prepare_again(&mut self, request: &Request, message: &[u8], answer: &[u8]) {
        let Ok(handle) = self.handle(request) else {
            return;
        };
        let (Some(loaded), Some((_, call)), true) = (&handle.loaded, &handle.bound, handle.twice)
        else {
            return;
        };
        let accept = Codec::from_number(request.choice).and_then(accepted);
        let (Runner::Native(native), Some(outputs)) =
            (&loaded.runner, loaded.function.plain_answer(accept))
        else {
            return;
        };
        if let Some(again) = native.again(call, &outputs) {
            handle.again = Some(Box::new(RepeatedRequest {
                request: message.to_vec(),
                again,
                answer: answer.to_vec(),
                _loaded: loaded.clone(),
            }));
        }
    }

    /// Sends an answer; `at`: the offset of its data in the arena, if they are there.
    fn push(&mut self, answer: &[u8], at: u64) -> Option<()> {
        debug_assert!(answer.len() >= ANSWER_BYTES && answer.len() <= MESSAGE_BYTES_MAX);
        let (answers, rings) = match &mut self.transport {
            Transport::Rings { answers, rings, .. } => (answers, rings),
            Transport::Stream(pipe) => {
                let (head, _) = Answer::decode(answer)?;
                let bytes = if head.place == ARENA { head.bytes } else { 0 };
                let mut rest = Vec::new();
                let block = self.part.arena.slice(at, bytes)?;
                block.append_to(0, block.len(), &mut rest);
                return pipe.send(answer, at, &rest).ok();
            }
        };
        while answers.try_push(answer).is_err() {
            if self.link.stop.load(Ordering::Relaxed) {
                return None;
            }
            std::thread::sleep(PAUSE);
        }
        if answers.show() {
            if let Some(rings) = rings {
                // A full eventfd has pending rings already.
                let _ = rustix::io::write(rings, &1u64.to_ne_bytes());
            }
        }
        Some(())
    }

    fn handle(&mut self, request: &Request) -> Result<&mut Handle, Refusal> {
        let handle = self.handles.get_mut(request.handle as usize);
        match handle.and_then(Option::as_mut) {
            Some(handle) => Ok(handle),
            None => refused(
                Reason::NotActive,
                "the handle does not name an open function",
            ),
        }
    }

    fn show(&self, handle: u32, state: State) {
        let at = self.part.state(handle);
        at.store(state as u32, Ordering::Release);
    }

    fn negotiate(&mut self, request: &Request, name: &str) -> Result<(Answer, Bytes), Refusal> {
        let Some(preference) = Preference::from_number(request.choice) else {
            return refused(
                Reason::Protocol,
                "invalid choice of implementation: expected hardware, software or any",
            );
        };
        let Some(free) = self.handles.iter().position(Option::is_none) else {
            let text = format!(
                "the application has reached its limit of {} open functions",
                self.handles.len()
            );
            return refused(Reason::Quota, text);
        };
        let (implementation, text) = self.shared.functions.negotiate(name, preference)?;
        self.handles[free] = Some(Handle {
            name: name.to_owned(),
            implementation,
            loaded: None,
            method: Method::POST,
            kept: Vec::new(),
            bound: None,
            twice: false,
            again: None,
        });
        let answer = Answer {
            choice: implementation as u8,
            handle: free as u32,
            ..Answer::ack(request, 0)
        };
        Ok((answer, text.into()))
    }

    fn activate(&mut self, request: &Request) -> Result<(Answer, Bytes), Refusal> {
        let shared = self.shared.clone();
        let handle = self.handle(request)?;
        let loaded = shared.functions.load(&handle.name, handle.implementation)?;
        let methods = &loaded.function.manifest.methods;
        let method = methods.first().and_then(|method| method.parse().ok());
        handle.method = method.unwrap_or(Method::POST);
        handle.bound = None;
        handle.again = None;
        handle.loaded = Some(loaded);
        self.show(request.handle, State::Wait);
        Ok((Answer::ack(request, 0), Bytes::new()))
    }

    fn set(
        &mut self,
        request: &Request,
        arguments: &str,
        inline: &[u8],
    ) -> Result<(Answer, Bytes), Refusal> {
        let handle = self.handle(request)?;
        handle.kept.clear();
        let Some(loaded) = handle.loaded.clone() else {
            return refused(Reason::NotActive, "the function is not active yet");
        };
        let method = handle.method.clone();
        self.computing(request.handle, |session| {
            session.compute(request, &loaded, &method, arguments, inline)
        })
    }

    /// Runs a call within the VM's limits, and accounts for it.
    fn computing<T>(
        &mut self,
        handle: u32,
        compute: impl FnOnce(&mut Session) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let shared = self.shared.clone();
        let Some(_running) = shared.enter() else {
            let text = format!(
                "{} calls of this VM are running, its limit",
                shared.definition.calls_max
            );
            return refused(Reason::Quota, text);
        };
        self.show(handle, State::Busy);
        let started = Instant::now();
        self.link.begin((started - self.began).as_nanos() as u64);
        let done = compute(self);
        if !self.link.finish() {
            // The part may belong to another application by now.
            return refused(
                Reason::TimedOut,
                "the application no longer waits for this call",
            );
        }
        let took = started.elapsed().as_nanos() as u64;
        shared.busy_ns.fetch_add(took, Ordering::Relaxed);
        shared.calls.fetch_add(1, Ordering::Relaxed);
        self.show(handle, State::Done);
        done
    }

    fn compute(
        &mut self,
        request: &Request,
        loaded: &Loaded,
        method: &Method,
        arguments: &str,
        inline: &[u8],
    ) -> Result<(Answer, Bytes), Refusal> {
        let (Some(body_codec), Some(answer_codec)) = (
            Codec::from_number(request.body_codec),
            Codec::from_number(request.choice),
        ) else {
            return refused(Reason::Protocol, "unknown codec");
        };
        let body = self.body(request, inline)?;
        let bytes = body.len() as u64;
        let wrong = |error: baltra_functions::BindError| (Reason::BadArguments, error.to_string());
        let function = &loaded.function;
        let bound = self.handle(request)?.bound.take();
        let bound = bound.filter(|(last, _)| body.is_empty() && last == arguments);
        let twice = bound.is_some();
        let (arguments, call) = match bound {
            Some(bound) => bound,
            None => {
                let mut headers = HeaderMap::new();
                if !body.is_empty() && body_codec != Codec::Default {
                    let is = HeaderValue::from_static(body_codec.content_type());
                    headers.insert(CONTENT_TYPE, is);
                }
                let request = HttpRequest {
                    method,
                    path: "",
                    query: arguments,
                    headers: &headers,
                };
                let call = function.bind(&request, Body::from(body)).map_err(wrong)?;
                (arguments.to_owned(), call)
            }
        };
        let outputs = match &loaded.runner {
            Runner::Native(native) => native.call(&call, &mut self.room)?,
            Runner::Hardware => {
                let Some(hardware) = self.shared.functions.hardware() else {
                    return refused(Reason::NoHardware, "no accelerator is available");
                };
                hardware.call(function, call.clone())?
            }
        };
        if !self.link.finish() {
            return refused(
                Reason::TimedOut,
                "the application no longer waits for this call",
            );
        }
        let answered = function.answer(&call, outputs, accepted(answer_codec));
        let answered = answered.map_err(wrong)?;
        let given = answered.body.len();
        if bytes == 0 {
            let handle = self.handle(request)?;
            handle.bound = Some((arguments, call));
            handle.twice = twice;
        }
        let moved = bytes + given;
        self.shared.bytes.fetch_add(moved, Ordering::Relaxed);
        let answer = Answer {
            choice: Codec::of(answered.content_type) as u8,
            ..Answer::ack(request, given as usize)
        };
        self.place(request, answer, answered.body)
    }

    /// A private copy of a call's body, which is in the message or in the arena.
    fn body(&self, request: &Request, inline: &[u8]) -> Result<Vec<u8>, Refusal> {
        let mut body = Vec::new();
        let Some((at, bytes)) = request.body else {
            body.extend_from_slice(inline);
            return Ok(body);
        };
        let limit = self.shared.definition.call_bytes_max;
        if bytes > limit {
            let text = format!("the body has {bytes} bytes (at most {limit} allowed for this VM)");
            return refused(Reason::Quota, text);
        }
        let Some(block) = self.part.arena.slice(at, bytes) else {
            return refused(Reason::Protocol, "the body is outside the arena");
        };
        block.append_to(0, block.len(), &mut body);
        Ok(body)
    }

    /// Places an answer's body in the message, in the arena if the request has enough room there,
    /// or keeps it for `fetch`.
    fn place(
        &mut self,
        request: &Request,
        mut answer: Answer,
        body: Body,
    ) -> Result<(Answer, Bytes), Refusal> {
        let given = body.len();
        if given <= INLINE_BYTES_MAX as u64 {
            return Ok((answer, body.to_bytes()));
        }
        let (at, room) = request.answer;
        let target = if given <= room {
            self.part.arena.slice(at, given)
        } else {
            None
        };
        match target {
            Some(target) => {
                let mut at = 0;
                for frame in &body.0 {
                    target.copy_in(at, frame);
                    at += frame.len();
                }
                answer.place = ARENA;
            }
            None => {
                self.handle(request)?.kept = body.0;
                answer.place = KEPT;
            }
        }
        Ok((answer, Bytes::new()))
    }

    /// Returns a piece of a kept answer.
    fn fetch(&mut self, request: &Request) -> Result<(Answer, Bytes), Refusal> {
        let arena = self.part.arena.clone();
        let handle = self.handle(request)?;
        let kept = Body(handle.kept.clone());
        let (at, room) = request.answer;
        let piece = kept.slice(request.from, room);
        let Some(target) = arena.slice(at, piece.len()).filter(|_| !piece.is_empty()) else {
            return refused(
                Reason::Protocol,
                "there is no result to fetch, or the buffer is too small for it",
            );
        };
        let mut at = 0;
        for frame in &piece.0 {
            target.copy_in(at, frame);
            at += frame.len();
        }
        if request.from + piece.len() >= kept.len() {
            handle.kept.clear();
        }
        let answer = Answer {
            place: ARENA,
            bytes: piece.len(),
            ..Answer::ack(request, 0)
        };
        Ok((answer, Bytes::new()))
    }

    fn session(&mut self, request: &Request, hello: &[u8]) -> Result<(Answer, Bytes), Refusal> {
        if let Transport::Stream(_) = self.transport {
            let text = "OpenCL over the VM door needs an ivshmem device";
            return refused(Reason::Unavailable, text);
        }
        let shared = self.shared.clone();
        let (definition, bell) = (&shared.definition, self.rung.as_ref());
        let opened = shared
            .bridge
            .open(definition, hello, &self.part, self.number, bell);
        let (framed, bridged) = opened?;
        let mut answer = Answer {
            choice: u8::from(bridged.is_some()),
            ..Answer::ack(request, framed.len())
        };
        self.bridged = bridged;
        if framed.len() <= INLINE_BYTES_MAX {
            return Ok((answer, framed.into()));
        }
        let (at, room) = request.answer;
        let target = self.part.arena.slice(at, framed.len() as u64);
        let Some(target) = target.filter(|_| framed.len() as u64 <= room) else {
            self.bridged = None;
            return refused(
                Reason::Quota,
                "the buffer is too small for the devices' descriptions",
            );
        };
        target.copy_in(0, &framed);
        answer.place = ARENA;
        Ok((answer, Bytes::new()))
    }

    fn reset(&mut self, request: &Request) -> Result<(Answer, Bytes), Refusal> {
        self.handle(request)?.kept.clear();
        self.show(request.handle, State::Wait);
        Ok((Answer::ack(request, 0), Bytes::new()))
    }

    fn release(&mut self, request: &Request) -> Result<(Answer, Bytes), Refusal> {
        self.handle(request)?;
        self.handles[request.handle as usize] = None;
        self.show(request.handle, State::Wait);
        Ok((Answer::ack(request, 0), Bytes::new()))
    }
}
