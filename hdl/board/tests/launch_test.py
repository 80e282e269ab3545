#!/usr/bin/env python3
"""Kernels compiled from OpenCL C in the board's regions: launches over the host port, with buffers in
board memory.

usage: launch_test.py [PART OF A NAME …]     (no root; `make` first, for target/release/baltra)
"""

import array
import contextlib
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from harness import PATIENCE_S, REGIONS, image, run
from host_test import (
    FULL,
    KILLED,
    LOAD,
    OK,
    REQUEST,
    UNKNOWN,
    UNLOAD,
    WRONG,
    Port,
    board,
    is_well,
)

BRING, TAKE, GIVE, PUT, GET, LAUNCH, CANCEL = range(7, 14)
FAULT, FAILED = 67, 68
ROOT = Path(__file__).resolve().parents[3]
BALTRA = Path(os.environ.get("BALTRA", ROOT / "target/release/baltra"))
TEXT = 1 << 19  # in the window
KERNELS = ("add", "stray", "forever", "hello")
SOURCE = """
__kernel void add(__global const float *a, __global const float *b, __global float *c, int n) {
  int i = get_global_id(0);
  if (i < n) c[i] = a[i] + b[i];
}
__kernel void stray(__global int *a, int at) { a[at] = 7; }
__kernel void forever(__global volatile int *a) { while (a[0] == 0) a[1] += 1; }
__kernel void hello(__global int *a) {
  printf("item %d of %d\\n", (int)get_global_id(0), (int)get_global_size(0));
  a[get_global_id(0)] = get_local_id(0) * 1000 + get_group_id(0) * 100 + get_global_offset(0);
}
"""


def build():
    """The program's simulation library, out of its image (crates/board/src/accelerator.rs)."""
    with tempfile.TemporaryDirectory() as directory:
        source, file = Path(directory) / "program.cl", Path(directory) / "program.img"
        source.write_text(SOURCE)
        subprocess.run(
            [BALTRA, "accelerator", "build", source, "-o", file],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        rest = file.read_bytes()[40:]
    parts = []

    def part():
        nonlocal rest
        length = struct.unpack("<I", rest[:4])[0]
        parts.append(rest[4 : 4 + length])
        rest = rest[4 + length :]

    part()
    count, rest = struct.unpack("<I", rest[:4])[0], rest[4:]
    for _ in range(2 * count + 1):
        part()
    assert not rest
    return parts[-1]


LIBRARY = None


class Program(Port):
    """A program with kernels of its own."""

    def kernel(self, name, library=None):
        with tempfile.TemporaryFile() as file:
            file.write(LIBRARY if library is None else library)
            file.flush()
            self.id += 1
            number = KERNELS.index(name) if name in KERNELS else 99
            packet = struct.pack(
                REQUEST, BRING, self.id, 0, 0, 65536, 0, number, 0, 0, 0, 0, 0, 0, 0, b"", b""
            )
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file.fileno()]))]
            self.socket.sendmsg([packet], rights)
            return self.receive()

    def take(self, bytes):
        return self.ask(TAKE, bytes=bytes)["place"]

    def put(self, place, content):
        content = content.ljust(-(-len(content) // 256) * 256, b"\0")
        self.window[: len(content)] = content
        return self.ask(PUT, answer=place, bytes=len(content))["status"]

    def get(self, place, length):
        bytes = -(-length // 256) * 256
        assert self.ask(GET, answer=place, bytes=bytes)["status"] == OK
        return self.window[:length]

    def launch(self, *arguments, **more):
        self.begin(*arguments, **more)
        return self.end()

    def begin(self, number, items, *arguments, offset=0, local=1, timeout=1 << 22):
        """`arguments`: numbers, and buffers as (place, bytes[, writable])."""
        words = [items, 1, 1, offset, 0, 0, local, 1, 1, 1]
        buffers = []
        for argument in arguments:
            if isinstance(argument, int):
                words.append(argument & (1 << 64) - 1)
            else:
                buffers.append(argument)
                words.append(len(buffers) << 28)
        head = struct.pack(f"=II{len(words)}Q", len(words), len(buffers), *words)
        for place, bytes, *writable in buffers:
            head += struct.pack("=QII", bytes, place, *(writable or [1]))
        self.window[: len(head)] = head
        self.send(LAUNCH, number=number, bytes=len(head), answer=TEXT, room=TEXT, timeout=timeout)

    def end(self):
        """The reply to a launch, and its text."""
        reply = self.receive()
        assert reply["op"] == LAUNCH, reply
        return reply, self.window[TEXT : TEXT + reply["bytes"]].decode()


@contextlib.contextmanager
def programs(count=1):
    with board() as running, contextlib.ExitStack() as stack:
        yield running, *[stack.enter_context(Program(running.path)) for _ in range(count)]


def add(program, number, count):
    """Vector addition of `count` floats; the reply."""
    a, b = [float(i) for i in range(count)], [float(3 * i + 1) for i in range(count)]
    places = [program.take(4 * count) for _ in range(3)]
    for place, values in zip(places, (a, b)):
        assert program.put(place, struct.pack(f"={count}f", *values)) == OK
    reply, _ = program.launch(
        number, count, *[(place, 4 * count) for place in places], count, local=4
    )
    assert reply["status"] == OK, reply
    result = struct.unpack(f"={count}f", program.get(places[2], 4 * count))
    assert list(result) == [x + y for x, y in zip(a, b)]
    for place in places:
        assert program.ask(GIVE, answer=place)["status"] == OK
    return reply


def test_vector_addition():
    with programs() as (running, program):
        number = program.kernel("add")["number"]
        first = add(program, number, 1024)
        assert first["loaded"] == 1 and add(program, number, 1000)["loaded"] == 0
        assert 1024 <= first["kernel_cycles"] < 1 << 16, first
        is_well(running)


def test_offset_local_size_and_text():
    with programs() as (_, program):
        number = program.kernel("hello")["number"]
        place = program.take(256)
        reply, text = program.launch(number, 8, (place, 256), offset=3, local=4)
        assert reply["status"] == OK, reply
        assert sorted(text.splitlines()) == sorted(f"item {i} of 8" for i in range(3, 11)), text
        values = struct.unpack("=16i", program.get(place, 64))
        assert values == (0, 0, 0, *[i % 4 * 1000 + i // 4 * 100 + 3 for i in range(8)], *[0] * 5)


def test_an_access_outside_of_its_buffer_faults_alone():
    with programs(2) as (running, program, other):
        number, theirs = program.kernel("stray")["number"], other.kernel("add")["number"]
        place, neighbor = program.take(256), other.take(256)
        other.put(neighbor, b"\x55" * 256)
        for at, offset in ((64, 256), (63 + 64, 508), (-1, (1 << 28) - 4)):
            reply, _ = program.launch(number, 1, (place, 256), at)
            assert reply["status"] == FAULT and reply["write"] == 1, reply
            # An offset that leaves the argument's range belongs to another buffer, or to none.
            if at > 0:
                assert (reply["buffer"], reply["place"]) == (1, offset), reply
        assert program.launch(number, 1, (place, 256, 0), 0)[0]["status"] == FAULT
        assert program.launch(number, 1, (place, 256), 5)[0]["status"] == OK
        assert other.get(neighbor, 256) == b"\x55" * 256
        assert program.get(place, 256) == struct.pack("=64i", *[0] * 5, 7, *[0] * 58)
        add(other, theirs, 64)


def test_an_endless_kernel_ends_at_its_limit():
    with programs(2) as (running, program, other):
        endless, number = program.kernel("forever")["number"], other.kernel("add")["number"]
        place = program.take(256)
        for limit in (20000, 20001, 20002, 20017):
            reply, _ = program.launch(endless, 1, (place, 256), timeout=limit)
            assert reply["status"] == KILLED, reply
            add(other, number, 64)
        program.put(place, b"\1" + bytes(255))
        assert program.launch(endless, 1, (place, 256))[0]["status"] == OK
        is_well(running)


BOARDS_LIMIT = 1 << 26  # cycles of any launch


def busy_cycles(running):
    """Cycles of all kernels since the start."""
    with urllib.request.urlopen(f"{running.url}/metrics", timeout=PATIENCE_S) as answer:
        lines = answer.read().decode().splitlines()
    return next(
        int(line.split()[1])
        for line in lines
        if line.startswith("baltra_board_kernel_busy_cycles_total")
    )


def test_a_cancelled_kernel_ends_and_its_region_is_usable():
    with programs(2) as (running, program, other):
        endless, mine, number = (
            program.kernel("forever")["number"],
            program.kernel("add")["number"],
            other.kernel("add")["number"],
        )
        place = program.take(256)
        for _ in range(4):
            program.begin(endless, 1, (place, 256), timeout=0)
            launched = program.id
            time.sleep(0.02)
            # No other program and no other id ends it.
            other.send(CANCEL, number=launched)
            program.send(CANCEL, number=launched + 1000)
            program.send(CANCEL, number=launched)
            reply, _ = program.end()
            assert (reply["id"], reply["status"]) == (launched, KILLED), reply
            # Nothing of it is written later.
            before = program.get(place, 256)
            add(other, number, 256)
            add(program, mine, 256)
            assert program.get(place, 256) == before
        # A launch that has ended cannot be cancelled, and a cancellation has no reply.
        program.send(CANCEL, number=launched)
        assert busy_cycles(running) < BOARDS_LIMIT
        is_well(running)


def test_kernels_end_with_their_program():
    with programs(2) as (running, program, other):
        number = other.kernel("add")["number"]
        for waiting in (0, 3, 15, 40):
            with Program(running.path) as leaving:
                endless = leaving.kernel("forever")["number"]
                place = leaving.take(256)
                leaving.begin(endless, 1, (place, 256), timeout=0)
                # More requests than the board reads.
                for _ in range(waiting):
                    leaving.send(TAKE, bytes=256)
            add(other, number, 256)
        assert busy_cycles(running) < BOARDS_LIMIT
        is_well(running)


def test_a_program_computes_while_the_kernel_of_another_runs():
    with programs(2) as (running, program, other):
        endless, number = program.kernel("forever")["number"], other.kernel("add")["number"]
        place, spare = program.take(256), program.take(4096)
        free = program.take(1 << 20)
        launched = []
        # One program leaves a region to the others, whatever it launches.
        for _ in range(REGIONS + 2):
            program.begin(endless, 1, (place, 256), (free, 1 << 20), timeout=0)
            launched.append(program.id)
        for _ in range(3):
            add(other, number, 512)
            # Its copies are carried out beside its calls, in any order.
            program.window[TEXT : TEXT + 4096] = bytes(range(256)) * 16
            assert program.ask(PUT, offset=TEXT, answer=spare, bytes=4096)["status"] == OK
            program.window[TEXT : TEXT + 4096] = bytes(4096)
            assert program.ask(GET, offset=TEXT, answer=spare, bytes=4096)["status"] == OK
            assert program.window[TEXT : TEXT + 4096] == bytes(range(256)) * 16
        # A library that it gives back stays while its kernels use it, and cannot be launched again.
        assert program.ask(GIVE, answer=free)["status"] == OK
        assert program.ask(UNLOAD, number=endless)["status"] == OK
        taken = [other.take(1 << 20) for _ in range(8)]
        assert free not in taken
        for identity in launched:
            program.send(CANCEL, number=identity)
        replies = [program.end()[0] for _ in launched]
        assert sorted(reply["id"] for reply in replies) == launched
        # Those that were not begun have lost their kernel.
        assert {reply["status"] for reply in replies} <= {KILLED, UNKNOWN}, replies
        assert program.launch(endless, 1, (place, 256))[0]["status"] == UNKNOWN
        again = [other.take(1 << 20) for _ in range(64)]
        assert free in again
        assert busy_cycles(running) < BOARDS_LIMIT
        is_well(running)


def test_two_programs_have_regions_and_memory_of_their_own():
    with programs(2) as (running, first, second):
        numbers = [program.kernel("add")["number"] for program in (first, second)]
        regions = {
            add(program, number, 256)["region"] for program, number in zip((first, second), numbers)
        }
        assert len(regions) == 2, regions
        place = first.take(4096)
        first.put(place, b"secret".ljust(4096, b"!"))
        # Another program reaches neither the memory nor the kernel.
        assert second.ask(GET, answer=place, bytes=256)["status"] == WRONG
        assert second.put(place, b"x") == WRONG
        assert second.ask(GIVE, answer=place)["status"] == UNKNOWN
        assert (
            second.launch(numbers[1], 1, (place, 16), (place, 16), (place, 16), 1)[0]["status"]
            == WRONG
        )
        assert second.launch(numbers[0], 1, 1)[0]["status"] == UNKNOWN
        first.socket.close()
        # Its memory is cleared before the next program has it.
        for _ in range(100):
            again = second.take(4096)
            assert second.get(again, 4096) == bytes(4096)
            if again == place:
                break
        assert again == place


def test_hostile_requests_are_refused():
    with programs() as (running, program):
        number = program.kernel("add")["number"]
        place = program.take(1 << 16)
        assert program.call(number, bytes(64))[0] == WRONG  # its body would have the bounds
        for kernel in (1 << 31, (1 << 31) + 1, (1 << 32) - 1):
            assert program.bring(LOAD, image(kernel))["status"] == WRONG
        assert program.kernel("add", library=b"\x7fELF" + bytes(100))["status"] == WRONG
        assert program.kernel("add", library=b"")["status"] == WRONG
        assert program.kernel("another")["status"] == WRONG
        assert program.ask(BRING, bytes=4096)["status"] == WRONG
        for bytes_ in (0, 1 << 40, (1 << 64) - 1):
            assert program.ask(TAKE, bytes=bytes_)["status"] == FULL
        for wrong in (
            dict(bytes=100),
            dict(bytes=1 << 20),
            dict(bytes=256, offset=4),
            dict(bytes=0),
        ):
            assert program.ask(GET, answer=place, **wrong)["status"] == WRONG, wrong
        assert program.ask(GET, answer=place + (1 << 16) - 256, bytes=512)["status"] == WRONG
        assert program.launch(number, 1, (place, 1 << 20), 0)[0]["status"] == WRONG
        assert program.launch(number, 1, (place - 256, 256), 0)[0]["status"] == WRONG
        program.window[:8] = struct.pack("=II", 1035, 0)
        assert program.ask(LAUNCH, number=number, bytes=1 << 14)["status"] == WRONG
        program.window[:8] = struct.pack("=II", 1034, 15)
        assert program.ask(LAUNCH, number=number, bytes=100)["status"] == WRONG
        # Without words and buffers the kernel has nothing that it could reach.
        program.window[:8] = bytes(8)
        assert program.ask(LAUNCH, number=number, bytes=8, timeout=1 << 16)["status"] in (
            OK,
            KILLED,
            FAULT,
        )
        assert program.ask(UNLOAD, number=number)["status"] == OK
        assert program.launch(number, 1, 1)[0]["status"] == UNKNOWN
        is_well(running)


if __name__ == "__main__":
    LIBRARY = build()
    tests = [
        v
        for k, v in list(globals().items())
        if k.startswith("test_") and v.__module__ == "__main__"
    ]
    run(tests, sys.argv[1:])
