//! Baltra in a cluster: Pods that ask for an accelerator by annotation or claim get one.
//!
//! | module | what |
//! |---|---|
//! | [`resources`] | the custom resources: devices, accelerators, functions |
//! | [`annotations`] | what a Pod asks for, checked |
//! | [`webhook`] | Pods that ask get a device, a place and what opens a session |
//! | [`controller`] | objects follow the registry and the registry follows objects; Pods that have to move do |
//! | [`node`] | on each node: who a Pod is to its manager; labels; the driver of claims |
//!
//! The registry decides who gets which device. What must survive it stands in the cluster's own objects: a Pod
//! says in its annotations which devices it was given, a Device whether it is cordoned, a Function what it is. A
//! registry that has lost its books hears all of it again from the controller.
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
/// The annotation that says which devices a Pod was given: `node/device`, with commas.
pub const ALLOCATED: &str = "baltra.io/allocated";
/// The scheduling gate of a Pod that waits for a device.
pub const GATE: &str = "baltra.io/device";
/// Where, below the manager's runtime directory, each instance has a directory of its own.
pub const INSTANCES_DIR: &str = "instances";
/// Where that directory is in a Pod.
pub const MOUNT: &str = "/baltra";
/// The label by which a Pod's node is chosen.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
