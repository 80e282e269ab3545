//! The file in which `status` and `stop` find a run.

use super::attend::Children;
use super::{kernel_name, RankEnd, LOOK};
use crate::job::{counters, Job};
use crate::model::Cluster;
use anyhow::{Context, Result};
use rustix::process::{kill_process, Pid, Signal};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

/// A run on this host, from the file that `status` and `stop` read.
#[derive(Debug, Deserialize, Serialize)]
pub struct State {
    launcher: i32,
    /// Start time of the launcher's process, in clock ticks since boot: its process id may be
    /// reused.
    began: u64,
    ranks: Vec<StateRank>,
}

#[derive(Debug, Deserialize, Serialize)]
struct StateRank {
    rank: usize,
    kernel: String,
    node: String,
    pid: u32,
    segment: i32,
}

/// The start time of a process, in clock ticks since boot.
fn began_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain blanks; field 22 is the 20th after the name.
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(19)?
        .parse()
        .ok()
}

impl State {
    /// The state of a run of this process.
    pub fn new(cluster: &Cluster, nodes: &[usize], job: &Job, children: &Children) -> State {
        let ranks = children
            .0
            .iter()
            .flat_map(|running| running.ranks.iter().map(|rank| (*rank, running.child.id())))
            .map(|(rank, pid)| StateRank {
                rank,
                kernel: kernel_name(cluster, rank),
                node: cluster.node_name(nodes[rank]),
                pid,
                segment: job.segment_fd(rank).unwrap_or(-1),
            })
            .collect();
        State {
            launcher: std::process::id() as i32,
            began: began_ticks(std::process::id()).unwrap_or_default(),
            ranks,
        }
    }

    /// Writes the state file.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text =
            serde_json::to_string_pretty(self).context("cannot serialize the run's state")?;
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Reads a state file; `None` if the run has ended.
    pub fn of(path: &Path) -> Result<Option<State>> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e).with_context(|| path.display().to_string()),
        };
        let state: State =
            serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        let live = began_ticks(state.launcher as u32) == Some(state.began);
        Ok(live.then_some(state))
    }

    /// The number, kernel, node, process and counters of each rank.
    pub fn ranks(&self) -> Vec<(RankEnd, u32)> {
        self.ranks
            .iter()
            .map(|r| {
                let segment = File::open(format!("/proc/{}/fd/{}", self.launcher, r.segment));
                let end = RankEnd {
                    rank: r.rank,
                    kernel: r.kernel.clone(),
                    node: r.node.clone(),
                    counters: segment.map(|s| counters(&s, r.rank)).unwrap_or_default(),
                };
                (end, r.pid)
            })
            .collect()
    }

    /// Stops the run: signals its launcher, which stops the ranks.
    pub fn stop(&self) -> Result<()> {
        let pid = Pid::from_raw(self.launcher).context("no process")?;
        kill_process(pid, Signal::TERM).context("cannot stop the run")?;
        let until = Instant::now() + Duration::from_secs(5);
        let gone = |pid: u32, began: Option<u64>| {
            began_ticks(pid).is_none() || began.is_some_and(|b| began_ticks(pid) != Some(b))
        };
        while Instant::now() < until {
            // A rank's process is killed by its parent-death signal (set in HUM_Init) when its
            // parent exits.
            if gone(self.launcher as u32, Some(self.began))
                && self.ranks.iter().all(|r| gone(r.pid, None))
            {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        for rank in &self.ranks {
            if let (Some(pid), false) = (Pid::from_raw(rank.pid as i32), gone(rank.pid, None)) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        Ok(())
    }
}
