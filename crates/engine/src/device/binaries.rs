//! A cache of program binaries: loading a function again does not run the compiler's front end,
//! which takes about 60 ms in PoCL even if PoCL's own cache has the rest.
//!
//! Binaries are kept in memory only. A driver may reject a binary at any time; then the source is
//! built.

use baltra_functions::Function;
use baltra_ring::Locked;
use baltra_wire::opencl::{DEVICE_NAME, DEVICE_VENDOR, DEVICE_VERSION, DRIVER_VERSION};
use baltra_wire::DeviceDescription;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Devices that agree in all of these properties can share a binary.
const SAME: [u32; 4] = [DEVICE_VENDOR, DEVICE_NAME, DRIVER_VERSION, DEVICE_VERSION];
/// Size limit of a cached binary, bytes.
const BINARY_BYTES_MAX: usize = 32 << 20;
/// Size limit of the cache, bytes; when it is reached, the cache is cleared.
const ALL_BYTES_MAX: usize = 256 << 20;

/// Binaries by function and device.
#[derive(Debug, Default)]
pub struct Binaries {
    kept: Mutex<HashMap<String, Arc<[u8]>>>,
}

/// The key of a binary: device and program.
pub fn key(device: &DeviceDescription, function: &Function, implementation: usize) -> String {
    let mut key = format!("{}\0{implementation}", function.digest);
    for param in SAME {
        key.push('\0');
        key.push_str(&device.text(param));
    }
    key
}

impl Binaries {
    /// The cached binary, if any.
    pub fn get(&self, key: &str) -> Option<Arc<[u8]>> {
        let kept = self.kept.locked();
        kept.get(key).cloned()
    }

    /// Adds a binary to the cache.
    pub fn put(&self, key: String, binary: Vec<u8>) {
        if binary.is_empty() || binary.len() > BINARY_BYTES_MAX {
            return;
        }
        let mut kept = self.kept.locked();
        let all: usize = kept.values().map(|binary| binary.len()).sum();
        if all + binary.len() > ALL_BYTES_MAX {
            kept.clear();
        }
        kept.insert(key, binary.into());
    }

    /// Removes a binary that the driver has rejected.
    pub fn remove(&self, key: &str) {
        let mut kept = self.kept.locked();
        kept.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded() {
        let binaries = Binaries::default();
        binaries.put("none".into(), Vec::new());
        binaries.put("huge".into(), vec![0; BINARY_BYTES_MAX + 1]);
        assert!(binaries.get("none").is_none() && binaries.get("huge").is_none());
        let fit = ALL_BYTES_MAX / BINARY_BYTES_MAX;
        for n in 0..=fit {
            binaries.put(n.to_string(), vec![1; BINARY_BYTES_MAX]);
        }
        assert!(binaries.get("0").is_none());
        assert!(binaries.get(&fit.to_string()).is_some());
        binaries.remove(&fit.to_string());
        assert!(binaries.get(&fit.to_string()).is_none());
    }
}
