use super::*;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicBool;

/// Elements that each channel of the stand-ins holds.
const DEPTH: usize = 4;

/// The step of a stand-in for a kernel in a cycle.
#[derive(Clone, Copy)]
enum Step {
    Read(&'static str),
    Write(&'static str),
    Print(&'static str),
    Work,
    Fault,
    /// Runs until it is cancelled.
    Loop,
}
use Step::{Fault, Loop, Print, Read, Work, Write};

type Contents = Arc<Mutex<HashMap<&'static str, VecDeque<u64>>>>;

const FAULT: State = State::Fault {
    argument: 0,
    is_store: false,
    offset: 8,
};

struct StandIn {
    steps: Vec<Step>,
    contents: Contents,
    at: usize,
    cycles: u64,
    transfers: u64,
    waits: Option<(&'static str, bool)>,
    printed: Vec<u8>,
}

impl StandIn {
    fn cycle(&mut self, now: u64) -> State {
        let Some(step) = self.steps.get(self.at) else {
            return State::Done;
        };
        self.cycles += 1;
        self.waits = None;
        let mut contents = self.contents.locked();
        match *step {
            Read(channel) => match contents.entry(channel).or_default().pop_front() {
                Some(_) => self.transfers += 1,
                None => self.waits = Some((channel, false)),
            },
            Write(channel) => match contents.entry(channel).or_default() {
                elements if elements.len() < DEPTH => {
                    elements.push_back(now);
                    self.transfers += 1;
                }
                _ => self.waits = Some((channel, true)),
            },
            Print(text) => self.printed.extend_from_slice(text.as_bytes()),
            Work => {}
            Fault => return FAULT,
            Loop => return State::Running,
        }
        self.at += usize::from(self.waits.is_none());
        if self.at == self.steps.len() {
            State::Done
        } else {
            State::Running
        }
    }
}

impl Circuit for StandIn {
    fn advance(&mut self, now: u64, cycles: u64) -> State {
        for cycle in 0..cycles {
            match self.cycle(now + cycle) {
                State::Running => {}
                ended => return ended,
            }
        }
        State::Running
    }

    fn cycles(&self) -> u64 {
        self.cycles
    }

    fn waits(&self) -> Option<(&str, bool)> {
        self.waits
    }

    fn transfers(&self) -> u64 {
        self.transfers
    }

    fn take_printed(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.printed)
    }
}

/// A program with kernels `produce`, `multiply` and `consume`, connected by `numbers` and `products`,
/// and `alone`, which has no channels.
struct Stage {
    simulation: Simulation,
    program: Arc<Contained>,
    kernels: Arc<Vec<Kernel>>,
    printed: Arc<Mutex<Vec<u8>>>,
}

#[derive(Default)]
struct Contained {
    contents: Contents,
    cleared: AtomicUsize,
}

impl Program for Contained {
    fn id(&self) -> u64 {
        7
    }

    fn clear_channels(&self) {
        self.cleared.fetch_add(1, Ordering::Relaxed);
        self.contents.locked().clear();
    }
}

impl Stage {
    fn new() -> Stage {
        let kernel = |name: &str, channels: &[(&str, bool)]| Kernel {
            name: name.into(),
            channels: channels
                .iter()
                .map(|(name, writes)| Channel {
                    name: (*name).into(),
                    writes: *writes,
                    ..Channel::default()
                })
                .collect(),
            ..Kernel::default()
        };
        Stage {
            simulation: Simulation::default(),
            program: Arc::default(),
            kernels: Arc::new(vec![
                kernel("produce", &[("numbers", true)]),
                kernel("multiply", &[("numbers", false), ("products", true)]),
                kernel("consume", &[("products", false)]),
                kernel("alone", &[]),
            ]),
            printed: Arc::default(),
        }
    }

    fn launch(&self, name: &str, steps: &[Step]) -> Launch {
        let printed = self.printed.clone();
        let run = StandIn {
            steps: steps.to_vec(),
            contents: self.program.contents.clone(),
            at: 0,
            cycles: 0,
            transfers: 0,
            waits: None,
            printed: Vec::new(),
        };
        let number = self.kernels.iter().position(|kernel| kernel.name == name);
        Launch {
            program: self.program.clone(),
            kernels: self.kernels.clone(),
            number: number.unwrap(),
            output: Arc::new(move |text: &[u8]| printed.locked().extend_from_slice(text)),
            start: Box::new(move |_| Some(Box::new(run) as Box<dyn Circuit>)),
        }
    }

    /// Runs a kernel that is not cancelled.
    fn run(&self, name: &str, steps: &[Step]) -> End {
        self.simulation.run(self.launch(name, steps), &|| false)
    }

    /// Waits until that many kernels run or wait for their circuit, or have not been noticed yet.
    fn until_launched(&self, count: u64) {
        while self.simulation.desk.locked().tickets < count {
            std::thread::yield_now();
        }
    }

    /// Runs the three kernels, launched in this order; their ends in the order of the program.
    fn run_all(&self, order: [usize; 3], steps: [Vec<Step>; 3]) -> [End; 3] {
        let before = self.simulation.desk.locked().tickets;
        std::thread::scope(|scope| {
            let mut threads: [Option<_>; 3] = [None, None, None];
            for (at, number) in order.into_iter().enumerate() {
                let (name, steps) = (&self.kernels[number].name, &steps[number]);
                threads[number] = Some(scope.spawn(move || self.run(name, steps)));
                self.until_launched(before + at as u64 + 1);
            }
            threads.map(|thread| thread.unwrap().join().unwrap())
        })
    }
}

fn times(count: usize, steps: &[Step]) -> Vec<Step> {
    steps.repeat(count)
}

/// Steps of the three kernels that pass on this many elements.
fn passing(count: usize) -> [Vec<Step>; 3] {
    [
        times(count, &[Write("numbers")]),
        times(count, &[Read("numbers"), Work, Write("products")]),
        times(count, &[Read("products")]),
    ]
}

const ORDERS: [[usize; 3]; 6] = [
    [0, 1, 2],
    [0, 2, 1],
    [1, 0, 2],
    [1, 2, 0],
    [2, 0, 1],
    [2, 1, 0],
];

fn is_done(end: &End) -> bool {
    matches!(end, End::Ended(State::Done, _))
}

fn peer_failed(channel: &str, peer: &str) -> End {
    End::PeerFailed {
        channel: channel.into(),
        peer: peer.into(),
    }
}

#[test]
fn kernels_end_in_whatever_order_they_are_launched() {
    let stage = Stage::new();
    for order in ORDERS {
        let ends = stage.run_all(order, passing(40));
        assert!(ends.iter().all(is_done), "{order:?}: {ends:?}");
    }
}

#[test]
fn elements_stay_for_a_later_launch() {
    let stage = Stage::new();
    for (name, steps) in ["produce", "multiply", "consume"].iter().zip(passing(4)) {
        assert!(is_done(&stage.run(name, &steps)), "{name}");
    }
}

#[test]
fn a_failure_ends_those_that_wait_for_it_and_no_later_launch() {
    let stage = Stage::new();
    for order in ORDERS {
        let mut steps = passing(100);
        steps[0][9] = Fault;
        let ends = stage.run_all(order, steps);
        assert!(matches!(ends[0], End::Ended(FAULT, _)), "{ends:?}");
        assert_eq!(ends[1], peer_failed("numbers", "produce"), "{order:?}");
        assert_eq!(ends[2], peer_failed("products", "multiply"), "{order:?}");
        assert!(stage.program.contents.locked().is_empty());
        // Whichever is launched first does not wait for the failed launches.
        let ends = stage.run_all(order, passing(40));
        assert!(ends.iter().all(is_done), "{order:?}: {ends:?}");
    }
    assert_eq!(stage.program.cleared.load(Ordering::Relaxed), ORDERS.len());
}

#[test]
fn a_failure_ends_kernels_that_are_launched_after_it() {
    let stage = Stage::new();
    for _ in 0..2 {
        let failed = stage.run("produce", &[Write("numbers"), Fault]);
        assert!(matches!(failed, End::Ended(FAULT, _)));
        let [_, multiply, consume] = passing(5);
        let multiplied = stage.run("multiply", &multiply);
        assert_eq!(multiplied, peer_failed("numbers", "produce"));
        let consumed = stage.run("consume", &consume);
        assert_eq!(consumed, peer_failed("products", "multiply"));
    }
    let ends = stage.run_all([2, 1, 0], passing(5));
    assert!(ends.iter().all(is_done), "{ends:?}");
}

#[test]
fn a_kernel_with_channels_is_one_circuit() {
    let stage = Stage::new();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let writes = times(DEPTH + 1, &[Write("numbers")]);
            stage.run("produce", &writes)
        });
        stage.until_launched(1);
        let second = scope.spawn(|| stage.run("produce", &[Work]));
        stage.until_launched(2);
        // A kernel without channels runs meanwhile.
        assert!(is_done(&stage.run("alone", &times(50, &[Work]))));
        assert!(!first.is_finished() && !second.is_finished());
        assert!(is_done(&stage.run("multiply", &[Read("numbers")])));
        assert!(is_done(&first.join().unwrap()));
        assert!(is_done(&second.join().unwrap()));
    });
}

#[test]
fn a_cancelled_kernel_ends_and_the_others_continue() {
    let stage = Stage::new();
    let (leaves, ended) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        // The first one leads.
        let first = scope.spawn(|| {
            let launch = stage.launch("consume", &[Read("products")]);
            let end = stage
                .simulation
                .run(launch, &|| leaves.load(Ordering::SeqCst));
            ended.store(true, Ordering::SeqCst);
            end
        });
        stage.until_launched(1);
        let endless = scope.spawn(|| {
            let launch = stage.launch("alone", &[Loop]);
            stage
                .simulation
                .run(launch, &|| ended.load(Ordering::SeqCst))
        });
        stage.until_launched(2);
        leaves.store(true, Ordering::SeqCst);
        assert_eq!(first.join().unwrap(), End::Cancelled);
        assert_eq!(endless.join().unwrap(), End::Cancelled);
    });
    let ends = stage.run_all([0, 1, 2], passing(5));
    assert!(ends.iter().all(is_done), "{ends:?}");
}

#[test]
fn kernels_that_only_wait_are_reported_until_one_joins() {
    let stage = Stage::new();
    std::thread::scope(|scope| {
        let consume = scope.spawn(|| stage.run("consume", &[Read("products")]));
        while !kernels_wait() {
            std::thread::yield_now();
        }
        assert!(is_done(&stage.run("multiply", &[Write("products")])));
        assert!(is_done(&consume.join().unwrap()));
    });
}

#[test]
fn text_arrives_before_the_end_and_within_its_limit() {
    let stage = Stage::new();
    let steps = [Print("one\n"), Work, Print("two")];
    assert!(is_done(&stage.run("alone", &steps)));
    assert_eq!(*stage.printed.locked(), b"one\ntwo");
    stage.printed.locked().clear();
    let line = Box::leak(format!("{}\n", "x".repeat(1 << 20)).into_boxed_str());
    let lines = PRINTED_BYTES_MAX / line.len() + 2;
    assert!(is_done(&stage.run("alone", &times(lines, &[Print(line)]))));
    assert_eq!(stage.printed.locked().len(), PRINTED_BYTES_MAX);
}
