//! The image of a device that holds one image at a time: its users, and when it may be changed.
//!
//! A change pauses the device's gate until running tasks have ended, replaces the image, and
//! resumes the gate. An image in use by another session is not replaced.

mod queue;

pub use queue::{ImageTicket, WaitingImage};

use crate::node::Device;
use crate::options::ImageKind;
use baltra_eviction::Images;
use baltra_ring::{LeaseState, Locked, Unpoisoned};
use baltra_wire::executor::ToExecutor;
use queue::Queued;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
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
    /// The driver has not loaded the image.
    #[error("device '{device}' does not hold the image: {reason}")]
    Driver {
        /// The device.
        device: String,
        /// The driver's error.
        reason: String,
    },
    /// The registry does not permit the change, or sessions do not give way.
    #[error("device '{device}' is not reconfigured: {reason}")]
    Refused {
        /// The device.
        device: String,
        /// The reason.
        reason: String,
    },
    /// A holder does not yield.
    #[error("a task on device '{0}' did not end in time: try again later, or bound tasks with 'task_ms'")]
    Busy(String),
}

/// A session that requests an image.
#[derive(Clone, Copy, Debug)]
pub struct User<'a> {
    /// The session.
    pub session: u64,
    /// Its tenant.
    pub tenant: &'a str,
    /// Whether its executor reports that the driver has loaded the image.
    pub reports: bool,
}

/// An image that a driver is loading.
#[derive(Debug)]
struct Load {
    digest: String,
    /// The session whose executor loads it; `None`: the operator's.
    session: Option<u64>,
    begun: Instant,
}

/// The image of a device and its users.
#[derive(Debug, Default)]
pub struct Held {
    /// The image that it holds or is to hold, by digest; `None`: not known.
    pub image: Option<String>,
    /// Sessions with programs of that image, and their tenants.
    pub users: BTreeMap<u64, String>,
}

impl Held {
    /// Removes the users that have ended. A session's record is removed first, and a change that
    /// waits for the session continues then.
    fn keep_open(&mut self, is_open: impl Fn(u64) -> bool) {
        self.users.retain(|session, _| is_open(*session));
    }
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

/// The begin of the times in a device's records of its images.
struct Epoch(Instant);

impl Default for Epoch {
    fn default() -> Epoch {
        Epoch(Instant::now())
    }
}

#[derive(Default)]
struct State {
    held: Held,
    /// Whether a change is in progress.
    changing: bool,
    /// The load in progress. A session's load lasts beyond the change, until its driver has
    /// accepted the image.
    load: Option<Load>,
    /// Time that earlier loads took.
    loads_time: Duration,
    /// Sessions that wait for a response.
    asking: BTreeSet<u64>,
    /// When the image was loaded.
    since: Option<Instant>,
    /// Images that wait for their turn, the next one first.
    queue: VecDeque<Queued>,
    /// The image that is about to be loaded: no session joins the present one any more.
    next: Option<String>,
    epoch: Epoch,
    /// Measurements of the device's images.
    images: Images,
    /// The device's tasks, and the time that they used, that `images` has counted; `None`: none.
    counted: Option<(u64, Duration)>,
}

impl State {
    /// Marks the device's content as unknown. Other sessions with programs of the same image remain
    /// its users: their drivers may have loaded it.
    fn lose(&mut self) {
        self.held.image = None;
        self.end_load(false);
        self.since = None;
    }

    fn now(&self) -> Duration {
        self.epoch.0.elapsed()
    }

    /// Time that loads have taken so far.
    fn loads_time(&self) -> Duration {
        let load = self.load.as_ref();
        self.loads_time + load.map_or(Duration::ZERO, |load| load.begun.elapsed())
    }

    /// Ends the load in progress; `is_loaded`: its driver has loaded the image.
    fn end_load(&mut self, is_loaded: bool) {
        let Some(load) = self.load.take() else {
            return;
        };
        let (took, now) = (load.begun.elapsed(), self.now());
        self.loads_time += took;
        if is_loaded {
            self.images.loaded(&load.digest, took, now);
        } else {
            self.images.load_failed(took, now);
        }
    }
}

/// A device's configuration.
#[derive(Default)]
pub struct Configuration {
    state: Mutex<State>,
    changed: Condvar,
}

impl Configuration {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }

    /// The image that the device holds or is to hold, by digest.
    pub fn image(&self) -> Option<String> {
        self.state().held.image.clone()
    }

    /// The image that the device's driver has loaded, by digest.
    pub fn loaded(&self) -> Option<String> {
        let state = self.state();
        state.held.image.clone().filter(|_| state.load.is_none())
    }

    /// The image that the device's driver is loading, by digest.
    pub fn loading(&self) -> Option<String> {
        let state = self.state();
        state.load.as_ref().map(|load| load.digest.clone())
    }

    /// Time that loads have taken so far, from the pause of the device to the driver's answer.
    pub fn loads_time(&self) -> Duration {
        self.state().loads_time()
    }

    /// Counts the device's tasks and the time that they used, totals so far, for the image that it
    /// holds.
    pub fn count_use(&self, tasks: u64, time: Duration) {
        let mut state = self.state();
        let before = state.counted.replace((tasks, time));
        let (Some(before), Some(image)) = (before, state.held.image.clone()) else {
            return;
        };
        let (tasks, time) = (
            tasks.saturating_sub(before.0),
            time.saturating_sub(before.1),
        );
        if tasks > 0 || !time.is_zero() {
            let now = state.now();
            state.images.used(&image, tasks, time, now);
        }
    }

    /// The recent uses of an image, and the measured time to load it; 0: not known.
    pub fn known(&self, digest: &str) -> (f64, Duration) {
        let state = self.state();
        state.images.known(digest, state.now())
    }

    /// Whether the device's driver is loading an image for a session.
    pub fn loads_for(&self, session: u64) -> bool {
        let state = self.state();
        state.load.as_ref().and_then(|load| load.session) == Some(session)
    }

    /// The action that a request would require at this moment.
    pub fn outlook(&self, session: u64, digest: &str) -> Decision {
        decide(&self.state().held, Some(session), digest)
    }

    /// The device's image is not known any more.
    pub fn lose_image(&self) {
        self.state().held.image = None;
    }

    /// The driver has loaded an image for a session of a tenant. Returns whether this ends a load.
    pub fn confirm(&self, session: u64, tenant: &str, digest: &str) -> bool {
        let mut state = self.state();
        if state.changing {
            return false;
        }
        if state.held.image.is_none() && state.held.users.contains_key(&session) {
            // The session that was to load it has failed, and another one has loaded it.
            state.held.image = Some(digest.to_owned());
        } else if state.held.image.as_deref() != Some(digest) || state.load.is_none() {
            return false;
        }
        state.held.users.insert(session, tenant.to_owned());
        state.end_load(true);
        state.since = Some(Instant::now());
        drop(state);
        self.changed.notify_all();
        true
    }

    /// Waits until a session's load has ended; false: it has not within `time`.
    pub fn load_ended(&self, session: u64, time: Duration) -> bool {
        let begun = |state: &State| {
            let load = state.load.as_ref();
            let own = load.filter(|load| load.session == Some(session));
            own.map(|load| load.begun)
        };
        let state = self.state();
        let Some(own) = begun(&state) else {
            return true;
        };
        let loads = |state: &mut State| begun(state) == Some(own);
        let waited = self.changed.wait_timeout_while(state, time, loads);
        !waited.unpoisoned().1.timed_out()
    }

    /// Other sessions than this one (`None`: the operator's) with programs of an image that
    /// `digest` would replace, and their tenants.
    pub fn others(&self, session: Option<u64>, digest: &str) -> Vec<(u64, String)> {
        let state = self.state();
        if state.held.image.as_deref() == Some(digest) {
            return Vec::new();
        }
        let others = state
            .held
            .users
            .iter()
            .filter(|(user, _)| Some(**user) != session);
        others
            .map(|(user, tenant)| (*user, tenant.clone()))
            .collect()
    }

    /// Counts a session among the image's users if the device holds it and is not being changed.
    pub fn join(&self, session: u64, tenant: &str, digest: &str) -> bool {
        let mut state = self.state();
        let stays = state.next.is_none() || state.next.as_deref() == Some(digest);
        let joins = stays && !state.changing && state.held.image.as_deref() == Some(digest);
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
        if state
            .held
            .image
            .as_deref()
            .is_none_or(|held| held == digest)
        {
            state.held.users.remove(&session);
        }
    }

    /// The driver refused an image that the device was to hold for a session: what the device holds
    /// is unknown.
    pub fn not_loaded(&self, session: u64, digest: &str) {
        let mut state = self.state();
        if !state.changing && state.held.image.as_deref() == Some(digest) {
            state.held.users.remove(&session);
            state.lose();
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Removes an ended session. Returns the image that its driver has not finished loading, if
    /// there is one: what the device holds is unknown then.
    pub fn forget(&self, session: u64) -> Option<String> {
        let mut state = self.state();
        state.held.users.remove(&session);
        let load = state.load.as_ref()?;
        if state.changing || load.session != Some(session) {
            return None;
        }
        let digest = load.digest.clone();
        state.lose();
        drop(state);
        self.changed.notify_all();
        Some(digest)
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
    /// Whether an image has to be loaded for the operator; `is_open`: whether a session is open,
    /// and `yields`: whether it gives way at the end of its image's turn.
    ///
    /// # Errors
    /// The reason for which it must not be.
    pub fn needs(
        &self,
        digest: &str,
        is_open: impl Fn(u64) -> bool,
        yields: impl Fn(u64) -> bool,
    ) -> Result<bool, Error> {
        let name = || self.name().to_owned();
        if self.options.image != ImageKind::Exclusive {
            return Err(Error::Shared(name()));
        }
        let mut state = self.configuration.state();
        state.held.keep_open(is_open);
        if state.held.image.as_deref() == Some(digest) {
            return Ok(false);
        }
        let stay = state.held.users.iter().filter(|(user, _)| !yields(**user));
        let tenants: BTreeSet<String> = stay.map(|(_, tenant)| tenant.clone()).collect();
        if tenants.is_empty() {
            return Ok(true);
        }
        Err(Error::InUse {
            device: name(),
            tenants: tenants.into_iter().collect(),
        })
    }

    /// Waits until the device may hold an image: for a session, which then counts as a user of the
    /// image if it `is_open` still, or for the operator. `load` has the driver load it, once no task
    /// runs; a session's executor does that itself afterwards, and the image counts as loaded from
    /// [`Configuration::confirm`] on. Returns whether the image had to be changed.
    pub fn configure(
        &self,
        digest: &str,
        user: Option<User<'_>>,
        is_open: impl Fn(u64) -> bool,
        load: impl FnOnce() -> Result<(), String>,
    ) -> Result<bool, Error> {
        if self.options.image != ImageKind::Exclusive {
            return Err(Error::Shared(self.name().to_owned()));
        }
        let mut state = self.configuration.state();
        while state.changing {
            let waited = self.configuration.changed.wait(state);
            state = waited.unpoisoned();
        }
        state.held.keep_open(&is_open);
        let decision = decide(&state.held, user.map(|user| user.session), digest);
        if let Decision::InUse(tenants) = decision {
            let device = self.name().to_owned();
            return Err(Error::InUse { device, tenants });
        }
        let change = decision == Decision::Change;
        if change {
            state.changing = true;
            state.end_load(false);
            state.load = Some(Load {
                digest: digest.to_owned(),
                session: user.map(|user| user.session),
                begun: Instant::now(),
            });
            drop(state);
            self.gate.pause(true);
            let drained = self.drained();
            let loaded = if drained { load() } else { Ok(()) };
            state = self.configuration.state();
            state.changing = false;
            let is_gone = user.is_some_and(|user| !is_open(user.session));
            let continues = drained && !is_gone && user.is_some_and(|user| user.reports);
            if !continues {
                state.end_load(drained && loaded.is_ok() && !is_gone);
            }
            if drained && loaded.is_ok() {
                state.held = Held::default();
                state.next = None;
                state.since = Some(Instant::now());
                if !is_gone {
                    state.held.image = Some(digest.to_owned());
                }
            }
            self.gate.pause(false);
            self.configuration.changed.notify_all();
            if !drained {
                return Err(Error::Busy(self.name().to_owned()));
            }
            let ended = || Err("its session has ended".to_owned());
            if let Err(reason) = loaded.and_then(|()| if is_gone { ended() } else { Ok(()) }) {
                let device = self.name().to_owned();
                return Err(Error::Driver { device, reason });
            }
        }
        if let Some(user) = user.filter(|user| is_open(user.session)) {
            let tenant = user.tenant.to_owned();
            state.held.users.insert(user.session, tenant);
        }
        let has_loaded = change && state.load.is_none();
        drop(state);
        if has_loaded {
            self.reconfigured(digest);
        }
        Ok(change)
    }

    /// Counts a reconfiguration, and informs the executors of the image that the device holds.
    pub fn reconfigured(&self, digest: &str) {
        self.reconfigurations.fetch_add(1, Ordering::Relaxed);
        tracing::info!(device = self.name(), image = digest, "reconfigured");
        let digest = Some(digest.to_owned());
        self.pool.send_all(&ToExecutor::Image { digest });
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
    use crate::options::DeviceOptions;

    fn held(image: &str, users: &[(u64, &str)]) -> Held {
        Held {
            image: (!image.is_empty()).then(|| image.to_owned()),
            users: users.iter().map(|(s, t)| (*s, t.to_string())).collect(),
        }
    }

    #[test]
    fn a_blank_or_unused_device_takes_any_image() {
        assert_eq!(decide(&held("", &[]), Some(1), "a"), Decision::Change);
        assert_eq!(decide(&held("a", &[]), Some(1), "b"), Decision::Change);
        assert_eq!(decide(&held("a", &[]), None, "b"), Decision::Change);
    }

    #[test]
    fn the_image_that_is_there_is_everybodys() {
        let used = held("a", &[(1, "red"), (2, "blue")]);
        for session in [Some(1), Some(3), None] {
            assert_eq!(decide(&used, session, "a"), Decision::Held);
        }
    }

    #[test]
    fn an_image_in_use_stays_and_its_users_are_named_once() {
        let used = held("a", &[(1, "red"), (2, "blue"), (3, "red")]);
        let named =
            |tenants: &[&str]| Decision::InUse(tenants.iter().map(|t| t.to_string()).collect());
        assert_eq!(decide(&used, Some(4), "b"), named(&["blue", "red"]));
        assert_eq!(decide(&used, Some(2), "b"), named(&["red"]));
        assert_eq!(decide(&used, None, "b"), named(&["blue", "red"]));
    }

    #[test]
    fn a_session_may_replace_the_image_that_only_it_uses() {
        let used = held("a", &[(1, "red")]);
        assert_eq!(decide(&used, Some(1), "b"), Decision::Change);
    }

    #[test]
    fn images_wait_in_the_order_of_their_first_request() {
        let configuration = Configuration::default();
        assert_eq!(configuration.turn(&DeviceOptions::default().turns()), None);
        assert!(configuration.is_next("a"));
        let first = configuration.queue("a");
        let second = configuration.queue("b");
        let again = configuration.queue("a");
        assert_eq!(configuration.waiting(), 2);
        let waiting = configuration.waiting_images();
        let sessions = waiting.iter().map(|w| (w.digest.as_str(), w.sessions));
        assert_eq!(sessions.collect::<Vec<_>>(), [("a", 2), ("b", 1)]);
        assert!(configuration.is_next("a") && !configuration.is_next("b"));
        drop(first);
        assert!(configuration.is_next("a"));
        drop(again);
        assert!(configuration.is_next("b"));
        drop(second);
        assert_eq!(configuration.waiting(), 0);
    }

    #[test]
    fn nobody_joins_an_image_whose_turn_is_over() {
        let configuration = Configuration::default();
        assert!(configuration.adopt(1, "red", "a"));
        let place = configuration.queue("b");
        assert!(configuration.join(2, "red", "a"));
        configuration.begin_turn("b");
        assert!(!configuration.join(3, "red", "a"));
        // The only session that waited for the other image gives up.
        drop(place);
        assert!(configuration.join(3, "red", "a"));
    }

    #[test]
    fn users_that_have_ended_do_not_keep_an_image() {
        let mut used = held("a", &[(1, "red"), (2, "blue")]);
        used.keep_open(|session| session != 1);
        assert!(
            matches!(decide(&used, Some(3), "b"), Decision::InUse(tenants) if tenants == ["blue"])
        );
        used.keep_open(|_| false);
        assert_eq!(decide(&used, Some(3), "b"), Decision::Change);
    }

    /// A device to whose driver an image was given for a session.
    fn loading(session: u64, digest: &str) -> Configuration {
        let configuration = Configuration::default();
        assert!(configuration.adopt(session, "red", digest));
        configuration.state().load = Some(Load {
            digest: digest.to_owned(),
            session: Some(session),
            begun: Instant::now(),
        });
        configuration
    }

    #[test]
    fn an_image_is_loaded_once_its_driver_says_so() {
        let configuration = loading(1, "a");
        assert_eq!(configuration.loaded(), None);
        assert_eq!(configuration.loading().as_deref(), Some("a"));
        assert!(configuration.loads_for(1) && !configuration.loads_for(2));
        assert!(!configuration.load_ended(1, Duration::from_millis(1)));
        assert!(configuration.load_ended(2, Duration::from_millis(1)));
        assert!(!configuration.confirm(1, "red", "b"));
        assert!(configuration.confirm(1, "red", "a"));
        assert!(!configuration.confirm(1, "red", "a"));
        assert_eq!(configuration.loaded().as_deref(), Some("a"));
        assert!(configuration.load_ended(1, Duration::from_millis(1)));
        assert_eq!(configuration.forget(1), None);
        assert_eq!(configuration.loaded().as_deref(), Some("a"));
    }

    #[test]
    fn uses_and_loads_are_those_of_the_image_that_is_held() {
        let configuration = loading(1, "a");
        let _places = (configuration.queue("a"), configuration.queue("b"));
        let waiting = configuration.waiting_images();
        let digests = waiting.iter().map(|image| image.digest.as_str());
        assert_eq!(
            digests.collect::<Vec<_>>(),
            ["b"],
            "the other one is being loaded"
        );
        // The tasks before the first count are of unknown images.
        configuration.count_use(100, Duration::from_secs(5));
        assert_eq!(configuration.known("a"), (0.0, Duration::ZERO));
        configuration.count_use(103, Duration::from_secs(6));
        let (uses, _) = configuration.known("a");
        assert!(uses > 0.0 && uses <= 3.0, "{uses}");
        assert!(configuration.confirm(1, "red", "a"));
        let (_, load) = configuration.known("a");
        assert!(!load.is_zero());
        // A total that decreased counts as no use.
        configuration.count_use(0, Duration::ZERO);
        assert_eq!(configuration.known("b"), (0.0, Duration::ZERO));
    }

    #[test]
    fn an_image_is_unknown_if_its_load_does_not_end() {
        let configuration = loading(1, "a");
        assert!(configuration.join(2, "blue", "a"));
        assert_eq!(configuration.forget(3), None);
        assert_eq!(configuration.forget(1).as_deref(), Some("a"));
        assert_eq!(
            (configuration.image(), configuration.loading()),
            (None, None)
        );
        // The other session of that image may have loaded it.
        assert!(matches!(configuration.outlook(3, "b"), Decision::InUse(_)));
        assert!(configuration.confirm(2, "blue", "a"));
        assert_eq!(configuration.loaded().as_deref(), Some("a"));

        let configuration = loading(1, "a");
        assert!(configuration.join(2, "blue", "a"));
        configuration.not_loaded(1, "a");
        configuration.leave(2, "a");
        assert_eq!(configuration.outlook(3, "b"), Decision::Change);
    }

    #[test]
    fn users_come_and_go_with_their_image() {
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
