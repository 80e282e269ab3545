//! A driver for emulated accelerators, in the executor itself: OpenCL C compiled to hardware, which
//! runs as a model compiled from its SystemVerilog.
//!
//! The device's `driver` is `emulate:`, or `emulate:PATH` with the path of the hardware tree (`hdl`).
//!
//! | OpenCL | emulated accelerator |
//! |---|---|
//! | device | one card with board memory of its own; every launch has a circuit of its own, unless the kernel has channels |
//! | buffer | a part of board memory |
//! | program | source, compiled by `baltra accelerator build` when it is built; or an image of it |
//! | kernel | a circuit; it reaches board memory through a guard that checks each access against its argument's buffer |
//! | profiling | the circuit's cycles at 100 MHz; the emulation itself takes longer |
//!
//! | module | content |
//! |---|---|
//! | [`device`] | the device and its limits |
//! | [`compiler`] | compilation by a confined child process, and the cache of images |
//! | [`preparation`] | the compilation of what all programs share, outside the sandbox |
//! | [`tools`] | where compiler and hardware tree are |
//! | [`library`] | a program's simulation library |
//! | [`program`] | programs |
//! | [`kernel`] | kernels and their arguments |
//! | [`block`] | argument blocks |
//! | [`launch`] | launches |
//! | [`faults`] | log lines about kernels that have failed |
//! | [`polling`] | kernels with pipes, which may wait for others |
//! | [`simulation`] | kernels that run at the same time, and their channels |

pub(in crate::driver) mod block;
pub(in crate::driver) mod compiler;
pub(in crate::driver) mod device;
pub(in crate::driver) mod faults;
pub(in crate::driver) mod kernel;
pub(in crate::driver) mod launch;
pub(in crate::driver) mod library;
mod polling;
pub(in crate::driver) mod preparation;
pub(in crate::driver) mod program;
pub(in crate::driver) mod simulation;
pub mod tools;

pub use kernel::PACKET_BYTES;
pub use program::has_channels;
pub use simulation::kernels_wait;

use super::builtin::memory::DeviceMemory;
use super::builtin::{self, Device};
use super::{Driver, LoadError};
use device::{Emulator, MEMORY_BYTES};
use simulation::Simulation;
use tools::Tools;

/// Before the hardware tree's path in a device's `driver`.
pub const SCHEME: &str = "emulate:";

/// Makes the device. `tree`: the hardware tree; empty: found beside the program.
pub(super) fn load(tree: &str) -> Result<Vec<&'static Driver>, LoadError> {
    let name = || format!("{SCHEME}{tree}");
    let tools = Tools::find(tree).map_err(|error| builtin::load_error(name(), &error))?;
    let memory =
        DeviceMemory::private(MEMORY_BYTES).map_err(|error| builtin::load_error(name(), &error))?;
    let mut api = builtin::table::<Emulator>();
    program::fill(&mut api);
    kernel::fill(&mut api);
    launch::fill(&mut api);
    let device = Device {
        memory,
        own: Emulator {
            tools,
            simulation: Simulation::default(),
        },
    };
    let (_, driver) = builtin::register(device, api);
    Ok(vec![driver])
}
