//! A function's recent output: its kernels' `printf`, its library's standard error, and events of
//! its sessions. Bounded; the oldest lines are dropped first.

use baltra_ring::Locked;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::SystemTime;

/// Most lines kept.
const LINES_MAX: usize = 2000;
/// Most bytes of a line; longer lines are split.
const LINE_BYTES_MAX: usize = 4096;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The time at which it was complete.
    pub at: SystemTime,
    /// The node, or `native`.
    pub from: String,
    /// The text without its line end.
    pub text: String,
    /// Number of the line, never reused, so that a reader can resume.
    pub number: u64,
}

/// A function's log.
#[derive(Debug, Default)]
pub struct Log {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    lines: VecDeque<Line>,
    next: u64,
    rest: Vec<u8>,
}

impl Log {
    /// Adds printed bytes, split into lines.
    pub fn print(&self, from: &str, bytes: &[u8]) {
        let mut inner = self.inner.locked();
        for byte in bytes {
            if *byte == b'\n' {
                inner.end_line(from);
            } else {
                inner.rest.push(*byte);
                if inner.rest.len() >= LINE_BYTES_MAX {
                    inner.end_line(from);
                }
            }
        }
    }

    /// Adds a line of the engine itself.
    pub fn line(&self, from: &str, text: &str) {
        let mut inner = self.inner.locked();
        if !inner.rest.is_empty() {
            inner.end_line(from);
        }
        for line in text.lines() {
            inner.rest = line.bytes().take(LINE_BYTES_MAX).collect();
            inner.end_line(from);
        }
    }

    /// The kept lines from number `from` on.
    pub fn since(&self, from: u64) -> Vec<Line> {
        let inner = self.inner.locked();
        let lines = inner.lines.iter().filter(|line| line.number >= from);
        lines.cloned().collect()
    }
}

impl Inner {
    fn end_line(&mut self, from: &str) {
        let text = String::from_utf8_lossy(&self.rest).into_owned();
        self.rest.clear();
        if self.lines.len() >= LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(Line {
            at: SystemTime::now(),
            from: from.to_owned(),
            text,
            number: self.next,
        });
        self.next += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_become_lines_and_old_ones_go() {
        let log = Log::default();
        log.print("node", b"a");
        log.print("node", b"b\nc\nd");
        let texts =
            |from| -> Vec<String> { log.since(from).into_iter().map(|line| line.text).collect() };
        assert_eq!(texts(0), ["ab", "c"]);
        log.line("gateway", "said so");
        assert_eq!(texts(2), ["d", "said so"]);
        for _ in 0..LINES_MAX {
            log.print("node", b"x\n");
        }
        let lines = log.since(0);
        assert_eq!(lines.len(), LINES_MAX);
        assert_eq!(lines[0].number, 4);
    }

    #[test]
    fn a_line_without_an_end_is_bounded() {
        let log = Log::default();
        log.print("node", &vec![b'x'; 3 * LINE_BYTES_MAX]);
        assert!(log.since(0).iter().all(|l| l.text.len() == LINE_BYTES_MAX));
        assert_eq!(log.since(0).len(), 3);
    }
}
