//! The threads that hear the executor.

use super::{lock, Shared, NOT_AVAILABLE};
use baltra_ring::Consumer;
use baltra_wire::{decode, Notice};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, Builder, ThreadId};
use std::time::Duration;

/// What kernels print comes as a notice before the command's completion, but on another path: a
/// thread that waits for a command waits for the notices, too, where kernels may print.
#[derive(Default)]
pub(super) struct Printing {
    possible: AtomicBool,
    heard: Mutex<Heard>,
    changed: Condvar,
}

#[derive(Default)]
struct Heard {
    /// Bytes of the notice ring that have been handled.
    bytes: u64,
    thread: Option<ThreadId>,
}

impl Printing {
    /// Looks for a program that prints in a message: its source, binary or options say so.
    pub fn look_at(&self, message: &[u8]) {
        const WORD: &[u8] = b"printf";
        if message.windows(WORD.len()).any(|window| window == WORD) {
            self.possible.store(true, Ordering::Release);
        }
    }

    fn is_possible(&self) -> bool {
        self.possible.load(Ordering::Acquire)
    }

    fn heard(&self, bytes: u64) {
        if self.is_possible() {
            let mut heard = lock(&self.heard);
            heard.bytes = bytes;
            heard.thread = Some(thread::current().id());
            self.changed.notify_all();
        }
    }
}

impl Shared {
    /// Waits until what was printed by commands that are complete has been handed on.
    pub(super) fn hear_prints(&self) {
        let printing = &self.printing;
        if !printing.is_possible() {
            return;
        }
        let published = self.waker.published();
        let mut heard = lock(&printing.heard);
        while heard.bytes < published
            && heard.thread != Some(thread::current().id())
            && !self.stop.load(Ordering::Acquire)
        {
            // The notice thread may not have looked since the first program came.
            self.waker.wake();
            let moment = Duration::from_millis(5);
            let waited = printing.changed.wait_timeout(heard, moment);
            heard = waited.expect("no panic under this lock").0;
        }
    }
}

/// Starts both: one for notices, one for the peer's end.
pub(super) fn spawn(shared: &Arc<Shared>, consumer: Consumer) -> io::Result<()> {
    let ours = shared.clone();
    Builder::new()
        .name("baltra-notices".into())
        .spawn(move || hear(&ours, consumer))?;
    let ours = shared.clone();
    Builder::new().name("baltra-peer".into()).spawn(move || {
        ours.peer.wait_for_end();
        // What the executor said last (its reason, perhaps) goes first.
        std::thread::sleep(Duration::from_millis(1));
        ours.lose(NOT_AVAILABLE, Some("the executor has ended"));
    })?;
    Ok(())
}

fn hear(shared: &Shared, mut consumer: Consumer) {
    let mut message = Vec::new();
    loop {
        match consumer.pop(&mut message) {
            Ok(true) => match decode::<Notice>(&message) {
                Ok(notice) => handle(shared, notice),
                Err(e) => shared.lose(NOT_AVAILABLE, Some(&e.to_string())),
            },
            Ok(false) if shared.stop.load(Ordering::Acquire) => return,
            Ok(false) => {
                shared.printing.heard(consumer.taken());
                consumer.wait(Duration::ZERO, None);
            }
            Err(e) => return shared.lose(NOT_AVAILABLE, Some(&e.to_string())),
        }
    }
}

fn handle(shared: &Shared, notice: Notice<'_>) {
    match notice {
        Notice::Reply { call, reply } => {
            let then = lock(&shared.calls).remove(&call);
            if let Some(then) = then {
                then(reply);
            }
        }
        Notice::Completed(completion) => {
            let watchers = lock(&shared.watches).remove(&completion.event);
            for then in watchers.unwrap_or_default() {
                then(completion);
            }
        }
        Notice::Freed(id) => {
            let freed = lock(&shared.freed).remove(&id);
            if let Some(freed) = freed {
                freed();
            }
        }
        Notice::Printed(bytes) => shared.handler.printed(bytes),
        Notice::Context { context, text } => shared.handler.context_error(context, text),
        Notice::Fatal { code, text } => shared.lose(code.min(-1), Some(text)),
        // Only relays ask for these.
        Notice::Progress { .. } => {}
    }
}
