//! Live moves: a session continues in another executor of this node, on another device.
//!
//! The source sends the session's programs, which the target builds while the session runs, and
//! copies the contents of its objects a first time ([`ahead`]). Then the source stops the session
//! ([`super::freeze`]) and sends everything else ([`export`]); the target makes it again from the
//! client's own records ([`import`]) and starts it once the manager has agreed. Contents come
//! through a [`window`], in a [`stream`]. [`link`] has both ends of the protocol
//! ([`baltra_wire::moves`]), [`channel`] what they share.
//!
//! After the stop nothing is copied, made or unmapped for an object that was copied before and not
//! written since.

mod ahead;
pub(crate) mod channel;
mod export;
mod import;
pub mod link;
pub(crate) mod stream;
mod window;

use super::objects::{ObjectLocation, Program};
use super::table::Object;
use super::Session;
use crate::driver::emulate::has_channels;
use baltra_ring::{Locked, Memory};
use baltra_wire::executor::SessionFacts;
use baltra_wire::Id;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

/// No call of OpenCL reads the variables of a program.
const VARIABLES: &str = "a program has variables of its own, which cannot be read";

fn has_variables(program: &Program) -> bool {
    program.has_variables.load(Ordering::Relaxed)
}

/// Maximum size of a plan or a state: sources and binaries of programs.
const MESSAGE_BYTES_MAX: u64 = 1 << 30;

/// A file of these bytes.
fn file_of(bytes: &[u8]) -> io::Result<OwnedFd> {
    let (memory, fd) = Memory::create("baltra-move", bytes.len().max(1) as u64)?;
    let all = memory.slice(0, bytes.len() as u64);
    all.ok_or(io::ErrorKind::InvalidInput)?.copy_in(0, bytes);
    Ok(fd)
}

/// A private copy of the first bytes of a file.
pub(crate) fn bytes_of(fd: &OwnedFd, len: u64) -> io::Result<Vec<u8>> {
    if len > MESSAGE_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; len as usize];
    let memory = Memory::map(fd, len.max(1))?;
    let all = memory.slice(0, len).ok_or(io::ErrorKind::InvalidData)?;
    all.copy_out(0, &mut bytes);
    Ok(bytes)
}

impl Session {
    /// The session, for operators.
    pub fn facts(&self) -> SessionFacts {
        let (mut resident_bytes, mut swapped_bytes) = (0, 0);
        for (_, object) in self.objects.all() {
            let Object::Memory(memory) = object else {
                continue;
            };
            match &memory.place {
                _ if memory.parent.is_some() || memory.arena.is_some() => {}
                ObjectLocation::Movable(object) if !object.is_resident() => {
                    swapped_bytes += memory.size
                }
                _ => resident_bytes += memory.size,
            }
        }
        let queues = self.queues.locked();
        let open = queues.iter().filter(|queue| !queue.is_closed()).count();
        drop(queues);
        SessionFacts {
            session: self.start.session,
            resident_bytes,
            swapped_bytes,
            stored_bytes: 0,
            queues: open as u32,
            obstacle: self.obstacle().unwrap_or_default(),
        }
    }

    /// The reason for which the session cannot move.
    pub fn obstacle(&self) -> Option<String> {
        if self.door.is_some() {
            return Some("its memory is that of a virtual machine".into());
        }
        if self.shared.images.is_exclusive() {
            return Some("its device holds one image at a time".into());
        }
        if has_channels() {
            return Some("a program on its device has channels, whose contents stay there".into());
        }
        if !self.svm.locked().is_empty() {
            return Some("it has shared virtual memory".into());
        }
        let mut unknown = Vec::new();
        for (id, object) in self.objects.all() {
            match object {
                Object::Device(_) => return Some("it has sub-devices".into()),
                Object::Context(context) if context.devices.iter().any(|(id, _)| *id != 0) => {
                    return Some("it has a context of sub-devices".into());
                }
                Object::Failed(_) => {}
                Object::Memory(memory) if memory.is_pipe => {
                    return Some("it has a pipe, whose contents stay on the device".into());
                }
                Object::Program(program) if has_variables(&program) => {
                    return Some(VARIABLES.into());
                }
                Object::Kernel(kernel) if has_variables(&kernel.program) => {
                    return Some(VARIABLES.into());
                }
                _ if self.ledger.recipe(id).is_none() => unknown.push(id),
                _ => {}
            }
        }
        if let Some(id) = unknown.into_iter().find(|id| self.lacks_records(*id)) {
            return Some(format!(
                "its object {id} cannot be made again from its records"
            ));
        }
        if self.ledger.steps(&[]).is_err() {
            return Some("a program was made from programs that it no longer has".into());
        }
        None
    }

    /// Whether an object has no records while nothing is being made. An object that is being made
    /// gets its records later: once the session is stopped, the answer is exact.
    fn lacks_records(&self, id: Id) -> bool {
        // Held by the control thread from an object's creation to its record, maybe for long.
        let Ok(_made) = self.control.try_lock() else {
            return false;
        };
        let lacks = self.builder.is_idle() && self.ledger.recipe(id).is_none();
        lacks && self.objects.creation(id).is_ok()
    }
}
