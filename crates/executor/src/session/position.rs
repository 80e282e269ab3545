//! Positions in rings, as the messages of a move have them.

use baltra_ring::Position;
use baltra_wire::moves::RingPosition;

/// A ring's position, as a message has it.
pub fn ring_position(position: Position) -> RingPosition {
    (position.bytes, position.messages, position.peer)
}

/// The position that a message has.
pub fn position((bytes, messages, peer): RingPosition) -> Position {
    Position {
        bytes,
        messages,
        peer,
    }
}
