//! Starts a gateway in this process, with functions in C, and an HTTP client that sends raw bytes.
#![allow(dead_code)]

use baltra_gateway::{Options, Service};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Longer than any step takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// `empty`: no inputs, no outputs.
pub const EMPTY: &str = "name: empty
methods: [POST, GET]
implementations:
  - native: {library: test.so, symbol: empty}
";

/// `uppercase`: converts text to upper case.
pub const UPPERCASE: &str = "name: uppercase
inputs:
  - {name: text, type: u8, shape: [length], codecs: [raw, json], json: text}
outputs:
  - {name: upper, type: u8, shape: [length], codecs: [raw, json], json: text}
args: [text, upper, u64(length)]
implementations:
  - native: {library: test.so, symbol: uppercase}
limits: {body_bytes: 1MiB, timeout_ms: 60000}
";

/// `scale`: multiplies numbers by a number of the query.
pub const SCALE: &str = "name: scale
inputs:
  - {name: values, type: f32, shape: [n], codecs: [raw, json]}
  - {name: factor, type: f32, from: query, default: 2}
outputs:
  - {name: scaled, type: f32, shape: [n], codecs: [raw, json]}
args: [values, scaled, factor, u64(n)]
implementations:
  - native: {library: test.so, symbol: scale}
";

/// `nap`: sleeps for the given milliseconds, or fails at 0.
pub const NAP: &str = "name: nap
inputs:
  - {name: ms, type: u32, from: query}
outputs:
  - {name: slept, type: u32}
implementations:
  - native: {library: test.so, symbol: nap}
limits: {timeout_ms: 500}
";

const SOURCE: &str = include_str!("functions.c");

/// The library of all functions, built once.
pub static LIBRARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let dir = tempfile::tempdir().unwrap();
    let (source, library) = (dir.path().join("test.c"), dir.path().join("test.so"));
    std::fs::write(&source, SOURCE).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../native/include");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-o"])
        .args([&library, &source])
        .arg("-I")
        .arg(include)
        .output()
        .expect("a C compiler is installed");
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    std::fs::read(&library).unwrap()
});

/// An archive of a manifest and the library.
pub fn archive(manifest: &str) -> Vec<u8> {
    archive_of(&[
        ("function.yaml", manifest.as_bytes()),
        ("test.so", &LIBRARY),
    ])
}

/// An archive of files.
pub fn archive_of(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, *bytes).unwrap();
    }
    builder.into_inner().unwrap()
}

/// A gateway with its own directory.
pub struct Gateway {
    pub service: Service,
    pub home: tempfile::TempDir,
    pub options: Options,
}

/// Options with free ports and a state directory.
pub fn options(home: &Path) -> Options {
    let mut options = Options {
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        grpc_address: "127.0.0.1:0".into(),
        state: home.join("state"),
        workers: 2,
        ..Options::default()
    };
    options.engine.native_program = PathBuf::from(env!("CARGO_BIN_EXE_baltra-native-worker"));
    // No manager listens there: native functions need none.
    options.engine.endpoints = vec![format!("unix:{}", home.join("none.sock").display())];
    options
}

impl Gateway {
    /// Starts with the default options.
    pub fn start() -> Gateway {
        Gateway::start_with(|_| {})
    }

    /// Starts with changed options.
    pub fn start_with(change: impl FnOnce(&mut Options)) -> Gateway {
        let home = tempfile::tempdir().unwrap();
        let mut options = options(home.path());
        change(&mut options);
        let service = Service::start(options.clone()).unwrap();
        Gateway {
            service,
            home,
            options,
        }
    }

    /// Stops the gateway and starts another on the same directory.
    pub fn restart(self) -> Gateway {
        let Gateway {
            service,
            home,
            options,
        } = self;
        drop(service);
        let service = Service::start(options.clone()).unwrap();
        Gateway {
            service,
            home,
            options,
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.service.address()
    }

    /// Uploads and deploys a function.
    pub fn deploy(&self, manifest: &str) {
        let archive = archive(manifest);
        let answer = self.send(
            "POST",
            "/system/functions",
            &[("content-type", "application/vnd.baltra.function+tar")],
            &archive,
        );
        assert_eq!(answer.status, 201, "{}", answer.text());
    }

    /// Sends one request on a new connection.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut client = Client::connect(self.address());
        client.send(method, path, headers, body);
        client.receive().expect("an answer")
    }

    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], b"")
    }

    pub fn post(&self, path: &str, body: &[u8]) -> Answer {
        self.send("POST", path, &[], body)
    }
}

/// A response.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// A connection that sends exact bytes.
pub struct Client {
    pub stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        Client { stream, reader }
    }

    /// Sends raw bytes. The peer may have closed the connection already.
    pub fn raw(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    pub fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        if !body.is_empty() || matches!(method, "POST" | "PUT" | "DELETE") {
            head += &format!("content-length: {}\r\n", body.len());
        }
        head += "\r\n";
        self.raw(head.as_bytes());
        self.raw(body);
    }

    /// The next response; `None`: the connection has ended.
    pub fn receive(&mut self) -> Option<Answer> {
        let mut line = String::new();
        if self.reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let status = line.split(' ').nth(1)?.parse().ok()?;
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            self.reader.read_line(&mut line).ok()?;
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':')?;
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let mut body = Vec::new();
        match headers.get("content-length") {
            Some(length) => {
                body = vec![0; length.parse().ok()?];
                self.reader.read_exact(&mut body).ok()?;
            }
            None if headers.contains_key("transfer-encoding") => {
                while let Some(chunk) = self.chunk() {
                    body.extend(chunk);
                }
            }
            None => {}
        }
        Some(Answer {
            status,
            headers,
            body,
        })
    }

    /// The next chunk; `None`: after the last chunk, or if the connection has ended.
    pub fn chunk(&mut self) -> Option<Vec<u8>> {
        let mut line = String::new();
        self.reader.read_line(&mut line).ok()?;
        let size = usize::from_str_radix(line.trim_end(), 16).ok()?;
        let mut chunk = vec![0; size + 2];
        self.reader.read_exact(&mut chunk).ok()?;
        chunk.truncate(size);
        (size > 0).then_some(chunk)
    }

    /// The status of a response whose body is read chunk by chunk.
    pub fn head(&mut self) -> u16 {
        let mut status = 0;
        loop {
            let mut line = String::new();
            self.reader.read_line(&mut line).unwrap();
            if status == 0 {
                status = line.split(' ').nth(1).unwrap().parse().unwrap();
            }
            if line.trim_end().is_empty() {
                return status;
            }
        }
    }

    /// Waits for the peer to close the connection; `false` after the timeout.
    pub fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.reader.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// Waits until a condition holds.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "not so in time: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// sha256 of a text, hexadecimal.
pub fn sha256(text: &str) -> String {
    use sha2::Digest;
    let digest = sha2::Sha256::digest(text.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
