//! The interrupts of the device in a guest: one process there (`vfun interrupts`) receives them,
//! and passes each application the eventfd of its part's vector over a Unix socket.

use crate::device::Bell;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// Default path of the socket of `vfun interrupts`.
const SOCKET: &str = "/run/vfun-interrupts.sock";
/// Environment variable for the socket's path.
pub const VARIABLE: &str = "VFUN_INTERRUPTS";
/// Timeout of an answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The socket's path.
pub fn socket() -> PathBuf {
    let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    named.unwrap_or_else(|| SOCKET.into()).into()
}

/// The doorbell of this part; `None` if no process serves the device's interrupts.
pub fn bell(part: u32) -> Option<Bell> {
    let stream = UnixStream::connect(socket()).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    (&stream).write_all(&part.to_le_bytes()).ok()?;
    let (_, event) = crate::device::receive(&stream).ok()?;
    event.map(Bell::new)
}
