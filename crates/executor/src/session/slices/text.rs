//! Determines from a program's source whether its kernels can run in slices, and makes the text by
//! which a kernel of a slice sees the whole launch.
//!
//! A slice is a launch with another global offset and size. `get_global_id` is right in it; the
//! functions that report the launch's sizes and group numbers are not, and are replaced by functions
//! that return those of the whole launch, which are constants.

/// Functions whose results differ between a slice and the whole launch.
const OF_THE_LAUNCH: &[&str] = &[
    "get_global_size",
    "get_global_offset",
    "get_global_linear_id",
    "get_num_groups",
    "get_group_id",
];

/// Of these, those that depend on the groups.
const OF_THE_GROUPS: &[&str] = &["get_num_groups", "get_group_id"];

/// Names that work-groups need to exchange values with others, or whose meaning this file does not
/// cover. A program with any of them is launched whole: a group may wait for another one, which a
/// later slice would start.
const WHOLE: &[&str] = &[
    "volatile",
    "pipe",
    "channel",
    "asm",
    "ndrange_t",
    "##",
    "CLK_GLOBAL_MEM_FENCE",
    "CLK_IMAGE_MEM_FENCE",
];

/// Barriers of a group. After one that is not of local memory alone, values of other groups may be
/// read again.
const BARRIERS: &[&[u8]] = &[b"barrier", b"work_group_barrier"];

/// Starts of such names.
const WHOLE_STARTS: &[&str] = &[
    "atom_",
    "atomic",
    "mem_fence",
    "read_mem_fence",
    "write_mem_fence",
    "read_pipe",
    "write_pipe",
    "read_channel",
    "write_channel",
    "enqueue_",
    "__",
];

/// Names that begin as those of [`WHOLE_STARTS`] and are harmless.
const HARMLESS: &[&str] = &[
    "__kernel",
    "__global",
    "__local",
    "__constant",
    "__private",
    "__read_only",
    "__write_only",
    "__attribute__",
    "__restrict",
    "__restrict__",
    "__const",
    "__inline",
    "__inline__",
    "__OPENCL_VERSION__",
    "__OPENCL_C_VERSION__",
    "__ENDIAN_LITTLE__",
    "__IMAGE_SUPPORT__",
    "__FAST_RELAXED_MATH__",
];

/// The ways in which launches of a program's kernels can be divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Text {
    /// They can be divided at all.
    pub divides: bool,
    /// Its functions of the launch have to be replaced.
    pub reads_launch: bool,
    /// It reads numbers of groups.
    pub reads_groups: bool,
    /// It uses the size of a group, or numbers within it.
    pub reads_local: bool,
}

impl Text {
    /// Of a program with this source, whose build has these options and files. A file without a name
    /// is the source.
    pub fn of(source: &[u8], options: &str, files: &[(&str, &[u8])]) -> Text {
        let mut text = Text {
            divides: true,
            ..Text::default()
        };
        text.read(source);
        for (_, file) in files {
            text.read(file);
        }
        let by_source = text.reads_launch;
        text.reads_launch = false;
        text.read(options.as_bytes());
        // Names that options define or use cannot be replaced.
        text.divides &= !text.reads_launch;
        text.reads_launch = by_source;
        // The files of a build are gone by the time of the next one.
        let has_files = files.iter().any(|(path, _)| !path.is_empty());
        text.divides &= !(text.reads_launch && has_files);
        text
    }

    fn read(&mut self, source: &[u8]) {
        let mut before: &[u8] = b"";
        for word in Words(source) {
            let name = std::str::from_utf8(word).unwrap_or("__");
            let starts = |start: &&str| name.starts_with(start);
            let is_whole = WHOLE.contains(&name)
                || WHOLE_STARTS.iter().any(starts) && !HARMLESS.contains(&name)
                // A name that a line's end divides.
                || name.len() > 1 && name.contains('\\')
                || BARRIERS.contains(&before) && name != "CLK_LOCAL_MEM_FENCE";
            self.divides &= !is_whole;
            if OF_THE_LAUNCH.contains(&name) {
                self.reads_launch = true;
                self.reads_groups |= OF_THE_GROUPS.contains(&name);
                self.divides &= !matches!(before, b"define" | b"undef");
            }
            self.reads_local |= name.starts_with("get_local")
                || name.starts_with("get_enqueued_local")
                || name.contains("sub_group")
                || name.starts_with("work_group_");
            before = word;
        }
    }
}

/// The names in a program, and `##`, which makes names that the text does not show; without those in
/// comments and strings.
struct Words<'a>(&'a [u8]);

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            let rest = self.0;
            let is_name = |byte: &u8| {
                byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'\\') || *byte >= 0x80
            };
            match rest {
                [] => return None,
                [b'/', b'/', ..] => self.0 = after(rest, b"\n"),
                [b'/', b'*', body @ ..] => self.0 = after(body, b"*/"),
                [quote @ (b'"' | b'\''), body @ ..] => self.0 = after_text(body, *quote),
                [b'#', b'#', body @ ..] => {
                    self.0 = body;
                    return Some(&rest[..2]);
                }
                [first, ..] if is_name(first) => {
                    let end = rest.iter().position(|byte| !is_name(byte));
                    let (word, rest) = rest.split_at(end.unwrap_or(rest.len()));
                    self.0 = rest;
                    return Some(word);
                }
                [_, body @ ..] => self.0 = body,
            }
        }
    }
}

fn after<'a>(text: &'a [u8], end: &[u8]) -> &'a [u8] {
    let at = text.windows(end.len()).position(|window| window == end);
    at.map_or(&[], |at| &text[at + end.len()..])
}

fn after_text(mut text: &[u8], quote: u8) -> &[u8] {
    loop {
        match text {
            [] => return text,
            [b'\\', _, rest @ ..] => text = rest,
            // Not closed: the driver has accepted it, perhaps within what it skips.
            [b'\n', rest @ ..] => return rest,
            [first, rest @ ..] => {
                text = rest;
                if *first == quote {
                    return text;
                }
            }
        }
    }
}

/// A launch, as its slices have to see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Its dimensions, 1 to 3.
    pub dimensions: usize,
    /// Its global offset.
    pub offset: [u64; 3],
    /// Its global size.
    pub global: [u64; 3],
    /// Its group's size; zeros: the driver chooses.
    pub local: [u64; 3],
    /// The dimension that is divided.
    pub axis: usize,
}

impl Geometry {
    /// Text to put before the program's, on one line.
    pub fn prelude(&self) -> String {
        let used = |at: usize| at < self.dimensions;
        let each = |name: &str, value: &dyn Fn(usize) -> u64, beyond: u64| {
            let value = |at| if used(at) { value(at) } else { beyond };
            let [x, y, z] = [0, 1, 2].map(value);
            format!(
                "size_t baltra_{name}(uint d); size_t baltra_{name}(uint d) {{ \
                 return d == 0 ? (size_t){x}ul : d == 1 ? (size_t){y}ul : d == 2 ? (size_t){z}ul : (size_t){beyond}ul; }} "
            )
        };
        let groups = |at: usize| match self.local[at] {
            0 => 1,
            side => self.global[at].div_ceil(side),
        };
        let (axis, first) = (self.axis, self.offset[self.axis]);
        let side = self.local[axis].max(1);
        let id = |at: usize| {
            let offset = self.offset[at];
            format!("(get_global_id({at}) - (size_t){offset}ul)")
        };
        let [width, height, _] = self.global;
        let linear = match self.dimensions {
            1 => id(0),
            2 => format!("{} * (size_t){width}ul + {}", id(1), id(0)),
            _ => format!(
                "({} * (size_t){height}ul + {}) * (size_t){width}ul + {}",
                id(2),
                id(1),
                id(0)
            ),
        };
        [
            each("global_size", &|at| self.global[at], 1),
            each("global_offset", &|at| self.offset[at], 0),
            each("num_groups", &groups, 1),
            format!(
                "size_t baltra_group_id(uint d); size_t baltra_group_id(uint d) {{ \
                 return get_group_id(d) + (d == {axis} ? \
                 (get_global_offset({axis}) - (size_t){first}ul) / (size_t){side}ul : 0); }} "
            ),
            format!(
                "size_t baltra_linear_id(void); size_t baltra_linear_id(void) {{ return {linear}; }}\n"
            ),
            "#define get_global_size(d) baltra_global_size(d)\n".into(),
            "#define get_global_offset(d) baltra_global_offset(d)\n".into(),
            "#define get_num_groups(d) baltra_num_groups(d)\n".into(),
            "#define get_group_id(d) baltra_group_id(d)\n".into(),
            "#define get_global_linear_id() baltra_linear_id()\n".into(),
            "#line 1\n".into(),
        ]
        .concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divides(source: &str) -> Text {
        Text::of(source.as_bytes(), "", &[])
    }

    #[test]
    fn what_a_slice_cannot_compute_is_found() {
        let plain = divides("__kernel void k(__global int *a) { a[get_global_id(0)] = 1; }");
        let expected = Text {
            divides: true,
            ..Text::default()
        };
        assert_eq!(plain, expected);
        for whole in [
            "volatile global int *p;",
            "atomic_inc(p);",
            "x = atom_add(p, 1);",
            "asm(\"mov\");",
            "__nvvm_read_ptx_sreg_ctaid_x();",
            "#define GLUE(a, b) a ## b",
            "vola\\\ntile int x;",
            "mem_fence(CLK_GLOBAL_MEM_FENCE);",
            "while (!flag[0]) barrier(CLK_GLOBAL_MEM_FENCE);",
            "work_group_barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
            "barrier(3);",
            "barrier(FENCES);",
            "pipe int p",
            "#define get_group_id(x) 0",
            "#undef get_global_size",
            "/* a */ volatile",
            "'\"' volatile '\"'",
        ] {
            assert!(!divides(whole).divides, "{whole}");
        }
        for part in [
            "// volatile\nint x;",
            "/* atomic_inc */ int channels, pipes;",
            "barrier(CLK_LOCAL_MEM_FENCE); x = 1;",
            "printf(\"volatile \\\" asm\");",
        ] {
            assert!(divides(part).divides, "{part}");
        }
        let sizes = divides("n = get_global_size(0) + get_num_groups(1);");
        assert!(sizes.divides && sizes.reads_launch && sizes.reads_groups && !sizes.reads_local);
        assert!(divides("get_local_id(0)").reads_local);
        // Options and included files count, too.
        let with = |options: &str, files: &[(&str, &[u8])]| Text::of(b"int x;", options, files);
        assert!(!with("-DA=volatile", &[]).divides);
        assert!(!with("-DN=get_group_id(0)", &[]).divides);
        assert!(with("-DN=4", &[("a.h", b"int y;")]).divides);
        assert!(!with("", &[("a.h", b"int y = get_group_id(0);")]).divides);
        assert!(!with("", &[("", b"volatile")]).divides);
    }
}
