//! Frames: a header of twenty bytes, a message, a payload.
//!
//! | bytes | content |
//! |---|---|
//! | 0–1 | kind |
//! | 2–3 | number of subflows over which the payload is divided ([`super::subflows`]) |
//! | 4–7 | queue, or 0 |
//! | 8–11 | acknowledgement: low half of the number of frames that the sender has received |
//! | 12–15 | bytes of the message |
//! | 16–19 | bytes of the payload |
//!
//! All numbers are little-endian. Frames of all kinds except [`Kind::Ack`] and
//! [`Kind::Subflows`] are counted from 1.

use super::subflows::{PART_BYTES_MIN, SUBFLOWS_MAX};
use super::CHUNK_BYTES;
use baltra_wire::MESSAGE_BYTES_MAX;

/// Size of a header.
pub(crate) const HEAD_BYTES: usize = 20;

/// Kinds of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Only an acknowledgement. Not counted.
    Ack,
    /// To the relay: a `Control`.
    Control,
    /// To the relay: a `Command` of the queue; a write's bytes are the payload.
    Command,
    /// To the relay: a piece of the contents of an object created by a later `Control`; the message
    /// is their total length, eight bytes.
    Contents,
    /// To the relay: end the session.
    Close,
    /// To the client: a `Notice`.
    Notice,
    /// To the client: the bytes read by a command of the queue; the message is the command's
    /// number, eight bytes.
    Data,
    /// To the relay: offers subflows; to the client: accepts them. The message is their tag, eight
    /// bytes. Not counted.
    Subflows,
}

const KINDS: [Kind; 8] = [
    Kind::Ack,
    Kind::Control,
    Kind::Command,
    Kind::Contents,
    Kind::Close,
    Kind::Notice,
    Kind::Data,
    Kind::Subflows,
];

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub kind: Kind,
    pub subflows: u16,
    pub queue: u32,
    pub ack: u32,
    pub message: u32,
    pub payload: u32,
}

/// A violation of the protocol by the peer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the peer broke the session protocol: {0}")]
pub(crate) struct Violation(pub String);

impl Violation {
    pub fn new(text: impl Into<String>) -> Violation {
        Violation(text.into())
    }
}

impl Head {
    pub fn to_bytes(self) -> [u8; HEAD_BYTES] {
        let words = [
            self.kind as u32 | u32::from(self.subflows) << 16,
            self.queue,
            self.ack,
            self.message,
            self.payload,
        ];
        let mut bytes = [0; HEAD_BYTES];
        for (at, word) in bytes.chunks_exact_mut(4).zip(words) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Decodes a header and checks every bound that does not depend on the message.
    pub fn from_bytes(bytes: &[u8; HEAD_BYTES]) -> Result<Head, Violation> {
        let word =
            |i: usize| u32::from_le_bytes(bytes[4 * i..4 * i + 4].try_into().expect("four bytes"));
        let number = word(0) & 0xffff;
        let kind = KINDS
            .get(number as usize)
            .ok_or_else(|| Violation(format!("a frame of unknown kind {number}")))?;
        let head = Head {
            kind: *kind,
            subflows: (word(0) >> 16) as u16,
            queue: word(1),
            ack: word(2),
            message: word(3),
            payload: word(4),
        };
        let message_max = match kind {
            Kind::Ack | Kind::Close => 0,
            Kind::Contents | Kind::Data | Kind::Subflows => 8,
            Kind::Command => super::RING_BYTES / 2,
            Kind::Control | Kind::Notice => MESSAGE_BYTES_MAX,
        };
        let payload_max = match kind {
            Kind::Command | Kind::Contents | Kind::Data => CHUNK_BYTES,
            _ => 0,
        };
        if head.message as usize > message_max || u64::from(head.payload) > payload_max {
            return Err(Violation(format!(
                "an oversized frame of kind {kind:?}: {} bytes of message and {} of payload",
                head.message, head.payload
            )));
        }
        let parts = usize::from(head.subflows) + 1;
        if parts > 1 && (parts > SUBFLOWS_MAX + 1 || payload_is_short(&head, parts)) {
            return Err(Violation(format!(
                "a payload of {} bytes in {parts} parts",
                head.payload
            )));
        }
        Ok(head)
    }

    /// Whether the frame is counted.
    pub fn counts(&self) -> bool {
        !matches!(self.kind, Kind::Ack | Kind::Subflows)
    }
}

fn payload_is_short(head: &Head, parts: usize) -> bool {
    (head.payload as usize) < parts * PART_BYTES_MIN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_survive_the_round_trip() {
        for kind in KINDS {
            let head = Head {
                kind,
                subflows: 0,
                queue: 7,
                ack: u32::MAX,
                message: 0,
                payload: 0,
            };
            assert_eq!(Head::from_bytes(&head.to_bytes()), Ok(head));
        }
    }

    #[test]
    fn oversized_and_unknown_frames_are_refused() {
        let head = |kind, message, payload| Head {
            kind,
            subflows: 0,
            queue: 0,
            ack: 0,
            message,
            payload,
        };
        for bad in [
            head(Kind::Ack, 1, 0),
            head(Kind::Control, 8, 1),
            head(Kind::Control, u32::MAX, 0),
            head(Kind::Command, 1 << 20, 0),
            head(Kind::Data, 8, CHUNK_BYTES as u32 + 1),
        ] {
            assert!(Head::from_bytes(&bad.to_bytes()).is_err(), "{bad:?}");
        }
        let mut bytes = head(Kind::Ack, 0, 0).to_bytes();
        bytes[0] = 99;
        assert!(Head::from_bytes(&bytes).is_err());
        let divided = |subflows, payload| {
            let head = Head {
                subflows,
                ..head(Kind::Data, 8, payload)
            };
            Head::from_bytes(&head.to_bytes())
        };
        let least = 2 * PART_BYTES_MIN as u32;
        assert!(divided(1, least).is_ok() && divided(1, least - 1).is_err());
        assert!(divided(SUBFLOWS_MAX as u16, 1 << 20).is_ok());
        assert!(divided(SUBFLOWS_MAX as u16 + 1, 1 << 20).is_err());
    }
}
