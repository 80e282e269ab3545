//! Tenants: their identification, and their limits.

use crate::options::{valid_name, LimitOptions, TenantOptions};
use crate::store::{self, Store};
use baltra_gate::Share;
use baltra_ring::Locked;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Origin of a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// The configuration file; such a tenant cannot be changed over the control socket.
    Configuration,
    /// The command `baltra tenant add`.
    #[default]
    Store,
    /// Created for a user who connected; removed at the manager's exit.
    User,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Origin::Configuration => "configuration",
            Origin::Store => "store",
            Origin::User => "user",
        })
    }
}

/// A tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// Its weight under `fair`.
    pub weight: u32,
    /// Its priority under `priority`.
    pub priority: i32,
    /// Its limits that differ from the defaults.
    pub limits: LimitOptions,
    /// SHA-256 of its token, hexadecimal; empty: no token.
    pub token_sha256: String,
    /// Users who may use it over the Unix socket.
    pub users: Vec<u32>,
    /// The tenant to which it belongs for the registry; empty: itself.
    #[serde(default)]
    pub owner: String,
    /// The only devices that it may use; empty: all.
    #[serde(default)]
    pub devices: Vec<String>,
    /// Minimum percentage of a device's time while it demands it; 0: its fair part.
    #[serde(default)]
    pub share: u32,
    /// Maximum percentage of a device's time; 0: unlimited.
    #[serde(default)]
    pub share_max: u32,
    /// Its origin.
    #[serde(default)]
    pub origin: Origin,
}

impl Tenant {
    /// A tenant with default values.
    pub fn named(name: &str) -> Tenant {
        Tenant {
            name: name.to_owned(),
            weight: 1,
            priority: 0,
            limits: LimitOptions::default(),
            token_sha256: String::new(),
            users: Vec::new(),
            owner: String::new(),
            devices: Vec::new(),
            share: 0,
            share_max: 0,
            origin: Origin::Store,
        }
    }

    /// Its entitlement at a gate.
    pub fn share(&self) -> Share {
        Share {
            tenant: self.name.clone(),
            weight: self.weight,
            priority: self.priority,
            floor: self.share,
            ceiling: self.share_max,
        }
    }

    /// The tenant that the registry accounts it to.
    pub fn owner(&self) -> &str {
        match self.owner.as_str() {
            "" => &self.name,
            owner => owner,
        }
    }

    /// Whether it may use a device.
    pub fn may_use(&self, device: &str) -> bool {
        self.devices.is_empty() || self.devices.iter().any(|d| d == device)
    }
}

impl From<&TenantOptions> for Tenant {
    fn from(options: &TenantOptions) -> Tenant {
        Tenant {
            name: options.name.clone(),
            weight: options.weight,
            priority: options.priority,
            limits: options.limits,
            token_sha256: options.token_sha256.to_lowercase(),
            users: options.users.clone(),
            origin: Origin::Configuration,
            ..Tenant::named(&options.name)
        }
    }
}

/// Errors of an operator's or a client's request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The tenant does not exist.
    #[error("there is no tenant '{0}' (`baltra tenant ls` lists them)")]
    Unknown(String),
    /// The name exists already.
    #[error("tenant '{0}' already exists")]
    Exists(String),
    /// The name, weight or another value is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The tenant is defined in the configuration file.
    #[error("tenant '{0}' is defined in the configuration file: change it there")]
    Fixed(String),
    /// The store failed.
    #[error("cannot store the change")]
    Store(#[from] store::Error),
    /// The client may not act as that tenant.
    #[error("{0}")]
    NotAllowed(String),
}

/// The identity of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Over the Unix socket: by the user id that the kernel reports.
    User(u32),
    /// A remote client, identified by its token only.
    Remote,
}

/// All current tenants.
#[derive(Debug)]
pub struct Tenants {
    store: Arc<Store>,
    /// The daemon's own user, which, like root, may act as any tenant.
    own_user: u32,
    known: Mutex<BTreeMap<String, Tenant>>,
}

impl Tenants {
    /// Loads the tenants of the store and of the configuration, which has precedence.
    pub fn load(
        store: Arc<Store>,
        configured: &[TenantOptions],
        own_user: u32,
    ) -> Result<Tenants, store::Error> {
        let stored = store.tenants()?;
        let configured = configured.iter().map(Tenant::from);
        let known = stored
            .into_iter()
            .chain(configured)
            .map(|t| (t.name.clone(), t))
            .collect();
        Ok(Tenants {
            store,
            own_user,
            known: Mutex::new(known),
        })
    }

    fn known(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Tenant>> {
        self.known.locked()
    }

    /// All tenants, ordered by name.
    pub fn list(&self) -> Vec<Tenant> {
        self.known().values().cloned().collect()
    }

    /// The tenant with a name.
    pub fn get(&self, name: &str) -> Option<Tenant> {
        self.known().get(name).cloned()
    }

    /// Identifies a client's tenant: by its token, if it has one, otherwise by its user.
    pub fn identify(&self, peer: Peer, claimed: &str, token: &str) -> Result<Tenant, Error> {
        let denied = |text: String| Err(Error::NotAllowed(text));
        if !token.is_empty() {
            let hash = hash_token(token);
            let known = self.known();
            // The hash is compared, not the token, so that timing reveals nothing about the token.
            let found = known.values().find(|t| t.token_sha256 == hash);
            return match found {
                Some(t) if claimed.is_empty() || t.name == claimed => Ok(t.clone()),
                _ => denied(
                    "the token is invalid or has been replaced: request a new one from the operator (`baltra tenant token NAME`)".into(),
                ),
            };
        }
        let Peer::User(user) = peer else {
            return denied(
                "remote clients need a token: set BALTRA_TOKEN (the operator makes one with `baltra tenant token NAME`)".into(),
            );
        };
        let own_name = format!("uid-{user}");
        let trusted = user == 0 || user == self.own_user;
        let mut known = self.known();
        let name = if !claimed.is_empty() {
            claimed.to_owned()
        } else if let Some(t) = known.values().find(|t| t.users.contains(&user)) {
            t.name.clone()
        } else {
            own_name.clone()
        };
        match known.get(&name) {
            Some(t) if trusted || name == own_name || t.users.contains(&user) => Ok(t.clone()),
            None if trusted || name == own_name => {
                check_name(&name)?;
                let fresh = Tenant {
                    origin: Origin::User,
                    ..Tenant::named(&name)
                };
                known.insert(name, fresh.clone());
                Ok(fresh)
            }
            _ => denied(format!(
                "user {user} may not be tenant '{name}': ask the operator (`baltra tenant quota {name} --user {user}`), or leave BALTRA_TENANT unset"
            )),
        }
    }

    /// Adds a tenant. An existing one that was only created for a connected user is replaced.
    pub fn add(&self, tenant: Tenant) -> Result<Tenant, Error> {
        check_name(&tenant.name)?;
        check_weight(tenant.weight)?;
        check_share(tenant.share, tenant.share_max)?;
        let mut known = self.known();
        if known
            .get(&tenant.name)
            .is_some_and(|t| t.origin != Origin::User)
        {
            return Err(Error::Exists(tenant.name));
        }
        self.store.put_tenant(&tenant)?;
        known.insert(tenant.name.clone(), tenant.clone());
        Ok(tenant)
    }

    /// Changes a tenant and stores the change.
    pub fn change(&self, name: &str, edit: impl FnOnce(&mut Tenant)) -> Result<Tenant, Error> {
        let mut known = self.known();
        let Some(current) = known.get(name) else {
            return Err(Error::Unknown(name.to_owned()));
        };
        if current.origin == Origin::Configuration {
            return Err(Error::Fixed(name.to_owned()));
        }
        let mut tenant = current.clone();
        edit(&mut tenant);
        tenant.origin = Origin::Store;
        check_weight(tenant.weight)?;
        self.store.put_tenant(&tenant)?;
        known.insert(name.to_owned(), tenant.clone());
        Ok(tenant)
    }

    /// Creates a token for a tenant; only its hash is stored.
    pub fn new_token(&self, name: &str) -> Result<String, Error> {
        let mut bytes = [0u8; 24];
        getrandom::fill(&mut bytes).map_err(|e| {
            Error::Invalid(format!("cannot read random bytes from the kernel: {e}"))
        })?;
        let token = format!("baltra_{}", hex(&bytes));
        self.change(name, |t| t.token_sha256 = hash_token(&token))?;
        Ok(token)
    }

    /// Removes a tenant.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        let mut known = self.known();
        match known.get(name).map(|t| t.origin) {
            None => Err(Error::Unknown(name.to_owned())),
            Some(Origin::Configuration) => Err(Error::Fixed(name.to_owned())),
            Some(_) => {
                self.store.remove_tenant(name)?;
                known.remove(name);
                Ok(())
            }
        }
    }
}

fn check_name(name: &str) -> Result<(), Error> {
    if valid_name(name) {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "invalid tenant name '{}': expected 1 to 63 letters, digits, '-', '_' or '.', starting with a letter or digit",
        name.chars().take(64).collect::<String>().escape_debug()
    )))
}

fn check_weight(weight: u32) -> Result<(), Error> {
    if (1..=10_000).contains(&weight) {
        return Ok(());
    }
    Err(Error::Invalid(
        "the weight must lie between 1 and 10000".into(),
    ))
}

fn check_share(share: u32, share_max: u32) -> Result<(), Error> {
    if share <= 100 && share_max <= 100 && (share_max == 0 || share <= share_max) {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "invalid share {share} % with maximum {share_max} %: both must be 0 to 100, and the maximum 0 (unlimited) or at least the share"
    )))
}

/// The SHA-256 of a token, hexadecimal.
pub fn hash_token(token: &str) -> String {
    hex(&Sha256::digest(token.as_bytes()))
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenants(configured: &[TenantOptions]) -> (tempfile::TempDir, Tenants) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("s")).unwrap();
        let tenants = Tenants::load(Arc::new(store), configured, 1000).unwrap();
        (dir, tenants)
    }

    #[test]
    fn each_user_is_its_own_tenant_by_default() {
        let (_dir, t) = tenants(&[]);
        assert_eq!(t.identify(Peer::User(7), "", "").unwrap().name, "uid-7");
        assert_eq!(
            t.identify(Peer::User(7), "uid-7", "").unwrap().name,
            "uid-7"
        );
        assert!(t.identify(Peer::User(7), "uid-8", "").is_err());
        assert!(t.identify(Peer::User(7), "red", "").is_err());
    }

    #[test]
    fn root_and_the_daemons_user_may_be_anybody() {
        let (_dir, t) = tenants(&[]);
        assert_eq!(t.identify(Peer::User(0), "red", "").unwrap().name, "red");
        assert_eq!(
            t.identify(Peer::User(1000), "blue", "").unwrap().name,
            "blue"
        );
        assert!(t.identify(Peer::User(0), "a/../b", "").is_err());
        assert!(t.identify(Peer::User(0), &"x".repeat(5000), "").is_err());
    }

    #[test]
    fn a_listed_user_is_that_tenant() {
        let (_dir, t) = tenants(&[]);
        let red = Tenant {
            users: vec![7],
            ..Tenant::named("red")
        };
        t.add(red).unwrap();
        assert_eq!(t.identify(Peer::User(7), "", "").unwrap().name, "red");
        assert_eq!(t.identify(Peer::User(7), "red", "").unwrap().name, "red");
        assert!(t.identify(Peer::User(8), "red", "").is_err());
    }

    #[test]
    fn only_the_newest_token_counts() {
        let (_dir, t) = tenants(&[]);
        t.add(Tenant::named("red")).unwrap();
        assert!(t.identify(Peer::Remote, "red", "").is_err());
        let first = t.new_token("red").unwrap();
        let second = t.new_token("red").unwrap();
        assert!(t.identify(Peer::Remote, "", &first).is_err());
        assert_eq!(t.identify(Peer::Remote, "", &second).unwrap().name, "red");
        assert!(t.identify(Peer::Remote, "blue", &second).is_err());
        let stored = &t.get("red").unwrap().token_sha256;
        assert!(!stored.contains(&second[7..]));
    }

    #[test]
    fn configured_tenants_are_changed_in_the_configuration() {
        let options: TenantOptions = toml::from_str("name = 'red'\nweight = 3").unwrap();
        let (_dir, t) = tenants(&[options]);
        assert!(matches!(t.remove("red"), Err(Error::Fixed(_))));
        assert!(matches!(t.new_token("red"), Err(Error::Fixed(_))));
        assert!(matches!(t.add(Tenant::named("red")), Err(Error::Exists(_))));
        assert_eq!(t.get("red").unwrap().weight, 3);
    }
}
