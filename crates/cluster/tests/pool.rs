//! Boards from a real registry: allocated to a run, and released at its end or when the launcher
//! dies. `scripts/setup.sh fabric` installs the tools for the boards' model.

mod common;

use baltra_api::client;
use baltra_api::registry::{
    DeviceDescription, DeviceLoad, DevicesRequest, HeartbeatRequest, Node, RegisterRequest,
};
use baltra_cluster::{command, pool, Cluster, Command};
use baltra_registry::{Options, Service};
use clap::Parser;
use common::Bench;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command as Process, ExitCode, Stdio};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const ASKS: &str = r#"
#include <humboldt.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    int rank, got = 0;
    HUM_Init(&argc, &argv);
    for (rank = 1; rank <= 2; rank++) {
        HUM_Send(&rank, 1, HUM_INT, rank, 7, HUM_COMM_WORLD);
        HUM_Recv(&got, 1, HUM_INT, rank, 7, HUM_COMM_WORLD, HUM_STATUS_IGNORE);
        printf("back from %d\n", got);
    }
    HUM_Finalize();
    return 0;
}
"#;
const LOGICAL: &str = "kernel: [{name: asks, num: 0}, {name: echo, num: 1, rep: 2}]";
/// The map file has no addresses for the boards.
const MAP: &str = "node: [{type: sw, comm: eth, mac: '02:00:00:00:00:01', ip: 127.0.0.1, kernel: 0}, {type: hw, comm: eth, kernel: 1}, {type: hw, comm: eth, kernel: 2}]";

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// A registry in this process, with nodes.
struct Registry {
    runtime: Runtime,
    url: String,
    _state: tempfile::TempDir,
}

impl Registry {
    fn new(devices: Vec<DeviceDescription>) -> Registry {
        let state = tempfile::tempdir().unwrap();
        let runtime = Runtime::new().unwrap();
        let options = Options {
            address: "127.0.0.1:0".parse().unwrap(),
            metrics: "127.0.0.1:0".into(),
            state: state.path().to_owned(),
            lease_s: 40.0,
            grace_s: 40.0,
            ..Options::default()
        };
        let url = runtime.block_on(async {
            let handle = Service::start(options).await.unwrap();
            let url = handle.url();
            std::mem::forget(handle); // the server runs until the runtime is dropped
            let at = client::Options {
                url: url.clone(),
                ..client::Options::default()
            };
            let mut nodes = client::nodes(&at).unwrap();
            let id = "0123456789abcdef0123456789abcdef".to_owned();
            let node = Node {
                name: "rack".into(),
                id: id.clone(),
                endpoints: vec!["tcp:127.0.0.1:1".into()],
                ..Node::default()
            };
            let loads = devices
                .iter()
                .map(|d| DeviceLoad {
                    name: d.name.clone(),
                    ..DeviceLoad::default()
                })
                .collect();
            nodes
                .register(RegisterRequest {
                    node: Some(node),
                    devices,
                })
                .await
                .unwrap();
            nodes
                .heartbeat(HeartbeatRequest {
                    node: "rack".into(),
                    id,
                    devices: loads,
                    ..HeartbeatRequest::default()
                })
                .await
                .unwrap();
            url
        });
        Registry {
            runtime,
            url,
            _state: state,
        }
    }

    fn at(&self) -> client::Options {
        client::Options {
            url: self.url.clone(),
            ..client::Options::default()
        }
    }

    /// The number of instances of each board.
    fn occupations(&self) -> Vec<u32> {
        self.runtime.block_on(async {
            let mut operators = client::operators(&self.at()).unwrap();
            let reply = operators.devices(DevicesRequest::default()).await.unwrap();
            reply
                .into_inner()
                .devices
                .iter()
                .map(|d| d.occupation)
                .collect()
        })
    }
}

fn board(name: &str, labels: &[(&str, &str)]) -> DeviceDescription {
    DeviceDescription {
        name: name.into(),
        vendor: "Baltra".into(),
        platform: "Baltra boards".into(),
        model: "model".into(),
        slots: 1,
        regions: 1,
        exclusive: true,
        labels: labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect(),
        ..DeviceDescription::default()
    }
}

fn two() -> Vec<DeviceDescription> {
    let labels = |n: u8| {
        [
            ("mac", format!("02:00:00:00:01:0{n}")),
            ("ip", format!("127.0.1.{n}")),
        ]
    };
    [1, 2]
        .map(|n| {
            let labels = labels(n);
            let pairs: Vec<(&str, &str)> = labels.iter().map(|(k, v)| (*k, v.as_str())).collect();
            board(&format!("b{n}"), &pairs)
        })
        .to_vec()
}

fn bench() -> Bench {
    Bench::new(&[
        ("logical.yaml", LOGICAL),
        ("map.yaml", MAP),
        ("asks.c", ASKS),
    ])
}

/// Runs `baltra cluster run` with those files.
fn run(bench: &Bench, registry: &Registry) -> Result<(ExitCode, String), String> {
    let file = |name: &str| bench.dir.path().join(name).display().to_string();
    let humboldt = common::tree().join("humboldt").display().to_string();
    let words = [
        "cluster",
        "run",
        "--quiet",
        "--pool",
        &registry.url,
        "--out",
        &file("out"),
        "--humboldt",
        &humboldt,
        &file("logical.yaml"),
        &file("map.yaml"),
    ];
    let mut out = Vec::new();
    let code = command(&Cli::parse_from(words).command, &mut out).map_err(|e| format!("{e:#}"))?;
    Ok((code, String::from_utf8(out).unwrap()))
}

fn take(bench: &Bench, url: &str) -> Result<pool::Boards, String> {
    let at = client::Options {
        url: url.to_owned(),
        ..client::Options::default()
    };
    let mut boards = None;
    let [logical, map] = ["logical.yaml", "map.yaml"].map(|f| bench.dir.path().join(f));
    let fill = |cluster: &mut Cluster| {
        boards = Some(pool::take(cluster, &at, &mut |_| {}).map_err(|e| format!("{e:#}"))?);
        Ok(())
    };
    Cluster::read_with(&logical, &map, fill).map_err(|e| e.to_string())?;
    Ok(boards.unwrap())
}

#[test]
fn a_run_has_its_boards_alone_and_gives_them_back() {
    let (bench, registry) = (bench(), Registry::new(two()));
    let (code, out) = run(&bench, &registry).unwrap();
    assert_eq!(
        format!("{code:?}"),
        format!("{:?}", ExitCode::SUCCESS),
        "{out}"
    );
    assert_eq!(out, "[0] back from 1\n[0] back from 2\n");
    assert_eq!(registry.occupations(), [0, 0]);
    // The boards are allocated to another run.
    let kept = take(&bench, &registry.url).unwrap();
    assert_eq!(registry.occupations(), [1, 1]);
    let message = run(&bench, &registry).unwrap_err();
    assert!(
        message.contains("is in use, and no other is free"),
        "{message}"
    );
    assert_eq!(registry.occupations(), [1, 1]);
    drop(kept);
    assert_eq!(registry.occupations(), [0, 0]);
}

#[test]
fn what_the_pool_has_not_is_said() {
    let bench = bench();
    let one = Registry::new(two()[..1].to_vec());
    let message = run(&bench, &one).unwrap_err();
    assert!(
        message.contains("the pool has fewer than 2 boards for 'platform=Baltra boards'"),
        "{message}"
    );
    let bare = Registry::new(vec![board("b1", &[]), board("b2", &[])]);
    let message = run(&bench, &bare).unwrap_err();
    assert!(
        message.contains("has neither of the labels mac and ip"),
        "{message}"
    );
    assert_eq!(bare.occupations(), [0, 0]);
    // An address without a registry.
    let gone = Registry {
        url: "http://127.0.0.1:1".into(),
        ..bare
    };
    let message = run(&bench, &gone).unwrap_err();
    assert!(message.contains("the registry"), "{message}");
}

/// Not a test: the launcher process that the next test kills.
#[test]
#[ignore = "started by boards_of_a_launcher_that_dies_are_free_again"]
fn launcher() {
    let Ok(url) = std::env::var("POOL_TEST_URL") else {
        return;
    };
    let _boards = take(&bench(), &url).unwrap();
    println!("has them");
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn boards_of_a_launcher_that_dies_are_free_again() {
    let registry = Registry::new(two());
    let program = std::env::current_exe().unwrap();
    let mut launcher = Process::new(Path::new(&program))
        .args(["--exact", "launcher", "--ignored", "--nocapture"])
        .env("POOL_TEST_URL", &registry.url)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(launcher.stdout.take().unwrap()).lines();
    assert!(lines
        .map_while(Result::ok)
        .any(|line| line.contains("has them")));
    assert_eq!(registry.occupations(), [1, 1]);
    launcher.kill().unwrap();
    launcher.wait().unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while registry.occupations() != [0, 0] {
        assert!(Instant::now() < until, "nobody gives them back");
        std::thread::sleep(Duration::from_millis(200));
    }
}
