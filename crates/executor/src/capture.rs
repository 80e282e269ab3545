//! What kernels print.
//!
//! A driver prints to the process's standard output. The executor puts a pipe there, lets
//! kernels of programs that mention `printf` run one at a time in the whole process, and writes
//! a mark into the pipe behind each: all before the mark was that kernel's.

use rustix::io::{read, write, Errno};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Mutex;

const MARK_BYTES: usize = 32;
const CHUNK_BYTES: usize = 64 << 10;
/// What one kernel may print; the rest is dropped.
const PRINTED_BYTES_MAX: usize = 64 << 20;

/// The process's standard output, captured.
pub struct Capture {
    /// One printing kernel at a time.
    turn: Mutex<Turn>,
    output: OwnedFd,
}

struct Turn {
    mark: [u8; MARK_BYTES],
    printed: Receiver<Vec<u8>>,
}

impl Capture {
    /// Captures this process's standard output from now on.
    pub fn standard_output() -> std::io::Result<Capture> {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        rustix::stdio::dup2_stdout(&writer)?;
        Capture::over(reader, writer)
    }

    fn over(reader: OwnedFd, output: OwnedFd) -> std::io::Result<Capture> {
        // A kernel cannot guess it, so it cannot end another's output.
        let mut mark = [0; MARK_BYTES];
        rustix::rand::getrandom(&mut mark, rustix::rand::GetRandomFlags::empty())?;
        let (sender, printed) = channel();
        std::thread::Builder::new()
            .name("printf".into())
            .spawn(move || carry(reader, mark, sender))?;
        Ok(Capture {
            turn: Mutex::new(Turn { mark, printed }),
            output,
        })
    }

    /// Runs `kernel` alone and passes on what it printed, if anything.
    pub fn during<T>(&self, kernel: impl FnOnce() -> T, print: impl FnOnce(&[u8])) -> T {
        let turn = self.turn.lock().expect("no panic under this lock");
        let result = kernel();
        // SAFETY: flushes the C library's streams, which the driver may have printed through.
        unsafe { libc::fflush(std::ptr::null_mut()) };
        if write_all(&self.output, &turn.mark).is_ok() {
            if let Ok(printed) = turn.printed.recv() {
                if !printed.is_empty() {
                    print(&printed);
                }
            }
        }
        result
    }
}

fn write_all(fd: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match write(fd.as_fd(), bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Reads all the time, so that a kernel that prints more than a pipe holds gets on.
fn carry(reader: OwnedFd, mark: [u8; MARK_BYTES], printed: Sender<Vec<u8>>) {
    let mut text = Vec::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut searched = 0usize;
    loop {
        let n = match read(&reader, &mut chunk) {
            Ok(0) => return,
            Ok(n) => n,
            Err(Errno::INTR) => continue,
            Err(_) => return,
        };
        text.extend_from_slice(&chunk[..n]);
        let from = searched.saturating_sub(MARK_BYTES);
        let found = text[from..].windows(MARK_BYTES).position(|w| w == mark);
        if let Some(at) = found {
            let at = from + at;
            let rest = text.split_off(at + MARK_BYTES);
            text.truncate(at.min(PRINTED_BYTES_MAX));
            if printed.send(std::mem::replace(&mut text, rest)).is_err() {
                return;
            }
            searched = 0;
        } else {
            if text.len() > PRINTED_BYTES_MAX + CHUNK_BYTES {
                // Keeps the tail: the mark may be half there.
                let tail = text.split_off(text.len() - MARK_BYTES);
                text.truncate(PRINTED_BYTES_MAX);
                text.extend_from_slice(&tail);
            }
            searched = text.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_each_gets_what_it_printed_and_no_more() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let kernel_end = writer.try_clone().unwrap();
        let capture = Capture::over(reader, writer).unwrap();
        for text in ["one", "", "three", &"long ".repeat(100_000)] {
            let mut got = Vec::new();
            let result = capture.during(
                || {
                    write_all(&kernel_end, text.as_bytes()).unwrap();
                    7
                },
                |printed| got = printed.to_vec(),
            );
            assert_eq!((result, got.len()), (7, text.len()));
            assert_eq!(got, text.as_bytes());
        }
    }
}
