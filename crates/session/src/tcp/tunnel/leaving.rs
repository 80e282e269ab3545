//! A tunnel that another process of the library's host replaces: it stops where no command is
//! outstanding, describes where the library's rings are, and continues if the other one does not start.

use super::pump::{self, Pump};
use super::{Inner, Stage, Tunnel};
use crate::client::Peer;
use baltra_ring::lease::monotonic_ns;
use baltra_ring::{Locked, Position};
use baltra_wire::opencl::DEVICE_NOT_AVAILABLE;
use baltra_wire::{Event, Notice};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Polling interval for conditions without a notification.
const LOOK: Duration = Duration::from_micros(200);
/// Time for which the program may first pause by itself, and for which it is then paused.
const PAUSE: Duration = Duration::from_millis(20);
/// Limit for the arrival of bytes that the other node sent before it stopped.
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
        match self.failure.locked().clone() {
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

    /// The tunnel's end does not end the session until [`decide`](Inner::decide); fails if the tunnel
    /// has ended.
    fn defer_end(&self) -> Result<(), String> {
        let mut end = self.end.locked();
        end.is_undecided = true;
        let has_come = end.has_come;
        drop(end);
        // Of an earlier failure the library may have been notified.
        self.check()?;
        if has_come {
            return Err("the session has ended".into());
        }
        Ok(())
    }

    /// The session continues here, or has continued elsewhere.
    fn decide(&self) {
        self.end.locked().is_undecided = false;
        self.over.notify_all();
    }

    /// Looks for a moment at which no command is outstanding, until `end`.
    fn rest_before(&self, end: Instant, stage: Stage) -> Result<bool, String> {
        self.set_stage(stage);
        self.kick();
        loop {
            self.check()?;
            let mut pump = self.pump.locked();
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
        let waker = inner.pump.locked().waker();
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
        if let Some(text) = inner.failure.locked().clone() {
            inner.notify(&Notice::Fatal {
                code: DEVICE_NOT_AVAILABLE,
                text: &text,
            });
        }
        inner.decide();
        inner.kick();
    }

    /// Ends the session on the other node, because another process continues it here.
    pub fn retire(&self) {
        self.0.is_silent.store(true, Ordering::SeqCst);
        self.0.is_retired.store(true, Ordering::SeqCst);
        self.0.decide();
        self.close();
    }

    /// Whether another process continues the session.
    pub fn is_retired(&self) -> bool {
        self.0.is_retired.load(Ordering::SeqCst)
    }

    /// Waits until `frames` frames of the other node were received, which sends no more, and
    /// describes the library's end. The library gets no notices from here any more, and
    /// [`wait_for_end`](Peer::wait_for_end) waits for [`Tunnel::go_on`] or [`Tunnel::retire`].
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
        let mut notices = inner.notices.locked();
        notices.publish();
        inner.is_silent.store(true, Ordering::SeqCst);
        let position = notices.position().ok_or("a notice that is not complete")?;
        drop(notices);
        inner.defer_end()?;
        let watched = inner.events.locked().watched.iter().copied().collect();
        Ok(Left {
            rest: inner.pump.locked().rest()?,
            notices: (position, inner.printed.completed()),
            watched,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Descriptors, Taken};
    use super::*;
    use crate::tcp::dial::Dialer;
    use crate::tcp::stream::Stream;
    use baltra_ring::{Consumer, Position, Segment};
    use baltra_wire::{decode, Hello};
    use std::collections::{HashMap, VecDeque};
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    /// A tunnel in an executor's place.
    struct Away {
        tunnel: Tunnel,
        /// The other node's end of the connection.
        node: TcpStream,
        notices: Consumer,
        /// The library's end.
        _program: UnixStream,
    }

    impl Away {
        fn new() -> Away {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let (node, _) = listener.accept().unwrap();
            let (segment, _) = Segment::create().unwrap();
            let (program, socket) = UnixStream::pair().unwrap();
            let descriptors = Descriptors {
                socket: Arc::new(socket.into()),
                pending: VecDeque::new(),
            };
            let taken = Taken {
                control: Position::default(),
                controls: 0,
                notices: Position::default(),
                unsent: Vec::new(),
                arenas: HashMap::new(),
                slots: Vec::new(),
                queues: Vec::new(),
                releases: Vec::new(),
                watched: Vec::new(),
                mirror: false,
                facts: Default::default(),
                passes_facts: true,
                descriptors,
            };
            let dialer = Dialer {
                host: "127.0.0.1".into(),
                port,
                tls: false,
            };
            let stream = Stream::plain(stream.into());
            let hello = Hello::default();
            let tunnel = Tunnel::take_over(dialer, hello, stream, &segment, taken);
            Away {
                tunnel: tunnel.unwrap(),
                node,
                notices: Consumer::new(segment.notices()).unwrap(),
                _program: program,
            }
        }

        /// The session stops, and what returns of it is described.
        fn leave(&self) {
            self.tunnel.stop(Duration::from_secs(60)).unwrap();
            self.tunnel.describe(0).unwrap();
        }

        /// The other node sends no frame.
        fn end(&mut self) {
            self.node.write_all(&[0xff; 256]).unwrap();
            while !self.tunnel.0.end.locked().has_come {
                std::thread::sleep(LOOK);
            }
        }

        fn is_over(&self) -> bool {
            self.tunnel.0.end.locked().is_final()
        }

        /// Whether the library is notified of the session's end.
        fn has_notice(&mut self) -> bool {
            let mut notice = Vec::new();
            let has_one = self.notices.pop(&mut notice).unwrap();
            has_one && matches!(decode(&notice), Ok(Notice::Fatal { .. }))
        }
    }

    #[test]
    fn a_session_that_continues_elsewhere_outlives_the_tunnel() {
        let mut away = Away::new();
        away.leave();
        away.end();
        assert!(!away.is_over());
        away.tunnel.retire();
        away.tunnel.wait_for_end();
        assert!(away.tunnel.is_retired() && !away.has_notice());
    }

    #[test]
    fn a_session_that_stays_ends_with_the_tunnel() {
        let mut away = Away::new();
        away.leave();
        away.end();
        assert!(!away.is_over() && !away.has_notice());
        away.tunnel.go_on();
        away.tunnel.wait_for_end();
        assert!(!away.tunnel.is_retired() && away.has_notice());
    }

    #[test]
    fn a_session_that_has_ended_is_not_described() {
        let mut away = Away::new();
        away.tunnel.stop(Duration::from_secs(60)).unwrap();
        away.end();
        assert!(away.is_over() && away.has_notice());
        assert!(away.tunnel.describe(0).is_err());
        away.tunnel.go_on();
        assert!(away.is_over());
    }
}
