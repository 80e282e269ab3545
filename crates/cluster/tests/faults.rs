//! Faults between processes and kernels on boards: who waits for whom, queues that are full, processes that die.
//! `scripts/setup.sh fabric` installs what the boards' model needs.

mod common;

use baltra_cluster::Options;
use common::Bench;

const MAP: &str = "node: [{type: sw, comm: eth, mac: '02:00:00:00:00:01', kernel: 0}, {type: hw, comm: eth, mac: '02:00:00:00:00:02', kernel: 1-2}]";

/// Rank 0 is a process, 1 and 2 are kernels on a board. What is said, and that the run fails.
fn said(process: &str, one: &str, two: &str) -> Vec<String> {
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
fn test_a_process_and_a_kernel_that_send_to_each_other_are_a_deadlock() {
    let send = |to: u8, tag: u8| format!("MPI_Send(&x, 1, MPI_INT, {to}, {tag}, MPI_COMM_WORLD);");
    let receive = |from: u8, tag: u8| {
        format!("MPI_Recv(&y, 1, MPI_INT, {from}, {tag}, MPI_COMM_WORLD, MPI_STATUS_IGNORE);")
    };
    let lines = said(
        &(send(1, 7) + &receive(1, 8)),
        &(send(0, 8) + &receive(0, 7)),
        "",
    );
    let told = "deadlock: rank 0 is in HUM_Send and waits for rank 1, tag 7; rank 1 is in HUM_Send and waits for rank 0, tag 8";
    assert!(lines.iter().any(|l| l.contains(told)), "{lines:?}");
}

#[test]
fn test_a_kernel_whose_receive_queue_is_full_refuses() {
    // Eager messages of which the other kernel takes none: four wait.
    let flood = "for (int i = 0; i < 8; i++) MPI_Rsend(&x, 1, MPI_INT, 2, i, MPI_COMM_WORLD);";
    let lines = said(
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
fn test_a_process_that_dies_while_kernels_wait_for_it_ends_the_run() {
    let wait = "MPI_Recv(&x, 1, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);";
    let lines = said("raise(SIGKILL);", wait, wait);
    assert!(
        lines
            .iter()
            .any(|l| l.contains("rank 0 (p) failed: signal: 9")),
        "{lines:?}"
    );
}
