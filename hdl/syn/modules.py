#!/usr/bin/env python3
"""Area and clock of single modules on an ECP5-85 (speed grade 8), with the open flow.

    hdl/syn/modules.py [--width W] [--seed S] [MODULE…]

Each module is synthesized alone for its area. For its clock it is placed and routed between shift
registers, so that paths from and to its ports count, too:
on a board they begin and end in registers as well.
"""

import argparse

from flow import HDL, INCLUDES, PART, TARGET, cells, harness, install, place, yosys

MODULES = [
    "kernel_echo",
    "kernel_uppercase",
    "kernel_checksum",
    "kernel_sobel",
    "kernel_sha256",
    "kernel_aes128",
    "kernel_matmul",
    "kernel_convolution",
    "region",
    "fn_table",
    "fn_scheduler",
    "fn_reconfig",
    "fn_stats",
]
ROOMS = ["common", "kernels", "functions"]


def sources():
    files = [f for room in ROOMS for f in sorted((HDL / room / "rtl").glob("*.sv"))]
    # Their kernel is a macro.
    files = [f for f in files if f.name not in ("kernel_frame.sv", "region_frame.sv", "region_call.sv")]
    names = [str(f) for f in sorted(files, key=lambda f: not f.name.endswith("_pkg.sv"))]
    return " ".join([INCLUDES, *names])


def measure(module, width, seed):
    work = TARGET / "work" / f"{module}-{width}"
    work.mkdir(parents=True, exist_ok=True)
    source = HDL / "kernels" / "rtl" / f"{module}.sv"
    has_width = source.exists() or module == "region"
    read = f"read_slang --ignore-assertions --top {module} {f'-G W={width} ' if has_width else ''}{sources()}"
    # A result that is newer than every source is reused.
    changed = max(f.stat().st_mtime for room in ROOMS for f in (HDL / room / "rtl").glob("*.sv"))
    stands = lambda name: (work / name).exists() and (work / name).stat().st_mtime > changed
    if not stands("module.json"):
        yosys(
            [
                read,
                f"synth_ecp5 -abc9 -top {module}",
                f"tee -q -o {work}/stat.json stat -json",
                f"write_json {work}/module.json",
            ]
        )
        (work / "harness.v").write_text(harness(module, work / "module.json"))
    if not stands("harness.json"):
        yosys(
            [
                read,
                f"read_verilog {work}/harness.v",
                f"synth_ecp5 -abc9 -top harness -json {work}/harness.json",
            ]
        )
    placed = place(work, "harness", seed)
    return cells(work / "stat.json"), next(reversed(placed["clocks"].values()), None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=64, choices=(32, 64))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("modules", nargs="*", default=MODULES, metavar="MODULE")
    options = parser.parse_args()
    install()
    print(f"{PART}, seed {options.seed}, W = {options.width}")
    print(f"{'module':<20} {'LUT':>6} {'FF':>6} {'RAM':>4} {'DSP':>4} {'MHz':>6}")
    for module in options.modules:
        area, clock = measure(module, options.width, options.seed)
        print(
            f"{module:<20} {area['LUT']:>6} {area['FF']:>6} {area['RAM']:>4} {area['DSP']:>4} "
            f"{clock and round(clock) or '-':>6}",
            flush=True,
        )


if __name__ == "__main__":
    main()
