//! The images that a board's regions hold, on their way to the manager.

use crate::driver;
use baltra_ring::Locked;
use baltra_wire::executor::{RegionImage, ToManager};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Interval between readings of the board.
const READ_EVERY: Duration = Duration::from_secs(1);

/// The images of the regions, and those that were loaded since the last report.
type Report = (Vec<RegionImage>, Vec<(u32, String)>);

/// State shared by the thread that reads the board and the process's main loop.
pub struct Regions {
    on: AtomicBool,
    /// The report that the manager does not have yet.
    waiting: Mutex<Option<Report>>,
    wake: Arc<OwnedFd>,
}

impl Regions {
    /// `wake` becomes readable when a report to the manager is pending. Without a board there is
    /// none.
    pub fn new(wake: Arc<OwnedFd>) -> std::io::Result<Arc<Regions>> {
        let regions = Arc::new(Regions {
            on: AtomicBool::new(true),
            waiting: Mutex::default(),
            wake,
        });
        if driver::is_board() {
            let own = regions.clone();
            let thread = std::thread::Builder::new().name("regions".into());
            thread.spawn(move || own.watch())?;
        }
        Ok(regions)
    }

    /// Stops reporting.
    pub fn stop(&self) {
        self.on.store(false, Ordering::Relaxed);
        *self.waiting.locked() = None;
    }

    /// The next report to the manager.
    pub fn take(&self) -> Option<ToManager> {
        let mut waiting = self.waiting.locked();
        let (held, loaded) = waiting.take()?;
        Some(ToManager::Regions { held, loaded })
    }

    fn watch(&self) {
        let mut last = Vec::new();
        while self.on.load(Ordering::Relaxed) {
            // Without a connection to the board the process ends.
            if let Some((held, loaded)) = driver::board_regions() {
                if held != last || !loaded.is_empty() {
                    self.post(held.clone(), loaded);
                    last = held;
                }
            }
            driver::wait_for_load(READ_EVERY);
        }
    }

    fn post(&self, held: Vec<RegionImage>, loaded: Vec<(u32, String)>) {
        let mut waiting = self.waiting.locked();
        let (last, all) = waiting.get_or_insert_default();
        *last = held;
        all.extend(loaded);
        drop(waiting);
        // It can only be full, and then it is readable anyway.
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{eventfd, EventfdFlags};

    #[test]
    fn a_report_has_the_latest_images_and_all_that_were_loaded() {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        let regions = Regions::new(wake).unwrap();
        let held = |checksum| {
            vec![RegionImage {
                checksum,
                ..RegionImage::default()
            }]
        };
        let loaded = |checksum| vec![(checksum, "ab".to_owned())];
        regions.post(held(1), loaded(1));
        regions.post(held(2), loaded(2));
        let report = ToManager::Regions {
            held: held(2),
            loaded: [loaded(1), loaded(2)].concat(),
        };
        assert_eq!(regions.take(), Some(report));
        assert_eq!(regions.take(), None);
        regions.post(held(3), Vec::new());
        regions.stop();
        assert_eq!(regions.take(), None);
    }
}
