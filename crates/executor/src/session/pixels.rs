//! The size of an image in bytes, checked before the driver reads that many from an arena.

use baltra_opencl::*;
use baltra_wire::{ImageFormat, ImageShape, Region};

/// Bytes of a pixel; `None`: no such format.
#[allow(non_upper_case_globals, reason = "OpenCL's own names")]
pub fn pixel_bytes(format: ImageFormat) -> Option<u64> {
    let channels = match format.order as i32 {
        CL_R | CL_A | CL_INTENSITY | CL_LUMINANCE | CL_Rx | CL_DEPTH => 1,
        CL_RG | CL_RA | CL_RGx | CL_DEPTH_STENCIL => 2,
        CL_RGB | CL_RGBx | CL_sRGB => 3,
        CL_RGBA | CL_BGRA | CL_ARGB | CL_ABGR | CL_sRGBx | CL_sRGBA | CL_sBGRA => 4,
        _ => return None,
    };
    Some(match format.kind as i32 {
        CL_SNORM_INT8 | CL_UNORM_INT8 | CL_SIGNED_INT8 | CL_UNSIGNED_INT8 => channels,
        CL_SNORM_INT16 | CL_UNORM_INT16 | CL_SIGNED_INT16 | CL_UNSIGNED_INT16 | CL_HALF_FLOAT => {
            2 * channels
        }
        CL_SIGNED_INT32 | CL_UNSIGNED_INT32 | CL_FLOAT => 4 * channels,
        CL_UNORM_SHORT_565 | CL_UNORM_SHORT_555 => 2,
        CL_UNORM_INT_101010 | CL_UNORM_INT_101010_2 | CL_UNORM_INT24 => 4,
        _ => return None,
    })
}

/// Bytes of an image's tight contents; `None`: the shape is invalid, or exceeds the address space.
pub fn contents_bytes(shape: &ImageShape, pixel_bytes: u64) -> Option<u64> {
    let (rows, slices) = match shape.kind as i32 {
        CL_MEM_OBJECT_IMAGE1D | CL_MEM_OBJECT_IMAGE1D_BUFFER => (1, 1),
        CL_MEM_OBJECT_IMAGE1D_ARRAY => (1, shape.array_size),
        CL_MEM_OBJECT_IMAGE2D => (shape.height, 1),
        CL_MEM_OBJECT_IMAGE2D_ARRAY => (shape.height, shape.array_size),
        CL_MEM_OBJECT_IMAGE3D => (shape.height, shape.depth),
        _ => return None,
    };
    volume([shape.width.checked_mul(pixel_bytes)?, rows, slices])
}

/// An image as drivers take it. `mem_object`: the buffer or image that it is a part of, or null.
pub fn driver_image(
    format: ImageFormat,
    shape: &ImageShape,
    mem_object: cl_mem,
) -> (cl_image_format, cl_image_desc) {
    let format = cl_image_format {
        image_channel_order: format.order,
        image_channel_data_type: format.kind,
    };
    let is_part = !mem_object.is_null();
    let description = cl_image_desc {
        image_type: shape.kind,
        image_width: shape.width as usize,
        image_height: shape.height as usize,
        image_depth: shape.depth as usize,
        image_array_size: shape.array_size as usize,
        image_row_pitch: if is_part { shape.row_pitch as usize } else { 0 },
        image_slice_pitch: 0,
        num_mip_levels: 0,
        num_samples: 0,
        __bindgen_anon_1: _cl_image_desc__bindgen_ty_1 { mem_object },
    };
    (format, description)
}

/// The whole image as the region of a transfer.
pub fn extent(shape: &ImageShape) -> [usize; 3] {
    let (rows, slices) = match shape.kind as i32 {
        CL_MEM_OBJECT_IMAGE1D_ARRAY => (shape.array_size, 1),
        CL_MEM_OBJECT_IMAGE2D => (shape.height, 1),
        CL_MEM_OBJECT_IMAGE2D_ARRAY => (shape.height, shape.array_size),
        CL_MEM_OBJECT_IMAGE3D => (shape.height, shape.depth),
        _ => (1, 1),
    };
    [shape.width, rows, slices].map(|n| n as usize)
}

/// The product, unless it overflows.
pub fn volume(size: [u64; 3]) -> Option<u64> {
    size[0].checked_mul(size[1])?.checked_mul(size[2])
}

/// Whether a box of bytes fits into a buffer. Pitches of 0 are tight; the driver refuses those that
/// are too small.
pub fn box_fits(region: &Region, buffer_bytes: u64) -> bool {
    let end = || {
        let [width, rows, slices] = region.size;
        let row = match region.row_pitch {
            0 => width,
            pitch => pitch,
        };
        let slice = match region.slice_pitch {
            0 => row.checked_mul(rows)?,
            pitch => pitch,
        };
        let [x, y, z] = region.origin;
        let last_slice = z.checked_add(slices.checked_sub(1)?)?;
        let last_row = y.checked_add(rows.checked_sub(1)?)?;
        last_slice
            .checked_mul(slice)?
            .checked_add(last_row.checked_mul(row)?)?
            .checked_add(x)?
            .checked_add(width)
    };
    region.size[0] > 0 && end().is_some_and(|end| end <= buffer_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_never_leave_their_buffer() {
        let region = Region {
            origin: [4, 1, 1],
            size: [8, 2, 2],
            row_pitch: 16,
            slice_pitch: 64,
        };
        // The last byte: slice 2, row 2, column 12.
        assert!(box_fits(&region, 2 * 64 + 2 * 16 + 12));
        assert!(!box_fits(&region, 2 * 64 + 2 * 16 + 11));
        let huge = Region {
            origin: [u64::MAX, 0, 0],
            ..region
        };
        assert!(!box_fits(&huge, u64::MAX));
        let empty = Region {
            size: [8, 0, 1],
            ..region
        };
        assert!(!box_fits(&empty, 1 << 20));
    }

    #[test]
    fn contents_never_overflow() {
        let shape = ImageShape {
            kind: CL_MEM_OBJECT_IMAGE3D as u32,
            width: 1 << 40,
            height: 1 << 40,
            depth: 1,
            array_size: 0,
            row_pitch: 0,
        };
        assert_eq!(contents_bytes(&shape, 4), None);
        let shape = ImageShape {
            width: 5,
            height: 3,
            depth: 2,
            ..shape
        };
        assert_eq!(contents_bytes(&shape, 16), Some(480));
    }

    #[test]
    fn formats_have_the_sizes_of_the_specification() {
        let bytes = |order, kind| {
            pixel_bytes(ImageFormat {
                order: order as u32,
                kind: kind as u32,
            })
        };
        assert_eq!(bytes(CL_RGBA, CL_FLOAT), Some(16));
        assert_eq!(bytes(CL_R, CL_UNORM_INT8), Some(1));
        assert_eq!(bytes(CL_RGB, CL_UNORM_SHORT_565), Some(2));
        assert_eq!(bytes(0, CL_FLOAT), None);
    }
}
