//! Finds the region and maps it.
//!
//! In a guest, the region is the memory (`resource2`) of a PCI device 1af4:1110; mapping it
//! requires root or write access to that file. The device's registers (`resource0`) ring the host's
//! doorbells. No driver is needed: QEMU's device works as soon as it is enabled.
//!
//! Outside a VM, the daemon's socket for the VM passes the region, in QEMU's protocol for `ivshmem`
//! devices: version, own number, memory, then each peer's number with a doorbell.

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

/// Location of the region.
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

/// Environment variable of the device: a directory, `unix:PATH`, `serial:PATH` or
/// `tcp:ADDRESS:PORT`.
pub const VARIABLE: &str = "VFUN_DEVICE";
/// Environment variable of the TCP address for VMs that have neither device nor port.
pub const TCP_VARIABLE: &str = "VFUN_TCP";
/// Prefix of the names of virtio-serial ports for this protocol.
const PORT_NAME: &str = "baltra.vfun";
const PORTS: &str = "/sys/class/virtio-ports";
const DEVICES: &str = "/sys/bus/pci/devices";
const VENDOR: &str = "0x1af4";
const MODEL: &str = "0x1110";
/// Offset of the doorbell register, which takes peer << 16 | vector.
const RING_REGISTER: usize = 12;
/// Offset of the register with this peer's number.
const POSITION_REGISTER: usize = 8;
/// Time limit for each message of the daemon's socket.
const PATIENCE: Duration = Duration::from_secs(5);

impl Device {
    /// From `text` (in the form of [`VARIABLE`]); empty: the first that exists of the value of
    /// [`VARIABLE`],
    /// an `ivshmem` device, a virtio-serial port, and the value of [`TCP_VARIABLE`].
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
                format!("found no ivshmem device (1af4:1110) and no virtio-serial port {PORT_NAME}, and {TCP_VARIABLE} is not set: start the VM with the options that `baltra vm attach` prints"),
            )),
        }
    }

    /// A stream to the host; `None`: the device is a region.
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
        let text = format!("invalid address '{address}': expected ADDRESS:PORT");
        io::Error::new(io::ErrorKind::InvalidInput, text)
    });
    parsed.map(Device::Tcp)
}

fn sorted(directory: &str, matches: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut found: Vec<PathBuf> = paths.filter(|path| matches(path)).collect();
    found.sort();
    found
}

fn read_attribute(path: PathBuf) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}

fn pci_devices() -> Vec<PathBuf> {
    sorted(DEVICES, |path| {
        read_attribute(path.join("vendor")) == VENDOR
            && read_attribute(path.join("device")) == MODEL
    })
}

/// The devices of the ports for this protocol.
fn ports() -> Vec<PathBuf> {
    let named = sorted(PORTS, |path| {
        read_attribute(path.join("name")).starts_with(PORT_NAME)
    });
    let names = named.iter().filter_map(|path| path.file_name());
    names.map(|name| Path::new("/dev").join(name)).collect()
}

/// A port has one user at a time, so use any free one.
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

/// A mapped region and the doorbells to the host.
pub(crate) struct Opened {
    pub region: Region,
    /// The region's file, with a separate open file description, which holds this connection's
    /// locks.
    pub file: File,
    /// Own peer number plus 1; 0: the host rings no doorbell.
    pub peer: u32,
    pub ringer: Ringer,
    /// Doorbells by part.
    bells: Vec<Bell>,
    /// Whether the host is outside this kernel.
    pub in_guest: bool,
    /// The daemon treats its end as the end of the connection.
    _socket: Option<UnixStream>,
}

/// Rings the host.
pub(crate) enum Ringer {
    /// There is no doorbell: the host polls.
    None,
    /// The device's register.
    Register(Range, usize),
    /// One descriptor for each vector.
    Events(Vec<OwnedFd>),
}

impl Ringer {
    /// Wakes the host's thread of this vector.
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
                    // A full eventfd has pending rings already.
                    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
                }
            }
        }
    }
}

impl Opened {
    /// The doorbell that the host rings for this part.
    pub fn take_bell(&mut self, part: u32) -> Option<Bell> {
        if self.in_guest && self.peer != 0 {
            interrupts::bell(part)
        } else if (part as usize) < self.bells.len() {
            Some(self.bells.swap_remove(part as usize))
        } else {
            None
        }
    }
}

/// A doorbell that the peer rings.
pub struct Bell(OwnedFd);

impl Bell {
    /// Wraps an eventfd.
    pub fn new(event: OwnedFd) -> Bell {
        Bell(event)
    }

    /// Sleeps until a ring, at most for `limit`.
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
        // A driver is bound to the device and has enabled it.
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
        let text =
            "the daemon does not use the ivshmem protocol, or has reached its limit of peers";
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
    // First the host's doorbells, then the same number of this side's.
    let (mut events, mut bells) = (Vec::new(), Vec::new());
    while events.is_empty() || bells.len() < events.len() {
        match receive(&socket)? {
            (0, Some(event)) if events.len() < 256 && bells.is_empty() => events.push(event),
            (id, Some(event)) if id == own && !events.is_empty() => bells.push(Bell(event)),
            _ => return Err(broken()),
        }
    }
    // The received description is shared with the daemon and all peers: locks need a separate one.
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

/// The next message of the daemon, optionally with a descriptor.
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
            "the daemon closed the connection: it has reached its limit of peers",
        )),
    }
}
