"""The unmodified Triton client against a gateway: inference.py HTTP_ADDRESS GRPC_ADDRESS.

The functions `scale` (values × factor) and `uppercase` must be deployed."""

import sys

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.http as http
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

http_client = http.InferenceServerClient(sys.argv[1], network_timeout=120.0, connection_timeout=120.0)
grpc_client = grpc.InferenceServerClient(sys.argv[2])
values = np.array([1.0, 2.5, -4.0], dtype=np.float32)
factor = np.array([3.0], dtype=np.float32)


def inputs_of(client, **how):
    inputs = [client.InferInput("values", [3], "FP32"), client.InferInput("factor", [1], "FP32")]
    inputs[0].set_data_from_numpy(values, **how)
    inputs[1].set_data_from_numpy(factor, **how)
    return inputs


def refused(call):
    try:
        call()
    except InferenceServerException as error:
        return str(error)
    raise AssertionError("it was not refused")


for name, client in [("http", http_client), ("grpc", grpc_client)]:
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("scale") and client.is_model_ready("scale", "1")
    assert not client.is_model_ready("nothing")
    how = {} if name == "http" else {"as_json": True}
    server = client.get_server_metadata(**how)
    assert server["name"] == "baltra", server
    assert "system_shared_memory" in server["extensions"], server
    model = client.get_model_metadata("scale", **how)
    assert model["inputs"][0]["name"] == "values" and model["inputs"][0]["datatype"] == "FP32", model
    index = client.get_model_repository_index(**how)
    models = index if name == "http" else index["models"]
    assert {m["name"] for m in models} >= {"scale", "uppercase"}, index
    assert "nothing" in refused(lambda: client.get_model_metadata("nothing"))
    print(name, "metadata")

for binary_in in (True, False):
    for binary_out in (True, False):
        wanted = [http.InferRequestedOutput("scaled", binary_data=binary_out)]
        inputs = inputs_of(http, binary_data=binary_in)
        result = http_client.infer("scale", inputs, outputs=wanted, request_id="7")
        assert np.array_equal(result.as_numpy("scaled"), values * 3), result.get_response()
        assert result.get_response()["id"] == "7"
# All outputs, in the client's preferred format.
assert np.array_equal(http_client.infer("scale", inputs_of(http)).as_numpy("scaled"), values * 3)
print("http infer")

result = grpc_client.infer("scale", inputs_of(grpc), request_id="8", model_version="1")
assert np.array_equal(result.as_numpy("scaled"), values * 3)
assert result.get_response().id == "8"
wanted = [grpc.InferRequestedOutput("scaled")]
assert np.array_equal(grpc_client.infer("scale", inputs_of(grpc), outputs=wanted).as_numpy("scaled"), values * 3)
print("grpc infer")

letters = np.frombuffer(b"hello " * 100_000, dtype=np.uint8)
for client, module in [(http_client, http), (grpc_client, grpc)]:
    tensor = module.InferInput("text", [letters.size], "UINT8")
    tensor.set_data_from_numpy(letters)
    result = client.infer("uppercase", [tensor])
    assert result.as_numpy("upper").tobytes() == letters.tobytes().upper()
    assert "valves" in refused(lambda: client.infer("scale", [module.InferInput("valves", [0], "FP32").set_data_from_numpy(np.zeros(0, np.float32))]))
print("large tensors")

for name, client, module in [("http", http_client, http), ("grpc", grpc_client, grpc)]:
    region = shm.create_shared_memory_region("region", f"/baltra-test-{name}", 24)
    try:
        shm.set_shared_memory_region(region, [values])
        client.unregister_system_shared_memory()
        client.register_system_shared_memory("region", f"/baltra-test-{name}", 24)
        status = client.get_system_shared_memory_status()
        assert len(status if name == "http" else status.regions) == 1, status
        inputs = inputs_of(module)
        inputs[0] = module.InferInput("values", [3], "FP32")
        inputs[0].set_shared_memory("region", 12)
        output = module.InferRequestedOutput("scaled")
        output.set_shared_memory("region", 12, offset=12)
        result = client.infer("scale", inputs, outputs=[output])
        written = shm.get_contents_as_numpy(region, np.float32, [6])[3:]
        assert np.array_equal(written, values * 3), written
        client.unregister_system_shared_memory("region")
        assert "region" in refused(lambda: client.infer("scale", inputs, outputs=[output]))
    finally:
        shm.destroy_shared_memory_region(region)
    print(name, "shared memory")

for name, client, module in [("http", http_client, http), ("grpc", grpc_client, grpc)]:
    how = {} if name == "http" else {"as_json": True}
    config = client.get_model_config("scale", **how)
    config = config.get("config", config)
    assert [i["name"] for i in config["input"]] == ["values", "factor"], config
    assert config["input"][0]["data_type"] == "TYPE_FP32", config
    statistics = client.get_inference_statistics("scale", **how)["model_stats"][0]
    assert int(statistics["inference_count"]) > 0, statistics
    assert int(statistics["inference_stats"]["success"]["ns"]) > 0, statistics
    assert "nothing" in refused(lambda: client.get_inference_statistics("nothing"))
    # The function is still stored, and can be loaded again.
    client.unload_model("scale")
    assert not client.is_model_ready("scale")
    client.load_model("scale")
    assert client.is_model_ready("scale")
    assert "nothing" in refused(lambda: client.load_model("nothing"))
    assert "config" in refused(lambda: client.load_model("scale", config="{}"))
    assert "nothing" in refused(lambda: client.unload_model("nothing"))
    trace = client.get_trace_settings(**how)
    assert trace.get("settings", trace)["trace_level"] in (["OFF"], {"value": ["OFF"]}), trace
    assert "OTEL" in refused(lambda: client.update_trace_settings(settings={"trace_rate": "5"}))
    client.get_log_settings(**how)
    assert "RUST_LOG" in refused(lambda: client.update_log_settings({"log_verbose_level": 1}))
    client.unregister_cuda_shared_memory()
    client.get_cuda_shared_memory_status()
    print(name, "management")

    # Sequences and unknown parameters are refused; a time limit is respected.
    inputs = inputs_of(module)
    assert "sequence" in refused(lambda: client.infer("scale", inputs, sequence_id=3, sequence_start=True))
    assert "priority" in refused(lambda: client.infer("scale", inputs, priority=2))
    assert "unsupported_one" in refused(lambda: client.infer("scale", inputs, parameters={"unsupported_one": 1}))
    assert np.array_equal(client.infer("scale", inputs, timeout=60_000_000).as_numpy("scaled"), values * 3)

    # Half precision, text and booleans are bound to the function's types.
    half = module.InferInput("values", [3], "FP16")
    half.set_data_from_numpy(values.astype(np.float16))
    assert np.array_equal(client.infer("scale", [half]).as_numpy("scaled"), values * 2)
    text = module.InferInput("text", [1], "BYTES")
    text.set_data_from_numpy(np.array([b"hello"], dtype=np.object_))
    assert client.infer("uppercase", [text]).as_numpy("upper")[0] == b"HELLO"
    flags = module.InferInput("text", [2], "BOOL")
    flags.set_data_from_numpy(np.array([True, False]))
    assert client.infer("uppercase", [flags]).as_numpy("upper").tobytes() == b"\x01\x00"
    print(name, "datatypes")

for coding in ("gzip", "deflate"):
    result = http_client.infer("scale", inputs_of(http), request_compression_algorithm=coding,
                               response_compression_algorithm=coding)
    assert np.array_equal(result.as_numpy("scaled"), values * 3), coding
odd = np.array([np.nan, np.inf, -np.inf], dtype=np.float32)
tensor = http.InferInput("values", [3], "FP32")
tensor.set_data_from_numpy(odd, binary_data=False)
wanted = [http.InferRequestedOutput("scaled", binary_data=False)]
result = http_client.infer("scale", [tensor], outputs=wanted)
assert np.array_equal(result.as_numpy("scaled"), odd, equal_nan=True), result.get_response()
text = http.InferInput("text", [1], "BYTES")
text.set_data_from_numpy(np.array(["hello"], dtype=np.object_), binary_data=False)
wanted = [http.InferRequestedOutput("upper", binary_data=False)]
assert http_client.infer("uppercase", [text], outputs=wanted).as_numpy("upper")[0] in (b"HELLO", "HELLO")
print("http compression, odd floats and texts")

print("ok")
