use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Scaling of the number of replicas with the measured demand. A replica is a device on which the function runs. Names
/// and defaults are those of OpenFaaS (`com.openfaas.scale.*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Scale {
    /// Minimum number of replicas, at least 1.
    pub min: u32,
    /// Maximum number of replicas.
    pub max: u32,
    /// Demand per replica for which replicas are added, in the unit of `type`.
    pub target: u32,
    /// The measure of demand.
    #[serde(rename = "type")]
    pub demand: Demand,
    /// Whether all devices are given back after `idle_s` without a call.
    pub zero: bool,
}

/// A measure of demand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Demand {
    /// Calls per second.
    #[default]
    Rps,
    /// Calls in progress.
    Capacity,
}

impl Default for Scale {
    fn default() -> Scale {
        Scale {
            min: 1,
            max: REPLICAS_DEFAULT,
            target: 50,
            demand: Demand::Rps,
            zero: false,
        }
    }
}

/// Default of the maximum number of replicas.
const REPLICAS_DEFAULT: u32 = 20;
/// Most replicas: as many as an instance of the registry has devices.
pub const REPLICAS_MAX: u32 = 256;

impl Scale {
    /// Checks the combination of fields; `idle_s` is the manifest's.
    ///
    /// # Errors
    /// The field at fault, and the reason.
    pub fn check(&self, idle_s: u64) -> Result<(), (&'static str, String)> {
        let Scale {
            min, max, target, ..
        } = *self;
        if min == 0 {
            let reason = "must be at least 1: set 'zero' to scale to zero";
            return Err(("min", reason.into()));
        }
        if max > REPLICAS_MAX {
            return Err(("max", format!("is {max}, must be at most {REPLICAS_MAX}")));
        }
        if min > max {
            return Err(("min", format!("is {min}, more than the maximum, {max}")));
        }
        if target == 0 {
            return Err(("target", "must be at least 1".into()));
        }
        if self.zero && idle_s == 0 {
            let reason = "needs a time: 'idle_s' of the manifest is 0, which means never";
            return Err(("zero", reason.into()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_at_fault_is_named() {
        let scale = Scale::default();
        assert_eq!(scale.check(300), Ok(()));
        for (scale, field) in [
            (Scale { min: 0, ..scale }, "min"),
            (Scale { min: 21, ..scale }, "min"),
            (Scale { max: 257, ..scale }, "max"),
            (Scale { target: 0, ..scale }, "target"),
        ] {
            assert_eq!(scale.check(300).unwrap_err().0, field, "{scale:?}");
        }
        let zero = Scale {
            zero: true,
            ..scale
        };
        assert_eq!(zero.check(300), Ok(()));
        assert_eq!(zero.check(0).unwrap_err().0, "zero");
    }
}
