//! `clCreateImage…`, `clGetImageInfo`, `clGetSupportedImageFormats`.

use super::Caller;
use crate::core::context::Context;
use crate::core::image::{access, formats, supported, Plan};
use crate::core::layout::{Ground, ImageLimits};
use crate::core::memory::Memory;
use crate::core::object::{Object, Ref};
use crate::core::pixel::pairs;
use baltra_opencl::*;
use baltra_wire::ImageFormat;
use std::ffi::c_void;

/// `clCreateImage`
#[no_mangle]
pub unsafe extern "C" fn clCreateImage(
    context: cl_context,
    flags: cl_mem_flags,
    image_format: *const cl_image_format,
    image_desc: *const cl_image_desc,
    host_ptr: *mut c_void,
    errcode_ret: *mut cl_int,
) -> cl_mem {
    handle!(errcode_ret, |caller| {
        let context = caller.share::<Context>(context)?;
        let format = caller.value(image_format);
        let desc = caller.value(image_desc);
        Ok(create(caller, context, flags, format, desc, host_ptr, Vec::new())?.give())
    })
}

/// `clCreateImageWithProperties`
#[no_mangle]
pub unsafe extern "C" fn clCreateImageWithProperties(
    context: cl_context,
    properties: *const cl_mem_properties,
    flags: cl_mem_flags,
    image_format: *const cl_image_format,
    image_desc: *const cl_image_desc,
    host_ptr: *mut c_void,
    errcode_ret: *mut cl_int,
) -> cl_mem {
    handle!(errcode_ret, |caller| {
        let context = caller.share::<Context>(context)?;
        // CL_INVALID_PROPERTY if a property name in properties is not a supported property name
        // … (none is defined).
        let list = match caller.pairs(properties) {
            None => Vec::new(),
            Some(list) if list.is_empty() => vec![0],
            Some(_) => return Err(CL_INVALID_PROPERTY),
        };
        let format = caller.value(image_format);
        let desc = caller.value(image_desc);
        Ok(create(caller, context, flags, format, desc, host_ptr, list)?.give())
    })
}

/// `clCreateImage2D`
#[no_mangle]
pub unsafe extern "C" fn clCreateImage2D(
    context: cl_context,
    flags: cl_mem_flags,
    image_format: *const cl_image_format,
    image_width: usize,
    image_height: usize,
    image_row_pitch: usize,
    host_ptr: *mut c_void,
    errcode_ret: *mut cl_int,
) -> cl_mem {
    handle!(errcode_ret, |caller| {
        let context = caller.share::<Context>(context)?;
        let mut desc = empty(CL_MEM_OBJECT_IMAGE2D);
        desc.image_width = image_width;
        desc.image_height = image_height;
        desc.image_row_pitch = image_row_pitch;
        let format = caller.value(image_format);
        let made = create(
            caller,
            context,
            flags,
            format,
            Some(desc),
            host_ptr,
            Vec::new(),
        );
        Ok(made.map_err(old)?.give())
    })
}

/// `clCreateImage3D`
#[no_mangle]
pub unsafe extern "C" fn clCreateImage3D(
    context: cl_context,
    flags: cl_mem_flags,
    image_format: *const cl_image_format,
    image_width: usize,
    image_height: usize,
    image_depth: usize,
    image_row_pitch: usize,
    image_slice_pitch: usize,
    host_ptr: *mut c_void,
    errcode_ret: *mut cl_int,
) -> cl_mem {
    handle!(errcode_ret, |caller| {
        let context = caller.share::<Context>(context)?;
        let mut desc = empty(CL_MEM_OBJECT_IMAGE3D);
        desc.image_width = image_width;
        desc.image_height = image_height;
        desc.image_depth = image_depth;
        desc.image_row_pitch = image_row_pitch;
        desc.image_slice_pitch = image_slice_pitch;
        let format = caller.value(image_format);
        let made = create(
            caller,
            context,
            flags,
            format,
            Some(desc),
            host_ptr,
            Vec::new(),
        );
        Ok(made.map_err(old)?.give())
    })
}

/// The functions of OpenCL 1.0 have no descriptor: "CL_INVALID_IMAGE_SIZE if image_width … are 0 or
/// … image_row_pitch … do not follow rules described in the argument description above".
fn old(code: i32) -> i32 {
    match code {
        CL_INVALID_IMAGE_DESCRIPTOR => CL_INVALID_IMAGE_SIZE,
        code => code,
    }
}

fn empty(kind: i32) -> cl_image_desc {
    cl_image_desc {
        image_type: kind as u32,
        image_width: 0,
        image_height: 0,
        image_depth: 0,
        image_array_size: 0,
        image_row_pitch: 0,
        image_slice_pitch: 0,
        num_mip_levels: 0,
        num_samples: 0,
        __bindgen_anon_1: _cl_image_desc__bindgen_ty_1 {
            mem_object: std::ptr::null_mut(),
        },
    }
}

fn create(
    caller: Caller<'_>,
    context: Ref<Context>,
    flags: u64,
    format: Option<cl_image_format>,
    desc: Option<cl_image_desc>,
    host_ptr: *mut c_void,
    properties: Vec<u64>,
) -> Result<Ref<Memory>, i32> {
    check_flags(flags)?;
    // CL_INVALID_IMAGE_FORMAT_DESCRIPTOR if values specified in image_format are not valid or if
    // image_format is NULL.
    let format = format.ok_or(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR)?;
    let format = ImageFormat {
        order: format.image_channel_order,
        kind: format.image_channel_data_type,
    };
    // CL_INVALID_IMAGE_DESCRIPTOR if values specified in image_desc are not valid or if
    // image_desc is NULL.
    let desc = desc.ok_or(CL_INVALID_IMAGE_DESCRIPTOR)?;
    // SAFETY: both members of the union are the same handle.
    let raw = unsafe { desc.__bindgen_anon_1.mem_object };
    let parent = if raw.is_null() {
        None
    } else {
        Some(below(caller, &context, &desc, raw)?)
    };
    let kind = desc.image_type as i32;
    // A 1D image buffer is made over a buffer.
    if kind == CL_MEM_OBJECT_IMAGE1D_BUFFER && parent.is_none() {
        return Err(CL_INVALID_IMAGE_DESCRIPTOR);
    }
    // CL_INVALID_HOST_PTR if host_ptr is NULL and CL_MEM_USE_HOST_PTR or CL_MEM_COPY_HOST_PTR are
    // set in flags or if host_ptr is not NULL but CL_MEM_COPY_HOST_PTR or CL_MEM_USE_HOST_PTR are
    // not set in flags.
    let wants_host = flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR) as u64 != 0;
    if parent.is_none() && wants_host == host_ptr.is_null() {
        return Err(CL_INVALID_HOST_PTR);
    }
    let ground = match &parent {
        None if wants_host => Ground::Host,
        None => Ground::Own,
        Some(parent) => match &parent.image {
            None => Ground::Buffer(parent.size),
            Some(info) => Ground::Image(info.layout),
        },
    };
    // CL_INVALID_OPERATION if there are no devices in context that support images.
    let limits: Vec<ImageLimits> = context
        .members
        .iter()
        .filter_map(|m| ImageLimits::of(m.client.device()))
        .collect();
    if limits.is_empty() {
        return Err(CL_INVALID_OPERATION);
    }
    let layout = crate::core::layout::Layout::new(format, &desc, ground)?;
    // CL_INVALID_IMAGE_SIZE if image dimensions specified in image_desc exceed the maximum image
    // dimensions … for all devices in context. (A pool is one device.)
    let mut allowed = limits.iter().map(|l| l.allow(&layout.shape));
    let allowed = if context.pooled {
        allowed.all(|yes| yes)
    } else {
        allowed.any(|yes| yes)
    };
    if !allowed {
        return Err(CL_INVALID_IMAGE_SIZE);
    }
    // For a 2D image created from a buffer object, the row pitch must be a multiple of the
    // maximum of CL_DEVICE_IMAGE_PITCH_ALIGNMENT (in pixels) for all devices.
    if kind == CL_MEM_OBJECT_IMAGE2D && matches!(ground, Ground::Buffer(_)) {
        let pixels = limits.iter().map(|l| l.pitch_alignment).max().unwrap_or(0);
        if pixels == 0 {
            return Err(CL_INVALID_OPERATION);
        }
        if layout.pitch.row % (pixels * layout.pixel) != 0 {
            return Err(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR);
        }
    }
    let flags = inherited(flags, parent.as_deref())?;
    // CL_IMAGE_FORMAT_NOT_SUPPORTED if there are no devices in context that support image_format.
    if !supported(&context, flags, desc.image_type, format)? {
        // CL_INVALID_IMAGE_FORMAT_DESCRIPTOR if values specified in image_format are not valid.
        return Err(if pairs(format) {
            CL_IMAGE_FORMAT_NOT_SUPPORTED
        } else {
            CL_INVALID_IMAGE_FORMAT_DESCRIPTOR
        });
    }
    let plan = Plan {
        context,
        flags,
        layout,
        host_ptr: host_ptr as usize,
        parent,
        properties,
    };
    plan.create()
}

const ACCESS: u64 = (CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY) as u64;
const HOST_ACCESS: u64 =
    (CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS) as u64;
const POINTER: u64 = (CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR) as u64;

fn check_flags(flags: u64) -> Result<(), i32> {
    // CL_INVALID_VALUE if values specified in flags are not valid: one kind of access by kernels,
    // one by the host, and the application's memory is used or copied, not both.
    let one = |bits: u64| (flags & bits).count_ones() <= 1;
    let used = flags & CL_MEM_USE_HOST_PTR as u64 != 0;
    let other = flags & (CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR) as u64 != 0;
    let known = ACCESS | HOST_ACCESS | POINTER;
    if flags & !known == 0 && one(ACCESS) && one(HOST_ACCESS) && !(used && other) {
        Ok(())
    } else {
        Err(CL_INVALID_VALUE)
    }
}

/// The buffer or image that an image is made over.
fn below(
    caller: Caller<'_>,
    context: &Ref<Context>,
    desc: &cl_image_desc,
    raw: cl_mem,
) -> Result<Ref<Memory>, i32> {
    // "mem_object may refer to a valid buffer or image memory object … for 1D image buffers and
    // 2D images; otherwise it must be NULL."
    let invalid = CL_INVALID_IMAGE_DESCRIPTOR;
    let parent = caller.share::<Memory>(raw).map_err(|_| invalid)?;
    if !std::ptr::eq(&*parent.context, &**context) {
        return Err(CL_INVALID_CONTEXT);
    }
    let fits = match desc.image_type as i32 {
        CL_MEM_OBJECT_IMAGE1D_BUFFER => !parent.is_image(),
        CL_MEM_OBJECT_IMAGE2D => !parent.is_image() || parent.kind == CL_MEM_OBJECT_IMAGE2D,
        _ => false,
    };
    fits.then_some(parent).ok_or(invalid)
}

/// "If … flags are not specified, they are inherited from the corresponding memory access
/// qualifiers associated with mem_object. The CL_MEM_USE_HOST_PTR, CL_MEM_ALLOC_HOST_PTR and
/// CL_MEM_COPY_HOST_PTR values cannot be specified in flags but are inherited."
fn inherited(flags: u64, parent: Option<&Object<Memory>>) -> Result<u64, i32> {
    let mut complete = flags;
    if let Some(parent) = parent {
        if flags & POINTER != 0 {
            return Err(CL_INVALID_VALUE);
        }
        // CL_INVALID_VALUE if mem_object was created with CL_MEM_WRITE_ONLY and flags specifies
        // CL_MEM_READ_WRITE or CL_MEM_READ_ONLY, and the like.
        let wider = |narrow: i32, allowed: u64, bits: u64| {
            parent.flags & narrow as u64 != 0 && flags & bits & !allowed != 0
        };
        let only_write = CL_MEM_WRITE_ONLY as u64;
        let only_read = CL_MEM_READ_ONLY as u64;
        if wider(CL_MEM_WRITE_ONLY, only_write, ACCESS)
            || wider(CL_MEM_READ_ONLY, only_read, ACCESS)
            || wider(
                CL_MEM_HOST_WRITE_ONLY,
                (CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_NO_ACCESS) as u64,
                HOST_ACCESS,
            )
            || wider(
                CL_MEM_HOST_READ_ONLY,
                (CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS) as u64,
                HOST_ACCESS,
            )
            || wider(
                CL_MEM_HOST_NO_ACCESS,
                CL_MEM_HOST_NO_ACCESS as u64,
                HOST_ACCESS,
            )
        {
            return Err(CL_INVALID_VALUE);
        }
        for bits in [ACCESS, HOST_ACCESS, POINTER] {
            if flags & bits == 0 {
                complete |= parent.flags & bits;
            }
        }
    }
    if complete & ACCESS == 0 {
        complete |= CL_MEM_READ_WRITE as u64;
    }
    Ok(complete)
}

/// `clGetImageInfo`
#[no_mangle]
pub unsafe extern "C" fn clGetImageInfo(
    image: cl_mem,
    param_name: cl_image_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int {
    code!(|caller| {
        let image = caller.get::<Memory>(image)?;
        let layout = image.pixels()?;
        let answer = caller.answer(param_value_size, param_value, param_value_size_ret);
        let shape = &layout.shape;
        match param_name as i32 {
            CL_IMAGE_FORMAT => answer.value(cl_image_format {
                image_channel_order: layout.format.order,
                image_channel_data_type: layout.format.kind,
            }),
            CL_IMAGE_ELEMENT_SIZE => answer.value(layout.pixel),
            CL_IMAGE_ROW_PITCH => answer.value(layout.pitch.row),
            // For a 1D image, 1D image buffer and 2D image object return 0.
            CL_IMAGE_SLICE_PITCH => answer.value(if layout.is_deep() {
                layout.pitch.slice
            } else {
                0
            }),
            CL_IMAGE_WIDTH => answer.value(shape.width as usize),
            CL_IMAGE_HEIGHT => answer.value(shape.height as usize),
            CL_IMAGE_DEPTH => answer.value(shape.depth as usize),
            CL_IMAGE_ARRAY_SIZE => answer.value(shape.array_size as usize),
            CL_IMAGE_BUFFER => answer.value(match &image.parent {
                Some(parent) if !parent.is_image() => parent.handle(),
                _ => std::ptr::null_mut(),
            }),
            CL_IMAGE_NUM_MIP_LEVELS | CL_IMAGE_NUM_SAMPLES => answer.value(0u32),
            // CL_INVALID_VALUE if param_name is not valid.
            _ => Err(CL_INVALID_VALUE),
        }
    })
}

/// `clGetSupportedImageFormats`
#[no_mangle]
pub unsafe extern "C" fn clGetSupportedImageFormats(
    context: cl_context,
    flags: cl_mem_flags,
    image_type: cl_mem_object_type,
    num_entries: cl_uint,
    image_formats: *mut cl_image_format,
    num_image_formats: *mut cl_uint,
) -> cl_int {
    code!(|caller| {
        let context = caller.get::<Context>(context)?;
        // CL_INVALID_VALUE if flags or image_type are not valid, or if num_entries is 0 and
        // image_formats is not NULL.
        check_flags(flags & !(CL_MEM_KERNEL_READ_AND_WRITE as u64))?;
        let types = [
            CL_MEM_OBJECT_IMAGE1D,
            CL_MEM_OBJECT_IMAGE1D_BUFFER,
            CL_MEM_OBJECT_IMAGE1D_ARRAY,
            CL_MEM_OBJECT_IMAGE2D,
            CL_MEM_OBJECT_IMAGE2D_ARRAY,
            CL_MEM_OBJECT_IMAGE3D,
        ];
        if !types.contains(&(image_type as i32)) || (num_entries == 0 && !image_formats.is_null()) {
            return Err(CL_INVALID_VALUE);
        }
        let found: Vec<cl_image_format> = formats(context, access(flags), image_type)?
            .iter()
            .map(|f| cl_image_format {
                image_channel_order: f.order,
                image_channel_data_type: f.kind,
            })
            .collect();
        caller.fill(image_formats, num_entries as usize, &found);
        caller.set(num_image_formats, found.len() as cl_uint);
        Ok(())
    })
}
