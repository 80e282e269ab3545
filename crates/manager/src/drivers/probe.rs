//! Lists a driver's devices in a separate process.

use super::Probed;
use baltra_wire::listing::Listing;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Size limit of a probe's output.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Options for probing drivers.
#[derive(Clone, Debug)]
pub struct Prober {
    /// The program for probing; empty: the running program.
    pub program: PathBuf,
    /// Whether the process is sandboxed.
    pub sandbox: bool,
    /// Time limit for loading a driver.
    pub timeout: Duration,
}

/// The program to start: the configured one, or this one, even if its file was replaced.
pub(crate) fn program(configured: &Path) -> Command {
    let path = if configured.as_os_str().is_empty() {
        Path::new("/proc/self/exe")
    } else {
        configured
    };
    let mut command = Command::new(path);
    command.arg0("baltra");
    // The loader's and Baltra's own variables would lead a driver back to Baltra; a collector's key
    // must not reach a tenant.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let leads_astray = |prefix: &&str| text.starts_with(*prefix);
        if ["OCL_ICD_", "BALTRA_", "OTEL_"].iter().any(leads_astray) {
            command.env_remove(name);
        }
    }
    command
}

impl Prober {
    /// Probes libraries concurrently; the results are in their order.
    pub fn probe<'a>(&self, libraries: impl Iterator<Item = &'a PathBuf>) -> Vec<Probed> {
        std::thread::scope(|scope| {
            let probes: Vec<_> = libraries
                .map(|library| (library, scope.spawn(|| self.list(library))))
                .collect();
            let result = |(library, probe): (&PathBuf, std::thread::ScopedJoinHandle<'_, _>)| {
                let listing = probe
                    .join()
                    .unwrap_or_else(|_| Err("the thread that probes it panicked".into()));
                Probed {
                    library: library.clone(),
                    listing,
                }
            };
            probes.into_iter().map(result).collect()
        })
    }

    fn list(&self, library: &Path) -> Result<Listing, String> {
        let failed = |error: io::Error| format!("cannot start a probe: {error}");
        let work = tempfile::Builder::new().prefix("baltra-probe-").tempdir();
        let work = work.map_err(failed)?;
        let mut command = program(&self.program);
        command
            .arg("probe")
            .arg("--driver")
            .arg(library)
            .arg("--work-dir")
            .arg(work.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        if !self.sandbox {
            command.arg("--no-sandbox");
        }
        let mut child = command.spawn().map_err(failed)?;
        let answer = read_answer(&mut child, Instant::now() + self.timeout);
        // The process is not needed after its output, and a driver's exit handlers may hang.
        let _ = child.kill();
        let status = child.wait();
        let answer = answer.map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => format!(
                "the driver did not list its devices within {:?}",
                self.timeout
            ),
            _ => error.to_string(),
        })?;
        let ended = || {
            let how = status.map_or_else(|e| e.to_string(), |s| s.to_string());
            format!("the process that loads it ended ({how})")
        };
        serde_json::from_slice::<Result<Listing, String>>(&answer).map_err(|_| ended())?
    }
}

/// Reads a child's output until it closes its standard output.
fn read_answer(child: &mut Child, deadline: Instant) -> io::Result<Vec<u8>> {
    let Some(mut out) = child.stdout.take() else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    let mut answer = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        let ready = match poll(&mut [PollFd::new(&out.as_fd(), PollFlags::IN)], Some(&left)) {
            Err(rustix::io::Errno::INTR) => continue,
            ready => ready?,
        };
        if ready == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match out.read(&mut chunk)? {
            0 => return Ok(answer),
            n if answer.len() + n > ANSWER_BYTES_MAX => {
                return Err(io::Error::other("the list of its devices is too long"));
            }
            n => answer.extend_from_slice(&chunk[..n]),
        }
    }
}
