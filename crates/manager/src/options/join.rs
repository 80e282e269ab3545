//! The node's addresses for the registry.

use super::{invalid, Invalid, ListenOptions, NodeOptions, PathOptions};
use baltra_session::Endpoint;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use tonic::codegen::http::Uri;

impl NodeOptions {
    pub(super) fn validate(&self) -> Result<(), Invalid> {
        if !self.registry.is_empty() {
            let known = self.registry.parse::<Uri>().ok().is_some_and(|uri| {
                matches!(uri.scheme_str(), Some("http" | "https"))
                    && uri.authority().is_some_and(|authority| {
                        let host = authority.host();
                        let bare = authority.as_str() == host;
                        !host.is_empty() && (bare || authority.port_u16().is_some())
                    })
                    && uri.path_and_query().is_none_or(|p| p.as_str() == "/")
            });
            if !known {
                return Err(invalid(
                    "node.registry",
                    "must be an address such as http://host:7480, or empty to join no registry",
                ));
            }
        }
        if self.registry.starts_with("https:") != self.registry_ca.is_some() {
            return Err(invalid(
                "node.registry_ca",
                "requires an https:// address in 'node.registry' and vice versa: set both or neither",
            ));
        }
        for endpoint in &self.advertise {
            if let Err(error) = endpoint.parse::<Endpoint>() {
                return Err(invalid("node.advertise", format!("has an {error}")));
            }
        }
        Ok(())
    }

    /// The registry's host and port.
    fn registry_host(&self) -> Option<(String, u16)> {
        let uri: Uri = self.registry.parse().ok()?;
        let host = uri.host()?.trim_matches(['[', ']']).to_owned();
        let default = if uri.scheme_str() == Some("https") {
            443
        } else {
            80
        };
        Some((host, uri.port_u16().unwrap_or(default)))
    }

    /// Whether the registry is on this host, judged by its address.
    pub fn registry_is_local(&self) -> bool {
        self.registry_host().is_some_and(|(host, _)| {
            host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
        })
    }

    /// Addresses of this node's sessions for applications.
    pub fn endpoints(&self, paths: &PathOptions, listen: &ListenOptions) -> Vec<String> {
        if !self.advertise.is_empty() {
            return self.advertise.clone();
        }
        let mut endpoints = Vec::new();
        if self.registry_is_local() {
            endpoints.push(format!("unix:{}", paths.session_socket().display()));
        }
        if let Some(address) = listen.tcp {
            let tls = listen.tls_cert.is_some();
            let host = if address.ip().is_unspecified() {
                self.own_address()
                    .map_or(self.name.clone(), |ip| ip.to_string())
            } else {
                address.ip().to_string()
            };
            let port = address.port();
            endpoints.push(Endpoint::Tcp { host, port, tls }.to_string());
        }
        endpoints
    }

    /// This host's address on the route to the registry. Sends no packets.
    fn own_address(&self) -> Option<IpAddr> {
        let (host, port) = self.registry_host()?;
        let registry = (host.as_str(), port).to_socket_addrs().ok()?.next()?;
        let any: SocketAddr = match registry {
            SocketAddr::V4(_) => ([0; 4], 0).into(),
            SocketAddr::V6(_) => ([0; 16], 0).into(),
        };
        let socket = UdpSocket::bind(any).ok()?;
        socket.connect(registry).ok()?;
        Some(socket.local_addr().ok()?.ip())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(registry: &str) -> NodeOptions {
        NodeOptions {
            registry: registry.into(),
            ..NodeOptions::default()
        }
    }

    fn paths() -> PathOptions {
        PathOptions {
            runtime: "/r".into(),
            state: "/s".into(),
            ..PathOptions::default()
        }
    }

    #[test]
    fn a_registry_is_an_address_or_nothing() {
        for text in ["", "http://h:7480", "http://[::1]:7480/"] {
            assert_eq!(node(text).validate(), Ok(()), "{text}");
        }
        let mut tls = node("https://h");
        assert_eq!(tls.validate().unwrap_err().key, "node.registry_ca");
        tls.registry_ca = Some("/ca.pem".into());
        assert_eq!(tls.validate(), Ok(()));
        for text in [
            "h:7480",
            "http://",
            "ftp://h",
            "http://h/path",
            "http://h:x",
        ] {
            assert_eq!(
                node(text).validate().unwrap_err().key,
                "node.registry",
                "{text}"
            );
        }
    }

    #[test]
    fn a_socket_is_advertised_only_where_it_can_be_reached() {
        let mut listen = ListenOptions::default();
        for local in ["http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1"] {
            let endpoints = node(local).endpoints(&paths(), &listen);
            assert_eq!(endpoints, ["unix:/r/baltra.sock"], "{local}");
        }
        assert!(node("http://192.0.2.1:1")
            .endpoints(&paths(), &listen)
            .is_empty());
        listen.tcp = Some("192.0.2.7:7473".parse().unwrap());
        let endpoints = node("http://192.0.2.1:1").endpoints(&paths(), &listen);
        assert_eq!(endpoints, ["tcp://192.0.2.7:7473"]);
        // A manager that listens on all addresses advertises the one on the route to the registry.
        listen.tcp = Some("0.0.0.0:7473".parse().unwrap());
        listen.tls_cert = Some("/c".into());
        let endpoints = node("http://127.0.0.1:1").endpoints(&paths(), &listen);
        assert_eq!(endpoints[1], "tls://127.0.0.1:7473");
    }

    #[test]
    fn what_is_advertised_is_said_as_it_stands() {
        let mut node = node("http://127.0.0.1:1");
        node.advertise = vec!["tls://node-1:7473".into()];
        assert_eq!(node.validate(), Ok(()));
        let endpoints = node.endpoints(&paths(), &ListenOptions::default());
        assert_eq!(endpoints, ["tls://node-1:7473"]);
        node.advertise = vec!["node-1".into()];
        assert_eq!(node.validate().unwrap_err().key, "node.advertise");
    }
}
