//! The compilation of what all programs share, by a child process of its own (`baltra accelerator
//! prepare`): it starts before the executor is confined, because it writes a folder that all executors
//! share.
//! Compilations of programs wait for its end.

use super::tools::Tools;
use baltra_ring::{Locked, Unpoisoned};
use std::process::{Child, Stdio};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than the compilation takes on a slow host. Afterwards, compilers of programs wait for the files
/// within their own time limit.
const PATIENCE: Duration = Duration::from_secs(60);
/// Interval at which a waiting thread checks whether its session has ended.
const LOOK: Duration = Duration::from_millis(50);

/// Whether the child of this process runs.
static RUNS: Mutex<bool> = Mutex::new(false);
static ENDED: Condvar = Condvar::new();

/// The child.
pub struct Preparation {
    child: Child,
}

impl Preparation {
    /// Starts it; `None`: it cannot be started, and every compilation does the work itself.
    pub fn start(tools: &Tools) -> Option<Preparation> {
        let shared = tools.shared.as_deref()?;
        // The sandbox permits folders that exist. In a folder of another user, it may not.
        let _ = std::fs::create_dir_all(shared);
        let mut command = tools.command(&std::env::temp_dir());
        command.args(["accelerator", "prepare"]);
        command.arg(&tools.tree).arg(shared);
        match command.stderr(Stdio::piped()).spawn() {
            Ok(child) => {
                *RUNS.locked() = true;
                Some(Preparation { child })
            }
            Err(error) => {
                tracing::warn!(%error, "cannot start the compiler of what programs share");
                None
            }
        }
    }

    /// Has a thread wait for its end. The thread is as confined as this one.
    pub fn watch(self) {
        let watch = move || {
            match self.child.wait_with_output() {
                Ok(done) if done.status.success() => {}
                Ok(done) => {
                    let text = String::from_utf8_lossy(&done.stderr);
                    let error = text.trim().trim_start_matches("error: ");
                    tracing::warn!(error, "cannot compile what all programs share");
                }
                Err(error) => tracing::warn!(%error, "cannot wait for a compiler"),
            }
            end();
        };
        if let Err(error) = thread::Builder::new()
            .name("preparation".into())
            .spawn(watch)
        {
            tracing::warn!(%error, "cannot start a thread that waits for a compiler");
            end();
        }
    }
}

fn end() {
    *RUNS.locked() = false;
    ENDED.notify_all();
}

/// Waits for its end, for a limited time. `is_cancelled` is queried repeatedly.
pub fn wait(is_cancelled: &dyn Fn() -> bool) {
    wait_for(PATIENCE, is_cancelled);
}

fn wait_for(patience: Duration, is_cancelled: &dyn Fn() -> bool) {
    let started = Instant::now();
    let mut runs = RUNS.locked();
    while *runs && !is_cancelled() && started.elapsed() < patience {
        runs = ENDED.wait_timeout(runs, LOOK).unpoisoned().0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Would not return otherwise.
    #[test]
    fn a_wait_ends_with_the_child_the_session_or_its_time() {
        *RUNS.locked() = true;
        wait_for(Duration::MAX, &|| true);
        wait_for(LOOK, &|| false);
        let waiter = thread::spawn(|| wait_for(Duration::MAX, &|| false));
        end();
        waiter.join().unwrap();
        wait_for(Duration::MAX, &|| false);
    }
}
