//! Programs: one object for the application, one replica in each session of its context.

use crate::core::build::{Build, Gathering};
use crate::core::context::Context;
use crate::core::device::Device;
use crate::core::lost;
use crate::core::object::{Class, Object, Ref, WeakRef};
use baltra_opencl::*;
use baltra_session::client::{Client, Lost};
use baltra_wire::{Control, Id, KernelDescription, Query, Reply, Request};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// The source of a program.
#[derive(Debug)]
pub enum Origin {
    /// The source strings, joined.
    Source(Vec<u8>),
    /// Intermediate language.
    Il(Vec<u8>),
    /// Binaries, which live in the driver alone.
    Binary,
    /// The device's own kernels: names, separated by semicolons.
    BuiltIn,
    /// `clLinkProgram`.
    Linked,
}

/// A program.
pub struct Program {
    /// The context.
    pub context: Ref<Context>,
    /// The devices that it is for.
    pub devices: Vec<Ref<Device>>,
    /// The program's source.
    pub origin: Origin,
    /// Kernel objects made from it and still alive.
    pub kernels_attached: AtomicU32,
    replicas: Vec<Replica>,
    state: Mutex<State>,
    me: WeakRef<Program>,
}

impl Class for Program {
    type Raw = _cl_program;
    const TAG: u32 = 0xba17_0007;
    const INVALID: i32 = CL_INVALID_PROGRAM;
}

/// The program in one session.
#[derive(Clone)]
pub struct Replica {
    /// The session.
    pub client: Arc<Client>,
    /// The program's name there.
    pub id: Id,
    /// The context's name there.
    pub context: Id,
    /// Index of the context's member that has the session.
    pub member: usize,
}

/// Results of building.
#[derive(Default)]
pub struct State {
    /// One for each of the program's devices.
    pub builds: Vec<Build>,
    /// The kernels of each replica; empty: it has no executable.
    kernels: Vec<Vec<Arc<KernelDescription>>>,
    /// A build, compilation or link is on its way.
    pub busy: bool,
    /// Each device's binary, once queried.
    binaries: Option<Vec<Arc<[u8]>>>,
    /// The drivers have been queried for kernels that the binary has without a build.
    queried: bool,
}

impl Program {
    /// `clCreateProgramWithSource`: does not wait for the executor.
    pub fn from_source(context: &Ref<Context>, source: Vec<u8>) -> Result<Ref<Program>, i32> {
        let program = Program::new(context, context.devices.clone(), Origin::Source(source));
        let Origin::Source(source) = &program.origin else {
            unreachable!("made two lines above");
        };
        for replica in &program.replicas {
            replica.control(&Control::ProgramSource {
                id: replica.id,
                context: replica.context,
                source,
            })?;
        }
        Ok(program)
    }

    /// `clCreateProgramWithIL`.
    pub fn from_il(context: &Ref<Context>, il: Vec<u8>) -> Result<Ref<Program>, i32> {
        let program = Program::new(context, context.devices.clone(), Origin::Il(il));
        let Origin::Il(il) = &program.origin else {
            unreachable!("made two lines above");
        };
        for replica in &program.replicas {
            replica.call(Request::ProgramIl {
                id: replica.id,
                context: replica.context,
                il,
            })?;
        }
        Ok(program)
    }

    /// `clCreateProgramWithBinary`: the program, or the error, and each binary's status.
    pub fn from_binaries(
        context: &Ref<Context>,
        devices: Vec<Ref<Device>>,
        binaries: &[&[u8]],
    ) -> (Result<Ref<Program>, i32>, Vec<i32>) {
        let program = Program::new(context, devices, Origin::Binary);
        let mut statuses = vec![CL_SUCCESS; binaries.len()];
        // On a pool, the first failure of its devices.
        let mut report = |at: usize, status: i32| {
            if statuses[at] == CL_SUCCESS {
                statuses[at] = status;
            }
        };
        let mut outcome = Ok(());
        for replica in &program.replicas {
            let mine = program.devices_at(replica.member);
            let mine_binaries = mine.iter().map(|&at| binaries[at]).collect();
            let names = program.names(&mine);
            let reply =
                replica
                    .client
                    .program_binary(replica.id, replica.context, &names, mine_binaries);
            let reply = replied(reply);
            match reply {
                Ok(Reply::Binaries(found)) => {
                    for (&at, status) in mine.iter().zip(found) {
                        report(at, status);
                        if status != CL_SUCCESS {
                            // "CL_INVALID_BINARY if an invalid program binary was encountered
                            // for any device."
                            outcome = Err(CL_INVALID_BINARY);
                        }
                    }
                }
                Ok(_) => {}
                Err(code) => {
                    mine.iter().for_each(|&at| report(at, code));
                    outcome = Err(code);
                }
            }
        }
        (outcome.map(|()| program), statuses)
    }

    /// `clCreateProgramWithBuiltInKernels`.
    pub fn from_built_in(
        context: &Ref<Context>,
        devices: Vec<Ref<Device>>,
        names: &str,
    ) -> Result<Ref<Program>, i32> {
        let program = Program::new(context, devices, Origin::BuiltIn);
        for replica in &program.replicas {
            replica.call(Request::ProgramBuiltIn {
                id: replica.id,
                context: replica.context,
                devices: &program.names(&program.devices_at(replica.member)),
                names,
            })?;
            // The kernels of such a program exist without a build.
            let reply = replica.call(Request::Kernels {
                program: replica.id,
            })?;
            if let Reply::Built { kernels, .. } = reply {
                program.executable(replica, kernels);
            }
        }
        Ok(program)
    }

    /// A program whose replicas have ids but have not been created at the executors yet.
    pub fn new(context: &Ref<Context>, devices: Vec<Ref<Device>>, origin: Origin) -> Ref<Program> {
        let replicas: Vec<Replica> = context
            .members
            .iter()
            .enumerate()
            .filter(|(member, _)| {
                let here = |d: &Ref<Device>| context.members_of(d).any(|m| m == *member);
                !context.is_gone(*member) && devices.iter().any(here)
            })
            .map(|(at, member)| Replica {
                id: member.client.new_id(),
                client: member.client.clone(),
                context: member.id,
                member: at,
            })
            .collect();
        let state = State {
            builds: vec![Build::default(); devices.len()],
            kernels: vec![Vec::new(); replicas.len()],
            ..State::default()
        };
        Object::new_cyclic(|me| Program {
            context: context.clone(),
            devices,
            origin,
            kernels_attached: AtomicU32::new(0),
            replicas,
            state: Mutex::new(state),
            me: me.clone(),
        })
    }

    /// The replicas, in the order of the context's sessions.
    pub fn replicas(&self) -> &[Replica] {
        &self.replicas
    }

    /// The replica in one of the context's sessions.
    pub fn replica(&self, member: usize) -> Option<&Replica> {
        self.replicas.iter().find(|r| r.member == member)
    }

    /// Indices of the devices that belong to one of the context's sessions.
    pub fn devices_at(&self, member: usize) -> Vec<usize> {
        let here = |at: &usize| {
            let mut members = self.context.members_of(&self.devices[*at]);
            members.any(|m| m == member)
        };
        (0..self.devices.len()).filter(here).collect()
    }

    /// Devices as the protocol names them, four bytes each.
    pub fn names(&self, devices: &[usize]) -> Vec<u8> {
        let name = |&at: &usize| self.devices[at].id.to_le_bytes();
        devices.iter().flat_map(name).collect()
    }

    /// Locks the state, for the duration of an access.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics with the lock")
    }

    /// This program, to keep while something works on it.
    pub fn share(&self) -> Ref<Program> {
        self.me.upgrade().expect("whoever calls holds it")
    }

    /// The kernels of the first replica that has an executable.
    pub fn kernels(&self) -> Option<Vec<Arc<KernelDescription>>> {
        self.look_into_binary();
        let state = self.state();
        if !state.builds.iter().any(Build::is_executable) {
            return None;
        }
        let found = state.kernels.iter().find(|k| !k.is_empty());
        Some(found.cloned().unwrap_or_default())
    }

    /// Queries the drivers for kernels of an unbuilt binary: some drivers' binaries have them.
    fn look_into_binary(&self) {
        if !matches!(self.origin, Origin::Binary) {
            return;
        }
        let mut state = self.state();
        let is_built = |build: &Build| build.status != CL_BUILD_NONE;
        if state.queried || state.busy || state.builds.iter().any(is_built) {
            return;
        }
        state.queried = true;
        drop(state);
        let able = |replica: &&Replica| replica.client.looks_into_binaries();
        for replica in self.replicas.iter().filter(able) {
            let reply = replica.call(Request::Kernels {
                program: replica.id,
            });
            // After an error, the program has to be built.
            let Ok(Reply::Built {
                devices, kernels, ..
            }) = reply
            else {
                continue;
            };
            if devices.iter().any(|device| device.4 == EXECUTABLE) {
                self.executable(replica, kernels);
            }
        }
    }

    /// A kernel's description in each replica: `None` if it has no kernel of the name.
    pub fn describe(&self, name: &str) -> Vec<Option<Arc<KernelDescription>>> {
        let find = |kernels: &Vec<Arc<KernelDescription>>| {
            kernels.iter().find(|k| k.name == name).cloned()
        };
        self.state().kernels.iter().map(find).collect()
    }

    /// The replicas in sessions that are there.
    pub fn present(&self) -> impl Iterator<Item = &Replica> {
        let gone = |replica: &&Replica| self.context.is_gone(replica.member);
        self.replicas.iter().filter(move |replica| !gone(replica))
    }

    /// Each device's binary; empty if it has none: a pool of unlike devices.
    pub fn binaries(&self) -> Result<Vec<Arc<[u8]>>, i32> {
        if let Some(known) = &self.state().binaries {
            return Ok(known.clone());
        }
        let mut binaries: Vec<Arc<[u8]>> = vec![Arc::from([]); self.devices.len()];
        for replica in self.present() {
            let has_none = |at: &usize| {
                let mut pool = self.devices[*at].pool().into_iter();
                binaries[*at].is_empty() && pool.all(|pool| pool.is_uniform)
            };
            let mine: Vec<usize> = self.devices_at(replica.member);
            let mine: Vec<usize> = mine.into_iter().filter(has_none).collect();
            if mine.is_empty() {
                continue;
            }
            let reply = replica.call(Request::Query(Query::Program {
                program: replica.id,
                param: CL_PROGRAM_BINARIES as u32,
            }))?;
            let Reply::Bytes(bytes) = reply else {
                return Err(CL_OUT_OF_RESOURCES);
            };
            let binary: Arc<[u8]> = bytes.into();
            for at in mine {
                binaries[at] = binary.clone();
            }
        }
        let mut state = self.state();
        if !state.busy {
            state.binaries = Some(binaries.clone());
        }
        Ok(binaries)
    }

    /// An information query that the driver answers, from the first replica.
    pub fn query(&self, param: u32) -> Result<Vec<u8>, i32> {
        let replica = self.present().next().ok_or(CL_INVALID_PROGRAM)?;
        match replica.call(Request::Query(Query::Program {
            program: replica.id,
            param,
        }))? {
            Reply::Bytes(bytes) => Ok(bytes),
            _ => Err(CL_INVALID_VALUE),
        }
    }

    /// `clSetProgramSpecializationConstant`.
    pub fn specialize(&self, id: u32, value: &[u8]) -> Result<(), i32> {
        for replica in self.present() {
            replica.call(Request::SpecializationConstant {
                program: replica.id,
                id,
                value,
            })?;
        }
        Ok(())
    }

    /// Marks the program as being built.
    pub fn begin(&self, devices: &[usize], options: &str) -> Result<(), i32> {
        let mut state = self.state();
        // "CL_INVALID_OPERATION if the build of a program executable for any of the devices
        // listed in device_list by a previous call to clBuildProgram for program has not
        // completed."
        if state.busy {
            return Err(CL_INVALID_OPERATION);
        }
        state.busy = true;
        state.binaries = None;
        for &at in devices {
            state.builds[at] = Build::begun(options);
        }
        Ok(())
    }

    /// Stores the sessions' results.
    pub fn end(&self, gathering: &Gathering) {
        let mut state = self.state();
        for (member, reply) in gathering.replies() {
            let Some(at) = self.replicas.iter().position(|r| r.member == *member) else {
                continue;
            };
            let mine = self.devices_at(*member);
            match reply {
                Reply::Built {
                    devices, kernels, ..
                } => {
                    for (id, status, options, log, kind) in devices {
                        let here = mine.iter().find(|&&d| self.devices[d].id == *id);
                        if let Some(&device) = here {
                            state.builds[device].answered(*status, options, log, *kind);
                        }
                    }
                    state.kernels[at] = kernels.iter().cloned().map(Arc::new).collect();
                }
                Reply::Error(code) => {
                    state.kernels[at].clear();
                    let text =
                        format!("the driver failed with error {code} and returned no build log");
                    for &device in &mine {
                        if self.context.pooled {
                            // Another of the pool's devices may have succeeded.
                            state.builds[device].status = CL_BUILD_ERROR;
                        }
                        let log = &mut state.builds[device].log;
                        if log.is_empty() {
                            log.extend_from_slice(text.as_bytes());
                        }
                    }
                }
                _ => {}
            }
            for device in mine {
                state.builds[device].settle();
            }
        }
        state.busy = false;
    }

    /// The kernels of a program that needs no build.
    fn executable(&self, replica: &Replica, kernels: Vec<KernelDescription>) {
        let mut state = self.state();
        for at in self.devices_at(replica.member) {
            state.builds[at].answered(CL_BUILD_SUCCESS, "", &[], EXECUTABLE);
        }
        if let Some(at) = self
            .replicas
            .iter()
            .position(|r| r.member == replica.member)
        {
            state.kernels[at] = kernels.into_iter().map(Arc::new).collect();
        }
    }
}

const EXECUTABLE: u32 = CL_PROGRAM_BINARY_TYPE_EXECUTABLE as u32;

impl Replica {
    /// A message without an answer.
    pub fn control(&self, message: &Control<'_>) -> Result<(), i32> {
        self.client.control(message).map_err(lost)
    }

    /// Sends a request; an OpenCL error in the reply is returned as an error.
    pub fn call(&self, request: Request<'_>) -> Result<Reply, i32> {
        replied(self.client.call(request))
    }
}

/// An OpenCL error in a reply is returned as an error.
fn replied(reply: Result<Reply, Lost>) -> Result<Reply, i32> {
    match reply.map_err(lost)? {
        Reply::Error(code) => Err(code),
        reply => Ok(reply),
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        for replica in &self.replicas {
            // A lost session has nothing to release.
            let _ = replica.client.release(replica.id, None);
        }
    }
}

/// A kernel object counts as attached to its program until it is freed.
pub struct Attached(Ref<Program>);

impl Attached {
    /// Counts one.
    pub fn new(program: &Ref<Program>) -> Attached {
        program.kernels_attached.fetch_add(1, Ordering::AcqRel);
        Attached(program.clone())
    }
}

impl std::ops::Deref for Attached {
    type Target = Ref<Program>;

    fn deref(&self) -> &Ref<Program> {
        &self.0
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.0.kernels_attached.fetch_sub(1, Ordering::AcqRel);
    }
}
