//! Merging of calls: arrays are concatenated along the batching dimension, without copying.

use crate::call::{Body, Buffer, Call};
use crate::plan::{Bound, BufferPlan};
use crate::types::Scalar;
use bytes::Bytes;
use std::sync::Arc;

impl Call {
    /// Whether [`Call::merge`] may merge `self` and `other`: they call the same function, and are
    /// equal except for the batching dimension and the arrays.
    pub fn mergeable(&self, other: &Call) -> bool {
        let Some(batch) = self.plan.batch else {
            return false;
        };
        let same_number = |a: &Option<Scalar>, b: &Option<Scalar>| match (a, b) {
            // Compared bit for bit, so that zeros of different signs differ.
            (Some(a), Some(b)) => a.kind() == b.kind() && a.bytes() == b.bytes(),
            (None, None) => true,
            _ => false,
        };
        Arc::ptr_eq(&self.plan, &other.plan)
            && self
                .values
                .iter()
                .zip(&other.values)
                .enumerate()
                .all(|(index, (a, b))| index == batch || a == b)
            && self
                .scalars
                .iter()
                .zip(&other.scalars)
                .all(|(a, b)| same_number(a, b))
    }

    /// Merges calls into one; `None` if they cannot be merged, or the sum exceeds the function's
    /// limits.
    pub fn merge(calls: &[Call]) -> Option<Call> {
        let first = calls.first()?;
        let batch = first.plan.batch?;
        if !calls[1..].iter().all(|call| first.mergeable(call)) {
            return None;
        }
        let sizes: Vec<i128> = calls.iter().map(|call| call.values[batch]).collect();
        let total = sizes.iter().sum();
        if total > first.plan.variables[batch].max {
            return None;
        }
        let mut values = first.values.clone();
        values[batch] = total;
        let mut bodies = vec![None; first.plan.inputs.len()];
        for (index, buffer) in first.plan.buffers.iter().enumerate() {
            let (BufferPlan::Input(input) | BufferPlan::InOut(input, _)) = *buffer else {
                continue;
            };
            let frames = calls.iter().flat_map(|call| match &call.buffers[index] {
                Buffer::Input(body) | Buffer::InOut(body, _) => body.0.as_slice(),
                _ => &[],
            });
            bodies[input] = Some(Body(frames.cloned().collect()));
        }
        let mut merged = first
            .plan
            .launch(Bound {
                bodies,
                scalars: first.scalars.clone(),
                values,
            })
            .ok()?;
        merged.items = calls.iter().map(|call| call.items).sum();
        merged.parts = sizes.into_iter().map(|size| size as u64).collect();
        Some(merged)
    }

    /// Splits the outputs of a merged call for its parts, without copying; `None` if an output has
    /// the wrong size. A call that is not merged receives all outputs.
    pub fn split(&self, outputs: &[Bytes]) -> Option<Vec<Vec<Bytes>>> {
        let right = outputs.len() == self.outputs.len()
            && outputs
                .iter()
                .zip(&self.outputs)
                .all(|(bytes, shape)| bytes.len() as u64 == shape.bytes);
        if !right {
            return None;
        }
        if self.parts.is_empty() {
            return Some(vec![outputs.to_vec()]);
        }
        let total: u64 = self.parts.iter().sum();
        let mut at = 0;
        let mut all = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let cut = |bytes: &Bytes| {
                let row = (bytes.len() as u64).checked_div(total).unwrap_or(0);
                bytes.slice((row * at) as usize..(row * (at + part)) as usize)
            };
            all.push(outputs.iter().map(cut).collect());
            at += part;
        }
        Some(all)
    }
}

#[cfg(test)]
mod tests;
