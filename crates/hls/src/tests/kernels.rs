//! Random kernels in OpenCL C: the same bytes when their lowered instructions are interpreted as on
//! this processor. Without simulation, many seeds take little time;
//! `tests/opencl/chance.rs` simulates the hardware of the same kernels.

#[path = "../../tests/opencl/generate.rs"]
mod generate;
#[path = "../../tests/opencl/reference.rs"]
mod reference;

use super::interpret::{End, Machine};
use crate::ir::FunctionId;
use crate::opencl;
use reference::{all, difference, refused, Case, PAIR, SCALAR};

fn compare(seed: u64) -> Option<String> {
    let case = Case::new(seed);
    let folder = tempfile::tempdir().unwrap();
    // Each form with each kind of kernel, which are in turn.
    let form = seed + seed / 6;
    let (unrolled, together) = (form % 2 == 1, case.parts || form % 4 >= 2);
    let lowered = opencl::instructions(&case.source, unrolled, together, folder.path());
    let (module, memories) = match lowered {
        Ok(lowered) => lowered,
        Err(error) => return refused(seed, &error.log),
    };
    let mut machine = Machine::new(&module, &memories);
    machine.buffers = case.buffers.to_vec();
    machine.words = [case.global, [0; 3], case.local].concat();
    machine.words.push(2);
    machine.words.extend((1..=4).map(|buffer| buffer << 28));
    machine.words.extend([u64::from(SCALAR), PAIR[0], PAIR[1]]);
    machine.words.push(case.local_bytes());
    match machine.call(FunctionId(0), &[]) {
        Ok(_) | Err(End(0)) => difference(&machine.buffers.concat(), &case.expected()),
        Err(End(status)) => Some(format!("the kernel ended with status {status}")),
    }
}

/// `KERNELS_SEED` and `KERNELS_ROUNDS` select the first seed and the number of kernels.
#[test]
fn random_kernels_have_the_results_of_this_processor() {
    all(1, 6, compare);
}
