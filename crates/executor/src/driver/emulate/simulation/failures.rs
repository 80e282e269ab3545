//! Kernels that have failed, and the kernels at the other ends of their channels.
//!
//! A failure concerns the kernels that it leaves without a partner: those that run, and those that are
//! launched later. Each takes note of it once, with its next end, whatever that is. Kernels that have
//! failed one because of the other can therefore be launched again in any order.

use super::KernelId;

/// Maximum number of failures that are remembered.
const FAILURES_MAX: usize = 256;

struct Failure {
    kernel: KernelId,
    /// Kernels that have not ended since.
    concerned: Vec<KernelId>,
}

/// Kernels whose last launch has failed.
#[derive(Default)]
pub(super) struct Failures(Vec<Failure>);

impl Failures {
    /// A kernel has failed. `concerned`: kernels at the other ends of its channels, without those that
    /// have failed before it.
    pub fn add(&mut self, kernel: KernelId, concerned: Vec<KernelId>) {
        self.forget(kernel);
        if concerned.is_empty() {
            return;
        }
        if self.0.len() == FAILURES_MAX {
            self.0.remove(0);
        }
        self.0.push(Failure { kernel, concerned });
    }

    /// A kernel is launched again.
    pub fn forget(&mut self, kernel: KernelId) {
        self.0.retain(|failure| failure.kernel != kernel);
    }

    /// A kernel has ended.
    pub fn noted_by(&mut self, kernel: KernelId) {
        for failure in &mut self.0 {
            failure.concerned.retain(|concerned| *concerned != kernel);
        }
        self.0.retain(|failure| !failure.concerned.is_empty());
    }

    /// Whether a kernel's failure concerns another one.
    pub fn concerns(&self, kernel: KernelId, other: KernelId) -> bool {
        let mut failures = self.0.iter();
        failures.any(|f| f.kernel == kernel && f.concerned.contains(&other))
    }
}
