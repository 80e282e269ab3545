//! Arrivals of requests.

use crate::random::Random;
use serde::Deserialize;

/// The distribution of arrivals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// Independent arrivals.
    Poisson,
    /// Equal distances, with a random start within the first.
    Constant,
    /// Distances uniformly distributed between 0 and twice the mean.
    Uniform,
    /// Poisson arrivals in bursts: on and off for exponentially distributed times, without arrivals
    /// while off.
    Bursty,
    /// Arrivals from a trace.
    Trace,
}

/// The load of a function.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// The distribution of arrivals.
    pub arrivals: Arrivals,
    /// Mean rate, requests per second. Unused for a trace.
    #[serde(default)]
    pub rate: f64,
    /// Mean length of a burst, milliseconds.
    #[serde(default = "second")]
    pub on_ms: f64,
    /// Mean pause between bursts, milliseconds.
    #[serde(default = "second")]
    pub off_ms: f64,
    /// Most concurrent requests, as of a load generator with that many connections: a request due
    /// while all are busy is sent when one is free, and further requests due meanwhile are not
    /// sent. 0: no limit, as from many users.
    #[serde(default)]
    pub connections: u32,
}

fn second() -> f64 {
    1000.0
}

/// Highest valid rate, requests per second.
const RATE_MAX: f64 = 1e8;

impl Load {
    /// The reason why it is invalid.
    pub fn check(&self) -> Result<(), String> {
        if !(0.0..=RATE_MAX).contains(&self.rate) {
            return Err(format!("rate is {}, must be between 0 and 1e8", self.rate));
        }
        let length = 0.001..=86_400_000.0;
        if !length.contains(&self.on_ms) || !length.contains(&self.off_ms) {
            return Err("on_ms and off_ms must be between 0.001 and a day".to_owned());
        }
        Ok(())
    }
}

/// The arrivals of one function, nanoseconds, in ascending order.
pub struct Stream {
    load: Load,
    now: f64,
    /// End of the current burst.
    on_until: f64,
    begun: bool,
    trace: std::vec::IntoIter<u64>,
}

impl Stream {
    /// Arrivals from `start_ns` on. `trace`: the arrivals of a trace, in order.
    pub fn new(load: &Load, start_ns: u64, trace: Vec<u64>) -> Stream {
        Stream {
            load: load.clone(),
            now: start_ns as f64,
            on_until: start_ns as f64,
            begun: false,
            trace: trace.into_iter(),
        }
    }

    /// The next arrival; `None`: there are no more.
    pub fn next(&mut self, random: &mut Random) -> Option<u64> {
        if self.load.arrivals == Arrivals::Trace {
            return self.trace.next();
        }
        if self.load.rate <= 0.0 {
            return None;
        }
        let mean = 1e9 / self.load.rate;
        let first = !std::mem::replace(&mut self.begun, true);
        match self.load.arrivals {
            Arrivals::Constant if first => self.now += mean * random.unit(),
            Arrivals::Constant => self.now += mean,
            Arrivals::Uniform => self.now += 2.0 * mean * random.unit(),
            Arrivals::Bursty => self.burst(random),
            _ => self.now += random.exponential(mean),
        }
        Some(self.now as u64)
    }

    fn burst(&mut self, random: &mut Random) {
        let (on, off) = (self.load.on_ms * 1e6, self.load.off_ms * 1e6);
        let mean = 1e9 / self.load.rate * on / (on + off);
        let mut gap = random.exponential(mean);
        // Time counts only during a burst; since the process is memoryless, the gap may be cut
        // anywhere.
        while self.now + gap > self.on_until {
            gap -= self.on_until - self.now;
            self.now = self.on_until + random.exponential(off);
            self.on_until = self.now + random.exponential(on);
        }
        self.now += gap;
    }
}

/// Parses the arrivals of a trace by function: lines `seconds,function` in any order; a header and
/// `#` comments are allowed. The caller rejects unknown names.
pub fn parse_trace(text: &str) -> Result<std::collections::BTreeMap<String, Vec<u64>>, String> {
    let mut arrivals: std::collections::BTreeMap<String, Vec<u64>> = Default::default();
    for (n, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |why: &str| format!("line {}: {why}: '{}'", n + 1, line.escape_debug());
        let Some((time, function)) = line.split_once(',') else {
            return Err(wrong("not 'seconds,function'"));
        };
        let seconds = match time.trim().parse::<f64>() {
            Ok(seconds) if (0.0..=1e9).contains(&seconds) => seconds,
            Err(_) if n == 0 => continue,
            _ => return Err(wrong("the time must be seconds from 0 to 1e9")),
        };
        let of_function = arrivals.entry(function.trim().to_owned()).or_default();
        of_function.push((seconds * 1e9).round() as u64);
    }
    for times in arrivals.values_mut() {
        times.sort_unstable();
    }
    Ok(arrivals)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(arrivals: Arrivals, rate: f64) -> Load {
        Load {
            arrivals,
            rate,
            on_ms: 100.0,
            off_ms: 300.0,
            connections: 0,
        }
    }

    fn arrivals(load: &Load, until_s: u64) -> Vec<u64> {
        let mut random = Random::new(3, 1);
        let mut stream = Stream::new(load, 0, Vec::new());
        let next = || stream.next(&mut random);
        let all = std::iter::from_fn(next).take_while(|t| *t < until_s * 1_000_000_000);
        all.collect()
    }

    #[test]
    fn rates_are_those_asked_for_however_arrivals_are_spread() {
        for kind in [
            Arrivals::Poisson,
            Arrivals::Constant,
            Arrivals::Uniform,
            Arrivals::Bursty,
        ] {
            let found = arrivals(&load(kind, 100.0), 2_000);
            let rate = found.len() as f64 / 2_000.0;
            assert!((rate / 100.0 - 1.0).abs() < 0.03, "{kind:?}: {rate}");
            assert!(found.is_sorted(), "{kind:?}");
        }
        assert!(arrivals(&load(Arrivals::Poisson, 0.0), 10).is_empty());
    }

    /// Variance divided by mean of the arrivals in windows: 0 for constant, 1 for Poisson.
    fn dispersion(kind: Arrivals) -> f64 {
        let found = arrivals(&load(kind, 100.0), 2_000);
        let mut windows = vec![0.0; 2_000];
        for at in found {
            windows[(at / 1_000_000_000) as usize] += 1.0;
        }
        let mean = windows.iter().sum::<f64>() / 2_000.0;
        windows.iter().map(|w| (w - mean).powi(2)).sum::<f64>() / 2_000.0 / mean
    }

    #[test]
    fn arrivals_are_as_irregular_as_their_kind() {
        assert!(dispersion(Arrivals::Constant) < 0.05);
        assert!((0.25..0.45).contains(&dispersion(Arrivals::Uniform)));
        assert!((0.85..1.15).contains(&dispersion(Arrivals::Poisson)));
        assert!(dispersion(Arrivals::Bursty) > 5.0);
    }

    #[test]
    fn a_trace_is_read_line_by_line() {
        let text = "time_s,function\n0.5,a\n# later\n0.25, b\n\n0.1,a\n";
        let trace = parse_trace(text).unwrap();
        assert_eq!(trace["a"], [100_000_000, 500_000_000]);
        assert_eq!(trace["b"], [250_000_000]);
        for (text, wrong) in [
            ("0.1,a\n0.2", "line 2: not 'seconds,function'"),
            ("0.1,a\nx,a", "line 2: the time"),
            ("-1,a", "line 1: the time"),
        ] {
            let error = parse_trace(text).unwrap_err();
            assert!(error.contains(wrong), "{error}");
        }
    }
}
