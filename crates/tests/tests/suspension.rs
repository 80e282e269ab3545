//! Suspended sessions: a program waits while its session is on the disk, and continues with the right
//! bytes, whatever ends meanwhile.

use baltra_testkit::{children, until, Daemon, Options};
use baltra_tests::{
    baltra, by_variables, compile, compile_driver, ended, free_port, json, kill, nothing_panicked,
    once_built, session_count, tenants, through_with, Running,
};
use rustix::thread::{unshare_unsafe, UnshareFlags};
use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

const TENANTS: [&str; 2] = ["red", "blue"];

/// Two devices, with these keys each.
fn options(keys: &str, more: &str) -> Options {
    let device = |name: &str, at: u32| {
        format!("[[device]]\nname = '{name}'\nselect = '{at}'\nhost_memory = false\n{keys}\n")
    };
    Options {
        config: format!("{more}\n{}{}", device("a", 0), device("b", 1)),
        ..Options::default()
    }
}

fn start(options: &Options) -> Daemon {
    let daemon = Daemon::start_with(baltra(), options).expect("a daemon starts");
    tenants(&daemon, &TENANTS);
    daemon
}

/// `programs/moving.c` on the first device.
fn moving_of(daemon: &Daemon, tenant: &str, arguments: &[&str]) -> Running {
    let program = compile("moving");
    let mut command = through_with(daemon, &["--tenant", tenant, "--device", "a"], program);
    command.args(arguments);
    let mut running = Running::start(command);
    running.wait_line("round");
    running
}

fn moving(daemon: &Daemon, arguments: &[&str]) -> Running {
    moving_of(daemon, TENANTS[0], arguments)
}

/// The only session.
fn only(daemon: &Daemon) -> Value {
    let sessions = json(daemon, &["session", "ls"]);
    assert_eq!(sessions.as_array().map(Vec::len), Some(1), "{sessions}");
    sessions[0].clone()
}

fn session(daemon: &Daemon, what: &str, number: &str, more: &[&str]) -> Output {
    let mut arguments = vec!["session", what, number];
    arguments.extend(more);
    once_built(|| daemon.baltra(&arguments).expect("the tool runs"))
}

fn must(output: &Output, daemon: &Daemon) {
    assert!(output.status.success(), "{output:?}\n{}", daemon.log());
}

/// The error of a command that must fail.
fn refusal(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "the command succeeds");
    error
}

/// The process that has the only session.
fn holder(daemon: &Daemon) -> u32 {
    let sessions = json(daemon, &["sessions"]);
    sessions[0]["executor_pid"].as_u64().expect("a number") as u32
}

/// The daemon's processes with these words in their command lines.
fn processes(daemon: &Daemon, words: &str) -> Vec<u32> {
    let has_words = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(words)
    };
    let all = children(daemon.pid()).into_iter();
    all.filter(has_words).collect()
}

/// The processes that keep sessions, or are to.
fn keepers(daemon: &Daemon) -> Vec<u32> {
    processes(daemon, " keeper ")
}

/// The processes with the driver of the first device, or that load it.
fn executors(daemon: &Daemon) -> Vec<u32> {
    processes(daemon, " executor --name a ")
}

/// Files of suspended sessions that have names.
fn named_files(daemon: &Daemon) -> usize {
    let dir = daemon.state_dir().join("suspended");
    std::fs::read_dir(dir).map_or(0, |files| files.count())
}

/// The file of a suspended session, which has no name, by its keeper's descriptor.
fn state_file(daemon: &Daemon, keeper: u32) -> PathBuf {
    let dir = daemon.state_dir().join("suspended");
    let fds = std::fs::read_dir(format!("/proc/{keeper}/fd")).expect("the keeper lives");
    let is_own = |path: &PathBuf| std::fs::read_link(path).is_ok_and(|to| to.starts_with(&dir));
    let mut paths = fds.flatten().map(|entry| entry.path());
    paths.find(is_own).expect("the keeper has a file")
}

/// Ends a program, and waits until nothing is left of it.
fn end(daemon: &Daemon, program: Running) {
    drop(program);
    until("no session is left", || session_count(daemon) == 0).unwrap();
    until("no keeper is left", || keepers(daemon).is_empty()).unwrap();
    nothing_panicked(daemon);
}

#[test]
fn a_program_waits_while_its_session_is_on_the_disk() {
    let daemon = start(&options("", ""));
    let mut program = moving(&daemon, &["0", "4194304", "1"]);
    let number = only(&daemon)["id"].to_string();
    let running = refusal(&session(&daemon, "resume", &number, &[]));
    assert!(running.contains("is not suspended"), "{running}");
    for (to, device) in [(&[][..], "a"), (&["--to", "b"], "b"), (&["--to", "a"], "a")] {
        let executor = holder(&daemon);
        must(&session(&daemon, "suspend", &number, &[]), &daemon);
        let suspended = only(&daemon);
        assert_eq!(suspended["suspended"], true, "{suspended}");
        assert_eq!(suspended["can_move"], false, "{suspended}");
        assert_eq!(suspended["resident_bytes"], 0, "{suspended}");
        let stored = suspended["stored_bytes"].as_u64();
        assert!(stored >= Some(4 << 20), "{suspended}");
        // Its driver is unloaded.
        until("its executor ends", || ended(executor)).unwrap();
        let file = state_file(&daemon, holder(&daemon)).metadata().unwrap();
        assert_eq!((file.mode() & 0o777, Some(file.len())), (0o600, stored));
        assert_eq!(named_files(&daemon), 0);
        for (what, more) in [("suspend", &[][..]), ("move", &["--to", "b"])] {
            let error = refusal(&session(&daemon, what, &number, more));
            assert!(error.contains("it is suspended"), "{error}");
        }
        must(&session(&daemon, "resume", &number, to), &daemon);
        let resumed = only(&daemon);
        assert_eq!(resumed["suspended"], false, "{resumed}");
        assert_eq!(resumed["device"], device, "{resumed}");
        program.wait_progress();
    }
    end(&daemon, program);
    let unknown = refusal(&session(&daemon, "suspend", &number, &[]));
    assert!(unknown.contains("there is no session"), "{unknown}");
}

#[test]
fn of_two_suspensions_of_one_session_one_is_refused() {
    let daemon = start(&options("", ""));
    let mut program = moving(&daemon, &["0", "4194304", "1"]);
    let number = only(&daemon)["id"].to_string();
    for _ in 0..4 {
        let outputs = std::thread::scope(|scope| {
            let both = [(); 2].map(|()| scope.spawn(|| session(&daemon, "suspend", &number, &[])));
            both.map(|one| one.join().expect("no panic"))
        });
        let (done, refused) = if outputs[0].status.success() {
            (&outputs[0], &outputs[1])
        } else {
            (&outputs[1], &outputs[0])
        };
        must(done, &daemon);
        let error = refusal(refused);
        let reasons = ["is being moved already", "it is suspended"];
        assert!(reasons.iter().any(|r| error.contains(r)), "{error}");
        assert_eq!(only(&daemon)["suspended"], true);
        assert_eq!(keepers(&daemon).len(), 1);
        must(&session(&daemon, "resume", &number, &[]), &daemon);
        program.wait_progress();
    }
    end(&daemon, program);
}

/// Suspends all sessions and resumes them on the other device; returns how many.
fn to_disk_and_back(daemon: &Daemon) -> usize {
    let sessions = json(daemon, &["session", "ls"]);
    let sessions = sessions.as_array().expect("a list").iter();
    let both_ways = |s: &&Value| {
        let number = s["id"].to_string();
        // It may have ended, or run a long command.
        if !session(daemon, "suspend", &number, &[]).status.success() {
            return false;
        }
        let to = if s["device"] == "a" { "b" } else { "a" };
        let resumed = session(daemon, "resume", &number, &["--to", to]);
        // Its program needs no answer in order to end.
        let is_gone = || {
            let sessions = json(daemon, &["session", "ls"]);
            let mut sessions = sessions.as_array().expect("a list").iter();
            sessions.all(|other| other["id"] != s["id"])
        };
        if !resumed.status.success() {
            until(&format!("the session ends: {resumed:?}"), is_gone).unwrap();
        }
        true
    };
    sessions.filter(both_ways).count()
}

#[test]
fn programs_give_the_native_answers_while_their_sessions_are_suspended_all_the_time() {
    let daemon = start(&options("", ""));
    let runs: [(&str, &[&str]); 2] = [("threads", &["5", "150"]), ("transfers", &["untimed"])];
    let mut suspensions = 0;
    for (program, arguments) in runs {
        let mut command = through_with(&daemon, &["--tenant", "red"], compile(program));
        command.args(arguments);
        let mut running = Running::start(command);
        let before = suspensions;
        while !running.has_ended() {
            suspensions += to_disk_and_back(&daemon);
        }
        let answer = running.finish().ok();
        assert!(answer.out.ends_with("done"), "{program}: {answer:?}");
        println!("{program}: {} suspensions", suspensions - before);
    }
    assert!(suspensions > 0, "{}", daemon.log());
    nothing_panicked(&daemon);
}

#[test]
fn a_session_over_tcp_waits_on_the_disk() {
    let port = free_port();
    let listen = format!("[listen]\ntcp = '127.0.0.1:{port}'");
    let daemon = start(&options("", &listen));
    let token = daemon.text(&["tenant", "token", "red"]).unwrap();
    let mut command = by_variables(&format!("tcp://127.0.0.1:{port}"), compile("moving"));
    command
        .env("BALTRA_TOKEN", token.trim())
        .env("BALTRA_DEVICE", "a")
        .args(["0", "1048576", "5"]);
    let mut program = Running::start(command);
    program.wait_line("round");
    let listed = json(&daemon, &["session", "ls"]);
    let remote = |s: &&Value| s["transport"] == "tcp" && s["device"] == "a";
    let own = listed.as_array().expect("a list").iter().find(remote);
    let number = own.unwrap_or_else(|| panic!("{listed}"))["id"].to_string();
    for device in ["b", "a"] {
        must(&session(&daemon, "suspend", &number, &[]), &daemon);
        must(
            &session(&daemon, "resume", &number, &["--to", device]),
            &daemon,
        );
        program.wait_progress();
    }
    must(&session(&daemon, "suspend", &number, &[]), &daemon);
    kill(program.pid());
    end(&daemon, program);
}

/// Suspending fails, again and again, and the session continues where it was.
fn cannot_be_stored(daemon: &Daemon, mut program: Running, reason: &str) {
    let number = only(daemon)["id"].to_string();
    let executor = holder(daemon);
    for _ in 0..3 {
        let error = refusal(&session(daemon, "suspend", &number, &[]));
        assert!(error.contains(reason), "{error}");
        assert_eq!(only(daemon)["suspended"], false);
        assert_eq!(holder(daemon), executor);
        until("its keeper ends", || keepers(daemon).is_empty()).unwrap();
        program.wait_progress();
    }
    end(daemon, program);
}

#[test]
fn a_full_disk_leaves_the_session_as_it_was() {
    let daemon = start(&options("", ""));
    let program = moving(&daemon, &["0", "4194304", "1"]);
    // Files of processes that start from now on, such as keepers, end here.
    let pid = daemon.pid().to_string();
    let limit = ["--pid", &pid, "--fsize=2000000:2000000"];
    let done = Command::new("prlimit").args(limit).status();
    assert!(done.expect("prlimit is installed").success());
    cannot_be_stored(&daemon, program, "its state cannot be written to the disk");
}

fn mount(arguments: &[&str]) {
    let done = Command::new("mount").args(arguments).status();
    assert!(done.expect("mount is installed").success());
}

#[test]
fn a_file_system_without_space_leaves_the_session_as_it_was() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("passed over: a file system of its own needs root");
        return;
    }
    // Namespaces are a thread's; the daemon has those of the thread that starts it.
    let test = std::thread::spawn(|| {
        // SAFETY: no file is shared with another thread by a descriptor's number.
        if let Err(error) = unsafe { unshare_unsafe(UnshareFlags::NEWNS) } {
            eprintln!("passed over: no file systems of its own here: {error}");
            return;
        }
        mount(&["--make-rprivate", "/"]);
        let daemon = start(&options("", ""));
        let program = moving(&daemon, &["0", "4194304", "1"]);
        let dir = daemon.state_dir().join("suspended");
        std::fs::create_dir_all(&dir).unwrap();
        let dir = dir.to_str().expect("a text");
        mount(&["-t", "tmpfs", "-o", "size=2000000,mode=0700", "none", dir]);
        cannot_be_stored(&daemon, program, "its state cannot be written to the disk");
    });
    test.join().unwrap();
}

#[test]
fn a_session_that_exceeds_the_limit_of_files_stays() {
    let daemon = start(&options("", "[executors]\nsuspended_bytes = 1000000"));
    let program = moving(&daemon, &["0", "4194304", "1"]);
    cannot_be_stored(&daemon, program, "'executors.suspended_bytes'");
}

#[test]
fn a_damaged_file_is_refused_and_the_session_stays_suspended() {
    let daemon = start(&options("", ""));
    let mut program = moving(&daemon, &["0", "4194304", "1"]);
    let number = only(&daemon)["id"].to_string();
    must(&session(&daemon, "suspend", &number, &[]), &daemon);
    let path = state_file(&daemon, holder(&daemon));
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let stays = |reason: &str| {
        for device in ["a", "b"] {
            let error = refusal(&session(&daemon, "resume", &number, &["--to", device]));
            assert!(error.contains(reason), "{error}");
            let suspended = only(&daemon);
            assert_eq!(suspended["suspended"], true, "{suspended}");
            assert_eq!(suspended["device"], "a", "{suspended}");
        }
    };
    let at = bytes.len() as u64 / 2;
    file.write_all_at(&[!bytes[at as usize]], at).unwrap();
    stays("its state on the disk is damaged");
    file.set_len(at).unwrap();
    stays("its state cannot be read");
    file.write_all_at(&bytes, 0).unwrap();
    must(&session(&daemon, "resume", &number, &[]), &daemon);
    program.wait_progress();
    end(&daemon, program);
}

#[test]
fn nothing_is_left_of_a_client_or_a_keeper_that_dies() {
    let daemon = start(&options("", ""));
    for is_client in [true, false] {
        let mut program = moving(&daemon, &["0", "1048576", "1"]);
        let number = only(&daemon)["id"].to_string();
        must(&session(&daemon, "suspend", &number, &[]), &daemon);
        let keeper = holder(&daemon);
        kill(if is_client { program.pid() } else { keeper });
        until("the program ends", || program.has_ended()).unwrap();
        until("its keeper ends", || ended(keeper)).unwrap();
        end(&daemon, program);
    }
}

/// The process that is killed while a session is suspended or resumed.
#[derive(Clone, Copy, PartialEq)]
enum Victim {
    Executor,
    Keeper,
    Client,
}

/// The number of times that a process is killed in each test: `BALTRA_KILLS`.
fn kills() -> u64 {
    let times = std::env::var("BALTRA_KILLS");
    times.map_or(4, |times| times.parse().expect("BALTRA_KILLS is a number"))
}

/// Begins to suspend or to resume a session, and kills processes after `delay_ms`; returns the output
/// of the command, and which ones were there.
fn kill_during(
    daemon: &Daemon,
    program: &Running,
    (what, number): (&str, &str),
    victim: Victim,
    delay_ms: u64,
) -> (Output, Vec<u32>) {
    std::thread::scope(|scope| {
        let done = scope.spawn(|| session(daemon, what, number, &[]));
        std::thread::sleep(Duration::from_millis(delay_ms));
        let pids = match victim {
            Victim::Executor => executors(daemon),
            Victim::Client => vec![program.pid()],
            Victim::Keeper => keepers(daemon),
        };
        pids.iter().copied().for_each(kill);
        (done.join().expect("no panic"), pids)
    })
}

/// Waits for the end of a program whose session is lost, and starts another one.
fn replaced(daemon: &Daemon, mut program: Running) -> Running {
    until("the program ends", || program.has_ended()).unwrap();
    end(daemon, program);
    moving(daemon, &["0", "4194304", "1"])
}

/// Kills a process at different moments of a suspension.
fn killed(victim: Victim) {
    let daemon = start(&options("", ""));
    let mut program = moving(&daemon, &["0", "4194304", "1"]);
    for round in 0..kills() {
        let number = only(&daemon)["id"].to_string();
        let what = ("suspend", number.as_str());
        let (output, killed) = kill_during(&daemon, &program, what, victim, round * 15 % 120);
        let is_lost = match victim {
            Victim::Client => true,
            // It is where it was, or on the disk.
            Victim::Executor => !output.status.success(),
            // It is where it was, unless it was on the disk already.
            Victim::Keeper => !killed.is_empty() && output.status.success(),
        };
        if is_lost {
            program = replaced(&daemon, program);
            continue;
        }
        if output.status.success() {
            // Unless an executor that has just been killed is chosen: then it stays on the disk.
            until("the session is resumed", || {
                let resumed = session(&daemon, "resume", &number, &[]).status.success();
                assert_eq!(only(&daemon)["suspended"], !resumed);
                resumed
            })
            .unwrap();
        }
        program.wait_progress();
    }
    end(&daemon, program);
}

/// Whether the only session was in one of these executors, which were killed.
fn is_lost_with(daemon: &Daemon, killed: &[u32]) -> bool {
    let mut left = 0;
    until("it is over, or in another executor", || {
        let sessions = json(daemon, &["sessions"]);
        left = sessions.as_array().map_or(0, Vec::len);
        let holder = sessions[0]["executor_pid"].as_u64();
        left == 0 || holder.is_some_and(|pid| !killed.contains(&(pid as u32)))
    })
    .unwrap();
    left == 0
}

/// Kills a process at different moments of a resumption.
fn killed_at_the_end(victim: Victim) {
    let daemon = start(&options("", ""));
    let mut program = moving(&daemon, &["0", "4194304", "1"]);
    for round in 0..kills() {
        let number = only(&daemon)["id"].to_string();
        let former = holder(&daemon);
        must(&session(&daemon, "suspend", &number, &[]), &daemon);
        until("its executor ends", || ended(former)).unwrap();
        let what = ("resume", number.as_str());
        let (output, killed) = kill_during(&daemon, &program, what, victim, round * 60 % 420);
        let is_lost = match victim {
            Victim::Client => true,
            // It is on the disk, unless it was in the executor already, which was not a spare one.
            Victim::Executor => output.status.success() && is_lost_with(&daemon, &killed),
            // It is in the executor, or was in the keeper only.
            Victim::Keeper => !output.status.success(),
        };
        if is_lost {
            program = replaced(&daemon, program);
            continue;
        }
        if !output.status.success() {
            assert_eq!(only(&daemon)["suspended"], true, "{output:?}");
            must(&session(&daemon, "resume", &number, &[]), &daemon);
        }
        program.wait_progress();
    }
    end(&daemon, program);
}

#[test]
fn a_session_stays_on_the_disk_if_the_executor_dies_that_resumes_it() {
    killed_at_the_end(Victim::Executor);
}

#[test]
fn a_session_is_in_its_executor_or_over_if_its_keeper_dies_while_it_is_resumed() {
    killed_at_the_end(Victim::Keeper);
}

#[test]
fn nothing_is_left_of_a_client_that_dies_while_its_session_is_resumed() {
    killed_at_the_end(Victim::Client);
}

#[test]
fn a_suspended_session_ends_with_the_daemon() {
    let daemon = start(&options("", ""));
    let mut program = moving(&daemon, &["0", "1048576", "1"]);
    let number = only(&daemon)["id"].to_string();
    must(&session(&daemon, "suspend", &number, &[]), &daemon);
    let keeper = holder(&daemon);
    must(&daemon.baltra(&["down"]).expect("the tool runs"), &daemon);
    until("its keeper ends", || ended(keeper)).unwrap();
    until("the program ends", || program.has_ended()).unwrap();
    assert_eq!(named_files(&daemon), 0);
}

#[test]
fn a_suspended_session_outlives_its_former_executor() {
    killed(Victim::Executor);
}

#[test]
fn a_session_continues_where_it_was_if_its_keeper_dies_early() {
    killed(Victim::Keeper);
}

#[test]
fn nothing_is_left_of_a_client_that_dies_while_its_session_is_stored() {
    killed(Victim::Client);
}

#[test]
fn a_suspended_session_outlives_its_manager() {
    let options = options("", "");
    let mut daemon = start(&options);
    let mut program = moving(&daemon, &["0", "1048576", "1"]);
    let number = only(&daemon)["id"].to_string();
    must(&session(&daemon, "suspend", &number, &[]), &daemon);
    let keeper = holder(&daemon);
    daemon.kill().expect("the manager ends");
    let daemon = daemon.restart(&options).expect("a manager starts");
    until("the session is adopted", || session_count(&daemon) == 1).unwrap();
    let suspended = only(&daemon);
    assert_eq!(suspended["suspended"], true, "{suspended}");
    assert!(suspended["stored_bytes"].as_u64() >= Some(1 << 20));
    assert_eq!(holder(&daemon), keeper);
    // The devices' descriptions come with their first executors.
    until("the session is resumed", || {
        let output = session(&daemon, "resume", &number, &["--to", "b"]);
        output.status.success()
    })
    .unwrap();
    program.wait_progress();
    until("its keeper ends", || ended(keeper)).unwrap();
    end(&daemon, program);
}

#[test]
fn sessions_that_cannot_be_suspended_stay_with_the_reason() {
    let daemon = start(&options("", ""));
    let program = compile("svm_stays");
    let command = through_with(&daemon, &["--tenant", "red", "--device", "a"], program);
    let mut fixed = Running::start(command);
    fixed.wait_line("allocated");
    let number = only(&daemon)["id"].to_string();
    let error = refusal(&session(&daemon, "suspend", &number, &[]));
    assert!(error.contains("shared virtual memory"), "{error}");
    let mut program = moving(&daemon, &["0", "65536", "1"]);

    let (code, answer) = upgrade(&daemon, &[]);
    assert_eq!((code, &answer["restarted"]), (Some(1), &Value::Bool(false)));
    let stayed = answer["stayed"].as_array().expect("a list");
    assert_eq!(stayed.len(), 1, "{answer}");
    assert_eq!(stayed[0]["session"].to_string(), number, "{answer}");
    assert_eq!(stayed[0]["reason"], "it has shared virtual memory");
    program.wait_progress();

    let (code, answer) = upgrade(&daemon, &["--force"]);
    assert_eq!(
        (code, &answer["restarted"], &answer["sessions"]),
        (Some(1), &Value::Bool(true), &Value::from(1)),
        "{answer}"
    );
    program.wait_progress();
    assert!(!fixed.has_ended());
    // The executors differ, although the tenant is the same.
    let sessions = json(&daemon, &["sessions"]);
    assert_ne!(sessions[0]["executor_pid"], sessions[1]["executor_pid"]);
    drop(fixed);
    end(&daemon, program);
}

/// `baltra device upgrade-driver a`: the exit code and the answer.
fn upgrade(daemon: &Daemon, more: &[&str]) -> (Option<i32>, Value) {
    let mut arguments = vec!["device", "upgrade-driver", "a", "--json"];
    arguments.extend(["--wait-ms", "10000"]);
    arguments.extend(more);
    let output = daemon.baltra(&arguments).expect("the tool runs");
    let answer = serde_json::from_slice(&output.stdout);
    let answer = answer.unwrap_or_else(|_| panic!("{output:?}\n{}", daemon.log()));
    (output.status.code(), answer)
}

/// Installs a driver as a package manager does.
fn install(from: &Path, to: &Path) {
    let fresh = to.with_extension("new");
    std::fs::copy(from, &fresh).unwrap();
    std::fs::rename(fresh, to).unwrap();
}

/// The version of the first device's driver.
fn driver_version(daemon: &Daemon) -> String {
    let devices = json(daemon, &["devices", "--local"]);
    let own = devices.as_array().expect("a list").iter();
    let mut own = own.filter(|device| device["name"] == "a");
    let version = own.next().expect("the device")["driver_version"].as_str();
    version.expect("a text").to_owned()
}

fn eight_programs(isolation: &str) {
    let dir = tempfile::tempdir().unwrap();
    let driver = dir.path().join("libdriver.so");
    install(&compile_driver("slow_driver"), &driver);
    let keys = format!("driver = '{}'\nisolation = '{isolation}'", driver.display());
    let daemon = start(&options(&keys, ""));
    let mut programs: Vec<_> = (0..8)
        .map(|at| moving_of(&daemon, TENANTS[at % 2], &["0", "262144", "5"]))
        .collect();
    assert_ne!(driver_version(&daemon), "99.0");
    let executors = |daemon: &Daemon| {
        let sessions = json(daemon, &["sessions"]);
        let sessions = sessions.as_array().expect("a list").iter();
        let pids = sessions.map(|s| s["executor_pid"].as_u64().expect("a number") as u32);
        pids.collect::<Vec<_>>()
    };
    let before = executors(&daemon);
    install(&compile_driver("other_driver"), &driver);
    let (code, answer) = upgrade(&daemon, &[]);
    assert_eq!(code, Some(0), "{answer}\n{}", daemon.log());
    assert_eq!(answer["sessions"], 8, "{answer}");
    assert!(before.iter().all(|pid| ended(*pid)), "{answer}");
    assert_eq!(driver_version(&daemon), "99.0");
    for program in &mut programs {
        program.wait_progress();
    }
    for pid in executors(&daemon) {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        let driver = driver.display().to_string();
        let mut own = maps
            .lines()
            .filter(|line| line.contains(&driver))
            .peekable();
        assert!(own.peek().is_some() && own.all(|line| line.ends_with(&driver)));
    }
    assert_eq!(session_count(&daemon), 8);
    for program in programs.drain(1..) {
        drop(program);
    }
    end(&daemon, programs.remove(0));
}

#[test]
fn eight_programs_continue_with_a_driver_that_was_loaded_anew() {
    eight_programs("tenant");
}

#[test]
fn eight_programs_of_one_executor_continue_with_a_driver_that_was_loaded_anew() {
    eight_programs("device");
}

#[test]
fn sessions_stay_suspended_until_a_faulty_driver_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let driver = dir.path().join("libdriver.so");
    install(&compile_driver("slow_driver"), &driver);
    let keys = format!("driver = '{}'", driver.display());
    let daemon = start(&options(&keys, ""));
    let mut program = moving(&daemon, &["0", "262144", "5"]);
    let number = only(&daemon)["id"].to_string();
    std::fs::write(dir.path().join("faulty"), "not a library").unwrap();
    install(&dir.path().join("faulty"), &driver);
    let (code, answer) = upgrade(&daemon, &[]);
    assert_eq!(code, Some(1), "{answer}");
    assert_eq!(answer["suspended"][0]["session"].to_string(), number);
    let reason = answer["suspended"][0]["reason"].as_str().expect("a text");
    assert!(reason.contains("the driver cannot be used"), "{answer}");
    assert_eq!(only(&daemon)["suspended"], true);
    install(&compile_driver("other_driver"), &driver);
    // The pause after a failure passes.
    until("the session is resumed", || {
        let output = session(&daemon, "resume", &number, &["--force"]);
        output.status.success()
    })
    .unwrap();
    program.wait_progress();
    end(&daemon, program);
}

#[test]
fn a_faulty_driver_is_reported_for_a_device_without_sessions() {
    let dir = tempfile::tempdir().unwrap();
    let driver = dir.path().join("libdriver.so");
    install(&compile_driver("slow_driver"), &driver);
    let daemon = start(&options(&format!("driver = '{}'", driver.display()), ""));
    std::fs::write(dir.path().join("faulty"), "not a library").unwrap();
    install(&dir.path().join("faulty"), &driver);
    let (code, answer) = upgrade(&daemon, &[]);
    assert_eq!(code, Some(1), "{answer}");
    let reason = answer["failure"].as_str().expect("a text");
    assert!(reason.contains("the driver cannot be used"), "{answer}");
    install(&compile_driver("other_driver"), &driver);
    // The pause after a failure passes.
    until("the driver is loaded", || {
        upgrade(&daemon, &[]).0 == Some(0)
    })
    .unwrap();
    assert_eq!(driver_version(&daemon), "99.0");
}
