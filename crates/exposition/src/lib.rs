//! The two formats of a `/metrics` page: Prometheus' text format 0.0.4, and OpenMetrics 1.0.
//!
//! A scraper whose `Accept` header gives OpenMetrics at least the weight of text receives
//! OpenMetrics; all others receive text, which every scraper can read.
#![forbid(unsafe_code)]

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::MetricType;
use std::collections::HashMap;
use std::fmt::{Error, Write};

/// A format of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// The format that a request's `Accept` header prefers.
    pub fn of(accept: Option<&str>) -> Format {
        let (mut text, mut open) = (0u32, 0u32);
        for range in accept.unwrap_or_default().split(',').take(64) {
            let mut parts = range.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default().to_ascii_lowercase();
            let parameter = |wanted: &str| {
                let mut all = range.split(';').skip(1).map(str::trim);
                all.find_map(|part| {
                    let (name, value) = part.split_once('=')?;
                    name.trim()
                        .eq_ignore_ascii_case(wanted)
                        .then(|| value.trim())
                })
            };
            let weight = parameter("q").map_or(1.0, |q| q.parse::<f32>().unwrap_or(0.0));
            let weight = (weight.clamp(0.0, 1.0) * 1000.0) as u32;
            let version = parameter("version");
            match name.as_str() {
                "application/openmetrics-text" if version.is_none_or(|v| v.starts_with("1.")) => {
                    open = open.max(weight);
                }
                "text/plain" if version.is_none_or(|v| v == "0.0.4") => text = text.max(weight),
                _ => {}
            }
        }
        if open > 0 && open >= text {
            Format::OpenMetrics
        } else {
            Format::Text
        }
    }

    /// Its `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Content type and page, converted from a page in OpenMetrics.
pub fn page(accept: Option<&str>, open_metrics: String) -> (&'static str, String) {
    let format = Format::of(accept);
    let page = match format {
        Format::OpenMetrics => open_metrics,
        Format::Text => to_text(&open_metrics),
    };
    (format.content_type(), page)
}

/// Content type and page, converted from a page in the text format without exemplars.
pub fn page_of_text(accept: Option<&str>, text: String) -> (&'static str, String) {
    let format = Format::of(accept);
    let page = match format {
        Format::OpenMetrics => to_open_metrics(&text),
        Format::Text => text,
    };
    (format.content_type(), page)
}

/// The type of each family, by its name.
fn types(page: &str) -> HashMap<&str, &str> {
    let lines = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    lines.filter_map(|line| line.split_once(' ')).collect()
}

/// Converts a page in OpenMetrics to text 0.0.4: counters get the names of their samples, and
/// elements that the older format lacks are removed.
fn to_text(page: &str) -> String {
    let types = types(page);
    let mut out = String::with_capacity(page.len());
    for line in page.lines() {
        let Some(about) = line.strip_prefix("# ") else {
            let _ = writeln!(out, "{}", without_exemplar(line));
            continue;
        };
        let (word, rest) = about.split_once(' ').unwrap_or((about, ""));
        let (family, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let suffix = match types.get(family) {
            Some(&"counter") => "_total",
            Some(&"info") => "_info",
            _ => "",
        };
        match word {
            "HELP" => {
                let help = rest.replace("\\\"", "\"");
                let _ = writeln!(out, "# HELP {family}{suffix} {help}");
            }
            "TYPE" => {
                let kind = match rest {
                    "counter" | "gauge" | "histogram" | "summary" => rest,
                    "info" | "stateset" => "gauge",
                    _ => "untyped",
                };
                let _ = writeln!(out, "# TYPE {family}{suffix} {kind}");
            }
            // UNIT and EOF.
            _ => {}
        }
    }
    out
}

/// A sample without the exemplar after it. Quoted label values may look like an exemplar.
fn without_exemplar(line: &str) -> &str {
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in line.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'#' if !quoted => return line[..at].trim_end(),
            _ => {}
        }
    }
    line
}

/// Converts a page of text 0.0.4 to OpenMetrics: counters' families are named without `_total`.
fn to_open_metrics(page: &str) -> String {
    let types = types(page);
    let mut out = String::with_capacity(page.len() + 8);
    for line in page.lines() {
        let family = line
            .strip_prefix("# ")
            .and_then(|about| about.split(' ').nth(1));
        let counter = family.filter(|family| types.get(family) == Some(&"counter"));
        match counter.and_then(|family| Some((family, family.strip_suffix("_total")?))) {
            Some((family, bare)) => {
                let _ = writeln!(out, "{}", line.replacen(family, bare, 1));
            }
            None => {
                let _ = writeln!(out, "{line}");
            }
        }
    }
    out.push_str("# EOF\n");
    out
}

/// Encodes the counters of a program's export of spans.
pub fn encode_spans(
    encoder: &mut DescriptorEncoder<'_>,
    exported: u64,
    dropped: u64,
) -> Result<(), Error> {
    for (name, help, value) in [
        (
            "spans_exported",
            "Spans accepted by the collector",
            exported,
        ),
        ("spans_dropped", "Spans dropped before export", dropped),
    ] {
        let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(value).encode(metric)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMETHEUS: &str =
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
        application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,\
        text/plain;version=0.0.4;q=0.3,*/*;q=0.2";

    #[test]
    fn a_scraper_gets_what_it_prefers() {
        for (accept, format) in [
            (None, Format::Text),
            (Some(""), Format::Text),
            (Some("*/*"), Format::Text),
            (Some("text/plain"), Format::Text),
            (Some("text/plain;version=0.0.4"), Format::Text),
            (Some("application/openmetrics-text"), Format::OpenMetrics),
            (
                Some("application/openmetrics-text; version=0.0.1"),
                Format::Text,
            ),
            (Some("application/openmetrics-text;q=0"), Format::Text),
            (
                Some("text/plain;q=0.9, application/openmetrics-text;q=0.5"),
                Format::Text,
            ),
            (Some(PROMETHEUS), Format::OpenMetrics),
            (Some("application/json"), Format::Text),
        ] {
            assert_eq!(Format::of(accept), format, "{accept:?}");
        }
    }

    const OPEN: &str = "# HELP a_seconds Time \\\"spent\\\".\n# TYPE a_seconds counter\n\
        # UNIT a_seconds seconds\na_seconds_total{x=\"# {\"} 1.5 # {trace=\"t\"} 1 2\n\
        # HELP b Now.\n# TYPE b gauge\nb{y=\"\\\"#\"} 2\n\
        # TYPE c info\nc_info{v=\"1\"} 1\n# TYPE d unknown\nd 1\n\
        # TYPE e histogram\ne_bucket{le=\"+Inf\"} 3\ne_sum 1\ne_count 3\n# EOF\n";

    #[test]
    fn the_older_format_names_counters_as_their_samples() {
        let (kind, text) = page(None, OPEN.to_owned());
        assert!(kind.starts_with("text/plain; version=0.0.4"));
        assert_eq!(
            text,
            "# HELP a_seconds_total Time \"spent\".\n# TYPE a_seconds_total counter\n\
             a_seconds_total{x=\"# {\"} 1.5\n\
             # HELP b Now.\n# TYPE b gauge\nb{y=\"\\\"#\"} 2\n\
             # TYPE c_info gauge\nc_info{v=\"1\"} 1\n# TYPE d untyped\nd 1\n\
             # TYPE e histogram\ne_bucket{le=\"+Inf\"} 3\ne_sum 1\ne_count 3\n"
        );
        assert_eq!(page(Some(PROMETHEUS), OPEN.to_owned()).1, OPEN);
    }

    #[test]
    fn text_becomes_open_metrics() {
        let text = "# HELP a_total A.\n# TYPE a_total counter\na_total 1\n# TYPE b gauge\nb 2\n";
        let (kind, open) = page_of_text(Some(PROMETHEUS), text.to_owned());
        assert!(kind.starts_with("application/openmetrics-text"));
        assert_eq!(
            open,
            "# HELP a A.\n# TYPE a counter\na_total 1\n# TYPE b gauge\nb 2\n# EOF\n"
        );
        assert_eq!(page_of_text(None, text.to_owned()).1, text);
    }
}
