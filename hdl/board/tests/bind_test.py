#!/usr/bin/env python3
"""Functions of the board's own HTTP that are bound to kernels from OpenCL C.

usage: bind_test.py [PART OF A NAME …]     (no root; `make` first, for target/release/baltra)
"""

import array
import os
import random
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from harness import ROOT, image, run
from host_test import DEFINE, OK, REMOVE, REQUEST, UNKNOWN, WRONG, Port, board, http, is_well

BIND = 15
BALTRA = Path(os.environ.get("BALTRA", ROOT / "target/release/baltra"))
SOBEL = (ROOT / "apps" / "functions" / "sobel" / "sobel.cl").read_text()
SOURCE = (
    SOBEL
    + """
kernel void add(global const uint *in, global uint *out, uint more) {
  size_t i = get_global_id(0);
  out[i] = in[i] + more;
}
kernel void beyond(global const uchar *in, global uchar *out, uint at) { out[0] = in[at]; }
kernel void spill(global const uchar *in, global uchar *out, uint at) { out[at] = in[0]; }
kernel void nothing(global const uchar *in, global uchar *out) {}
kernel void forever(global volatile uchar *in, global uchar *out) { while (in[0] == 1) out[0] += 1; }
"""
)
IMAGE = None


def build(directory):
    source, file = Path(directory) / "kernels.cl", Path(directory) / "kernels.img"
    source.write_text(SOURCE)
    subprocess.run(
        [BALTRA, "accelerator", "build", source, "-o", file], check=True, stderr=subprocess.DEVNULL
    )
    return file


def push(running, name, kernel, arguments, *options, check=True):
    done = subprocess.run(
        [BALTRA, "function", "push", f"{name}={IMAGE}", "--board", running.path]
        + ["--kernel", kernel, "--args", arguments, *options],
        capture_output=True,
        text=True,
    )
    assert not check or done.returncode == 0, done.stderr
    return done.stderr


def push_edges(running, name="edges"):
    push(
        running,
        name,
        "sobel",
        "body,answer,width,body/width",
        *("--global", "width,body/width", "--scalars", "width"),
    )


def test_the_same_bytes_as_the_streaming_kernel():
    with board() as running:
        push_edges(running)
        for width, height in ((640, 3), (1, 1), (33, 17), (128, 32), (7, 300)):
            picture = random.Random(width).randbytes(width * height)
            query = f"?width={width}"
            expected = http(running, "sobel", picture, query)
            assert expected[0] == 200 and http(running, "edges", picture, query) == expected, width
        is_well(running)


def test_numbers_scalars_and_quotients():
    with board() as running:
        push(
            running,
            "add",
            "add",
            "body,answer,more",
            *("--global", "body/4", "--scalars", "more"),
        )
        numbers = [random.Random(3).randrange(1 << 32) for _ in range(1000)]
        body = struct.pack("<1000I", *numbers)
        for more in (0, 1, 4294967295):
            expected = struct.pack("<1000I", *((n + more) % (1 << 32) for n in numbers))
            assert http(running, "add", body, f"?more={more}") == (200, expected), more
        # A part of a number, no number at all, and a scalar that the function lacks.
        for content, query in ((b"abcde", "?more=1"), (b"", "?more=1"), (body, "?less=1")):
            status, text = http(running, "add", content, query)
            assert status == 400, (content[:8], query, status, text)
        push_edges(running)
        for query in ("", "?width=0", "?width=3", "?width=4294967295"):
            status, text = http(running, "edges", bytes(64), query)
            assert status == 400 and b"body and scalars" in text, (query, status, text)
        assert http(running, "edges", bytes(64), "?width=8")[0] == 200


def test_faults_end_alone():
    with board() as running:
        one = ("--global", "1", "--scalars", "at")
        push(running, "beyond", "beyond", "body,answer,at", *one, "--answer", "8")
        push(running, "spill", "spill", "body,answer,at", *one, "--answer", "8")
        push(
            running,
            "forever",
            "forever",
            "body,answer",
            *("--global", "1", "--answer", "1", "--timeout", "20000"),
        )
        push_edges(running)
        failures = []

        def edges():
            picture = bytes(range(256)) * 16
            expected = http(running, "sobel", picture, "?width=64")
            for _ in range(20):
                if http(running, "edges", picture, "?width=64") != expected:
                    failures.append("edges")

        thread = threading.Thread(target=edges)
        thread.start()
        for _ in range(3):
            body = b"0123456789abcdef"
            assert http(running, "beyond", body, "?at=15") == (200, b"f" + bytes(7))
            for name, at in (("beyond", 16), ("beyond", 100000), ("spill", 8), ("spill", 1 << 24)):
                status, text = http(running, name, body, f"?at={at}")
                assert status == 500 and b"outside of its buffers" in text, (name, at, status, text)
            assert http(running, "spill", body, "?at=7") == (200, bytes(7) + b"0")
            status, text = http(running, "forever", b"\1")
            assert status == 503 and b"in time" in text, (status, text)
            assert http(running, "forever", b"\0") == (200, b"\0")
        thread.join()
        assert not failures
        is_well(running)


def test_nothing_of_an_earlier_call_is_left():
    with board() as running:
        push_edges(running)
        push(running, "nothing", "nothing", "body,answer", "--global", "1", "--answer", "4096")
        push(running, "edges2", "sobel", "body,answer,64,64", "--global", "64,64")
        for _ in range(2):
            for name in ("edges", "edges2"):
                answer = http(
                    running, name, os.urandom(4096), "?width=64" if name == "edges" else ""
                )
                assert answer[0] == 200 and any(answer[1])
            assert http(running, "nothing", b"x") == (200, bytes(4096))


def test_functions_are_replaced_and_removed():
    with board() as running, Port(running.path) as port:
        free = port.about["memory_free"]
        for _ in range(3):
            push_edges(running, "f")
            assert http(running, "f", bytes(64), "?width=8") == (200, bytes(64))
            # Only HTTP calls it: a program's operands are not those of its entry.
            numbers = [port.call(n, b"words")[0] for n in range(64)]
            assert numbers == [UNKNOWN] * 64
            number = port.bring(DEFINE, image("uppercase"), name=b"f", timeout=1 << 20)["number"]
            assert http(running, "f", b"words") == (200, b"WORDS")
            assert port.call(number, b"words")[:2] == (OK, b"WORDS")
        push_edges(running, "f")
        assert port.ask(REMOVE, name=b"f")["status"] == OK
        assert http(running, "f", bytes(64), "?width=8")[0] == 404
        assert Port(running.path).about["memory_free"] == free


def test_bindings_that_are_refused():
    with board() as running:
        for kernel, arguments, options, why in (
            ("sobel", "body,answer,1", ("--global", "1"), "4 arguments"),
            ("none", "body", ("--global", "1"), "no kernel 'none'"),
            ("add", "body,answer,more", ("--global", "1"), "invalid operand 'more'"),
            ("add", "body,1,1", ("--global", "1"), "is a buffer"),
            ("add", "body,answer,1", ("--global", "1,1,1,1"), "1 to 3 dimensions"),
        ):
            assert why in push(running, "f", kernel, arguments, *options, check=False), why
        assert http(running, "f", b"")[0] == 404
        with Port(running.path) as port, tempfile.TemporaryFile() as library:
            library.write(b"not a library")
            library.flush()

            def bind(binding, name=b"f"):
                port.window[: len(binding)] = binding
                port.id += 1
                fields = (0, 0, 4096, len(binding), 0, 0, 0, 0, 0, 0, 0, 0)
                packet = struct.pack(REQUEST, BIND, port.id, *fields, name, b"")
                rights = [
                    (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [library.fileno()]))
                ]
                port.socket.sendmsg([packet], rights)
                return port.receive()["status"]

            assert bind(struct.pack("<IIQQ", 1, 0, 0, 0)) == WRONG
            assert bind(struct.pack("<IIQQ", 1, 0, 0, 0), b"a/b") == WRONG
        is_well(running)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        IMAGE = build(directory)
        tests = [v for k, v in list(globals().items()) if k.startswith("test_")]
        run(tests, sys.argv[1:])
