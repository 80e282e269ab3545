//! The daemon's control socket: one line of JSON as the request, one as the answer. Only the
//! daemon's user may connect.

use crate::definition::Definition;
use crate::protocol::Usage;
use anyhow::{bail, Context, Result};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest line.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Time limit of either side.
const PATIENCE: Duration = Duration::from_secs(30);

/// A request.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Create a VM's region, or change its permissions and limits.
    Attach(Box<Definition>),
    /// List all VMs.
    List,
    /// Remove a VM's region.
    Detach {
        /// Its name.
        name: String,
    },
}

/// The answer to a request.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// The VM's region is available.
    Attached(Box<Attached>),
    /// All VMs.
    Vms(Vec<Status>),
    /// The request succeeded.
    Done,
    /// The reason of a failure.
    Failed(String),
}

/// Location of a VM's region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// Its permissions and limits.
    pub definition: Definition,
    /// The socket for its `ivshmem-doorbell` device.
    pub socket: PathBuf,
    /// The socket for a virtio-serial port.
    pub stream: PathBuf,
    /// With `plain`: the path of its region.
    pub memory: Option<PathBuf>,
    /// Interrupt vectors of the device.
    pub vectors: u32,
}

/// State of a VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its permissions and limits.
    pub definition: Definition,
    /// Its socket.
    pub socket: PathBuf,
    /// Processes that map its region: QEMU, or applications of the host.
    pub peers: Vec<u32>,
    /// The process that serves it.
    pub worker: Option<u32>,
    /// Workers that ended unexpectedly.
    pub restarts: u32,
    /// Its usage.
    pub usage: Usage,
}

/// The socket, in the daemon's directory.
pub fn control_socket(runtime: &Path) -> PathBuf {
    runtime.join("vfun.sock")
}

/// Sends a request to the daemon whose sockets are in this directory.
pub fn ask(runtime: &Path, request: &Request) -> Result<Answer> {
    let path = control_socket(runtime);
    let socket = UnixStream::connect(&path).with_context(|| {
        format!(
            "cannot connect to `baltra vfun` at {}: start it, or pass its --runtime-dir",
            path.display()
        )
    })?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    (&socket).write_all(&line)?;
    match read(&socket)? {
        Some(Answer::Failed(text)) => bail!("{text}"),
        Some(answer) => Ok(answer),
        None => bail!("the daemon exited before it answered"),
    }
}

/// Reads a line from a socket.
pub(crate) fn read<T: serde::de::DeserializeOwned>(socket: &UnixStream) -> Result<Option<T>> {
    let mut line = String::new();
    BufReader::new(socket.take(LINE_BYTES_MAX)).read_line(&mut line)?;
    if line.is_empty() {
        Ok(None)
    } else {
        Ok(Some(serde_json::from_str(&line)?))
    }
}

/// Handles a request on a socket.
pub(crate) fn answer(socket: &UnixStream, run: impl FnOnce(Request) -> Result<Answer>) {
    let bounds = socket
        .set_read_timeout(Some(Duration::from_secs(2)))
        .and_then(|()| socket.set_write_timeout(Some(Duration::from_secs(2))));
    let request = bounds.map_err(Into::into).and_then(|()| read(socket));
    let answer = match request {
        Ok(Some(request)) => run(request).unwrap_or_else(|e| Answer::Failed(format!("{e:#}"))),
        Ok(None) => return,
        Err(error) => Answer::Failed(format!("invalid request: {error:#}")),
    };
    if let Ok(mut line) = serde_json::to_vec(&answer) {
        line.push(b'\n');
        // A client that does not wait for the answer does not get one.
        let _ = (&mut &*socket).write_all(&line);
    }
}
