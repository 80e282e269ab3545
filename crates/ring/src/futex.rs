//! Sleeping on a word of shared memory.

#[cfg(not(loom))]
use std::time::Duration;

/// One turn of a spin. It yields: on a busy machine the scheduler may have put the very thread
/// that is waited for behind the spinning one, and then every spin is lost time for both.
pub(crate) fn pause() {
    for _ in 0..16 {
        std::hint::spin_loop();
    }
    std::thread::yield_now();
}

/// Sleeps until somebody wakes `word`, unless it no longer holds `seen`; at most `timeout`.
/// May return for no reason: the caller looks again.
#[cfg(not(loom))]
pub fn futex_wait(word: &std::sync::atomic::AtomicU32, seen: u32, timeout: Option<Duration>) {
    #[cfg(miri)]
    {
        let _ = (word, seen, timeout);
        std::thread::yield_now();
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
        unsafe {
            libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, seen, spec);
        }
    }
}

/// Wakes up to `count` sleepers of `word`, in whatever process.
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
pub fn futex_wait(_: &crate::sync::AtomicU32, _: u32, _: Option<std::time::Duration>) {
    loom::thread::yield_now();
}

#[cfg(loom)]
/// Under loom waking is implied.
pub fn futex_wake(_: &crate::sync::AtomicU32, _: u32) {}
