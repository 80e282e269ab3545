//! Templates for `baltra function init`. `NAME` in files' names and contents is replaced with the
//! function's name, which becomes an identifier in C.

/// The initial files of a function.
#[derive(Clone, Copy, Debug)]
pub struct Template {
    /// The name on the command line.
    pub name: &'static str,
    /// A one-line description.
    pub about: &'static str,
    /// Name and contents of each file.
    pub files: &'static [(&'static str, &'static str)],
}

macro_rules! template {
    ($name:literal, $about:literal, $($file:literal),* $(; $other:expr)?) => {
        Template {
            name: $name,
            about: $about,
            files: &[
                $(($file, include_str!(concat!("../templates/", $name, "/", $file)))),*
                $(, $other)?
            ],
        }
    };
}

/// The C interface of native functions, by which `baltra-native` loads them.
const HEADER: (&str, &str) = (
    "baltra_function.h",
    include_str!("../../native/include/baltra_function.h"),
);

/// All templates; the first is the default.
pub const TEMPLATES: [Template; 3] = [
    template!(
        "opencl",
        "an OpenCL kernel over an array",
        "function.yaml",
        "NAME.cl"
    ),
    template!(
        "picture",
        "an OpenCL kernel over a picture: PNG or JPEG in, PNG out",
        "function.yaml",
        "NAME.cl"
    ),
    template!(
        "native",
        "a native function in C, with its Makefile",
        "function.yaml",
        "NAME.c",
        "Makefile";
        HEADER
    ),
];

impl Template {
    /// The template with a name.
    pub fn find(name: &str) -> Option<Template> {
        TEMPLATES.into_iter().find(|template| template.name == name)
    }

    /// The files for a function with a name: their names and contents.
    pub fn files_for(&self, name: &str) -> Vec<(String, String)> {
        let word = name.replace('-', "_");
        let fill = |text: &str| text.replace("NAME_WORD", &word).replace("NAME", name);
        self.files
            .iter()
            .map(|(file, text)| (fill(file), fill(text)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Files, Function};
    use bytes::Bytes;

    #[test]
    fn every_template_becomes_a_function_of_any_name() {
        for template in TEMPLATES {
            let files = template.files_for("my-first");
            let (_, manifest) = files
                .iter()
                .find(|(name, _)| name == "function.yaml")
                .unwrap();
            let mut contents: std::collections::BTreeMap<String, Bytes> = files
                .iter()
                .map(|(name, text)| (name.clone(), Bytes::from(text.clone())))
                .collect();
            // The Makefile's output.
            contents.insert("my-first.so".into(), Bytes::from_static(b"\x7fELF"));
            let function = Function::from_files(manifest, Files::from_contents(contents))
                .unwrap_or_else(|e| panic!("{}: {e}", template.name));
            assert_eq!(function.manifest.name, "my-first");
            assert!(
                files
                    .iter()
                    .all(|(name, text)| !name.contains("NAME") && !text.contains("NAME")),
                "{}",
                template.name
            );
        }
        assert!(Template::find("opencl").is_some() && Template::find("cobol").is_none());
    }
}
