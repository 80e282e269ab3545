//! Finds the region and maps it.
//!
//! In a guest it is the memory (`resource2`) of a PCI device 1af4:1110, which needs root, or the
//! right to write there. The device's registers (`resource0`) ring the host. No driver is
//! needed: QEMU's device answers as soon as it is enabled.
//!
//! Outside of a VM it is what the daemon's socket for the VM gives away, by QEMU's own protocol for
//! `ivshmem` devices: version, own number, memory, then each peer's number with a doorbell.

use crate::interrupts;
use crate::region::{LayoutError, Region, FLAG_DOORBELL};
use baltra_ring::{Memory, Range};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::net::{recvmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Where the region is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Device {
    /// A PCI device's directory in sysfs.
    Pci(PathBuf),
    /// The daemon's socket for a VM.
    Socket(PathBuf),
    /// A virtio-serial port's device.
    Serial(PathBuf),
    /// The daemon's TCP address for a VM.
    Tcp(SocketAddr),
}

/// The environment's word for it: a directory, `unix:PATH`, `serial:PATH` or `tcp:ADDRESS:PORT`.
pub const VARIABLE: &str = "VFUN_DEVICE";
/// The environment's word for where TCP goes, where there is neither device nor port.
pub const TCP_VARIABLE: &str = "VFUN_TCP";
/// Names of the ports that are for this begin so.
const PORT_NAME: &str = "baltra.vfun";
const PORTS: &str = "/sys/class/virtio-ports";
const DEVICES: &str = "/sys/bus/pci/devices";
const VENDOR: &str = "0x1af4";
const MODEL: &str = "0x1110";
/// The register that rings: peer << 16 | vector.
const RING_REGISTER: usize = 12;
/// The one that has this peer's own number.
const POSITION_REGISTER: usize = 8;
/// How long the daemon's socket may take for the next word.
const PATIENCE: Duration = Duration::from_secs(5);

impl Device {
    /// From `text` (as [`VARIABLE`] may say it); empty: as [`VARIABLE`] says, else the first `ivshmem`
    /// device, else a virtio-serial port, else as [`TCP_VARIABLE`] says.
    pub fn find(text: &str) -> io::Result<Device> {
        let named = match text {
            "" => std::env::var(VARIABLE).unwrap_or_default(),
            text => text.to_owned(),
        };
        if let Some(path) = named.strip_prefix("unix:") {
            return Ok(Device::Socket(path.into()));
        }
        if let Some(path) = named.strip_prefix("serial:") {
            return Ok(Device::Serial(path.into()));
        }
        if let Some(address) = named.strip_prefix("tcp:") {
            return tcp(address);
        }
        if !named.is_empty() {
            return Ok(Device::Pci(named.into()));
        }
        if let Some(path) = pci_devices().into_iter().next() {
            return Ok(Device::Pci(path));
        }
        if let Some(path) = ports().into_iter().next() {
            return Ok(Device::Serial(path));
        }
        match std::env::var(TCP_VARIABLE) {
            Ok(address) if !address.is_empty() => tcp(&address),
            _ => Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("there is no ivshmem device (1af4:1110), no virtio-serial port {PORT_NAME} and no {TCP_VARIABLE}: start the VM with the lines of `baltra vm attach`"),
            )),
        }
    }

    /// A stream to the host; `None`: there is a region.
    pub(crate) fn stream(&self) -> io::Result<Option<OwnedFd>> {
        let stream = match self {
            Device::Pci(_) | Device::Socket(_) => return Ok(None),
            Device::Serial(path) => open_port(path)?,
            Device::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, PATIENCE);
                let stream =
                    stream.map_err(|e| io::Error::new(e.kind(), format!("{address}: {e}")))?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                stream.into()
            }
        };
        Ok(Some(stream))
    }

    /// Maps the region.
    pub(crate) fn open(&self) -> io::Result<Opened> {
        match self {
            Device::Pci(directory) => open_pci(directory),
            Device::Socket(path) => open_socket(path),
            Device::Serial(_) | Device::Tcp(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

fn tcp(address: &str) -> io::Result<Device> {
    let parsed = address.parse().map_err(|_| {
        let text = format!("{address} is no ADDRESS:PORT");
        io::Error::new(io::ErrorKind::InvalidInput, text)
    });
    parsed.map(Device::Tcp)
}

fn sorted(directory: &str, wanted: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut found: Vec<PathBuf> = paths.filter(|path| wanted(path)).collect();
    found.sort();
    found
}

fn says(path: PathBuf) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}

fn pci_devices() -> Vec<PathBuf> {
    sorted(DEVICES, |path| {
        says(path.join("vendor")) == VENDOR && says(path.join("device")) == MODEL
    })
}

/// The devices of the ports that are for this.
fn ports() -> Vec<PathBuf> {
    let named = sorted(PORTS, |path| says(path.join("name")).starts_with(PORT_NAME));
    let names = named.iter().filter_map(|path| path.file_name());
    names.map(|name| Path::new("/dev").join(name)).collect()
}

/// A port has one user at a time: another one that is for this will do as well.
fn open_port(path: &Path) -> io::Result<OwnedFd> {
    let others = ports().into_iter().filter(|other| other != path);
    let mut last = None;
    for path in std::iter::once(path.to_owned()).chain(others) {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        match options
            .custom_flags(OFlags::NONBLOCK.bits() as i32)
            .open(&path)
        {
            Ok(file) => return Ok(file.into()),
            Err(error) => {
                last.get_or_insert(about(&path)(error));
            }
        }
    }
    Err(last.expect("one at least was tried"))
}

/// A mapped region and the ways to the host.
pub(crate) struct Opened {
    pub region: Region,
    /// The region's file, by a description of this connection's own: its locks are ours.
    pub file: File,
    /// The own number as a peer, and 1 added; 0: the host rings nobody.
    pub peer: u32,
    pub ringer: Ringer,
    /// By part.
    bells: Vec<Bell>,
    /// The host is another machine than this kernel's.
    pub in_guest: bool,
    /// Its end is the connection's, for the daemon.
    _socket: Option<UnixStream>,
}

/// Rings the host.
pub(crate) enum Ringer {
    /// Nobody listens: the host looks by itself.
    None,
    /// By the device's register.
    Register(Range, usize),
    /// By a descriptor a vector.
    Events(Vec<OwnedFd>),
}

impl Ringer {
    /// Wakes who sleeps at this vector of the host's.
    pub fn ring(&self, vector: u32) {
        match self {
            Ringer::None => {}
            Ringer::Register(registers, at) => {
                let register = registers.word(at + RING_REGISTER);
                let register = register.expect("checked when it was mapped");
                // The host is peer 0.
                register.store(vector & 0xffff, Ordering::Release);
            }
            Ringer::Events(events) => {
                if let Some(event) = events.get(vector as usize) {
                    // Full: it has been rung often enough.
                    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
                }
            }
        }
    }
}

impl Opened {
    /// What the host rings for this part.
    pub fn take_bell(&mut self, part: u32) -> Option<Bell> {
        match self.in_guest && self.peer != 0 {
            true => interrupts::bell(part),
            false if (part as usize) < self.bells.len() => {
                Some(self.bells.swap_remove(part as usize))
            }
            false => None,
        }
    }
}

/// What the other side rings.
pub struct Bell(OwnedFd);

impl Bell {
    /// One that an eventfd is.
    pub fn new(event: OwnedFd) -> Bell {
        Bell(event)
    }

    /// Sleeps until it rings, at most `limit`.
    pub fn wait(&self, limit: Duration) {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let limit = Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: limit.subsec_nanos().into(),
        };
        if poll(&mut fds, Some(&limit)).is_ok_and(|n| n > 0) {
            let mut count = [0; 8];
            let _ = rustix::io::read(&self.0, &mut count);
        }
    }
}

fn about(path: &Path) -> impl Fn(io::Error) -> io::Error + '_ {
    move |e| io::Error::new(e.kind(), format!("{}: {e}", path.display()))
}

fn read_write(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    file.map_err(about(path))
}

fn usable(error: LayoutError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn open_pci(directory: &Path) -> io::Result<Opened> {
    let enable = directory.join("enable");
    match std::fs::write(&enable, "1") {
        // A driver has it, which has enabled it.
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
        enabled => enabled.map_err(about(&enable))?,
    }
    let path = directory.join("resource2");
    let file = read_write(&path)?;
    let bytes = file.metadata()?.len();
    let memory = Memory::map_device(&file, bytes).map_err(about(&path))?;
    let region = Region::read(&memory).map_err(usable)?;
    let ringer = match region.layout.flags & FLAG_DOORBELL {
        0 => Ringer::None,
        _ => registers(directory)?,
    };
    let peer = match &ringer {
        Ringer::Register(registers, at) => {
            let own = registers.word(at + POSITION_REGISTER);
            own.map_or(0, |own| own.load(Ordering::Relaxed) & 0xffff) + 1
        }
        _ => 0,
    };
    Ok(Opened {
        region,
        file,
        peer,
        ringer,
        bells: Vec::new(),
        in_guest: true,
        _socket: None,
    })
}

/// The device's registers, which may begin within a page.
fn registers(directory: &Path) -> io::Result<Ringer> {
    let addresses = std::fs::read_to_string(directory.join("resource"))?;
    let start = addresses.split_whitespace().next().unwrap_or_default();
    let start = u64::from_str_radix(start.trim_start_matches("0x"), 16);
    let start = start.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
    let path = directory.join("resource0");
    let file = read_write(&path)?;
    let bytes = file.metadata()?.len();
    let memory = Memory::map_device(&file, bytes).map_err(about(&path))?;
    let at = (start % 4096) as usize;
    let page = memory.slice(0, memory.len());
    let page = page.filter(|page| page.word(at + RING_REGISTER).is_some());
    let page = page.ok_or_else(|| about(&path)(io::ErrorKind::InvalidData.into()))?;
    Ok(Ringer::Register(page, at))
}

fn open_socket(path: &Path) -> io::Result<Opened> {
    let socket = UnixStream::connect(path).map_err(about(path))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let broken = || {
        let text = "the daemon does not speak the ivshmem protocol, or takes no more peers";
        about(path)(io::Error::new(io::ErrorKind::InvalidData, text))
    };
    let (0, None) = receive(&socket)? else {
        return Err(broken());
    };
    let (own @ 0..=0xffff, None) = receive(&socket)? else {
        return Err(broken());
    };
    let (-1, Some(memory)) = receive(&socket)? else {
        return Err(broken());
    };
    // The host's, then as many of this side's.
    let (mut events, mut bells) = (Vec::new(), Vec::new());
    while events.is_empty() || bells.len() < events.len() {
        match receive(&socket)? {
            (0, Some(event)) if events.len() < 256 && bells.is_empty() => events.push(event),
            (id, Some(event)) if id == own && !events.is_empty() => bells.push(Bell(event)),
            _ => return Err(broken()),
        }
    }
    // The descriptor that came is one with the daemon's and all peers': locks need an own one.
    let file = read_write(Path::new(&format!("/proc/self/fd/{}", memory.as_raw_fd())))?;
    let bytes = file.metadata()?.len();
    let memory = Memory::map(&memory, bytes)?;
    Ok(Opened {
        region: Region::read(&memory).map_err(usable)?,
        file,
        peer: own as u32 + 1,
        ringer: Ringer::Events(events),
        bells,
        in_guest: false,
        _socket: Some(socket),
    })
}

/// The next word of the daemon, perhaps with a descriptor.
pub(crate) fn receive(socket: &UnixStream) -> io::Result<(i64, Option<OwnedFd>)> {
    let mut word = [0; 8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = rustix::io::retry_on_intr(|| {
        recvmsg(
            socket.as_fd(),
            &mut [IoSliceMut::new(&mut word)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL,
        )
    })?;
    let mut fd = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fd = rights.last();
        }
    }
    match got.bytes {
        8 => Ok((i64::from_le_bytes(word), fd)),
        _ => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the daemon closed the connection: it takes no more peers",
        )),
    }
}
