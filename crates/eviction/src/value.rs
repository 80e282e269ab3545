//! The value of keeping an image.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Time after which a use counts half. It is longer than a round of turns within the default of
/// `device.turn_wait_ms`, so that an image that waits for its turn does not count as unused.
pub const HALF_LIFE: Duration = Duration::from_secs(60);

/// Steps of a [`Value`] per factor of two.
const STEPS: f64 = 1024.0;
/// The most uses, and the longest load in seconds, that count.
const USES_MAX: f64 = 1e15;
const LOAD_S_MAX: f64 = 3600.0;

/// The factor by which an amount decays in a time.
fn decay(time: Duration) -> f64 {
    (-time.as_secs_f64() / HALF_LIFE.as_secs_f64()).exp2()
}

/// A sum whose terms count half after each [`HALF_LIFE`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Decayed {
    sum: f64,
    at: Duration,
}

impl Decayed {
    /// Adds an amount. A time before the last one counts as the last one.
    pub fn add(&mut self, amount: f64, now: Duration) {
        self.sum = self.at(now) + amount;
        self.at = self.at.max(now);
    }

    /// The sum at a time.
    pub fn at(&self, now: Duration) -> f64 {
        self.sum * decay(now.saturating_sub(self.at))
    }
}

/// The value of keeping an image on a device: its recent uses (a [`Decayed`] count, the LRFU policy
/// of Lee et al., "LRFU: a spectrum of policies that subsumes the least recently used and least
/// frequently used policies", IEEE Transactions on Computers 50(12), 2001) times the time to load
/// it, relative to a fixed moment. All counts decay by the same factor, so the order of two values
/// does not change while neither image is used: an index of values stays valid between reports.
///
/// It is the logarithm in steps of 1/1024 of a factor of two, an integer, so that values have a
/// total order and do not overflow with time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Value(i64);

impl Default for Value {
    fn default() -> Value {
        Value::NONE
    }
}

impl Value {
    /// Of an image without a known use or load.
    pub const NONE: Value = Value(i64::MIN);
    /// Of an image that is about to be loaded: it has been requested and not used yet.
    pub const PLANNED: Value = Value(i64::MAX);

    /// The value of an image with a number of recent uses, [`Decayed`] until `now`, that takes
    /// `load` to load. Values that are compared have times of the same clock. Uses that are not a
    /// positive number count as none.
    pub fn of(uses: f64, load: Duration, now: Duration) -> Value {
        let worth = uses.min(USES_MAX) * load.as_secs_f64().min(LOAD_S_MAX);
        if !(worth.is_finite() && worth > 0.0) {
            return Value::NONE;
        }
        let log = worth.log2() + now.as_secs_f64() / HALF_LIFE.as_secs_f64();
        // Within ±2^60 for any `Duration`: the conversion saturates at neither end.
        Value((log * STEPS).round().clamp(-1e18, 1e18) as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seconds(s: f64) -> Duration {
        Duration::from_secs_f64(s)
    }

    proptest! {
        #[test]
        fn the_order_does_not_change_as_time_passes(
            uses in prop::collection::vec(0.0..1e6f64, 2),
            loads in prop::collection::vec(0.001..100.0f64, 2),
            reports in prop::collection::vec(0.0..1e4f64, 2), later in 0.0..1e4f64,
        ) {
            // Reported at different times, both compare as if they were reported later. Values
            // within the rounding of each other may compare either way.
            let now = seconds(reports[0].max(reports[1]) + later);
            for n in 0..2 {
                let mut count = Decayed::default();
                count.add(uses[n], seconds(reports[n]));
                let (load, at) = (seconds(loads[n]), seconds(reports[n]));
                let value = Value::of(uses[n], load, at);
                let late = Value::of(count.at(now), load, now);
                prop_assert!(value == Value::NONE || (value.0 - late.0).abs() <= 1);
            }
        }

        #[test]
        fn more_uses_later_uses_and_longer_loads_are_worth_more(
            uses in 0.01..1e6f64, load in 0.001..100.0f64, now in 0.0..1e6f64,
            factor in 1.01..100.0f64,
        ) {
            let value = |uses, load, now| Value::of(uses, seconds(load), seconds(now));
            let one = value(uses, load, now);
            prop_assert!(Value::NONE < one && one < Value::PLANNED);
            prop_assert!(value(uses * factor, load, now) > one);
            prop_assert!(value(uses, load * factor, now) > one);
            prop_assert!(value(uses, load, now + factor) > one);
        }

        #[test]
        fn any_number_has_a_value(uses: f64, secs: u64, now: u64) {
            let value = Value::of(uses, Duration::from_secs(secs), Duration::from_secs(now));
            prop_assert!(value < Value::PLANNED);
            prop_assert!(uses > 0.0 || value == Value::NONE);
        }

        #[test]
        fn a_sum_counts_every_use_by_its_age(
            mut times in prop::collection::vec(0.0..600.0f64, 1..20), after in 0.0..600.0f64,
        ) {
            times.sort_by(f64::total_cmp);
            let mut sum = Decayed::default();
            for time in &times {
                sum.add(1.0, seconds(*time));
            }
            let now = times.last().unwrap() + after;
            let expected: f64 = times.iter().map(|t| (-(now - t) / 60.0).exp2()).sum();
            prop_assert!((sum.at(seconds(now)) / expected - 1.0).abs() < 1e-6);
        }
    }

    #[test]
    fn recency_and_frequency_both_count() {
        let load = Duration::from_secs(1);
        let often = Value::of(8.0, load, Duration::ZERO);
        // Eight uses, three half-lives ago, are worth one now.
        let of = |at: u64| Value::of(1.0, load, Duration::from_secs(at));
        assert!(of(179) < often && of(180) == often && of(181) > often);
    }
}
