//! The objects behind the handles, and their use of sessions.

pub mod args;
pub mod blocks;
pub mod buffer;
pub mod build;
pub mod callback;
pub mod context;
pub mod copy;
pub mod device;
pub mod event;
pub mod image;
pub mod image_map;
pub mod include;
pub mod kernel;
pub mod launch;
pub mod layout;
pub mod linear;
pub mod live;
pub mod map;
pub mod memory;
pub mod object;
pub mod pieces;
pub mod pixel;
pub mod platform;
pub mod pool;
pub mod process;
pub mod program;
pub mod queue;
pub mod replica;
pub mod sampler;
pub mod session;
pub mod svm;
pub mod transfer;
pub mod workers;

use baltra_session::client::Lost;

/// The error of a call on a lost session: `CL_DEVICE_NOT_AVAILABLE`, or the error that the executor
/// reported.
pub fn lost(lost: Lost) -> i32 {
    lost.0
}
