//! The files that a manifest names: in its directory or below it, never elsewhere.

use bytes::Bytes;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// Most bytes of such a file.
const BYTES_MAX: u64 = 1 << 30;

/// Files by the name that the manifest uses.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// The directory that they were read from; `None` if they arrived over the network.
    pub directory: Option<PathBuf>,
    /// Contents, including native libraries: to load one, write it to a file, or use `directory`.
    pub contents: BTreeMap<String, Bytes>,
}

impl Files {
    /// Files that were not read from a directory.
    pub fn from_contents(contents: BTreeMap<String, Bytes>) -> Files {
        Files {
            directory: None,
            contents,
        }
    }

    /// The path of a file, if it was read from a directory.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.directory
            .as_ref()
            .map(|directory| directory.join(name))
    }

    /// The contents of a file that the manifest names; read from the directory at the first time.
    pub(crate) fn open(&mut self, name: &str) -> Result<Bytes, String> {
        valid_name(name)?;
        if let Some(bytes) = self.contents.get(name) {
            return Ok(bytes.clone());
        }
        let Some(directory) = &self.directory else {
            return Err(format!("file '{name}' was not sent with the manifest"));
        };
        let bytes = Bytes::from(read(directory, name)?);
        self.contents.insert(name.to_owned(), bytes.clone());
        Ok(bytes)
    }

    /// Keeps only the files that match.
    pub(crate) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.contents.retain(|name, _| keep(name));
    }

    /// sha256 of the manifest and the files, in hexadecimal.
    pub(crate) fn digest(&self, manifest: &str) -> String {
        let mut hash = Sha256::new();
        let mut add = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        add(manifest.as_bytes());
        for (name, bytes) in &self.contents {
            add(name.as_bytes());
            add(bytes);
        }
        hash.finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

/// Accepts relative paths of plain names: no `..`, no root, no backslash.
pub(crate) fn valid_name(name: &str) -> Result<(), String> {
    let plain = !name.is_empty()
        && name.len() <= 255
        && !name.contains(['\\', '\0'])
        && Path::new(name)
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
    if plain {
        Ok(())
    } else {
        Err(format!("invalid file name '{name}': use a path in the manifest's directory, without '..' and without a leading '/'"))
    }
}

fn read(directory: &Path, name: &str) -> Result<Vec<u8>, String> {
    let path = directory.join(name);
    let shown = path.display();
    let root = directory
        .canonicalize()
        .map_err(|e| format!("{}: {e}", directory.display()))?;
    // A link may lead outside, so check the resolved path.
    let real = path
        .canonicalize()
        .map_err(|e| format!("cannot read {shown}: {e}"))?;
    if !real.starts_with(&root) {
        return Err(format!("{shown} is outside of the function's directory"));
    }
    let about = std::fs::metadata(&real).map_err(|e| format!("{shown}: {e}"))?;
    if !about.is_file() {
        return Err(format!("{shown} is not a regular file"));
    }
    if about.len() > BYTES_MAX {
        return Err(format!("{shown} is larger than {BYTES_MAX} bytes"));
    }
    std::fs::read(&real).map_err(|e| format!("{shown}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_inside_the_directory() {
        for name in ["a.cl", "kernels/a.cl", "a..b"] {
            assert!(valid_name(name).is_ok(), "{name}");
        }
        for name in [
            "",
            "./a",
            "..",
            "../a",
            "a/../../b",
            "/etc/passwd",
            "a\\b",
            "a\0",
        ] {
            assert!(valid_name(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn links_that_lead_outside_are_refused() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "x").unwrap();
        let inside = tempfile::tempdir().unwrap();
        std::fs::write(inside.path().join("real"), "y").unwrap();
        std::os::unix::fs::symlink(outside.path().join("secret"), inside.path().join("out"))
            .unwrap();
        std::os::unix::fs::symlink("real", inside.path().join("in")).unwrap();
        let mut files = Files {
            directory: Some(inside.path().into()),
            ..Files::default()
        };
        assert_eq!(files.open("in").unwrap(), "y");
        assert!(files.open("out").unwrap_err().contains("is outside"));
        assert!(files.open("none").unwrap_err().contains("cannot read"));
        std::fs::create_dir(inside.path().join("folder")).unwrap();
        assert!(files
            .open("folder")
            .unwrap_err()
            .contains("not a regular file"));
    }

    #[test]
    fn the_digest_depends_on_every_byte_and_name() {
        let of = |name: &str, bytes: &'static str| {
            Files::from_contents([(name.to_owned(), Bytes::from(bytes))].into()).digest("m")
        };
        assert_eq!(of("a", "x"), of("a", "x"));
        assert_ne!(of("a", "x"), of("a", "y"));
        assert_ne!(of("a", "x"), of("b", "x"));
        assert_eq!(of("a", "x").len(), 64);
    }
}
