//! Signals with several uses of which at most one is active: operands of units, ports of memories and
//! of loads, inputs of the engines.
//!
//! The value is a sum of products. Nested conditions would be as deep as there are uses, because the
//! synthesis cannot find out that at most one is active.

use crate::verilog::{BinaryOperator, Expression, Statement};

/// The condition of a use, and its value.
pub type Choice = (Expression, Expression);

/// Statements that set a signal to the value of the active use; otherwise, to 0.
pub fn or_zero(target: &Expression, choices: Vec<Choice>) -> Vec<Statement> {
    let mut out = Vec::new();
    for (when, value) in choices {
        let own = when.select(value, Expression::Fill(false));
        let all = if out.is_empty() {
            own
        } else {
            target.clone().binary(BinaryOperator::Or, own)
        };
        out.push(Statement::assign(target.clone(), all));
    }
    if out.is_empty() {
        out.push(Statement::assign(target.clone(), Expression::Fill(false)));
    }
    out
}

/// The same for a signal whose value does not matter without an active use.
pub fn or_any(target: &Expression, mut choices: Vec<Choice>) -> Vec<Statement> {
    let value = match choices.len() {
        1 => choices.remove(0).1,
        2 => {
            // A pipeline's bit is a register; a comparison with the state would come first.
            if matches!(choices[0].0, Expression::Index(..)) {
                choices.swap(0, 1);
            }
            let (when, second) = choices.remove(1);
            when.select(second, choices.remove(0).1)
        }
        _ => return or_zero(target, choices),
    };
    vec![Statement::assign(target.clone(), value)]
}

/// Whether any use is active.
pub fn any(conditions: impl IntoIterator<Item = Expression>) -> Expression {
    let any = conditions.into_iter().reduce(Expression::or);
    any.unwrap_or(Expression::Fill(false))
}
