//! One thread of a native function's process, from the callers' side: a ring of calls, a ring of
//! replies, and the calls in flight. Replies arrive in the order of the calls.

use crate::backlog::Backlog;
use crate::device::error::StartError;
use crate::pace::Pace;
use crate::pending::{Outcome, Pending};
use crate::reply::{CallError, Timing};
use crate::stats::Stats;
use baltra_functions::{Argument, Buffer, Call, Function};
use baltra_native::protocol::{self, aligned, AnswerHead, Arg, Head, ANSWER_HEAD_BYTES};
use baltra_ring::{Consumer, Locked, Producer, Range, Spin};
use bytes::Bytes;
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{fence, AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Data bytes of a ring.
pub const RING_BYTES: usize = 1 << 20;
/// Calls above this size are pushed by a thread that may wait.
const LARGE_BYTES: u64 = 128 << 10;
/// If calls have waited this long for a reply, the call in front of them counts as long, whatever
/// the function's statistics show.
const LONG: Duration = Duration::from_millis(1);
/// Pause while the process drains the ring.
const PAUSE: Duration = Duration::from_micros(50);

/// The result of a pump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pumped {
    /// All calls were submitted, or the ring is full.
    Done,
    /// The next call needs a thread that may wait.
    NeedsPatience,
    /// Another thread is pumping and will handle the remaining calls.
    Busy,
}

/// A pair of rings and the calls in them.
pub struct Lane {
    function: Arc<Function>,
    implementation: usize,
    flying_max: usize,
    stats: Arc<Stats>,
    pace: Arc<Pace>,
    out: Mutex<Out>,
    flights: Mutex<VecDeque<Flight>>,
    answers: Mutex<Consumer>,
    /// The number of the last call in the ring.
    sent: AtomicU64,
    /// The polls of callers for replies.
    polls: Spin,
    flying: AtomicUsize,
    born: Instant,
    /// Time since which the oldest call in flight has been the oldest, nanoseconds since `born`.
    oldest_ns: AtomicU64,
    /// Whether the ring of calls is full until a reply arrives.
    full: AtomicBool,
    /// Whether a call has been taken off the backlog and is not in the ring yet.
    stashed: AtomicBool,
    lost: AtomicBool,
}

struct Out {
    producer: Producer,
    message: Vec<u8>,
    constants: HashSet<usize>,
    next: Option<Pending>,
    next_id: u64,
}

struct Flight {
    id: u64,
    pending: Pending,
    pushed: Instant,
}

impl Lane {
    /// A lane for new rings.
    pub fn new(
        function: &Arc<Function>,
        implementation: usize,
        (requests, answers): (Range, Range),
        flying_max: usize,
        (stats, pace): (&Arc<Stats>, &Arc<Pace>),
    ) -> Result<Lane, StartError> {
        let layout = |e| StartError::Node(format!("cannot create a ring: {e}"));
        let answers = Consumer::new(answers).map_err(layout)?;
        answers.leave();
        Ok(Lane {
            function: function.clone(),
            implementation,
            flying_max,
            stats: stats.clone(),
            pace: pace.clone(),
            out: Mutex::new(Out {
                producer: Producer::new(requests).map_err(layout)?,
                message: Vec::new(),
                constants: HashSet::new(),
                next: None,
                next_id: 1,
            }),
            flights: Mutex::default(),
            answers: Mutex::new(answers),
            sent: AtomicU64::new(0),
            polls: Spin::default(),
            flying: AtomicUsize::new(0),
            born: Instant::now(),
            oldest_ns: AtomicU64::new(0),
            full: AtomicBool::new(false),
            stashed: AtomicBool::new(false),
            lost: AtomicBool::new(false),
        })
    }

    /// Whether pushing the call may have to wait for the process.
    pub fn is_large(call: &Call) -> bool {
        let constants = call
            .buffers
            .iter()
            .any(|b| matches!(b, Buffer::Constant(_)));
        constants || call.input_bytes() > LARGE_BYTES
    }

    /// Number of calls in flight.
    pub fn flying(&self) -> usize {
        self.flying.load(Ordering::Relaxed)
    }

    /// Whether it runs a long call.
    pub fn is_long(&self) -> bool {
        let since = self.oldest_ns.load(Ordering::Relaxed);
        self.flying() > 0 && self.age_ns().saturating_sub(since) > LONG.as_nanos() as u64
    }

    fn age_ns(&self) -> u64 {
        self.born.elapsed().as_nanos() as u64
    }

    /// Whether it may accept another call. A thread that pushes to the backlog checks this
    /// afterwards (with a fence between), and a thread that makes room checks the backlog
    /// afterwards, so one of the two sees the other's change.
    pub fn has_room(&self) -> bool {
        let flying = self.flying.load(Ordering::SeqCst);
        flying < self.flying_max && !self.full.load(Ordering::SeqCst)
    }

    /// Whether a call waits here for room or for a thread that may wait.
    pub fn waits(&self) -> bool {
        self.stashed.load(Ordering::SeqCst)
    }

    /// Moves calls from the backlog into the ring. `patient`: this thread may wait for room.
    pub fn pump(&self, backlog: &Backlog, patient: bool, stop: &dyn Fn() -> bool) -> Pumped {
        let mut guard = if patient {
            self.out.locked()
        } else {
            match self.out.try_lock() {
                Ok(guard) => guard,
                Err(_) => return Pumped::Busy,
            }
        };
        let out = &mut *guard;
        let mut pumped = Pumped::Done;
        while self.has_room() && !stop() {
            let now = Instant::now();
            let next = out.next.take().and_then(|next| next.if_wanted(now));
            let Some(pending) = next.or_else(|| backlog.pop(now)) else {
                break;
            };
            if !patient && Lane::is_large(&pending.call) && !self.is_prepared(out, &pending.call) {
                out.next = Some(pending);
                pumped = Pumped::NeedsPatience;
                break;
            }
            self.push(out, pending, patient, stop);
        }
        self.stashed.store(out.next.is_some(), Ordering::SeqCst);
        self.sent.store(out.next_id - 1, Ordering::Relaxed);
        out.producer.publish();
        pumped
    }

    /// Whether a large call is small without its constants, and the process has these.
    fn is_prepared(&self, out: &Out, call: &Call) -> bool {
        let known = |buffer: &Buffer| match buffer {
            Buffer::Constant(index) => out.constants.contains(index),
            _ => true,
        };
        call.input_bytes() <= LARGE_BYTES && call.buffers.iter().all(known)
    }

    fn push(&self, out: &mut Out, pending: Pending, patient: bool, stop: &dyn Fn() -> bool) {
        for buffer in &pending.call.buffers {
            if let Buffer::Constant(index) = buffer {
                if out.constants.insert(*index) {
                    self.push_constant(out, *index, stop);
                }
            }
        }
        let id = out.next_id;
        if let Err(error) = self.encode(out, id, &pending.call) {
            pending.waiter.fail(error);
            return;
        }
        let fits = out.message.len() <= out.producer.message_bytes_max();
        if fits && out.producer.try_push(&out.message).is_ok() {
            self.takes_off(id, pending);
        } else if fits && !patient {
            // Some replies later there is room again.
            self.full.store(true, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            out.next = Some(pending);
            if self.flying() == 0 {
                self.full.store(false, Ordering::SeqCst);
            }
            return;
        } else {
            // The reply may arrive before the push returns.
            self.takes_off(id, pending);
            let pause = || {
                std::thread::sleep(PAUSE);
                !stop()
            };
            // The process has ended or is ending; all calls in flight are lost together.
            let _ = out.producer.push_large(&out.message, pause);
        }
        out.next_id += 1;
    }

    fn takes_off(&self, id: u64, pending: Pending) {
        let mut flights = self.flights.locked();
        if self.lost.load(Ordering::SeqCst) {
            drop(flights);
            return pending.lose(false, "the native worker ended");
        }
        if flights.is_empty() {
            self.oldest_ns.store(self.age_ns(), Ordering::Relaxed);
        }
        flights.push_back(Flight {
            id,
            pending,
            pushed: Instant::now(),
        });
        self.flying.store(flights.len(), Ordering::SeqCst);
    }

    fn push_constant(&self, out: &mut Out, index: usize, stop: &dyn Fn() -> bool) {
        let bytes = self.function.constant(index);
        let head = Head::Constant {
            index: index as u32,
            len: bytes.len() as u64,
        };
        begin(&mut out.message, &head);
        append(&mut out.message, [&bytes]);
        let pause = || {
            std::thread::sleep(PAUSE);
            !stop()
        };
        let _ = out.producer.push_large(&out.message, pause);
    }

    fn encode(&self, out: &mut Out, id: u64, call: &Call) -> Result<(), CallError> {
        let launch = call.launches.get(self.implementation);
        let Some((launch, step)) = launch.and_then(|l| Some((l, l.steps.first()?))) else {
            return Err(CallError::Failed(
                "internal error: the call has no native step".into(),
            ));
        };
        let buffers = call.buffers.iter().map(|buffer| shape(buffer, call));
        let scratch = launch.scratch.iter();
        let scratch = scratch.map(|bytes| protocol::Buffer::Scratch(*bytes));
        let scratch_from = call.buffers.len();
        let values: Vec<_> = step
            .arguments
            .iter()
            .map(|argument| match argument {
                Argument::Scalar(scalar) => scalar.bytes(),
                _ => ([0; 8], 0),
            })
            .collect();
        let args = step.arguments.iter().zip(&values);
        let args = args.map(|(argument, (bytes, len))| match *argument {
            Argument::Buffer(index) => Ok(Arg::Buffer(index as u32)),
            Argument::Scratch(index) => Ok(Arg::Buffer((scratch_from + index) as u32)),
            Argument::Scalar(_) => Ok(Arg::Value(&bytes[..*len])),
            Argument::Local(_) => Err(CallError::Failed(
                "native functions have no local memory".into(),
            )),
        });
        let head = Head::Call {
            id,
            symbol: 0,
            buffers: buffers.chain(scratch).collect(),
            args: args.collect::<Result<_, _>>()?,
        };
        begin(&mut out.message, &head);
        for buffer in &call.buffers {
            if let Buffer::Input(body) | Buffer::InOut(body, _) = buffer {
                append(&mut out.message, &body.0);
            }
        }
        Ok(())
    }

    /// Handles replies, at most as many as calls may be in flight; returns whether that was all, and
    /// the process announces the next one. `Err`: the process violated the protocol.
    pub fn take_answers(&self) -> Result<bool, String> {
        self.take(self.answers.locked())
    }

    /// Like [`Lane::take_answers`], unless another thread is doing it.
    pub fn help_answer(&self) -> Result<bool, String> {
        match self.answers.try_lock() {
            Ok(answers) => self.take(answers),
            Err(_) => Ok(true),
        }
    }

    /// Like [`Lane::help_answer`], but polls for up to `limit` for the replies to the calls in the
    /// ring. Polling saves two wake-ups: of the thread that handles replies, and of the caller's.
    pub fn poll_answer(&self, limit: Duration) -> Result<bool, String> {
        let Ok(mut answers) = self.answers.try_lock() else {
            return Ok(true);
        };
        answers.attend();
        let last = self.sent.load(Ordering::Relaxed);
        let mut failed = None;
        self.polls.until(limit, || {
            failed = self.drain(&mut answers).err();
            failed.is_some() || answers.popped() >= last
        });
        match failed {
            Some(reason) => Err(reason),
            None => self.take(answers),
        }
    }

    fn take(&self, mut answers: MutexGuard<'_, Consumer>) -> Result<bool, String> {
        answers.attend();
        let all = self.drain(&mut answers)? & answers.leave();
        // Pairs with the fence between a push to the backlog and `Lane::has_room`.
        fence(Ordering::SeqCst);
        Ok(all)
    }

    fn drain(&self, answers: &mut Consumer) -> Result<bool, String> {
        let mut message = Vec::new();
        let stop = || self.lost.load(Ordering::SeqCst);
        for _ in 0..self.flying_max {
            let popped = answers.pop_unless(&mut message, stop);
            if !popped.map_err(|e| e.to_string())? {
                return Ok(true);
            }
            let flight = {
                let mut flights = self.flights.locked();
                let flight = flights.pop_front();
                self.oldest_ns.store(self.age_ns(), Ordering::Relaxed);
                self.flying.store(flights.len(), Ordering::SeqCst);
                self.full.store(false, Ordering::SeqCst);
                flight
            };
            let answered = std::mem::take(&mut message);
            let flight = flight.ok_or("the native worker sent a response without a request")?;
            self.answer(flight, answered)?;
        }
        Ok(false)
    }

    fn answer(&self, flight: Flight, answer: Vec<u8>) -> Result<(), String> {
        let broken = || "the native worker violated the protocol".to_owned();
        let head = AnswerHead::read(&answer).ok_or_else(broken)?;
        let Flight {
            id: expected,
            pending,
            pushed,
        } = flight;
        if head.id != expected {
            pending.lose(true, &broken());
            return Err(broken());
        }
        let waiter = pending.waiter;
        self.pace.ran(head.ran_ns);
        if head.status != 0 {
            let end = ANSWER_HEAD_BYTES.saturating_add(head.text as usize);
            let text = answer.get(ANSWER_HEAD_BYTES..end);
            let text = String::from_utf8_lossy(text.unwrap_or_default()).into_owned();
            waiter.fail(CallError::Failed(text));
            return Ok(());
        }
        let call = &pending.call;
        let answer = Bytes::from(answer);
        let mut outputs = vec![Bytes::new(); call.outputs.len()];
        let mut at = ANSWER_HEAD_BYTES;
        for buffer in &call.buffers {
            let (Buffer::Output(output) | Buffer::InOut(_, output)) = buffer else {
                continue;
            };
            let Some((len, room)) = shape(buffer, call).output() else {
                continue;
            };
            let end = at
                .checked_add(len as usize)
                .filter(|end| *end <= answer.len());
            let Some(end) = end else {
                waiter.fail(CallError::Failed(broken()));
                return Err(broken());
            };
            outputs[*output] = answer.slice(at..end);
            at = aligned(at.saturating_add(room as usize));
        }
        self.stats.ran(1);
        let timing = Timing {
            queue_ns: nanoseconds(waiter.waited(pushed)),
            cold_ns: 0,
            device_ns: nanoseconds(pushed.elapsed()),
            pushed: Some(pushed),
        };
        waiter.answer(Outcome::Done {
            outputs,
            batch: 1,
            timing,
        });
        Ok(())
    }

    /// Age of the oldest call in flight.
    pub fn oldest(&self) -> Option<Duration> {
        let flights = self.flights.locked();
        flights.front().map(|flight| flight.pushed.elapsed())
    }

    /// Fails all calls after the process has ended.
    pub fn lose(&self, reason: &str) {
        let flights = {
            let mut flights = self.flights.locked();
            self.lost.store(true, Ordering::SeqCst);
            std::mem::take(&mut *flights)
        };
        for flight in flights {
            flight.pending.lose(true, reason);
        }
        // A thread that pushes at the same time detects the end of the process.
        if let Some(next) = self.out.locked().next.take() {
            next.lose(false, reason);
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    duration.as_nanos().try_into().unwrap_or(u64::MAX)
}

fn shape(buffer: &Buffer, call: &Call) -> protocol::Buffer {
    match buffer {
        Buffer::Input(body) => protocol::Buffer::Input(body.len()),
        Buffer::Constant(index) => protocol::Buffer::Constant(*index as u32),
        Buffer::Output(output) => protocol::Buffer::Output(call.outputs[*output].bytes),
        Buffer::InOut(body, output) => {
            protocol::Buffer::InOut(body.len(), call.outputs[*output].bytes)
        }
    }
}

fn begin(message: &mut Vec<u8>, head: &Head<'_>) {
    message.clear();
    let encoded = postcard::to_extend(head, std::mem::take(message));
    *message = encoded.expect("a head can always be encoded");
    message.resize(aligned(message.len()), 0);
}

fn append<'a>(message: &mut Vec<u8>, frames: impl IntoIterator<Item = &'a Bytes>) {
    for frame in frames {
        message.extend_from_slice(frame);
    }
    message.resize(aligned(message.len()), 0);
}
