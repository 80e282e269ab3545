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
# All outputs, in the form that the client prefers.
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

print("ok")
