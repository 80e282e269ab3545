//! Uploads of functions: a tar archive, JSON, or a single manifest.

use crate::http::failure::Failure;
use crate::http::function::store::{self, file_name, Error, Files, MANIFEST};
use crate::http::problem::Problem;
use base64::Engine as _;
use bytes::Bytes;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

/// A tar archive of the function's directory.
pub const TAR: &str = "application/vnd.baltra.function+tar";
/// JSON: `{"files": {"function.yaml": "…", "lib.so": {"base64": "…"}}}`.
pub const JSON: &str = "application/vnd.baltra.function+json";
/// Supported content types, for error messages.
pub const TYPES: &str = "application/json (an OpenFaaS deployment), \
    application/vnd.baltra.function+tar (or application/x-tar, application/gzip), \
    application/vnd.baltra.function+json or application/yaml";

/// The format of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// [`TAR`].
    Tar,
    /// [`TAR`], compressed.
    TarGz,
    /// [`JSON`].
    Json,
    /// A manifest that needs no other file.
    Yaml,
}

impl Form {
    /// The format for a media type without parameters.
    pub fn of(media_type: &str) -> Option<Form> {
        let essence = media_type.split(';').next().unwrap_or_default().trim();
        match essence.to_ascii_lowercase().as_str() {
            TAR | "application/x-tar" | "application/tar" => Some(Form::Tar),
            "application/gzip" | "application/x-gzip" | "application/x-gtar" => Some(Form::TarGz),
            JSON => Some(Form::Json),
            "application/yaml" | "application/x-yaml" | "text/yaml" => Some(Form::Yaml),
            _ => None,
        }
    }

    /// Unpacks the files, at most `bytes_max` in total.
    pub fn unpack(self, body: &[u8], bytes_max: u64) -> Result<Files, Error> {
        match self {
            Form::Tar => unpack_tar(body, bytes_max),
            Form::TarGz => unpack_tar(flate2::read::GzDecoder::new(body), bytes_max),
            Form::Json => unpack_json(body, bytes_max),
            Form::Yaml => Ok(Files::from([(
                MANIFEST.to_owned(),
                Bytes::copy_from_slice(body),
            )])),
        }
    }
}

fn too_large(bytes_max: u64) -> Error {
    Error::TooLarge(format!(
        "the function's files exceed {bytes_max} bytes ('gateway.limits.upload_bytes_max')"
    ))
}

fn unpack_tar(archive: impl Read, bytes_max: u64) -> Result<Files, Error> {
    // The bound includes headers and padding, so an archive of headers only ends too.
    let bounded = archive.take(bytes_max.saturating_mul(2).saturating_add(1 << 20));
    let mut archive = tar::Archive::new(bounded);
    let (mut files, mut bytes) = (Files::new(), 0u64);
    let mut directories = BTreeSet::new();
    for entry in archive.entries()? {
        let entry = entry?;
        let kind = entry.header().entry_type();
        if kind.is_pax_global_extensions() {
            continue;
        }
        if kind.is_dir() {
            // Directories exist through their files; the root of an archive has no name.
            directories.extend(file_name(&entry.path()?));
            if directories.len() > 10_000 {
                return Err(too_large(bytes_max));
            }
            continue;
        }
        let path = entry.path()?.into_owned();
        if !kind.is_file() {
            return Err(Error::Name(format!(
                "{} (not a regular file)",
                path.display()
            )));
        }
        let name = file_name(&path)?;
        let size = entry.header().size()?;
        bytes = bytes.saturating_add(size);
        if bytes > bytes_max || files.len() > 10_000 {
            return Err(too_large(bytes_max));
        }
        let mut content = Vec::new();
        entry.take(size).read_to_end(&mut content)?;
        files.insert(name, content.into());
    }
    match directories
        .into_iter()
        .find(|name| files.contains_key(name))
    {
        Some(both) => Err(Error::Both(both)),
        None => Ok(without_directory(files)),
    }
}

/// Removes a common directory's name from all files.
fn without_directory(files: Files) -> Files {
    if files.contains_key(MANIFEST) {
        return files;
    }
    let manifest = format!("/{MANIFEST}");
    let Some(top) = files
        .keys()
        .find_map(|name| name.strip_suffix(&manifest))
        .filter(|top| !top.contains('/'))
        .map(|top| format!("{top}/"))
    else {
        return files;
    };
    if files.keys().all(|name| name.starts_with(&top)) {
        let renamed = files.into_iter();
        renamed
            .map(|(name, bytes)| (name[top.len()..].to_owned(), bytes))
            .collect()
    } else {
        files
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Upload {
    files: BTreeMap<String, Content>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Binary { base64: String },
}

fn unpack_json(body: &[u8], bytes_max: u64) -> Result<Files, Error> {
    let wrong = |why: String| {
        let text = format!("the upload is not {{\"files\": {{\"{MANIFEST}\": \"…\"}}}}: {why}");
        Error::Manifest(baltra_functions::ManifestError::new(text))
    };
    let upload: Upload = serde_json::from_slice(body).map_err(|e| wrong(e.to_string()))?;
    let (mut files, mut bytes) = (Files::new(), 0u64);
    for (name, content) in upload.files {
        let content = match content {
            Content::Text(text) => Bytes::from(text),
            Content::Binary { base64 } => {
                let decoded = base64::engine::general_purpose::STANDARD.decode(base64);
                decoded.map_err(|e| wrong(format!("{name}: {e}")))?.into()
            }
        };
        bytes += content.len() as u64;
        if bytes > bytes_max {
            return Err(too_large(bytes_max));
        }
        files.insert(name, content);
    }
    Ok(files)
}

impl From<store::Error> for Problem {
    fn from(error: store::Error) -> Problem {
        match &error {
            Error::Io(io) if is_archive_error(io) => {
                Problem::bad_request(format!("cannot read the archive: {io}"))
            }
            Error::Io(io) => Problem::storage("the function", io),
            Error::TooLarge(text) => Problem::new(Failure::TooLarge, text.clone()),
            Error::Name(_) | Error::Both(_) | Error::NoManifest | Error::Manifest(_) => {
                Problem::unprocessable(error.to_string())
            }
        }
    }
}

/// Whether an error means a malformed archive.
fn is_archive_error(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{InvalidData, InvalidInput, Other, UnexpectedEof};
    matches!(
        error.kind(),
        InvalidData | InvalidInput | Other | UnexpectedEof
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tar_of(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, bytes) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            // Written directly, because the archive library refuses hostile names.
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            header.set_cksum();
            builder.append(&header, *bytes).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn an_archive_of_a_directory_is_the_directory() {
        for prefix in ["", "./", "sobel/", "./sobel/"] {
            let manifest = format!("{prefix}{MANIFEST}");
            let kernel = format!("{prefix}src/a.cl");
            let archive = tar_of(&[(&manifest, b"m"), (&kernel, b"k")]);
            let files = Form::Tar.unpack(&archive, 1000).unwrap();
            assert_eq!(files[MANIFEST], "m");
            assert_eq!(files["src/a.cl"], "k");
        }
    }

    #[test]
    fn an_archive_cannot_leave_its_directory() {
        for name in ["../x", "/etc/x", "a/../../x", ".x"] {
            let archive = tar_of(&[(name, b"m")]);
            assert!(
                matches!(Form::Tar.unpack(&archive, 1000), Err(Error::Name(_))),
                "{name}"
            );
        }
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        builder
            .append_link(&mut header, "a", "/etc/passwd")
            .unwrap();
        let archive = builder.into_inner().unwrap();
        assert!(matches!(
            Form::Tar.unpack(&archive, 1000),
            Err(Error::Name(_))
        ));
    }

    #[test]
    fn a_name_is_not_both_a_file_and_a_directory() {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, kind) in [
            (MANIFEST, tar::EntryType::Regular),
            ("lib", tar::EntryType::Regular),
            ("lib/", tar::EntryType::Directory),
        ] {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_size(0);
            builder.append_data(&mut header, name, &b""[..]).unwrap();
        }
        let archive = builder.into_inner().unwrap();
        let unpacked = Form::Tar.unpack(&archive, 1000);
        assert!(matches!(unpacked, Err(Error::Both(name)) if name == "lib"));
    }

    #[test]
    fn more_than_may_be_is_refused_packed_or_not() {
        let archive = tar_of(&[(MANIFEST, &[0; 2000])]);
        assert!(matches!(
            Form::Tar.unpack(&archive, 1999),
            Err(Error::TooLarge(_))
        ));
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        std::io::Write::write_all(&mut packed, &tar_of(&[(MANIFEST, &vec![0; 1 << 22])])).unwrap();
        let packed = packed.finish().unwrap();
        assert!(packed.len() < 100_000);
        assert!(matches!(
            Form::TarGz.unpack(&packed, 1 << 20),
            Err(Error::TooLarge(_))
        ));
        assert!(Form::TarGz.unpack(&packed, 1 << 22).is_ok());
    }

    #[test]
    fn json_holds_texts_and_bytes() {
        let body = br#"{"files": {"function.yaml": "name: x", "lib.so": {"base64": "AAE="}}}"#;
        let files = Form::Json.unpack(body, 100).unwrap();
        assert_eq!(files["function.yaml"], "name: x");
        assert_eq!(files["lib.so"], &[0u8, 1][..]);
        assert!(matches!(
            Form::Json.unpack(body, 5),
            Err(Error::TooLarge(_))
        ));
        for wrong in [
            "",
            "{}",
            "[]",
            r#"{"files": 1}"#,
            r#"{"files": {"a": {"base64": "!"}}}"#,
        ] {
            assert!(matches!(
                Form::Json.unpack(wrong.as_bytes(), 100),
                Err(Error::Manifest(_))
            ));
        }
    }

    #[test]
    fn media_types_are_read_without_their_parameters() {
        assert_eq!(
            Form::of("Application/X-Tar; charset=binary"),
            Some(Form::Tar)
        );
        assert_eq!(Form::of(JSON), Some(Form::Json));
        assert_eq!(Form::of("application/json"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_error_or_files(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
            for form in [Form::Tar, Form::TarGz, Form::Json] {
                let _ = form.unpack(&bytes, 10_000);
            }
        }
    }
}
