//! The next steps for a Pod and its instance, as pure functions.

use crate::{ALLOCATED, GATE, INSTANCE};
use baltra_api::query::{Accelerator, Field, Query};
use baltra_api::registry as proto;
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeSet;

/// Annotation with the reason why a Pod is being replaced.
pub const MOVING: &str = "baltra.io/moving";
/// Annotation with the ReplicaSet from which a Pod was removed, so that the ReplicaSet creates
/// another.
pub const MOVED_FROM: &str = "baltra.io/moved-from";
/// The label by which a Deployment's ReplicaSet selects its Pods.
pub const TEMPLATE_HASH: &str = "pod-template-hash";

/// The relevant state of a Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The name of its instance.
    pub instance: String,
    /// The allocated devices, node/device, from its annotation.
    pub allocated: Vec<String>,
    /// Whether the device scheduling gate holds it.
    pub gated: bool,
    /// Whether it is being replaced.
    pub moving: bool,
    /// The ReplicaSet that it was removed from.
    pub moved_from: Option<String>,
    /// Whether its containers have terminated permanently.
    pub finished: bool,
    /// Whether it is being deleted.
    pub leaving: bool,
    /// Whether it is ready.
    pub ready: bool,
    /// Kind and name of its controller.
    pub controller: Option<(String, String)>,
    /// Whether its controller is a Deployment's ReplicaSet, which it can be removed from.
    pub releasable: bool,
}

impl View {
    /// The view of a Pod that has the label [`INSTANCE`](crate::INSTANCE).
    pub fn of(pod: &Pod) -> Option<View> {
        let meta = &pod.metadata;
        let label = |key: &str| meta.labels.as_ref().and_then(|l| l.get(key));
        let annotation = |key: &str| meta.annotations.as_ref().and_then(|a| a.get(key));
        let spec = pod.spec.as_ref()?;
        let status = pod.status.as_ref();
        let phase = status.and_then(|s| s.phase.as_deref()).unwrap_or_default();
        let conditions = status.and_then(|s| s.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        let gates = spec.scheduling_gates.as_ref();
        let mut owners = meta.owner_references.iter().flatten();
        let controller = owners.find(|o| o.controller == Some(true));
        Some(View {
            namespace: meta.namespace.clone()?,
            name: meta.name.clone()?,
            instance: label(INSTANCE)?.clone(),
            allocated: ids(annotation(ALLOCATED).map_or("", |a| a)),
            gated: gates.into_iter().flatten().any(|g| g.name == GATE),
            moving: annotation(MOVING).is_some(),
            moved_from: annotation(MOVED_FROM).cloned(),
            finished: matches!(phase, "Succeeded" | "Failed"),
            leaving: meta.deletion_timestamp.is_some(),
            ready: conditions.any(|c| c.type_ == "Ready" && c.status == "True"),
            controller: controller.map(|c| (c.kind.clone(), c.name.clone())),
            releasable: label(TEMPLATE_HASH).is_some(),
        })
    }
}

impl View {
    /// Whether it belongs to a ReplicaSet and is ready.
    pub fn serves_in(&self, namespace: &str, set: &str) -> bool {
        let own = self
            .controller
            .as_ref()
            .is_some_and(|(kind, name)| kind == "ReplicaSet" && name == set);
        // A Pod that was removed a moment ago still has its controller.
        own && self.namespace == namespace
            && self.moved_from.is_none()
            && self.ready
            && !self.leaving
    }
}

/// Parses and sorts an annotation's devices.
pub fn ids(text: &str) -> Vec<String> {
    let ids = text.split(',').map(str::trim).filter(|id| !id.is_empty());
    let ids: BTreeSet<String> = ids.map(str::to_owned).collect();
    ids.into_iter().collect()
}

/// A step for a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Request devices.
    Allocate,
    /// Restore its instance in the registry.
    Adopt,
    /// Remove the lease of its instance, which then exists as long as the Pod.
    Keep,
    /// Release its devices.
    Release,
    /// Write the devices that were allocated while it waited.
    Place(Vec<String>),
    /// Remove its scheduling gate.
    Open,
    /// Replace it, for this reason.
    Move(String),
    /// Report that it has lost its device for this reason, and that there is no other.
    Stranded(String),
}

/// The next steps for a Pod, given its instance in the registry. `in_the_way` is the reason why its
/// device will hold another accelerator; `blocked`: whether other instances have to leave its
/// devices first.
pub fn steps(
    pod: &View,
    instance: Option<&proto::Instance>,
    in_the_way: Option<String>,
    blocked: bool,
) -> Vec<Step> {
    if pod.finished {
        return instance.map(|_| Step::Release).into_iter().collect();
    }
    let Some(instance) = instance else {
        return match (pod.allocated.is_empty(), pod.gated && !pod.leaving) {
            (true, true) => vec![Step::Allocate],
            (true, false) => Vec::new(),
            (false, _) => vec![Step::Adopt],
        };
    };
    let mut steps = Vec::new();
    if instance.lease_s > 0 {
        steps.push(Step::Keep);
    }
    if pod.leaving {
        return steps;
    }
    let given = given(instance);
    if given.is_empty() {
        steps.push(if pod.gated {
            Step::Allocate
        } else {
            Step::Stranded(instance.pending.clone())
        });
    } else if pod.gated {
        if given != pod.allocated {
            steps.push(Step::Place(given));
        } else if !blocked {
            steps.push(Step::Open);
        }
    } else if given != pod.allocated && !is_there(instance, &pod.allocated) {
        let to = given.join(", ");
        steps.push(Step::Move(format!(
            "the registry moved its instance to {to}"
        )));
    } else if let Some(reason) = in_the_way {
        steps.push(Step::Move(reason));
    }
    steps
}

/// An instance's devices, sorted.
pub fn given(instance: &proto::Instance) -> Vec<String> {
    let ids = instance.devices.iter();
    let ids: BTreeSet<String> = ids.map(|a| format!("{}/{}", a.node, a.device)).collect();
    ids.into_iter().collect()
}

/// Whether the sessions of a Pod have moved to those of its devices that it was not allocated at
/// first, while it runs.
fn is_there(instance: &proto::Instance, allocated: &[String]) -> bool {
    let is_known = |a: &proto::Assignment| allocated.contains(&format!("{}/{}", a.node, a.device));
    let mut devices = instance.devices.iter();
    devices.all(|a| a.live || is_known(a)) && instance.devices.iter().any(|a| a.live)
}

/// Why an instance has to leave one of its devices: a region that it uses will hold another
/// accelerator.
pub fn in_the_way(instance: &proto::Instance, devices: &[proto::Device]) -> Option<String> {
    let query: Query = instance.query.parse().ok()?;
    query.term(Field::Accelerator)?;
    instance.devices.iter().find_map(|a| {
        let device = find(devices, &a.node, &a.device)?;
        let pending = device.pending.iter().find(|p| p.index == a.region)?;
        let next = Accelerator {
            name: pending.name.clone(),
            digest: pending.digest.clone(),
        };
        (!query.accepts_accelerator(&next)).then(|| {
            let what = if next.name.is_empty() {
                &next.digest
            } else {
                &next.name
            };
            format!("{}/{} will be reconfigured to '{what}'", a.node, a.device)
        })
    })
}

/// Whether an instance has to wait for others to leave a device that is to be reconfigured for it.
pub fn blocked<'a>(
    instance: &proto::Instance,
    devices: &[proto::Device],
    mut all: impl Iterator<Item = &'a proto::Instance>,
) -> bool {
    let waits: Vec<(&str, &str, u32)> = instance
        .devices
        .iter()
        .filter(|a| a.reconfigure)
        .map(|a| (a.node.as_str(), a.device.as_str(), a.region))
        .collect();
    !waits.is_empty()
        && all.any(|other| {
            let mut theirs = other.devices.iter();
            let shares =
                theirs.any(|a| waits.contains(&(a.node.as_str(), a.device.as_str(), a.region)));
            other.name != instance.name && shares && in_the_way(other, devices).is_some()
        })
}

fn find<'a>(devices: &'a [proto::Device], node: &str, name: &str) -> Option<&'a proto::Device> {
    devices.iter().find(|d| {
        let own = d.description.as_ref().is_some_and(|x| x.name == name);
        d.node == node && own
    })
}

/// Number of a ReplicaSet's former Pods that may be evicted: the ready Pods, its own and former
/// ones, beyond the desired number.
pub fn spare(wanted: i32, serving: usize) -> usize {
    serving.saturating_sub(usize::try_from(wanted).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(name: &str, query: &str, devices: &[&str]) -> proto::Instance {
        let assignment = |id: &&str| {
            let (node, device) = id.split_once('/').unwrap();
            proto::Assignment {
                node: node.into(),
                device: device.into(),
                ..proto::Assignment::default()
            }
        };
        proto::Instance {
            name: name.into(),
            query: query.into(),
            devices: devices.iter().map(assignment).collect(),
            ..proto::Instance::default()
        }
    }

    fn device(id: &str, pending: &str) -> proto::Device {
        let (node, name) = id.split_once('/').unwrap();
        proto::Device {
            node: node.into(),
            description: Some(proto::DeviceDescription {
                name: name.into(),
                ..proto::DeviceDescription::default()
            }),
            pending: vec![proto::Region {
                index: 0,
                name: pending.into(),
                ..proto::Region::default()
            }],
            ..proto::Device::default()
        }
    }

    fn pod(allocated: &[&str], gated: bool) -> View {
        View {
            allocated: allocated.iter().map(|d| d.to_string()).collect(),
            gated,
            ..View::default()
        }
    }

    #[test]
    fn a_waiting_pod_retries_and_a_running_one_is_reported() {
        assert_eq!(steps(&pod(&[], true), None, None, false), [Step::Allocate]);
        assert_eq!(
            steps(&pod(&["n/d"], false), None, None, false),
            [Step::Adopt]
        );
        assert_eq!(steps(&pod(&[], false), None, None, false), []);
    }

    #[test]
    fn an_instance_lives_as_long_as_its_pod() {
        let mut leased = instance("a", "", &["n/d"]);
        leased.lease_s = 60;
        assert_eq!(
            steps(&pod(&["n/d"], false), Some(&leased), None, false),
            [Step::Keep]
        );
        let ended = View {
            finished: true,
            ..pod(&["n/d"], false)
        };
        assert_eq!(steps(&ended, Some(&leased), None, false), [Step::Release]);
        assert_eq!(steps(&ended, None, None, false), []);
    }

    #[test]
    fn a_gate_opens_when_nobody_is_in_the_way() {
        let has = instance("a", "", &["n/d"]);
        assert_eq!(steps(&pod(&["n/d"], true), Some(&has), None, true), []);
        assert_eq!(
            steps(&pod(&["n/d"], true), Some(&has), None, false),
            [Step::Open]
        );
        let place = Step::Place(vec!["n/d".into()]);
        assert_eq!(steps(&pod(&[], true), Some(&has), None, false), [place]);
    }

    #[test]
    fn whose_device_is_another_now_is_moved() {
        let has = instance("a", "", &["n/e"]);
        let running = pod(&["n/d"], false);
        let moved = steps(&running, Some(&has), None, false);
        assert!(
            matches!(&moved[..], [Step::Move(why)] if why.contains("n/e")),
            "{moved:?}"
        );
        let why = Some("because".to_owned());
        let same = instance("a", "", &["n/d"]);
        assert_eq!(
            steps(&running, Some(&same), why, false),
            [Step::Move("because".into())]
        );
        let leaving = View {
            leaving: true,
            ..running
        };
        assert_eq!(steps(&leaving, Some(&has), None, false), []);
    }

    #[test]
    fn a_pod_whose_sessions_have_moved_stays() {
        let live = |mut instance: proto::Instance| {
            instance.devices[0].live = true;
            instance
        };
        let running = pod(&["n/d"], false);
        let moved = live(instance("a", "", &["m/e"]));
        assert_eq!(steps(&running, Some(&moved), None, false), []);
        let some = live(instance("a", "", &["m/e", "n/d"]));
        assert_eq!(steps(&running, Some(&some), None, false), []);
        let other = live(instance("a", "", &["m/e", "n/f"]));
        let step = &steps(&running, Some(&other), None, false)[..];
        assert!(matches!(step, [Step::Move(_)]), "{step:?}");
    }

    #[test]
    fn only_who_wants_another_accelerator_is_in_the_way() {
        let devices = [device("n/d", "sobel")];
        let in_the_way = |query: &str| in_the_way(&instance("a", query, &["n/d"]), &devices);
        assert_eq!(in_the_way("accelerator=sobel"), None);
        assert_eq!(in_the_way("accelerator=so*"), None);
        assert_eq!(in_the_way(""), None);
        assert!(in_the_way("accelerator=mm").unwrap().contains("sobel"));
        let mut new = instance("new", "accelerator=sobel", &["n/d"]);
        new.devices[0].reconfigure = true;
        let (old, other) = (
            instance("old", "accelerator=mm", &["n/d"]),
            instance("o", "accelerator=mm", &["n/e"]),
        );
        assert!(blocked(&new, &devices, [&new, &old].into_iter()));
        assert!(!blocked(&new, &devices, [&new, &other].into_iter()));
    }

    #[test]
    fn no_more_go_than_are_replaced() {
        assert_eq!(spare(50, 50), 0);
        assert_eq!(spare(50, 55), 5);
        assert_eq!(spare(50, 20), 0);
        assert_eq!(spare(0, 3), 3);
    }

    #[test]
    fn a_pod_that_was_taken_out_serves_in_its_set_no_more() {
        let pod = View {
            namespace: "red".into(),
            controller: Some(("ReplicaSet".into(), "app-1".into())),
            ready: true,
            ..View::default()
        };
        assert!(pod.serves_in("red", "app-1"));
        assert!(!pod.serves_in("red", "app-2"));
        assert!(!pod.serves_in("blue", "app-1"));
        let taken = View {
            moved_from: Some("app-1".into()),
            ..pod.clone()
        };
        assert!(!taken.serves_in("red", "app-1"));
        let leaving = View {
            leaving: true,
            ..pod.clone()
        };
        assert!(!leaving.serves_in("red", "app-1"));
        let starting = View {
            ready: false,
            ..pod
        };
        assert!(!starting.serves_in("red", "app-1"));
    }
}
