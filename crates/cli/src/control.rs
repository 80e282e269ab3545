//! A client of the daemon's control socket.

use anyhow::{anyhow, Result};
use baltra_api::control::control_client::ControlClient;
use baltra_manager::options::PathOptions;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};

/// The generated client.
pub type Client = ControlClient<Channel>;

/// A connection to the control socket, with its own runtime.
pub struct Control {
    runtime: tokio::runtime::Runtime,
    client: Client,
}

/// Directory of the daemons that the host's service manager starts.
const SYSTEM: &str = "/run/baltra";

/// The daemon's directories as the command line gives them. Without a directory: those of the
/// user's own daemon or, if none is running, of the host's.
pub fn paths(runtime_dir: Option<&PathBuf>) -> PathOptions {
    let mut paths = PathOptions::default();
    if let Some(dir) = runtime_dir {
        paths.runtime = dir.clone();
        return paths;
    }
    let system = PathOptions {
        runtime: SYSTEM.into(),
        ..paths.clone()
    };
    if !paths.control_socket().exists() && system.control_socket().exists() {
        system
    } else {
        paths
    }
}

impl Control {
    /// Connects; the error has a remedy if no daemon is running.
    pub fn connect(paths: &PathOptions) -> Result<Control> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let socket = paths.control_socket();
        // Check the socket first: the channel's own errors are about HTTP.
        if let Err(error) = std::os::unix::net::UnixStream::connect(&socket) {
            use std::io::ErrorKind::{ConnectionRefused, NotFound, PermissionDenied};
            return Err(match error.kind() {
                NotFound | ConnectionRefused => anyhow!(
                    "no daemon is running in {}: start one with `baltra up`",
                    paths.runtime.display()
                ),
                PermissionDenied => anyhow!(
                    "the daemon in {} belongs to another user: connect as that user or as root",
                    paths.runtime.display()
                ),
                _ => anyhow!(error).context(format!("cannot connect to {}", socket.display())),
            });
        }
        let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display()))?;
        let channel = runtime.block_on(endpoint.connect())?;
        Ok(Control {
            runtime,
            client: ControlClient::new(channel),
        })
    }

    /// One call: its response, or the daemon's error message.
    pub fn call<T, F>(&mut self, f: impl FnOnce(Client) -> F) -> Result<T>
    where
        F: Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    {
        self.call_within(Duration::from_secs(60), f)
    }

    /// A call that may take as long as `limit`.
    pub fn call_within<T, F>(&mut self, limit: Duration, f: impl FnOnce(Client) -> F) -> Result<T>
    where
        F: Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    {
        let call = f(self.client.clone());
        let limited = async { tokio::time::timeout(limit, call).await };
        let answer = self.runtime.block_on(limited);
        match answer {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(anyhow!("{}", status.message())),
            Err(_) => Err(anyhow!("the daemon does not respond (see `baltra logs`)")),
        }
    }
}
