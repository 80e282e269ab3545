//! Finds the files that a program's source includes, on the application's host.
//!
//! The compiler runs in another process that cannot read this one's files, perhaps on another host.
//! So the files are sent with the build, and the source includes them by new names
//! (`baltra_include`).

use crate::core::device::Device;
use baltra_include::{Files, Resolved, Source};
use baltra_opencl::*;
use std::path::{Path, PathBuf};

/// Bytes of one file.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// This process's files.
struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let is_text = |m: std::fs::Metadata| m.is_file() && m.len() <= FILE_BYTES_MAX;
        let is_text = std::fs::metadata(path).is_ok_and(is_text);
        is_text.then(|| std::fs::read(path).ok()).flatten()
    }

    fn identity(&self, path: &Path) -> PathBuf {
        path.canonicalize().unwrap_or_else(|_| path.to_owned())
    }
}

/// The source and headers for the device's compiler. The source is included whenever it includes
/// files, because those of an earlier build may differ.
pub fn resolve(
    source: &[u8],
    options: &str,
    embedded: &[(&str, &[u8])],
    device: &Device,
) -> Result<Resolved, i32> {
    let includes = |word: &[u8]| source.windows(word.len()).any(|w| w == word);
    let may_include = includes(b"inc") || includes(b"import") || includes(b"\\");
    if !may_include {
        return Ok(Resolved {
            options: options.to_owned(),
            ..Resolved::default()
        });
    }
    let predefined = predefined(device, options);
    let source = Source {
        text: source,
        options,
        predefined: &predefined,
        embedded,
    };
    let mut resolved =
        baltra_include::resolve(&source, &Disk).map_err(|_| CL_OUT_OF_HOST_MEMORY)?;
    resolved.text.get_or_insert_with(|| source.text.to_vec());
    Ok(resolved)
}

/// Macros that the specification requires compilers to define, if their values are known here.
fn predefined(device: &Device, options: &str) -> Vec<(String, String)> {
    let (major, minor) = device.limits.version;
    let version = major * 100 + minor * 10;
    let mut macros = vec![
        ("__OPENCL_VERSION__".to_owned(), version.to_string()),
        ("__ENDIAN_LITTLE__".to_owned(), "1".to_owned()),
    ];
    let standards = [
        ("-cl-std=CL1.1", 110),
        ("-cl-std=CL1.2", 120),
        ("-cl-std=CL2.0", 200),
        ("-cl-std=CL3.0", 300),
    ];
    let standard = standards
        .iter()
        .find(|(option, _)| options.contains(option));
    if let Some((_, language)) = standard {
        macros.push(("__OPENCL_C_VERSION__".to_owned(), language.to_string()));
    }
    for (name, value) in [
        ("1_0", 100),
        ("1_1", 110),
        ("1_2", 120),
        ("2_0", 200),
        ("3_0", 300),
    ] {
        if value <= version {
            macros.push((format!("CL_VERSION_{name}"), value.to_string()));
        }
    }
    if device.limits.images {
        macros.push(("__IMAGE_SUPPORT__".to_owned(), "1".to_owned()));
    }
    if options.contains("-cl-fast-relaxed-math") {
        macros.push(("__FAST_RELAXED_MATH__".to_owned(), "1".to_owned()));
    }
    let extensions = device.text(CL_DEVICE_EXTENSIONS);
    let names = extensions.split_whitespace();
    macros.extend(names.map(|name| (name.to_owned(), "1".to_owned())));
    macros
}
