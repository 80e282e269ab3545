//! A deployment of a function, as stored, and what its labels and annotations request.

use baltra_api::annotations::{with_condition, BLASTFUNCTION, CONDITIONS, PREFIX};
use baltra_api::query::{Field, Query};
use baltra_engine::{placement, Settings};
use baltra_functions::manifest::{Demand, Implementation, Scale};
use baltra_functions::Function;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A deployment, as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployment {
    /// The name under which the function is called.
    pub name: String,
    /// The function in the store.
    pub image: String,
    /// Labels, for tools; those of [`SCALE`] set the number of replicas.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Annotations, for tools; some select devices.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// Desired number of replicas, if it does not scale; 0: none until the first call.
    #[serde(default = "one")]
    pub replicas: u32,
    /// Milliseconds since 1970.
    #[serde(default)]
    pub created_ms: u64,
}

fn one() -> u32 {
    1
}

/// Prefix of the labels of OpenFaaS for scaling.
const SCALE: &str = "com.openfaas.scale.";

/// Prefix of the labels and annotations of OpenFaaS.
const OPENFAAS: &str = "com.openfaas.";
/// Labels and annotations of OpenFaaS that change nothing here: for its user interface, and for
/// probes of containers. The gateway checks itself whether a function is ready.
const WITHOUT_EFFECT: [&str; 3] = [
    "com.openfaas.ui.",
    "com.openfaas.health.",
    "com.openfaas.ready.",
];

impl Deployment {
    /// Checks that it has no labels or annotations of OpenFaaS that request what is not supported.
    /// Those of stored deployments are not checked again.
    ///
    /// # Errors
    /// The label or annotation, and the reason.
    pub fn check(&self) -> Result<(), String> {
        let is_unknown = |name: &&String| {
            name.starts_with(OPENFAAS) && !WITHOUT_EFFECT.iter().any(|p| name.starts_with(p))
        };
        let mut labels = self.labels.keys().filter(is_unknown);
        if let Some(label) = labels.find(|label| !label.starts_with(SCALE)) {
            return Err(format!(
                "label '{label}' is not supported: the labels of OpenFaaS for functions are {SCALE}min, max, target, type and zero"
            ));
        }
        match self.annotations.keys().find(is_unknown) {
            Some(name) if name.starts_with(SCALE) => Err(format!(
                "annotation '{name}' is not supported: scaling is requested by a label of this name"
            )),
            Some(name) => Err(format!("annotation '{name}' is not supported")),
            None => Ok(()),
        }
    }

    /// The engine's settings for the function.
    ///
    /// # Errors
    /// A label or an annotation that is invalid or not supported, and the reason.
    pub fn settings(&self, function: &Function) -> Result<Settings, String> {
        let scale = self.scale(function)?;
        Ok(Settings {
            replicas: self.replicas as usize,
            scale,
            device: self.device(function)?,
        })
    }

    /// The number of replicas in the labels of a function that does not scale.
    ///
    /// # Errors
    /// The label is not a number.
    pub fn fixed_replicas(labels: &BTreeMap<String, String>) -> Result<Option<u32>, String> {
        let min = labels.get_key_value(&format!("{SCALE}min"));
        min.map(|(label, text)| number(label, text)).transpose()
    }

    /// The manifest's scaling, changed by labels.
    fn scale(&self, function: &Function) -> Result<Option<Scale>, String> {
        let manifest = &function.manifest;
        let mut scale = manifest.scale;
        for (label, text) in &self.labels {
            let Some(field) = label.strip_prefix(SCALE) else {
                continue;
            };
            if !manifest.wants_devices() {
                match field {
                    "min" => continue,
                    _ => {
                        return Err(format!(
                            "label '{label}' is not supported: function '{}' has no implementation on a device, and runs in one process",
                            manifest.name
                        ))
                    }
                }
            }
            let scale = scale.get_or_insert_default();
            match field {
                "min" => scale.min = number(label, text)?,
                "max" => scale.max = number(label, text)?,
                "target" => scale.target = number(label, text)?,
                "type" => {
                    scale.demand = match text.as_str() {
                        "rps" => Demand::Rps,
                        "capacity" => Demand::Capacity,
                        _ => return Err(wrong(label, text, "must be 'rps' or 'capacity'")),
                    }
                }
                "zero" => {
                    let parsed = text.parse();
                    let parsed = parsed.map_err(|_| wrong(label, text, "must be 'true' or 'false'"));
                    scale.zero = parsed?;
                }
                _ => {
                    return Err(format!(
                        "label '{label}' is not supported: the labels for scaling are {SCALE}min, max, target, type and zero"
                    ))
                }
            }
        }
        if let Some(scale) = scale {
            let checked = scale.check(manifest.idle_s);
            checked.map_err(|(field, reason)| format!("label '{SCALE}{field}' {reason}"))?;
        }
        Ok(scale)
    }

    /// The conditions of annotations on devices.
    fn device(&self, function: &Function) -> Result<Query, String> {
        let mut query = Query::any();
        for (name, value) in &self.annotations {
            let prefixes = [PREFIX, BLASTFUNCTION];
            let Some(key) = prefixes.iter().find_map(|p| name.strip_prefix(p)) else {
                continue;
            };
            if !CONDITIONS.contains(&key) {
                return Err(format!(
                    "annotation '{name}' is not supported: the annotations of functions are {PREFIX}{}",
                    CONDITIONS.join(", ")
                ));
            }
            if !function.manifest.wants_devices() {
                return Err(format!(
                    "annotation '{name}' is not supported: function '{}' has no implementation on a device",
                    function.manifest.name
                ));
            }
            let wrong = |reason: String| wrong_annotation(name, value, &reason);
            let value = value.trim();
            query = with_condition(&query, key, value).map_err(|e| wrong(e.to_string()))?;
            if query.term(Field::Accelerator).is_some() {
                if !loads(function, &query) {
                    let reason = "the manifest determines the function's accelerator, and names another one or none";
                    return Err(wrong(reason.into()));
                }
                query = query.without(Field::Accelerator);
            }
            if let Some(field) = placement::conflict(function, &query) {
                return Err(wrong(format!(
                    "the manifest has a condition on '{field}', too"
                )));
            }
        }
        Ok(query)
    }
}

/// Whether each implementation on a device runs an accelerator that the query accepts by its name or
/// digest in the manifest.
fn loads(function: &Function, query: &Query) -> bool {
    let mut implementations = function.manifest.implementations.iter();
    implementations.all(|implementation| match implementation {
        Implementation::Opencl(opencl) => {
            let named = opencl.accelerator.as_ref();
            let named = named.or(opencl.device.accelerator.as_ref());
            named.is_some_and(|name| query.accepts(Field::Accelerator, name))
        }
        Implementation::Board(_) => false,
        Implementation::Native(_) => true,
    })
}

fn number(label: &str, text: &str) -> Result<u32, String> {
    let parsed = text.parse::<u32>();
    parsed.map_err(|_| wrong(label, text, "must be a number"))
}

fn wrong(label: &str, text: &str, reason: &str) -> String {
    format!("label '{label}' is '{}', {reason}", shortened(text))
}

fn wrong_annotation(name: &str, value: &str, reason: &str) -> String {
    format!("annotation '{name}' is '{}': {reason}", shortened(value))
}

fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(implementation: &str, more: &str) -> Function {
        let text = format!(
            "name: id\ninputs: [{{name: a, type: u8, shape: [n]}}]\n\
             outputs: [{{name: b, type: u8, shape: [n]}}]\n\
             implementations: [{{opencl: {{{implementation}, kernel: id, global: [n]}}}}]\n{more}\n"
        );
        let files = BTreeMap::from([("id.cl".to_owned(), bytes::Bytes::from_static(b"x"))]);
        let files = baltra_functions::Files::from_contents(files);
        Function::from_files(&text, files).unwrap_or_else(|e| panic!("{e}"))
    }

    fn settings(
        function: &Function,
        labels: &[(&str, &str)],
        annotations: &[(&str, &str)],
    ) -> Result<Settings, String> {
        let deployment = deployment(labels, annotations);
        deployment.settings(function)
    }

    fn deployment(labels: &[(&str, &str)], annotations: &[(&str, &str)]) -> Deployment {
        let map = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(k, v)| (k.to_string(), v.to_string()));
            pairs.collect()
        };
        Deployment {
            name: "id".into(),
            image: "id".into(),
            labels: map(labels),
            annotations: map(annotations),
            replicas: 2,
            created_ms: 0,
        }
    }

    #[test]
    fn requests_of_openfaas_that_are_not_supported_are_refused() {
        let plain = [
            ("com.openfaas.ui.ext", "png"),
            ("com.openfaas.scale.min", "1"),
            ("team", "a"),
        ];
        let probes = [
            ("com.openfaas.health.http.path", "/healthz"),
            ("com.openfaas.ready.http.path", "/ready"),
            ("topic", "a"),
        ];
        assert_eq!(deployment(&plain, &probes).check(), Ok(()));
        for name in ["com.openfaas.profile", "com.openfaas.serviceaccount"] {
            for wrong in [
                deployment(&[(name, "x")], &[]),
                deployment(&[], &[(name, "x")]),
            ] {
                let error = wrong.check().unwrap_err();
                assert!(error.contains(&format!("'{name}'")), "{error}");
            }
        }
        let misplaced = deployment(&[], &[("com.openfaas.scale.max", "2")]);
        assert!(misplaced.check().unwrap_err().contains("label"));
    }

    #[test]
    fn labels_change_the_scaling_of_the_manifest() {
        let plain = function("source: id.cl", "");
        let settings_of = |function, labels: &[(&str, &str)]| settings(function, labels, &[]);
        let fixed = settings_of(&plain, &[("team", "a")]).unwrap();
        assert_eq!((fixed.replicas, fixed.scale), (2, None));
        let scaling = function("source: id.cl", "scale: {min: 2, target: 7}");
        let labels = [
            ("com.openfaas.scale.max", "9"),
            ("com.openfaas.scale.type", "capacity"),
            ("com.openfaas.scale.zero", "true"),
        ];
        let expected = Scale {
            min: 2,
            max: 9,
            target: 7,
            demand: Demand::Capacity,
            zero: true,
        };
        let scale = settings_of(&scaling, &labels).unwrap().scale;
        assert_eq!(scale, Some(expected));
        // The others are the defaults of OpenFaaS.
        let scale = settings_of(&plain, &labels[..1]).unwrap().scale;
        let expected = Scale {
            max: 9,
            ..Scale::default()
        };
        assert_eq!(scale, Some(expected));
        for (label, text) in [
            ("com.openfaas.scale.min", "0"),
            ("com.openfaas.scale.min", "21"),
            ("com.openfaas.scale.max", "-1"),
            ("com.openfaas.scale.target", "0"),
            ("com.openfaas.scale.type", "cpu"),
            ("com.openfaas.scale.zero", "maybe"),
            ("com.openfaas.scale.factor", "20"),
        ] {
            let error = settings_of(&plain, &[(label, text)]).unwrap_err();
            assert!(error.contains(&format!("'{label}'")), "{error}");
        }
    }

    #[test]
    fn annotations_select_devices() {
        let plain = function("source: id.cl", "");
        let named = function("accelerator: sobel", "");
        let nvidia = function("source: id.cl, device: {vendor: NVIDIA}", "");
        for (function, name, value, query) in [
            (&plain, "baltra.io/device", "n1/fpga0", "id=n1/fpga0"),
            (&plain, "blastfunction.io/vendor", "altera", "vendor=altera"),
            (&named, "blastfunction.io/accelerator", "sobel", ""),
            (&nvidia, "baltra.io/device", "H100*", "model=H100*"),
        ] {
            let got = settings(function, &[], &[(name, value)]).unwrap();
            assert_eq!(got.device, query.parse().unwrap(), "{name}");
        }
        for (function, name, value) in [
            (&plain, "baltra.io/count", "2"),
            (&plain, "baltra.io/device", "color=red"),
            (&plain, "blastfunction.io/query", "x"),
            (&plain, "blastfunction.io/accelerator", "sobel"),
            (&named, "baltra.io/acceleratorhash", "other"),
            (&nvidia, "baltra.io/vendor", "Intel*"),
        ] {
            let error = settings(function, &[], &[(name, value)]).unwrap_err();
            assert!(error.contains(&format!("'{name}'")), "{error}");
        }
    }
}
