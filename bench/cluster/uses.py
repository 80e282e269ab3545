"""The thesis's use cases: their tasks, and the loads and figures of its tables 6.2 to 6.8."""

import json
import pathlib
import random
import struct

ROOT = pathlib.Path(__file__).resolve().parents[2]
BYTES = {"u8": 1, "f32": 4}

# Assignment of the five functions to devices; natively the first three have a device each.
# In figures 6.4 to 6.9 one application has all three devices, with this number of connections.
CONNECTIONS = 6
PLACEMENT = {"a": (2, 4), "b": (1, 5), "c": (3,)}
DEVICE_OF = {number: device for device, numbers in PLACEMENT.items() for number in numbers}
NATIVE_DEVICE_OF = {1: "a", 2: "b", 3: "c"}


class Use:
    """One kind of task: arrays are (name, type, shape); a step is (kernel, arguments, global,
    local). `rising` are the loads of figures 6.4 to 6.9, requests a second."""

    def __init__(
        self,
        name,
        table,
        task_ms,
        sources,
        options,
        inputs,
        outputs,
        steps,
        loads,
        thesis,
        rising,
        figures,
        constants=(),
        scratch=(),
    ):
        self.name, self.table, self.task_ms = name, table, task_ms
        self.sources, self.options = sources, options
        self.inputs, self.outputs, self.constants, self.scratch = (
            inputs,
            outputs,
            constants,
            scratch,
        )
        self.steps = steps
        self.loads, self.thesis, self.rising, self.figures = loads, thesis, rising, figures

    def size(self, array):
        total = BYTES[array[1]]
        for dimension in array[2]:
            total *= dimension
        return total

    def source(self, pace_us):
        names = [*self.sources, *([pathlib.Path(__file__).with_name("pace.cl")] if pace_us else [])]
        return "".join((ROOT / name).read_text() for name in names)

    def all_steps(self, pace_us):
        return [*self.steps, *([("pace", [f"u32({pace_us})"], [1], [1])] if pace_us else [])]

    def body(self):
        """The body of every request, the same in every run."""
        numbers = random.Random(6)
        parts = []
        for array in self.inputs:
            count = self.size(array) // BYTES[array[1]]
            parts.append(
                numbers.randbytes(count)
                if array[1] == "u8"
                else struct.pack(f"<{count}f", *(numbers.uniform(-1, 1) for _ in range(count)))
            )
        return b"".join(parts)

    def write(self, directory, pace_us):
        """Writes the kernels, the constants, and the plan for native.c."""
        directory.mkdir(parents=True)
        (directory / "kernels.cl").write_text(self.source(pace_us))
        lines = [["source", directory / "kernels.cl", self.options]]
        numbers = random.Random(7)
        for array in self.constants:
            count = self.size(array) // 4
            (directory / f"{array[0]}.f32").write_bytes(
                struct.pack(f"<{count}f", *(numbers.uniform(-0.1, 0.1) for _ in range(count)))
            )
        for kind, arrays in (
            ("input", self.inputs),
            ("output", self.outputs),
            ("scratch", self.scratch),
            ("constant", self.constants),
        ):
            for array in arrays:
                lines.append(
                    [
                        "buffer",
                        array[0],
                        kind,
                        self.size(array),
                        *([directory / f"{array[0]}.f32"] if kind == "constant" else []),
                    ]
                )
        for kernel, arguments, sizes, local in self.all_steps(pace_us):
            texts = [a.replace("(", ":").replace(")", "") for a in arguments]
            lines.append(
                ["step", kernel, ",".join(map(str, sizes)), ",".join(map(str, local)), *texts]
            )
        (directory / "plan").write_text("".join("\t".join(map(str, line)) + "\n" for line in lines))

    def manifest(self, name, device, pace_us):
        """The same task as a function that is bound to devices by a part of their names."""
        array = lambda a, **more: {"name": a[0], "type": a[1], "shape": a[2], **more}
        opencl = {
            "source": "kernels.cl",
            "options": self.options,
            "device": {"name": device},
            "scratch": [array(a) for a in self.scratch],
            "steps": [
                dict(zip(("kernel", "args", "global", "local"), step))
                for step in self.all_steps(pace_us)
            ],
        }
        constants = [
            array(a, **{"from": "constant", "constant": {"file": f"{a[0]}.f32"}})
            for a in self.constants
        ]
        return json.dumps(
            {
                "name": name,
                "inputs": [*(array(a, codecs=["raw"]) for a in self.inputs), *constants],
                "outputs": [array(a, codecs=["raw"]) for a in self.outputs],
                "implementations": [{"opencl": opencl}],
                "idle_s": 0,
            },
            indent=1,
        )


# Task times come from the tables: utilization / processed requests of the function that has device
# C to itself.
USES = [
    Use(
        "sobel",
        "6.3 and 6.4",
        13.1,
        ["apps/functions/sobel/sobel.cl"],
        "",
        inputs=[("image", "u8", [240, 320])],
        outputs=[("edges", "u8", [240, 320])],
        steps=[("sobel", ["image", "edges", "i32(320)", "i32(240)"], [320, 240], [64, 4])],
        loads={
            "low": [20, 15, 10, 5, 5],
            "medium": [35, 30, 25, 20, 15],
            "high": [60, 50, 35, 30, 15],
        },
        thesis={
            "low": ((52.24, 24.76, 71.70), (43.98, 23.62, 63.87)),
            "medium": ((119.15, 22.25, 161.81), (85.29, 24.28, 122.88)),
            "high": ((152.27, 22.62, 202.03), (112.77, 25.15, 157.60)),
        },
        rising=[30, 60, 90, 120, 150, 180, 210],
        figures=(
            "6.4",
            "6.5",
            "163 rq/s at 192.61 %, 40 to 55 ms",
            "150 rq/s at 207 %, 40 to 55 ms",
        ),
    ),
    Use(
        "matmul",
        "6.5 and 6.6",
        5.32,
        ["apps/functions/matmul/matmul.cl"],
        "-DTILE=16",
        inputs=[("a", "f32", [64, 64]), ("b", "f32", [64, 64])],
        outputs=[("c", "f32", [64, 64])],
        steps=[("matmul", ["a", "b", "c", "i32(64)", "i32(64)", "i32(64)"], [64, 64], [16, 16])],
        loads={
            "low": [28, 21, 14, 7, 7],
            "medium": [49, 42, 35, 28, 21],
            "high": [84, 70, 49, 42, 21],
        },
        thesis={
            "low": ((76.96, 12.55, 43.49), (60.49, 21.12, 50.87)),
            "medium": ((174.90, 11.57, 98.53), (106.84, 22.81, 103.22)),
            "high": ((262.73, 10.69, 144.18), (121.85, 24.25, 122.97)),
        },
        rising=[60, 120, 180, 240, 300, 360, 420],
        figures=(
            "6.6",
            "6.7",
            "374 rq/s at 202.47 %, 18.58 to 27.80 ms",
            "159 rq/s at 183.91 %, 22 to 57.06 ms",
        ),
    ),
    # AlexNet's first layer (convolution, normalization, pooling) and a classifier of 16: the rest
    # of the network is emulated by the pace, because two processors cannot compute 33 complete
    # networks per second.
    Use(
        "cnn",
        "6.7 and 6.8",
        59.0,
        ["apps/cnn/cnn.cl", "apps/functions/alexnet/clear.cl"],
        "",
        inputs=[("picture", "u8", [227, 227, 3])],
        outputs=[("scores", "f32", [16])],
        constants=[
            ("conv1_weights", "f32", [96, 3, 11, 11]),
            ("conv1_bias", "f32", [96]),
            ("full_weights", "f32", [16, 93280]),
            ("full_bias", "f32", [16]),
        ],
        scratch=[
            ("planes", "f32", [155611]),
            ("conv1", "f32", [291424]),
            ("norm1", "f32", [291424]),
            ("pool1", "f32", [94304]),
        ],
        steps=[
            (
                "mem_read",
                ["picture", "planes", "i32(227)", "i32(51529)", "i32(0)"],
                [227, 227, 3],
                [227, 1, 1],
            ),
            (
                "conv",
                [
                    "planes",
                    "conv1_weights",
                    "conv1_bias",
                    "conv1",
                    "i32(3)",
                    "i32(11)",
                    "i32(4)",
                    "i32(227)",
                    "i32(51529)",
                    "i32(96)",
                    "i32(0)",
                    "i32(55)",
                    "i32(55)",
                    "i32(3025)",
                    "i32(0)",
                ],
                [4, 55, 12],
                [4, 1, 1],
            ),
            (
                "lrn",
                [
                    "conv1",
                    "norm1",
                    "i32(96)",
                    "i32(55)",
                    "i32(3025)",
                    "i32(55)",
                    "i32(3025)",
                    "i32(0)",
                ],
                [55, 55, 96],
                [55, 1, 1],
            ),
            ("clear", ["pool1"], [94304], [32]),
            (
                "pool",
                [
                    "norm1",
                    "pool1",
                    "i32(3)",
                    "i32(2)",
                    "i32(55)",
                    "i32(3025)",
                    "i32(31)",
                    "i32(961)",
                    "i32(64)",
                ],
                [27, 27, 96],
                [27, 1, 1],
            ),
            (
                "fully_connected",
                ["pool1", "full_weights", "full_bias", "scores", "i32(93280)", "i32(0)", "i32(0)"],
                [16],
                [8],
            ),
        ],
        loads={"medium": [6, 3, 3, 3, 3], "high": [9, 9, 6, 6, 3]},
        thesis={
            "medium": ((17.88, 132.89, 124.68), (11.91, 94.29, 96.22)),
            "high": ((29.81, 124.52, 202.08), (23.57, 91.74, 189.82)),
        },
        rising=[6, 12, 18, 24, 30, 36, 42],
        figures=(
            "6.8",
            "6.9",
            "39.52 rq/s at 249.40 %, below 300 ms",
            "23.63 rq/s at 242.16 %, up to 390.2 ms",
        ),
    ),
]
