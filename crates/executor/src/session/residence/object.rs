//! A memory object that may leave the device, and its copy in the host.

use super::books::Number;
use super::Residence;
use crate::account::Account;
use crate::driver::{Code, Enqueue, Event, HostMemory, Mem, Queue};
use crate::session::pixels;
use baltra_opencl::*;
use baltra_ring::{Locked, Memory, Range};
use baltra_wire::{ImageFormat, ImageShape};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// The shape of an object.
pub enum Shape {
    /// A buffer of that many bytes.
    Buffer(u64),
    /// An image; its tight contents have that many bytes.
    Image(ImageFormat, ImageShape, u64),
}

impl Shape {
    /// Bytes of its contents.
    pub fn bytes(&self) -> u64 {
        match self {
            Shape::Buffer(bytes) | Shape::Image(_, _, bytes) => *bytes,
        }
    }

    /// The dimension by which an image is divided into slices; `None`: it is one.
    fn axis(&self) -> Option<usize> {
        let Shape::Image(_, image, _) = self else {
            return None;
        };
        let extent = pixels::extent(image);
        (1..3).rev().find(|axis| extent[*axis] > 1)
    }

    /// Bytes of the smallest part that can be copied alone: a row or a slice of an image.
    pub fn unit(&self) -> u64 {
        match self {
            Shape::Buffer(_) => 1,
            Shape::Image(_, image, bytes) => {
                let count = self.axis().map_or(1, |axis| pixels::extent(image)[axis]);
                (bytes / count as u64).max(1)
            }
        }
    }
}

/// Bytes of a swapped object.
pub(super) struct HostCopy {
    memory: CopyMemory,
    _counted: Counted,
}

/// The memory of a host copy.
enum CopyMemory {
    /// The device accesses it directly.
    Pinned(HostMemory),
    Ordinary(Range),
}

impl HostCopy {
    fn ptr(&self) -> *mut u8 {
        match &self.memory {
            CopyMemory::Pinned(memory) => memory.ptr(),
            CopyMemory::Ordinary(range) => range.ptr(),
        }
    }
}

/// The driver object of a buffer that has left: the next one of its size and flags takes it, which
/// spares the driver a release and a creation.
pub(super) struct Spare {
    mem: Mem,
    bytes: u64,
    flags: u64,
}

/// Bytes of host copies, as long as it lives.
struct Counted(Arc<Residence>, u64);

impl Counted {
    fn new(residence: &Arc<Residence>, bytes: u64) -> Counted {
        residence.host_bytes.fetch_add(bytes, Ordering::Relaxed);
        Counted(residence.clone(), bytes)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.host_bytes.fetch_sub(self.1, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct ObjectState {
    /// The driver's object; `None`: it is not on the device.
    mem: Option<Arc<Mem>>,
    /// Unique among all driver objects, unlike their addresses.
    version: u64,
    /// Driver objects of the parts, made when they are used.
    parts: HashMap<u64, Arc<Mem>>,
    host: Option<HostCopy>,
    /// The host copy has the contents, unless the object was written since.
    has_copy: bool,
}

impl ObjectState {
    fn set(&mut self, mem: Mem, version: u64) {
        self.mem = Some(Arc::new(mem));
        self.version = version;
    }
}

/// A memory object that may leave the device.
pub struct Object {
    pub(super) number: Number,
    residence: Arc<Residence>,
    pub(super) account: Arc<Account>,
    pub(super) bytes: u64,
    flags: u64,
    shape: Shape,
    place: Mutex<ObjectState>,
    /// Written since it came to the device. Set while the object is pinned.
    is_dirty: AtomicBool,
    on_destroyed: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

impl Object {
    /// Counted in the books already, without a driver object.
    pub(super) fn new(
        number: Number,
        residence: &Arc<Residence>,
        account: &Arc<Account>,
        flags: u64,
        shape: Shape,
    ) -> Object {
        Object {
            number,
            residence: residence.clone(),
            account: account.clone(),
            bytes: shape.bytes(),
            // The mover reads and writes it; the library refuses its client what the flags forbid.
            flags: flags & !HOST_ACCESS_FLAGS,
            shape,
            place: Mutex::default(),
            is_dirty: false.into(),
            on_destroyed: Mutex::default(),
        }
    }

    /// Whether kernels may write it.
    pub fn is_writable(&self) -> bool {
        self.flags & CL_MEM_READ_ONLY as u64 == 0
    }

    /// A command that writes it is about to be handed over.
    pub fn written(&self) {
        self.is_dirty.store(true, Ordering::Release);
    }

    /// The driver's object of a pinned object.
    pub fn mem(&self) -> Result<Arc<Mem>, Code> {
        let mem = self.place.locked().mem.clone();
        mem.ok_or(CL_MEM_OBJECT_ALLOCATION_FAILURE)
    }

    /// Number of the driver's object.
    pub fn version(&self) -> u64 {
        self.place.locked().version
    }

    /// The driver's object or, while there is none, a temporary one without the contents.
    pub fn sample(&self) -> Result<Arc<Mem>, Code> {
        let mem = self.place.locked().mem.clone();
        mem.map_or_else(|| self.make(None).map(Arc::new), Ok)
    }

    /// The driver's object of a part, with a number from [`Object::part_number`].
    pub fn part(
        &self,
        part: u64,
        make: impl FnOnce() -> Result<Arc<Mem>, Code>,
    ) -> Result<Arc<Mem>, Code> {
        let place = self.place.locked();
        if let Some(mem) = place.parts.get(&part) {
            return Ok(mem.clone());
        }
        let version = place.version;
        drop(place);
        let mem = make()?;
        let mut place = self.place.locked();
        if place.mem.is_some() && place.version == version {
            place.parts.insert(part, mem.clone());
        }
        Ok(mem)
    }

    /// A number for a part.
    pub fn part_number(&self) -> u64 {
        self.residence.number()
    }

    /// Forgets a part.
    pub fn drop_part(&self, part: u64) {
        let gone = self.place.locked().parts.remove(&part);
        drop(gone);
    }

    /// Gives a new object its driver object.
    pub(super) fn settle(&self, mem: Mem, is_dirty: bool) {
        self.is_dirty.store(is_dirty, Ordering::Relaxed);
        self.place.locked().set(mem, self.residence.number());
    }

    /// Whether it is on the device.
    pub fn is_resident(&self) -> bool {
        self.place.locked().mem.is_some()
    }

    /// Calls `then` when the object is released and no command uses it.
    pub fn on_destroyed(&self, then: Box<dyn FnOnce() + Send>) {
        self.on_destroyed.locked().push(then);
    }

    /// A driver's object, with `contents` if there are any.
    pub(super) fn make(&self, contents: Option<&Range>) -> Result<Mem, Code> {
        let pointer = contents.map_or(std::ptr::null_mut(), Range::ptr);
        let flags = match contents {
            Some(_) => self.flags | CL_MEM_COPY_HOST_PTR as u64,
            None => self.flags,
        };
        let context = &self.residence.context;
        match &self.shape {
            // SAFETY: the contents are at least the object's bytes, and outlive the call.
            Shape::Buffer(bytes) => unsafe { context.buffer(flags, *bytes as usize, pointer) },
            Shape::Image(format, shape, _) => {
                let (format, shape) = pixels::driver_image(*format, shape, std::ptr::null_mut());
                // SAFETY: as above, for the tight contents.
                unsafe { context.image(flags, &format, &shape, pointer) }
            }
        }
    }

    /// Keeps the contents of a new object in the host.
    pub(super) fn keep(&self, contents: Option<&Range>) -> Result<(), Code> {
        let Some(contents) = contents else {
            return Ok(());
        };
        let mut place = self.place.locked();
        let host = self.host_copy(&mut place)?;
        // SAFETY: both have the object's bytes; the client may write its own meanwhile, which
        // spoils nothing but its own contents.
        unsafe { std::ptr::copy(contents.ptr(), host, self.bytes as usize) };
        place.has_copy = true;
        Ok(())
    }

    /// Gives up the host copy of an object that is on the device: only one that is out of date with
    /// `outdated`. Without one, the object counts as written.
    pub(super) fn give_up_copy(&self, outdated: bool) -> Option<HostCopy> {
        let mut place = self.place.locked();
        let is_current = place.has_copy && !self.is_dirty.load(Ordering::Acquire);
        if place.mem.is_none() || outdated && is_current {
            return None;
        }
        if is_current {
            self.is_dirty.store(true, Ordering::Release);
        }
        place.has_copy = false;
        place.host.take()
    }

    /// Memory for the host copy, made at the first call.
    fn host_copy(&self, place: &mut ObjectState) -> Result<*mut u8, Code> {
        if place.host.is_none() {
            place.host = Some(self.new_host_copy().ok_or(CL_OUT_OF_HOST_MEMORY)?);
        }
        let host = place.host.as_ref();
        host.map(HostCopy::ptr).ok_or(CL_OUT_OF_HOST_MEMORY)
    }

    fn new_host_copy(&self) -> Option<HostCopy> {
        if let Some(copy) = self.residence.trim(self.bytes) {
            return Some(copy);
        }
        let residence = &self.residence;
        let pinned = residence.pins.then(|| {
            let queue = residence.queue().ok()?;
            HostMemory::new(&residence.context, &queue, self.bytes as usize).ok()
        });
        let memory = match pinned.flatten() {
            Some(memory) => CopyMemory::Pinned(memory),
            None => {
                let memory = Memory::anonymous(self.bytes).ok()?;
                CopyMemory::Ordinary(memory.slice(0, self.bytes)?)
            }
        };
        Some(HostCopy {
            memory,
            _counted: Counted::new(residence, self.bytes),
        })
    }

    /// Goes to the host. After a failure it stays on the device.
    pub(super) fn leave(&self) -> Result<(), Code> {
        let mut place = self.place.locked();
        let Some(mem) = place.mem.clone() else {
            return Ok(());
        };
        if self.is_dirty.load(Ordering::Acquire) {
            let host = self.host_copy(&mut place)?;
            place.has_copy = false;
            // SAFETY: the copy has the object's bytes and lives as long as the object.
            unsafe { self.copy(&mem, true, host) }?;
            place.has_copy = true;
            self.is_dirty.store(false, Ordering::Release);
            self.account.lease.count_swaps(0, self.bytes);
        }
        place.parts.clear();
        place.mem = None;
        if let Shape::Buffer(bytes) = self.shape {
            if let Ok(mem) = Arc::try_unwrap(mem) {
                self.residence.spares.locked().push(Spare {
                    mem,
                    bytes,
                    flags: self.flags,
                });
            }
        }
        Ok(())
    }

    /// Comes to the device. After a failure it stays in the host.
    pub(super) fn come(&self) -> Result<(), Code> {
        let mut place = self.place.locked();
        // A spare has another object's bytes, which the copy replaces.
        let mem = match place.has_copy.then(|| self.take_spare()).flatten() {
            Some(spare) => spare,
            None => {
                // The driver may need their memory.
                self.residence.spares.locked().clear();
                self.make(None)?
            }
        };
        if place.has_copy {
            let host = self.host_copy(&mut place)?;
            // SAFETY: as in `leave`.
            unsafe { self.copy(&mem, false, host) }?;
            self.account.lease.count_swaps(self.bytes, 0);
        }
        place.set(mem, self.residence.number());
        Ok(())
    }

    /// A driver object of a buffer that has left in this move, as this one needs it.
    fn take_spare(&self) -> Option<Mem> {
        let Shape::Buffer(bytes) = self.shape else {
            return None;
        };
        let mut spares = self.residence.spares.locked();
        let fits = |spare: &Spare| spare.bytes == bytes && spare.flags == self.flags;
        let at = spares.iter().position(fits)?;
        Some(spares.swap_remove(at).mem)
    }

    /// Whether it was ever written.
    pub fn has_contents(&self) -> bool {
        let place = self.place.locked();
        place.has_copy || self.is_dirty.load(Ordering::Acquire)
    }

    /// Copies a part of the contents to `host`; through `transfers`, if they are on the device.
    pub fn export(&self, transfers: &mut Transfers, part: Slice, host: &Range) -> Result<(), Code> {
        let mut place = self.place.locked();
        match place.mem.clone() {
            Some(mem) if self.is_dirty.load(Ordering::Acquire) => {
                // Commands use the object meanwhile.
                drop(place);
                transfers.add(&mem, &self.shape, true, part, host)
            }
            _ if !place.has_copy => Ok(()),
            _ => {
                let own = self.own_part(&mut place, part)?;
                // SAFETY: both have the part's bytes; the two are different memory.
                unsafe { std::ptr::copy_nonoverlapping(own, host.ptr(), host.len()) };
                Ok(())
            }
        }
    }

    /// Replaces a part of the contents of an object that no command uses.
    pub fn import(&self, part: Slice, host: &Range) -> Result<(), Code> {
        let mut place = self.place.locked();
        if let Some(mem) = place.mem.clone() {
            // It must not leave meanwhile: the lock is held until the copy is complete.
            let mut transfers = Transfers::new(&self.residence.queue()?);
            transfers.add(&mem, &self.shape, false, part, host)?;
            transfers.wait()?;
            self.written();
            return Ok(());
        }
        let own = self.own_part(&mut place, part)?;
        // SAFETY: as in `export`.
        unsafe { std::ptr::copy_nonoverlapping(host.ptr(), own, host.len()) };
        place.has_copy = true;
        Ok(())
    }

    /// A part of the host copy.
    fn own_part(&self, place: &mut ObjectState, part: Slice) -> Result<*mut u8, Code> {
        if !part.fits(&self.shape) {
            return Err(CL_INVALID_VALUE);
        }
        Ok(self.host_copy(place)?.wrapping_add(part.start as usize))
    }

    /// As [`copy_contents`].
    ///
    /// # Safety
    /// `host` is valid for the object's bytes.
    unsafe fn copy(&self, mem: &Mem, read: bool, host: *mut u8) -> Result<(), Code> {
        let queue = self.residence.queue()?;
        // SAFETY: the caller's promise.
        unsafe { copy_contents(&queue, mem, &self.shape, read, host) }
    }
}

/// A part of an object's contents.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// Its first byte.
    pub start: u64,
    /// Bytes.
    pub len: u64,
}

impl Slice {
    /// Whether a shape has this part.
    pub fn fits(&self, shape: &Shape) -> bool {
        let end = self.start.checked_add(self.len);
        let unit = shape.unit();
        self.len > 0
            && end.is_some_and(|end| end <= shape.bytes())
            && self.start.is_multiple_of(unit)
            && self.len.is_multiple_of(unit)
    }
}

/// Copies in flight between objects and memory of the host; dropped, they are waited for.
pub struct Transfers {
    queue: Arc<Queue>,
    events: Vec<Event>,
    /// Stay until the copies are complete.
    held: Vec<(Arc<Mem>, Range)>,
}

impl Transfers {
    /// None yet.
    pub fn new(queue: &Arc<Queue>) -> Transfers {
        Transfers {
            queue: queue.clone(),
            events: Vec::new(),
            held: Vec::new(),
        }
    }

    /// Begins to copy a part of an object from (`read`) or to the device.
    pub fn add(
        &mut self,
        mem: &Arc<Mem>,
        shape: &Shape,
        read: bool,
        part: Slice,
        host: &Range,
    ) -> Result<(), Code> {
        if !part.fits(shape) || (host.len() as u64) < part.len {
            return Err(CL_INVALID_VALUE);
        }
        let (start, len, pointer) = (part.start as usize, part.len as usize, host.ptr());
        let how = Enqueue {
            waits: &[],
            event: true,
        };
        self.held.push((mem.clone(), host.clone()));
        let queue = &self.queue;
        // SAFETY: the range has the part's bytes (checked above) and is held until the copy is
        // complete.
        let event = unsafe {
            match shape {
                Shape::Buffer(_) if read => queue.read(how, false, mem, start, len, pointer),
                Shape::Buffer(_) => queue.write(how, false, mem, start, len, pointer),
                Shape::Image(_, image, _) => {
                    let (mut origin, mut region) = ([0; 3], pixels::extent(image));
                    if let Some(axis) = shape.axis() {
                        let unit = shape.unit() as usize;
                        (origin[axis], region[axis]) = (start / unit, len / unit);
                    }
                    queue.image(how, read, mem, &origin, &region, pointer)
                }
            }
        }?;
        self.events.extend(event);
        Ok(())
    }

    /// Waits for all of them; the first error is the result.
    pub fn wait(&mut self) -> Result<(), Code> {
        if self.held.is_empty() {
            return Ok(());
        }
        let mut result = self.queue.flush();
        for event in self.events.drain(..) {
            let status = event.wait();
            if status < 0 && result.is_ok() {
                result = Err(status);
            }
        }
        self.held.clear();
        result
    }
}

impl Drop for Transfers {
    fn drop(&mut self) {
        // After an error there is no use for the result.
        let _ = self.wait();
    }
}

/// Copies all bytes of an object from (`read`) or to the device, and waits.
///
/// # Safety
/// `host` is valid for the bytes of `shape`.
pub unsafe fn copy_contents(
    queue: &Queue,
    mem: &Mem,
    shape: &Shape,
    read: bool,
    host: *mut u8,
) -> Result<(), Code> {
    let how = Enqueue {
        waits: &[],
        event: true,
    };
    // SAFETY: the caller's promise; the wait below ends the driver's use.
    let event = unsafe {
        match shape {
            Shape::Buffer(bytes) if read => queue.read(how, false, mem, 0, *bytes as usize, host),
            Shape::Buffer(bytes) => queue.write(how, false, mem, 0, *bytes as usize, host),
            Shape::Image(_, shape, _) => {
                queue.image(how, read, mem, &[0; 3], &pixels::extent(shape), host)
            }
        }
    }?;
    queue.flush()?;
    match event.map_or(0, |event| event.wait()) {
        status if status < 0 => Err(status),
        _ => Ok(()),
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let was_resident = self.residence.forget(self.number, self.bytes);
        self.account.unreside(self.bytes, was_resident);
        let place = std::mem::take(&mut *self.place.locked());
        drop(place);
        for then in std::mem::take(&mut *self.on_destroyed.locked()) {
            then();
        }
    }
}

/// The mover and commands of the executor access an object whatever its host flags are.
const HOST_ACCESS_FLAGS: u64 =
    (CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS) as u64;
