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
//! | [`device`] | the board as platform and device |
//! | [`program`] | programs and kernels |
//! | [`board_program`] | kernels of OpenCL C in regions, and their buffers in board memory |
//! | [`regions`] | the images that the regions hold |
//! | [`launch`] | calls |

pub(in crate::driver) mod board_program;
mod device;
mod launch;
mod program;
mod regions;

pub use regions::{board_regions, is_board, wait_for_load};

use super::builtin::memory::DeviceMemory;
use super::builtin::{self, Device};
use super::emulate::tools::Tools;
use super::{Driver, LoadError};
use baltra_board::Port;
use device::{Board, WINDOW_BYTES};
use std::path::Path;

/// Before a host port's path in a device's `driver`.
pub const SCHEME: &str = "board:";

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
        own: Board {
            port,
            tools,
            loaded: Default::default(),
        },
    };
    let (device, driver) = builtin::register(device, api);
    regions::set_board(device);
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
