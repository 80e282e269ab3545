//! The manifest of an accelerator's image: its kernels as the host sees them, and the compiler's
//! report about each circuit.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Pointer arguments of a kernel: tags have four bits, and 0 is the null pointer's.
pub const POINTERS_MAX: usize = 15;
/// Bytes of a kernel's arguments by value and of its pointers.
pub const ARGUMENT_BYTES_MAX: u64 = 1024;
/// Words of the argument block: those of the launch, and one for each argument of a byte.
const WORDS_MAX: u64 = LAUNCH_WORDS + ARGUMENT_BYTES_MAX;
const LAUNCH_WORDS: u64 = 10;
const KERNELS_MAX: usize = 4096;

/// Reasons for which a manifest is refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The manifest is not JSON of this form.
    #[error("the image's manifest is malformed")]
    Json(#[from] serde_json::Error),
    /// A kernel exceeds what a launch can pass.
    #[error("the image's manifest is invalid: kernel '{kernel}' {reason}")]
    Kernel {
        /// The kernel.
        kernel: String,
        /// The excess.
        reason: String,
    },
    /// Too many kernels.
    #[error("the image's manifest has {0} kernels, at most {KERNELS_MAX} are supported")]
    Kernels(usize),
}

/// An image's kernels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// In the order of the source.
    pub kernels: Vec<Kernel>,
    /// The checksum ([`source_checksum`]) of the source; empty: unknown, or several sources.
    #[serde(default)]
    pub source_sha256: String,
}

/// The checksum of a source: SHA-256 in hexadecimal digits.
pub fn source_checksum(source: &[u8]) -> String {
    let digits = Sha256::digest(source);
    digits.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// Name of the kernel.
    pub name: String,
    /// Attributes of the kernel, as `CL_KERNEL_ATTRIBUTES` returns them.
    #[serde(default)]
    pub attributes: String,
    /// The attribute `reqd_work_group_size`.
    #[serde(default)]
    pub required_work_group_size: Option<[u32; 3]>,
    /// Work-items of the largest group.
    pub work_group_size_max: u32,
    /// Local memory of its own, without that of arguments.
    #[serde(default)]
    pub local_bytes: u64,
    /// The largest argument in local memory.
    #[serde(default)]
    pub local_argument_bytes_max: u64,
    /// Memory of each work-item.
    #[serde(default)]
    pub private_bytes: u64,
    /// In the order of the source.
    pub arguments: Vec<Argument>,
    /// The channels that it reads and writes.
    #[serde(default)]
    pub channels: Vec<Channel>,
    /// The circuit.
    #[serde(default)]
    pub report: Report,
}

/// A channel of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Channel {
    /// Name of the channel, with the index of an array's element.
    pub name: String,
    /// The kernel writes it, otherwise it reads it.
    pub writes: bool,
    /// Size of an element.
    pub bytes: u64,
    /// Elements that it holds at least.
    #[serde(default)]
    pub depth: u64,
}

/// Address space of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Address {
    /// Passed by value.
    Private,
    /// A buffer.
    Global,
    /// A buffer that is only read.
    Constant,
    /// Memory of the work-group.
    Local,
}

/// An argument.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Argument {
    /// Name of the argument.
    pub name: String,
    /// Name of the argument's type.
    pub type_name: String,
    /// Address space of the argument.
    #[serde(rename = "address_space")]
    pub address: Address,
    /// Type qualifiers, such as `const restrict`.
    #[serde(default)]
    pub qualifiers: String,
    /// Size of the argument for `clSetKernelArg`; that of a pointer is 8.
    pub bytes: u64,
    /// Words of the argument block that it occupies.
    pub words: u64,
    /// The access qualifier of a pipe, `read_only` or `write_only`.
    #[serde(default)]
    pub access: String,
    /// Bytes of the packets of a pipe that the kernel uses.
    #[serde(default)]
    pub packet_bytes: u64,
}

impl Argument {
    /// Whether it is a pipe.
    pub fn is_pipe(&self) -> bool {
        self.qualifiers.split(' ').any(|word| word == "pipe")
    }
}

/// The compiler's report about a circuit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Loops that are pipelines, in the order of the source.
    #[serde(default)]
    pub loops: Vec<Loop>,
    /// Memories on the chip.
    #[serde(default)]
    pub memories: Vec<OnChip>,
    /// Lookup tables, estimated.
    #[serde(default)]
    pub luts: u64,
    /// Block RAMs, estimated.
    #[serde(default)]
    pub block_rams: u64,
    /// Hardware multipliers, estimated.
    #[serde(default)]
    pub multipliers: u64,
    /// The parts of these estimates; empty in images of older versions, as the lists below.
    #[serde(default)]
    pub area: Vec<Area>,
    /// Cycles between work-items while memory has the words that they read; 0: unknown.
    #[serde(default)]
    pub item_cycles_min: u64,
}

/// A part of a circuit's area.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Area {
    /// A kind of unit, a memory, or a part that all kernels have.
    pub name: String,
    /// Instances of the unit.
    pub count: u64,
    /// Lookup tables of all instances.
    pub luts: u64,
    /// Block RAMs of all instances.
    pub block_rams: u64,
    /// Hardware multipliers of all instances.
    pub multipliers: u64,
}

/// A loop.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Loop {
    /// Line of the source; 0: unknown, or the loop over work-items.
    pub line: u64,
    /// Cycles between the starts of two iterations.
    pub interval: u64,
    /// The reason why the interval is not shorter.
    #[serde(default)]
    pub limit: String,
    /// Whether its iterations are work-items.
    #[serde(default)]
    pub work_items: bool,
    /// Cycles that an iteration takes; 0: unknown.
    #[serde(default)]
    pub steps: u64,
    /// The steps of an iteration, by line of the source.
    #[serde(default)]
    pub stages: Vec<Stage>,
}

/// The steps of an iteration that execute a line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// Line of the source.
    pub line: u64,
    /// Its first step, from 0.
    pub first: u64,
    /// Its last step.
    pub last: u64,
}

/// A memory on the chip.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OnChip {
    /// The variable's name.
    pub name: String,
    /// Size of the memory.
    pub bytes: u64,
    /// Independent parts.
    pub banks: u64,
    /// `private`, `local` or `constant`; empty: unknown.
    #[serde(default)]
    pub kind: String,
    /// Bits of a word; 0: unknown.
    #[serde(default)]
    pub word_bits: u64,
    /// The lines of the source that access it.
    #[serde(default)]
    pub accesses: Vec<Access>,
}

/// The accesses of a line to a memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Access {
    /// Line of the source.
    pub line: u64,
    /// Loads in the circuit.
    #[serde(default)]
    pub loads: u64,
    /// Stores in the circuit.
    #[serde(default)]
    pub stores: u64,
}

impl Manifest {
    /// Reads a manifest and checks that each kernel can be launched.
    pub fn parse(text: &str) -> Result<Manifest, Error> {
        let manifest: Manifest = serde_json::from_str(text)?;
        if manifest.kernels.len() > KERNELS_MAX {
            return Err(Error::Kernels(manifest.kernels.len()));
        }
        for kernel in &manifest.kernels {
            kernel.check().map_err(|reason| Error::Kernel {
                kernel: kernel.name.clone(),
                reason,
            })?;
        }
        Ok(manifest)
    }
}

impl Kernel {
    /// Whether it has pipes.
    pub fn has_pipes(&self) -> bool {
        self.arguments.iter().any(Argument::is_pipe)
    }

    fn check(&self) -> Result<(), String> {
        let words = self.arguments.iter().map(|argument| argument.words);
        let words = words.fold(LAUNCH_WORDS, u64::saturating_add);
        if words > WORDS_MAX {
            return Err(format!(
                "has an argument block of {words} words, at most {WORDS_MAX} are supported"
            ));
        }
        let pointers = self
            .arguments
            .iter()
            .filter(|argument| matches!(argument.address, Address::Global | Address::Constant));
        let pointers = pointers.count();
        if pointers > POINTERS_MAX {
            return Err(format!(
                "has {pointers} pointers to buffers, at most {POINTERS_MAX} are supported"
            ));
        }
        let wide = self.arguments.iter().find(|argument| {
            argument.address == Address::Private && argument.bytes > 8 * argument.words
        });
        match wide {
            Some(argument) => Err(format!(
                "has an argument '{}' of {} bytes in {} words of 8",
                argument.name, argument.bytes, argument.words
            )),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argument(address: Address, bytes: u64, words: u64) -> Argument {
        Argument {
            name: "a".into(),
            type_name: "uint".into(),
            address,
            qualifiers: "const".into(),
            bytes,
            words,
            access: String::new(),
            packet_bytes: 0,
        }
    }

    fn parse(arguments: Vec<Argument>) -> Result<Manifest, Error> {
        let kernel = Kernel {
            name: "k".into(),
            arguments,
            ..Kernel::default()
        };
        let manifest = Manifest {
            kernels: vec![kernel],
            ..Manifest::default()
        };
        Manifest::parse(&serde_json::to_string(&manifest).unwrap())
    }

    #[test]
    fn a_manifest_is_read_as_written() {
        let arguments = vec![
            argument(Address::Global, 8, 1),
            argument(Address::Private, 16, 2),
        ];
        let read = parse(arguments.clone()).unwrap();
        assert_eq!(read.kernels[0].arguments, arguments);
    }

    #[test]
    fn reports_of_older_images_have_no_stages_and_no_area() {
        let text = r#"{"kernels": [{"name": "k", "work_group_size_max": 1, "arguments": [],
            "report": {"loops": [{"line": 3, "interval": 2, "limit": "x"}],
                "memories": [{"name": "m", "bytes": 8, "banks": 1}],
                "luts": 5, "block_rams": 4, "multipliers": 3}}]}"#;
        let manifest = Manifest::parse(text).unwrap();
        let report = &manifest.kernels[0].report;
        assert_eq!((report.loops[0].interval, report.loops[0].steps), (2, 0));
        assert!(report.area.is_empty() && report.loops[0].stages.is_empty());
        assert_eq!(report.memories[0].kind, "");
        assert_eq!(manifest.source_sha256, "");
    }

    #[test]
    fn arguments_that_cannot_be_passed_are_refused() {
        for (arguments, text) in [
            (vec![argument(Address::Global, 8, 1); 16], "16 pointers"),
            (vec![argument(Address::Private, 8, u64::MAX)], "words"),
            (vec![argument(Address::Private, 9, 1)], "9 bytes in 1 words"),
        ] {
            let error = parse(arguments).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
        assert!(matches!(Manifest::parse("{"), Err(Error::Json(_))));
    }
}
