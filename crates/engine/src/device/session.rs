//! Sessions with Device Managers. Spare sessions are opened for devices in use, so that loading a
//! function does not wait for one.

use super::error::StartError;
use crate::log::Log;
use crate::placement::{hello, Candidate};
use baltra_ring::Locked;
use baltra_session::client::{Client, Handler};
use baltra_wire::Id;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

/// An open session.
pub struct Session {
    /// Client end of the session.
    pub client: Arc<Client>,
    /// Receives the reason of its end and its output.
    pub listener: Arc<Listener>,
}

impl Session {
    fn open(place: &Candidate, tenant: &str, turns: u32) -> Result<Session, StartError> {
        let listener = Arc::new(Listener {
            node: place.node.clone(),
            log: OnceLock::new(),
            reason: Mutex::default(),
        });
        let instance = place.instance.as_deref();
        let target = (place.device.name.as_str(), turns);
        let hello = hello(tenant, &place.token, target, instance);
        let client = Client::connect(&place.endpoint, hello, listener.clone())?;
        Ok(Session { client, listener })
    }
}

/// Receives the executor's notifications.
pub struct Listener {
    node: String,
    log: OnceLock<Arc<Log>>,
    reason: Mutex<Option<String>>,
}

impl Listener {
    /// Attributes all further output to this function.
    pub fn belongs_to(&self, log: &Arc<Log>) {
        let _ = self.log.set(log.clone());
    }

    /// Why the session ended.
    pub fn reason(&self) -> Option<String> {
        self.reason.lock().expect("no panic under it").clone()
    }
}

impl Handler for Listener {
    fn printed(&self, bytes: &[u8]) {
        if let Some(log) = self.log.get() {
            log.print(&self.node, bytes);
        }
    }

    fn context_error(&self, _: Id, text: &str) {
        if let Some(log) = self.log.get() {
            log.line(&self.node, text);
        }
    }

    fn lost(&self, _: i32, text: &str) {
        *self.reason.lock().expect("no panic under it") = Some(text.to_owned());
        self.context_error(0, text);
    }
}

/// Endpoint, device, tenant, instance.
type Key = (String, String, String, Option<String>);

/// Spare sessions, which no function uses yet.
pub struct Sessions {
    spare_max: usize,
    spares: Mutex<HashMap<Key, Vec<Session>>>,
}

impl Sessions {
    /// Keeps at most `spare_max` spare sessions for each device and tenant in use.
    pub fn new(spare_max: usize) -> Arc<Sessions> {
        Arc::new(Sessions {
            spare_max,
            spares: Mutex::default(),
        })
    }

    /// Takes a session of the tenant with the place's device, for work that needs this number of
    /// turns at once. Blocks if it has to be opened.
    pub fn take(&self, place: &Candidate, tenant: &str, turns: u32) -> Result<Session, StartError> {
        if turns > 1 {
            return Session::open(place, tenant, turns);
        }
        let key = key(place, tenant);
        loop {
            let spare = {
                let mut spares = self.spares.locked();
                spares.get_mut(&key).and_then(Vec::pop)
            };
            match spare {
                Some(session) if session.client.is_lost().is_none() => return Ok(session),
                Some(_) => continue,
                None => return Session::open(place, tenant, 1),
            }
        }
    }

    /// Opens missing spare sessions. Blocks.
    pub fn refill(&self, place: &Candidate, tenant: &str) {
        let key = key(place, tenant);
        let missing = || {
            let mut spares = self.spares.locked();
            let have = spares.entry(key.clone()).or_default();
            have.retain(|session| session.client.is_lost().is_none());
            have.len() < self.spare_max
        };
        while missing() {
            let Ok(session) = Session::open(place, tenant, 1) else {
                return;
            };
            let mut spares = self.spares.locked();
            spares.entry(key.clone()).or_default().push(session);
        }
    }

    /// Closes all unused sessions of a tenant.
    pub fn forget(&self, tenant: &str) {
        let mut spares = self.spares.locked();
        spares.retain(|key, _| key.2 != tenant);
    }
}

fn key(place: &Candidate, tenant: &str) -> Key {
    (
        place.endpoint.to_string(),
        place.device.name.clone(),
        tenant.to_owned(),
        place.instance.clone(),
    )
}
