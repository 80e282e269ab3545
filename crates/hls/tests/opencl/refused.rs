//! Programs that cannot be synthesized: the build log has the line and the reason.

use crate::launch::options_with;
use baltra_hls::opencl;

/// The build log of a program that does not compile.
fn log(source: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let result = opencl::compile(source, &options_with(&[]), folder.path());
    result.expect_err("the program compiles").log
}

#[test]
fn constructs_that_hardware_lacks_are_refused_with_their_line() {
    for (source, line, reason) in [
        (
            "int f(int n) {\n return n < 2 ? n : f(n - 1) + f(n - 2); }\n\
             kernel void k(global int *o) { o[0] = f(o[1]); }\n",
            1,
            "'f' calls itself",
        ),
        (
            "kernel void k(global int *o) {\n int (*f)(int) = 0;\n o[0] = f(1); }\n",
            2,
            "pointers to functions are not allowed",
        ),
        (
            "\nkernel void k(read_only image2d_t i, global int *o) { o[0] = 1; }\n",
            2,
            "argument 'i' is an image",
        ),
        (
            "kernel void k(global int *o) {\n o[0] = absent(1); }\n",
            2,
            "'absent'",
        ),
        (
            "kernel void k(global double *o) {\n\n o[0] = exp(o[1]); }\n",
            3,
            "not for doubles",
        ),
        (
            "kernel void k(global int *o, int n) {\n int a[n]; o[0] = a[0]; }\n",
            2,
            "variable length",
        ),
        (
            "kernel void k(global int *o) {\n printf(\"%e\", 1); }\n",
            2,
            "conversion '%e'",
        ),
        (
            "kernel void k(global long *o) {\n global int *p = (global int *)o[0];\n *p = 1; }\n",
            3,
            "computed from a number",
        ),
        (
            "\nkernel void k(global int *o) {\n local int big[200000];\n \
             big[o[1]] = 1; o[0] = big[o[2]]; }\n",
            2,
            "800000 bytes of arrays exceed the block RAM of a kernel, 524288 bytes, by 275712: \
             'k.big' 800000 bytes",
        ),
        (
            "kernel void k(global int *o) {\n int a[1 << 28];\n \
             for (int i = 0; i < 1 << 28; i++) a[i] = o[i];\n o[0] = a[o[1]]; }\n",
            1,
            "'k.a' has 1073741824 bytes, more than 16777216",
        ),
        (
            "kernel void k(global int *o) {\n int a[1 << 20];\n a[o[0]] = 1;\n \
             barrier(CLK_LOCAL_MEM_FENCE);\n o[0] = a[o[1]]; }\n",
            1,
            "'a_of_items' has 1073741824 bytes",
        ),
        (
            "kernel void k(global int *o) {\n local char a[0x7fffffffffffUL];\n \
             a[o[1]] = 1; o[0] = a[o[2]]; }\n",
            2,
            "'k.a' has 140737488355327 bytes",
        ),
        (
            "\nconstant int t[1 << 30] = {1};\nkernel void k(global int *o) { o[0] = t[o[1]]; }\n",
            2,
            "'t' has 4294967296 bytes",
        ),
        (
            "kernel void k(global int *o) {\n local int a[50000], b[60000];\n \
             a[o[1]] = b[o[2]] = 1; barrier(CLK_LOCAL_MEM_FENCE); o[0] = a[o[2]] + b[o[3]]; }\n",
            1,
            "the kernel needs 220 block RAMs, an LFE5UM5G-85F has 208: 12 too many; \
             'k.b' 118 block RAMs, 'k.a' 98 block RAMs, 'ports of loads' 4 block RAMs",
        ),
        (
            "kernel void k(global int *o) {\n __asm__(\"nop\");\n o[0] = 1; }\n",
            2,
            "inline assembly",
        ),
        (
            "\n__attribute__((reqd_work_group_size(65536, 65536, 1)))\n\
             kernel void k(global int *o) { barrier(CLK_LOCAL_MEM_FENCE); o[0] = 1; }\n",
            3,
            "work-groups of 65536x65536x1 work-items, at most 1024 are supported",
        ),
        (
            "typedef struct { char a[1017]; } S;\n\
             kernel void k(global int *o, S s) { o[0] = s.a[o[1]]; }\n",
            2,
            "the arguments have 1025 bytes, at most 1024 are supported: 's' 1017 bytes, 'o' 8 bytes",
        ),
        (
            "typedef struct { char a[1 << 30]; } S;\n\
             kernel void k(global int *o, S s) { o[0] = s.a[o[1]]; }\n",
            2,
            "the arguments have 1073741832 bytes",
        ),
        (
            "kernel void k(global int *a, global int *b, global int *c, global int *d,\n \
             global int *e, global int *f, global int *g, global int *h, global int *i,\n \
             global int *j, global int *k, global int *l, global int *m, global int *n,\n \
             constant int *o, constant int *p) { a[0] = p[0]; }\n",
            1,
            "16 arguments are pointers to buffers, at most 15",
        ),
        (
            "__attribute__((noinline)) int f(int x) {\n return x + get_global_id(0); }\n\
             kernel void k(global int *o) { o[0] = f(o[1]); }\n",
            2,
            "is not inlined",
        ),
        (
            "kernel void k(global long *o) {\n atom_add(o, 1); }\n",
            2,
            "64-bit atomic functions are not supported (use 32 bits)",
        ),
        (
            "kernel void k(local ulong *o) {\n atomic_cmpxchg(o, 1, 2); }\n",
            2,
            "64-bit atomic functions are not supported",
        ),
        (
            "kernel void k(global double *o) {\n o[0] = o[1] / o[2]; }\n",
            2,
            "division of doubles is not supported (use floats, or multiply by a constant)",
        ),
        (
            "kernel void k(global int *o) {\n const sampler_t s = CLK_FILTER_NEAREST; }\n",
            2,
            "samplers are not supported",
        ),
        (
            "kernel void k(global const int *in, global int *out) {\n \
             uint i = get_global_id(0), s = in[i];\n _Pragma(\"unroll\")\n \
             for (int j = 0; j < 1500; j++) {\n uint t = in[(i + j) & 1023];\n \
             s = (s << 3) ^ (s >> 7) ^ (t * (s | 1u)) ^ ((t >> (j & 15)) + s);\n \
             s = (s & t) | (s ^ (t << 2)); }\n out[i] = s; }\n",
            1,
            "LUTs, an LFE5UM5G-85F has 83640",
        ),
        (
            "kernel void k(global int *o) {\n int x = o[0] error; }\n",
            2,
            "expected ';'",
        ),
    ] {
        let log = log(source);
        assert!(
            log.contains(&format!("kernel.cl:{line}:")) && log.contains(reason),
            "{source}\n{log}"
        );
    }
}

#[test]
fn assembly_outside_of_functions_is_refused_with_its_text() {
    let log = log("__asm__(\".incbin \\\"/etc/passwd\\\"\");\n\
                   kernel void k(global int *o) { o[0] = 1; }\n");
    for part in ["assembly outside of functions", "incbin"] {
        assert!(log.contains(part), "{log}");
    }
}

#[test]
fn a_log_has_no_notes_about_the_library() {
    let log = log("kernel void k(global float *o) {\n  o[0] = clamp(o[0], 1);\n}\n");
    let expected = "kernel.cl:2:10: error: no matching function for call to 'clamp'\n";
    assert!(log.starts_with(expected), "{log}");
    assert!(!log.contains("note:") && !log.contains("baltra"), "{log}");
}

/// The build log of a program in a later version of OpenCL C.
fn later_log(source: &str, version: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let result = opencl::compile(source, &options_with(&[version]), folder.path());
    result.expect_err("the program compiles").log
}

#[test]
fn functions_that_a_version_has_but_the_device_lacks_are_refused_with_their_line() {
    for (source, line, reason) in [
        (
            "kernel void k(global int *o) {\n o[0] = work_group_all(o[1]); }\n",
            2,
            "'work_group_all' is not supported (use local memory and barriers)",
        ),
        (
            "kernel void k(global int *o) {\n\n o[0] = sub_group_reduce_add(o[1]); }\n",
            3,
            "'sub_group_reduce_add' is not supported",
        ),
        (
            "kernel void k(volatile global atomic_int *o) {\n\n atomic_fetch_add(o, 3); }\n",
            3,
            "'atomic_fetch_add' is not supported (use the functions of OpenCL 1.2",
        ),
        (
            "kernel void k(volatile global atomic_int *o) {\n atomic_init(o, 3); }\n",
            2,
            "'atomic_init' is not supported",
        ),
        (
            "kernel void k(global int *o) {\n queue_t q = get_default_queue();\n \
             enqueue_kernel(q, 0, ndrange_1D(1), ^{ o[0] = 1; }); }\n",
            2,
            "kernels that enqueue kernels are not supported (enqueue them by the host)",
        ),
        (
            "\nglobal int counter = 5;\nkernel void k(global int *o) { o[0] = counter++; }\n",
            2,
            "variable 'counter' in global memory is not supported",
        ),
        (
            "kernel void k(global int *o) {\n static global int s;\n o[0] = s++; }\n",
            2,
            "variable 'k.s' in global memory is not supported",
        ),
    ] {
        for version in ["-cl-std=CL2.0", "-cl-std=CL3.0"] {
            let log = later_log(source, version);
            assert!(
                log.contains(&format!("kernel.cl:{line}:")) && log.contains(reason),
                "{version}: {source}\n{log}"
            );
        }
    }
}

#[test]
fn macros_claim_only_what_the_device_has() {
    let absent = [
        "__opencl_c_images",
        "__opencl_c_3d_image_writes",
        "__opencl_c_device_enqueue",
        "__opencl_c_fp64",
        "__opencl_c_subgroups",
        "__opencl_c_work_group_collective_functions",
        "__opencl_c_program_scope_global_variables",
        "__opencl_c_atomic_order_acq_rel",
        "__opencl_c_integer_dot_product_input_4x8bit",
        "__IMAGE_SUPPORT__",
        "cl_khr_fp64",
        "cl_khr_fp16",
        "cl_khr_subgroups",
        "cl_khr_int64_base_atomics",
        "cl_khr_integer_dot_product",
        "cl_ext_float_atomics",
    ];
    let mut source = String::new();
    for name in absent {
        source += &format!("#ifdef {name}\n#error {name}\n#endif\n");
    }
    source +=
        "#if __OPENCL_C_VERSION__ >= 200 && !defined __opencl_c_pipes\n#error pipes\n#endif\n\
               #ifndef cl_khr_global_int32_base_atomics\n#error atomics\n#endif\n\
               kernel void k(global int *o) { o[0] = 1; }\n";
    for version in [
        "-cl-std=CL1.1",
        "-cl-std=CL1.2",
        "-cl-std=CL2.0",
        "-cl-std=CL3.0",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let options = options_with(&[version]);
        let result = opencl::compile(&source, &options, folder.path());
        assert!(result.is_ok(), "{version}: {}", result.unwrap_err());
    }
}

#[test]
fn a_log_has_no_empty_notes() {
    let log = log("kernel void k(global uint *o) {\n o[0] = get_image_width; }\n");
    assert!(log.starts_with("kernel.cl:2:7: error: "), "{log}");
    assert!(!log.contains("note:"), "{log}");
}

#[test]
fn too_many_kernels_are_refused() {
    let kernel = |n| format!("kernel void k{n}(global int *o) {{ o[0] = {n}; }}\n");
    let source: String = (0..1000).map(kernel).collect();
    let log = log(&source);
    let expected = "kernel.cl:129: the program has 1000 kernels, at most 128 are supported";
    assert!(log.contains(expected), "{log}");
}

#[test]
fn unknown_build_options_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let options = options_with(&["-o/tmp/x"]);
    let source = "kernel void k(global int *o) { o[0] = 1; }";
    let error = opencl::compile(source, &options, folder.path()).unwrap_err();
    assert_eq!(error.log, "invalid build option '-o/tmp/x'\n");
}

/// The build log of a program with channels.
fn channels(source: &str) -> String {
    log(&format!(
        "#pragma OPENCL EXTENSION cl_intel_channels : enable\n{source}"
    ))
}

#[test]
fn channels_that_hardware_lacks_are_refused_with_their_line() {
    for (source, line, reason) in [
        (
            "channel int c;\nkernel void a() {\n write_channel_intel(c, 1); }\n\
             kernel void b() {\n write_channel_intel(c, 2); }\n",
            6,
            "kernel 'b' writes channel 'c', which kernel 'a' writes: a channel has one writer",
        ),
        (
            "channel int c[4];\n\
             kernel void a(global int *o) { o[0] = read_channel_intel(c[2]); }\n\
             kernel void b(global int *o) {\n o[0] = read_channel_intel(c[2]); }\n",
            5,
            "kernel 'b' reads channel 'c[2]', which kernel 'a' reads: a channel has one reader",
        ),
        (
            "channel int c[4];\nkernel void a(int n) {\n write_channel_intel(c[n], 1); }\n",
            4,
            "the channel is selected by a variable",
        ),
        (
            "void f(channel int c) {\n write_channel_intel(c, 1); }\n\
             kernel void a() { }\n",
            2,
            "a channel cannot be an argument",
        ),
        (
            "typedef struct { char b[1025]; } big;\nchannel big c;\n\
             kernel void a(global big *o) {\n o[0] = read_channel_intel(c); }\n",
            5,
            "channel 'c' has elements of 1025 bytes, at most 1024",
        ),
        (
            "channel int c __attribute__((depth(-3)));\nkernel void a() {\n \
             write_channel_intel(c, 1); }\n",
            4,
            "channel 'c' has depth '-3'",
        ),
        (
            "channel int c;\n__attribute__((max_global_work_dim(0))) __attribute__((autorun))\n\
             kernel void a() { while (1) write_channel_intel(c, 1); }\n",
            3,
            "kernels with 'autorun' are not supported",
        ),
        (
            "channel int c;\n__attribute__((noinline)) void f(int x) {\n \
             write_channel_intel(c, x); }\nkernel void a(int n) { f(n); f(n + 1); }\n",
            4,
            "function 'f' is not inlined",
        ),
    ] {
        let log = channels(source);
        assert!(
            log.contains(&format!("kernel.cl:{line}:")) && log.contains(reason),
            "{source}\n{log}"
        );
    }
}

#[test]
fn uses_of_pipes_are_refused_with_their_line() {
    let options = options_with(&["-cl-std=CL2.0"]);
    let cases = [
        (
            "#pragma OPENCL EXTENSION cl_khr_subgroups : enable\n\
             kernel void k(write_only pipe int p) { sub_group_reserve_write_pipe(p, 1); }",
            "kernel.cl:2: reservations of sub-groups are not supported",
        ),
        (
            "typedef struct { int a[300]; } large;\n\
             kernel void k(write_only pipe large p, global large *x) { write_pipe(p, x); }",
            "kernel.cl:2: a pipe has packets of 1200 bytes, at most 1024 are supported",
        ),
        (
            "\n__attribute__((noinline)) int f(read_only pipe int p, int x)\n\
             { read_pipe(p, &x); return x; }\n\
             kernel void k(read_only pipe int p, global int *x) { x[0] = f(p, 1); }",
            "kernel.cl:3: function 'f' is not inlined, but uses a pipe",
        ),
        (
            "\nkernel void k(read_only pipe int p __attribute__((blocking)), global int *x)\n\
             { read_pipe(p, x); }",
            "kernel.cl:2:51: error: pipes with 'blocking' are not supported",
        ),
        (
            "\nkernel void k(write_only pipe int p, global int *x) { read_pipe(p, x); }",
            "kernel.cl:2:65: error: invalid pipe access modifier",
        ),
        (
            "\nkernel void k(read_only pipe int p, global long *x) { read_pipe(p, x); }",
            "kernel.cl:2:",
        ),
    ];
    for (source, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        let error = opencl::compile(source, &options, folder.path()).unwrap_err();
        assert!(error.log.contains(expected), "{error}");
    }
}
