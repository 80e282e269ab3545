//! Log lines of functions: deployments, cold starts, errors, and calls at a bounded rate.
//!
//! The last lines of each function are kept in memory; followers receive new ones.

use crate::http::rfc3339;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};
use tokio::sync::broadcast;

/// Lines kept for each function.
pub const LINES_MAX: usize = 1000;
/// The longest line, bytes.
const TEXT_BYTES_MAX: usize = 4096;
/// Limit of lines per second about a function's calls; more are dropped.
const CALL_LINES_PER_S: u64 = 20;
/// Lines that a follower may lag behind before it loses some.
const BEHIND_MAX: usize = 256;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Time.
    pub at: SystemTime,
    /// The replica: node and device, or `gateway`.
    pub instance: String,
    /// Message.
    pub text: String,
}

/// A line in OpenFaaS's format.
#[derive(Debug, Serialize)]
pub struct Message<'a> {
    name: &'a str,
    namespace: &'a str,
    instance: &'a str,
    timestamp: String,
    text: &'a str,
}

impl Line {
    /// The line as JSON, with a line end.
    pub fn json(&self, function: &str) -> String {
        let message = Message {
            name: function,
            namespace: crate::http::function::namespace::NAMESPACE,
            instance: &self.instance,
            timestamp: rfc3339::format(self.at),
            text: &self.text,
        };
        let mut text = serde_json::to_string(&message).unwrap_or_default();
        text.push('\n');
        text
    }
}

/// The log of one function.
#[derive(Debug)]
pub struct Log {
    started: Instant,
    lines: Mutex<VecDeque<Line>>,
    news: broadcast::Sender<Line>,
    /// Upper half: the second (since the start); lower half: the number of lines in it.
    allowance: AtomicU64,
}

impl Default for Log {
    fn default() -> Self {
        Log {
            started: Instant::now(),
            lines: Mutex::default(),
            news: broadcast::Sender::new(BEHIND_MAX),
            allowance: AtomicU64::new(0),
        }
    }
}

impl Log {
    /// Adds a line without a rate limit: its writer bounds the rate.
    pub fn push(&self, instance: impl Into<String>, text: impl Into<String>) {
        let mut text: String = text.into();
        if text.len() > TEXT_BYTES_MAX {
            let mut end = TEXT_BYTES_MAX;
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text.truncate(end);
            text.push('…');
        }
        let line = Line {
            at: SystemTime::now(),
            instance: instance.into(),
            text,
        };
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line.clone());
        // Sent under the lock, so that a subscriber misses no line and receives none twice.
        let _ = self.news.send(line);
    }

    /// Adds a line about a call, within the rate limit.
    pub fn call(&self, now: Instant, line: impl FnOnce() -> (String, String)) {
        let second = now.saturating_duration_since(self.started).as_secs();
        let before = self.allowance.load(Relaxed);
        let (last, written) = (before >> 32, before & 0xffff_ffff);
        let next = if last != second {
            second << 32 | 1
        } else if written < CALL_LINES_PER_S {
            before + 1
        } else {
            return;
        };
        // The thread that loses the race drops its line.
        let won = self
            .allowance
            .compare_exchange(before, next, Relaxed, Relaxed);
        if won.is_ok() {
            let (instance, text) = line();
            self.push(instance, text);
        }
    }

    /// The last `tail` lines (0: all) since a time, and a subscription to later ones.
    pub fn read(
        &self,
        tail: usize,
        since: Option<SystemTime>,
    ) -> (Vec<Line>, broadcast::Receiver<Line>) {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let new = lines
            .iter()
            .filter(|line| since.is_none_or(|since| line.at >= since));
        let kept: Vec<Line> = new.cloned().collect();
        let skipped = match tail {
            0 => 0,
            tail => kept.len().saturating_sub(tail),
        };
        (kept[skipped..].to_vec(), self.news.subscribe())
    }
}

/// The logs of all functions.
#[derive(Debug, Default)]
pub struct Logs(Mutex<BTreeMap<String, Arc<Log>>>);

impl Logs {
    /// The log of a function, which survives redeployments.
    pub fn of(&self, function: &str) -> Arc<Log> {
        let mut logs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        logs.entry(function.to_owned()).or_default().clone()
    }

    /// Removes the log of a removed function; its followers receive the end.
    pub fn forget(&self, function: &str) {
        let mut logs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        logs.remove(function);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept() {
        let log = Log::default();
        for i in 0..LINES_MAX + 5 {
            log.push("gateway", i.to_string());
        }
        let (lines, _) = log.read(0, None);
        assert_eq!(lines.len(), LINES_MAX);
        assert_eq!(lines[0].text, "5");
        let (tail, _) = log.read(2, None);
        assert_eq!(tail.len(), 2);
        assert_eq!(tail[1].text, (LINES_MAX + 4).to_string());
        let future = SystemTime::now() + std::time::Duration::from_secs(60);
        assert!(log.read(0, Some(future)).0.is_empty());
    }

    #[test]
    fn calls_are_logged_at_a_bounded_rate() {
        let log = Log::default();
        let now = Instant::now();
        for _ in 0..1000 {
            log.call(now, || ("a".into(), "b".into()));
        }
        assert_eq!(log.read(0, None).0.len() as u64, CALL_LINES_PER_S);
        let later = now + std::time::Duration::from_secs(2);
        log.call(later, || ("a".into(), "c".into()));
        assert_eq!(log.read(1, None).0[0].text, "c");
    }

    #[tokio::test]
    async fn a_follower_gets_what_comes_and_then_the_end() {
        let logs = Logs::default();
        let log = logs.of("f");
        log.push("gateway", "before");
        let (lines, mut news) = log.read(0, None);
        assert_eq!(lines.len(), 1);
        log.push("gateway", "after");
        assert_eq!(news.recv().await.unwrap().text, "after");
        logs.forget("f");
        drop(log);
        assert!(news.recv().await.is_err());
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let log = Log::default();
        log.push("gateway", "ä".repeat(TEXT_BYTES_MAX));
        let text = log.read(0, None).0[0].text.clone();
        assert!(text.len() <= TEXT_BYTES_MAX + 3 && text.ends_with('…'));
    }
}
