//! Durations of loading a function at a place.

use std::time::Duration;

/// Durations of loading a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ColdStart {
    /// Time to open the session; close to zero for a spare session.
    pub session: Duration,
    /// Time to build the program, which depends on the driver's cache.
    pub program: Duration,
    /// Time to create the command queues.
    pub queues: Duration,
}

impl ColdStart {
    /// The total time.
    pub fn total(&self) -> Duration {
        self.session + self.program + self.queues
    }
}
