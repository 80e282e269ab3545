//! Devices of a registry's pool. The daemon allocates them: see [`broker`](crate::broker).

use crate::protocol::{send, FromWorker, PooledDevice, ToWorker, Unplaced};
use anyhow::Result;
use baltra_engine::placement::{
    self, Candidate, CandidatesFuture, DeviceRequest, Local, Placement, ReleaseFuture,
};
use baltra_functions::Function;
use baltra_ring::Locked;
use baltra_session::EndpointError;
use baltra_wire::DeviceDescription;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;

/// The requests to the daemon. The daemon bounds their time.
pub(crate) struct Pool {
    socket: Arc<OwnedFd>,
    next: AtomicU64,
    requests: Mutex<HashMap<u64, oneshot::Sender<ToWorker>>>,
}

impl Pool {
    /// The daemon is at the other end of `socket`.
    pub fn new(socket: Arc<OwnedFd>) -> Pool {
        Pool {
            socket,
            next: AtomicU64::new(1),
            requests: Mutex::default(),
        }
    }

    /// Receives an answer of the daemon.
    pub fn answered(&self, answer: ToWorker) {
        let (ToWorker::Placed { call, .. } | ToWorker::Opened { call, .. }) = &answer else {
            return;
        };
        if let Some(request) = self.requests.locked().remove(call) {
            // Its call may have been given up.
            let _ = request.send(answer);
        }
    }

    fn request(&self, request: impl FnOnce(u64) -> FromWorker) -> oneshot::Receiver<ToWorker> {
        let call = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.requests.locked().insert(call, sender);
        if send(&*self.socket, &request(call), &[]).is_err() {
            self.requests.locked().remove(&call);
        }
        answer
    }

    fn notify(&self, message: &FromWorker) {
        // Without the daemon, this process ends.
        let _ = send(&*self.socket, message, &[]);
    }

    /// An instance for a program that opens a session on a device; `None`: it needs none, or gets
    /// none, and the Device Manager decides about its image. Blocks.
    pub fn open(self: &Arc<Self>, device: &str) -> Option<ProgramInstance> {
        let device = device.to_owned();
        let answer = self.request(|call| FromWorker::Open { call, device });
        match answer.blocking_recv() {
            Ok(ToWorker::Opened { instance, .. }) => Some(ProgramInstance {
                pool: self.clone(),
                name: instance?,
            }),
            _ => None,
        }
    }
}

/// The instance of an OpenCL program, released when this is dropped.
pub(crate) struct ProgramInstance {
    pool: Arc<Pool>,
    name: String,
}

impl ProgramInstance {
    /// Its name in the pool.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for ProgramInstance {
    fn drop(&mut self) {
        let instance = std::mem::take(&mut self.name);
        self.pool.notify(&FromWorker::Close { instance });
    }
}

/// Devices for functions: those that the pool allocates, or the managers' own while the registry
/// does not respond.
pub(crate) struct Pooled {
    pool: Arc<Pool>,
    local: Local,
}

impl Pooled {
    /// For the devices of these managers.
    pub fn new(pool: Arc<Pool>, endpoints: &[String]) -> Result<Pooled> {
        let parsed = endpoints.iter().map(|text| text.parse());
        let endpoints = parsed.collect::<Result<Vec<_>, EndpointError>>()?;
        let local = Local::new(endpoints, String::new());
        Ok(Pooled { pool, local })
    }
}

impl Placement for Pooled {
    fn places<'a>(&'a self, wanted: &'a DeviceRequest) -> CandidatesFuture<'a> {
        Box::pin(async move {
            let answer = self.pool.request(|call| FromWorker::Place {
                call,
                function: wanted.function.manifest.name.clone(),
                count: wanted.count,
                except: wanted.except.clone(),
            });
            match answer.await {
                Ok(ToWorker::Placed {
                    devices: Ok(devices),
                    ..
                }) => devices.into_iter().map(candidate).collect(),
                Ok(ToWorker::Placed {
                    devices: Err(Unplaced::Refused(reason)),
                    ..
                }) => Err(placement::Unplaced::Refused(reason)),
                _ => self.local.places(wanted).await,
            }
        })
    }

    fn all<'a>(&'a self, tenant: &'a str) -> CandidatesFuture<'a> {
        self.local.all(tenant)
    }

    fn release<'a>(&'a self, function: &'a Function) -> ReleaseFuture<'a> {
        self.forget(function);
        Box::pin(std::future::ready(()))
    }

    fn forget(&self, function: &Function) {
        let function = function.manifest.name.clone();
        self.pool.notify(&FromWorker::Forget { function });
    }
}

fn candidate(place: PooledDevice) -> Result<Candidate, placement::Unplaced> {
    let endpoint = place.endpoint.parse();
    let endpoint = endpoint.map_err(|e: EndpointError| e.to_string())?;
    Ok(Candidate {
        node: place.node,
        endpoint,
        token: String::new(),
        device: Arc::new(DeviceDescription {
            name: place.device,
            ..DeviceDescription::default()
        }),
        loaded: Vec::new(),
        chosen: true,
        instance: place.instance,
    })
}
