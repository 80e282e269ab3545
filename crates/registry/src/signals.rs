//! Autoscaling signals: the desired number of replicas of a function.
//!
//! Uses the horizontal autoscaler's formula for two signals. With `n` replicas, each signal
//! requires `n × measured ÷ target`, rounded up; the maximum applies. Within the tolerance of the
//! target nothing changes, so that noise does not start and stop replicas.
//!
//! - **Utilization**: utilization of the function's devices, percent, mean over its replicas. All
//!   load on the devices counts: a replica on a device that is busy with other work needs a second
//!   device as much as one that fills the device itself.
//! - **Queue wait**: mean time that a task of the function waits for the device. Utilization
//!   saturates at 100 %; waiting does not.
//!
//! The desired number of an idle function is `replicas_min`, which may be 0; the caller decides
//! whether it is idle.

use serde::{Deserialize, Serialize};

/// Targets of scaling, from the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Targets {
    /// Target utilization of a function's devices, percent.
    pub utilization: f64,
    /// Target wait of its tasks for the device, milliseconds.
    pub queue_wait_ms: f64,
    /// Relative deviation from the target within which nothing changes.
    pub tolerance: f64,
    /// Minimum number of replicas.
    pub replicas_min: u32,
    /// Maximum number of replicas.
    pub replicas_max: u32,
}

impl Default for Targets {
    fn default() -> Targets {
        Targets {
            utilization: 70.0,
            queue_wait_ms: 20.0,
            tolerance: 0.1,
            replicas_min: 1,
            replicas_max: 64,
        }
    }
}

impl Targets {
    /// Checks the configured values.
    ///
    /// # Errors
    /// The invalid value and the reason, for the operator.
    pub fn check(&self) -> Result<(), String> {
        if !(self.utilization > 0.0 && self.utilization <= 100.0) {
            return Err(format!(
                "utilization is {}, must be above 0 and at most 100 (percent)",
                self.utilization
            ));
        }
        if !(self.queue_wait_ms > 0.0 && self.queue_wait_ms.is_finite()) {
            return Err(format!(
                "queue_wait_ms is {}, must be above 0",
                self.queue_wait_ms
            ));
        }
        if !(0.0..1.0).contains(&self.tolerance) {
            return Err(format!(
                "tolerance is {}, must be at least 0 and below 1",
                self.tolerance
            ));
        }
        if self.replicas_min > self.replicas_max || self.replicas_max == 0 {
            return Err(format!(
                "replicas_min is {} and replicas_max {}: must be in order, and not both 0",
                self.replicas_min, self.replicas_max
            ));
        }
        Ok(())
    }
}

/// Measurements of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Current number of replicas.
    pub replicas: u32,
    /// Utilization, percent; `None`: unknown.
    pub utilization: Option<f64>,
    /// Queue wait, milliseconds; `None`: unknown.
    pub queue_wait_ms: Option<f64>,
    /// Whether it has had no call for the idle time of replicas.
    pub idle: bool,
}

/// The deciding signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// Utilization of the devices.
    Utilization,
    /// Waiting time for the device.
    QueueWait,
    /// The function is not called.
    Idle,
    /// No signal: within tolerance, or no values.
    Steady,
}

/// The desired number of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Desired {
    /// Number of replicas.
    pub replicas: u32,
    /// The deciding signal.
    pub signal: Signal,
    /// The deciding signal's measured value divided by its target; 1 if no signal decides.
    pub ratio: f64,
}

/// Computes the desired number of replicas.
pub fn desired(measured: &Measured, targets: &Targets) -> Desired {
    let bounded = |n: u32| n.clamp(targets.replicas_min, targets.replicas_max);
    if measured.idle {
        return Desired {
            replicas: targets.replicas_min,
            signal: Signal::Idle,
            ratio: 0.0,
        };
    }
    let ratio = |value: Option<f64>, target: f64| {
        let value = value.filter(|v| v.is_finite() && *v >= 0.0)?;
        Some(value / target)
    };
    // `max_by` takes the last of equals: utilization.
    let signals = [
        (
            Signal::QueueWait,
            ratio(measured.queue_wait_ms, targets.queue_wait_ms),
        ),
        (
            Signal::Utilization,
            ratio(measured.utilization, targets.utilization),
        ),
    ];
    let known = signals.into_iter().filter_map(|(s, r)| Some((s, r?)));
    let strongest = known.max_by(|a, b| a.1.total_cmp(&b.1));
    // A called function needs at least one replica, whatever is measured.
    let current = measured.replicas.max(1);
    match strongest {
        // A short wait shows only that there is room, not that the devices idle: alone, it removes
        // no replica.
        Some((signal, ratio))
            if (ratio - 1.0).abs() > targets.tolerance
                && (ratio > 1.0 || measured.utilization.is_some()) =>
        {
            // A product just above an integer because of rounding does not require one more.
            let wanted = (f64::from(current) * ratio - 1e-9).ceil().max(1.0);
            Desired {
                replicas: bounded(wanted.min(f64::from(u32::MAX)) as u32),
                signal,
                ratio,
            }
        }
        _ => Desired {
            replicas: bounded(current),
            signal: Signal::Steady,
            ratio: 1.0,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn measured(replicas: u32, utilization: f64, queue_wait_ms: f64) -> Measured {
        Measured {
            replicas,
            utilization: Some(utilization),
            queue_wait_ms: Some(queue_wait_ms),
            idle: false,
        }
    }

    #[test]
    fn the_greater_signal_decides() {
        let targets = Targets::default();
        for (now, replicas, signal) in [
            (measured(2, 70.0, 0.0), 2, Signal::Steady),
            (measured(2, 76.0, 0.0), 2, Signal::Steady),
            (measured(2, 100.0, 0.0), 3, Signal::Utilization),
            (measured(2, 100.0, 80.0), 8, Signal::QueueWait),
            (measured(4, 35.0, 1.0), 2, Signal::Utilization),
            (measured(0, 0.0, 0.0), 1, Signal::Utilization),
            (measured(60, 100.0, 2000.0), 64, Signal::QueueWait),
        ] {
            let desired = desired(&now, &targets);
            assert_eq!(
                (desired.replicas, desired.signal),
                (replicas, signal),
                "{now:?}"
            );
        }
    }

    #[test]
    fn nothing_known_changes_nothing_and_idle_goes_to_the_least() {
        let targets = Targets {
            replicas_min: 0,
            ..Targets::default()
        };
        let unknown = Measured {
            replicas: 3,
            ..Measured::default()
        };
        assert_eq!(desired(&unknown, &targets).replicas, 3);
        let waits_little = Measured {
            queue_wait_ms: Some(0.0),
            ..unknown
        };
        assert_eq!(desired(&waits_little, &targets).replicas, 3);
        let idle = Measured {
            idle: true,
            ..unknown
        };
        assert_eq!(desired(&idle, &targets).replicas, 0);
    }

    #[test]
    fn wrong_targets_are_refused() {
        let good = Targets::default();
        assert!(good.check().is_ok());
        for bad in [
            Targets {
                utilization: 0.0,
                ..good
            },
            Targets {
                utilization: f64::NAN,
                ..good
            },
            Targets {
                queue_wait_ms: 0.0,
                ..good
            },
            Targets {
                tolerance: 1.0,
                ..good
            },
            Targets {
                replicas_min: 9,
                replicas_max: 3,
                ..good
            },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn more_load_never_wants_fewer(
            n in 0u32..100, u in 0.0..100.0f64, more in 0.0..50.0f64, wait in 0.0..100.0f64,
        ) {
            let targets = Targets { tolerance: 0.0, ..Targets::default() };
            let less = desired(&measured(n, u, wait), &targets);
            let busier = desired(&measured(n, u + more, wait + more), &targets);
            prop_assert!(busier.replicas >= less.replicas);
        }

        #[test]
        fn what_is_wanted_meets_the_target(n in 1u32..60, u in 1.0..100.0f64) {
            let targets = Targets { replicas_max: u32::MAX, tolerance: 0.0, ..Targets::default() };
            let wanted = desired(&measured(n, u, 0.0), &targets).replicas;
            // The load per replica is within the target with the desired number, and exceeds it
            // with one fewer.
            let spread = |m: u32| u * f64::from(n) / f64::from(m);
            prop_assert!(spread(wanted) <= targets.utilization + 1e-6);
            if wanted > 1 {
                prop_assert!(spread(wanted - 1) > targets.utilization - 1e-6);
            }
        }
    }
}
