//! `cl_context`: devices, and a context in each of their sessions.

use crate::core::blocks::Blocks;
use crate::core::callback;
use crate::core::device::Device;
use crate::core::lost;
use crate::core::object::{Class, Object, Ref};
use crate::core::session::Session;
use crate::core::svm;
use crate::core::transfer::PendingReads;
use baltra_opencl::*;
use baltra_ring::{Locked, Unpoisoned};
use baltra_session::client::{Block, Client, Queue};
use baltra_wire::{Control, Direction, Event, Id};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

type Job = Box<dyn FnOnce() + Send>;
/// Notifies the application of an error in the context.
pub type Notify = Box<dyn Fn(&str) + Send + Sync>;

/// A context's part in one session.
pub struct Member {
    /// The session's client end.
    pub client: Arc<Client>,
    /// The context's name in that session.
    pub id: Id,
    /// The session's (root) device.
    pub device: Ref<Device>,
    session: Arc<Session>,
    /// Blocks that outlive a command.
    pub blocks: Blocks,
    /// The library's own queues: to the device, from it ([`Member::mover`]), and from it behind
    /// other commands ([`Member::follower`]).
    movers: [OnceLock<Queue>; 3],
    /// Held while one of them is opened.
    opening: Mutex<()>,
    /// Whether large transfers have been prepared ([`crate::core::pieces::prepare`]).
    pub prepared: AtomicBool,
    /// Slots of events that are released but whose commands are not complete.
    orphans: Mutex<Vec<Event>>,
    orphan_count: AtomicUsize,
}

impl Member {
    /// Whether its session has the device.
    fn has(&self, device: &Object<Device>) -> bool {
        let here = |root: &Object<Device>| std::ptr::eq(root, &*self.device);
        device.roots().into_iter().any(here)
    }

    /// An event slot.
    pub fn new_event(&self) -> Result<Event, i32> {
        // A sweep checks every orphan, so it is done for many at a time only.
        if self.orphan_count.load(Ordering::Relaxed) >= 256 {
            let mut orphans = self.orphans.locked();
            let events = self.client.events();
            orphans.retain(|&event| {
                let open = events.status(event) > 0;
                if !open {
                    events.free(event);
                }
                open
            });
            // The remaining ones are not checked again before the same number has been added.
            let left = orphans.len().min(128);
            self.orphan_count.store(left, Ordering::Relaxed);
        }
        self.client.new_event().map_err(lost)
    }

    /// The library's own queue for bytes in this direction: large transfers, and moves of memory
    /// objects between members. Its commands wait for no events, so that it always progresses.
    pub fn mover(&self, direction: Direction) -> Result<&Queue, i32> {
        self.own_queue(match direction {
            Direction::Write => 0,
            Direction::Read => 1,
        })
    }

    /// The library's own queue for reads that wait for earlier commands.
    pub fn follower(&self) -> Result<&Queue, i32> {
        self.own_queue(2)
    }

    fn own_queue(&self, index: usize) -> Result<&Queue, i32> {
        let mover = &self.movers[index];
        if let Some(mover) = mover.get() {
            return Ok(mover);
        }
        let _one_at_a_time = self.opening.locked();
        if let Some(mover) = mover.get() {
            return Ok(mover);
        }
        let queue = self.client.open_queue(self.id, 0, 0).map_err(lost)?;
        Ok(mover.get_or_init(|| queue))
    }

    /// A block of shared memory ([`Client::allocate`]).
    pub fn allocate(&self, len: u64, align: u64) -> Result<Block, i32> {
        self.blocks.allocate(len, align)
    }

    /// Gives a slot back, now or once its command is complete.
    pub fn free_event(&self, event: Event) {
        if event == 0 {
            return;
        }
        let events = self.client.events();
        if events.status(event) <= 0 {
            events.free(event);
            return;
        }
        let mut orphans = self.orphans.locked();
        orphans.push(event);
        self.orphan_count.fetch_add(1, Ordering::Relaxed);
    }
}

/// One `cl_context`.
pub struct Context {
    /// The devices as the application gave them.
    pub devices: Vec<Ref<Device>>,
    /// One for each session.
    pub members: Vec<Member>,
    /// Whether the members are those of a pool, and one device for the application.
    pub pooled: bool,
    /// `CL_CONTEXT_PROPERTIES`, with its final zero; empty where none were given.
    pub properties: Vec<isize>,
    /// Outstanding staged reads, which will write into the application's memory.
    pub reads: PendingReads,
    /// The application's own events that it has not set yet.
    pub user_events: AtomicUsize,
    notify: Option<Notify>,
    destructors: Mutex<Vec<Job>>,
}

impl Class for Context {
    type Raw = _cl_context;
    const TAG: u32 = 0xba17_0003;
    const INVALID: i32 = CL_INVALID_CONTEXT;

    fn ended(object: &Object<Context>) {
        svm::free_all(object);
    }
}

impl Context {
    /// `clCreateContext`; opens the devices' sessions.
    pub fn create(
        devices: Vec<Ref<Device>>,
        properties: Vec<isize>,
        notify: Option<Notify>,
    ) -> Result<Ref<Context>, i32> {
        let mut members: Vec<Member> = Vec::new();
        let pooled = devices.iter().any(|d| d.pool().is_some());
        for device in devices.iter().flat_map(|d| d.roots()) {
            let session = match device.session() {
                Ok(session) => session,
                // The others serve the pool; the reason is on stderr.
                Err(_) if pooled => continue,
                Err(code) => return Err(code),
            };
            if members
                .iter()
                .any(|m| Arc::ptr_eq(&m.client, &session.client))
            {
                continue;
            }
            members.push(Member {
                id: session.client.new_id(),
                client: session.client.clone(),
                device: device.share(),
                blocks: Blocks::new(&session.client),
                session,
                movers: Default::default(),
                opening: Mutex::default(),
                prepared: AtomicBool::new(false),
                orphans: Mutex::default(),
                orphan_count: AtomicUsize::new(0),
            });
        }
        if members.is_empty() {
            return Err(CL_DEVICE_NOT_AVAILABLE);
        }
        for member in &members {
            let here = devices.iter().filter(|d| member.has(d));
            let names: Vec<u8> = here.flat_map(|d| d.id.to_le_bytes()).collect();
            let control = Control::Context {
                id: member.id,
                devices: &names,
            };
            member.client.control(&control).map_err(lost)?;
        }
        let context = Object::new(Context {
            devices,
            members,
            pooled,
            properties,
            reads: PendingReads::default(),
            user_events: AtomicUsize::new(0),
            notify,
            destructors: Mutex::default(),
        });
        for member in &context.members {
            let weak = Arc::downgrade(&context);
            member.session.register(member.id, weak);
        }
        Ok(context)
    }

    /// Whether the device is one of the context's.
    pub fn has(&self, device: &Object<Device>) -> bool {
        self.devices.iter().any(|d| std::ptr::eq(&**d, device))
    }

    /// Indices of the members whose sessions have the device; a pool has several.
    pub fn members_of<'a>(
        &'a self,
        device: &'a Object<Device>,
    ) -> impl Iterator<Item = usize> + 'a {
        (0..self.members.len()).filter(|&at| self.members[at].has(device))
    }

    /// Whether a member of a pool has been lost, so that the others have to do without it.
    pub fn is_gone(&self, member: usize) -> bool {
        let is_lost = |m: &Member| m.client.is_lost().is_some();
        self.pooled && is_lost(&self.members[member]) && !self.members.iter().all(is_lost)
    }

    /// The first member that is not gone: where new objects have their first replica.
    pub fn home(&self) -> usize {
        let mut all = 0..self.members.len();
        all.find(|&at| !self.is_gone(at)).unwrap_or(0)
    }

    /// Calls the application's error callback.
    pub fn report(&self, text: &str) {
        if let Some(notify) = &self.notify {
            notify(text);
        }
    }

    /// `clSetContextDestructorCallback`.
    pub fn at_end(&self, job: Job) {
        let mut destructors = self.destructors.locked();
        destructors.push(job);
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        for member in &mut self.members {
            member.session.forget(member.id);
            // The executor makes and releases objects in this order.
            drop(std::mem::take(&mut member.movers));
            // A lost session has released everything.
            let _ = member.client.release(member.id, None);
        }
        let jobs = self.destructors.get_mut().unpoisoned();
        // The registered callback functions are called in the reverse order in which they were
        // registered.
        for job in std::mem::take(jobs).into_iter().rev() {
            callback::run(job);
        }
    }
}
