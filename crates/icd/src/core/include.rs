//! What a program's source includes, found where the application runs.
//!
//! The compiler works in another process that cannot read this one's files, perhaps on another
//! host. So the headers that `#include` lines name under the options' `-I` directories travel
//! with the build. Includes behind conditions are sent too: too many do no harm.

use baltra_wire::{include_name, plain_path};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Headers of one build at the most, and bytes of them together.
const FILES_MAX: usize = 1000;
const BYTES_MAX: usize = 16 << 20;

/// A header: its path below the include directory, or its absolute one, and its content.
pub type Header = (String, Vec<u8>);

/// The headers that `source` includes, directly or through others: those below the directories
/// that the options name, and those that a line names by their absolute path.
pub fn gather(source: &[u8], options: &str) -> Vec<Header> {
    let roots = directories(options);
    let mut found: Vec<Header> = Vec::new();
    let mut seen = HashSet::new();
    let mut bytes = 0;
    // Where a header lies and what it says; the source itself lies in none of the directories.
    let mut open: Vec<(PathBuf, Vec<u8>)> = vec![(PathBuf::new(), source.to_vec())];
    while let Some((includer, text)) = open.pop() {
        for name in includes(&text) {
            let beside = includer.parent().map(|dir| dir.join(&name));
            let names = beside.into_iter().chain([PathBuf::from(&name)]);
            let Some((path, content)) = names
                .filter_map(|path| plain_path(&path))
                .find_map(|path| Some((path.clone(), read(&roots, &path)?)))
            else {
                continue;
            };
            let Some(text) = path.to_str().map(str::to_owned) else {
                continue;
            };
            bytes += content.len();
            if found.len() == FILES_MAX || bytes > BYTES_MAX {
                return found;
            }
            if seen.insert(path.clone()) {
                open.push((path, content.clone()));
                found.push((text, content));
            }
        }
    }
    found
}

fn read(roots: &[PathBuf], path: &Path) -> Option<Vec<u8>> {
    let readable = |file: PathBuf| {
        let small =
            std::fs::metadata(&file).is_ok_and(|m| m.is_file() && m.len() <= BYTES_MAX as u64);
        small.then(|| std::fs::read(file).ok()).flatten()
    };
    if path.is_absolute() {
        return readable(path.to_owned());
    }
    roots.iter().find_map(|root| readable(root.join(path)))
}

/// The directories of `-I dir` and `-Idir`, quoted or not.
fn directories(options: &str) -> Vec<PathBuf> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quoted = false;
    for c in options.chars() {
        match c {
            '"' => quoted = !quoted,
            c if c.is_whitespace() && !quoted => words.push(std::mem::take(&mut word)),
            c => word.push(c),
        }
    }
    words.push(word);
    let mut words = words.into_iter().filter(|w| !w.is_empty());
    let mut directories = Vec::new();
    while let Some(word) = words.next() {
        match word.strip_prefix("-I") {
            Some("") => directories.extend(words.next().map(PathBuf::from)),
            Some(dir) => directories.push(PathBuf::from(dir)),
            None => {}
        }
    }
    directories
}

/// The names that a text includes.
fn includes(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    let name = |line: &str| Some(line[include_name(line)?].to_owned());
    text.lines().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_headers_are_found_through_others() {
        let home = std::env::temp_dir().join(format!("baltra-include-{}", std::process::id()));
        std::fs::create_dir_all(home.join("sub")).unwrap();
        std::fs::write(home.join("a.h"), "#include <sub/b.h>\n#include \"a.h\"").unwrap();
        std::fs::write(home.join("sub/b.h"), "#include \"c.h\"").unwrap();
        std::fs::write(home.join("sub/c.h"), "int c;").unwrap();
        let options = format!("-DX=1 -I \"{}\"", home.display());
        let headers = gather(b"  # include \"./a.h\"\n#include <none.h>", &options);
        let names: Vec<_> = headers.iter().map(|h| h.0.as_str()).collect();
        assert_eq!(names, ["a.h", "sub/b.h", "sub/c.h"]);
        std::fs::remove_dir_all(home).unwrap();
    }

    #[test]
    fn test_absolute_headers_bring_what_lies_beside_them() {
        let home = std::env::temp_dir().join(format!("baltra-absolute-{}", std::process::id()));
        std::fs::create_dir_all(home.join("sub")).unwrap();
        std::fs::write(home.join("a.h"), "#include \"sub/b.h\"").unwrap();
        std::fs::write(home.join("sub/b.h"), "#include \"../c.h\"").unwrap();
        std::fs::write(home.join("c.h"), "int c;").unwrap();
        let home_text = home.to_str().unwrap();
        let source = format!("#include \"{home_text}/sub/../a.h\"");
        let names = gather(source.as_bytes(), "").into_iter().map(|h| h.0);
        let expected = ["a.h", "sub/b.h", "c.h"].map(|name| format!("{home_text}/{name}"));
        assert_eq!(names.collect::<Vec<_>>(), expected);
        std::fs::remove_dir_all(home).unwrap();
    }

    #[test]
    fn test_relative_names_do_not_leave_the_directories() {
        let headers = gather(b"#include \"../etc/hostname\"", "-I /usr");
        assert!(headers.is_empty());
        assert!(gather(b"#include \"hostname\"", "-DI=/etc").is_empty());
        assert!(gather(b"#include \"/dev/zero\"\n#include \"/etc\"", "").is_empty());
    }

    #[test]
    fn test_directories_are_read_in_all_spellings() {
        let dirs = directories("-I a -Ib -w -I \"c d\" -I");
        assert_eq!(dirs, ["a", "b", "c d"].map(PathBuf::from));
    }
}
