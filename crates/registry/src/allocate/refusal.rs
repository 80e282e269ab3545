//! Refusals: for every device, the filter that rejected it and the values.

use crate::model::{Accelerator, DeviceId, DeviceState};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Why a device was rejected: the first reason, in the algorithm's order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It does not accept instances.
    State(DeviceState),
    /// A metric is outside its configured bounds.
    Metric {
        /// The metric's name.
        metric: String,
        /// Its value; `None`: not reported, which counts as 0.
        value: Option<f64>,
        /// The minimum, if the value is below it.
        min: Option<f64>,
        /// The maximum, if the value is above it.
        max: Option<f64>,
    },
    /// The instance is being moved away from it.
    Excepted,
    /// It was allocated to the same instance already.
    Taken,
    /// A fixed property does not match the query.
    Query {
        /// The field, or `label.KEY`.
        field: String,
        /// The pattern.
        wanted: String,
        /// The device's value.
        found: String,
    },
    /// The accelerator is built for other hardware.
    Target {
        /// Its target.
        wanted: String,
        /// The device's model.
        found: String,
    },
    /// Its node's store lacks the accelerator, and the instance brings no image.
    NotStored,
    /// The device shares, and does not hold the accelerator; no store has an accelerator of that
    /// name that is built for the device.
    Unknown,
    /// It is on another node than the required one.
    Node {
        /// The required node.
        wanted: String,
        /// The device's node.
        found: String,
    },
    /// Too little of its memory is unreserved.
    Memory {
        /// Bytes to reserve.
        wanted: u64,
        /// Unreserved bytes.
        free: u64,
        /// Its memory, bytes; 0 if not reported.
        all: u64,
    },
    /// It cannot be presented as one with the devices allocated already.
    Unlike,
    /// It holds another accelerator, and the load on that fits nowhere else.
    Redistribution {
        /// The region that comes closest.
        region: usize,
        /// The accelerator that would be replaced.
        accelerator: Accelerator,
        /// Utilization of the region, percent of a device.
        needed: f64,
        /// Free time of all other places with that accelerator, percent of a device.
        free: f64,
    },
    /// It has no region for the accelerator.
    NoRegion,
    /// It matches, but all devices must be on one node, and its node has too few.
    NodeShort {
        /// Number of matching devices on the node.
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
            Reason::Target { wanted, found } => {
                write!(f, "the accelerator is built for '{wanted}', not for '{found}'")
            }
            Reason::NotStored => f.write_str(
                "its node has no image of the accelerator: add one with `baltra accelerator push`",
            ),
            Reason::Unknown => f.write_str(
                "it is shared and does not hold the accelerator, and no stored accelerator of that \
                 name has it as its target",
            ),
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

/// The rejection of one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rejection {
    /// The device.
    pub device: DeviceId,
    /// The reason.
    pub reason: Reason,
}

/// A request that cannot be allocated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// The query, as text.
    pub query: String,
    /// Number of requested devices.
    pub requested: u32,
    /// Number of devices that could have been allocated.
    pub found: u32,
    /// All devices, by id, except those that could have been allocated.
    pub devices: Vec<Rejection>,
}

/// Most devices that a message names.
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
