//! `baltra run --device QUERY`: the registry allocates devices to the program while it runs.

use super::child::{code, is_stopped, start_code, Program, Signals};
use super::{failed_to_start, prepare, DaemonLock, PAUSE_MAX, PAUSE_MIN, STEADY};
use crate::args::{AsOne, Run};
use crate::exit::Exit;
use crate::output;
use crate::registry::{call, unreachable, Registry, Services};
use anyhow::{anyhow, bail, Result};
use baltra_api::registry::{AllocateRequest, Assignment, Instance, Refusal};
use baltra_api::registry::{ReleaseRequest, RenewRequest};
use baltra_manager::options::PathOptions;
use rustix::process::Signal;
use std::path::Path;
use std::process::{ExitCode, ExitStatus};
use std::time::{Duration, Instant};
use tonic::{Code, Status};

/// Lease of the instance without renewal, seconds.
const LEASE_S: u32 = 30;
/// Longest interval of renewals, which also return changes of its devices.
const RENEW_MAX: Duration = Duration::from_secs(5);
/// Longest time for a program to exit before it moves.
const END_MAX: Duration = Duration::from_secs(10);
/// Most refused devices that an error lists.
const REFUSED_MAX: usize = 12;

/// Runs the program on devices that match `query`; returns its exit code.
pub fn run(args: &Run, query: &str, vendors: &Path, paths: &PathOptions) -> Result<ExitCode> {
    let count = match &args.pool {
        None => args.count,
        Some(AsOne::Count(count)) => *count,
        Some(AsOne::Named(_)) => bail!("with a query, --pool takes the number of devices"),
    };
    let registry = Registry::connect(&args.at, paths)?;
    let request = AllocateRequest {
        instance: args.instance.clone().unwrap_or_default(),
        tenant: args.tenant.clone().unwrap_or_default(),
        query: query.to_owned(),
        count,
        hostname: rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned(),
        lease_s: Some(LEASE_S),
        move_policy: args.move_policy.clone().unwrap_or_default(),
        ..AllocateRequest::default()
    };
    registry.run(async {
        let mut owner = Owner {
            args,
            vendors,
            url: registry.url.clone(),
            services: registry.services.clone(),
            instance: Instance::default(),
            request,
            trouble: false,
        };
        owner.allocate().await?;
        let ended = owner.serve().await;
        owner.release().await;
        ended
    })
}

/// The owner of an instance, which renews its lease.
struct Owner<'a> {
    args: &'a Run,
    vendors: &'a Path,
    url: String,
    services: Services,
    instance: Instance,
    request: AllocateRequest,
    /// Whether the last request to the registry failed.
    trouble: bool,
}

/// Why a program ended.
enum End {
    /// It exited by itself.
    Itself(ExitStatus),
    /// It was stopped because its devices have changed.
    Moved,
}

impl Owner<'_> {
    async fn allocate(&mut self) -> Result<()> {
        let request = self.request.clone();
        let mut instances = self.services.instances.clone();
        let reply = call(instances.allocate(request)).await;
        let reply = reply.map_err(|status| unreachable(&self.url, &status))?;
        match (reply.instance, reply.refusal) {
            (Some(instance), _) => {
                self.request.instance.clone_from(&instance.name);
                self.instance = instance;
                Ok(())
            }
            (None, Some(refusal)) => Err(refused(&refusal)),
            (None, None) => Err(anyhow!(
                "the registry at {} returned neither a device nor a reason",
                self.url
            )),
        }
    }

    /// Renews the lease and updates the instance's devices.
    async fn renew(&mut self) {
        let request = RenewRequest {
            instance: self.instance.name.clone(),
            ..RenewRequest::default()
        };
        let mut instances = self.services.instances.clone();
        let news = match call(instances.renew(request)).await {
            Ok(instance) => {
                self.instance = instance;
                None
            }
            // The registry has lost its state, or this instance's lease had expired.
            Err(status) if status.code() == Code::NotFound => {
                self.allocate().await.err().map(|e| format!("{e:#}"))
            }
            Err(status) => Some(format!("{:#}", unreachable(&self.url, &status))),
        };
        match (&news, self.trouble) {
            (Some(why), false) => eprintln!("baltra: {why}; the program continues"),
            (None, true) => eprintln!("baltra: the registry at {} responds again", self.url),
            _ => {}
        }
        self.trouble = news.is_some();
    }

    /// Releases the instance at the program's end.
    async fn release(&mut self) {
        let request = ReleaseRequest {
            instance: self.instance.name.clone(),
        };
        let mut instances = self.services.instances.clone();
        let released = tokio::time::timeout(Duration::from_secs(5), instances.release(request));
        let error = match released.await {
            Ok(Ok(_)) => return,
            Ok(Err(status)) => status,
            Err(_) => Status::deadline_exceeded("no answer"),
        };
        eprintln!(
            "baltra: {:#}; its devices are released in {} s",
            unreachable(&self.url, &error),
            self.instance.lease_s
        );
    }

    fn between_renewals(&self) -> Duration {
        RENEW_MAX.min(Duration::from_secs(
            u64::from(self.instance.lease_s.max(3)) / 3,
        ))
    }

    async fn serve(&mut self) -> Result<ExitCode> {
        let mut signals = Signals::new()?;
        let mut pause = PAUSE_MIN;
        loop {
            if !self.wait_devices(&mut signals).await {
                return Ok(Exit::Terminated.into());
            }
            let place = self.place()?;
            let started = Instant::now();
            let program = match Program::start(prepare(self.args, self.vendors, &place)) {
                Ok(program) => program,
                Err(error) => {
                    output::error(&failed_to_start(self.args, &error));
                    return Ok(start_code(&error));
                }
            };
            let name = self.args.program[0].display();
            match self.watch(program, &mut signals).await? {
                End::Moved => {
                    let devices = names(&self.instance.devices);
                    eprintln!("baltra: {name} moves to {devices}, restarting it");
                    pause = PAUSE_MIN;
                }
                End::Itself(status) => {
                    if !self.args.restart || status.success() || is_stopped(status) {
                        return Ok(code(status));
                    }
                    if started.elapsed() > STEADY {
                        pause = PAUSE_MIN;
                    }
                    eprintln!("baltra: {name} ended ({status}), restarting it");
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        () = signals.any() => return Ok(code(status)),
                    }
                    pause = (pause * 2).min(PAUSE_MAX);
                    // The program may have ended because its device was removed.
                    self.renew().await;
                }
            }
        }
    }

    /// Waits for devices; false if a signal ended the wait.
    async fn wait_devices(&mut self, signals: &mut Signals) -> bool {
        let mut noted = false;
        while self.instance.devices.is_empty() {
            if !std::mem::replace(&mut noted, true) {
                eprintln!("baltra: waiting for a device: {}", self.instance.pending);
            }
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
                () = signals.any() => return false,
            }
            self.renew().await;
        }
        true
    }

    /// Watches a running program.
    async fn watch(&mut self, mut program: Program, signals: &mut Signals) -> Result<End> {
        let mut next = Instant::now() + self.between_renewals();
        let mut noted = false;
        loop {
            tokio::select! {
                status = program.end() => return Ok(End::Itself(status?)),
                signal = signals.next() => program.signal(signal),
                () = tokio::time::sleep_until(next.into()) => {
                    let before = self.instance.devices.clone();
                    // A slow registry does not delay handling the program's end.
                    tokio::select! {
                        status = program.end() => return Ok(End::Itself(status?)),
                        () = self.renew() => {}
                    }
                    next = Instant::now() + self.between_renewals();
                    if places(&before) == places(&self.instance.devices) {
                        continue;
                    }
                    if !are_others(&before, &self.instance.devices) {
                        let name = self.args.program[0].display();
                        let devices = names(&self.instance.devices);
                        eprintln!("baltra: {name} goes on: its sessions are on {devices}");
                        continue;
                    }
                    if self.args.restart {
                        self.end(&mut program).await?;
                        return Ok(End::Moved);
                    }
                    if !std::mem::replace(&mut noted, true) {
                        eprintln!(
                            "baltra: the registry has allocated other devices to this program ({}); it continues on its old ones (--restart would move it)",
                            names(&self.instance.devices)
                        );
                    }
                }
            }
        }
    }

    /// Stops a program.
    async fn end(&self, program: &mut Program) -> Result<()> {
        program.signal(Signal::TERM);
        if tokio::time::timeout(END_MAX, program.end()).await.is_err() {
            program.signal(Signal::KILL);
            program.end().await?;
        }
        Ok(())
    }

    /// The program's devices and endpoints.
    fn place(&self) -> Result<DaemonLock> {
        let mut endpoints: Vec<&str> = Vec::new();
        let local = is_local(&self.url);
        for device in &self.instance.devices {
            let endpoint = reachable(&device.endpoints, local).ok_or_else(|| {
                anyhow!(
                    "node {} has no endpoint for sessions from this host: set 'listen.tcp' or 'node.advertise' there",
                    device.node
                )
            })?;
            if !endpoints.contains(&endpoint) {
                endpoints.push(endpoint);
            }
        }
        let mark = if self.args.restart { " (restarts)" } else { "" };
        Ok(DaemonLock {
            endpoint: endpoints.join(","),
            device: Some(places(&self.instance.devices).join(",")),
            pool: self
                .args
                .pool
                .as_ref()
                .map(|_| weighted(&self.instance.devices)),
            instance: Some(format!("{}{mark}", self.instance.name)),
        })
    }
}

/// The devices as node/device.
fn places(devices: &[Assignment]) -> Vec<String> {
    let place = |a: &Assignment| format!("{}/{}", a.node, a.device);
    devices.iter().map(place).collect()
}

/// Whether an instance has other devices than before for which its program has to be started again.
/// Where its sessions have moved while it runs, it is already.
fn are_others(before: &[Assignment], now: &[Assignment]) -> bool {
    let before = places(before);
    let is_new = |a: &&Assignment| !before.contains(&format!("{}/{}", a.node, a.device));
    let mut new = now.iter().filter(is_new).peekable();
    if new.peek().is_some() {
        new.any(|a| !a.live)
    } else {
        now.len() != before.len() && !now.iter().any(|a| a.live)
    }
}

/// The devices with their weights.
fn weighted(devices: &[Assignment]) -> String {
    let one = |a: &Assignment| format!("{}/{}={}", a.node, a.device, a.weight);
    devices.iter().map(one).collect::<Vec<_>>().join(",")
}

fn names(devices: &[Assignment]) -> String {
    if devices.is_empty() {
        "none".into()
    } else {
        places(devices).join(", ")
    }
}

/// Whether the registry is on this host, so that its sockets are usable.
fn is_local(url: &str) -> bool {
    let node = baltra_manager::options::NodeOptions {
        registry: url.to_owned(),
        ..Default::default()
    };
    node.registry_is_local()
}

/// The first usable endpoint of a node.
fn reachable(endpoints: &[String], local: bool) -> Option<&str> {
    let usable = |endpoint: &&String| match endpoint.strip_prefix("unix:") {
        Some(path) => local && Path::new(path).exists(),
        None => true,
    };
    endpoints.iter().find(usable).map(String::as_str)
}

/// The error for a refusal.
fn refused(refusal: &Refusal) -> anyhow::Error {
    let mut text = refusal.reason.clone();
    for device in refusal.devices.iter().take(REFUSED_MAX) {
        text.push_str(&format!(
            "\n  {} ({}): {}",
            device.device, device.filter, device.reason
        ));
    }
    let unnamed = refusal.devices.len().saturating_sub(REFUSED_MAX) + refusal.more as usize;
    if unnamed > 0 {
        text.push_str(&format!("\n  and {unnamed} more"));
    }
    anyhow!(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_host_s_socket_is_not_taken_for_this_one_s() {
        let socket = tempfile::NamedTempFile::new().unwrap();
        let unix = format!("unix:{}", socket.path().display());
        let both = [unix.clone(), "tcp://node-1:7473".to_owned()];
        assert_eq!(reachable(&both, true), Some(unix.as_str()));
        assert_eq!(reachable(&both, false), Some("tcp://node-1:7473"));
        assert_eq!(reachable(&["unix:/no/such/socket".to_owned()], true), None);
    }

    #[test]
    fn a_program_is_not_restarted_for_devices_that_its_sessions_moved_to() {
        let device = |name: &str, live| Assignment {
            node: "n".into(),
            device: name.into(),
            live,
            ..Assignment::default()
        };
        let (a, b) = (device("a", false), device("b", false));
        let (live_b, live_c) = (device("b", true), device("c", true));
        let of = |devices: &[&Assignment]| -> Vec<Assignment> {
            devices.iter().map(|d| (*d).clone()).collect()
        };
        // All of its sessions have moved, some of them, and then the rest.
        assert!(!are_others(&of(&[&a]), &of(&[&live_b])));
        assert!(!are_others(&of(&[&a]), &of(&[&a, &live_b])));
        assert!(!are_others(&of(&[&a, &live_b]), &of(&[&live_b])));
        assert!(!are_others(&of(&[&live_b]), &of(&[&live_c])));
        // The registry has allocated another device, or takes one away.
        assert!(are_others(&of(&[&a]), &of(&[&b])));
        assert!(are_others(&of(&[&live_b]), &of(&[&a])));
        assert!(are_others(&of(&[&a]), &of(&[&b, &live_c])));
        assert!(are_others(&of(&[&a, &b]), &of(&[&a])));
        assert!(are_others(&of(&[&a]), &[]));
        // Devices in another order are the same.
        assert!(!are_others(&of(&[&a, &b]), &of(&[&b, &a])));
    }

    #[test]
    fn a_refusal_names_devices_and_what_they_lack() {
        let device = baltra_api::registry::Rejection {
            device: "a/gpu0".into(),
            filter: "metric".into(),
            reason: "utilization is 97, at most 90".into(),
        };
        let refusal = Refusal {
            reason: "no device fits".into(),
            devices: vec![device; 20],
            more: 3,
        };
        let text = refused(&refusal).to_string();
        assert!(
            text.contains("a/gpu0 (metric): utilization is 97"),
            "{text}"
        );
        assert!(text.contains("and 11 more"), "{text}");
    }
}
