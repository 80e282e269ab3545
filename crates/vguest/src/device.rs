//! Finds the region and maps it.
//!
//! In a guest it is the memory (`resource2`) of a PCI device 1af4:1110, which needs root, or the
//! right to write there. The device's registers (`resource0`) ring the host. No driver is
//! needed: QEMU's device answers as soon as it is enabled.
//!
//! Outside of a VM it is what the daemon's socket for the VM gives away, by QEMU's own protocol for
//! `ivshmem` devices: version, own number, memory, then each peer's number with a doorbell.

use crate::region::{LayoutError, Region, FLAG_DOORBELL};
use baltra_ring::{Memory, Range};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::net::{recvmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
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
}

/// The environment's word for it: a directory, or `unix:PATH`.
pub const VARIABLE: &str = "VFUN_DEVICE";
const DEVICES: &str = "/sys/bus/pci/devices";
const VENDOR: &str = "0x1af4";
const MODEL: &str = "0x1110";
/// The register that rings: peer << 16 | vector.
const RING_REGISTER: usize = 12;
/// How long the daemon's socket may take for the next word.
const PATIENCE: Duration = Duration::from_secs(5);

impl Device {
    /// From `text` (`unix:PATH`, or a directory in sysfs); empty: as [`VARIABLE`] says, else the
    /// first `ivshmem` device.
    pub fn find(text: &str) -> io::Result<Device> {
        let named = match text {
            "" => std::env::var(VARIABLE).unwrap_or_default(),
            text => text.to_owned(),
        };
        if let Some(path) = named.strip_prefix("unix:") {
            return Ok(Device::Socket(path.into()));
        }
        if !named.is_empty() {
            return Ok(Device::Pci(named.into()));
        }
        let mut found: Vec<PathBuf> = std::fs::read_dir(DEVICES)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| {
                let is = |name: &str, value: &str| {
                    std::fs::read_to_string(path.join(name)).is_ok_and(|text| text.trim() == value)
                };
                is("vendor", VENDOR) && is("device", MODEL)
            })
            .collect();
        found.sort();
        found.into_iter().next().map(Device::Pci).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                "there is no ivshmem device (1af4:1110): start the VM with the lines of `baltra vm attach`",
            )
        })
    }

    /// Maps the region.
    pub(crate) fn open(&self) -> io::Result<Opened> {
        match self {
            Device::Pci(directory) => open_pci(directory),
            Device::Socket(path) => open_socket(path),
        }
    }
}

/// A mapped region and the ways to the host.
pub(crate) struct Opened {
    pub region: Region,
    /// The region's file, by a description of this connection's own: its locks are ours.
    pub file: File,
    /// The own number as a peer, and 1 added, where the host may ring it; else 0.
    pub peer: u32,
    pub ringer: Ringer,
    pub bell: Option<Bell>,
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
    std::fs::write(&enable, "1").map_err(about(&enable))?;
    let path = directory.join("resource2");
    let file = read_write(&path)?;
    let bytes = file.metadata()?.len();
    let memory = Memory::map_device(&file, bytes).map_err(about(&path))?;
    let region = Region::read(&memory).map_err(usable)?;
    let ringer = match region.layout.flags & FLAG_DOORBELL {
        0 => Ringer::None,
        _ => registers(directory)?,
    };
    Ok(Opened {
        region,
        file,
        // Only a driver gets the device's interrupts, and there is none: the host rings nobody.
        peer: 0,
        ringer,
        bell: None,
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
    let mut events = Vec::new();
    let bell = loop {
        match receive(&socket)? {
            (0, Some(event)) if events.len() < 256 => events.push(event),
            (id, Some(event)) if id == own => break event,
            _ => return Err(broken()),
        }
    };
    // The descriptor that came is one with the daemon's and all peers': locks need an own one.
    let file = read_write(Path::new(&format!("/proc/self/fd/{}", memory.as_raw_fd())))?;
    let bytes = file.metadata()?.len();
    let memory = Memory::map(&memory, bytes)?;
    Ok(Opened {
        region: Region::read(&memory).map_err(usable)?,
        file,
        peer: own as u32 + 1,
        ringer: Ringer::Events(events),
        bell: Some(Bell(bell)),
        in_guest: false,
        _socket: Some(socket),
    })
}

/// The next word of the daemon, perhaps with a descriptor.
fn receive(socket: &UnixStream) -> io::Result<(i64, Option<OwnedFd>)> {
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
