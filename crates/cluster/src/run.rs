//! Starts the ranks of a cluster, prints the node of each, forwards their output, and stops all of
//! them when one fails.

mod attend;
mod board_file;
mod members;
mod output;
mod state;

use crate::build::{BoardProgram, Built};
use crate::form::Form;
use crate::job::{new_key, Counters, Job};
use crate::model::Cluster;
use crate::stuck::Watch;
use anyhow::{ensure, Context, Result};
use attend::{attend, Children, Running};
use members::mac;
use output::{forward, Event, Source};
pub use state::State;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{sync_channel, SyncSender};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval of the checks for ended ranks.
const LOOK: Duration = Duration::from_millis(5);

/// Options of a run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Start only the ranks of these nodes (by their index in the map file); other launchers start
    /// the rest.
    pub nodes: Vec<usize>,
    /// Rank r listens on this port + r; required with `nodes`.
    pub port: Option<u16>,
    /// The job's key, equal on all nodes; required with `nodes`.
    pub key: Option<String>,
    /// Arguments for every rank, instead of the logical file's.
    pub args: Option<Vec<String>>,
    /// The file in which `status` and `stop` find the run.
    pub state: Option<PathBuf>,
    /// The standard input of rank 0, if it is a process; `None`: empty. Other ranks have an empty
    /// standard input.
    pub input: Option<Arc<File>>,
    /// This MPI's `mpiexec.NAME` starts the processes, which are its ranks; the kernels on boards
    /// have the ranks after them.
    pub mpi: Option<String>,
}

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The exit status: 0, or that of the rank that failed first; 128 + the number of a signal that
    /// killed it.
    pub code: u8,
    /// Time from the first start to the last end.
    pub wall: Duration,
    /// Results of the ranks that were started here.
    pub ranks: Vec<RankEnd>,
}

/// The result of one rank.
#[derive(Debug)]
pub struct RankEnd {
    /// Its number.
    pub rank: usize,
    /// Its kernel's name.
    pub kernel: String,
    /// The name of its node.
    pub node: String,
    /// Its counters.
    pub counters: Counters,
}

/// Runs the cluster to its end. `say` receives each line of output; lines of ranks have their
/// number as a prefix.
///
/// # Errors
///
/// Ranks cannot be started. A rank that fails is not an error; [`Outcome::code`] reports it.
pub fn run(
    cluster: &Cluster,
    built: &Built,
    options: &Options,
    say: &mut dyn FnMut(bool, &str),
) -> Result<Outcome> {
    let (members, nodes) = members::members(cluster, built, options)?;
    let size = members.len();
    let here: Vec<usize> = (0..size).filter(|r| members[*r].here).collect();
    let on_board: Vec<bool> = members.iter().map(|m| m.board).collect();
    ensure!(
        options.args.is_none() || !on_board.contains(&true),
        "arguments after -- are for processes: set those of kernels on boards with <args>"
    );
    ensure!(!here.is_empty(), "no rank runs on the selected nodes");
    let job = Job::new(members, key(options)?)?;
    let began = Instant::now();
    let (sender, lines) = sync_channel(1024);
    let mut launch = Launch {
        cluster,
        built,
        options,
        nodes,
        job,
        sender,
        say,
        children: Children(Vec::new()),
    };
    launch.boards(&on_board)?;
    let processes: Vec<usize> = here.iter().copied().filter(|r| !on_board[*r]).collect();
    match &options.mpi {
        Some(mpi) => launch.mpi(mpi, &processes)?,
        None => {
            for &rank in &processes {
                launch.process(rank)?;
            }
        }
    }
    let Launch {
        nodes,
        job,
        sender,
        mut children,
        say,
        ..
    } = launch;
    // The lines end with the last process.
    drop(sender);
    let kernel_of = |rank: usize| kernel_name(cluster, rank);
    if let Some(path) = &options.state {
        State::new(cluster, &nodes, &job, &children).write(path)?;
    }
    // The launcher cannot see the waits of another MPI's processes, or of processes on other hosts.
    let rtl = |rank: &usize| {
        let kernel = built.kernels.get(&(*rank as u32));
        kernel.is_some_and(|k| k.form == Form::Rtl)
    };
    let mut watch = (here.len() == size && options.mpi.is_none())
        .then(|| Watch::new(&job, (0..size).filter(rtl).collect()));
    let code = attend(&mut children, &lines, watch.as_mut(), say, &kernel_of);
    let wall = began.elapsed();
    if let Some(path) = &options.state {
        let _ = fs::remove_file(path);
    }
    let ranks = here
        .iter()
        .map(|&rank| RankEnd {
            rank,
            kernel: kernel_of(rank),
            node: cluster.node_name(nodes[rank]),
            counters: job.counters(rank),
        })
        .collect();
    Ok(Outcome { code, wall, ranks })
}

/// The job's key: the given one, or a new one.
fn key(options: &Options) -> Result<String> {
    let Some(key) = &options.key else {
        return new_key();
    };
    ensure!(
        key.len() == 32 && key.bytes().all(|b| b.is_ascii_hexdigit()),
        "the key must be 32 hexadecimal digits"
    );
    Ok(key.clone())
}

/// The name of a rank's kernel, or nothing if there is no such rank.
fn kernel_name(cluster: &Cluster, rank: usize) -> String {
    let kernel = cluster.logical.kernel(rank as u32);
    kernel.map(|k| k.name.clone()).unwrap_or_default()
}

/// A run whose processes are being started.
struct Launch<'a> {
    cluster: &'a Cluster,
    built: &'a Built,
    options: &'a Options,
    /// The node of each rank.
    nodes: Vec<usize>,
    job: Job,
    sender: SyncSender<Event>,
    say: &'a mut dyn FnMut(bool, &str),
    children: Children,
}

impl Launch<'_> {
    /// Starts the process of each board.
    fn boards(&mut self, on_board: &[bool]) -> Result<()> {
        for (index, node) in self.cluster.map.nodes.iter().enumerate() {
            let ranks: Vec<usize> = node.kernels.iter().map(|p| p.kernel as usize).collect();
            if let Some(&first) = ranks.iter().min().filter(|r| on_board[**r]) {
                self.board(index, ranks, first)?;
            }
        }
        Ok(())
    }

    /// Starts the process of the board with these ranks, of which `first` has the lowest number.
    fn board(&mut self, index: usize, ranks: Vec<usize>, first: usize) -> Result<()> {
        let (cluster, built) = (self.cluster, self.built);
        let file = built.out.join(format!("board-{index}.conf"));
        let text = board_file::board_file(cluster, index, built, &self.job, &self.nodes)?;
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        let mut command = if let Some(http) = cluster.map.nodes[index].http {
            let mut command = Command::new(built.boards.join(BoardProgram::Http.file()));
            command.args(["--net", "user", "--forward"]);
            command.args([http.to_string(), "--mac".to_owned(), mac(cluster, index)]);
            command.arg("--messages");
            command
        } else {
            let program = match (self.job.tcp(first), self.job.udp(first)) {
                (true, _) => BoardProgram::Tcp,
                (_, Some(_)) => BoardProgram::Udp,
                _ => BoardProgram::Ethernet,
            };
            Command::new(built.boards.join(program.file()))
        };
        command
            .arg(&file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = self.job.spawn(first, command)?;
        let name = cluster.node_name(index);
        // A kernel in RTL runs until the other ranks end.
        let ends = |rank: &&usize| {
            let kernel = built.kernels.get(&(**rank as u32));
            kernel.is_some_and(|k| k.form != Form::Rtl)
        };
        let left = ranks.iter().filter(ends).count();
        for &rank in &ranks {
            let kernel = kernel_name(cluster, rank);
            self.report(rank, &kernel, &format!("on board {name}"), &child);
        }
        let source = || Source::Board(name.clone(), ranks.clone());
        self.attach(&format!("board {name}"), &source, &ranks, left, child);
        Ok(())
    }

    /// Starts another MPI's launcher with all ranks that are processes.
    fn mpi(&mut self, mpi: &str, ranks: &[usize]) -> Result<()> {
        let command = mpiexec(mpi, self.cluster, self.built, self.options, ranks)?;
        let child = self.job.spawn_mpi(command)?;
        for &rank in ranks {
            let kernel = kernel_name(self.cluster, rank);
            self.report(rank, &kernel, &format!("by mpiexec.{mpi}"), &child);
        }
        let source = || Source::Mpi(ranks.to_vec());
        self.attach(&format!("mpiexec.{mpi}"), &source, ranks, 0, child);
        Ok(())
    }

    /// Starts a rank that is a process.
    fn process(&mut self, rank: usize) -> Result<()> {
        let (cluster, options) = (self.cluster, self.options);
        let kernel = cluster
            .logical
            .kernel(rank as u32)
            .context("internal error: no kernel with this number")?;
        let program = self
            .built
            .programs
            .get(&kernel.num)
            .with_context(|| format!("kernel '{}' is not built", kernel.name))?;
        let mut command = Command::new(&program.path);
        match options.args.as_ref().or(kernel.args.as_ref()) {
            Some(args) => command.args(args),
            // As in the paper's listing: the number of kernels, and this kernel's number.
            None => command.args([self.nodes.len().to_string(), rank.to_string()]),
        };
        for (name, value, _) in &kernel.constants {
            command.env(format!("HUM_CONST_{name}"), value);
        }
        command
            .stdin(input(options, rank)?)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = self.job.spawn(rank, command)?;
        let node = cluster.node_name(self.nodes[rank]);
        self.report(rank, &kernel.name, &format!("on {node}"), &child);
        let name = format!("rank {rank} ({})", kernel.name);
        self.attach(&name, &|| Source::Rank(rank), &[rank], 0, child);
        Ok(())
    }

    /// Reports where a rank runs.
    fn report(&mut self, rank: usize, kernel: &str, position: &str, child: &Child) {
        let process = child.id();
        let line = format!("rank {rank}: {kernel} {position}, process {process}");
        (self.say)(true, &line);
    }

    /// Forwards a process's output. `left`: the number of a board's kernels that end by themselves.
    fn attach(
        &mut self,
        name: &str,
        source: &dyn Fn() -> Source,
        ranks: &[usize],
        left: usize,
        mut child: Child,
    ) {
        if let Some(out) = child.stdout.take() {
            forward(source(), false, out, self.sender.clone());
        }
        if let Some(err) = child.stderr.take() {
            forward(source(), true, err, self.sender.clone());
        }
        self.children.0.push(Running {
            name: name.to_owned(),
            ranks: ranks.to_vec(),
            left,
            // Only a board has a pipe as its input.
            input: child.stdin.take(),
            child,
            status: None,
        });
    }
}

/// The command line of another MPI's launcher with all programs, their arguments and constants.
fn mpiexec(
    mpi: &str,
    cluster: &Cluster,
    built: &Built,
    options: &Options,
    ranks: &[usize],
) -> Result<Command> {
    let mut command = Command::new(format!("mpiexec.{mpi}"));
    // Tag the output with ranks, and allow more ranks than processors.
    if mpi == "openmpi" {
        command.args(["--tag-output", "--oversubscribe", "--bind-to", "none"]);
        if rustix::process::geteuid().is_root() {
            command.arg("--allow-run-as-root");
        }
    } else {
        command.arg("-prepend-rank");
    }
    for (index, &rank) in ranks.iter().enumerate() {
        let kernel = (cluster.logical.kernel(rank as u32))
            .context("internal error: no kernel with this number")?;
        let program = (built.programs.get(&kernel.num))
            .with_context(|| format!("kernel '{}' is not built", kernel.name))?;
        if index > 0 {
            command.arg(":");
        }
        command.args(["-n", "1", "env"]);
        for (name, value, _) in &kernel.constants {
            command.arg(format!("HUM_CONST_{name}={value}"));
        }
        command.arg(&program.path);
        match options.args.as_ref().or(kernel.args.as_ref()) {
            Some(args) => command.args(args),
            None => command.args([cluster.size().to_string(), rank.to_string()]),
        };
    }
    command
        // The MPI's mpiexec passes its input to its rank 0, which is rank 0 of the job if that is a
        // process.
        .stdin(input(options, ranks.first().copied().unwrap_or(0))?)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Ok(command)
}

/// A rank's standard input.
fn input(options: &Options, rank: usize) -> Result<Stdio> {
    match &options.input {
        Some(input) if rank == 0 => {
            let own = input.try_clone().context("cannot copy standard input")?;
            Ok(Stdio::from(own))
        }
        _ => Ok(Stdio::null()),
    }
}
