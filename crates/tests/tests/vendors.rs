//! Programs on five vendors' drivers, natively and through Baltra: the results are the same.
//! `scripts/setup.sh drivers` installs the drivers; a driver that is not installed is skipped,
//! unless `BALTRA_TEST_DRIVERS` is set.

use baltra_testkit::{until, Daemon, Options, Service};
use baltra_tests::{
    baltra, check_printed_lines, compile, json, native, root, session_count, tenants, through,
    Answer, Running,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A vendor's driver.
struct Vendor {
    name: &'static str,
    library: PathBuf,
}

fn vendors() -> Vec<Vendor> {
    let vendor = |name, library: &str| Vendor {
        name,
        library: library.into(),
    };
    let intel = root().join("target/venv/lib/libintelocl.so");
    let all = [
        vendor("PoCL", "/usr/lib/x86_64-linux-gnu/libpocl.so.2"),
        vendor("Intel", &intel.to_string_lossy()),
        vendor("rusticl", "/usr/lib/x86_64-linux-gnu/libRusticlOpenCL.so.1"),
        vendor("Oclgrind", "/usr/lib/oclgrind/liboclgrind-rt-icd.so"),
    ];
    let required = std::env::var_os("BALTRA_TEST_DRIVERS").is_some();
    let installed = |vendor: &Vendor| {
        let is_there = vendor.library.exists();
        assert!(is_there || !required, "{} is not installed", vendor.name);
        is_there
    };
    all.into_iter().filter(installed).collect()
}

/// A vendor's driver with a daemon that serves its device.
struct Served {
    vendor: Vendor,
    daemon: Daemon,
    home: tempfile::TempDir,
}

impl Served {
    fn start(vendor: Vendor) -> Served {
        Served::start_with(vendor, &[])
    }

    fn start_with(vendor: Vendor, set: &[&str]) -> Served {
        let mut options = Options {
            set: vec![format!("device.driver={}", vendor.library.display())],
            ..Options::default()
        };
        options.set.extend(set.iter().map(|s| s.to_string()));
        let home = tempfile::tempdir().unwrap();
        let icd = format!("{}\n", vendor.library.display());
        std::fs::write(home.path().join("vendor.icd"), icd).unwrap();
        let daemon = Daemon::start_with(baltra(), &options).unwrap();
        Served {
            vendor,
            daemon,
            home,
        }
    }

    fn natively(&self, program: &Path) -> Command {
        let mut command = native(program);
        command
            .env("OCL_ICD_VENDORS", self.home.path())
            .env("RUSTICL_ENABLE", "llvmpipe");
        command
    }

    fn shared(&self, program: &Path) -> Command {
        through(&self.daemon, "", program)
    }
}

fn run(mut command: Command, arguments: &[&str]) -> Answer {
    command.args(arguments);
    Running::run(command)
}

/// The lines of a program of parts (`programs/parts.h`), by part.
fn parts(answer: &Answer) -> BTreeMap<&str, Vec<&str>> {
    let mut parts = BTreeMap::<_, Vec<_>>::new();
    for line in answer.out.lines() {
        if let Some((part, text)) = line.split_once(": ") {
            parts.entry(part).or_default().push(text);
        }
    }
    parts
}

/// Checks that each part of a program gives the native results, except for the intended deviations
/// in `deviates` (vendor, part, line). If the driver crashes in a part, the output before the crash
/// is compared.
fn check_parts(program: &str, skipped: &[&str], deviates: impl Fn(&str, &str, &str) -> bool) {
    let program = compile(program);
    let mut different = Vec::new();
    let compared = vendors().into_iter().filter(|v| !skipped.contains(&v.name));
    for served in compared.map(Served::start) {
        let name = served.vendor.name;
        // The program compiles hundreds of kernels.
        let patience = Duration::from_secs(1800);
        let run = |command| Running::start(command).finish_within(patience).ok();
        let native = run(served.natively(&program));
        let shared = run(served.shared(&program));
        assert!(native.out.ends_with("done") && shared.out.ends_with("done"));
        let (native, shared) = (parts(&native), parts(&shared));
        let before = different.len();
        for (part, lines) in &native {
            let kept = |line: &&&str| !deviates(name, part, line);
            let right: Vec<_> = lines.iter().filter(kept).collect();
            let answers = shared.get(part).into_iter().flatten();
            let mut answers: Vec<_> = answers.filter(kept).collect();
            if lines.last() != Some(&"ended") {
                answers.truncate(right.len());
            }
            if answers != right {
                different.push(format!(
                    "{name}, {part}: natively {right:?}, through Baltra {answers:?}"
                ));
            }
        }
        assert!(native.values().any(|lines| lines.last() == Some(&"ended")));
        if different.len() > before {
            // Whether an executor has ended, and why.
            different.push(served.daemon.log());
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn programs_of_every_origin_answer_as_natively_on_each_vendors_driver() {
    // Drivers disagree on programs that are not executable or have no kernels: whether they have an
    // empty list of kernels or none, and which error a query returns.
    let differs = ["unbuilt source", "broken source", "source without kernels"];
    // Rusticl loses the options of a binary that was built again, and aborts at some queries; on
    // Oclgrind, the program does not end.
    let skipped = ["rusticl", "Oclgrind"];
    check_parts("queries", &skipped, |_, part, line| {
        let listed = line.starts_with("kernels: ") || line.starts_with("names: ");
        let refused = line.ends_with(": -45") || line.ends_with(": -46");
        (listed || refused) && differs.iter().any(|origin| part.ends_with(origin))
    });
}

#[test]
fn launches_beyond_limits_end_as_natively_on_each_vendors_driver() {
    check_parts("shapes", &[], |_, _, _| false);
}

#[test]
fn verdicts_are_the_native_ones_on_each_vendors_driver() {
    let cases = compile("cases");
    for served in vendors().into_iter().map(Served::start) {
        let name = served.vendor.name;
        let files = tempfile::tempdir().unwrap();
        let directory = files.path().to_str().unwrap();
        let native = run(served.natively(&cases), &[directory]).ok();
        let shared = run(served.shared(&cases), &[directory]).ok();
        let lines = |answer: &Answer| answer.out.lines().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(
            lines(&shared),
            lines(&native),
            "{name}: through Baltra first"
        );
        assert!(native.out.ends_with("done"), "{name}: {}", native.out);
    }
}

#[test]
fn what_kernels_print_is_whole_on_each_vendors_driver() {
    let program = compile("prints_lines");
    for served in vendors().into_iter().map(Served::start) {
        // A simulator is slow.
        let lines = if served.vendor.name == "Oclgrind" {
            300
        } else {
            20_000
        };
        let answer = run(served.shared(&program), &[&lines.to_string()]).ok();
        check_printed_lines(&answer, lines);
    }
}

/// Xilinx's runtime, whose device needs no hardware with `XCL_EMULATION_MODE=noop`: its kernels end
/// at once and compute nothing.
fn xilinx() -> Option<Vendor> {
    let library = PathBuf::from("/usr/lib/x86_64-linux-gnu/libxilinxopencl.so.2");
    let required = std::env::var_os("BALTRA_TEST_DRIVERS").is_some();
    assert!(library.exists() || !required, "XRT is not installed");
    let name = "Xilinx";
    library.exists().then_some(Vendor { name, library })
}

#[test]
fn images_of_xilinx_s_runtime_are_loaded_replaced_and_refused() {
    let Some(vendor) = xilinx() else {
        return;
    };
    let served = Served::start_with(vendor, &["device.image=exclusive"]);
    let daemon = &served.daemon;
    tenants(daemon, &["red", "blue"]);
    let program = compile("xclbin");
    let natively = |arguments: &[&str]| {
        let mut command = served.natively(&program);
        command
            .env("XCL_EMULATION_MODE", "noop")
            .env("XILINX_XRT", daemon.xrt_dir());
        run(command, arguments).ok().out
    };
    let of = |tenant: &str, arguments: &[&str]| {
        let answer = run(through(daemon, tenant, &program), arguments);
        answer.ok().out
    };
    // Each image replaces the one before it. Errors are the driver's own.
    for arguments in [
        &["run", "one", "two", "one"][..],
        &["several", "one", "two"],
        &["damaged", "magic"],
        &["damaged", "kernel"],
    ] {
        let native = natively(arguments);
        assert!(native.ends_with("done"), "{native}");
        assert_eq!(of("red", arguments), native, "{arguments:?}");
    }
    // Source is refused when it is built, as OpenCL specifies; XRT refuses it earlier.
    let source = of("red", &["source"]);
    assert!(source.contains("source: build -3\n"), "{source}");
    // Compute units by name are refused: the library describes kernels by their plain names.
    let units = of("red", &["units"]);
    assert!(units.ends_with("done"), "{units}");
    let kernels = units.lines().filter(|line| line.contains(": kernel "));
    let codes: Vec<&str> = kernels
        .filter_map(|line| line.split(' ').next_back())
        .collect();
    assert_eq!(codes, ["-46"; 3], "{units}");
    // Two tenants use one image; another one is refused until both have ended.
    let mut holder = Running::start({
        let mut command = through(daemon, "red", &program);
        command.args(["hold", "one"]);
        command
    });
    holder.wait_line("ready");
    assert_eq!(of("blue", &["run", "one"]), natively(&["run", "one"]));
    let refused = of("blue", &["run", "two"]);
    assert!(refused.contains("two: program -2"), "{refused}");
    drop(holder);
    until("the session is over", || session_count(daemon) == 0).unwrap();
    assert_eq!(of("blue", &["run", "two"]), natively(&["run", "two"]));
}

/// A function that names only its accelerator.
const FUNCTION: &str = "
name: one
inputs: [{name: in, type: i32, shape: [1024], codecs: [raw]}]
outputs: [{name: out, type: i32, shape: [1024], codecs: [raw]}]
implementations:
  - opencl: {accelerator: one, kernel: one, args: [in, out, i32(16)], global: [1], local: [1]}
";

#[test]
fn operators_and_functions_load_images_of_xilinx_s_runtime() {
    let Some(vendor) = xilinx() else {
        return;
    };
    let set = ["device.image=exclusive", "device.turn_ms=50"];
    let served = Served::start_with(vendor, &set);
    let daemon = &served.daemon;
    tenants(daemon, &["red"]);
    let program = compile("xclbin");
    let path = |name: &str| served.home.path().join(name);
    for name in ["one", "two"] {
        let file = path(name).display().to_string();
        run(native(&program), &["write", name, &file]).ok();
        daemon
            .text(&["accelerator", "push", &file, "--name", name])
            .unwrap();
    }
    let mut damaged = std::fs::read(path("one")).unwrap();
    damaged[0] = b'X';
    std::fs::write(path("damaged"), damaged).unwrap();
    let file = path("damaged").display().to_string();
    daemon
        .text(&["accelerator", "push", &file, "--name", "damaged"])
        .unwrap();

    // The operator's loads: the driver's answer decides.
    let load = |name: &str| daemon.text(&["accelerator", "load", name, "--device", "device0"]);
    let device = || json(daemon, &["devices", "--local"])[0].clone();
    let refused = load("damaged").unwrap_err().to_string();
    assert!(
        refused.contains("the driver refused the image"),
        "{refused}"
    );
    assert_eq!(device()["reconfigurations"], 0, "{}", device());
    load("two").unwrap();
    assert_eq!(device()["reconfigurations"], 1);
    let two = device()["image"].clone();
    let refused = load("damaged").unwrap_err().to_string();
    assert!(
        refused.contains("the driver refused the image"),
        "{refused}"
    );
    assert_eq!(device()["image"], two);

    // A function loads its accelerator on its first call, and keeps it for the next ones.
    let set = vec![format!(
        "gateway.engine.endpoints=['{}']",
        daemon.endpoint()
    )];
    let options = Options {
        set,
        ..Options::default()
    };
    let gateway = Service::start(baltra(), "gateway", &options).unwrap();
    let folder = path("function");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("function.yaml"), FUNCTION).unwrap();
    gateway
        .text(&["function", "deploy", &folder.display().to_string()])
        .unwrap();
    let call = || {
        let mut command = Command::new(baltra());
        let input = path("input").display().to_string();
        std::fs::write(&input, [7; 4096]).unwrap();
        command.env("BALTRA_GATEWAY", gateway.url());
        command.args(["function", "invoke", "one", "--data", &format!("@{input}")]);
        command.args(["--type", "application/octet-stream"]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}\n{}", daemon.log());
        output.stdout.len()
    };
    for _ in 0..3 {
        // The device without hardware computes nothing.
        assert_eq!(call(), 4096);
    }
    assert_eq!(device()["reconfigurations"], 2, "{}", device());
    // The function gives way to the operator at the end of its turn, and loads its image again.
    load("two").unwrap();
    assert_eq!(device()["image"], two);
    assert_eq!(call(), 4096);
    assert_eq!(device()["reconfigurations"], 4, "{}", device());
}
