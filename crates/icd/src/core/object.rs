//! The objects that OpenCL handles point to.

use crate::core::process::generation;
use crate::dispatch;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

/// A kind of OpenCL object.
pub trait Class: Send + Sync + Sized + 'static {
    /// The type that the C handle is declared to point to, as `_cl_context`.
    type Raw;
    /// Distinguishes the kinds of objects in memory; any number that is not a plausible pointer.
    const TAG: u32;
    /// The error for a handle that is not one of these, as `CL_INVALID_CONTEXT`.
    const INVALID: i32;

    /// Whether a forked child may use the parent's object.
    fn outlives_fork(_object: &Object<Self>) -> bool {
        false
    }

    /// Called when the object is about to be freed; its fields are still valid.
    fn ended(_object: &Object<Self>) {}
}

/// A counted reference to an object.
pub type Ref<T> = Arc<Object<T>>;
/// A reference that does not keep the object alive.
pub type WeakRef<T> = Weak<Object<T>>;

/// An object as the application's handle points to it.
///
/// The references of the application and of the library are counted separately: those of the
/// application together hold one `Arc` strong count, so that an object that the library still needs
/// stays valid (and may be retained again) after the application's last release.
#[repr(C)]
pub struct Object<T: Class> {
    /// The ICD loader reads the dispatch table's address from the first word of each handle.
    dispatch: &'static dispatch::Table,
    tag: AtomicU32,
    references: AtomicU32,
    /// The process that made it.
    generation: u32,
    inner: T,
}

impl<T: Class> Object<T> {
    /// An object that is never freed, for statics.
    pub const fn fixed(inner: T) -> Object<T> {
        Object {
            dispatch: &dispatch::TABLE,
            tag: AtomicU32::new(T::TAG),
            references: AtomicU32::new(1),
            generation: 0,
            inner,
        }
    }

    /// An object that has not been returned to the application yet; see [`Object::give`].
    pub fn new(inner: T) -> Ref<T> {
        Arc::new(Object::counted(inner))
    }

    /// As [`Object::new`], for an object that holds a reference to itself.
    pub fn new_cyclic(inner: impl FnOnce(&WeakRef<T>) -> T) -> Ref<T> {
        Arc::new_cyclic(|weak| Object::counted(inner(weak)))
    }

    fn counted(inner: T) -> Object<T> {
        Object {
            dispatch: &dispatch::TABLE,
            tag: AtomicU32::new(T::TAG),
            references: AtomicU32::new(0),
            generation: generation(),
            inner,
        }
    }

    /// Gives the application a reference: the handle to return.
    pub fn give(self: &Ref<T>) -> *mut T::Raw {
        self.retain();
        self.handle()
    }

    /// The handle, without giving a reference.
    pub fn handle(&self) -> *mut T::Raw {
        (self as *const Object<T>).cast_mut().cast()
    }

    /// The application's references.
    pub fn references(&self) -> u32 {
        self.references.load(Ordering::Relaxed)
    }

    /// Another reference of the library. Only for objects created by [`Object::new`].
    pub fn share(&self) -> Ref<T> {
        // SAFETY: every object but a fixed one lives in an `Arc`, which some reference (that
        // `self` was borrowed from) keeps alive; fixed objects are never shared.
        unsafe {
            Arc::increment_strong_count(self);
            Arc::from_raw(self)
        }
    }

    /// `clRetainX`: one more reference of the application's.
    pub fn retain(&self) {
        if self.references.fetch_add(1, Ordering::Relaxed) == 0 {
            std::mem::forget(self.share());
        }
    }

    /// `clReleaseX`: releases one of the application's references; an error if it has none.
    ///
    /// # Safety
    /// `raw` must have been checked by [`get`] in this call.
    pub unsafe fn release(raw: *const Object<T>) -> Result<(), i32> {
        // SAFETY: `get` has checked it.
        let references = unsafe { &(*raw).references };
        let before = references
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |n| n.checked_sub(1))
            .map_err(|_| T::INVALID)?;
        if before == 1 {
            // SAFETY: the application's references together held one strong count, taken when their
            // number became one.
            unsafe { Arc::decrement_strong_count(raw) };
        }
        Ok(())
    }
}

impl<T: Class> Deref for Object<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: Class> Drop for Object<T> {
    fn drop(&mut self) {
        // Use of a freed handle is detected while its memory is not reused.
        self.tag.store(0, Ordering::Relaxed);
        T::ended(self);
    }
}

/// The object that a handle names, or the kind's `CL_INVALID_…`.
///
/// # Safety
/// `raw` must be null or point to a live object of this library (of any kind), which stays
/// alive for `'a`.
pub unsafe fn get<'a, T: Class>(raw: *mut T::Raw) -> Result<&'a Object<T>, i32> {
    let object: *const Object<T> = raw.cast_const().cast();
    if object.is_null() || !object.is_aligned() {
        return Err(T::INVALID);
    }
    // SAFETY: all objects begin with the same two fields, so the tag may be read whatever its
    // kind; only when it is ours is the rest looked at.
    unsafe {
        let tag = &*std::ptr::addr_of!((*object).tag);
        if tag.load(Ordering::Relaxed) != T::TAG {
            return Err(T::INVALID);
        }
        let object = &*object;
        // The parent's sessions are the parent's alone.
        if object.generation != generation() && !T::outlives_fork(object) {
            return Err(T::INVALID);
        }
        Ok(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baltra_opencl::*;

    struct Left;
    impl Class for Left {
        type Raw = _cl_context;
        const TAG: u32 = 0xba17_00f1;
        const INVALID: i32 = CL_INVALID_CONTEXT;
    }
    struct Right;
    impl Class for Right {
        type Raw = _cl_event;
        const TAG: u32 = 0xba17_00f2;
        const INVALID: i32 = CL_INVALID_EVENT;
    }

    #[test]
    fn a_handle_of_another_kind_is_refused() {
        let raw = Object::new(Left).give();
        // SAFETY: a live handle of ours, or null.
        unsafe {
            assert!(get::<Left>(raw).is_ok());
            assert_eq!(get::<Right>(raw.cast()).err(), Some(CL_INVALID_EVENT));
            assert_eq!(
                get::<Right>(std::ptr::null_mut()).err(),
                Some(CL_INVALID_EVENT)
            );
            Object::<Left>::release(raw.cast()).unwrap();
        }
    }

    #[test]
    fn the_librarys_reference_outlives_the_applications() {
        let ours = Object::new(Left);
        let raw = ours.give();
        assert_eq!((ours.references(), Arc::strong_count(&ours)), (1, 2));
        // SAFETY: a live handle of ours.
        unsafe { Object::<Left>::release(raw.cast()).unwrap() };
        assert_eq!((ours.references(), Arc::strong_count(&ours)), (0, 1));
        // SAFETY: kept alive by `ours`.
        let again = unsafe { Object::<Left>::release(raw.cast()) };
        assert_eq!(again, Err(CL_INVALID_CONTEXT));
        ours.retain();
        assert_eq!((ours.references(), Arc::strong_count(&ours)), (1, 2));
        // SAFETY: a live handle of ours.
        unsafe { Object::<Left>::release(raw.cast()).unwrap() };
    }
}
