#!/usr/bin/env python3
"""What a move to another node costs, and what its program's commands cost afterwards.

Starts two daemons on this host, which stand for two nodes, and measures in turn
  - moves of a program that writes all of its --bytes all the time and compares them (the tests'
    moving), from one to the other, --moves times;
  - the 4 KB task (clbench loop) on a device of the own node, on the other node over TCP, and on the
    other node after its session has moved there.
Prints medians and ranges, and writes all numbers with --json. Exit code 1 if a result is wrong.

Example: bench/opencl/nodes.py --driver libnvidia-opencl.so.1 --bytes 67108864
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from upgrade import ROOT, daemon

CONFIG = """
[listen]
tcp = "127.0.0.1:{port}"

[[device]]
name = "device"
driver = "{driver}"
select = "0"
host_memory = false
"""
SETTLE_S = 5


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Nodes:
    """Both nodes, and how programs and commands reach them."""

    def __init__(self, options, near, far, port):
        self.options, self.near = options, near
        tenant = [options.baltra, "tenant"]
        subprocess.run([*tenant, "add", "bench", *far], check=True, capture_output=True)
        token = subprocess.check_output([*tenant, "token", "bench", *far], text=True).strip()
        self.remote = f"tcp://127.0.0.1:{port}/device"
        endpoint = self.remote.removesuffix("/device")
        self.token = {**os.environ, "BALTRA_TOKEN": token}
        self.run_near = [options.baltra, "run", *near, "--"]
        self.run_far = [options.baltra, "run", "--connect", endpoint, "--"]

    def start(self, command):
        # A program of the own node has no token.
        environment = self.token if command[: len(self.run_far)] == self.run_far else None
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    def send_only_session(self):
        """Moves the near node's only session; returns what that has cost."""
        session = [self.options.baltra, "session"]
        listed = subprocess.check_output([*session, "ls", "--json", *self.near])
        [only] = json.loads(listed)
        move = [*session, "move", str(only["id"]), "--to", self.remote, "--json", *self.near]
        return json.loads(subprocess.check_output([*move, "--force"], env=self.token))


def finish(running):
    out, _ = running.communicate()
    if running.returncode:
        sys.exit(f"{running.args} ended with {running.returncode}: {out}")
    return json.loads(out)


def move(nodes):
    program = ["stdbuf", "-oL", nodes.options.moving, "1000000", str(nodes.options.bytes), "2"]
    running = nodes.start([*nodes.run_near, *program])
    try:
        running.stdout.readline()
        moved = nodes.send_only_session()
        for _ in range(5):
            if not running.stdout.readline().startswith("round"):
                sys.exit(f"the program does not go on: {running.wait()}")
        return moved
    finally:
        running.kill()
        running.wait()


def loop(nodes, where):
    start_ms = int((time.time() + SETTLE_S) * 1000)
    program = [nodes.options.clbench, "loop", "--work", "task", "--start-at", str(start_ms)]
    program += ["--seconds", str(nodes.options.seconds)]
    running = nodes.start([*(nodes.run_far if where == "tcp" else nodes.run_near), *program])
    if where == "moved":
        time.sleep(SETTLE_S / 2)
        nodes.send_only_session()
    return finish(running)


def spread(values):
    return f"{statistics.median(values):.4g} ({min(values):.4g} to {max(values):.4g})"


def report(moves, loops):
    for key, unit in [
        ("took_us", "whole move, us"),
        ("stopped_us", "stopped, us"),
        ("stopped_bytes", "copied while stopped"),
    ]:
        print(f"{unit:24}{spread([moved[key] for moved in moves])}")
    for where, made in loops.items():
        rates = spread([result["per_s"] for result in made])
        p50 = spread([result["latency_us"]["median"] for result in made])
        p99 = spread([result["latency_us"]["p99"] for result in made])
        print(f"4 KB task, {where:12} {rates} per second, p50 {p50} us, p99 {p99} us")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--baltra", default=ROOT / "target/release/baltra", type=Path)
    parser.add_argument("--clbench", default=ROOT / "target/bench/clbench", type=Path)
    parser.add_argument("--moving", default=ROOT / "target/tests/moving", type=Path)
    parser.add_argument("--driver", default="libpocl.so.2", help="library of an OpenCL driver")
    parser.add_argument("--bytes", type=int, default=64 << 20, help="(default 64 MiB)")
    parser.add_argument("--moves", type=int, default=5, help="default 5")
    parser.add_argument("--rounds", type=int, default=3, help="of the tasks (default 3)")
    parser.add_argument("--seconds", type=int, default=5, help="of a loop (default 5)")
    parser.add_argument("--json", type=Path, help="file for all numbers")
    options = parser.parse_args()
    places = ("local", "tcp", "moved")
    loops = {where: [] for where in places}
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="baltra-nodes-") as folder:
        configs = [CONFIG.format(driver=options.driver, port=p) for p in (free_port(), port)]
        folders = [Path(folder) / name for name in ("near", "far")]
        for one in folders:
            one.mkdir()
        with (
            daemon(options.baltra, configs[0], folders[0]) as near,
            daemon(options.baltra, configs[1], folders[1]) as far,
        ):
            nodes = Nodes(options, near, far, port)
            moves = [move(nodes) for _ in range(options.moves)]
            for number in range(options.rounds):
                for where in places[:: 1 if number % 2 == 0 else -1]:
                    loops[where].append(loop(nodes, where))
    if options.json:
        options.json.write_text(json.dumps({"moves": moves, "loops": loops}, indent=1) + "\n")
    report(moves, loops)
    wrong = [result["wrong"] for made in loops.values() for result in made]
    return 1 if any(wrong) else 0


if __name__ == "__main__":
    sys.exit(main())
