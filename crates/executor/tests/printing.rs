//! Text that kernels print. Alone in its process: the standard output is captured.

mod common;

use baltra_wire::{Arg, Notice};
use common::{Peer, CAPTURES};
use std::sync::atomic::Ordering;

#[test]
fn what_a_kernel_prints_arrives_before_it_is_complete() {
    CAPTURES.store(true, Ordering::Relaxed);
    let mut peer = Peer::new();
    let context = peer.context();
    let mut queue = peer.queue(context, 0);
    let source = "kernel void hello(int n) { printf(\"hello %d\\n\", n); }";
    let kernel = peer.kernel(context, source, "hello");
    let value = 42i32.to_ne_bytes();
    peer.launch(&mut queue, 0, &[], kernel, 1, &[Arg::Value(&value)]);
    queue.finish();
    let text = peer.notice(|notice| match notice {
        Notice::Printed(text) => Some(text.to_vec()),
        _ => None,
    });
    assert_eq!(text, b"hello 42\n");
}
