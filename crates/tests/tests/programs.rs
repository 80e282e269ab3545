//! Unmodified programs: each uses the shared device in one of the documented ways, and has the
//! native result.

use baltra_testkit::{until, Daemon, Options};
use baltra_tests::{
    app, baltra, built, by_variables, check_printed_lines, compile, compile_static, daemon, json,
    native, root, session_count, tenants, through, Answer, Mover, Running,
};
use std::path::Path;
use std::process::Command;

/// The text after `"key":` in a line of JSON.
fn field(answer: &Answer, key: &str) -> String {
    let json: serde_json::Value = serde_json::from_str(answer.out.trim()).expect("JSON");
    let value = json[key].to_string();
    assert_ne!(value, "null", "{key}: {}", answer.out);
    value
}

fn with(mut command: Command, arguments: &[&str]) -> Answer {
    command.args(arguments);
    Running::run(command).ok()
}

#[test]
fn clinfo_shows_the_device_through_the_loader() {
    let daemon = daemon();
    let list = with(by_variables(&daemon.endpoint(), "clinfo"), &["-l"]);
    assert!(list.out.contains("Platform #0: Baltra"), "{}", list.out);
    let device = with(native("clinfo"), &["-l"]);
    let device = device.out.split("Device #0: ").nth(1).expect("PoCL");
    assert!(list.out.contains(device.trim()), "{} {device}", list.out);
    // The long output queries everything.
    let all = with(by_variables(&daemon.endpoint(), "clinfo"), &[]);
    for line in ["Max compute units", "Device Extensions", "Device Type"] {
        assert!(all.out.contains(line), "{line}: {}", all.out);
    }
    let errors = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.contains("error -"));
        lines.map(str::to_owned).collect()
    };
    let native = with(native("clinfo"), &[]);
    assert_eq!(errors(&all.out), errors(&native.out));
}

#[test]
fn a_link_on_the_library_path_takes_the_loaders_place() {
    let daemon = daemon();
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("libOpenCL.so.1");
    std::os::unix::fs::symlink(built("libbaltra_opencl.so"), link).unwrap();
    let mut command = Command::new(compile("work"));
    command
        .arg("20")
        .env("LD_LIBRARY_PATH", directory.path())
        .env("BALTRA_ENDPOINT", daemon.endpoint())
        // The loader itself could find no driver.
        .env("OCL_ICD_VENDORS", directory.path());
    let answer = Running::run(command).ok();
    assert!(answer.out.ends_with("done"), "{}", answer.out);
}

#[test]
fn the_distributions_loader_stays_in_place_and_says_nothing() {
    let daemon = daemon();
    let mut command = through(&daemon, "", compile("work"));
    // The loader of the dynamic linker, not one in a path of the tests.
    command.env_remove("LD_LIBRARY_PATH").arg("20");
    let answer = Running::run(command).ok();
    assert!(answer.out.ends_with("done"), "{}", answer.out);
    assert_eq!(answer.err, "");
}

#[test]
fn a_loader_without_the_variable_is_replaced() {
    let daemon = daemon();
    let directory = tempfile::tempdir().unwrap();
    let loader = with(Command::new("cc"), &["-print-file-name=libOpenCL.so.1"]);
    let mut bytes = std::fs::read(loader.out.trim()).expect("a loader is installed");
    let name = b"OCL_ICD_VENDORS";
    let found = |bytes: &[u8]| bytes.windows(name.len()).position(|bytes| bytes == name);
    assert!(found(&bytes).is_some(), "it reads the variable");
    while let Some(at) = found(&bytes) {
        bytes[at] = b'X';
    }
    std::fs::write(directory.path().join("libOpenCL.so.1"), bytes).unwrap();
    let mut command = through(&daemon, "", "clinfo");
    command.env("LD_LIBRARY_PATH", directory.path()).arg("-l");
    let list = Running::run(command).ok();
    assert!(list.out.contains("Platform #0: Baltra"), "{}", list.out);
}

#[test]
fn a_statically_linked_program_runs() {
    let daemon = daemon();
    let mut command = Command::new(compile_static("work"));
    command
        .arg("20")
        .env("BALTRA_ENDPOINT", daemon.endpoint())
        .env("OCL_ICD_VENDORS", "/nowhere");
    let answer = Running::run(command).ok();
    assert!(answer.out.ends_with("done"), "{}", answer.out);
}

#[test]
fn pyopencl_is_a_client() {
    let python = root().join("target/venv/bin/python");
    assert!(python.exists(), "run scripts/setup.sh test");
    let daemon = daemon();
    let client = root().join("crates/tests/programs/client.py");
    let mut command = by_variables(&daemon.endpoint(), python);
    command
        .arg(client)
        .env("PYOPENCL_NO_CACHE", "1")
        .env("PYTHONUNBUFFERED", "1");
    let answer = Running::run(command).ok();
    assert!(answer.out.contains("platform Baltra"), "{}", answer.out);
    let printed = answer.out.contains("hello from the kernel 42");
    assert!(printed && answer.out.ends_with("ok"), "{}", answer.out);
}

#[test]
fn sobel_makes_the_native_picture() {
    let daemon = daemon();
    let photo = root().join("target/demo/photo.ppm");
    let directory = tempfile::tempdir().unwrap();
    let picture = |mut command: Command, name: &str| {
        let out = directory.path().join(name);
        if photo.exists() {
            command.arg("--input").arg(&photo);
        }
        command.arg("--output").arg(&out).args(["--repeat", "3"]);
        Running::run(command).ok();
        std::fs::read(out).unwrap()
    };
    let here = picture(native(app("sobel")), "native.png");
    let there = picture(through(&daemon, "", app("sobel")), "baltra.png");
    assert!(here == there, "the pictures differ");
}

#[test]
fn matmul_gives_the_native_product() {
    let daemon = daemon();
    for n in ["64", "100", "257"] {
        let arguments = ["--n", n, "--check", "--json"];
        let here = with(native(app("matmul")), &arguments);
        let there = with(through(&daemon, "", app("matmul")), &arguments);
        assert_eq!(field(&here, "checksum"), field(&there, "checksum"), "{n}");
    }
}

#[test]
fn cnn_gives_the_native_scores() {
    let daemon = daemon();
    let here = with(native(app("cnn")), &["--json"]);
    let there = with(through(&daemon, "", app("cnn")), &["--json", "--check"]);
    assert_eq!(field(&here, "checksum"), field(&there, "checksum"));
}

#[test]
fn bandwidth_reads_what_it_wrote() {
    let daemon = daemon();
    let sizes = ["--sizes", "1K,100000,1M,7M,64M", "--repeat", "3", "--check"];
    with(through(&daemon, "", app("bandwidth")), &sizes);
    let mut queued = sizes.to_vec();
    queued.push("--non-blocking");
    with(through(&daemon, "", app("bandwidth")), &queued);
}

/// Two devices whose contents are copied when sessions move between them.
fn two_devices() -> Daemon {
    let devices = [("a", 0), ("b", 1)].map(|(name, at)| {
        format!("[[device]]\nname = '{name}'\nselect = '{at}'\nhost_memory = false\n")
    });
    let options = Options {
        config: devices.concat(),
        ..Options::default()
    };
    Daemon::start_with(baltra(), &options).unwrap()
}

#[test]
fn applications_have_the_native_results_while_their_sessions_move() {
    const MOVES: usize = 5;
    let daemon = two_devices();
    let mover = Mover::start(&daemon);
    let directory = tempfile::tempdir().unwrap();
    let picture = directory.path().join("sobel.png");
    let sobel = ["--output", picture.to_str().unwrap(), "--repeat", "20"];
    let applications: [(&str, &[&str]); 4] = [
        ("matmul", &["--n", "400", "--check", "--json"]),
        ("cnn", &["--json", "--repeat", "3"]),
        ("sobel", &sobel),
        (
            "bandwidth",
            &["--sizes", "1K,100000,7M", "--repeat", "20", "--check"],
        ),
    ];
    for (name, arguments) in applications {
        let result = |command| {
            let answer = with(command, arguments);
            match name {
                "sobel" => std::fs::read(&picture).unwrap(),
                "bandwidth" => Vec::new(),
                _ => field(&answer, "checksum").into_bytes(),
            }
        };
        let native = result(native(app(name)));
        let before = mover.moves();
        while mover.moves() < before + MOVES {
            let there = result(through(&daemon, "", app(name)));
            assert!(native == there, "another result of {name}");
        }
    }
}

#[test]
fn programs_that_make_and_map_buffers_at_random_keep_them_while_their_sessions_move() {
    const MOVES: usize = 30;
    let daemon = two_devices();
    let mut beside = through(&daemon, "", compile("moving"));
    beside.args(["0", "65536"]);
    let churns = ["1", "2"].map(|seed| {
        let mut churn = through(&daemon, "", compile("churn"));
        churn.arg(seed);
        churn
    });
    let mut running: Vec<_> = churns
        .into_iter()
        .chain([beside])
        .map(Running::start)
        .collect();
    for program in &mut running {
        program.wait_line("round");
    }
    let mover = Mover::start(&daemon);
    while mover.moves() < MOVES {
        for program in &mut running {
            program.wait_progress();
        }
    }
    drop(running);
    until("no session is left", || session_count(&daemon) == 0).unwrap();
    let usage = json(&daemon, &["tenant", "usage"]);
    for line in usage.as_array().unwrap() {
        assert_eq!(line["memory_used_bytes"], 0, "{usage}");
    }
}

#[test]
fn what_kernels_print_is_there_when_the_wait_for_them_is_over() {
    let daemon = daemon();
    let prints = compile("prints");
    let native = with(native(&prints), &[]).out;
    for _ in 0..10 {
        assert_eq!(with(through(&daemon, "", &prints), &[]).out, native);
    }
}

#[test]
fn what_kernels_print_at_length_is_whole() {
    let daemon = daemon();
    let program = compile("prints_lines");
    // Fewer bytes than a notice, more than half of the notice ring, and more than the ring.
    for lines in [200, 5_000, 20_000] {
        let answer = with(through(&daemon, "", &program), &[&lines.to_string()]);
        check_printed_lines(&answer, lines);
    }
}

#[test]
fn standalone_brings_its_own_daemon_and_takes_it_away() {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(baltra());
    command
        .env("TMPDIR", home.path())
        .env("BALTRA_RUNTIME_DIR", home.path().join("run"))
        .args(["run", "--standalone", "--"])
        .arg(compile("work"))
        .arg("20");
    let answer = Running::run(command).ok();
    assert!(answer.out.ends_with("done"), "{}", answer.out);
    let named = home.path().display().to_string();
    let left = baltra_tests::processes_with(&named);
    assert!(left.is_empty(), "still there: {left:?}");
    let files: Vec<_> = std::fs::read_dir(home.path())
        .unwrap()
        .filter_map(|f| Some(f.ok()?.file_name()))
        .filter(|name| name != "run")
        .collect();
    assert!(files.is_empty(), "{files:?}");
}

#[test]
fn run_returns_the_programs_exit_status() {
    let daemon = daemon();
    let status = |program: &str, arguments: &[&str]| {
        let mut command = through(&daemon, "", Path::new(program));
        command.args(arguments);
        Running::run(command).status.code()
    };
    assert_eq!(status("true", &[]), Some(0));
    assert_eq!(status("sh", &["-c", "exit 41"]), Some(41));
    assert_eq!(status("/nowhere/to/be/found", &[]), Some(127));
    let mut standalone = Command::new(baltra());
    let script = ["sh", "-c", "kill -9 $$"];
    standalone.args(["run", "--standalone", "--"]).args(script);
    assert_eq!(Running::run(standalone).status.code(), Some(128 + 9));
}

#[test]
fn four_tenants_at_once_get_their_own_results() {
    let daemon = daemon();
    let names = ["ada", "bea", "cleo", "dora"];
    tenants(&daemon, &names);
    let work = compile("work");
    let mut running = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let mut command = through(&daemon, name, &work);
        command.arg("300").arg((4096 << (2 * at)).to_string());
        running.push(Running::start(command));
        let mut command = through(&daemon, name, app("matmul"));
        command.args(["--n", "100", "--repeat", "5", "--check"]);
        running.push(Running::start(command));
    }
    for program in running {
        program.finish().ok();
    }
    let usage = baltra_tests::json(&daemon, &["tenant", "usage"]);
    for name in names {
        assert!(usage.to_string().contains(name), "{usage}");
    }
}
