//! Replaces `printf` and `fprintf` with a constant format by calls that print one item each
//! (humboldt/fabric/hls.c).

use crate::builder::Builder;
use crate::error::{Error, Result};
use crate::ir::{Callee, Cast, Function, Global, GlobalId, Op, Type, Value};

/// Flags of the printing functions.
const LEFT: u64 = 1;
const ZEROES: u64 = 2;
const PLUS: u64 = 4;
const BLANK: u64 = 8;
const UPPER: u64 = 16;
const SIGNED: u64 = 32;
const ALTERNATE: u64 = 64;
const EXPONENT: u64 = 128;
const GENERAL: u64 = 256;

/// Replaces the calls in a function.
pub fn expand(function: &mut Function, globals: &mut Vec<Global>) -> Result<()> {
    let blocks = std::mem::take(&mut function.blocks);
    let mut builder = Builder::new(function);
    let mut done = Vec::new();
    for mut block in blocks {
        for instruction in block.code {
            builder.position = instruction.position.clone();
            let arguments = match &instruction.op {
                Op::Call(Callee::Named(name), arguments) => match name.as_str() {
                    "printf" => Some(arguments.as_slice()),
                    "fprintf" => Some(arguments.get(1..).unwrap_or_default()),
                    _ => None,
                },
                _ => None,
            };
            let Some(arguments) = arguments else {
                builder.code.push(instruction);
                continue;
            };
            let position = instruction.position.clone();
            call(&mut builder, globals, arguments).map_err(|mut e| {
                e.message = format!("printf: {}", e.message);
                e.at(&position)
            })?;
            // OpenCL C's result of a printf that succeeded.
            if let Some(result) = instruction.result {
                builder.define(result, Op::Copy(Value::Bits(0)));
            }
        }
        block.code = std::mem::take(&mut builder.code);
        done.push(block);
    }
    function.blocks = done;
    Ok(())
}

/// Appends the calls for one `printf`; `arguments` begin with the format.
fn call(
    builder: &mut Builder<'_>,
    globals: &mut Vec<Global>,
    arguments: &[(Type, Value)],
) -> Result<()> {
    let format = match arguments.first() {
        Some((_, Value::Global(g, offset))) if globals[g.0].constant => {
            let bytes = globals[g.0].bytes.get(*offset as usize..);
            let mut parts = bytes.unwrap_or_default().split(|b| *b == 0);
            parts.next().unwrap_or_default().to_vec()
        }
        _ => {
            return Err(Error::unsupported("the format is not a constant string")
                .remedy("write the format in the call"))
        }
    };
    let mut items = Items {
        format: &format,
        at: 0,
        arguments: arguments[1..].iter(),
    };
    let mut plain = Vec::new();
    while let Some(&byte) = format.get(items.at) {
        if byte != b'%' || format.get(items.at + 1) == Some(&b'%') {
            plain.push(byte);
            items.at += 1 + usize::from(byte == b'%');
            continue;
        }
        items.at += 1;
        let conversion = items.conversion()?;
        text(builder, globals, &mut plain);
        let argument = items.argument()?;
        let (ty, value) = &argument;
        match ty {
            Type::Vector(n, element) if *n == conversion.elements as u64 => {
                for at in 0..conversion.elements {
                    if at > 0 {
                        plain.push(b',');
                        text(builder, globals, &mut plain);
                    }
                    let op = Op::Extract(*value, at);
                    let mut ty = (**element).clone();
                    let mut part = builder.value("element", ty.clone(), op);
                    if ty == Type::Float(32) {
                        ty = Type::Float(64);
                        part = builder.value("wide", ty.clone(), Op::Cast(Cast::Fpext, 32, part));
                    }
                    print(builder, conversion.clone(), (ty, part))?;
                }
            }
            _ => print(builder, conversion, argument)?,
        }
    }
    text(builder, globals, &mut plain);
    Ok(())
}

/// Appends a call that prints collected text, if there is any.
fn text(builder: &mut Builder<'_>, globals: &mut Vec<Global>, plain: &mut Vec<u8>) {
    if plain.is_empty() {
        return;
    }
    let mut bytes = std::mem::take(plain);
    bytes.push(0);
    let found = globals
        .iter()
        .position(|g| g.constant && g.pointers.is_empty() && g.bytes == bytes);
    let index = found.unwrap_or_else(|| {
        let mut global = Global::zeroed(format!(".text.{}", globals.len()), 0);
        global.bytes = bytes;
        global.constant = true;
        globals.push(global);
        globals.len() - 1
    });
    let shown = Value::Global(GlobalId(index), 0);
    library(builder, "hum_print_text", &[(Type::Ptr, shown)]);
}

fn library(builder: &mut Builder<'_>, name: &str, arguments: &[(Type, Value)]) {
    let callee = Callee::Named(name.to_owned());
    builder.effect(Op::Call(callee, arguments.to_vec()));
}

fn int(value: u64) -> (Type, Value) {
    (Type::Int(32), Value::Bits(value & 0xffff_ffff))
}

/// A conversion of a format.
#[derive(Clone)]
struct Conversion<'a> {
    flags: u64,
    width: (Type, Value),
    precision: Option<(Type, Value)>,
    /// Elements of a vector; 0: a scalar.
    elements: usize,
    /// `h`, `l` and the like.
    size: &'a [u8],
    kind: u8,
}

/// Reads a format, and takes the arguments of its items.
struct Items<'a> {
    format: &'a [u8],
    at: usize,
    arguments: std::slice::Iter<'a, (Type, Value)>,
}

impl<'a> Items<'a> {
    fn argument(&mut self) -> Result<(Type, Value)> {
        self.arguments.next().cloned().ok_or_else(|| {
            Error::unsupported("fewer arguments than conversions in the format")
                .remedy("pass an argument for each conversion")
        })
    }

    fn flags(&mut self) -> Result<u64> {
        let mut flags = 0;
        while let Some(flag) = self.format.get(self.at) {
            flags |= match flag {
                b'-' => LEFT,
                b'0' => ZEROES,
                b'+' => PLUS,
                b' ' => BLANK,
                b'#' => ALTERNATE,
                _ => break,
            };
            self.at += 1;
        }
        Ok(flags)
    }

    fn number(&mut self) -> Result<Option<(Type, Value)>> {
        if self.format.get(self.at) == Some(&b'*') {
            self.at += 1;
            return Ok(Some(self.argument()?));
        }
        let digits = self.span(|c| c.is_ascii_digit());
        let digits = std::str::from_utf8(digits).unwrap_or("");
        Ok(digits.parse::<u16>().ok().map(|n| int(u64::from(n))))
    }

    fn span(&mut self, accept: impl Fn(&u8) -> bool) -> &'a [u8] {
        let from = self.at;
        while self.format.get(self.at).is_some_and(&accept) {
            self.at += 1;
        }
        &self.format[from..self.at]
    }

    /// Reads a conversion after its `%`.
    fn conversion(&mut self) -> Result<Conversion<'a>> {
        let flags = self.flags()?;
        let width = self.number()?.unwrap_or(int(0));
        let mut precision = None;
        if self.format.get(self.at) == Some(&b'.') {
            self.at += 1;
            precision = Some(self.number()?.unwrap_or(int(0)));
        }
        let mut elements = 0;
        if self.format.get(self.at) == Some(&b'v') {
            self.at += 1;
            let digits = self.span(|c| c.is_ascii_digit());
            elements = std::str::from_utf8(digits)
                .unwrap_or("")
                .parse()
                .unwrap_or(0);
        }
        let size = self.span(|c| b"hlzjt".contains(c));
        let kind = self.format.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        Ok(Conversion {
            flags,
            width,
            precision,
            elements,
            size,
            kind,
        })
    }
}

/// Appends the call that prints an argument.
fn print(
    builder: &mut Builder<'_>,
    conversion: Conversion<'_>,
    argument: (Type, Value),
) -> Result<()> {
    let Conversion {
        flags,
        width,
        precision,
        size,
        kind,
        elements: _,
    } = conversion;
    let given = precision.clone().unwrap_or(int(u64::MAX));
    let upper = kind.is_ascii_uppercase();
    let flags = flags | if upper { UPPER } else { 0 };
    match (kind, &argument.0) {
        (b'd' | b'i' | b'u' | b'x' | b'X' | b'o', Type::Int(bits)) => {
            let signed = kind == b'd' || kind == b'i';
            let flags = flags | if signed { SIGNED } else { 0 };
            let base = match kind {
                b'x' | b'X' => 16,
                b'o' => 8,
                _ => 10,
            };
            let narrow = match size {
                b"hh" => 8.min(*bits),
                b"h" => 16.min(*bits),
                _ => *bits,
            };
            let mut value = argument.1;
            if narrow < *bits {
                let op = Op::Cast(Cast::Bits, *bits, value);
                value = builder.value("number", Type::Int(narrow), op);
            }
            let cast = if signed { Cast::Sext } else { Cast::Bits };
            let op = Op::Cast(cast, narrow, value);
            let wide = builder.value("number", Type::Int(64), op);
            let wide = (Type::Int(64), wide);
            let arguments = [wide, int(base), width, given, int(flags)];
            library(builder, "hum_print_number", &arguments);
        }
        (b'c', Type::Int(_)) => {
            library(
                builder,
                "hum_print_character",
                &[argument, width, int(flags)],
            );
        }
        (b's', Type::Ptr) => {
            let arguments = [argument, width, given, int(flags)];
            library(builder, "hum_print_string", &arguments);
        }
        (b'p', Type::Ptr) => {
            let op = Op::Cast(Cast::Bits, 64, argument.1);
            let address = builder.value("address", Type::Int(64), op);
            let address = (Type::Int(64), address);
            let arguments = [address, int(16), width, given, int(flags | ALTERNATE)];
            library(builder, "hum_print_number", &arguments);
        }
        (b'f' | b'F' | b'e' | b'E' | b'g' | b'G' | b'a' | b'A', Type::Float(64)) => {
            let (name, style) = match kind {
                b'f' | b'F' => ("hum_print_double", 0),
                b'e' | b'E' => ("hum_print_scientific", EXPONENT),
                b'g' | b'G' => ("hum_print_scientific", GENERAL),
                _ => ("hum_print_hexadecimal", 0),
            };
            let arguments = [argument, width, given, int(flags | style)];
            library(builder, name, &arguments);
        }
        _ => {
            return Err(Error::unsupported(format!(
                "conversion '%{}' of this argument is not supported",
                char::from(kind)
            ))
            .remedy("pass an integer to %d, %i, %u, %x, %o and %c, a pointer to %s and %p, a float to %f, %e, %g and %a"))
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(format: &str, arguments: &[(Type, Value)]) -> Result<Vec<String>> {
        let mut globals = vec![Global::zeroed("format".to_owned(), 0)];
        globals[0].bytes = format!("{format}\0").into_bytes();
        globals[0].constant = true;
        let mut function = Function::empty();
        let mut all = vec![(Type::Ptr, Value::Global(GlobalId(0), 0))];
        all.extend(arguments.iter().cloned());
        let mut builder = Builder::new(&mut function);
        call(&mut builder, &mut globals, &all)?;
        let names = builder.code.iter().filter_map(|i| match &i.op {
            Op::Call(Callee::Named(name), _) => Some(name.clone()),
            _ => None,
        });
        Ok(names.collect())
    }

    #[test]
    fn each_item_of_a_format_is_a_call() {
        let arguments = [int(7), (Type::Ptr, Value::Null)];
        let calls = printed("100%% of %3d: %s", &arguments).unwrap();
        let items = ["text", "number", "text", "string"];
        assert_eq!(calls, items.map(|item| format!("hum_print_{item}")));
    }

    #[test]
    fn rejects_unsupported_conversions_and_missing_arguments() {
        for (format, why) in [("%e", "'%e'"), ("%n", "'%n'"), ("%d %d", "fewer arguments")] {
            let error = printed(format, &[int(7)]).unwrap_err();
            assert!(error.message.contains(why), "{error}");
        }
    }
}
