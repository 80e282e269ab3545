//! Calls on accelerators, through the gateway's engine, which is an ordinary client of the Device
//! Manager.

use super::pool::{Pool, Pooled};
use super::Refusal;
use anyhow::Result;
use baltra_engine::{CallError, Engine, Options, Trace};
use baltra_functions::{Call, Function};
use baltra_ivshmem::Reason;
use bytes::Bytes;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The engine, and its runtime.
pub(crate) struct Hardware {
    runtime: tokio::runtime::Runtime,
    engine: Engine,
}

fn refusal(error: CallError) -> Refusal {
    let reason = match error {
        CallError::Overload { .. } => Reason::Quota,
        CallError::Deadline => Reason::TimedOut,
        CallError::Unavailable(_) | CallError::HeldOff { .. } => Reason::NoHardware,
        CallError::Failed(_) => Reason::Failed,
    };
    (reason, error.to_string())
}

impl Hardware {
    /// An engine for Device Managers, whose devices the pool allocates, if there is one.
    pub fn new(endpoints: &[String], pool: Option<Arc<Pool>>) -> Result<Hardware> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let options = Options {
            endpoints: endpoints.to_vec(),
            ..Options::default()
        };
        let engine = {
            let _entered = runtime.enter();
            let engine = match pool {
                Some(pool) => {
                    Engine::with_placement(options, Box::new(Pooled::new(pool, endpoints)?))
                }
                None => Engine::new(options),
            };
            engine.map_err(anyhow::Error::msg)?
        };
        Ok(Hardware { runtime, engine })
    }

    /// Whether a tenant may currently use a device.
    pub fn is_free(&self, tenant: &str) -> bool {
        let places = self.runtime.block_on(self.engine.places(tenant));
        places.is_ok_and(|places| !places.is_empty())
    }

    /// Builds a function's kernels.
    pub fn load(&self, function: &Arc<Function>) -> Result<(), Refusal> {
        let warm = async {
            self.engine.deploy(function, 1).await;
            self.engine.warm(function).await
        };
        match self.runtime.block_on(warm) {
            Ok(_) => Ok(()),
            Err(error) => {
                self.engine.remove(function);
                Err(refusal(error))
            }
        }
    }

    /// Runs a call; returns its outputs in the manifest's order.
    pub fn call(&self, function: &Arc<Function>, call: Call) -> Result<Vec<Bytes>, Refusal> {
        let limit = Duration::from_millis(function.manifest.limits.timeout_ms);
        let (deadline, trace) = (Instant::now() + limit, Trace::default());
        let run = self.engine.call(function, call, deadline, &trace);
        let reply = self.runtime.block_on(run).map_err(refusal)?;
        Ok(reply.outputs)
    }
}
