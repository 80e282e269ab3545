//! Baltra in a Kubernetes cluster: accelerators for Pods, by annotation or claim.
//!
//! | module | content |
//! |---|---|
//! | [`resources`] | the custom resources: devices, accelerators, functions |
//! | [`annotations`] | a Pod's device request, checked |
//! | [`webhook`] | admission: a device, a node and a session's credentials for Pods that request one |
//! | [`controller`] | synchronizes objects and the registry; moves Pods |
//! | [`node`] | on each node: Pods' identities for the manager; labels; the driver of claims |
//!
//! The registry decides on allocations. Persistent state is in the cluster's own objects: a Pod's
//! allocated devices in its annotations, whether a device is cordoned in the Device, and functions
//! in Function objects. The controller restores this state in a registry that has lost it.
#![forbid(unsafe_code)]

pub mod annotations;
mod command;
pub mod controller;
mod demand;
mod events;
mod health;
mod lease;
pub mod node;
mod options;
mod registry;
pub mod resources;
mod watch;
pub mod webhook;

pub use command::{command, Command};

/// The API group of all objects, and the driver's name.
pub const GROUP: &str = "baltra.io";
/// The label of a Pod that has an instance: the instance's name.
pub const INSTANCE: &str = "baltra.io/instance";
/// The annotation with a Pod's allocated devices: `node/device`, separated by commas.
pub const ALLOCATED: &str = "baltra.io/allocated";
/// The scheduling gate of a Pod that waits for a device.
pub const GATE: &str = "baltra.io/device";
/// Subdirectory of the manager's runtime directory with one directory per instance.
pub const INSTANCES_DIR: &str = "instances";
/// Mount path of that directory in a Pod.
pub const MOUNT: &str = "/baltra";
/// The label for selecting a Pod's node.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
