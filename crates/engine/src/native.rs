//! A function as native code in a sandboxed process of its own.
//!
//! | module | content |
//! |---|---|
//! | [`process`] | starts the process and detects its end |
//! | [`lane`] | one of its threads: a pair of rings and the calls in flight |
//!
//! A caller's thread writes its call into a ring itself, and handles all replies in the other ring,
//! so that under load all threads share the work. If no caller's thread is active, a task of the
//! event loop handles the replies. A byte on a socket wakes that task, so that a waiting call
//! occupies no thread of the gateway.

mod lane;
mod process;

use super::backlog::{Backlog, Refused};
use super::cold_start::ColdStart;
use super::device::error::StartError;
use super::log::Log;
use super::options::Options;
use super::pace::Pace;
use super::pending::Pending;
use super::stats::Stats;
use baltra_functions::manifest::{Implementation, Native};
use baltra_functions::Function;
use baltra_ring::Locked;
use lane::{Lane, Pumped};
use process::Process;
use std::sync::atomic::{fence, AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Interval of checks for calls that hang.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time after a call's deadline at which its process is killed.
const GRACE: Duration = Duration::from_secs(1);
/// Most calls in flight in one lane.
const FLYING_MAX: usize = 64;
/// Longest time for which a caller's thread polls for the reply to a short call.
const POLL_MAX: Duration = Duration::from_micros(20);

/// A function that is loaded in a process. Dropping it ends the process.
pub struct Runner {
    lanes: Vec<Lane>,
    pace: Arc<Pace>,
    /// Waiting calls of the runner.
    pub(super) backlog: Backlog,
    process: Process,
    /// Notified if a caller's thread leaves replies to the task.
    left: Arc<Notify>,
    lost: AtomicBool,
    reason: Mutex<Option<String>>,
    timeout: Option<Duration>,
    cold: ColdStart,
}

/// The native implementation with this index.
fn native(function: &Function, implementation: usize) -> Option<&Native> {
    match function.manifest.implementations.get(implementation)? {
        Implementation::Native(native) => Some(native),
        _ => None,
    }
}

impl Runner {
    /// Starts the process and loads the library. Blocks; must be called within a Tokio runtime.
    pub fn start(
        function: &Arc<Function>,
        implementation: usize,
        options: &Options,
        (stats, log): (&Arc<Stats>, &Arc<Log>),
    ) -> Result<Arc<Runner>, StartError> {
        let wanted = native(function, implementation).ok_or_else(|| {
            StartError::Function("internal error: not a native implementation".into())
        })?;
        let mut count = options.native_thread_count();
        let mut flying_max = FLYING_MAX;
        if let most @ 1.. = function.manifest.limits.concurrency as usize {
            count = count.min(most);
            flying_max = flying_max.min(most / count).max(1);
        }
        let (process, rings, cold) = Process::start(function, wanted, count as u32, options, log)?;
        let pace = Arc::new(Pace::default());
        let lanes = rings
            .into_iter()
            .map(|rings| Lane::new(function, implementation, rings, flying_max, (stats, &pace)));
        let lanes = lanes.collect::<Result<_, _>>()?;
        let socket = process.socket.try_clone();
        let socket = socket.and_then(tokio::net::UnixStream::from_std);
        let socket =
            socket.map_err(|e| StartError::Node(format!("cannot create a descriptor: {e}")))?;
        let timeout = match function.manifest.limits.timeout_ms {
            0 => None,
            ms => Some(Duration::from_millis(ms) + GRACE),
        };
        let left = Arc::new(Notify::new());
        let runner = Arc::new(Runner {
            lanes,
            pace,
            backlog: Backlog::new(options.queue_calls_max, options.tenants),
            process,
            left: left.clone(),
            lost: AtomicBool::new(false),
            reason: Mutex::default(),
            timeout,
            cold,
        });
        tokio::spawn(watch(Arc::downgrade(&runner), socket, left));
        Ok(runner)
    }

    /// Durations of loading.
    pub fn cold_start(&self) -> ColdStart {
        self.cold
    }

    /// Accepts a call, or returns it with the reason. `alone`: there is no other call, so
    /// that the caller may poll briefly for the end of its own.
    #[expect(clippy::result_large_err, reason = "the call itself is returned")]
    pub fn submit(
        self: &Arc<Self>,
        pending: Pending,
        alone: bool,
    ) -> Result<(), (Pending, Refused)> {
        let large = Lane::is_large(&pending.call);
        self.backlog.push(pending)?;
        // Pairs with the fence in `Lane::show`.
        fence(Ordering::SeqCst);
        if self.is_lost() {
            self.backlog.lose(&self.reason());
            return Ok(());
        }
        match (large, tokio::runtime::Handle::try_current()) {
            (true, Ok(handle)) => {
                // The ring may have to be drained in between.
                let runner = self.clone();
                handle.spawn_blocking(move || runner.pump(true, false));
            }
            _ => self.pump(false, alone),
        }
        Ok(())
    }

    /// Moves waiting calls into rings; `patient`: this thread may wait for room; `alone`: it may
    /// poll for a reply.
    fn pump(self: &Arc<Self>, patient: bool, alone: bool) {
        let stop = || self.is_lost();
        let fill = self.pace.fill();
        let open = || {
            let open = self.lanes.iter().filter(|lane| lane.has_room());
            let short = |lane: &&Lane| lane.flying() < fill && !lane.is_long();
            let unfilled = open.clone().find(short);
            unfilled.or_else(|| open.min_by_key(|lane| lane.flying()))
        };
        while let Some(lane) = open().filter(|lane| lane.waits() || !self.backlog.is_empty()) {
            match lane.pump(&self.backlog, patient, &stop) {
                Pumped::Done => {
                    let handled = if alone && fill > 1 {
                        lane.poll_answer(POLL_MAX)
                    } else {
                        lane.help_answer()
                    };
                    match handled {
                        Ok(true) => {}
                        Ok(false) => self.left.notify_one(),
                        Err(reason) => self.lose(reason),
                    }
                }
                // Another thread is pumping; it checks the backlog again before it stops.
                Pumped::Busy => return,
                Pumped::NeedsPatience => {
                    if let Ok(handle) = tokio::runtime::Handle::try_current() {
                        let runner = self.clone();
                        handle.spawn_blocking(move || runner.pump(true, false));
                    }
                    return;
                }
            }
            if self.is_lost() {
                self.backlog.lose(&self.reason());
                return;
            }
        }
    }

    /// Whether the process has ended.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    /// Why the process has ended.
    pub fn reason(&self) -> String {
        let reason = self.reason.locked();
        reason
            .clone()
            .unwrap_or_else(|| "the native worker ended".into())
    }

    fn lose(&self, reason: String) {
        if self.lost.swap(true, Ordering::SeqCst) {
            return;
        }
        *self.reason.locked() = Some(reason.clone());
        self.process.kill();
        for lane in &self.lanes {
            lane.lose(&reason);
        }
        self.backlog.lose(&reason);
    }
}

/// Handles replies when the process signals them, until it exits.
async fn watch(runner: Weak<Runner>, socket: tokio::net::UnixStream, left: Arc<Notify>) {
    let mut looked = Instant::now();
    let mut words = [0; 256];
    loop {
        let readable = tokio::select! {
            readable = socket.readable() => Some(readable),
            () = left.notified() => None,
            () = tokio::time::sleep(LOOK_EVERY) => None,
        };
        let Some(runner) = runner.upgrade() else {
            return;
        };
        let ended = match readable {
            None => false,
            Some(Err(_)) => true,
            Some(Ok(())) => match socket.try_read(&mut words) {
                Ok(n) => n == 0,
                Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
            },
        };
        for lane in &runner.lanes {
            // A continuous flow of replies must not starve the thread's other tasks.
            loop {
                match lane.take_answers() {
                    Ok(true) => break,
                    Ok(false) => tokio::task::yield_now().await,
                    Err(reason) => {
                        runner.lose(reason);
                        break;
                    }
                }
            }
        }
        if ended {
            let this = runner.clone();
            let how = tokio::task::spawn_blocking(move || this.process.wait()).await;
            runner.lose(how.unwrap_or_else(|_| "the native worker ended".into()));
        }
        if runner.is_lost() {
            return;
        }
        runner.pump(false, false);
        if looked.elapsed() >= LOOK_EVERY {
            looked = Instant::now();
            let Some(limit) = runner.timeout else {
                continue;
            };
            let hangs = |lane: &Lane| lane.oldest().is_some_and(|age| age > limit);
            if runner.lanes.iter().any(hangs) {
                runner.lose(
                    "the call exceeded its time limit, and the native worker was killed".into(),
                );
                return;
            }
        }
    }
}
