//! The admission webhook: allocates a device and a node to Pods that request one, with the
//! credentials of a session.
//!
//! | module | content |
//! |---|---|
//! | [`certificate`] | the webhook's self-issued certificate |
//! | [`server`] | HTTPS |
//! | [`review`] | decisions on Pods, Deployments, StatefulSets |
//! | [`pod`] | changes of a Pod |
//! | [`scaling`] | the registry's signals for the cluster's autoscaler, on the same port |
//!
//! The cluster calls it only for objects that refer to Baltra (the configuration's
//! `matchConditions`), so its failure does not affect other objects.

pub mod certificate;
pub mod pod;
pub mod review;
pub mod scaling;
mod server;

use crate::health::{self, Counters, Durations};
use crate::options::Common;
use crate::registry::Registry;
use anyhow::{Context, Result};
use clap::Args;
use kube::Client;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// Options of `baltra kubernetes webhook`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Options of all daemons.
    #[command(flatten)]
    pub common: Common,
    /// Address for the API server, over HTTPS
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:9443")]
    pub listen: SocketAddr,
    /// Its Service, for whose DNS names the certificate is issued
    #[arg(long, default_value = "baltra-webhook")]
    pub service: String,
    /// Further names or addresses of the certificate; may be repeated
    #[arg(long, value_name = "NAME")]
    pub dns_name: Vec<String>,
    /// The Secret that holds the certificate
    #[arg(long, default_value = "baltra-webhook-tls")]
    pub secret: String,
    /// The webhook configurations (mutating and validating) whose caBundle it updates
    #[arg(long, default_value = "baltra")]
    pub configuration: String,
    /// Validity of a certificate, seconds; it is renewed after two thirds of that
    #[arg(long, value_name = "SECONDS", default_value_t = 90 * 86_400, value_parser = clap::value_parser!(u64).range(3..))]
    pub certificate_s: u64,
    /// The managers' runtime directory on the nodes
    #[arg(long, value_name = "DIR", default_value = "/run/baltra")]
    pub node_runtime_dir: PathBuf,
}

/// Indices of its counters.
pub(crate) const ADMITTED: usize = 0;
pub(crate) const WAITING: usize = 1;
pub(crate) const REFUSED: usize = 2;
const COUNTERS: [(&str, &str); 3] = [
    (
        "pods_admitted",
        "Pods that devices were allocated to at admission",
    ),
    (
        "pods_waiting",
        "Pods admitted without a device, waiting for one",
    ),
    ("pods_refused", "Pods and workloads refused"),
];

/// Serves until it fails.
///
/// # Errors
/// It cannot start, or it fails.
pub async fn run(options: Options) -> Result<()> {
    let client = Client::try_default()
        .await
        .context("no cluster configuration: run in a Pod, or set KUBECONFIG")?;
    let registry = Registry::new(&options.common.registry)?;
    let counters = Counters::new(COUNTERS);
    let took = Arc::new(Durations::new(
        "admission",
        "Time from an admission request's head to its response",
    ));
    let (counted, timed) = (counters.clone(), took.clone());
    let text = move || counted.text() + &timed.text();
    let metrics = health::serve(options.common.metrics, text).await?;
    let certificate = certificate::Keeper::start(client.clone(), &options).await?;
    let reviewer = review::Reviewer::start(client, registry, &options, counters).await?;
    tracing::info!(listen = %options.listen, %metrics, "serving");
    server::serve(options.listen, certificate, Arc::new(reviewer), took).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    /// The options of a command line without arguments.
    pub fn options() -> Options {
        let line = ["webhook", "--registry", "http://127.0.0.1:7480"];
        Line::parse_from(line).options
    }
}
