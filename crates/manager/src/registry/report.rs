//! Description of the node's devices, and their load since the last report.

use crate::configuration::WaitingImage;
use crate::executors::Holder;
use crate::gate_thread::{silence_max, TaskLimit};
use crate::images::Metadata;
use crate::node::{Device, Node, SessionRecord};
use crate::options::ImageKind;
use baltra_api::registry as proto;
use baltra_ring::lease::monotonic_ns;
use baltra_ring::LeaseState;
use baltra_wire::opencl::{
    DEVICE_GLOBAL_MEM_SIZE, DEVICE_MAX_COMPUTE_UNITS, DEVICE_NAME, DEVICE_PROFILE, DEVICE_VENDOR,
    DEVICE_VERSION, DRIVER_VERSION,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::Ordering;

/// Number of slots that means unlimited.
const SLOTS_UNBOUNDED: usize = 1 << 16;
/// Maximum number of tenants whose shares a report contains, the registry's limit.
const WEIGHTS_MAX: usize = 1_024;
/// Most accelerators in a report, the registry's limit.
const ACCELERATORS_MAX: usize = 1_024;
/// Most instances of a device in a report.
const INSTANCES_MAX: usize = 4_096;
/// Most running tasks of a device in a report, the registry's limit.
const RUNNING_MAX: usize = 64;
/// Most programs of a task in a report, the registry's limit.
const PROGRAMS_MAX: usize = 8;
/// Maximum length of a program's description in a report, characters.
const PROGRAM_CHARS_MAX: usize = 60;

/// Properties of every device that do not change while the manager runs. If a driver is unusable,
/// only the device's name is included.
pub(super) fn descriptions(node: &Node) -> Vec<proto::DeviceDescription> {
    node.devices.iter().map(|d| description(d)).collect()
}

fn description(device: &Device) -> proto::DeviceDescription {
    let description = device.description.get();
    let description = description.as_deref();
    let text = |param| description.map(|d| d.text(param)).unwrap_or_default();
    let number = |param| description.map_or(0, |d| d.number(param));
    proto::DeviceDescription {
        name: device.name().to_owned(),
        vendor: text(DEVICE_VENDOR),
        platform: description.map(|d| d.platform_name()).unwrap_or_default(),
        profile: text(DEVICE_PROFILE),
        model: text(DEVICE_NAME),
        device_version: text(DEVICE_VERSION),
        driver_version: text(DRIVER_VERSION),
        memory_bytes: number(DEVICE_GLOBAL_MEM_SIZE),
        compute_units: number(DEVICE_MAX_COMPUTE_UNITS) as u32,
        slots: bounded_slots(device.slots()) as u32,
        regions: device.regions(),
        exclusive: device.options.image == ImageKind::Exclusive,
        labels: device.options.labels.clone().into_iter().collect(),
    }
}

/// If the number of slots is unlimited, one task counts as full load.
fn bounded_slots(slots: usize) -> usize {
    match slots {
        SLOTS_UNBOUNDED.. => 1,
        n => n.max(1),
    }
}

/// Tenants' shares of device time that differ from the default.
pub(super) fn weights(node: &Node) -> HashMap<String, u32> {
    let all = node.tenants.list().into_iter();
    let other = all.filter(|t| t.weight != 1).take(WEIGHTS_MAX);
    other.map(|t| (t.name, t.weight)).collect()
}

/// The accelerators that operators added to the node's store.
pub(super) fn accelerators(node: &Node) -> Vec<proto::StoredAccelerator> {
    let pushed = node.images.pushed().unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot report the accelerators");
        [].into()
    });
    let message = |image: &Metadata| proto::StoredAccelerator {
        digest: image.digest.clone(),
        name: image.name.clone(),
        target: image.target.clone(),
    };
    let pushed = pushed.iter();
    pushed.take(ACCELERATORS_MAX).map(message).collect()
}

/// A device's counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sample {
    at_ns: u64,
    busy_ns: u64,
    tasks: u64,
    latency_ns: u64,
}

/// Values between two samples: the utilization, 0 to 1, and a task's mean wait for the device,
/// milliseconds. Latencies count from a task's flush to its end; the part that is not device time
/// counts as waiting.
fn between(old: Sample, new: Sample, slots: usize) -> (f64, f64) {
    let elapsed = new.at_ns.saturating_sub(old.at_ns) as f64;
    let busy = new.busy_ns.saturating_sub(old.busy_ns) as f64;
    let utilization = if elapsed > 0.0 {
        (busy / elapsed / slots as f64).clamp(0.0, 1.0)
    } else {
        0.0
    };
    let tasks = new.tasks.saturating_sub(old.tasks);
    let latency = new.latency_ns.saturating_sub(old.latency_ns) as f64;
    let wait_ms = match tasks {
        0 => 0.0,
        n => ((latency - busy) / n as f64 / 1e6).max(0.0),
    };
    (utilization, wait_ms)
}

/// Computes each device's load since its previous reading.
#[derive(Debug, Default)]
pub(super) struct Meter {
    samples: BTreeMap<String, Sample>,
}

impl Meter {
    /// Load of every device since the last call.
    pub(super) fn loads(&mut self, node: &Node) -> Vec<proto::DeviceLoad> {
        node.read_leases();
        let at_ns = monotonic_ns();
        let mut samples: BTreeMap<String, Sample> = BTreeMap::new();
        for (_, device, used, latency) in node.accounts.lines() {
            let sample = samples.entry(device).or_default();
            sample.at_ns = at_ns;
            sample.busy_ns = sample.busy_ns.saturating_add(used.busy_ns);
            sample.tasks = sample.tasks.saturating_add(used.tasks);
            sample.latency_ns = sample.latency_ns.saturating_add(latency.sum_ns);
        }
        let load = |device: &std::sync::Arc<Device>| {
            let idle = Sample {
                at_ns,
                ..Sample::default()
            };
            let new = samples.get(device.name()).copied().unwrap_or(idle);
            self.load(node, device, new)
        };
        node.devices.iter().map(load).collect()
    }

    fn load(&mut self, node: &Node, device: &Device, new: Sample) -> proto::DeviceLoad {
        let old = self.samples.insert(device.name().to_owned(), new);
        let slots = bounded_slots(device.slots());
        // The first reading has no load.
        let (utilization, queue_wait_ms) = old.map_or((0.0, 0.0), |old| between(old, new, slots));
        super::moving::count_use(node, device);
        // A device's configuration is locked before the sessions, never after.
        let (regions, loading) = (regions(node, device), device.configuration.loading());
        let waiting_images = waiting_images(node, device);
        let sessions = node.sessions();
        let own = || sessions.values().filter(|s| s.is_on(device.name()));
        let instances: BTreeSet<&str> = own()
            .filter_map(|s| super::instance(&s.instance))
            .take(INSTANCES_MAX)
            .collect();
        let leases = device.pool.leases();
        let memory = leases.iter().map(|m| m.lease.granter.usage().memory_bytes);
        proto::DeviceLoad {
            name: device.name().to_owned(),
            utilization: Some(100.0 * utilization),
            busy_ns: new.busy_ns,
            at_ns: new.at_ns,
            sessions: own().count() as u32,
            waiting: device.gate.waiting() as u32,
            queue_wait_ms,
            tasks: new.tasks,
            regions,
            instances: instances.into_iter().map(str::to_owned).collect(),
            failure: device.pool.failure().unwrap_or_default(),
            memory_used_bytes: memory.fold(0, u64::saturating_add),
            executor_deaths: device.deaths.load(Ordering::Relaxed),
            running: running(node, device, &sessions),
            // The link adds what executors report about them.
            open: Vec::new(),
            loading: loading.unwrap_or_default(),
            waiting_images,
        }
    }
}

/// The running tasks of a device, those without progress for the longest time first.
fn running(
    node: &Node,
    device: &Device,
    sessions: &BTreeMap<u64, SessionRecord>,
) -> Vec<proto::RunningTask> {
    let now_ns = monotonic_ns();
    let since_ms = |ns: u64| now_ns.saturating_sub(ns) / 1_000_000;
    let task = |holder: Holder| {
        let lease = &holder.metered.lease;
        let granter = &lease.granter;
        // Both are the executor's words; a task that ends between the readings is not reported.
        let is_running = matches!(granter.state(), LeaseState::Busy | LeaseState::Revoked);
        let (started_ns, progress_ns) = (granter.busy_since_ns()?, granter.progress_ns()?);
        let tenant = node.tenants.get(&lease.tenant);
        let general = node.options.limits;
        let limits = tenant.map_or(general, |t| t.limits.or(general));
        let limit = device.task_limit(limits.task_ms);
        let silence_ms = |limit| silence_max(limit, granter.queued()).as_millis() as u64;
        let (limit_ms, limit_contended) = match limit {
            Some(TaskLimit::Always(limit)) => (silence_ms(limit), false),
            Some(TaskLimit::Contended(limit)) => (silence_ms(limit), true),
            None => (0, false),
        };
        let own = |s: &&SessionRecord| s.executor == holder.executor && s.tenant == lease.tenant;
        let programs = sessions.values().filter(own).take(PROGRAMS_MAX);
        let is_reported = is_running && baltra_api::valid_name(&lease.tenant);
        is_reported.then(|| proto::RunningTask {
            lease: lease.id,
            started_ns,
            tenant: lease.tenant.clone(),
            executor_pid: holder.pid,
            programs: programs.map(|s| plain(&s.instance)).collect(),
            sessions: holder.sessions as u32,
            running_ms: since_ms(started_ns),
            stalled_ms: since_ms(progress_ns),
            limit_ms,
            limit_contended,
        })
    };
    let mut tasks: Vec<_> = device.pool.holders().into_iter().filter_map(task).collect();
    tasks.sort_by_key(|task| std::cmp::Reverse(task.stalled_ms));
    tasks.truncate(RUNNING_MAX);
    tasks
}

/// A client's text without control characters, shortened.
pub(super) fn plain(text: &str) -> String {
    let shown = text.chars().take(PROGRAM_CHARS_MAX);
    shown
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// The images that wait for their turn on a device.
pub(crate) fn waiting_images(node: &Node, device: &Device) -> Vec<proto::WaitingImage> {
    let waiting = device.configuration.waiting_images().into_iter();
    let image = |image: WaitingImage| proto::WaitingImage {
        name: node.images.name(&image.digest).unwrap_or_default(),
        digest: image.digest,
        sessions: image.sessions as u32,
        waiting_ms: image.waited.as_millis() as u64,
    };
    waiting.map(image).collect()
}

/// The image of a device that holds one image at a time, or those of a board's regions.
pub(crate) fn regions(node: &Node, device: &Device) -> Vec<proto::Region> {
    let region = |index, digest: String, name: String| {
        let (recent_uses, load) = device.configuration.known(&digest);
        proto::Region {
            index,
            name: node.images.name(&digest).unwrap_or(name),
            digest,
            recent_uses,
            load_ms: 1e3 * load.as_secs_f64(),
        }
    };
    if device.options.image == ImageKind::Exclusive {
        let image = device.configuration.loaded().into_iter();
        return image.map(|d| region(0, d, String::new())).collect();
    }
    let held = device.regions_held.images().into_iter();
    held.map(|i| region(i.region, i.digest, i.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_ms: u64, busy_ms: u64, tasks: u64, latency_ms: u64) -> Sample {
        Sample {
            at_ns: at_ms * 1_000_000,
            busy_ns: busy_ms * 1_000_000,
            tasks,
            latency_ns: latency_ms * 1_000_000,
        }
    }

    #[test]
    fn utilization_is_of_the_time_and_the_slots_between() {
        let (old, new) = (sample(1000, 100, 0, 0), sample(2000, 600, 0, 0));
        assert_eq!(between(old, new, 1).0, 0.5);
        assert_eq!(between(old, new, 2).0, 0.25);
        // Concurrent tenants on a device with unlimited slots add up to full load at most.
        assert_eq!(between(old, sample(1100, 900, 0, 0), 1).0, 1.0);
        assert_eq!(between(new, new, 1), (0.0, 0.0));
        // Counters that decreased, as a new tenant's may after a restart, count as no load.
        assert_eq!(between(new, old, 1).0, 0.0);
    }

    #[test]
    fn what_is_no_device_time_was_waiting() {
        let (old, new) = (sample(0, 0, 10, 50), sample(1000, 100, 20, 350));
        assert_eq!(between(old, new, 1).1, 20.0);
        assert_eq!(between(old, sample(1000, 400, 20, 350), 1).1, 0.0);
    }

    #[test]
    fn unbounded_slots_are_one() {
        assert_eq!(bounded_slots(SLOTS_UNBOUNDED), 1);
        assert_eq!(bounded_slots(4), 4);
        assert_eq!(bounded_slots(0), 1);
    }
}
