//! What tenants used: what a bill is made from.

use serde::{Deserialize, Serialize};

/// Totals of one tenant and function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Calls that succeeded.
    pub calls: u64,
    /// Calls that did not.
    pub failed: u64,
    /// Device time, nanoseconds.
    pub device_ns: u64,
    /// Of requests' bodies.
    pub bytes_in: u64,
    /// Of answers'.
    pub bytes_out: u64,
    /// Calls that had to wait for loading.
    pub cold_starts: u64,
}

/// Of one tenant and function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageLine {
    /// The calling tenant.
    pub tenant: String,
    /// What.
    pub function: String,
    /// How much.
    #[serde(flatten)]
    pub usage: Usage,
}

/// Usage as comma-separated values. Names hold no character that would need quoting.
pub fn csv(lines: &[UsageLine]) -> String {
    let mut text =
        String::from("tenant,function,calls,failed,device_ns,bytes_in,bytes_out,cold_starts\n");
    for UsageLine {
        tenant,
        function,
        usage: u,
    } in lines
    {
        text += &format!(
            "{tenant},{function},{},{},{},{},{},{}\n",
            u.calls, u.failed, u.device_ns, u.bytes_in, u.bytes_out, u.cold_starts
        );
    }
    text
}
