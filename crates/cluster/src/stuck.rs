//! Detects deadlocks in which kernels on boards take part. Processes detect a deadlock among
//! themselves (`humboldt/src/wait.c`); a kernel on a board cannot query its peers, so the launcher
//! compares the waits of all ranks.
//!
//! The ranks are deadlocked if all of them wait, no counter has changed for the configured time,
//! and each has since polled its connections without finding a packet. A packet in transit would
//! have arrived by then.

use crate::job::{Job, Standing, Wait};
use std::time::{Duration, Instant};

/// Polls without a packet after which none can be in transit.
const LOOKS: u64 = 2;
/// Most ranks that a message names.
const NAMED: usize = 8;

/// Checks a job's ranks periodically.
pub(crate) struct Watch<'a> {
    job: &'a Job,
    /// Kernels that run until the other ranks end; the job does not wait for them.
    serving: Vec<usize>,
    /// Time for which all ranks must be without progress; `None`: no detection.
    patience: Option<Duration>,
    looked: Instant,
    seen: Vec<Standing>,
    since: Instant,
}

impl<'a> Watch<'a> {
    /// Watches a job whose ranks are all on this host. `HUM_DEADLOCK_MS` is as for processes; the
    /// launcher waits twice that time, so that processes detect a deadlock first.
    pub(crate) fn new(job: &'a Job, serving: Vec<usize>) -> Watch<'a> {
        let ms = std::env::var("HUM_DEADLOCK_MS").ok();
        let ms = ms.and_then(|ms| ms.parse().ok()).unwrap_or(2000);
        Watch {
            job,
            serving,
            patience: (ms > 0).then(|| Duration::from_millis(2 * ms)),
            looked: Instant::now(),
            seen: Vec::new(),
            since: Instant::now(),
        }
    }

    /// Checks once; returns the description of a deadlock.
    pub(crate) fn look(&mut self) -> Option<String> {
        let patience = self.patience?;
        if self.looked.elapsed() < Duration::from_millis(100) {
            return None;
        }
        self.looked = Instant::now();
        let now: Vec<_> = (0..self.job.size()).map(|r| self.job.standing(r)).collect();
        let same = now.len() == self.seen.len()
            && (now.iter().zip(&self.seen)).all(|(now, seen)| now.stands_as(seen));
        if !same {
            self.seen = now;
            self.since = Instant::now();
            return None;
        }
        let waiting = now.iter().all(|r| r.ended || r.wait.is_some());
        let kernel =
            |rank: &usize| now[*rank].board && !now[*rank].ended && !self.serving.contains(rank);
        let looked = (now.iter().zip(&self.seen))
            .all(|(now, seen)| now.ended || now.looks.wrapping_sub(seen.looks) >= LOOKS);
        if !waiting
            || !looked
            || !(0..now.len()).any(|r| kernel(&r))
            || self.since.elapsed() < patience
        {
            return None;
        }
        Some(describe(&now, &self.serving))
    }
}

/// Describes which ranks wait for which, and lost packets.
fn describe(ranks: &[Standing], serving: &[usize]) -> String {
    let total = |count: fn(&Standing) -> u64| ranks.iter().map(count).fold(0, u64::wrapping_add);
    let lost = total(|r| r.out).wrapping_sub(total(|r| r.came));
    let waits: Vec<String> = (ranks.iter().enumerate())
        .filter(|(rank, _)| !serving.contains(rank))
        .filter_map(|(rank, r)| Some(format!("rank {rank} {}", r.wait.as_ref()?)))
        .collect();
    let mut text = match lost {
        0 => "deadlock: ".to_owned(),
        1 => "1 packet between boards was lost on the wire, which does not retransmit: ".to_owned(),
        n if n < 1 << 32 => {
            format!("{n} packets between boards were lost on the wire, which does not retransmit: ")
        }
        // A packet may be received before the sending board has counted it.
        _ => "deadlock: ".to_owned(),
    };
    text += &waits[..waits.len().min(NAMED)].join("; ");
    if waits.len() > NAMED {
        text += "; and others";
    }
    text
}

impl std::fmt::Display for Wait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.function {
            Some(function) => write!(f, "is in {function} and waits for ")?,
            None => write!(f, "waits for ")?,
        }
        match self.peer {
            Some(peer) => write!(f, "rank {peer}")?,
            None => write!(f, "any rank")?,
        }
        match (self.collective, self.tag) {
            (true, _) => write!(f, ", in a collective"),
            (_, Some(tag)) => write!(f, ", tag {tag}"),
            (_, None) => write!(f, ", any tag"),
        }
    }
}
