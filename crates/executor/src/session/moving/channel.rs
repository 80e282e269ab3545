//! The connection of the two ends of a move: its time limits, answers of the target, its loss.

use baltra_channel::Channel;
use baltra_wire::moves::ToSource;
use rustix::net::sockopt::{set_socket_timeout, Timeout};
use std::os::fd::AsFd;
use std::time::Duration;

/// The other end reads its messages within this.
const SEND_MAX: Duration = Duration::from_secs(10);

pub(crate) fn lost(error: std::io::Error) -> String {
    format!("the connection of the two executors failed: {error}")
}

pub(crate) fn limit(channel: &Channel, receive: Duration) -> Result<(), String> {
    let set = |which, time| set_socket_timeout(channel.as_fd(), which, Some(time));
    set(Timeout::Send, SEND_MAX)
        .and_then(|()| set(Timeout::Recv, receive))
        .map_err(|e| lost(e.into()))
}

/// The target's next message.
pub(crate) fn answer(channel: &Channel) -> Result<ToSource, String> {
    match channel.receive() {
        Ok(Some((message, _))) => Ok(message),
        Ok(None) => Err("the other executor has ended, or given the session up".into()),
        Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
            Err("the other executor takes too long".into())
        }
        Err(e) => Err(lost(e)),
    }
}
