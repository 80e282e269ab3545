//! System shared memory: callers of this host name POSIX shared memory objects instead of sending
//! their bytes.
//!
//! Objects are read and written, not mapped: their creator may truncate them at any time, and
//! access to a truncated mapping would kill the gateway.

use super::Span;
use crate::http::admission::keys::TenantIndex;
use crate::http::failure::Failure;
use crate::http::problem::Problem;
use baltra_functions::Body;
use rustix::fs::{openat, Mode, OFlags, CWD};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The directory of the C library's shared memory objects.
const DIRECTORY: &str = "/dev/shm";
/// Most regions of one tenant.
const REGIONS_MAX: usize = 1024;

/// A region, as in its status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Description {
    pub name: String,
    pub key: String,
    pub offset: u64,
    pub byte_size: u64,
}

#[derive(Debug)]
struct Region {
    description: Description,
    file: Arc<File>,
}

/// Registered regions; each tenant has its own namespace.
#[derive(Debug)]
pub(crate) struct Regions {
    allowed: bool,
    by_name: Mutex<BTreeMap<(usize, String), Region>>,
}

impl Regions {
    pub fn new(allowed: bool) -> Regions {
        Regions {
            allowed,
            by_name: Mutex::default(),
        }
    }

    fn locked<T>(&self, f: impl FnOnce(&mut BTreeMap<(usize, String), Region>) -> T) -> T {
        f(&mut self.by_name.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Opens an object and registers a part of it under a name.
    pub fn register(&self, owner: TenantIndex, region: Description) -> Result<(), Problem> {
        if !self.allowed {
            return Err(Problem::new(
                Failure::Forbidden,
                "shared memory is disabled ('gateway.shared_memory' is false)",
            ));
        }
        if region.name.is_empty() || region.name.len() > 256 {
            return Err(Problem::bad_request(
                "invalid region name: it must have 1 to 256 bytes",
            ));
        }
        let refused = |why: &dyn std::fmt::Display| {
            Problem::bad_request(format!("shared memory object '{}': {why}", region.key))
        };
        let path = path(&region.key).ok_or_else(|| {
            Problem::bad_request("not a name of a shared memory object such as '/input0'")
        })?;
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = openat(CWD, &path, flags, Mode::empty()).map_err(|e| refused(&e))?;
        let file = File::from(file);
        let about = file.metadata().map_err(|e| refused(&e))?;
        let end = region.offset.checked_add(region.byte_size);
        if !about.is_file() || end.is_none_or(|end| end > about.len()) {
            let why = format!(
                "it has {} bytes, too few for {} at offset {}",
                about.len(),
                region.byte_size,
                region.offset
            );
            return Err(refused(&why));
        }
        let key = (owner.0, region.name.clone());
        self.locked(|regions| {
            if regions.contains_key(&key) {
                return Err(Problem::bad_request(format!(
                    "region '{}' is already registered",
                    region.name
                )));
            }
            if regions.keys().filter(|(o, _)| *o == owner.0).count() >= REGIONS_MAX {
                let detail = format!("too many regions: at most {REGIONS_MAX}");
                return Err(Problem::bad_request(detail));
            }
            let region = Region {
                description: region.clone(),
                file: Arc::new(file),
            };
            regions.insert(key, region);
            Ok(())
        })
    }

    /// Unregisters one region (an error if it does not exist), or all regions of the tenant.
    pub fn unregister(&self, owner: TenantIndex, name: Option<&str>) -> Result<(), Problem> {
        let Some(name) = name else {
            self.locked(|regions| regions.retain(|(o, _), _| *o != owner.0));
            return Ok(());
        };
        let removed = self.locked(|regions| regions.remove(&(owner.0, name.to_owned())));
        removed.map(|_| ()).ok_or_else(|| unknown(name))
    }

    /// Status of one region, or of all regions of the tenant.
    pub fn status(
        &self,
        owner: TenantIndex,
        name: Option<&str>,
    ) -> Result<Vec<Description>, Problem> {
        let own = self.locked(|regions| {
            let own = regions
                .iter()
                .filter(|((o, n), _)| *o == owner.0 && name.is_none_or(|name| name == n));
            own.map(|(_, region)| region.description.clone())
                .collect::<Vec<_>>()
        });
        match name {
            Some(name) if own.is_empty() => Err(unknown(name)),
            _ => Ok(own),
        }
    }

    /// The object, and the offset of the span in it.
    fn find(&self, owner: TenantIndex, span: &Span) -> Result<(Arc<File>, u64), Problem> {
        self.locked(|regions| {
            let region = regions.get(&(owner.0, span.region.clone()));
            let region = region.ok_or_else(|| unknown(&span.region))?;
            let about = &region.description;
            let end = span.offset.checked_add(span.bytes);
            if end.is_none_or(|end| end > about.byte_size) {
                return Err(Problem::bad_request(format!(
                    "region '{}' has {} bytes, too few for {} at offset {}",
                    about.name, about.byte_size, span.bytes, span.offset
                )));
            }
            Ok((region.file.clone(), about.offset + span.offset))
        })
    }

    /// Reads an input's bytes.
    pub fn read(&self, owner: TenantIndex, span: &Span) -> Result<Vec<u8>, Problem> {
        let (file, from) = self.find(owner, span)?;
        let mut bytes = vec![0; span.bytes as usize];
        let read = file.read_exact_at(&mut bytes, from);
        read.map_err(|error| shrunk(&span.region, &error))?;
        Ok(bytes)
    }

    /// Writes an output's bytes, which must fit into the span.
    pub fn write(&self, owner: TenantIndex, span: &Span, body: &Body) -> Result<(), Problem> {
        if body.len() > span.bytes {
            return Err(Problem::bad_request(format!(
                "an output of {} bytes does not fit into {} bytes of region '{}'",
                body.len(),
                span.bytes,
                span.region
            )));
        }
        let (file, mut at) = self.find(owner, span)?;
        // A write beyond the object's end would extend the object.
        let size = file.metadata().map_or(0, |about| about.len());
        if at + body.len() > size {
            let gone = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
            return Err(shrunk(&span.region, &gone));
        }
        for frame in &body.0 {
            let written = file.write_all_at(frame, at);
            written.map_err(|error| shrunk(&span.region, &error))?;
            at += frame.len() as u64;
        }
        Ok(())
    }
}

fn unknown(name: &str) -> Problem {
    let name: String = name.chars().take(64).collect();
    Problem::bad_request(format!("region '{name}' is not registered"))
}

fn shrunk(region: &str, error: &std::io::Error) -> Problem {
    Problem::bad_request(format!(
        "region '{region}' has changed since its registration: {error}"
    ))
}

/// The file for a key such as `/input0`, or `input0` as some clients write it.
fn path(key: &str) -> Option<PathBuf> {
    let name = key.strip_prefix('/').unwrap_or(key);
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+' | ':');
    let plain =
        (1..=254).contains(&name.len()) && name.chars().all(valid) && !name.starts_with('.');
    plain.then(|| Path::new(DIRECTORY).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RED: TenantIndex = TenantIndex(0);
    const BLUE: TenantIndex = TenantIndex(1);

    struct Object(PathBuf, String);

    impl Object {
        fn new(test: &str, bytes: &[u8]) -> Object {
            let name = format!("baltra-test-{test}-{}", std::process::id());
            let path = Path::new(DIRECTORY).join(&name);
            std::fs::write(&path, bytes).unwrap();
            Object(path, format!("/{name}"))
        }
    }

    impl Drop for Object {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn describe(object: &Object, offset: u64, byte_size: u64) -> Description {
        Description {
            name: "in".into(),
            key: object.1.clone(),
            offset,
            byte_size,
        }
    }

    fn span(offset: u64, bytes: u64) -> Span {
        Span {
            region: "in".into(),
            offset,
            bytes,
        }
    }

    #[test]
    fn a_region_is_read_and_written_within_its_bounds() {
        let object = Object::new("bounds", b"0123456789");
        let regions = Regions::new(true);
        regions.register(RED, describe(&object, 2, 6)).unwrap();
        assert_eq!(regions.read(RED, &span(1, 3)).unwrap(), b"345");
        assert_eq!(regions.read(RED, &span(0, 6)).unwrap(), b"234567");
        for wrong in [span(0, 7), span(6, 1), span(u64::MAX, 2)] {
            assert_eq!(regions.read(RED, &wrong).unwrap_err().status, 400);
        }
        regions
            .write(RED, &span(4, 2), &Body::from(b"ab".to_vec()))
            .unwrap();
        assert_eq!(std::fs::read(&object.0).unwrap(), b"012345ab89");
        let long = Body::from(b"abc".to_vec());
        assert!(regions.write(RED, &span(4, 2), &long).is_err());
    }

    #[test]
    fn names_are_a_tenant_s_own() {
        let object = Object::new("tenant", b"0123456789");
        let regions = Regions::new(true);
        regions.register(RED, describe(&object, 0, 10)).unwrap();
        assert!(regions.register(RED, describe(&object, 0, 10)).is_err());
        assert!(regions.read(BLUE, &span(0, 1)).is_err());
        assert!(regions.status(BLUE, None).unwrap().is_empty());
        assert!(regions.unregister(BLUE, Some("in")).is_err());
        regions.unregister(BLUE, None).unwrap();
        assert_eq!(regions.status(RED, Some("in")).unwrap().len(), 1);
        regions.unregister(RED, None).unwrap();
        assert!(regions.status(RED, Some("in")).is_err());
    }

    #[test]
    fn an_object_that_shrank_is_an_error() {
        let object = Object::new("shrunk", b"0123456789");
        let regions = Regions::new(true);
        regions.register(RED, describe(&object, 0, 10)).unwrap();
        std::fs::write(&object.0, b"01").unwrap();
        assert_eq!(regions.read(RED, &span(0, 10)).unwrap_err().status, 400);
        let body = Body::from(b"abc".to_vec());
        assert!(regions.write(RED, &span(0, 10), &body).is_err());
        assert_eq!(std::fs::read(&object.0).unwrap(), b"01");
    }

    #[test]
    fn keys_lead_nowhere_else() {
        for wrong in [
            "",
            "/",
            "..",
            "/../etc/passwd",
            "/a/b",
            "//etc",
            "/.x",
            "a\0",
            "/ä",
        ] {
            assert_eq!(path(wrong), None, "{wrong:?}");
        }
        assert!(path("/input0").is_some() && path("input0").is_some());
        let object = Object::new("size", b"01");
        let regions = Regions::new(true);
        for (offset, size) in [(0, 3), (3, 0), (u64::MAX, 1)] {
            assert!(regions
                .register(RED, describe(&object, offset, size))
                .is_err());
        }
        let closed = Regions::new(false);
        assert_eq!(
            closed
                .register(RED, describe(&object, 0, 1))
                .unwrap_err()
                .status,
            403
        );
    }
}
