//! A session's objects, by the ids that its client assigned.

use super::names::IdMap;
use super::objects::{Context, Kernel, Memory, Program};
use super::queue::QueueHandle;
use crate::driver::{self, Code};
use baltra_opencl::*;
use baltra_ring::Unpoisoned;
use baltra_wire::Id;
use std::sync::{Arc, RwLock};

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
        self.map.read().unpoisoned()
    }

    /// Registers a new object. Over the limit the id stands for a failure; even those are bounded.
    pub fn insert(&self, id: Id, object: Object) -> Result<(), NameTaken> {
        let mut map = self.map.write().unpoisoned();
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

    /// The ids of all objects, and those that stand for failures.
    pub fn named(&self) -> (Vec<Id>, Vec<(Id, Code)>) {
        let (mut named, mut failed) = (Vec::new(), Vec::new());
        for (id, object) in &*self.read() {
            match object {
                Object::Failed(code) => failed.push((*id, *code)),
                _ => named.push(*id),
            }
        }
        (named, failed)
    }

    /// All objects.
    pub fn all(&self) -> Vec<(Id, Object)> {
        let map = self.read();
        map.iter()
            .map(|(id, object)| (*id, object.clone()))
            .collect()
    }

    /// Takes a name away.
    pub fn remove(&self, id: Id) -> Option<Object> {
        let mut map = self.map.write().unpoisoned();
        map.remove(&id)
    }

    /// All objects, which are forgotten here.
    pub fn take_all(&self) -> Vec<Object> {
        let mut map = self.map.write().unpoisoned();
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
    fn names_are_given_once_and_bounded() {
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
