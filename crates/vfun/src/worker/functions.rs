//! What the VM may call, loaded once for all its applications.

use super::hardware::Hardware;
use super::native::Native;
use crate::definition::Definition;
use crate::protocol::Start;
use anyhow::Result;
use baltra_functions::manifest::{Implementation as Way, Size, Source};
use baltra_functions::{Function, Manifest};
use baltra_ivshmem::{Implementation, Reason, Want};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// A refusal, with words.
pub(crate) type Refusal = (Reason, String);

/// A function with one way to carry it out.
pub(crate) struct Loaded {
    /// Its manifest has one implementation: this one.
    pub function: Arc<Function>,
    /// What carries it out.
    pub runner: Runner,
}

/// What carries a function out.
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
    /// Reads what the daemon laid out; loads nothing yet.
    pub fn open(start: &Start) -> Result<Functions> {
        let directory = start.work_dir.join("functions");
        let mut allowed = BTreeMap::new();
        for name in &start.definition.functions {
            // What the daemon could not read it has left out, and said so.
            if let Ok(function) = Function::load(&directory.join(name)) {
                allowed.insert(name.clone(), function);
            }
        }
        Ok(Functions {
            allowed,
            directory,
            definition: start.definition.clone(),
            loaded: Mutex::default(),
            hardware: match start.endpoints.is_empty() {
                true => None,
                false => Some(Hardware::new(&start.endpoints)?),
            },
        })
    }

    /// The names, a line each.
    pub fn names(&self) -> String {
        let names: Vec<&str> = self.allowed.keys().map(String::as_str).collect();
        names.join("\n")
    }

    fn of(&self, name: &str) -> Result<&Function, Refusal> {
        self.allowed.get(name).ok_or_else(|| {
            let text = "this VM may call no function of that name (`vfun list`)";
            (Reason::NotAllowed, text.to_owned())
        })
    }

    /// Which implementation an application gets, and what it has to know: a line of description,
    /// then the arguments' names, a line each.
    pub fn negotiate(&self, name: &str, want: Want) -> Result<(Implementation, String), Refusal> {
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
        let got = match (want, hardware, software) {
            (Want::Any | Want::Hardware, true, _) => Implementation::Hardware,
            (Want::Any | Want::Software, _, true) => Implementation::Software,
            (Want::Hardware | Want::Any, false, _) => {
                let text = format!("no accelerator is free for {name}");
                return Err((Reason::NoHardware, text));
            }
            (Want::Software, _, false) => {
                let text = format!("{name} has no software implementation");
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

    /// Loads a function, unless it is.
    pub fn load(&self, name: &str, how: Implementation) -> Result<Arc<Loaded>, Refusal> {
        // One at a time: the second to ask finds what the first one loaded.
        let mut loaded = self.loaded.lock().expect("no panic under this lock");
        let key = (name.to_owned(), how as u8);
        if let Some(found) = loaded.get(&key) {
            return Ok(found.clone());
        }
        let failed = |error: anyhow::Error| (Reason::Failed, format!("{error:#}"));
        let function = self.restricted(self.of(name)?, how).map_err(failed)?;
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
                return Err((Reason::NoHardware, "there is no accelerator".into()));
            }
        };
        let new = Arc::new(Loaded { function, runner });
        loaded.insert(key, new.clone());
        Ok(new)
    }

    /// The function with one implementation, and within what this VM may use.
    fn restricted(&self, function: &Function, how: Implementation) -> Result<Function> {
        let mut manifest: Manifest = function.manifest.clone();
        let wanted = |way: &Way| match how {
            Implementation::Software => matches!(way, Way::Native(_)),
            Implementation::Hardware => way.device().is_some(),
        };
        manifest.implementations.retain(wanted);
        manifest.implementations.truncate(1);
        let most = self.definition.call_bytes_max;
        let limits = &mut manifest.limits;
        limits.memory_bytes = Size(limits.memory_bytes.0.min(most));
        limits.body_bytes = Size(limits.body_bytes.0.min(most));
        limits.timeout_ms = match limits.timeout_ms {
            0 => self.definition.call_ms_max,
            ms => ms.min(self.definition.call_ms_max),
        };
        manifest.tenant = Some(self.definition.tenant.clone());
        let text = serde_json::to_string(&manifest)?;
        Ok(Function::from_files(&text, function.files.clone())?)
    }

    /// The way to accelerators.
    pub fn hardware(&self) -> Option<&Hardware> {
        self.hardware.as_ref()
    }
}
