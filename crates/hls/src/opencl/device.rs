//! The largest part that kernels are placed on, and what it has.

/// Its name, with an article.
pub const NAME: &str = "an LFE5UM5G-85F";
/// Lookup tables.
pub const LUTS: u64 = 83_640;
/// Block RAMs of 2 KB.
pub const BLOCK_RAMS: u64 = 208;
/// Multipliers of 18 bits.
pub const MULTIPLIERS: u64 = 156;
