//! Runs calls on PoCL, through the system's loader.

use baltra_functions::manifest::{Implementation, Opencl};
use baltra_functions::{Argument, Buffer, Call, Function, Step};
use bytes::Bytes;
use std::ffi::{c_char, c_void, CString};
use std::ptr::{null, null_mut};
use std::sync::{Mutex, OnceLock};

type Handle = *mut c_void;

#[link(name = "OpenCL")]
extern "C" {
    fn clGetPlatformIDs(entries: u32, platforms: *mut Handle, count: *mut u32) -> i32;
    fn clGetPlatformInfo(
        platform: Handle,
        what: u32,
        size: usize,
        value: *mut c_void,
        size_ret: *mut usize,
    ) -> i32;
    fn clGetDeviceIDs(
        platform: Handle,
        kind: u64,
        entries: u32,
        devices: *mut Handle,
        count: *mut u32,
    ) -> i32;
    fn clCreateContext(
        properties: *const isize,
        count: u32,
        devices: *const Handle,
        notify: *const c_void,
        data: *mut c_void,
        error: *mut i32,
    ) -> Handle;
    fn clCreateCommandQueue(
        context: Handle,
        device: Handle,
        properties: u64,
        error: *mut i32,
    ) -> Handle;
    fn clCreateProgramWithSource(
        context: Handle,
        count: u32,
        text: *const *const c_char,
        lengths: *const usize,
        error: *mut i32,
    ) -> Handle;
    fn clBuildProgram(
        program: Handle,
        count: u32,
        devices: *const Handle,
        options: *const c_char,
        notify: *const c_void,
        data: *mut c_void,
    ) -> i32;
    fn clGetProgramBuildInfo(
        program: Handle,
        device: Handle,
        what: u32,
        size: usize,
        value: *mut c_void,
        size_ret: *mut usize,
    ) -> i32;
    fn clCreateKernel(program: Handle, name: *const c_char, error: *mut i32) -> Handle;
    fn clSetKernelArg(kernel: Handle, index: u32, size: usize, value: *const c_void) -> i32;
    fn clCreateBuffer(
        context: Handle,
        flags: u64,
        size: usize,
        host: *mut c_void,
        error: *mut i32,
    ) -> Handle;
    fn clEnqueueWriteBuffer(
        queue: Handle,
        buffer: Handle,
        blocking: u32,
        offset: usize,
        size: usize,
        from: *const c_void,
        waits: u32,
        wait: *const Handle,
        event: *mut Handle,
    ) -> i32;
    fn clEnqueueReadBuffer(
        queue: Handle,
        buffer: Handle,
        blocking: u32,
        offset: usize,
        size: usize,
        to: *mut c_void,
        waits: u32,
        wait: *const Handle,
        event: *mut Handle,
    ) -> i32;
    fn clEnqueueNDRangeKernel(
        queue: Handle,
        kernel: Handle,
        dimensions: u32,
        offset: *const usize,
        global: *const usize,
        local: *const usize,
        waits: u32,
        wait: *const Handle,
        event: *mut Handle,
    ) -> i32;
    fn clFinish(queue: Handle) -> i32;
    fn clReleaseMemObject(buffer: Handle) -> i32;
    fn clReleaseKernel(kernel: Handle) -> i32;
    fn clReleaseProgram(program: Handle) -> i32;
}

struct Device {
    device: Handle,
    context: Handle,
    queue: Handle,
}

// SAFETY: OpenCL objects may be used from any thread; the mutex around the device serializes calls.
unsafe impl Send for Device {}

fn ok(code: i32, what: &str) {
    assert_eq!(code, 0, "{what}");
}

impl Device {
    fn open() -> Device {
        let mut platforms = [null_mut(); 16];
        let mut count = 0;
        // SAFETY: every pointer is to a local that outlives its call, with the given size.
        unsafe {
            ok(
                clGetPlatformIDs(16, platforms.as_mut_ptr(), &mut count),
                "platforms",
            );
            let portable = |platform: &&Handle| {
                let mut name = [0u8; 256];
                clGetPlatformInfo(**platform, 0x902, 256, name.as_mut_ptr().cast(), null_mut()) == 0
                    && String::from_utf8_lossy(&name).contains("Portable Computing Language")
            };
            let platform = *platforms[..count.min(16) as usize]
                .iter()
                .find(portable)
                .expect("PoCL is installed");
            let (mut device, mut error) = (null_mut(), 0);
            ok(
                clGetDeviceIDs(platform, 0xffff_ffff, 1, &mut device, null_mut()),
                "devices",
            );
            let context = clCreateContext(null(), 1, &device, null(), null_mut(), &mut error);
            ok(error, "context");
            let queue = clCreateCommandQueue(context, device, 0, &mut error);
            ok(error, "queue");
            Device {
                device,
                context,
                queue,
            }
        }
    }

    fn program(&self, source: &[u8], options: &str) -> Handle {
        let options = CString::new(options).unwrap();
        let (mut error, text, length) = (0, source.as_ptr().cast::<c_char>(), source.len());
        // SAFETY: as above; the text has the given length.
        unsafe {
            let program = clCreateProgramWithSource(self.context, 1, &text, &length, &mut error);
            ok(error, "program");
            if clBuildProgram(
                program,
                1,
                &self.device,
                options.as_ptr(),
                null(),
                null_mut(),
            ) != 0
            {
                let mut log = vec![0u8; 1 << 16];
                clGetProgramBuildInfo(
                    program,
                    self.device,
                    0x1183,
                    log.len(),
                    log.as_mut_ptr().cast(),
                    null_mut(),
                );
                panic!("{}", String::from_utf8_lossy(&log));
            }
            program
        }
    }

    fn buffer(&self, bytes: u64, content: Option<&[u8]>) -> Handle {
        let mut error = 0;
        // SAFETY: as above; the write is blocking.
        unsafe {
            // No buffer is empty.
            let buffer = clCreateBuffer(
                self.context,
                1,
                bytes.max(1) as usize,
                null_mut(),
                &mut error,
            );
            ok(error, "buffer");
            // Buffers are not zeroed before the first step.
            let rubbish = vec![0xa5; bytes as usize];
            let content = content.unwrap_or(&rubbish);
            assert_eq!(content.len() as u64, bytes);
            if bytes > 0 {
                let from = content.as_ptr().cast();
                ok(
                    clEnqueueWriteBuffer(
                        self.queue,
                        buffer,
                        1,
                        0,
                        content.len(),
                        from,
                        0,
                        null(),
                        null_mut(),
                    ),
                    "write",
                );
            }
            buffer
        }
    }

    fn launch(&self, program: Handle, step: &Step, buffers: &[Handle], scratch: &[Handle]) {
        let name = CString::new(&*step.kernel).unwrap();
        let mut error = 0;
        // SAFETY: the objects belong to this device; arguments are copied when they are set.
        unsafe {
            let kernel = clCreateKernel(program, name.as_ptr(), &mut error);
            ok(error, &step.kernel);
            for (index, argument) in step.arguments.iter().enumerate() {
                let (value, bytes);
                let (size, from) = match argument {
                    Argument::Buffer(index) => (8, (&raw const buffers[*index]).cast()),
                    Argument::Scratch(index) => (8, (&raw const scratch[*index]).cast()),
                    Argument::Scalar(scalar) => {
                        (value, bytes) = scalar.bytes();
                        (bytes, value.as_ptr().cast::<c_void>())
                    }
                    Argument::Local(bytes) => (*bytes as usize, null()),
                };
                ok(
                    clSetKernelArg(kernel, index as u32, size, from),
                    &format!("{} argument {index}", step.kernel),
                );
            }
            let global = step.global.map(|size| size as usize);
            let local = step.local.map(|local| local.map(|size| size as usize));
            let local = local.as_ref().map_or(null(), |local| local.as_ptr());
            let dimensions = u32::from(step.dimensions);
            let code = clEnqueueNDRangeKernel(
                self.queue,
                kernel,
                dimensions,
                null(),
                global.as_ptr(),
                local,
                0,
                null(),
                null_mut(),
            );
            ok(code, &step.kernel);
            ok(clReleaseKernel(kernel), "kernel");
        }
    }

    fn run(&self, function: &Function, opencl: &Opencl, index: usize, call: &Call) -> Vec<Bytes> {
        let source = &function.files.contents[opencl.source.as_ref().unwrap()];
        let program = self.program(source, &opencl.options);
        let launch = &call.launches[index];
        let scratch: Vec<Handle> = launch
            .scratch
            .iter()
            .map(|bytes| self.buffer(*bytes, None))
            .collect();
        let make = |buffer: &Buffer| match buffer {
            Buffer::Input(body) | Buffer::InOut(body, _) => {
                self.buffer(body.len(), Some(&body.to_bytes()))
            }
            Buffer::Constant(index) => {
                let bytes = function.constant(*index);
                self.buffer(bytes.len() as u64, Some(&bytes))
            }
            Buffer::Output(output) => self.buffer(call.outputs[*output].bytes, None),
        };
        let buffers: Vec<Handle> = call.buffers.iter().map(make).collect();
        for step in launch
            .steps
            .iter()
            .filter(|step| step.global.iter().all(|size| *size > 0))
        {
            self.launch(program, step, &buffers, &scratch);
        }
        let mut outputs: Vec<Vec<u8>> = call
            .outputs
            .iter()
            .map(|output| vec![0; output.bytes as usize])
            .collect();
        // SAFETY: as above; the reads are blocking.
        unsafe {
            ok(clFinish(self.queue), "finish");
            for (handle, buffer) in buffers.iter().zip(&call.buffers) {
                if let Buffer::Output(output) | Buffer::InOut(_, output) = buffer {
                    let to = &mut outputs[*output];
                    if !to.is_empty() {
                        ok(
                            clEnqueueReadBuffer(
                                self.queue,
                                *handle,
                                1,
                                0,
                                to.len(),
                                to.as_mut_ptr().cast(),
                                0,
                                null(),
                                null_mut(),
                            ),
                            "read",
                        );
                    }
                }
            }
            buffers
                .iter()
                .chain(&scratch)
                .for_each(|buffer| ok(clReleaseMemObject(*buffer), "release"));
            ok(clReleaseProgram(program), "release");
        }
        outputs.into_iter().map(Bytes::from).collect()
    }
}

/// Runs a call on the function's OpenCL implementation.
pub fn run(function: &Function, call: &Call) -> Vec<Bytes> {
    static DEVICE: OnceLock<Mutex<Device>> = OnceLock::new();
    let device = DEVICE
        .get_or_init(|| Mutex::new(Device::open()))
        .lock()
        .unwrap_or_else(|e| e.into_inner());
    let opencl = function
        .manifest
        .implementations
        .iter()
        .enumerate()
        .find_map(|(index, implementation)| match implementation {
            Implementation::Opencl(opencl) => Some((index, opencl)),
            _ => None,
        });
    let (index, opencl) = opencl.expect("an OpenCL implementation");
    device.run(function, opencl, index, call)
}
