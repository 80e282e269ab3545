//! Macros and their expansion.

use crate::token::{tokens, Hidden, Kind, Token};
use crate::Error;
use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;

/// Maximum number of tokens of one expansion.
const TOKENS_MAX: usize = 200_000;

type Name = Rc<[u8]>;

/// A macro.
#[derive(Debug, PartialEq, Eq)]
pub struct Definition {
    /// The parameters; `None`: an object-like macro.
    parameters: Option<Vec<Name>>,
    /// Whether the last parameter takes all remaining arguments.
    variadic: bool,
    body: Vec<Token>,
}

/// A name's definition.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Defined(Rc<Definition>),
    Undefined,
    /// One of these definitions; `None`: undefined.
    Either(Vec<Option<Rc<Definition>>>),
    /// Only the device's compiler can determine it.
    Unknown,
}

/// The macros at one point of a text.
#[derive(Clone, Debug, Default)]
pub struct Macros {
    entries: HashMap<Name, Entry>,
    /// Names that a text defines, so that the compiler does not define them.
    own: Rc<HashSet<Name>>,
}

/// Most alternatives of one name; with more, it counts as unknown.
const EITHER_MAX: usize = 8;

impl Macros {
    /// `#define`: the name, optional parameters, and the body.
    pub fn define(&mut self, line: &[Token]) {
        let Some((name, rest)) = line.split_first().filter(|(n, _)| n.is_identifier()) else {
            return;
        };
        if let Some(definition) = definition(rest) {
            let entry = Entry::Defined(Rc::new(definition));
            self.entries.insert(name.text.clone(), entry);
        }
    }

    /// Defines a name with a value, as the compiler or an option does.
    pub fn define_text(&mut self, name: &[u8], value: &[u8]) {
        let mut line = tokens(name);
        let mut body = tokens(value);
        if let Some(first) = body.first_mut() {
            first.spaced = true;
        }
        line.append(&mut body);
        self.define(&line);
    }

    /// `#undef`.
    pub fn undefine(&mut self, name: &[u8]) {
        self.entries.insert(name.into(), Entry::Undefined);
    }

    /// Records names that a text defines.
    pub fn own(&mut self, names: impl Iterator<Item = Name>) {
        Rc::make_mut(&mut self.own).extend(names);
    }

    fn entry(&self, name: &[u8]) -> Entry {
        match self.entries.get(name) {
            Some(entry) => entry.clone(),
            // Names of the compiler's own macros.
            None if (name.starts_with(b"__") || name.starts_with(b"cl_"))
                && !self.own.contains(name) =>
            {
                Entry::Unknown
            }
            None => Entry::Undefined,
        }
    }

    /// Whether a name is defined, if that can be determined.
    pub fn is_defined(&self, name: &[u8]) -> Option<bool> {
        match self.entry(name) {
            Entry::Defined(_) => Some(true),
            Entry::Undefined => Some(false),
            Entry::Either(all) if all.iter().all(Option::is_some) => Some(true),
            Entry::Either(_) | Entry::Unknown => None,
        }
    }

    /// Merges the state of another branch: the result covers both.
    pub fn merge(&mut self, other: &Macros) {
        let own = Rc::make_mut(&mut self.own);
        own.extend(other.own.iter().cloned());
        let names: HashSet<Name> = self
            .entries
            .keys()
            .chain(other.entries.keys())
            .cloned()
            .collect();
        for name in names {
            let (a, b) = (self.entry(&name), other.entry(&name));
            if a != b {
                self.entries.insert(name, either(a, b));
            }
        }
    }

    /// Number of definitions to copy.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// All readings of a line whose names have several definitions.
    pub fn readings(&self, line: &[Token]) -> Result<Vec<Vec<Token>>, Error> {
        let mut readings = Vec::new();
        let mut open = vec![self.clone()];
        while let Some(macros) = open.pop() {
            let mut expansion = Expansion::new(&macros);
            let expanded = expansion.run(line.to_vec())?;
            let Some((name, all)) = expansion.ambiguous else {
                readings.push(expanded);
                continue;
            };
            if open.len() + readings.len() + all.len() > EITHER_MAX {
                break;
            }
            for definition in all {
                let mut reading = macros.clone();
                let entry = definition.map_or(Entry::Undefined, Entry::Defined);
                reading.entries.insert(name.clone(), entry);
                open.push(reading);
            }
        }
        Ok(readings)
    }

    /// The expansion of a line; tokens that are ambiguous or depend on the compiler become
    /// [`Kind::Unknown`].
    pub fn expand(&self, line: Vec<Token>) -> Result<Vec<Token>, Error> {
        Expansion::new(self).run(line)
    }
}

fn either(a: Entry, b: Entry) -> Entry {
    let mut all: Vec<Option<Rc<Definition>>> = Vec::new();
    for entry in [a, b] {
        let more = match entry {
            Entry::Unknown => return Entry::Unknown,
            Entry::Defined(definition) => vec![Some(definition)],
            Entry::Undefined => vec![None],
            Entry::Either(more) => more,
        };
        for one in more {
            if !all.contains(&one) {
                all.push(one);
            }
        }
    }
    match all.len() {
        0..=EITHER_MAX => Entry::Either(all),
        _ => Entry::Unknown,
    }
}

/// Parses the part of a `#define` after the name.
fn definition(rest: &[Token]) -> Option<Definition> {
    let is_function = rest.first().is_some_and(|t| t.is(b"(") && !t.spaced);
    if !is_function {
        return Some(Definition {
            parameters: None,
            variadic: false,
            body: rest.to_vec(),
        });
    }
    let end = rest.iter().position(|t| t.is(b")"))?;
    let mut parameters: Vec<Name> = Vec::new();
    let mut variadic = false;
    for token in &rest[1..end] {
        match token {
            t if t.is_identifier() => parameters.push(t.text.clone()),
            t if t.is(b"...") => {
                variadic = true;
                // `args...` names the remaining arguments.
                let named = rest[..end]
                    .iter()
                    .rev()
                    .nth(1)
                    .is_some_and(Token::is_identifier);
                if !named {
                    parameters.push(Name::from(&b"__VA_ARGS__"[..]));
                }
            }
            t if t.is(b",") => {}
            _ => return None,
        }
    }
    Some(Definition {
        parameters: Some(parameters),
        variadic,
        body: rest[end + 1..].to_vec(),
    })
}

/// The expansion of one line.
struct Expansion<'a> {
    macros: &'a Macros,
    count: usize,
    depth: usize,
    /// The first name with several definitions, and these definitions.
    ambiguous: Option<(Name, Vec<Option<Rc<Definition>>>)>,
}

/// Most levels of nested arguments.
const DEPTH_MAX: usize = 100;

impl<'a> Expansion<'a> {
    fn new(macros: &'a Macros) -> Expansion<'a> {
        Expansion {
            macros,
            count: 0,
            depth: 0,
            ambiguous: None,
        }
    }

    fn run(&mut self, line: Vec<Token>) -> Result<Vec<Token>, Error> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(Error::TooLarge);
        }
        let mut input: VecDeque<Token> = line.into();
        let mut output = Vec::new();
        while let Some(mut token) = input.pop_front() {
            self.count += 1;
            if self.count > TOKENS_MAX {
                return Err(Error::TooLarge);
            }
            if !token.is_identifier() || token.hides(&token.text) {
                output.push(token);
                continue;
            }
            let definition = match self.macros.entry(&token.text) {
                Entry::Defined(definition) => definition,
                Entry::Undefined => {
                    output.push(token);
                    continue;
                }
                Entry::Either(all) => {
                    self.ambiguous.get_or_insert((token.text.clone(), all));
                    token.kind = Kind::Unknown;
                    output.push(token);
                    continue;
                }
                Entry::Unknown => {
                    token.kind = Kind::Unknown;
                    output.push(token);
                    continue;
                }
            };
            let arguments = match &definition.parameters {
                None => Vec::new(),
                Some(parameters) => {
                    let (end, looked) = list_end(&input);
                    self.count += looked;
                    match end {
                        Some(end) => {
                            arguments(&mut input, end, parameters.len(), definition.variadic)
                        }
                        // Without an argument list, the name is a plain identifier.
                        None => {
                            output.push(token);
                            continue;
                        }
                    }
                }
            };
            let body = self.substitute(&definition, &arguments, &token)?;
            for token in body.into_iter().rev() {
                input.push_front(token);
            }
        }
        self.depth -= 1;
        Ok(output)
    }

    /// Substitutes the arguments in the body.
    fn substitute(
        &mut self,
        definition: &Definition,
        arguments: &[Vec<Token>],
        name: &Token,
    ) -> Result<Vec<Token>, Error> {
        let none = Vec::new();
        let parameters = definition.parameters.as_ref().unwrap_or(&none);
        let at = |token: &Token| {
            let position = parameters
                .iter()
                .position(|p| token.is_identifier() && *p == token.text);
            position.and_then(|n| arguments.get(n))
        };
        let body = &definition.body;
        let mut out: Vec<Token> = Vec::new();
        let mut i = 0;
        while i < body.len() {
            let token = &body[i];
            let pasted = body.get(i + 1).is_some_and(|t| t.is(b"##"));
            let mut piece = match at(token) {
                None if token.is(b"#") && body.get(i + 1).is_some_and(|t| at(t).is_some()) => {
                    i += 1;
                    vec![stringify(at(&body[i]).map_or(&[], |a| a))]
                }
                None if token.is(b"##") && i > 0 && i + 1 < body.len() => {
                    i += 1;
                    let next = &body[i];
                    let right = match at(next) {
                        Some(argument) => argument.clone(),
                        None => vec![next.clone()],
                    };
                    paste(&mut out, right);
                    i += 1;
                    continue;
                }
                None => vec![token.clone()],
                Some(argument) if pasted => argument.clone(),
                Some(argument) => self.run(argument.clone())?,
            };
            if let Some(first) = piece.first_mut() {
                first.spaced = body[i].spaced || token.spaced;
            }
            self.count += piece.len();
            if self.count > TOKENS_MAX {
                return Err(Error::TooLarge);
            }
            out.append(&mut piece);
            i += 1;
        }
        for token in &mut out {
            token.hidden = Some(Rc::new(Hidden {
                name: name.text.clone(),
                rest: merge_hidden(&token.hidden, &name.hidden),
            }));
        }
        if let Some(first) = out.first_mut() {
            first.spaced = name.spaced;
        }
        Ok(out)
    }
}

/// The union of both lists.
fn merge_hidden(a: &Option<Rc<Hidden>>, b: &Option<Rc<Hidden>>) -> Option<Rc<Hidden>> {
    let mut all = a.clone();
    let mut next = b.as_ref();
    while let Some(hidden) = next {
        let known = Token {
            hidden: all.clone(),
            ..Token::new(Kind::Unknown, b"")
        };
        if !known.hides(&hidden.name) {
            all = Some(Rc::new(Hidden {
                name: hidden.name.clone(),
                rest: all,
            }));
        }
        next = hidden.rest.as_ref();
    }
    all
}

/// End of the argument list at the start of the input, and the number of tokens examined.
fn list_end(input: &VecDeque<Token>) -> (Option<usize>, usize) {
    if !input.front().is_some_and(|t| t.is(b"(")) {
        return (None, 0);
    }
    let mut depth = 0;
    for (i, token) in input.iter().enumerate() {
        match token {
            t if t.is(b"(") => depth += 1,
            t if t.is(b")") => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return (Some(i), i);
        }
    }
    (None, input.len())
}

/// Takes the arguments of a macro off the input.
fn arguments(
    input: &mut VecDeque<Token>,
    end: usize,
    count: usize,
    variadic: bool,
) -> Vec<Vec<Token>> {
    let list: Vec<Token> = input.drain(..=end).collect();
    let mut depth = 0;
    let mut arguments = vec![Vec::new()];
    for token in &list[1..list.len() - 1] {
        match token {
            t if t.is(b"(") => depth += 1,
            t if t.is(b")") => depth -= 1,
            _ => {}
        }
        let splits = token.is(b",") && depth == 0 && !(variadic && arguments.len() >= count);
        match (splits, arguments.last_mut()) {
            (true, _) => arguments.push(Vec::new()),
            (false, Some(last)) => last.push(token.clone()),
            (false, None) => {}
        }
    }
    arguments.resize(count.max(arguments.len()), Vec::new());
    arguments
}

fn stringify(argument: &[Token]) -> Token {
    let mut text = vec![b'"'];
    for (i, token) in argument.iter().enumerate() {
        if i > 0 && token.spaced {
            text.push(b' ');
        }
        let literal = matches!(token.kind, Kind::Text | Kind::Character);
        for byte in token.text.iter() {
            if literal && matches!(byte, b'"' | b'\\') {
                text.push(b'\\');
            }
            text.push(*byte);
        }
    }
    text.push(b'"');
    Token::new(Kind::Text, &text)
}

fn paste(out: &mut Vec<Token>, mut right: Vec<Token>) {
    if right.is_empty() {
        return;
    }
    let Some(left) = out.pop() else {
        out.append(&mut right);
        return;
    };
    let joined = [&left.text[..], &right[0].text[..]].concat();
    let mut made = tokens(&joined);
    match made.len() {
        1 => {
            made[0].spaced = left.spaced;
            out.append(&mut made);
        }
        // The result is not one token: compilers reject it.
        _ => out.extend([left, right[0].clone()]),
    }
    out.extend(right.drain(1..));
}
