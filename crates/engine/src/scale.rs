//! The number of replicas of a function from its measured demand.
//!
//! Every measurement gives a number: the demand (calls per second, or calls in progress) divided by
//! the target, rounded up, within the bounds. The highest number in a window of time applies, so
//! that replicas are added at once, and removed only when the demand stays low. A function that may
//! scale to zero has no replica after its idle time without a call.
//!
//! No I/O, and no clock: the caller supplies the time.

use baltra_functions::manifest::{Demand, Scale};
use std::collections::VecDeque;
use std::time::Duration;

/// Shortest time between two measurements.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Counters of a function at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measurement {
    /// The time, since any fixed moment.
    pub at: Duration,
    /// Calls so far.
    pub begun: u64,
    /// Calls in progress.
    pub running: u64,
}

/// Scales one function.
#[derive(Clone, Debug)]
pub struct Scaler {
    scale: Scale,
    /// Time for which a demand keeps its replicas.
    window: Duration,
    /// Time without a call until the function has no replica, if it may scale to zero.
    idle: Duration,
    last: Option<Measurement>,
    /// End of the last interval with a call.
    used_at: Duration,
    /// Numbers of the window's measurements, the oldest first.
    numbers: VecDeque<(Duration, u32)>,
}

impl Scaler {
    /// A scaler that has measured nothing yet.
    pub fn new(scale: Scale, window: Duration, idle: Duration) -> Scaler {
        Scaler {
            scale,
            window,
            idle,
            last: None,
            used_at: Duration::ZERO,
            numbers: VecDeque::new(),
        }
    }

    /// The settings of the scaler.
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// The desired number of replicas; `None`: there is no interval to measure yet.
    pub fn desired(&mut self, now: Measurement) -> Option<u32> {
        let Some(last) = self.last else {
            (self.last, self.used_at) = (Some(now), now.at);
            return None;
        };
        let interval = now.at.saturating_sub(last.at);
        if interval < INTERVAL_MIN {
            return None;
        }
        self.last = Some(now);
        let calls = now.begun.saturating_sub(last.begun);
        if calls > 0 || now.running > 0 {
            self.used_at = now.at;
        }
        if self.scale.zero && now.at.saturating_sub(self.used_at) >= self.idle {
            self.numbers.clear();
            return Some(0);
        }
        let demand = match self.scale.demand {
            Demand::Rps => calls as f64 / interval.as_secs_f64(),
            Demand::Capacity => now.running as f64,
        };
        let number = number(&self.scale, demand);
        self.numbers.push_back((now.at, number));
        let is_old = |at: &Duration| now.at.saturating_sub(*at) > self.window;
        while self.numbers.front().is_some_and(|(at, _)| is_old(at)) {
            self.numbers.pop_front();
        }
        self.numbers.iter().map(|(_, number)| *number).max()
    }
}

/// The number of replicas for a demand.
fn number(scale: &Scale, demand: f64) -> u32 {
    let replicas = (demand / f64::from(scale.target)).ceil();
    // A conversion of a float saturates.
    (replicas as u32).clamp(scale.min, scale.max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALE: Scale = Scale {
        min: 1,
        max: 4,
        target: 10,
        demand: Demand::Rps,
        zero: false,
    };

    #[test]
    fn the_number_is_the_demand_by_the_target_within_the_bounds() {
        let wide = Scale { min: 2, ..SCALE };
        for (scale, demand, expected) in [
            (SCALE, 0.0, 1),
            (SCALE, 10.0, 1),
            (SCALE, 10.1, 2),
            (SCALE, 35.0, 4),
            (SCALE, 1e30, 4),
            (SCALE, f64::NAN, 1),
            (wide, 0.0, 2),
            (wide, 25.0, 3),
        ] {
            assert_eq!(number(&scale, demand), expected, "{scale:?} {demand}");
        }
    }

    /// Feeds (seconds, calls so far, calls in progress), and compares the desired numbers.
    fn run(scale: Scale, steps: &[(u64, u64, u64, Option<u32>)]) {
        let mut scaler = Scaler::new(scale, Duration::from_secs(3), Duration::from_secs(5));
        for (second, begun, running, expected) in steps {
            let now = Measurement {
                at: Duration::from_secs(*second),
                begun: *begun,
                running: *running,
            };
            assert_eq!(scaler.desired(now), *expected, "second {second}");
        }
    }

    #[test]
    fn replicas_come_at_once_and_go_after_the_window() {
        run(
            SCALE,
            &[
                (100, 1000, 0, None),
                (100, 1000, 0, None),
                (101, 1025, 0, Some(3)),
                (102, 1030, 0, Some(3)),
                (104, 1030, 0, Some(3)),
                (105, 1030, 0, Some(1)),
                (200, 1030, 0, Some(1)),
                (201, 9999, 0, Some(4)),
            ],
        );
    }

    #[test]
    fn calls_in_progress_count_for_capacity() {
        let scale = Scale {
            demand: Demand::Capacity,
            ..SCALE
        };
        run(
            scale,
            &[
                (0, 0, 0, None),
                (1, 900, 10, Some(1)),
                (2, 900, 11, Some(2)),
                (6, 900, 1, Some(1)),
            ],
        );
    }

    #[test]
    fn an_idle_function_scales_to_zero_only_if_it_may() {
        let steps = |zero| {
            [
                (0, 0, 0, None),
                (1, 20, 1, Some(2)),
                // A long call.
                (8, 20, 1, Some(1)),
                (12, 20, 0, Some(1)),
                (13, 20, 0, Some(zero)),
                (14, 20, 0, Some(zero)),
                (15, 21, 0, Some(1)),
            ]
        };
        run(SCALE, &steps(1));
        let zero = Scale {
            zero: true,
            ..SCALE
        };
        run(zero, &steps(0));
    }

    #[test]
    fn counters_that_decrease_are_no_demand() {
        run(SCALE, &[(0, 50, 0, None), (1, 10, 0, Some(1))]);
    }
}
