//! A driver for boards, in the executor itself: OpenCL's entry points over a board's host port.
//!
//! The device's `driver` is `board:PATH`, where PATH is the host port's socket.
//!
//! | OpenCL | board |
//! |---|---|
//! | device | the board; a compute unit is a region |
//! | buffer | a part of the window that is shared with the board; for kernels of OpenCL C a place in board memory, too |
//! | program | an image of a region, checked when it is created and loaded into board memory when it is built; or OpenCL C, compiled as for emulated accelerators |
//! | kernel | the image's kernel: body, answer, then a `uint` for each scalar; or one of OpenCL C |
//! | work-items | of an image: bytes of the body, at most those of the buffer |
//! | profiling | from `START` to `END`: the kernel's cycles; from `SUBMIT`: the whole call's, at the clock rate that the board reports |
//!
//! The compiler needs the hardware tree, as on emulated accelerators. Without it a program with source
//! can be created, but not built.
//!
//! | module | content |
//! |---|---|
//! | [`program`] | programs and kernels |
//! | [`brought`] | kernels of OpenCL C in regions, and their buffers in board memory |
//! | [`launch`] | calls |

mod brought;
mod launch;
mod program;

pub(in crate::driver) use brought::Brought;

use super::builtin::memory::DeviceMemory;
use super::builtin::{self, zero_terminated, Builtin, Device};
use super::emulate::tools::Tools;
use super::emulate::{EXTENSIONS, LOCAL_BYTES, WORK_GROUP_ITEMS};
use super::{Driver, LoadError};
use baltra_board::Port;
use baltra_opencl::*;
use std::path::Path;

/// Before a host port's path in a device's `driver`.
pub const SCHEME: &str = "board:";
/// Device memory: the window. Its pages are populated on first use.
const WINDOW_BYTES: u64 = 128 << 20;
/// Text of a launch, beyond which it is lost.
const PRINT_BYTES: usize = 48 << 10;

/// The board, as platform and device.
pub(in crate::driver) struct Board {
    port: Port,
    /// `None`: OpenCL C cannot be compiled here.
    tools: Option<Tools>,
}

type BoardDevice = Device<Board>;

/// Connects to the board at `path`. The process exits when the connection ends: sessions then
/// receive `CL_DEVICE_NOT_AVAILABLE`, and the manager starts another executor.
pub(super) fn load(path: &str) -> Result<Vec<&'static Driver>, LoadError> {
    let name = || format!("{SCHEME}{path}");
    let port = Port::connect(Path::new(path), WINDOW_BYTES)
        .map_err(|error| builtin::load_error(name(), &error))?;
    let window = port
        .range(0, WINDOW_BYTES)
        .map_err(|error| builtin::load_error(name(), &error))?;
    let tools = Tools::find("");
    if let Err(error) = &tools {
        tracing::info!(%error, "the board takes no OpenCL C");
    }
    let tools = tools.ok();
    let mut api = builtin::table::<Board>();
    program::fill(&mut api);
    launch::fill(&mut api);
    let device = Device {
        memory: DeviceMemory::shared(window),
        own: Board { port, tools },
    };
    let (device, driver) = builtin::register(device, api);
    let watch = move || {
        device.own.port.wait_gone();
        tracing::error!("lost the connection to the board: the executor exits");
        // SAFETY: ends the process, whose state is useless without the board.
        unsafe { libc::_exit(1) };
    };
    let watcher = std::thread::Builder::new().name("board".into());
    watcher
        .spawn(watch)
        .map_err(|error| builtin::load_error(name(), &error))?;
    Ok(vec![driver])
}

impl Builtin for Board {
    const PLATFORM: &'static str = "Baltra boards";
    const QUEUE_PROPERTIES: u64 = CL_QUEUE_PROFILING_ENABLE as u64;

    fn info(&self, param: i32) -> Option<Vec<u8>> {
        let about = &self.port.about;
        let int = |value: u32| Some(value.to_ne_bytes().to_vec());
        let long = |value: u64| Some(value.to_ne_bytes().to_vec());
        let size = |value: usize| Some(value.to_ne_bytes().to_vec());
        let text = |text: &str| Some(zero_terminated(text));
        match param {
            CL_DEVICE_MAX_COMPUTE_UNITS => int(about.regions),
            CL_DEVICE_MAX_WORK_GROUP_SIZE => size(WORK_GROUP_ITEMS),
            CL_DEVICE_MAX_WORK_ITEM_SIZES => Some(
                [WORK_GROUP_ITEMS; 3]
                    .iter()
                    .flat_map(|n| n.to_ne_bytes())
                    .collect(),
            ),
            CL_DEVICE_MAX_CLOCK_FREQUENCY => int(about.clock_khz / 1000),
            CL_DEVICE_GLOBAL_MEM_SIZE => long(WINDOW_BYTES),
            CL_DEVICE_MAX_MEM_ALLOC_SIZE => long(WINDOW_BYTES / 4),
            CL_DEVICE_MAX_PARAMETER_SIZE => size(1024),
            CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE => long(WINDOW_BYTES / 4),
            CL_DEVICE_MAX_CONSTANT_ARGS => int(8),
            CL_DEVICE_LOCAL_MEM_TYPE => int(CL_LOCAL as u32),
            CL_DEVICE_LOCAL_MEM_SIZE => long(LOCAL_BYTES),
            CL_DEVICE_QUEUE_PROPERTIES => long(Self::QUEUE_PROPERTIES),
            CL_DEVICE_NAME => text(&format!("Baltra board, {} regions", about.regions)),
            CL_DEVICE_VERSION => text(&format!("OpenCL 1.2 shell {:#x}", about.shell)),
            CL_DEVICE_COMPILER_AVAILABLE => int(self.tools.is_some().into()),
            CL_DEVICE_EXTENSIONS => text(EXTENSIONS),
            CL_DEVICE_SINGLE_FP_CONFIG => {
                long((CL_FP_DENORM | CL_FP_INF_NAN | CL_FP_ROUND_TO_NEAREST) as u64)
            }
            CL_DEVICE_PRINTF_BUFFER_SIZE => size(PRINT_BYTES),
            _ => None,
        }
    }
}
