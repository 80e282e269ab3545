//! Functions whose number of devices follows their demand.

use super::*;
use baltra_testkit::{until, Options as Settings, Service};
use std::sync::atomic::{AtomicBool, Ordering};

/// A registry, and three nodes with a device each.
fn pool() -> (Service, Vec<Daemon>) {
    let registry = Service::start(baltra(), "registry", &Settings::default()).unwrap();
    let node = |name| {
        let settings = Settings {
            set: vec![
                format!("node.name={name}"),
                format!("node.registry={}", registry.url()),
            ],
            ..Settings::default()
        };
        Daemon::start_with(baltra(), &settings).unwrap()
    };
    let nodes = ["a", "b", "c"].map(node).into();
    until("the nodes have joined the pool", || {
        let text = registry.text(&["devices", "--json"]);
        text.is_ok_and(|text| text.matches("\"ready\"").count() == 3)
    })
    .unwrap();
    (registry, nodes)
}

/// Number of devices with an instance.
fn allocated(registry: &Service) -> usize {
    let text = registry.text(&["devices", "--json"]).unwrap();
    let devices: serde_json::Value = serde_json::from_str(&text).unwrap();
    let devices = devices.as_array().unwrap().iter();
    let is_used = |device: &&serde_json::Value| device["occupation"] != 0;
    devices.filter(is_used).count()
}

fn scaled(registry: &Service) -> Engine {
    engine(Options {
        registry: registry.url().to_owned(),
        scale_window_s: 1,
        ..options(&[])
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_come_with_the_load_and_go_with_it() {
    let (registry, _nodes) = pool();
    let engine = scaled(&registry);
    let manifest = format!("{ADD}scale: {{max: 2, target: 1, type: capacity}}\n");
    let function = function(&manifest, &[("add.cl", ADD_SOURCE)]);
    let scale = function.manifest.scale;
    let settings = baltra_engine::Settings {
        scale,
        ..baltra_engine::Settings::default()
    };
    engine.deploy(&function, settings).await;
    assert_eq!(engine.status(&function).unwrap().desired, 1);
    assert_eq!(allocated(&registry), 1);

    let ends = Arc::new(AtomicBool::new(false));
    let callers = (0..8).map(|_| {
        let (engine, function, ends) = (engine.clone(), function.clone(), ends.clone());
        tokio::spawn(async move {
            let numbers = ints(vec![7; 100_000]);
            while !ends.load(Ordering::Relaxed) {
                let sums = bytes(&engine, &function, "by=1", &numbers).await;
                assert_eq!(sums, ints(vec![8; 100_000]));
            }
        })
    });
    let callers: Vec<_> = callers.collect();
    let loaded = || {
        let status = engine.status(&function).unwrap();
        // The maximum, although a third device is free and eight calls wait.
        assert!(status.desired <= 2, "{status:?}");
        status.replicas.iter().filter(|r| r.loaded).count()
    };
    until("two devices serve", || {
        loaded() == 2 && allocated(&registry) == 2
    })
    .unwrap();
    ends.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.unwrap();
    }
    until("one device is released", || {
        loaded() == 1 && allocated(&registry) == 1
    })
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_function_gives_its_last_device_back() {
    let (registry, _nodes) = pool();
    let engine = scaled(&registry);
    let manifest = format!("{ADD}idle_s: 1\nscale: {{zero: true}}\n");
    let function = function(&manifest, &[("add.cl", ADD_SOURCE)]);
    let settings = baltra_engine::Settings {
        scale: function.manifest.scale,
        device: "node=b".parse().unwrap(),
        ..baltra_engine::Settings::default()
    };
    engine.deploy(&function, settings).await;
    assert_eq!(allocated(&registry), 1);
    until("no device is allocated", || allocated(&registry) == 0).unwrap();
    // Calls that arrive together wait for the same device.
    let calls = (0..4).map(|n| {
        let (engine, function) = (engine.clone(), function.clone());
        tokio::spawn(async move {
            let call = bind(&function, "by=1", ints([n]));
            run(&engine, &function, call).await.map(|r| r.node)
        })
    });
    for call in calls.collect::<Vec<_>>() {
        assert_eq!(call.await.unwrap().unwrap(), "b");
    }
}
