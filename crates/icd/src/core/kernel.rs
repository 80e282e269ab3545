//! Kernels: arguments are kept here, checked and encoded, until a launch sends them.

use crate::core::args::ArgTable;
use crate::core::launch::{Group, RefusalRisk};
use crate::core::lost;
use crate::core::memory::Memory;
use crate::core::object::{Class, Object, Ref, WeakRef};
use crate::core::program::{Attached, Program};
use crate::core::sampler::Sampler;
use baltra_opencl::*;
use baltra_ring::Locked;
use baltra_session::client::Client;
use baltra_wire::{Arg, Control, Id, KernelArg, KernelDescription};
use std::sync::{Arc, Mutex, MutexGuard};

/// A kernel object.
pub struct Kernel {
    /// The program, which cannot be rebuilt while this lives.
    pub program: Attached,
    /// The driver's description of the function, on the first device that has it.
    pub description: Arc<KernelDescription>,
    /// The kind of each argument.
    pub kinds: Box<[ArgKind]>,
    /// One for each replica of the program that has the function.
    replicas: Vec<Replica>,
    args: Mutex<Args>,
}

impl Class for Kernel {
    type Raw = _cl_kernel;
    const TAG: u32 = 0xba17_0008;
    const INVALID: i32 = CL_INVALID_KERNEL;
}

/// The kernel in one session.
pub struct Replica {
    /// Index of the context's member that has the session.
    pub member: usize,
    /// The session.
    pub client: Arc<Client>,
    /// Its name there.
    pub id: Id,
    /// The session's driver's description.
    pub description: Arc<KernelDescription>,
    /// `CL_KERNEL_COMPILE_WORK_GROUP_SIZE`; zeros: not specified.
    pub group_demanded: [usize; 3],
    /// `CL_KERNEL_WORK_GROUP_SIZE`; `usize::MAX` if the driver did not report it.
    pub group_max: usize,
    /// Doubtful groups that the driver has run.
    run: Mutex<Vec<Group>>,
}

/// The kind of an argument, as far as the driver reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgKind {
    /// A buffer in global or constant memory.
    Buffer,
    /// A pipe; bytes of its packets, 0: unknown.
    Pipe(u32),
    /// An image, with its `cl_kernel_arg_access_qualifier`.
    Image(u32),
    /// A sampler.
    Sampler,
    /// Local memory.
    Local,
    /// A value of this size in bytes; 0: unknown.
    Value(usize),
    /// The driver does not report the kind.
    Unknown,
}

impl ArgKind {
    /// Reads the driver's description.
    pub fn of(arg: &KernelArg) -> ArgKind {
        if arg.qualifier & CL_KERNEL_ARG_TYPE_PIPE as u64 != 0 {
            return ArgKind::Pipe(arg.size);
        }
        // Some drivers report images in global memory, others in private memory.
        if arg.access != 0 && arg.access as i32 != CL_KERNEL_ARG_ACCESS_NONE {
            return ArgKind::Image(arg.access);
        }
        if arg.type_name == "sampler_t" {
            return ArgKind::Sampler;
        }
        match (arg.address as i32, arg.size as usize) {
            (CL_KERNEL_ARG_ADDRESS_LOCAL, _) => ArgKind::Local,
            (CL_KERNEL_ARG_ADDRESS_GLOBAL | CL_KERNEL_ARG_ADDRESS_CONSTANT, _) => ArgKind::Buffer,
            (CL_KERNEL_ARG_ADDRESS_PRIVATE, size) => ArgKind::Value(size),
            // The size of a handle may be one.
            (_, 0 | HANDLE_BYTES) => ArgKind::Unknown,
            (_, size) => ArgKind::Value(size),
        }
    }
}

/// Number of group sizes that a kernel caches; others are checked each time.
const GROUPS_MAX: usize = 64;

/// Bytes of a `cl_mem` or `cl_sampler`.
const HANDLE_BYTES: usize = size_of::<cl_mem>();

/// A kernel's arguments as they stand.
pub struct Args {
    /// One for each replica, because objects have different ids in each session.
    tables: Vec<ArgTable>,
    /// In contexts of several sessions: memory objects, whose ids are filled in when a launch
    /// determines the session. (A session gets a replica of an object on first use.)
    late: Vec<Option<WeakRef<Memory>>>,
    /// Addresses that the kernel reaches indirectly, eight bytes each.
    pub svm_indirect: Vec<u8>,
}

impl Kernel {
    /// `clCreateKernel`; the caller has checked that the program has an executable.
    pub fn new(program: &Ref<Program>, name: &str) -> Result<Ref<Kernel>, i32> {
        let found = program.describe(name);
        let mut replicas = Vec::new();
        for (at, description) in program.replicas().iter().zip(found) {
            let Some(description) = description else {
                continue;
            };
            if program.context.is_gone(at.member) {
                continue;
            }
            let id = at.client.new_id();
            at.control(&Control::Kernel {
                id,
                program: at.id,
                name,
            })?;
            let client = at.client.clone();
            replicas.push(Replica::new(at.member, client, id, description));
        }
        // "CL_INVALID_KERNEL_NAME if kernel_name is not found in program."
        let first = replicas.first().ok_or(CL_INVALID_KERNEL_NAME)?;
        let description = first.description.clone();
        // "CL_INVALID_KERNEL_DEFINITION if the function definition for __kernel function given by
        // kernel_name such as the number of arguments, the argument types are not the same for
        // all devices for which the program executable has been built."
        let count = description.args.len();
        if replicas.iter().any(|r| r.description.args.len() != count) {
            return Err(CL_INVALID_KERNEL_DEFINITION);
        }
        let args = Args {
            tables: vec![ArgTable::new(count); replicas.len()],
            late: vec![None; if replicas.len() > 1 { count } else { 0 }],
            svm_indirect: Vec::new(),
        };
        Ok(Object::new(Kernel {
            kinds: description.args.iter().map(ArgKind::of).collect(),
            program: Attached::new(program),
            description,
            replicas,
            args: Mutex::new(args),
        }))
    }

    /// `clCloneKernel`: a second kernel of the function with the same arguments.
    pub fn duplicate(&self) -> Result<Ref<Kernel>, i32> {
        let twin = Kernel::new(&self.program, &self.description.name)?;
        let args = self.args();
        let mut copy = twin.args();
        copy.tables.clone_from(&args.tables);
        copy.late.clone_from(&args.late);
        copy.svm_indirect.clone_from(&args.svm_indirect);
        drop(copy);
        Ok(twin)
    }

    /// The replica that [`Kernel::description`] is of.
    pub fn first(&self) -> &Replica {
        &self.replicas[0]
    }

    /// The replica in one of the context's members.
    pub fn replica(&self, member: usize) -> Option<(usize, &Replica)> {
        // Nearly always the first and only one.
        let mut all = self.replicas.iter().enumerate();
        all.find(|(_, r)| r.member == member)
    }

    /// Locks the arguments, for the duration of an access or an enqueue.
    pub fn args(&self) -> MutexGuard<'_, Args> {
        self.args.lock().expect("nothing panics with the lock")
    }

    /// Sets an argument that is the same in all sessions.
    pub fn set(&self, index: usize, arg: &Arg<'_>) {
        let mut args = self.args();
        for table in &mut args.tables {
            table.set(index, arg);
        }
        if let Some(late) = args.late.get_mut(index) {
            *late = None;
        }
    }

    /// Sets an argument to a memory object or to none.
    pub fn set_memory(&self, index: usize, memory: Option<&Object<Memory>>) -> Result<(), i32> {
        if let (Some(memory), [only]) = (memory, &self.replicas[..]) {
            let id = memory.id_in(only.member)?;
            self.args().tables[0].set(index, &Arg::Memory(id));
            return Ok(());
        }
        self.set(index, &Arg::Memory(0));
        if let Some(late) = self.args().late.get_mut(index) {
            *late = memory.map(|m| Arc::downgrade(&m.share()));
        }
        Ok(())
    }

    /// Sets an argument to a sampler.
    pub fn set_sampler(&self, index: usize, sampler: &Sampler) -> Result<(), i32> {
        let mut args = self.args();
        for (table, replica) in args.tables.iter_mut().zip(&self.replicas) {
            let id = sampler.id_in(replica.member)?;
            table.set(index, &Arg::Sampler(id));
        }
        Ok(())
    }

    // No argument exceeds the device's limit on all of them together.
    pub fn parameter_bytes_max(&self) -> usize {
        let devices = self.program.devices.iter();
        let most = devices.map(|d| d.limits.max_parameter_size).max();
        // The specification's minimum if the driver does not report it.
        most.unwrap_or_default().max(1024)
    }

    /// `clSetKernelExecInfo(CL_KERNEL_EXEC_INFO_SVM_PTRS)`
    pub fn set_svm_indirect(&self, addresses: &[usize]) {
        let bytes = |a: &usize| (*a as u64).to_le_bytes();
        self.args().svm_indirect = addresses.iter().flat_map(bytes).collect();
    }
}

impl Args {
    /// Whether an argument's id depends on the session of the launch.
    pub fn are_late(&self) -> bool {
        !self.late.is_empty()
    }

    /// Bytes of the local memory arguments that are set.
    pub fn local_bytes(&self) -> u64 {
        self.tables.first().map_or(0, ArgTable::local_bytes)
    }

    /// The encoded arguments for the replica `at`; an error while one is not set.
    pub fn encoded(&self, at: usize) -> Result<&[u8], i32> {
        // "CL_INVALID_KERNEL_ARGS if the kernel argument values have not been specified."
        self.tables[at].encoded().ok_or(CL_INVALID_KERNEL_ARGS)
    }

    /// Fills in a session's ids of memory objects in the table of the replica `at`, and returns the
    /// objects, which have to be transferred there, and the index of each one's argument.
    pub fn settle(&mut self, at: usize, member: usize) -> Result<Vec<(Ref<Memory>, usize)>, i32> {
        let mut used = Vec::new();
        for (index, late) in self.late.iter().enumerate() {
            let Some(late) = late else { continue };
            // The application has released it before launching the kernel.
            let memory = late.upgrade().ok_or(CL_INVALID_KERNEL_ARGS)?;
            let id = memory.id_in(member)?;
            self.tables[at].set(index, &Arg::Memory(id));
            used.push((memory, index));
        }
        Ok(used)
    }
}

impl Replica {
    fn new(
        member: usize,
        client: Arc<Client>,
        id: Id,
        description: Arc<KernelDescription>,
    ) -> Replica {
        let words = |param: i32| {
            let found = description.work_group.iter();
            let found = found
                .filter(move |(p, _)| *p == param as u32)
                .map(|(_, v)| v);
            let bytes = found.flat_map(|v| v.chunks_exact(size_of::<usize>()));
            bytes.map(|b| usize::from_ne_bytes(b.try_into().expect("chunks of a word")))
        };
        let group_demanded = {
            let mut demanded = words(CL_KERNEL_COMPILE_WORK_GROUP_SIZE);
            std::array::from_fn(|_| demanded.next().unwrap_or(0))
        };
        let group_max = words(CL_KERNEL_WORK_GROUP_SIZE).next();
        Replica {
            member,
            client,
            id,
            group_demanded,
            group_max: group_max.filter(|&n| n > 0).unwrap_or(usize::MAX),
            description,
            run: Mutex::default(),
        }
    }

    /// Whether the driver has run a launch with this risk.
    pub fn has_run(&self, risk: RefusalRisk) -> bool {
        let RefusalRisk::Group(group) = risk else {
            return false;
        };
        let run = self.run.locked();
        run.contains(&group)
    }

    /// The driver has run it.
    pub fn remember(&self, group: Group) {
        let mut run = self.run.locked();
        if run.len() < GROUPS_MAX {
            run.push(group);
        }
    }

    /// One of the parameters that came with the build.
    pub fn work_group(&self, param: u32) -> Option<&[u8]> {
        let found = self.description.work_group.iter();
        let mut found = found.filter(|(p, _)| *p == param);
        found.next().map(|(_, value)| &value[..])
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        for replica in &self.replicas {
            // A lost session has nothing to release.
            let _ = replica.client.release(replica.id, None).map_err(lost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arg(address: i32, access: i32, type_name: &str) -> KernelArg {
        KernelArg {
            address: address as u32,
            access: access as u32,
            type_name: type_name.into(),
            size: 4,
            ..KernelArg::default()
        }
    }

    #[test]
    fn kinds_follow_the_drivers_description() {
        let none = CL_KERNEL_ARG_ACCESS_NONE;
        let kind = |address, access, name| ArgKind::of(&arg(address, access, name));
        assert_eq!(
            kind(CL_KERNEL_ARG_ADDRESS_GLOBAL, none, "float*"),
            ArgKind::Buffer
        );
        assert_eq!(
            kind(
                CL_KERNEL_ARG_ADDRESS_GLOBAL,
                CL_KERNEL_ARG_ACCESS_READ_ONLY,
                "image2d_t"
            ),
            ArgKind::Image(CL_KERNEL_ARG_ACCESS_READ_ONLY as u32)
        );
        assert_eq!(
            kind(CL_KERNEL_ARG_ADDRESS_PRIVATE, none, "sampler_t"),
            ArgKind::Sampler
        );
        assert_eq!(
            kind(CL_KERNEL_ARG_ADDRESS_PRIVATE, none, "int"),
            ArgKind::Value(4)
        );
        assert_eq!(kind(0, 0, ""), ArgKind::Value(4));
        assert_eq!(ArgKind::of(&KernelArg::default()), ArgKind::Unknown);
    }
}
