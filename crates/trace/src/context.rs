//! W3C trace context: the header `traceparent`.

use std::cell::Cell;
use std::fmt;

/// The trace that an operation belongs to, and its parent span there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// The `trace-id`.
    pub trace: [u8; 16],
    /// The `parent-id`.
    pub span: [u8; 8],
    /// The `sampled` flag.
    pub sampled: bool,
}

impl Context {
    /// Parses `00-…-…-..`; `None` if malformed. Later versions start with the same fields.
    pub fn parse(text: &[u8]) -> Option<Context> {
        let (version, rest) = (text.get(..3)?, text.get(3..)?);
        let first = version == b"00-" && rest.len() == 52;
        let later = version != b"ff-" && version != b"00-" && version[2] == b'-';
        let longer = rest.len() == 52 || rest.get(52) == Some(&b'-');
        if !(first || later && longer) {
            return None;
        }
        hex(&version[..2])?;
        let trace: [u8; 16] = bytes(rest.get(..32)?)?;
        let span: [u8; 8] = bytes(rest.get(33..49)?)?;
        let flags = hex(rest.get(50..52)?)?;
        let dashes = rest[32] == b'-' && rest[49] == b'-';
        (dashes && trace != [0; 16] && span != [0; 8]).then_some(Context {
            trace,
            span,
            sampled: flags & 1 == 1,
        })
    }
}

/// The header's value.
impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("00-")?;
        self.trace.iter().try_for_each(|b| write!(f, "{b:02x}"))?;
        f.write_str("-")?;
        self.span.iter().try_for_each(|b| write!(f, "{b:02x}"))?;
        f.write_str(if self.sampled { "-01" } else { "-00" })
    }
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

thread_local! {
    static RANDOM: Cell<u64> = Cell::new(seed());
}

fn seed() -> u64 {
    // IDs must be unique, but not secret: without entropy, the address space's layout suffices.
    getrandom::u64().unwrap_or_else(|_| std::ptr::from_ref(&RANDOM) as usize as u64) | 1
}

/// splitmix64 over a counter: for IDs, not for secrets.
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

/// A new trace ID.
pub fn trace_id() -> [u8; 16] {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&random().to_be_bytes());
    id[8..].copy_from_slice(&(random() | 1).to_be_bytes());
    id
}

/// A new span ID, which is never zero.
pub fn span_id() -> [u8; 8] {
    (random() | 1).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn parse(text: &str) -> Option<Context> {
        Context::parse(text.as_bytes())
    }

    #[test]
    fn what_is_written_is_read() {
        let context = parse(GIVEN).unwrap();
        assert_eq!(context.to_string(), GIVEN);
        let other = Context {
            trace: trace_id(),
            span: span_id(),
            sampled: false,
        };
        assert_eq!(parse(&other.to_string()), Some(other));
    }

    #[test]
    fn a_later_version_is_understood_as_far_as_it_is_the_same() {
        let later = format!("cc{}-what", &GIVEN[2..]);
        assert_eq!(parse(&later), parse(GIVEN));
    }

    #[test]
    fn what_is_wrong_is_none() {
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
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }
}
