//! The registry's clients for this crate.

use anyhow::{Context, Result};
use baltra_api::client::{self, Functions, Instances, Operators};
use clap::Args;
use std::path::PathBuf;

/// The registry's address and credentials.
#[derive(Clone, Debug, Args)]
pub struct RegistryAt {
    /// The registry: http://host:port or https://host:port
    #[arg(long, env = "BALTRA_REGISTRY", value_name = "URL")]
    pub registry: String,
    /// Its operators' token
    #[arg(
        long,
        env = "BALTRA_REGISTRY_TOKEN",
        value_name = "TOKEN",
        default_value = "",
        hide_env_values = true
    )]
    pub registry_token: String,
    /// A file whose first line is that token
    #[arg(long, value_name = "FILE", conflicts_with = "registry_token")]
    pub registry_token_file: Option<PathBuf>,
    /// With https: the authority of its certificate, PEM
    #[arg(long, env = "BALTRA_TLS_CA", value_name = "FILE")]
    pub registry_ca: Option<PathBuf>,
}

/// The clients of the registry's services. Clones share the connections.
#[derive(Clone)]
pub struct Registry {
    /// The service that allocates devices.
    pub instances: Instances,
    /// The service of functions.
    pub functions: Functions,
    /// The service of operators and controllers.
    pub operators: Operators,
}

impl Registry {
    /// Connects at the first request.
    ///
    /// # Errors
    /// The arguments are invalid.
    pub fn new(at: &RegistryAt) -> Result<Registry> {
        let token = match &at.registry_token_file {
            None => at.registry_token.clone(),
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("cannot read the token in {}", path.display()))?;
                text.lines().next().unwrap_or_default().trim().to_owned()
            }
        };
        let options = client::Options {
            url: at.registry.clone(),
            token,
            ca: at
                .registry_ca
                .clone()
                .filter(|_| at.registry.starts_with("https:")),
        };
        Ok(Registry {
            instances: client::instances(&options)?,
            functions: client::functions(&options)?,
            operators: client::operators(&options)?,
        })
    }
}
