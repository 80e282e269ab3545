//! Writes the canonical form: XML, with the element names of 2019, an indentation of two blanks,
//! and known elements first in a fixed order.

use crate::model::{Logical, Map, NodeKind};
use crate::tree::Element;
use std::fmt::Write;

struct Xml(String);

impl Xml {
    fn new() -> Xml {
        Xml("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<cluster>\n".to_owned())
    }

    fn text(&mut self, level: usize, name: &str, text: &str) {
        let pad = "  ".repeat(level);
        let _ = if text.is_empty() {
            writeln!(self.0, "{pad}<{name}/>")
        } else {
            writeln!(self.0, "{pad}<{name}>{}</{name}>", escaped(text))
        };
    }

    fn open(&mut self, level: usize, name: &str, text: &str) {
        let _ = if text.is_empty() {
            writeln!(self.0, "{}<{name}>", "  ".repeat(level))
        } else {
            writeln!(self.0, "{}<{name}>{}", "  ".repeat(level), escaped(text))
        };
    }

    fn close(&mut self, level: usize, name: &str) {
        let _ = writeln!(self.0, "{}</{name}>", "  ".repeat(level));
    }

    fn any(&mut self, level: usize, element: &Element) {
        let name = tag(&element.name);
        if element.children.is_empty() {
            return self.text(level, &name, &element.text);
        }
        self.open(level, &name, &element.text);
        for child in &element.children {
            self.any(level + 1, child);
        }
        self.close(level, &name);
    }

    fn end(mut self, rest: &[Element]) -> String {
        for element in rest {
            self.any(1, element);
        }
        self.0.push_str("</cluster>\n");
        self.0
    }
}

/// Converts a name from JSON or YAML to one that XML allows.
fn tag(name: &str) -> String {
    let mut tag: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '_' {
                c
            } else {
                '_'
            }
        })
        .collect();
    if !tag.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        tag.insert(0, '_');
    }
    tag
}

/// Escapes text for XML.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
    {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {}
            c => out.push(c),
        }
    }
    out
}

pub fn logical(logical: &Logical) -> String {
    let mut xml = Xml::new();
    for kernel in &logical.kernels {
        xml.open(1, "kernel", &kernel.name);
        xml.text(2, "num", &kernel.num.to_string());
        xml.text(2, "rep", &kernel.rep.to_string());
        for source in &kernel.sources {
            xml.text(2, "source", source);
        }
        if let Some(args) = &kernel.args {
            xml.text(2, "args", &args.join(" "));
        }
        for port in &kernel.ports {
            xml.open(2, &port.kind, "");
            xml.text(3, "scope", &port.scope);
            xml.text(3, "name", &port.name);
            if port.debug {
                xml.text(3, "debug", "");
            }
            if let Some(bytes) = port.bytes {
                xml.text(3, "bytes", &bytes.to_string());
            }
            xml.close(2, &port.kind);
        }
        for (name, value, width) in &kernel.constants {
            xml.open(2, "const", "");
            xml.text(3, "name", name);
            xml.text(3, "val", value);
            if let Some(width) = width {
                xml.text(3, "width", &width.to_string());
            }
            xml.close(2, "const");
        }
        for element in &kernel.rest {
            xml.any(2, element);
        }
        xml.close(1, "kernel");
    }
    xml.end(&logical.rest)
}

pub fn map(map: &Map) -> String {
    let mut xml = Xml::new();
    for node in &map.nodes {
        xml.open(1, "node", "");
        xml.text(
            2,
            "type",
            if node.kind == NodeKind::Software {
                "sw"
            } else {
                "hw"
            },
        );
        if let Some(board) = &node.board {
            xml.text(2, "board", board);
        }
        if let Some(comm) = node.comm {
            xml.text(2, "comm", comm.word());
        }
        if let Some(mac) = &node.mac {
            xml.text(2, "mac", mac);
        }
        if let Some(ip) = &node.ip {
            xml.text(2, "ip", &ip.to_string());
        }
        if let Some(http) = &node.http {
            xml.text(2, "http", &http.to_string());
        }
        if !node.bridge.is_empty() {
            xml.open(2, "app_bridge", "");
            for (role, name) in &node.bridge {
                xml.text(3, &tag(role), name);
            }
            xml.close(2, "app_bridge");
        }
        for place in &node.kernels {
            if place.slr.is_none() && place.form.is_none() {
                xml.text(2, "kernel", &place.kernel.to_string());
                continue;
            }
            xml.open(2, "kernel", "");
            xml.text(3, "num", &place.kernel.to_string());
            for (tag, text) in [("slr", &place.slr), ("type", &place.form)] {
                if let Some(text) = text {
                    xml.text(3, tag, text);
                }
            }
            xml.close(2, "kernel");
        }
        for element in &node.rest {
            xml.any(2, element);
        }
        xml.close(1, "node");
    }
    xml.end(&map.rest)
}
