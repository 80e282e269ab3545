//! Endpoints of Device Managers.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The port of a manager that listens on TCP, unless another is given.
pub const PORT_DEFAULT: u16 = 7473;

/// An address of a Device Manager.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// `unix:/path`: the same host, shared memory.
    Unix(PathBuf),
    /// `tcp://host:port` or, encrypted, `tls://host:port`.
    Tcp {
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
        /// With TLS.
        tls: bool,
    },
    /// `ivshmem:`, or `ivshmem:DEVICE` with a device in the format of the `vfun` command: the host
    /// of this VM, through shared memory.
    Ivshmem(String),
}

/// An invalid endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid endpoint '{0}': expected unix:/path, tcp://host:port, tls://host:port or ivshmem:"
)]
pub struct EndpointError(String);

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Endpoint, EndpointError> {
        let bad = || EndpointError(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return (path.starts_with('/'))
                .then(|| Endpoint::Unix(path.into()))
                .ok_or_else(bad);
        }
        if let Some(device) = text.strip_prefix("ivshmem:") {
            return Ok(Endpoint::Ivshmem(device.to_owned()));
        }
        let (rest, tls) = match text.split_once("://") {
            Some(("tcp", rest)) => (rest, false),
            Some(("tls", rest)) => (rest, true),
            _ => return Err(bad()),
        };
        // An IPv6 address is enclosed in brackets.
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| bad())?),
            _ => (rest, PORT_DEFAULT),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(bad());
        }
        Ok(Endpoint::Tcp {
            host: host.to_owned(),
            port,
            tls,
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Unix(path) => write!(f, "unix:{}", path.display()),
            Endpoint::Ivshmem(device) => write!(f, "ivshmem:{device}"),
            Endpoint::Tcp { host, port, tls } => {
                let scheme = if *tls { "tls" } else { "tcp" };
                if host.contains(':') {
                    write!(f, "{scheme}://[{host}]:{port}")
                } else {
                    write!(f, "{scheme}://{host}:{port}")
                }
            }
        }
    }
}

/// The directory of the sockets of this user's daemon: `$BALTRA_RUNTIME_DIR`, or
/// `$XDG_RUNTIME_DIR/baltra`, or `/run/baltra` (root) or `/tmp/baltra-UID`; the first whose
/// variable is set.
pub fn default_runtime_dir() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty());
    if let Some(dir) = set("BALTRA_RUNTIME_DIR") {
        return dir.into();
    }
    if let Some(dir) = set("XDG_RUNTIME_DIR") {
        return PathBuf::from(dir).join("baltra");
    }
    match rustix::process::getuid().as_raw() {
        0 => "/run/baltra".into(),
        uid => format!("/tmp/baltra-{uid}").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_print_as_they_parse() {
        for text in [
            "unix:/run/baltra.sock",
            "tcp://node-1:7000",
            "tls://[::1]:7473",
            "ivshmem:",
            "ivshmem:unix:/run/baltra/vm/web.sock",
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        let short: Endpoint = "tcp://node-1".parse().unwrap();
        assert_eq!(short.to_string(), "tcp://node-1:7473");
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "unix:relative", "http://x", "tcp://", "tcp://x:y"] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }
}
