//! Kernels of one loop each, whose counters stand for several loops, connected by channels.

use super::kernels::{random, Bytes};
use super::launch::{Argument, End, Launch, Program};
use Argument::{Buffer, ReadOnly, Word};

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
    vector: usize,
    lanes: usize,
    rows: usize,
    depth: usize,
    groups: usize,
}

impl Case {
    fn image(&self) -> Vec<u8> {
        small(self.rows * self.depth * self.vector, 0)
    }

    fn weight(&self) -> Vec<u8> {
        small(self.groups * self.depth * self.lanes * self.vector, 7)
    }

    fn bias(&self) -> Vec<u8> {
        small(self.groups * self.lanes, 19)
    }

    /// [group][row][lane]
    fn product(&self) -> Vec<i8> {
        let (image, weight, bias) = (self.image(), self.weight(), self.bias());
        let number = |bytes: &[u8], at: usize| i32::from(bytes[at] as i8);
        let mut out = Vec::new();
        for group in 0..self.groups {
            for row in 0..self.rows {
                for lane in 0..self.lanes {
                    let mut sum = number(&bias, group * self.lanes + lane);
                    for k in 0..self.depth * self.vector {
                        let of_group = group * self.depth + k / self.vector;
                        let at = (of_group * self.lanes + lane) * self.vector + k % self.vector;
                        let pixel = number(&image, row * self.depth * self.vector + k);
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
        let mut out = vec![0; groups * rows * self.lanes];
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

/// The kernel's interval of its last loop.
fn interval(program: &Program, name: &str) -> Option<u64> {
    let mut kernels = program.accelerator.manifest.kernels.iter();
    let loops = &kernels.find(|k| k.name == name)?.report.loops;
    loops.last().map(|l| u64::from(l.interval))
}

#[test]
fn loops_whose_counters_depend_on_each_other_are_pipelines() {
    let program = Program::new(include_str!("counters.cl"), &[]);
    let intervals = ["feed", "multiply", "collect"].map(|name| interval(&program, name));
    assert_eq!(intervals, [Some(1), Some(1), Some(5)]);
    let case = |rows, depth, groups| Case {
        vector: 4,
        lanes: 4,
        rows,
        depth,
        groups,
    };
    let cycles = case(96, 30, 4).run(&program);
    println!("{cycles:.2} cycles for each vector");
    assert!(cycles < 1.35, "{cycles}");
    for (rows, depth, groups) in [(1, 1, 2), (6, 1, 3), (13, 3, 4), (12, 5, 1), (8, 2, 2)] {
        case(rows, depth, groups).run(&program);
    }
}

#[test]
fn conditional_loads_of_many_words_do_not_limit_a_pipeline() {
    let options = ["-DVECTOR=8", "-DLANES=8"];
    let program = Program::new(include_str!("counters.cl"), &options);
    let intervals = ["feed", "multiply"].map(|name| interval(&program, name));
    assert_eq!(intervals, [Some(1), Some(1)]);
    for (rows, depth, groups) in [(96, 30, 2), (7, 3, 5), (2, 1, 3)] {
        let case = Case {
            vector: 8,
            lanes: 8,
            rows,
            depth,
            groups,
        };
        let cycles = case.run(&program);
        println!("{rows} rows of {depth}: {cycles:.2} cycles for each vector");
    }
}
