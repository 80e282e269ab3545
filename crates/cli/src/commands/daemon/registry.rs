//! `baltra registry`

use super::{announce, enter, prepare};
use crate::args::Registry;
use crate::configuration;
use crate::daemons::{self, Daemon};
use anyhow::Result;
use baltra_registry::Service;
use std::path::PathBuf;

/// Serves until SIGTERM or SIGINT.
pub fn registry(args: &Registry, runtime_dir: Option<&PathBuf>) -> Result<()> {
    let loader = configuration::layers(&args.config, runtime_dir)?;
    let own = configuration::shared(&loader)?;
    let options = configuration::registry(&loader, &own.paths.state)?.options;
    enter(&args.background);
    let lock = prepare(Daemon::Registry, &own.paths, &own.level)?;
    let tls = options.tls_cert.is_some();
    let metrics = options.metrics_address().ok().flatten();
    let service = Service::new(options)?;
    let metrics = metrics.map(|address| format!("http://{address}/metrics"));
    announce(
        &lock,
        daemons::url(service.address()?, tls),
        metrics.into_iter().collect(),
    )?;
    service.run()
}
