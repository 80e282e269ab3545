//! The headers that come with a build, laid out for the compiler.

use crate::driver::Code;
use baltra_opencl::CL_OUT_OF_HOST_MEMORY;
use baltra_wire::{include_name, plain_path};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Headers of one build at the most.
const FILES_MAX: usize = 1000;

/// Where headers that are included by their absolute path lie, below a build's directory.
const ABSOLUTE: &str = ".absolute";

/// A directory with a build's headers; removed when the build is over.
pub struct Headers {
    dir: Option<PathBuf>,
    absolute: HashSet<PathBuf>,
}

impl Headers {
    /// Writes the headers where this executor's compiled kernels are kept: nobody else's
    /// compiler looks there. A path that leaves the directory is left out.
    pub fn lay_out(files: &[(&str, &[u8])]) -> Result<Headers, Code> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let mut headers = Headers {
            dir: None,
            absolute: HashSet::new(),
        };
        if files.is_empty() {
            return Ok(headers);
        }
        let home =
            std::env::var_os("POCL_CACHE_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = home.join(format!("headers-{}-{number}", std::process::id()));
        headers.dir = Some(dir.clone());
        let files: Vec<_> = files
            .iter()
            .take(FILES_MAX)
            .filter_map(|(path, text)| Some((plain_path(Path::new(path))?, *text)))
            .collect();
        let absolute = files
            .iter()
            .map(|(path, _)| path)
            .filter(|p| p.is_absolute());
        headers.absolute = absolute.cloned().collect();
        let written = files.iter().try_for_each(|(path, text)| {
            let file = dir.join(inside(path));
            std::fs::create_dir_all(file.parent().unwrap_or(&dir))?;
            match headers.redirected(text) {
                Some(text) => std::fs::write(file, text),
                None => std::fs::write(file, text),
            }
        });
        match written {
            Ok(()) => Ok(headers),
            Err(error) => {
                tracing::warn!(%error, "a build's headers cannot be written");
                Err(CL_OUT_OF_HOST_MEMORY)
            }
        }
    }

    /// The options with the directory ahead of the client's own, which do not exist here.
    pub fn options(&self, options: &str) -> String {
        match &self.dir {
            Some(dir) => format!("-I {} {options}", dir.display()),
            None => options.to_owned(),
        }
    }

    /// Whether some are named by their absolute path.
    pub fn has_absolute(&self) -> bool {
        !self.absolute.is_empty()
    }

    /// The text with its absolute includes redirected to the headers that came; nothing if there
    /// are none. No option tells a compiler to look elsewhere for those. The new name holds for
    /// every later build too.
    pub fn redirected(&self, text: &[u8]) -> Option<Vec<u8>> {
        if !self.has_absolute() {
            return None;
        }
        let mut out = Vec::with_capacity(text.len());
        let mut is_changed = false;
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let target = std::str::from_utf8(line).ok().and_then(|line| {
                let range = include_name(line)?;
                let path = plain_path(Path::new(&line[range.clone()]))?;
                Some((range, self.absolute.get(&path)?))
            });
            match target {
                Some((range, path)) => {
                    out.extend_from_slice(&line[..range.start]);
                    out.extend_from_slice(inside(path).as_os_str().as_encoded_bytes());
                    out.extend_from_slice(&line[range.end..]);
                    is_changed = true;
                }
                None => out.extend_from_slice(line),
            }
        }
        is_changed.then_some(out)
    }
}

/// Where a header lies below the directory.
fn inside(path: &Path) -> PathBuf {
    match path.strip_prefix("/") {
        Ok(path) => Path::new(ABSOLUTE).join(path),
        Err(_) => path.to_owned(),
    }
}

impl Drop for Headers {
    fn drop(&mut self) {
        if let Some(dir) = &self.dir {
            // What is left goes with the cache.
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_headers_stay_in_their_directory_and_go_with_it() {
        let headers = Headers::lay_out(&[
            ("a/b.h", b"int b;"),
            ("../escaped.h", b"no"),
            ("/../escaped.h", b"no"),
            ("", b"no"),
            ("/a/b.h", b"#include \"c.h\"\n#include </a/./d.h>\n"),
            ("/a/d.h", b""),
        ])
        .unwrap();
        let dir = headers.dir.clone().unwrap();
        assert_eq!(std::fs::read(dir.join("a/b.h")).unwrap(), b"int b;");
        let text = std::fs::read_to_string(dir.join(".absolute/a/b.h")).unwrap();
        assert_eq!(text, "#include \"c.h\"\n#include <.absolute/a/d.h>\n");
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 2);
        assert!(!dir.join("../escaped.h").exists());
        assert!(headers.options("-w").ends_with(" -w"));
        drop(headers);
        assert!(!dir.exists());
    }

    #[test]
    fn test_only_lines_that_name_a_header_that_came_are_redirected() {
        let headers = Headers::lay_out(&[("/a b.h", b"")]).unwrap();
        let text = b"#include \"/a b.h\"\r\n// /a b.h \xff\n#include \"/c.h\"";
        let redirected = headers.redirected(text).unwrap();
        assert!(redirected.starts_with(b"#include \".absolute/a b.h\"\r\n// /a b.h"));
        assert!(redirected.ends_with(b"#include \"/c.h\""));
        assert_eq!(headers.redirected(&redirected), None);
    }

    #[test]
    fn test_no_headers_change_no_options() {
        assert_eq!(Headers::lay_out(&[]).unwrap().options("-w"), "-w");
    }
}
