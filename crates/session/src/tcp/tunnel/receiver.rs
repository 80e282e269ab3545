//! Converts frames from the relay: into the library's notice ring, event table, progress and
//! arenas.

use super::{relays, Channel, Inner};
use crate::tcp::frame::{Head, Kind, Violation};
use crate::tcp::reader::Receive;
use crate::tcp::subflows::Subflows;
use baltra_ring::{Locked, Range};
use baltra_wire::{decode, encode, Completion, Id, Notice};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// Receiver of one connection's frames, used by the thread that currently reads.
pub(super) struct Receiver<'a> {
    pub inner: &'a Inner,
    pub state: &'a mut ReceiveState,
}

/// State kept between readers.
#[derive(Default)]
pub(super) struct ReceiveState {
    acked: u32,
    /// The queue of the last progress report, which usually is also that of the next one.
    last: Option<Arc<Channel>>,
    notices: bool,
    /// Whether space has become free for waiting commands.
    kick: bool,
}

impl Receiver<'_> {
    fn channel(&mut self, queue: Id) -> Option<Arc<Channel>> {
        if let Some(last) = self.state.last.as_ref().filter(|c| c.id == queue) {
            return Some(last.clone());
        }
        let found = self.inner.channels.locked().get(&queue).cloned();
        self.state.last.clone_from(&found);
        found
    }

    fn acked(&mut self, head: &Head) -> Result<(), Violation> {
        if head.ack != self.state.acked {
            self.inner.link.acked(head.ack)?;
            self.state.acked = head.ack;
        }
        Ok(())
    }

    fn notice(&mut self, message: &[u8]) -> Result<(), Violation> {
        match decode::<Notice>(message).map_err(|e| Violation(e.to_string()))? {
            Notice::Completed(completion) => self.completed(completion, message)?,
            Notice::Progress {
                queue,
                completed,
                failed,
            } => self.progress(queue, completed, failed)?,
            Notice::Printed(_) => {
                self.inner.print(message);
                self.state.notices = true;
            }
            Notice::Reply { .. } if self.inner.mirror => {
                let own = relays::answered(message);
                self.pass_on(own.as_deref().unwrap_or(message));
            }
            _ => self.pass_on(message),
        }
        Ok(())
    }

    fn pass_on(&mut self, message: &[u8]) {
        self.inner.pass_on(message, false);
        self.state.notices = true;
    }

    fn completed(&mut self, completion: Completion, message: &[u8]) -> Result<(), Violation> {
        let event = completion.event;
        let mut events = self.inner.events.locked();
        let expected = events.expected.remove(&event);
        drop(events);
        let mut passes = self.inner.mirror && expected.is_some();
        // Otherwise the report is outdated, and the slot may belong to another event by now.
        if let Some((channel, number)) = expected {
            let mut account = channel.account();
            if channel.in_order {
                let failed = completion.status < 0;
                account.end_loans(number, self.inner.link.arrived(), failed)?;
            } else {
                account.unstage(number);
                self.state.kick |= std::mem::take(&mut account.blocked);
            }
            drop(account);
            let writer = &self.inner.writer;
            writer.set(event, completion.status.min(0), completion.times_ns);
        }
        // After the table is written, because a watch that is added now checks the table.
        passes |= self.inner.events.locked().watched.remove(&event);
        if passes {
            self.pass_on(message);
        }
        Ok(())
    }

    fn progress(&mut self, queue: Id, completed: u64, failed: (u64, i32)) -> Result<(), Violation> {
        // The library has released the queue.
        let Some(channel) = self.channel(queue) else {
            return Ok(());
        };
        let mut account = channel.account();
        let mut failure = (0, 0);
        if failed.0 != 0 {
            if let Some(command) = account.command_of(failed.0) {
                failure = (command, failed.1.min(-1));
                channel.progress.fail(command, failure.1);
            }
        }
        let mut spent = Vec::new();
        let mut lent = Vec::new();
        let commands = account.complete(completed, self.inner.link.arrived(), |piece| {
            spent.extend(piece.spent.into_iter().filter(|&e| e != 0));
            lent.extend(piece.lent.filter(|_| piece.last).map(|l| l.arena));
        })?;
        self.state.kick |= std::mem::take(&mut account.blocked);
        let drained = account.is_drained();
        drop(account);
        if !lent.is_empty() {
            let mut arenas = self.inner.arenas.locked();
            lent.iter().for_each(|arena| drop(arenas.remove(arena)));
        }
        channel.progress.publish(commands);
        if self.inner.mirror {
            let mut notice = Vec::new();
            let progress = Notice::Progress {
                queue,
                completed: commands,
                failed: failure,
            };
            if encode(&progress, &mut notice).is_ok() {
                self.pass_on(&notice);
            }
        }
        if !spent.is_empty() {
            self.inner.give_events(&spent);
            self.state.kick = true;
        }
        if drained && channel.released.load(Ordering::Acquire) {
            self.inner.channels.locked().remove(&queue);
        }
        Ok(())
    }
}

fn number(message: &[u8]) -> Result<u64, Violation> {
    let bytes = message.try_into();
    bytes
        .map(u64::from_le_bytes)
        .map_err(|_| Violation::new("data without its command's number"))
}

impl Receive for Receiver<'_> {
    fn place(&mut self, head: &Head, message: &[u8]) -> Result<Range, Violation> {
        let number = number(message)?;
        let wrong = || Violation::new("data that no read is waiting for");
        let channel = self.channel(head.queue).ok_or_else(wrong)?;
        let account = channel.account();
        let place = account.read(number);
        let place = place.filter(|r| r.len() == head.payload as usize);
        place.cloned().ok_or_else(wrong)
    }

    fn frame(&mut self, head: &Head, message: &[u8]) -> Result<bool, Violation> {
        self.acked(head)?;
        match head.kind {
            Kind::Ack => {}
            Kind::Notice => self.notice(message)?,
            Kind::Data => {
                let number = number(message)?;
                if let Some(channel) = self.channel(head.queue) {
                    channel.account().read_done(number);
                }
            }
            Kind::Subflows => self.inner.open_subflows(message),
            Kind::Control | Kind::Command | Kind::Contents | Kind::Close => {
                return Err(Violation(format!(
                    "an unexpected frame of kind {:?}",
                    head.kind
                )));
            }
        }
        self.inner.link.count(head);
        Ok(true)
    }

    fn fill(&self, run: impl FnOnce() -> io::Result<usize>) -> io::Result<usize> {
        let _receiving = self.inner.receiving.locked();
        // The application may use its memory again.
        if self.inner.is_closed() {
            Err(io::ErrorKind::ConnectionAborted.into())
        } else {
            run()
        }
    }

    fn subflows(&self) -> Option<Arc<Subflows>> {
        self.inner.link.any_subflows()
    }

    fn idle(&mut self) -> Result<(), Violation> {
        if std::mem::take(&mut self.state.notices) {
            self.inner.notices.locked().publish();
        }
        if std::mem::take(&mut self.state.kick) || self.inner.link.may_acknowledge() {
            self.inner.kick();
        }
        Ok(())
    }
}
