//! The gRPC services. Each forwards a request to its implementation, outside the reactor if that
//! may block on the disk.

use crate::failure::Failure;
use crate::options::{Options, Role};
use crate::registry::Registry;
use crate::{functions, instances, nodes, operators, places, reconfigure};
use baltra_api::registry as proto;
use baltra_api::registry::functions_server::{Functions, FunctionsServer};
use baltra_api::registry::instances_server::{Instances, InstancesServer};
use baltra_api::registry::nodes_server::{Nodes, NodesServer};
use baltra_api::registry::operators_server::{Operators, OperatorsServer};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use tokio::sync::Semaphore;
use tonic::service::interceptor::InterceptedService;
use tonic::service::Interceptor;
use tonic::transport::server::Router;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

type Answer<T> = Result<Response<T>, Status>;

/// Limit of a message with a function's content and metadata.
const FUNCTION_BYTES_MAX: usize = functions::CONTENT_BYTES_MAX + (1 << 20);

/// All services of one registry.
#[derive(Clone, Debug)]
pub(crate) struct Doors {
    registry: Arc<Registry>,
    /// Limits the number of requests that may block on the disk.
    room: Arc<Semaphore>,
}

impl Doors {
    pub(crate) fn new(registry: Arc<Registry>) -> Doors {
        let room = Arc::new(Semaphore::new(registry.options.limits.requests.max(1)));
        Doors { registry, room }
    }

    /// Adds the services to a server, with health and reflection.
    pub(crate) async fn open(self, mut server: Server) -> anyhow::Result<Router> {
        let (health, health_service) = tonic_health::server::health_reporter();
        health.set_serving::<NodesServer<Doors>>().await;
        health.set_serving::<InstancesServer<Doors>>().await;
        health.set_serving::<FunctionsServer<Doors>>().await;
        health.set_serving::<OperatorsServer<Doors>>().await;
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()?;
        let only = |roles| Guard::new(&self.registry.options, roles);
        let everybody = only(&Role::ALL);
        let functions = FunctionsServer::new(self.clone())
            .max_decoding_message_size(FUNCTION_BYTES_MAX)
            .max_encoding_message_size(FUNCTION_BYTES_MAX);
        // 100,000 instances with their devices are some 30 MB.
        let operators = OperatorsServer::new(self.clone());
        Ok(server
            // Health checks need no token, because probes have none.
            .add_service(health_service)
            .add_service(InterceptedService::new(reflection, everybody.clone()))
            .add_service(NodesServer::with_interceptor(
                self.clone(),
                only(&[Role::Node]),
            ))
            .add_service(InstancesServer::with_interceptor(
                self.clone(),
                only(&[Role::Application]),
            ))
            // The read-only methods of these two services are open to all roles; see `operator`.
            .add_service(InterceptedService::new(functions, everybody.clone()))
            .add_service(InterceptedService::new(operators, everybody)))
    }

    /// Runs an operation that may block on the disk. It completes even if the caller disconnects.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Registry) -> Result<T, Status> + Send + 'static,
    ) -> Answer<T> {
        let permit = self.room.clone().acquire_owned().await;
        let permit = permit.map_err(|_| Failure::Unavailable.status("the registry is stopping"))?;
        let registry = self.registry.clone();
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work(&registry)
        });
        let reply = done
            .await
            .map_err(|error| Failure::Internal.status(format!("the request failed: {error}")))?;
        reply.map(Response::new)
    }
}

/// Accepts callers that send a token of the required role; an operator's token has all roles. Only
/// digests are compared, so the timing reveals nothing about the token.
#[derive(Clone, Debug)]
struct Guard {
    /// Digests of each role's token; `None`: all callers have the operator's role.
    tokens: Option<[(Role, [u8; 32]); 3]>,
    roles: &'static [Role],
}

/// Marks the requests of an operator.
#[derive(Clone, Copy, Debug)]
struct ByOperator;

/// Marks the requests of an application.
#[derive(Clone, Copy, Debug)]
struct ByApplication;

impl Guard {
    fn new(options: &Options, roles: &'static [Role]) -> Guard {
        let of = |role| {
            let token = options.token_of(role);
            (role, Sha256::digest(token.as_bytes()).into())
        };
        let closed = !options.token_of(Role::Operator).is_empty();
        Guard {
            tokens: closed.then(|| Role::ALL.map(of)),
            roles,
        }
    }
}

impl Interceptor for Guard {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let Some(tokens) = &self.tokens else {
            request.extensions_mut().insert(ByOperator);
            return Ok(request);
        };
        let header = request.metadata().get("authorization");
        let Some(shown) = header.and_then(|h| h.to_str().ok()?.strip_prefix("Bearer ")) else {
            return Err(Failure::Unauthenticated.status(
                "the registry requires a token: send 'authorization: Bearer …' ('registry.token')",
            ));
        };
        let shown: [u8; 32] = Sha256::digest(shown.as_bytes()).into();
        // Several roles may have the same token.
        let is = |role: &Role| tokens.contains(&(*role, shown));
        if is(&Role::Operator) {
            request.extensions_mut().insert(ByOperator);
            return Ok(request);
        }
        if self.roles.iter().any(is) {
            if is(&Role::Application) {
                request.extensions_mut().insert(ByApplication);
            }
            return Ok(request);
        }
        Err(if Role::ALL.iter().any(is) {
            not_yours(self.roles.first().copied().unwrap_or(Role::Operator))
        } else {
            Failure::Unauthenticated.status("invalid token ('registry.token')")
        })
    }
}

fn not_yours(role: Role) -> Status {
    let role = role.key();
    Failure::PermissionDenied.status(format!(
        "token lacks role '{role}' (set 'registry.tokens.{role}')"
    ))
}

/// Rejects all callers but operators: the method changes shared state.
fn operator<T>(request: &Request<T>) -> Result<(), Status> {
    match request.extensions().get::<ByOperator>() {
        Some(ByOperator) => Ok(()),
        None => Err(not_yours(Role::Operator)),
    }
}

/// Rejects all callers but applications (such as gateways) and operators.
fn application<T>(request: &Request<T>) -> Result<(), Status> {
    match request.extensions().get::<ByApplication>() {
        Some(ByApplication) => Ok(()),
        None => operator(request).map_err(|_| not_yours(Role::Application)),
    }
}

#[tonic::async_trait]
impl Nodes for Doors {
    async fn register(
        &self,
        request: Request<proto::RegisterRequest>,
    ) -> Answer<proto::RegisterReply> {
        let request = request.into_inner();
        self.blocking(|r| nodes::register(r, request)).await
    }

    async fn heartbeat(
        &self,
        request: Request<proto::HeartbeatRequest>,
    ) -> Answer<proto::HeartbeatReply> {
        let request = request.into_inner();
        let node = request.node.clone();
        let (reply, settled) = nodes::heartbeat(&self.registry, request)?;
        if settled {
            self.blocking(move |r| {
                nodes::settle(r, &node);
                Ok(())
            })
            .await?;
        }
        Ok(Response::new(reply))
    }

    async fn deregister(
        &self,
        request: Request<proto::DeregisterRequest>,
    ) -> Answer<proto::DeregisterReply> {
        nodes::deregister(&self.registry, request.into_inner()).map(Response::new)
    }

    async fn reconfiguration(
        &self,
        request: Request<proto::ReconfigurationRequest>,
    ) -> Answer<proto::ReconfigurationReply> {
        let request = request.into_inner();
        self.blocking(|r| reconfigure::reconfiguration(r, request))
            .await
    }

    async fn reconfiguration_end(
        &self,
        request: Request<proto::ReconfigurationEndRequest>,
    ) -> Answer<proto::ReconfigurationEndReply> {
        let request = request.into_inner();
        self.blocking(|r| reconfigure::end(r, request)).await
    }

    async fn session_target(
        &self,
        request: Request<proto::SessionTargetRequest>,
    ) -> Answer<proto::SessionTargetReply> {
        places::target(&self.registry.state(), &request.into_inner()).map(Response::new)
    }

    async fn session_placed(
        &self,
        request: Request<proto::SessionPlacedRequest>,
    ) -> Answer<proto::SessionPlacedReply> {
        let request = request.into_inner();
        self.blocking(move |r| places::placed(r, &request)).await
    }
}

#[tonic::async_trait]
impl Instances for Doors {
    async fn allocate(
        &self,
        request: Request<proto::AllocateRequest>,
    ) -> Answer<proto::AllocateReply> {
        let request = request.into_inner();
        self.blocking(|r| instances::allocate(r, request)).await
    }

    async fn renew(&self, request: Request<proto::RenewRequest>) -> Answer<proto::Instance> {
        let request = request.into_inner();
        self.blocking(|r| instances::renew(r, request)).await
    }

    async fn release(
        &self,
        request: Request<proto::ReleaseRequest>,
    ) -> Answer<proto::ReleaseReply> {
        let request = request.into_inner();
        self.blocking(|r| instances::release(r, request)).await
    }
}

#[tonic::async_trait]
impl Functions for Doors {
    async fn function_put(
        &self,
        request: Request<proto::FunctionPutRequest>,
    ) -> Answer<proto::Function> {
        operator(&request)?;
        let request = request.into_inner();
        self.blocking(|r| functions::put(r, request)).await
    }

    async fn function_remove(
        &self,
        request: Request<proto::FunctionRemoveRequest>,
    ) -> Answer<proto::FunctionRemoveReply> {
        operator(&request)?;
        let request = request.into_inner();
        self.blocking(|r| functions::remove(r, request)).await
    }

    async fn function_get(
        &self,
        request: Request<proto::FunctionGetRequest>,
    ) -> Answer<proto::FunctionGetReply> {
        let request = request.into_inner();
        self.blocking(move |r| functions::get(r, &request.name))
            .await
    }

    async fn functions(
        &self,
        request: Request<proto::FunctionsRequest>,
    ) -> Answer<proto::FunctionsReply> {
        let state = self.registry.state();
        Ok(Response::new(functions::list(
            &state,
            &request.get_ref().tenant,
        )))
    }

    async fn containers(
        &self,
        request: Request<proto::ContainersRequest>,
    ) -> Answer<proto::ContainersReply> {
        operator(&request)?;
        let now = self.registry.uptime();
        let reply = self.registry.containers().update(now, request.into_inner());
        reply.map(Response::new)
    }

    async fn calls(&self, request: Request<proto::CallsRequest>) -> Answer<proto::CallsReply> {
        application(&request)?;
        let now = self.registry.uptime();
        let called = self
            .registry
            .containers()
            .report_calls(now, request.into_inner());
        called.map(Response::new)
    }
}

#[tonic::async_trait]
impl Operators for Doors {
    async fn status(&self, _: Request<proto::StatusRequest>) -> Answer<proto::StatusReply> {
        Ok(Response::new(operators::status(&self.registry)))
    }

    async fn devices(
        &self,
        request: Request<proto::DevicesRequest>,
    ) -> Answer<proto::DevicesReply> {
        // With the clock advanced, because `heard_ms` counts from now, not from its last step: a
        // report from before a request would count as one from after it.
        let state = self.registry.live();
        operators::devices(&state, request.get_ref()).map(Response::new)
    }

    async fn accelerators(
        &self,
        _: Request<proto::AcceleratorsRequest>,
    ) -> Answer<proto::AcceleratorsReply> {
        Ok(Response::new(operators::accelerators(
            &self.registry.state(),
        )))
    }

    async fn instances(
        &self,
        request: Request<proto::InstancesRequest>,
    ) -> Answer<proto::InstancesReply> {
        let state = self.registry.state();
        Ok(Response::new(operators::instances(
            &state,
            request.get_ref(),
        )))
    }

    async fn cordon(&self, request: Request<proto::CordonRequest>) -> Answer<proto::Device> {
        operator(&request)?;
        let device = request.into_inner().device;
        self.blocking(move |r| {
            reconfigure::cordon(r, &device, true)?;
            operators::device(&r.state(), &device)
        })
        .await
    }

    async fn uncordon(&self, request: Request<proto::UncordonRequest>) -> Answer<proto::Device> {
        operator(&request)?;
        let device = request.into_inner().device;
        self.blocking(move |r| {
            reconfigure::cordon(r, &device, false)?;
            operators::device(&r.state(), &device)
        })
        .await
    }

    async fn drain(&self, request: Request<proto::DrainRequest>) -> Answer<proto::DrainReply> {
        operator(&request)?;
        let device = request.into_inner().device;
        self.blocking(move |r| reconfigure::drain(r, &device)).await
    }

    async fn end_task(
        &self,
        request: Request<proto::EndTaskRequest>,
    ) -> Answer<proto::EndTaskReply> {
        operator(&request)?;
        operators::end_task(&self.registry, request.into_inner()).map(Response::new)
    }

    async fn move_session(
        &self,
        request: Request<proto::MoveSessionRequest>,
    ) -> Answer<proto::MoveSessionReply> {
        operator(&request)?;
        operators::move_session(&self.registry, request.into_inner()).map(Response::new)
    }

    async fn pool_put(&self, request: Request<proto::Pool>) -> Answer<proto::Pool> {
        operator(&request)?;
        let pool = request.into_inner();
        self.blocking(|r| functions::pool_put(r, pool)).await
    }

    async fn pool_remove(
        &self,
        request: Request<proto::PoolRemoveRequest>,
    ) -> Answer<proto::PoolRemoveReply> {
        operator(&request)?;
        let request = request.into_inner();
        self.blocking(|r| functions::pool_remove(r, request)).await
    }

    async fn pools(&self, _: Request<proto::PoolsRequest>) -> Answer<proto::PoolsReply> {
        Ok(Response::new(functions::pools(&self.registry.state())))
    }

    async fn signals(&self, _: Request<proto::SignalsRequest>) -> Answer<proto::SignalsReply> {
        let targets = &self.registry.options.scaling;
        Ok(Response::new(proto::SignalsReply {
            signals: functions::signals(&self.registry.state(), targets),
        }))
    }
}
