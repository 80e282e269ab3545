#!/usr/bin/env python3
"""Clock gating changes nothing: a board without gates repeats a run with gates in the same cycles.

usage: gates_test.py     (no root; `make -C hdl/board all ungated` first)

Clients of all kinds call the live model with gated clocks. Its recording is replayed on the same
RTL without gates: each frame must leave in the same cycle.
"""

import concurrent.futures
import hashlib
import http.client
import random
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import MODEL, PATIENCE_S, UserBoard, frames_of, run

SEED = ("--seed", "7")


def calls(board, seed):
    """One client: all kinds of requests, and every reply compared."""
    draw = random.Random(seed)
    client = http.client.HTTPConnection("127.0.0.1", board.port, timeout=PATIENCE_S)
    for i in range(30):
        body = draw.randbytes(draw.choice([1, 7, 8, 64, 64, 64, 1000, 20000]))
        name, expected = draw.choice(
            [
                ("echo", body),
                ("echo", body),
                ("uppercase", body.upper()),
                ("sha256", hashlib.sha256(body).digest()),
            ]
        )
        headers = {"X-Request-Id": f"call-{seed}-{i}"} if draw.random() < 0.3 else {}
        if draw.random() < 0.2:
            client.request(
                "POST",
                f"/function/{name}",
                body=iter([body[:3], body[3:]]),
                headers=headers,
                encode_chunked=True,
            )
        else:
            client.request("POST", f"/function/{name}", body=body, headers=headers)
        answer = client.getresponse()
        got = answer.read()
        assert (answer.status, got) == (200, expected), (seed, i, name, answer.status, len(got))
        assert not headers or answer.headers["X-Request-Id"] == headers["X-Request-Id"]
        if draw.random() < 0.2:
            time.sleep(draw.random() / 50)
        if draw.random() < 0.1:
            path = draw.choice(
                ["/metrics", "/system/functions", "/healthz", "/nothing", "/function/none"]
            )
            client.request("GET", path)
            client.getresponse().read()
    client.close()


def types(board, seed):
    """A client that sends a request byte by byte, and another that disconnects within a request."""
    request = b"POST /function/echo HTTP/1.1\r\nHost: b\r\nContent-Length: 5\r\n\r\nhello"
    with socket.create_connection(("127.0.0.1", board.port), timeout=PATIENCE_S) as peer:
        for byte in request:
            peer.sendall(bytes([byte]))
            time.sleep(0.001)
        assert peer.recv(4096).startswith(b"HTTP/1.1 200")
    with socket.create_connection(("127.0.0.1", board.port), timeout=PATIENCE_S) as peer:
        peer.sendall(request[: 10 + seed])


def test_clocks_that_stand_still_change_nothing():
    with tempfile.TemporaryDirectory() as directory:
        recording, again = Path(directory) / "gated.pcap", Path(directory) / "ungated.pcap"
        with (
            UserBoard("--pcap", recording, *SEED) as board,
            concurrent.futures.ThreadPoolExecutor(14) as pool,
        ):
            clients = [pool.submit(calls, board, seed) for seed in range(12)] + [
                pool.submit(types, board, seed) for seed in range(2)
            ]
            for client in clients:
                client.result()
        frames = frames_of(recording)
        assert sum(kind == 1 for kind, _, _ in frames) > 500, len(frames)
        ungated = MODEL.with_name("board-ungated")
        done = subprocess.run(
            [ungated, "--replay", recording, *SEED, "--pcap", again],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
        assert frames_of(again) == frames


if __name__ == "__main__":
    tests = [v for k, v in list(globals().items()) if k.startswith("test_")]
    run(tests, sys.argv[1:])
