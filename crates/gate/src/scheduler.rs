//! Decides which clients hold the device, without any I/O.
//!
//! The caller passes each lease's state ([`Scheduler::observe`]), requests actions
//! ([`Scheduler::decide`]), carries them out, passes the states again, and sleeps until a lease
//! changes or [`Scheduler::deadline_ns`] passes.

use super::ceiling::{Capacity, Ceilings};
use super::{ClientId, GateOptions, Policy, Share};
use baltra_ring::LeaseState;
use std::collections::BTreeMap;

/// A holder's accumulated work, as counted by its executor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Number of ended tasks.
    pub tasks: u64,
    /// Time during which a task ran, including the running one, nanoseconds.
    pub busy_ns: u64,
    /// On CPU devices: the processor time that its executor has used.
    pub processor_ns: Option<u64>,
}

/// A client that holds processors without using them is charged a fraction (1/N) of the time.
const HELD_PART: u64 = 4;

/// Time to wait for a client that returns soon, as a fraction (1/N) of the quantum.
const AWAITED_PART: u64 = 10;
/// A client returns soon if the mean of its gaps between tasks is shorter than that time by this
/// factor.
const AWAITED_FACTOR: u64 = 4;

/// An action on a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Grant the lease to a waiting client.
    Grant(ClientId),
    /// Take the lease from a client that holds it without a running task.
    Take(ClientId),
    /// Request the lease back at the end of the running task.
    Revoke(ClientId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Free,
    Waiting,
    Idle { since_ns: u64 },
    Busy,
    Revoked,
}

struct Client {
    phase: Phase,
    /// Order of its arrival in the queue, a counter, so that arrivals never tie.
    arrival: u64,
    granted_ns: u64,
    charged_ns: u64,
    /// Processor time at the last charge; `None`: unknown.
    processor_charged_ns: Option<u64>,
    /// The same for its ceiling, for which time always counts.
    capped_ns: u64,
    processor_capped_ns: Option<u64>,
    /// The holder's counters when it was granted the device, and at the last observation.
    work_granted: Work,
    work: Work,
    /// Whether the client waited for the device that it holds, and has not started a task yet.
    expected: bool,
    /// Whether its gaps between tasks are short.
    brisk: bool,
}

impl Client {
    fn holds(&self) -> bool {
        !matches!(self.phase, Phase::Free | Phase::Waiting)
    }

    /// The amount to charge since the last call: the time for which the client held the device. On
    /// a CPU device, that time differs from its processor time, because other programs use the
    /// processors too and clients that are preempted more often would pay for it. Processor time is
    /// charged there.
    fn settle(&mut self, now_ns: u64) -> u64 {
        let held_ns = now_ns.saturating_sub(self.charged_ns);
        let before = self.processor_charged_ns;
        self.charged_ns = now_ns;
        self.processor_charged_ns = self.work.processor_ns;
        match (before, self.work.processor_ns) {
            (Some(before), Some(now)) => now.saturating_sub(before).max(held_ns / HELD_PART),
            _ => held_ns,
        }
    }

    /// The amount to count against its ceiling since the last call. On a CPU device it is the
    /// processor time of its process, whether it `held` the device or not; if that is unknown, the
    /// part of a holder of one of `slots`.
    fn spend(&mut self, now_ns: u64, held: bool, slots: usize, capacity: Capacity) -> u64 {
        let held_ns = now_ns.saturating_sub(self.capped_ns);
        let before = self.processor_capped_ns;
        self.capped_ns = now_ns;
        self.processor_capped_ns = self.work.processor_ns;
        match (before, self.work.processor_ns) {
            (Some(before), Some(now)) => now.saturating_sub(before),
            _ if !held => 0,
            _ => (u128::from(held_ns) * capacity.device as u128 / slots as u128) as u64,
        }
    }

    /// Updates the mean of its gaps between tasks.
    fn learn(&mut self, awaited_ns: u64, now_ns: u64) {
        let tasks = self.work.tasks.saturating_sub(self.work_granted.tasks);
        if tasks == 0 {
            return;
        }
        let busy_ns = self.work.busy_ns.saturating_sub(self.work_granted.busy_ns);
        let idle_ns = now_ns
            .saturating_sub(self.granted_ns)
            .saturating_sub(busy_ns);
        self.brisk = idle_ns / tasks <= awaited_ns / AWAITED_FACTOR;
    }
}

/// The gate of one device.
pub struct Scheduler {
    slots: usize,
    /// Number of processors, if the device is a CPU whose processor time is counted.
    processors: Option<usize>,
    paused: bool,
    quantum_ns: u64,
    linger_ns: u64,
    policy: Box<dyn Policy>,
    ceilings: Ceilings,
    clients: BTreeMap<ClientId, Client>,
    arrivals: u64,
}

impl Scheduler {
    /// A gate without clients.
    pub fn new(options: GateOptions) -> Scheduler {
        Scheduler {
            slots: options.slots.max(1),
            processors: None,
            paused: false,
            quantum_ns: options.quantum.as_nanos() as u64,
            linger_ns: options.linger.as_nanos() as u64,
            policy: super::policy(options.policy),
            ceilings: Ceilings::default(),
            clients: BTreeMap::new(),
            arrivals: 0,
        }
    }

    /// Sets how many clients may hold the device concurrently. Current holders beyond that number
    /// keep it until they yield.
    pub fn set_slots(&mut self, slots: usize) {
        self.slots = slots.max(1);
    }

    /// Declares the device to be this number of processors, whose use is [`Work::processor_ns`].
    /// Ceilings then apply to processor time.
    pub fn set_processors(&mut self, processors: usize) {
        self.processors = Some(processors.max(1));
    }

    fn capacity(&self) -> Capacity {
        match self.processors {
            // A task may use all processors, independent of its slot.
            Some(processors) => Capacity {
                device: processors,
                holder: processors,
            },
            None => Capacity {
                device: self.slots,
                holder: 1,
            },
        }
    }

    /// While paused, no client gets the device, and holders yield.
    pub fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Adds a client, whose lease is free.
    pub fn add(&mut self, client: ClientId, share: &Share) {
        self.policy.add(client, share);
        self.ceilings.add(client, share, 0);
        let fresh = Client {
            phase: Phase::Free,
            arrival: 0,
            granted_ns: 0,
            charged_ns: 0,
            processor_charged_ns: None,
            capped_ns: 0,
            processor_capped_ns: None,
            work_granted: Work::default(),
            work: Work::default(),
            expected: false,
            brisk: false,
        };
        self.clients.insert(client, fresh);
    }

    /// Removes a client in any state.
    pub fn remove(&mut self, client: ClientId) {
        if self.clients.remove(&client).is_some() {
            self.policy.remove(client);
            self.ceilings.remove(client);
        }
    }

    /// A client's entitlement changes.
    pub fn change(&mut self, client: ClientId, share: &Share, now_ns: u64) {
        let Some(c) = self.clients.get(&client) else {
            return;
        };
        let awake = c.phase != Phase::Free;
        self.policy.remove(client);
        self.policy.add(client, share);
        self.ceilings.remove(client);
        self.ceilings.add(client, share, now_ns);
        if awake {
            self.policy.wake(client, now_ns);
        }
    }

    /// Passes a lease's state; `work` distinguishes an idle holder from one that was busy between
    /// two observations, and measures how soon it returns.
    pub fn observe(&mut self, client: ClientId, state: LeaseState, work: Work, now_ns: u64) {
        let contended = self.waiting().next().is_some();
        let awaited_ns = self.quantum_ns / AWAITED_PART;
        let (slots, capacity) = (self.slots, self.capacity());
        let Some(c) = self.clients.get_mut(&client) else {
            return;
        };
        let before = c.phase;
        let held = c.holds();
        let worked = (c.work.tasks, c.work.busy_ns) != (work.tasks, work.busy_ns);
        c.phase = match state {
            LeaseState::Free => Phase::Free,
            LeaseState::Waiting => Phase::Waiting,
            LeaseState::Busy => Phase::Busy,
            LeaseState::Revoked => Phase::Revoked,
            LeaseState::Idle => match before {
                Phase::Idle { since_ns } if !worked => Phase::Idle { since_ns },
                _ => Phase::Idle { since_ns: now_ns },
            },
        };
        c.expected &= !worked;
        c.work = work;
        let holds = c.holds();
        if held && worked {
            c.learn(awaited_ns, now_ns);
        }
        if held != holds {
            let used = c.spend(now_ns, held, slots, capacity);
            self.ceilings.charge(client, used);
        }
        if held && !holds && contended {
            let owed = c.settle(now_ns);
            self.policy.charge(client, owed);
        }
        let c = self.clients.get_mut(&client).expect("looked up above");
        if holds && !held {
            c.granted_ns = now_ns;
            c.settle(now_ns);
            c.work_granted = work;
            c.expected = before == Phase::Waiting && matches!(c.phase, Phase::Idle { .. });
        }
        let arrives = c.phase == Phase::Waiting && before != Phase::Waiting;
        if arrives {
            self.arrivals += 1;
            c.arrival = self.arrivals;
        }
        if arrives && !contended {
            // Time held without a waiting client is not charged.
            for c in self.clients.values_mut().filter(|c| c.holds()) {
                c.charged_ns = now_ns;
                // The value of an earlier grant must not be used.
                c.processor_charged_ns = None;
            }
        }
        let c = self.clients.get_mut(&client).expect("looked up above");
        match (before == Phase::Free, c.phase == Phase::Free) {
            (true, false) => self.policy.wake(client, now_ns),
            (false, true) => self.policy.sleep(client, now_ns),
            _ => {}
        }
    }

    /// Clients that wait for others, not because of their own ceiling.
    fn waiting(&self) -> impl Iterator<Item = ClientId> + '_ {
        self.clients
            .iter()
            .filter(|(id, c)| c.phase == Phase::Waiting && !self.ceilings.is_spent(**id))
            .map(|(id, _)| *id)
    }

    /// Clients that hold the device.
    pub fn holders(&self) -> impl Iterator<Item = ClientId> + '_ {
        self.clients
            .iter()
            .filter(|(_, c)| c.holds())
            .map(|(id, _)| *id)
    }

    /// Whether one more client could hold the device and none waits for it.
    pub fn has_room(&self) -> bool {
        !self.paused && self.waiting().next().is_none() && self.holders().count() < self.slots
    }

    /// Number of waiting clients.
    pub fn waiting_count(&self) -> usize {
        self.waiting().count()
    }

    /// Charges the time of holders: only while another client waits, except for a ceiling.
    fn charge(&mut self, now_ns: u64) {
        let capacity = self.capacity();
        for (id, c) in &mut self.clients {
            if c.holds() && self.ceilings.has(*id) {
                let used = c.spend(now_ns, true, self.slots, capacity);
                self.ceilings.charge(*id, used);
            }
        }
        let contended = self.waiting().next().is_some();
        for (id, c) in &mut self.clients {
            if c.holds() {
                let owed = c.settle(now_ns);
                if contended && owed > 0 {
                    self.policy.charge(*id, owed);
                }
            }
        }
        // After charging: a client that may continue now was not waiting before.
        self.ceilings.fill(now_ns, capacity);
    }

    /// The actions to carry out now. Each is carried out (or fails, because the lease changed) and
    /// its lease observed before the next call.
    pub fn decide(&mut self, now_ns: u64) -> Vec<Action> {
        self.charge(now_ns);
        if self.paused {
            return self.clear();
        }
        let mut actions = self.cap(now_ns);
        let mut order: Vec<ClientId> = self.waiting().collect();
        if order.is_empty() {
            return actions;
        }
        order.sort_by_key(|id| (self.policy.rank(*id), self.clients[id].arrival));
        let holders: Vec<ClientId> = self.holders().collect();
        let free = self.slots.saturating_sub(holders.len());
        let mut waiting = order.into_iter();
        actions.extend(waiting.by_ref().take(free).map(Action::Grant));

        // The remaining clients need a holder to yield. A holder that will yield at the end of its
        // task is reserved for one of them; an idle holder, if there is one, is taken instead,
        // because that is sooner.
        let mut promised = holders
            .iter()
            .filter(|id| self.clients[id].phase == Phase::Revoked)
            .count();
        let mut candidates: Vec<ClientId> = holders
            .into_iter()
            .filter(|id| self.clients[id].phase != Phase::Revoked)
            .filter(|id| !actions.contains(&Action::Take(*id)))
            .filter(|id| !actions.contains(&Action::Revoke(*id)))
            .collect();
        for wanting in waiting {
            let victim = candidates
                .iter()
                .copied()
                .filter_map(|id| Some((self.reclaim(id, wanting, now_ns)?, id)))
                .max_by_key(|(action, id)| {
                    let idle = matches!(action, Action::Take(_));
                    let longest = now_ns.saturating_sub(self.clients[id].granted_ns);
                    (idle, self.policy.rank(*id), longest)
                });
            match victim {
                Some((Action::Take(victim), _)) => {
                    candidates.retain(|id| *id != victim);
                    actions.push(Action::Take(victim));
                }
                _ if promised > 0 => promised -= 1,
                Some((action, victim)) => {
                    candidates.retain(|id| *id != victim);
                    actions.push(action);
                }
                None => break,
            }
        }
        actions
    }

    /// Takes the device from holders that have exhausted their ceiling's budget. A client with a
    /// ceiling keeps the device only while it works, because holding counts.
    fn cap(&self, now_ns: u64) -> Vec<Action> {
        let holders = self
            .clients
            .iter()
            .filter(|(id, _)| self.ceilings.has(**id));
        let ends = |(id, c): (&ClientId, &Client)| match c.phase {
            Phase::Busy if self.ceilings.is_spent(*id) => Some(Action::Revoke(*id)),
            Phase::Idle { since_ns } => {
                let lingered = now_ns.saturating_sub(since_ns) >= self.patience_ns(c);
                (lingered || self.ceilings.is_spent(*id)).then_some(Action::Take(*id))
            }
            _ => None,
        };
        holders.filter_map(ends).collect()
    }

    /// When a ceiling next requires an action.
    fn cap_deadline_ns(&self, now_ns: u64) -> Option<u64> {
        let capped = self
            .clients
            .iter()
            .filter(|(id, _)| self.ceilings.has(**id));
        let at = capped.filter_map(|(id, c)| {
            let turns = self.ceilings.deadline_ns(*id, now_ns, self.capacity());
            match c.phase {
                Phase::Idle { since_ns } => {
                    let lingered = since_ns + self.patience_ns(c);
                    Some(turns.map_or(lingered, |at| at.min(lingered)))
                }
                Phase::Busy => turns,
                Phase::Waiting if self.ceilings.is_spent(*id) => turns,
                _ => None,
            }
        });
        at.min().map(|at| at.max(now_ns))
    }

    fn clear(&self) -> Vec<Action> {
        let make_way = |(id, c): (&ClientId, &Client)| match c.phase {
            Phase::Idle { .. } => Some(Action::Take(*id)),
            Phase::Busy => Some(Action::Revoke(*id)),
            _ => None,
        };
        self.clients.iter().filter_map(make_way).collect()
    }

    /// The way to make `holder` yield to `wanting`, if it has to yield now.
    fn reclaim(&self, holder: ClientId, wanting: ClientId, now_ns: u64) -> Option<Action> {
        let c = &self.clients[&holder];
        let held_ns = now_ns.saturating_sub(c.granted_ns);
        let yields = self
            .policy
            .yields(holder, wanting, held_ns, self.quantum_ns);
        match c.phase {
            Phase::Idle { since_ns } => {
                let lingered = now_ns.saturating_sub(since_ns) >= self.patience_ns(c);
                (yields || lingered).then_some(Action::Take(holder))
            }
            Phase::Busy => yields.then_some(Action::Revoke(holder)),
            _ => None,
        }
    }

    /// Time to wait for an idle holder. A client that has just been granted the device is about to
    /// use it: on a busy host its thread takes longer to get a processor than any linger, and a
    /// lease revoked by then would be requested again, indefinitely. A client that has always
    /// returned quickly is expected to do so again. Both pay for the time held.
    fn patience_ns(&self, client: &Client) -> u64 {
        match client {
            Client { expected: true, .. } => self.quantum_ns.max(self.linger_ns),
            Client { brisk: true, .. } => self.linger_ns.max(self.quantum_ns / AWAITED_PART),
            _ => self.linger_ns,
        }
    }

    /// Time of the next check if there is no doorbell before; `None`: no check is needed.
    pub fn deadline_ns(&self, now_ns: u64) -> Option<u64> {
        if self.paused {
            return None;
        }
        let capped = self.cap_deadline_ns(now_ns);
        let waiting = self.waiting().count();
        if waiting == 0 {
            return capped;
        }
        let phases = self.clients.values().map(|c| c.phase);
        let leaving = phases.filter(|p| *p == Phase::Revoked).count();
        // Each waiting client has a holder that will yield and ring; only idle holders need earlier
        // checks.
        let promised = waiting <= leaving;
        self.clients
            .values()
            .filter_map(|c| {
                let quantum_ends = c.granted_ns.saturating_add(self.quantum_ns);
                // After its quantum, a holder that is not yet ahead is checked again a quantum
                // later, and an idle one when its linger time has elapsed.
                let look = if quantum_ends > now_ns {
                    quantum_ends
                } else {
                    now_ns + self.quantum_ns.max(100_000)
                };
                match c.phase {
                    Phase::Idle { since_ns } => Some(look.min(since_ns + self.patience_ns(c))),
                    Phase::Busy if !promised => Some(look),
                    _ => None,
                }
            })
            .chain(capped)
            .min()
            .map(|at| at.max(now_ns))
    }
}
