//! Sessions that move to devices of other nodes: the registry's answers before a move, and its record
//! after it.

mod support;

use baltra_api::registry::{
    AllocateRequest, CordonRequest, Instance, InstancesRequest, Node, RegisterRequest,
    SessionPlacedRequest, SessionTargetReply, SessionTargetRequest,
};
use baltra_registry::model::Locality;
use std::path::Path;
use support::{board, given, gpu, id, options, places, start, start_with, Clients};
use tonic::{Code, Status};

async fn target(c: &Clients, instance: &str, tenant: &str, to: &str) -> Result<String, Status> {
    Ok(target_reply(c, instance, tenant, to).await?.refusal)
}

async fn target_reply(
    c: &Clients,
    instance: &str,
    tenant: &str,
    to: &str,
) -> Result<SessionTargetReply, Status> {
    let request = SessionTargetRequest {
        node: "n1".into(),
        id: id("n1"),
        instance: instance.into(),
        tenant: tenant.into(),
        to: to.into(),
    };
    Ok(c.nodes.clone().session_target(request).await?.into_inner())
}

fn moved(instance: &str, from: &str, to: &str) -> SessionPlacedRequest {
    SessionPlacedRequest {
        node: "n1".into(),
        id: id("n1"),
        instance: instance.into(),
        tenant: "red".into(),
        from: from.into(),
        to: to.into(),
        shared: false,
    }
}

async fn place(c: &Clients, report: SessionPlacedRequest) -> Result<(), Status> {
    c.nodes.clone().session_placed(report).await.map(|_| ())
}

async fn instance(c: &Clients, name: &str) -> Instance {
    let mut operators = c.operators.clone();
    let all = operators.instances(InstancesRequest::default()).await;
    let mut all = all.unwrap().into_inner().instances.into_iter();
    all.find(|i| i.name == name).unwrap()
}

/// A pool with an instance of tenant `red` on `n1/a`.
async fn pool(state: &Path) -> (baltra_registry::Handle, Clients) {
    let (handle, mut c) = start(state).await;
    c.join("n1", vec![gpu("a", 10.0), gpu("b", 20.0)]).await;
    c.join("n2", vec![gpu("a", 10.0), board("d", None)]).await;
    let request = AllocateRequest {
        instance: "app".into(),
        tenant: "red".into(),
        query: "model=gpu,node=n*".into(),
        ..AllocateRequest::default()
    };
    assert_eq!(places(&given(c.ask(request).await)), ["n1/a"]);
    (handle, c)
}

#[tokio::test]
async fn a_session_may_move_where_its_instance_could_be_allocated() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = pool(dir.path()).await;
    let reply = target_reply(&c, "app", "red", "n2/a").await.unwrap();
    assert_eq!(reply.refusal, "");
    assert_eq!(reply.endpoints, ["tcp:n2:7471"]);
    // A program that is not an instance.
    assert_eq!(target(&c, "", "red", "n2/a").await.unwrap(), "");

    let shares = target(&c, "app", "red", "n2/d").await.unwrap();
    assert!(shares.contains("one image at a time"), "{shares}");
    let unknown = target(&c, "app", "red", "n3/a").await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    let other = target(&c, "app", "blue", "n2/a").await.unwrap_err();
    assert_eq!(other.code(), Code::PermissionDenied);
    let request = SessionTargetRequest {
        node: "n1".into(),
        id: id("n2"),
        to: "n2/a".into(),
        ..SessionTargetRequest::default()
    };
    let forged = c.nodes.session_target(request).await.unwrap_err();
    assert_eq!(forged.code(), Code::PermissionDenied);

    // The refusal has the term of the query that the device does not match.
    let bound = AllocateRequest {
        instance: "bound".into(),
        query: "node=n1".into(),
        ..AllocateRequest::default()
    };
    given(c.ask(bound).await);
    let unfit = target(&c, "bound", "red", "n2/a").await.unwrap();
    assert!(unfit.contains("instance 'bound' (query)"), "{unfit}");
    assert!(unfit.contains("n1") && unfit.contains("n2"), "{unfit}");
    let named = AllocateRequest {
        instance: "named".into(),
        query: "id=n1/a".into(),
        ..AllocateRequest::default()
    };
    given(c.ask(named).await);
    let unfit = target(&c, "named", "red", "n2/a").await.unwrap();
    assert!(unfit.contains("n1/a") && unfit.contains("n2/a"), "{unfit}");

    let cordon = CordonRequest {
        device: "n2/a".into(),
    };
    c.operators.cordon(cordon).await.unwrap();
    for instance in ["app", ""] {
        let refusal = target(&c, instance, "red", "n2/a").await.unwrap();
        assert!(refusal.contains("cordoned"), "{refusal}");
    }
    handle.stop().await;
}

#[tokio::test]
async fn a_session_that_has_moved_takes_its_instance_along() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, c) = pool(dir.path()).await;
    place(&c, moved("app", "n1/a", "n2/a")).await.unwrap();
    let app = instance(&c, "app").await;
    assert_eq!(places(&app), ["n2/a"]);
    assert!(app.devices[0].live);
    let revision = app.revision;
    // A repeated report changes nothing.
    place(&c, moved("app", "n1/a", "n2/a")).await.unwrap();
    assert_eq!(instance(&c, "app").await.revision, revision);
    let mut clients = c.clone();
    assert_eq!(clients.device("n2", "a").await.instances, ["app"]);
    assert_eq!(clients.device("n1", "a").await.occupation, 0);

    // Another session of the instance stays there.
    let report = SessionPlacedRequest {
        shared: true,
        ..moved("app", "n2/a", "n1/b")
    };
    place(&c, report).await.unwrap();
    assert_eq!(places(&instance(&c, "app").await), ["n2/a", "n1/b"]);
    place(&c, moved("app", "n2/a", "n1/b")).await.unwrap();
    assert_eq!(places(&instance(&c, "app").await), ["n1/b"]);

    // The session has moved within the other node, which nobody has reported.
    place(&c, moved("app", "n1/b", "n2/a")).await.unwrap();
    place(&c, moved("app", "n2/d", "n1/b")).await.unwrap();
    assert_eq!(places(&instance(&c, "app").await), ["n1/b"]);

    // A manager that has adopted a session on another node reports it again.
    let again = |to: &str| SessionPlacedRequest {
        shared: true,
        ..moved("app", "n1/a", to)
    };
    place(&c, moved("app", "n1/b", "n2/a")).await.unwrap();
    for there in ["n2/a", "n2/d"] {
        place(&c, again(there)).await.unwrap();
        assert_eq!(places(&instance(&c, "app").await), ["n2/a"]);
    }
    place(&c, moved("app", "n2/a", "n1/b")).await.unwrap();
    assert_eq!(places(&instance(&c, "app").await), ["n1/b"]);

    // A node's report is checked.
    let refused = |report: SessionPlacedRequest| {
        let c = c.clone();
        async move { place(&c, report).await.unwrap_err().code() }
    };
    let unknown = moved("app", "n1/b", "n3/a");
    assert_eq!(refused(unknown).await, Code::NotFound);
    let malformed = moved("a/b", "n1/b", "n2/a");
    assert_eq!(refused(malformed).await, Code::InvalidArgument);
    let foreign = SessionPlacedRequest {
        tenant: "blue".into(),
        ..moved("app", "n1/b", "n2/a")
    };
    assert_eq!(refused(foreign).await, Code::PermissionDenied);
    let forged = SessionPlacedRequest {
        id: id("n2"),
        ..moved("app", "n1/b", "n2/a")
    };
    assert_eq!(refused(forged).await, Code::PermissionDenied);
    // An instance that has been released meanwhile is none.
    place(&c, moved("gone", "n1/a", "n2/a")).await.unwrap();
    assert_eq!(places(&instance(&c, "app").await), ["n1/b"]);

    // The store has it.
    handle.stop().await;
    let (handle, c) = start(dir.path()).await;
    let app = instance(&c, "app").await;
    assert_eq!(places(&app), ["n1/b"]);
    assert!(app.devices[0].live);
    handle.stop().await;
}

#[tokio::test]
async fn a_place_may_be_named_by_an_endpoint_of_its_node() {
    let dir = tempfile::tempdir().unwrap();
    let (handle, mut c) = pool(dir.path()).await;
    let (description, load) = gpu("a", 0.0);
    let node = Node {
        name: "n3".into(),
        id: id("n3"),
        endpoints: vec!["unix:/run/x".into(), "tcp://n3.example:7473".into()],
        ..Node::default()
    };
    let request = RegisterRequest {
        node: Some(node),
        devices: vec![description],
    };
    c.nodes.register(request).await.unwrap();
    c.heartbeat("n3", vec![load]).await.unwrap();
    let there = "tcp://n3.example:7473/a";
    place(&c, moved("app", "n1/a", there)).await.unwrap();
    assert_eq!(places(&instance(&c, "app").await), ["n3/a"]);
    // An address that no node has is not in the pool.
    let elsewhere = place(&c, moved("app", there, "tcp://elsewhere:1/a")).await;
    assert_eq!(elsewhere.unwrap_err().code(), Code::NotFound);
    place(&c, moved("app", there, "n1/b")).await.unwrap();
    assert_eq!(places(&instance(&c, "app").await), ["n1/b"]);
    handle.stop().await;
}

#[tokio::test]
async fn an_instance_that_is_bound_to_its_node_keeps_what_it_was_allocated() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(dir.path());
    options.locality = Locality::Require;
    let (handle, mut c) = start_with(options).await;
    c.join("n1", vec![gpu("a", 10.0), gpu("b", 20.0)]).await;
    c.join("n2", vec![gpu("a", 10.0)]).await;
    let request = AllocateRequest {
        instance: "pod".into(),
        node: "n1".into(),
        ..AllocateRequest::default()
    };
    assert_eq!(places(&given(c.ask(request).await)), ["n1/a"]);
    let unfit = target(&c, "pod", "red", "n2/a").await.unwrap();
    assert!(unfit.contains("instance 'pod' (node)"), "{unfit}");
    place(&c, moved("pod", "n1/a", "n1/b")).await.unwrap();
    assert_eq!(places(&instance(&c, "pod").await), ["n1/a"]);
    handle.stop().await;
}
