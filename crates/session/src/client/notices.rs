//! The threads that receive the executor's notices.

use super::Shared;
use baltra_ring::{Consumer, Locked, Unpoisoned};
use baltra_wire::opencl::DEVICE_NOT_AVAILABLE;
use baltra_wire::{decode, Notice};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

/// Time to wait for the remaining notices of an executor that has ended.
const LAST_NOTICES_MAX: Duration = Duration::from_millis(500);

impl Shared {
    /// Waits until the output of complete commands has been delivered.
    pub(super) fn wait_for_prints(&self) {
        let printing = &self.printing;
        let announced = printing.announced.completed();
        if !printing.is_behind(announced) {
            return;
        }
        let mut thread = printing.thread.locked();
        // Without a notice thread, or on it, no other thread would deliver the output.
        while printing.is_behind(announced)
            && thread.is_some_and(|t| t != thread::current().id())
            && !self.stop.load(Ordering::Acquire)
        {
            // Over TCP the notices may have been received and not published yet.
            self.waker.wake();
            let moment = Duration::from_millis(5);
            let waited = printing.changed.wait_timeout(thread, moment);
            thread = waited.unpoisoned().0;
        }
    }
}

/// Starts two threads: one for notices, one for the end of the peer.
pub(super) fn spawn(shared: &Arc<Shared>, consumer: Consumer) -> io::Result<()> {
    let ours = shared.clone();
    Builder::new()
        .name("baltra-notices".into())
        .spawn(move || receive(&ours, consumer))?;
    let ours = shared.clone();
    Builder::new().name("baltra-peer".into()).spawn(move || {
        ours.peer.wait_for_end();
        // Remaining notices, possibly with the reason, are handled first.
        let begun = Instant::now();
        std::thread::sleep(Duration::from_millis(1));
        while ours.noticed.load(Ordering::Acquire) < ours.waker.published()
            && !ours.stop.load(Ordering::Acquire)
            && begun.elapsed() < LAST_NOTICES_MAX
        {
            ours.waker.wake();
            std::thread::sleep(Duration::from_millis(1));
        }
        ours.lose(DEVICE_NOT_AVAILABLE, Some("the executor has ended"));
    })?;
    Ok(())
}

fn receive(shared: &Shared, mut consumer: Consumer) {
    *shared.printing.thread.locked() = Some(thread::current().id());
    let mut message = Vec::new();
    loop {
        match consumer.pop(&mut message) {
            Ok(true) => match decode::<Notice>(&message) {
                Ok(notice) => handle(shared, notice),
                Err(e) => shared.lose(DEVICE_NOT_AVAILABLE, Some(&e.to_string())),
            },
            Ok(false) if shared.stop.load(Ordering::Acquire) => return,
            Ok(false) => {
                shared.noticed.store(consumer.taken(), Ordering::Release);
                consumer.wait(Duration::ZERO, None);
            }
            Err(e) => return shared.lose(DEVICE_NOT_AVAILABLE, Some(&e.to_string())),
        }
    }
}

fn handle(shared: &Shared, notice: Notice<'_>) {
    match notice {
        Notice::Reply { call, reply } => {
            let then = shared.calls.locked().remove(&call);
            if let Some(then) = then {
                then(reply);
            }
        }
        Notice::Completed(completion) => {
            let watchers = shared.watches.locked().remove(&completion.event);
            for then in watchers.unwrap_or_default() {
                then(completion);
            }
        }
        Notice::Freed(id) => {
            let freed = shared.freed.locked().remove(&id);
            if let Some(freed) = freed {
                freed();
            }
        }
        Notice::Printed(bytes) => {
            shared.handler.printed(bytes);
            shared.printing.count();
        }
        Notice::Context { context, text } => shared.handler.context_error(context, text),
        Notice::Fatal { code, text } => shared.lose(code.min(-1), Some(text)),
        // Only relays request these.
        Notice::Progress { .. } => {}
    }
}
