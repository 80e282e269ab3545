//! Converts the executor's notices to frames; frames sent first may precede the notices that they
//! belong to.

use super::inbound::OWN_CALL;
use super::state::{State, Transfer};
use super::{farewell, Session};
use crate::tcp::frame::Kind;
use crate::tcp::link::{Flushed, Outbox, Payload};
use baltra_ring::{Consumer, Locked, RingError};
use baltra_wire::{decode, Id, Notice, Reply};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

/// Unsent bytes beyond which the executor's notices are left in their ring.
const UNSENT_MAX: usize = 16 << 20;
/// Time limit for sending the last frames to a client that does not read.
const FAREWELL_MAX: Duration = Duration::from_secs(1);

/// Interval at which the outbound thread checks whether the inbound thread still reads the notices
/// itself; meanwhile, the outbound thread does not read them.
const LEAVE: Duration = Duration::from_micros(500);

/// The executor's notices.
pub(super) struct Notices {
    consumer: Consumer,
    message: Vec<u8>,
}

impl Notices {
    pub fn new(consumer: Consumer) -> Notices {
        Notices {
            consumer,
            message: Vec::new(),
        }
    }

    /// Sends pending frames until the socket's buffer is full; returns whether there were any. A
    /// malformed ring ends the session.
    fn carry(&mut self, session: &Session) -> Result<(bool, Flushed), RingError> {
        let mut outbox = session.link.outbox();
        let mut moved = false;
        while outbox.unsent() < UNSENT_MAX && self.consumer.pop(&mut self.message)? {
            moved = true;
            translate(session, &self.message, &mut outbox);
        }
        Ok((moved, outbox.flush()))
    }
}

/// Does the thread's work once, unless the thread is active; returns whether there was work.
pub(super) fn look(session: &Session) -> bool {
    let Ok(mut notices) = session.notices.try_lock() else {
        return false;
    };
    session.looks.fetch_add(1, Ordering::Relaxed);
    if notices.consumer.is_empty() {
        return false;
    }
    match notices.carry(session) {
        Ok((moved, Flushed::Stalled)) => {
            session.poke();
            moved
        }
        Ok((moved, _)) => moved,
        Err(_) => {
            session.client.end();
            true
        }
    }
}

/// The thread: runs until the session has ended and all frames have been sent, then closes the
/// connection.
pub(super) fn run(session: &Session) {
    carry(session);
    farewell(session);
    session.link.down();
}

fn carry(session: &Session) {
    let mut deadline = None;
    let mut seen = session.looks.load(Ordering::Relaxed);
    loop {
        let looks = session.looks.load(Ordering::Relaxed);
        let poked = session.poked.swap(false, Ordering::SeqCst);
        let over = session.is_over();
        if std::mem::replace(&mut seen, looks) != looks && !poked && !over {
            thread::park_timeout(LEAVE);
            continue;
        }
        let carried = {
            let mut notices = session.notices.locked();
            notices.carry(session)
        };
        match carried {
            Err(_) => return session.client.end(),
            Ok((true, Flushed::All)) => {}
            Ok((_, Flushed::Stalled)) => {
                let stream = session.link.outbox().stream();
                if let Some(stream) = stream {
                    stream.wait_writable(Duration::from_millis(100));
                }
                // No other thread sends the rest.
                session.poked.store(true, Ordering::SeqCst);
            }
            Ok((_, Flushed::All | Flushed::Down)) if !over => {
                session.waker.wait_unless(None, || {
                    session.is_over() || session.poked.load(Ordering::SeqCst)
                });
            }
            // Subflows may still have parts of the last frames.
            Ok((_, Flushed::All)) if session.link.outbox().has_parts() => thread::sleep(LEAVE),
            Ok((_, Flushed::All | Flushed::Down)) => break,
        }
        if over && Instant::now() > *deadline.get_or_insert(Instant::now() + FAREWELL_MAX) {
            break;
        }
    }
}

/// Sends all of the executor's notices, which sends no more; returns the number of frames sent so
/// far.
pub(super) fn carry_all(session: &Session, deadline: Instant) -> Result<u64, String> {
    loop {
        let mut notices = session.notices.locked();
        let carried = notices.carry(session);
        carried.map_err(|e| e.to_string())?;
        if notices.consumer.is_empty() {
            return Ok(session.link.outbox().pushed());
        }
        drop(notices);
        if session.is_over() || Instant::now() > deadline {
            return Err("its notices cannot be sent".into());
        }
        thread::sleep(LEAVE);
    }
}

/// Whether a notice is one of the client's own executor, without those that only a relay gets.
pub(super) fn is_clients(message: &[u8]) -> bool {
    match decode::<Notice>(message) {
        Ok(Notice::Reply { call, .. }) => call & OWN_CALL == 0,
        Ok(Notice::Progress { .. }) | Err(_) => false,
        Ok(_) => true,
    }
}

fn translate(session: &Session, message: &[u8], outbox: &mut Outbox) {
    let Ok(notice) = decode::<Notice>(message) else {
        return;
    };
    let link = &session.link;
    match notice {
        Notice::Reply { call, reply } if call & OWN_CALL != 0 => {
            let worked = !matches!(reply, Reply::Error(_));
            let awaited = session.state().answered(call, worked);
            drop(awaited);
            return;
        }
        Notice::Completed(completion) => {
            let mut state = session.state();
            state.completed(completion.event);
            if let Some((queue, number)) = state.by_event.remove(&completion.event) {
                let found = state.queues.get_mut(&queue);
                let (earlier, transfer) = found.map(|q| q.end(number)).unwrap_or_default();
                for transfer in &earlier {
                    state.forget(transfer);
                }
                drop(state);
                // The executor reports their end later.
                for transfer in earlier {
                    data(session, queue, transfer, outbox);
                }
                if let Some(transfer) = transfer.filter(|_| completion.status == 0) {
                    data(session, queue, transfer, outbox);
                }
            }
        }
        Notice::Progress {
            queue,
            completed,
            failed,
        } => return progress(session, queue, completed, failed, outbox),
        Notice::Freed(id) => {
            let mut state = session.state();
            if state.released.contains(&id) {
                state.drop_queue(id);
            }
            let left = state.leaving.remove(&id);
            drop(state);
            drop(left);
        }
        _ => {}
    }
    outbox.push(link, Kind::Notice, 0, message, None);
}

fn progress(session: &Session, queue: Id, completed: u64, failed: (u64, i32), outbox: &mut Outbox) {
    let mut state = session.state();
    let state: &mut State = &mut state;
    let Some(found) = state.queues.get_mut(&queue) else {
        return;
    };
    let done: Vec<_> = if found.has_transfers() {
        found.complete(completed).collect()
    } else {
        Vec::new()
    };
    let (completed, failed) = found.translate(completed, failed);
    for transfer in done {
        state.forget(&transfer);
        data(session, queue, transfer, outbox);
    }
    progressed(session, queue, completed, failed, outbox);
}

/// Reports a queue's progress to the client, in the client's numbering.
pub(super) fn progressed(
    session: &Session,
    queue: Id,
    completed: u64,
    failed: (u64, i32),
    outbox: &mut Outbox,
) {
    let notice = Notice::Progress {
        queue,
        completed,
        failed,
    };
    let mut bytes = Vec::with_capacity(32);
    if baltra_wire::encode(&notice, &mut bytes).is_ok() {
        outbox.push(&session.link, Kind::Notice, 0, &bytes, None);
    }
}

/// Sends the bytes of a read; for a write only frees the block.
fn data(session: &Session, queue: Id, transfer: Transfer, outbox: &mut Outbox) {
    if !transfer.is_read {
        return;
    }
    let number = transfer.clients_number.to_le_bytes();
    let payload = Some(Payload::Staged(transfer.block));
    outbox.push(&session.link, Kind::Data, queue, &number, payload);
}
