//! The text of the tree.

use super::tree::{
    BinaryOperator, Connection, DataType, Declaration, Expression, Instance, Item, Line, Module,
    Statement, UnaryOperator,
};
use crate::ir::masked;
use std::fmt::{self, Display, Formatter, Write};

/// Decimal literals are smaller than this.
const DECIMAL_MAX: u64 = 1024;
/// Precedence of an operand that needs no parentheses.
const ATOM: u32 = 20;

impl Display for Module {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for line in &self.comment {
            writeln!(f, "{}", format!("// {line}").trim_end())?;
        }
        for define in &self.defines {
            writeln!(f, "`define {define}")?;
        }
        writeln!(f, "module {}", self.name)?;
        for package in &self.imports {
            writeln!(f, "  import {package}::*;")?;
        }
        writeln!(f, "(\n`include \"{}\"\n);\n", self.ports)?;
        for item in &self.items {
            write!(f, "{item}")?;
        }
        writeln!(f, "\nendmodule")
    }
}

impl Display for Item {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Item::Blank => writeln!(f),
            Item::Section(title) => writeln!(f, "\n  // ---- {title} ----"),
            Item::Enumeration {
                name,
                bits,
                variants,
            } => {
                writeln!(f, "  typedef enum logic [{}:0] {{", bits - 1)?;
                for (i, variant) in variants.iter().enumerate() {
                    let comma = if i + 1 < variants.len() { "," } else { "" };
                    write!(f, "    {}{comma}", variant.name)?;
                    if !variant.comment.is_empty() {
                        write!(f, "  // {}", variant.comment)?;
                    }
                    writeln!(f)?;
                }
                writeln!(f, "  }} {name};")
            }
            Item::Declaration(declaration) => writeln!(f, "  {declaration}"),
            Item::Aligned(declarations) => {
                let types = declarations.iter().map(|d| d.ty.to_string());
                let width = types.map(|ty| ty.len()).max().unwrap_or(0);
                for declaration in declarations {
                    let ty = declaration.ty.to_string();
                    writeln!(f, "  {ty:width$} {};", declaration.names.join(", "))?;
                }
                Ok(())
            }
            Item::Assign(target, value) => writeln!(f, "  assign {target} = {value};"),
            Item::Instance(instance) => writeln!(f, "  {instance}"),
            Item::Initial(statements) => process(f, "initial", statements),
            Item::Combinational(statements) => process(f, "always_comb", statements),
            Item::Clocked(statements) => process(f, "always_ff @(posedge clk)", statements),
        }
    }
}

fn process(f: &mut Formatter<'_>, kind: &str, statements: &[Statement]) -> fmt::Result {
    writeln!(f, "\n  {kind} begin")?;
    block(f, statements, 4)?;
    writeln!(f, "  end")
}

impl Display for DataType {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            DataType::Logic(0 | 1) => write!(f, "logic"),
            DataType::Logic(bits) | DataType::Vector(bits) => write!(f, "logic [{}:0]", bits - 1),
            DataType::Named(name) => write!(f, "{name}"),
        }
    }
}

impl Display for Declaration {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.ty, self.names.join(", "))?;
        if let Some(words) = self.words {
            write!(f, "[{words}]")?;
        }
        write!(f, ";")?;
        match &self.comment {
            Some(comment) => write!(f, "  // {comment}"),
            None => Ok(()),
        }
    }
}

impl Display for Instance {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.module)?;
        if !self.parameters.is_empty() {
            let parameters = self.parameters.iter().map(|(n, v)| format!(".{n}({v})"));
            write!(f, "#({}) ", parameters.collect::<Vec<_>>().join(", "))?;
        }
        let connections = self.connections.iter().map(|c| match c {
            Connection::All => ".*".to_owned(),
            Connection::Same(name) => format!(".{name}"),
            Connection::Port(name, signal) => format!(".{name}({signal})"),
        });
        let connections = connections.collect::<Vec<_>>().join(", ");
        write!(f, "{} ({connections});", self.name)
    }
}

/// Writes statements, each on lines of its own.
fn block(f: &mut Formatter<'_>, statements: &[Statement], depth: usize) -> fmt::Result {
    for statement in statements {
        match statement {
            Statement::Aligned(assignments) => {
                let targets = assignments.iter().map(|a| a.0.to_string());
                let width = targets.map(|t| t.len()).max().unwrap_or(0);
                for (target, value) in assignments {
                    let target = target.to_string();
                    writeln!(f, "{:depth$}{target:width$} = {value};", "")?;
                }
            }
            Statement::If {
                condition,
                then,
                otherwise,
            } => {
                writeln!(f, "{:depth$}if ({condition}) begin", "")?;
                block(f, then, depth + 2)?;
                if !otherwise.is_empty() {
                    writeln!(f, "{:depth$}end else begin", "")?;
                    block(f, otherwise, depth + 2)?;
                }
                writeln!(f, "{:depth$}end", "")?;
            }
            Statement::Case {
                subject,
                arms,
                default,
            } => {
                writeln!(f, "{:depth$}case ({subject})", "")?;
                let inner = depth + 2;
                for (label, statements) in arms {
                    writeln!(f, "{:inner$}{label}: begin", "")?;
                    block(f, statements, inner + 2)?;
                    writeln!(f, "{:inner$}end", "")?;
                }
                if default.is_empty() {
                    writeln!(f, "{:inner$}default: ;", "")?;
                } else {
                    writeln!(f, "{:inner$}default: begin", "")?;
                    block(f, default, inner + 2)?;
                    writeln!(f, "{:inner$}end", "")?;
                }
                writeln!(f, "{:depth$}endcase", "")?;
            }
            Statement::Line(line) => writeln!(f, "{:depth$}{line}", "")?,
        }
    }
    Ok(())
}

impl Display for Line {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Line::Assign(target, value) => write!(f, "{target} = {value};"),
            Line::Register(target, value) => write!(f, "{target} <= {value};"),
            Line::If(condition, line) => write!(f, "if ({condition}) {line}"),
            Line::For {
                variable: v,
                count,
                body,
            } => write!(f, "for (int {v} = 0; {v} < {count}; {v}++) {body}"),
        }
    }
}

impl BinaryOperator {
    /// Its text, and its precedence: a higher one binds tighter.
    fn text(self) -> (&'static str, u32) {
        match self {
            BinaryOperator::Multiply => ("*", 10),
            BinaryOperator::Add => ("+", 9),
            BinaryOperator::Subtract => ("-", 9),
            BinaryOperator::ShiftLeft => ("<<", 8),
            BinaryOperator::ShiftRight => (">>", 8),
            BinaryOperator::ArithmeticShiftRight => (">>>", 8),
            BinaryOperator::Less => ("<", 7),
            BinaryOperator::LessEqual => ("<=", 7),
            BinaryOperator::Greater => (">", 7),
            BinaryOperator::GreaterEqual => (">=", 7),
            BinaryOperator::Equal => ("==", 6),
            BinaryOperator::NotEqual => ("!=", 6),
            BinaryOperator::And => ("&", 5),
            BinaryOperator::Xor => ("^", 4),
            BinaryOperator::Or => ("|", 3),
            BinaryOperator::LogicalAnd => ("&&", 2),
            BinaryOperator::LogicalOr => ("||", 1),
        }
    }
}

impl Expression {
    fn precedence(&self) -> u32 {
        match self {
            Expression::Binary(operator, ..) => operator.text().1,
            Expression::Conditional(..) => 0,
            // Its operand is a number.
            Expression::Scaled(..) => BinaryOperator::Multiply.text().1,
            Expression::Unary(..) => ATOM - 1,
            _ => ATOM,
        }
    }

    /// Writes an operand, in parentheses if it binds less tightly than `least`.
    fn operand(&self, f: &mut Formatter<'_>, least: u32) -> fmt::Result {
        if self.precedence() < least {
            write!(f, "({self})")
        } else {
            write!(f, "{self}")
        }
    }
}

impl Display for Expression {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Expression::Name(name) => f.write_str(name),
            Expression::Number(n) => write!(f, "{n}"),
            Expression::Literal(value, bits) => match (*bits, masked(*value, *bits)) {
                (1, v) => write!(f, "1'b{v}"),
                (bits, v) if v < DECIMAL_MAX => write!(f, "{bits}'d{v}"),
                (bits, v) => write!(f, "{bits}'h{v:x}"),
            },
            Expression::Word(value, bits) => {
                let digits = bits.div_ceil(4) as usize;
                write!(f, "{bits}'h{value:0digits$x}")
            }
            Expression::Zeroes(bits) => write!(f, "{bits}'d0"),
            Expression::Fill(one) => write!(f, "'{}", u8::from(*one)),
            Expression::Unary(UnaryOperator::Not, a) => {
                f.write_char('!')?;
                a.operand(f, ATOM - 1)
            }
            Expression::Binary(operator, a, b) => {
                let (text, precedence) = operator.text();
                a.operand(f, precedence)?;
                write!(f, " {text} ")?;
                b.operand(f, precedence + 1)
            }
            Expression::Conditional(condition, yes, no) => {
                condition.operand(f, 1)?;
                f.write_str(" ? ")?;
                yes.operand(f, 1)?;
                f.write_str(" : ")?;
                no.operand(f, 1)
            }
            Expression::Resize(bits, a) => write!(f, "{bits}'({a})"),
            Expression::Signed(a) => write!(f, "$signed({a})"),
            Expression::Unsigned(a) => write!(f, "$unsigned({a})"),
            Expression::Index(a, index) => write!(f, "{a}[{index}]"),
            Expression::Slice(a, high, low) => write!(f, "{a}[{high}:{low}]"),
            Expression::Part(a, start, bits) => write!(f, "{a}[{start}+:{bits}]"),
            Expression::Scaled(by, a) => {
                write!(f, "{by}*")?;
                a.operand(f, ATOM)
            }
            Expression::Member(a, name) => write!(f, "{a}.{name}"),
            Expression::Concatenation(parts) => {
                let parts: Vec<String> = parts.iter().map(ToString::to_string).collect();
                write!(f, "{{{}}}", parts.join(", "))
            }
            Expression::Repetition(times, a) => write!(f, "{{{times}{{{a}}}}}"),
            Expression::Group(a) => write!(f, "({a})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> Expression {
        Expression::name(name)
    }

    #[test]
    fn parentheses_follow_precedence() {
        let sum = |a, b| Expression::binary(a, BinaryOperator::Add, b);
        let shift = |a, b| Expression::binary(a, BinaryOperator::ShiftLeft, b);
        for (expression, text) in [
            (sum(sum(name("a"), name("b")), name("c")), "a + b + c"),
            (sum(name("a"), sum(name("b"), name("c"))), "a + (b + c)"),
            (sum(shift(name("a"), name("b")), name("c")), "(a << b) + c"),
            (shift(sum(name("a"), name("b")), name("c")), "a + b << c"),
            (name("a").or(name("b")).negated(), "!(a || b)"),
            (name("a").and(name("b").negated()), "a && !b"),
            (name("a").select(name("b"), name("c")), "a ? b : c"),
            (name("a").scaled(8), "8*a"),
        ] {
            assert_eq!(expression.to_string(), text);
        }
    }

    #[test]
    fn literals_have_their_width() {
        for (expression, text) in [
            (Expression::Literal(3, 1), "1'b1"),
            (Expression::Literal(u64::MAX, 8), "8'd255"),
            (Expression::Literal(4096, 32), "32'h1000"),
            (Expression::Word(10, 16), "16'h000a"),
            (Expression::Fill(true), "'1"),
        ] {
            assert_eq!(expression.to_string(), text);
        }
    }

    #[test]
    fn statements_are_indented() {
        let set = |to: &str| Statement::register(name("state"), name(to));
        let item = Item::Clocked(vec![Statement::Case {
            subject: name("x"),
            arms: vec![(
                Expression::Literal(1, 2),
                vec![Statement::If {
                    condition: name("c"),
                    then: vec![set("A")],
                    otherwise: vec![set("B")],
                }],
            )],
            default: Vec::new(),
        }]);
        let text = "
  always_ff @(posedge clk) begin
    case (x)
      2'd1: begin
        if (c) begin
          state <= A;
        end else begin
          state <= B;
        end
      end
      default: ;
    endcase
  end
";
        assert_eq!(item.to_string(), text);
    }

    #[test]
    fn bits_are_selected_of_signals_and_elements() {
        let element = || name("a").index(name("i"));
        for (expression, text) in [
            (name("a").slice(15, 8), "a[15:8]"),
            (element().slice(15, 8), "a[i][15:8]"),
            (name("a").slice(31, 8).slice(15, 8), "a[23:16]"),
            (name("a").part(name("s"), 8), "a[s+:8]"),
            (element().part(name("s"), 8), "a[i][s+:8]"),
            (
                name("a").slice(31, 8).part(name("s"), 8),
                "8'(a[31:8] >> s)",
            ),
            (name("a").part(name("s"), 8).slice(3, 2), "2'(a[s+:8] >> 2)"),
        ] {
            assert_eq!(expression.to_string(), text);
        }
    }
}
