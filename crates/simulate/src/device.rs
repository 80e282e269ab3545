//! A device: tasks queue for it, and the manager's gate grants it.
//!
//! This module models an executor's part in the lease's states: it requests the device when it has
//! a task, keeps it while it has more, and releases it at the end of the task during which it was
//! revoked. When idle, it keeps the device until the gate takes it.

use baltra_gate::{Action, ClientId, GateOptions, Scheduler, Share, Work};
use baltra_ring::LeaseState;
use std::collections::{HashMap, VecDeque};

/// A request's task on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its request.
    pub request: u32,
    /// Its duration, nanoseconds.
    pub service_ns: u64,
}

/// A task that starts now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Started {
    /// The client under whose lease it runs.
    pub client: ClientId,
    /// The task's request.
    pub request: u32,
    /// Its end.
    pub ends_ns: u64,
}

struct Client {
    state: LeaseState,
    /// Busy time of ended tasks.
    work: Work,
    queue: VecDeque<Task>,
    running: Option<Running>,
}

struct Running {
    task: Task,
    /// Start of the device's work on it.
    began_ns: u64,
}

/// One device with its gate.
pub struct Device {
    scheduler: Scheduler,
    clients: Vec<Client>,
    by_owner: HashMap<u32, ClientId>,
    switch_ns: u64,
    /// The client of the last task; a different client pays for the switch.
    last: Option<ClientId>,
    /// Busy time of ended tasks.
    worked_ns: u64,
    /// Tasks queued or running.
    load: usize,
    paused: bool,
}

impl Device {
    /// An idle device without clients.
    pub fn new(options: GateOptions, switch_ns: u64) -> Device {
        Device {
            scheduler: Scheduler::new(options),
            clients: Vec::new(),
            by_owner: HashMap::new(),
            switch_ns,
            last: None,
            worked_ns: 0,
            load: 0,
            paused: false,
        }
    }

    /// Tasks queued or running.
    pub fn load(&self) -> usize {
        self.load
    }

    /// Busy time up to now, summed over the slots.
    pub fn worked_ns(&self, now_ns: u64) -> u64 {
        let running = self.clients.iter().filter_map(|c| c.running.as_ref());
        let begun = running.map(|r| now_ns.saturating_sub(r.began_ns));
        self.worked_ns + begun.sum::<u64>()
    }

    /// Number of ended tasks.
    pub fn ended(&self) -> u64 {
        self.clients.iter().map(|c| c.work.tasks).sum()
    }

    /// Whether no task runs.
    pub fn is_still(&self) -> bool {
        self.clients.iter().all(|c| c.running.is_none())
    }

    /// Queues a task of an owner.
    pub fn submit(
        &mut self,
        owner: u32,
        share: impl FnOnce() -> Share,
        task: Task,
        now_ns: u64,
        started: &mut Vec<Started>,
    ) {
        let id = match self.by_owner.get(&owner) {
            Some(id) => *id,
            None => {
                let id = self.clients.len() as ClientId;
                self.scheduler.add(id, &share());
                self.clients.push(Client {
                    state: LeaseState::Free,
                    work: Work::default(),
                    queue: VecDeque::new(),
                    running: None,
                });
                self.by_owner.insert(owner, id);
                id
            }
        };
        self.load += 1;
        let client = &mut self.clients[id as usize];
        client.queue.push_back(task);
        match client.state {
            LeaseState::Free => self.turn(id, LeaseState::Waiting, now_ns),
            LeaseState::Idle => self.begin(id, now_ns, started),
            _ => {}
        }
        self.settle(now_ns, started);
    }

    /// Ends the running task of a client, and returns it.
    pub fn end(&mut self, id: ClientId, now_ns: u64, started: &mut Vec<Started>) -> Option<Task> {
        let client = &mut self.clients[id as usize];
        let ended = client.running.take()?;
        client.work.tasks += 1;
        client.work.busy_ns += ended.task.service_ns;
        self.worked_ns += ended.task.service_ns;
        self.load -= 1;
        match client.state {
            LeaseState::Revoked => {
                self.turn(id, LeaseState::Free, now_ns);
                if !self.clients[id as usize].queue.is_empty() {
                    self.turn(id, LeaseState::Waiting, now_ns);
                }
            }
            _ => {
                self.turn(id, LeaseState::Idle, now_ns);
                if !self.clients[id as usize].queue.is_empty() && !self.paused {
                    self.begin(id, now_ns, started);
                }
            }
        }
        self.settle(now_ns, started);
        Some(ended.task)
    }

    /// Removes an owner's tasks that have not started.
    pub fn withdraw(
        &mut self,
        owner: u32,
        which: impl Fn(&Task) -> bool,
        now_ns: u64,
        started: &mut Vec<Started>,
    ) -> Vec<Task> {
        let Some(id) = self.by_owner.get(&owner).copied() else {
            return Vec::new();
        };
        let client = &mut self.clients[id as usize];
        let (gone, kept): (Vec<Task>, Vec<Task>) = client.queue.drain(..).partition(|t| which(t));
        client.queue = kept.into();
        self.load -= gone.len();
        if client.queue.is_empty() && client.state == LeaseState::Waiting {
            self.turn(id, LeaseState::Free, now_ns);
        }
        self.settle(now_ns, started);
        gone
    }

    /// Removes all tasks that have not started.
    pub fn withdraw_all(&mut self, now_ns: u64, started: &mut Vec<Started>) -> Vec<Task> {
        let mut owners: Vec<u32> = self.by_owner.keys().copied().collect();
        owners.sort_unstable();
        let each = owners
            .into_iter()
            .map(|owner| self.withdraw(owner, |_| true, now_ns, started));
        each.collect::<Vec<_>>().concat()
    }

    /// Pauses or resumes; while paused, no task starts.
    pub fn pause(&mut self, paused: bool, now_ns: u64, started: &mut Vec<Started>) {
        self.paused = paused;
        self.scheduler.set_paused(paused);
        self.settle(now_ns, started);
    }

    /// The gate's next deadline, if no other event happens before.
    pub fn deadline_ns(&self, now_ns: u64) -> Option<u64> {
        self.scheduler.deadline_ns(now_ns)
    }

    /// Executes the gate's decisions until there are none.
    pub fn settle(&mut self, now_ns: u64, started: &mut Vec<Started>) {
        // Without waiting or revocable clients, there is nothing to decide.
        while self.paused || self.scheduler.waiting_count() > 0 {
            let actions = self.scheduler.decide(now_ns);
            if actions.is_empty() {
                break;
            }
            for action in actions {
                self.act(action, now_ns, started);
            }
        }
    }

    fn act(&mut self, action: Action, now_ns: u64, started: &mut Vec<Started>) {
        match action {
            Action::Grant(id) => self.begin(id, now_ns, started),
            Action::Take(id) => {
                self.turn(id, LeaseState::Free, now_ns);
                // While paused, a client may hold the device without a running task and still have
                // queued tasks.
                if !self.clients[id as usize].queue.is_empty() {
                    self.turn(id, LeaseState::Waiting, now_ns);
                }
            }
            Action::Revoke(id) => self.turn(id, LeaseState::Revoked, now_ns),
        }
    }

    /// Starts the next task of a client that holds the device, if there is one.
    fn begin(&mut self, id: ClientId, now_ns: u64, started: &mut Vec<Started>) {
        let client = &mut self.clients[id as usize];
        let Some(task) = client.queue.pop_front() else {
            // It held the device for tasks that have been withdrawn.
            return self.turn(id, LeaseState::Idle, now_ns);
        };
        let passes = self.last.replace(id).is_some_and(|last| last != id);
        let began_ns = now_ns + if passes { self.switch_ns } else { 0 };
        client.running = Some(Running { task, began_ns });
        started.push(Started {
            client: id,
            request: task.request,
            ends_ns: began_ns + task.service_ns,
        });
        self.turn(id, LeaseState::Busy, now_ns);
    }

    fn turn(&mut self, id: ClientId, state: LeaseState, now_ns: u64) {
        let client = &mut self.clients[id as usize];
        client.state = state;
        let running = client.running.as_ref();
        let work = Work {
            busy_ns: client.work.busy_ns + running.map_or(0, |r| now_ns.saturating_sub(r.began_ns)),
            ..client.work
        };
        self.scheduler.observe(id, state, work, now_ns);
    }

    /// Whether a task waits although a slot is free, which must never hold after
    /// [`Device::settle`].
    #[cfg(test)]
    pub fn waits_for_nothing(&self, slots: usize) -> bool {
        let running = self.clients.iter().filter(|c| c.running.is_some()).count();
        !self.paused
            && running < slots
            && self
                .clients
                .iter()
                .any(|c| c.running.is_none() && !c.queue.is_empty())
    }
}
