//! The control service: operators' requests over the control socket.

use crate::configuration;
use crate::images::{self, Metadata};
use crate::moves::{self, Description};
use crate::node::{Device, Node, SessionRecord};
use crate::options::{ImageKind, LimitOptions};
use crate::tenants::{self, Tenant};
use baltra_api::control::{self as proto, control_server::Control};
use baltra_ring::{LeaseState, Usage};
use baltra_wire::executor::Remote;
use baltra_wire::opencl::{
    DEVICE_GLOBAL_MEM_SIZE, DEVICE_MAX_COMPUTE_UNITS, DEVICE_NAME, DEVICE_VENDOR, DEVICE_VERSION,
    DRIVER_VERSION,
};
use std::os::unix::net::UnixListener;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status, Streaming};

/// The images that wait for their turn on a device.
fn waiting_images(node: &Node, device: &Device) -> Vec<proto::WaitingImage> {
    let waiting = crate::registry::waiting_images(node, device).into_iter();
    let image = |image: baltra_api::registry::WaitingImage| proto::WaitingImage {
        digest: image.digest,
        name: image.name,
        sessions: image.sessions,
        waiting_ms: image.waiting_ms,
    };
    waiting.map(image).collect()
}

/// The images of a board's regions.
fn held(node: &Node, device: &Device) -> Vec<proto::HeldImage> {
    if device.options.image == ImageKind::Exclusive {
        return Vec::new();
    }
    let image = |region: baltra_api::registry::Region| proto::HeldImage {
        region: region.index,
        digest: region.digest,
        name: region.name,
    };
    let regions = crate::registry::regions(node, device).into_iter();
    regions.map(image).collect()
}

/// Signals the manager's shutdown, and how long running sessions may continue.
pub(crate) type Stop = tokio::sync::watch::Sender<Option<Duration>>;

/// Serves until the runtime ends.
pub(crate) async fn serve(node: Arc<Node>, listener: UnixListener, stop: Stop) {
    let served = async {
        listener.set_nonblocking(true)?;
        let incoming = UnixListenerStream::new(tokio::net::UnixListener::from_std(listener)?);
        let service = proto::control_server::ControlServer::new(Operator { node, stop });
        let server = tonic::transport::Server::builder().add_service(service);
        server.serve_with_incoming(incoming).await?;
        anyhow::Ok(())
    };
    if let Err(error) = served.await {
        tracing::error!(error = %format!("{error:#}"), "the control socket is no longer served");
    }
}

struct Operator {
    node: Arc<Node>,
    stop: Stop,
}

impl From<tenants::Error> for Status {
    fn from(error: tenants::Error) -> Status {
        use tenants::Error::*;
        let text = error.to_string();
        match error {
            Unknown(_) => Status::not_found(text),
            Exists(_) => Status::already_exists(text),
            Invalid(_) => Status::invalid_argument(text),
            Fixed(_) => Status::failed_precondition(text),
            NotAllowed(_) => Status::permission_denied(text),
            Store(_) => Status::internal(format!("{:#}", anyhow::Error::from(error))),
        }
    }
}

impl From<images::Error> for Status {
    fn from(error: images::Error) -> Status {
        use images::Error::*;
        let text = error.to_string();
        match error {
            Unknown(_) => Status::not_found(text),
            Ambiguous(..) | Foreign { .. } | TooLong | Empty | Name(_) | Digest | Target(_) => {
                Status::invalid_argument(text)
            }
            Io(_) => Status::internal(format!("{:#}", anyhow::Error::from(error))),
        }
    }
}

impl From<configuration::Error> for Status {
    fn from(error: configuration::Error) -> Status {
        use configuration::Error::*;
        let text = error.to_string();
        match error {
            Shared(_) | InUse { .. } | Driver { .. } | Refused { .. } => {
                Status::failed_precondition(text)
            }
            Busy(_) => Status::deadline_exceeded(text),
        }
    }
}

impl From<moves::Error> for Status {
    fn from(error: moves::Error) -> Status {
        use moves::Error::*;
        let text = error.to_string();
        match error {
            NoSession(_) | NoDevice(_) => Status::not_found(text),
            Refused { .. } | Facts { .. } | Fixed { .. } | Running(_) => {
                Status::failed_precondition(text)
            }
            Moving(_) | Failed { .. } => Status::aborted(text),
        }
    }
}

type Answer<T> = Result<Response<T>, Status>;

fn now_ns() -> u64 {
    baltra_ring::lease::monotonic_ns()
}

/// Maximum time of a session's commands in flight.
fn wait_of(ms: Option<u32>) -> Duration {
    let wait = ms.map_or(moves::WAIT, |ms| Duration::from_millis(ms.into()));
    wait.min(moves::WAIT_MAX)
}

fn moved_message(moved: moves::Moved) -> proto::MoveSessionReply {
    proto::MoveSessionReply {
        from: moved.from,
        to: moved.to,
        took_us: moved.took.as_micros() as u64,
        stopped_us: moved.cost.stopped.as_micros() as u64,
        bytes: moved.cost.bytes.0,
        stopped_bytes: moved.cost.bytes.1,
        stopped_objects: moved.cost.stopped_objects,
    }
}

fn tenant_message(tenant: Tenant) -> proto::Tenant {
    let l = tenant.limits;
    proto::Tenant {
        name: tenant.name,
        weight: tenant.weight,
        priority: tenant.priority,
        quota: Some(proto::Quota {
            memory_bytes: l.memory_bytes,
            arena_bytes: l.arena_bytes,
            objects: l.objects,
            queued_commands: l.queued_commands,
            task_ms: l.task_ms,
            sessions: l.sessions,
        }),
        has_token: !tenant.token_sha256.is_empty(),
        users: tenant.users,
        origin: tenant.origin.to_string(),
        owner: tenant.owner,
        devices: tenant.devices,
        share: tenant.share,
        share_max: tenant.share_max,
    }
}

fn limits(quota: Option<proto::Quota>) -> LimitOptions {
    let q = quota.unwrap_or_default();
    LimitOptions {
        memory_bytes: q.memory_bytes,
        arena_bytes: q.arena_bytes,
        objects: q.objects,
        queued_commands: q.queued_commands,
        task_ms: q.task_ms,
        sessions: q.sessions,
    }
}

fn session_message(id: u64, s: &SessionRecord) -> proto::Session {
    proto::Session {
        id,
        tenant: s.tenant.clone(),
        device: s.device.clone(),
        instance: s.instance.clone(),
        pid: s.pid,
        uid: s.uid,
        age_s: s.since.elapsed().as_secs(),
        executor_pid: s.executor_pid,
        transport: s.transport.into(),
        suspended: s.is_suspended,
        remote: s.remote.clone().unwrap_or_default(),
        ..proto::Session::default()
    }
}

fn accelerator_message(m: Metadata) -> proto::Accelerator {
    proto::Accelerator {
        digest: m.digest,
        name: m.name,
        kernels: m.kernels,
        target: m.target,
        bytes: m.bytes,
        pushed_at_s: m.pushed_at_s,
    }
}

impl Operator {
    fn device_message(&self, device: &Device) -> proto::Device {
        let description = device.description.get();
        let description = description.as_deref();
        let text = |param| description.map(|d| d.text(param)).unwrap_or_default();
        let number = |param| description.map_or(0, |d| d.number(param));
        let failure = device.pool.failure();
        let state = match (&failure, description) {
            (Some(_), _) => "failed",
            (None, Some(_)) => "ready",
            (None, None) => "starting",
        };
        let lines = self.node.accounts.lines();
        let own = lines.iter().filter(|(_, d, ..)| d == device.name());
        let (mut busy_ns, mut tasks, mut bytes) = (0u64, 0u64, 0u64);
        for (_, _, used, _) in own {
            busy_ns = busy_ns.saturating_add(used.busy_ns);
            tasks = tasks.saturating_add(used.tasks);
            bytes = bytes.saturating_add(used.bytes_in.saturating_add(used.bytes_out));
        }
        let leases = device.pool.leases();
        let memory = leases.iter().map(|m| m.lease.granter.usage().memory_bytes);
        // Dropped immediately: a device's configuration is locked before the sessions, never after.
        let own = |s: &&crate::node::SessionRecord| s.is_on(device.name());
        let open = self.node.sessions().values().filter(own).count();
        proto::Device {
            name: device.name().to_owned(),
            model: text(DEVICE_NAME),
            vendor: text(DEVICE_VENDOR),
            device_version: text(DEVICE_VERSION),
            driver_version: text(DRIVER_VERSION),
            platform: description.map(|d| d.platform_name()).unwrap_or_default(),
            driver: device.driver.display().to_string(),
            select: device.options.select.clone(),
            isolation: device.options.isolation.to_string(),
            policy: device.options.policy.to_string(),
            slots: device.slots() as u32,
            quantum_ms: device.options.quantum_ms,
            exclusive: device.options.image == ImageKind::Exclusive,
            state: state.into(),
            reason: failure.unwrap_or_default(),
            memory_bytes: number(DEVICE_GLOBAL_MEM_SIZE),
            compute_units: number(DEVICE_MAX_COMPUTE_UNITS) as u32,
            regions: device.regions(),
            held: held(&self.node, device),
            sessions: open as u32,
            executors: device.pool.count() as u32,
            waiting: device.gate.waiting() as u32,
            busy_ns,
            tasks,
            bytes,
            memory_used_bytes: memory.fold(0, u64::saturating_add),
            executor_deaths: device.deaths.load(Ordering::Relaxed),
            reconfigurations: device.reconfigurations.load(Ordering::Relaxed),
            image: device.configuration.loaded().unwrap_or_default(),
            loading: device.configuration.loading().unwrap_or_default(),
            waiting_images: waiting_images(&self.node, device),
            at_ns: now_ns(),
            host_memory: description.is_some_and(|d| d.host_memory),
            faults: device
                .pool
                .faults()
                .into_iter()
                .map(|(tenant, fault, count)| proto::Fault {
                    tenant,
                    cause: fault.name().into(),
                    count,
                })
                .collect(),
        }
    }
}

#[tonic::async_trait]
impl Control for Operator {
    async fn status(&self, _: Request<proto::StatusRequest>) -> Answer<proto::StatusReply> {
        let node = &self.node;
        let options = &node.options;
        let mut endpoints = vec![format!("unix:{}", options.paths.session_socket().display())];
        if let Some(address) = options.listen.tcp {
            let scheme = if options.listen.tls_cert.is_some() {
                "tls"
            } else {
                "tcp"
            };
            endpoints.push(format!("{scheme}://{address}"));
        }
        let metrics = options.metrics.socket().ok().flatten();
        Ok(Response::new(proto::StatusReply {
            node: options.node.name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            protocol: baltra_wire::VERSION.to_string(),
            pid: std::process::id(),
            uptime_s: node.started.elapsed().as_secs(),
            draining: node.is_draining(),
            endpoints,
            metrics: metrics.map_or_else(String::new, |a| format!("http://{a}/metrics")),
            sessions: node.sessions().len() as u32,
            executors: node.devices.iter().map(|d| d.pool.count() as u32).sum(),
            executor_deaths: node
                .devices
                .iter()
                .map(|d| d.deaths.load(Ordering::Relaxed))
                .sum(),
            runtime_dir: options.paths.runtime.display().to_string(),
            state_dir: options.paths.state.display().to_string(),
            ready: node.is_ready(),
            registry: node
                .registry
                .as_ref()
                .map_or(String::new(), |l| l.url.clone()),
            registry_trouble: node
                .registry
                .as_ref()
                .map_or(String::new(), |l| l.trouble()),
        }))
    }

    async fn devices(&self, _: Request<proto::DevicesRequest>) -> Answer<proto::DevicesReply> {
        self.node.read_leases();
        let devices = self.node.devices.iter().map(|d| self.device_message(d));
        Ok(Response::new(proto::DevicesReply {
            devices: devices.collect(),
        }))
    }

    async fn sessions(
        &self,
        request: Request<proto::SessionsRequest>,
    ) -> Answer<proto::SessionsReply> {
        let descriptions = request
            .into_inner()
            .details
            .then(|| tokio::task::block_in_place(|| self.node.describe_sessions()));
        let sessions = self.node.sessions();
        let message = |(id, s): (&u64, &SessionRecord)| {
            let session = session_message(*id, s);
            let Some(descriptions) = &descriptions else {
                return Some(session);
            };
            // A session that its executor frees has ended, although its record is still there.
            Some(match descriptions.of(s.executor, *id)? {
                Description::Described(facts) => proto::Session {
                    described: true,
                    resident_bytes: facts.resident_bytes,
                    swapped_bytes: facts.swapped_bytes,
                    queues: facts.queues,
                    obstacle: facts.obstacle.clone(),
                    stored_bytes: facts.stored_bytes,
                    ..session
                },
                Description::Unknown(why) => proto::Session {
                    obstacle: why.into(),
                    ..session
                },
            })
        };
        Ok(Response::new(proto::SessionsReply {
            sessions: sessions.iter().filter_map(message).collect(),
        }))
    }

    async fn move_session(
        &self,
        request: Request<proto::MoveSessionRequest>,
    ) -> Answer<proto::MoveSessionReply> {
        let r = request.into_inner();
        let wait = wait_of(r.wait_ms);
        let moved = tokio::task::block_in_place(|| match r.remote {
            None => self.node.move_session(r.session, &r.device, wait, r.force),
            Some(node) => {
                let terms = moves::Terms {
                    wait,
                    force: r.force,
                };
                if node.endpoint.is_empty() {
                    let access = (node.token, node.authority.as_str());
                    return self.node.send_in_pool(r.session, &r.device, access, terms);
                }
                let to = Remote {
                    endpoint: node.endpoint,
                    device: r.device,
                    token: node.token,
                };
                self.node
                    .send_session(r.session, to, &node.authority, terms)
            }
        })?;
        let link = self.node.registry.as_ref();
        if let Some(link) = link.filter(|link| link.has_places()) {
            // The registry's next answers have the session where it is.
            link.report().await;
        }
        Ok(Response::new(moved_message(moved)))
    }

    async fn suspend_session(
        &self,
        request: Request<proto::SuspendSessionRequest>,
    ) -> Answer<proto::MoveSessionReply> {
        let r = request.into_inner();
        let wait = wait_of(r.wait_ms);
        let moved = tokio::task::block_in_place(|| self.node.suspend_session(r.session, wait))?;
        Ok(Response::new(moved_message(moved)))
    }

    async fn resume_session(
        &self,
        request: Request<proto::ResumeSessionRequest>,
    ) -> Answer<proto::MoveSessionReply> {
        let r = request.into_inner();
        let moved = tokio::task::block_in_place(|| {
            self.node
                .resume_session(r.session, r.device.as_deref(), r.force)
        })?;
        Ok(Response::new(moved_message(moved)))
    }

    async fn restart_executors(
        &self,
        request: Request<proto::RestartExecutorsRequest>,
    ) -> Answer<proto::RestartExecutorsReply> {
        let device = request.into_inner().device;
        let (serving_pids, failure) =
            tokio::task::block_in_place(|| self.node.restart_executors(&device))?;
        Ok(Response::new(proto::RestartExecutorsReply {
            serving_pids,
            failure: failure.unwrap_or_default(),
        }))
    }

    async fn usage(&self, request: Request<proto::UsageRequest>) -> Answer<proto::UsageReply> {
        self.node.read_leases();
        let wanted = request.into_inner().tenant;
        let lines = self.node.accounts.lines();
        let mut usage = Vec::new();
        for (tenant, device, used, _) in lines {
            if !wanted.is_empty() && tenant != wanted {
                continue;
            }
            let leases = self.node.device(&device).map(|d| d.pool.leases());
            let leases = leases.unwrap_or_default();
            let own = || leases.iter().filter(|m| m.lease.tenant == tenant);
            let sum = |of: fn(&Usage) -> u64| {
                let each = own().map(|m| of(&m.lease.granter.usage()));
                each.fold(0, u64::saturating_add)
            };
            let states = own().map(|m| match m.lease.granter.state() {
                LeaseState::Busy | LeaseState::Revoked => "busy",
                LeaseState::Waiting => "waiting",
                LeaseState::Idle => "held",
                LeaseState::Free => "idle",
            });
            let gate = states.min().unwrap_or_default().to_owned();
            let sessions = self.node.sessions();
            let open = sessions
                .values()
                .filter(|s| s.tenant == tenant && s.is_on(&device))
                .count();
            usage.push(proto::Usage {
                memory_used_bytes: sum(|u| u.memory_bytes),
                resident_bytes: sum(|u| u.resident_bytes),
                swapped_bytes: sum(|u| u.swapped_bytes),
                moved_bytes: used.swapped_in.saturating_add(used.swapped_out),
                sessions_open: open as u32,
                gate,
                busy_ns: used.busy_ns,
                tasks: used.tasks,
                bytes: used.bytes_in.saturating_add(used.bytes_out),
                sessions: used.sessions,
                tenant,
                device,
            });
        }
        let at_ns = now_ns();
        Ok(Response::new(proto::UsageReply { usage, at_ns }))
    }

    async fn tenants(&self, _: Request<proto::TenantsRequest>) -> Answer<proto::TenantsReply> {
        let tenants = self.node.tenants.list();
        Ok(Response::new(proto::TenantsReply {
            tenants: tenants.into_iter().map(tenant_message).collect(),
        }))
    }

    async fn tenant_add(&self, request: Request<proto::TenantAddRequest>) -> Answer<proto::Tenant> {
        let r = request.into_inner();
        let tenant = Tenant {
            weight: r.weight.max(1),
            priority: r.priority,
            limits: limits(r.quota),
            users: r.users,
            owner: r.owner,
            devices: r.devices,
            share: r.share,
            share_max: r.share_max,
            ..Tenant::named(&r.name)
        };
        let tenant = self.node.tenants.add(tenant)?;
        self.node.tenant_changed(&tenant);
        Ok(Response::new(tenant_message(tenant)))
    }

    async fn tenant_quota(
        &self,
        request: Request<proto::TenantQuotaRequest>,
    ) -> Answer<proto::Tenant> {
        let r = request.into_inner();
        let tenant = self.node.tenants.change(&r.name, |t| {
            t.weight = r.weight.unwrap_or(t.weight);
            t.priority = r.priority.unwrap_or(t.priority);
            t.limits = limits(r.quota).or(t.limits);
            t.users.extend(r.users_add);
            t.users.sort_unstable();
            t.users.dedup();
        })?;
        self.node.tenant_changed(&tenant);
        Ok(Response::new(tenant_message(tenant)))
    }

    async fn tenant_token(
        &self,
        request: Request<proto::TenantTokenRequest>,
    ) -> Answer<proto::TenantTokenReply> {
        let token = self.node.tenants.new_token(&request.into_inner().name)?;
        Ok(Response::new(proto::TenantTokenReply { token }))
    }

    async fn tenant_remove(
        &self,
        request: Request<proto::TenantRemoveRequest>,
    ) -> Answer<proto::TenantRemoveReply> {
        let name = request.into_inner().name;
        self.node.tenants.remove(&name)?;
        let ended: usize = self.node.devices.iter().map(|d| d.pool.evict(&name)).sum();
        Ok(Response::new(proto::TenantRemoveReply {
            sessions_ended: ended as u32,
        }))
    }

    async fn accelerator_push(
        &self,
        request: Request<Streaming<proto::AcceleratorChunk>>,
    ) -> Answer<proto::Accelerator> {
        let mut chunks = request.into_inner();
        let mut upload = self.node.images.upload()?;
        let mut metadata = None;
        while let Some(chunk) = chunks.message().await? {
            metadata = metadata.or(chunk.metadata);
            upload.write(&chunk.data)?;
        }
        let m = metadata
            .ok_or_else(|| Status::invalid_argument("the first message carries the metadata"))?;
        let metadata = Metadata {
            name: m.name,
            kernels: m.kernels,
            target: m.target,
            ..Metadata::default()
        };
        let kept = self.node.images.finish(upload, metadata)?;
        if let Some(link) = &self.node.registry {
            // A function that is deployed next may name it.
            link.report().await;
        }
        tracing::info!(digest = kept.digest, name = kept.name, "accelerator pushed");
        Ok(Response::new(accelerator_message(kept)))
    }

    async fn accelerators(
        &self,
        _: Request<proto::AcceleratorsRequest>,
    ) -> Answer<proto::AcceleratorsReply> {
        let all = self.node.images.list()?;
        Ok(Response::new(proto::AcceleratorsReply {
            accelerators: all.into_iter().map(accelerator_message).collect(),
        }))
    }

    async fn accelerator_remove(
        &self,
        request: Request<proto::AcceleratorRemoveRequest>,
    ) -> Answer<proto::Accelerator> {
        let wanted = request.into_inner().accelerator;
        let found = self.node.images.find(&wanted)?;
        let holder = self
            .node
            .devices
            .iter()
            .find(|d| d.configuration.image().as_ref() == Some(&found.digest));
        if let Some(device) = holder {
            return Err(Status::failed_precondition(format!(
                "device '{}' is configured with it: reconfigure the device first",
                device.name()
            )));
        }
        let removed = self.node.images.remove(&found.digest)?;
        if let Some(link) = &self.node.registry {
            link.report().await;
        }
        Ok(Response::new(accelerator_message(removed)))
    }

    async fn reconfigure(
        &self,
        request: Request<proto::ReconfigureRequest>,
    ) -> Answer<proto::ReconfigureReply> {
        let r = request.into_inner();
        let image = self.node.images.find(&r.accelerator)?;
        let device = self.node.device(&r.device).ok_or_else(|| {
            Status::not_found(format!(
                "there is no device '{}' (`baltra devices` lists them)",
                r.device
            ))
        })?;
        let fits = self.node.check_target(device, &image.digest);
        fits.map_err(Status::failed_precondition)?;
        let changed = tokio::task::block_in_place(|| {
            let is_open = |session| self.node.sessions().contains_key(&session);
            if !device.needs(&image.digest, is_open, |session| self.node.yields(session))? {
                return Ok(false);
            }
            // The device is not paused while the executor starts.
            let loader = self.node.loader(device, &image.digest);
            let load = || loader.and_then(|loader| loader.load());
            self.node.load_for_operator(device, &image.digest, load)
        })?;
        Ok(Response::new(proto::ReconfigureReply {
            digest: image.digest,
            unchanged: !changed,
        }))
    }

    async fn shutdown(
        &self,
        request: Request<proto::ShutdownRequest>,
    ) -> Answer<proto::ShutdownReply> {
        let configured = self.node.options.executors.drain_ms;
        let grace = Duration::from_millis(request.into_inner().drain_ms.unwrap_or(configured));
        let sessions = self.node.sessions().len() as u32;
        self.node.drain();
        let stop = self.stop.clone();
        // After the response has been sent.
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let _ = stop.send(Some(grace));
        });
        Ok(Response::new(proto::ShutdownReply { sessions }))
    }
}
