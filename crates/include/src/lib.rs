//! Finds the files that a kernel's source includes, and rewrites the source to include them by new
//! names.
//!
//! A compiler that runs in another process, perhaps on another host, cannot read the files of the
//! program whose source it compiles. So the program's process evaluates the directives of C's
//! preprocessor that affect includes: conditions, macros, `#include`, `#include_next`, `#import`,
//! `#pragma once`. Each directive that includes a file is replaced by one that includes it by a
//! unique name below one directory, so that the result is independent of macros in names, of
//! directories, absolute paths and `..`. All other text is left unchanged.
//!
//! A condition may depend on a macro that only the device's compiler defines. Then both branches
//! are followed, and a macro that they define differently has each of its values. An include whose
//! name depends on such a macro keeps its name, and every file that it may refer to is sent under
//! the name that it has in the source.
//!
//! | module | content |
//! |---|---|
//! | [`token`] | tokens and directives of a text |
//! | [`macros`] | macros, and the expansion of a line |
//! | [`expression`] | the value of a condition |
//! | [`options`] | a build's options |
//! | [`walk`] | traversal of a source and its includes |
#![forbid(unsafe_code)]

mod expression;
mod macros;
mod options;
mod token;
mod walk;

use std::path::{Component, Path, PathBuf};

/// The directory of all new names.
const NEW_NAMES: &str = ".baltra";

/// Inputs of a build.
#[derive(Clone, Copy, Debug, Default)]
pub struct Source<'a> {
    /// The source.
    pub text: &'a [u8],
    /// The options of the build.
    pub options: &'a str,
    /// Macros that the compiler defines: names and values.
    pub predefined: &'a [(String, String)],
    /// Headers passed by the program itself: names and texts (`clCompileProgram`).
    pub embedded: &'a [(&'a str, &'a [u8])],
}

/// Inputs of the compiler, derived from those of the build.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// The source, if it differs.
    pub text: Option<Vec<u8>>,
    /// The options, without directories.
    pub options: String,
    /// Files below one directory, passed to the compiler with `-I`: names and contents.
    pub files: Vec<(String, Vec<u8>)>,
}

/// A limit of includes is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Too many or too large files, or too deep a nesting.
    TooLarge,
}

/// A source of files.
pub trait Files {
    /// The content of a file, if it is readable. Relative paths start at the program's working
    /// directory.
    fn read(&self, path: &Path) -> Option<Vec<u8>>;

    /// The identity of a file, equal for all its paths.
    fn identity(&self, path: &Path) -> PathBuf {
        normal(path)
    }
}

/// Evaluates the directives of a source.
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

/// A path without `.` and `..`, resolved lexically.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                let ends_with_name =
                    matches!(normal.components().next_back(), Some(Component::Normal(_)));
                if ends_with_name {
                    normal.pop();
                } else if !normal.has_root() {
                    normal.push("..");
                }
            }
            part => normal.push(part),
        }
    }
    normal
}

#[cfg(test)]
mod tests;
