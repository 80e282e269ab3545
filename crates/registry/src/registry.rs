//! Changes of the registry's state: decided in memory, written, then applied.
//!
//! Changes are serialized. Each is decided on the state, made durable by the store, applied to the
//! state, and only then acknowledged. Reads and heartbeats never wait for the disk.

use crate::clock::{unix_s, Clock, LeaseClock};
use crate::containers::Containers;
use crate::counters::Counters;
use crate::failure::Failure;
use crate::options::Options;
use crate::records::{Change, Image};
use crate::state::{State, Swept, Terms};
use crate::store::{self, Store};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;
use tonic::Status;

/// The state that requests work on.
#[derive(Debug)]
pub struct Registry {
    /// The checked options.
    pub options: Options,
    /// Counters of events since the start.
    pub counters: Counters,
    clock: Arc<dyn Clock>,
    started: Duration,
    store: Store,
    state: RwLock<State>,
    /// Held during a change. True: memory may differ from the disk.
    writer: Mutex<bool>,
    failures: Mutex<Failures>,
    containers: Mutex<Containers>,
}

/// Current failures; empty texts: none.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    /// Why the last write failed.
    pub store: String,
    /// Why the last query of a Prometheus server failed.
    pub metrics: String,
}

/// A decided change: rows for the store, and the reply to the caller.
pub type Decided<T> = Result<(Vec<Change>, T), Status>;

impl Registry {
    /// Opens the store; its nodes have the grace period to report.
    pub fn open(options: Options, clock: Arc<dyn Clock>) -> Result<Registry, store::Error> {
        let (store, image) = Store::open(&options.state)?;
        report_unreadable(&image);
        let started = clock.monotonic();
        let leases = LeaseClock::new(started, 2 * options.heartbeat());
        let terms = Terms {
            policy: options.policy(),
            locality: options.locality,
            lease: options.lease(),
            grace: Duration::from_secs_f64(options.grace_s),
            forget: Duration::from_secs_f64(options.forget_s),
            move_policy: options.move_policy,
        };
        Ok(Registry {
            counters: Counters::default(),
            state: RwLock::new(State::new(image, leases, terms)),
            started,
            store,
            containers: Mutex::new(Containers::new(unix_s(clock.wall()) << 32)),
            clock,
            writer: Mutex::new(false),
            failures: Mutex::default(),
            options,
        })
    }

    /// The state, for reading.
    pub fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(|e| e.into_inner())
    }

    /// The state, for changes that are not persisted.
    pub fn live(&self) -> RwLockWriteGuard<'_, State> {
        let mut state = self.state.write().unwrap_or_else(|e| e.into_inner());
        state.advance(self.clock.monotonic());
        state
    }

    /// Decides on a change, writes it, applies it; `after` makes changes that are not persisted,
    /// atomically with it. Blocks on the disk.
    pub fn change<T>(
        &self,
        decide: impl FnOnce(&State) -> Decided<T>,
        after: impl FnOnce(&mut State),
    ) -> Result<T, Status> {
        let mut differs = self.writer.lock().unwrap_or_else(|e| e.into_inner());
        if *differs {
            self.reload(&mut differs)?;
        }
        let (changes, reply) = decide(&self.state())?;
        if !changes.is_empty() {
            if let Err(error) = self.store.commit(&changes) {
                // The failed write may have taken effect; the state on the disk decides.
                *differs = true;
                let _ = self.reload(&mut differs);
                return Err(self.unwritten(error));
            }
            self.failures().store.clear();
        }
        let mut state = self.live();
        if !changes.is_empty() {
            state.apply(changes);
        }
        after(&mut state);
        Ok(reply)
    }

    fn reload(&self, differs: &mut bool) -> Result<(), Status> {
        let image = self.store.load().map_err(|e| self.unwritten(e))?;
        let mut state = self.live();
        if image.revision != state.image().revision {
            state.replace(image);
        }
        *differs = false;
        Ok(())
    }

    fn unwritten(&self, error: store::Error) -> Status {
        let text = format!("{:#}", anyhow::Error::from(error));
        let mut failures = self.failures();
        if failures.store.is_empty() {
            tracing::error!(
                error = text,
                "the store is not writable: changes are refused"
            );
        }
        failures.store.clone_from(&text);
        self.counters.store_failures.inc();
        Failure::Unavailable.status(format!("not applied: {text}"))
    }

    /// Current failures.
    pub fn failures(&self) -> MutexGuard<'_, Failures> {
        self.failures.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The state of container functions.
    pub(crate) fn containers(&self) -> MutexGuard<'_, Containers> {
        self.containers.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// A function's content, from the store.
    pub fn content(&self, function: &str) -> Result<Option<Vec<u8>>, Status> {
        self.store
            .content(function)
            .map_err(|e| Failure::Unavailable.status(format!("{:#}", anyhow::Error::from(e))))
    }

    /// Releases the store to another registry. All further changes fail.
    pub fn close(&self) {
        let _writer = self.writer.lock().unwrap_or_else(|e| e.into_inner());
        self.store.close();
    }

    /// Time since the start.
    pub fn uptime(&self) -> Duration {
        self.clock.monotonic().saturating_sub(self.started)
    }

    /// Wall-clock time, for display.
    pub fn wall_s(&self) -> u64 {
        unix_s(self.clock.wall())
    }

    /// Applies the passing of time: silent nodes leave the pool, expired leases are removed.
    /// Blocks.
    pub fn sweep(&self) {
        let swept = {
            let mut state = self.live();
            // After three rounds without a response, values from heartbeats apply again.
            let stale = Duration::from_secs_f64(3.0 * self.options.prometheus_interval_s);
            state.forget_measured(stale.max(self.options.lease()));
            state.sweep(self.clock.monotonic())
        };
        for node in &swept.silent {
            self.counters.nodes_silent.inc();
            tracing::warn!(node, "lease expired: node removed from the pool");
        }
        if swept.forgotten.is_empty() && swept.expired.is_empty() {
            return;
        }
        let Swept {
            forgotten, expired, ..
        } = &swept;
        let done = self.change(
            |state| crate::instances::bury(state, forgotten, expired),
            |_| {},
        );
        if done.is_ok() {
            for node in forgotten {
                tracing::info!(node, "forgotten");
            }
            for instance in expired {
                self.counters.instances_expired.inc();
                tracing::info!(instance, "its lease expired");
            }
        }
    }
}

/// Logs records that [`State`] treats as matching no device.
fn report_unreadable(image: &Image) {
    let instances = image.instances.values();
    let instances = instances.map(|i| ("instance", &i.name, &i.query));
    let pools = image.pools.values().map(|p| ("pool", &p.name, &p.query));
    for (kind, name, query) in instances.chain(pools) {
        if let Some(error) = query.error() {
            let query = query.text();
            tracing::error!(kind, name, query, %error, "a stored query does not parse: no device fits it");
        }
    }
}
