//! Tests of collective functions with kernels on boards among the ranks: the results equal those of
//! software, and functions that boards lack are rejected. `scripts/setup.sh fabric` installs the
//! tools for the boards' model.

mod common;

use baltra_cluster::Options;
use common::Bench;

/// The common part of the programs: each rank prints a line for each function.
const HEAD: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
enum { MOST = 1030 };
static int a[MOST * 5], b[MOST * 5];
static float f[MOST], g[MOST];
static short s[64], t[64];
static int rank, size;
static void print_sum(const char *what, int number, const void *data, int bytes)
{
    const unsigned *at = data;
    unsigned hash = 2166136261u;
    for (int i = 0; i < bytes / 4; i++) hash = (hash ^ at[i]) * 16777619u;
    printf("%s %d: %08x\n", what, number, hash);
}
static void fill(int count) { for (int i = 0; i < count; i++) a[i] = i * 7 + rank * 1000, b[i] = -1; }
int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
"#;

const TAIL: &str = r#"
    MPI_Finalize();
    return 0;
}
"#;

/// Every function with parts of equal length, from each root if the function has a root.
const ALL: &str = r#"
    MPI_Barrier(MPI_COMM_WORLD);
    for (int root = 0; root < size; root++) {
        int count = root == 0 ? MOST : root;
        fill(count);
        MPI_Bcast(a, count, MPI_INT, root, MPI_COMM_WORLD);
        print_sum("Bcast", root, a, count * 4);
        fill(count);
        MPI_Reduce(a, b, count, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD);
        if (rank == root) print_sum("Reduce", root, b, count * 4);
        fill(count * size);
        MPI_Gather(a, count, MPI_INT, b, count, MPI_INT, root, MPI_COMM_WORLD);
        if (rank == root) print_sum("Gather", root, b, count * size * 4);
        fill(count * size);
        MPI_Scatter(a, count, MPI_INT, b, count, MPI_INT, root, MPI_COMM_WORLD);
        print_sum("Scatter", root, b, count * 4);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    for (int i = 0; i < MOST; i++) f[i] = (float)(i % 50) + 0.5f * (float)rank;
    MPI_Allreduce(f, g, MOST, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    print_sum("Allreduce of floats", 0, g, sizeof g);
    MPI_Allreduce(MPI_IN_PLACE, f, 3, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
    print_sum("Allreduce in place", 0, f, 3 * sizeof *f);
    for (int i = 0; i < 64; i++) s[i] = (short)(i * 300 - rank * 37 - 9000);
    MPI_Allreduce(s, t, 61, MPI_SHORT, MPI_MIN, MPI_COMM_WORLD);
    print_sum("Allreduce of shorts", 0, t, sizeof t);
    for (int count = 0; count <= 400; count += 200) {
        fill(count * size);
        MPI_Allgather(a, count, MPI_INT, b, count, MPI_INT, MPI_COMM_WORLD);
        print_sum("Allgather", count, b, count * size * 4);
        fill(count * size);
        MPI_Alltoall(a, count, MPI_INT, b, count, MPI_INT, MPI_COMM_WORLD);
        print_sum("Alltoall", count, b, count * size * 4);
    }
"#;

/// Parts of different lengths, with gaps between them.
const PARTS: &str = r#"
    int counts[8], places[8], others[8], from[8], whole = 0;
    for (int r = 0; r < size; r++) {
        counts[r] = r == 2 ? 0 : 100 + 37 * r;
        places[r] = whole + r;
        whole += counts[r];
    }
    for (int root = 0; root < size; root += 2) {
        fill(MOST * 2);
        MPI_Gatherv(rank == root && root > 0 ? MPI_IN_PLACE : a, counts[rank], MPI_INT, b, counts, places, MPI_INT, root, MPI_COMM_WORLD);
        if (rank == root) print_sum("Gatherv", root, b, (whole + size) * 4);
        fill(MOST * 2);
        MPI_Scatterv(a, counts, places, MPI_INT, b, counts[rank], MPI_INT, root, MPI_COMM_WORLD);
        print_sum("Scatterv", root, b, 300 * 4);
    }
    for (int in_place = 0; in_place < 2; in_place++) {
        fill(MOST * 2);
        MPI_Allgatherv(in_place ? MPI_IN_PLACE : a, counts[rank], MPI_INT, b, counts, places, MPI_INT, MPI_COMM_WORLD);
        print_sum("Allgatherv", in_place, b, (whole + size) * 4);
    }
    for (int r = 0; r < size; r++) {
        counts[r] = 10 * (r + rank);
        others[r] = 10 * (r + rank);
        places[r] = 201 * r;
        from[r] = 150 * (size - r);
    }
    fill(MOST * 2);
    MPI_Alltoallv(a, counts, places, MPI_INT, b, others, from, MPI_INT, MPI_COMM_WORLD);
    print_sum("Alltoallv", 0, b, MOST * 4);
"#;

/// Functions that a synthesized kernel lacks, because they need memory.
const REDUCTIONS: &str = r#"
    int counts[8];
    for (int r = 0; r < size; r++) counts[r] = r == 2 ? 0 : 100 + 37 * r;
    for (int in_place = 0; in_place < 2; in_place++) {
        fill(MOST * 2);
        MPI_Reduce_scatter(in_place ? MPI_IN_PLACE : a, in_place ? a : b, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        print_sum("Reduce_scatter", in_place, in_place ? a : b, counts[rank] * 4);
    }
    fill(MOST * 2);
    MPI_Reduce_scatter_block(a, b, 300, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    print_sum("Reduce_scatter_block", 0, b, 1200);
"#;

fn bench(program: &str, kind: &str) -> Bench {
    let logical = format!(
        "kernel: [{{name: first, num: 0, source: p.c{kind}}}, {{name: rest, num: 1, rep: 4, source: p.c{kind}}}]"
    );
    Bench::new(&[("logical.yaml", &logical), ("p.c", program)])
}

fn program(body: &str) -> String {
    format!("{HEAD}{body}{TAIL}")
}

fn node(kind: &str, comm: &str, number: u8, kernels: &str) -> String {
    format!("{{type: {kind}, comm: {comm}, mac: '02:00:00:00:00:0{number}', ip: 127.0.0.{number}, kernel: {kernels}}}")
}

fn answers(bench: &Bench, map: &str) -> Vec<String> {
    let (outcome, lines) = bench.run(map, &Options::default()).unwrap();
    assert_eq!(outcome.code, 0, "{map}: {lines:?}");
    (lines.into_iter()).filter(|l| l.starts_with('[')).collect()
}

/// Placements: all ranks in software, the first or the last ranks on a board, all ranks on two
/// boards; on processors and as hardware synthesized from the C source.
#[test]
fn collectives_with_ranks_on_boards_give_what_software_gives() {
    let plain = bench(&program(ALL), "");
    let expected = answers(&plain, "node: {type: sw, comm: shm, kernel: 0-4}");
    assert_eq!(expected.len(), 5 * (2 * 5 + 3 + 6) + 2 * 5, "{expected:?}");
    for comm in ["eth", "tcp"] {
        let maps = [
            [("sw", "0-1"), ("hw", "2-4")],
            [("hw", "0-2"), ("sw", "3-4")],
        ];
        for [(a, first), (b, second)] in maps {
            let map = format!(
                "node: [{}, {}]",
                node(a, comm, 1, first),
                node(b, comm, 2, second)
            );
            assert_eq!(answers(&plain, &map), expected, "{map}");
        }
    }
    let cores = bench(&program(ALL), ", type: core");
    let map = format!(
        "node: [{}, {}]",
        node("hw", "eth", 1, "[0, 3]"),
        node("hw", "eth", 2, "[1, 2, 4]")
    );
    assert_eq!(answers(&cores, &map), expected, "{map}");
}

#[test]
fn parts_of_different_lengths_are_the_same_on_boards() {
    let lines = [3 * (1 + 5) + 5 * (2 + 1), 5 * 3];
    for (body, lines) in [PARTS, REDUCTIONS].into_iter().zip(lines) {
        let bench = bench(&program(body), "");
        let expected = answers(&bench, "node: {type: sw, comm: shm, kernel: 0-4}");
        assert_eq!(expected.len(), lines, "{expected:?}");
        let map = format!(
            "node: [{}, {}]",
            node("sw", "eth", 1, "[0, 3]"),
            node("hw", "eth", 2, "[1, 2, 4]")
        );
        assert_eq!(answers(&bench, &map), expected, "{map}");
        let map = "node: {type: hw, kernel: 0-4}";
        assert_eq!(answers(&bench, map), expected, "{map}");
    }
}

/// Each side reports which rank lacks the function and why, and no rank hangs.
#[test]
fn collectives_that_boards_lack_are_refused_with_rank_and_reason() {
    let cases = [
        (
            "MPI_Scan(a, b, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);",
            "rank 1 is a kernel on a board, which has no HUM_Scan",
        ),
        (
            "MPI_Comm dup; MPI_Comm_dup(MPI_COMM_WORLD, &dup);",
            "rank 1 is a kernel on a board, which supports only HUM_COMM_WORLD",
        ),
        (
            "MPI_Reduce(a, b, 1, MPI_2INT, MPI_MAXLOC, 0, MPI_COMM_WORLD);",
            "rank 1 is a kernel on a board, which has no HUM_MAXLOC of HUM_2INT",
        ),
    ];
    for (statement, message) in cases {
        let program = format!(
            "#include <mpi.h>\nstatic int a[4], b[4];\nint main(int argc, char **argv) {{ MPI_Init(&argc, &argv); {statement} MPI_Finalize(); return b[0] + a[0]; }}\n"
        );
        let idle = "#include <mpi.h>\nint main(int argc, char **argv) { MPI_Init(&argc, &argv); MPI_Finalize(); return 0; }\n";
        let files = [
            (
                "logical.yaml",
                "kernel: [{name: p, num: 0}, {name: idle, num: 1}]",
            ),
            ("p.c", program.as_str()),
            ("idle.c", idle),
        ];
        let map = format!(
            "node: [{}, {}]",
            node("sw", "eth", 1, "0"),
            node("hw", "eth", 2, "1")
        );
        let (outcome, lines) = Bench::new(&files).run(&map, &Options::default()).unwrap();
        assert_ne!(outcome.code, 0, "{statement}: {lines:?}");
        assert!(
            lines.iter().any(|l| l.contains(message)),
            "{statement}: {lines:?}"
        );
    }
    // Detected on the board itself.
    let program = "#include <mpi.h>\nstatic struct { float x; int i; } a[2], b[2];\nint main(int argc, char **argv) { MPI_Init(&argc, &argv); MPI_Reduce(a, b, 2, MPI_FLOAT_INT, MPI_MINLOC, 0, MPI_COMM_WORLD); return 0; }\n";
    let files = [
        ("logical.yaml", "kernel: {name: p, num: 0, type: core}"),
        ("p.c", program),
    ];
    let (outcome, lines) = Bench::new(&files)
        .run("node: {type: hw, kernel: 0}", &Options::default())
        .unwrap();
    assert_ne!(outcome.code, 0, "{lines:?}");
    assert!(
        lines.iter().any(|l| l.contains("rank 0: HUM_Reduce")
            && l.contains("a board does not support this operation for the type")),
        "{lines:?}"
    );
}
