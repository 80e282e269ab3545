//! Tests of a session over TLS: trusted certificates, and resumption after a broken path.

mod fake;

use baltra_session::client::{Client, ConnectError, Lost, Queue};
use baltra_session::relay::TlsFiles;
use baltra_session::Endpoint;
use baltra_wire::*;
use fake::{daemon, hello, Daemon, Losses, Path, TOKEN};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

struct Authority {
    dir: tempfile::TempDir,
    files: TlsFiles,
    /// A certificate of an untrusted authority.
    stranger: TlsFiles,
}

/// Trusted by this process, which reads the variable at each connection.
fn authority() -> &'static Authority {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    AUTHORITY.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let root = params.self_signed(&key).unwrap();
        std::env::set_var("BALTRA_TLS_CA", write("ca.pem", root.pem()));
        let issuer = rcgen::Issuer::new(params, key);
        let own = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
        let signed = params.signed_by(&own, &issuer).unwrap();
        let other = rcgen::KeyPair::generate().unwrap();
        let unsigned = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
        let unsigned = unsigned.self_signed(&other).unwrap();
        Authority {
            files: TlsFiles {
                certificate: write("own.pem", signed.pem()),
                key: write("own.key", own.serialize_pem()),
            },
            stranger: TlsFiles {
                certificate: write("other.pem", unsigned.pem()),
                key: write("other.key", other.serialize_pem()),
            },
            dir,
        }
    })
}

fn secure(files: &TlsFiles) -> Daemon {
    let files = files.clone();
    daemon(move |options| options.tls = Some(files))
}

fn connect(scheme: &str, host: &str, port: u16) -> Result<Arc<Client>, ConnectError> {
    let endpoint: Endpoint = format!("{scheme}://{host}:{port}").parse().unwrap();
    Client::connect(&endpoint, hello("fake", TOKEN), Arc::new(Losses::default()))
}

fn write_and_read(client: &Arc<Client>, queue: &Queue, len: u64) -> Result<(), Lost> {
    let buffer = client.new_id();
    client.control(&Control::Buffer {
        id: buffer,
        context: 0,
        flags: 0,
        size: len,
        backing: Backing::Device(None),
    })?;
    let (up, down) = (client.allocate(len, 64)?, client.allocate(len, 64)?);
    let bytes: Vec<u8> = (0..len).map(|i| ((i * i) >> 7) as u8).collect();
    up.range().copy_in(0, &bytes);
    for (direction, block) in [(Direction::Write, &up), (Direction::Read, &down)] {
        let operation = Operation::Buffer {
            direction,
            buffer,
            offset: 0,
            payload: block.payload(),
        };
        queue.push(0, &[], &operation)?;
    }
    queue.wait(queue.pushed()).map_err(Lost)?;
    let mut back = vec![0; len as usize];
    down.range().copy_out(0, &mut back);
    assert!(back == bytes);
    Ok(())
}

#[test]
fn a_trusted_daemon_serves_small_and_large_transfers() {
    let daemon = secure(&authority().files);
    let client = connect("tls", "localhost", daemon.port).unwrap();
    let queue = client.open_queue(0, 0, 0).unwrap();
    for len in [4, 70_000, 9_000_001] {
        write_and_read(&client, &queue, len).unwrap();
    }
}

#[test]
fn a_stranger_and_another_name_are_not_trusted() {
    assert!(authority().dir.path().exists());
    let stranger = secure(&authority().stranger);
    assert!(connect("tls", "localhost", stranger.port).is_err());
    let daemon = secure(&authority().files);
    assert!(connect("tls", "127.0.0.1", daemon.port).is_err());
}

#[test]
fn plain_and_encrypted_ends_do_not_talk() {
    let daemon = secure(&authority().files);
    assert!(connect("tcp", "localhost", daemon.port).is_err());
    let plain = fake::daemon(|_| {});
    assert!(connect("tls", "localhost", plain.port).is_err());
}

#[test]
fn a_broken_path_is_resumed_through_another_relay() {
    let daemon = secure(&authority().files);
    let path = Path::ending_after(daemon.port, 5_300_017);
    let client = connect("tls", "localhost", path.port).unwrap();
    let queue = client.open_queue(0, 0, 0).unwrap();
    for _ in 0..3 {
        write_and_read(&client, &queue, 20_000_000).unwrap();
    }
    assert!(path.connections() > 3 * 6, "{}", path.connections());
    assert_eq!(daemon.seen.sessions.load(Ordering::SeqCst), 1);
}
