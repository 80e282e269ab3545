//! Names that the hardware, SystemVerilog or the file system has, too.

use super::launch::{Argument, End, Program};

#[test]
fn any_name_of_a_kernel_and_its_variables_is_possible() {
    let long = "k".repeat(5000);
    let names = [
        "reader", "frame", "calls", "ports", "echo", "always", "opencl_a", "size_t_", "größe",
        "gr__e", &long,
    ];
    let kernel = |(at, name): (usize, &&str)| {
        format!(
            "kernel void {name}(global const int *{name}_in, global int *wire) {{\n  \
             local int logic[4];\n  int {long} = get_global_id(0), größe = {at}, begin = 3;\n  \
             logic[{long}] = {name}_in[{long}];\n  barrier(CLK_LOCAL_MEM_FENCE);\n  \
             wire[{long}] = logic[begin - {long}] + größe;\n}}\n"
        )
    };
    let source: String = names.iter().enumerate().map(kernel).collect();
    let program = Program::new(&source, &[]);
    let bytes = |numbers: [i32; 4]| numbers.map(i32::to_le_bytes).concat();
    for (at, name) in names.iter().enumerate() {
        let (input, mut output) = (bytes([1, 20, 300, 4000]), vec![0; 16]);
        let mut arguments = [Argument::ReadOnly(&input), Argument::Buffer(&mut output)];
        let outcome = program.run(name, [4, 1, 1], [4, 1, 1], &mut arguments);
        assert_eq!(outcome.end, End::Done, "{name}");
        let expected = [4000, 300, 20, 1].map(|n| n + at as i32);
        assert_eq!(output, bytes(expected), "{name}");
        let kernel = &program.accelerator.manifest.kernels[at];
        assert_eq!(kernel.name, *name);
        assert_eq!(kernel.arguments[0].name, format!("{name}_in"));
    }
}
