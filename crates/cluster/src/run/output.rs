//! Reads the output of ranks, boards and launchers line by line.

use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::SyncSender;

/// Longest line of output; the rest of a longer line is cut off, to bound memory.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// An event in a process's output.
pub enum Event {
    Line {
        rank: usize,
        error: bool,
        text: String,
    },
    /// A kernel of a board has ended.
    Ended {
        rank: usize,
        code: u8,
    },
    Silent,
}

/// The source of an output.
pub enum Source {
    Rank(usize),
    Board(String, Vec<usize>),
    /// Another MPI's launcher with these ranks.
    Mpi(Vec<usize>),
}

/// Parses the rank in the prefix of a line from MPICH (`[3] …`) or Open MPI (`[1,3]<stdout>:…`).
fn tagged(line: &str) -> Option<(usize, &str)> {
    let (tag, text) = line.strip_prefix('[')?.split_once(']')?;
    match tag.split_once(',') {
        None => Some((tag.parse().ok()?, text.strip_prefix(' ').unwrap_or(text))),
        Some((_, rank)) => {
            let (_, text) = text.strip_prefix('<')?.split_once(">:")?;
            Some((rank.parse().ok()?, text))
        }
    }
}

impl Source {
    /// A board tags the lines of its kernels and reports their ends; other lines are the board's
    /// own output.
    fn event(&self, error: bool, text: String) -> Event {
        let (name, ranks) = match self {
            Source::Rank(rank) => {
                let rank = *rank;
                return Event::Line { rank, error, text };
            }
            Source::Mpi(ranks) => {
                let known = tagged(&text).filter(|(rank, _)| ranks.contains(rank));
                let (rank, text) = match known {
                    Some((rank, text)) => (rank, text.to_owned()),
                    None => (0, format!("mpiexec: {text}")),
                };
                return Event::Line { rank, error, text };
            }
            Source::Board(name, ranks) => (name, ranks),
        };
        let known = |word: &str| word.parse().ok().filter(|r| ranks.contains(r));
        if let (false, Some((rank, line))) = (error, text.split_once(": ")) {
            if let Some(rank) = known(rank) {
                let text = line.to_owned();
                return Event::Line { rank, error, text };
            }
        }
        if let (false, Some((rank, code))) = (error, text.split_once(" ended ")) {
            if let (Some(rank), Ok(code)) = (known(rank), code.parse()) {
                return Event::Ended { rank, code };
            }
        }
        let rank = ranks.first().copied().unwrap_or_default();
        let text = format!("board {name}: {text}");
        Event::Line { rank, error, text }
    }
}

/// Reads a process's output line by line in a separate thread.
pub fn forward(
    source: Source,
    error: bool,
    from: impl Read + Send + 'static,
    to: SyncSender<Event>,
) {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(from);
        let mut line = Vec::new();
        loop {
            line.clear();
            match reader
                .by_ref()
                .take(LINE_BYTES_MAX)
                .read_until(b'\n', &mut line)
            {
                Ok(0) | Err(_) => break,
                Ok(_) => {
                    let text = String::from_utf8_lossy(&line)
                        .trim_end_matches(['\n', '\r'])
                        .to_owned();
                    if to.send(source.event(error, text)).is_err() {
                        return;
                    }
                }
            }
        }
        let _ = to.send(Event::Silent);
    });
}
