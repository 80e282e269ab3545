//! Generates random kernels in OpenCL C: integers of all widths, floats, vectors, structures that
//! hold pointers or structures and are copied, pointers to private, local and global memory, nested
//! loops, calls, barriers (also in functions), local memory and atomic functions. Kernels avoid
//! undefined behavior, and their results do not depend on the order of work-items.

use std::fmt::Write;

/// Words of a work-item's part of the output.
pub const OWN_WORDS: usize = 32;
/// Elements of the other buffers.
pub const IN_WORDS: usize = 64;
pub const COUNTS: usize = 16;

/// A generator of random kernels, reproducible by its seed.
pub struct Generator {
    state: u64,
    /// Loops around the current statement; each has a counter of its own.
    loops: u32,
    kind: Kind,
}

/// The common property of a kernel's work-items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing: neither atomic functions nor groups.
    Alone,
    Atomics,
    /// Local memory and barriers, too.
    Groups,
}

impl Generator {
    pub fn new(seed: u64, kind: Kind) -> Generator {
        Generator {
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            loops: 0,
            kind,
        }
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 20) % n
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }

    /// An index of an array whose length is a power of two.
    fn index(&mut self, of: u64) -> String {
        let from = self.one(&[
            "x", "y", "x >> 9", "(uint)l", "y >> 3", "at + x", "at", "turn", "(uint)c",
        ]);
        format!("({from}) & {}", of - 1)
    }

    /// An operand of an integer type, as `uint`.
    fn number(&mut self) -> String {
        match self.below(33) {
            0 => format!("{}u", self.below(200)),
            1 => format!("0x{:x}u", self.below(1 << 40) & 0xffff_ffff),
            2 | 3 => "x".to_owned(),
            4 => "y".to_owned(),
            5 => "(uint)a".to_owned(),
            6 => self.one(&["(uint)l", "(uint)(l >> 29)"]).to_owned(),
            7 => "(uint)(ul >> 32)".to_owned(),
            8 => self
                .one(&["(uint)c", "(uint)uc", "(uint)s", "(uint)us"])
                .to_owned(),
            9 => format!("w[{}]", self.index(16)),
            10 => format!("(uint)chars[{}]", self.index(16)),
            11 => format!("(uint)(longs[{}] >> {})", self.index(4), self.below(40)),
            12 => format!("ps[{}].n", self.index(4)),
            13 => format!("ps[{}].p[{}]", self.index(4), self.index(8)),
            14 => format!("*rows[{}]", self.index(4)),
            15 => format!("in[{}]", self.index(64)),
            16 => format!("(uint)table[{}]", self.index(16)),
            17 => format!("own[{}]", self.index(32)),
            18 => self
                .one(&[
                    "(uint)get_global_id(0)",
                    "(uint)get_local_id(0)",
                    "(uint)get_group_id(0)",
                    "(uint)get_local_id(1)",
                    "(uint)get_global_size(0)",
                    "(uint)get_num_groups(1)",
                    "(uint)get_global_id(turn & 3)",
                ])
                .to_owned(),
            19 => format!("u4.s{}", self.below(4)),
            20 => format!("(uint)i4.{}", self.one(&["x", "y", "z", "w"])),
            21 => format!("(uint)b8.s{}", self.below(8)),
            22 => format!("(uint)(q2.{} >> {})", self.one(&["x", "y"]), self.below(33)),
            23 => format!("u4[{}]", self.index(4)),
            24 => format!("(uint)pair.{}", self.one(&["tag", "value", "wide"])),
            25 => format!("fixed[{}]", self.index(8)),
            26 => format!(
                "(uint)entries[({}) % 3].{}",
                self.number(),
                self.one(&["first", "second[1]", "third.y"])
            ),
            27 => format!(
                "(uint)us2[{}].{}",
                self.index(2),
                self.one(&["word", "part[1]", "part[x & 3]"])
            ),
            28 => format!("grid[{}][{}]", self.index(4), self.index(4)),
            29 => format!(
                "(uint)rec[{}].{}",
                self.index(2),
                self.one(&["a", "b[2]", "b[x & 3]", "c.y"])
            ),
            30 => format!("(uint)h16.s{}", self.one(&["0", "7", "b", "f"])),
            31 => "(uint)(flag && x > y)".to_owned(),
            _ => self
                .one(&[
                    "n",
                    "turn",
                    "bits(f)",
                    "bits(g)",
                    "bits(f4.z)",
                    "gp[1]",
                    "gs[x & 1].from[y & 3]",
                ])
                .to_owned(),
        }
    }

    /// An expression of type `uint`.
    fn integer(&mut self, depth: u32) -> String {
        if depth == 0 {
            return self.number();
        }
        let (a, b) = (self.integer(depth - 1), self.integer(depth - 1));
        match self.below(19) {
            0..=3 => format!("({a} {} {b})", self.one(&["+", "-", "^", "&", "|"])),
            4 => format!("({a} * {b})"),
            5 => format!("({a} {} ({b} | 1u))", self.one(&["/", "%"])),
            6 => format!(
                "(uint)((int){a} {} ((int)({b} & 0x7fff) + 1))",
                self.one(&["/", "%"])
            ),
            7 => format!("({a} {} ({b} & 31))", self.one(&["<<", ">>"])),
            8 => format!("(uint)((int)({a}) >> ({b} & 31))"),
            9 => format!(
                "({a} {} {b} ? {} : {a})",
                self.one(&["<", ">", "==", "<=", "!="]),
                self.integer(depth - 1)
            ),
            10 => format!(
                "((int){a} {} (int){b} ? {b} : {a})",
                self.one(&["<", ">", ">="])
            ),
            11 => format!("mix_of({a}, {b})"),
            12 => format!(
                "(uint)(((ulong)({a}) * (ul {} {b})) >> {})",
                self.one(&["+", "^", "-"]),
                self.below(40)
            ),
            13 => format!(
                "{}({a}, {b})",
                self.one(&[
                    "min", "max", "abs_diff", "add_sat", "sub_sat", "hadd", "rhadd", "rotate",
                    "mul_hi",
                ])
            ),
            14 => format!("(uint){}({a})", self.one(&["clz", "popcount", "abs"])),
            15 => {
                let of = self.one(&["char", "uchar", "short", "ushort", "int", "long", "ulong"]);
                let call = self.one(&[
                    "add_sat", "sub_sat", "hadd", "rotate", "mul_hi", "max", "min", "abs_diff",
                ]);
                format!("(uint){call}(({of})({a}), ({of})({b}))")
            }
            16 => {
                let (to, from) = (
                    self.one(&["char", "uchar", "short", "ushort", "int", "uint"]),
                    self.one(&["int", "uint", "long", "short"]),
                );
                format!("(uint)convert_{to}_sat(({from})({a}))")
            }
            17 => format!(
                "((uint)(f {} g) ? {a} : {b})",
                self.one(&["<", ">", "==", "<=", "!="])
            ),
            _ => format!("select({a}, {b}, {})", self.integer(0)),
        }
    }

    fn float(&mut self, depth: u32) -> String {
        if depth == 0 {
            return match self.below(7) {
                0 => "g".to_owned(),
                1 => format!("{}.{}f", self.below(50), self.below(100)),
                2 => "(float)(int)x".to_owned(),
                3 => "(float)l".to_owned(),
                4 => format!("f4.{}", self.one(&["x", "y", "z", "w"])),
                5 => "(float)us".to_owned(),
                _ => "f".to_owned(),
            };
        }
        let (a, b) = (self.float(depth - 1), self.float(depth - 1));
        match self.below(10) {
            0 | 1 => format!("({a} {} {b})", self.one(&["+", "-"])),
            2 => format!("({a} * {b})"),
            3 => format!("({a} / {b})"),
            4 => format!("({a} < {b} ? {a} : -{b})"),
            5 => format!("sqrt(fabs({a}))"),
            6 => format!(
                "{}({a})",
                self.one(&["floor", "ceil", "trunc", "rint", "round", "fabs"])
            ),
            7 => format!("fma({a}, {b}, {})", self.float(0)),
            // The sign of a NaN is not defined.
            8 => format!("copysign({a}, small({b}))"),
            _ => format!("(float)({})", self.integer(1)),
        }
    }

    /// A vector of four `uint`.
    fn vector(&mut self, depth: u32) -> String {
        if depth == 0 {
            return match self.below(9) {
                0 | 1 => "u4".to_owned(),
                2 => format!("u4.{}", self.one(&["wzyx", "yyxx", "s2031", "xzyw"])),
                3 => "as_uint4(i4)".to_owned(),
                4 => format!(
                    "convert_uint4(b8.{})",
                    self.one(&["lo", "hi", "even", "odd"])
                ),
                5 => format!("vload4({}, w)", self.index(4)),
                6 => format!("vload4({}, in)", self.index(16)),
                7 => format!("(uint4)({}, {}, u4.yx)", self.integer(0), self.integer(0)),
                _ => format!("(uint4)({})", self.integer(1)),
            };
        }
        let (a, b) = (self.vector(depth - 1), self.vector(depth - 1));
        match self.below(9) {
            0..=2 => format!("({a} {} {b})", self.one(&["+", "-", "^", "&", "|", "*"])),
            3 => format!("({a} {} ({b} & 31u))", self.one(&["<<", ">>"])),
            4 => format!("({a} {} ({b} | 1u))", self.one(&["/", "%"])),
            5 => format!("select({a}, {b}, {a} {} {b})", self.one(&["<", "==", ">="])),
            6 => format!("as_uint4({a} {} {b})", self.one(&["<", "!=", ">"])),
            7 => format!(
                "{}({a}, {b})",
                self.one(&["min", "max", "add_sat", "rhadd", "rotate", "mul_hi"])
            ),
            _ => format!("convert_uint4_sat(as_int4({a}))"),
        }
    }

    /// A statement on structures, pointers, vectors and narrow types.
    fn objects(&mut self) -> String {
        let (p, q) = (self.index(4), self.index(4));
        let value = self.integer(1);
        let atomics = self.kind != Kind::Alone;
        match self.below(49) {
            32 | 43 if !atomics => format!("x -= {value};"),
            44 => format!("nests[{p} & 1].inner = turned(nests[{q} & 1].inner, {value}); nests[{q} & 1].rest[{}].part[{p}]++;", self.index(2)),
            45 => format!("nests[{p} & 1] = nests[{q} & 1]; nests[{p} & 1].tag = (char)({value});"),
            46 => format!("nested[{}].inner = nested[{}].inner; nested[{}].tail[{p}] = uc;", self.index(2), self.index(2), self.index(2)),
            47 => format!("nested[{}].inner.b[{p}] += (uchar)({value}); x ^= nested[{}].inner.a;", self.index(2), self.index(2)),
            48 => format!("y += (uint)lists[{}].inner[{}].second[{}] ^ lists[{}].first;", self.index(2), self.index(2), self.index(2), self.index(2)),
            0 | 1 => format!("ps[{p}] = ps[{q}];"),
            2 => format!("{{ part t = ps[{p}]; ps[{p}] = ps[{q}]; ps[{q}] = t; }}"),
            3 => format!("rows[{p}] = rows[{q}];"),
            4 => format!("rows[{p}] = w + ({value} & 8);"),
            5 => format!("ps[{p}].p = rows[{q}];"),
            6 => format!("ps[{p}] = picked(ps[{p}], ps[{q}], {value});"),
            7 => format!("ps[{p}].p[{}] += {value};", self.index(8)),
            8 => format!("rows[{p}][{}] = {value};", self.index(8)),
            9 => format!("ps[{p}].n ^= {value}; ps[{p}].c = (char)({value});"),
            10 => format!("chars[{}] = (char)({value});", self.index(16)),
            11 => format!("chars[{}]++;", self.index(16)),
            12 => format!("longs[{}] ^= ((long)x << 21) - (long)({value});", self.index(4)),
            13 => format!("ul = ul * 6364136223846793005ul + {value};"),
            14 => "l = (long)((ulong)l * 3 - (ulong)x) ^ (long)(ul >> 7);".to_owned(),
            15 => format!("c = (char)(c + {value}); uc = (uchar)(uc ^ c);"),
            16 => format!("s = (short)(s - {value}); us = (ushort)(us * 3 + s);"),
            17 => format!("u4 = {};", self.vector(2)),
            18 => format!("u4.{} = {value};", self.one(&["x", "y", "z", "w"])),
            19 => format!("u4.{} = u4.{} + (uint2)({value}, x);", self.one(&["xz", "wy"]), self.one(&["lo", "odd"])),
            20 => format!("i4 = as_int4({}) {} (i4 >> 2);", self.vector(1), self.one(&["^", "&", "|"])),
            21 => format!("b8 = convert_uchar8({}(b8, (uchar8)((uchar)({value})))) + b8.s76543210;", self.one(&["add_sat", "rotate", "hadd", "max"])),
            22 => format!("b8.s{} = (uchar)({value}); c3 = convert_char3(b8.s{}) - c3;", self.below(8), self.one(&["012", "765", "333"])),
            23 => "q2 = q2 * 5 + as_ulong2(u4); q2 ^= q2 >> 17;".to_owned(),
            24 => format!("f4 = f4 {} (float4)({}, g, f, 0.5f);", self.one(&["+", "-", "*"]), self.float(0)),
            25 => format!("vstore4({}, {}, w);", self.vector(1), self.index(4)),
            26 => format!("vstore2(u4.{}, {}, own);", self.one(&["xy", "wz"]), self.index(16)),
            27 => format!("gp = own + ({value} & 15); gp[{}] = x;", self.index(8)),
            28 => format!("gs[{}].from = own + ({value} & 15); gs[{}] = gs[{}];", self.index(2), self.index(2), self.index(2)),
            29 => format!("pair = turned(pair, {value});"),
            30 => format!("x ^= (uint){}(i4 {} as_int4(u4));", self.one(&["any", "all"]), self.one(&["<", "=="])),
            31 => format!("switch (({value}) % 5) {{ case 0: x += 3; break; case 1: y ^= x; case 2: a = (int)(y >> 1); break; case 4: x = ~x; break; default: y += 7; }}"),
            32 => format!("atomic_{}(&counts[{}], (int)({value}));", self.one(&["add", "sub", "xor"]), self.index(8)),
            34 => format!("us2[{}].part[{p}] = (uchar)({value}); us2[{}].word ^= x;", self.index(2), self.index(2)),
            35 => format!("us2[{}] = us2[{}];", self.index(2), self.index(2)),
            36 => format!("grid[{p}][{q}] += {value};"),
            37 => format!("rec[{}].a = {value}; rec[{}].b[{p}]++;", self.index(2), self.index(2)),
            38 => format!("rec[{}] = rec[{}]; rec[0].c = u4.{};", self.index(2), self.index(2), self.one(&["xy", "wz"])),
            39 => format!("h16 = h16 * (ushort)3 + (ushort)({value}); h16.s{} = us;", self.one(&["3", "e"])),
            40 => format!("h16 = h16.s{};", self.one(&["fedcba9876543210", "0011223344556677"])),
            41 => format!("flag = {value} > x || !flag; a = flag ? a : -a - 1;"),
            42 => format!("switch (ul & 7) {{ case 1: case 3: x ^= {value}; break; case 6: flag = !flag; }}"),
            33 => format!("{{ block t = saved; t.words[{p}] += {value}; saved = t; large[{} & 63] ^= saved.words[{q}]; }}", self.index(8)),
            _ if !atomics => format!("y += {value};"),
            _ => format!("atomic_{}(&counts[8 + ({} & 3)], (int)({value}));", self.one(&["max"]), self.integer(0)),
        }
    }

    fn statement(&mut self) -> String {
        match self.below(20) {
            0 | 1 => format!("x = {};", self.integer(3)),
            2 => format!("y ^= {};", self.integer(2)),
            3 => format!("a = (int)({});", self.integer(2)),
            4 => format!("w[{}] = {};", self.index(16), self.integer(2)),
            5 => format!("own[{}] = {};", self.index(32), self.integer(2)),
            6 => format!("f = {};", self.float(2)),
            7 => format!("g = {};", self.float(2)),
            8 => format!("a ^= convert_int_sat({}); f = small(f);", self.float(1)),
            9 | 10 => format!(
                "if ({} {} {}) {{ {} {} }} else {{ {} }}",
                self.integer(1),
                self.one(&["<", "==", "&"]),
                self.integer(1),
                self.statement(),
                self.statement(),
                self.statement()
            ),
            11..=13 if self.loops < 3 => self.repeated(),
            14 => format!(
                "own[{}] {} {};",
                self.index(32),
                self.one(&["+=", "^=", "-="]),
                self.integer(1)
            ),
            _ => self.objects(),
        }
    }

    /// A loop, of which the number of iterations may depend on the work-item.
    fn repeated(&mut self) -> String {
        self.loops += 1;
        let (i, turns) = (format!("i{}", self.loops), self.below(9) + 1);
        let end = match self.below(3) {
            0 => format!("{turns}"),
            1 => format!("(x & 7) + {}", turns % 3),
            _ => format!("(at & 3) + {turns}"),
        };
        let body = format!("{} {}", self.statement(), self.statement());
        let leave = match self.below(5) {
            0 => format!("if (({}) % 11 == 3) break;", self.integer(1)),
            1 => format!("if (({}) & 1) continue;", self.integer(0)),
            _ => String::new(),
        };
        let last = self.one(&["x += turn;", "w[turn & 15] ^= y;", "y = y * 33 + x;"]);
        let text = match self.below(3) {
            0 => format!("{{ uint {i} = 0; while ({i}++ < {end}) {{ turn = {i}; {body} {leave} {last} }} }}"),
            1 => format!("{{ uint {i} = 0, end{i} = {end}; do {{ turn = {i}; {body} {leave} {last} }} while (++{i} < end{i}); }}"),
            _ => format!("for (uint {i} = 0, end{i} = {end}; {i} < end{i}; {i}++) {{ turn = {i}; {body} {leave} {last} }}"),
        };
        self.loops -= 1;
        text
    }

    /// Work-items exchange values through local memory; all of a group execute it.
    fn exchange(&mut self) -> String {
        let value = self.integer(1);
        let (by, other) = (self.below(7) + 1, self.statement());
        let read = format!("(lid + {by}) % items");
        match self.below(11) {
            8 => format!("x ^= neighbor(shared, lid, {read}, {value}); {other}"),
            9 => format!("if ((n + get_group_id(0)) & 1) {{ y += rotated(shared, lid, {read}, {value}); }} {other}"),
            10 => format!("a ^= (int)reduced(shared, lid, items, {value}); {other}"),
            6 => format!("wide[lid] = u4; barrier(CLK_LOCAL_MEM_FENCE); for (uint k = 0; k < {}; k++) {{ turn = k; u4 ^= wide[k % items] + wide[{read}]; {other} }} barrier(CLK_LOCAL_MEM_FENCE);", by + 1),
            7 => format!("wide[lid].s{} = {value}; _Pragma(\"unroll\") for (uint k = 0; k < 4; k++) x = x * 5 + ((local uint *)(wide + lid))[k]; {other} barrier(CLK_LOCAL_MEM_FENCE);", by & 3),
            4 => format!("if ((n + get_group_id(0)) & 1) {{ shared[lid] = {value}; barrier(CLK_LOCAL_MEM_FENCE); y -= shared[{read}]; barrier(CLK_LOCAL_MEM_FENCE); }} else {{ {other} }}"),
            5 => format!("{{ event_t e = async_work_group_copy(shared, in + (get_group_id(0) & 3) * 8 + {by}, 8, 0); wait_group_events(1, &e); {other} x += shared[(lid + {by}) & 7]; barrier(CLK_LOCAL_MEM_FENCE); }}"),
            0 => format!("shared[lid] = {value}; barrier(CLK_LOCAL_MEM_FENCE); x ^= shared[{read}]; barrier(CLK_LOCAL_MEM_FENCE); {other}"),
            1 => format!("passed[lid * 2 + ({value} & 1)] = y; {other} barrier(CLK_LOCAL_MEM_FENCE); y += passed[{read}] ^ passed[lid + items]; barrier(CLK_LOCAL_MEM_FENCE);"),
            2 => format!("atomic_{}(&sums[{value} & 7], (int)x); barrier(CLK_LOCAL_MEM_FENCE); a ^= sums[{}]; barrier(CLK_LOCAL_MEM_FENCE);", self.one(&["add", "xor", "min", "max"]), self.index(8)),
            _ => format!("for (uint k = 0; k < {}; k++) {{ turn = k; pairs[lid].value = x + k; pairs[lid].tag = c; {other} barrier(CLK_LOCAL_MEM_FENCE); x += (uint)pairs[{read}].value ^ (uint)pairs[{read}].tag; barrier(CLK_LOCAL_MEM_FENCE); }}", self.below(3) + 1),
        }
    }

    /// A kernel with this name.
    pub fn kernel(&mut self, name: &str) -> String {
        let barriers = self.kind == Kind::Groups;
        let mut body = String::new();
        for _ in 0..9 {
            let statement = self.statement();
            let _ = writeln!(body, "    {statement}");
            if barriers && self.below(3) == 0 {
                let exchange = self.exchange();
                let _ = writeln!(body, "    {exchange}");
            }
        }
        let (local, first) = if barriers {
            (LOCAL, LOCAL_BEGIN)
        } else {
            ("", "")
        };
        let text = format!(
            "kernel void {name}(global uint *out, global const uint *restrict in, global int *counts, constant int *table, uint n, pair_t given, local uint *passed)\n{{\n{local}{BEFORE}    ul = {}ul;\n{first}{body}{BEHIND}}}\n",
            self.below(1 << 40),
        );
        match self.kind {
            Kind::Alone => alone(&text),
            _ => text,
        }
    }

    /// The declarations that kernels share.
    pub fn head() -> &'static str {
        HEAD
    }
}

/// A kernel without positions in groups.
fn alone(text: &str) -> String {
    let names = [
        ("get_local_size", "get_global_size"),
        ("get_num_groups", "get_global_size"),
        ("get_local_id", "get_global_id"),
        ("get_group_id", "get_global_id"),
    ];
    let renamed = |text: String, (from, to): (&str, &str)| text.replace(from, to);
    names.into_iter().fold(text.to_owned(), renamed)
}

const HEAD: &str = r#"#pragma OPENCL FP_CONTRACT OFF
typedef struct { uint *p; uint n; char c; } part;
typedef struct { global uint *from; ushort count; } source;
typedef struct { char tag; int value; long wide; } pair_t;
typedef struct { uint words[70]; uint last; } block;
typedef struct { uchar first; short second[2]; int2 third; } entry;
typedef struct { uint a; uchar b[4]; uint2 c; } record;
typedef union { uint word; uchar part[4]; } word_parts;
typedef struct { char tag; pair_t inner; word_parts rest[2]; } nest;
typedef struct { uint head; record inner; uchar tail[4]; } outer;
typedef struct { uchar first; entry inner[2]; } list;
constant uint fixed[8] = {1, 0x80000000u, 3, 5, 7, 11, 0xffff, 13};
constant entry entries[3] = {{200, {1, -2}, {3, -4}}, {7, {-300, 400}, {-1, 9}}, {0, {5, 6}, {7, 8}}};
constant list lists[2] = {{9, {{1, {2, 3}, {4, 5}}, {6, {-7, 8}, {9, 10}}}}, {11, {{12, {13, -14}, {0, 1}}, {15, {16, 17}, {2, 3}}}}};
uint bits(float f) { return f != f ? 7u : as_uint(f); }
float small(float f) { return fabs(f) < 1e9f ? f : 1.5f; }
uint neighbor(local uint *of, uint at, uint from, uint value)
{
    of[at] = value;
    barrier(CLK_LOCAL_MEM_FENCE);
    value = of[from];
    barrier(CLK_LOCAL_MEM_FENCE);
    return value;
}
inline uint rotated(local uint *of, uint at, uint from, uint value)
{
    return neighbor(of, at, from, value) * 3 + neighbor(of, at, from, value >> 1);
}
static uint reduced(local uint *of, uint at, uint items, uint value)
{
    of[at] = value;
    for (uint by = 1; by < items; by *= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (at % (2 * by) == 0 && at + by < items) of[at] += of[at + by];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    value = of[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    return value;
}
uint mix_of(uint a, uint b) { return (a << 7 | a >> 25) ^ b * 2654435761u; }
part picked(part a, part b, uint x)
{
    if (x & 1) a.p = b.p;
    a.n += b.n ^ x;
    a.c = (char)(a.c - 1);
    return a;
}
pair_t turned(pair_t a, uint x)
{
    pair_t b = {(char)a.value, (int)(x ^ (uint)a.wide), (long)((ulong)a.wide << 5) ^ a.tag};
    return b;
}
"#;

const LOCAL: &str = "    local uint shared[16];
    local int sums[8];
    local pair_t pairs[16];
    local uint4 wide[16];
";

const LOCAL_BEGIN: &str = "    if (lid < 8) sums[lid] = (int)lid;
    wide[lid] = u4;
    if (lid == 0) for (uint i = items; i < 8; i++) sums[i] = (int)i;
    for (uint i = lid; i < 2 * items; i += items) passed[i] = i;
    barrier(CLK_LOCAL_MEM_FENCE);
";

const BEFORE: &str = r#"    pair_t pair = given;
    uint lid = get_local_id(1) * get_local_size(0) + get_local_id(0);
    uint items = get_local_size(0) * get_local_size(1);
    uint at = get_global_id(1) * get_global_size(0) + get_global_id(0);
    global uint *own = out + at * 32, *gp = own + 3;
    uint x = in[at & 63] + at, y = n ^ at, turn = 0;
    int a = (int)x >> 3;
    long l = (long)x * -77;
    ulong ul;
    char c = (char)x;
    uchar uc = (uchar)y;
    short s = (short)(x >> 5);
    ushort us = (ushort)(y >> 3);
    float f = (float)(int)(x & 0xffff) * 0.25f, g = 1.5f;
    uint4 u4 = (uint4)(x, y, at, 5);
    int4 i4 = as_int4(u4) - 3;
    uchar8 b8 = convert_uchar8((uint8)(u4, u4.wzyx));
    char3 c3 = (char3)(1, -2, c);
    ulong2 q2 = (ulong2)(x, 9);
    float4 f4 = (float4)(f, g, 0.1f, 3.0f);
    ushort16 h16 = (ushort16)(convert_ushort8(b8), (ushort8)(us));
    bool flag = x > y;
    word_parts us2[2] = {{x}, {y}};
    global record *rec = (global record *)(own + 16);
    global outer *nested = (global outer *)(own + 16);
    nest nests[2];
    uint grid[4][4] = {{1, 2}, {x, y, at}};
    uint w[16], large[80] = {0};
    block saved = {{1, 2, 3}, x};
    uint *rows[4] = {w, w + 8, w + 2, w + 5};
    char chars[16];
    long longs[4];
    part ps[4];
    source gs[2] = {{own, 1}, {own + 7, 2}};
    for (uint i = 0; i < 16; i++) {
        w[i] = i * x, chars[i] = (char)(i * y), longs[i & 3] = (long)i << 33;
        nests[i & 1].tag = c, nests[i & 1].inner = pair, nests[i & 1].rest[i >> 1 & 1].word = i;
        ps[i & 3].p = i & 1 ? w : w + 8, ps[i & 3].n = i, ps[i & 3].c = (char)(x >> i);
    }
"#;

const BEHIND: &str = r#"    uint sum = mix_of(x, y) ^ (uint)a ^ (uint)l ^ (uint)(l >> 32) ^ (uint)ul ^ (uint)(ul >> 32);
    sum = mix_of(sum, (uint)c + (uint)uc * 3 + (uint)s * 5 + (uint)us * 7);
    sum = mix_of(sum, bits(f) ^ bits(g) * 3);
    sum = mix_of(sum, u4.x ^ u4.y * 3 ^ u4.z * 5 ^ u4.w * 7);
    sum = mix_of(sum, (uint)i4.x ^ (uint)i4.y * 3 ^ (uint)i4.z * 5 ^ (uint)i4.w * 7);
    sum = mix_of(sum, as_uint2(b8).x ^ as_uint2(b8).y * 3 ^ (uint)c3.x * 5 ^ (uint)c3.y * 7 ^ (uint)c3.z * 11);
    sum = mix_of(sum, (uint)q2.x ^ (uint)(q2.x >> 32) * 3 ^ (uint)q2.y * 5 ^ (uint)(q2.y >> 32) * 7);
    sum = mix_of(sum, bits(f4.x) ^ bits(f4.y) * 3 ^ bits(f4.z) * 5 ^ bits(f4.w) * 7);
    sum = mix_of(sum, (uint)pair.tag ^ (uint)pair.value * 3 ^ (uint)pair.wide * 5 ^ (uint)(pair.wide >> 32) * 7);
    for (uint i = 0; i < 16; i++) sum = mix_of(sum, w[i] + (uint)chars[i] + (uint)longs[i & 3] + (uint)(longs[i & 3] >> 32));
    for (uint i = 0; i < 4; i++) sum = mix_of(sum, ps[i].p[i] + ps[i].n + (uint)ps[i].c + rows[i][i]);
    for (uint i = 0; i < 16; i++) sum = mix_of(sum, large[i] ^ saved.words[i] ^ saved.last);
    for (uint i = 0; i < 4; i++) sum = mix_of(sum, grid[i][0] ^ grid[1][i] ^ grid[i][i] ^ us2[i & 1].word);
    sum = mix_of(sum, as_uint4(h16.lo).x ^ as_uint4(h16.hi).w * 3 ^ as_uint4(h16.even).y * 5 ^ (uint)flag);
    for (uint i = 0; i < 2; i++) {
        sum = mix_of(sum, (uint)nests[i].tag ^ (uint)nests[i].inner.tag * 3 ^ (uint)nests[i].inner.value * 5);
        sum = mix_of(sum, (uint)nests[i].inner.wide ^ nests[i].rest[0].word * 3 ^ nests[i].rest[1].word * 5);
    }
    for (uint i = 0; i < 2; i++) sum = mix_of(sum, gs[i].from[i] + gs[i].count);
    own[31] = sum;
"#;
