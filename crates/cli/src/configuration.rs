//! The configuration of all daemons: layers, sections, and values derived from them.

use crate::args::Config;
use anyhow::{bail, Context, Result};
use baltra_manager::options::{Loader, Options, PathOptions};
use serde::de::DeserializeOwned;
use serde::Serialize;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// An address that means "a free port on loopback".
const AUTO: &str = "auto";
const AUTO_ADDRESS: &str = "127.0.0.1:0";

/// All layers: the embedded file, the operator's, the environment, flags.
pub fn layers(config: &Config, runtime_dir: Option<&PathBuf>) -> Result<Loader> {
    let mut loader = Loader::new();
    if let Some(path) = &config.config {
        loader = loader.file(path)?;
    }
    // A variable that is not UTF-8 is not a configuration key.
    let variables = std::env::vars_os()
        .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    loader = loader.environment(variables)?;
    for assignment in &config.set {
        loader = loader.assignment(assignment)?;
    }
    for (key, dir) in [
        ("runtime", runtime_dir),
        ("state", config.state_dir.as_ref()),
    ] {
        if let Some(dir) = dir {
            let dir = std::path::absolute(dir)?;
            loader.set("paths", key, &dir.to_string_lossy())?;
        }
    }
    Ok(loader)
}

/// The Device Manager's configuration.
pub fn manager(config: &Config, runtime_dir: Option<&PathBuf>) -> Result<Options> {
    layers(config, runtime_dir)?.finish()
}

/// Values of the common sections that the other daemons need.
pub struct Shared {
    /// The section `[paths]`.
    pub paths: PathOptions,
    /// The value of `log.level`.
    pub level: String,
}

/// The common sections.
pub fn shared(loader: &Loader) -> Result<Shared> {
    let options = loader.clone().finish()?;
    Ok(Shared {
        paths: options.paths,
        level: options.log.level,
    })
}

/// Another daemon's section, and whether `baltra up` starts it.
#[derive(Clone, Debug)]
pub struct Section<T> {
    /// `enabled`, if a layer sets it.
    pub enabled: Option<bool>,
    /// The daemon's options.
    pub options: T,
}

/// The registry's configuration.
pub fn registry(loader: &Loader, state: &Path) -> Result<Section<baltra_registry::Options>> {
    let section: Section<baltra_registry::Options> = section(
        loader,
        "registry",
        &["address", "metrics"],
        &state.join("registry"),
    )?;
    let options = section.options.validate().context("in the configuration")?;
    Ok(Section { options, ..section })
}

/// The gateway's configuration.
pub fn gateway(loader: &Loader, state: &Path) -> Result<Section<baltra_gateway::Options>> {
    let section: Section<baltra_gateway::Options> = section(
        loader,
        "gateway",
        &["address", "grpc_address"],
        &state.join("gateway"),
    )?;
    let options = section.options.validate().context("in the configuration")?;
    Ok(Section { options, ..section })
}

/// Deserializes a daemon's section. The common keys are applied here: `enabled`, the state's
/// directory, free ports.
fn section<T: DeserializeOwned>(
    loader: &Loader,
    name: &str,
    addresses: &[&str],
    state: &Path,
) -> Result<Section<T>> {
    let mut table = loader.section(name)?;
    let enabled = match table.remove("enabled") {
        None => None,
        Some(Value::Boolean(enabled)) => Some(enabled),
        Some(other) => {
            bail!("in the configuration: '{name}.enabled' must be true or false, not {other}")
        }
    };
    for key in addresses {
        if table.get(*key).and_then(Value::as_str) == Some(AUTO) {
            table.insert((*key).to_owned(), AUTO_ADDRESS.into());
        }
    }
    if !table.contains_key("state") {
        table.insert("state".into(), state.to_string_lossy().into_owned().into());
    }
    let options = Value::Table(table)
        .try_into()
        .with_context(|| format!("in the section [{name}] of the configuration"))?;
    Ok(Section { enabled, options })
}

/// The checked configuration of all daemons that `baltra up` starts.
pub struct DaemonConfiguration {
    /// The Device Manager's configuration.
    pub manager: Options,
    /// The registry's configuration; `None`: it is not started.
    pub registry: Option<baltra_registry::Options>,
    /// The gateway's configuration; `None`: it is not started.
    pub gateway: Option<baltra_gateway::Options>,
}

/// Checks all daemons' configurations, including those of daemons that are not started.
pub fn daemon_configuration(
    config: &Config,
    runtime_dir: Option<&PathBuf>,
) -> Result<DaemonConfiguration> {
    let loader = layers(config, runtime_dir)?;
    let manager = loader.clone().finish()?;
    let state = &manager.paths.state;
    let registry = registry(&loader, state)?;
    let gateway = gateway(&loader, state)?;
    // A node that joins another host's registry needs no local one.
    let own_registry = registry.enabled.unwrap_or(manager.node.registry.is_empty());
    Ok(DaemonConfiguration {
        registry: own_registry.then_some(registry.options),
        gateway: gateway.enabled.unwrap_or(true).then_some(gateway.options),
        manager,
    })
}

impl DaemonConfiguration {
    /// The configuration as TOML.
    pub fn dump(&self) -> Result<String> {
        let mut text = self.manager.dump();
        text.push_str(&dump("registry", self.registry.as_ref())?);
        text.push_str(&dump("gateway", self.gateway.as_ref())?);
        Ok(text)
    }
}

fn dump<T: Serialize>(name: &str, options: Option<&T>) -> Result<String> {
    let mut section = Table::new();
    if let Some(options) = options {
        section = Table::try_from(options)?;
    }
    section.insert("enabled".into(), options.is_some().into());
    let mut file = Table::new();
    file.insert(name.to_owned(), Value::Table(section));
    Ok(format!("\n{}", toml::to_string(&file)?))
}

/// A text as a TOML string.
pub fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}
