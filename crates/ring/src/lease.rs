//! The gate's page: the lease of one device for one tenant, between the manager and the executor.
//!
//! The gate is a lease. Its state word moves by compare-and-swap on both sides:
//!
//! ```text
//!            holder: wants                manager: grants
//!    FREE ───────────────► WAITING ───────────────► IDLE ◄──────────┐
//!     ▲ ▲                                            │  │           │
//!     │ └──────── manager: takes an idle lease ──────┘  │ holder:   │ holder: task ends
//!     │                                                 │ task      │
//!     │   holder: task ends          manager: wants it  ▼ begins    │
//!     └────────────────── REVOKED ◄─────────────────── BUSY ────────┘
//! ```
//!
//! A sole user keeps the lease, so that a task costs two swaps and two clock readings. The manager
//! does not depend on the holder's cooperation: it takes an idle lease by itself, gets a busy one
//! back at the end of the task, and kills a holder whose task does not end. The holder reports the
//! page's counters; the manager charges fairness by its own clock.

use crate::futex::{futex_wait, futex_wake};
use crate::memory::{create_sealed, Memory};
use crate::{Locked, Unpoisoned};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

const PAGE_BYTES: u64 = 4096;
/// Buckets of the task latency histogram: bucket `i` counts tasks below `2^i` microseconds;
/// the last counts the rest.
pub const LATENCY_BUCKETS: usize = 28;

const FREE: u32 = 0;
const IDLE: u32 = 1;
const BUSY: u32 = 2;
const REVOKED: u32 = 3;
const WAITING: u32 = 4;

/// State of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// Neither held nor requested.
    Free,
    /// Held, without a running task.
    Idle,
    /// Held, with a running task.
    Busy,
    /// Held, with a running task at whose end it has to be returned.
    Revoked,
    /// Requested, but not held.
    Waiting,
}

#[repr(C)]
struct Page {
    state: AtomicU32,
    _0: [u32; 15],
    busy_ns: AtomicU64,
    tasks: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    calls: AtomicU64,
    queued: AtomicU64,
    memory_bytes: AtomicU64,
    busy_since_ns: AtomicU64,
    latency: [AtomicU64; LATENCY_BUCKETS],
    latency_sum_ns: AtomicU64,
    progress_ns: AtomicU64,
    resident_bytes: AtomicU64,
    swapped_bytes: AtomicU64,
    swapped_in: AtomicU64,
    swapped_out: AtomicU64,
}

const _: () = assert!(size_of::<Page>() <= PAGE_BYTES as usize);

/// A tenant's use of a device, as counted by its executor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Time during which at least one task ran, nanoseconds.
    pub busy_ns: u64,
    /// Number of ended tasks.
    pub tasks: u64,
    /// Bytes written to the device.
    pub bytes_in: u64,
    /// Bytes read from it.
    pub bytes_out: u64,
    /// Completed commands.
    pub calls: u64,
    /// Number of waiting commands.
    pub queued: u64,
    /// Device and arena memory in use, bytes.
    pub memory_bytes: u64,
    /// Of a device with more memory than its own (`memory_overcommit`): bytes of objects on it.
    pub resident_bytes: u64,
    /// Bytes of objects in host memory.
    pub swapped_bytes: u64,
    /// Bytes brought back to the device.
    pub swapped_in: u64,
    /// Bytes moved from the device to host memory.
    pub swapped_out: u64,
    /// Task latencies by bucket; see [`LATENCY_BUCKETS`].
    pub latency: [u64; LATENCY_BUCKETS],
    /// Sum of the latencies, nanoseconds.
    pub latency_sum_ns: u64,
}

fn page(memory: &Memory) -> &Page {
    // SAFETY: the mapping is a page, is page-aligned and lives as long as the borrow; atomics are
    // valid for any bytes.
    unsafe { &*memory.base().cast() }
}

/// `CLOCK_MONOTONIC` in nanoseconds.
pub fn monotonic_ns() -> u64 {
    // SAFETY: all-zero is a valid timespec, which the call fills.
    let mut t: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: `t` is writable; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Processor time that all threads of the process `pid` have used, nanoseconds; `None`: the process
/// does not exist.
pub fn processor_ns(pid: u32) -> Option<u64> {
    let pid = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 0)?;
    let mut clock = 0;
    // SAFETY: all-zero is a valid timespec, which the call fills.
    let mut t: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: `clock` is writable.
    if unsafe { libc::clock_getcpuclockid(pid, &mut clock) } != 0 {
        return None;
    }
    // SAFETY: `t` is writable; the kernel refuses the clock of a process that has ended.
    if unsafe { libc::clock_gettime(clock, &mut t) } != 0 {
        return None;
    }
    Some(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}

/// A new lease: the page's memfd and the doorbell (an eventfd) that the holder rings when it
/// requests or returns the lease.
pub fn create() -> io::Result<(OwnedFd, OwnedFd)> {
    let memfd = create_sealed("baltra-lease", PAGE_BYTES)?;
    // SAFETY: the arguments are constants; the result is checked and then owned.
    let bell = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if bell < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and not owned elsewhere.
    Ok((memfd, unsafe { OwnedFd::from_raw_fd(bell) }))
}

struct Users {
    count: u32,
    started_ns: u64,
}

/// The executor's side. Threads of one tenant share it.
pub struct LeaseHolder {
    memory: Memory,
    bell: OwnedFd,
    users: Mutex<Users>,
    drained: Condvar,
    /// Whether the manager has exited, so that all tasks pass without arbitration.
    open: AtomicBool,
}

impl LeaseHolder {
    /// A holder for the page and doorbell that the manager sent.
    pub fn new(memfd: &OwnedFd, bell: OwnedFd) -> io::Result<LeaseHolder> {
        Ok(LeaseHolder {
            memory: Memory::map(memfd, PAGE_BYTES)?,
            bell,
            users: Mutex::new(Users {
                count: 0,
                started_ns: 0,
            }),
            drained: Condvar::new(),
            open: false.into(),
        })
    }

    fn ring(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: writes eight bytes from a live array; a full counter rings the doorbell already.
        unsafe { libc::write(self.bell.as_raw_fd(), one.as_ptr().cast(), 8) };
    }

    /// Begins a task: returns when the tenant holds the device. Each call needs a
    /// [`LeaseHolder::release`]; calls of several threads may overlap.
    pub fn acquire(&self) {
        self.acquire_unless(|| false);
    }

    /// Like [`LeaseHolder::acquire`], but returns `false` soon after `stop` holds.
    pub fn acquire_unless(&self, stop: impl Fn() -> bool) -> bool {
        self.acquire_joining(stop, || false)
    }

    /// The same, but after a revocation joins a running task while `joins` holds, because that task
    /// cannot end without this one.
    pub fn acquire_joining(&self, stop: impl Fn() -> bool, joins: impl Fn() -> bool) -> bool {
        let state = &page(&self.memory).state;
        let mut users = self.users.locked();
        loop {
            if users.count > 0 {
                if state.load(Ordering::Acquire) != REVOKED || joins() {
                    users.count += 1;
                    return true;
                }
                if stop() {
                    return false;
                }
                // After a revocation, no task may join, so that the running ones end.
                users = self
                    .drained
                    .wait_timeout(users, Duration::from_millis(100))
                    .unpoisoned()
                    .0;
                continue;
            }
            let swap = |from, to| {
                state
                    .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
                    .is_ok()
            };
            if swap(IDLE, BUSY) || self.open.load(Ordering::Acquire) {
                users.count = 1;
                users.started_ns = monotonic_ns();
                let page = page(&self.memory);
                page.busy_since_ns
                    .store(users.started_ns, Ordering::Relaxed);
                return true;
            }
            if stop() {
                return false;
            }
            if swap(FREE, WAITING) {
                self.ring();
            }
            drop(users);
            futex_wait(state, WAITING, Some(Duration::from_millis(100)));
            users = self.users.locked();
        }
    }

    /// Ends a task.
    pub fn release(&self) {
        let page = page(&self.memory);
        let mut users = self.users.locked();
        users.count -= 1;
        if users.count > 0 {
            return;
        }
        let busy = monotonic_ns().saturating_sub(users.started_ns);
        page.busy_ns.fetch_add(busy, Ordering::Relaxed);
        page.busy_since_ns.store(0, Ordering::Relaxed);
        let swap = page
            .state
            .compare_exchange(BUSY, IDLE, Ordering::AcqRel, Ordering::Acquire);
        if swap == Err(REVOKED) {
            page.state.store(FREE, Ordering::Release);
            self.ring();
        }
        drop(users);
        self.drained.notify_all();
    }

    /// Whether the manager has requested the device back at the next task boundary.
    pub fn is_revoked(&self) -> bool {
        page(&self.memory).state.load(Ordering::Relaxed) == REVOKED
    }

    /// Lets all tasks pass from now on, because the manager has exited.
    pub fn open(&self) {
        self.open.store(true, Ordering::Release);
        futex_wake(&page(&self.memory).state, u32::MAX);
    }

    /// Undoes [`LeaseHolder::open`], because a new manager arbitrates.
    pub fn close(&self) {
        self.open.store(false, Ordering::Release);
    }

    /// Records that commands of the running task have completed by `now_ns` (`CLOCK_MONOTONIC`).
    pub fn advance(&self, now_ns: u64) {
        let page = page(&self.memory);
        page.progress_ns.store(now_ns, Ordering::Relaxed);
    }

    /// Counts an ended task and its latency (from its flush to its end).
    pub fn count_task(&self, latency: Duration) {
        let page = page(&self.memory);
        page.tasks.fetch_add(1, Ordering::Relaxed);
        let micros = latency.as_micros().min(u128::from(u64::MAX)) as u64;
        let bucket = (64 - micros.leading_zeros() as usize).min(LATENCY_BUCKETS - 1);
        page.latency[bucket].fetch_add(1, Ordering::Relaxed);
        page.latency_sum_ns
            .fetch_add(latency.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Counts completed commands and the bytes that they moved.
    pub fn count_calls(&self, calls: u64, bytes_in: u64, bytes_out: u64) {
        let page = page(&self.memory);
        page.calls.fetch_add(calls, Ordering::Relaxed);
        page.bytes_in.fetch_add(bytes_in, Ordering::Relaxed);
        page.bytes_out.fetch_add(bytes_out, Ordering::Relaxed);
    }

    /// Sets the number of waiting commands and the memory in use.
    pub fn gauge(&self, queued: u64, memory_bytes: u64) {
        let page = page(&self.memory);
        page.queued.store(queued, Ordering::Relaxed);
        page.memory_bytes.store(memory_bytes, Ordering::Relaxed);
    }

    /// Sets the bytes of objects on the device and in host memory.
    pub fn gauge_residence(&self, resident_bytes: u64, swapped_bytes: u64) {
        let page = page(&self.memory);
        page.resident_bytes.store(resident_bytes, Ordering::Relaxed);
        page.swapped_bytes.store(swapped_bytes, Ordering::Relaxed);
    }

    /// Counts bytes that were moved to the device and from it to make room.
    pub fn count_swaps(&self, bytes_in: u64, bytes_out: u64) {
        let page = page(&self.memory);
        page.swapped_in.fetch_add(bytes_in, Ordering::Relaxed);
        page.swapped_out.fetch_add(bytes_out, Ordering::Relaxed);
    }
}

/// The manager's side.
pub struct LeaseGranter {
    memory: Memory,
    bell: OwnedFd,
}

impl LeaseGranter {
    /// A granter for the page and doorbell of [`create`].
    pub fn new(memfd: &OwnedFd, bell: OwnedFd) -> io::Result<LeaseGranter> {
        Ok(LeaseGranter {
            memory: Memory::map(memfd, PAGE_BYTES)?,
            bell,
        })
    }

    /// The descriptor to poll: readable when the holder has requested or returned the lease.
    pub fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    /// State of the lease. Invalid values written by a holder read as `Waiting`.
    pub fn state(&self) -> LeaseState {
        match page(&self.memory).state.load(Ordering::Acquire) {
            FREE => LeaseState::Free,
            IDLE => LeaseState::Idle,
            BUSY => LeaseState::Busy,
            REVOKED => LeaseState::Revoked,
            _ => LeaseState::Waiting,
        }
    }

    fn swap(&self, from: u32, to: u32) -> bool {
        page(&self.memory)
            .state
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Grants the lease to a holder that waits (or, in advance, to one that is free).
    pub fn grant(&self) -> bool {
        let granted = self.swap(WAITING, IDLE) || self.swap(FREE, IDLE);
        if granted {
            futex_wake(&page(&self.memory).state, u32::MAX);
        }
        granted
    }

    /// Takes the lease from a holder that has no task running.
    pub fn take_idle(&self) -> bool {
        self.swap(IDLE, FREE)
    }

    /// Requests the lease back at the end of the task.
    pub fn revoke(&self) -> bool {
        self.swap(BUSY, REVOKED)
    }

    /// Start of the running task, `CLOCK_MONOTONIC` nanoseconds, as reported by the holder.
    pub fn busy_since_ns(&self) -> Option<u64> {
        match page(&self.memory).busy_since_ns.load(Ordering::Relaxed) {
            0 => None,
            ns => Some(ns),
        }
    }

    /// Time at which a command of the running task last began or ended, as reported by the holder;
    /// `None`: no task runs.
    pub fn progress_ns(&self) -> Option<u64> {
        let ended_ns = page(&self.memory).progress_ns.load(Ordering::Relaxed);
        Some(self.busy_since_ns()?.max(ended_ns))
    }

    /// Number of commands that the holder has enqueued, as reported by it.
    pub fn queued(&self) -> u64 {
        page(&self.memory).queued.load(Ordering::Relaxed)
    }

    /// The holder's counters, including the running task.
    pub fn usage(&self) -> Usage {
        let page = page(&self.memory);
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let running = self
            .busy_since_ns()
            .map_or(0, |since| monotonic_ns().saturating_sub(since));
        Usage {
            busy_ns: load(&page.busy_ns).saturating_add(running),
            tasks: load(&page.tasks),
            bytes_in: load(&page.bytes_in),
            bytes_out: load(&page.bytes_out),
            calls: load(&page.calls),
            queued: load(&page.queued),
            memory_bytes: load(&page.memory_bytes),
            resident_bytes: load(&page.resident_bytes),
            swapped_bytes: load(&page.swapped_bytes),
            swapped_in: load(&page.swapped_in),
            swapped_out: load(&page.swapped_out),
            latency: std::array::from_fn(|i| load(&page.latency[i])),
            latency_sum_ns: load(&page.latency_sum_ns),
        }
    }
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn pair() -> (Arc<LeaseHolder>, LeaseGranter) {
        let (memfd, bell) = create().unwrap();
        let twin = bell.try_clone().unwrap();
        (
            Arc::new(LeaseHolder::new(&memfd, bell).unwrap()),
            LeaseGranter::new(&memfd, twin).unwrap(),
        )
    }

    fn until(granter: &LeaseGranter, state: LeaseState) {
        while granter.state() != state {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_holder_waits_for_its_grant() {
        let (holder, granter) = pair();
        let thread = std::thread::spawn({
            let holder = holder.clone();
            move || holder.acquire()
        });
        until(&granter, LeaseState::Waiting);
        assert!(granter.grant());
        thread.join().unwrap();
        assert_eq!(granter.state(), LeaseState::Busy);
        holder.release();
        assert_eq!(granter.state(), LeaseState::Idle);
        assert!(granter.take_idle());
    }

    #[test]
    fn a_revoked_lease_comes_back_at_the_end_of_the_task() {
        let (holder, granter) = pair();
        granter.grant();
        holder.acquire();
        holder.acquire();
        assert!(!granter.take_idle());
        assert!(granter.revoke());
        holder.release();
        assert_eq!(granter.state(), LeaseState::Revoked);
        holder.release();
        assert_eq!(granter.state(), LeaseState::Free);
    }

    #[test]
    fn nobody_joins_a_revoked_lease() {
        let (holder, granter) = pair();
        granter.grant();
        holder.acquire();
        granter.revoke();
        let late = std::thread::spawn({
            let holder = holder.clone();
            move || {
                holder.acquire();
                holder.release();
            }
        });
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(granter.state(), LeaseState::Revoked);
        holder.release();
        until(&granter, LeaseState::Waiting);
        granter.grant();
        late.join().unwrap();
    }

    #[test]
    fn a_task_joins_a_revoked_lease_if_the_running_one_waits_for_it() {
        let (holder, granter) = pair();
        granter.grant();
        holder.acquire();
        granter.revoke();
        assert!(!holder.acquire_joining(|| true, || false));
        assert!(holder.acquire_joining(|| false, || true));
        holder.release();
        assert_eq!(granter.state(), LeaseState::Revoked);
        holder.release();
        assert_eq!(granter.state(), LeaseState::Free);
    }

    #[test]
    fn without_a_manager_everybody_passes() {
        let (holder, granter) = pair();
        let thread = std::thread::spawn({
            let holder = holder.clone();
            move || holder.acquire()
        });
        until(&granter, LeaseState::Waiting);
        holder.open();
        thread.join().unwrap();
        holder.release();
    }

    #[test]
    fn usage_counts_busy_time_and_latency() {
        let (holder, granter) = pair();
        granter.grant();
        holder.acquire();
        std::thread::sleep(Duration::from_millis(5));
        holder.release();
        holder.count_task(Duration::from_micros(5));
        holder.count_calls(2, 10, 20);
        let usage = granter.usage();
        assert!(usage.busy_ns >= 5_000_000);
        assert_eq!((usage.tasks, usage.calls), (1, 2));
        assert_eq!((usage.bytes_in, usage.bytes_out), (10, 20));
        assert_eq!(usage.latency[3], 1, "5 µs lie below 8");
    }
}
