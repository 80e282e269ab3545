//! Accepts clients: reads only their hello, and passes the session to an executor.

use crate::executors::{hand_over, Error as PoolError};
use crate::node::{Device, Node, SessionRecord};
use crate::tenants::{Error as TenantError, Peer, Tenant};
use baltra_channel::Channel;
use baltra_ring::peer::Peer as Caller;
use baltra_ring::{Locked, Segment, Unpoisoned};
use baltra_session::handshake::{self, ClientMemory};
use baltra_wire::executor::{SessionStart, ToExecutor};
use baltra_wire::{Hello, Purpose, Refusal, SessionFlags, Welcome, VERSION};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Maximum characters kept of a client's description of itself: an instance's name and its mark.
pub(crate) const INSTANCE_MAX: usize = 160;

/// The socket of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// The session socket: the client is identified by the user id that the kernel reports.
    Unix,
    /// The relay socket: a relay process represents a remote client, identified by its token.
    Relay,
    /// The token socket: the client is identified by its token, whatever its user id is.
    Token,
}

/// Bounds the number of connections that have not sent their hello yet.
struct Turnstile {
    inside: Mutex<usize>,
    left: Condvar,
    max: usize,
}

struct Ticket(Arc<Turnstile>);

impl Turnstile {
    fn enter(self: &Arc<Self>) -> Ticket {
        let mut inside = self.inside.locked();
        while *inside >= self.max {
            inside = self.left.wait(inside).unpoisoned();
        }
        *inside += 1;
        Ticket(self.clone())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        *self.0.inside.locked() -= 1;
        self.0.left.notify_one();
    }
}

/// Accepts connections until the process exits. Each connection has a thread until it is passed on.
pub fn serve(node: Arc<Node>, listener: UnixListener, door: Door) {
    let turnstile = Arc::new(Turnstile {
        inside: Mutex::new(0),
        left: Condvar::new(),
        max: node.options.listen.pending_max,
    });
    loop {
        let ticket = turnstile.enter();
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, most likely; other connections will release some.
                tracing::warn!(%error, "cannot accept a connection");
                std::thread::sleep(Duration::from_millis(50));
                continue;
            }
        };
        let node = node.clone();
        let spawned = std::thread::Builder::new()
            .name("hello".into())
            .stack_size(256 << 10)
            .spawn(move || {
                greet(&node, stream, door, ticket);
            });
        if let Err(error) = spawned {
            tracing::warn!(%error, "cannot start a connection's thread");
        }
    }
}

fn greet(node: &Arc<Node>, stream: UnixStream, door: Door, ticket: Ticket) {
    let hello = handshake::read_hello(&stream, node.options.listen.hello_timeout());
    drop(ticket);
    let outcome = match hello {
        Ok((_, Purpose::Arrive, _)) if door != Door::Relay => Err(Refusal::Malformed(
            "a session of another node arrives only over a network".into(),
        )),
        Ok((hello, Purpose::Leave, _)) => node.release_session(&stream, &hello, door),
        Ok((hello, purpose, brought)) => {
            let memory = match (purpose, brought) {
                (Purpose::Arrive, _) => Memory::Elsewhere,
                (_, Some(brought)) => Memory::Client(brought),
                (_, None) => Memory::New,
            };
            welcome(node, &stream, door, &hello, memory)
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(Refusal::Malformed(error.to_string()))
        }
        // The connection has ended: no answer can be sent.
        Err(error) => {
            tracing::debug!(%error, "a connection ended before its hello");
            return;
        }
    };
    if let Err(refusal) = outcome {
        tracing::debug!(%refusal, "refused a client");
        let _ = stream.set_write_timeout(Some(Duration::from_secs(1)));
        let _ = handshake::answer(&stream, &Err(refusal), None);
    }
}

fn welcome(
    node: &Arc<Node>,
    stream: &UnixStream,
    door: Door,
    hello: &Hello,
    memory: Memory,
) -> Result<(), Refusal> {
    if hello.version.major != VERSION.major {
        return Err(Refusal::Version {
            manager: VERSION,
            client: hello.version,
        });
    }
    let caller = Caller::of(stream).map_err(|e| {
        Refusal::NotAllowed(format!(
            "cannot read the user id of the client from its socket: {e}"
        ))
    })?;
    let peer = match door {
        Door::Unix => Peer::User(caller.uid),
        Door::Relay | Door::Token => Peer::Remote,
    };
    let tenant = node
        .tenants
        .identify(peer, &hello.tenant, &hello.token)
        .map_err(|error| match error {
            TenantError::NotAllowed(text) => Refusal::NotAllowed(text),
            other => Refusal::NotAllowed(other.to_string()),
        })?;
    own_instance(&tenant, &hello.instance)?;
    let limits = tenant.limits.or(node.options.limits);
    let mut welcome = Welcome {
        version: VERSION,
        session: 0,
        key: [0; 16],
        tenant: tenant.name.clone(),
        node: node.options.node.name.clone(),
        devices: Vec::new(),
        limits: limits.wire(),
        flags: SessionFlags {
            mirror: hello.mirror,
        },
    };
    if hello.device.is_empty() {
        let own = node.devices.iter().filter(|d| allows(d, &tenant));
        let described = own.filter_map(|d| description(node, d));
        welcome.devices = described.collect();
        let _ = stream.set_write_timeout(Some(node.options.listen.hello_timeout()));
        let _ = handshake::answer(stream, &Ok(welcome), None);
        return Ok(());
    }
    let device = choose(node, &hello.device, &tenant)?;
    let link = node.registry.as_ref();
    if let Some(why) = link.and_then(|l| l.refusal(device.name(), &hello.instance, tenant.owner()))
    {
        return Err(Refusal::Busy(format!("device '{}' {why}", device.name())));
    }
    if node.is_draining() {
        return Err(Refusal::Busy(
            "the manager is shutting down: connect again once it has restarted".into(),
        ));
    }
    welcome.limits.task_ms = device
        .task_limit(limits.task_ms)
        .and_then(|limit| limit.always())
        .map_or(0, |limit| limit.as_millis() as u64);
    let bell = match &memory {
        Memory::Client(brought) => brought.bell.as_ref(),
        Memory::New | Memory::Elsewhere => None,
    };
    if bell.is_some_and(|bell| !is_bell(bell)) {
        return Err(Refusal::Malformed(
            "the doorbell's descriptor is not an eventfd".into(),
        ));
    }
    let client = Client {
        tenant: &tenant,
        hello,
        memory,
        uid: caller.uid,
        pid: caller.pid.unwrap_or_default(),
        door,
        sessions_max: limits.sessions,
    };
    open(node, &device, stream, client, welcome)
}

/// The description; waits for it while the driver is being loaded for the first time.
fn description(node: &Node, device: &Device) -> Option<baltra_wire::DeviceDescription> {
    let deadline = Instant::now() + Duration::from_millis(node.options.executors.start_timeout_ms);
    loop {
        if let Some(description) = device.description.get() {
            return Some((*description).clone());
        }
        if device.pool.failure().is_some() || Instant::now() > deadline {
            return None;
        }
        device.pool.wait_change(Duration::from_millis(20));
    }
}

/// A tenant that is a part of another tenant is one instance, and cannot claim to be another one.
fn own_instance(tenant: &Tenant, description: &str) -> Result<(), Refusal> {
    let named = crate::registry::instance(description);
    if tenant.owner.is_empty() || named == Some(tenant.name.as_str()) {
        return Ok(());
    }
    Err(Refusal::NotAllowed(format!(
        "this token is valid for instance '{}' only: do not change BALTRA_INSTANCE",
        tenant.name
    )))
}

/// Whether both the device's and the tenant's configuration allow the combination.
pub(crate) fn allows(device: &Device, tenant: &Tenant) -> bool {
    device.allows(&tenant.name) && tenant.may_use(device.name())
}

fn choose(node: &Node, name: &str, tenant: &Tenant) -> Result<Arc<Device>, Refusal> {
    let named = node.device(name).filter(|d| allows(d, tenant));
    named.cloned().ok_or_else(|| {
        let own = node.devices.iter().filter(|d| allows(d, tenant));
        let names: Vec<&str> = own.map(|d| d.name()).collect();
        Refusal::NoDevice(format!(
            "'{}' is not here; tenant '{}' may use: {}",
            name.chars().take(64).collect::<String>().escape_debug(),
            tenant.name,
            if names.is_empty() {
                "none".into()
            } else {
                names.join(", ")
            }
        ))
    })
}

/// The location of a session's memory.
enum Memory {
    /// The manager makes the segment.
    New,
    /// A VM provides it.
    Client(ClientMemory),
    /// The session comes from another node: its relay makes it.
    Elsewhere,
}

/// The resources that a new session's executor and its client get.
enum SessionResources {
    /// A segment for both.
    Segment(OwnedFd),
    /// A socket between them, over which the session comes.
    Sockets(Channel, OwnedFd),
    /// The client has provided the memory.
    Nothing,
}

impl SessionResources {
    fn new(memory: &Memory) -> io::Result<SessionResources> {
        Ok(match memory {
            Memory::New => SessionResources::Segment(Segment::create()?.1),
            Memory::Client(_) => SessionResources::Nothing,
            Memory::Elsewhere => {
                let (executors, relays) = Channel::pair()?;
                SessionResources::Sockets(executors, relays.into_fd())
            }
        })
    }

    /// The descriptor that the client gets with its welcome.
    fn clients(&self) -> Option<&OwnedFd> {
        match self {
            SessionResources::Segment(segment) => Some(segment),
            SessionResources::Sockets(_, relays) => Some(relays),
            SessionResources::Nothing => None,
        }
    }
}

struct Client<'a> {
    tenant: &'a Tenant,
    hello: &'a Hello,
    memory: Memory,
    uid: u32,
    /// The client's process; 0: unknown, because it is in another PID namespace.
    pid: u32,
    door: Door,
    sessions_max: Option<u32>,
}

fn open(
    node: &Arc<Node>,
    device: &Arc<Device>,
    stream: &UnixStream,
    client: Client<'_>,
    mut welcome: Welcome,
) -> Result<(), Refusal> {
    let broken = |error: io::Error| Refusal::Busy(format!("cannot create a session: {error}"));
    let tenant = client.tenant;
    let session = node.next_number();
    welcome.session = session;
    getrandom::fill(&mut welcome.key).map_err(|e| Refusal::Busy(e.to_string()))?;
    let made = SessionResources::new(&client.memory).map_err(broken)?;
    register(node, device, session, &client)?;

    // An executor may die between selection and use; then another one is selected.
    let mut tries = 0;
    let done = loop {
        let place = match device.pool.place(&tenant.name, session) {
            Ok(place) => place,
            Err(error @ (PoolError::Driver(_) | PoolError::Closed)) => {
                break Err(Refusal::NoDevice(format!("'{}': {error}", device.name())));
            }
            Err(error) => break Err(Refusal::Busy(error.to_string())),
        };
        if let Some(record) = node.sessions().get_mut(&session) {
            record.executor = place.executor;
            record.executor_pid = place.process.pid;
        }
        if welcome.devices.is_empty() {
            let description = device.description.get();
            welcome.devices = description.map(|d| (*d).clone()).into_iter().collect();
        }
        let handed = node
            .lease(device, place.executor, tenant)
            .and_then(|metered| {
                let start = SessionStart {
                    session,
                    tenant: tenant.name.clone(),
                    limits: welcome.limits,
                    flags: welcome.flags,
                    lease: metered.lease.id,
                    instance: instance(client.hello),
                };
                let lease = &metered.lease;
                let leases = [lease.page.as_fd(), lease.bell.as_fd()];
                let (start, mut fds) = match (&made, &client.memory) {
                    (SessionResources::Sockets(executors, _), _) => {
                        node.expect_arrival(place.executor, session);
                        (ToExecutor::MoveIn(start), vec![executors.as_fd()])
                    }
                    (SessionResources::Segment(segment), _) => {
                        let fds = vec![stream.as_fd(), segment.as_fd()];
                        (ToExecutor::Session(start), fds)
                    }
                    (SessionResources::Nothing, Memory::Client(own)) => {
                        let fds = vec![stream.as_fd(), own.memory.as_fd()];
                        (ToExecutor::Sharing(start, own.share), fds)
                    }
                    (SessionResources::Nothing, _) => {
                        unreachable!("made unless a client provides it")
                    }
                };
                fds.extend(leases);
                if let Memory::Client(own) = &client.memory {
                    fds.extend(own.bell.iter().map(AsFd::as_fd));
                }
                let cache = cache_dir(device, tenant);
                hand_over(&place, tenant, &cache, &start, &fds)
            });
        match handed {
            Ok(()) => break Ok(place),
            Err(error) if tries < 3 => {
                tries += 1;
                tracing::warn!(pid = place.process.pid, %error, "an executor does not accept a session");
                place.process.kill("it does not accept a session");
                device.pool.forget(place.executor, session);
            }
            Err(error) => break Err(broken(error)),
        }
    };
    match done {
        Ok(place) => {
            if !matches!(made, SessionResources::Sockets(..)) {
                node.accounts.count_session(&tenant.name, device.name());
                node.urge_registry();
            }
            tracing::debug!(
                session,
                tenant = tenant.name,
                device = device.name(),
                executor = place.process.pid,
                "session opened"
            );
            // If the client has disconnected, the executor detects it.
            let _ = stream.set_write_timeout(Some(node.options.listen.hello_timeout()));
            let _ = handshake::answer(stream, &Ok(welcome), made.clients());
            let _ = stream.set_write_timeout(None);
            Ok(())
        }
        Err(refusal) => {
            node.sessions().remove(&session);
            Err(refusal)
        }
    }
}

fn register(
    node: &Node,
    device: &Device,
    session: u64,
    client: &Client<'_>,
) -> Result<(), Refusal> {
    let mut sessions = node.sessions();
    let all = node.options.listen.sessions_max;
    if sessions.len() >= all {
        return Err(Refusal::Busy(format!(
            "{all} sessions are open on this node: close one, or raise 'listen.sessions_max'"
        )));
    }
    let name = &client.tenant.name;
    if let Some(max) = client.sessions_max {
        let own = sessions.values().filter(|s| s.tenant == *name).count();
        if own >= max as usize {
            return Err(Refusal::Busy(format!(
                "tenant '{name}' has reached its limit of {max} open sessions: close one, or ask the operator (`baltra tenant quota {name} --sessions N`)"
            )));
        }
    }
    let record = SessionRecord {
        tenant: name.clone(),
        device: device.name().to_owned(),
        executor: 0,
        executor_pid: 0,
        instance: instance(client.hello),
        pid: client.pid,
        uid: client.uid,
        transport: match (client.door, &client.memory) {
            (_, Memory::Client(_)) => "ivshmem",
            (Door::Unix | Door::Token, _) => "unix",
            (Door::Relay, _) => "tcp",
        },
        is_suspended: false,
        remote: None,
        description: None,
        since: Instant::now(),
    };
    sessions.insert(session, record);
    Ok(())
}

/// Whether a descriptor is an eventfd: waiting on another kind may block indefinitely.
fn is_bell(bell: &OwnedFd) -> bool {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", bell.as_raw_fd()));
    link.is_ok_and(|link| link.as_os_str() == "anon_inode:[eventfd]")
}

/// The client's description of itself.
fn instance(hello: &Hello) -> String {
    hello.instance.chars().take(INSTANCE_MAX).collect()
}

/// Directory of a tenant's compiled kernels; empty if it cannot be created.
pub(crate) fn cache_dir(device: &Device, tenant: &Tenant) -> String {
    use std::os::unix::fs::DirBuilderExt;
    let path = device.cache_dir().join(&tenant.name);
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&path);
    match made {
        Ok(()) => path.to_string_lossy().into_owned(),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "cannot create a cache for compiled kernels");
            String::new()
        }
    }
}
