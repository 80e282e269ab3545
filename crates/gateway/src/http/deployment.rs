//! A deployment of a function, as the store keeps it.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a deployment says, and what is kept of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployment {
    /// The name that it is called by.
    pub name: String,
    /// The function in the store.
    pub image: String,
    /// For tools.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// For tools.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// How many copies are wanted; 0: none until a call comes.
    #[serde(default = "one")]
    pub replicas: u32,
    /// Milliseconds since 1970.
    #[serde(default)]
    pub created_ms: u64,
}

fn one() -> u32 {
    1
}
