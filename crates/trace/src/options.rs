//! The part of OpenTelemetry's environment variables that the daemons support.

use std::time::Duration;

/// The configuration, if the variables name a collector.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Options {
    /// The collector's URL.
    pub endpoint: http::Uri,
    /// Headers of each export request.
    pub headers: Vec<(String, String)>,
    /// Resource attributes: the service that exports.
    pub resource: Vec<(String, String)>,
    pub sampler: Sampler,
    /// Capacity of the queue; further spans are dropped.
    pub queue_max: usize,
    /// Longest time between exports; a full batch is exported at once.
    pub delay: Duration,
    /// Time limit of an export request.
    pub timeout: Duration,
}

/// Selects the traces to export.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sampler {
    /// The `sampled` flag of a remote parent decides, if there is one.
    pub parent_based: bool,
    /// Sampled share of the other traces, 0 to 1.
    pub ratio: f64,
}

impl Sampler {
    /// Whether to export a trace. `parent`: the `sampled` flag of its remote parent, if it has one.
    pub fn takes(&self, trace: &[u8; 16], parent: Option<bool>) -> bool {
        match parent {
            Some(sampled) if self.parent_based => sampled,
            // The rule of OpenTelemetry's SDKs, so that all services decide alike for a trace ID.
            _ => {
                let low = u64::from_be_bytes(trace[8..].try_into().expect("eight bytes")) >> 1;
                self.ratio >= 1.0 || low < (self.ratio * (1u64 << 63) as f64) as u64
            }
        }
    }
}

/// A variable with an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}: invalid value '{value}': {reason}")]
pub struct Invalid {
    /// The variable.
    pub name: &'static str,
    /// The start of its value.
    pub value: String,
    /// The reason and the expected form.
    pub reason: String,
}

fn invalid(name: &'static str, value: &str, reason: impl Into<String>) -> Invalid {
    Invalid {
        name,
        value: value.chars().take(64).collect(),
        reason: reason.into(),
    }
}

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";

impl Options {
    /// Reads the variables; `None` if they disable export or name no collector.
    pub fn read(
        service: &str,
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Options>, Invalid> {
        let get = |name: &'static str| lookup(name).filter(|value| !value.trim().is_empty());
        let is = |name, wanted: &str| get(name).is_some_and(|v| v.eq_ignore_ascii_case(wanted));
        if is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none") {
            return Ok(None);
        }
        let (name, text) = match (get(TRACES_ENDPOINT), get(ENDPOINT)) {
            (Some(whole), _) => (TRACES_ENDPOINT, whole),
            (None, Some(base)) => {
                let base = base.trim().trim_end_matches('/');
                (ENDPOINT, format!("{base}/v1/traces"))
            }
            (None, None) => return Ok(None),
        };
        let mut resource = vec![("service.version".into(), env!("CARGO_PKG_VERSION").into())];
        resource.extend(pairs(&get, "OTEL_RESOURCE_ATTRIBUTES")?);
        let service = get("OTEL_SERVICE_NAME").unwrap_or_else(|| service.to_owned());
        let named = resource.iter().any(|(key, _)| key == "service.name");
        if !named || get("OTEL_SERVICE_NAME").is_some() {
            resource.retain(|(key, _)| key != "service.name");
            resource.push(("service.name".into(), service));
        }
        let protocol = "OTEL_EXPORTER_OTLP_PROTOCOL";
        if let Some(other) = get(protocol).filter(|p| p != "http/protobuf") {
            let reason = "only http/protobuf is supported (a collector's port 4318)";
            return Err(invalid(protocol, &other, reason));
        }
        let ms = |name, default| -> Result<Duration, Invalid> {
            number(&get, name, default, 1..=600_000).map(Duration::from_millis)
        };
        Ok(Some(Options {
            endpoint: endpoint(name, text.trim())?,
            headers: pairs(&get, "OTEL_EXPORTER_OTLP_HEADERS")?,
            resource,
            sampler: sampler(&get)?,
            queue_max: number(&get, "OTEL_BSP_MAX_QUEUE_SIZE", 8192, 1..=1 << 20)? as usize,
            delay: ms("OTEL_BSP_SCHEDULE_DELAY", 1_000)?,
            timeout: ms("OTEL_EXPORTER_OTLP_TIMEOUT", 10_000)?,
        }))
    }
}

fn endpoint(name: &'static str, text: &str) -> Result<http::Uri, Invalid> {
    let wrong = |reason: &str| invalid(name, text, reason);
    let uri: http::Uri = text
        .parse()
        .map_err(|_| wrong("it must be a URL such as http://collector:4318"))?;
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => {
            return Err(wrong(
                "TLS to collectors is not supported: export to a local collector at an http:// URL, and let it forward",
            ))
        }
        _ => return Err(wrong("it must be a URL such as http://collector:4318")),
    }
    match uri.authority().map(|a| a.as_str()) {
        Some(authority) if !authority.contains('@') => Ok(uri),
        _ => Err(wrong("it must name a host, without user information")),
    }
}

type Get<'a> = &'a dyn Fn(&'static str) -> Option<String>;

fn number(
    get: Get<'_>,
    name: &'static str,
    default: u64,
    range: std::ops::RangeInclusive<u64>,
) -> Result<u64, Invalid> {
    let Some(text) = get(name) else {
        return Ok(default);
    };
    let parsed = text.trim().parse().ok().filter(|n| range.contains(n));
    parsed.ok_or_else(|| {
        let (least, most) = range.into_inner();
        invalid(
            name,
            &text,
            format!("it must be a number from {least} to {most}"),
        )
    })
}

/// `key=value,…`, values percent-encoded.
fn pairs(get: Get<'_>, name: &'static str) -> Result<Vec<(String, String)>, Invalid> {
    let text = get(name).unwrap_or_default();
    let parts = text.split(',').map(str::trim).filter(|p| !p.is_empty());
    let pair = |part: &str| {
        let (key, value) = part.split_once('=')?;
        let key = key.trim();
        (!key.is_empty()).then(|| Some((key.to_owned(), decoded(value.trim())?)))?
    };
    let read = parts.map(|part| {
        pair(part).ok_or_else(|| invalid(name, part, "it must be key=value,… (percent-encoded)"))
    });
    read.collect()
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

fn sampler(get: Get<'_>) -> Result<Sampler, Invalid> {
    let name = "OTEL_TRACES_SAMPLER";
    let text = get(name).unwrap_or_else(|| "parentbased_always_on".into());
    let (parent_based, root) = match text.trim().strip_prefix("parentbased_") {
        Some(root) => (true, root),
        None => (false, text.trim()),
    };
    let ratio = match root {
        "always_on" => 1.0,
        "always_off" => 0.0,
        "traceidratio" => {
            let name = "OTEL_TRACES_SAMPLER_ARG";
            let text = get(name).unwrap_or_else(|| "1".into());
            let parsed: Option<f64> = text.trim().parse().ok();
            parsed
                .filter(|ratio| (0.0..=1.0).contains(ratio))
                .ok_or_else(|| invalid(name, &text, "it must be a number from 0 to 1"))?
        }
        _ => {
            let reason = "it must be always_on, always_off or traceidratio, or parentbased_ and one of these";
            return Err(invalid(name, &text, reason));
        }
    };
    Ok(Sampler {
        parent_based,
        ratio,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Option<Options>, Invalid> {
        Options::read("baltra-test", |name| {
            let found = pairs.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn test_without_an_endpoint_nothing_is_exported() {
        assert_eq!(read(&[]).unwrap(), None);
        assert_eq!(read(&[(ENDPOINT, " ")]).unwrap(), None);
        let on = (ENDPOINT, "http://c:4318");
        assert!(read(&[on]).unwrap().is_some());
        assert_eq!(read(&[on, ("OTEL_SDK_DISABLED", "true")]).unwrap(), None);
        assert_eq!(read(&[on, ("OTEL_TRACES_EXPORTER", "none")]).unwrap(), None);
    }

    #[test]
    fn test_the_path_is_added_to_the_common_endpoint_alone() {
        let options = read(&[(ENDPOINT, "http://c:4318/")]).unwrap().unwrap();
        assert_eq!(options.endpoint, "http://c:4318/v1/traces");
        let whole = (TRACES_ENDPOINT, "http://d/x");
        let options = read(&[(ENDPOINT, "http://c:4318"), whole]).unwrap();
        assert_eq!(options.unwrap().endpoint, "http://d/x");
    }

    #[test]
    fn test_the_exporting_service_is_named() {
        let on = (ENDPOINT, "http://c:4318");
        let name = |options: Options| {
            let mut names = options.resource.into_iter();
            names.find(|(key, _)| key == "service.name").unwrap().1
        };
        assert_eq!(name(read(&[on]).unwrap().unwrap()), "baltra-test");
        let attributes = ("OTEL_RESOURCE_ATTRIBUTES", "service.name=a, x=b%20c");
        let options = read(&[on, attributes]).unwrap().unwrap();
        assert!(options.resource.contains(&("x".into(), "b c".into())));
        assert_eq!(name(options), "a");
        let own = ("OTEL_SERVICE_NAME", "own");
        assert_eq!(name(read(&[on, attributes, own]).unwrap().unwrap()), "own");
    }

    #[test]
    fn test_invalid_variables_are_named() {
        let on = (ENDPOINT, "http://c:4318");
        for (pair, word) in [
            ((TRACES_ENDPOINT, "https://c"), "TLS"),
            ((TRACES_ENDPOINT, "collector"), "http://"),
            ((TRACES_ENDPOINT, "http://u@c"), "user"),
            (("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), "4318"),
            (("OTEL_TRACES_SAMPLER", "jaeger_remote"), "always_on"),
            (("OTEL_BSP_MAX_QUEUE_SIZE", "0"), "1 to"),
            (("OTEL_EXPORTER_OTLP_HEADERS", "a"), "key=value"),
            (("OTEL_EXPORTER_OTLP_HEADERS", "a=%g"), "key=value"),
        ] {
            let error = read(&[on, pair]).unwrap_err();
            assert_eq!(error.name, pair.0);
            assert!(error.to_string().contains(word), "{error}");
        }
        let ratio = ("OTEL_TRACES_SAMPLER", "traceidratio");
        let error = read(&[on, ratio, ("OTEL_TRACES_SAMPLER_ARG", "2")]);
        assert!(error.unwrap_err().to_string().contains("0 to 1"));
    }

    #[test]
    fn test_the_parent_decides_if_the_sampler_is_parent_based() {
        let on = (ENDPOINT, "http://c:4318");
        let sampler = |text| {
            let options = read(&[on, ("OTEL_TRACES_SAMPLER", text)]);
            options.unwrap().unwrap().sampler
        };
        let trace = [0x80; 16];
        for (text, root, unsampled, sampled) in [
            ("parentbased_always_on", true, false, true),
            ("parentbased_always_off", false, false, true),
            ("always_on", true, true, true),
            ("always_off", false, false, false),
        ] {
            let sampler = sampler(text);
            assert_eq!(sampler.takes(&trace, None), root, "{text}");
            assert_eq!(sampler.takes(&trace, Some(false)), unsampled, "{text}");
            assert_eq!(sampler.takes(&trace, Some(true)), sampled, "{text}");
        }
        let half = Sampler {
            parent_based: false,
            ratio: 0.5,
        };
        assert!(half.takes(&[0x00; 16], None));
        assert!(!half.takes(&[0xff; 16], None));
    }
}
