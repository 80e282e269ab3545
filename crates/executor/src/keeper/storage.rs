//! The file of a suspended session: parts of contents, each with a checksum that this process keeps.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// A part in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePart {
    offset: u64,
    /// Bytes.
    pub len: u64,
    checksum: u32,
}

/// Bytes that are written before the disk has to have them: the disk sets the pace of the session's
/// executor, so that little is left to write once the session has stopped.
const WRITE_BACK_BYTES: u64 = 64 << 20;

/// The file.
pub struct Storage {
    file: File,
    end: u64,
    /// Bytes that the disk may not have yet.
    dirty: u64,
    bytes_max: u64,
}

impl Storage {
    /// An empty file, of at most `bytes_max`.
    pub fn new(file: File, bytes_max: u64) -> Storage {
        Storage {
            file,
            end: 0,
            dirty: 0,
            bytes_max,
        }
    }

    /// Writes a part, in the place of an earlier one of the same length if there is one.
    pub fn write(&mut self, bytes: &[u8], former: Option<FilePart>) -> Result<FilePart, String> {
        let len = bytes.len() as u64;
        let offset = match former {
            Some(place) if place.len == len => place.offset,
            _ => self.end,
        };
        let end = offset.saturating_add(len);
        if end > self.bytes_max {
            return Err(format!(
                "its state exceeds {} bytes (raise 'executors.suspended_bytes')",
                self.bytes_max
            ));
        }
        self.file
            .write_all_at(bytes, offset)
            .map_err(|e| full(&e))?;
        self.end = self.end.max(end);
        self.dirty += len;
        Ok(FilePart {
            offset,
            len,
            checksum: crc32fast::hash(bytes),
        })
    }

    /// Waits for the disk, once enough has been written.
    pub fn write_back(&mut self) -> Result<(), String> {
        if self.dirty < WRITE_BACK_BYTES {
            return Ok(());
        }
        self.dirty = 0;
        self.file.sync_data().map_err(|e| full(&e))
    }

    /// Waits until everything is on the disk, which may be full only now.
    pub fn sync(&self) -> Result<(), String> {
        self.file.sync_all().map_err(|e| full(&e))
    }

    /// Reads a part and checks it.
    pub fn read(&self, place: FilePart, bytes: &mut [u8]) -> Result<(), String> {
        let read = self.file.read_exact_at(bytes, place.offset);
        read.map_err(|e| format!("its state cannot be read: {e}"))?;
        if crc32fast::hash(bytes) != place.checksum {
            let at = place.offset;
            return Err(format!("its state on the disk is damaged at byte {at}"));
        }
        Ok(())
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.end
    }
}

fn full(error: &io::Error) -> String {
    format!("its state cannot be written to the disk: {error} (free space in the state directory)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storage(bytes_max: u64) -> Storage {
        Storage::new(tempfile::tempfile().unwrap(), bytes_max)
    }

    #[test]
    fn a_part_that_is_written_again_takes_no_more_room() {
        let mut storage = storage(100);
        let first = storage.write(b"abcd", None).unwrap();
        let second = storage.write(b"12", None).unwrap();
        let again = storage.write(b"efgh", Some(first)).unwrap();
        assert_eq!(storage.bytes(), 6);
        let mut bytes = [0; 4];
        storage.read(again, &mut bytes).unwrap();
        assert_eq!(&bytes, b"efgh");
        assert!(storage.read(first, &mut bytes).is_err());
        storage.read(second, &mut bytes[..2]).unwrap();
        assert_eq!(&bytes[..2], b"12");
    }

    #[test]
    fn a_file_has_a_limit() {
        let mut storage = storage(5);
        storage.write(b"abcd", None).unwrap();
        let error = storage.write(b"ef", None).unwrap_err();
        assert!(error.contains("executors.suspended_bytes"), "{error}");
        storage.write(b"g", None).unwrap();
    }

    #[test]
    fn a_damaged_part_is_refused() {
        let mut storage = storage(100);
        let place = storage.write(b"abcd", None).unwrap();
        storage.file.write_all_at(b"x", 2).unwrap();
        let error = storage.read(place, &mut [0; 4]).unwrap_err();
        assert!(error.contains("damaged"), "{error}");
    }
}
