//! The functions that the VM may call, loaded once for all its applications.

use super::hardware::Hardware;
use super::native::Native;
use super::pool::Pool;
use super::Refusal;
use crate::definition::Definition;
use crate::protocol::Start;
use anyhow::Result;
use baltra_functions::manifest::{Implementation as Way, Source};
use baltra_functions::Function;
use baltra_ivshmem::{Implementation, Preference, Reason};
use baltra_ring::Locked;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// A loaded function with one implementation.
pub(crate) struct Loaded {
    /// The function, whose manifest has this implementation only.
    pub function: Arc<Function>,
    /// Its implementation.
    pub runner: Runner,
}

/// An implementation of a function.
pub(crate) enum Runner {
    /// Native code in this process.
    Native(Native),
    /// An accelerator.
    Hardware,
}

/// The functions.
pub(crate) struct Functions {
    allowed: BTreeMap<String, Function>,
    directory: PathBuf,
    definition: Definition,
    loaded: Mutex<HashMap<(String, u8), Arc<Loaded>>>,
    hardware: Option<Hardware>,
}

impl Functions {
    /// Reads the directory that the daemon prepared; loads no function yet.
    pub fn open(start: &Start, pool: Option<Arc<Pool>>) -> Result<Functions> {
        let directory = start.work_dir.join("functions");
        let mut allowed = BTreeMap::new();
        for name in &start.definition.functions {
            // The daemon has skipped and logged functions that it could not read.
            if let Ok(function) = Function::load(&directory.join(name)) {
                allowed.insert(name.clone(), function);
            }
        }
        Ok(Functions {
            allowed,
            directory,
            definition: start.definition.clone(),
            loaded: Mutex::default(),
            hardware: if start.endpoints.is_empty() {
                None
            } else {
                Some(Hardware::new(&start.endpoints, pool)?)
            },
        })
    }

    /// The names, one per line.
    pub fn names(&self) -> String {
        let names: Vec<&str> = self.allowed.keys().map(String::as_str).collect();
        names.join("\n")
    }

    fn of(&self, name: &str) -> Result<&Function, Refusal> {
        self.allowed.get(name).ok_or_else(|| {
            let text = "this VM is not allowed to call a function of that name (`vfun list` prints the allowed ones)";
            (Reason::NotAllowed, text.to_owned())
        })
    }

    /// The implementation that an application gets, and its description: a line of text, then the
    /// arguments' names, one per line.
    pub fn negotiate(
        &self,
        name: &str,
        preference: Preference,
    ) -> Result<(Implementation, String), Refusal> {
        let function = self.of(name)?;
        let manifest = &function.manifest;
        let has = |way: fn(&Way) -> bool| manifest.implementations.iter().any(way);
        let software = has(|way| matches!(way, Way::Native(_)));
        let hardware = match &self.hardware {
            Some(hardware) if has(|way| way.device().is_some()) => {
                hardware.is_free(&self.definition.tenant)
            }
            _ => false,
        };
        let got = match (preference, hardware, software) {
            (Preference::Any | Preference::Hardware, true, _) => Implementation::Hardware,
            (Preference::Any | Preference::Software, _, true) => Implementation::Software,
            (Preference::Hardware | Preference::Any, false, _) => {
                let text = format!("no accelerator is available for '{name}'");
                return Err((Reason::NoHardware, text));
            }
            (Preference::Software, _, false) => {
                let text = format!("'{name}' has no software implementation");
                return Err((Reason::NoSoftware, text));
            }
        };
        let mut text = manifest.description.replace('\n', " ");
        let inputs = manifest.inputs.iter();
        for input in inputs.filter(|input| input.from == Source::Query) {
            text.push('\n');
            text.push_str(&input.name);
        }
        Ok((got, text))
    }

    /// Loads a function if it is not loaded.
    pub fn load(&self, name: &str, how: Implementation) -> Result<Arc<Loaded>, Refusal> {
        // Under the lock: a concurrent request finds the loaded function.
        let mut loaded = self.loaded.locked();
        let key = (name.to_owned(), how as u8);
        if let Some(found) = loaded.get(&key) {
            return Ok(found.clone());
        }
        let failed = |error: anyhow::Error| (Reason::Failed, format!("{error:#}"));
        let function = self.definition.restricted(self.of(name)?, how);
        let function = function.map_err(failed)?;
        let function = Arc::new(function);
        let runner = match (how, &self.hardware) {
            (Implementation::Software, _) => {
                let native = Native::load(&function, &self.directory.join(name));
                Runner::Native(native.map_err(failed)?)
            }
            (Implementation::Hardware, Some(hardware)) => {
                hardware.load(&function)?;
                Runner::Hardware
            }
            (Implementation::Hardware, None) => {
                return Err((Reason::NoHardware, "no accelerator is available".into()));
            }
        };
        let new = Arc::new(Loaded { function, runner });
        loaded.insert(key, new.clone());
        Ok(new)
    }

    /// The accelerators, if any.
    pub fn hardware(&self) -> Option<&Hardware> {
        self.hardware.as_ref()
    }
}
