//! Commands that belong to traces, on their way to the manager, which exports spans.

use baltra_ring::Locked;
use baltra_wire::executor::{ToManager, TracedTask};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Maximum number of commands waiting to be reported; further ones are only counted. They fit into
/// one packet.
const WAITING_MAX: usize = 512;

/// State shared by the queues of a process.
pub struct Traces {
    on: AtomicBool,
    /// And those that were left out.
    waiting: Mutex<(Vec<TracedTask>, u64)>,
    wake: Arc<OwnedFd>,
}

impl Traces {
    /// `wake` becomes readable when a report to the manager is pending.
    pub fn new(on: bool, wake: Arc<OwnedFd>) -> Traces {
        Traces {
            on: on.into(),
            waiting: Mutex::default(),
            wake,
        }
    }

    /// Whether commands are reported.
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Stops reporting.
    pub fn stop(&self) {
        self.on.store(false, Ordering::Relaxed);
        *self.waiting.locked() = Default::default();
    }

    /// Adds a completed task.
    pub fn post(&self, task: TracedTask) {
        let mut waiting = self.waiting.locked();
        if waiting.0.len() >= WAITING_MAX {
            waiting.1 += 1;
            return;
        }
        waiting.0.push(task);
        let first = waiting.0.len() == 1;
        drop(waiting);
        if first {
            // It can only be full, and then it is readable anyway.
            let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        }
    }

    /// The next report to the manager.
    pub fn take(&self) -> Option<ToManager> {
        let mut waiting = self.waiting.locked();
        let (tasks, dropped) = std::mem::take(&mut *waiting);
        (!tasks.is_empty()).then_some(ToManager::Traced { tasks, dropped })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{eventfd, EventfdFlags};

    #[test]
    fn what_waits_is_bounded_and_fits_a_packet() {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        let traces = Traces::new(true, wake);
        assert_eq!(traces.take(), None);
        let long = TracedTask {
            session: u64::MAX,
            trace: [0xff; 16],
            parent: [0xff; 8],
            came_ns: u64::MAX,
            granted_ns: u64::MAX,
            ended_ns: u64::MAX,
        };
        for _ in 0..WAITING_MAX + 3 {
            traces.post(long);
        }
        let message = traces.take().unwrap();
        let mut bytes = Vec::new();
        baltra_wire::encode(&message, &mut bytes).unwrap();
        assert!(bytes.len() <= baltra_channel::PACKET_BYTES_MAX);
        let ToManager::Traced { tasks, dropped } = message else {
            panic!("{message:?}");
        };
        assert_eq!((tasks.len(), dropped), (WAITING_MAX, 3));
        traces.post(long);
        traces.stop();
        assert!(!traces.is_on() && traces.take().is_none());
    }
}
