//! The part of OpenTelemetry's environment variables that the daemons support.

use http::{HeaderName, HeaderValue};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The configuration, if the variables name a collector.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Options {
    /// The collector's URL.
    pub endpoint: http::Uri,
    /// The protocol of the export requests.
    pub protocol: Protocol,
    /// Files for TLS, if the URL's scheme is `https`.
    pub tls: TlsFiles,
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

/// The protocol of export requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Protobuf in HTTP/1.
    Http,
    /// gRPC, which is protobuf in HTTP/2.
    Grpc,
}

/// Files for TLS, in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// Certificates of authorities; `None`: those of Mozilla.
    pub authorities: Option<PathBuf>,
    /// The client's certificate chain and its key.
    pub client: Option<(PathBuf, PathBuf)>,
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

pub(crate) fn invalid(name: &'static str, value: &str, reason: impl Into<String>) -> Invalid {
    Invalid {
        name,
        value: value.chars().take(64).collect(),
        reason: reason.into(),
    }
}

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
/// Variables of traces take precedence over those of all signals.
const PROTOCOL: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
];
pub(crate) const CERTIFICATE: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_CERTIFICATE",
];
pub(crate) const CLIENT_CERTIFICATE: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE",
    "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
];
const CLIENT_KEY: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY",
    "OTEL_EXPORTER_OTLP_CLIENT_KEY",
];
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
/// Not a variable of OpenTelemetry: secrets in files are not visible in the environment.
const HEADERS_FILE: &str = "BALTRA_OTLP_HEADERS_FILE";
/// Longest file of headers, bytes.
const HEADERS_BYTES_MAX: u64 = 64 << 10;

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
            (None, Some(base)) => (ENDPOINT, base),
            (None, None) => return Ok(None),
        };
        let protocol = protocol(&get)?;
        let mut text = text.trim().to_owned();
        if protocol == Protocol::Http && name == ENDPOINT {
            text = format!("{}/v1/traces", text.trim_end_matches('/'));
        }
        let endpoint = endpoint(name, &text)?;
        let tls = tls_files(&get, &endpoint)?;
        let mut headers = pairs(&get, HEADERS)?;
        headers.extend(headers_of_file(&get)?);
        check_headers(&headers)?;
        let mut resource = vec![("service.version".into(), env!("CARGO_PKG_VERSION").into())];
        resource.extend(pairs(&get, "OTEL_RESOURCE_ATTRIBUTES")?);
        let service = get("OTEL_SERVICE_NAME").unwrap_or_else(|| service.to_owned());
        let named = resource.iter().any(|(key, _)| key == "service.name");
        if !named || get("OTEL_SERVICE_NAME").is_some() {
            resource.retain(|(key, _)| key != "service.name");
            resource.push(("service.name".into(), service));
        }
        let ms = |name, default| -> Result<Duration, Invalid> {
            number(&get, name, default, 1..=600_000).map(Duration::from_millis)
        };
        Ok(Some(Options {
            endpoint,
            protocol,
            tls,
            headers,
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
        Some("http" | "https") => {}
        _ => return Err(wrong("it must be a URL such as http://collector:4318")),
    }
    match uri.authority().map(|a| a.as_str()) {
        Some(authority) if !authority.contains('@') => Ok(uri),
        _ => Err(wrong("it must name a host, without user information")),
    }
}

fn protocol(get: Get<'_>) -> Result<Protocol, Invalid> {
    let Some((name, text)) = first(get, PROTOCOL) else {
        return Ok(Protocol::Http);
    };
    match text.trim() {
        "http/protobuf" => Ok(Protocol::Http),
        "grpc" => Ok(Protocol::Grpc),
        other => {
            let reason = "it must be http/protobuf (a collector's port 4318) or grpc (port 4317)";
            Err(invalid(name, other, reason))
        }
    }
}

/// The first of two variables that has a value.
fn first(get: Get<'_>, names: [&'static str; 2]) -> Option<(&'static str, String)> {
    let mut set = names.into_iter();
    set.find_map(|name| Some((name, get(name)?)))
}

fn tls_files(get: Get<'_>, endpoint: &http::Uri) -> Result<TlsFiles, Invalid> {
    let path = |names| first(get, names).map(|(_, path)| PathBuf::from(path));
    let files = TlsFiles {
        authorities: path(CERTIFICATE),
        client: match (path(CLIENT_CERTIFICATE), path(CLIENT_KEY)) {
            (Some(chain), Some(key)) => Some((chain, key)),
            (None, None) => None,
            (chain, key) => {
                let (name, path) = match chain {
                    Some(chain) => (CLIENT_CERTIFICATE[1], chain),
                    None => (CLIENT_KEY[1], key.unwrap_or_default()),
                };
                let reason = "a client's certificate and its key must be set together";
                return Err(invalid(name, &path.to_string_lossy(), reason));
            }
        },
    };
    if files != TlsFiles::default() && endpoint.scheme_str() != Some("https") {
        let text = endpoint.to_string();
        let reason = "certificates are set, so it must be an https:// URL";
        return Err(invalid(ENDPOINT, &text, reason));
    }
    Ok(files)
}

/// The headers of a file with `key=value` in each line.
fn headers_of_file(get: Get<'_>) -> Result<Vec<(String, String)>, Invalid> {
    let Some(path) = get(HEADERS_FILE) else {
        return Ok(Vec::new());
    };
    let wrong = |reason: String| invalid(HEADERS_FILE, &path, reason);
    let text = read_text(Path::new(&path)).map_err(|e| wrong(format!("cannot read it: {e}")))?;
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.trim().is_empty());
    // The line itself may be a secret.
    let read = lines.map(|(at, line)| {
        let reason = || format!("line {} must be key=value (percent-encoded)", at + 1);
        pair(line).ok_or_else(|| wrong(reason()))
    });
    read.collect()
}

fn read_text(path: &Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    let file = std::fs::File::open(path)?;
    file.take(HEADERS_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > HEADERS_BYTES_MAX {
        let limit = format!("it is longer than {HEADERS_BYTES_MAX} bytes");
        return Err(std::io::Error::other(limit));
    }
    Ok(text)
}

/// Checks that requests can have the headers. A value may be a secret, so that it is not shown.
fn check_headers(headers: &[(String, String)]) -> Result<(), Invalid> {
    for (key, value) in headers {
        if HeaderName::try_from(key).is_err() || HeaderValue::try_from(value).is_err() {
            let reason = "it is not a valid header: names are letters, digits and '-', values visible characters";
            return Err(invalid(HEADERS, key, reason));
        }
    }
    Ok(())
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
    let read = parts.map(|part| {
        pair(part).ok_or_else(|| invalid(name, part, "it must be key=value,… (percent-encoded)"))
    });
    read.collect()
}

/// `key=value`, the value percent-encoded.
fn pair(text: &str) -> Option<(String, String)> {
    let (key, value) = text.split_once('=')?;
    let key = key.trim();
    (!key.is_empty()).then(|| Some((key.to_owned(), decoded(value.trim())?)))?
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
    fn without_an_endpoint_nothing_is_exported() {
        assert_eq!(read(&[]).unwrap(), None);
        assert_eq!(read(&[(ENDPOINT, " ")]).unwrap(), None);
        let on = (ENDPOINT, "http://c:4318");
        assert!(read(&[on]).unwrap().is_some());
        assert_eq!(read(&[on, ("OTEL_SDK_DISABLED", "true")]).unwrap(), None);
        assert_eq!(read(&[on, ("OTEL_TRACES_EXPORTER", "none")]).unwrap(), None);
    }

    #[test]
    fn the_path_is_added_to_the_common_endpoint_alone() {
        let options = read(&[(ENDPOINT, "http://c:4318/")]).unwrap().unwrap();
        assert_eq!(options.endpoint, "http://c:4318/v1/traces");
        let whole = (TRACES_ENDPOINT, "http://d/x");
        let options = read(&[(ENDPOINT, "http://c:4318"), whole]).unwrap();
        assert_eq!(options.unwrap().endpoint, "http://d/x");
    }

    #[test]
    fn grpc_has_no_path_and_certificates_need_tls() {
        let grpc = (PROTOCOL[1], "grpc");
        let options = read(&[(ENDPOINT, "https://c:4317"), grpc])
            .unwrap()
            .unwrap();
        assert_eq!(options.endpoint, "https://c:4317/");
        assert_eq!(options.protocol, Protocol::Grpc);
        let http = (PROTOCOL[0], "http/protobuf");
        let options = read(&[(ENDPOINT, "https://c"), grpc, http]).unwrap();
        assert_eq!(options.unwrap().protocol, Protocol::Http);
        let authorities = (CERTIFICATE[1], "/ca.pem");
        let error = read(&[(ENDPOINT, "http://c:4317"), grpc, authorities]).unwrap_err();
        assert!(error.reason.contains("https"), "{error}");
    }

    #[test]
    fn headers_of_a_file_are_added_and_not_shown() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        let on = [
            (ENDPOINT, "http://c"),
            (HEADERS, "a=1"),
            (HEADERS_FILE, path),
        ];
        std::fs::write(file.path(), "authorization=Bearer%20x\n\nb=2\n").unwrap();
        let headers = read(&on).unwrap().unwrap().headers;
        let of = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(
            headers,
            [of("a", "1"), of("authorization", "Bearer x"), of("b", "2")]
        );
        std::fs::write(file.path(), "a=1\nsecret\n").unwrap();
        let error = read(&on).unwrap_err().to_string();
        assert!(
            error.contains("line 2") && !error.contains("secret"),
            "{error}"
        );
        let long = "x".repeat(HEADERS_BYTES_MAX as usize + 1);
        std::fs::write(file.path(), long).unwrap();
        assert!(read(&on).unwrap_err().to_string().contains("longer"));
    }

    #[test]
    fn the_exporting_service_is_named() {
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
    fn invalid_variables_are_named() {
        let on = (ENDPOINT, "http://c:4318");
        for (pair, word) in [
            ((TRACES_ENDPOINT, "collector"), "http://"),
            ((TRACES_ENDPOINT, "http://u@c"), "user"),
            ((PROTOCOL[1], "http/json"), "4318"),
            ((CLIENT_KEY[1], "/key.pem"), "together"),
            ((HEADERS_FILE, "/no/such/file"), "cannot read"),
            ((HEADERS, "a b=c"), "not a valid header"),
            ((HEADERS, "a=b%0ac"), "not a valid header"),
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
    fn the_parent_decides_if_the_sampler_is_parent_based() {
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
