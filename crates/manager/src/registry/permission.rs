//! Permission to change a device's image, from the registry or from its last orders.

use super::{moving, Ending, Link};
use crate::configuration::Error;
use crate::node::{Device, Node};
use baltra_api::registry as proto;
use baltra_wire::TURN_ENDED;
use std::sync::Arc;
use std::time::Duration;
use tonic::Code;

/// Interval at which a waiting image checks whether it is next.
const WAIT_STEP: Duration = Duration::from_millis(5);

/// A session's request for a change of a device's image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImageRequest<'a> {
    /// The program's session.
    pub session: u64,
    /// Its image.
    pub digest: &'a str,
}

/// A permitted change.
pub(crate) struct Answer {
    /// Sessions that end before it.
    pub leaving: Vec<u64>,
    /// The registry that expects a report of the result, and the region.
    report_to: Option<(Arc<Link>, u32)>,
}

/// The instance and tenant that request a change.
struct Requester {
    instance: String,
    tenant: String,
}

impl Node {
    /// Whether a change is possible, before the image is fetched for it: the registry is called
    /// only if its last orders do not decide.
    pub(crate) fn prospect(
        &self,
        device: &Device,
        requested: ImageRequest<'_>,
    ) -> Result<(), String> {
        if let (Some(link), Some(who)) = (&self.registry, self.requester(requested.session)) {
            if link.is_allocated(device.name(), &who.instance, &who.tenant) {
                return self.in_the_way(device, requested).map(|_| ());
            }
        }
        self.permission(device, requested).map(|_| ())
    }

    /// Sessions that a change would end; an error if one of them may not be ended.
    fn in_the_way(&self, device: &Device, requested: ImageRequest<'_>) -> Result<Vec<u64>, String> {
        moving::count_use(self, device);
        let others = device
            .configuration
            .others(Some(requested.session), requested.digest);
        let stay = match &self.registry {
            None => {
                let stays = |(id, _): &&(u64, String)| {
                    moving::ending(self, *id).is_some_and(|ending| ending != Ending::Turn)
                };
                others.iter().filter(stays).cloned().collect()
            }
            Some(_) => moving::busy(self, device, &others),
        };
        if stay.is_empty() {
            Ok(others.into_iter().map(|(session, _)| session).collect())
        } else {
            Err(in_use(device, stay))
        }
    }

    /// The instance of a session by its own description, and its tenant, which a client cannot
    /// choose; `None`: the session is not an instance's.
    fn requester(&self, session: u64) -> Option<Requester> {
        let open = self.sessions();
        let record = open.get(&session)?;
        let instance = super::instance(&record.instance)?;
        let tenant = self.tenants.get(&record.tenant);
        Some(Requester {
            instance: instance.to_owned(),
            tenant: tenant.map_or(record.tenant.clone(), |t| t.owner().to_owned()),
        })
    }

    fn request(
        &self,
        link: &Link,
        device: &Device,
        who: &Requester,
        digest: &str,
    ) -> proto::ReconfigurationRequest {
        let (node, id) = link.node_identity(self);
        proto::ReconfigurationRequest {
            node,
            id,
            device: device.name().to_owned(),
            instance: who.instance.clone(),
            digest: digest.to_owned(),
            name: self.images.name(digest).unwrap_or_default(),
            region: None,
            tenant: who.tenant.clone(),
        }
    }

    /// Requests permission to change a device's image for a session; the error is for the owner of
    /// its program. Without a registry every change is permitted that ends no session; with one, so
    /// it is for a program that is not an instance, on a device that is not allocated.
    pub(crate) fn permission(
        &self,
        device: &Device,
        requested: ImageRequest<'_>,
    ) -> Result<Answer, String> {
        let leaving = self.in_the_way(device, requested)?;
        let held = device.configuration.image().as_deref() == Some(requested.digest);
        let Some(link) = self.registry.as_ref().filter(|_| !held) else {
            return Ok(Answer {
                leaving,
                report_to: None,
            });
        };
        let Some(who) = self.requester(requested.session) else {
            return match link.holders(device.name()) {
                none if none.is_empty() => Ok(Answer {
                    leaving,
                    report_to: None,
                }),
                holders => Err(allocated(device, &holders)),
            };
        };
        let request = self.request(link, device, &who, requested.digest);
        let reply = link.call(|mut nodes| async move { nodes.reconfiguration(request).await });
        match reply {
            Ok(reply) if reply.allowed => {
                link.moved(&self.options.node.name, device.name(), &reply.migrations);
                let answer = Answer {
                    leaving,
                    report_to: Some((link.clone(), reply.region)),
                };
                self.checked(device, requested, answer)
            }
            Ok(reply) => Err(reply.reason),
            Err(error) if is_decision(error.code()) => Err(error.message().to_owned()),
            Err(error) => {
                let known = link.is_allocated(device.name(), &who.instance, &who.tenant);
                if known && leaving.is_empty() {
                    Ok(Answer {
                        leaving,
                        report_to: None,
                    })
                } else {
                    Err(unknown(device, link, error.message()))
                }
            }
        }
    }

    /// A change that the registry permits, unless it ends a session of an instance that keeps this
    /// device and does not take turns on it.
    fn checked(
        &self,
        device: &Device,
        requested: ImageRequest<'_>,
        answer: Answer,
    ) -> Result<Answer, String> {
        let stays = |session: &u64| {
            if moving::ending(self, *session) == Some(Ending::Turn) {
                return None;
            }
            let who = self.requester(*session)?;
            let link = self.registry.as_ref()?;
            let stays = link.is_allocated(device.name(), &who.instance, &who.tenant);
            stays.then_some((*session, who.tenant))
        };
        let stay: Vec<_> = answer.leaving.iter().filter_map(stays).collect();
        if stay.is_empty() {
            return Ok(answer);
        }
        let error = in_use(device, stay);
        self.settled(device, requested.digest, answer, &error);
        Err(error)
    }

    /// Waits until a session's image has its turn on a device that preemptible sessions use: images
    /// get the device in the order in which they were first requested, each for its turn or until
    /// its users have no more work. The caller holds the image's place in the queue.
    /// Returns whether the device holds the image by then.
    pub(crate) fn await_turn(
        &self,
        device: &Device,
        tenant: &str,
        requested: ImageRequest<'_>,
    ) -> Result<bool, String> {
        let ImageRequest { session, digest } = requested;
        let configuration = &device.configuration;
        loop {
            if configuration.join(session, tenant, digest) {
                return Ok(true);
            }
            let others = configuration.others(Some(session), digest);
            let next = configuration.is_next(digest);
            if next && moving::turn_is_over(self, device, &others) {
                configuration.begin_turn(digest);
                return Ok(false);
            }
            if !self.sessions().contains_key(&session) {
                return Err("the session ended while its image waited for its turn".to_owned());
            }
            if !next {
                std::thread::sleep(WAIT_STEP);
            }
        }
    }

    /// Whether a session gives way at the end of its image's turn.
    pub(crate) fn yields(&self, session: u64) -> bool {
        moving::ending(self, session) == Some(Ending::Turn)
    }

    /// Loads an image for the operator, as soon as the sessions that take turns on the device have
    /// had theirs: `load` has the driver load it. Returns whether the image had to be changed.
    ///
    /// # Errors
    /// The image is in use by other sessions, the registry refuses the change, or the driver does.
    pub(crate) fn load_for_operator(
        &self,
        device: &Device,
        digest: &str,
        load: impl FnOnce() -> Result<(), String>,
    ) -> Result<bool, Error> {
        let is_open = |session| self.sessions().contains_key(&session);
        let yields = |session| self.yields(session);
        let configuration = &device.configuration;
        let _place = configuration.queue(digest);
        loop {
            if !device.needs(digest, is_open, yields)? {
                return Ok(false);
            }
            let next = configuration.is_next(digest);
            let others = configuration.others(None, digest);
            if next && moving::turn_is_over(self, device, &others) {
                break;
            }
            if !next {
                std::thread::sleep(WAIT_STEP);
            }
        }
        configuration.begin_turn(digest);
        // No session joins the present image from now on; one may have joined it just before.
        if !device.needs(digest, is_open, yields)? {
            return Ok(false);
        }
        let refused = |reason| Error::Refused {
            device: device.name().to_owned(),
            reason,
        };
        let answer = self.operators_permission(device, digest);
        let answer = answer.map_err(refused)?;
        let done = self.clear(device, &answer).map_err(refused);
        let done = done.and_then(|()| device.configure(digest, None, is_open, load));
        let error = done.as_ref().err().map(ToString::to_string);
        self.settled(device, digest, answer, &error.unwrap_or_default());
        done
    }

    /// Requests permission to change a device's image for the operator. While the registry cannot
    /// be reached, a change is permitted on a device that is not allocated.
    fn operators_permission(&self, device: &Device, digest: &str) -> Result<Answer, String> {
        let others = device.configuration.others(None, digest);
        let leaving = others.into_iter().map(|(session, _)| session).collect();
        let Some(link) = &self.registry else {
            return Ok(Answer {
                leaving,
                report_to: None,
            });
        };
        let operator = Requester {
            instance: String::new(),
            tenant: String::new(),
        };
        let request = self.request(link, device, &operator, digest);
        let reply = link.call(|mut nodes| async move { nodes.reconfiguration(request).await });
        match reply {
            Ok(reply) if reply.allowed => Ok(Answer {
                leaving,
                report_to: Some((link.clone(), reply.region)),
            }),
            Ok(reply) => Err(reply.reason),
            Err(error) if is_decision(error.code()) => Err(error.message().to_owned()),
            Err(_) if link.holders(device.name()).is_empty() => Ok(Answer {
                leaving,
                report_to: None,
            }),
            Err(error) => Err(format!(
                "it is allocated to {}, and the registry at {} cannot be reached to permit the change ({}): try again once it is reachable",
                link.holders(device.name()).join(", "),
                link.url,
                error.message()
            )),
        }
    }

    /// Ends the sessions that have to leave, and waits until they have ended.
    pub(crate) fn clear(&self, device: &Device, answer: &Answer) -> Result<(), String> {
        if answer.leaving.is_empty() {
            return Ok(());
        }
        let moved = format!(
            "device '{}' is being reconfigured; the registry has moved this instance to another device",
            device.name()
        );
        let turn = format!(
            "{TURN_ENDED}device '{}' is being reconfigured",
            device.name()
        );
        for session in &answer.leaving {
            let reason = match moving::ending(self, *session) {
                Some(Ending::Turn) => &turn,
                _ => &moved,
            };
            moving::dismiss(self, device, &[*session], reason);
        }
        if moving::left(self, &answer.leaving) {
            Ok(())
        } else {
            Err(format!(
                "sessions on device '{}' that must end before its reconfiguration are still open: try again later",
                device.name()
            ))
        }
    }

    /// Reports the result of a permitted change.
    pub(crate) fn settled(&self, device: &Device, digest: &str, answer: Answer, error: &str) {
        let Some((link, region)) = answer.report_to else {
            return;
        };
        let (node, id) = link.node_identity(self);
        let request = proto::ReconfigurationEndRequest {
            node,
            id,
            device: device.name().to_owned(),
            digest: digest.to_owned(),
            region,
            error: error.to_owned(),
        };
        link.notify(|mut nodes| async move { nodes.reconfiguration_end(request).await });
        link.urge();
    }

    /// Notifies the registry of a program whose image the device holds already. Does not wait for
    /// an answer.
    pub(crate) fn joins(&self, device: &Device, requested: ImageRequest<'_>) {
        let Some(link) = &self.registry else {
            return;
        };
        let Some(who) = self.requester(requested.session) else {
            return;
        };
        let request = self.request(link, device, &who, requested.digest);
        link.notify(|mut nodes| async move { nodes.reconfiguration(request).await });
    }
}

/// Whether a status is the registry's decision, and not a failure to reach it.
fn is_decision(code: Code) -> bool {
    matches!(
        code,
        Code::InvalidArgument
            | Code::FailedPrecondition
            | Code::ResourceExhausted
            | Code::PermissionDenied
            | Code::Unauthenticated
    )
}

fn in_use(device: &Device, users: Vec<(u64, String)>) -> String {
    let tenants: std::collections::BTreeSet<String> = users.into_iter().map(|(_, t)| t).collect();
    let error = Error::InUse {
        device: device.name().to_owned(),
        tenants: tenants.into_iter().collect(),
    };
    error.to_string()
}

fn allocated(device: &Device, holders: &[String]) -> String {
    let named: Vec<&str> = holders.iter().take(5).map(String::as_str).collect();
    format!(
        "the registry has allocated device '{}' to {}{}, and this program is not an instance of the pool: request a device by query (`baltra run --device QUERY`)",
        device.name(),
        named.join(", "),
        if holders.len() > named.len() { " and others" } else { "" },
    )
}

fn unknown(device: &Device, link: &Link, why: &str) -> String {
    format!(
        "the registry at {} cannot be reached to permit this image on device '{}' ({why}), and it has not allocated the device to this program before: try again once it is reachable",
        link.url,
        device.name()
    )
}
