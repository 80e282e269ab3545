//! NumPy's file format, versions 1 to 3 (numpy/lib/format.py): little endian, C order.

use crate::types::Type;

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// Most bytes of a header, including the magic and version.
pub(crate) const HEADER_MAX: u64 = 64 << 10;
const DIMENSIONS_MAX: usize = 32;

/// The header of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub kind: Type,
    pub shape: Vec<u64>,
    /// Offset of the elements.
    pub data: usize,
}

impl Header {
    /// Bytes of the elements.
    pub fn bytes(&self) -> Option<u64> {
        self.shape
            .iter()
            .try_fold(self.kind.size(), |bytes, size| bytes.checked_mul(*size))
    }
}

/// Parses the header at the start of a file.
pub(crate) fn header(file: &[u8]) -> Result<Header, String> {
    let rest = file.strip_prefix(MAGIC).ok_or("not a NumPy file")?;
    let (length, begin) = match rest {
        [1, _, a, b, ..] => (usize::from(u16::from_le_bytes([*a, *b])), 10),
        [2 | 3, _, a, b, c, d, ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, 12),
        [version, ..] if *version > 3 => return Err(format!("unsupported version {version}")),
        _ => return Err("the header is truncated".into()),
    };
    if length as u64 > HEADER_MAX - begin as u64 {
        return Err(format!("the header is too long ({length} bytes)"));
    }
    let text = file
        .get(begin..begin + length)
        .ok_or("the header is truncated")?;
    let text = std::str::from_utf8(text).map_err(|_| "the header is not text")?;
    let mut dictionary = Dictionary { rest: text };
    let (kind, shape) = dictionary
        .read()
        .ok_or_else(|| format!("malformed header: {}", text.trim_end()))??;
    Ok(Header {
        kind,
        shape,
        data: begin + length,
    })
}

/// Makes a version 1 header, padded so that the elements begin at a multiple of 64.
pub(crate) fn write_header(kind: Type, shape: &[u64]) -> Vec<u8> {
    let class = match kind {
        Type::F32 | Type::F64 => 'f',
        Type::U8 | Type::U16 | Type::U32 | Type::U64 => 'u',
        _ => 'i',
    };
    let order = if kind.size() == 1 { '|' } else { '<' };
    let sizes: String = shape.iter().map(|size| format!("{size},")).collect();
    let sizes = if shape.len() > 1 {
        sizes.trim_end_matches(',')
    } else {
        &sizes
    };
    let text = format!(
        "{{'descr': '{order}{class}{}', 'fortran_order': False, 'shape': ({sizes}), }}",
        kind.size()
    );
    let length = (10 + text.len() + 1).next_multiple_of(64) - 10;
    let mut header = Vec::with_capacity(10 + length);
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&[1, 0]);
    header.extend_from_slice(&(length as u16).to_le_bytes());
    header.extend_from_slice(text.as_bytes());
    header.resize(10 + length - 1, b' ');
    header.push(b'\n');
    header
}

/// Parser of the subset of Python's literals that headers use.
struct Dictionary<'a> {
    rest: &'a str,
}

type Content = Result<(Type, Vec<u64>), String>;

impl<'a> Dictionary<'a> {
    fn read(&mut self) -> Option<Content> {
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        self.take("{")?;
        while self.take("}").is_none() {
            let key = self.string()?;
            self.take(":")?;
            let fresh = match key {
                "descr" => descr.replace(self.string()?).is_none(),
                "fortran_order" => {
                    let value = self
                        .take("True")
                        .map(|()| true)
                        .or_else(|| self.take("False").map(|()| false))?;
                    fortran.replace(value).is_none()
                }
                "shape" => shape.replace(self.tuple()?).is_none(),
                _ => false,
            };
            if !fresh {
                return None;
            }
            if self.take(",").is_none() {
                self.take("}")?;
                break;
            }
        }
        if !self.rest.trim().is_empty() {
            return None;
        }
        let (descr, fortran, shape) = (descr?, fortran?, shape?);
        if fortran && shape.len() > 1 {
            return Some(Err(
                "the array is in Fortran order: save numpy.ascontiguousarray(a)".into(),
            ));
        }
        Some(kind(descr).map(|kind| (kind, shape)))
    }

    fn skip(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n']);
    }

    fn take(&mut self, token: &str) -> Option<()> {
        self.skip();
        self.rest = self.rest.strip_prefix(token)?;
        Some(())
    }

    fn string(&mut self) -> Option<&'a str> {
        self.skip();
        let quote = self
            .rest
            .chars()
            .next()
            .filter(|c| matches!(c, '\'' | '"'))?;
        let (text, rest) = self.rest[1..].split_once(quote)?;
        self.rest = rest;
        (!text.contains('\\')).then_some(text)
    }

    fn tuple(&mut self) -> Option<Vec<u64>> {
        let mut sizes = Vec::new();
        self.take("(")?;
        while self.take(")").is_none() {
            self.skip();
            let end = self.rest.find(|c: char| !c.is_ascii_digit())?;
            sizes.push(self.rest[..end].parse().ok()?);
            self.rest = self.rest[end..]
                .strip_prefix('L')
                .unwrap_or(&self.rest[end..]);
            if sizes.len() > DIMENSIONS_MAX {
                return None;
            }
            if self.take(",").is_none() {
                self.take(")")?;
                break;
            }
        }
        Some(sizes)
    }
}

fn kind(descr: &str) -> Result<Type, String> {
    let wide = |kind: Type| kind.size() > 1;
    let known = match descr.trim_start_matches(['<', '|', '=']) {
        "u1" => Type::U8,
        "i1" => Type::I8,
        "u2" => Type::U16,
        "i2" => Type::I16,
        "u4" => Type::U32,
        "i4" => Type::I32,
        "u8" => Type::U64,
        "i8" => Type::I64,
        "f4" => Type::F32,
        "f8" => Type::F64,
        _ if descr.starts_with('>') => {
            return Err(format!(
                "'{descr}' is big endian: save a.astype('<{}')",
                &descr[1..]
            ))
        }
        _ => return Err(format!("unsupported element type '{descr}'")),
    };
    match descr.as_bytes()[0] {
        b'|' if wide(known) => Err(format!("unsupported element type '{descr}'")),
        _ => Ok(known),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(version: u8, text: &str) -> Vec<u8> {
        let mut file = MAGIC.to_vec();
        file.extend_from_slice(&[version, 0]);
        match version {
            1 => file.extend_from_slice(&(text.len() as u16).to_le_bytes()),
            _ => file.extend_from_slice(&(text.len() as u32).to_le_bytes()),
        }
        file.extend_from_slice(text.as_bytes());
        file
    }

    #[test]
    fn headers_as_numpy_writes_them_are_read() {
        let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }          \n";
        for version in 1..=3 {
            let header = header(&file(version, text)).unwrap();
            assert_eq!(
                (header.kind, header.shape.as_slice()),
                (Type::F32, &[3, 4][..])
            );
            assert_eq!(header.data, text.len() + if version == 1 { 10 } else { 12 });
        }
        let scalar = header(&file(
            1,
            "{'descr': '|u1', 'fortran_order': False, 'shape': ()}",
        ))
        .unwrap();
        assert_eq!((scalar.kind, scalar.shape.len()), (Type::U8, 0));
        let vector = header(&file(
            1,
            "{'shape': (5,), 'fortran_order': True, 'descr': \"<i8\"}",
        ))
        .unwrap();
        assert_eq!((vector.kind, vector.shape), (Type::I64, vec![5]));
    }

    #[test]
    fn what_is_not_ours_is_refused_with_a_reason() {
        for (text, part) in [
            (
                "{'descr': '>f4', 'fortran_order': False, 'shape': (3,)}",
                "big endian",
            ),
            (
                "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 4)}",
                "Fortran",
            ),
            (
                "{'descr': '<c8', 'fortran_order': False, 'shape': (3,)}",
                "'<c8'",
            ),
            (
                "{'descr': '|u4', 'fortran_order': False, 'shape': (3,)}",
                "'|u4'",
            ),
            ("{'descr': '<f4', 'shape': (3,)}", "malformed header"),
            (
                "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,)}",
                "malformed header",
            ),
            (
                "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,)}",
                "malformed header",
            ),
            (
                "{'descr': '', 'fortran_order': False, 'shape': (3,)}",
                "unsupported",
            ),
            (
                "{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}",
                "malformed header",
            ),
            (
                "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
                "malformed header",
            ),
            ("", "malformed header"),
        ] {
            let error = header(&file(1, text)).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(header(b"PK").unwrap_err().contains("not a NumPy file"));
        assert!(header(b"\x93NUMPY\x01\x00\xff")
            .unwrap_err()
            .contains("truncated"));
        assert!(header(&file(4, "")).unwrap_err().contains("version 4"));
        assert!(header(b"\x93NUMPY\x02\x00\xff\xff\xff\xff")
            .unwrap_err()
            .contains("too long"));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(index in 0usize..10, shape in prop::collection::vec(0u64..1000, 0..6)) {
            let bytes = write_header(Type::ALL[index], &shape);
            prop_assert_eq!(bytes.len() % 64, 0);
            let read = header(&bytes).unwrap();
            prop_assert_eq!(read, Header { kind: Type::ALL[index], shape, data: bytes.len() });
        }

        #[test]
        fn no_bytes_panic(version in 0u8..5, text in "[{}()',:0-9a-zA-Z<>|'\" _\\\\]{0,120}", cut in 0usize..140) {
            let mut file = file(version, &text);
            file.truncate(cut);
            if let Ok(header) = header(&file) {
                let _ = header.bytes();
            }
        }

        #[test]
        fn no_changed_header_panics(at in 0usize..80, byte in any::<u8>()) {
            let mut file = write_header(Type::F32, &[3, 4]);
            file[at] = byte;
            let _ = header(&file);
        }
    }
}
