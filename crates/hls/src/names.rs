//! Unique SystemVerilog identifiers.

use std::collections::HashSet;

const TAKEN: &[&str] = &[
    "always",
    "and",
    "assert",
    "assign",
    "begin",
    "bit",
    "break",
    "buf",
    "byte",
    "case",
    "cell",
    "chandle",
    "checker",
    "class",
    "const",
    "context",
    "continue",
    "cover",
    "deassign",
    "default",
    "design",
    "disable",
    "dist",
    "do",
    "edge",
    "else",
    "end",
    "enum",
    "event",
    "expect",
    "export",
    "extends",
    "extern",
    "final",
    "first_match",
    "for",
    "force",
    "foreach",
    "forever",
    "fork",
    "function",
    "generate",
    "genvar",
    "global",
    "if",
    "iff",
    "ifnone",
    "implements",
    "implies",
    "import",
    "include",
    "initial",
    "inout",
    "input",
    "inside",
    "instance",
    "int",
    "integer",
    "interface",
    "intersect",
    "join",
    "large",
    "let",
    "liblist",
    "library",
    "local",
    "localparam",
    "logic",
    "longint",
    "macromodule",
    "matches",
    "medium",
    "modport",
    "module",
    "nand",
    "negedge",
    "new",
    "nor",
    "not",
    "null",
    "or",
    "output",
    "package",
    "packed",
    "parameter",
    "posedge",
    "primitive",
    "priority",
    "program",
    "property",
    "protected",
    "pull0",
    "pull1",
    "pure",
    "rand",
    "randc",
    "randcase",
    "real",
    "ref",
    "reg",
    "release",
    "repeat",
    "restrict",
    "return",
    "scalared",
    "sequence",
    "shortint",
    "shortreal",
    "signed",
    "small",
    "soft",
    "solve",
    "specify",
    "static",
    "string",
    "strong",
    "struct",
    "super",
    "supply0",
    "supply1",
    "table",
    "tagged",
    "task",
    "this",
    "throughout",
    "time",
    "timeprecision",
    "timeunit",
    "tran",
    "tri",
    "type",
    "typedef",
    "union",
    "unique",
    "unsigned",
    "until",
    "use",
    "var",
    "vectored",
    "virtual",
    "void",
    "wait",
    "weak",
    "while",
    "wildcard",
    "wire",
    "with",
    "within",
    "wor",
    "xnor",
    "xor",
    // Names of the module's ports and fixed declarations.
    "clk",
    "rst",
    "own",
    "ranks",
    "load_valid",
    "load_address",
    "load_data",
    "send_valid",
    "send_ready",
    "send_command",
    "out_valid",
    "out_ready",
    "out_data",
    "send_done",
    "send_fault",
    "receive_valid",
    "receive_ready",
    "receive_command",
    "in_valid",
    "in_ready",
    "in_data",
    "receive_done",
    "receive_outcome",
    "text_valid",
    "text",
    "ended",
    "code",
    "asleep",
    "state",
    "state_t",
    "step",
    "call",
    "call_t",
    "call_command",
    "call_bytes",
    "call_data",
    "port_ready",
    "port_reads",
    "port_addresses",
    "port_words",
    "readers_ready",
    "u_readers",
    "fetch_valid",
    "fetch_ready",
    "fetch_buffer",
    "fetch_line",
    "fetch_bytes",
    "fetch_skews",
    "fetched_valid",
    "fetched_word",
    "fetched_last",
    "read_fault",
    "read_address",
    "port_there",
    "port_fault",
    "port_outcome",
    "port_cycles",
    "beats",
    "i",
    "b",
    "send_t",
    "receive_t",
    "outcome_t",
    "beat_t",
    "arg_valid",
    "arg_index",
    "arg_data",
    "start",
    "done",
    "status",
    "print_valid",
    "print_ready",
    "print_data",
    "mem_valid",
    "mem_ready",
    "mem_address",
    "mem_strobe",
    "mem_data",
    "mem_word",
    "mem_fault",
    "u_calls",
    "CallNone",
    "CallStart",
    "CallEnd",
    "CallText",
    "CallLoad",
    "CallStore",
    "mem_go",
    "mem_answer",
    "port_word",
];

/// The identifiers in use.
pub struct Names(HashSet<String>);

impl Names {
    pub fn new() -> Names {
        Names(TAKEN.iter().map(|t| (*t).to_owned()).collect())
    }

    /// Returns an unused identifier that resembles the given name.
    pub fn new_name(&mut self, like: &str) -> String {
        let mut plain: String = like
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .collect();
        // LLVM's inliner appends `.i`.
        while let Some(shorter) = plain.strip_suffix("_i").filter(|s| !s.is_empty()) {
            plain = shorter.to_owned();
        }
        let plain = plain.trim_matches('_').to_owned();
        let plain = match plain.chars().next() {
            Some(c) if c.is_ascii_digit() => format!("v{plain}"),
            None => "v".to_owned(),
            _ => plain,
        };
        let mut name = plain.clone();
        let mut n = 2;
        // Endings that the emitter appends (NAME_d, NAME_p3) are reserved.
        while self.0.contains(&name) || ending(&name) || is_numbered(&name) {
            name = format!("{plain}_{n}");
            n += 1;
        }
        self.0.insert(name.clone());
        name
    }
}

/// Whether it is the name of a word of the argument block, or of a port of a load.
fn is_numbered(name: &str) -> bool {
    ["argument_", "port_word_"].iter().any(|prefix| {
        let number = name.strip_prefix(prefix);
        number.is_some_and(|n| n.parse::<u32>().is_ok())
    })
}

fn ending(name: &str) -> bool {
    let Some((_, end)) = name.rsplit_once('_') else {
        return false;
    };
    let stage = end
        .strip_prefix('p')
        .is_some_and(|n| !n.is_empty() && n.chars().all(|c| c.is_ascii_digit()));
    stage
        || [
            "d",
            "q",
            "lane",
            "valid",
            "less",
            "equal",
            "unordered",
            "return",
            "result",
            "a",
            "y",
        ]
        .contains(&end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_names_are_unique_and_legal() {
        let mut names = Names::new();
        for (like, name) in [
            ("x", "x"),
            ("x", "x_2"),
            ("x.i.i", "x_3"),
            ("7", "v7"),
            ("always", "always_2"),
            ("sum_d", "sum_d_2"),
            ("sum_p3", "sum_p3_2"),
            ("argument_1033", "argument_1033_2"),
            ("port_word_0", "port_word_0_2"),
        ] {
            assert_eq!(names.new_name(like), name, "{like}");
        }
    }
}
