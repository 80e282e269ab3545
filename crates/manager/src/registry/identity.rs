//! The node's identity for its registry: the node's name belongs to the owner of a random id.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Write};
use std::path::Path;

/// A node's id, generated at its first start and kept in its state directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The id: 32 hexadecimal digits.
    pub id: String,
}

impl Identity {
    /// Loads the recorded id, or generates and records one.
    pub fn load(path: &Path) -> Result<Identity> {
        match std::fs::read(path) {
            Ok(text) => {
                let known: Identity = serde_json::from_slice(&text).with_context(|| {
                    format!(
                        "{} is not what was written there: remove it, and the node is a new one to its registry",
                        path.display()
                    )
                })?;
                Ok(known)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let mut number = [0; 16];
                getrandom::fill(&mut number).map_err(|e| {
                    anyhow::anyhow!("cannot read random bytes from the kernel: {e}")
                })?;
                let fresh = Identity {
                    id: crate::tenants::hex(&number),
                };
                replace(path, &serde_json::to_vec(&fresh)?)
                    .with_context(|| format!("cannot write {}", path.display()))?;
                Ok(fresh)
            }
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }
}

/// Writes a file atomically.
pub(super) fn replace(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(text)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_stays_who_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node.json");
        let first = Identity::load(&path).unwrap();
        assert_eq!(first.id.len(), 32);
        assert_eq!(Identity::load(&path).unwrap(), first);
        let other = Identity::load(&dir.path().join("other.json")).unwrap();
        assert_ne!(other, first);
        std::fs::write(&path, "{").unwrap();
        let error = format!("{:#}", Identity::load(&path).unwrap_err());
        assert!(error.contains("node.json"), "{error}");
    }
}
