//! Programs that the tests compile and run.

use crate::{built, root};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Time limit of a program, generous for a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Compiles `programs/NAME.c` against the system's OpenCL loader.
pub fn compile(name: &str) -> PathBuf {
    compile_with(name, name, &["-lOpenCL".into()])
}

/// Compiles `programs/NAME.c`, linked with Baltra's library.
pub fn compile_static(name: &str) -> PathBuf {
    let library = built("libbaltra_opencl.a").display().to_string();
    let libraries = [library, "-ldl".into()];
    compile_with(name, &format!("{name}-static"), &libraries)
}

/// Compiles `programs/NAME.c` as a driver's library.
pub fn compile_driver(name: &str) -> PathBuf {
    let flags = ["-shared".into(), "-fPIC".into(), "-ldl".into()];
    compile_files(&[source(name)], &format!("lib{name}.so"), &flags)
}

fn source(name: &str) -> PathBuf {
    root().join(format!("crates/tests/programs/{name}.c"))
}

fn compile_with(name: &str, out: &str, libraries: &[String]) -> PathBuf {
    let files = [source(name), root().join("apps/common/clu.c")];
    compile_files(&files, out, libraries)
}

fn compile_files(files: &[PathBuf], out: &str, libraries: &[String]) -> PathBuf {
    let directory = root().join("target/tests");
    std::fs::create_dir_all(&directory).expect("target can be written");
    let out = directory.join(out);
    if is_newer(&out, files, libraries) {
        return out;
    }
    // Tests run concurrently: each compiles to its own file and renames it.
    let fresh = tempfile::Builder::new()
        .prefix("program-")
        .tempfile_in(&directory)
        .expect("target can be written")
        .into_temp_path();
    let output = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror"])
        // Programs compare every byte: loops whose length is unknown are vectorized, too.
        .args(["-O2", "-fvect-cost-model=dynamic"])
        .arg("-I")
        .arg(root().join("apps/common"))
        .args(files)
        .args(libraries)
        .args(["-lpthread", "-lm", "-o"])
        .arg(&fresh)
        .output()
        .expect("cc is installed");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{files:?} do not compile: {stderr}"
    );
    fresh.persist(&out).expect("target can be written");
    out
}

/// Whether a program is newer than all that it is compiled from, and than this build of the tests.
fn is_newer(out: &Path, files: &[PathBuf], libraries: &[String]) -> bool {
    let mut inputs = files.to_vec();
    inputs.extend(std::env::current_exe());
    let paths = libraries.iter().map(PathBuf::from);
    inputs.extend(paths.filter(|path| path.exists()));
    for folder in ["apps/common", "crates/tests/programs"] {
        let entries = std::fs::read_dir(root().join(folder)).expect("a folder of the repository");
        let paths = entries.flatten().map(|entry| entry.path());
        inputs.extend(paths.filter(|path| path.extension().is_some_and(|kind| kind == "h")));
    }
    let time = |path: &Path| std::fs::metadata(path).and_then(|found| found.modified());
    let Ok(made) = time(out) else {
        return false;
    };
    inputs
        .iter()
        .all(|input| time(input).is_ok_and(|time| time < made))
}

/// The output and status of a program.
#[derive(Debug)]
pub struct Answer {
    /// Its exit status.
    pub status: ExitStatus,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl Answer {
    /// The rest of the first output line that begins with `word`.
    pub fn line(&self, word: &str) -> Option<&str> {
        self.out
            .lines()
            .find_map(|line| line.strip_prefix(word)?.strip_prefix(' '))
    }

    /// The number after `word`, as in `finish -2`.
    pub fn number(&self, word: &str) -> Option<i64> {
        self.line(word)?.split_whitespace().next()?.parse().ok()
    }

    /// Fails the test unless the program ended with status 0.
    pub fn ok(self) -> Answer {
        assert!(self.status.success(), "{self:#?}");
        self
    }
}

/// Checks what `programs/prints_lines.c` printed: each of `lines` lines of each round, once and
/// whole, before the round was complete.
pub fn check_printed_lines(answer: &Answer, lines: usize) {
    let mut printed = answer.out.lines();
    for round in 0..4 {
        let mut own: Vec<&str> = printed.by_ref().take(lines).collect();
        own.sort_unstable();
        let line = |n: usize| format!("round {round} line {n} of many many many");
        let mut expected: Vec<String> = (0..lines).map(line).collect();
        expected.sort_unstable();
        let wrong = own.iter().zip(&expected).find(|(a, b)| a != b);
        assert_eq!((wrong, own.len()), (None, lines), "round {round}");
        if round < 3 {
            let complete = format!("complete {round}");
            assert_eq!(printed.next(), Some(complete.as_str()));
        }
    }
    assert_eq!(printed.next(), None);
}

/// A running program, killed when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    errors: Option<std::thread::JoinHandle<()>>,
    /// Its standard error so far.
    error: Arc<Mutex<String>>,
    seen: Vec<String>,
}

impl Running {
    /// Starts it.
    pub fn start(mut command: Command) -> Running {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let (sender, lines) = std::sync::mpsc::channel();
        let out = BufReader::new(child.stdout.take().expect("piped"));
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut err = child.stderr.take().expect("piped");
        let error = Arc::<Mutex<String>>::default();
        let text = error.clone();
        let errors = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            let mut all = Vec::new();
            while let Ok(n @ 1..) = err.read(&mut bytes) {
                all.extend_from_slice(&bytes[..n]);
                *text.lock().unwrap() = String::from_utf8_lossy(&all).into_owned();
            }
        });
        Running {
            child,
            lines,
            errors: Some(errors),
            error,
            seen: Vec::new(),
        }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line, not yet waited for, that begins with `word`.
    pub fn wait_line(&mut self, word: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    let found = line.starts_with(word);
                    self.seen.push(line);
                    if found {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    panic!("'{word}' does not come; so far: {:#?}", self.seen)
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let _ = self.child.kill();
                    let errors = self.errors();
                    panic!("ended without '{word}': {:#?} {errors:?}", self.seen)
                }
            }
        }
    }

    /// Waits for a round (`work`) that begins from now on.
    pub fn wait_progress(&mut self) {
        while self.lines.try_recv().is_ok() {}
        self.wait_line("round");
        self.wait_line("round");
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Waits for its end.
    pub fn finish(self) -> Answer {
        self.finish_within(PATIENCE)
    }

    /// Waits for its end, at most for `patience`.
    pub fn finish_within(mut self, patience: Duration) -> Answer {
        let deadline = Instant::now() + patience;
        let status = loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                break status;
            }
            if Instant::now() > deadline {
                let _ = self.child.kill();
                self.seen.extend(self.lines.try_iter());
                panic!("does not end; so far: {:#?}", self.seen);
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        self.seen.extend(self.lines.iter());
        let err = self.errors();
        Answer {
            status,
            out: self.seen.join("\n"),
            err,
        }
    }

    /// Its standard error so far.
    pub fn error(&self) -> String {
        self.error.lock().unwrap().clone()
    }

    /// Its standard error, after its end.
    fn errors(&mut self) -> String {
        if let Some(thread) = self.errors.take() {
            let _ = thread.join();
        }
        self.error()
    }

    /// Starts it and waits for its end.
    pub fn run(command: Command) -> Answer {
        Running::start(command).finish()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.has_ended() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
