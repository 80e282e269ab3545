//! Names of objects: as records list them, and as keys of maps.

use baltra_wire::Id;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Names of four little-endian bytes each.
pub fn ids(bytes: &[u8]) -> impl ExactSizeIterator<Item = Id> + '_ {
    bytes
        .chunks_exact(4)
        .map(|c| u32::from_le_bytes(c.try_into().expect("chunks of four")))
}

/// Numbers of eight little-endian bytes each.
pub fn words(bytes: &[u8]) -> impl ExactSizeIterator<Item = u64> + '_ {
    bytes
        .chunks_exact(8)
        .map(|c| u64::from_le_bytes(c.try_into().expect("chunks of eight")))
}

/// Client-chosen ids are small and mostly consecutive: one multiplication spreads them. A client
/// that chooses colliding ids only slows down itself.
#[derive(Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte) ^ self.0 as u32);
        }
    }

    fn write_u32(&mut self, id: u32) {
        self.0 = u64::from(id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// A map by object name.
pub type IdMap<T> = HashMap<Id, T, BuildHasherDefault<IdHasher>>;
