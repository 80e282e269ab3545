//! Commands on buffers, and the end of every command.

use super::object;
use super::objects::{handle, Event, Mem, Times};
use baltra_opencl::*;
use baltra_ring::lease::monotonic_ns;
use std::ffi::c_void;

/// Adds this module's functions to a dispatch table.
pub fn fill(api: &mut cl_icd_dispatch) {
    api.clFlush = Some(nothing_left);
    api.clFinish = Some(nothing_left);
    api.clEnqueueMarkerWithWaitList = Some(marker);
    api.clEnqueueBarrierWithWaitList = Some(marker);
    api.clEnqueueReadBuffer = Some(read);
    api.clEnqueueWriteBuffer = Some(write);
    api.clEnqueueReadBufferRect = Some(read_rect);
    api.clEnqueueWriteBufferRect = Some(write_rect);
    api.clEnqueueCopyBuffer = Some(copy);
    api.clEnqueueCopyBufferRect = Some(copy_rect);
    api.clEnqueueFillBuffer = Some(fill_buffer);
    api.clEnqueueMigrateMemObjects = Some(migrate);
}

/// A command's result, or its error.
pub type Result<T> = std::result::Result<T, cl_int>;

/// The end of a command: its event, or its error. `ns`: duration of the whole, and of the part that
/// profiling reports as the command.
///
/// # Safety
/// `event` is null or writable.
pub unsafe fn done(result: Result<(u64, u64)>, event: *mut cl_event) -> cl_int {
    match result {
        Ok((whole_ns, own_ns)) => {
            let ended_ns = monotonic_ns();
            if !event.is_null() {
                let made = Event::complete(times(ended_ns, (whole_ns, own_ns)));
                // SAFETY: the caller's promise.
                unsafe { *event = handle(made) };
            }
            CL_SUCCESS
        }
        Err(code) => code,
    }
}

/// The times of a command that took that long.
pub fn times(ended_ns: u64, (whole_ns, own_ns): (u64, u64)) -> Times {
    Times {
        submitted_ns: ended_ns.saturating_sub(whole_ns),
        started_ns: ended_ns.saturating_sub(own_ns),
        ended_ns,
    }
}

/// Runs a command on the host and measures its time.
fn timed(work: impl FnOnce() -> Result<()>) -> Result<(u64, u64)> {
    let begun = monotonic_ns();
    work()?;
    let took = monotonic_ns() - begun;
    Ok((took, took))
}

unsafe extern "C" fn nothing_left(_: cl_command_queue) -> cl_int {
    CL_SUCCESS
}

unsafe extern "C" fn marker(
    _: cl_command_queue,
    _: cl_uint,
    _: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    // SAFETY: OpenCL's promise.
    unsafe { done(Ok((0, 0)), event) }
}

unsafe extern "C" fn read(
    _: cl_command_queue,
    mem: cl_mem,
    _: cl_bool,
    offset: usize,
    len: usize,
    host: *mut c_void,
    _: cl_uint,
    _: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    // SAFETY: a live buffer, and `len` bytes at `host`, which is not the window.
    unsafe {
        let part = object::<Mem, _>(mem).part_to_read(offset, len);
        let work = || {
            let part = part.ok_or(CL_INVALID_VALUE)?;
            std::ptr::copy_nonoverlapping(part.ptr(), host.cast(), len);
            Ok(())
        };
        done(timed(work), event)
    }
}

unsafe extern "C" fn write(
    _: cl_command_queue,
    mem: cl_mem,
    _: cl_bool,
    offset: usize,
    len: usize,
    host: *const c_void,
    _: cl_uint,
    _: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    // SAFETY: as in `read`.
    unsafe {
        let part = object::<Mem, _>(mem).part(offset, len);
        let work = || {
            let part = part.ok_or(CL_INVALID_VALUE)?;
            std::ptr::copy_nonoverlapping(host.cast(), part.ptr(), len);
            Ok(())
        };
        done(timed(work), event)
    }
}

/// A rectangle of rows: its origin, pitches and size. Zero pitches mean tight rows.
#[derive(Clone, Copy)]
struct Rect {
    origin: [usize; 3],
    row: usize,
    slice: usize,
    size: [usize; 3],
}

impl Rect {
    /// # Safety
    /// Both lists have three entries.
    unsafe fn new(origin: *const usize, size: *const usize, row: usize, slice: usize) -> Rect {
        // SAFETY: the caller's promise.
        let (origin, size) = unsafe { (*origin.cast::<[usize; 3]>(), *size.cast::<[usize; 3]>()) };
        let row = if row == 0 { size[0] } else { row };
        let slice = if slice == 0 {
            row.saturating_mul(size[1])
        } else {
            slice
        };
        Rect {
            origin,
            row,
            slice,
            size,
        }
    }

    /// The offset of each row; an error if it exceeds `bytes`.
    fn rows(self, bytes: usize) -> Result<impl Iterator<Item = usize>> {
        let Rect {
            origin,
            row,
            slice,
            size,
        } = self;
        let place = move |z: usize, y: usize| {
            let z = slice.checked_mul(origin[2].checked_add(z)?)?;
            let y = row.checked_mul(origin[1].checked_add(y)?)?;
            z.checked_add(y)?.checked_add(origin[0])
        };
        if size.contains(&0) {
            return Err(CL_INVALID_VALUE);
        }
        let last = place(size[2] - 1, size[1] - 1).and_then(|at| at.checked_add(size[0]));
        if last.is_none_or(|end| end > bytes) {
            return Err(CL_INVALID_VALUE);
        }
        let places = move |z| (0..size[1]).map(move |y| place(z, y).expect("the last one fits"));
        Ok((0..size[2]).flat_map(places))
    }
}

macro_rules! rect {
    ($name:ident, $host:ty, $part:ident, $copy:expr) => {
        unsafe extern "C" fn $name(
            _: cl_command_queue,
            mem: cl_mem,
            _: cl_bool,
            buffer_origin: *const usize,
            host_origin: *const usize,
            size: *const usize,
            buffer_row: usize,
            buffer_slice: usize,
            host_row: usize,
            host_slice: usize,
            host: $host,
            _: cl_uint,
            _: *const cl_event,
            event: *mut cl_event,
        ) -> cl_int {
            // SAFETY: a live buffer; the lists have three entries, and `host` has the rectangle's bytes.
            unsafe {
                let mem: &Mem = object(mem);
                let here = Rect::new(buffer_origin, size, buffer_row, buffer_slice);
                let there = Rect::new(host_origin, size, host_row, host_slice);
                let work = || {
                    let whole = mem.$part(0, mem.bytes).ok_or(CL_INVALID_VALUE)?;
                    let rows = here.rows(mem.bytes)?.zip(there.rows(usize::MAX)?);
                    for (here_at, there_at) in rows {
                        let here_row: *mut u8 = whole.ptr().add(here_at);
                        $copy(here_row, host.cast::<u8>().add(there_at), here.size[0]);
                    }
                    Ok(())
                };
                done(timed(work), event)
            }
        }
    };
}
rect!(
    read_rect,
    *mut c_void,
    part_to_read,
    |here: *mut u8, there: *mut u8, len| {
        std::ptr::copy_nonoverlapping(here.cast_const(), there, len);
    }
);
rect!(
    write_rect,
    *const c_void,
    part,
    |here: *mut u8, there: *const u8, len| {
        std::ptr::copy_nonoverlapping(there, here, len);
    }
);

unsafe extern "C" fn copy(
    _: cl_command_queue,
    source: cl_mem,
    target: cl_mem,
    from: usize,
    to: usize,
    len: usize,
    _: cl_uint,
    _: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    // SAFETY: live buffers.
    unsafe {
        let source = object::<Mem, _>(source).part_to_read(from, len);
        let target = object::<Mem, _>(target).part(to, len);
        let work = || {
            let (source, target) = source.zip(target).ok_or(CL_INVALID_VALUE)?;
            std::ptr::copy(source.ptr(), target.ptr(), len);
            Ok(())
        };
        done(timed(work), event)
    }
}

unsafe extern "C" fn copy_rect(
    _: cl_command_queue,
    source: cl_mem,
    target: cl_mem,
    source_origin: *const usize,
    target_origin: *const usize,
    size: *const usize,
    source_row: usize,
    source_slice: usize,
    target_row: usize,
    target_slice: usize,
    _: cl_uint,
    _: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    // SAFETY: live buffers; the lists have three entries.
    unsafe {
        let (source, target): (&Mem, &Mem) = (object(source), object(target));
        let from = Rect::new(source_origin, size, source_row, source_slice);
        let to = Rect::new(target_origin, size, target_row, target_slice);
        let work = || {
            let parts = source
                .part_to_read(0, source.bytes)
                .zip(target.part(0, target.bytes));
            let (source_bytes, target_bytes) = parts.ok_or(CL_INVALID_VALUE)?;
            for (here, there) in from.rows(source.bytes)?.zip(to.rows(target.bytes)?) {
                let source = source_bytes.ptr().add(here);
                std::ptr::copy(source, target_bytes.ptr().add(there), from.size[0]);
            }
            Ok(())
        };
        done(timed(work), event)
    }
}

unsafe extern "C" fn fill_buffer(
    _: cl_command_queue,
    mem: cl_mem,
    pattern: *const c_void,
    pattern_len: usize,
    offset: usize,
    len: usize,
    _: cl_uint,
    _: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    // SAFETY: a live buffer and pattern.
    unsafe {
        let part = object::<Mem, _>(mem).part(offset, len);
        let pattern = std::slice::from_raw_parts(pattern.cast::<u8>(), pattern_len);
        let work = || {
            let part = part.ok_or(CL_INVALID_VALUE)?;
            if pattern.is_empty() || !len.is_multiple_of(pattern.len()) {
                return Err(CL_INVALID_VALUE);
            }
            for at in (0..len).step_by(pattern.len()) {
                part.copy_in(at, pattern);
            }
            Ok(())
        };
        done(timed(work), event)
    }
}

unsafe extern "C" fn migrate(
    _: cl_command_queue,
    _: cl_uint,
    _: *const cl_mem,
    _: cl_mem_migration_flags,
    _: cl_uint,
    _: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    // SAFETY: OpenCL's promise.
    unsafe { done(Ok((0, 0)), event) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rectangles_stay_inside() {
        let rect = Rect {
            origin: [1, 1, 0],
            row: 10,
            slice: 100,
            size: [3, 2, 2],
        };
        let rows: Vec<_> = rect.rows(200).unwrap().collect();
        assert_eq!(rows, [11, 21, 111, 121]);
        assert!(rect.rows(124).is_ok() && rect.rows(123).is_err());
        let huge = Rect {
            row: usize::MAX,
            ..rect
        };
        assert!(huge.rows(usize::MAX).is_err());
        let empty = Rect {
            size: [0, 1, 1],
            ..rect
        };
        assert!(empty.rows(200).is_err());
    }
}
