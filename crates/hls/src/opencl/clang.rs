//! The call of clang.

use super::inputs::make_file;
use super::{BuildError, Options};
use crate::compile::CLANG;
use crate::error::absent;
use crate::program;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The file of the library that every program includes.
const BUILTINS: &str = "baltra_builtins.h";
/// Files that only programs with a word include. Headers of a program may have the word instead of
/// the program.
const OPTIONAL: [(&str, &str); 7] = [
    ("printf", "baltra_print.h"),
    ("_rt", "baltra_rounding.h"),
    ("shuffle", "baltra_shuffle.h"),
    ("half", "baltra_half.h"),
    ("cl_intel_channels", "baltra_channels.h"),
    ("cl_altera_channels", "baltra_channels.h"),
    ("pipe", "baltra_pipes.h"),
];
/// Clang's message for a parameter that is a channel (`baltra_channels.h`).
const AS_PARAMETER: &str = "invalid storage class specifier in function declarator";
/// Attributes of Intel's compiler that change what a program does: a kernel that starts with the
/// device, and a pipe whose functions wait. The unsupported construct, and the remedy.
const REFUSED: [(&str, &str, &str); 2] = [
    ("autorun", "kernels", "launch the kernel"),
    (
        "blocking",
        "pipes",
        "repeat 'read_pipe' or 'write_pipe' until it returns 0",
    ),
];
/// The name of the program in messages.
pub const SOURCE: &str = "kernel.cl";
/// The library of built-in functions.
pub(super) const LIBRARY: [(&str, &str); 11] = [
    (BUILTINS, include_str!("../../opencl/baltra_builtins.h")),
    ("baltra_math.h", include_str!("../../opencl/baltra_math.h")),
    (
        "baltra_transcendental.h",
        include_str!("../../opencl/baltra_transcendental.h"),
    ),
    (
        "baltra_special.h",
        include_str!("../../opencl/baltra_special.h"),
    ),
    (
        "baltra_rounding.h",
        include_str!("../../opencl/baltra_rounding.h"),
    ),
    (
        "baltra_shuffle.h",
        include_str!("../../opencl/baltra_shuffle.h"),
    ),
    ("baltra_half.h", include_str!("../../opencl/baltra_half.h")),
    (
        "baltra_channels.h",
        include_str!("../../opencl/baltra_channels.h"),
    ),
    (
        "baltra_pipes.h",
        include_str!("../../opencl/baltra_pipes.h"),
    ),
    (
        "baltra_print.h",
        include_str!("../../opencl/baltra_print.h"),
    ),
    (
        "baltra_print_items.h",
        include_str!("../../../../humboldt/fabric/print.h"),
    ),
];
/// Options of `clBuildProgram` that change no result that OpenCL defines, and are not passed on.
const IGNORED: [&str; 12] = [
    "-cl-opt-disable",
    "-cl-mad-enable",
    "-cl-no-signed-zeros",
    "-cl-unsafe-math-optimizations",
    "-cl-finite-math-only",
    "-cl-fast-relaxed-math",
    "-cl-denorms-are-zero",
    "-cl-fp32-correctly-rounded-divide-sqrt",
    "-cl-strict-aliasing",
    "-cl-kernel-arg-info",
    "-cl-uniform-work-group-size",
    "-g",
];

/// The version of OpenCL C of programs that require none.
const STANDARD: &str = "-cl-std=CL1.2";
/// The macro of its number.
const VERSION: &str = "__OPENCL_C_VERSION__";
/// `inline` without `static` defines a function, as in other compilers of OpenCL C: C99 requires
/// another definition. Objects keep C99's meaning, so that several of them may have the function.
const INLINE: &str = "-fgnu89-inline";
/// Defined for objects, whose functions are not their own.
const FOR_OBJECTS: &str = "-DBALTRA_OBJECT";

/// A form of the library.
struct Form {
    /// Its option of clang.
    flag: &'static str,
    /// The file of its precompiled headers.
    precompiled: &'static str,
}

/// The forms for programs without doubles, whose constants without a suffix are floats, and with them.
const FORMS: [Form; 2] = [
    Form {
        flag: "-cl-single-precision-constant",
        precompiled: "builtins.pch",
    },
    Form {
        flag: "-DBALTRA_DOUBLES",
        precompiled: "builtins_doubles.pch",
    },
];

/// Arguments of clang for the options of `clBuildProgram`.
fn arguments(options: &[String]) -> Result<(String, Vec<String>), BuildError> {
    let mut standard = STANDARD.to_owned();
    let mut out = Vec::new();
    let mut rest = options.iter();
    while let Some(option) = rest.next() {
        let invalid = |why: &str| BuildError {
            log: format!("invalid build option '{option}'{why}\n"),
        };
        if option == "-D" || option == "-I" {
            let value = rest.next().ok_or_else(|| invalid(": it has no value"))?;
            out.push(format!("{option}{value}"));
        } else if ["-D", "-I"].iter().any(|name| option.starts_with(name))
            || ["-w", "-Werror", "-cl-single-precision-constant"].contains(&option.as_str())
        {
            out.push(option.clone());
        } else if let Some(version) = option.strip_prefix("-cl-std=") {
            if !["CL1.0", "CL1.1", "CL1.2", "CL2.0", "CL3.0"].contains(&version) {
                return Err(invalid(" (supported: CL1.0, CL1.1, CL1.2, CL2.0, CL3.0)"));
            }
            // The library needs OpenCL C 1.2, which has all of the older versions.
            match version {
                "CL1.0" | "CL1.1" => {
                    let number = version.replace(|c: char| !c.is_ascii_digit(), "");
                    out.push(format!("-U{VERSION}"));
                    out.push(format!("-D{VERSION}={number}0"));
                }
                _ => standard.clone_from(option),
            }
        } else if !IGNORED.contains(&option.as_str()) {
            return Err(invalid(""));
        }
    }
    Ok((standard, out))
}

/// The form of loops with a small and constant number of iterations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loops {
    Kept,
    Unrolled,
}

/// Arguments that unroll loops as a whole or not at all; largest number of iterations, and of
/// instructions of the result.
const UNROLL: [&str; 10] = [
    "-mllvm",
    "-unroll-full-max-count=32",
    "-mllvm",
    "-unroll-threshold=800",
    "-mllvm",
    "-unroll-allow-partial=false",
    "-mllvm",
    "-unroll-runtime=false",
    "-mllvm",
    "-unroll-allow-peeling=false",
];

/// Compiles a program to IR; returns it with the warnings.
pub fn ir(
    source: &str,
    options: &Options,
    loops: Loops,
    work: &Path,
) -> Result<(String, String), BuildError> {
    let log = compile(source, options, &Output::Ir(loops), &OPTIONAL, work)?;
    Ok((read_ir(work)?, log))
}

/// Compiles a program to bitcode that has not been optimized; `prints`: with the functions of
/// `printf`, which a linked program has once.
pub fn object(
    source: &str,
    options: &Options,
    prints: bool,
    work: &Path,
) -> Result<(Vec<u8>, String), BuildError> {
    let optional = if prints {
        &OPTIONAL[..]
    } else {
        &OPTIONAL[1..]
    };
    let log = compile(source, options, &Output::Object, optional, work)?;
    let path = work.join(OBJECT);
    let object = fs::read(&path).map_err(|error| unreadable(&path, &error))?;
    Ok((object, log))
}

/// Optimizes bitcode to IR.
pub fn ir_of_object(
    object: &Path,
    loops: Loops,
    work: &Path,
) -> Result<(String, String), BuildError> {
    let mut clang = command();
    clang.current_dir(work).args(["-x", "ir"]);
    optimize(&mut clang, loops);
    let log = run(clang.arg(object))?;
    Ok((read_ir(work)?, log))
}

fn unreadable(path: &Path, error: &std::io::Error) -> BuildError {
    BuildError {
        log: format!("cannot access {}: {error}\n", path.display()),
    }
}

fn read_ir(work: &Path) -> Result<String, BuildError> {
    let path = work.join(IR);
    fs::read_to_string(&path).map_err(|error| unreadable(&path, &error))
}

/// Compiles a program with these files of the library; returns the warnings.
fn compile(
    source: &str,
    options: &Options,
    output: &Output,
    optional: &[(&str, &'static str)],
    work: &Path,
) -> Result<String, BuildError> {
    let path = work.join(SOURCE);
    fs::write(&path, source).map_err(|error| unreadable(&path, &error))?;
    let prepared = options.built_ins();
    if prepared.is_none() {
        write_library(work).map_err(|error| unreadable(work, &error))?;
    }
    let (standard, defines) = arguments(&options.defines_and_flags)?;
    let has_doubles = ["double", "fp64"].iter().any(|word| source.contains(word));
    let front_end = FrontEnd {
        work,
        prepared,
        form: &FORMS[usize::from(has_doubles)],
        standard,
        defines,
        output,
    };
    let is_used = |word: &str| source.contains(word);
    let named = |used: bool| {
        let files = optional
            .iter()
            .filter(move |(word, _)| is_used(word) == used);
        files.map(|(_, name)| *name)
    };
    let mut included: Vec<_> = named(true).collect();
    let result = front_end.run(&included);
    if result.is_ok() || !source.contains("#include") {
        return result;
    }
    included.extend(named(false));
    front_end.run(&included).or(result)
}

fn write_library(folder: &Path) -> io::Result<()> {
    let mut files = LIBRARY.iter();
    files.try_for_each(|(name, text)| fs::write(folder.join(name), text))
}

/// Writes the library and its precompiled headers; returns the headers and what they were made of.
pub(super) fn precompile(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    write_library(folder)?;
    let mut files = Vec::new();
    for (form, clang) in FORMS.iter().zip(precompilers()) {
        files.extend(make_file(clang, folder, form.precompiled)?);
    }
    Ok(files)
}

/// The commands that make the precompiled headers, but for the paths.
pub(super) fn precompilers() -> [Command; 2] {
    FORMS.each_ref().map(|form| {
        let mut clang = command_for("cl-header");
        clang.args(["-I.", STANDARD, form.flag, INLINE, BUILTINS]);
        clang
    })
}

/// The kind of clang's output.
enum Output {
    Ir(Loops),
    Object,
}

const IR: &str = "kernel.ll";
const OBJECT: &str = "kernel.bc";

/// A call of clang for OpenCL C.
struct FrontEnd<'a> {
    work: &'a Path,
    /// The folder of the library with precompiled headers; `None`: the library is in `work`.
    prepared: Option<&'a Path>,
    form: &'a Form,
    standard: String,
    defines: Vec<String>,
    output: &'a Output,
}

impl FrontEnd<'_> {
    /// Compiles the program with the library and these further files of it.
    fn run(&self, included: &[&str]) -> Result<String, BuildError> {
        let mut clang = command_for("cl");
        clang.current_dir(self.work);
        clang.arg("-I").arg(self.prepared.unwrap_or(Path::new(".")));
        match self.prepared.filter(|_| self.is_precompiled()) {
            Some(folder) => clang
                .arg("-include-pch")
                .arg(folder.join(self.form.precompiled)),
            None => clang.args(["-include", BUILTINS]),
        };
        clang
            .args(included.iter().flat_map(|name| ["-include", name]))
            .args([&self.standard, self.form.flag])
            .args(&self.defines);
        match self.output {
            Output::Ir(loops) => {
                clang.arg(INLINE);
                optimize(&mut clang, *loops);
            }
            Output::Object => {
                clang.arg(FOR_OBJECTS);
                clang.args([
                    "-Xclang",
                    "-disable-llvm-passes",
                    "-emit-llvm",
                    "-c",
                    "-o",
                    OBJECT,
                ]);
            }
        }
        let shown = |log: String| without_notes(&log, self.prepared.unwrap_or(self.work));
        match run(clang.arg(SOURCE)) {
            Ok(log) => Ok(shown(log)),
            Err(error) => Err(BuildError {
                log: shown(error.log),
            }),
        }
    }

    /// Whether the options are those of the precompiled headers, as far as these depend on them.
    fn is_precompiled(&self) -> bool {
        let is_version = |define: &String| define.contains(VERSION);
        self.standard == STANDARD
            && matches!(self.output, Output::Ir(_))
            && !self.defines.iter().any(is_version)
    }
}

/// Clang's messages without the notes about the library's text, which its user does not see.
fn without_notes(log: &str, library: &Path) -> String {
    let library = format!("{}/", library.display());
    let mut is_note = false;
    let mut out = String::new();
    for line in log.lines() {
        if let Some((place, _)) = line.split_once(": note: ") {
            let place = place.strip_prefix(&library).unwrap_or(place);
            let place = place.trim_start_matches("./");
            // Clang's own declarations of built-in functions have the place of their use.
            is_note = LIBRARY.iter().any(|(name, _)| place.starts_with(name))
                || line.ends_with(": note: candidate function");
        } else if [
            ": error: ",
            ": warning: ",
            "In file included",
            " generated.",
        ]
        .iter()
        .any(|part| line.contains(part))
        {
            is_note = false;
        }
        if !is_note {
            out += line;
            out.push('\n');
        }
    }
    out.replace(&library, "")
}

/// Clang's messages, with the remedy where a function is one of OpenCL C that the device lacks.
fn with_remedies(log: &str) -> String {
    let mut out = String::new();
    for line in log.lines() {
        let parts = [
            "use of undeclared identifier '",
            "implicit declaration of function '",
        ];
        let found = parts.iter().find_map(|part| {
            let (before, after) = line.split_once(part)?;
            let (message, remedy) = absent(after.split('\'').next()?)?;
            Some(format!("{before}{message} ({remedy})"))
        });
        out += found.as_deref().unwrap_or(line);
        out.push('\n');
    }
    out
}

/// Clang for OpenCL's target.
fn command() -> Command {
    let mut clang = Command::new(CLANG);
    clang
        .args(["--target=spir64-unknown-unknown", "-O2"])
        .args(["-fno-discard-value-names", "-fno-color-diagnostics"])
        .args(["-Xclang", "-fno-builtin"])
        .stdin(Stdio::null());
    clang
}

/// Clang for OpenCL C; `language`: `cl`, or `cl-header` for headers to precompile.
fn command_for(language: &str) -> Command {
    let mut clang = command();
    clang
        .args(["-x", language])
        .args(["-g", "-ffp-contract=off", "-cl-kernel-arg-info"])
        // The device's version, which clang leaves to its caller.
        .arg("-D__OPENCL_VERSION__=120");
    clang
}

/// Has clang optimize, and write IR.
fn optimize(clang: &mut Command, loops: Loops) {
    clang
        .args(["-fno-vectorize", "-fno-slp-vectorize"])
        .args(match loops {
            Loops::Kept => &["-fno-unroll-loops"][..],
            Loops::Unrolled => &UNROLL,
        })
        .args(["-mllvm", "-disable-loop-idiom-all"])
        // Counters of 32 bits keep their width.
        .args(["-mllvm", "-indvars-widen-indvars=false"])
        // The program's functions are part of its kernels.
        .args(["-mllvm", "-inline-threshold=1000000"])
        .args(["-mllvm", "-inlinecold-threshold=1000000"])
        .args(["-mllvm", "-inline-cold-callsite-threshold=1000000"])
        .args(["-S", "-emit-llvm", "-o", IR]);
}

/// Runs clang; returns its messages.
fn run(clang: &mut Command) -> Result<String, BuildError> {
    let run = clang.output().map_err(|error| BuildError {
        log: format!("error: {}\n", program::not_started(CLANG, &error)),
    })?;
    let log = String::from_utf8_lossy(&run.stderr).into_owned();
    if !run.status.success() {
        let log = log.replace(AS_PARAMETER, "a channel cannot be an argument");
        let log = program::failure(CLANG, run.status, &with_remedies(&log));
        return Err(BuildError { log });
    }
    for (attribute, what, remedy) in REFUSED {
        let ignored =
            format!("warning: unknown attribute '{attribute}' ignored [-Wunknown-attributes]");
        if let Some(line) = log.lines().find(|line| line.contains(&ignored)) {
            let error = format!("error: {what} with '{attribute}' are not supported ({remedy})\n");
            return Err(BuildError {
                log: line.replace(&ignored, &error),
            });
        }
    }
    Ok(log)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_definitions_and_rejects_unknown_options() {
        let options = |text: &str| {
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            arguments(&words).map(|found| found.1)
        };
        let found = options("-D A=1 -DB -cl-mad-enable -I x").unwrap();
        assert_eq!(found, ["-DA=1", "-DB", "-Ix"]);
        let (standard, found) = arguments(&["-cl-std=CL1.1".to_owned()]).unwrap();
        assert_eq!(standard, "-cl-std=CL1.2");
        assert!(found.contains(&"-D__OPENCL_C_VERSION__=110".to_owned()));
        for wrong in ["-o", "-D", "-cl-std=CL9.9", "-fplugin=x"] {
            let error = options(wrong).unwrap_err();
            assert!(error.log.contains("invalid build option"), "{error}");
        }
    }
}
