//! Executors' control groups. Needs write access to a mounted cgroup v2 (root); without it the test
//! prints that and passes.

use baltra_session::handshake;
use baltra_testkit::{hello, until, Daemon, Options};
use baltra_tests::{baltra, compile, tenants, through, Running};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// The value of `CL_DEVICE_NOT_AVAILABLE`.
const NOT_AVAILABLE: i64 = -2;

/// A control group of the test, as a service manager that delegates would create it.
struct Delegated {
    dir: PathBuf,
    scripts: tempfile::TempDir,
}

impl Delegated {
    fn make() -> Option<Delegated> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let line = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
        let dir =
            Path::new(line.split(' ').nth(4)?).join(format!("baltra-test-{}", std::process::id()));
        fs::create_dir(&dir).ok()?;
        let scripts = tempfile::tempdir().ok()?;
        Some(Delegated { dir, scripts })
    }

    /// A daemon in this group.
    fn daemon(&self, set: &[&str]) -> (Daemon, Options) {
        let program = self.scripts.path().join("baltra");
        let (group, baltra) = (self.dir.display(), baltra());
        let text = format!(
            "#!/bin/sh\n[ \"$1\" != manager ] || echo $$ > '{group}/cgroup.procs'\nexec '{}' \"$@\"\n",
            baltra.display()
        );
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        let options = Options {
            set: set.iter().map(|s| s.to_string()).collect(),
            ..Options::default()
        };
        let daemon = Daemon::start_with(&program, &options).unwrap();
        (daemon, options)
    }

    /// Whether cgroup v2 has this controller on the host, rather than cgroup v1.
    fn has(&self, controller: &str) -> bool {
        let controllers = fs::read_to_string(self.dir.join("cgroup.controllers"));
        controllers.is_ok_and(|text| text.split_whitespace().any(|name| name == controller))
    }

    fn groups(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.dir).unwrap().flatten();
        let dirs = entries
            .map(|entry| entry.path())
            .filter(|path| path.is_dir());
        dirs.filter(|dir| dir.to_string_lossy().contains("baltra-executor-"))
            .collect()
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let _ = fs::remove_dir(entry.path());
        }
        let _ = fs::remove_dir(&self.dir);
    }
}

/// A process unrelated to Baltra, killed when dropped.
struct Stray(Child);

impl Drop for Stray {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn processes(group: &Path) -> Vec<String> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn what_an_executor_started_ends_with_it() {
    let Some(delegated) = Delegated::make() else {
        eprintln!("passed over: no cgroup v2 that this test may write to");
        return;
    };
    let (mut daemon, options) =
        delegated.daemon(&["executors.prestart=1", "executors.processes=1000"]);
    let open = daemon.connect().unwrap();
    let (welcome, _segment) = handshake::hello(&open, &hello("device0")).unwrap();
    assert!(welcome.is_ok());
    let sessions = daemon.text(&["sessions", "--json"]).unwrap();
    let sessions: serde_json::Value = serde_json::from_str(&sessions).unwrap();
    let executor = sessions[0]["executor_pid"].as_u64().unwrap();
    let own = delegated.dir.join(format!("baltra-executor-{executor}"));
    assert_eq!(processes(&own), [executor.to_string()]);
    // Only if the controller belongs to cgroup v2 on this host.
    if let Ok(bound) = fs::read_to_string(own.join("pids.max")) {
        assert_eq!(bound.trim(), "1000");
    }

    let stray = Command::new("sleep").arg("600").spawn().unwrap();
    let mut stray = Stray(stray);
    fs::write(own.join("cgroup.procs"), stray.0.id().to_string()).unwrap();
    let pid = rustix::process::Pid::from_raw(executor as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    until("the stray process is gone", || {
        stray.0.try_wait().unwrap().is_some()
    })
    .unwrap();
    until("the group is gone", || !own.exists()).unwrap();

    // A manager started after one was killed finds its executors' groups.
    let open = daemon.connect().unwrap();
    let (welcome, _segment) = handshake::hello(&open, &hello("device0")).unwrap();
    assert!(welcome.is_ok());
    daemon.kill().unwrap();
    let daemon = daemon.restart(&options).unwrap();
    until("the session is adopted", || {
        daemon
            .text(&["sessions", "--json"])
            .is_ok_and(|text| text.contains("\"tenant\""))
    })
    .unwrap();
    drop((open, daemon));
    until("all groups are gone", || delegated.groups().is_empty()).unwrap();
}

#[test]
fn an_executor_beyond_its_memory_ends_alone() {
    let Some(delegated) = Delegated::make().filter(|group| group.has("memory")) else {
        eprintln!("passed over: no cgroup v2 with memory that this test may write to");
        return;
    };
    let (daemon, _) = delegated.daemon(&["executors.memory_bytes=536870912"]);
    tenants(&daemon, &["red", "blue"]);
    let mut neighbor = through(&daemon, "blue", compile("work"));
    neighbor.arg("0");
    let mut neighbor = Running::start(neighbor);
    neighbor.wait_line("round");
    let mut hoard = through(&daemon, "red", compile("harm"));
    hoard.args(["hoard", "1073741824"]);
    let answer = Running::run(hoard).ok();
    assert_eq!(answer.number("finish"), Some(NOT_AVAILABLE), "{answer:?}");
    neighbor.wait_progress();
    let mut again = through(&daemon, "red", compile("work"));
    again.arg("5");
    Running::run(again).ok();
}
