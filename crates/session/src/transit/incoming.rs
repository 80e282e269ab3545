//! Contents that come from another node, for an executor of this one.

use super::{next, receive_range};
use crate::tcp::stream::Stream;
use baltra_channel::Channel;
use baltra_ring::Memory;
use baltra_wire::moves::{Part, Step, ToSource, ToTarget, PARTS_MAX};
use baltra_wire::{decode, Backing, Control};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// Most bytes of contents between two messages, which a slice of an image does not exceed.
const WINDOW_BYTES_MAX: u64 = 512 << 20;
/// Batches that the executor has not taken, at the most: their answers fit into its socket.
const BATCHES_MAX: usize = 8;

pub(crate) fn broken(what: &str) -> String {
    format!("the other node broke the protocol: {what}")
}

/// Refuses records that would put objects into memory of this node.
pub(crate) fn check_steps(steps: &[Step]) -> Result<(), String> {
    let is_local = |step: &Step| {
        matches!(
            decode(&step.record),
            Ok(Control::Buffer {
                backing: Backing::Arena(_) | Backing::Svm(_),
                ..
            })
        )
    };
    if steps.iter().any(is_local) {
        return Err(broken("a buffer in its program's memory"));
    }
    Ok(())
}

/// Memory that this process and an executor share, through which contents pass.
pub(crate) struct Window {
    memory: Memory,
    pub fd: OwnedFd,
    /// Bytes.
    len: u64,
    /// End of the newest part.
    head: u64,
    /// Number of messages that the executor has not taken; all of them are before `head`.
    sent: usize,
}

impl Window {
    pub fn new(len: u64) -> Result<Window, String> {
        if len == 0 || len > WINDOW_BYTES_MAX {
            return Err(broken("contents of an impossible size"));
        }
        let made = Memory::create("baltra-move", len);
        let (memory, fd) = made.map_err(|e| format!("no host memory for {len} bytes: {e}"))?;
        Ok(Window {
            memory,
            fd,
            len,
            head: 0,
            sent: 0,
        })
    }

    /// Receives the bytes of parts, and passes them to the executor.
    pub fn pass(
        &mut self,
        (stream, deadline): (&Stream, Instant),
        executor: &Channel,
        mut parts: Vec<Part>,
        late: impl Fn(io::Error) -> String,
    ) -> Result<(), String> {
        if parts.len() > PARTS_MAX {
            return Err(broken("too many parts"));
        }
        let bytes = parts.iter().map(|part| part.len);
        let bytes = bytes.fold(0, u64::saturating_add);
        if bytes > self.len || self.sent >= BATCHES_MAX {
            self.finish(executor)?;
        }
        if bytes > self.len - self.head {
            self.finish(executor)?;
            self.head = 0;
        }
        for part in &mut parts {
            part.offset = self.head;
            let range = self.memory.slice(self.head, part.len);
            let range = range.ok_or_else(|| broken("more contents than announced"))?;
            receive_range(stream, &range, deadline).map_err(&late)?;
            self.head += part.len;
        }
        let sent = executor.send(&ToTarget::Parts(parts), &[]);
        sent.map_err(|e| refusal(executor).unwrap_or_else(|| e.to_string()))?;
        self.sent += 1;
        Ok(())
    }

    /// Waits until the executor has taken everything.
    pub fn finish(&mut self, executor: &Channel) -> Result<(), String> {
        while self.sent > 0 {
            match next(executor)?.0 {
                ToSource::Taken => self.sent -= 1,
                ToSource::Refused(reason) => return Err(reason),
                _ => return Err("the executor broke the protocol".into()),
            }
        }
        Ok(())
    }
}

/// The reason for which the executor has closed the connection, if it has sent one.
fn refusal(executor: &Channel) -> Option<String> {
    loop {
        match next(executor).ok()?.0 {
            ToSource::Refused(reason) => return Some(reason),
            ToSource::Taken => {}
            ToSource::Prepared | ToSource::Started => return None,
        }
    }
}
