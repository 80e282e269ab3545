//! The image changes of devices' regions, as their nodes report them.
//!
//! Two changes between two reports count as one. Memory is bounded: [`CHANGES_MAX`] changes of each
//! of [`SERIES_MAX`] devices.

use super::history::SERIES_MAX;
use super::model::{Accelerator, Device, Health, Region};
use serde::Serialize;
use std::collections::{HashMap, VecDeque};

/// Changes of a device; older ones are dropped.
const CHANGES_MAX: usize = 64;

/// A device that is missing for this time is dropped.
const FORGET_MS: u64 = 600_000;

/// The image of a region; `None`: it is blank.
type Image = Option<Accelerator>;

/// A change of a region's image.
#[derive(Debug, Clone, Serialize)]
struct Change {
    /// When it was first reported, milliseconds since 1970.
    at_ms: u64,
    region: usize,
    from: Image,
    to: Image,
}

#[derive(Debug, Default)]
struct Timeline {
    /// The first report.
    since_ms: u64,
    seen_ms: u64,
    regions: Vec<Image>,
    changes: VecDeque<Change>,
}

/// The changes of all devices.
#[derive(Debug, Default)]
pub struct Images {
    devices: HashMap<(String, String), Timeline>,
}

/// A region's image. Programs that coexist are not images: they have no digest.
fn image(region: &Region) -> Image {
    let mut images = region.loaded.iter().filter(|a| !a.digest.is_empty());
    images.next().cloned()
}

fn is_same(one: &Image, other: &Image) -> bool {
    let digest = |image: &Image| image.as_ref().map(|a| a.digest.clone());
    digest(one) == digest(other)
}

impl Images {
    /// Adds the devices' present images.
    pub fn feed(&mut self, devices: &[Device], at_ms: u64) {
        for device in devices {
            // The last report of a lost device does not contain its present images.
            if matches!(device.state, Health::Lost | Health::Starting) {
                continue;
            }
            let key = (device.node.clone(), device.name.clone());
            if self.devices.len() >= SERIES_MAX && !self.devices.contains_key(&key) {
                continue;
            }
            let now: Vec<Image> = device.regions.iter().map(image).collect();
            let timeline = self.devices.entry(key).or_insert_with(|| Timeline {
                since_ms: at_ms,
                regions: now.clone(),
                ..Timeline::default()
            });
            timeline.feed(now, at_ms);
        }
        let recent = |t: &Timeline| at_ms.saturating_sub(t.seen_ms) < FORGET_MS;
        self.devices.retain(|_, timeline| recent(timeline));
    }

    /// A device's images and their changes.
    pub fn json(&self, node: &str, device: &str, at_ms: u64) -> String {
        let key = (node.to_owned(), device.to_owned());
        let none = Timeline::default();
        let timeline = self.devices.get(&key).unwrap_or(&none);
        let view = View {
            at_ms,
            since_ms: timeline.since_ms,
            regions: &timeline.regions,
            changes: &timeline.changes,
        };
        serde_json::to_string(&view).expect("plain data")
    }
}

#[derive(Serialize)]
struct View<'a> {
    at_ms: u64,
    /// The start of the record.
    since_ms: u64,
    /// The present images.
    regions: &'a [Image],
    /// The oldest first.
    changes: &'a VecDeque<Change>,
}

impl Timeline {
    fn feed(&mut self, now: Vec<Image>, at_ms: u64) {
        self.seen_ms = at_ms;
        let before = std::mem::replace(&mut self.regions, now);
        for region in 0..before.len().max(self.regions.len()) {
            let of = |images: &[Image]| images.get(region).cloned().flatten();
            let (from, to) = (of(&before), of(&self.regions));
            if is_same(&from, &to) {
                continue;
            }
            if self.changes.len() == CHANGES_MAX {
                self.changes.pop_front();
            }
            self.changes.push_back(Change {
                at_ms,
                region,
                from,
                to,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(images: &[&str]) -> Device {
        let region = |digest: &&str| Region {
            loaded: match *digest {
                "" => Vec::new(),
                digest => vec![Accelerator {
                    name: format!("image {digest}"),
                    digest: digest.into(),
                }],
            },
            loading: false,
        };
        Device {
            node: "n".into(),
            name: "d".into(),
            regions: images.iter().map(region).collect(),
            ..Device::default()
        }
    }

    fn changes(images: &Images) -> Vec<(u64, usize, String, String)> {
        let json: serde_json::Value = serde_json::from_str(&images.json("n", "d", 9)).unwrap();
        let name = |v: &serde_json::Value| v["digest"].as_str().unwrap_or("-").to_owned();
        let list = json["changes"].as_array().unwrap().iter();
        let one = |c: &serde_json::Value| {
            let number = |key: &str| c[key].as_u64().unwrap();
            let (from, to) = (name(&c["from"]), name(&c["to"]));
            (number("at_ms"), number("region") as usize, from, to)
        };
        list.map(one).collect()
    }

    #[test]
    fn a_change_has_its_time_and_both_images() {
        let mut images = Images::default();
        images.feed(&[device(&["a", ""])], 1);
        images.feed(&[device(&["a", ""])], 2);
        assert!(changes(&images).is_empty());
        images.feed(&[device(&["a", "b"])], 3);
        let mut lost = device(&["", ""]);
        lost.state = Health::Lost;
        images.feed(&[lost], 4);
        images.feed(&[device(&["", "b"])], 5);
        let found = changes(&images);
        let found: Vec<_> = found
            .iter()
            .map(|c| (c.0, c.1, c.2.as_str(), c.3.as_str()))
            .collect();
        assert_eq!(found, [(3, 1, "-", "b"), (5, 0, "a", "-")]);
        // A program without a digest is not an image.
        let mut shared = device(&["", "b"]);
        shared.regions[0].loaded.push(Accelerator {
            name: "sobel".into(),
            digest: String::new(),
        });
        images.feed(&[shared], 6);
        assert_eq!(changes(&images).len(), 2);
        assert!(images.json("n", "other", 7).contains("\"changes\":[]"));
    }

    #[test]
    fn changes_and_devices_are_bounded() {
        let mut images = Images::default();
        for at in 0..200 {
            let digest = at.to_string();
            images.feed(&[device(&[&digest])], at);
        }
        assert_eq!(changes(&images).len(), CHANGES_MAX);
        let other = |n: usize| Device {
            name: n.to_string(),
            ..device(&["a"])
        };
        let all: Vec<Device> = (0..2 * SERIES_MAX).map(other).collect();
        images.feed(&all, 201);
        assert_eq!(images.devices.len(), SERIES_MAX);
        images.feed(&[device(&["z"])], 201 + FORGET_MS);
        assert_eq!(images.devices.len(), 1);
    }
}
