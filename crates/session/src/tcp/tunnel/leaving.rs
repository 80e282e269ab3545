//! A tunnel that another process of the library's host replaces: it stops where no command is
//! outstanding, describes where the library's rings are, and continues if the other one does not start.

use super::pump::{self, Pump};
use super::{lock, Inner, Stage, Tunnel};
use crate::client::Peer;
use baltra_ring::lease::monotonic_ns;
use baltra_ring::Position;
use baltra_wire::opencl::DEVICE_NOT_AVAILABLE;
use baltra_wire::{Event, Notice};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_micros(200);
/// How long the program is first given to pause by itself, and then paused.
const PAUSE: Duration = Duration::from_millis(20);
/// What the other node has sent before it stopped arrives within this.
const ARRIVES: Duration = Duration::from_secs(30);

/// The library's end of a stopped session.
pub(crate) struct Left {
    pub rest: pump::Rest,
    /// The writing end of the notices, and the number of notices of printed text.
    pub notices: (Position, u64),
    /// Events of whose end the library wants a notice.
    pub watched: Vec<Event>,
}

impl Inner {
    /// Of the thread in the library's place: waits while the tunnel is stopped.
    pub(super) fn rest(&self) {
        while self.stage() == Stage::Stopped && !self.is_closed() {
            self.rests.store(true, Ordering::SeqCst);
            std::thread::sleep(LOOK);
        }
        self.rests.store(false, Ordering::SeqCst);
    }

    fn set_stage(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::SeqCst);
    }

    fn check(&self) -> Result<(), String> {
        match lock(&self.failure).clone() {
            Some(failure) => Err(failure),
            None if self.is_closed() => Err("the session has ended".into()),
            None => Ok(()),
        }
    }

    /// Stops if no command is outstanding at this moment.
    fn stop_at_rest(&self, pump: &Pump) -> bool {
        let is_at_rest = pump.is_drained(self);
        if is_at_rest {
            self.set_stage(Stage::Stopped);
        }
        is_at_rest
    }

    /// Looks for a moment at which no command is outstanding, until `end`.
    fn rest_before(&self, end: Instant, stage: Stage) -> Result<bool, String> {
        self.set_stage(stage);
        self.kick();
        loop {
            self.check()?;
            let mut pump = lock(&self.pump);
            if stage == Stage::Stops {
                // Pieces of commands, and what releases commands that wait.
                let passed = pump.pass(self);
                passed.map_err(|violation| violation.to_string())?;
            }
            if self.stop_at_rest(&pump) {
                return Ok(true);
            }
            drop(pump);
            if Instant::now() >= end {
                return Ok(false);
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Tunnel {
    /// Takes no more messages of the library from a moment on at which no command is outstanding;
    /// if there is none within `max`, everything continues, with the reason. Returns the number of frames
    /// sent, and the time from which on no command was taken.
    pub fn stop(&self, max: Duration) -> Result<(u64, u64), String> {
        let stopped = self.try_to_stop(max);
        if stopped.is_err() {
            self.go_on();
        }
        stopped
    }

    fn try_to_stop(&self, max: Duration) -> Result<(u64, u64), String> {
        let inner = &self.0;
        let deadline = Instant::now() + max;
        let mut pause = PAUSE;
        // Many programs pause by themselves. Of others, no commands are taken for a while; but what
        // is outstanding may wait for an event that the program sets after further commands.
        let stopped_ns = loop {
            let end = |pause| deadline.min(Instant::now() + pause);
            if inner.rest_before(end(pause), Stage::Runs)? {
                break monotonic_ns();
            }
            let since = monotonic_ns();
            if inner.rest_before(end(pause), Stage::Stops)? {
                break since;
            }
            if Instant::now() >= deadline {
                let ms = max.as_millis();
                return Err(format!(
                    "commands run, or wait for events of the program, for longer than the {ms} ms \
                     that a move may wait (--wait-ms)"
                ));
            }
            pause *= 2;
        };
        let waker = lock(&inner.pump).waker();
        while !inner.rests.load(Ordering::SeqCst) {
            inner.check()?;
            waker.wake();
            std::thread::sleep(LOOK);
        }
        inner.kick();
        Ok((inner.link.outbox().pushed(), stopped_ns))
    }

    /// Goes on after [`Tunnel::stop`].
    pub fn go_on(&self) {
        let inner = &self.0;
        inner.is_silent.store(false, Ordering::SeqCst);
        inner.set_stage(Stage::Runs);
        // It had no notice of it.
        if let Some(text) = lock(&inner.failure).clone() {
            inner.notify(&Notice::Fatal {
                code: DEVICE_NOT_AVAILABLE,
                text: &text,
            });
        }
        inner.kick();
    }

    /// Ends the session on the other node, because another process continues it here.
    pub fn retire(&self) {
        self.0.is_silent.store(true, Ordering::SeqCst);
        self.0.is_retired.store(true, Ordering::SeqCst);
        self.close();
    }

    /// Whether another process continues the session.
    pub fn is_retired(&self) -> bool {
        self.0.is_retired.load(Ordering::SeqCst)
    }

    /// Waits until `frames` frames of the other node were received, which sends no more, and
    /// describes the library's end. The library gets no notices from here any more.
    pub fn describe(&self, frames: u64) -> Result<Left, String> {
        let inner = &self.0;
        let deadline = Instant::now() + ARRIVES;
        while inner.link.received() < frames {
            inner.check()?;
            if Instant::now() > deadline {
                return Err("the last messages of the other node have not arrived".into());
            }
            std::thread::sleep(LOOK);
        }
        let mut notices = lock(&inner.notices);
        notices.publish();
        inner.is_silent.store(true, Ordering::SeqCst);
        let position = notices.position().ok_or("a notice that is not complete")?;
        drop(notices);
        let watched = lock(&inner.events).watched.iter().copied().collect();
        Ok(Left {
            rest: lock(&inner.pump).rest()?,
            notices: (position, inner.printed.completed()),
            watched,
        })
    }
}
