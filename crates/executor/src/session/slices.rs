//! Long launches in slices: another tenant that waits gets the device after a slice, not after the
//! whole launch.
//!
//! A slice is a launch of some of the work-groups, along the slowest dimension that has enough of
//! them ([`Division`]). The duration of a launch is learned from its slices ([`Pace`]); launches
//! that are expected to be short stay whole. The program's text ([`text`]) decides which kernels
//! may be divided, and which properties of the whole launch their slices have to see.

pub mod launching;
pub mod text;

use crate::driver::{self, Device};
use baltra_opencl::*;
use std::time::Duration;
use text::{Geometry, Text};

/// Work-items that a compute unit of a GPU has at a time, at most (NVIDIA's since Volta: 64 warps).
const ITEMS_PER_UNIT: u64 = 2048;
/// The length of the first slice of a launch of unknown duration, as a multiple of what occupies
/// the device.
const FIRST: u64 = 4;
/// Multiple of work-items along the divided dimension if the driver chooses the group's size, with
/// one dimension and with more: so that the slices leave it a good choice.
const MULTIPLE: [u64; 2] = [256, 8];

/// The device's options for slices.
#[derive(Clone, Copy, Debug)]
pub struct Slices {
    /// Maximum time for which a waiting tenant waits for the running slices, nanoseconds.
    length_ns: f64,
    compute_units: u64,
    is_gpu: bool,
}

impl Slices {
    /// Of slices of a length; zero: launches stay whole.
    pub fn new(length: Duration, device: Device) -> Option<Slices> {
        (!length.is_zero()).then(|| Slices {
            length_ns: length.as_nanos() as f64,
            compute_units: device.number(CL_DEVICE_MAX_COMPUTE_UNITS as u32).max(1),
            is_gpu: device.is_gpu(),
        })
    }

    /// Whether the slices of a launch overlap in two queues. On a processor nothing is gained, and
    /// PoCL 3.1 aborts if two launches of a kernel end at the same time (`pocl_release_dlhandle_cache`).
    pub fn overlap(&self) -> bool {
        self.is_gpu
    }

    /// Whether a launch of this duration is divided.
    fn is_long(&self, ns: f64) -> bool {
        ns > 1.5 * self.length_ns
    }

    /// Whether a command took longer than any that stays whole should.
    pub fn is_unexpected(&self, took: Duration) -> bool {
        took.as_nanos() as f64 > 3.0 * self.length_ns
    }
}

/// A GPU driver's queue for every second slice: the groups of a slice fill the device when the slice
/// before, in the other queue, has few left.
#[derive(Default)]
pub struct SecondQueue {
    queue: Option<driver::Queue>,
    is_turn: bool,
}

impl SecondQueue {
    /// The queue whose turn it is.
    pub fn or<'a>(&'a self, main: &'a driver::Queue) -> &'a driver::Queue {
        self.queue.as_ref().filter(|_| self.is_turn).unwrap_or(main)
    }

    /// Changes turns; the turn of a queue that the driver does not make is the main one's.
    pub fn turn(&mut self, main: &driver::Queue) {
        if self.queue.is_none() {
            self.queue = main.sibling().ok();
        }
        self.is_turn = !self.is_turn;
    }

    /// Leaves the turn to the main one.
    pub fn leave(&mut self) {
        self.is_turn = false;
    }

    /// Waits for its commands; an error shows again in the wait for each.
    pub fn finish(&self) {
        let _ = self.queue.as_ref().map(driver::Queue::finish);
    }
}

/// The measured speed of a kernel: nanoseconds for a work-item, among others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace(Option<f64>);

impl Pace {
    /// Learns that `items` took so long.
    pub fn learn(&mut self, items: u64, took: Duration) {
        let now = took.as_nanos() as f64 / items.max(1) as f64;
        self.0 = Some(self.0.map_or(now, |before| (before + now) / 2.0));
    }
}

/// A part of a launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slice {
    /// Its global offset.
    pub offset: [u64; 3],
    /// Its global size.
    pub global: [u64; 3],
    /// Its work-items, nearly.
    pub items: u64,
}

/// A launch that is run in slices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Division {
    /// The whole.
    pub geometry: Geometry,
    /// The program reads what only the whole launch has.
    reads_launch: bool,
    slice_ns: f64,
    /// Work-items along the divided dimension, in `units` of `unit`.
    unit: u64,
    units: u64,
    items_per_unit: u64,
    /// Units that occupy the device.
    least: u64,
    done: u64,
    /// It is launched at once, to learn how long it takes.
    is_trial: bool,
}

impl Division {
    /// The division of a launch; `None`: it is launched whole, and nothing is learned from it.
    pub fn of(slices: &Slices, text: Text, pace: Pace, mut geometry: Geometry) -> Option<Division> {
        let Geometry {
            dimensions,
            offset,
            global,
            local,
            ..
        } = geometry;
        let is_chosen = local[..dimensions].contains(&0);
        let reads_groups = text.reads_local || text.reads_groups;
        if !text.divides || is_chosen && reads_groups {
            return None;
        }
        let items = global[..dimensions]
            .iter()
            .try_fold(1u64, |all, side| all.checked_mul(*side))
            .filter(|items| *items > 0)?;
        // A launch that the driver refuses has to be refused as a whole.
        let ends = offset.iter().zip(global).take(dimensions);
        if ends
            .clone()
            .any(|(at, size)| at.checked_add(size).is_none())
        {
            return None;
        }
        if let Some(ns_per_item) = pace.0 {
            if !slices.is_long(ns_per_item * items as f64) {
                return None;
            }
        }
        for axis in (0..dimensions).rev() {
            let unit = match local[axis] {
                0 => MULTIPLE[usize::from(dimensions > 1)],
                side => side,
            };
            let is_whole = local[axis] == 0 || global[axis] % unit == 0;
            let (units, items_per_unit) = (global[axis] / unit, items / global[axis] * unit);
            let least = if slices.is_gpu {
                (slices.compute_units * ITEMS_PER_UNIT).div_ceil(items_per_unit)
            } else {
                slices.compute_units
            };
            if is_whole && units >= 2 * least {
                geometry.axis = axis;
                return Some(Division {
                    geometry,
                    reads_launch: text.reads_launch,
                    slice_ns: slices.length_ns / 2.0,
                    unit,
                    units,
                    items_per_unit,
                    least,
                    done: 0,
                    is_trial: text.reads_launch && pace.0.is_none(),
                });
            }
        }
        None
    }

    /// Whether its slices need a kernel that is made for it.
    pub fn is_rewritten(&self) -> bool {
        self.reads_launch && !self.is_trial
    }

    /// Whether all slices have been taken.
    pub fn is_done(&self) -> bool {
        self.done == self.units
    }

    /// The next slice; `None`: there is none left, or one has to be waited for before its size is
    /// known.
    pub fn next(&mut self, pace: Pace) -> Option<Slice> {
        let rest = self.units - self.done;
        if rest == 0 {
            return None;
        }
        let wanted = match pace.0 {
            _ if self.is_trial => rest,
            Some(ns_per_item) => {
                let ns_per_unit = ns_per_item * self.items_per_unit as f64;
                // Saturates where the pace is zero.
                ((self.slice_ns / ns_per_unit) as u64).max(self.least)
            }
            None if self.done > 0 => return None,
            None => self.least * FIRST,
        };
        // No slice is smaller than what occupies the device.
        let count = match wanted {
            wanted if wanted.saturating_add(self.least) > rest => rest,
            wanted => wanted,
        };
        let (mut offset, mut global) = (self.geometry.offset, self.geometry.global);
        let (axis, from) = (self.geometry.axis, self.done * self.unit);
        offset[axis] += from;
        self.done += count;
        // The last one has the remainder.
        global[axis] = if self.done == self.units {
            global[axis] - from
        } else {
            count * self.unit
        };
        Some(Slice {
            offset,
            global,
            items: count * self.items_per_unit,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU: Slices = Slices {
        length_ns: 2e6,
        compute_units: 2,
        is_gpu: false,
    };
    const PLAIN: Text = Text {
        divides: true,
        reads_launch: false,
        reads_groups: false,
        reads_local: false,
    };

    fn geometry(dimensions: usize, offset: u64, global: [u64; 3], local: [u64; 3]) -> Geometry {
        Geometry {
            dimensions,
            offset: [offset; 3],
            global,
            local,
            axis: 0,
        }
    }

    fn known(ns_per_item: f64) -> Pace {
        Pace(Some(ns_per_item))
    }

    #[test]
    fn slices_cover_the_launch_once_in_multiples_of_a_group() {
        let mut random = 1u64;
        let mut below = |n: u64| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
            (random >> 33) % n
        };
        for _ in 0..2000 {
            let dimensions = 1 + below(3) as usize;
            let local = [below(9), below(9), below(9)];
            let global = local.map(|side| match side {
                0 => 1 + below(5000),
                side => side * (1 + below(700)),
            });
            let launch = geometry(dimensions, below(100), global, local);
            let pace = match below(4) {
                0 => Pace::default(),
                _ => known(10f64.powi(below(9) as i32)),
            };
            let slices = Slices {
                is_gpu: below(2) == 0,
                ..CPU
            };
            let Some(mut division) = Division::of(&slices, PLAIN, pace, launch) else {
                continue;
            };
            let axis = division.geometry.axis;
            let mut at = launch.offset[axis];
            let mut parts = 0;
            while !division.is_done() {
                let pace = if parts == 0 { pace } else { known(1e3) };
                let Slice {
                    offset,
                    global: size,
                    items,
                } = division.next(pace).unwrap();
                assert_eq!(offset[axis], at);
                assert!(items > 0);
                at += size[axis];
                for other in (0..3).filter(|other| *other != axis) {
                    assert_eq!(offset[other], launch.offset[other]);
                    assert_eq!(size[other], launch.global[other]);
                }
                if launch.local[axis] > 0 {
                    assert_eq!(size[axis] % launch.local[axis], 0);
                }
                parts += 1;
            }
            assert_eq!(at, launch.offset[axis] + launch.global[axis]);
            assert_eq!(division.next(pace), None);
        }
    }

    #[test]
    fn short_launches_and_those_that_cannot_be_divided_stay_whole() {
        let launch = geometry(1, 0, [1 << 20, 0, 0], [64, 0, 0]);
        let of = |text, pace, launch| Division::of(&CPU, text, pace, launch);
        assert!(of(PLAIN, known(1.0), launch).is_none(), "1 ms");
        assert!(of(PLAIN, known(10.0), launch).is_some(), "10 ms");
        assert!(of(Text::default(), known(10.0), launch).is_none());
        // The driver chooses the groups, and the kernel sees them.
        let free = geometry(1, 0, [1 << 20, 0, 0], [0; 3]);
        assert!(of(PLAIN, known(10.0), free).is_some());
        let local = Text {
            reads_local: true,
            ..PLAIN
        };
        assert!(of(local, known(10.0), free).is_none());
        assert!(of(local, known(10.0), launch).is_some());
        // Launches that the driver has to refuse, and those with too few groups.
        for refused in [
            geometry(1, u64::MAX, [1 << 20, 0, 0], [64, 0, 0]),
            geometry(1, 0, [100, 0, 0], [64, 0, 0]),
            geometry(3, 0, [u64::MAX, u64::MAX, 2], [1, 1, 1]),
            geometry(2, 0, [1 << 20, 0, 0], [64, 1, 0]),
            geometry(1, 0, [64, 0, 0], [64, 0, 0]),
        ] {
            assert!(of(PLAIN, Pace::default(), refused).is_none(), "{refused:?}");
        }
    }

    #[test]
    fn the_first_slice_is_small_and_the_next_ones_take_half_the_length() {
        let launch = geometry(1, 0, [1 << 20, 0, 0], [64, 0, 0]);
        let mut pace = Pace::default();
        let mut division = Division::of(&CPU, PLAIN, pace, launch).unwrap();
        let first = division.next(pace).unwrap().items;
        assert_eq!(first, 2 * 4 * 64);
        assert_eq!(division.next(pace), None, "the first one is waited for");
        pace.learn(first, Duration::from_nanos(first * 100));
        let second = division.next(pace).unwrap().items;
        assert_eq!(second, 10_000 / 64 * 64);
        // Sizes of the launch have to be rewritten: the first one is whole.
        let text = Text {
            reads_launch: true,
            ..PLAIN
        };
        let mut trial = Division::of(&CPU, text, Pace::default(), launch).unwrap();
        assert_eq!(trial.next(Pace::default()).unwrap().items, 1 << 20);
        assert!(trial.is_done());
    }
}
