//! Programs, kernels and launches have the same results as the native driver's.

mod common;

use baltra_opencl::*;
use common::{compare, Driver};
use std::ffi::{c_void, CString};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

const SOURCE: &str = "
kernel void add(global int *out, global const int *a, int b) {
    size_t i = get_global_id(0);
    out[i] = a[i] + b;
}
kernel void ids(global ulong *out) {
    size_t i = get_global_linear_id();
    out[i] = get_global_id(0) + 1000 * get_global_id(1) + 1000000 * get_global_id(2);
}
kernel __attribute__((reqd_work_group_size(4, 1, 1)))
void fours(global int *out, local int *room, constant float *table) {
    room[get_local_id(0)] = get_group_id(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    out[get_global_id(0)] = room[3 - get_local_id(0)] + (int)table[get_local_id(0)];
}
kernel void nothing(void) {}
";

fn text(d: &mut Driver, kernel: cl_kernel, index: u32, param: i32) -> String {
    let mut bytes = [0u8; 256];
    let mut len = 0;
    let code = cl!(
        d,
        clGetKernelArgInfo(
            kernel,
            index,
            param as u32,
            bytes.len(),
            bytes.as_mut_ptr().cast(),
            &mut len
        )
    );
    format!("{code} {:?}", String::from_utf8_lossy(&bytes[..len]))
}

#[test]
fn programs_match_native_ones() {
    compare(|d| {
        let program = d.program(SOURCE);
        let mut kernels = 0usize;
        let count = (&mut kernels as *mut usize).cast();
        let param = CL_PROGRAM_NUM_KERNELS as u32;
        let code = cl!(d, clGetProgramInfo(program, param, 8, count, null_mut()));
        note!(d, "kernels before a build {code}");
        let code = cl!(
            d,
            clBuildProgram(program, 1, null(), null(), None, null_mut())
        );
        note!(d, "half a device list {code}");
        let code = cl!(
            d,
            clBuildProgram(program, 0, null(), c"-DX=1".as_ptr(), None, null_mut())
        );
        note!(d, "build {code}");
        let code = cl!(d, clGetProgramInfo(program, param, 8, count, null_mut()));
        note!(d, "kernels {code} {kernels}");
        for param in [CL_PROGRAM_BUILD_STATUS, CL_PROGRAM_BINARY_TYPE] {
            let mut value = 0i32;
            let pointer = (&mut value as *mut i32).cast();
            let code = cl!(
                d,
                clGetProgramBuildInfo(program, d.device, param as u32, 4, pointer, null_mut())
            );
            note!(d, "{param:#x}: {code} {value}");
        }
        let mut options = [0u8; 16];
        let mut len = 0;
        let pointer = options.as_mut_ptr().cast();
        let param = CL_PROGRAM_BUILD_OPTIONS as u32;
        cl!(
            d,
            clGetProgramBuildInfo(program, d.device, param, 16, pointer, &mut len)
        );
        note!(d, "options {:?}", &options[..len]);
        let mut length = 0usize;
        let pointer = &mut length;
        let param = CL_PROGRAM_SOURCE as u32;
        cl!(d, clGetProgramInfo(program, param, 0, null_mut(), pointer));
        note!(d, "source {length}");
        let kernel = d.kernel(program, "add");
        let code = cl!(
            d,
            clBuildProgram(program, 0, null(), null(), None, null_mut())
        );
        note!(d, "build with a kernel attached {code}");
        cl!(d, clReleaseKernel(kernel));
        let code = cl!(
            d,
            clBuildProgram(program, 0, null(), null(), None, null_mut())
        );
        note!(d, "build without one {code}");
        for name in [c"none", c""] {
            let mut code = 0;
            let kernel = cl!(d, clCreateKernel(program, name.as_ptr(), &mut code));
            note!(d, "kernel {name:?} {code} {}", kernel.is_null());
        }
        note!(d, "release {}", cl!(d, clReleaseProgram(program)));
        let mut code = 0;
        cl!(
            d,
            clCreateProgramWithSource(d.context, 0, null_mut(), null(), &mut code)
        );
        note!(d, "no source {code}");
    });
}

#[test]
fn a_program_that_does_not_compile_says_why() {
    compare(|d| {
        let program = d.build("kernel void broken( {", "");
        let mut status = 0i32;
        let pointer = (&mut status as *mut i32).cast();
        let param = CL_PROGRAM_BUILD_STATUS as u32;
        cl!(
            d,
            clGetProgramBuildInfo(program, d.device, param, 4, pointer, null_mut())
        );
        let mut len = 0;
        let param = CL_PROGRAM_BUILD_LOG as u32;
        cl!(
            d,
            clGetProgramBuildInfo(program, d.device, param, 0, null_mut(), &mut len)
        );
        note!(d, "status {status}, a log {}", len > 10);
        let mut code = 0;
        cl!(d, clCreateKernel(program, c"broken".as_ptr(), &mut code));
        note!(d, "kernel {code}");
    });
}

static CALLED: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn built(_program: cl_program, count: *mut c_void) {
    // SAFETY: the test's own counter.
    unsafe { &*count.cast::<AtomicU32>() }.fetch_add(1, Ordering::Release);
}

#[test]
fn a_build_with_a_callback_calls_it_once() {
    compare(|d| {
        let program = d.program(SOURCE);
        CALLED.store(0, Ordering::Release);
        let count = std::ptr::addr_of!(CALLED).cast_mut().cast();
        let code = cl!(
            d,
            clBuildProgram(program, 0, null(), null(), Some(built), count)
        );
        note!(d, "build {code}");
        while CALLED.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        let kernel = d.kernel(program, "nothing");
        note!(d, "launch {}", d.launch(kernel, &[1], &[]));
        d.finish();
        note!(d, "called {}", CALLED.load(Ordering::Acquire));
    });
}

#[test]
fn a_binary_runs_as_its_program_did() {
    compare(|d| {
        let program = d.build(SOURCE, "");
        let mut size = 0usize;
        let pointer = (&mut size as *mut usize).cast();
        let param = CL_PROGRAM_BINARY_SIZES as u32;
        let code = cl!(d, clGetProgramInfo(program, param, 8, pointer, null_mut()));
        note!(d, "sizes {code} {}", size > 0);
        let mut binary = vec![0u8; size];
        let mut list = [binary.as_mut_ptr()];
        let pointer = list.as_mut_ptr().cast();
        let param = CL_PROGRAM_BINARIES as u32;
        let code = cl!(d, clGetProgramInfo(program, param, 8, pointer, null_mut()));
        note!(d, "binaries {code}");
        let (mut status, mut code) = (-1, -1);
        let mut list = [binary.as_ptr()];
        let again = cl!(
            d,
            clCreateProgramWithBinary(
                d.context,
                1,
                &d.device,
                &size,
                list.as_mut_ptr(),
                &mut status,
                &mut code
            )
        );
        note!(d, "program {code} {status}");
        let code = cl!(
            d,
            clBuildProgram(again, 0, null(), null(), None, null_mut())
        );
        note!(d, "build {code}");
        run_add(d, again);
        let mut code = 0;
        let junk = [1u8; 64];
        let mut list = [junk.as_ptr()];
        let bad = cl!(
            d,
            clCreateProgramWithBinary(
                d.context,
                1,
                &d.device,
                &junk.len(),
                list.as_mut_ptr(),
                &mut status,
                &mut code
            )
        );
        note!(d, "junk {code} {}", bad.is_null());
    });
}

fn run_add(d: &mut Driver, program: cl_program) {
    let kernel = d.kernel(program, "add");
    let mut input: Vec<i32> = (0..1000).collect();
    let (a, out) = (d.buffer(&mut input), d.buffer(&mut vec![0i32; 1000]));
    let codes = [
        d.set(kernel, 0, &out),
        d.set(kernel, 1, &a),
        d.set(kernel, 2, &5i32),
    ];
    note!(d, "set {codes:?}");
    note!(d, "launch {}", d.launch(kernel, &[1000], &[]));
    let sum: i64 = d.read::<i32>(out, 1000).iter().map(|&v| v as i64).sum();
    note!(d, "sum {sum}");
    for memory in [a, out] {
        cl!(d, clReleaseMemObject(memory));
    }
    cl!(d, clReleaseKernel(kernel));
}

#[test]
fn compiled_parts_link() {
    compare(|d| {
        let header = d.program("int twice(int a);\n");
        let main = d.program(
            "#include \"twice.h\"\nkernel void run(global int *o) { o[get_global_id(0)] = twice(21); }",
        );
        let part = d.program("int twice(int a) { return 2 * a; }");
        let mut name = c"twice.h".as_ptr();
        let code = cl!(
            d,
            clCompileProgram(
                main,
                0,
                null(),
                null(),
                1,
                &header,
                &mut name,
                None,
                null_mut()
            )
        );
        note!(d, "compile {code}");
        let code = cl!(
            d,
            clCompileProgram(
                part,
                0,
                null(),
                null(),
                0,
                null(),
                null_mut(),
                None,
                null_mut()
            )
        );
        note!(d, "compile {code}");
        let mut code = -1;
        let inputs = [main, part];
        let linked = cl!(
            d,
            clLinkProgram(
                d.context,
                0,
                null(),
                null(),
                2,
                inputs.as_ptr(),
                None,
                null_mut(),
                &mut code
            )
        );
        note!(d, "link {code}");
        let kernel = d.kernel(linked, "run");
        let out = d.buffer(&mut [0i32; 4]);
        note!(d, "set {}", d.set(kernel, 0, &out));
        note!(d, "launch {}", d.launch(kernel, &[4], &[]));
        let values: Vec<i32> = d.read(out, 4);
        note!(d, "{values:?}");
        cl!(
            d,
            clLinkProgram(
                d.context,
                0,
                null(),
                null(),
                0,
                null(),
                None,
                null_mut(),
                &mut code
            )
        );
        note!(d, "link nothing {code}");
    });
}

#[test]
fn headers_are_found_in_files() {
    let home = std::env::temp_dir().join(format!("baltra-headers-{}", std::process::id()));
    std::fs::create_dir_all(home.join("sub")).unwrap();
    std::fs::write(
        home.join("ten.h"),
        "#include \"sub/six.h\"\n#define TEN (SIX + 4)\n",
    )
    .unwrap();
    std::fs::write(home.join("sub/six.h"), "#define SIX 6\n").unwrap();
    let path = home.to_str().unwrap();
    let body = "kernel void run(global int *o) { o[get_global_id(0)] = TEN; }";
    let cases = [
        (format!("#include \"ten.h\"\n{body}"), format!("-I {path}")),
        (format!("#include \"{path}/ten.h\"\n{body}"), String::new()),
        (
            format!("#include <{path}/sub/../ten.h>\n{body}"),
            "-w".to_owned(),
        ),
    ];
    compare(|d| {
        for (source, options) in &cases {
            let program = d.program(source);
            let options = CString::new(options.as_str()).unwrap();
            // Twice: a second build finds them again.
            for _ in 0..2 {
                let code = cl!(
                    d,
                    clBuildProgram(program, 0, null(), options.as_ptr(), None, null_mut())
                );
                note!(d, "build {code}");
            }
            let kernel = d.kernel(program, "run");
            let out = d.buffer(&mut [0i32; 4]);
            note!(d, "set {}", d.set(kernel, 0, &out));
            note!(d, "launch {}", d.launch(kernel, &[4], &[]));
            let values: Vec<i32> = d.read(out, 4);
            note!(d, "{values:?}");
            let mut len = 0;
            cl!(
                d,
                clGetProgramInfo(program, CL_PROGRAM_SOURCE as u32, 0, null_mut(), &mut len)
            );
            note!(d, "source {}", len == source.len() + 1);
        }
    });
    std::fs::remove_dir_all(home).unwrap();
}

/// Ways to name a header that a compiler takes, with the options; `DIR` is its directory, which
/// has a directory `a`.
const INCLUDES: [(&str, &str); 19] = [
    ("#include \"m.h\"", "-IDIR"),
    ("#define H \"m.h\"\n#include H", "-I DIR"),
    (
        "#define Q(x) #x\n#define S(x) Q(x)\n#include S(m.h)",
        "-IDIR",
    ),
    (
        "#define Q(x) #x\n#define S(x) Q(x)\n#include S(INCLUDE_PATH/m.h)",
        "-D INCLUDE_PATH=DIR",
    ),
    ("#include H", "-IDIR -DH=<m.h>"),
    ("#include \"a/../m.h\"", "-IDIR"),
    ("#include \"../m.h\"", "-IDIR/a"),
    ("#include \\\n\"m.h\"", "-IDIR"),
    ("/* c */ # /* c */ include /* c */ <m.h> // c", "-IDIR"),
    ("#import \"m.h\"", "-IDIR -w"),
    (
        "#include \"once.h\"\n#include \"a/../once.h\"\n#include <m.h>",
        "-IDIR",
    ),
    ("#include \"DIR/a/../m.h\"", ""),
    (
        "#ifdef __NONE\n#include \"none.h\"\n#else\n#include \"m.h\"\n#endif",
        "-IDIR",
    ),
    (
        "#if __OPENCL_VERSION__ >= 100 && defined(A)\n#include A\n#endif",
        "-IDIR -DA=<m.h>",
    ),
    (
        "#if __has_include(\"m.h\")\n#include \"m.h\"\n#endif",
        "-IDIR",
    ),
    ("#include \"next.h\"", "-IDIR/a -IDIR -w"),
    (
        "#ifdef __ENDIAN_LITTLE__\n#define H \"m.h\"\n#endif\n#include H",
        "-IDIR",
    ),
    ("#include \"none.h\"", "-IDIR"),
    (
        "#if 0\n#include \"none.h\"\n#endif\n#define M __LINE__",
        "-IDIR",
    ),
];

#[test]
fn headers_are_found_however_they_are_named() {
    let home = std::env::temp_dir().join(format!("baltra-named-{}", std::process::id()));
    std::fs::create_dir_all(home.join("a")).unwrap();
    for (name, text) in [
        ("m.h", "#define M 3\n"),
        ("once.h", "#pragma once\nconstant int once = 1;\n"),
        ("a/next.h", "#include_next <next.h>\n#define M (N + 1)\n"),
        ("next.h", "#define N 4\n"),
    ] {
        std::fs::write(home.join(name), text).unwrap();
    }
    let path = home.to_str().unwrap();
    compare(|d| {
        for (source, options) in INCLUDES {
            let body = "\nkernel void run(global int *o) { o[get_global_id(0)] = M; }";
            let source = format!("{}{body}", source.replace("DIR", path));
            let program = d.program(&source);
            let options = CString::new(options.replace("DIR", path)).unwrap();
            let code = cl!(
                d,
                clBuildProgram(program, 0, null(), options.as_ptr(), None, null_mut())
            );
            note!(d, "{options:?} {source}: build {code}");
            if code == CL_SUCCESS {
                let kernel = d.kernel(program, "run");
                let out = d.buffer(&mut [0i32; 4]);
                note!(d, "set {}", d.set(kernel, 0, &out));
                note!(d, "launch {}", d.launch(kernel, &[4], &[]));
                let values: Vec<i32> = d.read(out, 4);
                note!(d, "{values:?}");
            }
        }
    });
    std::fs::remove_dir_all(home).unwrap();
}

#[test]
fn an_empty_source_is_a_program_without_kernels() {
    compare(|d| {
        // The later programs find the memory of the earlier ones, full of text.
        for text in [
            c"",
            c"kernel void f() {} junk",
            c"",
            c" ",
            c"\n",
            c"// c\n",
            c"",
        ] {
            let mut code = -1;
            let mut pointer = text.as_ptr();
            let program = cl!(
                d,
                clCreateProgramWithSource(d.context, 1, &mut pointer, null(), &mut code)
            );
            note!(d, "{text:?}: create {code}");
            for _ in 0..2 {
                let code = cl!(
                    d,
                    clBuildProgram(program, 0, null(), null(), None, null_mut())
                );
                note!(d, "build {code}");
            }
            cl!(d, clReleaseProgram(program));
        }
    });
}

#[test]
fn kernels_match_native_ones() {
    compare(|d| {
        let program = d.build(SOURCE, "-cl-kernel-arg-info");
        for name in ["add", "ids", "fours", "nothing"] {
            let kernel = d.kernel(program, name);
            let mut count = 0u32;
            let pointer = (&mut count as *mut u32).cast();
            let param = CL_KERNEL_NUM_ARGS as u32;
            cl!(d, clGetKernelInfo(kernel, param, 4, pointer, null_mut()));
            note!(d, "{name}: {count}");
            for index in 0..=count {
                for param in [CL_KERNEL_ARG_TYPE_NAME, CL_KERNEL_ARG_NAME] {
                    let line = text(d, kernel, index, param);
                    note!(d, "{index} {line}");
                }
                for param in [
                    CL_KERNEL_ARG_ADDRESS_QUALIFIER,
                    CL_KERNEL_ARG_ACCESS_QUALIFIER,
                ] {
                    let mut value = 0u32;
                    let pointer = (&mut value as *mut u32).cast();
                    let code = cl!(
                        d,
                        clGetKernelArgInfo(kernel, index, param as u32, 4, pointer, null_mut())
                    );
                    note!(d, "{index} {code} {value:#x}");
                }
                let mut value = 0u64;
                let pointer = (&mut value as *mut u64).cast();
                let param = CL_KERNEL_ARG_TYPE_QUALIFIER as u32;
                let code = cl!(
                    d,
                    clGetKernelArgInfo(kernel, index, param, 8, pointer, null_mut())
                );
                note!(d, "{index} {code} {value:#x}");
            }
            let mut groups = [0usize; 3];
            let pointer = groups.as_mut_ptr().cast();
            for param in [
                CL_KERNEL_WORK_GROUP_SIZE,
                CL_KERNEL_COMPILE_WORK_GROUP_SIZE,
                CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE,
                CL_KERNEL_LOCAL_MEM_SIZE,
                CL_KERNEL_PRIVATE_MEM_SIZE,
                CL_KERNEL_GLOBAL_WORK_SIZE,
            ] {
                let mut len = 0;
                let code = cl!(
                    d,
                    clGetKernelWorkGroupInfo(kernel, d.device, param as u32, 24, pointer, &mut len)
                );
                note!(d, "{param:#x} {code} {len} {groups:?}");
            }
        }
        let mut all = [null_mut(); 8];
        let mut count = 0;
        let few = cl!(
            d,
            clCreateKernelsInProgram(program, 1, all.as_mut_ptr(), &mut count)
        );
        let code = cl!(
            d,
            clCreateKernelsInProgram(program, 8, all.as_mut_ptr(), &mut count)
        );
        note!(d, "kernels in program {few} {code} {count}");
    });
}

#[test]
fn wrong_arguments_are_refused_as_natively() {
    compare(|d| {
        let program = d.build(SOURCE, "-cl-kernel-arg-info");
        let (add, fours) = (d.kernel(program, "add"), d.kernel(program, "fours"));
        let out = d.buffer(&mut [0i32; 16]);
        note!(d, "not set {}", d.launch(add, &[1], &[]));
        note!(d, "index {}", d.set(add, 3, &out));
        note!(d, "size of a value {}", d.set(add, 2, &1u8));
        note!(d, "size of a handle {}", d.set(add, 0, &1u8));
        note!(
            d,
            "null buffer {}",
            cl!(d, clSetKernelArg(add, 0, 8, null()))
        );
        note!(
            d,
            "null value {}",
            cl!(d, clSetKernelArg(add, 2, 4, null()))
        );
        note!(d, "local {}", cl!(d, clSetKernelArg(fours, 1, 16, null())));
        note!(
            d,
            "local of 0 {}",
            cl!(d, clSetKernelArg(fours, 1, 0, null()))
        );
        note!(d, "local with a value {}", d.set(fours, 1, &1u64));
        note!(d, "set {}", d.set(fours, 0, &out));
        let table = d.buffer(&mut [1f32, 2., 3., 4.]);
        note!(d, "set {}", d.set(fours, 2, &table));
        note!(d, "groups {}", d.launch(fours, &[8], &[8]));
        note!(d, "ragged {}", d.launch(fours, &[10], &[4]));
        note!(d, "fours {}", d.launch(fours, &[16], &[4]));
        let values: Vec<i32> = d.read(out, 16);
        note!(d, "{values:?}");
        note!(d, "four dimensions {}", d.launch(fours, &[1; 4], &[]));
        let nothing = d.kernel(program, "nothing");
        note!(
            d,
            "huge group {}",
            d.launch(nothing, &[1 << 20], &[1 << 20])
        );
        note!(d, "group of 0 {}", d.launch(nothing, &[4], &[0]));
        let code = cl!(
            d,
            clEnqueueNativeKernel(
                d.queue,
                None,
                null_mut(),
                0,
                0,
                null(),
                null_mut(),
                0,
                null(),
                null_mut()
            )
        );
        note!(d, "native kernel refused {}", code != CL_SUCCESS);
    });
}

#[test]
fn launches_cover_their_index_space() {
    compare(|d| {
        let program = d.build(SOURCE, "");
        let ids = d.kernel(program, "ids");
        let out = d.buffer(&mut vec![0u64; 4096]);
        d.set(ids, 0, &out);
        for (global, local) in [
            (&[4096usize][..], &[][..]),
            (&[64, 64], &[8, 4]),
            (&[16, 16, 16], &[4, 2, 2]),
        ] {
            note!(d, "launch {}", d.launch(ids, global, local));
            let values: Vec<u64> = d.read(out, 4096);
            note!(
                d,
                "{}",
                values
                    .iter()
                    .enumerate()
                    .map(|(i, v)| i as u64 ^ v)
                    .sum::<u64>()
            );
        }
        run_add(d, program);
        // Arguments are taken when a launch is enqueued, not when it runs.
        let add = d.kernel(program, "add");
        let mut zeros = vec![0i32; 8];
        let (a, out) = (d.buffer(&mut zeros), d.buffer(&mut zeros.clone()));
        d.set(add, 1, &a);
        d.set(add, 0, &out);
        d.set(add, 2, &7i32);
        d.launch(add, &[4], &[]);
        d.set(add, 0, &a);
        d.set(add, 1, &out);
        d.set(add, 2, &100i32);
        d.launch(add, &[8], &[]);
        let (a, out): (Vec<i32>, Vec<i32>) = (d.read(a, 8), d.read(out, 8));
        note!(d, "{a:?} {out:?}");
    });
}

#[test]
fn a_task_waits_for_its_events() {
    compare(|d| {
        let program = d.build(SOURCE, "");
        let kernel = d.kernel(program, "nothing");
        let mut code = -1;
        let gate = cl!(d, clCreateUserEvent(d.context, &mut code));
        let mut event = null_mut();
        let launched = cl!(d, clEnqueueTask(d.queue, kernel, 1, &gate, &mut event));
        note!(d, "task {launched}");
        cl!(d, clFlush(d.queue));
        let mut status = -1i32;
        let pointer = (&mut status as *mut i32).cast();
        let param = CL_EVENT_COMMAND_EXECUTION_STATUS as u32;
        cl!(d, clGetEventInfo(event, param, 4, pointer, null_mut()));
        note!(d, "waiting {}", status > CL_COMPLETE);
        note!(d, "set {}", cl!(d, clSetUserEventStatus(gate, CL_COMPLETE)));
        note!(d, "wait {}", cl!(d, clWaitForEvents(1, &event)));
        let mut command = 0u32;
        let pointer = (&mut command as *mut u32).cast();
        let param = CL_EVENT_COMMAND_TYPE as u32;
        cl!(d, clGetEventInfo(event, param, 4, pointer, null_mut()));
        // Some drivers report a task as the launch that the specification declares equivalent.
        let known = [CL_COMMAND_TASK as u32, CL_COMMAND_NDRANGE_KERNEL as u32];
        note!(d, "command {}", known.contains(&command));
    });
}

#[test]
fn a_cloned_kernel_has_its_own_arguments() {
    compare(|d| {
        let program = d.build(SOURCE, "");
        let add = d.kernel(program, "add");
        let mut code = -1;
        let twin = cl!(d, clCloneKernel(add, &mut code));
        note!(d, "clone {code}");
        if code != CL_SUCCESS {
            return;
        }
        let (a, out) = (d.buffer(&mut [1i32; 4]), d.buffer(&mut [0i32; 4]));
        for (kernel, add) in [(add, 1i32), (twin, 50)] {
            d.set(kernel, 0, &out);
            d.set(kernel, 1, &a);
            d.set(kernel, 2, &add);
        }
        note!(d, "launch {}", d.launch(add, &[4], &[]));
        let values: Vec<i32> = d.read(out, 4);
        note!(d, "{values:?}");
        note!(d, "launch {}", d.launch(twin, &[4], &[]));
        let values: Vec<i32> = d.read(out, 4);
        note!(d, "{values:?}");
    });
}

#[test]
fn a_program_of_several_strings_is_one_source() {
    compare(|d| {
        let parts = ["kernel void k(global int *o) ", "{ o[0] = X; }junk"];
        let mut strings = parts.map(|p| p.as_ptr().cast());
        let lengths = [parts[0].len(), parts[1].len() - 4];
        let mut code = -1;
        let program = cl!(
            d,
            clCreateProgramWithSource(
                d.context,
                2,
                strings.as_mut_ptr(),
                lengths.as_ptr(),
                &mut code
            )
        );
        note!(d, "program {code}");
        let options = CString::new("-D X=77").expect("text");
        let code = cl!(
            d,
            clBuildProgram(program, 0, null(), options.as_ptr(), None, null_mut())
        );
        note!(d, "build {code}");
        let kernel = d.kernel(program, "k");
        let out = d.buffer(&mut [0i32; 1]);
        d.set(kernel, 0, &out);
        note!(d, "launch {}", d.launch(kernel, &[1], &[1]));
        let values: Vec<i32> = d.read(out, 1);
        note!(d, "{values:?}");
    });
}
