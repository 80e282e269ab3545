//! State of the library for the whole process, and its reset in a forked child.
//!
//! A child has the parent's memory, including the rings that the parent shares with its executors,
//! but none of the parent's threads. So it starts from scratch: all state is created again on first
//! use, with the child's own sessions, and handles of the parent's objects are refused
//! ([`crate::core::object::get`]), except those of platforms and devices, which have no session.
//! None of the parent's objects is dropped or locked, because a lock may have been held by a thread
//! that does not exist in the child.
//!
//! `vfork` and `posix_spawn` need no handling: their children only execute another program.

use crate::core::callback::Jobs;
use crate::core::copy::Helpers;
use crate::core::device::Device;
use crate::core::live::Handles;
use crate::core::object::Ref;
use crate::core::session::Sessions;
use crate::core::svm::Regions;
use crate::core::workers::Workers;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

/// The process's own.
#[derive(Default)]
pub struct Process {
    /// The devices' sessions.
    pub sessions: Sessions,
    /// Memory objects that are alive.
    pub memory: Handles,
    /// Samplers that are alive.
    pub samplers: Handles,
    /// Shared virtual memory.
    pub regions: Mutex<Regions>,
    /// Threads that share large copies.
    pub helpers: OnceLock<Helpers>,
    /// The thread that runs callbacks.
    pub jobs: OnceLock<Jobs>,
    /// Threads for large transfers.
    pub workers: Workers,
    /// Numbers of queues on the devices of the pool.
    pub pooled_queues: Mutex<Vec<usize>>,
    /// Held while the managers are queried for their devices.
    pub listing: Mutex<()>,
}

static CURRENT: AtomicPtr<Process> = AtomicPtr::new(std::ptr::null_mut());
static GENERATION: AtomicU32 = AtomicU32::new(0);
/// The devices are the same for parent and child: their handles are valid for the program's life.
static DEVICES: AtomicPtr<Vec<Ref<Device>>> = AtomicPtr::new(std::ptr::null_mut());

/// Number of forks between the program's start and this process.
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// This process's own.
pub fn current() -> &'static Process {
    let mut current = CURRENT.load(Ordering::Acquire);
    if current.is_null() {
        mind_forks();
        let new = Box::into_raw(Box::<Process>::default());
        let put = CURRENT.compare_exchange(
            std::ptr::null_mut(),
            new,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        current = match put {
            Ok(_) => new,
            Err(other) => {
                // SAFETY: created above and not shared.
                drop(unsafe { Box::from_raw(new) });
                other
            }
        };
    }
    // SAFETY: the stored object is never freed.
    unsafe { &*current }
}

/// The devices, once they are known.
pub fn devices() -> &'static [Ref<Device>] {
    let devices = DEVICES.load(Ordering::Acquire);
    if devices.is_null() {
        &[]
    } else {
        // SAFETY: the stored object is never freed.
        unsafe { &*devices }
    }
}

/// Publishes the devices; only called by the holder of [`Process::listing`].
pub fn set_devices(devices: Vec<Ref<Device>>) {
    DEVICES.store(Box::into_raw(Box::new(devices)), Ordering::Release);
}

fn mind_forks() {
    static MINDED: AtomicBool = AtomicBool::new(false);
    if !MINDED.swap(true, Ordering::AcqRel) {
        // SAFETY: the handler is a function of this library, which stays loaded while it is
        // registered, and performs only operations that are allowed in a child of a multithreaded
        // process.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
}

/// The first thing that a forked child does.
extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    CURRENT.store(std::ptr::null_mut(), Ordering::Release);
    for (socket, known) in baltra_session::take_sockets() {
        // The parent may have closed the socket and opened another file with its number.
        if identity(socket) == Some(known) {
            // SAFETY: a session's socket, which this process does not use: the executor has to
            // observe the end of the parent's descriptor when the parent ends.
            unsafe { libc::close(socket) };
        }
    }
}

/// Device and inode of a descriptor's file.
fn identity(fd: i32) -> Option<(u64, u64)> {
    // SAFETY: zeros are a valid value, which the call fills.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is writable; fstat accepts any number.
    let found = unsafe { libc::fstat(fd, &mut stat) } == 0;
    found.then_some((stat.st_dev, stat.st_ino))
}
