//! Cases in which a library may be stricter or laxer than the driver: empty transfers, unusual
//! flags and sizes, groups beyond the limits of a kernel's description, very long wait lists.

mod common;

use baltra_opencl::*;
use common::{compare, Driver};
use std::ffi::c_void;
use std::ptr::{null, null_mut};

fn plain_buffer(d: &mut Driver, bytes: usize) -> cl_mem {
    let mut code = -1;
    let buffer = cl!(
        d,
        clCreateBuffer(d.context, 0, bytes, null_mut(), &mut code)
    );
    assert_eq!(code, CL_SUCCESS);
    buffer
}

fn status(d: &mut Driver, event: cl_event) -> cl_int {
    let mut status: cl_int = -999;
    let param = CL_EVENT_COMMAND_EXECUTION_STATUS as u32;
    let place = (&mut status as *mut cl_int).cast();
    let code = cl!(d, clGetEventInfo(event, param, 4, place, null_mut()));
    assert_eq!(code, CL_SUCCESS);
    status
}

#[test]
fn transfers_of_nothing_are_done() {
    compare(|d| {
        let (q, b) = (d.queue, plain_buffer(d, 4096));
        let mut bytes = [7u8; 64];
        let place: *mut c_void = bytes.as_mut_ptr().cast();
        for (offset, pointer) in [(0, place), (4096, place), (4097, place), (0, null_mut())] {
            for blocking in [0, 1] {
                let read = cl!(
                    d,
                    clEnqueueReadBuffer(q, b, blocking, offset, 0, pointer, 0, null(), null_mut())
                );
                let write = cl!(
                    d,
                    clEnqueueWriteBuffer(q, b, blocking, offset, 0, pointer, 0, null(), null_mut())
                );
                note!(d, "at {offset}: read {read} write {write}");
            }
        }
        let mut event = null_mut();
        let code = cl!(
            d,
            clEnqueueFillBuffer(q, b, place, 4, 0, 0, 0, null(), &mut event)
        );
        note!(d, "fill {code} wait {}", cl!(d, clWaitForEvents(1, &event)));
        d.finish();
        note!(d, "untouched {}", bytes == [7; 64]);
    });
}

#[test]
fn samplers_are_made_where_the_driver_makes_them() {
    compare(|d| {
        for normalized in [0, 1] {
            for addressing in CL_ADDRESS_NONE..=CL_ADDRESS_MIRRORED_REPEAT {
                let mut code = -1;
                let filter = CL_FILTER_LINEAR as u32;
                let sampler = cl!(
                    d,
                    clCreateSampler(d.context, normalized, addressing as u32, filter, &mut code)
                );
                note!(d, "{normalized} {addressing:#x}: {code}");
                if !sampler.is_null() {
                    cl!(d, clReleaseSampler(sampler));
                }
            }
        }
    });
}

#[test]
fn buffers_are_made_where_the_driver_makes_them() {
    compare(|d| {
        let mut bytes = [0u8; 256];
        let place: *mut c_void = bytes.as_mut_ptr().cast();
        let flags = [
            0,
            CL_MEM_COPY_HOST_PTR,
            CL_MEM_USE_HOST_PTR,
            CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR,
            CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR,
            CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY,
            CL_MEM_HOST_NO_ACCESS | CL_MEM_HOST_READ_ONLY,
            CL_MEM_KERNEL_READ_AND_WRITE,
            1 << 30,
        ];
        for flags in flags {
            // The driver chooses which of two faults it reports.
            let empty = if flags == 0 { 0 } else { 64 };
            for (size, pointer) in [(64, null_mut()), (64, place), (empty, null_mut())] {
                let mut code = -1;
                let buffer = cl!(
                    d,
                    clCreateBuffer(d.context, flags as u64, size, pointer, &mut code)
                );
                note!(d, "{flags:#x} {size} {}: {code}", pointer.is_null());
                if !buffer.is_null() {
                    cl!(d, clReleaseMemObject(buffer));
                }
            }
        }
        let whole = plain_buffer(d, 4096);
        for (origin, size) in [(4, 64), (0, 0), (0, 4097), (4096, 64), (2048, 2048)] {
            let mut code = -1;
            let region = cl_buffer_region { origin, size };
            let info = (&region as *const cl_buffer_region).cast();
            let kind = CL_BUFFER_CREATE_TYPE_REGION as u32;
            cl!(d, clCreateSubBuffer(whole, 0, kind, info, &mut code));
            note!(d, "part {origin} {size}: {code}");
        }
    });
}

#[test]
fn groups_run_where_the_driver_runs_them() {
    const SOURCE: &str = "
        kernel void bump(global int *a) { a[get_global_id(0)] += 1; }
        kernel __attribute__((reqd_work_group_size(64, 1, 1)))
        void sixty_four(global int *a) { a[get_global_id(0)] += 1; }
    ";
    compare(|d| {
        let program = d.build(SOURCE, "");
        let mut contents = vec![0i32; 8192];
        let buffer = d.buffer(&mut contents);
        for name in ["bump", "sixty_four"] {
            let kernel = d.kernel(program, name);
            d.set(kernel, 0, &buffer);
            for shift in 0..=13 {
                // Twice: the first launch of a group that is too large is waited for.
                for _ in 0..2 {
                    let code = d.launch(kernel, &[8192], &[1 << shift]);
                    note!(d, "{name} {}: {code}", 1 << shift);
                    d.finish();
                }
            }
            note!(d, "uneven {}", d.launch(kernel, &[100], &[64]));
            d.finish();
            for global in [8192, 100, 8192] {
                note!(
                    d,
                    "none given {global}: {}",
                    d.launch(kernel, &[global], &[])
                );
                d.finish();
            }
        }
        let sum: i64 = d
            .read::<i32>(buffer, 8192)
            .iter()
            .map(|&n| i64::from(n))
            .sum();
        note!(d, "sum {sum}");
    });
}

#[test]
fn a_group_that_is_refused_behind_a_user_event_fails_in_its_event() {
    compare(|d| {
        let program = d.build("kernel void bump(global int *a) { a[0] = 1; }", "");
        let kernel = d.kernel(program, "bump");
        let buffer = plain_buffer(d, 64);
        d.set(kernel, 0, &buffer);
        let mut code = -1;
        let gate = cl!(d, clCreateUserEvent(d.context, &mut code));
        let (global, local) = ([1usize << 20], [1usize << 20]);
        let mut event = null_mut();
        let code = cl!(
            d,
            clEnqueueNDRangeKernel(
                d.queue,
                kernel,
                1,
                null(),
                global.as_ptr(),
                local.as_ptr(),
                1,
                &gate,
                &mut event
            )
        );
        cl!(d, clSetUserEventStatus(gate, CL_COMPLETE));
        // The driver returns the error at the call; here the call would have to wait for the
        // application.
        let failed = match code {
            CL_SUCCESS => {
                cl!(d, clWaitForEvents(1, &event));
                status(d, event)
            }
            code => code,
        };
        note!(d, "failed {failed}");
        cl!(d, clFinish(d.queue));
    });
}

#[test]
fn a_wait_list_may_be_very_long() {
    compare(|d| {
        let buffer = plain_buffer(d, 64);
        let mut code = -1;
        let gates: Vec<cl_event> = (0..17_000)
            .map(|_| cl!(d, clCreateUserEvent(d.context, &mut code)))
            .collect();
        let (pattern, mut event) = (7i32, null_mut());
        let pointer = (&pattern as *const i32).cast();
        let count = gates.len() as u32;
        let code = cl!(
            d,
            clEnqueueFillBuffer(
                d.queue,
                buffer,
                pointer,
                4,
                0,
                64,
                count,
                gates.as_ptr(),
                &mut event
            )
        );
        note!(d, "fill {code}");
        cl!(d, clFlush(d.queue));
        for gate in &gates[1..] {
            cl!(d, clSetUserEventStatus(*gate, CL_COMPLETE));
        }
        note!(d, "waits {}", status(d, event) > 0);
        cl!(d, clSetUserEventStatus(gates[0], CL_COMPLETE));
        note!(d, "wait {}", cl!(d, clWaitForEvents(1, &event)));
        note!(d, "value {:?}", d.read::<i32>(buffer, 16));
        for gate in gates {
            cl!(d, clReleaseEvent(gate));
        }
    });
}

/// Every marker stands behind all commands before it, and what each of these stands behind is not
/// to be counted again for every marker.
#[test]
fn a_chain_of_many_markers_ends() {
    compare(|d| {
        let program = d.build("kernel void bump(global int *a) { a[0] += 1; }", "");
        let kernel = d.kernel(program, "bump");
        let buffer = plain_buffer(d, 64);
        d.set(kernel, 0, &buffer);
        let mut code = -1;
        let properties = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE as u64;
        let queue = cl!(
            d,
            clCreateCommandQueue(d.context, d.device, properties, &mut code)
        );
        note!(d, "queue {code}");
        let gate = cl!(d, clCreateUserEvent(d.context, &mut code));
        let start = 5i32;
        let from = (&start as *const i32).cast();
        let mut last = null_mut();
        cl!(
            d,
            clEnqueueWriteBuffer(queue, buffer, 0, 0, 4, from, 1, &gate, &mut last)
        );
        let one = 1usize;
        for _ in 0..100 {
            let (mut ran, mut marker) = (null_mut(), null_mut());
            let launched = cl!(
                d,
                clEnqueueNDRangeKernel(queue, kernel, 1, null(), &one, null(), 1, &last, &mut ran)
            );
            let marked = cl!(
                d,
                clEnqueueMarkerWithWaitList(queue, 0, null(), &mut marker)
            );
            if (launched, marked) != (CL_SUCCESS, CL_SUCCESS) {
                note!(d, "launch {launched} marker {marked}");
            }
            cl!(d, clReleaseEvent(ran));
            cl!(d, clReleaseEvent(last));
            last = marker;
        }
        cl!(d, clFlush(queue));
        cl!(d, clSetUserEventStatus(gate, CL_COMPLETE));
        note!(d, "wait {}", cl!(d, clWaitForEvents(1, &last)));
        note!(d, "finish {}", cl!(d, clFinish(queue)));
        note!(d, "value {}", d.read::<i32>(buffer, 1)[0]);
        cl!(d, clReleaseEvent(last));
        cl!(d, clReleaseEvent(gate));
        cl!(d, clReleaseCommandQueue(queue));
    });
}

#[test]
fn one_who_polls_sees_a_command_run() {
    const SOURCE: &str = "
        kernel void spin(global int *a, int n) {
            int x = a[0];
            for (int i = 0; i < n; i++) x = x * 1664525 + 1013904223;
            a[0] = x;
        }
    ";
    compare(|d| {
        let program = d.build(SOURCE, "");
        let kernel = d.kernel(program, "spin");
        let buffer = d.buffer(&mut [1i32]);
        d.set(kernel, 0, &buffer);
        d.set(kernel, 1, &500_000_000i32);
        let mut event = null_mut();
        let global = [1usize];
        let code = cl!(
            d,
            clEnqueueNDRangeKernel(
                d.queue,
                kernel,
                1,
                null(),
                global.as_ptr(),
                null(),
                0,
                null(),
                &mut event
            )
        );
        assert_eq!(code, CL_SUCCESS);
        cl!(d, clFlush(d.queue));
        let (mut runs, mut back) = (false, false);
        loop {
            let now = status(d, event);
            back |= runs && now > CL_RUNNING;
            runs |= now == CL_RUNNING;
            if now <= CL_COMPLETE {
                note!(d, "ran {runs} back {back} end {now}");
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    });
}

#[test]
fn pointers_that_a_kernel_reaches_can_be_unset() {
    compare(|d| {
        let program = d.build("kernel void bump(global int *a) { a[0] = 1; }", "");
        let kernel = d.kernel(program, "bump");
        let param = CL_KERNEL_EXEC_INFO_SVM_PTRS as u32;
        let code = cl!(d, clSetKernelExecInfo(kernel, param, 0, null()));
        note!(d, "unset {code}");
    });
}
