//! The time for which an image keeps a device that holds one image at a time.

use super::{invalid, DeviceOptions, Invalid};
use baltra_eviction::Options;
use std::time::Duration;

/// The longest turn of an image, milliseconds.
const TURN_MS_MAX: u64 = 600_000;
/// The longest wait for a turn, milliseconds.
const TURN_WAIT_MS_MAX: u64 = 3_600_000;
/// Longest time limit for loading an image, milliseconds.
const LOAD_MS_MAX: u64 = 600_000;

impl DeviceOptions {
    /// The options of the turns of images that preemptible sessions use.
    pub fn turns(&self) -> Options {
        let set = |ms: u64| (ms > 0).then(|| Duration::from_millis(ms));
        Options {
            turn: set(self.turn_ms),
            turn_min: Duration::from_millis(self.turn_min_ms),
            wait: set(self.turn_wait_ms),
        }
    }

    /// Time limit for the driver to load an image.
    pub fn load(&self) -> Duration {
        Duration::from_millis(self.load_ms)
    }

    /// Checks the options of turns and loads; `key` is an option's name in the configuration.
    pub(super) fn validate_turns(&self, key: &impl Fn(&str) -> String) -> Result<(), Invalid> {
        for (name, value, most) in [
            ("turn_ms", self.turn_ms, TURN_MS_MAX),
            ("turn_min_ms", self.turn_min_ms, TURN_MS_MAX),
            ("turn_wait_ms", self.turn_wait_ms, TURN_WAIT_MS_MAX),
        ] {
            if value > most {
                return Err(invalid(key(name), format!("must be at most {most}")));
            }
        }
        if self.turn_ms > 0 && self.turn_min_ms > self.turn_ms {
            return Err(invalid(key("turn_min_ms"), "must be at most 'turn_ms'"));
        }
        if !(1..=LOAD_MS_MAX).contains(&self.load_ms) {
            let problem = format!("must lie between 1 and {LOAD_MS_MAX}");
            return Err(invalid(key("load_ms"), problem));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_without_a_length_is_automatic() {
        let options = DeviceOptions::default();
        options.validate_turns(&str::to_owned).unwrap();
        assert_eq!(options.turns().turn, None);
        assert!(options.turns().wait.is_some());
        let least = DeviceOptions {
            turn_min_ms: 5_000,
            ..DeviceOptions::default()
        };
        least.validate_turns(&str::to_owned).unwrap();
        let fixed = DeviceOptions {
            turn_ms: 400,
            ..least
        };
        let turn = fixed.turns().turn;
        assert_eq!(turn, Some(Duration::from_millis(400)));
        assert!(fixed.validate_turns(&str::to_owned).is_err());
    }
}
