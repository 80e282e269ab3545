//! Sessions that move to a device of another node: whether they may, and where they are afterwards.
//!
//! A node asks before it moves a session, and reports the move after it. Nothing is reserved in
//! between, so that a registry or a node that ends during a move leaves nothing behind.

use crate::allocate::{Reason, Request};
use crate::check;
use crate::failure::Failure;
use crate::instances::{self, changed};
use crate::model::Locality;
use crate::nodes::authentic;
use crate::records::{AssignmentRecord, InstanceRecord};
use crate::registry::{Decided, Registry};
use crate::state::{device_id, placed as modeled, State};
use baltra_api::query::Field;
use baltra_api::registry as proto;
use tonic::Status;

/// Whether a session may move to a device of another node.
pub(crate) fn target(
    state: &State,
    request: &proto::SessionTargetRequest,
) -> Result<proto::SessionTargetReply, Status> {
    authentic(state, &request.node, &request.id)?;
    check::name_or_none("the instance", &request.instance)?;
    check::name_or_none("the tenant", &request.tenant)?;
    let Some((node, live, device)) = state.device(&request.to) else {
        return Err(missing(&request.to));
    };
    let trouble = state.trouble(live, &device.name);
    let refusal = match (trouble, instance(state, request)?) {
        (Some((_, reason)), _) => Some(reason),
        _ if device.exclusive => {
            Some("it holds one image at a time and takes no part in moves".into())
        }
        (None, Some(instance)) => unfit(state, instance, &request.to)?,
        (None, None) if device.draining => Some("it is being drained".into()),
        (None, None) if device.cordoned => Some("it is cordoned".into()),
        (None, None) => None,
    };
    Ok(proto::SessionTargetReply {
        endpoints: node.endpoints.clone(),
        refusal: refusal.unwrap_or_default(),
    })
}

/// The session's instance, if it has one that still exists.
fn instance<'a>(
    state: &'a State,
    request: &proto::SessionTargetRequest,
) -> Result<Option<&'a InstanceRecord>, Status> {
    let instance = state.image().instances.get(&request.instance);
    instance
        .map(|instance| owned(instance, &request.tenant))
        .transpose()
}

/// An instance, if it is this tenant's: its name does not prove its ownership.
fn owned<'a>(instance: &'a InstanceRecord, tenant: &str) -> Result<&'a InstanceRecord, Status> {
    if instance.tenant.is_empty() || instance.tenant == tenant {
        return Ok(instance);
    }
    Err(Failure::PermissionDenied.status(format!(
        "instance '{}' belongs to another tenant, not to '{}'",
        instance.name,
        check::shown(tenant)
    )))
}

/// Why the allocator does not allocate a device to an instance that has other ones, if so.
fn unfit(state: &State, instance: &InstanceRecord, to: &str) -> Result<Option<String>, Status> {
    if instance.devices.iter().any(|a| is_at(a, to)) {
        return Ok(None);
    }
    let demand = state.demand(instance);
    let term = demand.query.term(Field::Id);
    if let Some(wanted) = term.filter(|_| !demand.query.accepts(Field::Id, to)) {
        let reason = Reason::Query {
            field: Field::Id.name().into(),
            wanted: wanted.to_string(),
            found: to.into(),
        };
        return Ok(Some(misfit(instance, &reason, &reason.to_string())));
    }
    let only = demand.query.clone().without(Field::Id);
    let only = only.with(Field::Id, to);
    let only = only.map_err(|e| Failure::InvalidArgument.status(format!("the device: {e}")))?;
    let model = modeled(instance);
    let request = Request {
        query: &only,
        devices: 1,
        pooled: false,
        ..Request::instance(&demand, &model)
    };
    let Err(refusal) = state.index().allocate(&request) else {
        return Ok(None);
    };
    let mut rejections = refusal.devices.iter();
    let own = rejections.find(|rejection| rejection.device == to);
    Ok(Some(own.map_or_else(
        || format!("it does not fit instance '{}'", instance.name),
        |own| misfit(instance, &own.reason, &instances::reason(state, own)),
    )))
}

fn misfit(instance: &InstanceRecord, reason: &Reason, text: &str) -> String {
    let filter = instances::filter(reason);
    format!(
        "it does not fit instance '{}' ({filter}): {text}",
        instance.name
    )
}

fn is_at(assignment: &AssignmentRecord, id: &str) -> bool {
    device_id(&assignment.node, &assignment.device) == id
}

fn missing(id: &str) -> Status {
    let shown = check::shown(id);
    Failure::NotFound.status(format!("device '{shown}' not found: write it as node/name"))
}

/// Records where a session of an instance is. An instance whose devices have to be on its node
/// keeps what it was allocated: its session has moved within the node.
pub(crate) fn placed(
    registry: &Registry,
    request: &proto::SessionPlacedRequest,
) -> Result<proto::SessionPlacedReply, Status> {
    let moved = registry.change(|state| record(state, request), |_| {})?;
    if moved {
        tracing::info!(
            instance = request.instance,
            from = request.from,
            to = request.to,
            "a session of the instance has moved"
        );
    }
    Ok(proto::SessionPlacedReply {})
}

/// The changes for a session that has moved, and whether there are any.
fn record(state: &State, request: &proto::SessionPlacedRequest) -> Decided<bool> {
    authentic(state, &request.node, &request.id)?;
    check::name("the instance", &request.instance)?;
    check::name_or_none("the tenant", &request.tenant)?;
    let Some(before) = state.image().instances.get(&request.instance) else {
        return Ok((Vec::new(), false));
    };
    let before = owned(before, &request.tenant)?;
    let to = located(state, &request.to).ok_or_else(|| missing(&request.to))?;
    let from = located(state, &request.from);
    if state.demand(before).locality == Locality::Require {
        return Ok((Vec::new(), false));
    }
    if is_elsewhere_there(before, from.as_deref(), &to) {
        return Ok((Vec::new(), false));
    }
    let mut after = before.clone();
    if let Some(from) = from.filter(|from| !request.shared && *from != to) {
        leave(&mut after, &from);
    }
    if !after.devices.iter().any(|a| is_at(a, &to)) {
        let (node, device) = to.split_once('/').unwrap_or_default();
        after.devices.push(AssignmentRecord {
            node: node.to_owned(),
            device: device.to_owned(),
            region: 0,
            live: true,
        });
    }
    if after.devices == before.devices {
        return Ok((Vec::new(), false));
    }
    Ok((changed(state, before, after), true))
}

/// Whether a report is older than what the instance has: its session has left the former device, and
/// has moved within the node where it is.
fn is_elsewhere_there(instance: &InstanceRecord, from: Option<&str>, to: &str) -> bool {
    let has = |id: &str| instance.devices.iter().any(|a| is_at(a, id));
    let node = to.split_once('/').map_or(to, |(node, _)| node);
    let is_there = instance.devices.iter().any(|a| a.live && a.node == node);
    is_there && !has(to) && !from.is_some_and(has)
}

/// Takes a device from an instance. The node that reports a move has no report of moves within the
/// node where the session was, so that this may be another device of that node.
fn leave(instance: &mut InstanceRecord, from: &str) {
    let has_it = instance.devices.iter().any(|a| is_at(a, from));
    let node = from.split_once('/').map_or(from, |(node, _)| node);
    let is_left = |a: &AssignmentRecord| {
        if has_it {
            is_at(a, from)
        } else {
            a.live && a.node == node
        }
    };
    instance.devices.retain(|a| !is_left(a));
}

/// The id of a registered device, given as node/name or by an endpoint of its node and its name.
fn located(state: &State, place: &str) -> Option<String> {
    if !place.contains("://") {
        return state.device(place).map(|_| place.to_owned());
    }
    let (endpoint, device) = place.rsplit_once('/')?;
    let mut nodes = state.nodes().map(|(node, _)| node);
    let node = nodes.find(|node| node.endpoints.iter().any(|own| own == endpoint))?;
    let device = node.devices.get(device)?;
    Some(device_id(&node.name, &device.name))
}
