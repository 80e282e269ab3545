//! The processes that `baltra up` starts: their files in the runtime directory; starting one in the
//! background, waiting for it, stopping it.

use crate::control::Control;
use anyhow::{bail, Context, Result};
use baltra_api::control as proto;
use baltra_manager::lock;
use baltra_manager::options::PathOptions;
use rustix::process::{kill_process, Pid, Signal};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time for a daemon that loads no driver to listen, on a busy machine.
const LISTEN_PATIENCE: Duration = Duration::from_secs(30);
/// Longest time for a daemon to exit.
const END_PATIENCE: Duration = Duration::from_secs(600);

/// One of the daemons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Daemon {
    /// The Accelerators Registry.
    Registry,
    /// The Device Manager.
    Manager,
    /// The HTTP gateway.
    Gateway,
}

/// Addresses of a daemon that listens on ports, published in a file because ports may be chosen
/// automatically.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// The process that wrote the file.
    pub pid: u32,
    /// Its main address, as a URL.
    pub url: String,
    /// Its other addresses.
    #[serde(default)]
    pub others: Vec<String>,
    /// Seconds since 1970.
    #[serde(default)]
    pub since_s: u64,
}

impl Daemon {
    /// All daemons in starting order; they are stopped in reverse order.
    pub const ALL: [Daemon; 3] = [Daemon::Registry, Daemon::Manager, Daemon::Gateway];

    /// Its subcommand, which is also its configuration section.
    pub fn name(self) -> &'static str {
        match self {
            Daemon::Registry => "registry",
            Daemon::Manager => "manager",
            Daemon::Gateway => "gateway",
        }
    }

    /// Its lock file, locked while it runs.
    pub fn lock_file(self, paths: &PathOptions) -> PathBuf {
        paths.runtime.join(format!("{}.lock", self.name()))
    }

    /// Its log file in the background.
    pub fn log_file(self, paths: &PathOptions) -> PathBuf {
        paths.runtime.join(format!("{}.log", self.name()))
    }

    fn announcement_file(self, paths: &PathOptions) -> PathBuf {
        paths.runtime.join(format!("{}.json", self.name()))
    }

    /// Its process, if it is running.
    pub fn holder(self, paths: &PathOptions) -> Option<u32> {
        lock::holder_of(&self.lock_file(paths))
    }

    /// Its addresses, if it is running and has published them.
    pub fn announcement(self, paths: &PathOptions) -> Option<Announcement> {
        let text = std::fs::read(self.announcement_file(paths)).ok()?;
        let announcement: Announcement = serde_json::from_slice(&text).ok()?;
        (self.holder(paths) == Some(announcement.pid)).then_some(announcement)
    }

    /// Locks the daemon's place in the runtime directory until the result is dropped.
    pub fn take(self, paths: &PathOptions) -> Result<DaemonLock> {
        lock::make_directory(&paths.runtime)?;
        let lock = lock::hold(&self.lock_file(paths), self.name())?;
        let announcement = self.announcement_file(paths);
        let _ = std::fs::remove_file(&announcement);
        Ok(DaemonLock {
            announcement,
            _lock: lock,
        })
    }

    /// Sends a running daemon SIGTERM, without waiting. The manager is stopped over its control
    /// socket instead.
    pub fn terminate(self, pid: u32) -> Result<()> {
        let Some(process) = Pid::from_raw(pid as i32) else {
            return Ok(());
        };
        match kill_process(process, Signal::TERM) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error)
                .with_context(|| format!("cannot stop the {} (process {pid})", self.name())),
        }
    }

    /// Waits until a process no longer holds the daemon's lock.
    pub fn wait_end(
        self,
        paths: &PathOptions,
        pid: u32,
        mut meanwhile: impl FnMut(),
    ) -> Result<()> {
        let started = Instant::now();
        while self.holder(paths) == Some(pid) {
            meanwhile();
            if started.elapsed() > END_PATIENCE {
                let name = self.name();
                bail!(
                    "the {name} (process {pid}) does not exit (see `baltra logs --daemon {name}`)"
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

/// A daemon's lock and announcement in the runtime directory.
#[derive(Debug)]
pub struct DaemonLock {
    announcement: PathBuf,
    _lock: File,
}

impl DaemonLock {
    /// Publishes the daemon's addresses.
    pub fn announce(&self, url: String, others: Vec<String>) -> Result<()> {
        let since_s = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |t| t.as_secs());
        let announcement = Announcement {
            pid: std::process::id(),
            url,
            others,
            since_s,
        };
        let dir = self.announcement.parent().unwrap_or(Path::new("."));
        let mut file = tempfile::NamedTempFile::new_in(dir)
            .with_context(|| format!("cannot write to {}", dir.display()))?;
        file.write_all(&serde_json::to_vec(&announcement)?)?;
        let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        file.as_file().set_permissions(readable)?;
        file.persist(&self.announcement)?;
        Ok(())
    }
}

impl Drop for DaemonLock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.announcement);
    }
}

/// The tie of a daemon to its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tie {
    /// It outlives its parent, and logs to its file.
    Loose,
    /// It always exits with its parent, and logs to its file.
    Leashed,
    /// Like `Leashed`, but it logs to its parent's stderr.
    Attached,
}

/// A daemon that this process started.
pub struct Running {
    /// The daemon.
    pub daemon: Daemon,
    child: Child,
    log: Option<PathBuf>,
    paths: PathOptions,
}

impl Running {
    /// Starts a daemon with additional arguments and environment variables.
    pub fn start(
        daemon: Daemon,
        paths: &PathOptions,
        extra: &[String],
        environment: &[(&str, String)],
        tie: Tie,
    ) -> Result<Running> {
        lock::make_directory(&paths.runtime)?;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg(daemon.name())
            .arg("--runtime-dir")
            .arg(&paths.runtime)
            .arg("--state-dir")
            .arg(&paths.state)
            .args(extra)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .current_dir("/")
            .stdin(Stdio::null());
        let log = (tie != Tie::Attached).then(|| daemon.log_file(paths));
        if let Some(log) = &log {
            let file = OpenOptions::new()
                .create(true)
                .append(true)
                .mode(0o640)
                .open(log)
                .with_context(|| format!("cannot write {}", log.display()))?;
            command
                .arg("--detach")
                .stdout(file.try_clone()?)
                .stderr(file);
        }
        if tie != Tie::Loose {
            command.arg("--leashed").stdin(Stdio::piped());
        }
        let child = command
            .spawn()
            .with_context(|| format!("cannot start the {}", daemon.name()))?;
        Ok(Running {
            daemon,
            child,
            log,
            paths: paths.clone(),
        })
    }

    /// Waits until it is ready: all devices are probed (manager), or the port is open. If that
    /// takes long and `progress` is set, prints progress to stderr. A daemon that does not become
    /// ready is stopped.
    pub fn wait_ready(mut self, patience: Option<Duration>, progress: bool) -> Result<Running> {
        match self.poll_ready(patience.unwrap_or(LISTEN_PATIENCE), progress) {
            Ok(()) => Ok(self),
            Err(error) => {
                self.stop();
                Err(error)
            }
        }
    }

    fn poll_ready(&mut self, patience: Duration, progress: bool) -> Result<()> {
        let name = self.daemon.name();
        let started = Instant::now();
        let mut dots = Dots::default();
        let mut control = None;
        while !self.is_ready(&mut control) {
            if let Some(status) = self.child.try_wait()? {
                dots.end();
                let words = self.last_words();
                let hint = if words.contains("Address already in use") {
                    ": another program, or a daemon of another runtime directory, uses that port; `--set …=auto` selects a free one"
                } else {
                    ""
                };
                bail!("the {name} ended ({status}): {words}{hint}");
            }
            if started.elapsed() > patience {
                dots.end();
                bail!(
                    "the {name} is not ready after {} s (see `baltra logs --daemon {name}`)",
                    patience.as_secs(),
                );
            }
            if progress && started.elapsed() > Duration::from_secs(1) {
                dots.step(match self.daemon {
                    Daemon::Manager => "loading drivers ",
                    Daemon::Registry => "starting the registry ",
                    Daemon::Gateway => "starting the gateway ",
                });
                std::thread::sleep(Duration::from_millis(450));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        dots.end();
        Ok(())
    }

    fn is_ready(&self, control: &mut Option<Control>) -> bool {
        if self.daemon != Daemon::Manager {
            let announcement = self.daemon.announcement(&self.paths);
            return announcement.is_some_and(|announcement| announcement.pid == self.child.id());
        }
        if control.is_none() {
            *control = Control::connect(&self.paths).ok();
        }
        let Some(control) = control else {
            return false;
        };
        let status = control.call(|mut c| async move { c.status(proto::StatusRequest {}).await });
        status.is_ok_and(|s| s.ready)
    }

    /// The last line of its log.
    fn last_words(&self) -> String {
        let Some(log) = &self.log else {
            return "see its log".into();
        };
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let last = text.lines().rev().find(|l| !l.trim().is_empty());
        let last = last.unwrap_or("its log is empty");
        last.trim_start_matches("error: ").to_owned()
    }

    /// Its exit status, if it has exited.
    pub fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Stops it and waits for its end.
    pub fn stop(&mut self) {
        drop(self.child.stdin.take());
        if self.ended().is_none() {
            let _ = self.daemon.terminate(self.child.id());
            let _ = self.child.wait();
        }
    }
}

/// Prints progress of a long operation on one line.
#[derive(Default)]
struct Dots {
    shown: bool,
}

impl Dots {
    fn step(&mut self, what: &str) {
        let mut err = std::io::stderr();
        let _ = if self.shown {
            write!(err, ".")
        } else {
            write!(err, "{what}")
        };
        let _ = err.flush();
        self.shown = true;
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.shown) {
            eprintln!();
        }
    }
}

/// The URL of a daemon of this host: loopback if it listens on all addresses.
pub fn url(mut address: SocketAddr, tls: bool) -> String {
    match address {
        SocketAddr::V4(_) if address.ip().is_unspecified() => {
            address.set_ip(Ipv4Addr::LOCALHOST.into());
        }
        SocketAddr::V6(_) if address.ip().is_unspecified() => {
            address.set_ip(Ipv6Addr::LOCALHOST.into());
        }
        _ => {}
    }
    let scheme = if tls { "https" } else { "http" };
    format!("{scheme}://{address}")
}

/// Makes this process exit at the end of its standard input.
pub fn leash() {
    std::thread::spawn(|| {
        use std::io::Read;
        let mut rest = Vec::new();
        let _ = std::io::stdin().take(1).read_to_end(&mut rest);
        let _ = kill_process(rustix::process::getpid(), Signal::TERM);
    });
}

/// Truncates the daemon's log whenever it has grown long, while the process runs.
pub fn bound_log(daemon: Daemon, paths: &PathOptions) {
    let log = daemon.log_file(paths);
    std::thread::spawn(move || loop {
        std::thread::sleep(Duration::from_secs(30));
        baltra_manager::logfile::bound(&log);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_listens_everywhere_is_asked_on_loopback() {
        let of = |text: &str, tls| url(text.parse().unwrap(), tls);
        assert_eq!(of("0.0.0.0:80", false), "http://127.0.0.1:80");
        assert_eq!(of("[::]:80", true), "https://[::1]:80");
        assert_eq!(of("192.0.2.1:80", false), "http://192.0.2.1:80");
    }

    #[test]
    fn an_announcement_counts_while_its_daemon_lives() {
        let dir = tempfile::tempdir().unwrap();
        let paths = PathOptions {
            runtime: dir.path().join("run"),
            state: dir.path().join("state"),
            ..PathOptions::default()
        };
        let daemon = Daemon::Registry;
        assert_eq!(daemon.announcement(&paths), None);
        let lock = daemon.take(&paths).unwrap();
        assert_eq!(daemon.announcement(&paths), None);
        lock.announce("http://127.0.0.1:1".into(), Vec::new())
            .unwrap();
        assert_eq!(
            daemon.announcement(&paths).unwrap().url,
            "http://127.0.0.1:1"
        );
        let error = daemon.take(&paths).unwrap_err().to_string();
        assert!(error.contains("another registry"), "{error}");
        // Each daemon has its own place.
        Daemon::Gateway.take(&paths).unwrap();
        let kept = std::fs::read(daemon.announcement_file(&paths)).unwrap();
        drop(lock);
        assert_eq!(daemon.announcement(&paths), None);
        // The announcement of a killed daemon is ignored.
        std::fs::write(daemon.announcement_file(&paths), kept).unwrap();
        assert_eq!(daemon.announcement(&paths), None);
    }
}
