//! Running one launch in slices ([`crate::session::slices`]): two of them are with the driver at a
//! time, on a GPU in two of its queues, so that the second one's groups fill the device when the first
//! one has few left. The device is given up between two slices if another tenant waits for it.
//!
//! The launch ends with its last slice. Until then its event is pending, and later commands of the
//! queue are not taken. A session that stops, stops after the launch.

use super::{InOrder, Lane};
use crate::driver::{Code, Enqueue, Event};
use crate::session::slices::text::Geometry;
use crate::session::slices::{Division, Slices};
use crate::session::submit::{How, Outcome};
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
}

impl InOrder {
    /// How to divide the operation, if it is a launch that is expected to be long. Makes the kernel
    /// for its slices if it needs one; the device is not held meanwhile.
    pub(super) fn division(&mut self, operation: &Operation) -> Option<Division> {
        let (kernel, geometry) = launch(operation)?;
        let division = self.lane_division(kernel, geometry)?;
        if !division.is_rewritten() {
            return Some(division);
        }
        let made = |own: &InOrder| {
            let lane = own.lane.as_ref().ok()?;
            lane.kernels.is_rewritten(kernel, &division.geometry)
        };
        if made(self).is_none() {
            self.flush();
            self.drain_before(1);
            self.end_task();
            if let Ok(Lane {
                kernels, context, ..
            }) = &mut self.lane
            {
                kernels.rewrite(context, kernel, &division.geometry);
            }
        }
        made(self).unwrap_or(false).then_some(division)
    }

    fn lane_division(&mut self, kernel: Id, geometry: Geometry) -> Option<Division> {
        let lane = self.lane.as_mut().ok()?;
        let Lane {
            kernels,
            session,
            context,
            ..
        } = lane;
        kernels.division(session, context, kernel, geometry)
    }

    /// Runs a launch; everything before it is complete. Returns its status and its event's times.
    pub(super) fn launch_in_slices(
        &mut self,
        operation: &Operation,
        mut division: Division,
        waits: &[cl_event],
    ) -> (Code, [u64; 4]) {
        let mut running = VecDeque::new();
        let (mut status, mut times): (Code, Option<[u64; 4]>) = (CL_COMPLETE, None);
        let (mut waits, mut since) = (waits, Instant::now());
        loop {
            if self.base.session.is_closed() {
                status = CL_DEVICE_NOT_AVAILABLE;
            }
            while status >= 0 && running.len() < RUNNING_MAX && !self.is_wanted() {
                match self.launch_slice(operation, &mut division, waits) {
                    Ok(Some(slice)) => {
                        if running.is_empty() {
                            since = Instant::now();
                        }
                        running.push_back(slice);
                        waits = &[];
                    }
                    Ok(None) => break,
                    Err(code) => status = code,
                }
            }
            if let Some(Running { event, items }) = running.pop_front() {
                status = status.min(event.wait());
                let took = since.elapsed();
                since = Instant::now();
                self.base.advance();
                if let (Some((kernel, _)), Ok(lane)) = (launch(operation), &mut self.lane) {
                    if let Some(pace) = lane.kernels.pace(kernel) {
                        pace.learn(items, took);
                    }
                }
                let [queued, submitted, started, ended] = self.base.times_of(&event);
                let whole = times.get_or_insert([queued, submitted, started, ended]);
                whole[3] = whole[3].max(ended);
            } else if status < 0 || division.is_done() {
                break;
            } else {
                self.end_task();
                if !self.base.resume_task() {
                    status = CL_DEVICE_NOT_AVAILABLE;
                }
            }
        }
        if let Ok(lane) = &mut self.lane {
            lane.second.leave();
        }
        (status, times.unwrap_or_default())
    }

    /// Whether others wait until no command is in flight.
    fn is_wanted(&self) -> bool {
        self.base.is_wanted_back() || self.lane.as_ref().is_ok_and(Lane::is_wanted)
    }

    /// Hands the next slice to the driver; `None`: there is none now.
    fn launch_slice(
        &mut self,
        operation: &Operation,
        division: &mut Division,
        waits: &[cl_event],
    ) -> Result<Option<Running>, Code> {
        let lane = self.lane.as_mut().map_err(|code| *code)?;
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
            How {
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
            })),
            _ => Err(CL_INVALID_OPERATION),
        }
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
