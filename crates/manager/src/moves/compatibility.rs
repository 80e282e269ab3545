//! The differences of two devices, for a session that moves from one to the other.

use baltra_wire::facts::fact;
use baltra_wire::opencl::{
    DEVICE_ADDRESS_BITS, DEVICE_DOUBLE_FP_CONFIG, DEVICE_ENDIAN_LITTLE, DEVICE_EXTENSIONS,
    DEVICE_GLOBAL_MEM_SIZE, DEVICE_IMAGE2D_MAX_HEIGHT, DEVICE_IMAGE2D_MAX_WIDTH,
    DEVICE_IMAGE3D_MAX_WIDTH, DEVICE_IMAGE_SUPPORT, DEVICE_LOCAL_MEM_SIZE, DEVICE_LOCAL_MEM_TYPE,
    DEVICE_MAX_COMPUTE_UNITS, DEVICE_MAX_CONSTANT_BUFFER_SIZE, DEVICE_MAX_MEM_ALLOC_SIZE,
    DEVICE_MAX_PARAMETER_SIZE, DEVICE_MAX_READ_IMAGE_ARGS, DEVICE_MAX_SAMPLERS,
    DEVICE_MAX_WORK_GROUP_SIZE, DEVICE_MAX_WORK_ITEM_DIMENSIONS, DEVICE_MAX_WORK_ITEM_SIZES,
    DEVICE_MEM_BASE_ADDR_ALIGN, DEVICE_NAME, DEVICE_OPENCL_C_VERSION,
    DEVICE_PROFILING_TIMER_RESOLUTION, DEVICE_QUEUE_PROPERTIES, DEVICE_SINGLE_FP_CONFIG,
    DEVICE_TYPE, DEVICE_TYPE_CPU, DEVICE_VENDOR, DEVICE_VERSION, DRIVER_VERSION,
};
use baltra_wire::DeviceDescription;

/// Differences of two devices.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// A program cannot continue with these.
    pub forbidding: Vec<String>,
    /// The program has read these, or may have, and relies on them.
    pub facts: Vec<String>,
}

/// The notation of a value.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Number,
    /// Words separated by spaces, of which the target may have more.
    Words,
    Other,
}

/// `cl_device_info` that programs read, by name.
const FACTS: [(u32, &str, Kind); 27] = [
    (DEVICE_TYPE, "type", Kind::Number),
    (DEVICE_NAME, "name", Kind::Text),
    (DEVICE_VENDOR, "vendor", Kind::Text),
    (DRIVER_VERSION, "driver version", Kind::Text),
    (DEVICE_VERSION, "OpenCL version", Kind::Text),
    (DEVICE_OPENCL_C_VERSION, "OpenCL C version", Kind::Text),
    (DEVICE_MAX_COMPUTE_UNITS, "compute units", Kind::Number),
    (
        DEVICE_MAX_WORK_ITEM_DIMENSIONS,
        "work-item dimensions",
        Kind::Number,
    ),
    (DEVICE_MAX_WORK_GROUP_SIZE, "work-group size", Kind::Number),
    (DEVICE_MAX_WORK_ITEM_SIZES, "work-item sizes", Kind::Other),
    (
        DEVICE_SINGLE_FP_CONFIG,
        "single-precision arithmetic",
        Kind::Number,
    ),
    (
        DEVICE_DOUBLE_FP_CONFIG,
        "double-precision arithmetic",
        Kind::Number,
    ),
    (DEVICE_GLOBAL_MEM_SIZE, "memory", Kind::Number),
    (
        DEVICE_MAX_MEM_ALLOC_SIZE,
        "largest allocation",
        Kind::Number,
    ),
    (DEVICE_LOCAL_MEM_SIZE, "local memory", Kind::Number),
    (DEVICE_LOCAL_MEM_TYPE, "kind of local memory", Kind::Number),
    (
        DEVICE_MAX_CONSTANT_BUFFER_SIZE,
        "constant memory",
        Kind::Number,
    ),
    (
        DEVICE_MAX_PARAMETER_SIZE,
        "size of a kernel's arguments",
        Kind::Number,
    ),
    (
        DEVICE_MEM_BASE_ADDR_ALIGN,
        "alignment of sub-buffers",
        Kind::Number,
    ),
    (DEVICE_IMAGE2D_MAX_WIDTH, "width of 2D images", Kind::Number),
    (
        DEVICE_IMAGE2D_MAX_HEIGHT,
        "height of 2D images",
        Kind::Number,
    ),
    (DEVICE_IMAGE3D_MAX_WIDTH, "width of 3D images", Kind::Number),
    (
        DEVICE_MAX_READ_IMAGE_ARGS,
        "images that a kernel reads",
        Kind::Number,
    ),
    (DEVICE_MAX_SAMPLERS, "samplers of a kernel", Kind::Number),
    (
        DEVICE_PROFILING_TIMER_RESOLUTION,
        "resolution of the profiling timer",
        Kind::Number,
    ),
    (DEVICE_QUEUE_PROPERTIES, "queue properties", Kind::Number),
    (DEVICE_EXTENSIONS, "extensions", Kind::Words),
];

/// The differences of `to` for a program that has begun on `from`, and has read the facts `read`
/// ([`baltra_wire::facts`]).
pub fn compare(from: &DeviceDescription, to: &DeviceDescription, read: u64) -> Differences {
    let mut differences = Differences::default();
    let mut forbid = |param, what: &str| {
        let (own, other) = (from.number(param), to.number(param));
        if own != other {
            let text = format!("{what}: {other}, not {own}");
            differences.forbidding.push(text);
        }
    };
    forbid(DEVICE_ADDRESS_BITS, "address size in bits");
    forbid(DEVICE_ENDIAN_LITTLE, "little-endian byte order");
    let is_read = |param| fact(param) & read != 0;
    if is_read(DEVICE_IMAGE_SUPPORT)
        && from.number(DEVICE_IMAGE_SUPPORT) != 0
        && to.number(DEVICE_IMAGE_SUPPORT) == 0
    {
        differences.facts.push("the device has no images".into());
    }
    // The memory of a processor is the host's, of which drivers report what is free when they are
    // loaded: the same device has another amount each time.
    let is_processor =
        |device: &DeviceDescription| device.number(DEVICE_TYPE) & DEVICE_TYPE_CPU != 0;
    let is_host_memory = is_processor(from) && is_processor(to);
    for (param, name, kind) in FACTS {
        let (own, other) = (from.info(param), to.info(param));
        let is_amount = [DEVICE_GLOBAL_MEM_SIZE, DEVICE_MAX_MEM_ALLOC_SIZE].contains(&param);
        if own == other || is_amount && is_host_memory || !is_read(param) {
            continue;
        }
        let text = match kind {
            Kind::Text => format!("{name} '{}', not '{}'", to.text(param), from.text(param)),
            Kind::Number => format!("{name} {}, not {}", to.number(param), from.number(param)),
            Kind::Other => format!("other {name}"),
            Kind::Words => {
                let (own, other) = (from.text(param), to.text(param));
                let has = |word: &&str| other.split(' ').any(|one| one == *word);
                let missing = own.split(' ').filter(|word| !word.is_empty() && !has(word));
                let missing: Vec<_> = missing.collect();
                if missing.is_empty() {
                    continue;
                }
                format!("without the {name} {}", missing.join(", "))
            }
        };
        differences.facts.push(text);
    }
    differences
}

#[cfg(test)]
mod tests {
    use super::*;
    use baltra_wire::facts::ALL;
    use baltra_wire::opencl;
    use baltra_wire::Info;

    fn device(bits: u32, name: &str, extensions: &str) -> DeviceDescription {
        let info = |param, value: Vec<u8>| Info { param, value };
        DeviceDescription {
            device: vec![
                info(DEVICE_ADDRESS_BITS, bits.to_ne_bytes().to_vec()),
                info(DEVICE_NAME, name.as_bytes().to_vec()),
                info(DEVICE_EXTENSIONS, extensions.as_bytes().to_vec()),
            ],
            ..DeviceDescription::default()
        }
    }

    #[test]
    fn equal_devices_differ_in_nothing() {
        let own = device(64, "a", "x y");
        assert_eq!(compare(&own, &own, ALL), Differences::default());
    }

    #[test]
    fn the_amount_of_the_host_s_memory_is_no_difference() {
        let device = |kind: u64, bytes: u64| {
            let info = |param, value: u64| Info {
                param,
                value: value.to_ne_bytes().to_vec(),
            };
            DeviceDescription {
                device: vec![
                    info(DEVICE_TYPE, kind),
                    info(DEVICE_GLOBAL_MEM_SIZE, bytes),
                    info(DEVICE_MAX_MEM_ALLOC_SIZE, bytes / 4),
                ],
                ..DeviceDescription::default()
            }
        };
        let (cpu, gpu) = (DEVICE_TYPE_CPU, opencl::DEVICE_TYPE_GPU);
        let facts = |from, to| compare(&device(from, 1 << 30), &device(to, 2 << 30), ALL).facts;
        assert!(facts(cpu, cpu).is_empty());
        assert_eq!(facts(gpu, gpu).len(), 2);
        assert_eq!(facts(cpu, gpu).len(), 3);
    }

    #[test]
    fn facts_are_not_what_forbids_a_move() {
        let differences = compare(&device(64, "a", "x y"), &device(32, "b", "y z"), ALL);
        assert_eq!(differences.forbidding, ["address size in bits: 32, not 64"]);
        assert_eq!(
            differences.facts,
            ["name 'b', not 'a'", "without the extensions x"]
        );
        let more = compare(&device(64, "a", "x"), &device(64, "a", "x y"), ALL);
        assert_eq!(more, Differences::default());
    }

    #[test]
    fn facts_that_were_not_read_do_not_count() {
        let (from, to) = (device(64, "a", "x y"), device(64, "b", "y z"));
        assert_eq!(compare(&from, &to, 0), Differences::default());
        let named = compare(&from, &to, fact(DEVICE_NAME));
        assert_eq!(named.facts, ["name 'b', not 'a'"]);
        let other = device(32, "a", "x");
        assert_eq!(compare(&from, &other, 0).forbidding.len(), 1);
    }

    #[test]
    fn each_compared_fact_is_one_that_programs_report() {
        assert!(FACTS.iter().all(|(param, ..)| fact(*param) != 0));
    }
}
