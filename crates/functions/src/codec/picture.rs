//! Converts PNG and JPEG to arrays of height, width and channels, and back.

use crate::error::BindError;
use crate::manifest::Codec;
use crate::types::Type;
use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngEncoder;
use image::error::ImageError;
use image::{
    DynamicImage, ExtendedColorType, ImageDecoder, ImageEncoder, ImageFormat, ImageReader, Limits,
};
use std::io::Cursor;

/// Most pixels along a side.
const SIDE_MAX: u32 = 65_535;
const JPEG_QUALITY: u8 = 90;

/// Decodes a picture to `kind` (u8 or u16) with the shape's channels: 1 gray, 2 gray and alpha, 3
/// colors, 4 colors and alpha; `None`: one, without a dimension for it. Pictures of more than
/// `limit` bytes are rejected after their header.
pub(crate) fn decode(
    codec: Codec,
    bytes: &[u8],
    kind: Type,
    channels: Option<i128>,
    limit: u64,
) -> Result<(Vec<u64>, Vec<u8>), BindError> {
    let format = if codec == Codec::Png {
        ImageFormat::Png
    } else {
        ImageFormat::Jpeg
    };
    let wrong = |error: ImageError| match error {
        ImageError::Limits(_) => BindError::TooLarge(format!(
            "the picture takes more than {limit} bytes: {error}"
        )),
        error => BindError::Unprocessable(format!("cannot decode the picture: {error}")),
    };
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    let mut limits = Limits::default();
    limits.max_image_width = Some(SIDE_MAX);
    limits.max_image_height = Some(SIDE_MAX);
    // The decoder's memory in addition to the pixels: rows, tables, the file's own chunks.
    limits.max_alloc = Some(limit.saturating_mul(2).saturating_add(1 << 20));
    reader.limits(limits);
    let decoder = reader.into_decoder().map_err(wrong)?;
    let (width, height) = decoder.dimensions();
    let wanted = u64::from(width) * u64::from(height) * channels.unwrap_or(1) as u64 * kind.size();
    if decoder.total_bytes().max(wanted) > limit {
        let reason =
            format!("the picture of {width} × {height} pixels takes more than {limit} bytes");
        return Err(BindError::TooLarge(reason));
    }
    let picture = DynamicImage::from_decoder(decoder).map_err(wrong)?;
    let words = |words: Vec<u16>| words.into_iter().flat_map(u16::to_le_bytes).collect();
    let pixels = match (kind, channels.unwrap_or(1)) {
        (Type::U8, 1) => picture.into_luma8().into_raw(),
        (Type::U8, 2) => picture.into_luma_alpha8().into_raw(),
        (Type::U8, 3) => picture.into_rgb8().into_raw(),
        (Type::U8, _) => picture.into_rgba8().into_raw(),
        (_, 1) => words(picture.into_luma16().into_raw()),
        (_, 2) => words(picture.into_luma_alpha16().into_raw()),
        (_, 3) => words(picture.into_rgb16().into_raw()),
        (_, _) => words(picture.into_rgba16().into_raw()),
    };
    let mut shape = vec![height.into(), width.into()];
    shape.extend(channels.map(|channels| channels as u64));
    Ok((shape, pixels))
}

/// Bytes of a picture's pixels, from its header; 0 if the header cannot be read.
pub(crate) fn pixel_bytes(codec: Codec, bytes: &[u8]) -> u64 {
    let format = match codec {
        Codec::Png => ImageFormat::Png,
        _ => ImageFormat::Jpeg,
    };
    let reader = ImageReader::with_format(Cursor::new(bytes), format);
    // The largest conversion: four channels of two bytes.
    let pixels = reader
        .into_dimensions()
        .map(|(width, height)| u64::from(width) * u64::from(height));
    pixels.unwrap_or(0).saturating_mul(8)
}

/// Encodes an array of height, width and optionally channels.
pub(crate) fn encode(
    codec: Codec,
    kind: Type,
    shape: &[u64],
    bytes: &[u8],
) -> Result<Vec<u8>, BindError> {
    let wrong = |reason: String| {
        BindError::Unprocessable(format!("cannot encode the output as a picture: {reason}"))
    };
    let [height, width, channels @ ..] = shape else {
        return Err(wrong("it has fewer than two dimensions".into()));
    };
    let side = |size: &u64| {
        u32::try_from(*size)
            .ok()
            .filter(|size| (1..=SIDE_MAX).contains(size))
    };
    let (Some(width), Some(height)) = (side(width), side(height)) else {
        return Err(wrong(format!("it has {width} × {height} pixels")));
    };
    let color = match (kind, channels.first().unwrap_or(&1)) {
        (Type::U8, 1) => ExtendedColorType::L8,
        (Type::U8, 2) => ExtendedColorType::La8,
        (Type::U8, 3) => ExtendedColorType::Rgb8,
        (Type::U8, 4) => ExtendedColorType::Rgba8,
        (Type::U16, 1) => ExtendedColorType::L16,
        (Type::U16, 2) => ExtendedColorType::La16,
        (Type::U16, 3) => ExtendedColorType::Rgb16,
        (Type::U16, 4) => ExtendedColorType::Rgba16,
        (kind, channels) => return Err(wrong(format!("it has {channels} channels of {kind}"))),
    };
    let mut out = Vec::new();
    let written = match codec {
        Codec::Png => PngEncoder::new(&mut out).write_image(bytes, width, height, color),
        _ => JpegEncoder::new_with_quality(&mut out, JPEG_QUALITY)
            .write_image(bytes, width, height, color),
    };
    written
        .map(|()| out)
        .map_err(|error| wrong(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_picture_comes_back_from_png_in_every_form() {
        for (kind, channels) in [
            (Type::U8, 1),
            (Type::U8, 2),
            (Type::U8, 3),
            (Type::U8, 4),
            (Type::U16, 1),
            (Type::U16, 3),
        ] {
            let shape = [3, 5, channels];
            let pixels: Vec<u8> = (0..15 * channels * kind.size())
                .map(|i| (i * 37 % 251) as u8)
                .collect();
            let file = encode(Codec::Png, kind, &shape, &pixels).unwrap();
            let (read, back) =
                decode(Codec::Png, &file, kind, Some(channels.into()), 1 << 20).unwrap();
            assert_eq!(
                (read.as_slice(), back),
                (&shape[..], pixels),
                "{kind} {channels}"
            );
        }
    }

    #[test]
    fn channels_become_what_the_shape_wants() {
        let grey = encode(Codec::Png, Type::U8, &[1, 2], &[10, 200]).unwrap();
        let (shape, pixels) = decode(Codec::Png, &grey, Type::U8, Some(4), 100).unwrap();
        assert_eq!(
            (shape, pixels),
            (vec![1, 2, 4], vec![10, 10, 10, 255, 200, 200, 200, 255])
        );
        let color = encode(Codec::Png, Type::U8, &[1, 1, 3], &[50, 50, 50]).unwrap();
        assert_eq!(
            decode(Codec::Png, &color, Type::U8, None, 100).unwrap(),
            (vec![1, 1], vec![50])
        );
    }

    #[test]
    fn a_jpeg_is_nearly_what_it_was() {
        let pixels = vec![120; 16 * 16];
        let file = encode(Codec::Jpeg, Type::U8, &[16, 16], &pixels).unwrap();
        let (shape, back) = decode(Codec::Jpeg, &file, Type::U8, None, 1 << 20).unwrap();
        assert_eq!(shape, [16, 16]);
        assert!(back.iter().all(|value| value.abs_diff(120) < 4));
    }

    #[test]
    fn a_small_file_of_a_large_picture_is_refused_before_it_is_unpacked() {
        let bomb = encode(Codec::Png, Type::U8, &[4000, 4000], &vec![0; 16_000_000]).unwrap();
        assert!(bomb.len() < 100_000);
        assert_eq!(
            decode(Codec::Png, &bomb, Type::U8, None, 1 << 20)
                .unwrap_err()
                .status(),
            413
        );
        // Small enough as it is, too large with four channels.
        assert_eq!(
            decode(Codec::Png, &bomb, Type::U8, Some(4), 20_000_000)
                .unwrap_err()
                .status(),
            413
        );
        let jpeg = encode(Codec::Jpeg, Type::U8, &[4000, 4000], &vec![0; 16_000_000]).unwrap();
        assert_eq!(
            decode(Codec::Jpeg, &jpeg, Type::U8, None, 1 << 20)
                .unwrap_err()
                .status(),
            413
        );
    }

    #[test]
    fn what_is_no_picture_is_refused() {
        let file = encode(Codec::Png, Type::U8, &[8, 8], &[7; 64]).unwrap();
        assert_eq!(
            decode(Codec::Png, &file[..file.len() / 2], Type::U8, None, 1 << 20)
                .unwrap_err()
                .status(),
            422
        );
        assert_eq!(
            decode(Codec::Jpeg, &file, Type::U8, None, 1 << 20)
                .unwrap_err()
                .status(),
            422
        );
        assert_eq!(
            encode(Codec::Png, Type::U8, &[0, 8], &[])
                .unwrap_err()
                .status(),
            422
        );
        assert_eq!(
            encode(Codec::Jpeg, Type::U16, &[1, 1], &[0, 0])
                .unwrap_err()
                .status(),
            422
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_broken_picture_panics(codec in prop::bool::ANY, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
            let codec = if codec { Codec::Png } else { Codec::Jpeg };
            let mut file = encode(codec, Type::U8, &[9, 7, 3], &[99; 189]).unwrap();
            for (index, byte) in changes {
                let at = index.index(file.len());
                file[at] = byte;
            }
            let _ = decode(codec, &file, Type::U8, Some(3), 1 << 16);
        }
    }
}
