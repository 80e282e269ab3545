//! Programs under MPICH and Open MPI whose last ranks are kernels on boards: that MPI carries
//! messages between processes, HUMboldt those to and from boards. `scripts/setup.sh bench fabric`
//! installs what is needed.

mod common;

use baltra_cluster::Options;
use common::Bench;

/// Three processes and two kernels: messages of both libraries in every combination, then
/// collectives.
const PROGRAM: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <string.h>
enum { PROCESSES = 3, MOST = 1500, SOME = 1000 };
static int data[MOST], more[MOST], all[MOST];
int main(int argc, char **argv)
{
    int rank, size, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank >= PROCESSES) {
        /* Each process sends a message, and gets twice of it. */
        for (int n = 0; n < PROCESSES; n++) {
            MPI_Status status;
            int count;
            MPI_Recv(data, MOST, MPI_INT, n, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            MPI_Get_count(&status, MPI_INT, &count);
            for (int i = 0; i < count; i++) data[i] *= 2;
            MPI_Send(data, count, MPI_INT, n, status.MPI_TAG + 1, MPI_COMM_WORLD);
        }
    }
#ifndef HUMBOLDT /* processes alone compile it */
    else {
        MPI_Request requests[4];
        MPI_Status status, statuses[4];
        int next = (rank + 1) % PROCESSES, before = (rank + PROCESSES - 1) % PROCESSES, count;
        for (int i = 0; i < MOST; i++) data[i] = i + rank;
        /* A board and a neighbor at once, both ways. */
        MPI_Irecv(more, MOST, MPI_INT, 3, 8, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(all, 10, MPI_INT, before, 5, MPI_COMM_WORLD, &requests[1]);
        MPI_Isend(data, MOST, MPI_INT, 3, 7, MPI_COMM_WORLD, &requests[2]);
        MPI_Isend(data, 10, MPI_INT, next, 5, MPI_COMM_WORLD, &requests[3]);
        MPI_Waitall(4, requests, statuses);
        MPI_Get_count(&statuses[0], MPI_INT, &count);
        if (count != MOST || statuses[0].MPI_SOURCE != 3 || statuses[0].MPI_TAG != 8 || statuses[1].MPI_SOURCE != before) printf("a status is wrong\n");
        for (int i = 0; i < MOST; i++) sum += more[i] == 2 * data[i];
        printf("rank %d of %d: %d right, %d from %d\n", rank, size, sum, all[9], before);
        /* From anybody: a process's and a board's message. */
        MPI_Send(data, 4, MPI_INT, 4, 9, MPI_COMM_WORLD);
        MPI_Send(data, 4, MPI_INT, next, 10, MPI_COMM_WORLD);
        int from[5] = {0};
        for (int n = 0; n < 2; n++) {
            MPI_Recv(more, MOST, MPI_INT, MPI_ANY_SOURCE, 10, MPI_COMM_WORLD, &status);
            from[status.MPI_SOURCE] = more[3];
        }
        printf("rank %d: from anybody %d %d %d %d %d\n", rank, from[0], from[1], from[2], from[3], from[4]);
        MPI_Comm processes;
        MPI_Comm_dup(MPI_COMM_WORLD, &processes);
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, processes);
        MPI_Comm_size(processes, &count);
        printf("rank %d: among %d processes %d\n", rank, count, sum);
        MPI_Comm_free(&processes);
    }
#endif
    MPI_Barrier(MPI_COMM_WORLD);
    memset(data, 0, sizeof data);
    if (rank == 1) for (int i = 0; i < SOME; i++) data[i] = i * 3;
    MPI_Bcast(data, SOME, MPI_INT, 1, MPI_COMM_WORLD);
    for (int i = 0; i < SOME; i++) data[i] += rank;
    MPI_Allreduce(data, more, SOME, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Gather(more + rank, 100, MPI_INT, all, 100, MPI_INT, 0, MPI_COMM_WORLD);
    sum = 0;
    for (int i = 0; i < 500 && rank == 0; i++) sum += all[i] * (i % 7);
    MPI_Allgather(&rank, 1, MPI_INT, data, 1, MPI_INT, MPI_COMM_WORLD);
    MPI_Alltoall(more, 20, MPI_INT, all, 20, MPI_INT, MPI_COMM_WORLD);
    printf("rank %d collectively: %d %d %d %d %d\n", rank, more[SOME - 1], sum, data[4], all[99], all[20]);
    MPI_Finalize();
    return 0;
}
"#;

fn bench(program: &str, kernel: &str) -> Bench {
    let logical =
        "kernel: [{name: p, num: 0, rep: 3, source: p.c}, {name: k, num: 3, rep: 2, source: k.c}]";
    Bench::new(&[("logical.yaml", logical), ("p.c", program), ("k.c", kernel)])
}

fn map(comm: &str) -> String {
    let node = |kind: &str, number: u8, kernels: &str| {
        format!("{{type: {kind}, comm: {comm}, mac: '02:00:00:00:00:0{number}', ip: 127.0.0.{number}, kernel: {kernels}}}")
    };
    format!("node: [{}, {}]", node("sw", 1, "0-2"), node("hw", 2, "3-4"))
}

fn by(mpi: &str) -> Options {
    Options {
        mpi: Some(mpi.to_owned()),
        ..Options::default()
    }
}

#[test]
fn processes_of_mpich_and_open_mpi_work_with_kernels_on_boards() {
    let bench = bench(PROGRAM, PROGRAM);
    let mut expected = Vec::new();
    for rank in 0..3 {
        let before = (rank + 2) % 3;
        let from = [0, 1, 2].map(|r| if r == before { 3 + before } else { 0 });
        expected.push(format!(
            "[{rank}] rank {rank} of 5: 1500 right, {} from {before}",
            9 + before
        ));
        expected.push(format!(
            "[{rank}] rank {rank}: from anybody {} {} {} 0 {}",
            from[0],
            from[1],
            from[2],
            2 * (3 + rank)
        ));
        expected.push(format!("[{rank}] rank {rank}: among 3 processes 3"));
    }
    let reduced = |i: i32| 5 * 3 * i + 10;
    for rank in 0..5 {
        let sum: i32 = (0..500).map(|i| reduced(i / 100 + i % 100) * (i % 7)).sum();
        let sum = if rank == 0 { sum } else { 0 };
        expected.push(format!(
            "[{rank}] rank {rank} collectively: {} {sum} 4 {} {}",
            reduced(999),
            reduced(20 * rank + 19),
            reduced(20 * rank)
        ));
    }
    expected.sort();
    for mpi in ["mpich", "openmpi"] {
        for comm in ["eth", "tcp"] {
            let (outcome, lines) = bench.run(&map(comm), &by(mpi)).unwrap();
            assert_eq!(outcome.code, 0, "{mpi} {comm}: {lines:?}");
            let message: Vec<String> = lines.into_iter().filter(|l| l.starts_with('[')).collect();
            assert_eq!(message, expected, "{mpi} {comm}");
        }
    }
}

/// No rank hangs, and the message has rank, peer and tag.
#[test]
fn faults_under_another_mpi_end_the_job() {
    const IDLE: &str = "#include <mpi.h>\nstatic int x;\nint main(int argc, char **argv) { MPI_Init(&argc, &argv); MPI_Recv(&x, 1, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE); MPI_Finalize(); return 0; }\n";
    let cases = [
        // A rank that does not exist.
        (
            "if (rank == 1) MPI_Send(&x, 1, MPI_INT, 9, 7, MPI_COMM_WORLD);",
            IDLE,
            "rank 1: MPI_Send: to rank 9, tag 7: there is no such rank, the communicator has 5",
        ),
        // A process dies while others wait for a board that waits for the process.
        ("if (rank == 0) raise(SIGKILL);", IDLE, "mpiexec"),
        // A kernel that ends with an error while processes wait for it.
        (
            "if (rank == 0) MPI_Send(&x, 1, MPI_INT, 3, 7, MPI_COMM_WORLD);",
            "int main(void) { return 5; }\n",
            "rank 3 (k) failed: exit status: 5",
        ),
        // A message longer than the kernel's receive buffer.
        (
            "if (rank == 0) MPI_Send(y, 4, MPI_INT, 3, 7, MPI_COMM_WORLD);",
            IDLE,
            "rank 0: HUM_Test: to rank 3, tag 7: rank 3 refused the message of 16 bytes",
        ),
    ];
    for (statement, kernel, message) in cases {
        let program = format!(
            "#include <mpi.h>\n#include <signal.h>\nstatic int x, y[4];\nint main(int argc, char **argv) {{ int rank; MPI_Init(&argc, &argv); MPI_Comm_rank(MPI_COMM_WORLD, &rank); {statement} MPI_Recv(&x, 1, MPI_INT, 4, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE); MPI_Finalize(); return y[0]; }}\n"
        );
        let bench = bench(&program, kernel);
        for mpi in ["mpich", "openmpi"] {
            let (outcome, lines) = bench.run(&map("eth"), &by(mpi)).unwrap();
            assert_ne!(outcome.code, 0, "{mpi} {statement}: {lines:?}");
            assert!(
                lines.iter().any(|l| l.contains(message)),
                "{mpi} {statement}: {lines:?}"
            );
        }
    }
}

#[test]
fn processes_are_the_first_ranks() {
    let bench = bench(PROGRAM, PROGRAM);
    let wrong = map("eth")
        .replace("0-2", "2-4")
        .replace("kernel: 3-4", "kernel: 0-1");
    let message = bench.run(&wrong, &by("mpich")).unwrap_err();
    assert!(
        message.contains("--mpi: rank 2 is a process, but rank 0 is on a board"),
        "{message}"
    );
}
