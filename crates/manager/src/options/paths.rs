//! Default directories.

use std::path::PathBuf;

/// `$XDG_STATE_HOME/baltra`; without that variable, `/var/lib/baltra` for root and
/// `~/.local/state/baltra` for others.
pub(super) fn default_state() -> PathBuf {
    if let Some(dir) = absolute("XDG_STATE_HOME") {
        return dir.join("baltra");
    }
    if rustix::process::geteuid().is_root() {
        return "/var/lib/baltra".into();
    }
    match absolute("HOME") {
        Some(home) => home.join(".local/state/baltra"),
        None => baltra_session::default_runtime_dir().join("state"),
    }
}

fn absolute(variable: &str) -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os(variable)?);
    path.is_absolute().then_some(path)
}
