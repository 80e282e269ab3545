//! Admission of gRPC requests: the keys, limits and deadlines of HTTP, applied before a message is
//! read.
//!
//! The body of a request without a valid key is not read. A message begins with its length: one
//! longer than the function's limit is rejected at once; others are accounted for ([`Held`]) as
//! they arrive and must be complete within `body_timeout_ms`. A response is accounted for until it
//! has been sent; its connection is closed if the peer accepts no bytes for `write_timeout_ms`.

use super::wire::{model_name, Model};
use super::Slot;
use crate::http::admission::budget::Held;
use crate::http::admission::keys::TenantIndex;
use crate::http::gateway::Gateway;
use crate::http::problem::Problem;
use crate::http::transport::connection::{Progress, Watch};
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body as HttpBody, Frame};
use hyper::body::Incoming;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{ready, Context, Poll};
use tokio::time::Sleep;
use tonic::body::Body;
use tonic::Status;

/// Limit of messages without tensors.
const SMALL_BYTES_MAX: u64 = 64 << 10;
/// In a larger message, the model's name must lie within this many bytes.
const NAME_WITHIN: usize = 4 << 10;
/// Allowance for a message's fields other than tensors.
pub(crate) const FIELDS_BYTES: u64 = 1 << 20;
/// A message's compression flag and length.
const PREFIX: usize = 5;
/// Responses are sent in pieces of this size, so that their progress is visible.
const PIECE: usize = 256 << 10;

/// Resources of a request, from its first byte to its response's last.
struct Ticket {
    held: Mutex<Held>,
    _slot: Option<Slot>,
}

/// The access rule of a method.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Method {
    /// No key: probes, and descriptions of the service.
    Open,
    /// Management's password.
    Admin,
    /// A caller's key.
    Small,
    Infer,
}

impl Method {
    fn of(path: &str) -> Method {
        let Some(name) = path.strip_prefix("/inference.GRPCInferenceService/") else {
            return if path.starts_with("/grpc.reflection.") {
                Method::Open
            } else {
                Method::Small
            };
        };
        match name {
            "ServerLive" | "ServerReady" | "ServerMetadata" => Method::Open,
            "RepositoryModelLoad" | "RepositoryModelUnload" => Method::Admin,
            "ModelInfer" => Method::Infer,
            _ => Method::Small,
        }
    }
}

/// Checks a request before its body is read; returns the admitted request or the error.
pub(crate) fn admit(
    gateway: &Arc<Gateway>,
    request: Request<Incoming>,
) -> Result<(Request<Guarded<Incoming>>, Sent), Status> {
    let method = Method::of(request.uri().path());
    let ticket = Arc::new(ticket(gateway, method, request.headers())?);
    let limits = &gateway.options.limits;
    let request = request.map(|inner| Guarded {
        inner,
        gateway: gateway.clone(),
        ticket: ticket.clone(),
        infers: method == Method::Infer,
        deadline: Box::pin(tokio::time::sleep(limits.body_timeout())),
        at: At::default(),
    });
    Ok((request, Sent(ticket)))
}

fn ticket(gateway: &Arc<Gateway>, method: Method, headers: &HeaderMap) -> Result<Ticket, Problem> {
    let tenant: Option<TenantIndex> = match method {
        Method::Open => None,
        Method::Admin => {
            gateway.keys.check_admin(headers)?;
            None
        }
        Method::Small | Method::Infer => Some(gateway.keys.caller(headers)?),
    };
    let mut slot = None;
    if let (Method::Infer, Some(tenant)) = (method, tenant) {
        gateway.keys.admit(tenant)?;
        slot = Some(gateway.slot()?);
    }
    Ok(Ticket {
        held: Mutex::new(gateway.hold(tenant)),
        _slot: slot,
    })
}

/// Position in a request's body.
#[derive(Debug, Default)]
struct At {
    prefix: [u8; PREFIX],
    /// Received bytes of the prefix.
    prefix_bytes: usize,
    /// Missing bytes of the message.
    left: u64,
    /// The beginning of the message, until the model's name has been found.
    head: Option<Vec<u8>>,
    length: u64,
}

/// A request's body, checked before it is buffered.
pub(crate) struct Guarded<B> {
    inner: B,
    gateway: Arc<Gateway>,
    ticket: Arc<Ticket>,
    infers: bool,
    deadline: Pin<Box<Sleep>>,
    at: At,
}

impl<B> Guarded<B> {
    fn look(&mut self, mut data: &[u8]) -> Result<(), Status> {
        let counted = {
            let held = self.ticket.held.lock();
            let mut held = held.unwrap_or_else(PoisonError::into_inner);
            held.grow(data.len() as u64)
        };
        counted.map_err(Status::from)?;
        while !data.is_empty() {
            if self.at.left == 0 && self.at.prefix_bytes < PREFIX {
                let now = data.len().min(PREFIX - self.at.prefix_bytes);
                let prefix_bytes = self.at.prefix_bytes;
                self.at.prefix[prefix_bytes..prefix_bytes + now].copy_from_slice(&data[..now]);
                self.at.prefix_bytes += now;
                data = &data[now..];
                if self.at.prefix_bytes == PREFIX {
                    self.begin()?;
                }
                continue;
            }
            let now = data
                .len()
                .min(usize::try_from(self.at.left).unwrap_or(usize::MAX));
            self.look_for_name(&data[..now])?;
            self.at.left -= now as u64;
            data = &data[now..];
            if self.at.left == 0 {
                self.end()?;
            }
        }
        Ok(())
    }

    /// Handles a complete prefix, which has the message's length.
    fn begin(&mut self) -> Result<(), Status> {
        let [_, length @ ..] = self.at.prefix;
        let length = u64::from(u32::from_be_bytes(length));
        let limits = &self.gateway.options.limits;
        let bytes_max = if self.infers {
            limits.body_bytes_max.saturating_add(FIELDS_BYTES)
        } else {
            SMALL_BYTES_MAX
        };
        if length > bytes_max {
            return Err(too_large(length, bytes_max));
        }
        self.at.left = length;
        self.at.length = length;
        self.at.head = (length > SMALL_BYTES_MAX).then(Vec::new);
        match length {
            0 => self.end(),
            _ => Ok(()),
        }
    }

    fn end(&mut self) -> Result<(), Status> {
        let named = self.at.head.is_none();
        self.at = At::default();
        if named {
            Ok(())
        } else {
            Err(unnamed())
        }
    }

    /// Finds the model's name in a message larger than [`SMALL_BYTES_MAX`], and checks the
    /// message's length against its function's limit.
    fn look_for_name(&mut self, data: &[u8]) -> Result<(), Status> {
        let Some(head) = &mut self.at.head else {
            return Ok(());
        };
        let room = NAME_WITHIN - head.len();
        head.extend_from_slice(&data[..room.min(data.len())]);
        let name = match model_name(head) {
            Model::Named(name) => name,
            Model::Unknown if head.len() < NAME_WITHIN => return Ok(()),
            Model::Unknown | Model::Malformed => return Err(unnamed()),
        };
        let found = self.gateway.table.find(name);
        let deployed = found.ok_or_else(|| Problem::unknown_function(name))?;
        // Typed contents are longer than their elements, which are bounded separately.
        let bytes_max = deployed.body_bytes_max.saturating_mul(2);
        let bytes_max = bytes_max.saturating_add(FIELDS_BYTES);
        if self.at.length > bytes_max {
            return Err(too_large(self.at.length, bytes_max));
        }
        self.at.head = None;
        Ok(())
    }
}

fn too_large(length: u64, bytes_max: u64) -> Status {
    let problem = Problem::too_large(&format!("a message of {length} bytes"), bytes_max);
    problem.into()
}

fn unnamed() -> Status {
    Status::invalid_argument(format!(
        "in a message of more than {SMALL_BYTES_MAX} bytes, 'model_name' must be within the first {NAME_WITHIN}: encode the fields in order"
    ))
}

impl<B> HttpBody for Guarded<B>
where
    B: HttpBody<Data = Bytes, Error = hyper::Error> + Unpin,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        if this.deadline.as_mut().poll(context).is_ready() {
            let late = "the message did not arrive in time ('gateway.limits.body_timeout_ms')";
            return Poll::Ready(Some(Err(Status::deadline_exceeded(late))));
        }
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(context));
        let Some(frame) = frame else {
            return Poll::Ready(None);
        };
        let looked = match frame {
            Ok(frame) => match frame.data_ref().map(|data| this.look(data)) {
                Some(Err(status)) => Err(status),
                _ => Ok(frame),
            },
            Err(error) => Err(Status::cancelled(error.to_string())),
        };
        Poll::Ready(Some(looked))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }
}

/// A response's reference to the accounts of its request.
pub(crate) struct Sent(Arc<Ticket>);

impl Sent {
    /// Attaches the request's accounts to the response until it has been sent.
    pub fn with(self, watch: &Arc<Watch>, response: Response<Body>) -> Response<Answering> {
        let (mut parts, inner) = response.into_parts();
        let body = Answering {
            inner,
            rest: Bytes::new(),
            progress: Watch::progress(watch),
            own: parts.extensions.remove(),
            _ticket: Some(self.0),
        };
        Response::from_parts(parts, body)
    }

    /// The response to a rejected request.
    pub fn refused(watch: &Arc<Watch>, response: Response<Body>) -> Response<Answering> {
        response.map(|inner| Answering {
            inner,
            rest: Bytes::new(),
            progress: Watch::progress(watch),
            own: None,
            _ticket: None,
        })
    }
}

/// A response's body during transmission.
pub(crate) struct Answering {
    inner: Body,
    /// Rest of the current frame.
    rest: Bytes,
    progress: Progress,
    /// Account of its outputs.
    own: Option<Arc<Held>>,
    _ticket: Option<Arc<Ticket>>,
}

impl HttpBody for Answering {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        this.progress.note();
        if this.rest.is_empty() {
            let frame = ready!(Pin::new(&mut this.inner).poll_frame(context));
            match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                other => {
                    this.own = None;
                    return Poll::Ready(other);
                }
            }
        }
        let piece = this.rest.split_to(this.rest.len().min(PIECE));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }
}
