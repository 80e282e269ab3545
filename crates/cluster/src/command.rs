//! `baltra cluster`: the command line.

use crate::build::build;
use crate::form::{forms, Choice};
use crate::job::Counters;
use crate::model::{Cluster, NodeKind};
use crate::probe::{waveform, Samples};
use crate::read::formatted;
use crate::run::{run, Options, RankEnd, State};
use crate::sources::Build;
use anyhow::{bail, ensure, Context, Result};
use clap::{Args, Subcommand};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Check, build and run clusters of message-passing ranks: a logical file (kernels) and a map file
/// (their nodes)
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check both files and print the kernels by node
    #[command(
        after_help = "Examples:\n  baltra cluster check logical.xml map.xml\n  baltra cluster check cluster.yaml boards.json"
    )]
    Check(BuildArgs),
    /// Print a file in the canonical form
    #[command(
        after_help = "Examples:\n  baltra cluster fmt logical.json\n  baltra cluster fmt --write map.xml"
    )]
    Fmt {
        /// A logical or a map file, in any dialect
        file: PathBuf,
        /// Write it back instead of printing it
        #[arg(long)]
        write: bool,
    },
    /// Compile the kernels and build the boards' model
    #[command(after_help = "Examples:\n  baltra cluster build logical.xml map.xml")]
    Build(BuildArgs),
    /// Build, start the ranks and wait for their end
    #[command(after_help = "Examples:
  baltra cluster run logical.xml map.xml
  baltra cluster run logical.xml map.xml -- 1000 10
  baltra cluster run logical.xml map.xml --mpi mpich
  baltra cluster run logical.xml map.xml --pool http://registry:7480
  baltra cluster run logical.xml map.xml --node 1 --port 9200 --key-file key")]
    Run(RunArgs),
    /// Show the ranks of a run on this host: nodes, and counters of messages
    #[command(after_help = "Examples:\n  baltra cluster status logical.xml map.xml")]
    Status(RunFiles),
    /// Show the captured streams of kernels on boards, during or after a run: packets, or a
    /// waveform
    #[command(
        after_help = "A stream is captured if its port in the logical file says <debug/>.

Examples:
  baltra cluster probe logical.xml map.xml
  baltra cluster probe logical.xml map.xml --rank 2 --json
  baltra cluster probe logical.xml map.xml --vcd streams.vcd && gtkwave streams.vcd"
    )]
    Probe(ProbeArgs),
    /// Stop a run on this host
    #[command(after_help = "Examples:\n  baltra cluster stop logical.xml map.xml")]
    Stop(RunFiles),
}

/// Both files.
#[derive(Debug, Args)]
pub struct Files {
    /// The logical file: the kernels
    logical: PathBuf,
    /// The map file: their nodes
    map: PathBuf,
}

/// Both files, and the directory of the run.
#[derive(Debug, Args)]
pub struct RunFiles {
    #[command(flatten)]
    files: Files,
    /// Directory of programs and the run's state [default:
    /// target/cluster/NAME-OF-LOGICAL-FILE'S-FOLDER]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Arguments of a build.
#[derive(Debug, Args)]
pub struct BuildArgs {
    #[command(flatten)]
    files: RunFiles,
    /// The folder of libhumboldt in Baltra's tree [default: beside the tree's target]
    #[arg(
        long,
        value_name = "DIR",
        env = "BALTRA_HUMBOLDT",
        hide_env_values = true
    )]
    humboldt: Option<PathBuf>,
    /// The C compiler
    #[arg(
        long,
        value_name = "CC",
        env = "CC",
        default_value = "cc",
        hide_env_values = true
    )]
    compiler: String,
}

/// Arguments of a run.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    build: BuildArgs,
    /// Start only this node's ranks (0: the map file's first); may be repeated
    #[arg(long, value_name = "N")]
    node: Vec<usize>,
    /// Rank r listens on port PORT + r [default: any port]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..=65279))]
    port: Option<u16>,
    /// A file with the job's key, 32 hexadecimal digits, the same on every node
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Processes are the first ranks and use this MPI, by its mpicc.NAME and mpiexec.NAME; kernels
    /// on boards follow
    #[arg(long, value_name = "NAME", value_parser = ["mpich", "openmpi"])]
    mpi: Option<String>,
    /// Allocate the boards from the Accelerators Registry; the map file's addresses are ignored
    #[arg(long, value_name = "URL", num_args = 0..=1, env = "BALTRA_POOL", hide_env_values = true, default_missing_value = "http://127.0.0.1:7480")]
    pool: Option<String>,
    /// The registry's token
    #[arg(
        long,
        env = "BALTRA_REGISTRY_TOKEN",
        value_name = "TOKEN",
        hide_env_values = true,
        hide = true
    )]
    registry_token: Option<String>,
    /// Print only the ranks' output
    #[arg(long, short)]
    quiet: bool,
    /// Write messages, bytes and times of all ranks to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Arguments for the ranks, instead of the logical file's
    #[arg(last = true)]
    args: Vec<String>,
}

/// Arguments for captured streams.
#[derive(Debug, Args)]
pub struct ProbeArgs {
    #[command(flatten)]
    files: RunFiles,
    /// Only this rank; may be repeated
    #[arg(long, value_name = "R")]
    rank: Vec<u32>,
    /// Write a waveform to this file, for GTKWave and others, instead of printing packets
    #[arg(long, value_name = "FILE")]
    vcd: Option<PathBuf>,
    /// Print the packets as JSON
    #[arg(long, conflicts_with = "vcd")]
    json: bool,
}

impl RunFiles {
    fn out(&self) -> PathBuf {
        let named = || -> Option<PathBuf> {
            let whole = self.files.logical.canonicalize().ok()?;
            let folder = whole.parent()?.file_name()?.to_owned();
            Some(Path::new("target/cluster").join(folder))
        };
        self.out
            .clone()
            .or_else(named)
            .unwrap_or_else(|| "target/cluster".into())
    }

    fn state(&self) -> PathBuf {
        let map = self
            .files
            .map
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        self.out().join(format!("{map}.run.json"))
    }
}

impl BuildArgs {
    fn build(&self) -> Result<Build> {
        let found = || -> Option<PathBuf> {
            // target/release/baltra, in the tree.
            let tree = std::env::current_exe()
                .ok()?
                .parent()?
                .parent()?
                .parent()?
                .join("humboldt");
            tree.join("Makefile").is_file().then_some(tree)
        };
        let humboldt = self.humboldt.clone().or_else(found);
        Ok(Build {
            out: self.files.out(),
            humboldt: humboldt.context(
                "libhumboldt's directory not found beside this program (set it with --humboldt)",
            )?,
            compiler: self.compiler.clone(),
            mpi: None,
        })
    }
}

fn read(files: &Files) -> Result<Cluster> {
    Ok(Cluster::read(&files.logical, &files.map)?)
}

/// Runs a command.
///
/// # Errors
/// The failure, for display.
pub fn command(command: &Command, out: &mut dyn Write) -> Result<ExitCode> {
    match command {
        Command::Check(args) => check(&read(&args.files.files)?, args, out),
        Command::Fmt { file, write } => {
            let text = formatted(file)?;
            if *write {
                std::fs::write(file, text).with_context(|| file.display().to_string())?
            } else {
                out.write_all(text.as_bytes())?
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Build(args) => {
            build(&read(&args.files.files)?, &args.build()?, &|line| {
                eprintln!("{line}")
            })?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Run(args) => start(args, out),
        Command::Status(files) => match State::of(&files.state())? {
            Some(state) => {
                let ranks = state.ranks();
                let states = ["starting", "running", "finished", "failed"];
                let rows = ranks.iter().map(|(end, pid)| {
                    let state = states
                        .get(end.counters.state as usize)
                        .copied()
                        .unwrap_or("?");
                    (end, vec![pid.to_string(), state.to_owned()])
                });
                table(rows, &[">PROCESS", "STATE"], out)?;
                Ok(ExitCode::SUCCESS)
            }
            None => {
                writeln!(out, "nothing runs")?;
                Ok(ExitCode::FAILURE)
            }
        },
        Command::Probe(args) => probe(args, out),
        Command::Stop(files) => {
            let state = State::of(&files.state())?.context("nothing runs")?;
            state.stop()?;
            let _ = std::fs::remove_file(files.state());
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn check(cluster: &Cluster, args: &BuildArgs, out: &mut dyn Write) -> Result<ExitCode> {
    let boards = (cluster.map.nodes.iter()).any(|n| n.kind == NodeKind::Hardware);
    let forms = if boards {
        forms(cluster, &args.build()?)?
    } else {
        Vec::new()
    };
    for (index, node) in cluster.map.nodes.iter().enumerate() {
        let name = |number: u32| {
            cluster
                .logical
                .kernel(number)
                .map_or("?", |k| k.name.as_str())
        };
        let numbers: Vec<u32> = node.kernels.iter().map(|p| p.kernel).collect();
        let mut parts = Vec::new();
        for run in numbers.chunk_by(|a, b| a + 1 == *b && name(*a) == name(*b)) {
            parts.push(match run {
                [one] => format!("{one} {}", name(*one)),
                _ => format!("{}-{} {}", run[0], run[run.len() - 1], name(run[0])),
            });
        }
        let kind = match node.kind {
            NodeKind::Software => "software".to_owned(),
            NodeKind::Hardware => {
                format!("board {}", node.board.as_deref().unwrap_or("of any kind"))
            }
        };
        let comm = node.comm.map_or("any protocol", |c| c.word());
        writeln!(
            out,
            "{}: {kind}, {comm}: {}",
            cluster.node_name(index),
            parts.join(", ")
        )?;
        if node.kind == NodeKind::Hardware {
            let here = |c: &&Choice| c.ranks.iter().any(|r| numbers.contains(r));
            for choice in forms.iter().filter(here) {
                let what = choice.form.text();
                let captured = cluster.logical.captured(choice.kernel);
                let captured =
                    captured.map_or(String::new(), |streams| format!(", captured: {streams}"));
                writeln!(
                    out,
                    "  {}: {what} ({}){captured}",
                    name(choice.kernel),
                    choice.why
                )?;
            }
        }
    }
    let nodes = cluster.map.nodes.len();
    let plural = if nodes == 1 { "" } else { "s" };
    writeln!(out, "{} kernels on {nodes} node{plural}", cluster.size())?;
    Ok(ExitCode::SUCCESS)
}

fn probe(args: &ProbeArgs, out: &mut dyn Write) -> Result<ExitCode> {
    let cluster = read(&args.files.files)?;
    let boards = (cluster.map.nodes.iter()).filter(|n| n.kind == NodeKind::Hardware);
    let mut ranks: Vec<u32> = (boards.flat_map(|n| &n.kernels).map(|p| p.kernel))
        .filter(|r| cluster.logical.captured(*r).is_some())
        .collect();
    ranks.sort_unstable();
    ensure!(
        !ranks.is_empty(),
        "no kernel on a board is captured: add <debug/> to its m_axis or s_axis port in {} and run again",
        cluster.logical.path.display()
    );
    if let Some(other) = args.rank.iter().find(|r| !ranks.contains(r)) {
        bail!("rank {other} is not captured (captured: {ranks:?})");
    }
    let mut captured = Vec::new();
    for rank in ranks {
        if !args.rank.is_empty() && !args.rank.contains(&rank) {
            continue;
        }
        let name = cluster
            .logical
            .kernel(rank)
            .map_or("?", |k| k.name.as_str());
        let file = crate::probe::path(&args.files.out(), &cluster.map.path, rank);
        if let Some(samples) = Samples::read(&file)? {
            ensure!(
                samples.rank == rank,
                "{}: it is rank {}'s",
                file.display(),
                samples.rank
            );
            let scope = name.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
            captured.push((format!("rank_{rank}_{scope}"), samples));
        }
    }
    ensure!(
        !captured.is_empty(),
        "no captured packets in {} (baltra cluster run captures them)",
        args.files.out().display()
    );
    if let Some(path) = &args.vcd {
        let file = std::fs::File::create(path).with_context(|| path.display().to_string())?;
        let mut to = std::io::BufWriter::new(file);
        waveform(&captured, &mut to).with_context(|| path.display().to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut packets: Vec<_> = captured
        .iter()
        .flat_map(|(_, samples)| samples.packets())
        .collect();
    packets.sort_by_key(|p| p.cycle);
    if args.json {
        let ranks: Vec<_> = (captured.iter())
            .map(|(_, s)| {
                serde_json::json!({
                    "rank": s.rank, "samples": s.len(), "overwritten": s.overwritten, "gaps": s.gaps()
                })
            })
            .collect();
        let report = serde_json::json!({ "ranks": ranks, "packets": packets });
        writeln!(out, "{report:#}")?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(
        out,
        "      CYCLE  RANK  WAY  PACKET          PEER  TAG    BYTES  BEATS  CYCLES  WAITED"
    )?;
    for p in &packets {
        writeln!(
            out,
            "{:>11}  {:>4}  {:<3}  {:<14}  {:>4}  {:>3}  {:>7}  {:>5}  {:>6}  {:>6}",
            p.cycle, p.rank, p.way, p.kind, p.peer, p.tag, p.bytes, p.beats, p.cycles, p.waited
        )?;
    }
    for (name, samples) in &captured {
        let (notes, older, gaps) = (samples.len(), samples.overwritten, samples.gaps());
        eprint!("{name}: {notes} samples");
        if older > 0 {
            eprint!(", {older} older ones overwritten");
        }
        if gaps > 0 {
            eprint!(", gaps in {gaps} places");
        }
        eprintln!();
    }
    Ok(ExitCode::SUCCESS)
}

fn start(args: &RunArgs, out: &mut dyn Write) -> Result<ExitCode> {
    let quiet = args.quiet;
    // Released at the end of the run, also after an error.
    let mut boards = None;
    let files = &args.build.files.files;
    let cluster = Cluster::read_with(&files.logical, &files.map, |cluster| {
        let Some(url) = &args.pool else {
            return Ok(());
        };
        let registry = baltra_api::client::Options {
            url: url.clone(),
            token: args.registry_token.clone().unwrap_or_default(),
            ca: None,
        };
        let mut say = |line: &str| {
            if !quiet {
                eprintln!("{line}");
            }
        };
        boards =
            Some(crate::pool::take(cluster, &registry, &mut say).map_err(|e| format!("{e:#}"))?);
        Ok(())
    })?;
    let with = Build {
        mpi: args.mpi.clone(),
        ..args.build.build()?
    };
    let built = build(&cluster, &with, &|line| {
        if !quiet {
            eprintln!("{line}");
        }
    })?;
    let state = args.build.files.state();
    ensure!(
        State::of(&state)?.is_none() || !args.node.is_empty(),
        "this cluster is already running (baltra cluster stop ends it)"
    );
    let key = match &args.key_file {
        Some(path) => Some(
            std::fs::read_to_string(path)
                .with_context(|| path.display().to_string())?
                .trim()
                .to_owned(),
        ),
        None => None,
    };
    let options = Options {
        nodes: args.node.clone(),
        port: args.port,
        key,
        args: (!args.args.is_empty()).then(|| args.args.clone()),
        state: args.node.is_empty().then_some(state),
        input: std::io::stdin()
            .as_fd()
            .try_clone_to_owned()
            .ok()
            .map(|fd| Arc::new(File::from(fd))),
        mpi: args.mpi.clone(),
    };
    let mut failed = None;
    let outcome = run(&cluster, &built, &options, &mut |error, line| {
        // Lines of the launcher begin with "rank", lines of a rank with `[` and its number.
        let own = !line.starts_with('[');
        let written = match (own, error) {
            (true, _) if quiet && !line.contains("failed") => Ok(()),
            (true, _) | (_, true) => writeln!(std::io::stderr(), "{line}"),
            (false, false) => writeln!(out, "{line}"),
        };
        failed = failed.take().or(written.err());
    })?;
    if let Some(error) = failed {
        return Err(error).context("cannot forward a rank's output");
    }
    out.flush()?;
    if let Some(path) = &args.json {
        let ranks: Vec<_> = outcome.ranks.iter().map(as_json).collect();
        let report = serde_json::json!({"wall_s": outcome.wall.as_secs_f64(), "code": outcome.code, "ranks": ranks});
        std::fs::write(path, format!("{report:#}\n"))
            .with_context(|| path.display().to_string())?;
    }
    if !quiet {
        table(
            outcome.ranks.iter().map(|end| (end, Vec::new())),
            &[],
            &mut std::io::stderr(),
        )?;
        eprintln!(
            "{} ranks, {:.3} s",
            outcome.ranks.len(),
            outcome.wall.as_secs_f64()
        );
    }
    Ok(ExitCode::from(outcome.code))
}

fn as_json(end: &RankEnd) -> serde_json::Value {
    let Counters {
        sent,
        sent_bytes,
        received,
        received_bytes,
        waited_ns,
        ..
    } = end.counters;
    serde_json::json!({
        "rank": end.rank, "kernel": end.kernel, "node": end.node, "sent": sent, "sent_bytes": sent_bytes,
        "received": received, "received_bytes": received_bytes, "asleep_s": waited_ns as f64 * 1e-9,
    })
}

/// A table of ranks with sums; columns whose head has `>` are right-aligned.
fn table<'a>(
    ends: impl Iterator<Item = (&'a RankEnd, Vec<String>)>,
    more: &[&str],
    out: &mut dyn Write,
) -> Result<()> {
    let mut heads = vec![">RANK", "KERNEL", "NODE"];
    heads.extend(more);
    heads.extend([">SENT", ">BYTES", ">RECEIVED", ">BYTES", ">ASLEEP ms"]);
    let numbers = |c: &Counters| {
        [
            c.sent,
            c.sent_bytes,
            c.received,
            c.received_bytes,
            c.waited_ns / 1_000_000,
        ]
        .map(|n| n.to_string())
    };
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut sum = Counters::default();
    for (end, cells) in ends {
        let mut row = vec![end.rank.to_string(), end.kernel.clone(), end.node.clone()];
        row.extend(cells);
        row.extend(numbers(&end.counters));
        rows.push(row);
        sum.sent += end.counters.sent;
        sum.sent_bytes += end.counters.sent_bytes;
        sum.received += end.counters.received;
        sum.received_bytes += end.counters.received_bytes;
        sum.waited_ns += end.counters.waited_ns;
    }
    let mut last = vec!["all".to_owned(), String::new(), String::new()];
    last.extend(more.iter().map(|_| String::new()));
    last.extend(numbers(&sum));
    rows.push(last);
    rows.insert(
        0,
        heads
            .iter()
            .map(|h| h.trim_start_matches('>').to_owned())
            .collect(),
    );
    let widths: Vec<usize> = (0..heads.len())
        .map(|c| rows.iter().map(|r| r[c].chars().count()).max().unwrap_or(0))
        .collect();
    for row in &rows {
        let cells: Vec<String> = row
            .iter()
            .enumerate()
            .map(|(c, text)| {
                if heads[c].starts_with('>') {
                    format!("{text:>0$}", widths[c])
                } else {
                    format!("{text:<0$}", widths[c])
                }
            })
            .collect();
        writeln!(out, "{}", cells.join("  ").trim_end())?;
    }
    Ok(())
}
