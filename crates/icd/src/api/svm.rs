//! Shared virtual memory.

use super::Caller;
use crate::core::callback::{self, Opaque};
use crate::core::context::Context;
use crate::core::copy::copy;
use crate::core::event::Waits;
use crate::core::map::{nothing, wants_contents};
use crate::core::object::Object;
use crate::core::queue::{Queue, Submission};
use crate::core::svm::{self, RangeKind};
use crate::core::transfer::{Span, Transfer};
use baltra_opencl::*;
use baltra_wire::{Direction, Operation};
use std::ffi::c_void;

/// The largest data type's size: no alignment is larger.
const ALIGNMENT_MAX: u32 = 128;

/// `clSVMAlloc`
#[no_mangle]
pub unsafe extern "C" fn clSVMAlloc(
    context: cl_context,
    flags: cl_svm_mem_flags,
    size: usize,
    alignment: cl_uint,
) -> *mut c_void {
    handle!(std::ptr::null_mut(), |caller| {
        let context = caller.get::<Context>(context)?;
        let address = allocate(context, flags, size, alignment)?;
        Ok(address as *mut c_void)
    })
}

/// clSVMAlloc will fail if:
fn allocate(
    context: &Object<Context>,
    flags: u64,
    size: usize,
    alignment: u32,
) -> Result<usize, i32> {
    let access = (CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY) as u64;
    let fine = CL_MEM_SVM_FINE_GRAIN_BUFFER as u64;
    let atomics = CL_MEM_SVM_ATOMICS as u64;
    let caps = context.devices.iter().fold(0, |all, d| all | d.limits.svm);
    let can = |cap: i32| caps & cap as u64 != 0;
    // "flags does not contain CL_MEM_SVM_FINE_GRAIN_BUFFER but does contain CL_MEM_SVM_ATOMICS";
    // "Values specified in flags do not follow rules described for supported values in the table
    // above."
    let valid = flags & !(access | fine | atomics) == 0
        && (flags & access).count_ones() <= 1
        && (flags & atomics == 0 || flags & fine != 0);
    // "context is not a valid context, or no devices in context support SVM";
    // "CL_MEM_SVM_FINE_GRAIN_BUFFER or CL_MEM_SVM_ATOMICS is specified in flags and this is not
    // supported by at least one device in context."
    let supported = can(CL_DEVICE_SVM_COARSE_GRAIN_BUFFER)
        && (flags & fine == 0 || can(CL_DEVICE_SVM_FINE_GRAIN_BUFFER))
        && (flags & atomics == 0 || can(CL_DEVICE_SVM_ATOMICS));
    // "alignment is not a power of two or the OpenCL implementation cannot support the specified
    // alignment for at least one device in context."
    let aligned = alignment == 0 || (alignment.is_power_of_two() && alignment <= ALIGNMENT_MAX);
    // "size is 0 or > CL_DEVICE_MAX_MEM_ALLOC_SIZE value for any device in context."
    let fits = |size: u64| {
        context
            .devices
            .iter()
            .all(|d| size <= d.limits.mem_alloc_max)
    };
    if !(valid && supported && aligned && size > 0 && fits(size as u64)) {
        return Err(CL_INVALID_VALUE);
    }
    svm::allocate(context, flags, size, alignment)
}

/// `clSVMFree`
#[no_mangle]
pub unsafe extern "C" fn clSVMFree(context: cl_context, svm_pointer: *mut c_void) {
    let _ = code!(|caller| {
        // "If svm_pointer is a NULL pointer … clSVMFree returns immediately."
        svm::free(caller.get::<Context>(context)?, svm_pointer as usize);
        Ok(())
    });
}

type FreeCallback =
    Option<unsafe extern "C" fn(cl_command_queue, cl_uint, *mut *mut c_void, *mut c_void)>;

/// `clEnqueueSVMFree`
#[no_mangle]
pub unsafe extern "C" fn clEnqueueSVMFree(
    command_queue: cl_command_queue,
    num_svm_pointers: cl_uint,
    svm_pointers: *mut *mut c_void,
    pfn_free_func: FreeCallback,
    user_data: *mut c_void,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    code!(|caller| {
        let queue = queue(caller, command_queue)?;
        // CL_INVALID_VALUE if num_svm_pointers is 0 and svm_pointers is non-NULL, or if
        // svm_pointers is NULL and num_svm_pointers is not 0.
        let count = num_svm_pointers as usize;
        let pointers = caller.list(count, svm_pointers.cast_const(), CL_INVALID_VALUE)?;
        let addresses: Vec<usize> = pointers.iter().map(|p| *p as usize).collect();
        let waits = caller.waits(&queue.context, num_events_in_wait_list, event_wait_list)?;
        let (owner, user_data) = (queue.share(), Opaque::new(user_data));
        let free = move || match pfn_free_func {
            None => addresses.iter().for_each(|&a| svm::free(&owner.context, a)),
            Some(function) => {
                let mut list: Vec<*mut c_void> =
                    addresses.iter().map(|&a| a as *mut c_void).collect();
                // SAFETY: the application's function with its own argument, and a list that
                // lives as long as the call.
                unsafe {
                    function(
                        owner.handle(),
                        list.len() as cl_uint,
                        list.as_mut_ptr(),
                        user_data.pointer(),
                    )
                }
            }
        };
        let submission = Submission {
            command: CL_COMMAND_SVM_FREE,
            waits: &waits,
            more: &[],
            event_ret: event,
            step: Some(Box::new(move |_| callback::run(free))),
            target: None,
            times: None,
        };
        let submitted = queue.submit(submission, &[], &Operation::Marker)?;
        queue.settle_by_itself(&submitted);
        Ok(())
    })
}

/// `clEnqueueSVMMemcpy`
#[no_mangle]
pub unsafe extern "C" fn clEnqueueSVMMemcpy(
    command_queue: cl_command_queue,
    blocking_copy: cl_bool,
    dst_ptr: *mut c_void,
    src_ptr: *const c_void,
    size: usize,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    code!(|caller| {
        let queue = queue(caller, command_queue)?;
        let waits = caller.waits(&queue.context, num_events_in_wait_list, event_wait_list)?;
        // CL_INVALID_VALUE if dst_ptr or src_ptr is NULL.
        if dst_ptr.is_null() || src_ptr.is_null() {
            return Err(CL_INVALID_VALUE);
        }
        let (to, from) = (Span::new(dst_ptr, size), Span::new(src_ptr, size));
        // CL_MEM_COPY_OVERLAP if the values specified for dst_ptr, src_ptr and size result in an
        // overlapping copy.
        if to.start.abs_diff(from.start) < size {
            return Err(CL_MEM_COPY_OVERLAP);
        }
        let t = Transfer {
            queue,
            command: CL_COMMAND_SVM_MEMCPY,
            waits: &waits,
            event_ret: event,
            blocking: blocking_copy != 0,
            uses: None,
        };
        if size == 0 {
            return nothing(&t);
        }
        let here = |span: Span| svm::place(&queue.context, span.start, size);
        let shadow = Some(RangeKind::Shadow);
        match (here(to) == shadow, here(from) == shadow) {
            (false, false) => t.local(move || copy(from.start as _, to.start as _, size)),
            (true, false) => write(t, from, to.start),
            (false, true) => read(t, from.start, to),
            (true, true) => {
                let operation = Operation::SvmCopy {
                    target: to.start as u64,
                    source: from.start as u64,
                    len: size as u64,
                };
                if t.blocking {
                    t.then(Span { start: 0, len: 0 }, &operation, || ())
                } else {
                    queue.enqueue(t.command, t.waits, t.event_ret, &[], &operation)
                }
            }
        }
    })
}

/// Takes bytes of this side to the device's address.
fn write(t: Transfer<'_>, from: Span, to: usize) -> Result<(), i32> {
    let fill = move |block: &mut [u8]| copy(from.start as _, block.as_mut_ptr(), block.len());
    t.write(from.len, from, fill, |payload| Operation::Svm {
        direction: Direction::Write,
        address: to as u64,
        payload,
    })
}

/// Brings bytes of the device's address to this side.
fn read(t: Transfer<'_>, from: usize, to: Span) -> Result<(), i32> {
    let drain = move |block: &[u8]| copy(block.as_ptr(), to.start as _, block.len());
    t.read(to.len, to, drain, |payload| Operation::Svm {
        direction: Direction::Read,
        address: from as u64,
        payload,
    })
}

/// `clEnqueueSVMMemFill`
#[no_mangle]
pub unsafe extern "C" fn clEnqueueSVMMemFill(
    command_queue: cl_command_queue,
    svm_ptr: *mut c_void,
    pattern: *const c_void,
    pattern_size: usize,
    size: usize,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    code!(|caller| {
        let queue = queue(caller, command_queue)?;
        let waits = caller.waits(&queue.context, num_events_in_wait_list, event_wait_list)?;
        // CL_INVALID_VALUE if svm_ptr or pattern is NULL, if pattern_size is 0 or not one of
        // {1, 2, 4, 8, 16, 32, 64, 128}, if svm_ptr is not aligned to pattern_size bytes or if
        // size is not a multiple of pattern_size.
        let sized = pattern_size.is_power_of_two() && pattern_size <= ALIGNMENT_MAX as usize;
        if svm_ptr.is_null()
            || pattern.is_null()
            || !sized
            || !(svm_ptr as usize).is_multiple_of(pattern_size)
            || !size.is_multiple_of(pattern_size)
        {
            return Err(CL_INVALID_VALUE);
        }
        let pattern = caller.slice(pattern_size, pattern.cast::<u8>(), CL_INVALID_VALUE)?;
        let t = Transfer {
            queue,
            command: CL_COMMAND_SVM_MEMFILL,
            waits: &waits,
            event_ret: event,
            blocking: false,
            uses: None,
        };
        let address = svm_ptr as usize;
        if size == 0 {
            return nothing(&t);
        }
        if svm::place(&queue.context, address, size) == Some(RangeKind::Shadow) {
            let operation = Operation::SvmFill {
                address: address as u64,
                pattern,
                len: size as u64,
            };
            return queue.enqueue(t.command, &waits, event, &[], &operation);
        }
        let pattern = pattern.to_vec();
        t.local(move || {
            for at in (0..size).step_by(pattern.len()) {
                copy(pattern.as_ptr(), (address + at) as _, pattern.len());
            }
        })
    })
}

/// `clEnqueueSVMMap`
#[no_mangle]
pub unsafe extern "C" fn clEnqueueSVMMap(
    command_queue: cl_command_queue,
    blocking_map: cl_bool,
    flags: cl_map_flags,
    svm_ptr: *mut c_void,
    size: usize,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    code!(|caller| {
        let queue = queue(caller, command_queue)?;
        let waits = caller.waits(&queue.context, num_events_in_wait_list, event_wait_list)?;
        // CL_INVALID_VALUE if svm_ptr is NULL, if size is 0, or if values specified in map_flags
        // are not valid.
        let known = (CL_MAP_READ | CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION) as u64;
        if svm_ptr.is_null() || size == 0 || flags & !known != 0 {
            return Err(CL_INVALID_VALUE);
        }
        let t = Transfer {
            queue,
            command: CL_COMMAND_SVM_MAP,
            waits: &waits,
            event_ret: event,
            blocking: blocking_map != 0,
            uses: None,
        };
        let address = svm_ptr as usize;
        let place = svm::place(&queue.context, address, size);
        if place == Some(RangeKind::Shadow) && wants_contents(flags) {
            read(t, address, Span::new(svm_ptr, size))?;
        } else {
            nothing(&t)?;
        }
        if place == Some(RangeKind::Shadow) {
            svm::mapped(address, size, flags);
        }
        Ok(())
    })
}

/// `clEnqueueSVMUnmap`
#[no_mangle]
pub unsafe extern "C" fn clEnqueueSVMUnmap(
    command_queue: cl_command_queue,
    svm_ptr: *mut c_void,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    code!(|caller| {
        let queue = queue(caller, command_queue)?;
        let waits = caller.waits(&queue.context, num_events_in_wait_list, event_wait_list)?;
        // CL_INVALID_VALUE if svm_ptr is NULL.
        if svm_ptr.is_null() {
            return Err(CL_INVALID_VALUE);
        }
        unmap(queue, svm_ptr as usize, &waits, event)
    })
}

fn unmap(
    queue: &Object<Queue>,
    address: usize,
    waits: &Waits<'_>,
    event_ret: *mut cl_event,
) -> Result<(), i32> {
    let t = Transfer {
        queue,
        command: CL_COMMAND_SVM_UNMAP,
        waits,
        event_ret,
        blocking: false,
        uses: None,
    };
    let writes = (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION) as u64;
    match svm::place(&queue.context, address, 1) {
        Some(RangeKind::Shadow) => match svm::unmapped(address) {
            Some((len, flags)) if flags & writes != 0 => {
                let from = Span {
                    start: address,
                    len,
                };
                write(t, from, address)
            }
            Some(_) => nothing(&t),
            // CL_INVALID_VALUE if svm_ptr is not a pointer that was mapped.
            None => Err(CL_INVALID_VALUE),
        },
        _ => nothing(&t),
    }
}

/// `clEnqueueSVMMigrateMem`
#[no_mangle]
pub unsafe extern "C" fn clEnqueueSVMMigrateMem(
    command_queue: cl_command_queue,
    num_svm_pointers: cl_uint,
    svm_pointers: *mut *const c_void,
    _sizes: *const usize,
    flags: cl_mem_migration_flags,
    num_events_in_wait_list: cl_uint,
    event_wait_list: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    code!(|caller| {
        let queue = queue(caller, command_queue)?;
        let waits = caller.waits(&queue.context, num_events_in_wait_list, event_wait_list)?;
        // CL_INVALID_VALUE if num_svm_pointers is zero or svm_pointers is NULL, or values
        // specified in flags are not valid.
        let count = num_svm_pointers as usize;
        let pointers = caller.list(count, svm_pointers.cast_const(), CL_INVALID_VALUE)?;
        let host = CL_MIGRATE_MEM_OBJECT_HOST;
        let known = (host | CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED) as u64;
        if pointers.is_empty() || flags & !known != 0 {
            return Err(CL_INVALID_VALUE);
        }
        // CL_INVALID_VALUE if … a pointer is not that of an allocation of the context's.
        let ours = |p: &*const c_void| svm::has(&queue.context, *p as usize);
        if !pointers.iter().all(ours) {
            return Err(CL_INVALID_VALUE);
        }
        // A hint: the driver moves what its kernels touch.
        queue.enqueue_nothing(CL_COMMAND_SVM_MIGRATE_MEM, &waits, event, &[])
    })
}

fn queue<'a>(caller: Caller<'a>, raw: cl_command_queue) -> Result<&'a Object<Queue>, i32> {
    let queue = caller.get::<Queue>(raw)?;
    // CL_INVALID_OPERATION if the device associated with command_queue does not support SVM.
    match queue.device.limits.svm {
        0 => Err(CL_INVALID_OPERATION),
        _ => Ok(queue),
    }
}
