//! A function on an OpenCL device.
//!
//! | module | content |
//! |---|---|
//! | [`session`] | sessions with Device Managers, including spare ones |
//! | [`binaries`] | built programs, for functions that are loaded again |
//! | [`program`] | the function's program in a session, and its constants |
//! | [`slot`] | the buffers and kernels of one call |
//! | [`lane`] | a command queue and its calls in flight |
//! | [`error`] | errors of loading a function; OpenCL's constants |

pub mod binaries;
pub mod error;
mod lane;
mod program;
pub mod session;
mod slot;

use super::backlog::{Backlog, Refused};
use super::cold_start::ColdStart;
use super::log::Log;
use super::options::Options;
use super::pace::Pace;
use super::pending::Pending;
use super::placement::Candidate;
use super::stats::Stats;
use baltra_functions::Function;
use baltra_ring::Locked;
use baltra_session::client::Client;
use baltra_wire::{EXECUTOR_ENDED, TURN_ENDED, WORK_FAULTED};
use binaries::Binaries;
use error::StartError;
use lane::{Bounds, Lane};
use program::Program;
use session::{Listener, Sessions};
use std::sync::atomic::{fence, AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Inputs above this size are copied by a thread that may be busy for a while.
const ASIDE_BYTES: u64 = 256 << 10;
/// Number of queues for short calls: one is filled while the other's batch ends. Drivers take
/// commands of one thread at a time, so a third one only makes batches smaller (an empty kernel on
/// an H100: 145 thousand calls a second by two queues, 125 by four; an H200: 145 and 127).
const SHORT_LANES_MAX: usize = 2;
/// Number of queues of a function whose calls are merged; more queues would halve the batches.
const MERGING_LANES_MAX: usize = 2;

/// Time limit of an executor for a request to abort a session.
const ABORT_MAX: Duration = Duration::from_secs(1);

/// Consecutive attempts to start a function whose executors end meanwhile.
const STARTS_MAX: u32 = 3;

/// Time limit for starting a function whose sessions end with the turns of its image.
const TURNS_MAX: Duration = Duration::from_secs(60);

/// Longest time between a driver's error and the end of its session.
const END_MAX: Duration = Duration::from_secs(1);

/// Whether the session has ended or is about to end: a driver's error is reported before the
/// executor exits because of it.
fn is_over_soon(client: &Client) -> bool {
    let begun = Instant::now();
    while client.is_lost().is_none() && begun.elapsed() < END_MAX {
        std::thread::sleep(Duration::from_millis(5));
    }
    client.is_lost().is_some()
}

/// Whether a session's end was caused neither by itself nor by its device or node.
fn is_preempted(reason: &str) -> bool {
    reason.starts_with(EXECUTOR_ENDED) || reason.starts_with(TURN_ENDED)
}

/// The cause of a lost session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The device or the node, unless proven otherwise.
    Place,
    /// Another session's work ended the executor; the place is healthy.
    Others,
    /// The end of the turn of the function's image on the device.
    Turn,
    /// The function's own work.
    Function,
    /// The function's own work ran past its time limit and was ended, which the function's hold-off
    /// counts.
    Overrun,
}

/// A function that is loaded on a device. Dropping it ends its session.
pub struct Runner {
    program: Arc<Program>,
    lanes: Vec<Arc<Lane>>,
    /// Waiting calls of the runner.
    pub(super) backlog: Arc<Backlog>,
    listener: Arc<Listener>,
    lost: Arc<AtomicBool>,
    pace: Arc<Pace>,
    /// Time since which its work has been past its deadline.
    aborted: Mutex<Option<Instant>>,
    /// Durations of loading.
    pub cold_start: ColdStart,
}

impl Runner {
    /// Loads a function. Blocks while its program is built. Sets `connected` when the
    /// session's node has responded.
    pub fn start(
        (sessions, binaries, connected): (&Sessions, &Binaries, &AtomicBool),
        (place, turns): (&Candidate, u32),
        function: &Arc<Function>,
        implementation: usize,
        options: &Options,
        (stats, log): (&Arc<Stats>, &Arc<Log>),
    ) -> Result<Runner, StartError> {
        let tenant = function.manifest.tenant.as_deref().unwrap_or_default();
        let first = Instant::now();
        let mut tries = 1;
        loop {
            let begun = Instant::now();
            let session = sessions.take(place, tenant, turns)?;
            session.listener.belongs_to(log);
            let client = session.client.clone();
            let started = Runner::over(
                (session, begun, connected),
                binaries,
                function,
                implementation,
                options,
                stats,
            );
            let error = match started {
                Err(StartError::Node(error)) => error,
                started => return started,
            };
            let reason = is_over_soon(&client)
                .then(|| client.lost_reason())
                .flatten();
            match reason {
                // The turn ended while the function was being loaded.
                Some(text) if text.starts_with(TURN_ENDED) && first.elapsed() < TURNS_MAX => {}
                // Another session's work may have ended the executor: a spare session may belong to
                // one that is ending, and drivers crash (PoCL 3.1 sometimes asserts while another
                // session releases kernels).
                Some(text) if !text.starts_with(WORK_FAULTED) && tries < STARTS_MAX => tries += 1,
                Some(text) => return Err(StartError::Node(format!("{error}: {text}"))),
                None => return Err(StartError::Node(error)),
            }
        }
    }

    fn over(
        (session, begun, connected): (session::Session, Instant, &AtomicBool),
        binaries: &Binaries,
        function: &Arc<Function>,
        implementation: usize,
        options: &Options,
        stats: &Arc<Stats>,
    ) -> Result<Runner, StartError> {
        // A spare session may belong to a node that has been cut off since: only a reply shows that
        // it is connected.
        let context = Program::context(&session.client)?;
        connected.store(true, Ordering::Relaxed);
        let opened = Instant::now();
        let program = Program::build(
            (&session.client, context),
            function,
            implementation,
            binaries,
        )?;
        let program = Arc::new(program);
        let built = Instant::now();
        let backlog = Arc::new(Backlog::new(options.queue_calls_max, options.tenants));
        let on_processors = session.client.device().is_cpu();
        let (count, bounds) = bounds(function, options, on_processors);
        let lost = Arc::new(AtomicBool::new(false));
        let pace = Arc::new(Pace::default());
        let mut lanes = Vec::with_capacity(count);
        for number in 0..count {
            let queue = session.client.open_queue(program.context, 0, 0)?;
            let meters = (stats, &pace);
            let lane = Lane::new(&program, queue, implementation, bounds, &backlog, meters);
            let lane = Arc::new(lane);
            lanes.push(lane.clone());
            let (lost, backlog) = (lost.clone(), backlog.clone());
            let listener = session.listener.clone();
            let run = move || {
                lane.run();
                let reason = listener.reason();
                lost.store(true, Ordering::SeqCst);
                backlog.lose(reason.as_deref().unwrap_or("the session ended"));
            };
            let name = format!("lane {number}");
            let thread = std::thread::Builder::new().name(name).spawn(run);
            thread.map_err(|e| {
                session.client.end();
                StartError::Node(format!("cannot start a command queue's thread: {e}"))
            })?;
        }
        Ok(Runner {
            program,
            lanes,
            backlog,
            listener: session.listener,
            lost,
            pace,
            aborted: Mutex::default(),
            cold_start: ColdStart {
                session: opened - begun,
                program: built - opened,
                queues: built.elapsed(),
            },
        })
    }

    /// Accepts a call, or returns it with the reason. `alone`: there is no other call, so
    /// that the caller may poll briefly for the end of its own.
    #[expect(clippy::result_large_err, reason = "the call itself is returned")]
    pub fn submit(
        self: &Arc<Self>,
        pending: Pending,
        alone: bool,
    ) -> Result<(), (Pending, Refused)> {
        let aside = pending.call.input_bytes() > ASIDE_BYTES;
        self.backlog.push(pending)?;
        // Pairs with the fence in `Lane::show`.
        fence(Ordering::SeqCst);
        if self.is_lost() {
            self.backlog.lose(&self.reason());
            return Ok(());
        }
        match (aside, tokio::runtime::Handle::try_current()) {
            (true, Ok(handle)) => {
                let runner = self.clone();
                handle.spawn_blocking(move || runner.pump(false));
            }
            _ => self.pump(alone),
        }
        Ok(())
    }

    fn pump(&self, alone: bool) {
        while !self.backlog.is_empty() {
            let lanes = if self.pace.is_short() {
                self.lanes.len().min(SHORT_LANES_MAX)
            } else {
                self.lanes.len()
            };
            let open = self.lanes[..lanes].iter().filter(|lane| lane.has_room());
            let Some(lane) = open.min_by_key(|lane| lane.flying()) else {
                return;
            };
            let before = self.backlog.len();
            if alone {
                lane.pump_and_poll()
            } else {
                lane.pump()
            }
            if self.backlog.len() >= before {
                // The call waits to be merged with others, or other callers have arrived and have
                // their own turn.
                return;
            }
        }
    }

    /// Whether its session has ended.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst) || self.program.client.is_lost().is_some()
    }

    /// Why its session ended.
    pub fn reason(&self) -> String {
        let reason = self.listener.reason();
        reason.unwrap_or_else(|| "the session with the device ended".into())
    }

    /// The calls that its queues run, each with the number of its queue.
    pub fn running(&self) -> Vec<(usize, Instant, Duration)> {
        let lanes = self.lanes.iter();
        let running = lanes.filter_map(|lane| {
            let (since, allowed) = lane.running()?;
            Some((Arc::as_ptr(lane) as usize, since, allowed))
        });
        running.collect()
    }

    /// Reports to the executor that a queue's call has waited for another queue's for longer than
    /// `allowed`. If the message cannot be sent now, a later repetition is.
    pub fn report_late(&self, lane: usize, allowed: Duration) {
        let mut lanes = self.lanes.iter();
        if let Some(lane) = lanes.find(|own| Arc::as_ptr(own) as usize == lane) {
            self.program.client.report_late(lane.queue_id(), allowed);
        }
    }

    /// Requests the end of its session because its work is past its deadline; repeats the request
    /// if the work continues.
    pub fn abort(&self, reason: &str) {
        let mut aborted = self.aborted.locked();
        let first = *aborted.get_or_insert_with(Instant::now);
        drop(aborted);
        let client = &self.program.client;
        // An executor that does not respond detects the closed connection, and applies its own time
        // limit to the work.
        if !client.abort(reason) || first.elapsed() >= ABORT_MAX {
            client.end();
        }
    }

    /// Time since which its work has been past its deadline; `None`: it is not, or has ended.
    pub fn overdue_since(&self) -> Option<Instant> {
        let aborted = *self.aborted.locked();
        aborted.filter(|_| !self.is_lost())
    }

    /// Whether its session was ended because its work was past its deadline.
    pub fn was_aborted(&self) -> bool {
        self.aborted.locked().is_some()
    }

    /// The cause of its session's end.
    pub fn blame(&self) -> Blame {
        let aborted = self.aborted.locked();
        let reason = self.program.client.lost_reason().unwrap_or_default();
        match reason {
            _ if aborted.is_some() => Blame::Overrun,
            text if text.starts_with(WORK_FAULTED) => Blame::Function,
            text if text.starts_with(TURN_ENDED) => Blame::Turn,
            text if is_preempted(text) => Blame::Others,
            _ => Blame::Place,
        }
    }

    /// Work for after the start: caching the program's binary.
    pub fn afterwards(&self) -> impl FnOnce(&Binaries) + Send + 'static {
        let program = self.program.clone();
        move |binaries| program.keep_binary(binaries)
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.program.client.end();
    }
}

fn bounds(function: &Function, options: &Options, on_processors: bool) -> (usize, Bounds) {
    let batching = function.manifest.batching.as_ref();
    let merged = batching.filter(|b| b.dimension.is_some());
    let merge_max = merged.map_or(1, |b| b.max.max(1) as usize);
    let mut lanes = options.lane_count();
    let mut slots = options.slots;
    if merge_max > 1 {
        lanes = lanes.min(MERGING_LANES_MAX);
    }
    if let most @ 1.. = function.manifest.limits.concurrency as usize {
        lanes = lanes.min(most);
        slots = slots.min(most / lanes).max(1);
    }
    let bounds = Bounds {
        slots,
        flying_bytes_max: options.flying_bytes_max,
        merge_max,
        merge_wait: merged.map_or(Duration::ZERO, |b| Duration::from_micros(b.wait_us)),
        on_processors,
    };
    (lanes, bounds)
}
