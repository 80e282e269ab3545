//! A cursor over a line of IR.

use crate::error::{Error, Result};

/// Attributes, flags and linkages that synthesis does not use.
const ATTRIBUTES: &[&str] = &[
    "noundef",
    "nonnull",
    "zeroext",
    "signext",
    "nocapture",
    "readonly",
    "writeonly",
    "readnone",
    "noalias",
    "returned",
    "immarg",
    "inreg",
    "nofree",
    "dso_local",
    "internal",
    "weak",
    "private",
    "unnamed_addr",
    "local_unnamed_addr",
    "fastcc",
    "spir_func",
    "spir_kernel",
    "ccc",
    "coldcc",
    "tail",
    "notail",
    "musttail",
    "nnan",
    "ninf",
    "nsz",
    "arcp",
    "contract",
    "afn",
    "reassoc",
    "fast",
    "nuw",
    "nsw",
    "exact",
    "inbounds",
    "volatile",
    "external",
    "hidden",
    "weak",
    "linkonce_odr",
    "constant",
    "common",
    "available_externally",
    "weak_odr",
    "linkonce",
];
/// Attributes with arguments that synthesis does not use.
const WITH_PARENTHESES: &[&str] = &[
    "addrspace",
    "dereferenceable",
    "dereferenceable_or_null",
    "byval",
    "sret",
    "elementtype",
    "range",
    "captures",
];

/// Decodes the escapes of a string constant or a name in quotes: `\\`, and codes such as `\0A`.
pub fn unescape(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at..].starts_with(br"\\") {
            out.push(b'\\');
            at += 2;
            continue;
        }
        let hex = (bytes[at] == b'\\')
            .then(|| text.get(at + 1..at + 3))
            .flatten();
        match hex.and_then(|h| u8::from_str_radix(h, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    out
}

/// The rest of a line.
pub struct Cursor<'a> {
    pub rest: &'a str,
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_.$-+".contains(c)
}

impl<'a> Cursor<'a> {
    pub fn new(rest: &'a str) -> Cursor<'a> {
        Cursor {
            rest: rest.trim_start(),
        }
    }

    pub fn skip(&mut self, bytes: usize) {
        self.rest = self.rest[bytes..].trim_start();
    }

    /// Takes a token if it is there; words only whole.
    pub fn take(&mut self, token: &str) -> bool {
        let found = self.rest.starts_with(token)
            && !(token.ends_with(is_word) && self.rest[token.len()..].starts_with(is_word));
        if found {
            self.skip(token.len());
        }
        found
    }

    pub fn expect(&mut self, token: &str) -> Result<()> {
        if self.take(token) {
            Ok(())
        } else {
            Err(Error::malformed(format!(
                "expected '{token}' before '{}'",
                self.shown()
            )))
        }
    }

    fn shown(&self) -> String {
        self.rest.chars().take(40).collect()
    }

    pub fn peek(&self) -> char {
        self.rest.chars().next().unwrap_or('\0')
    }

    pub fn word(&mut self) -> &'a str {
        let end = self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len());
        let word = &self.rest[..end];
        self.skip(end);
        word
    }

    /// A name behind `%`, `@` or `!`, quoted or not.
    pub fn name(&mut self) -> String {
        if self.rest.starts_with('"') {
            let end = self.rest[1..].find('"').map_or(self.rest.len(), |e| e + 2);
            let name = unescape(&self.rest[1..end - 1]);
            let name = String::from_utf8_lossy(&name).into_owned();
            self.skip(end);
            return name;
        }
        self.word().to_owned()
    }

    /// Skips a group in parentheses, as attributes have it.
    pub fn parenthesis(&mut self) {
        let mut depth = 0;
        for (at, c) in self.rest.char_indices() {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                self.skip(at + 1);
                return;
            }
        }
        self.rest = "";
    }

    /// Skips attributes of types, arguments, instructions and functions that synthesis does not
    /// use.
    pub fn attributes(&mut self) {
        loop {
            let before = self.rest;
            if self.take("align") {
                self.word();
                continue;
            }
            if WITH_PARENTHESES.iter().any(|w| self.take(w)) {
                self.parenthesis();
                continue;
            }
            if ATTRIBUTES.iter().any(|w| self.take(w)) {
                continue;
            }
            self.rest = before;
            return;
        }
    }
}
