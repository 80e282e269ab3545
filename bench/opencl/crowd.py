#!/usr/bin/env python3
"""Many tenants that keep memory on one device and compute in turn, with `memory_overcommit` and
without.

Tenants come one after the other, each fills its buffers (tenant.c), and stays. Then each computes
for a turn, in the order of their arrival. Prints who came, how long they waited for their first
task of a turn, and whether all bytes are right; writes a picture of tasks per second and of memory.
Without overcommitting, a tenant for which the driver has no memory is refused and does not compute.
--occupied: bytes that a program beside Baltra fills first, so that the device has fewer.

Example, on an H200: bench/opencl/crowd.py --driver libnvidia-opencl.so.1 --device H200 \\
    --bytes 3G --memory-bytes 16G --occupied 115G --picture crowd.svg
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import svg
from upgrade import ROOT, daemon

DEVICE = '[[device]]\nname = "device"\ndriver = "{}"\nselect = "0"\nhost_memory = false\nslots = 1\n'
SAMPLE_S = 0.25


def size(text):
    units = {"K": 10, "M": 20, "G": 30}
    return int(text[:-1]) << units[text[-1]] if text[-1] in units else int(text)


def device(options):
    return ["--device", options.device] if options.device else []


class Tenant:
    """A program of a tenant, and what it has printed."""

    def __init__(self, command):
        pipe = subprocess.PIPE
        self.program = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, bufsize=1
        )
        self.tasks = 0
        self.before = 0
        self.refusal = None
        self.is_right = False
        self.ready, self.done, self.first = (threading.Event() for _ in range(3))
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.program.stdout:
            word, _, rest = line.strip().partition(" ")
            if word == "ready":
                self.ready.set()
            elif word == "tasks":
                self.tasks = self.before + int(rest)
                self.first.set()
            elif word == "done":
                self.before = self.tasks
                self.done.set()
            elif word == "error":
                self.refusal = line.strip()
            elif word == "right":
                self.is_right = True
        self.refusal = self.refusal or "it ended"
        for event in (self.ready, self.done, self.first):
            event.set()

    def turn(self, ms):
        """Computes for so long; returns the seconds until the first report of tasks."""
        self.done.clear()
        self.first.clear()
        began = time.monotonic()
        self.program.stdin.write(f"{ms}\n")
        self.first.wait()
        waited = time.monotonic() - began
        self.done.wait()
        return waited


class Samples:
    """Tasks and memory over time, taken in a thread."""

    def __init__(self, usage, tenants):
        self.usage, self.tenants = usage, tenants
        self.lines, self.over = [], threading.Event()
        self.began = time.monotonic()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.over.wait(SAMPLE_S):
            done = subprocess.run(self.usage, capture_output=True, text=True)
            lines = json.loads(done.stdout or "[]")
            resident = sum(line.get("resident_bytes", 0) for line in lines)
            tasks = sum(tenant.tasks for tenant in self.tenants)
            self.lines.append((time.monotonic() - self.began, tasks, resident))

    def end(self):
        self.over.set()
        self.thread.join()

    def rates(self):
        """(seconds, tasks per second), of a second each."""
        points, (since, count, _) = [], self.lines[0]
        for now, tasks, _ in self.lines:
            if now - since >= 1:
                points.append((now, max((tasks - count) / (now - since), 0.1)))
                since, count = now, tasks
        return points


def crowd(options, folder, overcommits):
    """Runs all tenants; returns the samples, and the bytes that they hold, over time."""
    config = DEVICE.format(options.driver)
    config += f"quantum_ms = {options.turn_ms}\n"
    if overcommits:
        config += f"memory_overcommit = {options.overcommit}\n"
        config += f"memory_bytes = {options.memory_bytes}\n"
    tenants, held, waits = [], [(0, 0)], []
    with daemon(options.baltra, config, folder) as place:
        samples = Samples([options.baltra, "tenant", "usage", "--json", *place], tenants)
        for number in range(options.tenants):
            name = f"t{number}"
            add = [options.baltra, "tenant", "add", name, *place]
            subprocess.run(add, check=True, capture_output=True)
            run = [options.baltra, "run", "--tenant", name, *place, "--", options.program]
            tenants.append(Tenant([*run, *device(options), "--bytes", str(options.bytes)]))
            tenants[-1].ready.wait()
            came = sum(tenant.refusal is None for tenant in tenants)
            held.append((time.monotonic() - samples.began, came * options.bytes))
        for tenant in tenants:
            if tenant.refusal is None:
                waits.append(tenant.turn(options.turn_ms))
        held.append((time.monotonic() - samples.began, held[-1][1]))
        samples.end()
        refused = [tenant.refusal for tenant in tenants if tenant.refusal]
        for tenant in tenants:
            tenant.program.stdin.close()
        for tenant in tenants:
            tenant.program.wait()
    right = sum(tenant.is_right for tenant in tenants)
    print(
        f"{'with' if overcommits else 'without'}: {len(waits)} of {options.tenants} tenants, "
        f"{right} with the right bytes; {sum(tenant.tasks for tenant in tenants)} tasks in "
        f"{held[-1][0]:.0f} s; first tasks of a turn after {statistics.median(waits):.2f} s "
        f"(at most {max(waits):.2f}); refused: {sorted(set(refused))}",
        flush=True,
    )
    return samples, held, right == len(waits)


def picture(results):
    """Tasks per second above memory, with and without."""
    tasks, memory = {}, {}
    for name, (samples, held, _) in results.items():
        tasks[name] = samples.rates()
        memory[f"held by tenants, {name}"] = [(s, b / 2**30) for s, b in held]
    on_device = [(s, b / 2**30) for s, _, b in results["with overcommitting"][0].lines]
    memory["of it on the device, with overcommitting"] = on_device
    charts = [
        svg.chart("Tasks of all tenants", "seconds", "per second", tasks, False, False, None, True),
        svg.chart("Memory", "seconds", "GiB", memory, False, False, None, True),
    ]
    below = charts[1].replace("<svg ", f'<svg y="{svg.HEIGHT}" ', 1)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{svg.WIDTH}" height="{2 * svg.HEIGHT}">\n'
        f"{charts[0]}{below}</svg>\n"
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--baltra", default=ROOT / "target/release/baltra", type=Path)
    parser.add_argument(
        "--program", default=ROOT / "target/bench/tenant", type=Path, help="tenant.c, compiled"
    )
    parser.add_argument("--driver", default="libpocl.so.2", help="library of an OpenCL driver")
    parser.add_argument("--device", help="part of the device's name, if there are several")
    parser.add_argument("--tenants", type=int, default=16, help="default 16")
    parser.add_argument("--bytes", type=size, default=size("256M"), help="of a tenant (256M)")
    parser.add_argument("--memory-bytes", type=size, default=size("1G"), help="of the device (1G)")
    parser.add_argument("--overcommit", type=int, default=4, help="default 4")
    parser.add_argument("--occupied", type=size, default=0, help="bytes of a program beside it")
    parser.add_argument("--turn-ms", type=int, default=2000, help="of a tenant (default 2000)")
    parser.add_argument("--picture", type=Path, help="file for the picture")
    options = parser.parse_args()
    if options.occupied:
        command = [options.program, *device(options), "--bytes", str(options.occupied)]
        beside = Tenant(command)
        beside.ready.wait()
        if beside.refusal:
            sys.exit(f"the program beside Baltra: {beside.refusal}")
    results = {}
    for name, overcommits in [("with overcommitting", True), ("without", False)]:
        with tempfile.TemporaryDirectory(prefix="baltra-crowd-") as folder:
            results[name] = crowd(options, Path(folder), overcommits)
    if options.occupied:
        beside.program.kill()
    if options.picture:
        options.picture.write_text(picture(results))
    return 0 if all(right for _, _, right in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
