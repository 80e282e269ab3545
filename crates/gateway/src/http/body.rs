//! Bodies: requests' as the frames that came, answers' as the frames that an engine gave.

use crate::http::problem::Problem;
use bytes::{Buf, Bytes};
use http::StatusCode;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

/// An answer's body. What a call gives needs no box.
#[derive(Debug, Default)]
pub(crate) enum Body {
    #[default]
    Empty,
    One(Bytes),
    Frames {
        frames: VecDeque<Bytes>,
        left: u64,
    },
    Other(axum::body::Body),
}

impl Body {
    /// One after the other, without putting them together.
    pub fn frames(frames: Vec<Bytes>) -> Body {
        let mut frames: VecDeque<Bytes> = frames.into();
        frames.retain(|frame| !frame.is_empty());
        match frames.len() {
            0 => Body::Empty,
            1 => Body::One(frames.pop_front().unwrap_or_default()),
            _ => Body::Frames {
                left: frames.iter().map(|frame| frame.len() as u64).sum(),
                frames,
            },
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Body {
        match bytes.is_empty() {
            true => Body::Empty,
            false => Body::One(bytes),
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
            Body::Frames { frames, left } => {
                let next = frames.pop_front();
                *left -= next.as_ref().map_or(0, |frame| frame.len() as u64);
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

/// Reads a request's body to its end, `bytes_max` at most. How long it may take is the
/// connection's business.
pub(crate) async fn collect<B>(mut body: B, bytes_max: u64) -> Result<Vec<Bytes>, Problem>
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
    let mut frames = Vec::with_capacity(1);
    let mut bytes = 0u64;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| broken(&error))?;
        let Ok(data) = frame.into_data() else {
            continue; // trailers say nothing to anyone here
        };
        bytes += data.remaining() as u64;
        if bytes > bytes_max {
            return Err(too_large());
        }
        if !data.is_empty() {
            frames.push(data);
        }
    }
    Ok(frames)
}

fn broken(error: &impl std::fmt::Display) -> Problem {
    let detail = format!("the body does not come as it was announced: {error}");
    Problem::new(StatusCode::BAD_REQUEST, detail).closing()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;

    #[tokio::test]
    async fn frames_keep_their_order_and_length() {
        let frames: Vec<Bytes> = ["ab", "", "cde"].map(Bytes::from).into();
        let body = Body::frames(frames);
        assert_eq!(body.size_hint().exact(), Some(5));
        let whole = body.collect().await.unwrap().to_bytes();
        assert_eq!(whole, "abcde");
    }

    #[tokio::test]
    async fn a_body_beyond_its_limit_is_413() {
        let body = || Full::new(Bytes::from_static(b"12345"));
        assert_eq!(collect(body(), 5).await.unwrap(), ["12345"]);
        let problem = collect(body(), 4).await.unwrap_err();
        assert_eq!(problem.status, 413);
    }

    #[tokio::test]
    async fn an_empty_body_has_no_frame() {
        assert!(collect(Full::new(Bytes::new()), 0)
            .await
            .unwrap()
            .is_empty());
    }
}
