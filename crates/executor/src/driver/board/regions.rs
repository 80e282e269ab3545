//! The images that the board's regions hold, for the report to the manager.

use super::device::BoardDevice;
use baltra_board::port;
use baltra_ring::{Locked, Unpoisoned};
use baltra_wire::executor::RegionImage;
use std::sync::OnceLock;
use std::time::Duration;

/// The process's board.
static BOARD: OnceLock<&'static BoardDevice> = OnceLock::new();

/// Sets the process's board: a process loads one driver.
pub(super) fn set_board(board: &'static BoardDevice) {
    let _ = BOARD.set(board);
}

/// Whether the process drives a board.
pub fn is_board() -> bool {
    BOARD.get().is_some()
}

/// The checksum of an image that was loaded, and the digest of its bytes.
pub type LoadedImage = (u32, String);

/// The images that the board's regions hold, read from the board, and those loaded since the last
/// call; `None`: there is no board, or it does not answer.
pub fn board_regions() -> Option<(Vec<RegionImage>, Vec<LoadedImage>)> {
    let own = &BOARD.get()?.own;
    let held = own.port.held().ok()?;
    let image = |held: port::Held| RegionImage {
        region: held.region,
        checksum: held.checksum,
        function: held.function,
    };
    let mut loaded = own.loaded.images.locked();
    let loaded = std::mem::take(&mut *loaded);
    Some((held.into_iter().map(image).collect(), loaded))
}

/// Waits until an image is loaded, at most for `most`.
pub fn wait_for_load(most: Duration) {
    if let Some(board) = BOARD.get() {
        let loaded = &board.own.loaded;
        let images = loaded.images.locked();
        let waited = loaded.added.wait_timeout(images, most);
        drop(waited.unpoisoned());
    }
}
