//! Persistent state: nodes, allocations, functions and pools, in one file.
//!
//! Every change is one transaction that is on the disk before its caller is notified (redb,
//! `fsync`), so a registry that is killed at any instruction restarts with all acknowledged
//! changes. A write that fails (a full disk) returns an error and leaves the file unchanged; the
//! next write reopens the file, because redb rejects all operations after a failed write. The
//! revision, which every transaction increments, then shows whether the failed write took effect.

use crate::lock::{self, Lock};
use crate::records::{Change, Image};
use redb::{
    Database, ReadableDatabase, ReadableTable, TableDefinition, TableError, WriteTransaction,
};
use serde::{de::DeserializeOwned, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

type Rows = TableDefinition<'static, &'static str, &'static [u8]>;

const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
const NODES: Rows = TableDefinition::new("nodes");
const INSTANCES: Rows = TableDefinition::new("instances");
const FUNCTIONS: Rows = TableDefinition::new("functions");
const CONTENTS: Rows = TableDefinition::new("contents");
const POOLS: Rows = TableDefinition::new("pools");

/// The version of the rows' layout. A store of a later version is rejected.
const FORMAT: u64 = 1;

/// The store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another registry uses it, or the directory is unusable.
    #[error(transparent)]
    Lock(#[from] lock::Error),
    /// A later release wrote it.
    #[error("the store {} has format {found}, but this release supports up to {FORMAT}: use the release that wrote it", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
    },
    /// A row is corrupt.
    #[error("the store {} is corrupt: cannot read '{key}' in {table}: restore the file from a backup, or move it away to start empty", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The row.
        key: String,
        /// Its table.
        table: String,
        /// The reason.
        source: serde_json::Error,
    },
    /// The registry is stopping.
    #[error("the registry is stopping")]
    Closed,
    /// The disk is full or failed.
    #[error("cannot access the store {}: is the disk full?", path.display())]
    Disk {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: Box<redb::Error>,
    },
}

/// An embedded transactional store.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    file: Mutex<File>,
}

#[derive(Debug)]
struct File {
    /// `None`: the last write failed, and the file has to be reopened.
    database: Option<Database>,
    /// `None`: it is closed.
    lock: Option<Lock>,
}

impl Store {
    /// Opens or creates the store of a directory and counts a start.
    pub fn open(directory: &Path) -> Result<(Store, Image), Error> {
        let lock = Lock::take(directory)?;
        let store = Store {
            path: directory.join("registry.redb"),
            file: Mutex::new(File {
                database: None,
                lock: Some(lock),
            }),
        };
        store.check_format()?;
        store.write(|write| {
            let mut meta = write.open_table(META)?;
            let last = meta.get("generation")?.map_or(0, |v| v.value());
            meta.insert("generation", last + 1)?;
            if meta.get("format")?.is_none() {
                meta.insert("format", FORMAT)?;
            }
            Ok(())
        })?;
        let image = store.load()?;
        Ok((store, image))
    }

    /// Writes all changes atomically; they are on the disk when this returns.
    pub fn commit(&self, changes: &[Change]) -> Result<(), Error> {
        self.write(|write| {
            for change in changes {
                carry_out(write, change)?;
            }
            let mut meta = write.open_table(META)?;
            let revision = meta.get("revision")?.map_or(0, |v| v.value());
            meta.insert("revision", revision + 1)?;
            Ok(())
        })
    }

    /// Loads everything except the functions' contents.
    pub fn load(&self) -> Result<Image, Error> {
        let meta = self.read(|read| {
            let table = match read.open_table(META) {
                Err(TableError::TableDoesNotExist(_)) => return Ok(BTreeMap::new()),
                other => other?,
            };
            let mut found = BTreeMap::new();
            for entry in table.iter()? {
                let (key, value) = entry?;
                found.insert(key.value().to_owned(), value.value());
            }
            Ok(found)
        })?;
        let number = |key: &str| meta.get(key).copied().unwrap_or(0);
        Ok(Image {
            revision: number("revision"),
            generation: number("generation"),
            nodes: self.rows(NODES)?,
            instances: self.rows(INSTANCES)?,
            functions: self.rows(FUNCTIONS)?,
            pools: self.rows(POOLS)?,
        })
    }

    fn check_format(&self) -> Result<(), Error> {
        let found = self.read(|read| match read.open_table(META) {
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            Err(other) => Err(other.into()),
            Ok(table) => Ok(table.get("format")?.map(|v| v.value())),
        })?;
        match found {
            Some(found) if found > FORMAT => Err(Error::Newer {
                path: self.path.clone(),
                found,
            }),
            _ => Ok(()),
        }
    }

    /// A function's content.
    pub fn content(&self, function: &str) -> Result<Option<Vec<u8>>, Error> {
        self.read(|read| {
            let table = match read.open_table(CONTENTS) {
                Err(TableError::TableDoesNotExist(_)) => return Ok(None),
                other => other?,
            };
            let found = table.get(function)?;
            Ok(found.map(|v| v.value().to_vec()))
        })
    }

    fn rows<T: DeserializeOwned>(&self, rows: Rows) -> Result<BTreeMap<String, T>, Error> {
        let raw = self.read(|read| {
            let table = match read.open_table(rows) {
                Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
                other => other?,
            };
            let mut raw = Vec::new();
            for entry in table.iter()? {
                let (key, value) = entry?;
                raw.push((key.value().to_owned(), value.value().to_vec()));
            }
            Ok(raw)
        })?;
        let mut found = BTreeMap::new();
        for (key, bytes) in raw {
            let value = serde_json::from_slice(&bytes).map_err(|source| Error::Damaged {
                path: self.path.clone(),
                key: key.clone(),
                table: format!("{rows}"),
                source,
            })?;
            found.insert(key, value);
        }
        Ok(found)
    }

    fn write(
        &self,
        carry_out: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<(), Error> {
        let mut file = self.file.lock().unwrap_or_else(|e| e.into_inner());
        let database = self.opened(&mut file)?;
        let written = || -> Result<(), redb::Error> {
            let mut write = database.begin_write()?;
            // Two-phase: a crash between the phases is detected without a checksum of the whole
            // file.
            write.set_two_phase_commit(true);
            carry_out(&write)?;
            write.commit()?;
            Ok(())
        };
        written().map_err(|source| {
            file.database = None;
            self.disk(source)
        })
    }

    fn read<T>(
        &self,
        look: impl FnOnce(&redb::ReadTransaction) -> Result<T, redb::Error>,
    ) -> Result<T, Error> {
        let mut file = self.file.lock().unwrap_or_else(|e| e.into_inner());
        let database = self.opened(&mut file)?;
        let found = || -> Result<T, redb::Error> { look(&database.begin_read()?) };
        found().map_err(|source| {
            file.database = None;
            self.disk(source)
        })
    }

    fn opened<'a>(&self, file: &'a mut File) -> Result<&'a Database, Error> {
        if file.lock.is_none() {
            return Err(Error::Closed);
        }
        if file.database.is_none() {
            let opened = Database::builder()
                .set_cache_size(64 << 20)
                .create(&self.path);
            file.database = Some(opened.map_err(|e| self.disk(e.into()))?);
        }
        Ok(file.database.as_ref().expect("it was just opened"))
    }

    /// Releases the file to another registry. All further operations fail.
    pub fn close(&self) {
        let mut file = self.file.lock().unwrap_or_else(|e| e.into_inner());
        file.database = None;
        file.lock = None;
    }

    fn disk(&self, source: redb::Error) -> Error {
        Error::Disk {
            path: self.path.clone(),
            source: Box::new(source),
        }
    }
}

fn carry_out(write: &WriteTransaction, change: &Change) -> Result<(), redb::Error> {
    match change {
        Change::PutNode(r) => put(write, NODES, &r.name, r),
        Change::RemoveNode(name) => remove(write, NODES, name),
        Change::PutInstance(r) => put(write, INSTANCES, &r.name, r),
        Change::RemoveInstance(name) => remove(write, INSTANCES, name),
        Change::PutFunction(r, content) => {
            put(write, FUNCTIONS, &r.name, r)?;
            let mut table = write.open_table(CONTENTS)?;
            table.insert(r.name.as_str(), content.as_slice())?;
            Ok(())
        }
        Change::RemoveFunction(name) => {
            remove(write, FUNCTIONS, name)?;
            remove(write, CONTENTS, name)
        }
        Change::PutPool(r) => put(write, POOLS, &r.name, r),
        Change::RemovePool(name) => remove(write, POOLS, name),
    }
}

fn put<T: Serialize>(
    write: &WriteTransaction,
    rows: Rows,
    key: &str,
    value: &T,
) -> Result<(), redb::Error> {
    let bytes = serde_json::to_vec(value).expect("records serialize to JSON");
    write.open_table(rows)?.insert(key, bytes.as_slice())?;
    Ok(())
}

fn remove(write: &WriteTransaction, rows: Rows, key: &str) -> Result<(), redb::Error> {
    write.open_table(rows)?.remove(key)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{FunctionRecord, InstanceRecord, NodeRecord, PoolRecord, StoredQuery};

    fn changes() -> Vec<Change> {
        let name = || "one".to_owned();
        vec![
            Change::PutNode(NodeRecord {
                name: name(),
                endpoints: vec!["unix:/run/x".into()],
                ..NodeRecord::default()
            }),
            Change::PutInstance(InstanceRecord {
                name: name(),
                query: StoredQuery::read("vendor=x".into()),
                ..InstanceRecord::default()
            }),
            Change::PutFunction(
                FunctionRecord {
                    name: name(),
                    ..FunctionRecord::default()
                },
                b"content".to_vec(),
            ),
            Change::PutPool(PoolRecord {
                name: name(),
                ..PoolRecord::default()
            }),
        ]
    }

    #[test]
    fn memory_and_disk_agree_after_every_change() {
        let dir = tempfile::tempdir().unwrap();
        let (store, mut image) = Store::open(dir.path()).unwrap();
        assert_eq!(image.generation, 1);
        for change in changes() {
            store.commit(std::slice::from_ref(&change)).unwrap();
            image.apply(vec![change]);
            assert_eq!(store.load().unwrap(), image);
        }
        assert_eq!(store.content("one").unwrap().unwrap(), b"content");
        drop(store);
        let (store, reopened) = Store::open(dir.path()).unwrap();
        image.generation = 2;
        assert_eq!(reopened, image);
        let removals = ["one".to_owned()];
        let removals = removals.iter().flat_map(|n| {
            [
                Change::RemoveNode(n.clone()),
                Change::RemoveInstance(n.clone()),
                Change::RemoveFunction(n.clone()),
                Change::RemovePool(n.clone()),
            ]
        });
        store.commit(&removals.collect::<Vec<_>>()).unwrap();
        let empty = store.load().unwrap();
        assert!(empty.nodes.is_empty() && empty.instances.is_empty());
        assert!(empty.functions.is_empty() && empty.pools.is_empty());
        assert_eq!(store.content("one").unwrap(), None);
    }

    #[test]
    fn a_second_registry_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let _first = Store::open(dir.path()).unwrap();
        let error = Store::open(dir.path()).unwrap_err();
        assert!(matches!(error, Error::Lock(lock::Error::Taken { .. })));
    }

    #[test]
    fn a_later_format_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(dir.path()).unwrap();
        store
            .write(|w| {
                w.open_table(META)?.insert("format", FORMAT + 1)?;
                Ok(())
            })
            .unwrap();
        drop(store);
        let error = Store::open(dir.path()).unwrap_err();
        assert!(matches!(error, Error::Newer { found: 2, .. }), "{error}");
    }

    #[test]
    fn a_damaged_row_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(dir.path()).unwrap();
        store
            .write(|w| {
                w.open_table(NODES)?.insert("n1", b"{".as_slice())?;
                Ok(())
            })
            .unwrap();
        drop(store);
        let error = Store::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("'n1' in nodes"), "{error}");
    }

    #[test]
    fn a_file_that_is_no_store_is_refused_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("registry.redb");
        std::fs::write(&path, b"something else, long enough to be looked at").unwrap();
        Store::open(dir.path()).unwrap_err();
        let kept = std::fs::read(&path).unwrap();
        assert_eq!(kept, b"something else, long enough to be looked at");
    }

    #[test]
    fn a_failed_write_leaves_the_store_usable() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(dir.path()).unwrap();
        store.commit(&changes()).unwrap();
        let before = store.load().unwrap();
        store.write(|_| Err(redb::Error::PreviousIo)).unwrap_err();
        assert_eq!(store.load().unwrap(), before);
        store.commit(&changes()).unwrap();
        assert_eq!(store.load().unwrap().revision, before.revision + 1);
    }
}
