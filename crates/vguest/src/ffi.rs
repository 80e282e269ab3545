//! The C interface: `include/vfun.h`, which documents each function.
//!
//! Pointers from C are checked for null and otherwise trusted, as in any C library.

use crate::client::{Client, Function, Values};
use baltra_ivshmem::{Device, Error, Preference, Reason, State};
use std::collections::HashMap;
use std::ffi::{c_char, c_void, CStr, CString};
use std::time::Duration;

/// A connection, and its state for the C interface.
pub struct Door {
    client: Client,
    reason: CString,
    /// Answers that did not fit the caller's buffer.
    kept: HashMap<u32, Vec<u8>>,
    /// The last answer.
    answer: Vec<u8>,
}

/// `vfun_door`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DoorHandle {
    door: *mut Door,
}

/// `vfun_function`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FunctionHandle {
    door: *mut Door,
    number: u32,
}

/// Answers up to this size keep their memory for the next answer.
const SMALL_BYTES: usize = 64 << 10;

const MISUSE: i32 = 100;
const DEVICE: i32 = 101;
const FULL: i32 = 102;
const GONE: i32 = 103;
const LOST: i32 = 104;
const NOT_YET: i32 = 105;
const TOO_SMALL: i32 = 106;
const BROKEN: i32 = 107;

thread_local! {
    static OPEN_REASON: std::cell::RefCell<CString> = std::cell::RefCell::default();
}

fn number(error: &Error) -> i32 {
    match error {
        Error::Refused { reason, .. } => *reason as i32,
        Error::Misuse(_) => MISUSE,
        Error::Device(_) => DEVICE,
        Error::Full => FULL,
        Error::Gone => GONE,
        Error::Lost => LOST,
        Error::NotYet => NOT_YET,
        Error::Protocol => BROKEN,
    }
}

fn words(error: &Error) -> CString {
    let text: Vec<u8> = error.to_string().bytes().filter(|b| *b != 0).collect();
    CString::new(text).unwrap_or_default()
}

/// # Safety
/// `text` is null or a C string that lives while the result is used.
unsafe fn text<'a>(text: *const c_char) -> Option<&'a str> {
    if text.is_null() {
        return Some("");
    }
    // SAFETY: the caller upholds this function's contract.
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}

/// # Safety
/// `door` is null, or came from `vfun_open`, was not closed, and no other thread uses it.
unsafe fn with(door: *mut Door, run: impl FnOnce(&mut Door) -> Result<(), Error>) -> i32 {
    // SAFETY: the caller upholds this function's contract.
    let Some(door) = (unsafe { door.as_mut() }) else {
        return MISUSE;
    };
    match run(door) {
        Ok(()) => 0,
        Err(error) => {
            door.reason = words(&error);
            number(&error)
        }
    }
}

/// See `vfun.h`.
///
/// # Safety
/// `device` is null or a C string; `door` may be written to.
#[no_mangle]
pub unsafe extern "C" fn vfun_open(device: *const c_char, door: *mut DoorHandle) -> i32 {
    if door.is_null() {
        return MISUSE;
    }
    // SAFETY: the caller upholds this function's contract.
    let device = unsafe { text(device) };
    let opened = match device {
        None => Err(Error::Misuse("the device's name is not valid UTF-8")),
        Some(device) => Device::find(device)
            .map_err(Error::from)
            .and_then(|device| Client::open(&device)),
    };
    let (handle, status) = match opened {
        Ok(client) => {
            let door = Door {
                client,
                reason: CString::default(),
                kept: HashMap::new(),
                answer: Vec::new(),
            };
            (Box::into_raw(Box::new(door)), 0)
        }
        Err(error) => {
            OPEN_REASON.with(|reason| *reason.borrow_mut() = words(&error));
            (std::ptr::null_mut(), number(&error))
        }
    };
    // SAFETY: `door` is not null, and the caller upholds this function's contract.
    unsafe { door.write(DoorHandle { door: handle }) };
    status
}

/// See `vfun.h`.
///
/// # Safety
/// The door came from `vfun_open` and is not used any more, or is null.
#[no_mangle]
pub unsafe extern "C" fn vfun_close(door: DoorHandle) {
    if !door.door.is_null() {
        // SAFETY: the pointer is from `Box::into_raw` in `vfun_open`, by this function's contract.
        drop(unsafe { Box::from_raw(door.door) });
    }
}

/// See `vfun.h`.
///
/// # Safety
/// As [`with`].
#[no_mangle]
pub unsafe extern "C" fn vfun_reason(door: DoorHandle) -> *const c_char {
    // SAFETY: the caller upholds this function's contract.
    match unsafe { door.door.as_ref() } {
        Some(door) => door.reason.as_ptr(),
        None => OPEN_REASON.with(|reason| reason.borrow().as_ptr()),
    }
}

/// See `vfun.h`.
///
/// # Safety
/// As [`with`]; `name` is a C string; `function` may be written to, `got` is null or may be.
#[no_mangle]
pub unsafe extern "C" fn vfun_request(
    door: DoorHandle,
    name: *const c_char,
    preference: i32,
    function: *mut FunctionHandle,
    got: *mut i32,
) -> i32 {
    // SAFETY: the caller upholds this function's contract.
    let name = unsafe { text(name) };
    let preference = u8::try_from(preference)
        .ok()
        .and_then(Preference::from_number);
    let (Some(name), Some(preference), false) = (name, preference, function.is_null()) else {
        return MISUSE;
    };
    let run = |owner: &mut Door| {
        let (made, offer) = owner.client.request(name, preference)?;
        owner.kept.remove(&made.number());
        // SAFETY: the pointers are not null, and the caller upholds this function's contract.
        unsafe {
            function.write(FunctionHandle {
                door: door.door,
                number: made.number(),
            });
            if !got.is_null() {
                got.write(offer.implementation as i32);
            }
        }
        Ok(())
    };
    // SAFETY: the caller upholds this function's contract.
    unsafe { with(door.door, run) }
}

/// See `vfun.h`.
///
/// # Safety
/// As [`with`].
#[no_mangle]
pub unsafe extern "C" fn vfun_activate(function: FunctionHandle) -> i32 {
    let handle = Function::from_number(function.number);
    // SAFETY: the caller upholds this function's contract.
    unsafe { with(function.door, |door| door.client.activate(handle)) }
}

/// See `vfun.h`.
///
/// # Safety
/// As [`with`]; `arguments` is null or a C string, `body` has the given number of bytes.
#[no_mangle]
pub unsafe extern "C" fn vfun_set(
    function: FunctionHandle,
    arguments: *const c_char,
    body: *const c_void,
    bytes: usize,
) -> i32 {
    // SAFETY: the caller upholds this function's contract.
    let Some(arguments) = (unsafe { text(arguments) }) else {
        return MISUSE;
    };
    let body = match (body.is_null(), bytes) {
        (_, 0) => &[],
        (true, _) => return MISUSE,
        // SAFETY: `body` is not null, and the caller upholds this function's contract.
        (false, _) => unsafe { std::slice::from_raw_parts(body.cast::<u8>(), bytes) },
    };
    let run = |door: &mut Door| {
        if !door.kept.is_empty() {
            door.kept.remove(&function.number);
        }
        let values = Values {
            body,
            ..Values::of(arguments)
        };
        let handle = Function::from_number(function.number);
        door.client.set(handle, &values)
    };
    // SAFETY: the caller upholds this function's contract.
    unsafe { with(function.door, run) }
}

/// See `vfun.h`.
///
/// # Safety
/// As [`with`]; `to` has room for the given number of bytes; `bytes` is null or writable.
#[no_mangle]
pub unsafe extern "C" fn vfun_get(
    function: FunctionHandle,
    to: *mut c_void,
    room: usize,
    bytes: *mut usize,
    patience_ms: i64,
) -> i32 {
    if to.is_null() && room > 0 {
        return MISUSE;
    }
    let mut fits = true;
    let run = |door: &mut Door| {
        let kept = if door.kept.is_empty() {
            None
        } else {
            door.kept.remove(&function.number)
        };
        let mut answer = std::mem::take(&mut door.answer);
        match kept {
            Some(kept) => answer = kept,
            None => {
                let patience = u64::try_from(patience_ms).ok().map(Duration::from_millis);
                answer.clear();
                let handle = Function::from_number(function.number);
                door.client.get(handle, patience, &mut answer)?;
            }
        }
        // SAFETY: the written pointers are not null, and their memory is large enough by this
        // function's contract.
        unsafe {
            if !bytes.is_null() {
                bytes.write(answer.len());
            }
            fits = answer.len() <= room;
            if fits && !answer.is_empty() {
                std::ptr::copy_nonoverlapping(answer.as_ptr(), to.cast::<u8>(), answer.len());
            }
        }
        if !fits {
            door.kept.insert(function.number, answer);
        } else if answer.capacity() <= SMALL_BYTES {
            // The memory of larger answers is freed.
            door.answer = answer;
        }
        Ok(())
    };
    // SAFETY: the caller upholds this function's contract.
    match unsafe { with(function.door, run) } {
        0 if !fits => TOO_SMALL,
        status => status,
    }
}

/// See `vfun.h`.
///
/// # Safety
/// As [`with`].
#[no_mangle]
pub unsafe extern "C" fn vfun_rst(function: FunctionHandle) -> i32 {
    let run = |door: &mut Door| {
        door.kept.remove(&function.number);
        door.client.reset(Function::from_number(function.number))
    };
    // SAFETY: the caller upholds this function's contract.
    unsafe { with(function.door, run) }
}

/// See `vfun.h`.
///
/// # Safety
/// As [`with`].
#[no_mangle]
pub unsafe extern "C" fn vfun_release(function: FunctionHandle) -> i32 {
    let run = |door: &mut Door| {
        door.kept.remove(&function.number);
        door.client.release(Function::from_number(function.number))
    };
    // SAFETY: the caller upholds this function's contract.
    unsafe { with(function.door, run) }
}

/// See `vfun.h`.
///
/// # Safety
/// As [`with`].
#[no_mangle]
pub unsafe extern "C" fn vfun_status(function: FunctionHandle) -> i32 {
    // SAFETY: the caller upholds this function's contract.
    match unsafe { function.door.as_mut() } {
        Some(door) => door.client.state(Function::from_number(function.number)) as i32,
        None => State::Wait as i32,
    }
}

/// The reasons' numbers in the header equal those of the protocol.
const _: () = assert!(Reason::NotAllowed as i32 == 1 && Reason::Unavailable as i32 == 10);
