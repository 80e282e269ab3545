//! How the headers of a build are named on their way to the compiler: the client finds what a
//! source's `#include` lines name, the executor lays it out. Both read those lines alike.

use std::ops::Range;
use std::path::{Component, Path, PathBuf};

/// Where the name lies in a line `#include "name"` or `#include <name>`.
pub fn include_name(line: &str) -> Option<Range<usize>> {
    let rest = line.trim_start().strip_prefix('#')?.trim_start();
    let rest = rest.strip_prefix("include")?.trim_start();
    let close = match rest.chars().next()? {
        '"' => '"',
        '<' => '>',
        _ => return None,
    };
    let start = line.len() - rest.len() + 1;
    let len = line[start..].find(close)?;
    Some(start..start + len)
}

/// A header's path without `.` and `..`; nothing for one that climbs out of where it starts, or
/// names nothing. Absolute ones stay absolute.
pub fn plain_path(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::RootDir | Component::Normal(_) => plain.push(component),
            Component::CurDir => {}
            Component::ParentDir if plain.file_name().is_some() => _ = plain.pop(),
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    plain.file_name().is_some().then_some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_names_are_found_in_include_lines_only() {
        let name = |line: &'static str| include_name(line).map(|range| &line[range]);
        assert_eq!(name("  #  include \"./a b.h\" // c"), Some("./a b.h"));
        assert_eq!(name("#include<é.h>"), Some("é.h"));
        for line in [
            "#define include \"a.h\"",
            "#include NAME",
            "#include \"a.h",
            "include \"a.h\"",
            "",
        ] {
            assert_eq!(name(line), None, "{line}");
        }
    }

    #[test]
    fn test_paths_are_resolved_without_looking() {
        let plain =
            |path: &str| plain_path(Path::new(path)).map(|p| p.to_str().unwrap().to_owned());
        assert_eq!(plain("./a/../b//c.h").as_deref(), Some("b/c.h"));
        assert_eq!(plain("/a/./b/../../c.h").as_deref(), Some("/c.h"));
        for path in [
            "",
            ".",
            "..",
            "../a.h",
            "a/../../b.h",
            "/",
            "/..",
            "/../a.h",
        ] {
            assert_eq!(plain(path), None, "{path}");
        }
    }
}
