//! The overhead of a session over the driver alone. Prints times; asserts nothing about them.
//! `cargo test --release -p baltra-executor --test latency -- --ignored --nocapture`

mod common;

use baltra_wire::{Arg, Direction, Operation, Payload};
use common::Peer;
use std::time::Instant;

const SOURCE: &str = "kernel void nothing() {}
    kernel void touch(global int* a, global int* b, int n) { if (n < 0) a[0] = b[0]; }";

fn median(mut of: Vec<f64>) -> (f64, f64) {
    of.sort_by(f64::total_cmp);
    (of[of.len() / 2], of[of.len() * 95 / 100])
}

fn measure(name: &str, rounds: usize, mut round: impl FnMut()) {
    for _ in 0..rounds / 10 {
        round();
    }
    let times = (0..rounds).map(|_| {
        let started = Instant::now();
        round();
        started.elapsed().as_secs_f64() * 1e6
    });
    let (middle, high) = median(times.collect());
    println!("{name:<44} median {middle:>8.1} us   p95 {high:>8.1} us");
}

#[test]
#[ignore = "a measurement"]
fn measure_commands() {
    let shared = common::shared();
    let program = shared.context.program_source(SOURCE.as_bytes()).unwrap();
    program.build(&[], "").unwrap();
    let own = program.kernel("nothing").unwrap();
    let queue = shared.context.queue(shared.device, 0).unwrap();
    let how = baltra_executor::driver::Enqueue {
        waits: &[],
        event: false,
    };
    let one = [1usize; 3];
    let launch = || {
        queue.launch(how, &own, 1, &[0; 3], &one, &[0; 3]).unwrap();
    };
    let mut peer = Peer::new();
    let context = peer.context();
    let mut channel = peer.queue(context, 0);
    let kernel = peer.kernel(context, SOURCE, "nothing");
    let touch = peer.kernel(context, SOURCE, "touch");
    let (a, at_a) = peer.buffer(context, 4096);
    let (b, _) = peer.buffer(context, 4096);
    let host = peer.payload(4096);
    for _ in 0..2 {
        measure("driver: empty kernel, finish", 4000, || {
            launch();
            queue.finish().unwrap();
        });
        measure("session: empty kernel, finish", 4000, || {
            peer.launch(&mut channel, 0, &[], kernel, 1, &[]);
            channel.finish();
        });
        measure("driver: 1,000 launches, finish", 50, || {
            for _ in 0..1000 {
                launch();
            }
            queue.finish().unwrap();
        });
        measure("session: 1,000 launches, finish", 50, || {
            for _ in 0..1000 {
                peer.launch(&mut channel, 0, &[], kernel, 1, &[]);
            }
            channel.finish();
        });
        let value = 1i32.to_ne_bytes();
        measure("session: 1,000 launches, 3 arguments", 50, || {
            for _ in 0..1000 {
                let args = [Arg::Memory(a), Arg::Memory(b), Arg::Value(&value)];
                peer.launch(&mut channel, 0, &[], touch, 1, &args);
            }
            channel.finish();
        });
        measure("session: 4-byte write, finish", 4000, || {
            let four = Payload { len: 4, ..host };
            peer.transfer(&mut channel, 0, Direction::Write, a, four);
            channel.finish();
        });
        measure("session: write 4 KB, kernel, read 4 KB", 4000, || {
            peer.transfer(&mut channel, 0, Direction::Write, a, host);
            peer.launch(&mut channel, 0, &[], kernel, 1, &[]);
            peer.transfer(&mut channel, 0, Direction::Read, a, host);
            channel.finish();
        });
        measure("session: marker, finish", 4000, || {
            peer.push(&mut channel, 0, &[], &Operation::Marker);
            channel.finish();
        });
    }
    assert_eq!(channel.progress.failure(), None);
    assert_eq!(peer.bytes(at_a).len(), 4096);
}
