//! Values that iterations of a pipeline pass on to later ones: how they reach the registers of phis.

use super::code::{End, Renewal, Schedule};
use super::Block;
use crate::ir::{BlockId, Value, ValueId};
use std::collections::HashMap;

/// A phi: its value, and those that it has after a block.
type Phi = (ValueId, Vec<(BlockId, Value)>);

impl Block<'_> {
    /// By phi of a pipeline: its renewal; `None`: the block is not a loop.
    pub fn renewals(self, schedule: &Schedule, interval: u32) -> Option<HashMap<ValueId, Renewal>> {
        let mut found = HashMap::new();
        for phi in &self.code.phis {
            self.renewal(phi, schedule, interval, &mut found)?;
        }
        Some(found)
    }

    fn renewal(
        self,
        phi: &Phi,
        schedule: &Schedule,
        interval: u32,
        found: &mut HashMap<ValueId, Renewal>,
    ) -> Option<Renewal> {
        if let Some(known) = found.get(&phi.0) {
            return Some(*known);
        }
        let next = phi.1.iter().find(|source| source.0 == self.own)?.1;
        let entry = schedule.entry().unwrap_or(0);
        let at = |step: u32| Renewal {
            value: next,
            at: step.max(entry),
            until: step.max(entry),
        };
        let ready = match next {
            Value::Local(v) => schedule.from.get(&v).copied().unwrap_or(0),
            _ => 0,
        };
        let before = self.code.phis.iter().find(|p| Value::Local(p.0) == next);
        let renewal = match before {
            None => at(ready),
            Some(before) => {
                // Phis that are exchanged find each other in their first step.
                found.insert(phi.0, at(0));
                let of_before = self.renewal(before, schedule, interval, found)?;
                if of_before.until >= interval && !schedule.repeats && self.begin_alike(phi, before)
                {
                    // An iteration finds in a register of `before` that is read an interval earlier
                    // what the iteration before it has found.
                    Renewal {
                        until: of_before.until - interval,
                        ..of_before
                    }
                } else {
                    at(of_before.first(interval))
                }
            }
        };
        found.insert(phi.0, renewal);
        Some(renewal)
    }

    /// Whether two phis have the same value in the first iteration.
    fn begin_alike(self, a: &Phi, b: &Phi) -> bool {
        let mut outside = a.1.iter().filter(|source| source.0 != self.own);
        outside.all(|source| b.1.contains(source))
    }

    /// By phi of a pipeline that an instruction reads before it is renewed: the first step in which
    /// that is possible. `None`: the end of the loop depends on it.
    pub fn early_reads(self, schedule: &Schedule, interval: u32) -> Option<HashMap<ValueId, u32>> {
        let mut early = HashMap::new();
        for (phi, renewal) in &schedule.renewals {
            let first = renewal.first(interval);
            let steps = self.code.code.iter().zip(&schedule.steps);
            let mut readers = steps.filter(|(i, _)| i.op.uses().contains(&Value::Local(*phi)));
            if readers.any(|(_, step)| step.0 < first) {
                early.insert(*phi, first);
            }
            match self.code.end {
                End::Branch(Value::Local(c), _, _) if c == *phi && interval - 1 < first => {
                    return None;
                }
                _ => {}
            }
        }
        Some(early)
    }
}
