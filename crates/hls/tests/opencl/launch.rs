//! Builds a program, and executes its kernels in simulation.

use baltra_hls::opencl::{self, Accelerator, BuildError, Options, Prepared};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};
use tempfile::TempDir;

/// A program with its simulation library.
pub struct Program {
    pub accelerator: Accelerator,
    folder: TempDir,
}

/// An argument of a kernel.
pub enum Argument<'a> {
    Word(u64),
    /// A buffer that the kernel may write.
    Buffer(&'a mut Vec<u8>),
    ReadOnly(&'a [u8]),
    /// The buffer with this number of the first launch, of the same size as these bytes.
    OfFirst(u32, &'a [u8]),
}

/// A launch of a kernel.
pub struct Launch<'a, 'b> {
    pub name: &'a str,
    /// It starts when this many launches have ended.
    pub after: u32,
    /// Work-items, their offset, those of a work-group.
    pub sizes: [[u64; 3]; 3],
    pub arguments: &'a mut [Argument<'b>],
}

/// The end of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Done,
    Status(u32),
    Fault {
        argument: u32,
        write: bool,
        offset: u64,
    },
    Running,
}

pub struct Outcome {
    pub end: End,
    pub cycles: u64,
    pub text: String,
    /// The number of the channel that it waits for, from 1 on, and whether it writes to it.
    pub waits: (u32, bool),
    /// Elements that it has read from channels and written to them.
    pub transfers: u64,
}

fn hdl() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hdl")
}

/// Runs a program that has to succeed; shows its messages otherwise.
pub fn must(command: &mut Command) {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success(), "{command:?}: {text}");
}

fn prepared() -> &'static Arc<Prepared> {
    static PREPARED: OnceLock<Arc<Prepared>> = OnceLock::new();
    PREPARED.get_or_init(|| {
        let prepared = Prepared::make(&hdl().join("../target/emulate"), &hdl()).unwrap();
        Arc::new(prepared.expect("target can be written"))
    })
}

/// The options with which a program is compiled: these options of OpenCL.
pub fn options_with(options: &[&str]) -> Options {
    Options {
        defines_and_flags: options.iter().map(|o| (*o).to_owned()).collect(),
        prepared: Some(prepared().clone()),
        ..Options::default()
    }
}

/// The program that executes kernels (`driver.c`).
fn driver() -> &'static Path {
    static DRIVER: OnceLock<PathBuf> = OnceLock::new();
    DRIVER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let driver = folder.join("opencl_driver");
        // Tests run in several processes.
        let part = folder.join(format!("opencl_driver.{}", std::process::id()));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/opencl/driver.c");
        must(
            Command::new("cc")
                .arg("-I")
                .arg(hdl().join("board/sim"))
                .args(["-O1", "-o"])
                .arg(&part)
                .arg(source)
                .arg("-ldl"),
        );
        std::fs::rename(part, &driver).unwrap();
        driver
    })
}

impl Program {
    pub fn new(source: &str, options: &[&str]) -> Program {
        Program::try_new(source, options).unwrap_or_else(|e| panic!("{e}"))
    }

    /// The same, or the build log.
    pub fn try_new(source: &str, options: &[&str]) -> Result<Program, BuildError> {
        Program::with(source, &options_with(options))
    }

    /// The same with all options.
    pub fn with(source: &str, options: &Options) -> Result<Program, BuildError> {
        let folder = tempfile::tempdir().unwrap();
        let work = folder.path().to_owned();
        let accelerator = opencl::compile(source, options, &work)?;
        let library = work.join("program.so");
        opencl::build_library(&accelerator, &hdl(), prepared(), &work, &library).unwrap();
        Ok(Program {
            accelerator,
            folder,
        })
    }

    /// Executes a kernel; `local`: the size of a work-group.
    pub fn run(
        &self,
        name: &str,
        global: [u64; 3],
        local: [u64; 3],
        arguments: &mut [Argument<'_>],
    ) -> Outcome {
        self.run_at([0; 3], name, global, local, arguments)
    }

    pub fn run_at(
        &self,
        offset: [u64; 3],
        name: &str,
        global: [u64; 3],
        local: [u64; 3],
        arguments: &mut [Argument<'_>],
    ) -> Outcome {
        let launch = Launch {
            name,
            after: 0,
            sizes: [global, offset, local],
            arguments,
        };
        self.run_together(2_000_000_000, vec![launch]).remove(0)
    }

    /// Executes kernels at the same time, for at most that many cycles.
    pub fn run_together(&self, cycles: u64, mut launches: Vec<Launch<'_, '_>>) -> Vec<Outcome> {
        let mut input = Vec::new();
        input.extend((launches.len() as u32).to_le_bytes());
        input.extend(cycles.to_le_bytes());
        for launch in &launches {
            self.add(launch, &mut input);
        }
        let mut driver = Command::new(driver())
            .arg(self.folder.path().join("program.so"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        driver.stdin.take().unwrap().write_all(&input).unwrap();
        let output = driver.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", output.status);
        let mut rest = output.stdout.as_slice();
        let outcomes = launches.iter_mut().map(|l| outcome(&mut rest, l));
        outcomes.collect()
    }

    /// Adds a launch to the driver's input.
    fn add(&self, launch: &Launch<'_, '_>, input: &mut Vec<u8>) {
        let kernels = &self.accelerator.manifest.kernels;
        let number = kernels.iter().position(|k| k.name == launch.name).unwrap();
        let mut words: Vec<u64> = launch.sizes.concat();
        words.push(3);
        let mut buffers: Vec<(bool, u32, &[u8])> = Vec::new();
        for argument in launch.arguments.iter() {
            let (read_only, same, bytes): (bool, u32, &[u8]) = match argument {
                Argument::Word(word) => {
                    words.push(*word);
                    continue;
                }
                Argument::Buffer(bytes) => (false, 0, bytes),
                Argument::ReadOnly(bytes) => (true, 0, bytes),
                Argument::OfFirst(number, bytes) => (false, number + 1, bytes),
            };
            buffers.push((read_only, same, bytes));
            words.push((buffers.len() as u64) << 28);
        }
        input.extend((number as u32).to_le_bytes());
        input.extend(launch.after.to_le_bytes());
        input.extend((words.len() as u32).to_le_bytes());
        words.iter().for_each(|w| input.extend(w.to_le_bytes()));
        input.extend((buffers.len() as u32).to_le_bytes());
        for (read_only, same, bytes) in buffers {
            input.extend(same.to_le_bytes());
            input.extend(u32::from(read_only).to_le_bytes());
            input.extend((bytes.len() as u64).to_le_bytes());
            if same == 0 {
                input.extend(bytes);
            }
        }
    }
}

/// Takes a launch's outcome from the driver's output.
fn outcome(rest: &mut &[u8], launch: &mut Launch<'_, '_>) -> Outcome {
    let mut take = |bytes: usize| {
        let (part, more) = rest.split_at(bytes);
        *rest = more;
        part
    };
    let mut number = |bytes: usize| {
        let part = take(bytes);
        part.iter().rev().fold(0, |all, b| all << 8 | u64::from(*b))
    };
    let [state, argument, write, status] = [0; 4].map(|_: i32| number(4) as u32);
    let (offset, cycles) = (number(8), number(8));
    let [waits, waits_to_write] = [0; 2].map(|_: i32| number(4) as u32);
    let transfers = number(8);
    let length = number(4) as usize;
    let text = String::from_utf8_lossy(take(length)).into_owned();
    for argument in launch.arguments.iter_mut() {
        match argument {
            Argument::Word(_) => {}
            Argument::Buffer(bytes) => {
                let size = bytes.len();
                bytes.copy_from_slice(take(size));
            }
            Argument::ReadOnly(bytes) => assert_eq!(take(bytes.len()), *bytes),
            Argument::OfFirst(_, bytes) => {
                take(bytes.len());
            }
        }
    }
    let end = match state {
        0 => End::Running,
        1 => End::Done,
        2 => End::Fault {
            argument,
            write: write != 0,
            offset,
        },
        _ => End::Status(status),
    };
    Outcome {
        end,
        cycles,
        text,
        waits: (waits, waits_to_write != 0),
        transfers,
    }
}
