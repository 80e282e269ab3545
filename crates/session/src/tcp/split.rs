//! Splits large transfers into whole slices, whole rows, or parts of a row, in the payload's order,
//! so that each piece's bytes are contiguous.

use baltra_wire::{Direction, Operation, Payload, Region};

/// A transfer's payload and direction; `None`: the operation transfers nothing.
pub(crate) fn payload_of(operation: &Operation<'_>) -> Option<(Direction, Payload)> {
    match operation {
        Operation::Buffer {
            direction, payload, ..
        }
        | Operation::BufferRect {
            direction, payload, ..
        }
        | Operation::Image {
            direction, payload, ..
        }
        | Operation::Svm {
            direction, payload, ..
        } => Some((*direction, *payload)),
        _ => None,
    }
}

/// The same transfer with another payload.
pub(crate) fn with_payload<'a>(operation: &Operation<'a>, new: Payload) -> Operation<'a> {
    let mut operation = operation.clone();
    match &mut operation {
        Operation::Buffer { payload, .. }
        | Operation::BufferRect { payload, .. }
        | Operation::Image { payload, .. }
        | Operation::Svm { payload, .. } => *payload = new,
        _ => {}
    }
    operation
}

/// The pieces of a transfer, each with a payload of at most `max` bytes (an image's row is never
/// split). A transfer that is small, or invalid, stays whole.
pub(crate) struct Pieces<'a> {
    operation: Operation<'a>,
    payload: Payload,
    max: u64,
    /// Number of payload bytes in earlier pieces.
    done: u64,
    ended: bool,
}

/// Splits the rest of a transfer after the pieces of its first `done` payload bytes.
pub(crate) fn pieces_from<'a>(
    operation: &Operation<'a>,
    payload: Payload,
    max: u64,
    done: u64,
) -> Pieces<'a> {
    Pieces {
        operation: operation.clone(),
        payload,
        max,
        done,
        ended: false,
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = (Operation<'a>, Payload);

    fn next(&mut self) -> Option<(Operation<'a>, Payload)> {
        let left = self.payload.len - self.done;
        if self.ended || left == 0 && self.payload.len > 0 {
            return None;
        }
        if self.payload.len <= self.max {
            self.ended = true;
            return Some((self.operation.clone(), self.payload));
        }
        let mut operation = self.operation.clone();
        let len = match &mut operation {
            Operation::Buffer { offset, .. } => {
                *offset += self.done;
                left.min(self.max)
            }
            Operation::Svm { address, .. } => {
                *address += self.done;
                left.min(self.max)
            }
            Operation::BufferRect { region, .. } => {
                cut(region, self.payload.len, self.done, self.max, true)
            }
            Operation::Image { region, .. } => {
                cut(region, self.payload.len, self.done, self.max, false)
            }
            _ => left,
        };
        let payload = Payload {
            offset: self.payload.offset + self.done,
            len,
            ..self.payload
        };
        self.done += len;
        Some((with_payload(&operation, payload), payload))
    }
}

/// Makes `region` the piece that starts `done` bytes into the payload of `total` bytes; returns its
/// size.
fn cut(region: &mut Region, total: u64, done: u64, max: u64, part_rows: bool) -> u64 {
    let [width, height, depth] = region.size;
    let lines = height.saturating_mul(depth);
    if lines == 0 || width == 0 || !total.is_multiple_of(lines) {
        // Invalid: the executor returns the error.
        return total - done;
    }
    let line = total / lines;
    let slice = line * height;
    let (z, in_slice) = (done / slice, done % slice);
    let (y, in_line) = (in_slice / line, in_slice % line);
    region.origin[2] += z;
    region.origin[1] += y;
    if in_slice == 0 && slice <= max {
        let slices = (max / slice).min(depth - z);
        region.size[2] = slices;
        return slices * slice;
    }
    region.size[2] = 1;
    if in_line == 0 && (line <= max || !part_rows) {
        let rows = (max / line).max(1).min(height - y);
        region.size[1] = rows;
        return rows * line;
    }
    // A row of a buffer: its pixels are bytes.
    region.size[1] = 1;
    region.origin[0] += in_line;
    region.size[0] = (line - in_line).min(max);
    region.size[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces<'a>(operation: &Operation<'a>, payload: Payload, max: u64) -> Pieces<'a> {
        pieces_from(operation, payload, max, 0)
    }

    const WHOLE: Payload = Payload {
        arena: 1,
        offset: 100,
        len: 0,
    };

    fn rect(size: [u64; 3], total: u64) -> (Operation<'static>, Payload) {
        let payload = Payload {
            len: total,
            ..WHOLE
        };
        let operation = Operation::BufferRect {
            direction: Direction::Write,
            buffer: 1,
            region: Region {
                origin: [3, 5, 7],
                size,
                row_pitch: 1000,
                slice_pitch: 0,
            },
            payload,
        };
        (operation, payload)
    }

    /// Each byte of the payload, as (x, y, z), in the order of the pieces.
    fn bytes(operation: &Operation<'_>, payload: Payload, max: u64) -> Vec<[u64; 3]> {
        let mut all = Vec::new();
        let mut next = payload.offset;
        for (piece, part) in pieces(operation, payload, max) {
            assert_eq!(part.offset, next);
            assert!(part.len <= max, "{part:?}");
            next += part.len;
            let Operation::BufferRect { region, .. } = piece else {
                panic!("another operation");
            };
            assert_eq!(region.size.iter().product::<u64>(), part.len);
            for z in 0..region.size[2] {
                for y in 0..region.size[1] {
                    for x in 0..region.size[0] {
                        let o = region.origin;
                        all.push([o[0] + x, o[1] + y, o[2] + z]);
                    }
                }
            }
        }
        assert_eq!(next, payload.offset + payload.len);
        all
    }

    #[test]
    fn a_rectangle_keeps_every_byte_in_order() {
        let (operation, payload) = rect([6, 5, 4], 120);
        let whole = bytes(&operation, payload, 120);
        for max in 1..120 {
            assert_eq!(bytes(&operation, payload, max), whole, "pieces of {max}");
        }
    }

    #[test]
    fn a_buffer_is_cut_evenly() {
        let payload = Payload { len: 25, ..WHOLE };
        let operation = Operation::Buffer {
            direction: Direction::Read,
            buffer: 1,
            offset: 7,
            payload,
        };
        let found: Vec<_> = pieces(&operation, payload, 10)
            .map(|(operation, part)| match operation {
                Operation::Buffer {
                    offset, payload, ..
                } => {
                    assert_eq!(payload, part);
                    (offset, part.offset, part.len)
                }
                _ => panic!("another operation"),
            })
            .collect();
        assert_eq!(found, [(7, 100, 10), (17, 110, 10), (27, 120, 5)]);
    }

    #[test]
    fn small_empty_and_senseless_transfers_stay_whole() {
        let (small, payload) = rect([2, 2, 2], 8);
        assert_eq!(pieces(&small, payload, 8).count(), 1);
        let (empty, payload) = rect([0, 0, 0], 0);
        assert_eq!(pieces(&empty, payload, 8).count(), 1);
        let (senseless, payload) = rect([0, 3, 3], 100);
        assert_eq!(pieces(&senseless, payload, 8).count(), 1);
    }
}
