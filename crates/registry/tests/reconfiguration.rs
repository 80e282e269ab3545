//! Tests of the reconfiguration flow: requested, validated, executed, failed.

mod support;

use baltra_api::registry::{
    AllocateRequest, DeviceDescription, DeviceLoad, HeartbeatRequest, ReconfigurationEndRequest,
    ReconfigurationReply, ReconfigurationRequest, Region, ReleaseRequest, StoredAccelerator,
    WaitingImage,
};
use support::{board, busy, digest, given, gpu, id, places, start, Clients};
use tonic::Code;

fn request(node: &str, instance: &str, letter: char, name: &str) -> ReconfigurationRequest {
    ReconfigurationRequest {
        node: node.into(),
        id: id(node),
        device: "a".into(),
        instance: instance.into(),
        digest: digest(letter),
        name: name.into(),
        region: None,
        tenant: String::new(),
    }
}

async fn reconfigure(c: &mut Clients, request: ReconfigurationRequest) -> ReconfigurationReply {
    c.nodes.reconfiguration(request).await.unwrap().into_inner()
}

fn holding(letter: char, name: &str) -> Vec<Region> {
    board("a", Some((letter, name))).1.regions
}

#[tokio::test]
async fn only_the_instance_that_was_given_the_device_may_reconfigure_it() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start(dir.path()).await;
    c.join("n1", vec![board("a", None)]).await;
    c.join("n2", vec![board("a", Some(('b', "fft")))]).await;
    given(c.allocate("app", "accelerator=sobel").await);
    given(c.allocate("other", "accelerator=fft").await);

    let reply = reconfigure(&mut c, request("n1", "nobody", 'a', "sobel")).await;
    assert!(
        !reply.allowed && reply.reason.contains("nobody"),
        "{reply:?}"
    );
    let reply = reconfigure(&mut c, request("n1", "other", 'b', "fft")).await;
    assert!(!reply.allowed && reply.reason.contains("n2/a"), "{reply:?}");
    let reply = reconfigure(&mut c, request("n1", "app", 'b', "fft")).await;
    assert!(
        !reply.allowed && reply.reason.contains("accelerator=sobel"),
        "{reply:?}"
    );
    let mut stranger = request("n1", "app", 'a', "sobel");
    stranger.id = id("n2");
    let status = c.nodes.reconfiguration(stranger).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);

    let reply = reconfigure(&mut c, request("n1", "app", 'a', "sobel")).await;
    assert!(
        reply.allowed && !reply.unchanged && reply.migrations.is_empty(),
        "{reply:?}"
    );
    // Loaded: a repeated request changes nothing.
    c.heartbeat("n1", vec![busy("a", 0.0, holding('a', "sobel"))])
        .await
        .unwrap();
    let device = c.device("n1", "a").await;
    assert!(device.pending.is_empty() && device.regions[0].name == "sobel");
    let reply = reconfigure(&mut c, request("n1", "app", 'a', "sobel")).await;
    assert!(reply.allowed && reply.unchanged, "{reply:?}");
    handle.stop().await;
}

#[tokio::test]
async fn an_instance_is_its_own_tenant_s() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start(dir.path()).await;
    c.join("n1", vec![board("a", None)]).await;
    let allocated = AllocateRequest {
        instance: "app".into(),
        tenant: "red".into(),
        query: "accelerator=sobel".into(),
        ..AllocateRequest::default()
    };
    given(c.ask(allocated).await);
    for tenant in ["blue", ""] {
        let mut stranger = request("n1", "app", 'a', "sobel");
        stranger.tenant = tenant.into();
        let reply = reconfigure(&mut c, stranger).await;
        assert!(
            !reply.allowed && reply.reason.contains("another tenant"),
            "{reply:?}"
        );
    }
    // The node receives the order, too: it decides by itself while the registry is unreachable.
    let reply = c.heartbeat("n1", vec![busy("a", 0.0, Vec::new())]).await;
    assert_eq!(reply.unwrap().orders[0].tenants["app"], "red");
    let mut own = request("n1", "app", 'a', "sobel");
    own.tenant = "red".into();
    let reply = reconfigure(&mut c, own).await;
    assert!(reply.allowed, "{reply:?}");
    handle.stop().await;
}

#[tokio::test]
async fn instances_that_no_longer_fit_are_moved_before_it_is_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start(dir.path()).await;
    c.join("n1", vec![board("a", Some(('b', "fft")))]).await;
    given(c.allocate("old", "accelerator=fft").await);
    c.join("n2", vec![board("a", Some(('b', "fft")))]).await;
    // n1 has more load, and n2 has room for it: n2 is idle, so it is reconfigured, unless it
    // reports load.
    let loads = [("n1", 10.0), ("n2", 20.0)];
    for (node, utilization) in loads {
        let load = busy("a", utilization, holding('b', "fft"));
        c.heartbeat(node, vec![load]).await.unwrap();
    }
    let new = given(c.allocate("new", "accelerator=sobel").await);
    assert_eq!(places(&new), ["n1/a"]);
    assert!(new.devices[0].reconfigure);

    let reply = reconfigure(&mut c, request("n1", "new", 'a', "sobel")).await;
    assert!(reply.allowed, "{reply:?}");
    assert_eq!(reply.migrations.len(), 1);
    assert_eq!(reply.migrations[0].instance, "old");
    assert_eq!(reply.migrations[0].devices[0].node, "n2");
    assert_eq!(c.device("n1", "a").await.instances, ["new"]);
    assert_eq!(c.device("n2", "a").await.instances, ["old"]);
    handle.stop().await;
}

#[tokio::test]
async fn who_fits_nowhere_waits_and_is_served_when_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start(dir.path()).await;
    c.join("n1", vec![board("a", Some(('b', "fft")))]).await;
    given(c.allocate("old", "accelerator=fft").await);
    given(c.allocate("flexible", "vendor=Acme").await);
    // The device is also allocated to `flexible`, which may load any accelerator.
    let reply = reconfigure(&mut c, request("n1", "flexible", 'a', "sobel")).await;
    assert!(reply.allowed, "{reply:?}");
    assert_eq!(reply.migrations[0].instance, "old");
    assert!(reply.migrations[0].devices.is_empty());
    assert!(!reply.migrations[0].reason.is_empty());

    // The plan is kept while the region has load.
    c.heartbeat("n1", vec![busy("a", 30.0, holding('a', "sobel"))])
        .await
        .unwrap();
    let renew = || baltra_api::registry::RenewRequest {
        instance: "old".into(),
        ..Default::default()
    };
    let waiting = c.instances.renew(renew()).await.unwrap().into_inner();
    assert!(waiting.devices.is_empty() && !waiting.pending.is_empty());
    c.join("n2", vec![board("a", Some(('b', "fft")))]).await;
    let served = c.instances.renew(renew()).await.unwrap().into_inner();
    assert_eq!(places(&served), ["n2/a"]);
    assert!(served.pending.is_empty());
    handle.stop().await;
}

#[tokio::test]
async fn a_reconfiguration_that_fails_half_way_leaves_a_blank_region_and_everybody_placed() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start(dir.path()).await;
    c.join("n1", vec![board("a", Some(('b', "fft")))]).await;
    given(c.allocate("old", "accelerator=fft").await);
    c.join("n2", vec![board("a", Some(('b', "fft")))]).await;
    c.heartbeat("n2", vec![busy("a", 20.0, holding('b', "fft"))])
        .await
        .unwrap();
    given(c.allocate("new", "accelerator=sobel").await);
    let reply = reconfigure(&mut c, request("n1", "new", 'a', "sobel")).await;
    assert!(reply.allowed && reply.migrations.len() == 1, "{reply:?}");

    let end = ReconfigurationEndRequest {
        node: "n1".into(),
        id: id("n1"),
        device: "a".into(),
        digest: digest('a'),
        region: 0,
        error: "the board did not answer".into(),
    };
    c.nodes.reconfiguration_end(end.clone()).await.unwrap();
    let device = c.device("n1", "a").await;
    assert!(device.regions.is_empty(), "{device:?}");
    assert_eq!(device.pending[0].name, "sobel");
    assert_eq!(device.instances, ["new"]);
    assert_eq!(c.device("n2", "a").await.instances, ["old"]);

    // A retry succeeds.
    let reply = reconfigure(&mut c, request("n1", "new", 'a', "sobel")).await;
    assert!(
        reply.allowed && !reply.unchanged && reply.migrations.is_empty(),
        "{reply:?}"
    );
    let end = ReconfigurationEndRequest {
        error: String::new(),
        ..end
    };
    c.nodes.reconfiguration_end(end).await.unwrap();
    let device = c.device("n1", "a").await;
    assert!(device.pending.is_empty());
    assert_eq!(device.regions[0].digest, digest('a'));
    handle.stop().await;
}

#[tokio::test]
async fn programs_live_side_by_side_where_the_device_is_not_exclusive() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start(dir.path()).await;
    c.join("n1", vec![gpu("a", 0.0)]).await;
    let stored = |letter, name: &str| StoredAccelerator {
        digest: digest(letter),
        name: name.into(),
        target: "gpu".into(),
    };
    let request_of = HeartbeatRequest {
        node: "n1".into(),
        id: id("n1"),
        accelerators: vec![stored('b', "fft"), stored('a', "sobel")],
        ..HeartbeatRequest::default()
    };
    c.nodes.heartbeat(request_of).await.unwrap();
    given(c.allocate("one", "accelerator=fft").await);
    given(c.allocate("two", "accelerator=sobel").await);
    for (instance, letter, name) in [("one", 'b', "fft"), ("two", 'a', "sobel")] {
        let reply = reconfigure(&mut c, request("n1", instance, letter, name)).await;
        assert!(reply.allowed && reply.migrations.is_empty(), "{reply:?}");
    }
    assert_eq!(c.device("n1", "a").await.instances, ["one", "two"]);
    handle.stop().await;
}

/// A board whose image has been used, and takes 100 ms to load.
fn used(name: &str, letter: char, recent_uses: f64) -> (DeviceDescription, DeviceLoad) {
    let (description, mut load) = board(name, Some((letter, &letter.to_string())));
    load.regions[0].recent_uses = recent_uses;
    load.regions[0].load_ms = 100.0;
    (description, load)
}

#[tokio::test]
async fn the_image_with_the_fewest_recent_uses_gives_way() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start(dir.path()).await;
    let boards = vec![
        used("b0", 'a', 50.0),
        used("b1", 'b', 2.0),
        used("b2", 'c', 9.0),
    ];
    c.join("n1", boards).await;
    let instance = given(c.allocate("one", "accelerator=new").await);
    assert_eq!(places(&instance), ["n1/b1"]);
    // The planned image was requested last.
    let instance = given(c.allocate("two", "accelerator=other").await);
    assert_eq!(places(&instance), ["n1/b2"]);

    // By the next heartbeat, the first image has the fewest recent uses.
    c.instances
        .release(ReleaseRequest {
            instance: "two".into(),
        })
        .await
        .unwrap();
    let loads = [
        used("b0", 'a', 0.5),
        used("b1", 'b', 2.0),
        used("b2", 'c', 9.0),
    ];
    c.heartbeat("n1", loads.map(|(_, load)| load).to_vec())
        .await
        .unwrap();
    let instance = given(c.allocate("three", "accelerator=third").await);
    assert_eq!(places(&instance), ["n1/b0"]);
    handle.stop().await;
}

#[tokio::test]
async fn waiting_images_are_shown_and_what_no_node_measures_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start(dir.path()).await;
    let waiting = |count: usize| {
        let image = WaitingImage {
            digest: digest('b'),
            name: "sobel".into(),
            sessions: 2,
            waiting_ms: 1_500,
        };
        vec![image; count]
    };
    let (description, mut load) = used("b0", 'a', 1.0);
    load.waiting_images = waiting(1);
    c.join("n1", vec![(description, load.clone())]).await;
    assert_eq!(c.device("n1", "b0").await.waiting_images, waiting(1));
    let mut hostile: Vec<DeviceLoad> = Vec::new();
    for value in [f64::NAN, f64::INFINITY, -1.0] {
        let mut uses = load.clone();
        uses.regions[0].recent_uses = value;
        let mut time = load.clone();
        time.regions[0].load_ms = value;
        hostile.extend([uses, time]);
    }
    let mut many = load.clone();
    many.waiting_images = waiting(65);
    let mut text = load.clone();
    text.waiting_images[0].digest = "none".into();
    hostile.extend([many, text]);
    for load in hostile {
        let error = c.heartbeat("n1", vec![load]).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    }
    // The greatest numbers are valid.
    load.regions[0].recent_uses = f64::MAX;
    load.regions[0].load_ms = f64::MAX;
    c.heartbeat("n1", vec![load]).await.unwrap();
    given(c.allocate("one", "accelerator=new").await);
    handle.stop().await;
}
