//! The records of the client that an executor needs to make a session's objects again.
//!
//! Each object has a *recipe*: the record that created it and, of a program, those of its
//! specialization constants and its newest build. A recipe keeps those that it needs (a kernel's
//! program, a sub-buffer's parent), as the driver's objects keep each other, after their ids are
//! released. Recipes only keep what was created before them, so that they form no cycle; headers
//! that were created after the program that includes them are not kept.

use super::names::{ids, IdMap};
use baltra_opencl::CL_SUCCESS;
use baltra_ring::Locked;
use baltra_wire::{Control, Id, Reply, Request};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// The part of a recipe that a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Creation,
    Constant,
    /// Replaces an earlier one.
    Build,
}

/// An object that a record makes or changes, and those that it needs.
#[derive(Debug)]
pub struct Making {
    /// The object.
    pub id: Id,
    needs: Vec<Id>,
    kind: Kind,
}

impl Making {
    fn creation(id: Id, needs: &[Id]) -> Option<Making> {
        Some(Making {
            id,
            needs: needs.iter().copied().filter(|id| *id != 0).collect(),
            kind: Kind::Creation,
        })
    }

    /// The object that a message makes; `None`: nothing that has to be made again.
    pub fn of(message: &Control) -> Option<Making> {
        match *message {
            Control::Context { id, .. } => Making::creation(id, &[]),
            Control::Queue { id, context, .. }
            | Control::Buffer { id, context, .. }
            | Control::Sampler { id, context, .. }
            | Control::Pipe { id, context, .. }
            | Control::ProgramSource { id, context, .. } => Making::creation(id, &[context]),
            Control::SubBuffer { id, parent, .. } => Making::creation(id, &[parent]),
            Control::Image {
                id,
                context,
                parent,
                ..
            } => Making::creation(id, &[context, parent]),
            Control::Kernel { id, program, .. } => Making::creation(id, &[program]),
            // Slots of events belong to no object.
            Control::EventsAdd { .. } => Making::creation(0, &[]),
            _ => None,
        }
    }

    /// As [`Making::of`], of a request for a program.
    pub fn of_request(request: &Request) -> Option<Making> {
        let changed = |id, needs: Vec<Id>, kind| Some(Making { id, needs, kind });
        match *request {
            Request::ProgramBinary { id, context, .. }
            | Request::ProgramIl { id, context, .. }
            | Request::ProgramBuiltIn { id, context, .. } => Making::creation(id, &[context]),
            Request::SpecializationConstant { program, .. } => {
                changed(program, Vec::new(), Kind::Constant)
            }
            Request::Build { program, .. } => changed(program, Vec::new(), Kind::Build),
            Request::Compile {
                program, headers, ..
            } => changed(program, ids(headers).collect(), Kind::Build),
            Request::Link {
                id,
                context,
                inputs,
                ..
            } => {
                let needs: Vec<Id> = [context].into_iter().chain(ids(inputs)).collect();
                Making::creation(id, &needs)
            }
            _ => None,
        }
    }
}

/// A record.
#[derive(Debug)]
pub struct Step {
    /// Its number in the session.
    pub number: u64,
    /// The object.
    pub id: Id,
    /// The record.
    pub record: Box<[u8]>,
    /// Whether the driver carried it out.
    pub succeeded: bool,
    kind: Kind,
}

#[derive(Debug, Default)]
struct Content {
    steps: Vec<Arc<Step>>,
    /// Of its creation.
    parents: Vec<Arc<Recipe>>,
    /// Of its newest build: those created before, and the others.
    headers: Vec<Arc<Recipe>>,
    later: Vec<Weak<Recipe>>,
    /// It needs a chain that is too long, which is not kept.
    is_cut: bool,
}

/// Recipes that need each other in a chain at the most. A program may be linked from another one
/// without end.
const DEPTH_MAX: u32 = 64;

/// The records of an object.
#[derive(Debug)]
pub struct Recipe {
    created: u64,
    /// Of the longest chain of recipes that it has needed.
    depth: AtomicU32,
    content: Mutex<Content>,
}

/// The recipes of a session.
#[derive(Default)]
pub struct Ledger {
    recipes: Mutex<IdMap<Arc<Recipe>>>,
    slots: Mutex<Vec<Box<[u8]>>>,
    next: AtomicU64,
}

/// An object has no complete recipe.
#[derive(Debug)]
pub struct Incomplete;

impl Ledger {
    /// Keeps the record of a creation that has succeeded.
    pub fn add(&self, made: Making, record: &[u8]) {
        if made.id == 0 {
            self.slots.locked().push(record.into());
        } else {
            self.put(made, record, true);
        }
    }

    /// Keeps the record of a request for a program that exists, with this reply.
    pub fn add_built(&self, made: Making, record: &[u8], reply: &Reply) {
        let succeeded = match reply {
            Reply::Built { code, .. } => *code == CL_SUCCESS,
            Reply::Binaries(codes) => codes.iter().all(|code| *code == CL_SUCCESS),
            Reply::Done => true,
            _ => return,
        };
        self.put(made, record, succeeded);
    }

    /// As [`Ledger::add_built`], for a request other than the client's.
    pub fn add_request(&self, request: Request, reply: &Reply) {
        let made = Making::of_request(&request);
        let mut record = Vec::new();
        let encoded = baltra_wire::encode(&Control::Call { call: 0, request }, &mut record);
        if let (Some(made), Ok(())) = (made, encoded) {
            self.add_built(made, &record, reply);
        }
    }

    fn put(&self, made: Making, record: &[u8], succeeded: bool) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let step = Arc::new(Step {
            number,
            id: made.id,
            record: record.into(),
            succeeded,
            kind: made.kind,
        });
        let mut recipes = self.recipes.locked();
        let needs = made.needs.iter().filter_map(|id| recipes.get(id).cloned());
        let mut needs: Vec<_> = needs.collect();
        let depth = |need: &Arc<Recipe>| need.depth.load(Ordering::Relaxed) + 1;
        let depth = needs.iter().map(depth).max().unwrap_or(0);
        let is_cut = depth > DEPTH_MAX;
        if is_cut {
            needs.clear();
        }
        if made.kind == Kind::Creation {
            let content = Content {
                steps: vec![step],
                parents: needs,
                is_cut,
                ..Content::default()
            };
            let recipe = Recipe {
                created: number,
                depth: AtomicU32::new(if is_cut { 0 } else { depth }),
                content: Mutex::new(content),
            };
            recipes.insert(made.id, Arc::new(recipe));
            return;
        }
        let Some(recipe) = recipes.get(&made.id).cloned() else {
            return;
        };
        drop(recipes);
        let mut content = recipe.content.locked();
        if made.kind == Kind::Build {
            content.steps.retain(|step| step.kind != Kind::Build);
            content.is_cut |= is_cut;
            recipe
                .depth
                .fetch_max(if is_cut { 0 } else { depth }, Ordering::Relaxed);
            let (earlier, later): (Vec<_>, Vec<_>) = needs
                .into_iter()
                .partition(|need| need.created < recipe.created);
            content.headers = earlier;
            content.later = later.iter().map(Arc::downgrade).collect();
        }
        content.steps.push(step);
    }

    /// The object's id is released.
    pub fn remove(&self, id: Id) {
        self.remove_with(id, || ());
    }

    /// As [`Ledger::remove`], together with the object: nobody finds one without the other.
    pub fn remove_with<T>(&self, id: Id, remove: impl FnOnce() -> T) -> T {
        let mut recipes = self.recipes.locked();
        let (gone, removed) = (recipes.remove(&id), remove());
        drop(recipes);
        drop(gone);
        removed
    }

    /// The object's recipe.
    pub fn recipe(&self, id: Id) -> Option<Arc<Recipe>> {
        self.recipes.locked().get(&id).cloned()
    }

    /// The record of the object's creation.
    pub fn creation(&self, id: Id) -> Option<Arc<Step>> {
        let recipe = self.recipe(id)?;
        let content = recipe.content.locked();
        content.steps.first().cloned()
    }

    /// Records that added slots to the event table.
    pub fn slots(&self) -> Vec<Vec<u8>> {
        let slots = self.slots.locked();
        slots.iter().map(|record| record.to_vec()).collect()
    }

    /// The records for all objects that have an id, for `more`, and for what these need, in order.
    pub fn steps(&self, more: &[Arc<Recipe>]) -> Result<Vec<Arc<Step>>, Incomplete> {
        let named: Vec<_> = self.recipes.locked().values().cloned().collect();
        let mut open: Vec<_> = named.into_iter().chain(more.iter().cloned()).collect();
        let mut steps = BTreeMap::new();
        let mut seen = std::collections::HashSet::new();
        while let Some(recipe) = open.pop() {
            if !seen.insert(recipe.created) {
                continue;
            }
            let content = recipe.content.locked();
            if content.is_cut {
                return Err(Incomplete);
            }
            open.extend(content.parents.iter().chain(&content.headers).cloned());
            for later in &content.later {
                open.push(later.upgrade().ok_or(Incomplete)?);
            }
            steps.extend(content.steps.iter().map(|step| (step.number, step.clone())));
        }
        Ok(steps.into_values().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(ledger: &Ledger, message: &Control) {
        let mut record = Vec::new();
        baltra_wire::encode(message, &mut record).unwrap();
        let made = Making::of(message).unwrap();
        ledger.add(made, &record);
    }

    fn request(ledger: &Ledger, request: Request) {
        let built = Reply::Built {
            code: 0,
            devices: Vec::new(),
            kernels: Vec::new(),
        };
        ledger.add_request(request, &built);
    }

    fn made(ledger: &Ledger) -> Option<Vec<Id>> {
        let steps = ledger.steps(&[]).ok()?;
        Some(steps.iter().map(|step| step.id).collect())
    }

    /// Programs 1 to 3 of context 9.
    fn programs() -> Ledger {
        let ledger = Ledger::default();
        add(
            &ledger,
            &Control::Context {
                id: 9,
                devices: &[],
            },
        );
        for id in 1..=3 {
            let source = Control::ProgramSource {
                id,
                context: 9,
                source: b"",
            };
            add(&ledger, &source);
        }
        ledger
    }

    fn compile<'a>(program: Id, headers: &'a [u8]) -> Request<'a> {
        Request::Compile {
            program,
            devices: &[],
            options: "",
            headers,
            header_names: vec!["h"],
            files: Vec::new(),
        }
    }

    #[test]
    fn what_an_object_needs_stays_after_its_release() {
        let ledger = programs();
        request(&ledger, compile(2, &1u32.to_le_bytes()));
        add(
            &ledger,
            &Control::Kernel {
                id: 4,
                program: 2,
                name: "k",
            },
        );
        for id in [9, 1, 2, 3] {
            ledger.remove(id);
        }
        assert_eq!(made(&ledger), Some(vec![9, 1, 2, 2, 4]));
        ledger.remove(4);
        assert_eq!(made(&ledger), Some(vec![]));
    }

    #[test]
    fn a_build_replaces_the_former_one_and_constants_stay() {
        let ledger = programs();
        let constant = Request::SpecializationConstant {
            program: 1,
            id: 0,
            value: &[1],
        };
        let made_constant = Making::of_request(&constant).unwrap();
        ledger.add_built(made_constant, b"constant", &Reply::Done);
        for _ in 0..3 {
            request(&ledger, compile(1, &[]));
        }
        assert_eq!(made(&ledger), Some(vec![9, 1, 2, 3, 1, 1]));
    }

    #[test]
    fn a_header_that_is_younger_is_not_kept_and_missed() {
        let ledger = programs();
        request(&ledger, compile(1, &2u32.to_le_bytes()));
        request(&ledger, compile(2, &1u32.to_le_bytes()));
        assert!(made(&ledger).is_some());
        ledger.remove(2);
        assert_eq!(made(&ledger), None);
    }
}
