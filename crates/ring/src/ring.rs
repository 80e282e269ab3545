//! A single-producer single-consumer ring of messages in shared memory.
//!
//! Layout: a header of [`RING_HEADER_BYTES`], then a power of two of data bytes. `tail` and `head`
//! are byte counts that never wrap, so `tail - head` is the filled part. A record is a
//! little-endian `u32` (bit 31: the message continues in the next record; bits 0–30: bytes), four
//! bytes unused, then the bytes, padded to eight. Records wrap around the end.
//!
//! Each side has a private copy of its own index and only *reads* the other's, which it checks: a
//! hostile peer can withhold or corrupt messages, but not memory. Sleeping: the consumer sets
//! `sleeping`, checks again, then waits on `bell`; the producer stores `tail` and then rings if
//! `sleeping` is set. Both sides put a full fence between their store and their load (Dekker), so
//! that at least one of them sees the other's store. A consumer may also *park*: it stops reading
//! until the producer's side restarts it.

use crate::futex::{futex_wait, futex_wake, Sleeper};
use crate::memory::Range;
use crate::spin::Spin;
use crate::sync::{fence, AtomicI32, AtomicU32, AtomicU64};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes before the data.
pub const RING_HEADER_BYTES: usize = 512;
const DATA_BYTES_MIN: usize = 256;
const DATA_BYTES_MAX: usize = 1 << 30;
const MESSAGE_BYTES_MAX: usize = 256 << 20;
const MORE: u32 = 1 << 31;
const PREFIX_BYTES: usize = 8;
/// `Header::sleeping` of a ring without a reader.
const PARKED: u32 = 2;

/// The size of a ring with `data_bytes` (rounded up to a power of two).
pub const fn ring_bytes(data_bytes: usize) -> usize {
    RING_HEADER_BYTES + data_bytes.next_power_of_two()
}

/// The shared words; each writer has its own cache line.
#[repr(C)]
pub(crate) struct Header {
    tail: AtomicU64,
    _0: [u64; 7],
    head: AtomicU64,
    _1: [u64; 7],
    /// 0: awake; 1: asleep on the bell; [`PARKED`].
    sleeping: AtomicU32,
    bell: AtomicU32,
    _2: [u64; 7],
    /// Progress; see [`crate::progress`].
    pub(crate) completed: AtomicU64,
    pub(crate) failed_command: AtomicU64,
    pub(crate) failed_code: AtomicI32,
    pub(crate) progress_bell: AtomicU32,
    _3: [u64; 5],
    pub(crate) progress_sleepers: AtomicU32,
    _4: [u32; 15],
}

#[cfg(loom)]
impl Header {
    fn zeroed() -> Header {
        Header {
            tail: AtomicU64::new(0),
            _0: [0; 7],
            head: AtomicU64::new(0),
            _1: [0; 7],
            sleeping: AtomicU32::new(0),
            bell: AtomicU32::new(0),
            _2: [0; 7],
            completed: AtomicU64::new(0),
            failed_command: AtomicU64::new(0),
            failed_code: AtomicI32::new(0),
            progress_bell: AtomicU32::new(0),
            _3: [0; 5],
            progress_sleepers: AtomicU32::new(0),
            _4: [0; 15],
        }
    }
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Header>() == 320 && size_of::<Header>() <= RING_HEADER_BYTES);
    assert!(std::mem::offset_of!(Header, head) == 64);
    assert!(std::mem::offset_of!(Header, sleeping) == 128);
    assert!(std::mem::offset_of!(Header, completed) == 192);
    assert!(std::mem::offset_of!(Header, progress_sleepers) == 256);
};

/// Why a ring cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// The memory is too small, too large, misaligned or not a power of two.
    #[error("invalid memory for a ring: it needs a header and a power of two of bytes")]
    Layout,
    /// The peer wrote an impossible index or length.
    #[error("the peer wrote an invalid index or length into the ring")]
    Corrupt,
}

/// There is no space for the message now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the ring is full")]
pub struct Full;

/// Where one end of a ring is, for another process to take its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Bytes written or read since the ring was created.
    pub bytes: u64,
    /// Messages written or read.
    pub messages: u64,
    /// The peer's count of bytes when last read.
    pub peer: u64,
}

/// A ring's checked memory.
#[derive(Clone)]
pub(crate) struct Base {
    header: *const Header,
    data: *mut u8,
    capacity: usize,
    /// Keeps the mapping; `None` in loom's models, whose memory is leaked.
    _range: Option<Range>,
}

// SAFETY: the header consists of atomics, and each side accesses only the data between the indices
// that it owns (producer: free part, consumer: filled part).
unsafe impl Send for Base {}
// SAFETY: as above.
unsafe impl Sync for Base {}

impl Base {
    pub(crate) fn new(range: &Range) -> Result<Base, RingError> {
        let capacity = range.len().wrapping_sub(RING_HEADER_BYTES);
        let aligned = (range.ptr() as usize).is_multiple_of(64);
        let sized = (DATA_BYTES_MIN..=DATA_BYTES_MAX).contains(&capacity);
        if !aligned || !sized || !capacity.is_power_of_two() {
            return Err(RingError::Layout);
        }
        Ok(Base {
            header: range.ptr().cast(),
            data: range.ptr().wrapping_add(RING_HEADER_BYTES),
            capacity,
            _range: Some(range.clone()),
        })
    }

    pub(crate) fn header(&self) -> &Header {
        // SAFETY: `new` checked size and alignment, the range keeps the pages mapped, and every
        // field is valid for any bytes.
        unsafe { &*self.header }
    }

    /// Copies into the data at `position`, around the end if necessary.
    fn write(&self, position: u64, bytes: &[u8]) {
        let at = position as usize & (self.capacity - 1);
        let first = bytes.len().min(self.capacity - at);
        // SAFETY: `at + first <= capacity` and `len - first <= at`, because callers ensure that
        // `bytes.len() <= capacity`; the consumer does not read the free part.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.data.add(at), first);
            if first < bytes.len() {
                let rest = bytes.len() - first;
                std::ptr::copy_nonoverlapping(bytes.as_ptr().add(first), self.data, rest);
            }
        }
    }

    /// Writes the first word of a record.
    fn write_prefix(&self, position: u64, word: u32) {
        let at = position as usize & (self.capacity - 1);
        // SAFETY: as in `read_prefix`; both words are inside the data, because the capacity is a
        // multiple of eight.
        unsafe {
            self.data
                .add(at)
                .cast::<u64>()
                .write(u64::from(word).to_le())
        };
    }

    /// Appends `len <= capacity` data bytes at `position` to `out`.
    fn read(&self, position: u64, len: usize, out: &mut Vec<u8>) {
        out.reserve(len);
        let at = position as usize & (self.capacity - 1);
        let first = len.min(self.capacity - at);
        let old = out.len();
        // SAFETY: both source parts are inside the data (`len <= capacity`), and the target was
        // reserved. A hostile producer may change the bytes meanwhile; any bytes are valid.
        unsafe {
            let target = out.as_mut_ptr().add(old);
            std::ptr::copy_nonoverlapping(self.data.add(at), target, first);
            if first < len {
                std::ptr::copy_nonoverlapping(self.data, target.add(first), len - first);
            }
            out.set_len(old + len);
        }
    }

    fn read_prefix(&self, position: u64) -> u32 {
        let at = position as usize & (self.capacity - 1);
        // SAFETY: positions are multiples of eight and the capacity is a power of two, so the word
        // is inside the data and aligned.
        u32::from_le(unsafe { self.data.add(at).cast::<u32>().read_volatile() })
    }
}

const fn record_bytes(len: usize) -> usize {
    PREFIX_BYTES + len.next_multiple_of(8)
}

/// The writing end.
pub struct Producer {
    base: Base,
    /// Number of bytes written, published or not.
    tail: u64,
    /// The producer's index, as last read by the consumer.
    published: u64,
    /// The consumer's head when last read.
    head: u64,
    pushed: u64,
}

impl Producer {
    /// The writing end of a zeroed ring.
    pub fn new(range: Range) -> Result<Producer, RingError> {
        Ok(Self::over(Base::new(&range)?))
    }

    fn over(base: Base) -> Producer {
        Producer {
            base,
            tail: 0,
            published: 0,
            head: 0,
            pushed: 0,
        }
    }

    /// The writing end of a ring in which another process has written, at its
    /// [`Producer::position`].
    pub fn resume(range: Range, position: Position) -> Result<Producer, RingError> {
        let mut producer = Self::over(Base::new(&range)?);
        let filled = position.bytes.wrapping_sub(position.peer);
        if filled > producer.base.capacity as u64 || !position.bytes.is_multiple_of(8) {
            return Err(RingError::Corrupt);
        }
        (producer.tail, producer.published) = (position.bytes, position.bytes);
        (producer.head, producer.pushed) = (position.peer, position.messages);
        Ok(producer)
    }

    /// The position at which another process continues to write; `None`: messages are unpublished.
    pub fn position(&self) -> Option<Position> {
        (self.tail == self.published).then_some(Position {
            bytes: self.tail,
            messages: self.pushed,
            peer: self.head,
        })
    }

    fn free(&mut self, wanted: usize) -> usize {
        let capacity = self.base.capacity as u64;
        if capacity - (self.tail - self.head) < wanted as u64 {
            // SYNC POINT: consumer (pairs with `head.store` in `Consumer::pop`)
            let head = self.base.header().head.load(Acquire);
            // An impossible head frees no space.
            if head >= self.head && head <= self.published {
                self.head = head;
            }
        }
        (capacity - (self.tail - self.head)) as usize
    }

    /// Messages of more bytes go through [`Producer::push_large`].
    pub fn message_bytes_max(&self) -> usize {
        self.base.capacity / 2 - PREFIX_BYTES
    }

    /// Writes a message if it fits now; [`Producer::publish`] makes it visible to the consumer.
    pub fn try_push(&mut self, message: &[u8]) -> Result<(), Full> {
        let bytes = record_bytes(message.len());
        if message.len() > self.message_bytes_max() || self.free(bytes) < bytes {
            return Err(Full);
        }
        self.write_record(message, 0);
        self.pushed += 1;
        Ok(())
    }

    /// Writes a message of any length in pieces and publishes it, calling `pause` whenever the
    /// consumer has to make progress first; `pause` returns false to give up (the ring is then
    /// unusable, because it contains a part of a message).
    pub fn push_large(
        &mut self,
        message: &[u8],
        mut pause: impl FnMut() -> bool,
    ) -> Result<(), Full> {
        let piece_max = self.base.capacity / 4;
        let mut rest = message;
        loop {
            let (piece, after) = rest.split_at(rest.len().min(piece_max));
            let bytes = record_bytes(piece.len());
            while self.free(bytes) < bytes {
                self.publish();
                if !pause() {
                    return Err(Full);
                }
            }
            self.write_record(piece, if after.is_empty() { 0 } else { MORE });
            if after.is_empty() {
                break;
            }
            rest = after;
        }
        self.pushed += 1;
        self.publish();
        Ok(())
    }

    fn write_record(&mut self, piece: &[u8], flag: u32) {
        self.base.write_prefix(self.tail, piece.len() as u32 | flag);
        self.base.write(self.tail + PREFIX_BYTES as u64, piece);
        self.tail += record_bytes(piece.len()) as u64;
    }

    /// Publishes all written messages and wakes a sleeping consumer; returns whether it slept, for
    /// callers that need another way to wake it.
    pub fn publish(&mut self) -> bool {
        let sleeps = self.show();
        if sleeps {
            let header = self.base.header();
            header.bell.fetch_add(1, Release);
            futex_wake(&header.bell, 1);
        }
        sleeps
    }

    /// Publishes all written messages; returns whether the consumer sleeps and the caller has to
    /// wake it ([`Consumer::sleep_with`]), for a peer that cannot use a futex, such as a guest's
    /// host.
    #[must_use = "a sleeping consumer is to be woken"]
    pub fn show(&mut self) -> bool {
        if self.published == self.tail {
            return false;
        }
        self.published = self.tail;
        let header = self.base.header();
        // SYNC POINT: producer (pairs with `tail.load` in `Consumer::available`)
        header.tail.store(self.tail, Release);
        fence(SeqCst);
        header.sleeping.load(Relaxed) != 0
    }

    /// Marks a new ring as parked; see [`Producer::take_parked`].
    pub fn start_parked(&self) {
        self.base.header().sleeping.store(PARKED, Relaxed);
    }

    /// Whether the ring has no reader, so that the caller has to start one. Check this after each
    /// [`Producer::publish`] that returned true. Returns true only once per parking.
    pub fn take_parked(&self) -> bool {
        let sleeping = &self.base.header().sleeping;
        let taken = sleeping.compare_exchange(PARKED, 0, AcqRel, Relaxed);
        taken.is_ok()
    }

    /// Number of bytes written and not published.
    pub fn unpublished_bytes(&self) -> usize {
        (self.tail - self.published) as usize
    }

    /// Number of messages pushed since the ring was created.
    pub fn pushed(&self) -> u64 {
        self.pushed
    }
}

/// The reading end.
pub struct Consumer {
    base: Arc<Base>,
    head: u64,
    /// The producer's tail when last read and checked.
    tail: u64,
    popped: u64,
    spin: Spin,
    sleeper: Sleeper,
    message_bytes_max: usize,
}

impl Consumer {
    /// The reading end of a ring from which nothing has been read yet.
    pub fn new(range: Range) -> Result<Consumer, RingError> {
        Ok(Self::over(Base::new(&range)?))
    }

    fn over(base: Base) -> Consumer {
        Consumer {
            base: Arc::new(base),
            head: 0,
            tail: 0,
            popped: 0,
            spin: Spin::default(),
            sleeper: Sleeper::default(),
            message_bytes_max: MESSAGE_BYTES_MAX,
        }
    }

    /// The reading end of a ring from which another process has read, at its
    /// [`Consumer::position`].
    pub fn resume(range: Range, position: Position) -> Result<Consumer, RingError> {
        let mut consumer = Self::over(Base::new(&range)?);
        if !position.bytes.is_multiple_of(8) {
            return Err(RingError::Corrupt);
        }
        (consumer.head, consumer.tail) = (position.bytes, position.bytes);
        consumer.popped = position.messages;
        Ok(consumer)
    }

    /// The position at which another process continues to read.
    pub fn position(&self) -> Position {
        Position {
            bytes: self.head,
            messages: self.popped,
            peer: self.tail,
        }
    }

    /// Treats messages of more than `bytes` bytes, in any number of pieces, as corrupt.
    pub fn limit_messages(mut self, bytes: usize) -> Consumer {
        self.message_bytes_max = bytes.min(MESSAGE_BYTES_MAX);
        self
    }

    /// Number of filled bytes, checked.
    fn available(&mut self) -> Result<u64, RingError> {
        if self.head == self.tail {
            // SYNC POINT: producer (pairs with `tail.store` in `Producer::publish`)
            let tail = self.base.header().tail.load(Acquire);
            let filled = tail.wrapping_sub(self.head);
            if filled > self.base.capacity as u64 || !tail.is_multiple_of(8) {
                return Err(RingError::Corrupt);
            }
            self.tail = tail;
        }
        Ok(self.tail - self.head)
    }

    /// Takes the next message into `message` (cleared first); `Ok(false)`: the ring is empty. Waits
    /// for the rest of a message in pieces, which its producer is pushing.
    pub fn pop(&mut self, message: &mut Vec<u8>) -> Result<bool, RingError> {
        self.pop_unless(message, || false)
    }

    /// Like [`Consumer::pop`], but stops waiting for the rest of a message (an error) when `stop`
    /// holds.
    pub fn pop_unless(
        &mut self,
        message: &mut Vec<u8>,
        stop: impl Fn() -> bool,
    ) -> Result<bool, RingError> {
        message.clear();
        if self.available()? == 0 {
            return Ok(false);
        }
        let mut since = None;
        loop {
            let available = self.available()?;
            if available == 0 {
                // A producer that stops in the middle of a message is faulty.
                let started = *since.get_or_insert_with(Instant::now);
                if started.elapsed() > Duration::from_secs(10) || stop() {
                    return Err(RingError::Corrupt);
                }
                self.wait(Duration::ZERO, Some(Duration::from_millis(1)));
                continue;
            }
            since = None;
            let prefix = self.base.read_prefix(self.head);
            let len = (prefix & !MORE) as usize;
            let bytes = record_bytes(len) as u64;
            if bytes > available || message.len() + len > self.message_bytes_max {
                return Err(RingError::Corrupt);
            }
            self.base
                .read(self.head + PREFIX_BYTES as u64, len, message);
            self.head += bytes;
            // SYNC POINT: consumer (pairs with `head.load` in `Producer::free`)
            self.base.header().head.store(self.head, Release);
            if prefix & MORE == 0 {
                self.popped += 1;
                self.sleeper.woke();
                return Ok(true);
            }
        }
    }

    /// Whether the ring is currently empty.
    pub fn is_empty(&self) -> bool {
        self.head == self.tail && self.base.header().tail.load(Acquire) == self.head
    }

    /// Like [`Consumer::is_empty`], for polling. It also reads the position where the next message
    /// will begin, so that its cache line is transferred together with that of the index.
    pub fn is_empty_so_far(&self) -> bool {
        for ahead in [0, 64] {
            std::hint::black_box(self.base.read_prefix(self.head + ahead));
        }
        self.is_empty()
    }

    /// Number of messages popped.
    pub fn popped(&self) -> u64 {
        self.popped
    }

    /// Number of bytes taken, in the producer's count; see [`Waker::published`].
    pub fn taken(&self) -> u64 {
        self.head
    }

    /// Waits until the ring is not empty, [`Waker::wake`] is called, or `timeout` has elapsed:
    /// spins for `spin`, then sleeps.
    pub fn wait(&self, spin: Duration, timeout: Option<Duration>) {
        self.wait_unless(spin, timeout, || false);
    }

    /// Announces that this side sleeps, checks again, and then calls `sleep`, which the producer
    /// must end if [`Producer::show`] returns true.
    pub fn sleep_with(&self, sleep: impl FnOnce()) {
        let header = self.base.header();
        header.sleeping.store(1, Relaxed);
        fence(SeqCst);
        if self.is_empty() {
            sleep();
        }
        header.sleeping.store(0, Relaxed);
    }

    /// Announces that this side sleeps until it calls [`Consumer::attend`], for a consumer that waits
    /// elsewhere: [`Producer::show`] then returns true. False: the ring is not empty, and no wake-up
    /// may come for the messages in it.
    pub fn leave(&self) -> bool {
        self.base.header().sleeping.store(1, Relaxed);
        fence(SeqCst);
        self.is_empty()
    }

    /// Ends [`Consumer::leave`].
    pub fn attend(&self) {
        self.base.header().sleeping.store(0, Relaxed);
    }

    /// Stops reading until the producer's side restarts the consumer; false: the ring is not empty,
    /// or `ready` holds, and the consumer continues.
    pub fn park(&self, ready: impl FnOnce() -> bool) -> bool {
        let sleeping = &self.base.header().sleeping;
        sleeping.store(PARKED, Relaxed);
        fence(SeqCst);
        let parked = self.is_empty() && !ready();
        if !parked {
            sleeping.store(0, Relaxed);
        }
        parked
    }

    /// Whether the ring is marked as not read.
    pub fn is_parked(&self) -> bool {
        self.base.header().sleeping.load(Relaxed) == PARKED
    }

    /// Like [`Consumer::wait`], but also returns as soon as `ready` holds: the thread that changes
    /// it must then call [`Waker::wake`], and no such wake-up is lost.
    pub fn wait_unless(&self, spin: Duration, timeout: Option<Duration>, ready: impl Fn() -> bool) {
        if !self.is_empty() {
            return;
        }
        if self.spin.until(spin, || !self.is_empty() || ready()) {
            return;
        }
        let bell = &self.base.header().bell;
        let seen = bell.load(Acquire);
        self.sleep_with(|| {
            if !ready() {
                self.sleeper.sleep(bell, seen, timeout);
            }
        });
    }

    /// Lets other threads of this process end a [`Consumer::wait`].
    pub fn waker(&self) -> Waker {
        Waker {
            base: self.base.clone(),
        }
    }
}

/// Ends a consumer's wait.
#[derive(Clone)]
pub struct Waker {
    base: Arc<Base>,
}

impl Waker {
    /// Sleeps on behalf of the consumer, for several threads that pop alternately under a lock:
    /// until the ring is not empty, `ready` holds, [`Waker::wake`] is called, or `timeout` has
    /// elapsed. The peer can make it return early, but not late.
    pub fn wait_unless(&self, timeout: Option<Duration>, ready: impl Fn() -> bool) {
        let header = self.base.header();
        let seen = header.bell.load(Acquire);
        header.sleeping.store(1, Relaxed);
        fence(SeqCst);
        if header.tail.load(Acquire) == header.head.load(Acquire) && !ready() {
            futex_wait(&header.bell, seen, timeout);
        }
        header.sleeping.store(0, Relaxed);
    }

    /// Number of bytes that the producer has published; [`Consumer::taken`] reaches this count
    /// unless the producer is faulty.
    pub fn published(&self) -> u64 {
        self.base.header().tail.load(Acquire)
    }

    /// Wakes the consumer if it sleeps although the ring is not empty, because its producer cannot
    /// wake it.
    pub fn wake_behind(&self) {
        let header = self.base.header();
        fence(SeqCst);
        let behind = header.tail.load(Acquire) != header.head.load(Acquire);
        if behind && header.sleeping.load(Relaxed) != 0 {
            self.wake();
        }
    }

    /// Wakes the consumer if it waits.
    pub fn wake(&self) {
        let bell = &self.base.header().bell;
        bell.fetch_add(1, Release);
        futex_wake(bell, 1);
    }
}

#[cfg(test)]
mod tests;
