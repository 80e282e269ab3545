//! The model of the logical and the map file.

use crate::tree::Element;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// Ranks and kernels are numbered below this.
pub const KERNELS_MAX: u32 = 256;
/// Kernels on one board: the router's ports.
pub const KERNELS_PER_BOARD_MAX: usize = 16;

/// Kernels on a board with HTTP (`REGIONS` of `board_shell`), of which one region remains for
/// functions.
pub const KERNELS_BESIDE_HTTP_MAX: usize = 3;

/// TCP sessions of one board, one for each board and each process elsewhere (`SESSIONS` of
/// `msg_tcp`).
pub const SESSIONS_PER_BOARD_MAX: usize = 32;

/// Both files, read and checked.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// The kernels.
    pub logical: Logical,
    /// The nodes and their kernels.
    pub map: Map,
}

/// The logical file.
#[derive(Clone, Debug)]
pub struct Logical {
    /// The path as given.
    pub path: PathBuf,
    /// In the file's order.
    pub kernels: Vec<Kernel>,
    pub(crate) rest: Vec<Element>,
}

/// A kernel of the logical file; `rep` copies of it, numbered from `num` on.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// Its line in the file.
    pub line: usize,
    /// The number of the first copy.
    pub num: u32,
    /// The number of copies.
    pub rep: u32,
    /// C and Verilog files, relative to the logical file; empty: `NAME.c`, `NAME.sv` or `NAME.v`.
    pub sources: Vec<String>,
    /// The program's arguments; `None`: the number of kernels and the kernel's own number, as in
    /// the paper.
    pub args: Option<Vec<String>>,
    /// Name, value, width in bits.
    pub constants: Vec<(String, String, Option<u32>)>,
    /// Streams and buses of a kernel in fabric.
    pub ports: Vec<Port>,
    pub(crate) rest: Vec<Element>,
}

/// A port of a kernel in fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The kind: `s_axis`, `m_axis`, `s_axi` or `m_axi`.
    pub kind: String,
    /// The port's name in the kernel.
    pub name: String,
    /// The scope; `global` if the file has none.
    pub scope: String,
    /// Whether its signals are captured.
    pub debug: bool,
    /// Bytes of memory behind an `m_axi`.
    pub bytes: Option<u64>,
}

/// Default size of the memory behind an `m_axi`, in bytes.
const MEMORY_BYTES: u64 = 16 << 20;

impl Kernel {
    /// Bytes of off-chip memory. A kernel has such memory if it has an `m_axi` that is not `local`
    /// to the board.
    pub fn memory(&self) -> Option<u64> {
        let port = (self.ports.iter()).find(|p| p.kind == "m_axi" && p.scope != "local")?;
        Some(port.bytes.unwrap_or(MEMORY_BYTES))
    }

    /// The streams with a capture core (`out`, `in` or `both`): those whose port has `<debug/>`.
    pub fn captured(&self) -> Option<&'static str> {
        let on = |kind: &str| self.ports.iter().any(|p| p.debug && p.kind == kind);
        match (on("m_axis"), on("s_axis")) {
            (true, true) => Some("both"),
            (true, false) => Some("out"),
            (false, true) => Some("in"),
            (false, false) => None,
        }
    }
}

/// The map file.
#[derive(Clone, Debug)]
pub struct Map {
    /// The path as given.
    pub path: PathBuf,
    /// In the file's order.
    pub nodes: Vec<Node>,
    pub(crate) rest: Vec<Element>,
}

/// Whether a node is a host or a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A host: its kernels are processes.
    Software,
    /// A board: its kernels are in fabric.
    Hardware,
}

/// The connection of a node's kernels with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comm {
    /// Shared memory: one host only.
    Shm,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// Raw Ethernet.
    Eth,
}

impl Comm {
    /// The map file's word.
    pub fn word(self) -> &'static str {
        match self {
            Comm::Shm => "shm",
            Comm::Tcp => "tcp",
            Comm::Udp => "udp",
            Comm::Eth => "eth",
        }
    }
}

/// A host or a board of the map file.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its line in the file.
    pub line: usize,
    /// Host or board.
    pub kind: NodeKind,
    /// The board's model.
    pub board: Option<String>,
    /// The protocol; `None`: the protocol of the other nodes.
    pub comm: Option<Comm>,
    /// Kernels by number, each with its line and, on a board of several dies, its die.
    pub kernels: Vec<KernelPlacement>,
    /// The hardware address, for raw Ethernet.
    pub mac: Option<String>,
    /// The IP address, for TCP and UDP.
    pub ip: Option<IpAddr>,
    /// The address and port of this host at which the board also serves its functions over HTTP.
    pub http: Option<SocketAddr>,
    /// The communication layer's bridge: the names of its ports by role. Empty: plain streams.
    pub bridge: BTreeMap<String, String>,
    pub(crate) rest: Vec<Element>,
}

/// A kernel on a node.
#[derive(Clone, Debug)]
pub struct KernelPlacement {
    /// The kernel's number.
    pub kernel: u32,
    /// Its line in the file.
    pub line: usize,
    /// The die on which the kernel shall be placed.
    pub slr: Option<String>,
    /// The form requested for a kernel on a board (`type`); `None`: the form of the logical file.
    pub form: Option<String>,
}

impl Kernel {
    /// The numbers of its copies.
    pub fn numbers(&self) -> std::ops::Range<u32> {
        self.num..self.num.saturating_add(self.rep)
    }
}

impl Logical {
    /// The kernel that has this number.
    pub fn kernel(&self, number: u32) -> Option<&Kernel> {
        self.kernels.iter().find(|k| k.numbers().contains(&number))
    }

    /// [`Kernel::captured`] of the kernel that has this number.
    pub fn captured(&self, number: u32) -> Option<&'static str> {
        self.kernel(number)?.captured()
    }
}

impl Cluster {
    /// The folder of the logical file, which source paths are relative to.
    pub(crate) fn folder(&self) -> &Path {
        match self.logical.path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        }
    }

    /// The number of kernels, including copies.
    pub fn size(&self) -> usize {
        self.logical.kernels.iter().map(|k| k.rep as usize).sum()
    }

    /// A node's name in messages.
    pub fn node_name(&self, node: usize) -> String {
        let n = &self.map.nodes[node];
        match (&n.ip, &n.mac) {
            (Some(ip), _) => format!("node {node} ({ip})"),
            (None, Some(mac)) => format!("node {node} ({mac})"),
            (None, None) => format!("node {node}"),
        }
    }
}
