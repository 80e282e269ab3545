//! The console's source in this gateway: its functions and tenants, and the engine's devices.

use crate::console::model::{
    ColdStart, Contract, Device, Field, Function, Health, Histogram, Node, Placement, Region,
    State, Tenant,
};
use crate::console::{AlertWatch, Pool, Source};
use crate::http::function::table::Deployed;
use crate::http::gateway::Gateway;
use crate::http::telemetry::meters::{bound_ns, Counts, Ending, BUCKETS};
use anyhow::{Context, Result};
use baltra_api::client;
use baltra_engine::placement::Candidate;
use baltra_functions::manifest::{Codec, Dimension, Implementation, Source as From};
use baltra_wire::opencl::{DEVICE_GLOBAL_MEM_SIZE, DEVICE_NAME, DEVICE_VENDOR};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// Interval of queries for devices.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The console's source.
pub(crate) struct Overview {
    /// Weak, because the gateway's router owns the console's task.
    gateway: Weak<Gateway>,
    /// The registry's pool, if there is one.
    pool: Option<Pool>,
    /// The Prometheus server's alerts, if there is one.
    alerts: Option<AlertWatch>,
    /// The engine's devices, without a registry.
    places: Arc<Mutex<Vec<Candidate>>>,
}

impl Overview {
    /// Must be called within a runtime.
    pub fn start(gateway: &Arc<Gateway>) -> Result<Overview> {
        let engine = &gateway.options.engine;
        let registry = client::Options {
            url: engine.registry.clone(),
            token: engine.registry_token.clone(),
            ca: engine.registry_ca.clone(),
        };
        let pool = if registry.url.is_empty() {
            None
        } else {
            Some(Pool::watch(&registry).context("'gateway.engine.registry'")?)
        };
        let overview = Overview {
            gateway: Arc::downgrade(gateway),
            pool,
            alerts: AlertWatch::start(&gateway.options.prometheus),
            places: Arc::default(),
        };
        if overview.pool.is_none() {
            tokio::spawn(look(overview.gateway.clone(), overview.places.clone()));
        }
        Ok(overview)
    }
}

async fn look(gateway: Weak<Gateway>, places: Arc<Mutex<Vec<Candidate>>>) {
    while let Some(gateway) = gateway.upgrade() {
        let found = gateway.engine.places("").await;
        drop(gateway);
        if let Ok(found) = found {
            *places.lock().unwrap_or_else(PoisonError::into_inner) = found;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

impl Source for Overview {
    fn registry(&self) -> Option<client::Options> {
        let gateway = self.gateway.upgrade()?;
        let engine = &gateway.options.engine;
        self.pool.as_ref()?;
        Some(client::Options {
            url: engine.registry.clone(),
            token: String::new(),
            ca: engine.registry_ca.clone(),
        })
    }

    fn state(&self) -> State {
        let Some(gateway) = self.gateway.upgrade() else {
            return State::default();
        };
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let nodes: BTreeMap<&str, &Candidate> =
            places.iter().map(|p| (p.node.as_str(), p)).collect();
        let nodes = nodes.into_iter().map(|(name, place)| Node {
            name: name.to_owned(),
            address: place.endpoint.to_string(),
            state: Health::Ready,
            ..Node::default()
        });
        let functions = gateway.table.list();
        let mut state = State {
            registry: None,
            nodes: nodes.collect(),
            devices: places.iter().map(device).collect(),
            tenants: tenants(&gateway),
            functions: functions.iter().map(|d| function(&gateway, d)).collect(),
            alerts: self.alerts.as_ref().map(AlertWatch::alerts),
            ..State::default()
        };
        if let Some(pool) = &self.pool {
            pool.fill(&mut state);
        }
        state
    }
}

fn device(place: &Candidate) -> Device {
    let about = &place.device;
    Device {
        node: place.node.clone(),
        name: about.name.clone(),
        model: about.text(DEVICE_NAME),
        vendor: about.text(DEVICE_VENDOR),
        platform: about.platform_name(),
        state: Health::Ready,
        slots: 1,
        regions: vec![Region::default()],
        memory_bytes: about.number(DEVICE_GLOBAL_MEM_SIZE),
        ..Device::default()
    }
}

fn tenants(gateway: &Gateway) -> Vec<Tenant> {
    let mut tenants: BTreeMap<String, Tenant> = BTreeMap::new();
    for (name, _, counts) in gateway.meters.read() {
        let tenant = tenants.entry(name.clone()).or_default();
        tenant.name = name;
        tenant.busy_ns += counts.device_ns;
        tenant.calls += counts.ended();
        tenant.queued += counts.running;
    }
    tenants.into_values().collect()
}

fn function(gateway: &Gateway, deployed: &Deployed) -> Function {
    let manifest = &deployed.function.manifest;
    let counts = gateway.meters.read_function(deployed.name());
    let status = gateway.engine.status(&deployed.function);
    // The engine's count: a call that finds a function already loaded is not a cold start.
    let desired = status.as_ref().map_or(0, |status| status.desired);
    let (replicas, cold_starts) = status.map_or_else(Default::default, |status| {
        (status.replicas, status.stats.cold_starts)
    });
    let waiting: usize = replicas.iter().map(|r| r.waiting).sum();
    let placements = replicas.iter().map(|replica| Placement {
        node: replica.node.clone(),
        device: replica.device.clone(),
        loaded: replica.loaded,
    });
    let cold_recent = replicas.iter().filter_map(|replica| {
        let cold = replica.cold?;
        let parts = [
            ("session", cold.session_us),
            ("program", cold.program_us),
            ("buffers", cold.buffers_us),
            ("first call", cold.first_call_us),
        ];
        let parts = parts.map(|(name, us)| (name.to_owned(), us * 1000));
        Some(ColdStart {
            at_ms: 0,
            node: replica.node.clone(),
            device: replica.device.clone(),
            parts: parts.into(),
        })
    });
    let kinds = manifest.implementations.iter().map(|i| match i {
        Implementation::Opencl(_) => "opencl",
        Implementation::Native(_) => "native",
        Implementation::Board(_) => "board",
    });
    let refused = replicas.iter().find_map(|r| r.refused.clone());
    Function {
        name: deployed.name().to_owned(),
        description: manifest.description.clone(),
        tenant: manifest.tenant.clone().unwrap_or_default(),
        implementations: kinds.map(str::to_owned).collect(),
        contract: contract(deployed),
        replicas: desired as u32,
        calls: counts.ended(),
        errors: counts.of(Ending::Failed)
            + counts.of(Ending::Overload)
            + counts.of(Ending::Deadline),
        running: counts.running.saturating_sub(waiting as u64),
        queued: waiting as u64,
        latency: latency(&counts),
        cold_starts,
        cold_recent: cold_recent.take(16).collect(),
        reason: match gateway.engine.why_not_ready(&deployed.function) {
            Some(why) => why,
            None if replicas.iter().any(|r| r.loaded) => String::new(),
            None => refused.unwrap_or_default(),
        },
        placements: placements.collect(),
    }
}

fn latency(counts: &Counts) -> Histogram {
    Histogram {
        bounds_ns: (0..BUCKETS - 1).map(bound_ns).collect(),
        counts: counts.buckets.into(),
    }
}

fn contract(deployed: &Deployed) -> Contract {
    let manifest = &deployed.function.manifest;
    let shape = |dimensions: &[Dimension]| {
        let texts: Vec<&str> = dimensions.iter().map(|d| d.0.as_str()).collect();
        texts.join(", ")
    };
    let codecs = |codecs: &[Codec]| {
        let names = codecs.iter().map(|codec| match codec {
            Codec::Raw => "raw",
            Codec::Json => "json",
            Codec::Npy => "npy",
            Codec::Png => "png",
            Codec::Jpeg => "jpeg",
        });
        names.map(str::to_owned).collect()
    };
    let inputs = manifest.inputs.iter().map(|input| {
        let from = match input.from {
            From::Body => "body",
            From::Query => "query",
            From::Header => "header",
            From::Path => "path",
            From::Method => "method",
            From::Constant => "constant",
        };
        Field {
            name: input.name.clone(),
            from: from.to_owned(),
            header: match (&input.header, input.from) {
                (Some(header), _) => header.clone(),
                (None, From::Header) => format!("x-{}", input.name),
                (None, _) => String::new(),
            },
            kind: input.kind.name().to_owned(),
            shape: shape(&input.shape),
            codecs: codecs(&input.codecs),
            default: input.default,
        }
    });
    let outputs = manifest.outputs.iter().map(|output| Field {
        name: output.name.clone(),
        from: String::new(),
        header: String::new(),
        kind: output.kind.name().to_owned(),
        shape: shape(&output.shape),
        codecs: codecs(&output.codecs),
        default: None,
    });
    Contract {
        methods: manifest.methods.clone(),
        inputs: inputs.collect(),
        outputs: outputs.collect(),
        body_bytes_max: deployed.body_bytes_max,
    }
}
