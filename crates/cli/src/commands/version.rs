//! `baltra version`: the release, the commit, and the versions of the protocols.

use crate::output;
use serde_json::json;

/// The commit, if the build was given one: `make packages` sets it.
const COMMIT: Option<&str> = option_env!("BALTRA_COMMIT");

/// Prints the versions.
pub fn version(as_json: bool) {
    let release = env!("CARGO_PKG_VERSION");
    let session = baltra_wire::VERSION.to_string();
    let board = baltra_board::packet::VERSION;
    let region = baltra_ivshmem::region::VERSION;
    if as_json {
        output::json(&json!({
            "version": release,
            "commit": COMMIT,
            "protocols": {"session": session, "board": board, "vm_region": region},
        }));
        return;
    }
    println!("baltra    {release}");
    println!("commit    {}", COMMIT.unwrap_or("not recorded"));
    println!("protocols session {session}, board {board}, VM region {region}");
}
