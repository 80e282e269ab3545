//! `baltra doctor --bundle`: what a report of a problem needs, in one archive, without secrets.

use crate::daemons::Daemon;
use anyhow::{Context, Result};
use baltra_manager::options::PathOptions;
use flate2::write::GzEncoder;
use flate2::Compression;
use regex::Regex;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// The archive's only folder.
const FOLDER: &str = "baltra-bundle";
/// Bytes of each log's end.
const LOG_BYTES: u64 = 4 << 20;
/// A configuration file's largest part.
const CONFIGURATION_BYTES: u64 = 1 << 20;
/// Maximum time of a command.
const PATIENCE: Duration = Duration::from_secs(20);

/// Commands of this program: the file of the output, and the arguments.
const COMMANDS: [(&str, &[&str]); 8] = [
    ("version.json", &["version", "--json"]),
    ("doctor.json", &["doctor", "--json"]),
    ("status.json", &["status", "--json"]),
    ("devices.json", &["devices", "--local", "--json"]),
    ("sessions.json", &["sessions", "--json"]),
    ("tenants.json", &["tenant", "ls", "--json"]),
    ("usage.json", &["tenant", "usage", "--json"]),
    ("top.json", &["top", "--once", "--json"]),
];

/// Writes the archive (tar, gzip) to `path`, which must not exist, readable for its owner only.
pub fn write(path: &Path, paths: &PathOptions) -> Result<()> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("cannot create {}", path.display()))?;
    let secrets = Secrets::new()?;
    let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
    let mut names = Vec::new();
    for (name, text) in contents(paths)? {
        let text = secrets.remove(&text);
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(now_s());
        archive.append_data(&mut header, format!("{FOLDER}/{name}"), text.as_bytes())?;
        names.push(name);
    }
    archive.into_inner()?.finish()?.sync_all()?;
    println!("wrote {}: {}", path.display(), names.join(", "));
    println!("tokens, keys, passwords and hashes of them are removed; look through it before you send it");
    Ok(())
}

/// The names and texts of the files.
fn contents(paths: &PathOptions) -> Result<Vec<(String, String)>> {
    let mut files = vec![("system.txt".to_owned(), system())];
    for (name, arguments) in COMMANDS {
        files.push((name.to_owned(), output_of(arguments, paths)?));
    }
    for daemon in Daemon::ALL {
        let name = daemon.name();
        if let Ok(log) = end_of(&daemon.log_file(paths), LOG_BYTES) {
            files.push((format!("{name}.log"), log));
        }
        let Some(command) = daemon.holder(paths).and_then(command_line) else {
            continue;
        };
        if let Some(file) = configuration_of(&command) {
            files.push((format!("{name}.toml"), file));
        }
        files.push((format!("{name}.command"), command.join("\n")));
    }
    Ok(files)
}

/// The output of a command of this program; its error, if it fails or does not end.
fn output_of(arguments: &[&str], paths: &PathOptions) -> Result<String> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(arguments)
        .arg("--runtime-dir")
        .arg(&paths.runtime)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    // Read by threads, so that a long output does not stop the command.
    let reader = |from: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            if let Some(mut from) = from {
                // Text that was read before an error is of use.
                let _ = from.read_to_end(&mut text);
            }
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let out = reader(child.stdout.take().map(|out| Box::new(out) as _));
    let err = reader(child.stderr.take().map(|err| Box::new(err) as _));
    let began = Instant::now();
    let mut note = String::new();
    while child.try_wait()?.is_none() {
        if began.elapsed() > PATIENCE {
            note = format!("no end after {} s\n", PATIENCE.as_secs());
            child.kill()?;
            child.wait()?;
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let text = |thread: std::thread::JoinHandle<String>| thread.join().unwrap_or_default();
    Ok(text(out) + &text(err) + &note)
}

fn end_of(path: &Path, most: u64) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(most)))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn command_line(pid: u32) -> Option<Vec<String>> {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = bytes.split(|byte| *byte == 0).filter(|w| !w.is_empty());
    Some(
        words
            .map(|w| String::from_utf8_lossy(w).into_owned())
            .collect(),
    )
}

/// The configuration file that a daemon was started with.
fn configuration_of(command: &[String]) -> Option<String> {
    let at = command.iter().position(|word| word == "--config")?;
    let file = File::open(command.get(at + 1)?).ok()?;
    let mut text = String::new();
    file.take(CONFIGURATION_BYTES)
        .read_to_string(&mut text)
        .ok()?;
    Some(text)
}

/// The host: kernel, distribution, processors, memory, registered drivers.
fn system() -> String {
    let uname = rustix::system::uname();
    let mut text = String::new();
    let parts = [uname.sysname(), uname.release(), uname.machine()];
    let parts = parts.map(|part| part.to_string_lossy().into_owned());
    // Writing to a text does not fail.
    let _ = writeln!(text, "kernel {}", parts.join(" "));
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let _ = writeln!(text, "processors {processors}");
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let of = |path, keys: &[&str]| {
        let all = read(path);
        let wanted = all
            .lines()
            .filter(|line| keys.iter().any(|k| line.starts_with(k)));
        wanted.map(|line| format!("{line}\n")).collect::<String>()
    };
    text += &of("/etc/os-release", &["PRETTY_NAME"]);
    text += &of("/proc/meminfo", &["MemTotal", "MemAvailable", "HugePages"]);
    text += &of("/proc/self/limits", &["Max locked", "Max open"]);
    let vendors = std::fs::read_dir("/etc/OpenCL/vendors");
    for vendor in vendors.into_iter().flatten().flatten() {
        let path = vendor.path();
        let library = std::fs::read_to_string(&path).unwrap_or_default();
        let _ = writeln!(text, "driver {}: {}", path.display(), library.trim());
    }
    text
}

fn now_s() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Finds secrets in texts.
struct Secrets {
    /// The header of a section of TOML whose values are all secret.
    section: Regex,
    /// A name and its value in such a section.
    entry: Regex,
    /// Elsewhere: patterns, and what replaces them.
    others: [(Regex, &'static str); 4],
}

impl Secrets {
    fn new() -> Result<Secrets> {
        let words = "token|password|secret|api_?key";
        // A name that contains one of these words, and its value, in TOML, JSON, `--set` or a log.
        // A gateway's key is in its `sha256`; other names with `key` are not secret.
        let value = r#"["']?\s*[=:]\s*)("(?:[^"\\\n]|\\.)*"|'[^'\n]*'|\{[^}\n]*\}|\[[^\]\n]*\]|[^\s"',}\]]+)"#;
        let named = format!(r"(?i)(\b[\w.-]*(?:{words})[\w.-]*{value}");
        let hash = format!(r"(?i)(\bsha256{value}");
        let basic = r"(?i)\b(bearer|basic)\s+[\w.~+/=-]+";
        Ok(Secrets {
            section: Regex::new(&format!(r"(?i)^\s*\[[^\]]*(?:{words})"))?,
            entry: Regex::new(r#"^(\s*["']?[\w.-]+["']?\s*=\s*).*$"#)?,
            others: [
                (Regex::new(&named)?, "${1}[removed]"),
                (Regex::new(&hash)?, "${1}[removed]"),
                (Regex::new(basic)?, "${1} [removed]"),
                (Regex::new(r"://[^/\s@]+@")?, "://[removed]@"),
            ],
        })
    }

    fn remove(&self, text: &str) -> String {
        let mut is_secret = false;
        let lines = text.split('\n').map(|line| {
            if line.trim_start().starts_with('[') {
                is_secret = self.section.is_match(line);
            }
            let mut line = line.to_owned();
            if is_secret {
                line = self.entry.replace(&line, "${1}[removed]").into_owned();
            }
            for (pattern, with) in &self.others {
                line = pattern.replace_all(&line, *with).into_owned();
            }
            line
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_removed_and_the_rest_stays() {
        let secrets = Secrets::new().unwrap();
        for (text, expected) in [
            ("token = \"a b\\\"c\"", "token = [removed]"),
            (
                "registry.tokens.node=abc x",
                "registry.tokens.node=[removed] x",
            ),
            (
                "{\"registry_token\": \"abc\", \"n\": 1}",
                "{\"registry_token\": [removed], \"n\": 1}",
            ),
            ("tokens = { a = \"b\" }", "tokens = [removed]"),
            ("tokens = [\"a\", \"b\"]", "tokens = [removed]"),
            (
                "[gateway.engine.tokens]\nnode-1 = \"abc\"\n\n[limits]\nnode-1 = 3",
                "[gateway.engine.tokens]\nnode-1 = [removed]\n\n[limits]\nnode-1 = 3",
            ),
            (
                "admin.password_sha256=00ff rest",
                "admin.password_sha256=[removed] rest",
            ),
            ("sha256 = '00ff'", "sha256 = [removed]"),
            (
                "Authorization: Bearer a.b-c",
                "Authorization: Bearer [removed]",
            ),
            ("http://user:pass@host:1/x", "http://[removed]@host:1/x"),
            ("key=utilization sessions=3", "key=utilization sessions=3"),
            ("http://host:1/a@b", "http://host:1/a@b"),
        ] {
            assert_eq!(secrets.remove(text), expected);
        }
    }
}
