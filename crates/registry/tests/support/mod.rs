//! Starts a registry in this process and sends requests to it.
#![allow(dead_code)]

use baltra_api::client::{self, Functions, Instances, Nodes, Operators};
use baltra_api::registry::{
    AllocateReply, AllocateRequest, Device, DeviceDescription, DeviceLoad, DevicesRequest,
    HeartbeatReply, HeartbeatRequest, Instance, Node, Region, RegisterReply, RegisterRequest,
};
use baltra_registry::{Handle, Options, Service};
use std::future::Future;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::Status;

/// Timeout of any step on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Options with free ports and a store in `state`.
pub fn options(state: &Path) -> Options {
    Options {
        address: "127.0.0.1:0".parse().unwrap(),
        metrics: "127.0.0.1:0".into(),
        state: state.to_owned(),
        ..Options::default()
    }
}

/// Starts a registry in this process.
pub async fn start(state: &Path) -> (Handle, Clients) {
    start_with(options(state)).await
}

/// Starts a registry in this process.
pub async fn start_with(options: Options) -> (Handle, Clients) {
    let token = options.token.clone();
    let handle = Service::start(options).await.unwrap();
    let clients = Clients::new(&handle.url(), &token);
    (handle, clients)
}

/// All services of one registry.
#[derive(Clone)]
pub struct Clients {
    pub nodes: Nodes,
    pub instances: Instances,
    pub functions: Functions,
    pub operators: Operators,
}

impl Clients {
    pub fn new(url: &str, token: &str) -> Clients {
        let options = client::Options {
            url: url.into(),
            token: token.into(),
            ca: None,
        };
        Clients {
            nodes: client::nodes(&options).unwrap(),
            instances: client::instances(&options).unwrap(),
            functions: client::functions(&options).unwrap(),
            operators: client::operators(&options).unwrap(),
        }
    }

    pub async fn register(
        &mut self,
        node: &str,
        devices: Vec<DeviceDescription>,
    ) -> Result<RegisterReply, Status> {
        self.register_as(node, &id(node), devices).await
    }

    pub async fn register_as(
        &mut self,
        node: &str,
        id: &str,
        devices: Vec<DeviceDescription>,
    ) -> Result<RegisterReply, Status> {
        let request = RegisterRequest {
            node: Some(Node {
                name: node.into(),
                id: id.into(),
                endpoints: vec![format!("tcp:{node}:7471")],
                version: "1".into(),
                metrics: format!("{node}:9464"),
            }),
            devices,
        };
        Ok(self.nodes.register(request).await?.into_inner())
    }

    pub async fn heartbeat(
        &mut self,
        node: &str,
        devices: Vec<DeviceLoad>,
    ) -> Result<HeartbeatReply, Status> {
        let request = HeartbeatRequest {
            node: node.into(),
            id: id(node),
            devices,
            uptime_s: 60,
            ..HeartbeatRequest::default()
        };
        Ok(self.nodes.heartbeat(request).await?.into_inner())
    }

    /// Registers a node and sends its first heartbeat.
    pub async fn join(&mut self, node: &str, devices: Vec<(DeviceDescription, DeviceLoad)>) {
        let (descriptions, loads) = devices.into_iter().unzip();
        self.register(node, descriptions).await.unwrap();
        self.heartbeat(node, loads).await.unwrap();
    }

    pub async fn allocate(&mut self, instance: &str, query: &str) -> AllocateReply {
        self.ask(AllocateRequest {
            instance: instance.into(),
            query: query.into(),
            ..AllocateRequest::default()
        })
        .await
    }

    pub async fn ask(&mut self, request: AllocateRequest) -> AllocateReply {
        self.instances.allocate(request).await.unwrap().into_inner()
    }

    /// All devices, including those of silent nodes.
    pub async fn devices(&mut self) -> Vec<Device> {
        let request = DevicesRequest {
            silent: true,
            ..DevicesRequest::default()
        };
        let reply = self.operators.devices(request).await.unwrap();
        reply.into_inner().devices
    }

    pub async fn device(&mut self, node: &str, name: &str) -> Device {
        let all = self.devices().await;
        let is = |d: &Device| d.node == node && d.description.as_ref().unwrap().name == name;
        all.into_iter().find(is).unwrap()
    }
}

/// The secret id of a node.
pub fn id(node: &str) -> String {
    format!("{node:-<32}")
}

/// The digest for a letter.
pub fn digest(letter: char) -> String {
    letter.to_string().repeat(64)
}

/// A board with one region, holding `accelerator` (a letter of its digest, and its name).
pub fn board(name: &str, accelerator: Option<(char, &str)>) -> (DeviceDescription, DeviceLoad) {
    let regions = accelerator.into_iter().map(|(letter, name)| Region {
        index: 0,
        digest: digest(letter),
        name: name.into(),
        ..Region::default()
    });
    let description = DeviceDescription {
        name: name.into(),
        vendor: "Acme".into(),
        platform: "Acme OpenCL".into(),
        model: "board".into(),
        exclusive: true,
        regions: 1,
        ..DeviceDescription::default()
    };
    (description, busy(name, 0.0, regions.collect()))
}

/// A GPU, where any number of programs live.
pub fn gpu(name: &str, utilization: f64) -> (DeviceDescription, DeviceLoad) {
    let description = DeviceDescription {
        name: name.into(),
        vendor: "Shader Inc.".into(),
        platform: "Shader OpenCL".into(),
        model: "gpu".into(),
        ..DeviceDescription::default()
    };
    (description, busy(name, utilization, Vec::new()))
}

/// The part of a heartbeat about a device.
pub fn busy(name: &str, utilization: f64, regions: Vec<Region>) -> DeviceLoad {
    DeviceLoad {
        name: name.into(),
        utilization: Some(utilization),
        regions,
        ..DeviceLoad::default()
    }
}

/// The places of an instance's devices.
pub fn places(instance: &Instance) -> Vec<String> {
    let devices = instance.devices.iter();
    devices
        .map(|d| format!("{}/{}", d.node, d.device))
        .collect()
}

/// The instance in a response, which must be an allocation.
pub fn given(reply: AllocateReply) -> Instance {
    let refusal = reply.refusal;
    reply
        .instance
        .unwrap_or_else(|| panic!("refused: {refusal:?}"))
}

/// Retries until the condition holds.
pub async fn until<F>(what: &str, mut is_so: impl FnMut() -> F)
where
    F: Future<Output = bool>,
{
    let start = Instant::now();
    while !is_so().await {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The page for a scraper that accepts OpenMetrics.
pub async fn page(address: std::net::SocketAddr) -> String {
    page_as(address, "application/openmetrics-text").await
}

/// The page for a scraper with this `Accept` header.
pub async fn page_as(address: std::net::SocketAddr, accept: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let (head, _) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    text
}
