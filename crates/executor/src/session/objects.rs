//! A session's objects, by the ids that its client assigned.

use crate::account::Charge;
use crate::driver::{self, Code, Device};
use crate::images::{Images, Use};
use baltra_opencl::*;
use baltra_ring::Range;
use baltra_wire::Id;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use super::headers::Headers;
use super::programs::Compilation;
use super::queue::QueueHandle;

/// A context: the process's own for the whole device, or one over sub-devices.
pub struct Context {
    /// The driver's.
    pub context: Arc<driver::Context>,
    /// Its devices, by name; 0 is the session's device.
    pub devices: Vec<(Id, Device)>,
    /// Keeps the sub-devices.
    pub _parts: Vec<Arc<driver::SubDevice>>,
}

impl Context {
    /// One of its devices.
    pub fn device(&self, id: Id) -> Result<Device, Code> {
        let found = self.devices.iter().find(|(name, _)| *name == id);
        found.map(|(_, device)| *device).ok_or(CL_INVALID_DEVICE)
    }
}

/// A buffer, sub-buffer or image.
pub struct Memory {
    /// The driver's.
    pub mem: driver::Mem,
    /// Its context.
    pub context: Arc<Context>,
    /// Bytes of a buffer.
    pub size: u64,
    /// Bytes of a pixel of an image; 0: it is a buffer.
    pub pixel_bytes: u64,
    /// The buffer's bytes, where they lie in an arena.
    pub arena: Option<Range>,
    /// Its charge to the tenant, for its lifetime.
    pub _charge: Option<Charge>,
    /// The object that it is a part of, kept alive.
    pub _parent: Option<Arc<Memory>>,
}

/// A program.
pub struct Program {
    /// The driver's, of the newest build.
    pub program: Mutex<Arc<driver::Program>>,
    /// Its context.
    pub context: Arc<Context>,
    /// It was built or compiled before.
    pub built: AtomicBool,
    /// The options of the newest build, as the client gave them.
    pub options: Mutex<String>,
    /// Created from source or intermediate language, so that compile options apply.
    pub compiles: bool,
    /// Its kernels may print.
    pub prints: AtomicBool,
    /// How it was compiled, if argument information was added to the client's options.
    pub compiled: Mutex<Option<Compilation>>,
    /// A part of the device itself: needs no image.
    pub fixed: bool,
    /// On a device that holds one image at a time: its claim to it; `None`: it may not run.
    pub image: Mutex<Option<Use>>,
}

impl Program {
    /// The driver's program.
    pub fn driver(&self) -> Arc<driver::Program> {
        self.program
            .lock()
            .expect("no panic under this lock")
            .clone()
    }

    /// The driver's program, ready to be built with these headers. Drivers do not rebuild a program
    /// that still has kernels, and the executor's kernels may outlive the application's: so a
    /// second build uses a new program of the same source; so does one whose source includes
    /// headers by other paths.
    pub fn renewed(&self, headers: &Headers<'_>) -> Result<Arc<driver::Program>, Code> {
        let mut program = self.program.lock().expect("no panic under this lock");
        let is_second = self.built.swap(true, Ordering::Relaxed);
        if !self.compiles {
            return Ok(program.clone());
        }
        if let Some(source) = headers.source() {
            *program = Arc::new(self.context.context.program_source(source)?);
        } else if is_second {
            let mut source = program.info(CL_PROGRAM_SOURCE as u32)?;
            if source.last() == Some(&0) {
                source.pop();
            }
            if !source.is_empty() {
                *program = Arc::new(self.context.context.program_source(&source)?);
            }
        }
        Ok(program.clone())
    }
}

impl Program {
    /// Records that a build has these files and options: its kernels may print even if its source
    /// does not mention that.
    pub fn reads(&self, files: &[(&str, &[u8])], options: &str) {
        let mut texts = files
            .iter()
            .map(|(_, text)| *text)
            .chain([options.as_bytes()]);
        if texts.any(super::kernels::mentions_printf) {
            self.prints.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the device holds what its kernels are made of.
    pub fn may_run(&self, images: &Images) -> bool {
        let has_image = || {
            self.image
                .lock()
                .expect("no panic under this lock")
                .is_some()
        };
        self.fixed || !images.is_exclusive() || has_image()
    }
}

/// A kernel: a program's function. Every queue creates its own driver kernel, because each launch
/// carries its arguments and a driver kernel holds only one set.
pub struct Kernel {
    /// The program.
    pub program: Arc<Program>,
    /// The function.
    pub name: String,
    /// For queries.
    pub queried: OnceLock<Result<driver::Kernel, Code>>,
}

/// Anything that has a name.
#[derive(Clone)]
pub enum Object {
    /// `cl_context`
    Context(Arc<Context>),
    /// A sub-device.
    Device(Arc<driver::SubDevice>),
    /// `cl_command_queue`
    Queue(Arc<QueueHandle>),
    /// `cl_mem`
    Memory(Arc<Memory>),
    /// `cl_sampler`
    Sampler(Arc<driver::Sampler>),
    /// `cl_program`
    Program(Arc<Program>),
    /// `cl_kernel`
    Kernel(Arc<Kernel>),
    /// Could not be made: every use of it comes to this.
    Failed(Code),
}

/// Client-chosen ids are small and mostly consecutive: one multiplication spreads them. A client
/// that chooses colliding ids only slows down itself.
#[derive(Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte) ^ self.0 as u32);
        }
    }

    fn write_u32(&mut self, id: u32) {
        self.0 = u64::from(id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// A map by object name.
pub type IdMap<T> = HashMap<Id, T, BuildHasherDefault<IdHasher>>;

/// The id is null or in use: a violation of the protocol.
#[derive(Debug)]
pub struct NameTaken;

/// All objects of a session.
#[derive(Default)]
pub struct Objects {
    map: RwLock<IdMap<Object>>,
    max: usize,
}

impl Objects {
    /// None yet, and never more than `max`.
    pub fn new(max: u32) -> Objects {
        Objects {
            map: RwLock::default(),
            max: max as usize,
        }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, IdMap<Object>> {
        self.map.read().expect("no panic under this lock")
    }

    /// Registers a new object. Over the limit the id stands for a failure; even those are bounded.
    pub fn insert(&self, id: Id, object: Object) -> Result<(), NameTaken> {
        let mut map = self.map.write().expect("no panic under this lock");
        if id == 0 || map.contains_key(&id) || map.len() >= self.max.saturating_mul(2) {
            return Err(NameTaken);
        }
        let full = map.len() >= self.max;
        let object = match object {
            _ if full => Object::Failed(CL_OUT_OF_RESOURCES),
            object => object,
        };
        map.insert(id, object);
        Ok(())
    }

    /// Whether the object could be made.
    pub fn creation(&self, id: Id) -> Result<(), Code> {
        match self.read().get(&id) {
            Some(Object::Failed(code)) => Err(*code),
            Some(_) => Ok(()),
            None => Err(CL_INVALID_VALUE),
        }
    }

    /// Takes a name away.
    pub fn remove(&self, id: Id) -> Option<Object> {
        let mut map = self.map.write().expect("no panic under this lock");
        map.remove(&id)
    }

    /// All objects, which are forgotten here.
    pub fn take_all(&self) -> Vec<Object> {
        let mut map = self.map.write().expect("no panic under this lock");
        std::mem::take(&mut *map).into_values().collect()
    }
}

macro_rules! lookups {
    ($($(#[$doc:meta])* $name:ident: $variant:ident($type:ty) or $missing:ident;)*) => {
        impl Objects {$(
            $(#[$doc])*
            pub fn $name(&self, id: Id) -> Result<Arc<$type>, Code> {
                match self.read().get(&id) {
                    Some(Object::$variant(object)) => Ok(object.clone()),
                    Some(Object::Failed(code)) => Err(*code),
                    _ => Err($missing),
                }
            }
        )*}
    };
}

lookups! {
    /// A context.
    context: Context(Context) or CL_INVALID_CONTEXT;
    /// A sub-device.
    device: Device(driver::SubDevice) or CL_INVALID_DEVICE;
    /// A memory object.
    memory: Memory(Memory) or CL_INVALID_MEM_OBJECT;
    /// A sampler.
    sampler: Sampler(driver::Sampler) or CL_INVALID_SAMPLER;
    /// A program.
    program: Program(Program) or CL_INVALID_PROGRAM;
    /// A kernel.
    kernel: Kernel(Kernel) or CL_INVALID_KERNEL;
    /// A queue.
    queue: Queue(QueueHandle) or CL_INVALID_COMMAND_QUEUE;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_names_are_given_once_and_bounded() {
        let objects = Objects::new(2);
        assert!(objects.insert(0, Object::Failed(-5)).is_err());
        objects.insert(1, Object::Failed(-5)).unwrap();
        assert!(objects.insert(1, Object::Failed(-5)).is_err());
        objects.insert(2, Object::Failed(-5)).unwrap();
        objects.insert(3, Object::Failed(-30)).unwrap();
        assert_eq!(objects.memory(3).err(), Some(CL_OUT_OF_RESOURCES));
        assert_eq!(objects.memory(1).err(), Some(-5));
        assert_eq!(objects.memory(9).err(), Some(CL_INVALID_MEM_OBJECT));
        objects.insert(4, Object::Failed(-5)).unwrap();
        assert!(objects.insert(5, Object::Failed(-5)).is_err());
    }
}
