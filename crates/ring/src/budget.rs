//! The memory budget of a device that several executors share, each for tenants of its own: a page
//! that the manager makes and all of them map.
//!
//! Each executor has a slot with the memory that its objects take, which only that executor writes.
//! One that needs more than is free takes the lead, which one executor has at a time, and asks the
//! others to free memory, of those that have been idle for longest first. They need no turn of the
//! device for that. The manager empties the slot of an executor that has ended.
//!
//! The numbers decide what leaves the device, not what may be accessed: an executor that writes
//! wrong ones, or does not answer, delays others or has them swap, as one that takes the device's
//! memory past Baltra would.

use crate::futex::{futex_wait, futex_wake};
use crate::memory::{create_sealed, Memory};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Executors of a device.
pub const SLOTS: usize = 255;

const PAGE_BYTES: u64 = size_of::<Layout>() as u64;

#[repr(C, align(64))]
struct Slot {
    /// Bytes on the device, or on their way there.
    resident: AtomicU64,
    /// Of these, bytes that cannot leave.
    fixed: AtomicU64,
    /// Bytes of all objects.
    total: AtomicU64,
    /// Bytes of copies in host memory.
    host: AtomicU64,
    /// When one of its objects was last used, `CLOCK_MONOTONIC` in nanoseconds.
    used_ns: AtomicU64,
    /// Bytes that it should free; 0: none, or it has answered.
    wanted: AtomicU64,
    /// Changes whenever `wanted` is set, or others urge it.
    bell: AtomicU32,
}

#[repr(C)]
struct Layout {
    /// The slot that leads, plus one; 0: none.
    leader: AtomicU32,
    /// Changes with each answer and each end of a lead.
    changes: AtomicU32,
    slots: [Slot; SLOTS],
}

/// Maps the page.
#[derive(Clone)]
pub struct Budget {
    memory: Memory,
}

/// The memory that all executors but one take together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// Bytes on the device.
    pub resident: u64,
    /// Bytes of all objects.
    pub total: u64,
    /// Bytes of copies in host memory.
    pub host: u64,
}

/// An executor with objects that may leave the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Slot of the executor.
    pub slot: usize,
    /// Bytes on the device that may leave once no command uses them.
    pub movable: u64,
    /// When one of its objects was last used, `CLOCK_MONOTONIC` in nanoseconds.
    pub used_ns: u64,
}

impl Budget {
    /// A new page.
    pub fn create() -> io::Result<(Budget, OwnedFd)> {
        let fd = create_sealed("baltra-budget", PAGE_BYTES)?;
        Ok((Budget::map(&fd)?, fd))
    }

    /// The page that the manager sent.
    pub fn map(fd: &OwnedFd) -> io::Result<Budget> {
        let memory = Memory::map(fd, PAGE_BYTES)?;
        Ok(Budget { memory })
    }

    fn layout(&self) -> &Layout {
        // SAFETY: the mapping has the layout's size, is page-aligned and lives as long as the
        // borrow; atomics are valid for any bytes.
        unsafe { &*self.memory.base().cast() }
    }

    /// Empties the slot of an executor that has ended.
    pub fn clear(&self, slot: usize) {
        let layout = self.layout();
        let Some(own) = layout.slots.get(slot) else {
            return;
        };
        let words = [
            &own.resident,
            &own.fixed,
            &own.total,
            &own.host,
            &own.used_ns,
            &own.wanted,
        ];
        for word in words {
            word.store(0, Ordering::Release);
        }
        self.end_lead(slot);
    }

    fn end_lead(&self, slot: usize) {
        let leader = &self.layout().leader;
        let number = slot as u32 + 1;
        let _ = leader.compare_exchange(number, 0, Ordering::AcqRel, Ordering::Relaxed);
        self.announce();
    }

    fn announce(&self) {
        let changes = &self.layout().changes;
        changes.fetch_add(1, Ordering::Release);
        futex_wake(changes, u32::MAX);
    }
}

/// An executor's view of the budget.
pub struct Member {
    budget: Budget,
    slot: usize,
}

impl Member {
    /// The member in a slot that the manager has assigned; `None`: there is no such slot.
    pub fn new(budget: Budget, slot: usize) -> Option<Member> {
        (slot < SLOTS).then_some(Member { budget, slot })
    }

    /// The only member of a budget of its own.
    pub fn alone() -> io::Result<Member> {
        let (budget, _) = Budget::create()?;
        Ok(Member { budget, slot: 0 })
    }

    fn own(&self) -> &Slot {
        &self.budget.layout().slots[self.slot]
    }

    fn others(&self) -> impl Iterator<Item = (usize, &Slot)> {
        let all = self.budget.layout().slots.iter().enumerate();
        all.filter(|(slot, _)| *slot != self.slot)
    }

    /// Says what this executor's objects take: on the device, of that what cannot leave, all in
    /// all, and in host memory.
    pub fn publish(&self, resident: u64, fixed: u64, total: u64, host: u64) {
        let own = self.own();
        // Each reads the others' words after it has written its own, so that of two that grow at
        // the same time one at least sees the other.
        own.resident.store(resident, Ordering::SeqCst);
        own.fixed.store(fixed, Ordering::Release);
        own.total.store(total, Ordering::SeqCst);
        own.host.store(host, Ordering::Release);
    }

    /// Says that an object is used at `now_ns` (`CLOCK_MONOTONIC`).
    pub fn touch(&self, now_ns: u64) {
        self.own().used_ns.fetch_max(now_ns, Ordering::Relaxed);
    }

    /// The memory that the others take.
    pub fn taken(&self) -> Others {
        let mut sum = Others::default();
        for (_, slot) in self.others() {
            let add = |sum: u64, word: &AtomicU64| sum.saturating_add(word.load(Ordering::SeqCst));
            sum.resident = add(sum.resident, &slot.resident);
            sum.total = add(sum.total, &slot.total);
            sum.host = add(sum.host, &slot.host);
        }
        sum
    }

    /// Other executors that could free memory, of which the first has been idle for longest.
    pub fn peers(&self) -> Vec<Peer> {
        let peers = self.others().map(|(slot, other)| Peer {
            slot,
            movable: movable(other),
            used_ns: other.used_ns.load(Ordering::Relaxed),
        });
        let mut peers: Vec<_> = peers.filter(|peer| peer.movable > 0).collect();
        peers.sort_by_key(|peer| peer.used_ns);
        peers
    }

    /// Bytes on an executor's part of the device that may leave.
    pub fn movable(&self, slot: usize) -> u64 {
        self.budget.layout().slots.get(slot).map_or(0, movable)
    }

    /// Takes the lead, if no executor has it.
    pub fn lead(self: &Arc<Member>) -> Option<Lead> {
        let leader = &self.budget.layout().leader;
        let number = self.slot as u32 + 1;
        leader
            .compare_exchange(0, number, Ordering::AcqRel, Ordering::Relaxed)
            .ok()
            .map(|_| Lead {
                member: self.clone(),
            })
    }

    /// Takes the lead from an executor that does nothing with it.
    pub fn seize(self: &Arc<Member>) -> Lead {
        let leader = &self.budget.layout().leader;
        leader.store(self.slot as u32 + 1, Ordering::Release);
        Lead {
            member: self.clone(),
        }
    }

    /// The count of changes, for [`Member::wait_change`].
    pub fn changes(&self) -> u32 {
        self.budget.layout().changes.load(Ordering::Acquire)
    }

    /// Waits for a change since `seen`, at most `timeout`.
    pub fn wait_change(&self, seen: u32, timeout: Duration) {
        futex_wait(&self.budget.layout().changes, seen, Some(timeout));
    }

    /// Has the others with copies in host memory look at what all of them take
    /// ([`Member::wait_wanted`] returns there).
    pub fn urge(&self) {
        for (_, other) in self.others() {
            if other.host.load(Ordering::Acquire) > 0 {
                ring(other);
            }
        }
    }

    /// Waits until this executor should free memory or is urged, at most `timeout`; the number of
    /// bytes on the device that it should free.
    pub fn wait_wanted(&self, timeout: Duration) -> u64 {
        let own = self.own();
        let seen = own.bell.load(Ordering::Acquire);
        if self.wanted() == 0 {
            futex_wait(&own.bell, seen, Some(timeout));
        }
        self.wanted()
    }

    /// Bytes that this executor should free.
    pub fn wanted(&self) -> u64 {
        self.own().wanted.load(Ordering::Acquire)
    }

    /// Says that this executor has freed bytes of those.
    pub fn freed(&self, bytes: u64) {
        let wanted = &self.own().wanted;
        let less = |wanted: u64| Some(wanted.saturating_sub(bytes));
        let _ = wanted.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less);
        self.budget.announce();
    }

    /// Answers: this executor has freed what it could.
    pub fn answer(&self) {
        self.own().wanted.store(0, Ordering::Release);
        self.budget.announce();
    }
}

fn ring(slot: &Slot) {
    slot.bell.fetch_add(1, Ordering::Release);
    futex_wake(&slot.bell, u32::MAX);
}

fn movable(slot: &Slot) -> u64 {
    let resident = slot.resident.load(Ordering::SeqCst);
    resident.saturating_sub(slot.fixed.load(Ordering::Acquire))
}

/// The right to ask others for memory, until it is dropped.
pub struct Lead {
    member: Arc<Member>,
}

impl Lead {
    /// Asks an executor to free `bytes`; it answers by [`Member::answer`].
    pub fn ask(&self, slot: usize, bytes: u64) {
        if let Some(other) = self.member.budget.layout().slots.get(slot) {
            other.wanted.store(bytes, Ordering::Release);
            ring(other);
        }
    }

    /// Whether the executor has not answered yet.
    pub fn awaits(&self, slot: usize) -> bool {
        let other = self.member.budget.layout().slots.get(slot);
        other.is_some_and(|other| other.wanted.load(Ordering::Acquire) > 0)
    }

    /// Asks no longer.
    pub fn withdraw(&self, slot: usize) {
        if let Some(other) = self.member.budget.layout().slots.get(slot) {
            other.wanted.store(0, Ordering::Release);
        }
    }
}

impl Drop for Lead {
    /// Also withdraws what has not been answered.
    fn drop(&mut self) {
        for (slot, other) in self.member.others() {
            if other.wanted.load(Ordering::Acquire) > 0 {
                self.withdraw(slot);
            }
        }
        self.member.budget.end_lead(self.member.slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(50);

    fn members<const N: usize>() -> (Budget, [Arc<Member>; N]) {
        let (budget, fd) = Budget::create().unwrap();
        let member = |slot| {
            let budget = Budget::map(&fd).unwrap();
            Arc::new(Member::new(budget, slot).unwrap())
        };
        (budget, std::array::from_fn(member))
    }

    #[test]
    fn each_sees_what_the_others_take() {
        let (budget, [a, b, c]) = members();
        a.publish(10, 4, 20, 7);
        b.publish(5, 5, 6, 1);
        let both = Others {
            resident: 15,
            total: 26,
            host: 8,
        };
        assert_eq!(c.taken(), both);
        assert_eq!(a.taken().resident, 5);
        // Memory that cannot leave is not requested.
        let a_is_idle = Peer {
            slot: 0,
            movable: 6,
            used_ns: 0,
        };
        assert_eq!(c.peers(), [a_is_idle]);
        b.publish(9, 5, 10, 1);
        a.touch(8);
        b.touch(3);
        let order: Vec<_> = c.peers().iter().map(|peer| peer.slot).collect();
        assert_eq!(order, [1, 0]);
        budget.clear(0);
        assert_eq!(c.taken().resident, 9);
        assert!(Member::new(budget, SLOTS).is_none());
    }

    #[test]
    fn one_leads_until_it_ends_or_its_slot_is_cleared() {
        let (budget, [a, b]) = members();
        let lead = a.lead().unwrap();
        assert!(b.lead().is_none());
        let seen = b.changes();
        drop(lead);
        assert_ne!(b.changes(), seen);
        // A process that has ended does not drop its lead.
        std::mem::forget(b.lead().unwrap());
        assert!(a.lead().is_none());
        budget.clear(0);
        assert!(a.lead().is_none(), "another's slot ended the lead");
        budget.clear(1);
        let late = a.lead().unwrap();
        let seized = b.seize();
        drop(late);
        assert!(a.lead().is_none(), "the former leader ended another's lead");
        drop(seized);
        assert!(a.lead().is_some());
    }

    #[test]
    fn a_request_is_answered() {
        let (_, [a, b]) = members();
        assert_eq!(b.wait_wanted(SOON), 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let wanted = loop {
                    match b.wait_wanted(SOON) {
                        0 => {}
                        wanted => break wanted,
                    }
                };
                assert_eq!(wanted, 12);
                b.freed(5);
                assert_eq!(b.wanted(), 7);
                b.answer();
            });
            let lead = a.lead().unwrap();
            lead.ask(1, 12);
            while lead.awaits(1) {
                let seen = a.changes();
                if lead.awaits(1) {
                    a.wait_change(seen, SOON);
                }
            }
            lead.ask(1, 3);
            lead.withdraw(1);
            assert_eq!(b.wanted(), 0);
            lead.ask(1, 3);
            drop(lead);
            assert_eq!(b.wanted(), 0);
        });
    }

    #[test]
    fn of_two_that_grow_at_the_same_time_one_sees_the_other() {
        for _ in 0..500 {
            let (_, [a, b]) = members();
            let grow = |member: &Arc<Member>| {
                member.publish(6, 0, 6, 0);
                member.taken().resident + 6 <= 10
            };
            let fits = std::thread::scope(|scope| {
                let other = scope.spawn(|| grow(&b));
                [grow(&a), other.join().unwrap()]
            });
            assert_ne!(fits, [true, true]);
        }
    }
}
