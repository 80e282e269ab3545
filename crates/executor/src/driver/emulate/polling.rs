//! Kernels with pipes that run. Such a kernel may repeat an attempt until another kernel is launched,
//! and the device cannot distinguish that from work.

use baltra_board::accelerator::manifest::Kernel;
use baltra_ring::lease::monotonic_ns;
use baltra_ring::Locked;
use std::sync::Mutex;

/// Time for which such a kernel runs before it counts as one that waits.
const AFTER_NS: u64 = 20_000_000;

static RUNNING: Beginnings = Beginnings(Mutex::new(Vec::new()));

/// When kernels began.
struct Beginnings(Mutex<Vec<u64>>);

impl Beginnings {
    fn add(&self, began_ns: u64) {
        self.0.locked().push(began_ns);
    }

    fn remove(&self, began_ns: u64) {
        let mut all = self.0.locked();
        if let Some(at) = all.iter().position(|began| *began == began_ns) {
            all.swap_remove(at);
        }
    }

    /// Whether a kernel has run for long.
    fn any_waits(&self, now_ns: impl Fn() -> u64) -> bool {
        let all = self.0.locked();
        let oldest = all.iter().min();
        oldest.is_some_and(|began| now_ns().saturating_sub(*began) > AFTER_NS)
    }
}

/// A kernel with pipes that runs, until it is dropped.
pub struct Polling(u64);

impl Polling {
    /// A kernel that begins; `None`: it has no pipes.
    pub fn begin(kernel: &Kernel) -> Option<Polling> {
        kernel.has_pipes().then(|| {
            let began = monotonic_ns();
            RUNNING.add(began);
            Polling(began)
        })
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        RUNNING.remove(self.0);
    }
}

/// Whether one of them may wait for another kernel.
pub fn kernels_poll() -> bool {
    RUNNING.any_waits(monotonic_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_counts_as_waiting_after_a_while_until_it_ends() {
        let all = Beginnings(Mutex::default());
        let waits = |now: u64| all.any_waits(|| now);
        assert!(!waits(u64::MAX));
        all.add(1000);
        all.add(1000);
        assert!(!waits(1000 + AFTER_NS));
        assert!(waits(1001 + AFTER_NS));
        all.remove(1000);
        assert!(waits(1001 + AFTER_NS));
        all.remove(1000);
        assert!(!waits(u64::MAX));
    }
}
