//! `clCreateProgram…`, `clGetProgramInfo` and smaller functions. Building is in [`super::build`].

use super::{Answer, Caller};
use crate::core::context::Context;
use crate::core::device::Device;
use crate::core::object::{Object, Ref};
use crate::core::program::{Origin, Program};
use baltra_opencl::*;
use std::ffi::{c_char, c_uchar, c_void};
use std::sync::atomic::Ordering;

/// `clCreateProgramWithSource`
#[no_mangle]
pub unsafe extern "C" fn clCreateProgramWithSource(
    context: cl_context,
    count: cl_uint,
    strings: *mut *const c_char,
    lengths: *const usize,
    errcode_ret: *mut cl_int,
) -> cl_program {
    handle!(errcode_ret, |caller| {
        let context = caller.share::<Context>(context)?;
        // CL_INVALID_VALUE if count is zero or if strings or any entry in strings is NULL.
        let strings = caller.list(count as usize, strings.cast_const(), CL_INVALID_VALUE)?;
        if strings.is_empty() || strings.iter().any(|s| s.is_null()) {
            return Err(CL_INVALID_VALUE);
        }
        let mut source = Vec::new();
        for (at, &string) in strings.iter().enumerate() {
            // If an element in lengths is zero, its accompanying string is null-terminated. If
            // lengths is NULL, all strings are considered null-terminated.
            let length = if lengths.is_null() {
                0
            } else {
                caller.slice(count as usize, lengths, CL_INVALID_VALUE)?[at]
            };
            match length {
                0 => source.extend_from_slice(caller.text(string).unwrap_or_default().to_bytes()),
                n => source.extend_from_slice(caller.slice(n, string.cast(), CL_INVALID_VALUE)?),
            }
        }
        Ok(Program::from_source(&context, source)?.give())
    })
}

/// Whether a device supports intermediate languages.
fn takes_il(device: &Ref<Device>) -> bool {
    !device.text(CL_DEVICE_IL_VERSION).trim().is_empty()
}

/// `clCreateProgramWithIL`
#[no_mangle]
pub unsafe extern "C" fn clCreateProgramWithIL(
    context: cl_context,
    il: *const c_void,
    length: usize,
    errcode_ret: *mut cl_int,
) -> cl_program {
    handle!(errcode_ret, |caller| {
        let context = caller.share::<Context>(context)?;
        // CL_INVALID_OPERATION if no devices in context support intermediate language programs.
        if !context.devices.iter().any(takes_il) {
            return Err(CL_INVALID_OPERATION);
        }
        // CL_INVALID_VALUE if il is NULL or if length is zero.
        let il = caller.list(length, il.cast::<u8>(), CL_INVALID_VALUE)?;
        if il.is_empty() {
            return Err(CL_INVALID_VALUE);
        }
        Ok(Program::from_il(&context, il.to_vec())?.give())
    })
}

/// `clCreateProgramWithBinary`
#[no_mangle]
pub unsafe extern "C" fn clCreateProgramWithBinary(
    context: cl_context,
    num_devices: cl_uint,
    device_list: *const cl_device_id,
    lengths: *const usize,
    binaries: *mut *const c_uchar,
    binary_status: *mut cl_int,
    errcode_ret: *mut cl_int,
) -> cl_program {
    handle!(errcode_ret, |caller| {
        let context = caller.share::<Context>(context)?;
        let devices = devices_of(caller, &context.devices, num_devices, device_list)?;
        if devices.is_empty() {
            return Err(CL_INVALID_VALUE);
        }
        // CL_INVALID_VALUE if lengths or binaries is NULL or if any entry in lengths[i] or
        // binaries[i] is zero or NULL, respectively.
        let n = devices.len();
        let lengths = caller.list(n, lengths, CL_INVALID_VALUE)?;
        let pointers = caller.list(n, binaries.cast_const(), CL_INVALID_VALUE)?;
        let mut given = Vec::with_capacity(n);
        let mut statuses = vec![CL_SUCCESS; n];
        for (at, (&length, &pointer)) in lengths.iter().zip(pointers).enumerate() {
            match caller.list(length, pointer, CL_INVALID_VALUE) {
                Ok(binary) if !binary.is_empty() => given.push(binary),
                _ => statuses[at] = CL_INVALID_VALUE,
            }
        }
        if given.len() < n {
            caller.fill(binary_status, n, &statuses);
            return Err(CL_INVALID_VALUE);
        }
        let (program, statuses) = Program::from_binaries(&context, devices, &given);
        caller.fill(binary_status, n, &statuses);
        Ok(program?.give())
    })
}

/// `clCreateProgramWithBuiltInKernels`
#[no_mangle]
pub unsafe extern "C" fn clCreateProgramWithBuiltInKernels(
    context: cl_context,
    num_devices: cl_uint,
    device_list: *const cl_device_id,
    kernel_names: *const c_char,
    errcode_ret: *mut cl_int,
) -> cl_program {
    handle!(errcode_ret, |caller| {
        let context = caller.share::<Context>(context)?;
        let devices = devices_of(caller, &context.devices, num_devices, device_list)?;
        // CL_INVALID_VALUE if device_list is NULL or num_devices is zero; if kernel_names is
        // NULL or kernel_names contains a kernel name that is not supported by any of the
        // devices in device_list.
        let names = caller.text(kernel_names).ok_or(CL_INVALID_VALUE)?;
        let names = names.to_str().map_err(|_| CL_INVALID_VALUE)?;
        if devices.is_empty() || names.is_empty() {
            return Err(CL_INVALID_VALUE);
        }
        let known: Vec<String> = devices
            .iter()
            .map(|d| d.text(CL_DEVICE_BUILT_IN_KERNELS))
            .collect();
        let has = |name: &str| known.iter().any(|list| list.split(';').any(|k| k == name));
        if !names.split(';').all(has) {
            return Err(CL_INVALID_VALUE);
        }
        Ok(Program::from_built_in(&context, devices, names)?.give())
    })
}

/// A device list: a number and a pointer that are both zero or both not; each among `allowed`.
pub(super) fn devices_of(
    caller: Caller<'_>,
    allowed: &[Ref<Device>],
    count: cl_uint,
    list: *const cl_device_id,
) -> Result<Vec<Ref<Device>>, i32> {
    // CL_INVALID_VALUE if device_list is NULL and num_devices is greater than zero, or if
    // device_list is not NULL and num_devices is zero.
    let list = caller.list(count as usize, list, CL_INVALID_VALUE)?;
    list.iter()
        .map(|&raw| {
            // CL_INVALID_DEVICE if any device in device_list is not in the list of devices
            // associated with the context or the program.
            let found = allowed.iter().find(|d| d.handle() == raw);
            found.cloned().ok_or(CL_INVALID_DEVICE)
        })
        .collect()
}

/// `clRetainProgram`
#[no_mangle]
pub unsafe extern "C" fn clRetainProgram(program: cl_program) -> cl_int {
    code!(|caller| caller.retain::<Program>(program))
}

/// `clReleaseProgram`
#[no_mangle]
pub unsafe extern "C" fn clReleaseProgram(program: cl_program) -> cl_int {
    code!(|caller| caller.release::<Program>(program))
}

/// `clSetProgramReleaseCallback`
#[no_mangle]
pub unsafe extern "C" fn clSetProgramReleaseCallback(
    program: cl_program,
    pfn_notify: Option<unsafe extern "C" fn(cl_program, *mut c_void)>,
    _user_data: *mut c_void,
) -> cl_int {
    code!(|caller| {
        caller.get::<Program>(program)?;
        // CL_INVALID_VALUE if pfn_notify is NULL.
        pfn_notify.ok_or(CL_INVALID_VALUE)?;
        // CL_INVALID_OPERATION if no devices in the context associated with program support
        // destructors for program scope global variables: none reports support (its information
        // queries for them return false).
        Err(CL_INVALID_OPERATION)
    })
}

/// `clSetProgramSpecializationConstant`
#[no_mangle]
pub unsafe extern "C" fn clSetProgramSpecializationConstant(
    program: cl_program,
    spec_id: cl_uint,
    spec_size: usize,
    spec_value: *const c_void,
) -> cl_int {
    code!(|caller| {
        let program = caller.get::<Program>(program)?;
        // CL_INVALID_OPERATION if no devices associated with program support intermediate language
        // programs.
        if !program.devices.iter().any(takes_il) {
            return Err(CL_INVALID_OPERATION);
        }
        // CL_INVALID_PROGRAM if program is not a valid program object created from an
        // intermediate language (e.g. SPIR-V).
        if !matches!(program.origin, Origin::Il(_)) {
            return Err(CL_INVALID_PROGRAM);
        }
        // CL_INVALID_VALUE if spec_size does not match the size of the specialization constant, or
        // if spec_value is NULL. (The driver checks the size.)
        let value = caller.list(spec_size, spec_value.cast::<u8>(), CL_INVALID_VALUE)?;
        if value.is_empty() {
            return Err(CL_INVALID_VALUE);
        }
        program.specialize(spec_id, value)
    })
}

/// `clUnloadCompiler`
#[no_mangle]
pub unsafe extern "C" fn clUnloadCompiler() -> cl_int {
    CL_SUCCESS
}

/// `clUnloadPlatformCompiler`
#[no_mangle]
pub unsafe extern "C" fn clUnloadPlatformCompiler(platform: cl_platform_id) -> cl_int {
    code!(|caller| {
        // A hint that is ignored, because other programs may be compiling.
        caller.get::<crate::core::platform::Platform>(platform)?;
        Ok(())
    })
}

/// `clGetProgramInfo`
#[no_mangle]
pub unsafe extern "C" fn clGetProgramInfo(
    program: cl_program,
    param_name: cl_program_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int {
    code!(|caller| {
        let program = caller.get::<Program>(program)?;
        let answer = caller.answer(param_value_size, param_value, param_value_size_ret);
        match param_name as i32 {
            CL_PROGRAM_REFERENCE_COUNT => answer.value(program.references()),
            CL_PROGRAM_CONTEXT => answer.value(program.context.handle()),
            CL_PROGRAM_NUM_DEVICES => answer.value(program.devices.len() as u32),
            CL_PROGRAM_DEVICES => {
                let handles: Vec<_> = program.devices.iter().map(|d| d.handle()).collect();
                answer.values(&handles)
            }
            // If program is created using clCreateProgramWithBinary, clCreateProgramWithIL or
            // clCreateProgramWithBuiltInKernels, a null string is returned.
            CL_PROGRAM_SOURCE => match &program.origin {
                Origin::Source(source) => {
                    let mut text = source.clone();
                    text.push(0);
                    answer.bytes(&text)
                }
                _ => answer.text(""),
            },
            // If program is created with clCreateProgramWithIL, the IL is returned; else
            // param_value_size_ret is 0.
            CL_PROGRAM_IL => match &program.origin {
                Origin::Il(il) => answer.bytes(il),
                _ => answer.bytes(&[]),
            },
            CL_PROGRAM_BINARY_SIZES => {
                let sizes: Vec<usize> = program.binaries()?.iter().map(|b| b.len()).collect();
                answer.values(&sizes)
            }
            CL_PROGRAM_BINARIES => binaries(caller, program, answer),
            // CL_INVALID_PROGRAM_EXECUTABLE if param_name is CL_PROGRAM_NUM_KERNELS or
            // CL_PROGRAM_KERNEL_NAMES and a successful program executable has not been built
            // for at least one device in the list of devices associated with program.
            CL_PROGRAM_NUM_KERNELS => {
                let kernels = program.kernels().ok_or(CL_INVALID_PROGRAM_EXECUTABLE)?;
                answer.value(kernels.len())
            }
            CL_PROGRAM_KERNEL_NAMES => {
                let kernels = program.kernels().ok_or(CL_INVALID_PROGRAM_EXECUTABLE)?;
                let names: Vec<&str> = kernels.iter().map(|k| k.name.as_str()).collect();
                answer.text(&names.join(";"))
            }
            CL_PROGRAM_SCOPE_GLOBAL_CTORS_PRESENT | CL_PROGRAM_SCOPE_GLOBAL_DTORS_PRESENT => {
                answer.bytes(&program.query(param_name)?)
            }
            // CL_INVALID_VALUE if param_name is not valid.
            _ => Err(CL_INVALID_VALUE),
        }
    })
}

/// `CL_PROGRAM_BINARIES`: the answer is a list of the caller's pointers, and each binary goes to
/// where its pointer points.
fn binaries(caller: Caller<'_>, program: &Object<Program>, answer: Answer<'_>) -> Result<(), i32> {
    let needed = program.devices.len() * std::mem::size_of::<*mut u8>();
    let (value, size) = answer.raw();
    answer.size(needed);
    if value.is_null() {
        return Ok(());
    }
    if size < needed {
        return Err(CL_INVALID_VALUE);
    }
    let targets = caller.slice(
        program.devices.len(),
        value.cast::<*mut u8>(),
        CL_INVALID_VALUE,
    )?;
    for (&target, binary) in targets.iter().zip(program.binaries()?) {
        // If an entry value in the array is NULL, the implementation skips copying the program
        // binary for the specific device.
        caller.fill(target, binary.len(), &binary);
    }
    Ok(())
}

/// Whether kernel objects of the program are alive.
pub(super) fn attached(program: &Program) -> bool {
    program.kernels_attached.load(Ordering::Acquire) > 0
}
