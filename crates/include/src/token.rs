//! Preprocessing tokens, and the directives of a text.

use std::ops::Range;
use std::rc::Rc;

/// Kinds of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Identifier,
    Number,
    /// `"…"`, including the quotes.
    Text,
    /// A character literal.
    Character,
    /// `<…>` in the place of a header's name.
    Header,
    Punctuator,
    /// A token whose value only the device's compiler can determine.
    Unknown,
}

/// A preprocessing token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub kind: Kind,
    pub text: Rc<[u8]>,
    /// Whether white space precedes it.
    pub spaced: bool,
    /// The macros whose expansion produced the token; they are not expanded again in it.
    pub hidden: Option<Rc<Hidden>>,
}

/// A list of macro names, newest first.
#[derive(Debug, PartialEq, Eq)]
pub struct Hidden {
    pub name: Rc<[u8]>,
    pub rest: Option<Rc<Hidden>>,
}

impl Token {
    pub fn new(kind: Kind, text: &[u8]) -> Token {
        Token {
            kind,
            text: text.into(),
            spaced: false,
            hidden: None,
        }
    }

    pub fn is(&self, text: &[u8]) -> bool {
        *self.text == *text && matches!(self.kind, Kind::Punctuator | Kind::Identifier)
    }

    pub fn is_identifier(&self) -> bool {
        self.kind == Kind::Identifier
    }

    /// Whether it came from the expansion of the macro `name`.
    pub fn hides(&self, name: &[u8]) -> bool {
        let mut next = self.hidden.as_ref();
        while let Some(hidden) = next {
            if *hidden.name == *name {
                return true;
            }
            next = hidden.rest.as_ref();
        }
        false
    }
}

/// A line that begins with `#`.
#[derive(Clone, Debug)]
pub struct Directive {
    /// The range in the text from the `#` to the end of the line.
    pub range: Range<usize>,
    /// The name: `include`, `if`, …
    pub name: Vec<u8>,
    /// The tokens that follow.
    pub tokens: Vec<Token>,
}

/// The directives of a text, in order. The total length of their tokens is at most that of the
/// text.
pub fn directives(text: &[u8]) -> Vec<Directive> {
    let mut cursor = Cursor::new(text);
    let mut found = Vec::new();
    while cursor.peek().is_some() {
        cursor.skip_space();
        if cursor.peek() == Some(b'#') || cursor.starts_with(b"%:") {
            found.extend(cursor.directive());
        } else {
            cursor.skip_line();
        }
        cursor.newline();
    }
    found
}

/// The tokens of one line, such as the value of a `-D` option.
pub fn tokens(text: &[u8]) -> Vec<Token> {
    Cursor::new(text).tokens(false)
}

/// A cursor over a text in which a backslash at the end of a line joins lines.
struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn new(text: &'a [u8]) -> Cursor<'a> {
        Cursor { text, at: 0 }
    }

    /// The position after the joined line ends at `at`.
    fn joined(&self, mut at: usize) -> usize {
        while self.text.get(at) == Some(&b'\\') {
            let rest = &self.text[at + 1..];
            let blanks = rest.iter().take_while(|b| matches!(b, b' ' | b'\t'));
            let end = blanks.count();
            match &rest[end..] {
                [b'\r', b'\n', ..] => at += end + 3,
                [b'\n', ..] => at += end + 2,
                _ => break,
            }
        }
        at
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.joined(self.at)).copied()
    }

    fn next(&mut self) -> Option<u8> {
        self.at = self.joined(self.at);
        let byte = self.text.get(self.at).copied()?;
        self.at += 1;
        Some(byte)
    }

    fn starts_with(&self, word: &[u8]) -> bool {
        let mut ahead = Cursor { ..*self };
        word.iter().all(|byte| ahead.next() == Some(*byte))
    }

    fn skip(&mut self, count: usize) {
        for _ in 0..count {
            self.next();
        }
    }

    fn is_at_end(&self) -> bool {
        matches!(self.peek(), None | Some(b'\n'))
    }

    /// Moves past the end of the line.
    fn newline(&mut self) {
        if self.peek() == Some(b'\n') {
            self.next();
        }
    }

    /// Skips white space and comments, but not a line's end outside a comment; returns whether
    /// there was any.
    fn skip_space(&mut self) -> bool {
        let mut skipped = false;
        loop {
            match self.peek() {
                Some(b' ' | b'\t' | b'\r' | 0x0b | 0x0c) => self.skip(1),
                Some(b'/') if self.starts_with(b"/*") => {
                    self.skip(2);
                    while !self.starts_with(b"*/") && self.next().is_some() {}
                    self.skip(2);
                }
                Some(b'/') if self.starts_with(b"//") => {
                    while !self.is_at_end() {
                        self.next();
                    }
                }
                _ => return skipped,
            }
            skipped = true;
        }
    }

    /// Moves past a line that is not a directive.
    fn skip_line(&mut self) {
        loop {
            self.skip_space();
            match self.peek() {
                None | Some(b'\n') => return,
                Some(quote @ (b'"' | b'\'')) => drop(self.quoted(quote)),
                Some(_) => self.skip(1),
            }
        }
    }

    /// Reads a literal; it ends at the end of the line if the closing quote is missing.
    fn quoted(&mut self, quote: u8) -> Vec<u8> {
        let mut text = vec![quote];
        self.next();
        while !self.is_at_end() {
            let Some(byte) = self.next() else { break };
            text.push(byte);
            if byte == quote {
                break;
            }
            if byte == b'\\' && !self.is_at_end() {
                text.extend(self.next());
            }
        }
        text
    }

    fn word(&mut self) -> Vec<u8> {
        let mut word = Vec::new();
        while let Some(byte) = self.peek().filter(|b| is_word(*b)) {
            word.push(byte);
            self.next();
        }
        word
    }

    /// Reads a directive at a `#`.
    fn directive(&mut self) -> Option<Directive> {
        self.at = self.joined(self.at);
        let start = self.at;
        self.skip(if self.peek() == Some(b'#') { 1 } else { 2 });
        self.skip_space();
        let name = self.word();
        let is_include = matches!(&name[..], b"include" | b"include_next" | b"import");
        let tokens = self.tokens(is_include);
        let mut end = self.at;
        if self.text[start..end].ends_with(b"\r") {
            end -= 1;
        }
        // A single `#` is a null directive.
        (!name.is_empty()).then_some(Directive {
            range: start..end,
            name,
            tokens,
        })
    }

    /// The tokens up to the end of the line. `header`: `<` begins a header's name.
    fn tokens(&mut self, mut header: bool) -> Vec<Token> {
        let mut tokens: Vec<Token> = Vec::new();
        loop {
            let spaced = self.skip_space();
            let Some(byte) = self.peek().filter(|b| *b != b'\n') else {
                return tokens;
            };
            let asks = tokens.len() >= 2
                && tokens[tokens.len() - 1].is(b"(")
                && tokens[tokens.len() - 2].text.starts_with(b"__has_include");
            let mut token = match byte {
                b'<' if header || asks => self.header(),
                b'"' => Token::new(Kind::Text, &self.quoted(b'"')),
                b'\'' => Token::new(Kind::Character, &self.quoted(b'\'')),
                b'0'..=b'9' => self.number(),
                b'.' if self.is_fraction() => self.number(),
                byte if is_word(byte) => Token::new(Kind::Identifier, &self.word()),
                _ => self.punctuator(),
            };
            token.spaced = spaced && !tokens.is_empty();
            tokens.push(token);
            header = false;
        }
    }

    fn header(&mut self) -> Token {
        let mut ahead = Cursor { ..*self };
        let mut name = Vec::new();
        while !ahead.is_at_end() {
            let Some(byte) = ahead.next() else { break };
            name.push(byte);
            if byte == b'>' {
                self.at = ahead.at;
                return Token::new(Kind::Header, &name);
            }
        }
        self.punctuator()
    }

    fn is_fraction(&self) -> bool {
        let mut ahead = Cursor { ..*self };
        ahead.next();
        ahead.peek().is_some_and(|b| b.is_ascii_digit())
    }

    fn number(&mut self) -> Token {
        let mut number = Vec::new();
        while let Some(byte) = self.peek() {
            let exponent = matches!(number.last(), Some(b'e' | b'E' | b'p' | b'P'));
            let signed = exponent && matches!(byte, b'+' | b'-');
            if !(is_word(byte) || byte == b'.' || signed) {
                break;
            }
            number.push(byte);
            self.next();
        }
        Token::new(Kind::Number, &number)
    }

    fn punctuator(&mut self) -> Token {
        const LONG: [&[u8]; 13] = [
            b"...", b"##", b"<<", b">>", b"<=", b">=", b"==", b"!=", b"&&", b"||", b"->", b"++",
            b"--",
        ];
        let long = LONG.iter().find(|p| self.starts_with(p));
        let text: Vec<u8> = match long {
            Some(long) => {
                self.skip(long.len());
                long.to_vec()
            }
            None => self.next().into_iter().collect(),
        };
        Token::new(Kind::Punctuator, &text)
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}
