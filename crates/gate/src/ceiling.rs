//! Ceilings: the maximum part of a device's time for a tenant, even if the device is idle.
//!
//! Each tenant with a ceiling has a budget of device time, a token bucket: it fills at the tenant's
//! rate up to the amount of [`WINDOW_NS`]. A task that exceeds the budget runs to its end and is
//! paid for afterwards.
//!
//! [`Capacity`] is the device time per unit of time: that of its slots or, where use is counted as
//! processor time, that of its processors.

use super::{ClientId, Share};
use std::collections::HashMap;

/// Size of a budget, nanoseconds; unused budget beyond it is lost. Over any time, a tenant gets at
/// most this much more than its ceiling.
const WINDOW_NS: i128 = 20_000_000;
/// Budget at which a tenant resumes after exhausting it, so that it does not stop at every task.
const RESUME_NS: i128 = 2_000_000;
/// Minimum interval between checks of a budget; use beyond the budget in the meantime is paid for.
const LOOK_NS: i128 = 50_000;

/// Device time per nanosecond of the clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity {
    /// Device time of all holders together.
    pub device: usize,
    /// Device time of one holder at most.
    pub holder: usize,
}

#[derive(Debug)]
struct Budget {
    /// The ceiling, percent of the device.
    ceiling: i128,
    /// Remaining budget; negative after overuse. Nanoseconds, times 100.
    left: i128,
    filled_ns: u64,
    /// Whether the budget is exhausted and the tenant waits.
    spent: bool,
    clients: usize,
}

/// The budgets of one device's tenants.
#[derive(Debug, Default)]
pub(super) struct Ceilings {
    budgets: HashMap<String, Budget>,
    clients: HashMap<ClientId, String>,
}

impl Ceilings {
    /// Adds a client.
    pub fn add(&mut self, client: ClientId, share: &Share, now_ns: u64) {
        if share.ceiling == 0 || share.ceiling >= 100 {
            return;
        }
        let fresh = || Budget {
            ceiling: 0,
            left: 0,
            filled_ns: now_ns,
            spent: false,
            clients: 0,
        };
        let budget = self
            .budgets
            .entry(share.tenant.clone())
            .or_insert_with(fresh);
        budget.ceiling = i128::from(share.ceiling);
        budget.clients += 1;
        self.clients.insert(client, share.tenant.clone());
    }

    /// Removes a client that left, or whose share changes. A debt is kept until it is paid: leaving
    /// does not cancel it.
    pub fn remove(&mut self, client: ClientId) {
        if let Some(budget) = self
            .clients
            .remove(&client)
            .and_then(|t| self.budgets.get_mut(&t))
        {
            budget.clients -= 1;
        }
        self.budgets.retain(|_, b| b.clients > 0 || b.left < 0);
    }

    /// Whether a client has a ceiling.
    pub fn has(&self, client: ClientId) -> bool {
        self.clients.contains_key(&client)
    }

    /// Whether a client has to wait because of its own ceiling.
    pub fn is_spent(&self, client: ClientId) -> bool {
        self.of(client).is_some_and(|b| b.spent)
    }

    fn of(&self, client: ClientId) -> Option<&Budget> {
        self.budgets.get(self.clients.get(&client)?)
    }

    /// Fills the budgets for the elapsed time.
    pub fn fill(&mut self, now_ns: u64, capacity: Capacity) {
        for budget in self.budgets.values_mut() {
            let rate = budget.ceiling * capacity.device as i128;
            let passed = i128::from(now_ns.saturating_sub(budget.filled_ns));
            budget.filled_ns = budget.filled_ns.max(now_ns);
            budget.left = (budget.left + passed * rate).min(WINDOW_NS * rate);
            if budget.left >= RESUME_NS * budget.ceiling {
                budget.spent = false;
            }
        }
    }

    /// Charges device time to a client's budget.
    pub fn charge(&mut self, client: ClientId, device_ns: u64) {
        let tenant = self.clients.get(&client);
        if let Some(budget) = tenant.and_then(|t| self.budgets.get_mut(t)) {
            budget.left -= i128::from(device_ns) * 100;
            budget.spent |= budget.left <= 0;
        }
    }

    /// Time at which a client's state changes without an event: its budget is exhausted or
    /// restored.
    pub fn deadline_ns(&self, client: ClientId, now_ns: u64, capacity: Capacity) -> Option<u64> {
        let budget = self.of(client)?;
        let wait = if budget.spent {
            let missing = RESUME_NS * budget.ceiling - budget.left;
            missing / (budget.ceiling * capacity.device as i128) + 1
        } else {
            (budget.left / (100 * capacity.holder as i128)).max(LOOK_NS)
        };
        Some(now_ns.saturating_add(wait.max(1) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(count: usize) -> Capacity {
        Capacity {
            device: count,
            holder: 1,
        }
    }

    fn share(ceiling: u32) -> Share {
        Share {
            tenant: "a".into(),
            weight: 1,
            ceiling,
            ..Share::default()
        }
    }

    #[test]
    fn over_a_long_time_a_tenant_has_its_ceiling_and_no_more() {
        for (ceiling, count, task_ns) in [
            (30, 1, 1_000_000u64),
            (30, 2, 95_000_000),
            (1, 1, 50_000),
            (99, 4, 7_000_000),
        ] {
            let mut ceilings = Ceilings::default();
            ceilings.add(1, &share(ceiling), 0);
            let (mut now, mut used) = (0u64, 0u64);
            // A client that always requests the device, and whose tasks are not preempted.
            while now < 60_000_000_000 {
                ceilings.fill(now, slots(count));
                if ceilings.is_spent(1) {
                    now = ceilings.deadline_ns(1, now, slots(count)).unwrap();
                } else {
                    now += task_ns;
                    used += task_ns;
                    ceilings.charge(1, task_ns);
                }
            }
            let part = used as f64 * 100.0 / (now as f64 * count as f64);
            let most = f64::from(ceiling).min(100.0 / count as f64);
            assert!(
                part <= most * 1.02 && part >= most * 0.95,
                "{ceiling} % on {count}: {part}"
            );
        }
    }

    #[test]
    fn what_is_not_used_is_not_saved_up() {
        let mut ceilings = Ceilings::default();
        ceilings.add(1, &share(50), 0);
        ceilings.fill(3_600_000_000_000, slots(1));
        let mut burst = 0;
        while !ceilings.is_spent(1) {
            ceilings.charge(1, 100_000);
            burst += 100_000;
        }
        assert!(i128::from(burst) <= WINDOW_NS / 2 + 100_000, "{burst}");
    }

    #[test]
    fn leaving_forgives_no_debt() {
        let mut ceilings = Ceilings::default();
        ceilings.add(1, &share(10), 0);
        ceilings.charge(1, 1_000_000_000);
        ceilings.remove(1);
        ceilings.add(2, &share(10), 0);
        assert!(ceilings.is_spent(2));
        ceilings.fill(11_000_000_000, slots(1));
        assert!(!ceilings.is_spent(2));
    }

    #[test]
    fn who_has_no_ceiling_is_never_held_up() {
        let mut ceilings = Ceilings::default();
        for all in [0, 100] {
            ceilings.add(1, &share(all), 0);
            ceilings.charge(1, u64::MAX / 2);
            assert!(!ceilings.is_spent(1) && !ceilings.has(1));
        }
    }
}
