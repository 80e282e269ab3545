//! Kernels without barriers whose work-items execute the iterations of a loop in parts.

use super::kernels::{bytes, done, random, Bytes};
use super::launch::{Argument, Outcome, Program};
use std::sync::OnceLock;
use Argument::{Buffer, ReadOnly, Word};

fn program() -> &'static Program {
    static PROGRAM: OnceLock<Program> = OnceLock::new();
    PROGRAM.get_or_init(|| Program::new(include_str!("parts.cl"), &[]))
}

/// Bytes of private memory of a work-item, which only parts have in kernels without barriers.
fn private_bytes(name: &str) -> u64 {
    let mut kernels = program().accelerator.manifest.kernels.iter();
    let kernel = kernels.find(|kernel| kernel.name == name);
    kernel.expect("a kernel").private_bytes
}

/// Hashes rows of words, and compares the results.
fn hash(global: [u32; 3], offset: [u32; 3], count: usize, stride: usize) -> Outcome {
    let items = global.iter().product::<u32>() as usize;
    let rows = random(items * stride);
    let expected = (0..items).map(|at| {
        let (x, y) = (at as u32 % global[0], at as u32 / global[0]);
        let (y, z) = (y % global[1], y / global[1]);
        let (mut a, mut b) = (x + offset[0], (y + offset[1]) ^ ((z + offset[2]) << 16));
        let mut last = [0_u32; 4];
        for (i, word) in rows[at * stride..][..count].iter().enumerate() {
            let product = (a ^ word).wrapping_mul(0x9e37_79b1);
            a = product.wrapping_add(last[i & 3]).rotate_left(7);
            last[(a & 3) as usize] = b;
            b = b.wrapping_add(a >> 3);
        }
        a ^ b
    });
    let expected: Vec<u32> = expected.collect();
    let (rows, mut out) = (bytes(&rows), vec![0; 4 * items]);
    let (count, stride) = (Word(count as u64), Word(stride as u64));
    let mut arguments = [ReadOnly(&rows), Buffer(&mut out), count, stride];
    let wide = |size: [u32; 3]| size.map(u64::from);
    let (offset, global) = (wide(offset), wide(global));
    let outcome = program().run_at(offset, "hashes", global, [1; 3], &mut arguments);
    done("hashes", items as u64, &outcome);
    assert_eq!(u32::read(&out), expected, "{global:?}");
    outcome
}

#[test]
fn work_items_of_all_dimensions_are_in_parts() {
    assert!(private_bytes("hashes") > 0);
    for global in [
        [1, 1, 1],
        [16, 1, 1],
        [17, 1, 1],
        [1, 1, 37],
        [5, 7, 3],
        [3, 16, 1],
    ] {
        for count in [0, 1, 7] {
            hash(global, [5, 1, 9], count, 8);
        }
    }
}

#[test]
fn work_items_hide_the_latency_of_an_iteration() {
    let cycles = |items| hash([items, 1, 1], [0; 3], 200, 200).cycles as f64;
    let (one, part) = (cycles(1), cycles(16));
    assert!(part < 6.0 * one, "{part} cycles for 16, {one} for one");
}

/// Rows whose distance is a power of two have lines of their own in a port's cache.
#[test]
fn distant_rows_do_not_replace_each_others_lines() {
    let near = hash([16, 1, 1], [0; 3], 256, 256 + 32).cycles as f64;
    for stride in [256, 1024, 4096] {
        let cycles = hash([16, 1, 1], [0; 3], 256, stride).cycles as f64;
        assert!(cycles < 1.1 * near, "{cycles} cycles at {stride}, {near}");
    }
}

#[test]
fn loops_of_different_lengths_stay_within_a_work_item() {
    assert_eq!(private_bytes("lengths"), 0);
    let rows = random(8);
    let expected = (0..40_u32).map(|at| {
        let count = (3 + at as usize) % 5;
        let step = |a: u32, word: &u32| (a ^ word).wrapping_mul(0x9e37_79b1).rotate_left(7);
        rows[..count].iter().fold(at, step)
    });
    let expected: Vec<u32> = expected.collect();
    let (rows, mut out) = (bytes(&rows), vec![0; 160]);
    let mut arguments = [ReadOnly(&rows), Buffer(&mut out), Word(3)];
    let outcome = program().run("lengths", [40, 1, 1], [1; 3], &mut arguments);
    done("lengths", 40, &outcome);
    assert_eq!(u32::read(&out), expected);
}

#[test]
fn kernels_with_atomic_functions_or_prints_are_not_in_parts() {
    for name in ["counted", "printed"] {
        assert_eq!(private_bytes(name), 0, "{name}");
    }
}

#[test]
fn loops_without_memory_are_in_parts() {
    assert!(private_bytes("powers") > 0);
    let expected = (0..40_u32).map(|at| {
        let (mut a, mut b) = (at | 1, at | 1);
        for _ in 0..30 {
            a = a.wrapping_mul(b).wrapping_add(a >> 5);
            b ^= a;
        }
        a
    });
    let expected: Vec<u32> = expected.collect();
    let mut out = vec![0; 160];
    let mut arguments = [Buffer(&mut out), Word(30)];
    let outcome = program().run("powers", [40, 1, 1], [1; 3], &mut arguments);
    done("powers", 40, &outcome);
    assert_eq!(u32::read(&out), expected);
}
