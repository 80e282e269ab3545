//! A convolution as kernels that channels connect, with cycles per element.

use super::kernels::random;
use super::launch::{Argument, End, Launch, Program};
use std::sync::OnceLock;
use Argument::{Buffer, ReadOnly, Word};

const VECTOR: usize = 4;
const LANES: usize = 4;
const WINDOW: usize = 3;
/// Vectors of a pixel, groups of lanes, width and height.
const VECTORS: usize = 2;
const GROUPS: usize = 2;
const SIZE: usize = 12;
const TAPS: usize = WINDOW * WINDOW * VECTORS;
const CYCLES_MAX: u64 = 2_000_000;

fn program() -> &'static Program {
    static PROGRAM: OnceLock<Program> = OnceLock::new();
    PROGRAM.get_or_init(|| Program::new(include_str!("layer.cl"), &[]))
}

/// Bytes from -40 to 40.
fn small(count: usize) -> Vec<u8> {
    let numbers = random(count).into_iter();
    numbers
        .map(|n| ((n >> 8) % 81) as u8)
        .map(|n| n.wrapping_sub(40))
        .collect()
}

/// [group][y][x][lane], without maxima of neighbors.
fn convolution(image: &[u8], weights: &[u8], biases: &[u8]) -> Vec<i8> {
    let number = |bytes: &[u8], at: usize| i32::from(bytes[at] as i8);
    let mut out = Vec::new();
    for group in 0..GROUPS {
        for place in 0..SIZE * SIZE {
            let (y, x) = (place / SIZE, place % SIZE);
            for lane in 0..LANES {
                let mut sum = number(biases, group * LANES + lane);
                for tap in 0..WINDOW * WINDOW {
                    let (row, column) = (y + tap / WINDOW, x + tap % WINDOW);
                    let inside = (1..=SIZE).contains(&row) && (1..=SIZE).contains(&column);
                    for k in (0..VECTORS * VECTOR).filter(|_| inside) {
                        let pixel = ((row - 1) * SIZE + column - 1) * VECTORS * VECTOR + k;
                        let tap = (group * TAPS) + tap * VECTORS + k / VECTOR;
                        let weight = (tap * LANES + lane) * VECTOR + k % VECTOR;
                        sum += number(image, pixel) * number(weights, weight);
                    }
                }
                out.push((sum >> 4).clamp(0, 127) as i8);
            }
        }
    }
    out
}

#[test]
fn kernels_of_a_convolution_are_pipelines() {
    const NEIGHBORS: usize = 2;
    let image = small(SIZE * SIZE * VECTORS * VECTOR);
    let weights = small(GROUPS * TAPS * LANES * VECTOR);
    let biases = small(GROUPS * LANES);
    let outputs = GROUPS * SIZE * SIZE;
    let mut out = vec![0; outputs / NEIGHBORS * LANES];
    let launch = |name, arguments| Launch {
        name,
        after: 0,
        sizes: [[1; 3], [0; 3], [1; 3]],
        arguments,
    };
    let word = |n: usize| Word(n as u64);
    let outcomes = program().run_together(
        CYCLES_MAX,
        vec![
            launch(
                "load_windows",
                &mut [
                    ReadOnly(&image),
                    ReadOnly(&weights),
                    ReadOnly(&biases),
                    word(SIZE),
                    word(SIZE),
                    word(VECTORS),
                    word(GROUPS),
                ],
            ),
            launch("multiply", &mut [word(outputs), word(TAPS)]),
            launch("reduce", &mut [word(outputs), word(NEIGHBORS)]),
            launch(
                "store_lanes",
                &mut [Buffer(&mut out), word(outputs / NEIGHBORS)],
            ),
        ],
    );
    assert!(outcomes.iter().all(|o| o.end == End::Done));
    let sums = convolution(&image, &weights, &biases);
    for (at, found) in out.into_iter().enumerate() {
        let (place, lane) = (at / LANES * NEIGHBORS, at % LANES);
        let neighbors = (place..place + NEIGHBORS).map(|p| sums[p * LANES + lane]);
        assert_eq!(Some(found as i8), neighbors.max(), "{at}");
    }
    let (cycles, vectors) = (outcomes[1].cycles, outputs * TAPS);
    let per_vector = cycles as f64 / vectors as f64;
    println!("{cycles} cycles for {vectors} vectors, {per_vector:.2} for each");
    assert!(per_vector < 2.5, "{per_vector}");
    let mut kernels = program().accelerator.manifest.kernels.iter();
    let multiply = kernels.find(|k| k.name == "multiply");
    let loops = multiply.map(|k| k.report.loops.iter().map(|l| l.interval).collect());
    assert_eq!(loops, Some(vec![1]));
}

#[test]
fn a_pipeline_reports_in_each_cycle_that_it_waits() {
    let kernels = &program().accelerator.manifest.kernels;
    let reduce = kernels.iter().find(|k| k.name == "reduce").unwrap();
    // An iteration begins again in every second cycle.
    assert_eq!(reduce.report.loops[0].interval, 2);
    let mut names: Vec<&str> = Vec::new();
    for channel in kernels.iter().flat_map(|k| &k.channels) {
        if !names.contains(&channel.name.as_str()) {
            names.push(&channel.name);
        }
    }
    for cycles in 2_000..2_004 {
        let alone = Launch {
            name: "reduce",
            after: 0,
            sizes: [[1; 3], [0; 3], [1; 3]],
            arguments: &mut [Word(5), Word(2)],
        };
        // A second kernel, so that a run has exactly that many cycles.
        let none = Launch {
            name: "store_lanes",
            after: 2,
            sizes: [[1; 3], [0; 3], [1; 3]],
            arguments: &mut [Buffer(&mut vec![0; 4]), Word(1)],
        };
        let outcomes = program().run_together(cycles, vec![alone, none]);
        assert_eq!(outcomes[0].end, End::Running);
        let (channel, writes) = outcomes[0].waits;
        assert_eq!((channel > 0, writes), (true, false), "{cycles}");
        assert_eq!(names[channel as usize - 1], "sums");
    }
}
