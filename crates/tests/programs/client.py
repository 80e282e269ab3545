"""pyopencl on the device that the loader lists: kernels, maps, profiling, printf, sub-buffers."""

import numpy as np
import pyopencl as cl
import pyopencl.array

context = cl.Context([cl.get_platforms()[0].get_devices()[0]])
properties = cl.command_queue_properties.PROFILING_ENABLE
queue = cl.CommandQueue(context, properties=properties)
print("platform", cl.get_platforms()[0].name)

program = cl.Program(
    context,
    """
    kernel void axpy(float a, global const float *x, global float *y) {
        size_t i = get_global_id(0);
        y[i] += a * x[i];
    }
    kernel void hello(int n) { printf("hello from the kernel %d\\n", n); }
    """,
).build()

x = np.arange(100_000, dtype=np.float32)
y = np.ones_like(x)
flags = cl.mem_flags
x_device = cl.Buffer(context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=x)
y_device = cl.Buffer(context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=y)
event = program.axpy(queue, x.shape, None, np.float32(2), x_device, y_device)
event.wait()
assert event.profile.queued <= event.profile.submit <= event.profile.start <= event.profile.end
result = np.empty_like(y)
cl.enqueue_copy(queue, result, y_device)
assert np.array_equal(result, y + 2 * x), "kernel"

mapped, _ = cl.enqueue_map_buffer(
    queue, y_device, cl.map_flags.READ | cl.map_flags.WRITE, 0, y.shape, y.dtype
)
assert np.array_equal(mapped, result), "map"
mapped[:] = 7
mapped.base.release(queue)
cl.enqueue_copy(queue, result, y_device)
assert (result == 7).all(), "what was written through the map"

half = y_device[: y.nbytes // 2]
cl.enqueue_fill_buffer(queue, half, np.float32(3), 0, half.size)
cl.enqueue_copy(queue, result, y_device)
assert (result[: y.size // 2] == 3).all() and (result[y.size // 2 :] == 7).all(), "sub-buffer"

array = cl.array.to_device(queue, x)
assert np.array_equal((array * 2 + 1).get(), x * 2 + 1), "array"

gate = cl.UserEvent(context)
late = cl.enqueue_copy(queue, result, x_device, is_blocking=False, wait_for=[gate])
gate.set_status(cl.command_execution_status.COMPLETE)
late.wait()
assert np.array_equal(result, x), "user event"

try:
    cl.Program(context, "kernel void broken( {}").build()
    raise SystemExit("a broken program was built")
except cl.RuntimeError as error:
    assert "error" in str(error), error

program.hello(queue, (1,), None, np.int32(42))
queue.finish()
print("ok")
