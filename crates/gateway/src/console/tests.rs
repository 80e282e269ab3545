use super::assets;
use super::history::{DeviceNow, History, Span, BYTES_MAX, POINTS, SERIES_MAX};
use super::hub::{Hub, STREAMS_MAX};
use super::model::*;
use super::view::{self, ROWS_MAX};
use super::{router, POLICY};
use axum::body::{to_bytes, Body};
use axum::http::{Request, Response, StatusCode};
use axum::Router;
use http_body_util::BodyExt;
use serde_json::Value;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tower_service::Service;

/// A source with a state that tests set.
#[derive(Default)]
struct FixedSource(Mutex<State>);

impl Source for FixedSource {
    fn state(&self) -> State {
        self.0.lock().unwrap().clone()
    }
}

use super::Source;

fn function(name: &str, calls: u64, counts: [u64; 4]) -> Function {
    Function {
        name: name.into(),
        calls,
        latency: Histogram {
            bounds_ns: vec![1_000, 10_000, 100_000],
            counts: counts.to_vec(),
        },
        ..Function::default()
    }
}

fn device(busy_ns: u64, at_ns: u64) -> Device {
    Device {
        node: "n".into(),
        name: "d".into(),
        slots: 2,
        busy_ns,
        at_ns,
        ..Device::default()
    }
}

/// Adds states one second apart.
struct Fed {
    history: History,
    at: Instant,
}

impl Fed {
    fn new() -> Fed {
        Fed {
            history: History::default(),
            at: Instant::now(),
        }
    }

    fn feed(&mut self, state: &State) -> super::history::Now {
        self.at += Duration::from_secs(1);
        self.history.feed(state, self.at)
    }

    fn devices(&mut self, devices: &[Device]) -> Vec<DeviceNow> {
        let state = State {
            devices: devices.to_vec(),
            ..State::default()
        };
        self.feed(&state).devices
    }

    fn functions(&mut self, functions: &[Function]) -> Vec<super::history::FunctionNow> {
        let state = State {
            functions: functions.to_vec(),
            ..State::default()
        };
        self.feed(&state).functions
    }
}

#[test]
fn utilization_is_device_time_over_time_and_slots() {
    let mut fed = Fed::new();
    let mut used = |busy_ns, at_ns| fed.devices(&[device(busy_ns, at_ns)])[0].utilization;
    let second = 1_000_000_000;
    assert!(used(5, second).is_nan());
    // Half of the time of two slots.
    assert_eq!(used(5 + second, 2 * second), 0.5);
    // No newer report: the last value still applies.
    assert_eq!(used(5 + second, 2 * second), 0.5);
    // After two seconds at full use; the value is capped at 1.
    assert_eq!(used(9 * second, 4 * second), 1.0);
    // The manager has restarted: its counter begins at zero.
    assert_eq!(used(second, 5 * second), 0.5);
    // Another clock: the utilization is unknown.
    assert!(used(second, second).is_nan());
}

#[test]
fn tasks_a_second_are_of_the_last_ten_seconds() {
    let mut fed = Fed::new();
    let mut rate = |tasks| {
        let device = Device {
            tasks,
            ..device(0, 0)
        };
        fed.devices(&[device])[0].tasks
    };
    assert!(rate(1_000).is_nan());
    // A report every other second: 20 tasks in each.
    let rates: Vec<f64> = (1..=10).map(|i| rate(1_000 + i / 2 * 20)).collect();
    assert_eq!(rates.last(), Some(&10.0));
    // The manager has restarted; then nothing runs.
    assert_eq!(rate(40), 14.0);
    for _ in 0..9 {
        rate(40);
    }
    assert_eq!(rate(40), 0.0);
}

#[test]
fn an_hour_and_a_day_are_kept_in_few_points() {
    let mut fed = Fed::new();
    let day = 86_400;
    let device = |n: u64| Device {
        utilization: Some(if n % 6 == 5 { f64::NAN } else { 0.25 }),
        queued: u64::from(n == day - 100),
        ..device(0, 0)
    };
    for n in 0..day + 3 {
        fed.devices(&[device(n)]);
    }
    let history = &fed.history;
    let series = &history.devices[&("n".to_owned(), "d".to_owned())];
    for span in Span::ALL {
        let total: Vec<f32> = history.total.queued.points(span).collect();
        let busy: Vec<f32> = series.utilization.points(span).collect();
        assert_eq!((total.len(), busy.len()), (POINTS, POINTS), "{span:?}");
        // Gaps are not part of a mean; a short queue is visible in every span.
        assert_eq!(busy[300], 0.25, "{span:?}");
        assert_eq!(total.iter().sum::<f32>(), 1.0, "{span:?}");
        let last = total.iter().rposition(|waiting| *waiting == 1.0).unwrap() as u64;
        let ago = (POINTS as u64 - last) * span.step();
        assert!(
            (97..=105 + 2 * span.step()).contains(&ago),
            "{span:?}: {ago}"
        );
    }
    // Ten minutes, an hour, a day.
    let lengths = Span::ALL.map(|span| span.step() * POINTS as u64);
    assert_eq!(lengths, [600, 3_600, day]);
    let rings = SERIES_MAX * (2 + 5) + 7;
    assert_eq!(series.utilization.bytes() * rings, BYTES_MAX);
}

#[test]
fn rates_and_percentiles_are_of_what_was_added() {
    let mut fed = Fed::new();
    assert!(fed.functions(&[function("f", 1000, [1000, 0, 0, 0])])[0]
        .rate
        .is_nan());
    let now = &fed.functions(&[function("f", 1100, [1000, 100, 0, 0])])[0];
    assert_eq!(now.rate, 100.0);
    // All calls took between 1 and 10 µs: the median is interpolated half-way.
    assert_eq!(now.p50_ns, 5_500.0);
    assert_eq!(now.tick_p99_ns, 9_910.0);
    // No calls in this second; the last ten seconds have some.
    let now = &fed.functions(&[function("f", 1100, [1000, 100, 0, 0])])[0];
    assert_eq!((now.rate, now.p50_ns), (0.0, 5_500.0));
    assert!(now.tick_p50_ns.is_nan());
    // Durations above all bounds count as the last bound.
    let now = &fed.functions(&[function("f", 1101, [1000, 100, 0, 1])])[0];
    assert_eq!(now.tick_p99_ns, 100_000.0);
    // The gateway's counters have restarted.
    let now = &fed.functions(&[function("f", 7, [7, 0, 0, 0])])[0];
    assert_eq!(now.rate, 7.0);
}

#[test]
fn totals_are_of_all_functions() {
    let mut fed = Fed::new();
    fed.functions(&[function("a", 0, [0; 4]), function("b", 0, [0; 4])]);
    fed.functions(&[
        function("a", 99, [99, 0, 0, 0]),
        function("b", 1, [0, 0, 1, 0]),
    ]);
    let total = &fed.history.total;
    let last = |ring: &super::history::Ring| ring.points(Span::Recent).last().unwrap();
    assert_eq!(last(&total.rate), 100.0);
    assert!(last(&total.p50_ns) < 1_000.0);
    assert_eq!(last(&total.p99_ns), 1_000.0);
}

#[test]
fn history_is_bounded_and_aligned() {
    let count = |ring: &super::history::Ring| ring.points(Span::Recent).count();
    let mut fed = Fed::new();
    let (one, other) = (function("one", 1, [0; 4]), function("other", 1, [0; 4]));
    fed.functions(&[one.clone(), other.clone()]);
    for _ in 0..10 {
        fed.functions(std::slice::from_ref(&one));
    }
    fed.functions(&[one.clone(), other.clone()]);
    // A function that was missing has gaps, so that the last points of all series align.
    assert_eq!(count(&fed.history.functions["other"].rate), 12);
    for _ in 0..2 * POINTS {
        fed.functions(std::slice::from_ref(&one));
    }
    assert_eq!(count(&fed.history.functions["one"].rate), POINTS);
    assert_eq!(count(&fed.history.total.rate), POINTS);
    assert!(!fed.history.functions.contains_key("other"));

    let many: Vec<Function> = (0..2 * SERIES_MAX)
        .map(|i| function(&format!("f{i}"), 1, [0; 4]))
        .collect();
    assert_eq!(fed.functions(&many).len(), many.len());
    assert_eq!(fed.history.functions.len(), SERIES_MAX);
}

#[test]
fn lists_are_cut() {
    let mut state = State {
        nodes: vec![Node::default(); ROWS_MAX + 3],
        tenants: vec![Tenant::default(); ROWS_MAX],
        ..State::default()
    };
    assert_eq!(view::bound(&mut state), 3);
    assert_eq!(state.nodes.len(), ROWS_MAX);
}

#[test]
fn what_is_loaded_beside_other_programs_is_shown() {
    let place = |device: &str, loaded| Placement {
        node: "n".into(),
        device: device.into(),
        loaded,
    };
    let of = |name: &str, exclusive| Device {
        node: "n".into(),
        name: name.into(),
        exclusive,
        regions: vec![Region::default()],
        ..Device::default()
    };
    let mut state = State {
        devices: vec![of("gpu", false), of("board", true), of("idle", false)],
        functions: vec![Function {
            placements: vec![
                place("gpu", true),
                place("board", true),
                place("idle", false),
            ],
            ..function("f", 0, [0; 4])
        }],
        ..State::default()
    };
    state.show_loaded();
    state.show_loaded();
    let loaded: Vec<usize> = state
        .devices
        .iter()
        .map(|d| d.regions[0].loaded.len())
        .collect();
    assert_eq!(loaded, [1, 0, 0]);
}

fn fixed_source() -> (Arc<FixedSource>, Router) {
    let source = Arc::new(FixedSource::default());
    source.0.lock().unwrap().functions = vec![function("<b>/name", 3, [0, 3, 0, 0])];
    let router = router(source.clone());
    (source, router)
}

async fn get(router: &Router, path: &str, headers: &[(&str, &str)]) -> Response<Body> {
    let mut request = Request::builder().uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::empty()).unwrap();
    router.clone().call(request).await.unwrap()
}

async fn json(router: &Router, path: &str) -> Value {
    let response = get(router, path, &[]).await;
    assert_eq!(response.status(), StatusCode::OK, "{path}");
    let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    serde_json::from_slice(&body).unwrap()
}

#[tokio::test]
async fn files_have_tags_types_and_the_policy() {
    let (_, router) = fixed_source();
    for asset in assets::all() {
        let path = format!("/ui/{}", asset.path);
        let response = get(&router, &path, &[]).await;
        assert_eq!(response.status(), 200, "{path}");
        let headers = response.headers().clone();
        assert_eq!(headers["content-security-policy"], POLICY);
        assert_eq!(headers["x-content-type-options"], "nosniff");
        assert_eq!(headers["content-type"], asset.kind);
        let tag = headers["etag"].to_str().unwrap();
        for known in [
            tag.to_owned(),
            format!("W/{tag}"),
            format!("\"x\", {tag}"),
            "*".into(),
        ] {
            let again = get(&router, &path, &[("if-none-match", &known)]).await;
            assert_eq!(again.status(), 304, "{known}");
            assert_eq!(again.headers()["etag"], tag);
        }
        let changed = get(&router, &path, &[("if-none-match", "\"x\"")]).await;
        assert_eq!(changed.status(), 200);
    }
    let page = get(&router, "/ui/", &[]).await;
    assert_eq!(page.headers()["content-type"], "text/html; charset=utf-8");
    let bare = get(&router, "/ui", &[]).await;
    assert_eq!(
        (bare.status(), &bare.headers()["location"]),
        (StatusCode::PERMANENT_REDIRECT, &"/ui/".parse().unwrap())
    );
    for wrong in [
        "/ui/no.js",
        "/ui/../Cargo.toml",
        "/ui/%2e%2e/x",
        "/ui//",
        "/ui/api/none",
    ] {
        let response = get(&router, wrong, &[]).await;
        assert_eq!(response.status(), 404, "{wrong}");
        assert_eq!(response.headers()["content-security-policy"], POLICY);
    }
}

/// Everything that the page loads is in the binary: every module that a file imports, and every
/// file of the directory.
#[test]
fn every_file_is_there() {
    let web = concat!(env!("CARGO_MANIFEST_DIR"), "/../../web");
    let known: Vec<&str> = assets::all().iter().map(|a| a.path).collect();
    for folder in ["", "views/"] {
        for entry in std::fs::read_dir(format!("{web}/{folder}")).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{folder}{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_file() {
                assert!(
                    known.contains(&path.as_str()),
                    "{path} is not in the binary"
                );
            }
        }
    }
    for asset in assets::all() {
        for outside in [
            "//cdn",
            "https://",
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
        ] {
            assert!(
                !asset.text.contains(outside),
                "{} has {outside}",
                asset.path
            );
        }
    }
}

#[tokio::test]
async fn state_and_functions_are_json() {
    let (_, router) = fixed_source();
    let state = json(&router, "/ui/api/state").await;
    assert_eq!(state["tick"], 1);
    assert_eq!(state["functions"][0]["name"], "<b>/name");
    assert_eq!(state["functions"][0]["rate"], Value::Null);
    let details = json(&router, "/ui/api/function/%3Cb%3E%2Fname").await;
    assert_eq!(details["latency_all"], serde_json::json!([[10, 3]]));
    assert_eq!(details["latency_recent"], serde_json::json!([]));
    assert_eq!(
        get(&router, "/ui/api/function/other", &[]).await.status(),
        404
    );
}

/// The next event's name and data.
async fn event(body: &mut Body, rest: &mut String) -> (String, Value) {
    loop {
        if let Some((event, more)) = rest.split_once("\n\n") {
            let (name, data) = event.split_once('\n').unwrap();
            let name = name.strip_prefix("event: ").unwrap().to_owned();
            let data = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            *rest = more.to_owned();
            return (name, data);
        }
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        rest.push_str(std::str::from_utf8(&frame).unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_begins_with_the_past_and_goes_on() {
    let (source, router) = fixed_source();
    tokio::time::sleep(Duration::from_millis(3_500)).await;
    let response = get(&router, "/ui/api/stream", &[]).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let (mut body, mut rest) = (response.into_body(), String::new());
    let (name, history) = event(&mut body, &mut rest).await;
    assert_eq!(name, "history");
    assert_eq!(history["tick"], 4);
    assert_eq!(history["total"]["queued"].as_array().unwrap().len(), 4);
    assert_eq!(history["functions"][0]["name"], "<b>/name");
    let (name, state) = event(&mut body, &mut rest).await;
    assert_eq!((name.as_str(), &state["tick"]), ("state", &4.into()));
    source.0.lock().unwrap().functions[0].calls += 50;
    let (_, state) = event(&mut body, &mut rest).await;
    assert_eq!(state["tick"], 5);
    // A longer span has a point for six seconds, the first of which is not complete.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let hour = get(&router, "/ui/api/history?span=hour", &[]).await;
    let hour = to_bytes(hour.into_body(), 1 << 20).await.unwrap();
    let hour: Value = serde_json::from_slice(&hour).unwrap();
    assert_eq!((&hour["tick"], &hour["step"]), (&1.into(), &6.into()));
    assert_eq!(hour["total"]["queued"].as_array().unwrap().len(), 1);
    let wrong = get(&router, "/ui/api/history?span=year", &[]).await;
    assert_eq!(wrong.status(), 400);
    assert_eq!(state["functions"][0]["calls"], 53);
    assert!(state["functions"][0]["rate"].as_f64().unwrap() > 0.0);
}

#[tokio::test(start_paused = true)]
async fn streams_are_bounded_and_given_back() {
    let hub = Hub::start(Arc::new(FixedSource::default()));
    let streams: Vec<_> = (0..STREAMS_MAX).map(|_| hub.stream().unwrap()).collect();
    assert!(hub.stream().is_none());
    drop(streams);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let kept: Vec<_> = (0..STREAMS_MAX).map(|_| hub.stream().unwrap()).collect();
    // These streams are open and their readers take nothing: they are closed after the timeout.
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(hub.stream().is_some());
    drop(kept);
}

#[tokio::test]
async fn one_stream_too_many_is_refused_with_the_reason() {
    let (_, router) = fixed_source();
    let mut open = Vec::new();
    for _ in 0..STREAMS_MAX {
        open.push(get(&router, "/ui/api/stream", &[]).await);
    }
    let response = get(&router, "/ui/api/stream", &[]).await;
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["retry-after"], "5");
}
