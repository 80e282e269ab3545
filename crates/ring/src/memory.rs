//! Sealed memfds and their mappings.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

/// Mappings from this size use huge pages (a memcpy of 256 MB over 4 KiB pages is a third slower).
const HUGE_BYTES: u64 = 2 << 20;

/// Number of threads of [`Memory::populate`]; more would contend with each other.
const POPULATE_THREADS_MAX: usize = 4;

struct Mapping {
    base: *mut u8,
    len: usize,
    /// Memory owned by another part of the program: not unmapped.
    borrowed: bool,
}

// SAFETY: the mapping is plain memory; users of `Range` synchronize their accesses, which use raw
// pointers only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.borrowed {
            return;
        }
        // SAFETY: base and len are those that mmap returned; every `Range` holds the Arc, so the
        // pages are no longer in use.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

/// A mapping, shared with another process or private; clones share it.
#[derive(Clone)]
pub struct Memory {
    mapping: Arc<Mapping>,
}

impl Memory {
    /// A fresh zeroed memfd of `len` bytes (rounded up to pages), sealed against any change of
    /// size, and its mapping. `name` is shown in `/proc/PID/maps`.
    pub fn create(name: &str, len: u64) -> io::Result<(Memory, OwnedFd)> {
        let fd = create_sealed(name, len)?;
        Ok((Memory::map(&fd, len)?, fd))
    }

    /// Maps the first `len` bytes of a memfd that a peer sent. Rejects memfds that are too short or
    /// not sealed against shrinking, so that no access can fault.
    pub fn map(fd: &OwnedFd, len: u64) -> io::Result<Memory> {
        Self::map_raw(fd, 0, len, 0)
    }

    /// Like [`Memory::map`], from `offset` on, which must be page-aligned.
    pub fn map_part(fd: &OwnedFd, offset: u64, len: u64) -> io::Result<Memory> {
        Self::map_raw(fd, offset, len, 0)
    }

    /// Maps the first `len` bytes of a PCI device's memory (`resourceN` in sysfs). Its size is
    /// fixed by the device, so it needs no seal. Rejects shorter files and regular files of other
    /// file systems.
    pub fn map_device(file: &std::fs::File, len: u64) -> io::Result<Memory> {
        let requested = len;
        let len = checked_len(len)?;
        // SAFETY: all-zero is a valid `statfs`, which fstatfs fills.
        let mut about: libc::statfs = unsafe { std::mem::zeroed() };
        // SAFETY: `about` is writable and the descriptor is open.
        if unsafe { libc::fstatfs(file.as_raw_fd(), &mut about) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // The C libraries differ in the types of both.
        let is_sysfs = i128::from(about.f_type) == i128::from(libc::SYSFS_MAGIC);
        if !is_sysfs || file.metadata()?.len() < requested {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the file is not a PCI device's memory, or is shorter than announced",
            ));
        }
        // SAFETY: a new shared mapping of a device's memory, which cannot shrink.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Memory {
            mapping: Arc::new(Mapping {
                base: base.cast(),
                len,
                borrowed: false,
            }),
        })
    }

    /// Like [`Memory::map_part`], at exactly `address`; fails if anything is mapped there.
    pub fn map_at(fd: &OwnedFd, offset: u64, len: u64, address: usize) -> io::Result<Memory> {
        if address == 0 || !address.is_multiple_of(page_bytes()) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "bad address"));
        }
        Self::map_raw(fd, offset, len, address)
    }

    /// Private, zeroed memory of this process.
    pub fn anonymous(len: u64) -> io::Result<Memory> {
        let len = checked_len(len)?;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        Self::adopt(base, len)
    }

    /// Memory owned by another part of this program: dropping it unmaps nothing, and its length is
    /// exactly `len`.
    ///
    /// # Safety
    /// The bytes are valid for all accesses through this mapping and its ranges until the last such
    /// access. Ranges that outlive the bytes are harmless while unused.
    pub unsafe fn borrowed(base: *mut u8, len: usize) -> Memory {
        Memory {
            mapping: Arc::new(Mapping {
                base,
                len,
                borrowed: true,
            }),
        }
    }

    fn map_raw(fd: &OwnedFd, offset: u64, len: u64, address: usize) -> io::Result<Memory> {
        let len = checked_len(len)?;
        let end = offset.checked_add(len as u64);
        // An offset beyond any file counts as a file that is too short.
        check_sealed(fd, end.unwrap_or(u64::MAX))?;
        let fixed = if address == 0 {
            0
        } else {
            libc::MAP_FIXED_NOREPLACE
        };
        // SAFETY: a new shared mapping of a file that cannot shrink; MAP_FIXED_NOREPLACE never
        // replaces an existing mapping.
        let base = unsafe {
            libc::mmap(
                address as *mut libc::c_void,
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | fixed,
                fd.as_raw_fd(),
                offset as libc::off_t,
            )
        };
        let memory = Self::adopt(base, len)?;
        if address != 0 && memory.base() as usize != address {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        Ok(memory)
    }

    fn adopt(base: *mut libc::c_void, len: usize) -> io::Result<Memory> {
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        if len as u64 >= HUGE_BYTES {
            // SAFETY: advice on the pages just mapped; failure only means small pages.
            unsafe { libc::madvise(base, len, libc::MADV_HUGEPAGE) };
        }
        Ok(Memory {
            mapping: Arc::new(Mapping {
                base: base.cast(),
                len,
                borrowed: false,
            }),
        })
    }

    /// Populates every page, by several threads if there are processors for them: populated one by
    /// one, on first access, pages of shared memory are provided at 1 to 2 GB/s.
    pub fn populate(&self) {
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
        let threads = (processors / 2).clamp(1, POPULATE_THREADS_MAX);
        let page = page_bytes();
        let part = (self.mapping.len / threads).next_multiple_of(page);
        let populate = |at: usize| {
            let len = part.min(self.mapping.len - at);
            let base = self.mapping.base.wrapping_add(at);
            // SAFETY: the pages belong to the mapping; the call does not change their contents. A
            // kernel without support for this advice populates them at the first access.
            unsafe { libc::madvise(base.cast(), len, libc::MADV_POPULATE_WRITE) };
        };
        std::thread::scope(|scope| {
            for at in (part..self.mapping.len).step_by(part) {
                // Without a thread, its pages are populated later.
                let _ = std::thread::Builder::new().spawn_scoped(scope, move || populate(at));
            }
            populate(0);
        });
    }

    /// Whether another part of the program owns it ([`Memory::borrowed`]).
    pub fn is_borrowed(&self) -> bool {
        self.mapping.borrowed
    }

    /// The first byte.
    pub fn base(&self) -> *mut u8 {
        self.mapping.base
    }

    /// Mapped bytes: the requested length rounded up to whole pages.
    pub fn len(&self) -> u64 {
        self.mapping.len as u64
    }

    /// Always `false`: an empty mapping cannot be created.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// `len` bytes from `offset` on, or `None` if they exceed the mapping. This is the only place
    /// where a peer's offsets are checked.
    pub fn slice(&self, offset: u64, len: u64) -> Option<Range> {
        let end = offset.checked_add(len)?;
        (end <= self.len()).then(|| Range {
            memory: self.clone(),
            offset: offset as usize,
            len: len as usize,
        })
    }
}

/// A checked part of a mapping, which it keeps alive.
#[derive(Clone)]
pub struct Range {
    memory: Memory,
    offset: usize,
    len: usize,
}

impl Range {
    /// The first byte. Valid for `len()` bytes while any clone of this range exists. Another
    /// process may write there: copy, then check.
    pub fn ptr(&self) -> *mut u8 {
        self.memory.base().wrapping_add(self.offset)
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Zeroes the range. Only its sole user may call this.
    pub fn zero(&self) {
        // SAFETY: the range is inside its mapping (checked by `slice`), which lives as long as
        // self.
        unsafe { std::ptr::write_bytes(self.ptr(), 0, self.len) };
    }

    /// The shared word at `offset`; `None` if it is outside the range or not aligned.
    #[cfg(not(loom))]
    pub fn word(&self, offset: usize) -> Option<&std::sync::atomic::AtomicU32> {
        let end = offset.checked_add(4)?;
        let at = self.ptr().wrapping_add(offset);
        let fits = end <= self.len && (at as usize).is_multiple_of(4);
        // SAFETY: inside the range, which keeps the pages mapped; aligned; any bytes are valid.
        fits.then(|| unsafe { &*at.cast() })
    }

    /// A part of the range.
    pub fn slice(&self, offset: u64, len: u64) -> Option<Range> {
        let end = offset.checked_add(len)?;
        (end <= self.len as u64).then(|| Range {
            memory: self.memory.clone(),
            offset: self.offset + offset as usize,
            len: len as usize,
        })
    }

    /// The mapping.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }
}

/// A zeroed memfd of `len` bytes (rounded up to pages) whose size can never change.
pub fn create_sealed(name: &str, len: u64) -> io::Result<OwnedFd> {
    let len = checked_len(len)?;
    let name = CString::new(name)?;
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: `name` is a C string that outlives the call.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and not owned elsewhere.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: the calls use a descriptor that this function owns.
    let done = unsafe {
        libc::ftruncate(fd.as_raw_fd(), len as libc::off_t) == 0
            && libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) == 0
    };
    if !done {
        return Err(io::Error::last_os_error());
    }
    Ok(fd)
}

/// Locks one byte of a file for this open file description, unless another description holds it;
/// the kernel releases it when the description is closed, at the latest at the end of its process.
pub fn try_lock_byte(file: &std::fs::File, byte: u64) -> io::Result<bool> {
    // SAFETY: all-zero is a valid `flock`.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = byte as libc::off_t;
    lock.l_len = 1;
    // SAFETY: a call on an open descriptor with a lock that outlives it.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        _ => Err(error),
    }
}

fn check_sealed(fd: &OwnedFd, len: u64) -> io::Result<()> {
    // SAFETY: reads the seals of a descriptor that we own.
    let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
    if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "shared memory must be a memfd sealed against shrinking",
        ));
    }
    // SAFETY: all-zero is a valid `stat`, which fstat fills.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is writable and the descriptor is ours.
    if unsafe { libc::fstat(fd.as_raw_fd(), &mut stat) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if (stat.st_size as u64) < len {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "shared memory is shorter than announced",
        ));
    }
    Ok(())
}

fn page_bytes() -> usize {
    // SAFETY: reads a constant.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

fn checked_len(len: u64) -> io::Result<usize> {
    let page = page_bytes() as u64;
    match len.checked_next_multiple_of(page) {
        Some(rounded) if len > 0 && rounded <= isize::MAX as u64 => Ok(rounded as usize),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "invalid length of shared memory",
        )),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore)]
    fn both_mappings_show_the_same_bytes() {
        let (a, fd) = Memory::create("test", 10).unwrap();
        let b = Memory::map(&fd, 10).unwrap();
        // SAFETY: both pointers are valid for a page.
        unsafe {
            a.base().write(7);
            assert_eq!(b.base().read(), 7);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore)]
    fn unsealed_or_short_files_are_refused() {
        // SAFETY: the descriptor is new and owned here.
        let fd = unsafe {
            OwnedFd::from_raw_fd(libc::memfd_create(c"t".as_ptr(), libc::MFD_ALLOW_SEALING))
        };
        assert!(Memory::map(&fd, 4096).is_err());
        let sealed = create_sealed("t", 4096).unwrap();
        assert!(Memory::map(&sealed, 8192).is_err());
        assert!(Memory::map(&sealed, 0).is_err());
        assert!(Memory::map(&sealed, u64::MAX).is_err());
    }

    #[test]
    #[cfg_attr(miri, ignore)]
    fn a_part_begins_where_it_was_asked_for_and_ends_inside() {
        let (whole, fd) = Memory::create("t", 16384).unwrap();
        whole.slice(8192, 1).unwrap().copy_in(0, &[7]);
        let part = Memory::map_part(&fd, 8192, 8192).unwrap();
        let mut first = [0];
        part.slice(0, 1).unwrap().copy_out(0, &mut first);
        assert_eq!((first, part.len()), ([7], 8192));
        for (offset, len) in [(8192, 8193), (1, 4096), (u64::MAX, 4096), (1 << 63, 4096)] {
            assert!(Memory::map_part(&fd, offset, len).is_err(), "{offset}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore)]
    fn populated_memory_keeps_its_contents() {
        for len in [1, 4096, 3 << 20] {
            let (memory, _fd) = Memory::create("t", len).unwrap();
            let last = memory.slice(len - 1, 1).unwrap();
            last.copy_in(0, &[7]);
            memory.populate();
            let mut byte = [0];
            last.copy_out(0, &mut byte);
            assert_eq!(byte, [7], "{len}");
        }
    }

    #[test]
    fn borrowed_memory_stays_its_owners() {
        let mut bytes = vec![7u8; 100];
        // SAFETY: `bytes` outlives every access below.
        let memory = unsafe { Memory::borrowed(bytes.as_mut_ptr(), bytes.len()) };
        assert!(memory.slice(0, 101).is_none());
        memory.slice(96, 4).unwrap().zero();
        drop(memory);
        assert_eq!(bytes.iter().map(|&b| u32::from(b)).sum::<u32>(), 96 * 7);
    }

    #[test]
    fn words_lie_in_the_range_and_aligned() {
        let memory = Memory::anonymous(4096).unwrap();
        let range = memory.slice(8, 16).unwrap();
        let word = range.word(12).unwrap();
        word.store(7, std::sync::atomic::Ordering::Relaxed);
        for wrong in [1, 2, 13, 16, 4096, usize::MAX] {
            assert!(range.word(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore)]
    fn only_a_devices_memory_is_mapped_unsealed() {
        let file = tempfile_of(4096);
        assert!(Memory::map_device(&file, 4096).is_err());
    }

    #[test]
    #[cfg_attr(miri, ignore)]
    fn a_locked_byte_is_free_again_when_its_holder_is_gone() {
        let file = tempfile_of(4096);
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let again = || {
            let mut options = std::fs::OpenOptions::new();
            options.read(true).write(true).open(&path).unwrap()
        };
        let (one, other) = (again(), again());
        assert!(try_lock_byte(&one, 3).unwrap());
        assert!(!try_lock_byte(&other, 3).unwrap());
        assert!(try_lock_byte(&other, 4).unwrap());
        drop(one);
        assert!(try_lock_byte(&other, 3).unwrap());
    }

    fn tempfile_of(len: u64) -> std::fs::File {
        // SAFETY: the descriptor is new and owned here.
        let fd = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"t".as_ptr(), 0)) };
        let file = std::fs::File::from(fd);
        file.set_len(len).unwrap();
        file
    }

    #[test]
    fn slices_never_leave_the_mapping() {
        let memory = Memory::anonymous(4096).unwrap();
        assert!(memory.slice(0, 4096).is_some());
        assert!(memory.slice(1, 4096).is_none());
        assert!(memory.slice(u64::MAX, 2).is_none());
        let range = memory.slice(16, 32).unwrap();
        assert!(range.slice(0, 33).is_none());
        assert_eq!(
            range.slice(8, 8).unwrap().ptr(),
            memory.base().wrapping_add(24)
        );
    }
}
