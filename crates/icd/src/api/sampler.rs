//! `cl…Sampler…`

use crate::core::context::Context;
use crate::core::object::Ref;
use crate::core::sampler::Sampler;
use baltra_opencl::*;
use std::ffi::c_void;

/// `clCreateSampler`
#[no_mangle]
pub unsafe extern "C" fn clCreateSampler(
    context: cl_context,
    normalized_coords: cl_bool,
    addressing_mode: cl_addressing_mode,
    filter_mode: cl_filter_mode,
    errcode_ret: *mut cl_int,
) -> cl_sampler {
    handle!(errcode_ret, |caller| {
        let context = caller.share::<Context>(context)?;
        let wanted = [
            normalized_coords.into(),
            addressing_mode.into(),
            filter_mode.into(),
        ];
        Ok(create(&context, wanted, Vec::new())?.give())
    })
}

/// `clCreateSamplerWithProperties`
#[no_mangle]
pub unsafe extern "C" fn clCreateSamplerWithProperties(
    context: cl_context,
    sampler_properties: *const cl_sampler_properties,
    errcode_ret: *mut cl_int,
) -> cl_sampler {
    handle!(errcode_ret, |caller| {
        let context = caller.share::<Context>(context)?;
        // Default: normalized coordinates, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST.
        let mut wanted = [1, CL_ADDRESS_CLAMP as u64, CL_FILTER_NEAREST as u64];
        let mut seen = [false; 3];
        let given = caller.pairs(sampler_properties);
        for pair in given
            .iter()
            .flatten()
            .copied()
            .collect::<Vec<_>>()
            .chunks(2)
        {
            // CL_INVALID_VALUE if the property name in sampler_properties is not a supported
            // property name, if the value specified for a supported property name is not valid,
            // or if the same property name is specified more than once.
            let at = match pair[0] as i32 {
                CL_SAMPLER_NORMALIZED_COORDS => 0,
                CL_SAMPLER_ADDRESSING_MODE => 1,
                CL_SAMPLER_FILTER_MODE => 2,
                _ => return Err(CL_INVALID_VALUE),
            };
            if std::mem::replace(&mut seen[at], true) {
                return Err(CL_INVALID_VALUE);
            }
            wanted[at] = pair[1];
        }
        let properties = given.map_or(Vec::new(), |mut list| {
            list.push(0);
            list
        });
        Ok(create(&context, wanted, properties)?.give())
    })
}

/// Checks normalized coordinates, addressing mode and filter mode.
fn create(
    context: &Ref<Context>,
    wanted: [u64; 3],
    properties: Vec<u64>,
) -> Result<Ref<Sampler>, i32> {
    let [normalized, addressing, filter] = wanted;
    // CL_INVALID_VALUE if addressing_mode, filter_mode, normalized_coords, or a combination of
    // these arguments are not valid.
    let modes = CL_ADDRESS_NONE as u64..=CL_ADDRESS_MIRRORED_REPEAT as u64;
    let filters = CL_FILTER_NEAREST as u64..=CL_FILTER_LINEAR as u64;
    if normalized > 1 || !modes.contains(&addressing) || !filters.contains(&filter) {
        return Err(CL_INVALID_VALUE);
    }
    // CL_INVALID_OPERATION if images are not supported by any device associated with context.
    if !context.devices.iter().any(|d| d.limits.images) {
        return Err(CL_INVALID_OPERATION);
    }
    Sampler::new(
        context,
        normalized == 1,
        addressing as u32,
        filter as u32,
        properties,
    )
}

/// `clRetainSampler`
#[no_mangle]
pub unsafe extern "C" fn clRetainSampler(sampler: cl_sampler) -> cl_int {
    code!(|caller| caller.retain::<Sampler>(sampler))
}

/// `clReleaseSampler`
#[no_mangle]
pub unsafe extern "C" fn clReleaseSampler(sampler: cl_sampler) -> cl_int {
    code!(|caller| caller.release::<Sampler>(sampler))
}

/// `clGetSamplerInfo`
#[no_mangle]
pub unsafe extern "C" fn clGetSamplerInfo(
    sampler: cl_sampler,
    param_name: cl_sampler_info,
    param_value_size: usize,
    param_value: *mut c_void,
    param_value_size_ret: *mut usize,
) -> cl_int {
    code!(|caller| {
        let sampler = caller.get::<Sampler>(sampler)?;
        let answer = caller.answer(param_value_size, param_value, param_value_size_ret);
        match param_name as i32 {
            CL_SAMPLER_REFERENCE_COUNT => answer.value(sampler.references()),
            CL_SAMPLER_CONTEXT => answer.value(sampler.context.handle()),
            CL_SAMPLER_NORMALIZED_COORDS => answer.flag(sampler.normalized),
            CL_SAMPLER_ADDRESSING_MODE => answer.value(sampler.addressing),
            CL_SAMPLER_FILTER_MODE => answer.value(sampler.filter),
            CL_SAMPLER_PROPERTIES => answer.values(&sampler.properties),
            // CL_INVALID_VALUE if param_name is not valid.
            _ => Err(CL_INVALID_VALUE),
        }
    })
}
