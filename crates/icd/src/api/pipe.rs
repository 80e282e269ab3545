//! `clCreatePipe`, `clGetPipeInfo`.

use crate::core::context::Context;
use crate::core::lost;
use crate::core::memory::{Memory, MemoryParameters};
use baltra_opencl::*;
use baltra_wire::{Control, PipeShape};
use std::ffi::c_void;

/// `clCreatePipe`
#[no_mangle]
pub unsafe extern "C" fn clCreatePipe(
    context: cl_context,
    flags: cl_mem_flags,
    pipe_packet_size: cl_uint,
    pipe_max_packets: cl_uint,
    properties: *const cl_pipe_properties,
    errcode_ret: *mut cl_int,
) -> cl_mem {
    handle!(errcode_ret, |caller| {
        let context = caller.share::<Context>(context)?;
        // CL_INVALID_OPERATION if no devices in context support pipes. A pipe lives in one session,
        // as its contents cannot be copied.
        let supports = |param| context.devices.iter().map(move |d| d.number(param));
        let makes_pipes = context.members.iter().all(|m| m.client.makes_pipes());
        if context.members.len() != 1
            || !makes_pipes
            || supports(CL_DEVICE_PIPE_SUPPORT).all(|n| n == 0)
        {
            return Err(CL_INVALID_OPERATION);
        }
        // CL_INVALID_VALUE if values specified in flags are not as defined above (only
        // CL_MEM_READ_WRITE and CL_MEM_HOST_NO_ACCESS).
        let allowed = (CL_MEM_READ_WRITE | CL_MEM_HOST_NO_ACCESS) as u64;
        if flags & !allowed != 0 {
            return Err(CL_INVALID_VALUE);
        }
        // CL_INVALID_VALUE if properties is not NULL.
        if !properties.is_null() {
            return Err(CL_INVALID_VALUE);
        }
        // CL_INVALID_PIPE_SIZE if pipe_packet_size is 0 or the pipe_packet_size exceeds
        // CL_DEVICE_PIPE_MAX_PACKET_SIZE value … or if pipe_max_packets is 0.
        let most = supports(CL_DEVICE_PIPE_MAX_PACKET_SIZE).max().unwrap_or(0);
        if pipe_packet_size == 0 || u64::from(pipe_packet_size) > most || pipe_max_packets == 0 {
            return Err(CL_INVALID_PIPE_SIZE);
        }
        let shape = PipeShape {
            packet_bytes: pipe_packet_size,
            packets: pipe_max_packets,
        };
        let parameters = MemoryParameters {
            context,
            kind: CL_MEM_OBJECT_PIPE,
            flags: if flags == 0 { allowed } else { flags },
            size: pipe_packet_size as usize * pipe_max_packets as usize,
            host_ptr: 0,
            parent: None,
            origin: 0,
            image: None,
            pipe: Some(shape),
            properties: Vec::new(),
        };
        let pipe = Memory::create(parameters, move |member, _, id| {
            let control = Control::Pipe {
                id,
                context: member.id,
                shape,
            };
            member.client.control(&control).map_err(lost)?;
            // CL_MEM_OBJECT_ALLOCATION_FAILURE if there is a failure to allocate memory for the
            // pipe object.
            member.client.confirm(id).map_err(lost)
        })?;
        Ok(pipe.give())
    })
}

/// `clGetPipeInfo`
#[no_mangle]
pub unsafe extern "C" fn clGetPipeInfo(
    pipe: cl_mem,
    param_name: cl_pipe_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int {
    code!(|caller| {
        let memory = caller.get::<Memory>(pipe)?;
        // CL_INVALID_MEM_OBJECT if pipe is a not a valid pipe object.
        let shape = memory.pipe.ok_or(CL_INVALID_MEM_OBJECT)?;
        let answer = caller.answer(param_value_size, param_value, param_value_size_ret);
        match param_name as i32 {
            CL_PIPE_PACKET_SIZE => answer.value(shape.packet_bytes),
            CL_PIPE_MAX_PACKETS => answer.value(shape.packets),
            CL_PIPE_PROPERTIES => answer.values::<cl_pipe_properties>(&[]),
            _ => Err(CL_INVALID_VALUE),
        }
    })
}
