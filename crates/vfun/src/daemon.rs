//! `baltra vfun`: the VMs, and the requests that change them.

use crate::broker::{Broker, PoolOptions};
use crate::control::{self, control_socket, Answer, Attached, Request, Status};
use crate::definition::{load_function, valid_name};
use crate::vm::{is_worker, records, Environment, Record, Vm, Workers};
use anyhow::{bail, Context, Result};
use rustix::event::{poll, PollFd, PollFlags};
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most VMs of a daemon.
const VMS_MAX: usize = 1024;

/// The daemon's options.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory of its sockets.
    pub runtime: PathBuf,
    /// Directory of its persistent state.
    pub state: PathBuf,
    /// Directory of functions, each a directory.
    pub functions: PathBuf,
    /// Device Managers for accelerators; none: all functions run in software.
    pub endpoints: Vec<String>,
    /// The registry that allocates the managers' devices, if there is one.
    pub pool: Option<PoolOptions>,
    /// The program with the subcommand `vfun-worker`.
    pub program: PathBuf,
    /// Whether workers are sandboxed.
    pub sandbox: bool,
}

fn directory(path: &Path) -> Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o711)
        .create(path)
        .with_context(|| format!("cannot create {}", path.display()))
}

/// Serves until `stop` is readable. Then all VMs' workers end; the VMs keep their regions.
pub fn serve(options: &Options, stop: impl AsFd) -> Result<()> {
    let pool = options.pool.as_ref();
    let broker = pool.map(|pool| Broker::new(pool, &options.endpoints));
    let environment = Environment {
        program: options.program.clone(),
        functions: options.functions.clone(),
        sockets: options.runtime.join("vm"),
        state: options.state.join("vm"),
        work_dirs: options.state.join("vm-workers"),
        endpoints: options.endpoints.clone(),
        broker: broker.transpose()?.map(Arc::new),
        sandbox: options.sandbox,
        workers: Workers::default(),
    };
    directory(&options.runtime)?;
    directory(&environment.sockets)?;
    directory(&environment.state)?;
    // Those of an earlier daemon that was killed.
    if let Err(error) = std::fs::remove_dir_all(&environment.work_dirs) {
        if error.kind() != std::io::ErrorKind::NotFound {
            let path = environment.work_dirs.display();
            tracing::warn!(%path, %error, "cannot remove the folders of earlier workers");
        }
    }
    directory(&environment.work_dirs)?;
    let mut daemon = Daemon {
        vms: BTreeMap::new(),
        environment,
    };
    for record in records(&daemon.environment.state)? {
        let name = record.definition.name.clone();
        match Vm::start(&daemon.environment, record) {
            Ok(vm) => drop(daemon.vms.insert(name, vm)),
            Err(error) => {
                tracing::error!(
                    vm = name,
                    error = format!("{error:#}"),
                    "cannot attach a VM again"
                );
            }
        }
    }
    let path = control_socket(&options.runtime);
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path)
        .with_context(|| format!("cannot listen at {}", path.display()))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    tracing::info!(socket = %path.display(), vms = daemon.vms.len(), "serving");
    loop {
        let mut fds = [
            PollFd::new(&stop, PollFlags::IN),
            PollFd::new(&listener, PollFlags::IN),
        ];
        if poll(&mut fds, None).is_err() {
            continue;
        }
        if !fds[0].revents().is_empty() {
            break;
        }
        let Ok((socket, _)) = listener.accept() else {
            continue;
        };
        if !is_worker(&daemon.environment.workers, &socket) {
            control::answer(&socket, |request| daemon.answer(request));
        }
    }
    let _ = std::fs::remove_file(&path);
    Ok(())
}

struct Daemon {
    environment: Environment,
    vms: BTreeMap<String, Vm>,
}

impl Daemon {
    fn answer(&mut self, request: Request) -> Result<Answer> {
        match request {
            Request::Attach(definition) => {
                definition.check()?;
                for name in &definition.functions {
                    load_function(&self.environment.functions, name)
                        .with_context(|| format!("invalid function '{name}'"))?;
                }
                let name = definition.name.clone();
                if let Some(vm) = self.vms.get(&name) {
                    // A repeated request with equal values only shows the VM.
                    if vm.definition != *definition {
                        bail!(
                            "VM '{name}' is already attached with other options: detach it first"
                        );
                    }
                } else {
                    if self.vms.len() >= VMS_MAX {
                        bail!("{VMS_MAX} VMs are attached, the maximum: detach one first");
                    }
                    let record = Record {
                        definition: *definition,
                        holders: Vec::new(),
                    };
                    let vm = Vm::start(&self.environment, record)?;
                    self.vms.insert(name.clone(), vm);
                }
                let vm = &self.vms[&name];
                let memory = vm.shown().memory;
                Ok(Answer::Attached(Box::new(Attached {
                    definition: vm.definition.clone(),
                    socket: vm.socket.clone(),
                    stream: vm.stream.clone(),
                    vectors: vm.definition.vectors(),
                    memory: memory.map(|fd| format!("/proc/{}/fd/{fd}", std::process::id()).into()),
                })))
            }
            Request::List => {
                let vms = self.vms.values().map(|vm| {
                    let shown = vm.shown();
                    Status {
                        definition: vm.definition.clone(),
                        socket: vm.socket.clone(),
                        peers: shown.peers,
                        worker: shown.worker,
                        restarts: shown.restarts,
                        usage: shown.usage,
                    }
                });
                Ok(Answer::Vms(vms.collect()))
            }
            Request::Detach { name } => {
                if !valid_name(&name) || self.vms.remove(&name).is_none() {
                    bail!("VM '{name}' is not attached (`baltra vm ls` lists the VMs)");
                }
                Vm::forget(&self.environment, &name);
                Ok(Answer::Done)
            }
        }
    }
}
