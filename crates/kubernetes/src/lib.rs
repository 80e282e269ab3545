//! Baltra in a Kubernetes cluster: accelerators for Pods, by annotation or claim.
//!
//! | module | what |
//! |---|---|
//! | [`resources`] | the custom resources: devices, accelerators, functions |
//! | [`annotations`] | a Pod's device request, checked |
//! | [`webhook`] | admission: a device, a node and a session's credentials for Pods that request one |
//! | [`controller`] | objects follow the registry and the registry follows objects; Pods that have to move do |
//! | [`node`] | on each node: who a Pod is to its manager; labels; the driver of claims |
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
mod registry;
pub mod resources;
mod watch;
pub mod webhook;

pub use command::{command, Command};

/// The cluster's name for the group of everything here, and the driver's name.
pub const GROUP: &str = "baltra.io";
/// The label of a Pod that has an instance: the instance's name.
pub const INSTANCE: &str = "baltra.io/instance";
/// The annotation with a Pod's allocated devices: `node/device`, separated by commas.
pub const ALLOCATED: &str = "baltra.io/allocated";
/// The scheduling gate of a Pod that waits for a device.
pub const GATE: &str = "baltra.io/device";
/// Subdirectory of the manager's runtime directory with one directory per instance.
pub const INSTANCES_DIR: &str = "instances";
/// Where that directory is in a Pod.
pub const MOUNT: &str = "/baltra";
/// The label by which a Pod's node is chosen.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
