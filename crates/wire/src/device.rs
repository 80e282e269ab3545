//! Description of a device for clients, which have no access to it.

use crate::opencl::{
    DEVICE_HOST_UNIFIED_MEMORY, DEVICE_TYPE, DEVICE_TYPE_CPU, DEVICE_TYPE_GPU, PLATFORM_NAME,
};
use serde::{Deserialize, Serialize};

/// The driver's value for a parameter: OpenCL's number and the raw bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    /// `cl_device_info` or `cl_platform_info`
    pub param: u32,
    /// The driver's bytes.
    pub value: Vec<u8>,
}

/// Default of `device.memory_overcommit` on a GPU with memory of its own.
pub const OVERCOMMIT: u32 = 4;

/// The device's properties that a client reads before its first command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceDescription {
    /// The name in the manager's configuration, unique on its node.
    pub name: String,
    /// `clGetPlatformInfo` of the driver's platform.
    pub platform: Vec<Info>,
    /// `clGetDeviceInfo`, for all parameters that the driver supports.
    pub device: Vec<Info>,
    /// Whether the device can use the arena's memory in place, so that reads, writes and maps are
    /// copies by the client.
    pub host_memory: bool,
    /// Nanoseconds to add to `CLOCK_MONOTONIC` to get the clock of event times: 0, except in
    /// release 0.1.0, whose event times are the driver's.
    pub clock_offset_ns: i64,
    /// `clGetSupportedImageFormats` for read-write use of each image type: (type, flags, eight
    /// bytes per format).
    pub image_formats: Vec<(u32, u64, Vec<u8>)>,
}

impl DeviceDescription {
    /// Whether it computes on the host's processors.
    pub fn is_cpu(&self) -> bool {
        self.number(DEVICE_TYPE) & DEVICE_TYPE_CPU != 0
    }

    /// Whether it is a GPU, according to the driver.
    pub fn is_gpu(&self) -> bool {
        self.number(DEVICE_TYPE) & DEVICE_TYPE_GPU != 0
    }

    /// Limit of all memory objects together, as a multiple of the device's memory: the configured
    /// number, or [`OVERCOMMIT`] if their memory on the device is limited (`has_limit`) or is a
    /// GPU's own.
    pub fn overcommit(&self, configured: Option<u32>, has_limit: bool) -> u32 {
        let has_own_memory = self.is_gpu() && self.number(DEVICE_HOST_UNIFIED_MEMORY) == 0;
        let by_kind = if has_limit || has_own_memory {
            OVERCOMMIT
        } else {
            1
        };
        configured.unwrap_or(by_kind)
    }

    /// The value of `CL_PLATFORM_NAME`.
    pub fn platform_name(&self) -> String {
        let found = self.platform.iter().find(|i| i.param == PLATFORM_NAME);
        text(found.map_or(&[], |i| &i.value))
    }

    /// The bytes of one device parameter.
    pub fn info(&self, param: u32) -> Option<&[u8]> {
        let found = self.device.iter().find(|i| i.param == param)?;
        Some(&found.value)
    }

    /// A device parameter that is a text, without its terminating zero.
    pub fn text(&self, param: u32) -> String {
        text(self.info(param).unwrap_or_default())
    }

    /// A device parameter that is a number of four or eight bytes.
    pub fn number(&self, param: u32) -> u64 {
        match self.info(param) {
            Some(b) if b.len() == 8 => u64::from_ne_bytes(b.try_into().expect("eight bytes")),
            Some(b) if b.len() == 4 => u32::from_ne_bytes(b.try_into().expect("four bytes")).into(),
            _ => 0,
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .trim_end_matches('\0')
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_leave_by_default_where_the_memory_is_a_gpus_own() {
        let gpu = |is_unified: u32| {
            let info = |param, value: &[u8]| Info {
                param,
                value: value.to_vec(),
            };
            DeviceDescription {
                device: vec![
                    info(DEVICE_TYPE, &DEVICE_TYPE_GPU.to_ne_bytes()),
                    info(DEVICE_HOST_UNIFIED_MEMORY, &is_unified.to_ne_bytes()),
                ],
                ..Default::default()
            }
        };
        assert_eq!(gpu(0).overcommit(None, false), OVERCOMMIT);
        assert_eq!(gpu(0).overcommit(Some(1), false), 1);
        assert_eq!(gpu(1).overcommit(None, false), 1);
        // A limit without a number would otherwise have no effect.
        assert_eq!(gpu(1).overcommit(None, true), OVERCOMMIT);
        assert_eq!(DeviceDescription::default().overcommit(None, false), 1);
    }
}
