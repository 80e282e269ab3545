//! Memory accounting of requests and responses, in total and by tenant.
//!
//! A request's first [`FREE_BYTES`] are not counted: the limits on connections and calls bound
//! them, and small calls thus touch no shared counter.

use crate::http::admission::keys::TenantIndex;
use crate::http::problem::{Problem, Shed};
use crate::options::Options;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Duration;

/// Bytes that a request may use without accounting.
pub(crate) const FREE_BYTES: u64 = 64 << 10;
/// Assumed if the host's memory size cannot be read.
const HOST_BYTES: u64 = 8 << 30;

/// The limits and the accounted memory.
#[derive(Debug)]
pub(crate) struct Budget {
    bytes_max: u64,
    /// Limit of one tenant: half of the total if there are several tenants.
    tenant_bytes_max: u64,
    used: AtomicU64,
    by_tenant: Box<[AtomicU64]>,
}

impl Budget {
    pub fn new(options: &Options, tenants: usize) -> Arc<Budget> {
        let bytes_max = match options.limits.memory_bytes_max {
            0 => host_bytes() / 2,
            bytes => bytes,
        };
        Arc::new(Budget {
            bytes_max,
            tenant_bytes_max: if tenants > 1 {
                bytes_max / 2
            } else {
                bytes_max
            },
            used: AtomicU64::new(0),
            by_tenant: (0..tenants).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    /// Accounted bytes.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// The limit in bytes.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    fn take(&self, tenant: Option<TenantIndex>, bytes: u64) -> bool {
        let add = |counter: &AtomicU64, max: u64| {
            let before = counter.fetch_add(bytes, Relaxed);
            let fits = before.saturating_add(bytes) <= max;
            if !fits {
                counter.fetch_sub(bytes, Relaxed);
            }
            fits
        };
        let Some(own) = tenant.and_then(|tenant| self.by_tenant.get(tenant.0)) else {
            return add(&self.used, self.bytes_max);
        };
        if !add(own, self.tenant_bytes_max) {
            return false;
        }
        let fits = add(&self.used, self.bytes_max);
        if !fits {
            own.fetch_sub(bytes, Relaxed);
        }
        fits
    }

    fn give_back(&self, tenant: Option<TenantIndex>, bytes: u64) {
        if let Some(own) = tenant.and_then(|tenant| self.by_tenant.get(tenant.0)) {
            own.fetch_sub(bytes, Relaxed);
        }
        self.used.fetch_sub(bytes, Relaxed);
    }
}

/// The accounted memory of one request, released when dropped.
#[derive(Debug)]
pub(crate) struct Held {
    budget: Arc<Budget>,
    /// `None`: a management request.
    tenant: Option<TenantIndex>,
    bytes: u64,
}

impl Held {
    /// A new account of zero bytes.
    pub fn new(budget: &Arc<Budget>, tenant: Option<TenantIndex>) -> Held {
        Held {
            budget: budget.clone(),
            tenant,
            bytes: 0,
        }
    }

    fn counted(&self) -> u64 {
        self.bytes.saturating_sub(FREE_BYTES)
    }

    /// Adds bytes, or returns an error if a limit is reached.
    pub fn grow(&mut self, bytes: u64) -> Result<(), Problem> {
        let before = self.counted();
        let after = self.bytes.saturating_add(bytes).saturating_sub(FREE_BYTES);
        if after > before && !self.budget.take(self.tenant, after - before) {
            return Err(Problem::shed(
                Shed::Memory,
                format!(
                    "the requests' memory limit is reached, and this one needs {bytes} bytes more ('gateway.limits.memory_bytes_max'; with several tenants, half of it for each)"
                ),
                Duration::from_secs(1),
            )
            .closing());
        }
        self.bytes = self.bytes.saturating_add(bytes);
        Ok(())
    }

    /// Releases bytes.
    pub fn shrink(&mut self, bytes: u64) {
        let before = self.counted();
        self.bytes = self.bytes.saturating_sub(bytes);
        let less = before - self.counted();
        if less > 0 {
            self.budget.give_back(self.tenant, less);
        }
    }

    /// Sets the accounted bytes.
    pub fn set(&mut self, bytes: u64) -> Result<(), Problem> {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.grow(more),
            None => {
                self.shrink(self.bytes - bytes);
                Ok(())
            }
        }
    }

    /// Number of accounted bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the account if any of it is counted; the response keeps it until it has been sent.
    pub fn if_counted(self) -> Option<Held> {
        (self.counted() > 0).then_some(self)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

/// This host's memory, or the control group's limit if that is smaller.
fn host_bytes() -> u64 {
    let about = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = about
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
        .map_or(HOST_BYTES, |kib| kib.saturating_mul(1024));
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").unwrap_or_default();
    group
        .trim()
        .parse()
        .map_or(total, |max: u64| max.min(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RED: Option<TenantIndex> = Some(TenantIndex(0));
    const BLUE: Option<TenantIndex> = Some(TenantIndex(1));

    fn budget(bytes_max: u64, tenants: usize) -> Arc<Budget> {
        let mut options = Options::default();
        options.limits.memory_bytes_max = bytes_max;
        Budget::new(&options, tenants)
    }

    #[test]
    fn everything_held_is_given_back() {
        let budget = budget(1 << 20, 1);
        let mut held = Held::new(&budget, RED);
        held.grow(FREE_BYTES).unwrap();
        assert_eq!(budget.used(), 0);
        held.grow(1000).unwrap();
        assert_eq!(budget.used(), 1000);
        held.shrink(2000);
        assert_eq!(budget.used(), 0);
        held.grow(5000).unwrap();
        assert_eq!((budget.used(), held.bytes()), (4000, FREE_BYTES + 4000));
        drop(held);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn one_tenant_leaves_room_for_the_others() {
        let budget = budget(1 << 20, 2);
        let mut red = Held::new(&budget, RED);
        red.grow(FREE_BYTES + (1 << 19)).unwrap();
        let problem = red.grow(1).unwrap_err();
        assert_eq!(problem.status, 503);
        let mut blue = Held::new(&budget, BLUE);
        blue.grow(FREE_BYTES + (1 << 19)).unwrap();
        let mut admin = Held::new(&budget, None);
        assert!(admin.grow(FREE_BYTES + 1).is_err());
        drop(red);
        admin.grow(FREE_BYTES + 1).unwrap();
        drop((blue, admin));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn the_default_is_a_part_of_this_host() {
        let budget = budget(0, 1);
        assert!(budget.bytes_max() > 1 << 20 && budget.bytes_max() <= host_bytes());
    }
}
