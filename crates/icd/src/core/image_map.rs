//! Mapped images: pixels in a staging block, or in the application's own memory.

use crate::core::image::{region, transfer};
use crate::core::map::{nothing, remember, wants_contents, Gather, Mapping, Target, WriteBack};
use crate::core::memory::Memory;
use crate::core::object::Object;
use crate::core::pixel::{copy_box, Pitch};
use crate::core::transfer::{Span, Transfer};
use baltra_opencl::*;
use baltra_wire::Direction;
use std::sync::Arc;

/// The result of a map.
pub struct Mapped {
    /// The first pixel.
    pub pointer: usize,
    /// `image_row_pitch`
    pub row_pitch: usize,
    /// `image_slice_pitch`
    pub slice_pitch: usize,
}

/// `clEnqueueMapImage`
pub fn map_image(
    t: Transfer<'_>,
    image: &Object<Memory>,
    flags: u64,
    origin: [usize; 3],
    size: [usize; 3],
) -> Result<Mapped, i32> {
    let layout = *image.pixels()?;
    let bytes = layout.bytes(size);
    let tight = bytes.tight();
    let block = Arc::new(t.queue.here().allocate(bytes.len() as u64, 4096)?);
    // "… the pointer value returned will be derived from the host_ptr specified to clCreateImage"
    // with CL_MEM_USE_HOST_PTR.
    let host = (image.host_ptr != 0).then(|| image.host_ptr + layout.offset(origin));
    let (pointer, pitch) = match host {
        Some(host) => (host, layout.rows_pitch()),
        None => (block.ptr() as usize, tight),
    };
    let len = bytes.span(pitch);
    if wants_contents(flags) {
        let id = image.id_in(t.queue.member)?;
        let from = block.clone();
        let bring = move || {
            if host.is_some() {
                // SAFETY: the block holds the region tightly, and the application's memory holds
                // the image for as long as that lives, as it promised to clCreateImage.
                unsafe { copy_box(from.ptr(), tight, pointer as *mut u8, pitch, bytes) };
            }
        };
        let written = Span {
            start: pointer,
            len: if host.is_some() { len } else { 0 },
        };
        t.read_into(block.clone(), written, bring, |payload| {
            transfer(Direction::Read, id, origin, size, payload)
        })?;
    } else {
        nothing(&t)?;
    }
    let gather = host.map(|host| -> Gather {
        Box::new(move |block: &mut [u8]| {
            // SAFETY: as above, the other way.
            unsafe { copy_box(host as *const u8, pitch, block.as_mut_ptr(), tight, bytes) };
        })
    });
    remember(
        image,
        Mapping {
            pointer,
            flags,
            len,
            write_back: Some(WriteBack {
                block: Some(block),
                gather,
                target: Target::Image {
                    region: region(origin, size),
                },
            }),
        },
    );
    Ok(Mapped {
        pointer,
        ..returned(layout.shape.kind, pitch)
    })
}

/// The pitches as `clEnqueueMapImage` returns them: the layers of a 1D array, whose distance is
/// stored as that of rows, are slices to the application.
fn returned(kind: u32, pitch: Pitch) -> Mapped {
    let (row_pitch, slice_pitch) = match kind as i32 {
        CL_MEM_OBJECT_IMAGE1D_ARRAY => (pitch.row, pitch.row),
        CL_MEM_OBJECT_IMAGE2D_ARRAY | CL_MEM_OBJECT_IMAGE3D => (pitch.row, pitch.slice),
        // "For a 1D, 1D image buffer and 2D image, zero is returned if this argument is not NULL."
        _ => (pitch.row, 0),
    };
    Mapped {
        pointer: 0,
        row_pitch,
        slice_pitch,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_layers_and_slices_have_a_slice_pitch() {
        let pitch = Pitch {
            row: 64,
            slice: 640,
        };
        let slice_pitch = |kind: i32| returned(kind as u32, pitch).slice_pitch;
        assert_eq!(slice_pitch(CL_MEM_OBJECT_IMAGE2D), 0);
        assert_eq!(slice_pitch(CL_MEM_OBJECT_IMAGE1D_ARRAY), 64);
        assert_eq!(slice_pitch(CL_MEM_OBJECT_IMAGE3D), 640);
    }
}
