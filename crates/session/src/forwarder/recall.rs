//! The source's end of a move from a forwarder: the session comes from the other node, and continues
//! with an executor, or another forwarder, of this one. The program's rings stay where they are.

use super::departure::Kept;
use super::Target;
use crate::tcp::tunnel::{relays, Left, Tunnel};
use crate::transit::incoming::{broken, check_steps, Window};
use crate::transit::{self, encoded, lost, next, ring_position, send_blob};
use baltra_channel::Channel;
use baltra_ring::lease::monotonic_ns;
use baltra_wire::moves::{Part, Plan, State, ToSource, ToTarget, FDS_MAX};
use baltra_wire::transit::{FromSource, FromTarget, Rest};
use baltra_wire::{decode, Control, Notice};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// A session that returns.
pub(super) struct Recall<'a> {
    pub kept: &'a Kept,
    pub tunnel: &'a Tunnel,
    /// The executor that gets the session.
    pub executor: Channel,
    /// Maximum time of commands in flight.
    pub wait: Duration,
}

/// The way of a session that returns.
struct Way<'a> {
    recall: &'a Recall<'a>,
    stream: crate::tcp::stream::Stream,
    window: Option<Window>,
    stopped_ns: u64,
}

impl Recall<'_> {
    /// Has the session return; on an error it continues on the other node.
    pub fn run(&self, target: &Target, resuming: &baltra_wire::Hello) -> Result<(), String> {
        transit::limit(&self.executor).map_err(|e| e.to_string())?;
        let mut way = Way {
            recall: self,
            stream: target.open_leaving(resuming)?,
            window: None,
            stopped_ns: 0,
        };
        match way.run().and_then(|()| self.started()) {
            Ok(()) => {
                // Nothing of it touches the program's memory from here on.
                self.tunnel.retire();
                // The relay may have ended; then its executor does not wait for this.
                let _ = transit::send(&way.stream, &FromTarget::Built);
                Ok(())
            }
            Err(reason) => {
                self.tunnel.go_on();
                Err(reason)
            }
        }
    }

    /// Whether the session has started in the executor. The decision is final.
    fn started(&self) -> Result<(), String> {
        let mut first = next::<ToSource>(&self.executor);
        if first.is_err() {
            // The executor cannot send after this; what it has sent before counts.
            let _ = rustix::net::shutdown(&self.executor, rustix::net::Shutdown::Both);
            first = next(&self.executor).or(first);
        }
        match first?.0 {
            ToSource::Started => Ok(()),
            ToSource::Refused(reason) => Err(reason),
            ToSource::Prepared | ToSource::Taken => Err("the executor broke the protocol".into()),
        }
    }
}

impl Way<'_> {
    fn run(&mut self) -> Result<(), String> {
        let mut frames = None;
        let mut is_whole = false;
        loop {
            match transit::receive(&self.stream).map_err(lost)? {
                FromSource::Plan(plan) => self.plan(plan)?,
                FromSource::Ahead(state) if state.stopped_ns == 0 => {
                    check_steps(&state.steps)?;
                    send_blob(
                        &self.recall.executor,
                        &state,
                        |len| ToTarget::State { len },
                        &[],
                    )?;
                    self.prepared()?;
                }
                FromSource::Window { len } => {
                    // The former one may be in use.
                    self.finish()?;
                    let window = Window::new(len)?;
                    self.send(&ToTarget::Window { len }, &[window.fd.as_fd()])?;
                    self.window = Some(window);
                }
                FromSource::Parts(parts) => self.parts(parts)?,
                FromSource::Stopping => {
                    let (frames, stopped_ns) = self.recall.tunnel.stop(self.recall.wait)?;
                    self.stopped_ns = stopped_ns;
                    let stopped = FromTarget::Stopped { frames };
                    transit::send(&self.stream, &stopped).map_err(lost)?;
                }
                FromSource::Frames(sent) if self.stopped_ns != 0 => frames = Some(sent),
                FromSource::Rest(rest) if !is_whole => {
                    let frames = frames.ok_or_else(|| broken("no count of its messages"))?;
                    let left = self.recall.tunnel.describe(frames)?;
                    self.finish()?;
                    self.rest(rest, left)?;
                    is_whole = true;
                }
                FromSource::Complete { bytes } if is_whole => {
                    self.finish()?;
                    return self.send(&ToTarget::Complete { bytes }, &[]);
                }
                FromSource::Stays(reason) => return Err(reason),
                _ => return Err(broken("an unexpected message")),
            }
        }
    }

    fn send(&self, message: &ToTarget, fds: &[BorrowedFd<'_>]) -> Result<(), String> {
        let sent = self.recall.executor.send(message, fds);
        sent.map_err(|e| self.refusal().unwrap_or_else(|| e.to_string()))
    }

    /// The reason for which the executor has closed the connection, if it has sent one.
    fn refusal(&self) -> Option<String> {
        loop {
            match next(&self.recall.executor).ok()?.0 {
                ToSource::Refused(reason) => return Some(reason),
                ToSource::Taken => {}
                ToSource::Prepared | ToSource::Started => return None,
            }
        }
    }

    fn plan(&self, mut plan: Plan) -> Result<(), String> {
        if plan.host_buffers {
            return Err(broken("buffers in memory of the other node"));
        }
        check_steps(&plan.steps)?;
        let kept = self.recall.kept;
        plan.mirror = kept.mirror;
        let more = [kept.socket.as_fd(), kept.segment.as_fd()];
        send_blob(
            &self.recall.executor,
            &plan,
            |len| ToTarget::Plan { len },
            &more,
        )?;
        self.prepared_first()
    }

    /// Waits until the executor has made what it can, and reports that to the relay.
    fn prepared(&mut self) -> Result<(), String> {
        self.finish()?;
        self.prepared_first()
    }

    fn prepared_first(&self) -> Result<(), String> {
        match next(&self.recall.executor)?.0 {
            ToSource::Prepared => {}
            ToSource::Refused(reason) => return Err(reason),
            _ => return Err("the executor broke the protocol".into()),
        }
        transit::send(&self.stream, &FromTarget::Prepared).map_err(lost)
    }

    /// Passes contents on.
    fn parts(&mut self, parts: Vec<Part>) -> Result<(), String> {
        let window = self.window.as_mut();
        let window = window.ok_or_else(|| broken("contents without a size"))?;
        let deadline = Instant::now() + transit::STEP;
        window.pass((&self.stream, deadline), &self.recall.executor, parts, lost)
    }

    /// Waits until the executor has taken all contents.
    fn finish(&mut self) -> Result<(), String> {
        match &mut self.window {
            Some(window) => window.finish(&self.recall.executor),
            None => Ok(()),
        }
    }

    /// Sends the stopped session: its objects as they are on the other node, and the program's end
    /// as it is here.
    fn rest(&self, theirs: Rest, mut left: Left) -> Result<(), String> {
        let arenas = std::mem::take(&mut left.rest.arenas);
        for part in arenas.chunks(FDS_MAX) {
            let states = part.iter().map(|(state, _)| *state).collect();
            let fds: Vec<_> = part.iter().map(|(_, file)| file.as_fd()).collect();
            self.send(&ToTarget::Arenas(states), &fds)?;
        }
        for part in left.rest.pending.chunks(FDS_MAX) {
            let fds: Vec<_> = part.iter().map(|fd| fd.as_fd()).collect();
            self.send(&ToTarget::Pending, &fds)?;
        }
        let state = joined(theirs, left, (self.stopped_ns, self.recall.kept.mirror))?;
        let executor = &self.recall.executor;
        send_blob(executor, &state, |len| ToTarget::State { len }, &[])
    }
}

/// The state of a session: its objects from the other node, everything of the program's rings from
/// this one.
fn joined(theirs: Rest, left: Left, (stopped_ns, mirror): (u64, bool)) -> Result<State, String> {
    let Rest {
        mut state, now_ns, ..
    } = theirs;
    let Left {
        rest,
        notices: (notices, printed),
        mut watched,
    } = left;
    check_steps(&state.steps)?;
    if state.queues.len() != rest.queues.len() {
        return Err("a queue is being made or released: try again later".into());
    }
    for step in &mut state.steps {
        let Ok(Control::Queue {
            id,
            context,
            device,
            properties,
            ..
        }) = decode(&step.record)
        else {
            continue;
        };
        let own = rest.queues.iter().find(|(queue, _)| queue.id == id);
        let (_, ring) = *own.ok_or_else(|| broken("a queue that the program does not have"))?;
        step.record = encoded(&Control::Queue {
            id,
            context,
            device,
            properties,
            ring,
        })?;
    }
    let mut printed = printed;
    if mirror {
        for notice in &mut state.unsent {
            if let Some(own) = relays::answered(notice) {
                *notice = own;
            }
        }
    }
    state
        .unsent
        .retain(|notice| match decode::<Notice>(notice) {
            Ok(Notice::Completed(completion)) => {
                let before = watched.len();
                watched.retain(|event| *event != completion.event);
                watched.len() < before
            }
            Ok(Notice::Printed(_)) => {
                printed += 1;
                true
            }
            _ => true,
        });
    // The program's times continue, on this node's clock.
    let ahead = now_ns.wrapping_sub(monotonic_ns()) as i64;
    let (control, controls) = rest.control;
    Ok(State {
        stopped_ns,
        control: (ring_position(control), controls),
        notices: (ring_position(notices), printed),
        slots: rest.slots,
        queues: rest.queues.into_iter().map(|(queue, _)| queue).collect(),
        watched,
        releases: rest.releases,
        clock_offset_ns: state.clock_offset_ns.wrapping_add(ahead),
        ..state
    })
}
