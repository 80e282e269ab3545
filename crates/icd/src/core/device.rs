//! A device of a manager, a part of one, or a pool of several.

use crate::core::lost;
use crate::core::object::{Class, Object, Ref};
use crate::core::platform::platform;
use crate::core::pool::Pool;
use crate::core::process;
use crate::core::session::Session;
use baltra_opencl::*;
use baltra_ring::Locked;
use baltra_session::Endpoint;
use baltra_wire::{facts, DeviceDescription, Id, Query, Reply, Request};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Properties needed for checking arguments, read once.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// Work-items in a work-group.
    pub max_work_group_size: usize,
    /// Work-items in a work-group, in each dimension.
    pub max_work_item_sizes: [usize; 3],
    /// Bytes of one memory object.
    pub mem_alloc_max: u64,
    /// 32 or 64.
    pub address_bits: u32,
    /// Whether there are images.
    pub images: bool,
    /// `cl_device_svm_capabilities`
    pub svm: u64,
    /// Major and minor OpenCL version.
    pub version: (u32, u32),
    /// Bytes of a kernel's arguments.
    pub max_parameter_size: usize,
    /// Bytes that a sub-buffer's origin is a multiple of.
    pub base_align: usize,
    /// `cl_command_queue_properties` of queues on the host.
    pub queue_properties: u64,
}

/// One `cl_device_id`.
pub struct Device {
    /// The sub-device's name in its session; 0: the session's device itself.
    pub id: Id,
    /// Checked values.
    pub limits: Limits,
    endpoint: Endpoint,
    description: Arc<DeviceDescription>,
    /// Sub-devices: the executor's answers, by parameter.
    own: Mutex<HashMap<i32, Option<Vec<u8>>>>,
    parent: Option<Ref<Device>>,
    pool: Option<Pool>,
    memory_bytes: u64,
    /// The facts that the program has read ([`baltra_wire::facts`]).
    facts_read: AtomicU64,
}

impl Class for Device {
    type Raw = _cl_device_id;
    const TAG: u32 = 0xba17_0002;
    const INVALID: i32 = CL_INVALID_DEVICE;

    fn outlives_fork(object: &Object<Device>) -> bool {
        // A part is an object of a session.
        object.id == 0
    }
}

/// Extensions of the device that are passed on to the application: those of the kernel language or
/// the information queries, and those whose entry points this library has.
const EXTENSIONS: &[&str] = &[
    "cl_khr_3d_image_writes",
    "cl_khr_async_work_group_copy_fence",
    "cl_khr_byte_addressable_store",
    "cl_khr_create_command_queue",
    "cl_khr_depth_images",
    "cl_khr_device_uuid",
    "cl_khr_expect_assume",
    "cl_khr_extended_async_copies",
    "cl_khr_extended_bit_ops",
    "cl_khr_extended_versioning",
    "cl_khr_fp16",
    "cl_khr_fp64",
    "cl_khr_global_int32_base_atomics",
    "cl_khr_global_int32_extended_atomics",
    "cl_khr_icd",
    "cl_khr_il_program",
    "cl_khr_image2d_from_buffer",
    "cl_khr_int64_base_atomics",
    "cl_khr_int64_extended_atomics",
    "cl_khr_integer_dot_product",
    "cl_khr_local_int32_base_atomics",
    "cl_khr_local_int32_extended_atomics",
    "cl_khr_pci_bus_info",
    "cl_khr_spir",
    "cl_khr_spirv_extended_debug_info",
    "cl_khr_spirv_linkonce_odr",
    "cl_khr_spirv_no_integer_wrap_decoration",
    "cl_khr_srgb_image_writes",
    "cl_khr_subgroup_ballot",
    "cl_khr_subgroup_clustered_reduce",
    "cl_khr_subgroup_extended_types",
    "cl_khr_subgroup_non_uniform_arithmetic",
    "cl_khr_subgroup_non_uniform_vote",
    "cl_khr_subgroup_rotate",
    "cl_khr_subgroup_shuffle",
    "cl_khr_subgroup_shuffle_relative",
    "cl_khr_subgroups",
    "cl_khr_work_group_uniform_arithmetic",
    "cl_ext_float_atomics",
    "cl_amd_device_attribute_query",
    "cl_amd_media_ops",
    "cl_amd_media_ops2",
    "cl_intel_required_subgroup_size",
    "cl_intel_subgroups",
    "cl_intel_subgroups_char",
    "cl_intel_subgroups_long",
    "cl_intel_subgroups_short",
    "cl_nv_compiler_options",
    "cl_nv_device_attribute_query",
    "cl_nv_kernel_attribute",
    "cl_nv_pragma_unroll",
    "cles_khr_2d_image_array_writes",
    "cles_khr_int64",
];

/// Kernel language features that require features that the library lacks.
const FEATURES_WITHOUT: &[&str] = &["__opencl_c_device_enqueue"];

fn passes(extension: &str) -> bool {
    EXTENSIONS.contains(&extension)
}

/// Keeps those `cl_name_version`s (a version, then 64 bytes of name) that `keep` selects.
pub fn filter_versions(bytes: &[u8], keep: impl Fn(&str) -> bool) -> Vec<u8> {
    let entries = bytes.chunks_exact(size_of::<cl_name_version>());
    let kept = entries.filter(|entry| {
        let name = entry[4..].split(|&b| b == 0).next().unwrap_or_default();
        std::str::from_utf8(name).is_ok_and(&keep)
    });
    kept.flatten().copied().collect()
}

/// A number of four or eight bytes; 0: the value is none.
pub fn word(bytes: &[u8]) -> u64 {
    match bytes.len() {
        8 => u64::from_ne_bytes(bytes.try_into().expect("eight bytes")),
        4 => u32::from_ne_bytes(bytes.try_into().expect("four bytes")).into(),
        _ => 0,
    }
}

/// "OpenCL 1.2 more": (1, 2).
pub fn parse_version(text: &str) -> (u32, u32) {
    let number = text.split_whitespace().nth(1).unwrap_or_default();
    let (major, minor) = number.split_once('.').unwrap_or((number, "0"));
    (major.parse().unwrap_or(1), minor.parse().unwrap_or(0))
}

impl Device {
    /// A manager's device.
    pub fn root(endpoint: Endpoint, description: DeviceDescription, memory_bytes: u64) -> Device {
        let description = Arc::new(description);
        Device::new(0, endpoint, description, None, memory_bytes).with_limits()
    }

    /// Several devices as one. Where one device has to stand for them, it is the first.
    pub fn pooled(pool: Pool) -> Device {
        let first = &pool.devices[0];
        let mut device = Device::new(
            0,
            first.endpoint.clone(),
            first.description.clone(),
            None,
            first.memory_bytes,
        );
        device.pool = Some(pool);
        device.with_limits()
    }

    fn new(
        id: Id,
        endpoint: Endpoint,
        description: Arc<DeviceDescription>,
        parent: Option<Ref<Device>>,
        memory_bytes: u64,
    ) -> Device {
        Device {
            id,
            endpoint,
            description,
            parent,
            pool: None,
            memory_bytes,
            limits: Limits::default(),
            own: Mutex::default(),
            facts_read: 0.into(),
        }
    }

    fn with_limits(mut self) -> Device {
        let device = &mut self;
        let sizes = device
            .info(CL_DEVICE_MAX_WORK_ITEM_SIZES)
            .unwrap_or_default();
        let mut sizes = sizes.chunks_exact(8).map(|b| word(b) as usize);
        device.limits = Limits {
            max_work_group_size: device.number(CL_DEVICE_MAX_WORK_GROUP_SIZE) as usize,
            max_work_item_sizes: std::array::from_fn(|_| sizes.next().unwrap_or(1)),
            mem_alloc_max: device.number(CL_DEVICE_MAX_MEM_ALLOC_SIZE),
            address_bits: device.number(CL_DEVICE_ADDRESS_BITS) as u32,
            images: device.number(CL_DEVICE_IMAGE_SUPPORT) != 0,
            svm: device.number(CL_DEVICE_SVM_CAPABILITIES),
            version: parse_version(&device.text(CL_DEVICE_VERSION)),
            max_parameter_size: device.number(CL_DEVICE_MAX_PARAMETER_SIZE) as usize,
            base_align: (device.number(CL_DEVICE_MEM_BASE_ADDR_ALIGN) as usize / 8).max(1),
            queue_properties: device.number(CL_DEVICE_QUEUE_PROPERTIES),
        };
        self
    }

    /// The manager's description of the (root) device.
    pub fn description(&self) -> &DeviceDescription {
        &self.description
    }

    /// Nanoseconds from `CLOCK_MONOTONIC` to the clock of its events' times. The devices of a pool
    /// have different clocks, so the pool's is the host's.
    pub fn clock_offset_ns(&self) -> i64 {
        match self.pool {
            Some(_) => 0,
            None => self.description.clock_offset_ns,
        }
    }

    /// The devices that it consists of, if it is a pool.
    pub fn pool(&self) -> Option<&Pool> {
        self.pool.as_ref()
    }

    /// The device that this one is a part of.
    pub fn parent(&self) -> Option<&Ref<Device>> {
        self.parent.as_ref()
    }

    /// The device's session, opened by the first caller; a lost one is replaced.
    pub fn session(&self) -> Result<Arc<Session>, i32> {
        if let Some(parent) = &self.parent {
            // A part lives in the session that it was made in.
            return parent.session();
        }
        let sessions = &process::current().sessions;
        sessions
            .of(&self.endpoint, &self.description.name, || {
                self.facts_read.load(Ordering::SeqCst)
            })
            .ok_or(CL_DEVICE_NOT_AVAILABLE)
    }

    /// The answer to `clGetDeviceInfo`; `None`: the device does not support this parameter.
    pub fn info(&self, param: i32) -> Option<Vec<u8>> {
        if let Some(pool) = &self.pool {
            return pool.info(param);
        }
        let driver = || self.driver(param);
        let number = |n: u64, bytes: usize| Some(n.to_ne_bytes()[..bytes].to_vec());
        match param {
            CL_DEVICE_PLATFORM => number(platform().handle() as u64, size_of::<usize>()),
            CL_DEVICE_PARENT_DEVICE => {
                let parent = self.parent.as_ref().map_or(0, |p| p.handle() as u64);
                number(parent, size_of::<usize>())
            }
            CL_DEVICE_EXTENSIONS => {
                let text = driver()?;
                let text = String::from_utf8_lossy(&text);
                let text = text.trim_end_matches('\0');
                let kept: Vec<&str> = text.split_whitespace().filter(|e| passes(e)).collect();
                Some(format!("{}\0", kept.join(" ")).into_bytes())
            }
            CL_DEVICE_EXTENSIONS_WITH_VERSION => Some(filter_versions(&driver()?, passes)),
            CL_DEVICE_OPENCL_C_FEATURES => {
                let keep = |name: &str| !FEATURES_WITHOUT.contains(&name);
                Some(filter_versions(&driver()?, keep))
            }
            // Native kernels are the application's own code, which is not on the device's host.
            CL_DEVICE_EXECUTION_CAPABILITIES => number(CL_EXEC_KERNEL as u64, 8),
            CL_DEVICE_SVM_CAPABILITIES => {
                let mask = if self.description.host_memory {
                    CL_DEVICE_SVM_COARSE_GRAIN_BUFFER | CL_DEVICE_SVM_FINE_GRAIN_BUFFER
                } else {
                    CL_DEVICE_SVM_COARSE_GRAIN_BUFFER
                };
                number(word(&driver()?) & mask as u64, 8)
            }
            // No queues on the device.
            CL_DEVICE_QUEUE_ON_DEVICE_PROPERTIES | CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES => {
                driver()?;
                number(0, 8)
            }
            CL_DEVICE_QUEUE_ON_DEVICE_PREFERRED_SIZE
            | CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE
            | CL_DEVICE_MAX_ON_DEVICE_QUEUES
            | CL_DEVICE_MAX_ON_DEVICE_EVENTS => {
                driver()?;
                number(0, 4)
            }
            CL_DEVICE_GLOBAL_MEM_SIZE | CL_DEVICE_MAX_MEM_ALLOC_SIZE => {
                number(word(&driver()?).min(self.memory_bytes), 8)
            }
            CL_DEVICE_AVAILABLE => {
                let sessions = &process::current().sessions;
                let lost = sessions.is_lost(&self.endpoint, &self.description.name);
                number(u64::from(!lost), 4)
            }
            _ => driver(),
        }
    }

    /// The driver's answer.
    fn driver(&self, param: i32) -> Option<Vec<u8>> {
        if self.id != 0 {
            let known = self.own.locked();
            if let Some(value) = known.get(&param) {
                return value.clone();
            }
            drop(known);
            let query = Query::Device {
                device: self.id,
                param: param as u32,
            };
            let client = &self.session().ok()?.client;
            let value = match client.call(Request::Query(query)) {
                Ok(Reply::Bytes(bytes)) => Some(bytes),
                Ok(_) => None,
                Err(_) => return None,
            };
            let mut known = self.own.locked();
            known.insert(param, value.clone());
            return value;
        }
        self.description.info(param as u32).map(<[u8]>::to_vec)
    }

    /// A parameter that is a number of four or eight bytes; 0 if it is unknown.
    pub fn number(&self, param: i32) -> u64 {
        self.info(param).map_or(0, |bytes| word(&bytes))
    }

    /// A parameter that is a text, without its final zero.
    pub fn text(&self, param: i32) -> String {
        let bytes = self.info(param).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        text.trim_end_matches('\0').to_owned()
    }
}

impl Object<Device> {
    /// The device of the session: itself, or the one that it is a part of.
    pub fn root_device(&self) -> &Object<Device> {
        match &self.parent {
            Some(parent) => parent.root_device(),
            None => self,
        }
    }

    /// The devices of sessions that it stands for: its own, or those of its pool.
    pub fn roots(&self) -> Vec<&Object<Device>> {
        match &self.pool {
            Some(pool) => pool.devices.iter().map(|d| &**d).collect(),
            None => vec![self.root_device()],
        }
    }

    /// Notes that the program has read a parameter, and reports it to the device's session the
    /// first time. A session that opens later gets all of them.
    pub fn note_read(&self, param: i32) {
        let fact = facts::fact(param as u32);
        let has = |device: &Device| device.facts_read.load(Ordering::Relaxed) & fact == fact;
        if has(self) {
            return;
        }
        for root in self.roots() {
            let before = root.facts_read.fetch_or(fact, Ordering::SeqCst);
            if before & fact == fact {
                continue;
            }
            let sessions = &process::current().sessions;
            let session = sessions.existing(&root.endpoint, &root.description.name);
            if let Some(session) = session {
                let all = root.facts_read.load(Ordering::SeqCst);
                session.client.report_facts(all);
            }
        }
        self.facts_read.fetch_or(fact, Ordering::Relaxed);
    }

    /// `clCreateSubDevices`: at the most `count_max` parts.
    pub fn divide(&self, properties: &[isize], count_max: u32) -> Result<Vec<Ref<Device>>, i32> {
        let session = self.session()?;
        let first = session.client.new_ids(count_max);
        let mut bytes = Vec::new();
        for &property in properties {
            bytes.extend((property as u64).to_le_bytes());
        }
        let request = Request::SubDevices {
            parent: self.id,
            properties: &bytes,
            first,
            count_max,
        };
        match session.client.call(request).map_err(lost)? {
            Reply::Count(count) => {
                let part = |i| {
                    let part = Device::new(
                        first + i,
                        self.endpoint.clone(),
                        self.description.clone(),
                        Some(self.share()),
                        self.memory_bytes,
                    );
                    Object::new(part.with_limits())
                };
                Ok((0..count.min(count_max)).map(part).collect())
            }
            Reply::Error(code) => Err(code),
            _ => Err(CL_OUT_OF_RESOURCES),
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.id == 0 {
            return;
        }
        if let Ok(session) = self.session() {
            // A lost session has released everything.
            let _ = session.client.release(self.id, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_the_texts_beginning() {
        assert_eq!(parse_version("OpenCL 3.0 PoCL HSTR: cpu"), (3, 0));
        assert_eq!(parse_version("OpenCL 1.2 CUDA"), (1, 2));
        assert_eq!(parse_version(""), (1, 0));
    }

    #[test]
    fn extensions_that_need_entry_points_are_left_out() {
        assert!(passes("cl_khr_fp64"));
        // The one that an embedded device has `long` by.
        assert!(passes("cles_khr_int64"));
        assert!(!passes("cl_khr_gl_sharing"));
        let mut bytes = Vec::new();
        for name in ["cl_khr_gl_sharing", "cl_khr_fp64"] {
            bytes.extend(7u32.to_ne_bytes());
            bytes.extend(name.bytes().chain(std::iter::repeat(0)).take(64));
        }
        assert_eq!(filter_versions(&bytes, passes), &bytes[68..]);
    }
}
