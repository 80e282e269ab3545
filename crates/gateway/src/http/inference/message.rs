//! Requests and responses of `/infer`: JSON, followed by binary data.

use super::datatype::{Datatype, Output};
use super::{shape, Data, Inference, Input, RequestedOutput, Span, DIMENSIONS_MAX, TENSORS_MAX};
use crate::http::admission::body::Body as Frames;
use crate::http::admission::budget::Held;
use crate::http::function::table::Deployed;
use crate::http::manage::request::parse_json;
use crate::http::problem::Problem;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use baltra_functions::{quote_odd_floats, Body as Bodies, Tensor};
use bytes::Bytes;
use http::header::{HeaderName, CONTENT_TYPE};
use http::HeaderValue;
use serde::de::{Deserializer, Error as _, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

/// Header with the length of the JSON before the binary data.
pub(crate) const HEADER_LENGTH: HeaderName =
    HeaderName::from_static("inference-header-content-length");

#[derive(Debug, Deserialize)]
struct RequestBody {
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    parameters: Parameters,
    #[serde(deserialize_with = "few::<_, _, TENSORS_MAX>")]
    inputs: Vec<RequestInput>,
    #[serde(default, deserialize_with = "few::<_, _, TENSORS_MAX>")]
    outputs: Vec<RequestOutput>,
}

#[derive(Debug, Deserialize)]
struct RequestInput {
    name: String,
    datatype: String,
    #[serde(deserialize_with = "few::<_, _, DIMENSIONS_MAX>")]
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

/// Parameters of a request or a tensor: supported or refused, never ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Parameters {
    binary_data_size: Option<u64>,
    binary_data: Option<bool>,
    binary_data_output: Option<bool>,
    shared_memory_region: Option<String>,
    shared_memory_offset: Option<u64>,
    shared_memory_byte_size: Option<u64>,
    classification: Option<u64>,
    priority: Option<u64>,
    /// Time limit, microseconds.
    timeout: Option<u64>,
    sequence_id: Option<IgnoredAny>,
    sequence_start: Option<IgnoredAny>,
    sequence_end: Option<IgnoredAny>,
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
                "'shared_memory_region' and 'shared_memory_byte_size' must be set together",
            )),
        }
    }
}

/// The error for sequences of dependent calls.
pub(crate) fn sequences() -> Problem {
    Problem::bad_request(
        "sequences are not supported ('sequence_id', 'sequence_start', 'sequence_end')",
    )
}

/// Parses the caller's time limit in microseconds; 0: the function's limit.
pub(crate) fn timeout(us: Option<u64>, priority: Option<u64>) -> Result<Option<Duration>, Problem> {
    if priority.is_some_and(|priority| priority > 0) {
        return Err(Problem::bad_request("'priority' is not supported"));
    }
    Ok(us.filter(|us| *us > 0).map(Duration::from_micros))
}

/// Upper bound of the memory that [`read_request`] needs in addition to the body: the JSON in one
/// piece, with special floats quoted and data apart, and the elements in lists that grow by
/// doubling.
pub(crate) fn read_bytes(body: u64, length: Option<u64>, input_bytes_max: u64) -> u64 {
    let json = length.unwrap_or(body).min(body);
    let elements = json
        .saturating_mul(8)
        .min(input_bytes_max.saturating_mul(2));
    elements.saturating_add(json.saturating_mul(4))
}

/// Upper bound of the memory that [`write_response`] needs in addition to the tensors.
pub(crate) fn written_bytes(form: &Form, tensors: &[Output]) -> u64 {
    let texts = tensors.iter().map(|tensor| {
        if form.is_text(&tensor.tensor) {
            // The text grows by doubling.
            tensor.json_bytes_max().saturating_mul(2)
        } else {
            0
        }
    });
    texts.fold(0, u64::saturating_add)
}

/// A list of at most `MAX` items; parsing stops at one more.
fn few<'de, D, T, const MAX: usize>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Few<T, const MAX: usize>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Few<T, MAX> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MAX}")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
            let mut all = Vec::new();
            while let Some(item) = items.next_element()? {
                if all.len() == MAX {
                    return Err(A::Error::invalid_length(MAX + 1, &self));
                }
                all.push(item);
            }
            Ok(all)
        }
    }

    from.deserialize_seq(Few::<T, MAX>(PhantomData))
}

/// The requested form of the response.
pub(crate) struct Form {
    id: Option<String>,
    /// By output name: whether it is binary, and its shared memory.
    outputs: HashMap<String, (bool, Option<Span>)>,
    binary: bool,
}

impl Form {
    /// Whether the tensor is written as JSON.
    fn is_text(&self, tensor: &Tensor) -> bool {
        let parameters = self.outputs.get(&tensor.name);
        let (binary, shared) = parameters.map_or((self.binary, &None), |(b, s)| (*b, s));
        !binary && shared.is_none()
    }
}

/// An input with its data, and the bytes that the data takes. `at` is the position in the body of
/// the next binary data, `left` the number of bytes that inputs may still take.
fn read_input(
    input: RequestInput,
    body: &Bodies,
    at: &mut u64,
    left: u64,
    too_large: impl Fn() -> Problem,
) -> Result<(Input, u64), Problem> {
    let datatype = Datatype::of(&input.name, &input.datatype)?;
    let (shape, bytes) = shape(&input.name, datatype, &input.shape)?;
    let wrong = |why: &str| Problem::bad_request(format!("input '{}': {why}", input.name));
    if bytes.is_some_and(|bytes| bytes > left) {
        return Err(too_large());
    }
    let span = input.parameters.span()?;
    let data = match (input.data, input.parameters.binary_data_size, span) {
        (Some(json), None, None) => {
            let data = datatype.parse_json(&input.name, json.get(), bytes.unwrap_or(left))?;
            if bytes.is_some_and(|bytes| data.len() != bytes) {
                let count = data.len() / datatype.size().unwrap_or(1);
                let why = format!("{count} elements do not match shape {shape:?}");
                return Err(wrong(&why));
            }
            Data::Bytes(data)
        }
        (None, Some(size), None) => {
            if bytes.is_some_and(|bytes| size != bytes) {
                let why = format!("{size} bytes of binary data do not match shape {shape:?}");
                return Err(wrong(&why));
            }
            let data = body.slice(*at, size);
            if data.len() != size {
                return Err(wrong("the body ends within its binary data"));
            }
            *at += size;
            Data::Bytes(data)
        }
        (None, None, Some(span)) => Data::Shared(span),
        _ => {
            let why = "set exactly one of 'data', 'binary_data_size' and 'shared_memory_region'";
            return Err(wrong(why));
        }
    };
    let held = match (&data, bytes) {
        (_, Some(bytes)) => bytes,
        (Data::Bytes(data), None) => data.len(),
        (Data::Shared(span), None) => span.bytes,
    };
    let input = Input {
        name: input.name,
        datatype,
        shape,
        data,
    };
    Ok((input, held))
}

/// Parses `length` bytes of JSON (`None`: all) and binary data. The inputs are at most
/// `input_bytes_max` bytes in total.
pub(crate) fn read_request(
    body: &Bodies,
    length: Option<u64>,
    input_bytes_max: u64,
) -> Result<(Inference, Form), Problem> {
    let all = body.len();
    let length = length.unwrap_or(all);
    if length > all {
        return Err(Problem::bad_request(
            "Inference-Header-Content-Length exceeds the body's length",
        ));
    }
    let text = body.slice(0, length).to_bytes();
    let request: RequestBody = parse_json(&quote_odd_floats(&text))?;
    let mut at = length;
    let mut left = input_bytes_max;
    let mut inputs = Vec::with_capacity(request.inputs.len());
    for input in request.inputs {
        let too_large = || Problem::too_large("the inputs' data", input_bytes_max);
        let (input, held) = read_input(input, body, &mut at, left, too_large)?;
        left = left.checked_sub(held).ok_or_else(too_large)?;
        inputs.push(input);
    }
    if at != all {
        return Err(Problem::bad_request(
            "trailing bytes after the last input's data",
        ));
    }
    let parameters = &request.parameters;
    let sequence = [
        &parameters.sequence_id,
        &parameters.sequence_start,
        &parameters.sequence_end,
    ];
    if sequence.iter().any(|part| part.is_some()) {
        return Err(sequences());
    }
    let timeout = timeout(parameters.timeout, parameters.priority)?;
    let binary = parameters.binary_data_output.unwrap_or(false);
    let mut form = Form {
        id: request.id,
        outputs: HashMap::new(),
        binary,
    };
    let mut wanted = Vec::with_capacity(request.outputs.len());
    for output in request.outputs {
        if output.parameters.classification.is_some_and(|n| n > 0) {
            return Err(Problem::bad_request("classification is not supported"));
        }
        let shared = output.parameters.span()?;
        let as_binary = output.parameters.binary_data.unwrap_or(binary);
        form.outputs
            .insert(output.name.clone(), (as_binary, shared.clone()));
        wanted.push(RequestedOutput {
            name: output.name,
            shared,
        });
    }
    let inference = Inference {
        inputs,
        wanted,
        timeout,
    };
    Ok((inference, form))
}

#[derive(Serialize)]
struct ResponseOutput<'a> {
    name: &'a str,
    datatype: &'static str,
    shape: &'a [u64],
    #[serde(skip_serializing_if = "Map::is_empty")]
    parameters: Map<String, Value>,
}

/// Writes the response in the requested form.
pub(crate) fn write_response(
    deployed: &Deployed,
    form: &Form,
    tensors: &[Output],
    held: Option<Held>,
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
    for (i, output) in tensors.iter().enumerate() {
        let tensor = &output.tensor;
        let parameters = form.outputs.get(&tensor.name);
        let binary = parameters.map_or(form.binary, |(binary, _)| *binary);
        let shared = parameters.and_then(|(_, shared)| shared.as_ref());
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
        let about = ResponseOutput {
            name: &tensor.name,
            datatype: output.datatype,
            shape: &tensor.shape,
            parameters,
        };
        serde_json::to_writer(&mut text, &about)?;
        if form.is_text(tensor) {
            // Continue inside the object that was just written.
            text.pop();
            text.extend(b",\"data\":");
            output.data_to_json(&mut text)?;
            text.push(b'}');
        }
    }
    text.extend(b"]}");
    if behind.is_empty() {
        text.shrink_to_fit();
        let body = Frames::frames(vec![text.into()]).holding(held);
        let kind = [(CONTENT_TYPE, "application/json")];
        return Ok((kind, Body::new(body)).into_response());
    }
    let headers = [
        (
            CONTENT_TYPE,
            HeaderValue::from_static("application/octet-stream"),
        ),
        (HEADER_LENGTH, HeaderValue::from(text.len())),
    ];
    behind.insert(0, text.into());
    Ok((headers, Body::new(Frames::frames(behind).holding(held))).into_response())
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
        let cases: [(&str, &[u8], u16); 11] = [
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
            (
                r#", "data": [1, 2], "parameters": {"unheard_of": 1}"#,
                b"",
                422,
            ),
        ];
        for (rest, behind, status) in cases {
            let problem = read(&input(rest), behind).map(|_| ()).unwrap_err();
            assert_eq!(problem.status, status, "{rest}: {problem}");
        }
        let large =
            r#"{"inputs": [{"name": "a", "datatype": "UINT8", "shape": [2000000], "data": []}]}"#;
        assert_eq!(read(large, b"").map(|_| ()).unwrap_err().status, 413);
    }

    #[test]
    fn what_a_request_asks_for_is_honored_or_refused() {
        let with = |parameters: &str| {
            let text = format!(r#"{{"inputs": [], "parameters": {{{parameters}}}}}"#);
            read(&text, b"").map(|(inference, _)| inference.timeout)
        };
        assert_eq!(with("").unwrap(), None);
        assert_eq!(with(r#""timeout": 0, "priority": 0"#).unwrap(), None);
        let waited = with(r#""timeout": 1500"#).unwrap();
        assert_eq!(waited, Some(Duration::from_micros(1500)));
        for (refused, status) in [
            (r#""sequence_id": 0"#, 400),
            (r#""sequence_id": "a", "sequence_start": true"#, 400),
            (r#""priority": 1"#, 400),
            (r#""else": 1"#, 422),
        ] {
            assert_eq!(with(refused).unwrap_err().status, status, "{refused}");
        }
    }

    #[test]
    fn more_tensors_or_dimensions_than_may_be_are_refused() {
        let tensor = r#"{"name": "a", "datatype": "UINT8", "shape": [SHAPE], "data": []}"#;
        let of = |count: usize, dimensions: usize| {
            let shape = vec!["0"; dimensions].join(",");
            let inputs = vec![tensor.replace("SHAPE", &shape); count].join(",");
            read(&format!(r#"{{"inputs": [{inputs}]}}"#), b"").map(|_| ())
        };
        of(TENSORS_MAX, DIMENSIONS_MAX).unwrap();
        assert_eq!(of(TENSORS_MAX + 1, 1).unwrap_err().status, 422);
        assert_eq!(of(1, DIMENSIONS_MAX + 1).unwrap_err().status, 422);
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
