#!/usr/bin/env python3
"""Area and clock of kernels from OpenCL C on an ECP5-85 (speed grade 8), with the open flow.

    hdl/syn/kernel.py [--seed S] MODULE.sv…

MODULE.sv is a SystemVerilog file of an accelerator's image. Prints a JSON object with an entry for
each module: the cells after place and route, without the guard and the cache of its memory port,
and the clock between shift registers. `baltra accelerator build --target ecp5-85f` calls it.
"""

import argparse
import json
import pathlib

from flow import HDL, PART, TARGET, harness, install, place, yosys

ROOMS = ["kernels", "messages", "hls", "common"]


def measure(path, seed):
    module = path.stem
    work = TARGET / "work" / module
    work.mkdir(parents=True, exist_ok=True)
    folders = [f"{HDL}/{room}/rtl" for room in ROOMS]
    read = " ".join(
        [
            "read_slang --ignore-assertions --libext .sv",
            *(f"-I {folder} -y {folder}" for folder in folders),
            f"--top {module} {HDL}/kernels/rtl/kernel_calls_pkg.sv {path}",
        ]
    )
    # The ports, for the shift registers.
    yosys([read, "proc", f"write_json {work}/module.json"])
    (work / "harness.v").write_text(harness(module, work / "module.json"))
    yosys(
        [
            read,
            f"read_verilog {work}/harness.v",
            f"synth_ecp5 -abc9 -top harness -json {work}/harness.json",
        ]
    )
    placed = place(work, "harness", seed)
    registers = sum(
        len(port["bits"])
        for name, port in json.loads((work / "module.json").read_text())["modules"][module][
            "ports"
        ].items()
        if name != "clk"
    )
    return {
        "part": PART,
        "luts": placed["LUT"],
        "flip_flops": placed["FF"] - registers,
        "block_rams": placed["RAM"],
        "multipliers": placed["DSP"],
        "mhz": next(reversed(placed["clocks"].values()), 0.0),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("modules", nargs="+", type=pathlib.Path, metavar="MODULE.sv")
    options = parser.parse_args()
    install()
    print(json.dumps({path.stem: measure(path.resolve(), options.seed) for path in options.modules}))


if __name__ == "__main__":
    main()
