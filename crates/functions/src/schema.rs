//! The manifest's JSON schema, for editors and for clients that check before they deploy.

use crate::manifest::Manifest;
use schemars::generate::SchemaSettings;

/// The schema that `schema/function.schema.json` publishes (draft 2020-12), as text.
pub const SCHEMA: &str = include_str!("../schema/function.schema.json");

/// The schema generated from the types.
pub fn schema() -> serde_json::Value {
    let schema = SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<Manifest>();
    schema.to_value()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_published_schema_is_that_of_the_types() {
        let text = format!(
            "{}\n",
            serde_json::to_string_pretty(&super::schema()).unwrap()
        );
        if std::env::var_os("BALTRA_WRITE_SCHEMA").is_some() {
            std::fs::write(
                concat!(env!("CARGO_MANIFEST_DIR"), "/schema/function.schema.json"),
                &text,
            )
            .unwrap();
            return;
        }
        assert!(
            super::SCHEMA == text,
            "the types have changed: run this test with BALTRA_WRITE_SCHEMA=1"
        );
    }
}
