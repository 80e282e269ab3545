//! Options of an executor, and the state that all its sessions share.

use crate::binaries::Binaries;
use crate::capture::Capture;
use crate::driver::{self, Clock, Context, Device, Seats, Turns};
use crate::health::Health;
use crate::images::Images;
use crate::regions::Regions;
use crate::session::pinning::Pinning;
use crate::session::residence::{Residence, Room};
use crate::session::slices::Slices;
use crate::traces::Traces;
use anyhow::Context as _;
use baltra_opencl::CL_DEVICE_GLOBAL_MEM_SIZE;
use baltra_ring::budget::{Budget, Member};
use baltra_sandbox::Sandbox;
use baltra_wire::DeviceDescription;
use std::os::fd::{OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Long enough for a client that enqueues again as soon as a command completes; the spinning thread
/// yields.
const SPIN_US: u64 = 50;

/// [`Options::peer_patience`]. A kernel that runs for longer may use the memory.
const PEER_PATIENCE: Duration = Duration::from_secs(30);

/// Time for which commands of an ended session may continue while other sessions use the process,
/// unless [`Options::orphan`] is set: ending the process ends
/// the other sessions, too. A GPU's driver time-slices kernels, and an endless one slows down all
/// others meanwhile.
const ORPHAN_MAX_GPU: Duration = Duration::from_secs(2);
/// As above, on other devices.
const ORPHAN_MAX: Duration = Duration::from_secs(5);

/// Time for which a command of an open session may block commands of ended sessions, and calls past
/// their time limits, unless [`Options::contended`] is set. Without commands that wait, it may take
/// any time.
const CONTENDED_MAX: Duration = Duration::from_secs(30);

/// The default directory's name, followed by the process's number.
pub const WORK_DIR: &str = "baltra-executor-";

/// Options of an executor.
#[derive(Clone, Debug)]
pub struct Options {
    /// The control socket, inherited; may be the standard input.
    pub control_fd: RawFd,
    /// The vendor's library.
    pub driver: String,
    /// The selected device: a number, a part of a name, or empty for the first.
    pub device: String,
    /// The device's name in the manager's configuration.
    pub name: String,
    /// Whether buffers may be in the client's memory, where the device can use it.
    pub host_memory: bool,
    /// Maximum spin of a queue's thread before it sleeps, microseconds.
    pub spin_us: u64,
    /// This executor's directory: compiled kernels, temporary files. Created if necessary, removed
    /// at the end.
    pub work_dir: PathBuf,
    /// Parent of the directories that [`ToExecutor::Assign`] names; without it, and with the
    /// sandbox, compiled kernels are not cached.
    pub cache_root: Option<PathBuf>,
    /// Socket for reconnecting to a new manager after the manager has exited.
    pub adopt: Option<PathBuf>,
    /// Whether to give up what the process does not need ([`baltra_sandbox`]).
    pub sandbox: bool,
    /// Whether to report commands that belong to traces to the manager.
    pub traces: bool,
    /// Time for which commands of an ended session may continue while other sessions use the
    /// process;
    /// `None`: depends on the device's type.
    pub orphan: Option<Duration>,
    /// Time for which a command of an open session may block commands of ended sessions, and calls
    /// past their time limits; zero: unlimited; `None`: 30 s.
    pub contended: Option<Duration>,
    /// Limit of all memory objects together, as a multiple of the device's memory; above 1, they
    /// leave the device while others need it. `None`: by the device
    /// ([`DeviceDescription::overcommit`]).
    pub memory_overcommit: Option<u32>,
    /// Bytes that objects may take on the device together, with `memory_overcommit`; `None`: most
    /// of its memory.
    pub memory_bytes: Option<u64>,
    /// After this time without progress, another executor of the device that was asked for memory
    /// keeps it.
    pub peer_patience: Duration,
    /// Maximum time for which a waiting tenant waits for the slices of a long launch; zero:
    /// launches stay whole.
    pub slice: Duration,
}

impl Options {
    /// The first device of a driver's library, the control socket as the standard input, and
    /// defaults otherwise.
    pub fn new(driver: impl Into<String>) -> Options {
        let own = format!("{WORK_DIR}{}", std::process::id());
        Options {
            control_fd: 0,
            driver: driver.into(),
            device: String::new(),
            name: String::new(),
            host_memory: true,
            spin_us: SPIN_US,
            work_dir: std::env::temp_dir().join(own),
            cache_root: None,
            adopt: None,
            sandbox: true,
            traces: false,
            orphan: None,
            contended: None,
            memory_overcommit: None,
            memory_bytes: None,
            peer_patience: PEER_PATIENCE,
            slice: Duration::ZERO,
        }
    }

    /// The sandbox, with the files that remain accessible.
    pub fn sandbox(&self) -> Sandbox {
        Sandbox {
            library: self.driver.clone().into(),
            readable: driver::readable(&self.driver),
            work_dir: self.work_dir.clone(),
            cache_root: self.cache_root.clone(),
        }
    }

    /// The spinning time.
    pub fn spin(&self) -> Duration {
        Duration::from_micros(self.spin_us)
    }
}

/// State shared by all sessions of the process.
pub struct Shared {
    /// Its options.
    pub options: Options,
    /// The device.
    pub device: Device,
    /// The driver's context, created before the first session arrives.
    pub context: Arc<Context>,
    /// The clock of the driver's event times.
    pub clock: Clock,
    /// The device, described.
    pub description: DeviceDescription,
    /// Turns at the driver, needed for GPU drivers.
    pub turns: Arc<Turns>,
    /// Seats at the driver, of GPU drivers.
    pub seats: Option<Arc<Seats>>,
    /// For pinning arenas; `None`: the device works in host memory, or is not a GPU.
    pub pinning: Option<Pinning>,
    /// The standard output, where kernels print.
    pub capture: Option<Capture>,
    /// The device's image, where it holds one at a time.
    pub images: Arc<Images>,
    /// Binaries of remote clients' programs.
    pub binaries: Binaries,
    /// Commands that belong to traces.
    pub traces: Traces,
    /// The images that a board's regions hold.
    pub regions: Arc<Regions>,
    /// Whether the driver's context is still of use.
    pub health: Health,
    /// Objects that may leave the device; `None`: all stay.
    pub residence: Option<Arc<Residence>>,
    /// For launching in slices; `None`: all launches stay whole.
    pub slices: Option<Slices>,
}

impl Shared {
    /// Time for which commands of an ended session may continue while other sessions use the
    /// process.
    pub fn orphan_max(&self) -> Duration {
        let by_kind = if self.device.is_gpu() {
            ORPHAN_MAX_GPU
        } else {
            ORPHAN_MAX
        };
        self.options.orphan.unwrap_or(by_kind)
    }

    /// Time for which a command of an open session may block commands of ended sessions, and calls
    /// past their time limits; `None`: unlimited.
    pub fn contended_max(&self) -> Option<Duration> {
        let max = self.options.contended.unwrap_or(CONTENDED_MAX);
        (!max.is_zero()).then_some(max)
    }

    /// Loads the driver and readies it.
    pub fn open(options: Options, capture: Option<Capture>) -> anyhow::Result<Shared> {
        let device = Device::open(&options.driver, &options.device)?;
        let context = Context::new(&[device])
            .map_err(|code| anyhow::anyhow!("the driver cannot create a context (error {code})"))?;
        let description = driver::describe(device, &context, &options.name, options.host_memory);
        let gpu = device.is_gpu() && !description.host_memory;
        let images = Arc::new(Images::new()?);
        let context = Arc::new(context);
        let residence = open_residence(&options, device, &description, &context, gpu)?;
        let pins = gpu.then(|| context.queue(device, 0).ok()).flatten();
        let pinning = pins.map(|queue| {
            let device_bytes = device.number(CL_DEVICE_GLOBAL_MEM_SIZE as u32);
            Pinning::new(&context, queue, residence.clone(), device_bytes)
        });
        let slices =
            Slices::new(options.slice, device).filter(|_| !driver::is_own(&options.driver));
        Ok(Shared {
            slices,
            residence,
            health: Health::new(&context, device, images.wake()),
            turns: Turns::new(gpu),
            seats: gpu.then(Seats::new),
            pinning,
            device,
            clock: Clock::of(&context, device),
            context,
            description,
            capture,
            traces: Traces::new(options.traces, images.wake()),
            regions: Regions::new(images.wake())?,
            images,
            binaries: Binaries::default(),
            options,
        })
    }
}

impl Shared {
    /// Shares the device's memory with its other executors.
    pub fn join_budget(&self, slot: u32, fds: Vec<OwnedFd>) {
        let (Some(residence), Some(page)) = (&self.residence, fds.first()) else {
            return;
        };
        match Budget::map(page).map(|budget| Member::new(budget, slot as usize)) {
            Ok(Some(member)) => residence.join(member),
            Ok(None) => tracing::error!(slot, "the memory's budget has no such slot"),
            Err(error) => tracing::error!(%error, "cannot map the memory's budget"),
        }
    }
}

/// With `memory_overcommit`, the objects that may leave the device.
fn open_residence(
    options: &Options,
    device: Device,
    description: &DeviceDescription,
    context: &Arc<Context>,
    pins: bool,
) -> anyhow::Result<Option<Arc<Residence>>> {
    let overcommit =
        description.overcommit(options.memory_overcommit, options.memory_bytes.is_some());
    if overcommit <= 1 {
        return Ok(None);
    }
    let device_bytes = device.number(CL_DEVICE_GLOBAL_MEM_SIZE as u32);
    // The rest is for what the driver needs itself: programs, queues, printing.
    let most = device_bytes / 16 * 15;
    let budget = options.memory_bytes.map_or(most, |bytes| bytes.min(most));
    let room = Room::new(budget, overcommit, host_bytes());
    tracing::info!(
        device_bytes = room.device_bytes,
        total_bytes = room.total_bytes,
        "objects may leave the device's memory"
    );
    let residence = Residence::new(context, device, pins, room, options.peer_patience);
    let residence = Arc::new(residence.context("cannot make a page for the memory's budget")?);
    residence
        .serve_peers()
        .context("cannot start the thread that frees memory")?;
    Ok(Some(residence))
}

/// The host's memory; unlimited if it is unknown.
fn host_bytes() -> u64 {
    // SAFETY: queries constants of the system.
    let (pages, page) = unsafe {
        (
            libc::sysconf(libc::_SC_PHYS_PAGES),
            libc::sysconf(libc::_SC_PAGESIZE),
        )
    };
    match (u64::try_from(pages), u64::try_from(page)) {
        (Ok(pages), Ok(page)) if pages > 0 => pages.saturating_mul(page),
        _ => u64::MAX,
    }
}
