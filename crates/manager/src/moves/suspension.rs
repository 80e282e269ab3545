//! Suspended sessions: a session moves to a keeper, which is a process without a driver, and from
//! there back to an executor.
//!
//! The state is in a file without a name in the state directory, so that nothing of it is left once
//! the keeper has ended, however that happened.

use super::{cannot, Error, Moved, Order, EARLIER_RELEASE};
use crate::executors::{ExecutorAssignment, Phase, Process};
use crate::node::{Device, Node, SessionRecord, UNNAMED};
use baltra_wire::executor::SessionStart;
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Executors that were ordered to exit are killed after some seconds, and are gone within this.
const RETIRE_MAX: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);

impl Node {
    /// Writes a session's state to the disk and ends its use of the device. `wait`: how long its
    /// commands in flight may take.
    pub fn suspend_session(self: &Arc<Self>, session: u64, wait: Duration) -> Result<Moved, Error> {
        let began = Instant::now();
        let reserved = self.moves.reserve(session)?;
        let record = self.record(session)?;
        let device = self.device(&record.device);
        let device = device.ok_or_else(|| Error::NoDevice(record.device.clone()))?;
        let device = device.clone();
        let fixed = |why: &str| Error::Fixed {
            session,
            why: why.to_owned(),
        };
        if self.is_draining() {
            return Err(fixed("the manager is shutting down"));
        }
        if let Some(why) = cannot(&record) {
            return Err(fixed(why));
        }
        if record.remote.is_some() {
            return Err(fixed(
                "it is on another node (`baltra session ls` there lists it)",
            ));
        }
        if device.options.image == crate::options::ImageKind::Exclusive {
            return Err(fixed("its device holds one image at a time"));
        }
        let executor = record.executor;
        let from = device.pool.with(executor, |e| e.process.clone());
        if from.is_some_and(|process| !process.supports_moves()) {
            return Err(fixed(EARLIER_RELEASE));
        }
        let file = self.state_file();
        let file = file.map_err(|e| fixed(&format!("cannot create a file for it: {e}")))?;
        let keeper = device.launch.keep(self.options.executors.suspended_bytes);
        let keeper = keeper.map_err(|e| fixed(&format!("cannot start its keeper: {e}")))?;
        let place = self.serve_kept(&device, &record.tenant, session, keeper);
        let order = Order {
            session,
            record,
            source: device.clone(),
            target: device.clone(),
            place,
            file: Some(file),
            remote: None,
            wait,
        };
        let moved = self.carry_out(reserved, order, began)?;
        device.pool.retire_unused(executor);
        Ok(moved)
    }

    /// Continues a suspended session, on the device that it was on unless another one is given; with
    /// `force`, although facts differ that it may have read.
    pub fn resume_session(
        &self,
        session: u64,
        device: Option<&str>,
        force: bool,
    ) -> Result<Moved, Error> {
        let began = Instant::now();
        let reserved = self.moves.reserve(session)?;
        let record = self.record(session)?;
        if !record.is_suspended {
            return Err(Error::Running(session));
        }
        let device = device.unwrap_or(&record.device).to_owned();
        self.send_to(reserved, record, &device, (Duration::ZERO, force), began)
    }

    /// A private file without a name, in the state directory.
    fn state_file(&self) -> io::Result<OwnedFd> {
        let dir = self.options.paths.state.join("suspended");
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)?;
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        match rustix::fs::open(&dir, flags, mode) {
            Ok(file) => Ok(file),
            // The file system has no such files.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR) => {
                let path = dir.join(self.next_number().to_string());
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
                let file = rustix::fs::open(&path, flags, mode)?;
                std::fs::remove_file(&path)?;
                Ok(file)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Serves a keeper or a forwarder that has been started for a session.
    pub(super) fn serve_kept(
        self: &Arc<Self>,
        device: &Arc<Device>,
        tenant: &str,
        session: u64,
        process: Process,
    ) -> ExecutorAssignment {
        let process = Arc::new(process);
        let id = self.next_number();
        self.serve(device, id, process.clone(), Phase::Keeping);
        device.pool.with(id, |e| {
            e.tenant = tenant.to_owned();
            e.sessions.insert(session);
        });
        ExecutorAssignment {
            executor: id,
            process,
            assign: false,
        }
    }

    /// Takes over the keeper of a session that an earlier manager has suspended, or the forwarder of
    /// one that is on the device `remote` of another node.
    pub(crate) fn adopt_kept(
        self: &Arc<Self>,
        process: Process,
        device: &str,
        session: SessionStart,
        remote: Option<String>,
    ) -> anyhow::Result<()> {
        let device = self.device(device).cloned();
        let device = device.ok_or_else(|| anyhow::anyhow!("its device is not served here"))?;
        let (id, pid) = (self.next_number(), process.pid);
        let record = SessionRecord {
            tenant: session.tenant.clone(),
            device: device.name().to_owned(),
            executor: id,
            executor_pid: pid,
            instance: match session.instance.as_str() {
                "" => UNNAMED.into(),
                instance => instance.chars().take(crate::accept::INSTANCE_MAX).collect(),
            },
            pid: 0,
            uid: 0,
            transport: "unix",
            is_suspended: remote.is_none(),
            remote,
            description: None,
            since: Instant::now(),
        };
        let what = if record.is_suspended {
            "keeper"
        } else {
            "forwarder"
        };
        tracing::info!(device = device.name(), pid, "{what} adopted");
        let number = session.session;
        self.report_adopted(&record);
        self.sessions().insert(number, record);
        self.serve(&device, id, Arc::new(process), Phase::Keeping);
        device.pool.with(id, |e| {
            e.tenant = session.tenant;
            e.sessions.insert(number);
        });
        Ok(())
    }

    /// Ends the executors of a device: those without sessions now, which it waits for, others after
    /// their last session. Returns the process ids of the latter. If there are none, waits until a
    /// new executor has loaded the driver, and returns why it cannot.
    pub fn restart_executors(&self, device: &str) -> Result<(Vec<u32>, Option<String>), Error> {
        let found = self.device(device);
        let found = found.ok_or_else(|| Error::NoDevice(device.to_owned()))?;
        let (ending, serving) = found.pool.retire();
        let until = Instant::now() + RETIRE_MAX;
        let lives = |id: &u64| found.pool.with(*id, |_| ()).is_some();
        while ending.iter().any(lives) && Instant::now() < until {
            std::thread::sleep(LOOK_EVERY);
        }
        let failure = match serving[..] {
            [] => found.pool.await_driver().err(),
            _ => None,
        };
        Ok((serving, failure.map(|error| error.to_string())))
    }
}
