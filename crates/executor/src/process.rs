//! The process: one control socket, any number of sessions.

use crate::account::Account;
use crate::capture::Capture;
use crate::driver::{self, Context, Device, Queue, Turns};
use crate::health::Health;
use crate::images::Images;
use crate::session::{Place, Session};
use crate::traces::Traces;
use anyhow::Context as _;
use baltra_channel::Channel;
use baltra_ring::LeaseHolder;
use baltra_sandbox::Sandbox;
use baltra_wire::executor::{Cause, SessionStart, ToExecutor, ToManager};
use baltra_wire::listing::Listing;
use baltra_wire::{DeviceDescription, Share, EXECUTOR_ENDED, WORK_FAULTED};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use std::collections::HashMap;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Long enough for a client that enqueues again as soon as it hears; the spinning thread yields.
const SPIN_US: u64 = 50;

/// How long the commands of a session that ended may run on when no other session needs the
/// process: everything is free within a second.
const ENDING_MAX: Duration = Duration::from_millis(800);

/// How long they may run on otherwise, unless [`Options::orphan`] says: others lose their sessions
/// with the process. A GPU's driver takes turns among kernels, and an endless one slows down all
/// others meanwhile.
const ORPHAN_MAX_GPU: Duration = Duration::from_secs(2);
/// As above, on other devices.
const ORPHAN_MAX: Duration = Duration::from_secs(5);

/// The default directory's name, followed by the process's number.
const WORK_DIR: &str = "baltra-executor-";

/// How an executor is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// The control socket, inherited; may be the standard input.
    pub control_fd: RawFd,
    /// The vendor's library.
    pub driver: String,
    /// Which of its devices: a number, a part of a name, or nothing for the first.
    pub device: String,
    /// The device's name in the manager's configuration.
    pub name: String,
    /// Whether buffers may lie in the client's memory, where the device can use it.
    pub host_memory: bool,
    /// How long a queue's thread spins for the next command before it sleeps, microseconds.
    pub spin_us: u64,
    /// A directory of this executor's own: compiled kernels, temporary files. Made if need be,
    /// removed at the end.
    pub work_dir: PathBuf,
    /// Where the directories are that [`ToExecutor::Assign`] names; without it, and with the
    /// sandbox, compiled kernels are not kept.
    pub cache_root: Option<PathBuf>,
    /// Where to call when the manager is gone and a new one has come.
    pub adopt: Option<PathBuf>,
    /// Whether to give up what the process does not need ([`baltra_sandbox`]).
    pub sandbox: bool,
    /// Whether the manager is told of commands that belong to traces.
    pub traces: bool,
    /// How long commands of a session that ended may run on while others use the process; `None`:
    /// by the device's kind.
    pub orphan: Option<Duration>,
}

impl Options {
    /// The first device of a driver's library, the control socket as the standard input, and
    /// otherwise what suits most.
    pub fn new(driver: impl Into<String>) -> Options {
        let own = format!("{WORK_DIR}{}", std::process::id());
        Options {
            control_fd: 0,
            driver: driver.into(),
            device: String::new(),
            name: String::new(),
            host_memory: true,
            spin_us: SPIN_US,
            work_dir: std::env::temp_dir().join(own),
            cache_root: None,
            adopt: None,
            sandbox: true,
            traces: false,
            orphan: None,
        }
    }

    fn sandbox(&self) -> Sandbox {
        Sandbox {
            library: self.driver.clone().into(),
            work_dir: self.work_dir.clone(),
            cache_root: self.cache_root.clone(),
        }
    }

    /// The spinning time.
    pub fn spin(&self) -> Duration {
        Duration::from_micros(self.spin_us)
    }
}

/// What all sessions of the process share.
pub struct Shared {
    /// How it was started.
    pub options: Options,
    /// The device.
    pub device: Device,
    /// The driver's context over it, made before the first session came.
    pub context: Arc<Context>,
    /// The device, described.
    pub description: DeviceDescription,
    /// Turns at the driver, which GPU drivers want taken.
    pub turns: Arc<Turns>,
    /// For pinning arenas; `None`: the device works in host memory, or is no GPU.
    pub pinning: Option<Arc<Queue>>,
    /// The standard output, where kernels print.
    pub capture: Option<Capture>,
    /// The device's image, where it holds one at a time.
    pub images: Arc<Images>,
    /// Commands that belong to traces.
    pub traces: Traces,
    /// Whether the driver's context is still of use.
    pub health: Health,
}

impl Shared {
    /// How long commands of a session that ended may run on while others use the process.
    fn orphan_max(&self) -> Duration {
        let by_kind = match self.device.is_gpu() {
            true => ORPHAN_MAX_GPU,
            false => ORPHAN_MAX,
        };
        self.options.orphan.unwrap_or(by_kind)
    }

    /// Loads the driver and readies it.
    pub fn open(options: Options, capture: Option<Capture>) -> anyhow::Result<Shared> {
        let device = Device::open(&options.driver, &options.device)?;
        let context = Context::new(&[device])
            .map_err(|code| anyhow::anyhow!("the driver makes no context ({code})"))?;
        let description = driver::describe(device, &context, &options.name, options.host_memory);
        let gpu = device.is_gpu() && !description.host_memory;
        let pinning = match gpu {
            true => context.queue(device, 0).ok().map(Arc::new),
            false => None,
        };
        let images = Arc::new(Images::new()?);
        Ok(Shared {
            health: Health::new(&context, device, images.wake()),
            turns: Turns::new(gpu),
            pinning,
            device,
            context: Arc::new(context),
            description,
            capture,
            traces: Traces::new(options.traces, images.wake()),
            images,
            options,
        })
    }
}

/// Runs the executor until the manager ends it, or is gone and the last session too.
pub fn run(options: Options) -> anyhow::Result<()> {
    let channel = take_channel(options.control_fd).context("the control descriptor")?;
    let opened = prepare(&options).and_then(|capture| Shared::open(options, capture));
    let shared = match opened {
        Ok(shared) => Arc::new(shared),
        Err(e) => {
            let text = format!("{e:#}");
            // The manager may be gone: then nobody is left to tell.
            let _ = channel.send(&ToManager::Failed { text }, &[]);
            return Err(e);
        }
    };
    channel
        .send(
            &ToManager::Ready {
                pid: std::process::id(),
                device: Box::new(shared.description.clone()),
            },
            &[],
        )
        .context("telling the manager")?;
    let result = Server::new(shared.clone(), channel)?.serve();
    // It is this executor's own and holds nothing that is still wanted. (The sandbox leaves the
    // empty directory itself; the next executor sweeps it.)
    let _ = std::fs::remove_dir_all(&shared.options.work_dir);
    if matches!(result, Ok(End::Abandoned)) {
        // SAFETY: ends the process. The driver's exit handlers would wait for the kernel.
        unsafe { libc::_exit(1) };
    }
    result.map(drop)
}

/// Loads a driver's library and lists its devices, confined as an executor is. The process is of
/// no other use afterwards; what the driver prints is lost.
pub fn probe(options: &Options) -> anyhow::Result<Listing> {
    prepare(options)?;
    let listing = driver::list(&options.driver);
    // The sandbox leaves the directory itself, which is its maker's.
    let _ = std::fs::remove_dir_all(&options.work_dir);
    Ok(listing?)
}

/// How serving ended.
enum End {
    /// Nothing is left to do.
    Done,
    /// A command of a session that is over does not end.
    Abandoned,
}

/// Moves the control socket where no program that the driver starts inherits it.
fn take_channel(fd: RawFd) -> anyhow::Result<Channel> {
    // SAFETY: the manager has put its socket there for us alone.
    let inherited = unsafe { OwnedFd::from_raw_fd(fd) };
    let moved = rustix::io::fcntl_dupfd_cloexec(&inherited, 3)?;
    if fd <= 2 {
        // The place stays taken: a file that is opened later must not become an input.
        let null = std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/null")?;
        let mut place = inherited;
        rustix::io::dup2(&null, &mut place)?;
        std::mem::forget(place);
    }
    Ok(Channel::new(moved))
}

/// Everything that has to be in place before the driver is loaded: its environment, its
/// standard output, the part of the sandbox that its threads inherit.
fn prepare(options: &Options) -> anyhow::Result<Option<Capture>> {
    let dir = &options.work_dir;
    sweep(dir);
    for part in ["own", "tmp"] {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir.join(part))
            .with_context(|| format!("cannot make {}", dir.join(part).display()))?;
    }
    point_cache(dir, &dir.join("own"))?;
    std::env::set_var("POCL_CACHE_DIR", dir.join("cache"));
    std::env::set_var("TMPDIR", dir.join("tmp"));
    std::env::set_var("CUDA_CACHE_PATH", dir.join("cache"));
    let capture = Capture::standard_output().context("cannot capture the standard output")?;
    if options.sandbox {
        options.sandbox().enter()?;
    }
    Ok(Some(capture))
}

/// Removes what executors left that were killed.
fn sweep(dir: &Path) {
    let siblings = dir.parent().and_then(|parent| parent.read_dir().ok());
    for sibling in siblings.into_iter().flatten().flatten() {
        let name = sibling.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(WORK_DIR));
        let pid = pid.and_then(|pid| pid.parse::<u32>().ok());
        let dead = pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
        if dead {
            // Another user's cannot be removed, and need not be.
            let _ = std::fs::remove_dir_all(sibling.path());
        }
    }
}

/// Makes `dir/cache` lead to `target`, in one step.
fn point_cache(dir: &Path, target: &Path) -> anyhow::Result<()> {
    let fresh = dir.join("cache.new");
    // Left by nobody but an earlier, unfinished start.
    let _ = std::fs::remove_file(&fresh);
    std::os::unix::fs::symlink(target, &fresh)
        .and_then(|()| std::fs::rename(&fresh, dir.join("cache")))
        .with_context(|| format!("cannot point {} to {}", dir.display(), target.display()))
}

/// Whether files can be made in `dir`.
fn try_write(dir: &Path) -> std::io::Result<()> {
    let probe = dir.join(format!(".probe-{}", std::process::id()));
    std::fs::write(&probe, b"")?;
    std::fs::remove_file(&probe)
}

/// A tenant's account and the descriptors that it came with.
struct Tenant {
    name: String,
    account: Arc<Account>,
    page: OwnedFd,
    bell: OwnedFd,
}

/// What a session has in the driver.
struct Running {
    session: u64,
    /// Since when its longest-running command runs, or waits behind others.
    since_ns: u64,
    /// The session is over, and so is the time that its commands have.
    overdue: bool,
}

/// Commands that began within this of each other may have come to the device in any order.
const TOGETHER_NS: u64 = 1_000_000_000;

/// The session whose commands hold the device past their time, if it is certain.
fn culprit(running: impl Iterator<Item = Running>) -> Option<u64> {
    let (overdue, others): (Vec<_>, Vec<_>) = running.partition(|r| r.overdue);
    let first = overdue.iter().min_by_key(|r| r.since_ns)?;
    let waits = |r: &Running| r.since_ns.saturating_add(TOGETHER_NS) < first.since_ns;
    (!others.iter().any(waits)).then_some(first.session)
}

type Ended = Arc<Mutex<Vec<(u64, String)>>>;

struct Server {
    shared: Arc<Shared>,
    /// `None`: the manager is gone.
    channel: Option<Channel>,
    sessions: HashMap<u64, Arc<Session>>,
    tenants: HashMap<u64, Tenant>,
    assigned: String,
    draining: bool,
    ended: Ended,
    wake: Arc<OwnedFd>,
}

impl Server {
    fn new(shared: Arc<Shared>, channel: Channel) -> anyhow::Result<Server> {
        shared.images.connect();
        let wake = shared.images.wake();
        Ok(Server {
            shared,
            channel: Some(channel),
            sessions: HashMap::new(),
            tenants: HashMap::new(),
            assigned: String::new(),
            draining: false,
            ended: Ended::default(),
            wake,
        })
    }

    fn serve(mut self) -> anyhow::Result<End> {
        while !(self.sessions.is_empty() && (self.draining || self.channel.is_none())) {
            let (control, heard) = self.wait()?;
            for session in heard {
                if let Some(session) = self.sessions.get(&session) {
                    session.hear();
                }
            }
            self.bury();
            self.post();
            if self.is_abandoned() {
                self.abandon();
                return Ok(End::Abandoned);
            }
            if let Some(session) = self.shared.health.culprit() {
                self.fail(Cause::ContextLost, session);
                return Ok(End::Abandoned);
            }
            if let Some(session) = self.overdue() {
                self.fail(Cause::Overdue, session);
                return Ok(End::Abandoned);
            }
            if control && !self.hear_manager() {
                break;
            }
            if self.channel.is_none() {
                self.call_manager();
            }
        }
        for session in self.sessions.values() {
            session.close("the executor ends");
        }
        Ok(End::Done)
    }

    /// Whether all that is left are sessions that ended and whose commands do not. Ending the
    /// process is then the one way to free what they hold, and disturbs nobody.
    fn is_abandoned(&self) -> bool {
        let late = |s: &Arc<Session>| s.ending_for().is_some_and(|d| d >= ENDING_MAX);
        !self.sessions.is_empty() && self.sessions.values().all(late)
    }

    fn abandon(&mut self) {
        let sessions: Vec<u64> = self.sessions.keys().copied().collect();
        tracing::warn!(
            ?sessions,
            "a command outlives its session: the executor ends"
        );
        for session in sessions {
            let reason = "a command outlived it, and the executor ended".into();
            self.tell(&ToManager::SessionEnded { session, reason });
        }
    }

    /// The session whose commands hold the device past their time: it has ended and they have
    /// not, and no living session's command has been running for longer, which they may wait for.
    fn overdue(&self) -> Option<u64> {
        let max = self.shared.orphan_max();
        let sessions = self.sessions.values();
        let running = sessions.filter_map(|s| {
            Some(Running {
                session: s.start.session,
                since_ns: s.running_since_ns()?,
                overdue: s.overdue(max),
            })
        });
        culprit(running)
    }

    /// This process cannot go on, because of a session's work. All clients are notified.
    fn fail(&mut self, cause: Cause, session: u64) {
        let culprit = self.sessions.get(&session);
        let tenant = culprit.map_or_else(String::new, |s| s.start.tenant.clone());
        let ended = culprit.map_or_else(String::new, |s| s.reason());
        let reason = match cause {
            Cause::Overdue => format!("a command does not end ({ended})"),
            Cause::ContextLost => format!("the driver's context is lost ({ended})"),
        };
        tracing::warn!(session, tenant, reason, "the executor ends");
        self.tell(&ToManager::Failing {
            cause,
            session,
            reason,
        });
        let why = match cause {
            Cause::Overdue => "a command of another session did not end",
            Cause::ContextLost => "the driver's context was lost",
        };
        let others = format!("{EXECUTOR_ENDED}{why}");
        let own = format!("{WORK_FAULTED}{why}");
        let culprit = session;
        let sessions: Vec<_> = self.sessions.values().cloned().collect();
        for session in sessions {
            session.dismiss(match session.start.session == culprit {
                true => &own,
                false => &others,
            });
            let (session, reason) = (session.start.session, session.reason());
            self.tell(&ToManager::SessionEnded { session, reason });
        }
    }

    /// Waits until somebody says something: whether the manager, and which clients.
    fn wait(&self) -> anyhow::Result<(bool, Vec<u64>)> {
        let open: Vec<_> = self
            .sessions
            .iter()
            .filter(|(_, session)| !session.is_closed())
            .collect();
        let sockets: Vec<_> = open.iter().map(|(_, session)| session.socket()).collect();
        let mut fds = vec![PollFd::new(&*self.wake, PollFlags::IN)];
        fds.extend(sockets.iter().map(|s| PollFd::new(s, PollFlags::IN)));
        if let Some(channel) = &self.channel {
            fds.push(PollFd::new(channel, PollFlags::IN));
        }
        let second = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        let moment = Timespec {
            tv_sec: 0,
            tv_nsec: 50_000_000,
        };
        let ending = open.len() < self.sessions.len();
        let timeout = match ending {
            true => Some(&moment),
            false => self.channel.is_none().then_some(&second),
        };
        match poll(&mut fds, timeout) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let spoke = |fd: &PollFd| !fd.revents().is_empty();
        if spoke(&fds[0]) {
            // Only to reset it.
            let _ = rustix::io::read(&*self.wake, &mut [0u8; 8]);
        }
        let heard = open
            .iter()
            .zip(&fds[1..])
            .filter(|(_, fd)| spoke(fd))
            .map(|((session, _), _)| **session)
            .collect();
        let control = self.channel.is_some() && fds.last().is_some_and(spoke);
        Ok((control, heard))
    }

    /// Tells the manager of the sessions that ended.
    fn bury(&mut self) {
        let ended = std::mem::take(&mut *self.ended.lock().expect("no panic under this lock"));
        for (session, reason) in ended {
            self.sessions.remove(&session);
            tracing::debug!(session, reason, "session ended");
            self.tell(&ToManager::SessionEnded { session, reason });
        }
        let used = |tenant: &Tenant| Arc::strong_count(&tenant.account) > 1;
        self.tenants.retain(|_, tenant| used(tenant));
    }

    /// Sends what builders have to say.
    fn post(&mut self) {
        for (message, fd) in self.shared.images.take_outbox() {
            let Some(channel) = &self.channel else {
                return;
            };
            let fds: Vec<_> = fd.iter().map(|fd| fd.as_fd()).collect();
            if channel.send(&message, &fds).is_err() {
                self.lose_manager();
            }
        }
        if let Some(message) = self.shared.traces.take() {
            self.tell(&message);
        }
    }

    fn tell(&mut self, message: &ToManager) {
        if let Some(channel) = &self.channel {
            if channel.send(message, &[]).is_err() {
                self.lose_manager();
            }
        }
    }

    /// Nobody arbitrates any more: running sessions run on.
    fn lose_manager(&mut self) {
        if self.channel.take().is_some() {
            self.shared.images.lose();
            // The next one may be of another release, or want none.
            self.shared.traces.stop();
            tracing::warn!(
                sessions = self.sessions.len(),
                "the manager is gone; sessions run on"
            );
            for tenant in self.tenants.values() {
                tenant.account.lease.open();
            }
        }
    }

    /// Carries out the manager's next message; false: the executor is to end.
    fn hear_manager(&mut self) -> bool {
        let Some(channel) = &self.channel else {
            return true;
        };
        match channel.receive::<ToExecutor>() {
            Ok(Some((ToExecutor::Session(start), fds))) => self.take_session(start, None, fds),
            Ok(Some((ToExecutor::Sharing(start, share), fds))) => {
                self.take_session(start, Some(share), fds);
            }
            Ok(Some((ToExecutor::Assign { tenant, cache_dir }, _))) => {
                self.assign(tenant, &cache_dir);
            }
            Ok(Some((ToExecutor::Image { digest }, _))) => self.shared.images.learn(digest),
            Ok(Some((ToExecutor::Programmed { call, verdict }, _))) => {
                self.shared.images.answer(call, verdict);
            }
            Ok(Some((ToExecutor::End { session, reason }, _))) => {
                if let Some(session) = self.sessions.get(&session) {
                    session.dismiss(&reason);
                }
            }
            Ok(Some((ToExecutor::Drain, _))) => self.draining = true,
            Ok(Some((ToExecutor::Exit, _))) => return false,
            Ok(None) => self.lose_manager(),
            Err(e) => {
                tracing::error!(error = %e, "the manager's socket failed");
                self.lose_manager();
            }
        }
        true
    }

    fn assign(&mut self, tenant: String, cache_dir: &str) {
        self.assigned = tenant;
        if cache_dir.is_empty() {
            return;
        }
        let options = &self.shared.options;
        let dir = Path::new(cache_dir);
        let kept = try_write(dir)
            .with_context(|| format!("cannot write to {cache_dir}"))
            .and_then(|()| point_cache(&options.work_dir, dir))
            .and_then(|()| match options.sandbox {
                true => options.sandbox().confine(dir),
                false => Ok(()),
            });
        if let Err(e) = kept {
            tracing::warn!(error = %format!("{e:#}"), "compiled kernels are not kept");
        }
    }

    fn take_session(&mut self, start: SessionStart, share: Option<Share>, fds: Vec<OwnedFd>) {
        let session = start.session;
        if let Err(e) = self.open_session(start, share, fds) {
            let reason = format!("{e:#}");
            tracing::warn!(session, reason, "session refused");
            self.tell(&ToManager::SessionEnded { session, reason });
        }
    }

    fn open_session(
        &mut self,
        start: SessionStart,
        share: Option<Share>,
        mut fds: Vec<OwnedFd>,
    ) -> anyhow::Result<()> {
        let rung = match (share, fds.len()) {
            (Some(_), 5) => fds.pop(),
            _ => None,
        };
        let [socket, memory, page, bell] = <[OwnedFd; 4]>::try_from(fds)
            .map_err(|fds| anyhow::anyhow!("{} descriptors came with it", fds.len()))?;
        let place = match share {
            None => Place::Segment(memory),
            Some(share) => Place::Part {
                memory,
                share,
                bell: rung,
            },
        };
        let tenant = match self.tenants.entry(start.lease) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                let lease = LeaseHolder::new(&page, bell.try_clone()?).context("lease page")?;
                entry.insert(Tenant {
                    name: start.tenant.clone(),
                    account: Arc::new(Account::new(lease, start.limits.memory_bytes)),
                    page,
                    bell,
                })
            }
        };
        let (number, ended, wake) = (start.session, self.ended.clone(), self.wake.clone());
        let session = Session::open(
            self.shared.clone(),
            tenant.account.clone(),
            start,
            socket,
            place,
            move |reason| {
                ended
                    .lock()
                    .expect("no panic under this lock")
                    .push((number, reason));
                // It can only be full, and then it is readable anyway.
                let _ = rustix::io::write(&*wake, &1u64.to_ne_bytes());
            },
        )
        .context("session segment")?;
        self.sessions.insert(number, session);
        Ok(())
    }

    /// Looks whether a new manager has come, and reports to it.
    fn call_manager(&mut self) {
        let Some(path) = &self.shared.options.adopt else {
            return;
        };
        let Ok(channel) = Channel::connect(path) else {
            return;
        };
        let leases: Vec<_> = self.tenants.iter().collect();
        let fds: Vec<_> = leases
            .iter()
            .flat_map(|(_, tenant)| [tenant.page.as_fd(), tenant.bell.as_fd()])
            .collect();
        let unnamed = |start: &SessionStart| SessionStart {
            instance: String::new(),
            ..start.clone()
        };
        let adopt = ToManager::Adopt {
            pid: std::process::id(),
            device: Box::new(self.shared.description.clone()),
            tenant: self.assigned.clone(),
            sessions: self
                .sessions
                .values()
                .map(|session| unnamed(&session.start))
                .collect(),
            leases: leases
                .iter()
                .map(|(lease, tenant)| (**lease, tenant.name.clone()))
                .collect(),
        };
        let mut named = self.sessions.values().map(|session| ToManager::Named {
            session: session.start.session,
            instance: session.start.instance.clone(),
        });
        let told = channel
            .send(&adopt, &fds)
            .and_then(|()| named.try_for_each(|n| channel.send(&n, &[])));
        match told {
            Ok(()) => {
                tracing::info!(path = %path.display(), "a new manager has this executor");
                for tenant in self.tenants.values() {
                    tenant.account.lease.close();
                }
                self.channel = Some(channel);
                self.shared.images.connect();
            }
            Err(e) => tracing::warn!(error = %e, "reporting to the new manager failed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(session: u64, since_ns: u64, overdue: bool) -> Running {
        Running {
            session,
            since_ns,
            overdue,
        }
    }

    #[test]
    fn test_who_waits_behind_a_living_sessions_command_is_not_to_blame() {
        const SECOND: u64 = 1_000_000_000;
        assert_eq!(culprit([].into_iter()), None);
        let all = || [running(1, SECOND, false), running(2, 3 * SECOND, true)].into_iter();
        assert_eq!(culprit(all()), None);
        assert_eq!(culprit(all().skip(1)), Some(2));
        let all = [
            running(1, 4 * SECOND, false),
            running(2, 2 * SECOND, true),
            running(3, SECOND, true),
        ];
        assert_eq!(culprit(all.into_iter()), Some(3));
        let all = [running(1, 4 * SECOND, false), running(2, 5 * SECOND, true)];
        assert_eq!(culprit(all.into_iter()), Some(2));
    }
}
