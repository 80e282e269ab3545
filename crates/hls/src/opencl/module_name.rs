//! The name of a kernel's module.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

/// No module of the hardware tree begins with it.
const PREFIX: &str = "opencl_";
/// Bytes of the longest part of a kernel's name that a module's name has: it is also a file's name.
const LENGTH_MAX: usize = 100;

/// The SystemVerilog module of the kernel with this name, and its file without the ending. A name
/// that is too long, or has letters beyond those of ASCII, is abbreviated, with a hash of it.
pub fn module_name(kernel: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let short: String = kernel.chars().map(plain).take(LENGTH_MAX).collect();
    if short == kernel {
        return format!("{PREFIX}{kernel}");
    }
    let mut hasher = DefaultHasher::new();
    kernel.hash(&mut hasher);
    format!("{PREFIX}{short}_{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::module_name;

    #[test]
    fn names_are_short_identifiers_and_differ() {
        assert_eq!(module_name("reader"), "opencl_reader");
        let long = "k".repeat(5000);
        let names = [
            "größe",
            "grüße",
            "gr__e",
            &long,
            &format!("{long}2"),
            &long[..super::LENGTH_MAX],
        ]
        .map(module_name);
        for (at, name) in names.iter().enumerate() {
            let legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
            assert!(name.len() < 200 && name.chars().all(legal), "{name}");
            assert!(!names[..at].contains(name), "{name}");
        }
    }
}
