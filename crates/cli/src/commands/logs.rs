//! `baltra logs`

use crate::daemons::Daemon;
use crate::output::Stdout;
use anyhow::{Context, Result};
use baltra_manager::options::PathOptions;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::time::Duration;

/// Bytes at the file's end that are searched for the newest lines.
const TAIL_BYTES: u64 = 4 << 20;

/// Prints the newest lines and, with `follow`, further ones.
pub fn logs(paths: &PathOptions, daemon: Daemon, follow: bool, lines: usize) -> Result<()> {
    let path = daemon.log_file(paths);
    let mut file = File::open(&path).with_context(|| {
        format!(
            "there is no log at {} (a daemon in the foreground logs to its terminal)",
            path.display()
        )
    })?;
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let mut out = Stdout;
    out.write_all(newest(&bytes, lines))?;
    if !follow {
        return Ok(());
    }
    loop {
        out.flush()?;
        std::thread::sleep(Duration::from_millis(200));
        // The daemon truncates a log that has grown long.
        if file.metadata()?.len() < file.stream_position()? {
            file.rewind()?;
        }
        bytes.clear();
        file.read_to_end(&mut bytes)?;
        out.write_all(&bytes)?;
    }
}

fn newest(bytes: &[u8], lines: usize) -> &[u8] {
    let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let starts = body.iter().enumerate().rev().filter(|(_, b)| **b == b'\n');
    match lines {
        0 => &[],
        n => match starts.map(|(i, _)| i + 1).nth(n - 1) {
            Some(start) => &bytes[start..],
            None => bytes,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_lines_are_whole() {
        let log = b"a\nb\nc\n";
        assert_eq!(newest(log, 2), b"b\nc\n");
        assert_eq!(newest(log, 9), log);
        assert_eq!(newest(log, 0), b"");
        assert_eq!(newest(b"", 3), b"");
        assert_eq!(newest(b"a\nb", 1), b"b");
    }
}
