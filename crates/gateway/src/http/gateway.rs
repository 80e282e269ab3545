//! What all doors and workers share: the state of one gateway.

use crate::engine::Engine;
use crate::http::containers::Containers;
use crate::http::inference::memory::Regions;
use crate::http::keys::Keys;
use crate::http::logs::Logs;
use crate::http::meters::Meters;
use crate::http::problem::Problem;
use crate::http::queue::Queue;
use crate::http::store::{self, Files, Store};
use crate::http::table::{Deployed, Deployment, Table};
use crate::options::Options;
use anyhow::{Context, Result};
use baltra_functions::Function;
use baltra_trace::Spans;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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
    pub regions: Regions,
    pub spans: Spans,
    pub started: Instant,
    pub draining: AtomicBool,
    pub connections: AtomicUsize,
    /// Inferences that are being carried out.
    pub inferences: AtomicUsize,
    /// Where what no connection waits for is done.
    pub runtime: tokio::runtime::Handle,
    /// One change of what is deployed at a time.
    changes: tokio::sync::Mutex<()>,
}

/// Work past its deadline usually ends sooner: what takes longer is told to probes.
const OVERDUE_MIN: Duration = Duration::from_secs(2);

/// What a deployment is asked for with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wish {
    pub name: String,
    pub image: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

impl Gateway {
    /// Opens the state directory; nothing is deployed yet. To be called within the runtime that
    /// does what no connection waits for.
    pub fn new(options: Options, engine: Engine) -> Result<Gateway> {
        let state = &options.state;
        let store = Store::open(state).with_context(|| {
            let state = state.display();
            format!("cannot use {state}, from 'gateway.state'")
        })?;
        let meters = Meters::new(options.worker_count());
        meters
            .load(&store.usage_file())
            .with_context(|| format!("cannot read {}", store.usage_file().display()))?;
        Ok(Gateway {
            keys: Keys::new(&options),
            table: Table::default(),
            containers: Containers::default(),
            meters,
            logs: Logs::default(),
            store: Arc::new(store),
            engine,
            queue: Queue::new(&options.limits),
            regions: Regions::new(options.shared_memory),
            spans: Spans::from_environment("baltra-gateway", &[])?,
            started: Instant::now(),
            draining: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            inferences: AtomicUsize::new(0),
            runtime: tokio::runtime::Handle::current(),
            changes: tokio::sync::Mutex::new(()),
            options,
        })
    }

    /// Whether calls are taken.
    pub fn is_ready(&self) -> bool {
        !self.draining.load(Relaxed)
    }

    /// Why no probe should send calls here; `None`: all is well, or mends itself at once.
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

    /// Deploys what was deployed before. A function that is not what it was is left out, loudly.
    pub async fn restore(&self) -> Result<()> {
        let deployments = self.store.deployments();
        for deployment in deployments.context("cannot read what was deployed")? {
            let name = deployment.name.clone();
            match self.store.get(&deployment.image) {
                Some(Ok(function)) => self.place(deployment, Arc::new(function)).await,
                Some(Err(error)) => tracing::error!(name, %error, "not deployed again"),
                None => {
                    tracing::error!(name, image = deployment.image, "not in the store any more")
                }
            }
        }
        Ok(())
    }

    async fn place(&self, deployment: Deployment, function: Arc<Function>) {
        let log = self.logs.of(&deployment.name);
        log.push(
            "gateway",
            format!("deployed '{}' ({})", deployment.image, &function.digest),
        );
        let limits = &self.options.limits;
        let replicas = deployment.replicas as usize;
        let deployed = Deployed::new(deployment, function.clone(), log, &self.keys, limits);
        self.engine.deploy(&function, replicas).await;
        if let Some(before) = self.table.insert(Arc::new(deployed)) {
            self.engine.remove(&before.function);
        }
    }

    /// Deploys a function of the store, or replaces what has its name.
    pub async fn deploy(self: &Arc<Self>, wish: Wish) -> Result<Arc<Deployed>, Problem> {
        if !store::valid_name(&wish.name) {
            return Err(Problem::bad_request(
                "a function's name is 1 to 63 lower-case letters, digits and dashes, a letter or digit at both ends",
            ));
        }
        let image = image_name(&wish.image)?;
        let _one = self.changes.lock().await;
        let store = self.store.clone();
        let loaded = blocking(move || store.get(&image).map(|f| (image, f))).await?;
        let Some((image, function)) = loaded else {
            return Err(Problem::bad_request(format!(
                "the image '{}' is no function of this gateway's store: upload it first ('baltra function deploy'). \
                 Container images are for Kubernetes",
                shortened(&wish.image)
            )));
        };
        let function = function.map_err(|error| Problem::unprocessable(error.to_string()))?;
        let before = self.table.find(&wish.name);
        let deployment = Deployment {
            name: wish.name.clone(),
            image,
            labels: wish.labels,
            annotations: wish.annotations,
            replicas: before.as_ref().map_or(1, |b| b.deployment.replicas.max(1)),
            created_ms: before.map_or_else(now_ms, |b| b.deployment.created_ms),
        };
        self.save_with(|all| {
            all.insert(wish.name.clone(), deployment.clone());
        })
        .await?;
        self.place(deployment, Arc::new(function)).await;
        self.table
            .find(&wish.name)
            .ok_or_else(|| Problem::unknown_function(&wish.name))
    }

    /// Deploys a function that the registry has, in place of what it had before.
    pub async fn deploy_pooled(
        self: &Arc<Self>,
        name: &str,
        files: Files,
        labels: BTreeMap<String, String>,
    ) -> Result<(), Problem> {
        let _one = self.changes.lock().await;
        let store = self.store.clone();
        let image = name.to_owned();
        let stored = blocking(move || store.put_pooled(&image, &files)).await?;
        let function = stored.map_err(Problem::from)?;
        let before = self.table.find(name);
        let deployment = Deployment {
            name: name.to_owned(),
            image: name.to_owned(),
            labels,
            annotations: BTreeMap::new(),
            replicas: before.as_ref().map_or(1, |b| b.deployment.replicas.max(1)),
            created_ms: before.map_or_else(now_ms, |b| b.deployment.created_ms),
        };
        self.save_with(|all| {
            all.insert(deployment.name.clone(), deployment.clone());
        })
        .await?;
        self.place(deployment, Arc::new(function)).await;
        Ok(())
    }

    /// Changes how many copies are wanted; `false`: there is no such function.
    pub async fn scale(self: &Arc<Self>, name: &str, replicas: u32) -> Result<bool, Problem> {
        let _one = self.changes.lock().await;
        let Some(deployed) = self.table.find(name) else {
            return Ok(false);
        };
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

    /// `false`: there is no such function.
    pub async fn remove(self: &Arc<Self>, name: &str) -> Result<bool, Problem> {
        let _one = self.changes.lock().await;
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

    /// On disk first: what a caller was told is so after a crash too.
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

    /// Keeps the usage so far; called now and then, and at the end.
    pub fn save_usage(&self) {
        if let Err(error) = self.meters.save(&self.store.usage_file()) {
            tracing::error!(%error, "usage is not recorded");
        }
    }
}

/// The function of the store that an image names: `sobel`, `baltra/sobel` or `sobel:latest`.
fn image_name(image: &str) -> Result<String, Problem> {
    let name = image.strip_prefix("baltra/").unwrap_or(image);
    let name = name.strip_suffix(":latest").unwrap_or(name);
    match store::valid_name(name) {
        true => Ok(name.to_owned()),
        false => Err(Problem::bad_request(format!(
            "the image '{}' is no name of a function: this gateway runs functions of its own store. \
             Container images are for Kubernetes",
            shortened(image)
        ))),
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(100).collect()
}

pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| d.as_millis() as u64)
}

/// Runs what waits for the disk or computes for long where it holds nobody up.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| {
        tracing::error!(%error, "a worker's task");
        Problem::internal("the gateway failed; its log says why")
    })
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
