//! `/openapi.json`: describes this gateway, including the deployed functions.

use crate::http::function::table::Deployed;
use crate::http::gateway::Gateway;
use crate::http::manage::request::json;
use axum::extract::State;
use axum::response::Response;
use baltra_functions::manifest::{Codec, Source};
use serde_json::{json, Map, Value};
use std::sync::{Arc, LazyLock};

/// The description without functions. `PROBLEM` in a list of responses stands for the errors that
/// any path may return.
static TEXT: &str = include_str!("openapi.json");

static DESCRIPTION: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(TEXT).expect("the embedded description is JSON"));

/// `GET /openapi.json`
pub(crate) async fn page(State(gateway): State<Arc<Gateway>>) -> Response {
    json(&describe(&gateway.table.list(), gateway.keys.are_wanted()))
}

fn describe(functions: &[Arc<Deployed>], keys: bool) -> Value {
    let mut all = DESCRIPTION.clone();
    all["info"]["version"] = env!("CARGO_PKG_VERSION").into();
    if let Some(first) = functions.first() {
        add_examples(&mut all["paths"], first);
    }
    if let Some(paths) = all["paths"].as_object_mut() {
        for deployed in functions {
            let path = format!("/function/{}", deployed.name());
            paths.insert(path, function(deployed, keys));
        }
    }
    all
}

/// Gives path variables values that exist.
fn add_examples(at: &mut Value, deployed: &Deployed) {
    match at {
        Value::Object(fields) => {
            let example = match (fields.get("in"), fields.get("name")) {
                (Some(place), Some(name)) if place == "path" && name == "name" => deployed.name(),
                (Some(place), Some(name)) if place == "path" && name == "version" => {
                    &deployed.function.manifest.version
                }
                _ => "",
            };
            if !example.is_empty() {
                fields.insert("example".into(), example.into());
            }
            let inner = fields.values_mut();
            inner.for_each(|value| add_examples(value, deployed));
        }
        Value::Array(items) => {
            items
                .iter_mut()
                .for_each(|item| add_examples(item, deployed));
        }
        _ => {}
    }
}

fn media_type(codec: Codec) -> &'static str {
    match codec {
        Codec::Raw => "application/octet-stream",
        Codec::Json => "application/json",
        Codec::Npy => "application/x-npy",
        Codec::Png => "image/png",
        Codec::Jpeg => "image/jpeg",
    }
}

fn content(codecs: &[Codec]) -> Value {
    let raw = [Codec::Raw];
    let codecs = if codecs.is_empty() { &raw } else { codecs };
    // No schema: any bytes of the type are valid, and the function defines their content.
    let content = codecs
        .iter()
        .map(|c| (media_type(*c).to_owned(), json!({})));
    Value::Object(content.collect())
}

/// One function's path.
fn function(deployed: &Deployed, keys: bool) -> Value {
    let manifest = &deployed.function.manifest;
    let mut parameters = Vec::new();
    let mut body = None;
    for input in &manifest.inputs {
        let place = match input.from {
            Source::Query => "query",
            Source::Header => "header",
            Source::Body => {
                body = Some(content(&input.codecs));
                continue;
            }
            Source::Path | Source::Method | Source::Constant => continue,
        };
        let name = match (&input.header, place) {
            (Some(header), "header") => header.clone(),
            (None, "header") => format!("x-{}", input.name),
            _ => input.name.clone(),
        };
        let mut schema = Map::new();
        let kind = match (input.shape.is_empty(), input.kind.is_integer()) {
            (false, _) => "string",
            (true, true) => "integer",
            (true, false) => "number",
        };
        schema.insert("type".into(), kind.into());
        if input.shape.is_empty() {
            let range = input.kind.range();
            let least = input.min.or(range.map(|r| r.0 as f64));
            let most = input.max.or(range.map(|r| r.1 as f64));
            let bound = |n: f64| {
                if input.kind.is_integer() && n.abs() < 9.0e15 {
                    Value::from(n as i64)
                } else {
                    Value::from(n)
                }
            };
            if let Some(least) = least {
                schema.insert("minimum".into(), bound(least));
            }
            if let Some(most) = most {
                schema.insert("maximum".into(), bound(most));
            }
        }
        let required = input.default.is_none() && input.shape.is_empty();
        parameters.push(json!({
            "name": name, "in": place, "required": required, "schema": schema,
        }));
    }
    let first = manifest.outputs.first();
    let answer = content(first.map_or(&[], |output| output.codecs.as_slice()));
    let mut operation = json!({
        "tags": ["functions"],
        "summary": manifest.description,
        "parameters": parameters,
        "responses": {
            "200": {"description": "the function's output", "content": answer},
            "4XX": {"$ref": "#/components/responses/Problem"},
            "5XX": {"$ref": "#/components/responses/Problem"},
        },
    });
    if let Some(content) = body {
        operation["requestBody"] = json!({"required": true, "content": content});
    }
    if keys {
        operation["security"] = json!([{"key": []}, {"bearer": []}]);
    }
    let methods = [
        "GET", "PUT", "POST", "DELETE", "OPTIONS", "HEAD", "PATCH", "TRACE",
    ];
    let methods = manifest
        .methods
        .iter()
        .filter(|m| methods.contains(&m.as_str()));
    let paths = methods.map(|method| {
        let mut operation = operation.clone();
        let method = method.to_ascii_lowercase();
        operation["operationId"] = format!("{method}-{}", deployed.name()).into();
        (method, operation)
    });
    Value::Object(paths.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_leads_somewhere() {
        fn walk(at: &Value, whole: &Value) {
            match at {
                Value::Object(fields) => {
                    if let Some(Value::String(to)) = fields.get("$ref") {
                        let pointer = to.strip_prefix('#').expect("within the document");
                        assert!(whole.pointer(pointer).is_some(), "{to}");
                    }
                    fields.values().for_each(|value| walk(value, whole));
                }
                Value::Array(items) => items.iter().for_each(|item| walk(item, whole)),
                _ => {}
            }
        }
        let all = describe(&[], false);
        assert_eq!(all["openapi"], "3.1.0");
        walk(&all, &all);
    }

    #[test]
    fn every_operation_has_a_name_of_its_own() {
        let all = describe(&[], false);
        let mut names = std::collections::BTreeSet::new();
        for (path, methods) in all["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                if method == "parameters" {
                    continue;
                }
                let name = operation["operationId"].as_str();
                let name = name.unwrap_or_else(|| panic!("{method} {path} has no name"));
                assert!(names.insert(name.to_owned()), "{name}");
                assert!(operation["responses"].is_object(), "{method} {path}");
            }
        }
        assert!(names.len() > 20);
    }
}
