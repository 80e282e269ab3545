//! Programs that see several devices as one (`baltra run --pool`).

use baltra_testkit::{until, Daemon, Options, Service};
use baltra_tests::{
    app, baltra, by_variables, compile, free_port, json, kill, native, nothing_panicked,
    session_count, through_with, Answer, Running,
};

const TWO: &str = "[[device]]\nname = 'a'\nselect = '0'\n[[device]]\nname = 'b'\nselect = '1'\n";
const TOKEN: &str = "known to the gateway and to both managers";
/// The output of `printf %s TOKEN | sha256sum`.
const TOKEN_SHA256: &str = "a661c85972de93cae9c2346e7dbc1920e2ff22d2c90e5ca16be387800d062ec1";
/// The value of `CL_DEVICE_NOT_AVAILABLE`.
const NOT_AVAILABLE: &str = "-2";

fn two(set: &[&str], each: &str) -> Daemon {
    let options = Options {
        set: set.iter().map(|s| s.to_string()).collect(),
        config: TWO.replace("name", &format!("{each}\nname")),
        ..Options::default()
    };
    Daemon::start_with(baltra(), &options).unwrap()
}

/// The program on a pool of the daemon's devices.
fn pooled(daemon: &Daemon, pool: &str, arguments: &[&str]) -> Answer {
    let mut command = through_with(daemon, &["--pool", pool], compile("pooled"));
    command.args(arguments);
    Running::run(command)
}

/// Completed tasks of each device.
fn tasks(daemon: &Daemon) -> [u64; 2] {
    let usage = json(daemon, &["tenant", "usage"]);
    ["a", "b"].map(|name| {
        let all = usage.as_array().expect("a list").iter();
        let own = all.filter(|u| u["device"] == name);
        own.filter_map(|u| u["tasks"].as_u64()).sum()
    })
}

#[test]
fn a_pool_is_one_device_with_what_holds_on_each_of_its_devices() {
    let daemon = two(&[], "");
    let alone = pooled(&daemon, "1", &["facts"]).ok();
    let pool = pooled(&daemon, "2", &["facts"]).ok();
    assert_eq!(pool.line("devices"), Some("1"));
    let name = alone.line("name").unwrap();
    assert!(!name.contains("pool"), "{name}");
    assert_eq!(pool.line("name"), Some(&*format!("{name} (pool of 2)")));
    // A launch runs on one of them.
    for same in ["units", "memory"] {
        assert_eq!(pool.line(same), alone.line(same), "{same}");
    }
    // Nothing that is true in one session only.
    let invalid = Some("-30");
    assert_eq!(
        (pool.line("svm"), pool.line("parts")),
        (Some("0"), Some("0"))
    );
    assert_eq!(
        (pool.line("uuid"), pool.line("divide")),
        (Some("none"), invalid)
    );
    let extensions = |answer: &Answer| answer.line("extensions").unwrap().to_owned();
    assert!(extensions(&pool).contains("cl_khr_byte_addressable_store"));
    assert!(!extensions(&pool).contains("cl_khr_device_uuid"));
}

#[test]
fn objects_of_every_kind_go_from_queue_to_queue_of_a_pool() {
    for each in ["host_memory = true", "host_memory = false"] {
        let daemon = two(&[], each);
        let answer = pooled(&daemon, "2", &["queues", "4"]).ok();
        let alone = pooled(&daemon, "1", &["queues", "4"]).ok();
        assert_eq!(answer.out, alone.out, "{each}");
        assert!(answer.number("right").unwrap() > 30, "{}", answer.out);
        until("all sessions are over", || session_count(&daemon) == 0).unwrap();
        nothing_panicked(&daemon);
    }
}

/// One device over shared memory, one over TCP: nodes that the program reaches differently.
#[test]
fn a_pool_spans_nodes() {
    let port = free_port();
    let listen = format!("listen.tcp=127.0.0.1:{port}");
    let start = |set: &[&str]| {
        let options = Options {
            set: set.iter().map(|s| s.to_string()).collect(),
            config: format!("{TWO}[[tenant]]\nname = 'red'\ntoken_sha256 = '{TOKEN_SHA256}'\n"),
            ..Options::default()
        };
        Daemon::start_with(baltra(), &options).unwrap()
    };
    let east = start(&["node.name=east"]);
    let west = start(&["node.name=west", &listen]);
    let endpoints = format!("{},tcp://127.0.0.1:{port}", east.endpoint());
    let run = |program, pool: &str, arguments: &[&str]| {
        let mut command = by_variables(&endpoints, program);
        command.args(arguments);
        command.env("BALTRA_TOKEN", TOKEN);
        command.env("BALTRA_POOL", pool);
        Running::run(command)
    };
    let pool = "east/a=1,west/b=1";
    let answer = run(compile("pooled"), pool, &["queues", "4"]).ok();
    assert!(answer.number("right").unwrap() > 30, "{}", answer.out);
    // Whole buffers and pieces, there and back.
    let sizes = "--queues 2 --sizes 4K,4M,9M,33M --rounds 3 --launches 3 --work 100";
    let sizes: Vec<&str> = sizes.split(' ').collect();
    let answer = run(app("devices"), pool, &sizes).ok();
    assert_eq!(answer.out.matches("round").count(), 4, "{}", answer.out);
    assert_eq!(tasks(&east)[1] + tasks(&west)[0], 0);
}

#[test]
fn queues_are_spread_by_weight() {
    let daemon = two(&[], "");
    let mut before = tasks(&daemon);
    for (pool, used) in [
        ("2", [true, true]),
        ("a=100,b=1", [true, false]),
        ("b=100, a=1", [false, true]),
        ("b", [false, true]),
    ] {
        pooled(&daemon, pool, &["launches", "4"]).ok();
        until("its sessions are over", || session_count(&daemon) == 0).unwrap();
        let now = tasks(&daemon);
        let done = [0, 1].map(|i| now[i] > before[i]);
        assert_eq!(done, used, "{pool}: {before:?} {now:?}");
        before = now;
    }
}

#[test]
fn a_pool_that_cannot_be_formed_is_an_error_with_its_reason() {
    let daemon = two(&[], "");
    for (pool, reason) in [
        ("3", "3 devices are requested, 2 are there"),
        ("a,c", "no (further) device is named 'c'"),
        ("a,a", "no (further) device is named 'a'"),
        ("a=0,b", "'a=0': a weight is a number above 0"),
        ("a=much", "'a=much': a weight is a number above 0"),
    ] {
        let answer = pooled(&daemon, pool, &["facts"]);
        assert!(!answer.status.success(), "{pool}");
        assert!(answer.err.contains(reason), "{pool}: {}", answer.err);
    }
    for (pool, reason) in [("0", "1 to 256"), ("", "a number or names")] {
        let answer = pooled(&daemon, pool, &["facts"]);
        assert_eq!(answer.status.code(), Some(2), "{pool}");
        assert!(answer.err.contains(reason), "{pool}: {}", answer.err);
    }
}

#[test]
fn the_rest_of_a_pool_works_on_after_the_loss_of_a_device() {
    for gone in ["a", "b"] {
        let daemon = two(&[], "");
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("gone");
        let mut command = through_with(&daemon, &["--pool", "2"], compile("pooled"));
        command.arg("lost").arg(&file);
        let mut running = Running::start(command);
        running.wait_line("ready");
        let sessions = json(&daemon, &["sessions"]);
        let sessions = sessions.as_array().expect("a list");
        let own = sessions.iter().find(|s| s["device"] == gone).unwrap();
        kill(own["executor_pid"].as_u64().unwrap() as u32);
        until("its session is over", || session_count(&daemon) == 1).unwrap();
        std::fs::write(&file, "").unwrap();
        let answer = running.finish().ok();
        let lines = |word: &str| -> Vec<String> {
            let lines = answer.out.lines().filter_map(|l| l.strip_prefix(word));
            lines.map(|l| l.trim().to_owned()).collect()
        };
        // Commands of its queues fail; the other device's and all new ones run.
        let old = match gone {
            "a" => [NOT_AVAILABLE, "0"],
            _ => ["0", NOT_AVAILABLE],
        };
        assert_eq!(lines("old"), old, "{gone}: {answer:#?}");
        assert_eq!(lines("new"), ["2", "2", "2"], "{gone}: {answer:#?}");
        assert_eq!(lines("rebuilt"), ["2"], "{gone}: {answer:#?}");
        assert_eq!(lines("available"), ["1"], "{gone}");
        assert_eq!(lines("context"), ["2", "2"], "{gone}: {answer:#?}");
        nothing_panicked(&daemon);
    }
}

#[test]
fn the_registry_allocates_a_pool_and_its_weights() {
    let registry = Service::start(baltra(), "registry", &Options::default()).unwrap();
    let node = format!("node.registry={}", registry.url());
    let east = two(&["node.name=east", &node], "");
    let west = two(&["node.name=west", &node], "");
    until("both nodes have joined the pool", || {
        let text = registry.text(&["devices", "--json"]).unwrap_or_default();
        text.matches("\"ready\"").count() == 4
    })
    .unwrap();
    let run = |options: &[&str], program: &[&str]| {
        let mut command = native(baltra());
        command
            .env_remove("OCL_ICD_VENDORS")
            .arg("--runtime-dir")
            .arg(registry.runtime_dir())
            .arg("run")
            .args(options)
            .arg("--")
            .args(program);
        Running::run(command)
    };
    let shown = run(
        &["--device", "name=a", "--pool", "2"],
        &["sh", "-c", "echo $BALTRA_POOL"],
    )
    .ok();
    let mut weights: Vec<(&str, f64)> = Vec::new();
    for entry in shown.out.trim().split(',') {
        let (name, weight) = entry.split_once('=').unwrap();
        weights.push((name, weight.parse().unwrap()));
    }
    weights.sort_by(|a, b| a.0.cmp(b.0));
    assert_eq!(
        weights.iter().map(|w| w.0).collect::<Vec<_>>(),
        ["east/a", "west/a"]
    );
    assert!(
        (weights[0].1 + weights[1].1 - 1.0).abs() < 1e-6,
        "{weights:?}"
    );
    let program = compile("pooled");
    let program = program.to_str().unwrap();
    let answer = run(
        &["--device", "vendor=*", "--pool", "4"],
        &[program, "queues", "8"],
    )
    .ok();
    assert!(answer.number("right").unwrap() > 30, "{}", answer.out);
    let more = run(
        &["--device", "vendor=*", "--pool", "5"],
        &[program, "facts"],
    );
    assert!(more.err.contains("4 of 5 devices"), "{}", more.err);
    let named = run(
        &["--device", "vendor=*", "--pool", "a,b"],
        &[program, "facts"],
    );
    assert!(
        named.err.contains("--pool takes the number"),
        "{}",
        named.err
    );
    let both = run(
        &["--device", "vendor=*", "--pool", "2", "--count", "2"],
        &[program, "facts"],
    );
    assert_eq!(both.status.code(), Some(2), "{}", both.err);
    drop((east, west));
}
