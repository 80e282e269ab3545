//! Delivery of callbacks, separate from calls: a host that never responds delays only its own
//! callbacks.
//!
//! Each tenant and host has a lane: a few concurrent callbacks, and a bounded queue.

use crate::http::admission::keys::TenantIndex;
use crate::http::problem::Problem;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Callbacks at a time of one tenant to one host.
const RUNNING_MAX: usize = 16;
/// One tenant's callbacks to one host are at most this fraction (1/N) of the limit.
const LANE_PART: usize = 10;
/// A callback that has not started after this time is dropped.
const WAIT_MAX: Duration = Duration::from_secs(60);

type Key = (usize, String);

/// All callbacks that wait or run.
#[derive(Debug)]
pub(crate) struct Deliveries {
    max: usize,
    /// Limit of one tenant: half of the total if there are several tenants.
    tenant_max: usize,
    lanes: Mutex<Lanes>,
}

#[derive(Debug, Default)]
struct Lanes {
    open: usize,
    by_tenant: HashMap<usize, usize>,
    by_key: HashMap<Key, Arc<Lane>>,
}

#[derive(Debug)]
struct Lane {
    open: AtomicUsize,
    running: Arc<Semaphore>,
}

/// A callback's place, released when dropped.
#[derive(Debug)]
pub(crate) struct Delivery {
    all: Arc<Deliveries>,
    key: Key,
    lane: Arc<Lane>,
}

impl Deliveries {
    pub fn new(max: usize, tenants: usize) -> Arc<Deliveries> {
        Arc::new(Deliveries {
            max,
            tenant_max: if tenants > 1 { max.div_ceil(2) } else { max },
            lanes: Mutex::default(),
        })
    }

    fn locked<T>(&self, f: impl FnOnce(&mut Lanes) -> T) -> T {
        f(&mut self.lanes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Number of callbacks that wait or run.
    pub fn open(&self) -> usize {
        self.locked(|lanes| lanes.open)
    }

    fn has_room(&self, lanes: &Lanes, key: &Key) -> bool {
        let lane = lanes.by_key.get(key);
        let lane = lane.map_or(0, |lane| lane.open.load(Relaxed));
        let tenant = lanes.by_tenant.get(&key.0).copied().unwrap_or(0);
        lanes.open < self.max && tenant < self.tenant_max && lane < self.max.div_ceil(LANE_PART)
    }

    /// Whether another call of the tenant may name this host: not while the callbacks of earlier
    /// calls fill its lane.
    pub fn check(&self, tenant: TenantIndex, host: &str) -> Result<(), Problem> {
        let key = (tenant.0, host.to_ascii_lowercase());
        if self.locked(|lanes| self.has_room(lanes, &key)) {
            Ok(())
        } else {
            let detail = format!("{}: try again later", full(&key.1));
            Err(Problem::overload(detail, Duration::from_secs(5)))
        }
    }

    /// Takes a place among the callbacks, if one is free.
    pub fn enter(self: &Arc<Self>, tenant: TenantIndex, host: &str) -> Result<Delivery, String> {
        let key = (tenant.0, host.to_ascii_lowercase());
        self.locked(|lanes| {
            if !self.has_room(lanes, &key) {
                return Err(full(&key.1));
            }
            let lane = lanes.by_key.entry(key.clone()).or_insert_with(|| {
                Arc::new(Lane {
                    open: AtomicUsize::new(0),
                    running: Arc::new(Semaphore::new(RUNNING_MAX)),
                })
            });
            let lane = lane.clone();
            lane.open.fetch_add(1, Relaxed);
            lanes.open += 1;
            *lanes.by_tenant.entry(key.0).or_default() += 1;
            Ok(Delivery {
                all: self.clone(),
                key,
                lane,
            })
        })
    }
}

fn full(host: &str) -> String {
    let host: String = host.chars().take(100).collect();
    format!("too many callbacks to '{host}' wait ('gateway.limits.callbacks_max')")
}

impl Delivery {
    /// Waits for its turn.
    pub async fn turn(&self) -> Result<OwnedSemaphorePermit, String> {
        let turn = self.lane.running.clone().acquire_owned();
        match tokio::time::timeout(WAIT_MAX, turn).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err("earlier callbacks to this host took too long".to_owned()),
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.all.locked(|lanes| {
            lanes.open -= 1;
            if let Some(open) = lanes.by_tenant.get_mut(&self.key.0) {
                *open -= 1;
            }
            if self.lane.open.fetch_sub(1, Relaxed) == 1 {
                lanes.by_key.remove(&self.key);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RED: TenantIndex = TenantIndex(0);
    const BLUE: TenantIndex = TenantIndex(1);

    #[test]
    fn a_host_that_never_answers_holds_up_its_own_callbacks_alone() {
        let all = Deliveries::new(100, 2);
        let stuck: Vec<Delivery> = (0..10).map(|_| all.enter(RED, "Slow").unwrap()).collect();
        assert!(all.enter(RED, "slow").is_err());
        assert_eq!(all.check(RED, "SLOW").unwrap_err().status, 503);
        all.check(RED, "other").unwrap();
        drop(all.enter(BLUE, "slow").unwrap());
        assert_eq!(all.open(), 10);
        drop(stuck);
        assert_eq!(all.open(), 0);
        assert!(all.locked(|lanes| lanes.by_key.is_empty()));
        all.enter(RED, "slow").unwrap();
    }

    #[test]
    fn a_tenant_leaves_room_for_the_others() {
        let all = Deliveries::new(100, 2);
        let hosts: Vec<String> = (0..50).map(|i| i.to_string()).collect();
        let of_red: Vec<Delivery> = hosts.iter().map(|h| all.enter(RED, h).unwrap()).collect();
        assert!(all.enter(RED, "one more").is_err());
        all.enter(BLUE, "one more").unwrap();
        drop(of_red);
    }

    #[tokio::test(start_paused = true)]
    async fn some_of_a_lane_run_and_the_others_wait() {
        let all = Deliveries::new(1000, 1);
        let places: Vec<Delivery> = (0..=RUNNING_MAX)
            .map(|_| all.enter(RED, "a").unwrap())
            .collect();
        let mut turns = Vec::new();
        for place in &places[..RUNNING_MAX] {
            turns.push(place.turn().await.unwrap());
        }
        assert!(places[RUNNING_MAX].turn().await.is_err());
        turns.pop();
        drop(places[RUNNING_MAX].turn().await.unwrap());
    }
}
