//! `baltra function deploy`: reads and checks functions locally, then uploads each with its files.

use crate::http::{As, Call, Gateway};
use crate::output;
use anyhow::{anyhow, bail, Context, Result};
use baltra_functions::Function;
use http::header::{HeaderValue, CONTENT_TYPE};
use http::Method;
use serde_json::json;
use std::path::{Path, PathBuf};

/// File name of the manifest in a function's directory.
const MANIFEST: &str = "function.yaml";
/// Media type of an upload.
const TAR: &str = "application/vnd.baltra.function+tar";
/// Depth of the search for functions below a given directory.
const DEPTH_MAX: usize = 3;

/// Deploys all functions, or reports the errors of all and deploys none.
pub fn deploy(gateway: &Gateway, paths: &[PathBuf], as_json: bool) -> Result<()> {
    let mut found = Vec::new();
    for path in paths {
        let before = found.len();
        collect(path, 0, &mut found)?;
        if found.len() == before {
            bail!("no {MANIFEST} in {} or its subdirectories", path.display());
        }
    }
    let loaded: Vec<_> = found.iter().map(|path| (path, load(path))).collect();
    let wrong: Vec<String> = loaded
        .iter()
        .filter_map(|(_, loaded)| loaded.as_ref().err())
        .map(|error| format!("{error:#}"))
        .collect();
    if !wrong.is_empty() {
        bail!("nothing deployed: {}", wrong.join("\n       "));
    }
    let mut answers = Vec::new();
    for (path, loaded) in loaded {
        let (function, archive) = loaded?;
        let name = &function.manifest.name;
        let call = Call::new(Method::POST, "/system/functions")
            .header(CONTENT_TYPE, HeaderValue::from_static(TAR))
            .bytes(archive);
        let answer = gateway
            .json(As::Admin, call)
            .with_context(|| format!("{name} ({}): deployment failed", path.display()))?;
        let url = gateway.function(name);
        let reason = answer["reason"].as_str();
        match (as_json, reason) {
            (true, _) => answers.push(json!({
                "name": name,
                "digest": function.digest,
                "url": url,
                "ready": answer["ready"],
            })),
            (false, None) => println!("{name} deployed: {url}"),
            (false, Some(why)) => println!("{name} deployed, but not ready: {url}: {why}"),
        }
    }
    if as_json {
        output::json(&json!(answers));
    }
    Ok(())
}

/// Manifests at and below a path, ordered by name.
fn collect(path: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<()> {
    let about =
        std::fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    if !about.is_dir() {
        found.push(path.to_owned());
        return Ok(());
    }
    let manifest = path.join(MANIFEST);
    if manifest.is_file() {
        found.push(manifest);
        return Ok(());
    }
    if depth == DEPTH_MAX {
        return Ok(());
    }
    let mut inside = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if !hidden && entry.path().is_dir() {
            inside.push(entry.path());
        }
    }
    inside.sort();
    inside
        .iter()
        .try_for_each(|directory| collect(directory, depth + 1, found))
}

/// A checked function, and its files in the upload format.
fn load(path: &Path) -> Result<(Function, Vec<u8>)> {
    let function = Function::load(path).map_err(|error| {
        // The files that a manifest names may not be built yet.
        let above = path.ancestors().skip(1).take(2);
        let makefile = above.map(|dir| dir.join("Makefile")).find(|m| m.is_file());
        let directory = makefile.as_deref().and_then(Path::parent);
        match directory {
            Some(dir) => anyhow!(
                "{error} (to build what is missing: make -C {})",
                dir.display()
            ),
            None => anyhow!("{error}"),
        }
    })?;
    let manifest = std::fs::read(path)?;
    let archive =
        pack(&manifest, &function).with_context(|| format!("cannot pack {}", path.display()))?;
    Ok((function, archive))
}

fn pack(manifest: &[u8], function: &Function) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut add = |name: &str, bytes: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, bytes)
    };
    add(MANIFEST, manifest)?;
    for (name, bytes) in &function.files.contents {
        add(name, bytes)?;
    }
    Ok(archive.into_inner()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_s_functions_are_found_in_their_order() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b", "a", "more/c", ".hidden"] {
            let function = dir.path().join(name);
            std::fs::create_dir_all(&function).unwrap();
            std::fs::write(function.join(MANIFEST), "").unwrap();
        }
        std::fs::write(dir.path().join("README.md"), "").unwrap();
        let mut found = Vec::new();
        collect(dir.path(), 0, &mut found).unwrap();
        let names: Vec<_> = found
            .iter()
            .map(|p| p.strip_prefix(dir.path()).unwrap().to_str().unwrap())
            .collect();
        assert_eq!(
            names,
            ["a/function.yaml", "b/function.yaml", "more/c/function.yaml"]
        );
        assert!(collect(&dir.path().join("none"), 0, &mut found).is_err());
    }
}
