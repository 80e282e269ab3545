//! Why an instance got no device: of every device, which filter it failed and by what number.

use crate::model::{Accelerator, DeviceId, DeviceState};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Why a device was rejected: the first reason, in the algorithm's order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It takes no instances.
    State(DeviceState),
    /// A metric is outside its configured bounds.
    Metric {
        /// Which.
        metric: String,
        /// Its value; `None`: not reported, which counts as 0.
        value: Option<f64>,
        /// The least allowed, if it is below.
        min: Option<f64>,
        /// The greatest allowed, if it is above.
        max: Option<f64>,
    },
    /// The instance is being moved away from it.
    Excepted,
    /// The same instance was given it already.
    Taken,
    /// A term of the query about what cannot change.
    Query {
        /// Which field, or `label.KEY`.
        field: String,
        /// The pattern.
        wanted: String,
        /// The device's value.
        found: String,
    },
    /// It is on another node than the instance must be.
    Node {
        /// The instance's.
        wanted: String,
        /// The device's.
        found: String,
    },
    /// Too little of its memory is unreserved.
    Memory {
        /// Bytes to be promised.
        wanted: u64,
        /// Unreserved bytes.
        free: u64,
        /// Its memory, bytes; 0 if not reported.
        all: u64,
    },
    /// It cannot be offered as one with those given already.
    Unlike,
    /// Another accelerator is loaded and the work on it fits nowhere else.
    Redistribution {
        /// The region that comes nearest.
        region: usize,
        /// What would be lost.
        accelerator: Accelerator,
        /// Percent of a device that the region uses.
        needed: f64,
        /// Percent of a device that all other places with that accelerator have free.
        free: f64,
    },
    /// It has no region to load anything into.
    NoRegion,
    /// It would do, but all devices must be on one node and its node has too few.
    NodeShort {
        /// How many the node could give.
        found: u32,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::State(DeviceState::Ready) => f.write_str("ready"),
            Reason::State(DeviceState::Cordoned) => f.write_str("cordoned: it accepts no instances"),
            Reason::State(DeviceState::Draining) => f.write_str("draining: it accepts no instances"),
            Reason::State(DeviceState::Lost) => f.write_str("lost: its manager sends no heartbeats"),
            Reason::Metric {
                metric,
                value,
                min,
                max,
            } => {
                write!(f, "{metric} is {}", value.unwrap_or(0.0))?;
                if value.is_none() {
                    f.write_str(" (not reported)")?;
                }
                if let Some(min) = min {
                    write!(f, ", below the least allowed, {min}")?;
                }
                if let Some(max) = max {
                    write!(f, ", above the greatest allowed, {max}")?;
                }
                Ok(())
            }
            Reason::Excepted => f.write_str("the instance is moved away from it"),
            Reason::Taken => f.write_str("already allocated to this instance"),
            Reason::Query {
                field,
                wanted,
                found,
            } => write!(f, "{field} is '{found}', not '{wanted}'"),
            Reason::Node { wanted, found } => {
                write!(f, "it is on node '{found}', the instance on '{wanted}'")
            }
            Reason::Memory { wanted, free, all } => write!(
                f,
                "{free} of its {all} bytes of memory are unallocated, fewer than {wanted}"
            ),
            Reason::Unlike => f.write_str("it differs from the devices already allocated"),
            Reason::Redistribution {
                region,
                accelerator,
                needed,
                free,
            } => write!(
                f,
                "it holds '{}' (region {region}), whose load is {needed:.1} % of it, and the other regions \
                 that hold it have {free:.1} % free",
                accelerator.name
            ),
            Reason::NodeShort { found } => {
                write!(f, "its node has only {found}")
            }
            Reason::NoRegion => f.write_str("it has no region for an accelerator"),
        }
    }
}

/// One device's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rejection {
    /// Which device.
    pub device: DeviceId,
    /// The reason.
    pub reason: Reason,
}

/// No device for an instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// The query, as text.
    pub query: String,
    /// Number of requested devices.
    pub requested: u32,
    /// How many could have been given.
    pub found: u32,
    /// Every device that there is, by id, but for those that could have been given.
    pub devices: Vec<Rejection>,
}

/// How many devices a message names.
const NAMED_MAX: usize = 5;

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let query = match self.query.as_str() {
            "" => "any",
            query => query,
        };
        match self.requested {
            0 | 1 => write!(f, "no device for '{query}'")?,
            n => write!(f, "{} of {n} devices for '{query}'", self.found)?,
        }
        if self.devices.is_empty() && self.found == 0 {
            return f.write_str(": no device is registered");
        }
        for (n, rejection) in self.devices.iter().take(NAMED_MAX).enumerate() {
            let before = if n == 0 { ": " } else { "; " };
            write!(f, "{before}{}: {}", rejection.device, rejection.reason)?;
        }
        match self.devices.len().saturating_sub(NAMED_MAX) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl std::error::Error for Refusal {}
