//! The stream of notices to the client. A thread that sends a notice never waits for a client that
//! does not read: notices that do not fit into the ring go to a backlog, which a separate thread
//! empties.

use baltra_ring::{Locked, Position, Producer, Progress, Range, RingError};
use baltra_wire::{Id, Notice};
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Maximum backlog; a client that lets it grow beyond this loses its session.
const BACKLOG_BYTES_MAX: usize = 512 << 20;

/// Maximum text in one notice, so that its reader can proceed in pieces.
const PRINTED_BYTES_MAX: usize = 48 << 10;

struct State {
    /// `None` while the backlog's thread has it.
    producer: Option<Producer>,
    backlog: VecDeque<Vec<u8>>,
    backlog_bytes: usize,
    scratch: Vec<u8>,
    /// Notices of printed text, sent or in the backlog.
    printed: u64,
    /// Released objects whose end the client waits for.
    owed: HashSet<Id>,
    /// The notices that have come since the session has stopped; `None`: it runs.
    late: Option<Late>,
}

/// Notices of a stopped session.
#[derive(Default)]
struct Late {
    messages: Vec<Vec<u8>>,
    /// Objects that have ended.
    freed: Vec<Id>,
}

/// The notices of a stopped session, for another executor.
pub struct Stopped {
    /// The writing end.
    pub position: Position,
    /// Notices of printed text.
    pub printed: u64,
    /// Released objects whose end the client waits for.
    pub owed: Vec<Id>,
    /// Other notices.
    pub unsent: Vec<Vec<u8>>,
}

/// The executor's end of a session's notices.
pub struct Notices {
    state: Mutex<State>,
    closed: AtomicBool,
    /// In the ring's header, [`State::printed`]: after a wait for a command, the client waits until
    /// it has handled that many notices of printed text.
    announced: Progress,
}

impl Notices {
    /// Over the segment's notice ring.
    pub fn new(ring: Range) -> Result<Arc<Notices>, RingError> {
        Ok(Arc::new(Notices {
            announced: Progress::new(&ring)?,
            state: Mutex::new(State {
                producer: Some(Producer::new(ring)?),
                backlog: VecDeque::new(),
                backlog_bytes: 0,
                scratch: Vec::new(),
                printed: 0,
                owed: HashSet::new(),
                late: None,
            }),
            closed: false.into(),
        }))
    }

    /// Continues the stream of another executor. Nothing is sent before [`Notices::start`].
    pub fn restore(
        &self,
        ring: Range,
        position: Position,
        printed: u64,
        unsent: Vec<Vec<u8>>,
    ) -> Result<(), RingError> {
        let mut state = self.state.locked();
        state.producer = Some(Producer::resume(ring, position)?);
        state.printed = printed;
        state.late.get_or_insert_default().messages.extend(unsent);
        Ok(())
    }

    /// Keeps all notices from now on.
    pub fn stop(&self) {
        self.state.locked().late.get_or_insert_default();
    }

    /// The state of the stopped stream; `None`: the client has not read all notices of the backlog.
    pub fn stopped(&self) -> Option<Stopped> {
        let state = self.state.locked();
        let position = state.producer.as_ref()?.position()?;
        Some(Stopped {
            position,
            printed: state.printed,
            owed: state.owed.iter().copied().collect(),
            unsent: state.late.as_ref()?.messages.clone(),
        })
    }

    /// Sends what was kept.
    pub fn start(self: &Arc<Notices>) {
        let mut state = self.state.locked();
        let late = state.late.take().unwrap_or_default();
        for message in late.messages {
            state.scratch = message;
            self.push(&mut state);
        }
        for id in late.freed {
            state.owed.remove(&id);
            self.add(&mut state, &Notice::Freed(id));
        }
    }

    /// A notice of the object's end will follow, [`Notices::freed`].
    pub fn owe(&self, id: Id) {
        self.state.locked().owed.insert(id);
    }

    /// An object has ended.
    pub fn freed(self: &Arc<Notices>, id: Id) {
        let mut state = self.state.locked();
        if let Some(late) = &mut state.late {
            // If the session moves, the other executor sends it.
            late.freed.push(id);
            return;
        }
        state.owed.remove(&id);
        self.add(&mut state, &Notice::Freed(id));
    }

    /// Says something, without waiting.
    pub fn send(self: &Arc<Notices>, notice: &Notice) {
        if self.closed.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state.locked();
        self.add(&mut state, notice);
    }

    /// Sends a kernel's output, without waiting. To be called before the kernel's completion, after
    /// which its client waits for the text.
    pub fn print(self: &Arc<Notices>, text: &[u8]) {
        if self.closed.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state.locked();
        let mut rest = text;
        while !rest.is_empty() {
            let piece;
            (piece, rest) = rest.split_at(piece_len(rest));
            self.add(&mut state, &Notice::Printed(piece));
            state.printed += 1;
        }
        self.announced.publish(state.printed);
    }

    fn add(self: &Arc<Notices>, state: &mut State, notice: &Notice) {
        state.scratch.clear();
        if baltra_wire::encode(notice, &mut state.scratch).is_err() {
            return;
        }
        if state.late.is_some() {
            let message = std::mem::take(&mut state.scratch);
            state.late.get_or_insert_default().messages.push(message);
            return;
        }
        self.push(state);
    }

    /// Sends the message in `scratch`.
    fn push(self: &Arc<Notices>, state: &mut State) {
        if let Some(producer) = &mut state.producer {
            if producer.try_push(&state.scratch).is_ok() {
                producer.publish();
                return;
            }
        }
        state.backlog_bytes += state.scratch.len();
        if state.backlog_bytes > BACKLOG_BYTES_MAX {
            self.close();
            return;
        }
        state.backlog.push_back(std::mem::take(&mut state.scratch));
        if let Some(producer) = state.producer.take() {
            let notices = self.clone();
            std::thread::spawn(move || notices.carry_off(producer));
        }
    }

    fn carry_off(&self, mut producer: Producer) {
        loop {
            let message = {
                let mut state = self.state.locked();
                let Some(message) = state.backlog.pop_front() else {
                    state.producer = Some(producer);
                    return;
                };
                state.backlog_bytes -= message.len();
                message
            };
            let pushed = producer.push_large(&message, || {
                std::thread::sleep(Duration::from_micros(50));
                !self.closed.load(Ordering::Relaxed)
            });
            if pushed.is_err() {
                return;
            }
        }
    }

    /// Sends no more notices; the backlog is dropped.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Whether the backlog became too large, or the session has ended.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}

/// Length of the text up to the last line that ends within a notice's limit, or that limit.
fn piece_len(text: &[u8]) -> usize {
    let Some(piece) = text.get(..PRINTED_BYTES_MAX) else {
        return text.len();
    };
    let line = piece.iter().rposition(|byte| *byte == b'\n');
    line.map_or(PRINTED_BYTES_MAX, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use baltra_ring::{ring_bytes, Consumer, Memory};
    use baltra_wire::{decode, Reply};

    #[test]
    fn a_reply_larger_than_the_ring_arrives_and_keeps_its_place() {
        let bytes = ring_bytes(4096) as u64;
        let memory = Memory::anonymous(bytes).unwrap();
        let range = memory.slice(0, bytes).unwrap();
        let notices = Notices::new(range.clone()).unwrap();
        let mut consumer = Consumer::new(range).unwrap();
        for call in 0..4 {
            let reply = Reply::Bytes(vec![call as u8; 20_000]);
            notices.send(&Notice::Reply { call, reply });
            notices.send(&Notice::Freed(call));
        }
        let mut record = Vec::new();
        let mut pop = || {
            while !consumer.pop(&mut record).unwrap() {
                consumer.wait(Duration::ZERO, Some(Duration::from_millis(10)));
            }
            match decode::<Notice>(&record).unwrap() {
                Notice::Reply { call, .. } => (call, true),
                Notice::Freed(call) => (call, false),
                other => panic!("{other:?}"),
            }
        };
        for call in 0..4 {
            assert_eq!((pop(), pop()), ((call, true), (call, false)));
        }
    }

    #[test]
    fn printed_text_is_announced_before_there_is_room_for_it() {
        let bytes = ring_bytes(256 << 10) as u64;
        let memory = Memory::anonymous(bytes).unwrap();
        let range = memory.slice(0, bytes).unwrap();
        let notices = Notices::new(range.clone()).unwrap();
        let announced = Progress::new(&range).unwrap();
        let line = b"a line of text\n";
        let text = [
            &b"x".repeat(PRINTED_BYTES_MAX * 2)[..],
            &line.repeat(50_000),
        ]
        .concat();
        notices.print(&text);
        let mut consumer = Consumer::new(range).unwrap();
        let (mut record, mut got) = (Vec::new(), Vec::new());
        for _ in 0..announced.completed() {
            while !consumer.pop(&mut record).unwrap() {
                consumer.wait(Duration::ZERO, Some(Duration::from_millis(10)));
            }
            let Ok(Notice::Printed(piece)) = decode::<Notice>(&record) else {
                panic!("not printed text");
            };
            assert!(got.len() < PRINTED_BYTES_MAX * 2 || piece.ends_with(b"\n"));
            got.extend_from_slice(piece);
        }
        assert!(got == text);
    }
}
