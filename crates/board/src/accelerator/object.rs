//! Objects: compiled programs that are not linked yet, and libraries of them.
//!
//! | bytes | content |
//! |---|---|
//! | 0 to 3 | `BLOB` |
//! | 4 to 7 | version of the format |
//! | 8 to 39 | SHA-256 of everything from byte 40 on |
//! | 40 to 43 | 1: an object, 2: a library |
//! | from 44 | LLVM's bitcode |

use super::{Error, BYTES_MAX};
use sha2::{Digest, Sha256};

/// The first bytes of an object.
pub const MAGIC: &[u8; 4] = b"BLOB";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 40;
const KIND_BYTES: usize = 4;

/// The content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One compiled program.
    Object,
    /// Several, linked.
    Library,
}

/// A program that is not linked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// An object, or a library.
    pub kind: Kind,
    /// LLVM's bitcode, which the compiler reads in its confinement.
    pub bitcode: Vec<u8>,
}

/// Whether a file begins like an object.
pub fn is_object(file: &[u8]) -> bool {
    file.starts_with(MAGIC)
}

impl Object {
    /// Reads an object; lengths and the checksum are checked, the bitcode is not.
    pub fn parse(file: &[u8]) -> Result<Object, Error> {
        if !is_object(file) {
            return Err(Error::NoObject);
        }
        let end = HEADER_BYTES + KIND_BYTES;
        if file.len() < end {
            return Err(Error::Short {
                part: "the header",
                end,
                have: file.len(),
            });
        }
        super::check_length("object", file.len(), BYTES_MAX)?;
        let number = |at: usize| {
            let bytes = file[at..at + 4].try_into();
            u32::from_le_bytes(bytes.expect("four bytes"))
        };
        if number(4) != VERSION {
            return Err(Error::Version(number(4)));
        }
        if Sha256::digest(&file[HEADER_BYTES..])[..] != file[8..HEADER_BYTES] {
            return Err(Error::Damaged);
        }
        let kind = match number(HEADER_BYTES) {
            1 => Kind::Object,
            2 => Kind::Library,
            _ => return Err(Error::Damaged),
        };
        Ok(Object {
            kind,
            bitcode: file[end..].to_vec(),
        })
    }

    /// The object as a file, which [`Object::parse`] accepts.
    pub fn to_bytes(&self) -> Vec<u8> {
        let kind: u32 = match self.kind {
            Kind::Object => 1,
            Kind::Library => 2,
        };
        let body = [&kind.to_le_bytes()[..], &self.bitcode].concat();
        let mut file = MAGIC.to_vec();
        file.extend(VERSION.to_le_bytes());
        file.extend(Sha256::digest(&body));
        file.extend(body);
        file
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_read_as_written_and_damage_is_detected() {
        for kind in [Kind::Object, Kind::Library] {
            let object = Object {
                kind,
                bitcode: b"BC\xc0\xde".to_vec(),
            };
            let file = object.to_bytes();
            assert_eq!(Object::parse(&file), Ok(object));
            for at in 0..file.len() {
                let mut damaged = file.clone();
                damaged[at] ^= 4;
                assert!(Object::parse(&damaged).is_err(), "byte {at}");
                assert!(Object::parse(&file[..at]).is_err(), "{at} bytes");
            }
        }
        assert_eq!(Object::parse(b"BLAC"), Err(Error::NoObject));
    }
}
