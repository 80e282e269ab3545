//! The length of a turn: the time for which an image keeps a device while others wait.

use std::time::Duration;

/// Least length of an automatic turn: within it, a function's session starts and its calls run.
pub const TURN_MIN: Duration = Duration::from_secs(1);

/// The operator's options of a device's turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Length of every turn; `None`: from the measured loads and the demand.
    pub turn: Option<Duration>,
    /// Least time for which an image keeps the device, also without work. An automatic turn keeps
    /// it longer if loads would take more than a tenth of the time, half on
    /// a device that is hardly used.
    pub turn_min: Duration,
    /// Longest time for which an image waits, loads excluded; `None`: no limit.
    pub wait: Option<Duration>,
}

/// The time for which an image keeps its device while others wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// With work.
    pub length: Duration,
    /// Without work, from now on, if `length` has not passed before.
    pub rest: Duration,
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
    use proptest::prelude::*;
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

    proptest! {
        #[test]
        fn the_bound_holds_for_any_arrivals(
            arrivals in prop::collection::vec(0usize..8, 0..40), most_ms in 1u64..100_000,
        ) {
            let most = Duration::from_millis(most_ms);
            prop_assert!(longest_wait(most, &arrivals) <= most);
        }
    }
}
