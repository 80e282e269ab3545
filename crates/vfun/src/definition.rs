//! Permissions and limits of a VM.

use anyhow::{bail, ensure, Result};
use baltra_functions::manifest::{Implementation as Way, Size};
use baltra_functions::{Function, Manifest};
use baltra_ivshmem::region::{Layout, FLAG_DOORBELL, HANDLES_MAX};
use baltra_ivshmem::Implementation;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::Path;

/// The longest name of a VM.
const NAME_BYTES_MAX: usize = 64;
/// Most functions that a VM may call.
const FUNCTIONS_MAX: usize = 256;

/// A VM, as it was attached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// Its name: letters, digits, dots, dashes and underscores, a letter or digit first.
    pub name: String,
    /// The functions that it may call.
    pub functions: Vec<String>,
    /// Bytes of its region, a power of two.
    #[serde(default = "defaults::memory_bytes")]
    pub memory_bytes: u64,
    /// Concurrent applications.
    #[serde(default = "defaults::parts")]
    pub parts: u32,
    /// Functions that an application may hold concurrently.
    #[serde(default = "defaults::handles_max")]
    pub handles_max: u32,
    /// Maximum concurrent calls of all the VM's applications together.
    #[serde(default = "defaults::calls_max")]
    pub calls_max: u32,
    /// Time limit of a call, milliseconds.
    #[serde(default = "defaults::call_ms_max")]
    pub call_ms_max: u64,
    /// Memory of a call outside the region: inputs, outputs and scratch.
    #[serde(default = "defaults::call_bytes_max")]
    pub call_bytes_max: u64,
    /// The tenant to which its calls on devices are charged.
    #[serde(default = "defaults::tenant")]
    pub tenant: String,
    /// The user id that may connect to its socket, in addition to root and the daemon's own user.
    #[serde(default)]
    pub user: Option<u32>,
    /// Whether its programs may open OpenCL sessions, as the tenant.
    #[serde(default)]
    pub opencl: bool,
    /// Address at which its programs may connect by TCP; port 0: a free one.
    #[serde(default)]
    pub tcp: Option<SocketAddr>,
    /// The region is for `ivshmem-plain`, which does not report when the VM starts and ends.
    #[serde(default)]
    pub plain: bool,
}

mod defaults {
    pub fn memory_bytes() -> u64 {
        16 << 20
    }
    pub fn parts() -> u32 {
        8
    }
    pub fn handles_max() -> u32 {
        16
    }
    pub fn calls_max() -> u32 {
        8
    }
    pub fn call_ms_max() -> u64 {
        30_000
    }
    pub fn call_bytes_max() -> u64 {
        256 << 20
    }
    pub fn tenant() -> String {
        "default".into()
    }
}

/// Whether a text is valid as a VM's name, which is also used for files.
pub fn valid_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    name.len() <= NAME_BYTES_MAX
        && name.bytes().all(allowed)
        && name
            .bytes()
            .next()
            .is_some_and(|b| b.is_ascii_alphanumeric())
}

impl Definition {
    /// A definition with the defaults.
    pub fn new(name: &str, functions: Vec<String>) -> Definition {
        Definition {
            name: name.to_owned(),
            functions,
            memory_bytes: defaults::memory_bytes(),
            parts: defaults::parts(),
            handles_max: defaults::handles_max(),
            calls_max: defaults::calls_max(),
            call_ms_max: defaults::call_ms_max(),
            call_bytes_max: defaults::call_bytes_max(),
            tenant: defaults::tenant(),
            user: None,
            opencl: false,
            tcp: None,
            plain: false,
        }
    }

    /// Checks the values.
    pub fn check(&self) -> Result<()> {
        if !valid_name(&self.name) {
            bail!(
                "invalid VM name '{}': expected at most {NAME_BYTES_MAX} letters, digits, '.', '-' and '_', starting with a letter or digit",
                self.name
            );
        }
        self.layout()?;
        ensure!(
            self.functions.len() <= FUNCTIONS_MAX,
            "{} functions are too many for a VM (at most {FUNCTIONS_MAX} allowed)",
            self.functions.len()
        );
        ensure!(
            (1..=HANDLES_MAX).contains(&self.handles_max),
            "'handles_max' is {}, but must be 1 to {HANDLES_MAX}",
            self.handles_max
        );
        ensure!(self.calls_max > 0, "'calls_max' must be at least 1");
        ensure!(self.call_ms_max > 0, "'call_ms_max' must be at least 1");
        Ok(())
    }

    /// The region's layout.
    pub fn layout(&self) -> Result<Layout> {
        let flags = if self.plain { 0 } else { FLAG_DOORBELL };
        Ok(Layout::new(self.memory_bytes, self.parts, flags)?)
    }

    /// A function with one implementation, and with the limits of this VM.
    pub fn restricted(&self, function: &Function, how: Implementation) -> Result<Function> {
        let mut manifest: Manifest = function.manifest.clone();
        let wanted = |way: &Way| match how {
            Implementation::Software => matches!(way, Way::Native(_)),
            Implementation::Hardware => way.device().is_some(),
        };
        manifest.implementations.retain(wanted);
        manifest.implementations.truncate(1);
        let most = self.call_bytes_max;
        let limits = &mut manifest.limits;
        limits.memory_bytes = Size(limits.memory_bytes.0.min(most));
        limits.body_bytes = Size(limits.body_bytes.0.min(most));
        limits.timeout_ms = match limits.timeout_ms {
            0 => self.call_ms_max,
            ms => ms.min(self.call_ms_max),
        };
        manifest.tenant = Some(self.tenant.clone());
        let text = serde_json::to_string(&manifest)?;
        Ok(Function::from_files(&text, function.files.clone())?)
    }

    /// Doorbells of the host: one per part, and one for the table of parts.
    pub fn vectors(&self) -> u32 {
        self.parts + 1
    }
}

/// Loads the function with a name.
pub fn load_function(from: &Path, name: &str) -> Result<Function> {
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    anyhow::ensure!(plain && !name.is_empty(), "invalid function name '{name}'");
    let path = from.join(name);
    let function = Function::load(&path)?;
    anyhow::ensure!(
        function.manifest.name == name,
        "{} is the function {}",
        path.display(),
        function.manifest.name
    );
    Ok(function)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_in_paths() {
        for good in ["web", "vm-1", "a.b_c", "0"] {
            assert!(valid_name(good), "{good}");
        }
        for bad in ["", "..", ".x", "a/b", "-x", "a b", "ä", &"x".repeat(65)] {
            assert!(!valid_name(bad), "{bad}");
        }
    }

    #[test]
    fn a_definition_that_cannot_work_is_refused() {
        let good = || Definition::new("web", vec!["fibonacci".into()]);
        good().check().unwrap();
        let wrong: [fn(&mut Definition); 5] = [
            |d| d.memory_bytes = 3 << 20,
            |d| d.parts = 0,
            |d| d.handles_max = 1000,
            |d| d.calls_max = 0,
            |d| d.name = "../web".into(),
        ];
        for change in wrong {
            let mut definition = good();
            change(&mut definition);
            assert!(definition.check().is_err(), "{definition:?}");
        }
    }
}
