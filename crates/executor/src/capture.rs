//! Output of kernels (`printf`).
//!
//! A driver prints to the process's standard output. The executor redirects it to a file in memory
//! and runs kernels of programs that mention `printf` one at a time in the whole process: the
//! file's content after a kernel is that kernel's output. Each write to a file is atomic, even if
//! several threads of the driver write concurrently, at any length (to a pipe, up to 4,096 bytes
//! are): lines stay intact.

use baltra_ring::Locked;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, SeekFrom};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Mutex;

/// Maximum output of one kernel; writes beyond it fail in the driver.
const PRINTED_BYTES_MAX: u64 = 64 << 20;
const CHUNK_BYTES: usize = 1 << 20;

/// The process's standard output, captured.
pub struct Capture {
    /// The file; one printing kernel at a time.
    turn: Mutex<OwnedFd>,
}

impl Capture {
    /// Captures this process's standard output from now on.
    pub fn standard_output() -> std::io::Result<Capture> {
        let file = output_file()?;
        rustix::stdio::dup2_stdout(&file)?;
        Ok(Capture {
            turn: Mutex::new(file),
        })
    }

    /// Runs `kernel` alone and passes its output, if any, to `print` in pieces.
    pub fn during<T>(&self, kernel: impl FnOnce() -> T, mut print: impl FnMut(&[u8])) -> T {
        let file = self.turn.locked();
        let result = kernel();
        // SAFETY: flushes the C library's streams, which the driver may have printed through.
        unsafe { libc::fflush(std::ptr::null_mut()) };
        if let Err(error) = take(&file, &mut print) {
            tracing::warn!(%error, "cannot read the output that a kernel printed");
        }
        result
    }
}

/// An empty file in memory that cannot grow beyond [`PRINTED_BYTES_MAX`].
fn output_file() -> std::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = rustix::fs::memfd_create("baltra-printf", flags)?;
    rustix::fs::ftruncate(&memory, PRINTED_BYTES_MAX)?;
    rustix::fs::fcntl_add_seals(&memory, SealFlags::GROW | SealFlags::SHRINK)?;
    // Opened again: threads that write through one open memfd do not lock its position, threads
    // that write through an opened file do.
    let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
    Ok(std::fs::File::options()
        .read(true)
        .write(true)
        .open(path)?
        .into())
}

/// Empties the file. Its writers share its position, which therefore equals its length.
fn take(file: &OwnedFd, print: &mut impl FnMut(&[u8])) -> Result<(), Errno> {
    let len = rustix::fs::seek(file, SeekFrom::Current(0))?.min(PRINTED_BYTES_MAX);
    let mut chunk = vec![0; CHUNK_BYTES.min(len as usize)];
    let mut at = 0;
    while at < len {
        let wanted = chunk.len().min((len - at) as usize);
        match rustix::io::pread(file, &mut chunk[..wanted], at) {
            Ok(0) => break,
            Ok(n) => {
                print(&chunk[..n]);
                at += n as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    if len > 0 {
        rustix::fs::seek(file, SeekFrom::Start(0))?;
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(file, hole, 0, len)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;

    fn capture() -> (Capture, File) {
        let file = output_file().unwrap();
        let kernel_end = File::from(file.try_clone().unwrap());
        let turn = Mutex::new(file);
        (Capture { turn }, kernel_end)
    }

    #[test]
    fn each_gets_what_it_printed_and_no_more() {
        let (capture, mut kernel_end) = capture();
        for text in ["one", "", "three", &"long ".repeat(500_000), "short"] {
            let mut got = Vec::new();
            let result = capture.during(
                || {
                    kernel_end.write_all(text.as_bytes()).unwrap();
                    7
                },
                |printed| got.extend_from_slice(printed),
            );
            assert_eq!((result, got.len()), (7, text.len()));
            assert_eq!(got, text.as_bytes());
        }
    }

    #[test]
    fn lines_of_many_threads_stay_lines() {
        let (capture, kernel_end) = capture();
        let mut got = Vec::new();
        let block = |thread: u8| [&[b'a' + thread; 99][..], b"\n"].concat().repeat(200);
        let print = |thread: u8| {
            let mut end = &kernel_end;
            for _ in 0..50 {
                // One write, longer than a pipe's atomic writes.
                assert_eq!(end.write(&block(thread)).unwrap(), 20_000);
            }
        };
        capture.during(
            || {
                std::thread::scope(|scope| {
                    (0..4).for_each(|thread| drop(scope.spawn(move || print(thread))));
                });
            },
            |printed| got.extend_from_slice(printed),
        );
        assert_eq!(got.len(), 4 * 50 * 20_000);
        for block in got.chunks(20_000) {
            assert!(block.iter().all(|byte| *byte == block[0] || *byte == b'\n'));
        }
    }

    #[test]
    fn a_kernel_that_prints_without_end_is_cut() {
        let (capture, mut kernel_end) = capture();
        let mut got = 0;
        capture.during(
            || {
                let block = vec![b'x'; 1 << 20];
                let refused = (0..=64).any(|_| kernel_end.write_all(&block).is_err());
                assert!(refused);
            },
            |printed| got += printed.len(),
        );
        assert_eq!(got as u64, PRINTED_BYTES_MAX);
        capture.during(
            || kernel_end.write_all(b"next").unwrap(),
            |printed| assert_eq!(printed, b"next"),
        );
    }
}
