//! A socket with its state and its time limits.
//!
//! Requests set no timers. Reads and writes record when a head, a body or a stall began, in ticks
//! of the worker's coarse clock, and once per tick the worker closes connections that exceed their
//! limits. This keeps ten thousand idle connections cheap.

use crate::http::failure::Failure;
use crate::http::transport::scan::{Refusal, Scanner, Within};
use crate::options::LimitOptions;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{ready, Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Interval of a worker's checks of its connections.
pub(crate) const TICK: Duration = Duration::from_millis(250);

/// A worker's coarse clock: ticks since its start, from 1 on.
#[derive(Clone, Debug)]
pub(crate) struct Clock(Arc<AtomicU32>);

impl Clock {
    pub fn new() -> Clock {
        Clock(Arc::new(AtomicU32::new(1)))
    }

    pub fn advance(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    fn now(&self) -> u32 {
        self.0.load(Relaxed)
    }
}

/// The state of a connection, read by its worker. Times are ticks; 0 means "none".
#[derive(Debug)]
pub(crate) struct Watch {
    clock: Clock,
    /// Start of the head in progress.
    head: AtomicU32,
    /// Start of the body in progress.
    body: AtomicU32,
    /// Time since which the peer has accepted no bytes.
    blocked: AtomicU32,
    /// Time of the last transfer in either direction.
    active: AtomicU32,
    /// Number of requests in progress.
    busy: AtomicU32,
    /// Whether the TLS handshake has ended, or the connection has none.
    pub greeted: AtomicBool,
    /// Times of the last progress of each response, if several are in progress (HTTP/2).
    answers: Mutex<Vec<Weak<AtomicU32>>>,
}

/// The progress of one of several concurrent responses; its request counts as busy until this is
/// dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    watch: Arc<Watch>,
    last: Arc<AtomicU32>,
}

impl Progress {
    /// Records progress.
    pub fn note(&self) {
        self.last.store(self.watch.clock.now(), Relaxed);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.watch.leave();
    }
}

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overdue {
    Greeting,
    Head,
    Body,
    Write,
    Idle,
}

/// [`LimitOptions`] converted to ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    head: u32,
    body: u32,
    write: u32,
    idle: u32,
}

impl Patience {
    pub fn new(limits: &LimitOptions) -> Patience {
        // One more tick, because the current tick may end at once.
        let ticks = |ms: u64| (ms.div_ceil(TICK.as_millis() as u64) + 1).min(1 << 30) as u32;
        Patience {
            head: ticks(limits.head_timeout_ms),
            body: ticks(limits.body_timeout_ms),
            write: ticks(limits.write_timeout_ms),
            idle: ticks(limits.idle_timeout_ms),
        }
    }
}

impl Watch {
    pub fn new(clock: Clock) -> Watch {
        let now = clock.now();
        Watch {
            clock,
            head: AtomicU32::new(0),
            body: AtomicU32::new(0),
            blocked: AtomicU32::new(0),
            active: AtomicU32::new(now),
            busy: AtomicU32::new(0),
            greeted: AtomicBool::new(false),
            answers: Mutex::default(),
        }
    }

    /// Registers a response in progress.
    pub fn progress(watch: &Arc<Watch>) -> Progress {
        watch.enter();
        let last = Arc::new(AtomicU32::new(watch.clock.now()));
        watch.answers().push(Arc::downgrade(&last));
        Progress {
            watch: watch.clone(),
            last,
        }
    }

    fn answers(&self) -> std::sync::MutexGuard<'_, Vec<Weak<AtomicU32>>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request begins.
    pub fn enter(&self) {
        self.busy.fetch_add(1, Relaxed);
    }

    /// A request ends: its response was sent, or the client disconnected.
    pub fn leave(&self) {
        self.active.store(self.clock.now(), Relaxed);
        self.busy.fetch_sub(1, Relaxed);
    }

    /// Whether no request is in progress, so that a shutdown may close the connection.
    pub fn is_idle(&self) -> bool {
        self.busy.load(Relaxed) == 0
            && self.head.load(Relaxed) == 0
            && self.body.load(Relaxed) == 0
            && self.blocked.load(Relaxed) == 0
    }

    /// The exceeded limit, if any.
    pub fn overdue(&self, patience: &Patience) -> Option<Overdue> {
        let now = self.clock.now();
        let over = |since: &AtomicU32, ticks: u32| match since.load(Relaxed) {
            0 => false,
            since => now.wrapping_sub(since) > ticks,
        };
        if !self.greeted.load(Relaxed) {
            return over(&self.active, patience.head).then_some(Overdue::Greeting);
        }
        if over(&self.head, patience.head) {
            return Some(Overdue::Head);
        }
        if over(&self.body, patience.body) {
            return Some(Overdue::Body);
        }
        if over(&self.blocked, patience.write) {
            return Some(Overdue::Write);
        }
        let mut stalled = false;
        self.answers().retain(|answer| {
            let answer = answer.upgrade();
            stalled |= answer
                .as_ref()
                .is_some_and(|last| over(last, patience.write));
            answer.is_some()
        });
        if stalled {
            return Some(Overdue::Write);
        }
        let idle = self.is_idle() && over(&self.active, patience.idle);
        idle.then_some(Overdue::Idle)
    }

    fn note(&self, within: Within) {
        let now = self.clock.now();
        self.active.store(now, Relaxed);
        self.begin(within);
    }

    fn begin(&self, within: Within) {
        let now = self.clock.now();
        let begin = |since: &AtomicU32, under_way: bool| {
            if !under_way {
                since.store(0, Relaxed);
            } else if since.load(Relaxed) == 0 {
                since.store(now, Relaxed);
            }
        };
        begin(&self.head, within == Within::Head);
        begin(&self.body, within == Within::Body);
    }
}

/// A stream whose bytes are checked before they reach the parser.
#[derive(Debug)]
pub(crate) struct Watched<S> {
    stream: S,
    watch: Arc<Watch>,
    /// `None`: HTTP/2, which needs no scanner because its frames have lengths.
    scanner: Option<Scanner>,
    /// Missing bytes of HTTP/2's preface.
    preface: usize,
}

/// The client's first bytes in HTTP/2 (RFC 9113, 3.4).
const PREFACE: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();

impl<S> Watched<S> {
    pub fn new(stream: S, watch: Arc<Watch>, scanner: Option<Scanner>) -> Watched<S> {
        let preface = if scanner.is_none() { PREFACE } else { 0 };
        if preface > 0 {
            watch.note(Within::Head);
        }
        Watched {
            stream,
            watch,
            scanner,
            preface,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        let bytes = &buffer.filled()[before..];
        let Some(scanner) = &mut this.scanner else {
            // HTTP/2 frames do not keep a connection open; requests and responses do.
            this.preface = this.preface.saturating_sub(bytes.len());
            if this.preface == 0 {
                this.watch.begin(Within::Nothing);
            }
            return Poll::Ready(Ok(()));
        };
        if let Err(refusal) = scanner.feed(bytes) {
            // Write the response without waiting for the peer. After a response in progress, the
            // peer would take the bytes for a part of that response.
            if this.watch.busy.load(Relaxed) == 0 && this.watch.blocked.load(Relaxed) == 0 {
                let text = refusal.response();
                let _ = Pin::new(&mut this.stream).poll_write(context, text.as_bytes());
                let _ = Pin::new(&mut this.stream).poll_flush(context);
                let _ = Pin::new(&mut this.stream).poll_shutdown(context);
            }
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "refused by the scanner",
            )));
        }
        this.watch.note(scanner.within());
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> Watched<S> {
    /// Records whether the peer accepts data.
    fn note_write<T>(&self, result: &Poll<io::Result<T>>) {
        let watch = &self.watch;
        match result {
            Poll::Pending if watch.blocked.load(Relaxed) == 0 => {
                watch.blocked.store(watch.clock.now(), Relaxed);
            }
            Poll::Pending => {}
            Poll::Ready(_) => {
                watch.blocked.store(0, Relaxed);
                if self.scanner.is_some() {
                    watch.active.store(watch.clock.now(), Relaxed);
                }
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.note_write(&result);
        result
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_write_vectored(context, slices);
        this.note_write(&result);
        result
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_flush(context);
        // A flush of an empty buffer carries no information about the peer.
        if result.is_pending() {
            this.note_write(&result);
        }
        result
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

impl Refusal {
    /// The whole response, because the parser never sees the rejected request.
    fn response(self) -> String {
        let (failure, detail) = match self {
            Refusal::HeadTooLarge => (
                Failure::HeadTooLarge,
                "the request line and headers exceed 'gateway.limits.head_bytes_max'",
            ),
            Refusal::Ambiguous(why) => (Failure::BadRequest, why),
        };
        let status = failure as u16;
        let title = failure.status().canonical_reason().unwrap_or("Error");
        let body = serde_json::json!({
            "type": "about:blank", "title": title, "status": status, "detail": detail,
        });
        let body = body.to_string();
        format!(
            "HTTP/1.1 {status} {title}\r\ncontent-type: application/problem+json\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patience() -> Patience {
        Patience {
            head: 2,
            body: 4,
            write: 4,
            idle: 8,
        }
    }

    fn after(watch: &Watch, ticks: u32) -> Option<Overdue> {
        for _ in 0..ticks {
            watch.clock.advance();
        }
        watch.overdue(&patience())
    }

    fn greeted() -> Watch {
        let watch = Watch::new(Clock::new());
        watch.greeted.store(true, Relaxed);
        watch
    }

    #[test]
    fn a_head_may_not_drip() {
        let watch = greeted();
        watch.note(Within::Head);
        assert_eq!(after(&watch, 2), None);
        watch.note(Within::Head); // another byte
        assert_eq!(after(&watch, 1), Some(Overdue::Head));
    }

    #[test]
    fn a_body_has_longer_than_a_head() {
        let watch = greeted();
        watch.note(Within::Head);
        watch.note(Within::Body);
        assert_eq!(after(&watch, 4), None);
        assert_eq!(after(&watch, 1), Some(Overdue::Body));
    }

    #[test]
    fn a_busy_connection_is_not_idle() {
        let watch = greeted();
        watch.note(Within::Nothing);
        watch.enter();
        assert_eq!(after(&watch, 100), None);
        watch.leave();
        assert_eq!(after(&watch, 8), None);
        assert_eq!(after(&watch, 1), Some(Overdue::Idle));
    }

    #[test]
    fn one_answer_that_nobody_takes_is_seen_among_others() {
        let watch = Arc::new(greeted());
        let (stalled, taken) = (Watch::progress(&watch), Watch::progress(&watch));
        assert_eq!(after(&watch, 3), None);
        taken.note();
        assert_eq!(after(&watch, 1), None);
        assert_eq!(after(&watch, 1), Some(Overdue::Write));
        drop(stalled);
        taken.note();
        assert_eq!(watch.overdue(&patience()), None);
        drop(taken);
        assert!(watch.is_idle());
        assert_eq!(after(&watch, 9), Some(Overdue::Idle));
    }

    #[tokio::test]
    async fn a_preface_may_not_drip_and_frames_keep_nothing_open() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut peer, stream) = tokio::io::duplex(1024);
        let watch = Arc::new(greeted());
        let mut watched = Watched::new(stream, watch.clone(), None);
        peer.write_all(&[0; PREFACE - 1]).await.unwrap();
        watched.read_exact(&mut [0; PREFACE - 1]).await.unwrap();
        assert_eq!(after(&watch, 3), Some(Overdue::Head));
        peer.write_all(&[0; 100]).await.unwrap();
        watched.read_exact(&mut [0; 100]).await.unwrap();
        assert_eq!(after(&watch, 5), None);
        peer.write_all(&[0; 100]).await.unwrap();
        watched.read_exact(&mut [0; 100]).await.unwrap();
        assert_eq!(after(&watch, 1), Some(Overdue::Idle));
    }

    #[test]
    fn who_does_not_greet_is_not_waited_for() {
        let watch = Watch::new(Clock::new());
        assert_eq!(after(&watch, 3), Some(Overdue::Greeting));
    }

    #[tokio::test]
    async fn a_refused_request_is_answered_and_never_parsed() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut peer, stream) = tokio::io::duplex(1024);
        let mut watched = Watched::new(stream, Arc::new(greeted()), Some(Scanner::new(8192)));
        peer.write_all(b"GET / HTTP/1.1\nHost: a\n\n")
            .await
            .unwrap();
        let error = watched.read(&mut [0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        drop(watched);
        let mut answer = String::new();
        peer.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        assert!(answer.contains("carriage return"), "{answer}");
    }
}
