//! `baltra device upgrade-driver`: a device's sessions continue in executors that have loaded its
//! driver anew.

use super::session::{resume, suspend};
use crate::control::Control;
use crate::exit::Exit;
use crate::output;
use anyhow::Result;
use baltra_api::control as proto;
use baltra_manager::options::PathOptions;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

/// Sessions that open meanwhile are looked for this often.
const PASSES_MAX: usize = 3;

/// Sessions, each with the reason for which it is not in a new executor.
type Reasons = BTreeMap<u64, String>;

/// An upgrade in progress.
struct Upgrade<'a> {
    control: Control,
    device: &'a str,
    wait_ms: Option<u32>,
    suspended: BTreeSet<u64>,
    /// Number of sessions that continue in new executors.
    resumed: usize,
    /// Sessions that were not suspended.
    stayed: Reasons,
    /// Whether executors were ended, so that the driver is loaded anew.
    is_restarted: bool,
    /// Why the driver that is installed now cannot be used; empty: it can.
    failure: String,
}

/// `baltra device upgrade-driver`
pub fn driver(
    device: &str,
    (wait_ms, force): (Option<u32>, bool),
    paths: &PathOptions,
    as_json: bool,
) -> Result<ExitCode> {
    let mut upgrade = Upgrade {
        control: Control::connect(paths)?,
        device,
        wait_ms,
        suspended: BTreeSet::new(),
        resumed: 0,
        stayed: Reasons::new(),
        is_restarted: false,
        failure: String::new(),
    };
    let restarted = upgrade.restart(force);
    // Whatever has happened: no session stays on the disk because of this command.
    let left = upgrade.resume_all()?;
    restarted?;
    if as_json {
        upgrade.print_json(&left);
    } else {
        upgrade.print(&left);
    }
    let is_usable = upgrade.failure.is_empty();
    let is_complete = is_usable && upgrade.stayed.is_empty() && left.is_empty();
    Ok(Exit::of(is_complete).into())
}

impl Upgrade<'_> {
    /// Suspends the device's sessions and ends its executors; without `force`, not if a session
    /// cannot be suspended.
    fn restart(&mut self, force: bool) -> Result<()> {
        let mut sessions = self.open()?;
        for _ in 0..PASSES_MAX {
            for session in sessions {
                self.suspend(&session);
            }
            if !self.stayed.is_empty() {
                let open = self.open()?;
                self.stayed.retain(|id, _| open.iter().any(|s| s.id == *id));
            }
            if !self.stayed.is_empty() && !force {
                break;
            }
            let request = proto::RestartExecutorsRequest {
                device: self.device.to_owned(),
            };
            let reply = self
                .control
                .call(|mut c| async move { c.restart_executors(request).await })?;
            self.is_restarted = true;
            self.failure = reply.failure;
            // Opened before the executors were closed to new sessions.
            sessions = self.open()?;
            sessions.retain(|s| reply.serving_pids.contains(&s.executor_pid));
            sessions.retain(|s| !self.stayed.contains_key(&s.id));
            if sessions.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// The sessions of the device.
    fn sessions(&mut self) -> Result<Vec<proto::Session>> {
        let request = proto::SessionsRequest { details: true };
        let reply = self
            .control
            .call(|mut c| async move { c.sessions(request).await })?;
        let own = reply.sessions.into_iter();
        let own = own.filter(|s| s.device == self.device && s.remote.is_empty());
        Ok(own.collect())
    }

    /// The sessions that use the device.
    fn open(&mut self) -> Result<Vec<proto::Session>> {
        let mut open = self.sessions()?;
        open.retain(|s| !s.suspended);
        Ok(open)
    }

    fn suspend(&mut self, session: &proto::Session) {
        let reason = if session.obstacle.is_empty() {
            match suspend(&mut self.control, session.id, self.wait_ms) {
                Ok(_) => {
                    self.suspended.insert(session.id);
                    return;
                }
                Err(error) => format!("{error:#}"),
            }
        } else {
            session.obstacle.clone()
        };
        self.stayed.insert(session.id, reason);
    }

    /// Resumes all sessions; returns those that cannot be.
    fn resume_all(&mut self) -> Result<Reasons> {
        let mut left = Reasons::new();
        for session in &self.suspended {
            match resume(&mut self.control, *session, None, true) {
                Ok(_) => self.resumed += 1,
                Err(error) => {
                    left.insert(*session, format!("{error:#}"));
                }
            }
        }
        if !left.is_empty() {
            // Others have ended.
            let sessions = self.sessions()?;
            left.retain(|id, _| sessions.iter().any(|s| s.id == *id));
        }
        Ok(left)
    }

    fn print_json(&self, left: &Reasons) {
        let list = |reasons: &Reasons| {
            let one =
                |(session, reason): (&u64, &String)| json!({"session": session, "reason": reason});
            reasons.iter().map(one).collect::<Vec<_>>()
        };
        output::json(&json!({
            "device": self.device,
            "restarted": self.is_restarted,
            "sessions": self.resumed,
            "stayed": list(&self.stayed),
            "suspended": list(left),
            "failure": self.failure,
        }));
    }

    fn print(&self, left: &Reasons) {
        let (device, count) = (self.device, self.resumed);
        for (session, reason) in &self.stayed {
            println!("session {session} keeps the former driver: {reason}");
        }
        for (session, reason) in left {
            println!("session {session} is suspended (`baltra session resume`): {reason}");
        }
        if !self.failure.is_empty() {
            println!("{device}: {} (install another driver)", self.failure);
        } else if self.is_restarted {
            println!("{device}: {count} sessions continue with the driver that is installed now");
        } else {
            println!("{device} was not changed (`--force` continues without these sessions)");
        }
    }
}
