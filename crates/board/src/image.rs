//! Images of regions: a partial bitstream with a header, and behind it the description of its
//! kernel (format: `hdl/functions/README.md`).

use crate::is_plain;

/// Images lie at multiples of it, and are as long.
pub const ALIGNMENT: usize = 256;
/// Characters of a function's or kernel's name, and of a scalar's.
pub const NAME_MAX: usize = 15;
/// As [`NAME_MAX`].
pub const SCALAR_MAX: usize = 8;
/// Scalars of a kernel.
pub const SCALARS: usize = 4;
/// Maximum size; a region needs less configuration data.
pub const BYTES_MAX: usize = 64 << 20;

const MAGIC: &[u8; 4] = b"BLRG";
const DESCRIPTION_MAGIC: &[u8; 4] = b"BLRN";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 32;
const DESCRIPTION_BYTES: usize = 68;
const ANY_REGION: u32 = u32::MAX;

/// Reasons for which an image is invalid or unsuitable for this board.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The magic number is missing.
    #[error("not an image of a region (it does not begin with 'BLRG')")]
    Foreign,
    /// The format's version is not supported.
    #[error("the image has version {0} of the format, supported is {VERSION}")]
    Version(u32),
    /// The image is truncated.
    #[error("the image is truncated: it has {have} of {want} bytes")]
    Short {
        /// Bytes present.
        have: usize,
        /// Bytes according to the header.
        want: usize,
    },
    /// A checksum does not match.
    #[error("the image's {0} is damaged (checksum mismatch)")]
    Damaged(&'static str),
    /// The body's length is invalid: zero, not a multiple of four, or too large.
    #[error("the image's body has {0} bytes: it must be a multiple of 4 from 4 to {BYTES_MAX}")]
    Length(u32),
    /// A name is invalid.
    #[error("the image's description has an invalid name (expected letters, digits, '-' and '_')")]
    Name,
    /// The image is for another shell.
    #[error("the image is for shell {image:#x}, but this board has shell {board:#x}")]
    Shell {
        /// The image's.
        image: u32,
        /// The board's.
        board: u32,
    },
    /// The image is for a region that the board lacks.
    #[error("the image is for region {image}, but this board has {board} regions")]
    Region {
        /// The image's.
        image: u32,
        /// Number of regions of the board.
        board: u32,
    },
}

/// Name and parameters of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// The kernel's name.
    pub name: String,
    /// The names of its scalars.
    pub scalars: Vec<String>,
    /// Cycles that a call may take; 0: any number.
    pub timeout: u32,
    /// log2 of the cycles that it takes for eight bytes.
    pub speed: u32,
}

/// A whole image, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image<'a> {
    /// The bytes to load into board memory.
    pub bytes: &'a [u8],
    /// The shell that the image is for.
    pub shell: u32,
    /// The region that the image is for; none: any.
    pub region: Option<u32>,
    /// The checksum of its header, by which a board reports the image that a region holds.
    pub checksum: u32,
    /// Description of its kernel, if present.
    pub description: Option<Description>,
}

impl<'a> Image<'a> {
    /// Checks everything that can be checked without a board. The body is opaque: only the region
    /// interprets it.
    pub fn parse(file: &'a [u8]) -> Result<Image<'a>, Error> {
        if !file.starts_with(MAGIC) {
            return Err(Error::Foreign);
        }
        let short = |want| Error::Short {
            have: file.len(),
            want,
        };
        if file.len() < HEADER_BYTES {
            return Err(short(HEADER_BYTES));
        }
        if word(file, 4) != VERSION {
            return Err(Error::Version(word(file, 4)));
        }
        if crc32fast::hash(&file[..28]) != word(file, 28) {
            return Err(Error::Damaged("header"));
        }
        let length = word(file, 16);
        if length == 0 || !length.is_multiple_of(4) || length as usize > BYTES_MAX {
            return Err(Error::Length(length));
        }
        let whole = (HEADER_BYTES + length as usize).next_multiple_of(ALIGNMENT);
        if file.len() < whole {
            return Err(short(whole));
        }
        if crc32fast::hash(&file[HEADER_BYTES..HEADER_BYTES + length as usize]) != word(file, 20) {
            return Err(Error::Damaged("body"));
        }
        let region = word(file, 12);
        Ok(Image {
            bytes: &file[..whole],
            shell: word(file, 8),
            region: (region != ANY_REGION).then_some(region),
            checksum: word(file, 28),
            description: describe(&file[whole..])?,
        })
    }

    /// Checks that the image suits a board.
    pub fn suits(&self, shell: u32, regions: u32) -> Result<(), Error> {
        if self.shell != shell {
            return Err(Error::Shell {
                image: self.shell,
                board: shell,
            });
        }
        match self.region {
            Some(image) if image >= regions => Err(Error::Region {
                image,
                board: regions,
            }),
            _ => Ok(()),
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Reads the description behind an image, if present.
fn describe(rest: &[u8]) -> Result<Option<Description>, Error> {
    if rest.len() < DESCRIPTION_BYTES || !rest.starts_with(DESCRIPTION_MAGIC) {
        return Ok(None);
    }
    if word(rest, 4) != VERSION {
        return Err(Error::Version(word(rest, 4)));
    }
    if crc32fast::hash(&rest[..64]) != word(rest, 64) {
        return Err(Error::Damaged("description"));
    }
    let name = text(&rest[8..24]).filter(|name| is_plain(name, NAME_MAX));
    let scalars = (0..SCALARS).map(|i| text(&rest[24 + 8 * i..32 + 8 * i]).ok_or(Error::Name));
    let scalars: Vec<String> = scalars.collect::<Result<_, _>>()?;
    let count = scalars.iter().take_while(|name| !name.is_empty()).count();
    let (named, others) = scalars.split_at(count);
    if named.iter().any(|name| !is_plain(name, SCALAR_MAX)) || others.iter().any(|n| !n.is_empty())
    {
        return Err(Error::Name);
    }
    Ok(Some(Description {
        name: name.ok_or(Error::Name)?,
        scalars: named.to_vec(),
        timeout: word(rest, 56),
        speed: word(rest, 60),
    }))
}

/// Text padded with zeros.
fn text(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    let rest_is_zero = bytes[end..].iter().all(|b| *b == 0);
    let text = std::str::from_utf8(&bytes[..end]).ok()?;
    rest_is_zero.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(body: &[u8], shell: u32, region: u32, described: bool) -> Vec<u8> {
        let mut file = MAGIC.to_vec();
        let crc = crc32fast::hash(body);
        for word in [VERSION, shell, region, body.len() as u32, crc, 3] {
            file.extend(word.to_le_bytes());
        }
        file.extend(crc32fast::hash(&file).to_le_bytes());
        file.extend(body);
        file.resize(file.len().next_multiple_of(ALIGNMENT), 0);
        if described {
            let mut more = DESCRIPTION_MAGIC.to_vec();
            more.extend(VERSION.to_le_bytes());
            more.extend(b"sobel\0\0\0\0\0\0\0\0\0\0\0width\0\0\0");
            more.resize(56, 0);
            more.extend(9u32.to_le_bytes());
            more.extend(2u32.to_le_bytes());
            more.extend(crc32fast::hash(&more).to_le_bytes());
            more.resize(ALIGNMENT, 0);
            file.extend(more);
        }
        file
    }

    #[test]
    fn an_image_and_its_description_are_read() {
        let file = image(&[7; 1000], 1, ANY_REGION, true);
        let read = Image::parse(&file).unwrap();
        assert_eq!(read.bytes.len(), 1280);
        assert_eq!((read.shell, read.region), (1, None));
        assert_eq!(read.checksum, crc32fast::hash(&file[..28]));
        let description = read.description.as_ref().unwrap();
        assert_eq!(description.name, "sobel");
        assert_eq!(description.scalars, ["width"]);
        assert_eq!((description.timeout, description.speed), (9, 2));
        let plain = image(&[7; 1000], 1, 2, false);
        let read = Image::parse(&plain).unwrap();
        assert_eq!((read.region, read.description.as_ref()), (Some(2), None));
        assert!(read.suits(1, 3).is_ok());
        assert!(matches!(read.suits(1, 2), Err(Error::Region { .. })));
        assert!(matches!(read.suits(2, 4), Err(Error::Shell { .. })));
    }

    #[test]
    fn any_damage_is_seen() {
        let file = image(&[1, 2, 3, 4, 5, 6, 7, 8], 1, ANY_REGION, true);
        // Only the padding between body and description is not covered by a check.
        for at in (0..40).chain(256..324) {
            let mut damaged = file.clone();
            damaged[at] ^= 0x10;
            let read = Image::parse(&damaged);
            let unnoticed = read.as_ref().is_ok_and(|i| i.description.is_some());
            assert!(!unnoticed, "byte {at}: {read:?}");
        }
        for length in 0..256 {
            assert!(Image::parse(&file[..length]).is_err(), "{length} bytes");
        }
    }
}
