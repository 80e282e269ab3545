//! Tests of a kernel's forms: a process, synthesized, on a processor, in RTL. The same source gives
//! the same results in each form, and a source that cannot be synthesized is rejected with the
//! reason. The boards are those of `boards.rs`; `chance.rs` has random programs.

mod common;

use baltra_cluster::Options;
use common::{tree, Bench};
use std::fs;

/// A board with all kernels, each in a given form; `None`: the form that the tool selects.
fn board(forms: &[Option<&str>]) -> String {
    let kernels: Vec<String> = (forms.iter().enumerate())
        .map(|(rank, form)| match form {
            Some(form) => format!("{{num: {rank}, type: {form}}}"),
            None => format!("{{num: {rank}}}"),
        })
        .collect();
    format!("node: {{type: hw, kernel: [{}]}}", kernels.join(", "))
}

/// The output of the ranks, of a run that must succeed.
fn printed(bench: &Bench, map: &str) -> Vec<String> {
    let (outcome, lines) = bench.run(map, &Options::default()).unwrap();
    assert_eq!(outcome.code, 0, "{map}: {lines:?}");
    lines.into_iter().filter(|l| l.starts_with('[')).collect()
}

#[test]
fn the_papers_example_gives_the_same_answers_in_each_form() {
    let fork = fs::read_to_string(tree().join("apps/messages/fork/fork.c")).unwrap();
    let logical = "kernel: [{name: coordinator, num: 0, source: fork.c}, {name: worker, num: 1, rep: 3, source: fork.c}]";
    let (hls, core) = (Some("hls"), Some("core"));
    let same = |source: &str, all: &str, forms: &[[Option<&str>; 4]]| {
        let bench = Bench::new(&[("logical.yaml", logical), ("fork.c", source)]);
        let software = printed(&bench, "node: {type: sw, comm: shm, kernel: 0-3}");
        assert!(software.contains(&all.to_owned()), "{software:?}");
        for forms in forms {
            assert_eq!(printed(&bench, &board(forms)), software, "{forms:?}");
        }
        assert!(bench.dir.path().join("out/msg_worker_1.sv").is_file());
    };
    same(&fork, "[0] all: 450144", &[[hls; 4]]);
    // A processor computes floats in software: an eighth of the work, in messages of two frames.
    let less = format!("#define MAX_ITR 3\n#define DATA_SIZE 400\n{fork}");
    same(
        &less,
        "[0] all: 54000",
        &[[None; 4], [core, hls, core, hls]],
    );
}

#[test]
fn an_ordinary_mpi_program_gives_the_same_plate_with_a_rank_on_a_board() {
    let heat = fs::read_to_string(tree().join("apps/messages/heat/heat.c")).unwrap();
    let logical = "kernel: {name: heat, num: 0, rep: 3, source: heat.c, type: core, args: '16 5', m_axi: {name: memory, bytes: 1M}}";
    let bench = Bench::new(&[("logical.yaml", logical), ("heat.c", &heat)]);
    let mixed = "node:
- {type: sw, comm: eth, mac: '02:00:00:00:00:01', kernel: [0, 2]}
- {type: hw, comm: eth, mac: '02:00:00:00:00:02', kernel: 1}";
    let digest = |map: &str| {
        let lines = printed(&bench, map);
        let digest = lines.iter().find(|l| l.contains("digest"));
        digest.unwrap_or_else(|| panic!("{lines:?}")).clone()
    };
    let software = digest("node: {type: sw, comm: shm, kernel: 0-2}");
    assert_eq!(digest(mixed), software);
}

/// Behaves like the kernel in RTL of this name, for a number of messages.
const ECHO: &str = r#"
#include <humboldt.h>
static unsigned char data[2048];
int main(int argc, char **argv)
{
    HUM_Init(&argc, &argv);
    HUM_Status status;
    do {
        HUM_Recv(data, sizeof data, HUM_BYTE, HUM_ANY_SOURCE, HUM_ANY_TAG, HUM_COMM_WORLD, &status);
        HUM_Send(data, (int)status.bytes, HUM_BYTE, status.source, status.tag, HUM_COMM_WORLD);
    } while (status.tag != 4095);
    HUM_Finalize();
    return 0;
}
"#;

const ASKS: &str = r#"
#include <humboldt.h>
#include <stdio.h>
static unsigned char out[2048], in[2048];
int main(int argc, char **argv)
{
    HUM_Init(&argc, &argv);
    static const int sizes[] = {0, 1, 8, 13, 1457, 2048}, tags[] = {0, 1, 255, 256, 1000, 4095};
    unsigned sum = 0;
    for (int n = 0; n < 6; n++) {
        for (int i = 0; i < sizes[n]; i++) out[i] = (unsigned char)(i * 31 + n);
        HUM_Status status;
        HUM_Send(out, sizes[n], HUM_BYTE, 1, tags[n], HUM_COMM_WORLD);
        HUM_Recv(in, sizeof in, HUM_BYTE, 1, n % 2 ? tags[n] : HUM_ANY_TAG, HUM_COMM_WORLD, &status);
        for (int i = 0; i < (int)status.bytes; i++) sum = sum * 33 + in[i];
        printf("%d: %d bytes, tag %d, %08x\n", n, (int)status.bytes, status.tag, sum);
    }
    HUM_Finalize();
    return 0;
}
"#;

#[test]
fn an_echo_is_the_same_in_rtl_synthesized_and_in_software() {
    let logical = "kernel: [{name: asks, num: 0}, {name: echo, num: 1, source: echo.c}]";
    let bench = Bench::new(&[
        ("logical.yaml", logical),
        ("asks.c", ASKS),
        ("echo.c", ECHO),
    ]);
    let software = printed(&bench, "node: {type: sw, comm: shm, kernel: 0-1}");
    assert_eq!(software.len(), 6);
    for forms in [
        [Some("hls"), Some("hls")],
        [Some("hls"), Some("core")],
        [Some("core"), Some("rtl")],
    ] {
        assert_eq!(printed(&bench, &board(&forms)), software, "{forms:?}");
    }
    let half = "node:
- {type: sw, comm: eth, mac: '02:00:00:00:00:01', kernel: 0}
- {type: hw, comm: eth, mac: '02:00:00:00:00:02', kernel: {num: 1, type: core}}";
    assert_eq!(printed(&bench, half), software);
}

/// Arrays that do not fit on any chip, accessed with every size, and messages from and to them.
const LARGE: &str = r#"
#include <humboldt.h>
#include <stdio.h>
enum { WORDS = 200000, PART = 3000 };
static unsigned words[WORDS];
static union { unsigned char bytes[8 * 4096]; short halves[4 * 4096]; double doubles[4096]; } mixed[16];
int main(int argc, char **argv)
{
    int rank;
    HUM_Init(&argc, &argv);
    HUM_Comm_rank(HUM_COMM_WORLD, &rank);
    unsigned x = 1, sum = 0;
    for (int i = 0; i < 600; i++) {
        x = x * 1664525u + 1013904223u;
        unsigned at = (x >> 8) % (WORDS + 50000);
        if (at < WORDS) words[at] += x;
        mixed[x >> 28].bytes[x >> 9 & 0x7fff] = (unsigned char)i;
        mixed[x >> 28].halves[x >> 5 & 0x3fff] ^= (short)x;
        if (i % 10 == 0) mixed[x >> 28].doubles[x >> 12 & 0xfff] = i * 0.5;
    }
    x = 1;
    for (int i = 0; i < 600; i++) {
        x = x * 1664525u + 1013904223u;
        unsigned at = (x >> 8) % (WORDS + 50000);
        if (at < WORDS) sum = sum * 33 + words[at];
        sum = sum * 33 + mixed[x >> 28].bytes[x >> 11 & 0x7fff];
    }
    for (int i = 0; i < PART; i++) words[WORDS - PART + i] = (unsigned)i * sum;
    for (int turn = 0; turn < 2; turn++)
        if (turn == rank) HUM_Send(words + WORDS - PART, PART, HUM_UNSIGNED, 1 - rank, turn, HUM_COMM_WORLD);
        else HUM_Recv(words + 77, PART, HUM_UNSIGNED, 1 - rank, turn, HUM_COMM_WORLD, HUM_STATUS_IGNORE);
    for (int i = 0; i < PART; i++) sum = sum * 33 + words[77 + i];
    printf("%08x\n", sum);
    HUM_Finalize();
    return 0;
}
"#;

#[test]
fn arrays_off_the_chip_are_the_same_in_each_form() {
    let kernel = |port: &str| format!("kernel: {{name: large, num: 0, rep: 2{port}}}");
    let files = |port| Bench::new(&[("logical.yaml", kernel(port).as_str()), ("large.c", LARGE)]);
    let bench = files(", m_axi: {name: memory, bytes: 2M}");
    let software = printed(&bench, "node: {type: sw, comm: shm, kernel: 0-1}");
    assert_eq!(software.len(), 2);
    for forms in [[Some("hls"), Some("core")], [None; 2]] {
        assert_eq!(printed(&bench, &board(&forms)), software, "{forms:?}");
    }
    // Without off-chip memory, and with too little.
    let refused = |port, form| {
        let bench = files(port);
        let failed = bench.run(&board(&[Some(form), Some("core")]), &Options::default());
        format!("{:#}", failed.unwrap_err())
    };
    assert!(refused("", "hls").contains("an m_axi port gives it memory"));
    let little = ", m_axi: {name: memory, bytes: 64K}";
    assert!(refused(little, "hls").contains("the m_axi port has 65536"));
    assert!(refused(little, "core").contains("far"));
}

const ASTRAY: &str = r#"
#include <humboldt.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    HUM_Init(&argc, &argv);
    volatile int *more = malloc(1 << 15);
    more[1 << 20] = 1;
    for (int i = 0; i < 100000; i++) (void)more[16 * i];
    HUM_Finalize();
    return 0;
}
"#;

#[test]
fn a_kernel_that_leaves_its_memory_ends_alone() {
    let logical = "kernel: {name: astray, num: 0, m_axi: {name: memory, bytes: 64K}}";
    let bench = Bench::new(&[("logical.yaml", logical), ("astray.c", ASTRAY)]);
    let (outcome, lines) = bench
        .run(&board(&[Some("core")]), &Options::default())
        .unwrap();
    assert_eq!(outcome.code, 139, "{lines:?}");
}

/// Sends bytes through a process, a synthesized kernel and a processor, in pieces of any size.
const STREAM: &str = r#"
#include <humboldt.h>
#include <stdio.h>
enum { TOTAL = 9000, MOST = 2000 };
static unsigned char data[MOST];
static HUM_Stream in, out;
int main(int argc, char **argv)
{
    int rank;
    HUM_Init(&argc, &argv);
    HUM_Comm_rank(HUM_COMM_WORLD, &rank);
    HUM_Stream_open(&in, rank - 1, 3, HUM_COMM_WORLD);
    HUM_Stream_open(&out, rank + 1, 3, HUM_COMM_WORLD);
    unsigned size = (unsigned)rank * 99u, sum = 0;
    size_t there = 1;
    for (size_t total = 0; there > 0; total += there) {
        size = (size * 77u + 1234u) % MOST;
        if (rank > 0) HUM_Pull(&in, data, size + 1, &there);
        else there = total + size < TOTAL ? size : TOTAL - total;
        for (size_t i = 0; i < there && rank == 0; i++) data[i] = (unsigned char)((total + i) * 7 >> 3);
        for (size_t i = 0; i < there; i++) sum = sum * 33 + data[i];
        if (rank < 2 && there > 0) HUM_Push(&out, data, there);
    }
    if (rank < 2) HUM_Stream_end(&out);
    printf("%08x\n", sum);
    HUM_Finalize();
    return 0;
}
"#;

#[test]
fn streams_go_through_kernels_of_each_form() {
    let logical = "kernel: [{name: a, num: 0, source: s.c}, {name: b, num: 1, source: s.c}, {name: c, num: 2, source: s.c}]";
    let bench = Bench::new(&[("logical.yaml", logical), ("s.c", STREAM)]);
    let software = printed(&bench, "node: {type: sw, comm: shm, kernel: 0-2}");
    let sum = software[0].split_once(' ').unwrap().1;
    assert_eq!(
        software,
        [0, 1, 2].map(|rank| format!("[{rank}] {sum}")),
        "what each has seen"
    );
    let map = "node: [{type: sw, comm: eth, mac: '02:00:00:00:00:01', kernel: 0}, {type: hw, comm: eth, mac: '02:00:00:00:00:02', kernel: [{num: 1, type: hls}, {num: 2, type: core}]}]";
    assert_eq!(printed(&bench, map), software);
}

#[test]
fn what_cannot_be_synthesized_says_why_and_where_and_goes_on_a_processor() {
    let cases = [
        (
            "volatile char *p = malloc((size_t)argc); p[0] = 7; printf(\"%d\\n\", p[0]);",
            "a.c:6: call of 'malloc', which neither the sources nor the library define",
        ),
        (
            "puts(again(argc) ? \"a\" : \"b\");",
            "'again' calls itself: hardware has no stack",
        ),
    ];
    for (statement, why) in cases {
        let source = format!(
            "#include <humboldt.h>\n#include <stdio.h>\n#include <stdlib.h>\n__attribute__((noinline)) static int again(int n) {{ return n < 2 ? n : again(n - 1) * again(n - 2) + n; }}\n__attribute__((noinline)) int other(int n) {{ return n; }}\nint main(int argc, char **argv) {{ HUM_Init(&argc, &argv); {statement} HUM_Finalize(); return 0; }}\n"
        );
        let bench = Bench::new(&[
            ("logical.yaml", "kernel: {name: a, num: 0}"),
            ("a.c", &source),
        ]);
        let message = bench
            .run(&board(&[Some("hls")]), &Options::default())
            .unwrap_err();
        assert!(
            message.contains("cannot synthesize") && message.contains(why),
            "{statement}: {message}"
        );
        let software = printed(&bench, "node: {type: sw, comm: shm, kernel: 0}");
        assert_eq!(printed(&bench, &board(&[None])), software, "{statement}");
        assert!(!bench.dir.path().join("out/msg_a_0.sv").exists());
    }
}

/// Programs that use MPI's names, and their output as processes.
const RIGHT: [(&str, &str, &str); 5] = [
    (
        "copied",
        r#"struct V { int *d; int n; int w; };
static int a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 8};
static struct V v[2] = {{a, 4, 1}, {b, 3, 2}}, q[4];
static void run(int argc) {
    for (int i = 0; i < 4; i++) q[i] = v[i & 1];
    int s = 0;
    for (int i = 0; i < 4; i++) for (int j = 0; j < q[i].n; j++) s += q[i].d[j] * q[i].w * (i + 1);
    printf("%d\n", s);
}"#,
        "256",
    ),
    (
        "rows",
        r#"static int r0[4] = {1, 2, 3, 4}, r1[4] = {5, 6, 7, 8}, r2[4] = {9, 10, 11, 12};
static void run(int argc) {
    int *rows[3] = {r0, r1, r2}, **pp = rows, n = argc > 9 ? 2 : 3, s = 0;
    for (int i = 0; i < n; i++) { int *t = pp[i]; pp[i] = pp[(i + 1) % 3]; pp[(i + 1) % 3] = t; }
    for (int i = 0; i < 3; i++) for (int j = 0; j < 4; j++) s = s * 3 + pp[i][j];
    printf("%d\n", s);
}"#,
        "411374",
    ),
    (
        "chars",
        r#"static void run(int argc) {
    char c = 0;
    int negative = 0;
    for (int i = 0; i < 256; i++) { if (c < 0) negative++; c++; }
    printf("%d\n", negative);
}"#,
        "128",
    ),
    (
        "longs",
        r#"static void run(int argc) {
    long x = 1;
    for (int i = 0; i < 30; i++) x = x * 5 + i;
    printf("%d %d\n", (int)(x >> 20), (int)sizeof(long));
}"#,
        "-643345737 8",
    ),
    (
        "values",
        r#"struct S { short *p; char c; int n; };
struct D { double a, b; };
static short x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[8] = {10, 20, 30, 40, 50, 60, 70, 80};
__attribute__((noinline)) static struct S next(struct S s, struct S t) { t.c++; t.n += s.n; if (t.n & 1) t.p = s.p; return t; }
__attribute__((noinline)) static struct D turned(struct D d, double by) { return (struct D){d.b * by, d.a + 1}; }
static void run(int argc) {
    struct S s = {x, 127, argc}, t = {y, -2, 5};
    struct D d = {0.5, argc};
    size_t sum = 1;
    for (int i = 0; i < 9; i++) {
        struct S u = next(s, t);
        s = t, t = u, d = turned(d, 1.5);
        sum = sum * 1000003u + (size_t)s.p[i & 7] + (size_t)s.c;
    }
    printf("%zu %d %d %.3f\n", sum, s.n, t.c, d.a + d.b);
}"#,
        "17014842780669009559 233 7 50.688",
    ),
];

#[test]
fn addresses_in_structures_and_types_of_the_hosts_are_right_in_fabric() {
    let program = |text: &str| {
        format!("#include <mpi.h>\n#include <stdio.h>\n#include <stddef.h>\n{text}\nint main(int argc, char **argv) {{ MPI_Init(&argc, &argv); run(argc); MPI_Finalize(); return 0; }}\n")
    };
    let sources: Vec<(String, String)> = RIGHT
        .iter()
        .map(|(name, text, _)| (format!("{name}.c"), program(text)))
        .collect();
    let kernels: Vec<String> = (RIGHT.iter().enumerate())
        .map(|(rank, (name, _, _))| format!("{{name: {name}, num: {rank}}}"))
        .collect();
    let logical = format!("kernel: [{}]", kernels.join(", "));
    let mut files: Vec<(&str, &str)> = sources
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect();
    files.push(("logical.yaml", &logical));
    let bench = Bench::new(&files);
    let right: Vec<String> = (RIGHT.iter().enumerate())
        .map(|(rank, (_, _, answer))| format!("[{rank}] {answer}"))
        .collect();
    let software = format!(
        "node: {{type: sw, comm: shm, kernel: 0-{}}}",
        RIGHT.len() - 1
    );
    assert_eq!(printed(&bench, &software), right);
    assert_eq!(printed(&bench, &board(&[Some("hls"); RIGHT.len()])), right);
}

#[test]
fn a_processor_has_the_hosts_chars_and_its_own_longs_on_request() {
    let program = |what: &str| {
        format!("#include <humboldt.h>\n#include <stdio.h>\nint main(int argc, char **argv)\n{{\n    HUM_Init(&argc, &argv);\n    {what}\n    HUM_Finalize();\n    return 0;\n}}\n")
    };
    let chars = program("char c = 0; int n = 0; for (int i = 0; i < 256; i++) { if (c < 0) n++; c++; } printf(\"%d\\n\", n);");
    let number = program("printf(\"%d\\n\", (int)(1L << 20) + argc);");
    let long = program("long x = argc; printf(\"%d\\n\", (int)sizeof x);");
    let with = |more: &str, text: &str| {
        let logical = format!("kernel: {{name: a, num: 0, type: core{more}}}");
        Bench::new(&[("logical.yaml", logical.as_str()), ("a.c", text)])
    };
    let map = board(&[Some("core")]);
    assert_eq!(printed(&with("", &chars), &map), ["[0] 128"]);
    let refused = with("", &long).run(&map, &Options::default()).unwrap_err();
    assert!(
        refused.contains("a.c:6: kernel 'a': 'long' has another size"),
        "{refused}"
    );
    let refused = with("", &number).run(&map, &Options::default());
    assert!(refused.unwrap_err().contains("a.c:6: kernel 'a': '1L'"));
    assert_eq!(printed(&with(", long: 32", &long), &map), ["[0] 4"]);
}

/// A message of longs between a process and a processor: eight bytes each, unless the kernel's
/// `long` has 32 bits.
const LONGS: &str = r#"
#include <humboldt.h>
#include <stdint.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    int rank;
    int64_t numbers[2] = {-5000000000, 7};
    HUM_Init(&argc, &argv);
    HUM_Comm_rank(HUM_COMM_WORLD, &rank);
    if (rank == 1) HUM_Send(numbers, 2, HUM_LONG, 0, 3, HUM_COMM_WORLD);
    else {
        HUM_Recv(numbers, 2, HUM_LONG, 1, 3, HUM_COMM_WORLD, HUM_STATUS_IGNORE);
        printf("%lld %lld\n", (long long)numbers[0], (long long)numbers[1]);
    }
    HUM_Finalize();
    return 0;
}
"#;

#[test]
fn longs_between_forms_have_eight_bytes_or_the_error_says_why() {
    let map = |form: &str| {
        format!("node: [{{type: sw, comm: eth, mac: '02:00:00:00:00:01', kernel: 0}}, {{type: hw, comm: eth, mac: '02:00:00:00:00:02', kernel: {{num: 1, type: {form}}}}}]")
    };
    let with = |more: &str| {
        let logical = format!(
            "kernel: [{{name: a, num: 0, source: l.c}}, {{name: b, num: 1, source: l.c{more}}}]"
        );
        Bench::new(&[("logical.yaml", logical.as_str()), ("l.c", LONGS)])
    };
    for form in ["hls", "core"] {
        assert_eq!(
            printed(&with(""), &map(form)),
            ["[0] -5000000000 7"],
            "{form}"
        );
    }
    let (outcome, lines) = with(", long: 32")
        .run(&map("core"), &Options::default())
        .unwrap();
    assert_ne!(outcome.code, 0);
    assert!(lines.iter().any(|l| l.contains("long: 32")), "{lines:?}");
}
