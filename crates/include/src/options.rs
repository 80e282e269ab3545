//! The options of a build that concern files and macros.

use std::path::PathBuf;

/// Parsed build options.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The directories of `-I`, in order.
    pub directories: Vec<PathBuf>,
    /// `-D name`, `-D name=value` (`Some`) and `-U name` (`None`), in order.
    pub macros: Vec<(String, Option<String>)>,
    /// The options without directories.
    pub rest: String,
}

/// Parses options: words separated by white space, in which double quotes protect white space and a
/// backslash escapes a quote.
pub fn read(text: &str) -> Options {
    let mut options = Options::default();
    let mut words = words(text).into_iter().peekable();
    let mut kept = Vec::new();
    while let Some((raw, word)) = words.next() {
        let letter = ["-I", "-D", "-U"]
            .into_iter()
            .find(|letter| word.starts_with(letter));
        let Some(letter) = letter else {
            kept.push(raw);
            continue;
        };
        let mut raws = vec![raw];
        let mut value = word[2..].to_owned();
        if value.is_empty() {
            if let Some((raw, next)) = words.next() {
                raws.push(raw);
                value = next;
            }
        }
        match letter {
            "-I" if value.is_empty() => kept.append(&mut raws),
            "-I" => options.directories.push(value.into()),
            _ => {
                kept.append(&mut raws);
                let (name, definition) = value.split_once('=').unwrap_or((&value, "1"));
                let definition = (letter == "-D").then(|| definition.to_owned());
                options.macros.push((name.to_owned(), definition));
            }
        }
    }
    options.rest = kept.join(" ");
    options
}

/// Each word as written, and with its quotes and escapes resolved.
fn words(text: &str) -> Vec<(String, String)> {
    let mut words = Vec::new();
    let (mut raw, mut word) = (String::new(), String::new());
    let mut quoted = false;
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        if c.is_whitespace() && !quoted {
            if !raw.is_empty() {
                words.push((std::mem::take(&mut raw), std::mem::take(&mut word)));
            }
            continue;
        }
        raw.push(c);
        match c {
            '"' => quoted = !quoted,
            '\\' if matches!(characters.peek(), Some('"' | '\\')) => {
                if let Some(kept) = characters.next() {
                    raw.push(kept);
                    word.push(kept);
                }
            }
            c => word.push(c),
        }
    }
    if !raw.is_empty() {
        words.push((raw, word));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_read_in_all_spellings_and_taken_out() {
        let options = read("-I a -Ib -w -I \"c d\" -DX=\"e f\" -I");
        assert_eq!(options.directories, ["a", "b", "c d"].map(PathBuf::from));
        assert_eq!(options.rest, "-w -DX=\"e f\" -I");
        assert_eq!(options.macros, [("X".into(), Some("e f".into()))]);
    }

    #[test]
    fn macros_are_read_in_order() {
        let options = read(r#"-DA -D B=2 -UA -DS=\"s\" -D "F(x)=x+1""#);
        let macros: Vec<_> = options
            .macros
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_deref()))
            .collect();
        let expected = [
            ("A", Some("1")),
            ("B", Some("2")),
            ("A", None),
            ("S", Some("\"s\"")),
            ("F(x)", Some("x+1")),
        ];
        assert_eq!(macros, expected);
    }
}
