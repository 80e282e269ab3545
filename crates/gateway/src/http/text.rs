//! Short texts on the stack, from which header values are made.

/// A text of at most `N` bytes; longer texts are cut.
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

    /// Appends bytes as hexadecimal digits, lower case.
    pub fn put_hex<const B: usize>(&mut self, bytes: [u8; B]) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        for byte in bytes {
            self.put(&[
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 15)],
            ]);
        }
    }

    /// Appends nanoseconds as milliseconds with three decimals.
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
    /// Texts contain only digits, letters and punctuation.
    fn from(text: Text<N>) -> http::HeaderValue {
        http::HeaderValue::from_bytes(text.as_bytes()).expect("printable characters")
    }
}

/// Removes the directories of this host's files from an error message for callers.
pub(crate) fn without_paths(text: &str) -> String {
    let in_name = |c: char| c.is_alphanumeric() || "._+-@%~=".contains(c);
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut before) = (text, ' ');
    while let Some(at) = rest.find('/') {
        let (plain, from) = rest.split_at(at);
        out.push_str(plain);
        before = plain.chars().next_back().unwrap_or(before);
        let end = from.find(|c| c != '/' && !in_name(c)).unwrap_or(from.len());
        let (path, behind) = from.split_at(end);
        let is_path = !in_name(before) && !path.starts_with("//") && path[1..].contains('/');
        match path.trim_end_matches('/').rsplit_once('/') {
            Some((_, name)) if is_path => out.push_str(name),
            _ => out.push_str(path),
        }
        before = path.chars().next_back().unwrap_or(before);
        rest = behind;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_this_host_are_left_out_of_texts() {
        for (text, shown) in [
            ("/tmp/pocl/a/x.cl:3:5: error: no", "x.cl:3:5: error: no"),
            (
                "cannot reach unix:/run/user/0/baltra.sock",
                "cannot reach unix:baltra.sock",
            ),
            ("'/var/lib/x/' is", "'x' is"),
            ("(/a/b.so: cannot open)", "(b.so: cannot open)"),
            (
                "http://host/a/b stays, and/or 1/2/3 too",
                "http://host/a/b stays, and/or 1/2/3 too",
            ),
            ("/function stays", "/function stays"),
            ("a \u{e4}/b/c /\u{e4}/d", "a \u{e4}/b/c d"),
            ("", ""),
        ] {
            assert_eq!(without_paths(text), shown, "{text}");
        }
    }

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
