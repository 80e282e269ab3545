//! TLS: the certificates that a client trusts, and the daemon's certificate.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The daemon's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain, PEM, beginning with the daemon's certificate.
    pub certificate: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
}

fn broken(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let wrong = |e| {
        broken(format!(
            "cannot read certificates from {}: {e}",
            path.display()
        ))
    };
    let found = CertificateDer::pem_file_iter(path).map_err(wrong)?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(wrong)?;
    if found.is_empty() {
        return Err(broken(format!(
            "{} does not contain a certificate",
            path.display()
        )));
    }
    Ok(found)
}

/// The client's configuration for `host`. `authority`: trust only the certificates in this file
/// instead of the public roots.
pub(crate) fn client(host: &str, authority: Option<&Path>) -> io::Result<ClientConnection> {
    let mut roots = RootCertStore::empty();
    match authority {
        Some(path) => {
            for certificate in certificates(path)? {
                let wrong = |e| broken(format!("{}: {e}", path.display()));
                roots.add(certificate).map_err(wrong)?;
            }
        }
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
    }
    let name = ServerName::try_from(host.to_owned()).map_err(|_| {
        broken(format!(
            "invalid host name '{host}': a certificate is for a DNS name or an IP address"
        ))
    })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .and_then(|c| {
            let config = c.with_root_certificates(roots).with_no_client_auth();
            ClientConnection::new(Arc::new(config), name)
        });
    config.map_err(|e| broken(e.to_string()))
}

/// The reason for which a TLS connection failed, with a remedy if rustls does not give one.
pub fn reason(error: &rustls::Error) -> String {
    use rustls::{CertificateError, Error};
    match error {
        // The library's own type is not public.
        Error::InvalidCertificate(CertificateError::Other(other))
            if format!("{other:?}").contains("CaUsedAsEndEntity") =>
        {
            "the server uses an authority's certificate (CA:TRUE), which clients must not accept: \
             create one with 'basicConstraints=CA:FALSE' and trust it, or sign one with the authority"
                .to_owned()
        }
        Error::InvalidCertificate(CertificateError::Other(other)) => {
            format!("the server's certificate is invalid: {}", other.0)
        }
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "the server's certificate is not signed by a trusted authority: set BALTRA_TLS_CA to the \
             file of the authority's certificate"
                .to_owned()
        }
        error => error.to_string(),
    }
}

/// The daemon's configuration.
pub(crate) fn server(files: &TlsFiles) -> io::Result<ServerConnection> {
    let chain = certificates(&files.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|e| {
        broken(format!(
            "cannot read the private key from {}: {e}",
            files.key.display()
        ))
    })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let connection = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .and_then(|c| c.with_no_client_auth().with_single_cert(chain, key))
        .and_then(|c| ServerConnection::new(Arc::new(c)));
    connection.map_err(|e| {
        broken(format!(
            "cannot use certificate {} with its key: {e}",
            files.certificate.display()
        ))
    })
}
