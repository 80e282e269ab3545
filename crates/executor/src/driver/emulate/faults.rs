//! Log lines about kernels that have failed.

use super::block::{Block, Bound};
use crate::driver::builtin::may_log;
use baltra_board::accelerator::manifest;

/// Reports an access that the guard refused. `buffer`: from 0 on.
pub fn faulted(
    about: &manifest::Kernel,
    block: &Block,
    buffer: usize,
    offset: u64,
    is_store: bool,
) {
    let bound = block.buffers.get(buffer);
    let name = bound.map_or("(none)", |bound| about.arguments[bound.at].name.as_str());
    let bytes = bound.map_or(0, Bound::bytes);
    let access = if is_store { "store" } else { "load" };
    if may_log() {
        tracing::warn!(
            kernel = about.name,
            argument = name,
            offset,
            bytes,
            "a kernel was ended by the memory guard: invalid {access}"
        );
    }
}

/// Reports a kernel that ended with a status.
pub fn failed(about: &manifest::Kernel, status: u32) {
    // `hdl/kernels`: the status of a kernel that is compiled from OpenCL C.
    let reason = match status {
        1 => "the work-group's size is not supported",
        2 => "an argument in local memory is too large",
        3 => "not all work-items of a group reached a barrier",
        _ => "unknown status",
    };
    if may_log() {
        tracing::warn!(kernel = about.name, status, reason, "a kernel has failed");
    }
}
