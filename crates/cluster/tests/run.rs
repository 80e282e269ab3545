//! Clusters of real processes, on one node and on several: compilation, start, failures.

mod common;

use baltra_cluster::Options;
use common::Bench;
use std::fs;
use std::net::TcpListener;
use std::time::Duration;

const SHM: &str = "node: {type: sw, comm: shm, kernel: 0-3}";
const TCP: &str = "node: {type: sw, comm: tcp, kernel: 0-3}";
const NODES: &str =
    "node: [{type: sw, ip: 127.0.0.1, kernel: [0, 2]}, {type: sw, ip: 127.0.0.2, kernel: [1, 3]}]";
const LOGICAL: &str = "kernel: [{name: first, num: 0, source: sum.c}, {name: rest, num: 1, rep: 3, source: sum.c, const: {name: base, val: 10}}]";
const SUM: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include "more.h"
int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int size = atoi(argv[1]), rank = atoi(argv[2]), sum;
    const char *base = getenv("HUM_CONST_base");
    int mine = rank + (base != NULL ? atoi(base) : 0) + MORE;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%d ranks: %d\n", size, sum);
    MPI_Finalize();
    return 0;
}
"#;

#[test]
fn a_word_in_the_map_file_changes_the_way_and_not_the_answer() {
    let bench = Bench::new(&[
        ("logical.yaml", LOGICAL),
        ("sum.c", SUM),
        ("more.h", "#define MORE 0\n"),
    ]);
    for map in [SHM, TCP, NODES] {
        let (outcome, lines) = bench.run(map, &Options::default()).unwrap();
        assert_eq!(outcome.code, 0, "{lines:?}");
        assert!(
            lines.contains(&"[0] 4 ranks: 36".to_owned()),
            "{map}: {lines:?}"
        );
        assert!(
            lines.iter().any(|l| l.starts_with("rank 3: rest on node")),
            "{lines:?}"
        );
        let sent: u64 = outcome.ranks.iter().map(|r| r.counters.sent).sum();
        let received: u64 = outcome.ranks.iter().map(|r| r.counters.received).sum();
        assert!(sent > 0 && sent == received, "{sent} {received}");
    }
}

#[test]
fn only_what_changed_is_compiled() {
    let bench = Bench::new(&[
        ("logical.yaml", LOGICAL),
        ("sum.c", SUM),
        ("more.h", "#define MORE 0\n"),
    ]);
    assert_eq!(bench.compile(SHM), Ok(2));
    assert_eq!(bench.compile(SHM), Ok(0));
    // A header that a source includes.
    std::thread::sleep(Duration::from_millis(20));
    fs::write(bench.dir.path().join("more.h"), "#define MORE 1\n").unwrap();
    assert_eq!(bench.compile(SHM), Ok(2));
    assert_eq!(bench.compile(SHM), Ok(0));
    let (_, lines) = bench.run(SHM, &Options::default()).unwrap();
    assert!(lines.contains(&"[0] 4 ranks: 40".to_owned()), "{lines:?}");
}

#[test]
fn what_cannot_be_built_is_refused_with_its_line() {
    let bench = Bench::new(&[
        ("logical.yaml", "kernel:\n  - {name: a, num: 0}\n"),
        ("b.c", "int main(void) { return 0; }"),
    ]);
    let sw = "node: {type: sw, kernel: 0}";
    let message = bench.compile(sw).unwrap_err();
    assert!(
        message.contains("logical.yaml:2: kernel 'a': cannot read the source")
            && message.contains("a.c"),
        "{message}"
    );
    fs::write(
        bench.dir.path().join("a.c"),
        "int main(void) { return nothing; }",
    )
    .unwrap();
    let message = bench.compile(sw).unwrap_err();
    assert!(
        message.contains("compiling") && message.contains("nothing"),
        "{message}"
    );
}

#[test]
fn one_that_fails_stops_all() {
    let program = r#"
#include <humboldt.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int rank;
    HUM_Init(&argc, &argv);
    HUM_Comm_rank(HUM_COMM_WORLD, &rank);
    if (rank == 1) { usleep(100000); _exit(5); }
    for (;;) pause();
}
"#;
    let bench = Bench::new(&[
        ("logical.yaml", "kernel: {name: a, num: 0, rep: 4}"),
        ("a.c", program),
    ]);
    let (outcome, lines) = bench.run(SHM, &Options::default()).unwrap();
    assert_eq!(outcome.code, 5);
    assert!(
        lines
            .iter()
            .any(|l| l.starts_with("rank 1 (a) failed: exit status: 5")),
        "{lines:?}"
    );
    assert!(outcome.ranks.iter().all(|r| r.rank < 4));
}

#[test]
fn a_process_that_a_rank_leaves_behind_keeps_nobody() {
    let program = r#"
#include <humboldt.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv) {
    HUM_Init(&argc, &argv);
    int left = fork();
    if (left == 0) for (;;) pause();
    printf("%d\n", left);
    HUM_Finalize();
    return 0;
}
"#;
    let bench = Bench::new(&[
        ("logical.yaml", "kernel: {name: a, num: 0}"),
        ("a.c", program),
    ]);
    let sw = "node: {type: sw, kernel: 0}";
    let (outcome, lines) = bench.run(sw, &Options::default()).unwrap();
    assert_eq!(outcome.code, 0, "{lines:?}");
    let left = lines
        .iter()
        .find_map(|l| l.strip_prefix("[0] ")?.parse().ok());
    let left = rustix::process::Pid::from_raw(left.expect("its number"));
    rustix::process::kill_process(left.expect("a process"), rustix::process::Signal::KILL).unwrap();
}

#[test]
fn ranks_that_cannot_be_started() {
    let bench = Bench::new(&[
        ("logical.yaml", LOGICAL),
        ("sum.c", SUM),
        ("more.h", "#define MORE 0\n"),
    ]);
    let away = "node: [{type: sw, ip: 127.0.0.1, kernel: [0, 2]}, {type: sw, ip: 192.0.2.1, kernel: [1, 3]}]";
    let message = bench.run(away, &Options::default()).unwrap_err();
    assert!(
        message.contains("cannot listen on 192.0.2.1") && message.contains("--node"),
        "{message}"
    );
    let gap = Bench::new(&[
        ("logical.yaml", "kernel: {name: sum, num: 5}"),
        ("sum.c", SUM),
        ("more.h", "#define MORE 0\n"),
    ]);
    let message = gap
        .run("node: {type: sw, kernel: 5}", &Options::default())
        .unwrap_err();
    assert!(
        message.contains("numbered from 0 without gaps"),
        "{message}"
    );
}

/// The same program with raw Ethernet and with UDP between the nodes.
#[test]
fn software_nodes_speak_raw_ethernet_and_udp() {
    let program = r#"
#include "HUMBoldt.h"
#include <stdio.h>
static unsigned char data[70000];
int main(int argc, char **argv) {
    int rank, size;
    HUM_Init(&argc, &argv);
    HUM_Comm_rank(HUM_COMM_WORLD, &rank);
    HUM_Comm_size(HUM_COMM_WORLD, &size);
    unsigned long sum = 0;
    for (int bytes = 0; bytes < 70000; bytes = bytes * 3 + 1) {
        for (int i = 0; i < bytes; i++) data[i] = (unsigned char)(i * 7 + rank);
        HUM_Request request;
        static unsigned char out[70000];
        for (int i = 0; i < bytes; i++) out[i] = data[i];
        HUM_Isend(out, bytes, HUM_BYTE, (rank + 1) % size, bytes % 200, HUM_COMM_WORLD, &request);
        HUM_Recv(data, bytes, HUM_BYTE, (rank + size - 1) % size, bytes % 200, HUM_COMM_WORLD, HUM_STATUS_IGNORE);
        HUM_Wait(&request, HUM_STATUS_IGNORE);
        for (int i = 0; i < bytes; i++) sum += data[i];
    }
    unsigned long all;
    HUM_Allreduce(&sum, &all, 1, HUM_UNSIGNED_LONG, HUM_SUM, HUM_COMM_WORLD);
    HUM_Barrier(HUM_COMM_WORLD);
    if (rank == 0) printf("sum %lu\n", all);
    HUM_Finalize();
    return 0;
}
"#;
    let bench = Bench::new(&[
        ("logical.yaml", "kernel: {name: a, num: 0, rep: 4}"),
        ("a.c", program),
    ]);
    let ether = "node: [{type: sw, comm: eth, mac: '02:00:00:00:00:01', kernel: [0, 2]}, {type: sw, comm: eth, mac: '02:00:00:00:00:02', kernel: [1, 3]}]";
    let udp = NODES.replace("ip:", "comm: udp, ip:");
    let mut answers = Vec::new();
    for map in [SHM, ether, &udp] {
        let (outcome, lines) = bench.run(map, &Options::default()).unwrap();
        assert_eq!(outcome.code, 0, "{lines:?}");
        answers.push(lines.into_iter().find(|l| l.starts_with("[0] sum")));
    }
    assert!(
        answers[0].is_some() && answers.iter().all(|a| *a == answers[0]),
        "{answers:?}"
    );
}

/// A separate launcher starts each node's ranks, as on two hosts.
#[test]
fn nodes_are_started_apart() {
    let bench = Bench::new(&[
        ("logical.yaml", LOGICAL),
        ("sum.c", SUM),
        ("more.h", "#define MORE 0\n"),
    ]);
    bench.compile(NODES).unwrap();
    let free = |port: u16| {
        (0..4).all(|rank| {
            let ip = if rank % 2 == 0 {
                "127.0.0.1"
            } else {
                "127.0.0.2"
            };
            TcpListener::bind((ip, port + rank)).is_ok()
        })
    };
    let port = (20_000..30_000).step_by(7).find(|p| free(*p)).unwrap();
    let part = |node: usize| {
        let options = Options {
            nodes: vec![node],
            port: Some(port),
            key: Some("0123456789abcdef0123456789abcdef".to_owned()),
            ..Options::default()
        };
        bench.run(NODES, &options).unwrap()
    };
    let (zero, one) = std::thread::scope(|scope| {
        let one = scope.spawn(|| part(1));
        (part(0), one.join().unwrap())
    });
    assert_eq!(
        (zero.0.code, one.0.code),
        (0, 0),
        "{:?} {:?}",
        zero.1,
        one.1
    );
    assert!(
        zero.1.contains(&"[0] 4 ranks: 36".to_owned()),
        "{:?}",
        zero.1
    );
    assert_eq!(zero.0.ranks.len() + one.0.ranks.len(), 4);
    let message = bench
        .run(
            NODES,
            &Options {
                nodes: vec![0],
                ..Options::default()
            },
        )
        .unwrap_err();
    assert!(message.contains("--port and --key-file"), "{message}");
}

#[test]
fn rank_0_reads_what_the_launcher_is_given_and_others_read_nothing() {
    let reads = r#"
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
    char line[100] = "nothing\n";
    MPI_Init(&argc, &argv);
    int whole = 0;
    while (fgets(line, sizeof line, stdin) != NULL) whole++;
    printf("%d lines, the last: %s", whole, line);
    MPI_Finalize();
    return 0;
}
"#;
    let logical = "kernel: {name: reads, num: 0, rep: 4, source: reads.c}";
    let bench = Bench::new(&[
        ("logical.yaml", logical),
        ("reads.c", reads),
        ("input", "a\nbc\n"),
    ]);
    let input = fs::File::open(bench.dir.path().join("input")).unwrap();
    let options = Options {
        input: Some(std::sync::Arc::new(input)),
        ..Options::default()
    };
    for map in [SHM, NODES] {
        let (outcome, lines) = bench.run(map, &options).unwrap();
        assert_eq!(outcome.code, 0, "{lines:?}");
        // The second run reads the rest of the input file, after the part that the first run has
        // read.
        let first = if map == SHM {
            "[0] 2 lines, the last: bc"
        } else {
            "[0] 0 lines, the last: nothing"
        };
        for line in [
            first,
            "[1] 0 lines, the last: nothing",
            "[3] 0 lines, the last: nothing",
        ] {
            assert!(lines.contains(&line.to_owned()), "{map}: {lines:?}");
        }
    }
}
