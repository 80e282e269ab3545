#!/usr/bin/env python3
"""Runs layers of a network on PipeCNN's kernels, as they are, on the simulated hardware.

usage: bench/kernels/pipecnn.py PIPECNN [--vec N] [--lanes N] [--size N] [--inputs N] [--outputs N]
       [--kernel N] [--stride N] [--padding N] [--split] [--no-pool] [--alexnet]
       [--library FILE MANIFEST]

PIPECNN    a checkout of github.com/doonny/PipeCNN; its files are read, not changed
--vec      VEC_SIZE, elements of a vector (default 4)
--lanes    LANE_NUM, output channels at a time (default 4)
--size     width and height of the layer's input (default 13)
--inputs   channels of an output's input (default 8), which zeroes extend to a multiple of VEC_SIZE
--outputs  channels of the layer's output, a multiple of both (default 8)
--kernel   width and height of the convolution's window (default 3)
--stride   of the convolution (default 1)
--padding  zeroes around the input (default 1)
--split    the layer has two halves of outputs, each of its own inputs
--no-pool  the convolution with ReLU alone, as in layers that no pooling follows
--alexnet  the five layers of convolution of AlexNet, one after another, without pooling
--library  a simulation library and its manifest that were built before

The layer is a convolution, ReLU, pooling of 3x3 with stride 2, and local response normalization. Five
kernels, four of them connected by channels and running at the same time, compute it. Prints cycles,
cycles per packet of data (VEC_SIZE x LANE_NUM products), the part of the time in which the
multipliers work, and the layer's products per cycle (without those of zeroes that extend the inputs).
Exit status 1: a byte is wrong, or a kernel did not end. BALTRA: the program to measure (default
target/release/baltra).
"""

import argparse
import ctypes
import dataclasses
import json
import pathlib
import re
import subprocess
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import run  # noqa: E402

DEVICE = "project_intel/device"
MEMORY_BYTES = 256  # EMULATE_MEMORY_BYTES
CYCLES_MAX = 50_000_000
# The argument of `memWrite` that selects pooling.
POOL_ON = 8
FRAC_W, FRAC_IN, FRAC_OUT = 7, 0, 0
GROUP_X, POOL_GROUP_X, POOL, STRIDE = 7, 4, 3, 2


@dataclasses.dataclass
class Layer:
    """A convolution."""

    size: int
    inputs: int  # of an output
    outputs: int
    kernel: int
    stride: int
    padding: int
    split: bool

    @property
    def side(self):
        """Width and height of its output."""
        return (self.size + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def products(self):
        return self.side**2 * self.outputs * self.kernel**2 * self.inputs


ALEXNET = [
    Layer(227, 3, 96, 11, 4, 0, False),
    Layer(27, 48, 256, 5, 1, 2, True),
    Layer(13, 256, 384, 3, 1, 1, False),
    Layer(13, 192, 384, 3, 1, 1, True),
    Layer(13, 192, 256, 3, 1, 1, True),
]


def parameters(source, vec, lanes):
    """`hw_param.cl` for AlexNet with these sizes: its author means it to be edited."""
    text = re.sub(r"(?m)^#define (RESNET|VGG16)$", r"// #define \1", source)
    text = re.sub(r"(?m)^// *#define ALEXNET$", "#define ALEXNET", text)
    text = re.sub(r"(?m)^#define VEC_SIZE .*", f"#define VEC_SIZE {vec}", text)
    return re.sub(r"(?m)^#define LANE_NUM .*", f"#define LANE_NUM {lanes}", text)


def built(checkout, vec, lanes):
    """The image of the kernels, and the path of its library."""
    work = run.WORK / "pipecnn"
    work.mkdir(parents=True, exist_ok=True)
    device = checkout / DEVICE
    for name in ["rtl_lib.h", "c_model.cl"]:
        (work / name).write_text((device / "RTL" / name).read_text())
    text = parameters((device / "hw_param.cl").read_text(), vec, lanes)
    (work / "hw_param.cl").write_text(text)
    # The library's function in C is in front of the kernels; Intel's compiler links it.
    source = (work / "c_model.cl").read_text() + "\n" + (device / "conv_pipe.cl").read_text()
    (work / "pipecnn.cl").write_text(source)
    image = work / "pipecnn.img"
    command = [run.BALTRA, "accelerator", "build", work / "pipecnn.cl", "-o", image]
    subprocess.run([*command, "--options", f"-I {work}"], check=True)
    manifest, _, library = run.parts(image.read_bytes())
    path = work / "program.so"
    path.write_bytes(library)
    return manifest, path


class Kernels:
    """A program's kernels, of which several run at the same time."""

    def __init__(self, manifest, path):
        self.manifest = manifest
        self.library = ctypes.CDLL(str(path))
        self.library.baltra_emulate.restype = ctypes.POINTER(run.Api)
        self.api = self.library.baltra_emulate().contents
        if self.api.abi != run.ABI:
            raise RuntimeError(f"the library's interface is version {self.api.abi}")

    def start(self, name, arguments, size, group, place, memory):
        names = [k["name"] for k in self.manifest["kernels"]]
        number = names.index(name)
        words, used = [*size, 0, 0, 0, *group, 3], []
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                used.append(argument)
                words.append(len(used) << 28)
            else:
                words.append(argument)
        spaces = (run.Buffer * max(len(used), 1))()
        for space, array in zip(spaces, used):
            space.bytes, space.size = array.ctypes.data, array.nbytes
        block = (ctypes.c_uint64 * len(words))(*[w & (1 << 64) - 1 for w in words])
        timing = ctypes.addressof(memory)
        call = run.Launch(block, len(words), len(used), spaces, None, None, timing, place << 16)
        instance = self.api.create(number)
        self.api.start(instance, ctypes.byref(call))
        return instance, run.Result(), (block, spaces, call, used)

    def together(self, launches):
        """Runs kernels in turns of a cycle; returns the cycles of each."""
        memory = (ctypes.c_uint64 * (MEMORY_BYTES // 8))()
        runs = []
        for place, (name, arguments, size, group) in enumerate(launches):
            runs.append((name, *self.start(name, arguments, size, group, place % 4, memory)))
        step = self.api.run
        for now in range(CYCLES_MAX):
            active = False
            for _, instance, result, _ in runs:
                if result.state == 0:
                    step(instance, now, 1, ctypes.byref(result))
                    active = True
            if not active:
                break
        for name, instance, result, _ in runs:
            self.api.destroy(instance)
            if result.state != run.DONE:
                raise RuntimeError(f"{name}: state {result.state}, waits for {result.waits}")
        return {name: result.cycles for name, _, result, _ in runs}


def interleaved(values, vec):
    """[z][y][x] as vectors: [z / vec][y][x][vec]."""
    depth, height, width = values.shape
    return values.reshape(depth // vec, vec, height, width).transpose(0, 2, 3, 1).copy()


def convolution(layer, data, weights, bias):
    """As `coreConv` rounds it."""
    around = (layer.padding, layer.padding)
    padded = np.pad(data.astype(np.int64), ((0, 0), around, around))
    side, step = layer.side, layer.stride
    total = np.zeros((layer.outputs, side, side), np.int64)
    parts = 2 if layer.split else 1
    of_part = layer.outputs // parts
    reach = (side - 1) * step + 1
    for part in range(parts):
        own = slice(part * of_part, (part + 1) * of_part)
        for z in range(layer.inputs):
            plane = padded[part * layer.inputs + z]
            for y in range(layer.kernel):
                for x in range(layer.kernel):
                    factors = weights[own, z, y, x].astype(np.int64)[:, None, None]
                    total[own] += factors * plane[y : y + reach : step, x : x + reach : step]
    rounded = (total >> (FRAC_W + FRAC_IN - FRAC_OUT - 1)) + 1
    added = (rounded & 0x1FE) + (bias.astype(np.int64) >> (FRAC_W - FRAC_OUT - 1))[:, None, None] + 1
    added = np.where(rounded >= 256, 0xFE, np.where(rounded < -256, 0x100, added))
    final = ((added >> 1) & 0xFF).astype(np.uint8).view(np.int8)
    return np.maximum(final, 0)


def pooling(data):
    side = (data.shape[1] - POOL) // STRIDE + 1
    out = np.zeros((data.shape[0], side, side), np.int8)
    for y in range(side):
        for x in range(side):
            window = data[:, STRIDE * y : STRIDE * y + POOL, STRIDE * x : STRIDE * x + POOL]
            out[:, y, x] = window.max(axis=(1, 2))
    return out


def normalization(data, source):
    """As `lrn` interpolates it, with the tables of `hw_param.cl`."""
    tables = {}
    for name in ["coef0", "coef1", "h_inv", "x_sample"]:
        values = re.search(rf"{name}\[46\] = {{(.*?)}}", source).group(1).split(",")
        tables[name] = np.array([float(v) for v in values] + [0] * 46, np.float32)[:46]
    value = data.astype(np.float32)
    padded = np.pad(value, ((2, 2), (0, 0), (0, 0)))
    squares = sum(padded[k : k + len(data)] ** 2 for k in range(5)).astype(np.float32)
    bits = squares.view(np.int32)
    exponent, mantissa = (bits >> 23 & 0xFF) - 127, bits & 0x7FFFFF
    place = np.where(exponent < 13, 0, ((exponent - 13) << 2) + (mantissa >> 21 & 3) + 1)
    get = {name: table[place] for name, table in tables.items()}
    result = (squares - get["x_sample"]) * get["h_inv"] * get["coef1"] + get["coef0"]
    return np.rint(result * value).astype(np.int8)


def launches(layer, vec, lanes, buffers):
    """The kernels of the layer with the arguments that PipeCNN's host computes."""
    kernel, conv, outputs = layer.kernel, layer.side, layer.outputs
    inputs = -(-layer.inputs // vec) * vec
    groups = -(-conv // GROUP_X)
    window = kernel + (GROUP_X - 1) * layer.stride
    rest = (conv % GROUP_X or GROUP_X) * kernel
    whole, taps = outputs // lanes, kernel * kernel * inputs
    side = (conv - POOL) // STRIDE + 1
    pool_window = POOL + (POOL_GROUP_X - 1) * STRIDE
    load, back = pool_window * POOL, POOL_GROUP_X * lanes
    bound, windows = max(load, back), -(-side // POOL_GROUP_X)
    data, weights, bias, between, pooled, out = buffers
    area, conv_area = layer.size**2, conv * conv
    read = [layer.size, layer.size, area, kernel, kernel, inputs, whole, kernel * kernel, taps, conv]
    read += [layer.stride, layer.padding, int(layer.split), groups, conv, rest, rest * kernel * inputs]
    read += [window, kernel, window * kernel * inputs]
    core = [conv_area * whole, taps // vec, 1, FRAC_W, FRAC_IN, FRAC_OUT]
    pool = [conv, conv_area, side, outputs, side * side, POOL, STRIDE, 0, whole * side, whole]
    pool += [(windows + 1) * bound, bound, load, back, windows, pool_window]
    write = [conv, conv, outputs, conv, conv_area, 0, 0, 0, 1, POOL, STRIDE]
    one = [1, 1, 1]
    first = [
        ("memRead", [*read, data, weights, bias], one, one),
        ("coreConv", core, one, one),
        ("maxPool", [*pool, between, pooled], one, one),
        ("memWrite", [*write, between], one, one),
    ]
    deep = outputs // vec
    return first, [("lrn", [side, side, FRAC_OUT, pooled, out], [side, side, deep], [1, 1, deep])]


def extended(values, axis, vec):
    """With zeroes up to a multiple of `vec` channels."""
    missing = [(0, 0)] * values.ndim
    missing[axis] = (0, -values.shape[axis] % vec)
    return np.pad(values, missing)


def run_layer(kernels, layer, arguments):
    """Runs a layer and prints its figures; returns its cycles, and whether a byte is wrong."""
    vec, lanes, kernel = arguments.vec, arguments.lanes, layer.kernel
    outputs, conv = layer.outputs, layer.side
    random = np.random.default_rng(1)
    channels = layer.inputs * (2 if layer.split else 1)
    data = random.integers(-30, 31, (channels, layer.size, layer.size)).astype(np.int8)
    shape = (outputs, layer.inputs, kernel, kernel)
    weights = random.integers(-40, 41, shape).astype(np.int8)
    bias = random.integers(-60, 61, outputs).astype(np.int8)
    # [group of lanes][z / vec][y][x][lane][vec]
    shaped = extended(weights, 1, vec)
    inputs = shaped.shape[1]
    shaped = shaped.reshape(outputs // lanes, lanes, inputs // vec, vec, kernel, kernel)
    shaped = shaped.transpose(0, 2, 4, 5, 1, 3).copy()
    side = (conv - POOL) // STRIDE + 1
    between = np.zeros(outputs * conv * conv, np.int8)
    pooled, out = (np.zeros(outputs * side * side, np.int8) for _ in range(2))
    buffers = (interleaved(extended(data, 0, vec), vec), shaped, bias, between, pooled, out)
    first, then = launches(layer, vec, lanes, buffers)
    whole = convolution(layer, data, weights, bias)
    if arguments.no_pool:
        read, core, _, write = first
        write[1][POOL_ON] = 0
        cycles = kernels.together([read, core, write])
        wrong = {"convolution": int((between != interleaved(whole, vec).ravel()).sum())}
    else:
        cycles = kernels.together(first)
        cycles |= kernels.together(then)
        expected = pooling(whole)
        source = (arguments.checkout / DEVICE / "hw_param.cl").read_text()
        normal = interleaved(normalization(expected, source), vec).ravel()
        wrong = {"pooling": int((pooled != interleaved(expected, vec).ravel()).sum())}
        wrong["normalization"] = int((out != normal).sum())
    packets = conv * conv * (outputs // lanes) * kernel * kernel * inputs // vec
    taken = cycles["coreConv"]
    print(
        f"{layer.size}x{layer.size}x{channels} to {outputs}, {kernel}x{kernel}, stride "
        f"{layer.stride}{', split' if layer.split else ''}, VEC_SIZE {vec}, LANE_NUM {lanes}: "
        f"{packets} packets"
    )
    for name, count in cycles.items():
        print(f"  {name:9} {count:9} cycles")
    print(
        f"  {taken / packets:.1f} cycles per packet, multipliers busy {packets / taken:.1%}, "
        f"{layer.products / taken:.1f} products of the layer per cycle"
    )
    names = ", ".join(f"{name} {count}" for name, count in wrong.items())
    print(f"  wrong bytes: {names}", flush=True)
    return max(cycles.values()), any(wrong.values())


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("checkout", type=pathlib.Path)
    sizes = dict(vec=4, lanes=4, size=13, inputs=8, outputs=8, kernel=3, stride=1, padding=1)
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    for flag in ["--split", "--no-pool", "--alexnet"]:
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--library", nargs=2, type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.library:
        manifest, path = json.loads(arguments.library[1].read_text()), arguments.library[0]
    else:
        manifest, path = built(arguments.checkout, arguments.vec, arguments.lanes)
    kernels = Kernels(manifest, path)
    layers = ALEXNET
    if arguments.alexnet:
        arguments.no_pool = True
    else:
        fields = [field.name for field in dataclasses.fields(Layer)]
        layers = [Layer(**{name: getattr(arguments, name) for name in fields})]
    results = [run_layer(kernels, layer, arguments) for layer in layers]
    if arguments.alexnet:
        cycles = sum(cycles for cycles, _ in results)
        products = sum(layer.products for layer in layers)
        print(f"all layers: {cycles} cycles, {products / cycles:.1f} products per cycle")
    return 1 if any(wrong for _, wrong in results) else 0


if __name__ == "__main__":
    sys.exit(main())
