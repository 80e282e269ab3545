//! TLS configurations.

use crate::options::Options;
use anyhow::{Context, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::sync::Arc;

/// The configuration of a listener for a protocol (its ALPN name); `None`: TLS is disabled.
pub(crate) fn server(options: &Options, protocol: &[u8]) -> Result<Option<Arc<ServerConfig>>> {
    let (Some(cert), Some(key)) = (&options.tls_cert, &options.tls_key) else {
        return Ok(None);
    };
    let chain = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(|| format!("cannot read {} ('gateway.tls_cert')", cert.display()))?;
    let key_der = PrivateKeyDer::from_pem_file(key)
        .with_context(|| format!("cannot read {} ('gateway.tls_key')", key.display()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key_der)
        .context("'gateway.tls_key' is not the key of 'gateway.tls_cert'")?;
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(Some(Arc::new(config)))
}

/// The configuration for callbacks, with the public root certificates.
pub(crate) fn client() -> Result<Arc<ClientConfig>> {
    let roots = RootCertStore {
        roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
