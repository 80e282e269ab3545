//! Messages of a part's rings. All numbers are little endian.
//!
//! A request:
//!
//! | bytes | content |
//! |---|---|
//! | 0 | [`Kind`] |
//! | 1 | negotiate: [`Preference`]; set: the answer's [`Codec`] |
//! | 2 | set: the body's [`Codec`] |
//! | 3 | set: 1 if the body is in the arena |
//! | 4–7 | the handle |
//! | 8–15 | a number, which the answer repeats |
//! | 16–19 | the text's bytes |
//! | 20–23 | unused |
//! | 24–39 | set: the body's offset and size, if it is in the arena |
//! | 40–55 | set, fetch: offset and size of the arena's space for the answer |
//! | 56–63 | fetch: first byte of the answer to fetch |
//! | 64 … | the text (negotiate: the function's name; set: its arguments), then the body unless it is in the arena; session: the body is a framed hello |
//!
//! An answer:
//!
//! | bytes | content |
//! |---|---|
//! | 0 | [`Kind`] |
//! | 1 | 0: ack; otherwise a [`Reason`]'s number: nack, with its text as data |
//! | 2 | negotiate: [`Implementation`]; set: the answer's [`Codec`]; session: 1 if one was opened |
//! | 3 | location of the data: [`HERE`], [`ARENA`] or [`KEPT`] |
//! | 4–7 | the handle |
//! | 8–15 | the request's number |
//! | 16–23 | bytes of all data |
//! | 24 … | the data, or their beginning |

macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $variant:ident = $number:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $name { $($(#[$of])* $variant = $number),* }
        impl $name {
            /// The one of this number.
            pub fn from_number(number: u8) -> Option<$name> {
                match number { $($number => Some($name::$variant),)* _ => None }
            }
        }
    };
}

numbered! {
    /// Kinds of requests.
    Kind {
        /// List the names of the functions that this VM may call.
        List = 1,
        /// Open a function.
        Negotiate = 2,
        /// Load the function.
        Activate = 3,
        /// Compute.
        Set = 4,
        /// Fetch the rest of an answer.
        Fetch = 5,
        /// Drop the handle's call and its answer.
        Reset = 6,
        /// Close the handle.
        Release = 7,
        /// Open an OpenCL session: the part becomes the session's memory.
        Session = 8,
    }
}

numbered! {
    /// The implementation that an application requests.
    Preference {
        /// Hardware if an accelerator is available, otherwise software.
        Any = 0,
        /// An accelerator only.
        Hardware = 1,
        /// Native code on the host's processors only.
        Software = 2,
    }
}

numbered! {
    /// The implementation of a function.
    Implementation {
        /// An accelerator.
        Hardware = 1,
        /// Native code on the host's processors.
        Software = 2,
    }
}

numbered! {
    /// State of a handle's call.
    State {
        /// Ready for a call.
        Wait = 0,
        /// Running.
        Busy = 1,
        /// The answer is available.
        Done = 2,
    }
}

numbered! {
    /// The form of a body or an answer.
    Codec {
        /// The default of the function's manifest.
        Default = 0,
        /// Elements, row major, little endian.
        Raw = 1,
        /// JSON.
        Json = 2,
        /// NumPy's.
        Npy = 3,
        /// PNG.
        Png = 4,
        /// JPEG.
        Jpeg = 5,
    }
}

impl Codec {
    /// The content type of the codec; empty for the default.
    pub fn content_type(self) -> &'static str {
        match self {
            Codec::Default => "",
            Codec::Raw => "application/octet-stream",
            Codec::Json => "application/json",
            Codec::Npy => "application/x-npy",
            Codec::Png => "image/png",
            Codec::Jpeg => "image/jpeg",
        }
    }

    /// The codec of a content type.
    pub fn of(content_type: &str) -> Codec {
        (1..=5)
            .filter_map(Codec::from_number)
            .find(|codec| codec.content_type() == content_type)
            .unwrap_or(Codec::Raw)
    }
}

numbered! {
    /// Reasons of a refusal.
    Reason {
        /// The function does not exist or is not allowed for this VM.
        NotAllowed = 1,
        /// No accelerator is available for it.
        NoHardware = 2,
        /// The function has no software implementation.
        NoSoftware = 3,
        /// A limit of this VM is reached: handles, calls in flight, memory.
        Quota = 4,
        /// The arguments or the body do not fit the function.
        BadArguments = 5,
        /// The handle is invalid or not active.
        NotActive = 6,
        /// The function failed; the text is its own.
        Failed = 7,
        /// The call exceeded this VM's time limit.
        TimedOut = 8,
        /// The request is malformed.
        Protocol = 9,
        /// The host is temporarily unable.
        Unavailable = 10,
    }
}

/// The data are in the answer.
pub const HERE: u8 = 0;
/// The data are in the arena, at the requested place.
pub const ARENA: u8 = 1;
/// The host has the data: to be fetched in pieces.
pub const KEPT: u8 = 2;

/// Bytes of a request before its text.
pub const REQUEST_BYTES: usize = 64;
/// Bytes of an answer before its data.
pub const ANSWER_BYTES: usize = 24;
/// Bodies and answers up to this size are sent in the ring; larger ones through the arena.
pub const INLINE_BYTES_MAX: usize = 4096;
/// Size limit of a function's name, or of a call's arguments.
pub const TEXT_BYTES_MAX: usize = 8192;
/// Size limit of a request or an answer.
pub const MESSAGE_BYTES_MAX: usize = REQUEST_BYTES + TEXT_BYTES_MAX + INLINE_BYTES_MAX;

/// A request without its text and body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Kind.
    pub kind: Kind,
    /// [`Preference`] or [`Codec`].
    pub choice: u8,
    /// The body's [`Codec`].
    pub body_codec: u8,
    /// The function's handle.
    pub handle: u32,
    /// Its number.
    pub id: u64,
    /// Offset and size of the body, if it is in the arena.
    pub body: Option<(u64, u64)>,
    /// Offset and size of the space for the answer.
    pub answer: (u64, u64),
    /// First byte of the answer to fetch.
    pub from: u64,
}

impl Request {
    /// A request without a body.
    pub fn new(kind: Kind, handle: u32, id: u64) -> Request {
        Request {
            kind,
            choice: 0,
            body_codec: 0,
            handle,
            id,
            body: None,
            answer: (0, 0),
            from: 0,
        }
    }

    /// Encodes the request, its text and its inline body into `message`, which is cleared first.
    pub fn encode(&self, text: &str, body: &[u8], message: &mut Vec<u8>) {
        let mut head = [0; REQUEST_BYTES];
        head[0] = self.kind as u8;
        head[1] = self.choice;
        head[2] = self.body_codec;
        head[3] = u8::from(self.body.is_some());
        head[4..8].copy_from_slice(&self.handle.to_le_bytes());
        head[8..16].copy_from_slice(&self.id.to_le_bytes());
        head[16..20].copy_from_slice(&(text.len() as u32).to_le_bytes());
        let (at, bytes) = self.body.unwrap_or_default();
        head[24..32].copy_from_slice(&at.to_le_bytes());
        head[32..40].copy_from_slice(&bytes.to_le_bytes());
        head[40..48].copy_from_slice(&self.answer.0.to_le_bytes());
        head[48..56].copy_from_slice(&self.answer.1.to_le_bytes());
        head[56..64].copy_from_slice(&self.from.to_le_bytes());
        message.clear();
        message.extend_from_slice(&head);
        message.extend_from_slice(text.as_bytes());
        message.extend_from_slice(body);
    }

    /// Decodes a request from a private copy of a message; returns it, its text and its inline
    /// body. `None`: malformed.
    pub fn decode(message: &[u8]) -> Option<(Request, &str, &[u8])> {
        let head: &[u8; REQUEST_BYTES] = message.first_chunk()?;
        let u32_at = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four"));
        let u64_at = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight"));
        let rest = &message[REQUEST_BYTES..];
        let (text, body) = rest.split_at_checked(u32_at(16) as usize)?;
        if text.len() > TEXT_BYTES_MAX || head[3] > 1 {
            return None;
        }
        let request = Request {
            kind: Kind::from_number(head[0])?,
            choice: head[1],
            body_codec: head[2],
            handle: u32_at(4),
            id: u64_at(8),
            body: (head[3] == 1).then(|| (u64_at(24), u64_at(32))),
            answer: (u64_at(40), u64_at(48)),
            from: u64_at(56),
        };
        Some((request, std::str::from_utf8(text).ok()?, body))
    }
}

/// An answer without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The request's kind.
    pub kind: Kind,
    /// The reason of a nack; `None`: ack.
    pub reason: Option<Reason>,
    /// [`Implementation`] or [`Codec`].
    pub choice: u8,
    /// [`HERE`], [`ARENA`] or [`KEPT`].
    pub place: u8,
    /// The function's handle.
    pub handle: u32,
    /// The request's number.
    pub id: u64,
    /// Bytes of all data.
    pub bytes: u64,
}

impl Answer {
    /// An ack.
    pub fn ack(request: &Request, bytes: usize) -> Answer {
        Answer {
            kind: request.kind,
            reason: None,
            choice: 0,
            place: HERE,
            handle: request.handle,
            id: request.id,
            bytes: bytes as u64,
        }
    }

    /// Encodes the answer and its data into `message`, which is cleared first.
    pub fn encode(&self, data: &[u8], message: &mut Vec<u8>) {
        let mut head = [0; ANSWER_BYTES];
        head[0] = self.kind as u8;
        head[1] = self.reason.map_or(0, |reason| reason as u8);
        head[2] = self.choice;
        head[3] = self.place;
        head[4..8].copy_from_slice(&self.handle.to_le_bytes());
        head[8..16].copy_from_slice(&self.id.to_le_bytes());
        head[16..24].copy_from_slice(&self.bytes.to_le_bytes());
        message.clear();
        message.extend_from_slice(&head);
        message.extend_from_slice(data);
    }

    /// Decodes an answer and its inline data from a private copy of a message. `None`: malformed.
    pub fn decode(message: &[u8]) -> Option<(Answer, &[u8])> {
        let head: &[u8; ANSWER_BYTES] = message.first_chunk()?;
        let answer = Answer {
            kind: Kind::from_number(head[0])?,
            reason: match head[1] {
                0 => None,
                number => Some(Reason::from_number(number)?),
            },
            choice: head[2],
            place: head[3],
            handle: u32::from_le_bytes(head[4..8].try_into().expect("four")),
            id: u64::from_le_bytes(head[8..16].try_into().expect("eight")),
            bytes: u64::from_le_bytes(head[16..24].try_into().expect("eight")),
        };
        Some((answer, &message[ANSWER_BYTES..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn requests_are_read_as_written() {
        let request = Request {
            choice: 2,
            body_codec: 3,
            body: Some((64, 1 << 40)),
            answer: (7, 8),
            from: 9,
            ..Request::new(Kind::Set, 5, u64::MAX)
        };
        let mut message = vec![1, 2, 3];
        request.encode("n=93", b"body", &mut message);
        let expected = (request, "n=93", b"body".as_slice());
        assert_eq!(Request::decode(&message), Some(expected));
        assert_eq!(Request::decode(&message[..REQUEST_BYTES + 3]), None);
        message[REQUEST_BYTES] = 0xff;
        assert_eq!(Request::decode(&message), None, "text is UTF-8");
    }

    #[test]
    fn answers_are_read_as_written() {
        let request = Request::new(Kind::Activate, 3, 4);
        let answer = Answer {
            reason: Some(Reason::Quota),
            place: KEPT,
            ..Answer::ack(&request, 4)
        };
        let mut message = Vec::new();
        answer.encode(b"full", &mut message);
        assert_eq!(Answer::decode(&message), Some((answer, b"full".as_slice())));
        message[1] = 99;
        assert_eq!(Answer::decode(&message), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut again = Vec::new();
            if let Some((request, text, body)) = Request::decode(&bytes) {
                request.encode(text, body, &mut again);
                prop_assert_eq!(Request::decode(&again), Some((request, text, body)));
            }
            if let Some((answer, data)) = Answer::decode(&bytes) {
                answer.encode(data, &mut again);
                prop_assert_eq!(&again, &bytes);
            }
        }
    }
}
