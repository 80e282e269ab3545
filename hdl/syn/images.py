#!/usr/bin/env python3
"""Area and clocks of all kernels of images on an ECP5-85 (speed grade 8), with the open flow.

usage: hdl/syn/images.py [--mhz M] [--seeds S,…] [--write] IMAGE…

Places and routes each kernel of the images (`baltra accelerator build`) between shift registers, for
each seed (default 1, 2 and 3), in parallel on all processors. --write stores the figures in
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

from flow import HDL, PART, TARGET, install, place
from kernel import map_kernel

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


def measure(program, file, text, seeds, mhz):
    """Area, and the clocks of all seeds with the slowest path of the median one."""
    work = TARGET / "work" / "images" / f"{program}-{Path(file).stem}"
    work.mkdir(parents=True, exist_ok=True)
    (work / file).write_bytes(text)
    began = time.monotonic()
    area, _ = map_kernel(work / file, work)
    result = {"program": program, "kernel": Path(file).stem, **area}
    result["mapping_s"] = round(time.monotonic() - began)
    over = [
        f"{area[kind]:,} {kind} of {most:,}" for kind, most in CHIP.items() if area[kind] > most
    ]
    if over:
        result["over"] = over
        return result
    began = time.monotonic()
    with ThreadPoolExecutor(len(seeds)) as pool:
        placed = list(pool.map(lambda seed: place(work, "harness", seed, mhz), seeds))
    clocks = [next(reversed(p["clocks"].values())) for p in placed]
    middle = sorted(zip(clocks, range(len(seeds))))[(len(seeds) - 1) // 2][1]
    result["clocks"] = dict(zip(seeds, clocks))
    result["clock"] = statistics.median(clocks)
    result["slowest"] = placed[middle]["slowest"]
    result["placement_s"] = round(time.monotonic() - began)
    return result


def table(results):
    lines = [
        "| program | kernel | LUT | FF | block RAM | DSP | MHz | slowest path |",
        "|---|---|--:|--:|--:|--:|--:|---|",
    ]
    for r in results:
        if "over" in r:
            clock, path = "does not fit: " + ", ".join(r["over"]), ""
        else:
            clock = f"{r['clock']:.1f} ({', '.join(f'{c:.1f}' for c in r['clocks'].values())})"
            path = " to ".join(r["slowest"])
        lines.append(
            f"| {r['program']} | {r['kernel']} | {r['LUT']:,} | {r['FF']:,} | {r['RAM']} | "
            f"{r['DSP']} | {clock} | {path} |"
        )
    return lines


def write(results, lines, seeds, mhz):
    done = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True
    )
    commit = done.stdout.strip() or "none"
    path = ROOT / "bench/results/kernels" / f"{datetime.date.today()}-placed-{commit}"
    content = {"commit": commit, "seeds": seeds, "asked_mhz": mhz, "kernels": results}
    path.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n")
    head = f"""# Kernels from OpenCL C, placed and routed

{PART}; commit {commit}; Yosys and nextpnr, seeds {", ".join(map(str, seeds))}, asked for {mhz:g} MHz.
Each kernel alone, between shift registers, which are not counted; the clock is the median, in brackets
those of all seeds. The shell, the region's guard and its caches are not included.

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
    parser.add_argument("--write", action="store_true", help="store the figures")
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    install()
    found = []
    for path in options.images:
        program = path.parent.name if path.name == "image" else path.stem
        found += [(program, *kernel) for kernel in kernels(path.read_bytes())]
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // len(seeds))) as pool:
        results = list(pool.map(lambda one: measure(*one, seeds, options.mhz), found))
    lines = table(results)
    print("\n".join(lines))
    if options.write:
        write(results, lines, seeds, options.mhz)


if __name__ == "__main__":
    sys.exit(main())
