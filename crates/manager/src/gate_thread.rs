//! One thread per device: connects the scheduler ([`baltra_gate`]) to lease pages, doorbells and
//! the clock, and ends tasks that exceed their limit.

use crate::executors::Fault;
use baltra_gate::{Action, ClientId, GateOptions, Scheduler, Share, Work};
use baltra_ring::{lease, LeaseGranter, LeaseState, Locked};
use rustix::event::{epoll, eventfd, EventfdFlags, PollFd, PollFlags, Timespec};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Key of the wake-up in the epoll set; leases are numbered from 1.
const WAKE: u64 = 0;
/// Interval for comparing running tasks with their time limit.
const WATCH: Duration = Duration::from_millis(20);
/// A task with several outstanding commands may go this multiple of its limit without a completion,
/// because the executor may receive the completion of several only together.
const OPEN_COMMANDS_FACTOR: u32 = 4;
/// Interval for polling leases while a client waits for a holder within its quantum: a holder whose
/// task ends keeps the lease, idle, without ringing.
const LOOK: Duration = Duration::from_millis(1);

/// Time for which a task may run without completing a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskLimit {
    /// Always.
    Always(Duration),
    /// While another client waits for the device.
    Contended(Duration),
}

impl TaskLimit {
    /// The limit of a task that no client waits for.
    pub fn always(self) -> Option<Duration> {
        match self {
            TaskLimit::Always(limit) => Some(limit),
            TaskLimit::Contended(_) => None,
        }
    }
}

/// Time for which a task with this number of outstanding commands may complete none of them.
pub fn silence_max(limit: Duration, queued: u64) -> Duration {
    match queued {
        0 | 1 => limit,
        _ => limit * OPEN_COMMANDS_FACTOR,
    }
}

/// A tenant's lease on a device, created by the manager for one executor.
pub struct Lease {
    /// Its id on this node.
    pub id: ClientId,
    /// The tenant to which its device time is charged.
    pub tenant: String,
    /// The shared page, for the executor.
    pub page: OwnedFd,
    /// The holder's doorbell, for the executor.
    pub bell: OwnedFd,
    /// The manager's side.
    pub granter: LeaseGranter,
}

impl Lease {
    /// Creates a lease.
    pub fn new(id: ClientId, tenant: &str) -> io::Result<Lease> {
        let (page, bell) = lease::create()?;
        Lease::over(id, tenant, page, bell)
    }

    /// Creates a lease from an executor's existing page and doorbell.
    pub fn over(id: ClientId, tenant: &str, page: OwnedFd, bell: OwnedFd) -> io::Result<Lease> {
        let granter = LeaseGranter::new(&page, bell.try_clone()?)?;
        Ok(Lease {
            id,
            tenant: tenant.to_owned(),
            page,
            bell,
            granter,
        })
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = f.debug_struct("Lease");
        text.field("id", &self.id).field("tenant", &self.tenant);
        text.finish_non_exhaustive()
    }
}

/// Ends an executor for a fault of its task, with the reason.
type Kill = Box<dyn Fn(Fault, &str) + Send>;

enum Order {
    Add {
        lease: Arc<Lease>,
        share: Share,
        task_limit: Option<TaskLimit>,
        processor: Option<u32>,
        kill: Kill,
    },
    Change {
        client: ClientId,
        share: Share,
        task_limit: Option<TaskLimit>,
    },
    Remove(ClientId),
    End {
        client: ClientId,
        started_ns: u64,
    },
    Slots(usize),
    Processors(usize),
    Pause(bool),
    Stop,
}

struct Shared {
    orders: Mutex<Vec<Order>>,
    wake: OwnedFd,
    waiting: AtomicUsize,
    holding: AtomicUsize,
}

/// A handle of a device's gate; its thread ends with the last handle.
#[derive(Clone)]
pub struct Gate {
    owner: Arc<Owner>,
}

struct Owner {
    shared: Arc<Shared>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.order(Order::Stop);
    }
}

impl Shared {
    fn order(&self, order: Order) {
        self.orders.locked().push(order);
        // A full counter wakes as well.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

impl Gate {
    /// Starts the gate of the device `name`.
    pub fn start(name: &str, options: GateOptions) -> io::Result<Gate> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared {
            orders: Mutex::default(),
            wake,
            waiting: AtomicUsize::new(0),
            holding: AtomicUsize::new(0),
        });
        let keeper = Keeper::new(shared.clone(), options)?;
        std::thread::Builder::new()
            .name(format!("gate-{name}"))
            .spawn(move || keeper.run())?;
        Ok(Gate {
            owner: Arc::new(Owner { shared }),
        })
    }

    /// Adds a lease. `kill` ends its executor, with the reason, when a task runs longer than
    /// `task_limit`, or when an operator ends a task. With a process in `processor`, which serves this lease alone, the device is
    /// the host's processors, and the lease is charged for that process's processor time.
    pub fn add(
        &self,
        lease: Arc<Lease>,
        share: Share,
        task_limit: Option<TaskLimit>,
        processor: Option<u32>,
        kill: impl Fn(Fault, &str) + Send + 'static,
    ) {
        self.owner.shared.order(Order::Add {
            lease,
            share,
            task_limit,
            processor,
            kill: Box::new(kill),
        });
    }

    /// Applies a change of a tenant's entitlement.
    pub fn change(&self, client: ClientId, share: Share, task_limit: Option<TaskLimit>) {
        self.owner.shared.order(Order::Change {
            client,
            share,
            task_limit,
        });
    }

    /// Removes the client of an ended executor.
    pub fn remove(&self, client: ClientId) {
        self.owner.shared.order(Order::Remove(client));
    }

    /// Ends the task that a client began at this time, with its executor; has no effect if that task
    /// has ended.
    pub fn end(&self, client: ClientId, started_ns: u64) {
        self.owner.shared.order(Order::End { client, started_ns });
    }

    /// Sets how many clients may hold the device at a time.
    pub fn set_slots(&self, slots: usize) {
        self.owner.shared.order(Order::Slots(slots));
    }

    /// Declares the device to be this number of the host's processors: clients that are charged for
    /// processor time have ceilings of it.
    pub fn set_processors(&self, processors: usize) {
        self.owner.shared.order(Order::Processors(processors));
    }

    /// Takes the device from all clients at their next task boundaries, or resumes granting it.
    pub fn pause(&self, paused: bool) {
        self.owner.shared.order(Order::Pause(paused));
    }

    /// Clients that hold the device, as last observed by the gate.
    pub fn holding(&self) -> usize {
        self.owner.shared.holding.load(Ordering::Relaxed)
    }

    /// Number of waiting clients.
    pub fn waiting(&self) -> usize {
        self.owner.shared.waiting.load(Ordering::Relaxed)
    }
}

struct Member {
    lease: Arc<Lease>,
    task_limit: Option<TaskLimit>,
    processor: Option<u32>,
    kill: Kill,
    /// The running task's progress by the holder's clock, and when the manager first saw that.
    task: Option<(u64, u64)>,
    /// Time of the revocation, which a holder cannot forge.
    revoked_ns: Option<u64>,
    killed: bool,
}

impl Member {
    fn new(
        lease: Arc<Lease>,
        task_limit: Option<TaskLimit>,
        processor: Option<u32>,
        kill: Kill,
    ) -> Member {
        Member {
            lease,
            task_limit,
            processor,
            kill,
            task: None,
            revoked_ns: None,
            killed: false,
        }
    }

    /// Kills the executor for an operator, if it still runs the task that began at this time.
    fn end(&mut self, started_ns: u64) {
        let granter = &self.lease.granter;
        let is_running = matches!(granter.state(), LeaseState::Busy | LeaseState::Revoked);
        if self.killed || !is_running || granter.busy_since_ns() != Some(started_ns) {
            return;
        }
        self.killed = true;
        (self.kill)(Fault::Operator, "an operator ended its task");
    }
}

struct Keeper {
    shared: Arc<Shared>,
    epoll: OwnedFd,
    scheduler: Scheduler,
    members: HashMap<ClientId, Member>,
}

impl Keeper {
    fn new(shared: Arc<Shared>, options: GateOptions) -> io::Result<Keeper> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = epoll::EventData::new_u64(WAKE);
        epoll::add(&epoll, &shared.wake, wake, edge())?;
        Ok(Keeper {
            shared,
            epoll,
            scheduler: Scheduler::new(options),
            members: HashMap::new(),
        })
    }

    fn run(mut self) {
        // Deadlines are tens of microseconds; the kernel's default slack is 50.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1_000));
        let mut rung = Vec::new();
        loop {
            if !self.take_orders() {
                return;
            }
            for client in rung.drain(..) {
                self.observe(client);
            }
            let holders: Vec<ClientId> = self.scheduler.holders().collect();
            for client in holders {
                self.observe(client);
            }
            self.act();
            let waiting = self.scheduler.waiting_count();
            self.shared.waiting.store(waiting, Ordering::Relaxed);
            let holding = self.scheduler.holders().count();
            self.shared.holding.store(holding, Ordering::Relaxed);
            let watching = self.watch();
            self.sleep(watching, &mut rung);
        }
    }

    fn take_orders(&mut self) -> bool {
        let orders = std::mem::take(&mut *self.shared.orders.locked());
        for order in orders {
            match order {
                Order::Add {
                    lease,
                    share,
                    task_limit,
                    processor,
                    kill,
                } => self.admit(&share, Member::new(lease, task_limit, processor, kill)),
                Order::Change {
                    client,
                    share,
                    task_limit,
                } => {
                    self.scheduler.change(client, &share, lease::monotonic_ns());
                    if let Some(member) = self.members.get_mut(&client) {
                        member.task_limit = task_limit;
                    }
                }
                Order::Remove(client) => {
                    self.scheduler.remove(client);
                    if let Some(member) = self.members.remove(&client) {
                        let _ = epoll::delete(&self.epoll, &member.lease.bell);
                    }
                }
                Order::End { client, started_ns } => {
                    if let Some(member) = self.members.get_mut(&client) {
                        member.end(started_ns);
                    }
                }
                Order::Slots(slots) => self.scheduler.set_slots(slots),
                Order::Processors(count) => self.scheduler.set_processors(count),
                Order::Pause(paused) => self.scheduler.set_paused(paused),
                Order::Stop => return false,
            }
        }
        true
    }

    fn admit(&mut self, share: &Share, member: Member) {
        let id = member.lease.id;
        let bell = epoll::EventData::new_u64(id);
        if let Err(error) = epoll::add(&self.epoll, &member.lease.bell, bell, edge()) {
            tracing::error!(lease = id, %error, "cannot schedule a lease at the gate");
            (member.kill)(Fault::TaskLimit, "its lease cannot be scheduled");
            return;
        }
        self.scheduler.add(id, share);
        self.members.insert(id, member);
        self.observe(id);
        // If the device is free, grant before the first task, which saves a round trip.
        if self.scheduler.has_room() && self.members[&id].lease.granter.grant() {
            self.observe(id);
        }
    }

    fn observe(&mut self, client: ClientId) {
        let Some(member) = self.members.get(&client) else {
            return;
        };
        let granter = &member.lease.granter;
        let usage = granter.usage();
        let work = Work {
            tasks: usage.tasks,
            busy_ns: usage.busy_ns,
            processor_ns: member.processor.and_then(lease::processor_ns),
        };
        self.scheduler
            .observe(client, granter.state(), work, lease::monotonic_ns());
    }

    fn act(&mut self) {
        // Each round either changes a lease or fails because its holder did; a holder that keeps
        // changing it is handled in the next round.
        for _ in 0..4 {
            let actions = self.scheduler.decide(lease::monotonic_ns());
            if actions.is_empty() {
                return;
            }
            for action in actions {
                let (Action::Grant(id) | Action::Take(id) | Action::Revoke(id)) = action;
                let Some(member) = self.members.get_mut(&id) else {
                    continue;
                };
                let granter = &member.lease.granter;
                match action {
                    Action::Grant(_) => granter.grant(),
                    Action::Take(_) => granter.take_idle(),
                    Action::Revoke(_) => granter.revoke(),
                };
                self.observe(id);
            }
        }
    }

    /// Kills executors whose task exceeds its limit; returns whether any task is being watched.
    fn watch(&mut self) -> bool {
        let now = lease::monotonic_ns();
        let contended = self.scheduler.waiting_count() > 0;
        let mut watching = false;
        for member in self.members.values_mut() {
            let granter = &member.lease.granter;
            let state = granter.state();
            let kept = contended && state == LeaseState::Revoked;
            let (limit, counts) = match member.task_limit.filter(|_| !member.killed) {
                Some(TaskLimit::Always(limit)) => (limit, true),
                Some(TaskLimit::Contended(limit)) => (limit, kept),
                None => continue,
            };
            let busy = counts && matches!(state, LeaseState::Busy | LeaseState::Revoked);
            let progress = granter.progress_ns().unwrap_or(0);
            member.task = match member.task.filter(|_| busy) {
                Some((same, seen)) if same == progress => Some((progress, seen)),
                _ => busy.then_some((progress, now)),
            };
            member.revoked_ns = match state {
                LeaseState::Revoked if counts => Some(member.revoked_ns.unwrap_or(now)),
                _ => None,
            };
            watching |= counts && !matches!(state, LeaseState::Free);
            let long = limit * OPEN_COMMANDS_FACTOR;
            let silent = silence_max(limit, granter.queued());
            let over =
                |since: u64, most: Duration| Duration::from_nanos(now.saturating_sub(since)) > most;
            if member.task.is_some_and(|(_, seen)| over(seen, silent))
                || member.revoked_ns.is_some_and(|since| over(since, long))
            {
                member.killed = true;
                let reason = format!("a task ran longer than {} ms", limit.as_millis());
                (member.kill)(Fault::TaskLimit, &reason);
            }
        }
        watching
    }

    fn sleep(&self, watching: bool, rung: &mut Vec<ClientId>) {
        let now = lease::monotonic_ns();
        let mut timeout = self
            .scheduler
            .deadline_ns(now)
            .map(|at| Duration::from_nanos(at - now));
        // Without a deadline each waiting client has a holder that will yield and ring.
        timeout = timeout.map(|t| t.min(LOOK));
        if watching {
            timeout = Some(timeout.map_or(WATCH, |t| t.min(WATCH)));
        }
        let timeout = timeout.map(|t| Timespec {
            tv_sec: t.as_secs() as i64,
            tv_nsec: t.subsec_nanos().into(),
        });
        // epoll's own timeout counts whole milliseconds.
        let mut set = [PollFd::new(&self.epoll, PollFlags::IN)];
        let _ = rustix::event::poll(&mut set, timeout.as_ref());
        let mut events = Vec::with_capacity(64);
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let _ = epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut events),
            Some(&now),
        );
        rung.extend(events.iter().map(|e| e.data.u64()).filter(|id| *id != WAKE));
    }
}

/// Edge-triggered: each ring is reported once, and the doorbell need not be reset.
fn edge() -> epoll::EventFlags {
    epoll::EventFlags::IN | epoll::EventFlags::ET
}

#[cfg(test)]
mod tests {
    use super::*;
    use baltra_gate::PolicyKind;
    use baltra_ring::LeaseHolder;
    use std::time::Instant;

    fn member(gate: &Gate, id: ClientId) -> LeaseHolder {
        let lease = Arc::new(Lease::new(id, &format!("t{id}")).unwrap());
        let bell = lease.bell.try_clone().unwrap();
        let holder = LeaseHolder::new(&lease.page, bell).unwrap();
        let share = Share {
            tenant: lease.tenant.clone(),
            weight: 1,
            ..Share::default()
        };
        gate.add(lease, share, None, None, |_, _| {});
        holder
    }

    fn one_task_at_a_time() -> Gate {
        let options = GateOptions {
            slots: 1,
            policy: PolicyKind::Fair,
            quantum: Duration::from_millis(1),
            linger: Duration::from_micros(100),
        };
        Gate::start("test", options).unwrap()
    }

    #[test]
    fn a_task_may_take_any_time_until_another_client_waits() {
        let gate = one_task_at_a_time();
        let (killed, kills) = std::sync::mpsc::channel();
        let limit = Duration::from_millis(100);
        let share = Share {
            tenant: "first".into(),
            weight: 1,
            ..Share::default()
        };
        let lease = Arc::new(Lease::new(1, "first").unwrap());
        let bell = lease.bell.try_clone().unwrap();
        let first = LeaseHolder::new(&lease.page, bell).unwrap();
        let kill = move |_, reason: &str| killed.send(reason.to_owned()).unwrap();
        gate.add(lease, share, Some(TaskLimit::Contended(limit)), None, kill);
        first.acquire();
        std::thread::sleep(3 * limit);
        assert!(kills.try_recv().is_err(), "no client waited");
        let second = member(&gate, 2);
        let begun = Instant::now();
        let waiting = std::thread::spawn(move || {
            let patience = Instant::now() + Duration::from_secs(60);
            second.acquire_unless(|| Instant::now() > patience)
        });
        let reason = kills.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(reason.contains("100 ms"), "{reason}");
        assert!(begun.elapsed() >= limit);
        first.release();
        assert!(waiting.join().unwrap());
    }

    #[test]
    fn an_operator_ends_only_the_named_task() {
        let gate = one_task_at_a_time();
        let (killed, kills) = std::sync::mpsc::channel();
        let lease = Arc::new(Lease::new(1, "red").unwrap());
        let bell = lease.bell.try_clone().unwrap();
        let holder = LeaseHolder::new(&lease.page, bell).unwrap();
        let kill = move |fault, _: &str| killed.send(fault).unwrap();
        gate.add(lease.clone(), Share::default(), None, None, kill);
        holder.acquire();
        let started_ns = lease.granter.busy_since_ns().unwrap();
        gate.end(1, started_ns + 1);
        gate.end(2, started_ns);
        gate.end(1, started_ns);
        // Orders are carried out in sequence: the first two had no effect.
        let fault = kills.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(fault, Fault::Operator);
        gate.end(1, started_ns);
        gate.remove(1);
        assert!(kills.recv().is_err(), "the executor is killed once");
    }

    #[test]
    fn a_holder_that_goes_idle_within_its_quantum_makes_way() {
        let options = GateOptions {
            slots: 1,
            policy: PolicyKind::Fair,
            quantum: Duration::from_secs(3600),
            linger: Duration::from_micros(100),
        };
        let gate = Gate::start("test", options).unwrap();
        let (first, second) = (member(&gate, 1), member(&gate, 2));
        first.acquire();
        let waiting = std::thread::spawn(move || {
            let patience = Instant::now() + Duration::from_secs(60);
            second.acquire_unless(|| Instant::now() > patience)
        });
        while gate.waiting() == 0 {
            std::thread::yield_now();
        }
        // The gate has detected that the first client is busy, and sleeps.
        std::thread::sleep(Duration::from_millis(20));
        first.release();
        assert!(waiting.join().unwrap(), "an idle device was not passed on");
    }
}
