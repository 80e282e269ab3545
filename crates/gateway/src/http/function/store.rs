//! The node's functions and their deployments, on disk.
//!
//! `functions/NAME/` holds a manifest and its files; changes are atomic, because a new directory is
//! written under a temporary name and then renamed, or exchanged with an existing one.
//! `NAME.NAMESPACE` is a function of the registry ([`crate::http::pool`]). The file `format` has the
//! number of the directory's format; release 0.1.0 did not write it.

use crate::http::disk::{sync, write_atomically};
use crate::http::function::deployment::Deployment;
use baltra_functions::manifest::Implementation;
use baltra_functions::{Function, ManifestError};
use bytes::Bytes;
use rustix::fs::{flock, renameat_with, FlockOperation, RenameFlags, CWD};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// File name of the manifest.
pub const MANIFEST: &str = "function.yaml";
/// Format of the directory. A release that changes it converts older ones when it opens them.
const FORMAT: u64 = 1;
/// Longest file of the format, bytes.
const FORMAT_BYTES_MAX: u64 = 32;
/// Most files of one function.
const FILES_MAX: usize = 1000;
/// Most directories above a file.
const DEPTH_MAX: usize = 8;

/// Why a function is not stored.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file name is not allowed.
    #[error("invalid file name '{0}': use a relative path of letters, digits, '.', '_', '-' and '+', no part of which begins with a dot")]
    Name(String),
    /// A name is both a file and a directory.
    #[error("'{0}' is both a file and a directory")]
    Both(String),
    /// Too many files or bytes.
    #[error("{0}")]
    TooLarge(String),
    /// There is no manifest among the files.
    #[error("'{MANIFEST}' is missing among the files")]
    NoManifest,
    /// The manifest is invalid.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// An I/O error.
    #[error("state directory ('gateway.state'): {0}")]
    Io(#[from] io::Error),
}

/// A stored function, with the one that it replaced until this is dropped.
#[derive(Debug)]
pub struct Stored {
    /// The function.
    pub function: Arc<Function>,
    target: PathBuf,
    /// Whether it replaced one.
    before: bool,
    /// The directory of the replaced function.
    place: tempfile::TempDir,
}

impl Stored {
    /// Restores the replaced function.
    pub fn undo(self) -> io::Result<()> {
        if self.before {
            renameat_with(
                CWD,
                self.place.path(),
                CWD,
                &self.target,
                RenameFlags::EXCHANGE,
            )?
        } else {
            // Moved away first, as in `Store::remove`.
            fs::create_dir_all(self.place.path())?;
            fs::rename(&self.target, self.place.path().join("undone"))?;
        }
        sync(self.target.parent().unwrap_or(Path::new(".")))
    }
}

/// A function's files, by relative path.
pub type Files = BTreeMap<String, Bytes>;

/// A gateway's state directory.
#[derive(Debug)]
pub struct Store {
    root: PathBuf,
    /// The lock file, held while the gateway runs.
    _lock: File,
}

impl Store {
    /// Opens the directory: creates missing directories and removes the rest of an interrupted
    /// upload. A directory belongs to one gateway.
    pub fn open(root: &Path) -> io::Result<Store> {
        fs::create_dir_all(root)?;
        let lock = File::create(root.join("lock"))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            Errno::WOULDBLOCK => io::Error::new(
                io::ErrorKind::ResourceBusy,
                "another gateway uses the directory",
            ),
            error => error.into(),
        })?;
        let store = Store {
            root: root.to_owned(),
            _lock: lock,
        };
        // Before anything changes that a later release has written.
        store.check_format()?;
        fs::create_dir_all(store.functions())?;
        for entry in fs::read_dir(store.functions())? {
            let entry = entry?;
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(store)
    }

    /// Refuses the format of a later release, and records the format of a new directory.
    fn check_format(&self) -> io::Result<()> {
        let path = self.root.join("format");
        let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
        let mut text = String::new();
        match File::open(&path) {
            Ok(file) => file.take(FORMAT_BYTES_MAX).read_to_string(&mut text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return write_atomically(&path, format!("{FORMAT}\n").as_bytes());
            }
            Err(error) => return Err(error),
        };
        match text.trim().parse::<u64>() {
            Ok(found) if found > FORMAT => Err(invalid(format!(
                "the directory has format {found}, but this release supports up to {FORMAT}: use the release that wrote it, or restore a backup"
            ))),
            Ok(_) => Ok(()),
            Err(_) => Err(invalid(format!(
                "{} is not a number: restore a backup",
                path.display()
            ))),
        }
    }

    fn functions(&self) -> PathBuf {
        self.root.join("functions")
    }

    /// The file for usage records.
    pub fn usage_file(&self) -> PathBuf {
        self.root.join("usage.json")
    }

    fn deployments_file(&self) -> PathBuf {
        self.root.join("deployments.json")
    }

    /// Parses a function from its files without storing it.
    pub fn read(&self, files: &Files) -> Result<Function, Error> {
        read(files, None)
    }

    /// Stores a function under its manifest's name, in place of one with that name. Changes of the
    /// same name must not overlap.
    pub fn put(&self, files: &Files) -> Result<Stored, Error> {
        self.put_as(files, None)
    }

    /// Stores a function under the registry's name.
    pub fn put_pooled(&self, name: &str, files: &Files) -> Result<Stored, Error> {
        self.put_as(files, Some(name))
    }

    fn put_as(&self, files: &Files, name: Option<&str>) -> Result<Stored, Error> {
        let function = read(files, name)?;
        let incoming = tempfile::Builder::new()
            .prefix(".incoming-")
            .tempdir_in(self.functions())?;
        for (name, bytes) in files {
            let path = incoming.path().join(name);
            if let Some(directory) = path.parent() {
                fs::create_dir_all(directory)?;
            }
            let mut file = File::create(&path)?;
            file.write_all(bytes)?;
            file.sync_all()?;
        }
        let name = &function.manifest.name;
        let target = self.directory(name).ok_or(Error::NoManifest)?;
        sync(incoming.path())?;
        // After the exchange, the old directory is where the temporary directory's owner deletes
        // it.
        let before = target.exists();
        let flags = if before {
            RenameFlags::EXCHANGE
        } else {
            RenameFlags::NOREPLACE
        };
        renameat_with(CWD, incoming.path(), CWD, &target, flags).map_err(io::Error::from)?;
        sync(&self.functions())?;
        Ok(Stored {
            function: Arc::new(function),
            target,
            before,
            place: incoming,
        })
    }

    /// A function, if it exists.
    pub fn get(&self, name: &str) -> Option<Result<Function, ManifestError>> {
        let directory = self.directory(name).filter(|d| d.is_dir())?;
        let function = Function::load(&directory).map_err(|error| ManifestError {
            // Callers do not need the server's path.
            file: Some(MANIFEST.into()),
            ..error
        });
        Some(if name.contains('.') {
            function.and_then(|function| pooled(name, function))
        } else {
            function
        })
    }

    /// The names of all functions.
    pub fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.functions())? {
            let name = entry?.file_name().into_string().unwrap_or_default();
            if valid_name(&name) {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Removes a function. Returns whether it existed.
    pub fn remove(&self, name: &str) -> io::Result<bool> {
        let Some(directory) = self.directory(name).filter(|d| d.is_dir()) else {
            return Ok(false);
        };
        // Moved away first, so that a partially deleted function is never visible.
        let away = tempfile::Builder::new()
            .prefix(".removed-")
            .tempdir_in(self.functions())?;
        fs::rename(&directory, away.path().join(name))?;
        sync(&self.functions())?;
        Ok(true)
    }

    fn directory(&self, name: &str) -> Option<PathBuf> {
        let valid = match name.split_once('.') {
            Some((function, namespace)) => valid_name(function) && valid_name(namespace),
            None => valid_name(name),
        };
        valid.then(|| self.functions().join(name))
    }

    /// Reads the saved deployments.
    pub fn deployments(&self) -> io::Result<Vec<Deployment>> {
        match fs::read(self.deployments_file()) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(e) => Err(e),
            Ok(text) => Ok(serde_json::from_slice(&text)?),
        }
    }

    /// Saves the deployments.
    pub fn save_deployments(&self, deployments: &[Deployment]) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(deployments)?;
        write_atomically(&self.deployments_file(), &text)
    }
}

/// Converts a function of the registry; the name in its manifest is the first part of `name`. The
/// function belongs to its namespace, so it must not name another tenant, and its native code is
/// not loaded here.
fn pooled(name: &str, mut function: Function) -> Result<Function, ManifestError> {
    let manifest = &mut function.manifest;
    let wrong = |reason: String| Err(ManifestError::new(reason));
    if name
        .split_once('.')
        .is_none_or(|(own, _)| own != manifest.name)
    {
        let own = &manifest.name;
        return wrong(format!(
            "the manifest's name is '{own}', must be the part of '{name}' before the dot"
        ));
    }
    let native = |i: &Implementation| matches!(i, Implementation::Native(_));
    if manifest.implementations.iter().any(native) {
        return wrong(
            "native functions are not accepted from the registry: deploy them at the gateway"
                .into(),
        );
    }
    manifest.name = name.to_owned();
    manifest.tenant = None;
    Ok(function)
}

/// Whether a name is a valid function name, as in manifests.
pub fn valid_name(name: &str) -> bool {
    let ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=63).contains(&name.len())
        && name.starts_with(ends)
        && name.ends_with(ends)
        && name.chars().all(|c| ends(c) || c == '-')
}

/// Checks that a path is relative and stays below the directory; returns it in the stored form.
pub fn file_name(path: &Path) -> Result<String, Error> {
    let refused = || Error::Name(path.to_string_lossy().chars().take(100).collect());
    let mut parts = Vec::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::Normal(part) => {
                let part = part.to_str().ok_or_else(refused)?;
                let valid =
                    |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+');
                if part.len() > 128 || part.starts_with('.') || !part.chars().all(valid) {
                    return Err(refused());
                }
                parts.push(part);
            }
            _ => return Err(refused()),
        }
    }
    if (1..=DEPTH_MAX).contains(&parts.len()) {
        Ok(parts.join("/"))
    } else {
        Err(refused())
    }
}

/// Parses a function from its files, under the registry's name if it has one.
fn read(files: &Files, name: Option<&str>) -> Result<Function, Error> {
    check(files)?;
    let text = files.get(MANIFEST).ok_or(Error::NoManifest)?;
    let text = std::str::from_utf8(text)
        .map_err(|_| ManifestError::new(format!("{MANIFEST} is not UTF-8")))?;
    let contents = baltra_functions::Files::from_contents(files.clone());
    let function = Function::from_files(text, contents).map_err(|error| ManifestError {
        file: Some(MANIFEST.into()),
        ..error
    })?;
    match name {
        Some(name) => Ok(pooled(name, function)?),
        None => Ok(function),
    }
}

fn check(files: &Files) -> Result<(), Error> {
    if files.len() > FILES_MAX {
        let text = format!("too many files: at most {FILES_MAX}");
        return Err(Error::TooLarge(text));
    }
    for name in files.keys() {
        if file_name(Path::new(name))? != *name {
            return Err(Error::Name(name.clone()));
        }
        let above = Path::new(name).ancestors().skip(1);
        let mut above = above.filter_map(Path::to_str);
        if let Some(both) = above.find(|directory| files.contains_key(*directory)) {
            return Err(Error::Both(both.to_owned()));
        }
    }
    if files.contains_key(MANIFEST) {
        Ok(())
    } else {
        Err(Error::NoManifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_lead_nowhere_else() {
        for (path, name) in [
            ("a.cl", "a.cl"),
            ("./lib/x.so", "lib/x.so"),
            ("a//b", "a/b"),
        ] {
            assert_eq!(file_name(Path::new(path)).unwrap(), name);
        }
        for path in [
            "",
            ".",
            "/etc/passwd",
            "../a",
            "a/../b",
            ".hidden",
            "a/.b",
            "a b",
            "a\0",
            "ä",
            "1/2/3/4/5/6/7/8/9",
        ] {
            assert!(file_name(Path::new(path)).is_err(), "{path:?}");
        }
    }

    #[test]
    fn a_function_without_a_manifest_leaves_nothing() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open(home.path()).unwrap();
        let files = Files::from([("a.cl".to_owned(), Bytes::from_static(b"x"))]);
        assert!(matches!(store.put(&files), Err(Error::NoManifest)));
        let wrong = Files::from([(MANIFEST.to_owned(), Bytes::from_static(b"name: ["))]);
        assert!(matches!(store.put(&wrong), Err(Error::Manifest(_))));
        assert_eq!(fs::read_dir(store.functions()).unwrap().count(), 0);
    }

    fn manifest(text: &str) -> Files {
        Files::from([(MANIFEST.to_owned(), Bytes::copy_from_slice(text.as_bytes()))])
    }

    #[test]
    fn a_function_of_the_registry_s_is_its_namespace_s() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open(home.path()).unwrap();
        let files = manifest(
            "name: id\ntenant: blue\ninputs: [{name: a, type: u8, shape: [n]}]\noutputs: [{name: b, type: u8, shape: [n]}]\n\
             implementations: [{opencl: {accelerator: id, kernel: id, global: [n]}}]\n",
        );
        let function = store.put_pooled("id.red", &files).unwrap().function;
        assert_eq!(function.manifest.name, "id.red");
        assert_eq!(function.manifest.tenant, None);
        let again = store.get("id.red").unwrap().unwrap();
        assert_eq!(again.manifest.name, "id.red");
        assert_eq!(again.digest, function.digest);
        // The function cannot be deployed, and does not prevent the deployment of others.
        assert!(store.list().unwrap().is_empty());
        assert_eq!(store.put(&files).unwrap().function.manifest.name, "id");
        for name in ["other.red", "id", "../id.red", "id.red.x", "id."] {
            assert!(store.put_pooled(name, &files).is_err(), "{name}");
        }
    }

    #[test]
    fn a_name_is_a_file_or_a_directory() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open(home.path()).unwrap();
        let mut files = manifest("name: id");
        files.insert("lib/x".to_owned(), Bytes::from_static(b"1"));
        files.insert("lib".to_owned(), Bytes::from_static(b"2"));
        let error = store.put(&files).unwrap_err();
        assert!(matches!(error, Error::Both(name) if name == "lib"));
        assert_eq!(fs::read_dir(store.functions()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_undone_was_never_there() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open(home.path()).unwrap();
        let of = |description: &str| {
            manifest(&format!(
                "name: id\ndescription: {description}\ninputs: [{{name: a, type: u8, shape: [n]}}]\n\
                 outputs: [{{name: b, type: u8, shape: [n]}}]\n\
                 implementations: [{{opencl: {{accelerator: id, kernel: id, global: [n]}}}}]\n"
            ))
        };
        store.put(&of("one")).unwrap().undo().unwrap();
        assert!(store.get("id").is_none());
        drop(store.put(&of("one")).unwrap());
        store.put(&of("two")).unwrap().undo().unwrap();
        let now = store.get("id").unwrap().unwrap();
        assert_eq!(now.manifest.description, "one");
        assert_eq!(fs::read_dir(store.functions()).unwrap().count(), 1);
    }

    #[test]
    fn native_code_is_not_taken_from_the_registry() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open(home.path()).unwrap();
        let mut files = manifest(
            "name: id\ninputs: [{name: a, type: u8, shape: [n]}]\noutputs: [{name: b, type: u8, shape: [n]}]\n\
             implementations: [{native: {library: id.so, symbol: id}}]\n",
        );
        files.insert("id.so".to_owned(), Bytes::from_static(b"\x7fELF"));
        assert!(store.put(&files).is_ok());
        let error = store.put_pooled("id.red", &files).unwrap_err();
        assert!(error.to_string().contains("native"), "{error}");
    }

    #[test]
    fn what_an_interrupted_upload_left_is_cleared_away() {
        let home = tempfile::tempdir().unwrap();
        let left = home.path().join("functions/.incoming-x/y");
        fs::create_dir_all(&left).unwrap();
        let store = Store::open(home.path()).unwrap();
        assert!(!left.exists());
        assert!(store.list().unwrap().is_empty());
    }

    #[test]
    fn a_directory_is_one_gateway_s() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open(home.path()).unwrap();
        let error = Store::open(home.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        drop(store);
        Store::open(home.path()).unwrap();
    }

    #[test]
    fn a_later_format_is_refused_and_stays_as_it_is() {
        let home = tempfile::tempdir().unwrap();
        let left = home.path().join("functions/.of-a-later-release");
        fs::create_dir_all(&left).unwrap();
        let format = home.path().join("format");
        for (text, reason) in [
            (format!("{}\n", FORMAT + 1), "the release that wrote it"),
            ("later".into(), "is not a number"),
            ("9".repeat(100), "is not a number"),
        ] {
            fs::write(&format, &text).unwrap();
            let error = Store::open(home.path()).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
            assert!(left.exists() && fs::read_to_string(&format).unwrap() == text);
        }
        // A directory of release 0.1.0 has no number.
        fs::remove_file(&format).unwrap();
        for _ in 0..2 {
            Store::open(home.path()).unwrap();
            assert_eq!(fs::read_to_string(&format).unwrap(), "1\n");
        }
    }

    #[test]
    fn deployments_come_back() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open(home.path()).unwrap();
        assert!(store.deployments().unwrap().is_empty());
        let deployment = Deployment {
            name: "a".into(),
            image: "b".into(),
            labels: BTreeMap::from([("k".into(), "v".into())]),
            annotations: BTreeMap::new(),
            replicas: 2,
            created_ms: 5,
        };
        store
            .save_deployments(std::slice::from_ref(&deployment))
            .unwrap();
        assert_eq!(store.deployments().unwrap(), [deployment]);
    }
}
