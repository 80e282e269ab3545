//! Kernels whose work-items are a pipeline: loads ahead of stores, conditions, faults, and cycles.

use super::kernels::{bytes, done, random, Bytes};
use super::launch::{Argument, End, Program};
use std::sync::OnceLock;
use Argument::{Buffer, ReadOnly, Word};

fn program() -> &'static Program {
    static PROGRAM: OnceLock<Program> = OnceLock::new();
    PROGRAM.get_or_init(|| Program::new(include_str!("streams.cl"), &[]))
}

/// The word of an argument that is the same buffer as the one with this number.
fn same(buffer: u64) -> Argument<'static> {
    Word((buffer + 1) << 28)
}

fn grey(input: &[u8], width: usize, height: usize) -> Vec<u8> {
    let at = |x: i32, y: i32| {
        let (x, y) = (x.clamp(0, width as i32 - 1), y.clamp(0, height as i32 - 1));
        i32::from(input[y as usize * width + x as usize])
    };
    let mut out = Vec::new();
    for y in 0..height as i32 {
        for x in 0..width as i32 {
            let p = |dx, dy| at(x + dx, y + dy);
            let gx = p(1, -1) + 2 * p(1, 0) + p(1, 1) - p(-1, -1) - 2 * p(-1, 0) - p(-1, 1);
            let gy = p(-1, 1) + 2 * p(0, 1) + p(1, 1) - p(-1, -1) - 2 * p(0, -1) - p(1, -1);
            out.push((gx.abs() + gy.abs()).min(255) as u8);
        }
    }
    out
}

/// Verilator accepts a part of a part (`a[63:0][7:0]`), Yosys' front end does not.
#[test]
fn no_part_of_a_part_is_selected() {
    let files = &program().accelerator.files;
    let has_parts = |text: &String| text.contains("port_word_0[");
    assert!(files.iter().any(|(_, text)| has_parts(text)));
    for (name, text) in files {
        let mut before: Vec<_> = text.split("][").collect();
        before.pop();
        for text in before {
            let index = text.rsplit('[').next().unwrap_or_default();
            assert!(!index.contains(':'), "{name}: [{index}][");
        }
    }
}

#[test]
fn a_filter_needs_about_a_cycle_per_pixel() {
    for (width, height, most) in [(1, 1, 600), (37, 5, 1200), (640, 6, 5000)] {
        let input: Vec<u8> = random(width * height).iter().map(|r| *r as u8).collect();
        let mut out = vec![0; input.len()];
        // More work-items than pixels.
        let size = [width as u64 + 3, height as u64 + 1, 1];
        let mut arguments = [
            ReadOnly(&input),
            Buffer(&mut out),
            Word(width as u64),
            Word(height as u64),
        ];
        let outcome = program().run("grey", size, [1; 3], &mut arguments);
        done("grey", (width * height) as u64, &outcome);
        assert_eq!(out, grey(&input, width, height));
        assert!(outcome.cycles < most, "{} cycles", outcome.cycles);
    }
    let kernels = &program().accelerator.manifest.kernels;
    let kernel = kernels.iter().find(|k| k.name == "grey").unwrap();
    let interval = |l: &baltra_hls::opencl::LoopReport| (l.interval, l.limit.is_empty());
    assert_eq!(
        kernel.report.loops.iter().map(interval).collect::<Vec<_>>(),
        [(1, true)]
    );
}

#[test]
fn work_items_see_their_own_stores_through_another_argument() {
    let n = 300;
    let (mut a, mut c) = (vec![0; 4 * n], vec![0; 4 * n]);
    let mut arguments = [Buffer(&mut a), same(0), Buffer(&mut c)];
    let outcome = program().run("own", [n as u64, 1, 1], [1; 3], &mut arguments);
    done("own", n as u64, &outcome);
    let sum: Vec<i32> = (0..n as i32).map(|i| i * 7 + 1).collect();
    assert_eq!(i32::read(&c), sum);
    assert_eq!(i32::read(&a), sum.iter().map(|s| s * 2).collect::<Vec<_>>());
    // All arguments are one buffer.
    let mut arguments = [Buffer(&mut a), same(0), same(0)];
    let outcome = program().run("own", [n as u64, 1, 1], [1; 3], &mut arguments);
    done("own", n as u64, &outcome);
    assert_eq!(i32::read(&a), sum.iter().map(|s| s * 2).collect::<Vec<_>>());
}

#[test]
fn loads_precede_the_stores_of_their_work_item() {
    for n in [1_usize, 31, 33, 1001] {
        let numbers = |by: i32| (0..n as i32).map(|i| i * by - 9).collect::<Vec<_>>();
        let (x, y) = (numbers(3), numbers(-5));
        let (mut a, mut b) = (bytes(&x), bytes(&y));
        let size = [n as u64, 1, 1];
        let outcome = program().run("swap", size, [1; 3], &mut [Buffer(&mut a), Buffer(&mut b)]);
        done("swap", n as u64, &outcome);
        assert_eq!(i32::read(&a), y);
        let more: Vec<i32> = x.iter().map(|x| x + 5).collect();
        assert_eq!(i32::read(&b), more);
        // With one buffer, the last store counts.
        let outcome = program().run("swap", size, [1; 3], &mut [Buffer(&mut b), same(0)]);
        done("swap", n as u64, &outcome);
        let last: Vec<i32> = more.iter().map(|x| x + 5).collect();
        assert_eq!(i32::read(&b), last);
    }
}

#[test]
fn accesses_whose_condition_does_not_hold_are_not_executed() {
    let n = 500;
    let which: Vec<i32> = random(n).iter().map(|r| (r % 12) as i32).collect();
    let (few, table) = ([10, -20, 30, -40], random(50));
    let table: Vec<i16> = table.iter().map(|r| *r as i16).collect();
    let expected: Vec<i32> = (which.iter())
        .map(|k| match *k as usize {
            k @ 0..4 => few[k] * 3,
            k @ 4..8 => i32::from(table[k * k]),
            _ => -1,
        })
        .collect();
    let (which, few, table) = (bytes(&which), bytes(&few), bytes(&table));
    let mut out = bytes(&vec![-1; n]);
    let mut arguments = [
        ReadOnly(&which),
        ReadOnly(&few),
        ReadOnly(&table),
        Buffer(&mut out),
        Word(n as u64),
    ];
    let outcome = program().run("choose", [900, 1, 1], [1; 3], &mut arguments);
    done("choose", 900, &outcome);
    assert_eq!(i32::read(&out), expected);
}

#[test]
fn a_read_behind_a_buffer_ends_a_stream_with_a_fault() {
    let input: Vec<i32> = (0..200).collect();
    let input = bytes(&input);
    for (by, n, first) in [
        (1, 200, None),
        (1, 201, Some(200)),
        (1, 1000, Some(200)),
        (3, 300, Some(67)),
    ] {
        let mut out = vec![0xaa; 4 * n];
        let mut arguments = [ReadOnly(&input), Buffer(&mut out), Word(by)];
        let size = [n as u64, 1, 1];
        let outcome = program().run("far", size, [1; 3], &mut arguments);
        let Some(first) = first else {
            assert_eq!(outcome.end, End::Done);
            assert_eq!(out, input);
            continue;
        };
        let fault = End::Fault {
            argument: 0,
            write: false,
            offset: first * by * 4,
        };
        assert_eq!(outcome.end, fault);
        // Results that have left are right, and nothing is stored from the fault on.
        for (i, value) in i32::read(&out).into_iter().enumerate() {
            let right = i < first as usize && value == (i as u64 * by) as i32;
            assert!(right || value == 0xaaaa_aaaa_u32 as i32, "{i}: {value}");
        }
    }
    // A null pointer, and a store to a buffer that is only read.
    let mut out = vec![0; 40];
    let mut arguments = [Word(0), Buffer(&mut out), Word(1)];
    let end = program().run("far", [10, 1, 1], [1; 3], &mut arguments).end;
    assert!(matches!(end, End::Fault { write: false, .. }), "{end:?}");
    let mut arguments = [ReadOnly(&input), ReadOnly(&input), Word(1)];
    let end = program().run("far", [10, 1, 1], [1; 3], &mut arguments).end;
    let fault = End::Fault {
        argument: 1,
        write: true,
        offset: 0,
    };
    assert_eq!(end, fault);
}

#[test]
fn stores_of_parts_of_lines_keep_the_other_bytes() {
    let n = 700;
    let numbers = random(2 * n);
    let input: Vec<i64> = (numbers.chunks(2))
        .map(|r| i64::from(r[0]) << 32 | i64::from(r[1]))
        .collect();
    let (mut low, mut high) = (vec![0x55; n + 200], bytes(&vec![-1; 2 * n]));
    let wide = bytes(&input);
    let mut arguments = [ReadOnly(&wide), Buffer(&mut low), Buffer(&mut high)];
    let outcome = program().run("pairs", [n as u64, 1, 1], [1; 3], &mut arguments);
    done("pairs", n as u64, &outcome);
    let expected: Vec<u8> = input.iter().map(|v| *v as u8).collect();
    assert_eq!(low[..n], expected);
    assert_eq!(low[n..], [0x55; 200]);
    let expected: Vec<i32> = (input.iter())
        .flat_map(|v| [(v >> 32) as i32, -1])
        .collect();
    assert_eq!(i32::read(&high), expected);
}

#[test]
#[ignore = "simulates six million cycles"]
fn cycles_of_large_launches() {
    let n = 1 << 20;
    let a: Vec<f32> = random(n).iter().map(|r| *r as f32 * 1e-6).collect();
    let sum: Vec<f32> = a.iter().map(|a| a + a).collect();
    let (a, mut c) = (bytes(&a), vec![0; 4 * n]);
    let b = a.clone();
    let mut arguments = [ReadOnly(&a), ReadOnly(&b), Buffer(&mut c)];
    let outcome = program().run("add", [n as u64, 1, 1], [1; 3], &mut arguments);
    done("add", n as u64, &outcome);
    assert_eq!(c, bytes(&sum));
    // 12 bytes at 90 % of a port of 8 bytes per cycle.
    assert!(outcome.cycles as f64 <= 1.67 * n as f64);
    let (width, height) = (1920, 1080);
    let input: Vec<u8> = random(width * height).iter().map(|r| *r as u8).collect();
    let mut out = vec![0; input.len()];
    let size = [width as u64, height as u64, 1];
    let mut arguments = [
        ReadOnly(&input),
        Buffer(&mut out),
        Word(size[0]),
        Word(size[1]),
    ];
    let outcome = program().run("grey", size, [1; 3], &mut arguments);
    done("grey", size[0] * size[1], &outcome);
    assert_eq!(out, grey(&input, width, height));
    assert!(outcome.cycles as f64 <= 1.1 * input.len() as f64);
}
