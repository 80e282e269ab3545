//! Nodes that do not answer: a listener that accepts connections and stays silent stands for a node
//! whose link is down.

use baltra_engine::placement::{Candidate, CandidatesFuture, DeviceRequest, Placement};
use baltra_engine::{CallError, Engine, Options, Trace};
use baltra_functions::{Body, Call, Files, Function, Request};
use baltra_wire::DeviceDescription;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const MANIFEST: &str = "name: copy
inputs: [{name: from, type: u8, shape: [n], codecs: [raw]}]
outputs: [{name: to, type: u8, shape: [n], codecs: [raw]}]
args: [from, to]
implementations:
  - opencl: {source: copy.cl, kernel: copy, global: [n]}
";
/// Calls after which a test gives up. Each one takes its whole deadline.
const CALLS_MAX: usize = 60;
const DEADLINE: Duration = Duration::from_millis(250);

fn function() -> Arc<Function> {
    let source = Bytes::from_static(b"kernel void copy(global uchar *from, global uchar *to) {}");
    let files = Files::from_contents(BTreeMap::from([("copy.cl".to_owned(), source)]));
    Arc::new(Function::from_files(MANIFEST, files).unwrap())
}

fn call(function: &Function) -> Call {
    let request = Request {
        method: &http::Method::POST,
        path: "",
        query: "",
        headers: &http::HeaderMap::new(),
    };
    function.bind(&request, Body::from(vec![1])).unwrap()
}

/// A manager's address where connections are accepted (by the system) and nothing answers.
fn silent() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    listener
}

fn candidate(node: &str, listener: &TcpListener) -> Candidate {
    let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
    Candidate {
        node: node.into(),
        endpoint: endpoint.parse().unwrap(),
        token: String::new(),
        device: Arc::new(DeviceDescription {
            name: "d0".into(),
            ..DeviceDescription::default()
        }),
        loaded: Vec::new(),
        chosen: true,
        instance: None,
    }
}

/// As a registry's: the first device that is not among the failed ones; the first if all are.
struct Pool {
    devices: Vec<Candidate>,
    excepted: Arc<Mutex<Vec<String>>>,
}

impl Placement for Pool {
    fn places<'a>(&'a self, request: &'a DeviceRequest) -> CandidatesFuture<'a> {
        Box::pin(async {
            let mut excepted = self.excepted.lock().unwrap();
            excepted.extend(request.except.iter().cloned());
            let mut well = self
                .devices
                .iter()
                .filter(|d| !request.except.contains(&d.name()));
            Ok(vec![well.next().unwrap_or(&self.devices[0]).clone()])
        })
    }

    fn all<'a>(&'a self, _: &'a str) -> CandidatesFuture<'a> {
        Box::pin(async { Ok(self.devices.clone()) })
    }
}

fn engine(devices: Vec<Candidate>) -> (Engine, Arc<Mutex<Vec<String>>>) {
    let excepted = Arc::default();
    let pool = Pool {
        devices,
        excepted: Arc::clone(&excepted),
    };
    let engine = Engine::with_placement(Options::default(), Box::new(pool)).unwrap();
    (engine, excepted)
}

fn connections(listener: &TcpListener) -> Vec<std::net::TcpStream> {
    std::iter::from_fn(|| listener.accept().ok())
        .map(|(stream, _)| stream)
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_leave_a_node_that_never_answers() {
    let (hole, other) = (silent(), silent());
    let (engine, excepted) = engine(vec![candidate("hole", &hole), candidate("other", &other)]);
    let function = function();
    engine.deploy(&function, 0).await;
    let mut held = Vec::new();
    for number in 0.. {
        assert!(
            number < CALLS_MAX,
            "{number} calls went to a node that never answers"
        );
        let deadline = Instant::now() + DEADLINE;
        let ended = engine
            .call(&function, call(&function), deadline, &Trace::default())
            .await;
        assert!(
            matches!(
                ended,
                Err(CallError::Deadline) | Err(CallError::Unavailable(_))
            ),
            "{ended:?}"
        );
        held.extend(connections(&hole));
        if !connections(&other).is_empty() {
            break;
        }
    }
    assert!(excepted.lock().unwrap().contains(&"hole/d0".to_owned()));
    assert_eq!(held.len(), 1, "one attempt is shared by all calls");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_share_a_failed_attempt_count_as_one_failure() {
    let closing = silent();
    let (engine, excepted) = engine(vec![candidate("closing", &closing)]);
    let function = function();
    engine.deploy(&function, 0).await;
    let calls: Vec<_> = (0..8)
        .map(|_| {
            let (engine, function) = (engine.clone(), function.clone());
            tokio::spawn(async move {
                let deadline = Instant::now() + Duration::from_secs(600);
                engine
                    .call(&function, call(&function), deadline, &Trace::default())
                    .await
            })
        })
        .collect();
    while engine.status(&function).unwrap().stats.waiting < calls.len() as u64 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let closes = tokio::spawn(async move {
        loop {
            drop(connections(&closing));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    for call in calls {
        let ended = call.await.unwrap();
        assert!(matches!(ended, Err(CallError::Unavailable(_))), "{ended:?}");
    }
    closes.abort();
    assert_eq!(
        *excepted.lock().unwrap(),
        [""; 0],
        "one failure does not open a breaker"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_that_never_answers_is_queried_once_at_a_time() {
    let hole = silent();
    let options = Options {
        endpoints: vec![format!("tcp://{}", hole.local_addr().unwrap())],
        ..Options::default()
    };
    let engine = Engine::new(options).unwrap();
    // Callers that leave do not make the next ones start again.
    for _ in 0..8 {
        let places = tokio::time::timeout(DEADLINE, engine.places("")).await;
        assert!(places.is_err(), "{places:?}");
    }
    assert_eq!(connections(&hole).len(), 1);
}
