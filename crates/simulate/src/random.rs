//! Reproducible random numbers: xoshiro256++ (Blackman and Vigna), seeded through splitmix64. Each
//! function has its own generator, so that its numbers do not depend on other functions.

use serde::Deserialize;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// Stream number `stream` of a seed.
    pub fn new(seed: u64, stream: u64) -> Random {
        let mut mixed = seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95);
        let mut next = || {
            mixed = mixed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        Random {
            state: [next(), next(), next(), next()],
        }
    }

    fn bits(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in (0, 1], so that the logarithm is finite.
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Exponential with the given mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -self.unit().ln() * mean
    }

    /// Standard normal (one of the two values of Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let (a, b) = (self.unit(), self.unit());
        (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }

    /// Uniform below `n`, which must not be 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((self.unit() * n as f64) as usize).min(n - 1)
    }
}

/// Distribution of a time, milliseconds.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Times {
    /// A constant.
    Constant(f64),
    /// Exponential with this mean.
    Exponential(f64),
    /// Uniform between these bounds.
    Uniform([f64; 2]),
    /// Lognormal: median, and standard deviation of the logarithm.
    Lognormal([f64; 2]),
    /// One of these values, with equal probability.
    Samples(Vec<f64>),
}

/// Longest valid time: a day.
const TIME_MS_MAX: f64 = 86_400_000.0;

impl Times {
    /// A time of zero.
    pub const NONE: Times = Times::Constant(0.0);

    /// The reason why it is invalid.
    pub fn check(&self) -> Result<(), String> {
        let good = |ms: &f64| (0.0..=TIME_MS_MAX).contains(ms);
        let fine = match self {
            Times::Constant(ms) | Times::Exponential(ms) => good(ms),
            Times::Uniform([low, high]) => good(low) && good(high) && low <= high,
            Times::Lognormal([median, sigma]) => {
                good(median) && *median > 0.0 && (0.0..=5.0).contains(sigma)
            }
            Times::Samples(samples) => !samples.is_empty() && samples.iter().all(good),
        };
        fine.then_some(()).ok_or_else(|| {
            format!("invalid time {self:?}: use milliseconds from 0 to a day, in order, and sigma up to 5")
        })
    }

    /// Draws a time, nanoseconds.
    pub fn sample_ns(&self, random: &mut Random) -> u64 {
        let ms = match self {
            Times::Constant(ms) => *ms,
            Times::Exponential(mean) => random.exponential(*mean),
            Times::Uniform([low, high]) => low + (high - low) * random.unit(),
            Times::Lognormal([median, sigma]) => median * (sigma * random.normal()).exp(),
            Times::Samples(samples) => samples[random.below(samples.len())],
        };
        (ms.min(TIME_MS_MAX) * 1e6).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_ms(times: &Times) -> f64 {
        let mut random = Random::new(7, 0);
        let n = 200_000;
        let sum: u64 = (0..n).map(|_| times.sample_ns(&mut random)).sum();
        sum as f64 / f64::from(n) / 1e6
    }

    #[test]
    fn means_are_what_the_distributions_say() {
        for (times, mean) in [
            (Times::Constant(3.0), 3.0),
            (Times::Exponential(5.0), 5.0),
            (Times::Uniform([2.0, 4.0]), 3.0),
            // exp(sigma² / 2) × median.
            (Times::Lognormal([10.0, 0.5]), 10.0 * (0.125f64).exp()),
            (Times::Samples(vec![1.0, 2.0, 6.0]), 3.0),
        ] {
            let found = mean_ms(&times);
            assert!((found / mean - 1.0).abs() < 0.01, "{times:?}: {found}");
        }
    }

    #[test]
    fn streams_of_a_seed_differ_and_repeat() {
        let draw = |seed, stream| Random::new(seed, stream).bits();
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }

    #[test]
    fn impossible_times_are_refused() {
        for times in [
            Times::Constant(-1.0),
            Times::Constant(f64::NAN),
            Times::Uniform([4.0, 2.0]),
            Times::Lognormal([0.0, 1.0]),
            Times::Samples(vec![]),
            Times::Exponential(1e12),
        ] {
            assert!(times.check().is_err(), "{times:?}");
        }
        assert!(Times::NONE.check().is_ok());
    }
}
