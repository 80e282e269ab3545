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
    /// Time for which an image of preemptible sessions keeps the device while others wait, if its
    /// work needs this number of turns at once.
    pub fn turn(&self, turns: u32) -> Duration {
        Duration::from_millis(self.turn_ms).saturating_mul(turns)
    }

    /// Minimum time for which such an image keeps the device, see [`DeviceOptions::turn_min_ms`].
    pub fn turn_min(&self) -> Duration {
        Duration::from_millis(self.turn_min_ms)
    }

    /// Longest time for which such an image waits, see [`DeviceOptions::turn_wait_ms`].
    pub fn turn_wait(&self) -> Option<Duration> {
        (self.turn_wait_ms > 0).then(|| Duration::from_millis(self.turn_wait_ms))
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

/// An image that waits for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The time that it had waited when the present turn began, without loads.
    pub before: Duration,
    /// Time from the begin of the present turn to its request; 0: it was requested before.
    pub since: Duration,
}

/// The longest time that the present turn may take, so that no image waits longer than `most`.
/// `waiting` has the next image first. The image at position `k` waits for `k` turns, the present
/// one included, and each of them may take an equal part of the time that the image has left.
pub fn turn_max(most: Duration, waiting: impl IntoIterator<Item = Waiting>) -> Duration {
    let ends = waiting.into_iter().zip(1..).map(|(image, position)| {
        let left = most.saturating_sub(image.before);
        image.since + left / position
    });
    ends.min().unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// The longest wait of an image if each turn takes as long as it may. Images are requested in
    /// the middle of the first turns, as many as `arrivals` has for each.
    fn longest_wait(most: Duration, arrivals: &[usize]) -> Duration {
        // The times of their requests.
        let mut queue: VecDeque<Duration> = VecDeque::from([Duration::ZERO]);
        let (mut now, mut longest) = (Duration::ZERO, Duration::ZERO);
        let mut arrivals = arrivals.iter();
        while !queue.is_empty() {
            let begun = now;
            let waiting = |queue: &VecDeque<Duration>| {
                let one = |at: &Duration| Waiting {
                    before: begun.saturating_sub(*at),
                    since: at.saturating_sub(begun),
                };
                queue.iter().map(one).collect::<Vec<_>>()
            };
            let middle = begun + turn_max(most, waiting(&queue)) / 2;
            let new = arrivals.next().copied().unwrap_or(0);
            queue.extend(std::iter::repeat_n(middle, new));
            now = begun + turn_max(most, waiting(&queue));
            assert!(now >= middle);
            longest = longest.max(now - queue.pop_front().expect("not empty"));
        }
        longest
    }

    #[test]
    fn no_image_waits_longer_than_it_may() {
        let most = Duration::from_millis(1_200);
        for arrivals in [
            vec![],
            vec![1],
            vec![3],
            vec![20],
            vec![1; 50],
            vec![2; 30],
            vec![0, 5, 0, 0, 7, 1, 1],
        ] {
            let longest = longest_wait(most, &arrivals);
            assert!(longest <= most, "{arrivals:?}: {longest:?}");
            assert!(longest > most / 2, "{arrivals:?}: {longest:?}");
        }
        assert_eq!(turn_max(most, []), Duration::MAX);
    }

    #[test]
    fn work_gets_as_many_turns_as_it_needs() {
        let options = DeviceOptions {
            turn_ms: 400,
            ..DeviceOptions::default()
        };
        assert_eq!(options.turn(1), Duration::from_millis(400));
        assert_eq!(options.turn(4), Duration::from_millis(1_600));
        assert!(options.turn_wait().is_some());
    }
}
