//! Usage records of tenants, the basis of billing.

use serde::{Deserialize, Serialize};

/// Totals of one tenant and function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Calls that succeeded.
    pub calls: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Device time, nanoseconds.
    pub device_ns: u64,
    /// Bytes of requests' bodies.
    pub bytes_in: u64,
    /// Bytes of responses' bodies.
    pub bytes_out: u64,
    /// Calls that waited for loading.
    pub cold_starts: u64,
}

/// Usage of one tenant and function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageLine {
    /// The calling tenant.
    pub tenant: String,
    /// The function.
    pub function: String,
    /// The totals.
    #[serde(flatten)]
    pub usage: Usage,
}

/// Formats usage as comma-separated values. Names contain no character that needs quoting.
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
