//! Sleeping on a word of shared memory.

#[cfg(not(loom))]
use std::time::Duration;

/// One iteration of a spin. It yields: on a busy machine, the scheduler may have queued the awaited
/// thread behind the spinning one, and spinning on would delay both.
pub(crate) fn pause() {
    for _ in 0..16 {
        std::hint::spin_loop();
    }
    std::thread::yield_now();
}

/// Sleeps until `word` is woken, unless it no longer holds `seen`; at most `timeout`. May return
/// spuriously: the caller checks again. False: the kernel does not support sleeping on this memory,
/// because it belongs to a device (a guest's shared region).
#[cfg(not(loom))]
pub fn futex_wait(
    word: &std::sync::atomic::AtomicU32,
    seen: u32,
    timeout: Option<Duration>,
) -> bool {
    #[cfg(miri)]
    {
        let _ = (word, seen, timeout);
        std::thread::yield_now();
        true
    }
    #[cfg(not(miri))]
    {
        let spec = timeout.map(|t| libc::timespec {
            tv_sec: t.as_secs() as libc::time_t,
            tv_nsec: t.subsec_nanos().into(),
        });
        let spec = spec
            .as_ref()
            .map_or(std::ptr::null(), |s| s as *const libc::timespec);
        // SAFETY: `word` is a live aligned word, `spec` is null or points at a timespec that
        // outlives the call; FUTEX_WAIT touches nothing else.
        let done =
            unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, seen, spec) };
        done == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT)
    }
}

/// A waiter's sleeps: on a word or, where that is not supported, naps that grow with the wait.
#[derive(Default)]
pub(crate) struct Sleeper {
    /// Start of the current wait's first nap, nanoseconds; 0: none.
    since_ns: std::sync::atomic::AtomicU64,
}

/// A nap is a sixteenth of the wait so far, within these bounds.
#[cfg(not(loom))]
const NAP_MIN: Duration = Duration::from_micros(20);
#[cfg(not(loom))]
const NAP_MAX: Duration = Duration::from_millis(2);

impl Sleeper {
    /// Ends the wait: the next one starts with short naps.
    pub fn woke(&self) {
        // Threads that share this may nap too long or too briefly, which is harmless.
        if self.since_ns.load(std::sync::atomic::Ordering::Relaxed) != 0 {
            self.since_ns.store(0, std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// Like [`futex_wait`].
    #[cfg(not(loom))]
    pub fn sleep(&self, word: &std::sync::atomic::AtomicU32, seen: u32, timeout: Option<Duration>) {
        use std::sync::atomic::Ordering::Relaxed;
        if futex_wait(word, seen, timeout) {
            return;
        }
        let now = crate::lease::monotonic_ns();
        let since = match self.since_ns.load(Relaxed) {
            0 => {
                self.since_ns.store(now, Relaxed);
                now
            }
            since => since,
        };
        let nap = Duration::from_nanos(now.saturating_sub(since) / 16).clamp(NAP_MIN, NAP_MAX);
        std::thread::sleep(nap.min(timeout.unwrap_or(nap)));
    }

    /// Like [`futex_wait`].
    #[cfg(loom)]
    pub fn sleep(
        &self,
        word: &crate::sync::AtomicU32,
        seen: u32,
        timeout: Option<std::time::Duration>,
    ) {
        futex_wait(word, seen, timeout);
    }
}

/// Wakes up to `count` sleepers of `word`, in any process.
#[cfg(not(loom))]
pub fn futex_wake(word: &std::sync::atomic::AtomicU32, count: u32) {
    let count = count.min(i32::MAX as u32);
    #[cfg(miri)]
    let _ = (word, count);
    // SAFETY: FUTEX_WAKE only uses the address of the live word.
    #[cfg(not(miri))]
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, count);
    }
}

#[cfg(loom)]
/// Under loom a sleeper yields: the model explores every wake-up.
pub fn futex_wait(_: &crate::sync::AtomicU32, _: u32, _: Option<std::time::Duration>) -> bool {
    loom::thread::yield_now();
    true
}

#[cfg(loom)]
/// Under loom waking is implied.
pub fn futex_wake(_: &crate::sync::AtomicU32, _: u32) {}
