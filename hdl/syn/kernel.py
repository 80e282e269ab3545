#!/usr/bin/env python3
"""Area and clock of kernels from OpenCL C on an ECP5-85 (speed grade 8), with the open flow.

    hdl/syn/kernel.py [--seed S] [--mhz M] MODULE.sv…

MODULE.sv is a SystemVerilog file of an accelerator's image. Prints a JSON object with an entry for
each module: the cells after place and route, without the guard and the cache of its memory port,
and the clock between shift registers. `baltra accelerator build --target ecp5-85f` calls it.
"""

import argparse
import json
import pathlib

from flow import HDL, PART, TARGET, ecp5, harness, install, place, synth, yosys

ROOMS = ["kernels", "messages", "hls", "common"]


def map_kernel(path, work):
    """Maps the kernel of PATH between shift registers: WORK/harness.json. Returns its area without
    these, and what they take."""
    module = path.stem
    work.mkdir(parents=True, exist_ok=True)
    search = " ".join(f"-I {HDL}/{room}/rtl -y {HDL}/{room}/rtl" for room in ROOMS)
    read = (
        f"read_slang --ignore-assertions --unroll-limit 1000000 --libext .sv {search} "
        f"--top {module} {HDL}/kernels/rtl/kernel_calls_pkg.sv {path}"
    )
    # The ports, for the shift registers.
    yosys([read, "hierarchy -check", f"write_json -noscopeinfo {work}/module.json"])
    (work / "harness.v").write_text(harness(module, work / "module.json"))
    steps = synth("harness", f"-json {work}/harness.json")
    yosys(
        [read, f"read_verilog {work}/harness.v", *steps, f"tee -q -o {work}/stat.json stat -json"]
    )
    area = ecp5(json.loads((work / "stat.json").read_text())["design"]["num_cells_by_type"])
    ports = json.loads((work / "module.json").read_text())["modules"][module]["ports"]
    bits = {"input": 0, "output": 0}
    for name, port in ports.items():
        if name != "clk":
            bits[port["direction"]] += len(port["bits"])
    registers = {"LUT": bits["output"], "FF": bits["input"] + bits["output"], "RAM": 0, "DSP": 0}
    return {kind: area[kind] - own for kind, own in registers.items()}, registers


def place_kernel(work, registers, seed, mhz, **options):
    """Places and routes a kernel that is mapped: its area and its clock, without the shift
    registers; `clock` is 0 if nextpnr reports none. Options: those of flow.place."""
    placed = place(work, "harness", seed, mhz, **options)
    return {
        "area": {kind: placed[kind] - own for kind, own in registers.items()},
        "clock": next(reversed(placed["clocks"].values()), 0.0),
        "routed": placed["routed"],
        "slowest": placed["slowest"],
    }


def measure(path, seed, mhz):
    work = TARGET / "work" / path.stem
    _, registers = map_kernel(path, work)
    placed = place_kernel(work, registers, seed, mhz)
    area = placed["area"]
    return {
        "part": PART,
        "luts": area["LUT"],
        "flip_flops": area["FF"],
        "block_rams": area["RAM"],
        "multipliers": area["DSP"],
        "mhz": placed["clock"],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mhz", type=float, default=150, help="clock to ask for (default 150)")
    parser.add_argument("modules", nargs="+", type=pathlib.Path, metavar="MODULE.sv")
    options = parser.parse_args()
    install()
    paths = [path.resolve() for path in options.modules]
    print(json.dumps({p.stem: measure(p, options.seed, options.mhz) for p in paths}))


if __name__ == "__main__":
    main()
