#!/usr/bin/env python3
"""Measures kernels in OpenCL C on the simulated hardware: cycles, area, seconds of compilation.

usage: bench/kernels/run.py [--only NAME,…] [--yosys] [--place] [--seeds S,…] [-j N] [--no-soft] [--no-write]

--yosys     also synthesizes each kernel for ECP5 (minutes for each)
--place     also places and routes each kernel on an ECP5-85 (hdl/syn/images.py), with seeds 1, 2 and 3
            or --seeds, with N processes (default: one for each processor)
--no-soft   without the soft core's cycles
--no-write  prints the table only

README.md defines each number. Writes bench/results/kernels/DATE-COMMIT.{json,md}. Exit status 1: a
result was wrong, or a kernel did not end. BALTRA: the program to measure (default
target/release/baltra).
"""

import argparse
import contextlib
import ctypes
import datetime
import json
import os
import pathlib
import platform
import shutil
import struct
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WORK = ROOT / "target" / "bench-kernels"
BALTRA = os.environ.get("BALTRA", str(ROOT / "target/release/baltra"))
sys.path.insert(0, str(HERE))
import kernels  # noqa: E402

SECONDS_MAX = 60  # of one simulation
CYCLES_MAX = 1 << 40
PORT_BYTES = 8  # per cycle
SOFT_MHZ = 156.25
ABI = 3
# Of a daemon beside others.
SETTINGS = [
    "metrics.address=off",
    "registry.address=auto",
    "registry.metrics=",
    "gateway.address=auto",
    "gateway.grpc_address=",
]


class Buffer(ctypes.Structure):
    _fields_ = [
        ("bytes", ctypes.c_void_p),
        ("size", ctypes.c_uint64),
        ("read_only", ctypes.c_uint32),
        ("pad", ctypes.c_uint32),
    ]


class Launch(ctypes.Structure):
    _fields_ = [
        ("words", ctypes.POINTER(ctypes.c_uint64)),
        ("words_count", ctypes.c_uint32),
        ("buffers_count", ctypes.c_uint32),
        ("buffers", ctypes.POINTER(Buffer)),
        ("print", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("memory", ctypes.c_void_p),
        ("rows", ctypes.c_uint64),
    ]


class Result(ctypes.Structure):
    _fields_ = [
        ("state", ctypes.c_uint32),
        ("argument", ctypes.c_uint32),
        ("write", ctypes.c_uint32),
        ("status", ctypes.c_uint32),
        ("offset", ctypes.c_uint64),
        ("cycles", ctypes.c_uint64),
        ("waits", ctypes.c_uint32),
        ("waits_to_write", ctypes.c_uint32),
        ("transfers", ctypes.c_uint64),
    ]


CREATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)
DESTROY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
START = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Launch))
RUN = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.POINTER(Result)
)


class Api(ctypes.Structure):
    """`emulate_api` (hdl/board/sim/emulate_abi.h) to its last function that is used here."""

    _fields_ = [
        ("abi", ctypes.c_uint32),
        ("kernels", ctypes.c_uint32),
        ("names", ctypes.POINTER(ctypes.c_char_p)),
        ("create", CREATE),
        ("destroy", DESTROY),
        ("start", START),
        ("run", RUN),
    ]


DONE = 1


def parts(image):
    """Manifest, SystemVerilog files and simulation library of an image
    (crates/board/src/accelerator.rs)."""
    at = 40

    def take():
        nonlocal at
        size = struct.unpack_from("<I", image, at)[0]
        at += 4 + size
        return image[at - size : at]

    manifest = json.loads(take())
    count = struct.unpack_from("<I", image, at)[0]
    at += 4
    files = {take().decode(): take() for _ in range(count)}
    return manifest, files, take()


class Program:
    """A program's simulation library."""

    def __init__(self, name, image):
        self.manifest, self.files, library = parts(image)
        path = WORK / name / "program.so"
        path.write_bytes(library)
        # The library stays open: it has the structure.
        self.library = ctypes.CDLL(str(path))
        self.library.baltra_emulate.restype = ctypes.POINTER(Api)
        self.api = self.library.baltra_emulate().contents
        assert self.api.abi == ABI, f"the library has version {self.api.abi}, expected {ABI}"

    def kernel(self, name):
        names = [k["name"] for k in self.manifest["kernels"]]
        return names.index(name), self.manifest["kernels"][names.index(name)]

    def run(self, launch, buffers):
        """The cycles of a launch."""
        number, _ = self.kernel(launch.kernel)
        three = lambda size, fill: [*size, fill, fill, fill][:3]
        words = three(launch.size, 1) + [0, 0, 0] + three(launch.group, 1) + [len(launch.size)]
        used = []
        for argument in launch.arguments:
            if isinstance(argument, tuple):
                used.append(buffers[argument[1]])
                words.append(len(used) << 28)
            else:
                words.append(argument)
        spaces = (Buffer * max(len(used), 1))()
        for space, array in zip(spaces, used):
            space.bytes, space.size = array.ctypes.data, array.nbytes
        block = (ctypes.c_uint64 * len(words))(*words)
        call = Launch(block, len(words), len(used), spaces, None, None, None, 0)
        instance, result = self.api.create(number), Result()
        self.api.start(instance, ctypes.byref(call))
        while result.state == 0 and result.cycles < CYCLES_MAX:
            self.api.run(instance, result.cycles, 1 << 20, ctypes.byref(result))
        self.api.destroy(instance)
        if result.state != DONE:
            raise RuntimeError(
                f"kernel {launch.kernel} ended with state {result.state}, status {result.status}"
            )
        return result.cycles


def simulate(program, kernel, size):
    """The case of a size, its cycles and the seconds of the simulation."""
    case = kernel.make(size)
    buffers = [np.ascontiguousarray(b).copy() for b in case.buffers]
    begin = time.monotonic()
    cycles = sum(program.run(launch, buffers) for launch in case.launches)
    seconds = time.monotonic() - begin
    for index, expected in case.expected.items():
        if buffers[index].tobytes() != np.ascontiguousarray(expected).tobytes():
            raise RuntimeError("wrong bytes")
    return case, cycles, seconds


def largest(program, kernel):
    """The largest size whose simulation probably ends in time, measured."""
    measured = None
    for size in kernel.sizes:
        if measured:
            units = kernel.make(size).units
            if measured[2] * units / measured[0].units > SECONDS_MAX:
                break
        measured = simulate(program, kernel, size)
        measured_size = size
    return measured_size, *measured


@contextlib.contextmanager
def daemon():
    """A daemon with an emulated accelerator and an empty cache; yields the environment."""
    with tempfile.TemporaryDirectory(prefix="baltra-bench.") as folder:
        folder = pathlib.Path(folder)
        environment = os.environ | {"BALTRA_RUNTIME_DIR": str(folder / "run")}
        (folder / "config.toml").write_text(
            f'[[device]]\nname = "fpga"\ndriver = "emulate:{ROOT}/hdl"\n'
        )
        up = [BALTRA, "up", "--config", folder / "config.toml", "--state-dir", folder / "state"]
        for pair in SETTINGS:
            up += ["--set", pair]
        subprocess.run(up, env=environment, check=True, stdout=subprocess.DEVNULL)
        try:
            yield environment
        finally:
            down = [BALTRA, "down", "--drain-ms", "0"]
            subprocess.run(down, env=environment, stdout=subprocess.DEVNULL)


def build(name, environment):
    """The image of a program; seconds of its compilation, and of a second build of the same."""
    image = WORK / name / "image"
    command = [BALTRA, "run", "--device", "fpga", "--", WORK / "build", HERE / f"{name}.cl", image]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip() or "the build failed")
    first, again = map(float, done.stdout.split())
    return image.read_bytes(), first, again


def c_array(name, array, writable):
    words = np.frombuffer(array.tobytes() + bytes(-array.nbytes % 4), np.uint32)
    text = ",".join(hex(w) for w in words) if words.any() else "0"
    qualifier = "" if writable else "const "
    return (
        f"static {qualifier}uint {name}_words[{max(len(words), 1)}] = {{{text}}};\n"
        f"#define {name} ((void *){name}_words)\n"
    )


def soft_source(kernel, case):
    """A program for the soft core, which prints its cycles and a hash of the results."""
    text = '#include "soft.h"\n'
    launch = case.launches[0]
    if case.soft_calls:
        text += '#include "soft.c"\n'
        calls = case.soft_calls
    else:
        text += f'#include "{kernel.name}.cl"\n'
        values = [f"b{a[1]}" if isinstance(a, tuple) else str(a) for a in launch.arguments]
        size = [*launch.size, 1]
        calls = (
            f"for (global_ids[1] = 0; global_ids[1] < {size[1]}; global_ids[1]++)\n"
            f"    for (global_ids[0] = 0; global_ids[0] < {size[0]}; global_ids[0]++) "
            f"{launch.kernel}({', '.join(values)});"
        )
    for index, array in enumerate(case.buffers):
        text += c_array(f"b{index}", array, index in case.expected)
    hashes = "".join(f" h = hash(h, b{i}, {a.nbytes});" for i, a in case.expected.items())
    return text + (
        "int main(int argc, char **argv) {\n  HUM_Init(&argc, &argv);\n"
        f"  double begin = HUM_Wtime();\n  {calls}\n"
        f"  uint cycles = (uint)((HUM_Wtime() - begin) * {SOFT_MHZ}e6 + 0.5);\n"
        f"  uint h = 2166136261u;{hashes}\n"
        '  printf("cycles %u hash %u\\n", cycles, h);\n  HUM_Finalize();\n  return 0;\n}\n'
    )


def fnv(arrays):
    h = 2166136261
    for byte in b"".join(np.ascontiguousarray(a).tobytes() for a in arrays):
        h = (h ^ byte) * 16777619 & 0xFFFFFFFF
    return h


def soft(kernel):
    """Cycles per unit on the soft core."""
    case = kernel.make(kernel.soft_size)
    folder = WORK / kernel.name / "soft"
    folder.mkdir(exist_ok=True)
    (folder / "main.c").write_text(soft_source(kernel, case))
    for file in ["soft.h", "soft.c", f"{kernel.name}.cl"]:
        shutil.copy(HERE / file, folder)
    (folder / "logical.yaml").write_text(
        "kernel: {name: soft, num: 0, source: main.c, type: core}\n"
    )
    (folder / "map.yaml").write_text(
        "node: {type: hw, comm: eth, mac: '02:00:00:00:00:01', kernel: 0}\n"
    )
    command = [BALTRA, "cluster", "run", "logical.yaml", "map.yaml", "--out", folder / "out"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    words = (done.stdout.split("cycles ")[-1]).split()
    if done.returncode or len(words) < 3:
        raise RuntimeError(f"the soft core failed: {done.stdout}{done.stderr}")
    if int(words[2]) != fnv(case.expected.values()):
        raise RuntimeError("the soft core's bytes are wrong")
    return int(words[0]) / case.units


def yosys(program, name):
    """LUTs, block RAMs and multipliers of all kernels of a program, by synthesis for ECP5."""
    sys.path.insert(0, str(ROOT / "hdl/syn"))
    from flow import HDL, cells, install
    from flow import yosys as call

    install()
    work = WORK / name / "yosys"
    work.mkdir(exist_ok=True)
    totals = {}
    for file, text in program.files.items():
        (work / file).write_bytes(text)
        module = pathlib.Path(file).stem
        rooms = ["kernels", "messages", "hls", "common"]
        paths = [f"-I {HDL}/{room}/rtl" for room in rooms]
        libraries = [f"-y {HDL}/{room}/rtl" for room in rooms]
        sources = f"{HDL}/kernels/rtl/kernel_calls_pkg.sv {work / file}"
        call(
            [
                f"read_slang --ignore-assertions {' '.join(paths + libraries)} --libext .sv "
                f"--top {module} {sources}",
                f"synth_ecp5 -abc9 -top {module}",
                f"tee -q -o {work}/stat.json stat -json",
            ]
        )
        for key, value in cells(work / "stat.json").items():
            totals[key] = totals.get(key, 0) + value
    return totals


def place(names, arguments):
    """Places the kernels of all images that have been built."""
    command = [ROOT / "hdl/syn/images.py", *(WORK / name / "image" for name in names)]
    command += ["--seeds", arguments.seeds, "--jobs", str(arguments.jobs)]
    if not arguments.no_write:
        command.append("--write")
    return subprocess.run(command).returncode


def measure(kernel, environment, arguments):
    (WORK / kernel.name).mkdir(parents=True, exist_ok=True)
    image, first, again = build(kernel.name, environment)
    program = Program(kernel.name, image)
    size, case, cycles, seconds = largest(program, kernel)
    reports = [k["report"] for k in program.manifest["kernels"]]
    row = {
        "kernel": kernel.name,
        "size": kernel.describe(size),
        "unit": kernel.unit,
        "units": case.units,
        "cycles": cycles,
        "cycles_per_unit": cycles / case.units,
        "luts": sum(r["luts"] for r in reports),
        "block_rams": sum(r["block_rams"] for r in reports),
        "multipliers": sum(r["multipliers"] for r in reports),
        "loops": [loop for r in reports for loop in r["loops"]],
        "build_seconds": first,
        "cached_seconds": again,
        "simulation_seconds": seconds,
        "hand_written_cycles": case.hand_written,
    }
    if kernel.name == "vadd":
        row["bandwidth"] = 12 * case.units / PORT_BYTES / cycles
    if kernel.name == "matmul":
        row["of_16_per_cycle"] = case.units / 16 / cycles
    if arguments.yosys:
        row["yosys"] = yosys(program, kernel.name)
    if not arguments.no_soft:
        try:
            row["soft_cycles_per_unit"] = soft(kernel)
        except RuntimeError as error:
            row["soft_error"] = str(error)
    return row


def figure(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(rows):
    lines = [
        "| kernel | size | cycles | per unit | soft core, per unit | ratio | hand-written | LUTs | "
        "block RAMs | multipliers | build s | cached ms |",
        "|" + "---|" * 12,
    ]
    for row in rows:
        if "error" in row:
            lines.append(
                f"| {row['kernel']} | **failed:** {row['error'].splitlines()[0]} |" + " |" * 10
            )
            continue
        soft_cycles, hand_written = row.get("soft_cycles_per_unit"), row["hand_written_cycles"]
        cells = [
            row["kernel"],
            row["size"],
            f"{row['cycles']:,}",
            f"{figure(row['cycles_per_unit'])} / {row['unit']}",
            figure(soft_cycles) if soft_cycles else "–",
            f"{figure(soft_cycles / row['cycles_per_unit'])}x" if soft_cycles else "–",
            f"{hand_written:,}" if hand_written else "–",
            f"{row['luts']:,}",
            row["block_rams"],
            row["multipliers"],
            f"{row['build_seconds']:.1f}",
            f"{1000 * row['cached_seconds']:.1f}",
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    lines.append("")
    for row in rows:
        if "bandwidth" in row:
            lines.append(f"vadd: {row['bandwidth']:.1%} of the memory port's 8 bytes per cycle.")
        if "of_16_per_cycle" in row:
            share = row["of_16_per_cycle"]
            lines.append(f"matmul: {share:.1%} of 16 multiply-adds per cycle.")
        if "yosys" in row:
            lines.append(f"{row['kernel']}, Yosys for ECP5: {json.dumps(row['yosys'])}.")
        if "soft_error" in row:
            lines.append(f"{row['kernel']}, soft core: {row['soft_error'].strip()}")
    return lines


def commit():
    command = ["git", "-C", ROOT, "rev-parse", "--short=10", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "none"


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.machine()


def write(rows, lines):
    folder = ROOT / "bench/results/kernels"
    folder.mkdir(parents=True, exist_ok=True)
    machine = {
        "processor": processor(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "profile": pathlib.Path(BALTRA).parent.name,
    }
    path = folder / f"{datetime.date.today()}-{commit()}"
    content = {"commit": commit(), "machine": machine, "kernels": rows}
    path.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n")
    build = f"{machine['processor']}, {machine['cores']} cores, load {machine['load']:.1f}"
    head = f"""# Kernels from OpenCL C on the simulated hardware

Commit {commit()}, one run of `make bench-kernels`. Cycles with the model of DDR3-800 are the same in
each run. Compilation: {build}, {machine["profile"]} build. All results have the right bytes; area is the
compiler's estimate. bench/kernels/README.md defines the numbers.

"""
    path.with_suffix(".md").write_text(head + "\n".join(lines).rstrip() + "\n")
    print(f"\n{path.relative_to(ROOT)}.md")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="names of kernels, with commas between them")
    parser.add_argument("--seeds", default="1,2,3", help="of the placement")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count(), help="placements at a time")
    for flag in ["--yosys", "--place", "--no-soft", "--no-write"]:
        parser.add_argument(flag, action="store_true")
    arguments = parser.parse_args()
    names = [k.name for k in kernels.KERNELS]
    only = arguments.only.split(",") if arguments.only else names
    if unknown := set(only) - set(names):
        parser.error(f"no kernel '{unknown.pop()}' (there are {', '.join(names)})")
    WORK.mkdir(parents=True, exist_ok=True)
    compiler = ["cc", "-O1", "-Wall", HERE / "build.c", "-lOpenCL", "-o", WORK / "build"]
    subprocess.run(compiler, check=True)
    rows = []
    with daemon() as environment:
        for kernel in kernels.KERNELS:
            if kernel.name not in only:
                continue
            print(f"{kernel.name} …", file=sys.stderr, flush=True)
            try:
                rows.append(measure(kernel, environment, arguments))
            except RuntimeError as error:
                print(error, file=sys.stderr)
                rows.append({"kernel": kernel.name, "error": str(error)})
    lines = table(rows)
    print("\n".join(lines))
    failed = any("error" in row for row in rows)
    if not failed and not arguments.no_write:
        write(rows, lines)
    if not failed and arguments.place:
        return place([row["kernel"] for row in rows], arguments)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
