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

use super::base::{Base, QueueState};
use super::objects::Context;
use super::ordered::InOrder;
use super::submit::Lane;
use super::unordered::Unordered;
use super::{Session, Violation};
use crate::driver::{self, Code};
use baltra_opencl::*;
use baltra_ring::{Consumer, Locked, Range};
use baltra_wire::{Id, Notice};
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// A queue, as other threads access it.
pub struct QueueHandle {
    state: Arc<QueueState>,
    thread: Mutex<Thread>,
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
            !base.consumer.is_empty() || base.is_called()
        };
        thread.parked.as_ref().is_some_and(needed)
    }

    /// The thread's life.
    fn work(&self, mut worker: Worker) {
        let session = worker.base().session.clone();
        session.cancels_own_work();
        while worker.serve() {
            match self.park(worker) {
                None => return,
                Some(busy) => worker = busy,
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

/// A parked queue. If the driver cannot create such a queue, commands are still taken, and each one
/// fails.
pub fn open(
    session: &Arc<Session>,
    id: Id,
    properties: u64,
    consumer: Consumer,
    ring: &Range,
    made: Result<(Arc<Context>, driver::Queue), Code>,
) -> Result<Arc<QueueHandle>, Violation> {
    let state = Arc::new(QueueState::new(id, &consumer));
    let base = Base::new(session, &state, properties, consumer, ring)?;
    let handle = Arc::new(QueueHandle {
        state,
        thread: Mutex::default(),
    });
    let lane = made.map(|(context, queue)| Lane::new(session.clone(), context, queue));
    let unordered = properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE as u64 != 0;
    let worker = match lane {
        Ok(lane) if unordered => Worker::Unordered(Box::new(Unordered::new(base, lane))),
        lane => Worker::InOrder(Box::new(InOrder::new(base, lane))),
    };
    handle.thread().parked = Some(worker);
    if !handle.parks() && !handle.run() {
        return Err(Violation {
            code: CL_OUT_OF_RESOURCES,
            text: "cannot start a command queue's thread".into(),
        });
    }
    Ok(handle)
}

/// State of a queue's thread.
enum Worker {
    InOrder(Box<InOrder>),
    Unordered(Box<Unordered>),
}

impl Worker {
    fn base(&self) -> &Base {
        match self {
            Worker::InOrder(worker) => &worker.base,
            Worker::Unordered(worker) => &worker.base,
        }
    }

    /// Works until the queue has ended (false), or has been idle for long.
    fn serve(&mut self) -> bool {
        match self {
            Worker::InOrder(worker) => worker.serve(),
            Worker::Unordered(worker) => worker.serve(),
        }
    }
}
