//! Files that a compiler makes, and those that they were made of.

use crate::program::run;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::UNIX_EPOCH;

/// Compiles the file `name` of a folder; returns its path and those of the files that it was made of.
/// `compiler`: without the output.
pub fn make_file(mut compiler: Command, folder: &Path, name: &str) -> Result<Vec<PathBuf>> {
    let out = folder.join(name);
    let part = part(&out)?;
    let list = part.with_extension("d");
    compiler.current_dir(folder).arg("-MD").arg("-MF");
    compiler.arg(&list).arg("-o").arg(&part);
    run(&mut compiler)?;
    let text =
        fs::read_to_string(&list).with_context(|| format!("cannot read {}", list.display()))?;
    fs::remove_file(list)?;
    fs::rename(part, &out)?;
    let inputs = prerequisites(&text).map(|path| folder.join(path));
    Ok(inputs.chain([out]).collect())
}

/// A name beside a file for this process's version of it.
pub fn part(file: &Path) -> Result<PathBuf> {
    let name = file.file_name().context("a file has a name")?;
    let name = format!("{}.{}", std::process::id(), name.to_string_lossy());
    Ok(file.with_file_name(name))
}

/// The files of a compiler's list of dependencies, which is a rule of make.
fn prerequisites(text: &str) -> impl Iterator<Item = String> + '_ {
    let list = text.split_once(": ").map_or("", |(_, list)| list);
    let list = list.replace("\\\n", " ").replace("\\ ", "\0");
    let words: Vec<_> = list.split_whitespace().map(str::to_owned).collect();
    let unescaped = |word: String| {
        let path = word.replace('\0', " ").replace("$$", "$");
        path.replace("\\#", "#")
    };
    words.into_iter().map(unescaped)
}

/// A line about a file: length, time of change, path.
pub fn stamp(file: &Path) -> std::io::Result<String> {
    let about = fs::metadata(file)?;
    let changed = about.modified()?.duration_since(UNIX_EPOCH);
    let nanos = changed.unwrap_or_default().as_nanos();
    Ok(format!("{} {nanos} {}", about.len(), file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_dependencies_are_read_as_make_reads_them() {
        let text = "a.o: /x/a\\ b.cpp \\\n  c.h /d$$e/f\\#g.h\n";
        let found: Vec<_> = prerequisites(text).collect();
        assert_eq!(found, ["/x/a b.cpp", "c.h", "/d$e/f#g.h"]);
        assert_eq!(prerequisites("").count(), 0);
    }
}
