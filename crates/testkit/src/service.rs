//! A registry or a gateway with its own home directory.

use crate::{stop, Options, START_PATIENCE};
use anyhow::{bail, Context, Result};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A running daemon that listens on a port: `baltra registry` or `baltra gateway`. It listens on a
/// free port of loopback unless its options set one. Dropping it stops it, and its log is printed
/// if the test that holds it panics.
#[derive(Debug)]
pub struct Service {
    program: PathBuf,
    name: String,
    child: Child,
    home: tempfile::TempDir,
    url: String,
}

impl Service {
    /// Starts `baltra NAME` and waits until it listens.
    pub fn start(program: impl AsRef<Path>, name: &str, options: &Options) -> Result<Service> {
        let home = tempfile::Builder::new().prefix("baltra-test-").tempdir()?;
        Service::start_in(program.as_ref(), name, home, options)
    }

    fn start_in(
        program: &Path,
        name: &str,
        home: tempfile::TempDir,
        options: &Options,
    ) -> Result<Service> {
        let config = home.path().join("config.toml");
        std::fs::write(&config, &options.config)?;
        let log = File::options()
            .create(true)
            .append(true)
            .open(home.path().join("log"))?;
        let second = match name {
            "registry" => "registry.metrics=",
            _ => "gateway.grpc_address=",
        };
        let mut command = Command::new(program);
        command
            .arg(name)
            .arg("--runtime-dir")
            .arg(home.path().join("run"))
            .arg("--state-dir")
            .arg(home.path().join("state"))
            .arg("--config")
            .arg(&config)
            .args(["--set", second, "--set", &format!("{name}.address=auto")])
            .env_remove("BALTRA_REGISTRY")
            .env_remove("BALTRA_GATEWAY")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        for assignment in &options.set {
            command.arg("--set").arg(assignment);
        }
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let mut service = Service {
            program: program.to_owned(),
            name: name.to_owned(),
            child,
            home,
            url: String::new(),
        };
        service.wait_ready()?;
        Ok(service)
    }

    fn wait_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("the {} ended ({status}):\n{}", self.name, self.log());
            }
            if let Some(url) = self.published_url() {
                self.url = url;
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("the {} does not serve:\n{}", self.name, self.log());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The address that this process has published, if it has.
    fn published_url(&self) -> Option<String> {
        let path = self.runtime_dir().join(format!("{}.json", self.name));
        let text = std::fs::read_to_string(path).ok()?;
        let own = text.contains(&format!("\"pid\":{},", self.child.id()));
        let (_, rest) = text.split_once("\"url\":\"").filter(|_| own)?;
        Some(rest.split('"').next()?.to_owned())
    }

    /// Its URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its runtime directory.
    pub fn runtime_dir(&self) -> PathBuf {
        self.home.path().join("run")
    }

    /// Its state directory.
    pub fn state_dir(&self) -> PathBuf {
        self.home.path().join("state")
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }

    /// Runs the `baltra` tool with this daemon's runtime directory.
    pub fn baltra(&self, arguments: &[&str]) -> Result<Output> {
        let mut command = Command::new(&self.program);
        command
            .arg("--runtime-dir")
            .arg(self.runtime_dir())
            .args(arguments)
            .env_remove("BALTRA_ENDPOINT")
            .env_remove("BALTRA_REGISTRY")
            .env_remove("BALTRA_GATEWAY")
            .stdin(Stdio::null());
        Ok(command.output()?)
    }

    /// Like [`Service::baltra`]; returns the standard output, or an error if the command failed.
    pub fn text(&self, arguments: &[&str]) -> Result<String> {
        let output = self.baltra(arguments)?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            bail!("baltra {} failed: {stderr}", arguments.join(" "));
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Kills it, as a crash would, and waits for its end.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Restarts it with the same directories and the same port.
    pub fn restart(self, options: &Options) -> Result<Service> {
        let mut old = self;
        stop(&mut old.child);
        let home = std::mem::replace(&mut old.home, tempfile::tempdir()?);
        let (program, name) = (old.program.clone(), old.name.clone());
        let address = old.url.rsplit('/').next().unwrap_or_default().to_owned();
        drop(old);
        let mut options = options.clone();
        options.set.insert(0, format!("{name}.address={address}"));
        Service::start_in(&program, &name, home, &options)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        stop(&mut self.child);
        if std::thread::panicking() {
            eprintln!("--- the {}'s log\n{}---", self.name, self.log());
        }
    }
}
