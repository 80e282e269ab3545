//! Faults between processes and kernels on boards: circular waits, full queues, processes that die.
//! `scripts/setup.sh fabric` installs the tools for the boards' model.

mod common;

use baltra_cluster::Options;
use common::Bench;

const MAP: &str = "node: [{type: sw, comm: eth, mac: '02:00:00:00:00:01', kernel: 0}, {type: hw, comm: eth, mac: '02:00:00:00:00:02', kernel: 1-2}]";

/// Runs rank 0 as a process, 1 and 2 as kernels on a board. The run must fail; returns its output.
fn run_lines(process: &str, one: &str, two: &str) -> Vec<String> {
    let text = |body: &str| {
        format!("#include <mpi.h>\n#include <signal.h>\nstatic int x, y;\nint main(int argc, char **argv) {{ MPI_Init(&argc, &argv); {body} MPI_Finalize(); return 0; }}\n")
    };
    let (process, one, two) = (
        text(process),
        text(one).replace("#include <signal.h>", ""),
        text(two).replace("#include <signal.h>", ""),
    );
    let files = [
        ("logical.yaml", "kernel: [{name: p, num: 0}, {name: one, num: 1, type: core}, {name: two, num: 2, type: core}]"),
        ("p.c", process.as_str()),
        ("one.c", one.as_str()),
        ("two.c", two.as_str()),
    ];
    let (outcome, lines) = Bench::new(&files).run(MAP, &Options::default()).unwrap();
    assert_ne!(outcome.code, 0, "{lines:?}");
    lines
}

#[test]
fn a_process_and_a_kernel_that_send_to_each_other_are_a_deadlock() {
    let send = |to: u8, tag: u8| format!("MPI_Send(&x, 1, MPI_INT, {to}, {tag}, MPI_COMM_WORLD);");
    let receive = |from: u8, tag: u8| {
        format!("MPI_Recv(&y, 1, MPI_INT, {from}, {tag}, MPI_COMM_WORLD, MPI_STATUS_IGNORE);")
    };
    let lines = run_lines(
        &(send(1, 7) + &receive(1, 8)),
        &(send(0, 8) + &receive(0, 7)),
        "",
    );
    let expected = "deadlock: rank 0 is in HUM_Send and waits for rank 1, tag 7; rank 1 is in HUM_Send and waits for rank 0, tag 8";
    assert!(lines.iter().any(|l| l.contains(expected)), "{lines:?}");
}

/// Runs two kernels, each on its own board, with a fault on the frames to the second. The run must
/// fail; returns its output.
fn alone(forms: [&str; 2], one: &str, two: &str, fault: &str) -> Vec<String> {
    let text = |body: &str| {
        format!("#include <mpi.h>\nstatic int x, y;\nint main(int argc, char **argv) {{ MPI_Init(&argc, &argv); {body} MPI_Finalize(); return 0; }}\n")
    };
    let (one, two) = (text(one), text(two));
    let logical = format!(
        "kernel: [{{name: one, num: 0, type: {}}}, {{name: two, num: 1, type: {}}}]",
        forms[0], forms[1]
    );
    let node = |n: u8, more: &str| {
        format!("{{type: hw, comm: eth, mac: '02:00:00:00:00:0{n}', kernel: {n}{more}}}")
    };
    let map = format!("node: [{}, {}]", node(0, ""), node(1, fault));
    let bench = Bench::new(&[("logical.yaml", &logical), ("one.c", &one), ("two.c", &two)]);
    let (outcome, lines) = bench.run(&map, &Options::default()).unwrap();
    assert_ne!(outcome.code, 0, "{lines:?}");
    lines
}

#[test]
fn kernels_that_wait_for_one_another_alone_are_a_deadlock() {
    let expected = "deadlock: rank 0 is in HUM_Send and waits for rank 1, tag 7; rank 1 is in HUM_Send and waits for rank 0, tag 8";
    let lines = alone(
        ["core", "hls"],
        "MPI_Send(&x, 1, MPI_INT, 1, 7, MPI_COMM_WORLD);",
        "MPI_Send(&x, 1, MPI_INT, 0, 8, MPI_COMM_WORLD);",
        "",
    );
    assert!(lines.iter().any(|l| l.contains(expected)), "{lines:?}");
}

#[test]
fn kernels_that_wait_for_one_another_while_a_process_waits_for_them_are_a_deadlock() {
    let receive = |from: u8| {
        format!("MPI_Recv(&x, 1, MPI_INT, {from}, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);")
    };
    let lines = run_lines(&receive(1), &receive(2), &receive(1));
    let expected = "deadlock: rank 0 waits for rank 1, tag 5; rank 1 is in HUM_Recv and waits for rank 2, tag 5; rank 2 is in HUM_Recv and waits for rank 1, tag 5";
    assert!(lines.iter().any(|l| l.contains(expected)), "{lines:?}");
}

#[test]
fn a_last_packet_that_is_lost_between_boards_ends_the_run() {
    // The second board receives an envelope, data and done; its second frame is the data.
    let lines = alone(
        ["core", "core"],
        "MPI_Send(&x, 1, MPI_INT, 1, 7, MPI_COMM_WORLD);",
        "MPI_Recv(&y, 1, MPI_INT, 0, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);",
        ", fault: lose 2",
    );
    let expected = "1 packet between boards was lost on the wire, which does not retransmit: rank 0 is in HUM_Send and waits for rank 1, tag 7; rank 1 is in HUM_Recv and waits for rank 0, any tag";
    assert!(lines.iter().any(|l| l.contains(expected)), "{lines:?}");
}

#[test]
fn a_kernel_whose_receive_queue_is_full_refuses() {
    // Eager messages that the other kernel does not receive: four are queued.
    let flood = "for (int i = 0; i < 8; i++) MPI_Rsend(&x, 1, MPI_INT, 2, i, MPI_COMM_WORLD);";
    let lines = run_lines(
        "MPI_Recv(&x, 1, MPI_INT, 2, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);",
        flood,
        "MPI_Recv(&x, 1, MPI_INT, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);",
    );
    assert!(
        lines
            .iter()
            .any(|l| l.contains("rank 1: HUM_Rsend: to rank 2")
                && l.contains("its receive queue is full")),
        "{lines:?}"
    );
}

#[test]
fn a_process_that_dies_while_kernels_wait_for_it_ends_the_run() {
    let wait = "MPI_Recv(&x, 1, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);";
    let lines = run_lines("raise(SIGKILL);", wait, wait);
    assert!(
        lines
            .iter()
            .any(|l| l.contains("rank 0 (p) failed: signal: 9")),
        "{lines:?}"
    );
}

/// Processes end while a board still answers their queries about waits; the board must not report a
/// failure.
#[test]
fn processes_leave_a_board_that_still_runs() {
    let kernel = r#"
#include <mpi.h>
#include <stdio.h>
static int work(int x, int rounds)
{
    for (int i = 0; i < rounds; i++) x = x * 5 + i;
    return x;
}
int main(int argc, char **argv)
{
    int a = argc;
    MPI_Init(&argc, &argv);
    for (int to = 1; to <= 12; to++) {
        a = work(a, 50003);
        MPI_Send(&a, 1, MPI_INT, to, 0, MPI_COMM_WORLD);
    }
    a = work(a, 300000);
    printf("a board's %d\n", a != 0);
    MPI_Finalize();
    return 0;
}
"#;
    // Without MPI_Finalize, which would wait for the other processes.
    let process = r#"
#include <mpi.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    int a;
    setenv("HUM_DEADLOCK_MS", "1", 1);
    MPI_Init(&argc, &argv);
    MPI_Recv(&a, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return 0;
}
"#;
    let logical = "kernel: [{name: board, num: 0, source: board.c}, {name: process, num: 1, rep: 12, source: process.c}]";
    let map = format!(
        "node: [{}, {{type: sw, comm: tcp, ip: 127.0.0.2, kernel: 1-12}}]",
        "{type: hw, comm: tcp, mac: '02:00:00:00:00:01', ip: 127.0.0.1, kernel: 0}"
    );
    let bench = Bench::new(&[
        ("logical.yaml", logical),
        ("board.c", kernel),
        ("process.c", process),
    ]);
    let (outcome, lines) = bench.run(&map, &Options::default()).unwrap();
    assert_eq!(outcome.code, 0, "{lines:?}");
    assert!(lines.contains(&"[0] a board's 1".to_owned()), "{lines:?}");
}
