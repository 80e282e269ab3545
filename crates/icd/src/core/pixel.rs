//! Pixels: sizes of formats, and moving boxes of pixels between layouts.
//!
//! Source: OpenCL 3.0 section 5.3.1.1 (image formats) and 5.3.1.2 (image descriptors).
// Patterns contain OpenCL's own names, such as CL_sRGB.
#![allow(non_upper_case_globals)]

use baltra_opencl::*;
use baltra_wire::ImageFormat;

/// Bytes of a pixel of `format`; `None` if order or type do not exist. The driver decides whether
/// the two form a valid pair ([`pairs`]): some list more than the specification has.
pub fn pixel_bytes(format: ImageFormat) -> Option<usize> {
    let packed = packed_bytes(format.kind);
    let channels = channels(format.order)?;
    match packed {
        Some(bytes) => Some(bytes),
        None => Some(channels * channel_bytes(format.kind)?),
    }
}

/// The "image channel order" table: how many channels are stored.
fn channels(order: u32) -> Option<usize> {
    Some(match order as i32 {
        CL_R | CL_A | CL_Rx | CL_INTENSITY | CL_LUMINANCE | CL_DEPTH | CL_DEPTH_STENCIL => 1,
        CL_RG | CL_RA | CL_RGx => 2,
        CL_RGB | CL_RGBx | CL_sRGB | CL_sRGBx => 3,
        CL_RGBA | CL_ARGB | CL_BGRA | CL_ABGR | CL_sRGBA | CL_sBGRA => 4,
        _ => return None,
    })
}

/// The "image channel data type" table: bytes of one channel.
fn channel_bytes(kind: u32) -> Option<usize> {
    Some(match kind as i32 {
        CL_SNORM_INT8 | CL_UNORM_INT8 | CL_SIGNED_INT8 | CL_UNSIGNED_INT8 => 1,
        CL_SNORM_INT16 | CL_UNORM_INT16 | CL_SIGNED_INT16 | CL_UNSIGNED_INT16 | CL_HALF_FLOAT => 2,
        CL_SIGNED_INT32 | CL_UNSIGNED_INT32 | CL_FLOAT => 4,
        _ => return None,
    })
}

/// Types that hold the whole pixel.
fn packed_bytes(kind: u32) -> Option<usize> {
    Some(match kind as i32 {
        CL_UNORM_SHORT_565 | CL_UNORM_SHORT_555 => 2,
        CL_UNORM_INT_101010 | CL_UNORM_INT_101010_2 | CL_UNORM_INT24 => 4,
        _ => return None,
    })
}

/// Whether the specification's tables allow this order with this type.
pub fn pairs(format: ImageFormat) -> bool {
    let kind = format.kind as i32;
    let packed_rgb = matches!(
        kind,
        CL_UNORM_SHORT_565 | CL_UNORM_SHORT_555 | CL_UNORM_INT_101010
    );
    match format.order as i32 {
        // "This format can only be used if channel data type = CL_UNORM_INT8, CL_UNORM_INT16,
        // CL_SNORM_INT8, CL_SNORM_INT16, CL_HALF_FLOAT, or CL_FLOAT."
        CL_INTENSITY | CL_LUMINANCE => matches!(
            kind,
            CL_UNORM_INT8
                | CL_UNORM_INT16
                | CL_SNORM_INT8
                | CL_SNORM_INT16
                | CL_HALF_FLOAT
                | CL_FLOAT
        ),
        // "This format can only be used if channel data type = CL_UNORM_INT16 or CL_FLOAT."
        CL_DEPTH => matches!(kind, CL_UNORM_INT16 | CL_FLOAT),
        CL_DEPTH_STENCIL => matches!(kind, CL_UNORM_INT24 | CL_FLOAT),
        // "These formats can only be used if channel data type = CL_UNORM_SHORT_565,
        // CL_UNORM_SHORT_555 or CL_UNORM_INT_101010."
        CL_RGB | CL_RGBx => packed_rgb,
        // "These formats can only be used if channel data type = CL_UNORM_INT8, CL_SNORM_INT8,
        // CL_SIGNED_INT8 or CL_UNSIGNED_INT8."
        CL_ARGB | CL_BGRA | CL_ABGR => channel_bytes(format.kind) == Some(1),
        CL_sRGB | CL_sRGBx | CL_sRGBA | CL_sBGRA => kind == CL_UNORM_INT8,
        CL_RGBA => kind == CL_UNORM_INT_101010_2 || packed_bytes(format.kind).is_none(),
        _ => packed_bytes(format.kind).is_none(),
    }
}

/// A box of bytes in memory: rows of `row` bytes, `rows` of them a slice, `slices` of those.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Box3 {
    /// Bytes in a row.
    pub row: usize,
    /// Rows in a slice.
    pub rows: usize,
    /// Slices.
    pub slices: usize,
}

/// Bytes from row to row and from slice to slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pitch {
    /// From row to row.
    pub row: usize,
    /// From slice to slice.
    pub slice: usize,
}

impl Box3 {
    /// The pitches that leave no gaps.
    pub fn tight(self) -> Pitch {
        Pitch {
            row: self.row,
            slice: self.row * self.rows,
        }
    }

    /// Bytes, without gaps.
    pub fn len(self) -> usize {
        self.row * self.rows * self.slices
    }

    /// From the first byte to the last one when laid out with `pitch`.
    pub fn span(self, pitch: Pitch) -> usize {
        if self.len() == 0 {
            return 0;
        }
        pitch.slice * (self.slices - 1) + pitch.row * (self.rows - 1) + self.row
    }
}

/// Copies a box from one layout to another.
///
/// # Safety
/// `from` is readable and `to` writable over the box's [`Box3::span`] with its pitch, and the two
/// do not overlap.
pub unsafe fn copy_box(from: *const u8, from_pitch: Pitch, to: *mut u8, to_pitch: Pitch, b: Box3) {
    if from_pitch == to_pitch && from_pitch == b.tight() {
        // SAFETY: both are gapless over the box, as the caller promises.
        unsafe { std::ptr::copy_nonoverlapping(from, to, b.len()) };
        return;
    }
    for slice in 0..b.slices {
        for row in 0..b.rows {
            // SAFETY: the row lies in the box's span, which the caller promises on both sides.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    from.add(slice * from_pitch.slice + row * from_pitch.row),
                    to.add(slice * to_pitch.slice + row * to_pitch.row),
                    b.row,
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(order: i32, kind: i32) -> ImageFormat {
        ImageFormat {
            order: order as u32,
            kind: kind as u32,
        }
    }

    #[test]
    fn pixels_have_the_sizes_of_the_tables() {
        assert_eq!(pixel_bytes(format(CL_RGBA, CL_UNORM_INT8)), Some(4));
        assert_eq!(pixel_bytes(format(CL_RGBA, CL_FLOAT)), Some(16));
        assert_eq!(pixel_bytes(format(CL_RG, CL_HALF_FLOAT)), Some(4));
        assert_eq!(pixel_bytes(format(CL_RGB, CL_UNORM_SHORT_565)), Some(2));
        assert_eq!(pixel_bytes(format(CL_R, CL_UNSIGNED_INT32)), Some(4));
    }

    #[test]
    fn pairs_outside_the_tables_are_recognized_and_have_sizes() {
        let odd = [
            (CL_RGB, CL_FLOAT, 12),
            (CL_BGRA, CL_FLOAT, 16),
            (CL_ARGB, CL_SNORM_INT16, 8),
            (CL_INTENSITY, CL_SIGNED_INT8, 1),
            (CL_R, CL_UNORM_SHORT_555, 2),
        ];
        for (order, kind, bytes) in odd {
            assert!(!pairs(format(order, kind)));
            assert_eq!(pixel_bytes(format(order, kind)), Some(bytes));
        }
        assert!(pairs(format(CL_BGRA, CL_UNORM_INT8)));
        assert_eq!(pixel_bytes(format(0, CL_FLOAT)), None);
        assert_eq!(pixel_bytes(format(CL_R, 0)), None);
    }

    #[test]
    fn a_box_keeps_its_bytes_from_pitched_to_tight_and_back() {
        let b = Box3 {
            row: 3,
            rows: 2,
            slices: 2,
        };
        let wide = Pitch { row: 5, slice: 12 };
        let source: Vec<u8> = (0..b.span(wide) as u8).collect();
        let mut tight = vec![0; b.len()];
        let mut back = vec![255; b.span(wide)];
        // SAFETY: the vectors have the spans' lengths and are distinct.
        unsafe {
            copy_box(source.as_ptr(), wide, tight.as_mut_ptr(), b.tight(), b);
            copy_box(tight.as_ptr(), b.tight(), back.as_mut_ptr(), wide, b);
        }
        assert_eq!(tight, [0, 1, 2, 5, 6, 7, 12, 13, 14, 17, 18, 19]);
        for at in [0, 1, 2, 5, 6, 7, 12, 13, 14, 17, 18, 19] {
            assert_eq!(back[at], source[at]);
        }
        assert_eq!(back[3], 255, "gaps are left alone");
    }
}
