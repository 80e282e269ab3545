//! Tests of the Open Inference Protocol over HTTP at byte level. `crates/tests` uses the real
//! clients.

mod support;

use serde_json::json;
use support::{Gateway, SCALE, UPPERCASE};

fn started() -> Gateway {
    let gateway = Gateway::start();
    gateway.deploy(SCALE);
    gateway.deploy(UPPERCASE);
    gateway
}

#[test]
fn metadata_and_health_are_the_protocol_s() {
    let gateway = started();
    let server = gateway.get("/v2").json();
    assert_eq!(server["name"], "baltra");
    let extensions = server["extensions"].as_array().unwrap();
    assert!(extensions.contains(&json!("binary_tensor_data")));
    assert_eq!(gateway.get("/v2/health/live").json(), json!({"live": true}));
    assert_eq!(
        gateway.get("/v2/health/ready").json(),
        json!({"ready": true})
    );
    let model = gateway.get("/v2/models/scale").json();
    assert_eq!(model["name"], "scale");
    assert_eq!(
        model["inputs"][0],
        json!({"name": "values", "datatype": "FP32", "shape": [-1]})
    );
    assert_eq!(
        model["outputs"][0],
        json!({"name": "scaled", "datatype": "FP32", "shape": [-1]})
    );
    assert_eq!(gateway.get("/v2/models/scale/ready").status, 200);
    assert_eq!(gateway.get("/v2/models/scale/versions/1/ready").status, 200);
    let unknown = gateway.get("/v2/models/nothing");
    assert_eq!(unknown.status, 404);
    assert!(unknown.json()["error"].is_string());
    assert_eq!(gateway.get("/v2/models/scale/versions/2").status, 404);
    let index = gateway.post("/v2/repository/index", b"").json();
    assert_eq!(index[0]["name"], "scale");
}

#[test]
fn json_and_binary_tensors_give_the_same() {
    let gateway = started();
    let request = json!({
        "id": "42",
        "inputs": [
            {"name": "values", "datatype": "FP32", "shape": [3], "data": [1, 2.5, -4]},
            {"name": "factor", "datatype": "FP32", "shape": [1], "data": [3]},
        ],
    });
    let json_answer = gateway.post("/v2/models/scale/infer", request.to_string().as_bytes());
    assert_eq!(json_answer.status, 200, "{}", json_answer.text());
    let body = json_answer.json();
    assert_eq!(
        (&body["id"], &body["model_name"]),
        (&json!("42"), &json!("scale"))
    );
    assert_eq!(
        body["outputs"][0],
        json!({"name": "scaled", "datatype": "FP32", "shape": [3], "data": [3.0, 7.5, -12.0]})
    );
    assert!(json_answer.header("server-timing").contains("device;dur="));

    let header = json!({
        "inputs": [{"name": "values", "datatype": "FP32", "shape": [3], "parameters": {"binary_data_size": 12}},
                   {"name": "factor", "datatype": "FP32", "shape": [1], "data": [3]}],
        "outputs": [{"name": "scaled", "parameters": {"binary_data": true}}],
    })
    .to_string();
    let mut bytes = header.clone().into_bytes();
    for value in [1f32, 2.5, -4.0] {
        bytes.extend(value.to_le_bytes());
    }
    let length = header.len().to_string();
    let headers = [("inference-header-content-length", length.as_str())];
    let answer = gateway.send("POST", "/v2/models/scale/infer", &headers, &bytes);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let split: usize = answer
        .header("inference-header-content-length")
        .parse()
        .unwrap();
    let (head, data) = answer.body.split_at(split);
    let head: serde_json::Value = serde_json::from_slice(head).unwrap();
    assert_eq!(head["outputs"][0]["parameters"]["binary_data_size"], 12);
    let values: Vec<f32> = data
        .chunks(4)
        .map(|c| f32::from_le_bytes(c.try_into().unwrap()))
        .collect();
    assert_eq!(values, [3.0, 7.5, -12.0]);
}

#[test]
fn what_does_not_fit_is_refused_with_the_input_s_name() {
    let gateway = started();
    let infer = |request: serde_json::Value| {
        gateway.post("/v2/models/scale/infer", request.to_string().as_bytes())
    };
    let input = |name: &str, datatype: &str, data: &[f64]| json!({"inputs": [{"name": name, "datatype": datatype, "shape": [data.len()], "data": data}]});
    for (request, word) in [
        (input("valves", "FP32", &[1.0]), "valves"),
        (input("values", "INT8", &[1.0]), "values"),
        (input("values", "BYTES", &[1.0]), "BYTES"),
        (json!({"inputs": []}), "values"),
        (json!({}), "inputs"),
    ] {
        let refused = infer(request);
        assert!((400..500).contains(&refused.status), "{}", refused.text());
        assert!(
            refused.json()["error"].as_str().unwrap().contains(word),
            "{}",
            refused.text()
        );
    }
    let mut unknown = input("values", "FP32", &[1.0]);
    unknown["outputs"] = json!([{"name": "nothing"}]);
    assert!((400..500).contains(&infer(unknown).status));
}

#[test]
fn tensors_lie_in_shared_memory() {
    let gateway = started();
    let name = format!("baltra-test-infer-{}", std::process::id());
    let path = std::path::Path::new("/dev/shm").join(&name);
    let values: Vec<u8> = [1f32, 2.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    std::fs::write(&path, [values, vec![0; 8]].concat()).unwrap();
    let register = |region: &str, offset: u64| {
        let body = json!({"key": format!("/{name}"), "offset": offset, "byte_size": 8}).to_string();
        let path = format!("/v2/systemsharedmemory/region/{region}/register");
        gateway.post(&path, body.as_bytes())
    };
    assert_eq!(register("in", 0).status, 200);
    assert_eq!(register("out", 8).status, 200);
    assert_eq!(register("in", 0).status, 400);
    assert_eq!(register("far", 100).status, 400);
    assert_eq!(
        gateway
            .get("/v2/systemsharedmemory/status")
            .json()
            .as_array()
            .unwrap()
            .len(),
        2
    );
    let status = gateway
        .get("/v2/systemsharedmemory/region/out/status")
        .json();
    assert_eq!(status[0]["offset"], 8);
    let request = json!({
        "inputs": [{"name": "values", "datatype": "FP32", "shape": [2],
                    "parameters": {"shared_memory_region": "in", "shared_memory_byte_size": 8}}],
        "outputs": [{"name": "scaled",
                     "parameters": {"shared_memory_region": "out", "shared_memory_byte_size": 8}}],
    });
    let answer = gateway.post("/v2/models/scale/infer", request.to_string().as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.json()["outputs"][0].get("data").is_none());
    let written = std::fs::read(&path).unwrap();
    let expected: Vec<u8> = [2f32, 4.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    assert_eq!(written[8..], expected);
    assert_eq!(
        gateway
            .post("/v2/systemsharedmemory/region/in/unregister", b"")
            .status,
        200
    );
    let answer = gateway.post("/v2/models/scale/infer", request.to_string().as_bytes());
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert_eq!(
        gateway
            .post("/v2/systemsharedmemory/unregister", b"")
            .status,
        200
    );
    assert_eq!(
        gateway.get("/v2/systemsharedmemory/status").json(),
        json!([])
    );
    std::fs::remove_file(&path).unwrap();
}
