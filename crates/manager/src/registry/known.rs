//! What the registry wants of each device, as it said last.

use baltra_registry::proto;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What the registry wants of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orders {
    /// It takes no new instances.
    pub cordoned: bool,
    /// Its instances are being moved elsewhere.
    pub draining: bool,
    /// To whom it is allocated.
    pub instances: BTreeSet<String>,
}

/// What the registry wants of every device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// By device; empty: the registry was never heard.
    pub devices: BTreeMap<String, Orders>,
}

impl From<Vec<proto::DeviceOrders>> for Known {
    fn from(orders: Vec<proto::DeviceOrders>) -> Known {
        let one = |o: proto::DeviceOrders| {
            let orders = Orders {
                cordoned: o.cordoned,
                draining: o.draining,
                instances: o.instances.into_iter().collect(),
            };
            (o.device, orders)
        };
        Known {
            devices: orders.into_iter().map(one).collect(),
        }
    }
}

impl Known {
    /// Whether a device is allocated to an instance.
    pub fn is_allocated(&self, device: &str, instance: &str) -> bool {
        let orders = self.devices.get(device);
        orders.is_some_and(|o| o.instances.contains(instance))
    }

    /// Why a device takes no session of an instance (`None`: of a program that is none), if it
    /// does not.
    pub fn refusal(&self, device: &str, instance: Option<&str>) -> Option<&'static str> {
        let orders = self.devices.get(device)?;
        if instance.is_some_and(|name| orders.instances.contains(name)) {
            return None;
        }
        match (orders.draining, orders.cordoned) {
            (true, _) => Some("is being drained: ask the registry for another one (`baltra run --device QUERY`)"),
            (_, true) => Some("is cordoned and takes nobody new: ask the registry for another one (`baltra run --device QUERY`)"),
            (false, false) => None,
        }
    }

    /// Instances that had a device that is being drained and have it no more, compared with what
    /// was known `before`.
    pub fn moved(&self, before: &Known) -> Vec<(String, String)> {
        let mut moved = Vec::new();
        for (device, orders) in self.devices.iter().filter(|(_, o)| o.draining) {
            let Some(had) = before.devices.get(device) else {
                continue;
            };
            let gone = had.instances.difference(&orders.instances);
            moved.extend(gone.map(|instance| (device.clone(), instance.clone())));
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(draining: bool, cordoned: bool, instances: &[&str]) -> Known {
        let orders = proto::DeviceOrders {
            device: "a".into(),
            cordoned,
            draining,
            instances: instances.iter().map(|i| i.to_string()).collect(),
        };
        Known::from(vec![orders])
    }

    #[test]
    fn test_a_cordoned_device_keeps_those_it_has_and_takes_nobody_new() {
        let known = known(false, true, &["x"]);
        assert_eq!(known.refusal("a", Some("x")), None);
        assert!(known.refusal("a", Some("y")).unwrap().contains("cordoned"));
        assert!(known.refusal("a", None).is_some());
        // Of a device that the registry has said nothing of, nothing is refused.
        assert_eq!(known.refusal("b", None), None);
        assert_eq!(Known::default().refusal("a", None), None);
    }

    #[test]
    fn test_only_a_drained_device_s_instances_move() {
        let before = known(false, false, &["x", "y"]);
        assert!(known(false, false, &["x"]).moved(&before).is_empty());
        let moved = known(true, true, &["x"]).moved(&before);
        assert_eq!(moved, [("a".to_owned(), "y".to_owned())]);
        assert!(known(true, true, &["x"])
            .moved(&Known::default())
            .is_empty());
    }

    #[test]
    fn test_an_allocation_is_of_one_device() {
        let known = known(false, false, &["x"]);
        assert!(known.is_allocated("a", "x"));
        assert!(!known.is_allocated("b", "x") && !known.is_allocated("a", "y"));
    }
}
