//! More accelerators than devices that hold one image at a time: the share of time spent on loading
//! images, and the waits of calls.

use super::*;
use baltra_testkit::{until, Options as Settings, Service};
use baltra_tests::compile_driver;
use std::sync::atomic::{AtomicBool, Ordering};

const ACCELERATORS: i32 = 12;
const DEVICES: u32 = 3;
/// Time that the driver takes for an image.
const LOAD: Duration = Duration::from_millis(30);
const TURN: Duration = Duration::from_millis(400);
/// Least time for which an image keeps its device: nine times the load.
const TURN_MIN: Duration = Duration::from_millis(270);
/// Longest wait for a turn, beside loads: a quarter of the images wait for a device, each for the
/// turns of the others.
const TURN_WAIT: Duration = Duration::from_millis(1600);

/// The loads that may follow each other after a longer time with one image.
const BURST: u32 = 3;

/// Turns of a fixed length.
fn fixed() -> String {
    format!(
        "turn_ms = {}\nturn_min_ms = {}\nturn_wait_ms = {}\n",
        TURN.as_millis(),
        TURN_MIN.as_millis(),
        TURN_WAIT.as_millis()
    )
}

/// A registry, and a node with devices that hold one image at a time.
fn pool(turns: &str) -> (Service, Daemon) {
    let registry = Service::start(baltra(), "registry", &Settings::default()).unwrap();
    let driver = compile_driver("slow_driver");
    let device = |n| {
        format!(
            "[[device]]\nname = 'fpga{n}'\nselect = '{n}'\ndriver = '{}'\nimage = 'exclusive'\n\
             {turns}",
            driver.display(),
        )
    };
    let settings = Settings {
        set: vec![format!("node.registry={}", registry.url())],
        config: (0..DEVICES).map(device).collect(),
        ..Settings::default()
    };
    let daemon = Daemon::start_with(baltra(), &settings).unwrap();
    until("the node has joined the pool", || {
        let text = registry.text(&["devices", "--json"]);
        text.is_ok_and(|text| text.matches("\"ready\"").count() == DEVICES as usize)
    })
    .unwrap();
    (registry, daemon)
}

/// Number of loads of each device.
fn reconfigurations(daemon: &Daemon) -> Vec<u32> {
    let shown = daemon.text(&["devices", "--local", "--json"]).unwrap();
    let devices: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let count = |device: &serde_json::Value| Some(device["reconfigurations"].as_u64()? as u32);
    let all = devices.as_array().unwrap().iter();
    all.filter_map(count).collect()
}

/// The calls of a time.
struct Demand {
    calls: usize,
    /// The most loads of a call's device between its request and its answer.
    loads_max: u32,
    /// The share of device time spent on loads.
    share: f64,
    /// The share that loads after a longer time with one image may take in addition.
    burst: f64,
}

/// Number of loads of a function's device.
fn loads_for(engine: &Engine, daemon: &Daemon, function: &Arc<Function>) -> u32 {
    let status = engine.status(function).unwrap();
    let mut replicas = status.replicas.iter();
    let device = replicas.find_map(|replica| replica.device.strip_prefix("fpga"));
    let device: usize = device
        .and_then(|n| n.parse().ok())
        .expect("it has a device");
    reconfigurations(daemon)[device]
}

/// Calls all functions for a time, each with one call at a time and a pause between calls.
async fn demand(
    (engine, daemon): (&Engine, &Arc<Daemon>),
    functions: &[Arc<Function>],
    time: Duration,
    pause: Duration,
) -> Demand {
    let (before, begun) = (reconfigurations(daemon), Instant::now());
    let ends = Arc::new(AtomicBool::new(false));
    let callers = functions.iter().cloned().zip(1..).map(|(function, by)| {
        let (engine, daemon, ends) = (engine.clone(), daemon.clone(), ends.clone());
        tokio::spawn(async move {
            let (mut calls, mut longest, mut loads_max) = (0, Duration::ZERO, 0);
            while !ends.load(Ordering::Relaxed) {
                let loads =
                    || tokio::task::block_in_place(|| loads_for(&engine, &daemon, &function));
                let (before, begun) = (loads(), Instant::now());
                let sums = bytes(&engine, &function, "", &ints([1])).await;
                assert_eq!(sums, ints([1 + by]));
                longest = longest.max(begun.elapsed());
                loads_max = loads_max.max(loads() - before);
                calls += 1;
                tokio::time::sleep(pause).await;
            }
            (calls, longest, loads_max)
        })
    });
    let callers: Vec<_> = callers.collect();
    tokio::time::sleep(time).await;
    ends.store(true, Ordering::Relaxed);
    let (mut calls, mut longest, mut loads_max) = (0, Duration::ZERO, 0);
    for caller in callers {
        let (count, time, loads) = caller.await.unwrap();
        calls += count;
        longest = longest.max(time);
        loads_max = loads_max.max(loads);
    }
    let after = reconfigurations(daemon);
    let loads: Vec<u32> = after.iter().zip(before).map(|(a, b)| a - b).collect();
    let share = (LOAD * loads.iter().sum::<u32>()).as_secs_f64()
        / (begun.elapsed() * DEVICES).as_secs_f64();
    println!(
        "{calls} calls, the longest {} ms and {loads_max} loads; loads by device {loads:?}, {:.1} % of the time",
        longest.as_millis(),
        share * 100.0
    );
    let burst = (LOAD * BURST).as_secs_f64() / begun.elapsed().as_secs_f64();
    Demand {
        calls,
        loads_max,
        share,
        burst,
    }
}

/// Functions with an accelerator each.
async fn deployed(engine: &Engine) -> Vec<Arc<Function>> {
    let mut functions = Vec::new();
    for by in 1..=ACCELERATORS {
        let manifest = format!(
            "name: add-{by}\ninputs: [{{name: a, type: i32, shape: [n]}}]\n\
             outputs: [{{name: b, type: i32, shape: [n]}}]\n\
             implementations: [{{opencl: {{source: add.cl, kernel: add, global: [n]}}}}]\n"
        );
        let source = format!(
            "kernel void add(global const int *a, global int *b) {{\n\
             size_t i = get_global_id(0);\nb[i] = a[i] + {by};\n}}"
        );
        let function = function(&manifest, &[("add.cl", source.as_bytes())]);
        engine.deploy(&function, 0).await;
        // Compiles it.
        assert_eq!(
            bytes(engine, &function, "", &ints([1])).await,
            ints([1 + by])
        );
        functions.push(function);
    }
    functions
}

#[tokio::test(flavor = "multi_thread")]
async fn automatic_turns_bound_the_time_for_loads() {
    let (registry, daemon) = pool("");
    let engine = engine(Options {
        registry: registry.url().to_owned(),
        ..options(&[])
    });
    let functions = deployed(&engine).await;
    let daemon = Arc::new(daemon);
    let second = Duration::from_secs(1);
    // With work all the time, and with sparse calls.
    for (pause, most) in [(Duration::ZERO, 0.1), (second / 5, 0.5)] {
        let demand = demand((&engine, &daemon), &functions, 5 * second, pause).await;
        assert!(demand.calls > 12);
        let (share, most) = (demand.share, most + demand.burst);
        assert!(share <= most, "{share} of {most}");
    }
    // The driver has compiled a function before its first load, which takes hardly any time: with
    // one more load the mean is at least half of `LOAD`.
    let mut shown = String::new();
    let measured = until("the registry has measurements of the loaded images", || {
        shown = registry.text(&["devices", "--json"]).unwrap();
        let devices: serde_json::Value = serde_json::from_str(&shown).unwrap();
        let is_measured = |device: &serde_json::Value| {
            let region = &device["regions"][0];
            let load_ms = region["load_ms"].as_f64().unwrap_or(0.0);
            load_ms >= LOAD.as_secs_f64() * 1e3 / 2.0 && region["recent_uses"].as_f64() > Some(0.0)
        };
        devices.as_array().unwrap().iter().all(is_measured)
    });
    assert!(measured.is_ok(), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn twelve_accelerators_on_three_devices_take_turns() {
    let (registry, daemon) = pool(&fixed());
    let engine = engine(Options {
        registry: registry.url().to_owned(),
        ..options(&[])
    });
    let functions = deployed(&engine).await;
    let daemon = Arc::new(daemon);
    let both = (&engine, &daemon);
    let second = Duration::from_secs(1);
    let steady = demand(both, &functions, 3 * second, Duration::ZERO).await;
    assert!(steady.calls > 12 && steady.share <= 0.1, "{}", steady.share);
    let replicas = functions
        .iter()
        .flat_map(|f| engine.status(f).unwrap().replicas);
    let devices: Vec<String> = replicas.map(|replica| replica.device).collect();
    println!("devices of the accelerators: {devices:?}");
    // Each call comes when its accelerator has probably been replaced.
    let sparse = demand(both, &functions, 3 * second, second / 5).await;
    assert!(sparse.calls > 12 && sparse.share <= 0.1, "{}", sparse.share);
    // A call waits for at most the turns of the other images on its device. If the end of its own
    // image's turn interrupts it, it waits once more.
    let of = |device: &String| devices.iter().filter(|other| *other == device).count();
    let images = devices.iter().map(of).max().unwrap() as u32;
    for demand in [steady, sparse] {
        let most = 2 * images;
        assert!(demand.loads_max <= most, "{} of {most}", demand.loads_max);
    }
}
