//! `baltra function init`: a function to start from.

use crate::output::Table;
use anyhow::{bail, Context, Result};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Something to start from.
struct Template {
    name: &'static str,
    about: &'static str,
    files: &'static [(&'static str, &'static str)],
}

/// The first is taken where none is named.
const TEMPLATES: [Template; 2] = [
    Template {
        name: "numbers",
        about: "numbers in, numbers out: JSON, NumPy or raw; an OpenCL kernel",
        files: &[
            (
                "function.yaml",
                include_str!("../../../templates/numbers/function.yaml"),
            ),
            (
                "function.cl",
                include_str!("../../../templates/numbers/function.cl"),
            ),
        ],
    },
    Template {
        name: "picture",
        about: "a picture in, a picture out: PNG, JPEG or raw; an OpenCL kernel",
        files: &[
            (
                "function.yaml",
                include_str!("../../../templates/picture/function.yaml"),
            ),
            (
                "function.cl",
                include_str!("../../../templates/picture/function.cl"),
            ),
        ],
    },
];

/// What stands in a template for the function's name.
const PLACEHOLDER: &str = "NAME";

/// What there is to start from.
pub fn list() {
    let mut table = Table::new(&["TEMPLATE", "WHAT"]);
    for template in &TEMPLATES {
        table.row([template.name.to_owned(), template.about.to_owned()]);
    }
    table.print();
}

/// Writes a template's files. What is there already stays as it is.
pub fn init(name: &str, template: Option<&str>, dir: Option<&Path>) -> Result<()> {
    if !valid_name(name) {
        bail!("'{name}' is no function's name: up to 63 lower-case letters, digits and '-', a letter or digit at both ends");
    }
    let template = match template {
        None => &TEMPLATES[0],
        Some(wanted) => {
            let found = TEMPLATES.iter().find(|t| t.name == wanted);
            found.with_context(|| {
                let names: Vec<&str> = TEMPLATES.iter().map(|t| t.name).collect();
                format!(
                    "there is no template '{wanted}': there are {}",
                    names.join(", ")
                )
            })?
        }
    };
    let dir = dir.map_or_else(|| PathBuf::from(name), Path::to_owned);
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    if let Some((file, _)) = template
        .files
        .iter()
        .find(|(file, _)| dir.join(file).exists())
    {
        bail!(
            "{} is there already: choose another directory with --dir",
            dir.join(file).display()
        );
    }
    for (file, text) in template.files {
        let path = dir.join(file);
        let made = std::fs::File::create_new(&path);
        let written =
            made.and_then(|mut f| f.write_all(text.replace(PLACEHOLDER, name).as_bytes()));
        written.with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
    }
    println!("next: baltra function deploy {}", dir.display());
    Ok(())
}

fn valid_name(name: &str) -> bool {
    let end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=63).contains(&name.len())
        && name.starts_with(end)
        && name.ends_with(end)
        && name.chars().all(|c| end(c) || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_every_template_is_a_function_that_can_be_deployed() {
        let dir = tempfile::tempdir().unwrap();
        for template in &TEMPLATES {
            let name = format!("my-{}", template.name);
            let home = dir.path().join(&name);
            init(&name, Some(template.name), Some(&home)).unwrap();
            let function = baltra_functions::Function::load(&home).unwrap();
            assert_eq!(function.manifest.name, name);
            let error = init(&name, Some(template.name), Some(&home)).unwrap_err();
            assert!(error.to_string().contains("already"), "{error}");
        }
    }

    #[test]
    fn test_names_and_templates_that_cannot_be_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["", "A", "a_b", "-a", "a-", "../a"] {
            assert!(init(name, None, Some(dir.path())).is_err(), "{name}");
        }
        let error = init("a", Some("nothing"), Some(dir.path())).unwrap_err();
        assert!(error.to_string().contains("numbers, picture"), "{error}");
    }
}
