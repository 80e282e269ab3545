//! Launches: the hot path, taken a million times a second.
//!
//! The code does not allocate, read the clock or take a lock that other kernels or queues use,
//! unless the context spans several sessions.

use crate::core::event::{Event, Waits};
use crate::core::kernel::{Args, Kernel, Replica};
use crate::core::memory::Memory;
use crate::core::object::{get, Object};
use crate::core::queue::{Access, Queue, Use};
use baltra_opencl::*;
use baltra_wire::{KernelArg, Operation};

/// The index space of a launch, checked against the kernel and the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// 1 to 3.
    pub dimensions: u8,
    /// First global id.
    pub offset: [u64; 3],
    /// Work-items.
    pub global: [u64; 3],
    /// Work-items in a group; zeros: the driver chooses.
    pub local: [u64; 3],
    /// The launch violates the specification, or exceeds the limits that the driver reports for the
    /// kernel and the device. Drivers run some of these launches anyway (NVIDIA's reports 256
    /// work-items where 1,024 run).
    pub risk: Option<RefusalRisk>,
}

/// The part of a launch that a driver may refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalRisk {
    /// The group. A driver that has run a kernel with it runs it again.
    Group(Group),
    /// The offset, or a lack of work-items.
    Other,
}

/// The properties of a work-group by which drivers refuse launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// As [`Space::local`].
    local: [u64; 3],
    /// Whether the group does not divide the index space.
    uneven: bool,
}

/// Limits of an index space.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// `CL_KERNEL_COMPILE_WORK_GROUP_SIZE`; zeros: not specified.
    pub group_demanded: [usize; 3],
    /// Maximum work-items in a group: the lower of the kernel's and the device's limits.
    pub group_max: usize,
    /// `CL_DEVICE_MAX_WORK_ITEM_SIZES`
    pub items_max: [usize; 3],
    /// `CL_DEVICE_ADDRESS_BITS`
    pub address_bits: u32,
}

impl Space {
    /// Refuses launches that no driver can run. Where drivers differ, [`Space::risk`] is set and
    /// the driver decides.
    pub fn new(
        offset: Option<&[usize]>,
        global: &[usize],
        local: Option<&[usize]>,
        bounds: &Bounds,
    ) -> Result<Space, i32> {
        let dimensions = global.len();
        let mut space = Space {
            dimensions: dimensions as u8,
            offset: [0; 3],
            global: [1; 3],
            local: [0; 3],
            risk: None,
        };
        let last = u64::MAX >> (64 - bounds.address_bits.clamp(1, 64));
        for axis in 0..dimensions {
            // "CL_INVALID_GLOBAL_WORK_SIZE if … any of the values specified in global_work_size …
            // exceed the maximum value representable by size_t on the device."
            space.global[axis] = global[axis] as u64;
            if space.global[axis] > last {
                return Err(CL_INVALID_GLOBAL_WORK_SIZE);
            }
            // "CL_INVALID_GLOBAL_WORK_SIZE if … any of the values specified in global_work_size …
            // are 0" before OpenCL 2.1; later there is nothing to run. Drivers differ.
            if space.global[axis] == 0 {
                space.risk = Some(RefusalRisk::Other);
            }
            // "CL_INVALID_GLOBAL_OFFSET if the value specified in global_work_size + the
            // corresponding values in global_work_offset for any dimensions is greater than the
            // maximum value representable by size_t on the device." Not all drivers look.
            space.offset[axis] = offset.map_or(0, |o| o[axis]) as u64;
            let end = space.offset[axis].checked_add(space.global[axis]);
            if end.is_none_or(|end| end > last) {
                space.risk = Some(RefusalRisk::Other);
            }
        }
        // Drivers treat a group of zeros as unspecified, or crash. The specification does not define it.
        let local = local.filter(|local| local.iter().any(|&n| n != 0));
        if let Some(local) = local {
            // No driver can run a group without work-items.
            if local.contains(&0) {
                return Err(CL_INVALID_WORK_GROUP_SIZE);
            }
            space.local = [1; 3];
            for (axis, &n) in local.iter().enumerate() {
                space.local[axis] = n as u64;
            }
        }
        if space.risk.is_none() {
            space.risk = space.group(bounds).map(RefusalRisk::Group);
        }
        Ok(space)
    }

    /// The group, where drivers may refuse it.
    fn group(&self, bounds: &Bounds) -> Option<Group> {
        let is_given = self.local != [0; 3];
        let demanded = bounds.group_demanded.map(|n| n.max(1) as u64);
        let demands = bounds.group_demanded != [0; 3];
        // "If local_work_size is NULL and the kernel … is declared with reqd_work_group_size, that
        // is the work-group size"; before OpenCL 2.0, and in PoCL today, it has to be given.
        let local = match (is_given, demands) {
            (true, _) => self.local,
            (false, true) => demanded,
            (false, false) => return None,
        };
        // "CL_INVALID_WORK_GROUP_SIZE if … the total number of work-items in the work-group … is
        // greater than the value specified by CL_KERNEL_WORK_GROUP_SIZE" or the device's.
        let items = local.iter().fold(1, |all: u64, &n| all.saturating_mul(n));
        let mut large = items > bounds.group_max as u64;
        let mut uneven = false;
        for (axis, &n) in local.iter().enumerate() {
            // "CL_INVALID_WORK_ITEM_SIZE if the number of work-items specified in any of
            // local_work_size[0] … is greater than the corresponding values specified by
            // CL_DEVICE_MAX_WORK_ITEM_SIZES."
            large |= n > bounds.items_max[axis] as u64;
            // "CL_INVALID_WORK_GROUP_SIZE if … is not consistent with … or the global size is not
            // evenly divisible" where groups must be even, which depends on the device, on the
            // program's language, and on the driver.
            uneven |= !self.global[axis].is_multiple_of(n);
        }
        // "CL_INVALID_WORK_GROUP_SIZE if local_work_size is specified and … does not match the
        // required work-group size for kernel in the program source."
        let other = demands && (!is_given || local != demanded);
        (large || uneven || other).then_some(Group {
            local: self.local,
            uneven,
        })
    }
}

impl Kernel {
    /// The kernel in the queue's session; an error if it has none there.
    pub fn at_queue(&self, queue: &Queue) -> Result<(usize, &Replica), i32> {
        // "CL_INVALID_PROGRAM_EXECUTABLE if there is no successfully built program executable
        // available for device associated with command_queue."
        let found = self.replica(queue.member);
        let lost = || queue.here().client.is_lost();
        found.ok_or_else(|| lost().unwrap_or(CL_INVALID_PROGRAM_EXECUTABLE))
    }

    /// Enqueues a launch.
    pub fn launch(
        &self,
        queue: &Object<Queue>,
        command: i32,
        space: &Space,
        waits: &Waits<'_>,
        event_ret: *mut cl_event,
    ) -> Result<(), i32> {
        let (at, replica) = self.at_queue(queue)?;
        if space.risk.is_some_and(|risk| !replica.has_run(risk)) {
            return self.launch_and_see(queue, command, space, waits, event_ret);
        }
        let mut args = self.args();
        // "CL_INVALID_KERNEL_ARGS if all the kernel arguments have not been set."
        if !args.are_late() {
            let operation = operation(&args, at, replica, self.kinds.len(), space)?;
            return queue.enqueue(command, waits, event_ret, &[], &operation);
        }
        let memories = args.settle(at, queue.member)?;
        let uses: Vec<Use<'_>> = memories
            .iter()
            .map(|(memory, arg)| Use {
                memory,
                access: access(memory, &replica.description.args[*arg]),
            })
            .collect();
        let operation = operation(&args, at, replica, self.kinds.len(), space)?;
        queue.enqueue(command, waits, event_ret, &uses, &operation)
    }
}

/// The kernel's access to an argument's memory object, by its declaration: a pointer to
/// constant memory or to `const`, or an image that is only read, leaves the replicas of other
/// sessions valid.
fn access(memory: &Memory, arg: &KernelArg) -> Access {
    let reads = memory.flags & CL_MEM_READ_ONLY as u64 != 0
        || arg.address as i32 == CL_KERNEL_ARG_ADDRESS_CONSTANT
        || arg.access as i32 == CL_KERNEL_ARG_ACCESS_READ_ONLY
        || arg.qualifier & CL_KERNEL_ARG_TYPE_CONST as u64 != 0;
    if reads {
        Access::Read
    } else {
        Access::ReadWrite
    }
}

impl Kernel {
    /// A launch that the driver may refuse and has not run before: waits for the driver's result if
    /// that does not depend on the application, so that this call returns the error, as it does
    /// natively. Otherwise the event has it, or `clFinish`.
    fn launch_and_see(
        &self,
        queue: &Object<Queue>,
        command: i32,
        space: &Space,
        waits: &Waits<'_>,
        event_ret: *mut cl_event,
    ) -> Result<(), i32> {
        let certain = Space {
            risk: None,
            ..*space
        };
        if !queue.runs_by_itself() {
            return self.launch(queue, command, &certain, waits, event_ret);
        }
        let mut event: cl_event = std::ptr::null_mut();
        self.launch(queue, command, &certain, waits, &mut event)?;
        // SAFETY: the launch has succeeded and has given this event, with one reference.
        let given = unsafe { get::<Event>(event) }?.share();
        given.flush();
        let status = given.wait();
        if status >= 0 {
            if let Some(RefusalRisk::Group(group)) = space.risk {
                let (_, replica) = self.at_queue(queue)?;
                replica.remember(group);
            }
            if !event_ret.is_null() {
                // SAFETY: not null, and the application's place for an event, as its caller has
                // promised to the entry point. The reference goes with it.
                unsafe { event_ret.write(event) };
                return Ok(());
            }
        }
        // SAFETY: the handle is the one from above.
        unsafe { Object::<Event>::release(event.cast()) }?;
        match status {
            failed if failed < 0 => Err(failed),
            _ => Ok(()),
        }
    }
}

fn operation<'a>(
    args: &'a Args,
    at: usize,
    replica: &Replica,
    count: usize,
    space: &Space,
) -> Result<Operation<'a>, i32> {
    Ok(Operation::Launch {
        kernel: replica.id,
        dimensions: space.dimensions,
        offset: space.offset,
        global: space.global,
        local: space.local,
        arg_count: count as u32,
        args: args.encoded(at)?,
        svm_indirect: &args.svm_indirect,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        group_demanded: [0; 3],
        group_max: 256,
        items_max: [256, 256, 64],
        address_bits: 64,
    };

    fn with_local(global: &[usize], local: &[usize], bounds: &Bounds) -> Result<Space, i32> {
        Space::new(None, global, Some(local), bounds)
    }

    #[test]
    fn a_space_without_groups_leaves_them_to_the_driver() {
        let space = Space::new(Some(&[8]), &[100], None, &BOUNDS).unwrap();
        assert_eq!(space.global, [100, 1, 1]);
        assert_eq!(space.offset, [8, 0, 0]);
        assert_eq!(space.local, [0; 3]);
    }

    fn doubtful(global: &[usize], local: Option<&[usize]>, bounds: &Bounds) -> bool {
        Space::new(None, global, local, bounds)
            .unwrap()
            .risk
            .is_some()
    }

    #[test]
    fn what_goes_beyond_the_drivers_description_is_the_drivers_to_refuse() {
        let doubtful = |global: &[usize], local: &[usize]| doubtful(global, Some(local), &BOUNDS);
        assert!(!doubtful(&[64, 64], &[16, 16]));
        assert!(doubtful(&[64, 64], &[32, 16]));
        assert!(doubtful(&[64], &[48]));
        assert!(doubtful(&[1, 1, 128], &[1, 1, 128]));
    }

    #[test]
    fn a_group_that_has_run_evenly_may_still_be_refused_unevenly() {
        let risk = |global| with_local(&[global], &[512], &BOUNDS).unwrap().risk;
        assert_eq!(risk(512), risk(1024));
        assert_ne!(risk(1024), risk(1000));
    }

    #[test]
    fn a_group_of_nothing_is_refused_and_zeros_alone_are_none_given() {
        let empty = with_local(&[64, 64], &[8, 0], &BOUNDS);
        assert_eq!(empty, Err(CL_INVALID_WORK_GROUP_SIZE));
        assert_eq!(with_local(&[64], &[0], &BOUNDS).unwrap().local, [0; 3]);
    }

    #[test]
    fn a_demanded_group_that_is_not_given_is_the_drivers_to_take() {
        let bounds = Bounds {
            group_demanded: [8, 4, 1],
            ..BOUNDS
        };
        let space = Space::new(None, &[16, 8], None, &bounds).unwrap();
        assert_eq!(space.local, [0; 3]);
        assert!(space.risk.is_some());
        assert!(!doubtful(&[16, 8], Some(&[8, 4]), &bounds));
        assert!(doubtful(&[16, 8], Some(&[4, 8]), &bounds));
        // In one dimension the others have one work-item, where four are demanded.
        assert!(doubtful(&[16], Some(&[8]), &bounds));
    }

    #[test]
    fn a_launch_of_no_work_items_is_the_drivers_to_take() {
        assert!(doubtful(&[8, 0], None, &BOUNDS));
        assert!(doubtful(&[0], Some(&[4]), &BOUNDS));
    }

    #[test]
    fn ids_stay_inside_the_devices_addresses() {
        let bounds = Bounds {
            address_bits: 32,
            ..BOUNDS
        };
        let space = |offset, global| Space::new(Some(&[offset]), &[global], None, &bounds);
        assert_eq!(space(0, 1 << 33), Err(CL_INVALID_GLOBAL_WORK_SIZE));
        let risk = |offset, global, bounds: &Bounds| {
            let space = Space::new(Some(&[offset]), &[global], None, bounds);
            space.unwrap().risk
        };
        assert_eq!(risk(8, 2, &bounds), None);
        assert_eq!(
            risk(u32::MAX as usize, 2, &bounds),
            Some(RefusalRisk::Other)
        );
        assert_eq!(risk(usize::MAX, 2, &BOUNDS), Some(RefusalRisk::Other));
    }
}
