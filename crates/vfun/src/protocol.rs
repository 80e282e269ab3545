//! Messages between daemon and worker: JSON in packets of a socket, with descriptors.

use crate::definition::Definition;
use anyhow::{Context, Result};
use baltra_session::fd::{recv_with_fds, send_with_fds};
use serde::{de::DeserializeOwned, Deserialize, Serialize};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// The longest packet.
const PACKET_BYTES_MAX: usize = 128 << 10;

/// To the worker.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToWorker {
    /// The first packet; with the region.
    Start(Box<Start>),
    /// Further doorbells of the host.
    Events,
    /// A peer connected; with some of its doorbells.
    Peer(u32),
    /// New streams: a virtio-serial port's other end, or TCP connections.
    Stream,
    /// A peer disconnected.
    PeerGone(u32),
    /// The devices of a function in the pool, or the reason why there are none.
    Placed {
        /// The number of the request.
        call: u64,
        /// The devices, the best first.
        devices: Result<Vec<PooledDevice>, Unplaced>,
    },
    /// The instance of a program in the pool; `None`: its device needs none.
    Opened {
        /// The number of the request.
        call: u64,
        /// The instance.
        instance: Option<String>,
    },
}

/// A device of the pool, on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PooledDevice {
    /// The node's name.
    pub node: String,
    /// The endpoint of its manager.
    pub endpoint: String,
    /// The device's name.
    pub device: String,
    /// The instance to which it is allocated, if it holds one accelerator at a time.
    pub instance: Option<String>,
}

/// Why a function gets no device of the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unplaced {
    /// The registry does not respond.
    Unreachable(String),
    /// No device fits.
    Refused(String),
}

/// The settings for serving a region.
#[derive(Debug, Serialize, Deserialize)]
pub struct Start {
    /// The VM.
    pub definition: Definition,
    /// The epoch that the worker begins.
    pub epoch: u32,
    /// Number of doorbells that follow; 0: the worker polls.
    pub vectors: u32,
    /// The worker's directory, with a directory for each function in `functions`.
    pub work_dir: PathBuf,
    /// Device Managers for accelerators, as the gateway's `engine.endpoints`; empty: none.
    pub endpoints: Vec<String>,
    /// Whether the daemon allocates devices by a registry.
    pub pooled: bool,
    /// Whether to drop privileges that the process does not need.
    pub sandbox: bool,
}

/// From the worker.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromWorker {
    /// The worker is ready.
    Ready,
    /// Usage so far.
    Usage(Usage),
    /// A function needs devices of the pool; it keeps those that it has.
    Place {
        /// The number of the request.
        call: u64,
        /// The function.
        function: String,
        /// Number of devices.
        count: usize,
        /// Devices that failed recently, as `node/device`.
        except: Vec<String>,
    },
    /// A function needs no devices any more.
    Forget {
        /// The function.
        function: String,
    },
    /// An OpenCL program opens a session on a device.
    Open {
        /// The number of the request.
        call: u64,
        /// The device's name.
        device: String,
    },
    /// The session of an instance has ended.
    Close {
        /// The instance.
        instance: String,
    },
}

/// Usage of a VM since its worker started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Current number of applications.
    pub applications: u32,
    /// Completed calls.
    pub calls: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Protocol violations by applications.
    pub broken: u64,
    /// Time of calls, microseconds.
    pub busy_us: u64,
    /// Bytes of inputs and outputs.
    pub bytes: u64,
}

impl Usage {
    /// The sum of both; `applications` is taken from `other`.
    pub fn plus(self, other: Usage) -> Usage {
        Usage {
            applications: other.applications,
            calls: self.calls + other.calls,
            refused: self.refused + other.refused,
            broken: self.broken + other.broken,
            busy_us: self.busy_us + other.busy_us,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// Sends a packet.
pub fn send(socket: impl AsFd, message: &impl Serialize, fds: &[BorrowedFd<'_>]) -> Result<()> {
    let packet = serde_json::to_vec(message)?;
    send_with_fds(socket, &packet, fds).context("the peer closed the connection")
}

/// Receives a packet; `None`: the peer closed the connection.
pub fn receive<T: DeserializeOwned>(
    socket: impl AsFd,
    wait: bool,
) -> Result<Option<(T, Vec<OwnedFd>)>> {
    let mut packet = vec![0; PACKET_BYTES_MAX];
    let (n, fds) = recv_with_fds(socket, &mut packet, wait)?;
    match n {
        0 => Ok(None),
        n => Ok(Some((serde_json::from_slice(&packet[..n])?, fds))),
    }
}
