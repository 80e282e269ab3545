//! A program's simulation library: its kernels as compiled models of their circuits
//! (`hdl/board/sim/emulate_abi.h`).

use std::ffi::{c_char, c_void, CStr, CString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// `EMULATE_ABI`
const ABI: u32 = 3;
/// The only exported symbol.
const SYMBOL: &CStr = c"baltra_emulate";
/// Kernels of a library.
const KERNELS_MAX: u32 = 4096;
/// Its channels: those that each kernel may read and write.
const CHANNELS_MAX: u32 = 64 * KERNELS_MAX;

/// Reasons for which a library cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not be written to memory.
    #[error("cannot hold the simulation library in memory")]
    Memory(#[source] std::io::Error),
    /// The dynamic linker refuses it.
    #[error("cannot load the simulation library: {0}")]
    Load(String),
    /// Its interface is another one.
    #[error("the simulation library has version {0} of the interface, supported is {ABI}: build the program again")]
    Abi(u32),
    /// Its interface is incomplete.
    #[error("the simulation library's interface is incomplete: build the program again")]
    Incomplete,
}

/// `emulate_buffer`
#[repr(C)]
pub struct Buffer {
    /// First byte; null: a null argument.
    pub bytes: *mut u8,
    /// Length.
    pub size: u64,
    /// 1: stores are faults.
    pub read_only: u32,
    /// Unused.
    pub pad: u32,
}

/// `emulate_launch`
#[repr(C)]
struct Launch {
    words: *const u64,
    words_count: u32,
    buffers_count: u32,
    buffers: *const Buffer,
    print: Option<unsafe extern "C" fn(*mut c_void, *const c_char, u32)>,
    print_context: *mut c_void,
    memory: *mut c_void,
    rows: u64,
}

/// The state of the timing of a memory that launches share (`EMULATE_MEMORY_BYTES`).
pub type Timing = [u64; 32];

/// `emulate_result`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct RawResult {
    state: u32,
    argument: u32,
    write: u32,
    status: u32,
    offset: u64,
    cycles: u64,
    waits: u32,
    waits_to_write: u32,
    transfers: u64,
}

/// `emulate_api`
#[repr(C)]
struct Api {
    abi: u32,
    kernels: u32,
    names: *const *const c_char,
    create: Option<unsafe extern "C" fn(u32) -> *mut c_void>,
    destroy: Option<unsafe extern "C" fn(*mut c_void)>,
    start: Option<unsafe extern "C" fn(*mut c_void, *const Launch)>,
    run: Option<unsafe extern "C" fn(*mut c_void, u64, u64, *mut RawResult)>,
    /// For boards.
    _regions: *const c_void,
    channels: u32,
    channel_names: *const *const c_char,
    clear_channels: Option<unsafe extern "C" fn()>,
}

const _: () = assert!(size_of::<Buffer>() == 24);
const _: () = assert!(size_of::<Launch>() == 56);
const _: () = assert!(size_of::<RawResult>() == 48);

/// State of a launch after some cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not complete.
    Running,
    /// Complete.
    Done,
    /// The guard has refused an access, which ended the kernel.
    Fault {
        /// Index of the buffer.
        argument: u32,
        /// A store, otherwise a load.
        is_store: bool,
        /// In bytes, from the buffer's begin.
        offset: u64,
    },
    /// The kernel has ended with this status.
    Status(u32),
}

/// A loaded library; unloaded when it is dropped.
pub struct Library {
    /// No other library of this process has it.
    pub id: u64,
    handle: NonNull<c_void>,
    api: NonNull<Api>,
    names: Vec<String>,
    channels: Vec<String>,
    /// The file that it was loaded from.
    _file: OwnedFd,
}

// SAFETY: the interface is a constant of the library, and instances are independent of each other.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// Loads a library from its bytes.
    pub fn load(bytes: &[u8]) -> Result<Library, Error> {
        let file = in_memory(bytes).map_err(Error::Memory)?;
        let link = Link::new(&file).map_err(Error::Memory)?;
        let path = CString::new(link.path.as_os_str().as_encoded_bytes())
            .map_err(|error| Error::Load(error.to_string()))?;
        // SAFETY: loading runs the library's constructors. The process is confined because kernels
        // are native code.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let handle =
            NonNull::new(handle).ok_or_else(|| Error::Load(crate::driver::linker_error()))?;
        let mut library = Library {
            id: link.number,
            handle,
            api: NonNull::dangling(),
            names: Vec::new(),
            channels: Vec::new(),
            _file: file,
        };
        // SAFETY: the handle is live and the name is a C string.
        let symbol = unsafe { libc::dlsym(handle.as_ptr(), SYMBOL.as_ptr()) };
        if symbol.is_null() {
            return Err(Error::Load(crate::driver::linker_error()));
        }
        // SAFETY: the symbol of this name has this type.
        let get: unsafe extern "C" fn() -> *const Api = unsafe { std::mem::transmute(symbol) };
        // SAFETY: as above.
        let api = unsafe { get() }.cast_mut();
        library.api = NonNull::new(api).ok_or(Error::Incomplete)?;
        let api = library.api();
        if api.abi != ABI {
            return Err(Error::Abi(api.abi));
        }
        let is_complete = api.create.is_some()
            && api.destroy.is_some()
            && api.start.is_some()
            && api.run.is_some()
            && api.clear_channels.is_some()
            && !api.names.is_null()
            && !api.channel_names.is_null();
        if !is_complete || api.kernels > KERNELS_MAX || api.channels > CHANNELS_MAX {
            return Err(Error::Incomplete);
        }
        let list = |names: *const *const c_char, count: u32| -> Vec<String> {
            // SAFETY: the interface has that many C strings.
            let name = |at: u32| unsafe { CStr::from_ptr(*names.add(at as usize)) };
            (0..count)
                .map(|at| name(at).to_string_lossy().into_owned())
                .collect()
        };
        let (names, channels) = (
            list(api.names, api.kernels),
            list(api.channel_names, api.channels),
        );
        (library.names, library.channels) = (names, channels);
        Ok(library)
    }

    fn api(&self) -> &Api {
        // SAFETY: a constant of the library, which is loaded while `self` lives.
        unsafe { self.api.as_ref() }
    }

    /// Starts a kernel on a circuit of its own; `None`: no kernel has that name, or there is no
    /// memory for it. `timing`: of the memory, which outlives the circuit; `rows`: added to the rows
    /// of the memory.
    pub fn start(
        self: &Arc<Library>,
        kernel: &str,
        words: &[u64],
        buffers: Vec<Buffer>,
        (timing, rows): (*mut Timing, u64),
    ) -> Option<Run> {
        let at = self.names.iter().position(|name| name == kernel)?;
        let create = self.api().create?;
        // SAFETY: a number below that of the kernels.
        let instance = NonNull::new(unsafe { create(at as u32) })?;
        let mut run = Run {
            library: self.clone(),
            instance,
            printed: Box::default(),
            result: RawResult::default(),
            buffers,
        };
        let launch = Launch {
            words: words.as_ptr(),
            words_count: words.len() as u32,
            buffers_count: run.buffers.len() as u32,
            buffers: run.buffers.as_ptr(),
            print: Some(print),
            print_context: std::ptr::from_mut(&mut *run.printed).cast(),
            memory: timing.cast(),
            rows,
        };
        let start = self.api().start?;
        // SAFETY: a fresh instance; the words are copied, and the buffers and the place for printed
        // text live as long as the instance.
        unsafe { start(instance.as_ptr(), &launch) };
        Some(run)
    }

    /// Discards the elements of its channels. No kernel runs.
    pub fn clear_channels(&self) {
        if let Some(clear) = self.api().clear_channels {
            // SAFETY: the caller's promise.
            unsafe { clear() };
        }
    }

    /// A channel's name by its number from 1 on.
    pub fn channel(&self, number: u32) -> Option<&str> {
        let at = (number as usize).checked_sub(1)?;
        self.channels.get(at).map(String::as_str)
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: no instance of the library is left, because each borrows it.
        unsafe { libc::dlclose(self.handle.as_ptr()) };
    }
}

/// Text that was printed and not taken yet.
#[derive(Default)]
struct Printed {
    text: Vec<u8>,
}

/// A launch in progress.
pub struct Run {
    library: Arc<Library>,
    instance: NonNull<c_void>,
    /// Boxed, because the instance has its address.
    printed: Box<Printed>,
    result: RawResult,
    buffers: Vec<Buffer>,
}

// SAFETY: an instance may be used by any thread, one at a time.
unsafe impl Send for Run {}

impl Run {
    /// Runs for at most that many cycles, from the time `now` on.
    pub fn advance(&mut self, now: u64, cycles: u64) -> State {
        if let Some(run) = self.library.api().run {
            // SAFETY: a started instance; `result` is writable.
            unsafe { run(self.instance.as_ptr(), now, cycles, &mut self.result) };
        }
        let result = &self.result;
        match result.state {
            0 => State::Running,
            1 => State::Done,
            2 => State::Fault {
                argument: result.argument,
                is_store: result.write != 0,
                offset: result.offset,
            },
            _ => State::Status(result.status),
        }
    }

    /// Cycles since the start.
    pub fn cycles(&self) -> u64 {
        self.result.cycles
    }

    /// The channel that it waits for, and whether to write it.
    pub fn waits(&self) -> Option<(&str, bool)> {
        let name = self.library.channel(self.result.waits)?;
        Some((name, self.result.waits_to_write != 0))
    }

    /// Elements that it has read from channels and written to them.
    pub fn transfers(&self) -> u64 {
        self.result.transfers
    }

    /// Takes the text that the kernel has printed.
    pub fn take_printed(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.printed.text)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Some(destroy) = self.library.api().destroy {
            // SAFETY: our instance, destroyed once.
            unsafe { destroy(self.instance.as_ptr()) };
        }
    }
}

unsafe extern "C" fn print(context: *mut c_void, text: *const c_char, length: u32) {
    if text.is_null() {
        return;
    }
    // SAFETY: the context is the place that `start` passed, used by one thread at a time; the text
    // has that length.
    unsafe {
        let printed = &mut *context.cast::<Printed>();
        printed
            .text
            .extend_from_slice(std::slice::from_raw_parts(text.cast(), length as usize));
    }
}

/// A name for a file in memory that no other file ever has, for as long as it is loaded. A library
/// stays loaded beyond `dlclose` while a thread has its thread-local objects, and the dynamic linker
/// would find it again under the name of a descriptor that is used again.
struct Link {
    number: u64,
    path: PathBuf,
}

impl Link {
    fn new(file: &OwnedFd) -> std::io::Result<Link> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("kernels-{}-{number}.so", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::os::unix::fs::symlink(format!("/proc/self/fd/{}", file.as_raw_fd()), &path)?;
        Ok(Link { number, path })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // A remaining file is removed with the executor's directory.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A file in memory with these bytes.
pub fn in_memory(bytes: &[u8]) -> std::io::Result<OwnedFd> {
    use std::io::Write;
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let mut file = std::fs::File::from(rustix::fs::memfd_create("baltra-kernels", flags)?);
    file.write_all(bytes)?;
    Ok(file.into())
}
