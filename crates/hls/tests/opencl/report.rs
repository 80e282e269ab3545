//! Reports of kernels.

use super::launch::Program;

#[test]
fn loops_have_the_line_of_their_head_and_those_of_work_items_that_of_their_last_operation() {
    let source = "kernel void nested(global const float *a, global float *b, int n) {\n\
                  float s = 0; n += get_global_id(0);\n\
                  for (int j = 0; j < n; j++)\n\
                  s = s * a[j] + b[j];\n\
                  int j = 0;\n\
                  while (j < n) {\n\
                  s += a[j] * a[b[j] > 0 ? j : 2 * j];\n\
                  j += 3; }\n\
                  b[get_global_id(0)] = s;\n\
                  }\n\
                  kernel void grouped(global const float *a, global float *b, int n) {\n\
                  local float t[256];\n\
                  int l = get_local_id(0);\n\
                  t[l] = a[get_global_id(0)];\n\
                  barrier(CLK_LOCAL_MEM_FENCE);\n\
                  b[get_global_id(0)] = t[255 - l] * n;\n\
                  }\n";
    let program = Program::new(source, &[]);
    let kernels = &program.accelerator.manifest.kernels;
    let lines = |name: &str| {
        let kernel = kernels.iter().find(|k| k.name == name).unwrap();
        let loops = kernel.report.loops.iter();
        loops.map(|l| l.line).collect::<Vec<_>>()
    };
    assert_eq!(lines("nested"), [3, 6]);
    assert_eq!(lines("grouped"), [14, 16]);
}
