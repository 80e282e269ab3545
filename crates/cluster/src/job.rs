//! The resources that ranks share, and the environment variables that describe them:
//! `humboldt/src/job.c` reads them.
//!
//! The ranks of one node share a memfd, and each has a doorbell (eventfd). A rank that others reach
//! over TCP inherits a listening socket; a rank on raw Ethernet inherits a datagram socket for its
//! frames. A board is one process with the ranks of its kernels. The board has the node's memfd for
//! its counters, one datagram socket for frames (of raw Ethernet, or of TCP between boards), and a
//! listening socket if processes reach it over TCP. Descriptors are made close-on-exec and handed
//! down as copies while a rank is started, so that a rank inherits only the descriptors of its own
//! node.

use anyhow::{Context, Result};
use rustix::event::{eventfd, EventfdFlags};
use rustix::fs::{memfd_create, MemfdFlags};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command};

/// Sizes in bytes: the first page of a node's segment, a rank's block in it, and a rank's report,
/// which follows all blocks.
const PAGE: u64 = 4096;
const BLOCK: u64 = 512;
const REPORT: u64 = 2104;
/// A process that has slept this long has polled its connections several times.
const LOOK_NS: u64 = 500_000_000;
/// Most ranks of a segment.
const RANKS_MAX: u64 = 256;
/// Milliseconds without a reply after which ranks give up a kernel on a live model. The limit is
/// long because a busy host slows the model down; the launcher detects the model's end at once.
const MODEL_SILENT_MS: u64 = 120_000;

/// A rank's address for its peers.
#[derive(Clone, Debug)]
pub struct Member {
    /// Ranks with the same number share memory.
    pub group: usize,
    /// The address that it listens on, if there are other groups.
    pub listen: Option<IpAddr>,
    /// The port; 0 selects any free port.
    pub port: u16,
    /// Whether this launcher starts it.
    pub here: bool,
    /// The node's hardware address, if the node has frames: on raw Ethernet, on UDP, and on every
    /// board.
    pub mac: Option<String>,
    /// The node's IPv4 address, if its frames are sent over UDP.
    pub udp: Option<Ipv4Addr>,
    /// Whether ranks of other groups reach it over TCP.
    pub tcp: bool,
    /// Whether it is a kernel of a board, whose group is one process.
    pub board: bool,
    /// Whether it has streams but no engines.
    pub streams: bool,
    /// Whether another MPI starts this rank. That MPI also carries the messages among such ranks.
    pub mpi: bool,
}

impl Member {
    /// The prefix of a rank's address for other ranks: it distinguishes a kernel on a board, a
    /// kernel with streams, and a process on raw Ethernet.
    fn kind(&self) -> &'static str {
        match (self.streams, self.board) {
            (true, _) => "str",
            (_, true) => "fab",
            _ => "eth",
        }
    }

    /// The format that ranks parse: the hardware address, followed by a slash and the IPv4 address
    /// if frames are sent over UDP.
    fn address(&self) -> String {
        let mac = self.mac.as_deref().unwrap_or_default();
        match self.udp {
            Some(ip) => format!("{mac}/{ip}"),
            None => mac.to_owned(),
        }
    }
}

/// The wire between the nodes on raw Ethernet: a folder of sockets, removed with the job.
#[derive(Debug)]
struct Wire {
    folder: PathBuf,
    /// Sockets by rank; a board's socket is at its first rank.
    sockets: Vec<Option<UnixDatagram>>,
}

impl Wire {
    fn new(members: &[Member]) -> Result<Wire> {
        let name = format!("baltra-{}", &new_key()?[..12]);
        let folder = std::env::temp_dir().join(name);
        DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let mut wire = Wire {
            folder,
            sockets: Vec::new(),
        };
        for rank in 0..members.len() {
            let member = &members[rank];
            let binds = station(members, rank) == rank && member.mac.is_some() && !member.mpi;
            let socket = if binds {
                Some(UnixDatagram::bind(wire.path(rank)).context("cannot create a socket")?)
            } else {
                None
            };
            wire.sockets.push(socket);
        }
        Ok(wire)
    }

    fn path(&self, station: usize) -> PathBuf {
        self.folder.join(station.to_string())
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The rank that holds a rank's sockets: the board's first rank, or the rank itself.
fn station(members: &[Member], rank: usize) -> usize {
    if members[rank].board {
        members
            .iter()
            .position(|m| m.group == members[rank].group)
            .unwrap_or(rank)
    } else {
        rank
    }
}

/// Counters of a rank.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// 0 starting, 1 running, 2 finished, 3 failed.
    pub state: u32,
    /// Number of messages sent.
    pub sent: u64,
    /// Payload bytes sent.
    pub sent_bytes: u64,
    /// Number of messages received.
    pub received: u64,
    /// Payload bytes received.
    pub received_bytes: u64,
    /// Time spent asleep, in nanoseconds.
    pub waited_ns: u64,
}

/// The counters of a rank in its node's segment.
pub fn counters(segment: &File, rank: usize) -> Counters {
    let mut block = [0_u8; BLOCK as usize];
    // The ranks have not grown the segment to this size yet.
    if segment
        .read_exact_at(&mut block, PAGE + BLOCK * rank as u64)
        .is_err()
    {
        return Counters::default();
    }
    let word = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().unwrap_or_default());
    Counters {
        state: word(0) as u32,
        sent: word(64),
        sent_bytes: word(72),
        received: word(80),
        received_bytes: word(88),
        waited_ns: word(96),
    }
}

/// The current state of a rank, from itself or its board.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub board: bool,
    pub ended: bool,
    /// The pending wait, if the rank waits.
    pub wait: Option<Wait>,
    /// Number of times that its board has polled the wire while all its kernels waited. A waiting
    /// process polls by itself.
    pub looks: u64,
    /// Packets from this board to other boards, and from other boards to this board.
    pub out: u64,
    pub came: u64,
    /// Counters that change with any progress.
    moved: [u64; 3],
}

/// The pending wait of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// The waiting function, of a kernel on a board.
    pub function: Option<&'static str>,
    /// The awaited peer; `None`: any.
    pub peer: Option<u32>,
    pub tag: Option<u32>,
    pub collective: bool,
}

impl Standing {
    /// Whether the rank has made no progress since `before`.
    pub(crate) fn stands_as(&self, before: &Standing) -> bool {
        self.moved == before.moved && self.wait == before.wait && self.ended == before.ended
    }
}

/// Decodes a kernel's wait; hdl/board/sim/region_abi.h has the format.
fn wait_of(bits: u64) -> Wait {
    let bit = |n: u32| bits >> n & 1 == 1;
    let rank = |n: u32| (bits >> n & 0xff) as u32;
    let tag = |n: u32| (bits >> n & 0xfff) as u32;
    if bit(0) {
        Wait {
            function: Some("HUM_Send"),
            peer: Some(rank(8)),
            tag: Some(tag(16)),
            collective: bit(2),
        }
    } else {
        Wait {
            function: Some("HUM_Recv"),
            peer: (!bit(4)).then(|| rank(28)),
            tag: (!bit(5)).then(|| tag(36)),
            collective: bit(3),
        }
    }
}

/// A job whose ranks are being started.
#[derive(Debug)]
pub struct Job {
    members: Vec<Member>,
    segments: BTreeMap<usize, File>,
    bells: Vec<Option<OwnedFd>>,
    listeners: Vec<Option<TcpListener>>,
    addresses: Vec<Option<SocketAddr>>,
    wire: Option<Wire>,
    key: String,
}

impl Job {
    /// Creates the shared resources of the ranks that are started here.
    pub fn new(members: Vec<Member>, key: String) -> Result<Job> {
        let several = members.iter().any(|m| m.group != members[0].group);
        let wire = if members.iter().any(|m| m.mac.is_some()) {
            Some(Wire::new(&members)?)
        } else {
            None
        };
        let mut segments = BTreeMap::new();
        let mut bells = Vec::new();
        let mut listeners = Vec::new();
        let mut addresses = Vec::new();
        for (rank, member) in members.iter().enumerate() {
            let (mut bell, mut listener) = (None, None);
            let mut address = member.listen.map(|ip| SocketAddr::new(ip, member.port));
            if member.here {
                if let std::collections::btree_map::Entry::Vacant(free) =
                    segments.entry(member.group)
                {
                    let segment = memfd_create("humboldt", MemfdFlags::CLOEXEC)
                        .context("cannot create shared memory")?;
                    free.insert(File::from(segment));
                }
                bell = (!member.board && !member.mpi).then_some(
                    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                        .context("cannot create a doorbell")?,
                );
                let listens =
                    several && member.tcp && !member.mpi && station(&members, rank) == rank;
                if let (true, Some(wanted)) = (listens, address) {
                    let socket = TcpListener::bind(wanted)
                        .with_context(|| format!("rank {rank} cannot listen on {wanted}: is it this host's address? (--node starts the ranks of one node)"))?;
                    address = Some(socket.local_addr().context("a listening socket")?);
                    listener = Some(socket);
                }
            }
            bells.push(bell);
            listeners.push(listener);
            addresses.push(address);
        }
        Ok(Job {
            members,
            segments,
            bells,
            listeners,
            addresses,
            wire,
            key,
        })
    }

    /// The rank that owns a rank's station: the rank itself, or the first rank of its board.
    pub fn station(&self, rank: usize) -> usize {
        station(&self.members, rank)
    }

    /// Whether other ranks reach this rank over TCP.
    pub fn tcp(&self, rank: usize) -> bool {
        self.members[rank].tcp
    }

    /// The rank's IPv4 address, if its frames are sent over UDP.
    pub fn udp(&self, rank: usize) -> Option<Ipv4Addr> {
        self.members[rank].udp
    }

    /// The destination of frames to a rank: the hardware address of its node, and its socket.
    pub fn frames_to(&self, rank: usize) -> Option<(&str, PathBuf)> {
        let mac = self.members[rank].mac.as_deref()?;
        let path = self.wire.as_ref()?.path(station(&self.members, rank));
        Some((mac, path))
    }

    /// Starts a rank: runs `command` with the inherited resources.
    pub fn spawn(&mut self, rank: usize, mut command: Command) -> Result<Child> {
        let group = self.members[rank].group;
        let mut handed: Vec<OwnedFd> = Vec::new();
        let mut hand = |fd: rustix::fd::BorrowedFd<'_>| -> Result<i32> {
            // A copy without close-on-exec, closed after the rank has been started.
            let copy = rustix::io::dup(fd).context("cannot copy a descriptor")?;
            let number = copy.as_raw_fd();
            handed.push(copy);
            Ok(number)
        };
        let segment = hand(self.segments[&group].as_fd())?;
        if let (Some(wire), true) = (&self.wire, self.members[rank].mac.is_some()) {
            let station = station(&self.members, rank);
            let socket = wire.sockets[station]
                .as_ref()
                .context("a station's socket")?;
            command.env("HUM_WIRE", hand(socket.as_fd())?.to_string());
            command.env("HUM_MAC", self.members[rank].address());
        }
        let mut bells = Vec::new();
        let mut peers = Vec::new();
        for (other, member) in self.members.iter().enumerate() {
            if self.members[rank].board {
                break; // a board reads the others' addresses from its file
            }
            if let (Some((_, path)), false, false) =
                (self.frames_to(other), member.group == group, member.tcp)
            {
                let kind = member.kind();
                peers.push(format!("{kind}:{}@{}", member.address(), path.display()));
                continue;
            }
            if let (true, Some(address)) = (member.board, self.addresses[self.station(other)]) {
                peers.push(format!("{}:{address}", member.kind()));
                continue;
            }
            match (
                member.group == group,
                &self.bells[other],
                self.addresses[other],
            ) {
                (true, Some(bell), _) => {
                    bells.push(hand(bell.as_fd())?.to_string());
                    peers.push("-".to_owned());
                }
                (_, _, Some(address)) => peers.push(address.to_string()),
                _ => anyhow::bail!("rank {other} has no address that rank {rank} can reach"),
            }
        }
        if let Some(listener) = &self.listeners[rank] {
            command.env("HUM_LISTEN", hand(listener.as_fd())?.to_string());
        }
        if self.members.iter().any(|m| m.board) {
            command.env("HUM_SILENT_MS", MODEL_SILENT_MS.to_string());
        }
        command
            .env("HUM_RANK", rank.to_string())
            .env("HUM_SIZE", self.members.len().to_string())
            .env("HUM_PEERS", peers.join(","))
            .env("HUM_SEGMENT", segment.to_string())
            .env("HUM_BELLS", bells.join(","))
            .env("HUM_KEY", &self.key)
            .env("HUM_LAUNCHER", std::process::id().to_string());
        let child = command.spawn();
        drop(handed);
        // The rank holds the socket now; a copy here would keep the port open after the rank's end.
        self.listeners[rank] = None;
        child.with_context(|| {
            format!(
                "cannot start rank {rank}: {}",
                command.get_program().to_string_lossy()
            )
        })
    }

    /// Starts another MPI's launcher: runs `command` with the environment of all its processes.
    /// Each process determines its own rank.
    pub fn spawn_mpi(&self, mut command: Command) -> Result<Child> {
        let mut peers = Vec::new();
        for (rank, member) in self.members.iter().enumerate() {
            let frames = self.frames_to(rank).filter(|_| !member.tcp);
            let frames = frames.map(|(_, path)| format!("{}@{}", member.address(), path.display()));
            peers.push(match (member.mpi, frames) {
                (true, Some(frames)) => format!("mpi:{frames}"),
                (true, None) => "mpi".to_owned(),
                (false, Some(frames)) => format!("{}:{frames}", member.kind()),
                (false, None) => {
                    let address =
                        self.addresses[self.station(rank)].context("a board's address")?;
                    format!("{}:{address}", member.kind())
                }
            });
        }
        let program = command.get_program().to_string_lossy().into_owned();
        command
            .env("HUM_PEERS", peers.join(","))
            .env("HUM_KEY", &self.key)
            .spawn()
            .with_context(|| format!("cannot run {program}: scripts/setup.sh bench installs it"))
    }

    /// The counters of a rank.
    pub fn counters(&self, rank: usize) -> Counters {
        match self.segments.get(&self.members[rank].group) {
            Some(segment) => counters(segment, rank),
            None => Counters::default(),
        }
    }

    /// The number of ranks.
    pub(crate) fn size(&self) -> usize {
        self.members.len()
    }

    /// The current state of a rank.
    pub(crate) fn standing(&self, rank: usize) -> Standing {
        let board = self.members[rank].board;
        let segment = self.segments.get(&self.members[rank].group);
        let (mut block, mut report) = ([0_u8; BLOCK as usize], [0_u8; 24]);
        if let Some(segment) = segment {
            // Blocks that do not exist yet read as zero.
            let place = PAGE + BLOCK * rank as u64;
            let _ = segment.read_exact_at(&mut block, place);
            let place = PAGE + BLOCK * RANKS_MAX + REPORT * rank as u64;
            if !board {
                let _ = segment.read_exact_at(&mut report, place);
            }
        }
        let half = |bytes: &[u8], at: usize| {
            u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or_default())
        };
        let word = |bytes: &[u8], at: usize| {
            u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default())
        };
        let epoch = word(&report, 0);
        let wait = if board {
            (half(&block, 8) != 0).then(|| wait_of(word(&block, 24)))
        } else {
            // Negative: any source, or a source that the report cannot name.
            (half(&report, 8) != 0 && epoch % 2 == 0).then(|| Wait {
                function: None,
                peer: Some(half(&report, 16)).filter(|peer| *peer < RANKS_MAX as u32),
                tag: Some(half(&report, 20)).filter(|tag| *tag < 1 << 31),
                collective: false,
            })
        };
        Standing {
            board,
            ended: half(&block, 0) >= 2,
            wait,
            looks: if board {
                word(&block, 16)
            } else {
                word(&block, 96) / LOOK_NS
            },
            out: word(&block, 32),
            came: word(&block, 40),
            moved: [word(&block, 64), word(&block, 80), word(&block, 32)],
        }
    }

    /// The descriptor of a rank's segment in this process.
    pub fn segment_fd(&self, rank: usize) -> Option<i32> {
        self.segments
            .get(&self.members[rank].group)
            .map(AsRawFd::as_raw_fd)
    }
}

/// A random key for a job: 32 hexadecimal digits.
pub fn new_key() -> Result<String> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(|e| anyhow::anyhow!("cannot get random numbers: {e}"))?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}
