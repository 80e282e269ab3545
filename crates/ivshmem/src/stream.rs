//! The rings' messages over a stream of bytes, for a VM that has no `ivshmem` device: a
//! virtio-serial port, or TCP. Both sides.
//!
//! The stream consists of pieces: [`PIECE`], a kind, two bytes of length (little endian), and the
//! content.
//!
//! | kind | content |
//! |---|---|
//! | [`HELLO`] | an application begins, with its own number; the host drops the previous one's state, and answers with the same number |
//! | [`DATA`] | a part of the frames' bytes |
//! | [`TROUBLE`] | the host stops serving the application: a [`crate::Reason`]'s number, or 0 |
//!
//! A frame consists of the length of its message (four bytes), the length of its arena data
//! (eight), the data's offset in the arena (eight), then both. Each side has its own arena; data
//! that a message places in the arena are part of the frame.
//!
//! A serial port stays open while applications come and go, and one that is killed leaves an
//! incomplete piece. So an application begins with more zeros than a piece has bytes: zeros between
//! pieces are ignored, and a receiver that has lost synchronization searches for them.

use crate::message::MESSAGE_BYTES_MAX;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

const PIECE: u8 = 0xb7;
const HELLO: u8 = 1;
const DATA: u8 = 2;
const TROUBLE: u8 = 3;
const HEAD_BYTES: usize = 4;
const PIECE_BYTES_MAX: usize = 4096;
/// Bytes of an application's number.
const NUMBER_BYTES: usize = 16;
const FRAME_HEAD_BYTES: usize = 20;
/// This many consecutive zeros occur at an application's beginning only.
const LOST_ZEROS: usize = 64;
const READ_BYTES: usize = 64 << 10;

/// A message with its arena data.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// A request or an answer.
    pub message: Vec<u8>,
    /// Offset of the data in the arena.
    pub at: u64,
    /// The arena data.
    pub rest: Vec<u8>,
}

/// A received item.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// An application begins.
    Hello([u8; NUMBER_BYTES]),
    /// A message.
    Frame(Frame),
    /// The host stops serving the application.
    Trouble(u8),
    /// Malformed bytes. Input is skipped until an application begins.
    Garbage,
}

/// One end of a stream, whose descriptor does not block.
pub struct Pipe {
    descriptor: OwnedFd,
    /// Received bytes, unread from `at` on.
    incoming: Vec<u8>,
    at: usize,
    /// Bytes of an incomplete frame.
    data: Vec<u8>,
    rest_bytes_max: u64,
    /// Synchronization is lost; the number of zeros since then.
    lost: Option<usize>,
}

impl Pipe {
    /// A pipe over a non-blocking descriptor; `rest_bytes_max` bounds a frame's arena data.
    pub fn new(descriptor: OwnedFd, rest_bytes_max: u64) -> Pipe {
        Pipe {
            descriptor,
            incoming: Vec::new(),
            at: 0,
            data: Vec::new(),
            rest_bytes_max,
            lost: Some(0),
        }
    }

    /// Starts an application's connection: waits at most `patience` for the host's answer.
    pub fn greet(&mut self, number: [u8; NUMBER_BYTES], patience: Duration) -> io::Result<()> {
        let mut out = vec![0; HEAD_BYTES + PIECE_BYTES_MAX + LOST_ZEROS];
        piece(&mut out, HELLO, &number);
        self.write(&out)?;
        let mut wanted = Vec::new();
        piece(&mut wanted, HELLO, &number);
        let deadline = std::time::Instant::now() + patience;
        // The answer may follow bytes that the previous application did not read.
        loop {
            let unread = &self.incoming[self.at..];
            if let Some(found) = unread.windows(wanted.len()).position(|w| w == wanted) {
                self.at += found + wanted.len();
                self.lost = None;
                return Ok(());
            }
            self.at += unread.len().saturating_sub(wanted.len());
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if !self.read()? {
                self.wait(left);
            }
        }
    }

    /// Answers an application that begins.
    pub fn welcome(&mut self, number: [u8; NUMBER_BYTES]) -> io::Result<()> {
        let mut out = Vec::new();
        piece(&mut out, HELLO, &number);
        self.write(&out)
    }

    /// Notifies the application that it is no longer served.
    pub fn trouble(&mut self, reason: u8) -> io::Result<()> {
        let mut out = Vec::new();
        piece(&mut out, TROUBLE, &[reason]);
        self.write(&out)
    }

    /// Sends a message. Input received meanwhile is kept.
    pub fn send(&mut self, message: &[u8], at: u64, rest: &[u8]) -> io::Result<()> {
        let mut frame = Vec::with_capacity(FRAME_HEAD_BYTES + message.len() + rest.len());
        frame.extend_from_slice(&(message.len() as u32).to_le_bytes());
        frame.extend_from_slice(&(rest.len() as u64).to_le_bytes());
        frame.extend_from_slice(&at.to_le_bytes());
        frame.extend_from_slice(message);
        frame.extend_from_slice(rest);
        let mut out = Vec::with_capacity(frame.len() + frame.len() / 512 + HEAD_BYTES);
        for bytes in frame.chunks(PIECE_BYTES_MAX) {
            piece(&mut out, DATA, bytes);
        }
        self.write(&out)
    }

    /// The next item; `None`: there is none yet. An error means that the stream has ended.
    pub fn receive(&mut self) -> io::Result<Option<Received>> {
        loop {
            if let Some(received) = self.parse() {
                if received == Received::Garbage {
                    self.lost = Some(0);
                    self.data.clear();
                }
                return Ok(Some(received));
            }
            if !self.read()? {
                return Ok(None);
            }
        }
    }

    /// Waits until input may be available, at most `limit`.
    pub fn wait(&self, limit: Duration) {
        self.poll(PollFlags::IN, limit);
    }

    fn poll(&self, flags: PollFlags, limit: Duration) -> PollFlags {
        let mut fds = [PollFd::new(&self.descriptor, flags)];
        let limit = Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: limit.subsec_nanos().into(),
        };
        // A signal only ends the wait early.
        let _ = poll(&mut fds, Some(&limit));
        fds[0].revents()
    }

    /// Reads available bytes; returns whether there were any.
    fn read(&mut self) -> io::Result<bool> {
        self.incoming.drain(..self.at);
        self.at = 0;
        let old = self.incoming.len();
        self.incoming.resize(old + READ_BYTES, 0);
        let got = rustix::io::retry_on_intr(|| {
            rustix::io::read(&self.descriptor, &mut self.incoming[old..])
        });
        self.incoming.truncate(old + *got.as_ref().unwrap_or(&0));
        match got {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(true),
            Err(rustix::io::Errno::AGAIN) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Both sides may be sending a long message: input is received meanwhile, otherwise neither
    /// side would make progress.
    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match rustix::io::write(&self.descriptor, bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => {
                    // A correct peer never has more bytes outstanding.
                    let most = 2 * (self.rest_bytes_max as usize + MESSAGE_BYTES_MAX);
                    let room = self.incoming.len() < most;
                    let wanted = if room {
                        PollFlags::IN | PollFlags::OUT
                    } else {
                        PollFlags::OUT
                    };
                    let ready = self.poll(wanted, Duration::from_secs(1));
                    if ready.intersects(PollFlags::HUP | PollFlags::ERR) {
                        return Err(io::ErrorKind::BrokenPipe.into());
                    }
                    if ready.contains(PollFlags::IN) {
                        self.read()?;
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn parse(&mut self) -> Option<Received> {
        loop {
            if let Some(frame) = self.frame() {
                return Some(frame);
            }
            let unread = &self.incoming[self.at..];
            let first = *unread.first()?;
            if let Some(zeros) = &mut self.lost {
                self.at += 1;
                match first {
                    0 => *zeros += 1,
                    PIECE if *zeros >= LOST_ZEROS => {
                        self.at -= 1;
                        self.lost = None;
                    }
                    _ => *zeros = 0,
                }
                continue;
            }
            if first == 0 {
                self.at += 1;
                continue;
            }
            if first != PIECE {
                return Some(Received::Garbage);
            }
            let (head, rest) = unread.split_first_chunk::<HEAD_BYTES>()?;
            let bytes = usize::from(u16::from_le_bytes([head[2], head[3]]));
            if bytes > PIECE_BYTES_MAX {
                return Some(Received::Garbage);
            }
            let payload = rest.get(..bytes)?;
            self.at += HEAD_BYTES + bytes;
            match (head[1], payload) {
                (HELLO, number) => {
                    self.data.clear();
                    let number = number.try_into();
                    return Some(number.map_or(Received::Garbage, Received::Hello));
                }
                (TROUBLE, [reason]) => return Some(Received::Trouble(*reason)),
                (DATA, bytes) => self.data.extend_from_slice(bytes),
                _ => return Some(Received::Garbage),
            }
        }
    }

    /// Takes a frame if it is complete.
    fn frame(&mut self) -> Option<Received> {
        let (head, body) = self.data.split_first_chunk::<FRAME_HEAD_BYTES>()?;
        let u64_at = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight"));
        let message = u32::from_le_bytes(head[..4].try_into().expect("four")) as usize;
        let (rest, at) = (u64_at(4), u64_at(12));
        if message > MESSAGE_BYTES_MAX || rest > self.rest_bytes_max {
            return Some(Received::Garbage);
        }
        let end = message + rest as usize;
        if body.len() < end {
            return None;
        }
        let frame = Frame {
            message: body[..message].to_vec(),
            at,
            rest: body[message..end].to_vec(),
        };
        self.data.drain(..FRAME_HEAD_BYTES + end);
        Some(Received::Frame(frame))
    }
}

fn piece(out: &mut Vec<u8>, kind: u8, payload: &[u8]) {
    out.extend_from_slice(&[PIECE, kind]);
    out.extend_from_slice(&(payload.len() as u16).to_le_bytes());
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    fn pair() -> (Pipe, Pipe, UnixStream) {
        let (guest, host) = UnixStream::pair().unwrap();
        let raw = guest.try_clone().unwrap();
        for end in [&guest, &host] {
            end.set_nonblocking(true).unwrap();
        }
        (
            Pipe::new(guest.into(), 1 << 20),
            Pipe::new(host.into(), 1 << 20),
            raw,
        )
    }

    fn next(pipe: &mut Pipe) -> Received {
        loop {
            if let Some(received) = pipe.receive().unwrap() {
                return received;
            }
            pipe.wait(Duration::from_secs(10));
        }
    }

    /// An application begins, and the host detects it.
    fn greeted(guest: &mut Pipe, host: &mut Pipe, number: u8) -> Vec<Received> {
        let mut before = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| guest.greet([number; 16], Duration::from_secs(20)).unwrap());
            loop {
                match next(host) {
                    Received::Hello(number) => {
                        host.welcome(number).unwrap();
                        break;
                    }
                    other => before.push(other),
                }
            }
        });
        before
    }

    #[test]
    fn frames_arrive_whole() {
        let (mut guest, mut host, _) = pair();
        assert!(greeted(&mut guest, &mut host, 7).is_empty());
        let rest: Vec<u8> = (0..100_000u32).map(|i| i as u8).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| guest.send(b"a request", 64, &rest).unwrap());
            let frame = Frame {
                message: b"a request".to_vec(),
                at: 64,
                rest: rest.clone(),
            };
            assert_eq!(next(&mut host), Received::Frame(frame));
        });
        host.trouble(8).unwrap();
        assert_eq!(next(&mut guest), Received::Trouble(8));
    }

    #[test]
    fn two_that_both_say_much_get_on() {
        let (mut guest, mut host, _) = pair();
        greeted(&mut guest, &mut host, 1);
        let much = vec![3; 1 << 20];
        std::thread::scope(|scope| {
            // Both sides receive after sending, otherwise the peer would wait for space.
            for (pipe, message) in [(&mut guest, b"there"), (&mut host, b"back.")] {
                let much = &much;
                scope.spawn(move || {
                    pipe.send(message, 0, much).unwrap();
                    assert!(matches!(next(pipe), Received::Frame(frame) if frame.rest == *much));
                });
            }
        });
    }

    #[test]
    fn who_is_cut_off_in_a_piece_is_forgotten_by_the_next() {
        let (mut guest, mut host, mut raw) = pair();
        greeted(&mut guest, &mut host, 1);
        raw.write_all(&[PIECE, DATA, 0, 16, 9, 9, 9]).unwrap();
        let before = greeted(&mut guest, &mut host, 2);
        assert!(before.iter().all(|received| *received == Received::Garbage));
        guest.send(b"again", 0, &[]).unwrap();
        assert!(matches!(next(&mut host), Received::Frame(frame) if frame.message == b"again"));
    }

    proptest! {
        #[test]
        fn whatever_was_said_before_an_application_begins_is_passed_over(
            bytes in proptest::collection::vec(any::<u8>(), 0..6000),
        ) {
            let (mut guest, mut host, mut raw) = pair();
            greeted(&mut guest, &mut host, 1);
            raw.set_nonblocking(false).unwrap();
            raw.write_all(&bytes).unwrap();
            raw.set_nonblocking(true).unwrap();
            // Bytes that equal the end of a beginning count as one.
            greeted(&mut guest, &mut host, 2);
            guest.send(b"again", 0, &[]).unwrap();
            prop_assert!(matches!(next(&mut host), Received::Frame(frame) if frame.message == b"again"));
        }
    }
}
