//! One value of a query, and how a query's text falls into terms.

use super::QueryError;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Part {
    Any,
    One,
    Literal(char),
    /// Matches no character. Not written in any text.
    Never,
}

/// An exact value or a glob.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pattern {
    parts: Vec<Part>,
}

impl Pattern {
    /// Matches no text.
    pub(super) fn nothing() -> Pattern {
        Pattern {
            parts: vec![Part::Never],
        }
    }

    /// `*` is any run of characters, `?` any one, a backslash makes the next one literal. `None`
    /// where a backslash ends the text.
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

    /// Whether it matches all of `text`. Time is at most the product of the two lengths.
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
        // Where to go on when a match fails: after the last `*`, with it taking one more.
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

    /// Whether it matches a digest, written with or without `sha256:`.
    pub fn matches_digest(&self, digest: &str) -> bool {
        let bare = digest.strip_prefix("sha256:").unwrap_or(digest);
        let prefixed = "sha256:".chars().chain(bare.chars());
        self.matches_chars(bare.chars(), false) || self.matches_chars(prefixed, false)
    }
}

/// As parsed.
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

/// A pattern as it stands in a query: in quotes where it has what would end it.
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

/// Splits a query at the commas outside quotes and takes the quotes away. Escapes stay for
/// [`Pattern::parse`].
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

/// A term being read: blanks around it go, blanks in quotes stay.
#[derive(Default)]
struct Term {
    start: Option<usize>,
    text: String,
    /// How much of the text blanks at the end are not trimmed from.
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
