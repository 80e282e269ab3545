#!/usr/bin/env python3
"""Calls one kernel (echo, 64 bytes) 5,000 times in three ways: over a board's host port, over its
HTTP, and over nginx with an OpenCL kernel on PoCL (fcgi_opencl.c); and, for comparison, over the
gateway with the same OpenCL kernel.

usage: bench/board/three_ways.py [--calls N] [--write]

Cycles and wall clock are separate. Cycles are those of the RTL, for both ways into the board; wall
clock is the speed of the live model, and of nginx and the gateway on this host's processor. This
program is the client: one call at a time over one socket, alternating between the ways, so that
load of the host affects all of them. --write keeps bench/results/board/DATE-three-ways-COMMIT.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "target" / "board"
CLOCK_MHZ = 156.25
BLOCK = 250  # calls in one way before the next way
sys.path[:0] = [str(ROOT / "hdl" / "board" / "tests"), str(ROOT / "bench" / "opencl")]
import device_test  # noqa: E402
import harness  # noqa: E402
import host_test  # noqa: E402
import svg  # noqa: E402
from nginx import configuration  # noqa: E402

MANIFEST = """
name: echo
inputs:
  - {name: body, type: u8, shape: [n], codecs: [raw]}
outputs:
  - {name: answer, type: u8, shape: [n], codecs: [raw]}
symbols:
  n: {min: 1, max: 65536}
implementations:
  - opencl: {source: echo.cl, kernel: echo, args: [body, answer], global: [n]}
"""
SOURCE = pathlib.Path(__file__).with_name("echo.cl")
# Connections stay open on both sides, as with a board and the gateway. The worker of a user other
# than root keeps this user.
NGINX = """
  upstream kernel { server unix:DIRECTORY/kernel.sock; keepalive 1; }
  server {
    listen 127.0.0.1:PORT;
    location /function/echo {
      fastcgi_pass kernel;
      fastcgi_keep_conn on;
      fastcgi_param REQUEST_METHOD $request_method;
      fastcgi_param CONTENT_LENGTH $content_length;
    }
  }
"""


class Http:
    """One connection; a call is one write, and reads until the reply is complete."""

    def __init__(self, url):
        parts = urllib.parse.urlsplit(url)
        self.socket = socket.create_connection((parts.hostname, parts.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.head = (
            f"POST /function/echo HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: "
            "application/octet-stream\r\n"
            "Content-Length: 64\r\n\r\n"
        ).encode()

    def __call__(self, body):
        self.socket.sendall(self.head + body)
        answer = b""
        while b"\r\n\r\n" not in answer or len(answer) - answer.index(b"\r\n\r\n") - 4 < 64:
            more = self.socket.recv(65536)
            if not more:
                sys.exit("error: the server closed the connection")
            answer += more
        return answer[answer.index(b"\r\n\r\n") + 4 :]


@contextlib.contextmanager
def nginx(pool):
    """Starts nginx in front of the kernel; returns its URL."""
    directory = pool.home / "nginx"
    directory.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as any_free:
        port = any_free.getsockname()[1]
    (directory / "conf").write_text(
        configuration(directory, NGINX.replace("PORT", str(port)), user="root")
    )
    start = lambda *words: subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=pool.log, stderr=pool.log, env=pool.environment()
    )
    processes = [start(DATA / "fcgi_opencl", directory / "kernel.sock", SOURCE, "echo")]
    try:
        device_test.until("the kernel's program listens", (directory / "kernel.sock").exists)
        processes.append(start("nginx", "-e", "stderr", "-c", str(directory / "conf")))

        def listens():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return True

        device_test.until("nginx listens", listens)
        yield f"http://127.0.0.1:{port}"
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(10)


def percentiles(seconds):
    ordered = sorted(seconds)
    at = lambda share: round(1e6 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 1)
    return {
        "least": at(0),
        "p50": at(0.5),
        "p95": at(0.95),
        "p99": at(0.99),
        "most": at(1),
        "percentiles": [at(percent / 100) for percent in range(100)],
    }


def wall_clock(calls):
    with device_test.node() as (board, pool), host_test.Port(board.path) as port:
        directory = pool.home / "echo"
        directory.mkdir()
        (directory / "function.yaml").write_text(MANIFEST)
        shutil.copy(SOURCE, directory)
        echo = port.bring(host_test.LOAD, harness.image("echo"))["number"]
        with nginx(pool) as nginx_url, device_test.gateway(pool, directory) as url:
            ways = {
                "host port": lambda body: port.call(echo, body)[1],
                "HTTP on the board": Http(board.url),
                "nginx, OpenCL on PoCL": Http(nginx_url),
                "gateway, OpenCL on PoCL": Http(url),
            }
            took = {name: [] for name in ways}
            for name, call in ways.items():
                for i in range(20):  # warm-up
                    call(bytes(64))
            for start in range(0, calls, BLOCK):
                for name, call in ways.items():
                    for i in range(start, min(start + BLOCK, calls)):
                        body = i.to_bytes(8, "little") * 8
                        begun = time.perf_counter()
                        answer = call(body)
                        took[name].append(time.perf_counter() - begun)
                        if answer != body:
                            sys.exit(f"error: the reply of {name} differs from the body")
    return {name: percentiles(seconds) for name, seconds in took.items()}


def report(result):
    lines = [
        f"# One kernel, three ways: {result['calls']} calls of echo with 64 bytes",
        "",
        f"{result['date']}, commit {result['commit']}; one call at a time, alternating between the "
        f"ways after {BLOCK} calls.",
        "",
        f"Cycles of the RTL, and the time at {CLOCK_MHZ} MHz (a clock that no placement of this "
        "RTL has reached):",
        "",
        "| way | cycles: minimum, mean, maximum | µs | definition |",
        "|---|---|---|---|",
    ]
    counted = {
        "host": "doorbell written to report in host memory; {bus_latency} cycles for each of two "
        "reads of host memory, assumed",
        "latency": "last byte of the request in to first byte of the reply out, without the wire",
    }
    for row in result["cycles"]:
        what = {"host": "host port", "latency": "HTTP on the board"}[row["measure"]]
        lines.append(
            f"| {what} | {row['least']}, {row['mean']}, {row['most']} | "
            f"{row['mean'] / CLOCK_MHZ:.2f} "
            f"| {counted[row['measure']].format(**row)} |"
        )
    lines += [
        "",
        f"Wall clock, µs, including the Python client's own time, on {result['cores']} cores whose "
        "load average was "
        f"{result['load_before']} before. The first two are the speed of a simulation:",
        "",
        "| way | least | p50 | p95 | p99 | most |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in result["wall_clock_us"].items():
        lines.append(
            f"| {name} | "
            + " | ".join(str(row[key]) for key in ("least", "p50", "p95", "p99", "most"))
            + " |"
        )
    return "\n".join(lines) + "\n"


def picture(result):
    """The distributions of the wall-clock times as SVG."""
    return svg.chart(
        f"{result['calls']} calls of one kernel, wall clock",
        "µs (the first two are the speed of a simulation)",
        "% of the calls",
        {
            name: [(us, percent) for percent, us in enumerate(row["percentiles"])]
            for name, row in result["wall_clock_us"].items()
        },
        log_y=False,
    )


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--calls", type=int, default=5000)
    arguments.add_argument(
        "--write", action="store_true", help="keep the result in bench/results/board"
    )
    options = arguments.parse_args()
    subprocess.run(["make", "-s", "-C", pathlib.Path(__file__).parent], check=True)
    text = subprocess.run(
        [DATA / "bench", "host", "latency"], capture_output=True, text=True, check=True
    ).stdout
    head = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    result = {
        "date": datetime.date.today().isoformat(),
        "commit": head or "none",
        "calls": options.calls,
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 1),
        "cycles": [json.loads(line) for line in text.splitlines()],
        "wall_clock_us": wall_clock(options.calls),
    }
    text = report(result)
    print(text)
    if options.write:
        stem = (
            ROOT / "bench" / "results" / "board" / f"{result['date']}-three-ways-{result['commit']}"
        )
        stem.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
        file = stem.with_suffix(".svg")
        file.write_text(picture(result))
        stem.with_suffix(".md").write_text(f"{text}\n![]({file.name})\n")


if __name__ == "__main__":
    main()
