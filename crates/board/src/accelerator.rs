//! Images of accelerators: what `baltra accelerator build` makes of a program's source, and what
//! `CL_PROGRAM_BINARIES` returns on an emulated accelerator.
//!
//! | bytes | content |
//! |---|---|
//! | 0 to 3 | `BLAC` |
//! | 4 to 7 | version of the format |
//! | 8 to 39 | SHA-256 of everything from byte 40 on |
//! | from 40 | manifest: length, JSON |
//! | | number of SystemVerilog files; for each: length of its name, name, length, text |
//! | | simulation library: length, bytes |
//!
//! Numbers are little-endian and have 32 bits; nothing follows the library. [`manifest`] defines the
//! manifest.
//!
//! The library is native code: the checksum protects against damage, not against an author. A
//! process that loads it is confined like one that runs a vendor's driver.

pub mod manifest;
pub mod object;

use sha2::{Digest, Sha256};

/// Maximum size of an image, and of its library.
pub const BYTES_MAX: usize = 256 << 20;

/// Bytes of a pipe in memory before its first packet. The first two words are the numbers of its
/// packets and of a packet's bytes (`crates/hls/opencl/baltra_pipes.h`).
pub const PIPE_HEADER_BYTES: u64 = 384;

const MAGIC: &[u8; 4] = b"BLAC";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 40;
const MANIFEST_BYTES_MAX: usize = 4 << 20;
const FILES_MAX: usize = 4096;
const NAME_BYTES_MAX: usize = 255;

/// Reasons for which an image is refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The magic number is missing.
    #[error("not an image of an accelerator (it does not begin with 'BLAC')")]
    Foreign,
    /// The magic number of an object is missing.
    #[error("not an object (it does not begin with 'BLOB')")]
    NoObject,
    /// The format's version is not supported.
    #[error("the image has version {0} of the format, supported is {VERSION}: build it again")]
    Version(u32),
    /// The image is shorter than one of its lengths requires.
    #[error("the image is truncated: {part} ends at byte {end}, the image has {have} bytes")]
    Short {
        /// The incomplete part.
        part: &'static str,
        /// The end of that part.
        end: usize,
        /// Bytes present.
        have: usize,
    },
    /// The checksum does not match.
    #[error("the image is damaged (checksum mismatch)")]
    Damaged,
    /// A length exceeds its limit.
    #[error("the image's {part} has length {have}, at most {most} is supported")]
    Long {
        /// The part.
        part: &'static str,
        /// Length of the part.
        have: usize,
        /// The limit.
        most: usize,
    },
    /// Text is not UTF-8.
    #[error("the image's {0} is not valid UTF-8")]
    Text(&'static str),
    /// A file's name leads out of its directory, or is empty.
    #[error("the image has a file with the invalid name '{0}' (expected a plain file name)")]
    Name(String),
    /// Bytes follow the last part.
    #[error("the image has {0} bytes after its last part")]
    Rest(usize),
}

/// An image's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The kernels ([`manifest::Manifest`] as JSON).
    pub manifest: String,
    /// SystemVerilog: file name and text.
    pub files: Vec<(String, String)>,
    /// The simulation library (ELF).
    pub library: Vec<u8>,
}

impl Image {
    /// Reads an image; every length and the checksum are checked.
    pub fn parse(file: &[u8]) -> Result<Image, Error> {
        let short = |part, end| Error::Short {
            part,
            end,
            have: file.len(),
        };
        match file.get(..MAGIC.len()) {
            Some(magic) if magic == MAGIC => {}
            _ => return Err(Error::Foreign),
        }
        if file.len() < HEADER_BYTES {
            return Err(short("the header", HEADER_BYTES));
        }
        let version = u32::from_le_bytes(file[4..8].try_into().expect("four bytes"));
        if version != VERSION {
            return Err(Error::Version(version));
        }
        // Lengths first: they name the part at which a truncated image ends.
        let mut reader = Reader {
            file,
            at: HEADER_BYTES,
        };
        let manifest = reader.text("manifest", MANIFEST_BYTES_MAX)?;
        let count = reader.number("number of files")?;
        check_length("number of files", count, FILES_MAX)?;
        let mut files = Vec::new();
        for _ in 0..count {
            let name = reader.text("file name", NAME_BYTES_MAX)?;
            if !is_file_name(&name) {
                return Err(Error::Name(name));
            }
            files.push((name, reader.text("file", BYTES_MAX)?));
        }
        let library = reader.bytes("library", BYTES_MAX)?.to_vec();
        if reader.at != file.len() {
            return Err(Error::Rest(file.len() - reader.at));
        }
        if Sha256::digest(&file[HEADER_BYTES..])[..] != file[8..HEADER_BYTES] {
            return Err(Error::Damaged);
        }
        Ok(Image {
            manifest,
            files,
            library,
        })
    }

    /// The image as a file, which [`Image::parse`] accepts while its parts are within the limits.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let number = |body: &mut Vec<u8>, n: usize| body.extend((n as u32).to_le_bytes());
        let part = |body: &mut Vec<u8>, bytes: &[u8]| {
            number(body, bytes.len());
            body.extend(bytes);
        };
        part(&mut body, self.manifest.as_bytes());
        number(&mut body, self.files.len());
        for (name, text) in &self.files {
            part(&mut body, name.as_bytes());
            part(&mut body, text.as_bytes());
        }
        part(&mut body, &self.library);
        let mut file = MAGIC.to_vec();
        file.extend(VERSION.to_le_bytes());
        file.extend(Sha256::digest(&body));
        file.extend(body);
        file
    }
}

fn is_file_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\0'])
}

fn check_length(part: &'static str, have: usize, most: usize) -> Result<(), Error> {
    if have > most {
        Err(Error::Long { part, have, most })
    } else {
        Ok(())
    }
}

struct Reader<'a> {
    file: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, part: &'static str, len: usize) -> Result<&'a [u8], Error> {
        let end = self.at.saturating_add(len);
        let taken = self.file.get(self.at..end).ok_or(Error::Short {
            part,
            end,
            have: self.file.len(),
        })?;
        self.at = end;
        Ok(taken)
    }

    fn number(&mut self, part: &'static str) -> Result<usize, Error> {
        let bytes = self.take(part, 4)?;
        Ok(u32::from_le_bytes(bytes.try_into().expect("four bytes")) as usize)
    }

    fn bytes(&mut self, part: &'static str, most: usize) -> Result<&'a [u8], Error> {
        let len = self.number(part)?;
        check_length(part, len, most)?;
        self.take(part, len)
    }

    fn text(&mut self, part: &'static str, most: usize) -> Result<String, Error> {
        let bytes = self.bytes(part, most)?;
        let text = std::str::from_utf8(bytes).map_err(|_| Error::Text(part))?;
        Ok(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> Image {
        Image {
            manifest: "{\"kernels\":[]}".into(),
            files: vec![
                ("kernel_a.sv".into(), "module kernel_a;\nendmodule\n".into()),
                ("empty.sv".into(), String::new()),
            ],
            library: vec![0x7F, b'E', b'L', b'F', 0, 255],
        }
    }

    #[test]
    fn an_image_is_read_as_written() {
        assert_eq!(Image::parse(&image().to_bytes()), Ok(image()));
    }

    #[test]
    fn any_damage_is_detected() {
        let file = image().to_bytes();
        for at in 0..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= 0x10;
            assert!(Image::parse(&damaged).is_err(), "byte {at}");
        }
        for length in 0..file.len() {
            assert!(Image::parse(&file[..length]).is_err(), "{length} bytes");
        }
        let longer = [&file[..], b"x"].concat();
        assert_eq!(Image::parse(&longer), Err(Error::Rest(1)));
    }

    #[test]
    fn a_refusal_names_its_reason() {
        let file = image().to_bytes();
        assert_eq!(Image::parse(b"BLRG"), Err(Error::Foreign));
        let mut newer = file.clone();
        newer[4] = 9;
        assert_eq!(Image::parse(&newer), Err(Error::Version(9)));
        let mut damaged = file.clone();
        *damaged.last_mut().unwrap() ^= 1;
        assert_eq!(Image::parse(&damaged), Err(Error::Damaged));
        let error = Image::parse(&file[..file.len() - 1]).unwrap_err();
        assert!(
            matches!(
                error,
                Error::Short {
                    part: "library",
                    ..
                }
            ),
            "{error}"
        );
        let mut huge = file;
        huge[40..44].copy_from_slice(&u32::MAX.to_le_bytes());
        let error = Image::parse(&huge).unwrap_err();
        assert!(
            matches!(
                error,
                Error::Long {
                    part: "manifest",
                    ..
                }
            ),
            "{error}"
        );
    }

    #[test]
    fn file_names_stay_in_their_directory() {
        for name in ["../x", "/etc/passwd", "", ".."] {
            let mut image = image();
            image.files[0].0 = name.into();
            let error = Image::parse(&image.to_bytes());
            assert_eq!(error, Err(Error::Name(name.into())));
        }
    }
}
