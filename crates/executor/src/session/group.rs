//! The work-group size of a launch that specifies none.
//!
//! OpenCL leaves it to the implementation (`clEnqueueNDRangeKernel`, no `local_work_size`), and a
//! driver's choice takes time: NVIDIA's, 5.6 of the 10.2 µs of a launch (H100). A launch that fits
//! one compute unit of a GPU leaves no choice: it is one group.

use super::objects::Context;
use crate::driver::{number, Kernel};
use baltra_opencl::*;

/// Work-items that a compute unit runs at a time, in multiples that the kernel prefers (warps): one
/// for each of its schedulers. Four on NVIDIA's since Volta and on AMD's GCN.
const SCHEDULERS: u64 = 4;

/// The launches of a kernel that can run as one group.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct OneGroup {
    /// Work-items; 0: the driver chooses always.
    most: u64,
    /// Work-items in each dimension.
    sides: [u64; 3],
}

impl OneGroup {
    /// For a kernel on a GPU without a required group size. Elsewhere groups matter for
    /// performance: a CPU's cores run one each, an FPGA's pipelines are built for theirs.
    pub fn of(kernel: &Kernel, context: &Context) -> OneGroup {
        let [(_, device)] = context.devices[..] else {
            return OneGroup::default();
        };
        let ask = |param: i32| {
            let answer = kernel.work_group_info(device, param as u32);
            answer.unwrap_or_default()
        };
        let wanted = ask(CL_KERNEL_COMPILE_WORK_GROUP_SIZE);
        let is_gpu = device.number(CL_DEVICE_TYPE as u32) & CL_DEVICE_TYPE_GPU as u64 != 0;
        if !is_gpu || wanted.iter().any(|byte| *byte != 0) {
            return OneGroup::default();
        }
        let sides = device.info(CL_DEVICE_MAX_WORK_ITEM_SIZES as u32);
        let mut sides = super::names::words(sides.as_deref().unwrap_or_default());
        OneGroup {
            most: number(&ask(CL_KERNEL_WORK_GROUP_SIZE))
                .min(SCHEDULERS * number(&ask(CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE))),
            sides: std::array::from_fn(|_| sides.next().unwrap_or(0)),
        }
    }

    /// The group size of a launch that specifies none: the whole launch, or zeros, which leave the
    /// choice to the driver.
    pub fn local(&self, dimensions: u32, global: &[usize; 3]) -> [usize; 3] {
        let used = dimensions as usize;
        let sizes = global.iter().take(used).map(|side| *side as u64);
        let items = sizes
            .clone()
            .try_fold(1u64, |all, side| all.checked_mul(side));
        let fits = items.is_some_and(|items| (1..=self.most).contains(&items))
            && sizes.zip(self.sides).all(|(side, most)| side <= most);
        if fits {
            std::array::from_fn(|at| if at < used { global[at] } else { 0 })
        } else {
            [0; 3]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_launches_are_one_group() {
        let gpu = OneGroup {
            most: 128,
            sides: [1024, 1024, 64],
        };
        assert_eq!(gpu.local(1, &[1, 0, 0]), [1, 0, 0]);
        assert_eq!(gpu.local(2, &[2, 64, 7]), [2, 64, 0]);
        assert_eq!(gpu.local(3, &[1, 2, 64]), [1, 2, 64]);
        // More than a unit runs at a time, than a dimension's limit, than fits a number; and zero.
        assert_eq!(gpu.local(1, &[129, 0, 0]), [0; 3]);
        assert_eq!(gpu.local(3, &[1, 1, 65]), [0; 3]);
        assert_eq!(gpu.local(2, &[usize::MAX, 2, 0]), [0; 3]);
        assert_eq!(gpu.local(2, &[16, 0, 0]), [0; 3]);
        assert_eq!(OneGroup::default().local(1, &[1, 0, 0]), [0; 3]);
    }
}
