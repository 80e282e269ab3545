//! Layers of the configuration: the embedded file, the operator's file, the environment, flags.

use super::Options;
use anyhow::{bail, Context, Result};
use std::path::Path;
use toml::{Table, Value};

const DEFAULT: &str = include_str!("../../default.toml");
const PREFIX: &str = "BALTRA_";

/// Top-level sections of the file for other daemons. They are layered like all others and validated
/// by those daemons.
pub const SECTIONS_ELSEWHERE: [&str; 2] = ["registry", "gateway"];

/// The embedded configuration, with its comments.
pub fn default_text() -> &'static str {
    DEFAULT
}

/// Combines layers: a later value overrides an earlier one, key by key. Lists (`[[device]]`) are
/// replaced as a whole.
#[derive(Clone, Debug)]
pub struct Loader {
    table: Table,
}

impl Default for Loader {
    fn default() -> Self {
        Loader {
            table: DEFAULT.parse().expect("the embedded configuration is TOML"),
        }
    }
}

impl Loader {
    /// A loader with the embedded configuration.
    pub fn new() -> Self {
        Loader::default()
    }

    /// Adds a TOML file.
    pub fn file(mut self, path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the configuration {}", path.display()))?;
        let table: Table = text
            .parse()
            .with_context(|| format!("{} is not valid TOML", path.display()))?;
        merge(&mut self.table, table);
        Ok(self)
    }

    /// Adds variables `BALTRA_SECTION__KEY=value` (`…__KEY__KEY` in a subsection). The value is
    /// parsed as TOML, or taken as text if that fails. Variables without a double underscore are
    /// ignored.
    pub fn environment(
        mut self,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self> {
        for (name, text) in variables {
            let Some((section, key)) = name
                .strip_prefix(PREFIX)
                .and_then(|rest| rest.split_once("__"))
            else {
                continue;
            };
            let key = key.to_lowercase().replace("__", ".");
            self.set(&section.to_lowercase(), &key, &text)
                .with_context(|| format!("in the environment variable {name}"))?;
        }
        Ok(self)
    }

    /// Adds `section.key=value`, the argument of the flag `--set`.
    pub fn assignment(mut self, text: &str) -> Result<Self> {
        let Some(((section, key), value)) = text
            .split_once('=')
            .and_then(|(path, value)| Some((path.split_once('.')?, value)))
        else {
            bail!("invalid assignment '{text}': expected section.key=value");
        };
        self.set(section, key, value)?;
        Ok(self)
    }

    /// Sets one key. `device` and `tenant` refer to the first entry of their lists.
    pub fn set(&mut self, section: &str, key: &str, text: &str) -> Result<()> {
        let value = literal(text);
        let entry = self.table.entry(section);
        let slot = match section {
            "device" | "tenant" => {
                let list = entry.or_insert_with(|| Value::Array(Vec::new()));
                let Value::Array(list) = list else {
                    bail!("'{section}' is not a list");
                };
                if list.is_empty() {
                    list.push(Value::Table(Table::new()));
                }
                &mut list[0]
            }
            _ => entry.or_insert_with(|| Value::Table(Table::new())),
        };
        let (outer, key) = match key.rsplit_once('.') {
            Some((outer, key)) => (outer.split('.').collect(), key),
            None => (Vec::new(), key),
        };
        let mut slot = slot;
        for name in outer {
            let Value::Table(table) = slot else { break };
            let inner = table.entry(name);
            slot = inner.or_insert_with(|| Value::Table(Table::new()));
        }
        let Value::Table(table) = slot else {
            bail!("cannot set '{key}': a part of its path in '{section}' is not a section");
        };
        table.insert(key.to_owned(), value);
        Ok(())
    }

    /// A section of [`SECTIONS_ELSEWHERE`], for the daemon that owns it; empty if it is absent.
    pub fn section(&self, name: &str) -> Result<Table> {
        match self.table.get(name) {
            None => Ok(Table::new()),
            Some(Value::Table(table)) => Ok(table.clone()),
            Some(_) => bail!("in the configuration: '{name}' is not a section"),
        }
    }

    /// Whether a layer sets a key.
    pub fn sets(&self, section: &str, key: &str) -> bool {
        let table = self.table.get(section).and_then(Value::as_table);
        table.is_some_and(|t| t.contains_key(key))
    }

    /// The typed and validated options of the Device Manager.
    pub fn finish(mut self) -> Result<Options> {
        for section in SECTIONS_ELSEWHERE {
            self.section(section)?;
            self.table.remove(section);
        }
        let options: Options = Value::Table(self.table)
            .try_into()
            .context("in the configuration")?;
        options.validate().context("in the configuration")
    }
}

/// Parses a number, a boolean or a list; everything else is a text.
fn literal(text: &str) -> Value {
    format!("v = {text}")
        .parse::<Table>()
        .ok()
        .and_then(|mut t| t.remove("v"))
        .filter(|v| !matches!(v, Value::Datetime(_)))
        .unwrap_or_else(|| Value::String(text.to_owned()))
}

fn merge(into: &mut Table, from: Table) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Table(old)), Value::Table(new)) => merge(old, new),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}
