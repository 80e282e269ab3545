//! Socket transfers directly from and into shared memory: scatter and gather without a copy.

use crate::memory::Range;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Most parts of one [`send`].
pub const PARTS_MAX: usize = 64;

/// A part to send.
#[derive(Clone, Copy)]
pub enum Part<'a> {
    /// Private bytes.
    Bytes(&'a [u8]),
    /// Shared memory, from an offset to the end of the range.
    Shared(&'a Range, usize),
}

impl Part<'_> {
    /// Number of bytes.
    pub fn len(&self) -> usize {
        match self {
            Part::Bytes(bytes) => bytes.len(),
            Part::Shared(range, from) => range.len().saturating_sub(*from),
        }
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn vector(base: *mut u8, len: usize) -> libc::iovec {
    libc::iovec {
        iov_base: base.cast(),
        iov_len: len,
    }
}

fn message(vectors: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: all-zero is a valid `msghdr`: no name, no control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vectors.as_mut_ptr();
    message.msg_iovlen = vectors.len() as _;
    message
}

/// Sends the first [`PARTS_MAX`] parts, as far as the socket accepts them at once (`WouldBlock`:
/// nothing). Never raises SIGPIPE.
pub fn send(socket: impl AsFd, parts: &[Part<'_>]) -> io::Result<usize> {
    let mut vectors = [vector(std::ptr::null_mut(), 0); PARTS_MAX];
    let count = parts.len().min(PARTS_MAX);
    for (vector_at, part) in vectors.iter_mut().zip(parts) {
        *vector_at = match part {
            Part::Bytes(bytes) => vector(bytes.as_ptr().cast_mut(), bytes.len()),
            Part::Shared(range, from) => vector(range.ptr().wrapping_add(*from), part.len()),
        };
    }
    let message = message(&mut vectors[..count]);
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    loop {
        // SAFETY: every vector points to live bytes that the borrowed parts keep; the kernel only
        // reads them.
        let sent = unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &message, flags) };
        if sent >= 0 {
            return Ok(sent as usize);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Receives, blocking: first into `shared` (if any), then into `bytes`. 0: the peer has closed.
/// With empty `bytes`, it waits until `shared` is full, and returns less only at the end of the
/// stream or after a signal.
pub fn recv(socket: impl AsFd, shared: Option<&Range>, bytes: &mut [u8]) -> io::Result<usize> {
    let flags = match (shared, bytes.is_empty()) {
        (Some(_), true) => libc::MSG_WAITALL,
        _ => 0,
    };
    let mut vectors = [
        shared.map_or(vector(std::ptr::null_mut(), 0), |r| {
            vector(r.ptr(), r.len())
        }),
        vector(bytes.as_mut_ptr(), bytes.len()),
    ];
    let mut message = message(&mut vectors);
    loop {
        // SAFETY: both vectors point to writable bytes: those of the range, which its clone holder
        // keeps mapped, and the exclusively borrowed `bytes`.
        let got = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &mut message, flags) };
        if got >= 0 {
            return Ok(got as usize);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

impl Range {
    /// Copies `bytes` into the range at `offset`. Panics if they do not fit.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) {
        assert!(offset <= self.len() && bytes.len() <= self.len() - offset);
        // SAFETY: the target lies in the range (checked above), which is mapped while it lives;
        // `bytes` is private memory, so the two cannot overlap.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.ptr().add(offset), bytes.len());
        }
    }

    /// Copies from the range at `offset` into `bytes`. Panics if the range is too short.
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) {
        assert!(offset <= self.len() && bytes.len() <= self.len() - offset);
        // SAFETY: as in `copy_in`, in the opposite direction; any bytes are valid.
        unsafe {
            std::ptr::copy_nonoverlapping(self.ptr().add(offset), bytes.as_mut_ptr(), bytes.len());
        }
    }

    /// Like [`Range::copy_out`], but appends `len` bytes to `bytes`, which need not be initialized
    /// first.
    pub fn append_to(&self, offset: usize, len: usize, bytes: &mut Vec<u8>) {
        assert!(offset <= self.len() && len <= self.len() - offset);
        bytes.reserve(len);
        let old = bytes.len();
        // SAFETY: as in `copy_out`; `len` bytes after the existing ones were reserved, and the copy
        // initializes them.
        unsafe {
            let target = bytes.as_mut_ptr().add(old);
            std::ptr::copy_nonoverlapping(self.ptr().add(offset), target, len);
            bytes.set_len(old + len);
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use std::os::unix::net::UnixStream;

    #[test]
    fn shared_and_private_parts_arrive_in_order() {
        let memory = Memory::anonymous(4096).unwrap();
        let (from, into) = (memory.slice(0, 8).unwrap(), memory.slice(64, 6).unwrap());
        from.copy_in(0, b"-shared!");
        let (a, b) = UnixStream::pair().unwrap();
        let sent = send(&a, &[Part::Bytes(b"head"), Part::Shared(&from, 1)]).unwrap();
        assert_eq!(sent, 11);
        let mut rest = [0; 16];
        assert_eq!(recv(&b, Some(&into), &mut rest).unwrap(), 11);
        let mut first = [0; 6];
        into.copy_out(0, &mut first);
        assert_eq!((&first, &rest[..5]), (b"headsh", &b"ared!"[..]));
        let mut longer = b"> ".to_vec();
        into.append_to(4, 2, &mut longer);
        assert_eq!(longer, b"> sh");
    }

    #[test]
    fn without_other_bytes_all_of_the_range_is_awaited() {
        let memory = Memory::anonymous(4096).unwrap();
        let into = memory.slice(0, 8).unwrap();
        let (a, b) = UnixStream::pair().unwrap();
        std::thread::scope(|s| {
            let got = s.spawn(|| recv(&b, Some(&into), &mut []).unwrap());
            for half in [&b"some"[..], b"more", b"rest"] {
                send(&a, &[Part::Bytes(half)]).unwrap();
            }
            assert_eq!(got.join().unwrap(), 8);
        });
        drop(a);
        assert_eq!(recv(&b, Some(&into), &mut []).unwrap(), 4);
        assert_eq!(recv(&b, Some(&into), &mut []).unwrap(), 0);
    }

    #[test]
    fn a_full_socket_would_block() {
        let (a, _b) = UnixStream::pair().unwrap();
        let bytes = vec![0; 1 << 20];
        let error = loop {
            if let Err(e) = send(&a, &[Part::Bytes(&bytes)]) {
                break e;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
