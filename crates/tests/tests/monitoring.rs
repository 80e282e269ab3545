//! The metrics in `deploy/`'s configurations of Prometheus and Grafana exist in the daemons.

use baltra_testkit::{Daemon, Options, Service};
use baltra_tests::{baltra, daemon_with, free_port, get, root};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

/// The metric families of a page.
fn families(page: &str) -> BTreeSet<String> {
    let lines = page.lines().filter_map(|l| l.strip_prefix("# TYPE "));
    lines
        .filter_map(|l| l.split(' ').next())
        .map(str::to_owned)
        .collect()
}

/// Every `baltra_…` in a text.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
    words
        .filter(|w| w.starts_with("baltra_"))
        .map(str::to_owned)
        .collect()
}

struct Pool {
    registry: Service,
    gateway: Service,
    _node: Daemon,
    metrics: [String; 2],
}

impl Pool {
    fn start() -> Pool {
        let metrics = [free_port(), free_port()].map(|port| format!("127.0.0.1:{port}"));
        let options = |set: Vec<String>| Options {
            set,
            ..Options::default()
        };
        let with_metrics = options(vec![format!("registry.metrics={}", metrics[1])]);
        let registry = Service::start(baltra(), "registry", &with_metrics).unwrap();
        let joined = format!("node.registry={}", registry.url());
        let node = daemon_with(&[
            "node.name=isabela",
            &joined,
            &format!("metrics.address={}", metrics[0]),
        ]);
        let routed = options(vec![format!("gateway.engine.registry={}", registry.url())]);
        let gateway = Service::start(baltra(), "gateway", &routed).unwrap();
        Pool {
            registry,
            gateway,
            _node: node,
            metrics,
        }
    }
}

#[test]
fn every_metric_that_is_asked_for_is_there() {
    let pool = Pool::start();
    // An example without a native library, which would have to be built first.
    let function = root().join("apps/functions/sobel");
    let url = pool.gateway.url();
    let function = function.to_str().unwrap();
    let deployed = pool
        .gateway
        .text(&["function", "deploy", function, "--gateway", url]);
    deployed.unwrap();
    let mut stream = TcpStream::connect(url.trim_start_matches("http://")).unwrap();
    let head = "POST /function/sobel?width=2&height=2 HTTP/1.1\r\nHost: x\r\n\
        Content-Type: application/octet-stream\r\nAccept: application/octet-stream\r\nContent-Length: 4\r\nConnection: close\r\n\r\n";
    stream
        .write_all(&[head.as_bytes(), &[7; 4]].concat())
        .unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(
        answer.ends_with(b"\r\n\r\n\0\0\0\0"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    // A metric family without samples is not exported, so one refusal is needed.
    let refused = pool.registry.baltra(&[
        "run",
        "--registry",
        pool.registry.url(),
        "--device",
        "vendor=nobody",
        "--",
        "true",
    ]);
    let refused = refused.unwrap();
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && stderr.contains("vendor"),
        "{stderr}"
    );

    let mut known = families(&get(&pool.metrics[0], "/metrics"));
    known.extend(families(&get(&pool.metrics[1], "/metrics")));
    known.extend(families(&get(
        url.trim_start_matches("http://"),
        "/metrics",
    )));
    // The driver of this test holds no images, so that there are no samples of them.
    known.insert("baltra_region_image".into());
    let mut paths = dashboards();
    for rules in ["alerts.yaml", "alerts_test.yaml"] {
        paths.push(root().join("deploy/prometheus").join(rules));
    }
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let path = path.display();
        let queried = named(&text);
        assert!(queried.len() > 4, "{path} queries {queried:?}");
        for name in queried {
            let ends = ["", "_total", "_bucket", "_sum", "_count"];
            let mut bare = ends.into_iter().filter_map(|end| name.strip_suffix(end));
            assert!(
                bare.any(|b| known.contains(b)),
                "{path} queries {name}; there are {known:#?}"
            );
        }
    }
}

/// The dashboards: the overview and one for each door.
fn dashboards() -> Vec<PathBuf> {
    let files = std::fs::read_dir(root().join("deploy/grafana")).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let all: Vec<PathBuf> = files
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .collect();
    assert_eq!(all.len(), 6, "{all:?}");
    all
}

#[test]
fn rules_and_dashboard_pass_their_check() {
    let checked = Command::new(root().join("deploy/prometheus/check.sh"))
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&checked.stdout).into_owned()
        + &String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{output}");
}
