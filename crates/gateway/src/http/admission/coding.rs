//! `Content-Encoding` of requests' bodies: `gzip`, `deflate` and `zstd` are decoded; others are
//! rejected with 415.

use crate::http::admission::body::{Gathered, Payload};
use crate::http::admission::budget::Held;
use crate::http::failure::Failure;
use crate::http::problem::Problem;
use crate::http::task::blocking;
use bytes::{Buf, Bytes};
use flate2::bufread::{MultiGzDecoder, ZlibDecoder};
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use http::HeaderMap;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use std::collections::VecDeque;
use std::io::{self, BufRead, Read};

/// Supported codings, for error messages.
const CODINGS: &str = "gzip, deflate, zstd";
/// The largest window of a zstd frame (RFC 9659, 3).
const ZSTD_WINDOW_MAX: u64 = 8 << 20;
/// Memory of a zstd decoder: twice its window, a block and its tables.
const ZSTD_BYTES: u64 = 2 * ZSTD_WINDOW_MAX + (1 << 20);
/// Decoded bytes per step of accounting.
const BLOCK: usize = 64 << 10;

/// The coding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// Not encoded.
    Identity,
    /// RFC 1952.
    Gzip,
    /// RFC 1950: zlib.
    Deflate,
    /// RFC 8878.
    Zstd,
}

impl Coding {
    /// The coding in the headers; 415 for more than one coding and for unsupported ones.
    pub fn of(headers: &HeaderMap) -> Result<Coding, Problem> {
        let mut values = headers.get_all(CONTENT_ENCODING).iter();
        let Some(value) = values.next() else {
            return Ok(Coding::Identity);
        };
        let name = value.to_str().unwrap_or_default().trim();
        let coding = [
            ("identity", Coding::Identity),
            ("gzip", Coding::Gzip),
            ("x-gzip", Coding::Gzip),
            ("deflate", Coding::Deflate),
            ("zstd", Coding::Zstd),
        ];
        let coding = coding
            .iter()
            .find(|(coding, _)| coding.eq_ignore_ascii_case(name));
        match (coding, values.next()) {
            (Some((_, coding)), None) => Ok(*coding),
            _ => Err(Problem::new(
                Failure::UnsupportedType,
                format!("unsupported content encoding: use one of {CODINGS}"),
            )
            .with(ACCEPT_ENCODING, CODINGS)
            .closing()),
        }
    }

    /// Decodes a body to at most `bytes_max` bytes.
    pub async fn decode(self, payload: Payload, bytes_max: u64) -> Result<Payload, Problem> {
        if self == Coding::Identity {
            return Ok(payload);
        }
        let Payload { frames, mut held } = payload;
        blocking(move || {
            let frames = self.decode_now(frames, bytes_max, &mut held)?;
            Ok(Payload { frames, held })
        })
        .await?
    }

    /// Afterwards, `held` counts the decoded bytes in place of the encoded ones.
    fn decode_now(
        self,
        frames: Vec<Bytes>,
        bytes_max: u64,
        held: &mut Held,
    ) -> Result<Vec<Bytes>, Problem> {
        let encoded = frames.iter().map(|frame| frame.len() as u64).sum();
        let mut source = Frames(frames.into());
        let mut sink = Sink {
            gathered: Gathered::default(),
            bytes_max,
            held,
        };
        match self {
            Coding::Identity => sink.take_all(&mut source)?,
            Coding::Gzip => sink.take_all(&mut MultiGzDecoder::new(&mut source))?,
            Coding::Deflate => sink.take_all(&mut ZlibDecoder::new(&mut source))?,
            Coding::Zstd => {
                sink.held.grow(ZSTD_BYTES)?;
                sink.take_zstd(&mut source)?;
                sink.held.shrink(ZSTD_BYTES);
            }
        }
        if !source.is_empty() {
            return Err(broken("trailing bytes after its end"));
        }
        let frames = sink.gathered.finish();
        held.shrink(encoded);
        Ok(frames)
    }
}

fn broken(why: impl std::fmt::Display) -> Problem {
    Problem::bad_request(format!(
        "the body does not match its content encoding: {why}"
    ))
}

/// Destination of decoded bytes.
struct Sink<'a> {
    gathered: Gathered,
    bytes_max: u64,
    held: &'a mut Held,
}

impl Sink<'_> {
    fn take_all(&mut self, from: &mut impl Read) -> Result<(), Problem> {
        loop {
            let mut block = Vec::new();
            let read = from.by_ref().take(BLOCK as u64).read_to_end(&mut block);
            read.map_err(broken)?;
            if block.is_empty() {
                return Ok(());
            }
            if self.gathered.bytes() + block.len() as u64 > self.bytes_max {
                return Err(Problem::too_large("the decoded body", self.bytes_max));
            }
            self.held.grow(block.len() as u64)?;
            self.gathered.push(block.into());
        }
    }

    /// Decodes consecutive frames; skippable frames are skipped.
    fn take_zstd(&mut self, source: &mut Frames) -> Result<(), Problem> {
        while !source.is_empty() {
            let mut decoder = FrameDecoder::new();
            decoder.set_max_window_size(ZSTD_WINDOW_MAX);
            let begun = StreamingDecoder::new_with_decoder(&mut *source, decoder);
            let mut stream = match begun {
                Ok(stream) => stream,
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    let skipped = io::copy(&mut source.by_ref().take(length), &mut io::sink());
                    match skipped {
                        Ok(bytes) if bytes == length => continue,
                        _ => return Err(broken("it is truncated")),
                    }
                }
                Err(error) => return Err(broken(error)),
            };
            self.take_all(&mut stream)?;
            let decoder = stream.into_frame_decoder();
            let sum = decoder.get_checksum_from_data();
            if sum.is_some() && sum != decoder.get_calculated_checksum() {
                return Err(broken("checksum mismatch"));
            }
        }
        Ok(())
    }
}

/// Consecutive frames; each is dropped after it has been read.
struct Frames(VecDeque<Bytes>);

impl Frames {
    fn is_empty(&self) -> bool {
        self.0.iter().all(Bytes::is_empty)
    }
}

impl Read for Frames {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let from = self.fill_buf()?;
        let length = from.len().min(to.len());
        to[..length].copy_from_slice(&from[..length]);
        self.consume(length);
        Ok(length)
    }
}

// Decoders that read through this type consume no byte beyond their end.
impl BufRead for Frames {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.0.front().is_some_and(Bytes::is_empty) {
            self.0.pop_front();
        }
        Ok(self.0.front().map_or(&[], |frame| &frame[..]))
    }

    fn consume(&mut self, bytes: usize) {
        if let Some(frame) = self.0.front_mut() {
            frame.advance(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::admission::budget::Budget;
    use flate2::write::{GzEncoder, ZlibEncoder};
    use flate2::Compression;
    use http::{HeaderValue, StatusCode};
    use proptest::prelude::*;
    use std::io::Write;

    fn encode(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        match coding {
            Coding::Identity => bytes.to_vec(),
            Coding::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
            Coding::Deflate => {
                let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
            Coding::Zstd => {
                let level = ruzstd::encoding::CompressionLevel::Fastest;
                ruzstd::encoding::compress_to_vec(bytes, level)
            }
        }
    }

    fn decode(coding: Coding, bytes: &[u8], bytes_max: u64) -> Result<Vec<u8>, Problem> {
        let mut options = crate::options::Options::default();
        options.limits.memory_bytes_max = 1 << 30;
        let budget = Budget::new(&options, 1);
        let mut held = Held::new(&budget, None);
        held.grow(bytes.len() as u64).unwrap();
        // Cut at arbitrary places.
        let frames = bytes.chunks(7).map(Bytes::copy_from_slice).collect();
        let frames = coding.decode_now(frames, bytes_max, &mut held)?;
        let decoded = frames.concat();
        assert_eq!(held.bytes(), decoded.len() as u64);
        drop(held);
        assert_eq!(budget.used(), 0);
        Ok(decoded)
    }

    const ALL: [Coding; 3] = [Coding::Gzip, Coding::Deflate, Coding::Zstd];

    #[test]
    fn bodies_are_decoded_up_to_their_limit() {
        let text = b"accelerators, ".repeat(20_000);
        for coding in ALL {
            let encoded = encode(coding, &text);
            let length = text.len() as u64;
            assert_eq!(decode(coding, &encoded, length).unwrap(), text);
            assert_eq!(
                decode(coding, &encoded, length - 1).unwrap_err().status,
                413
            );
            let cut = &encoded[..encoded.len() - 3];
            assert_eq!(
                decode(coding, cut, length).unwrap_err().status,
                400,
                "{coding:?}"
            );
            let longer = [&encoded[..], b"junk"].concat();
            let refused = |bytes: &[u8]| decode(coding, bytes, length).err().map(|p| p.status);
            assert_eq!(
                refused(&longer),
                Some(StatusCode::BAD_REQUEST),
                "{coding:?}"
            );
            assert_eq!(
                refused(b"junk"),
                Some(StatusCode::BAD_REQUEST),
                "{coding:?}"
            );
            assert!(decode(coding, &encode(coding, b""), 0).unwrap().is_empty());
        }
    }

    #[test]
    fn several_members_are_one_body() {
        for coding in [Coding::Gzip, Coding::Zstd] {
            let both = [encode(coding, b"one "), encode(coding, b"two")].concat();
            assert_eq!(decode(coding, &both, 100).unwrap(), b"one two");
        }
        // A skippable frame, and a frame with a window above the limit.
        let skipped = [
            &b"\x50\x2a\x4d\x18\x03\0\0\0abc"[..],
            &encode(Coding::Zstd, b"x"),
        ]
        .concat();
        assert_eq!(decode(Coding::Zstd, &skipped, 100).unwrap(), b"x");
        let wide = b"\x28\xb5\x2f\xfd\x00\xa0\x01\x00\x00";
        assert_eq!(decode(Coding::Zstd, wide, 100).unwrap_err().status, 400);
    }

    #[test]
    fn codings_are_named_by_headers() {
        let of = |values: &[&'static str]| {
            let pairs = values
                .iter()
                .map(|v| (CONTENT_ENCODING, HeaderValue::from_static(v)));
            Coding::of(&HeaderMap::from_iter(pairs))
        };
        assert_eq!(of(&[]).unwrap(), Coding::Identity);
        assert_eq!(of(&["GZip"]).unwrap(), Coding::Gzip);
        assert_eq!(of(&["identity"]).unwrap(), Coding::Identity);
        for wrong in [&["br"][..], &["gzip, gzip"], &["gzip", "deflate"], &[""]] {
            assert_eq!(of(wrong).unwrap_err().status, 415, "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..400),
            at in 0usize..400,
            flipped in any::<u8>(),
        ) {
            for coding in ALL {
                let _ = decode(coding, &bytes, 10_000);
                let mut encoded = encode(coding, &bytes);
                let at = at % encoded.len();
                encoded[at] ^= flipped;
                let _ = decode(coding, &encoded, 10_000);
            }
        }
    }
}
