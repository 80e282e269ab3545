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

/// A registry, and a node with devices that hold one image at a time.
fn pool() -> (Service, Daemon) {
    let registry = Service::start(baltra(), "registry", &Settings::default()).unwrap();
    let driver = compile_driver("slow_driver");
    let device = |n| {
        format!(
            "[[device]]\nname = 'fpga{n}'\nselect = '{n}'\ndriver = '{}'\nimage = 'exclusive'\n\
             turn_ms = {}\nturn_min_ms = {}\n",
            driver.display(),
            TURN.as_millis(),
            TURN_MIN.as_millis()
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

/// Calls all functions for a time, each with one call at a time and a pause between calls. Returns
/// the number of calls, the longest time of one, and the share of device time spent on loads.
async fn demand(
    (engine, daemon): (&Engine, &Daemon),
    functions: &[Arc<Function>],
    time: Duration,
    pause: Duration,
) -> (usize, Duration, f64) {
    let (before, begun) = (reconfigurations(daemon), Instant::now());
    let ends = Arc::new(AtomicBool::new(false));
    let callers = functions.iter().cloned().zip(1..).map(|(function, by)| {
        let (engine, ends) = (engine.clone(), ends.clone());
        tokio::spawn(async move {
            let (mut calls, mut longest) = (0, Duration::ZERO);
            while !ends.load(Ordering::Relaxed) {
                let begun = Instant::now();
                let sums = bytes(&engine, &function, "", &ints([1])).await;
                assert_eq!(sums, ints([1 + by]));
                longest = longest.max(begun.elapsed());
                calls += 1;
                tokio::time::sleep(pause).await;
            }
            (calls, longest)
        })
    });
    let callers: Vec<_> = callers.collect();
    tokio::time::sleep(time).await;
    ends.store(true, Ordering::Relaxed);
    let (mut calls, mut longest) = (0, Duration::ZERO);
    for caller in callers {
        let (count, time) = caller.await.unwrap();
        calls += count;
        longest = longest.max(time);
    }
    let after = reconfigurations(daemon);
    let loads: Vec<u32> = after.iter().zip(before).map(|(a, b)| a - b).collect();
    let share = (LOAD * loads.iter().sum::<u32>()).as_secs_f64()
        / (begun.elapsed() * DEVICES).as_secs_f64();
    println!(
        "{calls} calls, the longest {} ms; loads by device {loads:?}, {:.1} % of the time",
        longest.as_millis(),
        share * 100.0
    );
    (calls, longest, share)
}

#[tokio::test(flavor = "multi_thread")]
async fn twelve_accelerators_on_three_devices_take_turns() {
    let (registry, daemon) = pool();
    let engine = engine(Options {
        registry: registry.url().to_owned(),
        ..options(&[])
    });
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
            bytes(&engine, &function, "", &ints([1])).await,
            ints([1 + by])
        );
        functions.push(function);
    }
    let both = (&engine, &daemon);
    let second = Duration::from_secs(1);
    let (steady, _, share) = demand(both, &functions, 3 * second, Duration::ZERO).await;
    assert!(steady > 12 && share <= 0.1, "{share}");
    let replicas = functions
        .iter()
        .flat_map(|f| engine.status(f).unwrap().replicas);
    let devices: Vec<String> = replicas.map(|replica| replica.device).collect();
    println!("devices of the accelerators: {devices:?}");
    // Each call comes when its accelerator has probably been replaced.
    let (sparse, _, share) = demand(both, &functions, 3 * second, second / 5).await;
    assert!(sparse > 12 && share <= 0.1, "{share}");
}
