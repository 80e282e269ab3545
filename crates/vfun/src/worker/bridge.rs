//! OpenCL sessions of the VM's applications: passes a part of the region to the Device Manager,
//! which passes it to an executor. From then on application and executor use the part directly;
//! this module only detects the end of either.
//!
//! The executor holds a lock while it uses the part: on a byte of the region's file, by an open
//! file description that no other process has. A part whose lock is held is not assigned.

use super::pool::{Pool, ProgramInstance};
use super::Refusal;
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
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Offset of the parts' locks in the region's file; applications of this host lock the bytes below
/// it.
const LOCKS: u64 = 1024;
/// Time limit of the Device Manager, which may be loading a driver.
const PATIENCE: Duration = Duration::from_secs(30);
/// Interval for checking the application.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// An application without a sign of life for this time counts as ended.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// Maximum length of an application's name for itself.
const INSTANCE_CHARS_MAX: usize = 100;

const _: () = assert!(LOCKS > PARTS_MAX as u64);

/// The connection to the Device Manager.
pub(crate) struct Bridge {
    region: OwnedFd,
    manager: Option<PathBuf>,
    pool: Option<Arc<Pool>>,
}

/// A session that was opened.
pub(crate) struct Bridged {
    socket: UnixStream,
    /// Released at its end.
    _instance: Option<ProgramInstance>,
}

fn failed(error: io::Error) -> Refusal {
    (Reason::Failed, format!("the Device Manager: {error}"))
}

impl Bridge {
    /// Uses the first of these endpoints that is on this host.
    pub fn new(region: OwnedFd, endpoints: &[String], pool: Option<Arc<Pool>>) -> Bridge {
        let manager = endpoints.iter().find_map(|text| match text.parse() {
            Ok(Endpoint::Unix(path)) => Some(path),
            _ => None,
        });
        Bridge {
            region,
            manager,
            pool,
        }
    }

    /// Opens the region's file again and takes the part's lock with it; `None`: an executor holds
    /// the lock.
    fn lock(&self, number: u32) -> io::Result<Option<File>> {
        let path = format!("/proc/self/fd/{}", self.region.as_raw_fd());
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let locked = try_lock_byte(&file, LOCKS + u64::from(number))?;
        Ok(locked.then_some(file))
    }

    /// Whether no executor of this or an earlier worker uses the part.
    pub fn is_free(&self, number: u32) -> bool {
        // After an error, the part counts as used.
        matches!(self.lock(number), Ok(Some(_)))
    }

    /// Sends an application's hello to the Device Manager; returns the framed answer and, if one
    /// was requested and opened, the session. The tenant is the one of the VM's definition.
    pub fn open(
        &self,
        definition: &Definition,
        hello: &[u8],
        part: &Part,
        number: u32,
        bell: Option<&OwnedFd>,
    ) -> Result<(Vec<u8>, Option<Bridged>), Refusal> {
        if !definition.opencl {
            let text = "this VM is not allowed to open OpenCL sessions (attach it with `baltra vm attach --opencl`)";
            return Err((Reason::NotAllowed, text.into()));
        }
        let Some(manager) = &self.manager else {
            let text =
                "the VM door is not configured with a Device Manager on this host (start it with `baltra vfun --endpoint unix:…`)";
            return Err((Reason::NoHardware, text.into()));
        };
        let requested = decode_hello(hello.get(4..).unwrap_or_default());
        let (requested, _) = requested.map_err(|e| (Reason::Protocol, e.to_string()))?;
        let instance: String = requested
            .instance
            .chars()
            .take(INSTANCE_CHARS_MAX)
            .collect();
        let mut hello = Hello {
            version: VERSION,
            tenant: definition.tenant.clone(),
            token: String::new(),
            instance: format!("{}: {instance}", definition.name),
            device: requested.device,
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
        let none = || {
            (
                Reason::Failed,
                "the previous session of this connection has not ended yet".into(),
            )
        };
        let file = self.lock(number).map_err(failed)?.ok_or_else(none)?;
        if Segment::clear(&part.arena).is_none() {
            let text = "the parts of this VM's region are too small for a session: attach the VM with more memory or fewer parts";
            return Err((Reason::Quota, text.into()));
        }
        // A device that holds one image at a time takes the image of a pool's instance only.
        let pool = self.pool.as_ref();
        let instance = pool.and_then(|pool| pool.open(&hello.device));
        if let Some(instance) = &instance {
            hello.instance = instance.name().to_owned();
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
        let session = Bridged {
            socket,
            _instance: instance,
        };
        Ok((answer, opened.then_some(session)))
    }

    /// Waits until the executor has released a part.
    pub fn wait_until_free(&self, number: u32) {
        while !self.is_free(number) {
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Bridged {
    /// Waits for the end of the session, by the executor, by the application, or by `stopped`.
    pub fn watch(&self, part: &Part, stopped: impl Fn() -> bool) {
        let mut beat = (part.beat().load(Ordering::Relaxed), Instant::now());
        let moment = Timespec {
            tv_sec: 0,
            tv_nsec: LOOK_EVERY.as_nanos() as i64,
        };
        while !stopped() && beat.1.elapsed() < SILENCE_MAX {
            let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
            // Executors send nothing on this socket: any event is its end.
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
