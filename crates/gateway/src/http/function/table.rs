//! The deployed functions: calls read the table without a lock; a change replaces the whole table.

use crate::http::admission::keys::{Keys, TenantIndex, ANYONE};
use crate::http::function::deployment::Deployment;
use crate::http::function::logs::Log;
use crate::http::function::namespace::NAMESPACE;
use crate::http::telemetry::meters::{Meter, Meters};
use arc_swap::ArcSwap;
use baltra_functions::Function;
use http::Method;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A deployed function.
#[derive(Debug)]
pub struct Deployed {
    /// Its deployment.
    pub deployment: Deployment,
    /// The function.
    pub function: Arc<Function>,
    /// The value of the header `Allow`.
    pub allow: String,
    /// Limit of a body, bytes: the smaller of the function's and the gateway's limits.
    pub body_bytes_max: u64,
    /// Time limit of a call.
    pub timeout: Duration,
    /// Its log.
    pub log: Arc<Log>,
    methods: Vec<Method>,
    /// Meters by tenant, created at a tenant's first call.
    meters: Box<[OnceLock<Arc<Meter>>]>,
}

impl Deployed {
    /// Creates it from a stored function.
    pub fn new(
        deployment: Deployment,
        function: Arc<Function>,
        log: Arc<Log>,
        keys: &Keys,
        limits: &crate::options::LimitOptions,
    ) -> Deployed {
        let manifest = &function.manifest;
        let methods = manifest.methods.iter();
        let methods: Vec<Method> = methods.filter_map(|m| m.parse().ok()).collect();
        let timeout = match manifest.limits.timeout_ms {
            0 => limits.call_timeout(),
            ms => Duration::from_millis(ms),
        };
        Deployed {
            allow: manifest.methods.join(", "),
            body_bytes_max: manifest.limits.body_bytes.0.min(limits.body_bytes_max),
            timeout,
            methods,
            meters: (0..keys.tenant_count()).map(|_| OnceLock::new()).collect(),
            deployment,
            function,
            log,
        }
    }

    /// The name under which it is called.
    pub fn name(&self) -> &str {
        &self.deployment.name
    }

    /// Whether it accepts this method.
    pub fn takes(&self, method: &Method) -> bool {
        self.methods.contains(method)
    }

    /// The tenant charged for a call of `caller`: the caller, if callers are authenticated.
    pub fn payer<'a>(&'a self, caller: TenantIndex, keys: &'a Keys) -> &'a str {
        match (&self.function.manifest.tenant, keys.are_wanted()) {
            (_, true) => keys.name(caller),
            (Some(tenant), false) => tenant,
            (None, false) => ANYONE,
        }
    }

    /// The meter for a call of `caller`.
    pub fn meter(&self, caller: TenantIndex, keys: &Keys, meters: &Meters) -> &Arc<Meter> {
        self.meters[caller.0].get_or_init(|| meters.meter(self.payer(caller, keys), self.name()))
    }
}

/// Functions by name.
pub type Functions = HashMap<String, Arc<Deployed>>;

/// The table of deployed functions.
#[derive(Debug, Default)]
pub struct Table {
    functions: ArcSwap<Functions>,
}

impl Table {
    /// Finds a function by the name in the path, whose optional namespace must be this node's.
    pub fn find(&self, name: &str) -> Option<Arc<Deployed>> {
        let functions = self.functions.load();
        let plain = || functions.get(name.strip_suffix(NAMESPACE)?.strip_suffix('.')?);
        functions.get(name).or_else(plain).cloned()
    }

    /// All, by name.
    pub fn list(&self) -> Vec<Arc<Deployed>> {
        let mut all: Vec<_> = self.functions.load().values().cloned().collect();
        all.sort_by(|a, b| a.name().cmp(b.name()));
        all
    }

    /// Number of deployed functions.
    pub fn count(&self) -> usize {
        self.functions.load().len()
    }

    /// Adds or replaces a function; returns the replaced one.
    pub fn insert(&self, deployed: Arc<Deployed>) -> Option<Arc<Deployed>> {
        let name = deployed.name().to_owned();
        let mut before = None;
        self.functions.rcu(|functions| {
            let mut next = Functions::clone(functions);
            before = next.insert(name.clone(), deployed.clone());
            next
        });
        before
    }

    /// Removes a function and returns it.
    pub fn remove(&self, name: &str) -> Option<Arc<Deployed>> {
        let mut before = None;
        self.functions.rcu(|functions| {
            let mut next = Functions::clone(functions);
            before = next.remove(name);
            next
        });
        before
    }
}
