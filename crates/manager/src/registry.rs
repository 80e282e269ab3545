//! The node's membership in a pool: its reports to the registry, and the registry's orders.

mod identity;
mod link;
mod moving;
mod orders;
mod permission;
mod places;
mod report;
mod sessions;

pub use identity::Identity;
pub(crate) use link::run;
pub use link::Link;
pub use orders::{NodeOrders, Orders};
pub(crate) use permission::ImageRequest;
pub(crate) use report::{regions, waiting_images};

use baltra_wire::{without_turns, PREEMPTIBLE};

/// Mark of an instance's session whose program is restarted by its supervisor (`baltra run
/// --restart`).
const RESTARTS: &str = " (restarts)";

/// When the manager may end a session in order to change its device's image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Never: the program is not an instance, so it cannot be restarted or moved.
    Never,
    /// While it has no work.
    Idle,
    /// At any time, if the registry has moved its instance: its supervisor restarts the program.
    Moved,
    /// At the end of the image's turn: the program opens another session and waits for its next
    /// turn.
    Turn,
}

impl Ending {
    /// From a session's description.
    pub fn of(description: &str) -> Ending {
        if description.ends_with(PREEMPTIBLE) {
            return Ending::Turn;
        }
        match instance(description) {
            Some(_) if description.ends_with(RESTARTS) => Ending::Moved,
            Some(_) => Ending::Idle,
            None => Ending::Never,
        }
    }
}

/// The number of turns that a preemptible session's work needs at once.
pub(crate) fn turns(description: &str) -> u32 {
    let marked = description.strip_suffix(PREEMPTIBLE);
    marked.map_or(1, |marked| without_turns(marked).1)
}

/// The instance that a session's description names; `None`: it does not name an instance.
pub(crate) fn instance(description: &str) -> Option<&str> {
    let marks = [RESTARTS, PREEMPTIBLE];
    let marked = marks.iter().find_map(|mark| description.strip_suffix(mark));
    let (name, _) = without_turns(marked.unwrap_or(description));
    baltra_api::valid_name(name).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_distinguished_from_free_text() {
        for marked in [
            "web-1",
            "web-1 (restarts)",
            "web-1 (preemptible)",
            "web-1 (turns 4) (preemptible)",
        ] {
            assert_eq!(instance(marked), Some("web-1"));
        }
        for other in ["sobel (123)", "(of an earlier manager)", ""] {
            assert_eq!(instance(other), None);
        }
    }

    #[test]
    fn a_session_ends_when_its_description_allows_it() {
        assert_eq!(Ending::of("web-1"), Ending::Idle);
        assert_eq!(Ending::of("web-1 (restarts)"), Ending::Moved);
        assert_eq!(Ending::of("web-1 (preemptible)"), Ending::Turn);
        assert_eq!(Ending::of("web-1 (turns 4) (preemptible)"), Ending::Turn);
        assert_eq!(turns("web-1 (turns 4) (preemptible)"), 4);
        for other in [
            "web-1 (preemptible)",
            "web-1 (turns 4)",
            "web-1 (turns x) (preemptible)",
        ] {
            assert_eq!(turns(other), 1);
        }
        assert_eq!(Ending::of("sobel (123)"), Ending::Never);
        assert_eq!(Ending::of("sobel (123) (restarts)"), Ending::Never);
        assert_eq!(Ending::of("gateway (123) (preemptible)"), Ending::Turn);
    }
}
