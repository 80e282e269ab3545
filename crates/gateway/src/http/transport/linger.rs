//! Polling for the next request before a worker sleeps.
//!
//! Waking a worker costs more than a short call takes, above all on a virtual machine. A worker that
//! has served a request therefore polls its sockets briefly before it sleeps. Only one worker polls
//! at a time: under load, the processors belong to the workers that have requests.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Longest time for which a worker polls for the next request. A client that sends its next request
/// when it has received the response takes a few tens of microseconds.
const POLL_MAX: Duration = Duration::from_micros(50);
/// After a poll without success, the next 1, 2, 4, … SKIP_MAX polls are skipped.
const SKIP_MAX: u32 = 256;

/// A worker's polls.
#[derive(Debug)]
pub(crate) struct Linger {
    poll_max: Duration,
    /// Whether a worker polls; shared by all workers.
    taken: Arc<AtomicBool>,
    /// Whether a request has been served since this was last read.
    served: AtomicBool,
    notify: Notify,
}

impl Linger {
    pub fn new(taken: &Arc<AtomicBool>) -> Linger {
        // On one processor, the client cannot run while the worker polls.
        let poll_max = match std::thread::available_parallelism().map_or(1, usize::from) {
            1 => Duration::ZERO,
            _ => POLL_MAX,
        };
        Linger::with_limit(taken, poll_max)
    }

    fn with_limit(taken: &Arc<AtomicBool>, poll_max: Duration) -> Linger {
        Linger {
            poll_max,
            taken: taken.clone(),
            served: AtomicBool::new(false),
            notify: Notify::new(),
        }
    }

    /// Records a served request.
    pub fn served(&self) {
        if !self.served.swap(true, Relaxed) {
            self.notify.notify_one();
        }
    }

    /// Polls after requests, indefinitely; to be run by the worker.
    pub async fn run(&self) {
        let mut history = History::default();
        loop {
            self.notify.notified().await;
            self.served.store(false, Relaxed);
            if history.skips() || self.taken.swap(true, Relaxed) {
                continue;
            }
            let succeeds = self.poll().await;
            self.taken.store(false, Relaxed);
            history.ended(succeeds);
        }
    }

    /// Polls until no request has been served for some time; returns whether any was.
    async fn poll(&self) -> bool {
        let (mut since, mut succeeds) = (Instant::now(), false);
        loop {
            // The runtime polls the sockets when no task but this one can run.
            tokio::task::yield_now().await;
            let now = Instant::now();
            if self.served.swap(false, Relaxed) {
                (since, succeeds) = (now, true);
            } else if now - since >= self.poll_max {
                return succeeds;
            }
        }
    }
}

/// The history of a worker's polls.
#[derive(Debug, Default)]
struct History {
    skip: u32,
    penalty: u32,
}

impl History {
    /// Whether to skip the next poll.
    fn skips(&mut self) -> bool {
        let skips = self.skip > 0;
        self.skip -= u32::from(skips);
        skips
    }

    fn ended(&mut self, succeeds: bool) {
        self.penalty = if succeeds {
            0
        } else {
            (self.penalty * 2).clamp(1, SKIP_MAX)
        };
        self.skip = self.penalty;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker's polls, which run beside the test.
    fn running(taken: &Arc<AtomicBool>, poll_max: Duration) -> Arc<Linger> {
        let linger = Arc::new(Linger::with_limit(taken, poll_max));
        let this = linger.clone();
        tokio::spawn(async move { this.run().await });
        linger
    }

    async fn pass() {
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_worker_polls_after_a_request() {
        let taken = Arc::new(AtomicBool::new(false));
        let linger = running(&taken, Duration::from_secs(3600));
        pass().await;
        assert!(!taken.load(Relaxed));
        linger.served();
        pass().await;
        assert!(taken.load(Relaxed));
    }

    #[tokio::test]
    async fn a_poll_ends_at_its_limit() {
        let taken = Arc::new(AtomicBool::new(false));
        let linger = running(&taken, Duration::ZERO);
        linger.served();
        pass().await;
        assert!(!taken.load(Relaxed) && !linger.served.load(Relaxed));
    }

    #[tokio::test]
    async fn one_worker_polls_at_a_time() {
        let taken = Arc::new(AtomicBool::new(true));
        let linger = running(&taken, Duration::ZERO);
        linger.served();
        pass().await;
        // The end of a poll would have reset it.
        assert!(taken.load(Relaxed));
    }

    #[test]
    fn polls_without_success_become_rare() {
        let mut history = History::default();
        let mut polls = |requests: u32| {
            let polled = (0..requests).filter(|_| {
                let polls = !history.skips();
                if polls {
                    history.ended(false);
                }
                polls
            });
            polled.count()
        };
        assert_eq!(polls(100), 7);
        assert_eq!(polls(10_000), 40);
        history.ended(true);
        assert!(!history.skips());
    }
}
