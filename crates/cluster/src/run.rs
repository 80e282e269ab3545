//! Starts the ranks of a cluster, prints the node of each, forwards their output, and stops all of
//! them when one fails.

use crate::build::Built;
use crate::form::Form;
use crate::job::{counters, new_key, Counters, Job, Member};
use crate::model::{Cluster, Comm, NodeKind};
use crate::stuck::Watch;
use anyhow::{bail, ensure, Context, Result};
use rustix::process::{kill_process, Pid, Signal};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{sync_channel, Receiver, RecvTimeoutError, SyncSender};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval of the checks for ended ranks.
const LOOK: Duration = Duration::from_millis(5);
/// Time for the other ranks to report their own failures after one has failed, and again to exit
/// after SIGTERM.
const GRACE: Duration = Duration::from_millis(1500);
/// The port of boards and of the processes that connect to boards, each at its own IP address (the
/// public libraries' port).
const TCP_PORT: u16 = 9000;
/// Longest line of output; the rest of a longer line is cut off, to bound memory.
const LINE_BYTES_MAX: u64 = 64 << 10;

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

/// A run on this host, from the file that `status` and `stop` read.
#[derive(Debug, Deserialize, Serialize)]
pub struct State {
    launcher: i32,
    /// Start time of the launcher's process, in clock ticks since boot: its process id may be
    /// reused.
    began: u64,
    ranks: Vec<StateRank>,
}

#[derive(Debug, Deserialize, Serialize)]
struct StateRank {
    rank: usize,
    kernel: String,
    node: String,
    pid: u32,
    segment: i32,
}

enum Event {
    Line {
        rank: usize,
        error: bool,
        text: String,
    },
    /// A kernel of a board has ended.
    Ended {
        rank: usize,
        code: u8,
    },
    Silent,
}

/// The ranks' nodes and addresses.
fn members(
    cluster: &Cluster,
    built: &Built,
    options: &Options,
) -> Result<(Vec<Member>, Vec<usize>)> {
    let size = cluster.size();
    let mut nodes = vec![None; size];
    for (index, node) in cluster.map.nodes.iter().enumerate() {
        for place in &node.kernels {
            let Some(slot) = nodes.get_mut(place.kernel as usize) else {
                bail!(
                    "{}: ranks must be numbered from 0 without gaps: there are {size} kernels, and one has number {}",
                    cluster.logical.path.display(),
                    place.kernel
                );
            };
            *slot = Some(index);
        }
    }
    let nodes: Vec<usize> = nodes.into_iter().flatten().collect();
    ensure!(nodes.len() == size, "a kernel is not on any node");
    let several = cluster.map.nodes.len() > 1;
    let boards = (cluster.map.nodes.iter()).any(|n| n.kind == NodeKind::Hardware);
    let speaks = |comm| cluster.map.nodes.iter().any(|n| n.comm == Some(comm));
    let tcp_boards = boards && several && speaks(Comm::Tcp);
    let udp = several && speaks(Comm::Udp);
    let ether = boards && !tcp_boards || several && (speaks(Comm::Eth) || udp);
    for (index, node) in cluster.map.nodes.iter().enumerate() {
        let what = match node.comm {
            _ if udp && !matches!(node.ip, Some(IpAddr::V4(_))) => {
                "needs an <ip> of IPv4 for its ranks to be reached over UDP"
            }
            _ if ether && !udp && several && node.mac.is_none() => {
                "needs a <mac> for its ranks to be reached over raw Ethernet"
            }
            _ if !ether && several && node.ip.is_none() => {
                "needs an <ip> for its ranks to be reached over TCP"
            }
            _ if tcp_boards && !matches!(node.ip, Some(IpAddr::V4(_))) => {
                "needs an <ip> of IPv4: boards support no other"
            }
            _ => continue,
        };
        let (path, name) = (cluster.map.path.display(), cluster.node_name(index));
        bail!("{path}:{}: {name} {what}", node.line);
    }
    ensure!(
        !ether && !boards || options.nodes.is_empty(),
        "--node: raw Ethernet, UDP and boards work between nodes of one host only"
    );
    if let Some(mpi) = &options.mpi {
        ensure!(
            options.nodes.is_empty(),
            "--mpi: all processes must run on this host (omit --node)"
        );
        let hardware = |rank: usize| cluster.map.nodes[nodes[rank]].kind == NodeKind::Hardware;
        let first = (0..size).find(|r| hardware(*r)).unwrap_or(size);
        if let Some(later) = (first..size).find(|r| !hardware(*r)) {
            bail!("--mpi: rank {later} is a process, but rank {first} is on a board: the processes of {mpi} must be the first ranks");
        }
        ensure!(first > 0, "--mpi: no rank is a process");
    }
    if !options.nodes.is_empty() {
        let known = cluster.map.nodes.len();
        ensure!(
            options.nodes.iter().all(|n| *n < known),
            "--node: unknown node, use 0 to {}",
            known - 1
        );
        ensure!(
            options.port.is_some() && options.key.is_some(),
            "--node requires --port and --key-file, the same on all nodes"
        );
    }
    let members = (0..size)
        .map(|rank| {
            let node = &cluster.map.nodes[nodes[rank]];
            // With "tcp" on the only node, its ranks do not share memory: each is a separate group.
            // With several nodes, "tcp" is the protocol between nodes.
            let apart = node.comm == Some(Comm::Tcp) && cluster.map.nodes.len() == 1;
            Member {
                group: if apart {
                    cluster.map.nodes.len() + rank
                } else {
                    nodes[rank]
                },
                listen: Some(node.ip.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))),
                port: options.port.map_or(0, |p| p.saturating_add(rank as u16)),
                here: options.nodes.is_empty() || options.nodes.contains(&nodes[rank]),
                mac: match node.kind == NodeKind::Hardware || ether {
                    true => Some(mac(cluster, nodes[rank])),
                    false => None,
                },
                udp: match node.ip {
                    Some(IpAddr::V4(ip)) if udp => Some(ip),
                    _ => None,
                },
                tcp: !ether,
                board: node.kind == NodeKind::Hardware,
                streams: (built.kernels.get(&(rank as u32))).is_some_and(|k| k.streams),
                mpi: options.mpi.is_some() && node.kind == NodeKind::Software,
            }
        })
        .collect();
    Ok((members, nodes))
}

/// A node's hardware address. The map file need not have one for nodes with UDP, boards with TCP
/// and single nodes.
fn mac(cluster: &Cluster, node: usize) -> String {
    let given = cluster.map.nodes[node].mac.clone();
    given.unwrap_or_else(|| format!("02:00:00:00:01:{node:02x}"))
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
    let (members, nodes) = members(cluster, built, options)?;
    let size = members.len();
    let here: Vec<usize> = (0..size).filter(|r| members[*r].here).collect();
    let on_board: Vec<bool> = members.iter().map(|m| m.board).collect();
    ensure!(
        options.args.is_none() || !on_board.contains(&true),
        "arguments after -- are for processes: set those of kernels on boards with <args>"
    );
    ensure!(!here.is_empty(), "no rank runs on the selected nodes");
    let key = match &options.key {
        Some(key) => {
            ensure!(
                key.len() == 32 && key.bytes().all(|b| b.is_ascii_hexdigit()),
                "the key must be 32 hexadecimal digits"
            );
            key.clone()
        }
        None => new_key()?,
    };
    let mut job = Job::new(members, key)?;
    let began = Instant::now();
    let (sender, lines) = sync_channel(1024);
    let mut children = Children(Vec::new());
    for (index, node) in cluster.map.nodes.iter().enumerate() {
        let ranks: Vec<usize> = node.kernels.iter().map(|p| p.kernel as usize).collect();
        let Some(&first) = ranks.iter().min().filter(|r| on_board[**r]) else {
            continue;
        };
        let file = built.out.join(format!("board-{index}.conf"));
        let text = board_file(cluster, index, built, &job, &nodes)?;
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        let program = match (job.tcp(first), job.udp(first)) {
            (true, _) => &built.board_tcp,
            (_, Some(_)) => &built.board_udp,
            _ => &built.board,
        };
        let mut command = Command::new(program);
        command
            .arg(&file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = job.spawn(first, command)?;
        let name = cluster.node_name(index);
        // A kernel in RTL runs until the other ranks end.
        let runs = |rank: &&usize| {
            let kernel = built.kernels.get(&(**rank as u32));
            kernel.is_some_and(|k| k.form != Form::Rtl)
        };
        let ends = ranks.iter().filter(runs).count();
        for &rank in &ranks {
            let kernel = cluster
                .logical
                .kernel(rank as u32)
                .map_or("?", |k| k.name.as_str());
            let process = child.id();
            say(
                true,
                &format!("rank {rank}: {kernel} on board {name}, process {process}"),
            );
        }
        if let Some(out) = child.stdout.take() {
            forward(
                Source::Board(name.clone(), ranks.clone()),
                false,
                out,
                sender.clone(),
            );
        }
        if let Some(err) = child.stderr.take() {
            forward(
                Source::Board(name.clone(), ranks.clone()),
                true,
                err,
                sender.clone(),
            );
        }
        children.0.push(Running {
            name: format!("board {name}"),
            left: ends,
            ranks,
            input: child.stdin.take(),
            child,
            status: None,
        });
    }
    if let Some(mpi) = &options.mpi {
        let ranks: Vec<usize> = (0..size).filter(|r| !on_board[*r]).collect();
        let command = mpiexec(mpi, cluster, built, options, &ranks)?;
        let mut child = job.spawn_mpi(command)?;
        for &rank in &ranks {
            let kernel = cluster.logical.kernel(rank as u32);
            let (name, process) = (kernel.map_or("?", |k| k.name.as_str()), child.id());
            say(
                true,
                &format!("rank {rank}: {name} by mpiexec.{mpi}, process {process}"),
            );
        }
        if let Some(out) = child.stdout.take() {
            forward(Source::Mpi(ranks.clone()), false, out, sender.clone());
        }
        if let Some(err) = child.stderr.take() {
            forward(Source::Mpi(ranks.clone()), true, err, sender.clone());
        }
        children.0.push(Running {
            name: format!("mpiexec.{mpi}"),
            ranks,
            left: 0,
            input: None,
            child,
            status: None,
        });
    }
    for &rank in &here {
        if on_board[rank] || options.mpi.is_some() {
            continue;
        }
        let kernel = cluster
            .logical
            .kernel(rank as u32)
            .context("internal error: no kernel with this number")?;
        let program = built
            .programs
            .get(&kernel.num)
            .with_context(|| format!("kernel '{}' is not built", kernel.name))?;
        let mut command = Command::new(&program.path);
        match options.args.as_ref().or(kernel.args.as_ref()) {
            Some(args) => command.args(args),
            // As in the paper's listing: the number of kernels, and this kernel's number.
            None => command.args([size.to_string(), rank.to_string()]),
        };
        for (name, value, _) in &kernel.constants {
            command.env(format!("HUM_CONST_{name}"), value);
        }
        command
            .stdin(input(options, rank)?)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = job.spawn(rank, command)?;
        let where_ = cluster.node_name(nodes[rank]);
        say(
            true,
            &format!(
                "rank {rank}: {} on {where_}, process {}",
                kernel.name,
                child.id()
            ),
        );
        if let Some(out) = child.stdout.take() {
            forward(Source::Rank(rank), false, out, sender.clone());
        }
        if let Some(err) = child.stderr.take() {
            forward(Source::Rank(rank), true, err, sender.clone());
        }
        children.0.push(Running {
            name: format!("rank {rank} ({})", kernel.name),
            ranks: vec![rank],
            left: 0,
            input: None,
            child,
            status: None,
        });
    }
    drop(sender);
    let kernel_of = |rank: usize| {
        cluster
            .logical
            .kernel(rank as u32)
            .map(|k| k.name.clone())
            .unwrap_or_default()
    };
    let state = State {
        launcher: std::process::id() as i32,
        began: began_ticks(std::process::id()).unwrap_or_default(),
        ranks: children
            .0
            .iter()
            .flat_map(|running| running.ranks.iter().map(|rank| (*rank, running.child.id())))
            .map(|(rank, pid)| StateRank {
                rank,
                kernel: kernel_of(rank),
                node: cluster.node_name(nodes[rank]),
                pid,
                segment: job.segment_fd(rank).unwrap_or(-1),
            })
            .collect(),
    };
    if let Some(path) = &options.state {
        let text =
            serde_json::to_string_pretty(&state).context("cannot serialize the run's state")?;
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
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

/// The configuration file of a board's process: its own address, its kernels, and the addresses of
/// all other ranks.
fn board_file(
    cluster: &Cluster,
    index: usize,
    built: &Built,
    job: &Job,
    nodes: &[usize],
) -> Result<String> {
    let node = &cluster.map.nodes[index];
    let mut text = format!("address {}\nranks {}\n", mac(cluster, index), nodes.len());
    let elsewhere = || (0..nodes.len()).filter(|r| nodes[*r] != index);
    let first = node.kernels.iter().map(|p| p.kernel as usize).min();
    let own = first.context("internal error: a board without kernels")?;
    let ip = |node: usize| match cluster.map.nodes[node].ip {
        Some(ip) => ip.to_string(),
        None => "-".to_owned(),
    };
    if job.udp(own).is_some() {
        text += &format!("udp {}\n", ip(index));
    }
    if job.tcp(own) {
        text += &format!("tcp {} {own} {TCP_PORT}\n", ip(index));
        for rank in elsewhere().filter(|r| job.station(*r) == *r) {
            // Of two boards, the later one connects; processes always connect.
            match job.frames_to(rank) {
                Some((mac, path)) => {
                    let role = if rank < own { 1 } else { 2 };
                    let (ip, path) = (ip(nodes[rank]), path.display());
                    text += &format!("station {rank} {role} {ip} {mac} {path}\n");
                }
                None => text += &format!("station {rank} 2 -\n"),
            }
        }
    }
    for (port, place) in node.kernels.iter().enumerate() {
        let kernel = cluster
            .logical
            .kernel(place.kernel)
            .context("internal error: no kernel with this number")?;
        let made = built
            .kernels
            .get(&place.kernel)
            .with_context(|| format!("kernel '{}' is not built for a board", kernel.name))?;
        let image = made
            .image
            .as_ref()
            .map(|i| i.display().to_string())
            .unwrap_or_default();
        text += &format!(
            "kernel {} {port} {} {image}\n",
            place.kernel,
            made.model.display()
        );
        if let Some(bytes) = kernel.memory() {
            text += &format!("memory {} {bytes}\n", place.kernel);
        }
        if let Some(streams) = kernel.captured() {
            let file = crate::probe::path(&built.out, &cluster.map.path, place.kernel);
            text += &format!("probe {} {streams} {}\n", place.kernel, file.display());
        }
    }
    for rank in elsewhere() {
        if job.tcp(own) {
            text += &format!("peer {rank} {}\n", job.station(rank));
        } else {
            let (mac, path) = job
                .frames_to(rank)
                .context("internal error: a rank without an address")?;
            let (path, ip) = (path.display(), ip(nodes[rank]));
            let kind = match cluster.map.nodes[nodes[rank]].kind {
                NodeKind::Hardware => " board",
                NodeKind::Software => "",
            };
            text += &format!("peer {rank} {mac} {path} {ip}{kind}\n");
        }
    }
    for fault in node.rest.iter().filter(|e| e.is("fault")) {
        text += &format!("fault {}\n", fault.text);
    }
    Ok(text)
}

/// A process: a rank, or a board with the ranks of its kernels.
struct Running {
    name: String,
    ranks: Vec<usize>,
    /// The number of the board's kernels that have not ended.
    left: usize,
    /// Dropping it ends a board.
    input: Option<ChildStdin>,
    child: Child,
    status: Option<ExitStatus>,
}

/// Processes that are killed when the value is dropped.
struct Children(Vec<Running>);

impl Children {
    fn signal(&mut self, signal: Signal) {
        for running in &self.0 {
            // The process has not been waited for, so the number has not been reused.
            if let (None, Some(pid)) = (running.status, Pid::from_raw(running.child.id() as i32)) {
                let _ = kill_process(pid, signal);
            }
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for running in &mut self.0 {
            if running.status.is_none() {
                let _ = running.child.kill();
                let _ = running.child.wait();
            }
        }
    }
}

fn status_code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128_u8.wrapping_add(signal as u8),
        (None, None) => 1,
    }
}

/// Reports why one rank, or all, failed. A later message of another rank may contain the cause of
/// the first failure.
fn fail(
    failed: &mut Option<Instant>,
    code: &mut u8,
    ended: u8,
    say: &mut dyn FnMut(bool, &str),
    why: &str,
) {
    if failed.is_some() {
        return say(true, why);
    }
    *failed = Some(Instant::now());
    *code = ended;
    say(true, &format!("{why}; stopping the other ranks"));
}

/// Forwards lines until all have ended, and ends the rest after a failure.
fn attend(
    children: &mut Children,
    lines: &Receiver<Event>,
    mut watch: Option<&mut Watch>,
    say: &mut dyn FnMut(bool, &str),
    kernel_of: &dyn Fn(usize) -> String,
) -> u8 {
    let mut code = 0;
    let mut failed: Option<Instant> = None;
    let mut stage = 0;
    let mut open = true;
    let mut silent = 0;
    let mut quiet: Option<Instant> = None;
    loop {
        match lines.recv_timeout(LOOK) {
            Ok(Event::Line { rank, error, text }) => {
                quiet = None;
                say(error, &format!("[{rank}] {text}"));
            }
            Ok(Event::Ended { rank, code: ended }) => {
                for running in &mut children.0 {
                    if running.ranks.contains(&rank) {
                        running.left = running.left.saturating_sub(1);
                    }
                }
                if ended != 0 {
                    let kernel = kernel_of(rank);
                    fail(
                        &mut failed,
                        &mut code,
                        ended,
                        say,
                        &format!("rank {rank} ({kernel}) failed: exit status: {ended}"),
                    );
                }
            }
            Ok(Event::Silent) => silent += 1,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                open = false;
                std::thread::sleep(LOOK);
            }
        }
        if let (Some(watch), None) = (&mut watch, failed) {
            if let Some(why) = watch.look() {
                fail(&mut failed, &mut code, 1, say, &why);
            }
        }
        let mut running = false;
        // Boards run until all other ranks have ended.
        let over = (children.0.iter()).all(|c| match c.input {
            Some(_) => c.left == 0,
            None => c.status.is_some(),
        });
        for each in &mut children.0 {
            if over {
                each.input = None;
            }
            if each.status.is_some() {
                continue;
            }
            match each.child.try_wait() {
                Ok(Some(ended)) => {
                    each.status = Some(ended);
                    // A rank that the launcher has stopped did not fail.
                    if (!ended.success() || each.left > 0) && stage == 0 {
                        let why = format!("{} failed: {ended}", each.name);
                        let ended = status_code(ended).max(1);
                        fail(&mut failed, &mut code, ended, say, &why);
                    }
                }
                _ => running = true,
            }
        }
        // All have ended, and all their output has been read. A process that a rank left behind may
        // still hold the output open.
        if !running {
            let quiet = *quiet.get_or_insert_with(Instant::now);
            if !open || silent == 2 * children.0.len() || quiet.elapsed() > GRACE {
                return code;
            }
        }
        let late = failed.map_or(0, |at| {
            (at.elapsed().as_millis() / GRACE.as_millis()) as u32
        });
        if running && late > stage {
            stage = late;
            children.signal(if late == 1 {
                Signal::TERM
            } else {
                Signal::KILL
            });
        }
    }
}

/// The source of an output.
enum Source {
    Rank(usize),
    Board(String, Vec<usize>),
    /// Another MPI's launcher with these ranks.
    Mpi(Vec<usize>),
}

/// Parses the rank in the prefix of a line from MPICH (`[3] …`) or Open MPI (`[1,3]<stdout>:…`).
fn tagged(line: &str) -> Option<(usize, &str)> {
    let (tag, text) = line.strip_prefix('[')?.split_once(']')?;
    match tag.split_once(',') {
        None => Some((tag.parse().ok()?, text.strip_prefix(' ').unwrap_or(text))),
        Some((_, rank)) => {
            let (_, text) = text.strip_prefix('<')?.split_once(">:")?;
            Some((rank.parse().ok()?, text))
        }
    }
}

impl Source {
    /// A board tags the lines of its kernels and reports their ends; other lines are the board's
    /// own output.
    fn event(&self, error: bool, text: String) -> Event {
        let (name, ranks) = match self {
            Source::Rank(rank) => {
                let rank = *rank;
                return Event::Line { rank, error, text };
            }
            Source::Mpi(ranks) => {
                let known = tagged(&text).filter(|(rank, _)| ranks.contains(rank));
                let (rank, text) = match known {
                    Some((rank, text)) => (rank, text.to_owned()),
                    None => (0, format!("mpiexec: {text}")),
                };
                return Event::Line { rank, error, text };
            }
            Source::Board(name, ranks) => (name, ranks),
        };
        let known = |word: &str| word.parse().ok().filter(|r| ranks.contains(r));
        if let (false, Some((rank, line))) = (error, text.split_once(": ")) {
            if let Some(rank) = known(rank) {
                let text = line.to_owned();
                return Event::Line { rank, error, text };
            }
        }
        if let (false, Some((rank, code))) = (error, text.split_once(" ended ")) {
            if let (Some(rank), Ok(code)) = (known(rank), code.parse()) {
                return Event::Ended { rank, code };
            }
        }
        let rank = ranks.first().copied().unwrap_or_default();
        let text = format!("board {name}: {text}");
        Event::Line { rank, error, text }
    }
}

/// Reads a process's output line by line in a separate thread.
fn forward(source: Source, error: bool, from: impl Read + Send + 'static, to: SyncSender<Event>) {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(from);
        let mut line = Vec::new();
        loop {
            line.clear();
            match reader
                .by_ref()
                .take(LINE_BYTES_MAX)
                .read_until(b'\n', &mut line)
            {
                Ok(0) | Err(_) => break,
                Ok(_) => {
                    let text = String::from_utf8_lossy(&line)
                        .trim_end_matches(['\n', '\r'])
                        .to_owned();
                    if to.send(source.event(error, text)).is_err() {
                        return;
                    }
                }
            }
        }
        let _ = to.send(Event::Silent);
    });
}

/// The start time of a process, in clock ticks since boot.
fn began_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain blanks; field 22 is the 20th after the name.
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(19)?
        .parse()
        .ok()
}

impl State {
    /// Reads a state file; `None` if the run has ended.
    pub fn of(path: &Path) -> Result<Option<State>> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e).with_context(|| path.display().to_string()),
        };
        let state: State =
            serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        let live = began_ticks(state.launcher as u32) == Some(state.began);
        Ok(live.then_some(state))
    }

    /// The number, kernel, node, process and counters of each rank.
    pub fn ranks(&self) -> Vec<(RankEnd, u32)> {
        self.ranks
            .iter()
            .map(|r| {
                let segment = File::open(format!("/proc/{}/fd/{}", self.launcher, r.segment));
                let end = RankEnd {
                    rank: r.rank,
                    kernel: r.kernel.clone(),
                    node: r.node.clone(),
                    counters: segment.map(|s| counters(&s, r.rank)).unwrap_or_default(),
                };
                (end, r.pid)
            })
            .collect()
    }

    /// Stops the run: signals its launcher, which stops the ranks.
    pub fn stop(&self) -> Result<()> {
        let pid = Pid::from_raw(self.launcher).context("no process")?;
        kill_process(pid, Signal::TERM).context("cannot stop the run")?;
        let until = Instant::now() + Duration::from_secs(5);
        let gone = |pid: u32, began: Option<u64>| {
            began_ticks(pid).is_none() || began.is_some_and(|b| began_ticks(pid) != Some(b))
        };
        while Instant::now() < until {
            // A rank's process is killed by its parent-death signal (set in HUM_Init) when its
            // parent exits.
            if gone(self.launcher as u32, Some(self.began))
                && self.ranks.iter().all(|r| gone(r.pid, None))
            {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        for rank in &self.ranks {
            if let (Some(pid), false) = (Pid::from_raw(rank.pid as i32), gone(rank.pid, None)) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        Ok(())
    }
}
