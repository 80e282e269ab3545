//! Kernels of one loop each, whose counters stand for several loops, connected by channels.

use super::kernels::{random, Bytes};
use super::launch::{Argument, End, Launch, Program};
use Argument::{Buffer, ReadOnly, Word};

const VECTOR: usize = 4;
const LANES: usize = 4;
const CYCLES_MAX: u64 = 2_000_000;

/// Signed bytes from -60 to 60.
fn small(count: usize, salt: usize) -> Vec<u8> {
    let numbers = random(count + salt).into_iter().skip(salt);
    numbers
        .map(|n| ((n >> 8) % 121) as u8)
        .map(|n| n.wrapping_sub(60))
        .collect()
}

struct Case {
    rows: usize,
    depth: usize,
    groups: usize,
}

impl Case {
    fn image(&self) -> Vec<u8> {
        small(self.rows * self.depth * VECTOR, 0)
    }

    fn weight(&self) -> Vec<u8> {
        small(self.groups * self.depth * LANES * VECTOR, 7)
    }

    fn bias(&self) -> Vec<u8> {
        small(self.groups * LANES, 19)
    }

    /// [group][row][lane]
    fn product(&self) -> Vec<i8> {
        let (image, weight, bias) = (self.image(), self.weight(), self.bias());
        let number = |bytes: &[u8], at: usize| i32::from(bytes[at] as i8);
        let mut out = Vec::new();
        for group in 0..self.groups {
            for row in 0..self.rows {
                for lane in 0..LANES {
                    let mut sum = number(&bias, group * LANES + lane);
                    for k in 0..self.depth * VECTOR {
                        let of_group = group * self.depth + k / VECTOR;
                        let at = (of_group * LANES + lane) * VECTOR + k % VECTOR;
                        let pixel = number(&image, row * self.depth * VECTOR + k);
                        sum += pixel * number(&weight, at);
                    }
                    out.push((sum >> 6).clamp(-128, 127) as i8);
                }
            }
        }
        out
    }

    /// Runs the kernels; returns the cycles of a vector of the image in `multiply`.
    fn run(&self, program: &Program) -> f64 {
        let (rows, depth, groups) = (self.rows, self.depth, self.groups);
        let all = rows * depth * groups;
        let (image, weight, bias) = (self.image(), self.weight(), self.bias());
        let mut out = vec![0; groups * rows * LANES];
        let checks = rows / 8 * groups;
        let mut seen = vec![3; checks.max(1)];
        let mut total = vec![0; 4 * checks.max(1)];
        let word = |n: usize| Word(n as u64);
        let launch = |name, arguments| Launch {
            name,
            after: 0,
            sizes: [[1; 3], [0; 3], [1; 3]],
            arguments,
        };
        let outcomes = program.run_together(
            CYCLES_MAX,
            vec![
                launch(
                    "feed",
                    &mut [
                        word(rows),
                        word(depth),
                        word(groups),
                        ReadOnly(&image),
                        ReadOnly(&weight),
                        ReadOnly(&bias),
                    ],
                ),
                launch("multiply", &mut [word(all), word(depth)]),
                launch("collect", &mut [word(rows), word(groups), Buffer(&mut out)]),
                launch(
                    "check",
                    &mut [word(checks), Buffer(&mut seen), Buffer(&mut total)],
                ),
            ],
        );
        assert!(outcomes.iter().all(|o| o.end == End::Done));
        let out: Vec<i8> = out.into_iter().map(|byte| byte as i8).collect();
        assert_eq!(out, self.product());
        let total: Vec<i32> = i32::read(&total[..4 * checks]);
        assert!(total.into_iter().eq((0..checks as i32).map(|n| n + 3)));
        outcomes[1].cycles as f64 / all as f64
    }
}

#[test]
fn test_loops_whose_counters_depend_on_each_other_are_pipelines() {
    let program = Program::new(include_str!("counters.cl"), &[]);
    let intervals = |name: &str| -> Vec<u64> {
        let mut kernels = program.accelerator.manifest.kernels.iter();
        let kernel = kernels.find(|k| k.name == name).unwrap();
        let loops = kernel.report.loops.iter();
        loops.map(|l| u64::from(l.interval)).collect()
    };
    assert_eq!(intervals("feed").last(), Some(&1));
    assert_eq!(intervals("multiply"), [1]);
    let collect = intervals("collect");
    assert!(collect.len() == 1 && collect[0] <= 6, "{collect:?}");
    let large = Case {
        rows: 96,
        depth: 30,
        groups: 4,
    };
    let cycles = large.run(&program);
    println!("{cycles:.2} cycles for each vector");
    assert!(cycles < 1.35, "{cycles}");
    for (rows, depth, groups) in [(1, 1, 2), (6, 1, 3), (13, 3, 4), (12, 5, 1), (8, 2, 2)] {
        Case {
            rows,
            depth,
            groups,
        }
        .run(&program);
    }
}
