//! Host memory that the device reaches by itself.
//!
//! OpenCL has no call that pins memory. Drivers of GPUs pin what a `CL_MEM_USE_HOST_PTR` buffer
//! lies in while it is mapped, and then know the addresses: a transfer from or to them is one
//! step, 55 GB/s on an H200 where ordinary memory gives 9 to 18, and it blocks nobody. Pinning
//! costs 90 µs a megabyte there. The map throws away the buffer's contents
//! (`CL_MAP_WRITE_INVALIDATE_REGION`), so that the driver copies nothing over what the client
//! writes meanwhile; nobody uses the buffer itself.

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
    /// Pins `range` for the context that `queue` is of. Blocks for as long as that takes.
    pub fn new(context: &Context, queue: &std::sync::Arc<Queue>, range: Range) -> Result<Pinned> {
        let flags = (CL_MEM_USE_HOST_PTR | CL_MEM_READ_WRITE) as u64;
        // SAFETY: the range is kept until the buffer is gone.
        let mem = unsafe { context.buffer(flags, range.len(), range.ptr())? };
        let invalidate = CL_MAP_WRITE_INVALIDATE_REGION as u64;
        // SAFETY: live objects; the buffer has so many bytes.
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
        // SAFETY: what the map gave, once; the wait ends the driver's use of the range.
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
        // A driver that is beyond this is beyond use, and so is what it pinned.
        let _ = unmapped.and_then(|()| self.queue.finish());
    }
}
