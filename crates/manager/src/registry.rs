//! The node's membership in a pool: its reports to the registry, and the registry's orders.

mod identity;
mod link;
mod moving;
mod orders;
mod permission;
mod report;

pub use identity::Identity;
pub(crate) use link::run;
pub use link::Link;
pub use orders::{NodeOrders, Orders};
pub(crate) use permission::ImageRequest;

/// Mark of an instance's session whose program is restarted by its supervisor (`baltra run
/// --restart`).
const RESTARTS: &str = " (restarts)";

/// The instance that a session's description names, and whether its program is restarted when the
/// session ends; `None`: the description does not name an instance.
pub(crate) fn instance(description: &str) -> Option<(&str, bool)> {
    let (name, restarts) = match description.strip_suffix(RESTARTS) {
        Some(name) => (name, true),
        None => (description, false),
    };
    baltra_api::valid_name(name).then_some((name, restarts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_an_instance_is_distinguished_from_free_text() {
        assert_eq!(instance("web-1"), Some(("web-1", false)));
        assert_eq!(instance("web-1 (restarts)"), Some(("web-1", true)));
        assert_eq!(instance("sobel (123)"), None);
        assert_eq!(instance("(of an earlier manager)"), None);
        assert_eq!(instance(""), None);
    }
}
