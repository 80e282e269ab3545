//! Reports of kernels.

use super::launch::Program;
use baltra_hls::opencl;

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

#[test]
fn a_report_has_schedules_accesses_and_the_parts_of_the_area() {
    let source = "kernel void scale(global float *x, float f) {\n\
                  x[get_global_id(0)] *= f;\n\
                  }\n\
                  kernel void turned(global const float *a, global float *b) {\n\
                  local float tile[256];\n\
                  int l = get_local_id(0);\n\
                  tile[l] = a[get_global_id(0)];\n\
                  barrier(CLK_LOCAL_MEM_FENCE);\n\
                  b[get_global_id(0)] = tile[255 - l];\n\
                  }\n";
    let work = tempfile::tempdir().unwrap();
    let program = opencl::compile(source, &opencl::Options::default(), work.path()).unwrap();
    let [scale, turned] = program.manifest.kernels.as_slice() else {
        panic!("two kernels");
    };
    // Each work-item is an iteration of one pipeline, or passes two of them.
    assert_eq!(scale.report.item_cycles_min, 1);
    assert_eq!(turned.report.item_cycles_min, 0);
    for kernel in [scale, turned] {
        let report = &kernel.report;
        assert!(
            report.loops.iter().all(|each| each.work_items),
            "{report:?}"
        );
        for each in &report.loops {
            assert!(!each.stages.is_empty(), "{report:?}");
            let within = |stage: &opencl::StageReport| {
                stage.first <= stage.last && u64::from(stage.last) <= each.steps
            };
            assert!(each.stages.iter().all(within), "{report:?}");
            assert!(each.stages.iter().any(|stage| stage.line == each.line));
        }
        let sum = |of: fn(&opencl::AreaReport) -> u64| report.area.iter().map(of).sum::<u64>();
        assert_eq!(sum(|part| part.luts), report.luts);
        assert_eq!(sum(|part| part.block_rams), report.block_rams);
        assert_eq!(sum(|part| part.multipliers), report.multipliers);
    }
    let product = scale.report.area.iter().find(|part| part.name == "fmul32");
    assert_eq!(
        product.map(|part| (part.count, part.multipliers)),
        Some((1, 4))
    );
    let memories = &turned.report.memories;
    let tile = memories.iter().find(|memory| memory.name == "turned.tile");
    let tile = tile.unwrap();
    assert_eq!(tile.kind, opencl::MemoryKind::Local);
    assert_eq!(tile.word_bits, 32);
    let accesses = tile.accesses.iter();
    let accesses: Vec<_> = accesses.map(|a| (a.line, a.loads, a.stores)).collect();
    assert_eq!(accesses, [(7, 0, 1), (9, 1, 0)]);
}
