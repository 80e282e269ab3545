//! Sessions that are moved all the time.

use crate::baltra;
use baltra_testkit::Daemon;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// The pause between two rounds of moves.
const PAUSE: Duration = Duration::from_millis(100);

/// Moves all sessions of a daemon with the devices `a` and `b` back and forth until dropped.
pub struct Mover {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    runtime_dir: PathBuf,
    is_over: AtomicBool,
    moves: AtomicUsize,
}

impl Mover {
    /// Starts to move.
    pub fn start(daemon: &Daemon) -> Mover {
        let shared = Arc::new(Shared {
            runtime_dir: daemon.runtime_dir(),
            is_over: false.into(),
            moves: 0.into(),
        });
        let own = shared.clone();
        let thread = std::thread::spawn(move || {
            while !own.is_over.load(Ordering::Relaxed) {
                own.move_all();
                std::thread::sleep(PAUSE);
            }
        });
        Mover {
            shared,
            thread: Some(thread),
        }
    }

    /// Number of moves that have succeeded.
    pub fn moves(&self) -> usize {
        self.shared.moves.load(Ordering::Relaxed)
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(
                ended.is_ok() || std::thread::panicking(),
                "the mover panicked"
            );
        }
    }
}

impl Shared {
    fn baltra(&self, arguments: &[&str]) -> Option<Vec<u8>> {
        let mut command = Command::new(baltra());
        command
            .env("BALTRA_RUNTIME_DIR", &self.runtime_dir)
            .args(arguments);
        let output = command.output().expect("the tool runs");
        output.status.success().then_some(output.stdout)
    }

    fn move_all(&self) {
        let list = self.baltra(&["session", "ls", "--json"]);
        let list = list.and_then(|list| serde_json::from_slice(&list).ok());
        let list: serde_json::Value = list.unwrap_or_default();
        let movable = |s: &&serde_json::Value| s["can_move"] == true;
        for session in list.as_array().into_iter().flatten().filter(movable) {
            let number = session["id"].to_string();
            let to = if session["device"] == "a" { "b" } else { "a" };
            // It may have ended, or run a long command.
            if self
                .baltra(&["session", "move", &number, "--to", to])
                .is_some()
            {
                self.moves.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
