//! The subcommands of `baltra kubernetes`.

use crate::{controller, node, resources, webhook};
use anyhow::Result;
use clap::Subcommand;
use std::future::Future;
use std::io::Write;

/// Run Baltra in a Kubernetes cluster: Pods request accelerators by annotation or claim
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Command {
    /// Print the definitions of the custom resources
    #[command(after_help = "Example:\n  baltra kubernetes crds | kubectl apply -f -")]
    Crds,
    /// Run the admission webhook, which allocates devices to Pods
    #[command(
        after_help = "Example:\n  baltra kubernetes webhook --registry http://baltra-registry.baltra:7480"
    )]
    Webhook(webhook::Options),
    /// Run the controller, which synchronizes objects and registry and moves Pods
    #[command(
        after_help = "Example:\n  baltra kubernetes controller --registry http://baltra-registry.baltra:7480"
    )]
    Controller(controller::Options),
    /// Run the node agent beside a manager: Pods' identities, labels, the driver of claims
    #[command(
        after_help = "Example:\n  baltra kubernetes node --node node-1 --registry http://baltra-registry.baltra:7480"
    )]
    Node(node::Options),
}

const EXAMPLES: &str = "Examples:
  baltra kubernetes crds | kubectl apply -f -
  kubectl get devices,accelerators,functions";

/// Runs a command; the caller configures logging.
///
/// # Errors
/// The failure, for display.
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

/// Runs the daemon until it fails or the process receives a termination signal.
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
