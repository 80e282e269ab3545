//! The node's sessions in its reports, and the registry's orders to move them.

use super::report::plain;
use super::Link;
use crate::moves::{self, cannot, Description, Descriptions};
use crate::node::Node;
use baltra_api::registry as proto;
use baltra_ring::Locked;
use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Pause between two queries of the executors.
const DESCRIBE_EVERY: Duration = Duration::from_secs(2);
/// Most sessions of a device in a report, the registry's limit.
const SESSIONS_MAX: usize = 64;
/// Most results in a report, the registry's limit.
const RESULTS_MAX: usize = 16;
/// Most moves at a time; the registry repeats other orders.
const RUNNING_MAX: usize = 16;
/// Orders that were carried out are remembered, because the registry may repeat them.
const DONE_MAX: usize = 256;
/// Longest reason in a report, bytes; the registry allows more.
const REASON_CHARS_MAX: usize = 240;

/// The executors' reports about the sessions, and the registry's orders.
#[derive(Default)]
pub(super) struct Sessions {
    described: Mutex<Descriptions>,
    orders: Mutex<Orders>,
}

#[derive(Default)]
struct Orders {
    running: HashSet<String>,
    done: VecDeque<String>,
    results: VecDeque<proto::SessionMoved>,
}

impl Orders {
    /// Whether to begin with an order; false: it runs, it has ended, or too many run.
    fn begin(&mut self, order: &str) -> bool {
        let is_known = self.running.contains(order) || self.done.iter().any(|done| done == order);
        if is_known || self.running.len() >= RUNNING_MAX {
            return false;
        }
        self.running.insert(order.to_owned())
    }

    fn end(&mut self, result: proto::SessionMoved) {
        self.running.remove(&result.order);
        self.done.push_back(result.order.clone());
        if self.done.len() > DONE_MAX {
            self.done.pop_front();
        }
        self.results.push_back(result);
        if self.results.len() > RESULTS_MAX {
            self.results.pop_front();
        }
    }
}

impl Sessions {
    /// A device's sessions, those with the most memory first.
    pub fn of(&self, node: &Node, device: &str) -> Vec<proto::SessionLoad> {
        let described = self.described.locked();
        let sessions = node.sessions();
        let own = sessions.iter().filter(|(_, s)| s.is_on(device));
        let own = own.filter(|(_, s)| baltra_api::valid_name(&s.tenant));
        let mut all: Vec<_> = own
            .filter_map(|(id, s)| {
                // A session that its executor frees has ended, although its record is still there.
                let (known, obstacle) = match described.of(s.executor, *id)? {
                    Description::Described(facts) => (Some(facts), facts.obstacle.as_str()),
                    Description::Unknown(why) => (None, why),
                };
                Some(proto::SessionLoad {
                    id: *id,
                    tenant: s.tenant.clone(),
                    program: plain(&s.instance),
                    pid: s.pid,
                    age_s: s.since.elapsed().as_secs(),
                    described: known.is_some(),
                    resident_bytes: known.map_or(0, |f| f.resident_bytes),
                    swapped_bytes: known.map_or(0, |f| f.swapped_bytes),
                    queues: known.map_or(0, |f| f.queues),
                    obstacle: reason(cannot(s).unwrap_or(obstacle)),
                })
            })
            .collect();
        all.sort_by_key(|s| std::cmp::Reverse(s.resident_bytes.saturating_add(s.swapped_bytes)));
        all.truncate(SESSIONS_MAX);
        all
    }

    /// The results of the last moves.
    pub fn results(&self) -> Vec<proto::SessionMoved> {
        self.orders.locked().results.iter().cloned().collect()
    }
}

/// An executor's or the manager's text, within the registry's limit.
fn reason(text: &str) -> String {
    text.chars().take(REASON_CHARS_MAX).collect()
}

/// Queries the executors for their sessions until the process exits.
pub(super) async fn describe(node: Arc<Node>, link: Arc<Link>) {
    loop {
        tokio::time::sleep(DESCRIBE_EVERY).await;
        let is_idle = node.sessions().is_empty();
        let described = if is_idle {
            Descriptions::default()
        } else {
            let node = node.clone();
            let described = tokio::task::spawn_blocking(move || node.describe_sessions());
            described.await.unwrap_or_default()
        };
        *link.sessions.described.locked() = described;
    }
}

/// Carries out the registry's orders to move sessions, each once and in the background.
pub(super) fn carry_out(node: &Arc<Node>, link: &Arc<Link>, orders: Vec<proto::SessionMove>) {
    for order in orders {
        if !link.sessions.orders.locked().begin(&order.order) {
            continue;
        }
        tracing::info!(
            session = order.session,
            to = order.device,
            "received an order to move a session"
        );
        let (node, link) = (node.clone(), link.clone());
        tokio::task::spawn_blocking(move || {
            let result = carry_out_one(&node, order);
            link.sessions.orders.locked().end(result);
            link.urge();
        });
    }
}

fn carry_out_one(node: &Node, order: proto::SessionMove) -> proto::SessionMoved {
    let record = node.sessions().get(&order.session).cloned();
    let moved = node.move_session(order.session, &order.device, moves::WAIT, false);
    let mut result = proto::SessionMoved {
        order: order.order,
        session: order.session,
        from: record.map(|r| r.device).unwrap_or_default(),
        to: order.device,
        ..proto::SessionMoved::default()
    };
    match moved {
        Ok(moved) => result.stopped_us = moved.cost.stopped.as_micros() as u64,
        Err(error) => {
            tracing::info!(session = order.session, %error, "an ordered move failed");
            result.error = reason(&error.to_string());
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_order_is_carried_out_once() {
        let mut orders = Orders::default();
        assert!(orders.begin("a"));
        assert!(!orders.begin("a"), "it runs");
        let result = |order: &str| proto::SessionMoved {
            order: order.to_owned(),
            ..proto::SessionMoved::default()
        };
        orders.end(result("a"));
        assert!(!orders.begin("a"), "it has ended");
        for order in 0..RESULTS_MAX {
            assert!(orders.begin(&order.to_string()));
        }
        assert!(!orders.begin("b"), "too many run");
        for order in 0..RESULTS_MAX {
            orders.end(result(&order.to_string()));
        }
        assert_eq!(orders.results.len(), RESULTS_MAX);
        assert!(!orders.begin("a"), "its result is no longer reported");
        assert!(orders.begin("b"));
    }
}
