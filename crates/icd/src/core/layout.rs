//! The shape of an image: what `clCreateImage` accepts, and the location of a region's bytes.
//!
//! Everything here is arithmetic; the objects are in [`super::image`].

use super::pixel::{pixel_bytes, Box3, Pitch};
use baltra_opencl::*;
use baltra_wire::{DeviceDescription, ImageFormat, ImageShape};

/// A device's bounds on images, in pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageLimits {
    /// `CL_DEVICE_IMAGE2D_MAX_WIDTH`, `_HEIGHT`
    pub plane_max: [usize; 2],
    /// `CL_DEVICE_IMAGE3D_MAX_WIDTH`, `_HEIGHT`, `_DEPTH`
    pub volume_max: [usize; 3],
    /// `CL_DEVICE_IMAGE_MAX_ARRAY_SIZE`
    pub layers_max: usize,
    /// `CL_DEVICE_IMAGE_MAX_BUFFER_SIZE`
    pub buffer_max: usize,
    /// `CL_DEVICE_IMAGE_PITCH_ALIGNMENT`; 0: no images over buffers.
    pub pitch_alignment: usize,
}

impl ImageLimits {
    /// A device's limits; `None`: it has no images.
    pub fn of(device: &DeviceDescription) -> Option<ImageLimits> {
        let number = |param: i32| device.number(param as u32) as usize;
        if number(CL_DEVICE_IMAGE_SUPPORT) == 0 {
            return None;
        }
        Some(ImageLimits {
            plane_max: [
                number(CL_DEVICE_IMAGE2D_MAX_WIDTH),
                number(CL_DEVICE_IMAGE2D_MAX_HEIGHT),
            ],
            volume_max: [
                number(CL_DEVICE_IMAGE3D_MAX_WIDTH),
                number(CL_DEVICE_IMAGE3D_MAX_HEIGHT),
                number(CL_DEVICE_IMAGE3D_MAX_DEPTH),
            ],
            layers_max: number(CL_DEVICE_IMAGE_MAX_ARRAY_SIZE),
            buffer_max: number(CL_DEVICE_IMAGE_MAX_BUFFER_SIZE),
            pitch_alignment: number(CL_DEVICE_IMAGE_PITCH_ALIGNMENT),
        })
    }

    /// Whether an image of this shape fits.
    pub fn allow(&self, shape: &ImageShape) -> bool {
        let [width, height, depth, layers] = [
            shape.width as usize,
            shape.height as usize,
            shape.depth as usize,
            shape.array_size as usize,
        ];
        match shape.kind as i32 {
            CL_MEM_OBJECT_IMAGE1D => width <= self.plane_max[0],
            CL_MEM_OBJECT_IMAGE1D_BUFFER => width <= self.buffer_max,
            CL_MEM_OBJECT_IMAGE1D_ARRAY => width <= self.plane_max[0] && layers <= self.layers_max,
            CL_MEM_OBJECT_IMAGE2D => width <= self.plane_max[0] && height <= self.plane_max[1],
            CL_MEM_OBJECT_IMAGE2D_ARRAY => {
                width <= self.plane_max[0]
                    && height <= self.plane_max[1]
                    && layers <= self.layers_max
            }
            _ => {
                width <= self.volume_max[0]
                    && height <= self.volume_max[1]
                    && depth <= self.volume_max[2]
            }
        }
    }
}

/// An image's pixels: format, number, and layout in the application's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The pixel format.
    pub format: ImageFormat,
    /// The shape, with the dimensions that its type does not have at 0.
    pub shape: ImageShape,
    /// Bytes of a pixel.
    pub pixel: usize,
    /// Pitches of the pixels in the host pointer's memory, or in the buffer below the image.
    pub pitch: Pitch,
}

/// The storage of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// Its own memory, without initial contents.
    Own,
    /// Its own memory, created over or filled from the application's memory.
    Host,
    /// A buffer of this size in bytes.
    Buffer(usize),
    /// Another image, whose pixels are accessed in another format.
    Image(Layout),
}

impl Layout {
    /// Checks `clCreateImage`'s format and descriptor, as far as that is possible without a device.
    pub fn new(
        format: ImageFormat,
        desc: &cl_image_desc,
        ground: Ground,
    ) -> Result<Layout, cl_int> {
        // "CL_INVALID_IMAGE_FORMAT_DESCRIPTOR if values specified in image_format are not valid"
        let pixel = pixel_bytes(format).ok_or(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR)?;
        // "num_mip_levels and num_samples must be 0."
        if desc.num_mip_levels != 0 || desc.num_samples != 0 {
            return Err(CL_INVALID_IMAGE_DESCRIPTOR);
        }
        let shape = shape(desc)?;
        let mut layout = Layout {
            format,
            shape,
            pixel,
            pitch: Pitch { row: 0, slice: 0 },
        };
        layout.pitch = layout.pitches(desc, ground)?;
        layout.fits(ground)?;
        Ok(layout)
    }

    /// The pitches of a descriptor, checked.
    fn pitches(&self, desc: &cl_image_desc, ground: Ground) -> Result<Pitch, cl_int> {
        let invalid = Err(CL_INVALID_IMAGE_DESCRIPTOR);
        let row = self.extent()[0]
            .checked_mul(self.pixel)
            .ok_or(CL_INVALID_IMAGE_SIZE)?;
        if matches!(ground, Ground::Own | Ground::Image(_)) {
            // "This must be 0 if host_ptr is NULL" (both pitches)
            if matches!(ground, Ground::Own)
                && (desc.image_row_pitch != 0 || desc.image_slice_pitch != 0)
            {
                return invalid;
            }
            return self.completed(row, 0);
        }
        // "… can be either 0 or >= image_width × size of element in bytes … If image_row_pitch is
        // not 0, it must be a multiple of the image element size in bytes."
        let given = desc.image_row_pitch;
        if given != 0 && (given < row || !given.is_multiple_of(self.pixel)) {
            return invalid;
        }
        // The pixels of a 1D image buffer are those of the buffer.
        let given = match self.shape.kind as i32 {
            CL_MEM_OBJECT_IMAGE1D_BUFFER => 0,
            _ => given,
        };
        self.completed(row.max(given), desc.image_slice_pitch)
    }

    /// Fills in the slice pitch.
    fn completed(&self, row: usize, slice: usize) -> Result<Pitch, cl_int> {
        let rows = match self.shape.kind as i32 {
            CL_MEM_OBJECT_IMAGE2D_ARRAY | CL_MEM_OBJECT_IMAGE3D => self.extent()[1],
            CL_MEM_OBJECT_IMAGE1D_ARRAY => 1,
            // "image_slice_pitch is … If the image is a 1D or 2D image, it is ignored."
            _ => {
                let slice = row.checked_mul(self.extent()[1]);
                return slice
                    .map(|slice| Pitch { row, slice })
                    .ok_or(CL_INVALID_IMAGE_SIZE);
            }
        };
        let least = row.checked_mul(rows).ok_or(CL_INVALID_IMAGE_SIZE)?;
        // "… can be either 0 or >= image_row_pitch × image_height for a 2D image array or 3D
        // image … >= image_row_pitch for a 1D image array … it must be a multiple of the
        // image_row_pitch."
        if slice != 0 && (slice < least || !slice.is_multiple_of(row)) {
            return Err(CL_INVALID_IMAGE_DESCRIPTOR);
        }
        Ok(Pitch {
            row,
            slice: slice.max(least),
        })
    }

    /// Whether the pixels fit into what lies below.
    fn fits(&self, ground: Ground) -> Result<(), cl_int> {
        match ground {
            Ground::Own | Ground::Host => Ok(()),
            // "For a 1D image buffer, the image_width × size of element in bytes must be <= size
            // of the buffer object", and the same for the rows of a 2D image.
            Ground::Buffer(size) => {
                let needed = self
                    .pitch
                    .row
                    .checked_mul(self.extent()[1])
                    .ok_or(CL_INVALID_IMAGE_SIZE)?;
                if needed > size {
                    return Err(CL_INVALID_IMAGE_SIZE);
                }
                Ok(())
            }
            // "The image_width and image_height values in image_desc must be equal to those of
            // the image object that it is made from", and the formats must be of one size.
            Ground::Image(below) => {
                if below.extent() != self.extent() || below.shape.kind != self.shape.kind {
                    return Err(CL_INVALID_IMAGE_DESCRIPTOR);
                }
                // "CL_INVALID_IMAGE_FORMAT_DESCRIPTOR if a 2D image is created from a 2D image
                // object and the rules described above are not followed."
                if below.pixel != self.pixel || below.format.kind != self.format.kind {
                    return Err(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR);
                }
                Ok(())
            }
        }
    }

    /// Pixels in each direction: 1 if the type lacks the direction; layers count as the direction
    /// after the last one.
    pub fn extent(&self) -> [usize; 3] {
        let s = &self.shape;
        let [width, height, depth, layers] = [
            s.width as usize,
            s.height as usize,
            s.depth as usize,
            s.array_size as usize,
        ];
        match s.kind as i32 {
            CL_MEM_OBJECT_IMAGE1D | CL_MEM_OBJECT_IMAGE1D_BUFFER => [width, 1, 1],
            CL_MEM_OBJECT_IMAGE1D_ARRAY => [width, layers, 1],
            CL_MEM_OBJECT_IMAGE2D => [width, height, 1],
            CL_MEM_OBJECT_IMAGE2D_ARRAY => [width, height, layers],
            _ => [width, height, depth],
        }
    }

    /// Bytes of all pixels, without gaps.
    pub fn len(&self) -> usize {
        self.bytes(self.extent()).len()
    }

    /// A region's bytes.
    pub fn bytes(&self, region: [usize; 3]) -> Box3 {
        Box3 {
            row: region[0] * self.pixel,
            rows: region[1],
            slices: region[2],
        }
    }

    /// The pitches of memory that holds a region, as a transfer's caller gives them (0: tight).
    /// In a 1D array the slice pitch separates the layers, which are the region's rows.
    pub fn host_pitch(
        &self,
        region: [usize; 3],
        row: usize,
        slice: usize,
    ) -> Result<Pitch, cl_int> {
        let tight = self.bytes(region);
        // "CL_INVALID_VALUE if … row_pitch … is not 0 and less than the region's width × size of
        // element in bytes", and likewise for the slices.
        if row != 0 && row < tight.row {
            return Err(CL_INVALID_VALUE);
        }
        let row = row.max(tight.row);
        if self.shape.kind as i32 == CL_MEM_OBJECT_IMAGE1D_ARRAY {
            if slice != 0 && slice < row {
                return Err(CL_INVALID_VALUE);
            }
            let step = slice.max(row);
            return Ok(Pitch {
                row: step,
                slice: step.checked_mul(region[1]).ok_or(CL_INVALID_VALUE)?,
            });
        }
        let least = row.checked_mul(region[1]).ok_or(CL_INVALID_VALUE)?;
        let flat = self.extent()[2] == 1 && !self.is_deep();
        // "Must be 0 if image is a 1D or 2D image. Otherwise this value must be greater than or
        // equal to row_pitch × height."
        if slice != 0 && (flat || slice < least) {
            return Err(CL_INVALID_VALUE);
        }
        Ok(Pitch {
            row,
            slice: slice.max(least),
        })
    }

    /// Whether the type has slices or layers, so that a slice pitch applies.
    pub fn is_deep(&self) -> bool {
        matches!(
            self.shape.kind as i32,
            CL_MEM_OBJECT_IMAGE1D_ARRAY | CL_MEM_OBJECT_IMAGE2D_ARRAY | CL_MEM_OBJECT_IMAGE3D
        )
    }

    /// Whether a region lies in the image.
    pub fn check(&self, origin: [usize; 3], region: [usize; 3]) -> Result<(), cl_int> {
        // "CL_INVALID_VALUE if values in origin and region do not follow rules described in the
        // argument description" and "… if the region being read specified by origin and region
        // is out of bounds".
        let extent = self.extent();
        for axis in 0..3 {
            let end = origin[axis].checked_add(region[axis]);
            if region[axis] == 0 || end.is_none_or(|end| end > extent[axis]) {
                return Err(CL_INVALID_VALUE);
            }
        }
        Ok(())
    }

    /// Offset of a pixel in memory with the image's own pitches.
    pub fn offset(&self, origin: [usize; 3]) -> usize {
        let p = self.rows_pitch();
        origin[0] * self.pixel + origin[1] * p.row + origin[2] * p.slice
    }

    /// The image's own pitches as those of rows and slices of its [`Layout::extent`].
    pub fn rows_pitch(&self) -> Pitch {
        if self.shape.kind as i32 == CL_MEM_OBJECT_IMAGE1D_ARRAY {
            return Pitch {
                row: self.pitch.slice,
                slice: self.pitch.slice * self.extent()[1],
            };
        }
        self.pitch
    }
}

/// The descriptor's shape with what its type does not have at 0.
fn shape(desc: &cl_image_desc) -> Result<ImageShape, cl_int> {
    let mut shape = ImageShape {
        kind: desc.image_type,
        width: desc.image_width as u64,
        height: 0,
        depth: 0,
        array_size: 0,
        row_pitch: 0,
    };
    match desc.image_type as i32 {
        CL_MEM_OBJECT_IMAGE1D | CL_MEM_OBJECT_IMAGE1D_BUFFER => {}
        CL_MEM_OBJECT_IMAGE1D_ARRAY => shape.array_size = desc.image_array_size as u64,
        CL_MEM_OBJECT_IMAGE2D => shape.height = desc.image_height as u64,
        CL_MEM_OBJECT_IMAGE2D_ARRAY => {
            shape.height = desc.image_height as u64;
            shape.array_size = desc.image_array_size as u64;
        }
        CL_MEM_OBJECT_IMAGE3D => {
            shape.height = desc.image_height as u64;
            shape.depth = desc.image_depth as u64;
        }
        _ => return Err(CL_INVALID_IMAGE_DESCRIPTOR),
    }
    let present = |pixels: u64, has: bool| !has || pixels >= 1;
    let kind = desc.image_type as i32;
    let tall = matches!(
        kind,
        CL_MEM_OBJECT_IMAGE2D | CL_MEM_OBJECT_IMAGE2D_ARRAY | CL_MEM_OBJECT_IMAGE3D
    );
    let layered = matches!(
        kind,
        CL_MEM_OBJECT_IMAGE1D_ARRAY | CL_MEM_OBJECT_IMAGE2D_ARRAY
    );
    // "… must be a value >= 1": CL_INVALID_IMAGE_SIZE, as drivers have it, though the text would
    // also allow CL_INVALID_IMAGE_DESCRIPTOR.
    if !(present(shape.width, true)
        && present(shape.height, tall)
        && present(shape.depth, kind == CL_MEM_OBJECT_IMAGE3D)
        && present(shape.array_size, layered))
    {
        return Err(CL_INVALID_IMAGE_SIZE);
    }
    Ok(shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RGBA8: ImageFormat = ImageFormat {
        order: CL_RGBA as u32,
        kind: CL_UNORM_INT8 as u32,
    };

    fn desc(kind: i32, size: [usize; 3], layers: usize) -> cl_image_desc {
        // SAFETY: a descriptor of zeros is a valid value of the C type.
        let mut desc: cl_image_desc = unsafe { std::mem::zeroed() };
        desc.image_type = kind as u32;
        [desc.image_width, desc.image_height, desc.image_depth] = size;
        desc.image_array_size = layers;
        desc
    }

    #[test]
    fn layers_count_as_the_last_direction() {
        let layout = |kind, size, layers| {
            Layout::new(RGBA8, &desc(kind, size, layers), Ground::Own).unwrap()
        };
        let array = layout(CL_MEM_OBJECT_IMAGE1D_ARRAY, [8, 99, 99], 5);
        assert_eq!(array.extent(), [8, 5, 1]);
        let planes = layout(CL_MEM_OBJECT_IMAGE2D_ARRAY, [8, 4, 99], 5);
        assert_eq!(planes.extent(), [8, 4, 5]);
        assert_eq!(planes.len(), 8 * 4 * 5 * 4);
        assert_eq!(
            planes.pitch,
            Pitch {
                row: 32,
                slice: 128
            }
        );
        let volume = layout(CL_MEM_OBJECT_IMAGE3D, [8, 4, 3], 99);
        assert_eq!(volume.extent(), [8, 4, 3]);
    }

    #[test]
    fn pitches_need_a_host_pointer() {
        let mut d = desc(CL_MEM_OBJECT_IMAGE2D, [8, 4, 0], 0);
        d.image_row_pitch = 40;
        assert_eq!(
            Layout::new(RGBA8, &d, Ground::Own),
            Err(CL_INVALID_IMAGE_DESCRIPTOR)
        );
        let layout = Layout::new(RGBA8, &d, Ground::Host).unwrap();
        assert_eq!(layout.offset([1, 2, 0]), 84);
        d.image_row_pitch = 30;
        assert_eq!(
            Layout::new(RGBA8, &d, Ground::Host),
            Err(CL_INVALID_IMAGE_DESCRIPTOR)
        );
    }

    #[test]
    fn an_image_over_a_buffer_fits_into_it() {
        let mut d = desc(CL_MEM_OBJECT_IMAGE2D, [8, 4, 0], 0);
        d.image_row_pitch = 64;
        assert!(Layout::new(RGBA8, &d, Ground::Buffer(256)).is_ok());
        assert_eq!(
            Layout::new(RGBA8, &d, Ground::Buffer(255)),
            Err(CL_INVALID_IMAGE_SIZE)
        );
    }

    /// "For a 1D image buffer, the image_width × size of element in bytes must be <= size of the buffer
    /// object": programs give longer pitches.
    #[test]
    fn the_pitch_of_an_image_over_a_buffer_counts_in_two_dimensions_only() {
        let mut d = desc(CL_MEM_OBJECT_IMAGE1D_BUFFER, [8, 0, 0], 0);
        d.image_row_pitch = 64;
        let layout = Layout::new(RGBA8, &d, Ground::Buffer(32)).unwrap();
        assert_eq!((layout.pitch.row, layout.len()), (32, 32));
        assert_eq!(
            Layout::new(RGBA8, &d, Ground::Buffer(31)),
            Err(CL_INVALID_IMAGE_SIZE)
        );
        d.image_row_pitch = 30;
        assert_eq!(
            Layout::new(RGBA8, &d, Ground::Buffer(32)),
            Err(CL_INVALID_IMAGE_DESCRIPTOR)
        );
    }

    #[test]
    fn regions_outside_the_image_are_refused() {
        let d = desc(CL_MEM_OBJECT_IMAGE2D, [8, 4, 0], 0);
        let layout = Layout::new(RGBA8, &d, Ground::Own).unwrap();
        assert!(layout.check([0, 0, 0], [8, 4, 1]).is_ok());
        for (origin, region) in [
            ([1, 0, 0], [8, 4, 1]),
            ([0, 0, 1], [1, 1, 1]),
            ([0, 0, 0], [0, 1, 1]),
            ([usize::MAX, 0, 0], [2, 1, 1]),
        ] {
            assert_eq!(layout.check(origin, region), Err(CL_INVALID_VALUE));
        }
    }

    #[test]
    fn the_slice_pitch_of_a_1d_array_separates_its_layers() {
        let d = desc(CL_MEM_OBJECT_IMAGE1D_ARRAY, [8, 0, 0], 5);
        let layout = Layout::new(RGBA8, &d, Ground::Own).unwrap();
        let pitch = layout.host_pitch([8, 5, 1], 0, 40).unwrap();
        assert_eq!(
            pitch,
            Pitch {
                row: 40,
                slice: 200
            }
        );
        assert_eq!(layout.host_pitch([8, 5, 1], 0, 31), Err(CL_INVALID_VALUE));
    }

    #[test]
    fn a_flat_image_takes_no_slice_pitch() {
        let d = desc(CL_MEM_OBJECT_IMAGE2D, [8, 4, 0], 0);
        let layout = Layout::new(RGBA8, &d, Ground::Own).unwrap();
        assert_eq!(layout.host_pitch([8, 4, 1], 0, 512), Err(CL_INVALID_VALUE));
        assert_eq!(layout.host_pitch([8, 4, 1], 31, 0), Err(CL_INVALID_VALUE));
    }
}
