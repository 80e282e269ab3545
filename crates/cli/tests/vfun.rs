//! The VM door between processes of one host: the daemon, its workers, and applications that
//! receive a VM's region through its socket. `crates/vfun/tests/vm_test.py` uses real guests.

mod common;
#[path = "common/program.rs"]
mod program;

use baltra_ivshmem::region::Region;
use baltra_ring::Memory;
use baltra_testkit::{Daemon as Manager, Options, Service};
use baltra_vguest::{
    Client, Codec, Device, Error, Implementation, Preference, Reason, State, Values,
};
use baltra_wire::Reply;
use common::{instances, node, registry};
use program::{source, Tenant};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const BALTRA: &str = env!("CARGO_BIN_EXE_baltra");
const PATIENCE: Duration = Duration::from_secs(60);

/// `baltra vfun` with directories of its own.
struct Daemon {
    home: tempfile::TempDir,
    child: Child,
}

fn functions() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let made = Command::new("make")
        .args(["-s", "-C"])
        .arg(root.join("apps/functions"))
        .status()
        .unwrap();
    assert!(made.success());
    root.join("target/functions").canonicalize().unwrap()
}

/// Copies of example functions whose calls may take a day. The driver compiles a kernel for its
/// work-group size when it is first launched, which takes any time on a busy machine.
fn functions_with_a_long_time_limit(names: &[&str]) -> tempfile::TempDir {
    let copies = tempfile::tempdir().unwrap();
    for name in names {
        let (from, to) = (functions().join(name), copies.path().join(name));
        std::fs::create_dir(&to).unwrap();
        for file in from.read_dir().unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
        let manifest = to.join("function.yaml");
        let text = std::fs::read_to_string(&manifest).unwrap();
        let text = if text.contains("\nlimits:\n") {
            text.replace("\nlimits:\n", "\nlimits:\n  timeout_ms: 86400000\n")
        } else {
            format!("{text}\nlimits: {{timeout_ms: 86400000}}\n")
        };
        std::fs::write(&manifest, text).unwrap();
    }
    copies
}

impl Daemon {
    fn start(more: &[&str]) -> Daemon {
        Daemon::start_with(&functions(), more)
    }

    fn start_with(functions: &Path, more: &[&str]) -> Daemon {
        let home = tempfile::tempdir().unwrap();
        let child = Daemon::spawn_with(home.path(), functions, more);
        let daemon = Daemon { home, child };
        daemon.wait();
        daemon
    }

    fn spawn(home: &Path, more: &[&str]) -> Child {
        Daemon::spawn_with(home, &functions(), more)
    }

    fn spawn_with(home: &Path, functions: &Path, more: &[&str]) -> Child {
        Command::new(BALTRA)
            .arg("--runtime-dir")
            .arg(home.join("run"))
            .arg("vfun")
            .arg("--state-dir")
            .arg(home.join("state"))
            .arg("--functions")
            .arg(functions)
            .args(more)
            .stdin(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn wait(&self) {
        until("the daemon answers", || self.request(&["vm", "ls"]).is_ok());
    }

    fn request(&self, words: &[&str]) -> Result<String, String> {
        let out = Command::new(BALTRA)
            .arg("--runtime-dir")
            .arg(self.home.path().join("run"))
            .args(words)
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        if out.status.success() {
            Ok(text(out.stdout))
        } else {
            Err(text(out.stderr))
        }
    }

    fn attach(&self, name: &str, more: &[&str]) -> Device {
        let words = [&["vm", "attach", name], more].concat();
        self.request(&words).unwrap();
        let socket = self.home.path().join(format!("run/vm/{name}.sock"));
        Device::Socket(socket)
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn active(client: &mut Client, name: &str) -> baltra_vguest::Function {
    let (function, _) = client.request(name, Preference::Any).unwrap();
    client.activate(function).unwrap();
    function
}

fn reason(error: Error) -> Reason {
    match error {
        Error::Refused { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}

/// Calls a function without a time limit; returns the raw result.
fn patient_call(
    client: &mut Client,
    function: baltra_vguest::Function,
    values: &Values,
) -> Vec<u8> {
    let mut result = Vec::new();
    client.set(function, values).unwrap();
    client.get(function, None, &mut result).unwrap();
    result
}

/// Calls a function; returns the raw result.
fn call(client: &mut Client, function: baltra_vguest::Function, arguments: &str) -> Vec<u8> {
    let mut answer = Vec::new();
    client.set(function, &Values::of(arguments)).unwrap();
    client.get(function, Some(PATIENCE), &mut answer).unwrap();
    answer
}

#[test]
fn the_four_phases() {
    let daemon = Daemon::start(&[]);
    let device = daemon.attach("web", &["--functions", "fibonacci,uppercase"]);
    let mut client = Client::open(&device).unwrap();
    assert_eq!(client.list().unwrap(), ["fibonacci", "uppercase"]);
    let (function, offer) = client.request("fibonacci", Preference::Any).unwrap();
    assert_eq!(offer.implementation, Implementation::Software);
    assert_eq!(offer.arguments, ["n"]);
    let early = client.set(function, &Values::of("n=93"));
    assert!(early.is_ok(), "the host says no, not the library");
    let refused = client.get(function, Some(PATIENCE), &mut Vec::new());
    assert_eq!(reason(refused.unwrap_err()), Reason::NotActive);
    client.activate(function).unwrap();
    assert_eq!(client.state(function), State::Wait);
    let answer = call(&mut client, function, "n=93,7");
    let numbers: Vec<u64> = answer
        .chunks(8)
        .map(|c| u64::from_le_bytes(c.try_into().unwrap()))
        .collect();
    assert_eq!(numbers, [12_200_160_415_121_876_738, 13]);
    assert_eq!(client.state(function), State::Done);
    client.reset(function).unwrap();
    assert_eq!(client.state(function), State::Wait);
    for wrong in ["", "n=x", "m=3", "n=1&n=2&n=3&x=%"] {
        client.set(function, &Values::of(wrong)).unwrap();
        let refused = client.get(function, Some(PATIENCE), &mut Vec::new());
        assert_eq!(
            reason(refused.unwrap_err()),
            Reason::BadArguments,
            "{wrong}"
        );
    }
    client.release(function).unwrap();
    let gone = client.activate(function).unwrap_err();
    assert_eq!(reason(gone), Reason::NotActive);
    let other = client.request("factorial", Preference::Any).unwrap_err();
    assert_eq!(reason(other), Reason::NotAllowed);
    let hardware = client
        .request("fibonacci", Preference::Hardware)
        .unwrap_err();
    assert_eq!(reason(hardware), Reason::NoHardware);
}

#[test]
fn bodies_larger_than_anything_between() {
    let daemon = Daemon::start(&[]);
    let device = daemon.attach("web", &["--functions", "uppercase", "--parts", "4"]);
    let mut client = Client::open(&device).unwrap();
    let function = active(&mut client, "uppercase");
    // Sizes for the ring, for the arena, and for answers that exceed the arena and are fetched in
    // pieces.
    for length in [1, 4096, 4097, 100_000, 2_500_000, 3_900_000] {
        let body: Vec<u8> = (0..length).map(|i| b'a' + (i % 26) as u8).collect();
        let values = Values {
            body: &body,
            ..Values::of("")
        };
        let mut answer = Vec::new();
        client.set(function, &values).unwrap();
        let codec = client.get(function, Some(PATIENCE), &mut answer).unwrap();
        assert_eq!(codec, Codec::Raw);
        assert!(answer == body.to_ascii_uppercase(), "{length} bytes");
    }
    let body = vec![0; 5 << 20];
    let values = Values {
        body: &body,
        ..Values::of("")
    };
    let refused = client.set(function, &values).unwrap_err();
    assert!(matches!(refused, Error::Misuse(_)), "{refused:?}");
}

#[test]
fn applications_have_parts_of_their_own() {
    let daemon = Daemon::start(&[]);
    let device = daemon.attach("web", &["--functions", "fibonacci", "--parts", "2"]);
    let mut one = Client::open(&device).unwrap();
    let two = Client::open(&device).unwrap();
    assert_ne!(one.part(), two.part());
    assert!(matches!(Client::open(&device), Err(Error::Full)));
    let function = active(&mut one, "fibonacci");
    drop(two);
    let mut three = Client::open(&device).unwrap();
    // A handle belongs to its connection: another connection's handle is invalid.
    assert_eq!(
        reason(three.activate(function).unwrap_err()),
        Reason::NotActive
    );
    assert_eq!(call(&mut one, function, "n=10"), 55u64.to_le_bytes());
}

#[test]
fn no_more_than_the_quotas() {
    let daemon = Daemon::start(&[]);
    let functions = "repeated-fibonacci,fibonacci,uppercase";
    let quotas = [
        "--handles",
        "2",
        "--calls",
        "1",
        "--call-ms",
        "1500",
        "--call-memory",
        "100K",
    ];
    let device = daemon.attach("web", &[&["--functions", functions], &quotas[..]].concat());
    let mut one = Client::open(&device).unwrap();
    let slow = active(&mut one, "repeated-fibonacci");
    active(&mut one, "fibonacci");
    let third = one.request("uppercase", Preference::Any).unwrap_err();
    assert_eq!(reason(third), Reason::Quota);

    let mut two = Client::open(&device).unwrap();
    let upper = active(&mut two, "uppercase");
    let body = vec![b'x'; 200_000];
    let values = Values {
        body: &body,
        ..Values::of("")
    };
    two.set(upper, &values).unwrap();
    let large = two.get(upper, Some(PATIENCE), &mut Vec::new()).unwrap_err();
    assert_eq!(reason(large), Reason::Quota);

    let forever = Values::of("n=93&repetitions=1000000000000");
    one.set(slow, &forever).unwrap();
    until("the call began", || one.state(slow) == State::Busy);
    std::thread::sleep(Duration::from_millis(50));
    two.set(upper, &Values::of("")).unwrap();
    let second = two.get(upper, Some(PATIENCE), &mut Vec::new()).unwrap_err();
    assert_eq!(reason(second), Reason::Quota);
    let ended = one.get(slow, Some(PATIENCE), &mut Vec::new()).unwrap_err();
    assert_eq!(reason(ended), Reason::TimedOut);
    // The other application is still served, but the abandoned call counts toward the limit of
    // running calls.
    assert_eq!(two.list().unwrap().len(), 3);
    two.set(upper, &values).unwrap();
    let third = two.get(upper, Some(PATIENCE), &mut Vec::new()).unwrap_err();
    assert_eq!(reason(third), Reason::Quota);
    // The next application in this part is served, too.
    drop(one);
    let mut one = Client::open(&device).unwrap();
    assert_eq!((one.part(), one.list().unwrap().len()), (0, 3));
    // The end of the VM ends the call.
    drop((one, two));
    let mut again = Client::open(&device).unwrap();
    let function = active(&mut again, "fibonacci");
    assert_eq!(call(&mut again, function, "n=10"), 55u64.to_le_bytes());
}

#[test]
fn a_daemon_that_comes_back_finds_its_vms() {
    let mut daemon = Daemon::start(&[]);
    let device = daemon.attach("web", &["--functions", "fibonacci"]);
    let mut client = Client::open(&device).unwrap();
    let function = active(&mut client, "fibonacci");
    let work_dirs = std::fs::read_dir(daemon.home.path().join("state/vm-workers")).unwrap();
    let work_dirs: Vec<_> = work_dirs.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(work_dirs.len(), 1, "{work_dirs:?}");
    daemon.kill();
    daemon.child = Daemon::spawn(daemon.home.path(), &[]);
    daemon.wait();
    assert!(!work_dirs[0].exists(), "{work_dirs:?}");
    let listing = daemon.request(&["vm", "ls", "--json"]).unwrap();
    let own = format!("{}", std::process::id());
    assert!(
        listing.contains(&own),
        "the owner of the region is missing: {listing}"
    );
    until("the client detects it", || {
        let lost = client.set(function, &Values::of("n=10")).and_then(|()| {
            client
                .get(function, Some(Duration::from_millis(100)), &mut Vec::new())
                .map(drop)
        });
        matches!(lost, Err(Error::Lost))
    });
    drop(client);
    // Like a guest that reconnects to the new daemon, with another region.
    let mut client = Client::open(&device).unwrap();
    let function = active(&mut client, "fibonacci");
    assert_eq!(call(&mut client, function, "n=10"), 55u64.to_le_bytes());
}

#[test]
fn what_is_given_back_is_forgotten() {
    let daemon = Daemon::start(&[]);
    let device = daemon.attach("web", &["--functions", "fibonacci"]);
    let client = Client::open(&device).unwrap();
    let applications = |daemon: &Daemon, count: u32| {
        let listing = daemon.request(&["vm", "ls", "--json"]).unwrap();
        listing.contains(&format!("\"applications\": {count}"))
    };
    until("it is counted", || applications(&daemon, 1));
    drop(client);
    until("it is forgotten", || {
        let listing = daemon.request(&["vm", "ls", "--json"]).unwrap();
        listing.contains("\"worker\": null") && listing.contains("\"peers\": []")
    });
    assert!(applications(&daemon, 0));
    daemon.request(&["vm", "detach", "web"]).unwrap();
    assert!(Client::open(&device).is_err());
    let unknown = daemon.request(&["vm", "detach", "web"]).unwrap_err();
    assert!(unknown.contains("VM 'web' is not attached"), "{unknown}");
    let never = daemon.request(&["vm", "attach", "web", "--functions", "nonsense"]);
    assert!(never.unwrap_err().contains("nonsense"));
}

/// A region of `parts` parts that this process maps, for hostile accesses. Other tests have regions
/// in this process, too.
fn raw_region(parts: u32) -> Region {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
    let region = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.ok()?.path();
        let target = std::fs::read_link(&path).ok()?;
        if !target.to_string_lossy().contains("baltra-vfun") {
            return None;
        }
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).open(path).ok()?;
        let bytes = file.metadata().ok()?.len();
        let memory = Memory::map(&file.into(), bytes).ok()?;
        Region::read(&memory)
            .ok()
            .filter(|r| r.layout.parts == parts)
    };
    descriptors.filter_map(region).next().expect("it has one")
}

#[test]
fn a_protocol_violation_ends_only_its_application() {
    let mut daemon = Daemon::start(&[]);
    let device = daemon.attach("web", &["--functions", "fibonacci", "--parts", "3"]);
    let mut hostile = Client::open(&device).unwrap();
    let mut other = Client::open(&device).unwrap();
    let function = active(&mut other, "fibonacci");
    let region = raw_region(3);
    // Writes an invalid tail of its ring.
    let part = region.part(hostile.part());
    part.requests.copy_in(0, &3u64.to_le_bytes());
    until("the host sees it", || {
        part.trouble().load(Ordering::Acquire) == Reason::Protocol as u32
    });
    until("the client is notified", || match hostile.list() {
        Err(Error::Refused { reason, .. }) => reason == Reason::Protocol,
        _ => false,
    });
    // A broken claim stays broken; a new one works.
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(reason(hostile.list().unwrap_err()), Reason::Protocol);
    assert_eq!(call(&mut other, function, "n=10"), 55u64.to_le_bytes());
    // The next daemon also serves the remaining application, and rejects the broken one.
    daemon.kill();
    daemon.child = Daemon::spawn(daemon.home.path(), &[]);
    daemon.wait();
    until("one is served", || {
        let listing = daemon.request(&["vm", "ls", "--json"]).unwrap();
        listing.contains("\"applications\": 1")
    });
    assert_eq!(part.served().load(Ordering::Acquire), 0);
    drop(hostile);
    let mut again = Client::open(&device).unwrap();
    assert_eq!(again.list().unwrap(), ["fibonacci"]);
}

#[test]
fn each_call_that_takes_too_long_is_reported_over_its_stream() {
    let daemon = Daemon::start(&[]);
    let words = ["vm", "attach", "web", "--functions", "repeated-factorial"];
    let more = ["--call-ms", "100", "--tcp", "127.0.0.1:0", "--json"];
    let attached = daemon.request(&[&words[..], &more].concat()).unwrap();
    let attached: serde_json::Value = serde_json::from_str(&attached).unwrap();
    let address = attached["definition"]["tcp"].as_str().unwrap();
    let device = Device::Tcp(address.parse().unwrap());
    for n in 0..30 {
        // The worker of the previous call may still be exiting.
        let mut function = None;
        until("the function is active", || {
            function = Client::open(&device).ok().and_then(|mut client| {
                let preference = Preference::Any;
                let (function, _) = client.request("repeated-factorial", preference).ok()?;
                client.activate(function).ok()?;
                Some((client, function))
            });
            function.is_some()
        });
        let (mut client, function) = function.unwrap();
        let values = Values::of("n=51&repetitions=100000000000");
        let mut result = Vec::new();
        let ended = client
            .set(function, &values)
            .and_then(|()| client.get(function, Some(PATIENCE), &mut result).map(drop));
        assert_eq!(reason(ended.unwrap_err()), Reason::TimedOut, "call {n}");
    }
}

/// Accesses that native code must not have, of any function; the result is a bit mask of those that
/// succeeded.
const WAYS_OUT: &str = r#"
    #include <baltra_function.h>
    #include <fcntl.h>
    #include <stdio.h>
    #include <sys/socket.h>
    #include <unistd.h>
    #include <stdlib.h>
    baltra_function ways_out;
    int32_t ways_out(const baltra_argument *a, uint32_t n, char *e, uint64_t max) {
        uint32_t ways = 0;
        if (socket(AF_UNIX, SOCK_STREAM, 0) >= 0) ways |= 1;
        if (socket(AF_INET, SOCK_STREAM, 0) >= 0) ways |= 2;
        pid_t child = fork();
        if (child == 0) _exit(0);
        if (child > 0) ways |= 4;
        if (open("/tmp/baltra-way-out", O_CREAT | O_WRONLY, 0600) >= 0) ways |= 8;
        char *arguments[] = {"true", NULL};
        execv("/bin/true", arguments);
        *(uint32_t *)a[0].data = ways | 256;
        return 0;
    }
"#;

#[test]
fn a_library_has_no_way_out() {
    let mut daemon = Daemon::start(&[]);
    daemon.kill();
    let own = tempfile::tempdir().unwrap();
    let dir = own.path().join("ways-out");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("ways.c"), WAYS_OUT).unwrap();
    let manifest = "name: ways-out
outputs: [{name: ways, type: u32, codecs: [raw]}]
implementations: [{native: {library: ways.so, symbol: ways_out}}]
";
    std::fs::write(dir.join("function.yaml"), manifest).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../native/include");
    let cc = Command::new("cc")
        .args(["-shared", "-fPIC", "-I"])
        .arg(include)
        .arg("-o")
        .args([dir.join("ways.so"), dir.join("ways.c")])
        .status()
        .unwrap();
    assert!(cc.success());
    daemon.child = Daemon::spawn_with(daemon.home.path(), own.path(), &[]);
    daemon.wait();
    let device = daemon.attach("web", &["--functions", "ways-out"]);
    let mut client = Client::open(&device).unwrap();
    let function = active(&mut client, "ways-out");
    let ways = call(&mut client, function, "");
    let ways = u32::from_le_bytes(ways[..].try_into().unwrap());
    // File access is restricted with landlock, which some kernels lack.
    let landlock = std::fs::read_to_string("/sys/kernel/security/lsm")
        .is_ok_and(|modules| modules.contains("landlock"));
    let expected = if landlock { 256 } else { ways & 8 | 256 };
    assert_eq!(ways, expected);
}

#[test]
fn functions_on_a_device() {
    let manager = Manager::start(BALTRA).unwrap();
    let endpoint = format!("unix:{}", manager.socket().display());
    let functions = functions_with_a_long_time_limit(&["sobel", "matmul", "factorial"]);
    let daemon = Daemon::start_with(functions.path(), &["--endpoint", &endpoint]);
    let all = [
        "--functions",
        "sobel,matmul,factorial",
        "--call-ms",
        "86400000",
    ];
    let device = daemon.attach("web", &all);
    let mut client = Client::open(&device).unwrap();

    // The VM gets hardware if a device is free, and software on request.
    let (function, offer) = client.request("factorial", Preference::Any).unwrap();
    assert_eq!(offer.implementation, Implementation::Hardware);
    client.activate(function).unwrap();
    let arguments = Values::of("n=20,3");
    let hardware = patient_call(&mut client, function, &arguments);
    let (function, offer) = client.request("factorial", Preference::Software).unwrap();
    assert_eq!(offer.implementation, Implementation::Software);
    client.activate(function).unwrap();
    assert_eq!(patient_call(&mut client, function, &arguments), hardware);
    let none = client.request("sobel", Preference::Software).unwrap_err();
    assert_eq!(reason(none), Reason::NoSoftware);

    let (width, height) = (320usize, 200usize);
    let image: Vec<u8> = (0..width * height)
        .map(|i| (i * 7 + i / width * 13) as u8)
        .collect();
    let sobel = active(&mut client, "sobel");
    let values = Values {
        body: &image,
        ..Values::of("width=320&height=200")
    };
    let edges = patient_call(&mut client, sobel, &values);
    assert!(edges == sobel_of(&image, width, height));

    let matmul = active(&mut client, "matmul");
    let size = 48usize;
    let a: Vec<f32> = (0..size * size).map(|i| (i % 7) as f32 - 3.0).collect();
    let b: Vec<f32> = (0..size * size).map(|i| (i % 5) as f32).collect();
    let body: Vec<u8> = a.iter().chain(&b).flat_map(|f| f.to_le_bytes()).collect();
    let values = Values {
        body: &body,
        ..Values::of("rows=48&inner=48")
    };
    let product = patient_call(&mut client, matmul, &values);
    // Integers, which single precision represents exactly in any order of summation.
    let expected: Vec<u8> = (0..size * size)
        .map(|i| {
            (0..size)
                .map(|k| a[i / size * size + k] * b[k * size + i % size])
                .sum::<f32>()
        })
        .flat_map(f32::to_le_bytes)
        .collect();
    assert!(product == expected);
}

const EXCLUSIVE: &str = "[[device]]\nname = 'fpga0'\nimage = 'exclusive'\nturn_ms = 100\n";

/// A folder with a function `add-N`, which adds the number to each byte, with an image of its own.
fn adder(number: u8) -> tempfile::TempDir {
    let functions = tempfile::tempdir().unwrap();
    let folder = functions.path().join(format!("add-{number}"));
    std::fs::create_dir(&folder).unwrap();
    let source = format!(
        "kernel void add(global const uchar *a, global uchar *b) {{
           size_t i = get_global_id(0);
           b[i] = a[i] + {number};
         }}"
    );
    std::fs::write(folder.join("add.cl"), source).unwrap();
    let manifest = format!(
        "name: add-{number}
inputs: [{{ name: a, type: u8, shape: [n], codecs: [raw] }}]
outputs: [{{ name: b, type: u8, shape: [n], codecs: [raw] }}]
implementations: [{{ opencl: {{ source: add.cl, kernel: add, global: [n] }} }}]
limits: {{ timeout_ms: 86400000 }}
"
    );
    std::fs::write(folder.join("function.yaml"), manifest).unwrap();
    functions
}

/// A gateway of the pool with a function of [`adder`].
fn gateway(registry: &Service, number: u8) -> Service {
    let options = Options {
        set: vec![format!("gateway.engine.registry={}", registry.url())],
        ..Options::default()
    };
    let gateway = Service::start(BALTRA, "gateway", &options).unwrap();
    let functions = adder(number);
    let folder = functions.path().join(format!("add-{number}"));
    let deploy = ["function", "deploy", folder.to_str().unwrap()];
    gateway.text(&deploy).unwrap();
    gateway
}

/// Calls the gateway's function.
fn invoke(gateway: &Service, number: u8) {
    let name = format!("add-{number}");
    let answer = gateway.text(&["function", "invoke", &name, "--data", "ab"]);
    assert_eq!(answer.unwrap().as_bytes(), [b'a' + number, b'b' + number]);
}

#[test]
fn functions_of_a_gateway_and_of_a_vm_take_turns_on_one_device() {
    let registry = registry();
    let manager = node("east", &registry, EXCLUSIVE);
    let gateway = gateway(&registry, 1);
    invoke(&gateway, 1);
    let endpoint = format!("unix:{}", manager.socket().display());
    let functions = adder(2);
    let pool = ["--endpoint", &endpoint, "--registry", registry.url()];
    let daemon = Daemon::start_with(functions.path(), &pool);
    let device = daemon.attach("web", &["--functions", "add-2", "--call-ms", "86400000"]);
    let mut client = Client::open(&device).unwrap();
    let function = active(&mut client, "add-2");
    let values = Values {
        body: b"ab",
        ..Values::of("")
    };
    for _ in 0..3 {
        assert_eq!(patient_call(&mut client, function, &values), b"cd");
        invoke(&gateway, 1);
    }
    let devices = common::devices(&registry);
    let device = devices.iter().find(|d| d["name"] == "fpga0").unwrap();
    let holders = device["instances"].as_array().unwrap();
    let is_of = |kind: &str| {
        let of = |name: &serde_json::Value| name.as_str().is_some_and(|n| n.starts_with(kind));
        holders.iter().any(of)
    };
    assert_eq!(holders.len(), 2, "{device}");
    assert!(is_of("gateway-") && is_of("vm1-web-"), "{device}");
    // The end of the VM releases its instance.
    drop(client);
    until("the VM's instance is released", || {
        instances(&registry).len() == 1
    });
}

/// `baltra up` in a runtime directory, stopped when it is dropped.
struct Up(PathBuf);

impl Up {
    fn start(home: &Path) -> Up {
        let config = home.join("config.toml");
        std::fs::write(&config, EXCLUSIVE).unwrap();
        let up = Up(home.join("run"));
        let mut arguments = vec!["up", "--config", config.to_str().unwrap()];
        let state = home.join("up");
        arguments.extend(["--state-dir", state.to_str().unwrap()]);
        for set in [
            "metrics.address=",
            "registry.address=auto",
            "registry.metrics=",
            "gateway.address=auto",
            "gateway.grpc_address=",
        ] {
            arguments.extend(["--set", set]);
        }
        up.baltra(&arguments);
        up
    }

    fn baltra(&self, arguments: &[&str]) -> Vec<u8> {
        let output = Command::new(BALTRA)
            .arg("--runtime-dir")
            .arg(&self.0)
            .args(arguments)
            .env_remove("BALTRA_ENDPOINT")
            .env_remove("BALTRA_REGISTRY")
            .env_remove("BALTRA_GATEWAY")
            .env("POCL_DEVICES", "pthread")
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        output.stdout
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let mut down = Command::new(BALTRA);
        down.arg("--runtime-dir").arg(&self.0);
        let _ = down.args(["down", "--drain-ms", "0"]).status();
    }
}

#[test]
fn a_vm_finds_the_registry_of_its_host() {
    let home = tempfile::tempdir().unwrap();
    let up = Up::start(home.path());
    let functions = adder(1);
    let folder = functions.path().join("add-1");
    up.baltra(&["function", "deploy", folder.to_str().unwrap()]);
    let invoke = ["function", "invoke", "add-1", "--data", "ab"];
    assert_eq!(up.baltra(&invoke), b"bc");
    let endpoint = format!("unix:{}", up.0.join("baltra.sock").display());
    let functions = adder(2);
    let child = Daemon::spawn_with(home.path(), functions.path(), &["--endpoint", &endpoint]);
    let daemon = Daemon { home, child };
    daemon.wait();
    // Stopped before the directory, which is the daemon's now, is removed.
    let running = up;
    let device = daemon.attach("web", &["--functions", "add-2", "--call-ms", "86400000"]);
    let mut client = Client::open(&device).unwrap();
    let function = active(&mut client, "add-2");
    let values = Values {
        body: b"ab",
        ..Values::of("")
    };
    assert_eq!(patient_call(&mut client, function, &values), b"cd");
    assert_eq!(running.baltra(&invoke), b"bc");
}

#[test]
fn an_opencl_program_of_a_vm_gets_a_device_that_is_allocated_to_functions() {
    let registry = registry();
    let manager = node("east", &registry, EXCLUSIVE);
    let gateway = gateway(&registry, 1);
    invoke(&gateway, 1);
    let endpoint = format!("unix:{}", manager.socket().display());
    let functions = adder(2);
    let pool = ["--endpoint", &endpoint, "--registry", registry.url()];
    let daemon = Daemon::start_with(functions.path(), &pool);
    let opencl = ["--opencl", "--memory", "64M", "--parts", "2"];
    let Device::Socket(socket) = daemon.attach("web", &opencl) else {
        panic!("not a socket");
    };
    let endpoint = format!("ivshmem:unix:{}", socket.display());
    let program = Tenant::at(&endpoint, "", "fpga0", None);
    let (_, built) = program.source_program(&source("one"));
    let messages = program.messages();
    assert!(
        matches!(built, Reply::Built { code: 0, .. }),
        "{built:?} {messages}"
    );
    assert_eq!(instances(&registry).len(), 2);
    drop(program);
    until("the program's instance is released", || {
        instances(&registry).len() == 1
    });
    // The functions get the device back.
    invoke(&gateway, 1);
}

/// |gx| + |gy|, saturated; beyond the edges, the picture's border is repeated.
fn sobel_of(image: &[u8], width: usize, height: usize) -> Vec<u8> {
    let at = |x: isize, y: isize| {
        let x = x.clamp(0, width as isize - 1) as usize;
        let y = y.clamp(0, height as isize - 1) as usize;
        i32::from(image[y * width + x])
    };
    let pixel = |i: usize| {
        let (x, y) = ((i % width) as isize, (i / width) as isize);
        let side = |dx: isize| at(x + dx, y - 1) + 2 * at(x + dx, y) + at(x + dx, y + 1);
        let row = |dy: isize| at(x - 1, y + dy) + 2 * at(x, y + dy) + at(x + 1, y + dy);
        ((side(1) - side(-1)).abs() + (row(1) - row(-1)).abs()).min(255) as u8
    };
    (0..width * height).map(pixel).collect()
}
