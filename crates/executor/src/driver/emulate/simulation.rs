//! The device's clock. Kernels that run at the same time run in turns of one cycle and share the
//! memory's timing; channels connect those of a program.
//!
//! The thread of one launch leads: it runs the kernels of all, for a slice of cycles at a time. The
//! others wait for their own kernel's end, and one of them leads next. Time stands still while all
//! kernels wait for channels, until another one is launched. A kernel with channels is one circuit:
//! its launches run one after the other.
//!
//! A kernel that waits for one that has failed fails as well ([`failures`]). One that waits for a
//! kernel that is never launched ends with its session, or at the limit of its task.

mod failures;
#[cfg(test)]
mod tests;

use super::library::{Library, Run, State, Timing};
use super::polling::kernels_poll;
use crate::driver::builtin::LogLimit;
use crate::driver::output::Output;
use baltra_board::accelerator::manifest::{Channel, Kernel};
use baltra_ring::{Locked, Unpoisoned};
use failures::Failures;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Cycles between two looks whether a lone kernel's session has ended, about ten milliseconds.
const SLICE_CYCLES: u64 = 20_000;
/// The same for several kernels, and for those with channels.
const TURNS: u64 = 2_000;
/// Interval at which a thread that waits looks whether its session has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Time for which kernels wait for channels before the log names them.
const SILENCE: Duration = Duration::from_millis(200);
/// Text that a kernel may hold back before it is written.
const PENDING_BYTES: usize = 1 << 16;
/// Maximum output of one launch; the rest is lost.
const PRINTED_BYTES_MAX: usize = 64 << 20;
/// Launches whose kernels have different rows of the memory: 1 GiB each.
const PLACES: u64 = 4;
const ROWS: u64 = 1 << 16;

/// Kernels that wait for a channel while nothing else runs on their device.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Log lines about them.
static WAITS: LogLimit = LogLimit::new();

/// Whether kernels of this process wait for others to be launched.
pub fn kernels_wait() -> bool {
    WAITING.load(Ordering::Acquire) > 0 || kernels_poll()
}

/// The end of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The kernel has ended, with its cycles.
    Ended(State, u64),
    /// There is no memory for its circuit.
    NoMemory,
    /// It waited for a channel of a kernel that has failed.
    PeerFailed {
        /// The channel.
        channel: String,
        /// The other kernel.
        peer: String,
    },
    /// Its session has ended meanwhile.
    Cancelled,
}

/// The circuits of a program.
pub trait Program: Send + Sync {
    /// No other program of this process has it.
    fn id(&self) -> u64;
    /// Discards the elements of all channels. No circuit of the program runs.
    fn clear_channels(&self);
}

impl Program for Library {
    fn id(&self) -> u64 {
        self.id
    }

    fn clear_channels(&self) {
        Library::clear_channels(self);
    }
}

/// A kernel's circuit in progress.
pub trait Circuit: Send {
    /// Runs for at most that many cycles, from the time `now` on.
    fn advance(&mut self, now: u64, cycles: u64) -> State;
    /// Cycles since the start.
    fn cycles(&self) -> u64;
    /// The channel that it waits for, and whether to write it.
    fn waits(&self) -> Option<(&str, bool)>;
    /// Elements that it has read from channels and written to them.
    fn transfers(&self) -> u64;
    /// Takes the text that the kernel has printed.
    fn take_printed(&mut self) -> Vec<u8>;
}

impl Circuit for Run {
    fn advance(&mut self, now: u64, cycles: u64) -> State {
        Run::advance(self, now, cycles)
    }

    fn cycles(&self) -> u64 {
        Run::cycles(self)
    }

    fn waits(&self) -> Option<(&str, bool)> {
        Run::waits(self)
    }

    fn transfers(&self) -> u64 {
        Run::transfers(self)
    }

    fn take_printed(&mut self) -> Vec<u8> {
        Run::take_printed(self)
    }
}

/// Starts a kernel with the memory's timing, and what is added to its rows.
pub type Start = Box<dyn FnOnce((*mut Timing, u64)) -> Option<Box<dyn Circuit>> + Send>;

/// A kernel to run.
pub struct Launch {
    /// Its program.
    pub program: Arc<dyn Program>,
    /// The program's kernels.
    pub kernels: Arc<Vec<Kernel>>,
    /// Its place among them.
    pub number: usize,
    /// Receives its text.
    pub output: Output,
    /// Starts it.
    pub start: Start,
}

impl Launch {
    fn kernel(&self) -> &Kernel {
        &self.kernels[self.number]
    }

    fn id(&self) -> KernelId {
        KernelId {
            program: self.program.id(),
            number: self.number,
        }
    }
}

/// A kernel of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KernelId {
    program: u64,
    number: usize,
}

/// The kernel at the other end of a kernel's channel.
fn other_end(kernels: &[Kernel], channel: &Channel) -> Option<usize> {
    let is_end = |c: &Channel| c.name == channel.name && c.writes != channel.writes;
    kernels.iter().position(|k| k.channels.iter().any(is_end))
}

/// The kernels at the other ends of a kernel's channels.
fn peers(id: KernelId, kernels: &[Kernel]) -> Vec<KernelId> {
    let channels = kernels[id.number].channels.iter();
    let numbers = channels.filter_map(|channel| other_end(kernels, channel));
    numbers.map(|number| KernelId { number, ..id }).collect()
}

/// A kernel that runs.
struct Task {
    ticket: u64,
    place: u64,
    id: KernelId,
    program: Arc<dyn Program>,
    kernels: Arc<Vec<Kernel>>,
    run: Box<dyn Circuit>,
    state: State,
    /// Transfers before the last slice, and whether it has only waited in it.
    transfers: u64,
    waits: bool,
    output: Output,
    printed: Vec<u8>,
    printed_bytes: usize,
}

impl Task {
    fn kernel(&self) -> &Kernel {
        &self.kernels[self.id.number]
    }

    /// The channel that it waits for, and the kernel at its other end.
    fn peer(&self) -> Option<(&Channel, KernelId)> {
        let (name, writes) = self.run.waits()?;
        let mut own = self.kernel().channels.iter();
        let channel = own.find(|c| c.name == name && c.writes == writes)?;
        let number = other_end(&self.kernels, channel)?;
        Some((channel, KernelId { number, ..self.id }))
    }

    /// Passes on what the kernel has printed: all at its end, before that whole lines.
    fn print(&mut self) {
        let mut new = self.run.take_printed();
        new.truncate(PRINTED_BYTES_MAX - self.printed_bytes);
        self.printed_bytes += new.len();
        self.printed.append(&mut new);
        let text = &mut self.printed;
        let len = match self.state {
            State::Running if text.len() <= PENDING_BYTES => 0,
            State::Running => {
                let line = text.iter().rposition(|byte| *byte == b'\n');
                line.map_or(text.len(), |at| at + 1)
            }
            _ => text.len(),
        };
        if len > 0 {
            (self.output)(&text[..len]);
            text.drain(..len);
        }
    }
}

/// Messages between the thread that leads and the others.
#[derive(Default)]
struct Desk {
    is_led: bool,
    tickets: u64,
    joining: Vec<(u64, Launch)>,
    leaving: Vec<u64>,
    ended: Vec<(u64, End)>,
}

impl Desk {
    fn has_ended(&self, ticket: u64) -> bool {
        self.ended.iter().any(|ended| ended.0 == ticket)
    }

    fn leave(&mut self, ticket: u64) {
        if !self.leaving.contains(&ticket) {
            self.leaving.push(ticket);
        }
    }
}

/// The kernels that run; the leading thread has it.
#[derive(Default)]
struct Running {
    tasks: Vec<Task>,
    now: u64,
    timing: Box<Timing>,
    failures: Failures,
}

/// The launches of a device.
#[derive(Default)]
pub struct Simulation {
    desk: Mutex<Desk>,
    changed: Condvar,
    running: Mutex<Running>,
}

impl Simulation {
    /// Runs a kernel to its end, or until `cancelled`.
    pub fn run(&self, launch: Launch, cancelled: &dyn Fn() -> bool) -> End {
        let mut desk = self.desk.locked();
        let ticket = desk.tickets;
        desk.tickets += 1;
        desk.joining.push((ticket, launch));
        self.changed.notify_all();
        loop {
            if let Some(at) = desk.ended.iter().position(|ended| ended.0 == ticket) {
                return desk.ended.swap_remove(at).1;
            }
            if cancelled() {
                desk.leave(ticket);
                self.changed.notify_all();
            }
            if desk.is_led {
                desk = self.wait(desk);
                continue;
            }
            desk.is_led = true;
            drop(desk);
            self.lead(ticket, cancelled);
            desk = self.desk.locked();
            desk.is_led = false;
            self.changed.notify_all();
        }
    }

    fn wait<'a>(&self, desk: MutexGuard<'a, Desk>) -> MutexGuard<'a, Desk> {
        let waited = self.changed.wait_timeout(desk, LOOK_EVERY);
        waited.unpoisoned().0
    }

    /// Runs all kernels until the launch with this ticket has ended.
    fn lead(&self, ticket: u64, cancelled: &dyn Fn() -> bool) {
        let mut running = self.running.locked();
        loop {
            let mut desk = self.desk.locked();
            if cancelled() {
                desk.leave(ticket);
            }
            if running.welcome(&mut desk) {
                self.changed.notify_all();
            }
            if desk.has_ended(ticket) {
                break;
            }
            drop(desk);
            let is_stalled = running.slice();
            let mut desk = self.desk.locked();
            if running.settle(&mut desk) {
                self.changed.notify_all();
            } else if is_stalled {
                self.stand_still(&running, desk, cancelled);
                continue;
            }
            if desk.has_ended(ticket) {
                break;
            }
        }
    }

    /// Waits while all kernels wait for channels, until one joins or leaves.
    fn stand_still(
        &self,
        running: &Running,
        desk: MutexGuard<'_, Desk>,
        cancelled: &dyn Fn() -> bool,
    ) {
        let (since, mut is_logged, mut desk) = (Instant::now(), false, desk);
        let waiting = running.tasks.len();
        WAITING.fetch_add(waiting, Ordering::AcqRel);
        let joins = |desk: &Desk| {
            let mut joining = desk.joining.iter();
            joining.any(|(_, launch)| running.admits(launch))
        };
        while !cancelled() && desk.leaving.is_empty() && !joins(&desk) {
            if !is_logged && since.elapsed() >= SILENCE {
                is_logged = running.log_waits();
            }
            desk = self.wait(desk);
        }
        WAITING.fetch_sub(waiting, Ordering::AcqRel);
    }
}

impl Running {
    /// Starts the kernels that join, unless their circuit is in use, and ends those that leave;
    /// returns whether launches have ended.
    fn welcome(&mut self, desk: &mut Desk) -> bool {
        let before = desk.ended.len();
        for ticket in std::mem::take(&mut desk.leaving) {
            desk.joining.retain(|joining| joining.0 != ticket);
            if let Some(at) = self.tasks.iter().position(|task| task.ticket == ticket) {
                let task = self.tasks.swap_remove(at);
                self.end(&task, &End::Cancelled);
            }
            if !desk.has_ended(ticket) {
                desk.ended.push((ticket, End::Cancelled));
            }
        }
        for (ticket, launch) in std::mem::take(&mut desk.joining) {
            if !self.admits(&launch) {
                desk.joining.push((ticket, launch));
            } else if !self.start(ticket, launch) {
                desk.ended.push((ticket, End::NoMemory));
            }
        }
        desk.ended.len() > before
    }

    /// Whether a launch may start: a kernel with channels is one circuit.
    fn admits(&self, launch: &Launch) -> bool {
        launch.kernel().channels.is_empty() || !self.runs(launch.id())
    }

    fn runs(&self, id: KernelId) -> bool {
        self.tasks.iter().any(|task| task.id == id)
    }

    fn start(&mut self, ticket: u64, launch: Launch) -> bool {
        let id = launch.id();
        if self.tasks.is_empty() {
            // A lone kernel's cycles do not depend on what ran before.
            *self.timing = Timing::default();
            self.now = 0;
        }
        let mut places = 0..PLACES;
        let is_free = |place: &u64| self.tasks.iter().all(|task| task.place != *place);
        let place = places.find(is_free).unwrap_or(ticket % PLACES);
        let timing = std::ptr::from_mut(&mut *self.timing);
        let Some(run) = (launch.start)((timing, place * ROWS)) else {
            self.failures.add(id, peers(id, &launch.kernels));
            return false;
        };
        self.failures.forget(id);
        self.tasks.push(Task {
            ticket,
            place,
            id,
            program: launch.program,
            kernels: launch.kernels,
            run,
            state: State::Running,
            transfers: 0,
            waits: false,
            output: launch.output,
            printed: Vec::new(),
            printed_bytes: 0,
        });
        true
    }

    /// Runs the kernels for some cycles; returns whether all of them have only waited for channels.
    fn slice(&mut self) -> bool {
        for task in &mut self.tasks {
            task.transfers = task.run.transfers();
        }
        match self.tasks.as_mut_slice() {
            [] => return false,
            [task] => {
                let cycles = match task.kernel().channels.len() {
                    0 => SLICE_CYCLES,
                    _ => TURNS,
                };
                task.state = task.run.advance(self.now, cycles);
                self.now += cycles;
            }
            tasks => {
                for _ in 0..TURNS {
                    for task in &mut *tasks {
                        task.state = task.run.advance(self.now, 1);
                    }
                    self.now += 1;
                    if tasks.iter().any(|task| task.state != State::Running) {
                        break;
                    }
                }
            }
        }
        for task in &mut self.tasks {
            let is_still = task.state == State::Running && task.run.waits().is_some();
            task.waits = is_still && task.run.transfers() == task.transfers;
            task.print();
        }
        self.tasks.iter().all(|task| task.waits)
    }

    /// The channel that a kernel waits for, and the kernel at its other end if that has failed.
    fn failed_peer<'a>(&self, task: &'a Task) -> Option<(&'a Channel, KernelId)> {
        let (channel, peer) = task.peer().filter(|_| task.waits)?;
        let has_failed = !self.runs(peer) && self.failures.concerns(peer, task.id);
        has_failed.then_some((channel, peer))
    }

    /// Takes the kernels that have ended; returns whether there are some.
    fn settle(&mut self, desk: &mut Desk) -> bool {
        let before = self.tasks.len();
        let mut at = 0;
        while at < self.tasks.len() {
            let task = &self.tasks[at];
            let end = match (task.state, self.failed_peer(task)) {
                (State::Running, None) => {
                    at += 1;
                    continue;
                }
                (State::Running, Some((channel, peer))) => End::PeerFailed {
                    channel: channel.name.clone(),
                    peer: task.kernels[peer.number].name.clone(),
                },
                (state, _) => End::Ended(state, task.run.cycles()),
            };
            let task = self.tasks.swap_remove(at);
            self.end(&task, &end);
            desk.ended.push((task.ticket, end));
            // Others may wait for it.
            at = 0;
        }
        before != self.tasks.len()
    }

    /// Notes the end of a kernel that is no longer among the tasks.
    fn end(&mut self, task: &Task, end: &End) {
        if task.kernel().channels.is_empty() {
            return;
        }
        // Those whose failure concerns this kernel have failed before it.
        let mut concerned = peers(task.id, &task.kernels);
        concerned.retain(|peer| !self.failures.concerns(*peer, task.id));
        self.failures.noted_by(task.id);
        if matches!(end, End::Ended(State::Done, _)) {
            return;
        }
        if *end != End::Cancelled {
            // Otherwise the session of all the program's kernels has ended.
            self.failures.add(task.id, concerned);
        }
        let mut tasks = self.tasks.iter();
        if tasks.all(|other| other.id.program != task.id.program) {
            // The elements are of no use any more.
            task.program.clear_channels();
        }
    }

    /// Names the kernels that wait; returns whether the rate limit allows it.
    fn log_waits(&self) -> bool {
        if !WAITS.allows() {
            return false;
        }
        for task in &self.tasks {
            let Some((channel, peer)) = task.peer() else {
                continue;
            };
            tracing::warn!(
                kernel = task.kernel().name,
                channel = channel.name,
                peer = task.kernels[peer.number].name,
                peer_runs = self.runs(peer),
                "a kernel waits for a channel {}",
                if channel.writes {
                    "that is full"
                } else {
                    "that is empty"
                }
            );
        }
        true
    }
}
