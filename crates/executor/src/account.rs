//! A tenant's use of the device: its lease, its memory, its commands.

use baltra_ring::LeaseHolder;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// One tenant's account; its sessions share it.
pub struct Account {
    /// The claim to the device.
    pub lease: LeaseHolder,
    memory_bytes: AtomicU64,
    memory_bytes_max: u64,
    queued: AtomicU64,
    /// Bytes of objects that may leave the device: on the device, and in host memory.
    resident_bytes: AtomicU64,
    swapped_bytes: AtomicU64,
}

impl Account {
    /// An account with nothing on it.
    pub fn new(lease: LeaseHolder, memory_bytes_max: u64) -> Account {
        Account {
            lease,
            memory_bytes: 0.into(),
            memory_bytes_max,
            queued: 0.into(),
            resident_bytes: 0.into(),
            swapped_bytes: 0.into(),
        }
    }

    /// Charges memory for an object; `None`: over the limit. The charge ends when it is dropped.
    pub fn charge(self: &Arc<Account>, bytes: u64) -> Option<Charge> {
        let max = self.memory_bytes_max;
        let charged =
            self.memory_bytes
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
                    held.checked_add(bytes).filter(|held| *held <= max)
                });
        charged.ok()?;
        self.show();
        Some(Charge {
            account: self.clone(),
            bytes,
        })
    }

    /// Changes the number of a queue's outstanding commands.
    pub fn queued(&self, before: u64, now: u64) {
        if now == before {
            return;
        }
        self.queued
            .fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        self.show();
    }

    /// Bytes charged now.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    /// Counts a new object that may leave the device.
    pub fn reside(&self, bytes: u64, is_resident: bool) {
        self.place(is_resident).fetch_add(bytes, Ordering::Relaxed);
        self.show_residence();
    }

    /// Ends the count of an object.
    pub fn unreside(&self, bytes: u64, was_resident: bool) {
        self.place(was_resident).fetch_sub(bytes, Ordering::Relaxed);
        self.show_residence();
    }

    /// Moves an object's count: to the device, or to host memory.
    pub fn moved(&self, bytes: u64, to_device: bool) {
        self.place(to_device).fetch_add(bytes, Ordering::Relaxed);
        self.place(!to_device).fetch_sub(bytes, Ordering::Relaxed);
        self.show_residence();
    }

    /// Bytes of objects on the device and in host memory.
    pub fn residence(&self) -> (u64, u64) {
        let load = |of: &AtomicU64| of.load(Ordering::Relaxed);
        (load(&self.resident_bytes), load(&self.swapped_bytes))
    }

    fn place(&self, on_device: bool) -> &AtomicU64 {
        if on_device {
            &self.resident_bytes
        } else {
            &self.swapped_bytes
        }
    }

    fn show_residence(&self) {
        let (resident, swapped) = self.residence();
        self.lease.gauge_residence(resident, swapped);
    }

    fn show(&self) {
        self.lease
            .gauge(self.queued.load(Ordering::Relaxed), self.memory_bytes());
    }
}

/// Memory on an account.
pub struct Charge {
    account: Arc<Account>,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account
            .memory_bytes
            .fetch_sub(self.bytes, Ordering::Relaxed);
        self.account.show();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_limit_is_ever_charged() {
        let (page, bell) = baltra_ring::lease::create().unwrap();
        let lease = LeaseHolder::new(&page, bell).unwrap();
        let account = Arc::new(Account::new(lease, 100));
        let first = account.charge(60).unwrap();
        assert!(account.charge(41).is_none());
        assert!(account.charge(u64::MAX).is_none());
        let second = account.charge(40).unwrap();
        drop(first);
        assert_eq!(account.memory_bytes(), 40);
        drop(second);
        assert_eq!(account.memory_bytes(), 0);
    }
}
