//! The objects that commands read and write, and a record of those that are written while a session
//! is copied ([`super::moving`]).

use super::launch::OwnKernels;
use super::objects::Context;
use super::Session;
use baltra_ring::Locked;
use baltra_wire::{Direction, Id, Operation};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;

/// The objects that commands may have written, while that is noted.
#[derive(Default)]
pub struct Tracker {
    is_on: AtomicBool,
    written: Mutex<HashSet<u64>>,
}

impl Tracker {
    /// Whether commands note what they write.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::SeqCst)
    }

    /// Notes objects ([`super::objects::Memory::number`]).
    pub fn add(&self, written: &[u64]) {
        self.written.locked().extend(written);
    }

    /// Begins to note.
    pub fn start(&self) {
        self.is_on.store(true, Ordering::SeqCst);
    }

    /// The objects noted since the last call.
    pub fn take(&self) -> HashSet<u64> {
        std::mem::take(&mut *self.written.locked())
    }

    /// Notes nothing any more.
    pub fn stop(&self) {
        self.is_on.store(false, Ordering::SeqCst);
        self.take();
    }
}

/// Notes the objects that an operation may write, before it is handed to the driver.
pub fn track(
    session: &Session,
    context: &Context,
    kernels: &mut OwnKernels,
    operation: &Operation,
) {
    let mut written = Vec::new();
    if let Operation::Launch {
        kernel,
        arg_count,
        args,
        ..
    } = *operation
    {
        let args = (arg_count, args);
        kernels.each_memory(session, context, kernel, args, |memory, writes| {
            written.extend(writes.then(|| memory.whole().number));
        });
    } else if let (_, Some(id)) = operands(operation) {
        let memory = session.objects.memory(id);
        written.extend(memory.map(|memory| memory.whole().number));
    }
    session.tracker.add(&written);
}

/// The objects that an operation other than a launch reads and writes.
pub fn operands(operation: &Operation) -> (Option<Id>, Option<Id>) {
    match *operation {
        Operation::Buffer {
            direction,
            buffer: object,
            ..
        }
        | Operation::BufferRect {
            direction,
            buffer: object,
            ..
        }
        | Operation::Image {
            direction,
            image: object,
            ..
        } => match direction {
            Direction::Write => (None, Some(object)),
            Direction::Read => (Some(object), None),
        },
        Operation::CopyBuffer { source, target, .. }
        | Operation::CopyBufferRect { source, target, .. }
        | Operation::CopyImage { source, target, .. } => (Some(source), Some(target)),
        Operation::CopyImageToBuffer { image, buffer, .. } => (Some(image), Some(buffer)),
        Operation::CopyBufferToImage { buffer, image, .. } => (Some(buffer), Some(image)),
        Operation::FillBuffer { buffer, .. } => (None, Some(buffer)),
        Operation::FillImage { image, .. } => (None, Some(image)),
        _ => (None, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_noted_once_until_it_is_taken() {
        let tracker = Tracker::default();
        assert!(!tracker.is_on());
        tracker.start();
        tracker.add(&[1, 2]);
        tracker.add(&[2]);
        assert_eq!(tracker.take(), HashSet::from([1, 2]));
        assert_eq!(tracker.take(), HashSet::new());
        tracker.add(&[3]);
        tracker.stop();
        assert_eq!((tracker.is_on(), tracker.take()), (false, HashSet::new()));
    }
}
