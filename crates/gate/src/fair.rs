//! `fair`: weighted fair queueing on device time.
//!
//! Each tenant has a virtual time, which advances by device time ÷ weight while it holds the device
//! and another tenant waits. The tenant with the least virtual time goes first, and a holder yields
//! once its quantum has elapsed and it is ahead of a waiting tenant. A tenant that wakes up keeps at
//! most [`CREDIT_NS`] of its backlog, and after more than a short sleep at most [`RETURN_NS`]: no
//! tenant can save up device time by not using it, and several that come back at the same time do
//! not keep the others waiting for long.
//!
//! A tenant with a floor counts for at least that part of all tenants that demand the device; the
//! others share the rest by weight. If its part by weight exceeds its floor, the floor has no
//! effect.

use super::{ClientId, Policy, Share};
use std::collections::HashMap;

/// The backlog that a tenant keeps in a short sleep, nanoseconds at weight 1. Longer than a long task
/// (a matrix multiplication of 512 takes 95 ms on two cores): a tenant of short tasks that is late
/// once gets the device back after such a task.
const CREDIT_NS: i128 = 200_000_000;

/// The backlog that is left after a longer sleep.
const RETURN_NS: i128 = 5_000_000;

/// A sleep up to this length is short: the client's thread was late.
const SHORT_NS: u64 = 20_000_000;

/// Virtual nanoseconds in one nanosecond at weight 1.
const SCALE: i128 = 1 << 20;

/// The unit of [`Fair::worth`].
const UNIT: i128 = 1_000_000;

#[derive(Debug, Default)]
struct Tenant {
    weight: i128,
    /// The floor, percent; 0: none.
    floor: i128,
    virtual_time: i128,
    clients: u32,
    awake: u32,
    /// When its last client went to sleep.
    asleep_ns: u64,
}

#[derive(Default)]
pub(super) struct Fair {
    tenants: HashMap<String, Tenant>,
    clients: HashMap<ClientId, (String, bool)>,
    /// The largest that the least virtual time of awake tenants has been.
    floor: i128,
}

impl Fair {
    fn tenant(&self, client: ClientId) -> Option<&Tenant> {
        self.tenants.get(&self.clients.get(&client)?.0)
    }

    /// A tenant's effective weight, times [`UNIT`]: the awake tenants' effective weights add up to
    /// the sum of their weights, so that virtual times stay comparable while tenants come and go.
    fn worth(&self, name: &str) -> i128 {
        let Some(own) = self.tenants.get(name) else {
            return UNIT;
        };
        let counts = |(other, t): &(&String, &Tenant)| t.awake > 0 || *other == name;
        let awake = || self.tenants.iter().filter(counts).map(|(_, t)| t);
        if awake().all(|t| t.floor == 0) {
            return own.weight * UNIT;
        }
        let all: i128 = awake().map(|t| t.weight).sum();
        // Its part by weight exceeds its floor, which has no effect then.
        let floored = |t: &Tenant| t.floor * all > t.weight * 100;
        let floors: i128 = awake().filter(|t| floored(t)).map(|t| t.floor).sum();
        if floored(own) {
            return own.floor * all * UNIT / floors.max(100);
        }
        let rest: i128 = awake().filter(|t| !floored(t)).map(|t| t.weight).sum();
        // A tenant without a floor is never starved, whatever the others' floors are.
        let left = (100 - floors).max(1);
        (left * all * own.weight * UNIT / (100 * rest)).max(1)
    }

    fn update_floor(&mut self) {
        let awake = self.tenants.values().filter(|t| t.awake > 0);
        if let Some(least) = awake.map(|t| t.virtual_time).min() {
            self.floor = self.floor.max(least);
        }
    }
}

impl Policy for Fair {
    fn add(&mut self, client: ClientId, share: &Share) {
        let floor = self.floor;
        let tenant = self
            .tenants
            .entry(share.tenant.clone())
            .or_insert_with(|| Tenant {
                virtual_time: floor,
                ..Tenant::default()
            });
        tenant.weight = i128::from(share.weight.max(1));
        tenant.floor = i128::from(share.floor.min(100));
        tenant.clients += 1;
        self.clients.insert(client, (share.tenant.clone(), false));
    }

    fn remove(&mut self, client: ClientId) {
        // Not known when; it keeps the backlog of a long sleep.
        self.sleep(client, 0);
        let Some((name, _)) = self.clients.remove(&client) else {
            return;
        };
        // A tenant that has left is remembered while it is ahead: leaving and returning does not
        // cancel its debt.
        let floor = self.floor;
        let tenant = self.tenants.get_mut(&name).expect("clients have tenants");
        tenant.clients -= 1;
        self.tenants
            .retain(|_, t| t.clients > 0 || t.virtual_time > floor);
    }

    fn wake(&mut self, client: ClientId, now_ns: u64) {
        let Some((name, awake)) = self.clients.get_mut(&client) else {
            return;
        };
        if std::mem::replace(awake, true) {
            return;
        }
        // Not the least of those awake, which another one's backlog may have lowered: the backlogs of
        // several would add up.
        let floor = self.floor;
        let tenant = self.tenants.get_mut(name).expect("clients have tenants");
        if tenant.awake == 0 {
            let credit_ns = if now_ns.saturating_sub(tenant.asleep_ns) <= SHORT_NS {
                CREDIT_NS
            } else {
                RETURN_NS
            };
            let least = floor - credit_ns * SCALE / tenant.weight;
            tenant.virtual_time = tenant.virtual_time.max(least);
        }
        tenant.awake += 1;
        self.update_floor();
    }

    fn sleep(&mut self, client: ClientId, now_ns: u64) {
        let Some((name, awake)) = self.clients.get_mut(&client) else {
            return;
        };
        if std::mem::replace(awake, false) {
            let tenant = self.tenants.get_mut(name).expect("clients have tenants");
            tenant.awake -= 1;
            tenant.asleep_ns = now_ns;
        }
        self.update_floor();
    }

    fn charge(&mut self, client: ClientId, device_ns: u64) {
        if let Some((name, _)) = self.clients.get(&client) {
            let worth = self.worth(name);
            let tenant = self.tenants.get_mut(name).expect("clients have tenants");
            tenant.virtual_time += i128::from(device_ns) * SCALE * UNIT / worth;
        }
        self.update_floor();
    }

    fn rank(&self, client: ClientId) -> i128 {
        self.tenant(client).map_or(i128::MAX, |t| t.virtual_time)
    }

    fn yields(&self, holder: ClientId, waiting: ClientId, held_ns: u64, quantum_ns: u64) -> bool {
        // Two clients of one tenant have one virtual time: they take turns by quantum.
        let same =
            self.clients.get(&holder).map(|c| &c.0) == self.clients.get(&waiting).map(|c| &c.0);
        held_ns >= quantum_ns && (same || self.rank(waiting) < self.rank(holder))
    }
}
