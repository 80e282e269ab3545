#!/usr/bin/env python3
"""Tests the model whose rings are in board memory, with the timing of DRAM (make -C hdl/board rings).

usage: rings_test.py [PART OF A NAME …]     (root: creates a network namespace and a TAP device)
"""

import random
import sys
from concurrent.futures import ThreadPoolExecutor

from client import alive, call, echo, metrics
from harness import Board, enter_namespace, run

MODEL = "board-rings"


def test_bodies_of_all_sizes():
    """The line is faster than this memory: frames wait, and windows keep them few."""
    draw = random.Random(1)
    with Board(log="rings", model=MODEL):
        for size in (0, 1, 7, 8, 9, 127, 128, 129, 1460, 5000, 65536, 200_000, 1_000_000):
            body = draw.randbytes(size)
            assert echo(body) == body, size
        alive()


def test_many_connections_at_once():
    draw = random.Random(2)
    bodies = [draw.randbytes(draw.randrange(20_000)) for _ in range(64)]
    with Board(log="rings-many", model=MODEL):
        with ThreadPoolExecutor(12) as pool:
            for body, answer in zip(bodies, pool.map(echo, bodies)):
                assert answer == body, len(body)
        assert call("uppercase", b"words") == (200, b"WORDS")
        assert metrics()["connections_total"] >= len(bodies)
        alive()


if __name__ == "__main__":
    enter_namespace()
    tests = [v for k, v in list(globals().items()) if k.startswith("test_")]
    run(tests, sys.argv[1:])
