//! The registry's nodes and devices, for a source of the console.
//!
//! A task polls the registry and keeps its last reply. While the registry is unreachable, the
//! devices keep their last state, without load.

use super::actions::task_id;
use super::model::{
    Accelerator, Device, Health, Moved, Node, Region, Registry, RunningTask, Session, State,
    WaitingImage,
};
use baltra_api::client::{self, Operators};
use baltra_api::registry::{self as proto, DevicesReply, DevicesRequest};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Pause between a reply and the next request.
const PAUSE: Duration = Duration::from_secs(1);

/// Timeout of a request; a slower registry counts as unreachable.
const PATIENCE: Duration = Duration::from_secs(5);

/// Regions with a higher number are ignored.
const REGIONS_MAX: usize = 64;

/// The registry's last reply.
struct PoolSnapshot {
    pool: DevicesReply,
    answered: Instant,
    /// Why it does not respond; `None` if it does.
    failure: Option<String>,
    since: Instant,
}

/// A polled registry. Polling ends when the value is dropped.
pub struct Pool {
    address: String,
    snapshot: Arc<Mutex<PoolSnapshot>>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Pool").field(&self.address).finish()
    }
}

impl Pool {
    /// Starts polling. Must be called within a runtime.
    ///
    /// # Errors
    /// Returns an error for invalid options; an unreachable registry is not an error.
    pub fn watch(options: &client::Options) -> Result<Pool, client::Error> {
        let operators = client::operators(options)?;
        let snapshot = Arc::new(Mutex::new(PoolSnapshot {
            pool: DevicesReply::default(),
            answered: Instant::now(),
            failure: Some("no request was sent yet".into()),
            since: Instant::now(),
        }));
        tokio::spawn(watch(operators, Arc::downgrade(&snapshot)));
        Ok(Pool {
            address: options.url.clone(),
            snapshot,
        })
    }

    /// Adds the registry, its nodes, their devices and their tenants' shares to a state.
    pub fn fill(&self, state: &mut State) {
        let snapshot = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        let reachable = snapshot.failure.is_none();
        state.registry = Some(Registry {
            address: self.address.clone(),
            reachable,
            reason: snapshot.failure.clone().unwrap_or_default(),
            since_s: snapshot.since.elapsed().as_secs(),
        });
        let age_ms = snapshot.answered.elapsed().as_millis() as u64;
        let devices = snapshot.pool.devices.iter();
        state.devices.extend(devices.map(|d| device(d, reachable)));
        state.nodes.extend(nodes(&snapshot.pool, age_ms));
        state
            .moved
            .extend(snapshot.pool.nodes.iter().flat_map(moved));
        // Without a report, nothing is known of the sessions.
        if reachable {
            let devices = snapshot.pool.devices.iter();
            state.sessions.extend(devices.flat_map(sessions));
        }
        // The state has no nodes before the first reply.
        if !snapshot.pool.nodes.is_empty() {
            for tenant in &mut state.tenants {
                tenant.weight = Some(weight(&snapshot.pool, &tenant.name));
            }
        }
    }
}

async fn watch(mut operators: Operators, snapshot: Weak<Mutex<PoolSnapshot>>) {
    while snapshot.strong_count() > 0 {
        let request = DevicesRequest {
            silent: true,
            ..DevicesRequest::default()
        };
        let reply = tokio::time::timeout(PATIENCE, operators.devices(request)).await;
        if let Some(snapshot) = snapshot.upgrade() {
            let mut snapshot = snapshot.lock().unwrap_or_else(PoisonError::into_inner);
            snapshot.take(match reply {
                Ok(Ok(reply)) => Ok(reply.into_inner()),
                Ok(Err(status)) => Err(status.message().to_owned()),
                Err(_) => Err(format!("no response within {} s", PATIENCE.as_secs())),
            });
        }
        tokio::time::sleep(PAUSE).await;
    }
}

impl PoolSnapshot {
    fn take(&mut self, answer: Result<DevicesReply, String>) {
        if self.failure.is_some() != answer.is_err() {
            self.since = Instant::now();
        }
        self.failure = match answer {
            Ok(pool) => {
                self.pool = pool;
                self.answered = Instant::now();
                None
            }
            Err(failure) => Some(failure),
        };
    }
}

fn health(device: &proto::Device) -> Health {
    match device.state.as_str() {
        "silent" => Health::Lost,
        "failed" => Health::Failed,
        "unconfirmed" => Health::Starting,
        _ if device.draining => Health::Draining,
        _ if device.cordoned => Health::Cordoned,
        _ => Health::Ready,
    }
}

fn device(device: &proto::Device, reachable: bool) -> Device {
    let about = device.description.clone().unwrap_or_default();
    let state = health(device);
    let snapshot = reachable && state != Health::Lost && state != Health::Starting;
    let load = if snapshot {
        device.utilization / 100.0
    } else {
        f64::NAN
    };
    Device {
        node: device.node.clone(),
        name: about.name,
        model: about.model,
        vendor: about.vendor,
        platform: about.platform,
        state,
        reason: device.failure.clone(),
        slots: about.slots,
        exclusive: about.exclusive,
        region_count: about.regions.max(1),
        regions: regions(device, about.exclusive, about.regions),
        utilization: Some(load),
        tasks: device.tasks,
        memory_bytes: about.memory_bytes,
        memory_used_bytes: device.memory_used_bytes,
        queued: device.waiting.into(),
        sessions: device.sessions,
        deaths: Some(device.executor_deaths),
        // Without a report, nothing is known of its tasks and its waiting images.
        running: if snapshot {
            device.running.iter().map(running).collect()
        } else {
            Vec::new()
        },
        waiting_images: if snapshot {
            device.waiting_images.iter().map(waiting).collect()
        } else {
            Vec::new()
        },
        ..Device::default()
    }
}

fn running(task: &proto::RunningTask) -> RunningTask {
    RunningTask {
        id: task_id(task),
        tenant: task.tenant.clone(),
        programs: task.programs.clone(),
        executor_pid: task.executor_pid,
        sessions: task.sessions,
        running_ms: task.running_ms,
        stalled_ms: task.stalled_ms,
        limit_ms: (task.limit_ms > 0).then_some(task.limit_ms),
        limit_contended: task.limit_contended,
    }
}

fn waiting(image: &proto::WaitingImage) -> WaitingImage {
    WaitingImage {
        name: image.name.clone(),
        digest: image.digest.clone(),
        sessions: image.sessions,
        waiting_ms: image.waiting_ms,
    }
}

/// A device's open sessions.
fn sessions(device: &proto::Device) -> impl Iterator<Item = Session> + '_ {
    let name = device.description.as_ref().map(|d| d.name.clone());
    let name = name.unwrap_or_default();
    device.open.iter().map(move |session| {
        let known = session.described;
        Session {
            node: device.node.clone(),
            device: name.clone(),
            id: session.id.to_string(),
            tenant: session.tenant.clone(),
            program: session.program.clone(),
            pid: session.pid,
            age_s: session.age_s,
            resident_bytes: known.then_some(session.resident_bytes),
            swapped_bytes: known.then_some(session.swapped_bytes),
            queues: known.then_some(session.queues),
            can_move: known.then_some(session.obstacle.is_empty()),
            obstacle: session.obstacle.clone(),
        }
    })
}

/// The results of a node's moves.
fn moved(node: &proto::NodeState) -> impl Iterator<Item = Moved> + '_ {
    node.moved.iter().map(|moved| Moved {
        order: moved.order.clone(),
        node: node.name.clone(),
        session: moved.session.to_string(),
        from: moved.from.clone(),
        to: moved.to.clone(),
        error: moved.error.clone(),
        stopped_us: moved.stopped_us,
    })
}

/// A device's regions in order: loaded accelerators, and whether the driver loads one. A device on
/// which programs coexist has one list, unless it reports its regions.
fn regions(device: &proto::Device, is_exclusive: bool, count: u32) -> Vec<Region> {
    let count = if is_exclusive || !device.regions.is_empty() {
        (count.max(1) as usize).min(REGIONS_MAX)
    } else {
        1
    };
    let mut regions = vec![Region::default(); count];
    for there in &device.regions {
        let Some(region) = regions.get_mut(there.index as usize) else {
            continue;
        };
        if !there.digest.is_empty() || !there.name.is_empty() {
            region.loaded.push(Accelerator {
                name: there.name.clone(),
                digest: there.digest.clone(),
            });
        }
    }
    if !device.loading.is_empty() {
        // A requested accelerator is not being loaded before its driver does so.
        let mut requested = device.pending.iter();
        let region = requested.find(|there| there.digest == device.loading);
        let index = region.map_or(0, |there| there.index as usize);
        if let Some(region) = regions.get_mut(index) {
            region.loading = true;
        }
    }
    regions
}

/// A tenant's share: the maximum of all nodes; 1 if no node reports it.
fn weight(pool: &DevicesReply, tenant: &str) -> u32 {
    let described = pool.nodes.iter().filter_map(|n| n.weights.get(tenant));
    described.copied().max().unwrap_or(1)
}

/// A node's health is that of its best device.
fn nodes(pool: &DevicesReply, age_ms: u64) -> Vec<Node> {
    let mut nodes: BTreeMap<&str, Node> = BTreeMap::new();
    for device in &pool.devices {
        let state = match health(device) {
            // A device's failure does not affect its node's health.
            Health::Failed => Health::Ready,
            state => state,
        };
        let heard_ms = device.heard_ms.saturating_add(age_ms);
        let node = nodes.entry(&device.node).or_insert_with(|| Node {
            name: device.node.clone(),
            address: device.endpoints.first().cloned().unwrap_or_default(),
            state,
            heard_ms,
            ..Node::default()
        });
        node.sessions = node.sessions.saturating_add(device.sessions);
        node.heard_ms = node.heard_ms.min(heard_ms);
        if state == Health::Ready {
            node.state = state;
        }
    }
    for described in &pool.nodes {
        if let Some(node) = nodes.get_mut(described.name.as_str()) {
            node.version.clone_from(&described.version);
            node.reason.clone_from(&described.silence);
            let is_reachable = node.state != Health::Lost;
            node.uptime_s = described.uptime_s.filter(|_| is_reachable);
        }
    }
    nodes.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(node: &str, state: &str) -> proto::Device {
        proto::Device {
            node: node.into(),
            state: state.into(),
            utilization: 40.0,
            heard_ms: 100, // text-ok
            sessions: 2,
            description: Some(proto::DeviceDescription {
                name: "d".into(),
                exclusive: true,
                regions: 2,
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    #[test]
    fn a_device_is_as_the_registry_says() {
        let states = [
            ("ready", Health::Ready),
            ("silent", Health::Lost),
            ("failed", Health::Failed),
            ("unconfirmed", Health::Starting),
        ];
        for (state, expected) in states {
            assert_eq!(device(&described("n", state), true).state, expected);
        }
        let mut cordoned = described("n", "ready");
        cordoned.cordoned = true;
        assert_eq!(device(&cordoned, true).state, Health::Cordoned);
        cordoned.draining = true;
        assert_eq!(device(&cordoned, true).state, Health::Draining);
    }

    #[test]
    fn the_load_of_an_unreachable_node_is_unknown() {
        assert_eq!(
            device(&described("n", "ready"), true).utilization,
            Some(0.4)
        );
        for (state, reachable) in [("ready", false), ("silent", true)] {
            let load = device(&described("n", state), reachable).utilization;
            assert!(load.is_some_and(f64::is_nan), "{state}");
        }
    }

    #[test]
    fn regions_show_what_is_loaded_and_what_is_to_be() {
        let mut described = described("n", "ready");
        let region = |index, name: &str| proto::Region {
            index,
            name: name.into(),
            digest: "ab".into(),
            ..proto::Region::default()
        };
        described.regions = vec![region(1, "sobel"), region(9, "beyond")];
        described.pending = vec![region(0, "cnn")];
        let regions = device(&described, true).regions;
        assert_eq!(regions.len(), 2);
        assert!(!regions[0].loading && !regions[1].loading);
        described.loading = "ab".into();
        let regions = device(&described, true).regions;
        assert!(regions[0].loading && regions[0].loaded.is_empty());
        assert!(!regions[1].loading);
        assert_eq!(regions[1].loaded[0].name, "sobel");
    }

    #[test]
    fn waiting_images_are_known_while_the_device_reports() {
        let mut described = described("n", "ready");
        described.waiting_images = vec![proto::WaitingImage {
            name: "sobel".into(),
            waiting_ms: 1_500,
            ..proto::WaitingImage::default()
        }];
        let waiting = device(&described, true).waiting_images;
        assert_eq!(
            (waiting[0].name.as_str(), waiting[0].waiting_ms),
            ("sobel", 1_500)
        );
        assert!(device(&described, false).waiting_images.is_empty());
    }

    #[test]
    fn the_regions_of_a_shared_device_have_one_list() {
        let mut described = described("n", "ready");
        described.description.as_mut().unwrap().exclusive = false;
        let shown = device(&described, true);
        assert_eq!((shown.region_count, shown.regions.len()), (2, 1));
        described.regions = vec![proto::Region {
            index: 1,
            name: "sobel".into(),
            ..Default::default()
        }];
        let shown = device(&described, true);
        assert_eq!(shown.regions[1].loaded[0].name, "sobel");
        assert!(shown.regions[0].loaded.is_empty());
    }

    #[test]
    fn a_session_that_no_executor_described_has_no_numbers() {
        let mut described = described("n", "ready");
        let session = proto::SessionLoad {
            id: 1 << 53 | 1,
            tenant: "red".into(),
            ..Default::default()
        };
        let known = proto::SessionLoad {
            described: true,
            swapped_bytes: 7,
            obstacle: "it has channels".into(),
            ..session.clone()
        };
        described.open = vec![session, known];
        let [unknown, known] = sessions(&described).collect::<Vec<_>>().try_into().unwrap();
        assert_eq!(unknown.id, "9007199254740993");
        assert_eq!((unknown.resident_bytes, unknown.can_move), (None, None));
        assert_eq!(
            (known.swapped_bytes, known.can_move),
            (Some(7), Some(false))
        );
        assert_eq!((known.node.as_str(), known.device.as_str()), ("n", "d"));
    }

    #[test]
    fn a_tenant_s_share_is_what_nodes_say() {
        let node = |weight| proto::NodeState {
            weights: [("red".to_owned(), weight)].into(),
            ..Default::default()
        };
        let pool = DevicesReply {
            nodes: vec![node(2), node(5), proto::NodeState::default()],
            ..Default::default()
        };
        assert_eq!((weight(&pool, "red"), weight(&pool, "blue")), (5, 1));
    }

    #[test]
    fn a_node_is_lost_when_all_of_it_is() {
        let devices = vec![
            described("one", "silent"),
            described("one", "ready"),
            described("two", "silent"),
            described("three", "failed"),
        ];
        let state = |name: &str| proto::NodeState {
            name: name.into(),
            version: "1.2".into(),
            uptime_s: Some(70),
            silence: if name == "two" { "it has left" } else { "" }.into(),
            ..Default::default()
        };
        let pool = DevicesReply {
            devices,
            nodes: vec![state("one"), state("two")],
        };
        let nodes = nodes(&pool, 50);
        let of = |name: &str| nodes.iter().find(|n| n.name == name).unwrap();
        assert_eq!(of("one").state, Health::Ready);
        assert_eq!((of("one").sessions, of("one").heard_ms), (4, 150));
        assert_eq!(
            (of("one").version.as_str(), of("one").uptime_s),
            ("1.2", Some(70))
        );
        assert_eq!(of("two").state, Health::Lost);
        assert_eq!(
            (of("one").reason.as_str(), of("two").reason.as_str()),
            ("", "it has left")
        );
        assert_eq!(
            (of("two").version.as_str(), of("two").uptime_s),
            ("1.2", None)
        );
        assert_eq!(of("three").state, Health::Ready);
    }
}
