//! Loops that the work-items of a group execute together, memories in banks, and units of which a
//! pipeline has several.

use super::kernels::{bytes, done, random};
use super::launch::{Argument, Outcome, Program};
use std::sync::OnceLock;
use Argument::{Buffer, ReadOnly, Word};

fn matmul() -> &'static Program {
    static PROGRAM: OnceLock<Program> = OnceLock::new();
    let source = include_str!("../../../../bench/kernels/matmul.cl");
    PROGRAM.get_or_init(|| Program::new(source, &[]))
}

fn product(a: &[f32], b: &[f32], n: usize) -> Vec<f32> {
    let sum = |row: usize, column: usize| {
        let terms = (0..n).map(|k| a[row * n + k] * b[k * n + column]);
        terms.fold(0.0, |sum: f32, term| sum + term)
    };
    (0..n * n).map(|at| sum(at / n, at % n)).collect()
}

/// Multiplies matrices, and compares the result.
fn multiply(n: usize) -> Outcome {
    let floats = |from: usize| -> Vec<f32> {
        let numbers = random(2 * n * n)[from..from + n * n].to_vec();
        numbers.iter().map(|r| *r as i32 as f32 * 1e-9).collect()
    };
    let (x, y) = (floats(0), floats(n * n));
    let (a, b, mut c) = (bytes(&x), bytes(&y), vec![0; 4 * n * n]);
    let size = [n as u64 / 16, n as u64, 1];
    let mut arguments = [ReadOnly(&a), ReadOnly(&b), Buffer(&mut c), Word(n as u64)];
    let outcome = matmul().run("matmul", size, [8, 128, 1], &mut arguments);
    done("matmul", (n * n * n) as u64, &outcome);
    assert_eq!(c, bytes(&product(&x, &y, n)));
    outcome
}

#[test]
fn tiles_are_multiplied_with_sixteen_units() {
    let outcome = multiply(128);
    let share = 128.0 * 128.0 * 128.0 / 16.0 / outcome.cycles as f64;
    assert!(share > 0.7, "{:.1} % of 16 per cycle", share * 100.0);
    let kernel = &matmul().accelerator.manifest.kernels[0];
    let banks = |name: &str| {
        let mut memories = kernel.report.memories.iter();
        memories.find(|m| m.name.ends_with(name)).map(|m| m.banks)
    };
    assert!(banks("tile_b").is_some_and(|banks| banks >= 2));
}

#[test]
#[ignore = "simulates a million cycles of a large kernel"]
fn larger_tiles_reach_most_of_sixteen_units() {
    let outcome = multiply(256);
    let share = 256.0 * 256.0 * 256.0 / 16.0 / outcome.cycles as f64;
    assert!(share > 0.75, "{:.1} % of 16 per cycle", share * 100.0);
}
