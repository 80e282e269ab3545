//! A session that leaves this node: its executor sends it to the relay, and the relay to its
//! forwarder, over a connection of its own. The session's own connection carries messages until
//! nothing of it is outstanding, and after that if the session stays.

use super::outbound;
use super::state::{Awaited, State};
use super::{inbound::OWN_CALL, Options, Session};
use crate::handshake;
use crate::tcp::stream::Stream;
use crate::transit::outgoing::Outgoing;
use crate::transit::{self, next, read_file};
use baltra_channel::Channel;
use baltra_ring::lease::monotonic_ns;
use baltra_wire::moves::{ToSource, ToTarget};
use baltra_wire::transit::{FromSource, FromTarget, Rest};
use baltra_wire::{Control, Hello, Request, Welcome};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Polling interval of the connection's count.
const LOOK: Duration = Duration::from_micros(200);

/// The way to the manager, which has the session's executor send it.
pub(super) struct Way {
    manager: PathBuf,
    /// Identifies the session.
    hello: Hello,
    /// Held while the session leaves.
    busy: Mutex<()>,
}

impl Way {
    pub fn new(options: &Options, hello: &Hello, welcome: &Welcome) -> Way {
        Way {
            manager: options.manager.clone(),
            hello: Hello {
                resume: Some((welcome.session, welcome.key)),
                ..hello.clone()
            },
            busy: Mutex::default(),
        }
    }
}

/// Has the session leave over `stream`, in a thread.
pub(super) fn spawn(session: Arc<Session>, stream: Stream) {
    let name = Builder::new().name("baltra-leave".into());
    // Without a thread the connection closes, and the session stays.
    let _ = name.spawn(move || {
        if let Err(reason) = leave(&session, &stream) {
            tracing::info!(reason, "a session stays");
            // The forwarder may have ended.
            let _ = transit::send(&stream, &FromSource::Stays(reason));
        }
    });
}

/// On an error the session stays.
fn leave(session: &Session, stream: &Stream) -> Result<(), String> {
    let way = session.leaving.as_ref();
    let way = way.ok_or("it has not come from another node")?;
    let _busy = way.busy.try_lock().map_err(|_| "it is leaving already")?;
    let (_manager, source) = way.request_executor()?;
    let mut leaving = Leaving {
        session,
        way: Outgoing::new(&source, stream),
    };
    leaving.run()
}

impl Way {
    /// The manager's socket, which stays open while the session leaves, and the executor's.
    fn request_executor(&self) -> Result<(UnixStream, Channel), String> {
        let failed = |e: std::io::Error| format!("the Device Manager does not answer: {e}");
        let manager = UnixStream::connect(&self.manager).map_err(failed)?;
        let (answer, executor) = handshake::hello_leaving(&manager, &self.hello).map_err(failed)?;
        answer.map_err(|refusal| refusal.to_string())?;
        let executor = executor.ok_or("the Device Manager sends no socket")?;
        let executor = Channel::new(executor);
        transit::limit(&executor).map_err(failed)?;
        Ok((manager, executor))
    }
}

struct Leaving<'a> {
    session: &'a Session,
    way: Outgoing<'a>,
}

impl Leaving<'_> {
    fn run(&mut self) -> Result<(), String> {
        let mut is_stopped = false;
        loop {
            let (message, fds) = next(self.way.source)?;
            match message {
                ToTarget::Plan { len } => {
                    self.way.send(&FromSource::Plan(read_file(fds, len)?))?;
                    self.way.prepared()?;
                }
                // They are this process's.
                ToTarget::Arenas(_) | ToTarget::Pending => {}
                ToTarget::Window { len } => self.way.window(&fds, len)?,
                ToTarget::Parts(parts) => {
                    self.way.send_parts(parts)?;
                    self.way.report(ToSource::Taken)?;
                }
                ToTarget::Stopping => {
                    self.way.send(&FromSource::Stopping)?;
                    let FromTarget::Stopped { frames } = self.way.answer()? else {
                        return Err("the other node broke the protocol".into());
                    };
                    self.process(frames)?;
                    self.way.report(ToSource::Prepared)?;
                    is_stopped = true;
                }
                ToTarget::State { len } => {
                    let mut state: baltra_wire::moves::State = read_file(fds, len)?;
                    if state.stopped_ns == 0 {
                        self.way.send(&FromSource::Ahead(state))?;
                        self.way.prepared()?;
                        continue;
                    }
                    if !is_stopped {
                        return Err("its executor broke the protocol".into());
                    }
                    check(&state)?;
                    let frames = outbound::carry_all(self.session, Instant::now() + transit::STEP)?;
                    state.unsent.retain(|notice| outbound::is_clients(notice));
                    self.way.send(&FromSource::Frames(frames))?;
                    self.way.send(&FromSource::Rest(Rest {
                        state,
                        event_parts: 0,
                        now_ns: monotonic_ns(),
                    }))?;
                }
                ToTarget::Complete { bytes } => {
                    self.way.send(&FromSource::Complete { bytes })?;
                    return match self.way.answer()? {
                        // The executor may have ended.
                        FromTarget::Built => self.way.report(ToSource::Started),
                        _ => Err("the other node broke the protocol".into()),
                    };
                }
            }
        }
    }

    /// Waits until `frames` frames were received, and the executor has processed their messages.
    fn process(&self, frames: u64) -> Result<(), String> {
        let deadline = Instant::now() + transit::STEP;
        while self.session.link.received() < frames {
            if self.session.is_over() || Instant::now() > deadline {
                return Err("its messages have not arrived".into());
            }
            std::thread::sleep(LOOK);
        }
        let (signal, processed) = channel();
        let call = reserve(
            &mut self.session.state(),
            Awaited::Processed { _signal: signal },
        );
        let request = Request::Sync;
        let sent = self
            .session
            .client
            .control(&Control::Call { call, request });
        sent.map_err(|lost| lost.to_string())?;
        match processed.recv_timeout(transit::STEP) {
            Err(RecvTimeoutError::Timeout) => Err("its executor does not answer".into()),
            _ => Ok(()),
        }
    }
}

/// A number for a call, from the end that [`super::inbound::Inbound::reserve`] reaches last.
fn reserve(state: &mut State, awaited: Awaited) -> baltra_wire::Call {
    let free = |call: &baltra_wire::Call| !state.awaited.contains_key(call);
    let call = (OWN_CALL..=baltra_wire::Call::MAX).rev().find(free);
    let call = call.unwrap_or(OWN_CALL);
    state.awaited.insert(call, awaited);
    call
}

/// Whether nothing of a stopped session waits in its executor.
fn check(state: &baltra_wire::moves::State) -> Result<(), String> {
    let is_idle = |queue: &baltra_wire::moves::QueueState| {
        queue.held.is_none() && queue.open.is_empty() && queue.released.is_none()
    };
    if state.releases.is_empty() && state.queues.iter().all(is_idle) {
        return Ok(());
    }
    Err("an object that its program has released is in use: try again later".into())
}
