//! Enqueued driver commands.

use super::{call, check, Event, Kernel, Mem, Queue, Result};
use baltra_opencl::*;
use std::ffi::c_void;

/// The options of an enqueued command: its wait list, and whether its event is needed.
#[derive(Clone, Copy)]
pub struct Enqueue<'a> {
    /// Driver events of the queue's own context.
    pub waits: &'a [cl_event],
    /// Whether to return an event.
    pub event: bool,
}

impl Enqueue<'_> {
    fn count(&self) -> u32 {
        self.waits.len() as u32
    }

    /// OpenCL requires a null pointer for an empty list.
    fn list(&self) -> *const cl_event {
        if self.waits.is_empty() {
            std::ptr::null()
        } else {
            self.waits.as_ptr()
        }
    }
}

/// A rectangle transfer's or copy's two sides: origin, row pitch, slice pitch.
pub type Side = ([usize; 3], usize, usize);

/// Enqueues with the wait list and event that every such call ends with.
macro_rules! enqueue {
    ($queue:expr, $how:expr, $name:ident ( $($arg:expr),* $(,)? )) => {{
        let mut event: cl_event = std::ptr::null_mut();
        let place = if $how.event { &raw mut event } else { std::ptr::null_mut() };
        call!(
            $queue.driver(),
            $name($queue.raw(), $($arg,)* $how.count(), $how.list(), place)
        )
        .map(|()| (!event.is_null()).then(|| Event::own($queue.driver(), event)))
    }};
}

impl Queue {
    /// `clFlush`.
    pub fn flush(&self) -> Result<()> {
        // SAFETY: a live queue.
        unsafe { call!(self.driver(), clFlush(self.raw())) }
    }

    /// `clFinish`.
    pub fn finish(&self) -> Result<()> {
        // Waits for an unsubmitted command, which is behind all others.
        let _last = if self.driver().forgets_flushed {
            self.marker(&[], true)?
        } else {
            None
        };
        // SAFETY: a live queue.
        unsafe { call!(self.driver(), clFinish(self.raw())) }
    }

    /// `clEnqueueMarkerWithWaitList`; with nothing to wait for, all before it.
    pub fn marker(&self, waits: &[cl_event], event: bool) -> Result<Option<Event>> {
        let how = Enqueue { waits, event };
        // SAFETY: live events.
        unsafe { enqueue!(self, how, clEnqueueMarkerWithWaitList()) }
    }

    /// `clEnqueueBarrierWithWaitList`.
    pub fn barrier(&self, how: Enqueue) -> Result<Option<Event>> {
        // SAFETY: live events.
        unsafe { enqueue!(self, how, clEnqueueBarrierWithWaitList()) }
    }

    /// `clEnqueueNDRangeKernel`; `local` null-like (all zero): the driver chooses.
    pub fn launch(
        &self,
        how: Enqueue,
        kernel: &Kernel,
        dimensions: u32,
        offset: &[usize; 3],
        global: &[usize; 3],
        local: &[usize; 3],
    ) -> Result<Option<Event>> {
        let local = if local == &[0; 3] {
            std::ptr::null()
        } else {
            local.as_ptr()
        };
        // SAFETY: the arrays have three entries and the driver refuses more dimensions; the
        // kernel's effect on its arguments is contained by this process.
        unsafe {
            enqueue!(
                self,
                how,
                clEnqueueNDRangeKernel(
                    kernel.raw(),
                    dimensions,
                    offset.as_ptr(),
                    global.as_ptr(),
                    local
                )
            )
        }
    }

    /// `clEnqueueReadBuffer`.
    ///
    /// # Safety
    /// `host` is valid for `len` bytes until the command is complete.
    pub unsafe fn read(
        &self,
        how: Enqueue,
        blocking: bool,
        buffer: &Mem,
        offset: usize,
        len: usize,
        host: *mut u8,
    ) -> Result<Option<Event>> {
        // SAFETY: the caller's promise.
        unsafe {
            enqueue!(
                self,
                how,
                clEnqueueReadBuffer(buffer.raw(), blocking.into(), offset, len, host.cast())
            )
        }
    }

    /// `clEnqueueWriteBuffer`.
    ///
    /// # Safety
    /// As [`Queue::read`].
    pub unsafe fn write(
        &self,
        how: Enqueue,
        blocking: bool,
        buffer: &Mem,
        offset: usize,
        len: usize,
        host: *const u8,
    ) -> Result<Option<Event>> {
        // SAFETY: the caller's promise.
        unsafe {
            enqueue!(
                self,
                how,
                clEnqueueWriteBuffer(buffer.raw(), blocking.into(), offset, len, host.cast())
            )
        }
    }

    /// `clEnqueueReadBufferRect` or its writing twin, against tight bytes at `host`.
    ///
    /// # Safety
    /// `host` is valid for the region's bytes until the command is complete.
    pub unsafe fn rect(
        &self,
        how: Enqueue,
        read: bool,
        buffer: &Mem,
        side: Side,
        size: &[usize; 3],
        host: *mut u8,
    ) -> Result<Option<Event>> {
        let (origin, row, slice) = side;
        let zero = [0usize; 3];
        // SAFETY: the arrays have three entries; `host` is the caller's promise.
        unsafe {
            if read {
                enqueue!(
                    self,
                    how,
                    clEnqueueReadBufferRect(
                        buffer.raw(),
                        0,
                        origin.as_ptr(),
                        zero.as_ptr(),
                        size.as_ptr(),
                        row,
                        slice,
                        0,
                        0,
                        host.cast()
                    )
                )
            } else {
                enqueue!(
                    self,
                    how,
                    clEnqueueWriteBufferRect(
                        buffer.raw(),
                        0,
                        origin.as_ptr(),
                        zero.as_ptr(),
                        size.as_ptr(),
                        row,
                        slice,
                        0,
                        0,
                        host.cast()
                    )
                )
            }
        }
    }

    /// `clEnqueueReadImage` or its writing twin, against tight pixels at `host`.
    ///
    /// # Safety
    /// `host` is valid for the region's pixels until the command is complete.
    pub unsafe fn image(
        &self,
        how: Enqueue,
        read: bool,
        image: &Mem,
        origin: &[usize; 3],
        size: &[usize; 3],
        host: *mut u8,
    ) -> Result<Option<Event>> {
        // SAFETY: the arrays have three entries; `host` is the caller's promise.
        unsafe {
            if read {
                enqueue!(
                    self,
                    how,
                    clEnqueueReadImage(
                        image.raw(),
                        0,
                        origin.as_ptr(),
                        size.as_ptr(),
                        0,
                        0,
                        host.cast()
                    )
                )
            } else {
                enqueue!(
                    self,
                    how,
                    clEnqueueWriteImage(
                        image.raw(),
                        0,
                        origin.as_ptr(),
                        size.as_ptr(),
                        0,
                        0,
                        host.cast()
                    )
                )
            }
        }
    }

    /// `clEnqueueCopyBuffer`.
    pub fn copy(
        &self,
        how: Enqueue,
        source: (&Mem, usize),
        target: (&Mem, usize),
        len: usize,
    ) -> Result<Option<Event>> {
        // SAFETY: live objects; the driver checks the range.
        unsafe {
            enqueue!(
                self,
                how,
                clEnqueueCopyBuffer(source.0.raw(), target.0.raw(), source.1, target.1, len)
            )
        }
    }

    /// `clEnqueueCopyBufferRect`.
    pub fn copy_rect(
        &self,
        how: Enqueue,
        source: (&Mem, Side),
        target: (&Mem, Side),
        size: &[usize; 3],
    ) -> Result<Option<Event>> {
        let (from, (from_origin, from_row, from_slice)) = source;
        let (to, (to_origin, to_row, to_slice)) = target;
        // SAFETY: live objects, arrays of three; the driver checks the ranges.
        unsafe {
            enqueue!(
                self,
                how,
                clEnqueueCopyBufferRect(
                    from.raw(),
                    to.raw(),
                    from_origin.as_ptr(),
                    to_origin.as_ptr(),
                    size.as_ptr(),
                    from_row,
                    from_slice,
                    to_row,
                    to_slice
                )
            )
        }
    }

    /// `clEnqueueCopyImage`.
    pub fn copy_image(
        &self,
        how: Enqueue,
        source: (&Mem, &[usize; 3]),
        target: (&Mem, &[usize; 3]),
        size: &[usize; 3],
    ) -> Result<Option<Event>> {
        // SAFETY: live objects, arrays of three; the driver checks the ranges.
        unsafe {
            enqueue!(
                self,
                how,
                clEnqueueCopyImage(
                    source.0.raw(),
                    target.0.raw(),
                    source.1.as_ptr(),
                    target.1.as_ptr(),
                    size.as_ptr()
                )
            )
        }
    }

    /// `clEnqueueCopyImageToBuffer`.
    pub fn copy_image_to_buffer(
        &self,
        how: Enqueue,
        image: (&Mem, &[usize; 3]),
        size: &[usize; 3],
        buffer: (&Mem, usize),
    ) -> Result<Option<Event>> {
        // SAFETY: live objects, arrays of three; the driver checks the ranges.
        unsafe {
            enqueue!(
                self,
                how,
                clEnqueueCopyImageToBuffer(
                    image.0.raw(),
                    buffer.0.raw(),
                    image.1.as_ptr(),
                    size.as_ptr(),
                    buffer.1
                )
            )
        }
    }

    /// `clEnqueueCopyBufferToImage`.
    pub fn copy_buffer_to_image(
        &self,
        how: Enqueue,
        buffer: (&Mem, usize),
        image: (&Mem, &[usize; 3]),
        size: &[usize; 3],
    ) -> Result<Option<Event>> {
        // SAFETY: live objects, arrays of three; the driver checks the ranges.
        unsafe {
            enqueue!(
                self,
                how,
                clEnqueueCopyBufferToImage(
                    buffer.0.raw(),
                    image.0.raw(),
                    buffer.1,
                    image.1.as_ptr(),
                    size.as_ptr()
                )
            )
        }
    }

    /// `clEnqueueFillBuffer`.
    pub fn fill(
        &self,
        how: Enqueue,
        buffer: &Mem,
        pattern: &[u8],
        offset: usize,
        len: usize,
    ) -> Result<Option<Event>> {
        // SAFETY: the pattern is live for its length; the driver copies it.
        unsafe {
            enqueue!(
                self,
                how,
                clEnqueueFillBuffer(
                    buffer.raw(),
                    pattern.as_ptr().cast(),
                    pattern.len(),
                    offset,
                    len
                )
            )
        }
    }

    /// `clEnqueueFillImage`.
    pub fn fill_image(
        &self,
        how: Enqueue,
        image: &Mem,
        color: &[u8; 16],
        origin: &[usize; 3],
        size: &[usize; 3],
    ) -> Result<Option<Event>> {
        // SAFETY: a color is at most 16 bytes; the driver copies it.
        unsafe {
            enqueue!(
                self,
                how,
                clEnqueueFillImage(
                    image.raw(),
                    color.as_ptr().cast(),
                    origin.as_ptr(),
                    size.as_ptr()
                )
            )
        }
    }

    /// `clEnqueueMigrateMemObjects`.
    pub fn migrate(&self, how: Enqueue, objects: &[cl_mem], flags: u64) -> Result<Option<Event>> {
        // SAFETY: live objects.
        unsafe {
            enqueue!(
                self,
                how,
                clEnqueueMigrateMemObjects(objects.len() as u32, objects.as_ptr(), flags)
            )
        }
    }

    /// `clEnqueueSVMMemcpy`, not blocking.
    ///
    /// # Safety
    /// Both addresses are valid for `len` bytes until the command is complete.
    pub unsafe fn svm_copy(
        &self,
        how: Enqueue,
        target: *mut c_void,
        source: *const c_void,
        len: usize,
    ) -> Result<Option<Event>> {
        let mut event: cl_event = std::ptr::null_mut();
        let copy = self
            .driver()
            .api()
            .clEnqueueSVMMemcpy
            .ok_or(CL_INVALID_OPERATION)?;
        let place = if how.event {
            &raw mut event
        } else {
            std::ptr::null_mut()
        };
        // SAFETY: the caller's promise.
        check(unsafe {
            copy(
                self.raw(),
                0,
                target,
                source,
                len,
                how.count(),
                how.list(),
                place,
            )
        })?;
        Ok((!event.is_null()).then(|| Event::own(self.driver(), event)))
    }

    /// `clEnqueueSVMMemFill`.
    ///
    /// # Safety
    /// `target` is valid for `len` bytes until the command is complete.
    pub unsafe fn svm_fill(
        &self,
        how: Enqueue,
        target: *mut c_void,
        pattern: &[u8],
        len: usize,
    ) -> Result<Option<Event>> {
        // SAFETY: the caller's promise; the driver copies the pattern.
        unsafe {
            enqueue!(
                self,
                how,
                clEnqueueSVMMemFill(target, pattern.as_ptr().cast(), pattern.len(), len)
            )
        }
    }
}
