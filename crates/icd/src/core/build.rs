//! Building, compiling and linking: one request to each session, one result for the caller.

use crate::core::callback;
use crate::core::context::Context;
use crate::core::device::Device;
use crate::core::include::resolve;
use crate::core::lost;
use crate::core::object::Ref;
use crate::core::program::{Origin, Program};
use baltra_include::Resolved;
use baltra_opencl::*;
use baltra_wire::{Reply, Request};
use std::sync::{Arc, Condvar, Mutex};

/// Result of building for one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    /// `cl_build_status`
    pub status: i32,
    /// The options of the last build, compilation or link.
    pub options: String,
    /// The compiler's log.
    pub log: Vec<u8>,
    /// `cl_program_binary_type`
    pub kind: u32,
}

impl Default for Build {
    fn default() -> Build {
        Build {
            status: CL_BUILD_NONE,
            options: String::new(),
            log: Vec::new(),
            kind: CL_PROGRAM_BINARY_TYPE_NONE as u32,
        }
    }
}

impl Build {
    /// A build that is on its way.
    pub fn begun(options: &str) -> Build {
        Build {
            status: CL_BUILD_IN_PROGRESS,
            options: options.to_owned(),
            ..Build::default()
        }
    }

    /// Whether kernels can be made from it.
    pub fn is_executable(&self) -> bool {
        self.status == CL_BUILD_SUCCESS && self.kind == CL_PROGRAM_BINARY_TYPE_EXECUTABLE as u32
    }

    /// Stores the driver's result. The options stay those of the caller, if it passed any, so that
    /// options added by the executor are not visible. A pool has an answer from each of its devices,
    /// and the first failure is the result.
    pub fn answered(&mut self, status: i32, options: &str, log: &[u8], kind: u32) {
        if self.status == CL_BUILD_ERROR {
            return;
        }
        self.status = status;
        if self.options.is_empty() {
            self.options = options.to_owned();
        }
        self.log = log.to_vec();
        self.kind = kind;
    }

    /// A build without a result for this device has failed.
    pub fn settle(&mut self) {
        if self.status == CL_BUILD_IN_PROGRESS {
            self.status = CL_BUILD_ERROR;
        }
    }
}

/// A job for a program.
pub enum Job<'a> {
    /// `clBuildProgram`
    Build,
    /// `clCompileProgram`: headers and their names.
    Compile(&'a [(Ref<Program>, &'a str)]),
    /// `clLinkProgram`
    Link(&'a [Ref<Program>]),
}

/// Called when all sessions have answered.
pub type BuildCallback = Box<dyn FnOnce() + Send>;

/// The answers of a job's sessions as they come.
pub struct Gathering {
    replies: Vec<(usize, Reply)>,
    left: usize,
}

impl Gathering {
    /// Index of the context's member, and its answer.
    pub fn replies(&self) -> &[(usize, Reply)] {
        &self.replies
    }

    /// The first error among the answers.
    fn outcome(&self) -> Result<(), i32> {
        for (_, reply) in &self.replies {
            match reply {
                Reply::Error(code) => return Err(*code),
                Reply::Built { code, .. } if *code != CL_SUCCESS => return Err(*code),
                _ => {}
            }
        }
        Ok(())
    }
}

struct Shared {
    program: Ref<Program>,
    gathering: Mutex<Gathering>,
    ended: Condvar,
    then: Mutex<Option<BuildCallback>>,
}

impl Shared {
    fn answer(&self, member: usize, reply: Reply) {
        let mut gathering = self.gathering.lock().expect("nothing panics with it");
        gathering.replies.push((member, reply));
        gathering.left -= 1;
        if gathering.left > 0 {
            return;
        }
        self.program.end(&gathering);
        drop(gathering);
        self.ended.notify_all();
        let then = self.then.lock().expect("nothing panics with it").take();
        if let Some(then) = then {
            callback::run(then);
        }
    }
}

impl Program {
    /// Runs a job for the devices at these indices. With `then` it returns immediately and the
    /// result is in the program's state; without, it waits and returns the driver's code.
    pub fn work(
        &self,
        devices: &[usize],
        options: &str,
        job: &Job<'_>,
        then: Option<BuildCallback>,
    ) -> Result<(), i32> {
        self.begin(devices, options)?;
        let members: Vec<usize> = self
            .replicas()
            .iter()
            .map(|r| r.member)
            .filter(|&p| !self.context.is_gone(p))
            .filter(|&p| devices.iter().any(|d| self.devices_at(p).contains(d)))
            .collect();
        let waits = then.is_none();
        let shared = Arc::new(Shared {
            program: self.share(),
            gathering: Mutex::new(Gathering {
                replies: Vec::new(),
                left: members.len(),
            }),
            ended: Condvar::new(),
            then: Mutex::new(then),
        });
        for &member in &members {
            let sent = self.send(member, devices, options, job, &shared);
            if let Err(code) = sent {
                shared.answer(member, Reply::Error(code));
            }
        }
        if !waits {
            return Ok(());
        }
        let mut gathering = shared.gathering.lock().expect("nothing panics with it");
        while gathering.left > 0 {
            gathering = shared
                .ended
                .wait(gathering)
                .expect("nothing panics with it");
        }
        gathering.outcome()
    }

    fn send(
        &self,
        member: usize,
        devices: &[usize],
        options: &str,
        job: &Job<'_>,
        shared: &Arc<Shared>,
    ) -> Result<(), i32> {
        let replica = self.replica(member).ok_or(CL_INVALID_DEVICE)?;
        let mut mine = self.devices_at(member);
        mine.retain(|d| devices.contains(d));
        let names = self.names(&mine);
        let at = |programs: &mut dyn Iterator<Item = &Ref<Program>>| {
            let ids: Option<Vec<u8>> = programs
                .map(|p| Some(p.replica(member)?.id.to_le_bytes()))
                .collect::<Option<Vec<_>>>()
                .map(|ids| ids.concat());
            ids.ok_or(CL_INVALID_PROGRAM)
        };
        let others;
        let resolved = match (&self.origin, job) {
            (Origin::Source(source), Job::Build | Job::Compile(_)) => {
                let device = mine.first().ok_or(CL_INVALID_DEVICE)?;
                let embedded = match job {
                    Job::Compile(headers) => embedded(headers),
                    _ => Vec::new(),
                };
                resolve(source, options, &embedded, &self.devices[*device])?
            }
            _ => Resolved {
                options: options.to_owned(),
                ..Resolved::default()
            },
        };
        let options = &resolved.options;
        let source = resolved.text.iter().map(|text| ("", &text[..]));
        let files = resolved
            .files
            .iter()
            .map(|(path, text)| (&path[..], &text[..]));
        let files = source.chain(files);
        let request = match job {
            Job::Build => Request::Build {
                program: replica.id,
                devices: &names,
                options,
                files: files.collect(),
            },
            Job::Compile(headers) => {
                others = at(&mut headers.iter().map(|(p, _)| p))?;
                Request::Compile {
                    program: replica.id,
                    devices: &names,
                    options,
                    headers: &others,
                    header_names: headers.iter().map(|(_, name)| *name).collect(),
                    files: files.collect(),
                }
            }
            Job::Link(inputs) => {
                others = at(&mut inputs.iter())?;
                Request::Link {
                    id: replica.id,
                    context: replica.context,
                    devices: &names,
                    options,
                    inputs: &others,
                }
            }
        };
        let shared = shared.clone();
        replica
            .client
            .call_then(request, Box::new(move |reply| shared.answer(member, reply)))
            .map_err(lost)
    }

    /// The program that `clLinkProgram` makes; [`Program::work`] links it.
    pub fn linked(context: &Ref<Context>, devices: Vec<Ref<Device>>) -> Ref<Program> {
        Program::new(context, devices, Origin::Linked)
    }
}

/// Headers that are programs of source: their names and texts.
fn embedded<'a>(headers: &'a [(Ref<Program>, &'a str)]) -> Vec<(&'a str, &'a [u8])> {
    let text = |(program, name): &'a (Ref<Program>, &'a str)| match &program.origin {
        Origin::Source(text) => Some((*name, &text[..])),
        _ => None,
    };
    headers.iter().filter_map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_that_says_nothing_of_a_device_failed_for_it() {
        let mut build = Build::begun("-w");
        build.settle();
        assert_eq!(build.status, CL_BUILD_ERROR);
        assert!(!build.is_executable());
    }

    #[test]
    fn options_are_the_callers_own_words() {
        let mut build = Build::begun("-DN=4");
        build.answered(
            CL_BUILD_SUCCESS,
            "-DN=4 -cl-kernel-arg-info",
            b"fine",
            CL_PROGRAM_BINARY_TYPE_EXECUTABLE as u32,
        );
        assert_eq!(build.options, "-DN=4");
        assert!(build.is_executable());
    }

    #[test]
    fn the_first_error_is_the_outcome() {
        let gathering = Gathering {
            replies: vec![
                (0, Reply::Done),
                (1, Reply::Error(CL_BUILD_PROGRAM_FAILURE)),
                (2, Reply::Error(CL_OUT_OF_RESOURCES)),
            ],
            left: 0,
        };
        assert_eq!(gathering.outcome(), Err(CL_BUILD_PROGRAM_FAILURE));
    }
}
