//! Replaces `printf` with a constant format by calls that print one item each
//! (humboldt/fabric/hls.c).

use crate::ir::{Cast, Global, Op, Refusal, Type, Value};
use crate::maker::Maker;

const LEFT: u64 = 1;
const ZEROES: u64 = 2;
const PLUS: u64 = 4;
const BLANK: u64 = 8;
const UPPER: u64 = 16;
const SIGNED: u64 = 32;

/// A constant string as a global variable; equal strings share one.
fn text(globals: &mut Vec<Global>, bytes: &[u8]) -> Value {
    let mut bytes = bytes.to_vec();
    bytes.push(0);
    let found = globals
        .iter()
        .position(|g| g.constant && g.pointers.is_empty() && g.bytes == bytes);
    let index = found.unwrap_or_else(|| {
        let name = format!(".text.{}", globals.len());
        globals.push(Global {
            name,
            bytes,
            pointers: Vec::new(),
            constant: true,
            external: false,
        });
        globals.len() - 1
    });
    Value::Global(index, 0)
}

/// Appends the calls for one `printf`; `arguments` begin with the format.
pub fn lower(
    maker: &mut Maker<'_>,
    globals: &mut Vec<Global>,
    arguments: &[(Type, Value)],
) -> Result<(), Refusal> {
    let place = maker.place.clone();
    let wrong = |why: &str| Refusal::new(&place, format!("printf: {why}"));
    let format = match arguments.first() {
        Some((_, Value::Global(g, offset))) if globals[*g].constant => {
            let bytes = globals[*g]
                .bytes
                .get(*offset as usize..)
                .unwrap_or_default();
            bytes.split(|b| *b == 0).next().unwrap_or_default().to_vec()
        }
        _ => return Err(wrong("the format is not a constant string")),
    };
    let mut rest = arguments[1..].iter();
    let mut plain = Vec::new();
    let mut at = 0;
    let call = |maker: &mut Maker<'_>, name: &str, arguments: &[(Type, Value)]| {
        maker.act(Op::Call(name.to_owned(), arguments.to_vec()));
    };
    let int = |value: u64| (Type::Int(32), Value::Bits(value & 0xffff_ffff));
    while at < format.len() {
        if format[at] != b'%' || format.get(at + 1) == Some(&b'%') {
            plain.push(format[at]);
            at += 1 + usize::from(format[at] == b'%');
            continue;
        }
        at += 1;
        let mut flags = 0;
        while let Some(flag) = format.get(at) {
            flags |= match flag {
                b'-' => LEFT,
                b'0' => ZEROES,
                b'+' => PLUS,
                b' ' => BLANK,
                b'#' => {
                    return Err(wrong(
                        "flag '#' is not supported (write the prefix in the format)",
                    ))
                }
                _ => break,
            };
            at += 1;
        }
        let mut number = |at: &mut usize| -> Result<Option<(Type, Value)>, Refusal> {
            if format.get(*at) == Some(&b'*') {
                *at += 1;
                return Ok(Some(rest.next().cloned().ok_or_else(|| {
                    wrong("fewer arguments than conversions in the format")
                })?));
            }
            let from = *at;
            while format.get(*at).is_some_and(u8::is_ascii_digit) {
                *at += 1;
            }
            let digits = std::str::from_utf8(&format[from..*at]).unwrap_or("");
            Ok(digits.parse::<u16>().ok().map(|n| int(u64::from(n))))
        };
        let width = number(&mut at)?.unwrap_or(int(0));
        let mut precision = None;
        if format.get(at) == Some(&b'.') {
            at += 1;
            precision = Some(number(&mut at)?.unwrap_or(int(0)));
        }
        let from = at;
        while format.get(at).is_some_and(|c| b"hlzjt".contains(c)) {
            at += 1;
        }
        let size = &format[from..at];
        let kind = format.get(at).copied().unwrap_or(0);
        at += 1;
        if !plain.is_empty() {
            let shown = text(globals, &plain);
            call(maker, "hum_print_text", &[(Type::Ptr, shown)]);
            plain.clear();
        }
        let given = precision.clone().unwrap_or(int(u64::MAX));
        let argument = rest
            .next()
            .cloned()
            .ok_or_else(|| wrong("fewer arguments than conversions in the format"))?;
        match (kind, &argument.0) {
            (b'd' | b'i' | b'u' | b'x' | b'X' | b'o', Type::Int(bits)) => {
                let signed = kind == b'd' || kind == b'i';
                flags |= if signed { SIGNED } else { 0 } | if kind == b'X' { UPPER } else { 0 };
                let base = match kind {
                    b'x' | b'X' => 16,
                    b'o' => 8,
                    _ => 10,
                };
                let narrow = match size {
                    b"hh" => 8,
                    b"h" => 16,
                    _ => *bits,
                };
                let cast = |maker: &mut Maker<'_>, kind, from, to, value| {
                    maker.value("number", Type::Int(to), Op::Cast(kind, from, value))
                };
                let mut value = argument.1;
                if narrow < *bits {
                    value = cast(maker, Cast::Bits, *bits, narrow, value);
                }
                let wide = cast(
                    maker,
                    if signed { Cast::Sext } else { Cast::Bits },
                    narrow,
                    64,
                    value,
                );
                call(
                    maker,
                    "hum_print_number",
                    &[(Type::Int(64), wide), int(base), width, given, int(flags)],
                );
            }
            (b'c', Type::Int(_)) => {
                call(maker, "hum_print_character", &[argument, width, int(flags)])
            }
            (b's', Type::Ptr) => call(
                maker,
                "hum_print_string",
                &[argument, width, given, int(flags)],
            ),
            (b'f', Type::Float(64)) => {
                let given = precision.unwrap_or(int(6));
                call(
                    maker,
                    "hum_print_double",
                    &[argument, width, given, int(flags)],
                );
            }
            _ => {
                let kind = char::from(kind);
                return Err(wrong(&format!(
                    "conversion '%{kind}' of this argument is not supported \
                     (use %d, %i, %u, %x, %X, %o, %c, %s or %f)"
                )));
            }
        }
    }
    if !plain.is_empty() {
        let shown = text(globals, &plain);
        call(maker, "hum_print_text", &[(Type::Ptr, shown)]);
    }
    Ok(())
}
