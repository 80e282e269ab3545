//! The state of a gateway, shared by all listeners and workers.

use crate::http::admission::budget::{Budget, Held};
use crate::http::admission::keys::{Keys, TenantIndex};
use crate::http::call::delivery::Deliveries;
use crate::http::call::queue::Queue;
use crate::http::failure::Failure;
use crate::http::function::containers::Containers;
use crate::http::function::deployment::Deployment;
use crate::http::function::logs::Logs;
use crate::http::function::store::{self, Files, Store};
use crate::http::function::table::{Deployed, Table};
use crate::http::inference::memory::Regions;
use crate::http::problem::{Problem, Shed};
use crate::http::task::{blocking, now_ms};
use crate::http::telemetry::meters::Meters;
use crate::http::text::without_paths;
use crate::options::Options;
use anyhow::{Context, Result};
use baltra_engine::{CallError, Engine};
use baltra_functions::Function;
use baltra_trace::Spans;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::OwnedMutexGuard;

/// One gateway.
pub(crate) struct Gateway {
    pub options: Options,
    pub keys: Keys,
    pub table: Table,
    pub containers: Containers,
    pub meters: Meters,
    pub logs: Logs,
    pub store: Arc<Store>,
    pub engine: Engine,
    pub queue: Queue,
    pub deliveries: Arc<Deliveries>,
    pub regions: Regions,
    pub budget: Arc<Budget>,
    pub spans: Spans,
    pub started: Instant,
    pub draining: AtomicBool,
    pub connections: AtomicUsize,
    /// Number of inferences in progress.
    pub inferences: AtomicUsize,
    /// Runs work that no connection waits for.
    pub runtime: tokio::runtime::Handle,
    /// Serializes changes of a name.
    changes: Changes,
    /// Serializes changes of the list of deployments; held briefly.
    listing: tokio::sync::Mutex<()>,
}

/// Work past its deadline usually ends sooner; work that is overdue for longer is reported to
/// probes.
const OVERDUE_MIN: Duration = Duration::from_secs(2);

/// A lock for each name (of a deployment, or of a function in the store) that is being changed.
#[derive(Debug, Default)]
struct Changes(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl Changes {
    /// Locks names in a fixed order, to avoid deadlocks.
    async fn lock(&self, names: &[&str]) -> Vec<OwnedMutexGuard<()>> {
        let names: BTreeSet<&str> = names.iter().copied().collect();
        let mut guards = Vec::with_capacity(names.len());
        for name in names {
            let lock = {
                let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                // Each holder or waiter of a lock has a clone of it.
                locks.retain(|_, lock| Arc::strong_count(lock) > 1);
                locks.entry(name.to_owned()).or_default().clone()
            };
            guards.push(lock.lock_owned().await);
        }
        guards
    }
}

/// The detail of a call that is refused because of the number of calls in progress.
pub(crate) const TOO_MANY: &str = "too many calls in progress ('gateway.limits.calls_max')";

/// Whether a deployed function accepts calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// It is loaded, or its next call loads it.
    Ready,
    /// It has never been loaded, and loading is in progress or currently impossible.
    Building(String),
    /// It cannot be loaded because of its own fault, or its work does not end.
    Failed(String),
}

/// An uploaded function.
pub(crate) struct Uploaded {
    pub name: String,
    pub digest: String,
    /// `None`: the function is stored but not deployed.
    pub deployed: Option<Arc<Deployed>>,
}

/// Longest time that a deployment request waits for a build; the build continues in the background.
const BUILD_WAIT: Duration = Duration::from_secs(10);
/// Longest pause between attempts to load a function that could not be loaded.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(30);

/// A request to deploy a function.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeployRequest {
    pub name: String,
    pub image: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

impl Gateway {
    /// Whether several functions or tenants share the places for calls.
    pub fn is_shared(&self) -> bool {
        self.keys.tenant_count() > 1 || self.table.count() + self.containers.count() > 1
    }

    /// The refusal of a call for which there is no place.
    pub fn no_place(&self, deployed: &Deployed) -> Problem {
        let time = self.engine.drain_time(&deployed.function);
        Problem::shed(
            Shed::Places,
            TOO_MANY,
            time.unwrap_or(Duration::from_secs(1)),
        )
    }

    /// Opens the state directory; no function is deployed yet. Must be called within the runtime
    /// that runs background work.
    pub fn new(options: Options, engine: Engine) -> Result<Gateway> {
        let state = &options.state;
        let store = Store::open(state).with_context(|| {
            let state = state.display();
            format!("cannot use {state} ('gateway.state')")
        })?;
        let meters = Meters::new(options.worker_count());
        meters
            .load(&store.usage_file())
            .with_context(|| format!("cannot read {}", store.usage_file().display()))?;
        let keys = Keys::new(&options);
        let tenants = keys.tenant_count();
        Ok(Gateway {
            budget: Budget::new(&options, tenants),
            keys,
            table: Table::default(),
            containers: Containers::default(),
            meters,
            logs: Logs::default(),
            store: Arc::new(store),
            engine,
            queue: Queue::new(&options.limits),
            deliveries: Deliveries::new(options.limits.callbacks_max, tenants),
            regions: Regions::new(options.shared_memory),
            spans: Spans::from_environment("baltra-gateway", &[])?,
            started: Instant::now(),
            draining: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            inferences: AtomicUsize::new(0),
            runtime: tokio::runtime::Handle::current(),
            changes: Changes::default(),
            listing: tokio::sync::Mutex::new(()),
            options,
        })
    }

    /// Creates a memory account for a request of the tenant; `None`: a management request.
    pub fn hold(&self, tenant: Option<TenantIndex>) -> Held {
        Held::new(&self.budget, tenant)
    }

    /// Whether the gateway accepts calls.
    pub fn is_ready(&self) -> bool {
        !self.draining.load(Relaxed)
    }

    /// Why probes should report that this gateway is not ready; `None` if it is ready, or recovers
    /// by itself at once.
    pub fn why_not_ready(&self) -> Option<String> {
        if !self.is_ready() {
            return Some("draining".into());
        }
        let overdue = self.engine.overdue();
        let longest = overdue.iter().max_by_key(|o| o.time)?;
        (longest.time >= OVERDUE_MIN).then(|| {
            format!(
                "a call of function '{}' of tenant '{}' is past its deadline on {} for {} s and does not end",
                longest.function,
                longest.tenant,
                longest.place,
                longest.time.as_secs()
            )
        })
    }

    /// Restores the deployments. A function that is missing from the store or no longer valid is
    /// skipped with a log line.
    pub async fn restore(self: &Arc<Self>) -> Result<()> {
        let deployments = self.store.deployments();
        for deployment in deployments.context("cannot read the deployed functions")? {
            let name = deployment.name.clone();
            match self.store.get(&deployment.image) {
                Some(Ok(function)) => {
                    let function = Arc::new(function);
                    let replicas = deployment.replicas;
                    let settings = match deployment.settings(&function) {
                        Ok(settings) => settings,
                        Err(error) => {
                            tracing::error!(name, error, "not deployed again");
                            continue;
                        }
                    };
                    if let Some(why) = self.engine.deploy(&function, settings).await {
                        tracing::warn!(name, why, "no device runs the function");
                    }
                    let deployed = self.insert(deployment, function);
                    if replicas > 0 {
                        self.build_aside(deployed);
                    }
                }
                Some(Err(error)) => tracing::error!(name, %error, "not deployed again"),
                None => {
                    tracing::error!(name, image = deployment.image, "no longer in the store")
                }
            }
        }
        Ok(())
    }

    /// Inserts a deployment into the table, in place of one with the same name.
    fn insert(&self, deployment: Deployment, function: Arc<Function>) -> Arc<Deployed> {
        let log = self.logs.of(&deployment.name);
        log.push(
            "gateway",
            format!("deployed '{}' ({})", deployment.image, &function.digest),
        );
        let limits = &self.options.limits;
        let deployed = Deployed::new(deployment, function, log, &self.keys, limits);
        let deployed = Arc::new(deployed);
        if let Some(before) = self.table.insert(deployed.clone()) {
            self.engine.remove(&before.function);
        }
        deployed
    }

    /// Builds a function, then deploys it in place of one with the same name; a failed build
    /// changes nothing. A build that takes long, or cannot begin yet, continues in the background.
    /// The caller holds the lock of the name.
    async fn place(
        self: &Arc<Self>,
        deployment: Deployment,
        function: Arc<Function>,
    ) -> Result<Arc<Deployed>, Problem> {
        deployment.check().map_err(Problem::bad_request)?;
        let settings = deployment.settings(&function);
        let settings = settings.map_err(Problem::bad_request)?;
        if let Some(why) = self.engine.deploy(&function, settings).await {
            self.engine.remove(&function);
            let detail = format!("cannot place function '{}': {why}", deployment.name);
            return Err(Problem::new(Failure::Unavailable, detail));
        }
        let built = tokio::time::timeout(BUILD_WAIT, self.engine.warm(&function)).await;
        if let Ok(Err(CallError::Failed(why))) = &built {
            self.engine.remove(&function);
            let why = without_paths(why);
            let detail = format!("cannot load function '{}': {why}", deployment.name);
            return Err(Problem::unprocessable(detail));
        }
        let _one = self.listing.lock().await;
        let saved = self.save_with(|all| {
            all.insert(deployment.name.clone(), deployment.clone());
        });
        if let Err(problem) = saved.await {
            self.engine.remove(&function);
            return Err(problem);
        }
        let deployed = self.insert(deployment, function);
        if !matches!(built, Ok(Ok(_))) {
            self.build_aside(deployed.clone());
        }
        Ok(deployed)
    }

    /// Retries loading a function until it is loaded, cannot be loaded, or is no longer deployed.
    fn build_aside(self: &Arc<Self>, deployed: Arc<Deployed>) {
        let gateway = Arc::downgrade(self);
        self.runtime.spawn(async move {
            let mut pause = Duration::from_secs(1);
            loop {
                let Some(gateway) = gateway.upgrade() else {
                    return;
                };
                let now = gateway.table.find(deployed.name());
                if !now.is_some_and(|now| Arc::ptr_eq(&now.function, &deployed.function)) {
                    return;
                }
                match gateway.engine.warm(&deployed.function).await {
                    Ok(_) => return deployed.log.push("gateway", "loaded"),
                    Err(CallError::Failed(why)) => {
                        return deployed.log.push("gateway", format!("cannot load: {why}"));
                    }
                    Err(error) => tracing::debug!(name = deployed.name(), %error, "not loaded"),
                }
                drop(gateway);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(RETRY_PAUSE_MAX);
            }
        });
    }

    /// Whether a deployed function accepts calls.
    pub fn readiness(&self, deployed: &Deployed) -> Readiness {
        let Some(status) = self.engine.status(&deployed.function) else {
            return Readiness::Building("it is being deployed".to_owned());
        };
        if let Some(why) = self.engine.why_not_ready(&deployed.function) {
            return Readiness::Failed(why);
        }
        let replicas = &status.replicas;
        if replicas.iter().any(|replica| replica.loaded) {
            return Readiness::Ready;
        }
        if let Some(why) = replicas.iter().find_map(|r| r.failure.as_deref()) {
            return Readiness::Failed(without_paths(why));
        }
        let was_loaded = replicas.iter().any(|replica| replica.cold.is_some());
        if was_loaded || status.desired == 0 {
            return Readiness::Ready;
        }
        let why = replicas
            .iter()
            .find_map(|replica| replica.unavailable.clone());
        let why = why.or_else(|| self.engine.why_not(&deployed.function));
        Readiness::Building(without_paths(
            &why.unwrap_or_else(|| "it is being built".to_owned()),
        ))
    }

    /// Deploys a function of the store, in place of one with the same name.
    pub async fn deploy(
        self: &Arc<Self>,
        request: DeployRequest,
    ) -> Result<Arc<Deployed>, Problem> {
        if !store::valid_name(&request.name) {
            return Err(Problem::bad_request(
                "invalid function name: use 1 to 63 lower-case letters, digits and dashes, with a letter or digit at both ends",
            ));
        }
        let image = image_name(&request.image)?;
        let _changing = self.changes.lock(&[&request.name, &image]).await;
        self.deploy_locked(request, image).await
    }

    async fn deploy_locked(
        self: &Arc<Self>,
        request: DeployRequest,
        image: String,
    ) -> Result<Arc<Deployed>, Problem> {
        let (store, wanted) = (self.store.clone(), image.clone());
        let Some(function) = blocking(move || store.get(&wanted)).await? else {
            return Err(Problem::bad_request(format!(
                "image '{}' is not a function of this gateway's store: upload it first ('baltra function deploy'); container images need Kubernetes",
                shortened(&request.image)
            )));
        };
        let function = function.map_err(|error| Problem::unprocessable(error.to_string()))?;
        let before = self.table.find(&request.name);
        let replicas = Deployment::fixed_replicas(&request.labels);
        let replicas = replicas.map_err(Problem::bad_request)?;
        let deployment = Deployment {
            name: request.name,
            image,
            labels: request.labels,
            annotations: request.annotations,
            replicas: replicas
                .unwrap_or_else(|| before.as_ref().map_or(1, |b| b.deployment.replicas.max(1))),
            created_ms: before.map_or_else(now_ms, |b| b.deployment.created_ms),
        };
        self.place(deployment, Arc::new(function)).await
    }

    /// Stores a function's files and deploys them under its own name. If that fails, the store is
    /// unchanged.
    pub async fn upload(self: &Arc<Self>, files: Files, deploy: bool) -> Result<Uploaded, Problem> {
        let files = Arc::new(files);
        let (store, checked) = (self.store.clone(), files.clone());
        let read = blocking(move || store.read(&checked)).await?;
        let name = read.map_err(Problem::from)?.manifest.name;
        let _changing = self.changes.lock(&[&name]).await;
        let store = self.store.clone();
        let stored = blocking(move || store.put(&files)).await?;
        let stored = stored.map_err(Problem::from)?;
        let digest = stored.function.digest.clone();
        tracing::info!(name, digest, "stored");
        let mut deployed = None;
        if deploy {
            let before = self.table.find(&name);
            let (labels, annotations) = before.map_or_else(Default::default, |before| {
                let deployment = &before.deployment;
                (deployment.labels.clone(), deployment.annotations.clone())
            });
            let request = DeployRequest {
                name: name.clone(),
                image: name.clone(),
                labels,
                annotations,
            };
            match self.deploy_locked(request, name.clone()).await {
                Ok(now) => deployed = Some(now),
                Err(problem) => {
                    let undone = blocking(move || stored.undo()).await?;
                    undone.map_err(|error| Problem::storage("the store", &error))?;
                    return Err(problem);
                }
            }
        }
        Ok(Uploaded {
            name,
            digest,
            deployed,
        })
    }

    /// Removes a function from the store; `false` if it does not exist.
    pub async fn remove_stored(self: &Arc<Self>, name: &str) -> Result<bool, Problem> {
        let _changing = self.changes.lock(&[name]).await;
        let list = self.table.list();
        if let Some(user) = list.iter().find(|d| d.deployment.image == name) {
            let detail = format!(
                "function '{}' is deployed from it: remove that function first",
                user.name()
            );
            return Err(Problem::new(Failure::Conflict, detail));
        }
        let (store, wanted) = (self.store.clone(), name.to_owned());
        let removed = blocking(move || store.remove(&wanted)).await?;
        removed.map_err(|error| Problem::storage("the store", &error))
    }

    /// Deploys a function of the registry, in place of its earlier version.
    pub async fn deploy_pooled(
        self: &Arc<Self>,
        name: &str,
        files: Files,
        labels: BTreeMap<String, String>,
    ) -> Result<(), Problem> {
        let _changing = self.changes.lock(&[name]).await;
        let store = self.store.clone();
        let image = name.to_owned();
        let stored = blocking(move || store.put_pooled(&image, &files)).await?;
        let stored = stored.map_err(Problem::from)?;
        let before = self.table.find(name);
        let deployment = Deployment {
            name: name.to_owned(),
            image: name.to_owned(),
            labels,
            annotations: BTreeMap::new(),
            replicas: before.as_ref().map_or(1, |b| b.deployment.replicas.max(1)),
            created_ms: before.map_or_else(now_ms, |b| b.deployment.created_ms),
        };
        let function = stored.function.clone();
        if let Err(problem) = self.place(deployment, function).await {
            let undone = blocking(move || stored.undo()).await?;
            undone.map_err(|error| Problem::storage("the store", &error))?;
            return Err(problem);
        }
        Ok(())
    }

    /// Sets the desired number of replicas; `false` if the function does not exist.
    pub async fn scale(self: &Arc<Self>, name: &str, replicas: u32) -> Result<bool, Problem> {
        let _changing = self.changes.lock(&[name]).await;
        let _one = self.listing.lock().await;
        let Some(deployed) = self.table.find(name) else {
            return Ok(false);
        };
        let status = self.engine.status(&deployed.function);
        if status.is_some_and(|status| status.scale.is_some()) {
            let detail = format!(
                "function '{name}' scales with its demand: set the bounds in its manifest ('scale') or in labels of its deployment"
            );
            return Err(Problem::new(Failure::Conflict, detail));
        }
        let deployment = Deployment {
            replicas,
            ..deployed.deployment.clone()
        };
        self.save_with(|all| {
            all.insert(deployment.name.clone(), deployment.clone());
        })
        .await?;
        let log = deployed.log.clone();
        log.push("gateway", format!("scaled to {replicas}"));
        let function = deployed.function.clone();
        let limits = &self.options.limits;
        let next = Deployed::new(deployment, function.clone(), log, &self.keys, limits);
        self.table.insert(Arc::new(next));
        self.engine.scale(&function, replicas as usize);
        Ok(true)
    }

    /// Returns `false` if the function does not exist.
    pub async fn remove(self: &Arc<Self>, name: &str) -> Result<bool, Problem> {
        let _changing = self.changes.lock(&[name]).await;
        let _one = self.listing.lock().await;
        if self.table.find(name).is_none() {
            return Ok(false);
        }
        let gone = name.to_owned();
        self.save_with(|all| {
            all.remove(&gone);
        })
        .await?;
        if let Some(before) = self.table.remove(name) {
            before.log.push("gateway", "removed");
            self.engine.remove(&before.function);
        }
        self.logs.forget(name);
        Ok(true)
    }

    /// Writes to disk before the table changes: acknowledged changes survive a crash.
    async fn save_with(
        &self,
        change: impl FnOnce(&mut BTreeMap<String, Deployment>),
    ) -> Result<(), Problem> {
        let list = self.table.list();
        let deployments = list
            .iter()
            .map(|d| (d.name().to_owned(), d.deployment.clone()));
        let mut deployments = deployments.collect();
        change(&mut deployments);
        let store = self.store.clone();
        let deployments: Vec<Deployment> = deployments.into_values().collect();
        let saved = blocking(move || store.save_deployments(&deployments)).await?;
        saved.map_err(|error| Problem::storage("the deployment", &error))
    }

    /// Saves usage records; called periodically and at shutdown.
    pub fn save_usage(&self) {
        if let Err(error) = self.meters.save(&self.store.usage_file()) {
            tracing::error!(%error, "cannot record usage");
        }
    }
}

/// The name of a stored function in an image name: `sobel`, `baltra/sobel` or `sobel:latest`.
fn image_name(image: &str) -> Result<String, Problem> {
    let name = image.strip_prefix("baltra/").unwrap_or(image);
    let name = name.strip_suffix(":latest").unwrap_or(name);
    if store::valid_name(name) {
        Ok(name.to_owned())
    } else {
        Err(Problem::bad_request(format!(
            "image '{}' is not a function's name: this gateway runs functions of its own store; container images need Kubernetes",
            shortened(image)
        )))
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_name_functions_of_the_store() {
        for image in [
            "sobel",
            "baltra/sobel",
            "sobel:latest",
            "baltra/sobel:latest",
        ] {
            assert_eq!(image_name(image).unwrap(), "sobel");
        }
        for image in [
            "",
            "ghcr.io/openfaas/nodeinfo:latest",
            "alpine:3",
            "a/b",
            "../x",
            "Sobel",
        ] {
            let problem = image_name(image).unwrap_err();
            assert_eq!(problem.status, 400);
            assert!(problem.detail.contains("Kubernetes"));
        }
    }
}
