//! What tenants used: what a bill is made from.

use crate::http::meters::{Counts, Ending};
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

impl Usage {
    /// And what was counted since.
    pub fn plus(self, counts: &Counts) -> Usage {
        let done = counts.of(Ending::Done);
        Usage {
            calls: self.calls + done,
            failed: self.failed + counts.ended() - done,
            device_ns: self.device_ns + counts.device_ns,
            bytes_in: self.bytes_in + counts.bytes_in,
            bytes_out: self.bytes_out + counts.bytes_out,
            cold_starts: self.cold_starts + counts.cold_starts,
        }
    }
}

/// Of one tenant and function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageLine {
    /// Who called.
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
