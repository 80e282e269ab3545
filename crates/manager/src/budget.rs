//! The memory budget of a device with `memory_overcommit`: its executors' slots
//! ([`baltra_ring::budget`]).

use crate::executors::Process;
use baltra_ring::budget::{self, SLOTS};
use baltra_ring::Locked;
use baltra_wire::executor::ToExecutor;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;

/// A page, and who has which slot.
pub struct Budget {
    page: budget::Budget,
    fd: OwnedFd,
    /// The executor in each slot.
    slots: Mutex<Vec<Option<u64>>>,
}

impl Budget {
    /// Without executors.
    pub fn new() -> io::Result<Budget> {
        let (page, fd) = budget::Budget::create()?;
        Ok(Budget {
            page,
            fd,
            slots: Mutex::new(vec![None; SLOTS]),
        })
    }

    /// Assigns a slot to an executor and sends it. Without a slot it shares no memory.
    pub fn join(&self, executor: u64, process: &Process) {
        let mut slots = self.slots.locked();
        let Some(slot) = slots.iter().position(Option::is_none) else {
            tracing::warn!(
                pid = process.pid,
                "no slot for an executor's memory is free"
            );
            return;
        };
        // A failure: it has ended, and leaves the slot again.
        let _ = process.send(
            &ToExecutor::Budget { slot: slot as u32 },
            &[self.fd.as_fd()],
        );
        slots[slot] = Some(executor);
    }

    /// Empties the slot of an executor that has ended.
    pub fn leave(&self, executor: u64) {
        let mut slots = self.slots.locked();
        for (slot, held) in slots.iter_mut().enumerate() {
            if *held == Some(executor) {
                *held = None;
                self.page.clear(slot);
            }
        }
    }
}
