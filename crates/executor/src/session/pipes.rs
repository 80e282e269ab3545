//! Pipes. Their contents are the driver's: no command reads them, so that a pipe stays where it is.

use super::objects::{Memory, ObjectLocation};
use super::Session;
use crate::driver::Code;
use baltra_board::accelerator::PIPE_HEADER_BYTES;
use baltra_opencl::*;
use baltra_wire::{Id, PipeShape};
use std::sync::Arc;

impl Session {
    /// `clCreatePipe`.
    pub(super) fn make_pipe(&self, context: Id, shape: PipeShape) -> Result<Arc<Memory>, Code> {
        let context = self.objects.context(context)?;
        let PipeShape {
            packet_bytes,
            packets,
        } = shape;
        if packet_bytes == 0 || packets == 0 {
            return Err(CL_INVALID_PIPE_SIZE);
        }
        let bytes = u64::from(packet_bytes) * u64::from(packets);
        // Other drivers have no or other headers.
        let charge = self.charge(bytes + PIPE_HEADER_BYTES)?;
        let mem = self.allocate(|| context.context.pipe(packet_bytes, packets))?;
        Ok(Arc::new(Memory {
            is_pipe: true,
            _charge: Some(charge),
            ..Memory::new(ObjectLocation::Fixed(Arc::new(mem)), context, bytes)
        }))
    }
}
