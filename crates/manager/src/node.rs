//! State shared by the manager's threads: devices, sessions, tenants, accounts.

use crate::accounts::{Accounts, Metered};
use crate::budget::Budget;
use crate::configuration::Configuration;
use crate::drivers;
use crate::executors::{Description, Fault, Launch, Phase, Pool, PoolOptions, Process};
use crate::gate_thread::{Gate, Lease, TaskLimit};
use crate::images::Images;
use crate::loads::Loads;
use crate::moves::{Cost, Moves};
use crate::options::{DeviceOptions, ImageKind, Isolation, Options};
use crate::programs::Question;
use crate::registry::Link;
use crate::relay::Relays;
use crate::tenants::{Tenant, Tenants};
use baltra_gate::GateOptions;
use baltra_ring::Locked;
use baltra_sandbox::group::Groups;
use baltra_trace::Spans;
use baltra_wire::executor::{Cause, ToExecutor, ToManager};
use baltra_wire::opencl::DEVICE_MAX_COMPUTE_UNITS;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Instance of an adopted session until its executor has reported the client's description.
pub(crate) const UNNAMED: &str = "(of an earlier manager)";

/// Default of `task_ms` if a task that does not end would block other tenants: longer than any
/// kernel that is suited for sharing a device.
const TASK_MS: u64 = 30_000;

/// `contended_ms`, or its default.
fn contended_ms(options: &DeviceOptions) -> u64 {
    options.contended_ms.or(options.task_ms).unwrap_or(TASK_MS)
}

/// Number of slots if it is unlimited.
const SLOTS_MANY: usize = 1 << 16;

/// A device with its executors, gate and state.
pub struct Device {
    /// Its configuration.
    pub options: DeviceOptions,
    /// The library to load.
    pub driver: PathBuf,
    /// Its executors.
    pub pool: Pool,
    /// Its gate.
    pub gate: Gate,
    /// Its description from the driver.
    pub description: Description,
    /// Number of executors that ended unexpectedly.
    pub deaths: AtomicU64,
    /// Number of image changes.
    pub reconfigurations: AtomicU64,
    /// The loaded image, if the device holds one at a time.
    pub configuration: Configuration,
    /// The images of a board's regions.
    pub regions_held: crate::regions::Held,
    pub(crate) launch: Launch,
    /// Its executors' shares of its memory, with `memory_overcommit`.
    budget: Option<Budget>,
    slots: AtomicU64,
}

impl Device {
    fn new(
        options: &DeviceOptions,
        driver: PathBuf,
        groups: Option<Groups>,
        traces: bool,
        all: &Options,
    ) -> std::io::Result<Device> {
        let executors = &all.executors;
        let pool = Pool::new(PoolOptions {
            isolation: options.isolation,
            prestart: options.prestart.unwrap_or(executors.prestart),
            count_max: executors.count_max,
            start_timeout: Duration::from_millis(executors.start_timeout_ms),
            idle: Duration::from_secs(executors.idle_s),
        });
        let slots = match options.slots {
            0 => 1,
            n => n as usize,
        };
        let gate = Gate::start(
            &options.name,
            GateOptions {
                slots,
                policy: options.policy,
                quantum: options.quantum(),
                linger: Duration::from_micros(options.linger_us),
            },
        )?;
        let launch = Launch {
            program: executors.program.clone(),
            driver: driver.clone(),
            select: options.select.clone(),
            host_memory: options.host_memory,
            spin_us: executors.spin_us,
            sandbox: executors.sandbox,
            cache: all.paths.state.join("cache").join(&options.name),
            work: all.paths.executor_dirs(),
            adopt: all.paths.adopt_socket(),
            device: options.name.clone(),
            groups,
            traces,
            orphan_ms: options.orphan_ms,
            memory_overcommit: options.memory_overcommit,
            memory_bytes: options.memory_bytes,
            slice: options.slice(),
            contended_ms: contended_ms(options),
        };
        Ok(Device {
            options: options.clone(),
            driver,
            pool,
            gate,
            description: Description::default(),
            deaths: AtomicU64::new(0),
            reconfigurations: AtomicU64::new(0),
            configuration: Configuration::default(),
            regions_held: Default::default(),
            launch,
            budget: match options.memory_overcommit {
                Some(1) => None,
                _ => Some(Budget::new()?),
            },
            slots: AtomicU64::new(slots as u64),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// Number of executors that may use it concurrently.
    pub fn slots(&self) -> usize {
        self.slots.load(Ordering::Relaxed) as usize
    }

    /// Directory of the tenants' directories for compiled kernels.
    pub fn cache_dir(&self) -> &std::path::Path {
        &self.launch.cache
    }

    /// Whether the configuration lets a tenant use it.
    pub fn allows(&self, tenant: &str) -> bool {
        let allowed = &self.options.tenants;
        allowed.is_empty() || allowed.iter().any(|t| t == tenant)
    }

    /// Whether objects may leave its memory for the host's.
    pub fn overcommits(&self) -> bool {
        let options = &self.options;
        let description = self.description.get();
        description.is_some_and(|device| {
            device.overcommit(options.memory_overcommit, options.memory_bytes.is_some()) > 1
        })
    }

    /// Time limit of a task without a completed command.
    pub fn task_limit(&self, tenant_ms: Option<u64>) -> Option<TaskLimit> {
        let description = self.description.get();
        let is_cpu = description.as_ref().is_some_and(|d| d.is_cpu());
        let is_gpu = description.as_ref().is_some_and(|d| d.is_gpu());
        let by_kind = || {
            // Kernels on accelerators may take long, and are limited while others wait.
            let shared = self.options.isolation == Isolation::Device && is_cpu;
            if shared || is_gpu {
                TASK_MS
            } else {
                0
            }
        };
        let device_ms = self.options.task_ms.unwrap_or_else(by_kind);
        let shortest = [device_ms, tenant_ms.unwrap_or(0)]
            .into_iter()
            .filter(|ms| *ms > 0)
            .min();
        match (shortest, contended_ms(&self.options)) {
            (Some(ms), _) => Some(TaskLimit::Always(Duration::from_millis(ms))),
            (None, ms @ 1..) => Some(TaskLimit::Contended(Duration::from_millis(ms))),
            (None, 0) => None,
        }
    }

    /// Whether it is the host's processors and each executor serves one tenant, so that processor
    /// time is charged.
    fn counts_processors(&self, description: &baltra_wire::DeviceDescription) -> bool {
        self.options.isolation != Isolation::Device && description.is_cpu()
    }

    /// Sends a new executor what it needs before its first session: its slot of the memory's
    /// budget, and whether programs need permission for their image.
    pub(crate) fn introduce(&self, id: u64, process: &Process) {
        if let Some(budget) = &self.budget {
            budget.join(id, process);
        }
        if self.options.image == ImageKind::Exclusive {
            let digest = self.configuration.image();
            // If the message cannot be sent, no session can be sent either.
            let _ = process.send(&ToExecutor::Image { digest }, &[]);
        }
    }

    /// Number of its regions: on a board that programs share, the number that the board reports.
    pub fn regions(&self) -> u32 {
        if self.options.image == ImageKind::Exclusive || !self.options.is_board() {
            return 1;
        }
        // A board's driver reports each region as a compute unit.
        let description = self.description.get();
        let count = description.map_or(1, |board| board.number(DEVICE_MAX_COMPUTE_UNITS));
        count.clamp(1, u32::MAX.into()) as u32
    }

    /// Stores the driver's description, which determines the number of slots and the unit of their
    /// use.
    pub(crate) fn set_description(&self, description: baltra_wire::DeviceDescription) {
        let host = std::thread::available_parallelism().map_or(1, usize::from);
        if self.options.slots == 0 {
            let slots = match (self.options.isolation, description.is_cpu()) {
                (Isolation::Device, _) => SLOTS_MANY,
                (_, true) => host,
                (_, false) => 1,
            };
            self.slots.store(slots as u64, Ordering::Relaxed);
            self.gate.set_slots(slots);
        }
        if self.counts_processors(&description) {
            // The holder of a slot is a process with its own driver, which uses that many units.
            let units = description.number(DEVICE_MAX_COMPUTE_UNITS).max(1) as usize;
            self.gate
                .set_processors(host.min(self.slots().saturating_mul(units)));
        }
        self.description.set(description);
    }
}

/// A session, for operators.
#[derive(Clone, Debug)]
pub struct SessionRecord {
    /// Its tenant.
    pub tenant: String,
    /// Its device.
    pub device: String,
    /// The executor's number.
    pub executor: u64,
    /// The executor's process.
    pub executor_pid: u32,
    /// The client's description of itself.
    pub instance: String,
    /// The client's process; 0: it is on another host.
    pub pid: u32,
    /// The client's user.
    pub uid: u32,
    /// `unix` or `tcp`.
    pub transport: &'static str,
    /// Whether it is on the disk; its executor is its keeper.
    pub is_suspended: bool,
    /// The device of another node where it is; its executor is its forwarder.
    pub remote: Option<String>,
    /// The device that its program has used, if it is suspended: the driver may be another one
    /// when it continues.
    pub description: Option<Arc<baltra_wire::DeviceDescription>>,
    /// Its start.
    pub since: Instant,
}

impl SessionRecord {
    /// Whether it is on a device of this node, and not on one of another node.
    pub fn is_on(&self, device: &str) -> bool {
        self.device == device && self.remote.is_none()
    }
}

/// The state shared by the manager's threads.
pub struct Node {
    /// The configuration.
    pub options: Options,
    /// The devices, in the configuration's order.
    pub devices: Vec<Arc<Device>>,
    /// The tenants.
    pub tenants: Tenants,
    /// Their usage.
    pub accounts: Accounts,
    /// Accelerators' images.
    pub images: Images,
    /// Exporter of spans.
    pub spans: Spans,
    /// Relays of remote clients.
    pub relays: Arc<Relays>,
    /// The connection to the node's registry, if it has joined one.
    pub registry: Option<Arc<Link>>,
    /// Start of the manager.
    pub started: Instant,
    /// Images that operators load.
    pub(crate) loads: Loads,
    /// Sessions that move.
    pub(crate) moves: Moves,
    sessions: Mutex<BTreeMap<u64, SessionRecord>>,
    next: AtomicU64,
    /// The first of this manager's numbers; an earlier manager's are smaller.
    pub(crate) first: u64,
    draining: AtomicBool,
}

impl Node {
    /// Creates the node with its devices, and starts their gates.
    pub fn new(
        options: Options,
        generation: u64,
        tenants: Tenants,
        accounts: Accounts,
        images: Images,
        spans: Spans,
    ) -> anyhow::Result<Node> {
        let registry = Link::new(&options)?.map(Arc::new);
        let first = generation << 32 | 1;
        let groups = Groups::divide(options.executors.memory_bytes, options.executors.processes);
        let mut devices = Vec::new();
        let prober = options.executors.prober();
        let served = drivers::discover(&options.devices, &options.paths.vendors, &prober)?;
        for device in served {
            devices.push(Arc::new(Device::new(
                &device.options,
                device.driver,
                groups.clone(),
                spans.is_on(),
                &options,
            )?));
        }
        Ok(Node {
            options,
            devices,
            tenants,
            accounts,
            images,
            spans,
            relays: Arc::default(),
            registry,
            started: Instant::now(),
            sessions: Mutex::default(),
            // Numbers of an earlier manager's sessions are still in use by its executors.
            loads: Loads::default(),
            moves: Moves::default(),
            next: AtomicU64::new(first),
            first,
            draining: AtomicBool::new(false),
        })
    }

    /// Updates the accounts.
    pub(crate) fn read_leases(&self) {
        for device in &self.devices {
            for metered in device.pool.leases() {
                self.accounts.read(&metered);
            }
        }
    }

    /// A number that is unique on this node, also across restarts.
    pub fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The device with a name.
    pub fn device(&self, name: &str) -> Option<&Arc<Device>> {
        self.devices.iter().find(|d| d.name() == name)
    }

    /// The open sessions.
    pub fn sessions(&self) -> MutexGuard<'_, BTreeMap<u64, SessionRecord>> {
        self.sessions.locked()
    }

    /// Whether new sessions are rejected.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Rejects new sessions from now on.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Makes the node report recent changes to its registry soon, if it has one.
    pub(crate) fn urge_registry(&self) {
        if let Some(link) = &self.registry {
            link.urge();
        }
    }

    /// Whether every device has been probed or has failed.
    pub fn is_ready(&self) -> bool {
        let probed = |d: &Arc<Device>| d.description.get().is_some() || d.pool.failure().is_some();
        self.devices.iter().all(probed)
    }

    /// Applies a change of a tenant's share or limits to the gates.
    pub fn tenant_changed(&self, tenant: &Tenant) {
        let limit_ms = tenant.limits.or(self.options.limits).task_ms;
        for device in &self.devices {
            for metered in device.pool.leases() {
                if metered.lease.tenant == tenant.name {
                    let limit = device.task_limit(limit_ms);
                    device.gate.change(metered.lease.id, tenant.share(), limit);
                }
            }
        }
    }

    /// The executor's lease for a tenant, created if there is none.
    pub fn lease(
        &self,
        device: &Device,
        executor: u64,
        tenant: &Tenant,
    ) -> std::io::Result<Arc<Metered>> {
        let found = device
            .pool
            .with(executor, |e| e.leases.get(&tenant.name).cloned());
        match found {
            Some(Some(metered)) => return Ok(metered),
            Some(None) => {}
            None => return Err(std::io::ErrorKind::BrokenPipe.into()),
        }
        let lease = Lease::new(self.next_number(), &tenant.name)?;
        self.add_lease(device, executor, tenant, lease)
    }

    pub(crate) fn add_lease(
        &self,
        device: &Device,
        executor: u64,
        tenant: &Tenant,
        lease: Lease,
    ) -> std::io::Result<Arc<Metered>> {
        let process = device
            .pool
            .with(executor, |e| e.process.clone())
            .ok_or(std::io::ErrorKind::BrokenPipe)?;
        let counted = device.description.get();
        let counted = counted.is_some_and(|d| device.counts_processors(&d));
        let processor = counted.then_some(process.pid);
        let fresh = Arc::new(Metered::new(Arc::new(lease), device.name(), processor));
        let kept = device
            .pool
            .with(executor, |e| {
                let slot = e.leases.entry(tenant.name.clone());
                slot.or_insert(fresh.clone()).clone()
            })
            .ok_or(std::io::ErrorKind::BrokenPipe)?;
        // Two sessions of a tenant may race; the first one's lease is used.
        if Arc::ptr_eq(&kept, &fresh) {
            let limit_ms = tenant.limits.or(self.options.limits).task_ms;
            let name = tenant.name.clone();
            device.gate.add(
                fresh.lease.clone(),
                tenant.share(),
                device.task_limit(limit_ms),
                processor,
                move |fault, reason| process.kill_for(&name, fault, reason),
            );
        }
        Ok(kept)
    }

    /// Starts an executor and the thread that receives its messages.
    pub fn start_executor(self: &Arc<Self>, device: &Arc<Device>) {
        let id = self.next_number();
        match device.launch.start(id) {
            Ok(process) => self.serve(device, id, Arc::new(process), Phase::Starting),
            Err(error) => {
                tracing::error!(device = device.name(), %error, "cannot start an executor");
                device
                    .pool
                    .start_failed(format!("cannot start an executor: {error}"));
            }
        }
    }

    pub(crate) fn serve(
        self: &Arc<Self>,
        device: &Arc<Device>,
        id: u64,
        process: Arc<Process>,
        phase: Phase,
    ) {
        device.pool.add(id, process.clone(), phase);
        let node = self.clone();
        let device = device.clone();
        let spawned = std::thread::Builder::new()
            .name(format!("executor-{}", process.pid))
            .spawn({
                let process = process.clone();
                move || node.listen(&device, id, &process)
            });
        if let Err(error) = spawned {
            tracing::error!(%error, "cannot start an executor's thread");
            process.kill("the manager cannot start its thread");
        }
    }

    pub(crate) fn listen(self: &Arc<Self>, device: &Arc<Device>, id: u64, process: &Arc<Process>) {
        let mut failure = None;
        loop {
            match process.receive() {
                Ok(Some((message, fds))) => {
                    self.handle(device, id, process, (message, fds), &mut failure);
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(pid = process.pid, %error, "malformed message from an executor");
                    process.kill("it broke the control protocol");
                    break;
                }
            }
        }
        self.bury(device, id, process, failure);
    }

    fn handle(
        self: &Arc<Self>,
        device: &Arc<Device>,
        id: u64,
        process: &Arc<Process>,
        (message, fds): (ToManager, Vec<OwnedFd>),
        failure: &mut Option<String>,
    ) {
        // An executor may only send messages about its own sessions.
        let owns = |session| device.pool.with(id, |e| e.sessions.contains(&session)) == Some(true);
        match message {
            ToManager::Ready {
                device: mut description,
                ..
            } => {
                description.name = device.name().to_owned();
                device.set_description(*description);
                device.introduce(id, process);
                device.pool.ready(id);
                tracing::debug!(device = device.name(), pid = process.pid, "executor ready");
            }
            ToManager::SessionEnded { session, reason } => {
                if owns(session) {
                    device.pool.session_ended(id, session);
                    self.forget_session(id, session);
                    let unfinished = device.configuration.forget(session);
                    if let Some(digest) = unfinished {
                        let reason = "the session ended before its driver had loaded the image";
                        self.load_reported(device, &digest, reason);
                    }
                    self.urge_registry();
                    tracing::debug!(session, reason = clip(&reason), "session ended");
                }
            }
            ToManager::Failed { text } => {
                tracing::error!(
                    device = device.name(),
                    reason = clip(&text),
                    "the driver cannot be used"
                );
                *failure = Some(clip(&text).to_owned());
            }
            ToManager::Program {
                call,
                session,
                digest,
                kernels,
            } if owns(session) => {
                let question = Question {
                    call,
                    session,
                    digest,
                    kernels,
                    image: fds.into_iter().next(),
                };
                self.program(device, process, question);
            }
            ToManager::Unused { session, digest } if owns(session) => {
                device.configuration.leave(session, &digest);
            }
            ToManager::NotLoaded {
                session,
                digest,
                reason,
            } if owns(session) => {
                tracing::warn!(
                    session,
                    device = device.name(),
                    image = clip(&digest),
                    reason = clip(&reason),
                    "image not loaded"
                );
                device.configuration.not_loaded(session, &digest);
                self.load_reported(device, &digest, clip(&reason));
            }
            ToManager::Loaded { session, digest } if owns(session) => {
                self.loaded(device, session, &digest);
            }
            ToManager::Fetch {
                call,
                session,
                accelerator,
            } if owns(session) => self.fetch(device, process, call, &accelerator),
            ToManager::LoadEnded { call, error } => self.loads.end(id, call, clip(&error)),
            ToManager::InUse { session, digest } if owns(session) => {
                let tenant = self.sessions().get(&session).map(|s| s.tenant.clone());
                let known = tenant.is_some_and(|tenant| {
                    crate::images::is_digest(&digest)
                        && device.configuration.adopt(session, &tenant, &digest)
                });
                if !known {
                    tracing::warn!(
                        session,
                        image = clip(&digest),
                        "an adopted session uses an image that the device does not hold"
                    );
                }
            }
            ToManager::Named { session, instance } if owns(session) => {
                let mut open = self.sessions();
                // Once only: an executor cannot rename a session whose instance is known.
                let unnamed = |s: &&mut SessionRecord| s.instance == UNNAMED;
                if let Some(record) = open.get_mut(&session).filter(unnamed) {
                    let kept = crate::accept::INSTANCE_MAX;
                    record.instance = instance.chars().take(kept).collect();
                    drop(open);
                    self.urge_registry();
                }
            }
            ToManager::Traced { tasks, dropped } => {
                self.spans.lost(dropped);
                for task in tasks {
                    let tenant = owns(task.session)
                        .then(|| self.sessions().get(&task.session).map(|s| s.tenant.clone()))
                        .flatten();
                    match tenant {
                        Some(tenant) => {
                            crate::traces::export(&self.spans, device.name(), &tenant, &task)
                        }
                        None => self.spans.lost(1),
                    }
                }
            }
            ToManager::Failing {
                cause,
                session,
                reason,
            } => self.failing(device, id, (cause, session, clip(&reason))),
            ToManager::MoveBuilt { session } => self.moves.built(id, session, process),
            ToManager::Reached {
                session,
                device: found,
            } => {
                let found = found.map(|found| *found);
                self.moves.reached(id, session, found);
            }
            ToManager::MoveStarted {
                session,
                stopped_us,
                bytes,
                stopped_objects,
            } => {
                let cost = Cost {
                    stopped: Duration::from_micros(stopped_us),
                    bytes,
                    stopped_objects,
                };
                self.move_started(device, id, session, cost);
            }
            ToManager::MoveFailed { session, reason } => {
                self.arrival_failed(device, id, session, clip(&reason));
                self.moves.failed(id, session, clip(&reason));
            }
            ToManager::Described {
                call,
                sessions,
                is_last,
            } => self.moves.described(id, call, sessions, is_last),
            ToManager::FactsRead { call, facts } => self.moves.facts_read(id, call, facts),
            ToManager::Regions { held, loaded } => device.regions_held.set(id, held, loaded),
            // The session has ended.
            ToManager::Program { .. }
            | ToManager::Unused { .. }
            | ToManager::InUse { .. }
            | ToManager::NotLoaded { .. }
            | ToManager::Loaded { .. }
            | ToManager::Fetch { .. }
            | ToManager::Named { .. } => {}
            // Valid only as the first message of an adopted executor.
            ToManager::Adopt { .. }
            | ToManager::AdoptKeeper { .. }
            | ToManager::AdoptForwarder { .. } => {}
        }
    }

    /// Handles an executor that cannot continue because of a session's work.
    fn failing(&self, device: &Device, id: u64, (cause, session, reason): (Cause, u64, &str)) {
        let own = device.pool.with(id, |e| e.sessions.contains(&session)) == Some(true);
        let culprit = self.sessions().get(&session).filter(|_| own).cloned();
        let tenant = match &culprit {
            Some(culprit) => culprit.tenant.clone(),
            // The session has ended. The executor's tenant is empty if tenants share the executor.
            None => device
                .pool
                .with(id, |e| e.tenant.clone())
                .unwrap_or_default(),
        };
        let fault = match cause {
            Cause::Overdue => Fault::Overdue,
            Cause::ContextLost => Fault::ContextLost,
        };
        tracing::warn!(
            device = device.name(),
            tenant,
            session,
            instance = culprit.as_ref().map_or("", |s| s.instance.as_str()),
            cause = fault.name(),
            reason,
            "an executor failed"
        );
        device.pool.failing(id, &tenant, fault);
    }

    fn bury(&self, device: &Device, id: u64, process: &Process, failure: Option<String>) {
        let expected = device.pool.closed(id);
        let ended = process.finish();
        self.loads.executor_ended(id, &ended);
        device.regions_held.remove(id);
        if let Some(budget) = &device.budget {
            budget.leave(id);
        }
        let Some(executor) = device.pool.remove(id, failure, &ended) else {
            return;
        };
        for metered in executor.leases.values() {
            device.gate.remove(metered.lease.id);
            self.accounts.read(metered);
        }
        for session in &executor.sessions {
            self.forget_session(id, *session);
            if let Some(digest) = device.configuration.forget(*session) {
                let reason = format!("the executor exited while it loaded the image ({ended})");
                self.load_reported(device, &digest, &reason);
            }
        }
        self.moves.executor_ended(id);
        match process.ended_for() {
            Some((tenant, fault)) => device.pool.record_fault(tenant, fault),
            None if expected || executor.is_failing || process.was_killed() => {}
            // With several tenants the responsible one cannot be determined.
            None => {
                let mut tenants = executor.leases.keys();
                if let (Some(tenant), None) = (tenants.next(), tenants.next()) {
                    device.pool.record_fault(tenant, Fault::Crash);
                }
            }
        }
        if !expected {
            device.deaths.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                device = device.name(),
                pid = process.pid,
                tenant = executor.tenant,
                sessions = executor.sessions.len(),
                ended,
                killed = process.was_killed(),
                "an executor died"
            );
        }
    }
}

/// A peer's text, shortened for the log.
pub(crate) fn clip(text: &str) -> &str {
    let mut end = text.len().min(500);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
