//! Reads the text of LLVM's IR (version 16), restricted to the subset that kernels use. Anything
//! else is an error with the source line that it comes from.

use crate::ir::{
    Binary, Block, Cast, Function, Global, Instruction, Local, Module, Op, Place, Refusal, Type,
    Value,
};
use std::cell::RefCell;
use std::collections::HashMap;

type Result<T> = std::result::Result<T, Refusal>;

/// Members of the largest structure that is held in registers.
const MEMBERS_MAX: usize = 16;
/// Bytes of the largest global variable.
const GLOBAL_BYTES_MAX: usize = 1 << 24;

/// A cursor over a line.
struct Text<'a> {
    rest: &'a str,
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_.$-+".contains(c)
}

impl<'a> Text<'a> {
    fn new(rest: &'a str) -> Text<'a> {
        Text {
            rest: rest.trim_start(),
        }
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest[bytes..].trim_start();
    }

    /// Takes a token if it is there; words only whole.
    fn take(&mut self, token: &str) -> bool {
        let found = self.rest.starts_with(token)
            && !(token.ends_with(is_word) && self.rest[token.len()..].starts_with(is_word));
        if found {
            self.skip(token.len());
        }
        found
    }

    fn expect(&mut self, token: &str) -> std::result::Result<(), String> {
        match self.take(token) {
            true => Ok(()),
            false => Err(format!("expected '{token}' before '{}'", self.shown())),
        }
    }

    fn shown(&self) -> String {
        self.rest.chars().take(40).collect()
    }

    fn peek(&self) -> char {
        self.rest.chars().next().unwrap_or('\0')
    }

    fn word(&mut self) -> &'a str {
        let end = self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len());
        let word = &self.rest[..end];
        self.skip(end);
        word
    }

    /// A name behind `%`, `@` or `!`, quoted or not.
    fn name(&mut self) -> String {
        if self.rest.starts_with('"') {
            let end = self.rest[1..].find('"').map_or(self.rest.len(), |e| e + 2);
            let name = self.rest[1..end - 1].to_owned();
            self.skip(end);
            return name;
        }
        self.word().to_owned()
    }

    /// Skips a group in parentheses, as attributes have it.
    fn parenthesis(&mut self) {
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
    fn attributes(&mut self) {
        const WORDS: &[&str] = &[
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
            "private",
            "unnamed_addr",
            "local_unnamed_addr",
            "fastcc",
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
        loop {
            let before = self.rest;
            if self.take("align") {
                self.word();
                continue;
            }
            if [
                "dereferenceable",
                "dereferenceable_or_null",
                "byval",
                "sret",
                "elementtype",
                "range",
                "captures",
            ]
            .iter()
            .any(|w| self.take(w))
            {
                self.parenthesis();
                continue;
            }
            if WORDS.iter().any(|w| self.take(w)) {
                continue;
            }
            self.rest = before;
            return;
        }
    }
}

/// A metadata node: its kind, and its fields as text.
struct Node<'a> {
    kind: &'a str,
    fields: HashMap<&'a str, &'a str>,
}

struct Reader<'a> {
    types: HashMap<String, Type>,
    globals: HashMap<String, usize>,
    nodes: HashMap<&'a str, Node<'a>>,
    /// Constant structures that instructions have as operands.
    aggregates: RefCell<Vec<(Type, Vec<Value>)>>,
}

/// Decodes the escapes of a string constant, such as `\0A`.
fn unescape(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
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

/// Reads a module.
///
/// # Errors
///
/// The text is not IR of this version, or uses more than the supported subset.
pub fn module(text: &str) -> Result<Module> {
    let mut reader = Reader {
        types: HashMap::new(),
        globals: HashMap::new(),
        nodes: HashMap::new(),
        aggregates: RefCell::new(Vec::new()),
    };
    let mut module = Module::default();
    let lines: Vec<&str> = text.lines().collect();
    let odd = |line: usize, why: String| {
        Refusal::new(&Place::default(), format!("IR, line {}: {why}", line + 1))
    };
    // Names first, as uses may precede definitions.
    for line in &lines {
        if let Some(rest) = line.strip_prefix('!') {
            if let Some((name, node)) = rest.split_once(" = ") {
                reader.nodes.insert(name, node_of(node));
            }
        } else if let Some(rest) = line.strip_prefix('%') {
            if let Some((name, ty)) = rest.split_once(" = type ") {
                let ty = reader.ty(&mut Text::new(ty)).unwrap_or(Type::Void);
                reader.types.insert(name.trim_matches('"').to_owned(), ty);
            }
        } else if let Some(rest) = line.strip_prefix('@') {
            let name = Text { rest }.name();
            reader.globals.insert(name, module.globals.len());
            let name = Text { rest }.name();
            module.globals.push(Global {
                name,
                bytes: Vec::new(),
                pointers: Vec::new(),
                constant: false,
                external: false,
            });
        }
    }
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        if line.starts_with('@') {
            reader
                .global(line, &mut module.globals)
                .map_err(|e| odd(at, e))?;
        } else if line.starts_with("define ") {
            let end = (at..lines.len())
                .find(|&i| lines[i] == "}")
                .unwrap_or(lines.len());
            let function = reader.function(&lines[at..end])?;
            module.functions.push(function);
            at = end;
        }
        at += 1;
    }
    module.aggregates = reader.aggregates.into_inner();
    Ok(module)
}

fn node_of(text: &str) -> Node<'_> {
    let text = text.trim_start_matches("distinct ").trim_start_matches('!');
    let (kind, rest) = text.split_once('(').unwrap_or((text, ""));
    let mut fields = HashMap::new();
    // Commas and colons in quotes are parts of texts.
    let (mut quoted, mut from) = (false, 0);
    let rest = rest.trim_end_matches(')');
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
    for piece in pieces {
        if let Some((name, value)) = piece.split_once(": ") {
            fields.insert(name.trim(), value.trim());
        }
    }
    Node { kind, fields }
}

impl<'a> Reader<'a> {
    fn ty(&self, t: &mut Text<'_>) -> std::result::Result<Type, String> {
        let c = t.peek();
        if t.take("[") {
            let n = t
                .word()
                .parse()
                .map_err(|_| "malformed array length".to_owned())?;
            t.expect("x")?;
            let of = self.ty(t)?;
            t.expect("]")?;
            return Ok(Type::Array(n, Box::new(of)));
        }
        if t.take("<{") {
            return self.members(t, "}>", true);
        }
        if t.take("{") {
            return self.members(t, "}", false);
        }
        if c == '%' {
            t.skip(1);
            let name = t.name();
            return self
                .types
                .get(&name)
                .cloned()
                .ok_or(format!("unknown type '%{name}'"));
        }
        if c == '<' {
            return Err("vectors cannot be synthesized (use scalars or arrays)".to_owned());
        }
        let word = t.word();
        let ty = match word {
            "void" => Type::Void,
            "ptr" => Type::Ptr,
            "float" => Type::Float(32),
            "double" => Type::Float(64),
            _ => match word.strip_prefix('i').and_then(|n| n.parse().ok()) {
                Some(bits) => Type::Int(bits),
                None => return Err(format!("values of type '{word}' cannot be synthesized")),
            },
        };
        Ok(ty)
    }

    fn members(
        &self,
        t: &mut Text<'_>,
        end: &str,
        packed: bool,
    ) -> std::result::Result<Type, String> {
        let mut members = Vec::new();
        while !t.take(end) {
            members.push(self.ty(t)?);
            t.take(",");
        }
        Ok(Type::Struct(members, packed))
    }

    /// The source position that the `!dbg` of a line refers to.
    fn place(&self, line: &str) -> Place {
        let Some((_, rest)) = line.rsplit_once("!dbg !") else {
            return Place::default();
        };
        let mut id = Text::new(rest).word();
        let Some(mut line) = self.nodes.get(id).and_then(|n| n.fields.get("line")) else {
            return Place::default();
        };
        // Code that was inlined from the library has the position of the program's call of it.
        let mut outermost = id;
        while let Some(next) = self
            .nodes
            .get(outermost)
            .and_then(|n| n.fields.get("inlinedAt"))
        {
            let name = self.file(outermost);
            if !name.contains("humboldt/fabric/") {
                break;
            }
            outermost = next.trim_start_matches('!');
        }
        if !self.file(outermost).contains("humboldt/fabric/") {
            id = outermost;
            if let Some(l) = self.nodes.get(id).and_then(|n| n.fields.get("line")) {
                line = l;
            }
        }
        Place {
            file: self.file(id),
            line: line.parse().unwrap_or(0),
        }
    }

    fn file(&self, id: &str) -> String {
        let mut id = id;
        for _ in 0..100 {
            let Some(node) = self.nodes.get(id) else {
                return String::new();
            };
            if let Some(file) = node.fields.get("file") {
                let file = self.nodes.get(file.trim_start_matches('!'));
                let name = file
                    .and_then(|f| f.fields.get("filename"))
                    .copied()
                    .unwrap_or("");
                return name.trim_matches('"').to_owned();
            }
            match node.fields.get("scope") {
                Some(scope) => id = scope.trim_start_matches('!'),
                None => return String::new(),
            }
        }
        String::new()
    }

    fn global(&self, line: &str, globals: &mut [Global]) -> std::result::Result<(), String> {
        let mut t = Text::new(&line[1..]);
        let name = t.name();
        t.expect("=")?;
        let index = *self
            .globals
            .get(&name)
            .ok_or_else(|| format!("unknown global '@{name}'"))?;
        let external = t.rest.starts_with("external");
        let mut constant = false;
        loop {
            t.attributes();
            if t.take("global") {
                break;
            }
            if line.contains(" constant ") && !t.rest.starts_with("thread_local") {
                constant = true;
                break;
            }
            if t.word().is_empty() {
                t.skip(t.peek().len_utf8().min(t.rest.len()));
            }
            if t.rest.is_empty() {
                return Err(format!("global '@{name}' has no type"));
            }
        }
        let ty = self.ty(&mut t)?;
        let global = &mut globals[index];
        global.constant = constant;
        global.external = external;
        if external {
            return Ok(());
        }
        let size = usize::try_from(ty.size()).unwrap_or(usize::MAX);
        if size > GLOBAL_BYTES_MAX {
            return Err(format!(
                "'@{name}' has {size} bytes, more than {GLOBAL_BYTES_MAX} (make the array smaller)"
            ));
        }
        let mut bytes = vec![0; size];
        let mut pointers = Vec::new();
        self.initial(&mut t, &ty, 0, &mut bytes, &mut pointers)?;
        global.bytes = bytes;
        global.pointers = pointers;
        Ok(())
    }

    fn initial(
        &self,
        t: &mut Text<'_>,
        ty: &Type,
        at: u64,
        bytes: &mut [u8],
        pointers: &mut Vec<(u64, Value)>,
    ) -> std::result::Result<(), String> {
        if t.take("zeroinitializer") || t.take("undef") || t.take("poison") {
            return Ok(());
        }
        match ty {
            Type::Array(..) if t.rest.starts_with("c\"") => {
                let end = t.rest[2..]
                    .find('"')
                    .ok_or("unterminated string constant")?
                    + 2;
                for (i, byte) in unescape(&t.rest[2..end]).into_iter().enumerate() {
                    bytes[at as usize + i] = byte;
                }
                t.skip(end + 1);
                Ok(())
            }
            Type::Array(n, of) => {
                t.expect("[")?;
                for i in 0..*n {
                    self.ty(t)?;
                    self.initial(t, of, at + i * of.size(), bytes, pointers)?;
                    t.take(",");
                }
                t.expect("]")
            }
            Type::Struct(members, packed) => {
                t.expect(if *packed { "<{" } else { "{" })?;
                for (i, member) in members.iter().enumerate() {
                    self.ty(t)?;
                    self.initial(t, member, at + ty.offset(i), bytes, pointers)?;
                    t.take(",");
                }
                t.expect(if *packed { "}>" } else { "}" })
            }
            _ => {
                match self.value(t, ty, &mut |_| None)? {
                    Value::Bits(bits) => {
                        let size = ty.size() as usize;
                        bytes[at as usize..at as usize + size]
                            .copy_from_slice(&bits.to_le_bytes()[..size]);
                    }
                    Value::Null | Value::Undef => {}
                    value => pointers.push((at, value)),
                }
                Ok(())
            }
        }
    }

    /// The members of a constant structure.
    fn constant(
        &self,
        t: &mut Text<'_>,
        ty: &Type,
        out: &mut Vec<Value>,
    ) -> std::result::Result<(), String> {
        if !ty.is_aggregate() {
            out.push(self.value(t, ty, &mut |_| None)?);
        } else if t.take("undef") || t.take("poison") {
            out.extend(ty.members().iter().map(|_| Value::Undef));
        } else if t.take("zeroinitializer") {
            out.extend(ty.members().iter().map(|(ty, _)| match ty {
                Type::Ptr => Value::Null,
                _ => Value::Bits(0),
            }));
        } else {
            let end = ["<{", "{", "["].iter().find(|open| t.take(open));
            let end = match *end.ok_or("malformed constant structure")? {
                "<{" => "}>",
                "{" => "}",
                _ => "]",
            };
            while !t.take(end) {
                let member = self.ty(t)?;
                self.constant(t, &member, out)?;
                t.take(",");
            }
        }
        Ok(())
    }

    /// Whether the load or store of this line accesses an object of an arithmetic type, by its tag
    /// of type-based alias analysis.
    fn numeric(&self, line: &str) -> bool {
        let node = |id: &str| self.nodes.get(id.trim_start_matches('!')).map(|n| n.kind);
        let Some((_, rest)) = line.split_once("!tbaa !") else {
            return false;
        };
        // The tag: base type, access type, offset of the access in the base type.
        let tag = node(Text::new(rest).word());
        let access = tag.and_then(|kind| kind.split(", ").nth(1)).and_then(node);
        access.is_some_and(|kind| {
            let name = kind.trim_start_matches("{!\"").split('"').next();
            name.is_some_and(|n| !n.is_empty() && !["omnipotent char", "any pointer"].contains(&n))
        })
    }

    /// Reads a value of a type; `local` finds the function's own values.
    fn value(
        &self,
        t: &mut Text<'_>,
        ty: &Type,
        local: &mut dyn FnMut(&str) -> Option<usize>,
    ) -> std::result::Result<Value, String> {
        t.attributes();
        if ty.is_aggregate() && t.peek() != '%' {
            let mut members = Vec::new();
            self.constant(t, ty, &mut members)?;
            let mut all = self.aggregates.borrow_mut();
            all.push((ty.clone(), members));
            return Ok(Value::Aggregate(all.len() - 1));
        }
        if t.take("true") {
            return Ok(Value::Bits(1));
        }
        if t.take("false") || t.take("zeroinitializer") {
            return Ok(Value::Bits(0));
        }
        if t.take("null") {
            return Ok(Value::Null);
        }
        if t.take("undef") || t.take("poison") {
            return Ok(Value::Undef);
        }
        if t.take("getelementptr") {
            t.attributes();
            t.expect("(")?;
            let (base, offset, parts) = self.address(t, local)?;
            t.expect(")")?;
            return match base {
                Value::Global(g, o) if parts.is_empty() => Ok(Value::Global(g, o + offset)),
                _ => Err("constant address with a variable index".to_owned()),
            };
        }
        if ["ptrtoint", "inttoptr", "bitcast"]
            .iter()
            .any(|word| t.take(word))
        {
            t.expect("(")?;
            let value = self.typed(t, local)?.1;
            t.expect("to")?;
            self.ty(t)?;
            t.expect(")")?;
            return Ok(value);
        }
        if t.take("select") {
            t.expect("(")?;
            let condition = self.typed(t, local)?.1;
            t.expect(",")?;
            let yes = self.typed(t, local)?.1;
            t.expect(",")?;
            let no = self.typed(t, local)?.1;
            t.expect(")")?;
            return match condition {
                Value::Bits(c) => Ok(if c & 1 == 1 { yes } else { no }),
                _ => {
                    Err("constant expression 'select' whose condition is not a constant".to_owned())
                }
            };
        }
        if t.take("icmp") {
            let predicate = t.word().to_owned();
            t.expect("(")?;
            let a = self.typed(t, local)?.1;
            t.expect(",")?;
            let b = self.typed(t, local)?.1;
            t.expect(")")?;
            // Different objects have different addresses.
            return match (predicate.as_str(), a, b) {
                ("eq", Value::Global(..), Value::Global(..) | Value::Null) => {
                    Ok(Value::Bits(u64::from(a == b)))
                }
                ("ne", Value::Global(..), Value::Global(..) | Value::Null) => {
                    Ok(Value::Bits(u64::from(a != b)))
                }
                _ => Err(
                    "constant expression that compares addresses other than for equality"
                        .to_owned(),
                ),
            };
        }
        match t.peek() {
            '%' => {
                t.skip(1);
                let name = t.name();
                local(&name)
                    .map(Value::Local)
                    .ok_or(format!("unknown value '%{name}'"))
            }
            '@' => {
                t.skip(1);
                let name = t.name();
                let found = self.globals.get(&name).map(|g| Value::Global(*g, 0));
                found.ok_or(format!(
                    "the address of function '{name}' is used: hardware has no calls through pointers \
                     (call the function by its name)"
                ))
            }
            _ => number(t.word(), ty),
        }
    }

    fn typed(
        &self,
        t: &mut Text<'_>,
        local: &mut dyn FnMut(&str) -> Option<usize>,
    ) -> std::result::Result<(Type, Value), String> {
        let ty = self.ty(t)?;
        let value = self.value(t, &ty, local)?;
        Ok((ty, value))
    }

    /// Reads the operands of `getelementptr`: base, constant offset in bytes, and indices with
    /// their width in bits and scale in bytes.
    #[allow(clippy::type_complexity)]
    fn address(
        &self,
        t: &mut Text<'_>,
        local: &mut dyn FnMut(&str) -> Option<usize>,
    ) -> std::result::Result<(Value, i64, Vec<(Value, u32, i64)>), String> {
        let mut ty = self.ty(t)?;
        t.expect(",")?;
        let (_, base) = self.typed(t, local)?;
        let (mut offset, mut parts, mut first) = (0_i64, Vec::new(), true);
        while t.take(",") {
            if t.rest.starts_with('!') {
                break;
            }
            t.take("inrange");
            let (index_type, index) = self.typed(t, local)?;
            let bits = index_type.bits().unwrap_or(32);
            let scale;
            if first {
                scale = ty.size() as i64;
            } else if let Type::Struct(members, _) = &ty {
                let Value::Bits(member) = index else {
                    return Err("index of a structure's member is not a constant".to_owned());
                };
                offset += ty.offset(member as usize) as i64;
                ty = members
                    .get(member as usize)
                    .cloned()
                    .ok_or("structure has no member with this index")?;
                continue;
            } else if let Type::Array(_, of) = ty {
                scale = of.size() as i64;
                ty = *of;
            } else {
                return Err("index into a value that is not an array or a structure".to_owned());
            }
            first = false;
            match index {
                Value::Bits(n) => offset += signed(n, bits).wrapping_mul(scale),
                Value::Undef => {}
                index => parts.push((index, bits, scale)),
            }
        }
        Ok((base, offset, parts))
    }

    fn function(&self, lines: &[&'a str]) -> Result<Function> {
        let place = self.place(lines[0]);
        let fail = |why: String| Refusal::new(&place, why);
        let mut t = Text::new(lines[0].strip_prefix("define ").unwrap_or(lines[0]));
        t.attributes();
        let result = self.ty(&mut t).map_err(fail)?;
        let fail = |why: String| Refusal::new(&place, why);
        t.expect("@").map_err(fail)?;
        let name = t.name();
        t.take("(");
        let mut f = Function {
            name,
            result,
            parameters: 0,
            values: Vec::new(),
            blocks: Vec::new(),
            place: place.clone(),
        };
        let mut names: HashMap<String, usize> = HashMap::new();
        while !t.take(")") {
            if t.take("...") {
                return Err(Refusal::new(
                    &place,
                    format!(
                        "function '{}' has a variable number of arguments (declare each parameter)",
                        f.name
                    ),
                ));
            }
            let ty = self.ty(&mut t).map_err(|e| Refusal::new(&place, e))?;
            t.attributes();
            t.skip(1);
            let name = t.name();
            names.insert(name.clone(), f.value(&name, ty));
            t.take(",");
        }
        f.parameters = f.values.len();
        // Names of blocks and results first, as uses may precede definitions.
        let mut blocks: HashMap<String, usize> = HashMap::new();
        for line in &lines[1..] {
            let line = line.split(';').next().unwrap_or("").trim_end();
            if let Some(name) = line.strip_suffix(':').filter(|_| !line.starts_with(' ')) {
                blocks.insert(name.trim_matches('"').to_owned(), blocks.len());
                f.blocks.push(Block {
                    name: name.trim_matches('"').to_owned(),
                    code: Vec::new(),
                });
            } else if !line.trim().is_empty() && f.blocks.is_empty() {
                // The first block may lack a name: its number follows the parameters'.
                let name = f.parameters.to_string();
                blocks.insert(name.clone(), 0);
                f.blocks.push(Block {
                    name,
                    code: Vec::new(),
                });
            }
            if let Some(rest) = line.strip_prefix("  %") {
                let mut t = Text { rest };
                let name = t.name();
                if t.take("=") && !names.contains_key(&name) {
                    names.insert(name.clone(), f.values.len());
                    f.values.push(Local {
                        name,
                        ty: Type::Void,
                    });
                }
            }
        }
        let mut current = 0;
        let mut at = 1;
        while at < lines.len() {
            let mut whole = lines[at].to_owned();
            // A switch has lines of its own.
            if whole.trim_start().starts_with("switch ") {
                while !lines[at].trim_start().starts_with(']') && at + 1 < lines.len() {
                    at += 1;
                    whole.push(' ');
                    whole.push_str(lines[at].trim());
                }
            }
            at += 1;
            let line = whole.as_str();
            if line.trim().is_empty() || line.trim_start().starts_with(';') {
                continue;
            }
            if !line.starts_with(' ') {
                let name = line.split(':').next().unwrap_or("").trim_matches('"');
                current = blocks.get(name).copied().unwrap_or(0);
                continue;
            }
            let place = self.place(line);
            let mut t = Text::new(line);
            if let Some(rest) = line
                .trim_start()
                .strip_prefix("call void @llvm.dbg.value(metadata ")
            {
                self.variable(rest, &names, &mut f.values);
                continue;
            }
            let mut result = None;
            if t.peek() == '%' {
                t.skip(1);
                let name = t.name();
                t.take("=");
                result = names.get(&name).copied();
            }
            let read = self
                .instruction(&mut t, &names, &blocks)
                .map_err(|e| Refusal::new(&place, e))?;
            let Some((op, ty)) = read else {
                continue;
            };
            if let Some(result) = result {
                f.values[result].ty = ty;
            }
            let mut instruction = Instruction::new(result, op, &place);
            instruction.numeric = self.numeric(line);
            f.blocks[current].code.push(instruction);
        }
        Ok(f)
    }

    /// Names a value after the source's variable.
    fn variable(&self, rest: &str, names: &HashMap<String, usize>, values: &mut [Local]) {
        let Some((value, rest)) = rest.split_once(", metadata !") else {
            return;
        };
        let (Some((_, name)), Some((id, expression))) =
            (value.split_once(" %"), rest.split_once(','))
        else {
            return;
        };
        let node = self.nodes.get(id).filter(|n| n.kind == "DILocalVariable");
        let Some(variable) = node.and_then(|n| n.fields.get("name")) else {
            return;
        };
        if let (Some(&index), true) = (names.get(name), expression.contains("!DIExpression()")) {
            if index < values.len() {
                values[index].name = variable.trim_matches('"').to_owned();
            }
        }
    }

    /// Reads an instruction and its result's type; `None` for one that only informs the compiler.
    #[allow(clippy::too_many_lines)]
    fn instruction(
        &self,
        t: &mut Text<'_>,
        names: &HashMap<String, usize>,
        blocks: &HashMap<String, usize>,
    ) -> std::result::Result<Option<(Op, Type)>, String> {
        let local = &mut |name: &str| names.get(name).copied();
        let block = |t: &mut Text<'_>| -> std::result::Result<usize, String> {
            t.take("label");
            t.expect("%")?;
            let name = t.name();
            blocks
                .get(&name)
                .copied()
                .ok_or(format!("unknown block '%{name}'"))
        };
        t.attributes();
        let word = t.word();
        t.attributes();
        if let Some(binary) = binary(word) {
            let (ty, a) = self.typed(t, local)?;
            t.expect(",")?;
            let b = self.value(t, &ty, local)?;
            return Ok(Some((Op::Binary(binary, a, b), ty)));
        }
        let cast = match word {
            "trunc" | "zext" | "ptrtoint" | "inttoptr" | "bitcast" => Some(Cast::Bits),
            "sext" => Some(Cast::Sext),
            "sitofp" => Some(Cast::Sitofp),
            "uitofp" => Some(Cast::Uitofp),
            "fptosi" => Some(Cast::Fptosi),
            "fptoui" => Some(Cast::Fptoui),
            "fpext" => Some(Cast::Fpext),
            "fptrunc" => Some(Cast::Fptrunc),
            _ => None,
        };
        if let Some(cast) = cast {
            let (from, value) = self.typed(t, local)?;
            t.expect("to")?;
            let ty = self.ty(t)?;
            let bits = from
                .bits()
                .ok_or("conversion of a value that does not fit a register")?;
            return Ok(Some((Op::Cast(cast, bits, value), ty)));
        }
        let found = match word {
            "icmp" | "fcmp" => {
                let predicate = t.word().to_owned();
                let (ty, a) = self.typed(t, local)?;
                t.expect(",")?;
                let b = self.value(t, &ty, local)?;
                let bits = ty
                    .bits()
                    .ok_or("comparison of values that do not fit a register")?;
                let float = matches!(ty, Type::Float(_));
                let predicate = if float {
                    format!("f{predicate}")
                } else {
                    predicate
                };
                (Op::Compare(predicate, bits, a, b), Type::Int(1))
            }
            "select" => {
                let (_, c) = self.typed(t, local)?;
                t.expect(",")?;
                let (ty, a) = self.typed(t, local)?;
                t.expect(",")?;
                let (_, b) = self.typed(t, local)?;
                (Op::Select(c, a, b), ty)
            }
            "fneg" => {
                let (ty, a) = self.typed(t, local)?;
                (Op::Fneg(a), ty)
            }
            "freeze" => {
                let (ty, a) = self.typed(t, local)?;
                (Op::Copy(a), ty)
            }
            "getelementptr" => {
                let (base, offset, parts) = self.address(t, local)?;
                (Op::Address(base, offset, parts), Type::Ptr)
            }
            "load" => {
                let ty = self.ty(t)?;
                t.expect(",")?;
                let (_, from) = self.typed(t, local)?;
                self.in_registers(&ty)?;
                (Op::Load(from, ty.size()), ty)
            }
            "store" => {
                let (ty, value) = self.typed(t, local)?;
                t.expect(",")?;
                let (_, to) = self.typed(t, local)?;
                self.in_registers(&ty)?;
                (Op::Store(value, to, ty.size(), None), Type::Void)
            }
            "insertvalue" => {
                let (ty, whole) = self.typed(t, local)?;
                t.expect(",")?;
                let (_, part) = self.typed(t, local)?;
                let (first, _) = self.member(t, &ty)?;
                (Op::Insert(whole, part, first), ty)
            }
            "extractvalue" => {
                let (ty, whole) = self.typed(t, local)?;
                let (first, member) = self.member(t, &ty)?;
                (Op::Extract(whole, first), member)
            }
            "alloca" => {
                let ty = self.ty(t)?;
                let mut count = 1;
                while t.take(",") {
                    if t.take("align") {
                        t.word();
                    } else if t.rest.starts_with('i') {
                        match self.typed(t, local)?.1 {
                            Value::Bits(n) => count = n,
                            _ => {
                                return Err(
                                    "array with a variable length (give it a constant length)"
                                        .to_owned(),
                                )
                            }
                        }
                    } else {
                        break;
                    }
                }
                (Op::Local(ty.size() * count), Type::Ptr)
            }
            "phi" => {
                let ty = self.ty(t)?;
                let mut from = Vec::new();
                while t.take("[") {
                    let value = self.value(t, &ty, local)?;
                    t.expect(",")?;
                    from.push((block(t)?, value));
                    t.expect("]")?;
                    t.take(",");
                }
                (Op::Phi(from), ty)
            }
            "br" => {
                if t.rest.starts_with("label") {
                    (Op::Jump(block(t)?), Type::Void)
                } else {
                    let (_, condition) = self.typed(t, local)?;
                    t.expect(",")?;
                    let yes = block(t)?;
                    t.expect(",")?;
                    (Op::Branch(condition, yes, block(t)?), Type::Void)
                }
            }
            "switch" => {
                let (ty, value) = self.typed(t, local)?;
                t.expect(",")?;
                let default = block(t)?;
                t.expect("[")?;
                let mut cases = Vec::new();
                while !t.take("]") {
                    let (_, case) = self.typed(t, local)?;
                    let Value::Bits(case) = case else {
                        return Err("case of 'switch' is not a number".to_owned());
                    };
                    t.expect(",")?;
                    cases.push((case, block(t)?));
                }
                (
                    Op::Switch(value, ty.bits().unwrap_or(32), cases, default),
                    Type::Void,
                )
            }
            "ret" => match self.ty(t)? {
                Type::Void => (Op::Return(None), Type::Void),
                ty => (Op::Return(Some(self.value(t, &ty, local)?)), Type::Void),
            },
            "unreachable" => (Op::Unreachable, Type::Void),
            "call" => return self.call(t, local),
            other => return Err(format!("LLVM instruction '{other}' cannot be synthesized")),
        };
        Ok(Some(found))
    }

    fn in_registers(&self, ty: &Type) -> std::result::Result<(), String> {
        match ty.members().len() {
            0 => Err("access to a value of zero bytes".to_owned()),
            n if n > MEMBERS_MAX => Err(format!(
                "load or store of a structure with {n} members, more than {MEMBERS_MAX} (copy its members)"
            )),
            _ => Ok(()),
        }
    }

    /// Reads the indices of a member of a structure in registers: the index of its first value
    /// among the structure's, its type.
    fn member(&self, t: &mut Text<'_>, ty: &Type) -> std::result::Result<(usize, Type), String> {
        let (mut first, mut ty) = (0, ty.clone());
        while t.take(",") {
            if t.peek() == '!' {
                break;
            }
            let index: usize = t
                .word()
                .parse()
                .map_err(|_| "malformed index of a member")?;
            let before: usize;
            (before, ty) = match &ty {
                Type::Array(n, of) if (index as u64) < *n => {
                    (index * of.members().len(), (**of).clone())
                }
                Type::Struct(members, _) if index < members.len() => (
                    members[..index].iter().map(|m| m.members().len()).sum(),
                    members[index].clone(),
                ),
                _ => return Err("structure has no member with this index".to_owned()),
            };
            first += before;
        }
        Ok((first, ty))
    }

    fn call(
        &self,
        t: &mut Text<'_>,
        local: &mut dyn FnMut(&str) -> Option<usize>,
    ) -> std::result::Result<Option<(Op, Type)>, String> {
        let ty = self.ty(t)?;
        if t.peek() == '(' {
            t.parenthesis();
        }
        t.attributes();
        if t.peek() != '@' {
            let what = if t.rest.starts_with("asm") {
                "inline assembly cannot be synthesized (write it in C)"
            } else {
                "call through a pointer cannot be synthesized (call the function by its name)"
            };
            return Err(what.to_owned());
        }
        t.skip(1);
        let name = t.name();
        let ignored = [
            "llvm.dbg.",
            "llvm.lifetime.",
            "llvm.assume",
            "llvm.experimental.noalias.scope",
        ];
        if ignored.iter().any(|i| name.starts_with(i)) {
            return Ok(None);
        }
        t.expect("(")?;
        let mut arguments = Vec::new();
        while !t.take(")") {
            arguments.push(self.typed(t, local).map_err(|e| format!("{name}: {e}"))?);
            t.take(",");
        }
        let value = |i: usize| arguments.get(i).map_or(Value::Undef, |a| a.1);
        let stem = name
            .strip_prefix("llvm.")
            .map(|n| n.split('.').next().unwrap_or(""));
        let two = match stem {
            Some("umin") => Some(Binary::Umin),
            Some("umax") => Some(Binary::Umax),
            Some("smin") => Some(Binary::Smin),
            Some("smax") => Some(Binary::Smax),
            _ => None,
        };
        if let Some(binary) = two {
            return Ok(Some((Op::Binary(binary, value(0), value(1)), ty)));
        }
        match stem {
            Some("expect") => return Ok(Some((Op::Copy(value(0)), ty))),
            Some("fabs") => return Ok(Some((Op::Fabs(value(0)), ty))),
            _ => {}
        }
        Ok(Some((Op::Call(name, arguments), ty)))
    }
}

/// Sign-extends the lower `bits` of a number.
pub fn signed(value: u64, bits: u32) -> i64 {
    match bits {
        0 => 0,
        1..=63 => ((value << (64 - bits)) as i64) >> (64 - bits),
        _ => value as i64,
    }
}

/// Clears all but the lower `bits` of a number.
pub fn masked(value: u64, bits: u32) -> u64 {
    match bits {
        0..=63 => value & ((1 << bits) - 1),
        _ => value,
    }
}

fn number(word: &str, ty: &Type) -> std::result::Result<Value, String> {
    let wrong = || format!("'{word}' is not a number");
    let bits = match ty {
        Type::Float(32) => match word.strip_prefix("0x") {
            // LLVM writes floats as doubles.
            Some(hex) => {
                let bits = u64::from_str_radix(hex, 16).map_err(|_| wrong())?;
                u64::from((f64::from_bits(bits) as f32).to_bits())
            }
            None => u64::from(
                (word
                    .trim_end_matches('+')
                    .parse::<f64>()
                    .map_err(|_| wrong())? as f32)
                    .to_bits(),
            ),
        },
        Type::Float(_) => match word.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).map_err(|_| wrong())?,
            None => word.parse::<f64>().map_err(|_| wrong())?.to_bits(),
        },
        Type::Int(bits) if *bits <= 64 => {
            let value = word.parse::<i128>().map_err(|_| wrong())?;
            masked(value as u64, *bits)
        }
        _ => return Err(format!("'{word}' is an integer of more than 64 bits")),
    };
    Ok(Value::Bits(bits))
}

fn binary(word: &str) -> Option<Binary> {
    Some(match word {
        "add" => Binary::Add,
        "sub" => Binary::Sub,
        "mul" => Binary::Mul,
        "udiv" => Binary::Udiv,
        "sdiv" => Binary::Sdiv,
        "urem" => Binary::Urem,
        "srem" => Binary::Srem,
        "and" => Binary::And,
        "or" => Binary::Or,
        "xor" => Binary::Xor,
        "shl" => Binary::Shl,
        "lshr" => Binary::Lshr,
        "ashr" => Binary::Ashr,
        "fadd" => Binary::Fadd,
        "fsub" => Binary::Fsub,
        "fmul" => Binary::Fmul,
        _ => return None,
    })
}
