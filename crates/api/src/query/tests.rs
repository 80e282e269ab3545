use super::*;
use proptest::prelude::*;

struct Board {
    id: String,
    name: String,
    vendor: String,
}

impl Device for Board {
    fn field(&self, field: Field) -> Option<&str> {
        Some(match field {
            Field::Id => &self.id,
            Field::Name => &self.name,
            Field::Node => "n1",
            Field::Pool => "",
            Field::Vendor => &self.vendor,
            Field::Platform => "Intel(R) FPGA SDK for OpenCL(TM)",
            Field::Profile => "FULL_PROFILE",
            Field::Model => "Arria 10 GX",
            Field::Regions => "4",
            Field::Accelerator => return None,
        })
    }

    fn label(&self, key: &str) -> &str {
        if key == "rack" {
            "7"
        } else {
            ""
        }
    }
}

fn device() -> Board {
    Board {
        id: "n1/fpga0".to_owned(),
        name: "de5a".to_owned(),
        vendor: "Intel(R) Corporation".to_owned(),
    }
}

fn query(text: &str) -> Query {
    text.parse().unwrap()
}

#[test]
fn terms_match_exactly_by_prefix_and_by_glob() {
    for (text, fits) in [
        ("", true),
        ("vendor=Intel(R) Corporation", true),
        ("vendor=intel*", true),
        ("vendor=Intel", false),
        ("model=*10*", true),
        ("model=Arria ?? GX", true),
        ("model=Arria ? GX", false),
        ("regions=4", true),
        ("regions=1", false),
        ("node=n1,id=n1/*", true),
        ("node=N1", false),
        ("vendor=Intel*,platform=Xilinx*", false),
        ("pool=?*", false),
        ("label.rack=7,vendor=Intel*", true),
        ("label.rack=8", false),
        ("label.row=?*", false),
        ("label.row=*", true),
    ] {
        assert_eq!(query(text).unmet(&device()).is_none(), fits, "{text}");
    }
}

#[test]
fn accelerators_match_by_name_or_digest() {
    let sobel = Accelerator {
        name: "sobel".to_owned(),
        digest: "ab12cd".to_owned(),
    };
    for (text, wants) in [
        ("accelerator=sobel", true),
        ("accelerator=so*", true),
        ("accelerator=Sobel", false),
        ("accelerator=ab12cd", true),
        ("accelerator=sha256:AB12*", true),
        ("accelerator=mm", false),
        ("vendor=Intel*", true),
    ] {
        assert_eq!(query(text).accepts_accelerator(&sobel), wants, "{text}");
    }
}

#[test]
fn a_wrong_query_says_where_and_why() {
    for (text, wrong) in [
        ("vendor", "'vendor' at byte 0 has no '='"),
        ("vendor=a, speed=9", "unknown field 'speed' at byte 10"),
        ("node=a,node=b", "duplicate field 'node' at byte 7"),
        ("node=", "the value is empty"),
        ("label.=7", "a label's key may have"),
        (
            "label.a=7,label.a=8",
            "duplicate field 'label.a' at byte 10",
        ),
        ("node=\"a", "unterminated quote"),
        ("node=a\\", "a backslash at the end"),
        ("node=a\u{7}", "control character"),
    ] {
        let error = text.parse::<Query>().unwrap_err().to_string();
        assert!(error.contains(wrong), "{text}: {error}");
    }
    let long = "x".repeat(TEXT_BYTES_MAX + 1);
    assert_eq!(
        long.parse::<Query>(),
        Err(QueryError::TooLong(TEXT_BYTES_MAX + 1))
    );
    let value = format!("node={}", "x".repeat(VALUE_BYTES_MAX + 1));
    assert!(value
        .parse::<Query>()
        .unwrap_err()
        .to_string()
        .contains("256"));
}

#[test]
fn quotes_keep_commas_and_backslashes_take_meaning_away() {
    let xilinx = Board {
        vendor: "Xilinx, Inc.".to_owned(),
        name: "a*b".to_owned(),
        ..device()
    };
    assert!(query(r#"vendor="Xilinx, Inc.", node=n1"#)
        .unmet(&xilinx)
        .is_none());
    assert!(query(r"name=a\*b").unmet(&xilinx).is_none());
    let other = Board {
        name: "axb".to_owned(),
        ..xilinx
    };
    assert!(query(r"name=a\*b").unmet(&other).is_some());
}

#[test]
fn maps_and_texts_are_the_same_query() {
    let map: Query =
        serde_json::from_str(r#"{"vendor": "Xilinx, Inc.", "accelerator": "mm"}"#).unwrap();
    assert_eq!(map, query(r#"vendor="Xilinx, Inc.",accelerator=mm"#));
    let wrong = serde_json::from_str::<Query>(r#"{"color": "red"}"#).unwrap_err();
    assert!(wrong.to_string().contains("'color'"), "{wrong}");
}

#[test]
fn the_terms_of_two_queries_hold_and_the_first_goes_before() {
    let first = query("vendor=A*,label.tier=gold");
    let second = query("vendor=B,accelerator=\"a,b\",label.tier=tin,label.rack=7");
    let both = query("vendor=A*,accelerator=\"a,b\",label.tier=gold,label.rack=7");
    assert_eq!(first.joined(&second), None);
    assert_eq!(query("label.rack=7").joined(&query("label.rack=8")), None);
    assert_eq!(first.with_terms_of(&second), both);
    let vendor = query("vendor=B").joined(&query("model=\"x,y\",label.rack=7"));
    assert_eq!(vendor, Some(query("vendor=B,model=\"x,y\",label.rack=7")));
}

#[test]
fn nothing_fits_the_query_for_none() {
    let none = Query::none();
    for name in ["", "a", "(nothing)"] {
        let device = Board {
            id: name.into(),
            ..device()
        };
        assert!(none.unmet(&device).is_some());
        let accelerator = Accelerator {
            name: name.into(),
            digest: name.into(),
        };
        assert!(!none.accepts_accelerator(&accelerator));
    }
}

/// A simple reference implementation of glob matching.
fn glob(pattern: &[char], text: &[char]) -> bool {
    match (pattern.first(), text.first()) {
        (None, None) => true,
        (Some('*'), _) => {
            glob(&pattern[1..], text) || (!text.is_empty() && glob(pattern, &text[1..]))
        }
        (Some('?'), Some(_)) => glob(&pattern[1..], &text[1..]),
        (Some(p), Some(t)) if p == t => glob(&pattern[1..], &text[1..]),
        _ => false,
    }
}

proptest! {
    #[test]
    fn globs_match_as_their_definition_says(pattern in "[ab*?]{0,8}", text in "[ab]{0,10}") {
        let parsed = Pattern::parse(&pattern).unwrap();
        let chars = |s: &str| s.chars().collect::<Vec<_>>();
        prop_assert_eq!(parsed.matches(&text, true), glob(&chars(&pattern), &chars(&text)));
    }

    #[test]
    fn a_query_survives_its_text(values in prop::collection::btree_map(
        prop::sample::select(Field::ALL.to_vec()), "[ a-c,\"*?=.é]{1,12}", 0..6,
    )) {
        let mut built = Query::any();
        for (field, value) in values {
            built = built.with(field, &value).unwrap();
            built = built.with_label(field.name(), &value).unwrap();
        }
        let text = built.to_string();
        prop_assert_eq!(text.parse::<Query>(), Ok(built), "{}", text);
    }

    #[test]
    fn no_text_breaks_the_parser(text in "\\PC{0,200}") {
        let _ = text.parse::<Query>();
    }
}
