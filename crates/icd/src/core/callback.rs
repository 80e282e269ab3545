//! The thread that runs the application's callbacks.
//!
//! They do not run on a session's notice thread: a callback that blocks, or waits for the executor,
//! would stop the session.

use crate::core::process;
use baltra_ring::Locked;
use std::sync::mpsc::{channel, Sender};
use std::sync::Mutex;

type Job = Box<dyn FnOnce() + Send>;

/// The way to the callback thread.
pub struct Jobs(Mutex<Sender<Job>>);

/// Runs `job` on the callback thread, after all earlier jobs.
pub fn run(job: impl FnOnce() + Send + 'static) {
    let jobs = process::current().jobs.get_or_init(|| {
        let (sender, receiver) = channel::<Job>();
        std::thread::Builder::new()
            .name("baltra-callback".into())
            .spawn(move || {
                for job in receiver {
                    job();
                }
            })
            .expect("a thread can be started");
        Jobs(Mutex::new(sender))
    });
    let sender = jobs.0.locked();
    // The receiver lives as long as the process.
    let _ = sender.send(Box::new(job));
}

/// An application's pointer that is passed to the callback thread: the application guarantees that
/// it is usable there.
#[derive(Clone, Copy)]
pub struct Opaque(pub usize);

impl Opaque {
    /// Wraps a pointer.
    pub fn new<T>(pointer: *mut T) -> Opaque {
        Opaque(pointer as usize)
    }

    /// The pointer.
    pub fn pointer<T>(self) -> *mut T {
        self.0 as *mut T
    }
}
