//! Traverses a source and its includes in a compiler's order.

use crate::expression::holds;
use crate::macros::Macros;
use crate::options::Options;
use crate::token::{directives, Directive, Kind, Token};
use crate::{normal, Error, Files, Resolved, Source, NEW_NAMES};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Most files that are sent.
const FILES_MAX: usize = 1000;
/// Limit of their total size, bytes.
const BYTES_MAX: usize = 32 << 20;
/// Maximum nesting of includes, as in compilers.
const DEPTH_MAX: usize = 200;
/// Maximum number of directives evaluated, and of macros copied for them.
const STEPS_MAX: usize = 1 << 19;

/// A file's text.
struct Text {
    /// The path for `__FILE__` and the compiler's messages.
    path: PathBuf,
    /// The identity, equal for all paths of a file.
    identity: PathBuf,
    /// The directory that relative names refer to; `None`: the program's embedded headers.
    directory: Option<PathBuf>,
    bytes: Vec<u8>,
    directives: Vec<Directive>,
}

/// Replaced lines of a text, by directive.
type Lines = BTreeMap<usize, String>;

/// A version of a text that is sent.
struct Variant {
    text: Rc<Text>,
    lines: Lines,
}

/// A text, and the first directory that its `#include_next` searches.
#[derive(Clone)]
struct Found {
    text: Rc<Text>,
    next: usize,
}

pub(crate) fn walk(
    source: &Source<'_>,
    options: Options,
    files: &dyn Files,
) -> Result<Resolved, Error> {
    let mut macros = Macros::default();
    for (name, value) in source.predefined {
        macros.define_text(name.as_bytes(), value.as_bytes());
    }
    for (name, value) in &options.macros {
        match value {
            Some(value) => macros.define_text(name.as_bytes(), value.as_bytes()),
            None => macros.undefine(name.as_bytes()),
        }
    }
    let mut walker = Walker {
        files,
        embedded: source.embedded,
        directories: options.directories,
        read: HashMap::new(),
        variants: Vec::new(),
        once: HashMap::new(),
        spelled: BTreeMap::new(),
        bytes: 0,
        steps: 0,
        depth: 0,
    };
    let text = Rc::new(Text {
        path: PathBuf::new(),
        identity: PathBuf::new(),
        directory: Some(PathBuf::new()),
        bytes: source.text.to_vec(),
        directives: directives(source.text),
    });
    own(&mut macros, &text);
    let found = Found {
        text: text.clone(),
        next: 0,
    };
    let lines = walker.follow(&found, &mut macros)?;
    let mut sent: Vec<(String, Vec<u8>)> = Vec::new();
    for (n, variant) in walker.variants.iter().enumerate() {
        let head = line_one(&variant.text.path);
        let text = [head.into_bytes(), rewritten(&variant.text, &variant.lines)].concat();
        sent.push((new_name(n, &variant.text.path), text));
    }
    for (name, variant) in &walker.spelled {
        let text = sent[*variant].1.clone();
        sent.push((name.clone(), text));
    }
    Ok(Resolved {
        text: (!lines.is_empty()).then(|| rewritten(&text, &lines)),
        options: options.rest,
        files: sent,
    })
}

/// Records the names that a text defines, which the compiler does not define.
fn own(macros: &mut Macros, text: &Text) {
    let defines = text.directives.iter().filter(|d| d.name == b"define");
    macros.own(defines.filter_map(|d| d.tokens.first().map(|t| t.text.clone())));
}

/// The name of a variant: unique by its prefix, and with the file's own suffix.
fn new_name(n: usize, path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let plain = |c: char| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '-' | '_' => c,
        _ => '_',
    };
    format!(
        "{NEW_NAMES}/{n}/{}",
        name.chars().map(plain).collect::<String>()
    )
}

/// A directive that gives a text its own path in `__FILE__` and the compiler's messages.
fn line_one(path: &Path) -> String {
    match path.to_str() {
        Some(path) if !path.contains(['"', '\\', '\n', '\r']) => format!("#line 1 \"{path}\"\n"),
        _ => String::new(),
    }
}

/// The text with its lines replaced; the number of lines is unchanged.
fn rewritten(text: &Text, lines: &Lines) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.bytes.len());
    let mut at = 0;
    for (n, line) in lines {
        let range = text.directives[*n].range.clone();
        out.extend_from_slice(&text.bytes[at..range.start]);
        out.extend_from_slice(line.as_bytes());
        let ends = text.bytes[range.clone()].iter().filter(|b| **b == b'\n');
        out.extend(ends);
        at = range.end;
    }
    out.extend_from_slice(&text.bytes[at..]);
    out
}

/// An `#if` with its branches.
struct Group {
    /// Whether the surrounding text is active.
    outer: bool,
    /// Whether the current branch is active.
    counts: bool,
    /// Whether a branch was certainly taken, so that later ones are inactive.
    closed: bool,
    /// The macros before the group, if it is unknown which branch is taken.
    start: Option<Macros>,
    /// The macros after each branch that may be taken.
    ends: Vec<Macros>,
}

struct Walker<'a> {
    files: &'a dyn Files,
    embedded: &'a [(&'a str, &'a [u8])],
    directories: Vec<PathBuf>,
    /// Texts by path.
    read: HashMap<PathBuf, Option<Rc<Text>>>,
    variants: Vec<Variant>,
    /// Files that are included once: their variants by identity.
    once: HashMap<PathBuf, usize>,
    /// Names as written in sources, and the variants that they refer to.
    spelled: BTreeMap<String, usize>,
    bytes: usize,
    steps: usize,
    depth: usize,
}

impl Walker<'_> {
    fn follow(&mut self, found: &Found, macros: &mut Macros) -> Result<Lines, Error> {
        let text = &found.text;
        let mut groups: Vec<Group> = Vec::new();
        let mut lines = Lines::new();
        for (n, directive) in text.directives.iter().enumerate() {
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return Err(Error::TooLarge);
            }
            let counts = groups.last().is_none_or(|g| g.counts);
            match &directive.name[..] {
                b"if" | b"ifdef" | b"ifndef" => {
                    let mut group = Group {
                        outer: counts,
                        counts: false,
                        closed: false,
                        start: None,
                        ends: Vec::new(),
                    };
                    if counts {
                        let condition = self.condition(directive, found, macros)?;
                        group.begin(condition, macros);
                        self.steps += group.start.as_ref().map_or(0, Macros::len);
                        lines.extend(
                            self.without_has_include(directive, found)
                                .map(|line| (n, line)),
                        );
                    }
                    groups.push(group);
                }
                b"elif" | b"elifdef" | b"elifndef" | b"else" => {
                    let Some(group) = groups.last_mut().filter(|g| g.outer) else {
                        continue;
                    };
                    group.end_branch(macros);
                    if !group.closed {
                        let condition = match &directive.name[..] {
                            b"else" => Some(true),
                            _ => self.condition(directive, found, macros)?,
                        };
                        lines.extend(
                            self.without_has_include(directive, found)
                                .map(|line| (n, line)),
                        );
                        group.begin(condition, macros);
                    }
                }
                b"endif" => {
                    if let Some(group) = groups.pop().filter(|g| g.outer) {
                        group.end(macros);
                    }
                }
                _ if !counts => {}
                b"define" => macros.define(&directive.tokens),
                b"undef" => {
                    if let Some(name) = directive.tokens.first() {
                        macros.undefine(&name.text);
                    }
                }
                b"include" | b"include_next" | b"import" => {
                    if let Some(line) = self.include(directive, found, macros)? {
                        lines.insert(n, line);
                    }
                }
                _ => {}
            }
        }
        Ok(lines)
    }

    #[inline(never)]
    fn condition(
        &self,
        directive: &Directive,
        found: &Found,
        macros: &Macros,
    ) -> Result<Option<bool>, Error> {
        let first = directive.tokens.first();
        let defined = || first.and_then(|name| macros.is_defined(&name.text));
        match &directive.name[..] {
            b"ifdef" | b"elifdef" => return Ok(defined()),
            b"ifndef" | b"elifndef" => return Ok(defined().map(|is| !is)),
            _ => {}
        }
        let line = self.answered(&directive.tokens, found, macros);
        let line = macros.expand(line)?;
        Ok(holds(&line, |name| macros.is_defined(name)))
    }

    /// The line that replaces a condition that tests whether a file exists, because the compiler
    /// would search other directories.
    fn without_has_include(&self, directive: &Directive, found: &Found) -> Option<String> {
        let tests_file = |t: &Token| t.text.starts_with(b"__has_include");
        directive.tokens.iter().find(|t| tests_file(t))?;
        let mut line = format!("#{}", String::from_utf8_lossy(&directive.name)).into_bytes();
        for token in self.with_files(&directive.tokens, found) {
            line.push(b' ');
            line.extend_from_slice(&token.text);
        }
        String::from_utf8(line).ok()
    }

    /// Evaluates `__has_include` in a condition.
    fn with_files(&self, line: &[Token], found: &Found) -> Vec<Token> {
        let mut out = Vec::new();
        let mut at = 0;
        while let Some(token) = line.get(at) {
            let next = match &token.text[..] {
                b"__has_include" => Some(None),
                b"__has_include_next" => Some(Some(found.next)),
                _ => None,
            };
            let is = match (next, line.get(at + 1..at + 4)) {
                (Some(next), Some([open, name, close])) if open.is(b"(") && close.is(b")") => {
                    let name = named(std::slice::from_ref(name));
                    name.map(|name| self.has(&name, found, next))
                }
                _ => None,
            };
            out.push(is.map_or_else(|| token.clone(), truth));
            at += if is.is_some() { 4 } else { 1 };
        }
        out
    }

    /// Evaluates `defined` and `__has_include` in a condition.
    fn answered(&self, line: &[Token], found: &Found, macros: &Macros) -> Vec<Token> {
        let line = self.with_files(line, found);
        let mut out = Vec::new();
        let mut at = 0;
        while let Some(token) = line.get(at) {
            let (name, used) = match &line[at + 1..] {
                [open, name, close, ..] if open.is(b"(") && close.is(b")") => (name, 4),
                [name, ..] if name.is_identifier() => (name, 2),
                _ => (token, 0),
            };
            if token.is(b"defined") && used > 0 {
                let is = macros.is_defined(&name.text);
                out.push(is.map_or_else(|| Token::new(Kind::Unknown, b""), truth));
                at += used;
            } else {
                out.push(token.clone());
                at += 1;
            }
        }
        out
    }

    /// Follows an include; returns the replacement of its line.
    #[inline(never)]
    fn include(
        &mut self,
        directive: &Directive,
        from: &Found,
        macros: &mut Macros,
    ) -> Result<Option<String>, Error> {
        if self.depth >= DEPTH_MAX {
            return Ok(None);
        }
        let keyword = match &directive.name[..] {
            b"import" => "import",
            _ => "include",
        };
        let next = (directive.name == b"include_next").then_some(from.next);
        let readings = match directive.tokens.first() {
            Some(first) if first.kind == Kind::Header || first.kind == Kind::Text => {
                vec![directive.tokens.clone()]
            }
            _ => macros.readings(&directive.tokens)?,
        };
        let is_certain = readings.len() == 1;
        let before = (!is_certain).then(|| macros.clone());
        let mut ends: Vec<Macros> = Vec::new();
        let mut line = None;
        for reading in readings {
            let Some(name) = named(&reading) else {
                continue;
            };
            let Some(found) = self.find(&name, from, next) else {
                continue;
            };
            let mut own = before.clone();
            let variant =
                self.enter(&found, keyword == "import", own.as_mut().unwrap_or(macros))?;
            ends.extend(own);
            if is_certain {
                let name = new_name(variant, &self.variants[variant].text.path);
                line = Some(format!("#{keyword} \"{name}\""));
            } else {
                let spelled = normal(Path::new(&name.name));
                let is_below = spelled.is_relative() && !spelled.starts_with("..");
                if let Some(name) = spelled.to_str().filter(|_| is_below) {
                    self.spelled.entry(name.to_owned()).or_insert(variant);
                }
            }
        }
        for end in &ends {
            macros.merge(end);
        }
        Ok(line)
    }

    /// Follows a file; returns its variant.
    fn enter(
        &mut self,
        found: &Found,
        is_import: bool,
        macros: &mut Macros,
    ) -> Result<usize, Error> {
        let identity = &found.text.identity;
        if let Some(variant) = self.once.get(identity) {
            return Ok(*variant);
        }
        own(macros, &found.text);
        // The file may include itself, which then is this variant.
        let early = if is_import || is_once(&found.text) {
            Some(self.variant(&found.text, Lines::new())?)
        } else {
            None
        };
        if let Some(variant) = early {
            self.once.insert(identity.clone(), variant);
        }
        self.depth += 1;
        let lines = self.follow(found, macros)?;
        self.depth -= 1;
        match early {
            Some(variant) => {
                self.variants[variant].lines.extend(lines);
                Ok(variant)
            }
            None => self.variant(&found.text, lines),
        }
    }

    /// A variant of the text with these lines replaced.
    fn variant(&mut self, text: &Rc<Text>, lines: Lines) -> Result<usize, Error> {
        let agrees = |v: &Variant| {
            let same = |(n, line): (&usize, &String)| v.lines.get(n).is_none_or(|l| l == line);
            v.text.path == text.path && lines.iter().all(same)
        };
        if let Some(n) = self.variants.iter().position(agrees) {
            self.variants[n].lines.extend(lines);
            return Ok(n);
        }
        self.bytes += text.bytes.len();
        if self.variants.len() == FILES_MAX || self.bytes > BYTES_MAX {
            return Err(Error::TooLarge);
        }
        self.variants.push(Variant {
            text: text.clone(),
            lines,
        });
        Ok(self.variants.len() - 1)
    }

    fn has(&self, name: &Name, from: &Found, next: Option<usize>) -> bool {
        self.places(name, from, next)
            .iter()
            .any(|place| match place {
                Candidate::Embedded(name) => self.embedded_text(name).is_some(),
                Candidate::File(path, _) => self.files.read(path).is_some(),
            })
    }

    fn find(&mut self, name: &Name, from: &Found, next: Option<usize>) -> Option<Found> {
        let places = self.places(name, from, next);
        places.into_iter().find_map(|place| match place {
            Candidate::Embedded(name) => {
                let bytes = self.embedded_text(&name)?.to_vec();
                let key = Path::new("embedded:").join(&name);
                let text = self.read.entry(key.clone()).or_insert_with(|| {
                    let directives = directives(&bytes);
                    Some(Rc::new(Text {
                        path: PathBuf::from(name),
                        identity: key,
                        directory: None,
                        bytes,
                        directives,
                    }))
                });
                let text = text.clone()?;
                Some(Found { text, next: 0 })
            }
            Candidate::File(path, next) => {
                let text = self.file(path)?;
                Some(Found { text, next })
            }
        })
    }

    fn embedded_text(&self, name: &str) -> Option<&[u8]> {
        let found = self.embedded.iter().find(|(own, _)| *own == name);
        found.map(|(_, text)| *text)
    }

    fn file(&mut self, path: PathBuf) -> Option<Rc<Text>> {
        if let Some(known) = self.read.get(&path) {
            return known.clone();
        }
        let text = self.files.read(&path).map(|bytes| {
            Rc::new(Text {
                directory: Some(path.parent().unwrap_or(Path::new("")).to_owned()),
                directives: directives(&bytes),
                identity: self.files.identity(&path),
                path: path.clone(),
                bytes,
            })
        });
        self.read.insert(path, text.clone());
        text
    }

    /// The places to search for a name, in order.
    fn places(&self, name: &Name, from: &Found, next: Option<usize>) -> Vec<Candidate> {
        let path = Path::new(&name.name);
        if path.is_absolute() {
            return vec![Candidate::File(path.to_owned(), 0)];
        }
        let mut places = Vec::new();
        if next.is_none() {
            let beside = from.text.directory.as_ref();
            match beside {
                Some(directory) if name.is_quoted => {
                    // The includer's own directory is searched before the first directory of `-I`.
                    places.push(Candidate::File(directory.join(path), 0));
                }
                None if name.is_quoted => {
                    let parent = from.text.path.parent().unwrap_or(Path::new(""));
                    let beside = normal(&parent.join(path));
                    places.extend(beside.to_str().map(|n| Candidate::Embedded(n.to_owned())));
                }
                _ => {}
            }
            places.insert(0, Candidate::Embedded(name.name.clone()));
        }
        let directories = self.directories.iter().enumerate();
        let later = directories.skip(next.unwrap_or(0));
        places.extend(later.map(|(n, dir)| Candidate::File(dir.join(path), n + 1)));
        places
    }
}

/// A header or file that an include may refer to.
enum Candidate {
    /// An embedded header of the program.
    Embedded(String),
    /// A path, and the index after its directory.
    File(PathBuf, usize),
}

fn truth(is: bool) -> Token {
    Token::new(Kind::Number, if is { b"1" } else { b"0" })
}

/// The name in an include.
struct Name {
    name: String,
    is_quoted: bool,
}

/// The name in an expanded line.
fn named(line: &[Token]) -> Option<Name> {
    let first = line.first()?;
    let between = |text: &[u8]| {
        let name = text.get(1..text.len().checked_sub(1)?)?;
        String::from_utf8(name.to_vec())
            .ok()
            .filter(|n| !n.is_empty())
    };
    if matches!(first.kind, Kind::Text | Kind::Header) {
        return Some(Name {
            name: between(&first.text)?,
            is_quoted: first.kind == Kind::Text,
        });
    }
    let end = line.iter().position(|t| t.is(b">"))?;
    if !first.is(b"<") || line[..end].iter().any(|t| t.kind == Kind::Unknown) {
        return None;
    }
    let mut text = Vec::new();
    for (n, token) in line[..=end].iter().enumerate() {
        if token.spaced && n > 1 && n < end {
            text.push(b' ');
        }
        text.extend_from_slice(&token.text);
    }
    Some(Name {
        name: between(&text)?,
        is_quoted: false,
    })
}

fn is_once(text: &Text) -> bool {
    let once =
        |d: &Directive| d.name == b"pragma" && d.tokens.first().is_some_and(|t| t.is(b"once"));
    text.directives.iter().any(once)
}

impl Group {
    /// Begins a branch.
    fn begin(&mut self, condition: Option<bool>, macros: &Macros) {
        self.counts = condition != Some(false);
        match condition {
            Some(true) => self.closed = true,
            Some(false) => {}
            None => {
                self.start.get_or_insert_with(|| macros.clone());
            }
        }
    }

    /// Ends a branch; the next one begins with the macros before the group.
    fn end_branch(&mut self, macros: &mut Macros) {
        if let Some(start) = &self.start {
            if self.counts {
                self.ends.push(std::mem::replace(macros, start.clone()));
            }
        }
        self.counts = false;
    }

    fn end(mut self, macros: &mut Macros) {
        self.end_branch(macros);
        if self.start.is_none() {
            return;
        }
        let mut ends = self.ends.into_iter();
        // Possibly no branch was taken.
        let mut merged = if self.closed {
            ends.next()
        } else {
            Some(macros.clone())
        };
        for end in ends {
            match &mut merged {
                Some(merged) => merged.merge(&end),
                None => merged = Some(end),
            }
        }
        if let Some(merged) = merged {
            *macros = merged;
        }
    }
}
