//! Users' kernels in RTL: the wrapper module that connects them to the board, generated from the
//! source and the logical file.
//!
//! A source that includes `msg_kernel_ports.svh` sends and receives messages through engines, as
//! `msg_echo` does. Any other source has AXI4-Streams, named in the logical file or `in` and `out`,
//! and `msg_axis` connects them to the router without engines.

use crate::model::{Cluster, Kernel};
use anyhow::{ensure, Context, Result};
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

/// A kernel's module for the board.
#[derive(Clone, Debug)]
pub struct Module {
    /// Its text, in SystemVerilog.
    pub text: String,
    /// Whether the module has streams instead of the engines' ports.
    pub streams: bool,
    /// Further Verilog sources of the module.
    pub sources: Vec<PathBuf>,
}

/// Generates the wrapper module `outer` around the kernel's own module.
///
/// # Errors
///
/// A source cannot be read, or lacks the kernel's module, its clock or a required signal of a
/// stream.
pub(crate) fn module(
    cluster: &Cluster,
    kernel: &Kernel,
    outer: &str,
    sources: Vec<PathBuf>,
) -> Result<Module> {
    let mut text = String::new();
    for path in &sources {
        text += &fs::read_to_string(path).with_context(|| {
            format!(
                "{}:{}: kernel '{}': cannot read the source {} (set it with <source>)",
                cluster.logical.path.display(),
                kernel.line,
                kernel.name,
                path.display()
            )
        })?;
        text.push('\n');
    }
    let source = Source {
        place: format!(
            "{}:{}: kernel '{}' in RTL",
            cluster.logical.path.display(),
            kernel.line,
            kernel.name
        ),
        text: without_comments(&text),
    };
    source.must_have(&kernel.name, "a module of its name")?;
    let (parameters, ports) = source.constants(kernel)?;
    let inner = &kernel.name;
    if source.text.contains("msg_kernel_ports.svh") {
        return Ok(Module {
            text: format!(
                "module {outer}\n  import msg_pkg::*;\n(\n`include \"msg_kernel_ports.svh\"\n);\n  \
                 {inner} {parameters}u_kernel ({ports}.*);\nendmodule\n"
            ),
            streams: false,
            sources,
        });
    }
    ensure!(
        kernel.memory().is_none(),
        "{}: a kernel with streams cannot have off-chip memory (m_axi): use message ports",
        source.place
    );
    Ok(Module {
        text: format!(
            "module {outer} (\n`include \"msg_stream_ports.svh\"\n);\n{}  // Widths are its own business.\n  \
             /* verilator lint_off WIDTH */\n  {inner} {parameters}u_kernel ({ports}{});\n  /* verilator lint_on WIDTH */\nendmodule\n",
            source.defaults(kernel),
            source.streams(kernel)?
        ),
        streams: true,
        sources,
    })
}

/// Signals of the output stream: name, whether it is required, and the default.
const OUT: &[(&str, bool, &str)] = &[
    ("tvalid", true, ""),
    ("tready", true, ""),
    ("tdata", true, ""),
    ("tdest", true, ""),
    ("tlast", false, "1'b1"),
    ("tkeep", false, "'1"),
    ("tuser", false, "'0"),
];
/// Signals of the input stream.
const IN: &[(&str, bool, &str)] = &[
    ("tvalid", true, ""),
    ("tready", true, ""),
    ("tdata", true, ""),
    ("tlast", false, ""),
    ("tkeep", false, ""),
    ("tid", false, ""),
    ("tuser", false, ""),
];

struct Source {
    /// The kernel's file, line and name, for errors.
    place: String,
    text: String,
}

impl Source {
    /// Whether the source contains a name as a separate word.
    fn has(&self, name: &str) -> bool {
        has_word(&self.text, name)
    }

    fn must_have(&self, name: &str, what: &str) -> Result<()> {
        ensure!(self.has(name), "{} lacks {what}: {name}", self.place);
        Ok(())
    }

    /// The name from the logical file, or the first of the usual names that the source contains.
    fn named(&self, kernel: &Kernel, element: &str, usual: &[&str]) -> Option<String> {
        let place = kernel.rest.iter().find(|e| e.is(element));
        let place = place.map(|e| e.text.trim().to_owned());
        place.or_else(|| (usual.iter().find(|name| self.has(name))).map(|name| (*name).to_owned()))
    }

    /// A signal of a stream, in lower case or, as high-level synthesis tools write it, in capitals.
    fn signal(&self, stream: &str, signal: &str) -> Option<String> {
        let capitals = signal.to_ascii_uppercase();
        [signal, &capitals]
            .map(|s| format!("{stream}_{s}"))
            .into_iter()
            .find(|name| self.has(name))
    }

    /// The logical file's constants: parameters of the instance, and ports with constant values.
    fn constants(&self, kernel: &Kernel) -> Result<(String, String)> {
        let (mut parameters, mut ports) = (String::new(), String::new());
        for (name, value, width) in &kernel.constants {
            self.must_have(name, "a parameter or port for a constant")?;
            let is_number = value.parse::<i64>().is_ok();
            ensure!(
                is_number,
                "{}: constant {name} must be a number, not '{value}'",
                self.place
            );
            if self.is_parameter(name) {
                let comma = if parameters.is_empty() { "" } else { ", " };
                write!(parameters, "{comma}.{name}({value})").context("text")?;
            } else {
                let width = width.unwrap_or(32);
                write!(ports, ".{name}({width}'({value})), ").context("text")?;
            }
        }
        if !parameters.is_empty() {
            parameters = format!("#({parameters}) ");
        }
        Ok((parameters, ports))
    }

    /// Whether the source declares a name as a parameter.
    fn is_parameter(&self, name: &str) -> bool {
        self.text.split("parameter").skip(1).any(|declared| {
            let end = declared.find([',', ';', ')', '=']);
            has_word(&declared[..end.unwrap_or(declared.len())], name)
        })
    }

    fn stream_of(kernel: &Kernel, kind: &str, usual: &str) -> String {
        let port = kernel.ports.iter().find(|p| p.kind == kind);
        match port {
            Some(port) if !port.name.is_empty() => port.name.clone(),
            _ => usual.to_owned(),
        }
    }

    /// Assignments of the signals that the kernel's module does not drive.
    fn defaults(&self, kernel: &Kernel) -> String {
        let stream = Self::stream_of(kernel, "m_axis", "out");
        let missing = OUT.iter().filter(|s| self.signal(&stream, s.0).is_none());
        let mut text: String = missing
            .map(|(signal, _, value)| format!("  assign out_{signal} = {value};\n"))
            .collect();
        if !self.has("idle") {
            // The kernel has no signal for idleness.
            text += "  assign kernel_idle = 1'b0;\n";
        }
        text
    }

    fn streams(&self, kernel: &Kernel) -> Result<String> {
        let mut ports = Vec::new();
        let clock = self.named(kernel, "clk", &["clk", "aclk", "ap_clk"]);
        let clock = clock.with_context(|| format!("{} lacks a clock: clk", self.place))?;
        self.must_have(&clock, "its clock")?;
        ports.push(format!(".{clock}(clk)"));
        if let Some(low) = self.named(kernel, "aresetn", &["aresetn", "ap_rst_n"]) {
            self.must_have(&low, "its reset")?;
            ports.push(format!(".{low}(!rst)"));
        } else if self.has("rst") {
            ports.push(".rst(rst)".to_owned());
        }
        if let Some(id) = self.named(kernel, "id_port", &["id"]) {
            self.must_have(&id, "its number's port")?;
            ports.push(format!(".{id}(own)"));
        }
        if self.has("idle") {
            ports.push(".idle(kernel_idle)".to_owned());
        }
        for (kind, usual, signals) in [("m_axis", "out", OUT), ("s_axis", "in", IN)] {
            let stream = Self::stream_of(kernel, kind, usual);
            for (signal, must, _) in signals {
                match self.signal(&stream, signal) {
                    Some(name) => ports.push(format!(".{name}({usual}_{signal})")),
                    None if *must => self.must_have(
                        &format!("{stream}_{signal}"),
                        &format!("a signal of its stream <{kind}>"),
                    )?,
                    None => {}
                }
            }
        }
        Ok(ports.join(", "))
    }
}

fn has_word(text: &str, name: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
    !name.is_empty() && text.split(|c| !part(c)).any(|word| word == name)
}

/// Verilog without its comments.
fn without_comments(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('/') {
        plain.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = match rest.as_bytes().get(1) {
            Some(b'/') => rest.find('\n'),
            Some(b'*') => rest[2..].find("*/").map(|end| end + 4),
            _ => {
                plain.push('/');
                rest = &rest[1..];
                continue;
            }
        };
        plain.push(' ');
        rest = &rest[end.unwrap_or(rest.len())..];
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source {
            place: "k".to_owned(),
            text: without_comments(text),
        }
    }

    #[test]
    fn comments_and_parts_of_words_are_no_names() {
        let source = source("a / b // clk\n/* rst */ in_tdata, // x");
        assert!(source.has("a") && source.has("b") && source.has("in_tdata"));
        assert!(!source.has("clk") && !source.has("rst") && !source.has("tdata"));
        assert_eq!(without_comments("a/*"), "a ");
        assert_eq!(without_comments("a//"), "a ");
    }

    #[test]
    fn parameters_and_ports_are_distinguished() {
        let source = source("module k #(parameter int A = 1, parameter B = A) (input [7:0] C);");
        assert!(source.is_parameter("A") && source.is_parameter("B"));
        assert!(!source.is_parameter("C"));
    }

    #[test]
    fn signals_of_both_spellings_are_found() {
        let source = source("input s_TVALID, input t_tvalid");
        assert_eq!(source.signal("s", "tvalid").as_deref(), Some("s_TVALID"));
        assert_eq!(source.signal("t", "tvalid").as_deref(), Some("t_tvalid"));
        assert_eq!(source.signal("u", "tvalid"), None);
    }
}
