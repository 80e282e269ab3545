//! Output for people and programs.

use crate::exit::Exit;
use std::io::{self, ErrorKind, IsTerminal, Write};

/// Standard output. When its reader is gone (`baltra … | head`), the process exits silently, as
/// other programs do: Rust's runtime ignores the signal that would end it.
#[derive(Clone, Copy, Debug)]
pub struct Stdout;

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        unless_unread(io::stdout().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        unless_unread(io::stdout().flush())
    }
}

fn unless_unread<T>(done: io::Result<T>) -> io::Result<T> {
    if matches!(&done, Err(error) if error.kind() == ErrorKind::BrokenPipe) {
        std::process::exit(Exit::Unread as i32);
    }
    done
}

/// For the macros below, whose callers cannot handle errors.
pub fn show(text: std::fmt::Arguments<'_>) {
    if let Err(cause) = Stdout.write_fmt(text) {
        error(&anyhow::Error::new(cause).context("cannot write the output"));
        std::process::exit(Exit::Failure as i32);
    }
}

/// Like the macro of the standard library, for [`Stdout`].
macro_rules! print {
    ($($text:tt)*) => { $crate::output::show(format_args!($($text)*)) };
}

/// Like the macro of the standard library, for [`Stdout`].
macro_rules! println {
    () => { print!("\n") };
    ($($text:tt)*) => { print!("{}\n", format_args!($($text)*)) };
}

/// Prints an error with its causes to stderr.
pub fn error(error: &anyhow::Error) {
    let label = paint(io::stderr().is_terminal(), "1;31", "error:");
    eprintln!("{label} {error:#}");
}

/// Colors `text` if `colors` is set.
pub fn paint(colors: bool, code: &str, text: &str) -> String {
    let wanted = colors && std::env::var_os("NO_COLOR").is_none();
    if wanted {
        format!("\x1b[{code}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

/// Prints a value as JSON.
pub fn json(value: &serde_json::Value) {
    println!("{value:#}");
}

/// A table with columns as wide as needed. Columns whose head starts with `>` are right-aligned.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with its heads.
    pub fn new(heads: &[&str]) -> Table {
        Table {
            rows: vec![heads.iter().map(|h| (*h).to_owned()).collect()],
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl Into<Vec<String>>) {
        self.rows.push(cells.into());
    }

    /// The table's lines.
    pub fn lines(&self) -> Vec<String> {
        let heads = &self.rows[0];
        let right: Vec<bool> = heads.iter().map(|h| h.starts_with('>')).collect();
        let cell = |r: usize, c: usize| match r {
            0 => self.rows[0][c].trim_start_matches('>'),
            _ => self.rows[r].get(c).map_or("", String::as_str),
        };
        let width = |c: usize| {
            (0..self.rows.len())
                .map(|r| cell(r, c).chars().count())
                .max()
        };
        let widths: Vec<usize> = (0..heads.len()).map(|c| width(c).unwrap_or(0)).collect();
        let line = |r: usize| {
            let cells = (0..heads.len()).map(|c| {
                if right[c] {
                    format!("{:>1$}", cell(r, c), widths[c])
                } else {
                    format!("{:<1$}", cell(r, c), widths[c])
                }
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        (0..self.rows.len()).map(line).collect()
    }

    /// Prints the table to stdout; a terminal shows the heads highlighted.
    pub fn print(&self) {
        let colors = io::stdout().is_terminal();
        for (i, line) in self.lines().iter().enumerate() {
            match i {
                0 => println!("{}", paint(colors, "1", line)),
                _ => println!("{line}"),
            }
        }
    }
}

/// Formats bytes for display.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{n} B"),
        _ => format!("{value:.1} {}", UNITS[unit]),
    }
}

/// Parses a number of bytes with an optional K, M, G or T (powers of 1024).
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_lowercase();
    let lower = lower.trim_end_matches("ib").trim_end_matches('b');
    let (digits, shift) = match lower.chars().last() {
        Some('k') => (&lower[..lower.len() - 1], 10),
        Some('m') => (&lower[..lower.len() - 1], 20),
        Some('g') => (&lower[..lower.len() - 1], 30),
        Some('t') => (&lower[..lower.len() - 1], 40),
        _ => (lower, 0),
    };
    let number: u64 = digits
        .trim()
        .parse()
        .map_err(|_| "expected a number such as 512M or 4G".to_owned())?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| "too large".to_owned())
}

/// Formats seconds for display.
pub fn seconds(s: u64) -> String {
    match s {
        0..=119 => format!("{s} s"),
        120..=7199 => format!("{} min", s / 60),
        7200..=172_799 => format!("{} h", s / 3600),
        _ => format!("{} d", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_they_are_meant() {
        for (text, n) in [
            ("0", 0),
            ("17", 17),
            ("1K", 1024),
            ("2MiB", 2 << 20),
            ("4G", 4 << 30),
        ] {
            assert_eq!(parse_bytes(text), Ok(n), "{text}");
        }
        for text in ["", "G", "-1", "1X", "99999999999T"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(5), "5 B");
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["NAME", ">N"]);
        table.row(["long-name".into(), "1".into()]);
        table.row(["x".into(), "100".into()]);
        assert_eq!(
            table.lines(),
            ["NAME         N", "long-name    1", "x          100"]
        );
    }
}
