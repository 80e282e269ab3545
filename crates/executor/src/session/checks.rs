//! Checks of a command's ranges and patterns.

use super::objects::Memory;
use super::pixels;
use crate::driver::Code;
use baltra_opencl::*;

/// `len` bytes from `offset` on are in an object of `size` bytes.
pub fn check_range(offset: u64, len: u64, size: u64) -> Result<(), Code> {
    match offset.checked_add(len) {
        Some(end) if len > 0 && end <= size => Ok(()),
        _ => Err(CL_INVALID_VALUE),
    }
}

/// The pattern has a length that OpenCL allows, of which `len` is a multiple.
pub fn check_pattern(pattern: &[u8], len: u64) -> Result<(), Code> {
    let unit = pattern.len();
    if !unit.is_power_of_two() || unit > 128 || !len.is_multiple_of(unit as u64) {
        return Err(CL_INVALID_VALUE);
    }
    Ok(())
}

/// The pixels of a box of the image fit into the buffer from `offset` on.
pub fn check_pixels(
    image: &Memory,
    buffer: &Memory,
    size: [u64; 3],
    offset: u64,
) -> Result<(), Code> {
    let bytes = pixels::volume(size).and_then(|v| v.checked_mul(image.pixel_bytes));
    check_range(offset, bytes.ok_or(CL_INVALID_VALUE)?, buffer.size)
}
