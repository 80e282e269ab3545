//! Buffers, sub-buffers, and what all memory objects share.

use super::Caller;
use crate::core::callback::Opaque;
use crate::core::context::Context;
use crate::core::memory::{Memory, MemoryParameters, HOST_POINTER_FLAGS};
use crate::core::svm;
use baltra_opencl::*;
use baltra_ring::Locked;
use std::ffi::c_void;

const DEVICE_ACCESS: u64 = (CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY) as u64;
const HOST_ACCESS: u64 =
    (CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS) as u64;

fn at_most_one(bits: u64) -> bool {
    bits.count_ones() <= 1
}

/// Checks `cl_mem_flags` of a buffer or image, and fills in the default.
pub(super) fn check_flags(flags: u64) -> Result<u64, i32> {
    // CL_INVALID_VALUE if values specified in flags are not valid.
    let known = DEVICE_ACCESS | HOST_ACCESS | HOST_POINTER_FLAGS;
    let use_host = flags & CL_MEM_USE_HOST_PTR as u64 != 0;
    let other = (CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR) as u64;
    if flags & !known != 0
        || !at_most_one(flags & DEVICE_ACCESS)
        || !at_most_one(flags & HOST_ACCESS)
        || (use_host && flags & other != 0)
    {
        return Err(CL_INVALID_VALUE);
    }
    Ok(match flags & DEVICE_ACCESS {
        0 => flags | CL_MEM_READ_WRITE as u64,
        _ => flags,
    })
}

/// Checks the host pointer against the flags.
pub(super) fn check_host_ptr(flags: u64, host_ptr: *mut c_void) -> Result<(), i32> {
    // CL_INVALID_HOST_PTR if host_ptr is NULL and CL_MEM_USE_HOST_PTR or CL_MEM_COPY_HOST_PTR
    // are set in flags or if host_ptr is not NULL but CL_MEM_COPY_HOST_PTR or
    // CL_MEM_USE_HOST_PTR are not set in flags.
    let uses = flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR) as u64 != 0;
    if uses == host_ptr.is_null() {
        Err(CL_INVALID_HOST_PTR)
    } else {
        Ok(())
    }
}

fn create(
    caller: Caller<'_>,
    context: cl_context,
    properties: *const cl_mem_properties,
    flags: u64,
    size: usize,
    host_ptr: *mut c_void,
) -> Result<cl_mem, i32> {
    let context = caller.share::<Context>(context)?;
    // CL_INVALID_PROPERTY if a property name in properties is not a supported property name.
    let mut list = caller.pairs(properties).unwrap_or_default();
    if !list.is_empty() {
        return Err(CL_INVALID_PROPERTY);
    }
    if !properties.is_null() {
        list.push(0);
    }
    let flags = check_flags(flags)?;
    // CL_INVALID_BUFFER_SIZE if size is 0. "Implementations may return CL_INVALID_BUFFER_SIZE if
    // size is greater than CL_DEVICE_MAX_MEM_ALLOC_SIZE": some drivers create such buffers, up to
    // the device's memory.
    let sizes = context.devices.iter().map(|d| {
        let most = d.limits.mem_alloc_max;
        if size as u64 > most {
            most.max(d.number(CL_DEVICE_GLOBAL_MEM_SIZE))
        } else {
            most
        }
    });
    if size == 0 || size as u64 > sizes.max().unwrap_or(0) {
        return Err(CL_INVALID_BUFFER_SIZE);
    }
    check_host_ptr(flags, host_ptr)?;
    let uses = flags & CL_MEM_USE_HOST_PTR as u64 != 0;
    // CL_INVALID_BUFFER_SIZE if CL_MEM_USE_HOST_PTR is set in flags and host_ptr is a pointer
    // returned by clSVMAlloc and size is greater than the size passed to clSVMAlloc.
    let pointer = host_ptr as usize;
    if uses && svm::has(&context, pointer) && svm::place(&context, pointer, size).is_none() {
        return Err(CL_INVALID_BUFFER_SIZE);
    }
    let contents = if host_ptr.is_null() {
        None
    } else {
        Some(caller.slice(size, host_ptr.cast::<u8>(), CL_INVALID_HOST_PTR)?)
    };
    let parameters = MemoryParameters {
        context,
        kind: CL_MEM_OBJECT_BUFFER,
        flags,
        size,
        host_ptr: if uses { host_ptr as usize } else { 0 },
        parent: None,
        origin: 0,
        image: None,
        pipe: None,
        properties: list,
    };
    Ok(Memory::buffer(parameters, contents)?.give())
}

#[no_mangle]
pub unsafe extern "C" fn clCreateBuffer(
    context: cl_context,
    flags: cl_mem_flags,
    size: usize,
    host_ptr: *mut c_void,
    errcode_ret: *mut cl_int,
) -> cl_mem {
    handle!(errcode_ret, |caller| create(
        caller,
        context,
        std::ptr::null(),
        flags,
        size,
        host_ptr
    ))
}

#[no_mangle]
pub unsafe extern "C" fn clCreateBufferWithProperties(
    context: cl_context,
    properties: *const cl_mem_properties,
    flags: cl_mem_flags,
    size: usize,
    host_ptr: *mut c_void,
    errcode_ret: *mut cl_int,
) -> cl_mem {
    handle!(errcode_ret, |caller| create(
        caller, context, properties, flags, size, host_ptr
    ))
}

/// A sub-buffer's flags: its own, and its parent's where it has none.
fn inherit(flags: u64, parent: u64) -> Result<u64, i32> {
    let known = DEVICE_ACCESS | HOST_ACCESS;
    // CL_INVALID_VALUE if flags specifies CL_MEM_USE_HOST_PTR, CL_MEM_ALLOC_HOST_PTR or
    // CL_MEM_COPY_HOST_PTR.
    if flags & !known != 0
        || !at_most_one(flags & DEVICE_ACCESS)
        || !at_most_one(flags & HOST_ACCESS)
    {
        return Err(CL_INVALID_VALUE);
    }
    let has = |set: u64, flag: i32| set & flag as u64 != 0;
    // CL_INVALID_VALUE if buffer was created with CL_MEM_WRITE_ONLY and flags specifies
    // CL_MEM_READ_WRITE or CL_MEM_READ_ONLY, or if buffer was created with CL_MEM_READ_ONLY and
    // flags specifies CL_MEM_READ_WRITE or CL_MEM_WRITE_ONLY, or if buffer was created with
    // CL_MEM_HOST_WRITE_ONLY and flags specifies CL_MEM_HOST_READ_ONLY, or if buffer was created
    // with CL_MEM_HOST_READ_ONLY and flags specifies CL_MEM_HOST_WRITE_ONLY, or if buffer was
    // created with CL_MEM_HOST_NO_ACCESS and flags specifies CL_MEM_HOST_READ_ONLY or
    // CL_MEM_HOST_WRITE_ONLY.
    let wider = (has(parent, CL_MEM_WRITE_ONLY)
        && has(flags, CL_MEM_READ_WRITE | CL_MEM_READ_ONLY))
        || (has(parent, CL_MEM_READ_ONLY) && has(flags, CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY))
        || (has(parent, CL_MEM_HOST_WRITE_ONLY) && has(flags, CL_MEM_HOST_READ_ONLY))
        || (has(parent, CL_MEM_HOST_READ_ONLY) && has(flags, CL_MEM_HOST_WRITE_ONLY))
        || (has(parent, CL_MEM_HOST_NO_ACCESS)
            && has(flags, CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_WRITE_ONLY));
    if wider {
        return Err(CL_INVALID_VALUE);
    }
    let take = |mask: u64| {
        if flags & mask == 0 {
            parent & mask
        } else {
            flags & mask
        }
    };
    Ok(take(DEVICE_ACCESS) | take(HOST_ACCESS) | parent & HOST_POINTER_FLAGS)
}

#[no_mangle]
pub unsafe extern "C" fn clCreateSubBuffer(
    buffer: cl_mem,
    flags: cl_mem_flags,
    buffer_create_type: cl_buffer_create_type,
    buffer_create_info: *const c_void,
    errcode_ret: *mut cl_int,
) -> cl_mem {
    handle!(errcode_ret, |caller| {
        let parent = caller.get::<Memory>(buffer)?;
        // CL_INVALID_MEM_OBJECT if buffer is not a valid buffer object or is a sub-buffer object.
        if parent.kind != CL_MEM_OBJECT_BUFFER || parent.parent.is_some() {
            return Err(CL_INVALID_MEM_OBJECT);
        }
        let flags = inherit(flags, parent.flags)?;
        // CL_INVALID_VALUE if the value specified in buffer_create_type is not valid, or if
        // values specified in buffer_create_info are not valid or if it is NULL.
        if buffer_create_type as i32 != CL_BUFFER_CREATE_TYPE_REGION {
            return Err(CL_INVALID_VALUE);
        }
        let region = caller.value(buffer_create_info.cast::<cl_buffer_region>());
        let region = region.ok_or(CL_INVALID_VALUE)?;
        // CL_INVALID_BUFFER_SIZE if the size field of the cl_buffer_region structure is 0.
        if region.size == 0 {
            return Err(CL_INVALID_BUFFER_SIZE);
        }
        // CL_INVALID_VALUE if the region specified is out of bounds.
        inside(parent.size, region.origin, region.size)?;
        let host_ptr = match parent.host_ptr {
            0 => 0,
            pointer => pointer + region.origin,
        };
        let parameters = MemoryParameters {
            context: parent.context.clone(),
            kind: CL_MEM_OBJECT_BUFFER,
            flags,
            size: region.size,
            host_ptr,
            parent: Some(parent.share()),
            origin: region.origin,
            image: None,
            pipe: None,
            properties: Vec::new(),
        };
        Ok(Memory::buffer(parameters, None)?.give())
    })
}

/// `CL_INVALID_VALUE` unless `offset..offset + len` lies within `size` bytes.
pub(super) fn inside(size: usize, offset: usize, len: usize) -> Result<(), i32> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(CL_INVALID_VALUE),
    }
}

#[no_mangle]
pub unsafe extern "C" fn clRetainMemObject(memobj: cl_mem) -> cl_int {
    code!(|caller| caller.retain::<Memory>(memobj))
}

#[no_mangle]
pub unsafe extern "C" fn clReleaseMemObject(memobj: cl_mem) -> cl_int {
    code!(|caller| caller.release::<Memory>(memobj))
}

#[no_mangle]
pub unsafe extern "C" fn clGetMemObjectInfo(
    memobj: cl_mem,
    param_name: cl_mem_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int {
    code!(|caller| {
        let memory = caller.get::<Memory>(memobj)?;
        let answer = caller.answer(param_value_size, param_value, param_value_size_ret);
        match param_name as i32 {
            CL_MEM_TYPE => answer.value(memory.kind as u32),
            CL_MEM_FLAGS => answer.value(memory.flags),
            CL_MEM_SIZE => answer.value(memory.size),
            CL_MEM_HOST_PTR => answer.value(memory.host_ptr),
            CL_MEM_MAP_COUNT => {
                let maps = memory.maps.locked();
                answer.value(maps.len() as u32)
            }
            CL_MEM_REFERENCE_COUNT => answer.value(memory.references()),
            CL_MEM_CONTEXT => answer.value(memory.context.handle()),
            CL_MEM_ASSOCIATED_MEMOBJECT => {
                let parent = memory.parent.as_ref();
                answer.value(parent.map_or(std::ptr::null_mut(), |p| p.handle()))
            }
            CL_MEM_OFFSET => answer.value(memory.origin),
            CL_MEM_USES_SVM_POINTER => answer.flag(memory.uses_svm()),
            CL_MEM_PROPERTIES => answer.values(&memory.properties),
            _ => Err(CL_INVALID_VALUE),
        }
    })
}

#[no_mangle]
pub unsafe extern "C" fn clSetMemObjectDestructorCallback(
    memobj: cl_mem,
    pfn_notify: Option<unsafe extern "C" fn(cl_mem, *mut c_void)>,
    user_data: *mut c_void,
) -> cl_int {
    code!(|caller| {
        let handle = Opaque::new(memobj);
        let memory = caller.get::<Memory>(memobj)?;
        // CL_INVALID_VALUE if pfn_notify is NULL.
        let notify = pfn_notify.ok_or(CL_INVALID_VALUE)?;
        let user_data = Opaque::new(user_data);
        memory.at_end(Box::new(move || {
            // SAFETY: the application's callback with the pointer that it registered.
            unsafe { notify(handle.pointer(), user_data.pointer()) };
        }));
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contradicting_flags_are_refused() {
        let flags = |f: i32| check_flags(f as u64);
        assert_eq!(flags(0), Ok(CL_MEM_READ_WRITE as u64));
        assert!(flags(CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY).is_err());
        assert!(flags(CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR).is_err());
        assert!(flags(CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR).is_ok());
        assert!(flags(CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS).is_err());
    }

    #[test]
    fn a_sub_buffer_may_not_widen_its_parents_access() {
        let inherit = |own: i32, parent: i32| inherit(own as u64, parent as u64);
        assert!(inherit(CL_MEM_READ_WRITE, CL_MEM_READ_ONLY).is_err());
        let narrowed = inherit(CL_MEM_READ_ONLY, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR);
        let expected = CL_MEM_READ_ONLY | CL_MEM_USE_HOST_PTR;
        assert_eq!(narrowed, Ok(expected as u64));
        assert_eq!(inherit(0, CL_MEM_WRITE_ONLY), Ok(CL_MEM_WRITE_ONLY as u64));
    }

    #[test]
    fn ranges_that_wrap_around_are_outside() {
        assert!(inside(16, 8, 8).is_ok());
        assert!(inside(16, usize::MAX, 2).is_err());
        assert!(inside(16, 9, 8).is_err());
    }
}
