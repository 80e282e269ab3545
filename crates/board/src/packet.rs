//! The packets of the host port's socket, each of a fixed size (`hdl/board/sim/host_protocol.h`).

/// The protocol's version.
pub const VERSION: u32 = 4;
/// Bytes of a request.
pub const REQUEST_BYTES: usize = 120;
/// Bytes of a reply.
pub const REPLY_BYTES: usize = 144;

/// Operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Opens the connection and shares a window.
    Hello = 1,
    /// Adds a function for all users of the board.
    Define = 2,
    /// Removes a function.
    Remove = 3,
    /// Loads a program for this connection alone.
    Load = 4,
    /// Unloads a program.
    Unload = 5,
    /// Calls a function or program.
    Call = 6,
    /// Loads a kernel that is compiled from OpenCL C, for this connection alone.
    Bring = 7,
    /// Takes board memory for buffers.
    Take = 8,
    /// Gives such memory back.
    Give = 9,
    /// Copies from the window into such memory.
    Put = 10,
    /// The reverse.
    Get = 11,
    /// Runs such a kernel.
    Launch = 12,
    /// Stops the call or launch whose id is the number. Has no reply.
    Cancel = 13,
    /// Reads which image a region holds.
    Region = 14,
    /// Adds a function that is bound to a kernel from OpenCL C.
    Bind = 15,
}

/// A request; fields that an operation does not use are zero.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Repeated in the reply.
    pub id: u32,
    /// Offset of the body or image in the window.
    pub offset: u64,
    /// Offset of the answer in the window.
    pub answer: u64,
    /// Bytes of the body, image or window.
    pub bytes: u64,
    /// Maximum bytes of the answer.
    pub room: u64,
    /// The function, program or region.
    pub number: u32,
    /// Maximum cycles of a call; 0: unlimited.
    pub timeout: u32,
    /// Expected cycles.
    pub cost: u32,
    /// log2 of the cycles for eight bytes.
    pub speed: u32,
    /// Scalars.
    pub params: [u32; 4],
    /// The function's name.
    pub name: String,
    /// The scalars' names.
    pub scalars: Vec<String>,
}

impl Request {
    /// The packet's bytes. Names that are too long are truncated; callers check them first.
    pub fn encode(&self, op: Op) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        let mut at = 0;
        let mut put = |part: &[u8], room: usize| {
            let part = &part[..part.len().min(room)];
            bytes[at..at + part.len()].copy_from_slice(part);
            at += room;
        };
        put(&(op as u32).to_ne_bytes(), 4);
        put(&self.id.to_ne_bytes(), 4);
        for word in [self.offset, self.answer, self.bytes, self.room] {
            put(&word.to_ne_bytes(), 8);
        }
        let words = [self.number, self.timeout, self.cost, self.speed];
        for word in words.into_iter().chain(self.params) {
            put(&word.to_ne_bytes(), 4);
        }
        put(self.name.as_bytes(), 16);
        for scalar in self.scalars.iter().take(4) {
            put(scalar.as_bytes(), 8);
        }
        bytes
    }
}

/// A reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The request's id.
    pub id: u32,
    /// 0: success.
    pub status: u32,
    /// Number of the function or program.
    pub number: u32,
    /// Bytes of the answer, even if they exceed its buffer, or of the window.
    pub bytes: u64,
    /// Cycles from the call's descriptor to its report.
    pub cycles: u32,
    /// Cycles of the kernel.
    pub kernel_cycles: u32,
    /// The region that ran the call.
    pub region: u32,
    /// Whether the region was loaded for the call, or holds an image.
    pub loaded: bool,
    /// To a hello: the protocol's version.
    pub version: u32,
    /// The shell, which images must match.
    pub shell: u32,
    /// Number of regions.
    pub regions: u32,
    /// Clock rate of the cycle counts, kHz.
    pub clock_khz: u32,
    /// Free bytes of board memory.
    pub memory_free: u64,
    /// The error's text.
    pub text: String,
    /// A launch's status.
    pub kernel_status: u32,
    /// Fault: the buffer from 1 on; 0: none.
    pub buffer: u32,
    /// Fault: whether the access was a write.
    pub is_write: bool,
    /// Fault: the access's offset. The address of memory. The checksum of a region's image.
    pub place: u64,
}

impl Reply {
    /// Decodes a packet.
    pub fn decode(bytes: &[u8; REPLY_BYTES]) -> Reply {
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four"));
        let long = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight"));
        let text = bytes[64..120].split(|b| *b == 0).next().unwrap_or_default();
        Reply {
            id: word(4),
            status: word(8),
            number: word(12),
            bytes: long(16),
            cycles: word(24),
            kernel_cycles: word(28),
            region: word(32),
            loaded: word(36) != 0,
            version: word(40),
            shell: word(44),
            regions: word(48),
            clock_khz: word(52),
            memory_free: long(56),
            text: String::from_utf8_lossy(text).into_owned(),
            kernel_status: word(120),
            buffer: word(124),
            is_write: word(128) != 0,
            place: long(136),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_where_the_other_side_has_them() {
        let request = Request {
            id: 7,
            offset: 8,
            answer: 16,
            bytes: 24,
            room: 32,
            number: 40,
            timeout: 41,
            cost: 42,
            speed: 43,
            params: [44, 45, 46, 47],
            name: "sobel".into(),
            scalars: vec!["width".into()],
        };
        let bytes = request.encode(Op::Define);
        let at = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!((at(0), at(4), at(8), at(32), at(40)), (2, 7, 8, 32, 40));
        assert_eq!((at(52), at(56), at(68)), (43, 44, 47));
        assert_eq!(
            (&bytes[72..78], &bytes[88..94]),
            (&b"sobel\0"[..], &b"width\0"[..])
        );
    }
}
