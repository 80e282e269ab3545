//! The facts about its device that a program has read: parameters of `clGetDeviceInfo` whose values
//! it may rely on. A set of them is a number with one bit for each.

use crate::opencl::{
    DEVICE_DOUBLE_FP_CONFIG, DEVICE_EXTENSIONS, DEVICE_GLOBAL_MEM_SIZE, DEVICE_IMAGE2D_MAX_HEIGHT,
    DEVICE_IMAGE2D_MAX_WIDTH, DEVICE_IMAGE3D_MAX_WIDTH, DEVICE_IMAGE_SUPPORT,
    DEVICE_LOCAL_MEM_SIZE, DEVICE_LOCAL_MEM_TYPE, DEVICE_MAX_COMPUTE_UNITS,
    DEVICE_MAX_CONSTANT_BUFFER_SIZE, DEVICE_MAX_MEM_ALLOC_SIZE, DEVICE_MAX_PARAMETER_SIZE,
    DEVICE_MAX_READ_IMAGE_ARGS, DEVICE_MAX_SAMPLERS, DEVICE_MAX_WORK_GROUP_SIZE,
    DEVICE_MAX_WORK_ITEM_DIMENSIONS, DEVICE_MAX_WORK_ITEM_SIZES, DEVICE_MEM_BASE_ADDR_ALIGN,
    DEVICE_NAME, DEVICE_OPENCL_C_VERSION, DEVICE_PROFILING_TIMER_RESOLUTION,
    DEVICE_QUEUE_PROPERTIES, DEVICE_SINGLE_FP_CONFIG, DEVICE_TYPE, DEVICE_VENDOR, DEVICE_VERSION,
    DRIVER_VERSION,
};

/// The parameters, in the order of their bits. New ones are appended: a program of an earlier
/// release has not reported them, and its manager does not compare them.
const PARAMS: [u32; 28] = [
    DEVICE_TYPE,
    DEVICE_NAME,
    DEVICE_VENDOR,
    DRIVER_VERSION,
    DEVICE_VERSION,
    DEVICE_OPENCL_C_VERSION,
    DEVICE_MAX_COMPUTE_UNITS,
    DEVICE_MAX_WORK_ITEM_DIMENSIONS,
    DEVICE_MAX_WORK_GROUP_SIZE,
    DEVICE_MAX_WORK_ITEM_SIZES,
    DEVICE_SINGLE_FP_CONFIG,
    DEVICE_DOUBLE_FP_CONFIG,
    DEVICE_GLOBAL_MEM_SIZE,
    DEVICE_MAX_MEM_ALLOC_SIZE,
    DEVICE_LOCAL_MEM_SIZE,
    DEVICE_LOCAL_MEM_TYPE,
    DEVICE_MAX_CONSTANT_BUFFER_SIZE,
    DEVICE_MAX_PARAMETER_SIZE,
    DEVICE_MEM_BASE_ADDR_ALIGN,
    DEVICE_IMAGE2D_MAX_WIDTH,
    DEVICE_IMAGE2D_MAX_HEIGHT,
    DEVICE_IMAGE3D_MAX_WIDTH,
    DEVICE_MAX_READ_IMAGE_ARGS,
    DEVICE_MAX_SAMPLERS,
    DEVICE_PROFILING_TIMER_RESOLUTION,
    DEVICE_QUEUE_PROPERTIES,
    DEVICE_EXTENSIONS,
    DEVICE_IMAGE_SUPPORT,
];

/// Parameters that report the same fact in another form: `CL_DEVICE_VENDOR_ID`,
/// `CL_DEVICE_NUMERIC_VERSION`, `CL_DEVICE_EXTENSIONS_WITH_VERSION`,
/// `CL_DEVICE_OPENCL_C_ALL_VERSIONS`, `CL_DEVICE_OPENCL_C_NUMERIC_VERSION_KHR`.
const ALIASES: [(u32, u32); 5] = [
    (0x1001, DEVICE_VENDOR),
    (0x105E, DEVICE_VERSION),
    (0x1060, DEVICE_EXTENSIONS),
    (0x1066, DEVICE_OPENCL_C_VERSION),
    (0x105F, DEVICE_OPENCL_C_VERSION),
];

/// All facts.
pub const ALL: u64 = (1 << PARAMS.len()) - 1;

/// The set of the fact that a parameter reports; empty: none that devices are compared by.
pub fn fact(param: u32) -> u64 {
    let alias = ALIASES.iter().find(|(alias, _)| *alias == param);
    let param = alias.map_or(param, |(_, param)| *param);
    let bit = PARAMS.iter().position(|own| *own == param);
    bit.map_or(0, |bit| 1 << bit)
}

/// The facts that a program has read, once it has reported them. Each step of a session's way adds
/// what it sees of the reports; unknown facts are dropped.
#[derive(Debug, Default)]
pub struct FactsRead(std::sync::atomic::AtomicU64);

/// The program has reported.
const REPORTED: u64 = 1 << 63;

impl FactsRead {
    /// The facts so far; `None`: the program has not reported.
    pub fn new(facts: Option<u64>) -> FactsRead {
        let read = FactsRead::default();
        read.set(facts);
        read
    }

    /// Replaces the facts.
    pub fn set(&self, facts: Option<u64>) {
        let value = facts.map_or(0, |facts| facts & ALL | REPORTED);
        self.0.store(value, std::sync::atomic::Ordering::Relaxed);
    }

    /// The program reports that it has read these.
    pub fn add(&self, facts: u64) {
        let value = facts & ALL | REPORTED;
        self.0.fetch_or(value, std::sync::atomic::Ordering::Relaxed);
    }

    /// The facts; `None`: the program has not reported, and may have read all of them.
    pub fn get(&self) -> Option<u64> {
        let value = self.0.load(std::sync::atomic::Ordering::Relaxed);
        (value & REPORTED != 0).then_some(value & ALL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fact_has_its_own_bit() {
        let sets = PARAMS.map(fact);
        assert_eq!(sets.iter().fold(0, |all, set| all | set), ALL);
        assert!(sets.iter().all(|set| set.count_ones() == 1));
        assert_eq!(fact(0x1060), fact(DEVICE_EXTENSIONS));
        assert_eq!(fact(0xFFFF), 0);
    }

    #[test]
    fn unknown_facts_are_dropped() {
        let read = FactsRead::default();
        assert_eq!(read.get(), None);
        read.add(u64::MAX);
        assert_eq!(read.get(), Some(ALL));
        read.set(Some(u64::MAX));
        assert_eq!(read.get(), Some(ALL));
        read.set(None);
        assert_eq!(read.get(), None);
        read.add(0);
        assert_eq!(read.get(), Some(0));
    }
}
