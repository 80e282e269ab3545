//! `baltra session`

use crate::args::Session;
use crate::control::{Client, Control};
use crate::output::{self, Table};
use anyhow::{Context, Result};
use baltra_api::control as proto;
use baltra_manager::options::PathOptions;
use serde_json::json;
use std::time::Duration;

/// `baltra session`
pub fn session(paths: &PathOptions, command: Session) -> Result<()> {
    let mut control = Control::connect(paths)?;
    match command {
        Session::Ls(json) => list(control, json.json),
        Session::Move {
            session,
            to,
            wait_ms,
            force,
            json,
        } => {
            let (device, remote) = place(&to)?;
            let request = proto::MoveSessionRequest {
                session,
                device,
                wait_ms,
                force,
                remote,
            };
            move_one(control, request, json.json)
        }
        Session::Suspend {
            session,
            wait_ms,
            json,
        } => {
            let reply = suspend(&mut control, session, wait_ms)?;
            print_moved(session, &reply, json.json, "suspended");
            Ok(())
        }
        Session::Resume {
            session,
            to,
            force,
            json,
        } => {
            let reply = resume(&mut control, session, to, force)?;
            let what = format!("resumed on {}", reply.to);
            print_moved(session, &reply, json.json, &what);
            Ok(())
        }
    }
}

/// The longest move, with the driver that may have to be loaded on another node.
const MOVE_MAX: Duration = Duration::from_secs(100);

/// The device that a session moves to, and its node if it is another one. The registry has the
/// address of a device's node that is named as in the pool, NODE/NAME.
pub fn place(to: &str) -> Result<(String, Option<proto::RemoteNode>)> {
    if !to.contains('/') {
        return Ok((to.to_owned(), None));
    }
    let (endpoint, device) = if to.contains("://") {
        to.rsplit_once('/')
            .filter(|(endpoint, device)| endpoint.contains("://") && !device.is_empty())
            .with_context(|| format!("'{to}' names no device: use tcp://HOST:PORT/NAME"))?
    } else {
        ("", to)
    };
    let variable = |name| std::env::var(name).unwrap_or_default();
    let authority = match variable("BALTRA_TLS_CA").as_str() {
        "" => String::new(),
        file => std::path::absolute(file)?.display().to_string(),
    };
    let node = proto::RemoteNode {
        endpoint: endpoint.to_owned(),
        token: variable("BALTRA_TOKEN"),
        authority,
    };
    Ok((device.to_owned(), Some(node)))
}

/// Moves a session.
pub fn move_session(
    control: &mut Control,
    request: proto::MoveSessionRequest,
) -> Result<proto::MoveSessionReply> {
    let call = |mut c: Client| async move { c.move_session(request).await };
    control.call_within(MOVE_MAX, call)
}

/// Writing or reading a session's state takes at most this long: longer than the manager's limit.
const DISK_MAX: Duration = Duration::from_secs(700);

/// Suspends a session.
pub fn suspend(
    control: &mut Control,
    session: u64,
    wait_ms: Option<u32>,
) -> Result<proto::MoveSessionReply> {
    let request = proto::SuspendSessionRequest { session, wait_ms };
    let call = |mut c: Client| async move { c.suspend_session(request).await };
    control.call_within(DISK_MAX, call)
}

/// Resumes a session; without `device` on the one that it was on.
pub fn resume(
    control: &mut Control,
    session: u64,
    device: Option<String>,
    force: bool,
) -> Result<proto::MoveSessionReply> {
    let request = proto::ResumeSessionRequest {
        session,
        device,
        force,
    };
    let call = |mut c: Client| async move { c.resume_session(request).await };
    control.call_within(DISK_MAX, call)
}

fn print_moved(session: u64, moved: &proto::MoveSessionReply, as_json: bool, what: &str) {
    if as_json {
        return output::json(&moved_json(session, moved));
    }
    println!(
        "session {session} {what} in {:.1} ms, {:.1} MB copied",
        moved.took_us as f64 / 1e3,
        moved.bytes as f64 / 1e6,
    );
}

fn moved_json(session: u64, moved: &proto::MoveSessionReply) -> serde_json::Value {
    json!({
        "session": session, "from": moved.from, "to": moved.to,
        "took_us": moved.took_us, "stopped_us": moved.stopped_us, "bytes": moved.bytes,
        "stopped_bytes": moved.stopped_bytes, "stopped_objects": moved.stopped_objects,
    })
}

fn list(mut control: Control, as_json: bool) -> Result<()> {
    let request = proto::SessionsRequest { details: true };
    let reply = control.call(|mut c| async move { c.sessions(request).await })?;
    if as_json {
        let known = |s: &proto::Session, value: u64| s.described.then_some(value);
        let sessions = reply.sessions.iter().map(|s| {
            json!({
                "id": s.id, "tenant": s.tenant, "device": s.device, "instance": s.instance,
                "pid": s.pid, "transport": s.transport, "age_s": s.age_s,
                "resident_bytes": known(s, s.resident_bytes),
                "swapped_bytes": known(s, s.swapped_bytes),
                "queues": known(s, s.queues.into()),
                "can_move": s.described && s.obstacle.is_empty() && !s.suspended,
                "obstacle": s.obstacle, "suspended": s.suspended,
                "stored_bytes": known(s, s.stored_bytes),
                "remote": (!s.remote.is_empty()).then_some(&s.remote),
            })
        });
        output::json(&json!(sessions.collect::<Vec<_>>()));
        return Ok(());
    }
    let mut table = Table::new(&[
        "SESSION",
        "TENANT",
        "DEVICE",
        "PROGRAM",
        ">PID",
        ">RESIDENT",
        ">SWAPPED",
        ">QUEUES",
        "MOVES",
    ]);
    for s in reply.sessions {
        let known = |text: String| if s.described { text } else { "?".into() };
        let moves = match s.obstacle.as_str() {
            _ if s.suspended && !s.described => "suspended".into(),
            _ if s.suspended => format!("suspended, {} on disk", output::bytes(s.stored_bytes)),
            "" if !s.described => "? (its executor does not answer)".into(),
            "" => "yes".into(),
            obstacle => format!("no: {obstacle}"),
        };
        table.row([
            s.id.to_string(),
            s.tenant,
            if s.remote.is_empty() {
                s.device
            } else {
                s.remote
            },
            s.instance,
            s.pid.to_string(),
            known(output::bytes(s.resident_bytes)),
            known(output::bytes(s.swapped_bytes)),
            known(s.queues.to_string()),
            moves,
        ]);
    }
    table.print();
    Ok(())
}

fn move_one(mut control: Control, request: proto::MoveSessionRequest, as_json: bool) -> Result<()> {
    let session = request.session;
    let moved = move_session(&mut control, request)?;
    if as_json {
        output::json(&moved_json(session, &moved));
        return Ok(());
    }
    let ms = |us: u64| us as f64 / 1e3;
    println!(
        "session {session} moved from {} to {} in {:.1} ms, stopped for {:.1} ms, \
         {:.1} MB copied, {:.1} MB of them while stopped",
        moved.from,
        moved.to,
        ms(moved.took_us),
        ms(moved.stopped_us),
        moved.bytes as f64 / 1e6,
        moved.stopped_bytes as f64 / 1e6,
    );
    Ok(())
}
