//! The node's place in a pool: what it tells the registry, what the registry wants of it.
//!
//! One task registers the node and sends heartbeats; nothing else of the manager waits for it. A
//! registry that cannot be reached changes nothing for those who have a session: what it said
//! last is kept ([`Known`]), also over a restart, and questions are answered from that.
//!
//! | module | what |
//! |---|---|
//! | [`identity`] | who the node is, over restarts |
//! | [`report`] | what devices are and how busy they are |
//! | [`known`] | what the registry wants of each device |
//! | [`link`] | the task, the calls |
//! | [`moving`] | sessions that have to make way |
//! | [`permission`] | whether an image may be loaded |

mod identity;
mod known;
mod link;
mod moving;
mod permission;
mod report;

pub use identity::Identity;
pub use known::{Known, Orders};
pub(crate) use link::run;
pub use link::Link;
pub(crate) use permission::Wish;

/// An instance's mark in its session's own words, where its program is started again by whoever
/// runs it (`baltra run --restart`).
const RESTARTS: &str = " (restarts)";

/// The instance that a session says it belongs to, and whether its program is restarted when the
/// session ends. Free words are no instance.
pub(crate) fn instance(said: &str) -> Option<(&str, bool)> {
    let (name, restarts) = match said.strip_suffix(RESTARTS) {
        Some(name) => (name, true),
        None => (said, false),
    };
    baltra_api::valid_name(name).then_some((name, restarts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_an_instance_is_told_from_free_words() {
        assert_eq!(instance("web-1"), Some(("web-1", false)));
        assert_eq!(instance("web-1 (restarts)"), Some(("web-1", true)));
        assert_eq!(instance("sobel (123)"), None);
        assert_eq!(instance("(of an earlier manager)"), None);
        assert_eq!(instance(""), None);
    }
}
