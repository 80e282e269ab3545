//! Images that an operator loads: an executor has the driver load the image and reports the result.

use crate::executors::{ExecutorAssignment, Process};
use crate::node::{Device, Node};
use baltra_api::registry as proto;
use baltra_ring::Locked;
use baltra_wire::executor::ToExecutor;
use baltra_wire::opencl::DEVICE_NAME;
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::sync::Mutex;

/// Loads in progress.
#[derive(Default)]
pub(crate) struct Loads(Mutex<HashMap<u64, Load>>);

/// A load in progress.
struct Load {
    executor: u64,
    result: Sender<Result<(), Failure>>,
}

/// Reasons for which an image is not loaded.
#[derive(Debug, PartialEq, Eq)]
enum Failure {
    /// The driver's error: the device still holds its former image.
    Refused(String),
    /// The executor has ended: what the device holds is unknown.
    Ended(String),
}

impl Loads {
    fn begin(&self, call: u64, executor: u64, result: Sender<Result<(), Failure>>) {
        let mut loads = self.0.locked();
        loads.insert(call, Load { executor, result });
    }

    /// An executor reports the end of a load; `error` is empty if the driver accepted the image.
    pub fn end(&self, executor: u64, call: u64, error: &str) {
        let mut loads = self.0.locked();
        if loads
            .get(&call)
            .is_some_and(|load| load.executor == executor)
        {
            let load = loads.remove(&call).expect("just found");
            let result = if error.is_empty() {
                Ok(())
            } else {
                Err(Failure::Refused(error.to_owned()))
            };
            // The operator may have given up.
            let _ = load.result.send(result);
        }
    }

    /// Ends the loads of an executor that has exited.
    pub fn executor_ended(&self, executor: u64, how: &str) {
        let mut loads = self.0.locked();
        let ended: Vec<u64> = loads
            .iter()
            .filter(|(_, load)| load.executor == executor)
            .map(|(call, _)| *call)
            .collect();
        for load in ended.iter().filter_map(|call| loads.remove(call)) {
            let reason = format!("the executor that loaded the image exited ({how})");
            let _ = load.result.send(Err(Failure::Ended(reason)));
        }
    }

    fn forget(&self, call: u64) {
        self.0.locked().remove(&call);
    }
}

impl Node {
    /// Prepares the load of an image of the store on a device. Blocks until there is an executor.
    ///
    /// # Errors
    /// The reason why no driver can be used.
    pub(crate) fn loader<'a>(
        &'a self,
        device: &'a Device,
        digest: &str,
    ) -> Result<Loader<'a>, String> {
        let image = File::open(self.images.image(digest))
            .map_err(|e| format!("cannot open the image {digest}: {e}"))?;
        let call = self.next_number();
        // An executor that loads an image serves no tenant; a tenant cannot have this name.
        let user = format!("(operator {call})");
        let place = device.pool.place(&user, call).map_err(|e| e.to_string())?;
        Ok(Loader {
            node: self,
            device,
            image,
            call,
            user,
            place,
        })
    }

    /// Sends an executor the image of an accelerator that an operator has added.
    pub(crate) fn fetch(&self, device: &Device, process: &Process, call: u64, accelerator: &str) {
        let description = device.description.get();
        let model = description.map(|d| d.text(DEVICE_NAME)).unwrap_or_default();
        let found = self.images.stored_for(accelerator, &model, device.name());
        let opened = found.map_err(|e| e.to_string()).and_then(|digest| {
            File::open(self.images.image(&digest))
                .map_err(|e| format!("cannot open the image {digest}: {e}"))
        });
        let (image, error) = match opened {
            Ok(image) => (Some(image), String::new()),
            Err(error) => (None, error),
        };
        let image: Vec<_> = image.iter().map(|image| image.as_fd()).collect();
        // An executor that does not read has ended, or will be killed for other reasons.
        let _ = process.send(&ToExecutor::Fetched { call, error }, &image);
    }

    /// Checks that an image of the store is not built for other hardware than a device.
    pub(crate) fn check_target(&self, device: &Device, digest: &str) -> Result<(), String> {
        let description = device.description.get();
        let model = description.map(|d| d.text(DEVICE_NAME)).unwrap_or_default();
        self.images.check_target(digest, &model, device.name())
    }

    /// The driver has loaded an image for a session.
    pub(crate) fn loaded(&self, device: &Device, session: u64, digest: &str) {
        let tenant = self.sessions().get(&session).map(|s| s.tenant.clone());
        if tenant.is_some_and(|tenant| device.configuration.confirm(session, &tenant, digest)) {
            device.reconfigured(digest);
            self.load_reported(device, digest, "");
        }
    }

    /// Reports the end of a session's load to the registry; `reason` is empty if the driver has
    /// loaded the image.
    pub(crate) fn load_reported(&self, device: &Device, digest: &str, reason: &str) {
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

/// An executor that is ready to load an image; it is ended when this is dropped, because its driver
/// has run with an image of no tenant's.
pub(crate) struct Loader<'a> {
    node: &'a Node,
    device: &'a Device,
    image: File,
    call: u64,
    user: String,
    place: ExecutorAssignment,
}

impl Loader<'_> {
    /// Has the driver load the image. Blocks for at most `device.load_ms`.
    ///
    /// # Errors
    /// The driver's error.
    pub fn load(&self) -> Result<(), String> {
        let (call, process) = (self.call, &self.place.process);
        let (sender, result) = channel();
        self.node.loads.begin(call, self.place.executor, sender);
        let sent = process.send(&ToExecutor::Load { call }, &[self.image.as_fd()]);
        let loaded = match sent {
            Ok(()) => match result.recv_timeout(self.device.options.load()) {
                Ok(loaded) => loaded,
                Err(RecvTimeoutError::Timeout) => Err(Failure::Ended(self.give_up())),
                Err(RecvTimeoutError::Disconnected) => {
                    Err(Failure::Ended("the executor exited".to_owned()))
                }
            },
            Err(error) => Err(Failure::Refused(format!(
                "cannot reach an executor: {error}"
            ))),
        };
        self.node.loads.forget(call);
        loaded.map_err(|failure| match failure {
            Failure::Refused(reason) => reason,
            Failure::Ended(reason) => {
                // The driver may have replaced the present image.
                self.device.configuration.lose_image();
                let all = &self.device.pool;
                all.send_all(&ToExecutor::Image { digest: None });
                reason
            }
        })
    }

    /// The driver has not loaded the image in time.
    fn give_up(&self) -> String {
        self.place.process.kill("it did not load an image in time");
        format!(
            "the driver did not load the image within {} ms ('device.load_ms')",
            self.device.options.load_ms
        )
    }
}

impl Drop for Loader<'_> {
    fn drop(&mut self) {
        let pool = &self.device.pool;
        pool.session_ended(self.place.executor, self.call);
        pool.evict(&self.user);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_ends_with_its_executor_s_report_or_exit() {
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
        let ended = result.try_recv().unwrap().unwrap_err();
        assert!(matches!(ended, Failure::Ended(reason) if reason.contains("signal 9")));
        loads.forget(2);
    }
}
