//! Operators' orders to move sessions between devices of a node. Nothing of them is stored: an
//! order that the registry forgets at its end is given again by the operator.

use crate::check;
use crate::failure::Failure;
use baltra_api::registry::{SessionLoad, SessionMove, SessionMoved};
use std::time::Duration;
use tonic::Status;

/// Most orders of one node whose results are not reported.
const ORDERS_MAX: usize = 16;
/// Most results in a heartbeat.
const RESULTS_MAX: usize = 16;
/// Most sessions of one device in a heartbeat.
const SESSIONS_MAX: usize = 64;
/// Longest reason in a result or of an obstacle, bytes.
const REASON_BYTES_MAX: usize = 1_024;
/// A node reports the result of a move within a minute.
const ORDER_AGE_MAX: Duration = Duration::from_secs(120);

/// The orders for one node, and the results that it reported.
#[derive(Clone, Debug, Default)]
pub struct Moves {
    /// Orders without a result, with the device that the session leaves and the time.
    pending: Vec<(SessionMove, String, Duration)>,
    results: Vec<SessionMoved>,
}

impl Moves {
    /// Adds an order; returns its id.
    pub fn order(
        &mut self,
        session: u64,
        (from, to): (&str, &str),
        now: Duration,
    ) -> Result<String, Status> {
        self.forget(now);
        if from == to {
            return Err(Failure::InvalidArgument
                .status(format!("session {session} is on device '{to}' already")));
        }
        if self.pending.iter().any(|(o, ..)| o.session == session) {
            return Err(Failure::AlreadyExists.status(format!(
                "session {session} is being moved already: wait until that has ended"
            )));
        }
        if self.pending.len() >= ORDERS_MAX {
            return Err(Failure::ResourceExhausted.status(format!(
                "{ORDERS_MAX} sessions of the node are being moved, the maximum: wait until one has moved"
            )));
        }
        let mut id = [0; 8];
        getrandom::fill(&mut id)
            .map_err(|e| Failure::Internal.status(format!("cannot read random bytes: {e}")))?;
        let order = format!("{:016x}", u64::from_ne_bytes(id));
        let ordered = SessionMove {
            order: order.clone(),
            session,
            device: to.to_owned(),
        };
        self.pending.push((ordered, from.to_owned(), now));
        Ok(order)
    }

    /// Takes the results that the node reports.
    pub fn report(&mut self, results: Vec<SessionMoved>, now: Duration) {
        let is_known = |order: &str| results.iter().any(|r| r.order == order);
        self.pending.retain(|(o, ..)| !is_known(&o.order));
        self.results = results;
        self.forget(now);
    }

    fn forget(&mut self, now: Duration) {
        self.pending
            .retain(|(_, _, at)| now.saturating_sub(*at) <= ORDER_AGE_MAX);
    }

    /// The orders without a result.
    pub fn orders(&self) -> Vec<SessionMove> {
        self.pending.iter().map(|(o, ..)| o.clone()).collect()
    }

    /// The reported results, the newest last.
    pub fn results(&self) -> &[SessionMoved] {
        &self.results
    }
}

/// Checks the results in a heartbeat.
pub(crate) fn check_results(results: &[SessionMoved]) -> Result<(), Status> {
    check::count("results of moves", results.len(), RESULTS_MAX)?;
    for result in results {
        check::name("the order", &result.order)?;
        check::text("the device", &result.from)?;
        check::text("the device", &result.to)?;
        reason("the result", &result.error)?;
    }
    Ok(())
}

/// Checks a device's sessions in a heartbeat.
pub(crate) fn check_sessions(sessions: &[SessionLoad]) -> Result<(), Status> {
    check::count("sessions", sessions.len(), SESSIONS_MAX)?;
    for session in sessions {
        check::name("the tenant", &session.tenant)?;
        check::text("the program", &session.program)?;
        reason("the obstacle", &session.obstacle)?;
    }
    Ok(())
}

fn reason(what: &str, text: &str) -> Result<(), Status> {
    if text.len() <= REASON_BYTES_MAX {
        return Ok(());
    }
    Err(Failure::InvalidArgument
        .status(format!("{what} must have at most {REASON_BYTES_MAX} bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    fn result(order: &str) -> SessionMoved {
        SessionMoved {
            order: order.into(),
            ..SessionMoved::default()
        }
    }

    #[test]
    fn an_order_is_repeated_until_its_result_is_reported() {
        let mut moves = Moves::default();
        let now = Duration::from_secs(1);
        let order = moves.order(7, ("a", "b"), now).unwrap();
        let again = moves.order(7, ("a", "c"), now).unwrap_err();
        assert_eq!(again.code(), Code::AlreadyExists);
        moves.report(vec![result("0")], now);
        assert_eq!(moves.orders()[0].order, order);
        moves.report(vec![result("0"), result(&order)], now);
        assert!(moves.orders().is_empty());
        assert_eq!(moves.results().len(), 2);
        moves.order(7, ("b", "a"), now).unwrap();
    }

    #[test]
    fn orders_are_bounded_and_expire() {
        let mut moves = Moves::default();
        let now = Duration::from_secs(1);
        let there = moves.order(1, ("a", "a"), now).unwrap_err();
        assert_eq!(there.code(), Code::InvalidArgument);
        for session in 0..ORDERS_MAX as u64 {
            moves.order(session, ("a", "b"), now).unwrap();
        }
        let full = moves.order(99, ("a", "b"), now).unwrap_err();
        assert_eq!(full.code(), Code::ResourceExhausted);
        let later = now + ORDER_AGE_MAX + Duration::from_secs(1);
        moves.order(99, ("a", "b"), later).unwrap();
        assert_eq!(moves.orders().len(), 1);
    }
}
