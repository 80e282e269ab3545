//! The clock of a driver's event times.
//!
//! It drifts against the host's: an H200's by up to 0.6 µs a second
//! (`bench/results/opencl/2026-11-30-clock-h200.md`). Each profiled command shows a range of its
//! distance: the command was enqueued after the host's time before the call, and ended before the
//! host saw its end. The measured distance moves only as far as these ranges require, so that times
//! of commands are rarely shifted against each other. (Marzullo and Owicki, "Maintaining the time
//! in a distributed system", 1983, combine such ranges.)

use std::sync::atomic::{AtomicI64, Ordering};

use baltra_opencl::CL_QUEUE_PROFILING_ENABLE;
use baltra_ring::lease::monotonic_ns;

use super::{Context, Device};

/// A driver's clock, compared with `CLOCK_MONOTONIC`.
pub struct Clock {
    /// Nanoseconds to add to `CLOCK_MONOTONIC` for the driver's time.
    offset_ns: AtomicI64,
}

impl Clock {
    /// Of a device's driver. If it has no times, its clock is taken for the host's.
    pub fn of(context: &Context, device: Device) -> Clock {
        Clock::at(measure_ns(context, device).unwrap_or(0))
    }

    fn at(offset_ns: i64) -> Clock {
        Clock {
            offset_ns: offset_ns.into(),
        }
    }

    /// Nanoseconds to add to `CLOCK_MONOTONIC` for the driver's time.
    pub fn offset_ns(&self) -> i64 {
        self.offset_ns.load(Ordering::Relaxed)
    }

    /// Takes the times of a command that was enqueued after `before_ns` and whose end was seen
    /// before `after_ns`, times of `CLOCK_MONOTONIC`: queued, submitted, started and ended, 0 for
    /// each that the driver does not report.
    pub fn follow(&self, before_ns: u64, times_ns: [u64; 4], after_ns: u64) {
        let [queued, .., ended] = times_ns;
        let mut offset = self.offset_ns();
        if queued != 0 {
            offset = offset.min(queued.wrapping_sub(before_ns) as i64);
        }
        if ended != 0 {
            offset = offset.max(ended.wrapping_sub(after_ns) as i64);
        }
        self.offset_ns.store(offset, Ordering::Relaxed);
    }
}

/// Measurements of the first distance: at least a few, and more while none is tight, because other
/// load has interrupted them. An error is corrected while commands run, which shifts their times
/// against each other.
const MEASURED_MIN: usize = 8;
const MEASURED_MAX: usize = 64;
const TIGHT_NS: u64 = 20_000;

/// Brackets a marker's end time between two readings of the host's clock; the tightest of several.
fn measure_ns(context: &Context, device: Device) -> Option<i64> {
    let queue = context
        .queue(device, CL_QUEUE_PROFILING_ENABLE as u64)
        .ok()?;
    let measured = || {
        let before = monotonic_ns();
        let marker = queue.marker(&[], true).ok()??;
        queue.finish().ok()?;
        let after = monotonic_ns();
        let [.., ended] = marker.times();
        let middle = before + (after - before) / 2;
        (ended != 0).then(|| (after - before, ended.wrapping_sub(middle) as i64))
    };
    let mut tightest = (0..MEASURED_MIN).filter_map(|_| measured()).min()?;
    for _ in MEASURED_MIN..MEASURED_MAX {
        if tightest.0 <= TIGHT_NS {
            break;
        }
        tightest = measured().map_or(tightest, |again| tightest.min(again));
    }
    Some(tightest.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times of a command that a driver with this offset queued and ended at these host times.
    fn times(offset_ns: i64, queued: u64, ended: u64) -> [u64; 4] {
        let by_driver = |ns: u64| ns.wrapping_add_signed(offset_ns);
        [queued, queued, queued, ended].map(by_driver)
    }

    #[test]
    fn a_distance_within_the_range_stays() {
        let clock = Clock::at(-500);
        clock.follow(10_000, times(-480, 10_100, 12_000), 12_100);
        assert_eq!(clock.offset_ns(), -500);
    }

    #[test]
    fn no_command_ends_after_it_was_seen_nor_is_queued_before_its_call() {
        let clock = Clock::at(0);
        for drift in [3_000, 7_000, -2_000, -900_000, 5_000_000] {
            let times = times(drift, 1_000_100, 1_020_000);
            clock.follow(1_000_000, times, 1_020_200);
            let by_host = times.map(|ns| ns.wrapping_add_signed(-clock.offset_ns()));
            assert!(by_host[0] >= 1_000_000, "drift {drift}: {by_host:?}");
            assert!(by_host[3] <= 1_020_200, "drift {drift}: {by_host:?}");
        }
    }

    #[test]
    fn a_clock_that_drifts_for_hours_is_followed() {
        let clock = Clock::at(0);
        for second in 1..10_000 {
            let (host, drift) = (second * 1_000_000_000, second as i64 * 600);
            clock.follow(
                host,
                times(drift, host + 2_000, host + 14_000),
                host + 18_000,
            );
            assert!(
                (clock.offset_ns() - drift).abs() <= 4_000,
                "second {second}"
            );
        }
    }

    #[test]
    fn times_that_the_driver_lacks_change_nothing() {
        let clock = Clock::at(77);
        clock.follow(1_000, [0; 4], 2_000);
        assert_eq!(clock.offset_ns(), 77);
    }
}
