//! Request ids and W3C trace context.
//!
//! A `traceparent` that a caller sends is continued; without one, or with one that is wrong, a
//! trace begins here. Either way the gateway's own span is new, and it is what callbacks, logs and
//! nodes hear of, and the caller, where it sent one.

use crate::engine::Trace;
use crate::http::text::Text;
use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};
use std::cell::Cell;

/// `traceparent`
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// `tracestate`: passed on, never read.
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
/// `x-request-id`
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest request id that is taken over.
const ID_BYTES_MAX: usize = 128;

thread_local! {
    static RANDOM: Cell<u64> = Cell::new(seed());
}

fn seed() -> u64 {
    // Ids must differ, not be secret: without entropy the address space's layout will do.
    getrandom::u64().unwrap_or_else(|_| std::ptr::from_ref(&RANDOM) as usize as u64) | 1
}

/// splitmix64 over a counter: for ids, not for secrets.
fn random() -> u64 {
    RANDOM.with(|state| {
        let next = state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        state.set(next);
        let mut z = next;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

/// The request's trace, continued or begun.
pub fn of(headers: &HeaderMap) -> Trace {
    let given = headers.get(TRACEPARENT).and_then(|v| parse(v.as_bytes()));
    let (id, sampled) = given.unwrap_or_else(|| {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&random().to_be_bytes());
        id[8..].copy_from_slice(&(random() | 1).to_be_bytes());
        (id, false)
    });
    Trace {
        id,
        span: (random() | 1).to_be_bytes(),
        sampled,
    }
}

/// Trace id and the sampled flag of `00-…-…-..`. Later versions begin the same way.
fn parse(text: &[u8]) -> Option<([u8; 16], bool)> {
    let (version, rest) = (text.get(..3)?, text.get(3..)?);
    let first = version == b"00-" && rest.len() == 52;
    let later = version != b"ff-" && version != b"00-" && version[2] == b'-';
    let longer = rest.len() == 52 || rest.get(52) == Some(&b'-');
    if !(first || later && longer) {
        return None;
    }
    hex(&version[..2])?;
    let id: [u8; 16] = bytes(rest.get(..32)?)?;
    let span: [u8; 8] = bytes(rest.get(33..49)?)?;
    let flags = hex(rest.get(50..52)?)?;
    let dashes = rest[32] == b'-' && rest[49] == b'-';
    (dashes && id != [0; 16] && span != [0; 8]).then_some((id, flags & 1 == 1))
}

fn bytes<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    for (byte, digits) in bytes.iter_mut().zip(text.chunks(2)) {
        *byte = hex(digits)?;
    }
    Some(bytes)
}

/// Two lower-case digits: the specification allows no others.
fn hex(digits: &[u8]) -> Option<u8> {
    let digit = |c: u8| match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    };
    match digits {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    }
}

/// The value of `traceparent` for whoever comes next.
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

/// The request's id where its caller sends none: the trace's, so that one leads to the other.
pub(crate) fn request_id(trace: &Trace) -> HeaderValue {
    let mut text = Text::<32>::new();
    text.put_hex(trace.id);
    text.into()
}

/// The caller's own request id, where it is a decent one.
pub(crate) fn given_id(headers: &HeaderMap) -> Option<&HeaderValue> {
    headers.get(X_REQUEST_ID).filter(|value| {
        (1..=ID_BYTES_MAX).contains(&value.len())
            && value.as_bytes().iter().all(u8::is_ascii_graphic)
    })
}

/// A name that cannot be guessed, for what is asked for later: a UUID of version 4.
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
        let trace = of(&headers(GIVEN));
        let text = header(&trace);
        assert_eq!(text[..36], GIVEN[..36]);
        assert!(text.ends_with("-01"));
        assert_ne!(text[36..52], GIVEN[36..52]);
    }

    #[test]
    fn a_later_version_is_understood_as_far_as_it_is_the_same() {
        let later = format!("cc{}-what", &GIVEN[2..]);
        assert_eq!(header(&of(&headers(&later)))[..36], GIVEN[..36]);
    }

    #[test]
    fn a_wrong_one_begins_anew() {
        let zeros = "0".repeat(32);
        for wrong in [
            "",
            "00",
            &GIVEN.to_uppercase(),
            &GIVEN[..54],
            &format!("{GIVEN}-x"),
            &format!("ff{}", &GIVEN[2..]),
            &format!("00-{zeros}-b7ad6b7169203331-01"),
            &GIVEN.replace("b7ad6b7169203331", "0000000000000000"),
        ] {
            let text = header(&of(&headers(wrong)));
            assert_ne!(text[3..35], GIVEN[3..35], "{wrong:?}");
            assert_ne!(text[3..35], zeros);
        }
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
