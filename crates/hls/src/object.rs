//! Objects in memory that the synthesis makes: arrays of a kernel, and copies of its values.

use crate::error::{Error, Result};
use crate::ir::{Global, GlobalId};

/// Bytes of the largest object, and of all objects of a program. A kernel has less memory on the
/// chip; the limits bound the memory of the synthesis.
pub const BYTES_MAX: u64 = 16 << 20;
const ALL_BYTES_MAX: u64 = 64 << 20;

/// Checks the size of an object, before it is made.
pub fn check(globals: &[Global], name: &str, bytes: u64) -> Result<()> {
    let others: u64 = globals.iter().map(|g| g.bytes.len() as u64).sum();
    let exceeded = if bytes > BYTES_MAX {
        format!("'{name}' has {bytes} bytes, more than {BYTES_MAX}")
    } else if others + bytes > ALL_BYTES_MAX {
        format!("'{name}' has {bytes} bytes, and the arrays before it {others}: all may have {ALL_BYTES_MAX}")
    } else {
        return Ok(());
    };
    Err(Error::too_large(exceeded).remedy("make the array smaller"))
}

/// Adds an object with zeros.
pub fn add(globals: &mut Vec<Global>, name: String, bytes: u64) -> Result<GlobalId> {
    check(globals, &name, bytes)?;
    globals.push(Global::zeroed(name, bytes as usize));
    Ok(GlobalId(globals.len() - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_limited_alone_and_together() {
        let mut globals = Vec::new();
        let error = add(&mut globals, "a".to_owned(), BYTES_MAX + 1).unwrap_err();
        assert!(error.message.contains("'a' has 16777217 bytes"), "{error}");
        assert!(globals.is_empty());
        for _ in 0..ALL_BYTES_MAX / BYTES_MAX {
            add(&mut globals, "b".to_owned(), BYTES_MAX).unwrap();
        }
        let error = add(&mut globals, "c".to_owned(), 1).unwrap_err();
        assert!(error.message.contains("'c' has 1 bytes"), "{error}");
        assert_eq!(globals.len() as u64, ALL_BYTES_MAX / BYTES_MAX);
    }
}
