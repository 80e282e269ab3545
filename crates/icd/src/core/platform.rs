//! The one platform, and the devices behind it.

use crate::core::device::Device;
use crate::core::object::{Class, Object, Ref};
use crate::core::session;
use baltra_opencl::*;
use std::sync::Mutex;

/// The platform: all devices of all managers.
pub struct Platform {
    devices: Mutex<Vec<Ref<Device>>>,
}

impl Class for Platform {
    type Raw = _cl_platform_id;
    const TAG: u32 = 0xba17_0001;
    const INVALID: i32 = CL_INVALID_PLATFORM;
}

static PLATFORM: Object<Platform> = Object::fixed(Platform {
    devices: Mutex::new(Vec::new()),
});

/// The platform.
pub fn platform() -> &'static Object<Platform> {
    &PLATFORM
}

/// The version of OpenCL that the platform speaks.
pub const VERSION: u32 = 3 << 22;

impl Platform {
    /// The devices. The managers are asked once they have something to offer, and then never
    /// again, for a device's handle is for the process's life.
    pub fn devices(&self) -> Vec<Ref<Device>> {
        let mut devices = self.devices.lock().expect("no panic under this lock");
        if devices.is_empty() {
            for offer in session::list() {
                let memory_bytes = offer.memory_bytes;
                for description in offer.devices {
                    let endpoint = offer.endpoint.clone();
                    let device = Object::new(Device::root(endpoint, description, memory_bytes));
                    // The platform's own reference, and the application's that never ends.
                    device.retain();
                    devices.push(device);
                }
            }
        }
        devices.clone()
    }

    /// `CL_PLATFORM_EXTENSIONS`, with versions.
    pub fn extensions(&self) -> Vec<(&'static str, u32)> {
        vec![
            ("cl_khr_icd", 1 << 22),
            ("cl_khr_extended_versioning", 1 << 22),
        ]
    }
}
