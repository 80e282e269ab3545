//! `baltra doctor`: checks this host's configuration and prints remedies.

mod bundle;
mod daemons;
mod devices;
mod host;
mod opencl;

use crate::args::Doctor;
use crate::exit::Exit;
use crate::output;
use anyhow::Result;
use baltra_manager::options::PathOptions;
use serde_json::json;
use std::io::IsTerminal;
use std::process::ExitCode;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Correct.
    Good,
    /// Works, but with reduced performance or safety.
    Weak,
    /// Required, and does not work.
    Bad,
}

/// The result of a check.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The checked item.
    pub what: &'static str,
    /// Its severity.
    pub verdict: Verdict,
    /// The observed state.
    pub found: String,
    /// The remedy; empty if there is nothing to do.
    pub mend: String,
}

impl Finding {
    /// A finding without a problem.
    pub fn good(what: &'static str, found: impl Into<String>) -> Finding {
        Finding {
            what,
            verdict: Verdict::Good,
            found: found.into(),
            mend: String::new(),
        }
    }

    /// A finding that reduces performance or safety.
    pub fn weak(what: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Finding {
        Finding {
            what,
            verdict: Verdict::Weak,
            found: found.into(),
            mend: mend.into(),
        }
    }

    /// A finding that prevents operation.
    pub fn bad(what: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Finding {
        Finding {
            verdict: Verdict::Bad,
            ..Finding::weak(what, found, mend)
        }
    }
}

/// Runs all checks; returns 1 if something required is missing. With `--bundle`, writes the archive
/// instead.
pub fn doctor(args: &Doctor, paths: &PathOptions) -> Result<ExitCode> {
    if let Some(path) = &args.bundle {
        return bundle::write(path, paths).map(|()| ExitCode::SUCCESS);
    }
    let mut findings = devices::findings(paths);
    findings.extend(opencl::findings());
    findings.extend(daemons::findings(paths));
    findings.extend(host::findings());
    let is_well = findings.iter().all(|f| f.verdict != Verdict::Bad);
    let code = Exit::of(is_well).into();
    if args.json.json {
        let all: Vec<_> = findings
            .iter()
            .map(|f| {
                let verdict = match f.verdict {
                    Verdict::Good => "good",
                    Verdict::Weak => "weak",
                    Verdict::Bad => "bad",
                };
                json!({"what": f.what, "verdict": verdict, "found": f.found, "mend": f.mend})
            })
            .collect();
        output::json(&json!(all));
        return Ok(code);
    }
    let colors = std::io::stdout().is_terminal();
    let width = findings.iter().map(|f| f.what.len()).max().unwrap_or(0);
    for f in &findings {
        let mark = match f.verdict {
            Verdict::Good => output::paint(colors, "32", "ok  "),
            Verdict::Weak => output::paint(colors, "33", "weak"),
            Verdict::Bad => output::paint(colors, "31", "bad "),
        };
        println!("{mark}  {:width$}  {}", f.what, f.found);
        if !f.mend.is_empty() {
            println!("      {:width$}  -> {}", "", f.mend);
        }
    }
    Ok(code)
}
