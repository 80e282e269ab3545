//! Mapped memory objects.
//!
//! A map returns, in this order of preference: the application's own memory (with
//! `CL_MEM_USE_HOST_PTR`; bytes are copied at map and unmap), the buffer's bytes in place (where
//! the device works in host memory; nothing is copied), or a block of shared memory that is read at
//! map and written back at unmap ([`crate::core::blocks`]).

use crate::core::buffer::range;
use crate::core::copy::copy;
use crate::core::event::Waits;
use crate::core::memory::Memory;
use crate::core::object::Object;
use crate::core::pieces::WHOLE_BYTES;
use crate::core::queue::Queue;
use crate::core::transfer::{writes, Span, Transfer};
use baltra_opencl::*;
use baltra_ring::Locked;
use baltra_session::client::Block;
use baltra_wire::{Direction, Operation, Region};
use std::sync::Arc;

/// Copies bytes that the application has changed into the block.
pub type Gather = Box<dyn FnOnce(&mut [u8]) + Send>;

/// One mapped part of a memory object.
pub struct Mapping {
    /// The pointer returned to the application.
    pub pointer: usize,
    /// `cl_map_flags`
    pub flags: u64,
    /// Bytes.
    pub len: usize,
    /// The action of unmapping; `None`: the bytes are in place.
    pub write_back: Option<WriteBack>,
}

/// The way in which changed bytes reach the device.
pub struct WriteBack {
    /// The bytes to send; `None`: the target is the buffer's part in place or, without `gather`,
    /// the bytes are sent like those of a write.
    pub block: Option<Arc<Block>>,
    /// Fills the block (or the buffer in place) from the application's memory; `None`: the
    /// application uses the block itself.
    pub gather: Option<Gather>,
    /// Destination.
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
        /// Region of the image.
        region: Region,
    },
}

const WRITES: u64 = (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION) as u64;

/// Whether the part's contents are needed.
pub fn wants_contents(flags: u64) -> bool {
    flags & CL_MAP_WRITE_INVALIDATE_REGION as u64 == 0
}

/// Makes a mapping known; unmap finds it by its pointer.
pub fn remember(memory: &Memory, mapping: Mapping) {
    let mut maps = memory.maps.locked();
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
    let place = if single {
        memory.in_place(member)?
    } else {
        None
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
            let (pointer, back) = map_apart(&t, memory, host, (offset, len), contents)?;
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

/// Maps a buffer whose bytes are in the device's memory.
fn map_apart(
    t: &Transfer<'_>,
    memory: &Object<Memory>,
    host: Option<usize>,
    (offset, len): (usize, usize),
    contents: bool,
) -> Result<(usize, WriteBack), i32> {
    let here = t.queue.here();
    let buffer = memory.id_in(t.queue.member)?;
    let operation = range(Direction::Read, buffer, offset);
    let target = Target::Buffer {
        offset: offset as u64,
    };
    if let Some(host) = host {
        if contents {
            t.read_linear(Span { start: host, len }, operation)?;
        } else {
            nothing(t)?;
        }
        let mut back = WriteBack {
            block: None,
            gather: None,
            target,
        };
        if len <= WHOLE_BYTES {
            back.block = Some(Arc::new(here.allocate(len as u64, 4096)?));
            back.gather = Some(Box::new(move |bytes: &mut [u8]| {
                copy(host as *const u8, bytes.as_mut_ptr(), bytes.len());
            }));
        }
        return Ok((host, back));
    }
    let block = here.blocks.for_map(buffer, len)?;
    if contents {
        t.then(Span::NONE, &operation(0, block.part(0, len as u64)), || ())?;
    } else {
        nothing(t)?;
    }
    here.blocks.map(&block);
    let pointer = block.ptr() as usize;
    let back = WriteBack {
        block: Some(block),
        gather: None,
        target,
    };
    Ok((pointer, back))
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
    if t.blocking {
        t.waits.wait()?;
    }
    t.queue.may_begin(t.waits)
}

/// A command that moves nothing.
pub fn nothing(t: &Transfer<'_>) -> Result<(), i32> {
    if on_the_spot(t)? {
        t.on_the_spot(|| ());
        return Ok(());
    }
    if t.blocking {
        return t.then(Span::NONE, &Operation::Marker, || ());
    }
    let uses = t.uses.as_slice();
    t.queue
        .enqueue_nothing(t.command, t.waits, t.event_ret, uses)
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
        let mut maps = memory.maps.locked();
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
    let member = queue.member;
    if let (Some(block), None) = (&back.block, &back.gather) {
        queue.here().blocks.unmap(block);
    }
    if mapping.flags & WRITES == 0 {
        if t.may_be_local()? || t.queue.may_begin(t.waits)? {
            keep(memory, member, back.block);
            return nothing(&t);
        }
        // The map's own read into the block may still be outstanding.
        let owner = Arc::downgrade(&memory.share());
        return t.then(Span::NONE, &Operation::Marker, move || {
            if let Some(memory) = owner.upgrade() {
                keep(&memory, member, back.block);
            }
        });
    }
    let from = Span {
        start: mapping.pointer,
        len: mapping.len,
    };
    write_back(t, memory, back, from)
}

/// Writes the mapped bytes, `from`, to the object.
fn write_back(
    t: Transfer<'_>,
    memory: &Object<Memory>,
    back: WriteBack,
    from: Span,
) -> Result<(), i32> {
    let member = t.queue.member;
    match (back.block, back.target) {
        (None, Target::Image { .. }) => Err(CL_INVALID_OPERATION),
        (None, Target::Buffer { offset }) if back.gather.is_none() => {
            let buffer = memory.id_in(member)?;
            let t = Transfer {
                uses: writes(memory),
                ..t
            };
            t.write_linear(from, range(Direction::Write, buffer, offset as usize))
        }
        (None, Target::Buffer { offset }) => {
            let place = memory.in_place(member)?.ok_or(CL_INVALID_OPERATION)?;
            let gather = back.gather.ok_or(CL_INVALID_OPERATION)?;
            let (place, len) = (place as usize + offset as usize, from.len);
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
            let payload = block.part(0, from.len.min(block.len()) as u64);
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
            let Some(gather) = back.gather else {
                let owner = Arc::downgrade(&memory.share());
                return t.then(Span::NONE, &operation, move || {
                    if let Some(memory) = owner.upgrade() {
                        keep(&memory, member, Some(block));
                    }
                });
            };
            // The application may change its memory until the wait list is complete.
            if t.waits.is_empty() || t.waits.are_complete()? {
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
            t.write_later(None, block, gather, operation)
        }
    }
}

/// An unmapped buffer keeps the block for the next map.
fn keep(memory: &Memory, member: usize, block: Option<Arc<Block>>) {
    if let (Some(block), Ok(id), false) = (block, memory.id_in(member), memory.is_image()) {
        memory.context.members[member].blocks.keep(id, block);
    }
}
