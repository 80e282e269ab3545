//! Generates random programs from integers of all widths, floats, enumerations, unions, bit-fields,
//! structures that hold pointers and are copied, arrays of pointers, and functions that take and
//! return structures by value. Programs avoid C's undefined behavior.
//! (`crates/cluster/tests/chance.rs` uses them, too.)

use std::fmt::Write;

/// A generator of random programs, reproducible by its seed.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % n
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }

    /// An index of an array whose length is a power of two.
    fn index(&mut self, of: u64) -> String {
        let from = self.one(&["i", "x", "x >> 9", "(uint32_t)w", "x >> 3", "i + 1"]);
        format!("({from}) & {}", of - 1)
    }

    /// An operand of an integer type.
    fn number(&mut self) -> String {
        match self.below(15) {
            0 => format!("{}", self.below(200)),
            1 => format!("0x{:x}u", self.below(1 << 40) & 0xffff_ffff),
            2 => "i".to_owned(),
            3 => "(uint32_t)w".to_owned(),
            4 => "x".to_owned(),
            5 => "(uint32_t)y".to_owned(),
            6 => format!("words[{}]", self.index(16)),
            7 => format!("(uint32_t)bytes[{}]", self.index(32)),
            8 => format!("(uint32_t)(uint16_t)halves[{}]", self.index(16)),
            9 => format!("(uint32_t)chars[{}]", self.index(32)),
            10 => "(uint32_t)l".to_owned(),
            11 => "(uint32_t)(ul >> 32)".to_owned(),
            12 => "(uint32_t)e".to_owned(),
            13 => self
                .one(&[
                    "(uint32_t)sizeof(long)",
                    "(uint32_t)sizeof ps",
                    "(uint32_t)(((size_t)x << 20) >> 33)",
                    "(uint32_t)(chars[3] < 0)",
                ])
                .to_owned(),
            _ => {
                let member = self.one(&["a", "b", "c"]);
                format!("(uint32_t)fields[{}].{member}", self.index(4))
            }
        }
    }

    /// An operand that is read through pointers, from structures or from results of functions.
    fn object(&mut self) -> String {
        match self.below(14) {
            0 => format!("ps[{}].d[{}]", self.index(4), self.index(8)),
            1 => format!("ps[{}].n", self.index(4)),
            2 => format!("(uint32_t)ps[{}].c", self.index(4)),
            3 => format!("rows[{}][{}]", self.index(4), self.index(8)),
            4 => format!("*rows[{}]", self.index(4)),
            5 => format!("us[{}].word", self.index(4)),
            6 => format!("(uint32_t)us[{}].part[{}]", self.index(4), self.index(4)),
            7 => format!("qs[{}].p.d[{}]", self.index(2), self.index(8)),
            8 => {
                let q = self.index(2);
                format!("(qs[{q}].next ? qs[{q}].next->n : 3u)")
            }
            9 => format!(
                "(uint32_t)(ps[{}].d == rows[{}])",
                self.index(4),
                self.index(4)
            ),
            10 => format!("total(ps[{}])", self.index(4)),
            11 => format!("spread(big, {})", self.index(4)),
            12 => format!("(uint32_t)small.{}", self.one(&["a", "b", "c"])),
            _ => format!("(*pp)[{}]", self.index(8)),
        }
    }

    /// An expression of an integer type without undefined behavior.
    fn integer(&mut self, depth: u32) -> String {
        if depth == 0 {
            return match self.below(3) {
                0 => self.object(),
                _ => self.number(),
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
            return match self.below(6) {
                0 => "g".to_owned(),
                1 => format!("{}.{}f", self.below(50), self.below(100)),
                2 => "(float)(int32_t)x".to_owned(),
                3 => "(float)d[i & 3]".to_owned(),
                4 => "(float)both.b".to_owned(),
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

    /// A statement on structures, pointers, and types whose sizes differ between machines.
    fn objects(&mut self) -> String {
        let (p, q) = (self.index(4), self.index(4));
        let two = self.index(2);
        let value = self.integer(1);
        match self.below(26) {
            0 | 1 => format!("ps[{p}] = ps[{q}];"),
            2 => format!("{{ struct part t = ps[{p}]; ps[{p}] = ps[{q}]; ps[{q}] = t; }}"),
            3 => format!("{{ uint32_t *t = rows[{p}]; rows[{p}] = rows[{q}]; rows[{q}] = t; }}"),
            4 => format!("ps[{p}].d = rows[{q}];"),
            5 => format!("rows[{p}] = words + ({value} & 8);"),
            6 => format!("rows[{p}] = ps[{q}].d;"),
            7 => format!("ps[{p}] = pick(ps[{q}], ps[{}], {value});", self.index(4)),
            8 => format!("qs[{two}].p = ps[{p}];"),
            9 => format!("ps[{p}] = qs[{two}].p;"),
            10 => format!("qs[{two}].next = {value} & 1 ? &ps[{p}] : 0;"),
            11 => format!("memcpy(&ps[{p}], &qs[{two}].p, sizeof ps[0]);"),
            12 => format!("rows[{p}][{}] = {value};", self.index(8)),
            13 => format!("ps[{p}].d[{}] += {value};", self.index(8)),
            14 => format!("ps[{p}].n ^= {value}, ps[{p}].c = (char)({value});"),
            15 => format!("chars[{}] = (char)({value});", self.index(32)),
            16 => format!("chars[{}]++;", self.index(32)),
            17 => format!("ul = ul * 6364136223846793005ul + {value};"),
            18 => "l = (long)(ul >> 7) - (long)x * 3;".to_owned(),
            19 => format!("fields[{p}].a = {value}, fields[{q}].b = (int32_t)({value});"),
            20 => format!("us[{p}].part[{q}] = (uint8_t)({value});"),
            21 => format!("us[{p}].word ^= {value}; us[{q}] = us[{p}];"),
            22 => format!("switch (e) {{ case MINUS: x ^= {value}; e = FAR; break; case FAR: y++; e = NEXT; break; default: e = {value} & 1 ? MINUS : FAR; }}"),
            23 => format!("small = turn(small, {value});"),
            24 => "both = scaled(both, g < 0 ? -g : g);".to_owned(),
            _ => format!("big = rotated(big, {value}); pp = rows + ({value} & 1); big.to = *pp;"),
        }
    }

    fn statement(&mut self) -> String {
        match self.below(19) {
            0 => format!("x = {};", self.integer(3)),
            1 => format!("x ^= {};", self.integer(2)),
            2 => format!("w = w * 6364136223846793005u + {};", self.integer(2)),
            3 => format!("y = (int32_t)({});", self.integer(2)),
            4 => format!("words[{}] = {};", self.index(16), self.integer(2)),
            5 => format!(
                "bytes[{}] = (uint8_t)({});",
                self.index(32),
                self.integer(2)
            ),
            6 => format!(
                "halves[{}] = (int16_t)({});",
                self.index(16),
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
            11 | 12 => {
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
                    "ps[i & 3].d[i & 7] += ps[(i + 1) & 3].n;",
                    "x = x * 33 + (uint32_t)chars[i & 31];",
                    "ps[i & 3] = ps[x & 3];",
                ];
                format!("for (uint32_t i = 0; i < {turns}; i++) {{ words[i & 15] {operator} {value}; {} }}", self.one(&more))
            }
            _ => self.objects(),
        }
    }

    /// A program that prints a line; `messages`: it calls `HUM_Init` and `HUM_Finalize`.
    pub fn program(&mut self, messages: bool) -> String {
        let mut body = String::new();
        for _ in 0..9 {
            let _ = writeln!(body, "        {}", self.statement());
        }
        let (include, begin, end) = if messages {
            (
                "#include <humboldt.h>\n",
                "    HUM_Init(&argc, &argv);\n",
                "    HUM_Finalize();\n",
            )
        } else {
            ("", "", "")
        };
        format!(
            "{include}{HEAD}int main(int argc, char **argv)\n{{\n{begin}    uint64_t w = {}u;\n    uint32_t x = {}u;\n{BEFORE}{body}    }}\n{BEHIND}{end}    return 0;\n}}\n",
            self.below(1 << 40),
            self.below(1 << 31),
        )
    }
}

const HEAD: &str = r#"#include <stdint.h>
#include <stdio.h>
#include <string.h>
struct part { uint32_t *d; uint32_t n; char c; };
struct pair { struct part p; struct part *next; };
struct small { short a; char b; int c; };
struct both { double a, b; };
struct big { uint32_t v[5]; uint32_t *to; long l; };
struct fields { unsigned a : 5; int b : 7; unsigned c : 20; };
union word { uint32_t word; uint8_t part[4]; };
enum way { MINUS = -3, NEXT, FAR = 70000 };
static uint32_t words[16], first[16], second[16];
static uint8_t bytes[32];
static int16_t halves[16];
static char chars[32];
static float f[8];
static double d[4];
static struct part ps[4];
static struct pair qs[2];
static uint32_t *rows[4] = {words, first, second + 8, words + 8};
static union word us[4];
static struct fields fields[4];
__attribute__((noinline)) static uint32_t mix(uint32_t a, uint32_t b) { return (a << 7 | a >> 25) ^ b * 2654435761u; }
__attribute__((noinline)) static struct part pick(struct part a, struct part b, uint32_t x)
{
    if (x & 1) a.d = b.d;
    a.n += b.n ^ x;
    a.c = (char)(a.c - 1);
    return a;
}
__attribute__((noinline)) static uint32_t total(struct part a) { return a.d[a.n & 7] + a.n + (uint32_t)a.c; }
__attribute__((noinline)) static struct small turn(struct small s, uint32_t x) { return (struct small){(short)(s.c + (int)(x & 0xff)), (char)s.a, s.b}; }
__attribute__((noinline)) static struct both scaled(struct both a, double by) { return (struct both){a.b * 0.5, a.a + by}; }
__attribute__((noinline)) static struct big rotated(struct big a, uint32_t x)
{
    uint32_t last = a.v[4];
    for (int i = 4; i > 0; i--) a.v[i] = a.v[i - 1];
    a.v[0] = last + x + a.to[x & 7];
    a.l = (long)(((unsigned long)a.l << 5) ^ x);
    return a;
}
__attribute__((noinline)) static uint32_t spread(struct big a, uint32_t at) { return a.v[at] ^ a.to[at] ^ (uint32_t)(a.l >> 33); }
"#;

const BEFORE: &str = r#"    int32_t y = -5;
    long l = -7;
    unsigned long ul = 11;
    enum way e = NEXT;
    float g = 1.5f;
    uint32_t **pp = rows + 1;
    struct small small = {3, -4, 5};
    struct both both = {1.25, -0.5};
    struct big big = {{1, 2, 3, 4, 5}, first, -1};
    for (uint32_t i = 0; i < 16; i++) {
        words[i] = i * x, first[i] = i + 3, second[i] = x ^ i;
        bytes[i * 2] = (uint8_t)(i + x), chars[i * 2] = (char)(i * x), halves[i] = (int16_t)(x >> i);
        f[i & 7] = (float)i * 0.7f, d[i & 3] = i * 0.1;
        ps[i & 3] = (struct part){i & 1 ? first : second, i, (char)(x >> i)};
        qs[i & 1].p = ps[i & 3], qs[i & 1].next = i & 4 ? &ps[x & 3] : 0, us[i & 3].word = x * i;
    }
    for (uint32_t i = 0; i < 24; i++) {
"#;

const BEHIND: &str = r#"    uint32_t sum = x ^ (uint32_t)w ^ (uint32_t)(w >> 32) ^ (uint32_t)y;
    sum = mix(sum, (uint32_t)l ^ (uint32_t)((unsigned long)l >> 32) ^ (uint32_t)ul ^ (uint32_t)(ul >> 32));
    for (int i = 0; i < 16; i++) sum = mix(sum, words[i] + (uint32_t)halves[i]), sum = mix(sum, first[i] - second[i]);
    for (int i = 0; i < 32; i++) sum = mix(sum, bytes[i] + (uint32_t)chars[i]);
    for (int i = 0; i < 4; i++) {
        sum = mix(sum, ps[i].d[i] + ps[i].n + (uint32_t)ps[i].c);
        sum = mix(sum, rows[i][i] ^ us[i].word);
        sum = mix(sum, fields[i].a + (uint32_t)fields[i].b + fields[i].c);
        sum = mix(sum, qs[i & 1].p.d[i + 1] + qs[i & 1].p.n + (qs[i & 1].next ? qs[i & 1].next->d[i] : 9));
    }
    for (int i = 0; i < 8; i++) {
        uint32_t bits;
        memcpy(&bits, &f[i], 4);
        sum = mix(sum, f[i] != f[i] ? 1 : bits);
    }
    d[3] = d[3] + both.a, d[2] = d[2] + both.b;
    for (int i = 0; i < 4; i++) {
        uint64_t bits;
        memcpy(&bits, &d[i], 8);
        sum = mix(sum, d[i] != d[i] ? 1 : (uint32_t)bits ^ (uint32_t)(bits >> 32));
    }
    sum = mix(sum, spread(big, 2) + (uint32_t)(small.a + small.b + small.c) + (uint32_t)e + (*pp)[3]);
    printf("x %u y %d w %016llx l %ld ul %lx e %d sum %08x\n", x, y, (unsigned long long)w, l, ul, e, sum);
"#;
