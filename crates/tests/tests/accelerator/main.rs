//! OpenCL C on an emulated accelerator: compiled to hardware, run as a model of it.

mod prepared;
mod report;

use baltra_testkit::{until, Daemon, Options};
use baltra_tests::{
    app, baltra, compile, executor_of, json, native, once_built, root, session_count, tenants,
    through, through_with, Answer, Running,
};
use rustix::process::{kill_process, Pid, Signal};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;

/// `CL_INVALID_BINARY`, `CL_DEVICE_NOT_AVAILABLE`
const INVALID_BINARY: i64 = -42;
const NOT_AVAILABLE: i64 = -2;

fn daemon_with(set: &[&str]) -> Daemon {
    let options = Options {
        set: set.iter().map(|s| s.to_string()).collect(),
        config: "[[device]]\nname = \"fpga\"\ndriver = \"emulate:\"\n".into(),
        own_kernels: true,
    };
    Daemon::start_with(baltra(), &options).expect("a daemon starts")
}

/// The image of `programs/accelerator.cl`, built once by the command line.
fn image() -> &'static Path {
    static IMAGE: OnceLock<PathBuf> = OnceLock::new();
    IMAGE.get_or_init(|| built("accelerator"))
}

/// The image of a program in `programs`, built by the command line.
fn built(name: &str) -> PathBuf {
    let dir = root().join("target/tests");
    std::fs::create_dir_all(&dir).expect("target can be written");
    let image = dir.join(format!("{name}.img"));
    let output = Command::new(baltra())
        .args(["accelerator", "build"])
        .arg(root().join(format!("crates/tests/programs/{name}.cl")))
        .arg("-o")
        .arg(&image)
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    image
}

/// `programs/channels.c` with the image of `programs/channels.cl`.
fn channels(daemon: &Daemon, tenant: &str, modes: &[&str]) -> Command {
    static IMAGE: OnceLock<PathBuf> = OnceLock::new();
    let mut command = through(daemon, tenant, compile("channels"));
    command.arg(IMAGE.get_or_init(|| built("channels")));
    command.args(modes);
    command
}

/// A matrix of `apps/matmul`.
fn matrix(count: usize, mut seed: u32) -> Vec<f32> {
    let mut next = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 8 & 0xffff) as f32 / 32768.0 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// The product that `apps/matmul` computes, as bytes: each sum in the order of its terms, with every
/// operation rounded.
fn product(n: usize) -> Vec<u8> {
    let (a, b) = (matrix(n * n, 1), matrix(n * n, 2));
    let sum = |row: usize, column: usize| {
        let terms = (0..n).map(|k| a[row * n + k] * b[k * n + column]);
        terms.fold(0f32, |sum, term| sum + term)
    };
    let sums = (0..n * n).map(|at| sum(at / n, at % n));
    sums.flat_map(f32::to_le_bytes).collect()
}

/// FNV-1a, as the applications print it.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn accelerator(daemon: &Daemon, tenant: &str, arguments: &[&str]) -> Command {
    let mut command = through(daemon, tenant, compile("accelerator"));
    command.arg(image()).args(arguments);
    command
}

fn run(daemon: &Daemon, arguments: &[&str]) -> Answer {
    Running::run(accelerator(daemon, "", arguments)).ok()
}

/// The images that the daemon keeps for a tenant.
fn cached(daemon: &Daemon, tenant: &str) -> Vec<(PathBuf, u64)> {
    let dir = daemon.state_dir().join("cache/fpga").join(tenant);
    let entries = dir.read_dir().expect("the tenant has a cache").flatten();
    let mut images: Vec<_> = entries
        .filter(|entry| entry.path().extension().is_some_and(|e| e == "img"))
        .map(|entry| (entry.path(), entry.metadata().expect("a file").ino()))
        .collect();
    images.sort();
    images
}

#[test]
fn applications_give_the_same_bytes_as_on_pocl_and_are_compiled_once() {
    let daemon = daemon_with(&[]);
    tenants(&daemon, &["red"]);
    let home = tempfile::tempdir().unwrap();
    let sobel = |mut command: Command, name: &str| {
        let picture = home.path().join(name);
        command.args(["--size", "96x33", "--output"]).arg(&picture);
        Running::run(command).ok();
        std::fs::read(picture).unwrap()
    };
    let here = sobel(native(app("sobel")), "native.ppm");
    let there = sobel(through(&daemon, "red", app("sobel")), "first.ppm");
    assert!(here == there, "the pictures differ");
    let before = cached(&daemon, "red");
    assert_eq!(before.len(), 1, "{before:?}");
    // Another executor, which finds the image.
    let again = sobel(through(&daemon, "red", app("sobel")), "second.ppm");
    assert!(here == again, "the pictures differ");
    assert_eq!(cached(&daemon, "red"), before);
    // Local memory and barriers. PoCL fuses multiplications and additions, so that its sums differ.
    let mut command = through(&daemon, "red", app("matmul"));
    command.args(["--n", "40", "--json"]);
    let answer = Running::run(command).ok();
    let value: serde_json::Value = serde_json::from_str(&answer.out).unwrap();
    let expected = format!("{:016x}", checksum(&product(40)));
    assert_eq!(value["checksum"], expected.as_str());
    assert_eq!(cached(&daemon, "red").len(), 2);
}

#[test]
fn global_offset_and_local_size_are_exact() {
    let answer = run(&daemon_with(&[]), &["places"]);
    for dimensions in 1..=3 {
        let line = format!("places {dimensions} wrong 0");
        assert!(answer.out.lines().any(|l| l == line), "{answer:?}");
    }
}

#[test]
fn the_device_keeps_what_it_claims() {
    let daemon = daemon_with(&[]);
    let answer = Running::run(through(&daemon, "", compile("claims"))).ok();
    assert_eq!(answer.number("wrong"), Some(0), "{answer:?}");
}

#[test]
fn a_stray_store_fails_alone_and_is_logged_with_its_argument() {
    let daemon = daemon_with(&[]);
    let answer = run(&daemon, &["stray"]);
    for n in 0..4 {
        let status = answer.number(&format!("stray {n} status"));
        assert!(status.is_some_and(|status| status < 0), "{answer:?}");
    }
    assert_eq!(answer.number("stray 4 status"), Some(0), "{answer:?}");
    assert_eq!(answer.number("touched"), Some(1), "{answer:?}");
    let log = daemon.log();
    let line = log.lines().find(|line| line.contains("invalid store"));
    let line = line.unwrap_or_else(|| panic!("no store in the log: {log}"));
    for part in ["stray", "target", "4096"] {
        assert!(line.contains(part), "'{part}' is not in '{line}'");
    }
}

#[test]
fn a_barrier_that_not_all_work_items_reach_fails_alone_and_is_logged() {
    let daemon = daemon_with(&[]);
    let answer = run(&daemon, &["diverge"]);
    let status = answer.number("diverge 0 status");
    assert!(status.is_some_and(|status| status < 0), "{answer:?}");
    assert_eq!(answer.number("diverge 1 status"), Some(0), "{answer:?}");
    let log = daemon.log();
    let line = log.lines().find(|line| line.contains("reached a barrier"));
    assert!(line.is_some_and(|line| line.contains("diverge")), "{log}");
}

#[test]
fn tenants_that_share_an_executor_never_see_each_others_bytes() {
    let daemon = daemon_with(&["device.isolation=device"]);
    tenants(&daemon, &["red", "blue"]);
    let rounds = ["watch", "40"];
    let running = ["red", "blue"].map(|t| Running::start(accelerator(&daemon, t, &rounds)));
    for running in running {
        let answer = running.finish().ok();
        assert_eq!(answer.number("dirty"), Some(0), "{answer:?}");
        assert_eq!(answer.number("wrong"), Some(0), "{answer:?}");
    }
}

#[test]
fn an_endless_kernel_ends_with_its_session_or_at_its_limit() {
    let daemon = daemon_with(&["device.isolation=device"]);
    tenants(&daemon, &["red", "blue"]);
    let mut leaving = Running::start(accelerator(&daemon, "red", &["endless"]));
    leaving.wait_line("ready");
    let mut neighbor = Running::start(accelerator(&daemon, "blue", &["watch", "40"]));
    neighbor.wait_line("ready");
    let executor = executor_of(&daemon, "red");
    drop(leaving);
    // The kernel is cancelled, and the executor continues.
    neighbor.finish().ok();
    until("the sessions are over", || session_count(&daemon) == 0).unwrap();
    let again = Running::run(accelerator(&daemon, "blue", &["watch"])).ok();
    assert_eq!(again.number("wrong"), Some(0));
    assert!(!baltra_tests::ended(executor), "the executor has ended");
    daemon
        .text(&["tenant", "add", "green", "--task-ms", "3000"])
        .unwrap();
    let answer = Running::run(accelerator(&daemon, "green", &["endless"])).ok();
    assert_eq!(answer.number("finish"), Some(NOT_AVAILABLE), "{answer:?}");
}

/// The program's `queues` has run that many times, with the right results.
fn assert_queues(answer: &Answer, times: usize) {
    let lines = [
        ("own wrong 0", 1),
        ("own status 0", 1),
        ("any wrong 0", 3),
        ("any status 0", 3),
    ];
    for (line, each) in lines {
        let found = answer.out.lines().filter(|l| *l == line).count();
        assert_eq!(found, each * times, "{line}: {answer:?}");
    }
}

#[test]
fn kernels_with_channels_run_at_the_same_time() {
    let daemon = daemon_with(&[]);
    // Another program of the same tenant begins with empty channels.
    let answer = Running::run(channels(&daemon, "", &["queues"])).ok();
    assert_queues(&answer, 1);
    let answer = Running::run(channels(&daemon, "", &["queues", "stays", "queues"])).ok();
    assert_queues(&answer, 2);
    let stays = "stays wrong 0 status 0";
    for line in [stays, "consumed 4"] {
        assert!(answer.out.lines().any(|l| l == line), "{line}: {answer:?}");
    }
}

#[test]
fn kernels_exchange_packets_of_pipes() {
    let daemon = daemon_with(&[]);
    let modes = ["describes", "in_order", "queues", "out_of_order", "errors"];
    let mut command = through(&daemon, "", compile("pipes"));
    command.arg("emulated").args(modes);
    let answer = Running::run(command).ok();
    let lines = [
        "support 1 args 15 reservations 65536 bytes 1024",
        "pipe 12 34 0 type 10f7 flags 201",
        "in order wrong 0 status 0",
        "create -30 -69 -69 -69",
        "too large -4",
        "argument -38 -50 -50 -38",
        "object -38 -38 -38",
        "both -52",
    ];
    for line in lines {
        assert!(answer.out.lines().any(|l| l == line), "{line}: {answer:?}");
    }
    let together = answer.out.lines();
    let together = together.filter(|l| *l == "together wrong 0 status 0");
    assert_eq!(together.count(), 2, "{answer:?}");
}

#[test]
fn a_failed_kernel_ends_those_that_wait_for_its_channels() {
    let daemon = daemon_with(&[]);
    let answer = Running::run(channels(&daemon, "", &["fails"])).ok();
    let failed = answer.out.lines().filter(|l| *l == "failed 3").count();
    assert_eq!(failed, 2, "{answer:?}");
    // Nothing is left of their elements.
    assert_queues(&answer, 1);
    let log = daemon.log();
    let line = log.lines().find(|l| l.contains("other end of its channel"));
    assert!(line.is_some_and(|l| l.contains("channel")), "{log}");
}

#[test]
fn a_kernel_without_its_peer_ends_with_its_session_or_at_its_limit() {
    let daemon = daemon_with(&["device.isolation=device"]);
    tenants(&daemon, &["red", "blue"]);
    let mut leaving = Running::start(channels(&daemon, "red", &["alone"]));
    leaving.wait_line("ready");
    let executor = executor_of(&daemon, "red");
    until("the log names kernel and channel", || {
        let log = daemon.log();
        let mut lines = log.lines().filter(|l| l.contains("waits for a channel"));
        lines.any(|l| {
            ["consume", "products", "multiply"]
                .iter()
                .all(|w| l.contains(w))
        })
    })
    .unwrap();
    drop(leaving);
    until("the session is over", || session_count(&daemon) == 0).unwrap();
    // The others of the device were not touched, and a kernel that waits gives it back.
    assert!(!baltra_tests::ended(executor), "the executor has ended");
    let answer = Running::run(channels(&daemon, "blue", &["queues"])).ok();
    assert_queues(&answer, 1);
    daemon
        .text(&["tenant", "add", "green", "--task-ms", "1500"])
        .unwrap();
    let answer = Running::run(channels(&daemon, "green", &["alone"])).ok();
    assert_eq!(answer.number("finish"), Some(NOT_AVAILABLE), "{answer:?}");
}

#[test]
fn kernels_with_channels_join_a_task_that_others_wait_for() {
    // Each tenant has an executor of its own, and the device is requested back all the time.
    let daemon = daemon_with(&[]);
    tenants(&daemon, &["red", "blue"]);
    let modes = ["queues", "queues", "queues"];
    let running = ["red", "blue"].map(|t| Running::start(channels(&daemon, t, &modes)));
    for running in running {
        let answer = running.finish().ok();
        let right = answer
            .out
            .lines()
            .filter(|l| l.ends_with("wrong 0"))
            .count();
        assert_eq!(right, 12, "{answer:?}");
    }
}

#[test]
fn kernels_with_pipes_join_a_task_that_others_wait_for() {
    let daemon = daemon_with(&[]);
    tenants(&daemon, &["red", "blue"]);
    let running = ["red", "blue"].map(|tenant| {
        let mut command = through(&daemon, tenant, compile("pipes"));
        let modes = ["queues", "out_of_order"].repeat(3);
        command.arg("emulated").args(modes);
        Running::start(command)
    });
    for running in running {
        let answer = running.finish().ok();
        let right = answer.out.lines();
        let right = right.filter(|l| *l == "together wrong 0 status 0");
        assert_eq!(right.count(), 6, "{answer:?}");
    }
}

#[test]
fn a_session_with_a_pipe_stays() {
    let daemon = daemon_with(&[]);
    let mut command = through(&daemon, "", compile("pipes"));
    command.args(["emulated", "keeps"]);
    let mut running = Running::start(command);
    running.wait_line("has a pipe");
    let listed = daemon.text(&["session", "ls", "--json"]).unwrap();
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed[0]["can_move"], false, "{listed}");
    let obstacle = "it has a pipe, whose contents stay on the device";
    assert_eq!(listed[0]["obstacle"], obstacle);
}

#[test]
fn an_image_comes_back_and_a_damaged_one_is_refused() {
    let answer = run(&daemon_with(&[]), &["image"]);
    assert_eq!(answer.number("same"), Some(1), "{answer:?}");
    assert_eq!(answer.number("kernels"), Some(5), "{answer:?}");
    let refused = format!("damaged {INVALID_BINARY}");
    let count = answer.out.lines().filter(|line| *line == refused).count();
    assert_eq!(count, 6, "{answer:?}");
    assert_eq!(answer.number("truncated"), Some(INVALID_BINARY));
}

#[test]
fn the_operator_learns_why_an_image_does_not_load() {
    let daemon = daemon_with(&["device.image=exclusive"]);
    let file = std::fs::read(image()).unwrap();
    let mut damaged = file.clone();
    damaged[file.len() / 2] ^= 4;
    let dir = tempfile::tempdir().unwrap();
    let push = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let path = path.to_str().unwrap().to_owned();
        daemon
            .text(&["accelerator", "push", &path, "--name", name])
            .unwrap();
    };
    let load = |name: &str| daemon.text(&["accelerator", "load", name, "--device", "fpga"]);
    push("whole", &file);
    load("whole").unwrap();
    for (name, bytes, reason) in [
        ("damaged", damaged.as_slice(), "damaged (checksum mismatch)"),
        ("truncated", &file[..file.len() - 1], "is truncated"),
        (
            "foreign",
            b"BLRG an image of a region",
            "not an image of an accelerator",
        ),
    ] {
        push(name, bytes);
        let error = load(name).unwrap_err().to_string();
        assert!(error.contains(reason), "{name}: {error}");
        // The image that the device held before is not lost.
        assert!(load("whole").unwrap().contains("held already"), "{name}");
    }
}

#[test]
fn a_failed_compilation_returns_clangs_log() {
    let daemon = daemon_with(&[]);
    let answer = Running::run(through(&daemon, "", compile("build_log"))).ok();
    assert_eq!(answer.number("build"), Some(-11), "{answer:?}");
    for part in ["undeclared_name", ":2:10: error:"] {
        assert!(answer.out.contains(part), "'{part}' is not in {answer:?}");
    }
}

#[test]
fn programs_are_compiled_apart_and_linked_as_on_pocl() {
    let daemon = daemon_with(&[]);
    let there = Running::run(through(&daemon, "", compile("links"))).ok();
    let logs = there.out.split("log of ");
    let log = |name: &str| {
        let mut logs = logs.clone();
        let found = logs.find(|log| log.starts_with(&format!("{name}: ")));
        found
            .unwrap_or_else(|| panic!("no log of {name}: {there:?}"))
            .to_owned()
    };
    assert!(log("broken").contains(":2:12: error: "), "{there:?}");
    let missing = "'twice', which neither the sources nor the library define";
    assert!(
        log("alone").contains(missing) || log("alone").contains("'swapped'"),
        "{there:?}"
    );
    assert!(
        log("doubled").contains("symbol multiply defined"),
        "{there:?}"
    );
    for line in [
        "linker 1",
        "user compile 0 type 1",
        "definer compile 0 type 1",
        "whole link 0 type 4",
        "whole wrong 0",
        "library link 0 type 2",
        "with-library link 0 type 4",
        "with-library wrong 0",
        "reloaded link 0 type 4",
        "reloaded wrong 0",
        "broken compile -15 type 0",
        "alone link -17 type 0",
        "doubled link -17 type 0",
    ] {
        assert!(there.out.lines().any(|l| l == line), "{line}: {there:?}");
    }
    // A program that compiles and runs here also does so there.
    let here = Running::run(native(compile("links")));
    let works = |answer: &Answer, line: &str| answer.out.lines().any(|l| l == line);
    for line in ["whole wrong 0", "with-library wrong 0", "reloaded wrong 0"] {
        assert!(works(&here, line), "{line}: {here:?}");
    }
}

#[test]
fn the_command_line_compiles_and_links_sources_objects_and_libraries() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let write = |name: &str, text: &str| std::fs::write(path(name), text).unwrap();
    write(
        "k.cl",
        "int f(int x);\nkernel void k(global int *o) { o[0] = f(o[1]); }\n",
    );
    write("f.cl", "int f(int x) { return x + 1; }\n");
    let build = |arguments: &[&str]| tool(dir.path(), &[&["build"], arguments].concat());
    build(&["-c", "k.cl"]).unwrap();
    build(&["-c", "f.cl"]).unwrap();
    build(&["--create-library", "f.obj"]).unwrap();
    build(&["k.obj", "f.lib", "-o", "objects.img"]).unwrap();
    build(&["k.cl", "f.cl", "-o", "sources.img"]).unwrap();
    for name in ["objects.img", "sources.img"] {
        let text = tool(dir.path(), &["report", name]).unwrap();
        assert!(text.starts_with("kernel k: "), "{name}: {text}");
    }
    let mut damaged = std::fs::read(path("f.obj")).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 4;
    std::fs::write(path("damaged.obj"), damaged).unwrap();
    for (arguments, reason) in [
        (&["k.obj", "damaged.obj"][..], "damaged (checksum mismatch)"),
        (&["k.obj", "f.obj", "f.cl"], "symbol multiply defined"),
        (&["-c", "k.cl", "f.cl"], "-c compiles one source"),
        (&["k.cl", "-o", "k.cl"], "would replace its source"),
    ] {
        let log = build(arguments).unwrap_err();
        assert!(log.contains(reason), "{arguments:?}: {log}");
    }
}

/// Runs `baltra accelerator` in a folder; returns its output, or its messages if it fails.
fn tool(dir: &Path, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(baltra());
    command.arg("accelerator").args(arguments).current_dir(dir);
    let output = command.output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(text(&output.stderr))
    }
}

#[test]
fn the_same_source_gives_the_same_image() {
    let dir = tempfile::tempdir().unwrap();
    let source = "kernel void next(global int *x) { x[get_global_id(0)] += 1; }\n";
    std::fs::write(dir.path().join("k.cl"), source).unwrap();
    let image = |name| {
        tool(dir.path(), &["build", "k.cl", "-o", name]).unwrap();
        std::fs::read(dir.path().join(name)).unwrap()
    };
    assert!(image("one.img") == image("other.img"));
}

#[test]
fn only_known_parts_are_placed_on_and_objects_are_not_placed() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(
        dir.path().join("k.cl"),
        "kernel void k(global int *o) { o[0] = 1; }",
    )
    .unwrap();
    let error = tool(dir.path(), &["build", "k.cl", "--target", "ice40"]).unwrap_err();
    assert!(error.contains("possible values: ecp5-85f"), "{error}");
    let error = tool(dir.path(), &["build", "-c", "k.cl", "--target", "ecp5-85f"]).unwrap_err();
    assert!(error.contains("cannot be used with"), "{error}");
}

#[test]
#[ignore = "installs Yosys and nextpnr, and places for minutes"]
fn a_kernel_is_placed_and_its_report_has_area_and_clock() {
    let dir = tempfile::tempdir().unwrap();
    let source = "kernel void k(global const int *a, global int *o, int n) {\n \
                  o[get_global_id(0)] = a[get_global_id(0)] * n; }\n";
    std::fs::write(dir.path().join("k.cl"), source).unwrap();
    let text = tool(dir.path(), &["build", "k.cl", "--target", "ecp5-85f"]).unwrap();
    assert!(text.contains("placed on LFE5UM5G-85F"), "{text}");
    let text = tool(dir.path(), &["report", "--json", "k.img"]).unwrap();
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    let placed = &report["kernels"][0]["report"]["placed"];
    assert!(placed["luts"].as_u64() > Some(100), "{placed}");
    assert!(placed["multipliers"].as_u64() > Some(0), "{placed}");
    assert!(placed["mhz"].as_f64() > Some(50.0), "{placed}");
}

/// A source whose synthesis takes minutes.
const SLOW: &str = "kernel void k(global int *o) {\n int s = o[0];\n#pragma unroll\n \
     for (int i = 0; i < 4096; i++)\n#pragma unroll\n  for (int j = 0; j < 4096; j++)\n   \
     s = s * o[i ^ j] + i;\n o[0] = s; }\n";
/// One that clang does not end before its memory is exhausted.
const BOMB: &str = "#define A(x) x+x+x+x+x+x+x+x+x+x\n#define B(x) A(A(A(x)))\n\
     kernel void k(global int *o) { o[0] = B(B(B(o[1]))); }\n";

/// The child of a process whose command line contains a word.
fn child(parent: u32, word: &str) -> Option<u32> {
    let line = |pid: &u32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let has = |pid: &u32| String::from_utf8_lossy(&line(pid)).contains(word);
    baltra_testkit::children(parent).into_iter().find(has)
}

#[test]
fn a_killed_compiler_fails_its_build_alone() {
    let daemon = daemon_with(&[]);
    tenants(&daemon, &["red"]);
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (bomb, slow, small) = (
        write("bomb.cl", BOMB),
        write("slow.cl", SLOW),
        write("small.cl", "kernel void k(global int *o) { o[0] = 1; }"),
    );
    let mut command = through(&daemon, "red", compile("builds"));
    command.args([&bomb, &slow, &small]);
    let mut running = Running::start(command);
    running.wait_line("begin 1");
    let executor = executor_of(&daemon, "red");
    let compiler = || child(executor, "--confined");
    let clang = || compiler().and_then(|compiler| child(compiler, "clang-16"));
    // Once each: a failed build is not repeated.
    let kill = |find: &dyn Fn() -> Option<u32>| {
        let mut found = None;
        until("it runs", || {
            found = find();
            found.is_some()
        })
        .unwrap();
        let pid = found.and_then(|pid| Pid::from_raw(pid as i32));
        kill_process(pid.unwrap(), Signal::KILL).unwrap();
    };
    kill(&clang);
    running.wait_line("begin 2");
    kill(&compiler);
    let answer = running.finish().ok();
    for (line, reason) in [
        ("build 1 code -11", "clang-16 was ended by signal 9"),
        ("build 2 code -11", "the compiler was ended by signal 9"),
        ("build 3 code 0", ""),
    ] {
        let has_line = answer.out.lines().any(|l| l == line);
        assert!(
            has_line && answer.out.contains(reason),
            "{line}: {answer:?}"
        );
    }
}

/// A confined compilation that fails: how it ended, and its log. `limits`: arguments of `prlimit`,
/// below the limits that the compiler sets itself.
fn refused(limits: &[&str], text: &str) -> (ExitStatus, String) {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("hostile.cl");
    std::fs::write(&source, text).unwrap();
    let output = Command::new("prlimit")
        .args(limits)
        .arg(baltra())
        .args(["accelerator", "build", "--confined"])
        .arg(dir.path())
        .arg(&source)
        .arg("-o")
        .arg(dir.path().join("x.img"))
        .output()
        .expect("it starts");
    assert!(!output.status.success());
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status, log)
}

#[test]
fn hostile_source_is_bounded_in_time_and_memory() {
    let (_, log) = refused(&["--as=1073741824"], BOMB);
    assert!(log.contains("clang-16 has exhausted its memory"), "{log}");
    assert!(!log.contains("Stack dump"), "{log}");
    // Evaluating this takes time without end, but hardly any memory.
    let double = |n| format!("#define A{} A{n} + A{n}\n", n + 1);
    let doubles: String = (0..40).map(double).collect();
    let (_, log) = refused(
        &["--cpu=1:10"],
        &format!("#define A0 1\n{doubles}#if A40\n#endif\n"),
    );
    let reason = "clang-16 has exceeded its limit of processor time";
    assert!(log.contains(reason), "{log}");
    // The synthesis itself; the executor's log names the signal.
    let (status, log) = refused(&["--cpu=4:10"], SLOW);
    assert_eq!(status.signal(), Some(Signal::XCPU.as_raw()), "{log}");
    let nested = format!(
        "kernel void k(global int *o) {{ o[0] = {}o[1]; }}\n",
        "- ".repeat(200_000)
    );
    let (_, log) = refused(&["--as=4294967296"], &nested);
    assert!(log.contains("nested too deeply"), "{log}");
    let itself = "#include __FILE__\nkernel void k(global int *o) { o[0] = 1; }\n";
    let (_, log) = refused(&["--as=4294967296"], itself);
    assert!(log.contains("include"), "{log}");
}

#[test]
fn hostile_source_reads_no_file_of_the_host() {
    let secret = tempfile::NamedTempFile::new_in(root().join("target")).unwrap();
    std::fs::write(secret.path(), "secret_of_the_host\n").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("hostile.cl");
    let compile = |text: &str, confined: bool| {
        std::fs::write(&source, text).unwrap();
        let mut command = Command::new(baltra());
        command
            .args(["accelerator", "build"])
            .arg(&source)
            .arg("-o")
            .arg(dir.path().join("x.img"));
        if confined {
            command.arg("--confined").arg(dir.path());
        }
        let output = command.output().expect("it starts");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let include = format!("#include \"{}\"\n", secret.path().display());
    // The file is there: without the confinement its content is in the log.
    assert!(compile(&include, false).contains("secret_of_the_host"));
    let log = compile(&include, true);
    assert!(!log.contains("secret_of_the_host"), "{log}");
    for path in ["/etc/passwd", "/proc/self/environ", "/proc/1/environ"] {
        let log = compile(&format!("#include \"{path}\"\n"), true);
        assert!(log.contains("error"), "{log}");
        assert!(!log.contains("root:") && !log.contains("PATH="), "{log}");
    }
}

/// The cells stay on the device; the program compares each generation with its own.
#[test]
fn a_program_moves_from_a_processor_into_a_circuit_and_back() {
    let options = Options {
        config: "[[device]]\nname = 'cpu'\nselect = '0'\nhost_memory = false\n\
                 [[device]]\nname = 'fpga'\ndriver = 'emulate:'\n"
            .into(),
        own_kernels: true,
        ..Options::default()
    };
    let daemon = Daemon::start_with(baltra(), &options).expect("a daemon starts");
    let mut life = through_with(&daemon, &["--device", "cpu"], app("life"));
    life.args(["--size", "32x24", "--generations", "0"]);
    life.args(["--read-every", "1", "--check"]);
    let mut life = Running::start(life);
    life.wait_line("generation");
    let session = &json(&daemon, &["session", "ls"])[0]["id"];
    for to in ["fpga", "cpu", "fpga"] {
        let words = [
            "session",
            "move",
            &session.to_string(),
            "--to",
            to,
            "--force",
        ];
        let moved = once_built(|| daemon.baltra(&words).expect("the tool runs"));
        assert!(moved.status.success(), "{moved:?}");
        life.wait_line("generation");
        life.wait_line("generation");
        assert_eq!(json(&daemon, &["session", "ls"])[0]["device"], to);
    }
    assert!(!life.has_ended());
}
