//! Instances of the VMs in a registry's pool: one for each function on accelerators, and one for
//! each OpenCL program on a device that holds one image at a time.
//!
//! The daemon allocates them, because a worker runs the code of functions: it gets neither the
//! registry's token nor connections to other hosts. A worker names a function, or the device that a
//! program opens; the tenant and the node are the daemon's. The devices are those of the first
//! manager on this host.

use crate::definition::{load_function, Definition};
use crate::protocol::{send, FromWorker, PooledDevice, ToWorker, Unplaced};
use anyhow::{anyhow, Context, Result};
use baltra_api::client::{self, Instances};
use baltra_api::registry::{AllocateRequest, ReleaseRequest, RenewRequest};
use baltra_engine::placement::{self, hello, Candidate, DeviceRequest, Placement};
use baltra_functions::Function;
use baltra_ivshmem::Implementation;
use baltra_ring::Locked;
use baltra_session::client::Client;
use baltra_session::Endpoint;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::{OnceCell, Semaphore};
use tokio::task::AbortHandle;

/// Lease of a program's instance, seconds.
const LEASE_S: u32 = 60;
/// Interval of its renewals.
const RENEW_EVERY: Duration = Duration::from_secs(20);
/// Time limit of a request of a worker.
const PATIENCE: Duration = Duration::from_secs(10);
/// Concurrent requests of a worker; more are refused.
const REQUESTS_MAX: usize = 64;
/// Characters of a VM's name in the names of its instances.
const NAME_CHARS_MAX: usize = 24;

/// The registry that allocates devices.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// Its address, `http://host:port`.
    pub url: String,
    /// The token for it.
    pub token: String,
    /// For `https://…`: the root certificates, PEM.
    pub ca: Option<PathBuf>,
}

/// The connection of all VMs to a registry.
pub struct Broker {
    runtime: Runtime,
    pool: PoolOptions,
    manager: Endpoint,
    /// The name of the manager's node.
    node: OnceCell<String>,
    /// Number of workers so far, which distinguishes their instances.
    workers: AtomicU64,
}

impl std::fmt::Debug for Broker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Broker")
            .field("url", &self.pool.url)
            .finish_non_exhaustive()
    }
}

impl Broker {
    /// A broker for the first of these managers that is on this host.
    pub fn new(pool: &PoolOptions, endpoints: &[String]) -> Result<Broker> {
        let parsed = endpoints.iter().filter_map(|text| text.parse().ok());
        let manager = parsed.into_iter().find(|e| matches!(e, Endpoint::Unix(_)));
        let manager = manager.ok_or_else(|| {
            anyhow!("a registry needs a Device Manager on this host (set `--endpoint unix:…`)")
        })?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("broker")
            .enable_all()
            .build()?;
        Ok(Broker {
            runtime,
            pool: pool.clone(),
            manager,
            node: OnceCell::new(),
            workers: AtomicU64::new(1),
        })
    }

    /// The name of the manager's node.
    async fn node(&self) -> Result<&String> {
        let query = || async {
            let endpoint = self.manager.clone();
            let list = move || Client::list(&endpoint, hello("", "", ("", 1), None));
            let welcome = tokio::task::spawn_blocking(list).await??;
            anyhow::Ok(welcome.node)
        };
        self.node.get_or_try_init(query).await
    }
}

/// The instances of a VM while one worker serves it. Dropping it releases them.
pub struct Tenancy(Arc<Inner>);

struct Inner {
    broker: Arc<Broker>,
    definition: Definition,
    functions: PathBuf,
    /// The socket to the worker.
    socket: OwnedFd,
    /// The beginning of the names of its instances.
    name: String,
    placement: placement::Registry,
    instances: Instances,
    /// Functions that have devices.
    placed: Mutex<HashMap<String, Arc<Function>>>,
    /// Instances of programs, with the tasks that renew their leases; `None`: the worker has ended.
    programs: Mutex<Option<HashMap<String, AbortHandle>>>,
    /// Number of programs so far.
    opened: AtomicU64,
    requests: Arc<Semaphore>,
}

impl Tenancy {
    /// The instances of a VM whose worker is at the other end of `socket`.
    pub fn new(
        broker: &Arc<Broker>,
        definition: &Definition,
        functions: PathBuf,
        socket: &OwnedFd,
    ) -> Result<Tenancy> {
        let number = broker.workers.fetch_add(1, Ordering::Relaxed);
        let name: String = definition.name.chars().take(NAME_CHARS_MAX).collect();
        let name = format!("vm{number}-{name}");
        let pool = &broker.pool;
        let options = baltra_engine::Options {
            registry: pool.url.clone(),
            registry_token: pool.token.clone(),
            registry_ca: pool.ca.clone(),
            ..baltra_engine::Options::default()
        };
        let registry = client::Options {
            url: pool.url.clone(),
            token: pool.token.clone(),
            ca: pool.ca.clone(),
        };
        let _inside = broker.runtime.enter();
        Ok(Tenancy(Arc::new(Inner {
            placement: placement::Registry::for_client(&options, &name)
                .map_err(anyhow::Error::msg)?,
            instances: client::instances(&registry)?,
            broker: broker.clone(),
            definition: definition.clone(),
            functions,
            socket: socket.try_clone()?,
            name,
            placed: Mutex::default(),
            programs: Mutex::new(Some(HashMap::new())),
            opened: AtomicU64::new(1),
            requests: Arc::new(Semaphore::new(REQUESTS_MAX)),
        })))
    }

    /// Carries out a request of the worker, in the background.
    pub fn carry_out(&self, request: FromWorker) {
        let inner = self.0.clone();
        let Ok(permit) = inner.requests.clone().try_acquire_owned() else {
            return inner.refuse(&request);
        };
        self.0.broker.runtime.spawn(async move {
            inner.handle(request).await;
            drop(permit);
        });
    }
}

impl Drop for Tenancy {
    fn drop(&mut self) {
        let inner = self.0.clone();
        let programs = inner.programs.locked().take().unwrap_or_default();
        let placed = std::mem::take(&mut *inner.placed.locked());
        // Without an answer of the registry, the leases expire.
        self.0.broker.runtime.spawn(async move {
            for function in placed.values() {
                inner.placement.release(function).await;
            }
            for (instance, renewal) in programs {
                renewal.abort();
                inner.release(instance).await;
            }
        });
    }
}

impl Inner {
    /// Answers a request that exceeds the worker's limit.
    fn refuse(&self, request: &FromWorker) {
        match request {
            FromWorker::Place { call, .. } => {
                let reason = "too many requests for devices".to_owned();
                self.answer(&ToWorker::Placed {
                    call: *call,
                    devices: Err(Unplaced::Refused(reason)),
                });
            }
            FromWorker::Open { call, .. } => self.answer(&ToWorker::Opened {
                call: *call,
                instance: None,
            }),
            // The leases expire.
            _ => {}
        }
    }

    fn answer(&self, answer: &ToWorker) {
        // A worker that does not receive it has ended.
        let _ = send(&self.socket, answer, &[]);
    }

    async fn handle(&self, request: FromWorker) {
        match request {
            FromWorker::Place {
                call,
                function,
                count,
                except,
            } => {
                let placed = self.place(&function, count, except);
                let devices = match tokio::time::timeout(PATIENCE, placed).await {
                    Ok(devices) => devices,
                    Err(_) => Err(Unplaced::Unreachable(
                        "the registry did not answer in time".to_owned(),
                    )),
                };
                self.answer(&ToWorker::Placed { call, devices });
            }
            FromWorker::Forget { function } => {
                let placed = self.placed.locked().remove(&function);
                if let Some(function) = placed {
                    self.placement.release(&function).await;
                }
            }
            FromWorker::Open { call, device } => {
                let opened = tokio::time::timeout(PATIENCE, self.open(&device)).await;
                let opened = opened.unwrap_or_else(|_| Err(anyhow!("no answer in time")));
                let instance = opened.unwrap_or_else(|error| {
                    let (vm, error) = (&self.definition.name, format!("{error:#}"));
                    tracing::warn!(vm, device, error, "a program has no instance in the pool");
                    None
                });
                self.answer(&ToWorker::Opened { call, instance });
            }
            FromWorker::Close { instance } => self.close(instance).await,
            FromWorker::Ready | FromWorker::Usage(_) => {}
        }
    }

    /// The function that a worker names, as its worker runs it on devices.
    fn function(&self, name: &str) -> Result<Arc<Function>> {
        if let Some(placed) = self.placed.locked().get(name) {
            return Ok(placed.clone());
        }
        let is_allowed = self.definition.functions.iter().any(|f| f == name);
        anyhow::ensure!(is_allowed, "the VM may not call this function");
        let function = load_function(&self.functions, name)?;
        let function = self
            .definition
            .restricted(&function, Implementation::Hardware)?;
        Ok(Arc::new(function))
    }

    async fn place(
        &self,
        name: &str,
        count: usize,
        except: Vec<String>,
    ) -> Result<Vec<PooledDevice>, Unplaced> {
        let unreachable = |error: anyhow::Error| Unplaced::Unreachable(format!("{error:#}"));
        let node = self.broker.node().await.map_err(unreachable)?;
        let function = self.function(name).map_err(unreachable)?;
        let on_node = format!("node={node}").parse();
        let request = DeviceRequest {
            function: function.clone(),
            implementation: 0,
            count,
            device: on_node.map_err(|e| unreachable(anyhow!("{e}")))?,
            except,
        };
        // Before the request: the end of the worker releases the instance.
        self.placed.locked().insert(name.to_owned(), function);
        let places = self.placement.places(&request).await;
        let places = places.map_err(|error| match error {
            placement::Unplaced::Unreachable(reason) => Unplaced::Unreachable(reason),
            placement::Unplaced::Refused(reason) => Unplaced::Refused(reason),
        })?;
        let device = |place: Candidate| PooledDevice {
            node: place.node,
            endpoint: self.broker.manager.to_string(),
            device: place.device.name.clone(),
            instance: place.instance,
        };
        Ok(places.into_iter().map(device).collect())
    }

    /// Allocates a device to a program; `None`: a device that needs no instance.
    async fn open(&self, device: &str) -> Result<Option<String>> {
        anyhow::ensure!(baltra_api::valid_name(device), "invalid name of a device");
        let node = self.broker.node().await?;
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        let host: String = node.chars().take(NAME_CHARS_MAX).collect();
        let name = format!("{}-{host}-{}-{number}", self.name, std::process::id());
        let request = AllocateRequest {
            instance: name.clone(),
            tenant: self.definition.tenant.clone(),
            query: format!("id={node}/{device}"),
            lease_s: Some(LEASE_S),
            apart: true,
            ..AllocateRequest::default()
        };
        let mut instances = self.instances.clone();
        let answer = instances.allocate(request).await;
        let answer = answer.context("cannot allocate the device")?.into_inner();
        let instance = match (answer.instance, answer.refusal) {
            (Some(instance), _) => instance,
            (None, refusal) => anyhow::bail!("{}", refusal.unwrap_or_default().reason),
        };
        if !instance.devices.iter().any(|device| device.exclusive) {
            self.release(name).await;
            return Ok(None);
        }
        let mut renewals = self.instances.clone();
        let renewed = name.clone();
        let renewal = tokio::spawn(async move {
            loop {
                tokio::time::sleep(RENEW_EVERY).await;
                // A registry that does not answer keeps the instance until its lease ends.
                let request = RenewRequest {
                    instance: renewed.clone(),
                    ..RenewRequest::default()
                };
                let _ = renewals.renew(request).await;
            }
        });
        let is_kept = match &mut *self.programs.locked() {
            Some(programs) => {
                programs.insert(name.clone(), renewal.abort_handle());
                true
            }
            None => false,
        };
        if is_kept {
            return Ok(Some(name));
        }
        renewal.abort();
        self.release(name).await;
        Ok(None)
    }

    /// The session of a program has ended.
    async fn close(&self, instance: String) {
        let mine = match &mut *self.programs.locked() {
            Some(programs) => programs.remove(&instance),
            None => None,
        };
        // An instance that is not this worker's stays.
        if let Some(renewal) = mine {
            renewal.abort();
            self.release(instance).await;
        }
    }

    async fn release(&self, instance: String) {
        let mut instances = self.instances.clone();
        // Without an answer of the registry, the lease expires.
        let _ = instances.release(ReleaseRequest { instance }).await;
    }
}
