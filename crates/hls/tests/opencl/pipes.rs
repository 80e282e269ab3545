//! Pipes between kernels, which run one after the other or at the same time.

use crate::kernels::{bytes, Bytes};
use crate::launch::{Argument, End, Launch, Outcome, Program};
use std::sync::OnceLock;

/// Cycles after which launches that wait are given up.
const CYCLES: u64 = 2_000_000;
/// Bytes of a pipe's header.
const HEADER: usize = 384;

fn program() -> &'static Program {
    static PROGRAM: OnceLock<Program> = OnceLock::new();
    PROGRAM.get_or_init(|| Program::new(include_str!("pipes.cl"), &["-cl-std=CL2.0"]))
}

/// A pipe's memory object, as the executor creates it.
fn pipe(packets: u32, bytes: u32) -> Vec<u8> {
    let mut memory = vec![0; HEADER + (packets * bytes) as usize];
    memory[..4].copy_from_slice(&packets.to_le_bytes());
    memory[4..8].copy_from_slice(&bytes.to_le_bytes());
    memory
}

/// Launches of `items` work-items in groups of `group`, one after the other or at the same time.
fn run<'b>(
    one_by_one: bool,
    items: u64,
    group: u64,
    launches: &mut [(&'static str, Vec<Argument<'b>>)],
) -> Vec<Outcome> {
    let launches = launches.iter_mut().enumerate();
    let launches = launches.map(|(at, (name, arguments))| Launch {
        name,
        after: if one_by_one { at as u32 } else { 0 },
        sizes: [[items, 1, 1], [0; 3], [group, 1, 1]],
        arguments,
    });
    let outcomes = program().run_together(CYCLES, launches.collect());
    let ends: Vec<&End> = outcomes.iter().map(|outcome| &outcome.end).collect();
    assert!(ends.iter().all(|end| **end == End::Done), "{ends:?}");
    outcomes
}

#[test]
fn packets_stay_until_a_later_launch_reads_them() {
    const COUNT: usize = 100;
    let input: Vec<i32> = (0..COUNT as i32).map(|i| i * 7919 % 10_007).collect();
    for (packets, fits) in [(128, 100), (100, 100), (37, 37), (1, 1)] {
        let (sent, mut memory) = (bytes(&input), pipe(packets, 4));
        let (same, mut refused) = (memory.clone(), vec![0; 4]);
        let mut out = vec![0; 4 * COUNT];
        let outcomes = run(
            true,
            COUNT as u64,
            1,
            &mut [
                (
                    "produce",
                    vec![
                        Argument::ReadOnly(&sent),
                        Argument::Buffer(&mut memory),
                        Argument::Buffer(&mut refused),
                    ],
                ),
                (
                    "consume",
                    vec![Argument::OfFirst(1, &same), Argument::Buffer(&mut out)],
                ),
            ],
        );
        let mut expected = input[..fits].to_vec();
        expected.resize(COUNT, -1);
        assert_eq!(i32::read(&out), expected, "{packets}");
        assert_eq!(i32::read(&refused), [(COUNT - fits) as i32]);
        if fits == COUNT {
            for outcome in &outcomes {
                println!("{} cycles for {COUNT} packets", outcome.cycles);
                assert!(outcome.cycles < 40 * COUNT as u64, "{}", outcome.cycles);
            }
        }
    }
}

#[test]
fn kernels_that_run_at_the_same_time_wait_for_each_other() {
    const COUNT: usize = 500;
    let input: Vec<i32> = (0..COUNT as i32).map(|i| i * 7919 % 10_007).collect();
    for packets in [1, 2, 7, 64, 600] {
        let (sent, mut memory) = (bytes(&input), pipe(packets, 4));
        let (same, mut out) = (memory.clone(), vec![0; 4 * COUNT]);
        let count = || Argument::Word(COUNT as u64);
        let outcomes = run(
            false,
            1,
            1,
            &mut [
                (
                    "send",
                    vec![
                        Argument::ReadOnly(&sent),
                        Argument::Buffer(&mut memory),
                        count(),
                    ],
                ),
                (
                    "receive",
                    vec![
                        Argument::OfFirst(1, &same),
                        Argument::Buffer(&mut out),
                        count(),
                    ],
                ),
            ],
        );
        println!("{packets}: {} cycles", outcomes[1].cycles);
        assert_eq!(i32::read(&out), input, "{packets}");
    }
}

#[test]
fn a_kernel_publishes_its_packets_before_it_waits_for_another_pipe() {
    const COUNT: usize = 40;
    let (mut questions, mut answers) = (pipe(4, 1), pipe(3, 32));
    let (same_questions, same_answers) = (questions.clone(), answers.clone());
    let mut out = vec![0; 8 * COUNT];
    let count = || Argument::Word(COUNT as u64);
    run(
        false,
        1,
        1,
        &mut [
            (
                "ask",
                vec![
                    Argument::Buffer(&mut questions),
                    Argument::Buffer(&mut answers),
                    Argument::Buffer(&mut out),
                    count(),
                ],
            ),
            (
                "answer",
                vec![
                    Argument::OfFirst(0, &same_questions),
                    Argument::OfFirst(1, &same_answers),
                    count(),
                ],
            ),
        ],
    );
    let mut x = 1_u8;
    for (i, found) in out.chunks(8).enumerate() {
        let sum = 3 * i64::from(x) + 1;
        let found = i64::from_le_bytes(found.try_into().unwrap());
        assert_eq!(found, sum + 4 * i as i64 - 3, "{i}");
        x = sum as u8;
    }
}

#[test]
fn large_packets_arrive_byte_by_byte() {
    const COUNT: usize = 5;
    let sent: Vec<u8> = (0..300 * COUNT).map(|i| (i * 31 % 251) as u8).collect();
    let mut memory = pipe(COUNT as u32, 300);
    let (same, mut out) = (memory.clone(), vec![0; 300 * COUNT]);
    run(
        true,
        COUNT as u64,
        1,
        &mut [
            (
                "send_blocks",
                vec![Argument::ReadOnly(&sent), Argument::Buffer(&mut memory)],
            ),
            (
                "receive_blocks",
                vec![Argument::OfFirst(1, &same), Argument::Buffer(&mut out)],
            ),
        ],
    );
    assert_eq!(out, sent);
}

#[test]
fn reservations_become_visible_in_their_order_when_all_are_committed() {
    let mut memory = pipe(8, 4);
    let same = memory.clone();
    let (mut out, mut taken) = (vec![0; 4 * 6], vec![0; 4 * 8]);
    run(
        true,
        1,
        1,
        &mut [
            (
                "reserve",
                vec![Argument::Buffer(&mut memory), Argument::Buffer(&mut out)],
            ),
            (
                "take",
                vec![Argument::OfFirst(0, &same), Argument::Buffer(&mut taken)],
            ),
        ],
    );
    assert_eq!(i32::read(&out), [3, 2, 0, 0, 5, 8]);
    assert_eq!(i32::read(&taken), [5, 2, 12, 11, 10, 1, 2, 8]);
}

#[test]
fn a_work_group_shares_a_reservation() {
    const COUNT: usize = 24;
    let input: Vec<i32> = (0..COUNT as i32).map(|i| i * i).collect();
    let (sent, mut memory) = (bytes(&input), pipe(20, 4));
    let (same, mut out) = (memory.clone(), vec![0; 4 * COUNT]);
    run(
        true,
        COUNT as u64,
        8,
        &mut [
            (
                "send_groups",
                vec![Argument::ReadOnly(&sent), Argument::Buffer(&mut memory)],
            ),
            (
                "receive_groups",
                vec![Argument::OfFirst(1, &same), Argument::Buffer(&mut out)],
            ),
        ],
    );
    // The third group's packets do not fit.
    let mut expected: Vec<i32> = input[..8].iter().rev().copied().collect();
    expected.extend(input[8..16].iter().rev());
    expected.resize(COUNT, -1);
    assert_eq!(i32::read(&out), expected);
}

#[test]
fn the_manifest_has_the_packets_sizes() {
    let kernels = &program().accelerator.manifest.kernels;
    let ask = kernels.iter().find(|k| k.name == "ask").unwrap();
    let sizes = ask.arguments.iter().map(|a| (a.is_pipe(), a.packet_bytes));
    let expected = [(true, 1), (true, 32), (false, 0), (false, 0)];
    assert_eq!(sizes.collect::<Vec<_>>(), expected);
    assert_eq!(ask.arguments[1].access, "read_only");
}
