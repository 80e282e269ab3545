//! A function's program in a session: the built program, its kernels and its constants.

use super::binaries::{self, Binaries};
use super::error::StartError;
use baltra_functions::manifest::{Implementation, Opencl};
use baltra_functions::Function;
use baltra_ring::Locked;
use baltra_session::client::{Block, Client, Lost};
use baltra_wire::opencl::{
    text_of, DEVICE_NOT_AVAILABLE, MEM_READ_ONLY, PROGRAM_BINARIES, PROGRAM_BUILD_LOG, SUCCESS,
};
use baltra_wire::{Backing, Control, Id, KernelDescription, Query, Reply, Request, Version};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

/// Most characters of a compiler's log in an error.
const LOG_CHARS_MAX: usize = 4096;

/// The first version with [`Request::ProgramStored`].
const STORES: Version = Version { major: 1, minor: 5 };

/// The program, its context and its session.
pub struct Program {
    /// The session.
    pub client: Arc<Client>,
    /// The context.
    pub context: Id,
    /// The program.
    pub id: Id,
    kernels: HashMap<String, KernelDescription>,
    function: Arc<Function>,
    constants: Mutex<HashMap<usize, Arc<Constant>>>,
    /// The key for caching the program's binary, if the program was built from its source.
    new_key: Option<String>,
}

type Built = (Id, Vec<KernelDescription>);

/// A constant array of the manifest, on the device.
pub struct Constant {
    /// The buffer.
    pub id: Id,
    /// Its memory, if the device works on host memory.
    _block: OnceLock<Block>,
}

impl Program {
    /// Creates a context in the session and waits until its node has done so.
    pub fn context(client: &Client) -> Result<Id, StartError> {
        let context = client.new_id();
        client.control(&Control::Context {
            id: context,
            devices: &0u32.to_le_bytes(),
        })?;
        client.confirm(context)?;
        Ok(context)
    }

    /// Builds the function's program in a context: for a board from its image; from an accelerator
    /// in the node's store; otherwise from a cached binary of the driver, or from its source.
    pub fn build(
        (client, context): (&Arc<Client>, Id),
        function: &Arc<Function>,
        implementation: usize,
        binaries: &Binaries,
    ) -> Result<Program, StartError> {
        let mut new_key = None;
        let wanted = function.manifest.implementations.get(implementation);
        let (id, kernels) = match wanted {
            Some(Implementation::Board(board)) => {
                from_image(client, context, function, &board.image)?
            }
            Some(Implementation::Opencl(wanted)) if wanted.source.is_none() => {
                from_store(client, context, wanted)?
            }
            Some(Implementation::Opencl(wanted)) => {
                let key = binaries::key(client.device(), function, implementation);
                let mut built = None;
                if let Some(binary) = binaries.get(&key) {
                    built = from_binary(client, context, &binary, &wanted.options)?;
                    if built.is_none() {
                        binaries.remove(&key);
                    }
                }
                match built {
                    Some(built) => built,
                    None => {
                        new_key = Some(key);
                        from_source(client, context, function, wanted)?
                    }
                }
            }
            _ => {
                let reason = "internal error: not a device implementation";
                return Err(StartError::Function(reason.into()));
            }
        };
        let kernels = kernels.into_iter().map(|k| (k.name.clone(), k)).collect();
        let program = Program {
            client: client.clone(),
            context,
            id,
            kernels,
            function: function.clone(),
            constants: Mutex::default(),
            new_key,
        };
        if matches!(wanted, Some(Implementation::Opencl(_))) {
            program.check_kernels(implementation)?;
        }
        Ok(program)
    }

    /// Checks that every kernel that the manifest starts exists and takes the given number of
    /// arguments.
    fn check_kernels(&self, implementation: usize) -> Result<(), StartError> {
        for (name, given) in self.function.kernels(implementation) {
            let taken = self.kernel(name)?.args.len();
            if taken != given {
                return Err(StartError::Function(format!(
                    "kernel '{name}' takes {taken} arguments, but the manifest lists {given}"
                )));
            }
        }
        Ok(())
    }

    /// Caches the binary that the driver built from the source. Blocks.
    pub fn keep_binary(&self, binaries: &Binaries) {
        let Some(key) = &self.new_key else {
            return;
        };
        let reply = self.client.call(Request::Query(Query::Program {
            program: self.id,
            param: PROGRAM_BINARIES,
        }));
        if let Ok(Reply::Bytes(binary)) = reply {
            binaries.put(key.clone(), binary);
        }
    }

    /// The kernel's description; the error lists the existing ones.
    pub fn kernel(&self, name: &str) -> Result<&KernelDescription, StartError> {
        self.kernels.get(name).ok_or_else(|| {
            let mut names: Vec<_> = self.kernels.keys().map(String::as_str).collect();
            names.sort_unstable();
            StartError::Function(format!(
                "the program has no kernel '{name}' (its kernels: {})",
                names.join(", ")
            ))
        })
    }

    /// A constant's buffer, written at its first use.
    pub fn constant(&self, index: usize) -> Result<Arc<Constant>, Lost> {
        let mut constants = self.constants.locked();
        if let Some(constant) = constants.get(&index) {
            return Ok(constant.clone());
        }
        let bytes = self.function.constant(index);
        let client = &self.client;
        let len = (bytes.len() as u64).max(1);
        let mut block = client.allocate(len, 4096)?;
        block.write(0, &bytes);
        let id = client.new_id();
        let host = client.host_memory();
        let backing = if host {
            Backing::Arena(block.payload())
        } else {
            Backing::Device(Some(block.payload()))
        };
        client.control(&Control::Buffer {
            id,
            context: self.context,
            flags: MEM_READ_ONLY,
            size: len,
            backing,
        })?;
        let kept = OnceLock::new();
        if host {
            let _ = kept.set(block);
        } else {
            // The device has its copy when the control channel has processed this request.
            client.call_then(Request::Sync, Box::new(move |_| drop(block)))?;
        }
        let constant = Arc::new(Constant { id, _block: kept });
        constants.insert(index, constant.clone());
        Ok(constant)
    }
}

/// Returns `None` if the driver rejects the binary.
fn from_binary(
    client: &Client,
    context: Id,
    binary: &[u8],
    options: &str,
) -> Result<Option<Built>, Lost> {
    let id = client.new_id();
    let made = client.program_binary(id, context, &0u32.to_le_bytes(), vec![binary])?;
    if let Reply::Error(code @ DEVICE_NOT_AVAILABLE) = made {
        return Err(Lost(code));
    }
    if !matches!(made, Reply::Binaries(statuses) if statuses.iter().all(|s| *s == SUCCESS)) {
        return Ok(None);
    }
    let reply = client.call(Request::Build {
        program: id,
        devices: &[],
        options,
        files: Vec::new(),
    })?;
    Ok(match reply {
        Reply::Built {
            code: SUCCESS,
            kernels,
            ..
        } if !kernels.is_empty() => Some((id, kernels)),
        _ => None,
    })
}

/// Creates the program from a board's image.
fn from_image(
    client: &Client,
    context: Id,
    function: &Function,
    name: &str,
) -> Result<Built, StartError> {
    let image = file(function, name)?;
    let id = client.new_id();
    let made = client.program_binary(id, context, &0u32.to_le_bytes(), vec![image])?;
    match made {
        Reply::Binaries(statuses) if statuses.iter().all(|s| *s == SUCCESS) => {}
        Reply::Binaries(statuses) => {
            let code = statuses.into_iter().find(|s| *s != SUCCESS);
            return Err(build_error(name, code.unwrap_or_default(), &[]));
        }
        other => return built(client, id, name, other),
    }
    let reply = client.call(Request::Build {
        program: id,
        devices: &[],
        options: "",
        files: Vec::new(),
    })?;
    built(client, id, name, reply)
}

/// A file of the function.
fn file<'a>(function: &'a Function, name: &str) -> Result<&'a [u8], StartError> {
    let contents = function.files.contents.get(name);
    let missing = || StartError::Function(format!("'{name}' is not among the function's files"));
    contents.map(|bytes| &bytes[..]).ok_or_else(missing)
}

/// Creates the program from an accelerator in the node's store.
fn from_store(client: &Client, context: Id, wanted: &Opencl) -> Result<Built, StartError> {
    let accelerator = wanted.accelerator.as_deref().unwrap_or_default();
    if client.welcome().version < STORES {
        return Err(StartError::Node(format!(
            "the node's release does not load accelerator '{accelerator}' from its store: update it"
        )));
    }
    let id = client.new_id();
    let reply = client.call(Request::ProgramStored {
        id,
        context,
        device: 0,
        accelerator,
        options: &wanted.options,
    })?;
    built(client, id, &format!("'{accelerator}'"), reply)
}

fn from_source(
    client: &Client,
    context: Id,
    function: &Function,
    wanted: &Opencl,
) -> Result<Built, StartError> {
    let id = client.new_id();
    let source = wanted.source.as_deref().unwrap_or_default();
    let text = file(function, source)?;
    client.control(&Control::ProgramSource {
        id,
        context,
        source: text,
    })?;
    let reply = client.call(Request::Build {
        program: id,
        devices: &[],
        options: &wanted.options,
        files: included(function, source),
    })?;
    built(client, id, source, reply)
}

/// The result of a build; `source` is the file's name.
fn built(client: &Client, id: Id, source: &str, reply: Reply) -> Result<Built, StartError> {
    match reply {
        Reply::Built {
            code: SUCCESS,
            kernels,
            ..
        } => Ok((id, kernels)),
        Reply::Built {
            code: DEVICE_NOT_AVAILABLE,
            ..
        } => Err(StartError::Node(
            "another image keeps the device (the function's log has the reason)".into(),
        )),
        Reply::Built { code, devices, .. } => {
            let log = devices.into_iter().next().map(|d| d.3).unwrap_or_default();
            Err(build_error(source, code, &log))
        }
        // After DEVICE_NOT_AVAILABLE, the session is about to be lost.
        Reply::Error(code) if client.is_lost().is_some() || code == DEVICE_NOT_AVAILABLE => {
            Err(Lost(code).into())
        }
        Reply::Error(code) => {
            let log = client.call(Request::Query(Query::ProgramBuild {
                program: id,
                device: 0,
                param: PROGRAM_BUILD_LOG,
            }));
            let log = match log {
                Ok(Reply::Bytes(log)) => log,
                _ => Vec::new(),
            };
            Err(build_error(source, code, &log))
        }
        other => Err(StartError::Node(format!(
            "unexpected response of the executor to a build: {other:?}"
        ))),
    }
}

/// The files that the source may include: the function's other files.
fn included<'a>(function: &'a Function, source: &str) -> Vec<(&'a str, &'a [u8])> {
    let files = function.files.contents.iter();
    let headers = files.filter(|(name, _)| {
        let is_text = [".h", ".cl", ".clh", ".hpp", ".inc"];
        name.as_str() != source && is_text.iter().any(|end| name.ends_with(end))
    });
    headers
        .map(|(name, text)| (name.as_str(), &text[..]))
        .collect()
}

fn build_error(source: &str, code: i32, log: &[u8]) -> StartError {
    let log = String::from_utf8_lossy(log);
    let log: String = log
        .trim_matches(['\0', '\n', ' '])
        .chars()
        .take(LOG_CHARS_MAX)
        .collect();
    let code = text_of(code);
    if log.is_empty() {
        StartError::Function(format!("cannot build {source}: {code}"))
    } else {
        StartError::Function(format!("cannot build {source}: {code}\n{log}"))
    }
}
