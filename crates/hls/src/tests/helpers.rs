//! Functions of a program that its kernels call, interpreted.

use super::interpret::{End, Machine};
use crate::ir::FunctionId;
use crate::opencl;

/// The output of a kernel `k(global int *out, local int *l)` after a launch of 16 work-items in
/// groups of 8; the output's elements are their numbers before.
fn outputs(source: &str) -> Vec<i32> {
    let folder = tempfile::tempdir().unwrap();
    let lowered = opencl::instructions(source, false, false, folder.path());
    let (module, memories) = lowered.unwrap_or_else(|error| panic!("{source}\n{}", error.log));
    let mut machine = Machine::new(&module, &memories);
    machine.buffers = vec![(0..16_i32).flat_map(i32::to_le_bytes).collect()];
    machine.words = vec![16, 1, 1, 0, 0, 0, 8, 1, 1, 1, 1 << 28, 64];
    match machine.call(FunctionId(0), &[]) {
        Ok(_) | Err(End(0)) => {}
        Err(End(status)) => panic!("{source}\nstatus {status}"),
    }
    let words = machine.buffers[0].chunks_exact(4);
    words
        .map(|word| i32::from_le_bytes(word.try_into().unwrap()))
        .collect()
}

/// The next work-item's number in the group, once and twice.
const NEXT: &str = "int next(local int *l, int x) {\n  l[get_local_id(0)] = x;\n  \
                    barrier(CLK_LOCAL_MEM_FENCE);\n  x = l[(get_local_id(0) + 1) % 8];\n  \
                    barrier(CLK_LOCAL_MEM_FENCE);\n  return x;\n}\n";

#[test]
fn functions_with_barriers_are_part_of_their_kernels() {
    let next = |i: i32, by: i32| i / 8 * 8 + (i + by) % 8;
    let kernel = |body: &str| {
        format!(
            "kernel void k(global int *o, local int *l) {{\n  int i = get_global_id(0);\n  \
             {body}\n}}\n"
        )
    };
    let once = kernel("o[i] = next(l, i);");
    let twice = kernel("o[i] = next(l, next(l, i));");
    let in_loop = kernel("int x = i; for (int j = 0; j < 3; j++) x = next(l, x); o[i] = x;");
    let rare = kernel(
        "int x = i; if (o[8] == 8) if (o[9] == 9) if (o[10] == 10) if (o[11] == 11) if (o[12] == 12) \
         if (o[13] == 13) if (o[14] == 14) if (o[15] == 15) x = next(l, next(l, x));\n  \
         barrier(CLK_GLOBAL_MEM_FENCE); o[i] = x;",
    );
    for words in [
        "",
        "static ",
        "inline ",
        "static inline ",
        "__attribute__((cold)) ",
    ] {
        for (kernel, by) in [(&once, 1), (&twice, 2), (&in_loop, 3), (&rare, 2)] {
            let expected: Vec<i32> = (0..16).map(|i| next(i, by)).collect();
            assert_eq!(
                outputs(&format!("{words}{NEXT}{kernel}")),
                expected,
                "{words}\n{kernel}"
            );
        }
    }
}

#[test]
fn branches_with_equal_barriers_keep_both() {
    // A group takes one of the branches as a whole.
    let source = "int last(local int *l) { barrier(CLK_LOCAL_MEM_FENCE); return l[7]; }\n\
                  kernel void k(global int *o, local int *l) {\n  int i = get_global_id(0), x;\n  \
                  l[get_local_id(0)] = i;\n  if (get_group_id(0))\n    x = last(l);\n  \
                  else\n    x = -last(l);\n  o[i] = x;\n}\n";
    let expected: Vec<i32> = (0..16).map(|i| if i < 8 { -7 } else { 15 }).collect();
    assert_eq!(outputs(source), expected);
}

#[test]
fn kernels_may_call_kernels() {
    let source = "kernel void f(global int *o, local int *l) {\n  \
                  l[get_local_id(0)] = o[get_global_id(0)];\n  barrier(CLK_LOCAL_MEM_FENCE);\n  \
                  o[get_global_id(0)] = l[7 - get_local_id(0)];\n}\n";
    let called = format!("{source}kernel void k(global int *o, local int *l) {{ f(o, l); }}\n");
    let expected: Vec<i32> = (0..16).map(|i| i / 8 * 8 + 7 - i % 8).collect();
    let folder = tempfile::tempdir().unwrap();
    let options = opencl::Options::default();
    let program = opencl::compile(&called, &options, folder.path()).unwrap();
    assert_eq!(program.manifest.kernels.len(), 2);
    assert_eq!(outputs(source), expected);
}

#[test]
fn products_are_checked_for_overflow() {
    let source = "uint limited(uint a, uint b) {\n  ulong p = (ulong)a * b;\n  \
                  return p > 0xffffffffUL ? 0xffffffffu : (uint)p;\n}\n\
                  kernel void k(global int *o, local int *l) {\n  uint i = get_global_id(0);\n  \
                  o[i] = limited(i << 17, i << 11) ^ mad_sat(i << 17, i << 11, i) ^\n    \
                  mad_sat((ushort)(i << 9), (ushort)(i << 3), (ushort)i);\n}\n";
    let expected = (0..16_u32).map(|i| {
        let product = u64::from(i << 17) * u64::from(i << 11);
        let limited = product.min(u64::from(u32::MAX)) as u32;
        let sum = (product + u64::from(i)).min(u64::from(u32::MAX)) as u32;
        let small = ((i << 9) * (i << 3) + i).min(0xffff);
        (limited ^ sum ^ small) as i32
    });
    assert_eq!(outputs(source), expected.collect::<Vec<_>>());
}
