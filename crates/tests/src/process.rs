//! Information about processes from the kernel.

use rustix::process::{kill_process, Pid, Signal};
use std::path::PathBuf;

fn proc(pid: u32, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{name}"))
}

fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid as i32).expect("a process");
    // The process may have ended already.
    let _ = kill_process(pid, signal);
}

/// Sends SIGKILL.
pub fn kill(pid: u32) {
    send(pid, Signal::KILL);
}

/// Sends SIGTERM.
pub fn terminate(pid: u32) {
    send(pid, Signal::TERM);
}

/// Suspends processes until dropped: to the others they look like those of a node that is cut off.
pub struct Suspended(Vec<u32>);

/// Sends SIGSTOP.
pub fn suspend(pids: Vec<u32>) -> Suspended {
    pids.iter().for_each(|pid| send(*pid, Signal::STOP));
    Suspended(pids)
}

impl Drop for Suspended {
    fn drop(&mut self) {
        self.0.iter().for_each(|pid| send(*pid, Signal::CONT));
    }
}

/// Number of open descriptors.
pub fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(proc(pid, "fd")).map_or(0, |d| d.count())
}

/// Number of threads whose names begin with `name`.
pub fn threads(pid: u32, name: &str) -> usize {
    let tasks = std::fs::read_dir(proc(pid, "task")).into_iter();
    let names = tasks
        .flatten()
        .flatten()
        .map(|task| task.path().join("comm"));
    let names = names.filter_map(|path| std::fs::read_to_string(path).ok());
    names.filter(|own| own.starts_with(name)).count()
}

/// Number of mappings whose name contains `name`.
pub fn map_count(pid: u32, name: &str) -> usize {
    let maps = std::fs::read_to_string(proc(pid, "maps")).unwrap_or_default();
    maps.lines().filter(|line| line.contains(name)).count()
}

/// Resident memory, KiB; 0: the process has ended.
pub fn memory_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(proc(pid, "status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    line.and_then(|l| l.split_whitespace().nth(1)?.parse().ok())
        .unwrap_or(0)
}

/// Whether a process has ended, reaped or not.
pub fn ended(pid: u32) -> bool {
    let stat = std::fs::read_to_string(proc(pid, "stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(')')
        .and_then(|s| s.1.split_whitespace().next());
    matches!(state, None | Some("Z" | "X"))
}

/// Processes whose command line contains `text`.
pub fn processes_with(text: &str) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let line = std::fs::read(proc(*pid, "cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(text) && !ended(*pid)
    })
    .collect()
}
