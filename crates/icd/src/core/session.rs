//! The process's sessions: the managers, and one session for each device in use.

use crate::core::callback;
use crate::core::context::Context;
use crate::core::object::WeakRef;
use baltra_ring::Locked;
use baltra_session::client::{Client, Handler};
use baltra_session::Endpoint;
use baltra_wire::{DeviceDescription, Hello, Id, VERSION};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// The devices of the manager at `endpoint`.
pub struct Offer {
    /// The manager's node.
    pub node: String,
    /// The manager's endpoint.
    pub endpoint: Endpoint,
    /// The devices, with the tenant's limits applied by the caller.
    pub devices: Vec<DeviceDescription>,
    /// Device memory that the tenant may have, bytes.
    pub memory_bytes: u64,
}

/// The environment variable or, if it is not set, the value in the file that `BALTRA_ENVIRONMENT`
/// names: `NAME=value` lines, which other users cannot read, unlike a program's environment.
pub fn variable(name: &str) -> String {
    match std::env::var(name) {
        Ok(value) => value,
        Err(_) => file_variable(name).unwrap_or_default(),
    }
}

fn file_variable(name: &str) -> Option<String> {
    let path = std::env::var_os("BALTRA_ENVIRONMENT").filter(|path| !path.is_empty())?;
    // Read each time: a program's permissions may change while it runs.
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => {
            let path = path.to_string_lossy();
            eprintln!("baltra: BALTRA_ENVIRONMENT: {path}: {error}");
            return None;
        }
    };
    let lines = text.lines().filter_map(|line| line.split_once('='));
    let mut found = lines.filter(|(key, _)| key.trim() == name);
    found.next().map(|(_, value)| value.trim().to_owned())
}

/// The directory of the daemons' sockets: `$BALTRA_RUNTIME_DIR`, `$XDG_RUNTIME_DIR/baltra`,
/// `/run/baltra` (root), `/tmp/baltra-<uid>`.
fn runtime_dirs() -> Vec<PathBuf> {
    let named = variable("BALTRA_RUNTIME_DIR");
    if !named.is_empty() {
        return vec![named.into()];
    }
    let mut dirs = Vec::new();
    let session = variable("XDG_RUNTIME_DIR");
    if !session.is_empty() {
        dirs.push(PathBuf::from(session).join("baltra"));
    }
    dirs.push("/run/baltra".into());
    // SAFETY: has no preconditions.
    let uid = unsafe { libc::getuid() };
    dirs.push(format!("/tmp/baltra-{uid}").into());
    dirs
}

/// The managers to query: the host's in a VM with `BALTRA_TRANSPORT=ivshmem`, otherwise those of
/// `BALTRA_ENDPOINT`, separated by commas, or the first default socket that exists.
pub fn endpoints() -> Vec<Endpoint> {
    match variable("BALTRA_TRANSPORT").as_str() {
        "" => {}
        "ivshmem" => return vec![Endpoint::Ivshmem(String::new())],
        other => {
            eprintln!(
                "baltra: BALTRA_TRANSPORT: unknown transport '{other}' (unset the variable, or set it to 'ivshmem')"
            );
            return Vec::new();
        }
    }
    let named = variable("BALTRA_ENDPOINT");
    if !named.is_empty() {
        let parse = |text: &str| match text.parse() {
            Ok(endpoint) => Some(endpoint),
            Err(error) => {
                eprintln!("baltra: BALTRA_ENDPOINT: {text}: {error}");
                None
            }
        };
        return named.split(',').map(str::trim).filter_map(parse).collect();
    }
    let sockets = runtime_dirs().into_iter().map(|d| d.join("baltra.sock"));
    let found = sockets.into_iter().find(|socket| socket.exists());
    found.map(Endpoint::Unix).into_iter().collect()
}

fn hello(device: &str) -> Hello {
    let program = std::env::current_exe().unwrap_or_default();
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    Hello {
        version: VERSION,
        tenant: variable("BALTRA_TENANT"),
        token: variable("BALTRA_TOKEN"),
        instance: match variable("BALTRA_INSTANCE") {
            none if none.is_empty() => format!("{name} ({})", std::process::id()),
            given => given,
        },
        device: device.to_owned(),
        resume: None,
        mirror: false,
    }
}

/// An error and why it came to it.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

/// Whether `BALTRA_DEVICE` (names or `node/name`, separated by commas; empty: all) selects a
/// device.
fn is_selected(list: &str, node: &str, name: &str) -> bool {
    let mut entries = list.split(',').map(str::trim).filter(|e| !e.is_empty());
    let means = |entry: &str| match entry.rsplit_once('/') {
        Some((at, device)) => at == node && device == name,
        None => entry == name,
    };
    list.trim().is_empty() || entries.any(means)
}

/// Lists every manager's devices. Managers that do not answer are reported on stderr, because
/// OpenCL has no other place for such errors, and skipped.
pub fn list() -> Vec<Offer> {
    let mut offers = Vec::new();
    let named = variable("BALTRA_DEVICE");
    let mut others = Vec::new();
    for endpoint in endpoints() {
        match Client::list(&endpoint, hello("")) {
            Ok(mut welcome) => {
                let node = welcome.node.clone();
                let node = &node;
                let (devices, left): (Vec<_>, Vec<_>) = std::mem::take(&mut welcome.devices)
                    .into_iter()
                    .partition(|d| is_selected(&named, node, &d.name));
                others.extend(left.into_iter().map(|d| format!("{node}/{}", d.name)));
                offers.push(Offer {
                    node: welcome.node,
                    endpoint,
                    devices,
                    memory_bytes: welcome.limits.memory_bytes,
                });
            }
            Err(error) => eprintln!("baltra: {}", with_causes(&error)),
        }
    }
    if !others.is_empty() && offers.iter().all(|o| o.devices.is_empty()) {
        let others = others.join(", ");
        eprintln!("baltra: BALTRA_DEVICE: no device is named '{named}' (available: {others})");
    }
    offers
}

/// A session, while one is open.
type SessionSlot = Arc<Mutex<Option<Arc<Session>>>>;

/// The process's sessions, by endpoint and device.
#[derive(Default)]
pub struct Sessions(Mutex<HashMap<(String, String), SessionSlot>>);

impl Sessions {
    fn place(&self, endpoint: &Endpoint, device: &str) -> SessionSlot {
        let mut all = self.0.locked();
        let place = all.entry((endpoint.to_string(), device.to_owned()));
        place.or_default().clone()
    }

    /// A device's session, opened by the first caller; a lost one is replaced. `facts`: those that
    /// the program has read about the device.
    pub fn of(
        &self,
        endpoint: &Endpoint,
        device: &str,
        facts: impl FnOnce() -> u64,
    ) -> Option<Arc<Session>> {
        let place = self.place(endpoint, device);
        let mut open = place.locked();
        if let Some(session) = &*open {
            if session.client.is_lost().is_none() {
                return Some(session.clone());
            }
        }
        let session = Arc::new(Session::open(endpoint, device)?);
        session.client.report_facts(facts());
        *open = Some(session.clone());
        Some(session)
    }

    /// A device's session, if one is open. Waits until one that is being opened is open.
    pub fn existing(&self, endpoint: &Endpoint, device: &str) -> Option<Arc<Session>> {
        let place = self.place(endpoint, device);
        let open = place.locked();
        open.clone()
    }

    /// Whether a device's session has been lost and not been replaced.
    pub fn is_lost(&self, endpoint: &Endpoint, device: &str) -> bool {
        let place = self.place(endpoint, device);
        let open = place.locked();
        open.as_ref().is_some_and(|s| s.client.is_lost().is_some())
    }
}

/// An open session.
pub struct Session {
    /// Its client end.
    pub client: Arc<Client>,
    listener: Arc<Listener>,
}

impl Session {
    /// Opens a session on a device. The reason of a failure is reported on stderr.
    pub fn open(endpoint: &Endpoint, device: &str) -> Option<Session> {
        let listener = Arc::new(Listener::default());
        match Client::connect(endpoint, hello(device), listener.clone()) {
            Ok(client) => Some(Session { client, listener }),
            Err(error) => {
                eprintln!("baltra: device {device}: {}", with_causes(&error));
                None
            }
        }
    }

    /// Errors in the context go to its callback from now on.
    pub fn register(&self, id: Id, context: WeakRef<Context>) {
        let mut contexts = self.listener.contexts.lock().expect("no panic under it");
        contexts.insert(id, context);
    }

    /// Removes a released context.
    pub fn forget(&self, id: Id) {
        let mut contexts = self.listener.contexts.lock().expect("no panic under it");
        contexts.remove(&id);
    }
}

/// Receives the executor's notifications.
#[derive(Default)]
struct Listener {
    contexts: Mutex<HashMap<Id, WeakRef<Context>>>,
}

impl Handler for Listener {
    fn printed(&self, text: &[u8]) {
        print(text);
    }

    fn context_error(&self, context: Id, text: &str) {
        let contexts = self.contexts.lock().expect("no panic under it");
        if let Some(context) = contexts.get(&context).and_then(WeakRef::upgrade) {
            context.report(text);
        }
    }

    fn lost(&self, _code: i32, text: &str) {
        let contexts: Vec<_> = {
            let contexts = self.contexts.lock().expect("no panic under it");
            contexts.values().filter_map(WeakRef::upgrade).collect()
        };
        for context in &contexts {
            context.report(text);
        }
        callback::run(move || drop(contexts));
    }
}

extern "C" {
    /// C's `stdout`: kernels print to the same stream as the program's own `printf`, in order.
    static stdout: *mut libc::FILE;
}

fn print(text: &[u8]) {
    // SAFETY: the C library's own stream, which locks itself; the text is borrowed for the call.
    unsafe {
        libc::fwrite(text.as_ptr().cast(), 1, text.len(), stdout);
        libc::fflush(stdout);
    }
}

#[cfg(test)]
mod tests {
    use super::is_selected;

    #[test]
    fn a_device_is_meant_by_its_name_anywhere_or_at_its_node() {
        assert!(is_selected("", "east", "cpu0") && is_selected(" ", "east", "cpu0"));
        assert!(is_selected("cpu0", "east", "cpu0") && !is_selected("cpu0", "east", "cpu1"));
        assert!(is_selected("west/cpu0, east/cpu0", "east", "cpu0"));
        assert!(!is_selected("west/cpu0,cpu1", "east", "cpu0"));
    }
}
