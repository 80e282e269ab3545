//! Host memory that the device accesses directly.
//!
//! OpenCL has no call that pins memory. Drivers of GPUs pin the memory of a `CL_MEM_USE_HOST_PTR`
//! buffer while it is mapped, and recognize its addresses: a transfer from or to them is one step,
//! 55 GB/s on an H200 where ordinary memory reaches 9 to 18, and does not block. Pinning costs 90
//! µs per megabyte there. The map discards the buffer's contents
//! (`CL_MAP_WRITE_INVALIDATE_REGION`), so that the driver copies nothing over the client's
//! concurrent writes; the buffer itself is not used.

use super::{call, create, Context, Mem, Queue, Result};
use baltra_opencl::*;
use baltra_ring::Range;

/// Pinned memory, as long as it lives.
pub struct Pinned {
    mem: Mem,
    queue: std::sync::Arc<Queue>,
    address: usize,
    /// Outlives the driver's use of it.
    _range: Range,
}

impl Pinned {
    /// Pins `range` for the context of `queue`. Blocks until it is pinned.
    pub fn new(context: &Context, queue: &std::sync::Arc<Queue>, range: Range) -> Result<Pinned> {
        let flags = (CL_MEM_USE_HOST_PTR | CL_MEM_READ_WRITE) as u64;
        // SAFETY: the range is kept until the buffer is released.
        let mem = unsafe { context.buffer(flags, range.len(), range.ptr())? };
        let invalidate = CL_MAP_WRITE_INVALIDATE_REGION as u64;
        // SAFETY: live objects; the buffer has that many bytes.
        let mapped = unsafe {
            create!(
                queue.driver(),
                clEnqueueMapBuffer(
                    queue.raw(),
                    mem.raw(),
                    1,
                    invalidate,
                    0,
                    range.len(),
                    0,
                    std::ptr::null(),
                    std::ptr::null_mut()
                )
            )?
        };
        Ok(Pinned {
            mem,
            queue: queue.clone(),
            address: mapped as usize,
            _range: range,
        })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let mapped = self.address as *mut std::ffi::c_void;
        // SAFETY: the pointer that the map returned, once; the wait ends the driver's use of the
        // range.
        let unmapped = unsafe {
            call!(
                self.queue.driver(),
                clEnqueueUnmapMemObject(
                    self.queue.raw(),
                    self.mem.raw(),
                    mapped,
                    0,
                    std::ptr::null(),
                    std::ptr::null_mut()
                )
            )
        };
        // If this fails, the driver is unusable, and so is the pinned memory.
        let _ = unmapped.and_then(|()| self.queue.finish());
    }
}
