//! The description of a compiled program.

use serde::{Deserialize, Serialize};

/// A program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// In the order of the program.
    pub kernels: Vec<KernelInfo>,
}

/// A kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelInfo {
    /// The function's name.
    pub name: String,
    /// In order.
    pub arguments: Vec<Argument>,
    /// The attribute `reqd_work_group_size`.
    pub required_work_group_size: Option<[u32; 3]>,
    /// Work-items of the largest work-group.
    pub work_group_size_max: u32,
    /// Bytes of the kernel's variables in local memory.
    pub local_bytes: u64,
    /// Bytes of the largest argument in local memory.
    pub local_argument_bytes_max: u64,
    /// Bytes that are kept for each work-item across barriers.
    pub private_bytes: u64,
    /// The kernel's attributes as in the program.
    pub attributes: String,
    /// Its channels: those that it reads, then those that it writes, in the order of its ports.
    #[serde(default)]
    pub channels: Vec<ChannelUse>,
    /// Its hardware.
    pub report: Report,
}

/// A channel of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelUse {
    /// Its name, with the index of an array's element.
    pub name: String,
    /// Whether the kernel writes it, otherwise reads it.
    pub writes: bool,
    /// Bytes of an element.
    pub bytes: u64,
    /// Elements that it holds at least.
    pub depth: u64,
    /// The line of the kernel's first operation on it.
    pub line: u64,
}

/// A parameter of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Argument {
    /// The parameter's name.
    pub name: String,
    /// The type as in the program, such as `float*`.
    pub type_name: String,
    /// The kind of memory that it refers to.
    pub address_space: AddressSpace,
    /// The access qualifier of a pipe or an image: `none` for other types.
    pub access: String,
    /// Type qualifiers, such as `const restrict`.
    pub qualifiers: String,
    /// Bytes of its value; 8 for a pointer.
    pub bytes: u64,
    /// Words of 64 bits in the argument block.
    pub words: u64,
    /// Bytes of the packets of a pipe that the kernel uses; 0: it is none.
    #[serde(default)]
    pub packet_bytes: u64,
}

impl Argument {
    /// Whether it is a pipe.
    pub fn is_pipe(&self) -> bool {
        self.qualifiers.split(' ').any(|word| word == "pipe")
    }
}

/// The kind of memory that a parameter refers to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AddressSpace {
    /// A value.
    #[default]
    Private,
    /// A buffer.
    Global,
    /// A buffer that is only read.
    Constant,
    /// Memory of the work-group, on the chip.
    Local,
}

/// The parts of a kernel's hardware.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// States of the state machine.
    pub states: u64,
    /// Loops that are pipelines.
    pub loops: Vec<LoopReport>,
    /// Memories on the chip.
    pub memories: Vec<MemoryReport>,
    /// Estimate for ECP5.
    pub luts: u64,
    /// Estimate: block RAMs of 2 KB.
    pub block_rams: u64,
    /// Estimate: multipliers of 18 bits.
    pub multipliers: u64,
    /// The parts of these estimates.
    #[serde(default)]
    pub area: Vec<AreaReport>,
    /// Clocks between work-items while memory has the words that they read, if all of a work-item
    /// is one iteration of a pipeline; otherwise 0.
    #[serde(default)]
    pub item_cycles_min: u64,
}

/// A part of a kernel's area.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AreaReport {
    /// A kind of unit, a memory, or a part that all kernels have.
    pub name: String,
    /// Instances of the unit.
    pub count: u64,
    /// Of all instances together, as the following ones.
    pub luts: u64,
    /// Block RAMs of 2 KB.
    pub block_rams: u64,
    /// Multipliers of 18 bits.
    pub multipliers: u64,
}

/// A loop that is a pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopReport {
    /// The line in the program.
    pub line: u64,
    /// Clocks between iterations.
    pub interval: u32,
    /// The reason why the interval is not shorter.
    pub limit: String,
    /// Whether its iterations are work-items.
    #[serde(default)]
    pub work_items: bool,
    /// Clocks that an iteration takes.
    #[serde(default)]
    pub steps: u64,
    /// The steps of an iteration by line of the program.
    #[serde(default)]
    pub stages: Vec<StageReport>,
}

/// The steps of an iteration that execute a line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageReport {
    /// The line in the program.
    pub line: u64,
    /// Its first step.
    pub first: u32,
    /// Its last step, in which its result is ready.
    pub last: u32,
}

/// A memory on the chip.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryReport {
    /// The variable that it holds.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Memories that are accessed at the same time.
    pub banks: u64,
    /// The kind of variables that it holds.
    #[serde(default)]
    pub kind: MemoryKind,
    /// Bits of a word.
    #[serde(default)]
    pub word_bits: u64,
    /// The lines of the program that access it.
    #[serde(default)]
    pub accesses: Vec<AccessReport>,
}

/// The kind of variables that a memory on the chip holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemoryKind {
    /// Of a work-item.
    #[default]
    Private,
    /// Of a work-group.
    Local,
    /// Constants of the program.
    Constant,
}

/// The accesses of a line to a memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessReport {
    /// The line in the program.
    pub line: u64,
    /// Loads in the circuit.
    pub loads: u32,
    /// Stores in the circuit.
    pub stores: u32,
}
