//! A tenant that exceeds its limits gets an OpenCL error, and can continue.

use baltra_session::client::{Client, Handler};
use baltra_session::Endpoint;
use baltra_testkit::{hello, until, Daemon};
use baltra_tests::{
    compile, daemon, descriptors, executor_of, map_count, memory_kib, session_count, tenants,
    threads, through, Answer, Running,
};
use baltra_wire::{Control, Id, Operation};
use std::sync::Arc;

/// The codes of `CL_MEM_OBJECT_ALLOCATION_FAILURE`, `CL_OUT_OF_RESOURCES`, `CL_OUT_OF_HOST_MEMORY`:
/// the specification's errors for exhausted resources.
const REFUSED: [i64; 3] = [-4, -5, -6];

fn limited(daemon: &Daemon, quota: &[&str], arguments: &[&str]) -> Answer {
    let mut add = vec!["tenant", "add", "small"];
    add.extend(quota);
    daemon.text(&add).unwrap();
    let mut command = through(daemon, "small", compile("limits"));
    command.args(arguments);
    let answer = Running::run(command).ok();
    let code = answer.number("refused").expect("a code");
    assert!(REFUSED.contains(&code), "{answer:?}");
    assert!(answer.out.ends_with("lives"), "{answer:?}");
    answer
}

/// The number of objects that the program could create.
fn count(answer: &Answer) -> usize {
    let line = answer.line("refused").expect("a count");
    line.rsplit(' ')
        .next()
        .and_then(|n| n.parse().ok())
        .unwrap()
}

#[test]
fn a_memory_quota_is_an_opencl_error_and_what_is_released_can_be_had_again() {
    let daemon = daemon();
    let bytes = (8 << 20).to_string();
    let answer = limited(&daemon, &["--memory", "64M"], &["memory", &bytes]);
    assert!((1..=8).contains(&count(&answer)), "{answer:?}");
    assert_eq!(answer.number("again"), Some(0), "{answer:?}");
}

#[test]
fn a_memory_quota_holds_for_a_tenants_sessions_together() {
    let daemon = daemon();
    tenants(&daemon, &["large"]);
    daemon
        .text(&["tenant", "add", "small", "--memory", "64M"])
        .unwrap();
    let bytes = (20 << 20).to_string();
    // Holds its two buffers of 20 MB for as long as it runs.
    let mut holder = through(&daemon, "small", compile("work"));
    holder.args(["0", &bytes, "5"]);
    let mut holder = Running::start(holder);
    holder.wait_line("round");
    for (tenant, most) in [("small", 1), ("large", 4096)] {
        let mut command = through(&daemon, tenant, compile("limits"));
        command.args(["memory", &bytes]);
        if tenant == "large" {
            command = through(&daemon, tenant, compile("work"));
            command.args(["3", &bytes]);
            Running::run(command).ok();
            continue;
        }
        let answer = Running::run(command).ok();
        assert!(count(&answer) <= most, "{answer:?}");
        assert!(REFUSED.contains(&answer.number("refused").unwrap()));
    }
    holder.wait_progress();
}

#[test]
fn a_full_arena_is_an_opencl_error() {
    let daemon = daemon();
    let bytes = (8 << 20).to_string();
    let answer = limited(&daemon, &["--arena", "48M"], &["memory", &bytes]);
    assert!((1..=6).contains(&count(&answer)), "{answer:?}");
    assert_eq!(answer.number("again"), Some(0), "{answer:?}");
}

#[test]
fn too_many_objects_are_an_opencl_error() {
    let daemon = daemon();
    let answer = limited(&daemon, &["--objects", "50"], &["objects", "1000"]);
    assert!((10..=50).contains(&count(&answer)), "{answer:?}");
}

#[test]
fn too_many_queued_commands_are_an_opencl_error_and_the_queued_ones_run() {
    let daemon = daemon();
    let quota = ["--queued", "5000"];
    let answer = limited(&daemon, &quota, &["commands", "100000"]);
    assert!(count(&answer) >= 4900, "{answer:?}");
    assert!(answer.out.contains("all carried out"), "{answer:?}");
}

struct Silent;

impl Handler for Silent {
    fn printed(&self, _: &[u8]) {}
    fn context_error(&self, _: Id, _: &str) {}
    fn lost(&self, _: i32, _: &str) {}
}

/// A session with a context and a queue that has completed one command.
fn session(daemon: &Daemon, tenant: &str) -> Arc<Client> {
    let endpoint: Endpoint = daemon.endpoint().parse().unwrap();
    let mut hello = hello("device0");
    hello.tenant = tenant.into();
    let client = Client::connect(&endpoint, hello, Arc::new(Silent)).unwrap();
    let context = client.new_id();
    let devices = &[0; 4];
    let message = Control::Context {
        id: context,
        devices,
    };
    client.control(&message).unwrap();
    let queue = client.open_queue(context, 0, 0).unwrap();
    let number = queue.push(0, &[], &Operation::Marker).unwrap();
    queue.wait(number).unwrap();
    client
}

#[test]
fn a_thousand_sessions_opened_and_dropped_leave_nothing() {
    let daemon = daemon();
    tenants(&daemon, &["red"]);
    let kept = session(&daemon, "red");
    let executor = executor_of(&daemon, "red");
    let one_left = || session_count(&daemon) == 1;
    for _ in 0..100 {
        session(&daemon, "red");
    }
    until("the first hundred are over", one_left).unwrap();
    until("the pool is full", || daemon.children().len() >= 3).unwrap();
    let children = daemon.children();
    let seen = |pid| (descriptors(pid), threads(pid, ""), map_count(pid, "memfd:"));
    let before = (seen(daemon.pid()), seen(executor));
    let memory = (memory_kib(daemon.pid()), memory_kib(executor));
    for i in 0..1000 {
        match i % 10 {
            // One in ten sends nothing after its hello.
            0 => {
                let stream = daemon.connect().unwrap();
                let mut hello = hello("device0");
                hello.tenant = "red".into();
                let (welcome, _) = baltra_session::handshake::hello(&stream, &hello).unwrap();
                welcome.unwrap();
            }
            _ => drop(session(&daemon, "red")),
        }
    }
    until("all are over", one_left).unwrap();
    until("no descriptor, thread or mapping is left", || {
        let now = (seen(daemon.pid()), seen(executor));
        let within = |a: (usize, usize, usize), b: (usize, usize, usize)| {
            a.0 <= b.0 && a.1 <= b.1 && a.2 <= b.2
        };
        within(now.0, before.0) && within(now.1, before.1)
    })
    .unwrap_or_else(|e| {
        panic!(
            "{e}: {before:?}, now {:?} {:?}",
            seen(daemon.pid()),
            seen(executor)
        )
    });
    assert_eq!(daemon.children(), children, "processes");
    // Allocators keep some memory; a leak of a thousand sessions' memory would be far larger.
    for (pid, before) in [(daemon.pid(), memory.0), (executor, memory.1)] {
        let now = memory_kib(pid);
        assert!(now < before + (16 << 10), "{before} KiB, then {now} KiB");
    }
    assert_eq!(kept.is_lost(), None);
}
