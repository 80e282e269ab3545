//! Pools: several devices are presented as one, and queues are distributed over them by load.

/// A pool's device at the time when the next queue is created.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueLoad {
    /// Utilization, percent.
    pub utilization: f64,
    /// Number of this client's queues on it.
    pub queues: u32,
}

/// The device of a pool for the client's next queue: the one with the fewest of its queues relative
/// to its free time, so that a half-free device gets half as many queues as an idle one. Ties go to
/// the first. `None` only for an empty pool.
pub fn spread(devices: &[QueueLoad]) -> Option<usize> {
    let crowding = |d: &QueueLoad| {
        let used = if d.utilization.is_finite() {
            d.utilization.clamp(0.0, 100.0)
        } else {
            0.0
        };
        // A fully used device counts as 1 % free: it gets a queue once the others have many.
        (f64::from(d.queues) + 1.0) / (100.0 - used).max(1.0)
    };
    let of = |n: &usize| crowding(&devices[*n]);
    (0..devices.len()).min_by(|a, b| of(a).total_cmp(&of(b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fill(utilizations: &[f64], queues: u32) -> Vec<u32> {
        let mut devices: Vec<QueueLoad> = utilizations
            .iter()
            .map(|u| QueueLoad {
                utilization: *u,
                queues: 0,
            })
            .collect();
        for _ in 0..queues {
            let n = spread(&devices).unwrap();
            devices[n].queues += 1;
        }
        devices.iter().map(|d| d.queues).collect()
    }

    #[test]
    fn queues_follow_free_time() {
        assert_eq!(fill(&[0.0, 0.0], 4), [2, 2]);
        assert_eq!(fill(&[0.0, 50.0], 6), [4, 2]);
        assert_eq!(fill(&[100.0, 0.0], 3), [0, 3]);
        assert_eq!(fill(&[f64::NAN], 2), [2]);
        assert_eq!(spread(&[]), None);
    }

    proptest! {
        #[test]
        fn equal_devices_differ_by_at_most_one(n in 1usize..8, queues in 0u32..64, u in 0.0..100.0) {
            let filled = fill(&vec![u; n], queues);
            let (least, most) = (filled.iter().min().unwrap(), filled.iter().max().unwrap());
            prop_assert!(most - least <= 1, "{:?}", filled);
        }
    }
}
