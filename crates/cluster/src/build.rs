//! Compiles kernels and makes the boards' model. A kernel's C sources are linked with `libhumboldt`
//! into a process and, for a kernel on a processor of a board, into an image for that processor.
//! Outputs that are up to date are kept; the rest is compiled in parallel.

use crate::form::{first_with_streams, forms, Choice, Form, RTL};
use crate::model::{Cluster, Comm, Kernel, NodeKind};
use crate::sources::{c_sources, Build};
use anyhow::{bail, ensure, Context, Result};
use baltra_hls::CHAR;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;
use std::time::SystemTime;

/// A compiled kernel.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program.
    pub path: PathBuf,
    /// Whether it was compiled in this build.
    pub compiled: bool,
}

/// The outputs of a build.
#[derive(Clone, Debug, Default)]
pub struct Built {
    /// The output directory.
    pub out: PathBuf,
    /// Processes, by the number of their kernel's first copy.
    pub programs: BTreeMap<u32, Program>,
    /// Kernels on boards, by rank.
    pub kernels: BTreeMap<u32, OnBoard>,
    /// The folder of the programs that simulate boards ([`BoardProgram`]).
    pub boards: PathBuf,
}

/// The program that simulates a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoardProgram {
    /// With messages over raw Ethernet.
    Ethernet,
    /// Over UDP.
    Udp,
    /// Over TCP.
    Tcp,
    /// Over raw Ethernet, and with HTTP.
    Http,
}

impl BoardProgram {
    /// Its file name among the boards' programs (`hdl/board/Makefile`).
    pub fn file(self) -> &'static str {
        match self {
            BoardProgram::Ethernet => "board-ranks-ethernet",
            BoardProgram::Udp => "board-ranks-udp",
            BoardProgram::Tcp => "board-ranks-tcp",
            BoardProgram::Http => "board-messages",
        }
    }
}

/// A kernel on a board.
#[derive(Clone, Debug)]
pub struct OnBoard {
    /// The model of its hardware.
    pub model: PathBuf,
    /// The image for a kernel that runs on a processor.
    pub image: Option<PathBuf>,
    /// Its form.
    pub form: Form,
    /// Whether it has streams and no engines.
    pub streams: bool,
}

impl Built {
    /// Records the model and the image of a choice's ranks.
    fn put(&mut self, choice: &Choice, model: &Path, image: Option<PathBuf>) {
        for &rank in &choice.ranks {
            let kernel = OnBoard {
                model: model.to_owned(),
                image: image.clone(),
                form: choice.form,
                streams: choice.module.as_ref().is_some_and(|m| m.streams),
            };
            self.kernels.insert(rank, kernel);
        }
    }
}

/// The numbers of the kernels (of their first copies) that have copies on nodes of this kind.
fn on(cluster: &Cluster, kind: NodeKind) -> BTreeSet<u32> {
    let nodes = cluster.map.nodes.iter().filter(|n| n.kind == kind);
    nodes
        .flat_map(|n| &n.kernels)
        .filter_map(|p| cluster.logical.kernel(p.kernel))
        .map(|k| k.num)
        .collect()
}

/// The output of a compilation: a process, or an image for a board's processor.
struct Target {
    path: PathBuf,
    sources: Vec<PathBuf>,
    kernels: Vec<u32>,
    name: String,
    /// The file with a kernel's arguments and constants, for a processor.
    start: Option<PathBuf>,
    /// Whether `long` may have the processor's 32 bits.
    short_longs: bool,
    /// Bytes of off-chip memory of the processor.
    memory: Option<u64>,
    /// For a processor: the first rank that has streams and no engines.
    streams: Option<u32>,
}

/// Compiles outdated outputs. `say` receives lines of progress.
///
/// # Errors
///
/// A source is missing, or a compiler failed; the error contains the compiler's output.
pub fn build(cluster: &Cluster, with: &Build, say: &(dyn Fn(String) + Sync)) -> Result<Built> {
    let library = library(with)?;
    fs::create_dir_all(&with.out)
        .with_context(|| format!("cannot create {}", with.out.display()))?;
    let out = with.out.canonicalize().context("the build's folder")?;
    let software = on(cluster, NodeKind::Software);
    let hardware = forms(cluster, with)?;
    let mut built = Built {
        out: out.clone(),
        ..Built::default()
    };
    let mut models = String::new();
    if !hardware.is_empty() {
        models = boards(cluster, with, &hardware, say)?;
        built.boards = Path::new(&models).join("../board");
    }
    for choice in hardware.iter().filter(|c| c.module.is_some()) {
        let model = own_module(cluster, with, choice, &out, say)?;
        built.put(choice, &model, None);
    }

    let mut jobs: Vec<Target> = Vec::new();
    for kernel in &cluster.logical.kernels {
        if software.contains(&kernel.num) {
            add_process(cluster, with, kernel, &out, &mut jobs)?;
        }
        for choice in hardware.iter().filter(|c| c.kernel == kernel.num) {
            if choice.form == Form::Rtl && choice.module.is_none() {
                let model = Path::new(&models).join(library_of(&kernel.name, kernel));
                ensure!(
                    model.is_file(),
                    "{}:{}: kernel '{}' is neither in the boards' RTL nor in Verilog (set it with <source>); available: {}",
                    cluster.logical.path.display(),
                    kernel.line,
                    kernel.name,
                    RTL.join(", ")
                );
                built.put(choice, &model, None);
            }
            if choice.form != Form::Processor {
                continue;
            }
            let name = format!("{}-{}", kernel.name, kernel.num);
            let start = out.join(format!("{name}.start.c"));
            write_changed(&start, &start_file(kernel))?;
            jobs.push(Target {
                path: out.join(format!("{name}.elf")),
                sources: c_sources(cluster, kernel)?,
                kernels: vec![kernel.num],
                name: kernel.name.clone(),
                start: Some(start),
                short_longs: kernel.takes_short_longs(),
                memory: kernel.memory(),
                streams: first_with_streams(&hardware),
            });
        }
    }

    for (job, program) in jobs.iter().zip(compile_all(&jobs, with, &library, say)?) {
        for &kernel in &job.kernels {
            if job.start.is_none() {
                built.programs.insert(kernel, program.clone());
                continue;
            }
            let Some(core) = cluster.logical.kernel(kernel) else {
                continue;
            };
            let model = Path::new(&models).join(library_of("core", core));
            let image = job.path.with_extension("bin");
            let runs = |c: &&Choice| c.kernel == kernel && c.form == Form::Processor;
            if let Some(choice) = hardware.iter().find(runs) {
                built.put(choice, &model, Some(image));
            }
        }
    }
    Ok(built)
}

/// Adds the process of a kernel. Kernels of one name and the same sources share a program.
fn add_process(
    cluster: &Cluster,
    with: &Build,
    kernel: &Kernel,
    out: &Path,
    jobs: &mut Vec<Target>,
) -> Result<()> {
    let sources = c_sources(cluster, kernel)?;
    let same_name = |j: &Target| j.name == kernel.name && j.start.is_none();
    if let Some(job) = (jobs.iter_mut()).find(|j| same_name(j) && j.sources == sources) {
        job.kernels.push(kernel.num);
        return Ok(());
    }
    let mut name = if jobs.iter().any(same_name) {
        format!("{}-{}", kernel.name, kernel.num)
    } else {
        kernel.name.clone()
    };
    if let Some(mpi) = &with.mpi {
        name += &format!(".{mpi}");
    }
    jobs.push(Target {
        path: out.join(name),
        sources,
        kernels: vec![kernel.num],
        name: kernel.name.clone(),
        start: None,
        short_longs: false,
        memory: None,
        streams: None,
    });
    Ok(())
}

/// Compiles in parallel. The programs have the order of `jobs`.
fn compile_all(
    jobs: &[Target],
    with: &Build,
    library: &Path,
    say: &(dyn Fn(String) + Sync),
) -> Result<Vec<Program>> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(BTreeMap::new());
    let workers = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(jobs.len());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(job) = jobs.get(index) else {
                    return;
                };
                let what = if job.start.is_some() {
                    " for a processor"
                } else {
                    ""
                };
                let step = format!("[{}/{}] {}{what}", index + 1, jobs.len(), job.name);
                let result = compile(job, with, library, &|what| say(format!("{step}: {what}")));
                if let Ok(mut results) = results.lock() {
                    results.insert(index, result);
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_default();
    results.into_values().collect()
}

/// Makes the boards' programs and the kernels' models if they are outdated, and returns the models'
/// folder.
fn boards(
    cluster: &Cluster,
    with: &Build,
    kernels: &[Choice],
    say: &(dyn Fn(String) + Sync),
) -> Result<String> {
    let hdl = with.humboldt.join("../hdl/messages");
    ensure!(
        hdl.join("Makefile").is_file(),
        "{} is missing: the boards' models are built from it",
        hdl.display()
    );
    let folder = with.humboldt.join("../target/messages");
    let several = cluster.map.nodes.len() > 1;
    let speaks = |comm| several && (cluster.map.nodes.iter()).any(|n| n.comm == Some(comm));
    let network = match (speaks(Comm::Tcp), speaks(Comm::Udp)) {
        (true, _) => BoardProgram::Tcp,
        (_, true) => BoardProgram::Udp,
        _ => BoardProgram::Ethernet,
    };
    let boards = || {
        let nodes = cluster.map.nodes.iter();
        nodes.filter(|n| n.kind == NodeKind::Hardware)
    };
    let mut programs = Vec::new();
    if boards().any(|n| n.http.is_none()) {
        programs.push(network);
    }
    if boards().any(|n| n.http.is_some()) {
        programs.push(BoardProgram::Http);
    }
    let models: BTreeSet<String> = (kernels.iter())
        .filter_map(|choice| {
            let kernel = cluster.logical.kernel(choice.kernel)?;
            match choice.form {
                Form::Rtl => (choice.module.is_none() && RTL.contains(&kernel.name.as_str()))
                    .then(|| library_of(&kernel.name, kernel)),
                Form::Processor => Some(library_of("core", kernel)),
                Form::Synthesized => None,
            }
        })
        .collect();
    let root = with
        .humboldt
        .join("..")
        .canonicalize()
        .context("Baltra's tree")?;
    let in_target = |folder: &str, file: &str| root.join("target").join(folder).join(file);
    let programs: Vec<_> = (programs.iter())
        .map(|p| in_target("board", p.file()).into_os_string())
        .collect();
    announced_make(with, "board", &programs, say)?;
    // The Makefile's own target includes what libraries of own modules need.
    let mut targets = vec![OsString::from("base")];
    targets.extend(
        models
            .iter()
            .map(|m| in_target("messages", m).into_os_string()),
    );
    announced_make(with, "messages", &targets, say)?;
    let folder = folder.canonicalize().context("the boards' folder")?;
    folder
        .to_str()
        .map(str::to_owned)
        .context("path is not valid UTF-8")
}

/// Makes a board's model in a folder of `hdl`.
fn announced_make(
    with: &Build,
    folder: &str,
    targets: &[OsString],
    say: &(dyn Fn(String) + Sync),
) -> Result<()> {
    // `make -q` first, to announce a build that takes long.
    if make(with, folder, &["-s", "-q"], targets)?.status.success() {
        return Ok(());
    }
    say("[board] building the model (a minute or two, once)".to_owned());
    let made = make(with, folder, &["-s"], targets)?;
    ensure!(
        made.status.success(),
        "building the board's model failed (scripts/setup.sh fabric installs its dependencies):\n{}{}",
        String::from_utf8_lossy(&made.stdout),
        String::from_utf8_lossy(&made.stderr)
    );
    Ok(())
}

/// The library of a kernel's module among the boards' models.
fn library_of(module: &str, kernel: &Kernel) -> String {
    format!("kernels/{module}{}.so", variant(kernel))
}

/// Optional parts of a kernel's library: access to off-chip memory, a capture core.
fn variant(kernel: &Kernel) -> String {
    let memory = kernel.memory().map_or("", |_| "-memory");
    let probe = kernel.captured().map_or("", |_| "-probe");
    format!("{memory}{probe}")
}

/// `make` in a folder of `hdl`.
fn make(with: &Build, folder: &str, options: &[&str], targets: &[OsString]) -> Result<Output> {
    Command::new("make")
        .args(options)
        .arg("-C")
        .arg(with.humboldt.join("../hdl").join(folder))
        .args(targets)
        .stdin(Stdio::null())
        .output()
        .context("cannot run make")
}

/// The model of a kernel with its own module, rebuilt if the module or its dependencies changed.
fn own_module(
    cluster: &Cluster,
    with: &Build,
    choice: &Choice,
    out: &Path,
    say: &(dyn Fn(String) + Sync),
) -> Result<PathBuf> {
    let path = out.join(format!("{}.sv", choice.module(cluster)));
    let module = choice
        .module
        .as_ref()
        .context("internal error: a kernel without a module")?;
    write_changed(&path, &module.text)?;
    let assign = |name: &str, value: &OsStr| {
        let mut word = OsString::from(name);
        word.push("=");
        word.push(value);
        word
    };
    let mut targets = vec![assign("KERNEL", path.as_os_str()), "synthesized".into()];
    let kernel = (cluster.logical.kernel(choice.kernel))
        .with_context(|| format!("internal error: no kernel with rank {}", choice.kernel))?;
    if kernel.captured().is_some() {
        targets.push("PROBE=1".into());
    }
    if kernel.memory().is_some() {
        targets.push("MEMORY=1".into());
    }
    if module.streams {
        targets.push("STREAMS=1".into());
    }
    let mut sources = OsString::new();
    for source in &module.sources {
        let source = source.canonicalize().context("a source")?;
        let word = source.to_str().unwrap_or(" ");
        ensure!(
            !word.contains(|c: char| c.is_whitespace() || "$#%:".contains(c)),
            "{}: unsupported characters in the path for the tools that build the model",
            source.display()
        );
        sources.push(word);
        sources.push(" ");
    }
    targets.push(assign("SOURCES", &sources));
    if !make(with, "messages", &["-s", "-q"], &targets)?
        .status
        .success()
    {
        say(format!(
            "[{}] {}: {}",
            choice.name(cluster),
            choice.form.text(),
            choice.why
        ));
        let made = make(with, "messages", &["-s"], &targets)?;
        ensure!(
            made.status.success(),
            "building a model of {} failed:\n{}{}",
            path.display(),
            String::from_utf8_lossy(&made.stdout),
            String::from_utf8_lossy(&made.stderr)
        );
    }
    Ok(path.with_file_name(format!("{}{}.so", choice.module(cluster), variant(kernel))))
}

/// Writes a file if its contents change.
fn write_changed(path: &Path, text: &str) -> Result<()> {
    if fs::read_to_string(path).ok().as_deref() != Some(text) {
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The arguments and environment of a kernel on a board, as C source.
fn start_file(kernel: &Kernel) -> String {
    let quoted = |text: &str| {
        let bytes: String = text.bytes().map(|b| format!("\\{b:03o}")).collect();
        format!("\"{bytes}\"")
    };
    let list = |words: Vec<String>| words.iter().map(|w| quoted(w) + ", ").collect::<String>();
    let arguments = kernel.args.clone().unwrap_or_default();
    let count = kernel.args.as_ref().map_or(-1, |a| a.len() as i64);
    let constants = kernel.constants.iter();
    let constants = constants
        .map(|(name, value, _)| format!("HUM_CONST_{name}={value}"))
        .collect();
    format!(
        "const char *const hum_fabric_arguments[] = {{{}0}};\nconst int hum_fabric_argument_count = {count};\nchar *hum_fabric_environment[] = {{{}0}};\n",
        list(arguments),
        list(constants)
    )
}

/// Builds the library if it is outdated.
fn library(with: &Build) -> Result<PathBuf> {
    let makefile = with.humboldt.join("Makefile");
    ensure!(
        makefile.is_file(),
        "{} is not libhumboldt's directory (set it with --humboldt)",
        with.humboldt.display()
    );
    let made = Command::new("make")
        .args(["-s", "-C"])
        .arg(&with.humboldt)
        .args(with.mpi.as_ref().map(|_| "bridges"))
        .stdin(Stdio::null())
        .output()
        .context("cannot run make")?;
    ensure!(
        made.status.success(),
        "building libhumboldt failed:\n{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let name = match &with.mpi {
        Some(mpi) => format!("libhumboldt-{mpi}.so"),
        None => "libhumboldt.a".to_owned(),
    };
    let library = with.humboldt.join("../target/humboldt").join(name);
    ensure!(
        library.is_file(),
        "{} is missing{}",
        library.display(),
        match &with.mpi {
            Some(mpi) => format!(": mpicc.{mpi} not found (scripts/setup.sh bench installs it)"),
            None => String::new(),
        }
    );
    library.canonicalize().context("the library")
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|m| m.modified()).ok()
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Whether a program is newer than all its dependencies and was made by the same command.
fn up_to_date(path: &Path, library: &Path, words: &str) -> bool {
    let Some(made) = modified(path) else {
        return false;
    };
    if fs::read_to_string(with_suffix(path, ".command"))
        .ok()
        .as_deref()
        != Some(words)
    {
        return false;
    }
    // Make rules, one for each source: the target, a colon, its dependencies.
    let Ok(rules) = fs::read_to_string(with_suffix(path, ".d")) else {
        return false;
    };
    let rules = rules.replace("\\\n", " ");
    let needed = rules
        .lines()
        .filter_map(|rule| Some(rule.split_once(": ")?.1));
    let mut files = (needed.flat_map(str::split_whitespace).map(Path::new)).chain([library]);
    files.all(|file| modified(file).is_some_and(|m| m <= made))
}

/// Rejects sources for a processor that use types whose size differs there.
fn refuse_longs(compiler: &str, job: &Target, with: &Build) -> Result<()> {
    let include = with.humboldt.join("include");
    for source in &job.sources {
        let read = |words: &[&str]| -> Result<String> {
            let mut command = Command::new(compiler);
            command.args(["-std=gnu11", "-O2", "-E", "--specs=picolibc.specs", CHAR]);
            command.args(["-march=rv32im", "-mabi=ilp32"]).args(words);
            command.arg("-I").arg(&include).arg(source);
            // The compiler itself reports errors later.
            let read = command.stdin(Stdio::null()).output().with_context(|| {
                format!("cannot run {compiler}: scripts/setup.sh fabric installs it")
            })?;
            Ok(String::from_utf8_lossy(&read.stdout).into_owned())
        };
        let number = crate::long::first_number(&read(&["-fpreprocessed", "-dD"])?);
        let number = number.map(|(line, word)| (source.display().to_string(), line, word));
        let ty = || -> Result<Option<(String, usize, String)>> {
            let found = crate::long::first(&read(&[])?, &with.humboldt);
            Ok(found.map(|(file, line, ty)| (file, line, ty.to_owned())))
        };
        let found = match number {
            Some(found) => Some(found),
            None => ty()?,
        };
        if let Some((file, line, what)) = found {
            bail!(
                "{file}:{line}: kernel '{}': '{what}' has another size on a board's processor than on the hosts: write int64_t or int32_t (double), or set 'long: 32' on the kernel in the logical file to accept the board's size",
                job.name,
            );
        }
    }
    Ok(())
}

/// The command that compiles an output, without the output's path.
fn compiler(job: &Target, with: &Build, library: &Path) -> Command {
    let own = with.mpi.as_ref().map(|mpi| format!("mpicc.{mpi}"));
    let compiler = match (&job.start, &own) {
        (Some(_), _) => "riscv64-unknown-elf-gcc",
        (None, Some(own)) => own,
        (None, None) => &with.compiler,
    };
    let mut command = Command::new(compiler);
    command
        .args(["-std=gnu11", "-O2", "-g", "-Wall"])
        .args(&job.sources);
    // Another MPI has its own <mpi.h>.
    if job.start.is_some() || own.is_none() {
        command.arg("-I").arg(with.humboldt.join("include"));
    }
    match &job.start {
        None if own.is_some() => {
            let mut path = OsString::from("-Wl,-rpath,");
            path.push(library.parent().unwrap_or(library));
            command.arg(library).arg(path)
        }
        None => command.arg(library),
        Some(start) => {
            let fabric = with.humboldt.join("fabric");
            command
                .args([
                    "--specs=picolibc.specs",
                    "-march=rv32im",
                    "-mabi=ilp32",
                    "-nostartfiles",
                    CHAR,
                ])
                .args(job.short_longs.then_some("-DHUM_SHORT_LONG"))
                .args([
                    "-ffunction-sections",
                    "-fdata-sections",
                    "-Wl,--gc-sections",
                    "-Wl,--no-warn-rwx-segments",
                ])
                .arg("-I")
                .arg(with.humboldt.join("src"))
                .args(job.streams.map(|rank| format!("-DHUM_STREAMS_RANK={rank}")))
                .arg("-L")
                .arg(&fabric)
                .args(match job.memory {
                    Some(bytes) => vec![
                        "-Tlink-memory.ld".to_owned(),
                        format!("-Wl,--defsym=HUM_MEMORY_BYTES={bytes}"),
                    ],
                    None => vec!["-Tlink.ld".to_owned()],
                })
                .args([
                    fabric.join("start.S"),
                    fabric.join("core.c"),
                    fabric.join("fabric.c"),
                    fabric.join("collective.c"),
                    fabric.join("requests.c"),
                    start.clone(),
                ])
                .args(["types.c", "stream.c"].map(|f| with.humboldt.join("src").join(f)))
        }
    };
    command.arg("-lm");
    command
}

fn compile(job: &Target, with: &Build, library: &Path, say: &dyn Fn(&str)) -> Result<Program> {
    let path = &job.path;
    let mut command = compiler(job, with, library);
    let compiler = command.get_program().to_owned();
    let compiler = compiler.to_str().context("path is not valid UTF-8")?;
    let mut needs = Command::new(compiler);
    needs
        .args(command.get_args())
        .args(["-MM", "-MT", "program"]);
    command.arg("-o").arg(path);
    if job.start.is_some() && !job.short_longs {
        refuse_longs(compiler, job, with)?;
    }
    let words = format!("{command:?}");
    if up_to_date(path, library, &words) {
        say("up to date");
        return Ok(Program {
            path: path.to_owned(),
            compiled: false,
        });
    }
    say("compiling");
    let done = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| match job.start {
            Some(_) => format!("cannot run {compiler}: scripts/setup.sh fabric installs it"),
            None => format!("cannot run {compiler}"),
        })?;
    let output = String::from_utf8_lossy(&done.stderr);
    ensure!(
        done.status.success(),
        "compiling {} failed:\n{output}",
        path.display()
    );
    if !output.is_empty() {
        say(&format!("the compiler's output:\n{output}"));
    }
    if job.start.is_some() {
        let made = Command::new("riscv64-unknown-elf-objcopy")
            .args(["-O", "binary"])
            .arg(path)
            .arg(path.with_extension("bin"))
            .stdin(Stdio::null())
            .output()
            .context("cannot run riscv64-unknown-elf-objcopy")?;
        let output = String::from_utf8_lossy(&made.stderr);
        ensure!(
            made.status.success(),
            "building the image of {} failed:\n{output}",
            path.display()
        );
    }
    let needs =
        (needs.stdin(Stdio::null()).output()).context("cannot list the compiler's inputs")?;
    fs::write(with_suffix(path, ".d"), needs.stdout).context("cannot write beside the program")?;
    // Written last: without this file, the program counts as outdated.
    fs::write(with_suffix(path, ".command"), words).context("cannot write beside the program")?;
    Ok(Program {
        path: path.to_owned(),
        compiled: true,
    })
}
