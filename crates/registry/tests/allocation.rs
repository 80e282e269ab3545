//! Instances allocate devices over gRPC, keep them, move, and release them.

mod support;

use baltra_api::registry::{
    AllocateRequest, CordonRequest, Device, DevicesRequest, DrainRequest, HeartbeatRequest,
    InstancesRequest, Pool, PoolsRequest, Region, ReleaseRequest, RenewRequest, StoredAccelerator,
    UncordonRequest,
};
use baltra_registry::model::Locality;
use support::{board, busy, digest, given, gpu, id, options, places, start, start_with};
use tonic::Code;

#[tokio::test]
async fn an_instance_that_requests_another_number_of_devices_keeps_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start(dir.path()).await;
    c.join("n1", vec![gpu("a", 10.0), gpu("b", 50.0)]).await;
    c.join("n2", vec![gpu("c", 90.0)]).await;
    let request = |count| AllocateRequest {
        instance: "app".into(),
        count,
        apart: true,
        ..AllocateRequest::default()
    };
    let instance = given(c.ask(request(1)).await);
    assert_eq!(places(&instance), ["n1/a"]);
    // The device is the busiest one now, and stays.
    c.heartbeat("n1", vec![busy("a", 99.0, vec![]), busy("b", 50.0, vec![])])
        .await
        .unwrap();
    let instance = given(c.ask(request(3)).await);
    assert_eq!(places(&instance), ["n1/a", "n1/b", "n2/c"]);
    let refusal = c.ask(request(4)).await.refusal.unwrap();
    assert_eq!(refusal.devices.len(), 3, "{refusal:?}");
    assert_eq!(c.device("n2", "c").await.instances, ["app"]);

    c.operators
        .cordon(CordonRequest {
            device: "n1/a".into(),
        })
        .await
        .unwrap();
    let instance = given(c.ask(request(2)).await);
    assert_eq!(places(&instance), ["n1/a", "n1/b"]);
    assert_eq!(c.device("n2", "c").await.occupation, 0);
    handle.stop().await;
}

#[tokio::test]
async fn a_query_selects_devices_by_their_number_of_regions() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start(dir.path()).await;
    let (mut description, load) = gpu("b", 50.0);
    description.regions = 4;
    c.join("n1", vec![gpu("a", 10.0), (description, load)])
        .await;

    let instance = given(c.allocate("app", "regions=4").await);
    assert_eq!(places(&instance), ["n1/b"]);
    let instance = given(c.allocate("other", "regions=1").await);
    assert_eq!(places(&instance), ["n1/a"]);
    let refusal = c.allocate("third", "regions=8").await.refusal.unwrap();
    assert!(refusal.reason.contains("regions"), "{refusal:?}");
    handle.stop().await;
}

#[tokio::test]
async fn a_query_selects_a_board_by_the_images_of_its_regions() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start(dir.path()).await;
    let (mut description, mut load) = gpu("b", 50.0);
    description.regions = 4;
    load.regions = vec![Region {
        index: 2,
        digest: digest('a'),
        name: "sobel".into(),
        ..Region::default()
    }];
    c.join("n1", vec![gpu("a", 10.0), (description, load)])
        .await;

    let instance = given(c.allocate("app", "accelerator=sobel").await);
    assert_eq!(places(&instance), ["n1/b"]);
    let request = DevicesRequest {
        query: "accelerator=sobel".into(),
        silent: false,
    };
    let listed = c.operators.devices(request).await.unwrap().into_inner();
    let names = |d: &Device| d.description.as_ref().unwrap().name.clone();
    let listed: Vec<String> = listed.devices.iter().map(names).collect();
    assert_eq!(listed, ["b"]);
    // The region holds another image now.
    c.heartbeat(
        "n1",
        vec![busy("a", 10.0, Vec::new()), busy("b", 50.0, Vec::new())],
    )
    .await
    .unwrap();
    let refusal = c.allocate("other", "accelerator=sobel").await.refusal;
    let filters = refusal.unwrap().devices.into_iter().map(|d| d.filter);
    assert_eq!(filters.collect::<Vec<_>>(), ["target"; 2]);
    handle.stop().await;
}

#[tokio::test]
async fn an_instance_gets_the_idlest_device_that_fits_and_gives_it_back() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start(dir.path()).await;
    c.join("n1", vec![gpu("a", 50.0), board("b", Some(('a', "sobel")))])
        .await;
    c.join("n2", vec![gpu("a", 10.0)]).await;

    let instance = given(c.allocate("app", "vendor=Shader*").await);
    assert_eq!(places(&instance), ["n2/a"]);
    assert_eq!(instance.devices[0].endpoints, ["tcp:n2:7471"]);
    assert_eq!(instance.node, "n2");
    assert_eq!(instance.devices[0].weight, 1.0);
    assert_eq!(c.device("n2", "a").await.instances, ["app"]);

    // A repeated request gives the same response and allocates nothing.
    let again = given(c.allocate("app", "vendor=Shader*").await);
    assert_eq!(again, instance);
    // Another request of the instance moves it.
    let board = given(c.allocate("app", "accelerator=sobel,vendor=Acme").await);
    assert_eq!(places(&board), ["n1/b"]);
    assert!(!board.devices[0].reconfigure);
    assert_eq!(c.device("n2", "a").await.occupation, 0);

    let released = c
        .instances
        .release(ReleaseRequest {
            instance: "app".into(),
        })
        .await;
    assert!(released.unwrap().into_inner().released);
    let released = c
        .instances
        .release(ReleaseRequest {
            instance: "app".into(),
        })
        .await;
    assert!(!released.unwrap().into_inner().released);
    let renewed = RenewRequest {
        instance: "app".into(),
        ..RenewRequest::default()
    };
    let status = c.instances.renew(renewed).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    handle.stop().await;
}

#[tokio::test]
async fn a_refusal_says_which_device_failed_which_filter() {
    let dir = tempfile::tempdir().unwrap();
    let text = "filters = [{ metric = 'utilization', max = 90.0 }]";
    let filters = toml::from_str::<baltra_registry::Options>(text)
        .unwrap()
        .filters;
    let (handle, mut c) = start_with(baltra_registry::Options {
        filters,
        ..options(dir.path())
    })
    .await;
    c.join(
        "n1",
        vec![gpu("busy", 95.0), gpu("off", 0.0), board("other", None)],
    )
    .await;
    let cordon = CordonRequest {
        device: "n1/off".into(),
    };
    assert!(
        c.operators
            .cordon(cordon)
            .await
            .unwrap()
            .into_inner()
            .cordoned
    );

    let reply = c.allocate("app", "vendor=Shader*").await;
    assert!(reply.instance.is_none());
    let refusal = reply.refusal.unwrap();
    let failed: Vec<(&str, &str)> = refusal
        .devices
        .iter()
        .map(|d| (d.device.as_str(), d.filter.as_str()))
        .collect();
    assert_eq!(
        failed,
        [
            ("n1/busy", "metric"),
            ("n1/off", "state"),
            ("n1/other", "query")
        ]
    );
    assert!(refusal.devices[0].reason.contains("95"), "{refusal:?}");
    assert!(refusal.reason.contains("Shader"), "{refusal:?}");
    // Nothing of it remains.
    let all = c
        .operators
        .instances(InstancesRequest::default())
        .await
        .unwrap();
    assert!(all.into_inner().instances.is_empty());

    let uncordon = UncordonRequest {
        device: "n1/off".into(),
    };
    c.operators.uncordon(uncordon).await.unwrap();
    assert_eq!(
        places(&given(c.allocate("app", "vendor=Shader*").await)),
        ["n1/off"]
    );
    handle.stop().await;
}

#[tokio::test]
async fn an_instance_may_have_several_devices_and_names_are_made_up() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start(dir.path()).await;
    c.join("n1", vec![gpu("a", 0.0), gpu("b", 0.0), gpu("c", 90.0)])
        .await;
    let request = |count| AllocateRequest {
        count,
        ..AllocateRequest::default()
    };
    let instance = given(c.ask(request(2)).await);
    assert_eq!(places(&instance), ["n1/a", "n1/b"]);
    assert!(instance.name.starts_with("i-"), "{}", instance.name);
    let reply = c.ask(request(4)).await;
    assert!(reply.instance.is_none() && reply.refusal.is_some());
    handle.stop().await;
}

#[tokio::test]
async fn who_reaches_each_device_may_have_them_apart() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(dir.path());
    options.locality = Locality::Require;
    let (handle, mut c) = start_with(options).await;
    c.join("n1", vec![gpu("a", 0.0)]).await;
    c.join("n2", vec![gpu("a", 0.0)]).await;
    let request = |instance: &str, apart| AllocateRequest {
        instance: instance.into(),
        count: 2,
        apart,
        ..AllocateRequest::default()
    };
    assert!(c.ask(request("a-pod", false)).await.refusal.is_some());
    let instance = given(c.ask(request("a-gateway", true)).await);
    assert_eq!(places(&instance), ["n1/a", "n2/a"]);
    handle.stop().await;
}

#[tokio::test]
async fn an_accelerator_runs_only_where_its_target_is() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start(dir.path()).await;
    c.join("n1", vec![gpu("a", 0.0), board("b", Some(('a', "sobel")))])
        .await;
    // A device that shares does not count as having any accelerator loaded, although it is idle.
    c.heartbeat(
        "n1",
        vec![
            busy("a", 0.0, Vec::new()),
            busy("b", 70.0, board("b", Some(('a', "sobel"))).1.regions),
        ],
    )
    .await
    .unwrap();
    let instance = given(c.allocate("one", "accelerator=sobel").await);
    assert_eq!(places(&instance), ["n1/b"]);
    let refusal = c.allocate("two", "name=a,accelerator=sobel").await.refusal;
    let refusal = refusal.unwrap();
    assert_eq!(refusal.devices[0].filter, "target", "{refusal:?}");
    assert!(refusal.reason.contains("n1/a (target): "), "{refusal:?}");

    // Nor does such a device take turns with it.
    let preemptible = AllocateRequest {
        instance: "two".into(),
        query: "name=a,accelerator=sobel".into(),
        preemptible: true,
        ..AllocateRequest::default()
    };
    assert_eq!(c.ask(preemptible).await.refusal.unwrap(), refusal);

    // The store of a node names the target.
    let store = |name: &str, target: &str| HeartbeatRequest {
        node: "n1".into(),
        id: id("n1"),
        accelerators: vec![StoredAccelerator {
            digest: digest('c'),
            name: name.into(),
            target: target.into(),
        }],
        ..HeartbeatRequest::default()
    };
    c.nodes.heartbeat(store("fft", "GPU")).await.unwrap();
    let instance = given(c.allocate("three", "accelerator=fft").await);
    assert_eq!(places(&instance), ["n1/a"]);
    assert!(!instance.devices[0].reconfigure);
    c.nodes.heartbeat(store("fft", "u280*")).await.unwrap();
    let refusal = c.allocate("four", "accelerator=fft").await.refusal.unwrap();
    let filters = refusal.devices.iter().map(|d| d.filter.as_str());
    assert_eq!(filters.collect::<Vec<_>>(), ["target"; 2], "{refusal:?}");
    assert!(
        refusal.reason.contains("'u280*', not for 'board'"),
        "{refusal:?}"
    );

    // An instance without an image of its own needs it in the store of its device's node.
    c.join("n2", vec![board("c", None)]).await;
    c.nodes.heartbeat(store("fft", "")).await.unwrap();
    let stored = AllocateRequest {
        instance: "five".into(),
        query: "name=c,accelerator=fft".into(),
        preemptible: true,
        stored: true,
        ..AllocateRequest::default()
    };
    let refusal = c.ask(stored.clone()).await.refusal.unwrap();
    let last = refusal.devices.last().unwrap();
    assert_eq!((&*last.device, &*last.filter), ("n2/c", "target"));
    assert!(last.reason.contains("no image"), "{refusal:?}");
    let bringing = AllocateRequest {
        stored: false,
        ..stored
    };
    assert_eq!(places(&given(c.ask(bringing).await)), ["n2/c"]);

    let mut many = store("fft", "GPU");
    many.accelerators = vec![many.accelerators[0].clone(); 1_025];
    let status = c.nodes.heartbeat(many).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    handle.stop().await;
}

#[tokio::test]
async fn an_allocation_of_another_accelerator_plans_a_reconfiguration() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start(dir.path()).await;
    c.join("n1", vec![board("a", None)]).await;
    let instance = given(c.allocate("one", "accelerator=sobel").await);
    assert!(instance.devices[0].reconfigure);
    let planned = c.device("n1", "a").await.pending;
    assert_eq!(planned[0].name, "sobel");
    // The planned accelerator counts as held: another instance with the same accelerator shares it;
    // one with another is refused, unless the region has no load that would have to move.
    c.heartbeat("n1", vec![busy("a", 30.0, Vec::new())])
        .await
        .unwrap();
    assert_eq!(
        places(&given(c.allocate("two", "accelerator=sobel").await)),
        ["n1/a"]
    );
    let refusal = c
        .allocate("three", "accelerator=fft")
        .await
        .refusal
        .unwrap();
    assert_eq!(refusal.devices[0].filter, "accelerator");
    // When the last waiting instance is gone, the plan is removed.
    for name in ["one", "two"] {
        assert_eq!(c.device("n1", "a").await.pending.len(), 1, "{name}");
        let release = ReleaseRequest {
            instance: name.into(),
        };
        c.instances.release(release).await.unwrap();
    }
    assert!(c.device("n1", "a").await.pending.is_empty());
    handle.stop().await;
}

#[tokio::test]
async fn a_pool_is_one_device_over_several_weighted_by_free_time() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start(dir.path()).await;
    c.join("n1", vec![gpu("a", 0.0), board("x", None)]).await;
    c.join("n2", vec![gpu("a", 50.0)]).await;
    let pool = Pool {
        name: "gpus".into(),
        query: "vendor=Shader*".into(),
        devices: Vec::new(),
    };
    let made = c.operators.pool_put(pool).await.unwrap().into_inner();
    assert_eq!(made.devices, ["n1/a", "n2/a"]);

    let request = AllocateRequest {
        instance: "app".into(),
        pool: "gpus".into(),
        ..AllocateRequest::default()
    };
    let instance = given(c.ask(request).await);
    assert_eq!(places(&instance), ["n1/a", "n2/a"]);
    let weights: Vec<f64> = instance.devices.iter().map(|d| d.weight).collect();
    assert!((weights[0] - 2.0 / 3.0).abs() < 1e-9 && (weights[1] - 1.0 / 3.0).abs() < 1e-9);

    // The weights follow the load.
    c.heartbeat("n1", vec![gpu("a", 99.0).1, board("x", None).1])
        .await
        .unwrap();
    let renew = RenewRequest {
        instance: "app".into(),
        ..RenewRequest::default()
    };
    let renewed = c.instances.renew(renew).await.unwrap().into_inner();
    assert!(renewed.devices[0].weight < 0.03, "{renewed:?}");

    let unknown = AllocateRequest {
        pool: "none".into(),
        ..AllocateRequest::default()
    };
    assert_eq!(
        c.instances.allocate(unknown).await.unwrap_err().code(),
        Code::NotFound
    );
    let pools = c
        .operators
        .pools(PoolsRequest {})
        .await
        .unwrap()
        .into_inner()
        .pools;
    assert_eq!(pools.len(), 1);
    handle.stop().await;
}

#[tokio::test]
async fn draining_moves_instances_and_who_cannot_move_does_when_it_can() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start(dir.path()).await;
    c.join("n1", vec![gpu("a", 0.0)]).await;
    given(c.allocate("app", "").await);
    let drain = || DrainRequest {
        device: "n1/a".into(),
    };
    let reply = c.operators.drain(drain()).await.unwrap().into_inner();
    assert_eq!(reply.migrations.len(), 1);
    assert!(!reply.migrations[0].reason.is_empty());
    assert_eq!(reply.migrations[0].devices[0].device, "a");
    let orders = c
        .heartbeat("n1", vec![gpu("a", 0.0).1])
        .await
        .unwrap()
        .orders;
    assert!(orders[0].draining && orders[0].cordoned);
    assert_eq!(orders[0].instances, ["app"]);

    c.join("n2", vec![gpu("b", 0.0)]).await;
    let renew = RenewRequest {
        instance: "app".into(),
        ..RenewRequest::default()
    };
    let moved = c.instances.renew(renew).await.unwrap().into_inner();
    assert_eq!(places(&moved), ["n2/b"]);
    assert!(c.device("n1", "a").await.instances.is_empty());
    let orders = c
        .heartbeat("n1", vec![gpu("a", 0.0).1])
        .await
        .unwrap()
        .orders;
    assert!(orders[0].instances.is_empty());

    // With another device available, the instance is moved at once.
    c.operators
        .uncordon(UncordonRequest {
            device: "n1/a".into(),
        })
        .await
        .unwrap();
    let drain = DrainRequest {
        device: "n2/b".into(),
    };
    let reply = c.operators.drain(drain).await.unwrap().into_inner();
    assert_eq!(reply.migrations[0].devices[0].node, "n1");
    assert!(reply.migrations[0].reason.is_empty());
    let status = c
        .operators
        .drain(DrainRequest {
            device: "n9/x".into(),
        })
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    handle.stop().await;
}

#[tokio::test]
async fn an_instance_that_cannot_reach_its_device_is_given_another() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start(dir.path()).await;
    c.join("n1", vec![gpu("a", 0.0)]).await;
    c.join("n2", vec![gpu("a", 10.0)]).await;
    assert_eq!(places(&given(c.allocate("app", "").await)), ["n1/a"]);
    let renew = |except: &str| RenewRequest {
        instance: "app".into(),
        except: vec![except.into()],
        ..RenewRequest::default()
    };
    let moved = c.instances.renew(renew("n1/a")).await.unwrap().into_inner();
    assert_eq!(places(&moved), ["n2/a"]);
    assert_eq!(moved.revision, 2);
    // Excluding a device that the instance does not have changes nothing.
    let same = c.instances.renew(renew("n1/a")).await.unwrap().into_inner();
    assert_eq!(same, moved);
    handle.stop().await;
}

#[tokio::test]
async fn an_instance_that_is_silent_loses_its_devices() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start_with(baltra_registry::Options {
        lease_s: 0.2,
        ..options(dir.path())
    })
    .await;
    c.register("n1", vec![gpu("a", 0.0).0]).await.unwrap();
    c.heartbeat("n1", vec![busy("a", 0.0, Vec::new())])
        .await
        .unwrap();
    for (name, lease_s) in [("short", 1), ("held", 0)] {
        // The node may have become silent on a loaded machine.
        c.heartbeat("n1", vec![busy("a", 0.0, Vec::new())])
            .await
            .unwrap();
        let request = AllocateRequest {
            instance: name.into(),
            lease_s: Some(lease_s),
            ..AllocateRequest::default()
        };
        given(c.ask(request).await);
    }
    support::until("only the one without a lease is left", || {
        let mut c = c.clone();
        async move {
            let all = c
                .operators
                .instances(InstancesRequest::default())
                .await
                .unwrap();
            let names: Vec<String> = all
                .into_inner()
                .instances
                .into_iter()
                .map(|i| i.name)
                .collect();
            names == ["held"]
        }
    })
    .await;
    handle.stop().await;
}

#[tokio::test]
async fn what_an_instance_has_already_is_written_down_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start(dir.path()).await;
    c.join("n1", vec![gpu("a", 90.0), gpu("b", 0.0)]).await;
    let had = AllocateRequest {
        instance: "app".into(),
        query: "vendor=Shader*".into(),
        devices: vec!["n1/a".into()],
        lease_s: Some(0),
        ..AllocateRequest::default()
    };
    // Not the idlest device, and it does not even accept instances.
    let cordon = CordonRequest {
        device: "n1/a".into(),
    };
    c.operators.cordon(cordon).await.unwrap();
    let instance = given(c.ask(had.clone()).await);
    assert_eq!(places(&instance), ["n1/a"]);
    assert_eq!(given(c.ask(had.clone()).await), instance);
    // A node that has not joined yet: retry later.
    let later = AllocateRequest {
        devices: vec!["n2/a".into()],
        ..had
    };
    let status = c.instances.allocate(later).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    handle.stop().await;
}

#[tokio::test]
async fn a_renewal_may_change_the_lease() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start(dir.path()).await;
    c.join("n1", vec![gpu("a", 0.0)]).await;
    let request = AllocateRequest {
        instance: "app".into(),
        lease_s: Some(60),
        ..AllocateRequest::default()
    };
    let given = given(c.ask(request).await);
    let renew = |lease_s| RenewRequest {
        instance: "app".into(),
        lease_s,
        ..RenewRequest::default()
    };
    let kept = c.instances.renew(renew(Some(0))).await.unwrap();
    let kept = kept.into_inner();
    assert_eq!((kept.lease_s, places(&kept)), (0, places(&given)));
    let same = c.instances.renew(renew(None)).await.unwrap().into_inner();
    assert_eq!(same.lease_s, 0);
    handle.stop().await;
}

#[tokio::test]
async fn memory_is_promised_once_and_free_again_when_its_instance_has_gone() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = start(dir.path()).await;
    let (mut description, load) = gpu("a", 0.0);
    description.memory_bytes = 8;
    c.join("n1", vec![(description, load)]).await;
    let request = |instance: &str, memory_bytes| AllocateRequest {
        instance: instance.into(),
        memory_bytes,
        ..AllocateRequest::default()
    };
    given(c.ask(request("first", 6)).await);
    let refusal = c.ask(request("second", 3)).await.refusal.unwrap();
    assert_eq!(refusal.devices[0].filter, "memory", "{refusal:?}");
    assert!(refusal.reason.contains("2 of its 8 bytes"), "{refusal:?}");
    // A second device would be needed.
    let refusal = c.ask(request("second", 9)).await.refusal.unwrap();
    assert_eq!(refusal.devices[0].filter, "query", "{refusal:?}");
    given(c.ask(request("second", 2)).await);
    // The registry accepts an instance's claim to a device that it already uses.
    let had = AllocateRequest {
        devices: vec!["n1/a".into()],
        ..request("third", 1)
    };
    given(c.ask(had).await);
    handle.stop().await;

    let (handle, mut c) = start(dir.path()).await;
    let (mut description, load) = gpu("a", 0.0);
    description.memory_bytes = 8;
    c.join("n1", vec![(description, load)]).await;
    assert!(c.ask(request("fourth", 6)).await.refusal.is_some());
    for instance in ["first", "third"] {
        let release = ReleaseRequest {
            instance: instance.into(),
        };
        c.instances.release(release).await.unwrap();
    }
    given(c.ask(request("fourth", 6)).await);
    handle.stop().await;
}
