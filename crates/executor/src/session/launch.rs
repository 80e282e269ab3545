//! A queue's own driver kernels: each launch carries its arguments, and those that have not changed
//! since the queue's previous launch of the kernel are not set again.

use super::group::OneGroup;
use super::names::IdMap;
use super::objects::{Context, Kernel, Memory};
use super::residence::WorkingSet;
use super::slices::text::{Geometry, Text};
use super::slices::{Division, Pace};
use super::Session;
use crate::driver::{self, number, Code};
use baltra_opencl::*;
use baltra_ring::Locked;
use baltra_wire::{Arg, Id};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// Maximum number of a kernel's geometries for whose slices a queue makes kernels: launches of
/// others stay whole.
const REWRITTEN_MAX: usize = 8;

/// The value that an argument of the driver's kernel was last set to. Objects are compared by id
/// *and* handle, because a new object may have an old one's address as its handle; memory also by
/// version, because an object that has been swapped may have its old address again.
#[derive(PartialEq)]
enum Set {
    Nothing,
    Value(Vec<u8>),
    Local(u64),
    Memory(Id, usize, u64),
    Sampler(Id, usize),
    Svm(u64),
}

/// A driver kernel that only one queue's thread uses.
pub struct OwnKernel {
    /// The driver's.
    pub kernel: driver::Kernel,
    /// It may print.
    pub prints: bool,
    /// Those of its launches that can run as one group.
    pub one_group: OneGroup,
    /// Weak, so that the client's release takes effect before this queue drops its kernel.
    object: Weak<Kernel>,
    /// The largest sides of the groups that this queue's launches have specified.
    sides: [usize; 3],
    /// The largest of these groups, work-items.
    group: u64,
    args: Vec<Set>,
    indirect: Vec<u64>,
    /// Arguments through which it may write, as far as that is known yet.
    writes: Vec<Option<bool>>,
    /// The ways in which launches can be divided.
    text: Text,
    /// The durations of launches.
    pace: Pace,
    /// The same kernel for slices of a launch; `Err`: it cannot be made.
    rewritten: Vec<(Geometry, Result<Box<OwnKernel>, Code>)>,
}

/// A queue's kernels.
#[derive(Default)]
pub struct OwnKernels {
    map: IdMap<OwnKernel>,
    released_seen: u64,
    /// The launch is a slice of another one, which needs a kernel of its own.
    slice_of: Option<Geometry>,
}

impl OwnKernels {
    /// The kernel with its arguments set. Objects that the launch uses are added to `held`, which
    /// the caller keeps until the launch is submitted.
    pub fn prepare(
        &mut self,
        session: &Session,
        context: &Context,
        id: Id,
        args: (u32, &[u8]),
        indirect: &[u8],
        held: &mut Vec<Arc<Memory>>,
    ) -> Result<&mut OwnKernel, Code> {
        let slice_of = self.slice_of;
        let kernel = self.kernel(session, context, id)?;
        let kernel = match slice_of {
            Some(geometry) => kernel.rewritten(&geometry)?,
            None => kernel,
        };
        let (count, mut bytes) = args;
        if count as usize != kernel.args.len() {
            return Err(CL_INVALID_KERNEL_ARGS);
        }
        for at in 0..count {
            let (arg, rest) =
                postcard::take_from_bytes::<Arg>(bytes).map_err(|_| CL_INVALID_KERNEL_ARGS)?;
            bytes = rest;
            kernel.set(session, context, at, arg, held)?;
        }
        kernel.set_indirect(session, indirect)?;
        Ok(kernel)
    }

    fn kernel(
        &mut self,
        session: &Session,
        context: &Context,
        id: Id,
    ) -> Result<&mut OwnKernel, Code> {
        self.forget_released(session);
        match self.map.entry(id) {
            std::collections::hash_map::Entry::Occupied(entry) => Ok(entry.into_mut()),
            std::collections::hash_map::Entry::Vacant(entry) => {
                Ok(entry.insert(OwnKernel::new(session.objects.kernel(id)?, context)?))
            }
        }
    }

    /// Adds the objects that a launch uses and that may leave the device.
    pub fn add_used(
        &mut self,
        session: &Session,
        context: &Context,
        id: Id,
        args: (u32, &[u8]),
        set: &mut WorkingSet,
    ) {
        self.each_memory(session, context, id, args, |memory, writes| {
            let object = memory.object();
            set.extend(object.map(|object| (object.clone(), writes)));
        });
    }

    /// Calls `then` with each object that a launch uses, and whether it may write it. An error
    /// of the launch shows in [`OwnKernels::prepare`].
    pub fn each_memory(
        &mut self,
        session: &Session,
        context: &Context,
        id: Id,
        args: (u32, &[u8]),
        mut then: impl FnMut(&Memory, bool),
    ) {
        let Ok(kernel) = self.kernel(session, context, id) else {
            return;
        };
        let (count, mut bytes) = args;
        for at in 0..count.min(kernel.args.len() as u32) {
            let Ok((arg, rest)) = postcard::take_from_bytes::<Arg>(bytes) else {
                return;
            };
            bytes = rest;
            let Arg::Memory(id @ 1..) = arg else {
                continue;
            };
            if let Ok(memory) = session.objects.memory(id) {
                let is_writable = memory.object().is_none_or(|object| object.is_writable());
                then(&memory, is_writable && kernel.may_write(at));
            }
        }
    }

    /// The division of a launch of the kernel; `None`: it cannot be divided, or is expected to be
    /// short.
    pub fn division(
        &mut self,
        session: &Session,
        context: &Context,
        id: Id,
        geometry: Geometry,
    ) -> Option<Division> {
        let slices = session.shared.slices.as_ref()?;
        let kernel = self.kernel(session, context, id).ok()?;
        Division::of(slices, kernel.text, kernel.pace, geometry)
    }

    /// The durations of the kernel's launches, as far as they have been measured.
    pub fn pace(&mut self, id: Id) -> Option<&mut Pace> {
        self.map.get_mut(&id).map(|kernel| &mut kernel.pace)
    }

    /// Commands took longer than was expected: what launches take has to be learned again.
    pub fn forget_paces(&mut self) {
        for kernel in self.map.values_mut() {
            kernel.pace = Pace::default();
        }
    }

    /// Whether a kernel for the slices of this launch exists (true) or cannot be made (false).
    pub fn is_rewritten(&self, id: Id, geometry: &Geometry) -> Option<bool> {
        let made = &self.map.get(&id)?.rewritten;
        match made.iter().find(|(of, _)| of == geometry) {
            Some((_, kernel)) => Some(kernel.is_ok()),
            None => (made.len() >= REWRITTEN_MAX).then_some(false),
        }
    }

    /// Makes a kernel for the slices of a launch, which may take as long as a build.
    pub fn rewrite(&mut self, context: &Context, id: Id, geometry: &Geometry) {
        if let Some(kernel) = self.map.get_mut(&id) {
            kernel.rewrite(context, geometry);
        }
    }

    /// The next launches are slices of another one, and use the kernel that was made for it.
    pub fn set_slice_of(&mut self, geometry: Option<Geometry>) {
        self.slice_of = geometry;
    }

    fn forget_released(&mut self, session: &Session) {
        let released = session.kernels_released.load(Ordering::Acquire);
        if released != self.released_seen {
            self.released_seen = released;
            self.map
                .retain(|id, own| match session.objects.kernel(*id) {
                    Ok(object) => std::ptr::eq(Arc::as_ptr(&object), own.object.as_ptr()),
                    Err(_) => false,
                });
        }
    }
}

impl OwnKernel {
    fn new(object: Arc<Kernel>, context: &Context) -> Result<OwnKernel, Code> {
        if object.program.context.context.raw() != context.context.raw() {
            return Err(CL_INVALID_CONTEXT);
        }
        let kernel = object.program.driver().kernel(&object.name)?;
        OwnKernel::of(kernel, &object, context)
    }

    fn of(
        kernel: driver::Kernel,
        object: &Arc<Kernel>,
        context: &Context,
    ) -> Result<OwnKernel, Code> {
        let count = number(&kernel.info(CL_KERNEL_NUM_ARGS as u32)?);
        Ok(OwnKernel {
            one_group: OneGroup::of(&kernel, context),
            kernel,
            prints: object.program.prints.load(Ordering::Relaxed),
            args: (0..count).map(|_| Set::Nothing).collect(),
            writes: (0..count).map(|_| None).collect(),
            indirect: Vec::new(),
            object: Arc::downgrade(object),
            sides: [0; 3],
            group: 0,
            text: *object.program.text.locked(),
            pace: Pace::default(),
            rewritten: Vec::new(),
        })
    }

    fn rewrite(&mut self, context: &Context, geometry: &Geometry) {
        let made = || {
            let object = self.object.upgrade().ok_or(CL_INVALID_KERNEL)?;
            let program = object.program.rewritten(&geometry.prelude())?;
            let kernel = program.kernel(&object.name)?;
            OwnKernel::of(kernel, &object, context).map(Box::new)
        };
        let made = made();
        if let Err(code) = &made {
            tracing::warn!(code, "cannot divide a kernel's launches");
        }
        self.rewritten.push((*geometry, made));
    }

    fn rewritten(&mut self, geometry: &Geometry) -> Result<&mut OwnKernel, Code> {
        let mut made = self.rewritten.iter_mut();
        match made.find(|(of, _)| of == geometry) {
            Some((_, Ok(kernel))) => Ok(kernel),
            Some((_, Err(code))) => Err(*code),
            None => Err(CL_INVALID_KERNEL),
        }
    }

    /// A launch specifies this group size.
    pub fn grouped(&mut self, local: &[usize]) {
        let items = local.iter().map(|side| *side as u64);
        let items = items.fold(1, u64::saturating_mul);
        let mut sides = self.sides.iter().zip(local);
        if items <= self.group && sides.all(|(most, side)| side <= most) {
            return;
        }
        self.group = self.group.max(items);
        for (most, side) in self.sides.iter_mut().zip(local) {
            *most = *side.max(most);
        }
        if let Some(kernel) = self.object.upgrade() {
            kernel.needs.group.fetch_max(items, Ordering::Relaxed);
            for (most, side) in kernel.needs.sides.iter().zip(local) {
                most.fetch_max(*side as u64, Ordering::Relaxed);
            }
        }
    }

    /// The arguments in local memory have changed.
    fn local_changed(&self) {
        let locals = self.args.iter().map(|arg| match arg {
            Set::Local(len) => *len,
            _ => 0,
        });
        let bytes = locals.fold(0, u64::saturating_add);
        if let Some(kernel) = self.object.upgrade() {
            kernel.needs.local_bytes.fetch_max(bytes, Ordering::Relaxed);
        }
    }

    /// Whether it may write through an argument: not through one in constant memory, a pointer to
    /// `const` or a `read_only` image.
    fn may_write(&mut self, at: u32) -> bool {
        let OwnKernel { kernel, writes, .. } = self;
        *writes[at as usize].get_or_insert_with(|| {
            let fact = |param: i32| kernel.arg_info(at, param as u32).map(|info| number(&info));
            let is = |param, value: i32| fact(param) == Ok(value as u64);
            let qualifier = fact(CL_KERNEL_ARG_TYPE_QUALIFIER).unwrap_or(0);
            !(is(
                CL_KERNEL_ARG_ADDRESS_QUALIFIER,
                CL_KERNEL_ARG_ADDRESS_CONSTANT,
            ) || is(
                CL_KERNEL_ARG_ACCESS_QUALIFIER,
                CL_KERNEL_ARG_ACCESS_READ_ONLY,
            ) || qualifier & CL_KERNEL_ARG_TYPE_CONST as u64 != 0)
        })
    }

    fn set(
        &mut self,
        session: &Session,
        context: &Context,
        at: u32,
        arg: Arg,
        held: &mut Vec<Arc<Memory>>,
    ) -> Result<(), Code> {
        let OwnKernel { kernel, args, .. } = self;
        let was = &mut args[at as usize];
        let (set, now) = match arg {
            Arg::Value(value) => {
                if let Set::Value(old) = was {
                    if old == value {
                        return Ok(());
                    }
                    let set = kernel.set_value(at, value);
                    old.clear();
                    if set.is_ok() {
                        old.extend_from_slice(value);
                    } else {
                        *was = Set::Nothing;
                    }
                    return set;
                }
                (kernel.set_value(at, value), Set::Value(value.to_vec()))
            }
            Arg::Local(len) => {
                if *was == Set::Local(len) {
                    return Ok(());
                }
                (kernel.set_local(at, len as usize), Set::Local(len))
            }
            Arg::Memory(0) => {
                if *was == Set::Memory(0, 0, 0) {
                    return Ok(());
                }
                (kernel.set_memory(at, None), Set::Memory(0, 0, 0))
            }
            Arg::Memory(id) => {
                let memory = session.objects.memory(id)?;
                if memory.context.context.raw() != context.context.raw() {
                    return Err(CL_INVALID_CONTEXT);
                }
                let mem = memory.mem()?;
                let now = Set::Memory(id, mem.raw() as usize, memory.version());
                let set = if *was == now {
                    Ok(())
                } else {
                    kernel.set_memory(at, Some(&mem))
                };
                held.push(memory);
                (set, now)
            }
            Arg::Sampler(id) => {
                let sampler = session.objects.sampler(id)?;
                let now = Set::Sampler(id, sampler.raw() as usize);
                if *was == now {
                    return Ok(());
                }
                (kernel.set_sampler(at, &sampler), now)
            }
            Arg::Svm(address) => {
                if *was == Set::Svm(address) {
                    return Ok(());
                }
                if address != 0 {
                    session.svm_range(address, 1)?;
                }
                (kernel.set_svm(at, address), Set::Svm(address))
            }
        };
        let is_local = matches!(now, Set::Local(_));
        *was = if set.is_ok() { now } else { Set::Nothing };
        if is_local {
            self.local_changed();
        }
        set
    }

    fn set_indirect(&mut self, session: &Session, indirect: &[u8]) -> Result<(), Code> {
        if indirect.is_empty() && self.indirect.is_empty() {
            return Ok(());
        }
        let addresses: Vec<u64> = super::names::words(indirect).collect();
        if addresses == self.indirect {
            return Ok(());
        }
        for address in &addresses {
            session.svm_range(*address, 1)?;
        }
        if !addresses.is_empty() {
            self.kernel.set_svm_indirect(&addresses)?;
        }
        self.indirect = addresses;
        Ok(())
    }
}
