//! Instances whose sessions move to another device. None of it is stored.

use crate::model::DeviceId;
use std::collections::BTreeMap;
use std::time::Duration;

/// Sessions move within this, or their program is started again.
const MOVE_MAX: Duration = Duration::from_secs(120);

/// An instance whose sessions move to another device of their node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// The instance.
    pub instance: String,
    /// The device that it leaves.
    pub from: DeviceId,
    /// The planned device.
    pub to: DeviceId,
    /// When it is given up, by the lease clock.
    pub until: Duration,
    /// The orders, by session.
    pub orders: BTreeMap<u64, String>,
    /// The heartbeat that first reported no session of the instance on either device.
    pub absent: Option<Duration>,
}

/// The instances whose sessions move.
#[derive(Clone, Debug, Default)]
pub struct Relocations {
    /// By instance.
    pub moving: BTreeMap<String, Relocation>,
    /// When the moves of instances were given up that may still be on their devices.
    pub given_up: BTreeMap<String, Duration>,
}

impl Relocations {
    /// Begins to move an instance's sessions, unless they are being moved.
    pub fn begin(&mut self, instance: &str, from: &str, to: &str, now: Duration) {
        if self.moving.contains_key(instance) {
            return;
        }
        let relocation = Relocation {
            instance: instance.to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
            until: now + MOVE_MAX,
            orders: BTreeMap::new(),
            absent: None,
        };
        tracing::info!(instance, from, to, "its sessions move");
        self.moving.insert(instance.to_owned(), relocation);
    }
}
