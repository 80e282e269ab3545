//! Finds types whose size on a board's 32-bit processor differs from their size on hosts: `long`
//! and `long double`. The build rejects sources that use them, with the line, unless the logical
//! file has `long: 32`.

use crate::model::Kernel;
use std::path::Path;

impl Kernel {
    /// Whether `long` may have 32 bits on a processor.
    pub(crate) fn takes_short_longs(&self) -> bool {
        let element = self.rest.iter().find(|e| e.is("long"));
        element.is_some_and(|e| e.text.trim() == "32")
    }
}

/// The specifiers that can stand with `long` in a declaration, in any order.
const SPECIFIERS: &[&str] = &[
    "long",
    "int",
    "unsigned",
    "signed",
    "double",
    "const",
    "volatile",
    "static",
    "extern",
    "register",
    "typedef",
    "inline",
    "_Complex",
    "__complex__",
];

/// The first use of `long` alone, or of `long double`, in a preprocessed source: file, line and
/// type. Text from system headers and from `library` does not count.
pub(crate) fn first(text: &str, library: &Path) -> Option<(String, usize, &'static str)> {
    let library = library.to_string_lossy();
    let (mut file, mut line, mut own) = (String::new(), 0, false);
    // A sequence of specifiers, possibly over several lines: its position, the number of `long` in
    // it, and whether it contains `double`.
    let mut run: Option<(usize, usize, bool)> = None;
    let ended = |run: &mut Option<(usize, usize, bool)>| match run.take() {
        Some((line, 1, false)) => Some((line, "long")),
        Some((line, 1.., true)) => Some((line, "long double")),
        _ => None,
    };
    for text in text.lines() {
        if let Some(marker) = text.strip_prefix("# ") {
            let (number, rest) = marker.split_once(' ').unwrap_or((marker, ""));
            let name = rest.split('"').nth(1).unwrap_or("");
            let system = rest.rsplit('"').next().unwrap_or("").contains('3');
            line = number.parse().unwrap_or(0);
            file = name.to_owned();
            own = !system && !name.starts_with('<') && !name.starts_with(&*library);
            continue;
        }
        for word in own.then(|| words(text)).into_iter().flatten() {
            if SPECIFIERS.contains(&word) {
                let found = run.get_or_insert((line, 0, false));
                found.1 += usize::from(word == "long");
                found.2 |= word == "double";
            } else if let Some((line, which)) = ended(&mut run) {
                return Some((file, line, which));
            }
        }
        line += 1;
    }
    ended(&mut run).map(|(line, which)| (file, line, which))
}

/// The first number with the suffix of a `long` in a source whose macros have not been expanded:
/// line and number. (Expanded system macros contain such numbers for types that have 32 bits.)
pub(crate) fn first_number(text: &str) -> Option<(usize, String)> {
    let mut at = 0;
    for text in text.lines() {
        if let Some(marker) = text.strip_prefix("# ") {
            let number = marker.split(' ').next().and_then(|n| n.parse().ok());
            if let Some(number) = number {
                at = number;
                continue;
            }
        }
        let found = words(text).into_iter().find(|word| {
            let digits = word.trim_end_matches(['l', 'L', 'u', 'U']);
            let suffix = word[digits.len()..].to_ascii_lowercase();
            word.starts_with(|c: char| c.is_ascii_digit()) && suffix.matches('l').count() == 1
        });
        if let Some(word) = found {
            return Some((at, word.to_owned()));
        }
        at += 1;
    }
    None
}

/// Words and punctuation of a line; a string or character literal counts as one sign.
fn words(line: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let bytes = line.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let from = at;
        let part = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        match bytes[at] {
            quote @ (b'"' | b'\'') => {
                at += 1;
                while at < bytes.len() && bytes[at] != quote {
                    at += 1 + usize::from(bytes[at] == b'\\');
                }
                at += 1;
                out.push("\"");
            }
            b if part(b) => {
                while at < bytes.len() && part(bytes[at]) {
                    at += 1;
                }
                out.push(&line[from..at]);
            }
            b => {
                at += 1;
                if b.is_ascii() && !b.is_ascii_whitespace() {
                    out.push(&line[from..at]);
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_numbers_that_are_long() {
        let found = |text: &str| first_number(text);
        let text = "# 1 \"a.c\"\nx = 5 + 0xFFul + 7LL;\ny = 1L << 40;";
        assert_eq!(found(text), Some((1, "0xFFul".to_owned())));
        assert_eq!(found("# 7 \"a.c\"\ny = 1.5L;"), Some((7, "5L".to_owned())));
        assert_eq!(
            found("# 1 \"a.c\"\nx = 7ull + 3LL; s = \"1L\"; v1L = 0;"),
            None
        );
    }

    #[test]
    fn finds_longs_and_leaves_long_longs() {
        let found = |text: &str| first(text, Path::new("/h/humboldt")).map(|f| (f.1, f.2));
        assert_eq!(found("# 3 \"a.c\"\nint a;\nlong b;"), Some((4, "long")));
        assert_eq!(
            found("# 1 \"a.c\"\nunsigned\nlong\nint b;"),
            Some((1, "long"))
        );
        assert_eq!(found("# 1 \"a.c\"\nx = (long)y;"), Some((1, "long")));
        assert_eq!(found("# 1 \"a.c\"\nn = sizeof(long);"), Some((1, "long")));
        assert_eq!(
            found("# 1 \"a.c\"\nconst long\n double x;"),
            Some((1, "long double"))
        );
        for fine in [
            "# 1 \"a.c\"\nlong long a; unsigned long long int b; long const long c;",
            "# 1 \"a.c\"\nputs(\"a long \\\"long\\\" text\"); int longer = 'l';",
            "# 1 \"/usr/include/x.h\" 1 3 4\nextern long strtol();\n# 2 \"a.c\" 2\nint a;",
            "# 1 \"/h/humboldt/include/humboldt.h\" 1\nlong a;\n# 2 \"a.c\" 2\nint a;",
        ] {
            assert_eq!(found(fine), None, "{fine}");
        }
    }
}
