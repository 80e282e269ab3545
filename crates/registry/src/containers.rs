//! Functions that run in containers: endpoints for gateways, and orders to start or stop
//! containers.
//!
//! A controller reports the containers and receives the ones to start and stop; gateways report
//! their calls and receive endpoints for them. Reports repeat, so all state is kept in memory only.
//!
//! A container is never stopped during a call. After its idle time it is *closing* first: gateways
//! no longer receive its endpoints. Each reply to a gateway has a number, which the gateway's next
//! report repeats, so a report after the closing that counts no call proves that there is none. A
//! gateway that loses contact drops its endpoints by itself ([`SILENT`]), and its calls end by
//! their time limit.

use crate::check;
use crate::failure::Failure;
use baltra_api::registry as proto;
use std::collections::HashMap;
use std::time::Duration;
use tonic::Status;

/// A gateway without a report for this long is silent. It uses received endpoints for a shorter
/// time (gateways: 3 s).
const SILENT: Duration = Duration::from_secs(5);
/// The longest time limit of a call.
const TIMEOUT_MAX: Duration = Duration::from_secs(3600);
/// The longest idle time: a month.
const IDLE_MAX: Duration = Duration::from_secs(31 * 24 * 3600);
const CONTAINERS_MAX: usize = 10_000;
const ENDPOINTS_MAX: usize = 1_000;
const GATEWAYS_MAX: usize = 1_000;

/// The reported state of containers and gateways.
#[derive(Debug)]
pub(crate) struct Containers {
    containers: HashMap<String, Container>,
    gateways: HashMap<String, Gateway>,
    /// Number of the last reply or closing.
    number: u64,
}

#[derive(Debug)]
struct Container {
    endpoints: Vec<String>,
    idle: Duration,
    timeout: Duration,
    /// Time of the last reported call.
    active: Duration,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Gateways receive its endpoints.
    Open,
    /// Gateways receive no endpoints from this number on; calls in progress may end.
    Closing(u64),
    /// The controller shall stop it.
    Stopping,
    /// It was stopped and has not been called since.
    Stopped,
}

#[derive(Debug, Default)]
struct Gateway {
    last_report: Duration,
    /// Number of the last reply that the gateway received.
    seen: u64,
    /// By function: calls waiting or running, and the total of calls begun.
    calls: HashMap<String, (u32, u64)>,
}

impl Gateway {
    fn calls(&self, name: &str) -> u32 {
        self.calls.get(name).map_or(0, |c| c.0)
    }
}

impl Containers {
    /// Creates an empty state. Numbers start after `number`, which must exceed all numbers of
    /// earlier registries.
    pub(crate) fn new(number: u64) -> Containers {
        Containers {
            containers: HashMap::new(),
            gateways: HashMap::new(),
            number,
        }
    }

    fn next(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Applies a controller's report at `now` (time since the registry's start). Returns its
    /// orders, in the report's order.
    pub(crate) fn update(
        &mut self,
        now: Duration,
        request: proto::ContainersRequest,
    ) -> Result<proto::ContainersReply, Status> {
        check::count("containers", request.containers.len(), CONTAINERS_MAX)?;
        for update in &request.containers {
            check::name("the function", &update.name)?;
            check::count("endpoints", update.endpoints.len(), ENDPOINTS_MAX)?;
            for endpoint in &update.endpoints {
                check::text("the endpoint", endpoint)?;
            }
            let (idle, timeout) = times(update);
            if timeout.is_zero() || timeout > TIMEOUT_MAX || idle > IDLE_MAX {
                return Err(Failure::InvalidArgument.status(format!(
                    "'{}': timeout_ms must be 1 to {}, and idle_ms at most {}",
                    update.name,
                    TIMEOUT_MAX.as_millis(),
                    IDLE_MAX.as_millis()
                )));
            }
        }
        let mut before = std::mem::take(&mut self.containers);
        let mut orders = Vec::with_capacity(request.containers.len());
        for update in request.containers {
            let (idle, timeout) = times(&update);
            let existing = before.remove(&update.name);
            let container = Container {
                endpoints: update.endpoints,
                idle,
                timeout,
                active: existing.as_ref().map_or(now, |k| k.active),
                phase: existing.map_or(Phase::Open, |k| k.phase),
            };
            orders.push(self.step(now, update.name, container));
        }
        Ok(proto::ContainersReply { orders })
    }

    fn step(
        &mut self,
        now: Duration,
        name: String,
        mut container: Container,
    ) -> proto::ContainerOrder {
        let calls: u32 = self.gateways.values().map(|g| g.calls(&name)).sum();
        let idle = now.saturating_sub(container.active);
        let wanted = calls > 0 || idle < container.idle;
        let empty = container.endpoints.is_empty();
        container.phase = match container.phase {
            Phase::Open if !wanted => Phase::Closing(self.next()),
            Phase::Closing(_) if wanted => Phase::Open,
            Phase::Closing(number) if self.quiet(now, &name, number, container.timeout) => {
                Phase::Stopping
            }
            Phase::Stopping if empty => Phase::Stopped,
            // It was called, or another component started it.
            Phase::Stopped if calls > 0 || !empty => {
                container.active = now;
                Phase::Open
            }
            phase => phase,
        };
        let (state, stop) = match container.phase {
            Phase::Open if !empty => ("serving", false),
            Phase::Open if calls > 0 => ("starting", false),
            Phase::Open => ("idle", false),
            Phase::Closing(_) => ("closing", false),
            Phase::Stopping => ("stopping", true),
            Phase::Stopped => ("stopped", false),
        };
        let order = proto::ContainerOrder {
            name: name.clone(),
            state: state.to_owned(),
            start: state == "starting",
            stop,
            calls,
            idle_ms: idle.as_millis() as u64,
        };
        self.containers.insert(name, container);
        order
    }

    /// Whether no gateway has or can have a call of a closing container.
    fn quiet(&self, now: Duration, name: &str, number: u64, timeout: Duration) -> bool {
        let over = |since: Duration| now.saturating_sub(since) > timeout + SILENT;
        // A registry that has just started has no gateways' reports yet.
        over(Duration::ZERO)
            && self.gateways.values().all(|gateway| {
                let silent = now.saturating_sub(gateway.last_report) > SILENT;
                if silent {
                    over(gateway.last_report)
                } else {
                    gateway.seen > number && gateway.calls(name) == 0
                }
            })
    }

    /// Applies a gateway's report of calls. Returns the containers' endpoints.
    pub(crate) fn report_calls(
        &mut self,
        now: Duration,
        request: proto::CallsRequest,
    ) -> Result<proto::CallsReply, Status> {
        check::name("the gateway", &request.gateway)?;
        check::count("functions", request.functions.len(), CONTAINERS_MAX)?;
        self.gateways
            .retain(|_, g| now.saturating_sub(g.last_report) <= TIMEOUT_MAX + SILENT);
        if self.gateways.len() >= GATEWAYS_MAX && !self.gateways.contains_key(&request.gateway) {
            return Err(Failure::ResourceExhausted
                .status(format!("too many gateways: at most {GATEWAYS_MAX}")));
        }
        let gateway = self.gateways.entry(request.gateway).or_default();
        gateway.last_report = now;
        gateway.seen = request.seen;
        let before = std::mem::take(&mut gateway.calls);
        for update in request.functions {
            if let Some(container) = self.containers.get_mut(&update.name) {
                let begun = before.get(&update.name).map_or(0, |b| b.1);
                if update.calls > 0 || update.begun != begun {
                    container.active = now;
                }
                if update.calls > 0 && matches!(container.phase, Phase::Closing(_)) {
                    container.phase = Phase::Open;
                }
            }
            gateway
                .calls
                .insert(update.name, (update.calls, update.begun));
        }
        let containers = self.containers.iter().map(|(name, c)| proto::Container {
            name: name.clone(),
            endpoints: match c.phase {
                Phase::Open => c.endpoints.clone(),
                _ => Vec::new(),
            },
            idle_ms: c.idle.as_millis() as u64,
            timeout_ms: c.timeout.as_millis() as u64,
        });
        let containers = containers.collect();
        Ok(proto::CallsReply {
            number: self.next(),
            containers,
        })
    }
}

fn times(update: &proto::Container) -> (Duration, Duration) {
    (
        Duration::from_millis(update.idle_ms),
        Duration::from_millis(update.timeout_ms),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "edges.red";
    /// A time long after the start.
    const BEGIN: Duration = Duration::from_secs(100);

    fn s(seconds: u64) -> Duration {
        BEGIN + Duration::from_secs(seconds)
    }

    fn update(all: &mut Containers, now: Duration, endpoints: &[&str]) -> proto::ContainerOrder {
        let container = proto::Container {
            name: NAME.into(),
            endpoints: endpoints.iter().map(|e| (*e).to_owned()).collect(),
            idle_ms: 10_000,
            timeout_ms: 20_000,
        };
        let request = proto::ContainersRequest {
            containers: vec![container],
        };
        all.update(now, request).unwrap().orders.remove(0)
    }

    /// Sends a gateway's report of `calls` after reply `seen`. Returns the reply's number and the
    /// endpoints.
    fn report(all: &mut Containers, now: Duration, seen: u64, calls: u32) -> (u64, Vec<String>) {
        let request = proto::CallsRequest {
            gateway: "g".into(),
            seen,
            functions: vec![proto::CallCount {
                name: NAME.into(),
                calls,
                begun: calls.into(),
            }],
        };
        let mut reply = all.report_calls(now, request).unwrap();
        (reply.number, reply.containers.remove(0).endpoints)
    }

    #[test]
    fn a_call_starts_it_and_idleness_stops_it() {
        let mut all = Containers::new(0);
        assert_eq!(update(&mut all, s(0), &[]).state, "idle");
        // Idle from the beginning: the controller ensures that it is stopped.
        assert_eq!(update(&mut all, s(10), &[]).state, "closing");
        assert!(update(&mut all, s(11), &[]).stop);
        assert_eq!(update(&mut all, s(12), &[]).state, "stopped");
        let (seen, at) = report(&mut all, s(13), 0, 1);
        assert!(at.is_empty());
        let order = update(&mut all, s(13), &[]);
        assert!(order.start && order.calls == 1, "{order:?}");
        assert_eq!(update(&mut all, s(14), &["10.0.0.1:80"]).state, "serving");
        let (seen, at) = report(&mut all, s(14), seen, 1);
        assert_eq!(at, ["10.0.0.1:80"]);
        let (seen, _) = report(&mut all, s(15), seen, 0);
        // The last call counts from the report in which the number of begun calls changed.
        assert_eq!(update(&mut all, s(24), &["10.0.0.1:80"]).state, "serving");
        assert_eq!(update(&mut all, s(25), &["10.0.0.1:80"]).state, "closing");
        let (seen, at) = report(&mut all, s(25), seen, 0);
        assert!(at.is_empty());
        // That report precedes the reply that announced the closing.
        assert_eq!(update(&mut all, s(26), &["10.0.0.1:80"]).state, "closing");
        report(&mut all, s(26), seen, 0);
        assert!(update(&mut all, s(26), &["10.0.0.1:80"]).stop);
        // Calls are not sent there until it has stopped.
        report(&mut all, s(27), seen, 1);
        assert!(update(&mut all, s(27), &["10.0.0.1:80"]).stop);
        assert!(report(&mut all, s(27), seen, 1).1.is_empty());
        assert_eq!(update(&mut all, s(28), &[]).state, "stopped");
        assert!(update(&mut all, s(28), &[]).start);
    }

    #[test]
    fn it_is_not_stopped_under_a_call() {
        let mut all = Containers::new(0);
        update(&mut all, s(0), &["10.0.0.1:80"]);
        let (seen, _) = report(&mut all, s(0), 0, 0);
        assert_eq!(update(&mut all, s(10), &["10.0.0.1:80"]).state, "closing");
        // A call that began meanwhile opens it again, also for the calling gateway.
        assert_eq!(report(&mut all, s(11), seen, 1).1.len(), 1);
        assert_eq!(update(&mut all, s(11), &["10.0.0.1:80"]).state, "serving");
        // A silent gateway may have calls until their time limit.
        assert_eq!(update(&mut all, s(11), &["10.0.0.1:80"]).calls, 1);
    }

    #[test]
    fn a_silent_gateway_is_waited_for() {
        let mut all = Containers::new(0);
        update(&mut all, s(0), &["10.0.0.1:80"]);
        report(&mut all, s(0), 0, 0);
        assert_eq!(update(&mut all, s(10), &["10.0.0.1:80"]).state, "closing");
        assert_eq!(update(&mut all, s(25), &["10.0.0.1:80"]).state, "closing");
        assert!(update(&mut all, s(26), &["10.0.0.1:80"]).stop);
    }

    #[test]
    fn a_registry_that_has_just_started_stops_nothing() {
        let mut all = Containers::new(0);
        let at = Duration::from_secs;
        update(&mut all, at(0), &["10.0.0.1:80"]);
        assert_eq!(update(&mut all, at(10), &["10.0.0.1:80"]).state, "closing");
        assert_eq!(update(&mut all, at(25), &["10.0.0.1:80"]).state, "closing");
        assert!(update(&mut all, at(26), &["10.0.0.1:80"]).stop);
    }

    #[test]
    fn what_is_beyond_bounds_is_refused() {
        let mut all = Containers::new(0);
        let container = proto::Container {
            name: NAME.into(),
            ..proto::Container::default()
        };
        let request = proto::ContainersRequest {
            containers: vec![container],
        };
        let status = all.update(s(0), request).unwrap_err();
        assert!(status.message().contains("timeout_ms"), "{status}");
    }
}
