//! `cl_mem`: buffers, sub-buffers, images and pipes, with one replica in each session of the context.
//!
//! On a device that works in host memory a buffer's bytes are a block of the session's arena,
//! and reads, writes and maps are this library's own copies. Elsewhere they are the device's.

use crate::core::buffer::range;
use crate::core::callback;
use crate::core::context::{Context, Member};
use crate::core::image::ImageInfo;
use crate::core::lost;
use crate::core::map::Mapping;
use crate::core::object::{Class, Object, Ref};
use crate::core::pieces::{self, WHOLE_BYTES};
use crate::core::process;
use crate::core::replica::Coherence;
use crate::core::svm;
use crate::core::transfer::Span;
use baltra_opencl::*;
use baltra_ring::{Locked, Unpoisoned};
use baltra_session::client::Block;
use baltra_wire::{Backing, Control, Direction, Id, PipeShape, Request};
use std::sync::{Arc, Mutex, OnceLock};

type Job = Box<dyn FnOnce() + Send>;
/// Sends an object's creation to a member's session under the given name.
type Make = Box<dyn Fn(&Member, usize, Id) -> Result<(), i32> + Send + Sync>;

/// `cl_mem_flags` about the host pointer.
pub const HOST_POINTER_FLAGS: u64 =
    (CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR) as u64;
/// `cl_mem_flags` that this library handles itself: the host pointer's, and the host's access
/// rights, which are checked here (mapping for writing, for example, involves reading).
pub const HOST_FLAGS: u64 = HOST_POINTER_FLAGS
    | (CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS) as u64;
/// Creating a buffer from this size on waits for the driver, because filling it takes far longer.
const CONFIRMED_BYTES: usize = 16 << 20;
/// Buffers from this size are page-aligned.
const PAGE_BYTES: usize = 4096;

/// A memory object in one session.
pub struct Replica {
    /// Its name there.
    pub id: Id,
    /// The buffer's bytes, where the device works in host memory.
    pub block: Option<Arc<Block>>,
    /// The first of them in the block.
    start: usize,
    /// The bytes are those of the application's shared virtual memory.
    is_svm: bool,
}

impl Replica {
    fn new(id: Id, block: Option<Arc<Block>>) -> Replica {
        Replica {
            id,
            block,
            start: 0,
            is_svm: false,
        }
    }
}

/// Parameters of a memory object.
pub struct MemoryParameters {
    /// The context.
    pub context: Ref<Context>,
    /// `CL_MEM_OBJECT_…`
    pub kind: i32,
    /// `cl_mem_flags`, complete (defaults and the parent's filled in).
    pub flags: u64,
    /// Bytes.
    pub size: usize,
    /// The application's pointer with `CL_MEM_USE_HOST_PTR`, otherwise 0.
    pub host_ptr: usize,
    /// The object that it is a part of, or created over.
    pub parent: Option<Ref<Memory>>,
    /// First byte in the parent (sub-buffers).
    pub origin: usize,
    /// Of images.
    pub image: Option<ImageInfo>,
    /// Of pipes.
    pub pipe: Option<PipeShape>,
    /// `CL_MEM_PROPERTIES`, with its final zero; empty where none were given.
    pub properties: Vec<u64>,
}

/// One `cl_mem`.
pub struct Memory {
    /// The context.
    pub context: Ref<Context>,
    /// `CL_MEM_OBJECT_…`
    pub kind: i32,
    /// `cl_mem_flags`
    pub flags: u64,
    /// Bytes.
    pub size: usize,
    /// The application's pointer with `CL_MEM_USE_HOST_PTR`, otherwise 0.
    pub host_ptr: usize,
    /// The object that it is a part of, or created over.
    pub parent: Option<Ref<Memory>>,
    /// First byte in the parent (sub-buffers).
    pub origin: usize,
    /// Of images.
    pub image: Option<ImageInfo>,
    /// Of pipes.
    pub pipe: Option<PipeShape>,
    /// `CL_MEM_PROPERTIES`
    pub properties: Vec<u64>,
    /// The application's mappings.
    pub maps: Mutex<Vec<Mapping>>,
    /// The replicas that hold the contents (contexts of several sessions).
    pub coherence: Mutex<Coherence>,
    replicas: Box<[OnceLock<Replica>]>,
    making: Mutex<()>,
    make: Option<Make>,
    destructors: Mutex<Vec<Job>>,
}

impl Class for Memory {
    type Raw = _cl_mem;
    const TAG: u32 = 0xba17_0005;
    const INVALID: i32 = CL_INVALID_MEM_OBJECT;

    fn ended(object: &Object<Memory>) {
        process::current().memory.remove(object.handle() as usize);
    }
}

impl Memory {
    /// A buffer or sub-buffer; a buffer's first contents are copied from `contents`.
    pub fn buffer(
        parameters: MemoryParameters,
        contents: Option<&[u8]>,
    ) -> Result<Ref<Memory>, i32> {
        let memory = Memory::with(parameters, None);
        // A context of one session creates immediately, so that this call returns an error.
        let home = memory.context.home();
        if memory.context.members.len() == 1 || contents.is_some() || memory.is_askew() {
            memory.replica(home, contents)?;
        }
        if contents.is_some() {
            memory.coherence.lock().expect("no panic").hold_only(home);
        }
        Ok(memory.known())
    }

    /// An object that `make` creates in a member's session, immediately in the first member's.
    pub fn create(
        parameters: MemoryParameters,
        make: impl Fn(&Member, usize, Id) -> Result<(), i32> + Send + Sync + 'static,
    ) -> Result<Ref<Memory>, i32> {
        let memory = Memory::with(parameters, Some(Box::new(make)));
        let home = memory.context.home();
        memory.replica(home, None)?;
        memory.coherence.lock().expect("no panic").hold_only(home);
        Ok(memory.known())
    }

    /// Whether it is a part of a buffer on a pool that begins where drivers may refuse it.
    fn is_askew(&self) -> bool {
        let pool = self.context.devices.iter().filter(|d| d.pool().is_some());
        let mut aligns = pool.map(|d| d.limits.base_align);
        self.parent.is_some() && aligns.any(|align| !self.origin.is_multiple_of(align))
    }

    fn known(self) -> Ref<Memory> {
        let memory = Object::new(self);
        process::current().memory.add(memory.handle() as usize);
        memory
    }

    fn with(parameters: MemoryParameters, make: Option<Make>) -> Memory {
        let members = parameters.context.members.len();
        Memory {
            context: parameters.context,
            kind: parameters.kind,
            flags: parameters.flags,
            size: parameters.size,
            host_ptr: parameters.host_ptr,
            parent: parameters.parent,
            origin: parameters.origin,
            image: parameters.image,
            pipe: parameters.pipe,
            properties: parameters.properties,
            maps: Mutex::default(),
            coherence: Mutex::default(),
            replicas: (0..members).map(|_| OnceLock::new()).collect(),
            making: Mutex::new(()),
            make,
            destructors: Mutex::default(),
        }
    }

    /// The object's id in a member's session, where it is created if necessary.
    pub fn id_in(&self, member: usize) -> Result<Id, i32> {
        Ok(self.replica(member, None)?.id)
    }

    /// The object in a member's session.
    pub fn replica(&self, member: usize, contents: Option<&[u8]>) -> Result<&Replica, i32> {
        if let Some(replica) = self.replicas[member].get() {
            return Ok(replica);
        }
        let _making = self.making.locked();
        if let Some(replica) = self.replicas[member].get() {
            return Ok(replica);
        }
        let replica = self.make(member, contents)?;
        Ok(self.replicas[member].get_or_init(|| replica))
    }

    fn make(&self, index: usize, contents: Option<&[u8]>) -> Result<Replica, i32> {
        let member = &self.context.members[index];
        let client = &member.client;
        let id = client.new_id();
        if let Some(make) = &self.make {
            make(member, index, id)?;
            return Ok(Replica::new(id, None));
        }
        if let Some(parent) = &self.parent {
            let control = Control::SubBuffer {
                id,
                parent: parent.id_in(index)?,
                flags: self.flags & !HOST_FLAGS,
                origin: self.origin as u64,
                size: self.size as u64,
            };
            client.control(&control).map_err(lost)?;
            // "CL_MISALIGNED_SUB_BUFFER_OFFSET if there are no devices in context associated with
            // buffer for which the origin field … is aligned to the CL_DEVICE_MEM_BASE_ADDR_ALIGN
            // value": some drivers make those all the same.
            if !self.origin.is_multiple_of(member.device.limits.base_align) {
                client.confirm(id).map_err(lost)?;
            }
            return Ok(Replica::new(id, None));
        }
        if let Some(storage) = self.svm_storage(index) {
            return self.make_over_svm(member, id, storage);
        }
        // Contents of more than that follow the creation like those of a write.
        let apart = !client.host_memory() && self.size > WHOLE_BYTES;
        let mut block = None;
        if client.host_memory() || contents.is_some() && !apart {
            let align = match self.size {
                n if n >= PAGE_BYTES => PAGE_BYTES,
                _ => 128,
            };
            let new = Arc::new(member.allocate(self.size as u64, align as u64)?);
            if let Some(contents) = contents {
                let n = contents.len().min(self.size);
                crate::core::copy::copy(contents.as_ptr(), new.ptr(), n);
            }
            block = Some(new);
        }
        let backing = match &block {
            Some(block) if client.host_memory() => Backing::Arena(block.payload()),
            other => Backing::Device(other.as_ref().map(|b| b.payload())),
        };
        let control = Control::Buffer {
            id,
            context: member.id,
            flags: self.flags & !HOST_FLAGS,
            size: self.size as u64,
            backing,
        };
        client.control(&control).map_err(lost)?;
        let staged = client.shares_arenas() && !client.host_memory();
        if staged && self.size >= pieces::PREPARED_BYTES {
            pieces::prepare(&self.context, index, id);
        }
        if let Some(contents) = contents.filter(|_| apart) {
            let from = Span::new(contents.as_ptr(), contents.len().min(self.size));
            let sent = pieces::write(member, from, &range(Direction::Write, id, 0));
            if let Err(code) = sent {
                // A lost session has released everything.
                let _ = client.release(id, None);
                return Err(code);
            }
        }
        if !client.host_memory() {
            if let Some(block) = block.take() {
                // The device has its copy once the control channel has processed the creation.
                let done = Box::new(move |_| drop(block));
                client.call_then(Request::Sync, done).map_err(lost)?;
            }
        }
        // "CL_MEM_OBJECT_ALLOCATION_FAILURE if there is a failure to allocate memory for buffer
        // object." For a small buffer its commands return the error.
        if self.size >= CONFIRMED_BYTES || self.size as u64 > member.device.limits.mem_alloc_max {
            client.confirm(id).map_err(lost)?;
        }
        Ok(Replica::new(id, block))
    }

    /// The shared virtual memory that the buffer is made over.
    fn svm_storage(&self, index: usize) -> Option<svm::Storage> {
        let client = &self.context.members[index].client;
        if self.host_ptr == 0 || self.context.members.len() > 1 || !client.is_recent() {
            return None;
        }
        svm::storage(&self.context, self.host_ptr, self.size)
    }

    fn make_over_svm(
        &self,
        member: &Member,
        id: Id,
        storage: svm::Storage,
    ) -> Result<Replica, i32> {
        let (backing, block, start) = match storage {
            svm::Storage::Block(block, start) => {
                let part = block.part(start as u64, self.size as u64);
                (Backing::Arena(part), Some(block), start)
            }
            svm::Storage::Device => (Backing::Svm(self.host_ptr as u64), None, 0),
        };
        let control = Control::Buffer {
            id,
            context: member.id,
            flags: self.flags & !HOST_FLAGS,
            size: self.size as u64,
            backing,
        };
        member.client.control(&control).map_err(lost)?;
        if block.is_none() {
            // Not every driver with shared virtual memory can create such buffers.
            member.client.confirm(id).map_err(lost)?;
        }
        Ok(Replica {
            id,
            block,
            start,
            is_svm: true,
        })
    }

    /// Whether it is an image.
    pub fn is_image(&self) -> bool {
        self.image.is_some()
    }

    /// The buffer that contains the bytes, and the offset of the first of them.
    pub fn whole(&self) -> (&Memory, usize) {
        match &self.parent {
            Some(parent) if !self.is_image() => {
                let (whole, origin) = parent.whole();
                (whole, origin + self.origin)
            }
            _ => (self, 0),
        }
    }

    /// The buffer's bytes in place, where the member's device works in host memory: valid for
    /// `size` bytes as long as the object lives.
    pub fn in_place(&self, member: usize) -> Result<Option<*mut u8>, i32> {
        if self.is_image() || !self.context.members[member].client.host_memory() {
            return Ok(None);
        }
        let (whole, origin) = self.whole();
        let replica = whole.replica(member, None)?;
        Ok(replica.block.as_ref().map(|block| {
            // SAFETY: a sub-buffer is inside its parent, whose bytes are in the block.
            unsafe { block.ptr().add(replica.start + origin) }
        }))
    }

    /// Whether the application's pointer refers to the bytes that a member's device uses.
    pub fn is_host_in_place(&self, member: usize) -> Result<bool, i32> {
        let replica = self.whole().0.replica(member, None)?;
        Ok(replica.is_svm && replica.block.is_some())
    }

    /// `CL_MEM_USES_SVM_POINTER`.
    pub fn uses_svm(&self) -> bool {
        let (whole, _) = self.whole();
        whole.host_ptr != 0 && svm::has(&whole.context, whole.host_ptr)
    }

    /// `clSetMemObjectDestructorCallback`.
    pub fn at_end(&self, job: Job) {
        let mut destructors = self.destructors.locked();
        destructors.push(job);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let jobs = self.destructors.get_mut().unpoisoned();
        // The registered callback functions are called in the reverse order in which they were
        // registered, when the memory object's resources are freed: the last replica's end.
        let jobs = std::mem::take(jobs).into_iter().rev().collect::<Vec<_>>();
        let finale = (!jobs.is_empty()).then(|| Arc::new(Finale(Mutex::new(jobs))));
        for (index, replica) in self.replicas.iter_mut().enumerate() {
            let Some(replica) = replica.take() else {
                continue;
            };
            let member = &self.context.members[index];
            let client = &member.client;
            let Replica { id, block, .. } = replica;
            member.blocks.forget(id);
            let freed: Option<Job> = match (&finale, block) {
                (None, None) => None,
                (finale, block) => {
                    let finale = finale.clone();
                    Some(Box::new(move || drop((block, finale))))
                }
            };
            // A lost session has released everything.
            let _ = client.release(id, freed);
        }
    }
}

/// Runs the destructor callbacks when the last replica is released.
struct Finale(Mutex<Vec<Job>>);

impl Drop for Finale {
    fn drop(&mut self) {
        let jobs = std::mem::take(self.0.get_mut().unpoisoned());
        for job in jobs {
            callback::run(job);
        }
    }
}
