//! Acknowledged changes survive: the registry is killed at any instruction, or the disk is full.
//!
//! The registry runs in a separate process, which is this program with one of the ignored tests.

mod support;

use baltra_api::registry::{
    AllocateRequest, CordonRequest, Function, FunctionGetRequest, FunctionPutRequest,
    FunctionsRequest, InstancesRequest, ReleaseRequest, StatusRequest, UncordonRequest,
};
use baltra_registry::store::Store;
use baltra_registry::Service;
use rustix::process::{getrlimit, prlimit, Pid, Resource, Rlimit};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{gpu, options, places, Clients};
use tonic::Code;

const STATE: &str = "BALTRA_TEST_STATE";
/// Number of kills, each at another time.
const ROUNDS: u32 = 25;

#[test]
#[ignore = "the other tests run it as a process of its own"]
fn serves_until_it_is_killed() {
    let state = std::env::var_os(STATE).expect("only started by the other tests");
    let service = Service::new(options(Path::new(&state))).unwrap();
    println!("address={}", service.address().unwrap());
    service.run().unwrap();
}

/// A registry's process, killed when dropped.
struct Served {
    child: Child,
    clients: Clients,
    /// Kept open; otherwise the process would end with an error.
    _says: std::io::Lines<BufReader<ChildStdout>>,
}

impl Served {
    fn start(state: &Path) -> Served {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "serves_until_it_is_killed",
                "--exact",
                "--ignored",
                "--nocapture",
            ])
            .env(STATE, state)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut says = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = says
            .by_ref()
            .map_while(Result::ok)
            .find_map(|l| l.split_once("address=").map(|(_, a)| a.to_owned()));
        let url = format!("http://{}", address.expect("the registry did not start"));
        Served {
            clients: Clients::new(&url, ""),
            child,
            _says: says,
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The state that one writer expects: acknowledged changes, and the one change without a reply.
#[derive(Clone, Debug, Default)]
struct Acknowledged {
    /// Whether each instance has devices.
    instances: BTreeMap<String, bool>,
    /// The content of each function.
    functions: BTreeMap<String, Vec<u8>>,
    cordoned: BTreeMap<String, bool>,
    /// The name of the change in progress.
    open: Option<String>,
}

/// Writes until the registry no longer responds.
async fn write(mut c: Clients, who: u32, round: u32, expected: Arc<Mutex<Acknowledged>>) {
    for n in 0u32.. {
        let name = format!("{who}-{}", n % 7);
        let device = format!("n{who}/a");
        expected.lock().unwrap().open = Some(match n % 4 {
            3 => device.clone(),
            _ => name.clone(),
        });
        let answered = match n % 4 {
            0 => {
                let request = AllocateRequest {
                    instance: name.clone(),
                    query: format!("node=n{who}"),
                    lease_s: Some(0),
                    ..AllocateRequest::default()
                };
                let reply = c.instances.allocate(request).await;
                reply.map(|r| {
                    let given = r.into_inner().instance.is_some();
                    expected.lock().unwrap().instances.insert(name, given);
                })
            }
            1 => {
                let content = format!("{round} {n}")
                    .repeat(1 + n as usize % 500)
                    .into_bytes();
                let function = Function {
                    name: name.clone(),
                    ..Function::default()
                };
                let request = FunctionPutRequest {
                    function: Some(function),
                    content: content.clone(),
                };
                let reply = c.functions.function_put(request).await;
                reply.map(|_| _ = expected.lock().unwrap().functions.insert(name, content))
            }
            2 => {
                let request = ReleaseRequest {
                    instance: name.clone(),
                };
                let reply = c.instances.release(request).await;
                reply.map(|_| _ = expected.lock().unwrap().instances.insert(name, false))
            }
            _ => {
                let on = n % 8 == 3;
                let reply = if on {
                    c.operators
                        .cordon(CordonRequest {
                            device: device.clone(),
                        })
                        .await
                } else {
                    c.operators
                        .uncordon(UncordonRequest {
                            device: device.clone(),
                        })
                        .await
                };
                reply.map(|_| _ = expected.lock().unwrap().cordoned.insert(device, on))
            }
        };
        if answered.is_err() {
            return;
        }
        expected.lock().unwrap().open = None;
    }
}

#[test]
fn whatever_was_acknowledged_is_there_after_kill_9_at_any_moment() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let _inside = runtime.enter();
    let dir = tempfile::tempdir().unwrap();
    let expected: Vec<Arc<Mutex<Acknowledged>>> = (0..4).map(|_| Arc::default()).collect();
    let mut served = Served::start(dir.path());
    let mut written = 0;
    for round in 0..ROUNDS {
        runtime.block_on(async {
            for who in 0..expected.len() {
                let mut c = served.clients.clone();
                c.join(&format!("n{who}"), vec![gpu("a", 0.0)]).await;
            }
        });
        let writers: Vec<_> = (0u32..)
            .zip(&expected)
            .map(|(who, expected)| {
                let written = write(served.clients.clone(), who, round, expected.clone());
                runtime.spawn(written)
            })
            .collect();
        // Kill times spread over many writes, at a random point of each.
        std::thread::sleep(Duration::from_millis(40 + 23 * u64::from(round)));
        served.kill();
        runtime.block_on(async {
            for writer in writers {
                writer.await.unwrap();
            }
        });
        written += check_store(dir.path(), &expected);
        served = Served::start(dir.path());
        runtime.block_on(check_answers(&mut served.clients, &expected));
    }
    assert!(
        written > 4 * u64::from(ROUNDS),
        "hardly anything was written: {written}"
    );
    served.kill();
}

/// Checks the store's file: it has the acknowledged changes and is consistent.
fn check_store(state: &Path, expected: &[Arc<Mutex<Acknowledged>>]) -> u64 {
    let (store, image) = Store::open(state).unwrap();
    for expected in expected {
        let mut expected = expected.lock().unwrap();
        let is_open = |name: &String| expected.open.as_ref() == Some(name);
        for (name, has) in expected.instances.iter().filter(|(n, _)| !is_open(n)) {
            assert_eq!(
                image.instances.contains_key(name),
                *has,
                "{name}: {expected:?}"
            );
        }
        for (name, content) in expected.functions.iter().filter(|(n, _)| !is_open(n)) {
            assert_eq!(
                store.content(name).unwrap().as_ref(),
                Some(content),
                "{name}"
            );
        }
        for (device, on) in expected.cordoned.iter().filter(|(n, _)| !is_open(n)) {
            let (node, device) = device.split_once('/').unwrap();
            assert_eq!(image.nodes[node].devices[device].cordoned, *on, "{node}");
        }
        // The change in progress may or may not have taken effect; from now on the result is known.
        let Some(open) = expected.open.take() else {
            continue;
        };
        if let Some((node, device)) = open.split_once('/') {
            let on = image.nodes[node].devices[device].cordoned;
            expected.cordoned.insert(open, on);
            continue;
        }
        let has = image.instances.contains_key(&open);
        expected.instances.insert(open.clone(), has);
        match store.content(&open).unwrap() {
            Some(content) => drop(expected.functions.insert(open, content)),
            None => assert!(!expected.functions.contains_key(&open), "{open}"),
        }
    }
    for instance in image.instances.values() {
        assert!(!instance.devices.is_empty(), "{instance:?}");
        for a in &instance.devices {
            assert!(
                image.nodes[&a.node].devices.contains_key(&a.device),
                "{a:?}"
            );
        }
    }
    for function in image.functions.values() {
        let content = store.content(&function.name).unwrap().unwrap();
        assert_eq!(content.len() as u64, function.content_bytes);
    }
    image.revision
}

/// Checks the restarted registry's responses against the expected state.
async fn check_answers(c: &mut Clients, expected: &[Arc<Mutex<Acknowledged>>]) {
    let all = c
        .operators
        .instances(InstancesRequest::default())
        .await
        .unwrap();
    let all: BTreeMap<String, Vec<String>> = all
        .into_inner()
        .instances
        .iter()
        .map(|i| (i.name.clone(), places(i)))
        .collect();
    for (who, expected) in expected.iter().enumerate() {
        for (name, has) in &expected.lock().unwrap().clone().instances {
            let wanted = has.then(|| vec![format!("n{who}/a")]);
            assert_eq!(all.get(name), wanted.as_ref(), "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_full_disk_writes_fail_clearly_and_everything_else_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut served = Served::start(dir.path());
    let pid = served.pid();
    let c = &mut served.clients;
    c.join("n1", vec![gpu("a", 0.0)]).await;
    support::given(c.allocate("app", "").await);
    let put = |name: &str, letter: u8| FunctionPutRequest {
        function: Some(Function {
            name: name.into(),
            ..Function::default()
        }),
        content: vec![letter; 1 << 20],
    };
    c.functions.function_put(put("first", 1)).await.unwrap();

    // No file may grow beyond 8 MiB: writes fail as on a full disk.
    let full = Rlimit {
        current: Some(8 << 20),
        ..getrlimit(Resource::Fsize)
    };
    let before = prlimit(Some(pid), Resource::Fsize, full).unwrap();
    let mut refused = 0;
    for n in 0..40u8 {
        match c.functions.function_put(put(&format!("f{n}"), n)).await {
            Ok(_) => assert_eq!(refused, 0, "a write went through that cannot have"),
            Err(status) => {
                refused += 1;
                assert_eq!(status.code(), Code::Unavailable, "{status}");
                assert!(status.message().contains("is the disk full?"), "{status}");
            }
        }
        if refused == 3 {
            break;
        }
    }
    assert_eq!(refused, 3);

    // Reads, heartbeats, renewals and repeated requests still work.
    let status = c
        .operators
        .status(StatusRequest {})
        .await
        .unwrap()
        .into_inner();
    assert!(!status.store_failure.is_empty());
    c.heartbeat("n1", vec![gpu("a", 40.0).1]).await.unwrap();
    assert_eq!(c.device("n1", "a").await.utilization, 40.0);
    assert_eq!(
        places(&support::given(c.allocate("app", "").await)),
        ["n1/a"]
    );
    c.register("n1", vec![gpu("a", 0.0).0]).await.unwrap();
    let get = FunctionGetRequest {
        name: "first".into(),
    };
    let got = c
        .functions
        .function_get(get.clone())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(got.content, vec![1; 1 << 20]);
    let before_end = c
        .functions
        .functions(FunctionsRequest::default())
        .await
        .unwrap()
        .into_inner();

    // There is room again.
    prlimit(Some(pid), Resource::Fsize, before).unwrap();
    c.functions.function_put(put("last", 9)).await.unwrap();
    let status = c
        .operators
        .status(StatusRequest {})
        .await
        .unwrap()
        .into_inner();
    assert!(status.store_failure.is_empty(), "{status:?}");
    served.kill();

    // Rejected changes are absent, all others present.
    let mut served = Served::start(dir.path());
    let c = &mut served.clients;
    let after = c
        .functions
        .functions(FunctionsRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(after.functions.len(), before_end.functions.len() + 1);
    let got = c.functions.function_get(get).await.unwrap().into_inner();
    assert_eq!(got.content, vec![1; 1 << 20]);
    served.kill();
}
