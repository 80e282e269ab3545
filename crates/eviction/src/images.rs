//! A device's measurements of its images.

use crate::turn::{Options, Turn, TURN_MIN};
use crate::value::{Decayed, Value, HALF_LIFE};
use std::collections::BTreeMap;
use std::f64::consts::LN_2;
use std::time::Duration;

/// Most images that a device keeps records of. Beyond it, the least valuable one is dropped.
pub const IMAGES_MAX: usize = 256;

/// Device time per time of loads on a device that is in demand: loads take an eleventh of the time.
const TIME_PER_LOAD: u32 = 10;
/// A device on which images use this part of the time is in demand. On a device that is used less,
/// loads take proportionally more, up to half of the time: they cost others less, and calls would
/// wait for an idle device.
const DEMAND: f64 = 0.2;
/// An image whose share of the work is greater than the others' gets a longer turn, up to this
/// multiple.
const WEIGHT_MAX: f64 = 4.0;
/// Loads that may follow each other without the time for them, after the device has held an image
/// for long.
const BURST_LOADS: u32 = 2;

#[derive(Clone, Copy, Debug, Default)]
struct Image {
    /// Mean of the last loads, newer ones counting more; 0: not loaded yet.
    load: Duration,
    /// Its tasks.
    uses: Decayed,
    /// Its device time, seconds.
    work: Decayed,
}

/// The account of a device's time for loads: time without a load pays for its part of a load.
#[derive(Clone, Copy, Debug, Default)]
struct Budget {
    /// Time for loads that is left at `at`; negative after a load that was not paid for.
    credit_s: f64,
    /// End of the last load.
    at: Duration,
    /// The last load.
    load: Duration,
}

impl Budget {
    fn credit_s(&self, now: Duration, time_per_load: f64) -> f64 {
        let earned = now.saturating_sub(self.at).as_secs_f64() / time_per_load;
        (self.credit_s + earned).min((self.load * BURST_LOADS).as_secs_f64())
    }

    /// Records a load that ends now.
    fn spend(&mut self, took: Duration, now: Duration, time_per_load: f64) {
        // A change that the budget does not permit, because the operator's limit of the wait
        // requires it or no image was in use, leaves no debt beyond its own load.
        let before = self.credit_s(now.saturating_sub(took), time_per_load);
        let before = before.max(0.0);
        *self = Budget {
            credit_s: before - took.as_secs_f64(),
            at: now,
            load: took,
        };
    }

    /// Time until the next load is paid for.
    fn rest(&self, now: Duration, time_per_load: f64) -> Duration {
        let debt_s = (-self.credit_s(now, time_per_load)).max(0.0);
        Duration::from_secs_f64(debt_s * time_per_load)
    }
}

/// The images of one device.
#[derive(Clone, Debug, Default)]
pub struct Images {
    images: BTreeMap<String, Image>,
    budget: Budget,
}

impl Images {
    /// Records tasks of an image, and the device time that they used.
    pub fn used(&mut self, image: &str, tasks: u64, time: Duration, now: Duration) {
        let known = self.images.entry(image.to_owned()).or_default();
        known.uses.add(tasks as f64, now);
        known.work.add(time.as_secs_f64(), now);
        self.bound(image, now);
    }

    /// Records that an image has been loaded, which took a time until now. The load counts as a
    /// use: it was requested.
    pub fn loaded(&mut self, image: &str, took: Duration, now: Duration) {
        let known = self.images.entry(image.to_owned()).or_default();
        known.load = match known.load {
            Duration::ZERO => took,
            before => (before + took) / 2,
        };
        known.uses.add(1.0, now);
        self.budget.spend(took, now, self.time_per_load(now));
        self.bound(image, now);
    }

    /// Records a load that failed: it took the device's time without a result.
    pub fn load_failed(&mut self, took: Duration, now: Duration) {
        self.budget.spend(took, now, self.time_per_load(now));
    }

    /// Device time for each unit of load time, by the part of the recent time that images used.
    fn time_per_load(&self, now: Duration) -> f64 {
        let work_s: f64 = self.images.values().map(|i| i.work.at(now)).sum();
        let used = work_s * LN_2 / HALF_LIFE.as_secs_f64();
        let most = f64::from(TIME_PER_LOAD);
        (most * used / DEMAND).clamp(1.0, most)
    }

    /// Keeps at most [`IMAGES_MAX`] images, among them `kept`.
    fn bound(&mut self, kept: &str, now: Duration) {
        if self.images.len() <= IMAGES_MAX {
            return;
        }
        let others = self.images.iter().filter(|(name, _)| *name != kept);
        let value = |image: &Image| Value::of(image.uses.at(now), image.load, now);
        let least = others.min_by_key(|(_, image)| value(image));
        if let Some(name) = least.map(|(name, _)| name.clone()) {
            self.images.remove(&name);
        }
    }

    /// The recent uses of an image, and the time to load it; 0: not known.
    pub fn known(&self, image: &str, now: Duration) -> (f64, Duration) {
        let known = self.images.get(image);
        known.map_or((0.0, Duration::ZERO), |i| (i.uses.at(now), i.load))
    }

    /// The turn of an image while others wait. Automatic: at least ten times its load, and longer
    /// if it has done more than its part of the recent work.
    pub fn turn<'a>(
        &self,
        options: &Options,
        image: &str,
        waiting: impl IntoIterator<Item = &'a str>,
        now: Duration,
    ) -> Turn {
        if let Some(length) = options.turn {
            return Turn {
                length,
                rest: Duration::ZERO,
            };
        }
        let load = self.images.get(image).map_or(Duration::ZERO, |i| i.load);
        let least = TURN_MIN.max(load * TIME_PER_LOAD).max(options.turn_min);
        let part = self.part(image, waiting, now);
        // An image that is used less than those that wait keeps them only briefly.
        let time_per_load = (self.time_per_load(now) * part.min(1.0)).max(1.0);
        Turn {
            length: least.mul_f64(part.sqrt().clamp(1.0, WEIGHT_MAX)),
            rest: self.budget.rest(now, time_per_load),
        }
    }

    /// An image's recent work relative to the mean of those that contend for the device. The
    /// length of its turn grows by the square root of that: a longer turn lets an image do more
    /// work, which must not lengthen its next turn again without end. So images that could use the
    /// device all the time get equal turns in the long run.
    fn part<'a>(
        &self,
        image: &str,
        waiting: impl IntoIterator<Item = &'a str>,
        now: Duration,
    ) -> f64 {
        let work = |name: &str| self.images.get(name).map_or(0.0, |i| i.work.at(now));
        let own = work(image);
        let mut all = (1u32, own);
        for other in waiting.into_iter().filter(|name| *name != image) {
            all = (all.0 + 1, all.1 + work(other));
        }
        if all.1 <= 0.0 {
            return 1.0;
        }
        own * f64::from(all.0) / all.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const AUTOMATIC: Options = Options {
        turn: None,
        turn_min: Duration::ZERO,
        wait: None,
    };

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_fixed_turn_is_the_operators() {
        let mut images = Images::default();
        images.loaded("a", ms(5_000), ms(5_000));
        let fixed = Options {
            turn: Some(ms(400)),
            ..AUTOMATIC
        };
        let turn = images.turn(&fixed, "a", ["b"], ms(5_000));
        assert_eq!((turn.length, turn.rest), (ms(400), Duration::ZERO));
    }

    #[test]
    fn an_image_with_more_work_gets_a_longer_turn_up_to_a_limit() {
        let mut images = Images::default();
        let now = ms(1_000);
        assert_eq!(images.turn(&AUTOMATIC, "a", ["b"], now).length, TURN_MIN);
        images.used("a", 10, ms(9_000), now);
        images.used("b", 10, ms(1_000), now);
        let length = |image: &str, other: &str| {
            let turn = images.turn(&AUTOMATIC, image, [other], now);
            turn.length.as_secs_f64()
        };
        // 9 of a mean of 5 seconds.
        assert!((length("a", "b") - 1.8f64.sqrt()).abs() < 1e-6);
        assert_eq!(length("b", "a"), 1.0);
        // An image without a record has done no work.
        assert_eq!(length("new", "a"), 1.0);
        let idle: Vec<String> = (0..100).map(|n| format!("idle{n}")).collect();
        let among = images.turn(&AUTOMATIC, "a", idle.iter().map(String::as_str), now);
        assert_eq!(among.length, TURN_MIN.mul_f64(WEIGHT_MAX));
    }

    #[test]
    fn images_that_always_have_work_get_equal_turns_in_the_long_run() {
        let mut images = Images::default();
        let mut now = Duration::ZERO;
        images.used("a", 1, ms(20_000), now);
        images.used("b", 1, ms(1_000), now);
        let mut turns = Vec::new();
        for n in 0..200 {
            let (image, other) = [("a", "b"), ("b", "a")][n % 2];
            let length = images.turn(&AUTOMATIC, image, [other], now).length;
            now += length;
            images.used(image, 1, length, now);
            turns.push(length.as_secs_f64());
        }
        assert!(turns[0] > 1.3, "{turns:?}");
        assert!(turns[198] / turns[199] < 1.05, "{turns:?}");
    }

    #[test]
    fn records_are_bounded_and_the_most_valuable_stay() {
        let mut images = Images::default();
        images.loaded("often", ms(100), ms(1));
        images.used("often", 1_000, ms(1), ms(1));
        for n in 0..2 * IMAGES_MAX {
            images.loaded(&format!("i{n}"), ms(100), ms(2));
        }
        assert_eq!(images.images.len(), IMAGES_MAX);
        assert!(images.known("often", ms(2)).0 > 900.0);
    }

    proptest! {
        /// Images alternate as fast as the policy permits.
        #[test]
        fn loads_take_half_of_an_idle_devices_time_and_a_tenth_of_one_in_demand(
            loads_ms in prop::collection::vec(1u64..20_000, 1..6), before_s in 0u64..1_000,
            in_demand: bool,
        ) {
            let mut images = Images::default();
            let start = Duration::from_secs(before_s);
            let (mut now, mut loading) = (start, Duration::ZERO);
            for n in 0..60 {
                let load = ms(loads_ms[n % loads_ms.len()]);
                now += load;
                loading += load;
                let name = n.to_string();
                if in_demand {
                    images.used(&name, 1, HALF_LIFE, now);
                }
                images.loaded(&name, load, now);
                let turn = images.turn(&AUTOMATIC, &name, ["next"], now);
                prop_assert!(turn.length >= load * TIME_PER_LOAD);
                now += turn.rest.min(turn.length);
            }
            let longest = ms(*loads_ms.iter().max().unwrap());
            let part = if in_demand { TIME_PER_LOAD } else { 1 } + 1;
            // The burst after the start comes in addition, and the last load is not paid for yet.
            let most = (now - start) / part + longest * (BURST_LOADS + 2);
            prop_assert!(loading <= most, "{loading:?} of {:?}", now - start);
        }

        #[test]
        fn a_rest_ends_and_any_measurement_has_a_turn(
            load_ms: u32, time_ms: u32, tasks: u64, now_ms: u32, turn_min_ms: u32,
        ) {
            let mut images = Images::default();
            let (load, now) = (ms(load_ms.into()), ms(now_ms.into()));
            images.loaded("a", load, now);
            images.load_failed(load, now);
            images.used("a", tasks, ms(time_ms.into()), now);
            let options = Options { turn_min: ms(turn_min_ms.into()), ..AUTOMATIC };
            let turn = images.turn(&options, "a", ["b"], now);
            prop_assert!(turn.length >= TURN_MIN && turn.length >= options.turn_min);
            prop_assert!(turn.rest <= load * TIME_PER_LOAD + ms(1));
            let later = now + turn.rest + ms(1);
            prop_assert!(images.turn(&options, "a", ["b"], later).rest <= ms(1));
        }
    }
}
