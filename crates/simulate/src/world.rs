//! The state of the simulated cluster, and its events.

mod placement;
mod requests;
#[cfg(test)]
mod tests;
mod turns;

use crate::device::{Device, Started};
use crate::load::Stream;
use crate::random::Random;
use crate::report::{self, Report};
use crate::scenario::{Function as Spec, Isolation, Scenario};
use crate::statistics::{Counts, DeviceCounts};
use baltra_gate::{ClientId, GateOptions};
use baltra_registry::allocate::Index;
use baltra_registry::model::{self, Accelerator, Region, Snapshot, UTILIZATION};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::time::Duration;
use turns::Turns;

/// An event. Numbers are indices into the world's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The measurement begins.
    Warm,
    /// The next instance of a function is deployed; `following` more are due.
    Deploy { function: u32, following: u32 },
    /// A function's next request is due.
    Arrive { function: u32 },
    /// A request's work outside the device ends.
    Host { request: u32 },
    /// A task ends.
    End { device: u32, client: ClientId },
    /// The deadline of a gate.
    Gate { device: u32 },
    /// A region's accelerator is loaded.
    Programmed { device: u32, region: u32 },
    /// The turn of a device's image may be over.
    Turn { device: u32 },
    /// An instance has completed its move.
    Back { replica: u32 },
    /// Devices report their utilization.
    Heartbeat,
    /// Autoscaling runs.
    Scale,
}

/// A simulated device.
struct Board {
    device: Device,
    slots: usize,
    speed: f64,
    isolation: Isolation,
    reconfigure_ns: u64,
    /// Regions to be loaded; the first one is next.
    loading: VecDeque<u32>,
    /// Whether the first region is being loaded, rather than waiting for the device.
    is_programming: bool,
    /// The gate's next deadline.
    gate_at: Option<u64>,
    /// The images that take turns; `None`: its images do not.
    turns: Option<Turns>,
    counts: DeviceCounts,
}

/// One function.
struct Function {
    /// The entry to which it belongs.
    spec: usize,
    id: String,
    tenant: u32,
    random: Random,
    stream: Stream,
    /// Instances that accept requests: the least loaded first, then the least recently used.
    ready: BTreeSet<(u32, u64, u32)>,
    instances: u32,
    /// Number of instances ever created, because names are not reused.
    made: u32,
    in_flight: u32,
    /// Whether a due request waits for a connection.
    is_held: bool,
    /// Number and total of the tasks' waits since the last autoscaling, the total in nanoseconds.
    waits: (u64, u64),
    arrivals: u64,
}

/// One instance.
struct Replica {
    id: String,
    function: u32,
    devices: Vec<u32>,
    /// Requests that wait or are in progress.
    load: u32,
    stamp: u64,
    queue: VecDeque<u32>,
    working: u32,
    /// Set during a move: requests that have reached the device stage.
    away: Option<Vec<u32>>,
    is_retired: bool,
}

/// A request in progress.
#[derive(Clone, Copy)]
struct Request {
    function: u32,
    replica: u32,
    device: u32,
    sent_ns: u64,
    queued_ns: u64,
}

pub(crate) struct World<'a> {
    scenario: &'a Scenario,
    turn_options: Option<baltra_eviction::Options>,
    now_ns: u64,
    warm_ns: u64,
    end_ns: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    /// Sequence number of events: simultaneous events happen in this order.
    sequence: u64,
    played: u64,
    stamps: u64,
    index: Index,
    boards: Vec<Board>,
    board_ids: Vec<String>,
    board_of: HashMap<String, u32>,
    functions: Vec<Function>,
    replicas: Vec<Replica>,
    replica_of: HashMap<String, u32>,
    requests: Vec<Request>,
    free_requests: Vec<u32>,
    counts: Vec<Counts>,
    /// Current number of instances, by entry.
    instances: Vec<usize>,
    started: Vec<Started>,
}

fn ns(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

/// Simulates a scenario without its cases; see [`Scenario::runs`].
pub fn run(scenario: &Scenario, seed: u64) -> Report {
    let mut world = World::new(scenario, seed);
    world.play();
    report::of(&world.outcome(), seed)
}

/// The input of a report.
pub(crate) struct Outcome<'a> {
    pub scenario: &'a Scenario,
    pub seconds: f64,
    pub played: u64,
    pub counts: &'a [Counts],
    /// By entry: number of instances at the end, and devices of the first few.
    pub instances: Vec<(usize, Vec<String>)>,
    /// Id, accelerators, utilization in percent, and counters of each device.
    pub boards: Vec<(String, Vec<String>, f64, &'a DeviceCounts)>,
}

impl<'a> World<'a> {
    pub fn new(scenario: &'a Scenario, seed: u64) -> World<'a> {
        let mut world = World {
            scenario,
            turn_options: scenario.turns.map(|turns| turns.options()),
            now_ns: 0,
            warm_ns: ns(scenario.warmup_s),
            end_ns: ns(scenario.duration_s),
            events: BinaryHeap::new(),
            sequence: 0,
            played: 0,
            stamps: 0,
            index: Index::new(Snapshot::default(), scenario.allocation.clone()),
            boards: Vec::new(),
            board_ids: Vec::new(),
            board_of: HashMap::new(),
            functions: Vec::new(),
            replicas: Vec::new(),
            replica_of: HashMap::new(),
            requests: Vec::new(),
            free_requests: Vec::new(),
            counts: vec![Counts::default(); scenario.functions.len()],
            instances: vec![0; scenario.functions.len()],
            started: Vec::new(),
        };
        world.add_boards();
        world.add_functions(seed);
        world.at(world.warm_ns, Event::Warm);
        world.at(ns(scenario.heartbeat_s), Event::Heartbeat);
        if scenario.functions.iter().any(|f| f.scale.is_some()) {
            world.at(ns(scenario.scale_s), Event::Scale);
        }
        world
    }

    fn add_boards(&mut self) {
        for node in &self.scenario.nodes {
            for n in 0..node.count {
                let name = match node.count {
                    1 => node.name.clone(),
                    _ => format!("{}{n}", node.name),
                };
                let all = node
                    .devices
                    .iter()
                    .flat_map(|d| (0..d.count).map(move |_| d));
                for (m, device) in all.enumerate() {
                    self.add_board(device, &name, m);
                }
            }
        }
    }

    fn add_board(&mut self, spec: &crate::scenario::Device, node: &str, number: usize) {
        let id = format!("{node}/{number}");
        let takes_turns = self.turn_options.is_some() && spec.exclusive && spec.regions == 1;
        let gate = spec.gate.as_ref().unwrap_or(&self.scenario.gate);
        let slots = match gate.slots {
            0 => spec.regions,
            n => n,
        };
        let options = GateOptions {
            slots,
            policy: gate.policy,
            quantum: Duration::from_nanos((gate.quantum_ms * 1e6) as u64),
            linger: Duration::from_nanos((gate.linger_us * 1e3) as u64),
        };
        let region = |n: usize| Region {
            accelerator: spec.accelerators.get(n).map(|name| Accelerator {
                name: name.clone(),
                digest: String::new(),
            }),
            ..Region::default()
        };
        self.index.put_device(model::Device {
            id: id.clone(),
            name: spec.name.clone(),
            node: node.to_owned(),
            vendor: spec.vendor.clone(),
            platform: spec.platform.clone(),
            profile: spec.profile.clone(),
            model: spec.model.clone(),
            pool: spec.pool.clone(),
            labels: spec.labels.clone(),
            exclusive: spec.exclusive,
            regions: (0..spec.regions).map(region).collect(),
            ..model::Device::default()
        });
        self.board_of.insert(id.clone(), self.boards.len() as u32);
        self.board_ids.push(id);
        self.boards.push(Board {
            device: Device::new(options, (gate.switch_us * 1e3) as u64),
            slots,
            speed: spec.speed,
            isolation: gate.isolation,
            reconfigure_ns: (spec.reconfigure_ms * 1e6) as u64,
            loading: VecDeque::new(),
            is_programming: false,
            gate_at: None,
            turns: takes_turns.then(|| Turns::holding(spec.accelerators.first().cloned())),
            counts: DeviceCounts::default(),
        });
    }

    fn add_functions(&mut self, seed: u64) {
        let mut tenants: BTreeMap<String, u32> = BTreeMap::new();
        for (spec, entry) in self.scenario.functions.iter().enumerate() {
            for n in 0..entry.count {
                self.add_function(seed, spec, entry, n, &mut tenants);
            }
        }
    }

    fn add_function(
        &mut self,
        seed: u64,
        spec: usize,
        entry: &Spec,
        number: usize,
        tenants: &mut BTreeMap<String, u32>,
    ) {
        let id = match entry.count {
            1 => entry.name.clone(),
            _ => format!("{}{number}", entry.name),
        };
        let tenant = if entry.tenant.is_empty() {
            &id
        } else {
            &entry.tenant
        };
        let fresh = tenants.len() as u32;
        let tenant = *tenants.entry(tenant.clone()).or_insert(fresh);
        let at = self.functions.len() as u32;
        self.index.put_function(model::Function {
            id: id.clone(),
            tenant: entry.tenant.clone(),
            query: entry.parsed(number).unwrap_or_default(),
            devices: entry.devices,
            pooled: entry.pooled,
            locality: entry.locality,
            memory_bytes: 0,
            accelerator: None,
            preemptible: self.turn_options.is_some(),
        });
        let start_ns = ns(entry.start_s);
        let trace = self.scenario.arrivals.get(&entry.name).cloned();
        let mut function = Function {
            spec,
            id,
            tenant,
            random: Random::new(seed, u64::from(at)),
            stream: Stream::new(&entry.load, start_ns, trace.unwrap_or_default()),
            ready: BTreeSet::new(),
            instances: 0,
            made: 0,
            in_flight: 0,
            is_held: false,
            waits: (0, 0),
            arrivals: 0,
        };
        let first = function.stream.next(&mut function.random);
        self.functions.push(function);
        if let Some(following) = (entry.replicas as u32).checked_sub(1) {
            let deploy = Event::Deploy {
                function: at,
                following,
            };
            self.at(start_ns, deploy);
        }
        if let Some(first) = first {
            self.at(first, Event::Arrive { function: at });
        }
    }

    fn at(&mut self, at_ns: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at_ns, self.sequence, event)));
    }

    fn spec(&self, function: u32) -> &'a Spec {
        &self.scenario.functions[self.functions[function as usize].spec]
    }

    fn count(&mut self, function: u32) -> &mut Counts {
        &mut self.counts[self.functions[function as usize].spec]
    }

    fn is_counted(&self) -> bool {
        self.now_ns >= self.warm_ns
    }

    /// Simulates until the end.
    pub fn play(&mut self) {
        while let Some(Reverse((at_ns, _, event))) = self.events.pop() {
            if at_ns > self.end_ns {
                break;
            }
            self.now_ns = at_ns;
            self.played += 1;
            self.happen(event);
        }
        self.now_ns = self.end_ns;
        for n in 0..self.functions.len() {
            let in_flight = self.functions[n].in_flight;
            self.count(n as u32).unfinished += u64::from(in_flight);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Warm => {
                for board in &mut self.boards {
                    board.counts.worked_before_ns = board.device.worked_ns(self.now_ns);
                }
            }
            Event::Deploy {
                function,
                following,
            } => self.deploy_next(function, following),
            Event::Arrive { function } => self.arrive(function),
            Event::Host { request } => self.submit(request),
            Event::End { device, client } => self.end_task(device, client),
            Event::Gate { device } => self.look_at_gate(device),
            Event::Programmed { device, region } => self.programmed(device, region),
            Event::Turn { device } => self.look_at_turn(device),
            Event::Back { replica } => self.back(replica),
            Event::Heartbeat => self.heartbeat(),
            Event::Scale => self.scale(),
        }
    }

    fn heartbeat(&mut self) {
        let interval_ns = ns(self.scenario.heartbeat_s);
        for (board, id) in self.boards.iter_mut().zip(&self.board_ids) {
            let worked = board.device.worked_ns(self.now_ns);
            let since = worked - std::mem::replace(&mut board.counts.worked_reported_ns, worked);
            let whole = interval_ns as f64 * board.slots as f64;
            let utilization = (since as f64 / whole * 100.0).min(100.0);
            board.counts.utilization = utilization;
            let value = board.turns.as_ref().map(|turns| turns.value(self.now_ns));
            self.index.update_device(id, |d| {
                d.foreseen = 0.0;
                d.metrics.insert(UTILIZATION.to_owned(), utilization);
                if let (Some(value), Some(region)) = (value, d.regions.first_mut()) {
                    region.value = value;
                }
            });
        }
        self.at(self.now_ns + interval_ns, Event::Heartbeat);
    }

    fn look_at_gate(&mut self, device: u32) {
        let board = &mut self.boards[device as usize];
        if board.gate_at != Some(self.now_ns) {
            // An earlier deadline was handled already.
            return;
        }
        board.gate_at = None;
        board.device.settle(self.now_ns, &mut self.started);
        self.follow(device);
    }

    /// Applies the decisions of a device's gate: tasks that began, and its next deadline.
    fn follow(&mut self, device: u32) {
        let mut started = std::mem::take(&mut self.started);
        for Started {
            client,
            request,
            ends_ns,
        } in started.drain(..)
        {
            let Request {
                function,
                queued_ns,
                ..
            } = self.requests[request as usize];
            let waited = self.now_ns - queued_ns;
            let waits = &mut self.functions[function as usize].waits;
            *waits = (waits.0 + 1, waits.1 + waited);
            if self.is_counted() {
                self.count(function).wait.record(waited);
            }
            self.at(ends_ns, Event::End { device, client });
        }
        self.started = started;
        let board = &mut self.boards[device as usize];
        if let Some(at) = board.device.deadline_ns(self.now_ns) {
            // At least one nanosecond later: everything due now has been done.
            let at = at.max(self.now_ns + 1);
            if board.gate_at.is_none_or(|known| at < known) {
                board.gate_at = Some(at);
                self.at(at, Event::Gate { device });
            }
        }
        self.program_if_still(device);
        self.load_if_still(device);
    }

    pub fn outcome(&self) -> Outcome<'_> {
        let seconds = (self.end_ns - self.warm_ns) as f64 / 1e9;
        let boards = self.boards.iter().zip(&self.board_ids).map(|(board, id)| {
            let worked = board.device.worked_ns(self.end_ns) - board.counts.worked_before_ns;
            let percent = worked as f64 / 1e7 / seconds / board.slots as f64;
            let known = &self.index.snapshot().devices[id];
            let held = known.regions.iter().filter_map(|r| r.accelerator.as_ref());
            let names = held.map(|a| a.name.clone()).collect();
            (id.clone(), names, percent, &board.counts)
        });
        let mut places: Vec<Vec<String>> = vec![Vec::new(); self.scenario.functions.len()];
        for replica in self.replicas.iter().filter(|r| !r.is_retired) {
            let of = &mut places[self.functions[replica.function as usize].spec];
            if of.len() < report::PLACES_MAX {
                of.extend(
                    replica
                        .devices
                        .iter()
                        .map(|d| self.board_ids[*d as usize].clone()),
                );
            }
        }
        Outcome {
            scenario: self.scenario,
            seconds,
            played: self.played,
            counts: &self.counts,
            instances: self.instances.iter().copied().zip(places).collect(),
            boards: boards.collect(),
        }
    }
}
