use super::*;
use proptest::prelude::*;

const NAMES: [&str; 3] = ["x", "width", "n_2"];

fn parse(text: &str) -> Result<Expression, String> {
    Expression::parse(text, &|name| NAMES.iter().position(|n| *n == name))
}

fn value(text: &str, values: [i128; 3]) -> Result<i128, NoValue> {
    parse(text)
        .unwrap()
        .value(&|i| Some(values[i]))
        .map(|v| v.unwrap())
}

#[test]
fn operators_bind_and_round_as_documented() {
    for (text, expected) in [
        ("1+2*3", 7),
        ("(1 + 2) * 3", 9),
        ("10 - 4 - 3", 3),
        ("7 / 2 * 2", 6),
        ("width % 7", 5),
        ("min(x, width) + max(x, 3)", 20),
        ("ceil_div(width, 8)", 2),
        ("align(width, 8)", 16),
        ("align(n_2, 64)", 0),
        ("ceil_div(0-7, 2)", -3),
        ("18446744073709551615", u64::MAX as i128),
    ] {
        assert_eq!(value(text, [10, 12, 0]).unwrap(), expected, "{text}");
    }
}

#[test]
fn what_is_no_size_is_an_error() {
    assert_eq!(value("x / n_2", [1, 1, 0]), Err(NoValue::Division));
    assert_eq!(value("x % (0 - 3)", [1, 1, 0]), Err(NoValue::Division));
    assert_eq!(
        value("x * x", [u64::MAX as i128, 0, 0]),
        Err(NoValue::Overflow)
    );
    assert_eq!(
        value("x * 18446744073709551615 * 18446744073709551615", [2, 0, 0]),
        Err(NoValue::Overflow)
    );
    assert_eq!(parse("x").unwrap().value(&|_| None), Ok(None));
}

#[test]
fn wrong_expressions_say_where() {
    for (text, part) in [
        ("", "empty"),
        ("1 +", "unexpected end"),
        ("1 + *", "character 5"),
        ("(1", "expected ')'"),
        ("height", "'height' is neither"),
        ("min(1)", "expected ','"),
        ("1 1", "character 3"),
        ("99999999999999999999", "2^64"),
        ("x²", "character 2"),
        ("-1", "'-'"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(part), "{text:?}: {error}");
    }
    assert!(parse(&"(".repeat(200)).unwrap_err().contains("parentheses"));
    assert!(parse(&"1+".repeat(200)).unwrap_err().contains("256"));
}

/// An expression as text, and its value, computed with saturation far beyond the bound.
fn expressions() -> impl Strategy<Value = (String, Option<i128>)> {
    let leaf = (0u32..1000).prop_map(|n| (n.to_string(), Some(i128::from(n))));
    leaf.prop_recursive(4, 24, 2, |inner| {
        (inner.clone(), inner, 0usize..9).prop_map(|((a, x), (b, y), operator)| {
            let both = x.zip(y);
            let positive = both.filter(|(_, y)| *y > 0);
            let (text, value) = match operator {
                0 => (format!("({a} + {b})"), both.map(|(x, y)| x + y)),
                1 => (format!("({a} - {b})"), both.map(|(x, y)| x - y)),
                2 => (
                    format!("({a}*{b})"),
                    both.and_then(|(x, y)| x.checked_mul(y)),
                ),
                3 => (format!("({a} / {b})"), positive.map(|(x, y)| x / y)),
                4 => (format!("({a} % {b})"), positive.map(|(x, y)| x % y)),
                5 => (format!("min({a}, {b})"), both.map(|(x, y)| x.min(y))),
                6 => (format!("max( {a} ,{b})"), both.map(|(x, y)| x.max(y))),
                7 => (
                    format!("ceil_div({a},{b})"),
                    positive.map(|(x, y)| (x as f64 / y as f64).ceil() as i128),
                ),
                _ => (
                    format!("align({a},{b})"),
                    positive.map(|(x, y)| (x + y - 1).div_euclid(y) * y),
                ),
            };
            (text, value.filter(|v| v.abs() <= 1 << 20))
        })
    })
}

proptest! {
    #[test]
    fn values_are_those_of_plain_arithmetic((text, expected) in expressions()) {
        // If the model has no value (too large, a division by zero), any result without a panic is
        // correct.
        if let (Ok(parsed), Some(expected)) = (parse(&text), expected) {
            prop_assert_eq!(parsed.value(&|_| None).unwrap(), Some(expected), "{}", text);
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[-+*/%(),x0-9 a-zé_]{0,300}", values in any::<[u64; 3]>()) {
        if let Ok(parsed) = parse(&text) {
            if let Ok(Some(value)) = parsed.value(&|i| Some(values[i].into())) {
                prop_assert!(value.abs() <= VALUE_MAX);
            }
        }
    }
}
