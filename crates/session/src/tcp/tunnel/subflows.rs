//! The client's side of subflows: when they are offered, how many, and how they are opened.

use super::super::dial;
use super::super::link::Outbox;
use super::super::subflows::{Subflows, SUBFLOWS_MAX};
use super::super::{frame::Kind, CHUNK_BYTES};
use super::Inner;
use baltra_wire::{Purpose, Version};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::Builder;

/// The first transfer of at least this size has subflows opened, bytes: smaller ones are shorter
/// than the opening.
pub(super) const SUBFLOWS_FROM: u64 = CHUNK_BYTES;
/// The relay's first version that accepts subflows.
const FROM_VERSION: Version = Version { major: 1, minor: 9 };
/// Cores of the client's host for each connection: fewer would copy no faster.
const CORES_EACH: usize = 4;
/// Most connections without a setting.
const CONNECTIONS_MAX: usize = 4;
/// Most offers in a session: where connections keep failing, it does without subflows.
const OFFERS_MAX: u32 = 4;

/// Number of subflows of a session with a relay of this version. `BALTRA_TCP_CONNECTIONS` sets the
/// number of connections.
pub(super) fn count(relay: Version) -> usize {
    if relay.minor < FROM_VERSION.minor {
        return 0;
    }
    let set = std::env::var("BALTRA_TCP_CONNECTIONS").ok();
    let set = set.and_then(|v| v.parse::<usize>().ok());
    let connections = set.unwrap_or_else(|| {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        (cores / CORES_EACH).min(CONNECTIONS_MAX)
    });
    connections.saturating_sub(1).min(SUBFLOWS_MAX)
}

impl Inner {
    /// Offers subflows for the present connection, unless that was done.
    pub(super) fn offer_subflows(&self, outbox: &mut Outbox) {
        if self.subflows == 0 || outbox.has_subflows() {
            return;
        }
        let most = |offers| (offers < OFFERS_MAX).then_some(offers + 1);
        let order = Ordering::Relaxed;
        let mut tag = [0; 8];
        if self.offers.fetch_update(order, order, most).is_err()
            || getrandom::fill(&mut tag).is_err()
        {
            return;
        }
        if outbox.set_subflows(u64::from_le_bytes(tag)).is_some() {
            outbox.push(&self.link, Kind::Subflows, 0, &tag, None);
        }
    }

    /// Opens the subflows that the relay has accepted, in a thread.
    pub(super) fn open_subflows(&self, message: &[u8]) {
        // An answer to an earlier connection's offer may come late.
        let Ok(tag) = message.try_into().map(u64::from_le_bytes) else {
            return;
        };
        let Some(subflows) = self.link.subflows(tag) else {
            return;
        };
        let inner = self.me.get().cloned().unwrap_or_default();
        let name = Builder::new().name("baltra-dial".into());
        // Without a thread, the session has one connection.
        let _ = name.spawn(move || open(&inner, &subflows));
    }
}

fn open(inner: &Weak<Inner>, subflows: &Arc<Subflows>) {
    let opened = |inner: &Inner| -> io::Result<()> {
        let (stream, deadline) = inner.dialer.connect()?;
        let hello = (&inner.hello, Purpose::Subflow(subflows.tag()));
        let answer = dial::hello(&stream, &hello, deadline, deadline)?;
        answer.map_err(|refusal| io::Error::other(refusal.to_string()))?;
        subflows.open(stream.guard(), deadline)
    };
    let Some(count) = inner.upgrade().map(|inner| inner.subflows) else {
        return;
    };
    for _ in 0..count {
        // The session may have ended, or its connection; a firewall may permit only some.
        let Some(inner) = inner.upgrade().filter(|inner| !inner.is_closed()) else {
            return;
        };
        if opened(&inner).is_err() {
            return;
        }
    }
}
