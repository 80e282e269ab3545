//! Starts real daemons for integration tests.
//!
//! A [`Daemon`] has its own directories, and no TCP port and no metrics. Dropping it stops it, and
//! its log is printed if the test that holds it panics.
#![forbid(unsafe_code)]

mod service;

pub use service::Service;

use anyhow::{bail, Context, Result};
use baltra_wire::{Hello, VERSION};
use std::fs::File;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Time limit for a daemon's start, generous for a busy machine.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// A daemon's options.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// `section.key=value`, as `--set` takes it.
    pub set: Vec<String>,
    /// A configuration file's text.
    pub config: String,
    /// Whether a daemon compiles every kernel, instead of sharing compiled kernels with other
    /// daemons.
    pub own_kernels: bool,
}

/// A running daemon.
#[derive(Debug)]
pub struct Daemon {
    program: PathBuf,
    child: Child,
    home: tempfile::TempDir,
}

impl Daemon {
    /// Starts `program` (the `baltra` binary: `env!("CARGO_BIN_EXE_baltra")`) with the embedded
    /// configuration and waits until it serves.
    pub fn start(program: impl AsRef<Path>) -> Result<Daemon> {
        Daemon::start_with(program, &Options::default())
    }

    /// Like [`Daemon::start`], with other options.
    pub fn start_with(program: impl AsRef<Path>, options: &Options) -> Result<Daemon> {
        let home = tempfile::Builder::new().prefix("baltra-test-").tempdir()?;
        let mut daemon = Daemon::spawn(program.as_ref(), home, options)?;
        daemon.wait_ready()?;
        Ok(daemon)
    }

    fn spawn(program: &Path, home: tempfile::TempDir, options: &Options) -> Result<Daemon> {
        let config = home.path().join("config.toml");
        std::fs::write(&config, &options.config)?;
        let log = File::create(home.path().join("log"))?;
        let vendors = home.path().join("vendors");
        announce_driver(&vendors)?;
        if !options.own_kernels {
            share_kernels(&home.path().join("state"))?;
        }
        let xrt = home.path().join("xrt");
        // It exists when a daemon is restarted.
        if !xrt.exists() {
            std::fs::create_dir(&xrt)?;
            std::os::unix::fs::symlink("/usr/lib/x86_64-linux-gnu", xrt.join("lib"))?;
        }
        let mut command = Command::new(program);
        // PoCL provides as many devices as the configuration serves.
        let devices = options.config.matches("[[device]]").count();
        if devices > 1 {
            command.env("POCL_DEVICES", vec!["pthread"; devices].join(" "));
        }
        command
            // Mesa's driver provides devices only if this variable is set.
            .env("RUSTICL_ENABLE", "llvmpipe")
            // Xilinx's runtime provides a device without hardware.
            .env("XILINX_XRT", &xrt)
            .env("XCL_EMULATION_MODE", "noop")
            .arg("manager")
            .arg("--runtime-dir")
            .arg(home.path().join("run"))
            .arg("--state-dir")
            .arg(home.path().join("state"))
            .arg("--config")
            .arg(&config)
            .args(["--set", "metrics.address=", "--set"])
            .arg(format!("paths.vendors={}", vendors.display()))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        for assignment in &options.set {
            command.arg("--set").arg(assignment);
        }
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Daemon {
            program: program.to_owned(),
            child,
            home,
        })
    }

    fn wait_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("the daemon ended ({status}):\n{}", self.log());
            }
            let began = Instant::now();
            let status = self.baltra(&["status", "--json"])?;
            let text = String::from_utf8_lossy(&status.stdout).into_owned();
            if status.status.success() && text.contains("\"ready\": true") {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("the daemon does not serve:\n{}", self.log());
            }
            pause_after(began);
        }
    }

    /// The manager's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The directory in which Xilinx's runtime finds its libraries (`XILINX_XRT`).
    pub fn xrt_dir(&self) -> PathBuf {
        self.home.path().join("xrt")
    }

    /// The directory of its sockets.
    pub fn runtime_dir(&self) -> PathBuf {
        self.home.path().join("run")
    }

    /// The directory of its tenants, usage and images.
    pub fn state_dir(&self) -> PathBuf {
        self.home.path().join("state")
    }

    /// The socket that clients connect to.
    pub fn socket(&self) -> PathBuf {
        self.runtime_dir().join("baltra.sock")
    }

    /// The value for `BALTRA_ENDPOINT`.
    pub fn endpoint(&self) -> String {
        format!("unix:{}", self.socket().display())
    }

    /// A connection without a session.
    pub fn connect(&self) -> Result<UnixStream> {
        let stream = UnixStream::connect(self.socket())?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.set_write_timeout(Some(Duration::from_secs(20)))?;
        Ok(stream)
    }

    /// Runs the `baltra` tool with this daemon.
    pub fn baltra(&self, arguments: &[&str]) -> Result<Output> {
        let mut command = Command::new(&self.program);
        command
            .arg("--runtime-dir")
            .arg(self.runtime_dir())
            .args(arguments)
            .env_remove("BALTRA_ENDPOINT");
        Ok(command.output()?)
    }

    /// Like [`Daemon::baltra`]; returns the standard output, or an error if the command failed.
    pub fn text(&self, arguments: &[&str]) -> Result<String> {
        let output = self.baltra(arguments)?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            bail!("baltra {} failed: {stderr}", arguments.join(" "));
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }

    /// Kills the manager, as a crash would, and waits for its end.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Starts a manager again on the same directories.
    pub fn restart(self, options: &Options) -> Result<Daemon> {
        let mut old = self;
        old.stop();
        let placeholder = tempfile::tempdir()?;
        let program = old.program.clone();
        let home = std::mem::replace(&mut old.home, placeholder);
        drop(old);
        let mut daemon = Daemon::spawn(&program, home, options)?;
        daemon.wait_ready()?;
        Ok(daemon)
    }

    /// Number of descriptors that the manager has open.
    pub fn open_files(&self) -> usize {
        let dir = std::fs::read_dir(format!("/proc/{}/fd", self.pid()));
        dir.map_or(0, |d| d.count())
    }

    /// The manager's child processes.
    pub fn children(&self) -> Vec<u32> {
        children(self.pid())
    }

    /// Sends SIGTERM, and waits for the end.
    fn stop(&mut self) {
        stop(&mut self.child);
    }
}

/// Lets a daemon use the kernels that drivers have compiled for other daemons of the tests, because
/// most tests run the same few programs. Devices and tenants of the same names share them.
fn share_kernels(state: &Path) -> Result<()> {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tests/kernels");
    std::fs::create_dir_all(&shared)?;
    std::fs::create_dir_all(state)?;
    let cache = state.join("cache");
    // It exists when a daemon is restarted.
    if !cache.exists() {
        std::os::unix::fs::symlink(shared.canonicalize()?, cache)?;
    }
    Ok(())
}

/// The `.icd` file of the tests' driver: PoCL's, or that of `BALTRA_TEST_ICD`.
pub fn driver_icd() -> PathBuf {
    let given = std::env::var_os("BALTRA_TEST_ICD");
    given.map_or("/etc/OpenCL/vendors/pocl.icd".into(), PathBuf::from)
}

/// Creates a vendors directory that registers the tests' driver alone.
fn announce_driver(vendors: &Path) -> Result<()> {
    std::fs::create_dir_all(vendors)?;
    let installed = driver_icd();
    if installed.exists() {
        std::fs::copy(installed, vendors.join("driver.icd"))?;
    }
    Ok(())
}

/// Sends SIGTERM, and waits for the end.
fn stop(child: &mut Child) {
    if let Ok(None) = child.try_wait() {
        let pid = rustix::process::Pid::from_child(child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let deadline = Instant::now() + Duration::from_secs(20);
        while let Ok(None) = child.try_wait() {
            if Instant::now() > deadline {
                let _ = child.kill();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop();
        if std::thread::panicking() {
            eprintln!("--- the daemon's log\n{}---", self.log());
        }
    }
}

/// The children of a process, except zombies.
pub fn children(parent: u32) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let mut text = String::new();
        let read =
            File::open(format!("/proc/{pid}/stat")).and_then(|mut f| f.read_to_string(&mut text));
        // The name in parentheses may contain any character; the state and the parent follow it.
        let fields: Vec<&str> = text
            .rsplit_once(')')
            .map(|(_, rest)| rest.split_whitespace().collect())
            .unwrap_or_default();
        read.is_ok()
            && fields.get(1).and_then(|p| p.parse().ok()) == Some(parent)
            && fields.first() != Some(&"Z")
    })
    .collect()
}

/// Waits until `condition` holds; returns an error after a minute.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let began = Instant::now();
        if condition() {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("not true after a minute: {what}");
        }
        pause_after(began);
    }
}

/// Pauses before a condition is checked again that was checked since `began`: four times as long as
/// that took, because a check that starts a program takes the processors from what it waits for.
fn pause_after(began: Instant) {
    let took = began.elapsed();
    std::thread::sleep((took * 4).clamp(Duration::from_millis(10), Duration::from_millis(200)));
}

/// A valid hello.
pub fn hello(device: &str) -> Hello {
    Hello {
        version: VERSION,
        tenant: String::new(),
        token: String::new(),
        instance: format!("test ({})", std::process::id()),
        device: device.to_owned(),
        resume: None,
        mirror: false,
    }
}
