//! A function: a checked manifest and its files.

use crate::call::{Body, Call};
use crate::error::{BindError, ManifestError};
use crate::files::{valid_name, Files};
use crate::manifest::{Constant, Implementation, Manifest};
use crate::plan::Plan;
use crate::request::{Answer, Request};
use crate::{answer, bind, yaml};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// The manifest's name in a function's directory.
pub const MANIFEST_FILE: &str = "function.yaml";

/// A checked manifest with its files. Cheap to share, never changed.
#[derive(Debug)]
pub struct Function {
    /// The manifest.
    pub manifest: Manifest,
    /// sha256 of the manifest and its files, hexadecimal; functions with equal digests are equal.
    pub digest: String,
    /// The manifest's original text.
    pub text: String,
    /// The files that the manifest names, by the name that it uses.
    pub files: Files,
    pub(crate) plan: Arc<Plan>,
}

impl Function {
    /// Reads a directory with a [`MANIFEST_FILE`], or a manifest by its own name.
    pub fn load(path: &Path) -> Result<Function, ManifestError> {
        let file = if path.is_dir() {
            path.join(MANIFEST_FILE)
        } else {
            path.to_owned()
        };
        let wrong = |reason: String| ManifestError {
            file: Some(file.clone()),
            ..ManifestError::new(reason)
        };
        let about = std::fs::metadata(&file)
            .map_err(|e| wrong(format!("cannot read the manifest: {e}")))?;
        if !about.is_file() || about.len() > yaml::BYTES_MAX as u64 {
            return Err(wrong(format!(
                "the manifest must be a regular file of at most {} bytes",
                yaml::BYTES_MAX
            )));
        }
        let text = std::fs::read_to_string(&file)
            .map_err(|e| wrong(format!("cannot read the manifest: {e}")))?;
        let parent = file
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let files = Files {
            directory: Some(parent.to_owned()),
            ..Files::default()
        };
        Function::from_files(&text, files).map_err(|error| ManifestError {
            file: Some(file),
            ..error
        })
    }

    /// From a manifest's text and files that were not read from a directory. Files that the
    /// manifest does not name are dropped.
    pub fn from_files(text: &str, mut files: Files) -> Result<Function, ManifestError> {
        let manifest = yaml::manifest(text)?;
        let plan =
            Plan::compile(&manifest, &mut files).map_err(|error| yaml::locate(error, text))?;
        let named = named_files(&manifest);
        files.retain(|name| named.contains(name));
        let digest = files.digest(text);
        Ok(Function {
            manifest,
            digest,
            text: text.to_owned(),
            files,
            plan: Arc::new(plan),
        })
    }

    /// The names of the files that a manifest needs, which a client must upload; no other checks.
    pub fn file_names(text: &str) -> Result<Vec<String>, ManifestError> {
        let manifest = yaml::manifest(text)?;
        let names = named_files(&manifest);
        for name in &names {
            valid_name(name).map_err(ManifestError::new)?;
        }
        Ok(names.into_iter().map(str::to_owned).collect())
    }

    /// The bytes of a constant ([`crate::Buffer::Constant`]); those from a seed are generated at
    /// the first call.
    ///
    /// # Panics
    /// No call of this function has the index.
    pub fn constant(&self, index: usize) -> Bytes {
        self.plan.constants[index].bytes()
    }

    /// Number of constants.
    pub fn constants(&self) -> usize {
        self.plan.constants.len()
    }

    /// Binds a request. Each error names the parameter and has an HTTP status.
    pub fn bind(&self, request: &Request<'_>, body: Body) -> Result<Call, BindError> {
        bind::request(&self.plan, request, body)
    }

    /// Encodes outputs in the format that the client accepts (header `Accept`, if present).
    pub fn answer(
        &self,
        call: &Call,
        outputs: Vec<Bytes>,
        accept: Option<&str>,
    ) -> Result<Answer, BindError> {
        answer::make(
            &self.plan,
            answer::shown(&self.plan, call, outputs)?,
            accept,
        )
    }

    /// Memory that [`Function::bind`] may need for unpacking, in addition to the body.
    pub fn unpacked_bytes(&self, request: &Request<'_>, body: &Body) -> u64 {
        bind::unpacked_bytes(&self.plan, request, body)
    }

    /// Memory that [`Function::answer`] may need in addition to the outputs; an error if the
    /// response is certain to fail.
    pub fn answer_bytes(&self, call: &Call, accept: Option<&str>) -> Result<u64, BindError> {
        answer::bytes_max(&self.plan, call, accept)
    }

    /// The kernels that an implementation starts, each with the number of its arguments; once for
    /// each step.
    pub fn kernels(&self, implementation: usize) -> impl Iterator<Item = (&str, usize)> {
        let implementation = self.plan.implementations.get(implementation);
        let steps = implementation.into_iter().flat_map(|i| &i.steps);
        steps.map(|step| (&*step.kernel, step.arguments.len()))
    }

    /// If the response in the format that the client accepts is always the concatenation of
    /// outputs: these outputs in order. [`Function::answer`] is then unnecessary.
    pub fn plain_answer(&self, accept: Option<&str>) -> Option<Vec<usize>> {
        answer::plain(&self.plan, accept)
    }
}

fn named_files(manifest: &Manifest) -> BTreeSet<&str> {
    let constants = manifest
        .inputs
        .iter()
        .filter_map(|input| match &input.constant {
            Some(Constant::File(name)) => Some(name.as_str()),
            _ => None,
        });
    let implementations = manifest
        .implementations
        .iter()
        .filter_map(|implementation| match implementation {
            Implementation::Opencl(opencl) => opencl.source.as_deref(),
            Implementation::Native(native) => Some(native.library.as_str()),
            Implementation::Board(board) => Some(board.image.as_str()),
        });
    constants.chain(implementations).collect()
}

#[cfg(test)]
pub(crate) mod tests;
