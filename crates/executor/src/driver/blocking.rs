//! Calls that are complete when they return, and therefore need no promise of the caller: for
//! programs that use a driver directly.

use super::{Context, Enqueue, Mem, Queue, Result};

const AT_ONCE: Enqueue = Enqueue {
    waits: &[],
    event: false,
};

impl Context {
    /// `clCreateBuffer` without host memory.
    pub fn device_buffer(&self, flags: u64, size: usize) -> Result<Mem> {
        // SAFETY: the host pointer is null.
        unsafe { self.buffer(flags, size, std::ptr::null_mut()) }
    }
}

impl Queue {
    /// A blocking `clEnqueueWriteBuffer` of all of `bytes`, from the buffer's start.
    pub fn write_from(&self, buffer: &Mem, bytes: &[u8]) -> Result<()> {
        // SAFETY: the call blocks, so that `bytes` outlives the command.
        let written = unsafe { self.write(AT_ONCE, true, buffer, 0, bytes.len(), bytes.as_ptr()) };
        written.map(|_| ())
    }

    /// A blocking `clEnqueueReadBuffer` that fills `bytes`, from the buffer's start.
    pub fn read_into(&self, buffer: &Mem, bytes: &mut [u8]) -> Result<()> {
        let (len, host) = (bytes.len(), bytes.as_mut_ptr());
        // SAFETY: the call blocks, so that `bytes` outlives the command.
        let read = unsafe { self.read(AT_ONCE, true, buffer, 0, len, host) };
        read.map(|_| ())
    }
}
