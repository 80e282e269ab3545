//! The stages of a request: due, sent, waiting for its instance, in progress, on the device,
//! answered.

use super::{Event, Replica, Request, World};
use crate::device::Task;
use crate::scenario::Isolation;
use baltra_gate::{ClientId, Share};

/// The device of a request that has none yet.
const NOWHERE: u32 = u32::MAX;

impl World<'_> {
    /// Handles a due request.
    pub(super) fn arrive(&mut self, function: u32) {
        let connections = self.spec(function).load.connections;
        let state = &mut self.functions[function as usize];
        state.arrivals += 1;
        if let Some(next) = state.stream.next(&mut state.random) {
            self.at(next.max(self.now_ns), Event::Arrive { function });
        }
        let is_counted = self.is_counted();
        self.count(function).offered += u64::from(is_counted);
        let state = &mut self.functions[function as usize];
        if connections == 0 || state.in_flight < connections {
            self.send(function);
        } else if state.is_held {
            self.count(function).unsent += u64::from(is_counted);
        } else {
            state.is_held = true;
        }
    }

    /// Sends a request to the least loaded instance.
    fn send(&mut self, function: u32) {
        let spec = self.spec(function);
        let is_out = self.functions[function as usize].ready.is_empty();
        if is_out && spec.scale.is_some() && self.functions[function as usize].instances == 0 {
            self.deploy(function);
        }
        let least = self.functions[function as usize].ready.first().copied();
        let room = (spec.concurrency + spec.queue) as u64;
        let Some((_, _, replica)) = least.filter(|(load, _, _)| u64::from(*load) < room) else {
            let is_counted = self.is_counted();
            self.count(function).refused += u64::from(is_counted);
            return;
        };
        let request = Request {
            function,
            replica,
            device: NOWHERE,
            sent_ns: self.now_ns,
            queued_ns: self.now_ns,
        };
        let id = match self.free_requests.pop() {
            Some(id) => {
                self.requests[id as usize] = request;
                id
            }
            None => {
                self.requests.push(request);
                self.requests.len() as u32 - 1
            }
        };
        self.functions[function as usize].in_flight += 1;
        self.change_load(replica, 1);
        self.replicas[replica as usize].queue.push_back(id);
        self.work(replica);
    }

    /// Changes an instance's load, and its position in the order.
    fn change_load(&mut self, replica: u32, by: i32) {
        self.stamps += 1;
        let stamp = self.stamps;
        let state = &mut self.replicas[replica as usize];
        let ready = &mut self.functions[state.function as usize].ready;
        let was_ready = ready.remove(&(state.load, state.stamp, replica));
        state.load = state.load.saturating_add_signed(by);
        state.stamp = stamp;
        if was_ready {
            ready.insert((state.load, stamp, replica));
        }
    }

    /// Starts as many requests of an instance as its concurrency allows.
    fn work(&mut self, replica: u32) {
        let function = self.replicas[replica as usize].function;
        let spec = self.spec(function);
        let deadline_ns = (spec.deadline_ms * 1e6) as u64;
        while (self.replicas[replica as usize].working as usize) < spec.concurrency {
            let Some(id) = self.replicas[replica as usize].queue.pop_front() else {
                break;
            };
            let sent_ns = self.requests[id as usize].sent_ns;
            if deadline_ns > 0 && self.now_ns >= sent_ns + deadline_ns {
                let is_counted = self.is_counted();
                self.count(function).late += u64::from(is_counted);
                self.forget(id);
                continue;
            }
            self.replicas[replica as usize].working += 1;
            let host_ns = spec
                .host_ms
                .sample_ns(&mut self.functions[function as usize].random);
            if host_ns > 0 {
                self.at(self.now_ns + host_ns, Event::Host { request: id });
            } else {
                self.submit(id);
            }
        }
    }

    /// Queues a request's task on the instance's least loaded device.
    pub(super) fn submit(&mut self, id: u32) {
        let request = self.requests[id as usize];
        let state = &mut self.replicas[request.replica as usize];
        if let Some(waiting) = &mut state.away {
            waiting.push(id);
            return;
        }
        // Equally loaded devices take turns.
        let (turn, all) = (self.stamps as usize, state.devices.len());
        let key = |(n, d): &(usize, u32)| {
            let load = self.boards[*d as usize].device.load();
            (load, (n + turn) % all)
        };
        let devices = state.devices.iter().copied().enumerate();
        let Some((_, device)) = devices.min_by_key(key) else {
            return;
        };
        let spec = self.spec(request.function);
        let function = &mut self.functions[request.function as usize];
        let board = &mut self.boards[device as usize];
        let service = spec.service_ms.sample_ns(&mut function.random);
        let task = Task {
            request: id,
            service_ns: (service as f64 / board.speed).round() as u64,
        };
        let queued = &mut self.requests[id as usize];
        queued.device = device;
        queued.queued_ns = self.now_ns;
        self.submit_in_turn(device, task);
    }

    /// Queues a task at its device's gate.
    pub(super) fn give(&mut self, device: u32, task: Task) {
        let request = self.requests[task.request as usize];
        let spec = self.spec(request.function);
        let function = &self.functions[request.function as usize];
        let board = &mut self.boards[device as usize];
        let owner = match board.isolation {
            Isolation::Tenant => function.tenant,
            Isolation::Session => request.replica,
        };
        let share = || Share {
            tenant: function.tenant.to_string(),
            weight: spec.weight,
            priority: spec.priority,
            ..Share::default()
        };
        board
            .device
            .submit(owner, share, task, self.now_ns, &mut self.started);
        self.follow(device);
    }

    /// Ends a task and its request.
    pub(super) fn end_task(&mut self, device: u32, client: ClientId) {
        let board = &mut self.boards[device as usize];
        let ended = board.device.end(client, self.now_ns, &mut self.started);
        self.follow(device);
        self.rest(device);
        let Some(Task { request: id, .. }) = ended else {
            return;
        };
        let Request {
            function,
            replica,
            sent_ns,
            ..
        } = self.requests[id as usize];
        let latency = self.now_ns - sent_ns;
        if self.is_counted() {
            let deadline_ms = self.spec(function).deadline_ms;
            let is_late = deadline_ms > 0.0 && latency as f64 > deadline_ms * 1e6;
            let counts = self.count(function);
            counts.processed += 1;
            counts.late += u64::from(is_late);
            counts.latency.record(latency);
        }
        self.replicas[replica as usize].working -= 1;
        self.forget(id);
        self.work(replica);
    }

    /// Removes an ended request; its connection may send the next one.
    fn forget(&mut self, id: u32) {
        let Request {
            function, replica, ..
        } = self.requests[id as usize];
        self.free_requests.push(id);
        self.change_load(replica, -1);
        self.leave_if_done(replica);
        let state = &mut self.functions[function as usize];
        state.in_flight -= 1;
        if std::mem::take(&mut state.is_held) {
            self.send(function);
        }
    }

    /// Moves an instance: requests that have not started wait for the end of the move.
    pub(super) fn take_along(&mut self, replica: u32, from: u32) {
        let Replica { function, .. } = self.replicas[replica as usize];
        let requests = &self.requests;
        let own = |task: &Task| {
            let request = &requests[task.request as usize];
            request.replica == replica
        };
        let board = &mut self.boards[from as usize];
        let owner = match board.isolation {
            Isolation::Tenant => self.functions[function as usize].tenant,
            Isolation::Session => replica,
        };
        let taken = board
            .device
            .withdraw(owner, own, self.now_ns, &mut self.started);
        self.follow(from);
        let waiting = self.replicas[replica as usize].away.get_or_insert_default();
        waiting.extend(taken.iter().map(|task| task.request));
    }

    /// Ends the move of an instance.
    pub(super) fn back(&mut self, replica: u32) {
        let waiting = self.replicas[replica as usize].away.take();
        for id in waiting.into_iter().flatten() {
            self.submit(id);
        }
    }
}
