//! The time for which an image keeps a device that holds one image at a time.

use super::{invalid, DeviceOptions, Invalid};
use std::time::Duration;

/// The longest turn of an image, milliseconds.
const TURN_MS_MAX: u64 = 600_000;
/// The longest wait for a turn, milliseconds.
const TURN_WAIT_MS_MAX: u64 = 3_600_000;
/// Longest time limit for loading an image, milliseconds.
const LOAD_MS_MAX: u64 = 600_000;

impl DeviceOptions {
    /// How long an image of preemptible sessions keeps the device while `waiting` images wait, if
    /// its work needs this number of turns at once.
    pub fn turn(&self, waiting: usize, turns: u32) -> Duration {
        let turns = Duration::from_millis(self.turn_ms).saturating_mul(turns);
        turns.min(self.turn_max(waiting))
    }

    /// Minimum time for which such an image keeps the device, see [`DeviceOptions::turn_min_ms`].
    pub fn turn_min(&self, waiting: usize) -> Duration {
        Duration::from_millis(self.turn_min_ms).min(self.turn_max(waiting))
    }

    /// The turn with which the last of the waiting images waits as long as it may.
    fn turn_max(&self, waiting: usize) -> Duration {
        match self.turn_wait_ms {
            0 => Duration::MAX,
            ms => Duration::from_millis(ms) / u32::try_from(waiting.max(1)).unwrap_or(u32::MAX),
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
            ("turn_wait_ms", self.turn_wait_ms, TURN_WAIT_MS_MAX),
        ] {
            if value > most {
                return Err(invalid(key(name), format!("must be at most {most}")));
            }
        }
        if self.turn_min_ms > self.turn_ms {
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
    fn turns_are_shortened_until_the_last_image_waits_no_longer_than_it_may() {
        let ms = Duration::from_millis;
        let mut options = DeviceOptions {
            turn_ms: 400,
            turn_min_ms: 270,
            ..DeviceOptions::default()
        };
        assert_eq!(
            (options.turn(9, 1), options.turn_min(9)),
            (ms(400), ms(270))
        );
        options.turn_wait_ms = 1_200;
        assert_eq!(
            (options.turn(0, 1), options.turn_min(0)),
            (ms(400), ms(270))
        );
        assert_eq!(
            (options.turn(3, 1), options.turn_min(3)),
            (ms(400), ms(270))
        );
        assert_eq!(
            (options.turn(4, 1), options.turn_min(4)),
            (ms(300), ms(270))
        );
        for waiting in 1..100 {
            let wait = options.turn(waiting, 1) * waiting as u32;
            assert!(wait <= ms(1_200), "{waiting} images wait for {wait:?}");
            assert_eq!(options.turn(waiting, 1024), ms(1_200) / waiting as u32);
        }
    }
}
