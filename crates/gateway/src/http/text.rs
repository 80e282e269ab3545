//! Short texts on the stack: header values are made of them without a detour.

/// At most `N` bytes; what is too long is cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Text<N> {
    pub fn new() -> Text<N> {
        Text {
            bytes: [0; N],
            length: 0,
        }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    pub fn put(&mut self, bytes: &[u8]) {
        let taken = bytes.len().min(N - self.length);
        self.bytes[self.length..self.length + taken].copy_from_slice(&bytes[..taken]);
        self.length += taken;
    }

    /// Two digits a byte, lower case.
    pub fn put_hex<const B: usize>(&mut self, bytes: [u8; B]) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        for byte in bytes {
            self.put(&[
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 15)],
            ]);
        }
    }

    /// Nanoseconds as milliseconds with three places.
    pub fn put_ms(&mut self, ns: u64) {
        let mut digits = [b'0'; 24];
        let (mut at, mut left, mut places) = (digits.len(), ns / 1000, 0);
        while left > 0 || places < 4 {
            if places == 3 {
                at -= 1;
                digits[at] = b'.';
            }
            at -= 1;
            digits[at] = b'0' + (left % 10) as u8;
            left /= 10;
            places += 1;
        }
        self.put(&digits[at..]);
    }
}

impl<const N: usize> From<Text<N>> for http::HeaderValue {
    /// Only digits, letters and signs are ever put.
    fn from(text: Text<N>) -> http::HeaderValue {
        http::HeaderValue::from_bytes(text.as_bytes()).expect("printable characters")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_have_three_places() {
        for (ns, expected) in [
            (0, "0.000"),
            (999, "0.000"),
            (1_000, "0.001"),
            (12_345_678, "12.345"),
            (u64::MAX, "18446744073709.551"),
        ] {
            let mut text = Text::<32>::new();
            text.put_ms(ns);
            assert_eq!(text.as_bytes(), expected.as_bytes());
        }
    }

    #[test]
    fn what_is_too_long_is_cut() {
        let mut text = Text::<5>::new();
        text.put_hex([0xab, 0x01]);
        text.put(b"xyz");
        assert_eq!(text.as_bytes(), b"ab01x");
    }
}
