//! Tests of clusters with live boards: the same C source as processes and on processors in fabric,
//! kernels in RTL, and the messages when a board or its wire fails. `scripts/setup.sh fabric`
//! installs the tools for the boards' model.

mod common;

use baltra_cluster::probe::Samples;
use baltra_cluster::{build, command, run, Cluster, Command, Options};
use clap::Parser;
use common::Bench;
use std::fs;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const LOGICAL: &str = "kernel: [{name: first, num: 0, source: fork.c}, {name: worker, num: 1, rep: 3, source: fork.c}]";
const SOFTWARE: &str = "node: {type: sw, comm: shm, kernel: 0-3}";

/// The paper's example, smaller: one kernel distributes the rows, the others multiply and return
/// their results.
const FORK: &str = r#"
#include "HUMBoldt.h"
#include <stdio.h>
#include <stdlib.h>
#define COUNT 700
static int data[COUNT];
int main(int argc, char *argv[]) {
    HUM_Init(&argc, &argv);
    int size = atoi(argv[1]), rank = atoi(argv[2]);
    for (int turn = 0; turn < 2; turn++) {
        if (rank != 0) {
            HUM_Recv(data, COUNT, MPI_INT, 0, 7, MPI_COMM_WORLD);
            for (int i = 0; i < COUNT; i++) data[i] *= rank;
            HUM_Send(data, turn == 0 ? COUNT : 0, MPI_INT, 0, 8, MPI_COMM_WORLD);
            continue;
        }
        for (int i = 0; i < COUNT; i++) data[i] = i + turn;
        for (int r = 1; r < size; r++) HUM_Send(data, COUNT, MPI_INT, r, 7, MPI_COMM_WORLD);
        for (int n = 1; n < size; n++) {
            MPI_Status status;
            HUM_Recv(data, COUNT, MPI_INT, turn == 0 ? n : MPI_ANY_SOURCE, 8, MPI_COMM_WORLD, &status);
            long sum = 0;
            for (int i = 0; i < COUNT; i++) sum += data[i];
            if (turn == 0) printf("from %d: %ld\n", n, sum);
        }
        for (int i = 0; i < COUNT; i++) data[i] = 0;
    }
    HUM_Finalize();
    return 0;
}
"#;

fn bench() -> Bench {
    Bench::new(&[("logical.yaml", LOGICAL), ("fork.c", FORK)])
}

fn board(mac: u8, kernels: &str) -> String {
    format!("{{type: hw, comm: eth, mac: '02:00:00:00:00:0{mac}', kernel: {kernels}}}")
}

fn host(kernels: &str) -> String {
    format!("{{type: sw, comm: eth, mac: '02:00:00:00:00:01', kernel: {kernels}}}")
}

fn tcp(kind: &str, ip: u8, kernels: &str) -> String {
    format!("{{type: {kind}, comm: tcp, ip: 127.0.0.{ip}, kernel: {kernels}}}")
}

fn udp(kind: &str, ip: u8, kernels: &str) -> String {
    tcp(kind, ip, kernels).replace("tcp", "udp")
}

/// Nonblocking messages: each exchange would hang if one message blocked another.
const AT_ONCE: &str = r#"
#include <mpi.h>
#include <stdio.h>
enum { MANY = 20, LARGE = 3000 };
static int a[LARGE], b[LARGE], c[MANY][MANY];
static int rank, size;
static void print_sum(const char *what, const int *data, int count)
{
    unsigned hash = 2166136261u;
    for (int i = 0; i < count; i++) hash = (hash ^ (unsigned)data[i]) * 16777619u;
    printf("%s: %08x\n", what, hash);
}
int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    MPI_Request requests[2 * MANY];
    MPI_Status status, statuses[2 * MANY];
    for (int i = 0; i < LARGE; i++) a[i] = i * 3 + rank;
    /* Both ways at once, and all round. */
    MPI_Irecv(b, LARGE, MPI_INT, before, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(a, LARGE, MPI_INT, next, 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, statuses);
    printf("from %d, %d bytes, %d\n", statuses[0].MPI_SOURCE == before, (int)statuses[0].bytes, requests[0] == MPI_REQUEST_NULL);
    print_sum("round", b, LARGE);
    MPI_Sendrecv(b, LARGE, MPI_INT, next, 2, a, LARGE, MPI_INT, before, 2, MPI_COMM_WORLD, &status);
    print_sum("round again", a, LARGE);
    /* The message that is received first comes last. */
    if (rank == 0)
        for (int i = MANY; i-- > 0;) MPI_Send(a + i, 10, MPI_INT, 1, i, MPI_COMM_WORLD);
    if (rank == 1) {
        for (int i = 0; i < MANY; i++) MPI_Irecv(c[i], MANY, MPI_INT, 0, i, MPI_COMM_WORLD, &requests[i]);
        int tags = 0;
        for (int i = 0; i < MANY; i++) {
            int which;
            MPI_Waitany(MANY, requests, &which, &status);
            tags += which == status.MPI_TAG;
        }
        printf("%d tags\n", tags);
        print_sum("backwards", c[0], MANY * MANY);
    }
    /* Of one kind: in their order. */
    if (rank == 2)
        for (int i = 0; i < MANY; i++) MPI_Isend(&a[i], 1, MPI_INT, 1, 5, MPI_COMM_WORLD, &requests[i]);
    if (rank == 1)
        for (int i = 0; i < MANY; i++) MPI_Irecv(c[i], 1, MPI_INT, i % 2 ? 2 : MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, &requests[i]);
    if (rank == 1 || rank == 2) MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
    if (rank == 1) print_sum("in order", c[0], MANY * MANY);
    /* A receive that is open does not hold up what all do together. */
    MPI_Irecv(b, LARGE, MPI_INT, before, 9, MPI_COMM_WORLD, &requests[0]);
    if (rank == 0) MPI_Send(a, LARGE, MPI_INT, next, 9, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    int sum, done = 0;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Bcast(c, MANY, MPI_INT, 1, MPI_COMM_WORLD);
    if (rank != 0) MPI_Send(a, LARGE, MPI_INT, next, 9, MPI_COMM_WORLD);
    while (!done) MPI_Test(&requests[0], &done, &status);
    printf("sum %d, tag %d\n", sum, status.MPI_TAG);
    print_sum("open", b, LARGE);
    MPI_Isend(a, 0, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
"#;

#[test]
fn messages_that_are_not_waited_for_are_the_same_on_boards() {
    let logical = "kernel: {name: p, num: 0, rep: 3}";
    let bench = Bench::new(&[("logical.yaml", logical), ("p.c", AT_ONCE)]);
    let printed = |map: &str| {
        let (outcome, lines) = bench.run(map, &Options::default()).unwrap();
        assert_eq!(outcome.code, 0, "{map}: {lines:?}");
        let message = lines.into_iter().filter(|l| l.starts_with('['));
        message.collect::<Vec<_>>()
    };
    let software = printed("node: {type: sw, comm: shm, kernel: 0-2}");
    assert_eq!(software.len(), 3 * 5 + 3, "{software:?}");
    for map in [
        "node: {type: hw, kernel: 0-2}".to_owned(),
        format!("node: [{}, {}]", host("0"), board(2, "1-2")),
        format!("node: [{}, {}]", board(2, "0-1"), board(3, "2")),
        format!("node: [{}, {}]", tcp("sw", 1, "1"), tcp("hw", 2, "[0, 2]")),
    ] {
        assert_eq!(printed(&map), software, "{map}");
    }
}

#[test]
fn one_source_gives_the_same_answers_in_software_on_boards_and_half_and_half() {
    let bench = bench();
    let maps = [
        SOFTWARE.to_owned(),
        "node: {type: hw, kernel: 0-3}".to_owned(),
        format!("node: [{}, {}]", host("0-1"), board(2, "2-3")),
        format!("node: [{}, {}]", host("2-3"), board(2, "0-1")),
        format!("node: [{}, {}]", board(1, "[0, 2]"), board(2, "[1, 3]")),
        format!("node: [{}, {}]", tcp("sw", 1, "0-1"), tcp("hw", 2, "2-3")),
        format!("node: [{}, {}]", tcp("sw", 1, "2-3"), tcp("hw", 2, "0-1")),
        format!(
            "node: [{}, {}]",
            tcp("hw", 1, "[0, 2]"),
            tcp("hw", 2, "[1, 3]")
        ),
        format!(
            "node: [{}, {}, {}]",
            tcp("hw", 1, "0"),
            tcp("sw", 2, "1-2"),
            tcp("hw", 3, "3")
        ),
        format!("node: [{}, {}]", udp("sw", 1, "2-3"), udp("hw", 2, "0-1")),
        format!(
            "node: [{}, {}, {}]",
            udp("hw", 1, "0"),
            udp("sw", 2, "1-2"),
            udp("hw", 3, "3")
        ),
    ];
    let mut first: Option<Vec<String>> = None;
    for map in maps {
        let (outcome, lines) = bench.run(&map, &Options::default()).unwrap();
        assert_eq!(outcome.code, 0, "{map}: {lines:?}");
        let answers: Vec<String> = (lines.into_iter())
            .filter(|l| l.starts_with("[0] from"))
            .collect();
        assert_eq!(answers.len(), 3, "{map}: {answers:?}");
        assert_eq!(
            first.get_or_insert_with(|| answers.clone()),
            &answers,
            "{map}"
        );
        // A process and a board count the same bytes.
        let bytes: u64 = outcome
            .ranks
            .iter()
            .map(|r| r.counters.received_bytes)
            .sum();
        assert_eq!(bytes, 9 * 2800, "{map}");
    }
}

/// The example of the tree, with the map file that places half of it on a board.
#[test]
fn the_papers_example_runs_half_on_a_board() {
    let fork = common::tree().join("apps/messages/fork");
    let bench = bench();
    let cluster = Cluster::read(&fork.join("logical-4.xml"), &fork.join("map-boards.xml"));
    let cluster = cluster.unwrap_or_else(|e| panic!("{e}"));
    let built = build(&cluster, &bench.with(), &|_| {}).unwrap();
    let mut lines = Vec::new();
    let outcome = run(&cluster, &built, &Options::default(), &mut |_, line| {
        lines.push(line.to_owned());
    });
    assert_eq!(outcome.unwrap().code, 0, "{lines:?}");
    assert!(lines.contains(&"[0] all: 450144".to_owned()), "{lines:?}");
}

#[test]
fn a_kernel_in_rtl_answers_a_process() {
    let program = r#"
#include <humboldt.h>
#include <stdio.h>
#include <string.h>
static unsigned char out[20000], in[20000];
int main(int argc, char **argv) {
    HUM_Init(&argc, &argv);
    int sizes[] = {0, 1, 8, 1447, 1448, 1449, 20000};
    for (int n = 0; n < 7; n++) {
        for (int i = 0; i < sizes[n]; i++) out[i] = (unsigned char)(i * 31 + n);
        HUM_Status status;
        HUM_Send(out, sizes[n], HUM_BYTE, 1, n, HUM_COMM_WORLD);
        HUM_Recv(in, sizeof in, HUM_BYTE, HUM_ANY_SOURCE, HUM_ANY_TAG, HUM_COMM_WORLD, &status);
        if (status.source != 1 || status.tag != n || status.bytes != (size_t)sizes[n] || memcmp(in, out, sizes[n]) != 0) return 1;
    }
    puts("all came back");
    HUM_Finalize();
    return 0;
}
"#;
    let bench = Bench::new(&[
        (
            "logical.yaml",
            "kernel: [{name: asks, num: 0}, {name: echo, num: 1}]",
        ),
        ("asks.c", program),
    ]);
    let map = format!("node: [{}, {}]", host("0"), board(2, "1"));
    let (outcome, lines) = bench.run(&map, &Options::default()).unwrap();
    assert_eq!(outcome.code, 0, "{lines:?}");
    assert!(lines.contains(&"[0] all came back".to_owned()), "{lines:?}");
}

/// The output when the board's wire applies a fault to the Nth received frame.
fn faulty(fault: &str) -> Vec<String> {
    let hurt = board(2, "2-3").replace('}', &format!(", fault: {fault}}}"));
    let map = format!("node: [{}, {hurt}]", host("0-1"));
    let (outcome, lines) = bench().run(&map, &Options::default()).unwrap();
    assert_ne!(outcome.code, 0, "{fault}: {lines:?}");
    lines
}

#[test]
fn lost_and_reordered_frames_are_reported() {
    for fault in ["lose 4", "lose 6", "swap 5"] {
        let lines = faulty(fault);
        assert!(
            lines.iter().any(|l| l.contains("lost on the wire")),
            "{fault}: {lines:?}"
        );
    }
}

#[test]
fn lost_datagrams_are_reported() {
    // A kernel on a board detects the loss by the next packet, a process by a query.
    for (first, fault) in [("sw", "lose 4"), ("hw", "lose 2")] {
        let hurt = udp("hw", 2, "2-3").replace('}', &format!(", fault: {fault}}}"));
        let map = format!("node: [{}, {hurt}]", udp(first, 1, "0-1"));
        let (outcome, lines) = bench().run(&map, &Options::default()).unwrap();
        assert_ne!(outcome.code, 0, "{lines:?}");
        assert!(
            lines.iter().any(|l| l.contains("lost on the wire")),
            "{first}: {lines:?}"
        );
    }
}

#[test]
fn a_frame_that_comes_twice_does_no_harm() {
    let twice = board(2, "2-3").replace('}', ", fault: repeat 5}");
    let map = format!("node: [{}, {twice}]", host("0-1"));
    let (outcome, lines) = bench().run(&map, &Options::default()).unwrap();
    assert_eq!(outcome.code, 0, "{lines:?}");
}

/// Faults of frames in transit to both boards.
#[test]
fn over_tcp_what_is_lost_repeated_or_reordered_is_mended() {
    for fault in ["lose 6", "repeat 6", "swap 6", "loss 5"] {
        let hurt =
            |ip, kernels| tcp("hw", ip, kernels).replace('}', &format!(", fault: {fault}}}"));
        let map = format!("node: [{}, {}]", hurt(1, "0-1"), hurt(2, "2-3"));
        let (outcome, lines) = bench().run(&map, &Options::default()).unwrap();
        assert_eq!(outcome.code, 0, "{fault}: {lines:?}");
        let answers = lines.iter().filter(|l| l.starts_with("[0] from")).count();
        assert_eq!(answers, 3, "{fault}: {lines:?}");
    }
}

#[test]
fn a_board_that_vanishes_stops_all_over_tcp() {
    let gone = tcp("hw", 2, "2-3").replace('}', ", fault: vanish 9}");
    let map = format!("node: [{}, {gone}]", tcp("sw", 1, "0-1"));
    let (outcome, lines) = bench().run(&map, &Options::default()).unwrap();
    assert_ne!(outcome.code, 0, "{lines:?}");
    // Either the launcher or a rank whose connection has ended reports the failure first.
    let message = ["failed: signal: 9", "its board or its host has vanished"];
    assert!(
        (lines.iter()).any(|l| message.iter().any(|s| l.contains(s))),
        "{lines:?}"
    );
}

/// The example of the tree: 16 processors on each of six boards.
#[test]
fn kernels_on_six_boards_answer_as_96_processes() {
    let fork = common::tree().join("apps/messages/fork");
    let bench = bench();
    let run = |map: &std::path::Path| {
        let cluster = Cluster::read(&fork.join("logical-96.xml"), map);
        let cluster = cluster.unwrap_or_else(|e| panic!("{e}"));
        let built = build(&cluster, &bench.with(), &|_| {}).unwrap();
        let mut lines = Vec::new();
        let outcome = run(&cluster, &built, &Options::default(), &mut |error, line| {
            lines.extend((!error).then(|| line.to_owned()));
        });
        let outcome = outcome.unwrap();
        assert_eq!(outcome.code, 0, "{lines:?}");
        let bytes = outcome.ranks.iter().map(|r| r.counters.received_bytes);
        (lines, bytes.sum::<u64>())
    };
    let boards = fork.join("map-96-boards.xml");
    let software = bench.dir.path().join("map-96.xml");
    let text = std::fs::read_to_string(&boards).unwrap();
    let text = text.replace(" hw ", " sw ").replace(" eth ", " tcp ");
    std::fs::write(&software, text).unwrap();
    let expected = run(&software);
    assert_eq!(expected.0.len(), 96, "{expected:?}");
    assert_eq!(run(&boards), expected);
}

#[test]
fn a_board_that_vanishes_stops_all() {
    let lines = faulty("vanish 6");
    assert!(
        lines
            .iter()
            .any(|l| l.starts_with("board node 1") && l.contains("failed: signal: 9")),
        "{lines:?}"
    );
}

#[test]
fn faults_of_a_kernel_on_a_board_are_said_with_rank_peer_and_tag() {
    let cases = [
        (
            "HUM_Send(data, 4, MPI_INT, 99, 7, MPI_COMM_WORLD);",
            "rank 1: HUM_Send: to rank 99, tag 7: there is no such rank",
        ),
        (
            "HUM_Send(data, 4, MPI_INT, 0, 4096, MPI_COMM_WORLD);",
            "rank 1: HUM_Send: to rank 0, tag 4096: tags on a board are 0 to 4095",
        ),
        (
            "HUM_Recv(data, 3, MPI_INT, 0, 7, MPI_COMM_WORLD);",
            "rank 1: HUM_Recv: from rank 0, tag 7: a message of 40 bytes",
        ),
        (
            "HUM_Recv(data, 10, MPI_FLOAT, 0, 7, MPI_COMM_WORLD);",
            "rank 1: HUM_Recv: from rank 0, tag 7: send and receive are of different types",
        ),
        ("exit(7);", "rank 1 (b) failed: exit status: 7"),
        ("__builtin_trap();", "rank 1 (b) failed: exit status: 132"),
    ];
    for (statement, message) in cases {
        let text = |body: &str| {
            format!("#include \"HUMBoldt.h\"\n#include <stdlib.h>\nint data[10];\nint main(int argc, char **argv) {{ HUM_Init(&argc, &argv); {body} HUM_Finalize(); return 0; }}\n")
        };
        let a = text("HUM_Send(data, 10, MPI_INT, 1, 7, MPI_COMM_WORLD);");
        let b = text(statement);
        let bench = Bench::new(&[
            (
                "logical.yaml",
                "kernel: [{name: a, num: 0}, {name: b, num: 1}]",
            ),
            ("a.c", &a),
            ("b.c", &b),
        ]);
        let map = format!("node: [{}, {}]", host("0"), board(2, "1"));
        let (outcome, lines) = bench.run(&map, &Options::default()).unwrap();
        assert_ne!(outcome.code, 0, "{statement}: {lines:?}");
        assert!(
            lines.iter().any(|l| l.contains(message)),
            "{statement}: {lines:?}"
        );
    }
}

#[test]
fn what_a_board_cannot_be_is_refused() {
    let bench = bench();
    let message = bench
        .run("node: [{type: hw, comm: tcp, ip: '::1', kernel: 0-1}, {type: sw, comm: tcp, ip: 127.0.0.1, kernel: 2-3}]", &Options::default())
        .unwrap_err();
    assert!(message.contains("IPv4"), "{message}");
    let large = Bench::new(&[
        ("logical.yaml", "kernel: {name: a, num: 0, type: core}"),
        (
            "a.c",
            "static volatile char x[200000]; int main(void) { return x[99]; }",
        ),
    ]);
    let message = large
        .run("node: {type: hw, kernel: 0}", &Options::default())
        .unwrap_err();
    assert!(
        message.contains("compiling") && message.contains("overflow"),
        "{message}"
    );
}

/// Captured kernels, one in each form, and the sent and received counters of each.
#[test]
fn a_capture_core_notes_every_packet_of_its_streams() {
    let program = r#"
#include <humboldt.h>
#include <string.h>
static unsigned char data[3000];
int main(int argc, char **argv) {
    HUM_Init(&argc, &argv);
    int rank;
    HUM_Comm_rank(HUM_COMM_WORLD, &rank);
    int sizes[3] = {0, 16, 3000};
    for (int i = 0; i < 3; i++) {
        if (rank == 0) {
            memset(data, i + 1, (unsigned)sizes[i]);
            HUM_Send(data, sizes[i], HUM_BYTE, 1, i + 1, HUM_COMM_WORLD);
        } else {
            HUM_Recv(data, sizes[i], HUM_BYTE, rank - 1, i + 1, HUM_COMM_WORLD, 0);
            if (rank == 1) HUM_Send(data, sizes[i], HUM_BYTE, 2, i + 1, HUM_COMM_WORLD);
        }
    }
    HUM_Finalize();
    return 0;
}
"#;
    let debug = "m_axis: {name: out, debug: true}, s_axis: {name: in, debug: true}";
    let logical = format!(
        "kernel: [{{name: first, num: 0, source: pass.c}}, {{name: second, num: 1, source: pass.c, {debug}}}, \
         {{name: third, num: 2, source: pass.c, s_axis: {{name: in, debug: true}}}}]"
    );
    let bench = Bench::new(&[("logical.yaml", &logical), ("pass.c", program)]);
    let map = format!(
        "node: [{}, {}]",
        host("0"),
        board(2, "[{num: 1, type: core}, {num: 2, type: hls}]")
    );
    let (outcome, lines) = bench.run(&map, &Options::default()).unwrap();
    assert_eq!(outcome.code, 0, "{lines:?}");

    let samples = |rank: u32| {
        let file = bench.dir.path().join(format!("out/map-{rank}.capture"));
        Samples::read(&file).unwrap().unwrap()
    };
    let (second, third) = (samples(1), samples(2));
    let payload = |samples: &Samples, way: &str| {
        let whole = |kind: &str| kind == "DATA" || kind == "EAGER";
        let packets = samples.packets();
        let of = packets.iter().filter(|p| p.way == way && whole(&p.kind));
        of.map(|p| (p.tag, p.bytes)).collect::<Vec<_>>()
    };
    // The packets carry the bytes that the counters count, each packet is as long as its beats, and
    // none is duplicated: all of rank 1's output is rank 2's input.
    let bytes = |packets: &[(u64, u64)]| packets.iter().map(|p| p.1).sum::<u64>();
    let counted = |rank: usize| &outcome.ranks[rank].counters;
    assert_eq!(bytes(&payload(&second, "in")), counted(1).received_bytes);
    assert_eq!(bytes(&payload(&second, "out")), counted(1).sent_bytes);
    assert_eq!(payload(&second, "out"), payload(&third, "in"));
    assert_eq!(bytes(&payload(&third, "in")), 3016);
    for packet in second.packets() {
        let carries = ["DATA", "EAGER"].contains(&packet.kind.as_str());
        let beats = 1 + if carries { packet.bytes.div_ceil(8) } else { 0 };
        assert_eq!(packet.beats, beats, "{packet:?}");
        assert!(packet.cycles >= packet.beats + packet.waited, "{packet:?}");
    }
    // For the third kernel, only the input stream is captured.
    assert!(third.packets().iter().all(|p| p.way == "in"), "{third:?}");
    // The output of the command line.
    let [logical, map, out, vcd] = ["logical.yaml", "map.yaml", "out", "streams.vcd"]
        .map(|name| bench.dir.path().join(name).display().to_string());
    let probe = |more: &[&str]| {
        let words = ["cluster", "probe", &logical, &map, "--out", &out];
        let cli = Cli::try_parse_from(words.iter().chain(more)).unwrap();
        let mut text = Vec::new();
        command(&cli.command, &mut text).map_err(|e| format!("{e:#}"))?;
        Ok::<_, String>(String::from_utf8(text).unwrap())
    };
    let table = probe(&["--rank", "1"]).unwrap();
    assert_eq!(table.lines().count(), 1 + second.packets().len(), "{table}");
    assert!(
        table
            .lines()
            .any(|l| l.contains("  out  ENVELOPE           2    3     3000      1")),
        "{table}"
    );
    let json: serde_json::Value = serde_json::from_str(&probe(&["--json"]).unwrap()).unwrap();
    let all = second.packets().len() + third.packets().len();
    assert_eq!(json["packets"].as_array().unwrap().len(), all);
    assert_eq!(json["ranks"][1]["samples"], third.len());
    assert!(probe(&["--rank", "0"])
        .unwrap_err()
        .contains("rank 0 is not captured"));
    probe(&["--vcd", &vcd]).unwrap();
    let text = fs::read(&vcd).unwrap();
    let mut parser = vcd::Parser::new(&text[..]);
    let header = parser.parse_header().unwrap();
    assert!(header.find_var(&["rank_2_third", "in_data"]).is_some());
    assert!(parser.all(|command| command.is_ok()));
    fs::write(&map, "node: {type: sw, comm: shm, kernel: 0-2}").unwrap();
    let none = probe(&[]).unwrap_err();
    assert!(
        none.contains("add <debug/> to its m_axis or s_axis port"),
        "{none}"
    );
}
