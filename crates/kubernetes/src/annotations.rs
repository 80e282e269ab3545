//! A Pod's device request, from its annotations.
//!
//! The thesis's spellings (`blastfunction.io/device`, `vendor`, `platform`, `accelerator`,
//! `acceleratorhash`) are synonyms of this crate's annotations. Unknown annotations are rejected by
//! name, so that a misspelled one does not start a Pod without its device.

use baltra_api::annotations::{self, BLASTFUNCTION, CONDITIONS, VALUE_BYTES_MAX};
use baltra_api::query::Query;
use std::collections::BTreeMap;

pub use baltra_api::annotations::PREFIX;

const OURS: [&str; 13] = [
    "device",
    "vendor",
    "platform",
    "accelerator",
    "acceleratorhash",
    "pool",
    "count",
    "function",
    "share",
    "limit",
    "memory",
    "containers",
    "move",
];
/// Annotations that only the webhook may write.
const WRITTEN: [&str; 2] = ["allocated", "application"];

/// A Pod's device request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceRequest {
    /// The query for its devices.
    pub query: Query,
    /// Number of devices; 0: one, or the function's number.
    pub count: u32,
    /// The name of a pool; empty: none.
    pub pool: String,
    /// A Function of its namespace; empty: none.
    pub function: String,
    /// Its guaranteed share and its limit.
    pub share: Share,
    /// Limit of device memory, bytes; `None`: the default of the node's configuration.
    pub memory_bytes: Option<u64>,
    /// The containers with access to the device; empty: all.
    pub containers: Vec<String>,
    /// Policy for leaving a device, `live` or `restart`; empty: the registry's setting.
    pub move_policy: String,
}

/// Device time, percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Guaranteed share under contention; 0: a share of the rest.
    pub request: u32,
    /// Limit; 0: no limit.
    pub limit: u32,
}

/// Why annotations are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An unknown annotation.
    #[error("unknown annotation '{0}': use one of {PREFIX}{recognized}", recognized = OURS.join(", "))]
    Unknown(String),
    /// An annotation that only the webhook may write.
    #[error("annotation '{0}' is reserved for Baltra: remove it")]
    Forged(String),
    /// An invalid value.
    #[error("annotation '{name}' is '{value}': {reason}")]
    Value {
        /// The annotation.
        name: String,
        /// Its value.
        value: String,
        /// The reason.
        reason: String,
    },
    /// Two annotations set one field.
    #[error("annotation '{0}' duplicates another one: keep one of them")]
    Twice(String),
}

/// Whether annotations request a device.
pub fn requests_device(annotations: &BTreeMap<String, String>) -> bool {
    annotations
        .keys()
        .any(|k| k.starts_with(PREFIX) || k.starts_with(BLASTFUNCTION))
}

/// The annotations of a request, to be copied into a Pod template.
pub fn request_annotations(annotations: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let is_of_request = |k: &&String| k.starts_with(PREFIX) || k.starts_with(BLASTFUNCTION);
    let keys = annotations.keys().filter(is_of_request);
    keys.map(|k| (k.clone(), annotations[k].clone())).collect()
}

/// The device request of annotations; `None` if there is none.
///
/// # Errors
/// The first invalid annotation, with the reason.
pub fn device_request(
    annotations: &BTreeMap<String, String>,
) -> Result<Option<DeviceRequest>, Error> {
    let mut device_request = DeviceRequest::default();
    let mut any = false;
    for (name, value) in annotations {
        let ours = name.strip_prefix(PREFIX);
        let thesis = name.strip_prefix(BLASTFUNCTION);
        let Some(key) = ours.or(thesis) else {
            continue;
        };
        if ours.is_some() && WRITTEN.contains(&key) {
            return Err(Error::Forged(name.clone()));
        }
        let recognized = match ours {
            Some(key) => OURS.contains(&key),
            None => CONDITIONS.contains(&key),
        };
        if !recognized {
            return Err(Error::Unknown(name.clone()));
        }
        any = true;
        take(&mut device_request, name, key, value.trim())?;
    }
    let Share { request, limit } = device_request.share;
    if limit > 0 && limit < request {
        return Err(Error::Value {
            name: format!("{PREFIX}limit"),
            value: limit.to_string(),
            reason: format!("it is below the Pod's requested share of {request}"),
        });
    }
    Ok(any.then_some(device_request))
}

fn take(
    device_request: &mut DeviceRequest,
    name: &str,
    key: &str,
    value: &str,
) -> Result<(), Error> {
    let wrong = |reason: &str| Error::Value {
        name: name.to_owned(),
        value: value.chars().take(64).collect(),
        reason: reason.to_owned(),
    };
    if value.is_empty() || value.len() > VALUE_BYTES_MAX {
        return Err(wrong("it must have 1 to 1,024 bytes"));
    }
    let number = |least: u32, most: u32| -> Result<u32, Error> {
        let parsed = value.trim_end_matches('%').trim().parse::<u32>().ok();
        parsed
            .filter(|n| (least..=most).contains(n))
            .ok_or_else(|| wrong(&format!("it must be a number from {least} to {most}")))
    };
    match key {
        key if CONDITIONS.contains(&key) => {
            let query = annotations::with_condition(&device_request.query, key, value);
            device_request.query = query.map_err(|error| match error {
                annotations::Error::Value(reason) => wrong(&reason),
                annotations::Error::Twice => Error::Twice(name.to_owned()),
            })?;
        }
        "pool" => device_request.pool = value.to_owned(),
        "function" => device_request.function = value.to_owned(),
        "count" => device_request.count = number(1, baltra_api::DEVICES_MAX)?,
        "share" => device_request.share.request = number(1, 100)?,
        "limit" => device_request.share.limit = number(1, 100)?,
        "memory" => {
            let bytes = quantity(value).filter(|bytes| *bytes > 0);
            device_request.memory_bytes = Some(
                bytes.ok_or_else(|| wrong("it must be a number of bytes such as 512Mi or 2Gi"))?,
            );
        }
        "containers" => {
            let names = value.split(',').map(|n| n.trim().to_owned());
            device_request.containers = names.filter(|n| !n.is_empty()).collect();
        }
        "move" if ["live", "restart"].contains(&value) => {
            device_request.move_policy = value.to_owned();
        }
        "move" => return Err(wrong("it must be live or restart")),
        _ => return Err(Error::Unknown(name.to_owned())),
    }
    Ok(())
}

/// Parses an integer quantity in Kubernetes' notation; `None` if it is malformed.
pub fn quantity(text: &str) -> Option<u64> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let factor: u64 = match &text[digits..] {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return None,
    };
    number.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(pairs: &[(&str, &str)]) -> Result<Option<DeviceRequest>, Error> {
        let pairs = pairs.iter().map(|(k, v)| (k.to_string(), v.to_string()));
        device_request(&pairs.collect())
    }

    #[test]
    fn a_pod_that_asks_for_nothing_is_left_alone() {
        assert_eq!(parsed(&[]).unwrap(), None);
        assert_eq!(parsed(&[("example.org/device", "x")]).unwrap(), None);
    }

    #[test]
    fn the_thesis_s_spellings_mean_the_same() {
        let thesis = parsed(&[
            ("blastfunction.io/vendor", "altera"),
            ("blastfunction.io/device", "de5a net e1"),
        ]);
        let ours = parsed(&[
            ("baltra.io/vendor", "altera"),
            ("baltra.io/device", "de5a net e1"),
        ]);
        let query = "vendor=altera,model=de5a net e1".parse().unwrap();
        assert_eq!(thesis.unwrap().unwrap().query, query);
        assert_eq!(ours.unwrap().unwrap().query, query);
    }

    #[test]
    fn a_device_is_a_query_an_id_or_a_model() {
        for (value, query) in [
            (
                "vendor=Intel*,accelerator=sobel",
                "vendor=Intel*,accelerator=sobel",
            ),
            ("node-1/fpga0", "id=node-1/fpga0"),
            ("A10*", "model=A10*"),
            ("a,b", "model=\"a,b\""),
        ] {
            let got = parsed(&[("baltra.io/device", value)]).unwrap().unwrap();
            assert_eq!(got.query, query.parse().unwrap(), "{value}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (pairs, word) in [
            (vec![("baltra.io/devise", "x")], "baltra.io/devise"),
            (
                vec![("blastfunction.io/count", "1")],
                "blastfunction.io/count",
            ),
            (vec![("baltra.io/allocated", "n/d")], "reserved for Baltra"),
            (vec![("baltra.io/count", "0")], "1 to 256"),
            (vec![("baltra.io/share", "130")], "1 to 100"),
            (vec![("baltra.io/share", "x")], "1 to 100"),
            (vec![("baltra.io/memory", "much")], "2Gi"),
            (vec![("baltra.io/memory", "0")], "2Gi"),
            (vec![("baltra.io/move", "sometimes")], "live or restart"),
            (
                vec![("baltra.io/share", "40"), ("baltra.io/limit", "30")],
                "below the Pod's requested share",
            ),
            (vec![("baltra.io/device", "color=red")], "color"),
            (
                vec![("baltra.io/device", "vendor=a"), ("baltra.io/vendor", "b")],
                "duplicates another",
            ),
            (vec![("baltra.io/accelerator", "")], "1 to 1,024"),
            (
                vec![
                    ("baltra.io/accelerator", "a"),
                    ("baltra.io/acceleratorhash", "b"),
                ],
                "duplicates another",
            ),
        ] {
            let error = parsed(&pairs).unwrap_err().to_string();
            assert!(error.contains(word), "{pairs:?}: {error}");
        }
    }

    #[test]
    fn the_policy_for_leaving_a_device_is_part_of_the_request() {
        let of = |text| parsed(&[("baltra.io/move", text)]).unwrap().unwrap();
        assert_eq!(of("restart").move_policy, "restart");
        assert_eq!(of(" live ").move_policy, "live");
        let none = parsed(&[("baltra.io/count", "1")]).unwrap().unwrap();
        assert_eq!(none.move_policy, "");
    }

    #[test]
    fn memory_is_bytes_as_the_cluster_writes_them() {
        let device_request = parsed(&[("baltra.io/memory", "512Mi")]).unwrap().unwrap();
        assert_eq!(device_request.memory_bytes, Some(512 << 20));
        for (text, number) in [("0", 0), ("100", 100), ("1Ki", 1024), ("3G", 3_000_000_000)] {
            assert_eq!(quantity(text), Some(number));
        }
        for text in [
            "",
            "-1",
            "1.5",
            "1e3",
            "99999999999999999999",
            "9999999999Ti",
        ] {
            assert_eq!(quantity(text), None, "{text}");
        }
    }

    #[test]
    fn shares_are_percent() {
        let device_request = parsed(&[("baltra.io/share", "30%"), ("baltra.io/limit", "40")]);
        let share = device_request.unwrap().unwrap().share;
        assert_eq!(
            share,
            Share {
                request: 30,
                limit: 40
            }
        );
    }
}
