//! Reads YAML with positions. The manifest is parsed straight into its type; only when a check
//! rejects an entry is the text parsed a second time, into a tree that holds the position of each
//! node.

use crate::error::ManifestError;
use crate::manifest::Manifest;
use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{budget, options, DuplicateKeyPolicy, MergeKeyPolicy, Options, Spanned};
use std::fmt;

/// Most bytes of a manifest.
pub(crate) const BYTES_MAX: usize = 1 << 20;

fn limits() -> Options {
    options! {
        budget: budget! {
            max_documents: 1,
            max_depth: 16,
            max_aliases: 0,
            max_anchors: 0,
            max_nodes: 100_000,
            max_events: 400_000,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Error,
        strict_booleans: true,
        with_snippet: false,
    }
}

/// Parses a manifest.
pub(crate) fn manifest(text: &str) -> Result<Manifest, ManifestError> {
    if text.len() > BYTES_MAX {
        return Err(ManifestError::new(format!(
            "the manifest is larger than {BYTES_MAX} bytes"
        )));
    }
    serde_saphyr::from_str_with_options::<Manifest>(text, limits()).map_err(|error| {
        let (line, column) = error
            .location()
            .map_or((0, 0), |at| (at.line() as u32, at.column() as u32));
        ManifestError {
            line,
            column,
            ..ManifestError::new(reason(&error))
        }
    })
}

/// The error without its position, which is a separate field.
fn reason(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let text = text.lines().next().unwrap_or_default();
    match text.rfind(" at line ") {
        Some(at) => text[..at].to_owned(),
        None => text.strip_prefix("error: ").unwrap_or(text).to_owned(),
    }
}

/// Adds line and column of the entry of the error, or of the nearest existing entry around it.
pub(crate) fn locate(mut error: ManifestError, text: &str) -> ManifestError {
    if error.line > 0 || error.entry.is_empty() {
        return error;
    }
    let Ok(tree) = serde_saphyr::from_str_with_options::<Spanned<Node>>(text, limits()) else {
        return error;
    };
    let mut at = &tree;
    for step in error
        .entry
        .split(['.', '['])
        .map(|step| step.trim_end_matches(']'))
    {
        let inner = match &at.value {
            Node::Map(entries) => entries
                .iter()
                .find(|(name, _)| name == step)
                .map(|(_, node)| node),
            Node::List(items) => step
                .parse::<usize>()
                .ok()
                .and_then(|index| items.get(index)),
            Node::Leaf => None,
        };
        match inner {
            Some(node) => at = node,
            None => break,
        }
    }
    error.line = at.referenced.line() as u32;
    error.column = at.referenced.column() as u32;
    error
}

/// Positions of a document's nodes, without values.
enum Node {
    Map(Vec<(String, Spanned<Node>)>),
    List(Vec<Spanned<Node>>),
    Leaf,
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Node, D::Error> {
        struct Any;
        macro_rules! leaves {
            ($($visit:ident: $of:ty),*) => {
                $(fn $visit<E: de::Error>(self, _: $of) -> Result<Node, E> { Ok(Node::Leaf) })*
            };
        }
        impl<'de> Visitor<'de> for Any {
            type Value = Node;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("YAML")
            }
            leaves!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_i128: i128, visit_u128: u128, visit_f64: f64, visit_str: &str);
            fn visit_unit<E: de::Error>(self) -> Result<Node, E> {
                Ok(Node::Leaf)
            }
            fn visit_none<E: de::Error>(self) -> Result<Node, E> {
                Ok(Node::Leaf)
            }
            fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Node, D::Error> {
                Node::deserialize(from)
            }
            fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> Result<Node, D::Error> {
                IgnoredAny::deserialize(from).map(|_| Node::Leaf)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(Node::List(list))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
                let mut map = Vec::new();
                while let Some(entry) = entries.next_entry()? {
                    map.push(entry);
                }
                Ok(Node::Map(map))
            }
        }
        from.deserialize_any(Any)
    }
}
