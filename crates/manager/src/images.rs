//! The image store: accelerators by the SHA-256 of their contents.

use crate::tenants::hex;
use baltra_api::query::Pattern;
use baltra_ring::Locked;
use rustix::fs::SealFlags;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

/// Size limit of an image, bytes.
pub const IMAGE_BYTES_MAX: u64 = 2 << 30;

/// Maximum total size of the images that clients' programs brought; the oldest are removed first.
pub const BROUGHT_BYTES_MAX: u64 = 4 << 30;

/// Maximum length of a target, the registry's limit.
const TARGET_BYTES_MAX: usize = 256;

/// Metadata of an accelerator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// sha256 of its bytes, hexadecimal.
    pub digest: String,
    /// Its name for operators.
    pub name: String,
    /// The kernels in it.
    pub kernels: Vec<String>,
    /// The devices for which it is built: a pattern of their model or name; empty: unknown.
    pub target: String,
    /// Its size, bytes.
    pub bytes: u64,
    /// Time of the upload, seconds since 1970.
    pub pushed_at_s: u64,
    /// The tenant whose program brought it; empty: an operator added it.
    #[serde(default)]
    pub brought_by: String,
}

/// Reasons for which an image cannot be stored, found or removed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An I/O error.
    #[error("cannot use the image store")]
    Io(#[from] io::Error),
    /// The image does not exist.
    #[error("there is no accelerator '{0}' (`baltra accelerator ls` lists them)")]
    Unknown(String),
    /// Several images match.
    #[error("'{0}' matches {1} accelerators: give more digits of the digest")]
    Ambiguous(String, usize),
    /// The image is built for other hardware.
    #[error("accelerator '{name}' is built for '{target}', not for '{device}'")]
    Foreign {
        /// Its name.
        name: String,
        /// Its target.
        target: String,
        /// The device.
        device: String,
    },
    /// The image exceeds the size limit.
    #[error("the image is larger than {IMAGE_BYTES_MAX} bytes, the maximum")]
    TooLong,
    /// The contents do not match the digest.
    #[error("the image does not match its digest")]
    Digest,
    /// The image is empty.
    #[error("the image is empty")]
    Empty,
    /// The target is not a pattern.
    #[error("invalid target '{0}': expected a pattern of at most 256 bytes")]
    Target(String),
    /// The name is invalid.
    #[error("invalid accelerator name '{0}': expected 1 to 63 letters, digits, '-', '_' or '.'")]
    Name(String),
}

/// The store.
#[derive(Debug)]
pub struct Images {
    root: PathBuf,
    /// Number of changes of the metadata.
    changes: AtomicU64,
    /// The images that operators added, and the number of changes at which they were read.
    pushed: Mutex<Option<(u64, Arc<[Metadata]>)>>,
}

/// An image that is being received; it is deleted unless it is finished.
pub struct Upload {
    file: tempfile::NamedTempFile,
    hash: Sha256,
    bytes: u64,
}

impl Images {
    /// Opens the store in a directory, which is created if missing.
    pub fn open(root: &Path) -> io::Result<Images> {
        fs::create_dir_all(root)?;
        Ok(Images {
            root: root.to_owned(),
            changes: AtomicU64::new(0),
            pushed: Mutex::default(),
        })
    }

    /// Starts receiving an image.
    pub fn upload(&self) -> Result<Upload, Error> {
        Ok(Upload {
            file: tempfile::NamedTempFile::new_in(&self.root)?,
            hash: Sha256::new(),
            bytes: 0,
        })
    }

    /// Stores an image. An existing image of the same bytes gets the new metadata.
    pub fn finish(&self, upload: Upload, mut metadata: Metadata) -> Result<Metadata, Error> {
        if !crate::options::valid_name(&metadata.name) {
            return Err(Error::Name(metadata.name.chars().take(64).collect()));
        }
        let target = &metadata.target;
        if !is_target(target) {
            return Err(Error::Target(target.chars().take(80).collect()));
        }
        if upload.bytes == 0 {
            return Err(Error::Empty);
        }
        metadata.digest = hex(&upload.hash.finalize());
        metadata.bytes = upload.bytes;
        metadata.pushed_at_s = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |t| t.as_secs());
        upload.file.as_file().sync_all()?;
        let kept = upload.file.persist(self.image(&metadata.digest));
        kept.map_err(|e| Error::Io(e.error))?;
        self.describe(&metadata)?;
        Ok(metadata)
    }

    fn describe(&self, metadata: &Metadata) -> Result<(), Error> {
        let mut file = tempfile::NamedTempFile::new_in(&self.root)?;
        serde_json::to_writer(&mut file, metadata).map_err(io::Error::from)?;
        file.as_file().sync_all()?;
        let kept = file.persist(self.metadata(&metadata.digest));
        self.changes.fetch_add(1, Ordering::Release);
        kept.map_err(|e| Error::Io(e.error))?;
        Ok(())
    }

    /// Checks that the image with a digest is not built for other hardware than a device.
    ///
    /// # Errors
    /// The reason for which the device must not load it.
    pub fn check_target(&self, digest: &str, model: &str, device: &str) -> Result<(), String> {
        let target = match fs::read(self.metadata(digest)) {
            Ok(text) => serde_json::from_slice::<Metadata>(&text).map(|known| known.target),
            Err(_) => return Ok(()),
        };
        let target = target.map_err(|e| format!("cannot read the image's metadata: {e}"))?;
        match baltra_api::query::is_target(&target, model, device) {
            Some(false) => Err(format!(
                "the image is built for '{target}', not for '{device}' ('{model}')"
            )),
            _ => Ok(()),
        }
    }

    /// Whether the image with a digest is stored.
    pub fn has(&self, digest: &str) -> bool {
        self.metadata(digest).exists()
    }

    /// The name of an image, if it is stored here and has one.
    pub fn name(&self, digest: &str) -> Option<String> {
        let text = fs::read(self.metadata(digest)).ok()?;
        let metadata: Metadata = serde_json::from_slice(&text).ok()?;
        Some(metadata.name).filter(|name| !name.is_empty())
    }

    /// Stores the image of a client's program: a sealed memory file, and `metadata` with the digest
    /// that its bytes must have. An existing image is left unchanged.
    pub fn take_in(&self, file: File, mut metadata: Metadata) -> Result<(), Error> {
        if self.has(&metadata.digest) {
            return Ok(());
        }
        // Only memory files have seals, and reading them cannot block.
        let seals = rustix::fs::fcntl_get_seals(&file).map_err(io::Error::from)?;
        if !seals.contains(SealFlags::WRITE | SealFlags::SHRINK) {
            return Err(Error::Digest);
        }
        let mut upload = self.upload()?;
        let mut part = vec![0; 1 << 20];
        loop {
            match file.read_at(&mut part, upload.bytes)? {
                0 => break,
                read => upload.write(&part[..read])?,
            }
        }
        if hex(&upload.hash.clone().finalize()) != metadata.digest {
            return Err(Error::Digest);
        }
        // Never a name that an operator may have given.
        metadata.name = format!("program-{}", &metadata.digest[..12]);
        self.finish(upload, metadata).map(drop)
    }

    /// Adds the kernels' names to an image that was stored without them.
    pub fn name_kernels(&self, digest: &str, kernels: Vec<String>) -> Result<(), Error> {
        let text = fs::read(self.metadata(digest))?;
        let mut known: Metadata = serde_json::from_slice(&text).map_err(io::Error::from)?;
        if known.kernels.is_empty() && !known.brought_by.is_empty() {
            known.kernels = kernels;
            self.describe(&known)?;
        }
        Ok(())
    }

    /// Removes images of clients' programs, the oldest first, down to `bytes_max`, except those
    /// `kept`.
    pub fn trim(&self, bytes_max: u64, kept: &dyn Fn(&str) -> bool) -> Result<(), Error> {
        let mut brought = self.list()?;
        brought.retain(|m| !m.brought_by.is_empty());
        brought.sort_by_key(|m| m.pushed_at_s);
        let mut bytes: u64 = brought.iter().map(|m| m.bytes).sum();
        for old in brought.iter().filter(|m| !kept(&m.digest)) {
            if bytes <= bytes_max {
                break;
            }
            self.delete(&old.digest)?;
            bytes -= old.bytes;
        }
        Ok(())
    }

    /// Path of an image's bytes.
    pub fn image(&self, digest: &str) -> PathBuf {
        self.root.join(format!("{digest}.image"))
    }

    fn metadata(&self, digest: &str) -> PathBuf {
        self.root.join(format!("{digest}.json"))
    }

    /// All images, by name.
    pub fn list(&self) -> Result<Vec<Metadata>, Error> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.root)? {
            let path = entry?.path();
            if path.extension().is_some_and(|e| e == "json") {
                let text = fs::read(&path)?;
                match serde_json::from_slice::<Metadata>(&text) {
                    Ok(metadata) => found.push(metadata),
                    Err(error) => {
                        tracing::warn!(path = %path.display(), %error, "skipped an unreadable accelerator");
                    }
                }
            }
        }
        found.sort_by(|a, b| (&a.name, &a.digest).cmp(&(&b.name, &b.digest)));
        Ok(found)
    }

    /// The images with valid targets that operators added, by name.
    pub fn pushed(&self) -> Result<Arc<[Metadata]>, Error> {
        let changes = self.changes.load(Ordering::Acquire);
        let mut pushed = self.pushed.locked();
        if let Some((_, known)) = pushed.as_ref().filter(|(at, _)| *at == changes) {
            return Ok(known.clone());
        }
        let all = self.list()?.into_iter();
        // Earlier releases stored any text as the target.
        let is_pushed = |m: &Metadata| m.brought_by.is_empty() && is_target(&m.target);
        let known: Arc<[Metadata]> = all.filter(is_pushed).collect();
        *pushed = Some((changes, known.clone()));
        Ok(known)
    }

    /// Finds an image by name, by digest, or by six or more digits of one. Of several with the same
    /// name, the newest.
    pub fn find(&self, wanted: &str) -> Result<Metadata, Error> {
        let all = self.list()?;
        let named = all.iter().filter(|m| m.name == wanted);
        if let Some(newest) = named.max_by_key(|m| m.pushed_at_s) {
            return Ok(newest.clone());
        }
        let long_enough = wanted.len() >= 6;
        let fits: Vec<_> = all
            .into_iter()
            .filter(|m| long_enough && m.digest.starts_with(wanted))
            .collect();
        match <[Metadata; 1]>::try_from(fits) {
            Ok([one]) => Ok(one),
            Err(none) if none.is_empty() => Err(Error::Unknown(wanted.chars().take(80).collect())),
            Err(many) => Err(Error::Ambiguous(wanted.to_owned(), many.len())),
        }
    }

    /// The digest of an accelerator that an operator has added, by name, by digest, or by six or
    /// more digits of one: the newest that is not built for other hardware than a device.
    pub fn stored_for(&self, wanted: &str, model: &str, device: &str) -> Result<String, Error> {
        let all = self.pushed()?;
        let fits =
            |m: &&Metadata| baltra_api::query::is_target(&m.target, model, device) != Some(false);
        let is_prefix = |m: &&Metadata| wanted.len() >= 6 && m.digest.starts_with(wanted);
        let named = all.iter().filter(|m| m.name == wanted);
        let newest = named.clone().filter(fits).max_by_key(|m| m.pushed_at_s);
        if let Some(newest) = newest {
            return Ok(newest.digest.clone());
        }
        let all: Vec<&Metadata> = named.chain(all.iter().filter(is_prefix)).collect();
        let mut fitting = all.iter().filter(|m| fits(m));
        match (fitting.next(), fitting.next(), all.first()) {
            (Some(one), None, _) => Ok(one.digest.clone()),
            (Some(_), Some(_), _) => Err(Error::Ambiguous(wanted.to_owned(), all.len())),
            (None, _, Some(other)) => Err(Error::Foreign {
                name: other.name.clone(),
                target: other.target.clone(),
                device: device.to_owned(),
            }),
            (None, _, None) => Err(Error::Unknown(wanted.chars().take(80).collect())),
        }
    }

    /// Removes an image.
    pub fn remove(&self, wanted: &str) -> Result<Metadata, Error> {
        let found = self.find(wanted)?;
        self.delete(&found.digest)?;
        Ok(found)
    }

    fn delete(&self, digest: &str) -> io::Result<()> {
        fs::remove_file(self.metadata(digest))?;
        self.changes.fetch_add(1, Ordering::Release);
        fs::remove_file(self.image(digest))
    }
}

impl Upload {
    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.bytes += bytes.len() as u64;
        if self.bytes > IMAGE_BYTES_MAX {
            return Err(Error::TooLong);
        }
        self.hash.update(bytes);
        Ok(self.file.write_all(bytes)?)
    }
}

fn is_target(text: &str) -> bool {
    let is_plain = text.len() <= TARGET_BYTES_MAX && !text.chars().any(char::is_control);
    is_plain && Pattern::parse(text).is_some()
}

/// Whether a peer's text is a valid digest, and thus a valid file name.
pub fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::MemfdFlags;

    /// Stores an image as an executor sends it.
    fn bring(images: &Images, digest: &str, bytes: &[u8]) -> Result<(), Error> {
        let flags = MemfdFlags::ALLOW_SEALING;
        let mut file = File::from(rustix::fs::memfd_create("image", flags).unwrap());
        file.write_all(bytes).unwrap();
        let seals = SealFlags::WRITE | SealFlags::SHRINK;
        rustix::fs::fcntl_add_seals(&file, seals).unwrap();
        let metadata = Metadata {
            digest: digest.into(),
            brought_by: "red".into(),
            ..Metadata::default()
        };
        images.take_in(file, metadata)
    }

    #[test]
    fn what_a_client_brings_is_checked_and_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let images = Images::open(dir.path()).unwrap();
        let pushed = push(&images, "pushed", b"operator's").unwrap();
        let digest = hex(&Sha256::digest(b"abc"));
        let other = hex(&Sha256::digest(b"other"));
        assert!(matches!(
            bring(&images, &digest, b"abd"),
            Err(Error::Digest)
        ));
        let unsealed = File::open("/dev/zero").unwrap();
        assert!(images.take_in(unsealed, Metadata::default()).is_err());
        bring(&images, &digest, b"abc").unwrap();
        bring(&images, &other, b"other").unwrap();
        images.name_kernels(&digest, vec!["k".into()]).unwrap();
        assert_eq!(images.find(&digest).unwrap().kernels, ["k"]);
        images.trim(5, &|kept| kept == digest).unwrap();
        assert!(images.has(&digest) && images.has(&pushed.digest) && !images.has(&other));
        assert!(is_digest(&digest) && !is_digest("../../etc/passwd"));
    }

    fn push(images: &Images, name: &str, bytes: &[u8]) -> Result<Metadata, Error> {
        let mut upload = images.upload()?;
        upload.write(bytes)?;
        let metadata = Metadata {
            name: name.into(),
            ..Metadata::default()
        };
        images.finish(upload, metadata)
    }

    #[test]
    fn an_image_is_found_by_name_digest_and_prefix() {
        let dir = tempfile::tempdir().unwrap();
        let images = Images::open(dir.path()).unwrap();
        let sobel = push(&images, "sobel", b"abc").unwrap();
        assert!(sobel.digest.starts_with("ba7816bf"));
        for wanted in ["sobel", "ba7816", sobel.digest.as_str()] {
            assert_eq!(images.find(wanted).unwrap(), sobel);
        }
        assert!(matches!(images.find("ba7"), Err(Error::Unknown(_))));
        for wanted in ["sobel", "ba7816", sobel.digest.as_str()] {
            assert_eq!(
                images.stored_for(wanted, "model", "fpga0").unwrap(),
                sobel.digest
            );
        }
        let unknown = images.stored_for("ba7", "model", "fpga0");
        assert!(matches!(unknown, Err(Error::Unknown(_))));
        assert_eq!(fs::read(images.image(&sobel.digest)).unwrap(), b"abc");
        assert_eq!(images.pushed().unwrap()[..], [sobel]);
        images.remove("sobel").unwrap();
        assert!(images.pushed().unwrap().is_empty());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_image_runs_only_where_its_target_is() {
        let dir = tempfile::tempdir().unwrap();
        let images = Images::open(dir.path()).unwrap();
        let push = |name: &str, target: &str| {
            let mut upload = images.upload()?;
            upload.write(name.as_bytes())?;
            let metadata = Metadata {
                name: name.into(),
                target: target.into(),
                ..Metadata::default()
            };
            images.finish(upload, metadata)
        };
        let check = |image: &Metadata| images.check_target(&image.digest, "PAC Arria 10", "fpga0");
        for (n, target) in ["", "pac arria*", "fpga?"].into_iter().enumerate() {
            let image = push(&format!("fits{n}"), target).unwrap();
            assert_eq!(check(&image), Ok(()), "{target}");
        }
        let other = push("other", "U280").unwrap();
        assert!(check(&other)
            .unwrap_err()
            .contains("'U280', not for 'fpga0'"));
        let digest = |name: &str| images.stored_for(name, "PAC Arria 10", "fpga0");
        assert!(digest("fits1").is_ok());
        assert!(matches!(digest("other"), Err(Error::Foreign { .. })));
        for bad in ["a\\", "a\nb", &"x".repeat(257)] {
            assert!(matches!(push("bad", bad), Err(Error::Target(_))), "{bad}");
        }
    }

    #[test]
    fn equal_bytes_are_stored_once() {
        let dir = tempfile::tempdir().unwrap();
        let images = Images::open(dir.path()).unwrap();
        push(&images, "a", b"abc").unwrap();
        push(&images, "b", b"abc").unwrap();
        let all = images.list().unwrap();
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].name, "b");
    }

    #[test]
    fn an_unfinished_upload_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let images = Images::open(dir.path()).unwrap();
        let mut upload = images.upload().unwrap();
        upload.write(b"abc").unwrap();
        drop(upload);
        assert!(push(&images, "a/b", b"abc").is_err());
        assert!(push(&images, "empty", b"").is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
