//! The images that wait for their turn on a device.

use super::Configuration;
use baltra_eviction::{turn_max, Options, Turn, Waiting};
use std::time::{Duration, Instant};

/// Most waiting images that are reported, the registry's limit.
const SHOWN_MAX: usize = 64;

/// An image that waits for its turn.
pub(super) struct Queued {
    pub(super) digest: String,
    /// Number of sessions that wait for it.
    sessions: usize,
    since: Instant,
    /// Time that loads had taken by then.
    loads_time: Duration,
}

/// An image that waits for its turn, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingImage {
    /// Its digest.
    pub digest: String,
    /// Number of sessions that wait for it.
    pub sessions: usize,
    /// Time since its first request.
    pub waited: Duration,
}

/// The present turn of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Present {
    /// The time for which the device has held its image.
    pub held: Duration,
    /// Its turn by the policy.
    pub turn: Turn,
    /// The longest turn with which no other image waits longer than it may, loads excluded.
    pub most: Duration,
}

impl Configuration {
    /// The present turn; `None`: the device holds no image, or it is not known which.
    pub fn turn(&self, options: &Options) -> Option<Present> {
        let state = self.state();
        let begun = state.since?;
        // No image is loaded during a turn.
        let loads_time = state.loads_time();
        let waiting = state.queue.iter().map(|image| Waiting {
            before: begun
                .saturating_duration_since(image.since)
                .saturating_sub(loads_time.saturating_sub(image.loads_time)),
            since: image.since.saturating_duration_since(begun),
        });
        let most = options
            .wait
            .map_or(Duration::MAX, |most| turn_max(most, waiting));
        let image = state.held.image.as_deref().unwrap_or_default();
        let others = state.queue.iter().map(|image| image.digest.as_str());
        Some(Present {
            held: begun.elapsed(),
            turn: state.images.turn(options, image, others, state.now()),
            most,
        })
    }

    /// A session waits for an image's turn, until the result is dropped.
    pub fn queue<'a>(&'a self, digest: &'a str) -> ImageTicket<'a> {
        let mut state = self.state();
        match state.queue.iter_mut().find(|image| image.digest == digest) {
            Some(image) => image.sessions += 1,
            None => {
                let image = Queued {
                    digest: digest.to_owned(),
                    sessions: 1,
                    since: Instant::now(),
                    loads_time: state.loads_time(),
                };
                state.queue.push_back(image);
            }
        }
        ImageTicket {
            configuration: self,
            digest,
        }
    }

    /// Whether no other image is to be loaded before this one.
    pub fn is_next(&self, digest: &str) -> bool {
        let state = self.state();
        let next = state.queue.front();
        !state.changing && next.is_none_or(|image| image.digest == digest)
    }

    /// Has no further session join the present image, because the turn of `digest` begins: until
    /// it is loaded, or the last session that waits for it gives up.
    pub fn begin_turn(&self, digest: &str) {
        let mut state = self.state();
        if state.held.image.as_deref() != Some(digest) {
            state.next = Some(digest.to_owned());
        }
    }

    /// Number of images that wait for their turn.
    pub fn waiting(&self) -> usize {
        self.state().queue.len()
    }

    /// The images that wait for their turn, the next one first, without the one that is being
    /// loaded; at most [`SHOWN_MAX`].
    pub fn waiting_images(&self) -> Vec<WaitingImage> {
        let state = self.state();
        let loading = state.load.as_ref().map(|load| &load.digest);
        let queue = state.queue.iter();
        let shown = queue
            .filter(|image| loading != Some(&image.digest))
            .take(SHOWN_MAX);
        let image = |image: &Queued| WaitingImage {
            digest: image.digest.clone(),
            sessions: image.sessions,
            waited: image.since.elapsed(),
        };
        shown.map(image).collect()
    }
}

/// A session's place in the queue of images.
pub struct ImageTicket<'a> {
    configuration: &'a Configuration,
    digest: &'a str,
}

impl Drop for ImageTicket<'_> {
    fn drop(&mut self) {
        let mut state = self.configuration.state();
        if let Some(image) = state
            .queue
            .iter_mut()
            .find(|image| image.digest == self.digest)
        {
            image.sessions -= 1;
        }
        state.queue.retain(|image| image.sessions > 0);
        let waits = |next: &String| state.queue.iter().any(|image| image.digest == *next);
        if !state.next.as_ref().is_some_and(waits) {
            state.next = None;
        }
    }
}
