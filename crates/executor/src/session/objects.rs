//! A session's memory, programs and kernels.

use crate::account::Charge;
use crate::driver::{self, Code, Device};
use crate::images::{Images, Use};
use baltra_opencl::*;
use baltra_ring::{Locked, Range};
use baltra_wire::moves::KernelNeed;
use baltra_wire::Id;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use super::headers::{Directory, Headers};
use super::residence::Object;
use super::slices::text::Text;

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

/// The location of a memory object's driver object.
pub enum ObjectLocation {
    /// It stays.
    Fixed(Arc<driver::Mem>),
    /// It may leave the device.
    Movable(Arc<Object>),
    /// A part of an object that may leave the device.
    Part(Part),
}

/// A sub-buffer or an image of a buffer: its driver object exists only with that of the whole.
pub struct Part {
    whole: Arc<Object>,
    /// Its number there.
    number: u64,
    make: MakePart,
    on_destroyed: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
}

impl Part {
    /// Without a driver object yet.
    pub fn new(whole: &Arc<Object>, make: MakePart) -> Part {
        Part {
            whole: whole.clone(),
            number: whole.part_number(),
            make,
            on_destroyed: Mutex::default(),
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.whole.drop_part(self.number);
        for then in std::mem::take(&mut *self.on_destroyed.locked()) {
            then();
        }
    }
}

/// Makes a part of its parent's driver object.
pub type MakePart = Box<dyn Fn(&driver::Mem) -> Result<driver::Mem, Code> + Send + Sync>;

/// A buffer, sub-buffer, image or pipe.
pub struct Memory {
    /// Unique in the process.
    pub number: u64,
    /// The driver's.
    pub place: ObjectLocation,
    /// Its context.
    pub context: Arc<Context>,
    /// Bytes of a buffer.
    pub size: u64,
    /// Bytes of a pixel of an image; 0: it is a buffer.
    pub pixel_bytes: u64,
    /// The buffer's bytes, where they lie in an arena.
    pub arena: Option<Range>,
    /// Whether it is a pipe, whose contents no command reaches.
    pub is_pipe: bool,
    /// Its charge to the tenant, for its lifetime.
    pub _charge: Option<Charge>,
    /// The object that it is a part of, kept alive.
    pub parent: Option<Arc<Memory>>,
}

impl Memory {
    /// A buffer that is not a part, and not in an arena.
    pub fn new(place: ObjectLocation, context: Arc<Context>, size: u64) -> Memory {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Memory {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            place,
            context,
            size,
            pixel_bytes: 0,
            is_pipe: false,
            arena: None,
            _charge: None,
            parent: None,
        }
    }

    /// The object that has the contents.
    pub fn whole(&self) -> &Memory {
        let mut whole = self;
        while let Some(parent) = &whole.parent {
            whole = parent;
        }
        whole
    }

    /// The driver's object. One that may leave the device must be pinned.
    pub fn mem(&self) -> Result<Arc<driver::Mem>, Code> {
        match &self.place {
            ObjectLocation::Fixed(mem) => Ok(mem.clone()),
            ObjectLocation::Movable(object) => object.mem(),
            ObjectLocation::Part(part) => part.whole.part(part.number, || {
                let parent = self.parent.as_ref().ok_or(CL_INVALID_MEM_OBJECT)?;
                (part.make)(&*parent.mem()?).map(Arc::new)
            }),
        }
    }

    /// A driver object of the same properties, if need be a temporary one without the contents.
    pub fn sample(&self) -> Result<Arc<driver::Mem>, Code> {
        match &self.place {
            ObjectLocation::Fixed(mem) => Ok(mem.clone()),
            ObjectLocation::Movable(object) => object.sample(),
            ObjectLocation::Part(part) => {
                let parent = self.parent.as_ref().ok_or(CL_INVALID_MEM_OBJECT)?;
                (part.make)(&*parent.sample()?).map(Arc::new)
            }
        }
    }

    /// The object that has to be on the device for this one; `None`: it is always there.
    pub fn object(&self) -> Option<&Arc<Object>> {
        match &self.place {
            ObjectLocation::Fixed(_) => None,
            ObjectLocation::Movable(object) => Some(object),
            ObjectLocation::Part(part) => Some(&part.whole),
        }
    }

    /// A number that changes whenever the driver's object is another; 0: it never does.
    pub fn version(&self) -> u64 {
        self.object().map_or(0, |object| object.version())
    }

    /// Calls `then` when the object is destroyed.
    pub fn on_destroyed(&self, then: Box<dyn FnOnce() + Send>) -> Result<(), Code> {
        match &self.place {
            ObjectLocation::Fixed(mem) => mem.on_destroyed(then)?,
            ObjectLocation::Movable(object) => object.on_destroyed(then),
            ObjectLocation::Part(part) => part.on_destroyed.locked().push(then),
        }
        Ok(())
    }
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
    /// The compilation, if argument information was added to the client's options.
    pub compiled: Mutex<Option<Compilation>>,
    /// A part of the device itself: needs no image.
    pub fixed: bool,
    /// On a device that holds one image at a time: its claim to it; `None`: it may not run.
    pub image: Mutex<Option<Use>>,
    /// It has variables of its own that kernels write, which outlive them and which no call reads.
    pub has_variables: AtomicBool,
    /// The ways in which launches of its kernels can be divided.
    pub text: Mutex<Text>,
}

impl Program {
    /// From a binary, not built yet.
    pub fn new(program: driver::Program, context: Arc<Context>) -> Program {
        Program {
            program: Mutex::new(Arc::new(program)),
            context,
            built: false.into(),
            options: Mutex::default(),
            compiles: false,
            prints: false.into(),
            compiled: Mutex::default(),
            fixed: false,
            image: Mutex::default(),
            has_variables: false.into(),
            text: Mutex::default(),
        }
    }

    /// The driver's program.
    pub fn driver(&self) -> Arc<driver::Program> {
        self.program.locked().clone()
    }

    /// The driver's program, ready to be built with these headers. Drivers do not rebuild a program
    /// that still has kernels, and the executor's kernels may outlive the application's: so a
    /// second build uses a new program of the same source; so does one whose source includes
    /// headers by other paths.
    pub fn renewed(&self, headers: &Headers<'_>) -> Result<Arc<driver::Program>, Code> {
        let mut program = self.program.locked();
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

    /// Finds out how launches can be divided, after a build with these files and options.
    pub fn read_text(&self, files: &[(&str, &[u8])], options: &str) {
        let source = self.driver().info(CL_PROGRAM_SOURCE as u32);
        let text = match source {
            Ok(source) if self.compiles && source.len() > 1 => {
                let end = source.iter().position(|byte| *byte == 0);
                Text::of(&source[..end.unwrap_or(source.len())], options, files)
            }
            _ => Text::default(),
        };
        *self.text.locked() = text;
    }

    /// Builds another program of the same source after a text, with the options of the newest build.
    pub fn rewritten(&self, prelude: &str) -> Result<driver::Program, Code> {
        let source = self.driver().info(CL_PROGRAM_SOURCE as u32)?;
        let source = source.strip_suffix(&[0]).unwrap_or(&source);
        let context = &self.context.context;
        let program = context.program_source(&[prelude.as_bytes(), source].concat())?;
        let devices: Vec<Device> = self
            .context
            .devices
            .iter()
            .map(|(_, device)| *device)
            .collect();
        let options = self.options.locked().clone();
        program.build(&devices, &options)?;
        Ok(program)
    }

    /// Whether the device holds what its kernels are made of.
    pub fn may_run(&self, images: &Images) -> bool {
        let has_image = || self.image.locked().is_some();
        self.fixed || !images.is_exclusive() || has_image()
    }
}

/// A compilation, as it can be repeated.
pub struct Compilation {
    /// The driver's program.
    pub driver: Arc<driver::Program>,
    /// The devices that it is compiled for.
    pub devices: Vec<Device>,
    /// The client's options.
    pub options: String,
    /// Programs that it includes, by the names in its source.
    pub headers: Vec<(Arc<driver::Program>, String)>,
    /// Of the headers, which the compiler reads again.
    pub _directory: Option<Directory>,
}

impl Compilation {
    /// Compiles again, with these options.
    pub fn run(&self, options: &str) -> driver::Result<()> {
        let headers = self.headers.iter().map(|(h, name)| (&**h, name.as_str()));
        let headers: Vec<_> = headers.collect();
        self.driver.compile(&self.devices, options, &headers)
    }
}

/// The most that launches of a kernel have needed of a device.
#[derive(Default)]
pub struct Needs {
    /// Work-items of a group whose size the launch has specified.
    pub group: AtomicU64,
    /// The sides of such a group.
    pub sides: [AtomicU64; 3],
    /// Bytes of the arguments in local memory.
    pub local_bytes: AtomicU64,
}

impl Needs {
    /// Those of the same kernel on another device.
    pub fn add(&self, need: &KernelNeed) {
        self.group.fetch_max(need.group, Ordering::Relaxed);
        for (most, side) in self.sides.iter().zip(need.sides) {
            most.fetch_max(side, Ordering::Relaxed);
        }
        self.local_bytes
            .fetch_max(need.local_bytes, Ordering::Relaxed);
    }
}

/// A kernel: a program's function. Every queue creates its own driver kernel, because each launch
/// carries its arguments and a driver kernel holds only one set.
pub struct Kernel {
    /// The program.
    pub program: Arc<Program>,
    /// The function.
    pub name: String,
    /// The most that its launches have needed.
    pub needs: Needs,
    /// For queries.
    pub queried: OnceLock<Result<driver::Kernel, Code>>,
}
