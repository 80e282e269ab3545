//! The policy by which images share devices that hold one image at a time. No I/O and no clock:
//! the registry, the Device Manager and the simulator pass times of their own monotonic clocks.
//!
//! - [`Value`]: the value of keeping an image, by which the registry chooses the image that gives
//!   way: its recent uses times the time to load it again.
//! - [`Images`]: a device's measurements of its images, and from them the length of a turn
//!   ([`Turn`]) while other images wait.
//! - [`turn_max`]: the bound on a turn that keeps every image's wait within the operator's limit.
//!   Images wait in the order of their first request, so that none starves.
#![forbid(unsafe_code)]

mod images;
mod turn;
mod value;

pub use images::{Images, IMAGES_MAX};
pub use turn::{turn_max, Options, Turn, Waiting, TURN_MIN};
pub use value::{Decayed, Value, HALF_LIFE};
