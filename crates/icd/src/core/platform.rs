//! The platform and its devices.

use crate::core::device::Device;
use crate::core::object::{Class, Object, Ref};
use crate::core::pool::{self, Listed};
use crate::core::process;
use crate::core::session;
use baltra_opencl::*;
use baltra_ring::Locked;

/// The platform: all devices of all managers.
pub struct Platform;

impl Class for Platform {
    type Raw = _cl_platform_id;
    const TAG: u32 = 0xba17_0001;
    const INVALID: i32 = CL_INVALID_PLATFORM;

    fn outlives_fork(_: &Object<Platform>) -> bool {
        true
    }
}

static PLATFORM: Object<Platform> = Object::fixed(Platform);

/// The platform.
pub fn platform() -> &'static Object<Platform> {
    &PLATFORM
}

/// The platform's version of OpenCL.
pub const VERSION: u32 = 3 << 22;

impl Platform {
    /// The devices. The managers are queried until they report devices, and then never again,
    /// because a device's handle is valid for the process's life.
    pub fn devices(&self) -> Vec<Ref<Device>> {
        let process = process::current();
        let _listing = process.listing.locked();
        let known = process::devices();
        if !known.is_empty() {
            return known.to_vec();
        }
        let mut listed = Vec::new();
        for offer in session::list() {
            let memory_bytes = offer.memory_bytes;
            for description in offer.devices {
                let endpoint = offer.endpoint.clone();
                let device = Object::new(Device::root(endpoint, description, memory_bytes));
                let node = offer.node.clone();
                listed.push(Listed { node, device });
            }
        }
        let devices: Vec<Ref<Device>> = match pool::form(&listed, &session::variable("BALTRA_POOL"))
        {
            Ok(None) => listed.into_iter().map(|one| one.device).collect(),
            Ok(Some(pool)) if pool.devices.len() == 1 => pool.devices,
            Ok(Some(pool)) => vec![Object::new(Device::pooled(pool))],
            Err(why) => {
                eprintln!("baltra: BALTRA_POOL: {why}");
                Vec::new()
            }
        };
        for device in &devices {
            // The platform's own reference, and a permanent one of the application.
            device.retain();
        }
        if !devices.is_empty() {
            process::set_devices(devices.clone());
        }
        devices
    }

    /// `CL_PLATFORM_EXTENSIONS`, with versions.
    pub fn extensions(&self) -> Vec<(&'static str, u32)> {
        vec![
            ("cl_khr_icd", 1 << 22),
            ("cl_khr_extended_versioning", 1 << 22),
        ]
    }
}
