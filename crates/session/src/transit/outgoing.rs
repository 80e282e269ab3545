//! A session that an executor of this node sends to another node.

use super::{lost, receive, send, send_range};
use crate::tcp::stream::Stream;
use baltra_channel::Channel;
use baltra_ring::Memory;
use baltra_wire::moves::{Part, ToSource};
use baltra_wire::transit::{FromSource, FromTarget};
use std::os::fd::OwnedFd;

/// The way from an executor to the other node.
pub(crate) struct Outgoing<'a> {
    pub source: &'a Channel,
    pub stream: &'a Stream,
    window: Option<Memory>,
}

impl<'a> Outgoing<'a> {
    pub fn new(source: &'a Channel, stream: &'a Stream) -> Outgoing<'a> {
        Outgoing {
            source,
            stream,
            window: None,
        }
    }

    /// Contents come through this memory of the executor.
    pub fn window(&mut self, fds: &[OwnedFd], len: u64) -> Result<(), String> {
        let fd = fds.first().ok_or("window lacks its descriptor")?;
        self.window = Some(Memory::map(fd, len).map_err(|e| e.to_string())?);
        self.send(&FromSource::Window { len })
    }

    pub fn send(&self, message: &FromSource) -> Result<(), String> {
        send(self.stream, message).map_err(|e| self.refusal().unwrap_or_else(|| lost(e)))
    }

    /// The reason for which the relay has closed the connection, if it has sent one.
    fn refusal(&self) -> Option<String> {
        match receive(self.stream) {
            Ok(FromTarget::Refused(reason)) => Some(reason),
            _ => None,
        }
    }

    pub fn answer(&self) -> Result<FromTarget, String> {
        match receive(self.stream).map_err(lost)? {
            FromTarget::Refused(reason) => Err(reason),
            answer => Ok(answer),
        }
    }

    /// Waits until the relay has prepared something, and reports that to the source.
    pub fn prepared(&self) -> Result<(), String> {
        match self.answer()? {
            FromTarget::Prepared => self.report(ToSource::Prepared),
            _ => Err("the other node broke the protocol".into()),
        }
    }

    pub fn report(&self, message: ToSource) -> Result<(), String> {
        let sent = self.source.send(&message, &[]);
        sent.map_err(|e| format!("the connection to the executor failed: {e}"))
    }

    /// Sends contents that are in the window.
    pub fn send_parts(&self, parts: Vec<Part>) -> Result<(), String> {
        let window = self.window.as_ref().ok_or("contents without a window")?;
        let ranges = parts.iter().map(|part| window.slice(part.offset, part.len));
        let ranges: Option<Vec<_>> = ranges.collect();
        let ranges = ranges.ok_or("contents outside the window")?;
        self.send(&FromSource::Parts(parts))?;
        for range in ranges {
            send_range(self.stream, &range)
                .map_err(|e| self.refusal().unwrap_or_else(|| lost(e)))?;
        }
        Ok(())
    }
}
