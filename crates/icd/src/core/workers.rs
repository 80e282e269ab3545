//! Threads for the library's long-running work: copies that run while the application continues.
//! They are started on demand, one per job, and ended when idle.

use crate::core::process;
use baltra_ring::{Locked, Unpoisoned};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Maximum number of threads; further jobs wait. A job waits for the device only, never for another
/// job, so that any number of threads makes progress.
const WORKERS_MAX: usize = 4;
/// Time for which a thread without work is kept.
const IDLE: Duration = Duration::from_secs(2);

type Job = Box<dyn FnOnce() + Send>;

/// The threads and their work.
#[derive(Default)]
pub struct Workers {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl Workers {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }
}

/// Runs `job` on a thread of the library's.
pub fn run(job: impl FnOnce() + Send + 'static) {
    let workers = &process::current().workers;
    let mut state = workers.lock();
    state.jobs.push_back(Box::new(job));
    if state.idle >= state.jobs.len() || state.threads >= WORKERS_MAX {
        workers.changed.notify_one();
        return;
    }
    state.threads += 1;
    let thread = std::thread::Builder::new().name("baltra-transfer".into());
    if thread.spawn(move || work(workers)).is_ok() {
        return;
    }
    state.threads -= 1;
    if state.threads == 0 {
        // Without any thread the job is the caller's.
        let job = state.jobs.pop_back().expect("just added");
        drop(state);
        job();
    }
}

fn work(workers: &Workers) {
    let mut state = workers.lock();
    loop {
        if let Some(job) = state.jobs.pop_front() {
            drop(state);
            job();
            state = workers.lock();
            continue;
        }
        state.idle += 1;
        let (woken, timeout) = workers.changed.wait_timeout(state, IDLE).unpoisoned();
        state = woken;
        state.idle -= 1;
        if timeout.timed_out() && state.jobs.is_empty() {
            state.threads -= 1;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn every_job_runs_however_many_there_are() {
        let (sender, done) = channel();
        for n in 0..10 * WORKERS_MAX {
            let sender = sender.clone();
            run(move || sender.send(n).expect("the test waits"));
        }
        let mut seen: Vec<_> = done.iter().take(10 * WORKERS_MAX).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..10 * WORKERS_MAX).collect::<Vec<_>>());
    }

    #[test]
    fn jobs_run_side_by_side() {
        // Each waits for the other: a single thread would never end.
        let (to_first, first) = channel();
        let (to_second, second) = channel();
        let (sender, done) = channel();
        let ended = sender.clone();
        run(move || {
            to_second.send(()).expect("the other runs");
            first.recv().expect("the other runs");
            ended.send(()).expect("the test waits");
        });
        run(move || {
            to_first.send(()).expect("the other runs");
            second.recv().expect("the other runs");
            sender.send(()).expect("the test waits");
        });
        assert_eq!(done.iter().count(), 2);
    }
}
