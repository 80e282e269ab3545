//! Which files a kernel's source includes, and a source that includes them by other names.
//!
//! A compiler that works in another process, perhaps on another host, cannot read the files of the
//! program whose source it compiles. So the directives of C's preprocessor are carried out where
//! the program runs, as far as they decide what is included: conditions, macros, `#include`,
//! `#include_next`, `#import`, `#pragma once`. Each directive that includes a file is replaced by
//! one that includes it by a name of its own, below one directory: then neither macros in names
//! nor directories, absolute paths or `..` matter to the compiler. All other text is left alone.
//!
//! A condition may depend on what the device's compiler alone knows: a macro of its own. Then
//! both branches are followed, and a macro that they define differently has each of its values.
//! An include whose name depends on that keeps its name, and every file that it may mean is sent
//! under the name that it has in the source.
//!
//! | module | what |
//! |---|---|
//! | [`token`] | tokens and directives of a text |
//! | [`macros`] | macros, and the expansion of a line |
//! | [`expression`] | the value of a condition |
//! | [`options`] | a build's options |
//! | [`walk`] | the order of things |
#![forbid(unsafe_code)]

mod expression;
mod macros;
mod options;
mod token;
mod walk;

use std::path::{Component, Path, PathBuf};

/// The directory of all new names.
const NEW_NAMES: &str = ".baltra";

/// What a build is given.
#[derive(Clone, Copy, Debug, Default)]
pub struct Source<'a> {
    /// The source.
    pub text: &'a [u8],
    /// The options of the build.
    pub options: &'a str,
    /// Macros of the compiler's: names and values.
    pub predefined: &'a [(String, String)],
    /// Headers that the program gives itself: names and texts (`clCompileProgram`).
    pub embedded: &'a [(&'a str, &'a [u8])],
}

/// What a compiler is given instead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// The source, where it differs.
    pub text: Option<Vec<u8>>,
    /// The options, without directories.
    pub options: String,
    /// Files below one directory, passed to the compiler with `-I`: names and contents.
    pub files: Vec<(String, Vec<u8>)>,
}

/// Includes that are too many, too long or too deep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// More than a compiler would be given.
    TooLarge,
}

/// Where files come from.
pub trait Files {
    /// The content of a file, if it is one that can be read. Relative paths start at the
    /// program's working directory.
    fn read(&self, path: &Path) -> Option<Vec<u8>>;

    /// The same for each path of one file.
    fn identity(&self, path: &Path) -> PathBuf {
        normal(path)
    }
}

/// Carries out the directives of a source.
pub fn resolve(source: &Source<'_>, files: &dyn Files) -> Result<Resolved, Error> {
    let options = options::read(source.options);
    if !source.text.contains(&b'#') && !source.text.windows(2).any(|w| w == b"%:") {
        return Ok(Resolved {
            text: None,
            options: options.rest,
            files: Vec::new(),
        });
    }
    walk::walk(source, options, files)
}

/// A path without `.` and `..`, as far as that can be told from the path alone.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                let ends_with_name =
                    matches!(normal.components().next_back(), Some(Component::Normal(_)));
                match ends_with_name {
                    true => drop(normal.pop()),
                    false if normal.has_root() => {}
                    false => normal.push(".."),
                }
            }
            part => normal.push(part),
        }
    }
    normal
}

#[cfg(test)]
mod tests;
