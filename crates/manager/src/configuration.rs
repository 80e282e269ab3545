//! The image of a device that holds one image at a time: its users, and when it may be changed.
//!
//! A change pauses the device's gate until running tasks have ended, replaces the image, and
//! resumes the gate. An image in use by another session is not replaced.

use crate::node::Device;
use crate::options::ImageKind;
use baltra_ring::LeaseState;
use baltra_wire::executor::ToExecutor;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Time limit for the device's holders to yield before a change.
const DRAIN_MAX: Duration = Duration::from_secs(30);

/// Reasons for which a device is not reconfigured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The device holds several images.
    #[error("device '{0}' is never reconfigured: it holds programs of several tenants at once (its 'image' is 'shared')")]
    Shared(String),
    /// Other sessions use the loaded image.
    #[error("device '{device}' holds another image, in use by programs of tenant {}: release them, or try again once they are released", tenants.join(", "))]
    InUse {
        /// The device.
        device: String,
        /// The image's users, each once.
        tenants: Vec<String>,
    },
    /// A holder does not yield.
    #[error("a task on device '{0}' did not end in time: try again later, or bound tasks with 'task_ms'")]
    Busy(String),
}

/// The image of a device and its users.
#[derive(Debug, Default)]
pub struct Held {
    /// The image, by digest; `None`: not known.
    pub image: Option<String>,
    /// Sessions with programs of that image, and their tenants.
    pub users: BTreeMap<u64, String>,
}

/// The action that a program's image requires.
#[derive(Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing: the device holds its image.
    Held,
    /// Another image may be loaded.
    Change,
    /// These tenants use the present one.
    InUse(Vec<String>),
}

/// The action required when `session` (or the operator) requests the image of `digest`.
pub fn decide(held: &Held, session: Option<u64>, digest: &str) -> Decision {
    if held.image.as_deref() == Some(digest) {
        return Decision::Held;
    }
    let others = held
        .users
        .iter()
        .filter(|(user, _)| Some(**user) != session);
    let tenants: BTreeSet<&String> = others.map(|(_, tenant)| tenant).collect();
    if tenants.is_empty() {
        Decision::Change
    } else {
        Decision::InUse(tenants.into_iter().cloned().collect())
    }
}

#[derive(Default)]
struct State {
    held: Held,
    /// Whether a change is in progress.
    changing: bool,
    /// Sessions that wait for a response.
    asking: BTreeSet<u64>,
}

/// A device's configuration.
#[derive(Default)]
pub struct Configuration {
    state: Mutex<State>,
    changed: Condvar,
}

impl Configuration {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic under this lock")
    }

    /// The image that the device holds, by digest.
    pub fn image(&self) -> Option<String> {
        self.state().held.image.clone()
    }

    /// The action that a request would require at this moment.
    pub fn outlook(&self, session: u64, digest: &str) -> Decision {
        decide(&self.state().held, Some(session), digest)
    }

    /// Other sessions with programs of an image that `digest` would replace, and their tenants.
    pub fn others(&self, session: u64, digest: &str) -> Vec<(u64, String)> {
        let state = self.state();
        if state.held.image.as_deref() == Some(digest) {
            return Vec::new();
        }
        let others = state
            .held
            .users
            .iter()
            .filter(|(user, _)| **user != session);
        others
            .map(|(user, tenant)| (*user, tenant.clone()))
            .collect()
    }

    /// Counts a session among the image's users if the device holds it and is not being changed.
    pub fn join(&self, session: u64, tenant: &str, digest: &str) -> bool {
        let mut state = self.state();
        let joins = !state.changing && state.held.image.as_deref() == Some(digest);
        if joins {
            state.held.users.insert(session, tenant.to_owned());
        }
        joins
    }

    /// Takes over the image that an executor of an earlier manager reports, if the device's image
    /// is unknown.
    pub fn adopt(&self, session: u64, tenant: &str, digest: &str) -> bool {
        let mut state = self.state();
        if !state.changing {
            state.held.image.get_or_insert_with(|| digest.to_owned());
        }
        drop(state);
        self.join(session, tenant, digest)
    }

    /// Removes a session from the users of an image.
    pub fn leave(&self, session: u64, digest: &str) {
        let mut state = self.state();
        if state.held.image.as_deref() == Some(digest) {
            state.held.users.remove(&session);
        }
    }

    /// Removes an ended session.
    pub fn forget(&self, session: u64) {
        self.state().held.users.remove(&session);
    }

    /// Marks a session as waiting for a response; `false`: it is waiting already.
    pub fn ask(&self, session: u64) -> bool {
        self.state().asking.insert(session)
    }

    /// Records that a session has received its response.
    pub fn answered(&self, session: u64) {
        self.state().asking.remove(&session);
    }
}

impl Device {
    /// Waits until the device holds an image: for a session of a tenant, which then counts as a
    /// user of the image if `is_open` still holds, or for the operator. Returns whether the image
    /// had to be changed.
    pub fn configure(
        &self,
        digest: &str,
        user: Option<(u64, &str)>,
        is_open: impl Fn() -> bool,
    ) -> Result<bool, Error> {
        if self.options.image != ImageKind::Exclusive {
            return Err(Error::Shared(self.name().to_owned()));
        }
        let mut state = self.configuration.state();
        while state.changing {
            let waited = self.configuration.changed.wait(state);
            state = waited.expect("no panic under this lock");
        }
        let decision = decide(&state.held, user.map(|(session, _)| session), digest);
        if let Decision::InUse(tenants) = decision {
            let device = self.name().to_owned();
            return Err(Error::InUse { device, tenants });
        }
        let change = decision == Decision::Change;
        if change {
            state.changing = true;
            drop(state);
            self.gate.pause(true);
            let drained = self.drained();
            state = self.configuration.state();
            state.changing = false;
            if drained {
                state.held.image = Some(digest.to_owned());
                state.held.users.clear();
                self.reconfigurations.fetch_add(1, Ordering::Relaxed);
            }
            self.gate.pause(false);
            self.configuration.changed.notify_all();
            if !drained {
                return Err(Error::Busy(self.name().to_owned()));
            }
        }
        if let Some((session, tenant)) = user.filter(|_| is_open()) {
            state.held.users.insert(session, tenant.to_owned());
        }
        drop(state);
        if change {
            tracing::info!(device = self.name(), image = digest, "reconfigured");
            let digest = Some(digest.to_owned());
            self.pool.send_all(&ToExecutor::Image { digest });
        }
        Ok(change)
    }

    /// Waits until no client holds the device; false: a holder did not yield in time.
    fn drained(&self) -> bool {
        let deadline = Instant::now() + DRAIN_MAX;
        let holds = |state| !matches!(state, LeaseState::Free | LeaseState::Waiting);
        loop {
            std::thread::sleep(Duration::from_millis(1));
            let leases = self.pool.leases();
            if !leases.iter().any(|m| holds(m.lease.granter.state())) {
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(image: &str, users: &[(u64, &str)]) -> Held {
        Held {
            image: (!image.is_empty()).then(|| image.to_owned()),
            users: users.iter().map(|(s, t)| (*s, t.to_string())).collect(),
        }
    }

    #[test]
    fn test_a_blank_or_unused_device_takes_any_image() {
        assert_eq!(decide(&held("", &[]), Some(1), "a"), Decision::Change);
        assert_eq!(decide(&held("a", &[]), Some(1), "b"), Decision::Change);
        assert_eq!(decide(&held("a", &[]), None, "b"), Decision::Change);
    }

    #[test]
    fn test_the_image_that_is_there_is_everybodys() {
        let used = held("a", &[(1, "red"), (2, "blue")]);
        for session in [Some(1), Some(3), None] {
            assert_eq!(decide(&used, session, "a"), Decision::Held);
        }
    }

    #[test]
    fn test_an_image_in_use_stays_and_its_users_are_named_once() {
        let used = held("a", &[(1, "red"), (2, "blue"), (3, "red")]);
        let named =
            |tenants: &[&str]| Decision::InUse(tenants.iter().map(|t| t.to_string()).collect());
        assert_eq!(decide(&used, Some(4), "b"), named(&["blue", "red"]));
        assert_eq!(decide(&used, Some(2), "b"), named(&["red"]));
        assert_eq!(decide(&used, None, "b"), named(&["blue", "red"]));
    }

    #[test]
    fn test_a_session_may_replace_the_image_that_only_it_uses() {
        let used = held("a", &[(1, "red")]);
        assert_eq!(decide(&used, Some(1), "b"), Decision::Change);
    }

    #[test]
    fn test_users_come_and_go_with_their_image() {
        let configuration = Configuration::default();
        assert!(!configuration.join(1, "red", "a"));
        assert!(configuration.adopt(1, "red", "a"));
        assert!(!configuration.adopt(2, "blue", "b"));
        assert!(configuration.join(2, "blue", "a"));
        configuration.leave(1, "b");
        assert!(matches!(configuration.outlook(2, "b"), Decision::InUse(_)));
        configuration.leave(1, "a");
        assert_eq!(configuration.outlook(2, "b"), Decision::Change);
        configuration.forget(2);
        assert_eq!(configuration.outlook(3, "b"), Decision::Change);
        assert!(configuration.ask(3) && !configuration.ask(3));
        configuration.answered(3);
        assert!(configuration.ask(3));
    }
}
