//! Selects the implementation of a kernel on a board: hardware synthesized from its C source, its C
//! source on a processor, or a hardware module in RTL.

use crate::model::{Cluster, Kernel, KernelPlacement, NodeKind};
use crate::rtl::Module;
use crate::sources::{c_sources, verilog_sources, Build};
use anyhow::{bail, Context, Result};
use baltra_hls::{synthesize, Hardware};
use std::fs;
use std::path::PathBuf;

/// Kernels in RTL that boards have.
pub const RTL: &[&str] = &["echo"];

/// The implementation of a kernel on a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Hardware synthesized from the C source.
    Synthesized,
    /// The C source, on a processor of its own.
    Processor,
    /// A hardware module: the kernel's own Verilog, or a module of `hdl/messages/rtl`.
    Rtl,
}

impl Form {
    /// Parses a `type` of the logical or the map file.
    fn parse(text: &str) -> Option<Form> {
        match text.to_ascii_lowercase().as_str() {
            "hls" | "synthesized" | "synthesised" => Some(Form::Synthesized), // text-ok: as in release 0.1
            "core" | "processor" => Some(Form::Processor),
            "rtl" | "verilog" | "system_verilog" => Some(Form::Rtl),
            _ => None,
        }
    }

    /// The form's name for display.
    pub fn text(self) -> &'static str {
        match self {
            Form::Synthesized => "synthesized",
            Form::Processor => "on its own processor",
            Form::Rtl => "in RTL",
        }
    }
}

/// The choice for a kernel on boards, for progress output.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The number of the kernel's first copy.
    pub kernel: u32,
    /// The copies that have this form.
    pub ranks: Vec<u32>,
    /// Its form.
    pub form: Form,
    /// The reason, with a line of the source if there is one.
    pub why: String,
    /// Its own module: synthesized, or a wrapper around RTL.
    pub module: Option<Module>,
}

impl Choice {
    /// A file name for the outputs.
    pub fn name(&self, cluster: &Cluster) -> String {
        let kernel = cluster
            .logical
            .kernel(self.kernel)
            .map_or("", |k| k.name.as_str());
        format!("{kernel}-{}", self.kernel)
    }

    /// The name of its module.
    pub fn module(&self, cluster: &Cluster) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        format!(
            "msg_{}",
            self.name(cluster).chars().map(plain).collect::<String>()
        )
    }
}

/// The form that the files request: the map file has precedence.
fn requested_form(kernel: &Kernel, place: &KernelPlacement) -> Option<Form> {
    let logical = kernel.rest.iter().find(|e| e.is("type"));
    place
        .form
        .as_deref()
        .and_then(Form::parse)
        .or_else(|| logical.and_then(|e| Form::parse(&e.text)))
}

/// The first rank that has only streams.
pub fn first_with_streams(choices: &[Choice]) -> Option<u32> {
    let alone = choices
        .iter()
        .filter(|c| c.module.as_ref().is_some_and(|m| m.streams));
    alone.flat_map(|c| c.ranks.iter().copied()).min()
}

/// Selects the forms of all kernels on boards, with reasons. Synthesis is tried unless another form
/// is requested.
///
/// # Errors
///
/// A kernel that shall be synthesized cannot be; a source is missing.
pub fn forms(cluster: &Cluster, with: &Build) -> Result<Vec<Choice>> {
    let mut wanted: Vec<(u32, Option<Form>, Vec<u32>)> = Vec::new();
    let boards = cluster
        .map
        .nodes
        .iter()
        .filter(|n| n.kind == NodeKind::Hardware);
    for place in boards.flat_map(|n| &n.kernels) {
        let Some(kernel) = cluster.logical.kernel(place.kernel) else {
            continue;
        };
        let form = requested_form(kernel, place);
        match wanted.iter_mut().find(|w| w.0 == kernel.num && w.1 == form) {
            Some(found) => found.2.push(place.kernel),
            None => wanted.push((kernel.num, form, vec![place.kernel])),
        }
    }
    // RTL kernels first: the programs of the other kernels contain information about them.
    let mut choices = Vec::new();
    let mut in_c = Vec::new();
    for (number, form, ranks) in wanted {
        let kernel = (cluster.logical.kernel(number))
            .context("internal error: no kernel with this number")?;
        let choice = Choice {
            kernel: number,
            ranks,
            form: form.unwrap_or(Form::Processor),
            why: "its type says so".to_owned(),
            module: None,
        };
        match in_rtl(cluster, kernel, form, choice.clone())? {
            Some(choice) => choices.push(choice),
            None if form == Some(Form::Processor) => choices.push(choice),
            None => in_c.push((kernel, form, choice)),
        }
    }
    let streams = first_with_streams(&choices);
    let synthesized: Vec<Result<Choice>> = std::thread::scope(|scope| {
        let each: Vec<_> = (in_c.into_iter())
            .map(|(kernel, form, choice)| {
                scope.spawn(move || in_hardware(cluster, with, kernel, form, streams, choice))
            })
            .collect();
        (each.into_iter())
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect()
    });
    for choice in synthesized {
        choices.push(choice?);
    }
    choices.sort_by_key(|choice| choice.ranks.first().copied());
    Ok(choices)
}

/// The choice for a kernel in RTL, its own or one of the boards; `None` for a kernel in C.
fn in_rtl(
    cluster: &Cluster,
    kernel: &Kernel,
    form: Option<Form>,
    mut choice: Choice,
) -> Result<Option<Choice>> {
    let verilog = verilog_sources(cluster, kernel);
    let in_c = form.is_none().then(|| c_sources(cluster, kernel));
    if !verilog.is_empty() && (form == Some(Form::Rtl) || in_c.is_some_and(|c| c.is_err())) {
        if form.is_none() {
            choice.why = "it has no C source".to_owned();
        }
        choice.form = Form::Rtl;
        let module = crate::rtl::module(cluster, kernel, &choice.module(cluster), verilog)?;
        choice.why += if module.streams {
            ": streams"
        } else {
            ": messages"
        };
        choice.module = Some(module);
    } else if form.is_none() && kernel.sources.is_empty() && RTL.contains(&kernel.name.as_str()) {
        choice.form = Form::Rtl;
        choice.why = "it has no C source, and the board has a kernel of this name".to_owned();
    }
    Ok((choice.form == Form::Rtl).then_some(choice))
}

/// The choice for a kernel in C: synthesized if that is requested or possible.
fn in_hardware(
    cluster: &Cluster,
    with: &Build,
    kernel: &Kernel,
    form: Option<Form>,
    streams: Option<u32>,
    mut choice: Choice,
) -> Result<Choice> {
    match hardware(cluster, with, kernel, streams, &choice) {
        Ok(hardware) => {
            if form.is_none() {
                choice.why = "its C can be synthesized".to_owned();
            }
            let pipelines: Vec<String> = hardware
                .pipelines
                .iter()
                .filter(|p| {
                    !["fabric/", "src/"]
                        .iter()
                        .any(|d| p.position.file.contains(&format!("humboldt/{d}")))
                })
                .map(|p| format!("line {} every {}", p.position.line, p.interval))
                .collect();
            choice.why += &format!(": {} states", hardware.states);
            if hardware.far_bytes > 0 {
                choice.why += &format!(", {} bytes off the chip", hardware.far_bytes);
            }
            if !pipelines.is_empty() {
                choice.why += &format!(
                    ", loops by clock cycles per iteration: {}",
                    pipelines.join(", ")
                );
            }
            choice.form = Form::Synthesized;
            choice.module = Some(Module {
                text: hardware.text,
                streams: false,
                sources: Vec::new(),
            });
        }
        Err(error) if form == Some(Form::Synthesized) => {
            bail!(
                "{}:{}: cannot synthesize kernel '{}': {error:#} (without <type> hls it runs on a processor)",
                cluster.logical.path.display(),
                kernel.line,
                kernel.name
            );
        }
        // The processor's compiler reports errors of the C source.
        Err(error) => {
            choice.why = match error.downcast_ref::<baltra_hls::Error>() {
                Some(error) => error.to_string(),
                None => format!("{error:#}"),
            };
        }
    }
    Ok(choice)
}

fn hardware(
    cluster: &Cluster,
    with: &Build,
    kernel: &Kernel,
    streams: Option<u32>,
    choice: &Choice,
) -> Result<Hardware> {
    fs::create_dir_all(&with.out)
        .with_context(|| format!("cannot create {}", with.out.display()))?;
    let constants = kernel
        .constants
        .iter()
        .map(|(name, value, _)| (format!("HUM_CONST_{name}"), value.clone()));
    let absolute = |path: PathBuf| path.canonicalize().unwrap_or(path);
    synthesize(&baltra_hls::Kernel {
        name: choice.module(cluster),
        sources: c_sources(cluster, kernel)?,
        first: kernel.num,
        copies: kernel.rep,
        ranks: cluster.size() as u32,
        streams,
        arguments: kernel.args.clone(),
        environment: constants.collect(),
        memory: kernel.memory().unwrap_or(0),
        humboldt: absolute(with.humboldt.clone()),
        work: absolute(with.out.clone()),
    })
}
