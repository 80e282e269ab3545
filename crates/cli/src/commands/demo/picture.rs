//! The picture of the demonstration.

use anyhow::{bail, Context, Result};
use image::imageops::FilterType;
use image::{ImageReader, Limits, RgbaImage};
use std::io::Cursor;
use std::path::Path;

/// NASA's portrait of the astronaut Eileen Collins (public domain), cut to 16:9.
const PHOTO: &[u8] = include_bytes!("photo.jpg");
/// Size to which the photograph is enlarged.
const WIDTH: u32 = 1920;
const HEIGHT: u32 = 1080;
/// Largest side of a picture, which is also that of the function.
const SIDE_MAX: u32 = 16_384;

/// The photograph in the program, or a file.
pub fn load(file: Option<&Path>) -> Result<RgbaImage> {
    let Some(path) = file else {
        let small = decode(PHOTO)?;
        return Ok(image::imageops::resize(
            &small,
            WIDTH,
            HEIGHT,
            FilterType::Triangle,
        ));
    };
    let shown = path.display();
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {shown}"))?;
    decode(&bytes).with_context(|| format!("cannot use the picture {shown}"))
}

fn decode(bytes: &[u8]) -> Result<RgbaImage> {
    let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format()?;
    let mut limits = Limits::default();
    (limits.max_image_width, limits.max_image_height) = (Some(SIDE_MAX), Some(SIDE_MAX));
    reader.limits(limits);
    let mut picture = reader.decode()?.into_rgba8();
    if picture.width() == 0 || picture.height() == 0 {
        bail!("the picture is empty");
    }
    // The program leaves the fourth byte of a pixel unused, as apps/sobel does.
    picture.pixels_mut().for_each(|pixel| pixel.0[3] = 0);
    Ok(picture)
}

/// One color of each pixel of four bytes.
pub fn green(pixels: &[u8]) -> Vec<u8> {
    pixels.chunks_exact(4).map(|pixel| pixel[1]).collect()
}

/// Writes pixels of four bytes as an opaque PNG file.
pub fn save(path: &Path, width: u32, height: u32, pixels: &[u8]) -> Result<()> {
    let colors = pixels.chunks_exact(4).flat_map(|pixel| &pixel[..3]);
    image::RgbImage::from_raw(width, height, colors.copied().collect())
        .context("internal error: the picture has another size")?
        .save_with_format(path, image::ImageFormat::Png)
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_photograph_is_enlarged() {
        let picture = load(None).unwrap();
        assert_eq!(picture.dimensions(), (WIDTH, HEIGHT));
        let green = green(picture.as_raw());
        assert_eq!(green.len(), (WIDTH * HEIGHT) as usize);
        // Not a single shade.
        assert!(green.iter().max().unwrap() - green.iter().min().unwrap() > 100);
    }

    #[test]
    fn refuses_files_that_are_not_pictures() {
        let error = decode(b"not a picture").unwrap_err().to_string();
        assert!(error.contains("format"), "{error}");
        let error = load(Some(Path::new("/no/such/file"))).unwrap_err();
        assert!(format!("{error:#}").contains("/no/such/file"), "{error:#}");
    }

    #[test]
    fn saved_pictures_have_the_same_colors() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("two.png");
        let pixels = [1, 2, 3, 0, 250, 251, 252, 0];
        save(&path, 2, 1, &pixels).unwrap();
        assert_eq!(*load(Some(&path)).unwrap().as_raw(), pixels);
    }
}
