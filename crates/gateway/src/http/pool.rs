//! The registry's functions: each gateway serves them while they exist.
//!
//! A registry's function is `NAME.NAMESPACE`, and that is its name in a URL. Its content is an
//! upload's ([`upload::JSON`]). A registry that is unreachable, or that is being restored after
//! losing its state, does not remove functions.

use crate::http::call::forward;
use crate::http::function::upload::Form;
use crate::http::gateway::Gateway;
use crate::http::telemetry::trace;
use baltra_api::client::{self, Functions};
use baltra_api::registry::{Function, FunctionGetRequest, FunctionsRequest};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tonic::Status;

/// Interval of requests to the registry.
const EVERY: Duration = Duration::from_secs(1);
/// A function is served for this long after the registry has stopped listing it.
const GRACE: Duration = Duration::from_secs(30);
/// Annotation of a deployment: the digest of the registry's content.
const DIGEST: &str = "baltra.io/digest";

struct Pool {
    gateway: Arc<Gateway>,
    functions: Functions,
    /// Functions that cannot be served, by name, to log them once.
    refused: HashMap<String, String>,
    /// Time since which the registry has not listed a function.
    missing: HashMap<String, Instant>,
}

/// Follows the registry in the options, if there is one.
///
/// # Errors
/// The options are invalid.
pub(crate) fn follow(gateway: &Arc<Gateway>) -> anyhow::Result<()> {
    let engine = &gateway.options.engine;
    if engine.registry.is_empty() {
        return Ok(());
    }
    let options = client::Options {
        url: engine.registry.clone(),
        token: engine.registry_token.clone(),
        ca: engine.registry_ca.clone(),
    };
    let mut pool = Pool {
        gateway: gateway.clone(),
        functions: client::functions(&options)?,
        refused: HashMap::new(),
        missing: HashMap::new(),
    };
    let name =
        trace::secret_id().map_err(|error| anyhow::anyhow!("cannot generate a name: {error}"))?;
    let following = forward::follow(gateway.clone(), pool.functions.clone(), name);
    gateway.runtime.spawn(following);
    gateway.runtime.spawn(async move {
        loop {
            if let Err(status) = pool.round().await {
                tracing::debug!(%status, "cannot list the registry's functions");
            }
            tokio::time::sleep(EVERY).await;
        }
    });
    Ok(())
}

impl Pool {
    async fn round(&mut self) -> Result<(), Status> {
        let reply = self
            .functions
            .functions(FunctionsRequest::default())
            .await?;
        let present = reply.into_inner().functions;
        let present: Vec<Function> = present.into_iter().filter(is_served).collect();
        for function in &present {
            let is_deployed = self.gateway.table.find(&function.name);
            let is_deployed = is_deployed
                .is_some_and(|d| d.deployment.labels.get(DIGEST) == Some(&function.digest));
            if !is_deployed && self.refused.get(&function.name) != Some(&function.digest) {
                self.take(function).await?;
            }
        }
        let names: HashSet<&str> = present.iter().map(|f| f.name.as_str()).collect();
        self.missing
            .retain(|name, _| !names.contains(name.as_str()));
        self.refused.retain(|name, _| names.contains(name.as_str()));
        for deployed in self.gateway.table.list() {
            let (name, labels) = (deployed.name(), &deployed.deployment.labels);
            if !labels.contains_key(DIGEST) || names.contains(name) {
                continue;
            }
            let since = *self
                .missing
                .entry(name.to_owned())
                .or_insert_with(Instant::now);
            if since.elapsed() >= GRACE {
                match self.gateway.remove(name).await {
                    Ok(_) => tracing::info!(name, "removed: the registry no longer has it"),
                    Err(problem) => tracing::error!(name, ?problem, "not removed"),
                }
            }
        }
        Ok(())
    }

    async fn take(&mut self, function: &Function) -> Result<(), Status> {
        let name = function.name.clone();
        let request = FunctionGetRequest { name: name.clone() };
        let got = self.functions.function_get(request).await?.into_inner();
        // The content may have changed since the list was made.
        let digest = got.function.map(|f| f.digest).unwrap_or_default();
        let bytes_max = self.gateway.options.limits.upload_bytes_max;
        let files = Form::Json.unpack(&got.content, bytes_max);
        let labels = BTreeMap::from([(DIGEST.to_owned(), digest.clone())]);
        let deployed = match files {
            Ok(files) => self.gateway.deploy_pooled(&name, files, labels).await,
            Err(error) => Err(error.into()),
        };
        match deployed {
            Ok(()) => tracing::info!(name, digest, "deployed from the registry"),
            Err(problem) => {
                tracing::warn!(
                    name,
                    digest,
                    ?problem,
                    "cannot serve a function of the registry"
                );
                self.refused.insert(name, digest);
            }
        }
        Ok(())
    }
}

/// Whether the function has content for gateways. Functions without content belong to applications
/// that run their own code.
fn is_served(function: &Function) -> bool {
    function.content_bytes > 0 && function.name.contains('.')
}
