//! OpenCL sessions of the VM's applications: hands a part of the region to the Device Manager, which
//! hands it to an executor. The part is then between application and executor; what is left to do here
//! is to notice the end of either.
//!
//! The executor holds a lock as long as it holds the part: on a byte of the region's file, by an open
//! file description that only it has. A part whose lock is held is given to nobody.

use super::functions::Refusal;
use crate::definition::Definition;
use baltra_ivshmem::region::{Part, PARTS_MAX};
use baltra_ivshmem::Reason;
use baltra_ring::memory::try_lock_byte;
use baltra_ring::Segment;
use baltra_session::handshake::{self, decode_hello};
use baltra_session::Endpoint;
use baltra_wire::{Hello, Share, VERSION};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Bytes of the region's file from here on are locked for parts; applications of this host lock those
/// below.
const LOCKS: u64 = 1024;
/// How long the Device Manager may take: it may be loading a driver.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often the application is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// An application that gave no sign of life for so long has ended.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// What is kept of an application's word for itself.
const INSTANCE_CHARS_MAX: usize = 100;

const _: () = assert!(LOCKS > PARTS_MAX as u64);

/// The way to the Device Manager.
pub(crate) struct Bridge {
    region: OwnedFd,
    manager: Option<PathBuf>,
}

/// A session that was opened.
pub(crate) struct Bridged {
    socket: UnixStream,
}

fn failed(error: io::Error) -> Refusal {
    (Reason::Failed, format!("the Device Manager: {error}"))
}

impl Bridge {
    /// To the first of these that is on this host.
    pub fn new(region: OwnedFd, endpoints: &[String]) -> Bridge {
        let manager = endpoints.iter().find_map(|text| match text.parse() {
            Ok(Endpoint::Unix(path)) => Some(path),
            _ => None,
        });
        Bridge { region, manager }
    }

    /// The region by a description of its own, which has the part's lock; `None`: an executor has it.
    fn lock(&self, number: u32) -> io::Result<Option<File>> {
        let path = format!("/proc/self/fd/{}", self.region.as_raw_fd());
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let locked = try_lock_byte(&file, LOCKS + u64::from(number))?;
        Ok(locked.then_some(file))
    }

    /// Whether no executor has the part, of this worker's or one before it.
    pub fn is_free(&self, number: u32) -> bool {
        // Who cannot find out lets nobody in.
        matches!(self.lock(number), Ok(Some(_)))
    }

    /// Carries an application's hello to the Device Manager: the framed answer, and the session, if it
    /// asked for one and got it. Who it is, is the VM's definition's business, and nothing else of it.
    pub fn open(
        &self,
        definition: &Definition,
        hello: &[u8],
        part: &Part,
        number: u32,
        bell: Option<&OwnedFd>,
    ) -> Result<(Vec<u8>, Option<Bridged>), Refusal> {
        if !definition.opencl {
            let text = "this VM may open no OpenCL session (`baltra vm attach --opencl`)";
            return Err((Reason::NotAllowed, text.into()));
        }
        let Some(manager) = &self.manager else {
            let text =
                "the VM door has no Device Manager of this host (`baltra vfun --endpoint unix:…`)";
            return Err((Reason::NoHardware, text.into()));
        };
        let said = decode_hello(hello.get(4..).unwrap_or_default());
        let said = said.map_err(|e| (Reason::Protocol, e.to_string()))?;
        let instance: String = said.instance.chars().take(INSTANCE_CHARS_MAX).collect();
        let hello = Hello {
            version: VERSION,
            tenant: definition.tenant.clone(),
            token: String::new(),
            instance: format!("{}: {instance}", definition.name),
            device: said.device,
            resume: None,
            mirror: false,
        };
        let socket = UnixStream::connect(manager).map_err(failed)?;
        socket.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        socket.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
        if hello.device.is_empty() {
            let (answer, _) = handshake::hello(&socket, &hello).map_err(failed)?;
            return Ok((handshake::frame(&answer).map_err(failed)?, None));
        }
        let none = || (Reason::Failed, "the last session still ends".into());
        let file = self.lock(number).map_err(failed)?.ok_or_else(none)?;
        if Segment::clear(&part.arena).is_none() {
            let text = "a part of this VM's region is too small for a session: attach it with more memory or fewer parts";
            return Err((Reason::Quota, text.into()));
        }
        let share = Share {
            offset: part.arena_offset,
            len: part.arena.len() as u64,
        };
        let mut fds = vec![file.as_fd()];
        fds.extend(bell.map(AsFd::as_fd));
        let answer = handshake::hello_sharing(&socket, &hello, &share, &fds).map_err(failed)?;
        let opened = answer.is_ok();
        let answer = handshake::frame(&answer).map_err(failed)?;
        Ok((answer, opened.then_some(Bridged { socket })))
    }

    /// Waits for the executor to let go of a part.
    pub fn wait_until_free(&self, number: u32) {
        while !self.is_free(number) {
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Bridged {
    /// Waits for the end of the session: the executor's doing, the application's, or `stopped`.
    pub fn watch(&self, part: &Part, stopped: impl Fn() -> bool) {
        let mut beat = (part.beat().load(Ordering::Relaxed), Instant::now());
        let moment = Timespec {
            tv_sec: 0,
            tv_nsec: LOOK_EVERY.as_nanos() as i64,
        };
        while !stopped() && beat.1.elapsed() < SILENCE_MAX {
            let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
            // Executors say nothing here: whatever comes is the end.
            if !matches!(
                poll(&mut fds, Some(&moment)),
                Ok(0) | Err(rustix::io::Errno::INTR)
            ) {
                return;
            }
            let now = part.beat().load(Ordering::Relaxed);
            if now != beat.0 {
                beat = (now, Instant::now());
            }
        }
    }
}
