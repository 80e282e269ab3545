//! The board as platform and device.

use crate::driver::builtin::{zero_terminated, Builtin, Device};
use crate::driver::emulate::device::{EXTENSIONS, LOCAL_BYTES, WORK_GROUP_ITEMS};
use crate::driver::emulate::tools::Tools;
use baltra_board::accelerator::manifest::ARGUMENT_BYTES_MAX;
use baltra_board::{Image, Port};
use baltra_opencl::*;
use baltra_ring::Locked;
use std::sync::{Condvar, Mutex};

/// Device memory: the window. Its pages are populated on first use.
pub(super) const WINDOW_BYTES: u64 = 128 << 20;
/// Text of a launch, beyond which it is lost.
const PRINT_BYTES: usize = 48 << 10;

/// Most images between two reports of the regions.
const LOADED_MAX: usize = 256;

/// Images that were loaded since the last report of the regions.
#[derive(Default)]
pub(super) struct Loaded {
    /// The checksums of their headers, and their digests.
    pub images: Mutex<Vec<(u32, String)>>,
    /// Signals an addition.
    pub added: Condvar,
}

/// The board.
pub(in crate::driver) struct Board {
    /// Its host port.
    pub port: Port,
    /// `None`: OpenCL C cannot be compiled here.
    pub tools: Option<Tools>,
    /// Images that were loaded since the last report of the regions.
    pub(super) loaded: Loaded,
}

impl Board {
    /// Notes the digest of an image that is loaded.
    pub(super) fn note_loaded(&self, image: &Image<'_>, digest: String) {
        let mut images = self.loaded.images.locked();
        if images.len() < LOADED_MAX {
            images.push((image.checksum, digest));
        }
        self.loaded.added.notify_one();
    }
}

/// As the driver has it.
pub(super) type BoardDevice = Device<Board>;

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
            CL_DEVICE_MAX_PARAMETER_SIZE => size(ARGUMENT_BYTES_MAX as usize),
            CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE => long(WINDOW_BYTES / 4),
            CL_DEVICE_MAX_CONSTANT_ARGS => int(8),
            CL_DEVICE_LOCAL_MEM_TYPE => int(CL_LOCAL as u32),
            CL_DEVICE_LOCAL_MEM_SIZE => long(LOCAL_BYTES),
            CL_DEVICE_QUEUE_PROPERTIES => long(Self::QUEUE_PROPERTIES),
            CL_DEVICE_NAME => text(&format!("Baltra board, {} regions", about.regions)),
            CL_DEVICE_VERSION => text(&format!("OpenCL 1.2 shell {:#x}", about.shell)),
            CL_DEVICE_COMPILER_AVAILABLE | CL_DEVICE_LINKER_AVAILABLE => {
                int(self.tools.is_some().into())
            }
            CL_DEVICE_EXTENSIONS => text(EXTENSIONS),
            CL_DEVICE_SINGLE_FP_CONFIG => {
                long((CL_FP_DENORM | CL_FP_INF_NAN | CL_FP_ROUND_TO_NEAREST) as u64)
            }
            CL_DEVICE_PRINTF_BUFFER_SIZE => size(PRINT_BYTES),
            _ => None,
        }
    }
}
