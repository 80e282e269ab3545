//! Checks of implementations: their files, kernels and arguments, and that all inputs and outputs
//! are used.

use super::{names::is_identifier, Checked};
use crate::error::ManifestError;
use crate::files::Files;
use crate::manifest::{Board, Dimension, Implementation, Manifest, Native, Opencl, Source};
use crate::plan::arguments::{self, Names};
use crate::plan::{ArgumentPlan, BufferPlan, ImplementationPlan, Plan, ScratchPlan, StepPlan};
use baltra_board::Image;
use std::collections::BTreeSet;

/// Most bytes of OpenCL C.
const SOURCE_BYTES_MAX: usize = 4 << 20;
/// Most kernels, or scratch buffers, of an implementation.
const STEPS_MAX: usize = 1024;
/// Most arguments of a kernel.
const ARGUMENTS_MAX: usize = 256;

impl Plan {
    pub(super) fn add_implementations(
        &mut self,
        manifest: &Manifest,
        files: &mut Files,
    ) -> Checked<()> {
        for (index, implementation) in manifest.implementations.iter().enumerate() {
            let plan = match implementation {
                Implementation::Opencl(opencl) => {
                    let entry = format!("implementations[{index}].opencl");
                    opencl_source(opencl, &entry, files)?;
                    self.opencl(manifest, opencl, &entry)?
                }
                Implementation::Native(native) => {
                    let entry = format!("implementations[{index}].native");
                    self.native(manifest, native, &entry, files)?
                }
                Implementation::Board(board) => {
                    let entry = format!("implementations[{index}].board");
                    self.board(manifest, board, &entry, files)?
                }
            };
            self.implementations.push(plan);
        }
        Ok(())
    }

    fn opencl(
        &self,
        manifest: &Manifest,
        opencl: &Opencl,
        entry: &str,
    ) -> Checked<ImplementationPlan> {
        let mut plan = ImplementationPlan::default();
        if opencl.scratch.len() > STEPS_MAX || opencl.steps.len() > STEPS_MAX {
            return Err(ManifestError::at(
                entry,
                format!("more than {STEPS_MAX} steps or scratch buffers"),
            ));
        }
        for (index, scratch) in opencl.scratch.iter().enumerate() {
            let shape =
                self.shape_of(&scratch.shape, &format!("{entry}.scratch[{index}].shape"))?;
            plan.scratch.push(ScratchPlan {
                name: scratch.name.clone(),
                kind: scratch.kind,
                shape,
            });
        }
        if opencl.steps.is_empty() {
            let at =
                |field: &str, reason: &str| ManifestError::at(format!("{entry}.{field}"), reason);
            let kernel = opencl
                .kernel
                .as_ref()
                .ok_or_else(|| at("kernel", "the kernel's name is missing"))?;
            if opencl.global.is_empty() {
                return Err(at("global", "the work-items are missing"));
            }
            let args = opencl.args.as_ref().or(manifest.args.as_ref());
            let args_entry = if opencl.args.is_some() {
                format!("{entry}.args")
            } else {
                "args".into()
            };
            let args = self.arguments(manifest, &plan, args, &args_entry)?;
            plan.steps.push(self.compile_step(
                kernel,
                args,
                &opencl.global,
                &opencl.local,
                entry,
            )?);
        } else {
            let single = opencl.kernel.is_some() || opencl.args.is_some();
            if single || !opencl.global.is_empty() || !opencl.local.is_empty() {
                let reason = "set either kernel, args, global and local, or steps";
                return Err(ManifestError::at(format!("{entry}.steps"), reason));
            }
            for (index, step) in opencl.steps.iter().enumerate() {
                let entry = format!("{entry}.steps[{index}]");
                let args =
                    self.arguments(manifest, &plan, Some(&step.args), &format!("{entry}.args"))?;
                plan.steps.push(self.compile_step(
                    &step.kernel,
                    args,
                    &step.global,
                    &step.local,
                    &entry,
                )?);
            }
        }
        self.nothing_unbound(&plan, entry)?;
        Ok(plan)
    }

    fn native(
        &self,
        manifest: &Manifest,
        native: &Native,
        entry: &str,
        files: &mut Files,
    ) -> Checked<ImplementationPlan> {
        files
            .open(&native.library)
            .map_err(|reason| ManifestError::at(format!("{entry}.library"), reason))?;
        let mut plan = ImplementationPlan::default();
        let args = native.args.as_ref().or(manifest.args.as_ref());
        let args_entry = if native.args.is_some() {
            format!("{entry}.args")
        } else {
            "args".into()
        };
        let args = self.arguments(manifest, &plan, args, &args_entry)?;
        if args
            .iter()
            .any(|argument| matches!(argument, ArgumentPlan::Local(_)))
        {
            return Err(ManifestError::at(
                args_entry,
                "a native function has no local memory",
            ));
        }
        let one = [Dimension("1".into())];
        plan.steps
            .push(self.compile_step(&native.symbol, args, &one, &[], entry)?);
        self.nothing_unbound(&plan, entry)?;
        Ok(plan)
    }

    /// The step of a board: a call of the image's kernel, with a work-item for each byte of the
    /// body.
    fn board(
        &self,
        manifest: &Manifest,
        board: &Board,
        entry: &str,
        files: &mut Files,
    ) -> Checked<ImplementationPlan> {
        let at =
            |field: &str, reason: String| ManifestError::at(format!("{entry}.{field}"), reason);
        let file = files.open(&board.image);
        let file = file.map_err(|reason| at("image", reason))?;
        let image =
            Image::parse(&file).map_err(|e| at("image", format!("'{}': {e}", board.image)))?;
        let about = image.description.ok_or_else(|| {
            let reason = "lacks a description of its kernel's name and arguments";
            at("image", format!("'{}' {reason}", board.image))
        })?;
        let args = board.args.clone().unwrap_or_else(|| {
            let inputs = manifest.inputs.iter().filter(|i| !i.shape.is_empty());
            let outputs = manifest.outputs.iter().map(|output| output.name.clone());
            let scalars = about.scalars.iter().map(|name| match self.variable(name) {
                Some(_) => format!("u32({name})"),
                None => name.clone(),
            });
            let inputs = inputs.map(|input| input.name.clone());
            inputs.chain(outputs).chain(scalars).collect()
        });
        let args_entry = format!("{entry}.args");
        let body = manifest.inputs.iter().find(|input| {
            !input.shape.is_empty() && args.first().is_some_and(|name| *name == input.name)
        });
        let answers = |name: &String| manifest.outputs.iter().any(|o| o.name == *name);
        let wanted = 2 + about.scalars.len();
        let (Some(body), true, true) =
            (body, args.get(1).is_some_and(answers), args.len() == wanted)
        else {
            let scalars = about.scalars.join(", ");
            let reason = format!(
                "the kernel takes {wanted}: an input (the body), an output (the answer){}{scalars}",
                if scalars.is_empty() { "" } else { ", and " }
            );
            return Err(ManifestError::at(args_entry, reason));
        };
        let sizes = body.shape.iter().map(|size| format!("({})", size.0));
        let sizes: Vec<_> = sizes.chain([body.kind.size().to_string()]).collect();
        let global = [Dimension(sizes.join(" * "))];
        let mut plan = ImplementationPlan::default();
        let args = self.arguments(manifest, &plan, Some(&args), &args_entry)?;
        plan.steps
            .push(self.compile_step(&about.name, args, &global, &[], entry)?);
        self.nothing_unbound(&plan, entry)?;
        Ok(plan)
    }

    fn compile_step(
        &self,
        kernel: &str,
        arguments: Vec<ArgumentPlan>,
        global: &[Dimension],
        local: &[Dimension],
        entry: &str,
    ) -> Checked<StepPlan> {
        if !is_identifier(kernel) {
            return Err(ManifestError::at(
                entry,
                format!("'{kernel}' is not a C identifier"),
            ));
        }
        if !(1..=3).contains(&global.len()) {
            return Err(ManifestError::at(
                format!("{entry}.global"),
                "must have 1 to 3 dimensions",
            ));
        }
        if !local.is_empty() && local.len() != global.len() {
            return Err(ManifestError::at(
                format!("{entry}.local"),
                "must have as many dimensions as global",
            ));
        }
        let local = self.expressions(local, &format!("{entry}.local"))?;
        if let Some(index) = local.iter().position(|size| size.constant() == Some(0)) {
            return Err(ManifestError::at(
                format!("{entry}.local[{index}]"),
                "must be at least 1",
            ));
        }
        let global = self.expressions(global, &format!("{entry}.global"))?;
        Ok(StepPlan {
            kernel: kernel.into(),
            arguments,
            global,
            local,
        })
    }

    /// The arguments of one kernel; without a list, inputs and outputs in the manifest's order.
    fn arguments(
        &self,
        manifest: &Manifest,
        implementation: &ImplementationPlan,
        args: Option<&Vec<String>>,
        entry: &str,
    ) -> Checked<Vec<ArgumentPlan>> {
        let all: Vec<String>;
        let args = match args {
            Some(args) => args,
            None => {
                let inputs = manifest.inputs.iter().map(|input| &input.name);
                let outputs = manifest
                    .outputs
                    .iter()
                    .filter(|output| output.inout.is_none())
                    .map(|output| &output.name);
                all = inputs.chain(outputs).cloned().collect();
                &all
            }
        };
        if args.len() > ARGUMENTS_MAX {
            return Err(ManifestError::at(
                entry,
                format!("more than {ARGUMENTS_MAX} arguments"),
            ));
        }
        let names = Names {
            buffer: &|name| self.buffer(name),
            scratch: &|name| {
                implementation
                    .scratch
                    .iter()
                    .position(|scratch| scratch.name == name)
            },
            scalar: &|name| {
                self.inputs
                    .iter()
                    .position(|input| input.name == name && input.is_scalar())
            },
            variable: &|name| self.variable(name),
        };
        let parse = |(index, text): (usize, &String)| {
            arguments::parse(text, &names)
                .map_err(|reason| ManifestError::at(format!("{entry}[{index}]"), reason))
        };
        args.iter().enumerate().map(parse).collect()
    }

    /// The buffer with an array's name.
    fn buffer(&self, name: &str) -> Option<usize> {
        self.buffers.iter().position(|buffer| match *buffer {
            BufferPlan::Input(input) => self.inputs[input].name == name,
            BufferPlan::InOut(input, output) => {
                self.inputs[input].name == name || self.outputs[output].name == name
            }
            BufferPlan::Output(output) => self.outputs[output].name == name,
            BufferPlan::Constant(_) => {
                let at = self
                    .buffers
                    .iter()
                    .position(|other| std::ptr::eq(other, buffer));
                self.inputs
                    .iter()
                    .any(|input| input.name == name && input.buffer == at)
            }
        })
    }

    /// Checks that every array is an argument of a kernel, and that every number is used.
    fn nothing_unbound(&self, plan: &ImplementationPlan, entry: &str) -> Checked<()> {
        let mut buffers = BTreeSet::new();
        let mut scratches = BTreeSet::new();
        let mut inputs = BTreeSet::new();
        let mut variables = BTreeSet::new();
        for step in &plan.steps {
            for argument in &step.arguments {
                match argument {
                    ArgumentPlan::Buffer(index) => drop(buffers.insert(*index)),
                    ArgumentPlan::Scratch(index) => drop(scratches.insert(*index)),
                    ArgumentPlan::Input(index) => drop(inputs.insert(*index)),
                    ArgumentPlan::Computed(_, expression) | ArgumentPlan::Local(expression) => {
                        variables.extend(expression.variables());
                    }
                    ArgumentPlan::Fixed(_) => {}
                }
            }
            variables.extend(
                step.global
                    .iter()
                    .chain(&step.local)
                    .flat_map(|size| size.variables()),
            );
        }
        let shapes = self
            .inputs
            .iter()
            .map(|i| &i.shape)
            .chain(self.outputs.iter().map(|o| &o.shape));
        variables.extend(
            shapes
                .chain(plan.scratch.iter().map(|s| &s.shape))
                .flatten()
                .flat_map(|size| size.variables()),
        );

        let unbound = |name: &str| {
            Err(ManifestError::at(
                entry,
                format!("'{name}' is not an argument of any kernel"),
            ))
        };
        for (index, buffer) in self.buffers.iter().enumerate() {
            if buffers.contains(&index) {
                continue;
            }
            return unbound(match *buffer {
                BufferPlan::Input(input) | BufferPlan::InOut(input, _) => &self.inputs[input].name,
                BufferPlan::Output(output) => &self.outputs[output].name,
                BufferPlan::Constant(_) => self
                    .inputs
                    .iter()
                    .find(|input| input.buffer == Some(index))
                    .map_or("", |input| &input.name),
            });
        }
        for (index, input) in self
            .inputs
            .iter()
            .enumerate()
            .filter(|(_, input)| input.is_scalar())
        {
            let used = inputs.contains(&index)
                || input
                    .variable
                    .is_some_and(|variable| variables.contains(&variable));
            if !used && input.from != Source::Constant {
                return unbound(&input.name);
            }
        }
        match (0..plan.scratch.len()).find(|index| !scratches.contains(index)) {
            Some(index) => unbound(&plan.scratch[index].name),
            None => Ok(()),
        }
    }
}

fn opencl_source(opencl: &Opencl, entry: &str, files: &mut Files) -> Checked<()> {
    let at = |field: &str, reason: String| ManifestError::at(format!("{entry}.{field}"), reason);
    match (&opencl.source, &opencl.accelerator) {
        (Some(source), None) => {
            let text = files.open(source).map_err(|reason| at("source", reason))?;
            if text.len() > SOURCE_BYTES_MAX {
                return Err(at(
                    "source",
                    format!("'{source}' is larger than {SOURCE_BYTES_MAX} bytes"),
                ));
            }
            if std::str::from_utf8(&text).is_err() || text.contains(&0) {
                return Err(at("source", format!("'{source}' is not text")));
            }
        }
        (None, Some(accelerator)) if accelerator.is_empty() => {
            return Err(at(
                "accelerator",
                "must be the accelerator's name or digest".into(),
            ));
        }
        (None, Some(_)) => {}
        _ => return Err(ManifestError::at(entry, "set either source or accelerator")),
    }
    if opencl.options.len() > 4096 || opencl.options.contains('\0') {
        return Err(at("options", "must be at most 4096 characters".into()));
    }
    Ok(())
}
