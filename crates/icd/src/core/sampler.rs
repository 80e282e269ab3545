//! Samplers.

use crate::core::context::Context;
use crate::core::lost;
use crate::core::object::{Class, Object, Ref};
use crate::core::process;
use baltra_opencl::*;
use baltra_wire::{Control, Id};

/// A sampler, which has an id in each session of its context.
pub struct Sampler {
    /// The context.
    pub context: Ref<Context>,
    /// `CL_SAMPLER_NORMALIZED_COORDS`
    pub normalized: bool,
    /// `CL_SAMPLER_ADDRESSING_MODE`
    pub addressing: u32,
    /// `CL_SAMPLER_FILTER_MODE`
    pub filter: u32,
    /// The properties as they were given with their zero; empty: `clCreateSampler`.
    pub properties: Vec<u64>,
    ids: Vec<Id>,
}

impl Class for Sampler {
    type Raw = _cl_sampler;
    const TAG: u32 = 0xba17_0009;
    const INVALID: i32 = CL_INVALID_SAMPLER;

    fn ended(object: &Object<Sampler>) {
        process::current().samplers.remove(object.handle() as usize);
    }
}

impl Sampler {
    /// Creates a sampler in every session of the context, without waiting for them.
    pub fn new(
        context: &Ref<Context>,
        normalized: bool,
        addressing: u32,
        filter: u32,
        properties: Vec<u64>,
    ) -> Result<Ref<Sampler>, i32> {
        let list = [
            CL_SAMPLER_NORMALIZED_COORDS as u64,
            normalized.into(),
            CL_SAMPLER_ADDRESSING_MODE as u64,
            addressing.into(),
            CL_SAMPLER_FILTER_MODE as u64,
            filter.into(),
            0,
        ];
        let bytes: Vec<u8> = list.iter().flat_map(|v| v.to_le_bytes()).collect();
        let mut ids = Vec::new();
        for (at, member) in context.members.iter().enumerate() {
            let id = member.client.new_id();
            if context.is_gone(at) {
                ids.push(id);
                continue;
            }
            let message = Control::Sampler {
                id,
                context: member.id,
                properties: &bytes,
            };
            member.client.control(&message).map_err(lost)?;
            // "CL_ADDRESS_REPEAT … can only be used with normalized coordinates": some drivers
            // create such a sampler anyway.
            let repeats = [CL_ADDRESS_REPEAT, CL_ADDRESS_MIRRORED_REPEAT];
            if !normalized && repeats.contains(&(addressing as i32)) {
                member.client.confirm(id).map_err(lost)?;
            }
            ids.push(id);
        }
        let sampler = Object::new(Sampler {
            context: context.clone(),
            normalized,
            addressing,
            filter,
            properties,
            ids,
        });
        process::current().samplers.add(sampler.handle() as usize);
        Ok(sampler)
    }

    /// Its name in one of the context's members.
    pub fn id_in(&self, member: usize) -> Result<Id, i32> {
        self.ids.get(member).copied().ok_or(CL_INVALID_SAMPLER)
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        for (member, &id) in self.context.members.iter().zip(&self.ids) {
            // A lost session has nothing to release.
            let _ = member.client.release(id, None);
        }
    }
}
