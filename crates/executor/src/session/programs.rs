//! The builder: a thread that carries out requests that may take long, one at a time, so that a
//! compilation delays neither commands nor the control channel.

use super::headers::Headers;
use super::kernels::{describe, mentions_printf};
use super::ledger::Making;
use super::names::ids;
use super::objects::{Compilation, Context, Program};
use super::table::Object;
use super::Session;
use crate::binaries::{self, Key};
use crate::driver::{self, number, Code, Device};
use crate::images::{digest, Use};
use baltra_opencl::*;
use baltra_ring::Locked;
use baltra_wire::{decode, Control, Id, Notice, Query, Reply, Request, MESSAGE_BYTES_MAX};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// Maximum number of waiting requests; a client that sends more has to wait.
const WAITING_MAX: usize = 256;

struct Worker {
    jobs: SyncSender<Vec<u8>>,
    thread: JoinHandle<()>,
}

/// A session's builder; its thread starts with the first request.
#[derive(Default)]
pub struct Builder {
    worker: Mutex<Option<Worker>>,
    /// Requests that are not answered yet.
    waiting: AtomicUsize,
    /// The binaries that the last [`Request::ProgramDigest`] named and the node lacked.
    lacking: Mutex<Vec<Key>>,
}

impl Builder {
    fn lacking(&self) -> MutexGuard<'_, Vec<Key>> {
        self.lacking.locked()
    }

    /// Hands over the record of a [`Control::Call`].
    pub fn add(&self, session: &Arc<Session>, record: Vec<u8>) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut worker = self.worker.locked();
        let jobs = match &*worker {
            Some(worker) => worker.jobs.clone(),
            None => {
                let (jobs, queue) = sync_channel(WAITING_MAX);
                let own = session.clone();
                let thread = std::thread::spawn(move || {
                    own.owns_thread();
                    own.build_all(queue);
                });
                *worker = Some(Worker {
                    jobs: jobs.clone(),
                    thread,
                });
                jobs
            }
        };
        drop(worker);
        // Fails only if the builder has ended, with its session.
        let _ = jobs.send(record);
    }

    /// Whether all requests are answered.
    pub fn is_idle(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) == 0
    }

    /// Waits for the builder to end; the session is closed.
    pub fn join(&self) {
        let worker = self.worker.locked().take();
        if let Some(Worker { jobs, thread }) = worker {
            drop(jobs);
            drop(thread.join());
        }
    }
}

impl Session {
    fn build_all(&self, jobs: Receiver<Vec<u8>>) {
        for record in jobs {
            if self.is_closed() {
                continue;
            }
            let Ok(Control::Call { call, request }) = decode(&record) else {
                continue;
            };
            let made = Making::of_request(&request);
            let reply = self.build(request);
            if let (Some(made), Ok(built)) = (made, &reply) {
                self.keep_built(made, &record, built);
            }
            self.reply(call, reply);
            self.builder.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Keeps the record of a request for a program, with this reply, if the program exists.
    pub(super) fn keep_built(&self, made: Making, record: &[u8], reply: &Reply) {
        if self.objects.creation(made.id).is_ok() {
            self.ledger.add_built(made, record, reply);
        }
    }

    pub(super) fn build(&self, request: Request) -> Result<Reply, Code> {
        match request {
            Request::ProgramBinary {
                id,
                context,
                devices,
                binaries,
            } => {
                let reply = self.program_binary(id, context, devices, &binaries)?;
                self.keep_binaries(&binaries, &reply);
                Ok(reply)
            }
            Request::ProgramDigest {
                id,
                context,
                devices,
                digests,
            } => self.program_digest(id, context, devices, digests),
            Request::ProgramStored {
                id,
                context,
                device,
                accelerator,
                options,
            } => self.program_stored(id, (context, device), accelerator, options),
            Request::ProgramIl { id, context, il } => {
                let context = self.objects.context(context)?;
                let program = context.context.program_il(il)?;
                self.add_program(id, program, context, (true, false), mentions_printf(il))
            }
            Request::ProgramBuiltIn {
                id,
                context,
                devices,
                names,
            } => {
                let context = self.objects.context(context)?;
                let list = devices_of(&context, devices)?;
                let program = context.context.program_built_in(&list, names)?;
                self.add_program(id, program, context, (false, true), false)
            }
            Request::SpecializationConstant { program, id, value } => {
                let program = self.objects.program(program)?;
                program.driver().specialization_constant(id, value)?;
                Ok(Reply::Done)
            }
            Request::Build {
                program,
                devices,
                options,
                files,
            } => self.build_program(program, devices, options, &files),
            Request::Compile {
                program,
                devices,
                options,
                headers,
                header_names,
                files,
            } => {
                let laid_out = Headers::lay_out(&files)?;
                self.objects.program(program)?.reads(&files, options);
                self.compile(
                    program,
                    devices,
                    options,
                    (headers, &header_names),
                    laid_out,
                )
            }
            Request::Link {
                id,
                context,
                devices,
                options,
                inputs,
            } => self.link(id, context, devices, options, inputs),
            Request::Kernels { program } => {
                let program = self.objects.program(program)?;
                if !program.fixed {
                    self.check_executable(&program)?;
                }
                Ok(self.built(&program, CL_SUCCESS))
            }
            Request::Query(query) => self.query_program(query).map(Reply::Bytes),
            _ => Err(CL_INVALID_VALUE),
        }
    }

    fn build_program(
        &self,
        program: Id,
        devices: &[u8],
        options: &str,
        files: &[(&str, &[u8])],
    ) -> Result<Reply, Code> {
        let program = self.objects.program(program)?;
        let list = devices_of(&program.context, devices)?;
        self.remember(&program, options);
        program.reads(files, options);
        let headers = Headers::lay_out(files)?;
        let options = headers.options(options);
        let driver = program.renewed(&headers)?;
        let added = self.arg_info(&program);
        let code = with_arg_info(&options, added, |options| driver.build(&list, options));
        if self.shared.slices.is_some() {
            program.read_text(files, &options);
        }
        let reply = self.built(&program, code);
        Ok(self.loaded(&program, reply))
    }

    fn add_program(
        &self,
        id: Id,
        program: driver::Program,
        context: Arc<Context>,
        (compiles, fixed): (bool, bool),
        prints: bool,
    ) -> Result<Reply, Code> {
        let program = Program {
            compiles,
            fixed,
            prints: prints.into(),
            ..Program::new(program, context)
        };
        self.objects
            .insert(id, Object::Program(Arc::new(program)))
            .map_err(|_| CL_INVALID_VALUE)?;
        Ok(Reply::Done)
    }

    fn program_binary(
        &self,
        id: Id,
        context: Id,
        devices: &[u8],
        binaries: &[&[u8]],
    ) -> Result<Reply, Code> {
        let name = context;
        let context = self.objects.context(name)?;
        let list = devices_of(&context, devices)?;
        let prints = binaries.iter().any(|binary| mentions_printf(binary));
        // Some drivers program their device within the next call: the device must be allowed to
        // change its image by then.
        let image = self.image_of_binary(name, binaries)?;
        let (program, status) = context.context.program_binary(&list, binaries);
        match (&program, &image) {
            (Ok(_), Some(image)) => self.shared.images.loaded(image),
            (Err(code), Some(image)) => {
                let reason = format!("the driver refused the image (error {code})");
                self.shared.images.not_loaded(image, reason);
            }
            (_, None) => {}
        }
        match program {
            Ok(program) => {
                self.add_program(id, program, context, (false, false), prints)?;
                let program = self.objects.program(id)?;
                *program.image.locked() = image;
                Ok(Reply::Binaries(status))
            }
            // The statuses identify the binary.
            Err(CL_INVALID_BINARY) => Ok(Reply::Binaries(status)),
            Err(code) => Err(code),
        }
    }

    /// Creates a program from binaries that the node has, or replies that it lacks some.
    fn program_digest(
        &self,
        id: Id,
        context: Id,
        devices: &[u8],
        digests: &[u8],
    ) -> Result<Reply, Code> {
        let (keys, rest) = digests.as_chunks::<32>();
        if keys.is_empty() || keys.len() != ids(devices).count() || !rest.is_empty() {
            return Err(CL_INVALID_VALUE);
        }
        // No more than a message could bring.
        let mut room = MESSAGE_BYTES_MAX;
        let mut get = |key: &Key| {
            let binary = self.shared.binaries.get(key, room)?;
            room -= binary.len();
            Some(binary)
        };
        let found: Option<Vec<_>> = keys.iter().map(&mut get).collect();
        let Some(binaries) = found else {
            *self.builder.lacking() = keys.to_vec();
            return Ok(Reply::Lacking);
        };
        let binaries: Vec<&[u8]> = binaries.iter().map(Vec::as_slice).collect();
        let reply = self.program_binary(id, context, devices, &binaries)?;
        let request = Request::ProgramBinary {
            id,
            context,
            devices,
            binaries,
        };
        if self.objects.creation(id).is_ok() {
            self.ledger.add_request(request, &reply);
        }
        Ok(reply)
    }

    /// Creates and builds a program from an accelerator in the node's store.
    fn program_stored(
        &self,
        id: Id,
        (context, device): (Id, Id),
        accelerator: &str,
        options: &str,
    ) -> Result<Reply, Code> {
        let refused = |code, reason: String| Reply::Built {
            code,
            devices: vec![(device, CL_BUILD_ERROR, options.into(), reason.into(), 0)],
            kernels: Vec::new(),
        };
        let is_over = || self.is_closed();
        let (images, session) = (&self.shared.images, self.start.session);
        let image = match images.fetch(session, accelerator, &is_over) {
            Ok(image) => image,
            Err(reason) => return Ok(refused(CL_INVALID_BINARY, reason)),
        };
        let devices = device.to_le_bytes();
        if let Reply::Binaries(codes) = self.program_binary(id, context, &devices, &[&image])? {
            if let Some(code) = codes.into_iter().find(|code| *code != CL_SUCCESS) {
                return Ok(refused(code, "the driver refused the image".into()));
            }
        }
        self.build_program(id, &devices, options, &[])
    }

    /// Stores the binaries that a client has sent because the node lacked them, if the driver has
    /// accepted them.
    fn keep_binaries(&self, binaries: &[&[u8]], reply: &Reply) {
        let lacking = std::mem::take(&mut *self.builder.lacking());
        let accepted = |reply: &Reply| match reply {
            Reply::Binaries(codes) => codes.iter().all(|code| *code == CL_SUCCESS),
            _ => false,
        };
        if lacking.is_empty() || !accepted(reply) {
            return;
        }
        for binary in binaries {
            let key = binaries::digest(binary);
            if lacking.contains(&key) {
                self.shared.binaries.put(&key, binary);
            }
        }
    }

    /// Whether a program that has not been built has kernels nevertheless: some drivers' binaries
    /// do. Intel's runtime crashes when such a program's kernels are listed, and refuses each.
    fn check_executable(&self, program: &Program) -> Result<(), Code> {
        if self.shared.images.is_exclusive() {
            // The build is what has the device hold the image.
            return Err(CL_INVALID_PROGRAM_EXECUTABLE);
        }
        match program.driver().kernel("") {
            Err(CL_INVALID_KERNEL_NAME) | Ok(_) => Ok(()),
            Err(code) => Err(code),
        }
    }

    fn compile(
        &self,
        program: Id,
        devices: &[u8],
        options: &str,
        (headers, names): (&[u8], &[&str]),
        laid_out: Headers<'_>,
    ) -> Result<Reply, Code> {
        let program = self.objects.program(program)?;
        let list = devices_of(&program.context, devices)?;
        let headers = self.programs(headers)?;
        if headers.len() != names.len() {
            return Err(CL_INVALID_VALUE);
        }
        if headers.iter().any(|h| h.prints.load(Ordering::Relaxed)) {
            program.prints.store(true, Ordering::Relaxed);
        }
        let headers = headers.iter().map(|h| h.driver());
        let headers = headers.zip(names.iter().map(|name| (*name).to_owned()));
        self.remember(&program, options);
        let compilation = Compilation {
            driver: program.renewed(&laid_out)?,
            devices: list,
            options: laid_out.options(options),
            headers: headers.collect(),
            _directory: laid_out.into_directory(),
        };
        let added = self.arg_info(&program);
        let code = with_arg_info(&compilation.options, added, |options| {
            compilation.run(options)
        });
        let informed = added == ArgInfo::Tried && !options.contains(ARG_INFO);
        *program.compiled.locked() = informed.then_some(compilation);
        Ok(self.built(&program, code))
    }

    fn link(
        &self,
        id: Id,
        context: Id,
        devices: &[u8],
        options: &str,
        inputs: &[u8],
    ) -> Result<Reply, Code> {
        let context = self.objects.context(context)?;
        let list = devices_of(&context, devices)?;
        let inputs = self.programs(inputs)?;
        let prints = inputs.iter().any(|p| p.prints.load(Ordering::Relaxed));
        let drivers: Vec<_> = inputs.iter().map(|p| p.driver()).collect();
        let raw: Vec<_> = drivers.iter().map(|p| &**p).collect();
        let (mut program, mut code) = context.context.link(&list, options, &raw);
        if code == CL_LINK_PROGRAM_FAILURE && recompile(&inputs) {
            // NVIDIA's linker fails on kernels without arguments that were compiled with argument
            // information.
            (program, code) = context.context.link(&list, options, &raw);
        }
        let Some(program) = program else {
            return Err(if code < 0 {
                code
            } else {
                CL_LINK_PROGRAM_FAILURE
            });
        };
        self.add_program(id, program, context, (false, false), prints)?;
        let program = self.objects.program(id)?;
        self.remember(&program, options);
        let reply = self.built(&program, code);
        Ok(self.loaded(&program, reply))
    }

    fn programs(&self, names: &[u8]) -> Result<Vec<Arc<Program>>, Code> {
        ids(names).map(|id| self.objects.program(id)).collect()
    }

    /// The options for building the program with argument information.
    fn arg_info(&self, program: &Program) -> ArgInfo {
        if !program.compiles {
            ArgInfo::Left
        } else if driver::is_own(&self.shared.options.driver) {
            ArgInfo::Added
        } else {
            ArgInfo::Tried
        }
    }

    fn remember(&self, program: &Program, options: &str) {
        let mut kept = program.options.locked();
        options.clone_into(&mut kept);
    }

    /// The outcome of a build, device by device.
    fn built(&self, program: &Program, code: Code) -> Reply {
        let options = program.options.locked().clone();
        let driver = program.driver();
        let devices = program.context.devices.iter().map(|(id, device)| {
            let ask = |param: i32| driver.build_info(*device, param as u32).unwrap_or_default();
            let mut log = ask(CL_PROGRAM_BUILD_LOG);
            if log.last() == Some(&0) {
                log.pop();
            }
            let status = number(&ask(CL_PROGRAM_BUILD_STATUS)) as i32;
            let kind = match number(&ask(CL_PROGRAM_BINARY_TYPE)) as i32 {
                // Before OpenCL 1.2 (Xilinx XRT), there is no type: every built program is
                // executable.
                CL_PROGRAM_BINARY_TYPE_NONE if code == CL_SUCCESS && status == CL_BUILD_SUCCESS => {
                    CL_PROGRAM_BINARY_TYPE_EXECUTABLE
                }
                kind => kind,
            };
            (*id, status, options.clone(), log, kind as u32)
        });
        let variables = program.context.devices.iter().any(|(_, device)| {
            // Before OpenCL 2.0, programs have no variables, and drivers refuse the question.
            let bytes =
                driver.build_info(*device, CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE as u32);
            bytes.is_ok_and(|bytes| number(&bytes) > 0)
        });
        // Kernels of an earlier build may still be there.
        program.has_variables.fetch_or(variables, Ordering::Relaxed);
        let kernels = program
            .context
            .devices
            .first()
            .and_then(|(_, device)| describe(&driver, *device).ok());
        Reply::Built {
            code,
            devices: devices.collect(),
            kernels: kernels.unwrap_or_default(),
        }
    }

    /// On a device that holds one image at a time: waits until it holds this one.
    fn image_of_binary(&self, context: Id, binaries: &[&[u8]]) -> Result<Option<Use>, Code> {
        let images = &self.shared.images;
        let Some(binary) = binaries.first().filter(|_| images.is_exclusive()) else {
            return Ok(None);
        };
        let is_over = || self.is_closed();
        let session = self.start.session;
        let loaded = images.load(session, digest(binary), Some(binary), &[], &is_over);
        loaded.map(Some).map_err(|reason| {
            tracing::info!(session, reason, "image refused");
            // There is no log yet where the caller would find it.
            self.notices.send(&Notice::Context {
                context,
                text: &reason,
            });
            CL_DEVICE_NOT_AVAILABLE
        })
    }

    /// On a device that holds one image at a time a program is built once the device holds its
    /// image: returns the build's result.
    fn loaded(&self, program: &Program, built: Reply) -> Reply {
        let Reply::Built {
            code: CL_SUCCESS,
            devices,
            kernels,
        } = built
        else {
            return built;
        };
        let executable = |kind: u32| kind == CL_PROGRAM_BINARY_TYPE_EXECUTABLE as u32;
        let wanted = !program.fixed
            && self.shared.images.is_exclusive()
            && devices.iter().any(|d| executable(d.4));
        let names: Vec<String> = kernels.iter().map(|k| k.name.clone()).collect();
        let outcome = if wanted {
            self.load(program, &names)
        } else {
            Ok(())
        };
        let Err(reason) = outcome else {
            return Reply::Built {
                code: CL_SUCCESS,
                devices,
                kernels,
            };
        };
        tracing::info!(session = self.start.session, reason, "image refused");
        let refused = devices.into_iter().map(|(id, _, options, mut log, _)| {
            log.extend_from_slice(reason.as_bytes());
            (id, CL_BUILD_ERROR, options, log, 0)
        });
        Reply::Built {
            code: CL_DEVICE_NOT_AVAILABLE,
            devices: refused.collect(),
            kernels: Vec::new(),
        }
    }

    fn load(&self, program: &Program, kernels: &[String]) -> Result<(), String> {
        let earlier = program.image.locked().take();
        let images = &self.shared.images;
        let (session, is_over) = (self.start.session, || self.is_closed());
        let claim = match &earlier {
            // The client's binary is the image, whatever binary the driver returns.
            Some(image) if !program.compiles => {
                images.load(session, image.digest().to_owned(), None, kernels, &is_over)?
            }
            _ => {
                let binaries = program.driver().binaries();
                let binaries = binaries
                    .map_err(|code| format!("the driver returned no binary (error {code})"))?;
                let binary = binaries.into_iter().find(|b| !b.is_empty());
                let binary = binary.ok_or("the driver returned no binary")?;
                images.load(session, digest(&binary), Some(&binary), kernels, &is_over)?
            }
        };
        // The driver has built the program already.
        images.loaded(&claim);
        *program.image.locked() = Some(claim);
        Ok(())
    }

    fn query_program(&self, query: Query) -> Result<Vec<u8>, Code> {
        match query {
            Query::Program { program, param } => {
                let program = self.objects.program(program)?;
                if param != CL_PROGRAM_BINARIES as u32 {
                    return program.driver().info(param);
                }
                let binaries = program.driver().binaries()?;
                Ok(binaries
                    .into_iter()
                    .find(|b| !b.is_empty())
                    .unwrap_or_default())
            }
            Query::ProgramBuild {
                program,
                device,
                param,
            } => {
                let program = self.objects.program(program)?;
                if param == CL_PROGRAM_BUILD_OPTIONS as u32 {
                    let options = program.options.locked();
                    return Ok([options.as_bytes(), &[0]].concat());
                }
                let device = program.context.device(device)?;
                program.driver().build_info(device, param)
            }
            Query::KernelWorkGroup {
                kernel,
                device,
                param,
            } => self.with_kernel(kernel, |kernel| {
                kernel.work_group_info(self.device(device)?, param)
            }),
            Query::KernelSubGroup {
                kernel,
                device,
                param,
                input,
                len_max,
            } => self.with_kernel(kernel, |kernel| {
                let device = self.device(device)?;
                kernel.sub_group_info(device, param, input, len_max.min(1 << 16) as usize)
            }),
            Query::KernelArg {
                kernel,
                index,
                param,
            } => self.with_kernel(kernel, |kernel| kernel.arg_info(index, param)),
            _ => Err(CL_INVALID_VALUE),
        }
    }

    fn with_kernel(
        &self,
        id: Id,
        ask: impl FnOnce(&driver::Kernel) -> Result<Vec<u8>, Code>,
    ) -> Result<Vec<u8>, Code> {
        let kernel = self.objects.kernel(id)?;
        let queried = kernel
            .queried
            .get_or_init(|| kernel.program.driver().kernel(&kernel.name));
        ask(queried.as_ref().map_err(|code| *code)?)
    }
}

/// Compiles without argument information what was compiled with it; returns whether anything
/// changed.
fn recompile(programs: &[Arc<Program>]) -> bool {
    let mut changed = false;
    for program in programs {
        let mut compiled = program.compiled.locked();
        if let Some(compilation) = compiled.take() {
            changed |= compilation.run(&compilation.options).is_ok();
        }
    }
    changed
}

/// The devices of a context with these ids; none given: the driver's default, all.
fn devices_of(context: &Context, names: &[u8]) -> Result<Vec<Device>, Code> {
    ids(names).map(|id| context.device(id)).collect()
}

const ARG_INFO: &str = "-cl-kernel-arg-info";

/// Whether a build asks for argument information, which the library needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArgInfo {
    /// Only if the application does: nothing is compiled.
    Left,
    /// Always. The executor's own compiler fails for no source because of it, and a second
    /// compilation would have twice the time limit.
    Added,
    /// If that fails, the application's own options decide, because NVIDIA's compiler fails with
    /// the information on kernels without effect.
    Tried,
}

/// Builds with argument information, without showing it among the application's options.
fn with_arg_info(
    options: &str,
    info: ArgInfo,
    mut build: impl FnMut(&str) -> driver::Result<()>,
) -> Code {
    if info != ArgInfo::Left && !options.contains(ARG_INFO) {
        let built = build(&format!("{ARG_INFO} {options}"));
        if built.is_ok() || info == ArgInfo::Added {
            return built.err().unwrap_or(CL_SUCCESS);
        }
    }
    build(options).err().unwrap_or(CL_SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_build_is_repeated_only_if_the_added_option_may_be_the_cause() {
        let builds = |info, options| {
            let mut seen = Vec::new();
            let code = with_arg_info(options, info, |options: &str| {
                seen.push(options.trim().to_owned());
                Err(CL_BUILD_PROGRAM_FAILURE)
            });
            assert_eq!(code, CL_BUILD_PROGRAM_FAILURE);
            seen
        };
        assert_eq!(builds(ArgInfo::Added, ""), [ARG_INFO]);
        assert_eq!(builds(ArgInfo::Tried, ""), [ARG_INFO, ""]);
        assert_eq!(builds(ArgInfo::Tried, ARG_INFO), [ARG_INFO]);
        assert_eq!(builds(ArgInfo::Left, "-w"), ["-w"]);
    }
}
