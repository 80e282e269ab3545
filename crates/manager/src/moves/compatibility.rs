//! What differs between two devices, for a session that moves from one to the other.

use baltra_wire::DeviceDescription;

/// Differences of two devices.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// A program cannot continue with these.
    pub forbidding: Vec<String>,
    /// The program may have read these and rely on them.
    pub facts: Vec<String>,
}

/// How a value is shown.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Number,
    /// Words separated by spaces, of which the target may have more.
    Words,
    Other,
}

const CL_DEVICE_TYPE: u32 = 0x1000;
const CL_DEVICE_TYPE_CPU: u64 = 2;
const CL_DEVICE_GLOBAL_MEM_SIZE: u32 = 0x101F;
const CL_DEVICE_ADDRESS_BITS: u32 = 0x100D;
const CL_DEVICE_ENDIAN_LITTLE: u32 = 0x1026;
const CL_DEVICE_IMAGE_SUPPORT: u32 = 0x1016;
/// Bytes.
pub const CL_DEVICE_MAX_MEM_ALLOC_SIZE: u32 = 0x1010;

/// `cl_device_info` that programs read, by name.
const FACTS: [(u32, &str, Kind); 27] = [
    (CL_DEVICE_TYPE, "type", Kind::Number),
    (0x102B, "name", Kind::Text),
    (0x102C, "vendor", Kind::Text),
    (0x102D, "driver version", Kind::Text),
    (0x102F, "OpenCL version", Kind::Text),
    (0x103D, "OpenCL C version", Kind::Text),
    (0x1002, "compute units", Kind::Number),
    (0x1003, "work-item dimensions", Kind::Number),
    (0x1004, "work-group size", Kind::Number),
    (0x1005, "work-item sizes", Kind::Other),
    (0x101B, "single-precision arithmetic", Kind::Number),
    (0x1032, "double-precision arithmetic", Kind::Number),
    (CL_DEVICE_GLOBAL_MEM_SIZE, "memory", Kind::Number),
    (
        CL_DEVICE_MAX_MEM_ALLOC_SIZE,
        "largest allocation",
        Kind::Number,
    ),
    (0x1023, "local memory", Kind::Number),
    (0x1022, "kind of local memory", Kind::Number),
    (0x1020, "constant memory", Kind::Number),
    (0x1017, "size of a kernel's arguments", Kind::Number),
    (0x1019, "alignment of sub-buffers", Kind::Number),
    (0x1011, "width of 2D images", Kind::Number),
    (0x1012, "height of 2D images", Kind::Number),
    (0x1013, "width of 3D images", Kind::Number),
    (0x100E, "images that a kernel reads", Kind::Number),
    (0x1018, "samplers of a kernel", Kind::Number),
    (0x1025, "resolution of the profiling timer", Kind::Number),
    (0x102A, "queue properties", Kind::Number),
    (0x1030, "extensions", Kind::Words),
];

/// What differs on `to` for a program that has begun on `from`.
pub fn compare(from: &DeviceDescription, to: &DeviceDescription) -> Differences {
    let mut differences = Differences::default();
    let mut forbid = |param, what: &str| {
        let (own, other) = (from.number(param), to.number(param));
        if own != other {
            let text = format!("{what}: {other}, not {own}");
            differences.forbidding.push(text);
        }
    };
    forbid(CL_DEVICE_ADDRESS_BITS, "address size in bits");
    forbid(CL_DEVICE_ENDIAN_LITTLE, "little-endian byte order");
    if from.number(CL_DEVICE_IMAGE_SUPPORT) != 0 && to.number(CL_DEVICE_IMAGE_SUPPORT) == 0 {
        differences.facts.push("the device has no images".into());
    }
    // The memory of a processor is the host's, of which drivers report what is free when they are
    // loaded: the same device has another amount each time.
    let is_processor =
        |device: &DeviceDescription| device.number(CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU != 0;
    let is_host_memory = is_processor(from) && is_processor(to);
    for (param, name, kind) in FACTS {
        let (own, other) = (from.info(param), to.info(param));
        let is_amount = [CL_DEVICE_GLOBAL_MEM_SIZE, CL_DEVICE_MAX_MEM_ALLOC_SIZE].contains(&param);
        if own == other || is_amount && is_host_memory {
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
    use baltra_wire::Info;

    fn device(bits: u32, name: &str, extensions: &str) -> DeviceDescription {
        let info = |param, value: Vec<u8>| Info { param, value };
        DeviceDescription {
            device: vec![
                info(CL_DEVICE_ADDRESS_BITS, bits.to_ne_bytes().to_vec()),
                info(0x102B, name.as_bytes().to_vec()),
                info(0x1030, extensions.as_bytes().to_vec()),
            ],
            ..DeviceDescription::default()
        }
    }

    #[test]
    fn test_equal_devices_differ_in_nothing() {
        let own = device(64, "a", "x y");
        assert_eq!(compare(&own, &own), Differences::default());
    }

    #[test]
    fn test_the_amount_of_the_host_s_memory_is_no_difference() {
        let device = |kind: u64, bytes: u64| {
            let info = |param, value: u64| Info {
                param,
                value: value.to_ne_bytes().to_vec(),
            };
            DeviceDescription {
                device: vec![
                    info(CL_DEVICE_TYPE, kind),
                    info(CL_DEVICE_GLOBAL_MEM_SIZE, bytes),
                    info(CL_DEVICE_MAX_MEM_ALLOC_SIZE, bytes / 4),
                ],
                ..DeviceDescription::default()
            }
        };
        let (cpu, gpu) = (CL_DEVICE_TYPE_CPU, 4);
        let facts = |from, to| compare(&device(from, 1 << 30), &device(to, 2 << 30)).facts;
        assert!(facts(cpu, cpu).is_empty());
        assert_eq!(facts(gpu, gpu).len(), 2);
        assert_eq!(facts(cpu, gpu).len(), 3);
    }

    #[test]
    fn test_facts_are_not_what_forbids_a_move() {
        let differences = compare(&device(64, "a", "x y"), &device(32, "b", "y z"));
        assert_eq!(differences.forbidding, ["address size in bits: 32, not 64"]);
        assert_eq!(
            differences.facts,
            ["name 'b', not 'a'", "without the extensions x"]
        );
        let more = compare(&device(64, "a", "x"), &device(64, "a", "x y"));
        assert_eq!(more, Differences::default());
    }
}
