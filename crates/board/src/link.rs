//! Requests of several threads over one socket: each thread waits for its own reply.
//!
//! One of the waiting threads receives, for all of them; it hands this role on with its own reply.

use crate::error::{malformed, Error};
use crate::packet::{Op, Reply, Request, REPLY_BYTES};
use baltra_ring::{Locked, Unpoisoned};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::net::{
    recvmsg, sendmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Requests without a reply; further ones wait. The board stops reading at sixteen, and must read a
/// cancellation.
const OUTSTANDING_MAX: usize = 12;
/// Between two checks whether a call is still needed.
const CHECK: Duration = Duration::from_millis(10);

/// Whether a call is no longer needed; checked while it runs.
pub type IsCancelled<'a> = &'a dyn Fn() -> bool;

/// A reply, and the descriptor that came with it.
pub type Answer = (Reply, Option<OwnedFd>);

/// A connection to a board.
pub struct Link {
    socket: OwnedFd,
    state: Mutex<State>,
    /// The state has changed.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The latest request's id.
    id: u32,
    outstanding: usize,
    /// Whether a thread receives.
    is_receiving: bool,
    /// Those that their threads have not taken.
    answers: HashMap<u32, Answer>,
    /// The connection has failed.
    lost: Option<io::ErrorKind>,
}

impl Link {
    /// Over a connected socket.
    pub fn new(socket: OwnedFd) -> Link {
        Link {
            socket,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// One request and its reply. A call that `is_cancelled` is stopped: its reply has that
    /// status, unless the call has ended before.
    pub fn exchange(
        &self,
        op: Op,
        mut request: Request,
        file: Option<BorrowedFd<'_>>,
        is_cancelled: Option<IsCancelled<'_>>,
    ) -> Result<Answer, Error> {
        let mut state = self.lock();
        while state.outstanding == OUTSTANDING_MAX && state.lost.is_none() {
            if is_cancelled.is_some_and(|is_cancelled| is_cancelled()) {
                return Err(Error::Killed);
            }
            state = self.wait(state, is_cancelled.is_some());
        }
        state.id = state.id.wrapping_add(1);
        state.outstanding += 1;
        request.id = state.id;
        drop(state);
        let answer = self
            .send(&request.encode(op), file)
            .and_then(|()| self.answer(request.id, is_cancelled));
        let mut state = self.lock();
        state.outstanding -= 1;
        drop(state);
        self.changed.notify_all();
        answer
    }

    fn answer(&self, id: u32, is_cancelled: Option<IsCancelled<'_>>) -> Result<Answer, Error> {
        // None after it has been sent: once is enough.
        let mut check = is_cancelled;
        let mut state = self.lock();
        loop {
            if let Some(answer) = state.answers.remove(&id) {
                return Ok(answer);
            }
            if let Some(kind) = state.lost {
                return Err(Error::Lost(kind.into()));
            }
            if check.is_some_and(|is_cancelled| is_cancelled()) {
                check = None;
                let cancel = Request {
                    number: id,
                    ..Request::default()
                };
                self.send(&cancel.encode(Op::Cancel), None)?;
            }
            if state.is_receiving {
                state = self.wait(state, check.is_some());
                continue;
            }
            state.is_receiving = true;
            drop(state);
            let received = self.receive(check.is_some());
            state = self.lock();
            state.is_receiving = false;
            match received {
                Ok(None) => {}
                Ok(Some(answer)) => {
                    state.answers.insert(answer.0.id, answer);
                }
                Err(error) => {
                    state.lost = Some(match &error {
                        Error::Lost(error) => error.kind(),
                        _ => io::ErrorKind::Other,
                    });
                }
            }
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }

    /// Waits for a change; `is_checking`: no longer than until the next check.
    fn wait<'a>(&self, state: MutexGuard<'a, State>, is_checking: bool) -> MutexGuard<'a, State> {
        if is_checking {
            let waited = self.changed.wait_timeout(state, CHECK);
            waited.unpoisoned().0
        } else {
            self.changed.wait(state).unpoisoned()
        }
    }

    fn send(&self, packet: &[u8], file: Option<BorrowedFd<'_>>) -> Result<(), Error> {
        let files = file.map(|file| [file]);
        let sent = rustix::io::retry_on_intr(|| {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if let Some(files) = &files {
                // There is space for one.
                control.push(SendAncillaryMessage::ScmRights(files));
            }
            let parts = [IoSlice::new(packet)];
            sendmsg(&self.socket, &parts, &mut control, SendFlags::NOSIGNAL)
        });
        sent.map(drop).map_err(|error| Error::Lost(error.into()))
    }

    /// The next reply; `is_checking`: none if there is none until the next check.
    fn receive(&self, is_checking: bool) -> Result<Option<Answer>, Error> {
        let lost = |error: rustix::io::Errno| Error::Lost(error.into());
        if is_checking {
            let timeout = Timespec {
                tv_sec: 0,
                tv_nsec: CHECK.as_nanos() as _,
            };
            let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
                Ok(_) => {}
                Err(error) => return Err(lost(error)),
            }
        }
        let mut bytes = [0; REPLY_BYTES + 1];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = rustix::io::retry_on_intr(|| {
            let mut parts = [IoSliceMut::new(&mut bytes)];
            recvmsg(
                &self.socket,
                &mut parts,
                &mut control,
                RecvFlags::CMSG_CLOEXEC,
            )
        })
        .map_err(lost)?;
        let mut fd = None;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(mut rights) = message {
                fd = rights.next();
            }
        }
        match received.bytes {
            REPLY_BYTES => {
                let packet = bytes[..REPLY_BYTES].try_into().expect("as many");
                Ok(Some((Reply::decode(packet), fd)))
            }
            0 => Err(Error::Lost(io::ErrorKind::UnexpectedEof.into())),
            n => Err(malformed(&format!("a reply of {n} bytes"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::REQUEST_BYTES;
    use rustix::net::{recv, socketpair, AddressFamily, SocketFlags, SocketType};
    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    fn pair() -> (Link, OwnedFd) {
        let flags = SocketFlags::CLOEXEC;
        let (here, there) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        (Link::new(here), there)
    }

    /// Operation, id and number of the next request.
    fn next(board: &OwnedFd) -> (u32, u32, u32) {
        let mut bytes = [0; REQUEST_BYTES];
        let (n, _) = recv(board, &mut bytes, RecvFlags::empty()).unwrap();
        assert_eq!(n, REQUEST_BYTES);
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        (word(0), word(4), word(40))
    }

    fn reply(board: &OwnedFd, id: u32, number: u32) {
        let mut bytes = [0; REPLY_BYTES];
        bytes[4..8].copy_from_slice(&id.to_ne_bytes());
        bytes[12..16].copy_from_slice(&number.to_ne_bytes());
        rustix::net::send(board.as_fd(), &bytes, SendFlags::NOSIGNAL).unwrap();
    }

    fn call(number: u32) -> Request {
        Request {
            number,
            ..Request::default()
        }
    }

    #[test]
    fn each_thread_gets_its_own_reply_in_any_order() {
        let (link, board) = pair();
        const THREADS: u32 = 20;
        const ROUNDS: u32 = 50;
        thread::scope(|scope| {
            for own in 0..THREADS {
                let link = &link;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let number = own * ROUNDS + round;
                        let check = &|| false;
                        let check: Option<IsCancelled<'_>> = (own % 2 == 0).then_some(check);
                        let answer = link.exchange(Op::Call, call(number), None, check);
                        assert_eq!(answer.unwrap().0.number, number);
                    }
                });
            }
            // The later of two requests is answered first.
            let mut left = THREADS * ROUNDS;
            while left > 0 {
                let first = next(&board);
                let mut fds = [PollFd::new(&board, PollFlags::IN)];
                if poll(&mut fds, Some(&Timespec::default())).unwrap() > 0 {
                    let second = next(&board);
                    reply(&board, second.1, second.2);
                    left -= 1;
                }
                reply(&board, first.1, first.2);
                left -= 1;
            }
        });
    }

    #[test]
    fn a_call_that_is_not_needed_is_cancelled_once() {
        let (link, board) = pair();
        let is_cancelled = AtomicBool::new(false);
        let check = || is_cancelled.load(Ordering::Acquire);
        thread::scope(|scope| {
            let called = scope.spawn({
                let (link, check) = (&link, &check);
                move || link.exchange(Op::Launch, call(5), None, Some(check))
            });
            let (_, id, _) = next(&board);
            is_cancelled.store(true, Ordering::Release);
            assert_eq!(next(&board), (Op::Cancel as u32, 0, id));
            // Other requests continue meanwhile.
            let other = scope.spawn(|| link.exchange(Op::Take, call(6), None, None));
            let (op, second, _) = next(&board);
            assert_eq!(op, Op::Take as u32);
            reply(&board, second, 6);
            assert_eq!(other.join().unwrap().unwrap().0.number, 6);
            reply(&board, id, 7);
            assert_eq!(called.join().unwrap().unwrap().0.number, 7);
        });
    }

    #[test]
    fn no_more_requests_wait_than_the_board_reads() {
        let (link, board) = pair();
        let is_cancelled = AtomicBool::new(false);
        thread::scope(|scope| {
            let calls = (0..OUTSTANDING_MAX as u32)
                .map(|n| {
                    scope.spawn({
                        let link = &link;
                        move || link.exchange(Op::Call, call(n), None, None)
                    })
                })
                .collect::<Vec<_>>();
            let ids: Vec<_> = calls.iter().map(|_| next(&board).1).collect();
            // A further one is not sent, and ends when it is cancelled.
            is_cancelled.store(true, Ordering::Release);
            let check = || is_cancelled.load(Ordering::Acquire);
            let more = link.exchange(Op::Call, call(99), None, Some(&check));
            assert!(matches!(more, Err(Error::Killed)));
            ids.iter().for_each(|id| reply(&board, *id, 1));
            calls
                .into_iter()
                .for_each(|call| assert!(call.join().unwrap().is_ok()));
        });
    }

    #[test]
    fn all_threads_notice_a_lost_board() {
        let (link, board) = pair();
        thread::scope(|scope| {
            let calls = (0..4)
                .map(|n| {
                    scope.spawn({
                        let link = &link;
                        move || link.exchange(Op::Call, call(n), None, None)
                    })
                })
                .collect::<Vec<_>>();
            for _ in 0..4 {
                next(&board);
            }
            drop(board);
            for call in calls {
                assert!(matches!(call.join().unwrap(), Err(Error::Lost(_))));
            }
        });
        let again = link.exchange(Op::Call, call(9), None, None);
        assert!(matches!(again, Err(Error::Lost(_))));
    }
}
