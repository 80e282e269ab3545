//! Whether a device may hold another image: what the registry says, or what it said last.

use super::{moving, Link};
use crate::configuration::Error;
use crate::node::{Device, Node};
use baltra_api::registry as proto;
use std::sync::Arc;
use tonic::Code;

/// A change that a session wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish<'a> {
    /// Whose program.
    pub session: u64,
    /// Its image.
    pub digest: &'a str,
}

/// A change that may be made.
pub(crate) struct Answer {
    /// Sessions that end before it.
    pub leaving: Vec<u64>,
    /// The registry waits to hear how it ends.
    asked: Option<(Arc<Link>, u32)>,
}

/// Who wants it.
struct Who {
    instance: String,
    tenant: String,
}

impl Node {
    /// Whether a change may come about, before the image is fetched for it: the registry is asked
    /// only where its last word leaves it open.
    pub(crate) fn prospect(&self, device: &Device, wish: Wish<'_>) -> Result<(), String> {
        if let (Some(link), Some(who)) = (&self.registry, self.who(wish.session)) {
            if link.is_allocated(device.name(), &who.instance, &who.tenant) {
                return self.in_the_way(device, wish).map(|_| ());
            }
        }
        self.permission(device, wish).map(|_| ())
    }

    /// Sessions that a change would end; why not, where one cannot be.
    fn in_the_way(&self, device: &Device, wish: Wish<'_>) -> Result<Vec<u64>, String> {
        let others = device.configuration.others(wish.session, wish.digest);
        let stay = match &self.registry {
            None => others.clone(),
            Some(_) => moving::busy(self, device, &others),
        };
        match stay.is_empty() {
            true => Ok(others.into_iter().map(|(session, _)| session).collect()),
            false => Err(in_use(device, stay)),
        }
    }

    /// Which instance a session says that it is, and whose it is, which it cannot choose; none:
    /// it is no instance's.
    fn who(&self, session: u64) -> Option<Who> {
        let open = self.sessions();
        let record = open.get(&session)?;
        let (instance, _) = super::instance(&record.instance)?;
        let tenant = self.tenants.get(&record.tenant);
        Some(Who {
            instance: instance.to_owned(),
            tenant: tenant.map_or(record.tenant.clone(), |t| t.owner().to_owned()),
        })
    }

    fn request(
        &self,
        link: &Link,
        device: &Device,
        who: &Who,
        digest: &str,
    ) -> proto::ReconfigurationRequest {
        let (node, id) = link.who(self);
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

    /// Asks whether a session may have a device's image changed; why not, for its program's
    /// owner to read. Without a registry everything is allowed that disturbs nobody; with one, so
    /// it is to a program that is no instance, on a device that no instance was given.
    pub(crate) fn permission(&self, device: &Device, wish: Wish<'_>) -> Result<Answer, String> {
        let leaving = self.in_the_way(device, wish)?;
        let held = device.configuration.image().as_deref() == Some(wish.digest);
        let Some(link) = self.registry.as_ref().filter(|_| !held) else {
            return Ok(Answer {
                leaving,
                asked: None,
            });
        };
        let Some(who) = self.who(wish.session) else {
            return match link.holders(device.name()) {
                none if none.is_empty() => Ok(Answer {
                    leaving,
                    asked: None,
                }),
                holders => Err(allocated(device, &holders)),
            };
        };
        let request = self.request(link, device, &who, wish.digest);
        let asked = link.ask(|mut nodes| async move { nodes.reconfiguration(request).await });
        match asked {
            Ok(reply) if reply.allowed => {
                link.moved(&self.options.node.name, device.name(), &reply.migrations);
                let answer = Answer {
                    leaving,
                    asked: Some((link.clone(), reply.region)),
                };
                self.checked(device, wish, answer)
            }
            Ok(reply) => Err(reply.reason),
            Err(error) if is_word(error.code()) => Err(error.message().to_owned()),
            Err(error) => {
                let known = link.is_allocated(device.name(), &who.instance, &who.tenant);
                match known && leaving.is_empty() {
                    true => Ok(Answer {
                        leaving,
                        asked: None,
                    }),
                    false => Err(unknown(device, link, error.message())),
                }
            }
        }
    }

    /// A change that the registry allows, unless it ends a session of an instance whose device
    /// this remains.
    fn checked(&self, device: &Device, wish: Wish<'_>, answer: Answer) -> Result<Answer, String> {
        let stays = |session: &u64| {
            let who = self.who(*session)?;
            let link = self.registry.as_ref()?;
            let stays = link.is_allocated(device.name(), &who.instance, &who.tenant);
            stays.then_some((*session, who.tenant))
        };
        let stay: Vec<_> = answer.leaving.iter().filter_map(stays).collect();
        if stay.is_empty() {
            return Ok(answer);
        }
        let error = in_use(device, stay);
        self.settled(device, wish.digest, answer, &error);
        Err(error)
    }

    /// Ends the sessions that have to go, and waits until they have gone.
    pub(crate) fn clear(&self, device: &Device, answer: &Answer) -> Result<(), String> {
        if answer.leaving.is_empty() {
            return Ok(());
        }
        let reason = format!(
            "device '{}' gets another accelerator; the registry has given this instance another device",
            device.name()
        );
        moving::dismiss(self, device, &answer.leaving, &reason);
        match moving::left(self, &answer.leaving) {
            true => Ok(()),
            false => Err(format!(
                "sessions on device '{}' that were to make way do not end: try again later",
                device.name()
            )),
        }
    }

    /// Says how an allowed change ended.
    pub(crate) fn settled(&self, device: &Device, digest: &str, answer: Answer, error: &str) {
        let Some((link, region)) = answer.asked else {
            return;
        };
        let (node, id) = link.who(self);
        let request = proto::ReconfigurationEndRequest {
            node,
            id,
            device: device.name().to_owned(),
            digest: digest.to_owned(),
            region,
            error: error.to_owned(),
        };
        link.tell(|mut nodes| async move { nodes.reconfiguration_end(request).await });
        link.urge();
    }

    /// Tells the registry of a program whose image is there already. Its verdict does not wait
    /// for that.
    pub(crate) fn joins(&self, device: &Device, wish: Wish<'_>) {
        let Some(link) = &self.registry else {
            return;
        };
        let Some(who) = self.who(wish.session) else {
            return;
        };
        let request = self.request(link, device, &who, wish.digest);
        link.tell(|mut nodes| async move { nodes.reconfiguration(request).await });
    }
}

/// Whether a status is the registry's own answer, and not the lack of one.
fn is_word(code: Code) -> bool {
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
        "the registry has given device '{}' to {}{}, and this program is no instance of the pool: ask for a device by query (`baltra run --device QUERY`)",
        device.name(),
        named.join(", "),
        if holders.len() > named.len() { " and others" } else { "" },
    )
}

fn unknown(device: &Device, link: &Link, why: &str) -> String {
    format!(
        "the registry at {} cannot be asked whether device '{}' may hold this image ({why}), and it has not allocated the device to this program before: try again when it is back",
        link.url,
        device.name()
    )
}
