//! A pool: several devices that the program sees as one (`BALTRA_POOL`).
//!
//! A context of the pool has a member in the session of each device; programs, kernels and memory
//! objects have replicas there, and contents follow commands ([`crate::core::replica`]). A command
//! queue is bound to one device for its lifetime. The pool's properties are those that hold on each
//! of its devices.

use crate::core::context::Context;
use crate::core::device::{word, Device};
use crate::core::object::{Object, Ref};
use crate::core::process;
use baltra_opencl::*;
use baltra_ring::Locked;

/// Bytes of a `cl_name_version`.
const NAME_VERSION: usize = size_of::<cl_name_version>();
/// Vendors' parameters for the place of a device, as the standard ones: NVIDIA's position on the
/// PCI bus and AMD's topology.
const PLACES: [i32; 4] = [0x4008, 0x4009, 0x400A, 0x4037];
/// Extensions that identify one device.
const IDENTIFYING: [&str; 2] = ["cl_khr_device_uuid", "cl_khr_pci_bus_info"];
/// Properties that the devices of a pool share, with their names for the error.
const SHARED: [(i32, &str); 5] = [
    (CL_DEVICE_TYPE, "type"),
    (CL_DEVICE_ADDRESS_BITS, "address bits"),
    (CL_DEVICE_ENDIAN_LITTLE, "byte order"),
    (CL_DEVICE_PROFILE, "profile"),
    (CL_DEVICE_OPENCL_C_VERSION, "OpenCL C version"),
];
/// Properties of which binaries depend.
const COMPILED_FOR: [i32; 4] = [
    CL_DEVICE_NAME,
    CL_DEVICE_VENDOR,
    CL_DEVICE_VERSION,
    CL_DRIVER_VERSION,
];

/// The devices of a pool.
pub struct Pool {
    /// The devices, none of which the program sees.
    pub devices: Vec<Ref<Device>>,
    /// The devices' shares of the queues.
    weights: Vec<f64>,
    /// Whether a binary for one of the devices is one for all.
    pub is_uniform: bool,
}

/// A device that a manager has listed.
pub struct Listed {
    /// The manager's node.
    pub node: String,
    /// The device.
    pub device: Ref<Device>,
}

impl Listed {
    fn name(&self) -> &str {
        &self.device.description().name
    }

    /// Whether `entry`, a name or `node/name`, means this device.
    fn is(&self, entry: &str) -> bool {
        match entry.rsplit_once('/') {
            Some((node, name)) => node == self.node && name == self.name(),
            None => entry == self.name(),
        }
    }
}

/// The pool that `text` requests, of the listed devices: their number, or their names, each with
/// its weight (`a=2,west/b=1`); empty: none.
pub fn form(listed: &[Listed], text: &str) -> Result<Option<Pool>, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let chosen: Vec<(&Listed, Option<f64>)> = match text.parse::<usize>() {
        Ok(0) => return Err("a pool has at least one device".into()),
        Ok(count) if count > listed.len() => {
            let found = listed.len();
            return Err(format!("{count} devices are requested, {found} are there"));
        }
        Ok(count) => listed[..count].iter().map(|one| (one, None)).collect(),
        Err(_) => named(listed, text)?,
    };
    let first = chosen[0].0;
    for (other, _) in &chosen[1..] {
        if let Some((what, one, another)) = difference(&first.device, &other.device) {
            return Err(format!(
                "{}/{} and {}/{} differ in {what} ({one}, {another})",
                first.node,
                first.name(),
                other.node,
                other.name()
            ));
        }
    }
    let devices: Vec<Ref<Device>> = chosen.iter().map(|(one, _)| one.device.clone()).collect();
    let weights = chosen.iter().map(|(one, weight)| match weight {
        Some(weight) => *weight,
        None => speed(&one.device),
    });
    let alike = |param: i32| {
        devices
            .iter()
            .all(|d| d.info(param) == devices[0].info(param))
    };
    Ok(Some(Pool {
        weights: weights.collect(),
        is_uniform: COMPILED_FOR.into_iter().all(alike),
        devices,
    }))
}

/// The devices with these names, and their weights.
fn named<'a>(listed: &'a [Listed], text: &str) -> Result<Vec<(&'a Listed, Option<f64>)>, String> {
    let mut chosen: Vec<(&Listed, Option<f64>)> = Vec::new();
    for entry in text.split(',').map(str::trim).filter(|e| !e.is_empty()) {
        let (name, weight) = match entry.split_once('=') {
            None => (entry, None),
            Some((name, weight)) => {
                let weight = weight.trim().parse().ok();
                let usable = weight.filter(|w: &f64| w.is_finite() && *w > 0.0);
                let usable = usable.ok_or(format!("'{entry}': a weight is a number above 0"))?;
                (name.trim(), Some(usable))
            }
        };
        let found = listed.iter().find(|one| {
            let taken = |c: &(&Listed, _)| std::ptr::eq(c.0, *one);
            one.is(name) && !chosen.iter().any(taken)
        });
        let found = found.ok_or(format!("no (further) device is named '{name}'"))?;
        chosen.push((found, weight));
    }
    if chosen.is_empty() {
        return Err(format!("'{text}' names no device"));
    }
    Ok(chosen)
}

/// The first of [`SHARED`] that two devices do not share: its name and both values.
fn difference(one: &Device, other: &Device) -> Option<(&'static str, String, String)> {
    let value = |device: &Device, param| match param {
        CL_DEVICE_PROFILE => device.text(param),
        // "OpenCL C 1.2 more"
        CL_DEVICE_OPENCL_C_VERSION => {
            let text = device.text(param);
            text.split_whitespace()
                .nth(2)
                .unwrap_or_default()
                .to_owned()
        }
        _ => device.number(param).to_string(),
    };
    SHARED.iter().find_map(|&(param, what)| {
        let (one, other) = (value(one, param), value(other, param));
        (one != other).then_some((what, one, other))
    })
}

/// The weight of a device that has none: what devices of one kind differ in.
fn speed(device: &Device) -> f64 {
    let units = device.number(CL_DEVICE_MAX_COMPUTE_UNITS).max(1);
    let clock = device.number(CL_DEVICE_MAX_CLOCK_FREQUENCY).max(1);
    units as f64 * clock as f64
}

/// The assignment of a queue to a device of the pool, until it is dropped.
pub struct DeviceAssignment(usize);

impl Drop for DeviceAssignment {
    fn drop(&mut self) {
        let mut queues = process::current().pooled_queues.locked();
        queues[self.0] = queues[self.0].saturating_sub(1);
    }
}

/// Of these members, with their indices in the pool, the one that has the lowest load with another
/// queue.
fn least(
    queues: &[usize],
    weights: &[f64],
    places: impl Iterator<Item = (usize, usize)>,
) -> Option<(usize, usize)> {
    let load = |at: usize| (queues[at] + 1) as f64 / weights[at];
    places.min_by(|a, b| load(a.1).total_cmp(&load(b.1)))
}

impl Pool {
    /// The member of `context` for a new queue: the one with the fewest queues for its weight among
    /// those that have not been lost.
    pub fn place(
        &self,
        context: &Context,
        pool: &Object<Device>,
    ) -> Option<(usize, DeviceAssignment)> {
        let mut queues = process::current().pooled_queues.locked();
        queues.resize(self.devices.len(), 0);
        let members = context.members_of(pool).filter(|m| !context.is_gone(*m));
        let places = members.filter_map(|member| {
            let device = &context.members[member].device;
            let at = self
                .devices
                .iter()
                .position(|d| std::ptr::eq(&**d, &**device))?;
            Some((member, at))
        });
        let (member, at) = least(&queues, &self.weights, places)?;
        queues[at] += 1;
        Some((member, DeviceAssignment(at)))
    }

    /// The pool's answer to `clGetDeviceInfo`; `None`: it has none.
    pub fn info(&self, param: i32) -> Option<Vec<u8>> {
        let all: Option<Vec<Vec<u8>>> = self.devices.iter().map(|d| d.info(param)).collect();
        combine(param, &all?)
    }
}

/// The value of a parameter that holds on devices with these values.
fn combine(param: i32, all: &[Vec<u8>]) -> Option<Vec<u8>> {
    let first = all.first()?;
    let equal = all.iter().all(|value| value == first);
    match param {
        CL_DEVICE_UUID_KHR
        | CL_DEVICE_LUID_VALID_KHR
        | CL_DEVICE_LUID_KHR
        | CL_DEVICE_NODE_MASK_KHR
        | CL_DEVICE_PCI_BUS_INFO_KHR => None,
        place if PLACES.contains(&place) => None,
        CL_DEVICE_NAME => {
            let mut names = distinct(all);
            names.push_str(&format!(" (pool of {})\0", all.len()));
            Some(names.into_bytes())
        }
        CL_DEVICE_VENDOR | CL_DRIVER_VERSION => Some((distinct(all) + "\0").into_bytes()),
        CL_DEVICE_VERSION => all
            .iter()
            .min_by_key(|value| crate::core::device::parse_version(&text(value)))
            .cloned(),
        CL_DEVICE_EXTENSIONS => {
            let kept = common(all, ' ');
            let kept = kept.iter().filter(|e| !IDENTIFYING.contains(&e.as_str()));
            let kept: Vec<&str> = kept.map(String::as_str).collect();
            Some(format!("{}\0", kept.join(" ")).into_bytes())
        }
        CL_DEVICE_EXTENSIONS_WITH_VERSION => {
            let keep = |name: &str| !IDENTIFYING.contains(&name);
            let common = common_versions(all);
            Some(crate::core::device::filter_versions(&common, keep))
        }
        CL_DEVICE_OPENCL_C_FEATURES => {
            let keep = |name: &str| name != "__opencl_c_pipes";
            let common = common_versions(all);
            Some(crate::core::device::filter_versions(&common, keep))
        }
        CL_DEVICE_OPENCL_C_ALL_VERSIONS
        | CL_DEVICE_ILS_WITH_VERSION
        | CL_DEVICE_BUILT_IN_KERNELS_WITH_VERSION => Some(common_versions(all)),
        CL_DEVICE_IL_VERSION => Some(format!("{}\0", common(all, ' ').join(" ")).into_bytes()),
        CL_DEVICE_BUILT_IN_KERNELS => {
            Some(format!("{}\0", common(all, ';').join(";")).into_bytes())
        }
        CL_DEVICE_AVAILABLE => number(all, u64::max),
        // Pointers and pipes are valid in one session; parts would have to be parts of each device.
        CL_DEVICE_SVM_CAPABILITIES
        | CL_DEVICE_PIPE_SUPPORT
        | CL_DEVICE_MAX_PIPE_ARGS
        | CL_DEVICE_PIPE_MAX_ACTIVE_RESERVATIONS
        | CL_DEVICE_PIPE_MAX_PACKET_SIZE
        | CL_DEVICE_PARTITION_MAX_SUB_DEVICES
        | CL_DEVICE_PARTITION_AFFINITY_DOMAIN => number(all, |_, _| 0),
        CL_DEVICE_PARTITION_PROPERTIES => Some(vec![0; size_of::<isize>()]),
        CL_DEVICE_SINGLE_FP_CONFIG
        | CL_DEVICE_DOUBLE_FP_CONFIG
        | CL_DEVICE_HALF_FP_CONFIG
        | CL_DEVICE_QUEUE_PROPERTIES
        | CL_DEVICE_ATOMIC_MEMORY_CAPABILITIES
        | CL_DEVICE_ATOMIC_FENCE_CAPABILITIES => number(all, |a, b| a & b),
        CL_DEVICE_MEM_BASE_ADDR_ALIGN
        | CL_DEVICE_MIN_DATA_TYPE_ALIGN_SIZE
        | CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE
        | CL_DEVICE_PROFILING_TIMER_RESOLUTION
        | CL_DEVICE_IMAGE_PITCH_ALIGNMENT
        | CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT
        | CL_DEVICE_PREFERRED_PLATFORM_ATOMIC_ALIGNMENT
        | CL_DEVICE_PREFERRED_GLOBAL_ATOMIC_ALIGNMENT
        | CL_DEVICE_PREFERRED_LOCAL_ATOMIC_ALIGNMENT
        | CL_DEVICE_PREFERRED_WORK_GROUP_SIZE_MULTIPLE
        // Global memory is the higher value.
        | CL_DEVICE_LOCAL_MEM_TYPE => number(all, u64::max),
        CL_DEVICE_MAX_WORK_ITEM_SIZES => {
            let sizes = |value: &Vec<u8>| value.chunks_exact(8).map(word).collect::<Vec<_>>();
            let least = all.iter().map(sizes).reduce(|a, b| {
                let pairs = a.iter().zip(&b);
                pairs.map(|(a, b)| *a.min(b)).collect()
            })?;
            Some(least.iter().flat_map(|n| n.to_ne_bytes()).collect())
        }
        _ if equal => Some(first.clone()),
        // Limits, sizes and abilities (0 or 1).
        _ if matches!(first.len(), 4 | 8) => number(all, u64::min),
        CL_DEVICE_LATEST_CONFORMANCE_VERSION_PASSED => all.iter().min().cloned(),
        _ => None,
    }
}

/// The value of `clGetKernelWorkGroupInfo` that holds in each of the sessions with these.
pub fn combine_kernel(param: u32, all: &[Vec<u8>]) -> Option<Vec<u8>> {
    match param as i32 {
        _ if all.len() == 1 => all.first().cloned(),
        CL_KERNEL_LOCAL_MEM_SIZE
        | CL_KERNEL_PRIVATE_MEM_SIZE
        | CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE => number(all, u64::max),
        CL_KERNEL_WORK_GROUP_SIZE => number(all, u64::min),
        _ => all.first().cloned(),
    }
}

/// One number of several of the same length, four or eight bytes.
fn number(all: &[Vec<u8>], of: impl Fn(u64, u64) -> u64) -> Option<Vec<u8>> {
    let len = all.first()?.len();
    let value = all.iter().map(|value| word(value)).reduce(of)?;
    Some(value.to_ne_bytes()[..len.min(8)].to_vec())
}

fn text(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    text.trim_end_matches('\0').trim().to_owned()
}

/// The texts without repetition, in their order.
fn distinct(all: &[Vec<u8>]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for text in all.iter().map(|value| text(value)) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts.join(", ")
}

/// The words that all have.
fn common(all: &[Vec<u8>], separator: char) -> Vec<String> {
    let words = |value: &Vec<u8>| {
        let text = text(value);
        let words = text.split(separator).filter(|w| !w.is_empty());
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    let mut lists = all.iter().map(words);
    let mut kept = lists.next().unwrap_or_default();
    for list in lists {
        kept.retain(|word| list.contains(word));
    }
    kept
}

/// The `cl_name_version`s that all have.
fn common_versions(all: &[Vec<u8>]) -> Vec<u8> {
    let first = all.first().map_or(&[][..], Vec::as_slice);
    let has = |value: &Vec<u8>, entry: &[u8]| value.chunks_exact(NAME_VERSION).any(|e| e == entry);
    let entries = first.chunks_exact(NAME_VERSION);
    let kept = entries.filter(|entry| all.iter().all(|value| has(value, entry)));
    kept.flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use baltra_session::Endpoint;
    use baltra_wire::{DeviceDescription, Info};

    /// A device of which these parameters are known.
    fn listed(node: &str, name: &str, known: &[(i32, &[u8])]) -> Listed {
        let info = |(param, value): &(i32, &[u8])| Info {
            param: *param as u32,
            value: value.to_vec(),
        };
        let description = DeviceDescription {
            name: name.into(),
            device: known.iter().map(info).collect(),
            ..DeviceDescription::default()
        };
        let endpoint = Endpoint::Unix("/nowhere".into());
        Listed {
            node: node.into(),
            device: Object::new(Device::root(endpoint, description, u64::MAX)),
        }
    }

    fn units(n: u32) -> [u8; 4] {
        n.to_ne_bytes()
    }

    #[test]
    fn a_pool_is_chosen_by_number_or_by_names() {
        let units = [units(8), units(4)];
        let unit = |at: usize| [(CL_DEVICE_MAX_COMPUTE_UNITS, &units[at][..])];
        let all = [
            listed("east", "a", &unit(0)),
            listed("west", "a", &unit(1)),
            listed("west", "b", &unit(1)),
        ];
        let pool = |text: &str| form(&all, text).map(|pool| pool.map(|p| p.weights));
        assert_eq!(pool(" "), Ok(None));
        // The weights of devices without a given weight are computed from their properties.
        assert_eq!(pool("2"), Ok(Some(vec![8.0, 4.0])));
        assert_eq!(pool("b=3, west/a, a=0.5"), Ok(Some(vec![3.0, 4.0, 0.5])));
        for refused in ["0", "4", "c", "b,b", "a=", "a=0", "a=-1", "a=inf", ","] {
            assert!(pool(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn queues_are_spread_by_weight() {
        let spread = |weights: &[f64], absent: usize, count: usize| {
            let mut queues = vec![0; weights.len()];
            for _ in 0..count {
                let present = (0..weights.len()).filter(|at| *at != absent);
                let (_, at) = least(&queues, weights, present.map(|at| (at, at))).unwrap();
                queues[at] += 1;
            }
            queues
        };
        assert_eq!(spread(&[1.0, 1.0], 9, 3), [2, 1]);
        assert_eq!(spread(&[3.0, 1.0], 9, 8), [6, 2]);
        assert_eq!(spread(&[0.5, 1.5, 1.0], 9, 6), [1, 3, 2]);
        assert_eq!(spread(&[3.0, 1.0, 1.0], 0, 4), [0, 2, 2]);
        assert_eq!(least(&[0], &[1.0], std::iter::empty()), None);
    }

    #[test]
    fn devices_that_no_program_can_take_for_one_are_refused() {
        let number = |n: u32| n.to_ne_bytes();
        let (little, big, bits64, bits32) = (number(1), number(0), number(64), number(32));
        let (cpu, gpu) = (2u64.to_ne_bytes(), 4u64.to_ne_bytes());
        let alike: [(i32, &[u8]); 5] = [
            (CL_DEVICE_TYPE, &cpu),
            (CL_DEVICE_ADDRESS_BITS, &bits64),
            (CL_DEVICE_ENDIAN_LITTLE, &little),
            (CL_DEVICE_PROFILE, b"FULL_PROFILE\0"),
            (CL_DEVICE_OPENCL_C_VERSION, b"OpenCL C 1.2 one\0"),
        ];
        let others: [(&[u8], &str); 5] = [
            (&gpu, "type (2, 4)"),
            (&bits32, "address bits (64, 32)"),
            (&big, "byte order (1, 0)"),
            (
                b"EMBEDDED_PROFILE\0",
                "profile (FULL_PROFILE, EMBEDDED_PROFILE)",
            ),
            (b"OpenCL C 3.0 one\0", "OpenCL C version (1.2, 3.0)"),
        ];
        for (at, (value, reason)) in others.into_iter().enumerate() {
            let mut other = alike;
            other[at].1 = value;
            let all = [listed("n", "a", &alike), listed("n", "b", &other)];
            let refusal = form(&all, "2").err().unwrap();
            assert_eq!(refusal, format!("n/a and n/b differ in {reason}"));
        }
        let mut other = alike;
        other[4].1 = b"OpenCL C 1.2 another\0";
        let all = [listed("n", "a", &alike), listed("n", "b", &other)];
        assert!(form(&all, "2").unwrap().unwrap().is_uniform);
    }

    #[test]
    fn facts_hold_on_every_device() {
        let words = |a: u64, b: u64| [a, b].map(|n| n.to_ne_bytes().to_vec());
        let number = |param, a, b| combine(param, &words(a, b)).map(|v| word(&v));
        assert_eq!(number(CL_DEVICE_MAX_MEM_ALLOC_SIZE, 8, 4), Some(4));
        assert_eq!(number(CL_DEVICE_MAX_COMPUTE_UNITS, 8, 4), Some(4));
        assert_eq!(
            number(CL_DEVICE_MEM_BASE_ADDR_ALIGN, 1024, 4096),
            Some(4096)
        );
        assert_eq!(number(CL_DEVICE_SINGLE_FP_CONFIG, 7, 13), Some(5));
        assert_eq!(number(CL_DEVICE_SVM_CAPABILITIES, 3, 3), Some(0));
        assert_eq!(number(CL_DEVICE_AVAILABLE, 0, 1), Some(1));
        assert_eq!(number(CL_DEVICE_UUID_KHR, 5, 5), None);
        assert_eq!(number(0x4008, 1, 1), None);
        let texts = |a: &str, b: &str| [a, b].map(|t| format!("{t}\0").into_bytes());
        let text = |param, a, b| combine(param, &texts(a, b)).map(|v| super::text(&v));
        let named = text(CL_DEVICE_NAME, "H100", "H100");
        assert_eq!(named.as_deref(), Some("H100 (pool of 2)"));
        let unlike = text(CL_DEVICE_NAME, "H100", "H200");
        assert_eq!(unlike.as_deref(), Some("H100, H200 (pool of 2)"));
        let kept = text(
            CL_DEVICE_EXTENSIONS,
            "x  cl_khr_device_uuid y",
            "y cl_khr_device_uuid",
        );
        assert_eq!(kept.as_deref(), Some("y"));
        let version = text(CL_DEVICE_VERSION, "OpenCL 3.0 one", "OpenCL 1.2 other");
        assert_eq!(version.as_deref(), Some("OpenCL 1.2 other"));
        let sizes = |sizes: [u64; 3]| sizes.map(u64::to_ne_bytes).concat();
        let all = [sizes([1024, 64, 8]), sizes([512, 512, 16])];
        let least = combine(CL_DEVICE_MAX_WORK_ITEM_SIZES, &all);
        assert_eq!(least, Some(sizes([512, 64, 8])));
        let entry = |version: u32, name: &str| {
            let mut bytes = version.to_ne_bytes().to_vec();
            bytes.extend(name.bytes().chain(std::iter::repeat(0)).take(64));
            bytes
        };
        let all = [
            [entry(1, "x"), entry(1, "y")].concat(),
            [entry(1, "y"), entry(2, "x")].concat(),
        ];
        let common = combine(CL_DEVICE_OPENCL_C_FEATURES, &all);
        assert_eq!(common, Some(entry(1, "y")));
    }

    #[test]
    fn a_kernel_s_facts_hold_in_every_session() {
        let words = |a: u64, b: u64| [a, b].map(|n| n.to_ne_bytes().to_vec());
        let number =
            |param: i32, a, b| combine_kernel(param as u32, &words(a, b)).map(|v| word(&v));
        assert_eq!(number(CL_KERNEL_WORK_GROUP_SIZE, 256, 1024), Some(256));
        assert_eq!(number(CL_KERNEL_LOCAL_MEM_SIZE, 16, 32), Some(32));
    }
}
