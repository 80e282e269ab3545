use super::*;
use baltra_ring::Memory;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

fn pair() -> (Arc<Stream>, Stream) {
    let (a, b) = UnixStream::pair().unwrap();
    (Arc::new(Stream::plain(a.into())), Stream::plain(b.into()))
}

fn take(stream: &Stream, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let deadline = Instant::now() + Duration::from_secs(5);
    stream.recv_exact(&mut bytes, deadline).unwrap();
    bytes
}

fn push(link: &Link, text: &[u8], payload: Option<&[u8]>) {
    let payload = payload.map(|bytes| {
        let memory = Memory::anonymous(bytes.len() as u64).unwrap();
        let range = memory.slice(0, bytes.len() as u64).unwrap();
        range.copy_in(0, bytes);
        Payload::Lent(range)
    });
    link.outbox().push(link, Kind::Command, 1, text, payload);
}

/// The message and payload of the next frame.
fn frame(stream: &Stream) -> (Vec<u8>, Vec<u8>) {
    let head: [u8; HEAD_BYTES] = take(stream, HEAD_BYTES).try_into().unwrap();
    let head = Head::from_bytes(&head).unwrap();
    let message = take(stream, head.message as usize);
    (message, take(stream, head.payload as usize))
}

#[test]
fn frames_arrive_in_order_with_their_payload() {
    let (near, far) = pair();
    let link = Link::new(near);
    push(&link, b"one", None);
    push(&link, b"two", Some(b"payload"));
    push(&link, b"three", None);
    assert_eq!(link.outbox().flush(), Flushed::All);
    assert_eq!(frame(&far), (b"one".to_vec(), vec![]));
    assert_eq!(frame(&far), (b"two".to_vec(), b"payload".to_vec()));
    push(&link, b"four", None);
    link.outbox().flush();
    assert_eq!(frame(&far).0, b"three");
    assert_eq!(frame(&far).0, b"four");
}

#[test]
fn after_a_break_only_what_was_not_received_goes_again() {
    // For any progress of the peer, and any earlier acknowledgement.
    for received in 0..=5u64 {
        for acked in 0..=received {
            let (near, far) = pair();
            let link = Link::new(near);
            for text in [&b"1"[..], b"2"] {
                push(&link, text, None);
            }
            push(&link, b"3", Some(b"three"));
            push(&link, b"4", Some(b"four"));
            push(&link, b"5", None);
            link.outbox().flush();
            link.acked(acked as u32).unwrap();
            drop(far);
            link.down();
            push(&link, b"6", None);
            assert_eq!(link.outbox().flush(), Flushed::Down);
            let (near, far) = pair();
            link.resume(near, received).unwrap();
            assert_eq!(link.outbox().flush(), Flushed::All);
            for next in received + 1..=6 {
                assert_eq!(frame(&far).0, next.to_string().as_bytes());
            }
            push(&link, b"7", None);
            link.outbox().flush();
            assert_eq!(frame(&far).0, b"7", "after {received}, acked {acked}");
        }
    }
}

#[test]
fn impossible_counts_are_violations() {
    let (near, _far) = pair();
    let link = Link::new(near.clone());
    push(&link, b"1", None);
    assert!(link.acked(2).is_err());
    assert_eq!(link.outbox().flush(), Flushed::All);
    link.acked(1).unwrap();
    link.acked(0).unwrap();
    assert!(link.resume(near.clone(), 0).is_err());
    assert!(link.resume(near, 2).is_err());
}

#[test]
fn payloads_that_were_never_sent_cannot_be_acknowledged() {
    let (near, _far) = pair();
    let link = Link::new(near);
    push(&link, b"1", None);
    assert_eq!(link.outbox().flush(), Flushed::All);
    // Added to the first frame's segment, and not counted.
    link.outbox().push(&link, Kind::Ack, 0, &[], None);
    link.acked(1).unwrap();
    push(&link, b"2", None);
    push(&link, b"3", Some(b"payload"));
    assert!(link.acked(3).is_err());
}

#[test]
fn nothing_is_sent_after_the_end() {
    let (near, far) = pair();
    let link = Link::new(near);
    push(&link, b"1", Some(b"payload"));
    link.close();
    assert_eq!(link.outbox().flush(), Flushed::Down);
    drop(far);
    let (near, _far) = pair();
    assert!(link.resume(near, 0).is_err());
    assert_eq!(link.outbox().flush(), Flushed::Down);
}

#[test]
fn acknowledged_frames_are_let_go() {
    let (near, far) = pair();
    let link = Link::new(near);
    let payload = vec![7; 100_000];
    for sent in 1..=20u32 {
        push(&link, b"x", Some(&payload));
        let flush = || link.outbox().flush();
        while flush() == Flushed::Stalled {
            take(&far, 1000);
        }
        link.acked(sent).unwrap();
        let outbox = link.outbox();
        assert_eq!((outbox.segments.len(), outbox.kept), (0, 0));
    }
}
