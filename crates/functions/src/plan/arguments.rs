//! Parses a kernel's arguments.

use super::ArgumentPlan;
use crate::expression::Expression;
use crate::types::{Scalar, Type};

/// Resolves names in arguments.
pub(super) struct Names<'a> {
    pub buffer: &'a dyn Fn(&str) -> Option<usize>,
    pub scratch: &'a dyn Fn(&str) -> Option<usize>,
    pub scalar: &'a dyn Fn(&str) -> Option<usize>,
    pub variable: &'a dyn Fn(&str) -> Option<usize>,
}

/// `NAME`, `TYPE(EXPRESSION)`, `FLOAT_TYPE(NUMBER)` or `local(EXPRESSION)`.
pub(super) fn parse(text: &str, names: &Names<'_>) -> Result<ArgumentPlan, String> {
    let text = text.trim();
    if let Some((word, inner)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        let word = word.trim();
        if word == "local" {
            return Expression::parse(inner, names.variable).map(ArgumentPlan::Local);
        }
        let kind = Type::from_name(word).ok_or_else(|| {
            format!("unknown type '{word}': write a name, TYPE(EXPRESSION) or local(EXPRESSION)")
        })?;
        // Only single numbers may have fractions and signs; expressions are sizes.
        if let Some(fixed) = number(kind, inner.trim()) {
            return Ok(ArgumentPlan::Fixed(fixed));
        }
        let expression = Expression::parse(inner, names.variable)?;
        return match expression.constant() {
            Some(value) => Scalar::from_integer(kind, value)
                .map(ArgumentPlan::Fixed)
                .ok_or_else(|| format!("{value} is not a valid {kind}")),
            None => Ok(ArgumentPlan::Computed(kind, expression)),
        };
    }
    if let Some(index) = (names.buffer)(text) {
        return Ok(ArgumentPlan::Buffer(index));
    }
    if let Some(index) = (names.scratch)(text) {
        return Ok(ArgumentPlan::Scratch(index));
    }
    if let Some(index) = (names.scalar)(text) {
        return Ok(ArgumentPlan::Input(index));
    }
    if (names.variable)(text).is_some() {
        return Err(format!(
            "'{text}' is a symbol: give it a type, as in i32({text})"
        ));
    }
    Err(format!(
        "'{text}' is neither an input, an output nor a scratch buffer"
    ))
}

fn number(kind: Type, text: &str) -> Option<Scalar> {
    if kind.is_integer() {
        return text
            .parse::<i128>()
            .ok()
            .and_then(|value| Scalar::from_integer(kind, value));
    }
    let plain = text
        .bytes()
        .all(|c| c.is_ascii_digit() || matches!(c, b'+' | b'-' | b'.' | b'e' | b'E'));
    let value = text
        .parse::<f64>()
        .ok()
        .filter(|value| plain && value.is_finite())?;
    // Rounded once, from the text.
    match kind {
        Type::F32 => text.parse().ok().map(Scalar::F32),
        _ => Some(Scalar::F64(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Result<ArgumentPlan, String> {
        parse(
            text,
            &Names {
                buffer: &|name| (name == "image").then_some(3),
                scratch: &|name| (name == "mid").then_some(1),
                scalar: &|name| (name == "gain").then_some(2),
                variable: &|name| (name == "width").then_some(0),
            },
        )
    }

    #[test]
    fn every_form_is_understood() {
        assert!(matches!(plan("image"), Ok(ArgumentPlan::Buffer(3))));
        assert!(matches!(plan(" mid "), Ok(ArgumentPlan::Scratch(1))));
        assert!(matches!(plan("gain"), Ok(ArgumentPlan::Input(2))));
        assert!(matches!(
            plan("i32(-4)"),
            Ok(ArgumentPlan::Fixed(Scalar::I32(-4)))
        ));
        assert!(matches!(plan("f32(1e-4)"), Ok(ArgumentPlan::Fixed(Scalar::F32(v))) if v == 1e-4));
        assert!(matches!(
            plan("i32(15 * 15)"),
            Ok(ArgumentPlan::Fixed(Scalar::I32(225)))
        ));
        assert!(matches!(
            plan("u64((width+1)*2)"),
            Ok(ArgumentPlan::Computed(Type::U64, _))
        ));
        assert!(matches!(
            plan("local(width * 4)"),
            Ok(ArgumentPlan::Local(_))
        ));
    }

    #[test]
    fn wrong_ones_say_what_to_write() {
        assert!(plan("width").unwrap_err().contains("i32(width)"));
        assert!(plan("height").unwrap_err().contains("neither"));
        assert!(plan("int(4)").unwrap_err().contains("unknown type 'int'"));
        assert!(plan("i32(x)").unwrap_err().contains("'x'"));
        assert!(plan("u8(256)")
            .unwrap_err()
            .contains("256 is not a valid u8"));
        assert!(plan("f32(inf)").is_err());
    }
}
