use super::*;

#[cfg(not(loom))]
mod order {
    use super::*;
    use std::sync::atomic::AtomicI32;
    use std::sync::{Arc, Mutex};

    #[derive(Clone)]
    struct Part(Arc<AtomicI32>);

    impl DevicePart for Part {
        fn status(&self) -> i32 {
            self.0.load(Ordering::Relaxed)
        }

        fn wait(&self) -> i32 {
            while self.status() > 0 {
                std::thread::yield_now();
            }
            self.status()
        }
    }

    fn part(status: i32) -> Part {
        Part(Arc::new(AtomicI32::new(status)))
    }

    struct Ran(Arc<Mutex<Vec<(u64, bool)>>>);

    impl Ran {
        fn step(&self, number: u64) -> Step {
            let ran = self.0.clone();
            Box::new(move |ok| ran.lock().unwrap().push((number, ok)))
        }

        fn all(&self) -> Vec<(u64, bool)> {
            self.0.lock().unwrap().clone()
        }
    }

    fn ran() -> Ran {
        Ran(Arc::default())
    }

    #[test]
    fn steps_that_come_late_run_in_the_order_of_their_commands() {
        let (steps, ran) = (Steps::new(true), ran());
        let (first, second) = (part(3), part(3));
        // Two threads have enqueued concurrently: the later command's step is stored first.
        steps.keep(2, second.clone(), ran.step(2));
        steps.keep(1, first.clone(), ran.step(1));
        first.0.store(0, Ordering::Relaxed);
        steps.run(1);
        assert_eq!(ran.all(), [(1, true)]);
        second.0.store(-5, Ordering::Relaxed);
        steps.run(2);
        assert_eq!(ran.all(), [(1, true), (2, false)]);
        assert!(steps.is_empty());
    }

    #[test]
    fn out_of_order_only_complete_commands_are_run() {
        let (steps, ran) = (Steps::new(false), ran());
        steps.keep(1, part(3), ran.step(1));
        steps.keep(2, part(0), ran.step(2));
        steps.run(2);
        assert_eq!(ran.all(), [(2, true)]);
        assert!(!steps.is_empty());
    }

    #[test]
    fn in_order_a_status_that_comes_late_is_waited_for() {
        let (steps, ran) = (Steps::new(true), ran());
        let late = part(3);
        steps.keep(1, late.clone(), ran.step(1));
        std::thread::scope(|scope| {
            scope.spawn(|| steps.run(1));
            late.0.store(0, Ordering::Relaxed);
        });
        assert_eq!(ran.all(), [(1, true)]);
    }

    #[test]
    fn a_commands_slot_is_kept_until_its_step_has_run() {
        let (steps, ran) = (Steps::new(false), ran());
        let held = part(0);
        steps.keep(1, held.clone(), ran.step(1));
        assert_eq!(Arc::strong_count(&held.0), 2);
        steps.run(0);
        assert_eq!(Arc::strong_count(&held.0), 1);
    }
}

/// All interleavings of two threads that each wait for a command of their own, and the device:
/// `RUSTFLAGS="--cfg loom" cargo test --release -p baltra-steps --lib loom`.
#[cfg(loom)]
mod loom_models {
    use super::*;
    use loom::sync::{Arc, Condvar};

    /// A command's slot, free when the last reference is dropped.
    struct Slot {
        status: Mutex<i32>,
        changed: Condvar,
        freed: Arc<AtomicUsize>,
    }

    impl Drop for Slot {
        fn drop(&mut self) {
            self.freed.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[derive(Clone)]
    struct Command(Arc<Slot>);

    impl DevicePart for Command {
        fn status(&self) -> i32 {
            assert_eq!(
                self.0.freed.load(Ordering::Relaxed),
                0,
                "a free slot is read"
            );
            *self.0.status.lock().unwrap()
        }

        fn wait(&self) -> i32 {
            let mut status = self.0.status.lock().unwrap();
            while *status > 0 {
                status = self.0.changed.wait(status).unwrap();
            }
            *status
        }
    }

    fn model(in_order: bool) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(move || {
            let steps = Arc::new(Steps::new(in_order));
            let freed: Vec<_> = (0..2).map(|_| Arc::new(AtomicUsize::new(0))).collect();
            let command = |i: usize| {
                let freed = freed[i].clone();
                Command(Arc::new(Slot {
                    status: Mutex::new(3),
                    changed: Condvar::new(),
                    freed,
                }))
            };
            let commands = [command(0), command(1)];
            let threads = commands
                .clone()
                .into_iter()
                .enumerate()
                .map(|(i, command)| {
                    let steps = steps.clone();
                    loom::thread::spawn(move || {
                        let number = i as u64 + 1;
                        let ran = Arc::new(AtomicUsize::new(0));
                        let by_step = ran.clone();
                        let step = move |ok: bool| {
                            assert!(ok);
                            by_step.fetch_add(1, Ordering::Relaxed);
                        };
                        steps.keep(number, command.clone(), Box::new(step));
                        command.wait();
                        steps.run(number);
                        assert_eq!(
                            ran.load(Ordering::Relaxed),
                            1,
                            "reported before its step ran"
                        );
                    })
                });
            let threads: Vec<_> = threads.collect();
            for command in commands {
                *command.0.status.lock().unwrap() = 0;
                command.0.changed.notify_all();
            }
            for thread in threads {
                thread.join().unwrap();
            }
            assert!(steps.is_empty());
            for freed in freed {
                assert_eq!(freed.load(Ordering::Relaxed), 1);
            }
        });
    }

    #[test]
    fn loom_a_waiter_finds_its_step_run_out_of_order() {
        model(false);
    }

    #[test]
    fn loom_a_waiter_finds_its_step_run_in_order() {
        model(true);
    }
}
