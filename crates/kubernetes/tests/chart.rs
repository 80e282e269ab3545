//! The chart's schema of values: it lists every value of `values.yaml` and the templates, and
//! rejects all others.

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/helm/baltra")
}

fn schema() -> Value {
    serde_json::from_slice(&fs::read(chart().join("values.schema.json")).unwrap()).unwrap()
}

fn keys(of: &Value) -> BTreeSet<&str> {
    let members = of.as_object().into_iter().flatten();
    members.map(|(key, _)| key.as_str()).collect()
}

/// Compares objects with a fixed list of members in the schema: they must have exactly the members
/// of the values.
fn compare(schema: &Value, values: &Value, path: &str, compared: &mut usize) {
    let Some(properties) = schema.get("properties") else {
        return;
    };
    assert_eq!(schema["additionalProperties"], false, "{path}");
    let mut known = keys(properties);
    // Helm's own value in umbrella charts.
    known.remove("global");
    assert_eq!(known, keys(values), "{path}");
    for key in known {
        *compared += 1;
        compare(
            &properties[key],
            &values[key],
            &format!("{path}.{key}"),
            compared,
        );
    }
}

#[test]
fn the_schema_names_the_values_and_no_others() {
    let text = fs::read_to_string(chart().join("values.yaml")).unwrap();
    let values: Value = serde_saphyr::from_str(&text).unwrap();
    let mut compared = 0;
    compare(&schema(), &values, "", &mut compared);
    assert!(compared > 50, "{compared} values");
}

#[test]
fn what_templates_use_is_in_the_schema() {
    let (schema, mut used) = (schema(), 0);
    for file in fs::read_dir(chart().join("templates")).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        for rest in text.split(".Values.").skip(1) {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.');
            let path = rest[..end.unwrap_or(rest.len())].trim_end_matches('.');
            let mut at = &schema;
            for key in path.split('.') {
                // The API server checks values of Kubernetes' own types.
                if at.get("properties").is_none() {
                    break;
                }
                at = &at["properties"][key];
                assert!(at.is_object(), ".Values.{path}");
            }
            used += 1;
        }
    }
    assert!(used > 60, "{used} uses");
}
