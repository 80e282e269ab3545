//! Starts a native function's process and detects its end.

use super::lane::RING_BYTES;
use crate::cold_start::ColdStart;
use crate::device::error::StartError;
use crate::log::Log;
use crate::options::Options;
use baltra_functions::manifest::Native;
use baltra_functions::Function;
use baltra_native::protocol::{framed, memory_bytes, rings, Start, Started, SOCKET_BYTES_MAX};
use baltra_ring::{Locked, Memory, Range, Unpoisoned};
use baltra_session::fd::send_with_fds;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Timeout of a process for loading its library.
const START_PATIENCE: Duration = Duration::from_secs(20);
/// Time for which a process's thread spins for the next call before it sleeps; unsuccessful spins
/// make further spins rarer.
const SPIN_US: u64 = 50;
/// Environment variables that the process inherits, which exclude tokens.
const ENVIRONMENT: [&str; 5] = ["PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH"];

/// The process.
pub struct Process {
    child: Mutex<Child>,
    /// A byte on it signals replies; its end is the end of the process.
    pub socket: UnixStream,
    _dir: tempfile::TempDir,
}

fn node(what: &str) -> impl Fn(io::Error) -> StartError + '_ {
    move |e| StartError::Node(format!("cannot start a native worker: {what}: {e}"))
}

/// The rings of each lane: calls and replies.
type Rings = Vec<(Range, Range)>;

impl Process {
    /// Starts a process that loads the function's library. Returns it with each lane's rings and
    /// the startup time.
    pub fn start(
        function: &Function,
        wanted: &Native,
        lanes: u32,
        options: &Options,
        log: &Arc<Log>,
    ) -> Result<(Process, Rings, ColdStart), StartError> {
        let begun = Instant::now();
        let dir = tempfile::Builder::new().prefix("baltra-native-").tempdir();
        let dir = dir.map_err(node("creating its directory"))?;
        let library = library(function, wanted, dir.path())?;
        let program = if options.native_program.as_os_str().is_empty() {
            std::env::current_exe().map_err(node("its program"))?
        } else {
            options.native_program.clone()
        };
        let (socket, theirs) = UnixStream::pair().map_err(node("a socket"))?;
        let mut command = Command::new(&program);
        command
            .arg("native-worker")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .env_clear()
            .current_dir(dir.path());
        for name in ENVIRONMENT {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        let child = command.spawn();
        // The command holds the process's end of the socket open.
        drop(command);
        let what = format!("{} native-worker", program.display());
        let mut child = child.map_err(node(&what))?;
        if let Some(out) = child.stdout.take() {
            listen(out, log);
        }
        if let Some(out) = child.stderr.take() {
            listen(out, log);
        }
        let process = Process {
            child: Mutex::new(child),
            socket,
            _dir: dir,
        };
        let spawned = Instant::now();
        let memory = process.introduce(&library, wanted, lanes, options)?;
        let loaded = Instant::now();
        let rings = (0..lanes).filter_map(|lane| rings(&memory, lane, RING_BYTES as u64));
        let rings = rings.collect();
        let cold = ColdStart {
            session: spawned - begun,
            program: loaded - spawned,
            queues: loaded.elapsed(),
        };
        Ok((process, rings, cold))
    }

    /// Sends the description of the function to load, and waits until it is loaded.
    fn introduce(
        &self,
        library: &std::path::Path,
        wanted: &Native,
        lanes: u32,
        options: &Options,
    ) -> Result<Memory, StartError> {
        let bytes = memory_bytes(lanes, RING_BYTES as u64);
        let memory = Memory::create("baltra-native", bytes);
        let (memory, fd) = memory.map_err(node("shared memory"))?;
        let spin_us = match std::thread::available_parallelism().map_or(1, |n| n.get()) {
            1 => 0,
            _ => SPIN_US,
        };
        let start = framed(&Start {
            library: library.to_string_lossy().into_owned(),
            symbols: vec![wanted.symbol.clone()],
            lanes,
            ring_bytes: RING_BYTES as u64,
            spin_us,
            sandbox: options.sandbox,
            work_dir: self._dir.path().to_string_lossy().into_owned(),
        });
        let start = start.map_err(node("sending the first message"))?;
        // The length is sent with the descriptors; the rest follows without them.
        let sent = send_with_fds(&self.socket, &start[..4], &[fd.as_fd()]);
        let sent = sent.and_then(|()| io::Write::write_all(&mut &self.socket, &start[4..]));
        let answered = sent.and_then(|()| self.started());
        match answered {
            Ok(Started { error }) if error.is_empty() => {}
            Ok(Started { error }) => return Err(StartError::Function(error)),
            Err(error) => {
                let timed_out = error.kind() == io::ErrorKind::WouldBlock;
                if timed_out {
                    self.kill();
                }
                return Err(StartError::Function(if timed_out {
                    "the library was not loaded in time".into()
                } else {
                    format!("cannot load the library: {}", self.wait())
                }));
            }
        }
        self.socket
            .set_nonblocking(true)
            .map_err(node("a socket"))?;
        Ok(memory)
    }

    fn started(&self) -> io::Result<Started> {
        let mut socket = &self.socket;
        socket.set_read_timeout(Some(START_PATIENCE))?;
        let mut len = [0; 4];
        socket.read_exact(&mut len)?;
        let len = u32::from_le_bytes(len) as usize;
        if len > SOCKET_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut body = vec![0; len];
        socket.read_exact(&mut body)?;
        postcard::from_bytes(&body).map_err(io::Error::other)
    }

    /// Kills the process.
    pub fn kill(&self) {
        // An error means that the process has ended already.
        let _ = self.child.locked().kill();
    }

    /// Waits for the end of the process; returns its cause.
    pub fn wait(&self) -> String {
        // The socket may close shortly before the process exits. Poll, because a lock held while
        // waiting would block `kill`.
        let deadline = Instant::now() + Duration::from_secs(2);
        loop {
            let ended = self.child.locked().try_wait();
            match ended {
                Ok(Some(status)) => {
                    return match (status.signal(), status.code()) {
                        (Some(signal), _) => {
                            format!("the native worker was killed by {}", signal_name(signal))
                        }
                        (_, code) => format!(
                            "the native worker exited with code {}",
                            code.unwrap_or_default()
                        ),
                    };
                }
                Ok(None) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Ok(None) => self.kill(),
                Err(error) => return format!("the native worker has exited: {error}"),
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let child = self.child.get_mut().unpoisoned();
        let _ = child.kill();
        // A killed process ends at once.
        let _ = child.wait();
    }
}

fn signal_name(signal: i32) -> String {
    let name = match signal {
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        15 => "SIGTERM",
        31 => "SIGSYS",
        _ => return format!("signal {signal}"),
    };
    format!("signal {signal} ({name})")
}

/// Makes a private copy of the library, which cannot change meanwhile.
fn library(
    function: &Function,
    wanted: &Native,
    dir: &std::path::Path,
) -> Result<PathBuf, StartError> {
    let name = &wanted.library;
    let contents = function.files.contents.get(name);
    let contents = contents.ok_or_else(|| {
        StartError::Function(format!("'{name}' is not among the function's files"))
    })?;
    let path = dir.join("library.so");
    std::fs::write(&path, contents).map_err(node("copying the library"))?;
    Ok(path)
}

fn listen(mut out: impl Read + Send + 'static, log: &Arc<Log>) {
    let log = log.clone();
    let listen = move || {
        let mut bytes = [0; 4096];
        while let Ok(n @ 1..) = out.read(&mut bytes) {
            log.print("native", &bytes[..n]);
        }
    };
    // Without the thread, only the function's output is lost.
    let _ = std::thread::Builder::new()
        .name("native log".into())
        .spawn(listen);
}
