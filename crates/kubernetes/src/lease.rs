//! Leader election: of several replicas of a daemon, the holder of a Lease leads.
//!
//! The holder renews four times in the Lease's duration and stops leading when renewals fail. Other
//! replicas take the Lease after a whole duration without a renewal, measured by their own
//! monotonic clocks, independent of other hosts' clocks.

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Duration of the Lease without a renewal.
const DURATION: Duration = Duration::from_secs(6);
/// Interval of checks and renewals.
const LOOK: Duration = Duration::from_millis(1_500);
/// A holder that could not renew for this long stops leading, before another replica may take over.
const STAND_DOWN: Duration = Duration::from_secs(4);

/// Takes part in the election while the runtime exists; the value is true while this replica leads.
pub fn lead(client: Client, namespace: &str, name: &str, identity: &str) -> watch::Receiver<bool> {
    let (leads, leading) = watch::channel(false);
    let leases: Api<Lease> = Api::namespaced(client, namespace);
    let (name, identity) = (name.to_owned(), identity.to_owned());
    tokio::spawn(async move {
        let mut seen = Seen::default();
        let mut renewed = Instant::now();
        loop {
            let look =
                tokio::time::timeout(STAND_DOWN / 2, turn(&leases, &name, &identity, &mut seen));
            match look.await {
                Ok(Ok(true)) => {
                    renewed = Instant::now();
                    if !leads.send_replace(true) {
                        tracing::info!(identity, lease = name, "leads");
                    }
                }
                Ok(Ok(false)) => {
                    if leads.send_replace(false) {
                        tracing::warn!(identity, lease = name, "another replica is the leader");
                    }
                }
                failed => {
                    if let Ok(Err(error)) = failed {
                        tracing::debug!(%error, "cannot renew the lease");
                    }
                    if renewed.elapsed() > STAND_DOWN && leads.send_replace(false) {
                        tracing::warn!(
                            identity,
                            lease = name,
                            "no longer the leader: cannot renew the lease"
                        );
                    }
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    });
    leading
}

/// The last renewal of another holder, and when it was first seen here.
#[derive(Debug, Default)]
struct Seen(Option<(String, Option<MicroTime>, Instant)>);

impl Seen {
    /// Whether the Lease may be taken: this replica holds it, it has no holder, or it has expired.
    fn may_take(&mut self, spec: &LeaseSpec, identity: &str, now: Instant) -> bool {
        let holder = spec.holder_identity.as_deref().unwrap_or_default();
        if holder.is_empty() || holder == identity {
            return true;
        }
        match &self.0 {
            Some((renewed_by, at, since)) if renewed_by == holder && *at == spec.renew_time => {
                now.saturating_duration_since(*since) > DURATION
            }
            _ => {
                self.0 = Some((holder.to_owned(), spec.renew_time.clone(), now));
                false
            }
        }
    }
}

/// Takes or renews the Lease if permitted; returns whether this replica holds it.
async fn turn(
    leases: &Api<Lease>,
    name: &str,
    identity: &str,
    seen: &mut Seen,
) -> Result<bool, kube::Error> {
    let now = MicroTime(Timestamp::now());
    let found = leases.get_opt(name).await?;
    let mut lease = found.clone().unwrap_or_default();
    lease.metadata.name = Some(name.to_owned());
    let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
    if !seen.may_take(spec, identity, Instant::now()) {
        return Ok(false);
    }
    if spec.holder_identity.as_deref() != Some(identity) {
        spec.acquire_time = Some(now.clone());
        spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0) + 1);
    }
    spec.holder_identity = Some(identity.to_owned());
    spec.lease_duration_seconds = Some(DURATION.as_secs() as i32);
    spec.renew_time = Some(now);
    let params = PostParams::default();
    let written = match found {
        None => leases.create(&params, &lease).await,
        Some(_) => leases.replace(name, &params, &lease).await,
    };
    match written {
        Ok(_) => Ok(true),
        // Another replica was faster.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(holder: &str, renewed_s: i64) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            renew_time: Some(MicroTime(Timestamp::from_second(renewed_s).unwrap())),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn another_s_lease_is_taken_only_when_it_was_not_renewed_for_its_duration() {
        let mut seen = Seen::default();
        let start = Instant::now();
        // The time in the Lease is ignored: that host's clock may be wrong.
        assert!(!seen.may_take(&spec("other", 0), "own", start));
        assert!(!seen.may_take(&spec("other", 0), "own", start + DURATION));
        assert!(!seen.may_take(&spec("other", 9), "own", start + DURATION * 2));
        assert!(!seen.may_take(&spec("other", 9), "own", start + DURATION * 3));
        assert!(seen.may_take(&spec("other", 9), "own", start + DURATION * 4));
        assert!(!seen.may_take(&spec("third", 9), "own", start + DURATION * 4));
    }

    #[test]
    fn ones_own_and_nobody_s_are_taken_at_once() {
        let mut seen = Seen::default();
        assert!(seen.may_take(&spec("own", 0), "own", Instant::now()));
        assert!(seen.may_take(&spec("", 0), "own", Instant::now()));
        assert!(seen.may_take(&LeaseSpec::default(), "own", Instant::now()));
    }
}
