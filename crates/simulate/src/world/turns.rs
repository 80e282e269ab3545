//! The manager's part in sharing a device that holds one image at a time: images wait in the order
//! of their first request, and the present one keeps the device for its turn by the policy
//! ([`baltra_eviction`]).

use super::{Event, World};
use crate::device::Task;
use baltra_api::query::Field;
use baltra_eviction::{turn_max, Images, Options, Value, Waiting};
use baltra_registry::model::Accelerator;
use std::collections::VecDeque;
use std::time::Duration;

/// A device counts as idle after this time without a task, as in the manager.
const QUIET_NS: u64 = 100_000_000;

/// An image that waits for its turn, with the tasks that need it.
struct Queued {
    image: String,
    since_ns: u64,
    /// Time that loads had taken by then.
    loads_ns: u64,
    tasks: Vec<Task>,
}

/// The images of a device.
#[derive(Default)]
pub(super) struct Turns {
    images: Images,
    image: Option<String>,
    /// When the image was loaded.
    since_ns: u64,
    idle_since_ns: u64,
    loads_ns: u64,
    queue: VecDeque<Queued>,
    /// The image that is loaded once running tasks have ended, and when the change began.
    next: Option<(Queued, u64)>,
    /// The next time at which the turn may be over.
    check_at: Option<u64>,
    /// Tasks and busy time that `images` has counted.
    counted: (u64, u64),
}

fn time(ns: u64) -> Duration {
    Duration::from_nanos(ns)
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Turns {
    /// Of a device that holds an image at the start.
    pub(super) fn holding(image: Option<String>) -> Turns {
        Turns {
            image,
            ..Turns::default()
        }
    }

    /// The value of keeping the present image, for the registry.
    pub(super) fn value(&self, now_ns: u64) -> Value {
        let image = self.image.as_deref().unwrap_or_default();
        let (uses, load) = self.images.known(image, time(now_ns));
        Value::of(uses, load, time(now_ns))
    }

    /// Whether an image's next change has begun; the device is paused then.
    pub(super) fn is_changing(&self) -> bool {
        self.next.is_some()
    }

    fn count_use(&mut self, tasks: u64, busy_ns: u64, now_ns: u64) {
        let before = std::mem::replace(&mut self.counted, (tasks, busy_ns));
        if let (Some(image), true) = (&self.image, before != (tasks, busy_ns)) {
            let busy = time(busy_ns - before.1);
            self.images
                .used(image, tasks - before.0, busy, time(now_ns));
        }
    }

    fn park(&mut self, image: &str, task: Task, now_ns: u64) {
        if let Some((next, _)) = self.next.as_mut().filter(|(next, _)| next.image == image) {
            next.tasks.push(task);
            return;
        }
        match self.queue.iter_mut().find(|queued| queued.image == image) {
            Some(queued) => queued.tasks.push(task),
            None => self.queue.push_back(Queued {
                image: image.to_owned(),
                since_ns: now_ns,
                loads_ns: self.loads_ns,
                tasks: vec![task],
            }),
        }
    }

    /// When the present turn is over if nothing changes: the manager's rule.
    fn over_ns(&self, options: &Options, is_idle: bool, now_ns: u64) -> u64 {
        let Some(image) = &self.image else {
            return now_ns;
        };
        let waiting = self.queue.iter().map(|queued| Waiting {
            before: time(
                self.since_ns
                    .saturating_sub(queued.since_ns)
                    .saturating_sub(self.loads_ns - queued.loads_ns),
            ),
            since: time(queued.since_ns.saturating_sub(self.since_ns)),
        });
        let most = options
            .wait
            .map_or(Duration::MAX, |most| turn_max(most, waiting));
        let others = self.queue.iter().map(|queued| queued.image.as_str());
        let turn = self.images.turn(options, image, others, time(now_ns));
        let end_ns = self.since_ns.saturating_add(ns(turn.length.min(most)));
        if !is_idle {
            return end_ns;
        }
        let least_ns = (self.since_ns + ns(options.turn_min)).max(now_ns + ns(turn.rest));
        let quiet_ns = self.idle_since_ns.max(self.since_ns) + QUIET_NS;
        end_ns.min(least_ns.max(quiet_ns))
    }
}

impl World<'_> {
    /// The image that a function's tasks need.
    fn image(&self, function: u32) -> Option<String> {
        let id = &self.functions[function as usize].id;
        let function = self.index.snapshot().functions.get(id)?;
        let term = function.query.term(Field::Accelerator)?;
        Some(term.exact().unwrap_or_else(|| term.to_string()))
    }

    /// Gives a task to its device, or has it wait until its image has its turn.
    pub(super) fn submit_in_turn(&mut self, device: u32, task: Task) {
        let function = self.requests[task.request as usize].function;
        let image = self.image(function);
        let now_ns = self.now_ns;
        if let (Some(turns), Some(image)) = (&mut self.boards[device as usize].turns, image) {
            if turns.is_changing() || turns.image.as_ref() != Some(&image) {
                turns.park(&image, task, now_ns);
                self.take_turns(device);
                return;
            }
        }
        self.give(device, task);
        self.take_turns(device);
    }

    /// Notes that a device's task has ended.
    pub(super) fn rest(&mut self, device: u32) {
        let board = &mut self.boards[device as usize];
        if let Some(turns) = &mut board.turns {
            if board.device.load() == 0 {
                turns.idle_since_ns = self.now_ns;
            }
            self.take_turns(device);
        }
    }

    /// Handles a time at which a device's turn may be over.
    pub(super) fn look_at_turn(&mut self, device: u32) {
        let turns = self.boards[device as usize].turns.as_mut();
        if let Some(turns) = turns.filter(|turns| turns.check_at == Some(self.now_ns)) {
            turns.check_at = None;
            self.take_turns(device);
        }
    }

    /// Begins the next image's turn if the present one is over, or looks again later.
    fn take_turns(&mut self, device: u32) {
        let now_ns = self.now_ns;
        let Some(options) = self.turn_options else {
            return;
        };
        let board = &mut self.boards[device as usize];
        let (tasks, busy_ns) = (board.device.ended(), board.device.worked_ns(now_ns));
        let is_idle = board.device.load() == 0;
        let Some(turns) = board.turns.as_mut() else {
            return;
        };
        if turns.is_changing() || turns.queue.is_empty() {
            return;
        }
        turns.count_use(tasks, busy_ns, now_ns);
        let at = turns.over_ns(&options, is_idle, now_ns);
        if at > now_ns {
            if turns.check_at.is_none_or(|known| at < known) {
                turns.check_at = Some(at);
                self.at(at, Event::Turn { device });
            }
            return;
        }
        let Some(next) = turns.queue.pop_front() else {
            return;
        };
        let waited_ns = (now_ns - next.since_ns).saturating_sub(turns.loads_ns - next.loads_ns);
        turns.next = Some((next, now_ns));
        if now_ns >= self.warm_ns {
            let longest = &mut board.counts.turn_wait_max_ns;
            *longest = (*longest).max(waited_ns);
        }
        board.device.pause(true, now_ns, &mut self.started);
        // Tasks that have not begun wait for the next turn of their image.
        let left = board.device.withdraw_all(now_ns, &mut self.started);
        if let Some(image) = turns.image.clone() {
            for task in left {
                turns.park(&image, task, now_ns);
            }
        }
        self.follow(device);
    }

    /// Loads the next image of a device once no task runs.
    pub(super) fn load_if_still(&mut self, device: u32) {
        let board = &mut self.boards[device as usize];
        let is_changing = board.turns.as_ref().is_some_and(Turns::is_changing);
        if is_changing && !board.is_programming && board.device.is_still() {
            board.is_programming = true;
            let at = self.now_ns + board.reconfigure_ns;
            self.at(at, Event::Programmed { device, region: 0 });
        }
    }

    /// Begins the turn of an image that has been loaded. Returns whether the device takes turns.
    pub(super) fn loaded_in_turn(&mut self, device: u32) -> bool {
        let now_ns = self.now_ns;
        let board = &mut self.boards[device as usize];
        let Some(turns) = &mut board.turns else {
            return false;
        };
        let Some((next, begun_ns)) = turns.next.take() else {
            return false;
        };
        let took_ns = now_ns - begun_ns;
        turns.loads_ns += took_ns;
        turns
            .images
            .loaded(&next.image, time(took_ns), time(now_ns));
        (turns.since_ns, turns.idle_since_ns) = (now_ns, now_ns);
        board.counts.reconfigurations += 1;
        board.counts.replaced += u64::from(turns.image.is_some());
        turns.image = Some(next.image.clone());
        board.is_programming = false;
        board.device.pause(false, now_ns, &mut self.started);
        self.index
            .update_device(&self.board_ids[device as usize], |d| {
                let region = &mut d.regions[0];
                let loaded = Accelerator {
                    name: next.image,
                    digest: String::new(),
                };
                region.planned.take_if(|planned| *planned == loaded);
                region.accelerator = Some(loaded);
                region.value = Value::PLANNED;
            });
        self.follow(device);
        for task in next.tasks {
            self.give(device, task);
        }
        self.take_turns(device);
        true
    }
}
