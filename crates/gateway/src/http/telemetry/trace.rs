//! Request ids and W3C trace context.
//!
//! A `traceparent` that a caller sends is continued; without one, or with a malformed one, a trace
//! begins here. The gateway's own span is new in both cases: callbacks, logs and nodes receive it,
//! and so does a caller that sent a `traceparent`.

use crate::http::text::Text;
use baltra_engine::Trace;
use baltra_trace::{span_id, trace_id, Context, Spans};
use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};

/// The header `traceparent`.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// The header `tracestate`, which is forwarded unread.
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
/// The header `x-request-id`.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Length limit of a caller's request id.
const ID_BYTES_MAX: usize = 128;

/// The request's trace, continued or begun.
pub fn of(headers: &HeaderMap, spans: &Spans) -> Trace {
    let given = headers.get(TRACEPARENT);
    let given = given.and_then(|v| Context::parse(v.as_bytes()));
    let id = given.map_or_else(trace_id, |given| given.trace);
    let mut trace = Trace {
        id,
        span: span_id(),
        parent: given.map_or([0; 8], |given| given.span),
        sampled: given.is_some_and(|given| given.sampled),
        asked: None,
    };
    if spans.is_on() {
        trace.sampled = spans.takes(&id, given.map(|given| given.sampled));
        trace.asked = trace.sampled.then(span_id);
    }
    trace
}

/// The value of `traceparent` for the call's downstream request.
pub(crate) fn onward(trace: &Trace) -> Text<55> {
    text(&Trace {
        span: trace.asked.unwrap_or(trace.span),
        ..*trace
    })
}

/// The value of `traceparent` with the gateway's own span.
pub(crate) fn text(trace: &Trace) -> Text<55> {
    let mut text = Text::new();
    text.put(b"00-");
    text.put_hex(trace.id);
    text.put(b"-");
    text.put_hex(trace.span);
    text.put(if trace.sampled { b"-01" } else { b"-00" });
    text
}

/// [`text`], as a string.
pub fn header(trace: &Trace) -> String {
    String::from_utf8_lossy(text(trace).as_bytes()).into_owned()
}

/// The request's id if the caller sends none: the trace id, so that each can be found by the other.
pub(crate) fn request_id(trace: &Trace) -> HeaderValue {
    let mut text = Text::<32>::new();
    text.put_hex(trace.id);
    text.into()
}

/// The caller's own request id, if it is valid.
pub(crate) fn given_id(headers: &HeaderMap) -> Option<&HeaderValue> {
    headers.get(X_REQUEST_ID).filter(|value| {
        (1..=ID_BYTES_MAX).contains(&value.len())
            && value.as_bytes().iter().all(u8::is_ascii_graphic)
    })
}

/// An unguessable id for a later request: a UUID of version 4.
pub(crate) fn secret_id() -> Result<String, getrandom::Error> {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes)?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut hex = Text::<32>::new();
    hex.put_hex(bytes);
    let hex = String::from_utf8_lossy(hex.as_bytes());
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    Ok(parts.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(value: &str) -> HeaderMap {
        let value = HeaderValue::from_str(value).unwrap();
        HeaderMap::from_iter([(TRACEPARENT, value)])
    }

    const GIVEN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_trace_is_continued_with_a_span_of_its_own() {
        let trace = of(&headers(GIVEN), &Spans::default());
        let text = header(&trace);
        assert_eq!(text[..36], GIVEN[..36]);
        assert!(text.ends_with("-01"));
        assert_ne!(text[36..52], GIVEN[36..52]);
        // Spans are not exported: the downstream request continues the gateway's own span.
        assert_eq!(onward(&trace).as_bytes(), text.as_bytes());
    }

    #[test]
    fn a_wrong_one_begins_anew() {
        let text = header(&of(&headers(&GIVEN[..54]), &Spans::default()));
        assert_ne!(text[3..35], GIVEN[3..35]);
        assert!(text.ends_with("-00"));
    }

    #[test]
    fn a_request_id_is_taken_over_if_it_is_decent() {
        let long = "a".repeat(129);
        for (text, taken) in [("abc-1", true), ("a b", false), ("", false), (&long, false)] {
            let value = HeaderValue::from_str(text).unwrap();
            let headers = HeaderMap::from_iter([(X_REQUEST_ID, value)]);
            assert_eq!(given_id(&headers).is_some(), taken, "{text:?}");
        }
    }

    #[test]
    fn secret_ids_are_uuids() {
        let (one, other) = (secret_id().unwrap(), secret_id().unwrap());
        assert_ne!(one, other);
        assert_eq!((one.len(), &one[14..15]), (36, "4"));
    }
}
