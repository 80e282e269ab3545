use super::*;
use crate::expression::Expression;
use crate::manifest::Source;
use proptest::prelude::*;

fn input(name: &str, kind: Type, rank: usize, json: JsonForm) -> InputPlan {
    let shape = (0..rank)
        .map(|_| Expression::parse("n", &|_| Some(0)).unwrap())
        .collect();
    let (default, min, max, variable, buffer, header) = (None, None, None, None, None, None);
    InputPlan {
        name: name.into(),
        kind,
        shape,
        from: Source::Body,
        header,
        json,
        default,
        min,
        max,
        variable,
        buffer,
    }
}

fn one(text: &str, kind: Type, json: JsonForm) -> Result<Array, BindError> {
    let input = input("x", kind, 1, json);
    body(text.as_bytes(), &[&input], 1 << 20).map(|mut arrays| arrays.remove(0).unwrap())
}

#[test]
fn arrays_are_read_with_their_shape() {
    assert_eq!(
        one("[1, 2, 3]", Type::U8, JsonForm::Array).unwrap(),
        (vec![3], vec![1, 2, 3])
    );
    assert_eq!(
        one("[[1,2],[3,4],[5,6]]", Type::U8, JsonForm::Array)
            .unwrap()
            .0,
        [3, 2]
    );
    assert_eq!(
        one("7", Type::U16, JsonForm::Array).unwrap(),
        (vec![], vec![7, 0])
    );
    assert_eq!(
        one(r#"{"x": [-1]}"#, Type::I8, JsonForm::Array).unwrap(),
        (vec![1], vec![255])
    );
    assert_eq!(
        one("[]", Type::F32, JsonForm::Array).unwrap(),
        (vec![0], vec![])
    );
    assert_eq!(
        one("[1e2, 3.0]", Type::U8, JsonForm::Array).unwrap().1,
        [100, 3]
    );
    assert_eq!(
        one(r#""00fF""#, Type::U8, JsonForm::Hex).unwrap(),
        (vec![2], vec![0, 255])
    );
    assert_eq!(
        one(r#"["ab","cd"]"#, Type::U8, JsonForm::Text).unwrap(),
        (vec![2, 2], b"abcd".to_vec())
    );
    let floats = one(r#"["NaN", "-Infinity", 0.1]"#, Type::F32, JsonForm::Array)
        .unwrap()
        .1;
    assert!(f32::from_le_bytes(floats[..4].try_into().unwrap()).is_nan());
    assert_eq!(floats[4..8], f32::NEG_INFINITY.to_le_bytes());
    assert_eq!(floats[8..], 0.1f32.to_le_bytes());
}

#[test]
fn odd_floats_are_read_as_python_writes_them() {
    let floats = one("[NaN, Infinity,-Infinity, 1]", Type::F64, JsonForm::Array).unwrap();
    let expected = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.0];
    assert_eq!(floats.1, expected.map(f64::to_le_bytes).concat());
    let scalar = one("NaN", Type::F32, JsonForm::Array).unwrap();
    assert!(f32::from_le_bytes(scalar.1.try_into().unwrap()).is_nan());
    let text = one(r#""NaN \" -Infinity""#, Type::U8, JsonForm::Text).unwrap();
    assert_eq!(text.1, b"NaN \" -Infinity");
    assert!(one("[NaN]", Type::I32, JsonForm::Array).is_err());
    for wrong in ["[nan]", "[NaNs]", "[Inf]", "[--Infinity]", "[NaN NaN]"] {
        let error = one(wrong, Type::F32, JsonForm::Array).unwrap_err();
        assert_eq!(error.status(), 400, "{wrong}: {error}");
    }
}

#[test]
fn integers_are_exact_or_refused() {
    for (text, kind) in [
        ("[18446744073709551615]", Type::U64),
        ("[-9223372036854775808]", Type::I64),
        ("[9007199254740993]", Type::I64),
        ("[9007199254740992]", Type::F64),
        ("[16777216]", Type::F32),
        ("[4503599627370496.0]", Type::I64),
    ] {
        assert!(one(text, kind, JsonForm::Array).is_ok(), "{text} {kind}");
    }
    for (text, kind) in [
        ("[18446744073709551616]", Type::U64),
        ("[9007199254740993.0]", Type::I64),
        ("[9007199254740992.5]", Type::I64),
        ("[1e19]", Type::U64),
        ("[9007199254740993]", Type::F64),
        ("[18446744073709551615]", Type::F64),
        ("[16777217]", Type::F32),
    ] {
        let error = one(text, kind, JsonForm::Array).unwrap_err();
        assert_eq!(error.status(), 422, "{text} {kind}: {error}");
    }
}

#[test]
fn what_does_not_fit_is_refused_with_its_status() {
    for (text, kind, status, part) in [
        ("[1, 256]", Type::U8, 422, "256 is not a valid u8"),
        ("[1.5]", Type::I32, 422, "1.5 is not a valid i32"),
        ("[1e40]", Type::F32, 422, "is not a valid f32"),
        ("[[1,2],[3]]", Type::U8, 422, "elements are mixed"),
        ("[1,[2]]", Type::U8, 422, "arrays are mixed"),
        ("[[1],2]", Type::U8, 422, "arrays are mixed"),
        ("[true]", Type::U8, 422, "boolean"),
        ("[null]", Type::F32, 422, "null"),
        ("\"text\"", Type::U8, 422, "a string is not a valid u8"),
        (r#"{"y": [1]}"#, Type::U8, 422, "no input 'y'"),
        (r#"{"x": [1], "x": [1]}"#, Type::U8, 422, "duplicate"),
        ("[1,", Type::U8, 400, "not JSON"),
        ("[1] 2", Type::U8, 400, "not JSON"),
        ("", Type::U8, 400, "not JSON"),
    ] {
        let error = one(text, kind, JsonForm::Array).unwrap_err();
        assert_eq!(error.status(), status, "{text}: {error}");
        assert!(error.to_string().contains(part), "{text}: {error}");
    }
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    assert!(one(&deep, Type::U8, JsonForm::Array)
        .unwrap_err()
        .to_string()
        .contains("nested too deeply"));
    let x = input("x", Type::F64, 1, JsonForm::Array);
    assert_eq!(body(b"[1,2,3]", &[&x], 23).unwrap_err().status(), 413);
    assert!(body(b"[1,2,3]", &[&x], 24).is_ok());
}

#[test]
fn several_inputs_need_their_names() {
    let (a, b) = (
        input("a", Type::U8, 1, JsonForm::Array),
        input("b", Type::F32, 0, JsonForm::Array),
    );
    let arrays = body(br#"{"b": 2, "a": [1]}"#, &[&a, &b], 100).unwrap();
    assert_eq!(arrays[0], Some((vec![1], vec![1])));
    assert_eq!(arrays[1], Some((vec![], 2f32.to_le_bytes().to_vec())));
    assert_eq!(body(br#"{"a": [1]}"#, &[&a, &b], 100).unwrap()[1], None);
    assert!(body(b"[1]", &[&a, &b], 100)
        .unwrap_err()
        .to_string()
        .contains("object"));
}

#[test]
fn flat_data_may_be_nested() {
    assert_eq!(flat(b"[[1,2],[3]]", Type::U8, 3).unwrap(), [1, 2, 3]);
    assert!(flat(b"[1,2,3,4]", Type::U8, 3).is_err());
    assert!(flat(b"[\"x\"]", Type::U8, 3).is_err());
}

proptest! {
    #[test]
    fn what_is_written_is_read(rows in 1u64..4, values in prop::collection::vec(any::<u32>(), 0..12), float in any::<bool>()) {
        let kind = if float { Type::F32 } else { Type::U32 };
        let columns = values.len() as u64 / rows;
        let bytes: Vec<u8> = values[..(rows * columns) as usize].iter().flat_map(|v| {
            // All NaN count as equal.
            let value = if float && f32::from_bits(*v).is_nan() { f32::NAN.to_bits() } else { *v };
            value.to_le_bytes()
        }).collect();
        let mut text = Vec::new();
        write(&mut text, kind, JsonForm::Array, &[rows, columns], &bytes).unwrap();
        let text = String::from_utf8(text).unwrap();
        prop_assert!(text.len() as u64 <= bytes_max(kind, JsonForm::Array, &[rows, columns]));
        let (shape, read) = one(&text, kind, JsonForm::Array).unwrap();
        prop_assert_eq!(shape, vec![rows, columns], "{}", text);
        prop_assert_eq!(read, bytes, "{}", text);
    }

    #[test]
    fn no_json_is_longer_than_its_bound(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        index in 0usize..10,
        columns in 0u64..5,
        form in prop::sample::select(vec![JsonForm::Array, JsonForm::Hex, JsonForm::Text]),
    ) {
        let kind = if form == JsonForm::Array { Type::ALL[index] } else { Type::U8 };
        let rows = bytes.len() as u64 / (kind.size() * columns.max(1));
        let shape = [rows, columns, 1];
        let length = (rows * columns * kind.size()) as usize;
        let mut text = Vec::new();
        if write(&mut text, kind, form, &shape, &bytes[..length]).is_ok() {
            prop_assert!(text.len() as u64 <= bytes_max(kind, form, &shape), "{:?}", String::from_utf8(text));
        }
    }

    #[test]
    fn no_text_panics_or_grows_beyond_its_limit(text in r#"[\[\]{}",:0-9.eE x\-]{0,200}"#, index in 0usize..10) {
        let x = input("x", Type::ALL[index], 2, JsonForm::Hex);
        if let Ok(arrays) = body(text.as_bytes(), &[&x], 64) {
            let bytes: usize = arrays.iter().flatten().map(|(_, bytes)| bytes.len()).sum();
            prop_assert!(bytes <= 64);
            for (shape, bytes) in arrays.into_iter().flatten() {
                prop_assert_eq!(shape.iter().product::<u64>() * Type::ALL[index].size(), bytes.len() as u64);
            }
        }
        let _ = flat(text.as_bytes(), Type::ALL[index], 64);
    }
}
