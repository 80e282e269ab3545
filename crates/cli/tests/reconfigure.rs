//! Devices that hold one image at a time, in a pool: permission to change the image, moves of other
//! instances, and operation without a registry. PoCL replaces an FPGA.

mod common;
#[path = "common/program.rs"]
mod program;

use baltra_api::client;
use baltra_api::registry::{AllocateRequest, Instance, ReleaseRequest, RenewRequest};
use baltra_testkit::{until, Daemon, Service};
use baltra_wire::Reply;
use common::*;
use program::{source, Tenant, NOT_AVAILABLE};
use std::future::Future;

const CONFIG: &str = "\
[[device]]
name = 'maker'
select = '0'
[[device]]
name = 'fpga0'
select = '1'
image = 'exclusive'
[[device]]
name = 'fpga1'
select = '2'
image = 'exclusive'
";

/// A call of a registry's instance service.
fn call_registry<T, F>(registry: &Service, call: impl FnOnce(client::Instances) -> F) -> T
where
    F: Future<Output = Result<tonic::Response<T>, tonic::Status>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let options = client::Options {
            url: registry.url().to_owned(),
            ..client::Options::default()
        };
        let instances = client::instances(&options).unwrap();
        call(instances).await.unwrap().into_inner()
    })
}

/// Allocates devices to an instance, without a lease.
fn allocate(registry: &Service, name: &str, query: &str) -> Instance {
    allocate_as(registry, "", name, query)
}

/// Like [`allocate`], for a tenant.
fn allocate_as(registry: &Service, tenant: &str, name: &str, query: &str) -> Instance {
    let request = AllocateRequest {
        instance: name.into(),
        tenant: tenant.into(),
        query: query.into(),
        lease_s: Some(0),
        ..AllocateRequest::default()
    };
    let reply = call_registry(registry, |mut i| async move { i.allocate(request).await });
    reply
        .instance
        .unwrap_or_else(|| panic!("{:?}", reply.refusal))
}

fn device_of(registry: &Service, name: &str) -> String {
    let request = RenewRequest {
        instance: name.into(),
        ..RenewRequest::default()
    };
    let instance: Instance = call_registry(registry, |mut i| async move { i.renew(request).await });
    let devices: Vec<_> = instance.devices.iter().map(|a| a.device.clone()).collect();
    devices.join(",")
}

/// Stores an image under a name, as an operator does.
fn push(daemon: &Daemon, name: &str, image: &[u8]) {
    let file = daemon.state_dir().join(format!("{name}.bit"));
    std::fs::write(&file, image).unwrap();
    let file = file.to_str().unwrap();
    daemon
        .text(&["accelerator", "push", file, "--name", name])
        .unwrap();
}

fn tenants(daemon: &Daemon) {
    for tenant in ["red", "blue"] {
        daemon.text(&["tenant", "add", tenant]).unwrap();
    }
}

fn is_loaded(reply: &Reply) -> bool {
    *reply == Reply::Binaries(vec![0])
}

/// The device's accelerator in the registry: its name, or its digest.
fn holds(registry: &Service, device: &str) -> String {
    let all = devices(registry);
    let found = all.iter().find(|d| d["name"] == device).unwrap();
    let region = &found["regions"][0];
    match region["name"].as_str() {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => region["digest"].as_str().unwrap_or_default().to_owned(),
    }
}

/// Waits until a node has received the allocation of one of its devices to an instance, which it
/// keeps.
fn waits_for_instance(daemon: &Daemon, instance: &str) {
    let orders = daemon.state_dir().join("orders.json");
    until("the node has received it", || {
        std::fs::read_to_string(&orders).is_ok_and(|text| text.contains(instance))
    })
    .unwrap();
}

#[test]
fn an_instance_loads_its_image_on_its_own_device_only() {
    let registry = registry();
    let daemon = node("east", &registry, CONFIG);
    tenants(&daemon);
    let maker = Tenant::new(&daemon, "red", "maker");
    let image = maker.binary(&source("one"));
    push(&daemon, "one", &image);
    allocate(&registry, "web-1", "name=fpga0,accelerator=one");

    // A program that is not an instance must not use devices that the registry has allocated.
    waits_for_instance(&daemon, "web-1");
    let stranger = Tenant::new(&daemon, "blue", "fpga0");
    assert_eq!(
        stranger.binary_program(&image).1,
        Reply::Error(NOT_AVAILABLE)
    );
    until("the reason arrives", || {
        stranger.messages().contains("web-1")
    })
    .unwrap();
    drop(stranger);
    // An instance that does not exist in the registry, and one on a device that is not its own.
    let unknown = Tenant::instance(&daemon, "blue", "fpga0", Some("nobody"));
    assert_eq!(
        unknown.binary_program(&image).1,
        Reply::Error(NOT_AVAILABLE)
    );
    until("the reason arrives", || {
        unknown.messages().contains("nobody")
    })
    .unwrap();
    let elsewhere = Tenant::instance(&daemon, "red", "fpga1", Some("web-1"));
    assert_eq!(
        elsewhere.binary_program(&image).1,
        Reply::Error(NOT_AVAILABLE)
    );
    until("the reason arrives", || {
        elsewhere.messages().contains("east/fpga0")
    })
    .unwrap();

    let own = Tenant::instance(&daemon, "red", "fpga0", Some("web-1"));
    assert!(
        is_loaded(&own.binary_program(&image).1),
        "{}",
        own.messages()
    );
    until("the registry has the loaded accelerator", || {
        holds(&registry, "fpga0") == "one"
    })
    .unwrap();
    // An image that the instance has not requested is rejected in any case.
    let other = maker.binary(&source("other"));
    drop(elsewhere);
    assert_eq!(own.binary_program(&other).1, Reply::Error(NOT_AVAILABLE));
    until("the reason arrives", || {
        own.messages().contains("accelerator=one")
    })
    .unwrap();
    // On a device without an allocation, any program may load an image if that disturbs no other.
    let stranger = Tenant::new(&daemon, "blue", "fpga1");
    assert!(
        is_loaded(&stranger.binary_program(&other).1),
        "{}",
        stranger.messages()
    );
}

#[test]
fn an_image_runs_where_its_target_is() {
    let registry = registry();
    let daemon = node("east", &registry, CONFIG);
    tenants(&daemon);
    let image = Tenant::new(&daemon, "red", "maker").binary(&source("one"));
    push(&daemon, "one", &image);
    let load = ["accelerator", "load", "one", "--device", "fpga0"];
    daemon.text(&load).unwrap();
    until("the registry has it", || holds(&registry, "fpga0") == "one").unwrap();
    allocate(&registry, "web-1", "name=fpga0,accelerator=one");
    // The device that shares is idle, and does not count as having the image.
    let runs_on = |query: &str| run_line(&registry, query, "printf '%s' \"$BALTRA_DEVICE\"");
    let output = runs_on("accelerator=one");
    assert_eq!(text(&output.stdout), "east/fpga0", "{output:?}");

    let retarget = |target: &str| {
        let file = daemon.state_dir().join("one.bit");
        let file = file.to_str().unwrap();
        let push = [
            "accelerator",
            "push",
            file,
            "--name",
            "two",
            "--target",
            target,
        ];
        daemon.text(&push).unwrap();
    };
    std::fs::write(daemon.state_dir().join("one.bit"), b"another image").unwrap();
    retarget("U280*");
    let refused = ["accelerator", "load", "two", "--device", "fpga1"];
    let refused = daemon.text(&refused).unwrap_err().to_string();
    assert!(
        refused.contains("built for 'U280*', not for 'fpga1'"),
        "{refused}"
    );
    until("the registry has the target", || {
        let message = text(&runs_on("accelerator=two").stderr);
        let each = ["fpga0", "fpga1", "maker"];
        each.iter()
            .all(|name| message.contains(&format!("east/{name} (target): ")))
    })
    .unwrap();
    retarget("maker");
    until("the registry has the new target", || {
        text(&runs_on("accelerator=two").stdout) == "east/maker"
    })
    .unwrap();
}

#[test]
fn an_operator_s_load_needs_permission_as_well() {
    let registry = registry();
    let daemon = node("east", &registry, CONFIG);
    tenants(&daemon);
    let maker = Tenant::new(&daemon, "red", "maker");
    let (one, other) = (maker.binary(&source("one")), maker.binary(&source("other")));
    push(&daemon, "one", &one);
    push(&daemon, "other", &other);
    let load = |name: &str| daemon.text(&["accelerator", "load", name, "--device", "fpga0"]);
    // An idle instance: it has loaded its image, and has no session at present.
    allocate(&registry, "web-1", "name=fpga0");
    let own = Tenant::instance(&daemon, "red", "fpga0", Some("web-1"));
    assert!(is_loaded(&own.binary_program(&one).1), "{}", own.messages());
    drop(own);
    until("its session is over", || {
        let sessions = daemon.text(&["session", "ls", "--json"]).unwrap();
        !sessions.contains("web-1")
    })
    .unwrap();
    let refused = load("other").unwrap_err().to_string();
    assert!(
        refused.contains("allocated to instance 'web-1'"),
        "{refused}"
    );
    until("the registry has the image", || {
        holds(&registry, "fpga0") == "one"
    })
    .unwrap();

    // Without its instance, the device is the operator's.
    let release = ReleaseRequest {
        instance: "web-1".into(),
    };
    call_registry(&registry, |mut i| async move { i.release(release).await });
    load("other").unwrap();
    until("the registry has the image", || {
        holds(&registry, "fpga0") == "other"
    })
    .unwrap();

    // The accelerator that an instance requires is not another one.
    allocate(&registry, "web-2", "name=fpga0,accelerator=one");
    load("one").unwrap();
    assert!(load("other").is_err());
}

#[test]
fn functions_give_way_to_an_operator_s_load() {
    let registry = registry();
    let daemon = node("east", &registry, CONFIG);
    tenants(&daemon);
    let maker = Tenant::new(&daemon, "red", "maker");
    let (one, other) = (maker.binary(&source("one")), maker.binary(&source("other")));
    push(&daemon, "other", &other);
    let request = AllocateRequest {
        instance: "function-1".into(),
        query: "name=fpga0".into(),
        lease_s: Some(0),
        preemptible: true,
        ..AllocateRequest::default()
    };
    call_registry(&registry, |mut i| async move { i.allocate(request).await });
    let session = Some("function-1 (preemptible)");
    let function = Tenant::instance(&daemon, "red", "fpga0", session);
    let (_, reply) = function.binary_program(&one);
    assert!(is_loaded(&reply), "{}", function.messages());
    let load = ["accelerator", "load", "other", "--device", "fpga0"];
    daemon.text(&load).unwrap();
    until("the registry has the image", || {
        holds(&registry, "fpga0") == "other"
    })
    .unwrap();
    until("the function's session is over", || {
        function.client.is_lost().is_some()
    })
    .unwrap();
    // Its next call loads its own image again.
    let function = Tenant::instance(&daemon, "red", "fpga0", session);
    let (_, reply) = function.binary_program(&one);
    assert!(is_loaded(&reply), "{}", function.messages());
}

#[test]
fn an_idle_session_makes_way_and_its_instance_has_another_device() {
    let registry = registry();
    let daemon = node("east", &registry, CONFIG);
    tenants(&daemon);
    let maker = Tenant::new(&daemon, "red", "maker");
    let (one, other) = (maker.binary(&source("one")), maker.binary(&source("other")));
    push(&daemon, "one", &one);
    push(&daemon, "other", &other);
    // Both devices hold the first image; its instance is on fpga0.
    for device in ["fpga0", "fpga1"] {
        daemon
            .text(&["accelerator", "load", "one", "--device", device])
            .unwrap();
        until("the registry has it", || holds(&registry, device) == "one").unwrap();
    }
    allocate(&registry, "first", "name=fpga*,accelerator=one");
    let at = device_of(&registry, "first");
    let first = Tenant::instance(&daemon, "red", &at, Some("first"));
    assert!(
        is_loaded(&first.binary_program(&one).1),
        "{}",
        first.messages()
    );
    let free = if at == "fpga0" { "fpga1" } else { "fpga0" };

    // The second instance requests that device for another image.
    allocate(&registry, "second", &format!("name={at},accelerator=other"));
    let second = Tenant::instance(&daemon, "blue", &at, Some("second"));
    let (_, reply) = second.binary_program(&other);
    assert!(is_loaded(&reply), "{reply:?} {}", second.messages());
    until("the first receives the reason of its end", || {
        first.messages().contains("another device") && first.client.is_lost().is_some()
    })
    .unwrap();
    assert_eq!(device_of(&registry, "first"), free);
    let again = Tenant::instance(&daemon, "red", free, Some("first"));
    assert!(
        is_loaded(&again.binary_program(&one).1),
        "{}",
        again.messages()
    );
    until("the registry has it", || holds(&registry, &at) == "other").unwrap();
}

#[test]
fn a_busy_program_stays_where_it_is() {
    let registry = registry();
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let metrics = free.local_addr().unwrap();
    drop(free);
    let mut options = node_options("east", registry.url(), CONFIG);
    options.set.push(format!("metrics.address={metrics}"));
    let daemon = Daemon::start_with(BALTRA, &options).unwrap();
    tenants(&daemon);
    let maker = Tenant::new(&daemon, "red", "maker");
    let (one, other) = (maker.binary(&source("one")), maker.binary(&source("other")));
    push(&daemon, "one", &one);
    push(&daemon, "other", &other);
    for device in ["fpga0", "fpga1"] {
        daemon
            .text(&["accelerator", "load", "one", "--device", device])
            .unwrap();
        until("the registry has it", || holds(&registry, device) == "one").unwrap();
    }
    allocate(&registry, "first", "name=fpga*,accelerator=one");
    let at = device_of(&registry, "first");
    let first = Tenant::instance(&daemon, "red", &at, Some("first"));
    assert!(
        is_loaded(&first.binary_program(&one).1),
        "{}",
        first.messages()
    );
    let work = first.be_busy();
    let waiting = format!("baltra_queue_depth{{device=\"{at}\",tenant=\"red\"}} 1\n");
    until("its command has arrived", || {
        get(&format!("http://{metrics}"), "/metrics").contains(&waiting)
    })
    .unwrap();

    allocate(&registry, "second", &format!("name={at},accelerator=other"));
    let second = Tenant::instance(&daemon, "blue", &at, Some("second"));
    let (_, reply) = second.binary_program(&other);
    assert_eq!(reply, Reply::Error(NOT_AVAILABLE));
    until("the reason arrives", || {
        second.messages().contains("tenant red")
    })
    .unwrap();
    assert_eq!(first.client.is_lost(), None);
    assert_eq!(device_of(&registry, "first"), at);
    // When its work is done, the instance is idle and is moved.
    first.go_on(work);
    let (_, reply) = second.binary_program(&other);
    assert!(is_loaded(&reply), "{reply:?} {}", second.messages());
    until("the first receives the reason of its end", || {
        first.messages().contains("another device")
    })
    .unwrap();
    assert_ne!(device_of(&registry, "first"), at);
}

#[test]
fn a_session_of_no_instance_is_nobodys_to_end() {
    let registry = registry();
    let daemon = node("east", &registry, CONFIG);
    tenants(&daemon);
    let maker = Tenant::new(&daemon, "red", "maker");
    let (one, other) = (maker.binary(&source("one")), maker.binary(&source("other")));
    push(&daemon, "other", &other);
    let plain = Tenant::new(&daemon, "red", "fpga0");
    let (program, reply) = plain.binary_program(&one);
    assert!(is_loaded(&reply), "{}", plain.messages());
    allocate(&registry, "web-1", "name=fpga0,accelerator=other");
    let own = Tenant::instance(&daemon, "blue", "fpga0", Some("web-1"));
    assert_eq!(own.binary_program(&other).1, Reply::Error(NOT_AVAILABLE));
    until("the reason arrives", || {
        own.messages().contains("tenant red")
    })
    .unwrap();
    assert_eq!(plain.client.is_lost(), None);
    plain.client.release(program, None).unwrap();
    until("it is loaded once nobody uses the other", || {
        is_loaded(&own.binary_program(&other).1)
    })
    .unwrap();
}

#[test]
fn another_tenant_s_instance_is_of_no_use() {
    let mut registry = registry();
    let daemon = node("east", &registry, CONFIG);
    tenants(&daemon);
    let maker = Tenant::new(&daemon, "red", "maker");
    let (one, other) = (maker.binary(&source("one")), maker.binary(&source("other")));
    allocate_as(&registry, "red", "web-1", "name=fpga0");
    waits_for_instance(&daemon, "web-1");
    let refused = |thief: &Tenant, why: &str| {
        assert_eq!(thief.binary_program(&other).1, Reply::Error(NOT_AVAILABLE));
        until("the reason arrives", || thief.messages().contains(why)).unwrap();
    };
    let thief = Tenant::instance(&daemon, "blue", "fpga0", Some("web-1"));
    refused(&thief, "another tenant");
    let own = Tenant::instance(&daemon, "red", "fpga0", Some("web-1"));
    let (program, reply) = own.binary_program(&one);
    assert!(is_loaded(&reply), "{}", own.messages());
    own.client.release(program, None).unwrap();
    // The change is also rejected while the registry is unreachable.
    registry.kill().unwrap();
    refused(&thief, "cannot be reached");
    assert!(
        is_loaded(&own.binary_program(&other).1),
        "{}",
        own.messages()
    );
}

#[test]
fn without_its_registry_a_node_decides_by_its_last_orders() {
    let mut registry = registry();
    let daemon = node("east", &registry, CONFIG);
    tenants(&daemon);
    let maker = Tenant::new(&daemon, "red", "maker");
    let (one, other) = (maker.binary(&source("one")), maker.binary(&source("other")));
    allocate(&registry, "web-1", "name=fpga0");
    waits_for_instance(&daemon, "web-1");
    let stranger = Tenant::new(&daemon, "blue", "fpga0");
    assert_eq!(stranger.binary_program(&one).1, Reply::Error(NOT_AVAILABLE));
    drop(stranger);
    registry.kill().unwrap();
    let own = Tenant::instance(&daemon, "red", "fpga0", Some("web-1"));
    let (program, reply) = own.binary_program(&one);
    assert!(is_loaded(&reply), "{reply:?} {}", own.messages());
    let unknown = Tenant::instance(&daemon, "blue", "fpga1", Some("nobody"));
    assert_eq!(
        unknown.binary_program(&other).1,
        Reply::Error(NOT_AVAILABLE)
    );
    until("the reason is shown", || {
        unknown.messages().contains("cannot be reached")
    })
    .unwrap();
    own.client.release(program, None).unwrap();

    // A manager that starts meanwhile still has the allocation.
    drop((own, unknown, maker));
    let daemon = daemon
        .restart(&node_options("east", registry.url(), CONFIG))
        .unwrap();
    let own = Tenant::instance(&daemon, "red", "fpga0", Some("web-1"));
    assert!(
        is_loaded(&own.binary_program(&other).1),
        "{}",
        own.messages()
    );
    let registry = registry.restart(&registry_options()).unwrap();
    until("the node is back", || {
        state(&registry, "east/fpga0") == "ready"
    })
    .unwrap();
    assert_eq!(device_of(&registry, "web-1"), "fpga0");
}
