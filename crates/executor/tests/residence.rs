//! More memory than the device has: objects leave the device and come back with the right bytes.

mod common;

use baltra_opencl::*;
use baltra_ring::budget::{Budget, Member};
use baltra_wire::{
    Arg, Backing, Control, Direction, Id, ImageFormat, ImageShape, Limits, Operation, Payload,
    Region,
};
use common::{Peer, Queue, PATIENCE};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// Bytes that objects may take on the device.
const DEVICE_BYTES: u64 = 8 * MIB;
const OVERCOMMIT: u32 = 3;
const UNORDERED: u64 = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE as u64;

/// The process's device is one for all tests, which therefore run one after the other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    common::ROOM.get_or_init(|| (OVERCOMMIT, DEVICE_BYTES));
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes on the device, and of all objects.
fn books() -> (u64, u64) {
    common::shared().residence.as_ref().unwrap().bytes()
}

fn words(bytes: &mut [u8]) -> &mut [u32] {
    // SAFETY: payloads are page-aligned and their sizes are multiples of four.
    unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), bytes.len() / 4) }
}

/// A client with one context, kernels and a queue.
struct Program {
    peer: Peer,
    context: Id,
    queue: Queue,
    add: Id,
    sum: Id,
    host: Payload,
}

const SOURCE: &str = "
kernel void add(global uint *a, uint n) { a[get_global_id(0)] += n; }
kernel void sum(global const uint *a, constant uint *b, global uint *c) {
    size_t i = get_global_id(0);
    c[i] = 3 * a[i] + b[i % 64];
}";

impl Program {
    fn new(properties: u64) -> Program {
        Program::with(Limits::default(), properties)
    }

    fn with(limits: Limits, properties: u64) -> Program {
        let mut peer = Peer::with(limits, Default::default());
        let context = peer.context();
        let queue = peer.queue(context, properties);
        let add = peer.kernel(context, SOURCE, "add");
        // The programs were numbered one after the other: kernels share the built one.
        let sum = peer.id();
        peer.control(&Control::Kernel {
            id: sum,
            program: add - 1,
            name: "sum",
        });
        let host = peer.payload(4 * MIB);
        Program {
            peer,
            context,
            queue,
            add,
            sum,
            host,
        }
    }

    fn buffer(&mut self, bytes: u64) -> Id {
        self.peer.device_buffer(self.context, bytes)
    }

    fn release(&mut self, id: Id) {
        let count = self.queue.producer.pushed();
        let after = [&self.queue.id.to_le_bytes()[..], &count.to_le_bytes()].concat();
        self.peer.control(&Control::Release {
            id,
            after: &after,
            notify: false,
        });
    }

    fn add(&mut self, buffer: Id, words: u64, n: u32) {
        let args = [Arg::Memory(buffer), Arg::Value(&n.to_le_bytes())];
        self.peer
            .launch(&mut self.queue, 0, &[], self.add, words, &args);
    }

    fn sum(&mut self, [a, b, c]: [Id; 3], words: u64) {
        let args = [a, b, c].map(Arg::Memory);
        self.peer
            .launch(&mut self.queue, 0, &[], self.sum, words, &args);
    }

    fn write(&mut self, buffer: Id, content: &[u32]) {
        let payload = self.part(content.len() as u64 * 4);
        words(self.peer.bytes(payload)).copy_from_slice(content);
        self.transfer(Direction::Write, buffer, payload);
    }

    fn read(&mut self, buffer: Id, count: usize) -> Vec<u32> {
        let payload = self.part(count as u64 * 4);
        self.transfer(Direction::Read, buffer, payload);
        words(self.peer.bytes(payload)).to_vec()
    }

    fn part(&self, len: u64) -> Payload {
        Payload { len, ..self.host }
    }

    fn transfer(&mut self, direction: Direction, buffer: Id, payload: Payload) {
        self.order();
        let event = self.peer.event();
        self.peer
            .transfer(&mut self.queue, event, direction, buffer, payload);
        self.queue.finish();
        assert_eq!(self.peer.wait(event), CL_COMPLETE);
    }

    /// Later commands follow the earlier ones on an out-of-order queue, too.
    fn order(&mut self) {
        self.peer.push(&mut self.queue, 0, &[], &Operation::Barrier);
    }

    /// The result of a launch of `add`.
    fn status_of_add(&mut self, buffer: Id) -> i32 {
        let event = self.peer.event();
        let args = [Arg::Memory(buffer), Arg::Value(&[0; 4])];
        self.peer
            .launch(&mut self.queue, event, &[], self.add, 1, &args);
        self.queue.finish();
        self.peer.wait(event)
    }

    fn end(self) {
        drop(self.queue);
        self.peer.end();
    }
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn sessions_together_hold_more_than_the_device() {
    let _alone = alone();
    let words = 5 * MIB / 4;
    let mut programs: Vec<_> = (0..4)
        .map(|n| {
            let mut program = Program::new(0);
            let buffer = program.buffer(5 * MIB);
            program.write(buffer, &[n; 64]);
            (program, buffer)
        })
        .collect();
    for round in 1..4 {
        for (n, (program, buffer)) in programs.iter_mut().enumerate() {
            program.add(*buffer, words, 10);
            assert_eq!(program.read(*buffer, 64), [n as u32 + 10 * round; 64]);
            assert!(books().0 <= DEVICE_BYTES);
        }
    }
    assert_eq!(books().1, 20 * MIB);
    let usage = programs[0].0.peer.granter.usage();
    assert_eq!((usage.resident_bytes, usage.swapped_bytes), (0, 5 * MIB));
    // Each of its turns but the first one brought it back, and each was followed by others'.
    assert_eq!((usage.swapped_in, usage.swapped_out), (15 * MIB, 20 * MIB));
    for (program, _) in programs {
        program.end();
    }
    assert_eq!(books(), (0, 0));
}

#[test]
fn an_object_that_was_only_read_is_not_copied_again() {
    let _alone = alone();
    let mut program = Program::new(0);
    let [weights, table, result, other] = [4, 1, 1, 6].map(|n| program.buffer(n * MIB));
    program.write(weights, &[5; 64]);
    program.write(table, &[7; 64]);
    for round in 0..3 {
        program.sum([weights, table, result], 64);
        assert_eq!(program.read(result, 64), [22; 64]);
        program.add(other, 1, 1);
        assert_eq!(program.read(other, 1).len(), 1);
        let out = program.peer.granter.usage().swapped_out;
        // The weights leave with a copy once, the other buffer each time.
        assert_eq!(out, (4 + round * 6) * MIB, "round {round}");
    }
    program.end();
}

#[test]
fn a_buffer_that_an_idle_session_releases_leaves_no_bytes() {
    let _alone = alone();
    let mut program = Program::new(0);
    // More than an idle lane keeps pinned.
    for _ in 0..300 {
        let buffer = program.buffer(4096);
        program.write(buffer, &[1; 64]);
        program.release(buffer);
        wait_until("the buffer has not gone", || books() == (0, 0));
    }
    program.end();
}

#[test]
fn parts_and_images_keep_their_bytes() {
    let _alone = alone();
    let mut program = Program::new(0);
    let whole = program.buffer(4 * MIB);
    let part = program.peer.id();
    program.peer.control(&Control::SubBuffer {
        id: part,
        parent: whole,
        flags: 1,
        origin: 4096,
        size: 4096,
    });
    let image = program.peer.id();
    program.peer.control(&Control::Image {
        id: image,
        context: program.context,
        flags: 1,
        format: ImageFormat {
            order: CL_RGBA as u32,
            kind: CL_UNSIGNED_INT32 as u32,
        },
        shape: ImageShape {
            kind: CL_MEM_OBJECT_IMAGE2D as u32,
            width: 256,
            height: 512,
            depth: 1,
            array_size: 0,
            row_pitch: 0,
        },
        parent: 0,
        contents: None,
    });
    let region = Region {
        origin: [3, 5, 0],
        size: [7, 9, 1],
        row_pitch: 0,
        slice_pitch: 0,
    };
    let pixels = program.part(7 * 9 * 16);
    let content: Vec<u32> = (0..7 * 9 * 4).collect();
    words(program.peer.bytes(pixels)).copy_from_slice(&content);
    let move_pixels = |program: &mut Program, direction| {
        let operation = Operation::Image {
            direction,
            image,
            region,
            payload: pixels,
        };
        program.peer.push(&mut program.queue, 0, &[], &operation);
        program.queue.finish();
    };
    move_pixels(&mut program, Direction::Write);
    program.write(whole, &vec![1; 3072]);
    let mut other = Program::new(0);
    let large = other.buffer(7 * MIB);
    for round in 1..4 {
        program.add(part, 1024, 1);
        other.add(large, 1, 1);
        other.queue.finish();
        let expected = [vec![1; 1024], vec![1 + round; 1024], vec![1; 1024]].concat();
        assert_eq!(program.read(whole, 3072), expected);
        assert_eq!(program.read(part, 1024), vec![1 + round; 1024]);
        words(program.peer.bytes(pixels)).fill(0);
        move_pixels(&mut program, Direction::Read);
        assert_eq!(words(program.peer.bytes(pixels)), content);
    }
    // The part keeps its whole after the whole's release.
    program.release(whole);
    other.add(large, 1, 1);
    other.queue.finish();
    assert_eq!(program.read(part, 1024), vec![4; 1024]);
    program.end();
    other.end();
    assert_eq!(books(), (0, 0));
}

#[test]
fn the_limits_are_errors_at_the_allocation_and_of_its_tenant_only() {
    let _alone = alone();
    let mut program = Program::new(0);
    let first = program.buffer(12 * MIB);
    let buffer = program.buffer(6 * MIB);
    program.write(buffer, &[3; 64]);
    // 24 MiB are three times the device.
    let too_large = program.buffer(7 * MIB);
    assert_eq!(
        program.status_of_add(too_large),
        CL_MEM_OBJECT_ALLOCATION_FAILURE
    );
    let limits = Limits {
        memory_bytes: common::ARENA_BYTES + MIB,
        ..Limits::default()
    };
    let mut poor = Program::with(limits, 0);
    let over_quota = poor.buffer(2 * MIB);
    assert_eq!(
        poor.status_of_add(over_quota),
        CL_MEM_OBJECT_ALLOCATION_FAILURE
    );
    let within = poor.buffer(MIB);
    assert_eq!(poor.status_of_add(within), CL_COMPLETE);
    // An object larger than the device's share has the device to itself.
    assert_eq!(program.status_of_add(first), CL_COMPLETE);
    assert_eq!(program.read(buffer, 64), [3; 64]);
    program.release(first);
    program.queue.finish();
    let fits = program.buffer(7 * MIB);
    assert_eq!(program.status_of_add(fits), CL_COMPLETE);
    program.end();
    poor.end();
    assert_eq!(books(), (0, 0));
}

#[test]
fn contents_given_at_creation_arrive_without_room_on_the_device() {
    let _alone = alone();
    let mut program = Program::new(0);
    let busy = program.buffer(8 * MIB);
    program.add(busy, 1, 1);
    let payload = program.part(4096);
    words(program.peer.bytes(payload)).fill(9);
    let id = program.peer.id();
    program.peer.control(&Control::Buffer {
        id,
        context: program.context,
        flags: CL_MEM_READ_ONLY as u64,
        size: 4096,
        backing: Backing::Device(Some(payload)),
    });
    program.queue.finish();
    let event = program.peer.event();
    let args = [Arg::Memory(busy), Arg::Value(&[0; 4])];
    let (add, queue) = (program.add, &mut program.queue);
    program.peer.launch(queue, event, &[], add, 1, &args);
    program.queue.finish();
    assert_eq!(program.peer.wait(event), CL_COMPLETE);
    words(program.peer.bytes(payload)).fill(0);
    assert_eq!(program.read(id, 1024), vec![9; 1024]);
    program.end();
}

#[test]
fn a_client_that_dies_while_its_buffers_are_swapped_leaves_nothing() {
    let _alone = alone();
    let mut survivor = Program::new(0);
    let kept = survivor.buffer(6 * MIB);
    survivor.write(kept, &[1; 64]);
    for _ in 0..3 {
        let mut dying = Program::new(UNORDERED);
        for n in 0..3 {
            let buffer = dying.buffer(5 * MIB);
            dying.add(buffer, 1024, n);
        }
        dying.queue.flush();
        survivor.add(kept, 64, 1);
        survivor.queue.flush();
        dying.end();
        survivor.queue.finish();
    }
    assert_eq!(survivor.read(kept, 64), [4; 64]);
    assert_eq!(books().1, 6 * MIB);
    survivor.end();
    assert_eq!(books(), (0, 0));
}

#[test]
fn a_full_host_fails_the_command_and_loses_no_byte() {
    let _alone = alone();
    let large = 3 * DEVICE_BYTES / 2;
    let mut program = Program::new(0);
    let (first, second) = (program.buffer(large), program.buffer(large));
    program.write(first, &[8; 64]);
    program.add(first, 64, 1);
    program.queue.finish();
    let limited = limit_address_space(large / 2);
    assert_eq!(program.status_of_add(second), CL_OUT_OF_HOST_MEMORY);
    assert_eq!(program.read(first, 64), [9; 64]);
    drop(limited);
    assert_eq!(program.status_of_add(second), CL_COMPLETE);
    assert_eq!(program.read(first, 64), [9; 64]);
    program.end();
    assert_eq!(books(), (0, 0));
}

/// The process's former limit, until it is dropped.
struct Limited(rustix::process::Rlimit);

/// Lets the process map only `bytes` more.
fn limit_address_space(bytes: u64) -> Limited {
    use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
    let former = getrlimit(Resource::As);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mapped = status
        .lines()
        .find_map(|l| l.strip_prefix("VmSize:"))
        .unwrap();
    let kib: u64 = mapped.trim().trim_end_matches(" kB").parse().unwrap();
    let limit = Rlimit {
        current: Some((kib << 10) + bytes),
        ..former
    };
    setrlimit(Resource::As, limit).unwrap();
    Limited(former)
}

impl Drop for Limited {
    fn drop(&mut self) {
        rustix::process::setrlimit(rustix::process::Resource::As, self.0).unwrap();
    }
}

/// A generator of numbers below `n`, from a printed seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % n
    }
}

/// Words of each object that the model follows; the objects are larger.
const MODELED: usize = 1024;

/// Random commands over random objects, against a model of their bytes.
fn run_at_random(seed: u64, properties: u64, steps: u64) {
    let mut random = Random(seed);
    let mut program = Program::new(properties);
    let mut model: Vec<(Id, Vec<u32>)> = Vec::new();
    for step in 0..steps {
        let place = format!("seed {seed}, step {step}");
        let any = |random: &mut Random, model: &[(Id, Vec<u32>)]| {
            random.below(model.len() as u64) as usize
        };
        program.order();
        match random.below(8) {
            0 if model.len() < 3 => {
                let buffer = program.buffer((1 + random.below(3)) * MIB / 2);
                let content = vec![random.below(1 << 20) as u32; MODELED];
                program.write(buffer, &content);
                model.push((buffer, content));
            }
            1 if model.len() > 1 => {
                let at = any(&mut random, &model);
                let (buffer, _) = model.swap_remove(at);
                program.release(buffer);
            }
            2 if !model.is_empty() => {
                let at = any(&mut random, &model);
                let (buffer, content) = &model[at];
                assert_eq!(program.read(*buffer, MODELED), *content, "{place}");
            }
            3 if !model.is_empty() => {
                let [a, b, c] = [(); 3].map(|()| any(&mut random, &model));
                if a != c && b != c {
                    program.sum([model[a].0, model[b].0, model[c].0], MODELED as u64);
                    let sum = |i: usize| {
                        let (a, b) = (model[a].1[i], model[b].1[i % 64]);
                        a.wrapping_mul(3).wrapping_add(b)
                    };
                    model[c].1 = (0..MODELED).map(sum).collect();
                }
            }
            4 if model.len() > 1 => {
                let (from, to) = (any(&mut random, &model), any(&mut random, &model));
                if from != to {
                    let (at, len) = (random.below(512), 1 + random.below(512));
                    let operation = Operation::CopyBuffer {
                        source: model[from].0,
                        target: model[to].0,
                        source_offset: at * 4,
                        target_offset: at * 4,
                        len: len * 4,
                    };
                    program.peer.push(&mut program.queue, 0, &[], &operation);
                    let range = at as usize..(at + len) as usize;
                    let copied = model[from].1[range.clone()].to_vec();
                    model[to].1[range].copy_from_slice(&copied);
                }
            }
            5 if !model.is_empty() => {
                let at = any(&mut random, &model);
                let value = random.below(1 << 30) as u32;
                let operation = Operation::FillBuffer {
                    buffer: model[at].0,
                    pattern: &value.to_le_bytes(),
                    offset: 1024,
                    len: 2048,
                };
                program.peer.push(&mut program.queue, 0, &[], &operation);
                model[at].1[256..768].fill(value);
            }
            _ if !model.is_empty() => {
                let at = any(&mut random, &model);
                let n = random.below(100) as u32;
                program.add(model[at].0, MODELED as u64, n);
                for word in &mut model[at].1 {
                    *word = word.wrapping_add(n);
                }
            }
            _ => {}
        }
    }
    for (buffer, content) in &model {
        assert_eq!(
            program.read(*buffer, MODELED),
            *content,
            "seed {seed}, at the end"
        );
    }
    program.end();
}

#[test]
fn random_programs_that_exceed_the_device_compute_the_right_bytes() {
    let _alone = alone();
    std::thread::scope(|scope| {
        for (seed, properties) in [(1, 0), (2, UNORDERED), (3, 0), (4, UNORDERED)] {
            scope.spawn(move || run_at_random(seed, properties, 400));
        }
    });
    wait_until("objects are left", || books() == (0, 0));
}

/// A budget with another executor, as which the test acts.
struct Neighbor {
    budget: Budget,
    member: Arc<Member>,
}

impl Neighbor {
    fn new() -> Neighbor {
        let (budget, _) = Budget::create().unwrap();
        let [own, other] = [0, 1].map(|slot| Member::new(budget.clone(), slot).unwrap());
        let residence = common::shared().residence.clone();
        residence.unwrap().join(own);
        Neighbor {
            budget,
            member: Arc::new(other),
        }
    }
}

impl Drop for Neighbor {
    fn drop(&mut self) {
        self.budget.clear(1);
    }
}

/// The bytes that the other executor is asked for.
fn wanted(other: &Member) -> u64 {
    let started = Instant::now();
    loop {
        match other.wait_wanted(Duration::from_secs(1)) {
            0 => assert!(started.elapsed() < PATIENCE, "it is asked for nothing"),
            bytes => return bytes,
        }
    }
}

#[test]
fn another_executor_is_asked_for_memory() {
    let _alone = alone();
    let neighbor = Neighbor::new();
    let other = &neighbor.member;
    let mut program = Program::new(0);
    other.publish(7 * MIB, MIB, 7 * MIB, 0);
    let first = program.buffer(3 * MIB);
    wait_until("there is no room", || books() == (0, 3 * MIB));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(wanted(other), 2 * MIB);
            other.publish(5 * MIB, MIB, 7 * MIB, 0);
            other.answer();
        });
        program.write(first, &[1; 64]);
    });
    assert_eq!(books().0, 3 * MIB);
    // One that does not answer keeps its memory, and idle objects of this executor leave.
    let second = program.buffer(2 * MIB);
    program.write(second, &[2; 64]);
    assert_eq!(books().0, 2 * MIB);
    // It is not asked again until it has used something.
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let was_asked = scope.spawn(|| {
            let mut was_asked = false;
            while !done.load(Ordering::Relaxed) {
                was_asked |= other.wait_wanted(Duration::from_millis(1)) > 0;
            }
            was_asked
        });
        program.write(first, &[2; 64]);
        done.store(true, Ordering::Relaxed);
        assert!(!was_asked.join().unwrap());
    });
    assert_eq!(books().0, 3 * MIB);
    other.touch(1);
    // One that ends while it has the lead delays others only until its slot is cleared.
    std::mem::forget(other.lead().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            neighbor.budget.clear(1);
        });
        program.write(second, &[2; 64]);
    });
    program.write(first, &[3; 64]);
    assert_eq!(books().0, 5 * MIB);
    // One that keeps the lead and does nothing with it loses it.
    std::mem::forget(other.lead().unwrap());
    other.publish(3 * MIB, 0, 3 * MIB, 0);
    let third = program.buffer(MIB);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(wanted(other), MIB);
            other.publish(0, 0, 0, 0);
            other.answer();
        });
        program.write(third, &[4; 64]);
    });
    assert_eq!(books().0, 6 * MIB);
    assert_eq!(program.read(first, 64), [3; 64]);
    assert_eq!(program.read(second, 64), [2; 64]);
    // All together, the executors have as many bytes of objects as one alone could.
    other.publish(0, 0, 24 * MIB - 6 * MIB, 0);
    let fourth = program.buffer(MIB);
    assert_eq!(
        program.status_of_add(fourth),
        CL_MEM_OBJECT_ALLOCATION_FAILURE
    );
    program.end();
}

#[test]
fn host_copies_are_given_up_for_another_executor() {
    let _alone = alone();
    let neighbor = Neighbor::new();
    let other = &neighbor.member;
    let mut program = Program::new(0);
    let [first, second] = [(); 2].map(|()| program.buffer(5 * MIB));
    for round in 1..=2 {
        program.write(first, &[round; 64]);
        program.write(second, &[round + 10; 64]);
    }
    // The one on the device has a copy, too, for its next move.
    wait_until("two copies", || other.taken().host == 10 * MIB);
    other.publish(0, 0, 0, 16 * MIB);
    other.urge();
    wait_until("one copy", || other.taken().host == 5 * MIB);
    assert_eq!(program.read(first, 64), [2; 64]);
    assert_eq!(program.read(second, 64), [12; 64]);
    program.end();
}

#[test]
fn random_programs_yield_memory_to_another_executor() {
    let _alone = alone();
    let neighbor = Neighbor::new();
    let other = &neighbor.member;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let greedy = scope.spawn(|| {
            let (mut random, mut freed) = (Random(5), 0);
            while !done.load(Ordering::Relaxed) {
                let Some(lead) = other.lead() else {
                    std::thread::yield_now();
                    continue;
                };
                let bytes = random.below(8) * MIB;
                let missing = (other.taken().resident + bytes).saturating_sub(DEVICE_BYTES);
                if missing > 0 {
                    lead.ask(0, missing);
                    wait_until("it answers", || !lead.awaits(0));
                    freed += 1;
                }
                other.publish(bytes, 0, bytes, 0);
                drop(lead);
                while other.wait_wanted(Duration::from_millis(1)) > 0 {
                    other.publish(0, 0, 0, 0);
                    other.answer();
                }
            }
            other.publish(0, 0, 0, 0);
            freed
        });
        std::thread::scope(|scope| {
            for (seed, properties) in [(11, 0), (12, UNORDERED), (13, 0)] {
                scope.spawn(move || run_at_random(seed, properties, 300));
            }
        });
        done.store(true, Ordering::Relaxed);
        assert!(greedy.join().unwrap() > 0);
    });
    wait_until("objects are left", || books() == (0, 0));
}

#[test]
fn a_hostile_client_harms_nobody_else() {
    let _alone = alone();
    std::thread::scope(|scope| {
        scope.spawn(|| run_at_random(9, 0, 200));
        scope.spawn(|| {
            let mut random = Random(77);
            let limits = Limits {
                memory_bytes: common::ARENA_BYTES + 16 * MIB,
                ..Limits::default()
            };
            let mut hostile = Program::with(limits, UNORDERED);
            let mut buffers = Vec::new();
            for step in 0..600 {
                let any = random.below(buffers.len().max(1) as u64) as usize;
                match random.below(4) {
                    0 => {
                        let bytes = [0, 1, 64, 3 * MIB, 9 * MIB, u64::MAX / 2];
                        buffers.push(hostile.buffer(bytes[random.below(6) as usize]));
                    }
                    1 if !buffers.is_empty() => hostile.release(buffers.swap_remove(any)),
                    2 => {
                        let parent = buffers.get(any).copied().unwrap_or(step + 5000);
                        let id = hostile.peer.id();
                        hostile.peer.control(&Control::SubBuffer {
                            id,
                            parent,
                            flags: 1,
                            origin: random.below(2 * MIB),
                            size: random.below(2 * MIB),
                        });
                        buffers.push(id);
                    }
                    _ => {
                        let buffer = buffers.get(any).copied().unwrap_or(7777);
                        hostile.add(buffer, 1 + random.below(16), 1);
                    }
                }
                hostile.queue.flush();
            }
            hostile.end();
        });
    });
    wait_until("objects are left", || books() == (0, 0));
}
