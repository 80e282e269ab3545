//! `baltra kubernetes …`

use crate::registry::RegistryAt;
use crate::{controller, node, resources, webhook};
use anyhow::Result;
use clap::{Args, Subcommand};
use std::future::Future;
use std::io::Write;
use std::net::SocketAddr;

/// Baltra in a Kubernetes cluster: Pods ask for accelerators by annotation or claim
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Command {
    /// Print the definitions of the custom resources
    #[command(after_help = "Example:\n  baltra kubernetes crds | kubectl apply -f -")]
    Crds,
    /// The admission webhook: gives Pods that ask a device, and says why when there is none
    #[command(
        after_help = "Example:\n  baltra kubernetes webhook --registry http://baltra-registry.baltra:7480"
    )]
    Webhook(webhook::Options),
    /// The controller: objects follow the registry, the registry follows objects, Pods that have to move do
    #[command(
        after_help = "Example:\n  baltra kubernetes controller --registry http://baltra-registry.baltra:7480"
    )]
    Controller(controller::Options),
    /// On each node, beside its manager: who each Pod is, labels, the driver of claims
    #[command(
        after_help = "Example:\n  baltra kubernetes node --node node-1 --registry http://baltra-registry.baltra:7480"
    )]
    Node(node::Options),
}

const EXAMPLES: &str = "Examples:
  baltra kubernetes crds | kubectl apply -f -
  kubectl get devices,accelerators,functions";

/// What each daemon here takes.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// Which registry.
    #[command(flatten)]
    pub registry: RegistryAt,
    /// Where /metrics and /healthz are served over HTTP; port 0 takes a free one; the last one counts
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:0",
        overrides_with = "metrics"
    )]
    pub metrics: SocketAddr,
    /// The namespace that Baltra itself is in
    #[arg(long, env = "POD_NAMESPACE", default_value = "baltra")]
    pub namespace: String,
}

/// Does what the command line says; logs go to wherever the caller has sent them.
///
/// # Errors
/// What is wrong, for people.
pub fn command(command: Command, out: &mut impl Write) -> Result<()> {
    match command {
        Command::Crds => {
            for definition in resources::definitions() {
                // JSON is YAML.
                let text = serde_json::to_string_pretty(&definition)?;
                writeln!(out, "---\n{text}")?;
            }
            Ok(())
        }
        Command::Webhook(options) => run(webhook::run(options)),
        Command::Controller(options) => run(controller::run(options)),
        Command::Node(options) => run(node::run(options)),
    }
}

/// Until it fails, or the process is told to end.
fn run(daemon: impl Future<Output = Result<()>>) -> Result<()> {
    use tokio::signal::unix::{signal, SignalKind};
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let ended = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::select! {
            ended = daemon => ended,
            _ = terminate.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
        }
    });
    runtime.shutdown_timeout(std::time::Duration::from_millis(500));
    ended
}
