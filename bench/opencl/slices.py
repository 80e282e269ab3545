#!/usr/bin/env python3
"""What a tenant with small tasks waits for beside one with long kernels, without and with slices.

Starts two daemons for one device, which differ in `slice_ms`, and lets two tenants work through each
in turn: the 4 KB task and matrix multiplications (clbench loop), each alone and both together.
Prints medians and ranges of the rounds, and writes all numbers with --json. Exit code 1 if a result
is wrong.

Example: bench/opencl/slices.py --driver libnvidia-opencl.so.1 --n 16384 --slice 4 --quantum 1
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from upgrade import ROOT, daemon

CONFIG = """
[[device]]
name = "device"
driver = "{driver}"
select = "0"
isolation = "tenant"
slots = 1
quantum_ms = {quantum}
slice_ms = {slice}

[[tenant]]
name = "tasks"

[[tenant]]
name = "products"
"""


def loops(options, place, works):
    """Runs loops at the same time; their results by kind of work."""
    start_ms = int((time.time() + options.settle) * 1000)
    running = {}
    for work in works:
        command = [options.baltra, "run", *place, "--tenant", work, "--", options.clbench, "loop"]
        command += ["--seconds", str(options.seconds), "--start-at", str(start_ms)]
        kind = "matmul" if work == "products" else "task"
        command += ["--work", kind, "--n", str(options.n)]
        running[work] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    results = {}
    for work, process in running.items():
        out, _ = process.communicate()
        if process.returncode:
            sys.exit(f"the loop of {work} ended with {process.returncode}: {out}")
        results[work] = json.loads(out)
    return results


def measure(options, folder):
    """The results of all rounds, by setting and what runs."""
    measured = {}
    settings = {"whole": 0, "slices": options.slice}
    places = {}
    for name, length in settings.items():
        (folder / name).mkdir()
        config = CONFIG.format(driver=options.driver, quantum=options.quantum, slice=length)
        places[name] = daemon(options.baltra, config, folder / name)
    with places["whole"] as whole, places["slices"] as slices:
        for number in range(options.rounds):
            order = [("whole", whole), ("slices", slices)]
            for name, place in order[:: 1 if number % 2 == 0 else -1]:
                for works in (["tasks"], ["products"], ["tasks", "products"]):
                    for work, result in loops(options, place, works).items():
                        beside = "beside" if len(works) > 1 else "alone"
                        measured.setdefault(f"{name} {work} {beside}", []).append(result)
    return measured


def report(measured):
    print(f"{'':24}{'per second':>28}{'p50 us':>28}{'p99 us':>30}{'longest us':>12}")
    for name, results in measured.items():
        line = f"{name:24}"
        for values in (
            [result["per_s"] for result in results],
            [result["latency_us"]["median"] for result in results],
            [result["latency_us"]["p99"] for result in results],
        ):
            middle = statistics.median(values)
            line += f"{middle:>12.4g} ({min(values):.4g} to {max(values):.4g})".rjust(29)
        print(line + f"{max(result['latency_us']['max'] for result in results):12.0f}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--baltra", default=ROOT / "target/release/baltra", type=Path)
    parser.add_argument("--clbench", default=ROOT / "target/bench/clbench", type=Path)
    parser.add_argument("--driver", default="libpocl.so.2", help="library of an OpenCL driver")
    parser.add_argument("--n", type=int, default=1024, help="size of the matrices, multiple of 16")
    parser.add_argument("--slice", type=float, default=4, help="slice_ms (default 4)")
    parser.add_argument("--quantum", type=float, default=1, help="quantum_ms (default 1)")
    parser.add_argument("--seconds", type=int, default=5, help="of a loop (default 5)")
    parser.add_argument("--settle", type=float, default=4, help="seconds to get ready (default 4)")
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    parser.add_argument("--json", type=Path, help="file for all numbers")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="baltra-slices-") as folder:
        measured = measure(options, Path(folder))
    if options.json:
        options.json.write_text(json.dumps(measured, indent=1) + "\n")
    report(measured)
    return 1 if any(r["wrong"] for results in measured.values() for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
