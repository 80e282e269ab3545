//! Running one launch in slices: two of them are with the driver at a time, on a GPU in two of its
//! queues, so that the second one's groups fill the device when the first one has few left. The
//! device is given up between two slices if another tenant waits for it.
//!
//! The launch ends with its last slice. Until then its event is pending, and later commands of the
//! queue are not submitted. A session that stops, stops after the launch.

use super::text::Geometry;
use super::{Division, Slices};
use crate::driver::{Code, Enqueue, Event};
use crate::session::base::Base;
use crate::session::submit::{Lane, Outcome, SubmitOptions};
use baltra_opencl::*;
use baltra_wire::{Id, Operation};
use std::collections::VecDeque;
use std::time::Instant;

/// Slices that the driver has at a time, so that the device does not wait for the next one.
const RUNNING_MAX: usize = 2;

/// A slice that the driver has.
struct Running {
    event: Event,
    items: u64,
    /// Before it was enqueued, as in [`Base::profiled_ns`].
    before_ns: u64,
}

/// The division of the operation, if it is a launch that is expected to be long. `None`: it is
/// launched whole. The kernel for its slices may have to be made first ([`must_rewrite`]).
pub fn division(lane: &mut Lane, operation: &Operation) -> Option<Division> {
    let (kernel, geometry) = launch(operation)?;
    let Lane {
        kernels,
        session,
        context,
        ..
    } = lane;
    kernels.division(session, context, kernel, geometry)
}

/// Whether a kernel has to be made for the slices, which [`rewrite`] does.
pub fn must_rewrite(lane: &Lane, operation: &Operation, division: &Division) -> bool {
    division.is_rewritten() && is_rewritten(lane, operation, division).is_none()
}

/// Makes the kernel for the slices, which may take as long as a build: the device is not to be held
/// meanwhile.
pub fn rewrite(lane: &mut Lane, operation: &Operation, division: &Division) {
    if let Some((kernel, _)) = launch(operation) {
        lane.kernels
            .rewrite(&lane.context, kernel, &division.geometry);
    }
}

/// Whether the launch can run in slices: the kernel for them, if one is needed, could be made.
pub fn is_possible(lane: &Lane, operation: &Operation, division: &Division) -> bool {
    !division.is_rewritten() || is_rewritten(lane, operation, division) == Some(true)
}

fn is_rewritten(lane: &Lane, operation: &Operation, division: &Division) -> Option<bool> {
    let (kernel, _) = launch(operation)?;
    lane.kernels.is_rewritten(kernel, &division.geometry)
}

/// Runs a launch for which the device is held; no command of the queue is with the driver. Returns
/// its status and its event's times.
pub fn run(
    base: &mut Base,
    lane: &mut Lane,
    operation: &Operation,
    mut division: Division,
    waits: &[cl_event],
) -> (Code, [u64; 4]) {
    let mut running = VecDeque::new();
    let (mut status, mut times): (Code, Option<[u64; 4]>) = (CL_COMPLETE, None);
    // Slices in two queues are not ordered: each waits for what the launch waits for, until one
    // has run.
    let (mut waits, mut since) = (waits, Instant::now());
    loop {
        if base.session.is_closed() {
            status = CL_DEVICE_NOT_AVAILABLE;
        }
        while status >= 0
            && running.len() < RUNNING_MAX
            && !(base.is_wanted_back() || lane.is_wanted())
        {
            let before_ns = base.profiled_ns();
            match launch_slice(lane, operation, &mut division, waits, before_ns) {
                Ok(Some(slice)) => {
                    if running.is_empty() {
                        since = Instant::now();
                    }
                    running.push_back(slice);
                }
                Ok(None) => break,
                Err(code) => status = code,
            }
        }
        if let Some(Running {
            event,
            items,
            before_ns,
        }) = running.pop_front()
        {
            status = status.min(event.wait());
            waits = &[];
            let took = since.elapsed();
            since = Instant::now();
            base.advance();
            if let Some((kernel, _)) = launch(operation) {
                if let Some(pace) = lane.kernels.pace(kernel) {
                    pace.learn(items, took);
                }
            }
            let [queued, submitted, started, ended] = base.times_of(&event, before_ns);
            let whole = times.get_or_insert([queued, submitted, started, ended]);
            whole[3] = whole[3].max(ended);
        } else if status < 0 || division.is_done() {
            break;
        } else {
            lane.end_task();
            base.end_task(&mut lane.moved);
            if !base.resume_task() {
                status = CL_DEVICE_NOT_AVAILABLE;
            }
        }
    }
    lane.second.leave();
    (status, times.unwrap_or_default())
}

/// Hands the next slice to the driver; `None`: there is none now.
fn launch_slice(
    lane: &mut Lane,
    operation: &Operation,
    division: &mut Division,
    waits: &[cl_event],
    before_ns: u64,
) -> Result<Option<Running>, Code> {
    let mut slice = operation.clone();
    let Operation::Launch {
        kernel,
        ref mut offset,
        ref mut global,
        ..
    } = slice
    else {
        return Err(CL_INVALID_OPERATION);
    };
    let pace = lane
        .kernels
        .pace(kernel)
        .map_or_else(Default::default, |pace| *pace);
    let Some(part) = division.next(pace) else {
        return Ok(None);
    };
    (*offset, *global) = (part.offset, part.global);
    let slice_of = division.is_rewritten().then_some(division.geometry);
    lane.kernels.set_slice_of(slice_of);
    let outcome = lane.submit(
        &slice,
        SubmitOptions {
            enqueue: Enqueue { waits, event: true },
            ordered: true,
            idle: false,
            last: false,
        },
    );
    lane.kernels.set_slice_of(None);
    lane.flush();
    let slices = &lane.session.shared.slices;
    if slices.as_ref().is_some_and(Slices::overlap) {
        lane.second.turn(&lane.queue);
    }
    match outcome? {
        Outcome::Driver(Some(event)) => Ok(Some(Running {
            event,
            items: part.items,
            before_ns,
        })),
        _ => Err(CL_INVALID_OPERATION),
    }
}

fn launch(operation: &Operation) -> Option<(Id, Geometry)> {
    let Operation::Launch {
        kernel,
        dimensions: dimensions @ 1..=3,
        offset,
        global,
        local,
        ..
    } = *operation
    else {
        return None;
    };
    let geometry = Geometry {
        dimensions: dimensions.into(),
        offset,
        global,
        local,
        axis: 0,
    };
    Some((kernel, geometry))
}
