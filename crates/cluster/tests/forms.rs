//! A kernel's forms: a process, synthesised, on a processor, in RTL. The same source gives the same answers in each, what
//! cannot be synthesised says why, and programs of chance find what was not thought of. Boards as in `boards.rs`.

mod common;

use baltra_cluster::Options;
use common::{tree, Bench};
use std::fmt::Write;
use std::fs;

/// A board with all kernels, each in a form; none: the tool's choice.
fn board(forms: &[Option<&str>]) -> String {
    let kernels: Vec<String> = (forms.iter().enumerate())
        .map(|(rank, form)| match form {
            Some(form) => format!("{{num: {rank}, type: {form}}}"),
            None => format!("{{num: {rank}}}"),
        })
        .collect();
    format!("node: {{type: hw, kernel: [{}]}}", kernels.join(", "))
}

/// What the ranks print, of a run that ends well.
fn printed(bench: &Bench, map: &str) -> Vec<String> {
    let (outcome, lines) = bench.run(map, &Options::default()).unwrap();
    assert_eq!(outcome.code, 0, "{map}: {lines:?}");
    lines.into_iter().filter(|l| l.starts_with('[')).collect()
}

#[test]
fn test_the_papers_example_gives_the_same_answers_in_each_form() {
    let fork = fs::read_to_string(tree().join("apps/messages/fork/fork.c")).unwrap();
    let logical = "kernel: [{name: coordinator, num: 0, source: fork.c}, {name: worker, num: 1, rep: 3, source: fork.c}]";
    let bench = Bench::new(&[("logical.yaml", logical), ("fork.c", &fork)]);
    let software = printed(&bench, "node: {type: sw, comm: shm, kernel: 0-3}");
    assert!(
        software.contains(&"[0] all: 450144".to_owned()),
        "{software:?}"
    );
    let (hls, core) = (Some("hls"), Some("core"));
    for forms in [[None; 4], [hls; 4], [core, hls, core, hls]] {
        assert_eq!(printed(&bench, &board(&forms)), software, "{forms:?}");
    }
    assert!(bench.dir.path().join("out/msg_worker_1.sv").is_file());
}

#[test]
fn test_an_ordinary_mpi_program_gives_the_same_plate_with_a_rank_on_a_board() {
    let heat = fs::read_to_string(tree().join("apps/messages/heat/heat.c")).unwrap();
    let logical = "kernel: {name: heat, num: 0, rep: 3, source: heat.c, type: core, args: '32 10', m_axi: {name: memory, bytes: 1M}}";
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

/// As the kernel in RTL of this name, for a number of messages.
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
fn test_an_echo_is_the_same_in_rtl_synthesised_and_in_software() {
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

/// Arrays that no chip has room for, accessed in every size, and messages out of them and into them.
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
    for (int i = 0; i < 2000; i++) {
        x = x * 1664525u + 1013904223u;
        unsigned at = (x >> 8) % (WORDS + 50000);
        if (at < WORDS) words[at] += x;
        mixed[x >> 28].bytes[x >> 9 & 0x7fff] = (unsigned char)i;
        mixed[x >> 28].halves[x >> 5 & 0x3fff] ^= (short)x;
        if (i % 10 == 0) mixed[x >> 28].doubles[x >> 12 & 0xfff] = i * 0.5;
    }
    x = 1;
    for (int i = 0; i < 2000; i++) {
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
fn test_arrays_off_the_chip_are_the_same_in_each_form() {
    let kernel = |port: &str| format!("kernel: {{name: large, num: 0, rep: 2{port}}}");
    let files = |port| Bench::new(&[("logical.yaml", kernel(port).as_str()), ("large.c", LARGE)]);
    let bench = files(", m_axi: {name: memory, bytes: 2M}");
    let software = printed(&bench, "node: {type: sw, comm: shm, kernel: 0-1}");
    assert_eq!(software.len(), 2);
    for forms in [[Some("hls"), Some("core")], [None; 2]] {
        assert_eq!(printed(&bench, &board(&forms)), software, "{forms:?}");
    }
    // Without that memory, and with too little of it.
    let refused = |port, form| {
        let bench = files(port);
        let failed = bench.run(&board(&[Some(form), Some("core")]), &Options::default());
        format!("{:#}", failed.unwrap_err())
    };
    assert!(refused("", "hls").contains("an m_axi port gives it memory"));
    let little = ", m_axi: {name: memory, bytes: 64K}";
    assert!(refused(little, "hls").contains("where the kernel has 65536"));
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
fn test_a_kernel_that_leaves_its_memory_ends_alone() {
    let logical = "kernel: {name: astray, num: 0, m_axi: {name: memory, bytes: 64K}}";
    let bench = Bench::new(&[("logical.yaml", logical), ("astray.c", ASTRAY)]);
    let (outcome, lines) = bench
        .run(&board(&[Some("core")]), &Options::default())
        .unwrap();
    assert_eq!(outcome.code, 139, "{lines:?}");
}

/// Bytes through a process, a synthesised kernel and a processor, in pieces of any size.
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
fn test_streams_go_through_kernels_of_each_form() {
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
fn test_what_cannot_be_synthesised_says_why_and_where_and_goes_on_a_processor() {
    let cases = [
        (
            "volatile char *p = malloc((size_t)argc); p[0] = 7; printf(\"%d\\n\", p[0]);",
            "a.c:6: malloc has no form in fabric",
        ),
        (
            "puts(again(argc) ? \"a\" : \"b\");",
            "again calls itself: hardware has no stack",
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
        let said = bench
            .run(&board(&[Some("hls")]), &Options::default())
            .unwrap_err();
        assert!(
            said.contains("cannot be synthesised") && said.contains(why),
            "{statement}: {said}"
        );
        let software = printed(&bench, "node: {type: sw, comm: shm, kernel: 0}");
        assert_eq!(printed(&bench, &board(&[None])), software, "{statement}");
        assert!(!bench.dir.path().join("out/msg_a_0.sv").exists());
    }
}

/// Numbers of chance, the same for the same seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % n
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }

    /// An expression of an integer type; all that C leaves undefined is kept out.
    fn integer(&mut self, depth: u32) -> String {
        if depth == 0 {
            return match self.below(9) {
                0 => format!("{}", self.below(200)),
                1 => format!("0x{:x}u", self.below(1 << 40) & 0xffff_ffff),
                2 => "i".to_owned(),
                3 => "(uint32_t)w".to_owned(),
                4 => "x".to_owned(),
                5 => "(uint32_t)y".to_owned(),
                6 => format!(
                    "words[{} & 15]",
                    self.one(&["i", "x", "x >> 9", "(uint32_t)w"])
                ),
                7 => format!("(uint32_t)bytes[{} & 31]", self.one(&["i", "x", "x >> 3"])),
                _ => format!(
                    "(uint32_t)(uint16_t)halves[{} & 15]",
                    self.one(&["i", "x >> 5"])
                ),
            };
        }
        let (a, b) = (self.integer(depth - 1), self.integer(depth - 1));
        match self.below(14) {
            0..=3 => format!("({a} {} {b})", self.one(&["+", "-", "^", "&", "|"])),
            4 => format!("({a} * {b})"),
            5 => format!("({a} {} ({b} | 1u))", self.one(&["/", "%"])),
            6 => format!(
                "(uint32_t)((int32_t){a} {} ((int32_t)({b} & 0x7fff) + 1))",
                self.one(&["/", "%"])
            ),
            7 => format!("({a} {} ({b} & 31))", self.one(&["<<", ">>"])),
            8 => format!("(uint32_t)((int32_t)({a}) >> ({b} & 31))"),
            9 => format!(
                "({a} {} {b} ? {} : {a})",
                self.one(&["<", ">", "==", "<=", "!="]),
                self.integer(depth - 1)
            ),
            10 => format!(
                "((int32_t){a} {} (int32_t){b} ? {} : {b})",
                self.one(&["<", ">", ">="]),
                self.integer(depth - 1)
            ),
            11 => format!("mix({a}, {b})"),
            12 => format!(
                "(uint32_t)((uint64_t)({a}) * (w {} {b}) >> {})",
                self.one(&["+", "^", "-"]),
                self.below(40)
            ),
            _ => format!(
                "(f[{a} & 7] {} g ? {a} : {b})",
                self.one(&["<", ">", "==", "<="])
            ),
        }
    }

    fn float(&mut self, depth: u32) -> String {
        if depth == 0 {
            return match self.below(5) {
                0 => "g".to_owned(),
                1 => format!("{}.{}f", self.below(50), self.below(100)),
                2 => "(float)(int32_t)x".to_owned(),
                3 => "(float)d[i & 3]".to_owned(),
                _ => format!("f[{} & 7]", self.one(&["i", "x"])),
            };
        }
        let (a, b) = (self.float(depth - 1), self.float(depth - 1));
        match self.below(5) {
            0 | 1 => format!("({a} {} {b})", self.one(&["+", "-"])),
            2 => format!("({a} * {b})"),
            3 => format!("({a} < {b} ? {a} : -{b})"),
            _ => format!("(float)({})", self.integer(1)),
        }
    }

    fn statement(&mut self) -> String {
        match self.below(12) {
            0 | 1 => format!("x = {};", self.integer(3)),
            2 => format!("w = w * 6364136223846793005u + {};", self.integer(2)),
            3 => format!("y = (int32_t)({});", self.integer(2)),
            4 => format!("words[{} & 15] = {};", self.integer(1), self.integer(2)),
            5 => format!(
                "bytes[{} & 31] = (uint8_t)({});",
                self.integer(1),
                self.integer(2)
            ),
            6 => format!(
                "halves[{} & 15] = (int16_t)({});",
                self.integer(1),
                self.integer(1)
            ),
            7 => format!("f[{} & 7] = {};", self.integer(0), self.float(2)),
            8 => format!("g = {};", self.float(2)),
            9 => format!(
                "d[i & 3] = (double)({}) {} d[x & 3];",
                self.float(1),
                self.one(&["+", "*", "-"])
            ),
            10 => format!(
                "if ({} {} {}) {{ {} }} else {{ {} }}",
                self.integer(1),
                self.one(&["<", "=="]),
                self.integer(1),
                self.statement(),
                self.statement()
            ),
            _ => {
                let (turns, operator, value) = (
                    self.below(20) + 1,
                    self.one(&["+=", "^=", "="]),
                    self.integer(1),
                );
                let more = [
                    "x += words[i & 15];",
                    "g = g + f[i & 7];",
                    "bytes[i & 31] = bytes[(i + 1) & 31];",
                    "w ^= x + i;",
                ];
                format!("for (uint32_t i = 0; i < {turns}; i++) {{ words[i & 15] {operator} {value}; {} }}", self.one(&more))
            }
        }
    }

    fn program(&mut self) -> String {
        let mut body = String::new();
        for _ in 0..8 {
            let _ = writeln!(body, "        {}", self.statement());
        }
        format!(
            r#"#include <humboldt.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
static uint32_t words[16];
static uint8_t bytes[32];
static int16_t halves[16];
static float f[8];
static double d[4];
__attribute__((noinline)) static uint32_t mix(uint32_t a, uint32_t b) {{ return (a << 7 | a >> 25) ^ b * 2654435761u; }}
int main(int argc, char **argv)
{{
    HUM_Init(&argc, &argv);
    uint64_t w = {w}u;
    uint32_t x = {x}u;
    int32_t y = -5;
    float g = 1.5f;
    for (uint32_t i = 0; i < 16; i++) words[i] = i * x, bytes[i * 2] = (uint8_t)(i + x), halves[i] = (int16_t)(x >> i), f[i & 7] = (float)i * 0.7f, d[i & 3] = i * 0.1;
    for (uint32_t i = 0; i < 24; i++) {{
{body}    }}
    uint32_t sum = x ^ (uint32_t)w ^ (uint32_t)(w >> 32) ^ (uint32_t)y;
    for (int i = 0; i < 16; i++) sum = mix(sum, words[i] + (uint32_t)halves[i]);
    for (int i = 0; i < 32; i++) sum = mix(sum, bytes[i]);
    for (int i = 0; i < 8; i++) {{
        uint32_t bits;
        memcpy(&bits, &f[i], 4);
        sum = mix(sum, f[i] != f[i] ? 1 : bits);
    }}
    for (int i = 0; i < 4; i++) {{
        uint64_t bits;
        memcpy(&bits, &d[i], 8);
        sum = mix(sum, d[i] != d[i] ? 1 : (uint32_t)bits ^ (uint32_t)(bits >> 32));
    }}
    printf("x %u y %d w %016llx sum %08x\n", x, y, (unsigned long long)w, sum);
    HUM_Finalize();
    return 0;
}}
"#,
            w = self.below(1 << 40),
            x = self.below(1 << 31),
        )
    }
}

/// FORMS_SEED and FORMS_ROUNDS choose others, and more of them.
#[test]
fn test_programs_of_chance_give_what_processes_give() {
    let number = |name: &str, other: u64| {
        std::env::var(name)
            .ok()
            .and_then(|n| n.parse().ok())
            .unwrap_or(other)
    };
    let (seed, rounds) = (number("FORMS_SEED", 1), number("FORMS_ROUNDS", 1));
    for round in seed..seed + rounds {
        let mut chance = Chance(round.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let programs: Vec<(String, String)> = (0..4)
            .map(|n| (format!("k{n}.c"), chance.program()))
            .collect();
        let kernels: Vec<String> = (0..4)
            .map(|n| format!("{{name: k{n}, num: {n}}}"))
            .collect();
        let logical = format!("kernel: [{}]", kernels.join(", "));
        let mut files: Vec<(&str, &str)> = programs
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str()))
            .collect();
        files.push(("logical.yaml", &logical));
        let bench = Bench::new(&files);
        let software = printed(&bench, "node: {type: sw, comm: shm, kernel: 0-3}");
        let hardware = printed(&bench, &board(&[Some("hls"); 4]));
        if software != hardware {
            let kept = bench.dir.keep();
            panic!(
                "seed {round}, files in {}:\n{software:#?}\n{hardware:#?}",
                kept.display()
            );
        }
    }
}
