//! Images that an operator loads: an executor has the driver load the image and reports the result.

use crate::node::{Device, Node};
use baltra_api::registry as proto;
use baltra_wire::executor::ToExecutor;
use baltra_wire::opencl::DEVICE_NAME;
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::sync::Mutex;
use std::time::Duration;

/// Time limit for a driver to load an image.
const LOAD_MAX: Duration = Duration::from_secs(600);
/// The executor that loads images serves no tenant; a tenant cannot have this name.
const OPERATOR: &str = "(operator)";

/// Loads in progress.
#[derive(Default)]
pub(crate) struct Loads(Mutex<HashMap<u64, Load>>);

/// A load in progress.
struct Load {
    executor: u64,
    result: Sender<Result<(), String>>,
}

impl Loads {
    fn begin(&self, call: u64, executor: u64, result: Sender<Result<(), String>>) {
        let mut loads = self.0.lock().expect("no panic under this lock");
        loads.insert(call, Load { executor, result });
    }

    /// An executor reports the end of a load; `error` is empty if the driver accepted the image.
    pub fn end(&self, executor: u64, call: u64, error: &str) {
        let mut loads = self.0.lock().expect("no panic under this lock");
        if loads
            .get(&call)
            .is_some_and(|load| load.executor == executor)
        {
            let load = loads.remove(&call).expect("just found");
            let result = if error.is_empty() {
                Ok(())
            } else {
                Err(error.to_owned())
            };
            // The operator may have given up.
            let _ = load.result.send(result);
        }
    }

    /// Ends the loads of an executor that has exited.
    pub fn executor_ended(&self, executor: u64, how: &str) {
        let mut loads = self.0.lock().expect("no panic under this lock");
        let ended: Vec<u64> = loads
            .iter()
            .filter(|(_, load)| load.executor == executor)
            .map(|(call, _)| *call)
            .collect();
        for load in ended.iter().filter_map(|call| loads.remove(call)) {
            let reason = format!("the executor that loaded the image exited ({how})");
            let _ = load.result.send(Err(reason));
        }
    }

    fn forget(&self, call: u64) {
        self.0
            .lock()
            .expect("no panic under this lock")
            .remove(&call);
    }
}

impl Node {
    /// Has the driver of a device load an image of the store. Blocks.
    ///
    /// # Errors
    /// The driver's error, or the reason why no driver could be used.
    pub(crate) fn load(&self, device: &Device, digest: &str) -> Result<(), String> {
        let image = File::open(self.images.image(digest))
            .map_err(|e| format!("cannot open the image {digest}: {e}"))?;
        let call = self.next_number();
        let place = device
            .pool
            .place(OPERATOR, call)
            .map_err(|e| e.to_string())?;
        let (sender, result) = channel();
        self.loads.begin(call, place.executor, sender);
        let sent = place
            .process
            .send(&ToExecutor::Load { call }, &[image.as_fd()]);
        let loaded = match sent {
            Ok(()) => result.recv_timeout(LOAD_MAX).unwrap_or_else(|e| match e {
                RecvTimeoutError::Timeout => Err(format!(
                    "the driver did not load the image within {} s",
                    LOAD_MAX.as_secs()
                )),
                RecvTimeoutError::Disconnected => Err("the executor exited".to_owned()),
            }),
            Err(error) => Err(format!("cannot reach an executor: {error}")),
        };
        self.loads.forget(call);
        device.pool.session_ended(place.executor, call);
        // It has run the driver with an image of no tenant's.
        device.pool.evict(OPERATOR);
        loaded
    }

    /// Checks that an image of the store is not built for other hardware than a device.
    pub(crate) fn check_target(&self, device: &Device, digest: &str) -> Result<(), String> {
        let description = device.description.get();
        let model = description.map(|d| d.text(DEVICE_NAME)).unwrap_or_default();
        self.images.check_target(digest, &model, device.name())
    }

    /// The driver refused an image that a session was to load.
    pub(crate) fn not_loaded(&self, device: &Device, digest: &str, reason: &str) {
        device.configuration.not_loaded(digest);
        let Some(link) = &self.registry else {
            return;
        };
        let (node, id) = link.node_identity(self);
        let request = proto::ReconfigurationEndRequest {
            node,
            id,
            device: device.name().to_owned(),
            digest: digest.to_owned(),
            region: 0,
            error: reason.to_owned(),
        };
        link.notify(|mut nodes| async move { nodes.reconfiguration_end(request).await });
        link.urge();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_a_load_ends_with_its_executor_s_report_or_exit() {
        let loads = Loads::default();
        let (sender, result) = channel();
        loads.begin(1, 7, sender);
        // Another executor cannot end it.
        loads.end(8, 1, "");
        assert!(result.try_recv().is_err());
        loads.end(7, 1, "");
        assert_eq!(result.try_recv(), Ok(Ok(())));
        let (sender, result) = channel();
        loads.begin(2, 7, sender);
        loads.executor_ended(7, "signal 9");
        assert!(result.try_recv().unwrap().unwrap_err().contains("signal 9"));
        loads.forget(2);
    }
}
