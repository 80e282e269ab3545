//! Sessions that move between nodes of the pool: the registry's permission and addresses before a
//! move, and a report of the new device after it.
//!
//! A report that the registry does not accept now is sent again with the next heartbeats. It is not
//! stored: the next manager reports the sessions on other nodes that it adopts.

use super::Link;
use crate::node::{Node, SessionRecord};
use baltra_api::registry as proto;
use baltra_ring::Locked;
use std::collections::VecDeque;
use std::sync::Mutex;
use tonic::{Code, Status};

/// Most reports that wait for the registry; the oldest ones are given up.
const REPORTS_MAX: usize = 256;
/// Maximum number of reports of a device that the registry does not have: its node may join again.
const TRIES_MAX: u32 = 60;

/// Reports that the registry does not have yet, the oldest first, and how often each was refused.
#[derive(Default)]
pub(super) struct PendingReports(Mutex<VecDeque<(proto::SessionPlacedRequest, u32)>>);

impl PendingReports {
    fn add(&self, report: proto::SessionPlacedRequest) {
        let mut reports = self.0.locked();
        if reports.len() >= REPORTS_MAX {
            reports.pop_front();
        }
        reports.push_back((report, 0));
    }

    /// The oldest report.
    pub fn first(&self) -> Option<proto::SessionPlacedRequest> {
        self.0.locked().front().map(|(report, _)| report.clone())
    }

    /// Takes the registry's answer to the oldest report; returns whether to send the next one.
    pub fn answered<T>(&self, answer: &Result<T, Status>) -> bool {
        let mut reports = self.0.locked();
        let Some((report, tries)) = reports.front_mut() else {
            return false;
        };
        let error = answer.as_ref().err();
        *tries += 1;
        let is_final = match error.map(Status::code) {
            None => true,
            Some(Code::NotFound) => *tries >= TRIES_MAX,
            Some(code) => matches!(
                code,
                Code::InvalidArgument | Code::PermissionDenied | Code::Unimplemented
            ),
        };
        if let Some(error) = error.filter(|_| is_final) {
            let (instance, to) = (&report.instance, &report.to);
            let why = error.message();
            tracing::warn!(instance, to, why, "the registry does not record a move");
        }
        if is_final {
            reports.pop_front();
        }
        is_final
    }
}

impl Node {
    /// The endpoints of a device's node, if the registry lets a session move there; the error is the
    /// reason if not.
    pub(crate) fn session_target(
        &self,
        link: &Link,
        record: &SessionRecord,
        to: &str,
    ) -> Result<Vec<String>, String> {
        let (node, id) = link.node_identity(self);
        let request = proto::SessionTargetRequest {
            node,
            id,
            instance: super::instance(&record.instance)
                .unwrap_or_default()
                .to_owned(),
            tenant: self.owner(&record.tenant),
            to: to.to_owned(),
        };
        let answer = link.call(|mut nodes| async move { nodes.session_target(request).await });
        match answer {
            Ok(target) if target.refusal.is_empty() => Ok(target.endpoints),
            Ok(target) => Err(target.refusal),
            Err(error) => Err(match error.code() {
                Code::Unimplemented => format!(
                    "the registry at {} is of a release that does not move sessions between \
                     nodes: name the node's address, tls://HOST:PORT/NAME",
                    link.url
                ),
                Code::Unavailable | Code::DeadlineExceeded => format!(
                    "cannot reach the registry at {} ({}): try again later, or name the node's \
                     address, tls://HOST:PORT/NAME",
                    link.url,
                    error.message()
                ),
                _ => error.message().to_owned(),
            }),
        }
    }

    /// Reports that a session of an instance has moved. Both devices are node/name, or an endpoint
    /// of a node and a name.
    pub(crate) fn report_place(&self, session: u64, record: &SessionRecord, from: &str, to: &str) {
        let is_there = |other: &SessionRecord| {
            other.instance == record.instance
                && other.tenant == record.tenant
                && self.place_of(other) == from
        };
        let sessions = self.sessions();
        let shared = sessions
            .iter()
            .any(|(id, other)| *id != session && is_there(other));
        drop(sessions);
        self.report_move(record, (from, to), shared);
    }

    /// Reports where an adopted session is, which its former manager may not have done. Others of
    /// its instance may be on the former device: they are adopted later.
    pub(crate) fn report_adopted(&self, record: &SessionRecord) {
        let (from, to) = (self.pool_name(&record.device), self.place_of(record));
        self.report_move(record, (&from, &to), true);
    }

    fn report_move(&self, record: &SessionRecord, (from, to): (&str, &str), shared: bool) {
        let Some(link) = &self.registry else {
            return;
        };
        let Some(instance) = super::instance(&record.instance).filter(|_| from != to) else {
            return;
        };
        let (node, id) = link.node_identity(self);
        link.places.add(proto::SessionPlacedRequest {
            node,
            id,
            instance: instance.to_owned(),
            tenant: self.owner(&record.tenant),
            from: from.to_owned(),
            to: to.to_owned(),
            shared,
        });
        link.urge();
    }

    /// Where a session is: node/name, or an endpoint of another node and a name.
    pub(crate) fn place_of(&self, record: &SessionRecord) -> String {
        let own = || self.pool_name(&record.device);
        record.remote.clone().unwrap_or_else(own)
    }

    /// The name in the pool of a device of this node.
    pub(crate) fn pool_name(&self, device: &str) -> String {
        format!("{}/{device}", self.options.node.name)
    }

    /// The tenant that the registry has for a session.
    fn owner(&self, tenant: &str) -> String {
        let found = self.tenants.get(tenant);
        found.map_or(tenant.to_owned(), |found| found.owner().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(instance: &str) -> proto::SessionPlacedRequest {
        proto::SessionPlacedRequest {
            instance: instance.into(),
            ..proto::SessionPlacedRequest::default()
        }
    }

    fn first(places: &PendingReports) -> Option<String> {
        places.first().map(|report| report.instance)
    }

    #[test]
    fn a_report_is_repeated_until_the_registry_answers() {
        let places = PendingReports::default();
        places.add(report("a"));
        places.add(report("b"));
        let lost: Result<(), Status> = Err(Status::unavailable("gone"));
        assert!(!places.answered(&lost) && !places.answered(&lost));
        assert_eq!(first(&places).as_deref(), Some("a"));
        assert!(places.answered(&Ok(())));
        assert_eq!(first(&places).as_deref(), Some("b"));
        let refused: Result<(), Status> = Err(Status::permission_denied("not yours"));
        assert!(places.answered(&refused));
        assert_eq!(first(&places), None);
        assert!(!places.answered(&Ok(())));
    }

    #[test]
    fn reports_of_unknown_devices_and_too_many_reports_are_given_up() {
        let places = PendingReports::default();
        places.add(report("a"));
        let unknown: Result<(), Status> = Err(Status::not_found("no such device"));
        for _ in 1..TRIES_MAX {
            assert!(!places.answered(&unknown));
        }
        assert!(places.answered(&unknown));
        assert_eq!(first(&places), None);
        for n in 0..=REPORTS_MAX {
            places.add(report(&n.to_string()));
        }
        assert_eq!(first(&places).as_deref(), Some("1"));
    }
}
