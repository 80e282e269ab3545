//! Bounds the size of a background daemon's log, because tenants can make executors write to it.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Size limit of the log. A longer log is truncated, and its previous content is kept in one other
/// file.
const LOG_BYTES_MAX: u64 = 16 << 20;

/// Truncates the log if it has become too long and is this process's output.
pub fn bound(path: &Path) {
    let ours = rustix::fs::fstat(io::stderr())
        .ok()
        .zip(std::fs::metadata(path).ok());
    let Some((_, found)) =
        ours.filter(|(own, found)| own.st_ino == found.ino() && own.st_dev == found.dev())
    else {
        return;
    };
    if found.len() > LOG_BYTES_MAX {
        if let Err(error) = turn_over(path) {
            tracing::warn!(path = %path.display(), %error, "cannot truncate the log");
        }
    }
}

/// All writers append, so the file can be truncated while they write.
fn turn_over(path: &Path) -> io::Result<()> {
    let mut kept = path.as_os_str().to_owned();
    kept.push(".1");
    std::fs::copy(path, kept)?;
    File::options().write(true).open(path)?.set_len(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_log_is_kept_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "old").unwrap();
        turn_over(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"");
        assert_eq!(std::fs::read(dir.path().join("log.1")).unwrap(), b"old");
    }
}
