//! Kernels that are compiled from OpenCL C, in the board's regions. Their buffers lie in board memory;
//! the window has a copy, which is brought up to date when the host needs it.

use super::device::BoardDevice;
use crate::driver::builtin::memory::{Piece, Twin, UNIT};
use crate::driver::builtin::transfer::Result;
use crate::driver::builtin::{chain, may_log};
use crate::driver::cancel;
use crate::driver::emulate::block::{Block, Bound};
use crate::driver::emulate::faults::{failed, faulted};
use crate::driver::output;
use baltra_board::accelerator::manifest::{self, Manifest};
use baltra_board::port::{self, Buffer, Error, Launch};
use baltra_opencl::*;
use baltra_ring::Locked;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};

/// Bytes of the configuration data that a region's logic would have.
const CONFIGURATION_BYTES: u64 = 128 << 10;
/// Of the window, for a launch and its text.
const SCRATCH_BYTES: u64 = 64 << 10;

/// A program's circuits.
pub struct BoardProgram {
    board: &'static BoardDevice,
    library: OwnedFd,
    /// Their order is that of the library.
    names: Vec<String>,
    /// The board's numbers of those that have been launched.
    numbers: Mutex<HashMap<String, u32>>,
}

impl BoardProgram {
    /// A simulation library's kernels.
    pub fn new(
        board: &'static BoardDevice,
        library: OwnedFd,
        manifest: &Manifest,
    ) -> std::result::Result<BoardProgram, String> {
        refuse_channels(manifest)?;
        let names: Vec<_> = manifest.kernels.iter().map(|k| k.name.clone()).collect();
        let brought = BoardProgram {
            board,
            library,
            names,
            numbers: Mutex::default(),
        };
        // The first one at once: a build that the board refuses fails.
        if let Some(name) = brought.names.first() {
            brought.number(name).map_err(|error| chain(&error))?;
        }
        Ok(brought)
    }

    fn number(&self, name: &str) -> std::result::Result<u32, Error> {
        let mut numbers = self.numbers.locked();
        if let Some(number) = numbers.get(name) {
            return Ok(*number);
        }
        let at = self.names.iter().position(|known| known == name);
        let at = at.ok_or_else(|| Error::Unknown(format!("no kernel '{name}'")))?;
        let port = &self.board.own.port;
        let number = port.bring(self.library.as_fd(), at as u32, CONFIGURATION_BYTES)?;
        numbers.insert(name.to_owned(), number);
        Ok(number)
    }

    /// Runs a kernel to its end; the durations are those of the call and of the kernel.
    pub fn launch(&self, kernel: &manifest::Kernel, block: &Block) -> Result<(u64, u64)> {
        let refused = |error: Error| {
            if may_log() {
                tracing::warn!(kernel = kernel.name, %error, "a launch on the board failed");
            }
            match error {
                Error::Lost(_) => CL_DEVICE_NOT_AVAILABLE,
                Error::Full(_) => CL_MEM_OBJECT_ALLOCATION_FAILURE,
                _ => CL_OUT_OF_RESOURCES,
            }
        };
        let number = self.number(&kernel.name).map_err(refused)?;
        let mut buffers = Vec::new();
        for bound in &block.buffers {
            buffers.push(self.place(bound).map_err(refused)?);
        }
        let scratch = self.board.memory.take(SCRATCH_BYTES);
        let scratch = scratch.ok_or(CL_OUT_OF_RESOURCES)?;
        let port = &self.board.own.port;
        let launch = Launch {
            number,
            words: &block.words,
            buffers: &buffers,
            scratch: (scratch.offset, SCRATCH_BYTES),
            timeout: 0,
        };
        match port.launch(&launch, &cancel::is_requested) {
            Ok((done, text)) => {
                if !text.is_empty() {
                    output::of_thread()(&text);
                }
                let khz = u64::from(port.about.clock_khz.max(1));
                let ns = |cycles: u32| u64::from(cycles) * 1_000_000 / khz;
                Ok((ns(done.cycles), ns(done.kernel_cycles)))
            }
            Err(Error::Fault {
                buffer,
                offset,
                is_write,
            }) => {
                let at = (buffer as usize).wrapping_sub(1);
                faulted(kernel, block, at, offset, is_write);
                Err(CL_OUT_OF_RESOURCES)
            }
            Err(Error::Failed(status)) => {
                failed(kernel, status);
                Err(CL_OUT_OF_RESOURCES)
            }
            Err(error) => Err(refused(error)),
        }
    }

    /// A buffer's place in board memory, with its present bytes.
    fn place(&self, bound: &Bound) -> std::result::Result<Buffer, Error> {
        let Some((piece, origin, bytes)) = &bound.place else {
            return Ok(Buffer {
                address: 0,
                bytes: 0,
                is_writable: false,
            });
        };
        let address = in_board(self.board, piece, bound.is_writable)?;
        Ok(Buffer {
            address: address + *origin as u32,
            bytes: *bytes as u64,
            is_writable: bound.is_writable,
        })
    }
}

/// Refuses kernels with channels.
fn refuse_channels(manifest: &Manifest) -> std::result::Result<(), String> {
    let mut kernels = manifest.kernels.iter();
    match kernels.find_map(|k| Some((k, k.channels.first()?))) {
        None => Ok(()),
        Some((kernel, channel)) => Err(format!(
            "error: kernel '{}' uses channel '{}': nothing connects the regions of a board \
             (use an emulated device)\n",
            kernel.name, channel.name
        )),
    }
}

impl Drop for BoardProgram {
    fn drop(&mut self) {
        let numbers = self.numbers.locked();
        for number in numbers.values() {
            // Fails only if the board has disconnected, which unloads the kernel too.
            let _ = self.board.own.port.unload(*number);
        }
    }
}

/// The place that has the latest bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Latest {
    Window,
    Board,
    Both,
}

/// A piece of the window with a place in board memory.
struct InBoard {
    board: &'static BoardDevice,
    offset: u64,
    bytes: u64,
    address: u32,
    latest: Mutex<Latest>,
}

impl InBoard {
    /// The board's bytes are the present ones afterwards. `is_written`: and those of the window are
    /// outdated.
    fn push(&self, is_written: bool) -> std::result::Result<(), Error> {
        let mut latest = self.latest.locked();
        if *latest == Latest::Window {
            let port = &self.board.own.port;
            port.put(self.offset, self.address, self.bytes)?;
            *latest = Latest::Both;
        }
        if is_written {
            *latest = Latest::Board;
        }
        Ok(())
    }
}

impl Twin for InBoard {
    fn fetch(&self, is_written: bool) -> bool {
        let mut latest = self.latest.locked();
        if *latest == Latest::Board {
            let port = &self.board.own.port;
            if let Err(error) = port.get(self.offset, self.address, self.bytes) {
                tracing::warn!(%error, "a buffer cannot be read from the board");
                return false;
            }
            *latest = Latest::Both;
        }
        if is_written {
            *latest = Latest::Window;
        }
        true
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

impl Drop for InBoard {
    fn drop(&mut self) {
        // Fails only if the board has disconnected.
        let _ = self.board.own.port.give(self.address);
    }
}

/// The address of a piece in board memory, where its bytes are up to date afterwards.
fn in_board(
    board: &'static BoardDevice,
    piece: &Arc<Piece>,
    is_written: bool,
) -> std::result::Result<u32, port::Error> {
    if piece.twin.get().is_none() {
        let bytes = (piece.range.len() as u64).next_multiple_of(UNIT);
        let made = InBoard {
            board,
            offset: piece.offset,
            bytes,
            address: board.own.port.take(bytes)?,
            latest: Mutex::new(Latest::Window),
        };
        // Another queue's launch may have been first: the place is given back.
        let _ = piece.twin.set(Box::new(made));
    }
    let twin = piece
        .twin
        .get()
        .and_then(|twin| twin.as_any().downcast_ref());
    let twin: &InBoard = twin.expect("all twins of a board's pieces are in the board");
    twin.push(is_written)?;
    Ok(twin.address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use baltra_board::accelerator::manifest::{Channel, Kernel};

    #[test]
    fn kernels_with_channels_are_refused_with_their_names() {
        let mut manifest = Manifest {
            kernels: vec![Kernel {
                name: "send".to_owned(),
                ..Kernel::default()
            }],
            ..Manifest::default()
        };
        assert_eq!(refuse_channels(&manifest), Ok(()));
        manifest.kernels[0].channels.push(Channel {
            name: "c[1]".to_owned(),
            ..Channel::default()
        });
        let error = refuse_channels(&manifest).unwrap_err();
        assert!(
            error.contains("'send'") && error.contains("'c[1]'"),
            "{error}"
        );
    }
}
