//! Host memory that the device accesses directly.
//!
//! OpenCL has no call that pins memory. Drivers of GPUs pin the memory of a `CL_MEM_USE_HOST_PTR`
//! buffer while it is mapped, and recognize its addresses: a transfer from or to them is one step,
//! 55 GB/s on an H200 where ordinary memory reaches 9 to 18, and does not block. Pinning costs 90
//! µs per megabyte there. The map discards the buffer's contents
//! (`CL_MAP_WRITE_INVALIDATE_REGION`), so that the driver copies nothing over the client's
//! concurrent writes; the buffer itself is not used.
//!
//! On an H100 such a buffer takes as much memory of the device as of the host. Memory that the
//! driver allocates in the host ([`HostMemory`]) takes none.

use super::{call, check, create, Context, Mem, Queue, Result};
use baltra_opencl::*;
use baltra_ring::Range;
use std::ffi::c_void;
use std::sync::Arc;

/// `clCreateBufferNV` of the extension cl_nv_create_buffer: like `clCreateBuffer`, with flags of the
/// vendor after the usual ones.
type CreateBufferNv = unsafe extern "C" fn(
    cl_context,
    cl_mem_flags,
    cl_ulong,
    usize,
    *mut c_void,
    *mut cl_int,
) -> cl_mem;
/// `CL_MEM_LOCATION_HOST_NV | CL_MEM_PINNED_NV`
const PINNED_IN_HOST: cl_ulong = 1 | 2;

/// A buffer that stays mapped.
struct Mapped {
    mem: Mem,
    queue: Arc<Queue>,
    address: *mut c_void,
}

// SAFETY: the address is only passed to the driver, or given out as a pointer.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    fn new(mem: Mem, queue: &Arc<Queue>, len: usize) -> Result<Mapped> {
        let invalidate = CL_MAP_WRITE_INVALIDATE_REGION as u64;
        // SAFETY: live objects; the buffer has that many bytes.
        let address = unsafe {
            create!(
                queue.driver(),
                clEnqueueMapBuffer(
                    queue.raw(),
                    mem.raw(),
                    1,
                    invalidate,
                    0,
                    len,
                    0,
                    std::ptr::null(),
                    std::ptr::null_mut()
                )
            )?
        };
        Ok(Mapped {
            mem,
            queue: queue.clone(),
            address,
        })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the pointer that the map returned, once; the wait ends the driver's use of the
        // memory.
        let unmapped = unsafe {
            call!(
                self.queue.driver(),
                clEnqueueUnmapMemObject(
                    self.queue.raw(),
                    self.mem.raw(),
                    self.address,
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

/// Pinned memory, as long as it lives.
pub struct Pinned {
    _mapped: Mapped,
    /// Outlives the driver's use of it.
    _range: Range,
}

impl Pinned {
    /// Pins `range` for the context of `queue`. Blocks until it is pinned.
    pub fn new(context: &Context, queue: &Arc<Queue>, range: Range) -> Result<Pinned> {
        let flags = (CL_MEM_USE_HOST_PTR | CL_MEM_READ_WRITE) as u64;
        // SAFETY: the range is kept until the buffer is released.
        let mem = unsafe { context.buffer(flags, range.len(), range.ptr())? };
        Ok(Pinned {
            _mapped: Mapped::new(mem, queue, range.len())?,
            _range: range,
        })
    }
}

/// Pinned memory of the driver's, in the host alone.
pub struct HostMemory(Mapped);

impl HostMemory {
    /// Of `len` bytes, with any contents; `CL_INVALID_OPERATION`: the driver has no such memory.
    pub fn new(context: &Context, queue: &Arc<Queue>, len: usize) -> Result<HostMemory> {
        let driver = queue.driver();
        let create = driver.extension(c"clCreateBufferNV");
        let create = create.ok_or(CL_INVALID_OPERATION)?;
        // SAFETY: the extension gives the function this type.
        let create: CreateBufferNv = unsafe { std::mem::transmute(create) };
        let (flags, mut code) = (CL_MEM_READ_WRITE as u64, CL_SUCCESS);
        let null = std::ptr::null_mut();
        // SAFETY: a live context; the place of the code is writable.
        let raw = unsafe { create(context.raw(), flags, PINNED_IN_HOST, len, null, &mut code) };
        check(code)?;
        if raw.is_null() {
            return Err(CL_OUT_OF_HOST_MEMORY);
        }
        let mem = Mem::own(driver, raw);
        Mapped::new(mem, queue, len).map(HostMemory)
    }

    /// The first byte.
    pub fn ptr(&self) -> *mut u8 {
        self.0.address.cast()
    }
}
