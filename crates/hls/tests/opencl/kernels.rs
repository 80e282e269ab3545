//! Each kernel of the corpus and of the example applications against a reference.

use super::launch::{Argument, End, Outcome, Program};
use std::sync::OnceLock;
use Argument::{Buffer, ReadOnly, Word};

/// The corpus, which is built once.
fn corpus() -> &'static Program {
    static PROGRAM: OnceLock<Program> = OnceLock::new();
    PROGRAM.get_or_init(|| Program::new(include_str!("corpus.cl"), &[]))
}

fn application(name: &str, options: &[&str]) -> Program {
    let apps = concat!(env!("CARGO_MANIFEST_DIR"), "/../../apps");
    let source = std::fs::read_to_string(format!("{apps}/{name}/{name}.cl")).unwrap();
    Program::new(&source, options)
}

/// Numbers in memory.
pub trait Bytes: Sized {
    fn bytes(values: &[Self]) -> Vec<u8>;
    fn read(bytes: &[u8]) -> Vec<Self>;
}

macro_rules! bytes {
    ($($ty:ty)*) => {
        $(impl Bytes for $ty {
            fn bytes(values: &[$ty]) -> Vec<u8> {
                values.iter().flat_map(|v| v.to_le_bytes()).collect()
            }
            fn read(bytes: &[u8]) -> Vec<$ty> {
                let parts = bytes.chunks_exact(size_of::<$ty>());
                parts.map(|p| <$ty>::from_le_bytes(p.try_into().unwrap())).collect()
            }
        })*
    };
}
bytes! { i8 i16 i32 u32 i64 f32 }

pub fn bytes<T: Bytes>(values: &[T]) -> Vec<u8> {
    T::bytes(values)
}

/// Numbers that look random.
pub fn random(count: usize) -> Vec<u32> {
    let mut state = 12345_u32;
    let next = |state: &mut u32| {
        *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *state ^ *state >> 15
    };
    (0..count).map(|_| next(&mut state)).collect()
}

/// Checks that a kernel ended, and prints its cycles.
pub fn done(name: &str, items: u64, outcome: &Outcome) {
    assert_eq!(outcome.end, End::Done, "{name}");
    let per_item = outcome.cycles as f64 / items as f64;
    println!(
        "{name}: {} cycles, {per_item:.1} per work-item",
        outcome.cycles
    );
}

#[test]
fn vector_add() {
    let n = 1000;
    let a: Vec<f32> = (0..n).map(|i| i as f32 * 1.25).collect();
    let b: Vec<f32> = (0..n).map(|i| 7.5 - i as f32).collect();
    let sum: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    let (a, b) = (bytes(&a), bytes(&b));
    let mut c = vec![0; 4 * n];
    let mut arguments = [ReadOnly(&a), ReadOnly(&b), Buffer(&mut c)];
    let outcome = corpus().run("add", [n as u64, 1, 1], [1; 3], &mut arguments);
    done("add", n as u64, &outcome);
    assert_eq!(c, bytes(&sum));
}

#[test]
fn an_access_outside_of_a_buffer_ends_the_kernel_with_a_fault() {
    let mut out = vec![0; 40];
    let run = |far: i64, out: &mut Vec<u8>| {
        let mut arguments = [Buffer(out), Word(far as u64)];
        corpus()
            .run("stray", [10, 1, 1], [1; 3], &mut arguments)
            .end
    };
    assert_eq!(run(0, &mut out), End::Done);
    assert_eq!(out, bytes(&[1_i32; 10]));
    let fault = |offset| End::Fault {
        argument: 0,
        write: true,
        offset,
    };
    assert_eq!(run(5, &mut out), fault(40));
    assert_eq!(run(1000, &mut out), fault(4000));
    let bytes = out.clone();
    let mut arguments = [ReadOnly(&bytes), Word(0)];
    let end = corpus()
        .run("stray", [10, 1, 1], [1; 3], &mut arguments)
        .end;
    assert_eq!(end, fault(0));
}

#[test]
fn identifiers_with_offset_and_groups() {
    let (global, local, offset) = ([6_u32, 4, 2], [3_u32, 2, 1], [5_u32, 1, 0]);
    let mut expected = Vec::new();
    for _z in 0..global[2] {
        for y in 0..global[1] {
            for x in 0..global[0] {
                let group = [x / local[0], y / local[1], global[2] / local[2]];
                let groups = (group[0] << 12) | (group[1] << 24) | (group[2] << 28);
                let own = (x + offset[0]) | ((x % local[0]) << 8) | ((y + offset[1]) << 16);
                expected.push(own | groups);
            }
        }
    }
    let mut out = vec![0; 4 * expected.len()];
    let wide = |size: [u32; 3]| size.map(u64::from);
    let mut arguments = [Buffer(&mut out)];
    let (program, name) = (corpus(), "identify");
    let outcome = program.run_at(
        wide(offset),
        name,
        wide(global),
        wide(local),
        &mut arguments,
    );
    done(name, 48, &outcome);
    assert_eq!(u32::read(&out), expected);
}

#[test]
fn identifiers_of_a_variable_dimension() {
    let (global, local, offset) = ([4_u32, 2, 1], [2_u32, 2, 1], [3_u32, 0, 5]);
    let mut expected = Vec::new();
    for y in 0..global[1] {
        for x in 0..global[0] {
            let mut sum = 0_u32;
            for (d, at) in [x, y, 0].into_iter().enumerate() {
                let own = at + offset[d] + 2 * (at % local[d]) + 3 * (at / local[d]);
                sum = sum * 7 + own + 4 * global[d] + 5 * offset[d] + 6 * local[d];
            }
            // Beyond the last dimension sizes are 1, and positions 0.
            expected.push(sum * 7 + 4 + 6);
        }
    }
    let mut out = vec![0; 4 * expected.len()];
    let wide = |size: [u32; 3]| size.map(u64::from);
    let mut arguments = [Buffer(&mut out), Word(4)];
    let (offset, global, local) = (wide(offset), wide(global), wide(local));
    let outcome = corpus().run_at(offset, "dimensions", global, local, &mut arguments);
    done("dimensions", 8, &outcome);
    assert_eq!(u32::read(&out), expected);
}

#[test]
fn histogram_with_atomics_and_local_memory() {
    let n = 500;
    let input: Vec<u8> = random(512).iter().map(|r| *r as u8).collect();
    let mut expected = [0_u32; 64];
    input[..n]
        .iter()
        .for_each(|v| expected[usize::from(v & 63)] += 1);
    let mut bins = vec![0; 256];
    let mut arguments = [
        ReadOnly(&input),
        Buffer(&mut bins),
        Word(256),
        Word(n as u64),
    ];
    let outcome = corpus().run("histogram", [512, 1, 1], [64, 1, 1], &mut arguments);
    done("histogram", 512, &outcome);
    assert_eq!(u32::read(&bins), expected);
    // Local memory that is larger than the kernel's.
    let mut arguments = [ReadOnly(&input), Buffer(&mut bins), Word(1 << 20), Word(1)];
    let outcome = corpus().run("histogram", [64, 1, 1], [64, 1, 1], &mut arguments);
    assert_eq!(outcome.end, End::Status(2));
    let mut arguments = [ReadOnly(&input), Buffer(&mut bins), Word(256), Word(1)];
    let outcome = corpus().run("histogram", [512, 1, 1], [512, 1, 1], &mut arguments);
    assert_eq!(outcome.end, End::Status(1));
}

#[test]
fn prefix_sums_within_groups() {
    let input: Vec<i32> = random(128).iter().map(|r| *r as i32 % 1000).collect();
    let mut expected = Vec::new();
    for group in input.chunks(32) {
        let sums = group.iter().scan(0, |sum, v| {
            *sum += v;
            Some(*sum)
        });
        expected.extend(sums);
    }
    let (input, mut out) = (bytes(&input), vec![0; 512]);
    let mut arguments = [ReadOnly(&input), Buffer(&mut out)];
    let outcome = corpus().run("scan", [128, 1, 1], [32, 1, 1], &mut arguments);
    done("scan", 128, &outcome);
    assert_eq!(i32::read(&out), expected);
}

#[test]
fn reduction_with_a_required_group_size() {
    let input: Vec<f32> = random(96)
        .iter()
        .map(|r| (r % 4096) as f32 * 0.25)
        .collect();
    let expected: Vec<f32> = input.chunks(32).map(|group| group.iter().sum()).collect();
    let (input, mut out) = (bytes(&input), vec![0; 12]);
    let mut arguments = [ReadOnly(&input), Buffer(&mut out)];
    let outcome = corpus().run("reduce", [96, 1, 1], [32, 1, 1], &mut arguments);
    done("reduce", 96, &outcome);
    // The sums are exact in any order.
    assert_eq!(f32::read(&out), expected);
    let mut arguments = [ReadOnly(&input), Buffer(&mut out)];
    let outcome = corpus().run("reduce", [96, 1, 1], [16, 1, 1], &mut arguments);
    assert_eq!(outcome.end, End::Status(1));
}

#[test]
fn sparse_matrix_times_vector() {
    let n = 40;
    let numbers = random(2000);
    let (mut rows, mut columns, mut values) = (vec![0_i32], Vec::new(), Vec::new());
    for row in 0..n {
        for k in 0..numbers[row] as usize % 9 {
            columns.push((numbers[40 + 9 * row + k] % n as u32) as i32);
            values.push(numbers[900 + 9 * row + k] as f32 * 1e-6);
        }
        rows.push(columns.len() as i32);
    }
    let x: Vec<f32> = (0..n).map(|i| 0.3 * i as f32 - 2.0).collect();
    let mut expected = vec![0.0_f32; n];
    for row in 0..n {
        for i in rows[row]..rows[row + 1] {
            expected[row] += values[i as usize] * x[columns[i as usize] as usize];
        }
    }
    let (rows, columns) = (bytes(&rows), bytes(&columns));
    let (values, x, mut y) = (bytes(&values), bytes(&x), vec![0; 4 * n]);
    let mut arguments = [
        ReadOnly(&rows),
        ReadOnly(&columns),
        ReadOnly(&values),
        ReadOnly(&x),
        Buffer(&mut y),
    ];
    let outcome = corpus().run("spmv", [n as u64, 1, 1], [1; 3], &mut arguments);
    done("spmv", n as u64, &outcome);
    assert_eq!(y, bytes(&expected));
}

#[test]
fn nearest_centers_with_a_structure_by_value() {
    let n = 30;
    let points: Vec<f32> = random(60)
        .iter()
        .map(|r| (r % 1000) as f32 * 0.01)
        .collect();
    let centers = [1.0_f32, 2.0, 3.5, 4.0, 0.5, 9.0, 7.0, 7.5, 2.0, 2.0];
    let weights = [1.0_f32, 2.0, 0.5, 4.0];
    let (scale, bias, wide) = (1.5_f32, [3_i8, -4, 5], 7_i64 << 32);
    let shift = [0.0_f32, 0.25, 0.0, -0.5];
    let expected: Vec<i32> = (0..n)
        .map(|i| {
            let (x, y) = (
                points[2 * i] * scale + shift[1],
                points[2 * i + 1] * scale + shift[3],
            );
            let distance = |k: usize| {
                let (dx, dy) = (x - centers[2 * k], y - centers[2 * k + 1]);
                (dx * dx + dy * dy) * weights[k & 3]
            };
            let best = (1..5).fold(0, |best, k| {
                if distance(k) < distance(best) {
                    k
                } else {
                    best
                }
            });
            best as i32 + i32::from(bias[i % 3]) + (wide >> 32) as i32
        })
        .collect();
    let word = |low: u32, high: u32| Word(u64::from(low) | u64::from(high) << 32);
    let (points, centers, mut out) = (bytes(&points), bytes(&centers), vec![0; 4 * n]);
    let packed = u32::from_le_bytes([bias[0] as u8, bias[1] as u8, bias[2] as u8, 0]);
    let mut arguments = [
        ReadOnly(&points),
        ReadOnly(&centers),
        Buffer(&mut out),
        word(5, scale.to_bits()),
        word(packed, 0),
        Word(wide as u64),
        word(shift[0].to_bits(), shift[1].to_bits()),
        word(shift[2].to_bits(), shift[3].to_bits()),
    ];
    let outcome = corpus().run("nearest", [n as u64, 1, 1], [1; 3], &mut arguments);
    done("nearest", n as u64, &outcome);
    assert_eq!(i32::read(&out), expected);
    let kernel = corpus()
        .accelerator
        .manifest
        .kernels
        .iter()
        .find(|k| k.name == "nearest");
    let sizes: Vec<_> = kernel
        .unwrap()
        .arguments
        .iter()
        .map(|a| (a.bytes, a.words))
        .collect();
    assert_eq!(sizes, [(8, 1), (8, 1), (8, 1), (24, 3), (16, 2)]);
}

#[test]
fn integers_of_all_sizes() {
    let n = 60;
    let numbers = random(4 * n);
    let a: Vec<i8> = numbers[..n].iter().map(|r| *r as i8).collect();
    let b: Vec<i16> = numbers[n..2 * n].iter().map(|r| *r as i16).collect();
    let c: Vec<i64> = (0..n)
        .map(|i| i64::from(numbers[2 * n + i]) << 32 | i64::from(numbers[3 * n + i]))
        .collect();
    let expected: Vec<i64> = (0..n)
        .map(|i| {
            let (a, b, c) = (a[i], b[i], c[i]);
            let (wa, wb) = (i64::from(a), i64::from(b));
            let mut sum = wa * wb + c / (wa | 1) + c % 1000;
            let zeroes = i64::from(i32::from(b).leading_zeros());
            let ones = i64::from((a as u8).count_ones());
            sum ^= (c as u64).rotate_left(b as u32 & 63) as i64 + zeroes + ones;
            let high = (i64::from(c as i32) * wb) >> 32;
            let half = (u64::from(c as u32) + u64::from(i32::from(b) as u32)) >> 1;
            // The operands of + are int, int and ushort, and uint: the sum wraps at 32 bits.
            let more = i64::from(a.saturating_add(b as i8)) + high + (wb - wa).abs();
            sum = sum.wrapping_add(i64::from((more as u32).wrapping_add(half as u32)));
            let rest = (c as u32) / 7;
            sum.wrapping_add(i64::from(rest))
                .wrapping_add(i64::from((a as u8) % 5))
                .wrapping_add(wb.max(3))
                .wrapping_add(wa.clamp(-5, 5))
        })
        .collect();
    let (a, b, c, mut out) = (bytes(&a), bytes(&b), bytes(&c), vec![0; 8 * n]);
    let mut arguments = [ReadOnly(&a), ReadOnly(&b), ReadOnly(&c), Buffer(&mut out)];
    let outcome = corpus().run("integers", [n as u64, 1, 1], [1; 3], &mut arguments);
    done("integers", n as u64, &outcome);
    assert_eq!(i64::read(&out), expected);
}

#[test]
fn vectors() {
    let n = 20;
    let input: Vec<u8> = random(4 * n).iter().map(|r| *r as u8).collect();
    let old: Vec<i32> = random(3 * n).iter().map(|r| *r as i32 % 1000).collect();
    let (mut bytes_expected, mut expected) = (Vec::new(), old.clone());
    for i in 0..n {
        let v: Vec<i32> = (0..4)
            .map(|k| i32::from(input[4 * i + k]) * 3 - 10 * (k as i32 + 1))
            .collect();
        let s: Vec<u8> = v.iter().map(|x| (*x).clamp(0, 255) as u8).collect();
        let less: Vec<bool> = v.iter().map(|x| *x < 100).collect();
        bytes_expected.extend((0..4).map(|k| if less[k] { s[3 - k] } else { s[k] }));
        let any = u8::from(less.iter().any(|l| *l));
        let other = [(v[0] & 1) as u8, 2, 3, any];
        let word = |b: &[u8]| u32::from_le_bytes(b.try_into().unwrap());
        let bits = (word(&s) ^ word(&other)) as i32;
        for k in 0..3 {
            let sum = &mut expected[3 * i + k];
            *sum = sum.wrapping_add(v[k]).wrapping_add(bits);
        }
        let all = i32::from(less.iter().all(|l| *l));
        let more = v[i & 3] + v[3 - (i & 3)] + all;
        expected[3 * i] = expected[3 * i].wrapping_add(more);
    }
    let (mut out, mut sums) = (vec![0; 4 * n], bytes(&old));
    let mut arguments = [ReadOnly(&input), Buffer(&mut out), Buffer(&mut sums)];
    let outcome = corpus().run("vectors", [n as u64, 1, 1], [1; 3], &mut arguments);
    done("vectors", n as u64, &outcome);
    assert_eq!(out, bytes_expected);
    assert_eq!(i32::read(&sums), expected);
}

/// The distance of two floats in units in the last place.
fn ulps(a: f32, b: f32) -> u32 {
    if a == b || (a.is_nan() && b.is_nan()) {
        return 0;
    }
    let order = |x: f32| match x.to_bits() {
        bits if bits >> 31 == 1 => -i64::from(bits & 0x7fff_ffff),
        bits => i64::from(bits),
    };
    u32::try_from((order(a) - order(b)).abs()).unwrap_or(u32::MAX)
}

#[test]
fn functions_of_floats() {
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        f32::MIN_POSITIVE,
        1e-45,
        3.4e38,
        0.5,
        2.5,
        -3.7,
        1e-39,
        88.9,
        -100.0,
    ];
    let numbers = random(300);
    let any = numbers.iter().map(|r| f32::from_bits(*r));
    let near = numbers.iter().map(|r| (*r as i32) as f32 * 1e-8);
    let values: Vec<f32> = special.into_iter().chain(any).chain(near).collect();
    let mut a = Vec::new();
    let mut b = Vec::new();
    for (i, value) in values.iter().enumerate() {
        a.push(*value);
        b.push(values[(i * 7 + 3) % values.len()]);
    }
    // All pairs of special values.
    for x in special {
        for y in special {
            a.push(x);
            b.push(y);
        }
    }
    let n = a.len();
    let (mut out, x, y) = (vec![0; 32 * n], bytes(&a), bytes(&b));
    let mut arguments = [ReadOnly(&x), ReadOnly(&y), Buffer(&mut out)];
    let outcome = corpus().run("floats", [n as u64, 1, 1], [1; 3], &mut arguments);
    done("floats", n as u64, &outcome);
    for (i, got) in f32::read(&out).chunks(8).enumerate() {
        let (a, b) = (a[i], b[i]);
        let clamped = if a.is_nan() {
            // fmax of NaN and a number is the number.
            -1e9
        } else {
            a.clamp(-1e9, 1e9)
        };
        let exact = [
            a / b,
            a.sqrt(),
            a.min(b),
            a.floor() + b.round_ties_even(),
            b.exp(),
            a.ln(),
            (clamped as i32) as f32 + f32::from(b as u8),
            a * b + 1.0 + f32::from(u8::from(a.is_nan())) + b.trunc(),
        ];
        for (k, (got, exact)) in got.iter().zip(exact).enumerate() {
            let bound = if k == 4 || k == 5 { 3 } else { 0 };
            assert!(
                ulps(*got, exact) <= bound,
                "function {k} of {a:e}, {b:e}: {got:e}, expected {exact:e}"
            );
        }
    }
}

#[test]
fn transcendental_functions_are_within_their_bounds() {
    let program = Program::new(include_str!("transcendental.cl"), &[]);
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    let more = [1e-40, 3e38, 2.0, -2.0, 0.5, -3.0, 1e-20, 65537.0, -1e30];
    let special: Vec<f32> = special.into_iter().chain(more).collect();
    let numbers = random(700);
    let any = numbers[..200].iter().map(|r| f32::from_bits(*r));
    let near = numbers[200..].iter().map(|r| (*r as i32) as f32 * 3e-9);
    let values: Vec<f32> = any.chain(near).collect();
    let (mut a, mut b) = (values.clone(), Vec::new());
    b.extend((0..values.len()).map(|i| values[(i * 11 + 5) % values.len()]));
    for x in &special {
        for y in &special {
            a.push(*x);
            b.push(*y);
        }
    }
    let n = a.len();
    let (mut out, x, y) = (vec![0; 64 * n], bytes(&a), bytes(&b));
    let mut arguments = [ReadOnly(&x), ReadOnly(&y), Buffer(&mut out)];
    let outcome = program.run("transcendental", [n as u64, 1, 1], [1; 3], &mut arguments);
    done("transcendental", n as u64, &outcome);
    let mut failures = Vec::new();
    for (i, got) in f32::read(&out).chunks(16).enumerate() {
        let (x, y) = (a[i], b[i]);
        let (u, v) = (f64::from(x), f64::from(y));
        let plain = x != 0.0 && x.is_finite();
        let exponent = if plain {
            (u.to_bits() >> 52 & 0x7ff) as i32 - 1022
        } else {
            0
        };
        let power = y.clamp(-300.0, 300.0) as i32;
        let power = if y.is_nan() { -300 } else { power };
        // Units in the last place that OpenCL allows.
        let exact = [
            (u.sin() as f32, 4),
            (u.cos() as f32, 4),
            (u.tan() as f32, 5),
            (u.asin() as f32, 4),
            (u.acos() as f32, 4),
            (u.atan() as f32, 5),
            (u.atan2(v) as f32, 6),
            (x.powf(y), 16),
            (u.cbrt() as f32, 2),
            (u.hypot(v) as f32, 4),
            (x.mul_add(y, x), 0),
            (x % y, 0),
            ((u * 2_f64.powi(power)) as f32, 0),
            (
                if plain {
                    (u * 2_f64.powi(-exponent)) as f32
                } else {
                    x
                },
                0,
            ),
            (exponent as f32, 0),
            (x.mul_add(x, -y), 0),
        ];
        for (k, (got, (exact, bound))) in got.iter().zip(exact).enumerate() {
            if ulps(*got, exact) > bound {
                failures.push(format!(
                    "function {k} of {x:e}, {y:e}: {got:e}, expected {exact:e}"
                ));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn printf() {
    let input = bytes(&[7_i32, -300, 65535]);
    let mut arguments = [ReadOnly(&input), Word(u64::from(0.75_f32.to_bits()))];
    let outcome = corpus().run("report", [3, 1, 1], [1; 3], &mut arguments);
    done("report", 3, &outcome);
    let expected = "item 0:     7|7   |a 0.00 0,1,-2,7 end\n\
                    item 1:  -300|fffffed4|b 0.75 1,1,-2,-300 end\n\
                    item 2: 65535|ffff|c 1.50 2,1,-2,65535 end\n";
    assert_eq!(outcome.text, expected);
}

#[test]
fn a_barrier_that_not_all_work_items_reach_ends_the_kernel_with_a_status() {
    let mut out = vec![0; 32];
    let mut run = |n: u64| {
        let mut arguments = [Buffer(&mut out), Word(n)];
        corpus()
            .run("diverge", [8, 1, 1], [4, 1, 1], &mut arguments)
            .end
    };
    assert_eq!(run(2), End::Status(3));
    assert_eq!(run(4), End::Done);
    assert_eq!(i32::read(&out), [6; 8]);
}

#[test]
fn private_values_across_barriers() {
    let input: Vec<i32> = random(48).iter().map(|r| *r as i32 >> 8).collect();
    let (width, rounds) = (12, 7);
    let mut expected = vec![0; 48];
    for (group_y, group_x) in (0..2).flat_map(|y| (0..3).map(move |x| (y, x))) {
        let place = |i: usize| (group_y * 2 + i / 4) * width + group_x * 4 + i % 4;
        let mut values: Vec<i32> = (0..8).map(|i| input[place(i)]).collect();
        let mut history = [[0_i32; 4]; 8];
        for r in 0..rounds {
            let old = values.clone();
            for i in 0..8 {
                let mut next = old[(i + 1) % 8];
                if r & 1 == 1 {
                    next ^= old[i].wrapping_mul(3);
                }
                history[i][r & 3] = history[i][r & 3].wrapping_add(next);
                values[i] = next.wrapping_add(r as i32);
            }
        }
        for i in 0..8 {
            let weighted = (0..4).map(|k| history[i][k].wrapping_mul(k as i32 + 1));
            expected[place(i)] = weighted.fold(values[i], i32::wrapping_add);
        }
    }
    let (input, mut out) = (bytes(&input), vec![0; 192]);
    let mut arguments = [ReadOnly(&input), Buffer(&mut out), Word(rounds as u64)];
    let outcome = corpus().run("exchange", [12, 4, 1], [4, 2, 1], &mut arguments);
    done("exchange", 48, &outcome);
    assert_eq!(i32::read(&out), expected);
}

#[test]
fn structures_that_work_items_change() {
    let mut expected = Vec::new();
    for group in 0..2 {
        let mut values: Vec<i32> = (0..4).map(|i| 5 + group * 4 + i).collect();
        let mut steps = [[10, 20, 30]; 4];
        for round in 0..3 {
            for (i, value) in values.iter().enumerate() {
                steps[i][(i + round) % 3] += value;
            }
            for (i, value) in values.iter_mut().enumerate() {
                *value += steps[(i + 1) % 4][round];
            }
        }
        expected.extend(values);
    }
    let mut out = vec![0; 32];
    let mut arguments = [Buffer(&mut out), Word(10 << 32 | 5), Word(30 << 32 | 20)];
    let outcome = corpus().run("marks", [8, 1, 1], [4, 1, 1], &mut arguments);
    done("marks", 8, &outcome);
    assert_eq!(i32::read(&out), expected);
}

#[test]
fn sobel_of_the_example_application() {
    let program = application("sobel", &[]);
    let (width, height) = (24, 10);
    let input: Vec<u8> = random(4 * width * height)
        .iter()
        .map(|r| *r as u8)
        .collect();
    let at = |x: i32, y: i32, c: usize| {
        let (x, y) = (x.clamp(0, width as i32 - 1), y.clamp(0, height as i32 - 1));
        i32::from(input[4 * (y as usize * width + x as usize) + c])
    };
    let mut expected = Vec::new();
    for y in 0..height as i32 {
        for x in 0..width as i32 {
            for c in 0..4 {
                let p = |dx, dy| at(x + dx, y + dy, c);
                let gx = p(1, -1) + 2 * p(1, 0) + p(1, 1) - p(-1, -1) - 2 * p(-1, 0) - p(-1, 1);
                let gy = p(-1, 1) + 2 * p(0, 1) + p(1, 1) - p(-1, -1) - 2 * p(0, -1) - p(1, -1);
                expected.push((gx.abs() + gy.abs()).min(255) as u8);
            }
        }
    }
    let mut out = vec![0; input.len()];
    let size = [width as u64, height as u64, 1];
    let mut arguments = [
        ReadOnly(&input),
        Buffer(&mut out),
        Word(size[0]),
        Word(size[1]),
    ];
    let outcome = program.run("sobel", size, [1; 3], &mut arguments);
    done("sobel", size[0] * size[1], &outcome);
    assert_eq!(out, expected);
}

#[test]
fn matrix_multiplication_of_the_example_application() {
    let program = application("matmul", &["-DTILE=8"]);
    let n = 20_usize;
    let a: Vec<f32> = random(n * n).iter().map(|r| *r as f32 * 1e-9).collect();
    let b: Vec<f32> = a.iter().rev().map(|v| v - 2.0).collect();
    let mut expected = vec![0.0_f32; n * n];
    for (at, sum) in expected.iter_mut().enumerate() {
        // Tiles are filled with zeroes, which change no sum.
        for k in 0..n {
            *sum += a[at / n * n + k] * b[k * n + at % n];
        }
    }
    let (a, b, mut c) = (bytes(&a), bytes(&b), vec![0; 4 * n * n]);
    let mut arguments = [ReadOnly(&a), ReadOnly(&b), Buffer(&mut c), Word(n as u64)];
    let outcome = program.run("matmul", [24, 24, 1], [8, 8, 1], &mut arguments);
    done("matmul", 576, &outcome);
    // All loops over work-items are pipelines.
    assert!(outcome.cycles < 25_000);
    assert_eq!(f32::read(&c), expected);
}

/// Executes a kernel of the network: buffers, then scalars; the last buffer is written.
fn layer(
    program: &Program,
    name: &str,
    size: [u64; 3],
    inputs: &[&[f32]],
    out: &mut Vec<f32>,
    scalars: &[i32],
) {
    let inputs: Vec<Vec<u8>> = inputs.iter().map(|v| bytes(v)).collect();
    let mut result = bytes(out);
    let mut arguments: Vec<Argument<'_>> = inputs.iter().map(|v| ReadOnly(v)).collect();
    arguments.push(Buffer(&mut result));
    arguments.extend(scalars.iter().map(|s| Word(*s as u32 as u64)));
    let outcome = program.run(name, size, [1; 3], &mut arguments);
    done(name, size.iter().product(), &outcome);
    *out = f32::read(&result);
}

fn close(name: &str, got: &[f32], expected: &[f32], bound: f32) {
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let difference = (got - expected).abs();
        let most = bound * expected.abs().max(1e-3);
        assert!(difference <= most, "{name} {i}: {got}, expected {expected}");
    }
}

#[test]
#[ignore = "the build of the network's kernels takes a minute"]
fn neural_network_of_the_example_application() {
    let program = application("cnn", &[]);
    let value = |i: usize| (random(1)[0].rotate_left(i as u32 % 31) as i32 >> 8) as f32 * 1e-7;
    let some = |n: usize| (0..n).map(|i| value(i * 7 + n)).collect::<Vec<f32>>();
    // Convolution: two channels of 18x5 pixels, 3x3, to eight channels of 16x3.
    let (input, weights, bias) = (some(180), some(144), some(8));
    let mut out = vec![0.0; 8 * 48];
    let scalars = [2, 3, 1, 18, 90, 8, 0, 16, 16, 48, 0];
    let inputs: [&[f32]; 3] = [&input, &weights, &bias];
    layer(&program, "conv", [1, 3, 1], &inputs, &mut out, &scalars);
    let mut expected = vec![0.0_f32; 8 * 48];
    for (at, sum) in expected.iter_mut().enumerate() {
        let (k, y, x) = (at / 48, at % 48 / 16, at % 16);
        *sum = bias[k];
        for (c, ky, kx) in (0..18).map(|i| (i / 9, i / 3 % 3, i % 3)) {
            let weight = weights[((c * 3 + ky) * 3 + kx) * 8 + k];
            *sum += input[c * 90 + (y + ky) * 18 + x + kx] * weight;
        }
        *sum = sum.max(0.0);
    }
    close("conv", &out, &expected, 0.0);
    // Maxima of 3x3 with step 2 of two channels.
    let mut pooled = vec![0.0; 2 * 2 * 8];
    let scalars = [3, 2, 18, 90, 8, 16, 0];
    layer(
        &program,
        "pool",
        [8, 2, 2],
        &[&input],
        &mut pooled,
        &scalars,
    );
    let maximum = |at: usize| {
        let (c, y, x) = (at / 16, at % 16 / 8, at % 8);
        let window = (0..9).map(|i| input[c * 90 + (2 * y + i / 3) * 18 + 2 * x + i % 3]);
        window.fold(f32::MIN, f32::max)
    };
    let expected: Vec<f32> = (0..32).map(maximum).collect();
    close("pool", &pooled, &expected, 0.0);
    // Normalization over five of six channels of 4x2.
    let input: Vec<f32> = some(48).iter().map(|v| v * 1000.0).collect();
    let mut normal = vec![0.0; 48];
    let scalars = [6, 4, 8, 4, 8, 0];
    layer(&program, "lrn", [4, 2, 6], &[&input], &mut normal, &scalars);
    let normalized = |at: usize| {
        let c = at / 8;
        let near = c.saturating_sub(2)..=(c + 2).min(5);
        let sum = near
            .map(|i| input[i * 8 + at % 8])
            .fold(0.0, |s, v| s + v * v);
        let root = (2.0 + 1e-4 * sum).sqrt();
        input[at] / (root * root.sqrt())
    };
    let expected: Vec<f32> = (0..48).map(normalized).collect();
    close("lrn", &normal, &expected, 1e-6);
    // Three outputs of 48 inputs.
    let (input, weights, bias) = (some(48), some(144), some(3));
    let mut out = vec![0.0; 3];
    let inputs: [&[f32]; 3] = [&input, &weights, &bias];
    let name = "fully_connected";
    layer(&program, name, [3, 1, 1], &inputs, &mut out, &[48, 0, 0]);
    let sum = |row: usize| {
        let products = (0..48).map(|i| f64::from(input[i]) * f64::from(weights[row * 48 + i]));
        (f64::from(bias[row]) + products.sum::<f64>()) as f32
    };
    let expected: Vec<f32> = (0..3).map(sum).collect();
    close("fully_connected", &out, &expected, 1e-5);
    let input = [0.5, -1.0, 3.0, 2.25];
    let mut out = vec![0.0; 4];
    layer(&program, "softmax", [1, 1, 1], &[&input], &mut out, &[4]);
    let all: f32 = input.iter().map(|v| (v - 3.0_f32).exp()).sum();
    let expected: Vec<f32> = input.iter().map(|v| (v - 3.0_f32).exp() / all).collect();
    close("softmax", &out, &expected, 1e-6);
}
