//! The forwarder of a session that has moved to another node: a process without a driver on the
//! node where its program runs, which takes the executor's place at the program's rings.
//!
//! To an executor, the forwarder is the other end of a move ([`baltra_wire::moves`]), as the keeper of
//! a suspended session is. It sends what it receives to a relay on the other node
//! ([`baltra_wire::transit`]), and once the session is built there, it carries the program's messages
//! over the same connection, as the library of a program over a network does ([`crate::tcp`]).
//!
//! The session is in one place at any time: the source has it until the forwarder reports that it
//! has started, and the other node runs nothing of it before the forwarder's first message.
//!
//! The session returns, or goes on to a third node, in a move whose source is the forwarder
//! ([`recall`]).

mod departure;
mod recall;

use crate::client::{Client, ConnectError, Peer};
use crate::tcp::dial::{self, Dialer};
use crate::tcp::stream::Stream;
use crate::tcp::tunnel::Tunnel;
use crate::tcp::OPEN_TIMEOUT;
use crate::Endpoint;
use baltra_channel::{Channel, Manager};
use baltra_ring::lease::monotonic_ns;
use baltra_wire::executor::{Remote, SessionFacts, SessionStart, ToExecutor, ToManager};
use baltra_wire::moves::ToSource;
use baltra_wire::{DeviceDescription, Hello, Purpose, Version, VERSION};
use departure::{Departure, Kept};
use recall::Recall;
use rustix::net::Shutdown;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::Builder;
use std::time::{Duration, Instant};

/// The first version whose nodes accept sessions of other nodes.
const ARRIVALS: Version = Version { major: 1, minor: 7 };
/// The first version whose nodes send such sessions back.
const RETURNS: Version = Version { major: 1, minor: 8 };

/// Options of a forwarder.
#[derive(Clone, Debug)]
pub struct Options {
    /// The device that the session was on.
    pub name: String,
    /// Socket for reconnecting to a new manager after the manager has exited.
    pub adopt: Option<PathBuf>,
}

/// Runs the forwarder until its session has ended. `control`: the socket to the manager.
pub fn run(control: OwnedFd, options: Options) -> io::Result<()> {
    let mut forwarder = Forwarder {
        name: options.name,
        manager: Manager::new(Channel::new(control), options.adopt),
        target: None,
        session: None,
    };
    while !forwarder.step()? {}
    Ok(())
}

/// The place where the session goes.
struct Target {
    remote: Remote,
    dialer: Dialer,
    hello: Hello,
    version: Version,
}

/// The session.
enum Session {
    /// It is built on the other node; the source decides whether it goes there.
    Built(Box<Departure>),
    /// It is there.
    Away(Box<Away>),
}

/// A session that is on the other node.
struct Away {
    start: SessionStart,
    tunnel: Arc<Tunnel>,
    kept: Kept,
    /// Resumes the session there.
    hello: Hello,
}

struct Forwarder {
    /// The device that the session was on.
    name: String,
    manager: Manager,
    target: Option<Target>,
    session: Option<Session>,
}

impl Forwarder {
    /// Waits for the next event and handles it; true: nothing is left to do.
    fn step(&mut self) -> io::Result<bool> {
        // Until it is decided, the source watches the client. Its socket is also closed when the
        // session was lost.
        let client = match &self.session {
            Some(Session::Away(away)) => Some(away.kept.socket.as_fd()),
            _ => None,
        };
        let found = self.manager.wait(client)?;
        if found.client_gone {
            return Ok(self.end("the client disconnected"));
        }
        if found.message {
            return Ok(self.receive());
        }
        if !self.manager.is_there() {
            if !matches!(self.session, Some(Session::Away(_))) {
                // The source continues the session.
                return Ok(true);
            }
            self.call_manager();
        }
        Ok(false)
    }

    /// Ends the session on both nodes, unless its source continues it.
    fn end(&mut self, reason: &str) -> bool {
        if let Some(Session::Away(away)) = self.session.take() {
            let Away {
                start,
                tunnel,
                kept,
                ..
            } = *away;
            let reason = tunnel.failure().unwrap_or_else(|| reason.to_owned());
            tunnel.close();
            // It may be gone already.
            let _ = rustix::net::shutdown(&*kept.socket, Shutdown::Both);
            let session = start.session;
            self.manager
                .send(&ToManager::SessionEnded { session, reason });
        }
        true
    }

    /// Carries out the manager's next message; true: nothing is left to do.
    fn receive(&mut self) -> bool {
        let Some((message, fds)) = self.manager.receive() else {
            return false;
        };
        match message {
            ToExecutor::Reach { session, to } => {
                self.reach(session, to);
                false
            }
            ToExecutor::MoveIn(start) if self.session.is_none() => self.move_in(start, fds),
            ToExecutor::MoveGo { session } if self.has(session) => self.go(),
            // The source continues the session, unless it is away already.
            ToExecutor::MoveDrop { .. } => !matches!(self.session, Some(Session::Away(_))),
            ToExecutor::MoveOut {
                session, wait_ms, ..
            } => self.move_out(session, Duration::from_millis(wait_ms.into()), fds),
            ToExecutor::Describe { call } => {
                self.describe(call);
                false
            }
            ToExecutor::AskFacts { call, session } => {
                let facts = match &self.session {
                    Some(Session::Away(away)) if self.has(session) => away.tunnel.facts_read(),
                    _ => None,
                };
                self.manager.send(&ToManager::FactsRead { call, facts });
                false
            }
            ToExecutor::End { session, reason } if self.has(session) => self.end(&reason),
            ToExecutor::Exit => self.end("the manager is shutting down"),
            _ => false,
        }
    }

    /// Has the session return to an executor of this node, or go on to another node; true: it has.
    fn move_out(&mut self, session: u64, wait: Duration, fds: Vec<OwnedFd>) -> bool {
        let moved = match (&self.session, &self.target, fds.into_iter().next()) {
            (Some(Session::Away(away)), Some(target), Some(executor))
                if away.start.session == session =>
            {
                let recall = Recall {
                    kept: &away.kept,
                    tunnel: &away.tunnel,
                    executor: Channel::new(executor),
                    wait,
                };
                recall.run(target, &away.hello)
            }
            _ => Err("it is not there".into()),
        };
        match moved {
            Ok(()) => {
                self.session = None;
                let reason = "it continues elsewhere".into();
                self.manager
                    .send(&ToManager::SessionEnded { session, reason });
                true
            }
            Err(reason) => {
                self.manager
                    .send(&ToManager::MoveFailed { session, reason });
                false
            }
        }
    }

    fn has(&self, session: u64) -> bool {
        match &self.session {
            Some(Session::Built(departure)) => departure.start.session == session,
            Some(Session::Away(away)) => away.start.session == session,
            None => false,
        }
    }

    /// Asks the other node for its device.
    fn reach(&mut self, session: u64, to: Remote) {
        let found = find(&to);
        let device = found.map(|(target, description)| {
            self.target = Some(target);
            Box::new(description)
        });
        self.manager.send(&ToManager::Reached { session, device });
    }

    /// Sends a session that its executor sends to the other node.
    fn move_in(&mut self, start: SessionStart, fds: Vec<OwnedFd>) -> bool {
        let session = start.session;
        let failed = |reason: &str| Err(reason.to_owned());
        let built = match (fds.into_iter().next(), self.target.as_mut()) {
            (None, _) => failed("the manager sent no socket"),
            (_, None) => failed("the manager named no place"),
            (Some(source), Some(target)) => {
                target.hello.instance.clone_from(&start.instance);
                departure::send(start, Channel::new(source), target)
            }
        };
        match built {
            Ok(departure) => {
                self.session = Some(Session::Built(Box::new(departure)));
                self.manager.send(&ToManager::MoveBuilt { session });
                false
            }
            Err(reason) => {
                self.manager
                    .send(&ToManager::MoveFailed { session, reason });
                true
            }
        }
    }

    /// The session is on the other node from now on, unless its source has changed its mind.
    fn go(&mut self) -> bool {
        let departure = match self.session.take() {
            Some(Session::Built(departure)) => *departure,
            other => {
                self.session = other;
                return self.session.is_none();
            }
        };
        let session = departure.start.session;
        // The report decides; if it cannot be sent, the source continues the session.
        if departure.source.send(&ToSource::Started, &[]).is_err() {
            let reason = "its executor has ended, or changed its mind".to_owned();
            self.manager
                .send(&ToManager::MoveFailed { session, reason });
            return true;
        }
        let (bytes, stopped_ns) = (departure.bytes, departure.stopped_ns);
        let stopped_objects = departure.stopped_objects;
        let (start, hello) = (departure.start.clone(), departure.hello.clone());
        let socket = departure.kept.socket.clone();
        match departure.begin() {
            Ok((tunnel, kept)) => self.session = Some(self.away(start, tunnel, kept, hello)),
            Err(error) => {
                let _ = rustix::net::shutdown(&*socket, Shutdown::Both);
                let reason = format!("its messages cannot be carried: {error}");
                self.manager
                    .send(&ToManager::MoveFailed { session, reason });
                return true;
            }
        }
        self.manager.send(&ToManager::MoveStarted {
            session,
            stopped_us: monotonic_ns().saturating_sub(stopped_ns) / 1000,
            bytes,
            stopped_objects,
        });
        false
    }

    /// The session is away; the client sees its end there as that of an executor.
    fn away(&self, start: SessionStart, tunnel: Tunnel, kept: Kept, hello: Hello) -> Session {
        let tunnel = Arc::new(tunnel);
        let (ours, client) = (tunnel.clone(), kept.socket.clone());
        let watch = move || {
            ours.wait_for_end();
            if ours.is_retired() {
                return;
            }
            let _ = rustix::net::shutdown(&*client, Shutdown::Both);
        };
        let name = Builder::new().name("baltra-end".into());
        if let Err(error) = name.spawn(watch) {
            tracing::warn!(%error, "the end of the other node will not be noticed");
        }
        Session::Away(Box::new(Away {
            start,
            tunnel,
            kept,
            hello,
        }))
    }

    fn describe(&mut self, call: u64) {
        let facts = match &self.session {
            Some(Session::Away(away)) => Some(SessionFacts {
                session: away.start.session,
                queues: away.tunnel.queues() as u32,
                ..SessionFacts::default()
            }),
            _ => None,
        };
        self.manager.send(&ToManager::Described {
            call,
            sessions: facts.into_iter().collect(),
            is_last: true,
        });
    }

    /// Looks whether a new manager has come, and reports to it.
    fn call_manager(&mut self) {
        let Some(Session::Away(away)) = &self.session else {
            return;
        };
        let remote = self.target.as_ref().map(|target| &target.remote);
        self.manager.report(ToManager::AdoptForwarder {
            device: self.name.clone(),
            session: away.start.clone(),
            remote: remote.map(|r| format!("{r:?}")).unwrap_or_default(),
        });
    }
}

/// Finds the device of another node.
fn find(to: &Remote) -> Result<(Target, DeviceDescription), String> {
    let endpoint: Endpoint = to.endpoint.parse().map_err(|e| format!("{e}"))?;
    let Endpoint::Tcp { host, port, tls } = &endpoint else {
        return Err(format!("{endpoint} is not an address of another node"));
    };
    let dialer = Dialer {
        host: host.clone(),
        port: *port,
        tls: *tls,
    };
    let hello = Hello {
        version: VERSION,
        token: to.token.clone(),
        ..Hello::default()
    };
    let listed = Client::list(&endpoint, hello.clone());
    let listed = listed.map_err(|e| reason(&e))?;
    if listed.version < ARRIVALS {
        return Err(format!(
            "its manager has version {} of the session protocol, which receives no sessions of \
             other nodes: install this release there",
            listed.version
        ));
    }
    let names: Vec<_> = listed.devices.iter().map(|d| d.name.clone()).collect();
    let device = listed.devices.into_iter().find(|d| d.name == to.device);
    let device = device.ok_or_else(|| {
        format!(
            "there is no device '{}' at {endpoint}; tenant '{}' may use: {}",
            to.device,
            listed.tenant,
            names.join(", ")
        )
    })?;
    let hello = Hello {
        device: to.device.clone(),
        ..hello
    };
    let target = Target {
        remote: to.clone(),
        dialer,
        hello,
        version: listed.version,
    };
    Ok((target, device))
}

fn reason(error: &ConnectError) -> String {
    match error {
        ConnectError::Io { source, .. } => format!("{error}: {source}"),
        ConnectError::Refused { .. } => error.to_string(),
    }
}

impl Target {
    /// A connection to a relay that receives the session, and the hello that resumes it.
    fn open(&self) -> Result<(Stream, Hello), String> {
        let failed = |e: io::Error| format!("the other node cannot be reached: {e}");
        let (stream, deadline) = self.dialer.connect().map_err(failed)?;
        let answer_by = Instant::now() + OPEN_TIMEOUT;
        let hello = (&self.hello, Purpose::Arrive);
        let answer = dial::hello(&stream, &hello, deadline, answer_by).map_err(failed)?;
        let welcome = answer.map_err(|refusal| format!("the other node refused: {refusal}"))?;
        let resuming = Hello {
            resume: Some((welcome.session, welcome.key)),
            ..self.hello.clone()
        };
        Ok((stream, resuming))
    }

    /// A further connection to the relay, over which the session that `resuming` names leaves.
    fn open_leaving(&self, resuming: &Hello) -> Result<Stream, String> {
        if self.version < RETURNS {
            return Err(format!(
                "its manager has version {} of the session protocol, which sends no sessions back: \
                 install this release there",
                self.version
            ));
        }
        let failed = |e: io::Error| format!("the other node cannot be reached: {e}");
        let (stream, deadline) = self.dialer.connect().map_err(failed)?;
        let hello = (resuming, Purpose::Leave);
        let answer = dial::hello(&stream, &hello, deadline, deadline).map_err(failed)?;
        answer.map_err(|refusal| format!("the other node refused: {refusal}"))?;
        Ok(stream)
    }
}
