//! Instances that leave a draining device: their sessions move live, and their programs are started
//! again only if that fails.

mod support;

use baltra_api::registry::{
    AllocateRequest, DeviceLoad, DrainReply, DrainRequest, HeartbeatRequest, Instance,
    InstancesRequest, RenewRequest, SessionLoad, SessionMove, SessionMoved,
};
use baltra_registry::model::MovePolicy;
use baltra_registry::Handle;
use std::path::Path;
use std::time::{Duration, Instant};
use support::{given, gpu, id, options, places, start, start_with, Clients, PATIENCE};

/// A session of `app`.
fn session(number: u64, obstacle: &str) -> SessionLoad {
    SessionLoad {
        id: number,
        tenant: "red".into(),
        program: "app (restarts)".into(),
        described: true,
        obstacle: obstacle.into(),
        ..SessionLoad::default()
    }
}

fn load(device: &str, open: &[SessionLoad]) -> DeviceLoad {
    DeviceLoad {
        sessions: open.len() as u32,
        instances: open.iter().take(1).map(|_| "app".into()).collect(),
        open: open.to_vec(),
        ..gpu(device, 10.0).1
    }
}

/// The orders in the answer to a heartbeat with these sessions.
async fn beat(
    c: &mut Clients,
    loads: Vec<DeviceLoad>,
    moved: Vec<SessionMoved>,
) -> Vec<SessionMove> {
    let request = HeartbeatRequest {
        node: "n1".into(),
        id: id("n1"),
        devices: loads,
        moved,
        uptime_s: 60,
        ..HeartbeatRequest::default()
    };
    c.nodes.heartbeat(request).await.unwrap().into_inner().moves
}

/// `app` with a session on n1/a; other devices are n1/b, n1/c and n2/a.
async fn pool(state: &Path, obstacle: &str, policy: &str) -> (Handle, Clients) {
    let (handle, mut c) = start(state).await;
    join(&mut c).await;
    let request = AllocateRequest {
        instance: "app".into(),
        query: "model=gpu".into(),
        node: "n1".into(),
        move_policy: policy.into(),
        lease_s: Some(0),
        ..AllocateRequest::default()
    };
    assert_eq!(places(&given(c.ask(request).await)), ["n1/a"]);
    beat(&mut c, on_a(&[session(7, obstacle)]), Vec::new()).await;
    (handle, c)
}

async fn join(c: &mut Clients) {
    c.join("n2", vec![gpu("a", 1.0)]).await;
    let devices = vec![gpu("a", 0.0), gpu("b", 10.0), gpu("c", 10.0)];
    c.join("n1", devices).await;
}

fn on_a(open: &[SessionLoad]) -> Vec<DeviceLoad> {
    vec![load("a", open), load("b", &[]), load("c", &[])]
}

fn on(device: &str) -> Vec<DeviceLoad> {
    let open = |name: &str| {
        if name == device {
            vec![session(7, "")]
        } else {
            Vec::new()
        }
    };
    let all = ["a", "b", "c"];
    all.map(|name| load(name, &open(name))).to_vec()
}

async fn app(c: &Clients) -> Instance {
    let mut operators = c.operators.clone();
    let all = operators.instances(InstancesRequest::default()).await;
    all.unwrap().into_inner().instances.remove(0)
}

async fn drain(c: &Clients, device: &str) -> DrainReply {
    let request = DrainRequest {
        device: device.into(),
    };
    let reply = c.operators.clone().drain(request).await;
    reply.unwrap().into_inner()
}

/// Sends heartbeats until one is answered with an order to this device.
async fn ordered(c: &mut Clients, loads: &[DeviceLoad], device: &str) -> SessionMove {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let orders = beat(c, loads.to_vec(), Vec::new()).await;
        if let Some(order) = orders.into_iter().find(|o| o.device == device) {
            return order;
        }
        assert!(Instant::now() < deadline, "no order comes");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Sends heartbeats until the instance has other devices than n1/a.
async fn settled(c: &mut Clients, loads: &[DeviceLoad], moved: &[SessionMoved]) -> Instance {
    let deadline = Instant::now() + PATIENCE;
    loop {
        beat(c, loads.to_vec(), moved.to_vec()).await;
        let now = app(c).await;
        if places(&now) != ["n1/a"] {
            return now;
        }
        assert!(Instant::now() < deadline, "it stays");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn result(order: &SessionMove, error: &str) -> SessionMoved {
    SessionMoved {
        order: order.order.clone(),
        session: order.session,
        from: "a".into(),
        to: order.device.clone(),
        error: error.into(),
        ..SessionMoved::default()
    }
}

async fn renewed(c: &mut Clients) -> Vec<String> {
    let renew = RenewRequest {
        instance: "app".into(),
        ..RenewRequest::default()
    };
    places(&c.instances.renew(renew).await.unwrap().into_inner())
}

#[tokio::test]
async fn a_drained_instance_s_sessions_move_before_it_does() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = pool(dir.path(), "", "").await;
    let reply = drain(&c, "n1/a").await;
    assert_eq!(reply.migrations.len(), 1);
    // A device of the same node, although that of the other one is less used.
    assert_eq!(reply.migrations[0].devices[0].node, "n1");
    assert_eq!(reply.migrations[0].devices[0].device, "b");
    let order = ordered(&mut c, &on("a"), "b").await;
    assert_eq!(order.session, 7);
    // It has its device until the session is observed on the other one, also if it renews.
    assert_eq!(renewed(&mut c).await, ["n1/a"]);
    let done = [result(&order, "")];
    beat(&mut c, on("a"), done.to_vec()).await;
    assert_eq!(renewed(&mut c).await, ["n1/a"]);
    let after = settled(&mut c, &on("b"), &done).await;
    assert_eq!(places(&after), ["n1/b"]);
    assert!(after.devices[0].live);
    handle.stop().await;
}

#[tokio::test]
async fn an_instance_whose_session_refuses_is_started_again() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = pool(dir.path(), "", "live").await;
    drain(&c, "n1/a").await;
    let order = ordered(&mut c, &on("a"), "b").await;
    let refused = [result(&order, "facts differ")];
    let after = settled(&mut c, &on("a"), &refused).await;
    assert!(!after.devices[0].live, "{after:?}");
    handle.stop().await;
}

#[tokio::test]
async fn an_instance_that_cannot_move_or_must_not_is_started_again_at_once() {
    for (obstacle, policy) in [("it has shared virtual memory", "live"), ("", "restart")] {
        let dir = tempfile::tempdir().unwrap();
        let (handle, mut c) = pool(dir.path(), obstacle, policy).await;
        let reply = drain(&c, "n1/a").await;
        assert_eq!(reply.migrations.len(), 1);
        let after = app(&c).await;
        assert_eq!(places(&after), ["n2/a"], "{policy}");
        assert!(!after.devices[0].live);
        let orders = beat(&mut c, on_a(&[session(7, obstacle)]), Vec::new()).await;
        assert!(orders.is_empty(), "{orders:?}");
        handle.stop().await;
    }
}

#[tokio::test]
async fn the_registry_s_policy_is_that_of_instances_without_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(dir.path());
    options.move_policy = MovePolicy::Restart;
    let (handle, mut c) = start_with(options).await;
    join(&mut c).await;
    let request = AllocateRequest {
        instance: "app".into(),
        ..AllocateRequest::default()
    };
    assert_eq!(places(&given(c.ask(request).await)), ["n1/a"]);
    beat(&mut c, on("a"), Vec::new()).await;
    drain(&c, "n1/a").await;
    assert_eq!(places(&app(&c).await), ["n2/a"]);
    let unknown = AllocateRequest {
        instance: "other".into(),
        move_policy: "sometimes".into(),
        ..AllocateRequest::default()
    };
    let refused = c.instances.allocate(unknown).await.unwrap_err();
    assert!(refused.message().contains("sometimes"), "{refused}");
    handle.stop().await;
}

#[tokio::test]
async fn sessions_move_elsewhere_if_their_target_is_drained_or_vanishes() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = pool(dir.path(), "", "live").await;
    drain(&c, "n1/a").await;
    let order = ordered(&mut c, &on("a"), "b").await;
    // Nothing of the other drain's device is on the way to another one.
    drain(&c, "n1/b").await;
    beat(&mut c, on("a"), vec![result(&order, "it is cordoned")]).await;
    let order = ordered(&mut c, &on("a"), "c").await;
    // Now the node loses that device, and no other one of it is left.
    let left = vec![gpu("a", 0.0).0, gpu("b", 0.0).0];
    c.register("n1", left).await.unwrap();
    let loads = [load("a", &[session(7, "")]), load("b", &[])];
    let after = settled(&mut c, &loads, &[result(&order, "no such device")]).await;
    assert_eq!(places(&after), ["n2/a"]);
    assert!(!after.devices[0].live);
    handle.stop().await;
}

#[tokio::test]
async fn a_registry_that_restarts_continues_the_moves() {
    for is_there in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (handle, mut c) = pool(dir.path(), "", "live").await;
        drain(&c, "n1/a").await;
        ordered(&mut c, &on("a"), "b").await;
        handle.stop().await;
        let (handle, mut c) = start(dir.path()).await;
        // Before the node's first heartbeat, the instance keeps its device.
        assert_eq!(renewed(&mut c).await, ["n1/a"]);
        let order = if is_there {
            None
        } else {
            Some(ordered(&mut c, &on("a"), "b").await)
        };
        let results: Vec<_> = order.iter().map(|order| result(order, "")).collect();
        let after = settled(&mut c, &on("b"), &results).await;
        assert_eq!(places(&after), ["n1/b"], "{is_there}");
        assert!(after.devices[0].live);
        handle.stop().await;
    }
}

#[tokio::test]
async fn an_instance_whose_sessions_end_is_started_again() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = pool(dir.path(), "", "live").await;
    drain(&c, "n1/a").await;
    ordered(&mut c, &on("a"), "b").await;
    let after = settled(&mut c, &on("none"), &[]).await;
    assert!(!after.devices[0].live, "{after:?}");
    handle.stop().await;
}
