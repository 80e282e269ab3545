//! Reads the records that capture cores made of kernels' streams, and converts them to packets or
//! to a waveform.
//!
//! A board writes the records ("notes") to a file while it runs; `hdl/messages/sim/notes.hpp` has
//! the format. The file remains after the run. It contains the newest notes, and the number of
//! overwritten ones.

use anyhow::{bail, ensure, Context, Result};
use serde::Serialize;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The magic number of the file; the sizes of its header and of a note.
const MAGIC: &[u8; 8] = b"BALTRAPB";
const VERSION: u32 = 1;
const HEAD: usize = 64;
const NOTE: usize = 32;
/// Most notes in a file.
const ROOM_MAX: u64 = 1 << 20;
/// A board's cycle in units of 100 ps, at the nominal clock of 156.25 MHz.
const CYCLE_100PS: u64 = 64;

/// Flags of a note (`hdl/board/sim/region_abi.h`).
const FLAGS: [&str; 8] = [
    "out_valid",
    "out_ready",
    "out_last",
    "in_valid",
    "in_ready",
    "in_last",
    "sending",
    "receiving",
];
/// The first three flags of the stream to the router; those of the stream from the router are
/// shifted.
const VALID: u64 = 1;
const READY: u64 = 2;
const LAST: u64 = 4;
const IN: usize = 3;
/// Notes before this one were lost.
const GAP: u64 = 1 << 8;

/// The definition of the envelope's fields.
const ENVELOPE: &str = include_str!("../../../humboldt/src/envelope.def");

/// The state of both streams from a cycle of the board until the next note.
#[derive(Clone, Copy, Debug)]
struct Note {
    cycle: u64,
    /// The data of the beats to and from the router; the flags have a valid bit for each.
    beats: [u64; 2],
    flags: u64,
}

/// The notes of one kernel's capture core.
#[derive(Clone, Debug)]
pub struct Samples {
    /// The kernel's rank.
    pub rank: u32,
    /// The number of older notes that newer ones have overwritten.
    pub overwritten: u64,
    notes: Vec<Note>,
}

/// A packet that passed a captured stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Packet {
    /// The board's cycle in which the first beat was offered.
    pub cycle: u64,
    /// The kernel's rank.
    pub rank: u32,
    /// `out`: from the kernel; `in`: to it.
    pub way: &'static str,
    /// The packet's kind, by its name in `envelope.def`; an ERROR also with its fault.
    pub kind: String,
    /// The rank that the packet goes to or comes from.
    pub peer: u64,
    /// The low twelve bits of the message's tag.
    pub tag: u64,
    /// Payload bytes according to the envelope: the message's bytes for ENVELOPE, otherwise the
    /// packet's.
    pub bytes: u64,
    /// Beats of 64 bits, including the envelope.
    pub beats: u64,
    /// Cycles from the offer of the first beat to the end of the last beat.
    pub cycles: u64,
    /// Those of the cycles in which a beat waited for its reader.
    pub waited: u64,
}

/// The file for a rank's notes.
pub(crate) fn path(out: &Path, map: &Path, rank: u32) -> PathBuf {
    let map = map.file_stem().unwrap_or_default().to_string_lossy();
    out.join(format!("{map}-{rank}.capture"))
}

/// The values of a name in `envelope.def`, from its lines `KIND(NAME, VALUE…)`.
fn defined(kind: &str) -> impl Iterator<Item = (&'static str, Vec<u64>)> + use<'_> {
    ENVELOPE.lines().filter_map(move |line| {
        let inside = line
            .strip_prefix(kind)?
            .strip_prefix('(')?
            .split_once(')')?
            .0;
        let mut words = inside.split(", ");
        let name = words.next()?;
        Some((name, words.filter_map(|w| w.parse().ok()).collect()))
    })
}

/// A field of an envelope, by its name in `envelope.def`.
fn field(word: u64, name: &str) -> u64 {
    let place = defined("FIELD").find(|(n, _)| *n == name).map(|(_, v)| v);
    match place.as_deref() {
        Some(&[low, width]) => word >> low & ((1 << width) - 1),
        _ => 0,
    }
}

/// The name of a value in `envelope.def`.
fn called(kind: &str, value: u64) -> Option<&'static str> {
    defined(kind)
        .find(|(_, v)| v.first() == Some(&value))
        .map(|(n, _)| n)
}

impl Samples {
    /// Reads a file, which a board may still be writing to. `None`: the file does not exist.
    ///
    /// # Errors
    ///
    /// A board did not write the file.
    pub fn read(path: &Path) -> Result<Option<Samples>> {
        match File::open(path) {
            Ok(file) => Self::of(&file)
                .map(Some)
                .with_context(|| path.display().to_string()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e).with_context(|| path.display().to_string()),
        }
    }

    fn of(file: &File) -> Result<Samples> {
        let short = "it is truncated";
        let mut head = [0; HEAD];
        file.read_exact_at(&mut head, 0).context(short)?;
        let number = |head: &[u8; HEAD], at: usize| {
            head[at..at + 8]
                .iter()
                .rev()
                .fold(0, |n, b| n << 8 | u64::from(*b))
        };
        ensure!(head.starts_with(MAGIC), "not a capture file");
        let (version, rank) = (number(&head, 8) as u32, (number(&head, 8) >> 32) as u32);
        ensure!(
            version == VERSION,
            "unsupported format {version} (expected {VERSION}): run the cluster again"
        );
        let (room, end) = (number(&head, 16), number(&head, 24));
        ensure!(
            (1..=ROOM_MAX).contains(&room),
            "invalid capacity: {room} notes"
        );
        let mut bytes = vec![0; room as usize * NOTE];
        file.read_exact_at(&mut bytes, HEAD as u64).context(short)?;
        file.read_exact_at(&mut head, 0).context(short)?;
        // The board may have overwritten the oldest notes during this read, and may be writing the
        // next one.
        let written = number(&head, 24).max(end);
        let first = if written < room {
            0
        } else {
            written - room + 1
        };
        let mut notes: Vec<Note> = Vec::new();
        for index in first.min(end)..end {
            let at = (index % room) as usize * NOTE;
            let word = |n: usize| {
                let bytes = &bytes[at + 8 * n..at + 8 * n + 8];
                bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
            };
            let note = Note {
                cycle: word(0),
                beats: [word(1), word(2)],
                flags: word(3),
            };
            if notes
                .last()
                .is_some_and(|before| before.cycle >= note.cycle)
            {
                bail!(
                    "note {index} has cycle {}, not after the previous one",
                    note.cycle
                );
            }
            ensure!(
                note.cycle < u64::MAX / CYCLE_100PS,
                "note {index} has an invalid cycle"
            );
            notes.push(note);
        }
        Ok(Samples {
            rank,
            overwritten: first.min(end),
            notes,
        })
    }

    /// The number of notes.
    pub fn len(&self) -> usize {
        self.notes.len()
    }

    /// Whether there are no notes.
    pub fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }

    /// The number of places at which the core had to omit notes.
    pub fn gaps(&self) -> usize {
        self.notes.iter().filter(|n| n.flags & GAP != 0).count()
    }

    /// The captured packets, by the cycle of their first beat. A packet whose beginning or end is
    /// missing is omitted.
    pub fn packets(&self) -> Vec<Packet> {
        let mut packets = self.passed(0);
        packets.extend(self.passed(1));
        packets.sort_by_key(|p| p.cycle);
        packets
    }

    /// The packets of the stream to the router (0) or from the router (1).
    fn passed(&self, stream: usize) -> Vec<Packet> {
        let mut packets = Vec::new();
        let mut now: Option<Packet> = None;
        // Whether the next beat is the first of a packet; unknown after missing notes.
        let mut boundary = self.overwritten == 0;
        for (index, note) in self.notes.iter().enumerate() {
            if index > 0 && note.flags & GAP != 0 {
                (now, boundary) = (None, false);
            }
            let flags = note.flags >> (IN * stream);
            if flags & VALID == 0 {
                continue;
            }
            // The last note holds for at least one cycle.
            let until = self
                .notes
                .get(index + 1)
                .map_or(note.cycle + 1, |next| next.cycle);
            let held = until - note.cycle;
            if now.is_none() && boundary {
                now = Some(self.begun(stream, note));
                boundary = false;
            }
            let last = flags & LAST != 0;
            if let Some(packet) = &mut now {
                match flags & READY {
                    0 => packet.waited += held,
                    // A last beat that seems to continue is the next packet: a single beat with
                    // equal contents.
                    _ if last => packet.beats += 1,
                    _ => packet.beats += held,
                }
            }
            if flags & READY != 0 && last {
                if let Some(mut packet) = now.take() {
                    packet.cycles = note.cycle + 1 - packet.cycle;
                    packets.push(packet);
                }
                boundary = true;
            }
        }
        packets
    }

    /// Starts the packet whose first beat is in this note.
    fn begun(&self, stream: usize, note: &Note) -> Packet {
        let head = note.beats[stream];
        let kind = field(head, "TYPE");
        let tag = field(head, "TAG") | field(head, "TAG_HIGH") << 8;
        let mut name = called("PACKET", kind).map_or_else(|| format!("{kind}?"), str::to_owned);
        if name == "ERROR" {
            name += &format!(" {}", called("FAULT", tag).unwrap_or("?"));
        }
        let (way, peer) = [("out", "DEST"), ("in", "SRC")][stream];
        Packet {
            cycle: note.cycle,
            rank: self.rank,
            way,
            kind: name,
            peer: field(head, peer),
            tag,
            bytes: field(head, "SIZE"),
            beats: 0,
            cycles: 0,
            waited: 0,
        }
    }
}

/// Writes the notes as a waveform (Value Change Dump), with a scope for each kernel, which has the
/// given name and contains the kernel's streams. Signals are unknown where notes are missing, and
/// data is unknown while it is not valid.
///
/// # Errors
///
/// Writing failed.
pub fn waveform(captured: &[(String, Samples)], to: &mut dyn Write) -> io::Result<()> {
    let mut vcd = vcd::Writer::new(to);
    vcd.comment("A cycle is 6.4 ns (156.25 MHz). Boards have clocks of their own")?;
    vcd.timescale(100, vcd::TimescaleUnit::PS)?;
    let mut wires = Vec::new();
    let mut changes: Vec<(u64, usize, Option<&Note>)> = Vec::new();
    for (kernel, (name, samples)) in captured.iter().enumerate() {
        vcd.add_module(name)?;
        let mut flags = Vec::new();
        for flag in FLAGS {
            flags.push(vcd.add_wire(1, flag)?);
        }
        let data = [vcd.add_wire(64, "out_data")?, vcd.add_wire(64, "in_data")?];
        vcd.upscope()?;
        wires.push((flags, data));
        let mut before: Option<&Note> = None;
        for note in &samples.notes {
            if let Some(before) =
                before.filter(|b| note.flags & GAP != 0 && b.cycle + 1 < note.cycle)
            {
                changes.push((before.cycle + 1, kernel, None));
            }
            changes.push((note.cycle, kernel, Some(note)));
            before = Some(note);
        }
    }
    vcd.enddefinitions()?;
    changes.sort_by_key(|(cycle, kernel, _)| (*cycle, *kernel));
    let mut at = None;
    for (cycle, kernel, note) in changes {
        if at.replace(cycle) != Some(cycle) {
            vcd.timestamp(cycle * CYCLE_100PS)?;
        }
        let (flags, data) = &wires[kernel];
        let bit = |word: u64, place: usize| vcd::Value::from(word >> place & 1 == 1);
        for (place, wire) in flags.iter().enumerate() {
            vcd.change_scalar(*wire, note.map_or(vcd::Value::X, |n| bit(n.flags, place)))?;
        }
        for (stream, wire) in data.iter().enumerate() {
            let beat = note
                .filter(|n| n.flags >> (IN * stream) & VALID != 0)
                .map(|n| n.beats[stream]);
            let bits = (0..64)
                .rev()
                .map(|place| beat.map_or(vcd::Value::X, |beat| bit(beat, place)));
            vcd.change_vector(*wire, bits)?;
        }
    }
    vcd.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A file in the boards' format, with notes of (cycle, flags, beat out, beat in).
    fn file(room: u64, written: u64, notes: &[(u64, u64, u64, u64)]) -> tempfile::NamedTempFile {
        let mut bytes = MAGIC.to_vec();
        for half in [VERSION, 3] {
            bytes.extend(half.to_le_bytes());
        }
        for word in [room, written, 0, 0, 0, 0] {
            bytes.extend(word.to_le_bytes());
        }
        for &(cycle, flags, out, into) in notes {
            for word in [cycle, out, into, flags] {
                bytes.extend(word.to_le_bytes());
            }
        }
        bytes.resize(HEAD + room as usize * NOTE, 0);
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), bytes).unwrap();
        file
    }

    fn read(room: u64, written: u64, notes: &[(u64, u64, u64, u64)]) -> Result<Samples, String> {
        let file = file(room, written, notes);
        let samples = Samples::read(file.path()).map_err(|e| format!("{e:#}"))?;
        Ok(samples.unwrap())
    }

    /// EAGER from rank 3 to rank 1 with tag 1,031 and twelve bytes.
    const EAGER: u64 = 7 << 48 | 12 << 24 | 4 << 20 | 3 << 16 | 3 << 8 | 1;
    /// CLEAR from rank 1 to rank 3.
    const CLEAR: u64 = 1 << 16 | 1 << 8 | 3;

    const TAKEN: u64 = VALID | READY;

    #[test]
    fn packets_are_listed_with_their_waits() {
        let notes = [
            (10, VALID, EAGER, 0),
            (13, TAKEN, EAGER, 0),
            (14, TAKEN | (TAKEN | LAST) << IN, 5, CLEAR),
            (15, 0, 0, 0),
            (17, TAKEN | LAST, 6, 0),
            (18, 0, 0, 0),
        ];
        let packets = read(7, 6, &notes).unwrap().packets();
        let eager = Packet {
            cycle: 10,
            rank: 3,
            way: "out",
            kind: "EAGER".to_owned(),
            peer: 1,
            tag: 1031,
            bytes: 12,
            beats: 3,
            cycles: 8,
            waited: 3,
        };
        let clear = Packet {
            cycle: 14,
            way: "in",
            kind: "CLEAR".to_owned(),
            tag: 0,
            bytes: 0,
            beats: 1,
            cycles: 1,
            waited: 0,
            ..eager.clone()
        };
        assert_eq!(packets, [eager, clear]);
    }

    #[test]
    fn what_was_not_noted_makes_no_packets() {
        // The middle of a packet, a whole packet, a packet without its end, and a packet after the
        // gap.
        let notes = [
            (1, TAKEN, 5, 0),
            (3, TAKEN | LAST, 6, 0),
            (4, TAKEN | LAST, CLEAR, 0),
            (5, TAKEN, EAGER, 0),
            (9, TAKEN | LAST | GAP, 1, 0),
            (10, TAKEN | LAST, CLEAR, 0),
        ];
        // The seventh note is being written over the oldest note, which the reader skips.
        let samples = read(6, 6, &notes).unwrap();
        assert_eq!(
            (samples.len(), samples.overwritten, samples.gaps()),
            (5, 1, 1)
        );
        let began: Vec<u64> = samples.packets().iter().map(|p| p.cycle).collect();
        assert_eq!(began, [4, 10]);
    }

    #[test]
    fn a_waveform_is_read_again_as_it_was_noted() {
        let notes = [
            (2, TAKEN | 1 << 6, EAGER, 0),
            (3, TAKEN << IN, 0, CLEAR),
            (9, GAP, 0, 0),
        ];
        let samples = read(8, 3, &notes).unwrap();
        let mut text = Vec::new();
        waveform(&[("worker".to_owned(), samples)], &mut text).unwrap();
        let mut parser = vcd::Parser::new(&text[..]);
        let header = parser.parse_header().unwrap();
        assert_eq!(header.timescale, Some((100, vcd::TimescaleUnit::PS)));
        let code = |name: &str| header.find_var(&["worker", name]).unwrap().code;
        let (mut now, mut data, mut sending) = (0, Vec::new(), Vec::new());
        for command in parser.map(Result::unwrap) {
            match command {
                vcd::Command::Timestamp(at) => now = at / CYCLE_100PS,
                vcd::Command::ChangeVector(id, v) if id == code("out_data") => {
                    let word = v.iter().try_fold(0, |n, bit| match bit {
                        vcd::Value::V0 => Some(n << 1),
                        vcd::Value::V1 => Some(n << 1 | 1),
                        _ => None,
                    });
                    data.push((now, word));
                }
                vcd::Command::ChangeScalar(id, v) if id == code("sending") => {
                    sending.push((now, v))
                }
                _ => {}
            }
        }
        assert_eq!(data, [(2, Some(EAGER)), (3, None), (4, None), (9, None)]);
        use vcd::Value::{V0, V1, X};
        assert_eq!(sending, [(2, V1), (3, V0), (4, X), (9, V0)]);
    }

    #[test]
    fn files_that_no_board_wrote_are_refused() {
        let whole = file(2, 1, &[(1, 0, 0, 0)]);
        let bytes = fs::read(whole.path()).unwrap();
        let with = |at: usize, value: u64| {
            let mut bytes = bytes.clone();
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            bytes
        };
        let cases = [
            (bytes[..40].to_vec(), "truncated"),
            (bytes[..100].to_vec(), "truncated"),
            (with(0, 7), "not a capture file"),
            (with(8, 9), "unsupported format 9"),
            (with(16, 0), "capacity: 0 notes"),
            (with(16, u64::MAX), "invalid capacity"),
            (with(64, u64::MAX), "an invalid cycle"),
            (with(24, 2), ""),
        ];
        for (bytes, why) in cases {
            let file = tempfile::NamedTempFile::new().unwrap();
            fs::write(file.path(), bytes).unwrap();
            let error = Samples::read(file.path()).err();
            let error = error.map_or(String::new(), |e| format!("{e:#}"));
            assert!(
                error.contains(why) && error.is_empty() == why.is_empty(),
                "{why}: {error}"
            );
        }
        let again = read(3, 2, &[(5, 0, 0, 0), (5, 1, 0, 0)]).unwrap_err();
        assert!(
            again.contains("note 1 has cycle 5, not after the previous one"),
            "{again}"
        );
        assert!(Samples::read(Path::new("/nowhere/at.capture"))
            .unwrap()
            .is_none());
    }
}
