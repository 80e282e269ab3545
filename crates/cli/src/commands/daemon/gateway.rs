//! `baltra gateway`

use super::{announce, enter, prepare};
use crate::args::Gateway;
use crate::configuration;
use crate::daemons::{self, Daemon};
use anyhow::Result;
use baltra_gateway::Service;
use std::path::PathBuf;

/// Serves until SIGTERM or SIGINT.
pub fn gateway(args: &Gateway, runtime_dir: Option<&PathBuf>) -> Result<()> {
    let loader = configuration::layers(&args.config, runtime_dir)?;
    let own = configuration::shared(&loader)?;
    let options = configuration::gateway(&loader, &own.paths.state)?.options;
    enter(&args.background);
    let lock = prepare(Daemon::Gateway, &own.paths, &own.level)?;
    let tls = options.tls_cert.is_some();
    let service = Service::start(options)?;
    let grpc = service
        .grpc_address()
        .map(|address| daemons::url(address, tls));
    announce(
        &lock,
        daemons::url(service.address(), tls),
        grpc.into_iter().collect(),
    )?;
    service.run()
}
