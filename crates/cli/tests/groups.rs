//! Executors' control groups. Wants to write to a mounted cgroup v2 (root); where it cannot, the
//! test says so and passes.

use baltra_session::handshake;
use baltra_testkit::{hello, until, Daemon, Options};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

const BALTRA: &str = env!("CARGO_BIN_EXE_baltra");

/// A group of the test's own, as a service manager that delegates would make it.
struct Delegated {
    dir: PathBuf,
}

impl Delegated {
    fn make() -> Option<Delegated> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let line = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
        let dir =
            Path::new(line.split(' ').nth(4)?).join(format!("baltra-test-{}", std::process::id()));
        fs::create_dir(&dir).ok()?;
        Some(Delegated { dir })
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

/// A process that nobody of Baltra's knows; ended with the test.
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
fn test_what_an_executor_started_ends_with_it() {
    let Some(delegated) = Delegated::make() else {
        eprintln!("passed over: no cgroup v2 that this test may write to");
        return;
    };
    let scripts = tempfile::tempdir().unwrap();
    let program = scripts.path().join("baltra");
    let group = delegated.dir.display();
    let text = format!(
        "#!/bin/sh\n[ \"$1\" != manager ] || echo $$ > '{group}/cgroup.procs'\nexec '{BALTRA}' \"$@\"\n"
    );
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let set = ["executors.prestart=1", "executors.processes=1000"];
    let options = Options {
        set: set.map(str::to_owned).into(),
        ..Options::default()
    };
    let mut daemon = Daemon::start_with(&program, &options).unwrap();
    let open = daemon.connect().unwrap();
    let (welcome, _segment) = handshake::hello(&open, &hello("device0")).unwrap();
    assert!(welcome.is_ok());
    let sessions = daemon.text(&["sessions", "--json"]).unwrap();
    let sessions: serde_json::Value = serde_json::from_str(&sessions).unwrap();
    let executor = sessions[0]["executor_pid"].as_u64().unwrap();
    let own = delegated.dir.join(format!("baltra-executor-{executor}"));
    assert_eq!(processes(&own), [executor.to_string()]);
    // Where the host leaves the controller to cgroup v2.
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

    // A manager that comes after a killed one knows its executors' groups.
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
