//! Frames: a header of twenty bytes, a message, a payload.
//!
//! | bytes | content |
//! |---|---|
//! | 0–3 | kind |
//! | 4–7 | queue, or 0 |
//! | 8–11 | acknowledgement: low half of the number of frames that the sender has received |
//! | 12–15 | bytes of the message |
//! | 16–19 | bytes of the payload |
//!
//! All numbers are little-endian. Frames of all kinds except [`Kind::Ack`] are counted from 1.

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
}

const KINDS: [Kind; 7] = [
    Kind::Ack,
    Kind::Control,
    Kind::Command,
    Kind::Contents,
    Kind::Close,
    Kind::Notice,
    Kind::Data,
];

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub kind: Kind,
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
            self.kind as u32,
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
        let kind = KINDS
            .get(word(0) as usize)
            .ok_or_else(|| Violation(format!("a frame of unknown kind {}", word(0))))?;
        let head = Head {
            kind: *kind,
            queue: word(1),
            ack: word(2),
            message: word(3),
            payload: word(4),
        };
        let message_max = match kind {
            Kind::Ack | Kind::Close => 0,
            Kind::Contents | Kind::Data => 8,
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
        Ok(head)
    }

    /// Whether the frame is counted.
    pub fn counts(&self) -> bool {
        self.kind != Kind::Ack
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_survive_the_round_trip() {
        for kind in KINDS {
            let head = Head {
                kind,
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
    }
}
