//! `clBuildProgram`, `clCompileProgram`, `clLinkProgram` and `clGetProgramBuildInfo`.

use super::program::{attached, devices_of};
use super::Caller;
use crate::core::build::{BuildCallback, Job};
use crate::core::context::Context;
use crate::core::device::Device;
use crate::core::object::{Object, Ref};
use crate::core::program::{Origin, Program};
use baltra_opencl::*;
use baltra_wire::{Query, Reply, Request};
use std::ffi::{c_char, c_void};

type Notify = Option<unsafe extern "C" fn(cl_program, *mut c_void)>;

/// `clBuildProgram`
#[no_mangle]
pub unsafe extern "C" fn clBuildProgram(
    program: cl_program,
    num_devices: cl_uint,
    device_list: *const cl_device_id,
    options: *const c_char,
    pfn_notify: Notify,
    user_data: *mut c_void,
) -> cl_int {
    code!(|caller| {
        let program = caller.get::<Program>(program)?;
        check_notify(pfn_notify, user_data)?;
        let devices = chosen(caller, program, num_devices, device_list)?;
        // CL_INVALID_OPERATION if there are kernel objects attached to program.
        if attached(program) {
            return Err(CL_INVALID_OPERATION);
        }
        // CL_INVALID_OPERATION if program was not created with clCreateProgramWithSource,
        // clCreateProgramWithIL or clCreateProgramWithBinary.
        if matches!(program.origin, Origin::Linked | Origin::BuiltIn) {
            return Err(CL_INVALID_OPERATION);
        }
        // CL_COMPILER_NOT_AVAILABLE if program is created with clCreateProgramWithSource or
        // clCreateProgramWithIL and a compiler is not available.
        compiler(
            program,
            &devices,
            CL_DEVICE_COMPILER_AVAILABLE,
            CL_COMPILER_NOT_AVAILABLE,
        )?;
        let options = words(caller, options, CL_INVALID_BUILD_OPTIONS)?;
        let then = then(program, pfn_notify, user_data);
        program.work(&devices, options, &Job::Build, then)
    })
}

/// `clCompileProgram`
#[no_mangle]
pub unsafe extern "C" fn clCompileProgram(
    program: cl_program,
    num_devices: cl_uint,
    device_list: *const cl_device_id,
    options: *const c_char,
    num_input_headers: cl_uint,
    input_headers: *const cl_program,
    header_include_names: *mut *const c_char,
    pfn_notify: Notify,
    user_data: *mut c_void,
) -> cl_int {
    code!(|caller| {
        let program = caller.get::<Program>(program)?;
        check_notify(pfn_notify, user_data)?;
        let devices = chosen(caller, program, num_devices, device_list)?;
        // CL_INVALID_OPERATION if there are kernel objects attached to program, or if program
        // has no source, i.e. it has not been created with clCreateProgramWithSource or
        // clCreateProgramWithIL.
        if attached(program) || !matches!(program.origin, Origin::Source(_) | Origin::Il(_)) {
            return Err(CL_INVALID_OPERATION);
        }
        // CL_INVALID_VALUE if num_input_headers is zero and header_include_names or
        // input_headers are not NULL or if num_input_headers is not zero and
        // header_include_names or input_headers are NULL.
        let count = num_input_headers as usize;
        let raw = caller.list(count, input_headers, CL_INVALID_VALUE)?;
        let names = caller.list(count, header_include_names.cast_const(), CL_INVALID_VALUE)?;
        let mut headers = Vec::with_capacity(count);
        for (&raw, &name) in raw.iter().zip(names) {
            let header = caller.share::<Program>(raw)?;
            let name = caller.text(name).ok_or(CL_INVALID_VALUE)?;
            headers.push((header, name.to_str().map_err(|_| CL_INVALID_VALUE)?));
        }
        compiler(
            program,
            &devices,
            CL_DEVICE_COMPILER_AVAILABLE,
            CL_COMPILER_NOT_AVAILABLE,
        )?;
        let options = words(caller, options, CL_INVALID_COMPILER_OPTIONS)?;
        let then = then(program, pfn_notify, user_data);
        program.work(&devices, options, &Job::Compile(&headers), then)
    })
}

/// `clLinkProgram`
#[no_mangle]
pub unsafe extern "C" fn clLinkProgram(
    context: cl_context,
    num_devices: cl_uint,
    device_list: *const cl_device_id,
    options: *const c_char,
    num_input_programs: cl_uint,
    input_programs: *const cl_program,
    pfn_notify: Notify,
    user_data: *mut c_void,
    errcode_ret: *mut cl_int,
) -> cl_program {
    // A failed link still returns a program object, whose log has the reason.
    let mut failed = CL_SUCCESS;
    let made = handle!(errcode_ret, |caller| {
        let context = caller.share::<Context>(context)?;
        check_notify(pfn_notify, user_data)?;
        let mut devices = devices_of(caller, &context.devices, num_devices, device_list)?;
        if devices.is_empty() {
            devices = context.devices.clone();
        }
        // CL_INVALID_VALUE if num_input_programs is zero and input_programs is NULL or if
        // num_input_programs is zero and input_programs is not NULL or if num_input_programs
        // is not zero and input_programs is NULL.
        let raw = caller.list(
            num_input_programs as usize,
            input_programs,
            CL_INVALID_VALUE,
        )?;
        if raw.is_empty() {
            return Err(CL_INVALID_VALUE);
        }
        // CL_INVALID_PROGRAM if programs specified in input_programs are not valid program
        // objects.
        let inputs = raw
            .iter()
            .map(|&raw| caller.share::<Program>(raw))
            .collect::<Result<Vec<_>, _>>()?;
        let linkable = linkable(&mut devices, &inputs)?;
        if !linkable {
            return Err(CL_INVALID_OPERATION);
        }
        let options = words(caller, options, CL_INVALID_LINKER_OPTIONS)?;
        let program = Program::linked(&context, devices);
        compiler(
            &program,
            &[],
            CL_DEVICE_LINKER_AVAILABLE,
            CL_LINKER_NOT_AVAILABLE,
        )?;
        let all: Vec<usize> = (0..program.devices.len()).collect();
        let then = then(&program, pfn_notify, user_data);
        match program.work(&all, options, &Job::Link(&inputs), then) {
            Err(CL_INVALID_LINKER_OPTIONS) => return Err(CL_INVALID_LINKER_OPTIONS),
            Err(code) => failed = code,
            Ok(()) => {}
        }
        Ok(program.give())
    });
    if failed != CL_SUCCESS && !errcode_ret.is_null() {
        // SAFETY: not null, so the caller's pointer is valid.
        unsafe { errcode_ret.write(failed) };
    }
    made
}

/// Whether each of the devices has a compiled binary or library of all inputs; devices for which
/// none of the inputs has one are skipped.
fn linkable(devices: &mut Vec<Ref<Device>>, inputs: &[Ref<Program>]) -> Result<bool, i32> {
    // CL_INVALID_OPERATION if the rules for devices containing compiled binaries or libraries as
    // described in input_programs argument above are not followed: "All programs specified by
    // input_programs contain a compiled binary or library for the device … none of them: no link
    // is performed … all other cases will return a CL_INVALID_OPERATION error."
    let has = |program: &Ref<Program>, device: &Ref<Device>| {
        let state = program.state();
        let at = program
            .devices
            .iter()
            .position(|d| d.handle() == device.handle());
        at.is_some_and(|at| {
            matches!(
                state.builds[at].kind as i32,
                CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT | CL_PROGRAM_BINARY_TYPE_LIBRARY
            ) || matches!(program.origin, Origin::Binary)
        })
    };
    let mut kept = Vec::new();
    for device in devices.drain(..) {
        let count = inputs.iter().filter(|p| has(p, &device)).count();
        if count == inputs.len() {
            kept.push(device);
        } else if count > 0 {
            return Ok(false);
        }
    }
    *devices = kept;
    Ok(!devices.is_empty())
}

/// `clGetProgramBuildInfo`
#[no_mangle]
pub unsafe extern "C" fn clGetProgramBuildInfo(
    program: cl_program,
    device: cl_device_id,
    param_name: cl_program_build_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int {
    code!(|caller| {
        let program = caller.get::<Program>(program)?;
        let answer = caller.answer(param_value_size, param_value, param_value_size_ret);
        // CL_INVALID_DEVICE if device is not in the list of devices associated with program.
        let found = program.devices.iter().position(|d| d.handle() == device);
        let at = found.ok_or(CL_INVALID_DEVICE)?;
        let build = program.state().builds[at].clone();
        let is_fresh_binary =
            build.status == CL_BUILD_NONE && matches!(program.origin, Origin::Binary);
        match param_name as i32 {
            // Only the driver can determine a binary's content before it is built.
            CL_PROGRAM_BUILD_STATUS | CL_PROGRAM_BINARY_TYPE if is_fresh_binary => {
                answer.bytes(&built_info(program, at, param_name)?)
            }
            CL_PROGRAM_BUILD_STATUS => answer.value(build.status),
            CL_PROGRAM_BUILD_OPTIONS => answer.text(&build.options),
            CL_PROGRAM_BUILD_LOG => {
                let mut log = build.log;
                if log.last() != Some(&0) {
                    log.push(0);
                }
                answer.bytes(&log)
            }
            CL_PROGRAM_BINARY_TYPE => answer.value(build.kind),
            CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE => {
                answer.bytes(&built_info(program, at, param_name)?)
            }
            // CL_INVALID_VALUE if param_name is not valid.
            _ => Err(CL_INVALID_VALUE),
        }
    })
}

/// The driver's own answer about one of the program's devices.
fn built_info(program: &Program, at: usize, param: cl_uint) -> Result<Vec<u8>, i32> {
    let device = &program.devices[at];
    let mut members = program.context.members_of(device);
    let replica = members.find_map(|m| program.present().find(|r| r.member == m));
    let replica = replica.ok_or(CL_INVALID_DEVICE)?;
    let reply = replica.call(Request::Query(Query::ProgramBuild {
        program: replica.id,
        device: device.id,
        param,
    }))?;
    match reply {
        Reply::Bytes(bytes) => Ok(bytes),
        _ => Err(CL_INVALID_VALUE),
    }
}

fn check_notify(notify: Notify, user_data: *mut c_void) -> Result<(), i32> {
    // CL_INVALID_VALUE if pfn_notify is NULL but user_data is not NULL.
    if notify.is_none() && !user_data.is_null() {
        Err(CL_INVALID_VALUE)
    } else {
        Ok(())
    }
}

/// Indices of the listed devices among the program's; all of them where none is listed.
fn chosen(
    caller: Caller<'_>,
    program: &Object<Program>,
    count: cl_uint,
    list: *const cl_device_id,
) -> Result<Vec<usize>, i32> {
    let devices = devices_of(caller, &program.devices, count, list)?;
    if devices.is_empty() {
        return Ok((0..program.devices.len()).collect());
    }
    let index = |d: &Ref<Device>| {
        program
            .devices
            .iter()
            .position(|p| p.handle() == d.handle())
    };
    Ok(devices.iter().filter_map(index).collect())
}

/// The options as text; `invalid` where they are none.
fn words(caller: Caller<'_>, options: *const c_char, invalid: i32) -> Result<&str, i32> {
    match caller.text(options) {
        None => Ok(""),
        Some(options) => options.to_str().map_err(|_| invalid),
    }
}

/// Whether the devices support the job. Programs of binaries need no compiler.
fn compiler(program: &Program, devices: &[usize], param: i32, missing: i32) -> Result<(), i32> {
    let has = |d: &Ref<Device>| d.number(param) != 0;
    let able = match param {
        CL_DEVICE_LINKER_AVAILABLE => program.devices.iter().all(has),
        _ if matches!(program.origin, Origin::Binary) => true,
        _ => devices.iter().all(|&at| has(&program.devices[at])),
    };
    able.then_some(()).ok_or(missing)
}

/// The application's callback, with the program kept alive until it has run.
fn then(
    program: &Object<Program>,
    notify: Notify,
    user_data: *mut c_void,
) -> Option<BuildCallback> {
    let notify = notify?;
    let (program, user_data) = (program.share(), user_data as usize);
    Some(Box::new(move || {
        // SAFETY: the application's function with the argument that it registered.
        unsafe { notify(program.handle(), user_data as *mut c_void) }
    }))
}
