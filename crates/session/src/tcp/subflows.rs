//! Subflows: further connections of a session, which carry parts of large payloads. One thread
//! copies the bytes of a connection at each end, which limits its speed; with subflows, several
//! threads copy at the same time.
//!
//! 1. The client offers a tag over the session's connection, and the relay answers with the same
//!    tag. It identifies the connection: subflows of an earlier one are refused.
//! 2. The client opens one subflow after the other, with a hello that names the session, its key
//!    and the tag ([`baltra_wire::Purpose::Subflow`]). The relay sends the subflow's number, and
//!    the client one byte after that: from then on, both ends use it.
//! 3. A frame's header names the number of subflows over which its payload is divided
//!    ([`part`]); the first part follows the frame itself.
//!
//! If a subflow fails, the session's connection is closed, too. It is resumed without subflows, and
//! frames that were divided are sent again as a whole.

use super::stream::Stream;
use baltra_ring::io::Part;
use baltra_ring::{Locked, Range, Spin, Unpoisoned};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Most subflows of a connection.
pub(crate) const SUBFLOWS_MAX: usize = 7;
/// Bytes of a payload for each part, at least: a part costs two wakeups of a thread.
pub(crate) const PART_BYTES_MIN: usize = 64 << 10;
/// Parts begin at multiples of this, bytes.
const ALIGN_BYTES: usize = 4 << 10;
/// Time between the failure of a subflow and the end of the session's connection. If the client's
/// process has ended, its connection is reset meanwhile, which is a different failure for the
/// relay.
const FAILURE_DELAY: Duration = Duration::from_millis(20);
/// Longest spin of a thread that waits for another one: the next part usually follows at once.
const SPIN: Duration = Duration::from_micros(100);
/// Interval at which a full socket is checked although it does not become writable.
const WRITABLE_MAX: Duration = Duration::from_millis(100);

/// Number of subflows over which a payload is divided, if there are `available`.
pub(crate) fn division(payload: usize, available: usize) -> usize {
    (payload / PART_BYTES_MIN)
        .saturating_sub(1)
        .min(available)
        .min(SUBFLOWS_MAX)
}

/// Part number `at` of a payload that is divided over `subflows`; part 0 follows the frame.
pub(crate) fn part(whole: &Range, subflows: usize, at: usize) -> Range {
    let (len, parts) = (whole.len(), subflows + 1);
    let each = (len / parts).next_multiple_of(ALIGN_BYTES);
    let start = (at * each).min(len);
    let end = if at == subflows {
        len
    } else {
        (start + each).min(len)
    };
    let part = whole.slice(start as u64, (end - start) as u64);
    part.expect("inside the payload")
}

/// The subflows of one connection.
pub(crate) struct Subflows {
    tag: u64,
    /// The session's connection.
    main: Arc<Stream>,
    list: Mutex<Vec<Arc<Subflow>>>,
    /// Number of subflows that the peer receives from.
    confirmed: AtomicUsize,
    /// Number of parts that are not sent.
    unsent: AtomicUsize,
    is_closed: AtomicBool,
}

struct Subflow {
    stream: Stream,
    sending: Mutex<Sending>,
    sends: Condvar,
    receiving: Mutex<Receiving>,
    receives: Condvar,
    /// Whether there is a part to send, a place for the next part, and a result, for threads that
    /// spin: they look under the lock afterwards.
    has_job: AtomicBool,
    has_place: AtomicBool,
    has_result: AtomicBool,
    spins: [Spin; 3],
}

#[derive(Default)]
struct Sending {
    jobs: VecDeque<Job>,
    is_closed: bool,
}

/// A part to send.
struct Job {
    /// The number of its frame.
    frame: u64,
    bytes: Bytes,
    sent: usize,
}

enum Bytes {
    /// Unchanged until the frame has been acknowledged.
    Kept(Range),
    /// Unchanged until [`Subflows::detach`].
    InPlace(Range),
    Own(Vec<u8>),
}

#[derive(Default)]
struct Receiving {
    /// The place of the next part.
    place: Option<Range>,
    /// The result for the place that was set last.
    result: Option<io::Result<()>>,
    is_closed: bool,
    /// The thread has ended: nothing more is received.
    has_ended: bool,
}

impl Job {
    fn rest(&self) -> Part<'_> {
        match &self.bytes {
            Bytes::Kept(range) | Bytes::InPlace(range) => Part::Shared(range, self.sent),
            Bytes::Own(bytes) => Part::Bytes(&bytes[self.sent..]),
        }
    }
}

fn ended() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}

impl Subflows {
    /// None yet, for the connection `main`.
    pub fn new(tag: u64, main: Arc<Stream>) -> Arc<Subflows> {
        Arc::new(Subflows {
            tag,
            main,
            list: Mutex::default(),
            confirmed: 0.into(),
            unsent: 0.into(),
            is_closed: false.into(),
        })
    }

    /// The tag that their hellos name.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// Adds a subflow: parts are received from it from now on. `confirms`: the peer sends a byte
    /// first, once it receives from the subflow; otherwise it receives already.
    ///
    /// # Errors
    /// There are [`SUBFLOWS_MAX`] already, the connection has ended, or no thread could be started.
    fn add(self: &Arc<Self>, stream: Stream, confirms: bool) -> io::Result<Arc<Subflow>> {
        let subflow = Arc::new(Subflow {
            stream,
            sending: Mutex::default(),
            sends: Condvar::new(),
            receiving: Mutex::default(),
            receives: Condvar::new(),
            has_job: false.into(),
            has_place: false.into(),
            has_result: false.into(),
            spins: Default::default(),
        });
        if let Err(error) = subflow.spawn(self, confirms) {
            subflow.close();
            return Err(error);
        }
        let mut list = self.list.locked();
        if self.is_closed.load(Ordering::SeqCst) || list.len() >= SUBFLOWS_MAX {
            drop(list);
            subflow.close();
            return Err(ended());
        }
        list.push(subflow.clone());
        if !confirms {
            self.confirmed.fetch_max(list.len(), Ordering::SeqCst);
        }
        Ok(subflow)
    }

    /// The relay's side of a new subflow: adds it and sends its number.
    ///
    /// # Errors
    /// As [`Subflows::add`], or the client has closed it.
    pub fn accept(self: &Arc<Self>, stream: Stream, deadline: Instant) -> io::Result<()> {
        let number = self.list.locked().len() + 1;
        let subflow = self.add(stream, true)?;
        let sent = subflow.stream.send_all(&[number as u8], deadline);
        if sent.is_err() {
            self.fail();
        }
        sent
    }

    /// The client's side of a new subflow: receives its number, confirms that and adds it.
    ///
    /// # Errors
    /// As [`Subflows::add`], or the relay has closed it or sends another number.
    pub fn open(self: &Arc<Self>, stream: Stream, deadline: Instant) -> io::Result<()> {
        let mut number = [0];
        stream.recv_exact(&mut number, deadline)?;
        if usize::from(number[0]) != self.list.locked().len() + 1 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        stream.send_all(&[1], deadline)?;
        self.add(stream, false)?;
        Ok(())
    }

    /// The peer receives from a subflow.
    fn confirm(&self, subflow: &Subflow) {
        let list = self.list.locked();
        let at = list.iter().position(|s| std::ptr::eq(&**s, subflow));
        let count = at.map_or(0, |at| at + 1);
        self.confirmed.fetch_max(count, Ordering::SeqCst);
    }

    /// Number of subflows over which a payload is divided now.
    pub fn division(&self, payload: usize) -> usize {
        division(payload, self.confirmed.load(Ordering::SeqCst))
    }

    /// Sends the parts after the first of a frame's payload. `in_place`: its bytes may change after
    /// [`Subflows::detach`].
    pub fn send(&self, frame: u64, payload: &Range, subflows: usize, in_place: bool) {
        let list = self.list.locked().clone();
        for (subflow, at) in list.iter().zip(1..=subflows) {
            let range = part(payload, subflows, at);
            let bytes = if in_place {
                Bytes::InPlace(range)
            } else {
                Bytes::Kept(range)
            };
            let mut sending = subflow.sending.locked();
            if sending.is_closed {
                continue;
            }
            self.unsent.fetch_add(1, Ordering::SeqCst);
            sending.jobs.push_back(Job {
                frame,
                bytes,
                sent: 0,
            });
            subflow.has_job.store(true, Ordering::Release);
            drop(sending);
            subflow.sends.notify_one();
        }
    }

    /// Whether a part of a frame up to this number is not sent yet; cheap if there is none.
    pub fn has_unsent(&self, frame: u64) -> bool {
        if self.unsent.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let list = self.list.locked().clone();
        let waits = |subflow: &Arc<Subflow>| {
            let sending = subflow.sending.locked();
            sending.jobs.front().is_some_and(|job| job.frame <= frame)
        };
        list.iter().any(waits)
    }

    /// Copies the bytes in place that are not sent: they may change from now on.
    pub fn detach(&self) {
        if self.unsent.load(Ordering::SeqCst) == 0 {
            return;
        }
        let list = self.list.locked().clone();
        for subflow in list {
            for job in &mut subflow.sending.locked().jobs {
                if let Bytes::InPlace(range) = &job.bytes {
                    let mut bytes = vec![0; range.len()];
                    range.copy_out(0, &mut bytes);
                    job.bytes = Bytes::Own(bytes);
                }
            }
        }
    }

    /// Receives a payload that is divided over `subflows`, while `first` receives the first part.
    /// When it returns, nothing is written to `place` any more.
    ///
    /// # Errors
    /// A connection has ended.
    pub fn receive(
        &self,
        place: &Range,
        subflows: usize,
        first: impl FnOnce(&Range) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut list = self.list.locked().clone();
        if list.len() < subflows {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a payload is divided over more connections than there are",
            ));
        }
        list.truncate(subflows);
        for (subflow, at) in list.iter().zip(1..) {
            subflow.begin(part(place, subflows, at));
        }
        let mut result = first(&part(place, subflows, 0));
        if result.is_err() {
            self.close();
        }
        for subflow in &list {
            let received = subflow.finish();
            if received.is_err() && result.is_ok() {
                self.close();
                result = received.map_err(|error| self.cause().unwrap_or(error));
            }
        }
        result
    }

    /// The failure of the session's connection, which follows that of a subflow if the peer's
    /// process has ended.
    fn cause(&self) -> Option<io::Error> {
        std::thread::sleep(FAILURE_DELAY);
        let failure = self.main.recv_now(&mut [0]).err()?;
        (failure.kind() != io::ErrorKind::WouldBlock).then_some(failure)
    }

    /// Ends all subflows. After it returns, no payload is read for sending.
    pub fn close(&self) {
        let list = {
            let list = self.list.locked();
            self.is_closed.store(true, Ordering::SeqCst);
            list.clone()
        };
        for subflow in list {
            subflow.close();
        }
    }

    /// Ends the connection, because a subflow has failed.
    fn fail(&self) {
        if !self.is_closed.load(Ordering::SeqCst) {
            std::thread::sleep(FAILURE_DELAY);
        }
        self.close();
        self.main.shutdown();
    }
}

impl Drop for Subflows {
    fn drop(&mut self) {
        self.close();
    }
}

fn fail(all: &Weak<Subflows>) {
    if let Some(all) = all.upgrade() {
        all.fail();
    }
}

impl Subflow {
    fn close(&self) {
        let mut sending = self.sending.locked();
        sending.jobs.clear();
        sending.is_closed = true;
        drop(sending);
        self.stream.shutdown();
        self.sends.notify_all();
        self.receiving.locked().is_closed = true;
        self.receives.notify_all();
    }

    /// Starts the threads.
    fn spawn(self: &Arc<Self>, all: &Arc<Subflows>, confirms: bool) -> io::Result<()> {
        let (ours, set) = (self.clone(), Arc::downgrade(all));
        let name = Builder::new().name("baltra-send".into());
        name.spawn(move || ours.send(&set))?;
        let (ours, set) = (self.clone(), Arc::downgrade(all));
        let name = Builder::new().name("baltra-receive".into());
        name.spawn(move || {
            let error = ours.receive(&set, confirms);
            ours.end(&set, error);
        })?;
        Ok(())
    }

    /// The thread that sends parts.
    fn send(&self, all: &Weak<Subflows>) {
        loop {
            let mut sending = self.sending.locked();
            let sent = loop {
                if sending.is_closed {
                    return;
                }
                match self.send_some(&mut sending) {
                    Ok(Sent::Nothing) => sending = self.sends.wait(sending).unpoisoned(),
                    sent => break sent,
                }
            };
            // Others add and detach parts meanwhile.
            drop(sending);
            match sent {
                Ok(Sent::Part { is_last }) => {
                    if let Some(all) = all.upgrade() {
                        all.unsent.fetch_sub(1, Ordering::SeqCst);
                    }
                    if is_last {
                        self.spins[0].until(SPIN, || self.has_job.load(Ordering::Acquire));
                    }
                }
                Ok(Sent::Some | Sent::Nothing) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.stream.wait_writable(WRITABLE_MAX);
                }
                Err(_) => return fail(all),
            }
        }
    }

    /// Sends what the socket accepts of the first part; `WouldBlock`: the socket is full.
    fn send_some(&self, sending: &mut Sending) -> io::Result<Sent> {
        if !self.stream.is_flushed()? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let Some(job) = sending.jobs.front_mut() else {
            return Ok(Sent::Nothing);
        };
        job.sent += self.stream.send(&[job.rest()])?;
        if !job.rest().is_empty() {
            return Ok(Sent::Some);
        }
        sending.jobs.pop_front();
        let is_last = sending.jobs.is_empty();
        if is_last {
            self.has_job.store(false, Ordering::Release);
        }
        Ok(Sent::Part { is_last })
    }

    /// The thread that receives parts: returns the reason for its end.
    fn receive(&self, all: &Weak<Subflows>, confirms: bool) -> io::Error {
        if confirms {
            match self.stream.recv(None, &mut [0]) {
                Ok(1) => {}
                Ok(_) => return ended(),
                Err(error) => return error,
            }
            if let Some(all) = all.upgrade() {
                all.confirm(self);
            }
        }
        loop {
            self.spins[1].until(SPIN, || self.has_place.load(Ordering::Acquire));
            let mut receiving = self.receiving.locked();
            let place = loop {
                if receiving.is_closed {
                    return ended();
                }
                match receiving.place.take() {
                    Some(place) => break place,
                    None => receiving = self.receives.wait(receiving).unpoisoned(),
                }
            };
            self.has_place.store(false, Ordering::Release);
            drop(receiving);
            if let Err(error) = fill(&self.stream, &place, 0) {
                return error;
            }
            let mut receiving = self.receiving.locked();
            receiving.result = Some(Ok(()));
            self.has_result.store(true, Ordering::Release);
            drop(receiving);
            self.receives.notify_all();
        }
    }

    fn end(&self, all: &Weak<Subflows>, error: io::Error) {
        let mut receiving = self.receiving.locked();
        receiving.has_ended = true;
        receiving.result = Some(Err(error));
        self.has_result.store(true, Ordering::Release);
        drop(receiving);
        self.receives.notify_all();
        fail(all);
    }

    /// Has the thread receive a part.
    fn begin(&self, place: Range) {
        let mut receiving = self.receiving.locked();
        if !receiving.has_ended {
            receiving.result = None;
            self.has_result.store(false, Ordering::Release);
        }
        receiving.place = Some(place);
        self.has_place.store(true, Ordering::Release);
        drop(receiving);
        self.receives.notify_all();
    }

    /// Waits until the part has been received, or the thread has ended.
    fn finish(&self) -> io::Result<()> {
        self.spins[2].until(SPIN, || self.has_result.load(Ordering::Acquire));
        let mut receiving = self.receiving.locked();
        loop {
            match receiving.result.take() {
                Some(result) => return result,
                None if receiving.has_ended => return Err(ended()),
                None => receiving = self.receives.wait(receiving).unpoisoned(),
            }
        }
    }
}

/// The progress of a subflow's parts.
enum Sent {
    Nothing,
    Some,
    /// The rest of a part, and whether there is no other one.
    Part {
        is_last: bool,
    },
}

/// Receives the bytes of `place` from `at` on.
pub(crate) fn fill(stream: &Stream, place: &Range, mut at: usize) -> io::Result<()> {
    while at < place.len() {
        let rest = place.slice(at as u64, (place.len() - at) as u64);
        let rest = rest.expect("inside the place");
        at += match stream.recv(Some(&rest), &mut [])? {
            0 => return Err(ended()),
            n => n,
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use baltra_ring::Memory;

    #[test]
    fn parts_are_a_payload_without_gaps() {
        for len in [131_072, 131_073, 200_001, 500_000, (1 << 20) - 1, 1 << 20] {
            let memory = Memory::anonymous(len as u64).unwrap();
            let whole = memory.slice(0, len as u64).unwrap();
            for available in 0..10 {
                let subflows = division(len, available);
                assert!(subflows <= available.min(SUBFLOWS_MAX));
                let mut end = whole.ptr();
                for at in 0..=subflows {
                    let part = part(&whole, subflows, at);
                    assert_eq!(part.ptr(), end, "{len} bytes, part {at} of {subflows}");
                    assert!(!part.is_empty());
                    end = end.wrapping_add(part.len());
                }
                assert_eq!(end, whole.ptr().wrapping_add(len));
            }
        }
        assert_eq!(division(PART_BYTES_MIN, 3), 0);
    }
}
