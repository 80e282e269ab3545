//! A client of the registry.

use crate::args::RegistryAt;
use crate::control::Control;
use crate::daemons::Daemon;
use anyhow::{anyhow, Result};
use baltra_api::client::{self, Instances, Operators};
use baltra_api::control;
use baltra_manager::options::PathOptions;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;
use tonic::{Code, Response, Status};

/// Timeout of a response.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// A registry's client, with its runtime.
pub struct Registry {
    /// Its address.
    pub url: String,
    runtime: tokio::runtime::Runtime,
    /// Its services.
    pub services: Services,
}

/// The services of a registry.
#[derive(Clone)]
pub struct Services {
    /// The service for applications.
    pub instances: Instances,
    /// The service for operators.
    pub operators: Operators,
}

/// The registry in the arguments, this host's, or the one that its node has joined.
pub fn find(at: &RegistryAt, paths: &PathOptions) -> Option<String> {
    let named = at.registry.clone().filter(|url| !url.is_empty());
    named
        .or_else(|| {
            Daemon::Registry
                .announcement(paths)
                .map(|announcement| announcement.url)
        })
        .or_else(|| {
            let mut manager = Control::connect(paths).ok()?;
            let call =
                manager.call(|mut c| async move { c.status(control::StatusRequest {}).await });
            call.ok().map(|s| s.registry).filter(|url| !url.is_empty())
        })
}

/// The file with the certificate authority of a registry at an address.
pub fn authority(url: &str) -> Option<PathBuf> {
    let file = std::env::var_os("BALTRA_TLS_CA");
    file.filter(|_| url.starts_with("https:"))
        .map(PathBuf::from)
}

impl Registry {
    /// Connects to the registry; the error has a remedy if there is none.
    pub fn connect(at: &RegistryAt, paths: &PathOptions) -> Result<Registry> {
        let url = find(at, paths).ok_or_else(|| {
            anyhow!(
                "no registry is running in {}: start one with `baltra up`, or set its address with --registry",
                paths.runtime.display()
            )
        })?;
        Registry::at(url, at)
    }

    /// A client of the registry at an address.
    pub fn at(url: String, at: &RegistryAt) -> Result<Registry> {
        let options = client::Options {
            url: url.clone(),
            token: at.registry_token.clone().unwrap_or_default(),
            ca: authority(&url),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let services = {
            let _inside = runtime.enter();
            Services {
                instances: client::instances(&options)?,
                operators: client::operators(&options)?,
            }
        };
        Ok(Registry {
            url,
            runtime,
            services,
        })
    }

    /// Runs a future on the runtime.
    pub fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// One call: its response, or the registry's error message.
    pub fn call<T, F>(&self, f: impl FnOnce(Services) -> F) -> Result<T>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let call = call(f(self.services.clone()));
        self.runtime
            .block_on(call)
            .map_err(|status| unreachable(&self.url, &status))
    }
}

/// Waits for a response, with a time limit.
pub async fn call<T>(call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Status> {
    match tokio::time::timeout(ANSWER_MAX, call).await {
        Ok(answer) => answer.map(Response::into_inner),
        Err(_) => Err(Status::deadline_exceeded("no response in time")),
    }
}

/// The error of a request, for display.
pub fn unreachable(url: &str, status: &Status) -> anyhow::Error {
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded => {
            anyhow!("cannot reach the registry at {url}: {}", status.message())
        }
        Code::PermissionDenied | Code::Unauthenticated => {
            anyhow!(
                "{} (BALTRA_REGISTRY_TOKEN holds the token)",
                status.message()
            )
        }
        _ => anyhow!("{}", status.message()),
    }
}
