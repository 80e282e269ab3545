//! Expressions for sizes over a function's variables. They are checked when the manifest is read;
//! their values are bounded.
//!
//! ```text
//! sum     = product { ("+" | "-") product }
//! product = factor { ("*" | "/" | "%") factor }
//! factor  = number | variable | "(" sum ")" | ("min" | "max" | "ceil_div" | "align") "(" sum "," sum ")"
//! ```
//!
//! Numbers are whole; `/` rounds toward zero; `ceil_div(a, b)` rounds up; `align(a, b)` is the
//! least multiple of `b` that is not below `a`. An intermediate value beyond ±2^64 is an error.

use std::fmt;

/// Most characters of an expression.
const LENGTH_MAX: usize = 256;
/// Most levels of parentheses; bounds the parser's recursion.
const DEPTH_MAX: u32 = 32;
/// Bound of all values, in both directions.
const VALUE_MAX: i128 = 1 << 64;

/// A parsed expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expression {
    /// The source text, for messages.
    pub(crate) text: Box<str>,
    /// The code in reverse Polish notation.
    code: Box<[Operation]>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operation {
    Number(i128),
    Variable(usize),
    Apply(Operator),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Min,
    Max,
    CeilDivide,
    Align,
}

/// The names that no variable may have.
pub(crate) const WORDS: [&str; 4] = ["min", "max", "ceil_div", "align"];

/// Why an expression has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoValue {
    /// A division by zero or a negative number.
    Division,
    /// A value beyond 2^64.
    Overflow,
}

impl fmt::Display for NoValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoValue::Division => "a division by zero",
            NoValue::Overflow => "more than 2^64",
        })
    }
}

impl Expression {
    /// Parses an expression; `variable` resolves a name to its index.
    pub(crate) fn parse(
        text: &str,
        variable: &dyn Fn(&str) -> Option<usize>,
    ) -> Result<Expression, String> {
        if text.len() > LENGTH_MAX {
            return Err(format!(
                "the expression is longer than {LENGTH_MAX} characters"
            ));
        }
        let mut parser = Parser {
            text,
            at: 0,
            depth: 0,
            variable,
            out: Vec::new(),
        };
        parser.sum()?;
        match parser.peek() {
            None => Ok(Expression {
                text: text.trim().into(),
                code: parser.out.into(),
            }),
            Some(c) => Err(format!(
                "unexpected '{c}' at character {} of '{text}'",
                parser.at + 1
            )),
        }
    }

    /// The constant value, if it has no variable.
    pub(crate) fn constant(&self) -> Option<i128> {
        let fixed = self
            .code
            .iter()
            .all(|op| !matches!(op, Operation::Variable(_)));
        fixed
            .then(|| self.value(&|_| None).ok().flatten())
            .flatten()
    }

    /// The variable, if the expression consists of it alone.
    pub(crate) fn variable(&self) -> Option<usize> {
        match *self.code {
            [Operation::Variable(index)] => Some(index),
            _ => None,
        }
    }

    /// The variables in it.
    pub(crate) fn variables(&self) -> impl Iterator<Item = usize> + '_ {
        self.code.iter().filter_map(|op| match op {
            Operation::Variable(index) => Some(*index),
            _ => None,
        })
    }

    /// Its value; `Ok(None)` if a variable has none.
    pub(crate) fn value(
        &self,
        variable: &dyn Fn(usize) -> Option<i128>,
    ) -> Result<Option<i128>, NoValue> {
        // The common case needs no stack.
        if let [only] = *self.code {
            return Ok(match only {
                Operation::Number(n) => Some(n),
                Operation::Variable(index) => variable(index),
                Operation::Apply(_) => None,
            });
        }
        let mut stack = Vec::with_capacity(8);
        for operation in &self.code {
            match *operation {
                Operation::Number(n) => stack.push(n),
                Operation::Variable(index) => match variable(index) {
                    Some(value) => stack.push(value),
                    None => return Ok(None),
                },
                Operation::Apply(operator) => {
                    let (Some(b), Some(a)) = (stack.pop(), stack.pop()) else {
                        return Ok(None);
                    };
                    stack.push(operator.apply(a, b)?);
                }
            }
        }
        Ok(stack.pop())
    }
}

impl Operator {
    fn apply(self, a: i128, b: i128) -> Result<i128, NoValue> {
        let result = match self {
            Operator::Add => a.checked_add(b),
            Operator::Subtract => a.checked_sub(b),
            Operator::Multiply => a.checked_mul(b),
            Operator::Min => Some(a.min(b)),
            Operator::Max => Some(a.max(b)),
            _ if b <= 0 => return Err(NoValue::Division),
            Operator::Divide => a.checked_div(b),
            Operator::Remainder => a.checked_rem(b),
            // Both operands are within ±2^64, so nothing below overflows.
            Operator::CeilDivide => Some(ceil_div(a, b)),
            Operator::Align => ceil_div(a, b).checked_mul(b),
        };
        result
            .filter(|value| value.abs() <= VALUE_MAX)
            .ok_or(NoValue::Overflow)
    }
}

fn ceil_div(a: i128, b: i128) -> i128 {
    a.div_euclid(b) + i128::from(a.rem_euclid(b) != 0)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
    variable: &'a dyn Fn(&str) -> Option<usize>,
    out: Vec<Operation>,
}

impl<'a> Parser<'a> {
    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start_matches([' ', '\t']).len();
        self.text[self.at..].chars().next()
    }

    fn expect(&mut self, wanted: char) -> Result<(), String> {
        match self.peek() {
            Some(c) if c == wanted => {
                self.at += 1;
                Ok(())
            }
            Some(c) => Err(format!(
                "expected '{wanted}' instead of '{c}' at character {} of '{}'",
                self.at + 1,
                self.text
            )),
            None => Err(format!("expected '{wanted}' at the end of '{}'", self.text)),
        }
    }

    fn sum(&mut self) -> Result<(), String> {
        self.product()?;
        while let Some(c @ ('+' | '-')) = self.peek() {
            self.at += 1;
            self.product()?;
            self.out.push(Operation::Apply(if c == '+' {
                Operator::Add
            } else {
                Operator::Subtract
            }));
        }
        Ok(())
    }

    fn product(&mut self) -> Result<(), String> {
        self.factor()?;
        while let Some(c @ ('*' | '/' | '%')) = self.peek() {
            self.at += 1;
            self.factor()?;
            self.out.push(Operation::Apply(match c {
                '*' => Operator::Multiply,
                '/' => Operator::Divide,
                _ => Operator::Remainder,
            }));
        }
        Ok(())
    }

    fn factor(&mut self) -> Result<(), String> {
        match self.peek() {
            Some('(') => {
                self.at += 1;
                self.nested(|parser| parser.sum())?;
                self.expect(')')
            }
            Some(c) if c.is_ascii_digit() => {
                let digits = self.word();
                let value: u64 = digits
                    .parse()
                    .map_err(|_| format!("'{digits}' is not a whole number below 2^64"))?;
                self.out.push(Operation::Number(value.into()));
                Ok(())
            }
            Some(c) if c.is_ascii_alphabetic() || c == '_' => self.named(),
            Some(c) => Err(format!(
                "unexpected '{c}' at character {} of '{}'",
                self.at + 1,
                self.text
            )),
            None if self.text.trim().is_empty() => Err("the expression is empty".into()),
            None => Err(format!("unexpected end of '{}'", self.text)),
        }
    }

    fn named(&mut self) -> Result<(), String> {
        let name = self.word();
        let operator = match name {
            "min" => Operator::Min,
            "max" => Operator::Max,
            "ceil_div" => Operator::CeilDivide,
            "align" => Operator::Align,
            _ => {
                let index = (self.variable)(name).ok_or_else(|| {
                    format!("'{name}' is neither a symbol of an input's shape, nor a whole-number input, nor under 'symbols'")
                })?;
                self.out.push(Operation::Variable(index));
                return Ok(());
            }
        };
        self.expect('(')?;
        self.nested(|parser| {
            parser.sum()?;
            parser.expect(',')?;
            parser.sum()
        })?;
        self.expect(')')?;
        self.out.push(Operation::Apply(operator));
        Ok(())
    }

    /// Takes letters, digits and underscores.
    fn word(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn nested(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} nested parentheses"));
        }
        inner(self)?;
        self.depth -= 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
