//! Parsing of numbers, as strict as a board's parser.

use crate::types::{Scalar, Type};

/// Most characters of a number.
const LENGTH_MAX: usize = 64;

/// A decimal number: an optional minus where the type has a sign, digits; for floats also a
/// fraction and an exponent. No plus, no space, no hexadecimal, no infinity.
pub(crate) fn number(kind: Type, text: &str) -> Option<Scalar> {
    if text.len() > LENGTH_MAX {
        return None;
    }
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    if kind.is_integer() {
        let digits = !unsigned.is_empty() && unsigned.bytes().all(|c| c.is_ascii_digit());
        let signed_right =
            unsigned.len() == text.len() || kind.range().is_some_and(|(least, _)| least < 0);
        let value = (digits && signed_right)
            .then(|| text.parse::<i128>().ok())
            .flatten()?;
        return Scalar::from_integer(kind, value);
    }
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (
            mantissa,
            Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)),
        ),
        None => (unsigned, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    if !digits(whole) || !fraction.is_none_or(digits) || !exponent.is_none_or(digits) {
        return None;
    }
    match kind {
        Type::F32 => text
            .parse::<f32>()
            .ok()
            .filter(|value| value.is_finite())
            .map(Scalar::F32),
        _ => text
            .parse::<f64>()
            .ok()
            .filter(|value| value.is_finite())
            .map(Scalar::F64),
    }
}

/// Parses numbers separated by commas; empty text has none. The error is the invalid part.
pub(crate) fn numbers(kind: Type, text: &str) -> Result<(u64, Vec<u8>), String> {
    let mut bytes = Vec::new();
    let mut count = 0;
    if !text.is_empty() {
        for part in text.split(',') {
            number(kind, part)
                .ok_or_else(|| part.chars().take(LENGTH_MAX).collect::<String>())?
                .append_to(&mut bytes);
            count += 1;
        }
    }
    Ok((count, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_plain_decimals_are_numbers() {
        for (kind, text) in [
            (Type::U8, "255"),
            (Type::U8, "007"),
            (Type::I8, "-128"),
            (Type::U64, "18446744073709551615"),
            (Type::I64, "-9223372036854775808"),
            (Type::F32, "-1.5e-3"),
            (Type::F64, "1E+10"),
            (Type::F32, "3"),
        ] {
            assert!(number(kind, text).is_some(), "{kind} {text}");
        }
        for (kind, text) in [
            (Type::U8, "256"),
            (Type::U8, "-0"),
            (Type::U8, "+1"),
            (Type::U8, " 1"),
            (Type::U8, ""),
            (Type::I8, "-"),
            (Type::U8, "0x10"),
            (Type::U8, "1_0"),
            (Type::U8, "1.0"),
            (Type::F32, "inf"),
            (Type::F32, "NaN"),
            (Type::F32, "1e99"),
            (Type::F32, ".5"),
            (Type::F32, "5."),
            (Type::F32, "1e"),
            (Type::F64, "--1"),
            (Type::F64, "1e5e5"),
            (Type::U8, "١"),
        ] {
            assert!(number(kind, text).is_none(), "{kind} {text:?}");
        }
        assert!(number(Type::U64, &"0".repeat(65)).is_none());
    }

    proptest! {
        #[test]
        fn whole_numbers_come_back(value in any::<i64>()) {
            prop_assert_eq!(number(Type::I64, &value.to_string()), Some(Scalar::I64(value)));
        }

        #[test]
        fn floats_come_back_bit_for_bit(value in proptest::num::f32::NORMAL | proptest::num::f32::SUBNORMAL | proptest::num::f32::ZERO) {
            let text = format!("{value:e}");
            prop_assert_eq!(number(Type::F32, &text), Some(Scalar::F32(value)));
        }

        #[test]
        fn no_text_panics(text in ".{0,80}", index in 0usize..10) {
            let _ = numbers(Type::ALL[index], &text);
        }
    }
}
