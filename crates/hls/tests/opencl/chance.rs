//! Random kernels (`generate`): the same bytes from the simulated hardware and from this
//! processor.

use super::launch::{options_with, Argument, End, Program};
use super::reference::{all, difference, refused, Case, PAIR, SCALAR};
use baltra_hls::opencl::Options;
use Argument::{Buffer, ReadOnly, Word};

fn compare(seed: u64) -> Option<String> {
    let mut case = Case::new(seed);
    let options = Options {
        parts: case.parts,
        ..options_with(&[])
    };
    let program = match Program::with(&case.source, &options) {
        Ok(program) => program,
        Err(error) => return refused(seed, &error.log),
    };
    let expected = case.expected();
    let local_bytes = case.local_bytes();
    let [out, input, counts, table] = &mut case.buffers;
    let mut arguments = [
        Buffer(out),
        ReadOnly(input),
        Buffer(counts),
        ReadOnly(table),
        Word(u64::from(SCALAR)),
        Word(PAIR[0]),
        Word(PAIR[1]),
        Word(local_bytes),
    ];
    let end = program
        .run(&case.name, case.global, case.local, &mut arguments)
        .end;
    if end != End::Done {
        return Some(format!("{end:?}"));
    }
    difference(&case.buffers.concat(), &expected)
}

/// `KERNELS_SEED` and `KERNELS_ROUNDS` select the first seed and the number of kernels.
#[test]
fn random_kernels_have_the_results_of_this_processor() {
    all(4, 1, compare);
}
