//! Persistent state: tenants, usage, and the number of the manager's starts.

use crate::accounts::Used;
use crate::tenants::Tenant;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, TableError};
use serde::{de::DeserializeOwned, Serialize};
use std::path::Path;

const TENANTS: TableDefinition<&str, &[u8]> = TableDefinition::new("tenants");
const USAGE: TableDefinition<(&str, &str), &[u8]> = TableDefinition::new("usage");
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");

/// The version of the rows' layout; stores of 0.1.0 have none. A store of a later version is
/// rejected, because rows that this release cannot read would be lost.
const FORMAT: u64 = 1;

/// The store cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another manager uses it.
    #[error("the state in {0} is in use by another manager: stop it (`baltra down`), or give this one its own with --state-dir")]
    Taken(String),
    /// A later release wrote it.
    #[error("the state in {path} has format {found}, but this release supports up to {FORMAT}: use the release that wrote it, or restore a backup")]
    Newer {
        /// The path.
        path: String,
        /// Its format.
        found: u64,
    },
    /// An I/O error, or a damaged file.
    #[error("cannot use the state in {path}")]
    Broken {
        /// The path.
        path: String,
        /// The reason.
        source: redb::Error,
    },
}

/// An embedded transactional store.
#[derive(Debug)]
pub struct Store {
    database: Database,
    path: String,
}

impl Store {
    /// Opens or creates the store.
    pub fn open(path: &Path) -> Result<Store, Error> {
        let name = path.display().to_string();
        match Database::create(path) {
            Ok(database) => Store {
                database,
                path: name,
            }
            .checked(),
            Err(redb::DatabaseError::DatabaseAlreadyOpen) => Err(Error::Taken(name)),
            Err(error) => Err(Error::Broken {
                path: name,
                source: error.into(),
            }),
        }
    }

    /// The store, if this release can read its rows.
    fn checked(self) -> Result<Store, Error> {
        let run = || -> Result<Option<u64>, redb::Error> {
            match self.database.begin_read()?.open_table(META) {
                Err(TableError::TableDoesNotExist(_)) => Ok(None),
                Err(other) => Err(other.into()),
                Ok(table) => Ok(table.get("format")?.map(|v| v.value())),
            }
        };
        match run().map_err(|e| self.broken(e))? {
            Some(found) if found > FORMAT => Err(Error::Newer {
                path: self.path,
                found,
            }),
            _ => Ok(self),
        }
    }

    fn broken(&self, source: impl Into<redb::Error>) -> Error {
        Error::Broken {
            path: self.path.clone(),
            source: source.into(),
        }
    }

    /// Counts a start of the manager; the first is 1.
    pub fn next_generation(&self) -> Result<u64, Error> {
        let run = || -> Result<u64, redb::Error> {
            let write = self.database.begin_write()?;
            let generation = {
                let mut table = write.open_table(META)?;
                let last = table.get("generation")?.map_or(0, |v| v.value());
                table.insert("generation", last + 1)?;
                table.insert("format", FORMAT)?;
                last + 1
            };
            write.commit()?;
            Ok(generation)
        };
        run().map_err(|e| self.broken(e))
    }

    /// All stored tenants.
    pub fn tenants(&self) -> Result<Vec<Tenant>, Error> {
        let run = || -> Result<Vec<Tenant>, redb::Error> {
            let read = self.database.begin_read()?;
            let table = match read.open_table(TENANTS) {
                Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
                other => other?,
            };
            let mut found = Vec::new();
            for entry in table.iter()? {
                found.extend(decode(entry?.1.value()));
            }
            Ok(found)
        };
        run().map_err(|e| self.broken(e))
    }

    /// Stores a tenant.
    pub fn put_tenant(&self, tenant: &Tenant) -> Result<(), Error> {
        let run = || -> Result<(), redb::Error> {
            let write = self.database.begin_write()?;
            let bytes = encode(tenant);
            write
                .open_table(TENANTS)?
                .insert(tenant.name.as_str(), bytes.as_slice())?;
            write.commit()?;
            Ok(())
        };
        run().map_err(|e| self.broken(e))
    }

    /// Removes a tenant; its usage stays recorded.
    pub fn remove_tenant(&self, name: &str) -> Result<(), Error> {
        let run = || -> Result<(), redb::Error> {
            let write = self.database.begin_write()?;
            write.open_table(TENANTS)?.remove(name)?;
            write.commit()?;
            Ok(())
        };
        run().map_err(|e| self.broken(e))
    }

    /// All recorded usage: tenant, device, totals.
    pub fn usage(&self) -> Result<Vec<(String, String, Used)>, Error> {
        let run = || -> Result<Vec<_>, redb::Error> {
            let read = self.database.begin_read()?;
            let table = match read.open_table(USAGE) {
                Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
                other => other?,
            };
            let mut found = Vec::new();
            for entry in table.iter()? {
                let (key, value) = entry?;
                let (tenant, device) = key.value();
                if let Some(used) = decode(value.value()) {
                    found.push((tenant.to_owned(), device.to_owned(), used));
                }
            }
            Ok(found)
        };
        run().map_err(|e| self.broken(e))
    }

    /// Records usage totals. A second of them may be lost in a power failure: they are not synced.
    pub fn put_usage<'a>(
        &self,
        all: impl IntoIterator<Item = (&'a str, &'a str, Used)>,
        synced: bool,
    ) -> Result<(), Error> {
        let run = || -> Result<(), redb::Error> {
            let mut write = self.database.begin_write()?;
            if !synced {
                write
                    .set_durability(redb::Durability::None)
                    .map_err(redb::Error::from)?;
            }
            {
                let mut table = write.open_table(USAGE)?;
                for (tenant, device, used) in all {
                    table.insert((tenant, device), encode(&used).as_slice())?;
                }
            }
            write.commit()?;
            Ok(())
        };
        run().map_err(|e| self.broken(e))
    }
}

fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain data has a JSON form")
}

/// Skips an entry that a newer release wrote and this one cannot read.
fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    serde_json::from_slice(bytes)
        .map_err(|error| tracing::warn!(%error, "skipped an unreadable entry of the state"))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_and_usage_survive_reopening() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.redb");
        let used = Used {
            busy_ns: 5,
            tasks: 2,
            ..Used::default()
        };
        {
            let store = Store::open(&path).unwrap();
            assert_eq!(store.next_generation().unwrap(), 1);
            store.put_tenant(&Tenant::named("red")).unwrap();
            store.put_tenant(&Tenant::named("blue")).unwrap();
            store.remove_tenant("blue").unwrap();
            store.put_usage([("red", "cpu", used)], false).unwrap();
            store.put_usage([("red", "gpu", used)], true).unwrap();
        }
        let store = Store::open(&path).unwrap();
        assert_eq!(store.next_generation().unwrap(), 2);
        assert_eq!(store.tenants().unwrap(), vec![Tenant::named("red")]);
        assert_eq!(store.usage().unwrap().len(), 2);
    }

    #[test]
    fn a_second_manager_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.redb");
        let _first = Store::open(&path).unwrap();
        assert!(matches!(Store::open(&path), Err(Error::Taken(_))));
    }

    #[test]
    fn a_later_format_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.redb");
        let store = Store::open(&path).unwrap();
        store.next_generation().unwrap();
        let write = store.database.begin_write().unwrap();
        let mut meta = write.open_table(META).unwrap();
        meta.insert("format", FORMAT + 1).unwrap();
        drop(meta);
        write.commit().unwrap();
        drop(store);
        let error = Store::open(&path).unwrap_err();
        assert!(matches!(error, Error::Newer { found: 2, .. }), "{error}");
    }
}
