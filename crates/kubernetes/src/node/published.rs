//! The agent's objects in the cluster: two labels of its Node, and the node's ResourceSlice.
//!
//! Other components change these objects: a kubelet that starts deletes the slices of its node, a
//! newly registered Node has no labels and another identity, and the garbage collector deletes the
//! slice of a deleted Node. Each round therefore compares the desired state with the API server's
//! state, not with the last written state.

use super::slices;
use crate::GROUP;
use anyhow::Result;
use baltra_api::control::Device as Managed;
use baltra_api::registry::Device as Pooled;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use kube::api::{Patch, PatchParams};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Client, ResourceExt};
use serde_json::{json, Value};
use std::collections::BTreeMap;

/// The slice as last written, with the identity that the API server assigned.
struct Written {
    devices: Vec<Device>,
    /// UID of the owning Node.
    owner: Option<String>,
    /// The slice's identity, and the generation of its specification.
    uid: Option<String>,
    generation: Option<i64>,
}

pub struct Published {
    client: Client,
    node: String,
    nodes: Store<Node>,
    /// `None`: the driver of claims is disabled.
    slices: Option<Store<ResourceSlice>>,
    written: Option<Written>,
}

impl Published {
    pub fn new(
        client: Client,
        node: &str,
        nodes: Store<Node>,
        slices: Option<Store<ResourceSlice>>,
    ) -> Published {
        Published {
            client,
            node: node.to_owned(),
            nodes,
            slices,
            written: None,
        }
    }

    /// Writes what is missing or differs. `pool` has the registry's state of the devices.
    ///
    /// # Errors
    /// The API server rejects a write.
    pub async fn reconcile(&mut self, devices: &[Managed], pool: &[Pooled]) -> Result<()> {
        // A Node that is not registered has no labels and no slice; its return triggers a round.
        let Some(node) = self.nodes.get(&ObjectRef::new(&self.node)) else {
            return Ok(());
        };
        let ready = devices.iter().filter(|d| d.state == "ready").count();
        let healthy = !devices.is_empty() && ready == devices.len();
        if let Some(patch) = labels(&node, ready, healthy) {
            let nodes: Api<Node> = Api::all(self.client.clone());
            let params = PatchParams::default();
            nodes
                .patch_metadata(&self.node, &params, &Patch::Merge(&patch))
                .await?;
        }
        let Some(slices) = &self.slices else {
            return Ok(());
        };
        let devices = slices::devices(devices, pool);
        let name = slices::slice_name(&self.node);
        let observed = slices.get(&ObjectRef::new(&name));
        if self.is_written(observed.as_deref(), &node, &devices) {
            return Ok(());
        }
        // The cache may lag behind this agent's own writes, so read from the API server.
        let api: Api<ResourceSlice> = Api::all(self.client.clone());
        let existing = api.get_opt(&name).await?;
        if self.is_written(existing.as_ref(), &node, &devices) {
            return Ok(());
        }
        let slice = slices::publish(&self.client, &node, existing.as_ref(), &devices).await?;
        self.written = Some(Written {
            devices,
            owner: node.uid(),
            uid: slice.metadata.uid,
            generation: slice.metadata.generation,
        });
        Ok(())
    }

    /// Whether the existing slice is the last written one and has the current content. (Texts
    /// cannot be compared, because the API server reformats numbers and times.)
    fn is_written(&self, there: Option<&ResourceSlice>, node: &Node, devices: &[Device]) -> bool {
        let (Some(written), Some(there)) = (&self.written, there) else {
            return false;
        };
        written.devices == devices
            && written.owner == node.uid()
            && written.uid == there.metadata.uid
            && written.generation == there.metadata.generation
    }
}

/// A patch of the Node's labels; `None` if they are correct.
fn labels(node: &Node, ready: usize, healthy: bool) -> Option<Value> {
    let wanted = BTreeMap::from([
        (format!("{GROUP}/devices"), ready.to_string()),
        (format!("{GROUP}/healthy"), healthy.to_string()),
    ]);
    let has = |(key, value): (&String, &String)| node.labels().get(key) == Some(value);
    let same = wanted.iter().all(has);
    (!same).then(|| json!({"metadata": {"labels": wanted}}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Method, Request, Response, StatusCode};
    use http_body_util::BodyExt;
    use kube::client::Body;
    use kube::runtime::reflector;
    use kube::runtime::reflector::store::Writer;
    use kube::runtime::watcher::Event;
    use std::collections::HashMap;
    use std::sync::{Arc, Mutex};

    /// A mock API server: objects by path, with numbered versions, and a count of writes.
    #[derive(Default)]
    struct Server {
        objects: HashMap<String, Value>,
        numbers: u64,
        writes: usize,
    }

    const NODE: &str = "/api/v1/nodes/n1";
    const SLICE: &str = "/apis/resource.k8s.io/v1/resourceslices/n1-baltra.io";

    fn merge(into: &mut Value, from: &Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                for (key, value) in from {
                    merge(into.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
            (into, from) => *into = from.clone(),
        }
    }

    impl Server {
        fn register(&mut self, labels: Value) {
            self.numbers += 1;
            let uid = format!("uid-{}", self.numbers);
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": uid, "labels": labels}});
            self.objects.insert(NODE.into(), node);
        }

        fn patch(&mut self, path: &str, patch: &Value) -> Value {
            self.writes += 1;
            self.numbers += 1;
            let fresh =
                json!({"metadata": {"uid": format!("uid-{}", self.numbers), "generation": 0}});
            let object = self.objects.entry(path.to_owned()).or_insert(fresh);
            let before = object["spec"].clone();
            merge(object, patch);
            if before != object["spec"] {
                let generation = object["metadata"]["generation"].as_i64().unwrap_or(0);
                object["metadata"]["generation"] = json!(generation + 1);
            }
            object.clone()
        }
    }

    struct Cluster {
        server: Arc<Mutex<Server>>,
        nodes: Writer<Node>,
        slices: Writer<ResourceSlice>,
        published: Published,
    }

    impl Cluster {
        fn new() -> Cluster {
            let server = Arc::new(Mutex::new(Server::default()));
            let own = server.clone();
            let service = tower::service_fn(move |request: Request<Body>| {
                let server = own.clone();
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await.map_err(std::io::Error::other)?;
                    let mut server = server.lock().unwrap();
                    let path = head.uri.path();
                    let found = match head.method {
                        Method::PATCH => {
                            let patch = serde_json::from_slice(&body.to_bytes()).unwrap();
                            Some(server.patch(path, &patch))
                        }
                        _ => server.objects.get(path).cloned(),
                    };
                    let status = found
                        .as_ref()
                        .map_or(StatusCode::NOT_FOUND, |_| StatusCode::OK);
                    let gone = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "message": "", "code": 404});
                    let text = found.unwrap_or(gone).to_string();
                    let reply = Response::builder()
                        .status(status)
                        .body(Body::from(text.into_bytes()));
                    reply.map_err(std::io::Error::other)
                }
            });
            let client = Client::new(service, "default");
            let (node_store, nodes) = reflector::store();
            let (slice_store, slices) = reflector::store();
            let published = Published::new(client, "n1", node_store, Some(slice_store));
            let mut cluster = Cluster {
                server,
                nodes,
                slices,
                published,
            };
            cluster.watch();
            cluster
        }

        /// Updates the caches from the server.
        fn watch(&mut self) {
            let server = self.server.lock().unwrap();
            self.nodes.apply_watcher_event(&Event::Init);
            self.slices.apply_watcher_event(&Event::Init);
            if let Some(node) = server.objects.get(NODE) {
                let node = serde_json::from_value(node.clone()).unwrap();
                self.nodes.apply_watcher_event(&Event::InitApply(node));
            }
            if let Some(slice) = server.objects.get(SLICE) {
                let slice = serde_json::from_value(slice.clone()).unwrap();
                self.slices.apply_watcher_event(&Event::InitApply(slice));
            }
            self.nodes.apply_watcher_event(&Event::InitDone);
            self.slices.apply_watcher_event(&Event::InitDone);
        }

        /// Runs a round; returns the number of writes.
        async fn round(&mut self, devices: &[Managed]) -> usize {
            let before = self.server.lock().unwrap().writes;
            self.published.reconcile(devices, &[]).await.unwrap();
            self.server.lock().unwrap().writes - before
        }

        /// Updates the caches, then runs a round.
        async fn follows(&mut self, devices: &[Managed]) -> usize {
            self.watch();
            self.round(devices).await
        }

        fn change(&mut self, change: impl FnOnce(&mut Server)) {
            change(&mut self.server.lock().unwrap());
        }

        fn object(&self, path: &str) -> Value {
            self.server.lock().unwrap().objects[path].clone()
        }
    }

    fn device(state: &str) -> Managed {
        Managed {
            name: "gpu0".into(),
            state: state.into(),
            memory_bytes: 1_000,
            ..Managed::default()
        }
    }

    #[tokio::test]
    async fn what_others_delete_or_change_comes_back() {
        let mut cluster = Cluster::new();
        let ready = [device("ready")];
        // Without a Node, there is nothing to do.
        assert_eq!(cluster.round(&ready).await, 0);
        cluster.change(|s| s.register(json!({})));
        assert_eq!(cluster.follows(&ready).await, 2);
        assert_eq!(
            cluster.object(NODE)["metadata"]["labels"]["baltra.io/devices"],
            "1"
        );
        assert_eq!(cluster.object(SLICE)["spec"]["devices"][0]["name"], "gpu0");
        // The cache lacks the slice in the first round and has it in the second.
        assert_eq!(cluster.round(&ready).await, 1, "labels alone");
        assert_eq!(cluster.follows(&ready).await, 0);
        // A starting kubelet deletes the slice.
        cluster.change(|s| drop(s.objects.remove(SLICE)));
        assert_eq!(cluster.follows(&ready).await, 1);
        assert_eq!(cluster.follows(&ready).await, 0);
        // A Node is registered again: it has other labels and another identity, and its old slice
        // still exists.
        cluster.change(|s| s.register(json!({"zone": "a"})));
        assert_eq!(cluster.follows(&ready).await, 2);
        let node = cluster.object(NODE);
        assert_eq!(node["metadata"]["labels"]["baltra.io/healthy"], "true");
        assert_eq!(node["metadata"]["labels"]["zone"], "a");
        let owner = cluster.object(SLICE)["metadata"]["ownerReferences"][0]["uid"].clone();
        assert_eq!(owner, node["metadata"]["uid"]);
        assert_eq!(cluster.follows(&ready).await, 0);
        // Another client edits them.
        cluster.change(|s| {
            drop(s.patch(SLICE, &json!({"spec": {"devices": []}})));
            drop(s.patch(
                NODE,
                &json!({"metadata": {"labels": {"baltra.io/devices": "7"}}}),
            ));
        });
        assert_eq!(cluster.follows(&ready).await, 2);
        assert_eq!(
            cluster.object(NODE)["metadata"]["labels"]["baltra.io/devices"],
            "1"
        );
        assert_eq!(cluster.object(SLICE)["spec"]["devices"][0]["name"], "gpu0");
        assert_eq!(cluster.follows(&ready).await, 0);
    }

    #[tokio::test]
    async fn each_change_of_the_devices_is_a_generation_of_the_pool() {
        let mut cluster = Cluster::new();
        cluster.change(|s| s.register(json!({})));
        let generation =
            |cluster: &Cluster| cluster.object(SLICE)["spec"]["pool"]["generation"].clone();
        assert_eq!(cluster.follows(&[device("ready")]).await, 2);
        assert_eq!(generation(&cluster), 1);
        assert_eq!(cluster.follows(&[device("failed")]).await, 2);
        assert_eq!(generation(&cluster), 2);
        assert_eq!(cluster.object(SLICE)["spec"]["devices"], json!([]));
        assert_eq!(cluster.follows(&[device("failed")]).await, 0);
        // A restarted agent writes the slice once and continues its generation.
        cluster.published.written = None;
        assert_eq!(cluster.follows(&[device("failed")]).await, 1);
        assert_eq!(generation(&cluster), 3);
    }
}
