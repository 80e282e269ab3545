//! The process: one control socket, any number of sessions.

mod culprit;
mod moves;

use crate::account::Account;
use crate::capture::Capture;
use crate::driver;
use crate::session::moving::link::Terms;
use crate::session::{Session, SessionMemory};
use crate::shared::{Options, Shared, WORK_DIR};
use anyhow::Context as _;
use baltra_channel::Channel;
use baltra_ring::lease::monotonic_ns;
use baltra_ring::{LeaseHolder, Locked};
use baltra_wire::executor::{Cause, SessionStart, ToExecutor, ToManager};
use baltra_wire::listing::Listing;
use baltra_wire::{Share, EXECUTOR_ENDED, VERSION, WORK_FAULTED};
use culprit::{Culprits, Running, Standing};
use moves::Moves;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use std::collections::HashMap;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Time for which commands of an ended session may continue if no other session uses the process:
/// all resources are freed within a second.
const ENDING_MAX: Duration = Duration::from_millis(800);

/// Runs the executor until the manager ends it, or has exited and the last session has ended.
pub fn run(options: Options) -> anyhow::Result<()> {
    let channel = take_channel(options.control_fd).context("invalid control descriptor")?;
    let preparation = driver::start_preparation(&options.driver);
    let prepared = prepare(&options);
    if let Some(preparation) = preparation {
        preparation.watch();
    }
    let opened = prepared.and_then(|capture| Shared::open(options, capture));
    let shared = match opened {
        Ok(shared) => Arc::new(shared),
        Err(e) => {
            let text = format!("{e:#}");
            // If the manager has exited, there is no recipient.
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
        .context("cannot report to the manager")?;
    let result = Server::new(shared.clone(), channel)?.serve();
    // The directory belongs to this executor and is no longer needed. (The sandbox does not allow
    // removing the empty directory itself; the next executor does.)
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
    // The sandbox leaves the directory itself to its creator.
    let _ = std::fs::remove_dir_all(&options.work_dir);
    Ok(listing?)
}

/// Reasons for which serving ended.
enum End {
    /// Nothing is left to do.
    Done,
    /// A command of an ended session does not end.
    Abandoned,
}

/// Moves the control socket to a descriptor that programs started by the driver do not inherit.
pub(crate) fn take_channel(fd: RawFd) -> anyhow::Result<Channel> {
    // SAFETY: the manager has passed this descriptor to this process alone.
    let inherited = unsafe { OwnedFd::from_raw_fd(fd) };
    let moved = rustix::io::fcntl_dupfd_cloexec(&inherited, 3)?;
    if fd <= 2 {
        // The number stays in use: a file opened later must not become an input.
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

/// Everything that has to be set up before the driver is loaded: its environment, its standard
/// output, the part of the sandbox that its threads inherit.
fn prepare(options: &Options) -> anyhow::Result<Option<Capture>> {
    let dir = &options.work_dir;
    sweep(dir);
    for part in ["own", "tmp"] {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir.join(part))
            .with_context(|| format!("cannot create {}", dir.join(part).display()))?;
    }
    point_cache(dir, &dir.join("own"))?;
    std::env::set_var("POCL_CACHE_DIR", dir.join("cache"));
    std::env::set_var("TMPDIR", dir.join("tmp"));
    std::env::set_var("CUDA_CACHE_PATH", dir.join("cache"));
    if driver::python_packages(Path::new(&options.driver)).is_some() {
        describe_host(&dir.join("host"))?;
    }
    let capture = Capture::standard_output().context("cannot capture the standard output")?;
    if options.sandbox {
        options.sandbox().enter()?;
    }
    Ok(Some(capture))
}

/// Gives hwloc another root directory: the release in PoCL's Python package opens the host's, which
/// the sandbox does not permit, and then finds no memory.
fn describe_host(root: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(root)?;
    for part in ["proc", "sys"] {
        match std::os::unix::fs::symlink(Path::new("/").join(part), root.join(part)) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(error).with_context(|| format!("cannot write {}", root.display()));
            }
            _ => {}
        }
    }
    std::env::set_var("HWLOC_FSROOT", root);
    std::env::set_var("HWLOC_THISSYSTEM", "1");
    Ok(())
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
    // Left only by an earlier, unfinished start.
    let _ = std::fs::remove_file(&fresh);
    std::os::unix::fs::symlink(target, &fresh)
        .and_then(|()| std::fs::rename(&fresh, dir.join("cache")))
        .with_context(|| format!("cannot link {} to {}", dir.display(), target.display()))
}

/// Whether files can be made in `dir`.
fn try_write(dir: &Path) -> std::io::Result<()> {
    let probe = dir.join(format!(".probe-{}", std::process::id()));
    std::fs::write(&probe, b"")?;
    std::fs::remove_file(&probe)
}

/// A tenant's account and the descriptors passed with it.
struct Tenant {
    name: String,
    account: Arc<Account>,
    page: OwnedFd,
    bell: OwnedFd,
}

type Ended = Arc<Mutex<Vec<(u64, String)>>>;

struct Server {
    shared: Arc<Shared>,
    /// `None`: the manager has exited.
    channel: Option<Channel>,
    sessions: HashMap<u64, Arc<Session>>,
    tenants: HashMap<u64, Tenant>,
    assigned: String,
    draining: bool,
    culprits: Culprits,
    ended: Ended,
    wake: Arc<OwnedFd>,
    moves: Moves,
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
            culprits: Culprits::default(),
            ended: Ended::default(),
            moves: Moves::new(wake.clone()),
            wake,
        })
    }

    fn serve(mut self) -> anyhow::Result<End> {
        while !(self.sessions.is_empty() && (self.draining || self.channel.is_none())) {
            let (control, readable) = self.wait()?;
            for session in readable {
                if let Some(session) = self.sessions.get(&session) {
                    session.receive();
                }
            }
            self.bury();
            self.post();
            self.report_moves();
            if let Some(pinning) = &self.shared.pinning {
                pinning.unpin_idle();
            }
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
            if control && !self.receive_from_manager() {
                break;
            }
            if self.channel.is_none() {
                self.call_manager();
            }
        }
        for session in self.sessions.values() {
            session.close("the executor is exiting");
        }
        Ok(End::Done)
    }

    /// Whether only ended sessions are left, whose commands do not end. Ending the process is then
    /// the only way to free their resources, and affects no other session.
    fn is_abandoned(&self) -> bool {
        let late = |s: &Arc<Session>| s.ending_for().is_some_and(|d| d >= ENDING_MAX);
        !self.sessions.is_empty() && self.sessions.values().all(late)
    }

    fn abandon(&mut self) {
        let sessions: Vec<u64> = self.sessions.keys().copied().collect();
        tracing::warn!(
            ?sessions,
            "a command did not end with its session: the executor exits"
        );
        for session in sessions {
            let reason = "one of its commands did not end, so the executor exited".into();
            self.send(&ToManager::SessionEnded { session, reason });
        }
    }

    /// The session whose commands block the device past their grace period: it has ended, they have
    /// not, and no open session has a command that has run for longer and may be the cause. Such an
    /// open session, once the others, or calls past their time limits, have waited for
    /// [`Shared::contended_max`].
    fn overdue(&mut self) -> Option<u64> {
        let max = self.shared.orphan_max();
        let contended_max = self.shared.contended_max();
        let mut running = Vec::new();
        for own in self.sessions.values() {
            let is_overdue = own.overdue(max);
            running.extend(own.running().into_iter().map(|(since_ns, late)| Running {
                session: own.start.session,
                since_ns,
                standing: match late {
                    _ if is_overdue => Standing::Overdue,
                    Some(allowed_ns) => Standing::Late { allowed_ns },
                    None => Standing::Open,
                },
            }));
        }
        self.culprits.find(&running, contended_max, monotonic_ns())
    }

    /// Exits because of a session's work. All clients are notified.
    fn fail(&mut self, cause: Cause, session: u64) {
        let culprit = self.sessions.get(&session);
        let tenant = culprit.map_or_else(String::new, |s| s.start.tenant.clone());
        let ended = culprit.map_or_else(String::new, |s| s.reason());
        let reason = match cause {
            Cause::Overdue if ended.is_empty() => {
                "a command blocked ended sessions, or calls past their time limits, for too long"
                    .to_owned()
            }
            Cause::Overdue => format!("a command did not end ({ended})"),
            Cause::ContextLost => format!("the driver's context was lost ({ended})"),
        };
        tracing::warn!(session, tenant, reason, "the executor exits");
        self.send(&ToManager::Failing {
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
            session.dismiss(if session.start.session == culprit {
                &own
            } else {
                &others
            });
            let (session, reason) = (session.start.session, session.reason());
            self.send(&ToManager::SessionEnded { session, reason });
        }
    }

    /// Waits for messages; returns whether the manager sent one, and which clients did.
    fn wait(&self) -> anyhow::Result<(bool, Vec<u64>)> {
        let open: Vec<_> = self
            .sessions
            .iter()
            .filter(|(_, session)| session.listens())
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
        let timeout = if ending || self.sessions.values().any(|own| own.is_late()) {
            Some(&moment)
        } else {
            let looks = self.channel.is_none() || self.shared.pinning.is_some();
            looks.then_some(&second)
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
        let readable = open
            .iter()
            .zip(&fds[1..])
            .filter(|(_, fd)| spoke(fd))
            .map(|((session, _), _)| **session)
            .collect();
        let control = self.channel.is_some() && fds.last().is_some_and(spoke);
        Ok((control, readable))
    }

    /// Reports ended sessions to the manager.
    fn bury(&mut self) {
        let ended = std::mem::take(&mut *self.ended.locked());
        for (session, reason) in ended {
            self.sessions.remove(&session);
            tracing::debug!(session, reason, "session ended");
            self.send(&ToManager::SessionEnded { session, reason });
        }
        let used = |tenant: &Tenant| Arc::strong_count(&tenant.account) > 1;
        self.tenants.retain(|_, tenant| used(tenant));
    }

    /// Sends the builders' messages.
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
        let waiting = [self.shared.traces.take(), self.shared.regions.take()];
        for message in waiting.into_iter().flatten() {
            self.send(&message);
        }
    }

    fn send(&mut self, message: &ToManager) {
        if let Some(channel) = &self.channel {
            if channel.send(message, &[]).is_err() {
                self.lose_manager();
            }
        }
    }

    /// Handles the manager's exit: sessions continue without arbitration.
    fn lose_manager(&mut self) {
        if self.channel.take().is_some() {
            self.shared.images.lose();
            // The next manager may be of another release, or not export spans.
            self.shared.traces.stop();
            self.shared.regions.stop();
            // Their sources continue them.
            self.moves.drop_all();
            tracing::warn!(
                sessions = self.sessions.len(),
                "lost the connection to the manager; sessions continue"
            );
            for tenant in self.tenants.values() {
                tenant.account.lease.open();
            }
        }
    }

    /// Carries out the manager's next message; false: the executor has to exit.
    fn receive_from_manager(&mut self) -> bool {
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
            Ok(Some((ToExecutor::Image { digest }, _))) => self.shared.images.set_held(digest),
            Ok(Some((ToExecutor::Programmed { call, verdict }, _))) => {
                self.shared.images.answer(call, verdict);
            }
            Ok(Some((
                ToExecutor::MoveOut {
                    session,
                    wait_ms,
                    allocation_bytes_max,
                    is_to_disk,
                },
                fds,
            ))) => {
                let terms = Terms {
                    wait: Duration::from_millis(wait_ms.into()),
                    allocation_bytes_max,
                    is_to_disk,
                    asks: false,
                };
                self.move_out(session, terms, fds);
            }
            Ok(Some((ToExecutor::Leave { session, wait_ms }, fds))) => {
                let terms = Terms {
                    wait: Duration::from_millis(wait_ms.into()),
                    // The target refuses what it cannot make.
                    allocation_bytes_max: u64::MAX,
                    is_to_disk: false,
                    asks: true,
                };
                self.move_out(session, terms, fds);
            }
            Ok(Some((ToExecutor::MoveIn(start), fds))) => self.move_in(start, fds),
            Ok(Some((ToExecutor::MoveGo { session }, _))) => self.move_go(session),
            Ok(Some((ToExecutor::MoveDrop { session }, _))) => self.moves.drop_import(session),
            Ok(Some((ToExecutor::Describe { call }, _))) => self.describe(call),
            Ok(Some((ToExecutor::End { session, reason }, _))) => {
                if let Some(session) = self.sessions.get(&session) {
                    session.dismiss(&reason);
                }
            }
            Ok(Some((ToExecutor::Load { call }, fds))) => {
                crate::load::start(&self.shared, call, fds);
            }
            Ok(Some((ToExecutor::Fetched { call, error }, fds))) => {
                let image = fds.into_iter().next();
                self.shared.images.fetched(call, error, image);
            }
            Ok(Some((ToExecutor::Budget { slot }, fds))) => self.shared.join_budget(slot, fds),
            Ok(Some((ToExecutor::AskFacts { call, session }, _))) => {
                self.answer_facts(call, session)
            }
            // Sent to forwarders only.
            Ok(Some((ToExecutor::Reach { .. }, _))) => {}
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
            .and_then(|()| {
                if options.sandbox {
                    options.sandbox().confine(dir)
                } else {
                    Ok(())
                }
            });
        if let Err(e) = kept {
            tracing::warn!(error = %format!("{e:#}"), "compiled kernels are not cached");
            return;
        }
        if let Err(error) = self.shared.binaries.keep_in(&dir.join("binaries")) {
            tracing::warn!(%error, "programs' binaries are not stored");
        }
    }

    fn take_session(&mut self, start: SessionStart, share: Option<Share>, fds: Vec<OwnedFd>) {
        let session = start.session;
        if let Err(e) = self.open_session(start, share, fds) {
            let reason = format!("{e:#}");
            tracing::warn!(session, reason, "session refused");
            self.send(&ToManager::SessionEnded { session, reason });
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
        let [socket, memory, page, bell] = <[OwnedFd; 4]>::try_from(fds).map_err(|fds| {
            anyhow::anyhow!(
                "expected 4 descriptors with the session (5 with a VM's), received {}",
                fds.len()
            )
        })?;
        let place = match share {
            None => SessionMemory::Segment(memory),
            Some(share) => SessionMemory::Part {
                memory,
                share,
                bell: rung,
            },
        };
        let account = self.account(&start, page, bell)?;
        let number = start.session;
        let ended = self.ended(number);
        let session = Session::open(self.shared.clone(), account, start, socket, place, ended)
            .context("cannot map the session's memory")?;
        self.sessions.insert(number, session);
        Ok(())
    }

    /// The account of a session's tenant.
    fn account(
        &mut self,
        start: &SessionStart,
        page: OwnedFd,
        bell: OwnedFd,
    ) -> anyhow::Result<Arc<Account>> {
        let tenant = match self.tenants.entry(start.lease) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                let lease = LeaseHolder::new(&page, bell.try_clone()?)
                    .context("cannot map the lease page")?;
                entry.insert(Tenant {
                    name: start.tenant.clone(),
                    account: Arc::new(Account::new(lease, start.limits.memory_bytes)),
                    page,
                    bell,
                })
            }
        };
        Ok(tenant.account.clone())
    }

    /// Called with the reason once all resources of a session are freed.
    fn ended(&self, session: u64) -> impl FnOnce(String) + Send + 'static {
        let (ended, wake) = (self.ended.clone(), self.wake.clone());
        move |reason| {
            ended.locked().push((session, reason));
            // It can only be full, and then it is readable anyway.
            let _ = rustix::io::write(&*wake, &1u64.to_ne_bytes());
        }
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
        let sent = channel
            .send(&(adopt, VERSION), &fds)
            .and_then(|()| named.try_for_each(|n| channel.send(&n, &[])));
        match sent {
            Ok(()) => {
                tracing::info!(path = %path.display(), "adopted by a new manager");
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
