//! The other executors of the device, whose objects take of the same memory.

use super::{take, Caller, Residence, State};
use crate::driver::Code;
use baltra_opencl::*;
use baltra_ring::budget::{Lead, Member, Peer};
use baltra_ring::lease::monotonic_ns;
use baltra_ring::Locked;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// A wait looks this often whether its session has ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The thread that frees memory looks this often whether the process has another budget.
const SERVE_EVERY: Duration = Duration::from_secs(1);

impl Residence {
    pub(super) fn member(&self) -> Arc<Member> {
        self.member.locked().clone()
    }

    /// Says what the objects take. Called with each change, under the state's lock.
    pub(super) fn publish(&self, state: &State) {
        let (claimed, fixed) = state.books.claimed();
        let host = self.host_bytes.load(Ordering::Relaxed);
        let member = self.member();
        member.publish(claimed, fixed, state.books.bytes().1, host);
        member.touch(state.books.last_use());
    }

    /// Shares the memory with other executors from now on, as this member of their budget.
    pub fn join(&self, member: Member) {
        let state = self.state();
        *self.member.locked() = Arc::new(member);
        self.publish(&state);
    }

    /// Takes the lead among the executors, also from one that does nothing with it: it waits no
    /// longer than `patience` for another. The calling thread does not have the right to move.
    pub(super) fn take_lead(&self, caller: &Caller<'_>) -> Result<Lead, Code> {
        let (mut last, mut since) = (self.member().changes(), Instant::now());
        loop {
            let member = self.member();
            let seen = member.changes();
            if let Some(lead) = member.lead() {
                return Ok(lead);
            }
            if (caller.is_closed)() {
                return Err(CL_DEVICE_NOT_AVAILABLE);
            }
            if seen != last {
                (last, since) = (seen, Instant::now());
            } else if since.elapsed() > 2 * self.patience {
                tracing::warn!("another executor does not end its request for device memory");
                return Ok(member.seize());
            }
            member.wait_change(seen, LOOK_EVERY);
        }
    }

    /// The others that could free memory, but those that have freed none when they were asked and
    /// have done nothing since: a command waits for them once.
    pub(super) fn willing_peers(&self) -> Vec<Peer> {
        let mut peers = self.member().peers();
        let silent = self.silent.locked();
        peers.retain(|peer| !silent.contains(peer));
        peers
    }

    fn note_silent(&self, slot: usize) {
        let peers = self.member().peers();
        let mut silent = self.silent.locked();
        silent.retain(|peer| peer.slot != slot);
        silent.extend(peers.into_iter().find(|peer| peer.slot == slot));
    }

    /// Asks another executor for `bytes`, and waits for its answer or until there is enough; whether
    /// it has freed any. The other one may still free some after this has returned.
    pub(super) fn ask(
        &self,
        lead: &Lead,
        slot: usize,
        bytes: u64,
        caller: &Caller<'_>,
        is_enough: &dyn Fn() -> bool,
    ) -> Result<bool, Code> {
        let member = self.member();
        let before = member.movable(slot);
        let (mut least, mut since) = (before, Instant::now());
        lead.ask(slot, bytes);
        loop {
            let seen = member.changes();
            if !lead.awaits(slot) {
                let has_freed = member.movable(slot) < before;
                if !has_freed {
                    self.note_silent(slot);
                }
                return Ok(has_freed);
            }
            if is_enough() {
                return Ok(true);
            }
            member.wait_change(seen, LOOK_EVERY);
            if (caller.is_closed)() {
                lead.withdraw(slot);
                return Err(CL_DEVICE_NOT_AVAILABLE);
            }
            let now = member.movable(slot);
            if now < least {
                (least, since) = (now, Instant::now());
                caller.account.lease.advance(monotonic_ns());
            } else if since.elapsed() > self.patience {
                tracing::warn!(slot, bytes, "another executor frees no device memory");
                lead.withdraw(slot);
                self.note_silent(slot);
                return Ok(false);
            }
        }
    }

    /// Gives up copies of objects on the device, as far as all executors together have more than
    /// the host should hold.
    fn bound_copies(&self) {
        let others = self.member().taken().host;
        let all = self
            .host_bytes
            .load(Ordering::Relaxed)
            .saturating_add(others);
        if all <= self.room.host_bytes {
            return;
        }
        let never = || false;
        if let Ok(state) = self.begin_move(&never) {
            drop(state);
            self.trim(0);
            self.publish(&self.state());
            self.end_move();
        }
    }

    /// Starts the thread that frees memory for other executors. It ends with the residence.
    pub fn serve_peers(self: &Arc<Residence>) -> std::io::Result<()> {
        let residence = Arc::downgrade(self);
        let name = "budget".to_owned();
        let thread = std::thread::Builder::new().name(name);
        thread.spawn(move || serve(&residence)).map(drop)
    }

    /// Frees what another executor wants, as far as it may leave.
    fn yield_memory(&self, member: &Member) {
        self.free(|_| member.wanted(), |bytes| member.freed(bytes));
        member.answer();
    }

    /// Frees what all executors have beyond the device's memory, as far as it may leave. A command
    /// that has asked the others without success exceeds it, and would not ask again while all
    /// objects that it uses are on the device.
    fn free_excess(&self, member: &Member) {
        let excess = |state: &State| state.books.excess(member.taken().resident);
        let has_peers = || !member.peers().is_empty();
        if has_peers() && excess(&self.state()) > 0 {
            self.free(excess, |_| ());
        }
    }

    /// Has objects leave until `wanted` is 0 or none may leave; `freed` takes the bytes of each.
    fn free(&self, wanted: impl Fn(&State) -> u64, freed: impl Fn(u64)) {
        let never = || false;
        let Ok(state) = self.begin_move(&never) else {
            return;
        };
        drop(state);
        self.unpin_idle();
        let mut state = self.state();
        while let wanted @ 1.. = wanted(&state) {
            let victims = state.books.victims(&[], wanted);
            let first = victims
                .into_iter()
                .find_map(|n| take(&mut state, &[n]).pop());
            let Some(first) = first else {
                if !state.books.has_pins(&[]) {
                    break;
                }
                state = self.wait_unpinned(state);
                continue;
            };
            let bytes = first.bytes;
            drop(state);
            let evicted = self.evict_all(vec![first], None);
            state = self.state();
            if let Err(code) = evicted {
                tracing::warn!(code, "memory for another executor is not freed");
                break;
            }
            freed(bytes);
        }
        drop(state);
        self.end_move();
    }
}

fn serve(residence: &Weak<Residence>) {
    while let Some(strong) = residence.upgrade() {
        let member = strong.member();
        drop(strong);
        let wanted = member.wait_wanted(SERVE_EVERY);
        let Some(residence) = residence.upgrade() else {
            return;
        };
        if wanted > 0 {
            residence.yield_memory(&member);
        }
        residence.free_excess(&member);
        residence.bound_copies();
    }
}
