//! The console in the test's process, with states that a real pool would reject.

use super::HOSTILE;
use baltra_gateway::console::model::{
    Accelerator, Alert, Alerts, Contract, Device, Field, Function, Health, Histogram, Node,
    Placement, Region, Registry, RunningTask, Session, State, Tenant,
};
use baltra_gateway::console::{self, Source};
use std::sync::{Arc, Mutex};

/// The console in this process, with a state that a real pool would reject.
pub(super) struct Page {
    pub state: Arc<Mutex<State>>,
    address: std::net::SocketAddr,
    _runtime: tokio::runtime::Runtime,
}

struct PublishedState(Arc<Mutex<State>>);

impl Source for PublishedState {
    fn state(&self) -> State {
        let mut state = self.0.lock().unwrap();
        for function in &mut state.functions {
            function.calls += 10;
            function.latency.counts[1] += 10;
        }
        state.clone()
    }
}

impl Page {
    pub fn start(state: State) -> Page {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let state = Arc::new(Mutex::new(state));
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .unwrap();
        let address = listener.local_addr().unwrap();
        let source = Arc::new(PublishedState(state.clone()));
        runtime.spawn(async move { axum::serve(listener, console::router(source)).await });
        Page {
            state,
            address,
            _runtime: runtime,
        }
    }

    pub fn state(&self) -> State {
        self.state.lock().unwrap().clone()
    }

    pub fn at(&self, view: &str) -> String {
        format!("http://{}/ui/#/{view}", self.address)
    }
}

fn escaped(name: &str) -> String {
    name.bytes().map(|b| format!("%{b:02X}")).collect()
}

/// Every view of a state, including those of its functions and devices.
pub(super) fn views(state: &State) -> Vec<String> {
    let mut views: Vec<String> = ["", "functions", "devices", "tenants", "nodes"]
        .map(str::to_owned)
        .into();
    let functions = state
        .functions
        .iter()
        .map(|f| format!("functions/{}", escaped(&f.name)));
    let devices = state
        .devices
        .iter()
        .map(|d| format!("devices/{}/{}", escaped(&d.node), escaped(&d.name)));
    views.extend(functions.chain(devices));
    views
}

/// A region with an image.
fn region(image: &str) -> Region {
    Region {
        loaded: vec![Accelerator {
            name: image.into(),
            digest: format!("digest of {image}"),
        }],
        loading: false,
    }
}

/// A function, a device, a node and a tenant for every hostile name, and long names.
pub(super) fn hostile_state() -> State {
    let mut state = State {
        registry: Some(Registry {
            address: HOSTILE[0].into(),
            reason: HOSTILE[1].into(),
            ..Registry::default()
        }),
        ..State::default()
    };
    let long = "x".repeat(200);
    state.alerts = Some(Alerts {
        address: HOSTILE[0].into(),
        reason: HOSTILE[1].into(),
        firing: Vec::new(),
    });
    for name in HOSTILE.into_iter().chain(["sobel", long.as_str()]) {
        let text = || name.to_owned();
        state.sessions.push(Session {
            node: text(),
            device: text(),
            id: text(),
            tenant: text(),
            program: text(),
            obstacle: text(),
            resident_bytes: Some(1 << 30),
            swapped_bytes: Some(5),
            queues: Some(2),
            can_move: Some(false),
            ..Session::default()
        });
        state.alerts.as_mut().unwrap().firing.push(Alert {
            name: text(),
            severity: text(),
            summary: text(),
            since: text(),
        });
        state.nodes.push(Node {
            name: text(),
            address: text(),
            version: text(),
            reason: text(),
            state: Health::Lost,
            ..Node::default()
        });
        state.devices.push(Device {
            node: text(),
            name: text(),
            model: text(),
            vendor: text(),
            reason: text(),
            state: Health::Failed,
            regions: vec![region(name); 3],
            running: vec![RunningTask {
                id: text(),
                tenant: text(),
                programs: vec![text(), text()],
                stalled_ms: 42_000,
                ..RunningTask::default()
            }],
            ..Device::default()
        });
        state.tenants.push(Tenant {
            name: text(),
            ..Tenant::default()
        });
        let field = |from: &str| Field {
            name: text(),
            from: from.into(),
            kind: text(),
            shape: text(),
            ..Field::default()
        };
        state.functions.push(Function {
            name: text(),
            description: text(),
            tenant: text(),
            reason: text(),
            implementations: vec![text()],
            contract: Contract {
                inputs: vec![field("query"), field("header"), field("body")],
                ..Contract::default()
            },
            placements: vec![Placement {
                node: text(),
                device: text(),
                loaded: true,
            }],
            latency: Histogram {
                bounds_ns: vec![1_000, 1_000_000],
                counts: vec![0; 3],
            },
            cold_recent: vec![console::model::ColdStart {
                at_ms: 1,
                node: text(),
                device: text(),
                parts: vec![(text(), 1_000_000)],
            }],
            cold_starts: 1,
            ..Function::default()
        });
    }
    state
}
