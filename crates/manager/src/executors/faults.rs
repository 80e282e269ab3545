//! Faults of a device's executors caused by tenants' work: counted, and followed by a pause.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// A tenant's faults are forgotten after this time without one.
const FORGET_AFTER: Duration = Duration::from_secs(60);
/// The pause after the second fault in a row; it doubles with each further one.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
/// Maximum pause, below the time for which a client waits for its session.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// After this many consecutive faults a tenant no longer shares an executor with others.
const APART_AFTER: u32 = 2;

/// Causes of an executor's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A command ran past its deadline.
    Overdue,
    /// A task ran longer than `task_ms`.
    TaskLimit,
    /// The driver's context was lost.
    ContextLost,
    /// The process died.
    Crash,
    /// An operator ended a task.
    Operator,
}

impl Fault {
    /// The name in metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Overdue => "overdue",
            Fault::TaskLimit => "task_limit",
            Fault::ContextLost => "context_lost",
            Fault::Crash => "crash",
            Fault::Operator => "operator",
        }
    }
}

struct Recent {
    in_a_row: u32,
    last: Instant,
}

/// The faults of all tenants of one device.
#[derive(Default)]
pub struct Faults {
    recent: HashMap<String, Recent>,
    counts: BTreeMap<(String, Fault), u64>,
}

impl Faults {
    /// Records that a tenant's work ended an executor. An operator's decision is counted, and has no
    /// pause.
    pub fn record(&mut self, tenant: &str, fault: Fault, now: Instant) {
        *self.counts.entry((tenant.to_owned(), fault)).or_default() += 1;
        if fault == Fault::Operator {
            return;
        }
        self.recent
            .retain(|_, recent| now.saturating_duration_since(recent.last) < FORGET_AFTER);
        let recent = self.recent.entry(tenant.to_owned()).or_insert(Recent {
            in_a_row: 0,
            last: now,
        });
        recent.in_a_row = recent.in_a_row.saturating_add(1);
        recent.last = now;
    }

    fn recent(&self, tenant: &str, now: Instant) -> Option<&Recent> {
        let recent = self.recent.get(tenant)?;
        (now.saturating_duration_since(recent.last) < FORGET_AFTER).then_some(recent)
    }

    /// Remaining pause before the tenant gets another executor.
    pub fn pause(&self, tenant: &str, now: Instant) -> Duration {
        let Some(recent) = self.recent(tenant, now).filter(|r| r.in_a_row > 1) else {
            return Duration::ZERO;
        };
        let doublings = (recent.in_a_row - 2).min(16);
        let pause = (PAUSE_FIRST * (1 << doublings)).min(PAUSE_MAX);
        pause.saturating_sub(now.saturating_duration_since(recent.last))
    }

    /// Whether the tenant needs its own executor, although all others share one.
    pub fn is_apart(&self, tenant: &str, now: Instant) -> bool {
        let recent = self.recent(tenant, now);
        recent.is_some_and(|recent| recent.in_a_row >= APART_AFTER)
    }

    /// Faults since the start, by tenant and kind.
    pub fn counts(&self) -> Vec<(String, Fault, u64)> {
        let counts = self.counts.iter();
        counts
            .map(|((tenant, fault), n)| (tenant.clone(), *fault, *n))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_are_forgotten() {
        let mut faults = Faults::default();
        let now = Instant::now();
        assert_eq!(faults.pause("red", now), Duration::ZERO);
        faults.record("red", Fault::Crash, now);
        assert_eq!(
            faults.pause("red", now),
            Duration::ZERO,
            "the first is free"
        );
        assert!(!faults.is_apart("red", now));
        let mut before = Duration::ZERO;
        for _ in 0..40 {
            faults.record("red", Fault::Overdue, now);
            let pause = faults.pause("red", now);
            assert!(pause == before * 2 || pause == PAUSE_MAX || before.is_zero());
            before = pause;
        }
        assert_eq!(before, PAUSE_MAX);
        assert!(faults.is_apart("red", now));
        assert_eq!(faults.pause("blue", now), Duration::ZERO);
        for _ in 0..3 {
            faults.record("green", Fault::Operator, now);
        }
        assert_eq!(faults.pause("green", now), Duration::ZERO);
        assert!(!faults.is_apart("green", now));
        let later = now + FORGET_AFTER;
        assert_eq!(faults.pause("red", later), Duration::ZERO);
        assert!(!faults.is_apart("red", later));
        faults.record("red", Fault::Crash, later);
        assert_eq!(faults.pause("red", later), Duration::ZERO);
        let counts = faults.counts();
        let of = |fault| counts.iter().find(|c| c.1 == fault).map(|c| c.2);
        assert_eq!((of(Fault::Overdue), of(Fault::Crash)), (Some(40), Some(2)));
    }
}
