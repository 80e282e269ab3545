//! Channels between kernels of a program, which run at the same time.

use crate::kernels::{bytes, Bytes};
use crate::launch::{Argument, End, Launch, Outcome, Program};
use std::sync::OnceLock;

/// Cycles after which a launch that waits is given up.
const CYCLES: u64 = 200_000;

fn program() -> &'static Program {
    static PROGRAM: OnceLock<Program> = OnceLock::new();
    PROGRAM.get_or_init(|| Program::new(include_str!("channels.cl"), &[]))
}

fn launch<'a, 'b>(name: &'a str, arguments: &'a mut [Argument<'b>]) -> Launch<'a, 'b> {
    Launch {
        name,
        after: 0,
        sizes: [[1; 3], [0; 3], [1; 3]],
        arguments,
    }
}

/// Prints the cycles of the slowest kernel per element.
fn print_cycles(name: &str, elements: usize, outcomes: &[Outcome]) {
    let cycles = outcomes.iter().map(|o| o.cycles).max().unwrap_or(0);
    let per_element = cycles as f64 / elements as f64;
    println!("{name}: {cycles} cycles, {per_element:.1} per element");
}

#[test]
fn elements_of_all_types_arrive_in_order() {
    const COUNT: usize = 500;
    let input: Vec<i32> = (0..COUNT as i32).map(|i| i * 7919 % 10_007).collect();
    let (sent, count) = (bytes(&input), Argument::Word(COUNT as u64));
    let (mut out, mut odd) = (vec![0; 16 * COUNT], vec![0; 16 * COUNT]);
    let outcomes = program().run_together(
        CYCLES,
        vec![
            launch("transform", &mut [Argument::Word(COUNT as u64)]),
            launch(
                "consume",
                &mut [
                    Argument::Buffer(&mut out),
                    Argument::Buffer(&mut odd),
                    Argument::Word(COUNT as u64),
                ],
            ),
            launch("produce", &mut [Argument::ReadOnly(&sent), count]),
        ],
    );
    for outcome in &outcomes {
        assert_eq!(outcome.end, End::Done);
    }
    print_cycles("produce, transform, consume", COUNT, &outcomes);
    let odd_numbers = input.iter().filter(|x| **x & 1 == 1).count() as u64;
    let transfers = outcomes.iter().map(|o| o.transfers);
    let own = COUNT as u64;
    // The last element's vector is a zero if its number is even.
    let read = odd_numbers + u64::from(input[COUNT - 1] & 1 == 0);
    let expected = [2 * own + odd_numbers + 1, own + read, own];
    assert_eq!(transfers.collect::<Vec<_>>(), expected);
    let mut sum = 0;
    for (i, x) in input.iter().enumerate() {
        sum += x;
        let found = &i32::read(&out)[4 * i..4 * i + 3];
        assert_eq!(
            found,
            [*x, sum, i32::from(*x as i16) + i32::from((4 * x) as i16)],
            "{i}"
        );
        let vector = i32::read(&odd)[4 * i..4 * i + 4].to_vec();
        let vector: Vec<f32> = vector.iter().map(|n| f32::from_bits(*n as u32)).collect();
        let expected = match x & 1 {
            1 => [*x as f32, sum as f32, i as f32, -1.0],
            _ => [0.0; 4],
        };
        assert_eq!(vector, expected, "{i}");
    }
}

#[test]
fn kernels_that_depend_on_each_others_elements_make_progress() {
    const COUNT: usize = 40;
    let mut out = vec![0; 4 * COUNT];
    let count = || Argument::Word(COUNT as u64);
    let outcomes = program().run_together(
        CYCLES,
        vec![
            launch("ask", &mut [Argument::Buffer(&mut out), count()]),
            launch("answer", &mut [count()]),
        ],
    );
    assert!(outcomes.iter().all(|o| o.end == End::Done));
    print_cycles("ask, answer", COUNT, &outcomes);
    let mut x = 1_u8;
    for (i, found) in i32::read(&out).into_iter().enumerate() {
        let answer = i32::from(x) * 3 + 1;
        assert_eq!(found, answer, "{i}");
        x = answer as u8;
    }
}

#[test]
fn elements_stay_until_they_are_read_by_a_later_launch() {
    let (mut accepted, mut out) = (vec![0; 4], vec![0; 4 * 9]);
    let mut offer = [Argument::Buffer(&mut accepted), Argument::Word(30)];
    let mut poll = [Argument::Buffer(&mut out), Argument::Word(8)];
    let later = Launch {
        after: 1,
        ..launch("poll", &mut poll)
    };
    let outcomes = program().run_together(CYCLES, vec![launch("offer", &mut offer), later]);
    assert!(outcomes.iter().all(|o| o.end == End::Done));
    // A channel of depth 8 holds at least 8.
    let accepted = i32::read(&accepted)[0];
    assert!((8..30).contains(&accepted), "{accepted}");
    assert_eq!(i32::read(&out), [100, 101, 102, 103, 104, 105, 106, 107, 0]);
}

#[test]
fn attempts_fail_while_a_channel_is_empty() {
    let (mut accepted, mut out) = (vec![0; 4], vec![0; 4 * 6]);
    let mut poll = [Argument::Buffer(&mut out), Argument::Word(5)];
    let mut offer = [Argument::Buffer(&mut accepted), Argument::Word(5)];
    let launches = vec![launch("offer", &mut offer), launch("poll", &mut poll)];
    let outcomes = program().run_together(CYCLES, launches);
    assert!(outcomes.iter().all(|o| o.end == End::Done));
    assert_eq!(i32::read(&accepted), [5]);
    assert_eq!(i32::read(&out)[..5], [100, 101, 102, 103, 104]);
}

#[test]
fn a_kernel_without_its_peer_waits_and_names_the_channel() {
    let mut arguments = [Argument::Word(5)];
    let outcomes = program().run_together(2_000, vec![launch("answer", &mut arguments)]);
    assert_eq!(outcomes[0].end, End::Running);
    let (channel, writes) = outcomes[0].waits;
    let kernels = &program().accelerator.manifest.kernels;
    let mut names: Vec<&str> = Vec::new();
    for channel in kernels.iter().flat_map(|k| &k.channels) {
        if !names.contains(&channel.name.as_str()) {
            names.push(&channel.name);
        }
    }
    assert_eq!((names[channel as usize - 1], writes), ("bytes", false));
}

#[test]
fn a_fence_shows_what_was_written_before_an_element() {
    const COUNT: usize = 200;
    let (mut data, mut out) = (vec![0; 4 * COUNT], vec![0; 4 * COUNT / 10]);
    let same = data.clone();
    let count = || Argument::Word(COUNT as u64);
    let mut fill = [Argument::Buffer(&mut data), count()];
    let mut sum = [
        Argument::OfFirst(0, &same),
        Argument::Buffer(&mut out),
        count(),
    ];
    let launches = vec![launch("fill", &mut fill), launch("sum", &mut sum)];
    let outcomes = program().run_together(CYCLES, launches);
    assert!(outcomes.iter().all(|o| o.end == End::Done));
    print_cycles("fill, sum", COUNT, &outcomes);
    let mut total = 0;
    for (part, found) in i32::read(&out).into_iter().enumerate() {
        total += (10 * part..10 * part + 10)
            .map(|i| 3 * i as i32 + 1)
            .sum::<i32>();
        assert_eq!(found, total, "{part}");
    }
}

#[test]
fn a_filter_between_channels_needs_about_a_cycle_per_element() {
    const COUNT: usize = 1000;
    let mut out = vec![0; 4];
    let count = |n: usize| Argument::Word(n as u64);
    let outcomes = program().run_together(
        CYCLES,
        vec![
            launch("source", &mut [count(COUNT)]),
            launch("filter", &mut [count(COUNT)]),
            launch(
                "add_up",
                &mut [Argument::Buffer(&mut out), count(COUNT / 2)],
            ),
        ],
    );
    assert!(outcomes.iter().all(|o| o.end == End::Done));
    print_cycles("source, filter, add_up", COUNT, &outcomes);
    let elements = (0..COUNT as i32).map(|i| i * 11 + 4);
    let total = elements
        .filter(|x| x & 1 == 1)
        .map(|x| x * x)
        .fold(0, i32::wrapping_add);
    assert_eq!(i32::read(&out), [total]);
    let kernels = program().accelerator.manifest.kernels.iter();
    let loops = kernels.flat_map(|k| k.report.loops.iter().map(|l| (k.name.as_str(), l.interval)));
    let intervals: Vec<_> = loops.collect();
    for name in ["transform", "answer", "filter"] {
        assert!(intervals.contains(&(name, 1)), "{intervals:?}");
    }
    assert!(
        outcomes[1].cycles < 2 * COUNT as u64,
        "{}",
        outcomes[1].cycles
    );
}

#[test]
fn work_items_with_channels_are_pipelines() {
    const COUNT: usize = 2000;
    let input: Vec<i32> = (0..COUNT as i32).map(|i| (i * 31) ^ 77).collect();
    let (sent, mut out) = (bytes(&input), vec![0; 4 * COUNT]);
    let mut arguments = [
        [Argument::ReadOnly(&sent)],
        [Argument::Word(COUNT as u64)],
        [Argument::Buffer(&mut out)],
    ];
    let names = ["send", "combine", "receive"];
    let launches = names.iter().zip(&mut arguments).map(|(name, own)| Launch {
        sizes: [[COUNT as u64, 1, 1], [0; 3], [1; 3]],
        ..launch(name, own)
    });
    let outcomes = program().run_together(CYCLES, launches.collect());
    assert!(outcomes.iter().all(|o| o.end == End::Done));
    print_cycles("send, combine, receive", COUNT, &outcomes);
    let own = |i: usize| i as i32 * 5 + if i & 1 == 1 { input[i] } else { 0 };
    let expected: Vec<i32> = (0..COUNT).map(own).collect();
    assert_eq!(i32::read(&out), expected);
    let kernels = program().accelerator.manifest.kernels.iter();
    let own = kernels.filter(|k| names.contains(&k.name.as_str()));
    let intervals: Vec<_> = own.map(|k| k.report.loops[0].interval).collect();
    // The condition of the read is a step late.
    assert_eq!(intervals, [1, 2, 1]);
    let cycles = outcomes.iter().map(|o| o.cycles).max();
    assert!(
        cycles.is_some_and(|c| 2 * c < 5 * COUNT as u64),
        "{cycles:?}"
    );
}

#[test]
fn two_elements_of_a_channel_in_an_iteration_limit_a_pipeline() {
    const COUNT: usize = 1000;
    let mut out = vec![0; 4 * COUNT];
    let count = || Argument::Word(COUNT as u64);
    let outcomes = program().run_together(
        CYCLES,
        vec![
            launch("pair_up", &mut [count()]),
            launch("product", &mut [count()]),
            launch("store_products", &mut [Argument::Buffer(&mut out), count()]),
        ],
    );
    assert!(outcomes.iter().all(|o| o.end == End::Done));
    print_cycles("pair_up, product, store_products", COUNT, &outcomes);
    let own = |i: i32| match (i & 1, i + 2, i ^ 3) {
        (1, a, b) => a * b,
        (_, a, b) => a - b,
    };
    let expected: Vec<i32> = (0..COUNT as i32).map(own).collect();
    assert_eq!(i32::read(&out), expected);
    let mut kernels = program().accelerator.manifest.kernels.iter();
    let product = kernels.find(|k| k.name == "product").unwrap();
    let report = &product.report.loops[0];
    // The second read is a step after the first one, and less than an interval before the write.
    let expected = (4, "operations on channels");
    assert_eq!((report.interval, report.limit.as_str()), expected);
    let most = 5 * COUNT as u64;
    assert!(outcomes[1].cycles < most, "{}", outcomes[1].cycles);
}
