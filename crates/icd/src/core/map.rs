//! Mapped memory objects.
//!
//! What a map hands out is, in this order: the application's own memory (with
//! `CL_MEM_USE_HOST_PTR`; bytes are copied at map and unmap), the buffer's bytes in place (where
//! the device works in host memory; nothing is copied), or a staging block that is read at map
//! and written back at unmap.

use crate::core::copy::copy;
use crate::core::event::Waits;
use crate::core::lost;
use crate::core::memory::Memory;
use crate::core::object::Object;
use crate::core::queue::Queue;
use crate::core::transfer::{writes, Span, Transfer};
use baltra_opencl::*;
use baltra_session::client::Block;
use baltra_wire::{Direction, Operation, Region};
use std::sync::Arc;

/// Brings bytes from where the application has changed them into the block.
pub type Gather = Box<dyn FnOnce(&mut [u8]) + Send>;

/// One mapped part of a memory object.
pub struct Mapping {
    /// What the application got.
    pub pointer: usize,
    /// `cl_map_flags`
    pub flags: u64,
    /// Bytes.
    pub len: usize,
    /// What unmapping does; `None`: the bytes are in place.
    pub write_back: Option<WriteBack>,
}

/// How changed bytes get to the device.
pub struct WriteBack {
    /// What is sent; `None`: the part of the buffer in place is the target.
    pub block: Option<Arc<Block>>,
    /// Fills the block (or the place) from the application's memory; `None`: the application
    /// has been given the block itself.
    pub gather: Option<Gather>,
    /// Where it goes.
    pub target: Target,
}

/// The part of the object that was mapped.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// Of a buffer.
    Buffer {
        /// First byte.
        offset: u64,
    },
    /// Of an image.
    Image {
        /// Where.
        region: Region,
    },
}

const WRITES: u64 = (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION) as u64;

/// Whether the part's contents are wanted.
pub fn wants_contents(flags: u64) -> bool {
    flags & CL_MAP_WRITE_INVALIDATE_REGION as u64 == 0
}

/// Makes a mapping known; unmap finds it by its pointer.
pub fn remember(memory: &Memory, mapping: Mapping) {
    let mut maps = memory.maps.lock().expect("no panic under this lock");
    maps.push(mapping);
}

/// `clEnqueueMapBuffer`: the pointer.
pub fn map_buffer(
    t: Transfer<'_>,
    memory: &Object<Memory>,
    flags: u64,
    offset: usize,
    len: usize,
) -> Result<usize, i32> {
    let member = t.queue.member;
    let single = t.queue.context.members.len() == 1;
    let place = match single {
        true => memory.in_place(member)?,
        false => None,
    };
    // SAFETY: the entry point has checked that the range is inside the buffer.
    let place = place.map(|p| unsafe { p.add(offset) } as usize);
    let host = (memory.host_ptr != 0).then(|| memory.host_ptr + offset);
    let contents = wants_contents(flags);
    let target = Target::Buffer {
        offset: offset as u64,
    };
    let (pointer, write_back) = match (host, place) {
        (Some(host), Some(_)) if memory.is_host_in_place(member)? => {
            nothing(&t)?;
            (host, None)
        }
        (None, Some(place)) => {
            nothing(&t)?;
            (place, None)
        }
        (Some(host), Some(place)) => {
            let bring = move || copy(place as *const u8, host as *mut u8, len);
            if !contents {
                nothing(&t)?;
            } else if on_the_spot(&t)? {
                t.on_the_spot(bring);
            } else {
                let to = Span { start: host, len };
                t.then(to, &Operation::Marker, bring)?;
            }
            let gather: Gather = Box::new(move |bytes: &mut [u8]| {
                copy(host as *const u8, bytes.as_mut_ptr(), bytes.len());
            });
            let back = WriteBack {
                block: None,
                gather: Some(gather),
                target,
            };
            (host, Some(back))
        }
        (host, None) => {
            let client = &t.queue.here().client;
            let block = client.allocate(len as u64, 4096).map_err(lost)?;
            let block = Arc::new(block);
            let pointer = host.unwrap_or(block.ptr() as usize);
            if contents {
                let buffer = memory.id_in(member)?;
                let from = block.clone();
                let to = Span {
                    start: pointer,
                    len: if host.is_some() { len } else { 0 },
                };
                let bring = move || {
                    if host.is_some() {
                        copy(from.ptr(), pointer as *mut u8, len);
                    }
                };
                t.read_into(block.clone(), to, bring, |payload| Operation::Buffer {
                    direction: Direction::Read,
                    buffer,
                    offset: offset as u64,
                    payload,
                })?;
            } else {
                nothing(&t)?;
            }
            let gather = host.map(|host| {
                Box::new(move |bytes: &mut [u8]| {
                    copy(host as *const u8, bytes.as_mut_ptr(), bytes.len());
                }) as Gather
            });
            let back = WriteBack {
                block: Some(block),
                gather,
                target,
            };
            (pointer, Some(back))
        }
    };
    let mapping = Mapping {
        pointer,
        flags,
        len,
        write_back,
    };
    remember(memory, mapping);
    Ok(pointer)
}

/// Whether this side may act now, after waiting if the call is blocking.
fn on_the_spot(t: &Transfer<'_>) -> Result<bool, i32> {
    if t.may_be_local()? {
        return Ok(true);
    }
    if t.blocking && t.queue.in_order() {
        t.become_local()?;
        return Ok(true);
    }
    Ok(false)
}

/// A command that moves nothing.
pub fn nothing(t: &Transfer<'_>) -> Result<(), i32> {
    if on_the_spot(t)? {
        t.on_the_spot(|| ());
        return Ok(());
    }
    if t.blocking {
        let nowhere = Span { start: 0, len: 0 };
        return t.then(nowhere, &Operation::Marker, || ());
    }
    let uses = t.uses.as_slice();
    t.queue
        .enqueue(t.command, t.waits, t.event_ret, uses, &Operation::Marker)
}

/// `clEnqueueUnmapMemObject`.
pub fn unmap(
    queue: &Object<Queue>,
    memory: &Object<Memory>,
    pointer: usize,
    waits: &Waits<'_>,
    event_ret: *mut cl_event,
) -> Result<(), i32> {
    let mapping = {
        let mut maps = memory.maps.lock().expect("no panic under this lock");
        // CL_INVALID_VALUE if mapped_ptr is not a valid pointer returned by clEnqueueMapBuffer
        // or clEnqueueMapImage for memobj.
        let at = maps.iter().rposition(|m| m.pointer == pointer);
        maps.remove(at.ok_or(CL_INVALID_VALUE)?)
    };
    let t = Transfer {
        queue,
        command: CL_COMMAND_UNMAP_MEM_OBJECT,
        waits,
        event_ret,
        blocking: false,
        uses: None,
    };
    let Some(back) = mapping.write_back else {
        return nothing(&t);
    };
    if mapping.flags & WRITES == 0 {
        let keep = back.block;
        return match t.may_be_local()? {
            true => nothing(&t),
            // The map's own read may still be on its way into the block.
            false => t.then(Span { start: 0, len: 0 }, &Operation::Marker, || drop(keep)),
        };
    }
    let member = queue.member;
    match (back.block, back.target) {
        (None, Target::Image { .. }) => Err(CL_INVALID_OPERATION),
        (None, Target::Buffer { offset }) => {
            let place = memory.in_place(member)?.ok_or(CL_INVALID_OPERATION)?;
            let gather = back.gather.ok_or(CL_INVALID_OPERATION)?;
            let (place, len) = (place as usize + offset as usize, mapping.len);
            let owner = memory.share();
            let run = move || {
                // SAFETY: the mapped part of the buffer in place, which `owner` keeps.
                let bytes = unsafe { std::slice::from_raw_parts_mut(place as *mut u8, len) };
                gather(bytes);
                drop(owner);
            };
            t.local(run)
        }
        (Some(block), target) => {
            let payload = block.payload();
            let operation = match target {
                Target::Buffer { offset } => Operation::Buffer {
                    direction: Direction::Write,
                    buffer: memory.id_in(member)?,
                    offset,
                    payload,
                },
                Target::Image { region } => Operation::Image {
                    direction: Direction::Write,
                    image: memory.id_in(member)?,
                    region,
                    payload,
                },
            };
            let t = Transfer {
                uses: writes(memory),
                ..t
            };
            let at_place = Span { start: 0, len: 0 };
            let Some(gather) = back.gather else {
                return t.then(at_place, &operation, || drop(block));
            };
            // The application may change its memory until what the command waits for is over.
            let from = Span {
                start: mapping.pointer,
                len: mapping.len,
            };
            if waits.is_empty() || waits.are_complete()? {
                return t.write(block.len(), from, gather, |payload| match operation {
                    Operation::Buffer { buffer, offset, .. } => Operation::Buffer {
                        direction: Direction::Write,
                        buffer,
                        offset,
                        payload,
                    },
                    Operation::Image { image, region, .. } => Operation::Image {
                        direction: Direction::Write,
                        image,
                        region,
                        payload,
                    },
                    other => other,
                });
            }
            let into = block.clone();
            Transfer {
                command: CL_COMMAND_UNMAP_MEM_OBJECT,
                event_ret: std::ptr::null_mut(),
                ..t
            }
            .local(move || {
                // SAFETY: the block is the mapping's own, and nobody else holds it now.
                gather(unsafe { std::slice::from_raw_parts_mut(into.ptr(), into.len()) });
            })?;
            t.then(at_place, &operation, || drop(block))
        }
    }
}
