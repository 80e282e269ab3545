//! A deployment of a function, as stored.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A deployment, as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployment {
    /// The name under which the function is called.
    pub name: String,
    /// The function in the store.
    pub image: String,
    /// Labels, for tools.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Annotations, for tools.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// Desired number of replicas; 0: none until the first call.
    #[serde(default = "one")]
    pub replicas: u32,
    /// Milliseconds since 1970.
    #[serde(default)]
    pub created_ms: u64,
}

fn one() -> u32 {
    1
}
