//! Extension entry points, and those of OpenCL 1.x that later versions replaced.

use crate::core::platform::{platform, Platform};
use crate::dispatch;
use baltra_opencl::*;
use std::ffi::{c_char, c_void};

/// An entry point by its name, for applications and for the loader.
fn address(name: Option<&str>) -> *mut c_void {
    let found = dispatch::EXTENSIONS
        .iter()
        .find(|(known, _)| Some(*known) == name);
    found.map_or(std::ptr::null_mut(), |(_, address)| address.0.cast_mut())
}

#[no_mangle]
pub unsafe extern "C" fn clGetExtensionFunctionAddress(func_name: *const c_char) -> *mut c_void {
    // SAFETY: this is the body of an unsafe entry point, whose caller guarantees that the arguments
    // are valid as the OpenCL specification requires.
    let caller = unsafe { super::Caller::new() };
    address(caller.text(func_name).and_then(|name| name.to_str().ok()))
}

#[no_mangle]
pub unsafe extern "C" fn clGetExtensionFunctionAddressForPlatform(
    platform_id: cl_platform_id,
    func_name: *const c_char,
) -> *mut c_void {
    // SAFETY: as above.
    let caller = unsafe { super::Caller::new() };
    let known = caller.get::<Platform>(platform_id);
    if !known.is_ok_and(|p| std::ptr::eq(p, platform())) {
        return std::ptr::null_mut();
    }
    address(caller.text(func_name).and_then(|name| name.to_str().ok()))
}

/// Entry points for objects that are not shared with the device's host. They are in every loader's
/// table, so a call must return an error.
macro_rules! refused {
    (create { $($create:ident($($ct:ty),*);)* } code { $($code:ident($($t:ty),*);)* }) => {
        $(
            /// Not supported: no device reports that it shares objects with OpenGL.
            #[no_mangle]
            pub unsafe extern "C" fn $create(
                _: cl_context,
                $(_: $ct,)*
                errcode_ret: *mut cl_int,
            ) -> cl_mem {
                handle!(errcode_ret, |_| Err(CL_INVALID_OPERATION))
            }
        )*
        $(
            /// Not supported: no device reports that it shares objects with OpenGL.
            #[no_mangle]
            pub unsafe extern "C" fn $code($(_: $t),*) -> cl_int {
                CL_INVALID_OPERATION
            }
        )*
    };
}

refused! {
    create {
    clCreateFromGLBuffer(cl_mem_flags, cl_uint);
    clCreateFromGLTexture(cl_mem_flags, cl_uint, cl_int, cl_uint);
    clCreateFromGLTexture2D(cl_mem_flags, cl_uint, cl_int, cl_uint);
    clCreateFromGLTexture3D(cl_mem_flags, cl_uint, cl_int, cl_uint);
    clCreateFromGLRenderbuffer(cl_mem_flags, cl_uint);
    }
    code {
    clGetGLObjectInfo(cl_mem, *mut cl_gl_object_type, *mut cl_uint);
    clGetGLTextureInfo(cl_mem, cl_gl_texture_info, usize, *mut c_void, *mut usize);
    clEnqueueAcquireGLObjects(
        cl_command_queue, cl_uint, *const cl_mem, cl_uint, *const cl_event, *mut cl_event
    );
    clEnqueueReleaseGLObjects(
        cl_command_queue, cl_uint, *const cl_mem, cl_uint, *const cl_event, *mut cl_event
    );
    }
}
