//! Attends to the processes of a run: prints their output, and ends the others after a failure.

use super::output::Event;
use super::LOOK;
use crate::stuck::Watch;
use rustix::process::{kill_process, Pid, Signal};
use std::process::{Child, ChildStdin, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Time for the other ranks to report their own failures after one has failed, and again to exit
/// after SIGTERM.
const GRACE: Duration = Duration::from_millis(1500);

/// A process: a rank, or a board with the ranks of its kernels.
pub struct Running {
    pub name: String,
    pub ranks: Vec<usize>,
    /// The number of the board's kernels that have not ended.
    pub left: usize,
    /// Dropping it ends a board.
    pub input: Option<ChildStdin>,
    pub child: Child,
    pub status: Option<ExitStatus>,
}

/// Processes that are killed when the value is dropped.
pub struct Children(pub Vec<Running>);

impl Children {
    fn signal(&mut self, signal: Signal) {
        for running in &self.0 {
            // The process has not been waited for, so the number has not been reused.
            if let (None, Some(pid)) = (running.status, Pid::from_raw(running.child.id() as i32)) {
                let _ = kill_process(pid, signal);
            }
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for running in &mut self.0 {
            if running.status.is_none() {
                let _ = running.child.kill();
                let _ = running.child.wait();
            }
        }
    }
}

fn status_code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128_u8.wrapping_add(signal as u8),
        (None, None) => 1,
    }
}

/// Reports why one rank, or all, failed. A later message of another rank may contain the cause of
/// the first failure.
fn fail(
    failed: &mut Option<Instant>,
    code: &mut u8,
    ended: u8,
    say: &mut dyn FnMut(bool, &str),
    why: &str,
) {
    if failed.is_some() {
        return say(true, why);
    }
    *failed = Some(Instant::now());
    *code = ended;
    say(true, &format!("{why}; stopping the other ranks"));
}

/// Forwards lines until all have ended, and ends the rest after a failure.
pub fn attend(
    children: &mut Children,
    lines: &Receiver<Event>,
    mut watch: Option<&mut Watch>,
    say: &mut dyn FnMut(bool, &str),
    kernel_of: &dyn Fn(usize) -> String,
) -> u8 {
    let mut code = 0;
    let mut failed: Option<Instant> = None;
    let mut stage = 0;
    let mut open = true;
    let mut silent = 0;
    let mut quiet: Option<Instant> = None;
    loop {
        match lines.recv_timeout(LOOK) {
            Ok(Event::Line { rank, error, text }) => {
                quiet = None;
                say(error, &format!("[{rank}] {text}"));
            }
            Ok(Event::Ended { rank, code: ended }) => {
                for running in &mut children.0 {
                    if running.ranks.contains(&rank) {
                        running.left = running.left.saturating_sub(1);
                    }
                }
                if ended != 0 {
                    let kernel = kernel_of(rank);
                    fail(
                        &mut failed,
                        &mut code,
                        ended,
                        say,
                        &format!("rank {rank} ({kernel}) failed: exit status: {ended}"),
                    );
                }
            }
            Ok(Event::Silent) => silent += 1,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                open = false;
                std::thread::sleep(LOOK);
            }
        }
        if let (Some(watch), None) = (&mut watch, failed) {
            if let Some(why) = watch.look() {
                fail(&mut failed, &mut code, 1, say, &why);
            }
        }
        let mut running = false;
        // Boards run until all other ranks have ended.
        let over = (children.0.iter()).all(|c| match c.input {
            Some(_) => c.left == 0,
            None => c.status.is_some(),
        });
        for each in &mut children.0 {
            if over {
                each.input = None;
            }
            if each.status.is_some() {
                continue;
            }
            match each.child.try_wait() {
                Ok(Some(ended)) => {
                    each.status = Some(ended);
                    // A rank that the launcher has stopped did not fail.
                    if (!ended.success() || each.left > 0) && stage == 0 {
                        let why = format!("{} failed: {ended}", each.name);
                        let ended = status_code(ended).max(1);
                        fail(&mut failed, &mut code, ended, say, &why);
                    }
                }
                _ => running = true,
            }
        }
        // All have ended, and all their output has been read. A process that a rank left behind may
        // still hold the output open.
        if !running {
            let quiet = *quiet.get_or_insert_with(Instant::now);
            if !open || silent == 2 * children.0.len() || quiet.elapsed() > GRACE {
                return code;
            }
        }
        let late = failed.map_or(0, |at| {
            (at.elapsed().as_millis() / GRACE.as_millis()) as u32
        });
        if running && late > stage {
            stage = late;
            children.signal(if late == 1 {
                Signal::TERM
            } else {
                Signal::KILL
            });
        }
    }
}
