//! Latencies, counted in buckets of at most 1.6 % of their value: 64 for each power of two.

const BITS: u32 = 6;
const PER_OCTAVE: u64 = 1 << BITS;

/// Counts of latencies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
}

fn bucket(ns: u64) -> usize {
    if ns < PER_OCTAVE {
        return ns as usize;
    }
    let octave = 63 - ns.leading_zeros() - BITS;
    (u64::from(octave) * PER_OCTAVE + (ns >> octave)) as usize
}

/// The middle of a bucket.
fn middle(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * PER_OCTAVE {
        return bucket;
    }
    let octave = bucket / PER_OCTAVE - 1;
    let low = (bucket - octave * PER_OCTAVE) << octave;
    low + (1 << octave) / 2
}

impl Histogram {
    /// Adds a latency.
    pub fn record(&mut self, ns: u64) {
        let at = bucket(ns);
        if at >= self.buckets.len() {
            self.buckets.resize(at + 1, 0);
        }
        self.buckets[at] += 1;
        self.min_ns = if self.count == 0 {
            ns
        } else {
            self.min_ns.min(ns)
        };
        self.max_ns = self.max_ns.max(ns);
        self.count += 1;
        self.sum_ns += u128::from(ns);
    }

    /// Adds all counts of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        if other.count == 0 {
            return;
        }
        if other.buckets.len() > self.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (mine, its) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += its;
        }
        let least = if self.count == 0 {
            u64::MAX
        } else {
            self.min_ns
        };
        self.min_ns = least.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.count += other.count;
        self.sum_ns += other.sum_ns;
    }

    /// Number of latencies.
    #[cfg(test)]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their mean, milliseconds; `None` if there are none.
    pub fn mean_ms(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64 / 1e6)
    }

    /// The quantile `part` (0 to 1), milliseconds, with an error of at most 0.8 %.
    pub fn quantile_ms(&self, part: f64) -> Option<f64> {
        let rank = ((part * self.count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let at = self.buckets.iter().position(|n| {
            seen += n;
            seen >= rank
        })?;
        Some(middle(at).clamp(self.min_ns, self.max_ns) as f64 / 1e6)
    }

    /// The maximum, milliseconds.
    pub fn max_ms(&self) -> Option<f64> {
        (self.count > 0).then(|| self.max_ns as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn buckets_are_narrow_and_in_order(a in 0u64..u64::MAX / 4, b in 0u64..u64::MAX / 4) {
            let (low, high) = (a.min(b), a.max(b));
            prop_assert!(bucket(low) <= bucket(high));
            let off = middle(bucket(a)).abs_diff(a) as f64;
            prop_assert!(off <= a as f64 / 64.0, "{} is in the bucket of {}", a, middle(bucket(a)));
        }

        #[test]
        fn quantiles_are_those_of_the_sorted_values(
            mut values in prop::collection::vec(0u64..10_000_000_000, 1..200), part in 0.0..1.0f64,
        ) {
            let (mut whole, mut half) = (Histogram::default(), Histogram::default());
            for (n, value) in values.iter().enumerate() {
                if n % 2 == 0 { whole.record(*value) } else { half.record(*value) }
            }
            whole.merge(&half);
            values.sort_unstable();
            let rank = ((part * values.len() as f64).ceil() as usize).max(1);
            let exact = values[rank - 1] as f64 / 1e6;
            let found = whole.quantile_ms(part).unwrap();
            prop_assert!((found - exact).abs() <= exact / 64.0 + 1e-6, "{} for {}", found, exact);
            prop_assert_eq!(whole.max_ms().unwrap(), *values.last().unwrap() as f64 / 1e6);
            prop_assert_eq!(whole.count(), values.len() as u64);
        }
    }

    #[test]
    fn nothing_has_no_quantile() {
        let none = Histogram::default();
        assert_eq!(
            (none.quantile_ms(0.5), none.mean_ms(), none.max_ms()),
            (None, None, None)
        );
    }
}
