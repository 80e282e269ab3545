//! Polls the source once a second, independently of the number of open pages.
//!
//! One task takes the state, adds it to the history and makes the page's JSON once. Each stream has
//! its own task, which sends the newest state: a page that reads slowly misses states, and at most
//! two are buffered for it. The number of streams is limited, and a stream whose reader takes
//! nothing for [`STALL`] is closed.

use super::history::{History, Now, Span};
use super::images::Images;
use super::model::{Source, State};
use super::view;
use bytes::Bytes;
use http_body::Frame;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, watch, OwnedSemaphorePermit, Semaphore};
use tokio::time::MissedTickBehavior;

/// Most concurrent streams.
pub const STREAMS_MAX: usize = 64;

const PERIOD: Duration = Duration::from_secs(1);

/// A stream whose page has received nothing for this time is closed.
const STALL: Duration = Duration::from_secs(20);

/// The newest state and its JSON.
#[derive(Default)]
struct Look {
    state: State,
    left_out: usize,
    history: History,
    images: Images,
    now: Now,
    at_ms: u64,
}

/// The data for responses to pages.
pub struct Hub {
    look: Mutex<Look>,
    ticks: watch::Sender<Bytes>,
    permits: Arc<Semaphore>,
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hub")
    }
}

impl Hub {
    /// Polls once and then periodically until the hub is dropped. Needs a runtime.
    pub fn start(source: Arc<dyn Source>) -> Arc<Hub> {
        let hub = Arc::new(Hub {
            look: Mutex::default(),
            ticks: watch::Sender::new(Bytes::new()),
            permits: Arc::new(Semaphore::new(STREAMS_MAX)),
        });
        hub.look(source.as_ref());
        tokio::spawn(run(Arc::downgrade(&hub), source));
        hub
    }

    fn locked<T>(&self, read: impl FnOnce(&mut Look) -> T) -> T {
        read(&mut self.look.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn look(&self, source: &dyn Source) {
        let mut state = source.state();
        let left_out = view::bound(&mut state);
        state.show_loaded();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        self.locked(|look| {
            look.now = look.history.feed(&state, Instant::now());
            look.at_ms = since_1970.map_or(0, |d| d.as_millis() as u64);
            look.images.feed(&state.devices, look.at_ms);
            look.state = state;
            look.left_out = left_out;
        });
        let event = match self.ticks.receiver_count() {
            0 => Bytes::new(),
            _ => event("state", &self.state_json()),
        };
        self.ticks.send_replace(event);
    }

    /// The current state.
    pub fn state_json(&self) -> String {
        self.locked(|l| view::state_json(&l.state, l.left_out, &l.history, &l.now, l.at_ms))
    }

    /// The points of a span.
    pub fn history_json(&self, span: Span) -> String {
        self.locked(|l| view::history_json(&l.state, &l.history, span))
    }

    /// The image changes of a device; none if the device does not exist.
    pub fn images_json(&self, node: &str, device: &str) -> String {
        self.locked(|l| l.images.json(node, device, l.at_ms))
    }

    /// A function's details; `None` if the function does not exist.
    pub fn function_json(&self, name: &str) -> Option<String> {
        self.locked(|look| {
            let function = look.state.functions.iter().find(|f| f.name == name)?;
            Some(view::function_json(function, &look.history))
        })
    }

    /// A stream of events: the series and the state first, then the state every second. `None` if
    /// the maximum number of streams is open.
    pub fn stream(self: &Arc<Self>) -> Option<Stream> {
        let permit = self.permits.clone().try_acquire_owned().ok()?;
        let (sender, receiver) = mpsc::channel(1);
        let ticks = self.ticks.subscribe();
        let first = self.locked(|l| {
            let history = view::history_json(&l.state, &l.history, Span::Recent);
            let state = view::state_json(&l.state, l.left_out, &l.history, &l.now, l.at_ms);
            [event("history", &history), event("state", &state)].concat()
        });
        tokio::spawn(feed(sender, ticks, first.into(), permit));
        Some(Stream(receiver))
    }
}

async fn run(hub: Weak<Hub>, source: Arc<dyn Source>) {
    let mut period = tokio::time::interval(PERIOD);
    period.set_missed_tick_behavior(MissedTickBehavior::Delay);
    period.tick().await;
    loop {
        period.tick().await;
        match hub.upgrade() {
            Some(hub) => hub.look(source.as_ref()),
            None => return,
        }
    }
}

/// JSON has no line breaks, so an event is one line of data.
fn event(name: &str, json: &str) -> Bytes {
    format!("event: {name}\ndata: {json}\n\n").into()
}

/// Sends events until the page disconnects or the hub is dropped.
async fn feed(
    page: mpsc::Sender<Bytes>,
    mut ticks: watch::Receiver<Bytes>,
    first: Bytes,
    _permit: OwnedSemaphorePermit,
) {
    let mut next = first;
    loop {
        // The state is empty if no page was connected when it was polled.
        if !next.is_empty() && page.send_timeout(next, STALL).await.is_err() {
            return;
        }
        tokio::select! {
            () = page.closed() => return,
            changed = ticks.changed() => match changed {
                Ok(()) => next = ticks.borrow_and_update().clone(),
                Err(_) => return,
            },
        }
    }
}

/// A page's events, as a body.
#[derive(Debug)]
pub struct Stream(mpsc::Receiver<Bytes>);

impl http_body::Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.0.poll_recv(context);
        next.map(|event| event.map(|bytes| Ok(Frame::data(bytes))))
    }
}
