//! Metadata nodes: source positions, names of variables, and type-based alias analysis.

use super::cursor::Cursor;
use crate::error::Position;
use std::collections::HashMap;

/// File-name prefixes of library code, whose instructions get the position of the call in the
/// program: of the message library, and of OpenCL's built-in functions (`opencl/clang.rs`).
const LIBRARIES: [&str; 2] = ["humboldt/fabric/", "baltra_"];
/// Scopes are nested less deeply than this.
const SCOPES_MAX: usize = 100;

/// A metadata node: its kind, and its fields as text.
struct Node<'a> {
    kind: &'a str,
    fields: HashMap<&'a str, &'a str>,
}

/// The nodes of a module by their numbers.
#[derive(Default)]
pub struct Metadata<'a> {
    nodes: HashMap<&'a str, Node<'a>>,
}

impl<'a> Metadata<'a> {
    /// Adds the node of a line, without its `!`.
    pub fn add(&mut self, line: &'a str) {
        if let Some((id, text)) = line.split_once(" = ") {
            self.nodes.insert(id, Node::new(text));
        }
    }

    fn field(&self, id: &str, name: &str) -> Option<&'a str> {
        self.nodes.get(id)?.fields.get(name).copied()
    }

    /// The source position that the `!dbg` of a line refers to.
    pub fn position(&self, line: &str) -> Position {
        let Some((_, rest)) = line.rsplit_once("!dbg !") else {
            return Position::default();
        };
        let mut id = Cursor::new(rest).word();
        let Some(mut line) = self.field(id, "line") else {
            return Position::default();
        };
        // Code that was inlined from the library has the position of the program's call of it.
        let mut outermost = id;
        while let Some(next) = self.field(outermost, "inlinedAt") {
            if !self.is_library(outermost) {
                break;
            }
            outermost = next.trim_start_matches('!');
        }
        if !self.is_library(outermost) {
            id = outermost;
            line = self.field(id, "line").unwrap_or(line);
        }
        Position {
            file: self.file(id).to_owned(),
            line: line.parse().unwrap_or(0),
        }
    }

    /// The source position of a global variable's line.
    pub fn position_of_global(&self, line: &str) -> Position {
        let expression = line.rsplit_once("!dbg !").map(|(_, rest)| rest);
        let variable = expression
            .and_then(|rest| self.field(Cursor::new(rest).word(), "var"))
            .unwrap_or_default();
        self.position(&format!("!dbg {variable}"))
    }

    fn is_library(&self, id: &str) -> bool {
        let file = self.file(id);
        LIBRARIES.iter().any(|library| file.contains(library))
    }

    /// The file of a node or its innermost scope that has one; empty if none has.
    fn file(&self, id: &str) -> &'a str {
        let mut id = id;
        for _ in 0..SCOPES_MAX {
            if let Some(file) = self.field(id, "file") {
                let name = self.field(file.trim_start_matches('!'), "filename");
                return name.unwrap_or("").trim_matches('"');
            }
            match self.field(id, "scope") {
                Some(scope) => id = scope.trim_start_matches('!'),
                None => break,
            }
        }
        ""
    }

    /// The name of a source variable.
    pub fn variable(&self, id: &str) -> Option<&'a str> {
        let node = self.nodes.get(id).filter(|n| n.kind == "DILocalVariable")?;
        node.fields.get("name").map(|name| name.trim_matches('"'))
    }

    /// Whether the load or store of this line accesses an object of an arithmetic type, by its tag
    /// of type-based alias analysis.
    pub fn is_numeric(&self, line: &str) -> bool {
        let node = |id: &str| self.nodes.get(id.trim_start_matches('!')).map(|n| n.kind);
        let Some((_, rest)) = line.split_once("!tbaa !") else {
            return false;
        };
        // The tag: base type, access type, offset of the access in the base type.
        let tag = node(Cursor::new(rest).word());
        let access = tag.and_then(|kind| kind.split(", ").nth(1)).and_then(node);
        access.is_some_and(|kind| {
            let name = kind.trim_start_matches("{!\"").split('"').next();
            name.is_some_and(|n| !n.is_empty() && !["omnipotent char", "any pointer"].contains(&n))
        })
    }
}

impl<'a> Node<'a> {
    fn new(text: &'a str) -> Node<'a> {
        let text = text.trim_start_matches("distinct ").trim_start_matches('!');
        let (kind, rest) = text.split_once('(').unwrap_or((text, ""));
        let rest = rest.trim_end_matches(')');
        // Commas in quotes are part of a string.
        let (mut quoted, mut from) = (false, 0);
        let mut pieces = Vec::new();
        for (i, c) in rest.char_indices() {
            match c {
                '"' => quoted = !quoted,
                ',' if !quoted => {
                    pieces.push(&rest[from..i]);
                    from = i + 1;
                }
                _ => {}
            }
        }
        pieces.push(&rest[from..]);
        let fields = pieces
            .into_iter()
            .filter_map(|piece| piece.split_once(": "))
            .map(|(name, value)| (name.trim(), value.trim()))
            .collect();
        Node { kind, fields }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inlined_library_code_has_the_position_of_its_call() {
        let mut metadata = Metadata::default();
        for node in [
            "1 = !DIFile(filename: \"k.c\", directory: \"/\")",
            "2 = !DIFile(filename: \"humboldt/fabric/hls.c\", directory: \"/a, b\")",
            "3 = distinct !DISubprogram(name: \"main\", file: !1, line: 3)",
            "4 = distinct !DISubprogram(name: \"send\", file: !2, line: 40)",
            "5 = !DILocation(line: 7, column: 3, scope: !3)",
            "6 = !DILocation(line: 44, column: 3, scope: !4, inlinedAt: !5)",
        ] {
            metadata.add(node);
        }
        let position = metadata.position("  ret void, !dbg !6");
        assert_eq!((position.file.as_str(), position.line), ("k.c", 7));
        assert!(metadata.position("  ret void").is_unknown());
    }
}
