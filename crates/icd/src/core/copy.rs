//! Large copies, shared among a few threads where there are processors for them.
//!
//! One processor copies about 10 GB/s, a GPU on its bus takes several times that: on 16 cores
//! 1 GB to an H200 and back takes 62 ms with four threads instead of 217 ms.

use crate::core::process;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Mutex;

/// Copies of so many bytes are shared.
const SHARED_BYTES: usize = 256 << 10;
/// Looks for the next part before a helper sleeps: the parts of one transfer follow closely.
const LOOKS: u32 = 2000;

struct Part {
    source: usize,
    target: usize,
    len: usize,
    /// The copying thread's count of unfinished parts.
    left: *const AtomicUsize,
}

// SAFETY: the copying thread waits in `copy` until `left` is zero, so the count and both ranges
// outlive the part.
unsafe impl Send for Part {}

/// Threads that take parts.
pub struct Helpers(Mutex<Vec<Sender<Part>>>);

fn start() -> Helpers {
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
    // On few processors the executor and the driver need them more.
    let helpers = match processors {
        0..=4 => 0,
        5..=11 => 3,
        _ => 5,
    };
    let started = (0..helpers).filter_map(|_| {
        let (sender, parts) = channel();
        let thread = std::thread::Builder::new().name("baltra-copy".into());
        thread.spawn(move || help(&parts)).ok().map(|_| sender)
    });
    Helpers(Mutex::new(started.collect()))
}

fn help(parts: &Receiver<Part>) {
    loop {
        let looked = (0..LOOKS).find_map(|_| {
            std::hint::spin_loop();
            parts.try_recv().ok()
        });
        let Some(part) = looked.or_else(|| parts.recv().ok()) else {
            return;
        };
        // SAFETY: `copy` answers for both ranges until the count says that they are done.
        unsafe {
            let source = part.source as *const u8;
            std::ptr::copy_nonoverlapping(source, part.target as *mut u8, part.len);
            (*part.left).fetch_sub(1, Ordering::Release);
        }
    }
}

/// Copies between places that do not overlap, in parallel where it pays.
pub fn copy(source: *const u8, target: *mut u8, len: usize) {
    // Helpers that are busy with another thread's copy are not waited for.
    let helpers = match len >= SHARED_BYTES {
        true => {
            let helpers = process::current().helpers.get_or_init(start);
            helpers.0.try_lock().ok().filter(|h| !h.is_empty())
        }
        false => None,
    };
    let Some(helpers) = helpers else {
        // SAFETY: the callers' invariant: both are valid for `len` bytes (the application's
        // end by its promise, ours by the block's length) and do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(source, target, len) };
        return;
    };
    let part = len.div_ceil(helpers.len() + 1).next_multiple_of(4096);
    let left = AtomicUsize::new(0);
    let mut own = vec![(0, part.min(len))];
    for (start, helper) in (part..len).step_by(part).zip(helpers.iter()) {
        let len = part.min(len - start);
        left.fetch_add(1, Ordering::Relaxed);
        let sent = helper.send(Part {
            source: source as usize + start,
            target: target as usize + start,
            len,
            left: &left,
        });
        if sent.is_err() {
            left.fetch_sub(1, Ordering::Relaxed);
            own.push((start, len));
        }
    }
    for (start, len) in own {
        // SAFETY: as above, a part of it.
        unsafe { std::ptr::copy_nonoverlapping(source.add(start), target.add(start), len) };
    }
    while left.load(Ordering::Acquire) != 0 {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_large_copies_are_whole() {
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
        }
    }

    #[test]
    fn test_several_threads_copy_at_once() {
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
