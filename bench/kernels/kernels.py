"""The kernels of the benchmark: their launches, inputs and references.

Inputs are reproducible. References compute each float operation in the kernel's order, rounded to
32 bits, so that results are compared byte for byte.
"""

import dataclasses
import hashlib
import pathlib
import re

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
F32 = np.float32


@dataclasses.dataclass
class Launch:
    kernel: str
    size: tuple  # global
    group: tuple  # local
    arguments: list  # indices of buffers as ('buffer', n), or numbers


@dataclasses.dataclass
class Case:
    """Launches on buffers, and the contents that buffers have at the end, by index."""

    buffers: list
    launches: list
    expected: dict
    units: int
    hand_written: int | None = None  # cycles by docs/kernels.md
    soft_calls: str = ""  # C for the soft core, in place of the first launch


@dataclasses.dataclass
class Kernel:
    name: str
    unit: str
    make: object  # size to case
    sizes: list  # of which the largest that takes at most a minute is measured
    soft_size: object  # size for the soft core
    describe: object


def random(count, seed=1):
    """Numbers of 32 bits: a linear congruential generator's upper halves."""
    state = np.uint64(seed)
    rng = np.random.default_rng(int(state))
    return rng.integers(0, 1 << 32, count, dtype=np.uint32)


def floats(count, seed=1):
    return ((random(count, seed) >> 8).astype(F32) / F32(1 << 23) - F32(1)).astype(F32)


def buffer(n):
    return ("buffer", n)


def vadd(n):
    a, b = floats(n, 1), floats(n, 2)
    launch = Launch("vadd", (n,), (64,), [buffer(0), buffer(1), buffer(2)])
    return Case([a, b, np.zeros(n, F32)], [launch], {2: a + b}, n)


def sobel(size):
    width, height = size
    picture = random(width * height).astype(np.uint8).reshape(height, width)
    p = np.pad(picture.astype(np.int32), 1, mode="edge")
    part = lambda dy, dx: p[1 + dy : 1 + dy + height, 1 + dx : 1 + dx + width]
    across = (
        part(-1, 1) + 2 * part(0, 1) + part(1, 1) - part(-1, -1) - 2 * part(0, -1) - part(1, -1)
    )
    down = part(1, -1) + 2 * part(1, 0) + part(1, 1) - part(-1, -1) - 2 * part(-1, 0) - part(-1, 1)
    edges = np.minimum(abs(across) + abs(down), 255).astype(np.uint8)
    launch = Launch("sobel", (width, height), (1, 1), [buffer(0), buffer(1), width, height])
    hand_written = (width * height + width) // 8 + 12
    return Case([picture, np.zeros_like(edges)], [launch], {1: edges}, edges.size, hand_written)


def sha256(size):
    messages, blocks = size
    length = 64 * blocks - 9
    data = random(messages * length).astype(np.uint8).reshape(messages, length)
    padded = [m.tobytes() + b"\x80" + (8 * length).to_bytes(8, "big") for m in data]
    digests = b"".join(hashlib.sha256(m.tobytes()).digest() for m in data)
    words = np.frombuffer(b"".join(padded), np.uint32)
    out = np.frombuffer(digests, np.uint32)
    launch = Launch("sha256", (messages,), (1,), [buffer(0), buffer(1), blocks])
    hand_written = messages * (65 * (blocks - 1) + 74)
    return Case([words, np.zeros_like(out)], [launch], {1: out}, messages * blocks, hand_written)


def s_box():
    text = (pathlib.Path(__file__).parent / "aes.cl").read_text()
    return [int(x, 16) for x in re.findall(r"0x([0-9a-f]{2})\b", text.split("};")[0])]


def aes(blocks):
    """Counter mode by FIPS 197, in numpy over all blocks."""
    box = np.array(s_box(), np.uint8)
    key = list(random(16, 5).astype(np.uint8))
    keys, factor = [[int(x) for x in key[i : i + 4]] for i in range(0, 16, 4)], 1
    for i in range(4, 44):
        word = list(keys[i - 1])
        if i % 4 == 0:
            word = [int(box[x]) for x in word[1:] + word[:1]]
            word[0] ^= factor
            factor = factor << 1 ^ (0x11B if factor & 0x80 else 0)
        keys.append([x ^ y for x, y in zip(keys[i - 4], word)])
    keys = np.array(keys, np.uint8).reshape(11, 16)
    first = 7
    state = np.zeros((blocks, 16), np.uint8)
    counts = np.arange(first, first + blocks, dtype=np.uint32)
    for i in range(4):
        state[:, 12 + i] = counts >> (24 - 8 * i) & 255
    state ^= keys[0]
    order = [(i + 4 * (i & 3)) & 15 for i in range(16)]
    for turn in range(1, 11):
        t = box[state[:, order]]
        if turn < 10:
            columns = t.reshape(-1, 4, 4)
            both = columns ^ np.roll(columns, -1, 2)
            doubled = (both << 1) ^ ((both >> 7) * 0x1B).astype(np.uint8)
            every = np.bitwise_xor.reduce(columns, 2)[:, :, None]
            t = (columns ^ every ^ doubled).reshape(-1, 16)
        state = t ^ keys[turn]
    text = random(16 * blocks).astype(np.uint8).reshape(blocks, 16)
    arguments = [buffer(0), buffer(1), buffer(2), first]
    launch = Launch("aes", (blocks,), (1,), arguments)
    return Case([text, np.zeros_like(text), keys], [launch], {1: text ^ state}, blocks, 11 * blocks)


def histogram(count):
    data = random(count).astype(np.uint8)
    expected = np.bincount(data, minlength=256).astype(np.int32)
    each = 16
    launch = Launch("histogram", (count // each,), (256,), [buffer(0), buffer(1), each])
    case = Case([data, np.zeros(256, np.int32)], [launch], {1: expected}, count)
    case.soft_calls = f"histogram(b0, b1, {count});"
    return case


def prefix(count):
    """Three launches; the sums of up to 256 blocks of 256 are scanned as one block."""
    data = (random(count) & 0xFFFF).astype(np.int32)
    out = np.cumsum(data, dtype=np.int32)
    blocks = count // 256
    sums = np.zeros(256, np.int32)
    launches = [
        Launch("scan", (count,), (256,), [buffer(0), buffer(1), buffer(2)]),
        Launch("scan", (256,), (256,), [buffer(2), buffer(3), buffer(4)]),
        Launch("add", (count,), (256,), [buffer(1), buffer(3)]),
    ]
    buffers = [data, np.zeros_like(data), sums, sums.copy(), np.zeros(1, np.int32)]
    case = Case(buffers, launches, {1: out}, count)
    assert blocks <= 256
    case.soft_calls = f"prefix(b0, b1, {count});"
    return case


def spmv(size):
    rows, each = size
    counts = random(rows) % (2 * each + 1)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    total = int(starts[-1])
    columns = (random(total, 2) % rows).astype(np.int32)
    values, x = floats(total, 3), floats(rows, 4)
    y = np.zeros(rows, F32)
    for row in range(rows):
        value = F32(0)
        for i in range(starts[row], starts[row + 1]):
            value = F32(value + F32(values[i] * x[columns[i]]))
        y[row] = value
    arguments = [buffer(i) for i in range(5)]
    launch = Launch("spmv", (rows,), (1,), arguments)
    return Case([starts, columns, values, x, np.zeros_like(y)], [launch], {4: y}, total)


def kmeans(count):
    points, centers = floats(4 * count, 1).reshape(-1, 4), floats(64, 2).reshape(16, 4)
    d = points[:, None, :] - centers[None, :, :]
    d = d * d
    far = ((d[..., 0] + d[..., 1]) + d[..., 2]) + d[..., 3]
    nearest = np.argmin(far, 1).astype(np.int32)
    launch = Launch("kmeans", (count,), (1,), [buffer(0), buffer(1), buffer(2)])
    case = Case([points, centers, np.zeros_like(nearest)], [launch], {2: nearest}, count)
    case.soft_calls = f"kmeans(b0, b1, b2, {count});"
    return case


def fft(transforms):
    n, stages = 1024, 10
    order = [int(f"{i:010b}"[::-1], 2) for i in range(n)]
    natural = floats(2 * n * transforms).reshape(transforms, n, 2)
    data = np.ascontiguousarray(natural[:, order])
    angles = -2 * np.pi * np.arange(n // 2) / n
    roots = np.stack([np.cos(angles), np.sin(angles)], 1).astype(F32)
    x = data.copy()
    for stage in range(stages):
        pair = np.arange(n // 2)
        low = pair & ((1 << stage) - 1)
        at = ((pair >> stage) << (stage + 1)) + low
        w, a, b = roots[low << (9 - stage)], x[:, at], x[:, at + (1 << stage)]
        c = np.stack(
            [
                b[..., 0] * w[:, 0] - b[..., 1] * w[:, 1],
                b[..., 0] * w[:, 1] + b[..., 1] * w[:, 0],
            ],
            2,
        )
        x[:, at], x[:, at + (1 << stage)] = a + c, a - c
    exact = np.fft.fft(natural[..., 0] + 1j * natural[..., 1])
    assert np.allclose(x[..., 0] + 1j * x[..., 1], exact, atol=1e-3)
    launch = Launch("fft", (256 * transforms,), (256,), [buffer(0), buffer(1), buffer(2)])
    case = Case([data, np.zeros_like(data), roots], [launch], {1: x}, transforms)
    case.soft_calls = "fft(b0, b1, b2);"
    return case


def matmul(n):
    a, b = floats(n * n, 1).reshape(n, n), floats(n * n, 2).reshape(n, n)
    c = np.zeros((n, n), F32)
    for k in range(n):
        c += a[:, k : k + 1] * b[k]
    arguments = [buffer(0), buffer(1), buffer(2), n]
    launch = Launch("matmul", (n // 16, n), (8, 128), arguments)
    case = Case([a, b, np.zeros_like(c)], [launch], {2: c}, n**3)
    case.soft_calls = f"matmul(b0, b1, b2, {n});"
    return case


KERNELS = [
    Kernel("vadd", "float", vadd, [1 << 20], 1000, lambda n: f"{n:,} floats"),
    Kernel("sobel", "pixel", sobel, [(1920, 1080)], (64, 32), lambda s: f"{s[0]}x{s[1]} gray"),
    Kernel("matmul", "multiply-add", matmul, [128, 256, 512], 16, lambda n: f"{n}x{n}, tiled"),
    Kernel(
        "sha256",
        "block",
        sha256,
        [(64, 4)],
        (2, 2),
        lambda s: f"{s[0]} messages, {s[1]} blocks each",
    ),
    Kernel("aes", "block", aes, [4096], 16, lambda n: f"{n:,} blocks of 16 bytes"),
    Kernel("histogram", "byte", histogram, [1 << 16], 4096, lambda n: f"{n:,} bytes"),
    Kernel("prefix", "integer", prefix, [1 << 16], 2048, lambda n: f"{n:,} integers"),
    Kernel(
        "spmv",
        "nonzero",
        spmv,
        [(4096, 16)],
        (64, 8),
        lambda s: f"{s[0]:,} rows, {s[1]} values each on average",
    ),
    Kernel("kmeans", "point", kmeans, [1 << 14], 64, lambda n: f"{n:,} points, 16 centers"),
    Kernel("fft", "transform", fft, [8], 1, lambda n: f"{n} of 1,024"),
]
