//! One application: its rings, its handles. Everything that it says is copied, checked, and then
//! used.

use super::bridge::Bridged;
use super::functions::{Loaded, Refusal, Runner};
use super::native::Room;
use super::{Link, Shared};
use anyhow::Result;
use baltra_functions::{Body, Call, Request as Asked};
use baltra_ring::{Consumer, Producer, Spin, RING_HEADER_BYTES};
use baltra_vguest::device::Bell;
use baltra_vguest::message::{
    Answer, Codec, Implementation, Kind, Reason, Request, State, Want, ANSWER_BYTES, ARENA, HERE,
    INLINE_BYTES_MAX, KEPT, MESSAGE_BYTES_MAX,
};
use baltra_vguest::region::Part;
use baltra_vguest::wait;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A pause while the application takes its answers off a full ring.
const PAUSE: Duration = Duration::from_micros(50);

/// A function that the application asked for.
struct Handle {
    name: String,
    implementation: Implementation,
    loaded: Option<Arc<Loaded>>,
    method: Method,
    /// The last answer, where it was too large to be handed over at once.
    kept: Vec<Bytes>,
    /// The last arguments that came without a body, and the call that they make: calls in a loop are
    /// mostly alike.
    bound: Option<(String, Call)>,
}

/// An application.
pub(crate) struct Session {
    shared: Arc<Shared>,
    number: u32,
    part: Part,
    link: Arc<Link>,
    began: Instant,
    /// Rung by the application.
    bell: Option<Arc<Bell>>,
    /// The same, for an executor.
    rung: Option<OwnedFd>,
    /// The part is an OpenCL session's memory.
    bridged: Option<Bridged>,
    /// Rings the application.
    rings: Option<Arc<OwnedFd>>,
    requests: Consumer,
    answers: Producer,
    spin: Spin,
    handles: Vec<Option<Handle>>,
    room: Room,
    answer: Vec<u8>,
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
        let handles = shared.definition.handles_max;
        for handle in 0..handles {
            let state = part.state(handle);
            state.store(State::Wait as u32, Ordering::Relaxed);
        }
        Ok(Session {
            requests: Consumer::new(part.requests.clone())?.limit_messages(MESSAGE_BYTES_MAX),
            answers: Producer::new(part.responses.clone())?,
            handles: (0..handles).map(|_| None).collect(),
            number,
            part: part.clone(),
            bridged: None,
            rung,
            spin: Spin::default(),
            room: Room::default(),
            answer: Vec::new(),
            shared,
            link,
            began,
            bell,
            rings,
        })
    }

    fn stopped(&self) -> bool {
        self.link.stop.load(Ordering::Relaxed)
    }

    /// Serves until the application is gone or breaks the protocol.
    pub fn run(mut self) {
        let mut message = Vec::new();
        let mut since = None;
        while !self.stopped() {
            let stop = || self.link.stop.load(Ordering::Relaxed);
            match self.requests.pop_unless(&mut message, stop) {
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
                    if wait::look(&self.requests, &self.spin) {
                        continue;
                    }
                    let since = *since.get_or_insert_with(Instant::now);
                    wait::sleep(&self.requests, self.bell.as_deref(), since);
                }
                Err(_) => return self.broken(),
            }
        }
    }

    /// Nothing in the rings can be trusted to be in step any more.
    fn broken(&self) {
        if !self.stopped() && !self.link.is_abandoned() {
            self.shared.broken.fetch_add(1, Ordering::Relaxed);
            let trouble = self.part.trouble();
            trouble.store(Reason::Protocol as u32, Ordering::Release);
        }
    }

    /// Carries a request out and answers it; `None`: it is none, or nobody takes the answer.
    fn carry_out(&mut self, message: &[u8]) -> Option<()> {
        let (request, text, body) = Request::decode(message)?;
        let done = match request.kind {
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
        let pushed = self.push(&out);
        self.answer = out;
        pushed
    }

    fn push(&mut self, answer: &[u8]) -> Option<()> {
        debug_assert!(answer.len() >= ANSWER_BYTES && answer.len() <= MESSAGE_BYTES_MAX);
        while self.answers.try_push(answer).is_err() {
            if self.stopped() {
                return None;
            }
            std::thread::sleep(PAUSE);
        }
        if self.answers.show() {
            if let Some(rings) = &self.rings {
                // Full: it has been rung often enough.
                let _ = rustix::io::write(rings, &1u64.to_ne_bytes());
            }
        }
        Some(())
    }

    fn handle(&mut self, request: &Request) -> Result<&mut Handle, Refusal> {
        let handle = self.handles.get_mut(request.handle as usize);
        match handle.and_then(Option::as_mut) {
            Some(handle) => Ok(handle),
            None => refused(Reason::NotActive, "there is no such function"),
        }
    }

    fn show(&self, request: &Request, state: State) {
        let at = self.part.state(request.handle);
        at.store(state as u32, Ordering::Release);
    }

    fn negotiate(&mut self, request: &Request, name: &str) -> Result<(Answer, Bytes), Refusal> {
        let Some(want) = Want::from_number(request.choice) else {
            return refused(Reason::Protocol, "hardware, software or any?");
        };
        let Some(free) = self.handles.iter().position(Option::is_none) else {
            let text = format!("an application may hold {} functions", self.handles.len());
            return refused(Reason::Quota, text);
        };
        let (implementation, text) = self.shared.functions.negotiate(name, want)?;
        self.handles[free] = Some(Handle {
            name: name.to_owned(),
            implementation,
            loaded: None,
            method: Method::POST,
            kept: Vec::new(),
            bound: None,
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
        handle.loaded = Some(loaded);
        self.show(request, State::Wait);
        Ok((Answer::ack(request, 0), Bytes::new()))
    }

    fn set(
        &mut self,
        request: &Request,
        arguments: &str,
        inline: &[u8],
    ) -> Result<(Answer, Bytes), Refusal> {
        let shared = self.shared.clone();
        let handle = self.handle(request)?;
        handle.kept.clear();
        let Some(loaded) = handle.loaded.clone() else {
            return refused(Reason::NotActive, "the function is not active yet");
        };
        let method = handle.method.clone();
        let Some(_running) = shared.enter() else {
            let text = format!(
                "{} calls of this VM are running: as many as may",
                shared.definition.calls_max
            );
            return refused(Reason::Quota, text);
        };
        self.show(request, State::Busy);
        let started = Instant::now();
        self.link.begin((started - self.began).as_nanos() as u64);
        let done = self.compute(request, &loaded, &method, arguments, inline);
        if !self.link.finish() {
            // The part may be another application's by now.
            return refused(Reason::TimedOut, "it is not waited for any more");
        }
        let took = started.elapsed().as_nanos() as u64;
        shared.busy_ns.fetch_add(took, Ordering::Relaxed);
        shared.calls.fetch_add(1, Ordering::Relaxed);
        self.show(request, State::Done);
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
            return refused(Reason::Protocol, "there is no such codec");
        };
        let mut body = Vec::new();
        match request.body {
            None => body.extend_from_slice(inline),
            Some((at, bytes)) => {
                let limit = self.shared.definition.call_bytes_max;
                if bytes > limit {
                    let text = format!("a call of this VM may take {limit} bytes");
                    return refused(Reason::Quota, text);
                }
                let Some(block) = self.part.arena.slice(at, bytes) else {
                    return refused(Reason::Protocol, "the body lies outside of the arena");
                };
                block.append_to(0, block.len(), &mut body);
            }
        }
        let bytes = body.len() as u64;
        let wrong = |error: baltra_functions::BindError| (Reason::BadArguments, error.to_string());
        let function = &loaded.function;
        let bound = self.handle(request)?.bound.take();
        let bound = bound.filter(|(last, _)| body.is_empty() && last == arguments);
        let (arguments, call) = match bound {
            Some(bound) => bound,
            None => {
                let mut headers = HeaderMap::new();
                if !body.is_empty() && body_codec != Codec::Default {
                    let is = HeaderValue::from_static(body_codec.content_type());
                    headers.insert(CONTENT_TYPE, is);
                }
                let asked = Asked {
                    method,
                    path: "",
                    query: arguments,
                    headers: &headers,
                };
                let call = function.bind(&asked, Body::from(body)).map_err(wrong)?;
                (arguments.to_owned(), call)
            }
        };
        let outputs = match &loaded.runner {
            Runner::Native(native) => native.call(&call, &mut self.room)?,
            Runner::Hardware => {
                let Some(hardware) = self.shared.functions.hardware() else {
                    return refused(Reason::NoHardware, "there is no accelerator");
                };
                hardware.call(function, call.clone())?
            }
        };
        if !self.link.finish() {
            return refused(Reason::TimedOut, "it is not waited for any more");
        }
        let accept = match answer_codec {
            Codec::Default => None,
            codec => Some(codec.content_type()),
        };
        let answered = function.answer(&call, outputs, accept).map_err(wrong)?;
        let given = answered.body.len();
        if bytes == 0 {
            self.handle(request)?.bound = Some((arguments, call));
        }
        let moved = bytes + given;
        self.shared.bytes.fetch_add(moved, Ordering::Relaxed);
        let mut answer = Answer {
            choice: Codec::of(answered.content_type) as u8,
            ..Answer::ack(request, given as usize)
        };
        if given <= INLINE_BYTES_MAX as u64 {
            return Ok((answer, answered.body.to_bytes()));
        }
        let (at, room) = request.answer;
        let target = match given <= room {
            true => self.part.arena.slice(at, given),
            false => None,
        };
        match target {
            Some(target) => {
                let mut at = 0;
                for frame in &answered.body.0 {
                    target.copy_in(at, frame);
                    at += frame.len();
                }
                answer.place = ARENA;
            }
            None => {
                self.handle(request)?.kept = answered.body.0;
                answer.place = KEPT;
            }
        }
        Ok((answer, Bytes::new()))
    }

    /// A piece of an answer that was kept.
    fn fetch(&mut self, request: &Request) -> Result<(Answer, Bytes), Refusal> {
        let arena = self.part.arena.clone();
        let handle = self.handle(request)?;
        let kept = Body(handle.kept.clone());
        let (at, room) = request.answer;
        let piece = kept.slice(request.from, room);
        let Some(target) = arena.slice(at, piece.len()).filter(|_| !piece.is_empty()) else {
            return refused(
                Reason::Protocol,
                "there is nothing to fetch, or no room for it",
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
        let shared = self.shared.clone();
        let (definition, bell) = (&shared.definition, self.rung.as_ref());
        let opened = shared
            .bridge
            .open(definition, hello, &self.part, self.number, bell);
        let (said, bridged) = opened?;
        let mut answer = Answer {
            choice: u8::from(bridged.is_some()),
            ..Answer::ack(request, said.len())
        };
        self.bridged = bridged;
        if said.len() <= INLINE_BYTES_MAX {
            return Ok((answer, said.into()));
        }
        let (at, room) = request.answer;
        let target = self.part.arena.slice(at, said.len() as u64);
        let Some(target) = target.filter(|_| said.len() as u64 <= room) else {
            self.bridged = None;
            return refused(
                Reason::Quota,
                "there is no room for the devices' descriptions",
            );
        };
        target.copy_in(0, &said);
        answer.place = ARENA;
        Ok((answer, Bytes::new()))
    }

    fn reset(&mut self, request: &Request) -> Result<(Answer, Bytes), Refusal> {
        self.handle(request)?.kept.clear();
        self.show(request, State::Wait);
        Ok((Answer::ack(request, 0), Bytes::new()))
    }

    fn release(&mut self, request: &Request) -> Result<(Answer, Bytes), Refusal> {
        self.handle(request)?;
        self.handles[request.handle as usize] = None;
        self.show(request, State::Wait);
        Ok((Answer::ack(request, 0), Bytes::new()))
    }
}
