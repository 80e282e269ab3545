//! Shared virtual memory: regions with the same address on the host and on the device.
//!
//! Where the device works in host memory a region is a part of an arena, which both processes map a
//! second time at the region's address: nothing is ever copied. The address comes from a part of
//! the address space that no loader, heap or default mapping uses, and is derived from the
//! session's number, so that regions of sessions that share an executor do not overlap.
//!
//! Elsewhere the driver chooses the address and this side maps a *shadow* there, whose bytes are
//! read by a map and written back by an unmap: coarse-grained sharing, as the specification defines
//! it.

use crate::core::context::Context;
use crate::core::lost;
use crate::core::object::Object;
use crate::core::process;
use baltra_opencl::*;
use baltra_ring::Locked;
use baltra_session::client::{Block, Client};
use baltra_wire::{Control, Reply, Request};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard};

/// Regions begin and end with pages.
const PAGE_BYTES: usize = 4096;
/// A block from this size has its own arena, so that no other memory of this process becomes
/// accessible to the device at the region's address.
const ARENA_BYTES_MIN: usize = 2 << 20;
/// The part of the address space for regions in arenas: above what address sanitizers shadow and
/// below where position-independent programs are loaded.
const FIRST_ADDRESS: usize = 0x2000_0000_0000;
/// Each session's share.
const SHARE_BYTES: usize = 64 << 30;
/// Number of shares of the address space; session numbers wrap around.
const SHARES: usize = 512;
/// Addresses that are tried before an allocation fails.
const TRIES: usize = 16;

/// All regions of the process by their first address.
pub type Regions = BTreeMap<usize, Region>;

/// One allocation.
pub struct Region {
    len: usize,
    context: usize,
    client: Arc<Client>,
    view: View,
    /// The allocation's address at the executor: the region begins at or behind it.
    base: usize,
    /// Kept for its pages; `None`: a shadow.
    block: Option<Arc<Block>>,
    /// `cl_map_flags` of present mappings, by address.
    maps: Vec<(usize, usize, u64)>,
}

/// A mapping of this process that ends with the value.
struct View {
    address: usize,
    len: usize,
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, made at this address and of this length.
        unsafe { libc::munmap(self.address as *mut libc::c_void, self.len) };
    }
}

fn regions() -> MutexGuard<'static, Regions> {
    let regions = &process::current().regions;
    regions.locked()
}

fn key(context: &Object<Context>) -> usize {
    context as *const Object<Context> as usize
}

/// `clSVMAlloc`; arguments are checked.
pub fn allocate(
    context: &Object<Context>,
    flags: u64,
    size: usize,
    align: u32,
) -> Result<usize, i32> {
    // The same address is only possible with one session: contexts of several have no SVM.
    let [member] = &context.members[..] else {
        return Err(CL_INVALID_OPERATION);
    };
    let client = &member.client;
    let len = size.next_multiple_of(PAGE_BYTES);
    let (view, base, block) = if client.host_memory() {
        let (view, block) = in_arena(client, len)?;
        let base = view.address;
        (view, base, Some(Arc::new(block)))
    } else {
        let (view, base) = shadow(client, member.id, flags, len, align)?;
        (view, base, None)
    };
    let address = view.address;
    let region = Region {
        len: size,
        context: key(context),
        client: client.clone(),
        view,
        base,
        block,
        maps: Vec::new(),
    };
    regions().insert(address, region);
    Ok(address)
}

fn in_arena(client: &Arc<Client>, len: usize) -> Result<(View, Block), i32> {
    let taken = len.max(ARENA_BYTES_MIN) as u64;
    let block = client.allocate(taken, PAGE_BYTES as u64).map_err(lost)?;
    for _ in 0..TRIES {
        let address = next_address(client.welcome().session, len);
        let Some(view) = twin(&block, address, len) else {
            continue;
        };
        let request = Request::SvmMap {
            address: address as u64,
            payload: block.part(0, len as u64),
        };
        match client.call(request).map_err(lost)? {
            Reply::Done => return Ok((view, block)),
            // The executor uses the addresses otherwise.
            _ => continue,
        }
    }
    Err(CL_MEM_OBJECT_ALLOCATION_FAILURE)
}

/// The next address of a session's share; addresses are reused only after the whole share.
fn next_address(session: u64, len: usize) -> usize {
    static TAKEN: AtomicUsize = AtomicUsize::new(0);
    let start = FIRST_ADDRESS + (session as usize % SHARES) * SHARE_BYTES;
    let len = len + PAGE_BYTES;
    let taken = TAKEN.fetch_add(len, Ordering::Relaxed);
    match SHARE_BYTES.checked_sub(len) {
        Some(room) if room > 0 => start + (taken % room) / PAGE_BYTES * PAGE_BYTES,
        _ => start,
    }
}

/// Maps a block's pages a second time; `None`: the address is taken.
fn twin(block: &Block, address: usize, len: usize) -> Option<View> {
    let view = reserve(address, len)?;
    // SAFETY: with an old length of 0 the pages of a shared mapping are mapped once more and the
    // old mapping stays; they replace the reservation, which is ours and as long. The block's
    // pages begin at a page and there are `len` bytes of them.
    let mapped = unsafe {
        libc::mremap(
            block.ptr().cast(),
            0,
            len,
            libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
            address as *mut libc::c_void,
        )
    };
    (mapped as usize == address).then_some(view)
}

/// Reserves a range of unused addresses.
fn reserve(address: usize, len: usize) -> Option<View> {
    map(address, len, libc::PROT_NONE)
}

fn map(address: usize, len: usize, protection: i32) -> Option<View> {
    // SAFETY: a fresh anonymous mapping, which replaces nothing.
    let mapped = unsafe {
        libc::mmap(
            address as *mut libc::c_void,
            len,
            protection,
            libc::MAP_PRIVATE
                | libc::MAP_ANONYMOUS
                | libc::MAP_NORESERVE
                | libc::MAP_FIXED_NOREPLACE,
            -1,
            0,
        )
    };
    if mapped == libc::MAP_FAILED {
        return None;
    }
    let view = View {
        address: mapped as usize,
        len,
    };
    // A kernel that does not support the flag takes the address as a hint.
    (view.address == address).then_some(view)
}

/// Lets the driver choose an address and maps `len` bytes there: the pages inside an allocation
/// that is a page longer, because drivers' addresses need not be page-aligned.
fn shadow(
    client: &Arc<Client>,
    context: baltra_wire::Id,
    flags: u64,
    len: usize,
    alignment: u32,
) -> Result<(View, usize), i32> {
    let mut taken = Vec::new();
    let mut found = Err(CL_MEM_OBJECT_ALLOCATION_FAILURE);
    for _ in 0..TRIES {
        let request = Request::SvmAlloc {
            context,
            flags,
            len: (len + PAGE_BYTES) as u64,
            alignment,
        };
        let address = match client.call(request).map_err(lost)? {
            Reply::Bytes(bytes) => <[u8; 8]>::try_from(&bytes[..]).ok(),
            Reply::Error(code) => {
                found = Err(code);
                break;
            }
            _ => None,
        };
        // An invalid address, or one that wraps around, is not retried.
        let Some(base) = address.map(|bytes| u64::from_ne_bytes(bytes) as usize) else {
            break;
        };
        if base == 0 || base.checked_add(len + 2 * PAGE_BYTES).is_none() {
            break;
        }
        let start = base.next_multiple_of(PAGE_BYTES);
        if let Some(view) = map(start, len, libc::PROT_READ | libc::PROT_WRITE) {
            found = Ok((view, base));
            break;
        }
        // This process uses the addresses. Kept until the end, otherwise the driver would return
        // them again.
        taken.push(base);
    }
    for base in taken {
        give_back(client, base);
    }
    found
}

fn give_back(client: &Client, base: usize) {
    let after = client.pending();
    // A lost session has nothing to free.
    let _ = client.control(&Control::SvmFree {
        address: base as u64,
        after: &after,
    });
}

/// `clSVMFree`; an address outside all regions is ignored.
pub fn free(context: &Object<Context>, address: usize) {
    let mut all = regions();
    let ours = all.get(&address).is_some_and(|r| r.context == key(context));
    let region = if ours { all.remove(&address) } else { None };
    drop(all);
    let Some(region) = region else { return };
    give_back(&region.client, region.base);
    drop(region.view);
    drop(region.block);
}

/// Frees the application's remaining allocations when its context is freed.
pub fn free_all(context: &Object<Context>) {
    let left: Vec<usize> = {
        let all = regions();
        let ours = all.iter().filter(|(_, r)| r.context == key(context));
        ours.map(|(address, _)| *address).collect()
    };
    for address in left {
        free(context, address);
    }
}

/// Whether an address lies in one of the context's regions.
pub fn has(context: &Object<Context>, address: usize) -> bool {
    place(context, address, 1).is_some()
}

/// Classification of a range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeKind {
    /// Shared pages: this side reads and writes them as the device does.
    Shared,
    /// The device's, with a shadow here.
    Shadow,
}

/// The region of a range; `None`: the application's own memory.
pub fn place(context: &Object<Context>, address: usize, len: usize) -> Option<RangeKind> {
    let all = regions();
    let (_, region) = containing(&all, context, address, len)?;
    Some(match region.block {
        Some(_) => RangeKind::Shared,
        None => RangeKind::Shadow,
    })
}

/// The storage of a buffer over a range.
pub enum Storage {
    /// A block, from this byte on.
    Block(Arc<Block>, usize),
    /// The device's own memory at the address.
    Device,
}

/// The storage of a range, for a buffer made with `CL_MEM_USE_HOST_PTR`; `None`: it is the
/// application's own memory.
pub fn storage(context: &Object<Context>, address: usize, len: usize) -> Option<Storage> {
    let all = regions();
    let (start, region) = containing(&all, context, address, len)?;
    Some(match &region.block {
        Some(block) => Storage::Block(block.clone(), address - start),
        None => Storage::Device,
    })
}

/// The region in which a range lies.
fn containing<'a>(
    all: &'a Regions,
    context: &Object<Context>,
    address: usize,
    len: usize,
) -> Option<(usize, &'a Region)> {
    let (start, region) = all.range(..=address).next_back()?;
    let inside = region.context == key(context)
        && address - start < region.len.max(1)
        && len <= region.len - (address - start);
    inside.then_some((*start, region))
}

/// Notes that a part is mapped.
pub fn mapped(address: usize, len: usize, flags: u64) {
    if let Some((_, region)) = regions().range_mut(..=address).next_back() {
        region.maps.push((address, len, flags));
    }
}

/// Removes the newest mapping at an address, and returns its length and flags.
pub fn unmapped(address: usize) -> Option<(usize, u64)> {
    let mut all = regions();
    let (_, region) = all.range_mut(..=address).next_back()?;
    let at = region.maps.iter().rposition(|m| m.0 == address)?;
    let (_, len, flags) = region.maps.remove(at);
    Some((len, flags))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_stay_in_their_sessions_share_and_differ() {
        let share = FIRST_ADDRESS + 7 * SHARE_BYTES..FIRST_ADDRESS + 8 * SHARE_BYTES;
        let mut last = 0;
        for len in [PAGE_BYTES, 1 << 20, 3 << 30, PAGE_BYTES] {
            let address = next_address(7, len);
            assert!(share.contains(&address) && share.contains(&(address + len - 1)));
            assert_eq!(address % PAGE_BYTES, 0);
            assert_ne!(address, last);
            last = address;
        }
    }

    #[test]
    fn an_address_is_reserved_once() {
        let address = FIRST_ADDRESS + 511 * SHARE_BYTES;
        let view = reserve(address, PAGE_BYTES).expect("nobody is there");
        assert!(reserve(address, PAGE_BYTES).is_none());
        drop(view);
        assert!(reserve(address, PAGE_BYTES).is_some());
    }
}
