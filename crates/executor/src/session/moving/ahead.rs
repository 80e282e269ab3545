//! Copying contents while the session runs, so that only what was written since is copied while it
//! is stopped.
//!
//! Each command that is handed to the driver notes the objects that it may write
//! ([`super::super::tracker`]). A copy counts if no command handed over before it was noted is still
//! running, and none was noted since.

use super::super::Session;
use super::export::{self, creations, Root};
use super::stream::Stream;
use baltra_ring::Locked;
use baltra_wire::moves::State;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Polling interval of a draining queue.
const LOOK_EVERY: Duration = Duration::from_micros(200);
/// All objects once, then those that were written meanwhile.
const PASSES: usize = 2;

/// The contents that the target has.
#[derive(Default)]
pub(super) struct Copies {
    /// The objects whose bytes it has, as far as no command has written them since.
    pub current: HashSet<u64>,
    /// Bytes that were copied.
    pub bytes: u64,
}

impl Session {
    /// From now on, commands note what they write. Returns the objects with contents that the
    /// target can make while the session runs, and a description of them, which is a [`State`] of a
    /// session that has not stopped.
    pub(super) fn begin_ahead(&self) -> Result<(Vec<Root>, State), String> {
        self.tracker.start();
        let steps = self.steps(&[])?;
        let records = creations(&steps);
        let mut roots = self.roots(&records, false)?;
        // A client that has released an object needs its memory.
        roots.retain(|root| !root.is_released());
        let steps = roots.iter().filter_map(|root| records.get(&root.id));
        let state = State {
            steps: steps.map(|own| export::step(own)).collect(),
            ..State::default()
        };
        Ok((roots, state))
    }

    /// Copies contents to the target while the session runs. Commands that do not end within `wait`
    /// leave the rest for the stop.
    pub(super) fn copy_ahead(
        &self,
        stream: &mut Stream<'_>,
        roots: &[Root],
        wait: Duration,
        copies: &mut Copies,
    ) -> Result<(), String> {
        let until = Instant::now() + wait;
        for _ in 0..PASSES {
            let written = self.tracker.take();
            copies.current.retain(|number| !written.contains(number));
            if !self.commands_ended(until) {
                break;
            }
            for root in roots {
                let number = root.memory.number;
                if copies.current.contains(&number) || root.is_released() {
                    continue;
                }
                copies.bytes += stream.send(root)?;
                copies.current.insert(number);
            }
        }
        stream.finish()
    }

    /// Waits until no command runs that was handed over before this call.
    fn commands_ended(&self, until: Instant) -> bool {
        let queues = self.queues.locked().clone();
        let taken: Vec<_> = queues.iter().map(|q| (q.clone(), q.taken())).collect();
        for (queue, count) in taken {
            while queue.completed() < count && queue.running_since_ns().is_some() {
                if Instant::now() >= until || self.is_closed() {
                    return false;
                }
                std::thread::sleep(LOOK_EVERY);
            }
        }
        true
    }
}
