//! Large copies, shared among a few threads if there are enough processors.
//!
//! One processor copies about 10 GB/s, a GPU's bus has several times that: on 16 cores 1 GB to an
//! H200 and back takes 62 ms with four threads instead of 217 ms. Concurrent copies, one to the
//! device and one from it, share the helpers.

use crate::core::process;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex};

/// Copies from this size are shared by several threads.
const SHARED_BYTES: usize = 256 << 10;
/// Size of the part of a shared copy that a thread takes at a time.
const PART_BYTES: usize = 32 << 10;
/// Polls for the next copy before a helper sleeps: the pieces of one transfer follow closely.
const LOOKS: u32 = 2000;

/// A copy that several threads work on, each taking the next part that is not taken.
struct Shared {
    source: usize,
    target: usize,
    len: usize,
    /// The target is not to be in the caches afterwards.
    streams: bool,
    /// Offset of the next part.
    next: AtomicUsize,
    /// Bytes copied.
    done: AtomicUsize,
}

impl Shared {
    fn work(&self) {
        loop {
            let at = self.next.fetch_add(PART_BYTES, Ordering::Relaxed);
            if at >= self.len {
                return;
            }
            let n = PART_BYTES.min(self.len - at);
            // SAFETY: `copy` answers for both ranges until all bytes are done, and these are not
            // before the line below.
            unsafe {
                let source = (self.source + at) as *const u8;
                let target = (self.target + at) as *mut u8;
                if self.streams {
                    stream(source, target, n)
                } else {
                    std::ptr::copy_nonoverlapping(source, target, n)
                }
            }
            self.done.fetch_add(n, Ordering::Release);
        }
    }
}

/// Copies past the caches where the processor can.
///
/// # Safety
/// Both places are valid for `len` bytes and do not overlap.
#[cfg(target_arch = "x86_64")]
unsafe fn stream(source: *const u8, target: *mut u8, len: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    const LINE: usize = 64;
    const WORD: usize = size_of::<__m128i>();
    // SAFETY: by the caller's promise; stores that have to be aligned begin at a line.
    unsafe {
        let head = target.align_offset(LINE).min(len);
        std::ptr::copy_nonoverlapping(source, target, head);
        let whole = head + (len - head) / LINE * LINE;
        for line in (head..whole).step_by(LINE) {
            let words: [__m128i; LINE / WORD] =
                std::array::from_fn(|n| _mm_loadu_si128(source.add(line + n * WORD).cast()));
            for (n, word) in words.into_iter().enumerate() {
                _mm_stream_si128(target.add(line + n * WORD).cast(), word);
            }
        }
        // Other stores of this thread, such as "done", come after these.
        _mm_sfence();
        std::ptr::copy_nonoverlapping(source.add(whole), target.add(whole), len - whole);
    }
}

/// # Safety
/// As above.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn stream(source: *const u8, target: *mut u8, len: usize) {
    // SAFETY: by the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(source, target, len) };
}

/// Threads that take part in copies.
pub struct Helpers(Mutex<Vec<Sender<Arc<Shared>>>>);

fn start() -> Helpers {
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
    // On few processors the executor and the driver need them more.
    let helpers = match processors {
        0..=4 => 0,
        5..=11 => 3,
        _ => 5,
    };
    let started = (0..helpers).filter_map(|_| {
        let (sender, copies) = channel();
        let thread = std::thread::Builder::new().name("baltra-copy".into());
        thread.spawn(move || help(&copies)).ok().map(|_| sender)
    });
    Helpers(Mutex::new(started.collect()))
}

fn help(copies: &Receiver<Arc<Shared>>) {
    loop {
        let looked = (0..LOOKS).find_map(|_| {
            std::hint::spin_loop();
            copies.try_recv().ok()
        });
        match looked.or_else(|| copies.recv().ok()) {
            Some(copy) => copy.work(),
            None => return,
        }
    }
}

/// Starts the helper threads; otherwise the first large copy does.
pub fn start_helpers() {
    process::current().helpers.get_or_init(start);
}

/// Copies between memory that does not overlap, in parallel if that pays.
pub fn copy(source: *const u8, target: *mut u8, len: usize) {
    copy_as(source, target, len, false);
}

/// As [`copy`], to memory that the device reads next: large copies bypass the caches. On an H100's
/// host 16 MB in pieces are written at 33 GB/s instead of 17.
pub fn copy_out(source: *const u8, target: *mut u8, len: usize) {
    copy_as(source, target, len, true);
}

fn copy_as(source: *const u8, target: *mut u8, len: usize, streams: bool) {
    let helpers = if len >= SHARED_BYTES {
        let helpers = process::current().helpers.get_or_init(start);
        helpers.0.lock().ok().filter(|h| !h.is_empty())
    } else {
        None
    };
    let Some(helpers) = helpers else {
        // SAFETY: the callers' invariant: both are valid for `len` bytes (the application's
        // end by its promise, ours by the block's length) and do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(source, target, len) };
        return;
    };
    let shared = Arc::new(Shared {
        source: source as usize,
        target: target as usize,
        len,
        streams,
        next: 0.into(),
        done: 0.into(),
    });
    let wanted = len.div_ceil(PART_BYTES) - 1;
    for helper in helpers.iter().take(wanted) {
        // A helper that has ended leaves its part to the others.
        let _ = helper.send(shared.clone());
    }
    drop(helpers);
    shared.work();
    while shared.done.load(Ordering::Acquire) != len {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_copies_are_whole() {
        for len in [
            0,
            1,
            SHARED_BYTES - 1,
            SHARED_BYTES,
            5 * SHARED_BYTES + 12_345,
        ] {
            let source: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
            let mut target = vec![0; len];
            copy(source.as_ptr(), target.as_mut_ptr(), len);
            assert!(source == target, "{len} bytes");
            target.fill(0);
            copy_out(source.as_ptr(), target.as_mut_ptr(), len);
            assert!(source == target, "{len} bytes out");
        }
    }

    #[test]
    fn bytes_past_the_caches_are_where_they_belong() {
        let source: Vec<u8> = (0..1000).map(|i| (i * 11) as u8).collect();
        for (from, to, len) in [
            (0, 0, 1000),
            (3, 5, 900),
            (1, 63, 64),
            (0, 1, 63),
            (9, 0, 0),
        ] {
            let mut target = vec![0u8; 1100];
            // SAFETY: both ranges lie inside their vectors.
            unsafe { stream(source[from..].as_ptr(), target[to..].as_mut_ptr(), len) };
            assert!(target[to..to + len] == source[from..from + len]);
            let others = target[..to].iter().chain(&target[to + len..]);
            assert!(others.copied().all(|byte| byte == 0));
        }
    }

    #[test]
    fn threads_share_a_copy_without_gaps() {
        let source: Vec<u8> = (0..3 * SHARED_BYTES + 77).map(|i| (i * 13) as u8).collect();
        let mut target = vec![0; source.len()];
        let shared = Shared {
            source: source.as_ptr() as usize,
            target: target.as_mut_ptr() as usize,
            len: source.len(),
            streams: true,
            next: 0.into(),
            done: 0.into(),
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| shared.work());
            }
        });
        assert_eq!(shared.done.into_inner(), source.len());
        assert!(source == target);
    }

    #[test]
    fn several_threads_copy_at_once() {
        std::thread::scope(|scope| {
            for n in 0..4u8 {
                scope.spawn(move || {
                    let source = vec![n; 3 * SHARED_BYTES];
                    let mut target = vec![0; source.len()];
                    for _ in 0..8 {
                        target.fill(0xff);
                        copy(source.as_ptr(), target.as_mut_ptr(), source.len());
                        assert!(source == target);
                    }
                });
            }
        });
    }
}
