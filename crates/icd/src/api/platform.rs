//! Platforms.

use crate::core::platform::{platform, Platform, VERSION};
use baltra_opencl::*;
use std::ffi::c_void;

/// `clIcdGetPlatformIDsKHR`, what an ICD loader calls, and `clGetPlatformIDs`.
fn platforms(
    caller: super::Caller<'_>,
    num_entries: cl_uint,
    platforms: *mut cl_platform_id,
    num_platforms: *mut cl_uint,
) -> Result<(), i32> {
    // CL_INVALID_VALUE if num_entries is equal to zero and platforms is not NULL or if both
    // num_platforms and platforms are NULL.
    // (A number of entries beside a null list is harmless, and given by some programs.)
    if (num_entries == 0 && !platforms.is_null())
        || (platforms.is_null() && num_platforms.is_null())
    {
        return Err(CL_INVALID_VALUE);
    }
    let platform = platform();
    // CL_PLATFORM_NOT_FOUND_KHR if zero platforms are available: a platform without devices would
    // only hide others.
    if platform.devices().is_empty() {
        caller.set(num_platforms, 0);
        return Err(CL_PLATFORM_NOT_FOUND_KHR);
    }
    caller.set(num_platforms, 1);
    caller.fill(platforms, num_entries as usize, &[platform.handle()]);
    Ok(())
}

#[no_mangle]
pub unsafe extern "C" fn clGetPlatformIDs(
    num_entries: cl_uint,
    platform_ids: *mut cl_platform_id,
    num_platforms: *mut cl_uint,
) -> cl_int {
    code!(|caller| platforms(caller, num_entries, platform_ids, num_platforms))
}

#[no_mangle]
pub unsafe extern "C" fn clIcdGetPlatformIDsKHR(
    num_entries: cl_uint,
    platform_ids: *mut cl_platform_id,
    num_platforms: *mut cl_uint,
) -> cl_int {
    code!(|caller| platforms(caller, num_entries, platform_ids, num_platforms))
}

/// A `cl_name_version`.
pub(super) fn name_version(name: &str, version: u32) -> cl_name_version {
    let mut entry = cl_name_version {
        version,
        name: [0; 64],
    };
    for (to, from) in entry.name.iter_mut().zip(name.bytes().take(63)) {
        *to = from as _;
    }
    entry
}

#[no_mangle]
pub unsafe extern "C" fn clGetPlatformInfo(
    platform_id: cl_platform_id,
    param_name: cl_platform_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int {
    code!(|caller| {
        // "Or can be NULL": the behavior is the implementation's, which has one platform.
        let platform = if platform_id.is_null() {
            platform()
        } else {
            caller.get::<Platform>(platform_id)?
        };
        let answer = caller.answer(param_value_size, param_value, param_value_size_ret);
        match param_name as i32 {
            CL_PLATFORM_PROFILE => answer.text("FULL_PROFILE"),
            CL_PLATFORM_VERSION => {
                answer.text(concat!("OpenCL 3.0 Baltra ", env!("CARGO_PKG_VERSION")))
            }
            CL_PLATFORM_NUMERIC_VERSION => answer.value(VERSION),
            CL_PLATFORM_NAME => answer.text("Baltra"),
            CL_PLATFORM_VENDOR => answer.text("Baltra"),
            CL_PLATFORM_EXTENSIONS => {
                let names: Vec<_> = platform.extensions().iter().map(|e| e.0).collect();
                answer.text(&names.join(" "))
            }
            CL_PLATFORM_EXTENSIONS_WITH_VERSION => {
                let extensions = platform.extensions().into_iter();
                let entries: Vec<_> = extensions.map(|(n, v)| name_version(n, v)).collect();
                answer.values(&entries)
            }
            CL_PLATFORM_HOST_TIMER_RESOLUTION => answer.value(1u64),
            CL_PLATFORM_ICD_SUFFIX_KHR => answer.text("BALTRA"),
            // CL_INVALID_VALUE if param_name is not one of the supported values.
            _ => Err(CL_INVALID_VALUE),
        }
    })
}
