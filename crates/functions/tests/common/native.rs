//! Runs calls in a function's shared library, loaded into this process.

use baltra_functions::manifest::Implementation;
use baltra_functions::{Argument, Buffer, Call, Function};
use bytes::Bytes;
use std::ffi::{c_char, c_void, CStr, CString};

/// `baltra_argument`
#[repr(C)]
struct CArgument {
    data: *mut c_void,
    bytes: u64,
}

type CFunction = unsafe extern "C" fn(*const CArgument, u32, *mut c_char, u64) -> i32;

/// A function of a library, which stays loaded.
fn load(path: &str, symbol: &str) -> CFunction {
    let (path, symbol) = (CString::new(path).unwrap(), CString::new(symbol).unwrap());
    // SAFETY: the arguments are C strings; the library is part of the tests and stays loaded.
    let address = unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
        assert!(
            !library.is_null(),
            "{path:?}: {:?}",
            CStr::from_ptr(libc::dlerror())
        );
        libc::dlsym(library, symbol.as_ptr())
    };
    assert!(!address.is_null(), "{symbol:?}");
    // SAFETY: the manifest declares that the symbol has this type.
    unsafe { std::mem::transmute(address) }
}

/// Runs a call on the function's native implementation; `None` if it has none.
pub fn run(function: &Function, call: &Call) -> Option<Result<Vec<Bytes>, String>> {
    let native = function
        .manifest
        .implementations
        .iter()
        .enumerate()
        .find_map(|(index, implementation)| match implementation {
            Implementation::Native(native) => Some((index, native)),
            _ => None,
        });
    let (index, native) = native?;
    let path = function.files.path(&native.library).unwrap();
    let run = load(path.to_str().unwrap(), &native.symbol);
    let words = |bytes: &[u8]| {
        let mut words = vec![0u128; bytes.len().div_ceil(16) + 1];
        for (word, part) in words.iter_mut().zip(bytes.chunks(16)) {
            let mut whole = [0; 16];
            whole[..part.len()].copy_from_slice(part);
            *word = u128::from_ne_bytes(whole);
        }
        (words, bytes.len() as u64)
    };
    let mut memory: Vec<(Vec<u128>, u64)> = call
        .buffers
        .iter()
        .map(|buffer| match buffer {
            Buffer::Input(body) | Buffer::InOut(body, _) => words(&body.to_bytes()),
            Buffer::Constant(index) => words(&function.constant(*index)),
            Buffer::Output(output) => words(&vec![0; call.outputs[*output].bytes as usize]),
        })
        .collect();
    let step = &call.launches[index].steps[0];
    let mut numbers: Vec<[u8; 8]> = step
        .arguments
        .iter()
        .map(|argument| {
            if let Argument::Scalar(scalar) = argument {
                scalar.bytes().0
            } else {
                [0; 8]
            }
        })
        .collect();
    let arguments: Vec<CArgument> = step
        .arguments
        .iter()
        .zip(&mut numbers)
        .map(|(argument, number)| match argument {
            Argument::Buffer(index) => CArgument {
                data: memory[*index].0.as_mut_ptr().cast(),
                bytes: memory[*index].1,
            },
            Argument::Scalar(scalar) => CArgument {
                data: number.as_mut_ptr().cast(),
                bytes: scalar.kind().size(),
            },
            other => panic!("{other:?}"),
        })
        .collect();
    let mut error = [0u8; 256];
    // SAFETY: every argument points to the given number of bytes, which live until the end of this
    // function.
    let status = unsafe {
        run(
            arguments.as_ptr(),
            arguments.len() as u32,
            error.as_mut_ptr().cast(),
            256,
        )
    };
    if status != 0 {
        return Some(Err(CStr::from_bytes_until_nul(&error)
            .unwrap()
            .to_string_lossy()
            .into_owned()));
    }
    let mut outputs = vec![Bytes::new(); call.outputs.len()];
    for ((words, bytes), buffer) in memory.iter().zip(&call.buffers) {
        if let Buffer::Output(output) | Buffer::InOut(_, output) = buffer {
            let mut all: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            all.truncate(*bytes as usize);
            outputs[*output] = all.into();
        }
    }
    Some(Ok(outputs))
}
