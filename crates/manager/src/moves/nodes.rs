//! Moves between nodes: a session goes to another node through a forwarder, which stays on the node
//! where its program runs ([`baltra_session::forwarder`]); there a relay receives it.

use super::WAIT_MAX;
use super::{cannot, Error, Moved, Moves, Order, Reserved, EARLIER_RELEASE};
use crate::accept::Door;
use crate::executors::{ExecutorAssignment, Process};
use crate::node::{Device, Node};
use crate::tenants::Peer;
use baltra_channel::Channel;
use baltra_ring::Locked;
use baltra_session::handshake;
use baltra_wire::executor::{Remote, ToExecutor};
use baltra_wire::{DeviceDescription, Hello, Refusal, Welcome};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A manager answers a forwarder within this: its executor may have to load the driver first.
const REACH_MAX: Duration = Duration::from_secs(30);

/// A session leaves within this, or another move of it may begin: longer than both ends wait.
const LEAVE_MAX: Duration = Duration::from_secs(180);

/// The terms of a request for a move.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Maximum time of commands in flight.
    pub wait: Duration,
    /// Whether it moves although facts differ that it may have read.
    pub force: bool,
}

/// A device of another node.
pub(super) struct Found {
    /// Its endpoint and name, for display.
    pub name: String,
    /// From its driver.
    pub description: Arc<DeviceDescription>,
}

/// A forwarder that looks for the device.
pub(super) struct Reaching {
    forwarder: u64,
    answer: Sender<Result<DeviceDescription, String>>,
}

impl Moves {
    /// A forwarder has found the device of another node, or has not.
    pub fn reached(&self, forwarder: u64, session: u64, found: Result<DeviceDescription, String>) {
        let reaching = self.reaching.locked();
        let own = reaching
            .get(&session)
            .filter(|own| own.forwarder == forwarder);
        if let Some(own) = own {
            // Nobody may wait any more.
            let _ = own.answer.send(found);
        }
    }

    /// A forwarder, or an executor that expects a session, has ended.
    pub(super) fn forget_nodes_of(&self, executor: u64) {
        let is_another = |own: &Reaching| own.forwarder != executor;
        self.reaching.locked().retain(|_, own| is_another(own));
        self.arriving.locked().retain(|_, own| *own != executor);
    }
}

impl Node {
    /// Moves a session to a device of another node. `authority`: a file of certificate authorities
    /// for TLS, or empty.
    pub(crate) fn send_session(
        self: &Arc<Self>,
        session: u64,
        to: Remote,
        authority: &str,
        Terms { wait, force }: Terms,
    ) -> Result<Moved, Error> {
        let began = Instant::now();
        let reserved = self.moves.reserve(session)?;
        let record = self.record(session)?;
        let name = format!("{to:?}");
        let refused = |why: &str| Error::Refused {
            session,
            device: name.clone(),
            why: why.to_owned(),
        };
        if let Some(why) = cannot(&record) {
            return Err(refused(why));
        }
        if self.is_draining() {
            return Err(refused("the manager is shutting down"));
        }
        let source = self.device(&record.device);
        let source = source.ok_or_else(|| Error::NoDevice(record.device.clone()))?;
        let source = source.clone();
        if source.options.image == crate::options::ImageKind::Exclusive {
            return Err(refused(
                "a device that holds one image at a time takes no part in moves",
            ));
        }
        let executor = record.executor;
        let from = source.pool.with(executor, |e| e.process.clone());
        if from.is_some_and(|process| !process.supports_moves()) {
            return Err(refused(EARLIER_RELEASE));
        }
        let forwarder = source.launch.forward(authority);
        let forwarder =
            forwarder.map_err(|e| refused(&format!("cannot start its forwarder: {e}")))?;
        let place = self.serve_kept(&source, &record.tenant, session, forwarder);
        let found = self.reach(session, to, &place).map_err(|why| refused(&why));
        let found = found.and_then(|description| {
            let description = Arc::new(description);
            let target = (name.as_str(), Some(description.clone()));
            self.compare_with(session, &record, &source, target, force)?;
            Ok(Found {
                name: name.clone(),
                description,
            })
        });
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                let _ = place.process.send(&ToExecutor::MoveDrop { session }, &[]);
                source.pool.session_ended(place.executor, session);
                return Err(error);
            }
        };
        let order = Order {
            session,
            record,
            source: source.clone(),
            target: source,
            place,
            file: None,
            remote: Some(found),
            wait,
        };
        self.carry_out(reserved, order, began)
    }

    /// Moves a session to a device of the pool, node/name; the registry has the node's address.
    /// `token`: of a tenant there.
    pub(crate) fn send_in_pool(
        self: &Arc<Self>,
        session: u64,
        to: &str,
        (token, authority): (String, &str),
        terms: Terms,
    ) -> Result<Moved, Error> {
        let refused = |why: String| Error::Refused {
            session,
            device: to.to_owned(),
            why,
        };
        let named = to.split_once('/');
        let (node, device) = named.ok_or_else(|| Error::NoDevice(to.to_owned()))?;
        if node == self.options.node.name {
            return self.move_session(session, device, terms.wait, terms.force);
        }
        let record = self.record(session)?;
        let link = self.registry.as_ref().ok_or_else(|| {
            refused(
                "this node is not in a pool: set 'node.registry', or name the other node's \
                 address, tls://HOST:PORT/NAME"
                    .into(),
            )
        })?;
        let endpoints = self.session_target(link, &record, to).map_err(refused)?;
        let is_remote = |e: &String| e.starts_with("tcp://") || e.starts_with("tls://");
        let endpoint = endpoints.into_iter().find(is_remote).ok_or_else(|| {
            refused(format!(
                "node '{node}' has no endpoint for sessions from other hosts (set 'listen.tcp' or \
                 'node.advertise' there)"
            ))
        })?;
        let remote = Remote {
            endpoint,
            device: device.to_owned(),
            token,
        };
        let moved = self.send_session(session, remote, authority, terms)?;
        Ok(Moved {
            to: to.to_owned(),
            ..moved
        })
    }

    /// Has a forwarder look for the device of another node.
    fn reach(
        &self,
        session: u64,
        to: Remote,
        place: &ExecutorAssignment,
    ) -> Result<DeviceDescription, String> {
        let (answer, found): (_, Receiver<_>) = channel();
        let reaching = Reaching {
            forwarder: place.executor,
            answer,
        };
        self.moves.reaching.locked().insert(session, reaching);
        let request = ToExecutor::Reach { session, to };
        let sent = place.process.send(&request, &[]);
        let found = match sent {
            Err(error) => Err(format!("its forwarder has ended: {error}")),
            Ok(()) => found.recv_timeout(REACH_MAX).unwrap_or_else(|error| {
                Err(match error {
                    RecvTimeoutError::Timeout => "the other node does not answer".into(),
                    RecvTimeoutError::Disconnected => "its forwarder has ended".into(),
                })
            }),
        };
        self.moves.reaching.locked().remove(&session);
        found
    }

    /// Has the executor of a session that has come from another node send it to its relay, whose
    /// hello this is: its forwarder takes it back, or sends it on.
    pub(crate) fn release_session(
        &self,
        stream: &UnixStream,
        hello: &Hello,
        door: Door,
    ) -> Result<(), Refusal> {
        let refused = |why: String| Refusal::NotAllowed(why);
        let session = match (door, hello.resume) {
            (Door::Relay, Some((session, _))) => session,
            _ => {
                return Err(Refusal::Malformed(
                    "only a relay has a session leave".into(),
                ))
            }
        };
        let tenant = self
            .tenants
            .identify(Peer::Remote, &hello.tenant, &hello.token);
        let tenant = tenant.map_err(|e| refused(e.to_string()))?;
        let reserved = self.moves.reserve(session);
        let reserved = reserved.map_err(|e| Refusal::Busy(e.to_string()))?;
        let record = self.record(session).map_err(|e| refused(e.to_string()))?;
        if record.tenant != tenant.name {
            return Err(refused(Error::NoSession(session).to_string()));
        }
        if let Some(why) = cannot(&record) {
            return Err(refused(why.into()));
        }
        let device = self.device(&record.device);
        let process = device.and_then(|d| d.pool.with(record.executor, |e| e.process.clone()));
        let process = process.ok_or_else(|| refused("its executor has ended".into()))?;
        if !process.is_current() {
            return Err(refused(EARLIER_RELEASE.into()));
        }
        self.leave(stream, &process, reserved)
            .map_err(|e| Refusal::Busy(format!("the session cannot leave: {e}")))
    }

    fn leave(
        &self,
        stream: &UnixStream,
        process: &Process,
        reserved: Reserved<'_>,
    ) -> std::io::Result<()> {
        let session = reserved.session;
        let (executors, relays) = Channel::pair()?;
        let out = ToExecutor::Leave {
            session,
            wait_ms: WAIT_MAX.as_millis() as u32,
        };
        process.send(&out, &[executors.as_fd()])?;
        let welcome = Welcome::again(session, [0; 16]);
        stream.set_write_timeout(Some(self.options.listen.hello_timeout()))?;
        handshake::answer(stream, &Ok(welcome), Some(&relays.into_fd()))?;
        // The relay closes the connection when the session has left, or stays.
        stream.set_read_timeout(Some(LEAVE_MAX))?;
        let _ = (&mut &*stream).read(&mut [0]);
        drop(reserved);
        Ok(())
    }

    /// A session of another node is about to arrive in an executor.
    pub(crate) fn expect_arrival(&self, executor: u64, session: u64) {
        self.moves.arriving.locked().insert(session, executor);
    }

    /// Whether a session that has started in an executor comes from another node.
    pub(super) fn has_arrived(&self, device: &Device, executor: u64, session: u64) -> bool {
        let mut arriving = self.moves.arriving.locked();
        if arriving.get(&session) != Some(&executor) {
            return false;
        }
        arriving.remove(&session);
        drop(arriving);
        let tenant = self.sessions().get(&session).map(|s| s.tenant.clone());
        let tenant = tenant.unwrap_or_default();
        self.accounts.count_session(&tenant, device.name());
        self.urge_registry();
        tracing::info!(
            session,
            tenant,
            device = device.name(),
            "session arrived from another node"
        );
        true
    }

    /// A session of another node has not arrived, if it was expected.
    pub(crate) fn arrival_failed(&self, device: &Device, executor: u64, session: u64, why: &str) {
        let mut arriving = self.moves.arriving.locked();
        if arriving.get(&session) != Some(&executor) {
            return;
        }
        arriving.remove(&session);
        drop(arriving);
        self.sessions().remove(&session);
        device.pool.session_ended(executor, session);
        tracing::info!(session, why, "a session of another node has not arrived");
    }
}
