//! Values of conditions.

use crate::token::{Kind, Token};

/// A number of the preprocessor: 64 bits, signed or unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    bits: u64,
    unsigned: bool,
}

/// Most levels of nested parentheses.
const DEPTH_MAX: usize = 200;

impl Value {
    fn of(value: i64) -> Value {
        Value {
            bits: value as u64,
            unsigned: false,
        }
    }

    fn is_true(self) -> bool {
        self.bits != 0
    }
}

/// The value of an expanded condition; `None`: only the device's compiler can determine it.
/// `defined` returns whether names that an expansion tests are defined.
pub fn holds(tokens: &[Token], defined: impl Fn(&[u8]) -> Option<bool>) -> Option<bool> {
    let mut parser = Parser {
        tokens,
        at: 0,
        depth: 0,
        defined: &defined,
    };
    let value = parser.conditional();
    // Remaining tokens are an error, which the compiler reports.
    if parser.at < tokens.len() {
        return None;
    }
    value.map(Value::is_true)
}

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    depth: usize,
    defined: &'a dyn Fn(&[u8]) -> Option<bool>,
}

/// Binary operators by precedence, the weakest first.
const OPERATORS: [&[&[u8]]; 10] = [
    &[b"||"],
    &[b"&&"],
    &[b"|"],
    &[b"^"],
    &[b"&"],
    &[b"==", b"!="],
    &[b"<", b">", b"<=", b">="],
    &[b"<<", b">>"],
    &[b"+", b"-"],
    &[b"*", b"/", b"%"],
];

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn take(&mut self, text: &[u8]) -> bool {
        let is_next = self.peek().is_some_and(|t| t.is(text));
        self.at += usize::from(is_next);
        is_next
    }

    fn conditional(&mut self) -> Option<Value> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            self.at = self.tokens.len();
            return None;
        }
        let condition = self.binary(0);
        let value = if self.take(b"?") {
            let yes = self.conditional();
            self.take(b":");
            let no = self.conditional();
            match condition {
                Some(value) if value.is_true() => yes,
                Some(_) => no,
                None if yes == no => yes,
                None => None,
            }
        } else {
            condition
        };
        self.depth -= 1;
        value
    }

    fn binary(&mut self, level: usize) -> Option<Value> {
        let Some(operators) = OPERATORS.get(level) else {
            return self.unary();
        };
        let mut left = self.binary(level + 1);
        while let Some(operator) = operators
            .iter()
            .find(|o| self.peek().is_some_and(|t| t.is(o)))
        {
            self.at += 1;
            let right = self.binary(level + 1);
            left = apply(operator, left, right);
        }
        left
    }

    fn unary(&mut self) -> Option<Value> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            self.at = self.tokens.len();
            return None;
        }
        let value = self.operand();
        self.depth -= 1;
        value
    }

    fn operand(&mut self) -> Option<Value> {
        let token = self.peek()?.clone();
        self.at += 1;
        match token.kind {
            Kind::Punctuator => match &token.text[..] {
                b"!" => self.unary().map(|v| Value::of((!v.is_true()).into())),
                b"-" => self.unary().map(|v| Value {
                    bits: v.bits.wrapping_neg(),
                    ..v
                }),
                b"+" => self.unary(),
                b"~" => self.unary().map(|v| Value { bits: !v.bits, ..v }),
                b"(" => {
                    let value = self.conditional();
                    self.take(b")");
                    value
                }
                _ => None,
            },
            Kind::Number => number(&token.text),
            Kind::Character => character(&token.text),
            Kind::Identifier if token.is(b"defined") => {
                let closes = self.take(b"(");
                let name = self.peek()?.clone();
                self.at += 1;
                if closes {
                    self.take(b")");
                }
                (self.defined)(&name.text).map(|is| Value::of(is.into()))
            }
            // A function of the compiler, such as `__has_builtin(x)`.
            Kind::Identifier | Kind::Unknown if self.take(b"(") => {
                let mut depth = 1;
                while let Some(token) = self.peek().filter(|_| depth > 0) {
                    depth += i32::from(token.is(b"(")) - i32::from(token.is(b")"));
                    self.at += 1;
                }
                None
            }
            Kind::Identifier => Some(Value::of(0)),
            Kind::Unknown | Kind::Text | Kind::Header => None,
        }
    }
}

fn apply(operator: &[u8], left: Option<Value>, right: Option<Value>) -> Option<Value> {
    let truth = |value: Option<Value>| value.map(Value::is_true);
    let of = |is: bool| Some(Value::of(is.into()));
    match operator {
        b"&&" => {
            return match (truth(left), truth(right)) {
                (Some(false), _) | (_, Some(false)) => of(false),
                (Some(true), Some(true)) => of(true),
                _ => None,
            }
        }
        b"||" => {
            return match (truth(left), truth(right)) {
                (Some(true), _) | (_, Some(true)) => of(true),
                (Some(false), Some(false)) => of(false),
                _ => None,
            }
        }
        _ => {}
    }
    let (left, right) = (left?, right?);
    let (a, b) = (left.bits, right.bits);
    let unsigned = left.unsigned || right.unsigned;
    let less = |a: u64, b: u64| {
        if unsigned {
            a < b
        } else {
            (a as i64) < (b as i64)
        }
    };
    let bits = match operator {
        b"==" => return of(a == b),
        b"!=" => return of(a != b),
        b"<" => return of(less(a, b)),
        b">" => return of(less(b, a)),
        b"<=" => return of(!less(b, a)),
        b">=" => return of(!less(a, b)),
        b"|" => a | b,
        b"^" => a ^ b,
        b"&" => a & b,
        b"<<" => {
            return Some(Value {
                bits: a.checked_shl(u32::try_from(b).ok()?)?,
                ..left
            })
        }
        b">>" => {
            let by = u32::try_from(b).ok()?;
            let bits = if left.unsigned {
                a.checked_shr(by)?
            } else {
                (a as i64).checked_shr(by)? as u64
            };
            return Some(Value { bits, ..left });
        }
        b"+" => a.wrapping_add(b),
        b"-" => a.wrapping_sub(b),
        b"*" => a.wrapping_mul(b),
        b"/" if unsigned => a.checked_div(b)?,
        b"/" => (a as i64).checked_div(b as i64)? as u64,
        b"%" if unsigned => a.checked_rem(b)?,
        b"%" => (a as i64).checked_rem(b as i64)? as u64,
        _ => return None,
    };
    Some(Value { bits, unsigned })
}

/// Parses an integer with its suffix.
fn number(text: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(text).ok()?.to_ascii_lowercase();
    let digits = text.trim_end_matches(['u', 'l']);
    let suffix = &text[digits.len()..];
    let (digits, radix) = match digits.as_bytes() {
        [b'0', b'x', ..] => (&digits[2..], 16),
        [b'0', b'b', ..] => (&digits[2..], 2),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    };
    let bits = u64::from_str_radix(digits, radix).ok()?;
    Some(Value {
        bits,
        unsigned: suffix.contains('u') || (radix != 10 && bits > i64::MAX as u64),
    })
}

/// Parses a character literal.
fn character(text: &[u8]) -> Option<Value> {
    let inner = text.strip_prefix(b"'")?.strip_suffix(b"'")?;
    let value = match inner {
        [byte] => i64::from(*byte as i8),
        [b'\\', b'x', digits @ ..] => {
            i64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?
        }
        [b'\\', digits @ ..] if digits.iter().all(|d| (b'0'..=b'7').contains(d)) => {
            i64::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()?
        }
        [b'\\', escape] => match escape {
            b'n' => 10,
            b't' => 9,
            b'r' => 13,
            b'a' => 7,
            b'b' => 8,
            b'f' => 12,
            b'v' => 11,
            other => i64::from(*other),
        },
        _ => return None,
    };
    Some(Value::of(value))
}
