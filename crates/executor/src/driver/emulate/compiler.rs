//! Compiles source by a child process, `baltra accelerator build`, which confines itself further
//! than the executor is confined: it reads the system's compilers, the hardware tree and the
//! program's headers, writes its own directory, and is limited in time and memory. A failure of the
//! compiler is a build error at worst.
//!
//! Images are kept in the directory of compiled kernels, named by a SHA-256 of everything that
//! they depend on.

use super::preparation;
use super::tools::Tools;
use baltra_sandbox::compiler::PROCESSOR_S;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::process::{kill_process_group, pidfd_open, Pid, PidfdFlags, Signal};
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Time limit of a compilation.
const COMPILE_MAX: Duration = Duration::from_secs(300);
/// Interval at which a waiting thread checks whether its session has ended.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};
/// Size of a directory's images, beyond which the oldest are removed.
const CACHE_BYTES_MAX: u64 = 256 << 20;
/// Files of a program's headers, and the length of a log.
const HEADERS_MAX: usize = 4096;
const LOG_BYTES_MAX: u64 = 1 << 20;
/// Name of an image in the cache: a hash with this ending.
const SUFFIX: &str = ".img";
/// Folder of a program's headers in the directory of a compilation.
const HEADERS: &str = "headers";

/// A compilation's result.
pub struct Compiled {
    /// The image or the object as a file.
    pub image: Vec<u8>,
    /// The compiler's warnings.
    pub log: String,
}

/// Work for the compiler, with options in one line, as `clBuildProgram` takes them.
pub struct Work<'a> {
    /// Sources, or objects as files.
    pub inputs: &'a [&'a [u8]],
    /// Files that a source includes, by their names.
    pub headers: &'a [(String, &'a [u8])],
    /// OpenCL's build options.
    pub options: &'a str,
    /// The output that it becomes.
    pub output: Output,
}

/// The kind of output that the compiler makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// An image.
    Image,
    /// An object of one source.
    Object,
    /// A library of objects.
    Library,
}

/// Compiles, or finds the image in the cache; otherwise returns the log. `is_cancelled` is queried
/// repeatedly.
pub fn compile(
    tools: &Tools,
    work: &Work<'_>,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Compiled, String> {
    if work.output != Output::Image {
        return Job::start(tools, work, is_cancelled);
    }
    let cache = cache_dir();
    let kept = cache.join(format!("{}{SUFFIX}", key(tools, work)));
    if let Ok(image) = std::fs::read(&kept) {
        if baltra_board::accelerator::Image::parse(&image).is_ok() {
            // Its age decides when it is removed.
            let now = std::fs::File::open(&kept).and_then(|f| f.set_modified(SystemTime::now()));
            if let Err(error) = now {
                tracing::debug!(%error, "cannot renew an image's age");
            }
            return Ok(Compiled {
                image,
                log: String::new(),
            });
        }
    }
    let compiled = Job::start(tools, work, is_cancelled)?;
    if let Err(error) = keep(&cache, &kept, &compiled.image) {
        tracing::warn!(%error, path = %kept.display(), "an image is not cached");
    }
    Ok(compiled)
}

/// Whether an image is one of the cache's.
pub fn is_kept(image: &[u8]) -> bool {
    let entries = cache_dir().read_dir().into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut images = paths.filter(|path| path.to_str().is_some_and(|p| p.ends_with(SUFFIX)));
    images.any(|path| {
        let about = std::fs::metadata(&path);
        about.is_ok_and(|about| about.len() == image.len() as u64)
            && std::fs::read(&path).is_ok_and(|kept| kept == image)
    })
}

/// The directory of compiled kernels, which belongs to the tenant.
fn cache_dir() -> PathBuf {
    std::env::var_os("POCL_CACHE_DIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

fn is_plain(part: &Component<'_>) -> bool {
    matches!(part, Component::Normal(_))
}

/// A directory for one compilation, removed at its end.
struct Job {
    dir: PathBuf,
}

impl Drop for Job {
    fn drop(&mut self) {
        // Remaining files are removed with the executor's directory.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Job {
    fn new() -> io::Result<Job> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("build-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir)?;
        Ok(Job { dir })
    }

    fn start(
        tools: &Tools,
        work: &Work<'_>,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Compiled, String> {
        preparation::wait(is_cancelled);
        let job = Job::new().map_err(|error| format!("cannot create a directory: {error}\n"))?;
        job.run(tools, work, is_cancelled)
    }

    /// Writes the headers of a program below the job's directory, which the compiler searches.
    fn lay_out(&self, headers: &[(String, &[u8])]) -> io::Result<()> {
        for (name, text) in headers {
            let parts = Path::new(name).components();
            let plain: PathBuf = parts.clone().filter(is_plain).collect();
            if plain.as_os_str().is_empty() || parts.count() != plain.components().count() {
                let error = format!("'{name}' is not a relative path of a header");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
            }
            let path = self.dir.join(HEADERS).join(plain);
            std::fs::create_dir_all(path.parent().unwrap_or(&self.dir))?;
            std::fs::write(path, text)?;
        }
        Ok(())
    }

    fn run(
        &self,
        tools: &Tools,
        work: &Work<'_>,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<Compiled, String> {
        let io = |what: &str, error: io::Error| format!("cannot {what}: {error}\n");
        let log = self.dir.join("log");
        let image = self.dir.join("program.img");
        let mut files = Vec::new();
        for (at, input) in work.inputs.iter().enumerate() {
            let file = self.dir.join(format!("program_{at}"));
            std::fs::write(&file, input).map_err(|e| io("write the source", e))?;
            files.push(file);
        }
        self.lay_out(work.headers)
            .map_err(|e| io("write the headers", e))?;
        let own = if work.headers.is_empty() {
            ""
        } else {
            "-Iheaders "
        };
        let options = format!("{own}{}", work.options);
        let output: &[&str] = match work.output {
            Output::Image => &[],
            Output::Object => &["-c"],
            Output::Library => &["--create-library"],
        };
        let log_file = std::fs::File::create(&log).map_err(|e| io("create the log", e))?;
        let mut command = tools.command(&self.dir);
        command
            .args(["accelerator", "build", "--confined"])
            .arg(&self.dir)
            .arg("--tree")
            .arg(&tools.tree)
            .arg("--headers")
            .arg(cache_dir())
            .args(
                tools
                    .shared
                    .iter()
                    .flat_map(|dir| [OsStr::new("--shared"), dir.as_os_str()]),
            )
            .args(files)
            .args(output)
            .arg("-o")
            .arg(&image)
            .arg(format!("--options={options}"))
            .stderr(log_file);
        let child = command.spawn().map_err(|e| io("start the compiler", e))?;
        let end = wait(child, is_cancelled).map_err(|e| io("wait for the compiler", e))?;
        let log = read_log(&log);
        match end {
            End::Exit(status) if status.success() => {
                let image = std::fs::read(&image).map_err(|e| io("read the image", e))?;
                Ok(Compiled { image, log })
            }
            End::Exit(status) => Err(match status.signal() {
                Some(signal) if signal == Signal::XCPU.as_raw() => format!(
                    "{log}error: the compilation exceeded its limit of {PROCESSOR_S} s of processor time\n"
                ),
                Some(signal) => format!("{log}error: the compiler was ended by signal {signal}\n"),
                None if log.is_empty() => format!("error: the compiler failed ({status})\n"),
                None => log,
            }),
            End::Cancelled => Err("error: the session has ended\n".into()),
            End::Late => Err(format!(
                "{log}error: the compilation exceeded its time limit of {} s\n",
                COMPILE_MAX.as_secs()
            )),
        }
    }
}

enum End {
    Exit(ExitStatus),
    Cancelled,
    Late,
}

/// Waits for a compiler, which leads its process group; of the group nothing is left afterwards.
fn wait(mut child: Child, is_cancelled: &dyn Fn() -> bool) -> io::Result<End> {
    let pid = Pid::from_child(&child);
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    let started = Instant::now();
    let why = loop {
        let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
        match poll(&mut fds, Some(&LOOK)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => break None,
            Err(error) => return Err(error.into()),
        }
        if is_cancelled() {
            break Some(End::Cancelled);
        }
        if started.elapsed() > COMPILE_MAX {
            break Some(End::Late);
        }
    };
    // The child is not reaped yet, so the group's number is still its own. Fails if the group is
    // empty.
    let _ = kill_process_group(pid, Signal::KILL);
    let status = child.wait()?;
    Ok(why.unwrap_or(End::Exit(status)))
}

fn read_log(path: &Path) -> String {
    let mut bytes = Vec::new();
    let read =
        std::fs::File::open(path).and_then(|file| file.take(LOG_BYTES_MAX).read_to_end(&mut bytes));
    match read {
        Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => format!("cannot read the compiler's log: {error}\n"),
    }
}

/// A hash of everything that an image depends on: the compiler, the options, the inputs and the
/// files of the build's own header directories.
fn key(tools: &Tools, work: &Work<'_>) -> String {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    part(tools.version.as_bytes());
    let home = cache_dir();
    let mut words = work.options.split_whitespace();
    while let Some(word) = words.next() {
        let dir = match word.strip_prefix("-I") {
            Some("") => words.next().unwrap_or_default(),
            Some(dir) => dir,
            None => {
                part(word.as_bytes());
                continue;
            }
        };
        part(b"-I");
        // The name of a directory that was made for this build differs each time.
        let is_own = |dir: &Path| {
            let mut parts = dir.components();
            dir.starts_with(&home) && !parts.any(|part| part == Component::ParentDir)
        };
        if is_own(Path::new(dir)) {
            files(Path::new(dir), Path::new(""), &mut |name, text| {
                part(name.as_os_str().as_encoded_bytes());
                part(text);
            });
        } else {
            part(dir.as_bytes());
        }
    }
    for input in work.inputs {
        part(input);
    }
    let digest = hash.finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Visits the files below a directory in the order of their names.
fn files(root: &Path, below: &Path, visit: &mut dyn FnMut(&Path, &[u8])) {
    let entries = std::fs::read_dir(root.join(below)).into_iter().flatten();
    let names = entries.flatten().take(HEADERS_MAX);
    let mut names: Vec<_> = names.map(|entry| below.join(entry.file_name())).collect();
    names.sort();
    for name in names {
        let path = root.join(&name);
        if path.is_dir() {
            files(root, &name, visit);
        } else {
            visit(&name, &std::fs::read(path).unwrap_or_default());
        }
    }
}

/// Adds an image to the cache in one step, and removes the oldest ones beyond the limit.
fn keep(cache: &Path, path: &Path, image: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension(format!("new-{}", std::process::id()));
    std::fs::write(&fresh, image)?;
    std::fs::rename(&fresh, path)?;
    let mut kept = Vec::new();
    for entry in cache.read_dir()?.flatten() {
        let path = entry.path();
        let is_image = path.to_str().is_some_and(|path| path.ends_with(SUFFIX));
        if let (true, Ok(about)) = (is_image, entry.metadata()) {
            kept.push((about.modified()?, about.len(), path));
        }
    }
    kept.sort();
    let mut bytes: u64 = kept.iter().map(|(_, len, _)| len).sum();
    for (_, len, path) in kept {
        if bytes <= CACHE_BYTES_MAX {
            break;
        }
        std::fs::remove_file(path)?;
        bytes -= len;
    }
    Ok(())
}
