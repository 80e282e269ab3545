//! The files of a build, written for the compiler.

use crate::driver::Code;
use baltra_opencl::CL_OUT_OF_HOST_MEMORY;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Files of one build at the most.
const FILES_MAX: usize = 4096;

/// A directory that is removed when it is no longer needed.
pub struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        // A directory that remains is removed with the cache.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The files of a build, in a directory that is removed after the build.
pub struct Headers<'a> {
    dir: Option<Directory>,
    /// The source that includes them by their names.
    source: Option<&'a [u8]>,
}

impl<'a> Headers<'a> {
    /// Writes the files to the directory of this executor's compiled kernels, which other tenants'
    /// compilers cannot read. A path that leaves the directory is skipped; the file with an empty
    /// name is the build's source.
    pub fn lay_out(files: &[(&str, &'a [u8])]) -> Result<Headers<'a>, Code> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let mut headers = Headers {
            dir: None,
            source: files.iter().find(|(path, _)| path.is_empty()).map(|f| f.1),
        };
        let named = files.iter().take(FILES_MAX);
        let named: Vec<_> = named
            .filter_map(|(path, text)| Some((plain_path(Path::new(path))?, *text)))
            .collect();
        if named.is_empty() {
            return Ok(headers);
        }
        let home =
            std::env::var_os("POCL_CACHE_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = home.join(format!("headers-{}-{number}", std::process::id()));
        headers.dir = Some(Directory(dir.clone()));
        let written = named.iter().try_for_each(|(path, text)| {
            let file = dir.join(path);
            std::fs::create_dir_all(file.parent().unwrap_or(&dir))?;
            std::fs::write(file, text)
        });
        match written {
            Ok(()) => Ok(headers),
            Err(error) => {
                tracing::warn!(%error, "cannot write a program's headers");
                Err(CL_OUT_OF_HOST_MEMORY)
            }
        }
    }

    /// The options with the directory ahead of all others.
    pub fn options(&self, options: &str) -> String {
        match &self.dir {
            Some(dir) => format!("-I {} {options}", dir.0.display()),
            None => options.to_owned(),
        }
    }

    /// The directory, for further builds.
    pub fn into_directory(self) -> Option<Directory> {
        self.dir
    }

    /// The source to build in place of the program's.
    pub fn source(&self) -> Option<&'a [u8]> {
        self.source
    }
}

/// A path below the directory; `None`: it leaves the directory, or is empty.
fn plain_path(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(_) => plain.push(component),
            Component::CurDir => {}
            Component::RootDir | Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    plain.file_name().is_some().then_some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_stay_in_their_directory_and_go_with_it() {
        let headers = Headers::lay_out(&[
            ("a/b.h", b"int b;"),
            ("../escaped.h", b"no"),
            ("a/../../escaped.h", b"no"),
            ("/escaped.h", b"no"),
            ("", b"source"),
        ])
        .unwrap();
        let dir = headers.dir.as_ref().unwrap().0.clone();
        assert_eq!(std::fs::read(dir.join("a/b.h")).unwrap(), b"int b;");
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1);
        assert!(!dir.join("../escaped.h").exists());
        assert_eq!(headers.source(), Some(&b"source"[..]));
        assert!(headers.options("-w").ends_with(" -w"));
        drop(headers);
        assert!(!dir.exists());
    }

    #[test]
    fn no_headers_change_no_options() {
        assert_eq!(Headers::lay_out(&[]).unwrap().options("-w"), "-w");
    }
}
