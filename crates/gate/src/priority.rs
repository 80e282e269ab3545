//! `priority`: the highest priority first at every task boundary; equals take turns by quantum.

use super::{ClientId, Policy, Share};
use std::collections::HashMap;

#[derive(Default)]
pub(super) struct Priority {
    clients: HashMap<ClientId, i32>,
}

impl Policy for Priority {
    fn add(&mut self, client: ClientId, share: &Share) {
        self.clients.insert(client, share.priority);
    }

    fn remove(&mut self, client: ClientId) {
        self.clients.remove(&client);
    }

    fn wake(&mut self, _: ClientId, _: u64) {}

    fn sleep(&mut self, _: ClientId, _: u64) {}

    fn charge(&mut self, _: ClientId, _: u64) {}

    fn rank(&self, client: ClientId) -> i128 {
        -i128::from(self.clients.get(&client).copied().unwrap_or(i32::MIN))
    }

    fn yields(&self, holder: ClientId, waiting: ClientId, held_ns: u64, quantum_ns: u64) -> bool {
        match self.rank(waiting).cmp(&self.rank(holder)) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Equal => held_ns >= quantum_ns,
            std::cmp::Ordering::Greater => false,
        }
    }
}
