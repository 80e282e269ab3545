//! Connections, with a limit on their number.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_stream::Stream;
use tonic::transport::server::{Connected, TcpConnectInfo};

type Accepted = Pin<Box<dyn Future<Output = io::Result<Connection>> + Send>>;

/// Accepts connections up to the limit; further ones wait in the kernel's queue.
pub(crate) struct Incoming {
    listener: Arc<TcpListener>,
    room: Arc<Semaphore>,
    next: Option<Accepted>,
}

impl Incoming {
    pub(crate) fn new(listener: TcpListener, connections_max: usize) -> Incoming {
        Incoming {
            listener: Arc::new(listener),
            room: Arc::new(Semaphore::new(connections_max.max(1))),
            next: None,
        }
    }
}

async fn accept(listener: Arc<TcpListener>, room: Arc<Semaphore>) -> io::Result<Connection> {
    let permit = room.acquire_owned().await.map_err(io::Error::other)?;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let _ = stream.set_nodelay(true);
                return Ok(Connection {
                    stream,
                    _permit: permit,
                });
            }
            // Out of descriptors, or a peer that disconnected: the registry continues.
            Err(error) => {
                tracing::debug!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let (listener, room) = (&this.listener, &this.room);
        let next = this
            .next
            .get_or_insert_with(|| Box::pin(accept(listener.clone(), room.clone())));
        let accepted = std::task::ready!(next.as_mut().poll(cx));
        this.next = None;
        Poll::Ready(Some(accepted))
    }
}

/// An accepted connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    _permit: OwnedSemaphorePermit,
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
