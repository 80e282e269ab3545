//! Global variables and their initial contents.

use super::cursor::{unescape, Cursor};
use super::operand::{Locals, Symbols};
use crate::error::{Error, Result};
use crate::ir::{space, Global, Type, Value};
use crate::object;

/// Reads the definition or declaration of a global variable into its entry.
pub fn global(symbols: &Symbols, line: &str, globals: &mut [Global]) -> Result<()> {
    let mut t = Cursor::new(&line[1..]);
    let name = t.name();
    t.expect("=")?;
    let unknown = || Error::malformed(format!("unknown global '@{name}'"));
    let index = *symbols.globals.get(&name).ok_or_else(unknown)?;
    let global = &mut globals[index.0];
    global.external = t.rest.starts_with("external");
    global.local = line.contains(&format!(" addrspace({}) ", space::LOCAL));
    global.constant = storage(&mut t, line, &name)?;
    let shared = line.contains(&format!(" addrspace({}) ", space::GLOBAL));
    if shared && !global.constant && !global.external {
        return Err(Error::unsupported(format!(
            "variable '{name}' in global memory is not supported: its value ends with each launch"
        ))
        .remedy("use a buffer that is an argument, or make it 'constant'"));
    }
    let ty = symbols.ty(&mut t)?;
    global.is_array = matches!(ty, Type::Array(..));
    if global.external {
        let section = t
            .rest
            .split_once("section \"")
            .and_then(|s| s.1.split_once('"'));
        global.section = section.map_or(String::new(), |s| s.0.to_owned());
        return Ok(());
    }
    object::check(globals, &name, ty.size())?;
    let global = &mut globals[index.0];
    let mut contents = Contents {
        symbols,
        bytes: vec![0; ty.size() as usize],
        pointers: Vec::new(),
    };
    contents.initial(&mut t, &ty, 0)?;
    global.bytes = contents.bytes;
    global.pointers = contents.pointers;
    Ok(())
}

/// Skips the words before the type; returns whether the variable is a constant.
fn storage(t: &mut Cursor<'_>, line: &str, name: &str) -> Result<bool> {
    loop {
        t.attributes();
        if t.take("global") {
            return Ok(false);
        }
        if line.contains(" constant ") && !t.rest.starts_with("thread_local") {
            return Ok(true);
        }
        if t.word().is_empty() {
            t.skip(t.peek().len_utf8().min(t.rest.len()));
        }
        if t.rest.is_empty() {
            return Err(Error::malformed(format!("global '@{name}' has no type")));
        }
    }
}

struct Contents<'a> {
    symbols: &'a Symbols,
    bytes: Vec<u8>,
    pointers: Vec<(u64, Value)>,
}

impl Contents<'_> {
    /// Reads the initial value of a type at an offset.
    fn initial(&mut self, t: &mut Cursor<'_>, ty: &Type, at: u64) -> Result<()> {
        if t.take("zeroinitializer") || t.take("undef") || t.take("poison") {
            return Ok(());
        }
        match ty {
            Type::Array(..) if t.rest.starts_with("c\"") => {
                let end = t.rest[2..].find('"');
                let end = end.ok_or_else(|| Error::malformed("unterminated string constant"))? + 2;
                for (i, byte) in unescape(&t.rest[2..end]).into_iter().enumerate() {
                    self.bytes[at as usize + i] = byte;
                }
                t.skip(end + 1);
                Ok(())
            }
            Type::Array(n, of) | Type::Vector(n, of) => {
                let (open, close) = match ty {
                    Type::Array(..) => ("[", "]"),
                    _ => ("<", ">"),
                };
                t.expect(open)?;
                for i in 0..*n {
                    self.symbols.ty(t)?;
                    self.initial(t, of, at + i * of.size())?;
                    t.take(",");
                }
                t.expect(close)
            }
            Type::Struct(members, packed) => {
                let (open, close) = if *packed { ("<{", "}>") } else { ("{", "}") };
                t.expect(open)?;
                for (i, member) in members.iter().enumerate() {
                    self.symbols.ty(t)?;
                    self.initial(t, member, at + ty.offset(i))?;
                    t.take(",");
                }
                t.expect(close)
            }
            _ => {
                match self.symbols.value(t, ty, &Locals::new())? {
                    Value::Bits(bits) => {
                        let (at, size) = (at as usize, ty.size() as usize);
                        self.bytes[at..at + size].copy_from_slice(&bits.to_le_bytes()[..size]);
                    }
                    Value::Null | Value::Undef => {}
                    value => self.pointers.push((at, value)),
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::parse;

    #[test]
    fn string_constants_have_backslashes_and_codes() {
        let text = "@s = constant [6 x i8] c\"a\\\\5C\\5C\\00\"\n\
                    define void @f() {\n  ret void\n}\n";
        let module = parse::module(text).unwrap();
        assert_eq!(module.globals[0].bytes, b"a\\5C\\\0");
    }
}
