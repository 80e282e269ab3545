//! The headers that come with a build, laid out for the compiler.

use crate::driver::Code;
use baltra_opencl::CL_OUT_OF_HOST_MEMORY;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Headers of one build at the most.
const FILES_MAX: usize = 1000;

/// A directory with a build's headers; removed when the build is over.
pub struct Headers {
    dir: Option<PathBuf>,
}

impl Headers {
    /// Writes the headers where this executor's compiled kernels are kept: nobody else's
    /// compiler looks there. A path that leaves the directory is left out.
    pub fn lay_out(files: &[(&str, &[u8])]) -> Result<Headers, Code> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        if files.is_empty() {
            return Ok(Headers { dir: None });
        }
        let home =
            std::env::var_os("POCL_CACHE_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = home.join(format!("headers-{}-{number}", std::process::id()));
        let headers = Headers {
            dir: Some(dir.clone()),
        };
        let written = files
            .iter()
            .take(FILES_MAX)
            .filter(|(path, _)| is_below(Path::new(path)))
            .try_for_each(|(path, text)| {
                let file = dir.join(path);
                std::fs::create_dir_all(file.parent().unwrap_or(&dir))?;
                std::fs::write(file, text)
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
}

impl Drop for Headers {
    fn drop(&mut self) {
        if let Some(dir) = &self.dir {
            // What is left goes with the cache.
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

fn is_below(path: &Path) -> bool {
    let mut components = path.components().peekable();
    components.peek().is_some() && components.all(|c| matches!(c, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_headers_stay_in_their_directory_and_go_with_it() {
        let headers = Headers::lay_out(&[
            ("a/b.h", b"int b;"),
            ("../escaped.h", b"no"),
            ("/tmp/escaped.h", b"no"),
            ("", b"no"),
        ])
        .unwrap();
        let dir = headers.dir.clone().unwrap();
        assert_eq!(std::fs::read(dir.join("a/b.h")).unwrap(), b"int b;");
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1);
        assert!(!dir.join("../escaped.h").exists());
        assert!(headers.options("-w").ends_with(" -w"));
        drop(headers);
        assert!(!dir.exists());
    }

    #[test]
    fn test_no_headers_change_no_options() {
        assert_eq!(Headers::lay_out(&[]).unwrap().options("-w"), "-w");
    }
}
