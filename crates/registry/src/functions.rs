//! Functions and pools, by name, and the number of replicas that a function should have.

use crate::check;
use crate::failure::Failure;
use crate::model::UTILIZATION;
use crate::options::QUEUE_WAIT_MS;
use crate::records::{Change, FunctionRecord, PoolRecord, StoredQuery};
use crate::registry::Registry;
use crate::signals::{desired, Measured, Targets};
use crate::state::{device_id, State};
use baltra_api::registry as proto;
use sha2::{Digest, Sha256};
use tonic::Status;

/// Size limit of the content, bytes.
pub const CONTENT_BYTES_MAX: usize = 16 << 20;
/// Limit of a function's replicas.
const REPLICAS_MAX: u32 = 1_000_000;

/// Creates or replaces a function.
pub(crate) fn put(
    registry: &Registry,
    request: proto::FunctionPutRequest,
) -> Result<proto::Function, Status> {
    let definition = request
        .function
        .ok_or_else(|| Failure::InvalidArgument.status("the request has no function name"))?;
    let mut function = record(definition)?;
    if request.content.len() > CONTENT_BYTES_MAX {
        return Err(Failure::InvalidArgument.status(format!(
            "the content has {} bytes, at most {CONTENT_BYTES_MAX} are allowed",
            request.content.len()
        )));
    }
    let digest = Sha256::digest(&request.content);
    function.digest = digest.iter().map(|b| format!("{b:02x}")).collect();
    function.content_bytes = request.content.len() as u64;
    let limit = registry.options.limits.functions;
    let made = registry.change(
        |state| {
            let functions = &state.image().functions;
            match functions.get(&function.name) {
                Some(existing) if existing.tenant != function.tenant => {
                    return Err(Failure::AlreadyExists.status(format!(
                        "function '{}' belongs to another tenant: choose another name",
                        function.name
                    )));
                }
                Some(existing) => function.revision = existing.revision,
                None if functions.len() >= limit => {
                    return Err(Failure::ResourceExhausted.status(format!(
                        "too many functions: 'registry.limits.functions' is {limit}"
                    )));
                }
                None => {}
            }
            if functions.get(&function.name) == Some(&function) {
                return Ok((Vec::new(), function));
            }
            // Revisions are unique over all functions, so that a new maximum indicates a changed
            // function.
            function.revision = state.image().revision + 1;
            let change = Change::PutFunction(function.clone(), request.content);
            Ok((vec![change], function))
        },
        |_| {},
    )?;
    tracing::info!(function = made.name, digest = made.digest, "deployed");
    Ok(message(&made))
}

fn record(function: proto::Function) -> Result<FunctionRecord, Status> {
    check::name("the function", &function.name)?;
    check::name_or_none("the tenant", &function.tenant)?;
    check::query(&function.query)?;
    check::count(
        "devices",
        function.count as usize,
        baltra_api::DEVICES_MAX as usize,
    )?;
    check::digest_or_none("the accelerator", &function.accelerator)?;
    let labels = function.labels.into_iter().collect();
    check::labels(&labels)?;
    let (least, most) = (function.replicas_min, function.replicas_max);
    if most > REPLICAS_MAX || least > REPLICAS_MAX || (most > 0 && least > most) {
        return Err(Failure::InvalidArgument.status(format!(
            "replicas_min {least} and replicas_max {most} must be in order and at most {REPLICAS_MAX}"
        )));
    }
    Ok(FunctionRecord {
        name: function.name,
        tenant: function.tenant,
        query: StoredQuery::read(function.query),
        count: function.count.max(1),
        accelerator: function.accelerator,
        replicas_min: least,
        replicas_max: most,
        labels,
        ..FunctionRecord::default()
    })
}

/// The message for a function.
pub(crate) fn message(function: &FunctionRecord) -> proto::Function {
    proto::Function {
        name: function.name.clone(),
        tenant: function.tenant.clone(),
        query: function.query.text().to_owned(),
        count: function.count,
        accelerator: function.accelerator.clone(),
        replicas_min: function.replicas_min,
        replicas_max: function.replicas_max,
        digest: function.digest.clone(),
        content_bytes: function.content_bytes,
        revision: function.revision,
        labels: function.labels.clone().into_iter().collect(),
    }
}

/// Removes a function.
pub(crate) fn remove(
    registry: &Registry,
    request: proto::FunctionRemoveRequest,
) -> Result<proto::FunctionRemoveReply, Status> {
    let removed = registry.change(
        |state| {
            let existing = state.image().functions.contains_key(&request.name);
            let change = existing.then(|| Change::RemoveFunction(request.name.clone()));
            Ok((change.into_iter().collect(), existing))
        },
        |_| {},
    )?;
    Ok(proto::FunctionRemoveReply { removed })
}

/// One function with its content. Blocks on the disk.
pub(crate) fn get(registry: &Registry, name: &str) -> Result<proto::FunctionGetReply, Status> {
    let unknown = || {
        let shown = check::shown(name);
        Failure::NotFound.status(format!("function '{shown}' not found: deploy it"))
    };
    // A function may be replaced between the two reads; both must be of one version.
    for _ in 0..8 {
        let function = {
            let state = registry.state();
            let existing = state.image().functions.get(name);
            existing.map(message).ok_or_else(unknown)?
        };
        let content = registry.content(name)?.ok_or_else(unknown)?;
        let digest = Sha256::digest(&content);
        let digest: String = digest.iter().map(|b| format!("{b:02x}")).collect();
        if digest == function.digest {
            return Ok(proto::FunctionGetReply {
                function: Some(function),
                content,
            });
        }
    }
    Err(Failure::Aborted.status(format!("function '{name}' keeps changing: retry")))
}

/// Lists the functions.
pub(crate) fn list(state: &State, tenant: &str) -> proto::FunctionsReply {
    let functions = &state.image().functions;
    let wanted = functions
        .values()
        .filter(|f| tenant.is_empty() || f.tenant == tenant);
    // A change increases the maximum revision, a removal changes the count.
    let newest = functions.values().map(|f| f.revision).max().unwrap_or(0);
    let revision = newest
        .wrapping_mul(1 << 20)
        .wrapping_add(functions.len() as u64);
    proto::FunctionsReply {
        functions: wanted.map(message).collect(),
        revision,
    }
}

/// Creates or replaces a pool.
pub(crate) fn pool_put(registry: &Registry, pool: proto::Pool) -> Result<proto::Pool, Status> {
    check::name("the pool", &pool.name)?;
    let query = check::query(&pool.query)?;
    if query.term(baltra_api::query::Field::Pool).is_some() {
        return Err(Failure::InvalidArgument.status(
            "a pool's query cannot refer to a pool: describe its members by other fields",
        ));
    }
    let record = PoolRecord {
        name: pool.name.clone(),
        query: query.into(),
    };
    let limit = registry.options.limits.pools;
    registry.change(
        |state| {
            let pools = &state.image().pools;
            if !pools.contains_key(&record.name) && pools.len() >= limit {
                return Err(Failure::ResourceExhausted.status(format!(
                    "too many pools: 'registry.limits.pools' is {limit}"
                )));
            }
            Ok((vec![Change::PutPool(record)], ()))
        },
        |_| {},
    )?;
    let all = pools(&registry.state()).pools;
    let found = all.into_iter().find(|p| p.name == pool.name);
    found.ok_or_else(|| Failure::Aborted.status("the pool was removed meanwhile"))
}

/// Removes a pool. Its instances keep their devices.
pub(crate) fn pool_remove(
    registry: &Registry,
    request: proto::PoolRemoveRequest,
) -> Result<proto::PoolRemoveReply, Status> {
    let removed = registry.change(
        |state| {
            let existing = state.image().pools.contains_key(&request.name);
            let change = existing.then(|| Change::RemovePool(request.name.clone()));
            Ok((change.into_iter().collect(), existing))
        },
        |_| {},
    )?;
    Ok(proto::PoolRemoveReply { removed })
}

/// Lists the pools with their members.
pub(crate) fn pools(state: &State) -> proto::PoolsReply {
    let devices = &state.index().snapshot().devices;
    let members = |pool: &PoolRecord| {
        let own = devices.values().filter(|d| d.pool == pool.name);
        own.map(|d| d.id.clone()).collect()
    };
    let message = |pool: &PoolRecord| proto::Pool {
        name: pool.name.clone(),
        query: pool.query.text().to_owned(),
        devices: members(pool),
    };
    proto::PoolsReply {
        pools: state.image().pools.values().map(message).collect(),
    }
}

/// The desired number of replicas of each function.
pub(crate) fn signals(state: &State, targets: &Targets) -> Vec<proto::Signal> {
    let image = state.image();
    let mut gathered = std::collections::BTreeMap::new();
    for instance in image.instances.values().filter(|i| !i.function.is_empty()) {
        let (replicas, busy, waits): &mut (u32, Vec<f64>, Vec<f64>) =
            gathered.entry(instance.function.as_str()).or_default();
        *replicas += 1;
        for a in &instance.devices {
            let id = device_id(&a.node, &a.device);
            if let Some(device) = state.index().snapshot().devices.get(&id) {
                busy.extend(device.metric(UTILIZATION));
                waits.extend(device.metric(QUEUE_WAIT_MS));
            }
        }
    }
    let signal = |function: &FunctionRecord| {
        let (replicas, busy, waits) = gathered.remove(function.name.as_str()).unwrap_or_default();
        let measured = Measured {
            replicas,
            utilization: mean(&busy),
            queue_wait_ms: mean(&waits),
            idle: false,
        };
        let own = Targets {
            replicas_min: function.replicas_min,
            replicas_max: match function.replicas_max {
                0 => targets.replicas_max.max(function.replicas_min),
                most => most,
            },
            ..*targets
        };
        let wanted = desired(&measured, &own);
        proto::Signal {
            function: function.name.clone(),
            replicas,
            desired: wanted.replicas,
            utilization: measured.utilization.unwrap_or(0.0),
            queue_wait_ms: measured.queue_wait_ms.unwrap_or(0.0),
            reason: format!("{:?}", wanted.signal).to_lowercase(),
        }
    };
    image.functions.values().map(signal).collect()
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}
