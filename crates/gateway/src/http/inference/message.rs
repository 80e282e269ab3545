//! Requests and answers of `/infer`: JSON, and the binary data behind it.

use super::{kind, shape, Data, Inference, Input, Span, Wanted};
use crate::http::body::Body as Frames;
use crate::http::problem::Problem;
use crate::http::router::parse_json;
use crate::http::table::Deployed;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use baltra_functions::{Body as Bodies, Tensor};
use bytes::Bytes;
use http::header::{HeaderName, CONTENT_TYPE};
use http::HeaderValue;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Where the JSON ends and the binary data begins.
pub(crate) const HEADER_LENGTH: HeaderName =
    HeaderName::from_static("inference-header-content-length");

#[derive(Debug, Deserialize)]
struct RequestBody {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    parameters: Parameters,
    inputs: Vec<RequestInput>,
    #[serde(default)]
    outputs: Vec<RequestOutput>,
}

#[derive(Debug, Deserialize)]
struct RequestInput {
    name: String,
    datatype: String,
    shape: Vec<i64>,
    #[serde(default)]
    parameters: Parameters,
    #[serde(default)]
    data: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
struct RequestOutput {
    name: String,
    #[serde(default)]
    parameters: Parameters,
}

#[derive(Debug, Default, Deserialize)]
struct Parameters {
    #[serde(default)]
    binary_data_size: Option<u64>,
    #[serde(default)]
    binary_data: Option<bool>,
    #[serde(default)]
    binary_data_output: Option<bool>,
    #[serde(default)]
    shared_memory_region: Option<String>,
    #[serde(default)]
    shared_memory_offset: Option<u64>,
    #[serde(default)]
    shared_memory_byte_size: Option<u64>,
    #[serde(default)]
    classification: Option<u64>,
    /// Others are allowed, and mean nothing here.
    #[serde(flatten)]
    _others: HashMap<String, serde::de::IgnoredAny>,
}

impl Parameters {
    fn span(&self) -> Result<Option<Span>, Problem> {
        match (&self.shared_memory_region, self.shared_memory_byte_size) {
            (None, None) => Ok(None),
            (Some(region), Some(bytes)) => Ok(Some(Span {
                region: region.clone(),
                offset: self.shared_memory_offset.unwrap_or(0),
                bytes,
            })),
            _ => Err(Problem::bad_request(
                "'shared_memory_region' and 'shared_memory_byte_size' go together",
            )),
        }
    }
}

/// How the answer is to be written.
pub(crate) struct Form {
    id: Option<String>,
    /// By output name.
    outputs: HashMap<String, (bool, Option<Span>)>,
    binary: bool,
}

/// `length` bytes of JSON (none: all), and binary data; inputs of `input_bytes_max` together.
pub(crate) fn read_request(
    body: &Bodies,
    length: Option<u64>,
    input_bytes_max: u64,
) -> Result<(Inference, Form), Problem> {
    let all = body.len();
    let length = length.unwrap_or(all);
    if length > all {
        return Err(Problem::bad_request(
            "Inference-Header-Content-Length is more than the body has",
        ));
    }
    let request: RequestBody = parse_json(&body.slice(0, length).to_bytes())?;
    let mut at = length;
    let mut left = input_bytes_max;
    let mut inputs = Vec::with_capacity(request.inputs.len());
    for input in request.inputs {
        let kind = kind(&input.name, &input.datatype)?;
        let (shape, bytes) = shape(&input.name, kind, &input.shape)?;
        let wrong = |why: &str| Problem::bad_request(format!("input '{}': {why}", input.name));
        left = left
            .checked_sub(bytes)
            .ok_or_else(|| Problem::too_large("what the inputs hold", input_bytes_max))?;
        let span = input.parameters.span()?;
        let data = match (input.data, input.parameters.binary_data_size, span) {
            (Some(json), None, None) => {
                let data = Tensor::data_from_json(kind, json.get().as_bytes(), bytes).map_err(
                    |error| Problem::unprocessable(format!("input '{}': {error}", input.name)),
                )?;
                if data.len() != bytes {
                    let count = data.len() / kind.size();
                    let why = format!("{count} elements are not of the shape {shape:?}");
                    return Err(wrong(&why));
                }
                Data::Bytes(data)
            }
            (None, Some(size), None) => {
                if size != bytes {
                    let why = format!("{size} bytes of binary data are not of the shape {shape:?}");
                    return Err(wrong(&why));
                }
                let data = body.slice(at, size);
                if data.len() != size {
                    return Err(wrong("the body ends within its binary data"));
                }
                at += size;
                Data::Bytes(data)
            }
            (None, None, Some(span)) => Data::Shared(span),
            _ => {
                let why = "exactly one of 'data', 'binary_data_size' and 'shared_memory_region' says where it is";
                return Err(wrong(why));
            }
        };
        inputs.push(Input {
            name: input.name,
            kind,
            shape,
            data,
        });
    }
    if at != all {
        return Err(Problem::bad_request(
            "there are bytes behind the last input's",
        ));
    }
    let binary = request.parameters.binary_data_output.unwrap_or(false);
    let mut form = Form {
        id: request.id,
        outputs: HashMap::new(),
        binary,
    };
    let mut wanted = Vec::with_capacity(request.outputs.len());
    for output in request.outputs {
        if output.parameters.classification.is_some_and(|n| n > 0) {
            return Err(Problem::bad_request("classification is not offered here"));
        }
        let shared = output.parameters.span()?;
        let as_binary = output.parameters.binary_data.unwrap_or(binary);
        form.outputs
            .insert(output.name.clone(), (as_binary, shared.clone()));
        wanted.push(Wanted {
            name: output.name,
            shared,
        });
    }
    Ok((Inference { inputs, wanted }, form))
}

#[derive(Serialize)]
struct ResponseOutput<'a> {
    name: &'a str,
    datatype: &'static str,
    shape: &'a [u64],
    #[serde(skip_serializing_if = "Map::is_empty")]
    parameters: Map<String, Value>,
}

/// The answer in the form that was asked for.
pub(crate) fn write_response(
    deployed: &Deployed,
    form: &Form,
    tensors: &[Tensor],
) -> serde_json::Result<Response> {
    let mut text = b"{\"model_name\":".to_vec();
    serde_json::to_writer(&mut text, deployed.name())?;
    text.extend(b",\"model_version\":");
    serde_json::to_writer(&mut text, &deployed.function.manifest.version)?;
    if let Some(id) = &form.id {
        text.extend(b",\"id\":");
        serde_json::to_writer(&mut text, id)?;
    }
    text.extend(b",\"outputs\":[");
    let mut behind: Vec<Bytes> = Vec::new();
    for (i, tensor) in tensors.iter().enumerate() {
        let asked = form.outputs.get(&tensor.name);
        let binary = asked.map_or(form.binary, |(binary, _)| *binary);
        let shared = asked.and_then(|(_, shared)| shared.as_ref());
        let mut parameters = Map::new();
        if let Some(span) = shared {
            parameters.insert("shared_memory_region".into(), span.region.clone().into());
            parameters.insert("shared_memory_offset".into(), span.offset.into());
            parameters.insert("shared_memory_byte_size".into(), tensor.data.len().into());
        } else if binary {
            parameters.insert("binary_data_size".into(), tensor.data.len().into());
            behind.extend(tensor.data.0.iter().cloned());
        }
        if i > 0 {
            text.push(b',');
        }
        let output = ResponseOutput {
            name: &tensor.name,
            datatype: tensor.kind.datatype(),
            shape: &tensor.shape,
            parameters,
        };
        serde_json::to_writer(&mut text, &output)?;
        if shared.is_none() && !binary {
            // Inside the object that was just written.
            text.pop();
            text.extend(b",\"data\":");
            tensor.data_to_json(&mut text);
            text.push(b'}');
        }
    }
    text.extend(b"]}");
    if behind.is_empty() {
        return Ok(([(CONTENT_TYPE, "application/json")], text).into_response());
    }
    let headers = [
        (
            CONTENT_TYPE,
            HeaderValue::from_static("application/octet-stream"),
        ),
        (HEADER_LENGTH, HeaderValue::from(text.len())),
    ];
    behind.insert(0, text.into());
    Ok((headers, Body::new(Frames::frames(behind))).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(json: &str, behind: &[u8]) -> Result<(Inference, Form), Problem> {
        let frames = vec![
            Bytes::copy_from_slice(json.as_bytes()),
            Bytes::copy_from_slice(behind),
        ];
        read_request(&Bodies(frames), Some(json.len() as u64), 1 << 20)
    }

    fn bytes_of(data: &Data) -> Bytes {
        match data {
            Data::Bytes(body) => body.to_bytes(),
            Data::Shared(span) => panic!("{span:?}"),
        }
    }

    #[test]
    fn json_and_binary_inputs_are_the_same_bytes() {
        let one =
            r#"{"inputs": [{"name": "a", "datatype": "UINT16", "shape": [2], "data": [1, 2]}]}"#;
        let (inference, _) = read(one, b"").unwrap();
        assert_eq!(bytes_of(&inference.inputs[0].data), &[1u8, 0, 2, 0][..]);
        let other = r#"{"inputs": [
            {"name": "a", "datatype": "UINT16", "shape": [2], "parameters": {"binary_data_size": 4}},
            {"name": "b", "datatype": "UINT8", "shape": [1], "parameters": {"binary_data_size": 1}}]}"#;
        let (inference, _) = read(other, &[1, 0, 2, 0, 9]).unwrap();
        assert_eq!(bytes_of(&inference.inputs[0].data), &[1u8, 0, 2, 0][..]);
        assert_eq!(bytes_of(&inference.inputs[1].data), &[9u8][..]);
    }

    #[test]
    fn what_does_not_add_up_is_refused() {
        let input = |rest: &str| {
            format!(r#"{{"inputs": [{{"name": "a", "datatype": "UINT8", "shape": [2]{rest}}}]}}"#)
        };
        let cases: [(&str, &[u8], u16); 10] = [
            ("", b"", 400),
            (r#", "data": [1]"#, b"", 400),
            (r#", "data": [1, 256]"#, b"", 422),
            (r#", "data": [1, 2]"#, b"x", 400),
            (r#", "data": "ab""#, b"", 422),
            (r#", "parameters": {"binary_data_size": 2}"#, b"a", 400),
            (r#", "parameters": {"binary_data_size": 3}"#, b"abc", 400),
            (
                r#", "parameters": {"binary_data_size": 2}, "data": [1, 2]"#,
                b"ab",
                400,
            ),
            (r#", "parameters": {"shared_memory_region": "r"}"#, b"", 400),
            (r#", "parameters": {"binary_data_size": -1}"#, b"", 422),
        ];
        for (rest, behind, status) in cases {
            let problem = read(&input(rest), behind).map(|_| ()).unwrap_err();
            assert_eq!(problem.status, status, "{rest}: {problem}");
        }
        let large =
            r#"{"inputs": [{"name": "a", "datatype": "UINT8", "shape": [2000000], "data": []}]}"#;
        assert_eq!(read(large, b"").map(|_| ()).unwrap_err().status, 413);
    }

    proptest! {
        #[test]
        fn any_body_is_read_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..500),
            length in proptest::option::of(0u64..600),
        ) {
            let _ = read_request(&Bodies(vec![bytes.into()]), length, 1 << 20);
        }
    }
}
