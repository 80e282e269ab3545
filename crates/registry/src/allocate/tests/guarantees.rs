use super::super::*;
use super::generate::*;
use crate::model::Snapshot;
use proptest::prelude::*;

/// The filter of the thesis's lines 2 and 3.
fn is_candidate(snapshot: &Snapshot, device: &Device, query: &Query, policy: &Policy) -> bool {
    assert!(snapshot.devices.contains_key(&device.id));
    device.state == DeviceState::Ready
        && query.unmet(device).is_none()
        && runs(snapshot, device, query)
        && within(device, policy)
}

/// Whether a device holds a query's accelerator, is its target, or takes any.
fn runs(snapshot: &Snapshot, device: &Device, query: &Query) -> bool {
    if query.term(Field::Accelerator).is_none() {
        return true;
    }
    let mut held = device.regions.iter().filter_map(Region::holds);
    let stored = snapshot.stored.iter();
    let named: Vec<&str> = stored
        .filter(|s| query.accepts_accelerator(&s.accelerator))
        .map(|s| s.target.as_str())
        .collect();
    let is_target = |target: &&str| match target.strip_suffix('*') {
        Some(start) => device.model.starts_with(start),
        None => device.model.eq_ignore_ascii_case(target),
    };
    let mut fit = named.iter().filter(|t| !t.is_empty());
    let takes_any = device.exclusive && (named.is_empty() || named.contains(&""));
    held.any(|a| query.accepts_accelerator(a)) || fit.any(is_target) || takes_any
}

fn within(device: &Device, policy: &Policy) -> bool {
    policy.filters.iter().all(|bound| {
        let value = match bound.metric.as_str() {
            "occupation" => device.instances.len() as f64,
            name => device.metrics.get(name).copied().unwrap_or(0.0),
        };
        bound.min.is_none_or(|min| value >= min) && bound.max.is_none_or(|max| value <= max)
    })
}

fn order_key(device: &Device, policy: &Policy) -> Vec<f64> {
    let value = |name: &str| match name {
        "occupation" => device.instances.len() as f64,
        name => device.metrics.get(name).copied().unwrap_or(0.0),
    };
    let signed = |name: &String| match name.strip_prefix('-') {
        Some(name) => -value(name),
        None => value(name),
    };
    policy.order.iter().map(signed).collect()
}

/// The thesis's inequality in the corrected direction, in floating point and without shortcuts.
/// `None` if rounding decides.
fn fits_elsewhere(
    snapshot: &Snapshot,
    policy: &Policy,
    device: &Device,
    region: usize,
) -> Option<bool> {
    let Some(lost) = device.regions[region].holds() else {
        return Some(true);
    };
    let mut free = 0.0;
    for other in snapshot.devices.values() {
        if !other.exclusive || other.state != DeviceState::Ready || !within(other, policy) {
            continue;
        }
        for (n, held) in other.regions.iter().enumerate() {
            let itself = other.id == device.id && n == region;
            if !itself && held.holds().is_some_and(|a| a.key() == lost.key()) {
                free += 100.0 - other.region_utilization(n);
            }
        }
    }
    let needed = device.region_utilization(region);
    ((free - needed).abs() > 1e-3 || free == needed).then_some(free >= needed)
}

fn any_region_fits_elsewhere(snapshot: &Snapshot, policy: &Policy, device: &Device) -> bool {
    let regions = 0..device.regions.len();
    regions
        .filter_map(|r| fits_elsewhere(snapshot, policy, device, r))
        .any(|fits| fits)
}

fn decide(snapshot: &Snapshot, demand: &Demand, policy: &Policy) -> Option<Decision> {
    allocate(snapshot, &demand.request(), policy).ok()
}

/// Whether a device has memory for its reservations and `bytes` more.
fn has_memory(snapshot: &Snapshot, device: &Device, bytes: u64) -> bool {
    let promise = |id: &String| {
        let function = &snapshot.instances[id].function;
        snapshot.functions[function].memory_bytes
    };
    let promised: u64 = device.instances.iter().map(promise).sum();
    bytes == 0 || promised + bytes <= device.memory_bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn given_devices_are_compatible_and_within_bounds(
        snapshot in any_snapshot(), demand in any_demand(), policy in any_policy(),
    ) {
        let decision = decide(&snapshot, &demand, &policy);
        for placement in decision.iter().flat_map(|d| &d.devices) {
            let device = &snapshot.devices[&placement.device];
            prop_assert!(is_candidate(&snapshot, device, &demand.query, &policy));
            prop_assert!(!demand.except.contains(&device.id));
            prop_assert!(has_memory(&snapshot, device, demand.memory_bytes));
            prop_assert_eq!(&placement.node, &device.node);
            if placement.reconfigures.is_none() {
                prop_assert!(device.has_loaded(&demand.query));
            } else {
                prop_assert!(device.exclusive && placement.region.is_some());
            }
        }
    }

    #[test]
    fn no_device_that_may_be_given_comes_before_the_given_one(
        snapshot in any_snapshot(), demand in any_single(), policy in any_policy(),
    ) {
        let Some(decision) = decide(&snapshot, &demand, &policy) else { return Ok(()) };
        let given = &snapshot.devices[&decision.devices[0].device];
        let reconfigures = decision.devices[0].reconfigures.is_some();
        for other in snapshot.devices.values() {
            if !is_candidate(&snapshot, other, &demand.query, &policy) {
                continue;
            }
            let loaded = other.has_loaded(&demand.query);
            let usable = loaded || (reconfigures && any_region_fits_elsewhere(&snapshot, &policy, other));
            if usable {
                prop_assert!(loaded != reconfigures || !loaded);
                let region = decision.devices[0].region.filter(|_| reconfigures);
                let mine = (
                    region.and_then(|r| given.regions[r].keeping()),
                    order_key(given, &policy),
                );
                let loses = (0..other.regions.len())
                    .filter(|r| fits_elsewhere(&snapshot, &policy, other, *r) == Some(true))
                    .map(|r| other.regions[r].keeping())
                    .min();
                // Without one, rounding decides whether it can be reconfigured.
                let Some(loses) = loses.or((!reconfigures).then_some(None)) else { continue };
                let its = (loses.filter(|_| reconfigures), order_key(other, &policy));
                prop_assert!(mine <= its, "{} {:?} before {} {:?}", other.id, its, given.id, mine);
            }
        }
    }

    #[test]
    fn devices_are_reconfigured_only_when_none_is_loaded(
        snapshot in any_snapshot(), demand in any_single(), policy in any_policy(),
    ) {
        let Some(decision) = decide(&snapshot, &demand, &policy) else { return Ok(()) };
        let loaded = snapshot.devices.values().any(|d| {
            is_candidate(&snapshot, d, &demand.query, &policy) && d.has_loaded(&demand.query)
        });
        prop_assert_eq!(decision.devices[0].reconfigures.is_some(), !loaded);
    }

    #[test]
    fn what_a_reconfigured_device_does_fits_elsewhere(
        snapshot in any_snapshot(), demand in any_single(), policy in any_policy(),
    ) {
        let Some(decision) = decide(&snapshot, &demand, &policy) else { return Ok(()) };
        let placement = &decision.devices[0];
        if placement.reconfigures.is_some() {
            let device = &snapshot.devices[&placement.device];
            let region = placement.region.unwrap();
            prop_assert_ne!(fits_elsewhere(&snapshot, &policy, device, region), Some(false));
            let lost = placement.reconfigures.clone().flatten();
            prop_assert_eq!(lost.as_ref(), device.regions[region].holds());
        }
    }

    #[test]
    fn a_blank_device_is_always_redistributable(
        snapshot in any_snapshot(), demand in any_single(), policy in any_policy(),
    ) {
        let blank = snapshot.devices.values().any(|d| {
            is_candidate(&snapshot, d, &demand.query, &policy)
                && d.exclusive
                && d.regions.iter().any(|r| r.holds().is_none())
        });
        let decision = decide(&snapshot, &demand, &policy);
        prop_assert!(!blank || decision.is_some());
        // The given-up region is also the device's first choice.
        for placement in decision.iter().flat_map(|d| &d.devices) {
            if let Some(Some(_)) = placement.reconfigures {
                let regions = &snapshot.devices[&placement.device].regions;
                prop_assert!(regions.iter().all(|r| r.holds().is_some()));
            }
        }
    }

    #[test]
    fn the_same_snapshot_gives_the_same_devices(
        snapshot in any_snapshot(), demand in any_demand(), policy in any_policy(),
    ) {
        // The same devices inserted in another order: the order must not matter.
        let backwards = Snapshot {
            devices: snapshot.devices.clone().into_iter().rev().collect(),
            ..snapshot.clone()
        };
        let mut index = Index::new(Snapshot::default(), policy.clone());
        index.set_stored(snapshot.stored.clone());
        for function in snapshot.functions.values().rev() {
            index.put_function(function.clone());
        }
        for instance in snapshot.instances.values().rev() {
            index.put_instance(instance.clone());
        }
        for device in snapshot.devices.values().rev() {
            index.put_device(device.clone());
        }
        let first = allocate(&snapshot, &demand.request(), &policy);
        prop_assert_eq!(&first, &allocate(&snapshot, &demand.request(), &policy));
        prop_assert_eq!(&first, &allocate(&backwards, &demand.request(), &policy));
        prop_assert_eq!(&first, &index.allocate(&demand.request()));
    }

    #[test]
    fn several_devices_are_different_and_as_many_as_asked_for(
        snapshot in any_snapshot(), demand in any_demand(), policy in any_policy(),
    ) {
        let Some(decision) = decide(&snapshot, &demand, &policy) else { return Ok(()) };
        let mut ids: Vec<&DeviceId> = decision.devices.iter().map(|p| &p.device).collect();
        ids.sort();
        ids.dedup();
        prop_assert_eq!(ids.len(), decision.devices.len());
        prop_assert!(!ids.is_empty() && ids.len() <= demand.devices as usize);
        prop_assert!(demand.pooled || ids.len() == demand.devices as usize);
    }

    #[test]
    fn pooled_devices_can_be_offered_as_one(
        snapshot in any_snapshot(), demand in any_demand(), policy in any_policy(),
    ) {
        let demand = Demand { pooled: true, devices: 3, ..demand };
        let Some(decision) = decide(&snapshot, &demand, &policy) else { return Ok(()) };
        let first = &snapshot.devices[&decision.devices[0].device];
        for placement in &decision.devices[1..] {
            let device = &snapshot.devices[&placement.device];
            prop_assert_eq!((&device.vendor, device.exclusive), (&first.vendor, first.exclusive));
            prop_assert_eq!(&placement.reconfigures, &None);
            if let Some(region) = decision.devices[0].region {
                let key = |d: &Device, r: usize| d.regions[r].holds().map(Accelerator::key);
                prop_assert_eq!(key(device, placement.region.unwrap()), key(first, region));
            }
        }
    }

    #[test]
    fn locality_holds(
        snapshot in any_snapshot(), demand in any_demand(), policy in any_policy(),
    ) {
        let Some(decision) = decide(&snapshot, &demand, &policy) else { return Ok(()) };
        let node = demand.node.unwrap_or(&decision.devices[0].node);
        prop_assert_eq!(&decision.node, node);
        if demand.locality == Locality::Require {
            for placement in &decision.devices {
                prop_assert_eq!(&placement.node, node);
            }
        }
        let (first, near) = (&decision.devices[0], demand.node);
        if let (Locality::Prefer, Some(near)) = (demand.locality, near) {
            if first.node != near && first.reconfigures.is_none() {
                let nearer = snapshot.devices.values().any(|d| {
                    d.node == near
                        && is_candidate(&snapshot, d, &demand.query, &policy)
                        && d.has_loaded(&demand.query)
                        && !demand.except.contains(&d.id)
                        && has_memory(&snapshot, d, demand.memory_bytes)
                });
                prop_assert!(!nearer);
            }
        }
    }

    #[test]
    fn a_refusal_accounts_for_every_device_and_is_true(
        snapshot in any_snapshot(), demand in any_demand(), policy in any_policy(),
    ) {
        let Err(refusal) = allocate(&snapshot, &demand.request(), &policy) else { return Ok(()) };
        prop_assert_eq!(refusal.requested, demand.devices);
        prop_assert!(refusal.found < refusal.requested);
        let split = demand.locality == Locality::Require && demand.node.is_none() && demand.devices > 1;
        let unnamed = if split { 0 } else { refusal.found as usize };
        prop_assert_eq!(refusal.devices.len() + unnamed, snapshot.devices.len());
        for rejection in &refusal.devices {
            let device = &snapshot.devices[&rejection.device];
            match &rejection.reason {
                Reason::State(state) => {
                    prop_assert!(*state != DeviceState::Ready);
                    prop_assert_eq!(*state, device.state);
                }
                Reason::Metric { metric, value, min, max } => {
                    prop_assert_eq!(*value, device.metric(metric));
                    let value = value.unwrap_or(0.0);
                    prop_assert!(min.is_some_and(|min| value < min) || max.is_some_and(|max| value > max));
                }
                Reason::Excepted => prop_assert!(demand.except.contains(&device.id)),
                Reason::Query { field, wanted, found } => {
                    let unmet = demand.query.unmet(device).unwrap();
                    prop_assert_eq!(&unmet.term.to_string(), field);
                    prop_assert_eq!(&unmet.wanted.to_string(), wanted);
                    prop_assert_eq!(unmet.found, found);
                }
                Reason::Node { wanted, found } => {
                    prop_assert_eq!(Some(wanted.as_str()), demand.node);
                    prop_assert_eq!(found, &device.node);
                    prop_assert_ne!(found, wanted);
                }
                Reason::Memory { wanted, all, .. } => {
                    prop_assert_eq!((*wanted, *all), (demand.memory_bytes, device.memory_bytes));
                    prop_assert!(!has_memory(&snapshot, device, *wanted));
                }
                Reason::Redistribution { region, accelerator, needed, free } => {
                    prop_assert!(needed > free);
                    prop_assert!((needed - device.region_utilization(*region)).abs() < 1e-5);
                    prop_assert_eq!(Some(accelerator), device.regions[*region].holds());
                    prop_assert!(!device.has_loaded(&demand.query));
                }
                Reason::Target { found, .. } => {
                    prop_assert!(!runs(&snapshot, device, &demand.query));
                    prop_assert_eq!(found, &device.model);
                }
                Reason::Unknown => {
                    prop_assert!(!device.exclusive && !runs(&snapshot, device, &demand.query));
                }
                Reason::NoRegion => prop_assert!(device.regions.is_empty()),
                Reason::NodeShort { found } => {
                    prop_assert!(split && *found > 0 && *found < demand.devices);
                }
                reason => prop_assert!(false, "{}: {:?}", device.id, reason),
            }
            prop_assert!(!rejection.reason.to_string().is_empty());
        }
    }
}
