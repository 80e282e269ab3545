//! A session's blocks that outlive one command: memory that the application has mapped, and blocks
//! kept for mapping the same buffers again.
//!
//! On a device with its own memory a mapped buffer is a block of shared memory. A new block costs
//! page faults and, on a GPU, pinning: several times the cost of its transfer. So a large block
//! stays with its buffer, as in drivers of GPUs, until the buffer is released or memory is short.

use crate::core::lost;
use crate::core::transfer::Span;
use baltra_ring::Locked;
use baltra_session::client::{Block, Client};
use baltra_wire::{Id, Payload};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// Smaller blocks share arenas that stay anyway.
const SPARE_BYTES_MIN: usize = 2 << 20;
/// Maximum total size of the blocks that a session's unmapped buffers keep; a quarter of the
/// tenant's limit if that is lower.
const SPARE_BYTES_MAX: u64 = 4 << 30;

/// A block of a buffer that is not mapped.
struct Spare {
    owner: Id,
    block: Arc<Block>,
}

/// Them all.
pub struct Blocks {
    client: Arc<Client>,
    /// Mapped blocks by their first byte.
    mapped: Mutex<BTreeMap<usize, Weak<Block>>>,
    mapped_count: AtomicUsize,
    /// The oldest first.
    spares: Mutex<Vec<Spare>>,
    spare_bytes_max: u64,
}

impl Blocks {
    /// None yet.
    pub fn new(client: &Arc<Client>) -> Blocks {
        let limits = client.welcome().limits;
        let quarter = limits.memory_bytes.min(limits.arena_bytes) / 4;
        Blocks {
            client: client.clone(),
            mapped: Mutex::default(),
            mapped_count: 0.into(),
            spares: Mutex::default(),
            spare_bytes_max: SPARE_BYTES_MAX.min(quarter),
        }
    }

    fn spares(&self) -> MutexGuard<'_, Vec<Spare>> {
        self.spares.locked()
    }

    /// As [`Client::allocate`]; if memory is short, blocks kept by buffers are freed.
    pub fn allocate(&self, len: u64, align: u64) -> Result<Block, i32> {
        let block = self.client.allocate(len, align).or_else(|error| {
            let spares = std::mem::take(&mut *self.spares());
            if spares.is_empty() {
                return Err(lost(error));
            }
            drop(spares);
            self.client.allocate(len, align).map_err(lost)
        })?;
        // Transfers fill all of it. Where the device works in host memory it is a buffer, of
        // which the application may use a part.
        if block.is_fresh() && !self.client.host_memory() {
            block.range().memory().populate();
        }
        Ok(block)
    }

    /// A block for mapping `len` bytes of a buffer: the one that it has kept, if it is long enough.
    pub fn for_map(&self, owner: Id, len: usize) -> Result<Arc<Block>, i32> {
        let kept = {
            let mut spares = self.spares();
            let fits = |s: &Spare| s.owner == owner && s.block.len() >= len;
            let at = spares.iter().position(fits);
            at.map(|at| spares.remove(at).block)
        };
        match kept {
            Some(block) => Ok(block),
            None => self.allocate(len as u64, 4096).map(Arc::new),
        }
    }

    /// Keeps a buffer's block for its next map, replacing a shorter one.
    pub fn keep(&self, owner: Id, block: Arc<Block>) {
        if block.len() < SPARE_BYTES_MIN {
            return;
        }
        let mut given_up = Vec::new();
        let mut spares = self.spares();
        if let Some(at) = spares.iter().position(|s| s.owner == owner) {
            if spares[at].block.len() >= block.len() {
                return;
            }
            given_up.push(spares.remove(at));
        }
        spares.push(Spare { owner, block });
        let mut held: u64 = spares.iter().map(|s| s.block.len() as u64).sum();
        while held > self.spare_bytes_max {
            let oldest = spares.remove(0);
            held -= oldest.block.len() as u64;
            given_up.push(oldest);
        }
        // Freeing memory sends a message to the executor: not under the lock.
        drop(spares);
    }

    /// The buffer is released.
    pub fn forget(&self, owner: Id) {
        let mut spares = self.spares();
        let at = spares.iter().position(|s| s.owner == owner);
        let gone = at.map(|at| spares.remove(at));
        drop(spares);
        drop(gone);
    }

    /// The application has the block's memory from now on.
    pub fn map(&self, block: &Arc<Block>) {
        let mut mapped = self.mapped.locked();
        // Of buffers that were released while they were mapped.
        mapped.retain(|_, block| block.strong_count() > 0);
        mapped.insert(block.ptr() as usize, Arc::downgrade(block));
        self.mapped_count.store(mapped.len(), Ordering::Release);
    }

    /// The application has given it back.
    pub fn unmap(&self, block: &Block) {
        let mut mapped = self.mapped.locked();
        mapped.remove(&(block.ptr() as usize));
        self.mapped_count.store(mapped.len(), Ordering::Release);
    }

    /// The block that contains this memory of the application, if a map returned it: the device
    /// accesses it directly.
    pub fn holding(&self, span: Span) -> Option<(Arc<Block>, Payload)> {
        if self.mapped_count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mapped = self.mapped.locked();
        let (&start, block) = mapped.range(..=span.start).next_back()?;
        let block = block.upgrade()?;
        let offset = span.start - start;
        let inside = offset
            .checked_add(span.len)
            .is_some_and(|end| end <= block.len());
        let payload = inside.then(|| block.part(offset as u64, span.len as u64))?;
        Some((block, payload))
    }
}
