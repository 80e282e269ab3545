//! Rejects malformed requests that lenient parsers accept.
//!
//! If two parsers disagree about the end of a request, an attacker can smuggle requests past one of
//! them. The server's parser is lenient where RFC 9112 allows it. This scanner checks every byte
//! before the parser and rejects constructs that parsers interpret differently: a length beside
//! chunks, several lengths, a line that ends without a carriage return, a continued line, a space
//! before a colon, a transfer coding that is not `chunked`. It also tracks at every byte whether a
//! head, a body or nothing is in progress, which timeouts need.

use memchr::memchr;

/// The longest line of a chunk's size, extensions included.
const CHUNK_LINE_MAX: usize = 256;
/// The longest trailer section.
const TRAILERS_MAX: usize = 4096;

/// Why a connection is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 431: the head exceeds its limit.
    HeadTooLarge,
    /// 400: parsers may disagree about the request.
    Ambiguous(&'static str),
}

/// The scanner's position in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within {
    /// Between requests.
    Nothing,
    /// A request's line and headers.
    Head,
    /// Its body.
    Body,
}

/// Follows the requests of one connection.
#[derive(Debug)]
pub struct Scanner {
    state: State,
    head_bytes_max: usize,
}

#[derive(Debug)]
enum State {
    /// Before a request's first byte; empty lines are skipped.
    Start,
    Head(Head),
    /// Remaining bytes of a body with a length.
    Counted(u64),
    ChunkSize(Line),
    /// Remaining bytes of a chunk, including the line end after it.
    Chunk(u64),
    ChunkEnd(u8),
    Trailers {
        bytes: usize,
        line: usize,
        last: u8,
    },
}

/// The beginning of a line, long enough for the relevant header names and a length's digits.
#[derive(Debug)]
struct Line {
    start: [u8; LINE_KEPT],
    kept: usize,
    bytes: usize,
    last: u8,
}

impl Default for Line {
    fn default() -> Line {
        Line {
            start: [0; LINE_KEPT],
            kept: 0,
            bytes: 0,
            last: 0,
        }
    }
}

#[derive(Debug, Default)]
struct Head {
    bytes: usize,
    lines: usize,
    line: Line,
    length: Option<u64>,
    chunked: bool,
}

/// `transfer-encoding: chunked` with room for spaces.
const LINE_KEPT: usize = 64;

impl Line {
    /// Takes bytes up to the line's end; returns their number and whether the end is among them.
    fn take(&mut self, bytes: &[u8]) -> (usize, bool) {
        let end = memchr(b'\n', bytes);
        let taken = end.map_or(bytes.len(), |at| at + 1);
        let content = &bytes[..end.unwrap_or(bytes.len())];
        let kept = content.len().min(LINE_KEPT - self.kept);
        self.start[self.kept..self.kept + kept].copy_from_slice(&content[..kept]);
        self.kept += kept;
        self.bytes += content.len();
        if let Some(last) = content.last() {
            self.last = *last;
        }
        (taken, end.is_some())
    }

    fn clear(&mut self) {
        (self.kept, self.bytes, self.last) = (0, 0, 0);
    }

    /// The line without its required carriage return.
    fn content(&self) -> Result<&[u8], Refusal> {
        if self.last != b'\r' {
            return Err(Refusal::Ambiguous("line feed without carriage return"));
        }
        Ok(&self.start[..self.kept.min(self.bytes - 1)])
    }
}

impl Scanner {
    /// The state at a connection's beginning.
    pub fn new(head_bytes_max: usize) -> Scanner {
        Scanner {
            state: State::Start,
            head_bytes_max,
        }
    }

    /// The current position.
    pub fn within(&self) -> Within {
        match self.state {
            State::Start => Within::Nothing,
            State::Head(_) => Within::Head,
            _ => Within::Body,
        }
    }

    /// Scans the next bytes. After a rejection, nothing more must be read.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<(), Refusal> {
        while !bytes.is_empty() {
            let taken = self.step(bytes)?;
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    fn step(&mut self, bytes: &[u8]) -> Result<usize, Refusal> {
        match &mut self.state {
            State::Start => {
                if matches!(bytes[0], b'\r' | b'\n') {
                    return Ok(1);
                }
                self.state = State::Head(Head::default());
                Ok(0)
            }
            State::Head(head) => {
                let (taken, ended) = head.line.take(bytes);
                head.bytes += taken;
                if head.bytes > self.head_bytes_max {
                    return Err(Refusal::HeadTooLarge);
                }
                if ended && head.end_line()? {
                    self.state = match (head.chunked, head.length) {
                        (true, _) => State::ChunkSize(Line::default()),
                        (false, None | Some(0)) => State::Start,
                        (false, Some(length)) => State::Counted(length),
                    };
                }
                Ok(taken)
            }
            State::Counted(left) | State::Chunk(left) => {
                let taken = (bytes.len() as u64).min(*left);
                *left -= taken;
                if *left == 0 {
                    self.state = match self.state {
                        State::Chunk(_) => State::ChunkEnd(b'\r'),
                        _ => State::Start,
                    };
                }
                Ok(taken as usize)
            }
            State::ChunkEnd(expected) => {
                if bytes[0] != *expected {
                    return Err(Refusal::Ambiguous("a chunk exceeds its size"));
                }
                self.state = match expected {
                    b'\r' => State::ChunkEnd(b'\n'),
                    _ => State::ChunkSize(Line::default()),
                };
                Ok(1)
            }
            State::ChunkSize(line) => {
                let (taken, ended) = line.take(bytes);
                if line.bytes > CHUNK_LINE_MAX {
                    return Err(Refusal::Ambiguous("unterminated chunk size"));
                }
                if ended {
                    self.state = match chunk_size(line.content()?)? {
                        0 => State::Trailers {
                            bytes: 0,
                            line: 0,
                            last: 0,
                        },
                        size => State::Chunk(size),
                    };
                }
                Ok(taken)
            }
            State::Trailers {
                bytes: all,
                line,
                last,
            } => {
                let byte = bytes[0];
                *all += 1;
                if *all > TRAILERS_MAX {
                    return Err(Refusal::HeadTooLarge);
                }
                if byte != b'\n' {
                    *line += 1;
                    *last = byte;
                    return Ok(1);
                }
                if *last != b'\r' {
                    return Err(Refusal::Ambiguous("line feed without carriage return"));
                }
                match *line {
                    1 => self.state = State::Start,
                    _ => (*line, *last) = (0, 0),
                }
                Ok(1)
            }
        }
    }
}

impl Head {
    /// Handles a line's end; returns whether the line ends the head.
    fn end_line(&mut self) -> Result<bool, Refusal> {
        let line = self.line.content()?;
        if line.is_empty() {
            return Ok(true);
        }
        let first = self.lines == 0;
        self.lines += 1;
        if !first {
            match line[0] | 0x20 {
                b'c' => self.length = length(line, self.line.bytes, self.length)?,
                b't' => self.chunked |= chunked(line, self.line.bytes, self.chunked)?,
                // Both characters after `| 0x20`: space (0x20) and tab (0x09, thus 0x29).
                0x20 | 0x29 if matches!(line[0], b' ' | b'\t') => {
                    return Err(Refusal::Ambiguous("folded header line"));
                }
                _ => {}
            }
        }
        if self.chunked && self.length.is_some() {
            let why = "both a content length and a transfer coding";
            return Err(Refusal::Ambiguous(why));
        }
        self.line.clear();
        Ok(false)
    }
}

/// The value if the line has that name. A space between name and colon is rejected.
fn value<'a>(line: &'a [u8], name: &str) -> Result<Option<&'a [u8]>, Refusal> {
    let Some((start, rest)) = line.split_at_checked(name.len()) else {
        return Ok(None);
    };
    if !start.eq_ignore_ascii_case(name.as_bytes()) {
        return Ok(None);
    }
    match rest.split_first() {
        Some((b':', value)) => Ok(Some(value.trim_ascii())),
        Some((b' ' | b'\t', _)) => Err(Refusal::Ambiguous("space before a header's colon")),
        _ => Ok(None),
    }
}

/// The length after this line. A repeated equal length is rejected too: parsers may add the two up
/// or use the first.
fn length(line: &[u8], bytes: usize, before: Option<u64>) -> Result<Option<u64>, Refusal> {
    let Some(value) = value(line, "content-length")? else {
        return Ok(before);
    };
    if before.is_some() {
        return Err(Refusal::Ambiguous("several content lengths"));
    }
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit) && bytes <= LINE_KEPT;
    let number = std::str::from_utf8(value).ok().filter(|_| digits);
    match number.and_then(|text| text.parse().ok()) {
        Some(length) => Ok(Some(length)),
        None => Err(Refusal::Ambiguous("content length is not a number")),
    }
}

fn chunked(line: &[u8], bytes: usize, before: bool) -> Result<bool, Refusal> {
    let Some(value) = value(line, "transfer-encoding")? else {
        return Ok(false);
    };
    if before || bytes > LINE_KEPT || !value.eq_ignore_ascii_case(b"chunked") {
        return Err(Refusal::Ambiguous("transfer coding is not 'chunked'"));
    }
    Ok(true)
}

/// The size in front of any extension.
fn chunk_size(line: &[u8]) -> Result<u64, Refusal> {
    let end = memchr(b';', line).unwrap_or(line.len());
    let digits = &line[..end];
    let digits = digits.strip_suffix(b" ").unwrap_or(digits);
    let valid = (1..=16).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(digits).ok().filter(|_| valid);
    match text.and_then(|text| u64::from_str_radix(text, 16).ok()) {
        Some(size) => Ok(size),
        None => Err(Refusal::Ambiguous("chunk size is not a hexadecimal number")),
    }
}

#[cfg(test)]
mod tests;
