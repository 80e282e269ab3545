//! The registry with a real manager and a real Prometheus server (Debian's).

use baltra_api::client::{self, Instances, Operators};
use baltra_api::registry::{AllocateRequest, Device, DevicesRequest, StatusRequest};
use baltra_registry::{Handle, Options, Service};
use baltra_testkit::Daemon;
use baltra_tests::prometheus::Prometheus;
use baltra_tests::{compile, daemon_with, tenants, through, Running};
use std::future::Future;
use std::path::Path;
use std::time::{Duration, Instant};

/// Timeout of any step on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A Prometheus server with one target.
fn prometheus(target: &str) -> Prometheus {
    let config = format!(
        "global:\n  scrape_interval: 200ms\n  scrape_timeout: 200ms\nscrape_configs:\n- job_name: baltra\n  static_configs:\n  - targets: ['{target}']\n"
    );
    Prometheus::start(&config, "")
}

/// Starts a registry on free ports.
async fn registry(state: &Path, change: impl FnOnce(&mut Options)) -> Handle {
    let mut options = Options {
        address: "127.0.0.1:0".parse().unwrap(),
        metrics: String::new(),
        state: state.to_owned(),
        ..Options::default()
    };
    change(&mut options);
    Service::start(options).await.unwrap()
}

fn clients(url: &str) -> (Operators, Instances) {
    let options = client::Options {
        url: url.into(),
        ..client::Options::default()
    };
    (
        client::operators(&options).unwrap(),
        client::instances(&options).unwrap(),
    )
}

async fn device(operators: &mut Operators) -> Option<Device> {
    let reply = operators.devices(DevicesRequest::default()).await.unwrap();
    reply.into_inner().devices.into_iter().next()
}

async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let start = Instant::now();
    while !is_so().await {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A manager that joins the registry and serves metrics at the address.
fn manager(url: &str, metrics: &str) -> Daemon {
    daemon_with(&[
        &format!("node.registry=\"{url}\""),
        &format!("metrics.address={metrics}"),
    ])
}

/// A port that is free at the moment: the metrics of this manager cannot be scraped.
fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_metrics_come_from_a_prometheus_server() {
    let dir = tempfile::tempdir().unwrap();
    let metrics = free_address();
    let prometheus = prometheus(&metrics);
    let text = "
        order = ['alive', 'utilization']
        filters = [{ metric = 'alive', max = 0.5 }]
        [queries]
        alive = 'baltra_device_up'
        slots = 'baltra_device_slots{device=\"{device}\"}'
        utilization = '100 * sum by (instance, device) (rate(baltra_device_busy_seconds_total[2s]))'
        mistaken = 'rate(nothing'
    ";
    let configured: Options = toml::from_str(text).unwrap();
    let handle = registry(dir.path(), |options| {
        options.prometheus = prometheus.url.clone();
        options.prometheus_interval_s = 0.2;
        options.queries = configured.queries;
        options.filters = configured.filters;
        options.order = configured.order;
    })
    .await;
    let (operators, mut instances) = clients(&handle.url());
    let daemon = manager(&handle.url(), &metrics);

    // The labels identify the device: `instance` is the address of its manager's metrics.
    until("Prometheus' values are at the device", || {
        let mut operators = operators.clone();
        async move {
            let device = device(&mut operators).await;
            device.is_some_and(|d| {
                d.metrics.get("alive") == Some(&1.0) && d.metrics.contains_key("slots")
            })
        }
    })
    .await;
    // Metrics filter devices, and a refusal names the metric.
    let reply = instances
        .allocate(AllocateRequest::default())
        .await
        .unwrap()
        .into_inner();
    let refusal = reply.refusal.expect("'alive' is beyond its bound");
    assert_eq!(refusal.devices[0].filter, "metric");
    assert!(
        refusal.devices[0].reason.contains("alive is 1"),
        "{refusal:?}"
    );
    // An invalid query is reported to the operator, with the server's message.
    until("the mistake is reported", || {
        let mut operators = operators.clone();
        async move {
            let status = operators
                .status(StatusRequest {})
                .await
                .unwrap()
                .into_inner();
            status.metrics_failure.contains("rate(nothing")
        }
    })
    .await;

    // Utilization is the server's: heartbeats contain no rate over two seconds.
    tenants(&daemon, &["red"]);
    let mut command = through(&daemon, "red", compile("work"));
    command.args(["0", "262144"]);
    let load = Running::start(command);
    until("the device is seen to work", || {
        let mut operators = operators.clone();
        async move {
            device(&mut operators)
                .await
                .is_some_and(|d| d.utilization > 5.0)
        }
    })
    .await;
    drop(load);
    drop(daemon);
    handle.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn heartbeats_count_while_the_prometheus_server_is_away() {
    let dir = tempfile::tempdir().unwrap();
    let metrics = free_address();
    let prometheus = prometheus(&metrics);
    let handle = registry(dir.path(), |options| {
        options.prometheus = prometheus.url.clone();
        options.prometheus_interval_s = 0.2;
        options.lease_s = 2.0;
        // A value that no device reports.
        let query = "12.5 + 0 * baltra_device_up".to_owned();
        options.queries = [("utilization".to_owned(), query)].into();
    })
    .await;
    let (operators, _) = clients(&handle.url());
    let _daemon = manager(&handle.url(), &metrics);
    let shows = |utilization: f64| {
        let operators = operators.clone();
        move || {
            let mut operators = operators.clone();
            async move {
                let device = device(&mut operators).await;
                device.is_some_and(|d| d.utilization == utilization)
            }
        }
    };
    until("the server's value is taken", shows(12.5)).await;
    drop(prometheus);
    until("an idle device's heartbeats are believed again", shows(0.0)).await;
    let status = operators
        .clone()
        .status(StatusRequest {})
        .await
        .unwrap()
        .into_inner();
    assert!(
        status.metrics_failure.contains("cannot query"),
        "{status:?}"
    );
    handle.stop().await;
}
