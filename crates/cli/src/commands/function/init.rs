//! `baltra function init`: creates a function from a template.

use crate::output::Table;
use anyhow::{bail, Context, Result};
use baltra_functions::templates::{Template, TEMPLATES};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Lists the templates.
pub fn list() {
    let mut table = Table::new(&["TEMPLATE", "WHAT"]);
    for template in &TEMPLATES {
        table.row([template.name.to_owned(), template.about.to_owned()]);
    }
    table.print();
}

/// Writes a template's files. Existing files are not changed.
pub fn init(name: &str, template: Option<&str>, dir: Option<&Path>) -> Result<()> {
    if !valid_name(name) {
        bail!("invalid function name '{name}': use up to 63 lower-case letters, digits and '-', with a letter or digit at both ends");
    }
    let template = match template {
        None => TEMPLATES[0],
        Some(wanted) => Template::find(wanted).with_context(|| {
            let names: Vec<&str> = TEMPLATES.iter().map(|t| t.name).collect();
            format!(
                "unknown template '{wanted}': use one of {}",
                names.join(", ")
            )
        })?,
    };
    let files = template.files_for(name);
    let dir = dir.map_or_else(|| PathBuf::from(name), Path::to_owned);
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    if let Some((file, _)) = files.iter().find(|(file, _)| dir.join(file).exists()) {
        bail!(
            "{} already exists: choose another directory with --dir",
            dir.join(file).display()
        );
    }
    for (file, text) in &files {
        let path = dir.join(file);
        let made = std::fs::File::create_new(&path);
        let written = made.and_then(|mut f| f.write_all(text.as_bytes()));
        written.with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
    }
    let dir = dir.display();
    if files.iter().any(|(file, _)| file == "Makefile") {
        println!("next: make -C {dir} && baltra function deploy {dir}")
    } else {
        println!("next: baltra function deploy {dir}")
    }
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
    fn every_template_is_a_function_that_can_be_deployed() {
        let dir = tempfile::tempdir().unwrap();
        for template in &TEMPLATES {
            let name = format!("my-{}", template.name);
            let home = dir.path().join(&name);
            init(&name, Some(template.name), Some(&home)).unwrap();
            if home.join("Makefile").exists() {
                let made = std::process::Command::new("make")
                    .arg("-C")
                    .arg(&home)
                    .output();
                let made = made.unwrap();
                assert!(
                    made.status.success(),
                    "{}",
                    String::from_utf8_lossy(&made.stderr)
                );
            }
            let function = baltra_functions::Function::load(&home).unwrap();
            assert_eq!(function.manifest.name, name);
            let error = init(&name, Some(template.name), Some(&home)).unwrap_err();
            assert!(error.to_string().contains("already"), "{error}");
        }
    }

    #[test]
    fn names_and_templates_that_cannot_be_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["", "A", "a_b", "-a", "a-", "../a"] {
            assert!(init(name, None, Some(dir.path())).is_err(), "{name}");
        }
        let error = init("a", Some("nothing"), Some(dir.path())).unwrap_err();
        assert!(
            error.to_string().contains("opencl, picture, native"),
            "{error}"
        );
    }
}
