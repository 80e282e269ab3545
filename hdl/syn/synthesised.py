#!/usr/bin/env python3
"""Area and clock of synthesised kernels on an ECP5-85 (speed grade 8), with the open flow, beside the soft core.

    hdl/syn/synthesised.py [--seed S] [--no-place] MODULE.sv…

MODULE.sv is what `baltra cluster build` leaves beside the programs (target/cluster/…/msg_NAME.sv). A kernel is taken alone,
without engines; `core` stands for the processor with its 128 KB. The clock is of a kernel between shift registers.
"""
import argparse
import pathlib
import subprocess
import sys

from flow import HDL, PART, TARGET, cells, harness, install, place, yosys

ROOMS = ["messages", "hls", "common"]
PACKAGES = ["hum_envelope_pkg", "msg_pkg", "msg_calls_pkg"]
LEAVE = {"msg_kernel.sv", "msg_board.sv", "msg_core.sv"}


def sources(module):
    packages = [HDL / "messages" / "rtl" / f"{name}.sv" for name in PACKAGES]
    rooms = [f for room in ROOMS for f in sorted((HDL / room / "rtl").glob("*.sv"))]
    files = packages + [f for f in rooms if f not in packages and f.name not in LEAVE]
    if module == "core":
        found = subprocess.run([HDL.parent / "target/venv/bin/python", "-c", "import pythondata_cpu_picorv32 as p; print(p.data_location)"],
                               capture_output=True, text=True, check=True).stdout.strip()
        return "msg_core", files + [HDL / "messages" / "rtl" / "msg_core.sv", pathlib.Path(found) / "picorv32.v"]
    return pathlib.Path(module).stem, files + [pathlib.Path(module).resolve()]


def measure(given, seed, placing):
    module, files = sources(given)
    work = TARGET / "work" / module
    work.mkdir(parents=True, exist_ok=True)
    read = f"read_slang -I {HDL}/messages/rtl --top {module} {' '.join(map(str, files))}"
    yosys([read, f"synth_ecp5 -abc9 -top {module}", f"tee -q -o {work}/stat.json stat -json", f"write_json {work}/module.json"])
    area = cells(work / "stat.json")
    if not placing:
        return area, None
    (work / "harness.v").write_text(harness(module, work / "module.json"))
    yosys([read, f"read_verilog {work}/harness.v", f"synth_ecp5 -abc9 -top harness -json {work}/harness.json"])
    placed = place(work, "harness", seed)
    print(f"slowest path of {module}: {' to '.join(placed['slowest'])}", file=sys.stderr)
    return area, next(reversed(placed["clocks"].values()), None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-place", action="store_true", help="area alone")
    parser.add_argument("modules", nargs="+", metavar="MODULE.sv", help="a synthesised kernel, or `core`")
    options = parser.parse_args()
    install()
    print(f"{PART}, seed {options.seed}")
    print(f"{'kernel':<24} {'LUT':>6} {'FF':>6} {'RAM':>4} {'DSP':>4} {'MHz':>6}")
    for given in options.modules:
        area, clock = measure(given, options.seed, not options.no_place)
        name = pathlib.Path(given).stem
        print(f"{name:<24} {area['LUT']:>6} {area['FF']:>6} {area['RAM']:>4} {area['DSP']:>4} {clock and round(clock) or '-':>6}", flush=True)


if __name__ == "__main__":
    main()
