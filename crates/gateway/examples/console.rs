//! The console over a made-up pool, to work on the page without one.
//!
//! `cargo run -p baltra-gateway --example console -- [ADDRESS] [busy|empty|hostile|many]`

use axum::body::{to_bytes, Body};
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use baltra_gateway::console::{self, model::*};
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

#[tokio::main]
async fn main() {
    let mut words = std::env::args().skip(1);
    let address = words.next().unwrap_or_else(|| "127.0.0.1:8088".into());
    let scene = words.next().unwrap_or_else(|| "busy".into());
    let pool = Pool::new(&scene);
    let router = console::router(Arc::new(pool)).route("/function/{*name}", any(echo));
    let listener = tokio::net::TcpListener::bind(&address)
        .await
        .expect("the address is free");
    println!("http://{}/ui/", listener.local_addr().expect("bound"));
    axum::serve(listener, router).await.expect("serves");
}

/// Answers with what it got, for the form.
async fn echo(request: Request) -> Response {
    let kind = request.headers().get(CONTENT_TYPE).cloned();
    let line = format!("{} {}\n", request.method(), request.uri());
    let body = to_bytes(request.into_body(), 64 << 20)
        .await
        .unwrap_or_default();
    let timing = [
        ("x-baltra-node", "isabela"),
        ("x-baltra-device", "pocl"),
        ("server-timing", "queue;dur=0.041, device;dur=1.310"),
    ];
    match kind {
        Some(kind) if !body.is_empty() => (timing, [(CONTENT_TYPE, kind)], body).into_response(),
        _ => (timing, Body::from(line)).into_response(),
    }
}

struct Pool(Mutex<World>);

struct World {
    state: State,
    loads: Vec<Load>,
    random: u64,
    at: Instant,
    begun: Instant,
    scene: String,
}

/// What a function is called with.
struct Load {
    rate: f64,
    micros: f64,
    devices: Vec<usize>,
}

const NODES: [&str; 3] = ["isabela", "floreana", "santa-cruz"];

impl Pool {
    fn new(scene: &str) -> Pool {
        let mut world = World {
            state: State::default(),
            loads: Vec::new(),
            random: 0x9e37_79b9_7f4a_7c15,
            at: Instant::now(),
            begun: Instant::now(),
            scene: scene.to_owned(),
        };
        if scene != "empty" {
            world.fill();
        }
        Pool(Mutex::new(world))
    }
}

impl Source for Pool {
    fn state(&self) -> State {
        let mut world = self.0.lock().expect("nobody panicked");
        world.step();
        world.state.clone()
    }
}

impl World {
    /// Between 0 and 1.
    fn dice(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }

    fn fill(&mut self) {
        let hostile = self.scene == "hostile";
        let evil = "<img src=x onerror=alert(1)>\"'&javascript:\u{202e}";
        let per_node = if self.scene == "many" { 24 } else { 2 };
        let state = &mut self.state;
        state.registry = Some(Registry {
            address: "http://10.0.0.1:7420".into(),
            reachable: true,
            ..Registry::default()
        });
        for node in NODES {
            state.nodes.push(Node {
                name: node.into(),
                address: "tcp://10.0.0.2:7410".into(),
                version: env!("CARGO_PKG_VERSION").into(),
                executors: Some(3),
                sessions: 5,
                ..Node::default()
            });
            for i in 0..per_node {
                state.devices.push(Device {
                    node: node.into(),
                    name: if hostile {
                        format!("{evil}{i}")
                    } else {
                        format!("gpu{i}")
                    },
                    model: "H200".into(),
                    vendor: "NVIDIA Corporation".into(),
                    platform: "NVIDIA CUDA".into(),
                    slots: 1,
                    memory_bytes: 141 << 30,
                    regions: vec![Region::default()],
                    executors: Some(2),
                    deaths: Some(0),
                    reconfigurations: Some(i as u64),
                    sessions: 3,
                    ..Device::default()
                });
            }
        }
        state.devices[1].regions = vec![Region::default(); 3];
        for (name, tenant, rate, micros, description) in [
            ("sobel", "vision", 420.0, 820.0, "Edges of a picture"),
            (
                "matmul",
                "algebra",
                160.0,
                3_100.0,
                "The product of two matrices",
            ),
            (
                "alexnet",
                "vision",
                38.0,
                9_400.0,
                "Which of a thousand things a picture shows",
            ),
            (
                "sha256",
                "ledger",
                2_900.0,
                64.0,
                "Digests of many messages",
            ),
            ("compress", "ledger", 75.0, 2_400.0, "DEFLATE of a body"),
            (
                "black-scholes",
                "finance",
                610.0,
                240.0,
                "Prices of European options",
            ),
            (
                "histogram",
                "vision",
                3.0,
                130.0,
                "Counts of a picture's levels",
            ),
            ("bfs", "graphs", 0.0, 900.0, "Distances from a vertex"),
        ] {
            let name = if hostile {
                format!("{name}{evil}")
            } else {
                name.into()
            };
            let n = state.functions.len();
            let devices: Vec<usize> = (0..state.devices.len())
                .filter(|d| (d + n).is_multiple_of(3))
                .collect();
            state.functions.push(Function {
                name: name.clone(),
                description: if hostile {
                    evil.into()
                } else {
                    description.into()
                },
                tenant: if hostile { evil.into() } else { tenant.into() },
                implementations: vec!["opencl".into(), "native".into()],
                replicas: 2,
                contract: contract(&name),
                latency: Histogram {
                    bounds_ns: (0..25).map(|i| 1000 << i).collect(),
                    counts: vec![0; 26],
                },
                placements: devices
                    .iter()
                    .map(|d| Placement {
                        node: state.devices[*d].node.clone(),
                        device: state.devices[*d].name.clone(),
                        loaded: rate > 0.0,
                    })
                    .collect(),
                ..Function::default()
            });
            for d in devices.iter().filter(|_| rate > 0.0) {
                let device = &mut state.devices[*d];
                let regions = device.regions.len();
                device.regions[n % regions].loaded.push(Accelerator {
                    name: name.clone(),
                    digest: format!("{:064x}", n * 7919),
                });
            }
            self.loads.push(Load {
                rate,
                micros,
                devices,
            });
            if !state.tenants.iter().any(|t| t.name == tenant) {
                let name = if hostile {
                    format!("{tenant}{evil}")
                } else {
                    tenant.to_owned()
                };
                state.tenants.push(Tenant {
                    name,
                    weight: Some(1 + (n as u32 % 3)),
                    sessions: 2,
                    ..Tenant::default()
                });
            }
        }
    }

    fn step(&mut self) {
        let elapsed = self.at.elapsed();
        self.at = Instant::now();
        let age = self.begun.elapsed().as_secs_f64();
        let at_ns = self.begun.elapsed().as_nanos() as u64 + 1;
        let mut busy = vec![0.0; self.state.devices.len()];
        for i in 0..self.loads.len() {
            let (rate, micros) = (self.loads[i].rate, self.loads[i].micros);
            let swing = 1.0 + 0.45 * (age / (23.0 + 7.0 * i as f64)).sin();
            let calls = (rate * elapsed.as_secs_f64() * swing * (0.8 + 0.4 * self.dice())) as u64;
            self.calls(i, calls, micros);
            let devices = self.loads[i].devices.clone();
            for d in &devices {
                busy[*d] += calls as f64 * micros * 1e3 / devices.len() as f64;
            }
            let tenants = self.state.tenants.len();
            let tenant = &mut self.state.tenants[i % tenants];
            tenant.calls += calls;
            tenant.busy_ns += (calls as f64 * micros * 1e3) as u64;
        }
        let scene = self.scene.clone();
        for (d, ns) in busy.iter().enumerate() {
            let waiting = (ns / elapsed.as_nanos() as f64 * 6.0 * self.dice()) as u64;
            let device = &mut self.state.devices[d];
            device.busy_ns += *ns as u64;
            device.at_ns = at_ns;
            device.queued = waiting;
            device.memory_used_bytes = (9 + 13 * d as u64 % 120) << 30;
            device.state = match (d, scene.as_str()) {
                (3, "busy" | "many") => Health::Cordoned,
                (5, "many") => Health::Failed,
                _ => Health::Ready,
            };
            device.reason = match device.state {
                Health::Cordoned => "by the operator: a fan is replaced".into(),
                Health::Failed => "clGetDeviceIDs: CL_DEVICE_NOT_AVAILABLE".into(),
                _ => String::new(),
            };
        }
        for node in &mut self.state.nodes {
            node.uptime_s = Some(86_400 + age as u64);
            node.heard_ms = at_ns / 1_000_000 % 1000;
        }
    }

    fn calls(&mut self, i: usize, calls: u64, micros: f64) {
        for n in 0..calls {
            // A sum of dice is near enough to a logarithm's normal distribution.
            let z: f64 = (0..6).map(|_| self.dice()).sum::<f64>() - 3.0;
            let ns = micros * 1e3 * (0.6 * z).exp() * if n % 83 == 82 { 5.0 } else { 1.0 };
            let latency = &mut self.state.functions[i].latency;
            let bucket = latency.bounds_ns.partition_point(|b| *b < ns as u64);
            latency.counts[bucket] += 1;
        }
        let cold = self.dice() < 0.012 || self.state.functions[i].cold_starts == 0;
        let parts = ["image", "build", "session", "first call"];
        let steps: Vec<(String, u64)> = parts
            .iter()
            .map(|name| {
                (
                    name.to_string(),
                    (2e6 + 1.4e7 * self.dice() * self.dice()) as u64,
                )
            })
            .collect();
        let fail = i == 4;
        let at_ms = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_millis() as u64);
        let function = &mut self.state.functions[i];
        function.calls += calls;
        function.errors += if fail { calls / 60 } else { 0 };
        function.queued = calls / 120;
        function.running = calls / 90;
        if cold && calls > 0 {
            function.cold_starts += 1;
            let place = function.placements[0].clone();
            function.cold_recent.push(ColdStart {
                at_ms,
                node: place.node,
                device: place.device,
                parts: steps,
            });
            if function.cold_recent.len() > 16 {
                function.cold_recent.remove(0);
            }
        }
    }
}

fn contract(name: &str) -> Contract {
    let field = |name: &str, from: &str, kind: &str, shape: &str, codecs: &[&str]| Field {
        name: name.into(),
        from: from.into(),
        kind: kind.into(),
        shape: shape.into(),
        codecs: codecs.iter().map(|c| c.to_string()).collect(),
        ..Field::default()
    };
    let (inputs, outputs) = match name {
        "sobel" | "histogram" | "alexnet" => (
            vec![
                field("image", "body", "u8", "[h, w]", &["png", "jpeg", "npy"]),
                field("threshold", "query", "f32", "", &[]),
            ],
            vec![field("edges", "", "u8", "[h, w]", &["png", "npy"])],
        ),
        _ => (
            vec![
                field("data", "body", "f32", "[n]", &["json", "raw"]),
                field("n", "query", "u32", "", &[]),
            ],
            vec![field("result", "", "f32", "[n]", &["json"])],
        ),
    };
    Contract {
        methods: vec!["POST".into(), "GET".into()],
        inputs,
        outputs,
        body_bytes_max: 16 << 20,
    }
}
