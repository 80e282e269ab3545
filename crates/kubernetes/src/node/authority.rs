//! Replaces the kubelet's `:authority`, which HTTP/2 does not allow: on a plug-in's socket, it is
//! the percent-encoded path of the socket, and h2 resets the stream with PROTOCOL_ERROR
//! (hyperium/h2#487).
//!
//! This filter replaces it with `localhost`. No decoding is needed (RFC 7541, 6): a literal whose
//! name is entry 1 of the static table is replaced as a whole, so that both ends' dynamic tables
//! have the same numbering.

use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::wrappers::ReceiverStream;

/// Length of a client's connection preface (RFC 9113, 3.4).
const PREFACE: usize = 24;
/// Length of a frame's head, and the default limit of a frame's payload.
const HEAD: usize = 9;
const FRAME_MAX: usize = 16_384;
const HEADERS: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 32;
/// Most connections that wait to be served.
const WAITING: usize = 4;

/// The connections of a listener, with `:authority` replaced by `localhost`.
pub(super) fn localhost(listener: UnixListener) -> ReceiverStream<io::Result<UnixStream>> {
    let (served, connections) = tokio::sync::mpsc::channel(WAITING);
    tokio::spawn(async move {
        while let Ok((peer, _)) = listener.accept().await {
            let Ok((ours, theirs)) = UnixStream::pair() else {
                continue;
            };
            tokio::spawn(async move {
                let (mut from_peer, mut to_peer) = peer.into_split();
                let (mut from_server, mut to_server) = theirs.into_split();
                // The end of either direction ends both.
                tokio::select! {
                    _ = rewritten(&mut from_peer, &mut to_server) => {}
                    _ = tokio::io::copy(&mut from_server, &mut to_peer) => {}
                }
            });
            if served.send(Ok(ours)).await.is_err() {
                return;
            }
        }
    });
    ReceiverStream::new(connections)
}

/// Forwards a client's frames.
async fn rewritten(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    let mut preface = [0; PREFACE];
    from.read_exact(&mut preface).await?;
    to.write_all(&preface).await?;
    loop {
        let mut head = [0; HEAD];
        from.read_exact(&mut head).await?;
        let length = head[..3].iter().fold(0, |n, b| n << 8 | usize::from(*b));
        if length > FRAME_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut payload = vec![0; length];
        from.read_exact(&mut payload).await?;
        let plain = head[4] & (END_HEADERS | PADDED | PRIORITY) == END_HEADERS;
        if head[3] == HEADERS && plain {
            // Blocks that cannot be parsed are forwarded; the server rejects them.
            if let Some(block) = named_localhost(&payload) {
                payload = block;
                head[..3].copy_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
            }
        }
        to.write_all(&head).await?;
        to.write_all(&payload).await?;
    }
}

/// A block of fields with `localhost` as the authority; `None` if it is malformed.
fn named_localhost(block: &[u8]) -> Option<Vec<u8>> {
    let mut made = Vec::with_capacity(block.len());
    let mut rest = block;
    while let [first, ..] = *rest {
        let (bits, literal) = match first {
            0x80.. => (7, false),
            0x40.. => (6, true),
            0x20.. => (5, false),
            _ => (4, true),
        };
        let (name, mut after) = integer(rest, bits)?;
        let named = &rest[..rest.len() - after.len()];
        if literal {
            if name == 0 {
                after = string(after)?;
            }
            after = string(after)?;
        }
        if literal && name == 1 {
            made.extend(named);
            made.push(b"localhost".len() as u8);
            made.extend(b"localhost");
        } else {
            made.extend(&rest[..rest.len() - after.len()]);
        }
        rest = after;
    }
    Some(made)
}

/// An integer with a prefix of `bits` bits, and the bytes after it (RFC 7541, 5.1).
fn integer(bytes: &[u8], bits: u32) -> Option<(usize, &[u8])> {
    let (first, mut rest) = bytes.split_first()?;
    let most = (1 << bits) - 1;
    let mut value = usize::from(*first) & most;
    if value < most {
        return Some((value, rest));
    }
    for shift in [0, 7, 14] {
        let (byte, after) = rest.split_first()?;
        value += usize::from(byte & 0x7f) << shift;
        rest = after;
        if byte & 0x80 == 0 {
            return Some((value, rest));
        }
    }
    None
}

/// The bytes after a string (RFC 7541, 5.2).
fn string(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = integer(bytes, 7)?;
    rest.get(length..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authority_is_replaced_and_nothing_else() {
        // RFC 7541, C.3.1 and C.4.1, with a path instead: method, scheme and path indexed, the
        // authority a literal.
        let head = [0x82, 0x86, 0x84];
        let own = b"\x41\x09localhost";
        for value in [&b"\x0b%2Fplug.ins"[..], &b"\x8b%2Fhuffman."[..], b"\x00"] {
            for kind in [0x41, 0x01, 0x11] {
                let block = [&head[..], &[kind], value, b"\x40\x01a\x02bc\xbe"].concat();
                let mut wanted = [&head[..], own, b"\x40\x01a\x02bc\xbe"].concat();
                wanted[3] = kind;
                assert_eq!(named_localhost(&block), Some(wanted));
            }
        }
        // A literal name, a table size update and a two-byte index are unchanged.
        let other = b"\x00\x01x\x01y\x3f\xe1\x1f\xff\x80\x01\x44\x01/";
        assert_eq!(named_localhost(other).as_deref(), Some(&other[..]));
    }

    #[test]
    fn what_is_cut_off_is_left_to_the_server() {
        for block in [
            &b"\x41"[..],
            b"\x41\x05abc",
            b"\x40\x01",
            b"\xff\xff\xff\xff\xff",
            b"\x7f",
        ] {
            assert_eq!(named_localhost(block), None, "{block:?}");
        }
    }

    #[tokio::test]
    async fn frames_go_through_whole() {
        let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let mut wanted = sent.clone();
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        let data = [&[0, 0, 3, 0, 1, 0, 0, 0, 1][..], b"abc"].concat();
        sent.extend(
            [
                &settings[..],
                &[0, 0, 4, 1, 4, 0, 0, 0, 1],
                b"\x41\x02%2",
                &data,
            ]
            .concat(),
        );
        wanted.extend(
            [
                &settings[..],
                &[0, 0, 11, 1, 4, 0, 0, 0, 1],
                b"\x41\x09localhost",
                &data,
            ]
            .concat(),
        );
        let mut got = Vec::new();
        let end = rewritten(&mut &sent[..], &mut got).await.unwrap_err();
        assert_eq!((got, end.kind()), (wanted, io::ErrorKind::UnexpectedEof));
        // A frame longer than the agreed limit.
        let long = [&sent[..PREFACE], &[1, 0, 0, 1, 4, 0, 0, 0, 1]].concat();
        let end = rewritten(&mut &long[..], &mut Vec::new())
            .await
            .unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::InvalidData);
    }
}
