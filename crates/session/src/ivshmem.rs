//! A session in the region that a VM shares with its host: the VM door's daemon passes the
//! application's part of the region to an executor, and is not part of the data path.
//!
//! The part's arena holds the session's segment and, behind it, all of its arenas. The region's
//! doorbell wakes the executor's threads. A guest's threads cannot be woken, so their waits spin
//! and then nap.

use crate::client::{ConnectError, Peer, Pool};
use crate::handshake::{decode_answer, frame};
use crate::Endpoint;
use baltra_ivshmem::{Device, Error, Lent};
use baltra_ring::{Memory, Range};
use baltra_wire::{Hello, Welcome};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Interval at which this process checks the host and signals that it is alive.
const BEAT_EVERY: Duration = Duration::from_millis(50);

/// An application's part.
pub(crate) struct Part {
    lent: Lent,
    pool: Pool,
    closed: AtomicBool,
}

/// Opens the session that `hello` requests in a part of the region, or only lists the devices.
pub(crate) fn dial(
    endpoint: &Endpoint,
    hello: &Hello,
) -> Result<(Welcome, Option<Part>), ConnectError> {
    let failed = |source: io::Error| ConnectError::Io {
        endpoint: endpoint.to_string(),
        source,
    };
    let Endpoint::Ivshmem(device) = endpoint else {
        return Err(failed(io::ErrorKind::Unsupported.into()));
    };
    let into_io = |error: Error| match error {
        Error::Device(error) => failed(error),
        error => failed(io::Error::other(error)),
    };
    let device = Device::find(device).map_err(failed)?;
    let (answer, lent) =
        baltra_ivshmem::session(&device, &frame(hello).map_err(failed)?).map_err(into_io)?;
    let welcome = decode_answer(&answer).map_err(failed)?;
    let welcome = welcome.map_err(|refusal| ConnectError::Refused {
        endpoint: endpoint.to_string(),
        refusal,
    })?;
    let part = lent.map(|lent| Part {
        pool: Pool::new(lent.memory().clone()),
        lent,
        closed: false.into(),
    });
    Ok((welcome, part))
}

impl Part {
    /// The session's memory, which begins with its segment.
    pub fn memory(&self) -> &Range {
        self.lent.memory()
    }
}

impl Peer for Part {
    fn send_arena(&self, _: u32, _: &Memory, _: &OwnedFd) -> io::Result<()> {
        // Arenas are parts of the pool.
        Err(io::ErrorKind::Unsupported.into())
    }

    fn pool(&self) -> Option<&Pool> {
        Some(&self.pool)
    }

    fn is_elsewhere(&self) -> bool {
        self.lent.in_guest()
    }

    fn kick(&self, sleeps: bool) {
        if sleeps && self.lent.in_guest() {
            self.lent.ring();
        }
    }

    fn kick_later(&self) {
        self.kick(true);
    }

    fn wait_for_end(&self) {
        while !self.closed.load(Ordering::Acquire) && self.lent.beat() {
            std::thread::sleep(BEAT_EVERY);
        }
    }

    fn close(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            self.lent.end();
        }
    }
}
