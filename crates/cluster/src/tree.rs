//! Parses a file into a tree of named elements with their lines: XML, or JSON and YAML, in which a
//! list under a name stands for one element of that name per item.

use granit_parser::{Event, Parser};

/// Limits of a file; larger or deeper ones are rejected before they consume memory.
pub const FILE_BYTES_MAX: u64 = 4 << 20;
const DEPTH_MAX: usize = 64;
const ELEMENTS_MAX: usize = 100_000;

/// One element: its text without the blanks around it, and its line from 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Element {
    pub name: String,
    pub text: String,
    pub line: usize,
    pub children: Vec<Element>,
}

impl Element {
    /// Whether the element has this name. Case and underscores are ignored, because the dialects
    /// differ in them.
    pub fn is(&self, name: &str) -> bool {
        let plain = |text: &str| -> Vec<u8> {
            text.bytes()
                .filter(|b| *b != b'_' && *b != b'-')
                .map(|b| b.to_ascii_lowercase())
                .collect()
        };
        plain(&self.name) == plain(name)
    }

    /// The first child of one of these names.
    pub fn child(&self, names: &[&str]) -> Option<&Element> {
        self.children.iter().find(|c| names.iter().any(|n| c.is(n)))
    }
}

/// A syntax error: its line and reason.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed {
    pub line: usize,
    pub text: String,
}

fn malformed(line: usize, text: impl Into<String>) -> Malformed {
    Malformed {
        line,
        text: text.into(),
    }
}

/// Parses either notation: a text that begins with `<` is XML.
pub fn parse(text: &str) -> Result<Element, Malformed> {
    let root = if text
        .trim_start_matches('\u{feff}')
        .trim_start()
        .starts_with('<')
    {
        xml(text)?
    } else {
        yaml(text)?
    };
    // The root of JSON and YAML either contains the cluster as a named member or is the cluster.
    if root.name.is_empty() && root.children.len() == 1 && root.children[0].is("cluster") {
        Ok(root.children.into_iter().next().unwrap_or_default())
    } else {
        Ok(root)
    }
}

fn xml(text: &str) -> Result<Element, Malformed> {
    let options = roxmltree::ParsingOptions {
        allow_dtd: false,
        nodes_limit: 4 * ELEMENTS_MAX as u32,
        ..Default::default()
    };
    // The library's parser recurses: limit the depth of nesting first.
    let mut depth = 0_usize;
    for (line, row) in text.lines().enumerate() {
        for (at, _) in row.match_indices('<') {
            match row.as_bytes().get(at + 1) {
                Some(b'/') => depth = depth.saturating_sub(1),
                Some(b'!' | b'?') => {}
                _ if row[at..]
                    .split('>')
                    .next()
                    .is_some_and(|tag| tag.ends_with('/')) => {}
                _ => depth += 1,
            }
            if depth > DEPTH_MAX {
                return Err(malformed(line + 1, "elements are nested too deeply"));
            }
        }
    }
    let document = roxmltree::Document::parse_with_options(text, options)
        .map_err(|e| malformed(e.pos().row as usize, e.to_string()))?;
    Ok(from_xml(&document, document.root_element()))
}

fn from_xml(document: &roxmltree::Document<'_>, node: roxmltree::Node<'_, '_>) -> Element {
    let texts: Vec<&str> = node
        .children()
        .filter(roxmltree::Node::is_text)
        .filter_map(|t| t.text())
        .map(str::trim)
        .filter(|t| !t.is_empty())
        .collect();
    let mut children: Vec<Element> = node
        .attributes()
        .map(|a| Element {
            name: a.name().to_owned(),
            text: a.value().trim().to_owned(),
            line: document.text_pos_at(node.range().start).row as usize,
            children: Vec::new(),
        })
        .collect();
    children.extend(
        node.children()
            .filter(roxmltree::Node::is_element)
            .map(|c| from_xml(document, c)),
    );
    Element {
        name: node.tag_name().name().to_owned(),
        text: texts.join(" "),
        line: document.text_pos_at(node.range().start).row as usize,
        children,
    }
}

fn yaml(text: &str) -> Result<Element, Malformed> {
    let mut root = None;
    // Open collections: the element, whether it is a list, and the key whose value follows.
    let mut open: Vec<(Element, bool, Option<String>)> = Vec::new();
    let mut elements = 0;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|e| malformed(e.marker().line(), e.to_string()))?;
        let line = span.start.line();
        elements += 1;
        if elements > ELEMENTS_MAX {
            return Err(malformed(line, "there are too many elements"));
        }
        let finished = match event {
            Event::MappingStart(..) | Event::SequenceStart(..) => {
                if open.len() >= DEPTH_MAX {
                    return Err(malformed(line, "elements are nested too deeply"));
                }
                let list = matches!(event, Event::SequenceStart(..));
                let name = match open.last_mut() {
                    Some((parent, true, _)) => parent.name.clone(),
                    Some((_, false, key)) => key
                        .take()
                        .ok_or_else(|| malformed(line, "a key must be a string"))?,
                    None => String::new(),
                };
                let element = Element {
                    name,
                    line,
                    ..Element::default()
                };
                open.push((element, list, None));
                continue;
            }
            Event::Scalar(value, ..) => match open.last_mut() {
                Some((_, false, key @ None)) => {
                    *key = Some(value.trim().to_owned());
                    continue;
                }
                Some((parent, list, key)) => Element {
                    name: if *list {
                        parent.name.clone()
                    } else {
                        key.take().unwrap_or_default()
                    },
                    text: match value.trim() {
                        "~" | "null" => String::new(),
                        other => other.to_owned(),
                    },
                    line,
                    children: Vec::new(),
                },
                None => {
                    return Err(malformed(
                        line,
                        "unknown file format: use .xml, .json or .yaml",
                    ))
                }
            },
            Event::MappingEnd | Event::SequenceEnd => {
                let Some((element, list, _)) = open.pop() else {
                    return Err(malformed(line, "unbalanced"));
                };
                match open.last_mut() {
                    // A list's items replace the list.
                    Some((parent, _, _)) if list => {
                        parent.children.extend(element.children);
                        continue;
                    }
                    _ => element,
                }
            }
            Event::Alias(..) | Event::UnresolvedAlias(..) => {
                return Err(malformed(line, "aliases are not supported"));
            }
            _ => continue,
        };
        match open.last_mut() {
            Some((parent, _, _)) => parent.children.push(finished),
            None if root.is_none() => root = Some(finished),
            None => return Err(malformed(line, "more than one document")),
        }
    }
    root.ok_or_else(|| malformed(1, "the file is empty"))
}
