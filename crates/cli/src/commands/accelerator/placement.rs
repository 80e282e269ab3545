//! Places and routes an image's kernels with the open flow (`hdl/syn/kernel.py`). The manifest of
//! the image has the results.

use anyhow::{bail, Context, Result};
use baltra_hls::opencl;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// A kernel's cells after place and route, and its clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Placed {
    /// The chip and its speed grade.
    pub part: String,
    pub luts: u64,
    pub flip_flops: u64,
    pub block_rams: u64,
    pub multipliers: u64,
    /// Of the slowest path between registers.
    pub mhz: f64,
}

/// Places the modules of these files, which are in the folder `work`, and adds the results to the
/// manifest. `tree`: the hardware tree; `kept`: where Yosys and nextpnr are installed, the first time.
pub fn add(
    manifest: &mut Value,
    files: &[(String, String)],
    tree: &Path,
    kept: &Path,
    work: &Path,
) -> Result<()> {
    let script = tree.join("syn/kernel.py");
    let done = Command::new("python3")
        // The tree may be installed.
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("BALTRA_TARGET", kept)
        .arg(&script)
        .args(files.iter().map(|(name, _)| work.join(name)))
        .stdin(Stdio::null())
        .output()
        .context("cannot run python3")?;
    if !done.status.success() {
        bail!(
            "cannot place the kernels ({}):\n{}",
            script.display(),
            String::from_utf8_lossy(&done.stderr).trim_end()
        );
    }
    let mut placed: HashMap<String, Placed> = serde_json::from_slice(&done.stdout)
        .with_context(|| format!("{} has printed no results", script.display()))?;
    for kernel in kernels(manifest) {
        let module = opencl::module_name(kernel["name"].as_str().unwrap_or_default());
        if let Some(placed) = placed.remove(&module) {
            kernel["report"][FIELD] = serde_json::to_value(placed)?;
        }
    }
    Ok(())
}

/// The field of a kernel's report.
const FIELD: &str = "placed";

/// The results in a manifest, by the order of its kernels.
pub fn read(manifest: &str) -> Result<Vec<Option<Placed>>> {
    let mut manifest: Value = serde_json::from_str(manifest)?;
    let kernels = kernels(&mut manifest).iter_mut();
    let mut all = Vec::new();
    for kernel in kernels {
        let found = kernel["report"][FIELD].take();
        all.push(match found {
            Value::Null => None,
            found => Some(serde_json::from_value(found).context("the manifest is malformed")?),
        });
    }
    Ok(all)
}

fn kernels(manifest: &mut Value) -> &mut [Value] {
    let kernels = manifest["kernels"].as_array_mut();
    kernels.map_or(&mut [], Vec::as_mut_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_by_kernel() {
        let manifest = r#"{"kernels": [
            {"name": "a", "report": {"luts": 9}},
            {"name": "b", "report": {"placed": {"part": "X", "luts": 5, "flip_flops": 4,
                "block_rams": 3, "multipliers": 2, "mhz": 98.76}}}]}"#;
        let placed = read(manifest).unwrap();
        assert_eq!(placed[0], None);
        let second = placed[1].as_ref().unwrap();
        assert_eq!(
            (second.part.as_str(), second.luts, second.mhz),
            ("X", 5, 98.76)
        );
        assert!(read(r#"{"kernels": [{"report": {"placed": 7}}]}"#).is_err());
    }
}
