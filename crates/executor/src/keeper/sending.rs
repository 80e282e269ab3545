//! The source's end of a move from a keeper.

use super::storing::{Blob, Contents, Stored};
use crate::session::moving::channel::{answer, limit, lost};
use crate::session::moving::link::{started, BUILD_MAX, PREPARE_MAX};
use crate::session::moving::stream::Batches;
use baltra_channel::Channel;
use baltra_wire::moves::{Part, ToSource, ToTarget};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Sends a session to the executor at the other end. On an error it has not started there.
pub fn send(stored: &Stored, target: &Channel) -> Result<(), String> {
    let sender = Sender { stored, target };
    limit(target, PREPARE_MAX)?;
    sender.send_all()?;
    limit(target, BUILD_MAX)?;
    started(target)
}

struct Sender<'a> {
    stored: &'a Stored,
    target: &'a Channel,
}

impl Sender<'_> {
    fn send(&self, message: &ToTarget, fds: &[BorrowedFd<'_>]) -> Result<(), String> {
        self.target.send(message, fds).map_err(lost)
    }

    fn send_with(&self, message: &ToTarget, fds: &[OwnedFd]) -> Result<(), String> {
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        self.send(message, &fds)
    }

    fn prepared(&self) -> Result<(), String> {
        match answer(self.target)? {
            ToSource::Prepared => Ok(()),
            ToSource::Refused(reason) => Err(reason),
            _ => Err("the other executor broke the protocol".into()),
        }
    }

    fn send_all(&self) -> Result<(), String> {
        let stored = self.stored;
        let Blob { fd, len } = &stored.plan;
        let fds = [fd.as_fd(), stored.socket.as_fd(), stored.segment.as_fd()];
        self.send(&ToTarget::Plan { len: *len }, &fds)?;
        self.prepared()?;
        if let Some(Blob { fd, len }) = &stored.ahead {
            self.send(&ToTarget::State { len: *len }, &[fd.as_fd()])?;
            self.prepared()?;
        }
        let mut batches = self.open()?;
        let mut bytes = self.send_contents(&mut batches, &stored.ahead_contents)?;
        for (arenas, fds) in &stored.arenas {
            self.send_with(&ToTarget::Arenas(arenas.clone()), fds)?;
        }
        for fds in &stored.pending {
            self.send_with(&ToTarget::Pending, fds)?;
        }
        let Blob { fd, len } = &stored.state;
        self.send(&ToTarget::State { len: *len }, &[fd.as_fd()])?;
        bytes += self.send_contents(&mut batches, &stored.contents)?;
        let message = ToTarget::Complete {
            bytes: (bytes, bytes),
        };
        self.send(&message, &[])
    }

    /// A window for all contents; `None`: there are none.
    fn open(&self) -> Result<Option<Batches<'_>>, String> {
        let all = [&self.stored.ahead_contents, &self.stored.contents];
        let places = all.into_iter().flat_map(|contents| contents.values());
        let lens = places.flat_map(|own| own.values()).map(|place| place.len);
        let (total, largest) = lens.fold((0, 0), |(total, largest): (u64, u64), len| {
            (total + len, largest.max(len))
        });
        if total == 0 {
            return Ok(None);
        }
        Batches::open(self.target, None, (total, largest)).map(Some)
    }

    /// Sends contents, which are checked on the way; returns their bytes.
    fn send_contents(
        &self,
        batches: &mut Option<Batches<'_>>,
        contents: &Contents,
    ) -> Result<u64, String> {
        let Some(batches) = batches else {
            return Ok(0);
        };
        let (mut total, mut bytes) = (0, Vec::new());
        for (id, own) in contents {
            for (start, place) in own {
                let len = place.len;
                bytes.resize(len as usize, 0);
                self.stored.storage.read(*place, &mut bytes)?;
                if batches.is_full(len) {
                    batches.send()?;
                }
                let (offset, host) = loop {
                    if let Some(place) = batches.place(len)? {
                        break place;
                    }
                    batches.send()?;
                    batches.take_answer()?;
                };
                host.copy_in(0, &bytes);
                batches.add(Part {
                    id: *id,
                    start: *start,
                    len,
                    offset,
                });
                total += len;
            }
        }
        batches.finish()?;
        Ok(total)
    }
}
