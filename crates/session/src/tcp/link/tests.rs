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

/// A link whose connection has one subflow, and the peer's ends of both.
fn divided() -> (Link, Stream, Stream) {
    let (near, far) = pair();
    let link = Link::new(near);
    let subflows = link.outbox().set_subflows(7).unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let theirs = Stream::plain(theirs.into());
    let deadline = Instant::now() + Duration::from_secs(600);
    theirs.send_all(&[1], deadline).unwrap();
    let ours = Stream::plain(ours.into());
    subflows.open(ours, deadline).unwrap();
    assert_eq!(take(&theirs, 1), [1]);
    (link, far, theirs)
}

/// A payload of 1 MiB, its place and its bytes.
fn payload() -> (Range, Payload, Vec<u8>) {
    let bytes: Vec<u8> = (0..1u32 << 20)
        .map(|i| (i.wrapping_mul(i) >> 9) as u8)
        .collect();
    let memory = Memory::anonymous(bytes.len() as u64).unwrap();
    let range = memory.slice(0, bytes.len() as u64).unwrap();
    range.copy_in(0, &bytes);
    let payload = Payload::Lent(range.clone());
    (range, payload, bytes)
}

/// Receives the header and message of a frame, and the first part of its payload, while the link
/// sends.
fn first_part(link: &Link, far: &Stream, len: usize) -> (Head, Vec<u8>) {
    let mut bytes = Vec::new();
    while bytes.len() < len {
        let flushed = link.outbox().flush();
        assert_ne!(flushed, Flushed::Down);
        let mut more = vec![0; len - bytes.len()];
        match far.recv_now(&mut more) {
            Ok(n) => bytes.extend_from_slice(&more[..n]),
            Err(e) => assert_eq!(e.kind(), io::ErrorKind::WouldBlock),
        }
    }
    let head = Head::from_bytes(bytes.first_chunk().unwrap()).unwrap();
    let from = HEAD_BYTES + head.message as usize;
    (head, bytes.split_off(from))
}

#[test]
fn a_divided_payload_arrives_in_parts_and_whole_after_a_break() {
    let (link, far, subflow) = divided();
    let (_, payload, bytes) = payload();
    link.outbox()
        .push(&link, Kind::Command, 1, b"x", Some(payload));
    let half = bytes.len() / 2;
    let (head, first) = first_part(&link, &far, HEAD_BYTES + 1 + half);
    assert_eq!((head.subflows, head.payload as usize), (1, bytes.len()));
    assert!(first == bytes[..half]);
    assert!(take(&subflow, half) == bytes[half..]);
    // The peer's connection breaks before it has processed the frame.
    link.down();
    let (near, far) = pair();
    link.resume(near, 0).unwrap();
    let (head, whole) = first_part(&link, &far, HEAD_BYTES + 1 + bytes.len());
    assert_eq!(head.subflows, 0);
    assert!(whole == bytes);
    link.acked(1).unwrap();
    assert_eq!(link.outbox().segments.len(), 0);
}

#[test]
fn parts_that_were_never_sent_cannot_be_acknowledged() {
    let (link, far, _subflow) = divided();
    let (_, payload, bytes) = payload();
    link.outbox()
        .push(&link, Kind::Command, 1, b"x", Some(payload));
    first_part(&link, &far, HEAD_BYTES + 1 + bytes.len() / 2);
    // A socket holds less than the part.
    assert!(link.outbox().has_parts());
    assert!(link.acked(1).is_err());
}

#[test]
fn bytes_in_place_may_change_once_their_parts_are_detached() {
    let (link, _far, subflow) = divided();
    let (range, _, bytes) = payload();
    let subflows = link.any_subflows().unwrap();
    subflows.send(1, &range, 1, true);
    subflows.detach();
    range.copy_in(0, &vec![0; bytes.len()]);
    let half = bytes.len() / 2;
    assert!(take(&subflow, half) == bytes[half..]);
}

#[test]
fn the_end_of_a_link_ends_the_reading_of_parts() {
    let (link, _far, subflow) = divided();
    let (range, payload, _) = payload();
    link.outbox()
        .push(&link, Kind::Command, 1, b"x", Some(payload));
    let subflows = link.any_subflows().unwrap();
    link.close();
    range.copy_in(0, &vec![0; range.len()]);
    assert!(!subflows.has_unsent(u64::MAX));
    // Bytes in the socket are the old ones; after them it is closed.
    let mut rest = vec![0; 1 << 20];
    while subflow.recv(None, &mut rest).is_ok_and(|n| n > 0) {}
    assert!(subflows.receive(&range, 1, |_| Ok(())).is_err());
}
