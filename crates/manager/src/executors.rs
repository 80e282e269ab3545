//! A device's executors: started in advance, assigned to tenants, and watched for their end.

mod faults;
pub mod leftovers;
mod process;

pub use faults::{Fault, Faults};
pub use process::{Launch, Process};

use crate::accounts::Metered;
use crate::options::Isolation;
use crate::tenants::Tenant;
use baltra_ring::{Locked, Unpoisoned};
use baltra_wire::executor::ToExecutor;
use baltra_wire::DeviceDescription;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// After this many executors in a row died without a report during start, the driver is taken to be
/// faulty.
const SILENT_DEATHS_MAX: u32 = 3;

/// State of an executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Loading its driver.
    Starting,
    /// Not assigned to a tenant yet.
    Warm,
    /// Serves a tenant, or all tenants.
    Serving,
    /// Ordered to exit; receives no more sessions.
    Ending,
    /// Keeps a suspended session: not an executor.
    Keeping,
}

/// An executor of the pool.
pub struct Executor {
    /// The process and its control socket.
    pub process: Arc<Process>,
    /// Its state.
    pub phase: Phase,
    /// Its tenant; empty: not assigned, or shared by all.
    pub tenant: String,
    /// Leases by tenant.
    pub leases: HashMap<String, Arc<Metered>>,
    /// The sessions that it serves.
    pub sessions: BTreeSet<u64>,
    /// Time since which it has had no session.
    pub idle_since: Instant,
    /// Whether it has reported that it cannot continue.
    pub is_failing: bool,
    /// Whether it has closed its socket, or is about to. Its end may take longer.
    pub is_closed: bool,
}

impl Executor {
    /// Whether it is in this state, and neither killed nor closed.
    fn is(&self, phase: Phase) -> bool {
        self.phase == phase && !self.is_gone()
    }

    /// Whether it is about to end, as far as is known.
    fn is_gone(&self) -> bool {
        self.is_closed || self.process.was_killed()
    }

    /// Ends it once its last session has ended.
    fn retire(&mut self) {
        let message = if self.sessions.is_empty() {
            ToExecutor::Exit
        } else {
            ToExecutor::Drain
        };
        self.phase = Phase::Ending;
        self.idle_since = Instant::now();
        let _ = self.process.send(&message, &[]);
    }
}

#[derive(Default)]
struct State {
    executors: BTreeMap<u64, Executor>,
    /// The reason for which the driver is unusable, and the time of the next attempt.
    failure: Option<(String, Instant)>,
    failures: u32,
    faults: Faults,
    closed: bool,
    demand: Demand,
}

/// Sessions that wait for an executor to become warm: of one waiting session, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Demand {
    /// Number of all such sessions.
    any: usize,
    /// Of these, sessions of tenants that need their own executor although others share one.
    own: usize,
}

impl Demand {
    /// Replaces one session's part of the sum.
    fn replace(&mut self, old: Demand, new: Demand) {
        self.any = self.any - old.any + new.any;
        self.own = self.own - old.own + new.own;
    }
}

/// A lease with its executor.
pub struct Holder {
    /// The executor's number in its pool.
    pub executor: u64,
    /// Its process id.
    pub pid: u32,
    /// Number of its sessions.
    pub sessions: usize,
    /// The lease.
    pub metered: Arc<Metered>,
}

/// The executor that a session is assigned to.
pub struct ExecutorAssignment {
    /// The executor's number in its pool.
    pub executor: u64,
    /// Its process.
    pub process: Arc<Process>,
    /// Whether it must be assigned to its tenant first.
    pub assign: bool,
}

/// Options of a pool.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// Separation of tenants.
    pub isolation: Isolation,
    /// Number of warm executors to keep.
    pub prestart: usize,
    /// Maximum number of executors.
    pub count_max: usize,
    /// Time limit for loading the driver.
    pub start_timeout: Duration,
    /// Idle timeout of an executor without sessions.
    pub idle: Duration,
}

/// The executors of one device.
pub struct Pool {
    options: PoolOptions,
    state: Mutex<State>,
    changed: Condvar,
}

/// Reasons for which a session gets no executor.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The driver is unusable.
    #[error("the driver cannot be used: {0}")]
    Driver(String),
    /// The maximum number of executors is reached.
    #[error("all {0} executors are in use: close a session, or raise 'executors.count_max'")]
    Full(usize),
    /// The driver takes too long to load.
    #[error("the driver was not ready within {0:?} (`baltra logs` may show the reason)")]
    Slow(Duration),
    /// The manager is shutting down.
    #[error("the manager is shutting down")]
    Closed,
}

impl Pool {
    /// A pool without executors.
    pub fn new(options: PoolOptions) -> Pool {
        Pool {
            options,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }

    /// An executor for a session of `tenant`. Waits while one is being started; [`Pool::lacking`]
    /// starts it. From now on, the session counts as one of the executor's sessions.
    pub fn place(&self, tenant: &str, session: u64) -> Result<ExecutorAssignment, Error> {
        let deadline = Instant::now() + self.options.start_timeout;
        let mut state = self.state();
        let mut demand = Demand::default();
        let placed = loop {
            if state.closed {
                break Err(Error::Closed);
            }
            let now = Instant::now();
            let pause = state.faults.pause(tenant, now);
            let apart = state.faults.is_apart(tenant, now);
            let sharing = Sharing {
                isolation: self.options.isolation,
                apart,
                fresh: pause.is_zero(),
            };
            if let Some(place) = state.place(sharing, tenant, session) {
                break Ok(place);
            }
            if let Some((reason, _)) = &state.failure {
                break Err(Error::Driver(reason.clone()));
            }
            let is_changing = |e: &Executor| e.phase == Phase::Starting || e.is_gone();
            let changes = state.executors.values().any(is_changing);
            if !changes && state.working() >= self.options.count_max {
                break Err(Error::Full(self.options.count_max));
            }
            let left = deadline.saturating_duration_since(now);
            if left.is_zero() {
                break Err(Error::Slow(self.options.start_timeout));
            }
            // A session that waits for the end of its tenant's pause needs no executor until then.
            let needed = Demand {
                any: usize::from(pause.is_zero()),
                own: usize::from(pause.is_zero() && apart),
            };
            // Only a change is announced: each notification wakes the other waiting sessions, and
            // one per wakeup would have two of them wake each other without end.
            if needed != demand {
                state.demand.replace(demand, needed);
                demand = needed;
                self.changed.notify_all();
            }
            let patience = match needed.any {
                0 => left.min(pause),
                _ => left,
            };
            state = self.changed.wait_timeout(state, patience).unpoisoned().0;
        };
        state.demand.replace(demand, Demand::default());
        self.changed.notify_all();
        placed
    }

    /// Waits until an executor that takes sessions has loaded the driver.
    pub fn await_driver(&self) -> Result<(), Error> {
        let deadline = Instant::now() + self.options.start_timeout;
        let mut state = self.state();
        let needed = Demand { any: 1, own: 0 };
        state.demand.replace(Demand::default(), needed);
        self.changed.notify_all();
        let loaded = loop {
            if state.closed {
                break Err(Error::Closed);
            }
            if state.count(Phase::Warm) + state.count(Phase::Serving) > 0 {
                break Ok(());
            }
            if let Some((reason, _)) = &state.failure {
                break Err(Error::Driver(reason.clone()));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break Err(Error::Slow(self.options.start_timeout));
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unpoisoned().0;
        };
        state.demand.replace(needed, Demand::default());
        loaded
    }

    /// Number of executors to start now.
    pub fn lacking(&self) -> usize {
        let state = self.state();
        let paused = state
            .failure
            .as_ref()
            .is_some_and(|(_, at)| Instant::now() < *at);
        if state.closed || paused {
            return 0;
        }
        let at_hand = state.count(Phase::Warm) + state.count(Phase::Starting);
        let shared = self.options.isolation == Isolation::Device;
        let wanted = if shared {
            state.demand.own + usize::from(!state.is_shared())
        } else {
            self.options.prestart.max(state.demand.any)
        };
        let room = self.options.count_max.saturating_sub(state.working());
        wanted.saturating_sub(at_hand).min(room)
    }

    /// Sleeps until a change or `timeout`; returns whether a session is waiting.
    pub fn wait_change(&self, timeout: Duration) -> bool {
        let state = self.state();
        let (state, _) = self.changed.wait_timeout(state, timeout).unpoisoned();
        state.demand.any > 0
    }

    /// Adds a started process; the caller assigns its number.
    pub fn add(&self, id: u64, process: Arc<Process>, phase: Phase) {
        let executor = Executor {
            process,
            phase,
            tenant: String::new(),
            leases: HashMap::new(),
            sessions: BTreeSet::new(),
            idle_since: Instant::now(),
            is_failing: false,
            is_closed: false,
        };
        self.state().executors.insert(id, executor);
    }

    /// Records that an executor's driver is loaded.
    pub fn ready(&self, id: u64) {
        let mut state = self.state();
        state.failure = None;
        state.failures = 0;
        if let Some(e) = state.executors.get_mut(&id) {
            if e.phase == Phase::Starting {
                e.phase = Phase::Warm;
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Calls `f` with one executor.
    pub fn with<T>(&self, id: u64, f: impl FnOnce(&mut Executor) -> T) -> Option<T> {
        self.state().executors.get_mut(&id).map(f)
    }

    /// Removes an ended session.
    pub fn session_ended(&self, id: u64, session: u64) {
        let mut state = self.state();
        if let Some(e) = state.executors.get_mut(&id) {
            e.sessions.remove(&session);
            e.idle_since = Instant::now();
            let is_alone =
                self.options.isolation == Isolation::Session || e.phase == Phase::Keeping;
            if is_alone && e.sessions.is_empty() {
                e.phase = Phase::Ending;
                let _ = e.process.send(&ToExecutor::Exit, &[]);
            }
        }
    }

    /// Records that an executor cannot continue because of `tenant`'s work.
    pub fn failing(&self, id: u64, tenant: &str, fault: Fault) {
        let mut state = self.state();
        if let Some(e) = state.executors.get_mut(&id) {
            e.phase = Phase::Ending;
            e.is_failing = true;
            e.idle_since = Instant::now();
        }
        state.faults.record(tenant, fault, Instant::now());
        drop(state);
        self.changed.notify_all();
    }

    /// Records that `tenant`'s work ended an executor that did not report it.
    pub fn record_fault(&self, tenant: &str, fault: Fault) {
        self.state().faults.record(tenant, fault, Instant::now());
    }

    /// Executors ended by tenants' work since the manager's start.
    pub fn faults(&self) -> Vec<(String, Fault, u64)> {
        self.state().faults.counts()
    }

    /// Ends an executor whose last session was suspended, so that its driver is unloaded.
    pub fn retire_unused(&self, id: u64) {
        let mut state = self.state();
        let own = state.executors.get_mut(&id);
        let own = own.filter(|e| e.phase == Phase::Serving && e.sessions.is_empty());
        if let Some(e) = own {
            e.retire();
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Cancels a placement before anything of the session was sent to the executor.
    pub fn cancel(&self, place: &ExecutorAssignment, session: u64) {
        if place.assign {
            // It was not assigned to the tenant whose it is here.
            self.forget(place.executor, session);
        } else {
            self.session_ended(place.executor, session);
        }
    }

    /// Cancels the placement of a session; its executor is not used for it again.
    pub fn forget(&self, id: u64, session: u64) {
        if let Some(e) = self.state().executors.get_mut(&id) {
            e.sessions.remove(&session);
            e.phase = Phase::Ending;
        }
    }

    /// Records that an executor has closed its socket, so that it gets no more sessions; returns
    /// whether it was ordered to exit.
    pub fn closed(&self, id: u64) -> bool {
        let mut state = self.state();
        let executor = state.executors.get_mut(&id);
        let ordered = executor.is_none_or(|e| {
            e.is_closed = true;
            e.phase == Phase::Ending && !e.is_failing
        });
        drop(state);
        self.changed.notify_all();
        ordered
    }

    /// Removes an ended executor. If its driver never loaded, `reported` is the reason that it
    /// sent; without one it may have been killed from outside, so that others are started before
    /// the driver is declared faulty with the reason `ended`.
    pub fn remove(&self, id: u64, reported: Option<String>, ended: &str) -> Option<Executor> {
        let mut state = self.state();
        let executor = state.executors.remove(&id);
        if executor
            .as_ref()
            .is_some_and(|e| e.phase == Phase::Starting)
        {
            match reported {
                Some(reason) => state.fail(reason),
                None if state.failures + 1 < SILENT_DEATHS_MAX => state.failures += 1,
                None => state.fail(format!("the executor exited while loading it ({ended})")),
            }
        }
        drop(state);
        self.changed.notify_all();
        executor
    }

    /// Records that no process could be started.
    pub fn start_failed(&self, reason: String) {
        self.state().fail(reason);
        self.changed.notify_all();
    }

    /// The reason for which the driver is unusable, if it is.
    pub fn failure(&self) -> Option<String> {
        self.state()
            .failure
            .as_ref()
            .map(|(reason, _)| reason.clone())
    }

    /// Ends executors that have been idle for too long, and kills those that start or exit too
    /// slowly.
    pub fn reap(&self) {
        let mut state = self.state();
        let shared = self.options.isolation == Isolation::Device;
        for e in state.executors.values_mut() {
            let idle = e.idle_since.elapsed();
            match e.phase {
                Phase::Serving
                    if e.sessions.is_empty()
                        && idle > self.options.idle
                        && !(shared && e.tenant.is_empty()) =>
                {
                    e.phase = Phase::Ending;
                    e.idle_since = Instant::now();
                    let _ = e.process.send(&ToExecutor::Exit, &[]);
                }
                Phase::Starting if idle > self.options.start_timeout => {
                    e.process.kill("its driver did not load in time");
                }
                Phase::Ending if e.sessions.is_empty() && idle > Duration::from_secs(2) => {
                    e.process.kill("it did not exit when requested");
                }
                _ => {}
            }
        }
    }

    /// Accepts no more sessions; every executor exits now (`exit`), or after its last session.
    pub fn close(&self, exit: bool) {
        let mut state = self.state();
        state.closed = true;
        for e in state.executors.values_mut() {
            let (message, over) = if exit || e.sessions.is_empty() {
                (ToExecutor::Exit, true)
            } else {
                (ToExecutor::Drain, false)
            };
            if over {
                e.phase = Phase::Ending;
                e.idle_since = Instant::now();
            }
            let _ = e.process.send(&message, &[]);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Places no more sessions in the present executors, and ends them: now, or after their last
    /// session. Returns the numbers of the former, and the process ids of the latter.
    pub fn retire(&self) -> (Vec<u64>, Vec<u32>) {
        let mut state = self.state();
        let (mut ending, mut serving) = (Vec::new(), Vec::new());
        for (id, e) in &mut state.executors {
            if e.phase == Phase::Keeping {
                continue;
            }
            if e.sessions.is_empty() {
                ending.push(*id);
            } else {
                serving.push(e.process.pid);
            }
            if e.phase != Phase::Ending {
                e.retire();
            }
        }
        drop(state);
        self.changed.notify_all();
        (ending, serving)
    }

    /// Sends a message to every executor.
    pub fn send_all(&self, message: &ToExecutor) {
        let state = self.state();
        let executors = state.executors.values();
        let all: Vec<_> = executors.map(|e| e.process.clone()).collect();
        // An executor that does not read its socket must only delay this thread.
        drop(state);
        for process in all {
            let _ = process.send(message, &[]);
        }
    }

    /// Kills the remaining executors.
    pub fn kill_all(&self) {
        for e in self.state().executors.values() {
            e.process.kill("the manager is exiting");
        }
    }

    /// Ends a tenant's own executors; returns how many sessions they had.
    pub fn evict(&self, tenant: &str) -> usize {
        let mut state = self.state();
        let own = state.executors.values_mut().filter(|e| e.tenant == tenant);
        own.map(|e| {
            e.phase = Phase::Ending;
            e.idle_since = Instant::now();
            let _ = e.process.send(&ToExecutor::Exit, &[]);
            e.sessions.len()
        })
        .sum()
    }

    /// The executors that have sessions, and their processes.
    pub fn serving(&self) -> Vec<(u64, Arc<Process>)> {
        let state = self.state();
        let serving = state
            .executors
            .iter()
            .filter(|(_, e)| !e.sessions.is_empty());
        serving.map(|(id, e)| (*id, e.process.clone())).collect()
    }

    /// Number of executors.
    pub fn count(&self) -> usize {
        self.state().working()
    }

    /// All leases with their executors.
    pub fn holders(&self) -> Vec<Holder> {
        let state = self.state();
        let of = |(id, executor): (&u64, &Executor)| {
            let holder = |metered: &Arc<Metered>| Holder {
                executor: *id,
                pid: executor.process.pid,
                sessions: executor.sessions.len(),
                metered: metered.clone(),
            };
            executor.leases.values().map(holder).collect::<Vec<_>>()
        };
        state.executors.iter().flat_map(of).collect()
    }

    /// All leases, for accounting.
    pub fn leases(&self) -> Vec<Arc<Metered>> {
        let state = self.state();
        let all = state.executors.values().flat_map(|e| e.leases.values());
        all.cloned().collect()
    }
}

impl State {
    fn fail(&mut self, reason: String) {
        self.failures += 1;
        let pause = Duration::from_secs(1 << self.failures.min(5));
        self.failure = Some((reason, Instant::now() + pause));
    }

    /// Number of executors, without keepers.
    fn working(&self) -> usize {
        let all = self.executors.values();
        all.filter(|e| e.phase != Phase::Keeping).count()
    }

    fn count(&self, phase: Phase) -> usize {
        self.executors.values().filter(|e| e.is(phase)).count()
    }

    /// Whether an executor is shared by all tenants.
    fn is_shared(&self) -> bool {
        let shared = |e: &Executor| e.is(Phase::Serving) && e.tenant.is_empty();
        self.executors.values().any(shared)
    }

    fn place(
        &mut self,
        sharing: Sharing,
        tenant: &str,
        session: u64,
    ) -> Option<ExecutorAssignment> {
        let owned = sharing.isolation != Isolation::Device || sharing.apart;
        let fits = |e: &Executor| match sharing.isolation {
            Isolation::Session => false,
            _ if owned => e.is(Phase::Serving) && e.tenant == tenant,
            _ => e.is(Phase::Serving) && e.tenant.is_empty(),
        };
        let find = |executors: &BTreeMap<u64, Executor>, fits: &dyn Fn(&Executor) -> bool| {
            executors.iter().find(|(_, e)| fits(e)).map(|(id, _)| *id)
        };
        let warm = |e: &Executor| e.is(Phase::Warm) && sharing.fresh;
        let (id, e) = loop {
            let own = find(&self.executors, &fits);
            let id = own.or_else(|| find(&self.executors, &warm))?;
            let e = self.executors.get_mut(&id).expect("just found");
            if !e.process.is_exiting() {
                break (id, e);
            }
            // Another one, until this one's end is reported.
            e.is_closed = true;
        };
        let fresh = e.phase == Phase::Warm;
        e.phase = Phase::Serving;
        e.sessions.insert(session);
        let assign = fresh && owned;
        if assign {
            e.tenant = tenant.to_owned();
        }
        Some(ExecutorAssignment {
            executor: id,
            process: e.process.clone(),
            assign,
        })
    }
}

/// With which sessions a session may share an executor.
struct Sharing {
    isolation: Isolation,
    /// Whether the tenant needs its own executor, although others share one.
    apart: bool,
    /// Whether the tenant may use an unassigned executor.
    fresh: bool,
}

/// Passes a placed session to its executor.
pub fn hand_over(
    place: &ExecutorAssignment,
    tenant: &Tenant,
    cache_dir: &str,
    start: &ToExecutor,
    fds: &[BorrowedFd<'_>],
) -> std::io::Result<()> {
    if place.assign {
        let assign = ToExecutor::Assign {
            tenant: tenant.name.clone(),
            cache_dir: cache_dir.to_owned(),
        };
        place.process.send(&assign, &[])?;
    }
    place.process.send(start, fds)
}

/// The device's description from its newest executor.
#[derive(Default)]
pub struct Description(Mutex<Option<Arc<DeviceDescription>>>);

impl Description {
    /// The newest description.
    pub fn get(&self) -> Option<Arc<DeviceDescription>> {
        self.0.locked().clone()
    }

    /// Replaces the description.
    pub fn set(&self, description: DeviceDescription) {
        *self.0.locked() = Some(Arc::new(description));
    }
}

#[cfg(test)]
mod tests;
