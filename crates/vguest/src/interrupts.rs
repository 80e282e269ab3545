//! The device's interrupts, if the guest's kernel has vfio: a waiting program sleeps until the host
//! rings, instead of polling.
//!
//! A vfio group belongs to one process at a time. So one process of the guest, `vfun interrupts`,
//! opens the device and passes each application the eventfd of its part's vector, over a Unix
//! socket. It accesses neither registers nor memory, which applications open as they do without it,
//! and is not part of the data path.

use baltra_ivshmem::interrupts::socket;
use rustix::fs::{fcntl_setfl, OFlags};
use rustix::ioctl::{ioctl, opcode, Ioctl, IoctlOutput, Opcode, Setter, Updater};
use rustix::net::{sendmsg, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::ffi::{c_void, CString};
use std::fs::OpenOptions;
use std::io::{self, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Timeout of an application's request.
const PATIENCE: Duration = Duration::from_secs(2);
const VECTORS_MAX: usize = 16;
/// `VFIO_TYPE1_IOMMU`
const TYPE1: usize = 1;
/// `VFIO_PCI_CONFIG_REGION_INDEX`
const CONFIG: u32 = 7;
/// `VFIO_PCI_MSIX_IRQ_INDEX`
const MSIX: u32 = 2;
/// `VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER`
const BY_EVENTFD: u32 = 1 << 2 | 1 << 5;
/// Bits of the command register: respond to memory accesses, and send interrupts (bus mastering).
const MEMORY_AND_MASTER: u16 = 6;

const SET_IOMMU: Opcode = opcode::none(b';', 102);
const SET_CONTAINER: Opcode = opcode::none(b';', 104);
const GET_DEVICE: Opcode = opcode::none(b';', 106);
const REGION_INFO: Opcode = opcode::none(b';', 108);
const SET_IRQS: Opcode = opcode::none(b';', 110);

/// `struct vfio_region_info`
#[repr(C)]
#[derive(Default)]
struct RegionInfo {
    argsz: u32,
    flags: u32,
    index: u32,
    cap_offset: u32,
    size: u64,
    offset: u64,
}

/// `struct vfio_irq_set` with its eventfds
#[repr(C)]
struct IrqSet {
    argsz: u32,
    flags: u32,
    index: u32,
    start: u32,
    count: u32,
    events: [i32; VECTORS_MAX],
}

const _: () = assert!(size_of::<RegionInfo>() == 32 && size_of::<IrqSet>() == 20 + 4 * VECTORS_MAX);

/// `VFIO_SET_IOMMU`: its argument is a number.
struct SetIommu;

// SAFETY: the kernel treats the argument as a number and writes nothing.
unsafe impl Ioctl for SetIommu {
    type Output = ();
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        SET_IOMMU
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::without_provenance_mut(TYPE1)
    }

    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut c_void) -> rustix::io::Result<()> {
        Ok(())
    }
}

/// `VFIO_GROUP_GET_DEVICE_FD`
struct GetDevice(CString);

// SAFETY: the kernel reads a C string and returns a descriptor, which the caller owns.
unsafe impl Ioctl for GetDevice {
    type Output = OwnedFd;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        GET_DEVICE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.0.as_ptr().cast_mut().cast()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<OwnedFd> {
        // SAFETY: a non-negative, new descriptor that is not used elsewhere.
        Ok(unsafe { OwnedFd::from_raw_fd(out) })
    }
}

fn about<T: Into<io::Error>>(what: impl std::fmt::Display) -> impl FnOnce(T) -> io::Error {
    move |error| {
        let error = error.into();
        io::Error::new(error.kind(), format!("{what}: {error}"))
    }
}

/// Owns the device's interrupts and passes them to programs, indefinitely; calls `ready` first.
pub fn serve(directory: &Path, ready: impl FnOnce(&Path)) -> io::Result<()> {
    let address = directory.file_name().unwrap_or_default();
    let address = address.to_string_lossy().into_owned();
    claim(directory, &address)?;
    let events = arm(directory, &address)?;
    let path = socket();
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).map_err(about(path.display()))?;
    ready(&path);
    for stream in listener.incoming() {
        // A malformed or missing request gets no answer.
        let _ = stream.and_then(|stream| give(&stream, &events.1));
    }
    Ok(())
}

/// Binds the device to vfio's driver.
fn claim(directory: &Path, address: &str) -> io::Result<()> {
    let driver = directory.join("driver");
    if std::fs::read_link(&driver).is_ok_and(|path| path.ends_with("vfio-pci")) {
        return Ok(());
    }
    let write =
        |path: PathBuf, text: &str| std::fs::write(&path, text).map_err(about(path.display()));
    write(directory.join("driver_override"), "vfio-pci")?;
    write("/sys/bus/pci/drivers_probe".into(), address)?;
    if driver.exists() {
        Ok(())
    } else {
        Err(io::Error::other(format!(
            "no driver was bound to {address}: load the modules vfio-pci and vfio_iommu_type1, and give the VM an IOMMU"
        )))
    }
}

/// An eventfd for each vector, preceded by the files that keep them alive.
fn arm(directory: &Path, address: &str) -> io::Result<([OwnedFd; 3], Vec<OwnedFd>)> {
    let group = std::fs::read_link(directory.join("iommu_group"));
    let group = group.map_err(about("the device is not behind an IOMMU"))?;
    let group = Path::new("/dev/vfio").join(group.file_name().unwrap_or_default());
    let open = |path: &Path| {
        let file = OpenOptions::new().read(true).write(true).open(path);
        file.map(OwnedFd::from).map_err(about(path.display()))
    };
    let (container, group) = (open(Path::new("/dev/vfio/vfio"))?, open(&group)?);
    // SAFETY: each opcode matches its argument's type (linux/vfio.h), whose memory lives for the
    // call.
    let device = unsafe {
        ioctl(
            &group,
            Setter::<SET_CONTAINER, i32>::new(container.as_raw_fd()),
        )
        .map_err(about("cannot add the group to the container"))?;
        ioctl(&container, SetIommu).map_err(about("cannot enable the IOMMU"))?;
        let name = CString::new(address).map_err(io::Error::other)?;
        ioctl(&group, GetDevice(name)).map_err(about("cannot open the device"))?
    };
    let mut config = RegionInfo {
        argsz: size_of::<RegionInfo>() as u32,
        index: CONFIG,
        ..RegionInfo::default()
    };
    // SAFETY: as above; `argsz` bounds the kernel's writes.
    unsafe { ioctl(&device, Updater::<REGION_INFO, _>::new(&mut config)) }
        .map_err(about("cannot access the configuration space"))?;
    let file = std::fs::File::from(device.try_clone()?);
    let mut command = [0; 2];
    file.read_exact_at(&mut command, config.offset + 4)?;
    let command = u16::from_le_bytes(command) | MEMORY_AND_MASTER;
    file.write_all_at(&command.to_le_bytes(), config.offset + 4)?;
    let mut events = Vec::new();
    // The device's number of vectors, which may be lower than the region's number of parts.
    for count in (1..=VECTORS_MAX).rev() {
        events.clear();
        for _ in 0..count {
            events.push(rustix::event::eventfd(
                0,
                rustix::event::EventfdFlags::CLOEXEC,
            )?);
        }
        let mut set = IrqSet {
            argsz: (20 + 4 * count) as u32,
            flags: BY_EVENTFD,
            index: MSIX,
            start: 0,
            count: count as u32,
            events: [-1; VECTORS_MAX],
        };
        for (slot, event) in set.events.iter_mut().zip(&events) {
            *slot = event.as_raw_fd();
        }
        // SAFETY: as above; the kernel only reads, `argsz` bytes.
        match unsafe { ioctl(&device, Setter::<SET_IRQS, IrqSet>::new(set)) } {
            Ok(()) => break,
            Err(error) if count == 1 => return Err(about("the interrupts")(error)),
            Err(_) => {}
        }
    }
    for event in &events {
        fcntl_setfl(event, OFlags::NONBLOCK)?;
    }
    Ok(([container, group, device], events))
}

fn give(stream: &UnixStream, events: &[OwnedFd]) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut part = [0; 4];
    (&mut &*stream).read_exact(&mut part)?;
    let part = u32::from_le_bytes(part) as usize;
    let event = events.get(part).ok_or(io::ErrorKind::NotFound)?;
    let rights = [event.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&rights));
    let word = (part as i64).to_le_bytes();
    sendmsg(
        stream,
        &[IoSlice::new(&word)],
        &mut control,
        SendFlags::empty(),
    )?;
    Ok(())
}
