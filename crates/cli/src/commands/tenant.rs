//! `baltra tenant`

use crate::args::{Quota, Tenant};
use crate::control::Control;
use crate::output::{self, Table};
use anyhow::Result;
use baltra_api::control as proto;
use baltra_manager::options::PathOptions;
use serde_json::json;

fn message(quota: &Quota) -> proto::Quota {
    proto::Quota {
        memory_bytes: quota.memory,
        arena_bytes: quota.arena,
        objects: quota.objects,
        queued_commands: quota.queued,
        task_ms: quota.task_ms,
        sessions: quota.sessions,
    }
}

/// Runs `baltra tenant`.
pub fn tenant(paths: &PathOptions, command: Tenant) -> Result<()> {
    let mut control = Control::connect(paths)?;
    match command {
        Tenant::Add {
            name,
            weight,
            priority,
            share,
            share_max,
            quota,
        } => {
            let request = proto::TenantAddRequest {
                name,
                weight,
                priority,
                quota: Some(message(&quota)),
                users: quota.user,
                share,
                share_max,
                ..proto::TenantAddRequest::default()
            };
            let made = control.call(|mut c| async move { c.tenant_add(request).await })?;
            println!("tenant {} added", made.name);
        }
        Tenant::Ls(json) => list(&mut control, json.json)?,
        Tenant::Quota {
            name,
            weight,
            priority,
            quota,
        } => {
            let request = proto::TenantQuotaRequest {
                name,
                weight,
                priority,
                quota: Some(message(&quota)),
                users_add: quota.user,
            };
            let changed = control.call(|mut c| async move { c.tenant_quota(request).await })?;
            println!("tenant {} changed", changed.name);
        }
        Tenant::Token { name } => {
            let request = proto::TenantTokenRequest { name };
            let reply = control.call(|mut c| async move { c.tenant_token(request).await })?;
            println!("{}", reply.token);
        }
        Tenant::Usage { name, json } => usage(&mut control, name, json.json)?,
        Tenant::Rm { name } => {
            let request = proto::TenantRemoveRequest { name: name.clone() };
            let reply = control.call(|mut c| async move { c.tenant_remove(request).await })?;
            println!(
                "tenant {name} removed, {} sessions ended",
                reply.sessions_ended
            );
        }
    }
    Ok(())
}

fn list(control: &mut Control, as_json: bool) -> Result<()> {
    let reply = control.call(|mut c| async move { c.tenants(proto::TenantsRequest {}).await })?;
    if as_json {
        let tenants: Vec<_> = reply
            .tenants
            .iter()
            .map(|t| {
                let q = t.quota.unwrap_or_default();
                json!({
                    "name": t.name, "weight": t.weight, "priority": t.priority,
                    "share": t.share, "share_max": t.share_max,
                    "owner": t.owner, "devices": t.devices,
                    "has_token": t.has_token, "users": t.users, "origin": t.origin,
                    "quota": {
                        "memory_bytes": q.memory_bytes, "arena_bytes": q.arena_bytes,
                        "objects": q.objects, "queued_commands": q.queued_commands,
                        "task_ms": q.task_ms, "sessions": q.sessions,
                    },
                })
            })
            .collect();
        output::json(&json!(tenants));
        return Ok(());
    }
    let mut table = Table::new(&[
        "NAME",
        ">WEIGHT",
        ">PRIORITY",
        ">MEMORY",
        ">SESSIONS",
        ">TASK",
        "TOKEN",
        "USERS",
        "FROM",
    ]);
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    for t in reply.tenants {
        let q = t.quota.unwrap_or_default();
        let users: Vec<_> = t.users.iter().map(u32::to_string).collect();
        table.row([
            t.name,
            t.weight.to_string(),
            t.priority.to_string(),
            or_none(q.memory_bytes.map(output::bytes)),
            or_none(q.sessions.map(|n| n.to_string())),
            or_none(q.task_ms.map(|ms| format!("{ms} ms"))),
            if t.has_token { "yes" } else { "no" }.into(),
            users.join(","),
            t.origin,
        ]);
    }
    table.print();
    Ok(())
}

fn usage(control: &mut Control, name: Option<String>, as_json: bool) -> Result<()> {
    let request = proto::UsageRequest {
        tenant: name.unwrap_or_default(),
    };
    let reply = control.call(|mut c| async move { c.usage(request).await })?;
    if as_json {
        let usage: Vec<_> = reply.usage.iter().map(usage_json).collect();
        output::json(&json!(usage));
        return Ok(());
    }
    let mut table = Table::new(&[
        "TENANT",
        "DEVICE",
        ">DEVICE SECONDS",
        ">TASKS",
        ">MOVED",
        ">SESSIONS",
        ">OPEN",
        ">MEMORY",
    ]);
    for u in reply.usage {
        table.row([
            u.tenant,
            u.device,
            format!("{:.3}", u.busy_ns as f64 / 1e9),
            u.tasks.to_string(),
            output::bytes(u.bytes),
            u.sessions.to_string(),
            u.sessions_open.to_string(),
            output::bytes(u.memory_used_bytes),
        ]);
    }
    table.print();
    Ok(())
}

/// A tenant's usage of a device, as JSON.
pub fn usage_json(u: &proto::Usage) -> serde_json::Value {
    json!({
        "tenant": u.tenant, "device": u.device, "busy_ns": u.busy_ns, "tasks": u.tasks,
        "bytes": u.bytes, "sessions": u.sessions, "sessions_open": u.sessions_open,
        "memory_used_bytes": u.memory_used_bytes, "gate": u.gate,
        "resident_bytes": u.resident_bytes, "swapped_bytes": u.swapped_bytes,
        "moved_bytes": u.moved_bytes,
    })
}
