//! Bodies as lists of frames: a request's frames as received, a response's frames as the engine
//! returns them.

use crate::http::admission::budget::Held;
use crate::http::failure::Failure;
use crate::http::problem::Problem;
use bytes::{Bytes, BytesMut};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Frames of at least this size are kept as received; smaller ones are merged, so that the memory
/// of a body is close to its size for any fragmentation.
const FRAME_KEPT: usize = 64 << 10;
/// The largest block into which small frames are merged.
const BLOCK_MAX: usize = 1 << 20;
const BLOCK_MIN: usize = 4 << 10;

/// A response's body. The result of a call needs no box.
#[derive(Debug, Default)]
pub(crate) enum Body {
    #[default]
    Empty,
    One(Bytes),
    Frames {
        frames: VecDeque<Bytes>,
        left: u64,
        /// Memory accounted to the response until it has been sent.
        held: Option<Held>,
    },
    Other(axum::body::Body),
}

impl Body {
    /// A body of several frames, sent without merging them.
    pub fn frames(frames: Vec<Bytes>) -> Body {
        let mut frames: VecDeque<Bytes> = frames.into();
        frames.retain(|frame| !frame.is_empty());
        match frames.len() {
            0 => Body::Empty,
            1 => Body::One(frames.pop_front().unwrap_or_default()),
            _ => Body::Frames {
                left: frames.iter().map(|frame| frame.len() as u64).sum(),
                frames,
                held: None,
            },
        }
    }

    /// Attaches accounted memory, which is released after the body has been sent.
    pub fn holding(self, held: Option<Held>) -> Body {
        let frames = match (self, held.is_some()) {
            (Body::One(bytes), true) => VecDeque::from([bytes]),
            (Body::Frames { frames, .. }, true) => frames,
            (other, _) => return other,
        };
        Body::Frames {
            left: frames.iter().map(|frame| frame.len() as u64).sum(),
            frames,
            held,
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Body {
        if bytes.is_empty() {
            Body::Empty
        } else {
            Body::One(bytes)
        }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        match this {
            Body::Empty => Poll::Ready(None),
            Body::One(bytes) => {
                let bytes = std::mem::take(bytes);
                *this = Body::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Body::Frames { frames, left, held } => {
                let next = frames.pop_front();
                *left -= next.as_ref().map_or(0, |frame| frame.len() as u64);
                if next.is_none() {
                    *held = None;
                }
                Poll::Ready(next.map(|frame| Ok(Frame::data(frame))))
            }
            Body::Other(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Empty => true,
            Body::One(_) => false,
            Body::Frames { frames, .. } => frames.is_empty(),
            Body::Other(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Empty => SizeHint::with_exact(0),
            Body::One(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Body::Frames { left, .. } => SizeHint::with_exact(*left),
            Body::Other(body) => body.size_hint(),
        }
    }
}

/// A body's frames during reception.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    frames: Vec<Bytes>,
    /// Merged small frames.
    block: BytesMut,
    bytes: u64,
}

impl Gathered {
    /// Adds a frame.
    pub fn push(&mut self, data: Bytes) {
        if data.is_empty() {
            return;
        }
        if self.bytes == 0 {
            // Usually the only frame.
            self.bytes = data.len() as u64;
            self.frames.push(data);
            return;
        }
        if let ([first], true) = (&self.frames[..], self.block.is_empty()) {
            if first.len() < FRAME_KEPT && self.bytes == first.len() as u64 {
                let first = self.frames.pop().unwrap_or_default();
                self.append(&first);
            }
        }
        self.bytes += data.len() as u64;
        if data.len() < FRAME_KEPT {
            self.append(&data);
            return;
        }
        self.end_block();
        self.frames.push(data);
    }

    fn append(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let room = self.block.capacity() - self.block.len();
            if room == 0 {
                self.end_block();
                let size = usize::try_from(self.bytes).unwrap_or(BLOCK_MAX);
                self.block = BytesMut::with_capacity(size.clamp(BLOCK_MIN, BLOCK_MAX));
                continue;
            }
            let (now, later) = data.split_at(room.min(data.len()));
            self.block.extend_from_slice(now);
            data = later;
        }
    }

    fn end_block(&mut self) {
        let block = std::mem::take(&mut self.block);
        if !block.is_empty() {
            self.frames.push(block.freeze());
        }
    }

    /// Number of bytes so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The frames; none is empty.
    pub fn finish(mut self) -> Vec<Bytes> {
        self.end_block();
        self.frames
    }
}

/// A request's body and its accounted memory.
#[derive(Debug)]
pub(crate) struct Payload {
    pub frames: Vec<Bytes>,
    pub held: Held,
}

impl Payload {
    /// Bytes of the body.
    pub fn bytes(&self) -> u64 {
        self.frames.iter().map(|frame| frame.len() as u64).sum()
    }
}

/// Reads a request's body of at most `bytes_max` bytes to its end and accounts for it in `held`.
/// The connection enforces the time limit.
pub(crate) async fn collect<B>(body: B, bytes_max: u64, mut held: Held) -> Result<Payload, Problem>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let frames = gather(body, bytes_max, |bytes| held.grow(bytes)).await?;
    Ok(Payload { frames, held })
}

/// Reads a small body in one piece. Not accounted for: the number of connections bounds the memory.
pub(crate) async fn whole<B>(body: B, bytes_max: u64) -> Result<Bytes, Problem>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let frames = gather(body, bytes_max, |_| Ok(())).await?;
    Ok(baltra_functions::Body(frames).to_bytes())
}

async fn gather<B>(
    mut body: B,
    bytes_max: u64,
    mut count: impl FnMut(u64) -> Result<(), Problem>,
) -> Result<Vec<Bytes>, Problem>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    if body.is_end_stream() {
        return Ok(Vec::new());
    }
    let too_large = || Problem::too_large("the body", bytes_max).closing();
    if body.size_hint().lower() > bytes_max {
        return Err(too_large());
    }
    let mut gathered = Gathered::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| broken(&error))?;
        let Ok(data) = frame.into_data() else {
            continue; // trailers are not used
        };
        if gathered.bytes() + data.len() as u64 > bytes_max {
            return Err(too_large());
        }
        count(data.len() as u64)?;
        gathered.push(data);
    }
    Ok(gathered.finish())
}

fn broken(error: &impl std::fmt::Display) -> Problem {
    let detail = format!("malformed body: {error}");
    Problem::new(Failure::BadRequest, detail).closing()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::admission::budget::Budget;
    use http_body_util::Full;

    #[tokio::test]
    async fn frames_keep_their_order_and_length() {
        let frames: Vec<Bytes> = ["ab", "", "cde"].map(Bytes::from).into();
        let body = Body::frames(frames);
        assert_eq!(body.size_hint().exact(), Some(5));
        let whole = body.collect().await.unwrap().to_bytes();
        assert_eq!(whole, "abcde");
    }

    fn held(bytes_max: u64) -> Held {
        let mut options = crate::options::Options::default();
        options.limits.memory_bytes_max = bytes_max;
        Held::new(&Budget::new(&options, 1), None)
    }

    #[tokio::test]
    async fn a_body_beyond_its_limit_is_413() {
        let body = || Full::new(Bytes::from_static(b"12345"));
        let payload = collect(body(), 5, held(1 << 20)).await.unwrap();
        assert_eq!((payload.bytes(), payload.held.bytes()), (5, 5));
        assert_eq!(payload.frames, ["12345"]);
        let problem = collect(body(), 4, held(1 << 20)).await.unwrap_err();
        assert_eq!(problem.status, 413);
    }

    #[tokio::test]
    async fn a_body_beyond_the_memory_is_503() {
        let body = Full::new(Bytes::from(vec![0; 200 << 10]));
        let problem = collect(body, 1 << 20, held(100 << 10)).await;
        assert_eq!(problem.unwrap_err().status, 503);
    }

    #[tokio::test]
    async fn an_empty_body_has_no_frame() {
        let payload = collect(Full::new(Bytes::new()), 0, held(1)).await;
        assert!(payload.unwrap().frames.is_empty());
    }

    #[test]
    fn small_frames_are_put_together_and_large_ones_kept() {
        let mut gathered = Gathered::default();
        let only = Bytes::from_static(b"only");
        gathered.push(only.clone());
        let frames = gathered.finish();
        assert_eq!(frames[0].as_ptr(), only.as_ptr());

        let mut gathered = Gathered::default();
        let mut expected = Vec::new();
        for i in 0..3_000_000u32 {
            let byte = [(i % 251) as u8];
            gathered.push(Bytes::copy_from_slice(&byte));
            expected.push(byte[0]);
        }
        let large = Bytes::from(vec![7; FRAME_KEPT]);
        gathered.push(large.clone());
        gathered.push(Bytes::from_static(b"end"));
        expected.extend_from_slice(&large);
        expected.extend_from_slice(b"end");
        assert_eq!(gathered.bytes(), expected.len() as u64);
        let frames = gathered.finish();
        assert!(frames.iter().any(|frame| frame.as_ptr() == large.as_ptr()));
        assert!(frames.len() < 20, "{} frames", frames.len());
        assert_eq!(frames.concat(), expected);
    }
}
