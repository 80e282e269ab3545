//! Patterns for the values of a query, and splitting of a query's text into terms.

use super::QueryError;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Part {
    Any,
    One,
    Literal(char),
    /// Matches no character; not expressible as text.
    Never,
}

/// An exact value or a glob.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pattern {
    parts: Vec<Part>,
}

impl Pattern {
    /// A pattern that matches no text.
    pub(super) fn nothing() -> Pattern {
        Pattern {
            parts: vec![Part::Never],
        }
    }

    /// Parses `*` as any characters, `?` as any single one, and a backslash as an escape of the
    /// next character. `None` if a backslash ends the text.
    pub fn parse(text: &str) -> Option<Pattern> {
        let mut parts = Vec::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            let part = match c {
                '*' if parts.last() == Some(&Part::Any) => continue,
                '*' => Part::Any,
                '?' => Part::One,
                '\\' => Part::Literal(chars.next()?),
                c => Part::Literal(c),
            };
            parts.push(part);
        }
        Some(Pattern { parts })
    }

    /// The only value that it matches, if there is only one.
    pub fn exact(&self) -> Option<String> {
        let literal = |part: &Part| match part {
            Part::Literal(c) => Some(*c),
            _ => None,
        };
        self.parts.iter().map(literal).collect()
    }

    /// Whether it matches all of `text`. The time is at most the product of the two lengths.
    pub fn matches(&self, text: &str, case_matters: bool) -> bool {
        self.matches_chars(text.chars(), case_matters)
    }

    fn matches_chars<I: Iterator<Item = char> + Clone>(&self, text: I, case_matters: bool) -> bool {
        let same = |part: Part, c: char| match part {
            Part::Literal(p) if case_matters => p == c,
            Part::Literal(p) => p.eq_ignore_ascii_case(&c),
            Part::One => true,
            Part::Any | Part::Never => false,
        };
        let mut at = 0;
        let mut rest = text;
        // Where to continue after a mismatch: at the last `*`, which then takes one more character.
        let mut retry: Option<(usize, I)> = None;
        loop {
            let part = self.parts.get(at).copied();
            if part == Some(Part::Any) {
                at += 1;
                retry = Some((at, rest.clone()));
                continue;
            }
            match (part, rest.next()) {
                (None, None) => return true,
                (Some(part), Some(c)) if same(part, c) => at += 1,
                _ => {
                    let Some((from, mut longer)) = retry.take() else {
                        return false;
                    };
                    if longer.next().is_none() {
                        return false;
                    }
                    at = from;
                    rest = longer.clone();
                    retry = Some((from, longer));
                }
            }
        }
    }

    /// Whether it matches a digest, with or without the prefix `sha256:`.
    pub fn matches_digest(&self, digest: &str) -> bool {
        let bare = digest.strip_prefix("sha256:").unwrap_or(digest);
        let prefixed = "sha256:".chars().chain(bare.chars());
        self.matches_chars(bare.chars(), false) || self.matches_chars(prefixed, false)
    }
}

/// Formats the pattern's source.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            match part {
                Part::Any => f.write_str("*")?,
                Part::One => f.write_str("?")?,
                Part::Literal(c @ ('*' | '?' | '\\')) => write!(f, "\\{c}")?,
                Part::Literal(c) => write!(f, "{c}")?,
                Part::Never => f.write_str("(nothing)")?,
            }
        }
        Ok(())
    }
}

/// A pattern as part of a query's text: in quotes if necessary.
pub(super) fn quoted(pattern: &Pattern) -> String {
    let text = pattern.to_string();
    if text.contains([',', '"']) || text.starts_with(' ') || text.ends_with(' ') {
        let mut inside = String::with_capacity(text.len() + 2);
        for c in text.chars() {
            if c == '"' {
                inside.push('\\');
            }
            inside.push(c);
        }
        format!("\"{inside}\"")
    } else {
        text
    }
}

/// Splits a query at the commas outside quotes and removes the quotes. [`Pattern::parse`] handles
/// the escapes.
pub(super) fn terms(text: &str) -> Result<Vec<(usize, String)>, QueryError> {
    let mut terms = Vec::new();
    let mut term = Term::default();
    let mut quoted = false;
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => {
                let (_, next) = chars.next().ok_or(QueryError::Unfinished(
                    "a backslash at the end: write '\\\\' for a backslash",
                ))?;
                term.push(at, '\\', quoted);
                term.push(at, next, true);
            }
            '"' => {
                quoted = !quoted;
                term.kept = term.text.len();
            }
            ',' if !quoted => terms.extend(std::mem::take(&mut term).end()),
            c => term.push(at, c, quoted),
        }
    }
    if quoted {
        return Err(QueryError::Unfinished("unterminated quote"));
    }
    terms.extend(term.end());
    Ok(terms)
}

/// A term during parsing: blanks around it are removed, blanks in quotes are kept.
#[derive(Default)]
struct Term {
    start: Option<usize>,
    text: String,
    /// Length of the text up to which trailing blanks are kept.
    kept: usize,
}

impl Term {
    fn push(&mut self, at: usize, c: char, keep: bool) {
        let value_starts = self
            .text
            .find('=')
            .is_some_and(|n| n + 1 == self.text.len());
        if c == ' ' && !keep && (self.start.is_none() || value_starts) {
            return;
        }
        self.start.get_or_insert(at);
        self.text.push(c);
        if keep || c != ' ' {
            self.kept = self.text.len();
        }
    }

    fn end(mut self) -> Option<(usize, String)> {
        self.text.truncate(self.kept);
        Some((self.start?, self.text))
    }
}
