//! The shared library, loaded and called: the C boundary (`include/baltra_function.h`).

use crate::protocol::{Arg, TEXT_BYTES_MAX};
use anyhow::{bail, Result};
use std::ffi::{c_char, c_void, CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Most arguments of a function.
const ARGUMENTS_MAX: usize = 1024;

/// `baltra_argument` of the C interface.
#[repr(C)]
#[derive(Clone, Copy)]
struct Argument {
    data: *mut c_void,
    bytes: u64,
}

const _: () = {
    assert!(size_of::<Argument>() == 16);
    assert!(std::mem::offset_of!(Argument, bytes) == 8);
};

/// `baltra_function` of the C interface.
type Function = unsafe extern "C" fn(
    arguments: *const Argument,
    count: u32,
    error: *mut c_char,
    error_bytes: u64,
) -> i32;

/// Bytes that start at a multiple of 16.
#[derive(Default)]
pub struct Aligned {
    words: Vec<u128>,
    len: usize,
}

impl Aligned {
    /// A copy of `bytes`.
    pub fn of(bytes: &[u8]) -> Aligned {
        let mut aligned = Aligned::default();
        aligned.resize(bytes.len());
        aligned.bytes_mut().copy_from_slice(bytes);
        aligned
    }

    /// Sets the length: existing bytes are kept, new ones are zero.
    pub fn resize(&mut self, len: usize) {
        let words = len.div_ceil(16);
        // Bytes that reappear after growing again must be zero.
        self.words.truncate(words);
        let old = self.len.min(len);
        self.words.resize(words, 0);
        self.len = len;
        self.bytes_mut()[old..].fill(0);
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `words` holds at least `len` initialized bytes, and any byte is a valid u8.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.len) }
    }

    /// The bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and exclusively borrowed; any bytes are a valid u128.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), self.len) }
    }

    /// `len` bytes from `at` on, for the library. Panics if they are out of range.
    pub fn block(&mut self, at: usize, len: usize) -> Memory {
        let part = &mut self.bytes_mut()[at..at + len];
        Memory {
            data: part.as_mut_ptr(),
            len,
        }
    }

    /// The whole block, for the library, which several threads may pass concurrently: the library
    /// must not write to it.
    pub fn shared_block(&self) -> Memory {
        Memory {
            data: self.words.as_ptr().cast::<u8>().cast_mut(),
            len: self.len,
        }
    }
}

/// Memory for the library. The caller of [`Library::call`] guarantees that it is valid and
/// unshared.
#[derive(Clone, Copy)]
pub struct Memory {
    data: *mut u8,
    len: usize,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory {
            data: std::ptr::null_mut(),
            len: 0,
        }
    }
}

/// A loaded library and its functions.
pub struct Library {
    functions: Vec<(String, Function)>,
}

impl Library {
    /// Loads a library permanently and resolves its functions.
    pub fn open(path: &Path, symbols: &[String]) -> Result<Library> {
        let name = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: `name` is a C string. The library's constructors run, which is intended.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            bail!("cannot load the library: {}", last_error());
        }
        let mut functions = Vec::with_capacity(symbols.len());
        for symbol in symbols {
            let name = CString::new(symbol.as_str())?;
            // SAFETY: the handle is from dlopen and is never closed; the name is a C string.
            let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
            if address.is_null() {
                bail!("the library does not export the function '{symbol}'");
            }
            // SAFETY: the manifest declares the symbol as a function of this type; if it is not,
            // only this process, which exists to contain such faults, is affected.
            let function = unsafe { std::mem::transmute::<*mut c_void, Function>(address) };
            functions.push((symbol.clone(), function));
        }
        Ok(Library { functions })
    }

    /// Calls a function. `memory` is borrowed for the call. `Err`: the function's error text.
    pub fn call(&self, symbol: usize, memory: &mut [Memory], args: &[Arg]) -> Result<(), String> {
        let Some((name, function)) = self.functions.get(symbol) else {
            return Err(format!("unknown function '{symbol}'"));
        };
        if args.len() > ARGUMENTS_MAX {
            return Err(format!("too many arguments ({})", args.len()));
        }
        // Memory for numbers, aligned for any type.
        let mut values = [0u128; 16];
        let mut more_values = Vec::new();
        let wanted = args
            .iter()
            .filter(|arg| matches!(arg, Arg::Value(_)))
            .count();
        let values: &mut [u128] = if wanted <= values.len() {
            &mut values
        } else {
            more_values.resize(wanted, 0);
            &mut more_values
        };
        let arguments = lay_out(memory, args, values)?;
        let mut error = [0u8; TEXT_BYTES_MAX];
        // SAFETY: every argument points to the number of bytes that it states, which are alive and
        // not accessed by others during the call (except constants, which are only read). The
        // library is responsible for the rest.
        let status = unsafe {
            function(
                arguments.as_ptr(),
                arguments.len() as u32,
                error.as_mut_ptr().cast(),
                error.len() as u64,
            )
        };
        check_status(name, status, &mut error)
    }

    /// Prepares a call for repetition.
    pub fn prepare(
        &self,
        symbol: usize,
        blocks: Vec<Contents>,
        args: &[Arg],
    ) -> Result<Prepared, String> {
        let Some((name, function)) = self.functions.get(symbol) else {
            return Err(format!("unknown function '{symbol}'"));
        };
        if args.len() > ARGUMENTS_MAX {
            return Err(format!("too many arguments ({})", args.len()));
        }
        let mut own = Vec::with_capacity(blocks.len());
        let mut memory = Vec::with_capacity(blocks.len());
        for contents in blocks {
            let mut block = Aligned::default();
            let fresh = match contents {
                Contents::Shared(shared) => {
                    memory.push(shared);
                    own.push((block, None));
                    continue;
                }
                Contents::Zero(len) => {
                    block.resize(len);
                    Vec::new()
                }
                Contents::Bytes(bytes) => {
                    block.resize(bytes.len());
                    bytes
                }
            };
            let len = block.bytes().len();
            // The block's memory does not move when the block itself does.
            memory.push(block.block(0, len));
            own.push((block, Some(fresh)));
        }
        let mut values = vec![0; args.len()].into_boxed_slice();
        Ok(Prepared {
            arguments: lay_out(&memory, args, &mut values)?,
            blocks: own,
            function: *function,
            name: name.clone(),
            error: vec![0; TEXT_BYTES_MAX],
            _values: values,
        })
    }
}

/// The memory passed to the library, and the position of each buffer.
fn lay_out(memory: &[Memory], args: &[Arg], values: &mut [u128]) -> Result<Vec<Argument>, String> {
    let mut arguments = Vec::with_capacity(args.len());
    let mut values = values.iter_mut();
    for arg in args {
        arguments.push(match arg {
            Arg::Buffer(at) => {
                let Some(block) = memory.get(*at as usize) else {
                    return Err(format!("there is no buffer with index {at}"));
                };
                Argument {
                    data: block.data.cast(),
                    bytes: block.len as u64,
                }
            }
            Arg::Value(bytes) => {
                let value = values.next().expect("as many as there are numbers");
                let mut word = [0; 16];
                let len = bytes.len().min(16);
                word[..len].copy_from_slice(&bytes[..len]);
                *value = u128::from_ne_bytes(word);
                Argument {
                    data: std::ptr::from_mut(value).cast(),
                    bytes: len as u64,
                }
            }
        });
    }
    Ok(arguments)
}

/// The result of a call.
fn check_status(name: &str, status: i32, error: &mut [u8]) -> Result<(), String> {
    if status == 0 {
        return Ok(());
    }
    if let Some(last) = error.last_mut() {
        *last = 0;
    }
    let text = CStr::from_bytes_until_nul(error).map(CStr::to_string_lossy);
    match text {
        Ok(text) if !text.is_empty() => Err(text.into_owned()),
        _ => Err(format!("{name} failed with status {status}")),
    }
}

/// A block's contents at the start of a prepared call.
pub enum Contents {
    /// This many zeros.
    Zero(usize),
    /// These bytes.
    Bytes(Vec<u8>),
    /// Read-only memory, which must live as long as the prepared call.
    Shared(Memory),
}

/// A prepared call.
pub struct Prepared {
    function: Function,
    name: String,
    arguments: Vec<Argument>,
    /// Blocks with their initial contents; `None`: zeros.
    blocks: Vec<(Aligned, Option<Vec<u8>>)>,
    error: Vec<u8>,
    /// Values that arguments point to.
    _values: Box<[u128]>,
}

// SAFETY: its pointers refer to its own memory, or to memory that every thread may read.
unsafe impl Send for Prepared {}

impl Prepared {
    /// Runs the call. `Err`: the function's error text.
    pub fn call(&mut self) -> Result<(), String> {
        for (block, fresh) in &mut self.blocks {
            match fresh.as_deref() {
                None => {}
                Some([]) => block.bytes_mut().fill(0),
                Some(bytes) => block.bytes_mut().copy_from_slice(bytes),
            }
        }
        self.error[0] = 0;
        // SAFETY: as in `Library::call`; this call owns the blocks and the numbers.
        let status = unsafe {
            (self.function)(
                self.arguments.as_ptr(),
                self.arguments.len() as u32,
                self.error.as_mut_ptr().cast(),
                self.error.len() as u64,
            )
        };
        check_status(&self.name, status, &mut self.error)
    }

    /// The content of a block.
    pub fn block(&self, index: usize) -> &[u8] {
        self.blocks[index].0.bytes()
    }
}

fn last_error() -> String {
    // SAFETY: dlerror returns null, or a C string that is valid until this thread's next call of
    // it.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the function gave no reason".into();
    }
    // SAFETY: the pointer was checked for null above.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_into_view_is_zero() {
        let mut aligned = Aligned::of(&[1; 40]);
        assert!((aligned.bytes().as_ptr() as usize).is_multiple_of(16));
        aligned.resize(5);
        assert_eq!(aligned.bytes(), [1; 5]);
        aligned.resize(33);
        assert_eq!(aligned.bytes()[..5], [1; 5]);
        assert_eq!(aligned.bytes()[5..], [0; 28]);
    }

    fn compiled(source: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("f.c"), dir.path().join("f.so"));
        std::fs::write(&from, source).unwrap();
        let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include");
        let cc = std::process::Command::new("cc")
            .args(["-Wall", "-Werror", "-shared", "-fPIC", include, "-o"])
            .args([&to, &from])
            .status()
            .unwrap();
        assert!(cc.success());
        (dir, to)
    }

    const SOURCE: &str = r#"
        #include <baltra_function.h>
        #include <string.h>
        baltra_function scale, refuse;
        int32_t scale(const baltra_argument *a, uint32_t n, char *e, uint64_t max) {
            if (n != 3 || a[1].bytes != 4) return 9;
            for (uint64_t i = 0; i < a[0].bytes / 4; i++)
                ((float *)a[2].data)[i] = ((float *)a[0].data)[i] * *(float *)a[1].data;
            return 0;
        }
        int32_t refuse(const baltra_argument *a, uint32_t n, char *e, uint64_t max) {
            strncpy(e, "not today", max);
            return 1;
        }
    "#;

    #[test]
    fn a_function_gets_its_buffers_and_numbers() {
        let (_dir, path) = compiled(SOURCE);
        let symbols = ["scale".to_owned(), "refuse".to_owned()];
        let library = Library::open(&path, &symbols).unwrap();
        let floats: Vec<u8> = [1f32, 2.5, -3.0]
            .iter()
            .flat_map(|f| f.to_le_bytes())
            .collect();
        let (mut input, mut output) = (Aligned::of(&floats), Aligned::of(&[0; 12]));
        let mut memory = [input.block(0, 12), output.block(0, 12)];
        let factor = 2f32.to_le_bytes();
        let args = [Arg::Buffer(0), Arg::Value(&factor), Arg::Buffer(1)];
        library.call(0, &mut memory, &args).unwrap();
        let out: Vec<f32> = output
            .bytes()
            .chunks(4)
            .map(|c| f32::from_le_bytes(c.try_into().unwrap()))
            .collect();
        assert_eq!(out, [2.0, 5.0, -6.0]);
        let status = library.call(0, &mut memory, &args[..2]).unwrap_err();
        assert_eq!(status, "scale failed with status 9");
        assert_eq!(library.call(1, &mut memory, &[]).unwrap_err(), "not today");
        assert!(library.call(0, &mut memory, &[Arg::Buffer(2)]).is_err());
        let blocks = vec![Contents::Bytes(floats), Contents::Zero(12)];
        let mut prepared = library.prepare(0, blocks, &args[..2]).unwrap();
        assert_eq!(prepared.call().unwrap_err(), "scale failed with status 9");
        let args = [Arg::Buffer(0), Arg::Value(&factor), Arg::Buffer(1)];
        let blocks = vec![Contents::Bytes(input.bytes().to_vec()), Contents::Zero(12)];
        let mut prepared = library.prepare(0, blocks, &args).unwrap();
        for _ in 0..2 {
            prepared.call().unwrap();
            assert_eq!(prepared.block(1), output.bytes());
        }
        assert!(library.call(2, &mut memory, &[]).is_err());
    }

    #[test]
    fn what_cannot_be_loaded_is_named() {
        let missing = Library::open(Path::new("/nonexistent.so"), &[]);
        assert!(missing.err().unwrap().to_string().contains("nonexistent"));
        let (_dir, path) = compiled(SOURCE);
        let symbol = Library::open(&path, &["scael".to_owned()]);
        assert!(symbol.err().unwrap().to_string().contains("scael"));
    }
}
