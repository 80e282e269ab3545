//! The C entry points, and their common parts.
//!
//! An entry point is `pub unsafe extern "C" fn clName(…)` whose body is [`code!`] (functions
//! that return a code) or [`handle!`] (functions that return a handle and an `errcode_ret`)
//! around a closure that takes a [`Caller`].
// The entry points are documented by the OpenCL specification.
#![allow(missing_docs)]

/// Runs `|caller| -> Result<(), i32>` and returns the code.
macro_rules! code {
    ($run:expr) => {{
        // SAFETY: this is the body of an unsafe entry point, whose caller guarantees that the
        // arguments are valid as the OpenCL specification requires.
        let caller = unsafe { $crate::api::Caller::new() };
        $crate::api::run_code(caller, $run)
    }};
}

/// Runs `|caller| -> Result<pointer, i32>`, stores the code at `errcode_ret`, and returns the
/// pointer or null.
macro_rules! handle {
    ($errcode_ret:expr, $run:expr) => {{
        // SAFETY: as in `code!`.
        let caller = unsafe { $crate::api::Caller::new() };
        $crate::api::run_handle(caller, $errcode_ret, $run)
    }};
}

pub mod buffer;
pub mod build;
pub mod context;
pub mod device;
pub mod event;
pub mod extension;
pub mod image;
pub mod image_transfer;
pub mod kernel;
pub mod kernel_info;
pub mod launch;
pub mod map;
pub mod pipe;
pub mod platform;
pub mod program;
pub mod queue;
pub mod sampler;
pub mod svm;
pub mod sync;
pub mod transfer;

use crate::core::context::Context;
use crate::core::event::{Event, Waits};
use crate::core::object::{self, Class, Object, Ref};
use baltra_opencl::*;
use std::ffi::{c_char, c_void, CStr};
use std::marker::PhantomData;

/// The caller's promise that its pointers are as the specification requires: null where that is
/// allowed, and otherwise valid for the call. Created once by each entry point; its methods convert
/// raw pointers to references.
#[derive(Clone, Copy)]
pub struct Caller<'a>(PhantomData<&'a ()>);

/// The implementation of [`code!`].
pub fn run_code<'a>(caller: Caller<'a>, run: impl FnOnce(Caller<'a>) -> Result<(), i32>) -> cl_int {
    match run(caller) {
        Ok(()) => CL_SUCCESS,
        Err(code) => code,
    }
}

/// The implementation of [`handle!`].
pub fn run_handle<'a, T>(
    caller: Caller<'a>,
    errcode_ret: *mut cl_int,
    run: impl FnOnce(Caller<'a>) -> Result<*mut T, i32>,
) -> *mut T {
    let (pointer, code) = match run(caller) {
        Ok(pointer) => (pointer, CL_SUCCESS),
        Err(code) => (std::ptr::null_mut(), code),
    };
    caller.set(errcode_ret, code);
    pointer
}

impl<'a> Caller<'a> {
    /// # Safety
    /// The pointers passed to the methods are as the OpenCL specification requires of the arguments
    /// of the entry point, and remain so for `'a`, which ends with the call.
    pub unsafe fn new() -> Caller<'a> {
        Caller(PhantomData)
    }

    /// The object of a handle, or the kind's `CL_INVALID_…`.
    pub(crate) fn get<T: Class>(self, raw: *mut T::Raw) -> Result<&'a Object<T>, i32> {
        // SAFETY: the caller's promise.
        unsafe { object::get(raw) }
    }

    /// As [`Caller::get`], to keep.
    pub(crate) fn share<T: Class>(self, raw: *mut T::Raw) -> Result<Ref<T>, i32> {
        Ok(self.get::<T>(raw)?.share())
    }

    /// `clRetainX`.
    pub(crate) fn retain<T: Class>(self, raw: *mut T::Raw) -> Result<(), i32> {
        self.get::<T>(raw)?.retain();
        Ok(())
    }

    /// `clReleaseX`.
    pub(crate) fn release<T: Class>(self, raw: *mut T::Raw) -> Result<(), i32> {
        let object = self.get::<T>(raw)? as *const Object<T>;
        // SAFETY: `get` has just found it.
        unsafe { Object::release(object) }
    }

    /// `n` values at `pointer`; `invalid` where one of the two is zero and the other is not.
    /// Both zero: an empty list.
    pub(crate) fn list<T>(self, n: usize, pointer: *const T, invalid: i32) -> Result<&'a [T], i32> {
        match (n, pointer.is_null()) {
            (0, true) => Ok(&[]),
            (0, false) | (_, true) => Err(invalid),
            // SAFETY: the caller's promise.
            (n, false) => Ok(unsafe { std::slice::from_raw_parts(pointer, n) }),
        }
    }

    /// `n` values at `pointer`, which is not null unless `n` is 0 (else `invalid`).
    pub(crate) fn slice<T>(
        self,
        n: usize,
        pointer: *const T,
        invalid: i32,
    ) -> Result<&'a [T], i32> {
        if n == 0 {
            return Ok(&[]);
        }
        self.list(n, pointer, invalid)
    }

    /// A list that ends with a zero, without the zero; `None` for a null pointer.
    pub(crate) fn terminated<T: Copy + Default + PartialEq>(
        self,
        pointer: *const T,
    ) -> Option<Vec<T>> {
        if pointer.is_null() {
            return None;
        }
        let mut values = Vec::new();
        // Far more than any property list has: bounds the read of a list without an end.
        for i in 0..1024 {
            // SAFETY: the caller's promise; everything before the first zero is readable.
            let value = unsafe { *pointer.add(i) };
            if value == T::default() {
                break;
            }
            values.push(value);
        }
        Some(values)
    }

    /// A property list of (name, value) pairs that ends with a zero name, flat and without the
    /// zero; `None` for a null pointer. Values may be zero.
    pub(crate) fn pairs<T: Copy + Default + PartialEq>(self, pointer: *const T) -> Option<Vec<T>> {
        if pointer.is_null() {
            return None;
        }
        let mut values = Vec::new();
        for i in 0..512 {
            // SAFETY: as in `terminated`; a non-zero name is followed by its value.
            unsafe {
                let name = *pointer.add(2 * i);
                if name == T::default() {
                    break;
                }
                values.extend([name, *pointer.add(2 * i + 1)]);
            }
        }
        Some(values)
    }

    /// A C string; `None` for a null pointer.
    pub(crate) fn text(self, pointer: *const c_char) -> Option<&'a CStr> {
        if pointer.is_null() {
            return None;
        }
        // SAFETY: the caller's promise.
        Some(unsafe { CStr::from_ptr(pointer) })
    }

    /// The value at `pointer`, `None` for a null one.
    pub(crate) fn value<T: Copy>(self, pointer: *const T) -> Option<T> {
        if pointer.is_null() {
            return None;
        }
        // SAFETY: the caller's promise.
        Some(unsafe { pointer.read_unaligned() })
    }

    /// Stores a value unless `pointer` is null.
    pub(crate) fn set<T>(self, pointer: *mut T, value: T) {
        if !pointer.is_null() {
            // SAFETY: the caller's promise.
            unsafe { pointer.write(value) };
        }
    }

    /// Stores `values` into up to `n` entries at `pointer`, unless it is null.
    pub(crate) fn fill<T: Copy>(self, pointer: *mut T, n: usize, values: &[T]) {
        if !pointer.is_null() {
            let n = n.min(values.len());
            // SAFETY: the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), pointer, n) };
        }
    }

    /// The destination of an information query's answer.
    pub(crate) fn answer(
        self,
        size: usize,
        value: *mut c_void,
        size_ret: *mut usize,
    ) -> Answer<'a> {
        Answer {
            caller: self,
            size,
            value: value.cast(),
            size_ret,
        }
    }

    /// An event wait list.
    pub(crate) fn waits(
        self,
        context: &Object<Context>,
        n: cl_uint,
        list: *const cl_event,
    ) -> Result<Waits<'a>, i32> {
        // CL_INVALID_EVENT_WAIT_LIST if event_wait_list is NULL and num_events_in_wait_list > 0,
        // or event_wait_list is not NULL and num_events_in_wait_list is 0, or if event objects
        // in event_wait_list are not valid events.
        let list = self.list(n as usize, list, CL_INVALID_EVENT_WAIT_LIST)?;
        let mut waits = Waits::default();
        for &raw in list {
            let event = self
                .get::<Event>(raw)
                .map_err(|_| CL_INVALID_EVENT_WAIT_LIST)?;
            // CL_INVALID_CONTEXT if the context associated with command_queue and events in
            // event_wait_list are not the same.
            if !std::ptr::eq(&*event.context, context) {
                return Err(CL_INVALID_CONTEXT);
            }
            waits.push(event);
        }
        Ok(waits)
    }
}

/// Types whose bytes are all defined, so that they may be given to the application.
///
/// # Safety
/// No padding, no references.
pub unsafe trait Plain: Copy {}
macro_rules! plain {
    ($($t:ty),*) => {$(
        // SAFETY: integers, and structures of integers without padding.
        unsafe impl Plain for $t {}
    )*};
}
plain!(u8, i8, u32, i32, u64, i64, usize, isize, [usize; 3]);
plain!(cl_image_format, cl_name_version);
// SAFETY: a pointer is a number here.
unsafe impl<T> Plain for *mut T {}
// SAFETY: a pointer is a number here.
unsafe impl<T> Plain for *const T {}

/// The last three arguments of every `clGetXInfo`.
#[derive(Clone, Copy)]
pub struct Answer<'a> {
    caller: Caller<'a>,
    size: usize,
    value: *mut u8,
    size_ret: *mut usize,
}

impl Answer<'_> {
    /// Answers with these bytes.
    pub fn bytes(self, bytes: &[u8]) -> Result<(), i32> {
        // CL_INVALID_VALUE if size in bytes specified by param_value_size is < size of return
        // type and param_value is not NULL.
        if !self.value.is_null() && self.size < bytes.len() {
            return Err(CL_INVALID_VALUE);
        }
        self.caller.fill(self.value, self.size, bytes);
        self.caller.set(self.size_ret, bytes.len());
        Ok(())
    }

    /// Answers with one value.
    pub fn value<T: Plain>(self, value: T) -> Result<(), i32> {
        self.values(std::slice::from_ref(&value))
    }

    /// Answers with a list.
    pub fn values<T: Plain>(self, values: &[T]) -> Result<(), i32> {
        let bytes = std::mem::size_of_val(values);
        // SAFETY: plain values have no undefined bytes.
        self.bytes(unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), bytes) })
    }

    /// Answers with a text and its final zero.
    pub fn text(self, text: &str) -> Result<(), i32> {
        let mut bytes = Vec::with_capacity(text.len() + 1);
        bytes.extend_from_slice(text.as_bytes());
        bytes.push(0);
        self.bytes(&bytes)
    }

    /// Answers with a `cl_bool`.
    pub fn flag(self, flag: bool) -> Result<(), i32> {
        self.value(u32::from(flag))
    }

    /// The destination's bytes, for queries that store through pointers in the answer.
    pub fn raw(self) -> (*mut u8, usize) {
        (self.value, self.size)
    }

    /// Stores only the size.
    pub fn size(self, size: usize) {
        self.caller.set(self.size_ret, size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_does_not_fit_is_refused_and_a_size_can_be_queried_alone() {
        // SAFETY: the pointers below are valid or null.
        let caller = unsafe { Caller::new() };
        let (mut value, mut size) = (0u32, 0usize);
        let pointer = std::ptr::addr_of_mut!(value).cast();
        let small = caller.answer(3, pointer, &mut size);
        assert_eq!(small.value(7u32), Err(CL_INVALID_VALUE));
        caller.answer(4, pointer, &mut size).value(7u32).unwrap();
        assert_eq!((value, size), (7, 4));
        let none = caller.answer(0, std::ptr::null_mut(), &mut size);
        none.text("Baltra").unwrap();
        assert_eq!(size, 7);
    }

    #[test]
    fn half_a_list_is_refused() {
        // SAFETY: the pointers below are valid or null.
        let caller = unsafe { Caller::new() };
        assert_eq!(caller.list::<u8>(1, std::ptr::null(), -30), Err(-30));
        assert_eq!(caller.list(0, [1u8].as_ptr(), -30), Err(-30));
        assert_eq!(caller.list::<u8>(0, std::ptr::null(), -30), Ok(&[][..]));
        let pairs = [5isize, 0, 6, 1, 0];
        assert_eq!(caller.pairs(pairs.as_ptr()), Some(vec![5, 0, 6, 1]));
    }
}
