//! Tests of nodes that join, fall silent and restart, of restarts of the registry, and of clock
//! changes.

mod support;

use baltra_api::registry::{
    AllocateRequest, DeregisterRequest, DeviceLoad, DevicesRequest, RenewRequest,
};
use baltra_registry::clock::Clock;
use baltra_registry::{Options, Service};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use support::{
    board, busy, given, gpu, id, options, page, places, start, start_with, until, Clients,
};
use tonic::Code;

#[tokio::test]
async fn a_silent_node_leaves_the_pool_and_comes_back_with_its_allocations() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start_with(Options {
        lease_s: 0.3,
        ..options(dir.path())
    })
    .await;
    c.register("n1", vec![gpu("a", 0.0).0]).await.unwrap();
    // The lease is short: on a loaded machine, it may expire before the request arrives.
    until("it is allocated", || {
        let mut c = c.clone();
        async move {
            c.heartbeat("n1", vec![gpu("a", 0.0).1]).await.unwrap();
            c.allocate("app", "").await.instance.is_some()
        }
    })
    .await;
    until("it falls silent", || {
        let mut c = c.clone();
        async move { c.device("n1", "a").await.state == "silent" }
    })
    .await;
    let refusal = c.allocate("other", "").await.refusal.unwrap();
    assert_eq!(refusal.devices[0].filter, "state");
    assert!(
        refusal.devices[0].reason.contains("no heartbeats"),
        "{refusal:?}"
    );
    let seen = c
        .operators
        .devices(DevicesRequest::default())
        .await
        .unwrap();
    assert!(seen.into_inner().devices.is_empty());
    let renew = RenewRequest {
        instance: "app".into(),
        ..RenewRequest::default()
    };
    let kept = c.instances.renew(renew).await.unwrap().into_inner();
    assert_eq!(places(&kept), ["n1/a"]);
    assert!(kept.devices[0].silent);

    let orders = c
        .heartbeat("n1", vec![gpu("a", 0.0).1])
        .await
        .unwrap()
        .orders;
    assert_eq!(orders[0].instances, ["app"]);
    handle.stop().await;
}

#[tokio::test]
async fn a_node_that_deregisters_is_out_at_once_and_keeps_its_allocations() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start(dir.path()).await;
    c.join("n1", vec![gpu("a", 0.0)]).await;
    given(c.allocate("app", "").await);
    let request = DeregisterRequest {
        node: "n1".into(),
        id: id("n1"),
    };
    c.nodes.deregister(request).await.unwrap();
    assert_eq!(c.device("n1", "a").await.state, "silent");
    let orders = c
        .register("n1", vec![gpu("a", 0.0).0])
        .await
        .unwrap()
        .orders;
    assert_eq!(orders[0].instances, ["app"]);
    handle.stop().await;
}

#[tokio::test]
async fn allocations_and_orders_outlive_both_sides() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start(dir.path()).await;
    let first = c
        .register("n1", vec![gpu("a", 0.0).0, board("b", None).0])
        .await
        .unwrap();
    c.heartbeat("n1", vec![gpu("a", 0.0).1, board("b", None).1])
        .await
        .unwrap();
    let app = given(c.allocate("app", "vendor=Shader*").await);
    given(c.allocate("planned", "accelerator=sobel,vendor=Acme").await);
    let cordon = baltra_api::registry::CordonRequest {
        device: "n1/b".into(),
    };
    c.operators.cordon(cordon).await.unwrap();

    // The manager restarts.
    let again = c
        .register("n1", vec![gpu("a", 0.0).0, board("b", None).0])
        .await
        .unwrap();
    assert_eq!(again.generation, first.generation);
    assert_eq!(again.orders[0].instances, ["app"]);
    assert!(again.orders[1].cordoned);
    handle.stop().await;

    // The registry restarts.
    let (handle, mut c) = start(dir.path()).await;
    let device = c.device("n1", "a").await;
    assert_eq!(device.state, "unconfirmed");
    assert_eq!(device.instances, ["app"]);
    let refusal = c.allocate("new", "").await.refusal.unwrap();
    assert!(
        refusal.devices[0]
            .reason
            .contains("since the registry started"),
        "{refusal:?}"
    );
    // No registration is needed: the heartbeat suffices, and its reply identifies the new registry.
    let beat = c
        .heartbeat("n1", vec![gpu("a", 0.0).1, board("b", None).1])
        .await
        .unwrap();
    assert_eq!(beat.generation, first.generation + 1);
    assert_eq!(c.device("n1", "a").await.state, "ready");
    let board = c.device("n1", "b").await;
    assert!(board.cordoned && board.pending[0].name == "sobel");
    let same = given(c.allocate("app", "vendor=Shader*").await);
    assert_eq!(same, app);
    handle.stop().await;
}

#[tokio::test]
async fn nodes_of_the_store_are_waited_for_only_during_the_grace_period() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start(dir.path()).await;
    c.join("n1", vec![gpu("a", 0.0)]).await;
    handle.stop().await;
    let (handle, c) = start_with(Options {
        lease_s: 0.2,
        grace_s: 0.4,
        ..options(dir.path())
    })
    .await;
    until("the grace is over", || {
        let mut c = c.clone();
        async move { c.device("n1", "a").await.state == "silent" }
    })
    .await;
    handle.stop().await;
}

#[tokio::test]
async fn a_node_that_is_forgotten_takes_its_allocations_along() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start_with(Options {
        lease_s: 0.2,
        grace_s: 0.2,
        forget_s: 0.5,
        ..options(dir.path())
    })
    .await;
    c.register("n1", vec![gpu("a", 0.0).0]).await.unwrap();
    until("it is allocated", || {
        let mut c = c.clone();
        async move {
            let beat = c.heartbeat("n1", vec![gpu("a", 0.0).1]).await;
            if beat.is_err() {
                c.register("n1", vec![gpu("a", 0.0).0]).await.unwrap();
            }
            let request = AllocateRequest {
                instance: "app".into(),
                lease_s: Some(0),
                ..AllocateRequest::default()
            };
            c.ask(request).await.instance.is_some()
        }
    })
    .await;
    until("the instance waits", || {
        let mut c = c.clone();
        async move {
            let renew = RenewRequest {
                instance: "app".into(),
                ..RenewRequest::default()
            };
            let app = c.instances.renew(renew).await.unwrap().into_inner();
            app.devices.is_empty() && app.pending.contains("was removed")
        }
    })
    .await;
    let status = c.heartbeat("n1", Vec::new()).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    handle.stop().await;
}

#[tokio::test]
async fn a_name_is_one_nodes_for_as_long_as_its_lease_runs() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start(dir.path()).await;
    c.join("n1", vec![gpu("a", 0.0)]).await;
    let thief = "another-secret-of-another-node";
    let status = c
        .register_as("n1", thief, vec![gpu("a", 0.0).0])
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::AlreadyExists);
    assert!(status.message().contains("node.name"), "{status}");
    let request = baltra_api::registry::HeartbeatRequest {
        node: "n1".into(),
        id: thief.into(),
        ..Default::default()
    };
    let status = c.nodes.heartbeat(request).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    // After the first node has gone, its name is free.
    let request = DeregisterRequest {
        node: "n1".into(),
        id: id("n1"),
    };
    c.nodes.deregister(request).await.unwrap();
    c.register_as("n1", thief, vec![gpu("a", 0.0).0])
        .await
        .unwrap();
    handle.stop().await;
}

#[tokio::test]
async fn a_node_s_version_uptime_and_dead_executors_are_known() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start(dir.path()).await;
    c.register("n1", vec![gpu("a", 0.0).0]).await.unwrap();
    c.register("n2", vec![gpu("a", 0.0).0]).await.unwrap();
    let request = baltra_api::registry::HeartbeatRequest {
        node: "n1".into(),
        id: id("n1"),
        devices: vec![DeviceLoad {
            executor_deaths: 3,
            ..busy("a", 0.0, Vec::new())
        }],
        uptime_s: 77,
        weights: [("red".to_owned(), 3)].into(),
        ..Default::default()
    };
    c.nodes.heartbeat(request).await.unwrap();
    let reply = c.operators.devices(DevicesRequest::default()).await;
    let reply = reply.unwrap().into_inner();
    let nodes: Vec<_> = reply
        .nodes
        .iter()
        .map(|n| (n.name.as_str(), n.version.as_str(), n.uptime_s))
        .collect();
    assert_eq!(nodes, [("n1", "1", Some(77)), ("n2", "1", None)]);
    assert_eq!(reply.nodes[0].weights["red"], 3);
    let deaths: Vec<u64> = reply.devices.iter().map(|d| d.executor_deaths).collect();
    assert_eq!(deaths, [3, 0]);
    let page = page(handle.metrics().unwrap()).await;
    for line in [
        "baltra_registry_node_info{node=\"n1\",version=\"1\"} 1",
        "baltra_registry_node_uptime_seconds{node=\"n1\"} 77",
        "baltra_registry_executor_deaths_total{node=\"n1\",device=\"a\"} 3",
    ] {
        assert!(page.contains(line), "{line} is not in\n{page}");
    }
    // The reply has only the nodes of the requested devices.
    let request = DevicesRequest {
        query: "node=n2".into(),
        ..DevicesRequest::default()
    };
    let reply = c.operators.devices(request).await.unwrap().into_inner();
    assert_eq!(reply.nodes.len(), 1);
    handle.stop().await;
}

#[tokio::test]
async fn a_device_that_a_restarted_node_no_longer_has_is_taken_from_its_instances() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start(dir.path()).await;
    c.join("n1", vec![gpu("a", 0.0), gpu("b", 50.0)]).await;
    given(c.allocate("app", "").await);
    c.join("n1", vec![gpu("b", 50.0)]).await;
    let renew = RenewRequest {
        instance: "app".into(),
        ..RenewRequest::default()
    };
    let moved = c.instances.renew(renew).await.unwrap().into_inner();
    assert_eq!(places(&moved), ["n1/b"]);
    handle.stop().await;
}

#[tokio::test]
async fn utilization_is_computed_from_counters_and_a_restarted_counter_is_no_load() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start(dir.path()).await;
    let mut description = gpu("a", 0.0).0;
    description.slots = 2;
    c.register("n1", vec![description]).await.unwrap();
    let count = |at_s: u64, busy_s: u64| DeviceLoad {
        name: "a".into(),
        at_ns: at_s * 1_000_000_000,
        busy_ns: busy_s * 1_000_000_000,
        ..DeviceLoad::default()
    };
    for (load, percent) in [
        (count(100, 7), 0.0),
        (count(110, 12), 25.0),
        (count(111, 22), 100.0),
        // The manager restarted: the last value remains until there are two samples.
        (count(120, 1), 100.0),
        (count(130, 1), 0.0),
    ] {
        c.heartbeat("n1", vec![load.clone()]).await.unwrap();
        assert_eq!(c.device("n1", "a").await.utilization, percent, "{load:?}");
    }
    handle.stop().await;
}

/// A clock that a test moves.
#[derive(Debug)]
struct Manual(Mutex<(Duration, SystemTime)>);

impl Clock for Manual {
    fn monotonic(&self) -> Duration {
        self.0.lock().unwrap().0
    }

    fn wall(&self) -> SystemTime {
        self.0.lock().unwrap().1
    }
}

#[tokio::test]
async fn clocks_that_jump_end_no_lease_and_time_that_passes_does() {
    let dir = tempfile::tempdir().unwrap();
    let wall = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let clock = Arc::new(Manual(Mutex::new((Duration::from_secs(500), wall))));
    let service = Service::with_clock(
        Options {
            lease_s: 0.5,
            ..options(dir.path())
        },
        clock.clone(),
    );
    let handle = service.unwrap().serve().await.unwrap();
    let mut c = Clients::new(&handle.url(), "");
    c.join("n1", vec![gpu("a", 0.0)]).await;
    given(c.allocate("app", "").await);
    // Rounds run in real time; `heard_ms` follows the lease clock. text-ok
    let rounds = || tokio::time::sleep(Duration::from_millis(350));

    // The wall clock is set back and forth by a century.
    let century = Duration::from_secs(3_155_760_000);
    for wall in [UNIX_EPOCH, wall + century, wall] {
        clock.0.lock().unwrap().1 = wall;
        rounds().await;
        assert_eq!(c.device("n1", "a").await.state, "ready");
    }
    // The registry was stopped for a day: its nodes could not reach it, and the day does not count
    // as silence.
    clock.0.lock().unwrap().0 += Duration::from_secs(86_400);
    rounds().await;
    assert_eq!(c.device("n1", "a").await.state, "ready");
    assert!(c.device("n1", "a").await.heard_ms <= 200);
    // A clock that goes backwards, which should not happen, is harmless.
    clock.0.lock().unwrap().0 -= Duration::from_secs(3_600);
    rounds().await;
    assert_eq!(c.device("n1", "a").await.state, "ready");
    clock.0.lock().unwrap().0 += Duration::from_secs(3_600);
    let renew = RenewRequest {
        instance: "app".into(),
        ..RenewRequest::default()
    };
    c.instances.renew(renew).await.unwrap();

    // Time during which the registry listens counts.
    until("the lease is over", || {
        clock.0.lock().unwrap().0 += Duration::from_millis(50);
        let mut c = c.clone();
        async move { c.device("n1", "a").await.state == "silent" }
    })
    .await;
    handle.stop().await;
}
