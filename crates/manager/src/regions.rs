//! The images that a board's regions hold, as executors have read them from the board.

use baltra_ring::Locked;
use baltra_wire::executor::RegionImage;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

/// Most regions of a board.
const REGIONS_MAX: usize = 16;
/// Most images whose digests are kept.
const DIGESTS_MAX: usize = 1_024;
/// Most characters of a function's name.
const NAME_MAX: usize = 15;

/// The image of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The region.
    pub region: u32,
    /// The image: sha256, lower-case hexadecimal; empty: no program has loaded it.
    pub digest: String,
    /// Its name for operators, if it has no digest.
    pub name: String,
}

#[derive(Debug, Default)]
struct Reports {
    /// By executor.
    held: BTreeMap<u64, Vec<RegionImage>>,
    /// Digests of images that programs have loaded, by the checksum of the image's header.
    digests: BTreeMap<u32, String>,
}

/// The reports of a board's executors.
#[derive(Debug, Default)]
pub struct Held(Mutex<Reports>);

impl Held {
    fn reports(&self) -> MutexGuard<'_, Reports> {
        self.0.locked()
    }

    /// Stores an executor's report. Its claims are bounded, and only shown.
    pub fn set(&self, executor: u64, mut held: Vec<RegionImage>, loaded: Vec<(u32, String)>) {
        held.truncate(REGIONS_MAX);
        let mut reports = self.reports();
        reports.held.insert(executor, held);
        for (checksum, digest) in loaded {
            if crate::images::is_digest(&digest) {
                reports.digests.insert(checksum, digest);
            }
        }
        while reports.digests.len() > DIGESTS_MAX {
            reports.digests.pop_first();
        }
    }

    /// Removes the report of an executor that has ended.
    pub fn remove(&self, executor: u64) {
        self.reports().held.remove(&executor);
    }

    /// The images, by region, as the newest executor has read them.
    pub fn images(&self) -> Vec<Image> {
        let reports = self.reports();
        let newest = reports.held.last_key_value();
        let image = |held: &RegionImage| {
            let digest = reports.digests.get(&held.checksum).cloned();
            let plain = held.function.chars().filter(|c| !c.is_control());
            let function: String = plain.take(NAME_MAX).collect();
            let name = match (&digest, function.as_str()) {
                (Some(_), _) => String::new(),
                (None, "") => format!("checksum {:08x}", held.checksum),
                (None, function) => format!("function {function}"),
            };
            Image {
                region: held.region,
                digest: digest.unwrap_or_default(),
                name,
            }
        };
        newest.map_or_else(Vec::new, |(_, held)| held.iter().map(image).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_shown_by_the_digest_that_any_executor_has_reported() {
        let held = Held::default();
        let image = |region, checksum, function: &str| RegionImage {
            region,
            checksum,
            function: function.into(),
        };
        let digest = "ab".repeat(32);
        held.set(1, vec![image(0, 7, "")], vec![(7, digest.clone())]);
        let all = vec![image(0, 7, "f"), image(1, 8, "f\n"), image(3, 0xab, "")];
        held.set(2, all, vec![(8, "../../etc".into())]);
        held.remove(1);
        let shown = held.images();
        let texts = shown
            .iter()
            .map(|i| (i.region, i.digest.as_str(), i.name.as_str()));
        assert_eq!(
            texts.collect::<Vec<_>>(),
            [
                (0, digest.as_str(), ""),
                (1, "", "function f"),
                (3, "", "checksum 000000ab")
            ]
        );
        held.remove(2);
        assert_eq!(held.images(), []);
    }

    #[test]
    fn reports_are_bounded() {
        let held = Held::default();
        let loaded = |n: u32| (n, "ab".repeat(32));
        held.set(
            1,
            vec![RegionImage::default(); 99],
            (0..5000).map(loaded).collect(),
        );
        assert_eq!(held.images().len(), REGIONS_MAX);
        assert_eq!(held.reports().digests.len(), DIGESTS_MAX);
    }
}
