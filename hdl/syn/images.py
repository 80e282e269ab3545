#!/usr/bin/env python3
"""Area and clocks of all kernels of images on an ECP5-85 (speed grade 8), with the open flow.

usage: hdl/syn/images.py [--mhz M] [--seeds S,…] [-j N] [--only KERNEL,…] [--router R] [--limit S]
                         [--write] IMAGE…

Places and routes each kernel of the images (`baltra accelerator build`) between shift registers, for
each seed (default 1, 2 and 3), with N processes (default: one for each processor). Mapping a kernel and
placing it with one seed are a process each. --limit ends a placement after that many seconds; the
clock is nextpnr's estimate before routing then. --write stores the figures in
bench/results/kernels/DATE-placed-COMMIT.{json,md}. A kernel that exceeds the chip has its area after
mapping, and no clock.
"""

import argparse
import datetime
import json
import os
import statistics
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from flow import HDL, PART, TARGET, install
from kernel import map_kernel, place_kernel

ROOT = HDL.parent
# Of the chip: LUT, flip-flops, block RAMs of 18 Kbit, multipliers of 18 bits.
CHIP = {"LUT": 83640, "FF": 83640, "RAM": 208, "DSP": 156}
# Bytes before an image's manifest (crates/board/src/accelerator.rs).
HEAD_BYTES = 40


def kernels(image):
    """File name and SystemVerilog of each kernel of an image."""
    at = HEAD_BYTES

    def take():
        nonlocal at
        size = struct.unpack_from("<I", image, at)[0]
        at += 4 + size
        return image[at - size : at]

    take()  # the manifest
    count = struct.unpack_from("<I", image, at)[0]
    at += 4
    return [(take().decode(), take()) for _ in range(count)]


def program_name(path):
    """`target/bench-kernels/NAME/image` has its name from the folder."""
    return path.parent.name if path.name == "image" else path.stem


def timed(call, *arguments, **options):
    began = time.monotonic()
    result = call(*arguments, **options)
    return result, round(time.monotonic() - began)


def measure(images, seeds, mhz, jobs, only=None, **options):
    """The results of all kernels of the images; `only`: names of kernels; options: flow.place's."""
    install()
    with ThreadPoolExecutor(jobs) as pool:
        mapped = []
        for path in images:
            for file, text in kernels(path.read_bytes()):
                name = Path(file).stem.removeprefix("opencl_")
                if only and name not in only:
                    continue
                work = TARGET / "work" / "images" / f"{program_name(path)}-{name}"
                work.mkdir(parents=True, exist_ok=True)
                (work / file).write_bytes(text)
                future = pool.submit(timed, map_kernel, work / file, work)
                mapped.append((program_name(path), name, work, future))
        started = []
        for program, name, work, future in mapped:
            (area, registers), mapping_s = future.result()
            result = {"program": program, "kernel": name, **area, "mapping_s": mapping_s}
            over = [kind for kind, most in CHIP.items() if area[kind] > most]
            if over:
                result["over"] = [f"{area[kind]:,} {kind} of {CHIP[kind]:,}" for kind in over]
            each = [
                pool.submit(timed, place_kernel, work, registers, seed, mhz, **options)
                for seed in ([] if over else seeds)
            ]
            started.append((result, each))
        return [combined(result, seeds, [f.result() for f in each]) for result, each in started]


def combined(result, seeds, placed):
    """A kernel's result with its placements: the clock is the median, the path that of the median."""
    if placed:
        clocks = [one["clock"] for one, _ in placed]
        middle = sorted(zip(clocks, range(len(clocks))))[(len(clocks) - 1) // 2][1]
        result |= {
            "placed": placed[middle][0]["area"],
            "clocks": dict(zip(seeds, clocks)),
            "clock": statistics.median(clocks),
            "routed": [one["routed"] for one, _ in placed],
            "slowest": placed[middle][0]["slowest"],
            "placement_s": [seconds for _, seconds in placed],
        }
    return result


def table(results):
    lines = [
        "| program | kernel | LUT | FF | block RAM | DSP | MHz, median | range | slowest path |",
        "|---|---|--:|--:|--:|--:|--:|---|---|",
    ]
    for r in results:
        area = r.get("placed", r)
        clock, spread, path = "", "", ""
        if "over" in r:
            spread = "does not fit: " + ", ".join(r["over"])
        else:
            clocks = r["clocks"].values()
            clock = f"{r['clock']:.1f}"
            spread = f"{min(clocks):.1f} to {max(clocks):.1f}"
            if not all(r["routed"]):
                spread += f"; estimates, {r['routed'].count(False)} of {len(clocks)} not routed"
            path = " to ".join(r["slowest"])
        lines.append(
            f"| {r['program']} | {r['kernel']} | {area['LUT']:,} | {area['FF']:,} | {area['RAM']} | "
            f"{area['DSP']} | {clock} | {spread} | {path} |"
        )
    return lines


def write(results, lines, seeds, mhz, jobs):
    done = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True
    )
    commit = done.stdout.strip() or "none"
    path = ROOT / "bench/results/kernels" / f"{datetime.date.today()}-placed-{commit}"
    content = {"commit": commit, "seeds": seeds, "asked_mhz": mhz, "kernels": results}
    path.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n")
    head = f"""# Kernels from OpenCL C, placed and routed

{PART}; commit {commit}; Yosys and nextpnr, seeds {", ".join(map(str, seeds))}, asked for {mhz:g} MHz,
{jobs} processes at a time on {os.cpu_count()} cores. Each kernel alone, between shift registers, which are not counted. The shell,
the region's guard and its caches are not included.

"""
    path.with_suffix(".md").write_text(head + "\n".join(lines) + "\n")
    print(f"\n{path.relative_to(ROOT)}.md")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("images", nargs="+", type=Path, metavar="IMAGE")
    parser.add_argument("--mhz", type=float, default=100, help="clock to ask for (default 100)")
    parser.add_argument("--seeds", default="1,2,3", help="of the placement (default 1,2,3)")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count(), help="processes at a time")
    parser.add_argument("--only", help="names of kernels, with commas between them")
    parser.add_argument("--router", default="router1", help="router1 (default) or router2")
    parser.add_argument("--limit", type=float, metavar="S", help="seconds of a placement")
    parser.add_argument("--write", action="store_true", help="store the figures")
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    only = options.only.split(",") if options.only else None
    results = measure(
        options.images,
        seeds,
        options.mhz,
        options.jobs,
        only=only,
        router=options.router,
        limit_s=options.limit,
    )
    lines = table(results)
    print("\n".join(lines))
    if options.write:
        write(results, lines, seeds, options.mhz, options.jobs)


if __name__ == "__main__":
    sys.exit(main())
