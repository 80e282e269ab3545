//! Responses: outputs in the format that the client accepts.

use crate::call::{Body, Call, OutputShape};
use crate::codec::{json, npy, picture};
use crate::error::BindError;
use crate::manifest::Codec;
use crate::plan::{OutputPlan, Plan};
use crate::request::Answer;
use crate::types::Scalar;
use bytes::Bytes;

/// Longest JSON of an array without elements, bytes.
const EMPTY_JSON_MAX: u64 = 64 << 10;

/// An output for the response; its first dimension is the actual one if another output has the
/// length.
pub(crate) struct Shown {
    pub index: usize,
    pub shape: Vec<u64>,
    pub bytes: Bytes,
}

/// Checks the outputs and omits those that are not sent.
pub(crate) fn shown(
    plan: &Plan,
    call: &Call,
    outputs: Vec<Bytes>,
) -> Result<Vec<Shown>, BindError> {
    if outputs.len() != call.outputs.len() {
        let (got, wanted) = (outputs.len(), call.outputs.len());
        return Err(BindError::BadOutput(format!(
            "the function returned {got} outputs instead of {wanted}"
        )));
    }
    for ((bytes, shape), output) in outputs.iter().zip(&call.outputs).zip(&plan.outputs) {
        if bytes.len() as u64 != shape.bytes {
            let (name, got, wanted) = (&output.name, bytes.len(), shape.bytes);
            return Err(BindError::BadOutput(format!(
                "the function returned '{name}' with {got} bytes instead of {wanted}"
            )));
        }
    }
    let mut all = Vec::with_capacity(outputs.len());
    for (index, output) in plan
        .outputs
        .iter()
        .enumerate()
        .filter(|(_, output)| !output.hidden)
    {
        let OutputShape { bytes, shape, .. } = &call.outputs[index];
        let (mut shape, mut bytes, most) = (shape.clone(), outputs[index].clone(), *bytes);
        if let Some(length) = output.length {
            let written = Scalar::from_bytes(call.outputs[length].kind, &outputs[length])
                .and_then(Scalar::integer);
            let written = written
                .and_then(|written| u64::try_from(written).ok())
                .unwrap_or(u64::MAX);
            if written > shape[0] {
                let (name, room) = (&output.name, shape[0]);
                return Err(BindError::BadOutput(format!(
                    "the function reports {written} elements in '{name}', which has room for {room}"
                )));
            }
            let row = most.checked_div(shape[0]).unwrap_or(0);
            shape[0] = written;
            bytes.truncate((row * written) as usize);
        }
        all.push(Shown {
            index,
            shape,
            bytes,
        });
    }
    Ok(all)
}

/// Makes the response in the best format that the client accepts.
pub(crate) fn make(
    plan: &Plan,
    outputs: Vec<Shown>,
    accept: Option<&str>,
) -> Result<Answer, BindError> {
    if outputs.is_empty() {
        return Ok(Answer {
            body: Body::default(),
            content_type: Codec::Raw.content_type(),
            headers: Vec::new(),
        });
    }
    let codec = choose(&plan.answer_codecs, accept)?;
    let mut headers = Vec::new();
    let body = match codec {
        Codec::Raw => {
            headers.push(("x-baltra-shape", shapes(plan, &outputs)));
            Body(outputs.into_iter().map(|output| output.bytes).collect())
        }
        Codec::Npy => {
            let mut frames = Vec::with_capacity(2 * outputs.len());
            for output in outputs {
                frames
                    .push(npy::write_header(plan.outputs[output.index].kind, &output.shape).into());
                frames.push(output.bytes);
            }
            Body(frames)
        }
        Codec::Json => {
            let mut text = vec![b'{'];
            for output in &outputs {
                let about = &plan.outputs[output.index];
                json_bytes_max(about, &output.shape)?;
                if text.len() > 1 {
                    text.push(b',');
                }
                // Names consist of letters, digits and underscores and need no escapes.
                text.extend_from_slice(format!("\"{}\":", about.name).as_bytes());
                json::write(
                    &mut text,
                    about.kind,
                    about.json,
                    &output.shape,
                    &output.bytes,
                )
                .map_err(|reason| {
                    BindError::Unprocessable(format!("'{}' is not JSON: {reason}", about.name))
                })?;
            }
            text.extend_from_slice(b"}\n");
            text.shrink_to_fit();
            text.into()
        }
        Codec::Png | Codec::Jpeg => {
            let output = &outputs[0];
            let kind = plan.outputs[output.index].kind;
            picture::encode(codec, kind, &output.shape, &output.bytes)?.into()
        }
    };
    Ok(Answer {
        body,
        content_type: codec.content_type(),
        headers,
    })
}

/// Memory needed to make the response in the format that the client accepts, in addition to the
/// outputs' own bytes.
pub(crate) fn bytes_max(plan: &Plan, call: &Call, accept: Option<&str>) -> Result<u64, BindError> {
    let shown = plan.outputs.iter().zip(&call.outputs);
    let shown = shown.filter(|(output, _)| !output.hidden);
    if shown.clone().next().is_none() {
        return Ok(0);
    }
    match choose(&plan.answer_codecs, accept)? {
        Codec::Raw | Codec::Npy => Ok(0),
        Codec::Json => shown
            .map(|(output, about)| json_bytes_max(output, &about.shape))
            // The text grows by doubling.
            .try_fold(0, |all: u64, bytes| {
                Ok(all.saturating_add(bytes?.saturating_mul(2)))
            }),
        Codec::Png | Codec::Jpeg => Ok(shown
            .map(|(_, about)| about.bytes.saturating_mul(2))
            .fold(0, u64::saturating_add)),
    }
}

/// Longest JSON of an output. Shapes without elements but with many brackets are rejected.
fn json_bytes_max(output: &OutputPlan, shape: &[u64]) -> Result<u64, BindError> {
    let bytes = json::bytes_max(output.kind, output.json, shape);
    let empty = shape.contains(&0);
    if empty && bytes > EMPTY_JSON_MAX {
        Err(BindError::Unprocessable(format!(
            "'{}' has no elements, and its shape {shape:?} takes {bytes} bytes as JSON: accept {} instead",
            output.name,
            Codec::Npy.content_type()
        )))
    } else {
        Ok(bytes)
    }
}

/// The outputs whose concatenated bytes are the response in the format that the client accepts;
/// `None` if the response needs encoding.
pub(crate) fn plain(plan: &Plan, accept: Option<&str>) -> Option<Vec<usize>> {
    let outputs = plan.outputs.iter().enumerate();
    let visible: Vec<_> = outputs.filter(|(_, output)| !output.hidden).collect();
    let raw = visible.is_empty() || matches!(choose(&plan.answer_codecs, accept), Ok(Codec::Raw));
    let whole = visible.iter().all(|(_, output)| output.length.is_none());
    (raw && whole).then(|| visible.into_iter().map(|(index, _)| index).collect())
}

fn shapes(plan: &Plan, outputs: &[Shown]) -> String {
    let one = |output: &Shown| {
        let about = &plan.outputs[output.index];
        let sizes: Vec<String> = output.shape.iter().map(u64::to_string).collect();
        format!("{}={}[{}]", about.name, about.kind, sizes.join(","))
    };
    outputs.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// Content negotiation by RFC 9110, 12.5.1: the codec of the highest weight, the first one of
/// equals.
fn choose(codecs: &[Codec], accept: Option<&str>) -> Result<Codec, BindError> {
    let first = codecs.first().copied().unwrap_or(Codec::Raw);
    let Some(accept) = accept
        .map(str::trim)
        .filter(|accept| !accept.is_empty() && *accept != "*/*")
    else {
        return Ok(first);
    };
    let mut best: Option<(Codec, u32)> = None;
    for codec in codecs {
        let weight = weight(accept, codec.content_type());
        if weight > best.map_or(0, |(_, weight)| weight) {
            best = Some((*codec, weight));
        }
    }
    best.map(|(codec, _)| codec).ok_or_else(|| {
        let types: Vec<&str> = codecs.iter().map(|codec| codec.content_type()).collect();
        BindError::NotAcceptable(format!("the function responds with {}", types.join(", ")))
    })
}

/// The weight in thousandths, by the most specific range.
fn weight(accept: &str, content_type: &str) -> u32 {
    let (group, _) = content_type.split_once('/').unwrap_or((content_type, ""));
    let mut found = (0, 0);
    for range in accept.split(',').take(64) {
        let mut parts = range.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let precision = match name.as_str() {
            "*/*" => 1,
            name if name.strip_suffix("/*") == Some(group) => 2,
            name if name == content_type
                || (name == "image/jpg" && content_type == "image/jpeg") =>
            {
                3
            }
            _ => continue,
        };
        let quality =
            parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        let quality = quality
            .map_or(1.0, |text| text.parse::<f32>().unwrap_or(0.0))
            .clamp(0.0, 1.0);
        if precision > found.0 {
            found = (precision, (quality * 1000.0) as u32);
        }
    }
    found.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_chooses_among_what_there_is() {
        let codecs = [Codec::Png, Codec::Npy, Codec::Json];
        for (accept, chosen) in [
            (None, Some(Codec::Png)),
            (Some("*/*"), Some(Codec::Png)),
            (Some(""), Some(Codec::Png)),
            (Some("application/json"), Some(Codec::Json)),
            (Some("application/json, image/*;q=0.5"), Some(Codec::Json)),
            (Some("application/*"), Some(Codec::Npy)),
            (Some("text/html, */*;q=0.1"), Some(Codec::Png)),
            (Some("image/png;q=0, */*"), Some(Codec::Npy)),
            (
                Some("application/json;q=0.4,application/x-npy;q=0.5"),
                Some(Codec::Npy),
            ),
            (Some("Application/JSON; charset=utf-8"), Some(Codec::Json)),
            (Some("text/html"), None),
            (Some("image/png;q=nonsense"), None),
            (Some(";;;,,,q="), None),
        ] {
            assert_eq!(choose(&codecs, accept).ok(), chosen, "{accept:?}");
        }
        assert_eq!(
            choose(&codecs, Some("text/html")).unwrap_err().status(),
            406
        );
    }
}
