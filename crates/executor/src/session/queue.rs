//! A command queue's thread: takes commands off the queue's channel, submits them to the driver,
//! and publishes its progress.
//!
//! GPU drivers are filled by one thread at a time ([`crate::driver::Turns`]): a turn begins with a
//! batch's first command and ends with its flush, and no thread waits for the device within its
//! turn.
//!
//! A queue has a thread only while it has work, and shortly afterwards: its [`Worker`] is otherwise
//! parked in the [`QueueHandle`], and the client requests a thread when it is needed
//! ([`baltra_wire::Control::QueueRun`]).

use super::base::{Base, QueueState, Served};
use super::ledger::Recipe;
use super::objects::Context;
use super::ordered::InOrder;
use super::submit::Lane;
use super::unordered::Unordered;
use super::{Session, Violation};
use crate::driver::{self, Code};
use baltra_opencl::*;
use baltra_ring::{Consumer, Locked, Range};
use baltra_wire::moves::QueueState as QueueImage;
use baltra_wire::{Id, Notice};
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval at which a stopping session looks whether a queue has stopped.
const LOOK_EVERY: Duration = Duration::from_micros(100);

/// A queue, as other threads access it.
pub struct QueueHandle {
    state: Arc<QueueState>,
    thread: Mutex<Thread>,
    /// Of a released queue, which has no id.
    recipe: OnceLock<Arc<Recipe>>,
}

impl Deref for QueueHandle {
    type Target = QueueState;

    fn deref(&self) -> &QueueState {
        &self.state
    }
}

/// State of a queue's thread.
#[derive(Default)]
struct Thread {
    /// The worker, while no thread has it.
    parked: Option<Worker>,
    /// The newest thread.
    newest: Option<JoinHandle<()>>,
}

impl QueueHandle {
    fn thread(&self) -> MutexGuard<'_, Thread> {
        self.thread.locked()
    }

    /// Starts a thread if the queue is parked; false: it could not be started.
    pub fn run(self: &Arc<QueueHandle>) -> bool {
        let mut thread = self.thread();
        if thread.parked.is_none() {
            return true;
        }
        let handle = self.clone();
        let name = std::thread::Builder::new().name(format!("queue {}", self.id));
        let started = name.spawn(move || {
            let worker = handle.thread().parked.take();
            if let Some(worker) = worker {
                handle.work(worker);
            }
        });
        match started {
            Ok(started) => {
                // A parked thread is about to end and accesses nothing any more.
                thread.newest = Some(started);
                true
            }
            Err(error) => {
                tracing::warn!(queue = self.id, %error, "cannot start a command queue's thread");
                false
            }
        }
    }

    /// Whether the queue is parked and should not be.
    pub fn is_starved(&self) -> bool {
        let thread = self.thread();
        let needed = |worker: &Worker| {
            let base = worker.base();
            base.has_commands() || base.is_called()
        };
        thread.parked.as_ref().is_some_and(needed)
    }

    /// The thread's life.
    fn work(&self, mut worker: Worker) {
        let session = worker.base().session.clone();
        session.owns_thread();
        loop {
            match worker.serve() {
                Served::Ended => break,
                Served::Frozen => {
                    let mut thread = self.thread();
                    // Otherwise it has been resumed, and nobody looks at what parks now.
                    if session.is_frozen() {
                        thread.parked = Some(worker);
                        return;
                    }
                }
                Served::Idle => match self.park(worker) {
                    None => return,
                    Some(busy) => worker = busy,
                },
            }
        }
        drop(worker);
        if self.end() {
            session.notices.send(&Notice::Freed(self.id));
        }
        session.run_due();
    }

    /// Puts the worker aside, unless it is needed.
    fn park(&self, worker: Worker) -> Option<Worker> {
        let mut thread = self.thread();
        let base = worker.base();
        if !base.consumer.park(|| base.is_called()) {
            drop(thread);
            return Some(worker);
        }
        thread.parked = Some(worker);
        None
    }

    /// Whether nothing is left of the queue.
    pub fn is_finished(&self) -> bool {
        let thread = self.thread();
        let ended = |thread: &JoinHandle<()>| thread.is_finished();
        self.is_closed() && thread.newest.as_ref().is_none_or(ended)
    }

    /// Waits for the thread, or drops the worker of a parked queue.
    pub fn join(&self) {
        let mut thread = self.thread();
        let (parked, newest) = (thread.parked.take(), thread.newest.take());
        drop(thread);
        drop(parked);
        if let Some(newest) = newest {
            // A panic there has been reported.
            let _ = newest.join();
        }
    }
}

/// Stopping a session.
impl QueueHandle {
    /// The worker of a queue whose session stops, once no thread has it; `None`: the queue has ended.
    pub fn take_worker(&self, until: Instant) -> Result<Option<Worker>, TooSlow> {
        self.wake();
        loop {
            let mut thread = self.thread();
            let worker = thread.parked.take();
            if worker.is_some() || self.is_closed() {
                let newest = thread.newest.take();
                drop(thread);
                if let Some(newest) = newest {
                    // It has nothing left to do. A panic there has been reported.
                    let _ = newest.join();
                }
                return Ok(worker);
            }
            drop(thread);
            if Instant::now() >= until {
                return Err(TooSlow);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Runs a worker that has parked for a stop which was given up before it was taken; false: its
    /// thread could not be started.
    pub fn resume(self: &Arc<QueueHandle>) -> bool {
        let parked = self.thread();
        let waits = parked.parked.as_ref().is_some_and(|w| !w.is_idle());
        drop(parked);
        !waits || self.run()
    }

    /// Keeps the recipe of a queue that is being released.
    pub fn keep(&self, recipe: Option<Arc<Recipe>>) {
        if let Some(recipe) = recipe {
            self.recipe.get_or_init(|| recipe);
        }
    }

    /// The recipe of a released queue.
    pub fn recipe(&self) -> Option<Arc<Recipe>> {
        self.recipe.get().cloned()
    }

    /// Returns the worker; false: its thread could not be started.
    pub fn return_worker(self: &Arc<QueueHandle>, worker: Worker) -> bool {
        let is_idle = worker.is_idle();
        self.thread().parked = Some(worker);
        is_idle || self.run()
    }
}

/// A command did not end in time.
#[derive(Debug)]
pub struct TooSlow;

/// A parked queue. If the driver cannot create such a queue, commands are still taken, and each one
/// fails.
pub fn open(
    session: &Arc<Session>,
    id: Id,
    properties: u64,
    (consumer, parks): (Consumer, bool),
    ring: &Range,
    made: Result<(Arc<Context>, driver::Queue), Code>,
) -> Result<Arc<QueueHandle>, Violation> {
    let state = Arc::new(QueueState::new(id, &consumer, parks));
    let base = Base::new(session, &state, properties, consumer, ring)?;
    let handle = Arc::new(QueueHandle {
        state,
        thread: Mutex::default(),
        recipe: OnceLock::new(),
    });
    let lane = made.map(|(context, queue)| Lane::new(session.clone(), context, queue));
    let unordered = properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE as u64 != 0;
    let worker = match lane {
        Ok(lane) if unordered => Worker::Unordered(Box::new(Unordered::new(base, lane))),
        lane => Worker::InOrder(Box::new(InOrder::new(base, lane))),
    };
    handle.thread().parked = Some(worker);
    if !handle.parks() && !session.is_frozen() && !handle.run() {
        return Err(Violation {
            code: CL_OUT_OF_RESOURCES,
            text: "cannot start a command queue's thread".into(),
        });
    }
    Ok(handle)
}

/// State of a queue's thread.
pub enum Worker {
    /// Of a queue whose commands run in order.
    InOrder(Box<InOrder>),
    /// Of any other.
    Unordered(Box<Unordered>),
}

impl Worker {
    fn base(&self) -> &Base {
        match self {
            Worker::InOrder(worker) => &worker.base,
            Worker::Unordered(worker) => &worker.base,
        }
    }

    /// Works until the queue has ended, is stopped, or has been idle for long.
    fn serve(&mut self) -> Served {
        match self {
            Worker::InOrder(worker) => worker.serve(),
            Worker::Unordered(worker) => worker.serve(),
        }
    }

    /// Whether it needs no thread until the client asks for one.
    fn is_idle(&self) -> bool {
        let base = self.base();
        let waits = match self {
            Worker::InOrder(_) => false,
            Worker::Unordered(worker) => worker.has_open(),
        };
        base.consumer.is_parked() && !base.has_commands() && !base.state.is_released() && !waits
    }

    /// The state of the stopped queue, for another executor.
    pub fn state(&self) -> QueueImage {
        match self {
            Worker::InOrder(worker) => worker.state(),
            Worker::Unordered(worker) => worker.state(),
        }
    }

    /// Counts none of its commands as waiting any more.
    pub fn hide(&mut self) {
        match self {
            Worker::InOrder(worker) => worker.base.show(0),
            Worker::Unordered(worker) => worker.base.show(0),
        }
    }

    /// Continues a queue of another executor.
    pub fn restore(&mut self, state: &mut QueueImage) -> Result<(), Violation> {
        match self {
            Worker::InOrder(worker) => {
                worker.restore(state);
                Ok(())
            }
            Worker::Unordered(worker) => worker.restore(state),
        }
    }
}
