//! The registry's last orders for each device.

use baltra_api::registry as proto;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The registry's orders for one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orders {
    /// Whether it accepts no new instances.
    pub cordoned: bool,
    /// Whether its instances are being moved.
    pub draining: bool,
    /// The instances to which it is allocated.
    pub instances: BTreeSet<String>,
    /// The tenants of those instances, if allocated by a tenant.
    #[serde(default)]
    pub tenants: BTreeMap<String, String>,
}

impl Orders {
    /// Whether the device is allocated to an instance of this tenant.
    fn is_allocated(&self, instance: &str, tenant: &str) -> bool {
        let owner = self.tenants.get(instance);
        self.instances.contains(instance) && owner.is_none_or(|owner| owner == tenant)
    }
}

/// The registry's orders for all devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeOrders {
    /// Orders by device; empty: no orders have been received yet.
    pub devices: BTreeMap<String, Orders>,
}

impl From<Vec<proto::DeviceOrders>> for NodeOrders {
    fn from(orders: Vec<proto::DeviceOrders>) -> NodeOrders {
        let one = |o: proto::DeviceOrders| {
            let orders = Orders {
                cordoned: o.cordoned,
                draining: o.draining,
                instances: o.instances.into_iter().collect(),
                tenants: o.tenants.into_iter().collect(),
            };
            (o.device, orders)
        };
        NodeOrders {
            devices: orders.into_iter().map(one).collect(),
        }
    }
}

impl NodeOrders {
    /// Whether a device is allocated to a tenant's instance.
    pub fn is_allocated(&self, device: &str, instance: &str, tenant: &str) -> bool {
        let orders = self.devices.get(device);
        orders.is_some_and(|o| o.is_allocated(instance, tenant))
    }

    /// The reason for which a device refuses a session of a tenant's instance (`None`: of a program
    /// that is not an instance), if it does.
    pub fn refusal(
        &self,
        device: &str,
        instance: Option<&str>,
        tenant: &str,
    ) -> Option<&'static str> {
        let orders = self.devices.get(device)?;
        if instance.is_some_and(|name| orders.is_allocated(name, tenant)) {
            return None;
        }
        match (orders.draining, orders.cordoned) {
            (true, _) => Some("is being drained: request another device from the registry (`baltra run --device QUERY`)"),
            (_, true) => Some("is cordoned and accepts no new instances: request another device from the registry (`baltra run --device QUERY`)"),
            (false, false) => None,
        }
    }

    /// Instances that lost a device that is being drained, compared with the orders `before`.
    pub fn moved(&self, before: &NodeOrders) -> Vec<(String, String)> {
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

    fn known(draining: bool, cordoned: bool, instances: &[&str]) -> NodeOrders {
        let orders = proto::DeviceOrders {
            device: "a".into(),
            cordoned,
            draining,
            instances: instances.iter().map(|i| i.to_string()).collect(),
            tenants: [("owned".to_owned(), "red".to_owned())].into(),
        };
        NodeOrders::from(vec![orders])
    }

    #[test]
    fn a_cordoned_device_keeps_those_it_has_and_takes_nobody_new() {
        let known = known(false, true, &["x"]);
        assert_eq!(known.refusal("a", Some("x"), "t"), None);
        let refused = known.refusal("a", Some("y"), "t").unwrap();
        assert!(refused.contains("cordoned"));
        assert!(known.refusal("a", None, "t").is_some());
        // Without orders for a device, no session is refused.
        assert_eq!(known.refusal("b", None, "t"), None);
        assert_eq!(NodeOrders::default().refusal("a", None, "t"), None);
    }

    #[test]
    fn only_a_drained_device_s_instances_move() {
        let before = known(false, false, &["x", "y"]);
        assert!(known(false, false, &["x"]).moved(&before).is_empty());
        let moved = known(true, true, &["x"]).moved(&before);
        assert_eq!(moved, [("a".to_owned(), "y".to_owned())]);
        assert!(known(true, true, &["x"])
            .moved(&NodeOrders::default())
            .is_empty());
    }

    #[test]
    fn an_allocation_is_of_one_device() {
        let known = known(false, false, &["x"]);
        assert!(known.is_allocated("a", "x", "t"));
        assert!(!known.is_allocated("b", "x", "t") && !known.is_allocated("a", "y", "t"));
    }

    #[test]
    fn an_instance_s_name_is_of_use_to_its_tenant_alone() {
        let known = known(false, true, &["x", "owned"]);
        assert!(known.is_allocated("a", "owned", "red"));
        assert!(!known.is_allocated("a", "owned", "blue"));
        assert_eq!(known.refusal("a", Some("owned"), "red"), None);
        assert!(known.refusal("a", Some("owned"), "blue").is_some());
        // An instance that no tenant has allocated may be used by any tenant that names it.
        assert!(known.is_allocated("a", "x", "red") && known.is_allocated("a", "x", "blue"));
    }
}
