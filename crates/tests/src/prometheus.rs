//! A real Prometheus server (Debian's).

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit for its start on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server, stopped when dropped.
pub struct Prometheus {
    child: Child,
    /// Its address.
    pub url: String,
    home: tempfile::TempDir,
}

impl Prometheus {
    /// Starts a server with this configuration, which may name `rules.yml`.
    pub fn start(config: &str, rules: &str) -> Prometheus {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("prometheus.yml"), config).unwrap();
        std::fs::write(home.path().join("rules.yml"), rules).unwrap();
        let log = std::fs::File::create(home.path().join("log")).unwrap();
        let child = Command::new("prometheus")
            .arg("--config.file=prometheus.yml")
            .arg("--storage.tsdb.path=data")
            .arg("--web.listen-address=127.0.0.1:0")
            .current_dir(home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("prometheus is installed: scripts/setup.sh test");
        let mut server = Prometheus {
            child,
            url: String::new(),
            home,
        };
        let start = Instant::now();
        while server.url.is_empty() {
            assert!(start.elapsed() < PATIENCE, "{}", server.log());
            std::thread::sleep(Duration::from_millis(20));
            let log = server.log();
            let mut lines = log.lines().filter(|l| l.contains("\"Listening on\""));
            if let Some((_, address)) = lines.next().and_then(|l| l.rsplit_once("address=")) {
                server.url = format!("http://{address}");
            }
        }
        server
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.home.path().join("log")).unwrap()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
